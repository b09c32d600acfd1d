"""Three ways to lay labels out in a table.

long
    one row per label: item, annotator, label
wide
    one row per item, one column per annotator, blank where there is no label
counts
    one row per item, one column per class; nobody knows who gave which label

Columns that describe the item (text, split, …) go into the item table; in a long table they are those that
are the same in all rows of an item. A row may also hold an item's parallel lists of annotators and labels.
Side tables (items, annotators, gold) and the times of labels come from files of their own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissensus.errors import DataError, bad_parameter, setting
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import LabelType, check_label_type, is_number, recognised
from dissensus.labels.rows import Duplicates, counted
from dissensus.labels.vocabulary import (
    Codes,
    Place,
    Vocabulary,
    as_values,
    blank_ids,
    column,
    encode,
    is_text,
    lookalikes,
    marks,
    places,
    quoted,
    to_arrow,
    without_nulls,
)
from dissensus.tables.columns import (
    ITEM_SIDE,
    TEXT_NAMES,
    find_column,
    has_column,
    is_id,
    is_remark,
    listed,
    only_column_left,
    other_item_columns,
    refuse_one_for_two,
    refuse_several_missing,
)
from dissensus.tables.delimited import DelimitedTable
from dissensus.tables.tables import Table, open_table, unfold

Layout = Literal["long", "wide", "counts"]
COUNT = "count_"  # and the class: a column of counts in a table that dissensus wrote
LAYOUTS: tuple[Layout, ...] = ("long", "wide", "counts")
_SAMPLE = 200  # rows looked at before a table is called wide
_ANNOTATOR_NAME = re.compile(r"(ann|annotator|worker|rater|coder|judge|user|a|r)[ _.-]?\d+", re.IGNORECASE)
_MOST_CLASSES = 50
_FEW_DIFFER = 0.1  # of the items may have their text in two versions
_LONG = 20  # characters of a text, on average
_MOSTLY = 0.9  # of a column's texts are different
_MOST_PARSED = 1 << 26  # bytes of a delimited file in which columns are looked at that no name tells


@dataclass(frozen=True)
class Missing:
    """The words that mean, as a blank does, that there is no label."""

    words: tuple[str, ...] = ()

    @classmethod
    def of(cls, words: Sequence[str] | str) -> Missing:
        """Words as a reader is given them; in one string they stand between commas."""
        listed = words.split(",") if isinstance(words, str) else words
        return cls(tuple(word.strip() for word in listed if word.strip()))

    def among(self, labels: pa.Array) -> NDArray[np.bool_]:
        """Which labels are none."""
        none = _blank(labels)
        if self.words and is_text(labels.type):
            none = none | np.isin(as_values(pc.utf8_trim_whitespace(labels)), self.words)
        return none

    def notes(self, n_rows: int) -> tuple[str, ...]:
        """A word on rows that are skipped."""
        words = f" (blank, or {', '.join(map(quoted, self.words))})" if self.words else ""
        return counted((n_rows, f"{{}} {{have}} no label{words} and {{are}} skipped", "row"))


@dataclass(frozen=True)
class Wanted:
    """What was said of a table; in a wide one ``annotator`` lists columns, in one of counts ``label``."""

    item: str | None = None
    annotator: str | Sequence[str] | None = None
    label: str | Sequence[str] | None = None
    text: str | None = None  # in a table of one row per item: the column of texts
    classes: Sequence[Any] | None = None
    duplicates: Duplicates = "keep"
    missing: Missing = Missing()

    @property
    def named(self) -> bool:
        """Whether any of the three was."""
        return (self.item, self.annotator, self.label) != (None, None, None)


def item_column(table: Table, wanted: Wanted, layout: Layout) -> str:
    """The column of item ids; in a table of one row per item, the first if it has ids or no name tells."""
    first = table.columns[0]
    telling = [first] if is_id(first) else table.columns
    if layout != "long" and wanted.item is None and not has_column(telling, "item"):
        return first
    if layout == "long" and wanted.item is None and not has_column(table.columns, "item"):
        left = only_column_left(table.columns, wanted.annotator, wanted.label)
        if left is not None:
            return left
    roles = ("annotator", "label") if layout == "long" else ()
    later = [role for role in roles if getattr(wanted, role) is None]
    return find_column(table.columns, "item", wanted.item, table.name, later=later)


def guess_layout(table: Table, wanted: Wanted) -> Layout:
    """Long, unless the table is unmistakably wide."""
    if isinstance(wanted.annotator, list | tuple):
        return "wide"
    if isinstance(wanted.label, list | tuple):
        return "counts"
    names = table.columns
    plain = wanted.annotator or wanted.label or has_column(names, "annotator") or has_column(names, "label")
    if not plain and sum(name.startswith(COUNT) for name in names) > 1:  # as ``dissensus import`` writes them
        return "counts"
    if plain or len(names) < 3:
        return "long"
    return "wide" if is_wide(first_rows(table)) else "long"


def first_rows(table: Table) -> list[dict[str, str]]:
    """The first rows as texts, for a look at what they hold."""
    rows = table.head(_SAMPLE).to_pylist()
    return [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows]


def is_wide(first: Sequence[Mapping[str, str]]) -> bool:
    """Whether a table is safely a wide one: an id, then annotators' columns that use one small set of labels.

    Numbers alone do not tell ratings from counts, so such a table is recognised by its column names only.
    """
    columns = list(first[0]) if first else []
    if len(columns) < 3:
        return False
    ids = {row[columns[0]] for row in first}
    if not has_column(columns[:1], "item") and ("" in ids or not len(ids) == len(first) > 1):
        return False  # neither the name says so, nor has each of several rows a value of its own
    annotators = unnamed_columns(first, columns[1:])
    if len(annotators) < 2:
        return False
    values = [{row[name] for row in first if row[name].strip()} for name in annotators]
    distinct = set().union(*values)
    if not distinct or len(distinct) > _MOST_CLASSES:
        return False
    named = all(_ANNOTATOR_NAME.fullmatch(name) for name in annotators)
    n_columns = Counter(value for own in values for value in own)
    shared = all(not own or any(n_columns[value] > 1 for value in own) for own in values)
    return named or (shared and not any(map(is_number, distinct)))


def unnamed_columns(first: Sequence[Mapping[str, str]], names: Sequence[str]) -> list[str]:
    """The columns that neither their names nor their values say to be texts, remarks or times."""
    named = [name for name in names if name.strip().casefold() not in ITEM_SIDE and not is_remark(name)]
    texts = text_columns(first, named)
    return [name for name in named if name not in texts]


def text_columns(first: Sequence[Mapping[str, str]], names: Sequence[str]) -> set[str]:
    """The columns that hold texts: long values, mostly different, that no other column has.

    Not all of them are: then the long values are labels.
    """
    values = {name: [row[name] for row in first if row[name].strip()] for name in names}
    n_columns = Counter(value for own in values.values() for value in set(own))
    own = {name for name in names if all(n_columns[value] == 1 for value in values[name])}
    texts = {name for name in own if _are_texts(values[name])}
    return texts if len(texts) < len(names) else set()


# ---- long ---------------------------------------------------------------------------------------------


def long_columns(table: Table, wanted: Wanted) -> tuple[str, str, str]:
    """The columns of items, annotators and labels in a table of one row per label."""
    item, names = item_column(table, wanted, "long"), table.columns
    later = ["label"] if wanted.label is None else []
    who, what = one_column(wanted.annotator), one_column(wanted.label)
    annotator = find_column(names, "annotator", who, table.name, taken=[item], later=later)
    label = find_column(names, "label", what, table.name, taken=[item, annotator])
    refuse_one_for_two([item, annotator, label], names, table.name)
    return item, annotator, label


def read_long(table: Table, wanted: Wanted) -> Annotations:
    """One row per label; rows whose label is missing are skipped, and counted."""
    refuse_several_missing(table.columns, wanted, table.name)
    names = long_columns(table, wanted)
    if wanted.item is None:
        _ask_where_ids_count_rows(table, names[0])
    order = table.order(names[2])
    wanted = replace(wanted, classes=order if wanted.classes is None else wanted.classes)
    return from_rows(table, wanted, names, table.ids(names), "nominal" if order is None else "ordinal")


def from_rows(
    table: Table,
    wanted: Wanted,
    names: Sequence[str],
    ids: Sequence[Any],
    label_type: LabelType,
    notes: Sequence[str] = (),
) -> Annotations:
    """Labels of the rows that have one.

    ``names`` and ``ids`` are the columns of items, annotators and labels, and what all rows have in them.
    """
    labels, rows = to_arrow(ids[2], "label"), None
    none = wanted.missing.among(labels)
    if none.all():
        raise DataError(f"{table.name}: every label is blank; there is nothing to read")
    if none.any():
        rows = np.flatnonzero(~none)
        ids = [to_arrow(column, "id").take(places(rows)) for column in (*ids[:2], _whole_numbers(labels))]
    annotations = Annotations.from_arrays(
        *ids,
        classes=None if label_type == "multi" else wanted.classes,
        duplicates=wanted.duplicates,
        frame_kind=table.frame_kind,
        place=table.place if rows is None else lambda row: table.place(int(rows[row])),
        notes=(*notes, *wanted.missing.notes(int(none.sum()))),
        label_type=label_type,
    )
    roles = dict(zip(("item", "annotator", "label"), names, strict=True))
    return with_constant_columns(replace(annotations, columns_read=roles), table, wanted.text, ids[0], rows)


def unfolded(table: Table, wanted: Wanted) -> Table:
    """A table with one row per label, where its rows hold parallel lists of annotators and labels."""
    if isinstance(wanted.annotator, list | tuple) or isinstance(wanted.label, list | tuple):
        return table
    given = wanted.annotator if isinstance(wanted.annotator, str) else None
    named = [name for name in table.columns if (name == given if given else has_column([name], "annotator"))]
    if not any(map(table.holds_lists, named)):
        return table
    item, annotator, label = long_columns(table, wanted)
    beside = [name for name in table.columns if name not in (item, annotator, label) and name.strip()]
    sides = {item: table.typed([item]).column(item)} | _readable(table, beside, [])
    return unfold(table, annotator, label, sides)


def with_constant_columns(
    labels: Annotations, table: Table, text: str | None, item: Any, rows: NDArray[np.intp] | None
) -> Annotations:
    """Labels with an item table of the columns that are the same in all rows of an item.

    The column of texts (the one named, else one with a usual name or with long values) is called ``text``.
    Of a large file only columns that are named, or have a usual name, are looked at. ``item`` are the
    item ids of the rows that have a label, ``rows`` their places in the table.
    """
    names, notes = table.columns, list[str]()
    text = None if text is None else find_column(names, "text", text, table.name)
    beside = [name for name in names if name not in labels.columns_read.values() and name.strip()]
    if isinstance(table, DelimitedTable) and len(table.source.raw) > _MOST_PARSED:
        beside = [name for name in beside if name == text or _text_rank(name) < len(TEXT_NAMES)]
    if not beside:
        return labels
    codes, sides = labels.item_vocabulary.codes(item), dict[str, pa.Array]()
    for name, side in _readable(table, beside, notes).items():
        first, n_differ = _first_in_item(codes, side, rows, labels.n_items)
        # A text that a few items have in two versions is their text all the same.
        versions = n_differ <= _FEW_DIFFER * labels.n_items and _text_rank(name) < len(TEXT_NAMES)
        taken = name == text or (text is None and versions)
        if taken and n_differ:
            notes.append(
                f"{quoted(name)} differs within {n_differ:,} of {labels.n_items:,} items, and the first text "
                f"of each is taken; name another column with {setting('text_column')} if that is wrong"
            )
        if first is not None and (taken or not n_differ):
            sides[name] = first
    likely = [name for name in sides if _text_rank(name) < len(TEXT_NAMES)]
    texts = [name for name in sides if is_text(sides[name].type)]
    long = (name for name in texts if _are_texts(sides[name][:_SAMPLE].to_pylist()))
    shown = text or min(likely, key=_text_rank, default=None) or next(long, None)
    if labels.n_items == len(codes):  # no item has two rows: nothing else tells what describes items
        sides = {name: side for name, side in sides.items() if name == shown}
    read = dict(labels.columns_read) | ({"text": shown} if shown else {})
    labels = replace(labels, notes=(*labels.notes, *notes), columns_read=read)
    if not sides:
        return labels
    if "text" not in sides:
        sides = {"text" if name == shown else name: side for name, side in sides.items()}
    key = "item" if "item" not in sides else read["item"]
    return replace(labels, item_table=pa.table({key: labels.item_vocabulary.arrow, **sides}))


def _text_rank(name: str) -> int:
    words = name.strip().casefold().replace("_", " ").split()
    return min((TEXT_NAMES.index(word) for word in words if word in TEXT_NAMES), default=len(TEXT_NAMES))


def _are_texts(values: Sequence[str | None]) -> bool:
    """Whether values are long and mostly different."""
    own = [value for value in values if value and value.strip()]
    return len(own) > 1 and sum(map(len, own)) >= _LONG * len(own) and len(set(own)) >= _MOSTLY * len(own)


def _readable(table: Table, names: Sequence[str], notes: list[str]) -> dict[str, pa.ChunkedArray]:
    """Columns in their own types; one that cannot be read, or holds lists, is left out."""
    try:
        sides = table.typed(names)
    except DataError as error:
        if len(names) > 1:
            return {name: side for one in names for name, side in _readable(table, [one], notes).items()}
        if _text_rank(names[0]) < len(TEXT_NAMES):
            notes.append(f"the column {quoted(names[0])} is left out: {error}")
        return {}
    plain = [name for name in names if not pa.types.is_nested(sides.column(name).type)]
    return {name: sides.column(name) for name in plain}


def _first_in_item(
    codes: Codes, side: pa.ChunkedArray, rows: NDArray[np.intp] | None, n_items: int
) -> tuple[pa.Array | None, int]:
    """Each item's first value that is not blank, and how many items have several different ones."""
    coded = side.dictionary_encode().combine_chunks()
    values = to_arrow(coded.dictionary, "text") if is_text(coded.dictionary.type) else coded.dictionary
    value = without_nulls(coded.indices, len(values))
    value = value if rows is None else value[rows]
    filled = np.flatnonzero(~np.append(_blank(values), True)[value])
    if not len(filled):
        return None, 0
    first = np.full(n_items, -1)
    first[codes[filled[::-1]]] = filled[::-1]
    differs = value[filled] != value[first[codes[filled]]]
    found = values.take(column(value[first].astype(np.int64), first >= 0))
    return found, len(np.unique(codes[filled][differs]))


def _ask_where_ids_count_rows(table: Table, item: str) -> None:
    """An ``id`` that no two rows share may count rows, where a question or sample comes again and again."""
    others = other_item_columns(table.columns, item)
    if not others:
        return
    columns = [to_arrow(column, "item") for column in table.ids([item, *others])]
    n_rows, (n_ids, *n_others) = len(columns[0]), [pc.count_distinct(column).as_py() for column in columns]
    repeated = [name for name, n in zip(others, n_others, strict=True) if n < n_rows]
    if n_ids == n_rows > 1 and repeated:
        raise DataError(
            f"{table.name}: {quoted(item)} is another in every row and {quoted(repeated[0])} is not; "
            f"choose the column that tells items apart with {setting('item')}"
        )


def one_column(name: str | Sequence[str] | None) -> str | None:
    """The name of a role's only column."""
    if name is None or isinstance(name, str):
        return name
    raise DataError(
        f"a long table has one column for each role, got {list(name)}; name one, or say {setting('layout')}"
    )


# ---- wide ---------------------------------------------------------------------------------------------


def read_wide(table: Table, wanted: Wanted) -> Annotations:
    """One column per annotator; blank cells carry no label, nor do words for none."""
    item, missing = item_column(table, wanted, "wide"), wanted.missing
    text, annotators = _value_columns(table, item, wanted.annotator, "annotator", wanted.text)
    ids, *cells = table.ids([item, *annotators])
    labels = [_whole_numbers(to_arrow(column, "label")) for column in cells]
    given = [np.flatnonzero(~missing.among(column)) for column in labels]
    row, annotator = np.concatenate(given), np.repeat(np.arange(len(given)), [len(rows) for rows in given])
    if not len(row):
        raise DataError(f"{table.name}: every cell is blank; there is no label")
    n_blank = sum(len(column) - len(rows) for column, rows in zip(labels, given, strict=True))
    words = f"{{}} {{have}} no label ({', '.join(map(quoted, missing.words))})"
    annotations = Annotations.from_arrays(
        to_arrow(ids, "item").take(places(row)),
        to_arrow([table.native(name) for name in annotators], "annotator").take(places(annotator)),
        _joined([column.take(places(rows)) for column, rows in zip(labels, given, strict=True)], table),
        classes=wanted.classes,
        duplicates=wanted.duplicates,
        frame_kind=table.frame_kind,
        place=lambda r: f"{table.place(int(row[r]))}, column {quoted(annotators[annotator[r]])}",
        notes=counted(
            (len(annotators), "read as a wide table with {}", "annotator column"),
            (sum(not len(rows) for rows in given), "{} {are} blank throughout", "annotator column"),
            (n_blank - sum(int(_blank(column).sum()) for column in labels), words, "cell"),
        ),
    )
    return _with_item_side(annotations, table, item, "annotator", annotators, text)


def _with_item_side(
    labels: Annotations, table: Table, item: str, role: str, values: Sequence[str], text: str | None
) -> Annotations:
    """Labels with an item table of the columns beside the values; a named text is called so."""
    beside = [name for name in table.columns if name not in (item, *values) and name.strip()]
    sides = dict(zip(beside, table.typed(beside).columns, strict=True)) if beside else {}
    if "text" not in beside:
        sides = {"text" if name == text else name: side for name, side in sides.items()}
    items = pa.table({"item" if "item" not in beside else item: table.ids([item])[0], **sides})
    read = {"item": item, role: listed(values)} | ({"text": text} if text else {})
    return replace(labels, columns_read=read).with_tables(items=items, places={"items": table.place})


def _value_columns(
    table: Table, item: str, given: str | Sequence[str] | None, what: str, text: str | None
) -> tuple[str | None, list[str]]:
    """The column of texts, if one is named, and those of annotators or classes.

    They are the ones given, or all that do not describe the item.
    """
    if text is not None:
        text = find_column(table.columns, "text", text, table.name)
    if given is not None:
        wanted = [given] if isinstance(given, str) else list(given)
        return text, [find_column(table.columns, what, name, table.name) for name in wanted]
    beside = [name for name in table.columns if name not in (item, text) and name.strip()]
    found = unnamed_columns(first_rows(table), beside)
    if not found:
        raise DataError(
            f"{table.name}: there is no {what} column beside {quoted(item)}; give one column a {what}"
        )
    return text, found


def _blank(column: pa.Array) -> NDArray[np.bool_]:
    return blank_ids(column) if is_text(column.type) else marks(column.is_null(nan_is_null=True))


def _whole_numbers(column: pa.Array) -> pa.Array:
    """Whole numbers that a blank cell has turned into floats, as whole numbers again."""
    if not pa.types.is_floating(column.type):
        return column
    try:
        return pc.if_else(pc.is_nan(column), None, column).cast(pa.int64())
    except pa.ArrowInvalid:
        return column


def _joined(pieces: Sequence[pa.Array], table: Table) -> pa.Array:
    filled = [piece for piece in pieces if len(piece)]
    kinds = {piece.type for piece in filled}
    if kinds == {pa.int64(), pa.float64()}:
        filled = [piece.cast(pa.float64()) for piece in filled]
    elif len(kinds) > 1:
        raise DataError(
            f"{table.name}: its label columns are of types {', '.join(map(str, kinds))}; use one type"
        )
    return pa.concat_arrays(filled)


# ---- counts -------------------------------------------------------------------------------------------


def read_counts(table: Table, wanted: Wanted) -> Annotations:
    """One column per class, in the order of their names unless ``classes`` gives another; blank is 0."""
    item = item_column(table, wanted, "counts")
    counted = [name for name in table.columns if wanted.label is None and name.startswith(COUNT)]
    text, given = _value_columns(table, item, counted or wanted.label, "class", wanted.text)
    names, prefix = list(encode(given, "label")[1]), COUNT if counted else ""
    if wanted.classes is not None:
        declared = [f"{prefix}{name}" for name in wanted.classes]
        unknown = next((name for name in names if name not in declared), None)
        if unknown is not None:
            raise DataError(
                f"{table.name}: column {quoted(unknown)} is not in the label set; "
                f"add it with {setting('classes')} or name the class columns with {setting('label')}"
            )
        absent = next((name for name in declared if name not in names), None)
        if absent is not None:
            raise DataError(
                f"{table.name}: there is no column for the class {quoted(absent)}; "
                f"it has {listed(table.columns)}"
            )
        names = declared
    ids, *cells = table.ids([item, *names])
    counts = [_numbers(column, table, name) for column, name in zip(cells, names, strict=True)]
    annotations = Annotations.from_counts(
        np.column_stack(counts),
        items=to_arrow(ids, "item"),
        classes=[name.removeprefix(prefix) if prefix else table.native(name) for name in names],
        frame_kind=table.frame_kind,
        place=table.place,
    )
    return _with_item_side(annotations, table, item, "label", names, text)


def _numbers(given: Any, table: Table, name: str) -> NDArray[np.float64]:
    column = to_arrow(given, "count")
    filled = np.where(_blank(column), "0", as_values(column.cast(pa.string())))
    try:
        return filled.astype(np.float64)
    except ValueError:
        row = next(row for row, text in enumerate(filled) if not is_number(text))
        raise DataError(
            f"{table.place(row)}: the count of {quoted(name)} is {quoted(filled[row])}; "
            "give a whole number of at least 0"
        ) from None


# ---- any of the three ---------------------------------------------------------------------------------


def read_table(table: Table, wanted: Wanted, layout: Layout | None) -> Annotations:
    """Labels of a table in any of the three layouts."""
    if len(table.columns) < 2:
        raise DataError(
            f"{table.name}: this is not a table: it has one column only ({listed(table.columns)}); give one "
            "row for each label with the columns item, annotator and label, and commas or tabs between them"
        )
    readers = {"long": read_long, "wide": read_wide, "counts": read_counts}
    return readers[layout or guess_layout(table, wanted)](table, wanted)


# ---- kinds of labels, and what a person should know of them -------------------------------------------


def declared_classes(
    owner: str, classes: Sequence[Any] | str | None, label_type: LabelType | None
) -> tuple[Sequence[Any] | None, LabelType | None]:
    """The label set as a list, and the type of labels: one written as ``low<mid<high`` is ordinal."""
    check_label_type(owner, label_type)
    if not isinstance(classes, str):
        return classes, label_type
    if "<" not in classes:
        raise bad_parameter(owner, "classes", "a list of labels, or an order such as 'low<mid<high'", classes)
    if label_type not in (None, "ordinal"):
        raise bad_parameter(owner, "label_type", "'ordinal', as the classes have an order", label_type)
    return [name.strip() for name in classes.split("<")], "ordinal"


def with_kind(labels: Annotations, label_type: LabelType | None) -> Annotations:
    """The labels as the type named, or as the one that they look like, with a note on that."""
    if label_type is not None:
        return labels.with_label_type(label_type)
    if labels.label_type != "nominal":
        return labels  # the source said so
    kind, notes = recognised(labels)
    return replace(labels, notes=(*labels.notes, *notes)).with_label_type(kind)


def one_only(annotations: Annotations) -> tuple[str, ...]:
    """A word on a crowd of one, and on labels that are all the same."""
    notes = []
    if annotations.n_classes == 1:
        notes.append(f"there is one class only: {quoted(annotations.classes[0])}")
    if annotations.n_annotators == 1 and not annotations.anonymous:
        notes.append(f"there is one annotator only: {quoted(annotations.annotators[0])}")
    return tuple(notes)


def lookalike_notes(vocabulary: Vocabulary) -> list[str]:
    """A word on ids that differ only by white space or case, if there are any."""
    groups, what = lookalikes(vocabulary), vocabulary.what
    if not groups:
        return []
    n, such = sum(map(len, groups)), " and ".join(map(quoted, groups[0][:2]))
    remedy = f"say {setting('ignore_case', True)}" if what == "label" else "correct the data"
    return [
        f"{n:,} {what}s differ from another only by white space or case (such as {such}) and count as "
        f"different {what}s; if they mean the same, {remedy}"
    ]


# ---- side tables --------------------------------------------------------------------------------------


def with_side_tables(
    labels: Annotations,
    items: Any,
    annotators: Any,
    gold: Any,
    names: tuple[str, str],
    new_classes: bool,
    ignore_case: bool = False,
) -> Annotations:
    """The labels with tables read from paths or frames; ``names``: what the source calls its id columns."""
    tables: dict[str, pa.Table] = {}
    places: dict[str, Place] = {}
    for what, given, name in (("item", items, names[0]), ("annotator", annotators, names[1])):
        if given is not None:
            tables[f"{what}s"], places[f"{what}s"] = _side_table(given, what, name)
    if gold is not None:
        tables["gold"], places["gold"] = _gold_table(gold, names[0])
        if ignore_case:
            known = {str(name).strip().casefold(): name for name in labels.classes}
            said = tables["gold"]["label"].to_pylist()
            same = [known.get(str(name).strip().casefold(), name) for name in said]
            tables["gold"] = tables["gold"].set_column(1, "label", [same])
    return labels.with_tables(**tables, new_classes=new_classes, places=places)


def _side_table(source: Any, what: str, usual: str) -> tuple[pa.Table, Place]:
    """A table whose first column holds the ids; the others as they are."""
    table = open_table(source, name=f"the {what} table")
    key = find_column(table.columns, what, usual if usual in table.columns else None, table.name)
    sides, ids = table.typed().drop_columns([key]), table.ids([key])[0]
    return sides.add_column(0, key if what in sides.column_names else what, ids), table.place


def _gold_table(source: Any, usual: str) -> tuple[pa.Table, Place]:
    """Item and gold label."""
    table = open_table(source, name="the gold table")
    names = table.columns
    key = find_column(names, "item", usual if usual in names else None, table.name)
    others = [name for name in names if name != key and name.strip()]
    label = others[0] if len(others) == 1 else find_column(names, "gold", None, table.name, taken=[key])
    item, gold = table.ids([key, label])
    return pa.table({"item": item, "label": gold}), table.place


# ---- when labels were given ---------------------------------------------------------------------------

MILLISECONDS = 1e11  # a larger number counts milliseconds, not seconds, since 1970


def read_times(path: Path, column: str, annotations: Annotations) -> NDArray[np.float64]:
    """(labels,): seconds since 1970 of each label, in the annotations' order, NaN where none is written.

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
    ids = zip(annotations.vocabularies, table.ids(names), strict=True)
    when = np.array([seconds(value) for value in table.typed([column])[column].to_pylist()])
    keys = []  # of the file's rows, and of the labels: one number for item, annotator and class, or −1
    for columns in ([vocabulary.codes(column) for vocabulary, column in ids], annotations.columns):
        item, annotator, label = (codes.astype(np.int64) for codes in columns)
        key = (item * annotations.n_annotators + annotator) * annotations.n_classes + label
        keys.append(np.where((item >= 0) & (annotator >= 0) & (label >= 0), key, -1))
    there, here = (np.argsort(key, kind="stable") for key in keys)
    rows, labels = keys[0][there], keys[1][here]
    # the k-th row with a key is the k-th label with it
    place = np.searchsorted(rows, labels) + np.arange(len(labels)) - np.searchsorted(labels, labels)
    place = np.minimum(place, len(there) - 1)
    found = np.full(annotations.n_labels, np.nan)
    same = rows[place] == labels
    found[here[same]] = when[there][place[same]]
    return found


def seconds(value: Any) -> float:
    """A time as seconds since 1970: a number (of seconds or milliseconds) or ISO 8601; NaN for a blank."""
    if value is None or value == "":
        return float("nan")
    try:
        number = float(value)
        return number / 1000 if abs(number) > MILLISECONDS else number
    except (TypeError, ValueError):
        pass
    try:
        when = value if isinstance(value, datetime) else datetime.fromisoformat(str(value).strip())
    except ValueError as error:
        raise DataError(
            f"{value!r} is no time; write seconds since 1970 or ISO 8601, such as 2026-05-04T10:15:00"
        ) from error
    return when.replace(tzinfo=when.tzinfo or UTC).timestamp()
