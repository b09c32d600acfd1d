"""Argilla: records with responses, as versions 1 and 2 write them. Only submitted responses are read.

Version 2: flattened (``sentiment.responses``, ``sentiment.responses.users``, ``sentiment.responses.status``)
or nested (``responses.sentiment`` is a list of objects with ``value`` and ``user_id``).

Version 1: feedback records (``responses`` is a list of objects with ``values``, ``user_id`` and ``status``),
the same as a dataset (``sentiment`` is a list of objects with ``value``, ``user_id`` and ``status``, and
there is a ``sentiment-suggestion``), and the older text classification (``annotation``, by
``annotation_agent``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dissensus.importers.gather import Gatherer, as_id, as_labels
from dissensus.tables.json_lines import records
from dissensus.tables.source import open_source

Response = tuple[str, Any, Any, Any]  # question, value, user, status

_FLAT = ".responses"
_SUGGESTED = "-suggestion"
_AGENT = "annotation_agent"
_TOOL_KEYS = {"id", "status", "_server_id", "score", "external_id", "metadata", "vectors"}
_OLD_KEYS = {"annotation", _AGENT, "prediction", "prediction_agent", "multi_label", "explanation", "metrics"}
_OLD_KEYS |= {"event_timestamp", "search_keywords"}


def is_record(record: Mapping[str, Any]) -> bool:
    """Return True for a record in any of the forms."""
    nested = isinstance(record.get("responses"), dict | list) and isinstance(record.get("fields"), dict)
    flat = any(name.endswith(_FLAT + ".users") for name in record)
    old = _AGENT in record and "annotation" in record
    return nested or flat or old or bool("external_id" in record and _suggested(record))


def _suggested(record: Mapping[str, Any]) -> list[str]:
    """Return the questions of a record of a dataset: each also has a column of suggestions."""
    return [name for name in record if name + _SUGGESTED in record]


def read(path: Path, gather: Gatherer) -> None:
    """Read the labels of an Argilla export."""
    for location, record in records(open_source(path)):
        read_record(location, record, gather)


def read_record(location: str, record: Mapping[str, Any], gather: Gatherer) -> None:
    """Read the responses of one record, or of one row of a dataset that Argilla wrote."""
    fields = record.get("fields")
    if not isinstance(fields, dict):
        other = _TOOL_KEYS.union(_suggested(record), _OLD_KEYS if _AGENT in record else ())
        names = [key for key in record if key not in other and "." not in key and _SUGGESTED not in key]
        fields = {name: record[name] for name in names}
        inputs = fields.get("inputs")
        fields = inputs if isinstance(inputs, dict) and not fields.get("text") else fields
    key = gather.item_column
    name = next((name for name in ("id", "external_id") if as_id(record.get(name)) is not None), "")
    flat = any(name.endswith(_FLAT + ".users") for name in record)
    annotator = _AGENT if _AGENT in record else "users" if flat else "user_id"
    gather.set_columns(item=key or name or "number of the record", annotator=annotator)
    # Version 1 may write no id; then the position in the file identifies the record.
    identifier = fields.get(key) if key else record.get(name) if name else location
    item = gather.item(location, identifier, fields)
    for question, value, user, status in _responses(location, record, gather):
        if not gather.is_requested(question):
            continue
        if status is not None and status != "submitted":
            gather.skip(f"{status} responses")
            continue
        gather.label(location, item, user, gather.parsed(location, as_labels, value))


def _responses(location: str, record: Mapping[str, Any], gather: Gatherer) -> Iterator[Response]:
    """Yield every response of a record."""
    responses = record.get("responses")
    if isinstance(responses, dict):
        for question, answers in responses.items():
            yield from _question_responses(location, question, answers, gather)
    elif isinstance(responses, list) and isinstance(record.get("fields"), dict):
        for response in responses:  # one user's answers to all questions
            values = response.get("values") if isinstance(response, dict) else None
            if not isinstance(response, dict) or not isinstance(values, dict | None):
                raise gather.error(location, "a response is not an object with values; export again")
            for question, answer in (values or {}).items():
                value = answer.get("value") if isinstance(answer, dict) else answer
                yield question, value, response.get("user_id"), response.get("status")
    elif _AGENT in record:
        is_discarded = str(record.get("status") or "").lower() == "discarded"
        yield "annotation", record.get("annotation"), record[_AGENT], "discarded" if is_discarded else None
    else:
        for name, values in record.items():
            if name.endswith(_FLAT) and isinstance(values, list):
                yield from _parallel(location, name, record, gather)
        for question in _suggested(record):
            yield from _question_responses(location, question, record[question], gather)


def _question_responses(location: str, question: str, answers: Any, gather: Gatherer) -> Iterator[Response]:
    """Yield the responses to one question: a list of objects, or an object of lists as in tables."""
    if isinstance(answers, dict):
        columns = [answers.get(name) or [] for name in ("value", "user_id", "status")]
        if not all(isinstance(column, list) for column in columns):
            raise gather.error(location, f"the responses to {question!r} are not lists; export again")
        for value, user, status in zip(*columns, strict=False):
            yield question, value, user, status
        return
    for response in answers if isinstance(answers, list) else ():
        if not isinstance(response, dict):
            raise gather.error(location, f"a response to {question!r} is not an object; export again")
        yield question, response.get("value"), response.get("user_id"), response.get("status")


def _parallel(location: str, name: str, record: Mapping[str, Any], gather: Gatherer) -> Iterator[Response]:
    """Yield the responses of a flattened record: parallel lists of values, users and statuses."""
    values, users = record[name], record.get(name + ".users")
    statuses = record.get(name + ".status") or [None] * len(values)
    if not isinstance(users, list) or not isinstance(statuses, list):
        raise gather.error(location, f"{name!r} comes without a list of users; export again")
    if not len(values) == len(users) == len(statuses):
        raise gather.error(location, f"{name!r} and its users and statuses differ in length; export again")
    for value, user, status in zip(values, users, statuses, strict=True):
        yield name.removesuffix(_FLAT), value, user, status
