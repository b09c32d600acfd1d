"""Latent positions: HPGM's continuous cousin, with places of items and annotators instead of clusters.

How a label is born:

    x_m ~ N(0, I),  a_n ~ N(0, I)             where item m and annotator n lie; x̃ = (1, x), ã = (1, a)
    W_cij ~ N(0, s_i² t_j²),  W_c00 ~ N(0, 4)  what place i of an item and place j of an annotator do together
    s_i, t_j ~ C⁺(0, 1),  s_0 = t_0 = 1       dimensions that are not needed shrink away
    P(y_mn = c) ∝ exp Σ_ij W_cij x̃_mi ã_nj

Sampled in turns: all items at once, then all annotators at once, by elliptical slices (Murray, Adams and
MacKay 2010), for they are independent of each other given the other side; W by a Hamiltonian step whose
masses are the likelihood's curvature; s and t from their conditionals (Makalic and Schmidt 2016). The answer
about an item is the mean over draws of what annotators at their places, weighted by their labels, say of it.

It foresees labels better than clusters do where people and items differ by degrees, and takes four times as
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
from dissensus.models.sampled import SampledMixin, spaced
from dissensus.numerics import Array, row_shares
from dissensus.params import N_JOBS, NONE, SEED, fitted, flag, integer, setting

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

LEAPS, AIM = 4, 0.8  # steps of a Hamiltonian move, and the share of moves that should be taken
MAX_ASKED = 300  # annotators that stand for the population in a draw
NUMBERS_PER_PIECE = 1 << 20  # worked on at a time
BASE = 4.0  # variance of W_c00
THIN = 3  # sweeps from one draw that is kept to the next
MAX_DIMENSIONS = 6  # of items
MAX_SHARE_NUMBERS = 8_000_000  # numbers of the population's answers that are kept
NEW_SLICES, FIRST_SLICES = 3, 20  # of a new item for each draw, and for the first
MIN_PROBABILITY = 1e-12


@dataclass(frozen=True)
class SideLabels:
    """Labels in the order of one side: the items, or the annotators."""

    owner: Ints  # (E,): whose place is drawn, in rising order
    other: Ints  # (E,): who is on the other side
    label: Ints  # (E,)
    n: int  # places to draw

    @classmethod
    def of(cls, owner: Codes | Ints, other: Codes | Ints, label: Codes | Ints, n: int) -> SideLabels:
        """The labels, put in order."""
        order = np.argsort(owner, kind="stable")
        rising, met, said = (np.asarray(column, np.int64)[order] for column in (owner, other, label))
        return cls(rising, met, said, n)


@dataclass(frozen=True)
class Positions:
    """Places of items and annotators, and what they do together: the state of a chain."""

    x: Floats  # (M, d)
    a: Floats  # (N, b)
    W: Array  # (P, 1 + d, 1 + b)
    s2: Array  # (1 + d,): s²
    t2: Array  # (1 + b,): t²
    step: float  # of Hamiltonian moves


# ---- one sweep ----------------------------------------------------------------------------------------


def with_one(places: Floats) -> Floats:
    """x̃ = (1, x)."""
    return np.concatenate([np.ones((len(places), 1), places.dtype), places], axis=1)


def seen_from(W: Array, places: Floats, side: str) -> Floats:
    """(n, P, 1 + …): Σ_j W_cij ã_nj for annotators, Σ_i W_cij x̃_mi for items: what the other side meets."""
    terms = "cij,nj->nci" if side == "annotators" else "cij,ni->ncj"
    return np.asarray(np.einsum(terms, W.astype(np.float32), with_one(places)))


def log_chances(met: Floats, places: Floats, label: Ints) -> Floats:
    """(E,): log P(y) of labels whose other side is ``met`` (E, P, 1 + d) and whose own place is (E, d)."""
    logits = met[:, :, 0] + np.einsum("ecd,ed->ec", met[:, :, 1:], places)
    logits -= logits.max(axis=1, keepdims=True)
    at_label = logits[np.arange(len(label)), label]
    return np.asarray(at_label - np.log(np.exp(logits).sum(axis=1)))


def sliced(places: Floats, met: Floats, data: SideLabels, rng: Generator) -> Floats:
    """All places drawn anew, each by one elliptical slice; ``met`` (E, P, 1 + d) is the other side."""
    rows, owner = np.arange(len(data.label)), data.owner

    def fits(proposed: Floats) -> Array:
        found = log_chances(met[rows], proposed[owner], data.label[rows])
        return np.asarray(np.bincount(owner, found, data.n), np.float64)

    towards = rng.standard_normal(places.shape, dtype=np.float32)
    level = fits(places) + np.log(1 - rng.random(data.n))
    angle = rng.uniform(0, 2 * np.pi, data.n)
    low, high = angle - 2 * np.pi, angle.copy()
    drawn, open_ones = places.copy(), np.ones(data.n, dtype=bool)
    while open_ones.any():
        # on the ellipse through the place and a draw of the prior, x cos θ + ν sin θ
        turn = angle[:, None]
        proposed = (places * np.cos(turn) + towards * np.sin(turn)).astype(np.float32)
        taken = open_ones & (fits(proposed) > level)
        drawn[taken] = proposed[taken]
        open_ones &= ~taken
        low, high = np.where(angle < 0, angle, low), np.where(angle >= 0, angle, high)
        angle = np.where(open_ones, low + rng.random(data.n) * (high - low), angle)
        still = open_ones[owner]
        rows, owner = rows[still], owner[still]
    return drawn


class Loadings:
    """The posterior of W given all places: its logarithm, its gradient, and the masses of a move."""

    def __init__(self, state: Positions, people: SideLabels) -> None:
        self.people = people
        self.x = with_one(state.x)[people.other]  # (E, 1 + d)
        self.used, self.starts = np.unique(people.owner, return_index=True)
        self.a = with_one(state.a)[self.used]  # (those with labels, 1 + b)
        self.place = np.repeat(np.arange(len(self.used)), np.diff(np.append(self.starts, len(self.x))))
        self.precision = 1 / np.outer(state.s2, state.t2)
        self.precision[0, 0] = 1 / BASE
        # Σ_e x̃_i² ã_j² (1/P)(1 − 1/P), the curvature where all classes are alike, and the prior's
        P = len(state.W)
        squares = np.add.reduceat(self.x.astype(np.float64) ** 2, self.starts, axis=0)
        curvature = np.einsum("ni,nj->ij", squares, self.a.astype(np.float64) ** 2) * (1 - 1 / P) / P
        self.mass = self.precision + curvature

    def climb(self, W: Array) -> tuple[float, Array]:
        """log P(W | labels, places) up to a constant, and its gradient."""
        met = np.einsum("cij,nj->nci", W.astype(np.float32), self.a)[self.place]
        logits = np.einsum("eci,ei->ec", met, self.x)
        logits -= logits.max(axis=1, keepdims=True)
        chances = np.exp(logits)
        total = chances.sum(axis=1)
        every = np.arange(len(total)), self.people.label
        value = float((logits[every] - np.log(total)).sum(dtype=np.float64))
        # ∂ log P / ∂W_cij = Σ_e ([y_e = c] − P(c)) x̃_i ã_j − W_cij / (s_i² t_j²)
        off = -chances / total[:, None]
        off[every] += 1
        by_person = np.add.reduceat(off[:, :, None] * self.x[:, None, :], self.starts, axis=0)
        slope = np.einsum("nci,nj->cij", by_person, self.a).astype(np.float64)
        return value - 0.5 * float((W**2 * self.precision).sum()), slope - W * self.precision

    def moved(self, W: Array, step: float, rng: Generator) -> tuple[Array, float, float]:
        """One Hamiltonian move: where W is then, the chance that it was taken with, log P before it."""
        speed = rng.standard_normal(W.shape) * np.sqrt(self.mass)
        before, slope = self.climb(W)
        energy = before - 0.5 * float((speed**2 / self.mass).sum())
        new, step = W, step * rng.uniform(0.8, 1.2)
        for _ in range(LEAPS):  # leapfrog
            speed = speed + step / 2 * slope
            new = new + step * speed / self.mass
            after, slope = self.climb(new)
            speed = speed + step / 2 * slope
        change = after - 0.5 * float((speed**2 / self.mass).sum()) - energy
        chance = float(np.exp(min(change, 0.0))) if np.isfinite(change) else 0.0
        return (new if rng.random() < chance else W), chance, before


def scales(squares: Array, n: int, variance: Array, rng: Generator) -> Array:
    """s² of every dimension but the first, given Σ W² / t² over its ``n`` loadings.

    A half-Cauchy s is s² ~ IG(½, 1/ξ), ξ ~ IG(½, 1); both conditionals are inverse gammas.
    """
    xi = (1 + 1 / variance) / rng.gamma(1.0, size=len(variance))
    drawn = (1 / xi + squares / 2) / rng.gamma((n + 1) / 2, size=len(variance))
    return np.append(1.0, np.clip(drawn[1:], 1e-6, 1e6))


def sweep(state: Positions, items: SideLabels, people: SideLabels, rate: float, rng: Generator) -> Positions:
    """Everything drawn once; ``rate`` is how far the step of Hamiltonian moves still adapts."""
    x = sliced(state.x, seen_from(state.W, state.a, "annotators")[items.other], items, rng)
    a = sliced(state.a, seen_from(state.W, x, "items")[people.other], people, rng)
    state = replace(state, x=x, a=a)
    W, chance, _ = Loadings(state, people).moved(state.W, state.step, rng)
    P, n_rows, n_columns = W.shape
    s2 = scales((W**2 / state.t2).sum(axis=(0, 2)), P * n_columns, state.s2, rng)
    t2 = scales((W**2 / s2[:, None]).sum(axis=(0, 1)), P * n_rows, state.t2, rng)
    return Positions(x, a, W, s2, t2, state.step * float(np.exp(rate * (chance - AIM))))


def start(counts: Ints, n_annotators: int, d: int, b: int, rng: Generator) -> Positions:
    """Items where the shares of their labels put them, annotators near each other."""
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


def answers_of(x: Floats, met: Floats, weights: Array) -> Array:
    """(M, P): Σ_n v_n P(y | x_m, a_n), with ``met`` (n, P, 1 + d) of the annotators asked."""
    n, P, _ = met.shape
    found, size = np.zeros((len(x), P)), max(1, NUMBERS_PER_PIECE // (n * P))
    for at in range(0, len(x), size):
        part = slice(at, at + size)
        logits = np.einsum("mi,nci->nmc", with_one(x[part]), met)
        logits -= logits.max(axis=2, keepdims=True)
        chances = np.exp(logits)
        chances /= chances.sum(axis=2, keepdims=True)
        found[part] = np.einsum("n,nmc->mc", weights, chances)
    return row_shares(found)


def asked_annotators(weights: Array, rng: Generator) -> tuple[Ints, Array]:
    """The annotators that stand for the population, and their weights: all, or a systematic sample."""
    if (weights > 0).sum() <= MAX_ASKED:
        chosen = np.flatnonzero(weights > 0)
        return chosen, weights[chosen]
    points = (np.arange(MAX_ASKED) + rng.random()) / MAX_ASKED
    chosen = np.minimum(np.searchsorted(np.cumsum(weights), points), len(weights) - 1)
    return chosen, np.full(MAX_ASKED, 1 / MAX_ASKED)


# ---- the model ----------------------------------------------------------------------------------------


@dataclass
class PositionChain:
    """Where a chain is: its state, and what was gathered from the states so far."""

    state: Positions
    answers: Array  # (M, P): sum of the population's answers over the draws kept
    trace: Array  # (draws, quantities)
    shares: Floats  # (D, M, P)
    x: Floats  # (D, M, d)
    a: Floats  # (D, N, b)
    W: Floats  # (D, P, 1 + d, 1 + b)


class LatentPositions(SampledMixin, Model):
    """Items and annotators have places, and answers depend on both; sampled, often the best predictor."""

    n_item_dimensions: int | None = setting(
        None,
        integer(1) | NONE,
        "Dimensions of the items' places; None is one fewer than there are classes, from 2 to 6.",
    )
    n_annotator_dimensions: int = setting(
        8, integer(1), "Dimensions of the annotators' places. Those that are not needed shrink away."
    )
    _: KW_ONLY
    n_chains: int = setting(2, integer(1), "How many chains are sampled; ``rhat_`` says whether they agree.")
    n_sweeps: int = setting(
        200,
        integer(10),
        "Sweeps of each chain. The first two fifths are forgotten, and every third of the others is kept.",
    )
    adjust: bool = flag(
        True,
        "Whether a class that all of five or more labels of an item give gets a share of 0.6 at least; False "
        "gives the posterior mean.",
    )
    seed: int = setting(0, *SEED)
    n_jobs: int = setting(-1, *N_JOBS)

    _drawn = ("share_draws_", "trace_draws_", "x_draws_", "a_draws_", "W_draws_", "learned_rows_")
    _needs_annotators = True
    _memory_tables = {"MP": 20, "EP": 16}
    quantities_ = ("log-likelihood", "entropy", "share of the first class")

    x_draws_: Floats = fitted("(D, M, d), chain after chain")
    a_draws_: Floats = fitted("(D, N, b)")
    W_draws_: Floats = fitted("(D, P, 1 + d, 1 + b)")
    learned_rows_: NDArray[np.int32] = fitted("(3, labels): codes of item, annotator, class")
    annotator_weights_: Array = fitted("(N,): what each annotator counts in the population")

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
        self._judge_chains(np.stack([chain.trace for chain in chains]))
        self.learned_rows_ = np.stack(annotations.columns).astype(np.int32)

    def _sample(self, annotations: Annotations, engine: Engine, number: int) -> PositionChain:
        """Sample one chain from its start; every sweep has a random stream of its own."""
        M, N, P = annotations.n_items, annotations.n_annotators, annotations.n_classes
        items = SideLabels.of(annotations.item, annotations.annotator, annotations.label, M)
        people = SideLabels.of(annotations.annotator, annotations.item, annotations.label, N)
        n_burn = 2 * self.n_sweeps // 5
        name = f"chain-{number}"
        reached = engine.checkpoints.latest(name, PositionChain) if engine.checkpoints else None
        if reached is None:
            b, d = self.n_annotator_dimensions, self.n_item_dimensions or min(max(P - 1, 2), MAX_DIMENSIONS)
            n_draws = -(-(self.n_sweeps - n_burn) // THIN)
            n_kept = min(n_draws, max(4, MAX_SHARE_NUMBERS // (M * P * self.n_chains)))
            shapes = (M, P), (M, d), (N, b), (P, 1 + d, 1 + b)
            draws = (np.zeros((n_kept, *shape), np.float32) for shape in shapes)
            first = start(annotations.counts, N, d, b, np.random.default_rng([self.seed, number]))
            trace = np.zeros((n_draws, len(self.quantities_)))
            reached = Checkpoint(PositionChain(first, np.zeros((M, P)), trace, *draws))
        chain: PositionChain = reached.state
        for i in range(reached.done, self.n_sweeps):
            rng = np.random.default_rng([self.seed, number, i])
            rate = 0.3 / (1 + i / 50) if i < n_burn else 0.0
            chain.state = sweep(chain.state, items, people, rate, rng)
            kept, rest = divmod(i - n_burn, THIN)
            if kept >= 0 and not rest:
                self._gather(chain, kept, people, rng)
            engine.step_done(i + 1, self.n_sweeps, number, self.n_chains)
            if engine.checkpoints:
                stopped = "number of sweeps" if i + 1 == self.n_sweeps else ""
                engine.checkpoints.write(name, Checkpoint(chain, i + 1, stopped=stopped))
        return chain

    def _gather(self, chain: PositionChain, kept: int, people: SideLabels, rng: Generator) -> None:
        """Add what the present state says to what the chain has gathered; it is draw number ``kept``."""
        state = chain.state
        asked, weights = asked_annotators(self.annotator_weights_, rng)
        answers = answers_of(state.x, seen_from(state.W, state.a[asked], "annotators"), weights)
        chain.answers += answers
        logs = np.log(np.maximum(answers, MIN_PROBABILITY))
        met = seen_from(state.W, state.x, "items")[people.other]
        fit = log_chances(met, state.a[people.owner], people.label)
        entropy = -(answers * logs).sum(axis=1).mean()
        chain.trace[kept] = fit.mean(dtype=np.float64), entropy, answers[:, 0].mean()
        row = spaced(kept, len(chain.trace), len(chain.shares))
        if row is not None:
            chain.shares[row], chain.x[row], chain.a[row], chain.W[row] = answers, state.x, state.a, state.W

    # ---- what it knows of pairs, and of new items and annotators ----------------------------------------

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Mean over draws of P(y | x_m, a_n); one that has no label is expected to be as the others are."""
        known = np.append(self.n_labels_, 0)[item] > 0
        known &= np.append(self.annotator_weights_, 0)[annotator] > 0
        total = self._item_distributions(item)
        if known.any():
            m, n = item[known], annotator[known]
            found = np.zeros((len(m), total.shape[1]))
            for x, a, W in zip(self.x_draws_, self.a_draws_, self.W_draws_, strict=True):
                logits = np.einsum("eci,ei->ec", seen_from(W, a, "annotators")[n], with_one(x)[m])
                logits -= logits.max(axis=1, keepdims=True)
                found += row_shares(np.exp(logits).astype(np.float64))
            total[known] = row_shares(found)
        return total

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Items of the fit without new labels keep what is known of them; the others are drawn anew.

        Labels between an item and an annotator of the fit are taken to be those of the fit.
        """
        known = fitted.item_vocabulary_.codes(new.item_vocabulary)
        met = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        rows = (known[new.item] < 0) | (met[new.annotator] < 0)
        item, annotator, label = (np.asarray(column[rows], np.int64) for column in new.columns)
        N = len(fitted.annotator_weights_)
        person = np.where(met >= 0, met, N + np.arange(len(met)))[annotator]
        touched = np.zeros(new.n_items, dtype=bool)
        touched[item] = True
        # what an item had in the fit still counts when it is drawn anew
        back = np.full(len(fitted.n_labels_), -1)
        back[known[touched & (known >= 0)]] = np.flatnonzero(touched & (known >= 0))
        old = back[fitted.learned_rows_[0]] >= 0
        before = back[fitted.learned_rows_[0][old]], *fitted.learned_rows_[1:, old]
        item, person, label = map(np.concatenate, zip((item, person, label), before, strict=True))
        self._draw_new(fitted, SideLabels.of(item, person, label, new.n_items), touched, known, met)
        self.annotator_weights_ = np.append(fitted.annotator_weights_, 0.0)[met]
        self.learned_rows_ = np.stack(new.columns).astype(np.int32)
        if self.adjust:
            floor_unanimous(self, new.counts)

    def _draw_new(
        self, fitted: Self, items: SideLabels, touched: NDArray[np.bool_], known: Codes, met: Codes
    ) -> None:
        """Places of touched items and new annotators, given each draw of the fit; what they answer then."""
        D, N, b = fitted.a_draws_.shape
        people = SideLabels.of(items.other, items.owner, items.label, N + len(met))
        rng = np.random.default_rng([fitted.seed, 1 << 20])
        x = rng.standard_normal((len(known), fitted.x_draws_.shape[2]), dtype=np.float32)
        fresh = rng.standard_normal((len(met), b), dtype=np.float32)
        self.x_draws_, self.a_draws_ = (np.zeros((D, *part.shape), np.float32) for part in (x, fresh))
        unseen = np.tile(fitted.prior_distribution_, (D, 1, 1))
        self.share_draws_ = np.append(fitted.share_draws_, unseen, 1)[:, known].astype(np.float32)
        answers = fitted._item_distributions(known)
        total = np.zeros_like(answers)
        for t in range(D):
            W, everyone = fitted.W_draws_[t].astype(np.float64), np.concatenate([fitted.a_draws_[t], fresh])
            if len(items.label):
                for _ in range(NEW_SLICES + FIRST_SLICES * (t == 0)):
                    x = sliced(x, seen_from(W, everyone, "annotators")[items.other], items, rng)
                    if (met < 0).any():
                        drawn = sliced(everyone, seen_from(W, x, "items")[people.other], people, rng)
                        everyone[N:] = drawn[N:]
            fresh = everyone[N:]
            old = (known >= 0) & ~touched
            x[old] = fitted.x_draws_[t][known[old]]
            self.x_draws_[t] = x
            self.a_draws_[t] = np.where((met >= 0)[:, None], fitted.a_draws_[t][met], fresh)
            if touched.any():
                asked, weights = asked_annotators(fitted.annotator_weights_, rng)
                found = answers_of(x[touched], seen_from(W, everyone[asked], "annotators"), weights)
                self.share_draws_[t, touched] = found
                total[touched] += found
        answers[touched] = row_shares(total[touched])
        self.label_distributions_ = answers
