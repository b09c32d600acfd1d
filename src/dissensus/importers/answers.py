"""Answers as tools write them, turned into plain labels, and which column of a table holds them.

An answer may be a word, a number, a list of words, or an object such as ``{"choices": ["neg"]}``,
``{"label": "neg"}`` or ``{"neg": true, "pos": false}``; forms with several questions nest such objects.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from dissensus.tables.columns import is_remark
from dissensus.tables.json_lines import too_deep

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
    few distinct values. Remarks in words and times are never taken for answers unasked.
    """
    answers = [name for name in names if not _holds_remarks(records, name)]
    items = [_key(record.get(item)) for _, record in records]
    values = {name: [_key(record.get(name)) for _, record in records] for name in answers}
    n_items, few = len(set(items)), min(_MANY, max(1, len(records) // 2))
    differing = [name for name in answers if len(set(zip(items, values[name], strict=True))) > n_items]
    return differing or [name for name in answers if 0 < len(set(values[name]) - {"", "null"}) <= few]


_DAY = r"(\d{4}-\d\d?-\d\d?|\d\d?/\d\d?/\d{2,4})([T ]\d\d?:\d\d.*)?"
_CLOCK = r"\d\d?:\d\d(:\d\d(\.\d+)?)?"
_EPOCH = r"1\d{9}(\d{3})?(\.\d+)?"  # seconds or milliseconds since 1970, from 2001 to 2033
_TIME = re.compile(f"{_DAY}|{_CLOCK}|{_EPOCH}")
_WORDY = 3  # words of a remark, on average


def _holds_remarks(records: Sequence[Placed], name: str) -> bool:
    """Whether a column holds texts, remarks or times.

    It is called so (message, comment, created_at, lead-time), or its values are times, or texts of several
    words that hardly ever come again.
    """
    if is_remark(name):
        return True
    values = [text for _, record in records if (text := _key(record.get(name))) not in ("", "null")]
    if not values:
        return False
    if all(_TIME.fullmatch(text.strip()) for text in values):
        return True
    n_words = sum(len(text.split()) for text in values)
    return 2 * len(set(values)) > len(values) and n_words >= _WORDY * len(values)


def _key(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
