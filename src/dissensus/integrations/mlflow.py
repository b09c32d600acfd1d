"""MLflow: log a finished run, and read the assessments of traces as labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from dissensus.errors import DataError, did_you_mean, require
from dissensus.labels.annotations import Annotations
from dissensus.tables.results import read_summary

__all__ = ["log_run", "read_traces"]

# MLflow's source types and the values of the annotator column ``kind``
SOURCE_KINDS = {"HUMAN": "human", "LLM_JUDGE": "llm", "AI_JUDGE": "llm", "CODE": "code"}


def log_run(directory: str | Path, run_name: str | None = None) -> str:
    """Log a finished run of ``dissensus fit`` to MLflow and return the id of the MLflow run.

    Settings become parameters, scores and counts become metrics, and the files (tables, model and page)
    become artifacts. The active MLflow run is used if there is one, otherwise a new run is started.

    Parameters
    ----------
    directory
        The directory written by ``dissensus fit``.
    run_name
        Name of a new MLflow run; by default the name of the directory.
    """
    mlflow = require("mlflow", "mlflow")
    directory = Path(directory)
    summary = read_summary(directory)
    active = mlflow.active_run()
    with nullcontext(active) if active else mlflow.start_run(run_name=run_name or directory.name) as run:
        mlflow.log_params(run_params(summary))
        mlflow.log_metrics(run_metrics(summary))
        for file in sorted(path for path in directory.iterdir() if path.is_file()):
            mlflow.log_artifact(str(file), "dissensus")
        return str(run.info.run_id)


def run_params(summary: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings in a run's summary: model, estimate, seed, and each setting by name."""
    facts = {name: summary[name] for name in ("model", "estimate", "seed") if name in summary}
    settings = {f"settings.{name}": value for name, value in (summary.get("settings") or {}).items()}
    return {name: str(value) for name, value in (facts | settings).items()}


def run_metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers in a run's summary: held-out scores by model, and counts of the data."""
    metrics = {name: summary.get(name) for name in ("seconds", "objective")}
    metrics |= {f"data.{name}": value for name, value in (summary.get("data") or {}).items()}
    for rank, row in enumerate(summary.get("held_out") or []):
        metrics |= {f"held_out.{name}.{rank}.{row['model']}": row[name] for name in ("score", "score_items")}
    return {
        name.replace("×", "x").replace(" ", "_"): float(value)
        for name, value in metrics.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def read_traces(traces: Any, name: str | None = None) -> Annotations:
    """Read the assessments of traces as labels: items are traces, annotators are assessors.

    The annotator table has a column ``kind`` (human, llm or code), from which
    :func:`dissensus.judge_report` recognises judges. Expectations and failed assessments are skipped.

    Parameters
    ----------
    traces
        The result of ``mlflow.search_traces()``: a frame with the columns ``trace_id`` and ``assessments``.
    name
        The assessment to read; optional if there is only one.
    """
    rows = list(_assessments(traces))
    names = sorted({row["name"] for row in rows})
    if not rows:
        raise DataError("the traces have no assessment with a value; log some with mlflow.log_feedback")
    if name is None and len(names) > 1:
        raise DataError(f"the traces have several assessments; name one of {', '.join(names)}")
    if name is not None and name not in names:
        hint = did_you_mean(name, names)
        raise DataError(f"the traces have no assessment {name!r}; {hint}they have {', '.join(names)}")
    rows = [row for row in rows if name in (None, row["name"])]
    kinds = {row["annotator"]: row["kind"] for row in rows}
    columns = ([row[column] for row in rows] for column in ("item", "annotator", "label"))
    annotators = {"annotator": list(kinds), "kind": list(kinds.values())}
    return Annotations.from_arrays(*columns, annotators=annotators)


def _assessments(traces: Any) -> Iterator[dict[str, str]]:
    if not hasattr(traces, "columns") or not {"trace_id", "assessments"} <= set(traces.columns):
        raise DataError("the traces need the columns trace_id and assessments; pass mlflow.search_traces()")
    for trace, assessments in zip(traces["trace_id"], traces["assessments"], strict=True):
        for logged in assessments if assessments is not None else ():
            record = logged if isinstance(logged, Mapping) else logged.to_dictionary()  # MLflow objects
            value = (record.get("feedback") or {}).get("value")
            if value is None or not record.get("valid", True):
                continue
            source = record.get("source") or {}
            kind = SOURCE_KINDS.get(str(source.get("source_type")), "human")
            name = str(record.get("assessment_name") or record.get("name"))
            label = str(value).lower() if isinstance(value, bool) else str(value)
            annotator = str(source.get("source_id") or kind)
            yield {"item": str(trace), "annotator": annotator, "kind": kind, "name": name, "label": label}
