"""Dawid–Skene (1979), fitted by EM on a log-posterior that never falls.

Generative model: item m has a true class t_m ~ Cat(ψ); annotator n answers y_mn ~ Cat(π_{n, t_m}) from its
confusion matrix. Each row of a matrix has a Dirichlet prior of ``smoothing`` labels around the crowd's matrix
C, which is estimated once from the majority vote:

    ℓ = Σ_m log Σ_k ψ_k Π_(n,y) π_nky + s Σ_nkp C_kp log π_nkp                                          (1)

With s = 0 this is maximum likelihood, as published. EM starts at each item's label shares, also as published:
from the majority vote, a class that never wins has a zero in some matrix, and with s = 0 a zero remains (on
the 1979 data EM then ends at a lower maximum).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

from scipy.special import xlogy

from dissensus.engine import ConvergenceMonitor, Engine
from dissensus.labels.annotations import Annotations
from dissensus.models.confusion import ConfusionModel, label_shares, log_with_zeros, majority_votes
from dissensus.numerics import Array, normalised, safe_log
from dissensus.params import MAX_ITER, real, setting


@dataclass(frozen=True)
class DawidSkeneState:
    """Parameters during a fit."""

    psi: Array  # (P,)
    annotators: Array  # (N, P, P): confusion matrices


class DawidSkene(ConfusionModel):
    """Confusion matrix per annotator, shrunk towards the crowd's matrix."""

    max_iter: int = setting(200, *MAX_ITER)
    _: KW_ONLY
    smoothing: float = setting(
        4.0, real(0.0), "Labels that the crowd's matrix adds to an annotator's row; 0 is maximum likelihood."
    )

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        """Maximise the log-posterior (1) by EM."""
        steps, prior, log_prior = self._setup(annotations, engine, prior)
        # C: the crowd's matrix under the majority vote, plus one label spread over each row
        counts = steps.initial_counts(majority_votes).counts.sum(axis=0)
        anchor = normalised(counts + 1.0 / len(counts))
        monitor = ConvergenceMonitor(engine, self.max_iter, self.tol)
        state = monitor.resume(DawidSkeneState)
        if state is None:
            start = steps.initial_counts(label_shares, prior)
            state = DawidSkeneState(normalised(start.item_mass), self._m_step(start.counts, anchor))
        for _ in monitor:
            # E: every item's true class, and the expected counts
            logs = safe_log(state.annotators)
            expected = steps.e_step(logs, log_with_zeros(state.psi), log_prior)
            # s Σ_nkp C_kp log π_nkp
            log_density = float(xlogy(self.smoothing * anchor, state.annotators).sum())
            if monitor.report(expected.evidence + log_density, state):
                break
            # M: the class shares and annotators that maximise the expected log-posterior
            state = DawidSkeneState(normalised(expected.item_mass), self._m_step(expected.counts, anchor))
        self.psi_, self.confusion_ = state.psi, state.annotators
        self.posterior_ = steps.posterior(safe_log(self.confusion_), log_with_zeros(self.psi_), log_prior)
        self._set_fitted(annotations, monitor)

    def _m_step(self, counts: Array, anchor: Array) -> Array:
        """Return π_nkp = (s C_kp + n_nkp) / (s + n_nk)."""
        return normalised(self.smoothing * anchor + counts)

    def _new_matrices(self, counts: Array, fitted: Self) -> Array:
        return self._m_step(counts, fitted.crowd_confusion_)
