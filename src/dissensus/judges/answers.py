"""What humans and judges said, one answer an annotator and item, and how two answers are compared.

Nominal answers agree or do not. Ordered and numeric ones have a number: that of the class's name, or its
place in the order of classes where names are no numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import LabelType, check_label_type, class_values
from dissensus.labels.vocabulary import Codes
from dissensus.numerics import Array


@dataclass(frozen=True, eq=False)
class Answers:
    """Labels of humans and judges, one a pair of item and annotator."""

    annotations: Annotations
    is_judge: NDArray[np.bool_]  # (annotators,)
    item: Codes  # (answers,) sorted by item
    annotator: Codes
    label: Codes
    n_repeats: int  # labels of pairs that had several: the most frequent one stands for them

    @classmethod
    def of(
        cls, annotations: Annotations, is_judge: NDArray[np.bool_], label_type: LabelType | None = None
    ) -> Answers:
        """Lay out annotations; ``label_type`` None takes what the annotations say."""
        check_label_type("judge_report", label_type)
        known = annotations if label_type is None else annotations.with_label_type(label_type)
        # rows that stand for their pair: the most frequent label, the first in class order among equals
        cells = known.pair * known.n_classes + known.label
        _, first, count = np.unique(cells, return_index=True, return_counts=True)
        order = np.lexsort((first, -count, known.pair[first]))
        rows = first[order][np.unique(known.pair[first][order], return_index=True)[1]]
        item, annotator, label = (column[rows] for column in known.columns)
        return cls(known, is_judge, item, annotator, label, known.n_labels - len(rows))

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
        ordered = self.annotations.label_type in ("ordinal", "numeric")
        return class_values(self.annotations) if ordered else None
