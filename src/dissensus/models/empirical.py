"""The item's own label counts, smoothed: the line every clever model has to beat.

Item m with counts c_mp and n_m labels in all gets

    q_mp = (c_mp + s) / (n_m + P s).                                                  (additive smoothing)

The smoothing s is a setting, or the one that best predicts each label from the item's other labels. An item
that nobody labelled, like one never seen, gets the crowd's overall distribution.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import Engine
from dissensus.labels.annotations import Annotations
from dissensus.models.base import Model
from dissensus.numerics import Array, row_shares
from dissensus.params import NONE, fitted, real, setting

GRID = np.geomspace(1e-3, 1e2, 101)  # amounts tried; neighbours differ by 12 %


def leave_one_out(counts: NDArray[np.int64], smoothing: Array | float) -> Array:
    """Mean log-probability of each label given the other labels of its item, for each smoothing given."""
    item, label = np.nonzero(counts)
    own, others = counts[item, label], counts.sum(axis=1)[item] - 1
    # Cells with as many labels of items with as many labels have the same chance.
    (own, others), cells = np.unique(np.stack([own, others]), axis=1, return_counts=True)
    s = np.asarray(smoothing)[..., None]
    # log P(y | the others) = log (c_my − 1 + s) / (n_m − 1 + P s), summed over the c_my labels of each cell
    logs = np.log((own - 1 + s) / (others + counts.shape[1] * s))
    found: Array = logs @ (cells * own) / counts.sum()
    return found


def best_smoothing(counts: NDArray[np.int64]) -> float:
    """The smoothing of the grid with the highest leave-one-out likelihood.

    Where no item has two labels there is nothing to judge by, and one pseudo-label a class is added.
    """
    if counts.sum(axis=1).max() < 2:
        return 1.0
    return float(GRID[np.argmax(leave_one_out(counts, GRID))])


class EmpiricalDistribution(Model):
    """The shares of an item's labels, smoothed: the simplest answer, and the one to compare others with."""

    smoothing: float | None = setting(
        None,
        real(0.0) | NONE,
        "What is added to the count of every class; None chooses it by the leave-one-out likelihood of the "
        "labels.",
    )

    _memory_tables = {"MP": 3, "E": 4}

    smoothing_: Array = fitted("the smoothing in use, as a 0-d array")

    def _fit(self, annotations: Annotations, engine: Engine) -> None:
        counts = annotations.counts
        chosen = best_smoothing(counts) if self.smoothing is None else self.smoothing
        self.smoothing_ = np.asarray(float(chosen))
        self.prior_distribution_ = counts.sum(axis=0) / counts.sum()
        self._smooth(annotations)
        self.trace_, self.stopped_ = np.zeros(0), "closed form"

    def _smooth(self, annotations: Annotations) -> None:
        labelled = annotations.counts.any(axis=1, keepdims=True)
        # q_mp = (c_mp + s) / (n_m + P s)
        smoothed = np.where(labelled, annotations.counts + self.smoothing_, self.prior_distribution_)
        self.label_distributions_ = row_shares(smoothed)

    def _transform(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        self.smoothing_ = fitted.smoothing_
        self._smooth(new)
