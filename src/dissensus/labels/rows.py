"""Label rows in canonical order (by item, annotator, label), their pairs, and the tables beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissensus.errors import DataError, ParameterError, bad_parameter, setting
from dissensus.labels.vocabulary import (
    Codes,
    Place,
    Vocabulary,
    blank_ids,
    encode,
    one_slip_away,
    places,
    quoted,
    to_arrow,
)
from dissensus.numerics import pointers

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations

Duplicates = Literal["keep", "first", "last", "error"]
DUPLICATE_POLICIES: tuple[Duplicates, ...] = ("keep", "first", "last", "error")

_PIECE = 1 << 16  # rows that fit the processor's cache
MOST_NAMED = 5  # classes that a note lists

Labels = TypeVar("Labels", bound="Annotations")
Rows = tuple[Codes, Codes, Codes]  # item, annotator, label
Coded = tuple[Codes, Vocabulary]  # a column and what its codes stand for


def resolved_rows(
    item: Coded, annotator: Coded, label: Coded, duplicates: Duplicates, place: Place
) -> tuple[Rows, int]:
    """Canonical rows, repeated pairs resolved by the named policy, and the number of rows that left out."""
    rows = item[0], annotator[0], label[0]
    sizes = len(item[1]), len(annotator[1]), len(label[1])
    if duplicates == "keep":
        return canonical_rows(*rows, sizes), 0
    key = rows[0].astype(np.int64) * sizes[1] + rows[1]
    order = np.argsort(key, kind="stable")
    repeats = np.diff(key[order]) == 0  # row order[i + 1] is of the same pair as row order[i]
    if duplicates == "error" and repeats.any():
        row = int(order[1:][repeats].min())
        names = [quoted(vocabulary[codes[row]]) for codes, vocabulary in (item, annotator)]
        raise DataError(
            f"{place(row)}: item {names[0]} and annotator {names[1]} occur together more than once; remove "
            f"the repeats, or say which count with {setting('duplicates')} (keep, first or last)"
        )
    keep = np.append(~repeats, True) if duplicates == "last" else np.append(True, ~repeats)
    kept = np.sort(order[keep])
    return canonical_rows(rows[0][kept], rows[1][kept], rows[2][kept], sizes), len(key) - len(kept)


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


def with_rows(labels: Labels, item: Codes, annotator: Codes, label: Codes, **changes: Any) -> Labels:
    """Labels with other rows, and with other changes that belong to them."""
    return replace(labels, item=item, annotator=annotator, label=label, **changes)


def joined(first: Annotations, second: Annotations) -> Annotations:
    """The labels of both, of the same classes; ids that are in both name the same item or annotator."""
    _, items = first.item_vocabulary.extended(second.item_vocabulary)
    _, annotators = first.annotator_vocabulary.extended(second.annotator_vocabulary)
    both = (first, second)
    item = np.concatenate([items.codes(one.item_vocabulary)[one.item] for one in both])
    annotator = np.concatenate([annotators.codes(one.annotator_vocabulary)[one.annotator] for one in both])
    label = np.concatenate([first.label, second.label])
    order = np.lexsort((label, annotator, item))
    alone: dict[str, Any] = {"item_table": None, "annotator_table": None, "gold": None, "notes": ()}
    ids = {"item_vocabulary": items, "annotator_vocabulary": annotators}
    return with_rows(first, item[order], annotator[order], label[order], **ids, **alone)


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


# ---- side tables --------------------------------------------------------------------------------------
# Each is a table whose first column holds the ids. They are joined by id, and nothing in them is lost
# without a note.


def side_table(given: Any, name: str, n_columns: int = 1) -> pa.Table:
    """A side table as an Arrow table, out of one, a data frame, or columns by name."""
    try:
        table = given if isinstance(given, pa.Table) else pa.table(given)
    except (TypeError, ValueError, AttributeError, pa.ArrowException):
        table = None
    if table is None or table.num_columns < n_columns:
        rule = "a table whose first column holds the ids" + " and whose second the labels" * (n_columns > 1)
        raise bad_parameter("Annotations", name, rule, type(given).__name__)
    return table


def checked_ids(table: pa.Table, what: str, place: Place) -> pa.Array:
    """The ids of a side table, none blank and none twice."""
    codes, vocabulary = encode(table.column(0), what, place=place)
    if len(vocabulary) < len(codes):
        first = np.zeros(len(codes), dtype=bool)
        first[np.unique(codes, return_index=True)[1]] = True
        row = int(np.flatnonzero(~first)[0])
        raise DataError(
            f"{place(row)}: {what} {quoted(vocabulary[codes[row]])} occurs twice; keep one row of it"
        )
    return to_arrow(table.column(0), what)


def aligned(table: pa.Table, ids: pa.Array, vocabulary: Vocabulary) -> tuple[pa.Table, int, int]:
    """A side table with one row per id, in the vocabulary's order, null where it has no row.

    Returned with the number of its rows that name no known id and of known ids without a row.
    """
    codes = vocabulary.codes(ids)
    known = codes >= 0
    rows = np.full(len(vocabulary), -1, dtype=np.int64)
    rows[codes[known]] = np.flatnonzero(known)
    row = pc.if_else(pc.less(places(rows), 0), None, places(rows))
    table = table.take(row).set_column(0, table.column_names[0], vocabulary.arrow)
    return table, int((~known).sum()), int((rows < 0).sum())


def gold_labels(table: pa.Table, place: Place) -> tuple[pa.Array, pa.Array, NDArray[np.intp]]:
    """Items and labels of a gold table, one row per item, and the row each stood in.

    A row with a blank label says nothing and is passed over; an item may be repeated, but not with another
    label.
    """
    label = to_arrow(table.column(1), "label")
    rows = np.flatnonzero(~blank_ids(label))
    item = to_arrow(table.column(0), "item").take(places(rows))
    label = label.take(places(rows))
    item_codes, items = encode(item, "item", place=lambda row: place(int(rows[row])))
    label_codes, labels = encode(label, "label")
    first = np.unique(item_codes, return_index=True)[1]
    differs = np.flatnonzero(label_codes[first][item_codes] != label_codes)
    if len(differs):
        row = int(differs[0])
        raise DataError(
            f"{place(int(rows[row]))}: item {quoted(items[item_codes[row]])} has two gold labels, "
            f"{quoted(labels[label_codes[first[item_codes[row]]]])} and {quoted(labels[label_codes[row]])}; "
            "keep one"
        )
    return items.arrow, labels.arrow.take(places(label_codes[first])), rows[first]


def column_of(table: pa.Table | None, name: str, what: str) -> NDArray[Any]:
    """A column of a side table as an array, or what to do to have one."""
    if table is None:
        raise ParameterError(
            f"no {what} table was given, so there is no column {name!r}; pass {setting(what + 's')}"
        )
    if name not in table.column_names:
        known = ", ".join(table.column_names)
        raise ParameterError(f"the {what} table has no column {name!r}; it has {known}")
    values: NDArray[Any] = table.column(name).combine_chunks().to_numpy(zero_copy_only=False)
    return values


def with_values(table: pa.Table | None, wanted: Mapping[str, Any], what: str) -> NDArray[np.bool_]:
    """Which rows of a side table have, in each named column, the value wanted or one of several.

    Values are compared as texts.
    """
    mask = np.ones(0 if table is None else table.num_rows, dtype=bool)
    for name, value in wanted.items():
        texts = np.array(
            ["" if one is None else str(one) for one in column_of(table, name, what)], dtype=object
        )
        for one in several(value):
            if one not in texts:
                known = ", ".join(sorted(set(texts.tolist()) - {""})[:8])
                raise ParameterError(f"no {what} has {name} {quoted(one)}; it is one of {known}")
        mask &= np.isin(texts, several(value))
    return mask


def several(value: Any) -> list[str]:
    """One value, or those of a list, as texts."""
    return [str(one) for one in (value if isinstance(value, list | tuple) else [value])]


def unused_notes(gold: pa.Array, classes: Vocabulary, used: Codes, place: Place) -> tuple[str, ...]:
    """A note on gold classes that no annotator used; one that looks like a typing error is refused.

    ``used`` are the codes of the annotators' classes among all ``classes``; ``place`` says where a row is.
    """
    codes = classes.codes(gold)
    counts, known = np.bincount(codes, minlength=len(classes)), classes.take(np.sort(used))
    unused = np.setdiff1d(np.arange(len(classes)), used).tolist()
    n_items = [counted((int(counts[code]), "{}", "item"))[0] for code in unused]
    words = [f"{quoted(classes[code])} ({n})" for code, n in zip(unused, n_items, strict=True)]
    for code, word in zip(unused, words, strict=True):
        meant = one_slip_away(classes[code], known)
        if meant is not None:
            row = int(np.flatnonzero(codes == code)[0])
            raise DataError(
                f"{place(row)}: gold has {word}, a class that no annotator used; if it means "
                f"{quoted(meant)}, correct the gold labels, else list all classes in {setting('classes')}"
            )
    if not unused:
        return ()
    others = ", ".join(map(quoted, known[:MOST_NAMED])) + ", …" * (len(known) > MOST_NAMED)
    named = ", ".join(words[:MOST_NAMED])
    return (f"gold has classes that no annotator used: {named}; annotators used {others}",)


def counted(*findings: tuple[int, str, str]) -> tuple[str, ...]:
    """Notes with their number, noun and verb, for the findings (number, words, noun) that are there."""
    return tuple(
        words.format(
            f"{n:,} {noun}{'s' * (n != 1)}", have="has" if n == 1 else "have", are="is" if n == 1 else "are"
        )
        for n, words, noun in findings
        if n
    )


def repeats_note(left_out: int, duplicates: str) -> tuple[str, ...]:
    """The note on label rows that the policy for duplicates left out."""
    return counted((left_out, f"{{}} {{are}} left out: the {duplicates} label of a pair counts", "repeat"))
