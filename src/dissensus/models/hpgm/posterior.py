"""What the sampler's states say: of items, annotators and the population; and the draws that a fit keeps.

A state is read in expectation (:class:`Expectations`): π and ρ by their means, items by beliefs. A chain adds
up the answers of its states, and keeps some whole draws (:class:`Draws`) to predict labels by.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dissensus.engine import raise_if_cancelled
from dissensus.labels.vocabulary import Codes
from dissensus.models.hpgm import sampler
from dissensus.models.hpgm.sampler import TINY, Bools, Data, Floats, Ints, Record, State
from dissensus.models.results import ClusterView
from dissensus.models.sampled import spaced
from dissensus.numerics import Array, row_shares

Singles = NDArray[np.float32]

INNER, MORE_INNER = 2, 8  # sweeps over new items and annotators for each draw, and more for the first
COMPARED_ITEMS = 300  # items by which draws are compared to find the typical one

# What chains are compared by; none of it depends on how clusters are numbered.
QUANTITIES = ("log-likelihood", "entropy", "item clusters", "annotator clusters", "log r", "log s", "λ")


# ---- a state in expectation ----------------------------------------------------------------------------


def item_beliefs(
    data: Data, rows: Floats, sizes: Floats, psi: Floats, q_phi: Floats, w: Ints, own: Bools
) -> Floats:
    """(M, K): P(w_m = k | all else in the state), π and ρ integrated out.

    Averages over draws are steadier with these than with the drawn w (Rao and Blackwell).
    """
    K = len(q_phi)
    counts = sampler.annotator_counts(data, w, own, K)
    totals = counts.sum(axis=1)
    logits = np.log(psi) + sampler.own_scores(data, q_phi, own)
    # log (r Θ_{k z_n y} + n_nky) / (r + n_nk), once for all labels of a class that an annotator gave
    chances = np.log((rows + counts) / (sizes + totals)[:, None]).reshape(-1, K)
    starts, first = np.searchsorted(data.item, np.arange(data.M + 1)), 0
    while first < data.M:  # some items at a time, which needs little memory
        last = max(int(np.searchsorted(starts, starts[first] + sampler.PIECE, side="right")) - 1, first + 1)
        e = np.arange(starts[first], starts[last])
        e = e[~own[e]]
        n, cell, here = data.annotator[e], data.cell[e], w[data.item[e]]
        # Σ_n of it, counted without item m itself: in the cluster where m is, a label less
        place, pair = cell * K + here, n * K + here
        rest = rows.take(place) + (counts.take(place) - 1)
        scores = chances.take(cell, axis=0)
        scores[np.arange(len(e)), here] = np.log(rest / (sizes.take(pair) + (totals.take(pair) - 1)))
        logits[first:last] += sampler.adder(data.item[e] - first, last - first) @ scores
        first = last
    return sampler.shares_of(logits)


@dataclass(frozen=True, eq=False)
class Expectations:
    """A state with π and ρ replaced by their means, and items by beliefs."""

    state: State
    beliefs: Floats  # (M, K): P(w_m = k | all else)
    pi: Floats  # (N, P, K): E π_nk = (r Θ_{k z_n} + n_nk) / (r + n_nk)
    sizes: Floats  # (N, K): r + n_nk
    rho: Floats  # (M, P): E ρ_m = (q Φ + own counts) / (q + their number), Φ over the beliefs

    @classmethod
    def of(cls, data: Data, state: State, prior: tuple[Floats, Floats] | None = None) -> Self:
        """Expectations given the labels; ``prior`` (N, P, K), (N, K) are pseudo-counts of π and their sums.

        Without ``prior``, they are r Θ_{k z_n} and r.
        """
        w, own, K = state.w, state.own, len(state.phi)
        q_phi = np.maximum(state.q * state.phi, TINY)
        if prior is None:
            r_theta = np.maximum(state.r * state.theta, TINY)
            prior = sampler.row_priors(r_theta, state.z), np.full((data.N, K), state.r)
        rows, sizes = prior
        psi = state.psi  # (M, K) where items have priors of their own
        if psi.ndim == 1 and data.hints is not None:
            psi = sampler.hinted(psi, data.hints, state.trust, state.phi)
        beliefs = item_beliefs(data, rows, sizes, psi, q_phi, w, own)
        counts = sampler.annotator_counts(data, w, own, K)
        sizes = sizes + counts.sum(axis=1)
        pi = (rows + counts) / sizes[:, None]
        counts = sampler.own_counts(data, own)
        rho = (sampler.product(beliefs, q_phi) + counts) / (state.q + counts.sum(axis=1, keepdims=True))
        return cls(state, beliefs, pi, sizes, rho)

    def population(self, weights: Floats) -> Floats:
        """(K, P): Σ_n v_n E π_nk."""
        return np.asarray(np.einsum("n,npk->kp", weights, self.pi))

    def items(self, population: Floats) -> Floats:
        """(M, P): Y_m = (1 − λ) Σ_k P(w_m = k) Σ_n v_n E π_nk + λ E ρ_m."""
        lam = self.state.lam
        return np.asarray((1 - lam) * sampler.product(self.beliefs, population) + lam * self.rho)

    def drawn_population(self, weights: Floats, rng: Generator) -> Floats:
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
        return sampler.draw_dirichlet(np.maximum(mean, TINY) * c[:, None], rng)

    def drawn_items(self, data: Data, population: Floats, rng: Generator) -> Floats:
        """(M, P): Y_m with everything drawn, for intervals: the state's w, ρ_m, and a drawn population."""
        state = self.state
        own = sampler.own_counts(data, state.own)
        rho = sampler.draw_dirichlet(np.maximum(state.q * state.phi, TINY).take(state.w, axis=0) + own, rng)
        return np.asarray((1 - state.lam) * population.take(state.w, axis=0) + state.lam * rho)

    def quantities(self, data: Data, answers: Floats) -> Floats:
        """The :data:`QUANTITIES` of a draw whose answers about the items are ``answers`` (M, P)."""
        state = self.state
        k = state.w[data.item]
        theirs = (1 - state.lam) * self.pi[data.annotator, data.label, k]
        logs = np.log(theirs + state.lam * self.rho[data.item, data.label])
        entropy = -(answers * np.log(np.maximum(answers, TINY))).sum(axis=1).mean()
        clusters = np.count_nonzero(np.bincount(state.w)), np.count_nonzero(np.bincount(state.z))
        return np.array([logs.sum(), entropy, *clusters, np.log(state.r), np.log(state.s), state.lam])


# ---- whole draws ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AnnotatorDraw:
    """What one draw says of every annotator."""

    information: Array  # (N,): nats that a label of theirs tells about the item's cluster
    agreement: Array  # (N,): the chance that it equals a label of the population


@dataclass(frozen=True)
class Draws(Record):
    """Whole draws of the posterior, one a row: clusters, and what everyone's own ways are expected to be."""

    beliefs: Singles  # (T, M, K): P(w_m = k)
    own: Singles  # (T, M, P): E ρ_m
    matrices: Singles  # (T, N, P, K): E π_nk
    sizes: Singles  # (T, N, K): r + n_nk, how many labels E π_nk stands on, its prior's included
    population: Singles  # (T, K, P): Σ_n v_n E π_nk
    drawn_population: Singles  # (T, K, P): the same with all its uncertainty drawn
    theta: Singles  # (T, K, L, P)
    phi: Singles  # (T, K, P)
    psi: Singles  # (T, K)
    omega: Singles  # (T, L)
    z: NDArray[np.int32]  # (T, N)
    numbers: Array  # (T, 4): r, q, λ, and the trust in hints

    @classmethod
    def empty(cls, n: int, data: Data, K: int, L: int) -> Self:
        """Room for ``n`` draws."""
        M, N, P = data.M, data.N, data.P
        shapes = (M, K), (M, P), (N, P, K), (N, K), (K, P), (K, P), (K, L, P), (K, P), (K,), (L,)
        tables: list[Any] = [np.zeros((n, *shape), np.float32) for shape in shapes]
        tables += [np.zeros((n, N), np.int32), np.zeros((n, 4))]
        return cls(*tables)

    @classmethod
    def joined(cls, parts: Sequence[Draws]) -> Self:
        """The draws of several chains, chain after chain."""
        return cls(*[np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)])

    def __len__(self) -> int:
        return len(self.z)

    def take(self, rows: Any) -> Self:
        """Some of the draws."""
        return replace(self, **{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def put(self, t: int, expected: Expectations, population: Array, drawn: Array) -> None:
        """Write a draw into row ``t``; ``population`` and ``drawn`` are its mean and a draw of it."""
        state = expected.state
        self.beliefs[t], self.own[t] = expected.beliefs, expected.rho
        self.matrices[t], self.sizes[t] = expected.pi, expected.sizes
        self.population[t], self.drawn_population[t] = population, drawn
        self.theta[t], self.phi[t] = state.theta, state.phi
        self.psi[t], self.omega[t] = state.psi, state.omega
        self.z[t], self.numbers[t] = state.z, (state.r, state.q, state.lam, state.trust)

    # ---- what they say -------------------------------------------------------------------------------

    def pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Mean over draws of (1 − λ) Σ_k P(w_m = k) E π_nk + λ E ρ_m; code −1: never seen."""
        total = np.zeros((len(item), self.phi.shape[2]))
        for t in range(len(self)):
            beliefs = np.vstack([self.beliefs[t], self.psi[t]])[item]
            matrices = np.concatenate([self.matrices[t], self.population[t].T[None]])[annotator]
            own = np.vstack([self.own[t], self.psi[t] @ self.phi[t]])[item]
            lam = self.numbers[t, 2]
            total += (1 - lam) * np.einsum("epk,ek->ep", matrices, beliefs) + lam * own
        return row_shares(total)

    def cluster_view(self, annotator_weights: Array) -> ClusterView:
        """The clusters of the draw that is most like all draws (Dahl 2006), those that are not empty."""
        # the draw whose items are together most as they are on average, judged by some of the items
        M = self.beliefs.shape[1]
        chosen = np.linspace(0, M - 1, min(COMPARED_ITEMS, M)).astype(int)
        cluster = self.beliefs[:, chosen].argmax(axis=2)
        together = cluster[:, :, None] == cluster[:, None, :]
        usual = together.mean(axis=0)
        t = int(np.argmin([((draw - usual) ** 2).sum() for draw in together]))
        K = np.unique(self.beliefs[t].argmax(axis=1))
        L, z = np.unique(self.z[t], return_inverse=True)
        beliefs, psi = self.beliefs[t][:, K].astype(np.float64), self.psi[t][K].astype(np.float64)
        members, lam = np.eye(len(L))[z], self.numbers[t, 2]
        theta = self.theta[t][np.ix_(K, L)].astype(np.float64)
        w, theta = beliefs / beliefs.sum(axis=1, keepdims=True), theta / theta.sum(axis=2, keepdims=True)
        shares = psi / psi.sum(), members.mean(axis=0), annotator_weights @ members
        population = row_shares((1 - lam) * self.population[t][K] + lam * self.phi[t][K])
        return ClusterView(w, members, theta, *shares, population, annotator_weights=annotator_weights)

    def annotator_draws(self, seed: int) -> Iterator[AnnotatorDraw]:
        """What each draw says of annotators, one after the other, with all the uncertainty of their ways.

        A whole draw keeps E π_nk and the r + n_nk labels that it stands on; π_nk is a Dirichlet of these.
        """
        for t in range(len(self)):
            rng = np.random.default_rng([seed, 1 << 21, t])
            sizes = self.sizes[t].astype(np.float64)
            pi = sampler.draw_dirichlet(np.maximum(self.matrices[t] * sizes[:, None], TINY), rng, axis=1)
            beliefs, own, lam = self.beliefs[t].astype(np.float64), self.own[t], self.numbers[t, 2]
            M = len(beliefs)
            answers = (1 - lam) * sampler.product(beliefs, self.population[t]) + lam * own
            by_cluster = np.einsum("mk,mp->kp", beliefs, answers) / M  # P(cluster, the population's label)
            size = beliefs.mean(axis=0)
            rho = np.einsum("mk,mp->kp", beliefs, own) / np.maximum(M * size[:, None], TINY)
            theirs = (1 - lam) * pi + lam * rho.T  # (N, P, K): P(label | cluster)
            alone = np.einsum("npk,k->np", theirs, size)
            # I(label; cluster) = Σ_k P(k) Σ_p P(p | k) log P(p | k) / P(p)
            ratio = theirs / np.maximum(alone[:, :, None], TINY)
            information = np.einsum("npk,npk,k->n", theirs, np.log(np.maximum(ratio, TINY)), size)
            agreement = np.einsum("npk,kp->n", theirs, by_cluster)
            yield AnnotatorDraw(information, agreement)

    def co_clustering(self, what: str, codes: NDArray[np.integer]) -> Array:
        """(n, n): P(i and j are in one cluster), of some ``"items"`` or ``"annotators"``."""
        # (T, n, K): chances of each cluster in each draw
        shares = self.beliefs[:, codes] if what == "items" else np.eye(self.omega.shape[1])[self.z[:, codes]]
        together = np.zeros((len(codes), len(codes)))
        for draw in shares.astype(np.float64):
            together += draw @ draw.T
        together /= len(shares)
        np.fill_diagonal(together, 1.0)
        return together

    def extended(self, data: Data, item: Codes, annotator: Codes, *seed: int) -> tuple[Self, Array, Singles]:
        """The draws carried over to new labels.

        Returned with the sum over draws (M, P) of the population's answers, and with them drawn (T, M, P).
        ``item`` and ``annotator`` are codes of the fit, −1 where it has not met them. What the fit learned
        stays; the clusters and own labels of the items, and the clusters of the new annotators, are drawn
        given it.
        """
        (T, K), (M, N, P) = self.psi.shape, (data.M, data.N, data.P)
        room = Draws.empty(T, data, K, self.omega.shape[1])
        by_code = ("beliefs", "own", "matrices", "sizes", "z")  # what there is for each item or annotator
        draws = replace(self, **{name: getattr(room, name) for name in by_code})
        answers, shares = np.zeros((M, P)), np.zeros((T, M, P), np.float32)
        w, z = np.zeros(M, np.int64), np.zeros(N, np.int64)
        own = np.zeros(len(data.item), dtype=bool)
        new = annotator < 0
        for t in range(T):
            raise_if_cancelled()
            rng = np.random.default_rng([*seed, 1 << 20, t])
            r, q, lam, trust = self.numbers[t]
            theta, phi = self.theta[t].astype(np.float64), self.phi[t].astype(np.float64)
            q_phi, r_theta = np.maximum(q * phi, TINY), np.maximum(r * theta, TINY)
            omega = np.maximum(self.omega[t].astype(np.float64), TINY)
            psi = np.maximum(np.vstack([self.beliefs[t], self.psi[t]])[item].astype(np.float64), TINY)
            if data.hints is not None:  # items of the fit have had theirs
                psi = np.where(item[:, None] < 0, sampler.hinted(psi, data.hints, trust, phi), psi)
            z[~new] = self.z[t][annotator[~new]]
            sizes = np.vstack([self.sizes[t], np.full(K, r)])[annotator].astype(np.float64)
            for _ in range(INNER + MORE_INNER * (t == 0)):
                counts = sampler.annotator_counts(data, w, own, K)
                z[new] = sampler.draw_annotator_clusters(counts[new], r_theta, omega, rng)
                rows = sampler.row_priors(r_theta, z)
                theirs = self.matrices[t].astype(np.float64) * self.sizes[t][:, None]
                rows[~new] = np.maximum(theirs[annotator[~new]], TINY)
                w = sampler.draw_clusters(data, rows, sizes, psi, q_phi, w, own, rng)
                own = sampler.draw_own(data, rows, sizes, q_phi, lam, w, own, rng)
            state = State(
                w, z, own, theta, phi, phi.mean(axis=0), psi, omega,
                r, 1.0, q, 1.0, 1.0, 1.0, lam,
            )  # fmt: skip
            expected = Expectations.of(data, state, (rows, sizes))
            answers += expected.items(self.population[t].astype(np.float64))
            shares[t] = expected.drawn_items(data, self.drawn_population[t].astype(np.float64), rng)
            draws.beliefs[t], draws.own[t], draws.z[t] = expected.beliefs, expected.rho, z
            draws.matrices[t], draws.sizes[t] = expected.pi, expected.sizes
        return draws, answers, shares


# ---- a chain -------------------------------------------------------------------------------------------


@dataclass
class Chain:
    """Where a chain is: the sampler's state, and what was gathered from the states so far."""

    state: State
    answers: Array  # (M, P): sum of the population's answers over the draws kept
    prior: Array  # (P,): the same about an item never seen
    shares: Singles  # (D, M, P): the population's answers, all their uncertainty drawn
    trace: Array  # (D, quantities)
    draws: Draws

    def gather(self, kept: int, data: Data, weights: Array, rng: Generator) -> None:
        """Add what the present state says; it is draw number ``kept``."""
        state, n_kept = self.state, len(self.trace)
        expected = Expectations.of(data, state)
        population = expected.population(weights)
        answers = expected.items(population)
        self.answers += answers
        # about an item never seen: (1 − λ) Σ_k ψ_k Σ_n v_n E π_nk + λ Σ_k ψ_k Φ_k
        self.prior += state.psi @ ((1 - state.lam) * population + state.lam * state.phi)
        self.trace[kept] = expected.quantities(data, answers)
        drawn = expected.drawn_population(weights, rng)
        row = spaced(kept, n_kept, len(self.shares))
        if row is not None:
            self.shares[row] = expected.drawn_items(data, drawn, rng)
        row = spaced(kept, n_kept, len(self.draws))
        if row is not None:
            self.draws.put(row, expected, population, drawn)
