"""EBCC: items of one class come in subtypes, so that annotators' mistakes go together (Li et al., ICML 2019).

How a label is born: item m has a true class t_m ~ Cat(ψ), ψ ~ Dir(1), and a subtype g_m ~ Cat(τ_{t_m}),
τ_k ~ Dir(s, …, s) over G subtypes; annotator n answers from the row of that subtype,
y_mn ~ Cat(π_{n, t_m, g_m}), with π_nkg ~ Dir(a_k), a_k being 4 at the class itself and 1 elsewhere.
Annotators are independent given the subtype, no longer given the class: a group that shares a false belief
makes a subtype.

Variational Bayes, q(t, g) q(π) q(τ) q(ψ). With n_nkgp = Σ_m q(t_m = k, g_m = g) [y_mn = p] and
s_kg = Σ_m q(t_m = k, g_m = g):

    log q(t_m = k, g_m = g) = E log ψ_k + E log τ_kg + Σ_(n,y) E log π_nkgy + const                    (1)
    bound = Σ_m H(q(t_m, g_m)) + ln B(1 + Σ_g s_kg)/B(1) + Σ_k ln B(s + s_k)/B(s)
            + Σ_nkg ln B(a_k + n_nkg)/B(a_k)                                                           (2)

The published bound omits the B of the priors and cannot compare models of different sizes; (2) can.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any, Self

import numpy as np

from dissensus.engine import Engine, Restarts
from dissensus.labels.annotations import Annotations
from dissensus.models.confusion import UNSEEN, ConfusionModel, Expected, shares
from dissensus.models.ibcc import expected_log, fixed_prior, gain
from dissensus.numerics import Array, normalised
from dissensus.params import MAX_ITER, N_RESTARTS, SEED, TOL, fitted, integer, real, setting


class EBCC(ConfusionModel):
    """Items of one class come in subtypes, with confusion matrices for each: mistakes go together."""

    n_subtypes: int = setting(3, integer(1), "How many subtypes each class has.")
    _: KW_ONLY
    subtype_prior: float = setting(
        0.1,
        real(0.0, open_low=True),
        "Dirichlet parameter of the subtypes' sizes; a small one leaves subtypes empty that are not needed.",
    )
    unseen: float = setting(1.0, *UNSEEN)
    max_iter: int = setting(200, *MAX_ITER)
    tol: float = setting(1e-6, *TOL)
    n_restarts: int = setting(2, *N_RESTARTS)
    seed: int = setting(0, *SEED)

    _memory_tables = {"MPG": 3, "NPPG": 6}

    subtypes_: Array = fitted("(M, P · G): q(t_m, g_m)")
    subtype_shares_: Array = fitted("(P · G,): shares of the subtypes")
    subtype_confusion_: Array = fitted("(N, P · G, P): P(answer | subtype) of each annotator")
    subtype_crowd_confusion_: Array = fitted("(P · G, P): P(answer | subtype) of the population")

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        steps, given, log_given = self._begin(annotations, engine, prior)
        known, log_known = (np.repeat(table, self.n_subtypes, axis=-1) for table in (given, log_given))
        # (P · G, P): a, the same for all subtypes of a class
        prior = np.repeat(fixed_prior(annotations.n_classes), self.n_subtypes, axis=0)
        restarts = Restarts(engine, self.n_restarts, self.seed, self.max_iter, self.tol)
        for monitor in restarts:
            expected = monitor.resume(Expected)
            if expected is None:
                # each item's label shares, cut at random into subtypes
                w = steps.initial_posterior(shares, given)
                cuts = monitor.rng.dirichlet(np.ones(self.n_subtypes), size=len(w))
                w = (w[:, :, None] * cuts[:, None, :]).reshape(len(w), -1)
                expected = steps.expected_counts(w, known)
            for _ in monitor:
                if monitor.report(self._bound(expected, prior), expected):
                    break
                # annotators, subtypes and classes, then the items (1)
                expected = steps.e_step(*self._logs(expected, prior), log_known)
        best = restarts.best
        logs, log_shares = self._logs(best.state, prior)
        self.subtype_shares_ = normalised(np.exp(log_shares))
        self.psi_ = self._of_classes(self.subtype_shares_)
        rows = normalised(prior + best.state.counts)
        load = annotations.annotator_load
        weights = load if self.weight_by == "labels" else np.ones(len(load))
        self.subtype_crowd_confusion_ = normalised(np.tensordot(weights, rows, axes=1))
        self._set_states(steps.posterior(logs, log_shares, log_known), rows)
        self._finish(annotations.annotator_load, best)

    def _logs(self, expected: Expected, prior: Array) -> tuple[Array, Array]:
        """E log π (N, P · G, P), and E log ψ + E log τ (P · G,)."""
        mass = expected.item_mass.reshape(-1, self.n_subtypes)
        classes, subtypes = expected_log(1.0 + mass.sum(axis=1)), expected_log(self.subtype_prior + mass)
        return expected_log(prior + expected.counts), (classes[:, None] + subtypes).ravel()

    def _bound(self, expected: Expected, prior: Array) -> float:
        """The bound (2)."""
        mass = expected.item_mass.reshape(-1, self.n_subtypes)
        classes = gain(np.ones(len(mass)), mass.sum(axis=1))
        subtypes = gain(np.full_like(mass, self.subtype_prior), mass)
        return expected.entropy + classes + subtypes + gain(prior, expected.counts)

    def _states(self) -> tuple[Array, Array, Array, Array]:
        """Of subtypes, as :meth:`ConfusionModel._states`."""
        return self.subtypes_, self.subtype_shares_, self.subtype_confusion_, self.subtype_crowd_confusion_

    def _set_states(self, w: Array, matrices: Array) -> None:
        self.subtypes_, self.subtype_confusion_ = w, matrices
        self.posterior_ = self._of_classes(w)
        # each annotator's matrix by class, subtypes weighed by their shares
        share = normalised(self.subtype_shares_.reshape(-1, self.n_subtypes))
        N, _, P = matrices.shape
        by_class = matrices.reshape(N, -1, self.n_subtypes, P)
        self.confusion_ = np.asarray(np.einsum("nkgp,kg->nkp", by_class, share))

    def _matrices_of_new(self, counts: Array, fitted: Self) -> Array:
        prior = np.repeat(fixed_prior(counts.shape[2]), self.n_subtypes, axis=0)
        return normalised(prior + counts)

    def _of_classes(self, subtypes: Array) -> Array:
        """(…, P): P(true class), summed over its subtypes."""
        return np.asarray(subtypes.reshape(*subtypes.shape[:-1], -1, self.n_subtypes).sum(axis=-1))
