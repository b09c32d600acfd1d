"""What a state of the sampler says: of items, of annotators, of the population; and whether chains agree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dissensus.models.hpgm.sampler import (
    PIECE,
    TINY,
    Bools,
    Data,
    Floats,
    Ints,
    State,
    adder,
    annotator_counts,
    draw_dirichlet,
    hinted,
    own_counts,
    own_scores,
    product,
    row_priors,
    shares_of,
    starts_of,
)

# ---- what a state says --------------------------------------------------------------------------------


def item_beliefs(
    data: Data, rows: Floats, sizes: Floats, psi: Floats, q_phi: Floats, w: Ints, own: Bools
) -> Floats:
    """(M, K): P(w_m = k | all else in the state), π and ρ integrated out.

    Averages over draws are steadier with these than with the drawn w (Rao and Blackwell).
    """
    K = len(q_phi)
    counts = annotator_counts(data, w, own, K)
    totals = counts.sum(axis=1)
    logits = np.log(psi) + own_scores(data, q_phi, own)
    # log (r Θ_{k z_n y} + n_nky) / (r + n_nk), once for all labels of a class that an annotator gave
    chances = np.log((rows + counts) / (sizes + totals)[:, None]).reshape(-1, K)
    for first, last, labels in pieces(data):
        e = labels[~own[labels]]
        n, cell, here = data.annotator[e], data.cell[e], w[data.item[e]]
        # Σ_n of it, counted without item m itself: in the cluster where m is, a label less
        place, pair = cell * K + here, n * K + here
        rest = rows.take(place) + (counts.take(place) - 1)
        scores = chances.take(cell, axis=0)
        scores[np.arange(len(e)), here] = np.log(rest / (sizes.take(pair) + (totals.take(pair) - 1)))
        logits[first:last] += adder(data.item[e] - first, last - first) @ scores
    return shares_of(logits)


def pieces(data: Data) -> Iterator[tuple[int, int, Ints]]:
    """First item, last (not included) and labels of runs of items: work done by runs needs little memory."""
    starts = starts_of(data.item, data.M)
    first = 0
    while first < data.M:
        last = max(int(np.searchsorted(starts, starts[first] + PIECE, side="right")) - 1, first + 1)
        yield first, last, np.arange(starts[first], starts[last])
        first = last


@dataclass(frozen=True, eq=False)
class View:
    """A state in expectation: π and ρ by their means, items by beliefs. What all answers are made of."""

    state: State
    beliefs: Floats  # (M, K): P(w_m = k | all else)
    pi: Floats  # (N, P, K): E π_nk = (r Θ_{k z_n} + n_nk) / (r + n_nk)
    sizes: Floats  # (N, K): r + n_nk
    rho: Floats  # (M, P): E ρ_m = (q Φ + own counts) / (q + their number), Φ over the beliefs

    @classmethod
    def of(cls, data: Data, state: State) -> View:
        """Look at the training labels' state."""
        q_phi, r_theta = np.maximum(state.q * state.phi, TINY), np.maximum(state.r * state.theta, TINY)
        rows, sizes = row_priors(r_theta, state.z), np.full((data.N, state.K), state.r)
        return cls.seen(data, state, rows, sizes, q_phi)

    @classmethod
    def seen(cls, data: Data, state: State, rows: Floats, sizes: Floats, q_phi: Floats) -> View:
        """The same for any prior pseudo-counts of π."""
        w, own, K = state.w, state.own, state.K
        psi = state.psi if state.psi.ndim == 2 else hinted(state.psi, data.hints, state.trust, state.phi)
        beliefs = item_beliefs(data, rows, sizes, psi, q_phi, w, own)
        counts = annotator_counts(data, w, own, K)
        sizes = sizes + counts.sum(axis=1)
        pi = (rows + counts) / sizes[:, None]
        counts = own_counts(data, own)
        rho = (product(beliefs, q_phi) + counts) / (state.q + counts.sum(axis=1, keepdims=True))
        return cls(state, beliefs, pi, sizes, rho)

    def population(self, weights: Floats) -> Floats:
        """(K, P): Σ_n v_n E π_nk."""
        return np.asarray(np.einsum("n,npk->kp", weights, self.pi))

    def items(self, population: Floats) -> Floats:
        """(M, P): Y_m = (1 − λ) Σ_k P(w_m = k) Σ_n v_n E π_nk + λ E ρ_m."""
        lam = self.state.lam
        return np.asarray((1 - lam) * product(self.beliefs, population) + lam * self.rho)

    def unseen(self, population: Floats) -> Floats:
        """(P,): the same about an item never seen: (1 − λ) Σ_k ψ_k Σ_n v_n E π_nk + λ Σ_k ψ_k Φ_k."""
        state = self.state
        return np.asarray(state.psi @ ((1 - state.lam) * population + state.lam * state.phi))

    def drawn_population(self, weights: Floats, rng: np.random.Generator) -> Floats:
        """(K, P): Σ_n v_n π_nk with v and π drawn.

        The annotators are a sample of the population, so their weights are drawn too: the Bayesian bootstrap
        (Rubin 1981), v_n times an exponential. Given v it is a weighted sum of Dirichlets, for which stands
        one Dirichlet of the same mean and variance (summed over classes).
        """
        weights = weights * rng.standard_exponential(len(weights))
        weights = weights / max(weights.sum(), TINY)
        mean = self.population(weights)
        # Σ_p Y_p (1 − Y_p) / (c + 1) = Σ_n v_n² Σ_p π_np (1 − π_np) / (r + n_nk + 1)
        alone = 1 - (self.pi**2).sum(axis=1)  # (N, K)
        variance = (weights[:, None] ** 2 * alone / (self.sizes + 1)).sum(axis=0)
        c = (1 - (mean**2).sum(axis=1)) / np.maximum(variance, TINY) - 1
        # as 1 − Σ_p Y² ≥ Σ_n v_n (1 − Σ_p π²), c is at least the least r + n_nk; rounding must keep it so
        c = np.clip(c, self.sizes.min(axis=0), 1e9)
        return draw_dirichlet(np.maximum(mean, TINY) * c[:, None], rng)

    def drawn_items(self, own: Ints, population: Floats, rng: np.random.Generator) -> Floats:
        """(M, P): Y_m with everything drawn, for intervals: the state's w, ρ_m, and a drawn population."""
        state = self.state
        rho = draw_dirichlet(np.maximum(state.q * state.phi, TINY).take(state.w, axis=0) + own, rng)
        return np.asarray((1 - state.lam) * population.take(state.w, axis=0) + state.lam * rho)


# ---- what a draw amounts to ----------------------------------------------------------------------------


# What chains are compared by; none of it depends on how clusters are numbered.
QUANTITIES = ("log-likelihood", "entropy", "item clusters", "annotator clusters", "log r", "log s", "λ")


def traced(data: Data, view: View, answers: Floats) -> Floats:
    """The :data:`QUANTITIES` of a draw."""
    state = view.state
    k = state.w[data.item]
    theirs = (1 - state.lam) * view.pi[data.annotator, data.label, k]
    logs = np.log(theirs + state.lam * view.rho[data.item, data.label])
    entropy = -(answers * np.log(np.maximum(answers, TINY))).sum(axis=1).mean()
    clusters = np.count_nonzero(np.bincount(state.w)), np.count_nonzero(np.bincount(state.z))
    return np.array([logs.sum(), entropy, *clusters, np.log(state.r), np.log(state.s), state.lam])


def annotator_weights(load: Ints, weight_by: str) -> Floats:
    """(N,): how annotators count in the population: by their labels, or all the same; in sum 1."""
    loads = load if weight_by == "labels" else (load > 0).astype(np.int64)
    return np.asarray(loads / max(loads.sum(), 1))
