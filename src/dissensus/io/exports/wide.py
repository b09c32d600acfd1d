"""Tables with one row an item: a column an annotator (wide), or a column a class (counts)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dissensus.errors import DataError
from dissensus.io.exports.answers import as_labels
from dissensus.io.exports.files import listed, rows
from dissensus.io.exports.gather import Gatherer
from dissensus.io.exports.questions import sample

NO_ANNOTATORS = "class counts name no annotators: only item-side models apply"
_ITEM_NAMES = {"item", "task", "unit", "id", "item_id", "task_id", "unit_id", "document", "question", "index"}
_SIDE_NAMES = {"text", "sentence", "content", "message", "comment", "tweet", "title", "split"}
_ANNOTATOR_NAME = re.compile(r"(ann|annotator|worker|rater|coder|judge|user|a|r)[ _.-]?\d+", re.IGNORECASE)
_MOST_LABELS = 100_000_000  # what class counts may add up to
_MOST_CLASSES = 50


def is_wide(first: Sequence[Mapping[str, str]]) -> bool:
    """Whether a table is safely a wide one: an id, then annotators' columns that use one small set of labels.

    Numbers alone do not tell ratings from counts, so such a table is recognised by its column names only.
    """
    columns = list(first[0]) if first else []
    if len(columns) < 3 or columns[0].lower() not in _ITEM_NAMES:
        return False
    annotators = [name for name in columns[1:] if name.lower() not in _SIDE_NAMES]
    if len(annotators) < 2:
        return False
    values = [{row[name] for row in first if row[name].strip()} for name in annotators]
    distinct = set().union(*values)
    if not distinct or len(distinct) > _MOST_CLASSES:
        return False
    named = all(_ANNOTATOR_NAME.fullmatch(name) for name in annotators)
    shared = all(not own or any(own & other for other in values if other is not own) for own in values)
    return named or (shared and not any(map(_is_number, distinct)))


def read_wide(path: Path, gather: Gatherer) -> None:
    """Labels of a table with one column an annotator; blank cells carry none."""
    first, everything = sample(rows(path))
    item_column, annotators = _columns(path, first, gather, "annotator")
    gather.wants("label")
    for place, row in everything:
        item = gather.item(place, row[item_column], _text(row, gather))
        for annotator in annotators:
            labels = as_labels(row[annotator])
            if labels:
                gather.label(place, item, annotator, labels)


def read_counts(path: Path, gather: Gatherer) -> None:
    """Labels of a table with one column a class: no annotators, so every label is a pair of its own."""
    first, everything = sample(rows(path))
    item_column, classes = _columns(path, first, gather, "class")
    gather.wants("label")
    gather.anonymous = True
    gather.notes.append(NO_ANNOTATORS)
    total = 0
    for place, row in everything:
        item = gather.item(place, row[item_column], _text(row, gather))
        counts = [_count(place, name, row[name], gather) for name in classes]
        total += sum(counts)
        if total > _MOST_LABELS:
            raise gather.error(place, f"the counts add up to more than {_MOST_LABELS:,} labels; correct them")
        given = [name for name, count in zip(classes, counts, strict=True) for _ in range(count)]
        for number, name in enumerate(given, start=1):
            gather.label(place, item, f"label {number}", [name])


def _columns(
    path: Path, first: Sequence[tuple[str, Mapping[str, Any]]], gather: Gatherer, what: str
) -> tuple[str, list[str]]:
    """The item column (the first unless named) and those of the annotators or classes."""
    if not first:
        raise DataError(f"{path}: has a header and no rows; give at least one row an item")
    header = list(first[0][1])
    item_column = gather.options.item_column or header[0]
    if item_column not in header:
        raise DataError(f"{path}: has no column {item_column!r}; it has {listed(header)}")
    beside = _SIDE_NAMES | {gather.options.text_column}
    columns = [name for name in header if name != item_column and name not in beside]
    if not columns:
        raise DataError(f"{path}: has no {what} column beside {item_column!r}; give one column a {what}")
    if not all(name.strip() for name in columns):
        raise DataError(f"{path} line 1: a column has no name; name it after its {what}")
    return item_column, columns


def _text(row: Mapping[str, str], gather: Gatherer) -> str | None:
    wanted = gather.options.text_column
    if wanted:
        return gather.text_of(row)
    return next((row[name] for name in row if name in _SIDE_NAMES and name != "split"), None)


def _count(place: str, name: str, value: str, gather: Gatherer) -> int:
    text = value.strip().removesuffix(".0") or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise gather.error(place, f"the count of {name!r} is {value!r}; give a whole number of at least 0")
    return int(text)


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True
