"""What every importer fills: labels, items and the count of what was left out; and answers as plain labels.

An importer walks its export and calls ``item`` and ``label``; ids become integers at once, so a million
labels cost twelve bytes each plus the distinct ids and texts.

An answer may be a word, a number, a list of words, or an object such as ``{"choices": ["neg"]}``,
``{"label": "neg"}`` or ``{"neg": true, "pos": false}``; forms with several questions nest such objects.
"""

from __future__ import annotations

import json
import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from dissensus.errors import DataError, did_you_mean, setting
from dissensus.tables.columns import TEXT_NAMES, listed
from dissensus.tables.json_lines import too_deep

Parsed = TypeVar("Parsed")
Record = Mapping[str, Any]

EMPTY = "empty answers"
_PLURAL = re.compile(r"s\b")  # reasons have no word in -s before their noun
_PIECE = 1 << 22  # labels turned into strings at a time


PART_SEPARATOR = " [SEP] "


class NotALabelError(ValueError):
    """An answer that is no class label, a span of text for instance."""


def as_id(value: Any) -> str | None:
    """An id or label as a string; None where there is none (blank, null, or an object)."""
    if isinstance(value, str):
        return value if value.strip() else None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:.0f}" if value.is_integer() and abs(value) < 1e15 else repr(value)
    return None


def as_text(value: Any) -> str | None:
    """The text of an item; the parts of an object or list are joined with ``[SEP]``."""
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        parts = [part for part in map(as_text, value) if part]
        return PART_SEPARATOR.join(parts) or None
    return as_id(value)


def whole_text(text: str) -> str:
    """Text that can be written as UTF-8: half a character (a lone surrogate, in JSON) becomes ``?``."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def as_labels(value: Any) -> list[str]:
    """The labels of one answer, each once; none for a blank one."""
    if isinstance(value, str):
        return [value] if value.strip() else []
    return list(dict.fromkeys(_labels(value)))


def split_labels(value: str, separator: str) -> list[str]:
    """The labels of an answer that joins several in one string."""
    if separator not in value:
        return as_labels(value.strip())
    return as_labels([part.strip() for part in value.split(separator)])


def cell_labels(value: Any, *openings: str) -> list[str]:
    """The labels of a cell that may hold JSON, told by how it begins: ``["a", "b"]``."""
    if isinstance(value, str) and value.startswith(openings):
        try:
            return as_labels(parse_json(value))
        except NotALabelError:
            return as_labels(value)
    return as_labels(value)


def by_question(answer: Any) -> dict[str, list[str]]:
    """The labels of a nested form by question: ``{"a": {"label": "neg"}, "b": "x"}`` asks a and b."""
    found: dict[str, list[str]] = {}
    for path, value in _leaves(answer, ()):
        name = ".".join(path[:-1] if path and path[-1] == "label" and len(path) > 1 else path) or "label"
        found.setdefault(name, []).extend(as_labels(value))
    return found


def parse_json(text: str) -> Any:
    """JSON inside a string; NotALabelError where it is none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise NotALabelError("is not valid JSON") from None
    if too_deep(text):
        raise NotALabelError("is JSON nested too deeply")
    return value


def _labels(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for part in value:
            if isinstance(part, list | Mapping):
                raise NotALabelError(_region_words(part) or "is a list of objects, not of labels")
            yield from _labels(part)
    elif isinstance(value, Mapping):
        if _region_words(value):
            raise NotALabelError(_region_words(value))
        yield from _labels(_inside(value))
    else:
        label = as_id(value)
        if label is not None:
            yield label


def _region_words(part: Any) -> str:
    """What an answer marks, where it is a span or a box and no label; empty otherwise."""
    if isinstance(part, list):
        places = [value for value in part if isinstance(value, int | float) and not isinstance(value, bool)]
        return "marks spans, parts of an item" if len(part) == 3 and len(places) == 2 else ""
    keys = {str(key) for key in part}
    boxes = ({"x", "y", "width", "height"}, {"left", "top", "width", "height"}, {"points"})
    if any(box <= keys for box in boxes):
        return "marks boxes, parts of an item"
    spans = ({"start", "end"}, {"start_offset", "end_offset"}, {"startOffset", "endOffset"})
    return "marks spans, parts of an item" if any(pair <= keys for pair in spans) else ""


def _inside(answer: Mapping[str, Any]) -> list[Any]:
    """The labels within an object that stands for one answer."""
    for key in ("choices", "label", "labels", "value"):
        if key in answer and not isinstance(answer[key], Mapping):
            inside = answer[key]
            return inside if isinstance(inside, list) else [inside]
    if _is_tick_list(answer):
        return [name for name, ticked in answer.items() if ticked]
    if not answer:
        return []
    raise NotALabelError("is an object without a label")


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    if isinstance(value, list) and any(isinstance(part, Mapping) for part in value):
        for part in value:
            yield from _leaves(part, path)
    elif isinstance(value, Mapping) and not _is_tick_list(value):
        for key, part in value.items():
            yield from _leaves(part, (*path, str(key)))
    else:
        yield path, value


def _is_tick_list(value: Mapping[str, Any]) -> bool:
    return bool(value) and all(isinstance(ticked, bool) for ticked in value.values())


# ---- gathering ----------------------------------------------------------------------------------------


@dataclass
class Gatherer:
    """Collects labels and items while an export is read.

    The settings are those of :func:`dissensus.importers.load_export`. ``left_out`` counts, by reason in plain
    words, what the export holds and the labels do not.
    """

    path: Path
    format: str
    question: str | None = None
    keep_rejected: bool = False
    item_column: str | None = None
    annotator_column: str | None = None
    text_column: str | None = None

    def __post_init__(self) -> None:
        self.asked = self.question
        self.left_out: Counter[str] = Counter()
        self.questions: dict[str, None] = {}
        self._vocabularies: tuple[dict[str, int], ...] = ({}, {}, {})
        self._codes = (array("i"), array("i"), array("i"))
        self._texts: list[str | None] = []
        self._side: dict[str, list[str | None]] = {}
        self._columns: dict[str, str] = {}
        self._regions: dict[str, str] = {}

    def takes(self, **columns: str) -> None:
        """Note which column or key is taken for an ``item``, ``annotator`` or ``text``."""
        self._columns |= {role: name for role, name in columns.items() if role not in self._columns}

    def region(self, question: str, kind: str) -> None:
        """Note an answer that marks a part of an item, a span or a box: it is no label of the whole."""
        self._regions[question] = kind
        self.leave_out(f"{kind} ({question})")

    @property
    def n_regions(self) -> int:
        """How many answers about parts of items there were."""
        return sum(self.left_out[f"{kind} ({name})"] for name, kind in self._regions.items())

    def error(self, place: str, message: str) -> DataError:
        """The error of one record: file, place, what is wrong and what to do."""
        return DataError(f"{self.path} {place}: {message}")

    def item(
        self,
        place: str,
        identifier: Any,
        fields: Mapping[str, Any] | None = None,
        prefix: str = "",
        **side: Any,
    ) -> int:
        """The code of an item, seen for the first time or again.

        Its text is in one of the ``fields``, which are looked at until one is found.
        """
        name = as_id(identifier)
        if name is None:
            raise self.error(place, "the item has no id; give it one or remove the record")
        code = self._code(0, name, place)
        if code == len(self._texts):
            self._texts.append(None)
        if fields is not None and self._texts[code] is None:
            self._texts[code] = self._text_of(fields, prefix)
        for key, value in side.items():
            column = self._side.setdefault(key, [])
            column.extend([None] * (code + 1 - len(column)))
            column[code] = column[code] or whole_text(as_id(value) or "") or None
        return code

    def side(self, key: str, item: int) -> str | None:
        """What is known of an item beside its text."""
        column = self._side.get(key, [])
        return column[item] if item < len(column) else None

    def label(self, place: str, item: int, annotator: Any, values: Sequence[str]) -> None:
        """One annotator's answer to one item: a label, several, or none (counted as left out)."""
        if not values:
            self.leave_out(EMPTY)
            return
        name = as_id(annotator)
        if name is None:
            raise self.error(place, "the annotator is missing; fill it in or remove the answer")
        who = self._code(1, name, place)
        items, annotators, labels = self._codes
        for value in values:
            items.append(item)
            annotators.append(who)
            labels.append(self._code(2, value, place))

    def answer(self, place: str, item: int, question: str, annotator: Any, value: Any) -> None:
        """One annotator's answer to one question, as tools write it, if the question is the one to read."""
        if self.wants(question):
            self.label(place, item, annotator, self.parsed(place, as_labels, value))

    def parsed(self, place: str, parse: Callable[..., Parsed], *answer: Any) -> Parsed:
        """An answer read by ``parse``; one that is no label becomes an error that says where."""
        try:
            return parse(*answer)
        except NotALabelError as error:
            raise self.error(
                place, f"the answer {error}; only questions with class labels can be read"
            ) from None

    def leave_out(self, reason: str) -> None:
        """Count what is not taken over."""
        self.left_out[reason] += 1

    def wants(self, question: str) -> bool:
        """Whether this question is the one to read; the first seen, unless the user named one."""
        self.questions[question] = None
        self.question = question if self.question is None else self.question
        return question == self.question

    def choose(self, names: Iterable[str], likely: Sequence[str]) -> str:
        """The question to read where all names are known: the one asked for, or the only likely one."""
        names = list(names)
        if self.question is not None and self.question not in names:
            raise self._unknown("question", self.question, names)
        if self.question is None and not likely:
            raise DataError(
                f"{self.path}: cannot tell which column holds the answers; name it with "
                f"{setting('question')} ({listed(names)})"
            )
        self.questions = dict.fromkeys([*likely, *([self.question] if self.question else [])])
        self.settle()
        return str(self.question)

    def _text_of(self, fields: Mapping[str, Any], prefix: str) -> str | None:
        """The text of an item: the column named, else one with a usual name, else the first that is text."""
        name = self.text_column and self.text_column.removeprefix(prefix)
        if name is not None and name not in fields:
            raise self._unknown("text column", name, list(fields))
        if name is None:
            usual = (name for name in TEXT_NAMES if fields.get(name))
            texts = (name for name, value in fields.items() if isinstance(value, str) and value)
            name = next(chain(usual, texts), None)
        if name is None:
            return None
        self.takes(text=name)
        return whole_text(as_text(fields[name]) or "") or None

    @property
    def columns(self) -> dict[str, str]:
        """Which column or key of the export was taken, by role."""
        columns = self._columns | {"label": self.question or "label"}
        return {role: columns[role] for role in ("item", "annotator", "label", "text") if role in columns}

    @property
    def notes(self) -> list[str]:
        """What was left out, in words: "2 empty answers left out", "1 empty answer left out"."""
        return [
            f"{number:,} {reason} left out"
            if number != 1
            else f"1 {_PLURAL.sub('', reason, count=1)} left out"
            for reason, number in self.left_out.items()
        ]

    @property
    def labels(self) -> pa.Table:
        """The gathered labels: string columns item, annotator and label."""
        labels = {}
        roles = ("item", "annotator", "label")
        for role, vocabulary, coded in zip(roles, self._vocabularies, self._codes, strict=True):
            # in pieces, since one Arrow string array holds at most 2 GB
            distinct, codes = pa.array(list(vocabulary), pa.string()), np.frombuffer(coded, dtype=np.int32)
            pieces = [distinct.take(pa.array(codes[at : at + _PIECE])) for at in range(0, len(codes), _PIECE)]
            labels[role] = pa.chunked_array(pieces)
        return pa.table(labels)

    @property
    def items(self) -> pa.Table | None:
        """Item, text and further columns; None where the export says nothing of the items but their ids."""
        n_labelled = len(np.unique(np.frombuffer(self._codes[0], dtype=np.int32)))
        if not self._side and not any(self._texts) and n_labelled == len(self._texts):
            return None
        columns = {"item": list(self._vocabularies[0])} | ({"text": self._texts} if any(self._texts) else {})
        for key, values in self._side.items():
            columns[key] = values + [None] * (len(self._texts) - len(values))
        return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})

    def _code(self, column: int, value: str, place: str) -> int:
        vocabulary = self._vocabularies[column]
        code = vocabulary.get(value)
        if code is None:
            if value != whole_text(value):
                raise self.error(place, f"{value!r} is not valid text; correct it")
            code = vocabulary[value] = len(vocabulary)
        return code

    def settle(self, finished: bool = False) -> None:
        """Refuse several questions unasked, a question that is not there and, at the end, no label at all."""
        if self.asked is None and len(self.questions) > 1:
            raise DataError(
                f"{self.path}: holds several questions ({listed(self.questions)}); choose one, such as "
                f"{setting('question', next(iter(self.questions)))}"
            )
        if self.question is None:
            self.question = next(iter(self.questions), None)
        if self.questions and self.question not in self.questions:
            raise self._unknown("question", str(self.question), list(self.questions))
        if self._codes[0] or not finished:
            return
        marked = self._regions if self.asked is None else {self.asked: self._regions.get(self.asked)}
        region = next((kind for kind in marked.values() if kind), None)
        if region is not None:
            raise DataError(
                f"{self.path}: {listed(marked)} marks {region}, parts of an item; only questions with class "
                "labels for whole items can be read"
            )
        left_out = listed(note.removesuffix(" left out") for note in self.notes)
        why = f" ({left_out} left out)" if self.notes else ""
        raise DataError(f"{self.path}: no label is left{why}; check the export")

    def _unknown(self, what: str, wanted: str, names: list[str]) -> DataError:
        """The error that says what to type instead: the nearest name, and all of them."""
        near = did_you_mean(wanted, names)
        return DataError(f"{self.path}: has no {what} {wanted!r}; {near}it has {listed(names)}")
