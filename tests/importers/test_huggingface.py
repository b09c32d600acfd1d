"""Hugging Face datasets on disk: splits, columns, class names."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dissensus as ds
import tests.helpers.export_samples as samples
from dissensus.errors import DataError
from dissensus.importers import load_export
from dissensus.importers.read import read_annotations
from tests.helpers.export_samples import item_texts, task, triples, written


def on_disk(folder: Path, table: pa.Table, features: dict[str, Any] | None = None) -> Path:
    """Write a dataset in Arrow's file format (``save_to_disk`` writes streams; both occur)."""
    if features:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    folder.mkdir(exist_ok=True)
    with pa.ipc.new_file(str(folder / "data.arrow"), table.schema) as writer:
        writer.write_table(table)
    return folder


def test_damaged_dataset(tmp_path: Path) -> None:
    path = samples.huggingface_arrow(tmp_path).path
    file = path / "train" / "data-00000-of-00001.arrow"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(DataError, match=r"cannot be read .*; save the dataset again"):
        load_export(path)
    file.unlink()
    with pytest.raises(DataError, match=r"holds no \.arrow or \.parquet file"):
        load_export(path)


def test_dataset_written_by_argilla(tmp_path: Path) -> None:
    columns = {
        "id": ["7", "8"],
        "text": ["wet", "dry"],
        "mood.responses": [["neg", "pos"], None],
        "mood.responses.users": [["u1", "u2"], None],
        "mood.responses.status": [["submitted", "draft"], None],
    }
    imported = load_export(on_disk(tmp_path / "argilla", pa.table(columns)))
    assert triples(imported) == [("7", "u1", "neg")]
    assert imported.skipped == {"draft responses": 1}


def test_lists_of_class_numbers(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2], "annotators": [["x", "y"], ["x"]], "labels": [[[0, 1], [1]], [[]]]})
    declared = {"labels": [[{"names": ["neg", "pos"], "_type": "ClassLabel"}]]}
    expected = [("1", "x", "neg"), ("1", "x", "pos"), ("1", "y", "pos")]
    assert triples(load_export(on_disk(tmp_path / "lists", table, declared))) == expected
    declared = {"labels": {"_type": "List", "feature": declared["labels"][0][0]}}
    assert triples(load_export(on_disk(tmp_path / "lists", table, declared))) == expected


def test_datasets_that_cannot_be_read(tmp_path: Path) -> None:
    classes = {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}
    ids, lists = {"item": "a", "annotator": "x"}, {"annotator": ["x", "y"], "label": ["z"]}
    for columns, features, message in (
        ({"item": "a", "label": "x"}, None, "no annotator column found; .* it has item, label"),
        (ids | {"mood": "y"}, None, r"column of answers; .*question= \(mood\)"),
        ({"thing": "a"} | lists, None, "no item column found; .* it has thing, annot"),
        (ids | lists, None, "row 1: the lists .* differ in length"),
        (ids | {"label": 2}, classes, "label 2 is not one of the dataset's 2 classes"),
    ):
        with pytest.raises(DataError, match=message):
            load_export(on_disk(tmp_path / "data", pa.Table.from_pylist([columns]), features))
    table = pa.Table.from_arrays([pa.array(["a"])] * 3, ["item", "annotator", "item"])
    with pytest.raises(DataError, match="two columns share a name"):
        load_export(on_disk(tmp_path / "data", table))


def test_columns_with_any_names(tmp_path: Path) -> None:
    path = on_disk(
        tmp_path / "data", pa.table({"thing": ["a"], "who": ["x"], "mood": ["sad"], "label": ["z"]})
    )
    with pytest.raises(DataError, match=r"no annotator column found; .* it has thing, who"):
        read_annotations(path, item="thing")
    for question in ({"question": "mood"}, {"label": "mood"}):
        read = read_annotations(path, item="thing", annotator="who", **question)
        assert [list(ids) for ids in (read.items, read.annotators, read.classes)] == [["a"], ["x"], ["sad"]]
    with pytest.raises(DataError, match="there is no column 'by'; it has thing, who"):
        load_export(path, item_column="thing", annotator_column="by")
    with pytest.raises(DataError, match="label-studio files have a fixed annotator field"):
        load_export(written(tmp_path, [task()]), annotator_column="who")


def test_label_columns_are_questions(tmp_path: Path) -> None:
    path = on_disk(
        tmp_path / "data", pa.table({"id": ["a"], "annotator": ["x"], "Rating": [4], "label": ["y"]})
    )
    with pytest.raises(
        DataError, match=r"several questions \(Rating, label\); choose one, such as question='Rating'"
    ):
        load_export(path)
    chosen = load_export(path, question="Rating")
    assert (triples(chosen), list(chosen.questions)) == ([("a", "x", "4")], ["Rating", "label"])
    assert item_texts(chosen) == {}  # the answer to the other question is not the text
    assert item_texts(load_export(path, question="Rating", text_column="label")) == {"a": "y"}


def dataset(folder: Path, ids: dict[str, list[int]]) -> Path:
    for split, numbers in ids.items():
        n = len(numbers)
        table = pa.table({"id": numbers, "annotator": ["a"] * n, "label": ["x", "y"] * (n // 2)})
        (folder / split).mkdir(parents=True)
        with pa.ipc.new_stream(str(folder / split / "data-00000-of-00001.arrow"), table.schema) as writer:
            writer.write_table(table)
    return folder


def test_ids_repeated_in_splits(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "set", {"test": [0, 1], "train": [0, 1, 2, 3]})
    with pytest.raises(DataError, match=r"item 0 is in split 'test' and in 'train'; .* item='split:id'"):
        ds.read_annotations(folder)
    both = ds.read_annotations(folder, item="split:id")
    assert both.items.tolist() == ["test:0", "test:1", "train:0", "train:1", "train:2", "train:3"]
    assert ds.read_annotations(folder, item="id").n_items == 4
    apart = dataset(tmp_path / "apart", {"test": [0, 1], "train": [2, 3]})
    assert ds.read_annotations(apart).n_items == 4
