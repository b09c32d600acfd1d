"""What is known beside the labels: tables of items and annotators, gold labels.

Each is a table whose first column holds the ids. They are joined by id, and nothing in them is lost
without a note.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissensus.errors import DataError, ParameterError, bad_parameter
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

MOST_NAMED = 5  # classes that a note lists


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


def gold_codes(item: pa.Array, label: pa.Array, items: Vocabulary, classes: Vocabulary) -> tuple[Codes, int]:
    """(items,) class code of each item's gold label, −1 where it has none; and how many items are unknown."""
    codes = items.codes(item)
    known = codes >= 0
    gold = np.full(len(items), -1, dtype=np.int32)
    gold[codes[known]] = classes.codes(label)[known]
    return gold, int((~known).sum())


def column_of(table: pa.Table | None, name: str, what: str) -> NDArray[Any]:
    """A column of a side table as an array, or what to do to have one."""
    if table is None:
        raise ParameterError(f"no {what} table was given, so there is no column {name!r}; pass {what}s=")
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


def unused_notes(
    items: pa.Array, gold: pa.Array, classes: Vocabulary, used: Codes, place: Place
) -> tuple[str, ...]:
    """A note on gold classes that no annotator used; one that looks like a typing error is refused.

    ``used`` are the codes of the annotators' classes among all ``classes``; ``place`` says where a row is.
    """
    codes = classes.codes(gold)
    counts, known = np.bincount(codes, minlength=len(classes)), classes.take(np.sort(used))
    unused = np.setdiff1d(np.arange(len(classes)), used).tolist()
    for code in unused:
        meant = one_slip_away(classes[code], known)
        if meant is not None:
            row = int(np.flatnonzero(codes == code)[0])
            more = counted((int(counts[code]) - 1, " (and for {} more)", "item"))
            raise DataError(
                f"{place(row)}: gold says {quoted(classes[code])} for item {quoted(items[row].as_py())}"
                f"{''.join(more)}, a class that no annotator used; if it means {quoted(meant)}, correct the "
                "gold labels, otherwise list all classes in classes="
            )
    if not unused:
        return ()
    named = ", ".join(f"{quoted(classes[code])} ({counts[code]:,})" for code in unused[:MOST_NAMED])
    others = ", ".join(map(quoted, known[:MOST_NAMED])) + ", …" * (len(known) > MOST_NAMED)
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
