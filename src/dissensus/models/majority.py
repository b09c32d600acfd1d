"""Majority vote: the class most annotators gave."""

from __future__ import annotations

from typing import Self

import numpy as np

from dissensus.annotations import Annotations
from dissensus.models.base import Model


class MajorityVote(Model):
    """Each item gets its most frequent label, all weight on it.

    Where several classes are tied for most frequent, each gets an equal share in ``label_distributions_``
    and ``predict`` names the first of them in class order; ``ties_`` counts such items. An item without
    labels counts as tied between all classes. A class that lost has probability 0, so the held-out
    log-likelihood of a majority vote is usually −∞: it makes no claim about disagreement.
    """

    ties_: int

    def _fit(self, annotations: Annotations) -> None:
        counts = annotations.counts
        winners = counts == counts.max(axis=1, keepdims=True)
        self.label_distributions_ = winners / winners.sum(axis=1, keepdims=True)
        self.ties_ = int((winners.sum(axis=1) > 1).sum())
        overall = counts.sum(axis=0)
        self.prior_distribution_ = (overall == overall.max()) / (overall == overall.max()).sum()
        self.trace_, self.stopped_ = np.zeros(0), "closed form"

    def _transform(self, new: Annotations, fitted: Self) -> None:
        self._fit(new)
        self.prior_distribution_ = fitted.prior_distribution_
