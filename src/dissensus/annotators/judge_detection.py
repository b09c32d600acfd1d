"""Who is a judge and who is a human: by a column of the annotator table, by ids, or by a pattern."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError, ParameterError
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import quoted

Bools = NDArray[np.bool_]

KIND = "kind"
MACHINES = frozenset(
    ["llm", "lm", "model", "machine", "ai", "judge", "bot", "automatic"]
)  # what a column calls a judge
# How names of models begin, or what stands in them: used only where nobody says who is a judge.
FAMILIES = re.compile(
    r"(^|[^a-z])(gpt|chatgpt|o[134]|claude|gemini|gemma|palm|bard|llama|mi[sx]tral|qwen|deepseek|phi|command-r|"
    r"cohere|grok|yi|falcon|vicuna|alpaca|olmo|nova|jamba|kimi|glm|ernie|flan|t5|bert|llm|judge)([^a-z]|$)"
)


def find_judges(annotations: Annotations, judges: Any = None) -> tuple[Bools, str]:
    """(annotators,): True for a judge; and how that was found, in words.

    ``judges`` is a column of the annotator table, ``"column=value"``, a pattern of ids such as ``"gpt*"``,
    or a list of ids. Without it the column ``kind`` says it or, where there is none, the names of the
    annotators.
    """
    if annotations.anonymous:
        raise DataError("judges are told from humans by who gave each label, and class counts do not say")
    if judges is None:
        mask, words = _unasked(annotations)
    elif isinstance(judges, str):
        mask, words = _by_text(annotations, judges)
    else:
        mask, words = _by_ids(annotations, judges)
    if not mask.any():
        raise DataError(f"no annotator is a judge {words}; say who is with judges=")
    return mask, words


def _unasked(annotations: Annotations) -> tuple[Bools, str]:
    if KIND in _columns(annotations):
        return _by_column(annotations, KIND)
    mask = _named_like_models(annotations)
    if not mask.any():
        raise DataError(
            "nobody says who is a judge: give an annotator table with a column 'kind' (human or llm), "
            "or judges= as ids or a pattern such as 'gpt*'"
        )
    return mask, "by their names, as nobody said who is one"


def _by_text(annotations: Annotations, text: str) -> tuple[Bools, str]:
    column, equals, value = text.partition("=")
    if equals and column in _columns(annotations):
        values = _texts(annotations.annotator_column(column))
        return _known_value(values, value, column), f"by {column} = {value}"
    if text in _columns(annotations):
        return _by_column(annotations, text)
    mask = np.array([fnmatchcase(str(name), text) for name in annotations.annotators])
    if not mask.any():
        known = ", ".join(_columns(annotations)) or "none"
        raise ParameterError(
            f"judges={text!r} is the id of no annotator, fits none as a pattern, and is no column of the "
            f"annotator table (it has {known})"
        )
    return mask, f"by the pattern {text}"


def _known_value(values: NDArray[Any], value: str, column: str) -> Bools:
    mask: Bools = values == value
    if not mask.any():
        known = ", ".join(sorted(set(values.tolist()) - {""})[:8])
        raise ParameterError(f"no annotator has {column} {quoted(value)}; it is one of {known}")
    return mask


def _by_column(annotations: Annotations, column: str) -> tuple[Bools, str]:
    values = _texts(annotations.annotator_column(column))
    mask = np.array([value.strip().casefold() in MACHINES for value in values])
    if not mask.any():
        known = ", ".join(sorted(set(values.tolist()))[:8])
        raise DataError(
            f"the column {column!r} of the annotator table calls nobody {', '.join(sorted(MACHINES))}; "
            f"it has {known}: say who is a judge with judges='{column}=VALUE'"
        )
    return mask, f"by the column {column}"


def _by_ids(annotations: Annotations, judges: Iterable[Any]) -> tuple[Bools, str]:
    """Every one of several ids or patterns."""
    names, mask = _texts(annotations.annotators), np.zeros(annotations.n_annotators, dtype=bool)
    for one in map(str, judges):
        fits = np.array([name == one or fnmatchcase(name, one) for name in names])
        if not fits.any():
            raise ParameterError(f"judges= names {quoted(one)}, who gave no label")
        mask |= fits
    return mask, "by name"


def models_by_name(annotations: Annotations) -> list[str]:
    """Annotators whose names are those of language models, where no column ``kind`` says who is one."""
    if annotations.anonymous or KIND in _columns(annotations):
        return []
    return [str(name) for name in annotations.annotators[_named_like_models(annotations)]]


def _named_like_models(annotations: Annotations) -> Bools:
    return np.array([FAMILIES.search(str(name).casefold()) is not None for name in annotations.annotators])


def are_models(annotations: Annotations) -> Bools:
    """(annotators,): True for a language model, by the column ``kind`` or, where there is none, by name."""
    if KIND not in _columns(annotations):
        return _named_like_models(annotations)
    kinds = _texts(annotations.annotator_column(KIND))
    return np.array([kind.strip().casefold() in MACHINES for kind in kinds])


def has_judges(annotations: Annotations) -> bool:
    """Whether the column ``kind`` of the annotator table calls somebody a judge."""
    if KIND not in _columns(annotations):
        return False
    return any(value.strip().casefold() in MACHINES for value in _texts(annotations.annotator_column(KIND)))


def _columns(annotations: Annotations) -> list[str]:
    table = annotations.annotator_table
    return [] if table is None else list(table.column_names)


def _texts(values: NDArray[Any]) -> NDArray[Any]:
    return np.array(["" if value is None else str(value) for value in values], dtype=object)
