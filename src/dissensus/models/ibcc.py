"""IBCC: Bayesian classifier combination (Kim & Ghahramani 2012), its prior over annotators learned.

How a label is born: item m has a true class t_m ~ Cat(ψ), ψ ~ Dir(1); annotator n has a confusion matrix with
rows π_nk ~ Dir(a_k), and answers y_mn ~ Cat(π_{n, t_m}). The crowd's a is learned from all annotators, so
that one with few labels is taken to be like the others, as much as the others are alike.

Learned by variational Bayes, q(t) q(π) q(ψ). With n_nkp = Σ_m q(t_m = k) [y_mn = p], s_k = Σ_m q(t_m = k):

    q(π_nk) = Dir(a_k + n_nk),   E log π_nkp = Ψ(a_kp + n_nkp) − Ψ(Σ_p a_kp + n_nkp)                    (1)
    E log ψ_k = Ψ(1 + s_k) − Ψ(P + M)                                                                  (2)
    log q(t_m = k) = E log ψ_k + Σ_(n,y) E log π_nky + const                                           (3)
    bound = Σ_m H(q(t_m)) + ln B(1 + s)/B(1) + Σ_nk ln B(a_k + n_nk)/B(a_k) + log p(a)                 (4)
    p(a_kp) = exp(−a_kp / c) / c,              B(a) = Π_p Γ(a_p) / Γ(Σ_p a_p)

a takes one step of Minka's fixed point an iteration, as CBCC's communities do; with ``prior="fixed"`` it is 4
on the diagonal and 1 elsewhere throughout, as published. (4) has all normalisers: bounds of models of
different sizes can be compared.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from scipy.special import digamma, gammaln

from dissensus.engine import ConvergenceMonitor, Engine
from dissensus.labels.annotations import Annotations
from dissensus.models.confusion import UNSEEN, ConfusionModel, Expected, shares
from dissensus.numerics import Array, normalised
from dissensus.params import MAX_ITER, TOL, choice, fitted, real, setting

RIGHT, WRONG = 4.0, 1.0  # pseudo-labels of a fixed prior, for the right class and for each other
FIRST_LABELS = 4.0  # labels that a row of the first prior is worth
LEAST, MOST = 1e-3, 1e4  # a learned prior's pseudo-counts stay between these


@dataclass(frozen=True)
class State:
    """What is expected of the items' true classes, and the prior over annotators learned from it."""

    expected: Expected
    a: Array  # (P, P)


def log_beta(a: Array) -> Array:
    """ln B of each row."""
    return np.asarray(gammaln(a).sum(-1) - gammaln(a.sum(-1)))


def expected_log(a: Array) -> Array:
    """E log of a Dirichlet's shares, row by row (1)."""
    return np.asarray(digamma(a) - digamma(a.sum(-1, keepdims=True)))


def gain(prior: Array, counts: Array) -> float:
    """Σ over rows of ln B(prior + counts) / B(prior): what counts add to the bound (4)."""
    own = log_beta(prior)
    return float(log_beta(prior + counts).sum() - own.sum() * (counts.size / counts.shape[-1] / own.size))


def fixed_point(counts: Array, z: Array, a: Array, concentration: float) -> Array:
    """One step of Minka's iteration for every community of annotators (IBCC has one).

    a_lkp ← a_lkp · Σ_n z_nl [Ψ(a_lkp + n_nkp) − Ψ(a_lkp)] / (Σ_n z_nl [Ψ(A_lk + n_nk) − Ψ(A_lk)] + 1/c)

    The 1/c comes from an exponential prior with mean c on every a_lkp, so that a community whose members all
    answer alike does not tighten without limit.
    """
    following = np.empty_like(a)
    for index, (share, own) in enumerate(zip(z.T, a, strict=True)):
        totals = own.sum(-1)
        raised = np.tensordot(share, digamma(own + counts) - digamma(own), axes=1)
        pull = np.tensordot(share, digamma(totals + counts.sum(-1)) - digamma(totals), axes=1)
        following[index] = own * raised / (pull + 1 / concentration)[:, None]
    return np.clip(following, LEAST, MOST)


def fixed_prior(n_classes: int) -> Array:
    """(P, P): annotators are more often right than wrong."""
    return np.full((n_classes, n_classes), WRONG) + (RIGHT - WRONG) * np.eye(n_classes)


class IBCC(ConfusionModel):
    """Every annotator has a confusion matrix, drawn from a Dirichlet distribution that is learned."""

    _: KW_ONLY
    prior: str = setting(
        "learned",
        choice("learned", "fixed"),
        '``"learned"``, or ``"fixed"``: 4 pseudo-labels for the right class and 1 for each other, as '
        "published.",
    )
    concentration: float = setting(
        10.0,
        real(0.0, open_low=True),
        "Mean of the exponential prior on each pseudo-count of the crowd's Dirichlet distribution.",
    )
    unseen: float = setting(1.0, *UNSEEN)
    max_iter: int = setting(200, *MAX_ITER)
    tol: float = setting(1e-6, *TOL)

    prior_parameters_: Array = fitted("(P, P): a")

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        steps, given, log_given = self._begin(annotations, engine, prior)
        monitor = ConvergenceMonitor(engine, self.max_iter, self.tol)
        state = monitor.resume(State)
        if state is None:
            expected, P = steps.initial_counts(shares, given), annotations.n_classes
            crowd = normalised(expected.counts.sum(axis=0) + 1.0 / P)
            state = State(expected, fixed_prior(P) if self.prior == "fixed" else FIRST_LABELS * crowd)
        for _ in monitor:
            expected, a = state.expected, state.a
            if monitor.report(self._bound(expected, a), state):
                break
            # M: the crowd's Dirichlet, by one step of Minka's fixed point
            if self.prior == "learned":
                everyone = np.ones((annotations.n_annotators, 1))
                a = fixed_point(expected.counts, everyone, a[None], self.concentration)[0]
            # E: annotators (1), class shares (2), items (3)
            logs = expected_log(a + expected.counts)
            state = State(steps.e_step(logs, expected_log(1.0 + expected.item_mass), log_given), a)
        counts, mass = state.expected.counts, state.expected.item_mass
        self.prior_parameters_, log_psi = state.a, expected_log(1.0 + mass)
        self.posterior_ = steps.posterior(expected_log(state.a + counts), log_psi, log_given)
        self.psi_, self.confusion_ = normalised(np.exp(log_psi)), normalised(state.a + counts)
        self._finish(annotations.annotator_load, monitor)

    def _bound(self, expected: Expected, a: Array) -> float:
        """The bound (4)."""
        classes = gain(np.ones_like(expected.item_mass), expected.item_mass)
        bound = expected.entropy + classes + gain(a, expected.counts)
        if self.prior == "fixed":
            return bound
        return bound - float(a.sum() / self.concentration + a.size * np.log(self.concentration))

    def _matrices_of_new(self, counts: Array, fitted: Self) -> Array:
        return normalised(fitted.prior_parameters_ + counts)
