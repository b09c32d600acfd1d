"""FMM: a finite mixture of multinomials over items (Weerasooriya et al. 2020), the case L = 1 of PGM.

Generative model: item m belongs to one of K clusters, w_m ~ Cat(ψ); every label of the item is drawn from the
distribution of its cluster, y ~ Cat(Θ_{w_m}), whichever annotator gives it. Priors: Θ_k ~ Dir(α), ψ ~ Dir(γ).

EM on the log-posterior (MAP), which never falls:

    ℓ = Σ_m log Σ_k ψ_k Π_p Θ_kp^{c_mp} + Σ_kp (α_p−1) log Θ_kp + Σ_k (γ_k−1) log ψ_k                  (1)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import xlogy

from dissensus import params
from dissensus.engine import Block, Blocks, Engine, Restarts, total
from dissensus.labels.annotations import Annotations
from dissensus.models.base import Model
from dissensus.models.results import ClusterView
from dissensus.numerics import Array, Concentration, concentration, normalised, safe_log, softmax_columns
from dissensus.params import choice, dirichlet, fitted, integer, setting

ASSIGNMENT = (
    choice("soft", "hard"),
    '``"soft"`` averages over clusters; ``"hard"`` takes the most probable.',
)


def responsibilities(counts: Array, theta: Array, psi: Array) -> tuple[Array, float]:
    """Return (K, items): P(w_m = k | labels), and Σ_m log P(labels of m)."""
    # log ψ_k + Σ_p c_mp log Θ_kp
    w, evidence = softmax_columns(safe_log(theta) @ counts.T + safe_log(psi)[:, None])
    return w, float(evidence.sum())


@dataclass(frozen=True)
class Mixture:
    """Parameters during a fit."""

    theta: Array  # (K, P)
    psi: Array  # (K,)


def counts_of(block: Block) -> Array:
    """Return the label counts (items, classes) of a block."""
    return block.shard().counts


def e_step(counts: Array, theta: Array, psi: Array) -> tuple[Array, Array, float]:
    """Return Σ_m w_mk c_mp, Σ_m w_mk and the log-likelihood of a block."""
    w, log_likelihood = responsibilities(counts, theta, psi)
    return w @ counts, w.sum(axis=1), log_likelihood


def cluster_posterior(counts: Array, theta: Array, psi: Array) -> Array:
    """Return (items, K): P(w_m = k | labels)."""
    return np.ascontiguousarray(responsibilities(counts, theta, psi)[0].T)


def m_step(label_mass: Array, item_mass: Array, alpha: Concentration, gamma: Concentration) -> Mixture:
    """Return the parameters that maximise the expected log-posterior."""
    # Θ_kp = (α_p−1 + Σ_m w_mk c_mp) / (Σ_p α_p − P + Σ_mp w_mk c_mp)
    theta = normalised(alpha - 1 + label_mass)
    # ψ_k = (γ_k−1 + Σ_m w_mk) / (Σ_k γ_k − K + M)
    return Mixture(theta, normalised(gamma - 1 + item_mass))


def log_prior(theta: Array, psi: Array, alpha: Concentration, gamma: Concentration) -> float:
    """Return Σ_kp (α_p−1) log Θ_kp + Σ_k (γ_k−1) log ψ_k."""
    return float(xlogy(alpha - 1, theta).sum() + xlogy(gamma - 1, psi).sum())


def initial_theta(annotations: Annotations, K: int, alpha: Concentration, rng: Generator) -> Array:
    """Return (K, P): the smoothed label shares of a random item for each cluster."""
    labelled = np.flatnonzero(np.diff(annotations.item_pointers))
    items = rng.choice(labelled, size=K, replace=len(labelled) < K)
    overall = annotations.class_counts / annotations.n_labels
    # noise separates clusters that start at equal counts
    noise = rng.dirichlet(np.ones(annotations.n_classes), size=K)
    counts = np.empty((K, annotations.n_classes))
    for k, item in enumerate(items):
        rows = slice(*annotations.item_pointers[item : item + 2])
        counts[k] = np.bincount(annotations.label[rows], minlength=annotations.n_classes)
    return normalised(counts + np.maximum(alpha - 1, 0.1) * (overall + noise))


def random_clusters(n: int, n_clusters: int, rng: Generator) -> Array:
    """Return (n, clusters): random membership probabilities, mostly concentrated on one cluster."""
    return normalised(rng.dirichlet(np.full(n_clusters, 0.3), size=n))


class FMM(Model):
    """Mixture of multinomials over items: the items of a cluster share a label distribution.

    It ignores annotators, and is fitted by EM (maximum a posteriori).
    """

    n_item_clusters: int = setting(10, integer(1), "Number of item clusters.")
    _: KW_ONLY
    alpha: float | Sequence[float] = setting(
        2.0, dirichlet(1.0), "Dirichlet parameter of a cluster's distribution: a number, or a list by class."
    )
    gamma: float | Sequence[float] = setting(
        2.0, dirichlet(1.0), "Dirichlet parameter of the clusters' shares: a number, or a list by cluster."
    )
    max_iter: int = setting(500, *params.MAX_ITER)
    tol: float = setting(1e-6, *params.TOL)
    n_restarts: int = setting(1, *params.N_RESTARTS)
    start: str = setting(
        "items",
        choice("items", "random"),
        '``"items"``: clusters start at random items; ``"random"``: items start in random clusters.',
    )
    assignment: str = setting("soft", *ASSIGNMENT)
    seed: int = setting(0, *params.SEED)
    n_jobs: int = setting(-1, *params.N_JOBS)

    _memory_tables = {"MP": 2, "MK": 2}

    theta_: Array = fitted("(K, P): label distribution of each item cluster")
    psi_: Array = fitted("(K,): shares of the item clusters")
    item_clusters_: Array = fitted("(M, K): P(w_m = k | labels)")

    def _fit(self, annotations: Annotations, engine: Engine) -> None:
        blocks, K = engine.blocks(annotations, counts_of), self.n_item_clusters
        alpha = concentration(self, "alpha", self.alpha, annotations.n_classes)
        gamma = concentration(self, "gamma", self.gamma, K)
        restarts = Restarts(engine, self.n_restarts, self.seed, self.max_iter, self.tol)
        for monitor in restarts:
            mixture = monitor.resume(Mixture)
            if mixture is None and self.start == "items":
                mixture = Mixture(initial_theta(annotations, K, alpha, monitor.rng), np.full(K, 1.0 / K))
            elif mixture is None:
                w = random_clusters(annotations.n_items, K, monitor.rng)
                mixture = m_step(w.T @ annotations.counts, w.sum(axis=0), alpha, gamma)
            for _ in monitor:
                # E: every item's cluster, and the expected counts
                parts = blocks.map(e_step, theta=mixture.theta, psi=mixture.psi)
                label_mass, item_mass, log_likelihood = total(parts)
                objective = log_likelihood + log_prior(mixture.theta, mixture.psi, alpha, gamma)
                if monitor.report(objective, mixture):
                    break
                # M: the parameters that maximise the expected log-posterior
                mixture = m_step(label_mass, item_mass, alpha, gamma)
        best = restarts.best
        self.theta_, self.psi_ = best.state.theta, best.state.psi
        self.trace_, self.stopped_ = np.array(best.trace), best.stopped
        self._assign(blocks)

    def _assign(self, blocks: Blocks) -> None:
        """Set the items' clusters and label distributions."""
        parts = blocks.map(cluster_posterior, theta=self.theta_, psi=self.psi_)
        self.item_clusters_ = np.concatenate(list(parts))
        w = self.item_clusters_
        w = np.eye(w.shape[1])[w.argmax(axis=1)] if self.assignment == "hard" else w
        # Y'_m = Σ_k w_mk Θ_k   (Eq. infer with L = 1)
        self.label_distributions_ = w @ self.theta_
        self.prior_distribution_ = self.psi_ @ self.theta_

    def cluster_view(self, annotator_load: NDArray[Any] | None = None) -> ClusterView:
        """Return the item clusters, with all annotators in one cluster."""
        self._check_fitted()
        theta, psi, single = self.theta_, self.psi_, np.ones(1)
        return ClusterView(self.item_clusters_, None, theta[:, None], psi, single, single, theta)

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        self._assign(engine.blocks(new, counts_of))
