"""Models that only count: the majority vote, and the smoothed shares of each item's labels.

With counts c_mp of n_m labels, **MajorityVote** puts all weight on the most frequent class of item m, and
**EmpiricalDistribution**, the baseline for all other models, gives

    q_mp = (c_mp + s) / (n_m + P s).                                                  (additive smoothing)

The smoothing s is a setting, or the value that best predicts each label from the item's other labels.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import Engine
from dissensus.labels.annotations import Annotations
from dissensus.models.base import Model
from dissensus.models.confusion import checked_prior, fit_truth, times_prior
from dissensus.numerics import Array, normalised, row_shares, winners
from dissensus.params import NONE, fitted, real, setting

SMOOTHING_GRID = np.geomspace(1e-3, 1e2, 101)  # in steps of 12 %


class MajorityVote(Model):
    """Most frequent label of each item, with all weight on it.

    Classes that tie for most frequent get equal shares in ``label_distributions_``, and ``predict`` returns
    the first of them in class order; ``ties_`` counts such items. Items without labels get the most frequent
    class overall. Other classes have probability 0, so the held-out log-likelihood of a majority vote is
    usually −∞: it does not model disagreement.
    """

    finds_truth = True
    intervals_are = "none"

    fit = fit_truth

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        self.prior_distribution_ = winners(annotations.counts.sum(axis=0, keepdims=True))[0]
        self._apply(annotations, self, engine)
        if prior is not None:
            prior = normalised(checked_prior(self, prior, annotations))
            self.label_distributions_ = times_prior(self.label_distributions_, prior)

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        labelled = new.counts.any(axis=1, keepdims=True)
        self.label_distributions_ = np.where(labelled, winners(new.counts), fitted.prior_distribution_)

    @property
    def ties_(self) -> int:
        """Number of labelled items with several most frequent classes."""
        tied = (self.label_distributions_ > 0).sum(axis=1) > 1
        return int((tied & (self.n_labels_ > 0)).sum())


def leave_one_out(counts: NDArray[np.int64], smoothing: Array | float) -> Array:
    """Return the mean log-probability of a label given the item's other labels, for each smoothing."""
    item, label = np.nonzero(counts)
    same, others = counts[item, label], counts.sum(axis=1)[item] - 1
    # Cells with equal c_my and n_m have equal probabilities: compute each once.
    (same, others), n_cells = np.unique(np.stack([same, others]), axis=1, return_counts=True)
    s = np.asarray(smoothing)[..., None]
    # log P(y | the others) = log (c_my − 1 + s) / (n_m − 1 + P s), summed over the c_my labels of each cell
    logs = np.log((same - 1 + s) / (others + counts.shape[1] * s))
    return np.asarray(logs @ (n_cells * same) / counts.sum())


class EmpiricalDistribution(Model):
    """Smoothed shares of each item's labels: the baseline for other models.

    Items without labels get the overall distribution.
    """

    smoothing: float | None = setting(
        None, real(0.0) | NONE, "Number added to every count; None chooses it by leave-one-out likelihood."
    )

    _memory_tables = {"MP": 3, "E": 4}

    smoothing_: Array = fitted("the smoothing in use, as a 0-d array")

    def _fit(self, annotations: Annotations, engine: Engine) -> None:
        counts = annotations.counts
        if self.smoothing is not None:
            smoothing = float(self.smoothing)
        elif counts.sum(axis=1).max() < 2:  # no item has labels to compare
            smoothing = 1.0
        else:
            smoothing = float(SMOOTHING_GRID[np.argmax(leave_one_out(counts, SMOOTHING_GRID))])
        self.smoothing_ = np.asarray(smoothing)
        self.prior_distribution_ = counts.sum(axis=0) / counts.sum()
        self._apply(annotations, self, engine)

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        labelled = new.counts.any(axis=1, keepdims=True)
        # q_mp = (c_mp + s) / (n_m + P s)
        smoothed = np.where(labelled, new.counts + fitted.smoothing_, fitted.prior_distribution_)
        self.label_distributions_ = row_shares(smoothed)
