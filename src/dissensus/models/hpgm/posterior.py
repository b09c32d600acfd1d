"""Posterior quantities of HPGM: expectations given a state, and the draws that a fit stores.

In :class:`Expectations` of a state, π and ρ are replaced by their means and item clusters by their
probabilities. A chain sums the answers of its states, and stores some whole draws (:class:`Draws`) from which
labels are predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dissensus.engine import raise_if_cancelled
from dissensus.models.hpgm import sampler
from dissensus.models.hpgm.attributes import annotator_prior
from dissensus.models.hpgm.sampler import MIN_COUNT, MIN_SHARE, Bools, Codes, Counts, Data, GibbsState, Record
from dissensus.models.results import ClusterView
from dissensus.models.sampled import evenly_spaced, stored_row
from dissensus.numerics import Array, row_shares

Singles = NDArray[np.float32]

EXTENSION_SWEEPS, FIRST_EXTENSION_SWEEPS = 2, 8  # over new items and annotators per draw; extra for the first
MAX_COMPARED_ITEMS = 300  # items used to find the most typical draw

# Scalar quantities whose chains are compared; none depends on how clusters are numbered.
QUANTITIES = ("log-likelihood", "entropy", "item clusters", "annotator clusters", "log r", "log s", "λ")


# ---- a state in expectation ----------------------------------------------------------------------------


def item_beliefs(data: Data, counts: Counts, psi: Array, q_phi: Array, w: Codes, from_item: Bools) -> Array:
    """Return (M, K) P(w_m = k | rest of the state), with π and ρ integrated out.

    Averages over draws vary less with these than with the drawn w (Rao–Blackwell).
    """
    beliefs, priors = np.empty((data.M, len(q_phi))), {"psi": psi, "q_phi": q_phi}
    labels = sampler.by_item(data) | {"from_item": from_item, "w": w}
    sampler.item_beliefs(**labels, **priors, **vars(counts), beliefs=beliefs)
    return beliefs


@dataclass(frozen=True, eq=False)
class Expectations:
    """State with π and ρ replaced by their means, and item clusters by their probabilities."""

    state: GibbsState
    counts: Counts
    beliefs: Array  # (M, K): P(w_m = k | rest of the state)
    rho: Array  # (M, P): E ρ_m = (q Φ + counts) / (q + their sum), with Φ averaged over beliefs

    @classmethod
    def of(cls, data: Data, state: GibbsState, counts: Counts | None = None) -> Self:
        """Compute expectations; ``counts`` None are those of the state."""
        w, from_item = state.w, state.from_item
        q_phi = np.maximum(state.q * state.phi, MIN_COUNT)
        counts = counts or Counts.of_state(data, state)
        psi = np.atleast_2d(np.maximum(state.psi, MIN_COUNT))  # (M, K) with a prior for each item
        if state.psi.ndim == 1 and data.hints is not None:
            psi = sampler.hinted_weights(state.psi, data.hints, state.trust, state.phi)
        beliefs = item_beliefs(data, counts, psi, q_phi, w, from_item)
        item_counts = sampler.item_label_counts(data, from_item)
        sizes = state.q + item_counts.sum(axis=1, keepdims=True)
        return cls(state, counts, beliefs, (sampler.ordered_product(beliefs, q_phi) + item_counts) / sizes)

    @cached_property
    def pi(self) -> Array:
        """E π_nk = (r Θ_{k z_n} + n_nk) / (r + n_nk), (N, P, K)."""
        return self.counts.table / self.sizes[:, None]

    @property
    def sizes(self) -> Array:
        """Sizes r + n_nk of π_nk, (N, K)."""
        return self.counts.totals

    def population(self, weights: Array) -> Array:
        """Return (K, P) Σ_n v_n E π_nk."""
        population = np.empty(self.state.phi.shape)
        counts = {"table": self.counts.table, "inverse": self.counts.inverse}
        sampler.mean_population(**counts, v=weights, population=population)
        return population

    def members(self, data: Data) -> Array:
        """Return (L, P, K) mean E π_nk of the annotators of each cluster by labels; Θ without annotators."""
        weights = np.zeros((self.state.theta.shape[1], data.N))
        weights[self.state.z, np.arange(data.N)] = np.bincount(data.annotator, minlength=data.N)
        total = weights.sum(axis=1)[:, None, None]
        sums = np.einsum("ln,npk->lpk", weights, self.pi)
        return np.where(total > 0, sums / np.maximum(total, 1), self.state.theta.transpose(1, 2, 0))

    def items(self, population: Array) -> Array:
        """Return (M, P) Y_m = (1 − λ) Σ_k P(w_m = k) Σ_n v_n E π_nk + λ E ρ_m."""
        lam = self.state.lam
        return np.asarray((1 - lam) * sampler.ordered_product(self.beliefs, population) + lam * self.rho)

    def drawn_population(self, weights: Array, rng: Generator) -> Array:
        """Draw (K, P) Σ_n v_n π_nk, with v and π drawn.

        The annotators are a sample of the population, so their weights are drawn too, by the Bayesian
        bootstrap (Rubin 1981): v_n times an exponential. Given v, the weighted sum of Dirichlets is
        approximated by one Dirichlet of the same mean and variance (summed over classes).
        """
        weights = weights * rng.standard_exponential(len(weights))
        weights = weights / max(weights.sum(), MIN_SHARE)
        mean = self.population(weights)
        # Σ_p Y_p (1 − Y_p) / (c + 1) = Σ_n v_n² Σ_p π_np (1 − π_np) / (r + n_nk + 1)
        dispersion = 1 - (self.pi**2).sum(axis=1)  # (N, K)
        variance = (weights[:, None] ** 2 * dispersion / (self.sizes + 1)).sum(axis=0)
        c = (1 - (mean**2).sum(axis=1)) / np.maximum(variance, MIN_SHARE) - 1
        # 1 − Σ_p Y² ≥ Σ_n v_n (1 − Σ_p π²), so c is at least the smallest r + n_nk, also after rounding
        c = np.clip(c, self.sizes.min(axis=0), 1e9)
        return sampler.draw_dirichlet(np.maximum(mean, MIN_SHARE) * c[:, None], rng)

    def drawn_items(self, data: Data, population: Array, rng: Generator) -> Array:
        """Draw (M, P) Y_m for intervals, from the state's w, a drawn ρ_m and a drawn population."""
        state = self.state
        counts = sampler.item_label_counts(data, state.from_item)
        q_phi = np.maximum(state.q * state.phi, MIN_COUNT)
        rho = sampler.draw_dirichlet(q_phi.take(state.w, axis=0) + counts, rng)
        return np.asarray((1 - state.lam) * population.take(state.w, axis=0) + state.lam * rho)

    def quantities(self, data: Data, answers: Array) -> Array:
        """Return the :data:`QUANTITIES` of a draw whose answers are ``answers`` (M, P)."""
        state = self.state
        by_annotator = (1 - state.lam) * self.pi[data.annotator, data.label, state.w[data.item]]
        logs = np.log(by_annotator + state.lam * self.rho[data.item, data.label])
        entropy = -(answers * np.log(np.maximum(answers, MIN_SHARE))).sum(axis=1).mean()
        clusters = np.count_nonzero(np.bincount(state.w)), np.count_nonzero(np.bincount(state.z))
        return np.array([logs.sum(), entropy, *clusters, np.log(state.r), np.log(state.s), state.lam])


# ---- whole draws ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Draws(Record):
    """Posterior draws, one per row: clusters, and expectations given them."""

    beliefs: Singles  # (T, M, K): P(w_m = k)
    rho: Singles  # (T, M, P): E ρ_m
    matrices: Singles  # (T, N, P, K): E π_nk
    sizes: Singles  # (T, N, K): r + n_nk, the Dirichlet size of π_nk
    population: Singles  # (T, K, P): Σ_n v_n E π_nk
    drawn_population: Singles  # (T, K, P): a draw of Σ_n v_n π_nk
    theta: Singles  # (T, K, L, P)
    phi: Singles  # (T, K, P)
    psi: Singles  # (T, K)
    omega: Singles  # (T, L)
    eta: Singles  # (T, 1 + J): how often attributes decide the cluster of an annotator
    values: Singles  # (T, values, L): distribution of the clusters for each value of an attribute
    members: Singles  # (T, L, P, K): mean answers of each annotator cluster; empty without attributes
    z: NDArray[np.int32]  # (T, N)
    numbers: Array  # (T, 4): r, q, λ, and the trust in hints

    @classmethod
    def empty(cls, n: int, data: Data, K: int, L: int) -> Self:
        """Allocate room for ``n`` draws."""
        M, N, P = data.M, data.N, data.P
        cells = data.attributes
        J, V = (cells.cell.shape[1], cells.n_values) if cells else (0, 0)
        shapes = (M, K), (M, P), (N, P, K), (N, K), (K, P), (K, P), (K, L, P), (K, P), (K,), (L,)
        tables: list[Any] = [np.zeros((n, *shape), np.float32) for shape in (*shapes, (1 + J,), (V, L))]
        tables.append(np.zeros((n, L if J else 0, P, K), np.float32))
        tables += [np.zeros((n, N), np.int32), np.zeros((n, 4))]
        return cls(*tables)

    @classmethod
    def joined(cls, parts: Sequence[Draws]) -> Self:
        """Concatenate the draws of several chains."""
        return cls(*[np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(cls)])

    def __len__(self) -> int:
        return len(self.z)

    def take(self, rows: Any) -> Self:
        """Select draws."""
        return replace(self, **{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    def put(self, t: int, expected: Expectations, population: Array, drawn: Array, data: Data) -> None:
        """Store a draw in row ``t``, with the mean of the population's answers and a draw of them."""
        state = expected.state
        self.beliefs[t], self.rho[t] = expected.beliefs, expected.rho
        self.matrices[t], self.sizes[t] = expected.pi, expected.sizes
        self.population[t], self.drawn_population[t] = population, drawn
        self.theta[t], self.phi[t] = state.theta, state.phi
        self.psi[t], self.omega[t], self.eta[t] = state.psi, state.omega, state.eta
        if self.members.size:
            self.values[t], self.members[t] = state.values, expected.members(data)
        self.z[t], self.numbers[t] = state.z, (state.r, state.q, state.lam, state.trust)

    # ---- predictions ---------------------------------------------------------------------------------

    def pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Return the mean over draws of (1 − λ) Σ_k P(w_m = k) E π_nk + λ E ρ_m; −1 is unseen."""
        total = np.zeros((len(item), self.phi.shape[2]))
        for t in range(len(self)):
            beliefs = np.vstack([self.beliefs[t], self.psi[t]])[item]
            matrices = np.concatenate([self.matrices[t], self.population[t].T[None]])[annotator]
            rho = np.vstack([self.rho[t], self.psi[t] @ self.phi[t]])[item]
            lam = self.numbers[t, 2]
            total += (1 - lam) * np.einsum("epk,ek->ep", matrices, beliefs) + lam * rho
        return row_shares(total)

    def attribute_distributions(self, item: Codes, cell: NDArray[np.intp]) -> Array:
        """Return (items, P) answers of annotators with the attributes of ``cell`` (J,); −1 is unseen.

        (1 − λ) Σ_k P(w_m = k) Σ_l P(z = l | attributes) π̄_lk + λ E ρ_m, with π̄ the mean of the cluster.
        """
        total = np.zeros((len(item), self.phi.shape[2]))
        for t in range(len(self)):
            unseen, lam = (item < 0)[:, None], self.numbers[t, 2]
            beliefs = np.where(unseen, self.psi[t], self.beliefs[t][item])
            rho = np.where(unseen, self.psi[t] @ self.phi[t], self.rho[t][item])
            prior = annotator_prior(self.omega[t], self.eta[t], self.values[t], cell[None])[0]
            population = np.einsum("l,lpk->kp", prior, self.members[t])
            total += (1 - lam) * beliefs @ population + lam * rho
        return row_shares(total)

    def cluster_view(self, annotator_weights: Array) -> ClusterView:
        """Return the non-empty clusters of the most typical draw (Dahl 2006)."""
        # the draw whose co-clustering of a sample of items is nearest to the average
        M = self.beliefs.shape[1]
        chosen = evenly_spaced(min(MAX_COMPARED_ITEMS, M), M)
        cluster = self.beliefs[:, chosen].argmax(axis=2)
        together = cluster[:, :, None] == cluster[:, None, :]
        average = together.mean(axis=0)
        t = int(np.argmin([((draw - average) ** 2).sum() for draw in together]))
        K = np.unique(self.beliefs[t].argmax(axis=1))
        L, z = np.unique(self.z[t], return_inverse=True)
        beliefs, psi = self.beliefs[t][:, K].astype(np.float64), self.psi[t][K].astype(np.float64)
        members, lam = np.eye(len(L))[z], self.numbers[t, 2]
        theta = self.theta[t][np.ix_(K, L)].astype(np.float64)
        w, theta = beliefs / beliefs.sum(axis=1, keepdims=True), theta / theta.sum(axis=2, keepdims=True)
        shares = psi / psi.sum(), members.mean(axis=0), annotator_weights @ members
        population = row_shares((1 - lam) * self.population[t][K] + lam * self.phi[t][K])
        return ClusterView(w, members, theta, *shares, population, annotator_weights=annotator_weights)

    def annotator_draws(self, seed: int) -> tuple[Array, Array]:
        """Return (T, N) information and agreement of the annotators in each draw, with π_nk drawn.

        Information is that of a label about the item's cluster, in nats; agreement is the probability that a
        label equals one of the population. π_nk is a Dirichlet of mean E π_nk and size r + n_nk.
        """
        information, agreement = np.zeros((2, *self.z.shape))
        for t in range(len(self)):
            rng = np.random.default_rng([seed, 1 << 21, t])
            sizes = self.sizes[t].astype(np.float64)
            alpha = np.maximum(self.matrices[t] * sizes[:, None], MIN_SHARE)
            pi = sampler.draw_dirichlet(alpha.transpose(0, 2, 1), rng).transpose(0, 2, 1)
            beliefs, rho, lam = self.beliefs[t].astype(np.float64), self.rho[t], self.numbers[t, 2]
            M = len(beliefs)
            answers = (1 - lam) * sampler.ordered_product(beliefs, self.population[t]) + lam * rho
            by_cluster = np.einsum("mk,mp->kp", beliefs, answers) / M  # P(cluster, the population's label)
            size = beliefs.mean(axis=0)
            cluster_rho = np.einsum("mk,mp->kp", beliefs, rho) / np.maximum(M * size[:, None], MIN_SHARE)
            labels = (1 - lam) * pi + lam * cluster_rho.T  # (N, P, K): P(label | cluster)
            # I(label; cluster) = Σ_k P(k) Σ_p P(p | k) log P(p | k) / P(p)
            ratio = labels / np.maximum(np.einsum("npk,k->np", labels, size)[:, :, None], MIN_SHARE)
            information[t] = np.einsum("npk,npk,k->n", labels, np.log(np.maximum(ratio, MIN_SHARE)), size)
            agreement[t] = np.einsum("npk,kp->n", labels, by_cluster)
        return information, agreement

    def co_clustering(self, annotators: NDArray[np.integer]) -> Array:
        """Return (n, n) P(z_i = z_j)."""
        together = np.zeros((len(annotators), len(annotators)))
        for z in self.z[:, annotators]:
            together += z[:, None] == z
        return together / len(self)

    def extended(self, data: Data, item: Codes, annotator: Codes, *seed: int) -> tuple[Self, Array, Singles]:
        """Extend the draws to new labels, given the parameters of the fit.

        Also return the sum over draws (M, P) of the population's answers, and draws of them (T, M, P).
        ``item`` and ``annotator`` are codes in the fit, −1 for new ones. The clusters of the items and of new
        annotators, and the sources of the labels, are drawn.
        """
        (T, K), (M, N, P) = self.psi.shape, (data.M, data.N, data.P)
        room = Draws.empty(T, data, K, self.omega.shape[1])
        by_code = ("beliefs", "rho", "matrices", "sizes", "z")  # fields by item or annotator
        draws = replace(self, **{name: getattr(room, name) for name in by_code})
        answers, shares = np.zeros((M, P)), np.zeros((T, M, P), np.float32)
        w, z = np.zeros(M, np.int32), np.zeros(N, np.int32)
        from_item = np.zeros(len(data.item), dtype=bool)
        new = annotator < 0
        for t in range(T):
            raise_if_cancelled()
            rng = np.random.default_rng([*seed, 1 << 20, t])
            r, q, lam, trust = self.numbers[t]
            theta, phi = self.theta[t].astype(np.float64), self.phi[t].astype(np.float64)
            q_phi, r_theta = np.maximum(q * phi, MIN_COUNT), np.maximum(r * theta, MIN_COUNT)
            by_class = np.ascontiguousarray(r_theta.transpose(0, 2, 1))
            omega = self.omega[t].astype(np.float64)
            prior_of_z = omega[None]
            if data.attributes is not None:
                values = self.values[t].astype(np.float64)
                prior_of_z = annotator_prior(omega, self.eta[t], values, data.attributes.cell)
            psi = np.maximum(np.vstack([self.beliefs[t], self.psi[t]])[item].astype(np.float64), MIN_COUNT)
            if data.hints is not None:  # beliefs about items of the fit include their hints
                psi = np.where(item[:, None] < 0, sampler.hinted_weights(psi, data.hints, trust, phi), psi)
            # pseudo-counts of the annotators of the fit, and of the clusters of new ones
            pseudo_counts = self.matrices[t].astype(np.float64) * self.sizes[t][:, None]
            prior = np.maximum(np.concatenate([pseudo_counts, r_theta.transpose(1, 2, 0)]), MIN_COUNT)
            sizes = np.concatenate([self.sizes[t].astype(np.float64), np.full((len(omega), K), r)])
            for _ in range(EXTENSION_SWEEPS + FIRST_EXTENSION_SWEEPS * (t == 0)):
                z = sampler.draw_annotator_clusters(data, w, from_item, by_class, prior_of_z, rng)
                z[~new] = self.z[t][annotator[~new]]
                row = np.where(new, len(pseudo_counts) + z, annotator).astype(np.int32)
                counts = Counts.of(data, prior, sizes, row, w, from_item)
                w = sampler.draw_clusters(data, counts, psi, q_phi, w, from_item, rng)
                from_item = sampler.draw_label_sources(data, counts, q_phi, q, lam, w, from_item, rng)
            measures = theta, phi, phi.mean(axis=0), psi, omega
            state = GibbsState(w, z, from_item, *measures, r, 1.0, q, 1.0, 1.0, 1.0, lam)
            expected = Expectations.of(data, state, Counts.of(data, prior, sizes, row, w, from_item))
            answers += expected.items(self.population[t].astype(np.float64))
            shares[t] = expected.drawn_items(data, self.drawn_population[t].astype(np.float64), rng)
            draws.beliefs[t], draws.rho[t], draws.z[t] = expected.beliefs, expected.rho, z
            draws.matrices[t], draws.sizes[t] = expected.pi, expected.sizes
        return draws, answers, shares


# ---- a chain -------------------------------------------------------------------------------------------


@dataclass
class Chain:
    """Checkpoint of a chain: the sampler's state, and sums and draws recorded so far."""

    state: GibbsState
    n_draws: int
    answers: Array  # (M, P): sum of the population's answers over the draws
    prior: Array  # (P,): sum of the answers about an unseen item
    shares: Singles  # (D, M, P): draws of the population's answers, of some of the draws
    trace: Array  # (D, quantities) of these
    draws: Draws

    def record(self, draw: int, data: Data, weights: Array, rng: Generator) -> None:
        """Add the current state to the sums, trace and draws, as draw number ``draw``."""
        state = self.state
        expected = Expectations.of(data, state)
        population = expected.population(weights)
        answers = expected.items(population)
        self.answers += answers
        # about an unseen item: (1 − λ) Σ_k ψ_k Σ_n v_n E π_nk + λ Σ_k ψ_k Φ_k
        self.prior += state.psi @ ((1 - state.lam) * population + state.lam * state.phi)
        if (row := stored_row(draw, self.n_draws, len(self.shares))) is None:
            return
        self.trace[row] = expected.quantities(data, answers)
        drawn = expected.drawn_population(weights, rng)
        self.shares[row] = expected.drawn_items(data, drawn, rng)
        if (row := stored_row(row, len(self.shares), len(self.draws))) is not None:
            self.draws.put(row, expected, population, drawn, data)
