"""From whatever the user has to :class:`~dissensus.Annotations`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from dissensus.data.annotations import Annotations
from dissensus.data.kinds import LabelType, check_label_type, recognised
from dissensus.data.rows import Duplicates
from dissensus.data.sets import as_sets
from dissensus.data.vocabulary import Place, Vocabulary, lookalikes, quoted
from dissensus.errors import DataError, bad_parameter
from dissensus.io.columns import find_column, guess_words, listed, refuse_several_missing
from dissensus.io.layouts import (
    LAYOUTS,
    Columns,
    Layout,
    Missing,
    guess_layout,
    item_column,
    one_column,
    read_counts,
    read_long,
    read_wide,
)
from dissensus.io.pairwise import looks_pairwise, read_pairs
from dissensus.io.sets import holds_lists, read_sets
from dissensus.io.tables import TABLE_FORMATS, Table, open_table

Several = Literal["keep", "error"]


def read_annotations(
    source: Any,
    *,
    item: str | None = None,
    annotator: str | Sequence[str] | None = None,
    label: str | Sequence[str] | None = None,
    items: Any = None,
    annotators: Any = None,
    gold: Any = None,
    classes: Sequence[Any] | str | None = None,
    label_type: LabelType | None = None,
    missing: Literal["skip", "error"] = "skip",
    missing_words: Sequence[str] | str = (),
    encoding: str | None = None,
    separator: str | None = None,
    duplicates: Duplicates = "keep",
    layout: Layout | None = None,
    format: str | None = None,
    question: str | None = None,
    several: Several = "keep",
    keep_rejected: bool = False,
    text_column: str | None = None,
) -> Annotations:
    """Read labels from a file or a data frame.

    Parameters
    ----------
    source
        A path (CSV, TSV, JSON lines or Parquet, each also gzipped, an annotation tool's export, or a store),
        or any data frame narwhals knows. Ids and labels from a file are strings; those from a frame keep
        their type.
    item, annotator, label
        Names of the three columns, found by their usual names where not given. In a wide table ``annotator``
        may list columns, in a table of class counts ``label`` may.
    items, annotators, gold
        Side tables, as paths or frames: one row for each item, one row for each annotator, and reference
        labels. None is picked up unasked. Items without labels join; what finds no partner is noted.
    classes
        The label set in its order; a label outside it is an error. Without it, the labels that occur, sorted
        (numbers by value). ``"low<mid<high"`` says that the order means something.
    label_type
        What kind of answer a label is: nominal, ordinal, numeric, multi or pairwise. Where it is left out it
        is told from the labels, and a note says what they were taken for.
    missing, missing_words
        Rows whose label is blank (or one of these words, such as ``["NA"]`` or ``"NA,null"``) are skipped and
        counted, or are an error.
    separator
        What stands between the classes of an answer that is a set, such as ``"|"``. Lists are sets without
        it; with ``label_type="multi"`` so are all labels of one annotator to one item together.
    encoding
        Encoding of a text file that is not UTF-8, such as ``"latin-1"``.
    duplicates
        When an annotator labels an item more than once: keep all, the first, the last, or refuse.
    layout
        "long" (one row for each label), "wide" (one column for each annotator) or "counts" (one column for
        each class).
    format, question
        The file's format, and the question of an export, where the content does not tell; "wide" and "counts"
        name the layout.
    several, keep_rejected
        Of an export: whether several answers of one annotator to one item are kept or refused ("error"), and
        whether rejected assignments count.
    text_column
        The column that holds the items' text in an export, a wide table or class counts; it is called
        ``text`` in the item table, whose other columns keep their names.
    """
    columns = Columns(item, annotator, label if label is not None else question, text_column)
    classes, label_type = declared_classes("read_annotations", classes, label_type)
    _check(layout, columns)
    blanks = Missing.of("read_annotations", missing, missing_words)
    if format in ("wide", "counts"):
        layout, format = _layout_of_format(layout, format), None
    if _is_store(source):
        from dissensus.io.store.opening import open_annotations

        _refuse_rules(source, columns, classes, duplicates, layout, format)
        return open_annotations(source, items=items, annotators=annotators, gold=gold, label_type=label_type)
    if _is_export(source, format, layout, Columns(None, annotator, label)):
        labels, names = _read_export(
            source,
            classes,
            duplicates,
            format=format,
            question=question if question is not None else one_column(label),
            several=several,
            keep_rejected=keep_rejected,
            item_column=item,
            annotator_column=one_column(annotator),
            text_column=text_column,
        )
    else:
        table = open_table(source, format, encoding=encoding)
        kind = _kind_of_rows(table, columns, label_type, layout, separator)
        if kind == "pairwise":
            labels, names = read_pairs(table, columns, duplicates, blanks)
        elif kind == "multi":
            labels, names = read_sets(table, columns, duplicates, separator, blanks)
        else:
            labels, names = _read_table(table, columns, classes, duplicates, layout, blanks)
    given = {"item": item, "annotator": annotator, "label": label or question, "text": text_column}
    named = {role for role, name in given.items() if name is not None}
    word = guess_words(labels.columns_read, named)
    if label_type == "multi":
        labels = as_sets(labels)
    labels = with_kind(replace(labels, notes=(*labels.notes, *([word] if word else []))), label_type)
    labels = with_side_tables(labels, items, annotators, gold, names, classes is None)
    return replace(labels, notes=(*labels.notes, *worth_a_word(labels)))


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


def _check(layout: Any, columns: Columns) -> None:
    if layout is not None and layout not in LAYOUTS:
        raise bad_parameter("read_annotations", "layout", f"one of {', '.join(LAYOUTS)}", layout)
    if not isinstance(columns.item, str | None):
        raise bad_parameter("read_annotations", "item", "the name of a column", columns.item)


def _layout_of_format(layout: Layout | None, format: str) -> Layout:
    """A wide table or one of counts may be named as a format as well: it is the layout, in any format."""
    if layout not in (None, format):
        raise bad_parameter("read_annotations", "layout", f"{format!r}, as the format is", layout)
    return "wide" if format == "wide" else "counts"


# ---- plain tables -------------------------------------------------------------------------------------


def _kind_of_rows(
    table: Table, columns: Columns, label_type: LabelType | None, layout: Layout | None, separator: str | None
) -> LabelType | None:
    """What a table's rows must be read as: pairs, or sets of classes; None where each has one class."""
    unsaid = label_type is None and layout is None and not columns.named
    if label_type == "pairwise" or (unsaid and looks_pairwise(table.columns)):
        return "pairwise"
    if separator is not None or (label_type in (None, "multi") and holds_lists(table, columns)):
        return "multi"
    return None


def _read_table(
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


# ---- exports ------------------------------------------------------------------------------------------


def _is_export(source: Any, format: str | None, layout: Layout | None, columns: Columns) -> bool:
    """Whether a tool wrote this: by the format named, else by its content; a file only if no column is."""
    if not isinstance(source, str | os.PathLike) or format in TABLE_FORMATS:
        return False
    from dissensus.io import importers

    if format is not None:
        return format in importers.FORMATS
    path = Path(source)
    if layout is not None or not (path.is_dir() or (path.is_file() and not columns.named)):
        return False
    return importers.recognise(path) is not None


def _read_export(
    source: Any, classes: Sequence[Any] | None, duplicates: Duplicates, **asked: Any
) -> tuple[Annotations, tuple[str, str]]:
    """The same of an export."""
    from dissensus.io.importers import load_export

    imported = load_export(source, **asked)
    labels = Annotations.from_arrays(
        *(imported.labels.column(name) for name in ("item", "annotator", "label")),
        classes=classes,
        items=imported.items,
        duplicates=duplicates,
        notes=imported.left_out_notes,
    )
    return replace(labels, columns_read=imported.columns), ("item", "annotator")


# ---- stores -------------------------------------------------------------------------------------------


def _is_store(source: Any) -> bool:
    if not isinstance(source, str | os.PathLike) or not Path(source).is_dir():
        return False
    from dissensus.io.store.files import is_store

    return is_store(Path(source))


def _refuse_rules(source: Any, columns: Columns, classes: Any, *others: Any) -> None:
    """What a file's labels are was settled when they were packed."""
    if columns.named or classes is not None or others != ("keep", None, None):
        raise DataError(
            f"{os.fspath(source)}: is a store, whose columns, label set and duplicates were settled when it "
            "was packed; leave these options out, or pack the files anew"
        )


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
