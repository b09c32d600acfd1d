"""EBCC: the items of a class have subtypes, so that annotators' errors are correlated (Li et al., ICML 2019).

Generative model: item m has a true class t_m ~ Cat(ψ), ψ ~ Dir(1), and a subtype g_m ~ Cat(τ_{t_m}),
τ_k ~ Dir(s, …, s) over G subtypes; annotator n answers from the row of that subtype,
y_mn ~ Cat(π_{n, t_m, g_m}), with π_nkg ~ Dir(a_k), where a_k is 4 at the class itself and 1 elsewhere.
Annotators are independent given the subtype, but not given the class: a group with a shared misconception
forms a subtype.

Variational Bayes, q(t, g) q(π) q(τ) q(ψ). With n_nkgp = Σ_m q(t_m = k, g_m = g) [y_mn = p] and
s_kg = Σ_m q(t_m = k, g_m = g):

    log q(t_m = k, g_m = g) = E log ψ_k + E log τ_kg + Σ_(n,y) E log π_nkgy + const                    (1)
    bound = Σ_m H(q(t_m, g_m)) + ln B(1 + Σ_g s_kg)/B(1) + Σ_k ln B(s + s_k)/B(s)
            + Σ_nkg ln B(a_k + n_nkg)/B(a_k)                                                           (2)

The published bound omits the B of the priors, so it cannot compare models of different sizes; (2) can.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, Self

import numpy as np

from dissensus.engine import Engine, Restarts
from dissensus.labels.annotations import Annotations
from dissensus.models.confusion import UNSEEN, ConfusionModel, ExpectedCounts, label_shares
from dissensus.models.ibcc import expected_log, fixed_prior, log_marginal
from dissensus.numerics import Array, normalised
from dissensus.params import N_RESTARTS, POSITIVE, SEED, fitted, integer, setting


class EBCC(ConfusionModel):
    """Subtypes of each class, with a row of each confusion matrix per subtype: errors are correlated."""

    n_subtypes: int = setting(3, integer(1), "Number of subtypes of each class.")
    _: KW_ONLY
    subtype_prior: float = setting(
        0.1, POSITIVE, "Dirichlet parameter of the subtypes' shares; small values leave extra subtypes empty."
    )
    unseen: float = setting(1.0, *UNSEEN)
    n_restarts: int = setting(2, *N_RESTARTS)
    seed: int = setting(0, *SEED)

    _memory_tables = {"MPG": 3, "NPPG": 6}

    subtypes_: Array = fitted("(M, P · G): q(t_m, g_m)")
    subtype_shares_: Array = fitted("(P · G,): shares of the subtypes")
    subtype_confusion_: Array = fitted("(N, P · G, P): P(answer | subtype) of each annotator")
    subtype_crowd_confusion_: Array = fitted("(P · G, P): P(answer | subtype) of the population")

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        steps, class_prior, log_class_prior = self._setup(annotations, engine, prior)
        # the items' prior of a class applies to all its subtypes
        item_prior = np.repeat(class_prior, self.n_subtypes, axis=-1)
        log_item_prior = np.repeat(log_class_prior, self.n_subtypes, axis=-1)
        a = np.repeat(fixed_prior(annotations.n_classes), self.n_subtypes, axis=0)  # (P · G, P)
        restarts = Restarts(engine, self.n_restarts, self.seed, self.max_iter, self.tol)
        for monitor in restarts:
            expected = monitor.resume(ExpectedCounts)
            if expected is None:
                # each item's label shares, divided at random among the subtypes
                w = steps.initial_posterior(label_shares, class_prior)
                fractions = monitor.rng.dirichlet(np.ones(self.n_subtypes), size=len(w))
                w = (w[:, :, None] * fractions[:, None, :]).reshape(len(w), -1)
                expected = steps.expected_counts(w, item_prior)
            for _ in monitor:
                if monitor.report(self._bound(expected, a), expected):
                    break
                # annotators, subtypes and classes, then the items (1)
                expected = steps.e_step(*self._expected_logs(expected, a), log_item_prior)
        best = restarts.best
        logs, log_shares = self._expected_logs(best.state, a)
        self.subtype_shares_ = normalised(np.exp(log_shares))
        self.psi_ = self._sum_subtypes(self.subtype_shares_)
        matrices = normalised(a + best.state.counts)
        self.subtype_crowd_confusion_ = self._crowd(annotations, matrices)
        self._set_states(steps.posterior(logs, log_shares, log_item_prior), matrices)
        self._set_fitted(annotations, best)

    def _expected_logs(self, expected: ExpectedCounts, a: Array) -> tuple[Array, Array]:
        """Return E log π (N, P · G, P), and E log ψ + E log τ (P · G,)."""
        mass = expected.item_mass.reshape(-1, self.n_subtypes)
        log_psi, log_tau = expected_log(1.0 + mass.sum(axis=1)), expected_log(self.subtype_prior + mass)
        return expected_log(a + expected.counts), (log_psi[:, None] + log_tau).ravel()

    def _bound(self, expected: ExpectedCounts, a: Array) -> float:
        """Return the bound (2)."""
        mass = expected.item_mass.reshape(-1, self.n_subtypes)
        class_term = log_marginal(np.ones(len(mass)), mass.sum(axis=1))
        subtype_term = log_marginal(np.full_like(mass, self.subtype_prior), mass)
        return expected.entropy + class_term + subtype_term + log_marginal(a, expected.counts)

    def _states(self) -> tuple[Array, Array, Array, Array]:
        return self.subtypes_, self.subtype_shares_, self.subtype_confusion_, self.subtype_crowd_confusion_

    def _set_states(self, w: Array, matrices: Array) -> None:
        self.subtypes_, self.subtype_confusion_ = w, matrices
        self.posterior_ = self._sum_subtypes(w)
        # each annotator's matrix by class: the mean over its subtypes, weighted by their shares
        share = normalised(self.subtype_shares_.reshape(-1, self.n_subtypes))
        N, _, P = matrices.shape
        by_class = matrices.reshape(N, -1, self.n_subtypes, P)
        self.confusion_ = np.asarray(np.einsum("nkgp,kg->nkp", by_class, share))

    def _new_matrices(self, counts: Array, fitted: Self) -> Array:
        return normalised(np.repeat(fixed_prior(counts.shape[2]), self.n_subtypes, axis=0) + counts)

    def _sum_subtypes(self, w: Array) -> Array:
        """Return (…, P): P(true class), summed over its subtypes."""
        return np.asarray(w.reshape(*w.shape[:-1], -1, self.n_subtypes).sum(axis=-1))
