"""Reading of annotations from files, exports, stores and data frames."""

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
from dissensus.importers import FORMATS, load_export, recognise
from dissensus.labels import provided
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import LabelType, as_sets, merge_case
from dissensus.labels.rows import Duplicates
from dissensus.labels.vocabulary import valid_text
from dissensus.tables import layouts
from dissensus.tables.atomic import restore
from dissensus.tables.columns import guess_note
from dissensus.tables.pairs_and_sets import read_any
from dissensus.tables.results import is_result_directory
from dissensus.tables.tables import INPUT_FORMATS, open_table


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
    layout: layouts.Layout | None = None,
    format: str | None = None,
    question: str | None = None,
    text_column: str | None = None,
    separator: str | None = None,
    encoding: str | None = None,
    sheet: str | None = None,
    missing_words: Sequence[str] | str = (),
    ignore_case: bool = False,
    keep_rejected: bool = False,
) -> Annotations:
    """Read labels from a file or a data frame.

    Rows without a label are skipped. Notes on the data are issued as
    :class:`~dissensus.errors.DissensusWarning`, and are available as ``notes``.

    Parameters
    ----------
    source
        A path (CSV, TSV, JSON lines or Parquet, each also gzipped, an annotation tool's export, or a store),
        or any data frame that narwhals supports. Ids and labels from a file are strings; those from a frame
        keep their type. Rows may hold parallel lists of annotators and labels.
    item, annotator, label
        Names of the three columns; None: found by their usual names. In a wide table ``annotator`` may list
        columns; ``label`` may list the columns of class counts, or of tags that are 0 or 1.
    items, annotators, gold
        Side tables, as paths or frames: one row per item, one row per annotator, and reference labels. Items
        without labels are added; rows of unknown annotators are reported in a note.
    classes
        The label set in its order; a label outside it is an error. None: the labels that occur, sorted
        (numbers by value). A string such as ``"low<mid<high"`` declares an ordinal scale.
    label_type
        Type of the labels: nominal, ordinal, numeric, multi or pairwise. None: inferred from the labels, and
        reported in a note.
    duplicates
        When an annotator labels an item more than once: keep all, the first, the last, or refuse.
    layout
        "long" (one row per label), "wide" (one column per annotator) or "counts" (one column per class).
    format, question
        Format of the file, and question of an export; None: found from the content. The formats "wide" and
        "counts" set the layout.
    text_column
        Column of the items' text, which becomes ``text`` in the item table. None: a column with a usual name
        or with long texts.
    separator
        Separator of the classes of an answer that is a set, such as ``"|"``. Lists are sets without it; with
        ``label_type="multi"``, all labels of an annotator to an item form a set.
    encoding
        Encoding of a text file that is not UTF-8, such as ``"latin-1"``.
    sheet
        Sheet of an Excel workbook; None: the first that has cells.
    missing_words
        Words that mean "no label", such as ``["NA"]`` or ``"NA,null"``.
    ignore_case
        Merge labels that differ only by case or surrounding white space, in their most frequent spelling.
    keep_rejected
        Read rejected assignments of an export too.
    """
    owner = "read_annotations"
    classes, label_type = layouts.parse_classes(owner, classes, label_type)
    if layout is not None and layout not in layouts.LAYOUTS:
        raise bad_parameter(owner, "layout", f"one of {', '.join(layouts.LAYOUTS)}", layout)
    if not isinstance(item, str | None):
        raise bad_parameter(owner, "item", "the name of a column", item)
    if format == "wide" or format == "counts":  # a layout given as the format
        if layout not in (None, format):
            raise bad_parameter(owner, "layout", f"{format!r}, as the format is", layout)
        layout, format = cast(layouts.Layout, format), None
    options = layouts.ReadOptions(
        item,
        annotator,
        label if label is not None else question,
        text_column if items is None else None,  # an item table, if given, has the text
        None if ignore_case else classes,
        duplicates,
        layouts.MissingWords.parse(missing_words),
    )
    tables = {"items": items, "annotators": annotators, "gold": gold}
    if isinstance(source, str | os.PathLike):
        with suppress(ValueError):  # an invalid name is reported below
            restore(source)
        if Path(source).is_dir():
            has_options = options.names_columns or classes is not None
            has_options |= (duplicates, layout, format) != ("keep", None, None)
            stored = _read_directory(Path(source), tables, label_type, has_options)
            if stored is not None:
                return stored
    if _is_export(source, format, layout, (annotator, label) != (None, None)):
        if sheet is not None:
            raise DataError(f"{source}: has no sheets; name none")
        labels = _read_export(source, format, options, question, keep_rejected)
    else:
        table = open_table(source, format, encoding=encoding, sheet=sheet)
        labels = read_any(table, options, label_type, layout, separator)
    if ignore_case:
        labels = merge_case(labels, classes)
    chosen = {"item": item, "annotator": annotator, "label": label or question, "text": text_column}
    note = guess_note(labels.columns_read, {role for role, name in chosen.items() if name is not None})
    if label_type == "multi":
        labels = as_sets(labels)
    labels = layouts.with_inferred_type(
        replace(labels, notes=(*labels.notes, *([note] if note else []))), label_type
    )
    names = labels.columns_read.get("item", "item"), labels.columns_read.get("annotator", "annotator")
    labels = layouts.with_side_tables(
        labels, **tables, id_columns=names, new_classes=classes is None, ignore_case=ignore_case
    )
    if text_column is not None and items is not None:
        labels = labels.with_text_column(text_column)
    alike = [note for vocabulary in labels.vocabularies for note in layouts.lookalike_notes(vocabulary)]
    return _with_warnings(replace(labels, notes=(*labels.notes, *alike, *layouts.single_value_notes(labels))))


def _read_directory(
    path: Path, tables: dict[str, Any], label_type: LabelType | None, has_options: bool
) -> Annotations | None:
    """Read the labels of a run or a store; None for any other directory."""
    from dissensus.large.store import is_store, open_annotations

    labels = provided("load_labels")(path) if is_result_directory(path) else None
    if labels is None and not is_store(path):
        return None
    if has_options or (labels is not None and label_type is not None):
        problem = "is a store or a run, whose columns, classes and duplicates were fixed when it was written"
        raise DataError(f"{path}: {problem}; leave these options out, or read the original files")
    if labels is not None:
        return layouts.with_side_tables(labels, **tables, id_columns=("item", "annotator"), new_classes=True)
    return _with_warnings(open_annotations(path, **tables, label_type=label_type))


def _read_export(
    path: Any, format: str | None, options: layouts.ReadOptions, question: str | None, keep_rejected: bool
) -> Annotations:
    """Read the labels of one question from a tool's export."""
    export = load_export(
        path,
        format=format,
        question=question if question is not None else layouts.single_column(options.label),
        keep_rejected=keep_rejected,
        item_column=options.item,
        annotator_column=layouts.single_column(options.annotator),
        text_column=options.text,
    )
    labels = Annotations.from_arrays(
        *export.labels.columns,
        classes=options.classes,
        items=export.items,
        duplicates=options.duplicates,
        notes=tuple(map(valid_text, export.notes)),
    )
    return replace(labels, columns_read={role: valid_text(name) for role, name in export.columns.items()})


def _with_warnings(labels: Annotations) -> Annotations:
    """Issue the notes as warnings at the user's line, the first one outside the package."""
    package, level = str(Path(__file__).parents[1]), 2
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(package):
        frame, level = frame.f_back, level + 1
    for note in dict.fromkeys(labels.notes):
        warn(note, level)
    return labels


def _is_export(source: Any, format: str | None, layout: layouts.Layout | None, names_columns: bool) -> bool:
    """Return True for a tool's export: by its format, or by its content unless columns are named."""
    if not isinstance(source, str | os.PathLike) or format in INPUT_FORMATS:
        return False
    if format is not None:
        return format in FORMATS
    path = Path(source)
    if layout is not None or not (path.is_dir() or (path.is_file() and not names_columns)):
        return False
    return recognise(path) is not None
