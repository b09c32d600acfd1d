"""SageMaker Ground Truth: the output manifest of a custom labelling job.

Under the job's name a line holds ``annotationsFromAllWorkers``; each worker's answer is JSON inside a string.
The manifests of built-in jobs hold only the consolidated label and are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dissensus.importers.answers import by_question, parse_json
from dissensus.importers.gather import EMPTY, Gatherer
from dissensus.tables.json_lines import records
from dissensus.tables.source import open_source

_WORKERS = "annotationsFromAllWorkers"
_SOURCES = ("source-ref", "source")


def is_line(record: Mapping[str, Any]) -> bool:
    """A line of an output manifest, custom or built-in."""
    return bool(_jobs(record)) or _is_consolidated(record)


def read(path: Path, gather: Gatherer) -> None:
    """Labels of a custom job's manifest; the question is the path of the answer within the worker's form."""
    for place, record in records(open_source(path)):
        jobs = _jobs(record)
        if not jobs and _is_consolidated(record):
            raise gather.error(
                place,
                "is the manifest of a built-in job, which holds only the consolidated label; "
                "use the output of a custom job, which keeps each worker's answer",
            )
        item = gather.item(place, _item(record, gather), _text(record, gather))
        for job in jobs:
            _read_job(place, item, record[job], job if len(jobs) > 1 else "", gather)


def _jobs(record: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name, value in record.items()
        if isinstance(value, dict) and isinstance(value.get(_WORKERS), list)
    ]


def _is_consolidated(record: Mapping[str, Any]) -> bool:
    has_source = any(source in record for source in _SOURCES)
    return has_source and any(f"{name}-metadata" in record for name in record)


def _item(record: Mapping[str, Any], gather: Gatherer) -> Any:
    if gather.options.item_column:
        gather.takes(item=gather.options.item_column, annotator="workerId")
        return record.get(gather.options.item_column)
    source = next((source for source in _SOURCES if source in record), None)
    gather.takes(item=source or "source", annotator="workerId")
    return None if source is None else record[source]


def _text(record: Mapping[str, Any], gather: Gatherer) -> str | None:
    """The text stands in the manifest only where the job's source was inline."""
    if gather.options.text_column:
        return gather.text_of(record)
    source = record.get("source")
    if not isinstance(source, str):
        return None
    gather.takes(text="source")
    return source


def _read_job(place: str, item: int, job: Mapping[str, Any], prefix: str, gather: Gatherer) -> None:
    for annotation in job[_WORKERS]:
        if not isinstance(annotation, dict):
            raise gather.error(place, "holds an annotation that is not an object; export it again")
        found = False
        for question, labels in _answers(place, annotation, gather):
            if gather.wants(f"{prefix}.{question}" if prefix else question):
                found = True
                gather.label(place, item, annotation.get("workerId"), labels)
        if not found:
            gather.leave_out(EMPTY)


def _answers(place: str, annotation: Mapping[str, Any], gather: Gatherer) -> Iterator[tuple[str, list[str]]]:
    data = annotation.get("annotationData")
    content = data.get("content") if isinstance(data, dict) else None
    if isinstance(content, str):
        content = gather.parsed(place, parse_json, content) if content.strip() else None
    if content:
        yield from gather.parsed(place, by_question, content).items()
