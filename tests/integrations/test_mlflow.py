"""Logging runs to MLflow and reading its traces."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dissensus as ds
from dissensus.errors import DataError
from dissensus.evaluate.compare import held_out_scores
from dissensus.integrations.mlflow import run_metrics, run_params


@pytest.fixture(scope="module")
def refined(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("run") / "refined"
    labels = ds.datasets.load("canteen")
    scores = held_out_scores(labels, [ds.FMM(), ds.EmpiricalDistribution()])
    replace(ds.fit(labels, "fmm"), held_out=scores).write(path)
    return path


def test_summary_gives_params_and_metrics(refined: Path) -> None:
    summary = json.loads((refined / "summary.json").read_text())
    params, metrics = run_params(summary), run_metrics(summary)
    assert params["model"] == "fmm"
    assert params["settings.n_item_clusters"] == "10"
    assert metrics["data.n_labels"] == 540
    assert any(name.startswith("held_out.score.") for name in metrics)
    assert all(isinstance(value, float) for value in metrics.values())
    # MLflow allows letters, digits and _ - . / and spaces
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-./") for name in metrics)


@pytest.mark.slow
def test_log_run(refined: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # mlflow-skinny comes without a database
    import mlflow

    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    logged = mlflow.get_run(ds.mlflow.log_run(refined))
    assert logged.data.params["model"] == "fmm"
    assert logged.data.metrics["data.n_labels"] == 540
    artifacts = mlflow.MlflowClient().list_artifacts(logged.info.run_id, "dissensus")
    assert {Path(artifact.path).name for artifact in artifacts} == {file.name for file in refined.iterdir()}


def feedback(assessor: str, kind: str, value: Any, name: str = "helpful") -> dict[str, Any]:
    source = {"source_id": assessor, "source_type": kind}
    return {"assessment_name": name, "source": source, "feedback": {"value": value}}


def test_read_traces() -> None:
    gpt = feedback("gpt", "LLM_JUDGE", True)
    assessments = [
        [feedback("ann", "HUMAN", True), feedback("gpt", "LLM_JUDGE", False)],
        [feedback("ann", "HUMAN", "yes", "other"), gpt],
        [gpt | {"valid": False}, {"name": "helpful", "expectation": {}}],
        None,
    ]
    frame = pd.DataFrame({"trace_id": ["t1", "t2", "t3", "t4"], "assessments": assessments})
    labels = ds.mlflow.read_traces(frame, "helpful")
    assert (labels.n_items, labels.n_labels, labels.classes.tolist()) == (2, 3, ["false", "true"])
    kinds = dict(zip(labels.annotators, labels.annotator_column("kind"), strict=True))
    assert kinds == {"ann": "human", "gpt": "llm"}
    with pytest.raises(DataError, match="several assessments; name one of helpful, other"):
        ds.mlflow.read_traces(frame)
    with pytest.raises(DataError, match="did you mean 'helpful'"):
        ds.mlflow.read_traces(frame, "helpfull")
    with pytest.raises(DataError, match="columns trace_id and assessments"):
        ds.mlflow.read_traces(frame[["trace_id"]])
