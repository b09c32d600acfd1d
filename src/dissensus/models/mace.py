"""MACE: annotators either know the answer or guess (Hovy et al., NAACL 2013).

Generative model: item m has a true class t_m, uniformly distributed; annotator n knows it with probability
θ_n, its competence, and then answers it; otherwise it draws an answer from its strategy ξ_n, independent of
the item. So its confusion matrix is

    π_nkp = θ_n [p = k] + (1 − θ_n) ξ_np,       θ_n ~ Beta(½, ½),  ξ_n ~ Dir(10, …, 10).               (1)

Variational Bayes as the authors recommend, with q(t, knew) q(θ) q(ξ): the probabilities in (1) become
exp E log, and with n_nkp = Σ_m q(t_m = k) [y_mn = p] the numbers of known and of guessed labels are

    known_n = Σ_p n_npp θ̂_n / (θ̂_n + (1−θ)^_n ξ̂_np),   guessed_np = Σ_k n_nkp − (its part of known_n).  (2)

The bound is Σ_m log Σ_k (1/P) Π π̂_nky − KL(q(θ) ‖ p) − KL(q(ξ) ‖ p). EM starts at the items' label shares, so
no restarts are needed; the ten of crowd-kit all use the same seed and are identical.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from dissensus.engine import ConvergenceMonitor, Engine
from dissensus.labels.annotations import Annotations
from dissensus.models.confusion import ConfusionModel, label_shares
from dissensus.models.ibcc import expected_log, log_beta
from dissensus.numerics import Array, normalised
from dissensus.params import fitted

COMPETENCE_PRIOR, STRATEGY_PRIOR = 0.5, 10.0  # pseudo-counts
INITIAL_COMPETENCE = 0.5  # share of the correct answers that are taken as known at the start
NEW_ANNOTATOR_UPDATES = 20


@dataclass(frozen=True)
class MACEState:
    """Parameters of the annotators' posteriors."""

    competence: Array  # (N, 2): Beta of θ
    strategy: Array  # (N, P): Dirichlet of ξ

    def weights(self) -> tuple[Array, Array]:
        """Return (N, 1) and (N, P): exp E log θ_n, and exp E log (1 − θ_n) · exp E log ξ_np."""
        theta = np.exp(expected_log(self.competence))
        return theta[:, :1], theta[:, 1:] * np.exp(expected_log(self.strategy))


def matrices(known_weight: Array, guess_weight: Array) -> Array:
    """Return (N, P, P): π (1), from the probabilities (N, 1) and (N, P) of its two parts."""
    return np.asarray(guess_weight[:, None, :] + known_weight[:, :, None] * np.eye(guess_weight.shape[1]))


def updated_posteriors(
    counts: Array,
    known_weight: Array | float = INITIAL_COMPETENCE,
    guess_weight: Array | float = 1 - INITIAL_COMPETENCE,
) -> MACEState:
    """Return the posteriors, given the expected numbers of known and guessed labels (2)."""
    n_known = np.einsum("nkk->nk", counts) * known_weight / (known_weight + guess_weight)
    n_guessed = counts.sum(axis=1) - n_known
    competence = COMPETENCE_PRIOR + np.stack([n_known.sum(axis=1), n_guessed.sum(axis=1)], axis=1)
    return MACEState(competence, STRATEGY_PRIOR + n_guessed)


def dirichlet_kl(a: Array, prior: float) -> float:
    """Return Σ_n KL(Dir(a_n) ‖ Dir(prior, …, prior))."""
    rows = ((a - prior) * expected_log(a)).sum(axis=-1) - log_beta(a) + log_beta(np.full(a.shape[-1], prior))
    return float(rows.sum())


class MACE(ConfusionModel):
    """Competence and guessing strategy per annotator."""

    competence_: Array = fitted("(N,): E θ")
    strategies_: Array = fitted("(N, P): E ξ")

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        steps, item_prior, log_item_prior = self._setup(annotations, engine, prior)
        log_psi = np.full(annotations.n_classes, -np.log(annotations.n_classes))
        monitor = ConvergenceMonitor(engine, self.max_iter, self.tol)
        state = monitor.resume(MACEState)
        state = state or updated_posteriors(steps.initial_counts(label_shares, item_prior).counts)
        for _ in monitor:
            # E: the items' classes
            expected = steps.e_step(np.log(matrices(*state.weights())), log_psi, log_item_prior)
            bound = expected.evidence - dirichlet_kl(state.competence, COMPETENCE_PRIOR)
            if monitor.report(bound - dirichlet_kl(state.strategy, STRATEGY_PRIOR), state):
                break
            # M: the annotators' posteriors
            state = updated_posteriors(expected.counts, *state.weights())
        self.posterior_ = steps.posterior(np.log(matrices(*state.weights())), log_psi, log_item_prior)
        theta, self.strategies_ = normalised(state.competence), normalised(state.strategy)
        self.psi_, self.competence_ = np.exp(log_psi), theta[:, 0]
        self.confusion_ = matrices(theta[:, :1], theta[:, 1:] * self.strategies_)
        self._set_fitted(annotations.annotator_load, monitor)

    def _new_matrices(self, counts: Array, fitted: Self) -> Array:
        state = updated_posteriors(counts)
        for _ in range(NEW_ANNOTATOR_UPDATES):
            state = updated_posteriors(counts, *state.weights())
        theta = normalised(state.competence)
        return matrices(theta[:, :1], theta[:, 1:] * normalised(state.strategy))

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        super()._apply(new, fitted, engine)
        P = self.confusion_.shape[1]
        # (1 − θ_n) ξ_np is the mean of π_nkp over k ≠ p, and sums to 1 − θ_n over p
        off_diagonal = (self.confusion_.sum(axis=1) - np.einsum("nkk->nk", self.confusion_)) / max(P - 1, 1)
        self.competence_ = 1.0 - off_diagonal.sum(axis=1)
        self.strategies_ = normalised(off_diagonal)

    def annotator_frame(self) -> dict[str, Any]:
        """Return columns about annotators: accuracy and competence."""
        return super().annotator_frame() | {"competence": self.competence_}
