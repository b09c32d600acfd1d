"""Exports that are tables: one record per answer of a person to an item, with fixed fields.

A format is a specification (:class:`Flat`) of the fields of the item, the annotator and the questions, and of
the records that are skipped. These are Mechanical Turk, Appen (FigureEight, CrowdFlower), Toloka, Label
Studio's JSON-MIN and CSV, and the pandas "split" JSON of the label-distribution papers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

from dissensus.errors import DataError, setting
from dissensus.importers.gather import Gatherer, Record, by_question, cell_labels, parse_json, split_labels
from dissensus.tables.columns import is_remark, listed
from dissensus.tables.delimited import rows
from dissensus.tables.json_lines import JsonStream, records
from dissensus.tables.source import Source, open_source

LocatedRecord = tuple[str, Record]
Records = Sequence[LocatedRecord]
Questions = Mapping[str, Callable[[Record], list[str]]]  # by name, the function that reads a record's labels


@dataclass(frozen=True)
class Flat:
    """Fields of the records of a format.

    ``questions`` takes the first records, the item field and the names of fields that may be answers, and
    returns the questions and the names of the likely ones. ``inputs`` and ``answers`` are the prefixes of
    fields that describe the item and of answers, if the format has any.
    """

    item: str
    annotator: str
    questions: Callable[[Records, str, list[str]], tuple[Questions, list[str]]]
    remedy: str = "export it again"  # if there is no annotator field
    inputs: str = ""
    answers: str = ""
    ignored: re.Pattern[str] = re.compile("(?!)")  # fields that are neither inputs nor answers
    skip_reason: Callable[[Record, bool], str | None] = lambda record, keep_rejected: None
    records: Callable[[Path], Iterator[LocatedRecord]] = lambda path: rows(open_source(path))

    def read(self, path: Path, gather: Gatherer) -> None:
        """Read the labels of one question."""
        iterator = self.records(path)
        first = list(islice(iterator, RECORDS_SAMPLED))
        if not first:
            raise DataError(f"{path}: has a header but no rows; export it again")
        fields = list(dict.fromkeys(name for _, record in first for name in record))
        if self.annotator not in fields:
            raise DataError(f"{path}: has no column {self.annotator!r}; {self.remedy}")
        item_field = self._item_field(fields, gather)
        gather.set_columns(item=item_field, annotator=self.annotator)
        names = [name for name in fields if name.startswith(self.answers) and name != item_field]
        names = [name for name in names if name != self.annotator and not self.ignored.fullmatch(name)]
        if gather.question is not None:
            gather.question = _question_name(gather.question, self.answers)
        questions, likely = self.questions(first, item_field, names)
        question = gather.choose(questions, likely)
        texts = [name for name in (fields if self.inputs else names) if name.startswith(self.inputs)]
        if not self.inputs:
            texts.remove(question)
        blank = {name for name in names if not any(_as_text(record.get(name)).strip() for _, record in first)}
        unread = blank | {_FORM_COLUMN} if self.answers else blank
        for location, record in chain(first, iterator):
            inputs = {name.removeprefix(self.inputs): record[name] for name in texts if name in record}
            item = gather.item(location, record.get(item_field), inputs, self.inputs)
            reason = self.skip_reason(record, gather.keep_rejected)
            if reason is not None:
                gather.skip(reason)
                continue
            labels = gather.parsed(location, questions[question], record)
            if not labels and self._has_other_answer(record, unread):
                gather.skip(LATER_QUESTIONS)
                continue
            gather.label(location, item, person(record.get(self.annotator)), labels)

    def _has_other_answer(self, record: Record, unread: set[str]) -> bool:
        """Return True if a question is answered that no record of the sample answers."""
        filled = [name for name in record if name in unread and _as_text(record[name]).strip()]
        if _FORM_COLUMN in filled:
            return any(_form(record).values())
        return bool(filled)

    def _item_field(self, fields: Sequence[str], gather: Gatherer) -> str:
        """Return the field that identifies items: the named one (with or without prefix), or the usual."""
        inputs = [name for name in fields if self.inputs and name.startswith(self.inputs)]
        usual = inputs[0] if len(inputs) == 1 and self.item not in fields else self.item
        item = gather.item_column or usual
        names = [name for name in (item, self.inputs + item) if name in fields]
        if names:
            return names[0]
        remedy = f"name one with {setting('item')} ({listed(fields)})"
        raise DataError(f"{gather.path}: has no column {item!r} to identify items; {remedy}")


def person(annotator: Any) -> Any:
    """Return an annotator's id; from an object, the e-mail address or id."""
    return annotator.get("email") or annotator.get("id") if isinstance(annotator, dict) else annotator


def _question_name(column: str, prefix: str) -> str:
    """Return the name of a question: the column's without the prefix, and without the ``.label`` of forms."""
    return column.removeprefix(prefix).removesuffix(".label") if prefix else column


def _by_column(names: Sequence[str], prefix: str, parse: Callable[[Any], list[str]]) -> dict[str, Any]:
    """Return questions that have one column each."""

    def labels(name: str, record: Record) -> list[str]:
        return parse(record.get(name))

    return {_question_name(name, prefix): partial(labels, name) for name in names}


def _filled_columns(first: Records, columns: Sequence[str]) -> list[str]:
    """Return the columns that are not blank throughout; all, if every one is blank."""
    return [name for name in columns if any(record[name].strip() for _, record in first)] or list(columns)


# ---- finding the column of answers by its values ------------------------------------------------------

RECORDS_SAMPLED = 1000  # to find the questions
LATER_QUESTIONS = f"answers to questions that the first {RECORDS_SAMPLED:,} records do not have"
_MAX_ANSWERS = 50  # distinct values; a column with more is taken for free text
_MIN_REMARK_WORDS = 3  # on average


def likely_questions(first: Records, item: str, names: Sequence[str]) -> list[str]:
    """Return the columns that look like answers.

    Descriptions of an item are the same in all of its records, so columns that vary within some item are
    questions. If none does (annotators agree, or no item has two records), columns with few distinct values
    are. Columns of remarks and times are never taken for answers.
    """
    answers = [name for name in names if not _holds_remarks(first, name)]
    items = [_as_text(record.get(item)) for _, record in first]
    values = {name: [_as_text(record.get(name)) for _, record in first] for name in answers}
    n_items, max_values = len(set(items)), min(_MAX_ANSWERS, max(1, len(first) // 2))
    varying = [name for name in answers if len(set(zip(items, values[name], strict=True))) > n_items]
    return varying or [name for name in answers if 0 < len(set(values[name]) - {"", "null"}) <= max_values]


_DAY = r"(\d{4}-\d\d?-\d\d?|\d\d?/\d\d?/\d{2,4})([T ]\d\d?:\d\d.*)?"
_CLOCK = r"\d\d?:\d\d(:\d\d(\.\d+)?)?"
_EPOCH = r"1\d{9}(\d{3})?(\.\d+)?"  # seconds or milliseconds since 1970, from 2001 to 2033
_TIME = re.compile(f"{_DAY}|{_CLOCK}|{_EPOCH}")


def _holds_remarks(first: Records, name: str) -> bool:
    """Return True for a column of remarks or times, by its name or by mostly distinct wordy values."""
    texts = [_as_text(record.get(name)) for _, record in first]
    values = [text for text in texts if text not in ("", "null")]
    if is_remark(name) or not values:
        return is_remark(name)
    are_wordy = sum(len(text.split()) for text in values) >= _MIN_REMARK_WORDS * len(values)
    are_times = all(_TIME.fullmatch(text.strip()) for text in values)
    return are_times or (are_wordy and 2 * len(set(values)) > len(values))


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)


# ---- Mechanical Turk ----------------------------------------------------------------------------------
# A question is a column (``Answer.mood`` or ``Answer.mood.label``, several answers joined by ``|``),
# a group of check boxes (``Answer.mood.neg`` = true), or part of the JSON in ``Answer.taskAnswers``.

_REJECTED = "rejected assignments"
_TEST_QUESTIONS = "gold (test question) rows"
_CHECK_BOX_WORDS = {"true", "false", "on", "off", ""}
_FORM_COLUMN = "Answer.taskAnswers"


def _mturk_questions(first: Records, item: str, names: list[str]) -> tuple[Questions, list[str]]:
    columns = _filled_columns(first, names)
    if columns == [_FORM_COLUMN]:
        form_questions: dict[str, None] = {}
        for _, record in first:
            with suppress(ValueError):  # raised again, with its location, when the record is read
                form_questions |= dict.fromkeys(_form(record))

        def labels(question: str, record: Record) -> list[str]:
            return _form(record).get(question, [])

        return {name: partial(labels, name) for name in form_questions}, list(form_questions)
    groups: dict[str, list[str]] = {}  # check boxes by the part of the name before the last dot
    for column in columns:
        if all(record[column].lower() in _CHECK_BOX_WORDS for _, record in first):
            groups.setdefault(_question_name(column.rpartition(".")[0], "Answer."), []).append(column)
    groups = {name: group for name, group in groups.items() if name and len(group) > 1}
    grouped = {column for group in groups.values() for column in group}
    single = [column for column in columns if column not in grouped]
    questions = _by_column(single, "Answer.", lambda cell: split_labels(cell, "|"))
    questions |= {name: partial(_checked_labels, group) for name, group in groups.items()}
    return questions, list(questions)


def _checked_labels(columns: Sequence[str], record: Record) -> list[str]:
    return [name.rpartition(".")[2] for name in columns if record[name].lower() in ("true", "on")]


def _form(record: Record) -> dict[str, list[str]]:
    """Return the labels of a form by question."""
    return by_question(parse_json(record[_FORM_COLUMN])) if record[_FORM_COLUMN] else {}


MTURK = Flat(
    item="HITId",
    annotator="WorkerId",
    remedy="download the batch results again",
    inputs="Input.",
    answers="Answer.",
    questions=_mturk_questions,
    skip_reason=lambda row, keep: None if keep or row.get("AssignmentStatus") != "Rejected" else _REJECTED,
    records=lambda path: rows(open_source(path), optional=frozenset({"Approve", "Reject"})),
)


# ---- Appen --------------------------------------------------------------------------------------------
# A question also has a column ``…_gold``; in a job without test questions it is found by its values.


def _appen_questions(first: Records, item: str, names: list[str]) -> tuple[Questions, list[str]]:
    with_gold = _filled_columns(first, [name for name in names if f"{name}_gold" in first[0][1]])
    likely = with_gold or likely_questions(first, item, names)
    return _by_column(names, "", lambda cell: split_labels(cell, "\n")), likely


def _appen_skip_reason(row: Record, keep_rejected: bool) -> str | None:
    if row.get("_golden", "").lower() == "true":
        return _TEST_QUESTIONS
    return "tainted rows" if row.get("_tainted", "").lower() == "true" else None


APPEN = Flat(
    item="_unit_id",
    annotator="_worker_id",
    remedy="an aggregated report has no workers: download the full report",
    ignored=re.compile(r"_.*|.*_gold(_reason)?", re.DOTALL),
    questions=_appen_questions,
    skip_reason=_appen_skip_reason,
)


# ---- Toloka -------------------------------------------------------------------------------------------


def _toloka_questions(first: Records, item: str, names: list[str]) -> tuple[Questions, list[str]]:
    questions = _by_column(_filled_columns(first, names), "OUTPUT:", lambda cell: cell_labels(cell, "["))
    return questions, list(questions)


def _toloka_skip_reason(row: Record, keep_rejected: bool) -> str | None:
    status = row.get("ASSIGNMENT:status", "").upper()
    if any(name.startswith("GOLDEN:") and value.strip() for name, value in row.items()):
        return _TEST_QUESTIONS
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
    skip_reason=_toloka_skip_reason,
)


# ---- Label Studio, JSON-MIN and CSV -------------------------------------------------------------------
# Several choices are written as ``{"choices": ["a", "b"]}``.


def json_or_table(path: Path) -> Iterator[LocatedRecord]:
    """Yield the records of JSON, or the rows of a delimited table."""
    source = open_source(path)
    return records(source) if source.start[:1] in (b"[", b"{") else rows(source)


LABEL_STUDIO_MIN = Flat(
    item="id",
    annotator="annotator",
    ignored=re.compile("id|annotation_id|created_at|updated_at|lead_time|agreement|history"),
    questions=lambda first, item, names: (
        _by_column(names, "", lambda cell: cell_labels(cell, '{"', "[")),
        likely_questions(first, item, names),
    ),
    records=json_or_table,
)


# ---- pandas "split" JSON ------------------------------------------------------------------------------


def is_split(record: Record) -> bool:
    """Return True for the object of a table with the columns of the label-distribution papers."""
    columns = record.get("columns")
    return isinstance(columns, list) and {"message_id", "worker_id", "label"} <= set(map(str, columns))


def split_records(path: Path) -> Iterator[LocatedRecord]:
    """Yield the rows of a table that pandas wrote with ``orient="split"``."""
    source = open_source(path)
    columns = next((stream.value() for stream in at_member(source, "columns")), None)
    if not isinstance(columns, list) or not all(isinstance(name, str) for name in columns):
        remedy = "write it with pandas' to_json(orient='split')"
        raise DataError(f"{source.name}: has no list of 'columns'; {remedy}")
    values = (row for stream in at_member(source, "data") for row in stream.elements())
    for number, row in enumerate(values, start=1):
        if not isinstance(row, list) or len(row) != len(columns):
            remedy = "export it again"
            raise DataError(f"{path} record {number}: is not a list of {len(columns)} values; {remedy}")
        yield f"record {number}", dict(zip(columns, row, strict=True))


def at_member(source: Source, *path: str) -> Iterator[JsonStream]:
    """Yield the file's stream at the value of a path of keys; others are skipped, arrays by element."""
    with source.text() as text:
        stream = JsonStream(text, source.name)
        yield from _at_path(stream, path)
        if stream.peek():
            raise stream.broken("text after the end of the object")


def _at_path(stream: JsonStream, path: Sequence[str]) -> Iterator[JsonStream]:
    for key in stream.members():
        if key == path[0] and len(path) > 1 and stream.peek() == "{":
            yield from _at_path(stream, path[1:])
        elif key == path[0]:
            yield stream
        elif stream.peek() != "[":
            stream.value()
        else:
            for _ in stream.elements():
                pass


SPLIT_JSON = Flat(
    item="message_id",
    annotator="worker_id",
    ignored=re.compile("message_id"),
    questions=lambda first, item, names: (
        _by_column(names, "", cell_labels),
        [name for name in names if name == "label"],
    ),
    records=split_records,
)
