"""Potato: one folder for each user, in it JSON lines with the user's answers to every question of an item.

A line has ``id``, ``displayed_text`` and ``label_annotations``, by question the labels that were chosen:
``{"mood": {"happy": "true"}}``. A scale has its number as the value: ``{"mood": {"scale_3": "3"}}``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dissensus.errors import DataError
from dissensus.importers.answers import as_labels
from dissensus.importers.gather import Gatherer
from dissensus.tables.json_lines import records
from dissensus.tables.source import open_source

FILE = "annotated_instances.jsonl"


def is_record(record: Mapping[str, Any]) -> bool:
    """A line of one user's answers."""
    return "label_annotations" in record and "id" in record


def holds_users(path: Path) -> bool:
    """A folder of users' folders."""
    return next(path.glob(f"*/{FILE}"), None) is not None


def read(path: Path, gather: Gatherer) -> None:
    """Labels of all users of a folder, or of the one whose folder a file lies in."""
    files = sorted(path.glob(f"*/{FILE}")) if path.is_dir() else [path]
    if not files:
        raise DataError(f"{path}: has no */{FILE}; give the folder annotation_output of a Potato project")
    gather.takes(item="id", annotator="the user's folder")
    for file in files:
        for place, record in records(open_source(file)):
            _read_record(f"{file.parent.name} {place}", file.resolve().parent.name, record, gather)


def _read_record(place: str, user: str, record: Mapping[str, Any], gather: Gatherer) -> None:
    item = gather.item(place, record.get("id"), gather.text_of({"text": record.get("displayed_text")}))
    answers = record.get("label_annotations")
    if not isinstance(answers, Mapping):
        raise gather.error(place, "has no object 'label_annotations'; correct the line")
    for question, chosen in answers.items():
        if gather.wants(str(question)):
            gather.label(place, item, user, gather.parsed(place, as_labels, _chosen(chosen)))
    if record.get("span_annotations"):
        gather.leave_out("span annotations")


def _chosen(answer: Any) -> Any:
    """The labels that were chosen: their names, or the number of a scale."""
    if not isinstance(answer, Mapping):
        return answer
    ticked = [(str(name), value) for name, value in answer.items() if value not in (None, False, "", "false")]
    return [value if name.startswith("scale_") else name for name, value in ticked]
