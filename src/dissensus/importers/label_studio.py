"""Label Studio: the full JSON export, JSON-MIN, and CSV or TSV.

JSON has one object a task with the annotations inside it; JSON-MIN and CSV have one record an annotation with
the answers in columns named after the controls. In JSON only controls that give class labels are questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dissensus.errors import DataError
from dissensus.importers.answers import as_labels, cell_labels, likely_questions, sample
from dissensus.importers.gather import Gatherer
from dissensus.tables.delimited import rows
from dissensus.tables.json_lines import records
from dissensus.tables.source import open_source

_CANCELLED = "cancelled or skipped annotations"
_GROUND_TRUTH = "ground-truth annotations"
_REGION = "answers about a part of an item"
_REGIONS = {
    "labels": "spans", "hypertextlabels": "spans", "paragraphlabels": "spans", "timeserieslabels": "spans",
    "rectanglelabels": "boxes", "rectangle": "boxes", "ellipselabels": "boxes", "polygonlabels": "boxes",
    "brushlabels": "boxes", "keypointlabels": "boxes", "videorectangle": "boxes",
}  # fmt: skip
# control -> the key of its answer
_CONTROLS = {"choices": "choices", "taxonomy": "taxonomy", "rating": "rating", "number": "number"}
_CONTROLS["pairwise"] = "selected"
_RECORD_KEYS = {
    "id", "annotator", "annotation_id", "created_at", "updated_at", "lead_time", "agreement", "history",
}  # fmt: skip


def is_annotation(fields: Mapping[str, Any]) -> bool:
    """A record of JSON-MIN, or the columns of the CSV export."""
    return {"annotation_id", "annotator", "lead_time"} <= set(fields)


def is_record(record: Mapping[str, Any]) -> bool:
    """A record of either JSON form."""
    task = isinstance(record.get("annotations"), list) and isinstance(record.get("data"), dict)
    return task or is_annotation(record)


def read(path: Path, gather: Gatherer) -> None:
    """Labels of a Label Studio export."""
    source = open_source(path)
    if source.start[:1] not in (b"[", b"{"):
        _read_annotations(rows(source), gather)
        return
    first, everything = sample(records(source))
    if first and is_annotation(first[0][1]):
        _read_annotations(everything, gather)
    else:
        for place, task in everything:
            _read_task(place, task, gather)


def _read_task(place: str, task: Mapping[str, Any], gather: Gatherer) -> None:
    data = task.get("data")
    annotations = task.get("annotations")
    if not isinstance(data, dict) or not isinstance(annotations, list):
        raise gather.error(place, "is not a task with 'data' and 'annotations'; export as JSON again")
    identifier = data.get(gather.options.item_column) if gather.options.item_column else task.get("id")
    gather.takes(item=gather.options.item_column or "id", annotator="completed_by")
    item = gather.item(place, identifier, gather.text_of(data))
    for annotation in annotations:
        if not isinstance(annotation, dict):
            raise gather.error(place, "holds an annotation that is not an object; export as JSON again")
        if annotation.get("was_cancelled") or annotation.get("ground_truth"):
            gather.leave_out(_CANCELLED if annotation.get("was_cancelled") else _GROUND_TRUTH)
            continue
        labels: dict[str, None] = {}
        before = gather.n_regions
        for question, answer in _answers(annotation.get("result"), gather):
            if gather.wants(question):
                labels |= dict.fromkeys(gather.parsed(place, as_labels, answer))
        if labels or gather.n_regions == before:
            gather.label(place, item, _annotator(annotation.get("completed_by")), list(labels))


def _answers(results: Any, gather: Gatherer) -> Iterator[tuple[str, Any]]:
    """The class labels among an annotation's results, by the name of their control."""
    for result in results if isinstance(results, list) else ():
        kind = str(result.get("type")) if isinstance(result, dict) else ""
        if kind in _REGIONS:
            gather.region(str(result.get("from_name")), _REGIONS[kind])
            continue
        value = result.get("value") if kind in _CONTROLS else None
        if not isinstance(value, dict):
            continue
        if value.keys() - {_CONTROLS[kind]}:  # where the part is: start, x, points, rle, …
            gather.leave_out(_REGION)
            continue
        answer = value.get(_CONTROLS[kind])
        if kind == "taxonomy" and isinstance(answer, list):
            answer = [" / ".join(map(str, path)) if isinstance(path, list) else path for path in answer]
        yield str(result.get("from_name")), answer


def _annotator(completed_by: Any) -> Any:
    if isinstance(completed_by, dict):
        return completed_by.get("email") or completed_by.get("id")
    return completed_by


def _read_annotations(placed: Iterator[tuple[str, dict[str, Any]]], gather: Gatherer) -> None:
    """Records of JSON-MIN or rows of CSV: one annotation each."""
    first, everything = sample(placed)
    if not first:
        raise DataError(f"{gather.path}: has a header and no rows; export it again")
    item_key = gather.options.item_column or "id"
    seen = dict.fromkeys(name for _, record in first for name in record)
    names = [name for name in seen if name not in _RECORD_KEYS and name != item_key]
    gather.takes(item=item_key, annotator="annotator")
    question = gather.choose(names, likely_questions(first, item_key, names))
    for place, record in everything:
        item = gather.item(place, record.get(item_key))
        if gather.lacks_text(item):
            data = {name: record[name] for name in names if name in record and name != question}
            gather.describe(item, gather.text_of(data))
        # Several choices are written as ``{"choices": ["a", "b"]}``.
        labels = gather.parsed(place, cell_labels, record.get(question), '{"', "[")
        gather.label(place, item, _annotator(record.get("annotator")), labels)
