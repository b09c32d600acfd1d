"""Collection of labels and items by all importers, and conversion of answers to labels.

An importer iterates over its export and calls ``item`` and ``label``. Ids become integers at once, so a label
takes twelve bytes of memory besides the distinct ids and texts.

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
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from dissensus.errors import DataError, did_you_mean, setting
from dissensus.labels.features import TEXT_NAMES
from dissensus.labels.vocabulary import arrow_numbers, quoted, valid_text
from dissensus.tables.columns import listed
from dissensus.tables.json_lines import PLAIN_DECODER, DoubledKeyError, too_deep

Parsed = TypeVar("Parsed")
Record = Mapping[str, Any]

EMPTY_ANSWERS = "empty answers"
_FIRST_PLURAL = re.compile(r"s\b")  # of a reason to skip answers: the first word in -s is the noun
PART_SEPARATOR = " [SEP] "


class NotALabelError(ValueError):
    """An answer is not a class label but, for instance, a span of text."""


def as_id(value: Any) -> str | None:
    """Return an id or label as a string; None if it is blank, null or an object."""
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
    """Return the text of an item; parts of an object or list are joined with ``[SEP]``.

    A conversation (a list of messages with speaker and words) becomes JSON, which pages show as turns.
    """
    if is_conversation(value):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list):
        return PART_SEPARATOR.join(filter(None, map(as_text, value))) or None
    return as_id(value)


def is_conversation(value: Any) -> bool:
    """Return True for a list of at least two messages, each with a speaker and words."""

    def has(message: Any, names: tuple[str, ...]) -> bool:
        return isinstance(message, Mapping) and any(isinstance(message.get(name), str) for name in names)

    speaker, words = ("role", "author", "speaker", "from"), ("content", "text", "value")
    messages = value if isinstance(value, list) else []
    return len(messages) > 1 and all(has(m, speaker) and has(m, words) for m in messages)


def as_labels(value: Any) -> list[str]:
    """Return the distinct labels of one answer; empty if it is blank."""
    if isinstance(value, str):
        return [value] if value.strip() else []
    return list(dict.fromkeys(_labels(value)))


def split_labels(value: str, separator: str) -> list[str]:
    """Return the labels of an answer that joins several in one string."""
    return as_labels([part.strip() for part in value.split(separator)])


def cell_labels(value: Any, *openings: str) -> list[str]:
    """Return the labels of a cell, which is JSON if it begins with one of ``openings``."""
    if isinstance(value, str) and value.startswith(openings):
        with suppress(NotALabelError):
            return as_labels(parse_json(value))
    return as_labels(value)


def by_question(answer: Any) -> dict[str, list[str]]:
    """Return the labels of a nested form by question: ``{"a": {"label": "neg"}, "b": "x"}`` asks a and b."""
    labels: dict[str, list[str]] = {}
    for path, value in _leaves(answer, ()):
        name = ".".join(path[:-1] if path and path[-1] == "label" and len(path) > 1 else path) or "label"
        labels.setdefault(name, []).extend(as_labels(value))
    return labels


def parse_json(text: str) -> Any:
    """Parse JSON inside a string; an object with a key twice raises DoubledKeyError."""
    try:
        value = PLAIN_DECODER.decode(text)
    except DoubledKeyError:
        raise
    except (ValueError, RecursionError):
        raise NotALabelError("is not valid JSON") from None
    if too_deep(text):
        raise NotALabelError("is JSON nested too deeply")
    return value


def _labels(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for part in value:
            if isinstance(part, list | Mapping):
                raise NotALabelError(_region_kind(part) or "is a list of objects, not of labels")
            yield from _labels(part)
    elif isinstance(value, Mapping):
        if _region_kind(value):
            raise NotALabelError(_region_kind(value))
        yield from _labels(_object_labels(value))
    else:
        label = as_id(value)
        if label is not None:
            yield label


def _region_kind(part: Any) -> str:
    """Return a phrase for an answer that marks a span or a box; empty if it does not."""
    if isinstance(part, list):
        numbers = [value for value in part if isinstance(value, int | float) and not isinstance(value, bool)]
        return "marks spans, parts of an item" if len(part) == 3 and len(numbers) == 2 else ""
    keys = {str(key) for key in part}
    boxes = ({"x", "y", "width", "height"}, {"left", "top", "width", "height"}, {"points"})
    if any(box <= keys for box in boxes):
        return "marks boxes, parts of an item"
    spans = ({"start", "end"}, {"start_offset", "end_offset"}, {"startOffset", "endOffset"})
    return "marks spans, parts of an item" if any(pair <= keys for pair in spans) else ""


def _object_labels(answer: Mapping[str, Any]) -> list[Any]:
    """Return the labels in an object that is one answer."""
    for key in ("choices", "label", "labels", "value"):
        if key in answer and not isinstance(answer[key], Mapping):
            return answer[key] if isinstance(answer[key], list) else [answer[key]]
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
    """Labels and items collected from an export.

    The settings are those of :func:`dissensus.importers.load_export`. ``skipped`` counts the answers that are
    not read, by reason.
    """

    path: Path
    format: str
    question: str | None = None
    keep_rejected: bool = False
    item_column: str | None = None
    annotator_column: str | None = None
    text_column: str | None = None

    def __post_init__(self) -> None:
        self.requested = self.question
        self.skipped: Counter[str] = Counter()
        self.questions: dict[str, None] = {}
        self._vocabularies: tuple[dict[str, int], ...] = ({}, {}, {})
        self._codes = (array("i"), array("i"), array("i"))
        self._texts: list[str | None] = []
        self._item_columns: dict[str, list[str | None]] = {}
        self._columns: dict[str, str] = {}
        self._regions: dict[str, str] = {}

    def set_columns(self, **columns: str) -> None:
        """Record the column or key that is read as ``item``, ``annotator`` or ``text``."""
        self._columns = columns | self._columns

    def skip_region(self, question: str, kind: str) -> None:
        """Skip an answer that marks a part of an item, such as spans or boxes."""
        self._regions[question] = kind
        self.skip(f"{kind} ({question})")

    @property
    def n_regions(self) -> int:
        """Number of answers about parts of items."""
        return sum(self.skipped[f"{kind} ({name})"] for name, kind in self._regions.items())

    def error(self, location: str, message: str) -> DataError:
        """Return the error for one record."""
        return DataError(f"{self.path} {location}: {message}")

    def item(
        self, location: str, identifier: Any, fields: Record | None = None, prefix: str = "", **columns: Any
    ) -> int:
        """Return the code of an item, which is added if it is new.

        ``fields`` may contain its text; ``columns`` are further values for the item table.
        """
        name = as_id(identifier)
        if name is None:
            raise self.error(location, "the item has no id; give it one or remove the record")
        code = self._code(0, name, location)
        if code == len(self._texts):
            self._texts.append(None)
        if fields is not None and self._texts[code] is None:
            self._texts[code] = self._text_of(fields, prefix)
        for key, value in columns.items():
            column = self._item_columns.setdefault(key, [])
            column.extend([None] * (code + 1 - len(column)))
            column[code] = column[code] or valid_text(as_id(value) or "") or None
        return code

    def item_value(self, key: str, item: int) -> str | None:
        """Return the value of an item in a column other than its text."""
        column = self._item_columns.get(key, [])
        return column[item] if item < len(column) else None

    def label(self, location: str, item: int, annotator: Any, values: Sequence[str]) -> None:
        """Add an annotator's answer to an item: one label, several, or none (which counts as skipped)."""
        if not values:
            self.skip(EMPTY_ANSWERS)
            return
        name = as_id(annotator)
        if name is None:
            raise self.error(location, "the annotator is missing; fill it in or remove the answer")
        annotator_code = self._code(1, name, location)
        items, annotators, labels = self._codes
        for value in values:
            items.append(item)
            annotators.append(annotator_code)
            labels.append(self._code(2, value, location))

    def answer(self, location: str, item: int, question: str, annotator: Any, value: Any) -> None:
        """Add an annotator's answer in any form, if the question is the one to read."""
        if self.is_requested(question):
            self.label(location, item, annotator, self.parsed(location, as_labels, value))

    def parsed(self, location: str, parse: Callable[..., Parsed], *answer: Any) -> Parsed:
        """Call ``parse``; an answer that is not a label raises an error with its location."""
        try:
            return parse(*answer)
        except DoubledKeyError as error:
            problem = f"the answer has the key {quoted(error.args[0])} twice"
            raise self.error(location, f"{problem}; rename or remove one") from None
        except NotALabelError as error:
            remedy = "only questions with class labels can be read"
            raise self.error(location, f"the answer {error}; {remedy}") from None

    def skip(self, reason: str) -> None:
        """Count an answer that is not read."""
        self.skipped[reason] += 1

    def is_requested(self, question: str) -> bool:
        """Return True for the question to read: the one the user named, or the first."""
        self.questions[question] = None
        self.question = question if self.question is None else self.question
        return question == self.question

    def choose(self, names: Iterable[str], likely: Sequence[str]) -> str:
        """Return the question to read: the one the user named, or the only likely one."""
        names = list(names)
        if self.question is not None and self.question not in names:
            raise self._unknown("question", self.question, names)
        if self.question is None and not likely:
            remedy = f"name it with {setting('question')} ({listed(names)})"
            raise DataError(f"{self.path}: cannot find the column of answers; {remedy}")
        self.questions = dict.fromkeys([*likely, *([self.question] if self.question else [])])
        self.check_question()
        return str(self.question)

    def _text_of(self, fields: Mapping[str, Any], prefix: str) -> str | None:
        """Return an item's text: the named column, a usual one, a conversation, or the longest string."""
        name = self.text_column and self.text_column.removeprefix(prefix)
        if name is not None and name not in fields:
            raise self._unknown("text column", name, list(fields))
        if name is None:
            usual = (name for name in TEXT_NAMES if fields.get(name))
            talks = (key for key, value in fields.items() if is_conversation(value))
            strings = [key for key, value in fields.items() if isinstance(value, str) and value]
            longest = sorted(strings, key=lambda key: -len(fields[key]))[:1]
            name = next(chain(usual, talks, longest), None)
        if name is None:
            return None
        self.set_columns(text=name)
        return valid_text(as_text(fields[name]) or "") or None

    @property
    def columns(self) -> dict[str, str]:
        """Columns or keys of the export that were read, by role."""
        columns = self._columns | {"label": self.question or "label"}
        return {role: columns[role] for role in ("item", "annotator", "label", "text") if role in columns}

    @property
    def notes(self) -> list[str]:
        """Notes on skipped answers: "2 empty answers left out", "1 empty answer left out"."""
        counts = self.skipped.items()
        nouns = [reason if n != 1 else _FIRST_PLURAL.sub("", reason, count=1) for reason, n in counts]
        return [f"{n:,} {noun} left out" for noun, n in zip(nouns, self.skipped.values(), strict=True)]

    @property
    def labels(self) -> pa.Table:
        """The labels: categorical columns item, annotator and label."""
        columns = {}
        roles = ("item", "annotator", "label")
        for role, vocabulary, codes in zip(roles, self._vocabularies, self._codes, strict=True):
            ids, indices = pa.array(list(vocabulary), pa.string()), np.frombuffer(codes, dtype=np.int32)
            columns[role] = pa.DictionaryArray.from_arrays(arrow_numbers(indices), ids)
        return pa.table(columns)

    @property
    def items(self) -> pa.Table | None:
        """Item table with text and further columns; None if only the ids of labelled items are known."""
        n_labelled = len(np.unique(np.frombuffer(self._codes[0], dtype=np.int32)))
        if not self._item_columns and not any(self._texts) and n_labelled == len(self._texts):
            return None
        columns = {"item": list(self._vocabularies[0])} | ({"text": self._texts} if any(self._texts) else {})
        for key, values in self._item_columns.items():
            columns[key] = values + [None] * (len(self._texts) - len(values))
        return pa.table({name: pa.array(values, pa.string()) for name, values in columns.items()})

    def _code(self, column: int, value: str, location: str) -> int:
        vocabulary = self._vocabularies[column]
        code = vocabulary.get(value)
        if code is None:
            if value != valid_text(value):
                raise self.error(location, f"{value!r} is not valid text; correct it")
            code = vocabulary[value] = len(vocabulary)
        return code

    def check_question(self, finished: bool = False) -> None:
        """Refuse several questions, an unknown one and, at the end, an export without labels."""
        if self.requested is None and len(self.questions) > 1:
            remedy = f"choose one, such as {setting('question', next(iter(self.questions)))}"
            raise DataError(f"{self.path}: holds several questions ({listed(self.questions)}); {remedy}")
        if self.question is None:
            self.question = next(iter(self.questions), None)
        if self.questions and self.question not in self.questions:
            raise self._unknown("question", str(self.question), list(self.questions))
        if self._codes[0] or not finished:
            return
        regions = {name: kind for name, kind in self._regions.items() if self.requested in (None, name)}
        if regions:
            problem = f"{listed(regions)} marks {next(iter(regions.values()))}, parts of an item"
            remedy = "only questions with class labels for whole items can be read"
            raise DataError(f"{self.path}: {problem}; {remedy}")
        skipped = listed(note.removesuffix(" left out") for note in self.notes)
        reason = f" ({skipped} left out)" if self.notes else ""
        raise DataError(f"{self.path}: there are no labels{reason}; check the export")

    def _unknown(self, kind: str, name: str, names: list[str]) -> DataError:
        """Return the error for an unknown name, with the nearest one and a list of all."""
        hint = did_you_mean(name, names)
        return DataError(f"{self.path}: has no {kind} {name!r}; {hint}it has {listed(names)}")
