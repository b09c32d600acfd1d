"""FMM: a finite mixture of multinomials over items (Weerasooriya et al. 2020), the L = 1 case of PGM.

How a label is born: item m belongs to one of K clusters, w_m ~ Cat(ψ); every label of the item is drawn
from its cluster's distribution, y ~ Cat(Θ_{w_m}), whoever gives it. Priors: Θ_k ~ Dir(α), ψ ~ Dir(γ).

Learned by EM on the log-posterior (MAP), which never falls:

    ℓ = Σ_m log Σ_k ψ_k Π_p Θ_kp^{c_mp} + (α−1) Σ_kp log Θ_kp + (γ−1) Σ_k log ψ_k                      (1)
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from dissensus.annotations import Annotations
from dissensus.engine import Executor, Shard, shards_of, total
from dissensus.kernels import normalised, one_hot_rows, safe_log, softmax_rows
from dissensus.models.ascent import Climb, best_restart, climb
from dissensus.models.base import Array, Model
from dissensus.params import SEED, choice, integer, real


def responsibilities(counts: Array, theta: Array, psi: Array) -> tuple[Array, float]:
    """P(w_m = k | labels) for each item, and Σ_m log P(labels of m)."""
    # log ψ_k + Σ_p c_mp log Θ_kp
    w, evidence = softmax_rows(counts @ safe_log(theta).T + safe_log(psi))
    return w, float(evidence.sum())


def e_step(shard: Shard, theta: Array, psi: Array) -> tuple[Array, Array, float]:
    """What the M-step needs of a shard: Σ_m w_mk c_mp, Σ_m w_mk, and the log-likelihood."""
    w, log_likelihood = responsibilities(shard.counts, theta, psi)
    return w.T @ shard.counts, w.sum(axis=0), log_likelihood


def m_step(label_mass: Array, item_mass: Array, alpha: float, gamma: float) -> tuple[Array, Array]:
    """The parameters that maximise the expected log-posterior."""
    # Θ_kp = (α−1 + Σ_m w_mk c_mp) / (Pα−P + Σ_mp w_mk c_mp)
    theta = normalised(alpha - 1 + label_mass)
    # ψ_k = (γ−1 + Σ_m w_mk) / (Kγ−K + M)
    psi = normalised(gamma - 1 + item_mass)
    return theta, psi


def log_prior(theta: Array, psi: Array, alpha: float, gamma: float) -> float:
    """(α−1) Σ log Θ + (γ−1) Σ log ψ."""
    return float(xlogy(alpha - 1, theta).sum() + xlogy(gamma - 1, psi).sum())


def initial_theta(counts: NDArray[np.int64], K: int, alpha: float, rng: np.random.Generator) -> Array:
    """Each cluster starts at the smoothed counts of a random labelled item, blended with the crowd's."""
    labelled = np.flatnonzero(counts.sum(axis=1))
    chosen = rng.choice(labelled, size=K, replace=len(labelled) < K)
    overall = counts.sum(axis=0) / counts.sum()
    # A little noise keeps two clusters that started at the same counts from staying one.
    noise = rng.dirichlet(np.ones(counts.shape[1]), size=K)
    return normalised(counts[chosen] + max(alpha - 1, 0.1) * (overall + noise))


class FMM(Model):
    """Mixture of multinomials over items, by MAP-EM with restarts.

    ``assignment="soft"`` averages the clusters' distributions by the item's posterior; ``"hard"`` takes the
    most likely cluster's. Of ``n_restarts`` fits the one with the highest log-posterior is kept.
    """

    _rules = {
        "n_item_clusters": integer(1),
        "alpha": real(1.0),
        "gamma": real(1.0),
        "max_iter": integer(1),
        "tol": real(0.0),
        "n_restarts": integer(1),
        "assignment": choice("soft", "hard"),
        "seed": SEED,
    }
    _arrays = ("theta_", "psi_", "item_clusters_")

    theta_: Array  # (K, P): label distribution of each item cluster
    psi_: Array  # (K,): share of each item cluster
    item_clusters_: Array  # (M, K): P(w_m = k | labels)

    def __init__(
        self,
        n_item_clusters: int = 10,
        *,
        alpha: float = 2.0,
        gamma: float = 2.0,
        max_iter: int = 500,
        tol: float = 1e-6,
        n_restarts: int = 1,
        assignment: str = "soft",
        seed: int = 0,
    ) -> None:
        self.n_item_clusters = n_item_clusters
        self.alpha = alpha
        self.gamma = gamma
        self.max_iter = max_iter
        self.tol = tol
        self.n_restarts = n_restarts
        self.assignment = assignment
        self.seed = seed

    def _fit(self, annotations: Annotations, pool: Executor) -> None:
        shards = shards_of(annotations)

        def step(state: tuple[Array, Array]) -> tuple[tuple[Array, Array], float]:
            label_mass, item_mass, log_likelihood = total([e_step(shard, *state) for shard in shards])
            objective = log_likelihood + log_prior(*state, self.alpha, self.gamma)
            return m_step(label_mass, item_mass, self.alpha, self.gamma), objective

        def run(rng: np.random.Generator) -> Climb[tuple[Array, Array]]:
            K = self.n_item_clusters
            start = initial_theta(annotations.counts, K, self.alpha, rng), np.full(K, 1.0 / K)
            return climb(step, start, max_iter=self.max_iter, tol=self.tol, n_labels=annotations.n_labels)

        best = best_restart(run, self.n_restarts, self.seed, pool)
        (self.theta_, self.psi_), self.trace_, self.stopped_ = best.state, best.trace, best.stopped
        self.prior_distribution_ = self.psi_ @ self.theta_
        self._assign(annotations)

    def _assign(self, annotations: Annotations) -> None:
        self.item_clusters_, _ = responsibilities(
            annotations.counts.astype(np.float64), self.theta_, self.psi_
        )
        w = one_hot_rows(self.item_clusters_) if self.assignment == "hard" else self.item_clusters_
        # Y'_m = Σ_k w_mk Θ_k   (Eq. infer with L = 1)
        self.label_distributions_ = w @ self.theta_

    def _transform(self, new: Annotations, fitted: Self) -> None:
        self._assign(new)
