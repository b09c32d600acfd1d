"""Simulated annealing as Algorithm 2 is printed, which differs from :mod:`dissensus.models.pgm.annealing`.

New values are proposed from the prior: Θ_kl, ψ and Ω from their Dirichlet distributions, and the cluster of
an item or annotator from ψ or Ω. The printed δ_ψ and δ_Ω contain only the terms of the prior,

    δ_ψ = (γ − 1) Σ_k log ψ'_k / ψ_k,    δ_Ω = (τ − 1) Σ_l log Ω'_l / Ω_l                              (1)

although ℓ also contains Σ_m log ψ_{w_m} and Σ_n log Ω_{z_n}. The result is the best state visited, with the
clusters of that state.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import Generator

from dissensus.engine import Engine
from dissensus.labels.annotations import Annotations
from dissensus.models.pgm.annealing import (
    HardState,
    accepted,
    ascend,
    delta_annotators,
    delta_items,
    delta_shares,
    delta_theta,
    start_at,
)
from dissensus.models.pgm.m_step import Parameters, Priors, block_counts, log_joint
from dissensus.models.pgm.model import PGM
from dissensus.numerics import Array

SWEEPS = 1_000  # the paper: until convergence
PAPER_PRIORS = Priors(2.0, 2.0, 2.0)


def propose_shares(old: Array, prior: Any, T: float, rng: Generator) -> Array:
    """Propose ψ or Ω from its prior, and accept it by the printed δ (1)."""
    new = rng.dirichlet(np.full(len(old), prior))
    printed_delta = delta_shares(new, old, np.zeros(len(old)), prior)  # no members: the prior's terms alone
    return new if accepted(printed_delta, T, rng) else old


def printed_sweep(
    labels: Annotations, state: HardState, priors: Priors, T: float, rng: Generator
) -> HardState:
    """Propose a new value of every Θ_kl, of ψ, of Ω, of every w_m and of every z_n from the prior."""
    (K, L, P), old = state.parameters.theta.shape, state.parameters
    theta = rng.dirichlet(np.full(P, priors.alpha), size=(K, L))
    counts = block_counts(labels, state.w, state.z, K, L)
    taken = accepted(delta_theta(theta, old.theta, counts, priors), T, rng)
    psi = propose_shares(old.psi, priors.gamma, T, rng)
    omega = propose_shares(old.omega, priors.tau, T, rng)
    state = HardState(Parameters(np.where(taken[..., None], theta, old.theta), psi, omega), state.w, state.z)
    # w'_m ~ ψ and z'_n ~ Ω
    w = rng.choice(K, size=labels.n_items, p=psi)
    w = np.where(accepted(delta_items(labels, state, w), T, rng), w, state.w)
    state = HardState(state.parameters, w, state.z)
    z = rng.choice(L, size=labels.n_annotators, p=omega)
    z = np.where(accepted(delta_annotators(labels, state, z), T, rng), z, state.z)
    return HardState(state.parameters, w, z)


def draw_from_priors(labels: Annotations, K: int, L: int, priors: Priors, rng: Generator) -> HardState:
    """Draw parameters and clusters from their priors, without regard to the labels."""
    theta = rng.dirichlet(np.full(labels.n_classes, priors.alpha), size=(K, L))
    psi, omega = rng.dirichlet(np.full(K, priors.gamma)), rng.dirichlet(np.full(L, priors.tau))
    w, z = rng.choice(K, size=labels.n_items, p=psi), rng.choice(L, size=labels.n_annotators, p=omega)
    return HardState(Parameters(theta, psi, omega), w, z)


class PrintedAnnealing(PGM):
    """PGM by simulated annealing with the proposals and the differences of ℓ that the paper prints."""

    def _fit(
        self, annotations: Annotations, engine: Engine, prior: Any = None, prior_strength: float = 1.0
    ) -> None:
        """Run Algorithm 2 as printed; there is no prior for the items."""
        rng, priors = np.random.default_rng(self.seed), PAPER_PRIORS
        sizes = self.n_item_clusters, self.n_annotator_clusters
        if self.start == "random":
            state = draw_from_priors(annotations, *sizes, priors, rng)
        else:
            theta, _, z = self._initial_parameters(annotations, rng)
            w = (annotations.counts @ np.log(theta).T).argmax(axis=1)
            state = start_at(annotations, w, z.argmax(axis=1), *sizes, priors)
        best, values = state, [_log_joint(annotations, state, priors)]
        for t in range(SWEEPS):
            # T(t) = T₀ / (t + 1)^c
            T = self.temperature * (t + 1.0) ** -self.cooling
            state = printed_sweep(annotations, state, priors, T, rng)
            values.append(_log_joint(annotations, state, priors))
            best = state if values[-1] == max(values) else best
        if self.ascent:
            best = ascend(annotations, best, priors)[1]
        hard_w, hard_z = np.eye(sizes[0])[best.w], np.eye(sizes[1])[best.z]
        self._set_fitted(best.parameters, hard_w, hard_z, annotations.annotator_load)
        self.alpha_, self.gamma_, self.tau_ = map(np.atleast_1d, (priors.alpha, priors.gamma, priors.tau))
        self.damping_, self.trace_, self.stopped_ = np.asarray(0.0), np.array(values), "max_iter"


def _log_joint(labels: Annotations, state: HardState, priors: Priors) -> float:
    return log_joint(labels, state.parameters, state.w, state.z, priors)
