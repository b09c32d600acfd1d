"""Label Studio: the full JSON export, JSON-MIN, and CSV or TSV.

JSON has one object a task with the annotations inside it; JSON-MIN and CSV have one record an annotation with
the answers in columns named after the controls. In JSON only controls that give class labels are questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dissensus.importers.flat import LABEL_STUDIO_MIN, person
from dissensus.importers.gather import Gatherer, as_labels
from dissensus.tables.json_lines import records
from dissensus.tables.source import open_source

_REGIONS = {
    "labels": "spans", "hypertextlabels": "spans", "paragraphlabels": "spans", "timeserieslabels": "spans",
    "rectanglelabels": "boxes", "rectangle": "boxes", "ellipselabels": "boxes", "polygonlabels": "boxes",
    "brushlabels": "boxes", "keypointlabels": "boxes", "videorectangle": "boxes",
}  # fmt: skip
# control -> the key of its answer
_CONTROLS = {"choices": "choices", "taxonomy": "taxonomy", "rating": "rating", "number": "number"}
_CONTROLS["pairwise"] = "selected"


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
    is_table = source.start[:1] not in (b"[", b"{")
    _, first = ("", {}) if is_table else next(records(source), ("", {}))
    if is_table or is_annotation(first):
        LABEL_STUDIO_MIN.read(path, gather)
        return
    for place, task in records(source):
        _read_task(place, task, gather)


def _read_task(place: str, task: Mapping[str, Any], gather: Gatherer) -> None:
    data = task.get("data")
    annotations = task.get("annotations")
    if not isinstance(data, dict) or not isinstance(annotations, list):
        raise gather.error(place, "is not a task with 'data' and 'annotations'; export as JSON again")
    identifier = data.get(gather.item_column) if gather.item_column else task.get("id")
    gather.takes(item=gather.item_column or "id", annotator="completed_by")
    item = gather.item(place, identifier, data)
    for annotation in annotations:
        if not isinstance(annotation, dict):
            raise gather.error(place, "holds an annotation that is not an object; export as JSON again")
        if annotation.get("was_cancelled") or annotation.get("ground_truth"):
            cancelled = "cancelled or skipped" if annotation.get("was_cancelled") else "ground-truth"
            gather.leave_out(f"{cancelled} annotations")
            continue
        labels: dict[str, None] = {}
        before = gather.n_regions
        for question, answer in _answers(annotation.get("result"), gather):
            if gather.wants(question):
                labels |= dict.fromkeys(gather.parsed(place, as_labels, answer))
        if labels or gather.n_regions == before:
            gather.label(place, item, person(annotation.get("completed_by")), list(labels))


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
            gather.leave_out("answers about a part of an item")
            continue
        answer = value.get(_CONTROLS[kind])
        if kind == "taxonomy" and isinstance(answer, list):
            answer = [" / ".join(map(str, path)) if isinstance(path, list) else path for path in answer]
        yield str(result.get("from_name")), answer
