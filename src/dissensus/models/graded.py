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

from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import expit

from dissensus.compiled import Loop
from dissensus.engine import ConvergenceMonitor, Engine
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Codes, Vocabulary
from dissensus.models.base import Model
from dissensus.models.scoring import unfitted_rows
from dissensus.numerics import Array, Indices, normalised, row_shares, safe_log
from dissensus.params import MAX_ITER, TOL, WEIGHT_BY, fitted, flag, setting

POSITIONS, CLARITIES = np.linspace(-3, 3, 17), np.array([0.5, 1.0, 2.0, 4.0])
POSITIONS_WITH_SIDES, SIDES, MEAN_CLARITY = np.linspace(-3, 3, 13), np.linspace(-1.8, 1.8, 5), 2**0.5
GUESS_RATE, GUESS_PRIOR_LABELS = 0.03, 20.0  # prior mean of ε, and its weight in labels
PSI_PRIOR_ITEMS = 2.0  # weight of the normal prior of ψ, in items
MIN_THRESHOLD_GAP = 0.02
MIN_SPREAD = 0.01  # floor of v₁ to v₄
POWER_ITERATIONS = 30
MIN_LABEL_PROBABILITY = 1e-12

LABEL_ARRAYS = {"ends": "int64 M", "annotator": "int32 E", "label": "int32 E"}
add_logs = Loop(
    "graded_add_logs", "M E N P Q", **LABEL_ARRAYS, logs="float64 N P Q", log_posterior="float64 M Q"
)
add_counts = Loop(
    "graded_add_counts", "M E N P Q", **LABEL_ARRAYS, posterior="float64 M Q", counts="float64 N P Q"
)
add_derivatives = Loop(
    "graded_add_derivatives", "N P Q D T W", counts="float64 N P Q", below="float64 N T Q",
    guess_rates="float64 N", shares="float64 P", x="float64 Q D", d="float64 Q", guesses="float64 N",
    gradient="float64 N W", information="float64 N W W", min_probability="float",
)  # fmt: skip


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


def cumulative_probabilities(theta: Array, grid: Grid) -> Array:
    """Return (N, P − 1, Q) P(y ≤ k | q, n) without guesses."""
    D = grid.x.shape[1]
    # P(y ≤ k) = σ(d (c_k − a · x))
    below = theta[:, :-D, None] - (theta[:, -D:] @ grid.x.T)[:, None]
    below *= grid.d
    return np.asarray(expit(below, out=below))


def label_probabilities(below: Array, guess_rates: Array, shares: Array) -> Array:
    """Return (N, P, Q) P(y | q, n), guesses included."""
    edge, guess = np.zeros((len(below), 1, below.shape[2])), guess_rates[:, None, None]
    probabilities = np.diff(below, axis=1, prepend=edge, append=edge + 1)
    np.maximum(probabilities, MIN_LABEL_PROBABILITY, out=probabilities)
    probabilities *= 1 - guess
    probabilities += guess * shares[:, None]
    return np.asarray(probabilities)


def e_step(annotations: Annotations, logs: Array, log_psi: Array) -> tuple[Array, float]:
    """Return (M, Q) P(q | labels of the item), and the log-likelihood; ``logs`` is log P(y | q, n).

    ``log_psi`` is (Q,), or (M, Q) with a prior for each item.
    """
    posterior = np.broadcast_to(log_psi, (annotations.n_items, log_psi.shape[-1])).copy()
    ends, (_, annotator, label) = annotations.item_pointers[1:], annotations.columns
    add_logs(ends=ends, annotator=annotator, label=label, logs=logs, log_posterior=posterior)
    # softmax of the rows, in place
    top = posterior.max(axis=1, keepdims=True)
    posterior -= top
    np.exp(posterior, out=posterior)
    total = posterior.sum(axis=1, keepdims=True)
    posterior /= total
    return posterior, float((np.log(total) + top).sum())


def expected_label_counts(annotations: Annotations, posterior: Array) -> Array:
    """Return (N, P, Q) the expected number of labels of each annotator and class at each grid point."""
    counts = np.zeros((annotations.n_annotators, annotations.n_classes, posterior.shape[1]))
    ends, (_, annotator, label) = annotations.item_pointers[1:], annotations.columns
    add_counts(ends=ends, annotator=annotator, label=label, posterior=posterior, counts=counts)
    return counts


def m_step(
    parameters: AnnotatorParameters, below: Array, counts: Array, posterior: Array, shares: Array, grid: Grid
) -> AnnotatorParameters:
    """Update the annotators, their distribution and ψ from expected counts (N, P, Q)."""
    (N, width), D = parameters.theta.shape, grid.x.shape[1]
    guesses, gradient, information = derivatives(counts, below, parameters.guess_rates, shares, grid)
    load = counts.sum(axis=(1, 2))
    guess_rates = (guesses + GUESS_RATE * GUESS_PRIOR_LABELS) / (load + GUESS_PRIOR_LABELS)
    # one step of Fisher scoring
    precision = np.linalg.inv(covariance(parameters.spread, width))
    curvature = information + precision
    slope = gradient - (parameters.theta - parameters.mean) @ precision
    step = np.asarray(np.linalg.solve(curvature, slope[:, :, None])[:, :, 0], np.float64)
    theta = _ordered_step(parameters.theta, step, D)
    variances = np.linalg.inv(curvature).sum(axis=0)
    mean = np.average(theta, axis=0, weights=load / (load + 5))
    mean[width - D + 1 :] = 0.0  # slopes along the sides have mean 0
    deviations = theta - mean
    second = (deviations.T @ deviations + variances) / N
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


def derivatives(
    counts: Array, below: Array, guess_rates: Array, shares: Array, grid: Grid
) -> tuple[Array, Array, Array]:
    """Return the expected guesses (N,), and gradient (N, W) and Fisher information (N, W, W) in θ."""
    N, W = len(counts), below.shape[1] + grid.x.shape[1]
    guesses, gradient, information = np.zeros(N), np.zeros((N, W)), np.zeros((N, W, W))
    add_derivatives(
        counts=counts, below=below, guess_rates=guess_rates, shares=shares, x=grid.x, d=grid.d,
        guesses=guesses, gradient=gradient, information=information, min_probability=MIN_LABEL_PROBABILITY,
    )  # fmt: skip
    return guesses, gradient, information


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
    population_: Array = fitted("(Q, P): the population's answers at every grid point")

    def memory_needed(self, labels: Annotations, n_threads: int = 1, features: Any = None) -> int:
        """Estimate the memory of a fit in bytes, with its tables over grid points."""
        n_points = len(Grid.of(self.sides).d)
        tables = 3 * labels.n_items + 5 * labels.n_annotators * labels.n_classes
        return super().memory_needed(labels, n_threads, features) + 8 * n_points * tables

    def _fit(self, annotations: Annotations, engine: Engine, weights: Array | None = None) -> None:
        """Fit; ``weights`` (N,) of the annotators in the population replace those of ``weight_by``."""
        grid = Grid.of(self.sides)
        shares = normalised(annotations.class_counts.astype(np.float64) + 1)
        monitor = ConvergenceMonitor(engine, self.max_iter, self.tol)
        parameters = monitor.resume(AnnotatorParameters) or start(annotations, shares, grid)
        for _ in monitor:
            below = cumulative_probabilities(parameters.theta, grid)
            logs = label_probabilities(below, parameters.guess_rates, shares)
            np.log(logs, out=logs)
            posterior, log_likelihood = e_step(annotations, logs, np.log(parameters.psi))
            if monitor.report(log_likelihood, parameters):
                break
            counts = expected_label_counts(annotations, posterior)
            parameters = m_step(parameters, below, counts, posterior, shares, grid)
        self.trace_, self.stopped_ = np.array(monitor.trace), monitor.stopped
        self.thresholds_and_slopes_ = parameters.theta
        self.guess_rates_, self.mean_ = parameters.guess_rates, parameters.mean
        self.spread_, self.psi_, self.class_shares_ = parameters.spread, parameters.psi, shares
        if weights is None:
            load = annotations.annotator_load
            weights = (load if self.weight_by == "labels" else load > 0).astype(np.float64)
        self.annotator_weights_ = normalised(weights)
        tables = self._grid_probabilities(np.arange(annotations.n_annotators))
        self.population_ = np.einsum("n,npq->qp", self.annotator_weights_, tables)
        self._locate_items(annotations, tables, self.psi_)

    def _grid_probabilities(self, annotator: NDArray[Any]) -> Array:
        """Return (n, P, Q) P(y | q, n) by annotator code; −1 stands for the average annotator."""
        theta = np.vstack([self.thresholds_and_slopes_, self.mean_])[annotator]
        guess_rates = np.append(self.guess_rates_, GUESS_RATE)[annotator]
        below = cumulative_probabilities(theta, Grid.of(self.sides))
        return label_probabilities(below, guess_rates, self.class_shares_)

    def _locate_items(self, annotations: Annotations, tables: Array, prior: Array) -> None:
        """Set the posterior of the items' grid points, given P(y | q, n), and the population's answers."""
        self.item_posterior_ = e_step(annotations, np.log(tables), safe_log(prior))[0].astype(np.float32)
        self.label_distributions_ = row_shares(self.item_posterior_.astype(np.float64) @ self.population_)
        self.prior_distribution_ = normalised(self.psi_ @ self.population_)

    def take_annotators(self, codes: Indices, vocabulary: Vocabulary, weights: Array) -> None:
        """Take the annotators of ``codes``, which may repeat, with new ``vocabulary`` and ``weights``."""
        self.thresholds_and_slopes_ = self.thresholds_and_slopes_[codes]
        self.guess_rates_ = self.guess_rates_[codes]
        self.annotator_vocabulary_, self.annotator_weights_ = vocabulary, weights

    def draw_answers(self, n: int, rng: np.random.Generator) -> NDArray[np.float32]:
        """Draw the population's answers ``(n, M, P)`` by ``rng``, at grid points of the items' posteriors."""
        cumulative, population = np.cumsum(self.item_posterior_, axis=1), self.population_.astype(np.float32)
        u = rng.random((n, len(cumulative))) * cumulative[:, -1]
        points = [(cumulative < row[:, None]).sum(axis=1) for row in u]
        return population[np.minimum(points, len(population) - 1)]

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Return Σ_q P(q | the item's labels) P(y | q, n)."""
        posterior = np.vstack([self.item_posterior_, self.psi_.astype(np.float32)])
        people, local = np.unique(annotator, return_inverse=True)
        tables = self._grid_probabilities(people)
        return row_shares(np.einsum("eq,epq->ep", posterior[item].astype(np.float64), tables[local]))

    def annotator_frame(self) -> dict[str, Any]:
        """Return columns about annotators: leniency relative to the average, slope and guess rate."""
        # thresholds below the average mean higher labels
        thresholds = slice(0, len(self.class_shares_) - 1)
        lenient = (self.mean_[thresholds] - self.thresholds_and_slopes_[:, thresholds]).mean(axis=1)
        slopes = self.thresholds_and_slopes_[:, thresholds.stop]
        return {"leniency": lenient, "slope": slopes, "guesses": self.guess_rates_}

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Locate items by their labels; annotators keep their parameters, new ones get the average.

        Items of the fit also keep what their labels there say about them.
        """
        rows, item, annotator = unfitted_rows(new, fitted)
        prior = np.vstack([fitted.item_posterior_, fitted.psi_])[item].astype(np.float64)
        self._locate_items(rows, self._grid_probabilities(annotator), prior)
        self.thresholds_and_slopes_ = np.vstack([fitted.thresholds_and_slopes_, fitted.mean_])[annotator]
        self.guess_rates_ = np.append(fitted.guess_rates_, GUESS_RATE)[annotator]
        self.annotator_weights_ = np.append(fitted.annotator_weights_, 0.0)[annotator]
