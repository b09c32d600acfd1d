"""From whatever the user has to :class:`~dissensus.Annotations`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, cast

from dissensus.errors import DataError, bad_parameter, warn
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import LabelType, as_sets, without_case
from dissensus.labels.rows import Duplicates
from dissensus.labels.sources import provided
from dissensus.tables.atomic import restore
from dissensus.tables.columns import guess_words
from dissensus.tables.layouts import (
    LAYOUTS,
    Layout,
    Missing,
    Wanted,
    declared_classes,
    lookalike_notes,
    one_column,
    one_only,
    with_kind,
    with_side_tables,
)
from dissensus.tables.pairs_and_sets import read_any
from dissensus.tables.results import is_ours
from dissensus.tables.tables import TABLE_FORMATS, open_table


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
    duplicates: Duplicates = "keep",
    layout: Layout | None = None,
    format: str | None = None,
    question: str | None = None,
    text_column: str | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    missing_words: Sequence[str] | str = (),
    ignore_case: bool = False,
    keep_rejected: bool = False,
) -> Annotations:
    """Read labels from a file or a data frame.

    Rows whose label is blank are skipped. What is worth a word is a
    :class:`~dissensus.errors.DissensusWarning`, and stands in ``notes``.

    Parameters
    ----------
    source
        A path (CSV, TSV, JSON lines or Parquet, each also gzipped, an annotation tool's export, or a store),
        or any data frame narwhals knows. Ids and labels from a file are strings; those from a frame keep
        their type. Rows may hold parallel lists of annotators and labels.
    item, annotator, label
        Names of the three columns, found by their usual names where not given. In a wide table ``annotator``
        may list columns; ``label`` may list the columns of class counts, or of tags that are 0 or 1.
    items, annotators, gold
        Side tables, as paths or frames: one row for each item, one row for each annotator, and reference
        labels. None is picked up unasked. Items without labels join; what finds no partner is noted.
    classes
        The label set in its order; a label outside it is an error. Without it, the labels that occur, sorted
        (numbers by value). ``"low<mid<high"`` says that the order means something.
    label_type
        What kind of answer a label is: nominal, ordinal, numeric, multi or pairwise. Where it is left out it
        is told from the labels, and a note says what they were taken for.
    duplicates
        When an annotator labels an item more than once: keep all, the first, the last, or refuse.
    layout
        "long" (one row for each label), "wide" (one column for each annotator) or "counts" (one column for
        each class).
    format, question
        The file's format, and the question of an export, where the content does not tell; "wide" and "counts"
        name the layout.
    text_column
        The column that holds the items' text; it is called ``text`` in the item table, whose other columns
        keep their names. Without it, a column with a usual name or with long texts.
    separator
        What stands between the classes of an answer that is a set, such as ``"|"``. Lists are sets without
        it; with ``label_type="multi"`` so are all labels of one annotator to one item together.
    encoding
        Encoding of a text file that is not UTF-8, such as ``"latin-1"``.
    missing_words
        Words that mean that there is no label, such as ``["NA"]`` or ``"NA,null"``.
    ignore_case
        Whether labels that differ only by case are one class, written as most of them are.
    keep_rejected
        Whether rejected assignments of an export count.
    """
    text_here = text_column if items is None else None  # where there is a table of items, it has the text
    named = label if label is not None else question
    classes, label_type = declared_classes("read_annotations", classes, label_type)
    if layout is not None and layout not in LAYOUTS:
        raise bad_parameter("read_annotations", "layout", f"one of {', '.join(LAYOUTS)}", layout)
    if not isinstance(item, str | None):
        raise bad_parameter("read_annotations", "item", "the name of a column", item)
    if format == "wide" or format == "counts":  # the layout, named as a format
        if layout not in (None, format):
            raise bad_parameter("read_annotations", "layout", f"{format!r}, as the format is", layout)
        layout, format = cast(Layout, format), None
    missing, known = Missing.of(missing_words), None if ignore_case else classes
    wanted = Wanted(item, annotator, named, text_here, known, duplicates, missing)
    if isinstance(source, str | os.PathLike):
        with suppress(ValueError):  # a name that cannot be: it is told below
            restore(source)  # where a killed process was replacing a store
    if isinstance(source, str | os.PathLike) and Path(source).is_dir():
        from dissensus.large.store import is_store, open_annotations

        kept = provided("load_labels")(Path(source)) if is_ours(Path(source)) else None
        if kept is not None or is_store(Path(source)):
            settled = wanted.named or classes is not None or (kept is not None and label_type is not None)
            if settled or (duplicates, layout, format) != ("keep", None, None):
                raise DataError(
                    f"{os.fspath(source)}: is a store or a run, whose columns, classes and duplicates were "
                    "settled when it was written; leave these options out, or read the files anew"
                )
            tables = {"items": items, "annotators": annotators, "gold": gold}
            if kept is not None:
                return with_side_tables(kept, items, annotators, gold, ("item", "annotator"), True)
            return _warned(open_annotations(source, **tables, label_type=label_type))
    if _is_export(source, format, layout, (annotator, label)):
        from dissensus.importers import load_export

        export = load_export(
            source,
            format=format,
            question=question if question is not None else one_column(label),
            keep_rejected=keep_rejected,
            item_column=item,
            annotator_column=one_column(annotator),
            text_column=text_here,
        )
        settings: dict[str, Any] = {"items": export.items, "duplicates": duplicates, "notes": export.notes}
        labels = Annotations.from_arrays(*export.labels.columns, classes=known, **settings)
        labels = replace(labels, columns_read=export.columns)
    else:
        table = open_table(source, format, encoding=encoding)
        labels = read_any(table, wanted, label_type, layout, separator)
    if ignore_case:
        labels = without_case(labels, classes)
    given = {"item": item, "annotator": annotator, "label": label or question, "text": text_column}
    word = guess_words(labels.columns_read, {role for role, name in given.items() if name is not None})
    if label_type == "multi":
        labels = as_sets(labels)
    labels = with_kind(replace(labels, notes=(*labels.notes, *([word] if word else []))), label_type)
    names = labels.columns_read.get("item", "item"), labels.columns_read.get("annotator", "annotator")
    labels = with_side_tables(labels, items, annotators, gold, names, classes is None, ignore_case)
    if text_column is not None and items is not None:
        labels = labels.with_text_column(text_column)
    alike = [note for vocabulary in labels.vocabularies for note in lookalike_notes(vocabulary)]
    return _warned(replace(labels, notes=(*labels.notes, *alike, *one_only(labels))))


def _warned(labels: Annotations) -> Annotations:
    """Labels, once their notes have been said where the user's own line called for them."""
    package, level = str(Path(__file__).parents[1]), 2
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    for note in dict.fromkeys(labels.notes):
        warn(note, level)
    return labels


def _is_export(source: Any, format: str | None, layout: Layout | None, columns: tuple[Any, Any]) -> bool:
    """Whether a tool wrote this: by the format named, else by its content; a file only if no column is."""
    if not isinstance(source, str | os.PathLike) or format in TABLE_FORMATS:
        return False
    from dissensus import importers

    if format is not None:
        return format in importers.FORMATS
    path = Path(source)
    if layout is not None or not (path.is_dir() or (path.is_file() and columns == (None, None))):
        return False
    return importers.recognise(path) is not None
