"""Columns whose values contradict their names.

Several columns of a table may be called like the annotator, or like the label. Then the values tell: a
column that is the same in all rows of an item is no annotator's answer (it is a proposed or a correct one),
and names no annotator (it is the author, or a number of annotators); and a column of mostly different values
has no classes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissensus.labels import vocabulary as vocab
from dissensus.tables.tables import Table

MIN_TELLING_ITEMS = 3  # with several rows, from which values tell
MIN_ROWS, MAX_DISTINCT, MAX_DISTINCT_SHARE = 20, 50, 0.5  # of a column with classes


def codes_of(table: Table, names: Sequence[str]) -> dict[str, NDArray[np.int64]]:
    """Return the values of columns as integers, −1 for blank ones."""
    columns = {}
    for name, values in zip(names, table.ids(names), strict=True):
        column = vocab.to_arrow(values, "id")
        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        indices = pc.dictionary_encode(column.cast(pa.string())).indices
        columns[name] = np.asarray(pc.fill_null(indices, -1)).astype(np.int64)
    return columns


def varies_within(item: NDArray[np.int64], values: NDArray[np.int64]) -> bool | None:
    """Return whether a column has different values in the rows of some item; None with too few such items."""
    rows = np.flatnonzero((item >= 0) & (values >= 0))
    pairs = np.unique(np.stack([item[rows], values[rows]]), axis=1)[0]
    n_rows, n_values = np.bincount(item[rows], minlength=1), np.bincount(pairs, minlength=1)
    if (n_rows > 1).sum() < MIN_TELLING_ITEMS:
        return None
    return bool((n_values > 1).any())


def without_contradicted(table: Table, role: str, candidates: Sequence[str], item: str) -> list[str]:
    """Return the candidates for annotators or labels that their values allow; all, if none is left."""
    if len(candidates) < 2:
        return list(candidates)
    columns = codes_of(table, [item, *candidates])
    varies = {name: varies_within(columns[item], columns[name]) for name in candidates}
    left = [name for name in candidates if varies[name] is not False]
    if role == "label":
        left = [name for name in left if not _is_free(columns[name])]
    return left or list(candidates)


def _is_free(values: NDArray[np.int64]) -> bool:
    """Return True for a column of mostly different values."""
    n, distinct = int((values >= 0).sum()), len(np.unique(values[values >= 0]))
    return n >= MIN_ROWS and distinct > max(MAX_DISTINCT, MAX_DISTINCT_SHARE * n)


def finer_item(table: Table, item: str, annotator: str, others: Sequence[str]) -> str | None:
    """Return a column that divides ``item``, if annotators have several rows of items, and one of parts."""
    if not others:
        return None
    columns = codes_of(table, [item, annotator, *others])
    n_rows = len(columns[item])

    def n_repeated(name: str) -> int:
        return n_rows - int(np.unique(np.stack([columns[name], columns[annotator]]), axis=1).shape[1])

    for name in others:
        n_parts = np.unique(np.stack([columns[item], columns[name]]), axis=1).shape[1]
        divides = n_parts == len(np.unique(columns[name])) < n_rows
        if divides and n_repeated(item) > n_rows / 10 and n_repeated(name) < n_repeated(item) / 10:
            return name
    return None
