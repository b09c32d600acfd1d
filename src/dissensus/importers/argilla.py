"""Argilla: records with responses, as versions 1 and 2 write them. Only submitted responses count.

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
    """A record of any form."""
    nested = isinstance(record.get("responses"), dict | list) and isinstance(record.get("fields"), dict)
    flat = any(name.endswith(_FLAT + ".users") for name in record)
    old = _AGENT in record and "annotation" in record
    return nested or flat or old or bool("external_id" in record and _suggested(record))


def _suggested(record: Mapping[str, Any]) -> list[str]:
    """The questions of a record of a dataset: each has a column of suggestions beside it."""
    return [name for name in record if name + _SUGGESTED in record]


def read(path: Path, gather: Gatherer) -> None:
    """Labels of an Argilla export."""
    for place, record in records(open_source(path)):
        read_record(place, record, gather)


def read_record(place: str, record: Mapping[str, Any], gather: Gatherer) -> None:
    """The responses of one record (also a row of a dataset that Argilla wrote)."""
    fields = record.get("fields")
    if not isinstance(fields, dict):
        known = _TOOL_KEYS.union(_suggested(record), _OLD_KEYS if _AGENT in record else ())
        names = [key for key in record if key not in known and "." not in key and _SUGGESTED not in key]
        fields = {name: record[name] for name in names}
        inputs = fields.get("inputs")
        fields = inputs if isinstance(inputs, dict) and not fields.get("text") else fields
    key = gather.item_column
    name = next((name for name in ("id", "external_id") if as_id(record.get(name)) is not None), "")
    flat = any(name.endswith(_FLAT + ".users") for name in record)
    who = _AGENT if _AGENT in record else "users" if flat else "user_id"
    gather.takes(item=key or name or "number of the record", annotator=who)
    # version 1 writes no id where none was given: the record's place in the file is one
    given = fields.get(key) if key else record.get(name) if name else place
    item = gather.item(place, given, fields)
    for question, value, user, status in _responses(place, record, gather):
        if not gather.wants(question):
            continue
        if status is not None and status != "submitted":
            gather.leave_out(f"{status} responses")
            continue
        gather.label(place, item, user, gather.parsed(place, as_labels, value))


def _responses(place: str, record: Mapping[str, Any], gather: Gatherer) -> Iterator[Response]:
    """Every response of a record."""
    responses = record.get("responses")
    if isinstance(responses, dict):
        for question, given in responses.items():
            yield from _given(place, question, given, gather)
    elif isinstance(responses, list) and isinstance(record.get("fields"), dict):
        for response in responses:  # one user's answers to all questions
            values = response.get("values") if isinstance(response, dict) else None
            if not isinstance(response, dict) or not isinstance(values, dict | None):
                raise gather.error(place, "a response is not an object with values; export again")
            for question, answer in (values or {}).items():
                value = answer.get("value") if isinstance(answer, dict) else answer
                yield question, value, response.get("user_id"), response.get("status")
    elif _AGENT in record:
        status: str | None = str(record.get("status") or "").lower()
        status = "discarded" if status == "discarded" else None
        yield "annotation", record.get("annotation"), record[_AGENT], status
    else:
        for name, values in record.items():
            if name.endswith(_FLAT) and isinstance(values, list):
                yield from _parallel(place, name, values, record, gather)
        for question in _suggested(record):
            yield from _given(place, question, record[question], gather)


def _given(place: str, question: str, given: Any, gather: Gatherer) -> Iterator[Response]:
    """The responses to one question: a list of objects, or an object of lists as tables have it."""
    if isinstance(given, dict):
        columns = [given.get(name) or [] for name in ("value", "user_id", "status")]
        if not all(isinstance(column, list) for column in columns):
            raise gather.error(place, f"the responses to {question!r} are no lists; export again")
        for value, user, status in zip(*columns, strict=False):
            yield question, value, user, status
        return
    for response in given if isinstance(given, list) else ():
        if not isinstance(response, dict):
            raise gather.error(place, f"a response to {question!r} is not an object; export again")
        yield question, response.get("value"), response.get("user_id"), response.get("status")


def _parallel(
    place: str, name: str, values: list[Any], record: Mapping[str, Any], gather: Gatherer
) -> Iterator[Response]:
    users = record.get(name + ".users")
    statuses = record.get(name + ".status") or [None] * len(values)
    if not isinstance(users, list) or not isinstance(statuses, list):
        raise gather.error(place, f"{name!r} has no list of users beside it; export again")
    if not len(values) == len(users) == len(statuses):
        raise gather.error(place, f"{name!r} and its users and statuses differ in length; export again")
    question = name.removesuffix(_FLAT)
    for value, user, status in zip(values, users, statuses, strict=True):
        yield question, value, user, status
