"""Plain tables and side tables as annotations, and what a person should know about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

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
from dissensus.tables.pairwise import looks_pairwise
from dissensus.tables.sets import holds_lists
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
    notes = [
        note
        for vocabulary in (
            annotations.item_vocabulary,
            annotations.annotator_vocabulary,
            annotations.class_vocabulary,
        )
        for note in lookalike_notes(vocabulary)
    ]
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
    groups = lookalikes(vocabulary)
    return [lookalike_words(sum(map(len, groups)), vocabulary.what, groups[0][:2])] if groups else []


def lookalike_words(n: int, what: str, example: Sequence[str]) -> str:
    """How many ids look like another, with two that do."""
    such = " and ".join(map(quoted, example))
    find = " (classes= with the right spellings names the first row that differs)" if what == "label" else ""
    return (
        f"{n:,} {what}s differ from another only by white space or case (such as {such}) and count as "
        f"different {what}s; if they mean the same, correct the data{find}"
    )


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
