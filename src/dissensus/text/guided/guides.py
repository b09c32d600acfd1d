"""Item clusters as a guide: what they make of labels, and what they make of a prediction.

A fitted model with K item clusters knows their shares ψ_k and, for the l-th of its annotator clusters, which
has the weight π_l in the population, the label distribution Θ_kl. What the population answers about an item
of cluster k is

    Y'_k = Σ_l π_l Θ_kl                                                                         Eq. (4.1)

Projecting asks which clusters could have given a predicted distribution h, taken as S labels in the
proportions h. With the sum over annotators outside, as the paper prints it, one annotator cluster gave all of
these labels; inside, every label came from an annotator of its own:

    P(k | h) ∝ ψ_k Σ_l π_l exp(S Σ_p h_p log Θ_klp)                                  outside, Eq. (12.2)
    P(k | h) ∝ ψ_k exp(S Σ_p h_p log Y'_kp)                                           inside, Eq. (12.3)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dissensus.models.confusion import log_chances
from dissensus.numerics import Array, batches, one_hot_rows, safe_log, softmax_rows

BLOCK = 4_000_000  # numbers a temporary array may hold


@dataclass(frozen=True)
class ItemClusters:
    """A fitted model, seen as its clusters of items."""

    posterior: Array  # (M, K): P(w_m = k | labels) of the items it was fitted on
    shares: Array  # (K,): ψ
    theta: Array  # (K, L, P): Θ
    weights: Array  # (L,): π
    population: Array  # (K, P): Y'

    @classmethod
    def of(cls, guide: Any, annotator_load: NDArray[Any]) -> ItemClusters | None:
        """The clusters of a fitted guide, or None where it has none.

        Where a model knows each annotator by a matrix of their own, each is an annotator cluster;
        ``annotator_load`` (labels each gave) says how much those count.
        """
        view = guide.cluster_view(annotator_load)
        if view is None:
            return None
        theta, weights = view.theta, view.weights
        if view.matrices is not None:
            theta, weights = view.matrices.transpose(1, 0, 2), view.annotator_weights
        return cls(view.items, view.psi, theta, weights, view.population)

    def distributions(self, w: Array, mode: str) -> Array:
        """(n, P): Y' of each row's most likely cluster ("hard"), or averaged over the row ("soft")."""
        return np.asarray((one_hot_rows(w) if mode == "hard" else w) @ self.population)

    def log_likelihood(self, h: Array, prior_worth: float, annotator_sum: str) -> Array:
        """(n, K): log P(h | k) of distributions h (n, P), each worth ``prior_worth`` labels."""
        if annotator_sum == "inside":
            # S Σ_p h_p log Y'_kp
            return np.asarray(prior_worth * (h @ safe_log(self.population).T))
        K, L, P = self.theta.shape
        logs, log_pi = safe_log(self.theta).reshape(K * L, P).T, log_chances(self.weights)
        answers = np.empty((len(h), K))
        for rows in batches(len(h), max(1, BLOCK // (K * L))):
            # log Σ_l π_l exp(S Σ_p h_p log Θ_klp)
            answers[rows] = logsumexp(prior_worth * (h[rows] @ logs).reshape(-1, K, L) + log_pi, axis=2)
        return answers


@dataclass(frozen=True)
class Projection:
    """Predictions, seen through item clusters."""

    clusters: ItemClusters
    mode: str  # "hard" or "soft"
    annotator_sum: str  # "inside" or "outside"
    prior_worth: float  # S

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the clusters, as a file keeps it."""
        return {name: getattr(self, name) for name in ("mode", "annotator_sum", "prior_worth")}

    def posteriors(self, h: Array) -> Array:
        """(n, K): P(k | h) of predicted distributions h (n, P)."""
        log_likelihood = self.clusters.log_likelihood(h, self.prior_worth, self.annotator_sum)
        return softmax_rows(log_likelihood + log_chances(self.clusters.shares))[0]

    def __call__(self, h: Array) -> Array:
        """(n, P): the predictions projected, Eq. (12.5) or (12.6)."""
        return self.clusters.distributions(self.posteriors(h), self.mode)
