"""Latent positions: a continuous relative of HPGM, with positions instead of clusters.

How a label is generated:

    x_m ~ N(0, I),  a_n ~ N(0, I)             positions of item m and annotator n; x̃ = (1, x), ã = (1, a)
    W_cij ~ N(0, s_i² t_j²),  W_c00 ~ N(0, 4)  loading of class c on dimensions i and j
    s_i, t_j ~ C⁺(0, 1),  s_0 = t_0 = 1       scales; dimensions that are not needed shrink towards 0
    P(y_mn = c) ∝ exp Σ_ij W_cij x̃_mi ã_nj

Each sweep draws all items twice, then all annotators, by elliptical slice sampling (Murray, Adams and MacKay
2010): given one side, the positions on the other are independent. W takes a Hamiltonian step whose masses
are about the curvature of the likelihood; s and t are drawn from their conditionals (Makalic and Schmidt
2016). The loops over labels are compiled (compiled/latent.c).

The answer for an item is the mean over sweeps of the annotators' answers, weighted by their labels. In draws
of the answers, which give the intervals, the weights are drawn too: the annotators are a sample of the
population.

It predicts labels better than clusters do where people and items differ by degrees. It has no clusters to
show, so verdicts on annotators come from HPGM.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dissensus.compiled import Loop
from dissensus.engine import Engine, raise_if_cancelled
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Codes, Vocabulary
from dissensus.models import sampled
from dissensus.models.hpgm.adjustments import floor_unanimous
from dissensus.models.hpgm.sampler import Record
from dissensus.models.sampled import SampledModel
from dissensus.numerics import Array, Mask, row_shares
from dissensus.params import N_JOBS, NONE, SEED, WEIGHT_BY, fitted, flag, integer, setting
from dissensus.tables.arrays import Arrays, Header

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

LEAPFROG_STEPS, TARGET_ACCEPTANCE = 3, 0.8  # of a Hamiltonian step
SLICE_UNIFORMS = 12  # for the level, and for as many angles as a slice tries, less one
ITEM_SLICES = 2  # slices of the items' positions in a sweep
LANES = 8  # numbers that the compiled loops compute together
MAX_POPULATION_ANNOTATORS = 100  # annotators who represent the population in one draw
INTERCEPT_VARIANCE = 4.0  # prior variance of W_c00
MAX_ITEM_DIMENSIONS = 6
NEW_ITEM_SWEEPS, FIRST_NEW_ITEM_SWEEPS = 3, 20  # sweeps over new items for each draw; extra for the first
# Number of draws about items that were not sampled, and the labels of all of them together.
MIN_EXTENDED_DRAWS, MAX_EXTENDED_DRAWS, EXTENDED_DRAW_LABELS = 16, 64, 5_000_000
MIN_ANSWER_SHARE = 1e-12  # floor inside logarithms

latent_weights = Loop(
    "latent_weights", "N b J Q", W="float32 J Q", positions="float32 N b", weights="float32 N Q"
)
latent_positions = Loop(
    "latent_positions", "N E d I P T S", ends="int64 N", other="int32 E", label="int32 E",
    weights="float32 O I P", directions="float32 N d", u="float64 N T", positions="float32 N d",
    base="float32 S", along="float32 S", across="float32 S", e="float32 S",
)  # fmt: skip
latent_gradient = Loop(
    "latent_gradient", "N E M d b I J P lanes one", ends="int64 N", other="int32 E", label="int32 E",
    weights="float32 N I P", x="float32 M d", a="float32 N b", e="float32 P lanes", xs="float32 I lanes",
    owner="float32 I P lanes", sums="float64 I P", gradient="float64 J I P", value="float64 one",
)  # fmt: skip
latent_answers = Loop(
    "latent_answers", "M d G I P R lanes", x="float32 M d", weights="float32 G I P lanes",
    v="float32 R G lanes", e="float32 rows P lanes", answers="float32 R M P",
)  # fmt: skip


@dataclass(frozen=True)
class SideLabels:
    """Labels sorted by one side, the owners: by item, or by annotator."""

    sizes: Ints  # (n,): number of labels of each owner
    ends: Ints  # (n,): labels ends[i − 1] to ends[i] − 1 are those of owner i
    other: NDArray[np.int32]  # (E,): annotator or item on the other side
    label: NDArray[np.int32]  # (E,)

    @classmethod
    def of(cls, owner: Codes | Ints, other: Codes | Ints, label: Codes | Ints, n: int) -> SideLabels:
        """Sort labels by owner."""
        order, sizes = np.argsort(owner, kind="stable"), np.bincount(owner, minlength=n)
        return cls(sizes, np.cumsum(sizes), other[order].astype(np.int32), label[order].astype(np.int32))

    def mean(self, values: Floats) -> Array:
        """Return the mean of the owners' ``values`` (n, …), weighted by their numbers of labels."""
        return np.asarray(np.einsum("n,nd->d", self.sizes, values, dtype=np.float64) / len(self.label))


@dataclass(frozen=True)
class Positions(Record):
    """State of a chain: positions of items and annotators, loadings and scales."""

    x: Floats  # (M, d)
    a: Floats  # (N, b)
    W: Array  # (P, 1 + d, 1 + b)
    s2: Array  # (1 + d,): s²
    t2: Array  # (1 + b,): t²
    step: float  # step size of Hamiltonian moves

    def take(self, annotators: Ints, labels: Ints) -> Self:
        """Select annotators; ``labels`` have no state."""
        return replace(self, a=self.a[annotators])


# ---- one sweep ----------------------------------------------------------------------------------------


def class_weights(W: Array, positions: Floats, side: str) -> Floats:
    """Return (n, 1 + …, P) Σ_j W_cij ã_nj for annotators, or Σ_i W_cij x̃_mi for items."""
    axes = (2, 1, 0) if side == "annotators" else (1, 2, 0)
    terms = np.ascontiguousarray(W.transpose(axes), np.float32)
    weights = np.empty((len(positions), *terms.shape[1:]), np.float32)
    flat = terms.reshape(len(terms), -1), weights.reshape(len(positions), -1)
    latent_weights(W=flat[0], positions=positions, weights=flat[1])
    return weights


def slice_sample(positions: Floats, weights: Floats, data: SideLabels, rng: Generator) -> Floats:
    """Redraw each position by one elliptical slice, given the class ``weights`` of the other side."""
    longest = max(int(data.sizes.max(initial=0)), 1) * weights.shape[2]
    base, along, across, e = np.zeros((4, -(-longest // LANES) * LANES), np.float32)
    drawn = positions.copy()
    latent_positions(
        ends=data.ends, other=data.other, label=data.label, weights=weights,
        directions=rng.standard_normal(positions.shape, dtype=np.float32),
        u=rng.random((len(positions), SLICE_UNIFORMS)), positions=drawn,
        base=base, along=along, across=across, e=e,
    )  # fmt: skip
    return drawn


def log_likelihood(W: Array, x: Floats, a: Floats, people: SideLabels) -> tuple[float, Array]:
    """Return Σ_e log P(y_e), and its gradient with respect to W."""
    weights = class_weights(W, a, "annotators")
    gradient, value = np.empty(W.transpose(2, 1, 0).shape), np.empty(1)
    shapes = weights.shape[2:], weights.shape[1:2], weights.shape[1:]
    e, xs, owner = (np.empty((*shape, LANES), np.float32) for shape in shapes)
    latent_gradient(
        ends=people.ends, other=people.other, label=people.label, weights=weights, x=x, a=a, e=e, xs=xs,
        owner=owner, sums=np.empty(weights.shape[1:]), gradient=gradient, value=value,
    )  # fmt: skip
    return float(value[0]), gradient.transpose(2, 1, 0)


class LoadingPosterior:
    """Posterior of W given all positions: log density, gradient, and the masses of a Hamiltonian step."""

    def __init__(self, state: Positions, items: SideLabels, people: SideLabels) -> None:
        self.x, self.a, self.people = state.x, state.a, people
        self.precision = 1 / np.outer(state.s2, state.t2)
        self.precision[0, 0] = 1 / INTERCEPT_VARIANCE
        # E (1/P)(1 − 1/P) mean x̃_i² mean ã_j², about the curvature at equal probabilities, plus the prior's
        sides = (items, state.x), (people, state.a)
        squares = (np.append(1.0, side.mean(positions**2)) for side, positions in sides)
        P = len(state.W)
        self.mass = self.precision + np.outer(*squares) * len(people.label) * (1 - 1 / P) / P

    def log_density(self, W: Array) -> tuple[float, Array]:
        """Return log P(W | labels, positions) up to a constant, and its gradient."""
        # ∂ log P / ∂W_cij = Σ_e ([y_e = c] − P(c)) x̃_i ã_j − W_cij / (s_i² t_j²)
        value, gradient = log_likelihood(W, self.x, self.a, self.people)
        return value - 0.5 * float((W**2 * self.precision).sum()), gradient - W * self.precision

    def hamiltonian_step(self, W: Array, step: float, rng: Generator) -> tuple[Array, float]:
        """Return W after one Hamiltonian move, and its acceptance probability."""
        momentum = rng.standard_normal(W.shape) * np.sqrt(self.mass)
        before, gradient = self.log_density(W)
        energy = before - 0.5 * float((momentum**2 / self.mass).sum())
        new, step = W, step * rng.uniform(0.8, 1.2)
        for _ in range(LEAPFROG_STEPS):
            momentum = momentum + step / 2 * gradient
            new = new + step * momentum / self.mass
            after, gradient = self.log_density(new)
            momentum = momentum + step / 2 * gradient
        change = after - 0.5 * float((momentum**2 / self.mass).sum()) - energy
        acceptance = float(np.exp(min(change, 0.0))) if np.isfinite(change) else 0.0
        return (new if rng.random() < acceptance else W), acceptance


def draw_scales(squares: Array, n: int, variance: Array, rng: Generator) -> Array:
    """Draw s² of every dimension but the first, given Σ W² / t² over its ``n`` loadings.

    A half-Cauchy s is s² ~ IG(½, 1/ξ), ξ ~ IG(½, 1); both conditionals are inverse gammas.
    """
    xi = (1 + 1 / variance) / rng.gamma(1.0, size=len(variance))
    drawn = (1 / xi + squares / 2) / rng.gamma((n + 1) / 2, size=len(variance))
    return np.append(1.0, np.clip(drawn[1:], 1e-6, 1e6))


def sweep(state: Positions, items: SideLabels, people: SideLabels, rate: float, rng: Generator) -> Positions:
    """Draw everything once; ``rate`` is the adaptation rate of the Hamiltonian step size."""
    x, weights = state.x, class_weights(state.W, state.a, "annotators")
    for _ in range(ITEM_SLICES):
        x = slice_sample(x, weights, items, rng)
    a = slice_sample(state.a, class_weights(state.W, x, "items"), people, rng)
    state = replace(state, x=x, a=a)
    W, acceptance = LoadingPosterior(state, items, people).hamiltonian_step(state.W, state.step, rng)
    P, n_rows, n_columns = W.shape
    s2 = draw_scales((W**2 / state.t2).sum(axis=(0, 2)), P * n_columns, state.s2, rng)
    t2 = draw_scales((W**2 / s2[:, None]).sum(axis=(0, 1)), P * n_rows, state.t2, rng)
    step = state.step * float(np.exp(rate * (acceptance - TARGET_ACCEPTANCE)))
    return Positions(x, a, W, s2, t2, step)


def start(counts: Ints, n_annotators: int, d: int, b: int, rng: Generator) -> Positions:
    """Return the first state: items positioned by their label shares, annotators near the origin."""
    M, P = counts.shape
    shares = row_shares(counts + 0.5)
    logs = np.log(shares) - np.log(shares).mean(axis=1, keepdims=True)
    left, size, right = np.linalg.svd(logs - logs.mean(axis=0), full_matrices=False)
    k = min(d, P - 1, M)
    x = 0.1 * rng.standard_normal((M, d))
    x[:, :k] += left[:, :k] * np.sqrt(M)
    W = 0.1 * rng.standard_normal((P, 1 + d, 1 + b))
    W[:, 0, 0] = logs.mean(axis=0)
    W[:, 1 : 1 + k, 0] = (right[:k] * size[:k, None]).T / np.sqrt(M)
    a = 0.5 * rng.standard_normal((n_annotators, b))
    return Positions(x.astype(np.float32), a.astype(np.float32), W, np.ones(1 + d), np.ones(1 + b), 0.2)


def population_answers(x: Floats, class_weight: Floats, weights: Array) -> Array:
    """Return (R, M, P) Σ_n v_rn P(y | x_m, a_n), given the annotators' class weights and v (R, n)."""
    (n, n_rows, P), R = class_weight.shape, len(weights)
    size = -(-n // LANES) * LANES  # annotators who fill the last group have weight 0
    table, v = np.zeros((size, n_rows, P), np.float32), np.zeros((R, size), np.float32)
    table[:n], v[:, :n] = class_weight, weights
    groups = np.ascontiguousarray(table.reshape(-1, LANES, n_rows, P).transpose(0, 2, 3, 1))
    answers, e = np.empty((R, len(x), P), np.float32), np.empty((1 + R, P, LANES), np.float32)
    latent_answers(x=x, weights=groups, v=v.reshape(R, -1, LANES), e=e, answers=answers)
    return row_shares(answers.astype(np.float64))


def sample_population(weights: Array, rng: Generator) -> tuple[Ints, Array]:
    """Return annotators who represent the population, and their weights: all, or a systematic sample."""
    if (weights > 0).sum() <= MAX_POPULATION_ANNOTATORS:
        chosen = np.flatnonzero(weights > 0)
        return chosen, weights[chosen]
    points = (np.arange(MAX_POPULATION_ANNOTATORS) + rng.random()) / MAX_POPULATION_ANNOTATORS
    chosen = np.minimum(np.searchsorted(np.cumsum(weights), points), len(weights) - 1)
    return chosen, np.full(MAX_POPULATION_ANNOTATORS, 1 / MAX_POPULATION_ANNOTATORS)


def extended_draws(labels: Annotations) -> int:
    """Return the number of draws about items that were not sampled."""
    most = EXTENDED_DRAW_LABELS // max(labels.n_labels, 1)
    return min(max(MIN_EXTENDED_DRAWS, most), MAX_EXTENDED_DRAWS)


# ---- the model ----------------------------------------------------------------------------------------


@dataclass
class PositionChain:
    """Checkpoint of a chain: its state, and sums and draws recorded so far."""

    state: Positions
    answers: Array  # (M, P): sum of the population's answers over the sweeps after burn-in
    trace: Array  # (draws, quantities)
    shares: Floats  # (D, M, P)
    x: Floats  # (D, M, d)
    a: Floats  # (D, N, b)
    W: Floats  # (D, P, 1 + d, 1 + b)


Sides = tuple[Annotations, SideLabels, SideLabels]  # labels, and sorted by item and by annotator


class LatentPositions(SampledModel):
    """Latent positions of items and annotators, sampled by MCMC; often the best predictor of labels."""

    n_item_dimensions: int | None = setting(
        None, integer(1) | NONE, "Dimensions of items; None is the number of classes − 1, between 2 and 6."
    )
    n_annotator_dimensions: int = setting(8, integer(1), "Dimensions of annotators; extra ones shrink to 0.")
    _: KW_ONLY
    n_chains: int = setting(
        8, integer(1), "Number of chains in a round; rounds are added until another run would hardly differ."
    )
    n_sweeps: int = setting(
        100, integer(10), "Sweeps per chain. Two fifths are burn-in; every third of the others is stored."
    )
    weight_by: str = setting("labels", *WEIGHT_BY)
    max_sampled: int = setting(
        60_000, integer(1), "With more labels, a random subset of items is sampled; others follow from it."
    )
    adjust: bool = flag(
        True, "Whether the share of a unanimous answer (five or more labels) is raised to at least 0.6."
    )
    seed: int = setting(0, *SEED)
    n_jobs: int = setting(-1, *N_JOBS)

    _draw_arrays = (*SampledModel._draw_arrays, "x_draws_", "a_draws_", "W_draws_", "crowd_draws_")
    _chains_are = PositionChain, Positions, "positions"
    _needs_annotators = True
    _memory_tables = {"MP": 20, "E": 12}
    quantities_ = ("log-likelihood", "entropy", "share of the first class")

    x_draws_: Floats = fitted("(D, M, d), chain after chain")
    a_draws_: Floats = fitted("(D, N, b)")
    W_draws_: Floats = fitted("(D, P, 1 + d, 1 + b)")
    last_states_: tuple[Positions, ...] = fitted("last state of each chain, if resumable", saved=False)
    learned_rows_: NDArray[np.int32] = fitted("(3, labels): codes of item, annotator, class")
    annotator_weights_: Array = fitted("(N,): weight of each annotator in the population")
    crowd_draws_: Floats = fitted(
        "(D, n, b): annotators of the fit, the population; empty if they are a_draws_"
    )
    crowd_weights_: Array = fitted("(n,): their weights")

    def _fit(
        self,
        labels: Annotations,
        engine: Engine,
        last: Sequence[Positions] = (),
        weights: Array | None = None,
    ) -> None:
        """Fit; ``last`` states resume chains, and ``weights`` (N,) replace those of ``weight_by``."""
        load = labels.annotator_load.astype(float)
        if weights is None:
            weights = load if self.weight_by == "labels" else (load > 0).astype(float)
        self.annotator_weights_ = weights / weights.sum()
        self.crowd_draws_, self.crowd_weights_ = np.zeros((0, 0, 0), np.float32), np.zeros(0)
        self.sampled_ = sampled.sampled_items(labels, self.max_sampled, self.seed)
        is_part, part = len(self.sampled_) < labels.n_items, labels
        if is_part:
            last, part = (), labels.take_items(self.sampled_)
        by_item = SideLabels.of(part.item, part.annotator, part.label, part.n_items)
        by_person = SideLabels.of(part.annotator, part.item, part.label, part.n_annotators)
        chains = self._sample_chains((part, by_item, by_person), self.n_chains, self.n_sweeps, engine, last)
        self.label_distributions_ = row_shares(np.sum([chain.answers for chain in chains], axis=0))
        draws = (np.concatenate([getattr(chain, name) for chain in chains]) for name in "xaW")
        self.x_draws_, self.a_draws_, self.W_draws_ = draws
        self._store_chains(chains, labels.n_items)
        if is_part:
            self._extend_to_unsampled(labels, engine)
        labelled = labels.counts.any(axis=1)
        self.prior_distribution_ = self.label_distributions_[labelled].mean(axis=0)
        self.label_distributions_[~labelled] = self.prior_distribution_
        if self.adjust:
            floor_unanimous(self, labels.counts)
        self.learned_rows_ = np.stack(labels.columns).astype(np.int32)

    def _start_chain(self, data: Sides, state: Positions | None, n_draws: int, number: int) -> PositionChain:
        """Return a chain with room for ``n_draws`` draws; ``state`` None draws a start."""
        labels, _, _ = data
        M, N, P = labels.n_items, labels.n_annotators, labels.n_classes
        if state is None:
            d = self.n_item_dimensions or min(max(P - 1, 2), MAX_ITEM_DIMENSIONS)
            rng = np.random.default_rng([self.seed, number])
            state = start(labels.counts, N, d, self.n_annotator_dimensions, rng)
        n_stored = self._n_stored(M, P, n_draws)
        shapes = (M, P), state.x.shape, state.a.shape, state.W.shape
        draws = (np.zeros((n_stored, *shape), np.float32) for shape in shapes)
        trace = np.zeros((n_draws, len(self.quantities_)))
        return PositionChain(state, np.zeros((M, P)), trace, *draws)

    def _n_stored(self, M: int, P: int, n_draws: int) -> int:
        """Return how many of the draws of a chain are stored."""
        return min(n_draws, max(4, sampled.MAX_SHARE_NUMBERS // (M * P * self.n_chains)))

    def _sweep(self, chain: PositionChain, data: Sides, i: int, n_burn: int, rng: Generator) -> None:
        """Make sweep ``i``; after burn-in, add its state to the sums, and every third to trace and draws."""
        _, by_item, by_person = data
        rate = 0.3 / (1 + i / 50) if i < n_burn else 0.0
        chain.state = state = sweep(chain.state, by_item, by_person, rate, rng)
        if i < n_burn:
            return
        draw, rest = divmod(i - n_burn, sampled.SWEEPS_PER_DRAW)
        answers, drawn = self._answers(state.x, state.a, state.W, rng)
        chain.answers += answers
        if rest:
            return
        logs = np.log(np.maximum(answers, MIN_ANSWER_SHARE))
        fit, entropy = log_likelihood(state.W, state.x, state.a, by_person)[0], -(answers * logs).sum(axis=1)
        chain.trace[draw] = fit / len(by_person.label), entropy.mean(), answers[:, 0].mean()
        row = sampled.stored_row(draw, len(chain.trace), len(chain.shares))
        if row is not None:
            chain.shares[row], chain.x[row], chain.a[row], chain.W[row] = drawn, state.x, state.a, state.W

    def _answers(self, x: Floats, a: Floats, W: Array, rng: Generator) -> Array:
        """Return (2, M, P) answers in one draw: of the population's annotators, and of others like them."""
        crowd_weights = self.crowd_weights_ if len(self.crowd_weights_) else self.annotator_weights_
        chosen, weights = sample_population(crowd_weights, rng)
        # Bayesian bootstrap: weights times exponentials; for a sample of annotators, times gammas
        # of a variance with which Σ var of the weights is that of all annotators, Σ v²
        shape = (weights**2).sum() / (crowd_weights**2).sum()
        drawn = np.maximum(weights * rng.gamma(shape, size=len(weights)), MIN_ANSWER_SHARE)
        v = np.stack([weights, drawn / drawn.sum()])
        return population_answers(x, class_weights(W, a[chosen], "annotators"), v)

    # ---- more labels than are sampled, and resuming ------------------------------------------------------

    def memory_needed(self, labels: Annotations, n_threads: int = 1, features: Any = None) -> int:
        """Estimate the memory of a fit in bytes, with the draws of all chains and of items not sampled."""
        needed = super().memory_needed(labels, n_threads, features)
        M, N, P = labels.n_items, labels.n_annotators, labels.n_classes
        d = self.n_item_dimensions or min(max(P - 1, 2), MAX_ITEM_DIMENSIONS)
        # class weights of both sides in every chain
        b = self.n_annotator_dimensions
        needed += 4 * min(n_threads, self.n_chains) * P * (N * (1 + d) + M * (1 + b))
        # draws of all chains, twice when they are concatenated
        n_stored = self._n_stored(M, P, self.n_sweeps * 3 // 5 // sampled.SWEEPS_PER_DRAW)
        n_draws = n_stored * self.n_chains * sampled.MAX_ROUNDS
        share = min(1.0, self.max_sampled / max(labels.n_labels, 1))
        needed += int(2 * 4 * n_draws * (share * M * (P + d) + N * b))
        return needed + 4 * extended_draws(labels) * M * (d + P) * (labels.n_labels > self.max_sampled)

    def extended_states(self, labels: Annotations) -> list[Positions]:
        """Return the last states for ``labels`` with more items or annotators, whose positions are N(0, I).

        ``labels`` have the items, annotators and classes of the fit, and others.
        """
        codes = labels.item_vocabulary.codes(self.item_vocabulary_)
        people = labels.annotator_vocabulary.codes(self.annotator_vocabulary_)
        states = []
        for number, state in enumerate(self.last_states_):
            rng = np.random.default_rng([self.seed, number, 1 << 22])
            x = rng.standard_normal((labels.n_items, state.x.shape[1]), dtype=np.float32)
            a = rng.standard_normal((labels.n_annotators, state.a.shape[1]), dtype=np.float32)
            x[codes], a[people] = state.x, state.a
            states.append(replace(state, x=x, a=a))
        return states

    def take_annotators(self, codes: NDArray[np.intp], vocabulary: Vocabulary, weights: Array) -> None:
        """Take the annotators of ``codes``, which may repeat, with new ``vocabulary`` and ``weights``."""
        self.a_draws_ = np.ascontiguousarray(self.a_draws_[:, codes])
        self.last_states_ = tuple([replace(state, a=state.a[codes]) for state in self.last_states_])
        first = np.unique(codes, return_index=True)[1]
        self.learned_rows_[1] = first[self.learned_rows_[1]]
        self.annotator_vocabulary_, self.annotator_weights_ = vocabulary, weights

    def _extend_to_unsampled(self, labels: Annotations, engine: Engine) -> None:
        """Answer the items that were not sampled, in batches, given draws about the others."""
        M, N, P = labels.n_items, labels.n_annotators, labels.n_classes
        T = min(extended_draws(labels), len(self.x_draws_))
        rows = sampled.evenly_spaced(T, len(self.x_draws_))
        a, W = self.a_draws_[rows], self.W_draws_[rows].astype(np.float64)
        answers, shares = np.zeros((M, P)), np.zeros((T, M, P), np.float32)
        x = np.zeros((T, M, self.x_draws_.shape[2]), np.float32)
        answers[self.sampled_], shares[:, self.sampled_] = self.label_distributions_, self.share_draws_[rows]
        x[:, self.sampled_] = self.x_draws_[rows]
        parts = sampled.item_batches(labels, np.setdiff1d(np.arange(M), self.sampled_))
        # annotators without sampled labels: N(0, I); all are redrawn when all items have positions
        unseen = labels.take_items(self.sampled_).annotator_load == 0
        rng = np.random.default_rng([self.seed, 1 << 23])
        a[:, unseen] = rng.standard_normal((T, unseen.sum(), a.shape[2]))

        def extend(number: int) -> None:
            items, rng = parts[number], np.random.default_rng([self.seed, 1 << 23, number])
            part = labels.take_items(items)
            data = SideLabels.of(part.item, part.annotator, part.label, len(items))
            drawn = rng.standard_normal((len(items), x.shape[2]), dtype=np.float32)
            for t in range(T):
                raise_if_cancelled()
                weights = class_weights(W[t], a[t], "annotators")
                for _ in range(NEW_ITEM_SWEEPS + FIRST_NEW_ITEM_SWEEPS * (t == 0)):
                    drawn = slice_sample(drawn, weights, data, rng)
                mean, shares[t, items] = self._answers(drawn, a[t], W[t], rng)
                x[t, items] = drawn
                answers[items] += mean / T

        engine.map(extend, range(len(parts)))
        people = SideLabels.of(labels.annotator, labels.item, labels.label, N)
        for t in range(T):
            weights = class_weights(W[t], x[t], "items")
            for _ in range(NEW_ITEM_SWEEPS):
                raise_if_cancelled()
                a[t] = slice_sample(a[t], weights, people, rng)
        self.label_distributions_, self.share_draws_ = answers, shares
        self.x_draws_, self.a_draws_, self.W_draws_ = x, a, self.W_draws_[rows]
        self.last_states_ = ()  # the chains cover only a subset of the items

    # ---- pairs, new items and new annotators ------------------------------------------------------------

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Return the mean over draws of P(y | x_m, a_n); without labels of m or n, the item's shares."""
        labelled = np.append(self.n_labels_, 0)[item] > 0
        sizes = np.bincount(self.learned_rows_[1], minlength=len(self.annotator_weights_))
        labelled &= np.append(np.maximum(sizes, self.annotator_weights_), 0)[annotator] > 0
        distributions = self._item_distributions(item)
        if labelled.any():
            m, n = item[labelled], annotator[labelled]
            total = np.zeros((len(m), distributions.shape[1]))
            for x, a, W in zip(self.x_draws_, self.a_draws_, self.W_draws_, strict=True):
                weights = class_weights(W, a, "annotators")[n]
                logits = weights[:, 0] + np.einsum("eic,ei->ec", weights[:, 1:], x[m])
                logits -= logits.max(axis=1, keepdims=True)
                total += row_shares(np.exp(logits).astype(np.float64))
            distributions[labelled] = row_shares(total)
        return distributions

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Redraw items with new labels; the other items of the fit keep their positions.

        Labels between an item and an annotator of the fit are assumed to be those of the fit.
        """
        items = fitted.item_vocabulary_.codes(new.item_vocabulary)
        people = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        rows = (items[new.item] < 0) | (people[new.annotator] < 0)
        item, annotator, label = (np.asarray(column[rows], np.int64) for column in new.columns)
        N = len(fitted.annotator_weights_)
        person = np.where(people >= 0, people, N + np.arange(len(people)))[annotator]
        touched = np.zeros(new.n_items, dtype=bool)
        touched[item] = True
        # an item that is redrawn also keeps its labels from the fit
        new_code = np.full(len(fitted.n_labels_), -1)
        new_code[items[touched & (items >= 0)]] = np.flatnonzero(touched & (items >= 0))
        old = new_code[fitted.learned_rows_[0]] >= 0
        before = new_code[fitted.learned_rows_[0][old]], *fitted.learned_rows_[1:, old]
        item, person, label = map(np.concatenate, zip((item, person, label), before, strict=True))
        by_item = SideLabels.of(item, person, label, new.n_items)
        by_person = SideLabels.of(person, item, label, N + new.n_annotators)
        if not len(fitted.crowd_weights_):
            self.crowd_draws_, self.crowd_weights_ = fitted.a_draws_, fitted.annotator_weights_
        self._draw_new(fitted, (by_item, by_person), touched, items, people)
        self.annotator_weights_ = np.append(fitted.annotator_weights_, 0.0)[people]
        self.learned_rows_ = np.stack(new.columns).astype(np.int32)
        self.last_states_ = ()  # the chains cover other items and annotators
        if self.adjust:
            floor_unanimous(self, new.counts)

    def _draw_new(
        self, fitted: Self, sides: tuple[SideLabels, SideLabels], touched: Mask, items: Codes, people: Codes
    ) -> None:
        """Draw positions of touched items and new annotators given each draw of the fit, and their answers.

        ``items`` and ``people`` are codes in the fit, −1 for new ones.
        """
        (D, N, b), (by_item, by_person) = fitted.a_draws_.shape, sides
        rng = np.random.default_rng([fitted.seed, 1 << 20])
        x = rng.standard_normal((len(items), fitted.x_draws_.shape[2]), dtype=np.float32)
        fresh = rng.standard_normal((len(people), b), dtype=np.float32)
        self.x_draws_, self.a_draws_ = (np.zeros((D, *part.shape), np.float32) for part in (x, fresh))
        unseen = np.tile(fitted.prior_distribution_, (D, 1, 1))
        self.share_draws_ = np.append(fitted.share_draws_, unseen, 1)[:, items].astype(np.float32)
        self.item_difference_ = np.append(fitted.item_difference_, np.float32(np.nan))[items]
        answers = fitted._item_distributions(items)
        total, unchanged = np.zeros_like(answers), (items >= 0) & ~touched
        for t in range(D):
            raise_if_cancelled()
            W, a = fitted.W_draws_[t].astype(np.float64), np.concatenate([fitted.a_draws_[t], fresh])
            if len(by_item.label):
                for _ in range(NEW_ITEM_SWEEPS + FIRST_NEW_ITEM_SWEEPS * (t == 0)):
                    x = slice_sample(x, class_weights(W, a, "annotators"), by_item, rng)
                    if (people < 0).any():
                        a[N:] = slice_sample(a, class_weights(W, x, "items"), by_person, rng)[N:]
            fresh = a[N:]
            x[unchanged] = fitted.x_draws_[t][items[unchanged]]
            self.x_draws_[t] = x
            self.a_draws_[t] = np.where((people >= 0)[:, None], fitted.a_draws_[t][people], fresh)
            if touched.any():
                mean, self.share_draws_[t, touched] = self._answers(x[touched], self.crowd_draws_[t], W, rng)
                total[touched] += mean
        answers[touched] = row_shares(total[touched])
        self.label_distributions_ = answers

    # ---- saving and loading ---------------------------------------------------------------------------

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        super()._restore(facts, arrays)
        (D, M, d), (_, N, b), P = self.x_draws_.shape, self.a_draws_.shape, len(self.class_vocabulary_)
        weights, crowd = (P, 1 + d, 1 + b), len(self.crowd_weights_)
        shapes = {"x_draws_": (D, len(self.item_vocabulary_), d), "W_draws_": (D, *weights)}
        shapes |= {"a_draws_": (D, len(self.annotator_vocabulary_), b), "annotator_weights_": (N,)}
        shapes |= {"crowd_draws_": (D, crowd, b)} if crowd else {}
        sampled.check_shapes(self, shapes)
        sampled.check_finite(self, "share_draws_", *shapes)
        for state in self.last_states_:
            states = {"x": (M, d), "a": (N, b), "W": weights, "s2": (1 + d,), "t2": (1 + b,), "step": ()}
            sampled.check_shapes(state, states)
