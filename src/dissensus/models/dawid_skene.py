"""Dawid–Skene (1979) and its one-coin cousin, by EM on a log-posterior that never falls.

How a label is born: item m has a true class t_m ~ Cat(ψ); annotator n answers y_mn ~ Cat(π_{n, t_m}) from a
confusion matrix of its own. Each row of a matrix has a Dirichlet prior worth ``smoothing`` labels,
spread like the crowd's own matrix C, which is estimated once from the majority vote and held fixed in EM:

    ℓ = Σ_m log Σ_k ψ_k Π_(n,y) π_nky + s Σ_nkp C_kp log π_nkp                                          (1)

With s = 0 this is maximum likelihood, as published. EM starts at each item's label shares, as published too:
started at the majority vote, a class that lost everywhere leaves a zero in some matrix, and with s = 0 a zero
stays (on the 1979 data EM then ends at a lower maximum). One coin: an annotator is right with chance q_n
whatever the class, and otherwise answers any other class alike; the prior is s labels at the crowd's
accuracy.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from scipy.special import xlogy

from dissensus.engine import ConvergenceMonitor, Engine
from dissensus.labels.annotations import Annotations
from dissensus.models.confusion import ConfusionModel, log_chances, shares, votes
from dissensus.numerics import Array, normalised, safe_log
from dissensus.params import MAX_ITER, TOL, real, setting


@dataclass(frozen=True)
class Skills:
    """What is learned."""

    psi: Array  # (P,)
    annotators: Array  # their matrices (N, P, P), or one coin's two sides (N, 2)


class DawidSkene(ConfusionModel):
    """Every annotator has a confusion matrix, drawn towards that of the crowd."""

    max_iter: int = setting(200, *MAX_ITER)
    _: KW_ONLY
    smoothing: float = setting(
        4.0,
        real(0.0),
        "How many labels the crowd's matrix is worth in each row of an annotator's; 0 is maximum "
        "likelihood, as published in 1979.",
    )
    tol: float = setting(1e-6, *TOL)

    def _fit(self: DawidSkene | OneCoin, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        """EM on the log-posterior (1)."""
        steps, prior, log_prior = self._begin(annotations, engine, prior)
        anchor = self._anchor(steps.initial_counts(votes).counts.sum(axis=0))
        monitor = ConvergenceMonitor(engine, self.max_iter, self.tol)
        skills = monitor.resume(Skills)
        if skills is None:
            start = steps.initial_counts(shares, prior)
            skills = Skills(normalised(start.item_mass), self._learn(start.counts, anchor))
        for _ in monitor:
            # E: every item's true class, and the expected counts
            logs = safe_log(self._matrices(skills.annotators))
            expected = steps.e_step(logs, log_chances(skills.psi), log_prior)
            # s Σ_nkp C_kp log π_nkp, or with one coin s Σ_n (q log q_n + (1 − q) log (1 − q_n))
            log_density = float(xlogy(self.smoothing * anchor, skills.annotators).sum())
            if monitor.report(expected.evidence + log_density, skills):
                break
            # M: the class shares and annotators that maximise the expected log-posterior
            skills = Skills(normalised(expected.item_mass), self._learn(expected.counts, anchor))
        self.psi_, self.confusion_ = skills.psi, self._matrices(skills.annotators)
        self.posterior_ = steps.posterior(safe_log(self.confusion_), log_chances(self.psi_), log_prior)
        self._finish(annotations.annotator_load, monitor)

    def _anchor(self, counts: Array) -> Array:
        """C: the crowd's matrix under the majority vote, one pseudo-label spread over each row."""
        return normalised(counts + 1.0 / counts.shape[1])

    def _learn(self, counts: Array, anchor: Array) -> Array:
        """π_nkp = (s C_kp + n_nkp) / (s + n_nk)."""
        return normalised(self.smoothing * anchor + counts)

    def _matrices(self, learned: Array) -> Array:
        return learned

    def _matrices_of_new(self, counts: Array, fitted: Self) -> Array:
        return self._learn(counts, fitted.crowd_confusion_)


class OneCoin(ConfusionModel):
    """Every annotator has one chance of being right, whatever the class, drawn towards that of the crowd."""

    max_iter: int = setting(200, *MAX_ITER)
    _: KW_ONLY
    smoothing: float = setting(
        4.0, real(0.0), "How many labels the crowd's chance is worth; 0 is maximum likelihood."
    )
    tol: float = setting(1e-6, *TOL)

    _fit = DawidSkene._fit  # with another anchor and M-step, and matrices made of the coins

    def _anchor(self, counts: Array) -> Array:
        """(2,): the crowd's share of right and of wrong answers under the majority vote."""
        right = np.trace(counts)
        return normalised(np.array([right, counts.sum() - right]) + 0.5)

    def _learn(self, counts: Array, anchor: Array) -> Array:
        """(N, 2): q_n = (s q + right answers) / (s + answers), and 1 − q_n."""
        right = np.einsum("nkk->n", counts)
        wrong = counts.sum(axis=(1, 2)) - right
        return normalised(self.smoothing * anchor + np.stack([right, wrong], axis=1))

    def _matrices(self, learned: Array) -> Array:
        """π_nkp = q_n where p = k, (1 − q_n) / (P − 1) elsewhere."""
        P = len(self.class_vocabulary_)
        wrong = np.broadcast_to((learned[:, 1] / max(P - 1, 1))[:, None, None], (len(learned), P, P)).copy()
        wrong[:, np.arange(P), np.arange(P)] = learned[:, :1]
        return normalised(wrong)

    def _matrices_of_new(self, counts: Array, fitted: Self) -> Array:
        right = float(fitted.psi_ @ np.diag(fitted.crowd_confusion_))
        return self._matrices(self._learn(counts, np.array([right, 1.0 - right])))
