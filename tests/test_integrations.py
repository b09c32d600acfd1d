"""PyTorch, scikit-learn, MLflow, Label Studio and Argilla: the real thing, or its documented shape."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dissensus as ds
from cli_help import run
from dissensus.errors import DataError, ParameterError
from dissensus.integrations.label_studio import Backend, label_studio_server
from dissensus.integrations.label_studio import main as serve
from dissensus.integrations.mlflow import run_metrics, run_params
from dissensus.tables.write import write_tasks

LABELS = ds.datasets.load("canteen")
MODEL = ds.FMM(4, seed=0).fit(LABELS)
CONFIG = '<View><Text name="comment" value="$text"/><Choices toName="comment" name="mood"/></View>'


# ---- learners -----------------------------------------------------------------------------------------


@pytest.mark.torch
def test_a_loader_gives_features_distributions_and_weights() -> None:
    torch = pytest.importorskip("torch")
    X = np.arange(120.0).reshape(60, 2)
    data = ds.training.torch_dataset(MODEL, X, weight="labels")
    loader = torch.utils.data.DataLoader(data, batch_size=16, collate_fn=data.collate)
    batches = list(loader)
    assert torch.cat([x for x, _, _ in batches]).numpy() == pytest.approx(X)
    shares = torch.cat([shares for _, shares, _ in batches]).numpy()
    np.testing.assert_allclose(shares, MODEL.label_distributions_, atol=1e-6)
    weights = torch.cat([weight for _, _, weight in batches]).numpy()
    np.testing.assert_allclose(weights, MODEL.n_labels_ / MODEL.n_labels_.mean(), rtol=1e-6)
    texts = ds.training.torch_dataset(MODEL, LABELS.item_column("text"))
    assert texts.collate([texts[0], texts[3]])[0] == [*LABELS.item_column("text")[[0, 3]]]
    with pytest.raises(DataError, match="3 rows of x and 60 items"):
        ds.training.torch_dataset(MODEL, X[:3])
    with pytest.raises(ParameterError, match="weight"):
        ds.training.torch_dataset(MODEL, X, weight="love")


@pytest.mark.torch
def test_the_loss_is_the_weighted_cross_entropy() -> None:
    torch = pytest.importorskip("torch")
    logits = torch.tensor([[0.0, 0.0], [1.0, -1.0]])
    shares, weight = torch.tensor([[0.5, 0.5], [1.0, 0.0]]), torch.tensor([1.0, 3.0])
    by_hand = (1 * np.log(2) + 3 * -np.log(1 / (1 + np.exp(-2)))) / 4
    assert float(ds.training.soft_loss(logits, shares, weight)) == pytest.approx(by_hand, rel=1e-6)


def test_rows_with_weights_have_the_gradient_of_the_distributions() -> None:
    from scipy.special import log_softmax
    from sklearn.linear_model import LogisticRegression

    X = np.random.default_rng(0).normal(size=(60, 3))
    rows, y, weight = ds.training.sample_weight_rows(MODEL, X)
    assert weight.sum() == pytest.approx(60)
    fitted = LogisticRegression(C=1e6, max_iter=5_000, tol=1e-10).fit(rows, y, sample_weight=weight)
    assert fitted.classes_.tolist() == MODEL.classes_.tolist()
    # at the optimum, the gradient of the cross-entropy with the distributions is zero
    residual = np.exp(log_softmax(fitted.decision_function(X), axis=1)) - MODEL.label_distributions_
    np.testing.assert_allclose(X.T @ residual, 0, atol=1e-2)
    texts, _, _ = ds.training.sample_weight_rows(MODEL, list(LABELS.item_column("text")))
    assert len(texts) == len(y)
    frame, _, _ = ds.training.sample_weight_rows(MODEL, pd.DataFrame(X))
    assert frame.shape == rows.shape


def shuffled(values: list[str]) -> pd.Series:
    """A value for each item, named by its id, in another order."""
    return pd.Series(values, index=LABELS.items).sample(frac=1, random_state=0)


def test_rows_of_pandas_find_their_items() -> None:
    texts = [f"text of {item}" for item in LABELS.items]
    found = ds.training.sample_weight_rows(MODEL, shuffled(texts))
    expected = ds.training.sample_weight_rows(MODEL, texts)
    assert list(found[0]) == list(expected[0])
    assert found[1].tolist() == expected[1].tolist()
    column = shuffled(texts).rename("text").rename_axis("item").reset_index()
    assert ds.training.sample_weight_rows(MODEL, column)[0]["text"].tolist() == list(expected[0])
    first = shuffled(texts).reset_index(drop=True)  # nothing names the items: they are in order
    assert ds.training.sample_weight_rows(MODEL, first)[0].iloc[0] == first[0]


def test_rows_of_pandas_that_name_no_items_are_refused() -> None:
    texts = pd.Series([f"text of {item}" for item in LABELS.items])
    with pytest.raises(DataError, match=r"the index of x names no items of the model; index it by item id"):
        ds.training.sample_weight_rows(MODEL, texts.sample(frac=1, random_state=0))
    with pytest.raises(DataError, match=r"its index has no row for item '\w+' \(1 missing\)"):
        ds.training.sample_weight_rows(MODEL, shuffled(texts.tolist())[1:])


@pytest.mark.torch
def test_a_dataset_of_shuffled_texts_has_the_distributions_of_its_items() -> None:
    pytest.importorskip("torch")
    texts = [f"text of {item}" for item in LABELS.items]
    assert ds.training.torch_dataset(MODEL, shuffled(texts)).x == texts
    numbers = pd.DataFrame({"a": np.arange(60.0), "b": 1.0}, index=LABELS.items)
    data = ds.training.torch_dataset(MODEL, numbers.sample(frac=1, random_state=0))
    np.testing.assert_array_equal(data.x.numpy(), numbers.to_numpy())


# ---- MLflow -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def refined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("run") / "refined"
    run("fit", ds.datasets.path("canteen") / "labels.csv", "--model", "fmm", "-o", place)
    return place


def test_a_run_has_settings_and_numbers_to_log(refined: Path) -> None:
    known = json.loads((refined / "summary.json").read_text())
    params, metrics = run_params(known), run_metrics(known)
    assert params["model"] == "fmm"
    assert params["settings.n_item_clusters"] == "10"
    assert metrics["data.n_labels"] == 540
    assert any(name.startswith("held_out.score.") for name in metrics)
    assert all(isinstance(value, float) for value in metrics.values())
    # MLflow allows letters, digits and _ - . / and spaces
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-./") for name in metrics)


@pytest.mark.slow
def test_one_call_logs_a_run(refined: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # mlflow-skinny brings no database
    import mlflow

    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    found = mlflow.get_run(ds.mlflow.log_run(refined))
    assert found.data.params["model"] == "fmm"
    assert found.data.metrics["data.n_labels"] == 540
    logged = mlflow.MlflowClient().list_artifacts(found.info.run_id, "dissensus")
    assert {Path(one.path).name for one in logged} == {file.name for file in refined.iterdir()}


def feedback(who: str, kind: str, value: Any, name: str = "helpful") -> dict[str, Any]:
    source = {"source_id": who, "source_type": kind}
    return {"assessment_name": name, "source": source, "feedback": {"value": value}}


def test_assessments_of_traces_are_labels() -> None:
    frame = pd.DataFrame(
        {
            "trace_id": ["t1", "t2", "t3", "t4"],
            "assessments": [
                [feedback("ann", "HUMAN", True), feedback("gpt", "LLM_JUDGE", False)],
                [feedback("ann", "HUMAN", "yes", "other"), feedback("gpt", "LLM_JUDGE", True)],
                [
                    feedback("gpt", "LLM_JUDGE", True) | {"valid": False},
                    {"name": "helpful", "expectation": {}},
                ],
                None,
            ],
        }
    )
    found = ds.mlflow.read_traces(frame, "helpful")
    assert (found.n_items, found.n_labels, found.classes.tolist()) == (2, 3, ["false", "true"])
    kinds = dict(zip(found.annotators, found.annotator_column("kind"), strict=True))
    assert kinds == {"ann": "human", "gpt": "llm"}
    with pytest.raises(DataError, match="several assessments; name one of helpful, other"):
        ds.mlflow.read_traces(frame)
    with pytest.raises(DataError, match="did you mean 'helpful'"):
        ds.mlflow.read_traces(frame, "helpfull")
    with pytest.raises(DataError, match="columns trace_id and assessments"):
        ds.mlflow.read_traces(frame[["trace_id"]])


# ---- Label Studio -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    server = label_studio_server(Backend(MODEL), port=0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def ask(address: str, body: Any = None) -> tuple[int, Any]:
    content = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(address, content, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def test_the_backend_answers_as_label_studio_asks(address: str) -> None:
    assert ask(f"{address}/health")[1]["status"] == "UP"
    setup = {"project": "7", "schema": CONFIG, "hostname": "http://localhost:8080", "access_token": "x"}
    version = ask(f"{address}/setup", setup)[1]["model_version"]
    tasks = [{"id": 5, "data": {"item": "comment02", "text": "…"}}, {"id": 99, "data": {"text": "new"}}]
    code, answer = ask(f"{address}/predict", {"tasks": tasks, "label_config": CONFIG, "project": "7"})
    assert code == 200
    known, new = answer["results"]
    place = MODEL.items_.tolist().index("comment02")
    assert known["result"][0]["value"]["choices"] == [MODEL.predict()[place]]
    assert (known["result"][0]["from_name"], known["result"][0]["to_name"]) == ("mood", "comment")
    shares = list(known["result"][0]["meta"]["distribution"].values())
    np.testing.assert_allclose(shares, MODEL.label_distributions_[place])
    assert known["score"] == pytest.approx(MODEL.to_frame()["sure"][place])
    assert (new["score"], new["result"][0]["meta"]["known"]) == (0.0, False)
    assert known["model_version"] == answer["model_version"] == version
    assert ask(f"{address}/webhook", {"action": "ANNOTATION_CREATED"}) == (200, {"status": "OK"})


def test_the_backend_refuses_what_it_cannot_read(address: str) -> None:
    assert ask(f"{address}/nothing")[0] == ask(f"{address}/nothing", {})[0] == 404
    assert ask(f"{address}/predict", b"{")[1] == {"error": "a request must be JSON"}
    assert ask(f"{address}/predict", b"[1]")[0] == 400
    assert ask(f"{address}/predict", {"tasks": 3})[0] == 400


def test_the_backend_says_what_it_needs(refined: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*words: Any) -> str:
        monkeypatch.setattr("sys.argv", ["label_studio", *map(str, words)])
        with pytest.raises(SystemExit) as caught:
            serve()
        return str(caught.value)

    assert "is no run and no saved model" in failing(refined.parent)
    with label_studio_server(Backend(MODEL), port=0) as server:
        assert "cannot be listened to" in failing(refined, "--port", server.server_address[1])


# ---- Hugging Face -------------------------------------------------------------------------------------


def test_a_dataset_is_read_and_one_is_written(tmp_path: Path) -> None:
    import datasets

    moods = datasets.ClassLabel(names=["complaint", "praise"])
    kinds = datasets.Features(
        {"item": datasets.Value("string"), "annotator": datasets.Value("string"), "label": moods}
    )
    columns = {"item": ["a", "a", "b", "b"], "annotator": list("xyxy"), "label": [0, 1, 1, -1]}
    votes = datasets.Dataset.from_dict(columns, features=kinds)
    found = ds.read_annotations(votes)
    assert (found.classes.tolist(), found.n_labels) == (["complaint", "praise"], 3)
    assert found.counts.tolist() == [[1, 1], [0, 1]]
    assert ds.read_annotations(votes.select([0, 2])).n_labels == 2  # rows that are chosen by their numbers
    with pytest.raises(DataError, match=r"has several splits \(train, test\); give one of them"):
        ds.read_annotations(datasets.DatasetDict(train=votes, test=votes))
    model = ds.EmpiricalDistribution().fit(found)
    refined = datasets.load_from_disk(str(ds.write_labels(model, tmp_path / "refined", "huggingface")))
    assert refined["item"][:] == ["a", "b"]
    np.testing.assert_allclose(refined["p_praise"][:], model.label_distributions_[:, 1])


# ---- Argilla ------------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore")
def test_argilla_reads_our_records_and_we_read_its_answers(tmp_path: Path) -> None:
    import argilla
    from argilla.records._io import JsonIO

    row = {"item": "c1", "text": "Great, soup again.", "action": "label", "n_more": 2, "reason": "split"}
    file = write_tasks(
        [row | {"label": "praise", "share": 0.6}], tmp_path / "records.json", "argilla", [], question="mood"
    )
    record = JsonIO._records_from_json(file)[0]
    assert (record.id, record.fields["text"]) == ("c1", "Great, soup again.")
    suggestion = record.suggestions["mood"]
    assert (suggestion.value, suggestion.score) == ("praise", 0.6)
    users = [f"7f3a1c52-0000-0000-0000-00000000000{k}" for k in (1, 2)]
    for user, answer in zip(users, ("complaint", "praise"), strict=True):
        record.responses.add(argilla.Response("mood", answer, user_id=user, status="submitted"))
    JsonIO.to_json([record], tmp_path / "answers.json")
    found = ds.read_annotations(tmp_path / "answers.json")
    assert found.items.tolist() == ["c1"]
    assert dict(zip(found.annotators, found.classes[found.label], strict=True)) == dict(
        zip(users, ("complaint", "praise"), strict=True)
    )
