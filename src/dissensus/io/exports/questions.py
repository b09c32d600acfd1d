"""Which column of a table holds the answers, where nothing but the values can tell."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

SAMPLE = 1000  # records looked at before the first is imported
_MANY = 50  # a question with more answers than this is taken for free text

Placed = tuple[str, Mapping[str, Any]]


def sample(records: Iterator[Any]) -> tuple[list[Any], Iterator[Any]]:
    """The first records, and an iterator over all of them."""
    first = list(islice(records, SAMPLE))
    return first, chain(first, records)


def likely_questions(records: Sequence[Placed], item: str, names: Sequence[str]) -> list[str]:
    """The columns that look like answers.

    What is known of an item is the same in each of its records; answers differ. Columns that differ within
    some item are the questions. Where nobody disagrees (or nobody shares an item) they are the columns with
    few distinct values.
    """
    differing = [name for name in names if _differs_within(records, item, name)]
    return differing or [name for name in names if _has_few_values(records, name)]


def _differs_within(records: Sequence[Placed], item: str, name: str) -> bool:
    first: dict[str, str] = {}
    for _, record in records:
        answer = _key(record.get(name))
        if first.setdefault(_key(record.get(item)), answer) != answer:
            return True
    return False


def _has_few_values(records: Sequence[Placed], name: str) -> bool:
    values = {_key(record.get(name)) for _, record in records} - {"", "null"}
    return 0 < len(values) <= min(_MANY, max(1, len(records) // 2))


def _key(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
