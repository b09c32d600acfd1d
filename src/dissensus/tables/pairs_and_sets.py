"""Tables whose answers are no single class: comparisons of two things, and sets of classes.

A table of comparisons has two columns of things and who won, or what was chosen and what was rejected. Each
row becomes a label ``left``, ``tie`` or ``right`` on an item that is the pair (of a question, where the table
has a column of questions); the item table has the two things in the columns ``left`` and ``right``.
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
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import WINNERS, LabelType, members_of, written
from dissensus.labels.vocabulary import as_values, is_text, places, quoted, to_arrow
from dissensus.tables.columns import find_column, has_column, listed
from dissensus.tables.layouts import (
    Layout,
    Wanted,
    first_rows,
    from_rows,
    item_column,
    long_columns,
    one_column,
    read_table,
    unfolded,
    unnamed_columns,
)
from dissensus.tables.tables import Table

# What people call the two sides, and the answer; "a" and "b", 1 and 2 follow the same word.
_SIDES = (
    ("model_a", "model_b"), ("left", "right"), ("a", "b"), ("option_a", "option_b"), ("item_a", "item_b"),
    ("candidate_a", "candidate_b"), ("response_a", "response_b"), ("system_a", "system_b"),
    ("model_1", "model_2"), ("option_1", "option_2"), ("item_1", "item_2"), ("item1", "item2"),
    ("candidate_1", "candidate_2"), ("response_1", "response_2"), ("system_1", "system_2"),
    ("first", "second"),
)  # fmt: skip
_WINNER = (
    "winner", "preference", "preferred", "verdict", "label", "choice", "answer", "vote", "better", "winning"
)  # fmt: skip
_CHOSEN = (("chosen", "rejected"), ("winner", "loser"), ("better", "worse"), ("preferred", "dispreferred"))
_LEFT = frozenset({"left", "a", "1", "first", "model_a", "option_a", "response_a", "candidate_a", "a1"})
_RIGHT = frozenset({"right", "b", "2", "second", "model_b", "option_b", "response_b", "candidate_b", "a2"})
_TIE = re.compile(r"(tie|ties|draw|drawn|equal|same|both|neither|none|no preference)\b.*|tie.*|0|=")
_TICKED = frozenset({"1", "true", "1.0"})
_TICKS = _TICKED | {"0", "false", "0.0"}
_COMMON = frozenset({"a", "b", "first", "second"})  # columns that may be called so for other reasons
NOBODY = "everybody"


def read_any(
    table: Table, wanted: Wanted, label_type: LabelType | None, layout: Layout | None, separator: str | None
) -> Annotations:
    """Labels of a table of comparisons, of sets of classes, or in any layout of one class a label."""
    table = unfolded(table, wanted) if layout in (None, "long") else table
    unsaid = label_type is None and layout is None and not wanted.named
    if label_type == "pairwise" or (unsaid and looks_pairwise(table.columns)):
        return read_pairs(table, wanted)
    maybe_sets = label_type in (None, "multi")
    if separator is not None or (maybe_sets and holds_lists(table, wanted)):
        return read_sets(table, wanted, separator)
    tags = tag_columns(table, wanted) if maybe_sets and layout is None else []
    return read_tags(table, wanted, tags) if tags else read_table(table, wanted, layout)


def tag_columns(table: Table, wanted: Wanted) -> list[str]:
    """The columns of a table that has one of 0 and 1 for each tag, beside items and annotators.

    They are the ones named as labels, or two or more where no column is called a label and all that are not
    texts or remarks hold nothing else.
    """
    names, given = table.columns, wanted.label
    who = wanted.annotator if isinstance(wanted.annotator, str) else None
    if isinstance(wanted.annotator, list | tuple) or (who is None and not has_column(names, "annotator")):
        return []
    if isinstance(given, list | tuple):
        return [find_column(names, "label", name, table.name) for name in given]
    if given is not None or has_column(names, "label") or not (wanted.item or has_column(names, "item")):
        return []
    first = first_rows(table)
    roles = [name for name in names if has_column([name], "item") or has_column([name], "annotator")]
    beside = [name for name in names if name.strip() and name not in (*roles, wanted.item, who)]
    tags = unnamed_columns(first, beside)
    values = {row[name].strip().casefold() for row in first for name in tags}
    return tags if len(tags) > 1 and values <= {*_TICKS, ""} and values & _TICKED else []


def read_tags(table: Table, wanted: Wanted, tags: Sequence[str]) -> Annotations:
    """One row per answer and one column of 0 and 1 per tag: the answer is the set of tags that are 1."""
    item = item_column(table, wanted, "wide")
    who = one_column(wanted.annotator)
    annotator = find_column(table.columns, "annotator", who, table.name, taken=[item, *tags])
    cells = [to_arrow(column, "label").cast(pa.string()).to_pylist() for column in table.ids(tags)]
    words = np.array([[(cell or "").strip().casefold() for cell in column] for column in cells])
    odd = np.argwhere(~np.isin(words, [*_TICKS, ""]).T)
    if len(odd):
        row, tag = odd[0]
        raise DataError(
            f"{table.place(int(row))}: {quoted(tags[tag])} is {quoted(words[tag, row])}; a column per tag "
            "holds 0 or 1"
        )
    sets, which = np.unique(np.isin(words, list(_TICKED)).T, axis=0, return_inverse=True)
    texts = [written(str(tag) for tag, ticked in zip(tags, row, strict=True) if ticked) for row in sets]
    answers = pc.if_else(
        (words != "").any(axis=0), pa.array(texts, pa.string()).take(places(which.ravel())), None
    )
    note = (
        f"answers are read as sets of the {len(tags)} tags with a column of 0 and 1 ({listed(tags)}); name "
        f"others with {setting('label')} if that is wrong"
    )
    ids = [*table.ids([item, annotator]), answers]
    return from_rows(table, wanted, [item, annotator, listed(tags)], ids, "multi", [note])


def looks_pairwise(names: Sequence[str]) -> bool:
    """Whether a table's columns are unmistakably those of comparisons."""
    sides = _sides(names)
    if sides is None or {side.strip().casefold() for side in sides} & _COMMON:
        return False
    plain = {name.strip().casefold() for name in names}
    return _are_chosen(sides) or bool(plain & {"winner", "preference", "preferred", "verdict"})


def _sides(names: Sequence[str]) -> tuple[str, str] | None:
    """The columns of the two things: two sides, or what was chosen and what was rejected."""
    known = {name.strip().casefold(): name for name in names}
    for pair in (*_CHOSEN, *_SIDES):
        if pair[0] in known and pair[1] in known:
            return known[pair[0]], known[pair[1]]
    return None


def _are_chosen(sides: tuple[str, str]) -> bool:
    return tuple(side.strip().casefold() for side in sides) in _CHOSEN


def read_pairs(table: Table, wanted: Wanted) -> Annotations:
    """Comparisons out of a table."""
    sides = _sides(table.columns)
    if sides is None:
        raise DataError(
            f"{table.name}: no two columns of what is compared (such as model_a and model_b, left and right, "
            f"or chosen and rejected); it has {listed(table.columns)}"
        )
    taken, winner = list(sides), None
    if not _are_chosen(sides):
        given = one_column(wanted.label)
        free = {name.strip().casefold(): name for name in table.columns if name not in taken}
        winner = next((free[name] for name in _WINNER if name in free and given is None), None)
        winner = winner or find_column(table.columns, "label", given, table.name, taken=taken)
        taken.append(winner)
    who = _found(table, "annotator", one_column(wanted.annotator), taken)
    taken += [] if who is None else [who]
    question = _found(table, "item", wanted.item, taken)
    names = [*taken, *([question] if question else [])]
    cells = dict(zip(names, table.ids(names), strict=True))
    none = np.zeros(len(cells[sides[0]]), bool)
    if winner is not None:
        none = wanted.missing.among(to_arrow(cells[winner], "label"))
        if none.all():
            raise DataError(f"{table.name}: every winner is blank; there is nothing to read")
    rows = np.flatnonzero(~none)
    texts = {name: to_arrow(column, "thing").cast(pa.string()) for name, column in cells.items()}
    told = {name: as_values(column)[rows] for name, column in texts.items()}
    left, right = (told[side] for side in sides)
    if winner is not None:
        won = _won(table, rows, told[winner], left, right)
    else:  # things whose sides are not told stand in the order of their names
        won = np.where(left > right, "right", "left").astype(object)
        left, right = np.minimum(left, right), np.maximum(left, right)
    same = np.flatnonzero(left == right)
    if len(same):
        raise DataError(
            f"{table.place(int(rows[same[0]]))}: {quoted(left[same[0]])} is compared with itself; correct it"
        )
    item = [f"{a} | {b}" for a, b in zip(left, right, strict=True)]
    if question is not None:
        item = [f"{about}: {pair}" for about, pair in zip(told[question], item, strict=True)]
    first = {name: row for row, name in reversed(list(enumerate(item)))}
    firsts = list(first.values())
    labels = Annotations.from_arrays(
        item,
        np.full(len(left), NOBODY, object) if who is None else told[who],
        won,
        classes=WINNERS,
        items=pa.table({"item": list(first), "left": left[firsts], "right": right[firsts]}),
        duplicates=wanted.duplicates,
        frame_kind=table.frame_kind,
        place=lambda row: table.place(int(rows[row])),
        label_type="pairwise",
        notes=(f"read as comparisons of {len(set(left) | set(right)):,} things",),
    )
    return replace(labels, notes=(*labels.notes, *wanted.missing.notes(int(none.sum()))))


def _found(table: Table, role: str, given: str | None, taken: Sequence[str]) -> str | None:
    """The column of a role, or None: comparisons need name neither annotators nor questions."""
    free = [name for name in table.columns if name not in taken]
    if given is None and not has_column(free, role):
        return None
    return find_column(table.columns, role, given, table.name, taken=taken)


def _won(
    table: Table, rows: NDArray[np.intp], words: NDArray[Any], left: NDArray[Any], right: NDArray[Any]
) -> NDArray[Any]:
    """left, tie or right of every row, from the words of the winner's column or the winner's name."""
    won = np.empty(len(words), object)
    for row, word in enumerate(words):
        plain = "" if word is None else str(word).strip().casefold()
        if word == left[row] or (plain in _LEFT and word != right[row]):
            won[row] = "left"
        elif word == right[row] or plain in _RIGHT:
            won[row] = "right"
        elif _TIE.fullmatch(plain):
            won[row] = "tie"
        else:
            raise DataError(
                f"{table.place(int(rows[row]))}: the winner is {quoted(word)}; give the name of one of the "
                "two, 'left', 'right' or 'tie'"
            )
    return won


# ---- sets of classes ----------------------------------------------------------------------------------
# Lists in JSON lines, Parquet or frames, or texts with a named separator.

_LOOKED_AT = 100  # rows that tell whether a column holds lists


def label_column(table: Table, wanted: Wanted) -> str | None:
    """The column of labels in a table of one row per answer, if it has one."""
    given = wanted.label if isinstance(wanted.label, str) else None
    if given is None and not has_column(table.columns, "label"):
        return None
    taken = [] if given is not None else [name for name in table.columns if has_column([name], "item")]
    return find_column(table.columns, "label", given, table.name, taken=taken)


def holds_lists(table: Table, wanted: Wanted) -> bool:
    """Whether the labels of a table are lists, or texts that are all written as lists."""
    try:
        label = label_column(table, wanted)
    except DataError:
        return False
    if label is None or label not in table.columns:
        return False
    if table.holds_lists(label):
        return True
    first = table.head(_LOOKED_AT, [label]).column(label)
    filled = [cell for cell in first.to_pylist() if cell and cell.strip()] if is_text(first.type) else []
    return bool(filled) and all(_listed(cell) is not None for cell in filled)


def _listed(text: str) -> list[Any] | None:
    """The parts of a text written as a list in JSON or Python; None where it is none."""
    if not text.strip().startswith("[") or not text.strip().endswith("]"):
        return None
    try:
        found = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            return None
    return found if isinstance(found, list) else None


def read_sets(table: Table, wanted: Wanted, separator: str | None) -> Annotations:
    """One row per answer, its label a list, a text written as one or with a separator; blanks are skipped."""
    names = long_columns(table, wanted)
    values = table.typed(names[2:]).column(0).to_pylist()
    texts = [None if value in wanted.missing.words else _text(value, separator) for value in values]
    ids = [*table.ids(names[:2]), pa.array(texts, pa.string())]
    return from_rows(table, wanted, names, ids, "multi", ["answers are read as sets of classes"])


def _text(value: Any, separator: str | None) -> str | None:
    """A cell as a set written out; None where it is blank. An empty list is an empty set."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, str) and separator is not None:
        return written(part.strip() for part in value.split(separator) if part.strip())
    if isinstance(value, str) and value.lstrip().startswith("["):
        parts = _listed(value)
        return written(members_of(value) if parts is None else map(str, parts))
    return written([value] if isinstance(value, str) else map(str, value))
