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

from typing import Any, Self

import numpy as np

from dissensus.engine import Engine
from dissensus.labels.annotations import Annotations
from dissensus.models.confusion import (
    QUESTION,
    UNSEEN,
    ConfusionModel,
    ConfusionSteps,
    Expected,
    log_chances,
    shares,
)
from dissensus.models.ibcc import expected_log, fixed_prior, gain
from dissensus.numerics import Array, normalised
from dissensus.params import SEED, choice, integer, real


def subtype_logs(mass: Array, subtype_prior: float) -> Array:
    """(P · G,): E log ψ_k + E log τ_kg for the mass (P, G) of each subtype."""
    classes = expected_log(1.0 + mass.sum(axis=1))
    return np.asarray(classes[:, None] + expected_log(subtype_prior + mass)).ravel()


class EBCC(ConfusionModel):
    """Items of one class come in subtypes, with confusion matrices for each: mistakes go together.

    Parameters
    ----------
    n_subtypes
        How many subtypes each class has.
    subtype_prior
        Dirichlet parameter of the subtypes' sizes; a small one leaves subtypes empty that are not needed.
    unseen
        What each label of an item leaves of the probability of a class that none of them names; 1 leaves
        all of it. Below 1, a rare class is not given to items for which nobody named it.
    estimate
        What ``label_distributions_`` holds: ``"truth"``, the probability that each class is the right
        one, or ``"population"``, the share of a population that would answer each class.
    weight_by
        How annotators count in the population: by the number of their ``"labels"``, or all alike
        (``"annotators"``).
    max_iter
        The most iterations.
    tol
        The fit stops when the objective per label changes by at most this much (nats).
    n_restarts
        How many fits from random starts there are; the best one is kept.
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    n_jobs
        Number of threads; −1 takes all cores. The result does not depend on it.
    """

    _rules = {
        "n_subtypes": integer(1),
        "subtype_prior": real(0.0, open_low=True),
        "unseen": UNSEEN,
        "estimate": QUESTION,
        "weight_by": choice("labels", "annotators"),
        "max_iter": integer(1),
        "tol": real(0.0),
        "n_restarts": integer(1),
        "seed": SEED[0],
        "n_jobs": integer(-1),
    }
    _arrays = (
        *ConfusionModel._arrays,
        "subtypes_",
        "subtype_shares_",
        "subtype_confusion_",
        "subtype_crowd_confusion_",
    )

    subtypes_: Array  # (M, P · G): q(t_m, g_m)
    subtype_shares_: Array  # (P · G,): of an item never seen
    subtype_confusion_: Array  # (N, P · G, P)
    subtype_crowd_confusion_: Array  # (P · G, P)

    def __init__(
        self,
        n_subtypes: int = 3,
        *,
        subtype_prior: float = 0.1,
        unseen: float = 1.0,
        estimate: str = "truth",
        weight_by: str = "labels",
        max_iter: int = 200,
        tol: float = 1e-6,
        n_restarts: int = 2,
        seed: int = 0,
        n_jobs: int = -1,
    ) -> None:
        self.n_subtypes = n_subtypes
        self.subtype_prior = subtype_prior
        self.unseen = unseen
        self.estimate = estimate
        self.weight_by = weight_by
        self.max_iter = max_iter
        self.tol = tol
        self.n_restarts = n_restarts
        self.seed = seed
        self.n_jobs = n_jobs

    def _fit(self, annotations: Annotations, engine: Engine, item_prior: Any = None) -> None:
        steps = ConfusionSteps(annotations, engine)
        given = self._known_before(item_prior, annotations)
        known = self._of_states(given)
        log_known = log_chances(known)
        prior = self._prior(annotations.n_classes)
        restarts = engine.restarts(self.n_restarts, self.seed, self.max_iter, self.tol)
        for monitor in restarts:
            expected = monitor.resume(Expected)
            if expected is None:
                w = self._start(steps.initial_posterior(shares, given), monitor.rng)
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
        self.subtype_crowd_confusion_ = self._crowd(rows, annotations.annotator_load)
        self._set_states(steps.posterior(logs, log_shares, log_known), rows)
        self.trace_, self.stopped_ = best.trace, best.stopped
        self._finish(annotations.annotator_load)

    def _prior(self, n_classes: int) -> Array:
        """(P · G, P): a, the same for all subtypes of a class."""
        return np.repeat(fixed_prior(n_classes), self.n_subtypes, axis=0)

    def _start(self, w: Array, rng: np.random.Generator) -> Array:
        """(M, P · G): each item's label shares, cut at random into subtypes."""
        cuts = rng.dirichlet(np.ones(self.n_subtypes), size=len(w))
        return np.asarray(w[:, :, None] * cuts[:, None, :]).reshape(len(w), -1)

    def _logs(self, expected: Expected, prior: Array) -> tuple[Array, Array]:
        """E log π (N, P · G, P), and E log ψ + E log τ (P · G,)."""
        mass = expected.item_mass.reshape(-1, self.n_subtypes)
        return expected_log(prior + expected.counts), subtype_logs(mass, self.subtype_prior)

    def _bound(self, expected: Expected, prior: Array) -> float:
        """The bound (2)."""
        mass = expected.item_mass.reshape(-1, self.n_subtypes)
        classes = gain(np.ones(len(mass)), mass.sum(axis=1))
        subtypes = gain(np.full_like(mass, self.subtype_prior), mass)
        return expected.entropy + classes + subtypes + gain(prior, expected.counts)

    def _states(self) -> tuple[Array, Array, Array, Array]:
        """Of subtypes, as :meth:`ConfusionModel._states`."""
        return self.subtypes_, self.subtype_shares_, self.subtype_confusion_, self.subtype_crowd_confusion_

    def _of_states(self, classes: Array) -> Array:
        return np.repeat(classes, self.n_subtypes, axis=-1)

    def _set_states(self, w: Array, matrices: Array) -> None:
        self.subtypes_, self.subtype_confusion_ = w, matrices
        self.posterior_, self.confusion_ = self._of_classes(w), self._of_rows(matrices)

    def _matrices_of_new(self, counts: Array, fitted: Self) -> Array:
        return normalised(self._prior(counts.shape[2]) + counts)

    def _of_classes(self, subtypes: Array) -> Array:
        """(…, P): P(true class), summed over its subtypes."""
        return np.asarray(subtypes.reshape(*subtypes.shape[:-1], -1, self.n_subtypes).sum(axis=-1))

    def _of_rows(self, confusion: Array) -> Array:
        """(N, P, P): each annotator's matrix by class, subtypes weighed by their shares."""
        share = normalised(self.subtype_shares_.reshape(-1, self.n_subtypes))
        N, _, P = confusion.shape
        return np.asarray(np.einsum("nkgp,kg->nkp", confusion.reshape(N, -1, self.n_subtypes, P), share))
