"""Graded response: labels on an ordered scale, by annotators with their own thresholds and slopes.

How a label is generated (Samejima 1969, with clarities of items and annotators who sometimes guess):

    (x_m, d_m) ~ ψ on a grid              position of item m on the scale, and its clarity
    θ_n = (c_n1 < … < c_n,P−1, a_n) ~ N(θ̄, Σ)   thresholds and slope of annotator n; Σ has a variance v₁
                                          common to the thresholds, v₂ of each, and v₃ of the slopes
    ε_n ~ Beta, of mean 3 % and size 20   probability that annotator n guesses
    P(y ≤ k | x, d, n) = σ(d (c_nk − a_n x)); a guess is drawn from the overall class shares

With ``sides``, items differ in a second dimension instead of clarity, and annotators in their slope along it:

    (x_m, u_m) ~ ψ on a grid              position of item m, and its side
    b_n ~ N(0, v₄)                        slope of annotator n along it: equal signs agree about such items
    P(y ≤ k | x, u, n) = σ(d̄ (c_nk − a_n x − b_n u))

Fitted by EM over the grid. E-step: the posterior of each item's grid point given its labels. M-step: one step
of Fisher scoring for thresholds and slopes, ψ and ε in closed form, θ̄ and Σ from the annotators (empirical
Bayes, with the posterior variances from the curvature). The answer for an item is the population's at its
position: Σ_q P(q | labels) Σ_n v_n P(y | q, n).
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

POSITIONS, CLARITIES = np.linspace(-3, 3, 17), np.array([0.5, 1.0, 2.0, 4.0])
POSITIONS_WITH_SIDES, SIDES, MEAN_CLARITY = np.linspace(-3, 3, 13), np.linspace(-1.8, 1.8, 5), 2**0.5
GUESS_RATE, GUESS_PRIOR_LABELS = 0.03, 20.0  # prior mean of ε, and its weight in labels
PSI_PRIOR_ITEMS = 2.0  # weight of the normal prior of ψ, in items
MIN_THRESHOLD_GAP = 0.02
MIN_SPREAD = 0.01  # floor of v₁ to v₄
POWER_ITERATIONS = 30
LABELS_PER_PASS, ANNOTATORS_PER_PASS = 1 << 15, 256
MIN_LABEL_PROBABILITY = 1e-12


@dataclass(frozen=True)
class Grid:
    """Grid of item positions (with sides, if any) and clarities."""

    x: Array  # (Q, D)
    d: Array  # (Q,)

    @classmethod
    def of(cls, sides: bool) -> Grid:
        """Combine all positions with all sides, or with all clarities."""
        if sides:
            x, u = np.meshgrid(POSITIONS_WITH_SIDES, SIDES)
            return cls(np.stack([x.ravel(), u.ravel()], axis=1), np.full(x.size, MEAN_CLARITY))
        x, clarity = np.meshgrid(POSITIONS, CLARITIES)
        return cls(x.reshape(-1, 1), clarity.ravel())

    @property
    def normal(self) -> Array:
        """Standard normal ψ (Q,), the start and the prior."""
        return normalised(np.exp(-(self.x**2).sum(axis=1) / 2))


@dataclass(frozen=True)
class AnnotatorParameters:
    """Parameters of the annotators, of their distribution, and of the items' distribution."""

    theta: Array  # (N, P − 1 + D): thresholds, then slopes
    guess_rates: Array  # (N,): ε
    mean: Array  # (P − 1 + D,): θ̄
    spread: Array  # (2 + D,): v₁, v₂, and the variances of the slopes
    psi: Array  # (Q,)


def start(annotations: Annotations, shares: Array, grid: Grid) -> AnnotatorParameters:
    """Start from thresholds that give the overall shares, and sides by the leading disagreement."""
    N, P, D = annotations.n_annotators, len(shares), grid.x.shape[1]
    below = np.clip(np.cumsum(shares)[:-1], 0.01, 0.99)
    thresholds = np.maximum.accumulate(1.3 * np.log(below / (1 - below)) + 0.3 * np.arange(P - 1))
    mean = np.concatenate([thresholds - 0.15 * max(P - 2, 0), [1.5, 0.0][:D]])
    theta = np.tile(mean, (N, 1))
    if D > 1:
        theta[:, -1] = 0.7 * leading_disagreement(annotations)
    spread = np.array([0.5, 0.2, 0.2, 0.5])[: 2 + D]
    return AnnotatorParameters(theta, np.full(N, GUESS_RATE), mean, spread, grid.normal)


def leading_disagreement(annotations: Annotations) -> Array:
    """Return (N,) the leading eigenvector of the annotators' correlations, of mean square 1.

    Row n of R (annotators, items) holds annotator n's labels without item and annotator means, scaled to
    length 1; the diagonal of R Rᵀ is left out. Power iteration from a fixed start, so that the same labels
    give the same bits.
    """
    item, annotator, label = annotations.columns
    N, residual = annotations.n_annotators, label.astype(np.float64)
    for code, size in ((item, annotations.n_items), (annotator, N)):
        counts = np.maximum(np.bincount(code, minlength=size), 1)
        residual = residual - (np.bincount(code, residual, size) / counts)[code]
    lengths = np.sqrt(np.maximum(np.bincount(annotator, residual**2, N), MIN_LABEL_PROBABILITY))
    residual = residual / lengths[annotator]
    table = csr_array((residual, (annotator, item)), (N, annotations.n_items))
    diagonal = np.bincount(annotator, residual**2, N)
    v = np.random.default_rng(0).standard_normal(N)
    for _ in range(POWER_ITERATIONS):
        # (1 + R Rᵀ − diag) v: adding 1 keeps negative eigenvalues from being the largest
        v = v + table @ (table.T @ v) - diagonal * v
        v = v / max(float(np.sqrt((v**2).mean())), MIN_LABEL_PROBABILITY)
    return v


def graded(theta: Array, grid: Grid) -> tuple[Array, Array]:
    """Return P(y = k) (n, Q, P) and P(y ≤ k) (n, Q, P − 1) at every grid point, without guesses."""
    D = grid.x.shape[1]
    # P(y ≤ k) = σ(d (c_k − a · x))
    below = expit(grid.d[:, None] * (theta[:, None, :-D] - (theta[:, -D:] @ grid.x.T)[:, :, None]))
    edge = np.zeros((*below.shape[:2], 1))
    steps = np.concatenate([below, edge + 1], axis=2) - np.concatenate([edge, below], axis=2)
    return np.maximum(steps, MIN_LABEL_PROBABILITY), below


def label_probabilities(theta: Array, guess_rates: Array, shares: Array, grid: Grid) -> Array:
    """Return (N, Q, P) P(y | q, n), guesses included."""
    guess = guess_rates[:, None, None]
    return np.asarray((1 - guess) * graded(theta, grid)[0] + guess * shares)


def e_step(annotations: Annotations, logs: Array, log_psi: Array) -> tuple[Array, float]:
    """Return (M, Q) P(q | labels of the item), and the log-likelihood; ``logs`` is log P(y | q, n)."""
    log_posterior = np.tile(log_psi, (annotations.n_items, 1))
    for rows in batches(annotations.n_labels, LABELS_PER_PASS):
        item, annotator, label = (column[rows] for column in annotations.columns)
        first, count = int(item[0]), int(item[-1] - item[0]) + 1
        adder = csr_array((np.ones(len(item)), (item - first, np.arange(len(item)))), (count, len(item)))
        log_posterior[first : first + count] += np.asarray(adder @ logs[annotator, :, label])
    top = log_posterior.max(axis=1, keepdims=True)
    exponentials = np.exp(log_posterior - top)
    total = exponentials.sum(axis=1, keepdims=True)
    return exponentials / total, float((np.log(total) + top).sum())


def expected_label_counts(annotations: Annotations, posterior: Array) -> Array:
    """Return (N, Q, P) the expected number of labels of each annotator and class at each grid point."""
    N, P = annotations.n_annotators, annotations.n_classes
    counts = np.zeros((N * P, posterior.shape[1]))
    for rows in batches(annotations.n_labels, LABELS_PER_PASS):
        item, annotator, label = (column[rows] for column in annotations.columns)
        cell = annotator.astype(np.int64) * P + label
        used, local = np.unique(cell, return_inverse=True)
        adder = csr_array((np.ones(len(cell)), (local, np.arange(len(cell)))), (len(used), len(cell)))
        counts[used] += np.asarray(adder @ posterior[item])
    return counts.reshape(N, P, -1).transpose(0, 2, 1)


def m_step(
    parameters: AnnotatorParameters, counts: Array, posterior: Array, shares: Array, grid: Grid
) -> AnnotatorParameters:
    """Update the annotators, their distribution and ψ from expected counts (N, Q, P)."""
    old, D = parameters.theta, grid.x.shape[1]
    width = old.shape[1]
    precision: Array = np.asarray(np.linalg.inv(covariance(parameters.spread, width)), np.float64)
    theta, guess_rates = np.empty_like(old), np.empty_like(parameters.guess_rates)
    variances = np.zeros_like(precision)
    for people in batches(len(theta), ANNOTATORS_PER_PASS):
        part = replace(parameters, theta=old[people], guess_rates=parameters.guess_rates[people])
        scored = _fisher_scoring(part, counts[people], precision, shares, grid)
        theta[people], guess_rates[people] = scored[:2]
        variances += scored[2]
    load = counts.sum(axis=(1, 2))
    mean = np.average(theta, axis=0, weights=load / (load + 5))
    mean[width - D + 1 :] = 0.0  # slopes along the sides have mean 0
    deviations = theta - mean
    second = (deviations.T @ deviations + variances) / len(theta)
    # v₁, v₂ and the slopes' variances from the second moments of thresholds and slopes
    among, K = second[:-D, :-D], width - D
    each = float(np.trace(among)) / K
    common = (float(among.sum()) - K * each) / (K * (K - 1)) if K > 1 else each / 2
    common = max(common, MIN_SPREAD)
    spread = np.asarray(np.maximum([common, each - common, *np.diag(second)[-D:]], MIN_SPREAD))
    psi = normalised(posterior.sum(axis=0) + PSI_PRIOR_ITEMS * grid.normal)
    return AnnotatorParameters(theta, guess_rates, mean, spread, psi)


def covariance(spread: Array, width: int) -> Array:
    """Return Σ (P − 1 + D, P − 1 + D) of thresholds and slopes."""
    n = width - len(spread) + 2  # number of thresholds
    sigma = np.diag(np.concatenate([np.full(n, spread[1]), spread[2:]]))
    sigma[:n, :n] += spread[0]
    return sigma


def _fisher_scoring(
    parameters: AnnotatorParameters, counts: Array, precision: Array, shares: Array, grid: Grid
) -> tuple[Array, Array, Array]:
    """Return thresholds and slopes after one step, guess rates, and the sum of posterior variances."""
    theta = parameters.theta
    steps, below = graded(theta, grid)
    guess = parameters.guess_rates[:, None, None]
    meant = counts * (1 - guess) * steps / ((1 - guess) * steps + guess * shares)
    guessed = (counts - meant).sum(axis=(1, 2)) + GUESS_RATE * GUESS_PRIOR_LABELS
    guess_rates = guessed / (counts.sum(axis=(1, 2)) + GUESS_PRIOR_LABELS)
    gradient, information = _derivatives(meant, steps, below, grid)
    curvature = information + precision
    slope = gradient - (theta - parameters.mean) @ precision
    step = np.asarray(np.linalg.solve(curvature, slope[:, :, None])[:, :, 0], np.float64)
    theta = _ordered_step(theta, step, grid.x.shape[1])
    return theta, guess_rates, np.linalg.inv(curvature).sum(axis=0)


def _derivatives(meant: Array, steps: Array, below: Array, grid: Grid) -> tuple[Array, Array]:
    """Return gradient (n, W) and Fisher information (n, W, W) in thresholds and slopes."""
    n, _, P = steps.shape
    # ∂ log P(y) / ∂η_k = F_k (1 − F_k) ([k = y] − [k = y − 1]) / P(y), with η_k = d (c_k − a · x)
    density, k = below * (1 - below), np.arange(P - 1)
    odds = meant / steps
    by_eta = (odds[:, :, :-1] - odds[:, :, 1:]) * density * grid.d[:, None]
    gradient = np.concatenate([by_eta.sum(axis=1), -by_eta.sum(axis=2) @ grid.x], axis=1)
    # Σ_y P(y) ∂_k ∂_l: tridiagonal, times the labels there and d²
    weight = meant.sum(axis=2, keepdims=True) * (grid.d**2)[:, None]
    middle = weight * density**2 * (1 / steps[:, :, :-1] + 1 / steps[:, :, 1:])
    off_diagonal = -weight * density[:, :, :-1] * density[:, :, 1:] / steps[:, :, 1:-1]
    information = np.zeros((n, *2 * (gradient.shape[1],)))
    information[:, k, k] = middle.sum(axis=1)
    information[:, k[:-1], k[1:]] = information[:, k[1:], k[:-1]] = off_diagonal.sum(axis=1)
    band = middle.copy()
    band[:, :, :-1] += off_diagonal
    band[:, :, 1:] += off_diagonal
    mixed = -np.einsum("nqk,qi->nki", band, grid.x)
    information[:, : P - 1, P - 1 :], information[:, P - 1 :, : P - 1] = mixed, mixed.transpose(0, 2, 1)
    information[:, P - 1 :, P - 1 :] = np.einsum("nq,qi,qj->nij", band.sum(axis=2), grid.x, grid.x)
    return gradient, information


def _ordered_step(theta: Array, step: Array, D: int) -> Array:
    """Take the step, halved until thresholds stay ordered; no step for annotators where they never do."""
    size = np.ones((len(theta), 1))
    for _ in range(8):
        moved = theta + size * step
        crossed = np.asarray((np.diff(moved[:, :-D], axis=1) < MIN_THRESHOLD_GAP).any(axis=1))
        if not crossed.any():
            return moved
        size[crossed] /= 2
    return np.where(crossed[:, None], theta, moved)


# ---- the model ----------------------------------------------------------------------------------------


class GradedResponse(Model):
    """Ordered scale: items have a position and a clarity, annotators have thresholds and a slope."""

    _: KW_ONLY
    sides: bool = flag(False, "Whether items have a side (annotators disagree about it), not a clarity.")
    weight_by: str = setting("labels", *WEIGHT_BY)
    max_iter: int = setting(60, *MAX_ITER)
    tol: float = setting(1e-5, *TOL)

    _needs_annotators = True
    _label_types = ("ordinal", "pairwise")

    item_posterior_: NDArray[np.float32] = fitted("(M, Q): P(q | the item's labels) over the grid")
    thresholds_and_slopes_: Array = fitted("(N, P), or (N, P + 1) with sides: thresholds, then slopes")
    guess_rates_: Array = fitted("(N,): probability of a guess")
    mean_: Array = fitted("(P,), or (P + 1,): mean of thresholds_and_slopes_")
    spread_: Array = fitted("(3,), or (4,): variances of thresholds_and_slopes_")
    psi_: Array = fitted("(Q,): distribution of items over the grid")
    class_shares_: Array = fitted("(P,): shares of the classes among the labels")
    annotator_weights_: Array = fitted("(N,): weight of each annotator in the population")

    def _fit(self, annotations: Annotations, engine: Engine) -> None:
        grid = Grid.of(self.sides)
        shares = normalised(annotations.class_counts.astype(np.float64) + 1)
        monitor = ConvergenceMonitor(engine, self.max_iter, self.tol)
        parameters = monitor.resume(AnnotatorParameters) or start(annotations, shares, grid)
        for _ in monitor:
            logs = np.log(label_probabilities(parameters.theta, parameters.guess_rates, shares, grid))
            posterior, log_likelihood = e_step(annotations, logs, np.log(parameters.psi))
            if monitor.report(log_likelihood, parameters):
                break
            counts = expected_label_counts(annotations, posterior)
            parameters = m_step(parameters, counts, posterior, shares, grid)
        self.trace_, self.stopped_ = np.array(monitor.trace), monitor.stopped
        self.thresholds_and_slopes_ = parameters.theta
        self.guess_rates_, self.mean_ = parameters.guess_rates, parameters.mean
        self.spread_, self.psi_, self.class_shares_ = parameters.spread, parameters.psi, shares
        load = annotations.annotator_load
        weights = (load if self.weight_by == "labels" else load > 0).astype(np.float64)
        self.annotator_weights_ = normalised(weights)
        self._locate_items(annotations, np.arange(annotations.n_annotators))

    @property
    def population_(self) -> Array:
        """Population's answers (Q, P) at every grid point."""
        tables = self._grid_probabilities(np.arange(len(self.thresholds_and_slopes_)))
        return np.asarray(np.einsum("n,nqp->qp", self.annotator_weights_, tables))

    def _grid_probabilities(self, annotator: NDArray[Any]) -> Array:
        """Return (n, Q, P) P(y | q, n) by annotator code; −1 stands for the average annotator."""
        theta = np.vstack([self.thresholds_and_slopes_, self.mean_])[annotator]
        guess_rates = np.append(self.guess_rates_, GUESS_RATE)[annotator]
        return label_probabilities(theta, guess_rates, self.class_shares_, Grid.of(self.sides))

    def _locate_items(self, annotations: Annotations, code: NDArray[Any]) -> None:
        """Compute the posterior of the items' grid points from labels by annotators of these codes."""
        logs, log_psi = np.log(self._grid_probabilities(code)), np.log(self.psi_)
        self.item_posterior_ = e_step(annotations, logs, log_psi)[0].astype(np.float32)
        self._update_answers()

    def _update_answers(self) -> None:
        """Set the population's answers for the items, and for an unseen item."""
        population = self.population_
        self.label_distributions_ = row_shares(self.item_posterior_.astype(np.float64) @ population)
        self.prior_distribution_ = normalised(self.psi_ @ population)

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Return Σ_q P(q | the item's labels) P(y | q, n)."""
        posterior = np.vstack([self.item_posterior_, self.psi_.astype(np.float32)])
        people, local = np.unique(annotator, return_inverse=True)
        tables = self._grid_probabilities(people)
        return row_shares(np.einsum("eq,eqp->ep", posterior[item].astype(np.float64), tables[local]))

    def annotator_frame(self) -> dict[str, Any]:
        """Return columns about annotators: leniency relative to the average, slope and guess rate."""
        # thresholds below the average mean higher labels
        thresholds = slice(0, len(self.class_shares_) - 1)
        lenient = (self.mean_[thresholds] - self.thresholds_and_slopes_[:, thresholds]).mean(axis=1)
        slopes = self.thresholds_and_slopes_[:, thresholds.stop]
        return {"leniency": lenient, "slope": slopes, "guesses": self.guess_rates_}

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Locate items by their labels; annotators keep their parameters, new ones get the average."""
        code = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        self._locate_items(new, code)
        self.thresholds_and_slopes_ = np.vstack([fitted.thresholds_and_slopes_, fitted.mean_])[code]
        self.guess_rates_ = np.append(fitted.guess_rates_, GUESS_RATE)[code]
        self.annotator_weights_ = np.append(fitted.annotator_weights_, 0.0)[code]
