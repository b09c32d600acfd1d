"""Latent positions: a continuous relative of HPGM, with positions instead of clusters.

How a label is generated:

    x_m ~ N(0, I),  a_n ~ N(0, I)             positions of item m and annotator n; x̃ = (1, x), ã = (1, a)
    W_cij ~ N(0, s_i² t_j²),  W_c00 ~ N(0, 4)  loading of class c on dimensions i and j
    s_i, t_j ~ C⁺(0, 1),  s_0 = t_0 = 1       scales; dimensions that are not needed shrink towards 0
    P(y_mn = c) ∝ exp Σ_ij W_cij x̃_mi ã_nj

Each sweep draws all items at once, then all annotators at once, by elliptical slice sampling (Murray, Adams
and MacKay 2010): given one side, the positions on the other are independent. W takes a Hamiltonian step whose
masses are the curvature of the likelihood; s and t are drawn from their conditionals (Makalic and Schmidt
2016). The answer for an item is the mean over draws of the annotators' answers, weighted by their labels.

It predicts labels better than clusters do where people and items differ by degrees, and takes four times as
long. It has no clusters to show, so verdicts on annotators come from HPGM.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dissensus.engine import Checkpoint, Engine
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Codes
from dissensus.models.base import Model
from dissensus.models.hpgm.adjustments import floor_unanimous
from dissensus.models.sampled import MAX_SHARE_NUMBERS, SWEEPS_PER_DRAW, SampledMixin, stored_row
from dissensus.numerics import Array, row_shares
from dissensus.params import N_JOBS, NONE, SEED, fitted, flag, integer, setting

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

LEAPFROG_STEPS, TARGET_ACCEPTANCE = 4, 0.8  # of a Hamiltonian step
MAX_POPULATION_ANNOTATORS = 300  # annotators who represent the population in one draw
NUMBERS_PER_PASS = 1 << 20  # array elements computed at a time
INTERCEPT_VARIANCE = 4.0  # prior variance of W_c00
MAX_ITEM_DIMENSIONS = 6
NEW_ITEM_SWEEPS, FIRST_NEW_ITEM_SWEEPS = 3, 20  # sweeps over new items for each draw; extra for the first
MIN_ANSWER_SHARE = 1e-12  # floor inside logarithms


@dataclass(frozen=True)
class SideLabels:
    """Labels sorted by one side: by item, or by annotator."""

    owner: Ints  # (E,): item or annotator whose position is drawn, in ascending order
    other: Ints  # (E,): annotator or item on the other side
    label: Ints  # (E,)
    n: int  # number of positions to draw

    @classmethod
    def of(cls, owner: Codes | Ints, other: Codes | Ints, label: Codes | Ints, n: int) -> SideLabels:
        """Sort labels by owner."""
        order = np.argsort(owner, kind="stable")
        owner, other, label = (np.asarray(column, np.int64)[order] for column in (owner, other, label))
        return cls(owner, other, label, n)


@dataclass(frozen=True)
class Positions:
    """State of a chain: positions of items and annotators, loadings and scales."""

    x: Floats  # (M, d)
    a: Floats  # (N, b)
    W: Array  # (P, 1 + d, 1 + b)
    s2: Array  # (1 + d,): s²
    t2: Array  # (1 + b,): t²
    step: float  # step size of Hamiltonian moves


# ---- one sweep ----------------------------------------------------------------------------------------


def with_intercept(positions: Floats) -> Floats:
    """Return x̃ = (1, x)."""
    return np.concatenate([np.ones((len(positions), 1), positions.dtype), positions], axis=1)


def class_weights(W: Array, positions: Floats, side: str) -> Floats:
    """Return (n, P, 1 + …) Σ_j W_cij ã_nj for annotators, or Σ_i W_cij x̃_mi for items."""
    terms = "cij,nj->nci" if side == "annotators" else "cij,ni->ncj"
    return np.asarray(np.einsum(terms, W.astype(np.float32), with_intercept(positions)))


def label_log_probabilities(weights: Floats, positions: Floats, label: Ints) -> Floats:
    """Return (E,) log P(y), given the other side's ``weights`` (E, P, 1 + d) and ``positions`` (E, d)."""
    logits = weights[:, :, 0] + np.einsum("ecd,ed->ec", weights[:, :, 1:], positions)
    logits -= logits.max(axis=1, keepdims=True)
    return np.asarray(logits[np.arange(len(label)), label] - np.log(np.exp(logits).sum(axis=1)))


def slice_sample(positions: Floats, weights: Floats, data: SideLabels, rng: Generator) -> Floats:
    """Redraw each position by one elliptical slice, given the other side's ``weights`` (E, P, 1 + d)."""
    rows, owner = np.arange(len(data.label)), data.owner

    def log_likelihood(proposed: Floats) -> Array:
        by_label = label_log_probabilities(weights[rows], proposed[owner], data.label[rows])
        return np.asarray(np.bincount(owner, by_label, data.n), np.float64)

    direction = rng.standard_normal(positions.shape, dtype=np.float32)
    level = log_likelihood(positions) + np.log(1 - rng.random(data.n))
    angle = rng.uniform(0, 2 * np.pi, data.n)
    low, high = angle - 2 * np.pi, angle.copy()
    drawn, pending = positions.copy(), np.ones(data.n, dtype=bool)
    while pending.any():
        # on the ellipse through the position and a draw of the prior, x cos θ + ν sin θ
        theta = angle[:, None]
        proposed = (positions * np.cos(theta) + direction * np.sin(theta)).astype(np.float32)
        accepted = pending & (log_likelihood(proposed) > level)
        drawn[accepted] = proposed[accepted]
        pending &= ~accepted
        low, high = np.where(angle < 0, angle, low), np.where(angle >= 0, angle, high)
        angle = np.where(pending, low + rng.random(data.n) * (high - low), angle)
        remaining = pending[owner]
        rows, owner = rows[remaining], owner[remaining]
    return drawn


class LoadingPosterior:
    """Posterior of W given all positions: log density, gradient, and the masses of a Hamiltonian step."""

    def __init__(self, state: Positions, people: SideLabels) -> None:
        self.people = people
        self.x = with_intercept(state.x)[people.other]  # (E, 1 + d)
        used, self.starts = np.unique(people.owner, return_index=True)
        self.a = with_intercept(state.a)[used]  # (annotators with labels, 1 + b)
        self.row = np.repeat(np.arange(len(used)), np.diff(np.append(self.starts, len(self.x))))
        self.precision = 1 / np.outer(state.s2, state.t2)
        self.precision[0, 0] = 1 / INTERCEPT_VARIANCE
        # Σ_e x̃_i² ã_j² (1/P)(1 − 1/P), the curvature at equal class probabilities, plus the prior's
        P = len(state.W)
        squares = np.add.reduceat(self.x.astype(np.float64) ** 2, self.starts, axis=0)
        curvature = np.einsum("ni,nj->ij", squares, self.a.astype(np.float64) ** 2) * (1 - 1 / P) / P
        self.mass = self.precision + curvature

    def log_density(self, W: Array) -> tuple[float, Array]:
        """Return log P(W | labels, positions) up to a constant, and its gradient."""
        weights = np.einsum("cij,nj->nci", W.astype(np.float32), self.a)[self.row]
        logits = np.einsum("eci,ei->ec", weights, self.x)
        logits -= logits.max(axis=1, keepdims=True)
        exponentials = np.exp(logits)
        total = exponentials.sum(axis=1)
        at_label = np.arange(len(total)), self.people.label
        value = float((logits[at_label] - np.log(total)).sum(dtype=np.float64))
        # ∂ log P / ∂W_cij = Σ_e ([y_e = c] − P(c)) x̃_i ã_j − W_cij / (s_i² t_j²)
        residual = -exponentials / total[:, None]
        residual[at_label] += 1
        by_annotator = np.add.reduceat(residual[:, :, None] * self.x[:, None, :], self.starts, axis=0)
        gradient = np.einsum("nci,nj->cij", by_annotator, self.a).astype(np.float64)
        return value - 0.5 * float((W**2 * self.precision).sum()), gradient - W * self.precision

    def hamiltonian_step(self, W: Array, step: float, rng: Generator) -> tuple[Array, float, float]:
        """Return W after one Hamiltonian move, its acceptance probability, and log P before it."""
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
        return (new if rng.random() < acceptance else W), acceptance, before


def draw_scales(squares: Array, n: int, variance: Array, rng: Generator) -> Array:
    """Draw s² of every dimension but the first, given Σ W² / t² over its ``n`` loadings.

    A half-Cauchy s is s² ~ IG(½, 1/ξ), ξ ~ IG(½, 1); both conditionals are inverse gammas.
    """
    xi = (1 + 1 / variance) / rng.gamma(1.0, size=len(variance))
    drawn = (1 / xi + squares / 2) / rng.gamma((n + 1) / 2, size=len(variance))
    return np.append(1.0, np.clip(drawn[1:], 1e-6, 1e6))


def sweep(state: Positions, items: SideLabels, people: SideLabels, rate: float, rng: Generator) -> Positions:
    """Draw everything once; ``rate`` is the adaptation rate of the Hamiltonian step size."""
    x = slice_sample(state.x, class_weights(state.W, state.a, "annotators")[items.other], items, rng)
    a = slice_sample(state.a, class_weights(state.W, x, "items")[people.other], people, rng)
    state = replace(state, x=x, a=a)
    W, acceptance, _ = LoadingPosterior(state, people).hamiltonian_step(state.W, state.step, rng)
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
    """Return (M, P) Σ_n v_n P(y | x_m, a_n), with ``class_weight`` (n, P, 1 + d) of the annotators."""
    n, P, _ = class_weight.shape
    answers, size = np.zeros((len(x), P)), max(1, NUMBERS_PER_PASS // (n * P))
    for first in range(0, len(x), size):
        rows = slice(first, first + size)
        logits = np.einsum("mi,nci->nmc", with_intercept(x[rows]), class_weight)
        logits -= logits.max(axis=2, keepdims=True)
        probabilities = np.exp(logits)
        probabilities /= probabilities.sum(axis=2, keepdims=True)
        answers[rows] = np.einsum("n,nmc->mc", weights, probabilities)
    return row_shares(answers)


def sample_population(weights: Array, rng: Generator) -> tuple[Ints, Array]:
    """Return annotators who represent the population, and their weights: all, or a systematic sample."""
    if (weights > 0).sum() <= MAX_POPULATION_ANNOTATORS:
        chosen = np.flatnonzero(weights > 0)
        return chosen, weights[chosen]
    points = (np.arange(MAX_POPULATION_ANNOTATORS) + rng.random()) / MAX_POPULATION_ANNOTATORS
    chosen = np.minimum(np.searchsorted(np.cumsum(weights), points), len(weights) - 1)
    return chosen, np.full(MAX_POPULATION_ANNOTATORS, 1 / MAX_POPULATION_ANNOTATORS)


# ---- the model ----------------------------------------------------------------------------------------


@dataclass
class PositionChain:
    """Checkpoint of a chain: its state, and sums and draws recorded so far."""

    state: Positions
    answers: Array  # (M, P): sum of the population's answers over the draws
    trace: Array  # (draws, quantities)
    shares: Floats  # (D, M, P)
    x: Floats  # (D, M, d)
    a: Floats  # (D, N, b)
    W: Floats  # (D, P, 1 + d, 1 + b)


class LatentPositions(SampledMixin, Model):
    """Latent positions of items and annotators, sampled by MCMC; often the best predictor of labels."""

    n_item_dimensions: int | None = setting(
        None, integer(1) | NONE, "Dimensions of items; None is the number of classes − 1, between 2 and 6."
    )
    n_annotator_dimensions: int = setting(8, integer(1), "Dimensions of annotators; extra ones shrink to 0.")
    _: KW_ONLY
    n_chains: int = setting(2, integer(1), "Number of chains; ``rhat_`` says whether they agree.")
    n_sweeps: int = setting(
        200, integer(10), "Sweeps per chain. Two fifths are burn-in; every third of the others is stored."
    )
    adjust: bool = flag(
        True, "Whether the share of a unanimous answer (five or more labels) is raised to at least 0.6."
    )
    seed: int = setting(0, *SEED)
    n_jobs: int = setting(-1, *N_JOBS)

    _draw_arrays = ("share_draws_", "trace_draws_", "x_draws_", "a_draws_", "W_draws_", "learned_rows_")
    _needs_annotators = True
    _memory_tables = {"MP": 20, "EP": 16}
    quantities_ = ("log-likelihood", "entropy", "share of the first class")

    x_draws_: Floats = fitted("(D, M, d), chain after chain")
    a_draws_: Floats = fitted("(D, N, b)")
    W_draws_: Floats = fitted("(D, P, 1 + d, 1 + b)")
    learned_rows_: NDArray[np.int32] = fitted("(3, labels): codes of item, annotator, class")
    annotator_weights_: Array = fitted("(N,): weight of each annotator in the population")

    def _fit(self, annotations: Annotations, engine: Engine) -> None:
        load = annotations.annotator_load
        self.annotator_weights_ = load / load.sum()
        chains = engine.map(partial(self._sample, annotations, engine), range(self.n_chains))
        n_draws = self.n_chains * len(chains[0].trace)
        self.label_distributions_ = np.sum([chain.answers for chain in chains], axis=0) / n_draws
        self.share_draws_ = np.concatenate([chain.shares for chain in chains])
        draws = (np.concatenate([getattr(chain, name) for chain in chains]) for name in "xaW")
        self.x_draws_, self.a_draws_, self.W_draws_ = draws
        labelled = annotations.counts.any(axis=1)
        self.prior_distribution_ = self.label_distributions_[labelled].mean(axis=0)
        self.label_distributions_[~labelled] = self.prior_distribution_
        if self.adjust:
            floor_unanimous(self, annotations.counts)
        self._diagnose(np.stack([chain.trace for chain in chains]))
        self.learned_rows_ = np.stack(annotations.columns).astype(np.int32)

    def _sample(self, annotations: Annotations, engine: Engine, number: int) -> PositionChain:
        """Sample one chain; every sweep has its own random stream, so that a chain can be resumed."""
        M, N, P = annotations.n_items, annotations.n_annotators, annotations.n_classes
        items = SideLabels.of(annotations.item, annotations.annotator, annotations.label, M)
        people = SideLabels.of(annotations.annotator, annotations.item, annotations.label, N)
        n_burn, name = 2 * self.n_sweeps // 5, f"chain-{number}"
        checkpoint = engine.checkpoints.latest(name, PositionChain) if engine.checkpoints else None
        if checkpoint is None:
            b = self.n_annotator_dimensions
            d = self.n_item_dimensions or min(max(P - 1, 2), MAX_ITEM_DIMENSIONS)
            n_draws = -(-(self.n_sweeps - n_burn) // SWEEPS_PER_DRAW)
            n_stored = min(n_draws, max(4, MAX_SHARE_NUMBERS // (M * P * self.n_chains)))
            shapes = (M, P), (M, d), (N, b), (P, 1 + d, 1 + b)
            draws = (np.zeros((n_stored, *shape), np.float32) for shape in shapes)
            first = start(annotations.counts, N, d, b, np.random.default_rng([self.seed, number]))
            trace = np.zeros((n_draws, len(self.quantities_)))
            checkpoint = Checkpoint(PositionChain(first, np.zeros((M, P)), trace, *draws))
        chain: PositionChain = checkpoint.state
        for i in range(checkpoint.done, self.n_sweeps):
            rng = np.random.default_rng([self.seed, number, i])
            rate = 0.3 / (1 + i / 50) if i < n_burn else 0.0
            chain.state = sweep(chain.state, items, people, rate, rng)
            draw, rest = divmod(i - n_burn, SWEEPS_PER_DRAW)
            if draw >= 0 and not rest:
                self._record(chain, draw, people, rng)
            engine.step_done(i + 1, self.n_sweeps, number, self.n_chains)
            if engine.checkpoints:
                stopped = "number of sweeps" if i + 1 == self.n_sweeps else ""
                engine.checkpoints.write(name, Checkpoint(chain, i + 1, stopped=stopped))
        return chain

    def _record(self, chain: PositionChain, draw: int, people: SideLabels, rng: Generator) -> None:
        """Add the current state to the chain's sums, trace and draws, as draw number ``draw``."""
        state = chain.state
        chosen, weights = sample_population(self.annotator_weights_, rng)
        answers = population_answers(state.x, class_weights(state.W, state.a[chosen], "annotators"), weights)
        chain.answers += answers
        logs = np.log(np.maximum(answers, MIN_ANSWER_SHARE))
        by_item = class_weights(state.W, state.x, "items")[people.other]
        fit = label_log_probabilities(by_item, state.a[people.owner], people.label)
        entropy = -(answers * logs).sum(axis=1).mean()
        chain.trace[draw] = fit.mean(dtype=np.float64), entropy, answers[:, 0].mean()
        row = stored_row(draw, len(chain.trace), len(chain.shares))
        if row is not None:
            chain.shares[row], chain.x[row], chain.a[row], chain.W[row] = answers, state.x, state.a, state.W

    # ---- pairs, new items and new annotators ------------------------------------------------------------

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Return the mean over draws of P(y | x_m, a_n); without labels of m or n, the item's shares."""
        labelled = np.append(self.n_labels_, 0)[item] > 0
        labelled &= np.append(self.annotator_weights_, 0)[annotator] > 0
        distributions = self._item_distributions(item)
        if labelled.any():
            m, n = item[labelled], annotator[labelled]
            total = np.zeros((len(m), distributions.shape[1]))
            for x, a, W in zip(self.x_draws_, self.a_draws_, self.W_draws_, strict=True):
                weights = class_weights(W, a, "annotators")[n]
                logits = np.einsum("eci,ei->ec", weights, with_intercept(x)[m])
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
        self._draw_new(fitted, SideLabels.of(item, person, label, new.n_items), touched, items, people)
        self.annotator_weights_ = np.append(fitted.annotator_weights_, 0.0)[people]
        self.learned_rows_ = np.stack(new.columns).astype(np.int32)
        if self.adjust:
            floor_unanimous(self, new.counts)

    def _draw_new(
        self, fitted: Self, labels: SideLabels, touched: NDArray[np.bool_], items: Codes, people: Codes
    ) -> None:
        """Draw positions of touched items and new annotators given each draw of the fit, and their answers.

        ``items`` and ``people`` are codes in the fit, −1 for new ones.
        """
        D, N, b = fitted.a_draws_.shape
        by_person = SideLabels.of(labels.other, labels.owner, labels.label, N + len(people))
        rng = np.random.default_rng([fitted.seed, 1 << 20])
        x = rng.standard_normal((len(items), fitted.x_draws_.shape[2]), dtype=np.float32)
        fresh = rng.standard_normal((len(people), b), dtype=np.float32)
        self.x_draws_, self.a_draws_ = (np.zeros((D, *part.shape), np.float32) for part in (x, fresh))
        unseen = np.tile(fitted.prior_distribution_, (D, 1, 1))
        self.share_draws_ = np.append(fitted.share_draws_, unseen, 1)[:, items].astype(np.float32)
        answers = fitted._item_distributions(items)
        total, unchanged = np.zeros_like(answers), (items >= 0) & ~touched
        for t in range(D):
            W, a = fitted.W_draws_[t].astype(np.float64), np.concatenate([fitted.a_draws_[t], fresh])
            if len(labels.label):
                for _ in range(NEW_ITEM_SWEEPS + FIRST_NEW_ITEM_SWEEPS * (t == 0)):
                    x = slice_sample(x, class_weights(W, a, "annotators")[labels.other], labels, rng)
                    if (people < 0).any():
                        by_item = class_weights(W, x, "items")[by_person.other]
                        a[N:] = slice_sample(a, by_item, by_person, rng)[N:]
            fresh = a[N:]
            x[unchanged] = fitted.x_draws_[t][items[unchanged]]
            self.x_draws_[t] = x
            self.a_draws_[t] = np.where((people >= 0)[:, None], fitted.a_draws_[t][people], fresh)
            if touched.any():
                chosen, weights = sample_population(fitted.annotator_weights_, rng)
                drawn = population_answers(x[touched], class_weights(W, a[chosen], "annotators"), weights)
                self.share_draws_[t, touched] = drawn
                total[touched] += drawn
        answers[touched] = row_shares(total[touched])
        self.label_distributions_ = answers
