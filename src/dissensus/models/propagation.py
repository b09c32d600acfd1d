"""Belief propagation between the clusters of items and of annotators (Section "belief" of the paper).

Messages run along (item, annotator) pairs. With the cavities (what a variable believes without the pair)
ẑ_e = z_n without e and ŵ_e = w_m without e:

    μ_e(k) = Σ_l F_akl ẑ_e(l)          log w_mk = log ψ_k + Σ_{e of m} log μ_e(k) + const             (1)
    ν_e(l) = Σ_k F_akl ŵ_e(k)          log z_nl = log Ω_l + Σ_{e of n} log ν_e(l) + const             (2)

The logarithm of the evidence in Bethe's form (exact where the graph is a tree and messages have settled):

    log Z = Σ_m log Z_m + Σ_n log Z_n − Σ_e log Z_e                                                   (3)
    Z_m = Σ_k ψ_k Π_e μ_e(k),   Z_n = Σ_l Ω_l Π_e ν_e(l),   Z_e = Σ_kl F_akl ŵ_e(k) ẑ_e(l).

Because ν_e = F ŵ_e and ẑ_e ∝ z_n / ν_e, the pair's own terms need no extra product: with
s_e = Σ_l z_n(l) / ν_e(l) they are Z_e = 1 / s_e and b_e(k, l) = F_akl ŵ_e(k) z_n(l) / ν_e(l).

A shard owns its pairs' messages; it is given Θ, ψ, Ω and the annotators' beliefs, and returns additive
statistics. ``mean_field=True`` replaces (1) and (2) by their mean-field counterparts (z in place of ẑ, the
expected logarithm in place of the logarithm of the expectation).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.special import rel_entr, xlogy

from dissensus.engine import Executor, Shard, total
from dissensus.kernels import (
    Array,
    cavity,
    class_counts,
    column_sums,
    messages,
    pair_counts,
    softmax_rows,
)


@dataclass(frozen=True)
class Potentials:
    """Logarithms of the parameters, or their expectations, as the messages use them."""

    theta: Array  # (K, L, P)
    psi: Array  # (K,), or (M, K) where items have priors of their own
    omega: Array  # (L,), or (N, L)


@dataclass(frozen=True)
class ShardState:
    """What a shard carries from one round to the next."""

    w: Array  # (items, K)
    nu: Array  # (pairs, L): messages to annotators
    incoming: Array | None  # (pairs, L): z_n / ν_e of the last round, kept where pairwise beliefs need it


Job = tuple[Shard, ShardState]


@dataclass(frozen=True)
class Beliefs:
    """Posterior of every item's and annotator's cluster, and the messages behind them."""

    w: Array  # (M, K)
    z: Array  # (N, L)
    states: tuple[ShardState, ...]
    node_terms: float  # Σ_m log Z_m + Σ_n log Z_n
    change: float  # summed KL of these beliefs from the previous ones; NaN where not measured


@dataclass(frozen=True)
class Statistics:
    """What the M-step consumes."""

    label_mass: Array  # (K, L, P)
    item_mass: Array  # (K,)
    annotator_mass: Array  # (L,)
    pair_terms: float  # Σ_e log Z_e


@dataclass(frozen=True)
class Graph:
    """All shards of some annotations, and what runs over them."""

    shards: Sequence[Shard]
    n_annotators: int
    pool: Executor
    mean_field: bool = False
    keep_cavities: bool = True  # pairwise beliefs need them; without, a pair costs half the memory

    def start(self, w: Array, z: Array) -> Beliefs:
        """Beliefs given, messages that say nothing yet."""
        states = tuple(
            ShardState(w[shard.rows], np.ones((shard.pairs.n_pairs, z.shape[1])), None)
            for shard in self.shards
        )
        return Beliefs(w, z, states, -np.inf, np.inf)

    def statistics(self, beliefs: Beliefs, theta: Array | None) -> Statistics:
        """Expected label counts: of node beliefs multiplied (the paper's M-step), or, with the Θ
        potentials of the last round given, of pairwise beliefs (exact EM's).
        """
        step = partial(_counts_step, z=beliefs.z, theta=theta)
        label_mass, pair_terms = total(self.pool.map(step, self._jobs(beliefs)))
        return Statistics(label_mass, column_sums(beliefs.w), column_sums(beliefs.z), pair_terms)

    def _jobs(self, beliefs: Beliefs) -> list[Job]:
        return list(zip(self.shards, beliefs.states, strict=True))

    def round(
        self, beliefs: Beliefs, potentials: Potentials, damping: float = 0.0, *, measure: bool = True
    ) -> Beliefs:
        """One round: all messages to items, then all messages to annotators.

        How far beliefs moved is only worth its cost where somebody asks (``measure``).
        """
        step = partial(
            _mean_field_step if self.mean_field else _round_step,
            z=beliefs.z,
            potentials=potentials,
            damping=damping,
            keep_cavities=self.keep_cavities,
        )
        parts = self.pool.map(step, self._jobs(beliefs))
        logits = np.zeros((self.n_annotators, potentials.theta.shape[1]))
        for shard, (_, rows, _) in zip(self.shards, parts, strict=True):
            logits[shard.pairs.who] += rows
        z, annotator_terms = softmax_rows(logits + potentials.omega)
        w = np.concatenate([state.w for state, _, _ in parts])
        moved = rel_entr(w, beliefs.w).sum() + rel_entr(z, beliefs.z).sum() if measure else np.nan
        node_terms = float(annotator_terms.sum()) + sum(item_terms for _, _, item_terms in parts)
        return Beliefs(w, z, tuple(state for state, _, _ in parts), node_terms, float(moved))

    def settle(
        self, beliefs: Beliefs, potentials: Potentials, *, rounds: int, tol: float, damping: float = 0.0
    ) -> Beliefs:
        """Rounds until the summed KL between successive beliefs is at most ``tol``."""
        for _ in range(rounds):
            beliefs = self.round(beliefs, potentials, damping, measure=rounds > 1)
            if beliefs.change <= tol:
                break
        return beliefs

    def evidence(self, beliefs: Beliefs) -> float:
        """log Z in Bethe's form (3); under mean field, its lower bound."""
        if self.mean_field:
            return beliefs.node_terms
        step = partial(_pair_terms_step, z=beliefs.z)
        return beliefs.node_terms - float(total(self.pool.map(step, self._jobs(beliefs)))[0])


def _pair_terms_step(job: Job, z: Array) -> tuple[float]:
    """Σ_e log Z_e = −Σ_e log s_e."""
    shard, state = job
    _, sums = cavity(z, shard.pairs.annotator, state.nu)
    return (-float(np.log(sums).sum()),)


def _counts_step(job: Job, z: Array, theta: Array | None) -> tuple[Array, float]:
    shard, state = job
    layout = shard.pairs
    right, sums = cavity(z, layout.annotator, state.nu)
    left = np.take(state.w, layout.item, axis=0)
    if theta is None or state.incoming is None:
        # Σ_e w_mk z_nl over the pairs of each answer
        counts = pair_counts(layout, left, np.take(z, layout.annotator, axis=0))
    else:
        factors, _ = layout.factors(theta)
        # ŵ_e ∝ w_m / μ_e;  b_e(k, l) ∝ F_akl ŵ_e(k) z_n(l) / ν_e(l), which sums to one by itself only where
        # ν_e is the undamped message of ŵ_e
        left /= messages(layout, factors, state.incoming)
        sums_of_beliefs = (messages(layout, factors.transpose(0, 2, 1), left) * right).sum(axis=1)
        left /= sums_of_beliefs[:, None]
        counts = factors * pair_counts(layout, left, right)
    return class_counts(layout, counts), -float(np.log(sums).sum())


def _round_step(
    job: Job, z: Array, potentials: Potentials, damping: float, keep_cavities: bool
) -> tuple[ShardState, Array, float]:
    shard, state = job
    layout = shard.pairs
    factors, scale = layout.factors(potentials.theta)
    incoming, sums = cavity(z, layout.annotator, state.nu)
    mu = messages(layout, factors, incoming)
    w, item_terms = softmax_rows(layout.to_items @ np.log(mu) + _rows(potentials.psi, shard))
    outgoing, left_sums = cavity(w, layout.item, mu)
    nu = messages(layout, factors.transpose(0, 2, 1), outgoing)
    nu /= left_sums[:, None]
    if damping:
        nu = nu ** (1 - damping) * state.nu**damping
    # Messages to items were left unnormalised: what they are too large by comes off here. An answer's
    # scale stands once in every Z_m, Z_n and Z_e of its pair, so it counts once in all.
    offset = float(scale @ np.diff(layout.bounds)) - float(np.log(sums).sum())
    terms = float(item_terms.sum()) + offset
    kept = ShardState(w, nu, incoming if keep_cavities else None)
    return kept, layout.to_annotators @ np.log(nu), terms


def _mean_field_step(
    job: Job, z: Array, potentials: Potentials, damping: float, keep_cavities: bool
) -> tuple[ShardState, Array, float]:
    shard, state = job
    del damping, keep_cavities  # mean field passes no messages
    layout = shard.pairs
    K, L, P = potentials.theta.shape
    logs = (layout.answers @ potentials.theta.reshape(K * L, P).T).reshape(-1, K, L)
    # log w_mk = log ψ_k + Σ_e Σ_l z_nl log F_akl
    mu = messages(layout, logs, np.take(z, layout.annotator, axis=0))
    psi = _rows(potentials.psi, shard)
    w, _ = softmax_rows(layout.to_items @ mu + psi)
    nu = messages(layout, logs.transpose(0, 2, 1), np.take(w, layout.item, axis=0))
    # Given w, Σ_n log Z_n holds the pairs' and the annotators' terms; the items' own remain.
    terms = float((w * psi).sum() - xlogy(w, w).sum())
    return ShardState(w, state.nu, None), layout.to_annotators @ nu, terms


def _rows(table: Array, shard: Shard) -> Any:
    return table if table.ndim == 1 else table[shard.rows]
