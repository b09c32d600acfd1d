"""IBCC: Bayesian classifier combination (Kim & Ghahramani 2012), with a learned prior over annotators.

Generative model: item m has a true class t_m ~ Cat(ψ), ψ ~ Dir(1); annotator n has a confusion matrix with
rows π_nk ~ Dir(a_k), and answers y_mn ~ Cat(π_{n, t_m}). The crowd's a is learned from all annotators, so
that one with few labels is assumed to resemble the others, as closely as the others resemble each other.

Variational Bayes, q(t) q(π) q(ψ). With n_nkp = Σ_m q(t_m = k) [y_mn = p] and s_k = Σ_m q(t_m = k):

    q(π_nk) = Dir(a_k + n_nk),   E log π_nkp = Ψ(a_kp + n_nkp) − Ψ(Σ_p a_kp + n_nkp)                    (1)
    E log ψ_k = Ψ(1 + s_k) − Ψ(P + M)                                                                  (2)
    log q(t_m = k) = E log ψ_k + Σ_(n,y) E log π_nky + const                                           (3)
    bound = Σ_m H(q(t_m)) + ln B(1 + s)/B(1) + Σ_nk ln B(a_k + n_nk)/B(a_k) + log p(a)                 (4)
    p(a_kp) = exp(−a_kp / c) / c,              B(a) = Π_p Γ(a_p) / Γ(Σ_p a_p)

Each iteration updates a by one step of Minka's fixed point, as for CBCC's communities; with
``prior="fixed"`` it is 4 on the diagonal and 1 elsewhere, as published. (4) includes all normalisers, so that
bounds of models of different sizes are comparable.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from scipy.special import digamma, gammaln

from dissensus.engine import ConvergenceMonitor, Engine
from dissensus.labels.annotations import Annotations
from dissensus.models.confusion import UNSEEN, ConfusionModel, ExpectedCounts, label_shares
from dissensus.numerics import Array, normalised
from dissensus.params import POSITIVE, choice, fitted, setting

DIAGONAL_COUNT, OFF_DIAGONAL_COUNT = 4.0, 1.0  # pseudo-labels of the fixed prior
INITIAL_ROW_SUM = 4.0  # pseudo-labels per row of a learned prior at the start
MIN_PSEUDO_COUNT, MAX_PSEUDO_COUNT = 1e-3, 1e4  # range of a learned prior


@dataclass(frozen=True)
class IBCCState:
    """Expected counts, and the prior over annotators learned from them."""

    expected: ExpectedCounts
    a: Array  # (P, P)


def log_beta(a: Array) -> Array:
    """Return ln B of each row."""
    return np.asarray(gammaln(a).sum(-1) - gammaln(a.sum(-1)))


def expected_log(a: Array) -> Array:
    """Return E log p for p ~ Dir(a), row by row (1)."""
    return np.asarray(digamma(a) - digamma(a.sum(-1, keepdims=True)))


def log_marginal(prior: Array, counts: Array) -> float:
    """Return Σ over rows of ln B(prior + counts) / B(prior), the terms of the bound (4)."""
    log_prior = log_beta(prior)
    n_repeats = counts.size / counts.shape[-1] / log_prior.size
    return float(log_beta(prior + counts).sum() - log_prior.sum() * n_repeats)


def minka_step(counts: Array, z: Array, a: Array, concentration: float) -> Array:
    """Return a after one step of Minka's fixed point for every community of annotators (IBCC has one).

    a_lkp ← a_lkp · Σ_n z_nl [Ψ(a_lkp + n_nkp) − Ψ(a_lkp)] / (Σ_n z_nl [Ψ(A_lk + n_nk) − Ψ(A_lk)] + 1/c)

    The 1/c comes from the exponential prior on a_lkp with mean c; it bounds a if all members answer alike.
    """
    updated = np.empty_like(a)
    for community, (member, a_l) in enumerate(zip(z.T, a, strict=True)):
        row_sums = a_l.sum(-1)
        numerator = np.tensordot(member, digamma(a_l + counts) - digamma(a_l), axes=1)
        denominator = np.tensordot(member, digamma(row_sums + counts.sum(-1)) - digamma(row_sums), axes=1)
        updated[community] = a_l * numerator / (denominator + 1 / concentration)[:, None]
    return np.clip(updated, MIN_PSEUDO_COUNT, MAX_PSEUDO_COUNT)


def fixed_prior(n_classes: int) -> Array:
    """Return the published prior (P, P): annotators are more often correct than wrong."""
    off_diagonal = np.full((n_classes, n_classes), OFF_DIAGONAL_COUNT)
    return off_diagonal + (DIAGONAL_COUNT - OFF_DIAGONAL_COUNT) * np.eye(n_classes)


class IBCC(ConfusionModel):
    """Confusion matrix per annotator, with rows from Dirichlet distributions that are learned."""

    _: KW_ONLY
    prior: str = setting(
        "learned",
        choice("learned", "fixed"),
        '``"fixed"``: 4 pseudo-labels for the true class and 1 for each other, as published.',
    )
    concentration: float = setting(
        10.0, POSITIVE, "Mean of the exponential prior on each pseudo-count of the crowd's Dirichlet."
    )
    unseen: float = setting(1.0, *UNSEEN)

    prior_parameters_: Array = fitted("(P, P): a")

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        steps, item_prior, log_item_prior = self._setup(annotations, engine, prior)
        monitor = ConvergenceMonitor(engine, self.max_iter, self.tol)
        state = monitor.resume(IBCCState)
        if state is None:
            expected, P = steps.initial_counts(label_shares, item_prior), annotations.n_classes
            crowd = normalised(expected.counts.sum(axis=0) + 1.0 / P)
            state = IBCCState(expected, fixed_prior(P) if self.prior == "fixed" else INITIAL_ROW_SUM * crowd)
        for _ in monitor:
            expected, a = state.expected, state.a
            if monitor.report(self._bound(expected, a), state):
                break
            # M: the crowd's Dirichlet, by one step of Minka's fixed point
            if self.prior == "learned":
                all_members = np.ones((annotations.n_annotators, 1))
                a = minka_step(expected.counts, all_members, a[None], self.concentration)[0]
            # E: annotators (1), class shares (2), items (3)
            logs = expected_log(a + expected.counts)
            state = IBCCState(steps.e_step(logs, expected_log(1.0 + expected.item_mass), log_item_prior), a)
        counts, mass = state.expected.counts, state.expected.item_mass
        self.prior_parameters_, log_psi = state.a, expected_log(1.0 + mass)
        self.posterior_ = steps.posterior(expected_log(state.a + counts), log_psi, log_item_prior)
        self.psi_, self.confusion_ = normalised(np.exp(log_psi)), normalised(state.a + counts)
        self._set_fitted(annotations, monitor)

    def _bound(self, expected: ExpectedCounts, a: Array) -> float:
        """Return the bound (4)."""
        class_term = log_marginal(np.ones_like(expected.item_mass), expected.item_mass)
        bound = expected.entropy + class_term + log_marginal(a, expected.counts)
        if self.prior == "fixed":
            return bound
        return bound - float(a.sum() / self.concentration + a.size * np.log(self.concentration))

    def _new_matrices(self, counts: Array, fitted: Self) -> Array:
        return normalised(fitted.prior_parameters_ + counts)
