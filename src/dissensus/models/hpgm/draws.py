"""Draws of HPGM's posterior: what is kept, and what it says of annotators, clusters and new items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.labels.vocabulary import Codes
from dissensus.models.hpgm.sampler import (
    TINY,
    Data,
    State,
    annotator_counts,
    draw_annotator_clusters,
    draw_clusters,
    draw_dirichlet,
    draw_own,
    hinted,
    own_counts,
    product,
    row_priors,
)
from dissensus.models.hpgm.view import View
from dissensus.numerics import Array

Floats = NDArray[np.float32]

INNER, MORE_INNER = 2, 8  # sweeps over new items and annotators for each draw, and more for the first


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
    numbers: Array  # (T, 4): r, q, λ, and the trust in hints

    @classmethod
    def empty(cls, n: int, data: Data, K: int, L: int) -> Draws:
        """Room for ``n`` draws."""
        M, N, P = data.M, data.N, data.P
        shapes = [(M, K), (M, P), (N, P, K), (N, K), (K, P), (K, P), (K, L, P), (K, P), (K,), (L,)]
        tables: list[Any] = [np.zeros((n, *shape), np.float32) for shape in shapes]
        rest: list[Any] = [np.zeros((n, N), np.int32), np.zeros((n, 4))]
        return cls(*tables, *rest)

    def put(self, t: int, view: View, weights: Array, drawn: Array) -> None:
        """Write a draw into row ``t``; ``drawn`` is a draw of the population."""
        state = view.state
        self.beliefs[t], self.own[t] = view.beliefs, view.rho
        self.matrices[t], self.sizes[t] = view.pi, view.sizes
        self.population[t] = view.population(weights)
        self.drawn_population[t] = drawn
        self.theta[t], self.phi[t] = state.theta, state.phi
        self.psi[t], self.omega[t] = state.psi, state.omega
        self.z[t], self.numbers[t] = state.z, (state.r, state.q, state.lam, state.trust)

    def __len__(self) -> int:
        return len(self.z)


# ---- annotators ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AnnotatorDraw:
    """What one draw says of every annotator."""

    information: Array  # (N,): nats that a label of theirs tells about the item's cluster
    agreement: Array  # (N,): the chance that it equals a label of the population
    confusion: Array  # (N, P, P): [n, p] is the distribution of their labels where the population answers p


def annotator_draws(draws: Draws, seed: int) -> Iterator[AnnotatorDraw]:
    """One after the other, what the draws say of annotators, with all the uncertainty of their ways.

    A whole draw keeps E π_nk and the r + n_nk labels that it stands on; π_nk is a Dirichlet of these.
    """
    for t in range(len(draws)):
        rng = np.random.default_rng([seed, 1 << 21, t])
        sizes = draws.sizes[t].astype(np.float64)
        pi = draw_dirichlet(np.maximum(draws.matrices[t] * sizes[:, None], TINY), rng, axis=1)
        yield _annotator_draw(draws, t, pi)


def _annotator_draw(draws: Draws, t: int, pi: Array) -> AnnotatorDraw:
    """The same for given ways ``pi`` (N, P, K) of the annotators."""
    beliefs, own, lam = draws.beliefs[t].astype(np.float64), draws.own[t], draws.numbers[t, 2]
    M = len(beliefs)
    answers = (1 - lam) * product(beliefs, draws.population[t]) + lam * own
    by_cluster = np.einsum("mk,mp->kp", beliefs, answers) / M  # P(cluster, the population's label)
    size = beliefs.mean(axis=0)
    rho = np.einsum("mk,mp->kp", beliefs, own) / np.maximum(M * size[:, None], TINY)
    theirs = (1 - lam) * pi + lam * rho.T  # (N, P, K): P(label | cluster)
    alone = np.einsum("npk,k->np", theirs, size)
    # I(label; cluster) = Σ_k P(k) Σ_p P(p | k) log P(p | k) / P(p)
    ratio = theirs / np.maximum(alone[:, :, None], TINY)
    information = np.einsum("npk,npk,k->n", theirs, np.log(np.maximum(ratio, TINY)), size)
    agreement = np.einsum("npk,kp->n", theirs, by_cluster)
    crowd = np.maximum(by_cluster.sum(axis=0), TINY)
    confusion = np.einsum("nqk,kp->npq", theirs, by_cluster) / crowd[:, None]
    return AnnotatorDraw(information, agreement, confusion)


# ---- clusters -----------------------------------------------------------------------------------------


def co_clustering(shares: NDArray[np.floating[Any]]) -> Array:
    """(n, n): P(i and j are in one cluster), from (T, n, K) chances of each cluster in each draw."""
    together = np.zeros((shares.shape[1], shares.shape[1]))
    for draw in shares.astype(np.float64):
        together += draw @ draw.T
    together /= len(shares)
    np.fill_diagonal(together, 1.0)
    return together


# ---- new items and annotators -------------------------------------------------------------------------


@dataclass(frozen=True)
class Extension:
    """What draws say of other items and annotators."""

    draws: Draws
    answers: Array  # (M, P): sum over the draws of the population's answers
    shares: Floats  # (T, M, P)


def extended(fitted: Draws, data: Data, item: Codes, annotator: Codes, *seed: int) -> Extension:
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
        rng = np.random.default_rng([*seed, 1 << 20, t])
        r, q, lam, trust = fitted.numbers[t]
        theta, phi = fitted.theta[t].astype(np.float64), fitted.phi[t].astype(np.float64)
        q_phi, r_theta = np.maximum(q * phi, TINY), np.maximum(r * theta, TINY)
        omega = np.maximum(fitted.omega[t].astype(np.float64), TINY)
        psi = np.maximum(np.vstack([fitted.beliefs[t], fitted.psi[t]])[item].astype(np.float64), TINY)
        if data.hints is not None:  # items of the fit have had theirs
            psi = np.where(item[:, None] < 0, hinted(psi, data.hints, trust, phi), psi)
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
