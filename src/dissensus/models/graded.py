"""Graded response: labels on an ordered scale, given by annotators with thresholds and slopes of their own.

How a label is born (Samejima 1969, with items that differ in clarity and annotators who at times just guess):

    (x_m, d_m) ~ ψ on a grid              where item m lies on the scale, and how clearly
    (c_n1 < … < c_n,P−1, a_n) ~ N(ū, Σ)   annotator n's thresholds and slope; in Σ thresholds move together
                                          (v₁) and each on its own (v₂), and slopes vary (v₃)
    ε_n ~ Beta, worth 20 labels at 3 %    how often they guess
    P(y ≤ k | x, d, n) = σ(d (c_nk − a_n x)), but a guess is drawn from the crowd's shares

With ``sides``, items differ in a second direction in place of clarity, and annotators in what it is to them:

    (x_m, u_m) ~ ψ on a grid              where item m lies, and to which side
    b_n ~ N(0, v₄)                        annotator n's slope there: those of one sign agree about such items
    P(y ≤ k | x, u, n) = σ(d̄ (c_nk − a_n x − b_n u))

Fitted by EM over the grid: E, each item's place given its labels; M, one step of Fisher scoring for
everyone's thresholds and slopes, ψ and ε in closed form, ū and Σ from the annotators (empirical Bayes, with
the variances that the curvature leaves). An item's answer is the population's at its place:
Σ_q P(q | labels) Σ_n v_n P(y | q, n).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import expit

from dissensus.engine import ConvergenceMonitor, Engine
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Codes
from dissensus.models.base import Model
from dissensus.numerics import Array, batches, normalised, row_shares
from dissensus.params import MAX_ITER, TOL, WEIGHT_BY, fitted, flag, setting

PLACES, CLEAR = np.linspace(-3, 3, 17), np.array([0.5, 1.0, 2.0, 4.0])
FEWER_PLACES, SIDES, MEAN_CLEAR = np.linspace(-3, 3, 13), np.linspace(-1.8, 1.8, 5), 2**0.5
GUESSES, WORTH = 0.03, 20.0  # how often annotators guess, and how many labels that is worth
SMOOTH = 2.0  # items that the normal start of ψ is worth
GAP = 0.02  # least distance of two thresholds
LEAST = 0.01  # least variance of anything
ROUNDS = 30  # of the search for how annotators part
LABELS_AT_A_TIME, ANNOTATORS_AT_A_TIME = 1 << 15, 256
TINY = 1e-12


@dataclass(frozen=True)
class Grid:
    """Where an item may lie."""

    x: Array  # (Q, D)
    d: Array  # (Q,)

    @classmethod
    def of(cls, sides: bool) -> Grid:
        """All places with all clarities, or on all sides."""
        first, second = np.meshgrid(*((FEWER_PLACES, SIDES) if sides else (PLACES, CLEAR)))
        if sides:
            return cls(np.stack([first.ravel(), second.ravel()], axis=1), np.full(first.size, MEAN_CLEAR))
        return cls(first.reshape(-1, 1), second.ravel())

    @property
    def normal(self) -> Array:
        """(Q,): ψ before any label is seen."""
        return normalised(np.exp(-(self.x**2).sum(axis=1) / 2))


@dataclass(frozen=True)
class AnnotatorParameters:
    """What is learned: of annotators, of the crowd they are of, and of the places of items at large."""

    own: Array  # (N, P − 1 + D): thresholds, then slopes
    guesses: Array  # (N,)
    crowd: Array  # (P − 1 + D,): ū
    spread: Array  # (2 + D,): v₁, v₂, and of the slopes
    psi: Array  # (Q,)


def start(annotations: Annotations, shares: Array, grid: Grid) -> AnnotatorParameters:
    """Everyone's thresholds give the crowd's shares, ψ normal; slopes to the sides as annotators part."""
    N, P, D = annotations.n_annotators, len(shares), grid.x.shape[1]
    below = np.clip(np.cumsum(shares)[:-1], 0.01, 0.99)
    thresholds = np.maximum.accumulate(1.3 * np.log(below / (1 - below)) + 0.3 * np.arange(P - 1))
    crowd = np.concatenate([thresholds - 0.15 * max(P - 2, 0), [1.5, 0.0][:D]])
    own = np.tile(crowd, (N, 1))
    if D > 1:
        own[:, -1] = 0.7 * leading_disagreement(annotations)
    spread = np.array([0.5, 0.2, 0.2, 0.5])[: 2 + D]
    return AnnotatorParameters(own, np.full(N, GUESSES), crowd, spread, grid.normal)


def leading_disagreement(annotations: Annotations) -> Array:
    """(N,): how annotators part: the leading eigenvector of their correlations, of mean square 1.

    R (annotators, items) has what is left of labels without the means of items and annotators, each row of
    length 1; the diagonal of R Rᵀ, everyone's agreement with themselves, is left out. Power iteration from a
    fixed start, so that the same labels give the same bits.
    """
    item, annotator, label = annotations.columns
    N, left = annotations.n_annotators, label.astype(np.float64)
    for code, size in ((item, annotations.n_items), (annotator, N)):
        counts = np.maximum(np.bincount(code, minlength=size), 1)
        left = left - (np.bincount(code, left, size) / counts)[code]
    left = left / np.sqrt(np.maximum(np.bincount(annotator, left**2, N), TINY))[annotator]
    table = csr_array((left, (annotator, item)), (N, annotations.n_items))
    own = np.bincount(annotator, left**2, N)
    found = np.random.default_rng(0).standard_normal(N)
    for _ in range(ROUNDS):
        # (1 + R Rᵀ − diag) v: adding 1 keeps negative eigenvalues from being the largest
        found = found + table @ (table.T @ found) - own * found
        found = found / max(float(np.sqrt((found**2).mean())), TINY)
    return found


def graded(own: Array, grid: Grid) -> tuple[Array, Array]:
    """(n, Q, P) chances of the labels at every place of the grid, and (n, Q, P − 1) of those up to k."""
    D = grid.x.shape[1]
    # P(y ≤ k) = σ(d (c_k − a · x))
    along = own[:, -D:] @ grid.x.T
    below = expit(grid.d[:, None] * (own[:, None, :-D] - along[:, :, None]))
    edge = np.zeros((*below.shape[:2], 1))
    steps = np.concatenate([below, edge + 1], axis=2) - np.concatenate([edge, below], axis=2)
    return np.maximum(steps, TINY), below


def table_of(own: Array, guesses: Array, shares: Array, grid: Grid) -> Array:
    """(N, Q, P): P(y | q, n), guesses included."""
    guess = guesses[:, None, None]
    return np.asarray((1 - guess) * graded(own, grid)[0] + guess * shares)


def places_of(annotations: Annotations, logs: Array, log_psi: Array) -> tuple[Array, float]:
    """(M, Q): P(q | the item's labels), and the log-likelihood of all labels; ``logs`` (N, Q, P)."""
    places = np.tile(log_psi, (annotations.n_items, 1))
    for rows in batches(annotations.n_labels, LABELS_AT_A_TIME):
        item, annotator, label = (column[rows] for column in annotations.columns)
        first, count = int(item[0]), int(item[-1] - item[0]) + 1
        adder = csr_array((np.ones(len(item)), (item - first, np.arange(len(item)))), (count, len(item)))
        places[first : first + count] += np.asarray(adder @ logs[annotator, :, label])
    top = places.max(axis=1, keepdims=True)
    chances = np.exp(places - top)
    total = chances.sum(axis=1, keepdims=True)
    return chances / total, float((np.log(total) + top).sum())


def expected_counts(annotations: Annotations, places: Array) -> Array:
    """(N, Q, P): how many labels each annotator gave at each place."""
    N, P = annotations.n_annotators, annotations.n_classes
    counts = np.zeros((N * P, places.shape[1]))
    for rows in batches(annotations.n_labels, LABELS_AT_A_TIME):
        item, annotator, label = (column[rows] for column in annotations.columns)
        cell = annotator.astype(np.int64) * P + label
        used, local = np.unique(cell, return_inverse=True)
        adder = csr_array((np.ones(len(cell)), (local, np.arange(len(cell)))), (len(used), len(cell)))
        counts[used] += np.asarray(adder @ places[item])
    return counts.reshape(N, P, -1).transpose(0, 2, 1)


def m_step(
    parameters: AnnotatorParameters, counts: Array, places: Array, shares: Array, grid: Grid
) -> AnnotatorParameters:
    """M: what the expected counts (N, Q, P) say of annotators, of the crowd, and of the places of items."""
    D, width = grid.x.shape[1], parameters.own.shape[1]
    precision: Array = np.asarray(np.linalg.inv(covariance(parameters.spread, width)), np.float64)
    own, guesses = np.empty_like(parameters.own), np.empty_like(parameters.guesses)
    varying = np.zeros_like(precision)
    for people in batches(len(own), ANNOTATORS_AT_A_TIME):
        part = replace(parameters, own=parameters.own[people], guesses=parameters.guesses[people])
        own[people], guesses[people], left = _scored(part, counts[people], precision, shares, grid)
        varying += left
    load = counts.sum(axis=(1, 2))
    crowd = np.average(own, axis=0, weights=load / (load + 5))
    crowd[width - D + 1 :] = 0.0  # to the sides annotators part, and the crowd stays where it is
    off = own - crowd
    spread = _spread_of((off.T @ off + varying) / len(own), D)
    psi = normalised(places.sum(axis=0) + SMOOTH * grid.normal)
    return AnnotatorParameters(own, guesses, crowd, spread, psi)


def covariance(spread: Array, width: int) -> Array:
    """(P − 1 + D, P − 1 + D): Σ, of thresholds and slopes."""
    n = width - len(spread) + 2  # thresholds
    sigma = np.diag(np.concatenate([np.full(n, spread[1]), spread[2:]]))
    sigma[:n, :n] += spread[0]
    return sigma


def _spread_of(second: Array, D: int) -> Array:
    """v₁, v₂ and the slopes' variances from the second moments of thresholds and slopes."""
    among, K = second[:-D, :-D], len(second) - D
    mean = float(np.trace(among)) / K
    together = (float(among.sum()) - K * mean) / (K * (K - 1)) if K > 1 else mean / 2
    together = max(together, LEAST)
    return np.asarray(np.maximum([together, mean - together, *np.diag(second)[-D:]], LEAST))


def _scored(
    parameters: AnnotatorParameters, counts: Array, precision: Array, shares: Array, grid: Grid
) -> tuple[Array, Array, Array]:
    """One step of Fisher scoring for some annotators, how often they guess, and Σ_n of their variances."""
    steps, below = graded(parameters.own, grid)
    guess = parameters.guesses[:, None, None]
    meant = counts * (1 - guess) * steps / ((1 - guess) * steps + guess * shares)
    guesses = ((counts - meant).sum(axis=(1, 2)) + GUESSES * WORTH) / (counts.sum(axis=(1, 2)) + WORTH)
    gradient, information = _derivatives(meant, steps, below, grid)
    curvature = information + precision
    slope = gradient - (parameters.own - parameters.crowd) @ precision
    step = np.asarray(np.linalg.solve(curvature, slope[:, :, None])[:, :, 0], np.float64)
    own = _ordered_step(parameters.own, step, grid.x.shape[1])
    return own, guesses, np.linalg.inv(curvature).sum(axis=0)


def _derivatives(meant: Array, steps: Array, below: Array, grid: Grid) -> tuple[Array, Array]:
    """(n, W), (n, W, W): gradient and Fisher information of log-likelihoods in thresholds and slopes."""
    n, _, P = steps.shape
    # ∂ log P(y) / ∂η_k = F_k (1 − F_k) ([k = y] − [k = y − 1]) / P(y), with η_k = d (c_k − a · x)
    dense, k = below * (1 - below), np.arange(P - 1)
    odds = meant / steps
    by_eta = (odds[:, :, :-1] - odds[:, :, 1:]) * dense * grid.d[:, None]
    gradient = np.concatenate([by_eta.sum(axis=1), -by_eta.sum(axis=2) @ grid.x], axis=1)
    # Σ_y P(y) ∂_k ∂_l: a band of three, times the labels there and d²
    weight = meant.sum(axis=2, keepdims=True) * (grid.d**2)[:, None]
    middle = weight * dense**2 * (1 / steps[:, :, :-1] + 1 / steps[:, :, 1:])
    beside = -weight * dense[:, :, :-1] * dense[:, :, 1:] / steps[:, :, 1:-1]
    information = np.zeros((n, *2 * (gradient.shape[1],)))
    information[:, k, k] = middle.sum(axis=1)
    information[:, k[:-1], k[1:]] = information[:, k[1:], k[:-1]] = beside.sum(axis=1)
    band = middle.copy()
    band[:, :, :-1] += beside
    band[:, :, 1:] += beside
    mixed = -np.einsum("nqk,qi->nki", band, grid.x)
    information[:, : P - 1, P - 1 :], information[:, P - 1 :, : P - 1] = mixed, mixed.transpose(0, 2, 1)
    information[:, P - 1 :, P - 1 :] = np.einsum("nq,qi,qj->nij", band.sum(axis=2), grid.x, grid.x)
    return gradient, information


def _ordered_step(own: Array, step: Array, D: int) -> Array:
    """The step, halved for whoever's thresholds it would put out of order; in the end none."""
    size = np.ones((len(own), 1))
    for _ in range(8):
        moved = own + size * step
        crossed = np.asarray((np.diff(moved[:, :-D], axis=1) < GAP).any(axis=1))
        if not crossed.any():
            return moved
        size[crossed] /= 2
    return np.where(crossed[:, None], own, moved)


# ---- the model ----------------------------------------------------------------------------------------


class GradedResponse(Model):
    """An ordered scale: items have a place and a clarity, annotators thresholds and a slope of their own."""

    _: KW_ONLY
    sides: bool = flag(False, "Items have a side in place of a clarity, and annotators part about it.")
    weight_by: str = setting("labels", *WEIGHT_BY)
    max_iter: int = setting(60, *MAX_ITER)
    tol: float = setting(1e-5, *TOL)

    _needs_annotators = True
    _label_types = ("ordinal", "pairwise")

    places_: NDArray[np.float32] = fitted("(M, Q): P(q | the item's labels)")
    own_: Array = fitted("(N, P), or (N, P + 1) with sides: thresholds, then slopes")
    guesses_: Array = fitted("(N,): chance of a guess")
    crowd_: Array = fitted("(P,), or (P + 1,): mean of own_")
    spread_: Array = fitted("(3,), or (4,): variances of own_")
    psi_: Array = fitted("(Q,): shares of the places")
    class_shares_: Array = fitted("(P,): shares of the classes among the labels")
    weights_: Array = fitted("(N,): what each annotator counts in the population")

    def _fit(self, annotations: Annotations, engine: Engine) -> None:
        grid = Grid.of(self.sides)
        shares = normalised(annotations.class_counts.astype(np.float64) + 1)
        monitor = ConvergenceMonitor(engine, self.max_iter, self.tol)
        parameters = monitor.resume(AnnotatorParameters) or start(annotations, shares, grid)
        for _ in monitor:
            # E: where every item lies
            logs = np.log(table_of(parameters.own, parameters.guesses, shares, grid))
            places, evidence = places_of(annotations, logs, np.log(parameters.psi))
            if monitor.report(evidence, parameters):
                break
            # M: annotators, the crowd they are of, and the places of items at large
            counts = expected_counts(annotations, places)
            parameters = m_step(parameters, counts, places, shares, grid)
        self.trace_, self.stopped_ = np.array(monitor.trace), monitor.stopped
        self.own_, self.guesses_ = parameters.own, parameters.guesses
        self.crowd_, self.spread_ = parameters.crowd, parameters.spread
        self.psi_, self.class_shares_ = parameters.psi, shares
        load = annotations.annotator_load
        self.weights_ = normalised((load if self.weight_by == "labels" else load > 0).astype(np.float64))
        self._locate(annotations, np.arange(annotations.n_annotators))

    @property
    def population_(self) -> Array:
        """(Q, P): what the population answers at every place of the grid."""
        return np.asarray(np.einsum("n,nqp->qp", self.weights_, self._tables(np.arange(len(self.own_)))))

    def _tables(self, annotator: NDArray[Any]) -> Array:
        """(n, Q, P): P(y | q, n) by code; −1: somebody never seen, as the crowd is on average."""
        own = np.vstack([self.own_, self.crowd_])[annotator]
        guesses = np.append(self.guesses_, GUESSES)[annotator]
        return table_of(own, guesses, self.class_shares_, Grid.of(self.sides))

    def _locate(self, annotations: Annotations, code: NDArray[Any]) -> None:
        """Every item's place given its labels, by annotators of these codes, and the population's answer."""
        logs, log_psi = np.log(self._tables(code)), np.log(self.psi_)
        self.places_ = places_of(annotations, logs, log_psi)[0].astype(np.float32)
        self._answer()

    def _answer(self) -> None:
        """What the population answers at the places of the items, and about an item never seen."""
        population = self.population_
        self.label_distributions_ = row_shares(self.places_.astype(np.float64) @ population)
        self.prior_distribution_ = normalised(self.psi_ @ population)

    # ---- what it knows --------------------------------------------------------------------------------

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Σ_q P(q | the item's labels) P(y | q, n)."""
        places = np.vstack([self.places_, self.psi_.astype(np.float32)])
        people, local = np.unique(annotator, return_inverse=True)
        tables = self._tables(people)
        return row_shares(np.einsum("eq,eqp->ep", places[item].astype(np.float64), tables[local]))

    def annotator_frame(self) -> dict[str, Any]:
        """Columns about annotators: leniency against the crowd, slope, and how often they guess."""
        # thresholds below the crowd's mean higher labels
        thresholds = slice(0, len(self.class_shares_) - 1)
        lenient = (self.crowd_[thresholds] - self.own_[:, thresholds]).mean(axis=1)
        return {"leniency": lenient, "slope": self.own_[:, thresholds.stop], "guesses": self.guesses_}

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Known annotators stay as they are, others are as the crowd; items are placed by their labels."""
        code = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        self._locate(new, code)
        self.own_ = np.vstack([fitted.own_, fitted.crowd_])[code]
        self.guesses_ = np.append(fitted.guesses_, GUESSES)[code]
        self.weights_ = np.append(fitted.weights_, 0.0)[code]
