"""Tables of pairwise comparisons, and tables whose labels are sets of classes.

A table of comparisons has columns for the two options and the winner, or for the chosen and the rejected
option. Each row becomes a label ``left``, ``tie`` or ``right``. The item is the pair, with the question if
the table has a column of questions; the item table has the options in the columns ``left`` and ``right``.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissensus.errors import DataError, setting
from dissensus.labels import vocabulary as vocab
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import WINNERS, LabelType, format_set, parse_set
from dissensus.tables import layouts
from dissensus.tables.column_values import codes_of, varies_within
from dissensus.tables.columns import called, find_column, has_column, listed
from dissensus.tables.tables import Table

# Usual names of the columns of the two options, of the winner, and of chosen and rejected options.
_OPTION_NAMES = (
    ("model_a", "model_b"), ("left", "right"), ("a", "b"), ("option_a", "option_b"), ("item_a", "item_b"),
    ("candidate_a", "candidate_b"), ("response_a", "response_b"), ("system_a", "system_b"),
    ("model_1", "model_2"), ("option_1", "option_2"), ("item_1", "item_2"), ("item1", "item2"),
    ("candidate_1", "candidate_2"), ("response_1", "response_2"), ("system_1", "system_2"),
    ("first", "second"),
)  # fmt: skip
_WINNER_NAMES = (
    "winner", "preference", "preferred", "verdict", "label", "choice", "answer", "vote", "better", "winning"
)  # fmt: skip
_CHOSEN_NAMES = (
    ("chosen", "rejected"), ("winner", "loser"), ("better", "worse"), ("preferred", "dispreferred"),
)  # fmt: skip
_LEFT_WORDS = {"left", "a", "1", "first", "model_a", "option_a", "response_a", "candidate_a", "a1"}
_RIGHT_WORDS = {"right", "b", "2", "second", "model_b", "option_b", "response_b", "candidate_b", "a2"}
_TIE_WORDS = re.compile(r"(tie|ties|draw|drawn|equal|same|both|neither|none|no preference)\b.*|tie.*|0|=")
_TRUE_WORDS = frozenset({"1", "true", "1.0"})
_BOOLEAN_WORDS = _TRUE_WORDS | {"0", "false", "0.0"}
_AMBIGUOUS_NAMES = frozenset({"a", "b", "first", "second"})  # not necessarily options
_UNKNOWN_ANNOTATOR = "everybody"  # if a table of comparisons has no annotators


def read_any(
    table: Table,
    options: layouts.ReadOptions,
    label_type: LabelType | None,
    layout: layouts.Layout | None,
    separator: str | None,
) -> Annotations:
    """Read a table of comparisons, of sets of classes, or of one class per label in any layout."""
    table = layouts.unfolded(table, options) if layout in (None, "long") else table
    undeclared = label_type is None and layout is None and not options.names_columns
    if label_type == "pairwise" or (undeclared and looks_pairwise(table.columns)):
        return read_pairs(table, options)
    maybe_sets = label_type in (None, "multi")
    if separator is not None or (maybe_sets and holds_lists(table, options)):
        return read_sets(table, options, separator)
    tags = tag_columns(table, options) if maybe_sets and layout is None else []
    return read_tags(table, options, tags) if tags else layouts.read_table(table, options, layout)


def tag_columns(table: Table, options: layouts.ReadOptions) -> list[str]:
    """Return the columns of a table with one column of 0 and 1 per tag.

    They are those named as labels. Without a name, and if no column has the usual name of a label, they are
    all columns besides items, annotators, texts and remarks, if there are at least two and all are 0 or 1.
    """
    names, label, annotator = table.columns, options.label, options.annotator
    if isinstance(annotator, list | tuple) or (annotator is None and not has_column(names, "annotator")):
        return []
    if isinstance(label, list | tuple):
        return [find_column(names, "label", name, table.name) for name in label]
    if label is not None or has_column(names, "label") or not (options.item or has_column(names, "item")):
        return []
    first = layouts.first_rows(table)
    roles = called(names, "item") + called(names, "annotator")
    others = [name for name in names if name.strip() and name not in (*roles, options.item, annotator)]
    tags = layouts.unnamed_columns(first, others)
    codes = codes_of(table, [*roles, *tags])  # what is the same for an item or an annotator is no answer
    tags = [tag for tag in tags if all(varies_within(codes[role], codes[tag]) is not False for role in roles)]
    values = {row[name].strip().casefold() for row in first for name in tags}
    return tags if len(tags) > 1 and values <= {*_BOOLEAN_WORDS, ""} and values & _TRUE_WORDS else []


def read_tags(table: Table, options: layouts.ReadOptions, tags: Sequence[str]) -> Annotations:
    """Read one row per answer with a column of 0 and 1 per tag; the answer is the set of tags that are 1."""
    item = layouts.item_column(table, options, "wide")
    annotator = layouts.single_column(options.annotator)
    annotator = find_column(table.columns, "annotator", annotator, table.name, taken=[item, *tags])
    cells = [vocab.to_arrow(column, "label").cast(pa.string()).to_pylist() for column in table.ids(tags)]
    words = np.array([[(cell or "").strip().casefold() for cell in column] for column in cells])
    invalid = np.argwhere(~np.isin(words, [*_BOOLEAN_WORDS, ""]).T)
    if len(invalid):
        row, tag = invalid[0]
        problem = f"{vocab.quoted(tags[tag])} is {vocab.quoted(words[tag, row])}"
        raise DataError(f"{table.locate(int(row))}: {problem}; a column per tag holds 0 or 1")
    sets, inverse = np.unique(np.isin(words, list(_TRUE_WORDS)).T, axis=0, return_inverse=True)
    texts = [format_set(str(tag) for tag, is_set in zip(tags, row, strict=True) if is_set) for row in sets]
    answers = pa.array(texts, pa.string()).take(vocab.arrow_indices(inverse.ravel()))
    answers = pc.if_else((words != "").any(axis=0), answers, None)
    note = f"answers are read as sets of the {len(tags)} tags with a column of 0 and 1 ({listed(tags)})"
    note += f"; name others with {setting('label')} if that is wrong"
    ids = [*table.ids([item, annotator]), answers]
    return layouts.from_rows(table, options, [item, annotator, listed(tags)], ids, "multi", [note])


# ---- comparisons --------------------------------------------------------------------------------------


def looks_pairwise(names: Sequence[str]) -> bool:
    """Return True if the columns are unmistakably those of comparisons."""
    sides = _option_columns(names)
    if sides is None or {side.strip().casefold() for side in sides} & _AMBIGUOUS_NAMES:
        return False
    plain = {name.strip().casefold() for name in names}
    return _are_chosen(sides) or bool(plain & {"winner", "preference", "preferred", "verdict"})


def _option_columns(names: Sequence[str]) -> tuple[str, str] | None:
    """Return the columns of the two options, or of the chosen and the rejected one."""
    columns = {name.strip().casefold(): name for name in names}
    pairs = [pair for pair in (*_CHOSEN_NAMES, *_OPTION_NAMES) if columns.keys() >= set(pair)]
    return (columns[pairs[0][0]], columns[pairs[0][1]]) if pairs else None


def _are_chosen(sides: tuple[str, str]) -> bool:
    return tuple(side.strip().casefold() for side in sides) in _CHOSEN_NAMES


def read_pairs(table: Table, options: layouts.ReadOptions) -> Annotations:
    """Read a table of comparisons."""
    sides, winner, annotator, question = _pair_columns(table, options)
    names = [name for name in (*sides, winner, annotator, question) if name is not None]
    columns = {name: vocab.to_arrow(ids, "option") for name, ids in zip(names, table.ids(names), strict=True)}
    missing = np.zeros(len(columns[sides[0]]), bool)
    missing = missing if winner is None else options.missing.mask(columns[winner])
    if missing.all():
        raise DataError(f"{table.name}: every winner is blank; there is nothing to read")
    rows = np.flatnonzero(~missing)
    values = {name: vocab.numpy_values(column.cast(pa.string()))[rows] for name, column in columns.items()}
    left, right = (values[side] for side in sides)
    if winner is not None:
        labels = _sides_won(table, rows, values[winner], left, right)
    else:  # chosen and rejected: the sides are unknown, so options are ordered by name
        labels = np.where(left > right, "right", "left").astype(object)
        left, right = np.minimum(left, right), np.maximum(left, right)
    same = np.flatnonzero(left == right)
    if len(same):
        problem = f"{vocab.quoted(left[same[0]])} is compared with itself"
        raise DataError(f"{table.locate(int(rows[same[0]]))}: {problem}; correct it")
    items = [f"{a} | {b}" for a, b in zip(left, right, strict=True)]
    if question is not None:
        items = [f"{asked}: {pair}" for asked, pair in zip(values[question], items, strict=True)]
    names_of_items, first = np.unique(np.array(items, object), return_index=True)
    annotations = Annotations.from_arrays(
        items,
        np.full(len(left), _UNKNOWN_ANNOTATOR, object) if annotator is None else values[annotator],
        labels,
        classes=WINNERS,
        items=pa.table({"item": names_of_items, "left": left[first], "right": right[first]}),
        duplicates=options.duplicates,
        frame_kind=table.frame_kind,
        locate=lambda row: table.locate(int(rows[row])),
        label_type="pairwise",
        notes=(f"read as comparisons of {len(set(left) | set(right)):,} options",),
    )
    return replace(annotations, notes=(*annotations.notes, *options.missing.notes(int(missing.sum()))))


def _pair_columns(
    table: Table, options: layouts.ReadOptions
) -> tuple[tuple[str, str], str | None, str | None, str | None]:
    """Return the columns of the two options, the winner, the annotator and the question."""
    sides = _option_columns(table.columns)
    if sides is None:
        raise DataError(
            f"{table.name}: no two columns of compared options (such as model_a and model_b, left and right, "
            f"or chosen and rejected); it has {listed(table.columns)}"
        )
    taken, winner = list(sides), None
    if not _are_chosen(sides):
        label = layouts.single_column(options.label)
        free = {name.strip().casefold(): name for name in table.columns if name not in taken}
        winner = next((free[name] for name in _WINNER_NAMES if name in free and label is None), None)
        winner = winner or find_column(table.columns, "label", label, table.name, taken=taken)
        taken.append(winner)
    annotator = _optional_column(table, "annotator", layouts.single_column(options.annotator), taken)
    taken += [] if annotator is None else [annotator]
    return sides, winner, annotator, _optional_column(table, "item", options.item, taken)


def _optional_column(table: Table, role: str, name: str | None, taken: Sequence[str]) -> str | None:
    """Return the column of a role, or None: comparisons need neither annotators nor questions."""
    free = [column for column in table.columns if column not in taken]
    if name is None and not has_column(free, role):
        return None
    return find_column(table.columns, role, name, table.name, taken=taken)


def _sides_won(
    table: Table, rows: NDArray[np.intp], winners: NDArray[Any], left: NDArray[Any], right: NDArray[Any]
) -> NDArray[Any]:
    """Return "left", "tie" or "right" for each row from the name of the winner or a word for its side."""
    sides = np.empty(len(winners), object)
    for row, winner in enumerate(winners):
        word = "" if winner is None else str(winner).strip().casefold()
        if winner == left[row] or (word in _LEFT_WORDS and winner != right[row]):
            sides[row] = "left"
        elif winner == right[row] or word in _RIGHT_WORDS:
            sides[row] = "right"
        elif _TIE_WORDS.fullmatch(word):
            sides[row] = "tie"
        else:
            remedy = "give the name of one of the two, 'left', 'right' or 'tie'"
            raise DataError(f"{table.locate(int(rows[row]))}: the winner is {vocab.quoted(winner)}; {remedy}")
    return sides


# ---- sets of classes ----------------------------------------------------------------------------------
# Lists in JSON lines, Parquet or frames, or strings with a separator.

_LISTS_PROBED = 100  # rows, to find out if labels are lists


def holds_lists(table: Table, options: layouts.ReadOptions) -> bool:
    """Return True if the labels of a table are lists, or strings that are all written as lists."""
    names, label = table.columns, options.label if isinstance(options.label, str) else None
    if label is None and not has_column(names, "label"):
        return False
    try:
        taken = [] if label is not None else called(names, "item")
        label = find_column(names, "label", label, table.name, taken=taken)
    except DataError:
        return False
    if table.holds_lists(label):
        return True
    column = table.head(_LISTS_PROBED, [label]).column(label)
    cells = column.to_pylist() if vocab.is_string_type(column.type) else []
    filled = [cell for cell in cells if cell and cell.strip()]
    return bool(filled) and all(_parse_list(cell) is not None for cell in filled)


def _parse_list(text: str) -> list[Any] | None:
    """Parse a list written in JSON or Python; None if it is something else."""
    if not text.strip().startswith("[") or not text.strip().endswith("]"):
        return None
    try:
        value = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, list) else None


def read_sets(table: Table, options: layouts.ReadOptions, separator: str | None) -> Annotations:
    """Read one row per answer whose label is a list, or a string with a separator; blanks are skipped."""
    names = layouts.long_columns(table, options, [])
    values = table.typed(names[2:]).column(0).to_pylist()
    texts = [None if value in options.missing.words else _set_text(value, separator) for value in values]
    ids = [*table.ids(names[:2]), pa.array(texts, pa.string())]
    return layouts.from_rows(table, options, names, ids, "multi", ["answers are read as sets of classes"])


def _set_text(value: Any, separator: str | None) -> str | None:
    """Return a cell as a formatted set; None if it is blank. An empty list is an empty set."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, str) and separator is not None:
        return format_set(part.strip() for part in value.split(separator) if part.strip())
    parts = _parse_list(value) if isinstance(value, str) and value.lstrip().startswith("[") else value
    if parts is None or isinstance(parts, str):
        return format_set([value] if parts else parse_set(value))
    texts = [str(part) for part in parts]
    if any(isinstance(part, dict | list) for part in parts) or texts != list(map(vocab.valid_text, texts)):
        problem = f"the answer {vocab.quoted(value)} is no list of texts or numbers"
        raise DataError(f"{problem}; give a list of classes")
    return format_set(texts)
