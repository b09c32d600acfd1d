"""Argilla 2: records with responses, flattened (parallel lists) or nested.

Flattened: ``sentiment.responses``, ``sentiment.responses.users`` and ``sentiment.responses.status``. Nested:
``responses.sentiment`` is a list of objects with ``value`` and ``user_id``. Only submitted responses count.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dissensus.io.importers.answers import as_labels
from dissensus.io.importers.gather import Gatherer
from dissensus.io.json_lines import records
from dissensus.io.source import open_source

_FLAT = ".responses"
_TOOL_KEYS = {"id", "status", "_server_id", "score"}


def is_record(record: Mapping[str, Any]) -> bool:
    """A record of either form."""
    nested = isinstance(record.get("responses"), dict) and isinstance(record.get("fields"), dict)
    return nested or any(name.endswith(_FLAT + ".users") for name in record)


def read(path: Path, gather: Gatherer) -> None:
    """Labels of an Argilla export."""
    for place, record in records(open_source(path)):
        read_record(place, record, gather)


def read_record(place: str, record: Mapping[str, Any], gather: Gatherer) -> None:
    """The responses of one record (also a row of a dataset that Argilla wrote)."""
    fields = record.get("fields")
    fields = fields if isinstance(fields, dict) else _flat_fields(record)
    key = gather.options.item_column
    gather.takes(item=key or "id", annotator="users" if fields is not record.get("fields") else "user_id")
    item = gather.item(place, fields.get(key) if key else record.get("id"), gather.text_of(fields))
    for question, value, user, status in _responses(place, record, gather):
        if not gather.wants(question):
            continue
        if status is not None and status != "submitted":
            gather.leave_out(f"{status} responses")
            continue
        gather.label(place, item, user, gather.parsed(place, as_labels, value))


def _flat_fields(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in _TOOL_KEYS and "." not in key}


def _responses(
    place: str, record: Mapping[str, Any], gather: Gatherer
) -> Iterator[tuple[str, Any, Any, Any]]:
    """(question, value, user, status) of every response of a record."""
    nested = record.get("responses")
    if isinstance(nested, dict):
        for question, responses in nested.items():
            for response in responses if isinstance(responses, list) else ():
                if not isinstance(response, dict):
                    raise gather.error(place, f"a response to {question!r} is not an object; export again")
                yield question, response.get("value"), response.get("user_id"), response.get("status")
        return
    for name, values in record.items():
        if name.endswith(_FLAT) and isinstance(values, list):
            yield from _parallel(place, name, values, record, gather)


def _parallel(
    place: str, name: str, values: list[Any], record: Mapping[str, Any], gather: Gatherer
) -> Iterator[tuple[str, Any, Any, Any]]:
    users = record.get(name + ".users")
    statuses = record.get(name + ".status") or [None] * len(values)
    if not isinstance(users, list) or not isinstance(statuses, list):
        raise gather.error(place, f"{name!r} has no list of users beside it; export again")
    if not len(values) == len(users) == len(statuses):
        raise gather.error(place, f"{name!r} and its users and statuses differ in length; export again")
    question = name.removesuffix(_FLAT)
    for value, user, status in zip(values, users, statuses, strict=True):
        yield question, value, user, status
