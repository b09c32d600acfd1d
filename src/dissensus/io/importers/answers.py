"""Answers as tools write them, turned into plain labels, and which column of a table holds them.

An answer may be a word, a number, a list of words, or an object such as ``{"choices": ["neg"]}``,
``{"label": "neg"}`` or ``{"neg": true, "pos": false}``; forms with several questions nest such objects.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

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
        return str(int(value)) if value.is_integer() else repr(value)
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
        return json.loads(text)
    except (ValueError, RecursionError):
        raise NotALabelError("is not valid JSON") from None


def _labels(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for part in value:
            if isinstance(part, list | Mapping):
                raise NotALabelError("is a list of objects, not of labels")
            yield from _labels(part)
    elif isinstance(value, Mapping):
        yield from _labels(_inside(value))
    else:
        label = as_id(value)
        if label is not None:
            yield label


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


# ---- which column holds the answers, where nothing but the values can tell ----------------------------

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
