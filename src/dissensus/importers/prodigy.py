"""Prodigy: JSON lines, one annotation a line.

A choice task lists the chosen options in ``accept``. A binary task shows one ``label`` and asks whether it
fits: the label is the question and the answer (accept or reject) is the class.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dissensus.importers.answers import as_id, as_labels
from dissensus.importers.gather import Gatherer
from dissensus.tables.json_lines import records
from dissensus.tables.source import open_source

CHOICE = "choice"  # the name of the question of a choice task
_IGNORED = "answers marked ignore"
_REJECTED = "rejected tasks"


def is_annotation(record: Mapping[str, Any]) -> bool:
    """A line of a Prodigy dataset."""
    return "_input_hash" in record and "answer" in record


def read(path: Path, gather: Gatherer) -> None:
    """Labels of a Prodigy dataset."""
    for place, record in records(open_source(path)):
        key, who = gather.options.item_column or "_input_hash", _who(record)
        gather.takes(item=key, annotator=who)
        item = gather.item(place, record.get(key))
        if gather.lacks_text(item):
            gather.describe(item, _text(record, gather))
        annotator = record.get(who)
        if record.get("answer") == "ignore":
            gather.leave_out(_IGNORED)
        elif "accept" in record:
            _read_choice(place, item, annotator, record, gather)
        else:
            _read_binary(place, item, annotator, record, gather)


def _who(record: Mapping[str, Any]) -> str:
    return "_annotator_id" if record.get("_annotator_id") else "_session_id"


def _read_choice(place: str, item: int, annotator: Any, record: Mapping[str, Any], gather: Gatherer) -> None:
    if not gather.wants(CHOICE):
        return
    if record.get("answer") == "reject":
        gather.leave_out(_REJECTED)
        return
    gather.label(place, item, annotator, gather.parsed(place, as_labels, record["accept"]))


def _read_binary(place: str, item: int, annotator: Any, record: Mapping[str, Any], gather: Gatherer) -> None:
    question = as_id(record.get("label"))
    if question is None and isinstance(record.get("spans"), list):
        raise gather.error(place, "marks spans, parts of a text; only classification tasks can be read")
    if question is None:
        raise gather.error(place, "has neither 'accept' nor 'label'; only classification tasks can be read")
    if gather.wants(question):
        gather.label(place, item, annotator, gather.parsed(place, as_labels, record.get("answer")))


def _text(record: Mapping[str, Any], gather: Gatherer) -> str | None:
    if gather.options.text_column is None and "text" not in record:
        return None
    return gather.text_of(record)
