"""Crowd platforms' tables: Mechanical Turk, Appen (FigureEight, CrowdFlower), Toloka and Zooniverse.

One row is one worker's answers to one task; the columns' prefixes tell inputs from answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from dissensus.errors import DataError, setting
from dissensus.importers.answers import (
    as_labels,
    by_question,
    cell_labels,
    likely_questions,
    parse_json,
    sample,
    split_labels,
)
from dissensus.importers.gather import Gatherer
from dissensus.tables.columns import listed
from dissensus.tables.delimited import rows
from dissensus.tables.source import open_source

Row = Mapping[str, str]
Placed = tuple[str, Row]

_REJECTED = "rejected assignments"
_GOLD = "gold (test question) rows"
_TICKS = {"true", "false", "on", "off", ""}


# ---- Mechanical Turk ----------------------------------------------------------------------------------


def read_mturk(path: Path, gather: Gatherer) -> None:
    """Labels of a Mechanical Turk batch: item HITId (or an Input column), worker WorkerId, label Answer.*."""
    first, everything = sample(rows(open_source(path), optional=frozenset({"Approve", "Reject"})))
    _need(path, first, "WorkerId", "download the batch results again")
    item_column = _item_column(first, gather, "HITId", "Input.")
    gather.takes(item=item_column, annotator="WorkerId")
    answers = _answer_reader(first, gather)
    for place, row in everything:
        item = gather.item(place, row[item_column])
        if gather.lacks_text(item):
            gather.describe(item, gather.text_of(_plain(row, "Input."), "Input."))
        if row.get("AssignmentStatus") == "Rejected" and not gather.options.keep_rejected:
            gather.leave_out(_REJECTED)
        else:
            gather.label(place, item, row["WorkerId"], gather.parsed(place, answers, row))


def _answer_reader(first: Sequence[Placed], gather: Gatherer) -> Callable[[Row], list[str]]:
    """How to read the chosen question's labels off a row.

    A question is a column (``Answer.sentiment`` or ``Answer.sentiment.label``, several answers joined by
    ``|``), a group of tick boxes (``Answer.sentiment.neg`` = true), or part of the JSON in
    ``Answer.taskAnswers``.
    """
    gather.question = _question_name(gather.question) if gather.question else None
    columns = _answered(first, [name for name in first[0][1] if name.startswith("Answer.")])
    if columns == ["Answer.taskAnswers"]:
        forms = [gather.parsed(place, _form, row["Answer.taskAnswers"]) for place, row in first]
        names = list(dict.fromkeys(name for form in forms for name in form))
        question = gather.choose(names, names)
        return lambda row: _form(row["Answer.taskAnswers"]).get(question, [])
    groups: dict[str, list[str]] = {}  # columns that share a name up to the last dot: only true and false
    for column in columns:
        if all(row[column].lower() in _TICKS for _, row in first):
            groups.setdefault(_question_name(column.rpartition(".")[0]), []).append(column)
    groups = {name: group for name, group in groups.items() if name and len(group) > 1}
    ticked = {column for group in groups.values() for column in group}
    single = {_question_name(column): column for column in columns if column not in ticked}
    names = [*single, *groups]
    question = gather.choose(names, names)
    if question in groups:
        return lambda row: [
            column.rpartition(".")[2] for column in groups[question] if row[column].lower() in ("true", "on")
        ]
    return lambda row: split_labels(row[single[question]], "|")


def _question_name(column: str) -> str:
    return column.removeprefix("Answer.").removesuffix(".label")


def _form(text: str) -> dict[str, list[str]]:
    return by_question(parse_json(text)) if text else {}


# ---- Appen --------------------------------------------------------------------------------------------


def read_appen(path: Path, gather: Gatherer) -> None:
    """Labels of an Appen full report: item _unit_id, worker _worker_id; one answer a line of a cell."""
    first, everything = sample(rows(open_source(path)))
    _need(path, first, "_worker_id", "an aggregated report has no workers: download the full report")
    item_column = _item_column(first, gather, "_unit_id", "")
    gather.takes(item=item_column, annotator="_worker_id")
    # Questions have a column ``…_gold`` beside them; in a job without test questions the values tell.
    names = [name for name in first[0][1] if not name.startswith("_")]
    names = [name for name in names if not name.endswith(("_gold", "_gold_reason"))]
    with_gold = _answered(first, [name for name in names if f"{name}_gold" in first[0][1]])
    question = gather.choose(names, with_gold or likely_questions(first, item_column, names))
    for place, row in everything:
        item = gather.item(place, row[item_column])
        if gather.lacks_text(item):
            gather.describe(item, gather.text_of({name: row[name] for name in names if name != question}))
        if row.get("_golden", "").lower() == "true":
            gather.leave_out(_GOLD)
        elif row.get("_tainted", "").lower() == "true":
            gather.leave_out("tainted rows")
        else:
            gather.label(place, item, row["_worker_id"], split_labels(row[question], "\n"))


# ---- Toloka -------------------------------------------------------------------------------------------


def read_toloka(path: Path, gather: Gatherer) -> None:
    """Labels of Toloka assignments: item ASSIGNMENT:task_id, worker ASSIGNMENT:worker_id, label OUTPUT:*."""
    first, everything = sample(rows(open_source(path)))
    _need(path, first, "ASSIGNMENT:worker_id", "download the assignments again")
    header = list(first[0][1])
    inputs = [name for name in header if name.startswith("INPUT:")]
    usual = inputs[0] if len(inputs) == 1 and "ASSIGNMENT:task_id" not in header else "ASSIGNMENT:task_id"
    item_column = _item_column(first, gather, usual, "INPUT:")
    gather.takes(item=item_column, annotator="ASSIGNMENT:worker_id")
    gather.question = gather.question.removeprefix("OUTPUT:") if gather.question else None
    answers = [name for name in header if name.startswith("OUTPUT:")]
    names = [name.removeprefix("OUTPUT:") for name in _answered(first, answers)]
    question = "OUTPUT:" + gather.choose(names, names)
    gold_columns = [name for name in header if name.startswith("GOLDEN:")]
    for place, row in everything:
        item = gather.item(place, row[item_column])
        if gather.lacks_text(item):
            gather.describe(item, gather.text_of(_plain(row, "INPUT:"), "INPUT:"))
        status = row.get("ASSIGNMENT:status", "").upper()
        if any(row[name].strip() for name in gold_columns):
            gather.leave_out(_GOLD)
        elif status == "REJECTED" and not gather.options.keep_rejected:
            gather.leave_out(_REJECTED)
        elif status in ("SKIPPED", "EXPIRED", "ACTIVE"):
            gather.leave_out(f"{status.lower()} assignments")
        else:
            gather.label(place, item, row["ASSIGNMENT:worker_id"], cell_labels(row[question], "["))


# ---- Zooniverse ---------------------------------------------------------------------------------------


def read_zooniverse(path: Path, gather: Gatherer) -> None:
    """Labels of one task of a classifications export.

    Questions are the tasks (``T0`` …), their answers JSON in one column. People who did not log in are told
    apart by the name that Zooniverse gives them (``not-logged-in-…``).
    """
    gather.takes(item="subject_ids", annotator="user_name")
    for place, row in rows(open_source(path)):
        item = gather.item(place, row.get("subject_ids"))
        answers = gather.parsed(place, parse_json, row.get("annotations") or "[]")
        for answer in answers if isinstance(answers, list) else []:
            question = str(answer.get("task", "")) if isinstance(answer, Mapping) else ""
            if question and gather.wants(question):
                labels = gather.parsed(place, as_labels, answer.get("value"))
                gather.label(place, item, row.get("user_name"), labels)


# ---- shared -------------------------------------------------------------------------------------------


def _answered(first: Sequence[Placed], columns: Sequence[str]) -> list[str]:
    """The columns that somebody filled in; all, where nobody filled in any."""
    filled = [name for name in columns if any(row[name].strip() for _, row in first)]
    return filled or list(columns)


def _plain(row: Row, prefix: str) -> dict[str, str]:
    """The columns with a prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in row.items() if name.startswith(prefix)}


def _need(path: Path, first: Sequence[Placed], column: str, remedy: str) -> None:
    if not first:
        raise DataError(f"{path}: has a header and no rows; export it again")
    if column not in first[0][1]:
        raise DataError(f"{path}: has no column {column!r}; {remedy}")


def _item_column(first: Sequence[Placed], gather: Gatherer, default: str, prefix: str) -> str:
    """The column that identifies items: the one named (with or without its prefix), or the platform's own."""
    wanted = gather.options.item_column or default
    for name in (wanted, prefix + wanted):
        if name in first[0][1]:
            return name
    raise DataError(
        f"{gather.path}: has no column {wanted!r} to identify items; name one with {setting('item')} "
        f"({listed(first[0][1])})"
    )
