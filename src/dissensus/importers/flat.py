"""Exports that are tables: one record is one person's answers to one item, and each field has one meaning.

A format is a specification (:class:`Flat`): which fields are the item, the annotator and the questions, and
which records are left out. Read so are Mechanical Turk, Appen (FigureEight, CrowdFlower), Toloka, Label
Studio's JSON-MIN and CSV, and the pandas "split" JSON of the label-distribution papers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from dissensus.errors import DataError, setting
from dissensus.importers.gather import (
    Gatherer,
    NotALabelError,
    Record,
    as_labels,
    by_question,
    cell_labels,
    parse_json,
    split_labels,
)
from dissensus.tables.columns import is_remark, listed
from dissensus.tables.delimited import rows
from dissensus.tables.json_lines import JsonStream, records
from dissensus.tables.source import Source, open_source

Placed = tuple[str, Record]
Questions = Mapping[str, Callable[[Record], list[str]]]  # by name, how the labels are read off a record


@dataclass(frozen=True)
class Flat:
    """Which fields of a record are what.

    ``questions`` are found from the first records, the item field, and the names of fields that may be
    answers; with them come the names of those that are likely. ``inputs`` is the prefix of fields that
    describe the item, where the format has one, and ``answers`` that of answers.
    """

    item: str
    annotator: str
    questions: Callable[[Sequence[Placed], str, list[str]], tuple[Questions, list[str]]]
    remedy: str = "export it again"  # where there is no field of annotators
    inputs: str = ""
    answers: str = ""
    others: re.Pattern[str] = re.compile("(?!)")  # fields that are neither inputs nor answers
    left_out: Callable[[Record, bool], str | None] = lambda record, keep_rejected: None
    records: Callable[[Path], Iterator[Placed]] = lambda path: rows(open_source(path))

    def read(self, path: Path, gather: Gatherer) -> None:
        """Gather the labels of one question."""
        iterator = self.records(path)
        first = list(islice(iterator, SAMPLE))
        if not first:
            raise DataError(f"{path}: has a header and no rows; export it again")
        fields = list(dict.fromkeys(name for _, record in first for name in record))
        if self.annotator not in fields:
            raise DataError(f"{path}: has no column {self.annotator!r}; {self.remedy}")
        item_field = self._item_field(fields, gather)
        gather.takes(item=item_field, annotator=self.annotator)
        names = [name for name in fields if name.startswith(self.answers) and name != item_field]
        names = [name for name in names if name != self.annotator and not self.others.fullmatch(name)]
        if gather.question is not None:
            gather.question = _plain(gather.question, self.answers)
        questions, likely = self.questions(first, item_field, names)
        question = gather.choose(questions, likely)
        texts = [name for name in (fields if self.inputs else names) if name.startswith(self.inputs)]
        if not self.inputs:
            texts.remove(question)
        for place, record in chain(first, iterator):
            known = {name.removeprefix(self.inputs): record[name] for name in texts if name in record}
            item = gather.item(place, record.get(item_field), known, self.inputs)
            reason = self.left_out(record, gather.keep_rejected)
            if reason is not None:
                gather.leave_out(reason)
                continue
            who = record.get(self.annotator)
            labels = gather.parsed(place, questions[question], record)
            gather.label(place, item, person(who), labels)

    def _item_field(self, fields: Sequence[str], gather: Gatherer) -> str:
        """The field that identifies items: the one named (with or without its prefix), or the tool's own."""
        inputs = [name for name in fields if self.inputs and name.startswith(self.inputs)]
        usual = inputs[0] if len(inputs) == 1 and self.item not in fields else self.item
        wanted = gather.item_column or usual
        for name in (wanted, self.inputs + wanted):
            if name in fields:
                return name
        raise DataError(
            f"{gather.path}: has no column {wanted!r} to identify items; name one with {setting('item')} "
            f"({listed(fields)})"
        )


def person(annotator: Any) -> Any:
    """An annotator's id, or of an object that stands for one the e-mail address or id."""
    return annotator.get("email") or annotator.get("id") if isinstance(annotator, dict) else annotator


def _plain(name: str, prefix: str) -> str:
    """The name of a question: a column's without its prefix, and without ``.label`` of a form."""
    return name.removeprefix(prefix).removesuffix(".label") if prefix else name


def _by_column(
    names: Sequence[str], prefix: str, labels: Callable[[Any], list[str]]
) -> dict[str, Callable[[Record], list[str]]]:
    """Questions that are a column each."""
    return {_plain(name, prefix): partial(_of_column, labels, name) for name in names}


def _of_column(labels: Callable[[Any], list[str]], name: str, record: Record) -> list[str]:
    return labels(record.get(name))


def _answered(first: Sequence[Placed], columns: Sequence[str]) -> list[str]:
    """The columns that are filled in somewhere; all, where none is."""
    filled = [name for name in columns if any(record[name].strip() for _, record in first)]
    return filled or list(columns)


# ---- which column holds the answers, where nothing but the values can tell ----------------------------

SAMPLE = 1000  # records looked at before the first is imported
_MANY = 50  # a question with more answers than this is taken for free text


def likely_questions(first: Sequence[Placed], item: str, names: Sequence[str]) -> list[str]:
    """The columns that look like answers.

    What is known of an item is the same in each of its records; answers differ. Columns that differ within
    some item are the questions. Where nobody disagrees (or nobody shares an item) they are the columns with
    few distinct values. Remarks in words and times are never taken for answers unasked.
    """
    answers = [name for name in names if not _holds_remarks(first, name)]
    items = [_key(record.get(item)) for _, record in first]
    values = {name: [_key(record.get(name)) for _, record in first] for name in answers}
    n_items, few = len(set(items)), min(_MANY, max(1, len(first) // 2))
    differing = [name for name in answers if len(set(zip(items, values[name], strict=True))) > n_items]
    return differing or [name for name in answers if 0 < len(set(values[name]) - {"", "null"}) <= few]


_DAY = r"(\d{4}-\d\d?-\d\d?|\d\d?/\d\d?/\d{2,4})([T ]\d\d?:\d\d.*)?"
_CLOCK = r"\d\d?:\d\d(:\d\d(\.\d+)?)?"
_EPOCH = r"1\d{9}(\d{3})?(\.\d+)?"  # seconds or milliseconds since 1970, from 2001 to 2033
_TIME = re.compile(f"{_DAY}|{_CLOCK}|{_EPOCH}")
_WORDY = 3  # words of a remark, on average


def _holds_remarks(first: Sequence[Placed], name: str) -> bool:
    """Whether a column holds remarks or times: by its name, or texts of words that hardly ever come again."""
    values = [text for _, record in first if (text := _key(record.get(name))) not in ("", "null")]
    if is_remark(name) or not values:
        return is_remark(name)
    if all(_TIME.fullmatch(text.strip()) for text in values):
        return True
    n_words = sum(len(text.split()) for text in values)
    return 2 * len(set(values)) > len(values) and n_words >= _WORDY * len(values)


def _key(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


# ---- Mechanical Turk ----------------------------------------------------------------------------------
# A question is a column (``Answer.mood`` or ``Answer.mood.label``, several answers joined by ``|``),
# a group of tick boxes (``Answer.mood.neg`` = true), or part of the JSON in ``Answer.taskAnswers``.

_REJECTED = "rejected assignments"
_GOLD = "gold (test question) rows"
_TICKS = {"true", "false", "on", "off", ""}
_FORM = "Answer.taskAnswers"


def _mturk_questions(first: Sequence[Placed], item: str, names: list[str]) -> tuple[Questions, list[str]]:
    columns = _answered(first, names)
    if columns == [_FORM]:
        asked = dict.fromkeys(name for _, record in first for name in _form(record))
        return {name: partial(_of_form, name) for name in asked}, list(asked)
    groups: dict[str, list[str]] = {}  # columns that share a name up to the last dot: only true and false
    for column in columns:
        if all(record[column].lower() in _TICKS for _, record in first):
            groups.setdefault(_plain(column.rpartition(".")[0], "Answer."), []).append(column)
    groups = {name: group for name, group in groups.items() if name and len(group) > 1}
    ticked = {column for group in groups.values() for column in group}
    single = [column for column in columns if column not in ticked]
    found = _by_column(single, "Answer.", lambda cell: split_labels(cell, "|"))
    found |= {name: partial(_of_ticks, group) for name, group in groups.items()}
    return found, list(found)


def _of_ticks(columns: Sequence[str], record: Record) -> list[str]:
    return [name.rpartition(".")[2] for name in columns if record[name].lower() in ("true", "on")]


def _of_form(question: str, record: Record) -> list[str]:
    return by_question(parse_json(record[_FORM])).get(question, []) if record[_FORM] else []


def _form(record: Record) -> dict[str, list[str]]:
    """The answers of a form; none where it cannot be read, which is an error when its turn comes."""
    try:
        return by_question(parse_json(record[_FORM])) if record[_FORM] else {}
    except NotALabelError:
        return {}


MTURK = Flat(
    item="HITId",
    annotator="WorkerId",
    remedy="download the batch results again",
    inputs="Input.",
    answers="Answer.",
    questions=_mturk_questions,
    left_out=lambda row, keep: _REJECTED if row.get("AssignmentStatus") == "Rejected" and not keep else None,
    records=lambda path: rows(open_source(path), optional=frozenset({"Approve", "Reject"})),
)


# ---- Appen --------------------------------------------------------------------------------------------
# Questions have a column ``…_gold`` beside them; in a job without test questions the values tell.


def _appen_questions(first: Sequence[Placed], item: str, names: list[str]) -> tuple[Questions, list[str]]:
    with_gold = _answered(first, [name for name in names if f"{name}_gold" in first[0][1]])
    likely = with_gold or likely_questions(first, item, names)
    return _by_column(names, "", lambda cell: split_labels(cell, "\n")), likely


def _appen_left_out(row: Record, keep_rejected: bool) -> str | None:
    if row.get("_golden", "").lower() == "true":
        return _GOLD
    return "tainted rows" if row.get("_tainted", "").lower() == "true" else None


APPEN = Flat(
    item="_unit_id",
    annotator="_worker_id",
    remedy="an aggregated report has no workers: download the full report",
    others=re.compile(r"_.*|.*_gold(_reason)?", re.DOTALL),
    questions=_appen_questions,
    left_out=_appen_left_out,
)


# ---- Toloka -------------------------------------------------------------------------------------------


def _toloka_questions(first: Sequence[Placed], item: str, names: list[str]) -> tuple[Questions, list[str]]:
    found = _by_column(_answered(first, names), "OUTPUT:", lambda cell: cell_labels(cell, "["))
    return found, list(found)


def _toloka_left_out(row: Record, keep_rejected: bool) -> str | None:
    status = row.get("ASSIGNMENT:status", "").upper()
    if any(name.startswith("GOLDEN:") and value.strip() for name, value in row.items()):
        return _GOLD
    if status == "REJECTED":
        return None if keep_rejected else _REJECTED
    return f"{status.lower()} assignments" if status in ("SKIPPED", "EXPIRED", "ACTIVE") else None


TOLOKA = Flat(
    item="ASSIGNMENT:task_id",
    annotator="ASSIGNMENT:worker_id",
    remedy="download the assignments again",
    inputs="INPUT:",
    answers="OUTPUT:",
    questions=_toloka_questions,
    left_out=_toloka_left_out,
)


# ---- Label Studio, JSON-MIN and CSV -------------------------------------------------------------------
# Several choices are written as ``{"choices": ["a", "b"]}``.


def _min_records(path: Path) -> Iterator[Placed]:
    source = open_source(path)
    return records(source) if source.start[:1] in (b"[", b"{") else rows(source)


LABEL_STUDIO_MIN = Flat(
    item="id",
    annotator="annotator",
    others=re.compile("id|annotation_id|created_at|updated_at|lead_time|agreement|history"),
    questions=lambda first, item, names: (
        _by_column(names, "", lambda cell: cell_labels(cell, '{"', "[")),
        likely_questions(first, item, names),
    ),
    records=_min_records,
)


# ---- pandas "split" JSON ------------------------------------------------------------------------------


def _split_records(path: Path) -> Iterator[Placed]:
    """The rows of a table written by pandas with ``orient="split"``."""
    source = open_source(path)
    columns = next((stream.value() for stream in _at_member(source, "columns")), None)
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        raise DataError(
            f"{source.name}: has no list of 'columns'; write it with pandas' to_json(orient='split')"
        )
    values = (row for stream in _at_member(source, "data") for row in stream.elements())
    for number, row in enumerate(values, start=1):
        if not isinstance(row, list) or len(row) != len(columns):
            raise DataError(
                f"{path} record {number}: is not a list of {len(columns)} values; export it again"
            )
        yield f"record {number}", dict(zip(columns, row, strict=True))


def _at_member(source: Source, wanted: str) -> Iterator[JsonStream]:
    """The file's stream at the value of one key; the rest is skipped, long arrays piece by piece."""
    with source.text() as text:
        stream = JsonStream(text, source.name)
        for key in stream.members():
            if key == wanted:
                yield stream
            elif stream.peek() != "[":
                stream.value()
            else:
                for _ in stream.elements():
                    pass


SPLIT = Flat(
    item="message_id",
    annotator="worker_id",
    others=re.compile("message_id"),
    questions=lambda first, item, names: (
        _by_column(names, "", as_labels),
        [name for name in names if name == "label"],
    ),
    records=_split_records,
)
