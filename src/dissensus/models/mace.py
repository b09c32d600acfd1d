"""MACE: annotators who know, and annotators who spam (Hovy et al., NAACL 2013).

How a label is born: item m has a true class t_m, all classes alike; annotator n knows it with chance θ_n and
then says it; else it draws an answer from its own ξ_n, whatever the item. So its confusion matrix is

    π_nkp = θ_n [p = k] + (1 − θ_n) ξ_np,       θ_n ~ Beta(½, ½),  ξ_n ~ Dir(10, …, 10).               (1)

Variational Bayes as the authors recommend, q(t, who knew) q(θ) q(ξ): the chances in (1) are replaced by
exp E log, and with n_nkp = Σ_m q(t_m = k) [y_mn = p] the labels that were known and those that were not are

    known_n = Σ_p n_npp θ̂_n / (θ̂_n + (1−θ)^_n ξ̂_np),   spam_np = Σ_k n_nkp − (its part of known_n).    (2)

The bound is Σ_m log Σ_k (1/P) Π π̂_nky − KL(q(θ) ‖ p) − KL(q(ξ) ‖ p). EM starts at the items' label shares: no
restarts are needed, and none of the ten that crowd-kit makes differs from another (each takes the same seed).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np

from dissensus.engine import ConvergenceMonitor, Engine
from dissensus.labels.annotations import Annotations
from dissensus.models.confusion import ConfusionModel, shares
from dissensus.models.ibcc import expected_log, log_beta
from dissensus.numerics import Array, normalised
from dissensus.params import MAX_ITER, TOL, fitted, setting

KNOWING, STRATEGY = 0.5, 10.0  # pseudo-counts of the priors
FIRST_KNOWING = 0.5  # share of right answers that are taken to be known at the start
STEPS_OF_NEW = 20


@dataclass(frozen=True)
class Spammers:
    """Parameters of the annotators' posteriors."""

    knowing: Array  # (N, 2): Beta of θ, known and not
    strategy: Array  # (N, P): Dirichlet of ξ


def parts(own: Spammers) -> tuple[Array, Array]:
    """(N, 1) and (N, P): exp E log θ_n, and exp E log (1 − θ_n) · exp E log ξ_np."""
    knows = np.exp(expected_log(own.knowing))
    return knows[:, :1], knows[:, 1:] * np.exp(expected_log(own.strategy))


def matrices(knows: Array, spams: Array) -> Array:
    """(N, P, P): π (1)."""
    return np.asarray(spams[:, None, :] + knows[:, :, None] * np.eye(spams.shape[1]))


def learned(
    counts: Array, knows: Array | float = FIRST_KNOWING, spams: Array | float = 1 - FIRST_KNOWING
) -> Spammers:
    """The posteriors, from labels that were known and labels that were not (2)."""
    right = np.einsum("nkk->nk", counts)
    known = right * knows / (knows + spams)
    spam = counts.sum(axis=1) - known
    knowing = KNOWING + np.stack([known.sum(axis=1), spam.sum(axis=1)], axis=1)
    return Spammers(knowing, STRATEGY + spam)


def divergence(a: Array, prior: float) -> float:
    """Σ_n KL(Dir(a_n) ‖ Dir(prior, …, prior))."""
    flat = np.full(a.shape[-1], prior)
    rows = ((a - prior) * expected_log(a)).sum(axis=-1) - log_beta(a) + log_beta(flat)
    return float(rows.sum())


class MACE(ConfusionModel):
    """Every annotator knows the answer to some items, and otherwise answers by a habit of its own."""

    _: KW_ONLY
    max_iter: int = setting(200, *MAX_ITER)
    tol: float = setting(1e-6, *TOL)

    knowing_: Array = fitted("(N,): E θ")
    strategies_: Array = fitted("(N, P): E ξ")

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        steps, given, log_given = self._begin(annotations, engine, prior)
        flat = np.full(annotations.n_classes, -np.log(annotations.n_classes))
        monitor = ConvergenceMonitor(engine, self.max_iter, self.tol)
        own = monitor.resume(Spammers) or learned(steps.initial_counts(shares, given).counts)
        for _ in monitor:
            # E: the items' classes; M: what each annotator knew
            expected = steps.e_step(np.log(matrices(*parts(own))), flat, log_given)
            bound = expected.evidence - divergence(own.knowing, KNOWING) - divergence(own.strategy, STRATEGY)
            if monitor.report(bound, own):
                break
            own = learned(expected.counts, *parts(own))
        self.posterior_ = steps.posterior(np.log(matrices(*parts(own))), flat, log_given)
        knows, self.strategies_ = normalised(own.knowing), normalised(own.strategy)
        self.psi_, self.knowing_ = np.exp(flat), knows[:, 0]
        self.confusion_ = matrices(knows[:, :1], knows[:, 1:] * self.strategies_)
        self._finish(annotations.annotator_load, monitor)

    def _matrices_of_new(self, counts: Array, fitted: Self) -> Array:
        own = learned(counts)
        for _ in range(STEPS_OF_NEW):
            own = learned(counts, *parts(own))
        knows = normalised(own.knowing)
        return matrices(knows[:, :1], knows[:, 1:] * normalised(own.strategy))

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        super()._apply(new, fitted, engine)
        P = self.confusion_.shape[1]
        # π_nkk − mean of π_npk over p ≠ k is θ_n, for any k; what is left of a column is (1 − θ_n) ξ_n
        off = (self.confusion_.sum(axis=1) - np.einsum("nkk->nk", self.confusion_)) / max(P - 1, 1)
        self.knowing_ = 1.0 - off.sum(axis=1)
        self.strategies_ = normalised(off)

    def annotator_frame(self) -> dict[str, Any]:
        """Columns about annotators: accuracy, and how often they know."""
        return super().annotator_frame() | {"knowing": self.knowing_}
