"""The two models that only count: majority vote, and the item's own label counts, smoothed.

With counts c_mp and n_m labels in all, item m gets by **MajorityVote** all weight on its most frequent class,
and by **EmpiricalDistribution**, the line every clever model has to beat,

    q_mp = (c_mp + s) / (n_m + P s).                                                  (additive smoothing)

The smoothing s is a setting, or the one that best predicts each label from the item's other labels.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import Engine
from dissensus.labels.annotations import Annotations
from dissensus.models.base import Model, fit_truth
from dissensus.models.confusion import checked_prior, times_prior
from dissensus.numerics import Array, normalised, row_shares, winners
from dissensus.params import NONE, fitted, real, setting

GRID = np.geomspace(1e-3, 1e2, 101)  # amounts tried; neighbours differ by 12 %


class MajorityVote(Model):
    """Each item gets its most frequent label, all weight on it.

    Where several classes are tied for most frequent, each gets an equal share in ``label_distributions_``
    and ``predict`` names the first of them in class order; ``ties_`` counts such items. An item that nobody
    labelled, like one never seen, gets the crowd's most frequent class. A class that lost has probability 0,
    so the held-out log-likelihood of a majority vote is usually −∞: it makes no claim about disagreement.
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
    """Mean log-probability of each label given the other labels of its item, for each smoothing given."""
    item, label = np.nonzero(counts)
    own, others = counts[item, label], counts.sum(axis=1)[item] - 1
    # Cells with as many labels of items with as many labels have the same chance.
    (own, others), cells = np.unique(np.stack([own, others]), axis=1, return_counts=True)
    s = np.asarray(smoothing)[..., None]
    # log P(y | the others) = log (c_my − 1 + s) / (n_m − 1 + P s), summed over the c_my labels of each cell
    logs = np.log((own - 1 + s) / (others + counts.shape[1] * s))
    return np.asarray(logs @ (cells * own) / counts.sum())


class EmpiricalDistribution(Model):
    """The shares of an item's labels, smoothed: the simplest answer, and the one to compare others with.

    An item that nobody labelled, like one never seen, gets the crowd's overall distribution.
    """

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
        if self.smoothing is not None:
            smoothing = float(self.smoothing)
        elif counts.sum(axis=1).max() < 2:  # nothing to judge by: one pseudo-label for each class
            smoothing = 1.0
        else:
            smoothing = float(GRID[np.argmax(leave_one_out(counts, GRID))])
        self.smoothing_ = np.asarray(smoothing)
        self.prior_distribution_ = counts.sum(axis=0) / counts.sum()
        self._apply(annotations, self, engine)

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        labelled = new.counts.any(axis=1, keepdims=True)
        # q_mp = (c_mp + s) / (n_m + P s)
        smoothed = np.where(labelled, new.counts + fitted.smoothing_, fitted.prior_distribution_)
        self.label_distributions_ = row_shares(smoothed)
