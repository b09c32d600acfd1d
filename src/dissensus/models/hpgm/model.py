"""HPGM: the paper's graphical model made fully Bayesian, with the uncertainty of every answer.

How a label is born, and how the posterior is sampled, is told in sampler.py. In short: items and annotators
have clusters, as in PGM; each annotator has distributions of their own around those of their cluster, each
item its own distribution around that of its cluster; how much of either, and how many clusters there are, is
learned. FMM, smoothed counts, Dawid–Skene's matrices, CBCC and PGM are limits of it.

The answer about an item is the mean of the population's answer over the draws of several chains; its interval
is what the draws have between two quantiles. Numbers of clusters are upper bounds: clusters that are not
needed stay empty, and nothing has to be searched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.data.annotations import Annotations
from dissensus.data.vocabulary import Codes
from dissensus.execution.memory import Needs
from dissensus.execution.run import Run
from dissensus.models.base import Intervals, Model
from dissensus.models.clusters import ClusterView
from dissensus.models.hpgm.sampler import (
    FEW_GROUPS,
    QUANTITIES,
    TINY,
    Data,
    State,
    View,
    annotator_counts,
    annotator_summary,
    annotator_weights,
    draw_annotator_clusters,
    draw_clusters,
    draw_own,
    effective_size,
    own_counts,
    row_priors,
    split_rhat,
    start,
    sweep,
    traced,
)
from dissensus.numerics import Array, one_hot_rows, row_shares
from dissensus.params import NONE, SEED, choice, integer

Floats = NDArray[np.float32]

LONG, SHORT, MANY_LABELS = 300, 150, 10_000  # sweeps of a chain on few labels, and on as many or more
THIN = 3  # sweeps from one draw that is kept to the next
MOST_SHARES = 8_000_000  # numbers of the population's answers that a fit keeps, over all draws
MOST_WHOLE = 12_000_000  # numbers that it keeps of whole draws, to foresee labels by
LEAST_WHOLE, WHOLE = 8, 48  # whole draws that are kept: at least, and usually
INNER, MORE_INNER = 2, 8  # sweeps over new items and annotators for each draw, and more for the first
SETTLED = 1.1  # split-R̂ up to which chains are said to agree


@dataclass(frozen=True)
class Draws:
    """Whole draws of the posterior, one a row: clusters, and what everyone's own ways are expected to be."""

    beliefs: Floats  # (T, M, K): P(w_m = k)
    own: Floats  # (T, M, P): E ρ_m
    matrices: Floats  # (T, N, P, K): E π_nk
    sizes: Floats  # (T, N, K): r + n_nk, how many labels E π_nk stands on, its prior's included
    population: Floats  # (T, K, P): Σ_n v_n E π_nk
    drawn_population: Floats  # (T, K, P): the same with all its uncertainty drawn
    theta: Floats  # (T, K, L, P)
    phi: Floats  # (T, K, P)
    psi: Floats  # (T, K)
    omega: Floats  # (T, L)
    z: NDArray[np.int32]  # (T, N)
    numbers: Array  # (T, 3): r, q, λ
    annotators: Floats  # (T, N, 2): information (nats) and agreement of each annotator

    @classmethod
    def empty(cls, n: int, data: Data, K: int, L: int) -> Draws:
        """Room for ``n`` draws."""
        M, N, P = data.M, data.N, data.P
        shapes = [(M, K), (M, P), (N, P, K), (N, K), (K, P), (K, P), (K, L, P), (K, P), (K,), (L,)]
        tables: list[Any] = [np.zeros((n, *shape), np.float32) for shape in shapes]
        rest: list[Any] = [np.zeros((n, N), np.int32), np.zeros((n, 3)), np.zeros((n, N, 2), np.float32)]
        return cls(*tables, *rest)

    def put(self, t: int, data: Data, view: View, weights: Array, drawn: Array) -> None:
        """Write a draw into row ``t``; ``drawn`` is a draw of the population."""
        state = view.state
        self.beliefs[t], self.own[t] = view.beliefs, view.rho
        self.matrices[t], self.sizes[t] = view.pi, view.sizes
        self.population[t] = view.population(weights)
        self.drawn_population[t] = drawn
        self.theta[t], self.phi[t] = state.theta, state.phi
        self.psi[t], self.omega[t] = state.psi, state.omega
        self.z[t], self.numbers[t] = state.z, (state.r, state.q, state.lam)
        information, agreement, _ = annotator_summary(data, view, weights)
        self.annotators[t] = np.column_stack([information, agreement])


@dataclass(frozen=True)
class Chain:
    """Where a chain is: the sampler's state, and what was gathered so far (written in place)."""

    state: State
    answers: Array  # (M, P): sum of the population's answers over the draws kept
    prior: Array  # (P,): the same about an item never seen
    shares: Floats  # (D, M, P): the population's answers, all their uncertainty drawn
    trace: Array  # (D, quantities)
    draws: Draws


class HPGM(Model):
    """Clusters of items and annotators, everyone with ways of their own, sampled by Gibbs.

    ``n_item_clusters`` and ``n_annotator_clusters`` are upper bounds. Each of ``n_chains`` chains makes
    ``n_sweeps`` sweeps (None: 300, or 150 from 10,000 labels on), forgets the first two fifths of them and
    keeps every third of the others. ``weight_by`` says how annotators count in the population: by their
    labels, or all the same. ``rhat_`` and ``effective_draws_`` tell whether the chains agree; ``quantities_``
    names what they are of.
    """

    _rules = {
        "n_item_clusters": integer(1),
        "n_annotator_clusters": integer(1),
        "n_chains": integer(1),
        "n_sweeps": integer(10) | NONE,
        "weight_by": choice("labels", "annotators"),
        "seed": SEED,
        "n_jobs": integer(-1),
    }
    _draw_arrays = tuple(f"{name}_draws_" for name in Draws.__dataclass_fields__)
    _arrays = ("share_draws_", *_draw_arrays, "annotator_weights_", "rhat_", "effective_draws_")
    _needs_annotators = True
    _sizes_are_bounds = True

    share_draws_: Floats  # (D, M, P): the population's answers
    annotator_weights_: Array  # (N,): what each annotator counts in the population
    rhat_: Array  # split-R̂ of each of ``quantities_``
    effective_draws_: Array  # how many independent draws of each there are
    quantities_ = QUANTITIES

    def __init__(
        self,
        n_item_clusters: int = 20,
        n_annotator_clusters: int = 20,
        *,
        n_chains: int = 4,
        n_sweeps: int | None = None,
        weight_by: str = "labels",
        seed: int = 0,
        n_jobs: int = -1,
    ) -> None:
        self.n_item_clusters = n_item_clusters
        self.n_annotator_clusters = n_annotator_clusters
        self.n_chains = n_chains
        self.n_sweeps = n_sweeps
        self.weight_by = weight_by
        self.seed = seed
        self.n_jobs = n_jobs

    # ---- fitting --------------------------------------------------------------------------------------

    def _needs(self, annotations: Annotations, itemsize: int, **given: Any) -> Needs:
        del itemsize, given  # there are no messages
        (M, N, P), E = _shape(annotations), annotations.n_labels
        K, L = min(self.n_item_clusters, M), min(self.n_annotator_clusters, N)
        n_shares, n_whole = self._sizes(self._sweeps(E)[2], M, N, P, K, L)
        kept = 4 * self.n_chains * (n_shares * M * P + n_whole * _whole_numbers(M, N, P, K, L))
        # the labels thrice, what is kept twice while it is put together; tables of items and of annotators
        return Needs(96 * E + 2 * kept, 0, 0, 60 * E + 8 * (6 * M * (K + P) + 6 * N * P * K))

    def _sizes(self, n_kept: int, M: int, N: int, P: int, K: int, L: int) -> tuple[int, int]:
        """How many answers about the items, and how many whole draws, a chain of so many draws keeps."""
        n_shares = min(n_kept, max(-(-LEAST_WHOLE // self.n_chains), MOST_SHARES // (M * P * self.n_chains)))
        room = MOST_WHOLE // (_whole_numbers(M, N, P, K, L) * self.n_chains)
        least, usual = -(-LEAST_WHOLE // self.n_chains), -(-WHOLE // self.n_chains)
        return n_shares, min(n_kept, max(least, min(usual, room)))

    def _sweeps(self, n_labels: int) -> tuple[int, int, int]:
        """How many sweeps a chain makes, forgets, and keeps a draw of."""
        n_sweeps = self.n_sweeps or (LONG if n_labels < MANY_LABELS else SHORT)
        n_burn = 2 * n_sweeps // 5
        return n_sweeps, n_burn, -(-(n_sweeps - n_burn) // THIN)

    def _fit(self, annotations: Annotations, run: Run) -> None:
        data = Data.of(annotations.item, annotations.annotator, annotations.label, *_shape(annotations))
        weights = annotator_weights(data, self.weight_by)
        chains = run.map(partial(self._sample, data, weights, run), range(self.n_chains))
        n_kept = sum(len(chain.trace) for chain in chains)
        self.label_distributions_ = np.sum([chain.answers for chain in chains], axis=0) / n_kept
        self.prior_distribution_ = np.sum([chain.prior for chain in chains], axis=0) / n_kept
        self.share_draws_ = np.concatenate([chain.shares for chain in chains])
        for name, attribute in zip(Draws.__dataclass_fields__, self._draw_arrays, strict=True):
            setattr(self, attribute, np.concatenate([getattr(chain.draws, name) for chain in chains]))
        self.annotator_weights_ = weights
        by_quantity = np.stack([chain.trace for chain in chains]).transpose(2, 0, 1)
        self.rhat_ = np.array([split_rhat(values) for values in by_quantity])
        self.effective_draws_ = np.array([effective_size(values) for values in by_quantity])
        self.trace_ = by_quantity[0].ravel()
        self.stopped_ = "agreement of chains" if self.rhat_.max() <= SETTLED else "number of sweeps"

    def _sample(self, data: Data, weights: Array, run: Run, number: int) -> Chain:
        """One chain, from its start to its last sweep; sweep i draws from a stream of its own."""
        K, L = min(self.n_item_clusters, data.M), min(self.n_annotator_clusters, data.N)
        n_sweeps, n_burn, n_kept = self._sweeps(len(data.item))
        n_shares, n_whole = self._sizes(n_kept, data.M, data.N, data.P, K, L)
        ascent = run.ascent(Chain, f"chain-{number}")
        chain = ascent.resumed
        if chain is None:
            # Chains start from few groups of items or from all K in turn, with annotators alike or spread:
            # agreement of chains that began so differently means something.
            rng = np.random.default_rng([self.seed, number])
            groups, spread = K if number % 2 else FEW_GROUPS, number // 2 % 2 == 1
            chain = Chain(
                start(data, K, L, rng, n_groups=groups, spread=spread),
                np.zeros((data.M, data.P)),
                np.zeros(data.P),
                np.zeros((n_shares, data.M, data.P), np.float32),
                np.zeros((n_kept, len(QUANTITIES))),
                Draws.empty(n_whole, data, K, L),
            )
        for i in ascent.iterations(n_sweeps, tol=-1.0):
            rng = np.random.default_rng([self.seed, number, i])
            chain = replace(chain, state=sweep(chain.state, data, rng))
            kept, rest = divmod(i - n_burn, THIN)
            if i >= n_burn and not rest:
                self._gather(chain, kept, n_kept, data, weights, rng)
            chain = ascent.advance(chain, 0.0, chain)
        return chain

    def _gather(
        self, chain: Chain, kept: int, n_kept: int, data: Data, weights: Array, rng: np.random.Generator
    ) -> None:
        """Add what the present state says to what the chain has gathered (in place)."""
        view = View.of(data, chain.state)
        population = view.population(weights)
        answers = view.items(population)
        chain.answers[...] += answers
        chain.prior[...] += view.unseen(population)
        chain.trace[kept] = traced(data, view, answers)
        drawn = view.drawn_population(weights, rng)
        share = spaced(kept, n_kept, len(chain.shares))
        if share is not None:
            chain.shares[share] = view.drawn_items(own_counts(data, chain.state.own), drawn, rng)
        whole = spaced(kept, n_kept, len(chain.draws.z))
        if whole is not None:
            chain.draws.put(whole, data, view, weights, drawn)

    # ---- what it knows --------------------------------------------------------------------------------

    @property
    def draws_(self) -> Draws:
        """The whole draws that were kept, chain after chain."""
        return Draws(*(getattr(self, name) for name in self._draw_arrays))

    def intervals(self, interval: float = 0.9) -> Intervals:
        """What the draws say of each item: the interval of each class's share, and how sure the label is."""
        self._check_fitted()
        ends = [(1 - interval) / 2, (1 + interval) / 2]
        low, high = np.quantile(self.share_draws_, ends, axis=0)
        mean = self.label_distributions_
        sure = (self.share_draws_.argmax(axis=2) == mean.argmax(axis=1)).mean(axis=0)
        # a Dirichlet worth n labels with this mean has Σ_p var = (1 − Σ_p mean²) / (n + 1)
        variance = self.share_draws_.var(axis=0, dtype=np.float64).sum(axis=1)
        worth = np.maximum((1 - (mean**2).sum(axis=1)) / np.maximum(variance, 1e-12) - 1, 0.0)
        return Intervals(np.minimum(low, mean), np.maximum(high, mean), sure, worth)

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Mean over draws of (1 − λ) Σ_k P(w_m = k) E π_nk + λ E ρ_m."""
        draws, total = self.draws_, np.zeros((len(item), len(self.classes_)))
        for t in range(len(draws.z)):
            beliefs = np.vstack([draws.beliefs[t], draws.psi[t]])[item]
            matrices = np.concatenate([draws.matrices[t], draws.population[t].T[None]])[annotator]
            own = np.vstack([draws.own[t], draws.psi[t] @ draws.phi[t]])[item]
            lam = draws.numbers[t, 2]
            total += (1 - lam) * np.einsum("epk,ek->ep", matrices, beliefs) + lam * own
        return row_shares(total)

    def cluster_view(self, annotator_load: NDArray[Any] | None = None) -> ClusterView:
        """The clusters of the draw that is most like all draws (Dahl 2006), those that are not empty."""
        del annotator_load
        self._check_fitted()
        draws, t = self.draws_, self._typical_draw()
        K = np.unique(draws.beliefs[t].argmax(axis=1))
        L, z = np.unique(draws.z[t], return_inverse=True)
        beliefs, psi = draws.beliefs[t][:, K].astype(np.float64), draws.psi[t][K].astype(np.float64)
        members = np.eye(len(L))[z]
        theta = draws.theta[t][np.ix_(K, L)].astype(np.float64)
        weights = self.annotator_weights_ @ members
        lam = draws.numbers[t, 2]
        return ClusterView(
            items=beliefs / beliefs.sum(axis=1, keepdims=True),
            annotators=members,
            theta=theta / theta.sum(axis=2, keepdims=True),
            psi=psi / psi.sum(),
            omega=members.mean(axis=0),
            weights=weights,
            population=row_shares((1 - lam) * draws.population[t][K] + lam * draws.phi[t][K]),
            annotator_weights=self.annotator_weights_,
        )

    def _typical_draw(self) -> int:
        """The draw whose items are together most as they are on average, judged by some hundred items."""
        beliefs = self.draws_.beliefs
        chosen = np.linspace(0, beliefs.shape[1] - 1, min(300, beliefs.shape[1])).astype(int)
        hard = np.stack([one_hot_rows(one) for one in beliefs[:, chosen]])
        together = np.einsum("tik,tjk->tij", hard, hard)
        return int(((together - together.mean(axis=0)) ** 2).sum(axis=(1, 2)).argmin())

    def annotator_frame(self) -> dict[str, Any]:
        """Columns about annotators: cluster, information and agreement with their intervals."""
        view = self.cluster_view()
        assert view.annotators is not None
        told = self.draws_.annotators
        low, high = np.quantile(told, [0.05, 0.95], axis=0)
        mean = told.mean(axis=0)
        columns: dict[str, Any] = {"cluster": view.annotators.argmax(axis=1)}
        for j, name in enumerate(("model_information", "model_agreement")):
            columns |= {name: mean[:, j], f"{name}_low": low[:, j], f"{name}_high": high[:, j]}
        return columns

    # ---- new items and annotators ---------------------------------------------------------------------

    def _transform(self, new: Annotations, fitted: Self) -> None:
        """Items and annotators of the fit keep what is known of them; new ones are sampled given the draws.

        Labels between an item and an annotator of the fit are taken to be those of the fit.
        """
        item = fitted.item_vocabulary_.codes(new.item_vocabulary)
        annotator = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        fresh = (item[new.item] < 0) | (annotator[new.annotator] < 0)
        part = new.take_rows(fresh)
        data = Data.of(part.item, part.annotator, part.label, *_shape(part))
        told = _extended(fitted.draws_, data, item, annotator, fitted.seed)
        # an item of the fit of which nothing new is known keeps its answer to the last bit
        same = (item >= 0) & (np.bincount(part.item, minlength=new.n_items) == 0)
        rows = np.linspace(0, len(fitted.share_draws_) - 1, len(told.shares)).astype(int)
        before = fitted.share_draws_[rows][:, item]
        self.share_draws_ = np.where(same[None, :, None], before, told.shares).astype(np.float32)
        answers = row_shares(told.answers)
        self.label_distributions_ = np.where(same[:, None], fitted.label_distributions_[item], answers)
        for name, attribute in zip(Draws.__dataclass_fields__, self._draw_arrays, strict=True):
            setattr(self, attribute, getattr(told.draws, name))
        self.annotator_weights_ = np.append(fitted.annotator_weights_, 0.0)[annotator]


@dataclass(frozen=True)
class Extension:
    """What draws say of other items and annotators."""

    draws: Draws
    answers: Array  # (M, P): sum over the draws of the population's answers
    shares: Floats  # (T, M, P)


def _extended(fitted: Draws, data: Data, item: Codes, annotator: Codes, seed: int) -> Extension:
    """The draws of a fit carried over to new labels.

    ``item`` and ``annotator`` are codes of the fit, −1 where it has not met them. What the fit learned stays;
    the clusters and own labels of the items, and the clusters of the new annotators, are drawn given it.
    """
    T, K, L = len(fitted.z), fitted.psi.shape[1], fitted.omega.shape[1]
    told = Extension(
        Draws.empty(T, data, K, L),
        np.zeros((data.M, data.P)),
        np.zeros((T, data.M, data.P), np.float32),
    )
    w, z = np.zeros(data.M, np.int64), np.zeros(data.N, np.int64)
    own = np.zeros(len(data.item), dtype=bool)
    new = annotator < 0
    for t in range(T):
        rng = np.random.default_rng([seed, 1 << 20, t])
        r, q, lam = fitted.numbers[t]
        theta, phi = fitted.theta[t].astype(np.float64), fitted.phi[t].astype(np.float64)
        q_phi, r_theta = np.maximum(q * phi, TINY), np.maximum(r * theta, TINY)
        omega = np.maximum(fitted.omega[t].astype(np.float64), TINY)
        psi = np.maximum(np.vstack([fitted.beliefs[t], fitted.psi[t]])[item].astype(np.float64), TINY)
        z[~new] = fitted.z[t][annotator[~new]]
        sizes = np.vstack([fitted.sizes[t], np.full(K, r)])[annotator].astype(np.float64)
        for _ in range(INNER + MORE_INNER * (t == 0)):
            counts = annotator_counts(data, w, own, K)
            z[new] = draw_annotator_clusters(counts[new], r_theta, omega, rng)
            rows = row_priors(r_theta, z)
            theirs = fitted.matrices[t].astype(np.float64) * fitted.sizes[t][:, None]
            rows[~new] = np.maximum(theirs[annotator[~new]], TINY)
            w = draw_clusters(data, rows, sizes, psi, q_phi, w, own, rng)
            own = draw_own(data, rows, sizes, q_phi, lam, w, own, rng)
        state = State(
            w, z, own, theta, phi, phi.mean(axis=0), psi, omega,
            r, 1.0, q, 1.0, 1.0, 1.0, lam,
        )  # fmt: skip
        view = View.seen(data, state, rows, sizes, q_phi)
        population = fitted.population[t].astype(np.float64)
        told.answers[...] += view.items(population)
        drawn = fitted.drawn_population[t].astype(np.float64)
        told.shares[t] = view.drawn_items(own_counts(data, own), drawn, rng)
        _carry(told.draws, t, fitted, view)
    return told


def _carry(draws: Draws, t: int, fitted: Draws, view: View) -> None:
    """Write row ``t``: the view's items and annotators, the fit's parameters."""
    draws.beliefs[t], draws.own[t] = view.beliefs, view.rho
    draws.matrices[t], draws.sizes[t], draws.z[t] = view.pi, view.sizes, view.state.z
    for name in ("population", "drawn_population", "theta", "phi", "psi", "omega", "numbers"):
        getattr(draws, name)[t] = getattr(fitted, name)[t]


def spaced(index: int, n: int, size: int) -> int | None:
    """Where element ``index`` of ``n`` goes when ``size`` of them, evenly spaced, are kept; None: nowhere."""
    place = index * size // n
    return place if index == -(-place * n // size) else None


def _shape(annotations: Annotations) -> tuple[int, int, int]:
    return annotations.n_items, annotations.n_annotators, annotations.n_classes


def _whole_numbers(M: int, N: int, P: int, K: int, L: int) -> int:
    """Numbers of one whole draw."""
    return M * (K + P) + N * (P * K + K + 3) + K * L * P + K * P
