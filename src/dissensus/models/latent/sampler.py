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

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dissensus.labels.vocabulary import Codes
from dissensus.numerics import Array, row_shares

Floats = NDArray[np.float32]
Ints = NDArray[np.int64]

LEAPS, AIM = 4, 0.8  # steps of a Hamiltonian move, and the share of moves that should be taken
HEARD = 300  # annotators that stand for the population in a draw
PIECE = 1 << 20  # numbers worked on at a time
BASE = 4.0  # variance of W_c00


@dataclass(frozen=True)
class Data:
    """Labels in the order of one side: the items, or the annotators."""

    owner: Ints  # (E,): whose place is drawn, in rising order
    other: Ints  # (E,): who is on the other side
    label: Ints  # (E,)
    n: int  # places to draw

    @classmethod
    def of(cls, owner: Codes | Ints, other: Codes | Ints, label: Codes | Ints, n: int) -> Data:
        """The labels, put in order."""
        order = np.argsort(owner, kind="stable")
        rising, met, said = (np.asarray(column, np.int64)[order] for column in (owner, other, label))
        return cls(rising, met, said, n)


@dataclass(frozen=True)
class State:
    """Where a chain is."""

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


def sliced(places: Floats, met: Floats, data: Data, rng: np.random.Generator) -> Floats:
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

    def __init__(self, state: State, people: Data) -> None:
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

    def moved(self, W: Array, step: float, rng: np.random.Generator) -> tuple[Array, float, float]:
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


def scales(squares: Array, n: int, variance: Array, rng: np.random.Generator) -> Array:
    """s² of every dimension but the first, given Σ W² / t² over its ``n`` loadings.

    A half-Cauchy s is s² ~ IG(½, 1/ξ), ξ ~ IG(½, 1); both conditionals are inverse gammas.
    """
    xi = (1 + 1 / variance) / rng.gamma(1.0, size=len(variance))
    drawn = (1 / xi + squares / 2) / rng.gamma((n + 1) / 2, size=len(variance))
    return np.append(1.0, np.clip(drawn[1:], 1e-6, 1e6))


def sweep(state: State, items: Data, people: Data, rate: float, rng: np.random.Generator) -> State:
    """Everything drawn once; ``rate`` is how far the step of Hamiltonian moves still adapts."""
    x = sliced(state.x, seen_from(state.W, state.a, "annotators")[items.other], items, rng)
    a = sliced(state.a, seen_from(state.W, x, "items")[people.other], people, rng)
    state = replace(state, x=x, a=a)
    W, chance, _ = Loadings(state, people).moved(state.W, state.step, rng)
    P, n_rows, n_columns = W.shape
    s2 = scales((W**2 / state.t2).sum(axis=(0, 2)), P * n_columns, state.s2, rng)
    t2 = scales((W**2 / s2[:, None]).sum(axis=(0, 1)), P * n_rows, state.t2, rng)
    return State(x, a, W, s2, t2, state.step * float(np.exp(rate * (chance - AIM))))


def start(counts: Ints, n_annotators: int, d: int, b: int, rng: np.random.Generator) -> State:
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
    return State(x.astype(np.float32), a.astype(np.float32), W, np.ones(1 + d), np.ones(1 + b), 0.2)


def answers_of(x: Floats, met: Floats, weights: Array) -> Array:
    """(M, P): Σ_n v_n P(y | x_m, a_n), with ``met`` (n, P, 1 + d) of the annotators asked."""
    n, P, _ = met.shape
    found, size = np.zeros((len(x), P)), max(1, PIECE // (n * P))
    for at in range(0, len(x), size):
        part = slice(at, at + size)
        logits = np.einsum("mi,nci->nmc", with_one(x[part]), met)
        logits -= logits.max(axis=2, keepdims=True)
        chances = np.exp(logits)
        chances /= chances.sum(axis=2, keepdims=True)
        found[part] = np.einsum("n,nmc->mc", weights, chances)
    return row_shares(found)


def heard(weights: Array, rng: np.random.Generator) -> tuple[Ints, Array]:
    """The annotators that stand for the population, and their weights: all, or a systematic sample."""
    if (weights > 0).sum() <= HEARD:
        chosen = np.flatnonzero(weights > 0)
        return chosen, weights[chosen]
    points = (np.arange(HEARD) + rng.random()) / HEARD
    chosen = np.minimum(np.searchsorted(np.cumsum(weights), points), len(weights) - 1)
    return chosen, np.full(HEARD, 1 / HEARD)
