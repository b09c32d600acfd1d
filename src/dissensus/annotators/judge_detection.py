"""Who is a judge and who is a human: by a column of the annotator table, by ids, or by a pattern."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError, ParameterError, setting
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
    if isinstance(judges, str) or (judges is None and KIND in _columns(annotations)):
        mask, words = _by_text(annotations, KIND if judges is None else judges)
    elif judges is not None:
        mask, words = np.zeros(annotations.n_annotators, dtype=bool), "by name"
        for pattern in map(str, judges):
            fits = _matching(annotations, pattern)
            if not fits.any():
                raise ParameterError(f"judges= names {quoted(pattern)}, who gave no label")
            mask |= fits
    else:
        mask, words = are_models(annotations), "by their names, as nobody said who is one"
        if not mask.any():
            raise DataError(
                "nobody says who is a judge: give an annotator table with a column 'kind' (human or llm), "
                f"or {setting('judges')} as ids or a pattern such as 'gpt*'"
            )
    if not mask.any():
        raise DataError(f"no annotator is a judge {words}; say who is with {setting('judges')}")
    return mask, words


def _by_text(annotations: Annotations, text: str) -> tuple[Bools, str]:
    """Judges by ``column=value``, by a column, or by a pattern of ids."""
    columns, (column, equals, value) = _columns(annotations), text.partition("=")
    if equals and column in columns:
        values = _values(annotations, column)
        if value not in values:
            known = ", ".join(sorted(set(values) - {""})[:8])
            raise ParameterError(f"no annotator has {column} {quoted(value)}; it is one of {known}")
        return np.array([one == value for one in values]), f"by {column} = {value}"
    if text in columns:
        values = _values(annotations, text)
        mask = np.array([value.strip().casefold() in MACHINES for value in values])
        if not mask.any():
            raise DataError(
                f"the column {text!r} of the annotator table calls nobody {', '.join(sorted(MACHINES))}; "
                f"it has {', '.join(sorted(set(values))[:8])}: say who is a judge with "
                f"{setting('judges', f'{text}=VALUE')}"
            )
        return mask, f"by the column {text}"
    mask = _matching(annotations, text)
    if not mask.any():
        raise ParameterError(
            f"judges={text!r} is the id of no annotator, fits none as a pattern, and is no column of the "
            f"annotator table (it has {', '.join(columns) or 'none'})"
        )
    return mask, f"by the pattern {text}"


def models_by_name(annotations: Annotations) -> list[str]:
    """Annotators whose names are those of language models, where no column ``kind`` says who is one."""
    if annotations.anonymous or KIND in _columns(annotations):
        return []
    return [str(name) for name in annotations.annotators[are_models(annotations)]]


def are_models(annotations: Annotations) -> Bools:
    """(annotators,): True for a language model, by the column ``kind`` or, where there is none, by name."""
    if KIND in _columns(annotations):
        kinds = _values(annotations, KIND)
        return np.array([kind.strip().casefold() in MACHINES for kind in kinds])
    return np.array([FAMILIES.search(str(name).casefold()) is not None for name in annotations.annotators])


def has_judges(annotations: Annotations) -> bool:
    """Whether the column ``kind`` of the annotator table calls somebody a judge."""
    return KIND in _columns(annotations) and bool(are_models(annotations).any())


def _matching(annotations: Annotations, pattern: str) -> Bools:
    names = map(str, annotations.annotators)
    return np.array([name == pattern or fnmatchcase(name, pattern) for name in names])


def _columns(annotations: Annotations) -> list[str]:
    table = annotations.annotator_table
    return [] if table is None else list(table.column_names)


def _values(annotations: Annotations, column: str) -> list[str]:
    return ["" if value is None else str(value) for value in annotations.annotator_column(column)]
