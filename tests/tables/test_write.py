"""Refined labels in every output format, read back with the libraries that define it."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dissensus.errors import DataError, DissensusError, ParameterError
from dissensus.importers import load_export
from dissensus.tables.write import OUTPUT_FORMATS, weighted_rows, write_labels, write_table, write_tasks

COLUMNS: dict[str, list[Any]] = {
    "item": ["a", "b, \"c\"\nd\re", "ü"],
    "label": ["neg", "pos", "none of these"],
    "p_neg": [0.7, 0.0, 0.1],
    "p_pos": [0.3, 1.0, 0.2],
    "p_none of these": [0.0, 0.0, 0.7],
    "entropy": [0.6108643020548935, 0.0, 0.8018185525433373],
    "n_labels": [5, 2, 0],
}  # fmt: skip
FRAMES = {"pandas": pd.DataFrame, "polars": pl.DataFrame, "arrow": pa.table}
ITEMS = pa.table({"id": ["ü", "a"], "text": ["日本", "got <b>wet</b>"], "split": ["test", None]})


@pytest.fixture(params=FRAMES)
def frame(request: pytest.FixtureRequest) -> Any:
    return FRAMES[request.param](COLUMNS)


def test_tables_keep_every_value(frame: Any, tmp_path: Path) -> None:
    with write_labels(frame, tmp_path / "labels.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {name: [type(values[0])(row[name]) for row in rows] for name, values in COLUMNS.items()} == COLUMNS
    assert list(rows[0]) == list(COLUMNS)
    lines = write_labels(frame, tmp_path / "labels.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == pa.table(COLUMNS).to_pylist()
    assert pq.read_table(write_labels(frame, tmp_path / "labels.parquet")).to_pydict() == COLUMNS


@pytest.mark.parametrize("items", [ITEMS, ITEMS.select([1, 0, 2]).rename_columns(["text", "item", "split"])])
def test_columns_of_items(items: pa.Table, tmp_path: Path) -> None:
    path = write_labels(pa.table(COLUMNS), tmp_path / "labels.parquet", items=items)
    table = pq.read_table(path)
    assert table["text"].to_pylist() == ["got <b>wet</b>", None, "日本"]
    assert table["split"].to_pylist() == [None, None, "test"]


# ---- Hugging Face -------------------------------------------------------------------------------------


def test_dataset_has_the_files_of_save_to_disk(frame: Any, tmp_path: Path) -> None:
    path = write_labels(frame, tmp_path / "dataset", "huggingface")
    assert sorted(file.name for file in path.iterdir()) == [
        "data-00000-of-00001.arrow", "dataset_info.json", "state.json",
    ]  # fmt: skip
    state = json.loads((path / "state.json").read_text())
    assert state["_data_files"] == [{"filename": "data-00000-of-00001.arrow"}]
    features = json.loads((path / "dataset_info.json").read_text())["features"]
    assert features["p_neg"] == {"dtype": "float64", "_type": "Value"}
    assert features["n_labels"] == {"dtype": "int64", "_type": "Value"}
    with pa.memory_map(str(path / "data-00000-of-00001.arrow")) as file:
        table = pa.ipc.open_stream(file).read_all()
        assert table.to_pydict() == COLUMNS
        assert json.loads(table.schema.metadata[b"huggingface"])["info"]["features"] == features


@pytest.mark.slow
def test_datasets_library_loads_the_dataset(frame: Any, tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    path = write_labels(frame, tmp_path / "dataset", "huggingface")
    assert datasets.load_from_disk(str(path)).to_dict() == COLUMNS


# ---- Label Studio -------------------------------------------------------------------------------------


def test_label_studio_predictions(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    names = {"question": "mood", "to_name": "txt"}
    write_labels(pa.table(COLUMNS), path, "label-studio", items=ITEMS, **names)
    tasks = json.loads(path.read_text(encoding="utf-8"))
    distribution = {"neg": 0.7, "pos": 0.3, "none of these": 0.0}
    result = {"from_name": "mood", "to_name": "txt", "type": "choices", "value": {"choices": ["neg"]}}
    assert tasks[0] == {
        "data": {"item": "a", "text": "got <b>wet</b>"},
        "meta": {"distribution": distribution, "entropy": 0.6108643020548935, "n_labels": 5},
        "predictions": [{"model_version": "dissensus", "score": 0.7, "result": [result]}],
    }
    assert [task["data"]["item"] for task in tasks] == COLUMNS["item"]


def test_corrected_predictions_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "tasks.json"
    write_labels(pa.table(COLUMNS), path, "label-studio", items=ITEMS, question="mood")
    tasks = json.loads(path.read_text(encoding="utf-8"))
    for number, task in enumerate(tasks):
        result = task["predictions"][0]["result"]
        task |= {"id": number, "annotations": [{"completed_by": 1, "result": result}]}
    path.write_text(json.dumps(tasks))
    imported = load_export(path, item_column="item")
    assert imported.labels["item"].to_pylist() == COLUMNS["item"]
    assert imported.labels["label"].to_pylist() == COLUMNS["label"]


def test_predictions_need_texts(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="give the items with their text"):
        write_labels(pa.table(COLUMNS), tmp_path / "tasks.json", "label-studio")
    assert list(tmp_path.iterdir()) == []


# ---- weighted rows ------------------------------------------------------------------------------------


def test_weighted_rows_recover_the_distributions() -> None:
    from sklearn.linear_model import LogisticRegression

    rows = weighted_rows(pa.table(COLUMNS))
    features = (rows["item"].to_numpy()[:, None] == np.array(COLUMNS["item"])).astype(float)
    learner = LogisticRegression(C=1e6, fit_intercept=False, tol=1e-10, max_iter=10_000)
    learner.fit(features, rows["label"].to_numpy(), sample_weight=rows["weight"].to_numpy())
    expected = np.column_stack([COLUMNS[f"p_{name}"] for name in learner.classes_])
    np.testing.assert_allclose(learner.predict_proba(np.eye(3)), expected, rtol=0, atol=1e-3)


# ---- refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", OUTPUT_FORMATS)
def test_failure_leaves_no_file(format: str, tmp_path: Path) -> None:
    class Unwritable:
        def __repr__(self) -> str:
            return "unwritable"

    table = {**COLUMNS, "p_neg": [0.7, float("nan"), 0.1]}
    with pytest.raises(DataError, match="'p_neg' has values that are not probabilities"):
        write_labels(pa.table(table), tmp_path / "out.csv", format, items=ITEMS)
    with pytest.raises(DataError, match="cannot be written; give a model or a data frame"):
        write_labels(Unwritable(), tmp_path / "out.csv", format)
    assert list(tmp_path.iterdir()) == []


def test_missing_columns_and_unknown_formats(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no column 'label'"):
        write_labels(pa.table({"item": ["a"], "p_x": [1.0]}), tmp_path / "out.csv")
    with pytest.raises(DataError, match="no column p_<class>"):
        write_labels(pa.table({"item": ["a"], "label": ["x"]}), tmp_path / "out.csv")
    with pytest.raises(DataError, match="unknown suffix"):
        write_labels(pa.table(COLUMNS), tmp_path / "out.xlsx")
    with pytest.raises(ParameterError, match="'format' parameter"):
        write_labels(pa.table(COLUMNS), tmp_path / "out.csv", "excel")
    with pytest.raises(ParameterError, match="'format' parameter of write_table"):
        write_table(pa.table(COLUMNS), tmp_path / "out.csv", "huggingface")


def test_fitted_model(tmp_path: Path) -> None:
    import dissensus as ds

    frame = pd.DataFrame({"item": list("aab"), "annotator": list("xyx"), "label": ["n", "p", "p"]})
    model = ds.MajorityVote().fit(frame)
    path = write_labels(model, tmp_path / "labels.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(path), model.to_frame(), check_dtype=False)
    items = pd.DataFrame({"item": ["a"], "text": ["t"]})
    tasks = write_labels(model, tmp_path / "t.json", "label-studio", items=items)
    assert json.loads(tasks.read_text())[0]["predictions"][0]["model_version"] == "dissensus MajorityVote"


def test_labelling_tools_get_item_text_and_label(tmp_path: Path) -> None:
    row = {"item": "i2", "text": "Two minds", "action": "label", "n_more": 2, "reason": "2 ‘x’", "label": "x"}
    rows = [row | {"share": 0.5}]
    (task,) = json.loads(write_tasks(rows, tmp_path / "t.json", "label-studio", ["x", "y"]).read_text())
    assert task["data"]["item"] == "i2"
    assert task["predictions"][0]["result"][0]["value"] == {"choices": ["x"]}
    assert task["predictions"][0]["score"] == 0.5
    file = write_tasks(rows, tmp_path / "a.json", "argilla", ["x", "y"], question="mood")
    (record,) = json.loads(file.read_text())
    assert (record["id"], record["fields"]) == ("i2", {"text": "Two minds"})
    assert record["suggestions"]["mood"]["value"] == "x"
    line = json.loads(write_tasks(rows, tmp_path / "p.jsonl", "prodigy", ["x", "y"]).read_text())
    assert [option["id"] for option in line["options"]] == ["x", "y"]
    assert line["item"] == "i2"
    with pytest.raises(DissensusError, match="text"):
        write_tasks([row | {"text": None}], tmp_path / "no.json", "label-studio", ["x"])
    with pytest.raises(DissensusError, match="tool"):
        write_tasks([], tmp_path / "no.json", "excel", ["x"])
    assert not (tmp_path / "no.json").exists()
