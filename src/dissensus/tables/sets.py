"""Answers that are sets: lists in JSON lines, Parquet or frames, or texts with a named separator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import members_of, written
from dissensus.labels.rows import Duplicates
from dissensus.labels.vocabulary import blank_error, places, to_arrow
from dissensus.tables.columns import find_column, has_column
from dissensus.tables.json_lines import JsonTable
from dissensus.tables.layouts import KEEP_BLANKS, Columns, Missing, item_column, one_column
from dissensus.tables.tables import Table

_LOOKED_AT = 100  # rows that tell whether a column holds lists


def label_column(table: Table, columns: Columns) -> str | None:
    """The column of labels in a table of one row per answer, if it has one."""
    given = one_column(columns.label) if not isinstance(columns.label, list | tuple) else None
    if given is None and not has_column(table.columns, "label"):
        return None
    taken = [] if given is not None else [name for name in table.columns if has_column([name], "item")]
    return find_column(table.columns, "label", given, table.name, taken=taken)


def holds_lists(table: Table, columns: Columns) -> bool:
    """Whether the labels of a table are lists, by the column's type or as JSON has them."""
    try:
        label = label_column(table, columns)
    except DataError:
        return False
    if label is None or label not in table.columns:
        return False
    column = table.everything().column(label)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        return True
    if not isinstance(table, JsonTable):
        return False
    first = [value for value in column.slice(0, _LOOKED_AT).to_pylist() if value]
    return bool(first) and all(str(value).startswith("[") for value in first)


def read_sets(
    table: Table,
    columns: Columns,
    duplicates: Duplicates,
    separator: str | None,
    missing: Missing = KEEP_BLANKS,
) -> tuple[Annotations, tuple[str, str]]:
    """One row per answer, its label a list, a JSON list or a text with a separator; blanks are skipped."""
    item = item_column(table, columns, "long")
    names, who, what = table.columns, one_column(columns.annotator), one_column(columns.label)
    annotator = find_column(names, "annotator", who, table.name, taken=[item])
    label = find_column(names, "label", what, table.name, taken=[item, annotator])
    values = table.everything().column(label).to_pylist()
    texts = [None if value in missing.words else _text(value, separator) for value in values]
    rows = np.array([row for row, text in enumerate(texts) if text is not None], np.int64)
    if not len(rows):
        raise DataError(f"{table.name}: every label is blank; there is nothing to read")
    if len(rows) < len(values) and not missing.skip:
        raise blank_error(texts.index(None), "label", table.place)
    kept = [to_arrow(column, "id").take(places(rows)) for column in table.ids([item, annotator])]
    notes = ("answers are read as sets of classes", *missing.notes(len(values) - len(rows)))
    labels = Annotations.from_arrays(
        kept[0],
        kept[1],
        pa.array([texts[row] for row in rows], pa.string()),
        duplicates=duplicates,
        frame_kind=table.frame_kind,
        place=lambda row: table.place(int(rows[row])),
        label_type="multi",
        notes=notes,
    )
    columns_read = {"item": item, "annotator": annotator, "label": label}
    return replace(labels, columns_read=columns_read), (item, annotator)


def _text(value: Any, separator: str | None) -> str | None:
    """A cell as a set written out; None where it is blank. An empty list is an empty set."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, str) and separator is not None:
        return written(part.strip() for part in value.split(separator) if part.strip())
    if isinstance(value, str):
        return written(members_of(value) if value.lstrip().startswith("[") else [value])
    return written(str(part) for part in value)
