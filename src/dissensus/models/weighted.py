"""Weighted votes: Wawa, zero-based skill, the Bayesian weighted average, KOS and M-MSR.

Each label counts as much as its annotator's skill v_n, and an item's class is the one with the largest sum

    s_mk = Σ_n v_n [y_mn = k].                                                                         (1)

What differs is the skill. **Wawa** (worker agreement with aggregate): the share of an annotator's labels that
agree with the majority vote. **Zero-based skill**: the same against the weighted vote itself, over and over,
with a step that is halved every twenty rounds. **BWA** (Li et al., Information Processing & Management 2019):
each class k is a number z_mk in [0, 1] that annotators measure with a precision of their own,

    z_mk = (λ μ_k + Σ_n v_nk [y_mn = k]) / (λ + Σ_n v_nk),       μ_k = mean of z_mk                    (2)
    v_nk = (a + N_n) / (b_k + Σ_m (z_mk − [y_mn = k])²)                                                (3)

with b_k = 4 a (1 − 1/P) times the mean of z(1 − z) over the labels, at the start.

Ties share an item; a gold label takes its place in every comparison. The stories of KOS and M-MSR stand
above their classes.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dissensus.engine import Engine
from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.models.confusion import (
    SMOOTHING,
    WEIGHTS,
    ConfusionModel,
    ConfusionSteps,
    gold_signs,
    shares,
    times_prior,
    votes,
)
from dissensus.numerics import Array, normalised, ones, softmax_rows, winners
from dissensus.params import MAX_ITER, SEED, fitted, integer, real, setting

VOTE_TABLES = {"MP": 7, "NPP": 5}  # that a fit holds at once
FIRST_SKILL = 1e-5  # above chance, of zero-based skill
STEPS_AT_A_RATE = 20
MIN_ERROR = 1e-12
ALL_EIGENVECTORS = 100  # annotators up to which all eigenvectors are found
MAX_COMPARED_ANNOTATORS = 20_000  # of which every two are compared


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

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        steps, P = ConfusionSteps(annotations, engine), annotations.n_classes
        given = self._known_before(prior, annotations)
        skills = agreement(steps.initial_counts(votes, given).counts, annotations.annotator_load)
        posterior = times_prior(normalised(steps.scores(diagonal(skills, P))), given)
        keep_votes(self, steps, annotations, posterior, skills, "closed form")


class ZeroBasedSkill(ConfusionModel):
    """A vote weighted by each annotator's agreement with that same vote, found step by step."""

    max_iter: int = setting(100, integer(1), "How many steps are made.")

    _memory_tables = VOTE_TABLES

    weights_: Array = fitted(WEIGHTS)

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        steps, P = ConfusionSteps(annotations, engine), annotations.n_classes
        given = self._known_before(prior, annotations)
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

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        steps, P = ConfusionSteps(annotations, engine), annotations.n_classes
        given = self._known_before(prior, annotations)
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


# ---- KOS ----------------------------------------------------------------------------------------------
#
# KOS: messages between items and annotators, no model of either (Karger, Oh & Shah, NIPS 2011).
#
# For two classes, a label is A_mn = ±1, and every label carries a reliability y_{n→m}, at first from N(1, 1):
#
#     x_{m→n} = Σ_{n' ≠ n} A_mn' y_{n'→m},        y_{n→m} = Σ_{m' ≠ m} A_m'n x_{m'→n}                    (1)
#
# and at last item m is sign(Σ_n A_mn y_{n→m}). Messages are scaled to mean square one in every round, which
# changes nothing in (1) and keeps them within floating point. With more classes, each is compared with the
# rest. ``posterior_`` is no probability here: it is the share of the weighted votes for a class,
#
#     (1 + Σ_n A_mn y_{n→m} / Σ_n |y_{n→m}|) / 2.                                                         (2)
#
# An item with gold sends messages of the size of the others' and of the sign of its gold.


def scaled(messages: Array) -> Array:
    """Mean square one; messages that are all 0 stay."""
    size = float(np.sqrt(np.mean(messages**2)))
    return messages / size if size > 0 else messages


def reliabilities(annotations: Annotations, sign: Array, start: Array, gold: Array, rounds: int) -> Array:
    """(labels,): y_{n→m} after so many rounds (1); ``gold`` (items,) is ±1, or 0 where it is not known."""
    item, annotator = annotations.item, annotations.annotator
    M, N, y = annotations.n_items, annotations.n_annotators, start
    for _ in range(rounds):
        said = sign * y
        x = scaled(np.bincount(item, said, minlength=M)[item] - said)
        x = np.where(gold[item] != 0, gold[item], x)
        said = sign * x
        y = scaled(np.bincount(annotator, said, minlength=N)[annotator] - said)
    return y


class KOS(ConfusionModel):
    """Iterative message passing between items and annotators, with a random start."""

    max_iter: int = setting(100, integer(1), "How many rounds of messages there are.")
    _: KW_ONLY
    seed: int = setting(0, *SEED)

    _memory_tables = {"MP": 7, "NPP": 5, "E": 8}

    weights_: Array = fitted(WEIGHTS)

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        steps, P = ConfusionSteps(annotations, engine), annotations.n_classes
        given = self._known_before(prior, annotations)
        gold = gold_signs(given, annotations)
        start = np.random.default_rng(self.seed).normal(1.0, 1.0, annotations.n_labels)
        M, N, load = annotations.n_items, annotations.n_annotators, annotations.annotator_load
        shares, skills = np.empty((M, P)), np.zeros(N)
        for k in range(P):
            if P == 2 and k == 1:  # the other side of the same votes
                shares[:, 1] = 1.0 - shares[:, 0]
                break
            sign = np.where(annotations.label == k, 1.0, -1.0)
            y = reliabilities(annotations, sign, start, gold[:, k], self.max_iter)
            # the share (2) of the votes for class k against the rest
            votes = np.bincount(annotations.item, sign * y, minlength=M)
            size = np.bincount(annotations.item, np.abs(y), minlength=M)
            shares[:, k] = 0.5 + 0.5 * np.divide(votes, size, out=np.zeros(M), where=size > 0)
            means = np.bincount(annotations.annotator, y, minlength=N) / np.maximum(load, 1)
            skills += means / P
        posterior = times_prior(normalised(shares), given)
        keep_votes(self, steps, annotations, posterior, skills, "max_iter")


# ---- M-MSR --------------------------------------------------------------------------------------------
#
# M-MSR: skills from agreement between annotators, robust to adversaries (Ma & Olshevsky, NeurIPS 2020).
#
# Annotator n is right with chance p_n and otherwise says any other class alike. Two annotators then agree on
# an item with a chance that, put in the scale of
#
#     X_nj = (P A_nj − 1) / (P − 1),       A_nj: the share of their common items on which n and j agree,   (1)
#
# is x_n x_j, with x_n = (P p_n − 1) / (P − 1): a matrix of rank one, of which the pairs without common items
# are missing. It is completed by turns,
#
#     v_j ← trimmed mean over n of |X_nj| / u_n,           u_n ← trimmed mean over j of |X_nj| / v_j,      (2)
#
# where a mean leaves out up to F values above and F below the one before it, so that F adversaries among
# one's neighbours cannot move it. F is half of the smallest number of neighbours, less one, and not below 0.
# The signs are those of X's leading eigenvector. An item's class is the largest of
# Σ_n log((P − 1) p_n / (1 − p_n)) [y_mn = k].


def agreements(annotations: Annotations) -> tuple[Array, Array]:
    """(N, N) twice: on how many items two annotators answered, and on how many of those alike."""
    M, N, P = annotations.n_items, annotations.n_annotators, annotations.n_classes
    cells = annotations.item * np.int64(P) + annotations.label
    by_answer = sparse.csr_array(
        (ones(annotations.n_labels), (cells, annotations.annotator)), shape=(M * P, N)
    )
    by_item = sparse.csr_array(
        (ones(annotations.n_labels), (annotations.item, annotations.annotator)), shape=(M, N)
    )
    return (by_item.T @ by_item).toarray(), (by_answer.T @ by_answer).toarray()


def trimmed_means(ratios: Array, seen: Any, before: Array, F: int, least: float) -> Array:
    """(N,): each column's mean, up to F values above and F below ``before`` left out (2)."""
    values = np.sort(np.where(seen, ratios, np.inf), axis=0)  # what is missing comes last
    n = seen.sum(axis=0)
    below, above = (values < before).sum(axis=0), n - (values <= before).sum(axis=0)
    first, last = np.minimum(below, F), n - np.minimum(above, F)
    rank = np.arange(len(values))[:, None]
    kept = (rank >= first) & (rank < last)
    size = kept.sum(axis=0)
    means = np.where(kept, values, 0.0).sum(axis=0) / np.maximum(size, 1)
    # A lone 0 would stay 0 for ever, and be divided by.
    return np.where(size > 0, np.maximum(means, least), before)


class MMSR(ConfusionModel):
    """Skills by robust completion of the matrix of agreements between annotators, then a weighted vote."""

    max_iter: int = setting(1000, *MAX_ITER)
    _: KW_ONLY
    tol: float = setting(
        1e-10,
        real(0.0),
        "The fit stops when the completed matrix changes by less than this (Frobenius norm).",
    )
    seed: int = setting(0, *SEED)

    _memory_tables = {"MP": 3, "NPP": 7, "NN": 8}

    weights_: Array = fitted(WEIGHTS)

    def _fit(self, annotations: Annotations, engine: Engine, prior: Any = None) -> None:
        if annotations.n_annotators > MAX_COMPARED_ANNOTATORS:
            raise DataError(
                f"MMSR compares every two annotators, and {annotations.n_annotators:,} are too many; "
                "take another model (ibcc, dawid-skene)"
            )
        steps, P = ConfusionSteps(annotations, engine), annotations.n_classes
        given = self._known_before(prior, annotations)
        x, stopped = self._completed(annotations, gold_signs(given, annotations))
        # p_n = x_n (P − 1)/P + 1/P, kept off 0 and 1 by what so many items can tell
        edge = 1.0 / np.sqrt(max(annotations.n_items, 4))
        x = np.maximum(np.minimum(x, 1.0 - edge), -1.0 / max(P - 1, 1) + edge)
        chance = np.clip(x * (P - 1) / P + 1.0 / P, 1e-9, 1 - 1e-9)
        skills = np.log(chance * max(P - 1, 1) / (1 - chance))
        posterior, _ = softmax_rows(steps.scores(diagonal(skills, P)))
        keep_votes(self, steps, annotations, times_prior(posterior, given), skills, stopped)

    def _completed(self, annotations: Annotations, gold: Array) -> tuple[Array, str]:
        """(N,): x, of rank one with the agreements (1); and why the completion ended."""
        M, P = annotations.n_items, annotations.n_classes
        common, alike = agreements(annotations)
        np.fill_diagonal(common, 0.0)
        seen = common > 0
        X = (P * np.divide(alike, common, out=np.zeros_like(alike), where=seen) - 1) / max(P - 1, 1)
        X[~seen] = 0.0
        neighbours = seen.sum(axis=0)
        F, least = max(int(neighbours.min() // 2) - 1, 0), 1.0 / np.sqrt(max(M, 1))
        rng = np.random.default_rng(self.seed)
        u, v = rng.uniform(size=len(X)), rng.uniform(size=len(X))
        size, stopped = np.abs(X), "max_iter"
        for _ in range(self.max_iter):
            before = np.outer(u, v)
            v = trimmed_means(size / u[:, None], seen, v, F, least)
            u = trimmed_means(size / v[:, None], seen, u, F, least)
            if np.linalg.norm(np.outer(u, v) - before) < max(self.tol, 1e-12):
                stopped = "tolerance"
                break
        scale = float(np.sqrt(np.linalg.norm(v) / np.linalg.norm(u)))
        return self._signs(X, gold, annotations) * u * scale, stopped

    def _signs(self, X: Array, gold: Array, annotations: Annotations) -> Array:
        """(N,): ±1, by X's leading eigenvector; gold, or that most annotators are right, says which is +."""
        symmetric = (X + X.T) / 2
        if len(X) <= ALL_EIGENVECTORS:
            leading = np.linalg.eigh(symmetric)[1][:, -1]
        else:
            from scipy.sparse.linalg import eigsh

            leading = eigsh(symmetric, k=1, which="LA", v0=np.ones(len(X)))[1][:, 0]
        signs = np.where(leading < 0, -1.0, 1.0)
        right = float(signs[annotations.annotator] @ gold[annotations.item, annotations.label])
        agree = right if gold.any() else float(signs @ np.abs(leading))
        return signs if agree >= 0 else -signs
