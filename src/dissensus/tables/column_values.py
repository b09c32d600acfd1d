"""Columns whose values contradict their names.

Several columns of a table may be called like the annotator, or like the label. Then the values tell: a
column that is the same in all rows of an item is no annotator's answer (it is a proposed or a correct one),
and names no annotator (it is the author, or a number of annotators); and a column of mostly different values
has no classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.errors import DataError, setting
from dissensus.labels import vocabulary as vocab
from dissensus.labels.features import TEXT_NAMES
from dissensus.labels.vocabulary import quoted
from dissensus.tables.columns import called, is_remark
from dissensus.tables.tables import Table

MIN_TELLING_ITEMS = 3  # with several rows, from which values tell
MIN_UNANIMOUS_ITEMS = 20  # with several rows, before labels that never differ are doubted
MIN_EXPECTED_COINCIDENCES = 5  # of which none occurs
MAX_REPEATED = 0.7  # distinct values per row of a column that may hold the items, beside a row number
MIN_ROWS, MAX_DISTINCT, MAX_DISTINCT_SHARE = 20, 50, 0.5  # of a column with classes


Codes = NDArray[np.int64]


def codes_of(table: Table, names: Sequence[str]) -> dict[str, Codes]:
    """Return the values of columns as integers, −1 for blank ones."""
    columns = zip(names, table.ids(names), strict=True)
    return {name: encoded(vocab.to_arrow(ids, "id")) for name, ids in columns}


def encoded(column: pa.Array | pa.ChunkedArray) -> Codes:
    """Return values as integers, −1 for blank ones."""
    coded = column.dictionary_encode()
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    return vocab.numpy_filled(coded.indices, -1).astype(np.int64)


def varies_within(item: Codes, values: Codes) -> bool | None:
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


def _is_free(values: Codes) -> bool:
    """Return True for a column of mostly different values."""
    n, distinct = int((values >= 0).sum()), len(np.unique(values[values >= 0]))
    return n >= MIN_ROWS and distinct > max(MAX_DISTINCT, MAX_DISTINCT_SHARE * n)


def n_repeated(*columns: Codes) -> int:
    """Return the number of rows with the same values as an earlier one."""
    pairs, *others = columns
    for number, column in enumerate(others):
        pairs = np.unique(pairs, return_inverse=True)[1] if number else pairs  # so that products stay small
        pairs = pairs * (int(column.max()) + 2) + column
    pairs = np.sort(pairs)  # faster than np.unique
    return int((pairs[1:] == pairs[:-1]).sum())


def never_coincide(left: Codes, right: Codes) -> bool:
    """Return whether no two rows share both values, although many would if the columns were independent."""
    # Σ_a C(n_a, 2) pairs of rows share the left value; a fraction Σ_b (n_b / n)² of them also the right one
    n_left, n_right = (np.unique(column, return_counts=True)[1] for column in (left, right))
    expected = (n_left * (n_left - 1) / 2).sum() * ((n_right / len(right)) ** 2).sum()
    return n_repeated(left, right) == 0 and bool(expected >= MIN_EXPECTED_COINCIDENCES)


def check_roles(
    table: Table, roles: Sequence[str], named: Sequence[str], others: Callable[[], dict[str, pa.ChunkedArray]]
) -> list[str]:
    """Return a note if another column may tell items apart; raise an error if one surely has a role.

    ``roles`` are the columns read as items, annotators and labels, ``named`` those of them that the user
    named, and ``others`` returns the remaining columns.
    """
    item, annotator, label = codes_of(table, roles).values()
    n, n_per_item, notes = len(item), np.bincount(item + 1)[1:], list[str]()
    one_each, twice = int(item.max()) + 1 == n, n_repeated(item, annotator)

    def refuse(problem: str, role: str, *names: str) -> None:
        choices = ", or ".join(setting(role, name) for name in names)
        raise DataError(f"{table.name}: {problem}; choose the column of the {role}s: {choices}")

    ids = vocab.to_arrow(table.ids([roles[1]])[0], "id").unique().to_pylist()
    is_number = roles[1] not in named and all(str(value).isdigit() for value in ids)
    if is_number and ((one_each and roles[1].casefold().endswith("s")) or never_coincide(item, label)):
        counts = f"for counts, give each class a column and use {setting('layout', 'counts')}"
        refuse(f"{quoted(roles[1])} may be a number of annotators; {counts}", "annotator", roles[1])
    is_unanimous = roles[2] not in named and bool((n_per_item > 1).sum() >= MIN_UNANIMOUS_ITEMS)
    is_unanimous = is_unanimous and n - n_repeated(item, label) == len(n_per_item)
    asks_item = roles[0] not in named and (one_each or twice > n / 10)
    for name, column in others().items() if is_unanimous or asks_item else ():
        codes = encoded(column)
        n_distinct = int(codes.max()) + 1
        has_classes = n_distinct <= min(MAX_DISTINCT, MAX_DISTINCT_SHARE * n) and not is_remark(name)
        if is_unanimous and has_classes and varies_within(item, codes) and varies_within(annotator, codes):
            problem = f"{quoted(roles[2])} is the same in all rows of an item, and {quoted(name)} is not"
            refuse(problem, "label", name, roles[2])
        is_item = name.strip().casefold() in TEXT_NAMES or never_coincide(codes, annotator)
        if asks_item and one_each and n_distinct <= MAX_REPEATED * n and is_item:
            problem = f"{quoted(roles[0])} is different in every row and {quoted(name)} is not"
            refuse(problem, "item", name, roles[0])
        most = n - 1 if called([name], "item") else MAX_DISTINCT_SHARE * n
        if not asks_item or one_each or n_distinct > most or n_repeated(item, annotator, codes) >= twice / 10:
            continue
        problem = f"annotators have several rows of one {quoted(roles[0])}, with different {quoted(name)}"
        is_finer = n - n_repeated(annotator, codes) == n_distinct
        if called([name], "annotator") and is_finer and roles[1] not in named:
            refuse(problem, "annotator", name, roles[1])
        if n - n_repeated(item, codes) == n_distinct:
            refuse(problem, "item", name, roles[0])
        notes.append(f"{problem}; if these are different items, give each an id of its own")
    return notes[:1]
