"""MLflow: a finished run logged by one call, and the assessments of traces read as labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from dissensus.errors import DataError, did_you_mean, require
from dissensus.labels.annotations import Annotations
from dissensus.tables.results import read_summary

__all__ = ["log_run", "read_traces"]

KINDS = {"HUMAN": "human", "LLM_JUDGE": "llm", "AI_JUDGE": "llm", "CODE": "code"}


def log_run(directory: str | Path, run_name: str | None = None) -> str:
    """Log a finished run of dissensus (``dissensus fit``) to MLflow; gives the id of the MLflow run.

    Settings become parameters, scores and counts become metrics, and the files become artifacts: tables,
    model and page. Inside ``mlflow.start_run()`` the active run is used, otherwise a new one.

    Parameters
    ----------
    directory
        The directory that ``dissensus fit`` wrote.
    run_name
        Name of a new MLflow run; None takes that of the directory.
    """
    mlflow = require("mlflow", "mlflow")
    place = Path(directory)
    known = read_summary(place)
    active = mlflow.active_run()
    with nullcontext(active) if active else mlflow.start_run(run_name=run_name or place.name) as run:
        mlflow.log_params(run_params(known))
        mlflow.log_metrics(run_metrics(known))
        for file in sorted(path for path in place.iterdir() if path.is_file()):
            mlflow.log_artifact(str(file), "dissensus")
        return str(run.info.run_id)


def run_params(known: Mapping[str, Any]) -> dict[str, str]:
    """The settings of a run's summary: model, question, and each setting by its own name."""
    named = {name: known[name] for name in ("model", "estimate", "seed", "chosen_by") if name in known}
    settings = {f"settings.{name}": value for name, value in (known.get("settings") or {}).items()}
    return {name: str(value) for name, value in (named | settings).items()}


def run_metrics(known: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a run's summary: held-out scores by model, and what was in the data."""
    found = {
        f"held_out.{name}.{place}.{row['model']}": row[name]
        for place, row in enumerate(known.get("held_out") or [])
        for name in ("score", "score_items")
    }
    data = known.get("data") or {}
    found |= {f"data.{name}": value for name, value in data.items()}
    found |= {name: known.get(name) for name in ("seconds", "objective")}
    return {
        name.replace("×", "x").replace(" ", "_"): float(value)
        for name, value in found.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


# ---- assessments --------------------------------------------------------------------------------------


def read_traces(traces: Any, name: str | None = None) -> Annotations:
    """The assessments of traces as labels: the trace is the item, whoever assessed it the annotator.

    The annotator table has a column ``kind`` (human, llm or code), so that
    :func:`dissensus.judge_report` knows who is a judge. Expectations and failed assessments are left out.

    Parameters
    ----------
    traces
        What ``mlflow.search_traces()`` gives: a frame with the columns ``trace_id`` and ``assessments``.
    name
        The assessment to read; may be left out where there is one.
    """
    found = list(_assessments(traces))
    names = sorted({one["name"] for one in found})
    if not found:
        raise DataError("the traces have no assessment with a value; log some with mlflow.log_feedback")
    if name is None and len(names) > 1:
        raise DataError(f"the traces have several assessments; name one of {', '.join(names)}")
    if name is not None and name not in names:
        raise DataError(
            f"there is no assessment {name!r}; {did_you_mean(name, names)}it has {', '.join(names)}"
        )
    chosen = [one for one in found if name in (None, one["name"])]
    kinds = {one["annotator"]: one["kind"] for one in chosen}
    columns = ([one[name] for one in chosen] for name in ("item", "annotator", "label"))
    people = {"annotator": list(kinds), "kind": list(kinds.values())}
    return Annotations.from_arrays(*columns, annotators=people)


def _assessments(traces: Any) -> Iterator[dict[str, str]]:
    if not hasattr(traces, "columns") or not {"trace_id", "assessments"} <= set(traces.columns):
        raise DataError("the traces need the columns trace_id and assessments; give mlflow.search_traces()")
    for trace, assessments in zip(traces["trace_id"], traces["assessments"], strict=True):
        for logged in assessments if assessments is not None else ():
            one = logged if isinstance(logged, Mapping) else logged.to_dictionary()  # MLflow's own objects
            value = (one.get("feedback") or {}).get("value")
            if value is None or not one.get("valid", True):
                continue
            source = one.get("source") or {}
            kind = KINDS.get(str(source.get("source_type")), "human")
            who, name = (
                str(source.get("source_id") or kind),
                str(one.get("assessment_name") or one.get("name")),
            )
            label = str(value).lower() if isinstance(value, bool) else str(value)
            yield {"item": str(trace), "annotator": who, "kind": kind, "name": name, "label": label}
