"""Label rows in canonical order (by item, annotator, label), (item, annotator) pairs, and side tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.errors import DataError, ParameterError, bad_parameter, setting, warn
from dissensus.labels import vocabulary as vocab
from dissensus.numerics import batches, pointers

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations

Duplicates = Literal["keep", "first", "last", "error"]
DUPLICATE_POLICIES: tuple[Duplicates, ...] = ("keep", "first", "last", "error")

ROWS_PER_CHUNK = 1 << 16  # rows that fit in the processor's cache
MAX_CLASSES_IN_NOTE = 5

Rows = tuple[vocab.Codes, vocab.Codes, vocab.Codes]  # item, annotator, label
Coded = tuple[vocab.Codes, vocab.Vocabulary]  # a column and its vocabulary


def resolve_duplicates(
    item: Coded, annotator: Coded, label: Coded, duplicates: Duplicates, locate: vocab.Locate
) -> tuple[Rows, int]:
    """Return canonical rows with repeated pairs resolved by the policy, and the number of rows dropped."""
    rows = item[0], annotator[0], label[0]
    sizes = len(item[1]), len(annotator[1]), len(label[1])
    if duplicates == "keep":
        return canonical_rows(*rows, sizes), 0
    key = rows[0].astype(np.int64) * sizes[1] + rows[1]
    order = np.argsort(key, kind="stable")
    repeats = np.diff(key[order]) == 0  # rows order[i + 1] and order[i] are of the same pair
    if duplicates == "error" and repeats.any():
        row = int(order[1:][repeats].min())
        names = [vocab.quoted(vocabulary[codes[row]]) for codes, vocabulary in (item, annotator)]
        problem = f"{locate(row)}: annotator {names[1]} labelled item {names[0]} more than once"
        remedy = f"choose which count with {setting('duplicates')} (keep, first or last)"
        raise DataError(f"{problem}; remove the repeats, or {remedy}")
    keep = np.append(~repeats, True) if duplicates == "last" else np.append(True, ~repeats)
    remaining = np.sort(order[keep])
    item_codes, annotator_codes, label_codes = (codes[remaining] for codes in rows)
    return canonical_rows(item_codes, annotator_codes, label_codes, sizes), len(key) - len(remaining)


def canonical_rows(
    item: vocab.Codes, annotator: vocab.Codes, label: vocab.Codes, sizes: tuple[int, int, int]
) -> Rows:
    """Sort rows in place by item, annotator, label; ``sizes`` are those of the three vocabularies."""
    bits = [max(size - 1, 1).bit_length() for size in sizes]
    if sum(bits) > 63:
        order = np.lexsort((label, annotator, item))
        return item[order], annotator[order], label[order]
    # Packing a row into one integer makes sorting several times faster.
    key = item.astype(np.int64)
    for column, width in ((annotator, bits[1]), (label, bits[2])):
        key <<= width
        key |= column
    if np.all(key[1:] >= key[:-1]):
        return item, annotator, label
    key.sort()
    for chunk in batches(len(key), ROWS_PER_CHUNK):
        label[chunk] = key[chunk] & ((1 << bits[2]) - 1)
        annotator[chunk] = (key[chunk] >> bits[2]) & ((1 << bits[1]) - 1)
        item[chunk] = key[chunk] >> (bits[1] + bits[2])
    return item, annotator, label


def check_counts(counts: Any, locate: vocab.Locate) -> NDArray[np.int64]:
    """Return counts as an (items, classes) table of non-negative integers, not all 0."""
    try:
        table = np.asarray(counts, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("class counts must be non-negative integers; correct the table") from None
    if table.ndim != 2 or not table.size:
        raise DataError(f"class counts must be an (items, classes) table; got shape {table.shape}")
    bad = ~(np.isfinite(table) & (table >= 0) & (table == np.round(table)))
    if bad.any():
        row = int(np.flatnonzero(bad.any(axis=1))[0])
        raise DataError(f"{locate(row)}: class counts must be non-negative integers; correct the row")
    if not table.any():
        raise DataError("there is no label in the class counts; give at least one count above 0")
    if table.sum() >= 2**31:
        total = f"{table.sum():.3g} labels, more than 2 billion"
        raise DataError(f"the class counts add up to {total}; scale them down")
    return table.astype(np.int64)


# ---- (item, annotator) pairs --------------------------------------------------------------------------
# The labels of a pair are never separated.


def pair_items(annotations: Annotations) -> NDArray[np.int64]:
    """Return (pairs,) the item of each pair."""
    first = np.flatnonzero(np.diff(annotations.pair, prepend=-1))
    return annotations.item[first].astype(np.int64)


def pairs_per_item(annotations: Annotations) -> NDArray[np.int64]:
    """Return (items,) the number of annotators of each item."""
    return np.bincount(pair_items(annotations), minlength=annotations.n_items)


def random_ranks(annotations: Annotations, rng: np.random.Generator) -> NDArray[np.int64]:
    """Return (pairs,) the rank of each pair, from 0, in a random order within its item."""
    item = pair_items(annotations)
    order = np.lexsort((rng.random(len(item)), item))
    ranks = np.empty(len(item), dtype=np.int64)
    ranks[order] = np.arange(len(item)) - pointers(item, annotations.n_items)[item]
    return ranks


def take_pairs(annotations: Annotations, chosen: NDArray[np.bool_]) -> Annotations:
    """Select the label rows of the chosen pairs; vocabularies and side tables stay the same."""
    return annotations.take_rows(chosen[annotations.pair])


# ---- joining labels -----------------------------------------------------------------------------------


def join_labels(first: Annotations, second: Annotations) -> Annotations:
    """Combine labels with the same classes; equal ids are the same item or annotator."""
    _, items = first.item_vocabulary.extended(second.item_vocabulary)
    _, annotators = first.annotator_vocabulary.extended(second.annotator_vocabulary)
    both = (first, second)
    item = np.concatenate([items.codes(part.item_vocabulary)[part.item] for part in both])
    annotator_codes = [annotators.codes(part.annotator_vocabulary)[part.annotator] for part in both]
    annotator, label = np.concatenate(annotator_codes), np.concatenate([first.label, second.label])
    order = np.lexsort((label, annotator, item))
    fields: dict[str, Any] = {"item_vocabulary": items, "annotator_vocabulary": annotators, "notes": ()}
    fields |= dict.fromkeys(("item_table", "annotator_table", "gold"))
    return replace(first, item=item[order], annotator=annotator[order], label=label[order], **fields)


def find_rows(rows: Sequence[vocab.Codes], all_rows: Sequence[vocab.Codes]) -> NDArray[np.int64]:
    """Return the index of each label row (codes of item, annotator, label) among all, equal ones in order.

    All rows must be present, as often as they occur.
    """
    n = len(rows[0])
    keys = np.stack([np.concatenate(pair) for pair in zip(rows, all_rows, strict=True)])
    _, key = np.unique(keys, axis=1, return_inverse=True)
    ranked = []
    for part in (key[:n], key[n:]):
        order = np.argsort(part, kind="stable")
        rank = np.empty(len(part), dtype=np.int64)  # number of equal rows before
        rank[order] = np.arange(len(part)) - np.searchsorted(part[order], part[order])
        ranked.append(rank * (key.max(initial=0) + 1) + part)
    order = np.argsort(ranked[1])
    return np.asarray(order[np.searchsorted(ranked[1][order], ranked[0])], np.int64)


def without_repeated(learned: Annotations, new: Annotations, where: str) -> Annotations:
    """Return the new labels that are not among the learned ones, with a warning; all repeated is an error."""
    item = learned.item_vocabulary.codes(new.item_vocabulary)[new.item].astype(np.int64)
    annotator = learned.annotator_vocabulary.codes(new.annotator_vocabulary)[new.annotator]
    label = learned.class_vocabulary.codes(new.class_vocabulary)[new.label]
    N, P = learned.n_annotators, learned.n_classes
    keys = (learned.item.astype(np.int64) * N + learned.annotator) * P + learned.label
    all_known = (item >= 0) & (annotator >= 0) & (label >= 0)
    repeated = all_known & np.isin((item * N + annotator) * P + label, keys)
    if len(repeated) and repeated.all():
        raise DataError(f"{where}: already has all {len(repeated):,} labels; there is nothing to add")
    if new.anonymous or not repeated.any():  # equal class counts are other labels
        return new
    warn(f"skipped {repeated.sum():,} of {len(repeated):,} labels, which {where} already has")
    return new.take_rows(~repeated)


# ---- side tables --------------------------------------------------------------------------------------
# Tables whose first column holds ids. They are joined by id, and rows that are dropped are noted.


def side_table(source: Any, name: str, n_columns: int = 1) -> pa.Table:
    """Convert a data frame, or columns by name, to an Arrow table."""
    try:
        table = source if isinstance(source, pa.Table) else pa.table(source)
    except (TypeError, ValueError, AttributeError, pa.ArrowException):
        table = None
    if table is None or table.num_columns < n_columns:
        rule = "a table whose first column holds the ids" + " and whose second the labels" * (n_columns > 1)
        raise bad_parameter("Annotations", name, rule, type(source).__name__)
    return table


def check_ids(table: pa.Table, role: str, locate: vocab.Locate) -> pa.Array:
    """Return the ids of a side table, which must be unique and not blank."""
    codes, vocabulary = vocab.encode(table.column(0), role, locate=locate)
    if len(vocabulary) < len(codes):
        row = int(np.setdiff1d(np.arange(len(codes)), np.unique(codes, return_index=True)[1])[0])
        name = vocab.quoted(vocabulary[codes[row]])
        raise DataError(f"{locate(row)}: {role} {name} occurs twice; keep one of its rows")
    return vocab.to_arrow(table.column(0), role)


def align_table(table: pa.Table, ids: pa.Array, vocabulary: vocab.Vocabulary) -> tuple[pa.Table, int, int]:
    """Return the table with one row per id of the vocabulary, null where it has none.

    Also return the number of its rows with an unknown id, and of ids without a row.
    """
    rows = vocab.Vocabulary(ids, vocabulary.role).codes(vocabulary)
    aligned = table.take(vocab.arrow_numbers(rows, rows >= 0))
    aligned = aligned.set_column(0, table.column_names[0], vocabulary.arrow)
    return aligned, int((vocabulary.codes(ids) < 0).sum()), int((rows < 0).sum())


def gold_labels(table: pa.Table, locate: vocab.Locate) -> tuple[pa.Array, pa.Array, NDArray[np.intp]]:
    """Return items and labels of a gold table, one row per item, and their row numbers.

    Rows with a blank label are skipped; an item may be repeated only with the same label.
    """
    label = vocab.to_arrow(table.column(1), "label")
    rows = np.flatnonzero(~vocab.blank_ids(label))
    item = vocab.to_arrow(table.column(0), "item").take(vocab.arrow_indices(rows))
    label = label.take(vocab.arrow_indices(rows))
    item_codes, items = vocab.encode(item, "item", locate=lambda row: locate(int(rows[row])))
    label_codes, labels = vocab.encode(label, "label")
    first = np.unique(item_codes, return_index=True)[1]
    first_label = label_codes[first][item_codes]
    differs = np.flatnonzero(first_label != label_codes)
    if len(differs):
        row = int(differs[0])
        name = vocab.quoted(items[item_codes[row]])
        both = " and ".join(vocab.quoted(labels[codes[row]]) for codes in (first_label, label_codes))
        raise DataError(f"{locate(int(rows[row]))}: item {name} has two gold labels, {both}; keep one")
    return items.arrow, labels.arrow.take(vocab.arrow_indices(label_codes[first])), rows[first]


def table_column(table: pa.Table | None, name: str, role: str) -> NDArray[Any]:
    """Return a column of a side table as an array; raise an error with a remedy if there is none."""
    if table is None:
        remedy = f"pass {setting(role + 's')}"
        raise ParameterError(f"no {role} table was given, so there is no column {name!r}; {remedy}")
    if name not in table.column_names:
        columns = ", ".join(table.column_names)
        raise ParameterError(f"the {role} table has no column {name!r}; it has {columns}")
    return np.asarray(table.column(name).combine_chunks().to_numpy(zero_copy_only=False))


def rows_with_values(table: pa.Table | None, values: Mapping[str, Any], role: str) -> NDArray[np.bool_]:
    """Return a mask of the rows of a side table that have, in each named column, one of the given values.

    Values are compared as texts.
    """
    mask = np.ones(0 if table is None else table.num_rows, dtype=bool)
    for name, value in values.items():
        cells = ["" if cell is None else str(cell) for cell in table_column(table, name, role)]
        for text in as_texts(value):
            if text not in cells:
                options = ", ".join(sorted(set(cells) - {""})[:8])
                raise ParameterError(f"no {role} has {name} {vocab.quoted(text)}; it is one of {options}")
        mask &= np.isin(np.array(cells, dtype=object), as_texts(value))
    return mask


def as_texts(value: Any) -> list[str]:
    """Return one value, or the values of a list, as texts."""
    return [str(item) for item in (value if isinstance(value, list | tuple) else [value])]


def unused_class_notes(
    gold: pa.Array, classes: vocab.Vocabulary, used: vocab.Codes, locate: vocab.Locate
) -> tuple[str, ...]:
    """Return a note on gold classes that no annotator used; raise an error for a likely typo.

    ``used`` are the codes of the annotators' classes among all ``classes``; ``locate`` describes a row.
    """
    codes, used_names, words = classes.codes(gold), classes.take(np.sort(used)), []
    for code in np.setdiff1d(np.arange(len(classes)), used).tolist():
        rows = np.flatnonzero(codes == code)
        words.append(f"{vocab.quoted(classes[code])} ({len(rows):,} item{'s' * (len(rows) != 1)})")
        meant = vocab.suggest_spelling(classes[code], used_names)
        if meant is not None:
            raise DataError(
                f"{locate(int(rows[0]))}: gold has {words[-1]}, a class that no annotator used; if it means "
                f"{vocab.quoted(meant)}, correct the gold; otherwise list the classes in {setting('classes')}"
            )
    if not words:
        return ()
    named, n = ", ".join(words[:MAX_CLASSES_IN_NOTE]), MAX_CLASSES_IN_NOTE
    others = ", ".join(map(vocab.quoted, used_names[:n])) + ", …" * (len(used_names) > n)
    return (f"gold has classes that no annotator used: {named}; annotators used {others}",)


def count_notes(*findings: tuple[int, str, str]) -> tuple[str, ...]:
    """Return notes for the findings (number, message, noun) whose number is not 0."""
    notes = []
    for n, message, noun in findings:
        verbs = {"have": "has", "are": "is"} if n == 1 else {"have": "have", "are": "are"}
        if n:
            notes.append(message.format(f"{n:,} {noun}{'s' * (n != 1)}", **verbs))
    return tuple(notes)


def repeats_note(n_dropped: int, duplicates: str) -> tuple[str, ...]:
    """Return a note on label rows that the policy for duplicates dropped."""
    message = f"{{}} {{are}} left out: the {duplicates} label of a pair counts"
    return count_notes((n_dropped, message, "repeat"))
