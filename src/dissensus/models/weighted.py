"""Weighted votes: Wawa, zero-based skill and the Bayesian weighted average.

Each label counts as much as its annotator's skill v_n, and an item's class is the one with the largest sum

    s_mk = Σ_n v_n [y_mn = k].                                                                         (1)

What differs is the skill. **Wawa** (worker agreement with aggregate): the share of an annotator's labels that
agree with the majority vote. **Zero-based skill**: the same against the weighted vote itself, over and over,
with a step that is halved every twenty rounds. **BWA** (Li et al., Information Processing & Management 2019):
each class k is a number z_mk in [0, 1] that annotators measure with a precision of their own,

    z_mk = (λ μ_k + Σ_n v_nk [y_mn = k]) / (λ + Σ_n v_nk),       μ_k = mean of z_mk                    (2)
    v_nk = (a + N_n) / (b_k + Σ_m (z_mk − [y_mn = k])²)                                                (3)

with b_k = 4 a (1 − 1/P) times the mean of z(1 − z) over the labels, at the start.

Ties share an item; a gold label takes its place in every comparison.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import Engine
from dissensus.labels.annotations import Annotations
from dissensus.models.confusion import (
    SMOOTHING,
    WEIGHTS,
    ConfusionModel,
    ConfusionSteps,
    shares,
    times_prior,
    votes,
)
from dissensus.numerics import Array, normalised, winners
from dissensus.params import MAX_ITER, fitted, integer, real, setting

VOTE_TABLES = {"MP": 7, "NPP": 5}  # that a fit holds at once
FIRST_SKILL = 1e-5  # above chance, of zero-based skill
STEPS_AT_A_RATE = 20
MIN_ERROR = 1e-12


def diagonal(skills: Array, n_classes: int) -> Array:
    """(N, P, P): an annotator's skill where the answer is the class; skills (N,) or (N, P)."""
    return np.asarray(np.broadcast_to(skills.T, (n_classes, len(skills))).T[:, :, None] * np.eye(n_classes))


def agreement(counts: Array, load: NDArray[Any]) -> Array:
    """(N,): the share of each annotator's labels that agree with what is believed of the items."""
    return np.asarray(np.einsum("nkk->n", counts) / np.maximum(load, 1))


def keep_votes(
    model: ConfusionModel,
    steps: ConfusionSteps,
    annotations: Annotations,
    posterior: Array,
    skills: Array,
    stopped: str,
) -> None:
    """Keep a weighted vote. Matrices are counted afterwards, an item's labels against its answer.

    An item without labels is like the others on average.
    """
    labelled = np.diff(annotations.item_pointers) > 0
    model.psi_ = normalised(posterior[labelled].sum(axis=0))
    model.posterior_ = np.where(labelled[:, None], posterior, model.psi_)
    counts = steps.expected_counts(np.where(labelled[:, None], posterior, 0.0)).counts
    pooled = normalised(counts.sum(axis=0) + 1.0 / counts.shape[1])
    model.confusion_ = normalised(SMOOTHING * pooled + counts)
    model.weights_ = skills
    model.trace_, model.stopped_ = np.zeros(0), stopped
    model._finish(annotations.annotator_load)


class Wawa(ConfusionModel):
    """A vote weighted by each annotator's agreement with the majority."""

    _memory_tables = VOTE_TABLES

    weights_: Array = fitted(WEIGHTS)

    def _fit(self, annotations: Annotations, engine: Engine, item_prior: Any = None) -> None:
        steps, P = ConfusionSteps(annotations, engine), annotations.n_classes
        given = self._known_before(item_prior, annotations)
        skills = agreement(steps.initial_counts(votes, given).counts, annotations.annotator_load)
        posterior = times_prior(normalised(steps.scores(diagonal(skills, P))), given)
        keep_votes(self, steps, annotations, posterior, skills, "closed form")


class ZeroBasedSkill(ConfusionModel):
    """A vote weighted by each annotator's agreement with that same vote, found step by step."""

    max_iter: int = setting(100, integer(1), "How many steps are made.")

    _memory_tables = VOTE_TABLES

    weights_: Array = fitted(WEIGHTS)

    def _fit(self, annotations: Annotations, engine: Engine, item_prior: Any = None) -> None:
        steps, P = ConfusionSteps(annotations, engine), annotations.n_classes
        given = self._known_before(item_prior, annotations)
        skills, rate = np.full(annotations.n_annotators, 1.0 / P + FIRST_SKILL), 1.0
        for iteration in range(1, self.max_iter + 1):
            rate *= 0.5 if iteration % STEPS_AT_A_RATE == 0 else 1.0
            answer = winners(steps.scores(diagonal(skills, P)) * given)
            agreed = agreement(steps.expected_counts(answer).counts, annotations.annotator_load)
            skills = skills + rate * (agreed - skills)
        posterior = times_prior(normalised(steps.scores(diagonal(skills, P))), given)
        keep_votes(self, steps, annotations, posterior, skills, "max_iter")


class BWA(ConfusionModel):
    """The Bayesian weighted average: annotators measure each class with a precision of their own."""

    _: KW_ONLY
    strength: float = setting(
        15.0, real(0.0, open_low=True), "How many labels the prior of a precision is worth (a)."
    )
    shrinkage: float = setting(
        1.0, real(0.0, open_low=True), "How many labels of precision one the average over items is worth (λ)."
    )
    max_iter: int = setting(500, *MAX_ITER)
    tol: float = setting(
        1e-3, real(0.0), "The fit stops when no share of an item changes by more than this part of itself."
    )

    _memory_tables = VOTE_TABLES

    weights_: Array = fitted(WEIGHTS)

    def _fit(self, annotations: Annotations, engine: Engine, item_prior: Any = None) -> None:
        steps, P = ConfusionSteps(annotations, engine), annotations.n_classes
        given = self._known_before(item_prior, annotations)
        load, labels = annotations.annotator_load, np.diff(annotations.item_pointers)
        z, stopped = steps.initial_posterior(shares, given), "max_iter"
        # b_k = 4 a (1 − 1/P) Σ_m N_m z_mk (1 − z_mk) / Σ_m N_m                                        (3)
        b = 4 * self.strength * (1 - 1 / P) * (labels @ (z * (1 - z))) / labels.sum()
        given_by = np.einsum("nkk->nk", steps.expected_counts(np.ones_like(z)).counts)
        for _ in range(self.max_iter):
            # Σ_m (z_mk − [y_mn = k])² = Σ_m z_mk² − 2 Σ_(y = k) z_mk + Σ_m [y_mn = k]
            squares = steps.expected_counts(z**2).counts.sum(axis=2)
            own = np.einsum("nkk->nk", steps.expected_counts(z).counts)
            errors = np.maximum(squares - 2 * own + given_by, 0.0)
            precision = (self.strength + load)[:, None] / (np.maximum(b, MIN_ERROR) + errors)
            # z_mk, with μ_k the mean over the items                                                    (2)
            said = steps.scores(diagonal(precision, P))
            all_of_them = steps.scores(np.repeat(precision[:, :, None], P, axis=2))
            measured = (self.shrinkage * z.mean(axis=0) + said) / (self.shrinkage + all_of_them)
            before, z = z, times_prior(measured, given)
            if np.allclose(before, z, rtol=self.tol):
                stopped = "tolerance"
                break
        keep_votes(self, steps, annotations, normalised(z), precision.mean(axis=1), stopped)
