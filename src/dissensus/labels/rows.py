"""Label rows in their canonical order (by item, annotator, label), and the pairs they belong to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError
from dissensus.labels.vocabulary import Codes, Place, Vocabulary, quoted
from dissensus.numerics import pointers

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations

Duplicates = Literal["keep", "first", "last", "error"]
DUPLICATE_POLICIES: tuple[Duplicates, ...] = ("keep", "first", "last", "error")

_PIECE = 1 << 16  # rows that fit the processor's cache

Rows = tuple[Codes, Codes, Codes]  # item, annotator, label
Coded = tuple[Codes, Vocabulary]  # a column and what its codes stand for


def check_lengths(*lengths: int) -> None:
    """One value of each column per label, and at least one label."""
    if len(set(lengths)) != 1:
        raise DataError(
            f"item, annotator and label columns differ in length ({', '.join(map(str, lengths))}); "
            "give one value of each per label"
        )
    if not lengths[0]:
        raise DataError("there is no label in the data; give at least one (item, annotator, label) row")


def resolved_rows(
    item: Coded, annotator: Coded, label: Coded, duplicates: Duplicates, place: Place
) -> tuple[Rows, int]:
    """Canonical rows, repeated pairs resolved by the named policy, and the number of rows that left out."""
    rows = item[0], annotator[0], label[0]
    sizes = len(item[1]), len(annotator[1]), len(label[1])
    if duplicates == "keep":
        return canonical_rows(*rows, sizes), 0

    def name_row(row: int) -> str:
        names = [quoted(vocabulary[codes[row]]) for codes, vocabulary in (item, annotator)]
        return f"{place(row)}: item {names[0]} and annotator {names[1]}"

    kept = one_row_a_pair(rows[0], rows[1], sizes[1], duplicates, name_row)
    left_out = len(rows[0]) - len(kept)
    return canonical_rows(rows[0][kept], rows[1][kept], rows[2][kept], sizes), left_out


def canonical_rows(item: Codes, annotator: Codes, label: Codes, sizes: tuple[int, int, int]) -> Rows:
    """The rows sorted by item, annotator, label, written over the columns given.

    ``sizes`` are those of the three vocabularies.
    """
    bits = [max(size - 1, 1).bit_length() for size in sizes]
    if sum(bits) > 63:
        order = np.lexsort((label, annotator, item))
        return item[order], annotator[order], label[order]
    # One integer a row sorts several times faster than three columns, and comes apart by shifts.
    key = item.astype(np.int64)
    for column, width in ((annotator, bits[1]), (label, bits[2])):
        key <<= width
        key |= column
    if np.all(key[1:] >= key[:-1]):
        return item, annotator, label
    key.sort()
    for start in range(0, len(key), _PIECE):
        piece = slice(start, start + _PIECE)
        label[piece] = key[piece] & ((1 << bits[2]) - 1)
        annotator[piece] = (key[piece] >> bits[2]) & ((1 << bits[1]) - 1)
        item[piece] = key[piece] >> (bits[1] + bits[2])
    return item, annotator, label


def one_row_a_pair(
    item: Codes, annotator: Codes, n_annotators: int, duplicates: Duplicates, name_row: Callable[[int], str]
) -> NDArray[np.intp]:
    """The rows that the policy keeps, one for each (item, annotator) pair, in their given order."""
    key = item.astype(np.int64) * n_annotators + annotator
    order = np.argsort(key, kind="stable")
    repeats = np.diff(key[order]) == 0  # row order[i + 1] is of the same pair as row order[i]
    if duplicates == "error" and repeats.any():
        second = int(order[1:][repeats].min())
        raise DataError(
            f"{name_row(second)} occur together more than once; remove the repeats, or say which "
            "count with duplicates= (keep, first or last)"
        )
    keep = np.append(~repeats, True) if duplicates == "last" else np.append(True, ~repeats)
    return np.sort(order[keep])


def checked_counts(counts: Any, place: Place) -> NDArray[np.int64]:
    """An (items, classes) table of whole numbers of at least 0, one of them above."""
    try:
        table = np.asarray(counts, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("class counts must be whole numbers of at least 0; correct the table") from None
    if table.ndim != 2 or not table.size:
        raise DataError(f"class counts must be an (items, classes) table; got shape {table.shape}")
    bad = ~(np.isfinite(table) & (table >= 0) & (table == np.round(table)))
    if bad.any():
        row = int(np.flatnonzero(bad.any(axis=1))[0])
        raise DataError(f"{place(row)}: class counts must be whole numbers of at least 0; correct the row")
    if not table.any():
        raise DataError("there is no label in the class counts; give at least one count above 0")
    if table.sum() >= 2**31:
        raise DataError(
            f"the class counts add up to {table.sum():.3g} labels, more than 2 billion; scale them down"
        )
    return table.astype(np.int64)


# ---- (item, annotator) pairs, in a random order within their items ------------------------------------
# A pair is never cut: whoever sees one of its labels sees them all.


def pair_items(annotations: Annotations) -> NDArray[np.int64]:
    """(pairs,): the item of each pair."""
    first = np.flatnonzero(np.diff(annotations.pair, prepend=-1))
    return annotations.item[first].astype(np.int64)


def pairs_per_item(annotations: Annotations) -> NDArray[np.int64]:
    """(items,): how many annotators labelled each item."""
    return np.bincount(pair_items(annotations), minlength=annotations.n_items)


def random_places(annotations: Annotations, rng: np.random.Generator) -> NDArray[np.int64]:
    """(pairs,): the place of each pair, from 0, in a random order of its item's pairs."""
    item = pair_items(annotations)
    order = np.lexsort((rng.random(len(item)), item))
    places = np.empty(len(item), dtype=np.int64)
    places[order] = np.arange(len(item)) - pointers(item, annotations.n_items)[item]
    return places


def take_pairs(annotations: Annotations, chosen: NDArray[np.bool_]) -> Annotations:
    """The label rows of some pairs; every vocabulary and side table stays."""
    return annotations.take_rows(chosen[annotations.pair])


# ---- two sets of labels as one ------------------------------------------------------------------------


def joined(first: Annotations, second: Annotations) -> Annotations:
    """The labels of both, of the same classes; ids that are in both name the same item or annotator."""
    _, items = first.item_vocabulary.extended(second.item_vocabulary)
    _, annotators = first.annotator_vocabulary.extended(second.annotator_vocabulary)
    both = (first, second)
    item = np.concatenate([items.codes(one.item_vocabulary)[one.item] for one in both])
    annotator = np.concatenate([annotators.codes(one.annotator_vocabulary)[one.annotator] for one in both])
    label = np.concatenate([first.label, second.label])
    order = np.lexsort((label, annotator, item))
    return replace(
        first,
        item=item[order],
        annotator=annotator[order],
        label=label[order],
        item_vocabulary=items,
        annotator_vocabulary=annotators,
        item_table=None,
        annotator_table=None,
        gold=None,
        notes=(),
    )


def rows_of(some: Sequence[Codes], all_rows: Sequence[Codes]) -> NDArray[np.int64]:
    """Where each of some label rows (codes of item, annotator, label) stands among all, equal ones in order.

    Every one of them must be there, as often as it comes.
    """
    n = len(some[0])
    keys = np.stack([np.concatenate(pair) for pair in zip(some, all_rows, strict=True)])
    _, key = np.unique(keys, axis=1, return_inverse=True)
    ranked = []
    for part in (key[:n], key[n:]):
        order = np.argsort(part, kind="stable")
        rank = np.empty(len(part), dtype=np.int64)  # how many equal rows come before
        rank[order] = np.arange(len(part)) - np.searchsorted(part[order], part[order])
        ranked.append(rank * (key.max(initial=0) + 1) + part)
    order = np.argsort(ranked[1])
    found: NDArray[np.int64] = order[np.searchsorted(ranked[1][order], ranked[0])]
    return found
