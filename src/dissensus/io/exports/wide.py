"""Tables with one row an item: a column an annotator (wide), or a column a class (counts)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dissensus.errors import DataError
from dissensus.io.columns import is_id
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
_LONG = 20  # characters of a text, on average
_MOSTLY = 0.9  # of a column's texts are different


def is_wide(first: Sequence[Mapping[str, str]]) -> bool:
    """Whether a table is safely a wide one: an id, then annotators' columns that use one small set of labels.

    Numbers alone do not tell ratings from counts, so such a table is recognised by its column names only.
    """
    columns = list(first[0]) if first else []
    if len(columns) < 3 or not _holds_items(first, columns[0]):
        return False
    texts = text_columns(first, columns[1:])
    annotators = [name for name in columns[1:] if name.lower() not in _SIDE_NAMES and name not in texts]
    if len(annotators) < 2:
        return False
    values = [{row[name] for row in first if row[name].strip()} for name in annotators]
    distinct = set().union(*values)
    if not distinct or len(distinct) > _MOST_CLASSES:
        return False
    named = all(_ANNOTATOR_NAME.fullmatch(name) for name in annotators)
    shared = all(not own or any(own & other for other in values if other is not own) for own in values)
    return named or (shared and not any(map(_is_number, distinct)))


def _holds_items(first: Sequence[Mapping[str, str]], column: str) -> bool:
    """Whether the name says so, or says that it holds ids, and no id occurs twice."""
    return column.lower() in _ITEM_NAMES or (
        is_id(column) and len({row[column] for row in first}) == len(first)
    )


def text_columns(first: Sequence[Mapping[str, str]], names: Sequence[str]) -> set[str]:
    """The columns that hold texts: few blanks, and long values, mostly different, that no other column has.

    Not all of them are: then the long values are labels.
    """
    values = {name: [row[name] for row in first if row[name].strip()] for name in names}
    n_columns = Counter(value for own in values.values() for value in set(own))
    texts = {
        name
        for name, own in values.items()
        if 2 * len(own) > len(first)
        and sum(map(len, own)) >= _LONG * len(own)
        and len(set(own)) >= _MOSTLY * len(own)
        and all(n_columns[value] == 1 for value in own)
    }
    return texts if len(texts) < len(names) else set()


def read_wide(path: Path, gather: Gatherer) -> None:
    """Labels of a table with one column an annotator; blank cells carry none."""
    first, everything = sample(rows(path))
    item_column, annotators, beside = _columns(path, first, gather, "annotator")
    gather.wants("label")
    for place, row in everything:
        item = gather.item(place, row[item_column], _text(row, beside, gather))
        for annotator in annotators:
            labels = as_labels(row[annotator])
            if labels:
                gather.label(place, item, annotator, labels)


def read_counts(path: Path, gather: Gatherer) -> None:
    """Labels of a table with one column a class: no annotators, so every label is a pair of its own."""
    first, everything = sample(rows(path))
    item_column, classes, beside = _columns(path, first, gather, "class")
    gather.wants("label")
    gather.anonymous = True
    gather.notes.append(NO_ANNOTATORS)
    total = 0
    for place, row in everything:
        item = gather.item(place, row[item_column], _text(row, beside, gather))
        counts = [_count(place, name, row[name], gather) for name in classes]
        total += sum(counts)
        if total > _MOST_LABELS:
            raise gather.error(place, f"the counts add up to more than {_MOST_LABELS:,} labels; correct them")
        given = [name for name, count in zip(classes, counts, strict=True) for _ in range(count)]
        for number, name in enumerate(given, start=1):
            gather.label(place, item, f"label {number}", [name])


def _columns(
    path: Path, first: Sequence[tuple[str, Mapping[str, Any]]], gather: Gatherer, what: str
) -> tuple[str, list[str], list[str]]:
    """The item column (the first unless named), those of the annotators or classes, and those of texts."""
    if not first:
        raise DataError(f"{path}: has a header and no rows; give at least one row an item")
    header = list(first[0][1])
    item_column = gather.options.item_column or header[0]
    if item_column not in header:
        raise DataError(f"{path}: has no column {item_column!r}; it has {listed(header)}")
    others = [name for name in header if name != item_column]
    texts = {*_SIDE_NAMES, gather.options.text_column, *text_columns([row for _, row in first], others)}
    columns = [name for name in others if name not in texts]
    if not columns:
        raise DataError(f"{path}: has no {what} column beside {item_column!r}; give one column a {what}")
    if not all(name.strip() for name in columns):
        raise DataError(f"{path} line 1: a column has no name; name it after its {what}")
    return item_column, columns, [name for name in others if name in texts and name != "split"]


def _text(row: Mapping[str, str], beside: Sequence[str], gather: Gatherer) -> str | None:
    return gather.text_of(row if gather.options.text_column else {name: row[name] for name in beside})


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
