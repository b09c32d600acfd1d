"""X and y as they come: labels of any kind as Annotations, and one row of X for each of their items."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from dissensus.data.annotations import Annotations
from dissensus.data.vocabulary import Vocabulary, encode, quoted
from dissensus.errors import DataError
from dissensus.guided.adapters import n_rows, take
from dissensus.models.base import as_annotations


def matched(X: Any, y: Any, X_name: str = "X", y_name: str = "y") -> tuple[Any, Annotations]:
    """X with one row per item of y, in their order, and y as Annotations."""
    labels = labels_of(y, y_name)
    rows = n_rows(X, X_name)
    if rows != len(labels):
        raise DataError(
            f"{X_name} has {rows} rows and {y_name} {len(labels)} items; give one row per item, in the order "
            f"of {y_name}.items"
        )
    named = hasattr(X, "index") and hasattr(X, "iloc") and not _is_plain(y)
    return (_by_id(X, labels.item_vocabulary, X_name) if named else X), labels


def labels_of(y: Any, name: str = "y") -> Annotations:
    """Annotations as they are, from a file or a frame of labels, or from one label for every row of X."""
    if isinstance(y, Annotations):
        return y
    if isinstance(y, str | os.PathLike) or hasattr(y, "column_names") or hasattr(y, "columns"):
        return as_annotations(y)
    values = np.asarray(y)
    if values.ndim != 1 or not len(values):
        raise DataError(
            f"{name} is a {type(y).__name__} of shape {values.shape}; give Annotations, a file or a frame of "
            "labels by annotators, or one label per item"
        )
    codes, classes = encode(values, "label")
    # One label per item, and nobody known to have given it.
    return Annotations.from_counts(np.eye(len(classes), dtype=np.int64)[codes], classes=classes)


def _is_plain(y: Any) -> bool:
    """Whether y is one label per row, so that rows have no ids."""
    return not isinstance(y, Annotations | str | os.PathLike) and not (
        hasattr(y, "column_names") or hasattr(y, "columns")
    )


def _by_id(X: Any, items: Vocabulary, name: str) -> Any:
    """The rows of a frame in the order of the items that its index names.

    Where the index is whole numbers and none of them is an item, it only counts rows, and they stay.
    """
    index = X.index
    if not (index.inferred_type in ("string", "integer", "mixed") and index.nlevels == 1):
        return X
    place = Vocabulary(index.astype(str), "item").codes([str(one) for one in items])
    if (place < 0).all() and index.inferred_type == "integer":
        return X
    if (place < 0).any():
        absent = items[int(np.flatnonzero(place < 0)[0])]
        raise DataError(
            f"{name}: its index has no row for item {quoted(absent)} ({int((place < 0).sum())} missing); "
            "index it by item id, or drop the index where rows are in the order of y.items"
        )
    if not index.is_unique:
        raise DataError(f"{name}: its index names an item twice; keep one row per item")
    return take(X, place)
