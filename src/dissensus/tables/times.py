"""When labels were given: a column of the file that the labels were read from, in the annotations' order."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.tables.columns import find_column
from dissensus.tables.tables import open_table

MILLISECONDS = 1e11  # a larger number counts milliseconds, not seconds, since 1970


def read_times(path: Path, column: str, annotations: Annotations) -> NDArray[np.float64]:
    """(labels,): seconds since 1970 of each label, NaN where none is written.

    The file has one row per label. Rows find their label by item, annotator and class; of labels that are
    alike in all three, the first row is the first label.
    """
    if not path.is_file():
        raise DataError(f"{path}: a run keeps no times; name the file of labels too")
    table = open_table(path)
    if column not in table.columns:
        raise DataError(f"{path}: has no column {column!r}; its columns are {', '.join(table.columns)}")
    known = annotations.columns_read
    names = [
        find_column(table.columns, role, known.get(role), table.name)
        for role in ("item", "annotator", "label")
    ]
    ids = table.ids(names)
    vocabularies = annotations.item_vocabulary, annotations.annotator_vocabulary, annotations.class_vocabulary
    codes = [vocabulary.codes(column_) for vocabulary, column_ in zip(vocabularies, ids, strict=True)]
    when = np.array([seconds(value) for value in table.everything()[column].to_pylist()])
    keys = [
        _key(annotations, *(code.astype(np.int64) for code in codes)),
        _key(annotations, *annotations.columns),
    ]
    there = np.argsort(keys[0], kind="stable")
    here = np.argsort(keys[1], kind="stable")
    # the k-th row with a key is the k-th label with it
    place = np.searchsorted(keys[0][there], keys[1][here]) + _occurrence(keys[1][here])
    place = np.minimum(place, len(there) - 1)
    found = np.full(annotations.n_labels, np.nan)
    same = keys[0][there][place] == keys[1][here]
    found[here[same]] = when[there][place[same]]
    return found


def _key(annotations: Annotations, item: Any, annotator: Any, label: Any) -> NDArray[np.int64]:
    """One number for item, annotator and class; −1 where one of them is not known."""
    known = (np.asarray(item) >= 0) & (np.asarray(annotator) >= 0) & (np.asarray(label) >= 0)
    whole = (
        np.asarray(item, np.int64) * annotations.n_annotators + annotator
    ) * annotations.n_classes + label
    return np.where(known, whole, -1)


def _occurrence(keys: NDArray[np.int64]) -> NDArray[np.intp]:
    """Of sorted keys: how many equal ones stand before each."""
    return np.arange(len(keys)) - np.searchsorted(keys, keys)


def seconds(value: Any) -> float:
    """A time as seconds since 1970: a number (of seconds or milliseconds) or ISO 8601; NaN for a blank."""
    if value is None or value == "":
        return float("nan")
    try:
        number = float(value)
    except (TypeError, ValueError):
        return _from_words(value)
    return number / 1000 if abs(number) > MILLISECONDS else number


def _from_words(value: Any) -> float:
    try:
        when = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
    except ValueError as error:
        raise DataError(
            f"{value!r} is no time; write seconds since 1970 or ISO 8601, such as 2026-05-04T10:15:00"
        ) from error
    return when.replace(tzinfo=when.tzinfo or UTC).timestamp()
