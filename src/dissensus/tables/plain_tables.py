"""Plain tables and side tables as annotations, and what a person should know about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.errors import DataError, bad_parameter
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import LabelType, check_label_type, recognised
from dissensus.labels.rows import Duplicates
from dissensus.labels.vocabulary import Place, Vocabulary, lookalikes, quoted
from dissensus.tables.columns import find_column, listed, refuse_several_missing
from dissensus.tables.layouts import (
    Columns,
    Layout,
    Missing,
    guess_layout,
    item_column,
    read_counts,
    read_long,
    read_wide,
)
from dissensus.tables.pairs_and_sets import holds_lists, looks_pairwise
from dissensus.tables.tables import Table, open_table


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


def refuse_other_type(labels: Annotations, wanted: LabelType) -> None:
    """Labels that a question about another kind of labels cannot be asked of."""
    if labels.label_type != wanted:
        raise DataError(
            f"these labels are {labels.label_type}, and {wanted} ones are needed; give a table with two "
            "columns of what is compared (model_a and model_b, chosen and rejected) and one of the winner"
        )


def worth_a_word(annotations: Annotations) -> tuple[str, ...]:
    """What a person should know about labels that are read as they are."""
    notes = [note for vocabulary in annotations.vocabularies for note in lookalike_notes(vocabulary)]
    return (*notes, *one_only(annotations))


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
    find = " (classes= with the right spellings names the first row that differs)" if what == "label" else ""
    return [
        f"{n:,} {what}s differ from another only by white space or case (such as {such}) and count as "
        f"different {what}s; if they mean the same, correct the data{find}"
    ]


# ---- plain tables -------------------------------------------------------------------------------------


def kind_of_rows(
    table: Table, columns: Columns, label_type: LabelType | None, layout: Layout | None, separator: str | None
) -> LabelType | None:
    """What a table's rows must be read as: pairs, or sets of classes; None where each has one class."""
    unsaid = label_type is None and layout is None and not columns.named
    if label_type == "pairwise" or (unsaid and looks_pairwise(table.columns)):
        return "pairwise"
    if separator is not None or (label_type in (None, "multi") and holds_lists(table, columns)):
        return "multi"
    return None


def read_table(
    table: Table,
    columns: Columns,
    classes: Sequence[Any] | None,
    duplicates: Duplicates,
    layout: Layout | None,
    blanks: Missing,
) -> tuple[Annotations, tuple[str, str]]:
    """The labels, and what the source calls its item and annotator columns."""
    if len(table.columns) < 2:
        raise DataError(
            f"{table.name}: this is not a table: it has one column only ({listed(table.columns)}); give one "
            "row for each label with the columns item, annotator and label, and commas or tabs between them"
        )
    layout = layout or guess_layout(table, columns)
    if layout == "long":
        refuse_several_missing(table.columns, columns, table.name)
    item = item_column(table, columns, layout)
    if layout == "counts":
        return read_counts(table, columns, classes), (item, "annotator")
    if layout == "wide":
        return read_wide(table, columns, classes, duplicates, blanks), (item, "annotator")
    annotator = columns.annotator if isinstance(columns.annotator, str) else "annotator"
    return read_long(table, columns, classes, duplicates, blanks), (item, annotator)


# ---- side tables --------------------------------------------------------------------------------------


def with_side_tables(
    labels: Annotations, items: Any, annotators: Any, gold: Any, names: tuple[str, str], new_classes: bool
) -> Annotations:
    """The labels with tables read from paths or frames; ``names``: what the source calls its id columns."""
    tables: dict[str, pa.Table] = {}
    places: dict[str, Place] = {}
    if items is not None:
        tables["items"], places["items"] = _side_table(items, "item", names[0])
    if annotators is not None:
        tables["annotators"], places["annotators"] = _side_table(annotators, "annotator", names[1])
    if gold is not None:
        tables["gold"], places["gold"] = _gold_table(gold, names[0])
    return labels.with_tables(**tables, new_classes=new_classes, places=places)


def _side_table(source: Any, what: str, usual: str) -> tuple[pa.Table, Place]:
    """A table whose first column holds the ids; the others as they are."""
    table = open_table(source, name=f"the {what} table")
    key = find_column(table.columns, what, usual if usual in table.columns else None, table.name)
    everything = table.everything()
    others = [name for name in everything.column_names if name != key]
    ids = table.ids([key])[0]
    sides = everything.select(others)
    return sides.add_column(0, what if what not in others else key, ids), table.place


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
    when = np.array([seconds(value) for value in table.everything()[column].to_pylist()])
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
