"""Zooniverse: the classifications export, a CSV file with the answers of every workflow task as JSON.

Questions are the tasks (``T0`` …). People who did not log in are told apart by the name that Zooniverse gives
them (``not-logged-in-…``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dissensus.importers.answers import as_labels, parse_json
from dissensus.importers.gather import Gatherer
from dissensus.tables.delimited import rows
from dissensus.tables.source import open_source

_COLUMNS = {"classification_id", "user_name", "annotations", "subject_ids"}


def is_table(columns: Mapping[str, Any]) -> bool:
    """The columns of a classifications export."""
    return set(columns) >= _COLUMNS


def read(path: Path, gather: Gatherer) -> None:
    """Labels of one task of a classifications export."""
    gather.takes(item="subject_ids", annotator="user_name")
    for place, row in rows(open_source(path)):
        item = gather.item(place, row.get("subject_ids"))
        answers = gather.parsed(place, parse_json, row.get("annotations") or "[]")
        for answer in answers if isinstance(answers, list) else []:
            question = str(answer.get("task", "")) if isinstance(answer, Mapping) else ""
            if question and gather.wants(question):
                labels = gather.parsed(place, as_labels, answer.get("value"))
                gather.label(place, item, row.get("user_name"), labels)
