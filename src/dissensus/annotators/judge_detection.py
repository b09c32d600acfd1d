"""Identification of judges (language models) by a column of the annotator table, by ids, or by a pattern."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from dissensus.errors import DataError, ParameterError, setting
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import quoted
from dissensus.numerics import Mask
from dissensus.tables.columns import listed

KIND_COLUMN = "kind"
# values of that column
MODEL_KINDS = frozenset(["llm", "lm", "model", "machine", "ai", "judge", "bot", "automatic"])
# Names of language models, or parts of them: used only if judges are not identified otherwise.
MODEL_NAMES = re.compile(
    r"(^|[^a-z])(gpt|chatgpt|o[134]|claude|gemini|gemma|palm|bard|llama|mi[sx]tral|qwen|deepseek|phi|command-r|"
    r"cohere|grok|yi|falcon|vicuna|alpaca|olmo|nova|jamba|kimi|glm|ernie|flan|t5|bert|llm|judge)([^a-z]|$)"
)


# names of one developer's models, by the name that stands for them
FAMILIES = {"chatgpt": "gpt", "o1": "gpt", "o3": "gpt", "o4": "gpt", "mixtral": "mistral"}
FAMILIES |= dict.fromkeys(("gemma", "palm", "bard"), "gemini")


def find_judges(annotations: Annotations, judges: Any = None) -> tuple[Mask, str]:
    """Return (annotators,): True for a judge; and how the judges were identified, as text.

    ``judges`` is a column of the annotator table, ``"column=value"``, a pattern of ids such as ``"gpt*"``, or
    a list of ids. None: the column ``kind`` or, if there is none, the names of the annotators.
    """
    if annotations.anonymous:
        raise DataError("judges are identified by annotator, and class counts have none; give single labels")
    if isinstance(judges, str) or (judges is None and KIND_COLUMN in _columns(annotations)):
        return _by_text(annotations, KIND_COLUMN if judges is None else judges)
    if judges is None:
        mask = are_models(annotations)
        if not mask.any():
            remedy = "give an annotator table with a column 'kind' (human or llm)"
            ids = f"{setting('judges')} as ids or a pattern such as 'gpt*'"
            raise DataError(f"no annotator is known to be a judge: {remedy}, or {ids}")
        return mask, "by name"
    mask = np.zeros(annotations.n_annotators, dtype=bool)
    for pattern in map(str, judges):
        matches = _matching(annotations, pattern)
        if not matches.any():
            raise ParameterError(f"judges= names {quoted(pattern)}, who is not among the annotators")
        mask |= matches
    return mask, "as listed"


def _by_text(annotations: Annotations, text: str) -> tuple[Mask, str]:
    """Identify judges by ``column=value``, by a column, or by a pattern of ids."""
    columns, (column, equals, value) = _columns(annotations), text.partition("=")
    if equals and column in columns:
        values = _values(annotations, column)
        if value not in values:
            choices = ", ".join(sorted(set(values) - {""})[:8])
            raise ParameterError(f"no annotator has {column} = {quoted(value)}; its values are {choices}")
        return np.array([entry == value for entry in values]), f"by {column} = {value}"
    if text in columns:
        mask = _are_model_kinds(annotations, text)
        if not mask.any():
            entries = ", ".join(sorted(set(_values(annotations, text)))[:8])
            problem = f"the column {text!r} of the annotator table has the values {entries}"
            reason = f"none means a judge ({', '.join(sorted(MODEL_KINDS))})"
            remedy = f"name the judges with {setting('judges', f'{text}=VALUE')}"
            raise DataError(f"{problem}, and {reason}; {remedy}")
        return mask, f"by the column {text}"
    mask = _matching(annotations, text)
    if not mask.any():
        table = f"the annotator table (columns: {', '.join(columns) or 'none'})"
        problem = f"judges={text!r} matches no annotator id ({listed(annotations.annotators)})"
        raise ParameterError(f"{problem} and no column of {table}")
    return mask, f"by the pattern {text}"


def models_by_name(annotations: Annotations) -> list[str]:
    """Return annotators with names of language models; empty if a column ``kind`` identifies models."""
    if annotations.anonymous or KIND_COLUMN in _columns(annotations):
        return []
    return [str(name) for name in annotations.annotators[are_models(annotations)]]


def are_models(annotations: Annotations) -> Mask:
    """Return (annotators,): True for a language model, by the column ``kind`` or else by name."""
    if KIND_COLUMN in _columns(annotations):
        return _are_model_kinds(annotations, KIND_COLUMN)
    names = annotations.annotators
    return np.array([MODEL_NAMES.search(str(name).casefold()) is not None for name in names])


def model_family(name: object) -> str:
    """Return the family of a language model, such as gpt or claude, by its name; empty if it is unknown."""
    match = MODEL_NAMES.search(str(name).casefold())
    return FAMILIES.get(match[2], match[2]) if match else ""


def _are_model_kinds(annotations: Annotations, column: str) -> Mask:
    return np.array([value.strip().casefold() in MODEL_KINDS for value in _values(annotations, column)])


def _matching(annotations: Annotations, pattern: str) -> Mask:
    names = map(str, annotations.annotators)
    return np.array([name == pattern or fnmatchcase(name, pattern) for name in names])


def _columns(annotations: Annotations) -> list[str]:
    table = annotations.annotator_table
    return [] if table is None else list(table.column_names)


def _values(annotations: Annotations, column: str) -> list[str]:
    return ["" if value is None else str(value) for value in annotations.annotator_column(column)]
