"""Annotations from tables in one of three layouts.

long
    one row per label: item, annotator, label
wide
    one row per item, one column per annotator, blank if there is no label
counts
    one row per item, one column per class; annotators are unknown

Columns that describe the item (text, split, …) go into the item table; in a long table they are those that
are constant within an item. A row may also hold parallel lists of annotators and labels. Side tables (items,
annotators, gold) are read from separate files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissensus.errors import DataError, bad_parameter, setting
from dissensus.labels import vocabulary as vocab
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import TEXT_NAMES
from dissensus.labels.kinds import SEPARATORS, LabelType, check_label_type, infer_label_type, is_number
from dissensus.labels.rows import Duplicates, count_notes
from dissensus.tables.column_values import MAX_DISTINCT, MAX_DISTINCT_SHARE, check_roles, without_contradicted
from dissensus.tables.columns import (
    called,
    describes_item,
    find_column,
    has_column,
    is_id,
    listed,
    only_column_left,
    refuse_several_missing,
)
from dissensus.tables.decisions import is_decisions, read_decisions
from dissensus.tables.delimited import DelimitedTable
from dissensus.tables.tables import Table, open_table, unfold

Layout = Literal["long", "wide", "counts"]
COUNT_PREFIX = "count_"  # of the class name, in a table of counts that dissensus wrote
LAYOUTS: tuple[Layout, ...] = ("long", "wide", "counts")
_ROWS_PROBED = 200  # to recognise a wide table
_ANNOTATOR_NAME = re.compile(r"(ann|annotator|worker|rater|coder|judge|user|a|r)[ _.-]?\d+", re.IGNORECASE)
_MIN_SHARED = 0.75  # share of an annotator's labels that other columns have too
_MAX_WIDE_CLASSES = 50  # distinct labels in a table that is recognised as wide
_MIN_ITEMS_OF_TOTAL = 10  # in a table whose first or last row may be a header or a total
_MAX_TEXT_VARIANTS = 0.1  # share of items with two versions of their text
_MIN_TEXT_LENGTH = 20  # characters on average
_MIN_DISTINCT_TEXTS = 0.9  # share of the values of a text column
_MAX_SEARCHED_BYTES = 1 << 26  # in larger delimited files, item columns are found by name only


@dataclass(frozen=True)
class MissingWords:
    """Words that mean, as a blank cell does, that there is no label."""

    words: tuple[str, ...] = ()

    @classmethod
    def parse(cls, words: Sequence[str] | str) -> MissingWords:
        """Take a list of words, or one string of words separated by commas."""
        parts = words.split(",") if isinstance(words, str) else words
        return cls(tuple(word.strip() for word in parts if word.strip()))

    def mask(self, labels: pa.Array) -> NDArray[np.bool_]:
        """Return True for each label that is blank or one of the words."""
        mask = _blank(labels)
        if self.words and vocab.is_string_type(labels.type):
            mask = mask | np.isin(vocab.numpy_values(pc.utf8_trim_whitespace(labels)), self.words)
        return mask

    def notes(self, n_rows: int) -> tuple[str, ...]:
        """Return a note on the number of rows skipped, if any."""
        words = f" (blank, or {', '.join(map(vocab.quoted, self.words))})" if self.words else ""
        return count_notes((n_rows, f"{{}} {{have}} no label{words} and {{are}} skipped", "row"))


@dataclass(frozen=True)
class ReadOptions:
    """The user's settings for a table; ``annotator`` lists columns of a wide table, ``label`` of counts."""

    item: str | None = None
    annotator: str | Sequence[str] | None = None
    label: str | Sequence[str] | None = None
    text: str | None = None  # column of texts, in a table of one row per item
    classes: Sequence[Any] | None = None
    duplicates: Duplicates = "keep"
    missing: MissingWords = MissingWords()

    @property
    def names_columns(self) -> bool:
        """True if the user named the column of items, annotators or labels."""
        return (self.item, self.annotator, self.label) != (None, None, None)


def item_column(table: Table, options: ReadOptions, layout: Layout) -> str:
    """Return the column of item ids; without a usual name, in a table of one row per item, the first."""
    first = table.columns[0]
    candidates = [first] if is_id(first) else table.columns
    if layout != "long" and options.item is None and not has_column(candidates, "item"):
        return first
    if layout == "long" and options.item is None and not has_column(table.columns, "item"):
        rest = only_column_left(table.columns, options.annotator, options.label)
        if rest is not None:
            return rest
    return find_column(table.columns, "item", options.item, table.name)


def guess_layout(table: Table, options: ReadOptions) -> Layout:
    """Return "long" unless the table is unmistakably wide, or counts that dissensus wrote."""
    if isinstance(options.annotator, list | tuple):
        return "wide"
    if isinstance(options.label, list | tuple):
        return "counts"
    names = table.columns
    if options.annotator or options.label or has_column(names, "annotator") or has_column(names, "label"):
        return "long"
    if sum(name.startswith(COUNT_PREFIX) for name in names) > 1:
        return "counts"
    columns = wide_columns(first_rows(table)) if len(names) > 2 else []
    if not columns:
        return "long"
    # numbered names and e-mail addresses are surely those of annotators
    if not all(_ANNOTATOR_NAME.fullmatch(name.strip()) or "@" in name for name in columns):
        problem = f"the columns {listed(columns)} may be annotators, or questions about the item"
        wide, question = setting("layout", "wide"), setting("label", columns[0])
        raise DataError(f"{table.name}: {problem}; use {wide} for annotators, or {question} for one question")
    return "wide"


def first_rows(table: Table) -> list[dict[str, str]]:
    """Return the first rows as strings."""
    rows = table.head(_ROWS_PROBED).to_pylist()
    return [{name: "" if value is None else str(value) for name, value in row.items()} for row in rows]


def wide_columns(first: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the annotators' columns of a table that is surely wide: an id, then one small set of labels.

    Ratings and counts look alike, so a table of numbers is recognised only by names such as ``rater_1``.
    """
    columns = list(first[0]) if first else []
    if len(columns) < 3:
        return []
    ids = {row[columns[0]] for row in first}
    if not has_column(columns[:1], "item") and ("" in ids or not len(ids) == len(first) > 1):
        return []  # the name does not say so, and the values are not distinct
    annotators = sharing_columns(first, unnamed_columns(first, columns[1:]))
    distinct = {row[name] for name in annotators for row in first if row[name].strip()}
    if len(annotators) < 2 or not 0 < len(distinct) <= _MAX_WIDE_CLASSES:
        return []
    named = all(_ANNOTATOR_NAME.fullmatch(name) for name in annotators)
    shared = all(_shared_values(first, annotators).values())
    return annotators if named or (shared and not any(map(is_number, distinct))) else []


def unnamed_columns(
    first: Sequence[Mapping[str, str]], names: Sequence[str], role: str = "annotator"
) -> list[str]:
    """Return the columns that, by name and values, do not hold texts, remarks, times or gold labels."""
    named = [name for name in names if not describes_item(name, role)]
    # A text is long, mostly distinct and occurs in no other column. If all columns are like that, they are
    # labels.
    shared = _shared_values(first, named)
    others = [name for name in named if shared[name] or not _are_texts([row[name] for row in first])]
    return others or named


def sharing_columns(first: Sequence[Mapping[str, str]], names: Sequence[str]) -> list[str]:
    """Return the columns without those whose values occur in no other, if those of two columns do."""
    shared = _shared_values(first, names)
    alike = sum(share > _MIN_SHARED for share in shared.values()) > 1
    return [name for name in names if not alike or shared[name] >= 1 - _MIN_SHARED]


def _shared_values(first: Sequence[Mapping[str, str]], names: Sequence[str]) -> dict[str, float]:
    """Return the share of each column's cells whose value occurs in another column; 1 if it is blank."""
    cells = {name: [row[name].strip() for row in first if row[name].strip()] for name in names}
    n_columns = Counter(value for column in cells.values() for value in set(column))
    is_shared = {name: [n_columns[value] > 1 for value in column] for name, column in cells.items()}
    return {name: float(np.mean(values or [True])) for name, values in is_shared.items()}


# ---- long ---------------------------------------------------------------------------------------------


def long_columns(table: Table, options: ReadOptions, notes: list[str]) -> tuple[str, str, str]:
    """Return the columns of items, annotators and labels in a long table; ``notes`` are added to."""
    names, annotator, label = table.columns, single_column(options.annotator), single_column(options.label)
    refuse_several_missing(names, options, table.name)
    item = item_column(table, options, "long")
    annotator = _role_column(table, "annotator", annotator, [item], notes)
    label = _role_column(table, "label", label, [item, annotator], notes)
    if len({item, annotator, label}) < 3:
        problem = f"item, annotator and label must be three columns, got {item}, {annotator}, {label}"
        raise DataError(f"{table.name}: {problem}; it has {listed(names)}")
    return item, annotator, label


def _role_column(table: Table, role: str, name: str | None, taken: Sequence[str], notes: list[str]) -> str:
    """Return the column of annotators or labels; of several with usual names, one that its values allow."""
    free = [column for column in table.columns if column not in taken]
    candidates = called(free, role)
    if name is not None or len(candidates) < 2:
        return find_column(table.columns, role, name, table.name, taken=taken)
    allowed = without_contradicted(table, role, candidates, taken[0])
    passed = [column for column in candidates if column not in allowed]
    chosen = find_column(table.columns, role, None, table.name, taken=[*taken, *passed])
    if passed:
        reason = "the same in all rows of an item, or different in most rows"
        remedy = f"if that is wrong, name it with {setting(role, passed[0])}"
        notes.append(f"read {role} from {vocab.quoted(chosen)}, as {listed(passed)} is {reason}; {remedy}")
    also = [column for column in allowed if column != chosen] if role == "label" else []
    if also:
        notes.append(f"{listed(also)} may hold labels too; to read them, use {setting(role, also[0])}")
    return chosen


def read_long(table: Table, options: ReadOptions) -> Annotations:
    """Read a table of one row per label; rows without a label are skipped and counted."""
    notes = list[str]()
    names = long_columns(table, options, notes)
    _refuse_joined_cells(table, names)
    others = [name for name in table.columns if name not in names and name.strip()]
    is_large = isinstance(table, DelimitedTable) and len(table.source.raw) > _MAX_SEARCHED_BYTES
    if is_large:
        others = [name for name in others if has_column([name], "item") or _text_rank(name) < len(TEXT_NAMES)]
    if others or not is_large:
        named = [name for name in (options.item, options.annotator, options.label) if isinstance(name, str)]
        notes += check_roles(table, names, named, lambda: _readable_columns(table, others, []))
    order = table.order(names[2])
    options = replace(options, classes=order if options.classes is None else options.classes)
    kind: LabelType = "nominal" if order is None else "ordinal"
    return from_rows(table, options, names, table.ids(names), kind, notes)


def from_rows(
    table: Table,
    options: ReadOptions,
    names: Sequence[str],
    ids: Sequence[Any],
    label_type: LabelType,
    notes: Sequence[str] = (),
) -> Annotations:
    """Return the labels of the rows that have one.

    ``names`` and ``ids`` are the names and values of the item, annotator and label columns.
    """
    labels, rows = vocab.to_arrow(ids[2], "label"), None
    _refuse_second_header(table, names, ids)
    missing = options.missing.mask(labels)
    if missing.all():
        raise DataError(f"{table.name}: every label is blank; there is nothing to read")
    if missing.any():
        rows = np.flatnonzero(~missing)
        columns = *ids[:2], _as_integers(labels)
        ids = [vocab.to_arrow(column, "id").take(vocab.arrow_indices(rows)) for column in columns]
    annotations = Annotations.from_arrays(
        *ids,
        classes=None if label_type == "multi" else options.classes,
        duplicates=options.duplicates,
        frame_kind=table.frame_kind,
        locate=table.locate if rows is None else lambda row: table.locate(int(rows[row])),
        notes=(*notes, *options.missing.notes(int(missing.sum()))),
        label_type=label_type,
    )
    roles = dict(zip(("item", "annotator", "label"), names, strict=True))
    notes = [*annotations.notes, *_odd_row_notes(annotations, vocab.to_arrow(ids[0], "item"))]
    P, n = annotations.n_classes, annotations.n_labels
    if max(MAX_DISTINCT, MAX_DISTINCT_SHARE * n) < P and annotations.class_values is None:
        remedy = f"if these are texts, name another {setting('label')}"
        notes.append(f"{n:,} labels have {P:,} different values; {remedy}")
    annotations = replace(annotations, columns_read=roles, notes=tuple(notes))
    return with_constant_columns(annotations, table, options.text, ids[0], rows)


def unfolded(table: Table, options: ReadOptions) -> Table:
    """Return a table of one row per label if rows hold parallel lists of annotators and labels."""
    if isinstance(options.annotator, list | tuple) or isinstance(options.label, list | tuple):
        return table
    names = called(table.columns, "annotator")
    names = [name for name in table.columns if name == options.annotator] if options.annotator else names
    if not any(map(table.holds_lists, names)):
        return table
    item, annotator, label = long_columns(table, options, [])
    if table.holds_lists(item):
        problem = f"{vocab.quoted(item)} holds lists, as if the table were written by column"
        raise DataError(f"{table.name}: {problem}; write one record per row")
    others = [name for name in table.columns if name not in (item, annotator, label) and name.strip()]
    columns = {item: table.typed([item]).column(item)} | _readable_columns(table, others, [])
    return unfold(table, annotator, label, columns)


def with_constant_columns(
    labels: Annotations, table: Table, text: str | None, item: Any, rows: NDArray[np.intp] | None
) -> Annotations:
    """Add an item table of the columns that are constant within each item.

    The column of texts (``text``, or one with a usual name or long values) is renamed ``text``. In a large
    file only this column is read, found by its name. ``item`` has the item ids of the rows with a label, and
    ``rows`` their positions in the table.
    """
    notes = list[str]()
    text = None if text is None else find_column(table.columns, "text", text, table.name)
    names = [name for name in table.columns if name not in labels.columns_read.values() and name.strip()]
    if isinstance(table, DelimitedTable) and len(table.source.raw) > _MAX_SEARCHED_BYTES:
        names = [name for name in names if name == text or _text_rank(name) < len(TEXT_NAMES)]
    if not names:
        return labels
    codes, columns = labels.item_vocabulary.codes(item), dict[str, pa.Array]()
    for name, column in _readable_columns(table, names, notes).items():
        values, n_differ = _first_in_item(codes, column, rows, labels.n_items)
        # A text of which a few items have two versions still is the text of the items.
        has_variants = n_differ <= _MAX_TEXT_VARIANTS * labels.n_items and _text_rank(name) < len(TEXT_NAMES)
        is_text = name == text or (text is None and has_variants)
        if is_text and n_differ:
            finding = f"{vocab.quoted(name)} differs within {n_differ:,} of {labels.n_items:,} items"
            remedy = f"name another column with {setting('text_column')} if that is wrong"
            notes.append(f"{finding}, and the first text of each is used; {remedy}")
        if values is not None and (is_text or not n_differ):
            columns[name] = values
    usual = [name for name in columns if _text_rank(name) < len(TEXT_NAMES)]
    strings = [name for name in columns if vocab.is_string_type(columns[name].type)]
    long = (name for name in strings if _are_texts(columns[name][:_ROWS_PROBED].to_pylist()))
    text = text or min(usual, key=_text_rank, default=None) or next(long, None)
    if labels.n_items == len(codes):  # one row per item, so every column is constant: keep the text only
        columns = {name: column for name, column in columns.items() if name == text}
    read = dict(labels.columns_read) | ({"text": text} if text else {})
    labels = replace(labels, notes=(*labels.notes, *notes), columns_read=read)
    if not columns:
        return labels
    if "text" not in columns:
        columns = {"text" if name == text else name: column for name, column in columns.items()}
    key = "item" if "item" not in columns else read["item"]
    return replace(labels, item_table=pa.table({key: labels.item_vocabulary.arrow, **columns}))


def _text_rank(name: str) -> int:
    """Return the rank of a name among the usual names of texts; their number if it is not one of them."""
    words = name.strip().casefold().replace("_", " ").split()
    return min((TEXT_NAMES.index(word) for word in words if word in TEXT_NAMES), default=len(TEXT_NAMES))


def _are_texts(values: Sequence[str | None]) -> bool:
    """Return True if values are long and mostly distinct."""
    texts = [value for value in values if value and value.strip()]
    if len(texts) < 2 or sum(map(len, texts)) < _MIN_TEXT_LENGTH * len(texts):
        return False
    return len(set(texts)) >= _MIN_DISTINCT_TEXTS * len(texts)


def _readable_columns(table: Table, names: Sequence[str], notes: list[str]) -> dict[str, pa.ChunkedArray]:
    """Return columns in their types, except those that cannot be read or hold lists."""
    if not names:
        return {}
    try:
        data = table.typed(names)
    except DataError as error:
        if len(names) > 1:
            parts = [_readable_columns(table, [name], notes) for name in names]
            return {name: column for part in parts for name, column in part.items()}
        if _text_rank(names[0]) < len(TEXT_NAMES):
            notes.append(f"the column {vocab.quoted(names[0])} is left out: {error}")
        return {}
    return {name: data.column(name) for name in names if not pa.types.is_nested(data.column(name).type)}


def _first_in_item(
    codes: vocab.Codes, column: pa.ChunkedArray, rows: NDArray[np.intp] | None, n_items: int
) -> tuple[pa.Array | None, int]:
    """Return each item's first value that is not blank, and the number of items with different values."""
    encoded = column.dictionary_encode().combine_chunks()
    values = encoded.dictionary
    values = vocab.to_arrow(values, "text") if vocab.is_string_type(values.type) else values
    value = vocab.numpy_filled(encoded.indices, len(values))
    value = value if rows is None else value[rows]
    filled = np.flatnonzero(~np.append(_blank(values), True)[value])
    if not len(filled):
        return None, 0
    first = np.full(n_items, -1)
    first[codes[filled[::-1]]] = filled[::-1]
    differs = value[filled] != value[first[codes[filled]]]
    first_values = values.take(vocab.arrow_numbers(value[first].astype(np.int64), first >= 0))
    return first_values, len(np.unique(codes[filled][differs]))


def _refuse_joined_cells(table: Table, names: Sequence[str]) -> None:
    """Raise an error if each row holds the labels of several annotators, or an object with the label."""
    head = table.head(_ROWS_PROBED, names).to_pylist()
    rows = [[cell if isinstance(cell, str) else "" for cell in row.values()] for row in head]
    if all(re.fullmatch(r"\s*\{.*\}\s*", row[2], re.DOTALL) for row in rows):
        problem = f"the cells of {vocab.quoted(names[2])} are objects such as {vocab.quoted(rows[0][2])}"
        raise DataError(f"{table.name}: {problem}; give their values in columns of their own")
    for mark in SEPARATORS:
        if all(row[1].count(mark) == row[2].count(mark) > 0 for row in rows):
            problem = f"each row holds several annotators and labels, separated by {mark!r}"
            raise DataError(f"{table.name}: {problem}; give one row per label")


def _refuse_second_header(table: Table, names: Sequence[str], columns: Sequence[Any]) -> None:
    """Raise an error if a row repeats the header, as where two files were joined."""
    cells = [vocab.to_arrow(column, "id").cast(pa.string()) for column in columns]
    # with a Python value as an operand, pyarrow would import pandas
    has_name = [
        pc.and_kleene(pc.is_valid(column), pc.match_substring(column, name))
        for name, column in zip(names, cells, strict=True)
    ]
    rows = np.flatnonzero(np.logical_and.reduce([vocab.numpy_bools(column) for column in has_name]))
    rows = rows[[[column[row].as_py() for column in cells] == list(names) for row in rows.tolist()]]
    if len(rows):
        raise DataError(f"{table.locate(int(rows[0]))}: the row repeats the header; remove it")


def _odd_row_notes(labels: Annotations, item: pa.Array) -> tuple[str, ...]:
    """Return a note if labels occur in the first or last row only, as in a second header or a total."""
    P = labels.n_classes
    pairs = np.sort(labels.item.astype(np.int64) * P + labels.label)
    n_items = np.bincount(pairs[np.append(True, np.diff(pairs) > 0)] % P, minlength=P)  # of each class
    n_usual = np.bincount(labels.item, (n_items > 1)[labels.label], labels.n_items)
    is_odd = (n_usual == 0) & (np.bincount(labels.item, minlength=labels.n_items) > 0)
    odd = labels.items[is_odd].tolist()
    ends = {item[row].as_py() for row in (0, min(1, len(item) - 1), -1)}
    if labels.n_items < _MIN_ITEMS_OF_TOTAL or not 0 < len(odd) <= 2 or not ends.issuperset(odd):
        return ()
    remedy = "if its row is a header or a total, remove it"
    return (f"the labels of item {vocab.quoted(odd[0])} occur nowhere else; {remedy}",)


def single_column(name: str | Sequence[str] | None) -> str | None:
    """Return the name of the only column of a role; raise an error for a list."""
    if name is None or isinstance(name, str):
        return name
    remedy = f"name one, or use {setting('layout')}"
    raise DataError(f"a long table has one column per role, got {list(name)}; {remedy}")


# ---- wide ---------------------------------------------------------------------------------------------


def read_wide(table: Table, options: ReadOptions) -> Annotations:
    """Read a table of one column per annotator; blank cells and missing words are no labels."""
    item, missing = item_column(table, options, "wide"), options.missing
    text, columns = _value_columns(table, item, options.annotator, "annotator", options.text)
    annotators = columns if options.annotator is not None else sharing_columns(first_rows(table), columns)
    left_out = [name for name in columns if name not in annotators]
    finding = f"read annotators from {vocab.quoted(listed(annotators))}, and left out {listed(left_out)}"
    remedy = f"if that is wrong, name all with {setting('annotator')}"
    notes = [f"{finding}, whose values occur in no other column; {remedy}"] if left_out else []
    ids, *cells = table.ids([item, *annotators])
    _refuse_second_header(table, annotators, cells)
    labels = [_as_integers(vocab.to_arrow(column, "label")) for column in cells]
    filled = [np.flatnonzero(~missing.mask(column)) for column in labels]
    row, annotator = np.concatenate(filled), np.repeat(np.arange(len(filled)), [len(rows) for rows in filled])
    if not len(row):
        raise DataError(f"{table.name}: every cell is blank; there is no label")
    n_missing = sum(map(len, labels)) - len(row)
    n_blank = sum(int(_blank(column).sum()) for column in labels)
    words = f"{{}} {{have}} no label ({', '.join(map(vocab.quoted, missing.words))})"
    parts = [column.take(vocab.arrow_indices(rows)) for column, rows in zip(labels, filled, strict=True)]
    people = vocab.to_arrow([table.native(name) for name in annotators], "annotator")
    annotations = Annotations.from_arrays(
        vocab.to_arrow(ids, "item").take(vocab.arrow_indices(row)),
        people.take(vocab.arrow_indices(annotator)),
        _concatenate(parts, table),
        classes=options.classes,
        duplicates=options.duplicates,
        frame_kind=table.frame_kind,
        locate=lambda r: f"{table.locate(int(row[r]))}, column {vocab.quoted(annotators[annotator[r]])}",
        notes=count_notes(
            (len(annotators), "read as a wide table with {}", "annotator column"),
            (sum(not len(rows) for rows in filled), "{} {are} blank throughout", "annotator column"),
            (n_missing - n_blank, words, "cell"),
        ),
    )
    notes += [*annotations.notes, *_odd_row_notes(annotations, vocab.to_arrow(ids, "item"))]
    annotations = replace(annotations, notes=tuple(notes))
    read = _with_item_columns(annotations, table, item, "annotator", columns, text)
    return replace(read, columns_read={**read.columns_read, "annotator": listed(annotators)})


def _with_item_columns(
    labels: Annotations, table: Table, item: str, role: str, values: Sequence[str], text: str | None
) -> Annotations:
    """Add an item table of the columns that are not values; a named text column is renamed ``text``."""
    names = [name for name in table.columns if name not in (item, *values) and name.strip()]
    columns = dict(zip(names, table.typed(names).columns, strict=True)) if names else {}
    if "text" not in names:
        columns = {"text" if name == text else name: column for name, column in columns.items()}
    items = pa.table({"item" if "item" not in names else item: table.ids([item])[0], **columns})
    read = {"item": item, role: listed(values)} | ({"text": text} if text else {})
    return replace(labels, columns_read=read).with_tables(items=items, locators={"items": table.locate})


def _value_columns(
    table: Table, item: str, chosen: str | Sequence[str] | None, role: str, text: str | None
) -> tuple[str | None, list[str]]:
    """Return the column of texts, if one is named, and those of annotators or classes.

    The latter are the ``chosen`` ones, or all that do not describe the item.
    """
    if text is not None:
        text = find_column(table.columns, "text", text, table.name)
    if chosen is not None:
        names = [chosen] if isinstance(chosen, str) else chosen
        return text, [find_column(table.columns, role, name, table.name) for name in names]
    others = [name for name in table.columns if name not in (item, text) and name.strip()]
    columns = unnamed_columns(first_rows(table), others, role)
    if not columns:
        remedy = f"give one column per {role}"
        raise DataError(f"{table.name}: there is no {role} column besides {vocab.quoted(item)}; {remedy}")
    return text, columns


def _blank(column: pa.Array) -> NDArray[np.bool_]:
    return (
        vocab.blank_ids(column)
        if vocab.is_string_type(column.type)
        else vocab.numpy_bools(column.is_null(nan_is_null=True))
    )


def _as_integers(column: pa.Array) -> pa.Array:
    """Return floats as integers if all of them are whole, as when a blank cell made them floats."""
    if not pa.types.is_floating(column.type):
        return column
    try:
        return pc.if_else(pc.is_nan(column), None, column).cast(pa.int64())
    except pa.ArrowInvalid:
        return column


def _concatenate(columns: Sequence[pa.Array], table: Table) -> pa.Array:
    filled = [column for column in columns if len(column)]
    types = {column.type for column in filled}
    if types == {pa.int64(), pa.float64()}:
        filled = [column.cast(pa.float64()) for column in filled]
    elif len(types) > 1:
        problem = f"its label columns are of types {', '.join(map(str, types))}"
        raise DataError(f"{table.name}: {problem}; use one type")
    return pa.concat_arrays(filled)


# ---- counts -------------------------------------------------------------------------------------------


def read_counts(table: Table, options: ReadOptions) -> Annotations:
    """Read a table of one column per class, ordered by ``classes`` or by name; blank is 0."""
    item = item_column(table, options, "counts")
    prefixed = [name for name in table.columns if options.label is None and name.startswith(COUNT_PREFIX)]
    text, columns = _value_columns(table, item, prefixed or options.label, "class", options.text)
    names, prefix = list(vocab.encode(columns, "label")[1]), COUNT_PREFIX if prefixed else ""
    if options.classes is not None:
        declared = [f"{prefix}{name}" for name in options.classes]
        unknown = [name for name in names if name not in declared]
        absent = [name for name in declared if name not in names]
        if unknown:
            problem = f"column {vocab.quoted(unknown[0])} is not in the label set"
            remedy = f"add it with {setting('classes')} or name the class columns with {setting('label')}"
            raise DataError(f"{table.name}: {problem}; {remedy}")
        if absent:
            problem = f"there is no column for the class {vocab.quoted(absent[0])}"
            raise DataError(f"{table.name}: {problem}; it has {listed(table.columns)}")
        names = declared
    ids, *cells = table.ids([item, *names])
    parsed = [_parse_counts(column, table, name) for column, name in zip(cells, names, strict=True)]
    counts = np.column_stack(parsed)
    _refuse_totals(counts, names, table)
    annotations = Annotations.from_counts(
        counts,
        items=vocab.to_arrow(ids, "item"),
        classes=[name.removeprefix(prefix) if prefix else table.native(name) for name in names],
        frame_kind=table.frame_kind,
        locate=table.locate,
    )
    if len(counts) > 2 and (counts.sum(axis=1) == 100).all():
        percent = "the counts of every item add up to 100; if they are percentages, give numbers of labels"
        annotations = replace(annotations, notes=(*annotations.notes, percent))
    return _with_item_columns(annotations, table, item, "label", names, text)


def _refuse_totals(counts: NDArray[np.float64], names: Sequence[str], table: Table) -> None:
    """Raise an error if a column is the sum of the others, or the last row that of the rows above."""
    is_total = (2 * counts == counts.sum(axis=1, keepdims=True)).all(axis=0)
    if min(counts.shape) > 2 and is_total.any():
        problem = f"{vocab.quoted(names[is_total.argmax()])} is the sum of the other classes"
        raise DataError(f"{table.name}: {problem}; list the classes with {setting('label')}")
    if len(counts) > 2 and (2 * counts[-1] == counts.sum(axis=0)).all():
        raise DataError(f"{table.locate(len(counts) - 1)}: adds up the rows above; remove it")


def _parse_counts(cells: Any, table: Table, name: str) -> NDArray[np.float64]:
    column = vocab.to_arrow(cells, "count")
    filled = np.where(_blank(column), "0", vocab.numpy_values(column.cast(pa.string())))
    try:
        return filled.astype(np.float64)
    except ValueError:
        row = next(row for row, text in enumerate(filled) if not is_number(text))
        problem = f"the count of {vocab.quoted(name)} is {vocab.quoted(filled[row])}"
        raise DataError(f"{table.locate(row)}: {problem}; give a whole number of at least 0") from None


# ---- any of the three ---------------------------------------------------------------------------------


def read_table(table: Table, options: ReadOptions, layout: Layout | None) -> Annotations:
    """Read a table in any of the three layouts; None: the one it looks like."""
    if len(table.columns) < 2:
        problem = f"this is not a table: it has only one column ({listed(table.columns)})"
        columns = "the columns item, annotator and label, separated by commas or tabs"
        raise DataError(f"{table.name}: {problem}; give one row per label with {columns}")
    readers = {"long": read_long, "wide": read_wide, "counts": read_counts}
    return readers[layout or guess_layout(table, options)](table, options)


# ---- label types and notes ----------------------------------------------------------------------------


def parse_classes(
    owner: str, classes: Sequence[Any] | str | None, label_type: LabelType | None
) -> tuple[Sequence[Any] | None, LabelType | None]:
    """Return the label set as a list, and the label type; ``"low<mid<high"`` is ordinal."""
    check_label_type(owner, label_type)
    if not isinstance(classes, str):
        return classes, label_type
    if "<" not in classes:
        raise bad_parameter(owner, "classes", "a list of labels, or an order such as 'low<mid<high'", classes)
    if label_type not in (None, "ordinal"):
        raise bad_parameter(owner, "label_type", "'ordinal', as the classes have an order", label_type)
    return [name.strip() for name in classes.split("<")], "ordinal"


def with_inferred_type(labels: Annotations, label_type: LabelType | None) -> Annotations:
    """Set the label type; if it is None and the source declares none, infer it and add a note."""
    if label_type is not None:
        return labels.with_label_type(label_type)
    if labels.label_type != "nominal":
        return labels
    inferred, notes = infer_label_type(labels)
    return replace(labels, notes=(*labels.notes, *notes)).with_label_type(inferred)


def single_value_notes(annotations: Annotations) -> tuple[str, ...]:
    """Return a note if there is only one class or only one annotator."""
    notes = []
    if annotations.n_classes == 1:
        notes.append(f"there is only one class: {vocab.quoted(annotations.classes[0])}")
    if annotations.n_annotators == 1 and not annotations.anonymous:
        notes.append(f"there is only one annotator: {vocab.quoted(annotations.annotators[0])}")
    return tuple(notes)


def lookalike_notes(vocabulary: vocab.Vocabulary) -> list[str]:
    """Return a note on ids that differ only in writing, if there are any."""
    groups, role = vocab.lookalikes(vocabulary), vocabulary.role
    if not groups:
        return []
    n, examples = sum(map(len, groups)), " and ".join(map(vocab.quoted, groups[0][:2]))
    names = "classes" if role == "label" else f"{role}s"
    by_case = len({"".join(name.split()).casefold() for name in groups[0]}) == 1
    how = "by white space or case" if by_case else "in writing"
    finding = f"{n:,} {names} differ from another only {how} (such as {examples})"
    remedy = f"use {setting('ignore_case', True)}" if role == "label" and by_case else "correct the data"
    return [f"{finding} and count as different {names}; if they mean the same, {remedy}"]


# ---- side tables --------------------------------------------------------------------------------------


def with_side_tables(
    labels: Annotations,
    items: Any,
    annotators: Any,
    gold: Any,
    id_columns: tuple[str, str],
    new_classes: bool,
    ignore_case: bool = False,
) -> Annotations:
    """Add tables given as paths or frames; ``id_columns`` name items and annotators in the source."""
    tables: dict[str, pa.Table] = {}
    locators: dict[str, vocab.Locate] = {}
    for role, source, usual in (("item", items, id_columns[0]), ("annotator", annotators, id_columns[1])):
        if source is not None:
            table = open_table(source, name=f"the {role} table")
            key = find_column(table.columns, role, usual if usual in table.columns else None, table.name)
            columns = table.typed().drop_columns([key])
            name = key if role in columns.column_names else role
            tables[f"{role}s"] = columns.add_column(0, name, table.ids([key])[0])
            locators[f"{role}s"] = table.locate
    if gold is not None:
        gold = pa.table(read_decisions(gold)) if is_decisions(gold) else gold
        table = open_table(gold, name="the gold table")
        names, usual = table.columns, id_columns[0]
        key = find_column(names, "item", usual if usual in names else None, table.name)
        others = [name for name in names if name != key and name.strip()]
        label = others[0] if len(others) == 1 else find_column(names, "gold", None, table.name, taken=[key])
        item, values = table.ids([key, label])
        if ignore_case:
            classes = {str(name).strip().casefold(): name for name in labels.classes}
            values = [classes.get(str(name).strip().casefold(), name) for name in values.to_pylist()]
        tables["gold"], locators["gold"] = pa.table({"item": item, "label": values}), table.locate
    return labels.with_tables(**tables, new_classes=new_classes, locators=locators)
