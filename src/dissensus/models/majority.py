"""Majority vote: the class most annotators gave."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from dissensus.engine import Engine
from dissensus.labels.annotations import Annotations
from dissensus.models.base import Model
from dissensus.models.confusion import checked_prior, times_prior
from dissensus.numerics import winners


class MajorityVote(Model):
    """Each item gets its most frequent label, all weight on it.

    Where several classes are tied for most frequent, each gets an equal share in ``label_distributions_``
    and ``predict`` names the first of them in class order; ``ties_`` counts such items. An item that nobody
    labelled, like one never seen, gets the crowd's most frequent class. A class that lost has probability 0,
    so the held-out log-likelihood of a majority vote is usually −∞: it makes no claim about disagreement.
    """

    finds_truth = True
    intervals_are = "none"

    def fit(self, annotations: Any, *, item_prior: Any = None) -> Self:
        """Count; an ``item_prior`` (items, classes) multiplies the votes' shares, so gold decides.

        Parameters
        ----------
        annotations
            Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
        item_prior
            (items, classes): what is known beforehand; it multiplies the votes' shares.
        """
        return self._run_fit(annotations, item_prior=item_prior)

    def _fit(self, annotations: Annotations, engine: Engine, item_prior: Any = None) -> None:
        self.prior_distribution_ = winners(annotations.counts.sum(axis=0, keepdims=True))[0]
        self._vote(annotations)
        if item_prior is not None:
            given = checked_prior(self, item_prior, annotations)
            self.label_distributions_ = times_prior(self.label_distributions_, given)
        self.trace_, self.stopped_ = np.zeros(0), "closed form"

    def _vote(self, annotations: Annotations) -> None:
        labelled = annotations.counts.any(axis=1, keepdims=True)
        self.label_distributions_ = np.where(labelled, winners(annotations.counts), self.prior_distribution_)

    def _transform(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        self._vote(new)

    @property
    def ties_(self) -> int:
        """Number of labelled items with several most frequent classes."""
        tied = (self.label_distributions_ > 0).sum(axis=1) > 1
        return int((tied & (self.n_labels_ > 0)).sum())
