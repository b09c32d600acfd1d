"""X and y as they come: labels of any kind as Annotations, and one row of X for each of their items."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import by_item
from dissensus.labels.sources import as_annotations
from dissensus.labels.vocabulary import encode
from dissensus.text.guided.adapters import n_rows


def matched(X: Any, y: Any, X_name: str = "X", y_name: str = "y") -> tuple[Any, Annotations]:
    """X with one row per item of y, in their order, and y as Annotations.

    Only Annotations have an order of items that a caller can know; beside a frame or a file of labels, the
    index of X must name the items.
    """
    labels = labels_of(y, y_name)
    rows = n_rows(X, X_name)
    if rows != len(labels):
        raise DataError(
            f"{X_name} has {rows} rows and {y_name} {len(labels)} items; give one row per item, in the order "
            f"of {y_name}.items"
        )
    if _is_plain(y):
        return X, labels
    placed = by_item(X, labels.item_vocabulary, X_name)
    if placed is None and not isinstance(y, Annotations):
        raise DataError(
            f"{X_name} does not say which row is which item of {y_name}; index it by item id (a pandas "
            f"Series or DataFrame), or read {y_name} with read_annotations and give the rows in the order of "
            "its items"
        )
    return (X if placed is None else placed), labels


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
