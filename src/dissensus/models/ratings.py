"""Numeric ratings: what the population would rate an item, with annotators' bias, scale and noise set apart.

How a rating is born, in units of the ratings' own mean and standard deviation:

    x_m ~ N(μ, τ²)                       what the population thinks of item m
    β_n ~ N(0, ω²)                       annotator n's bias
    q_n ~ Gamma(2, 2)
    s_n ~ N(1, κ² / q_n)                 how widely they use the scale; some few are far from 1, or below 0
    λ_n ~ Gamma(c, c v)                  their precision: 1 / λ_n is the variance of their noise
    w_e ~ Gamma(ν/2, ν/2)                how much rating e counts: outliers have a small w
    y_e ~ N(β_n + s_n x_m, 1 / (w_e λ_n))

so that noise is Student's t with ν degrees of freedom. μ is flat, τ², ω² ~ IG(1, 0.01), κ² ~ IG(2, 0.05), v
is flat in its logarithm, c and ν lie on grids. A population of annotators has bias 0 and scale 1 on average,
so x_m is what it would rate on average.

How it is sampled: by Gibbs, every step exact (but that c, ν and a stretch are drawn from grids), from a start
by alternating means. Two directions that single steps would walk slowly are drawn at once: a shift of all
items against all biases, and a stretch of all items against all scales, which both leave every rating's
expectation as it is (Liu and Sabatti 2000). The estimate of an item is the mean over draws of its
conditional mean; its variance is that of these means and the mean of the conditional variances.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from dissensus.models.results import PIECE
from dissensus.models.scoring import codes_of_hidden
from dissensus.numerics import Array, batches
from dissensus.params import SEED, choice, fitted, flag, integer, setting

MOST_WORK, SWEEPS, FEWEST = 30_000_000, 300, 30  # ratings times sweeps, and the bounds of the sweeps
FORGOTTEN = 1 / 3  # share of the sweeps that are not kept
NU = np.array([1, 1.5, 2, 2.5, 3, 4, 5, 7, 10, 15, 25, 50, 200])
C = np.geomspace(0.5, 200, 40)
STRETCH = np.linspace(-0.3, 0.3, 121)  # logarithms of stretches tried
WIDE, VARIED = (1.0, 0.01), (2.0, 0.05)  # inverse-gamma priors of τ² and ω², and of κ²


@dataclass(frozen=True)
class Ratings:
    """The ratings in their own units."""

    item: NDArray[np.int32]
    annotator: NDArray[np.int32]
    y: Array
    M: int
    N: int
    starts: NDArray[np.int64]  # (M + 1,): ratings are sorted by item

    def by_item(self, values: Array) -> Array:
        """(M,): sums over the ratings of each item."""
        total = np.concatenate([[0.0], np.cumsum(values)])
        return np.asarray(total[self.starts[1:]] - total[self.starts[:-1]])

    def by_annotator(self, values: Array) -> Array:
        """(N,): sums over the ratings of each annotator."""
        return np.asarray(np.bincount(self.annotator, values, self.N), np.float64)


@dataclass(frozen=True)
class State:
    """A draw, and the sums of what was gathered so far."""

    x: Array  # (M,)
    beta: Array  # (N,)
    scale: Array  # (N,)
    precision: Array  # (N,)
    usual: Array  # (N,): q, how near to 1 the scale is expected
    numbers: Array  # μ, τ², ω², κ², v, c, ν
    items: Array  # (3, M): sums of conditional means, of their squares, and of conditional variances
    annotators: Array  # (6, N): sums of β, s and the noise's standard deviation, and of their squares
    kept: Array  # (8,): sums of the numbers, and how many draws there are


def ratings_of(annotations: Annotations, centre: float, unit: float) -> Ratings:
    """The labels as numbers in units of their own."""
    y, shape = (annotations.values - centre) / unit, (annotations.n_items, annotations.n_annotators)
    return Ratings(annotations.item, annotations.annotator, y, *shape, annotations.item_pointers)


# ---- one sweep ----------------------------------------------------------------------------------------


def start(data: Ratings, bias: bool) -> State:
    """Means of items and of annotators, each without the other, a few times; one noise for all."""
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
    return State(x, beta, np.ones(data.N), np.full(data.N, 1 / noise), np.ones(data.N), numbers, *empty)


def weights_given(data: Ratings, state: State, residual: Array, rng: Generator) -> tuple[Array, float]:
    """w_e ~ Gamma((ν + 1)/2, (ν + λ_n r_e²)/2); then ν given the weights, on its grid."""
    nu = state.numbers[6]
    rate = (nu + state.precision[data.annotator] * residual**2) / 2
    weights = rng.standard_gamma((nu + 1) / 2, len(rate)) / rate
    half, E = NU / 2, len(weights)
    # Σ_e log Gamma(w_e; ν/2, ν/2)
    logs = E * (half * np.log(half) - gammaln(half))
    logs += (half - 1) * float(np.log(np.maximum(weights, 1e-300)).sum()) - half * float(weights.sum())
    return weights, float(_drawn(NU, logs, rng))


def precisions_given(
    squares: Array, counts: Array, v: float, c: float, rng: Generator
) -> tuple[Array, float, float]:
    """λ_n ~ Gamma(c + n/2, c v + Σ w r²/2); then v and c given them."""
    precision = rng.standard_gamma(c + counts / 2) / (c * v + squares / 2)
    precision = np.clip(precision, 1e-8, 1e8)
    N, total, logs = len(precision), float(precision.sum()), float(np.log(precision).sum())
    v = float(rng.standard_gamma(N * c) / (c * total))
    # Σ_n log Gamma(λ_n; c, c v)
    fits = N * (C * np.log(C * v) - gammaln(C)) + (C - 1) * logs - C * v * total
    return precision, v, float(_drawn(C, fits, rng))


def annotators_given(
    data: Ratings, state: State, weight: Array, bias: bool, scale: bool, rng: Generator
) -> tuple[Array, Array]:
    """β_n and s_n together: a normal of two dimensions for everyone."""
    omega, kappa = state.numbers[2], state.numbers[3] / state.usual
    x = state.x[data.item]
    p11 = data.by_annotator(weight) + 1 / omega
    p12 = data.by_annotator(weight * x)
    p22 = data.by_annotator(weight * x * x) + 1 / kappa
    h1, h2 = data.by_annotator(weight * data.y), data.by_annotator(weight * x * data.y) + 1 / kappa
    a, b = rng.standard_normal((2, data.N))
    if not scale:
        return ((h1 - p12) / p11 + a / np.sqrt(p11) if bias else np.zeros(data.N)), np.ones(data.N)
    if not bias:
        return np.zeros(data.N), h2 / p22 + a / np.sqrt(p22)
    # s first, β integrated out; then β given s
    left = p22 - p12**2 / p11
    s = (h2 - p12 * h1 / p11) / left + a / np.sqrt(left)
    return (h1 - p12 * s) / p11 + b / np.sqrt(p11), s


def moved(state: State, bias: bool, scale: bool, rng: Generator) -> State:
    """A shift of items against biases and a stretch of items against scales; expectations stay."""
    x, beta, s, numbers = state.x, state.beta, state.scale, state.numbers.copy()
    if bias:
        # β_n − s_n δ ~ N(0, ω²), μ flat: δ ~ N(Σ s β / Σ s², ω² / Σ s²)
        squares = float(s @ s)
        shift = float(s @ beta) / squares + rng.standard_normal() * np.sqrt(numbers[2] / squares)
        x, beta = x + shift, beta - s * shift
        numbers[0] += shift
    if scale:
        # x g, s / g, μ g, τ² g²; with τ² ~ IG(a, b), density times Jacobian is, as a density of log g,
        # g^(1 − N − 2a) exp(−Σ_n q_n (s_n / g − 1)² / 2κ² − b / (τ² g²)): the items' own parts cancel
        g, N, q = np.exp(STRETCH), len(s), state.usual
        logs = (1 - N) * STRETCH - (float(q @ s**2) / g**2 - 2 * float(q @ s) / g) / (2 * numbers[3])
        logs += -2 * WIDE[0] * STRETCH - WIDE[1] / (numbers[1] * g**2)
        by = float(_drawn(g, logs, rng))
        x, s = x * by, s / by
        numbers[0] *= by
        numbers[1] *= by**2
    return replace(state, x=x, beta=beta, scale=s, numbers=numbers)


def spreads_given(state: State, rng: Generator) -> tuple[Array, Array]:
    """μ, τ², ω² and κ² given items and annotators; and q_n ~ Gamma(5/2, 2 + (s_n − 1)² / 2κ²)."""
    numbers, M, N = state.numbers.copy(), len(state.x), len(state.beta)
    usual = rng.standard_gamma(2.5, N) / (2 + (state.scale - 1) ** 2 / (2 * numbers[3]))
    numbers[0] = state.x.mean() + rng.standard_normal() * np.sqrt(numbers[1] / M)
    off = (state.x - numbers[0]) ** 2, state.beta**2, usual * (state.scale - 1) ** 2
    for place, size, squares, prior in zip((1, 2, 3), (M, N, N), off, (WIDE, WIDE, VARIED), strict=True):
        numbers[place] = (prior[1] + squares.sum() / 2) / rng.standard_gamma(prior[0] + size / 2)
    return numbers, usual


def items_given(data: Ratings, state: State, weight: Array) -> tuple[Array, Array]:
    """Conditional mean and variance of every x_m."""
    mu, tau = state.numbers[:2]
    s = state.scale[data.annotator]
    precision = 1 / tau + data.by_item(weight * s * s)
    pull = mu / tau + data.by_item(weight * s * (data.y - state.beta[data.annotator]))
    return pull / precision, 1 / precision


def sweep(data: Ratings, state: State, uses: tuple[bool, bool, bool], keep: bool, rng: Generator) -> State:
    """Every unknown drawn once given the others, and the sums grown if ``keep``.

    ``uses``: bias, scale, outliers.
    """
    bias, scale, robust = uses
    residual = data.y - state.beta[data.annotator] - state.scale[data.annotator] * state.x[data.item]
    numbers, weights = state.numbers.copy(), np.ones(len(data.y))
    if robust:
        weights, numbers[6] = weights_given(data, state, residual, rng)
    squares, counts = data.by_annotator(weights * residual**2), data.by_annotator(np.ones(len(data.y)))
    precision, numbers[4], numbers[5] = precisions_given(squares, counts, numbers[4], numbers[5], rng)
    state = replace(state, precision=precision, numbers=numbers)
    weight = weights * precision[data.annotator]
    beta, s = annotators_given(data, state, weight, bias, scale, rng)
    state = moved(replace(state, beta=beta, scale=s), bias, scale, rng)
    numbers, usual = spreads_given(state, rng)
    state = replace(state, numbers=numbers, usual=usual)
    mean, variance = items_given(data, state, weight)
    state = replace(state, x=mean + rng.standard_normal(data.M) * np.sqrt(variance))
    if not keep:
        return state
    told = np.stack([state.beta, state.scale, 1 / np.sqrt(state.precision)])
    items = state.items + np.stack([mean, mean**2, variance])
    annotators = state.annotators + np.concatenate([told, told**2])
    return replace(state, items=items, annotators=annotators, kept=state.kept + np.append(state.numbers, 1.0))


def _drawn(values: Array, logs: Array, rng: Generator) -> Any:
    """One of the values, drawn with these log-probabilities."""
    chances = np.exp(logs - logs.max())
    return values[np.searchsorted(np.cumsum(chances), rng.random() * chances.sum())]


# ---- the model ----------------------------------------------------------------------------------------


class NumericRatings(Model):
    """Numbers rated by many: each item's value, each annotator's bias, scale and noise, outliers tolerated.

    Without ``bias``, ``scale`` and ``robust`` it is a shrunken mean.
    """

    _: KW_ONLY
    bias: bool = flag(True, "Whether annotators may rate higher or lower than others.")
    scale: bool = flag(True, "Whether annotators may use more or less of the scale than others.")
    robust: bool = flag(True, "Whether outliers are tolerated.")
    n_sweeps: int | str = setting(
        "auto",
        integer(FEWEST) | choice("auto"),
        'Sweeps of the sampler; ``"auto"`` takes as many as suit the data.',
    )
    seed: int = setting(0, *SEED)

    _common_arrays = ("n_labels_", "trace_")
    _needs_annotators = True
    answers_are_classes = False
    _label_types = ("numeric", "ordinal")
    _memory_tables = {"M": 4, "N": 4, "E": 8}
    _fitted_by = "estimates_"

    estimates_: Array = fitted("(M,): what the population would rate each item, on average")
    errors_: Array = fitted("(M,): posterior standard deviations")
    annotators_told_: Array = fitted("(3, N): bias, scale, noise (a standard deviation)")
    annotator_errors_: Array = fitted("(3, N): posterior standard deviations of these")
    numbers_: Array = fitted("μ, τ², ω², κ², v, c, ν in the ratings' own units")
    units_: Array = fitted("the ratings' mean and standard deviation")

    def _fit(self, annotations: Annotations, engine: Engine) -> None:
        values = annotations.values
        unit = float(values.std()) or 1.0
        self.units_ = np.array([values.mean(), unit])
        data = ratings_of(annotations, *self.units_)
        uses = self.bias, self.scale, self.robust
        auto = int(np.clip(MOST_WORK // len(data.y), FEWEST, SWEEPS))
        n_sweeps = auto if isinstance(self.n_sweeps, str) else self.n_sweeps
        reached = engine.checkpoints.latest("sweeps", State) if engine.checkpoints else None
        reached = reached or Checkpoint(start(data, self.bias))
        state: State = reached.state
        for i in range(reached.done, n_sweeps):
            rng = np.random.default_rng([self.seed, i])
            state = sweep(data, state, uses, i >= FORGOTTEN * n_sweeps, rng)
            engine.step_done(i + 1, n_sweeps)
            if engine.checkpoints:
                stopped = "number of sweeps" if i + 1 == n_sweeps else ""
                engine.checkpoints.write("sweeps", Checkpoint(state, i + 1, stopped=stopped))
        self.trace_, self.stopped_ = np.zeros(n_sweeps), "number of sweeps"
        # what the draws say, in the units of the ratings
        centre, n = self.units_[0], state.kept[7]
        mean, square, variance = state.items / n
        self.estimates_ = centre + unit * mean
        # Var x = E Var(x | rest) + Var E(x | rest)
        self.errors_ = unit * np.sqrt(variance + np.maximum(square - mean**2, 0))
        told, squares = state.annotators[:3] / n, state.annotators[3:] / n
        in_units = np.array([[unit], [1.0], [unit]])
        self.annotators_told_ = in_units * told
        self.annotator_errors_ = in_units * np.sqrt(np.maximum(squares - told**2, 0))
        self.numbers_ = state.kept[:7] / n

    # ---- what it knows --------------------------------------------------------------------------------

    def predict(self) -> Array:
        """The estimate of every item."""
        self._check_fitted()
        return self.estimates_

    def predict_proba(self, items: Any, annotators: Any = None) -> Array:
        """Numbers have no classes."""
        raise DataError("NumericRatings knows numbers and no classes; see estimates_, to_frame and expected")

    def expected(self, item: NDArray[Any], annotator: NDArray[Any] | None = None) -> tuple[Array, Array]:
        """The rating to expect of an item (by an annotator), and its spread; codes, −1: never seen.

        Parameters
        ----------
        item
            Item codes; −1 for one never seen.
        annotator
            Annotator codes; None: by anyone.
        """
        centre, unit = self.units_
        mu, tau, omega, kappa, v = self.numbers_[:5]
        x = (np.append(self.estimates_, centre + unit * mu)[item] - centre) / unit
        doubt = (np.append(self.errors_, unit * np.sqrt(tau))[item] / unit) ** 2
        n = np.full(len(item), -1) if annotator is None else annotator
        beta, s, noise = np.column_stack([self.annotators_told_, [0.0, 1.0, unit * np.sqrt(v)]])[:, n]
        off = np.column_stack([self.annotator_errors_, [unit * np.sqrt(omega), np.sqrt(kappa), 0.0]])[:, n]
        variance = (noise**2 + off[0] ** 2) / unit**2 + s**2 * doubt + (off[1] * x) ** 2
        return centre + beta + unit * s * x, unit * np.sqrt(variance)

    def log_chances(self, hidden: Any, annotators: bool = True) -> Array:
        """log density of every rating of ``hidden`` given item and annotator, or given the item."""
        known, item, annotator = codes_of_hidden(self, hidden)
        mean, spread = self.expected(item, annotator if annotators else None)
        # Student's t: log Γ((ν + 1)/2) − log Γ(ν/2) − log(ν π)/2 − log spread − (ν + 1)/2 log(1 + off²/ν)
        nu, off = self.numbers_[6] if self.robust else 1e6, (known.values - mean) / spread
        peak = gammaln((nu + 1) / 2) - gammaln(nu / 2) - np.log(nu * np.pi) / 2
        return np.asarray(peak - np.log(spread) - (nu + 1) / 2 * np.log1p(off**2 / nu))

    def label_pieces(self, interval: float | None = None, size: int = PIECE) -> Iterator[dict[str, Any]]:
        """Item, estimate, low, high (a credible interval, 0.95 unless told otherwise) and n_labels."""
        from dissensus.tables.labels_file import rating_columns

        ids, reach = self.item_vocabulary_.arrow, float(ndtri((1 + (interval or 0.95)) / 2))
        for rows in batches(max(len(ids), 1), size):
            estimates, reaches = self.estimates_[rows], reach * self.errors_[rows]
            yield rating_columns(ids[rows], estimates, reaches, self.n_labels_[rows])

    def annotator_frame(self) -> dict[str, Any]:
        """Columns about annotators: bias, scale and noise with 95 % intervals."""
        columns: dict[str, Any] = {}
        names = ("bias", "scale", "noise")
        for name, value, error in zip(names, self.annotators_told_, self.annotator_errors_, strict=True):
            low, high = value - 1.96 * error, value + 1.96 * error
            columns |= {name: value, f"{name}_low": low, f"{name}_high": high}
        return columns

    # ---- new items ------------------------------------------------------------------------------------

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Annotators keep what is known of them; items are estimated as if that were sure."""
        centre, unit = fitted.units_
        data = ratings_of(new, centre, unit)
        code = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        mu, tau, omega, kappa, v, _, nu = fitted.numbers_
        unknown = np.column_stack([fitted.annotators_told_, [0.0, 1.0, unit * np.sqrt(v)]])[:, code]
        beta, s, noise = unknown[0] / unit, unknown[1], unknown[2] / unit
        precision = 1 / (noise**2 + np.where(code < 0, omega + kappa * (mu**2 + tau), 0.0))
        known = State(np.zeros(data.M), beta, s, precision, np.ones(0), fitted.numbers_, *([np.zeros(0)] * 3))
        weight = precision[data.annotator]
        for _ in range(20):
            mean, variance = items_given(data, known, weight)
            residual = data.y - beta[data.annotator] - s[data.annotator] * mean[data.item]
            # E w_e = (ν + 1) / (ν + λ_n r_e²)
            outlying = (nu + 1) / (nu + precision[data.annotator] * residual**2) if self.robust else 1.0
            weight = outlying * precision[data.annotator]
        self.estimates_, self.errors_ = centre + unit * mean, unit * np.sqrt(variance)
        self.annotators_told_ = unknown
        self.annotator_errors_ = np.column_stack([fitted.annotator_errors_, np.zeros(3)])[:, code]
