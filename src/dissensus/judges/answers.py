"""Answers of humans and judges, one per annotator and item, and their numeric values.

Nominal answers are equal or not. Ordered and numeric answers have a value: the number in the class's name or,
if names are not numbers, the rank of the class.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import LabelType, check_label_type, class_values
from dissensus.labels.vocabulary import Codes
from dissensus.numerics import Array, Indices, Mask

MIN_ITEMS = 30  # items with two humans that a comparison with a human needs


@dataclass(frozen=True, eq=False)
class JudgeAnswers:
    """Labels of humans and judges, one per item and annotator."""

    annotations: Annotations
    is_judge: Mask  # (annotators,)
    item: Codes  # (answers,) sorted by item
    annotator: Codes
    label: Codes
    n_repeats: int  # repeated labels dropped in favour of the pair's most frequent one

    @classmethod
    def of(cls, annotations: Annotations, is_judge: Mask, label_type: LabelType | None = None) -> Self:
        """Select one label per pair; ``label_type`` None keeps that of the annotations."""
        check_label_type("judge_report", label_type)
        if label_type is not None:
            annotations = annotations.with_label_type(label_type)
        # one row per pair: the most frequent label, the first in class order among ties
        cells = annotations.pair * annotations.n_classes + annotations.label
        _, first, count = np.unique(cells, return_index=True, return_counts=True)
        order = np.lexsort((first, -count, annotations.pair[first]))
        rows = first[order][np.unique(annotations.pair[first][order], return_index=True)[1]]
        item, annotator, label = (column[rows] for column in annotations.columns)
        return cls(annotations, is_judge, item, annotator, label, annotations.n_labels - len(rows))

    @property
    def judges(self) -> Indices:
        """Codes of the judges."""
        return np.flatnonzero(self.is_judge)

    @property
    def names(self) -> list[str]:
        """Ids of the judges."""
        return [str(name) for name in self.annotations.annotators[self.is_judge]]

    @cached_property
    def human_rows(self) -> Indices:
        """Rows of answers given by humans."""
        return np.flatnonzero(~self.is_judge[self.annotator])

    @cached_property
    def human_counts(self) -> NDArray[np.int64]:
        """(items, classes): number of humans by answer."""
        M, P = self.annotations.n_items, self.annotations.n_classes
        cells = self.item[self.human_rows] * np.int64(P) + self.label[self.human_rows]
        return np.bincount(cells, minlength=M * P).reshape(M, P)

    def answers_of(self, judge: int) -> Codes:
        """Return (items,): the judge's class, −1 without an answer."""
        answers = np.full(self.annotations.n_items, -1, dtype=np.int32)
        rows = self.annotator == judge
        answers[self.item[rows]] = self.label[rows]
        return answers

    def compared_with_humans(self, judge: int) -> Mask:
        """Return (items,): answered by the judge and two humans or, if fewer than 30 are, by one.

        A judge is compared with humans on the items on which humans are compared with each other.
        """
        n = np.where(self.answers_of(judge) >= 0, self.human_counts.sum(axis=1), 0)
        return np.asarray(n >= (2 if (n >= 2).sum() >= MIN_ITEMS else 1))

    @cached_property
    def humans(self) -> Annotations:
        """Labels of the humans."""
        return self.annotations.take_rows(~self.is_judge[self.annotations.annotator])

    @cached_property
    def values(self) -> Array | None:
        """(classes,): value of each class; None for nominal classes."""
        ordered = self.annotations.label_type in ("ordinal", "numeric")
        return class_values(self.annotations) if ordered else None
