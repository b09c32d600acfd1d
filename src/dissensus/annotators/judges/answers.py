"""What humans and judges said, one answer an annotator and item, and how two answers are compared.

Nominal answers agree or do not. Ordered and numeric ones have a number: that of the class's name, or its
place in the order of classes where names are no numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.data.annotations import Annotations
from dissensus.data.vocabulary import Codes, quoted
from dissensus.errors import DataError, bad_parameter
from dissensus.numerics import Array

LABEL_TYPES = ("nominal", "ordinal", "numeric")


@dataclass(frozen=True, eq=False)
class Answers:
    """Labels of humans and judges, one a pair of item and annotator."""

    annotations: Annotations
    is_judge: NDArray[np.bool_]  # (annotators,)
    label_type: str
    item: Codes  # (answers,) sorted by item
    annotator: Codes
    label: Codes
    n_repeats: int  # labels of pairs that had several: the most frequent one stands for them

    @classmethod
    def of(cls, annotations: Annotations, is_judge: NDArray[np.bool_], label_type: str | None) -> Answers:
        """Lay out annotations; ``label_type`` None takes what the annotations say."""
        known = label_type or getattr(annotations, "label_type", None) or "nominal"
        if label_type is not None and label_type not in LABEL_TYPES:
            raise bad_parameter("judge_report", "label_type", f"one of {', '.join(LABEL_TYPES)}", label_type)
        rows = _one_a_pair(annotations)
        item, annotator, label = (column[rows] for column in annotations.columns)
        kind = known if known in LABEL_TYPES else "nominal"
        return cls(annotations, is_judge, kind, item, annotator, label, annotations.n_labels - len(rows))

    @property
    def judges(self) -> NDArray[np.intp]:
        """Codes of the judges."""
        return np.flatnonzero(self.is_judge)

    @cached_property
    def human_rows(self) -> NDArray[np.intp]:
        """Answers given by humans."""
        return np.flatnonzero(~self.is_judge[self.annotator])

    @cached_property
    def human_counts(self) -> NDArray[np.int64]:
        """(items, classes): answers of humans."""
        M, P = self.annotations.n_items, self.annotations.n_classes
        cells = self.item[self.human_rows] * np.int64(P) + self.label[self.human_rows]
        return np.bincount(cells, minlength=M * P).reshape(M, P)

    def answers_of(self, judge: int) -> Codes:
        """(items,): the judge's class, −1 where it has no answer."""
        given = np.full(self.annotations.n_items, -1, dtype=np.int32)
        own = self.annotator == judge
        given[self.item[own]] = self.label[own]
        return given

    @cached_property
    def humans(self) -> Annotations:
        """The labels of humans alone."""
        return self.annotations.take_rows(~self.is_judge[self.annotations.annotator])

    @cached_property
    def values(self) -> Array | None:
        """(classes,): the number of each class; None where they have no order."""
        return None if self.label_type == "nominal" else class_values(self.annotations, self.label_type)


def class_values(annotations: Annotations, label_type: str) -> Array:
    """(classes,): what the names say as numbers, or the places of ordinal classes in their order."""
    numbers = [_number(name) for name in annotations.classes]
    if all(number is None for number in numbers) and label_type == "ordinal":
        return np.arange(len(numbers), dtype=np.float64)
    for name, number in zip(annotations.classes, numbers, strict=True):
        if number is None:
            raise DataError(
                f"{label_type} labels are numbers, and class {quoted(name)} is none; "
                "remove its labels, or use label_type='nominal'"
            )
    return np.array(numbers, dtype=np.float64)


def _number(name: Any) -> float | None:
    try:
        value = float(name)
    except (TypeError, ValueError):
        return None
    return value if np.isfinite(value) else None


def _one_a_pair(annotations: Annotations) -> NDArray[np.intp]:
    """Rows that stand for their pair: the most frequent label, the first in class order among equals."""
    if annotations.n_pairs == annotations.n_labels:
        return np.arange(annotations.n_labels)
    cells = annotations.pair * annotations.n_classes + annotations.label
    _, first, count = np.unique(cells, return_index=True, return_counts=True)
    order = np.lexsort((first, -count, annotations.pair[first]))
    _, best = np.unique(annotations.pair[first][order], return_index=True)
    return np.asarray(first[order][best])
