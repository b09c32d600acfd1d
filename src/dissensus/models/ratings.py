"""Numeric ratings: the population's mean rating of each item, with each annotator's bias, scale and noise.

How a rating is generated, in units of the ratings' mean and standard deviation:

    x_m ~ N(μ, τ²)                       the population's mean rating of item m
    β_n ~ N(0, ω²)                       bias of annotator n
    q_n ~ Gamma(2, 2)
    s_n ~ N(1, κ² / q_n)                 scale of annotator n; a few are far from 1, or negative
    λ_n ~ Gamma(c, c v)                  precision: 1 / λ_n is the variance of the annotator's noise
    w_e ~ Gamma(ν/2, ν/2)                weight of rating e: outliers have a small w
    y_e ~ N(β_n + s_n x_m, 1 / (w_e λ_n))

so that noise is Student's t with ν degrees of freedom. μ is flat, τ², ω² ~ IG(1, 0.01), κ² ~ IG(2, 0.05), v
is flat in its logarithm, c and ν lie on grids. A population of annotators has mean bias 0 and mean scale 1,
so x_m is its mean rating.

Sampling is by Gibbs, every step exact (except that c, ν and a stretch are drawn from grids), from a start by
alternating means. Two directions in which single steps would move slowly are drawn jointly: a shift of all
items against all biases, and a stretch of all items against all scales; both leave the expectation of every
rating unchanged (Liu and Sabatti 2000). The estimate of an item is the mean over draws of its conditional
mean; its variance is the variance of these means plus the mean conditional variance.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import gammaln, ndtri

from dissensus.engine import Checkpoint, Engine
from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.models.base import Model
from dissensus.models.results import ITEMS_PER_BATCH, ColumnBatches
from dissensus.models.scoring import held_out_codes
from dissensus.numerics import Array, batches
from dissensus.params import SEED, choice, fitted, flag, integer, setting

MAX_RATING_UPDATES = 30_000_000  # ratings × sweeps with n_sweeps="auto"
MAX_AUTO_SWEEPS, MIN_RATING_SWEEPS = 300, 30
BURN_IN_SHARE = 1 / 3  # of the sweeps
NU_GRID = np.array([1, 1.5, 2, 2.5, 3, 4, 5, 7, 10, 15, 25, 50, 200])
C_GRID = np.geomspace(0.5, 200, 40)
LOG_STRETCH_GRID = np.linspace(-0.3, 0.3, 121)
VARIANCE_PRIOR, SCALE_PRIOR = (1.0, 0.01), (2.0, 0.05)  # inverse-gamma priors of τ² and ω², and of κ²


@dataclass(frozen=True)
class Ratings:
    """Ratings in units of their mean and standard deviation."""

    item: NDArray[np.int32]
    annotator: NDArray[np.int32]
    y: Array
    M: int
    N: int
    starts: NDArray[np.int64]  # (M + 1,): ratings are sorted by item

    def by_item(self, values: Array) -> Array:
        """Return (M,) sums over the ratings of each item."""
        total = np.concatenate([[0.0], np.cumsum(values)])
        return np.asarray(total[self.starts[1:]] - total[self.starts[:-1]])

    def by_annotator(self, values: Array) -> Array:
        """Return (N,) sums over the ratings of each annotator."""
        return np.asarray(np.bincount(self.annotator, values, self.N), np.float64)


@dataclass(frozen=True)
class RatingState:
    """One draw, and the sums over the draws recorded so far."""

    x: Array  # (M,)
    beta: Array  # (N,)
    scale: Array  # (N,)
    precision: Array  # (N,)
    q: Array  # (N,): prior precision of the scale, relative to 1 / κ²
    numbers: Array  # μ, τ², ω², κ², v, c, ν
    item_sums: Array  # (3, M): sums of conditional means, of their squares, and of conditional variances
    annotator_sums: Array  # (6, N): sums of β, s and the noise's standard deviation, and of their squares
    number_sums: Array  # (8,): sums of the numbers, and the number of draws


def standardise(annotations: Annotations, centre: float, unit: float) -> Ratings:
    """Return the labels as numbers, minus ``centre`` and divided by ``unit``."""
    y, shape = (annotations.values - centre) / unit, (annotations.n_items, annotations.n_annotators)
    return Ratings(annotations.item, annotations.annotator, y, *shape, annotations.item_pointers)


# ---- one sweep ----------------------------------------------------------------------------------------


def start(data: Ratings, bias: bool) -> RatingState:
    """Start from alternating means of items and annotators, with one noise variance."""
    per_item = np.maximum(np.diff(data.starts), 1)
    per_annotator = np.maximum(data.by_annotator(np.ones(len(data.y))), 1)
    beta, x = np.zeros(data.N), np.zeros(data.M)
    for _ in range(5):
        x = data.by_item(data.y - beta[data.annotator]) / per_item
        if bias:
            beta = data.by_annotator(data.y - x[data.item]) / per_annotator
            beta -= beta.mean()
    noise = float(np.mean((data.y - x[data.item] - beta[data.annotator]) ** 2)) + 1e-6
    numbers = np.array([x.mean(), x.var() + 0.01, beta.var() + 0.01, 0.05, noise, 2.0, 5.0])
    empty = np.zeros((3, data.M)), np.zeros((6, data.N)), np.zeros(8)
    return RatingState(x, beta, np.ones(data.N), np.full(data.N, 1 / noise), np.ones(data.N), numbers, *empty)


def draw_weights(data: Ratings, state: RatingState, residual: Array, rng: Generator) -> tuple[Array, float]:
    """Draw w_e ~ Gamma((ν + 1)/2, (ν + λ_n r_e²)/2), then ν given the weights, on its grid."""
    nu = state.numbers[6]
    rate = (nu + state.precision[data.annotator] * residual**2) / 2
    weights = rng.standard_gamma((nu + 1) / 2, len(rate)) / rate
    half, E = NU_GRID / 2, len(weights)
    # Σ_e log Gamma(w_e; ν/2, ν/2)
    logs = E * (half * np.log(half) - gammaln(half))
    logs += (half - 1) * float(np.log(np.maximum(weights, 1e-300)).sum()) - half * float(weights.sum())
    return weights, _draw_from_grid(NU_GRID, logs, rng)


def draw_precisions(
    squares: Array, counts: Array, v: float, c: float, rng: Generator
) -> tuple[Array, float, float]:
    """Draw λ_n ~ Gamma(c + n/2, c v + Σ w r²/2), then v and c given them."""
    precision = rng.standard_gamma(c + counts / 2) / (c * v + squares / 2)
    precision = np.clip(precision, 1e-8, 1e8)
    N, total, log_sum = len(precision), float(precision.sum()), float(np.log(precision).sum())
    v = float(rng.standard_gamma(N * c) / (c * total))
    # Σ_n log Gamma(λ_n; c, c v)
    logs = N * (C_GRID * np.log(C_GRID * v) - gammaln(C_GRID)) + (C_GRID - 1) * log_sum - C_GRID * v * total
    return precision, v, _draw_from_grid(C_GRID, logs, rng)


def draw_annotators(
    data: Ratings, state: RatingState, weight: Array, bias: bool, scale: bool, rng: Generator
) -> tuple[Array, Array]:
    """Draw β_n and s_n jointly, from a bivariate normal for each annotator."""
    omega, kappa = state.numbers[2], state.numbers[3] / state.q
    x = state.x[data.item]
    p11 = data.by_annotator(weight) + 1 / omega
    p12, p22 = data.by_annotator(weight * x), data.by_annotator(weight * x * x) + 1 / kappa
    h1, h2 = data.by_annotator(weight * data.y), data.by_annotator(weight * x * data.y) + 1 / kappa
    a, b = rng.standard_normal((2, data.N))
    if not scale:
        return ((h1 - p12) / p11 + a / np.sqrt(p11) if bias else np.zeros(data.N)), np.ones(data.N)
    if not bias:
        return np.zeros(data.N), h2 / p22 + a / np.sqrt(p22)
    # s first, β integrated out; then β given s
    marginal = p22 - p12**2 / p11
    s = (h2 - p12 * h1 / p11) / marginal + a / np.sqrt(marginal)
    return (h1 - p12 * s) / p11 + b / np.sqrt(p11), s


def shift_and_stretch(state: RatingState, bias: bool, scale: bool, rng: Generator) -> RatingState:
    """Shift items against biases and stretch them against scales, leaving all expectations unchanged."""
    x, beta, s, numbers = state.x, state.beta, state.scale, state.numbers.copy()
    if bias:
        # β_n − s_n δ ~ N(0, ω²), μ flat: δ ~ N(Σ s β / Σ s², ω² / Σ s²)
        squares = float(s @ s)
        shift = float(s @ beta) / squares + rng.standard_normal() * np.sqrt(numbers[2] / squares)
        x, beta = x + shift, beta - s * shift
        numbers[0] += shift
    if scale:
        # x g, s / g, μ g, τ² g²; with τ² ~ IG(a, b), density times Jacobian is, as a density of log g,
        # g^(1 − N − 2a) exp(−Σ_n q_n (s_n / g − 1)² / 2κ² − b / (τ² g²)): the items' terms cancel
        grid, N, q = LOG_STRETCH_GRID, len(s), state.q
        g = np.exp(grid)
        logs = (1 - N) * grid - (float(q @ s**2) / g**2 - 2 * float(q @ s) / g) / (2 * numbers[3])
        logs += -2 * VARIANCE_PRIOR[0] * grid - VARIANCE_PRIOR[1] / (numbers[1] * g**2)
        factor = _draw_from_grid(g, logs, rng)
        x, s = x * factor, s / factor
        numbers[0] *= factor
        numbers[1] *= factor**2
    return replace(state, x=x, beta=beta, scale=s, numbers=numbers)


def draw_spreads(state: RatingState, rng: Generator) -> tuple[Array, Array]:
    """Draw μ, τ², ω² and κ² given items and annotators, and q_n ~ Gamma(5/2, 2 + (s_n − 1)² / 2κ²)."""
    numbers, M, N = state.numbers.copy(), len(state.x), len(state.beta)
    q = rng.standard_gamma(2.5, N) / (2 + (state.scale - 1) ** 2 / (2 * numbers[3]))
    numbers[0] = state.x.mean() + rng.standard_normal() * np.sqrt(numbers[1] / M)
    squares = (state.x - numbers[0]) ** 2, state.beta**2, q * (state.scale - 1) ** 2
    priors = VARIANCE_PRIOR, VARIANCE_PRIOR, SCALE_PRIOR
    for index, (terms, prior) in enumerate(zip(squares, priors, strict=True), 1):
        numbers[index] = (prior[1] + terms.sum() / 2) / rng.standard_gamma(prior[0] + len(terms) / 2)
    return numbers, q


def item_conditionals(
    data: Ratings, mu: float, tau: float, beta: Array, scale: Array, weight: Array
) -> tuple[Array, Array]:
    """Return the conditional mean and variance of every x_m; ``tau`` is τ²."""
    s = scale[data.annotator]
    precision = 1 / tau + data.by_item(weight * s * s)
    return (mu / tau + data.by_item(weight * s * (data.y - beta[data.annotator]))) / precision, 1 / precision


def sweep(
    data: Ratings, state: RatingState, bias: bool, scale: bool, robust: bool, rng: Generator
) -> tuple[RatingState, Array, Array]:
    """Draw every unknown once given the others; also return the conditional means and variances of x."""
    residual = data.y - state.beta[data.annotator] - state.scale[data.annotator] * state.x[data.item]
    numbers, weights = state.numbers.copy(), np.ones(len(data.y))
    if robust:
        weights, numbers[6] = draw_weights(data, state, residual, rng)
    squares, counts = data.by_annotator(weights * residual**2), data.by_annotator(np.ones(len(data.y)))
    precision, numbers[4], numbers[5] = draw_precisions(squares, counts, numbers[4], numbers[5], rng)
    state = replace(state, precision=precision, numbers=numbers)
    weight = weights * precision[data.annotator]
    beta, s = draw_annotators(data, state, weight, bias, scale, rng)
    state = shift_and_stretch(replace(state, beta=beta, scale=s), bias, scale, rng)
    numbers, q = draw_spreads(state, rng)
    state = replace(state, numbers=numbers, q=q)
    mean, variance = item_conditionals(data, numbers[0], numbers[1], state.beta, state.scale, weight)
    return replace(state, x=mean + rng.standard_normal(data.M) * np.sqrt(variance)), mean, variance


def record(state: RatingState, mean: Array, variance: Array) -> RatingState:
    """Add a draw, with the conditional means and variances of its items, to the sums."""
    values = np.stack([state.beta, state.scale, 1 / np.sqrt(state.precision)])
    items = state.item_sums + np.stack([mean, mean**2, variance])
    annotators = state.annotator_sums + np.concatenate([values, values**2])
    numbers = state.number_sums + np.append(state.numbers, 1.0)
    return replace(state, item_sums=items, annotator_sums=annotators, number_sums=numbers)


def _draw_from_grid(values: Array, logs: Array, rng: Generator) -> float:
    """Draw one of the values, with these log probabilities."""
    weights = np.exp(logs - logs.max())
    return float(values[np.searchsorted(np.cumsum(weights), rng.random() * weights.sum())])


# ---- the model ----------------------------------------------------------------------------------------


class NumericRatings(Model):
    """Numeric ratings with each annotator's bias, scale and noise, robust to outliers.

    Without ``bias``, ``scale`` and ``robust`` the estimate is a shrunken mean.
    """

    _: KW_ONLY
    bias: bool = flag(True, "Whether annotators differ in how high they rate.")
    scale: bool = flag(True, "Whether annotators differ in how much of the scale they use.")
    robust: bool = flag(True, "Whether noise has heavy tails (Student's t), so that outliers count less.")
    n_sweeps: int | str = setting(
        "auto", integer(MIN_RATING_SWEEPS) | choice("auto"), 'Number of sweeps; ``"auto"`` is at most 300.'
    )
    seed: int = setting(0, *SEED)

    _common_arrays = ("n_labels_", "trace_")
    _needs_annotators = True
    answers_are_classes = False
    _label_types = ("numeric", "ordinal")
    _memory_tables = {"M": 4, "N": 4, "E": 8}
    _fitted_by = "estimates_"

    estimates_: Array = fitted("(M,): the population's mean rating of each item")
    errors_: Array = fitted("(M,): posterior standard deviations")
    annotator_estimates_: Array = fitted("(3, N): bias, scale, noise (a standard deviation)")
    annotator_errors_: Array = fitted("(3, N): posterior standard deviations of these")
    numbers_: Array = fitted("μ, τ², ω², κ², v, c, ν in the ratings' own units")
    units_: Array = fitted("the ratings' mean and standard deviation")

    def _fit(self, annotations: Annotations, engine: Engine) -> None:
        values = annotations.values
        unit = float(values.std()) or 1.0
        self.units_ = np.array([values.mean(), unit])
        data = standardise(annotations, *self.units_)
        auto = int(np.clip(MAX_RATING_UPDATES // len(data.y), MIN_RATING_SWEEPS, MAX_AUTO_SWEEPS))
        n_sweeps = auto if isinstance(self.n_sweeps, str) else self.n_sweeps
        checkpoint = engine.checkpoints.latest("sweeps", RatingState) if engine.checkpoints else None
        checkpoint = checkpoint or Checkpoint(start(data, self.bias))
        state: RatingState = checkpoint.state
        for i in range(checkpoint.done, n_sweeps):
            rng = np.random.default_rng([self.seed, i])
            state, mean, variance = sweep(data, state, self.bias, self.scale, self.robust, rng)
            if i >= BURN_IN_SHARE * n_sweeps:
                state = record(state, mean, variance)
            engine.step_done(i + 1, n_sweeps)
            if engine.checkpoints:
                stopped = "number of sweeps" if i + 1 == n_sweeps else ""
                engine.checkpoints.write("sweeps", Checkpoint(state, i + 1, stopped=stopped))
        self.trace_, self.stopped_ = np.zeros(n_sweeps), "number of sweeps"
        # means over the draws, in the units of the ratings
        centre, n = self.units_[0], state.number_sums[7]
        mean, square, variance = state.item_sums / n
        self.estimates_ = centre + unit * mean
        # Var x = E Var(x | rest) + Var E(x | rest)
        self.errors_ = unit * np.sqrt(variance + np.maximum(square - mean**2, 0))
        means, squares = state.annotator_sums[:3] / n, state.annotator_sums[3:] / n
        units = np.array([[unit], [1.0], [unit]])
        self.annotator_estimates_ = units * means
        self.annotator_errors_ = units * np.sqrt(np.maximum(squares - means**2, 0))
        self.numbers_ = state.number_sums[:7] / n

    # ---- predictions ----------------------------------------------------------------------------------

    def predict(self) -> Array:
        """Return the estimate of every item."""
        self._check_fitted()
        return self.estimates_

    def predict_proba(self, items: Any, annotators: Any = None) -> Array:
        """Raise an error: ratings are numbers, without classes."""
        raise DataError("NumericRatings estimates numbers, not classes; use estimates_, to_frame or expected")

    def expected(self, item: NDArray[Any], annotator: NDArray[Any] | None = None) -> tuple[Array, Array]:
        """Return the expected rating of an item (by an annotator), and its standard deviation.

        Parameters
        ----------
        item
            Item codes; −1 for an unseen item.
        annotator
            Annotator codes, −1 for an unseen annotator; None for an average annotator.
        """
        centre, unit = self.units_
        mu, tau, omega, kappa, v = self.numbers_[:5]
        x = (np.append(self.estimates_, centre + unit * mu)[item] - centre) / unit
        x_variance = (np.append(self.errors_, unit * np.sqrt(tau))[item] / unit) ** 2
        n = np.full(len(item), -1) if annotator is None else annotator
        beta, s, noise = np.column_stack([self.annotator_estimates_, [0.0, 1.0, unit * np.sqrt(v)]])[:, n]
        errors = np.column_stack([self.annotator_errors_, [unit * np.sqrt(omega), np.sqrt(kappa), 0.0]])[:, n]
        variance = (noise**2 + errors[0] ** 2) / unit**2 + s**2 * x_variance + (errors[1] * x) ** 2
        return centre + beta + unit * s * x, unit * np.sqrt(variance)

    def log_probabilities(self, hidden: Any, annotators: bool = True) -> Array:
        """Return the log density of each hidden rating given item and annotator, or given the item alone."""
        labels, item, annotator = held_out_codes(self, hidden)
        mean, spread = self.expected(item, annotator if annotators else None)
        # Student's t: log Γ((ν + 1)/2) − log Γ(ν/2) − log(ν π)/2 − log spread − (ν + 1)/2 log(1 + t²/ν)
        nu, t = self.numbers_[6] if self.robust else 1e6, (labels.values - mean) / spread
        peak = gammaln((nu + 1) / 2) - gammaln(nu / 2) - np.log(nu * np.pi) / 2
        return np.asarray(peak - np.log(spread) - (nu + 1) / 2 * np.log1p(t**2 / nu))

    def label_batches(self, interval: float | None = None, size: int = ITEMS_PER_BATCH) -> ColumnBatches:
        """Yield the columns item, estimate, low, high (a 95 % credible interval by default) and n_labels."""
        from dissensus.tables.results import rating_columns

        ids, quantile = self.item_vocabulary_.arrow, float(ndtri((1 + (interval or 0.95)) / 2))
        for rows in batches(max(len(ids), 1), size):
            half_widths = quantile * self.errors_[rows]
            yield rating_columns(ids[rows], self.estimates_[rows], half_widths, self.n_labels_[rows])

    def annotator_frame(self) -> dict[str, Any]:
        """Return columns about annotators: bias, scale and noise with 95 % intervals."""
        columns: dict[str, Any] = {}
        names = ("bias", "scale", "noise")
        for name, value, error in zip(names, self.annotator_estimates_, self.annotator_errors_, strict=True):
            low, high = value - 1.96 * error, value + 1.96 * error
            columns |= {name: value, f"{name}_low": low, f"{name}_high": high}
        return columns

    # ---- new items ------------------------------------------------------------------------------------

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Estimate items given the annotators' estimates, which are taken as exact."""
        centre, unit = fitted.units_
        data = standardise(new, centre, unit)
        code = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        mu, tau, omega, kappa, v, _, nu = fitted.numbers_
        average = [0.0, 1.0, unit * np.sqrt(v)]
        self.annotator_estimates_ = np.column_stack([fitted.annotator_estimates_, average])[:, code]
        self.annotator_errors_ = np.column_stack([fitted.annotator_errors_, np.zeros(3)])[:, code]
        beta, s, noise = self.annotator_estimates_ / np.array([[unit], [1.0], [unit]])
        precision = 1 / (noise**2 + np.where(code < 0, omega + kappa * (mu**2 + tau), 0.0))
        weight = precision[data.annotator]
        for _ in range(20):
            mean, variance = item_conditionals(data, mu, tau, beta, s, weight)
            residual = data.y - beta[data.annotator] - s[data.annotator] * mean[data.item]
            # E w_e = (ν + 1) / (ν + λ_n r_e²)
            expected = (nu + 1) / (nu + precision[data.annotator] * residual**2) if self.robust else 1.0
            weight = expected * precision[data.annotator]
        self.estimates_, self.errors_ = centre + unit * mean, unit * np.sqrt(variance)
