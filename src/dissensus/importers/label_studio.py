"""Label Studio: the full JSON export, JSON-MIN, and CSV or TSV.

JSON has one object per task with the annotations inside it; JSON-MIN and CSV have one record per annotation
with the answers in columns named after the controls. In JSON, only controls for class labels are questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dissensus.importers.flat import LABEL_STUDIO_MIN, person
from dissensus.importers.gather import Gatherer, as_labels
from dissensus.tables.json_lines import records
from dissensus.tables.source import open_source

# Controls that mark parts of an item, and what they mark.
_REGION_CONTROLS = {
    "labels": "spans", "hypertextlabels": "spans", "paragraphlabels": "spans", "timeserieslabels": "spans",
    "rectanglelabels": "boxes", "rectangle": "boxes", "ellipselabels": "boxes", "polygonlabels": "boxes",
    "brushlabels": "boxes", "keypointlabels": "boxes", "videorectangle": "boxes",
}  # fmt: skip
# Controls for class labels, and the key of their answer.
_LABEL_CONTROLS = {
    "choices": "choices", "taxonomy": "taxonomy", "rating": "rating", "number": "number",
    "pairwise": "selected",
}  # fmt: skip


def is_annotation(fields: Mapping[str, Any]) -> bool:
    """Return True for a record of JSON-MIN, or the columns of the CSV export."""
    return {"annotation_id", "annotator", "lead_time"} <= set(fields)


def is_record(record: Mapping[str, Any]) -> bool:
    """Return True for a record of either JSON form."""
    task = isinstance(record.get("annotations"), list) and isinstance(record.get("data"), dict)
    return task or is_annotation(record)


def read(path: Path, gather: Gatherer) -> None:
    """Read the labels of a Label Studio export."""
    source = open_source(path)
    is_table = source.start[:1] not in (b"[", b"{")
    _, first = ("", {}) if is_table else next(records(source), ("", {}))
    if is_table or is_annotation(first):
        LABEL_STUDIO_MIN.read(path, gather)
        return
    for location, task in records(source):
        _read_task(location, task, gather)


def _read_task(location: str, task: Mapping[str, Any], gather: Gatherer) -> None:
    data = task.get("data")
    annotations = task.get("annotations")
    if not isinstance(data, dict) or not isinstance(annotations, list):
        raise gather.error(location, "is not a task with 'data' and 'annotations'; export as JSON again")
    identifier = data.get(gather.item_column) if gather.item_column else task.get("id")
    gather.set_columns(item=gather.item_column or "id", annotator="completed_by")
    item = gather.item(location, identifier, data)
    for annotation in annotations:
        if not isinstance(annotation, dict):
            raise gather.error(location, "holds an annotation that is not an object; export as JSON again")
        if annotation.get("was_cancelled") or annotation.get("ground_truth"):
            kind = "cancelled or skipped" if annotation.get("was_cancelled") else "ground-truth"
            gather.skip(f"{kind} annotations")
            continue
        labels: dict[str, None] = {}
        n_regions = gather.n_regions
        for question, answer in _answers(annotation.get("result"), gather):
            if gather.is_requested(question):
                labels |= dict.fromkeys(gather.parsed(location, as_labels, answer))
        if labels or gather.n_regions == n_regions:
            gather.label(location, item, person(annotation.get("completed_by")), list(labels))


def _answers(results: Any, gather: Gatherer) -> Iterator[tuple[str, Any]]:
    """Yield the class labels among an annotation's results, by the name of their control."""
    for result in results if isinstance(results, list) else ():
        kind = str(result.get("type")) if isinstance(result, dict) else ""
        if kind in _REGION_CONTROLS:
            gather.skip_region(str(result.get("from_name")), _REGION_CONTROLS[kind])
            continue
        value = result.get("value") if kind in _LABEL_CONTROLS else None
        if not isinstance(value, dict):
            continue
        if value.keys() - {_LABEL_CONTROLS[kind]}:  # position of a part: start, x, points, rle, …
            gather.skip("answers about a part of an item")
            continue
        answer = value.get(_LABEL_CONTROLS[kind])
        if kind == "taxonomy" and isinstance(answer, list):
            answer = [" / ".join(map(str, path)) if isinstance(path, list) else path for path in answer]
        yield str(result.get("from_name")), answer
