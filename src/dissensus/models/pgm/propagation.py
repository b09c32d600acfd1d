"""Belief propagation between the clusters of items and of annotators (Section "belief" of the paper).

Messages run along (item, annotator) pairs. With the cavities (what a variable believes without the pair)
ẑ_e = z_n without e and ŵ_e = w_m without e:

    μ_e(k) = Σ_l F_akl ẑ_e(l)          log w_mk = log ψ_k + Σ_{e of m} log μ_e(k) + const             (1)
    ν_e(l) = Σ_k F_akl ŵ_e(k)          log z_nl = log Ω_l + Σ_{e of n} log ν_e(l) + const             (2)

The logarithm of the evidence in Bethe's form (exact where the graph is a tree and messages have settled):

    log Z = Σ_m log Z_m + Σ_n log Z_n − Σ_e log Z_e                                                   (3)
    Z_m = Σ_k ψ_k Π_e μ_e(k),   Z_n = Σ_l Ω_l Π_e ν_e(l),   Z_e = Σ_kl F_akl ŵ_e(k) ẑ_e(l).

Because ν_e = F ŵ_e and ẑ_e ∝ z_n / ν_e, the pair's own terms need no extra product: with
s_e = Σ_l z_n(l) / ν_e(l) they are Z_e = 1 / s_e and b_e(k, l) = F_akl ŵ_e(k) z_n(l) / ν_e(l). Where ν_e is
c times as large, Z_n and Z_e grow by c and the evidence stays, so messages are left at the scale they have.

A block of items owns its pairs' messages and its items' beliefs, which stay where the block is worked on
(execution/messages.py); it is given Θ, ψ, Ω and the annotators' beliefs, and returns additive statistics.
``mean_field=True`` replaces (1) and (2) by their mean-field counterparts (z in place of ẑ, the
expected logarithm in place of the logarithm of the expectation).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy.special import rel_entr, xlogy

from dissensus.execution.messages import BlockState, InMemory, MemoryState, MessageStorage, Slot
from dissensus.execution.run import Run
from dissensus.execution.threads import Work, total
from dissensus.labels.annotations import Annotations
from dissensus.labels.blocks import Block
from dissensus.models.fmm import assigned
from dissensus.models.pgm.kernels import (
    FURTHEST,
    FURTHEST_SINGLE,
    Annotators,
    PairBlock,
    PairLayout,
    cavity,
    class_counts,
    messages,
    pair_counts,
)
from dissensus.numerics import Array, column_sums, normalised, row_sums, safe_log, softmax_rows, sum_of_logs


@dataclass(frozen=True)
class Potentials:
    """Logarithms of the parameters, or their expectations, as the messages use them."""

    log_theta: Array  # (K, L, P)
    log_psi: Array  # (K,), or (M, K) where items have priors of their own
    log_omega: Array  # (L,), or (N, L)


def with_pseudo_labels(
    potentials: Potentials, pseudo_labels: Array | None, z: Array, load: Array
) -> Potentials:
    """Item potentials of their own where something is known of the items beforehand."""
    if pseudo_labels is None:
        return potentials
    own = pseudo_label_scores(pseudo_labels, normalised(np.exp(potentials.log_theta)), z.T @ load)
    return replace(potentials, log_psi=potentials.log_psi + own)


def pseudo_label_scores(pseudo_labels: Array, theta: Array, mass: Array) -> Array:
    """(items, K): Σ_p h_mp log Σ_l π_l Θ_klp, the pseudo-labels h_m as those of an average annotator.

    ``mass`` (annotator clusters) weighs the clusters: π ∝ mass.
    """
    average = np.einsum("l,klp->kp", normalised(mass), theta)
    return np.asarray(pseudo_labels @ safe_log(average).T)


@dataclass(frozen=True)
class Beliefs:
    """Posterior of every item's and annotator's cluster, and the messages behind them."""

    z: Array  # (N, L)
    states: tuple[BlockState, ...]  # of each block: its items' beliefs, and the messages
    item_mass: Array  # (K,): Σ_m w_mk
    node_terms: float  # Σ_m log Z_m + Σ_n log Z_n
    change: float  # summed KL of these beliefs from the previous ones; NaN where not measured
    pair_terms_before: float = np.nan  # Σ_e log Z_e of the beliefs that the rounds up to these began with
    files: object = None  # of the states: see messages.Round

    @cached_property
    def w(self) -> Array:
        """(M, K)"""
        return np.concatenate([state.w for state in self.states])


@dataclass(frozen=True)
class Statistics:
    """What the M-step consumes."""

    label_mass: Array  # (K, L, P)
    item_mass: Array  # (K,)
    annotator_mass: Array  # (L,)


@dataclass(frozen=True)
class Graph:
    """All blocks of some annotations, and what runs over them."""

    work: Work
    n_annotators: int
    mean_field: bool = False
    keep_cavities: bool = True  # pairwise beliefs need them; without, a pair costs half the memory
    storage: MessageStorage = field(default_factory=InMemory)

    @classmethod
    def of(cls, annotations: Annotations, run: Run, **settings: Any) -> Self:
        """The graph of some annotations."""
        work = run.executor.over(annotations, PairBlock.of)
        return cls(work, annotations.n_annotators, storage=run.storage, **settings)

    @property
    def blocks(self) -> Sequence[Block]:
        """Where each block's items stand."""
        return self.work.blocks

    # ---- beliefs --------------------------------------------------------------------------------------

    def start(self, w: Array, z: Array) -> Beliefs:
        """Beliefs given, messages that say nothing yet."""
        return self._begun(_given_step, z, (w[block.place] for block in self.blocks))

    def start_by_counts(self, theta: Array, psi: Array, z: Array) -> Beliefs:
        """Items by comparing their own label counts with Θ (K, P), annotators given."""
        return self._begun(_counted_step, z, (None for _ in self.blocks), theta=theta, psi=psi)

    def _begun(self, step: Callable[..., Any], z: Array, own: Iterable[Any], **common: Any) -> Beliefs:
        stored = self.storage.round(len(self.blocks))
        parts = list(self.work.map(step, zip(own, stored.slots, strict=True), **common))
        (item_mass,) = total((mass,) for _, mass in parts)
        states = tuple(state for state, _ in parts)
        return Beliefs(z, states, item_mass, -np.inf, np.inf, files=stored.files)

    def round(
        self, beliefs: Beliefs, potentials: Potentials, damping: float = 0.0, *, measure: bool = True
    ) -> Beliefs:
        """One round: all messages to items, then all messages to annotators.

        How far beliefs moved is only worth its cost where somebody asks (``measure``).
        """
        log_psi = potentials.log_psi
        each = [log_psi] * len(self.blocks) if log_psi.ndim == 1 else [log_psi[b.place] for b in self.blocks]
        stored = self.storage.round(len(self.blocks))
        parts = self.work.map(
            _mean_field_step if self.mean_field else _round_step,
            zip(beliefs.states, each, stored.slots, strict=True),
            z=beliefs.z,
            log_theta=potentials.log_theta,
            damping=damping,
            keep_cavities=self.keep_cavities,
            measure=measure,
        )
        logits = np.zeros((self.n_annotators, potentials.log_theta.shape[1]))
        item_mass, item_terms, pair_terms = np.zeros(potentials.log_theta.shape[0]), 0.0, 0.0
        states, moved = [], 0.0
        for part in parts:
            states.append(part.state)
            logits[part.who] += part.logits
            item_mass += part.item_mass
            item_terms += part.item_terms
            pair_terms += part.pair_terms
            moved += part.moved
        z, annotator_terms = softmax_rows(logits + potentials.log_omega)
        change = moved + rel_entr(z, beliefs.z).sum() if measure else np.nan
        node_terms = float(annotator_terms.sum()) + item_terms
        return Beliefs(z, tuple(states), item_mass, node_terms, float(change), pair_terms, stored.files)

    def settle(
        self, beliefs: Beliefs, potentials: Potentials, rounds: int, tol: float, damping: float = 0.0
    ) -> Beliefs:
        """Rounds until the summed KL between successive beliefs is at most ``tol``."""
        settled = self.round(beliefs, potentials, damping, measure=rounds > 1)
        if rounds == 1:
            return settled
        first = settled.pair_terms_before
        for _ in range(rounds - 1):
            if settled.change <= tol:
                break
            settled = self.round(settled, potentials, damping)
        return replace(settled, pair_terms_before=first)

    # ---- what they amount to --------------------------------------------------------------------------

    def statistics(self, beliefs: Beliefs, log_theta: Array | None) -> Statistics:
        """Expected label counts: of node beliefs multiplied (the paper's M-step), or, with the Θ
        potentials of the last round given, of pairwise beliefs (exact EM's).
        """
        if log_theta is None:
            parts = self.work.map(_product_counts_step, beliefs.states, z=beliefs.z)
        else:
            parts = self.work.map(_pairwise_counts_step, beliefs.states, z=beliefs.z, log_theta=log_theta)
        (label_mass,) = total(parts)
        return Statistics(label_mass, beliefs.item_mass, column_sums(beliefs.z))

    def evidence(self, beliefs: Beliefs, pair_terms: float | None = None) -> float:
        """log Z in Bethe's form (3); under mean field, its lower bound.

        ``pair_terms`` are those that the next round found, where there was one.
        """
        if self.mean_field:
            return beliefs.node_terms
        if pair_terms is None:
            (pair_terms,) = total(self.work.map(_pair_terms_step, beliefs.states, z=beliefs.z))
        return beliefs.node_terms - float(pair_terms)


# ---- the steps of a block -----------------------------------------------------------------------------


@dataclass(frozen=True)
class RoundPart:
    """What one block adds to a round."""

    state: BlockState
    who: Annotators
    logits: Array  # (who, L): Σ_e log ν_e(l), or its mean-field counterpart
    item_mass: Array  # (K,)
    item_terms: float
    pair_terms: float  # Σ_e log Z_e of the beliefs that the round began with
    moved: float


def _given_step(block: PairBlock, own: tuple[Array, Slot]) -> tuple[BlockState, Array]:
    w, slot = own
    return slot.keep(MemoryState(w, None, None)), column_sums(w)


def _counted_step(
    block: PairBlock, own: tuple[None, Slot], theta: Array, psi: Array
) -> tuple[BlockState, Array]:
    return _given_step(block, (assigned(block.counts(), theta, psi), own[1]))


def _pair_terms_step(block: PairBlock, state: BlockState, z: Array) -> tuple[float]:
    """Σ_e log Z_e = −Σ_e log s_e."""
    nu, terms = _messages_of(block, state, z), 0.0
    for layout, pairs in zip(block.layouts, block.pairs, strict=True):
        terms -= sum_of_logs(row_sums(cavity(z.astype(nu.dtype, copy=False), layout.annotator, nu[pairs])))
    return (terms,)


def _messages_of(block: PairBlock, state: BlockState, z: Array) -> Array:
    """(pairs, L): the messages to annotators; ones before the first round."""
    nu = state.nu
    return np.ones((block.n_pairs, z.shape[1])) if nu is None else nu


def _product_counts_step(block: PairBlock, state: BlockState, z: Array) -> tuple[Array]:
    """Σ w_mk z_nl over the labels of each class."""
    w = state.w
    shards = zip(block.layouts, block.items, strict=True)
    return total((layout.same.counts(w[items], z),) for layout, items in shards)


def _pairwise_counts_step(block: PairBlock, state: BlockState, z: Array, log_theta: Array) -> tuple[Array]:
    """Σ_e b_e(k, l) over the pairs of each answer."""
    if state.incoming is None:  # before the first round
        return _product_counts_step(block, state, z)
    w, nu, incoming = state.w, _messages_of(block, state, z), state.incoming
    z = z.astype(nu.dtype, copy=False)
    parts = (
        (_pairwise_counts(layout, w[items], nu[pairs], incoming[pairs], z, log_theta),)
        for layout, items, pairs in zip(block.layouts, block.items, block.pairs, strict=True)
    )
    return total(parts)


def _pairwise_counts(
    layout: PairLayout, w: Array, nu: Array, incoming: Array, z: Array, log_theta: Array
) -> Array:
    right = cavity(z, layout.annotator, nu)
    left = np.take(w.astype(nu.dtype, copy=False), layout.item, axis=0)
    factors, _ = layout.factors(log_theta, nu.dtype)
    # ŵ_e ∝ w_m / μ_e;  b_e(k, l) ∝ F_akl ŵ_e(k) z_n(l) / ν_e(l), which sums to one by itself only where
    # ν_e is the undamped message of ŵ_e
    left /= messages(layout, factors, incoming)
    sums_of_beliefs = (messages(layout, factors.transpose(0, 2, 1), left) * right).sum(axis=1)
    left /= sums_of_beliefs[:, None]
    counts = factors * pair_counts(layout, left, right)
    return class_counts(layout, counts.astype(np.float64, copy=False))


def _round_step(
    block: PairBlock,
    own: tuple[BlockState, Array, Slot],
    z: Array,
    log_theta: Array,
    damping: float,
    keep_cavities: bool,
    measure: bool,
) -> RoundPart:
    state, log_psi, slot = own
    before = _messages_of(block, state, z).astype(slot.dtype, copy=False)
    z = z.astype(slot.dtype, copy=False)
    nu = np.empty_like(before)
    cavities = np.empty_like(before) if keep_cavities else None
    w = np.empty((block.n_items, log_theta.shape[0]))
    logits = np.zeros((block.n_who, z.shape[1]))
    item_terms = pair_terms = 0.0
    most = FURTHEST_SINGLE if slot.dtype == np.float32 else FURTHEST
    shards = zip(block.layouts, block.items, block.pairs, block.places, strict=True)
    for layout, items, pairs, places in shards:
        factors, scale = layout.factors(log_theta, slot.dtype)
        incoming = cavity(z, layout.annotator, before[pairs])
        sums = row_sums(incoming)
        pair_term = -sum_of_logs(sums)
        # Nothing is normalised: z_n / ν_e sums to s_e. With F in [min F, 1], μ lies in [min F · min s, max s]
        # and ν in [min F / max s, 1 / (min F · min s)].
        reach = -math.log(factors.min(initial=1.0))
        low, high = math.log(sums.min(initial=1.0)), math.log(sums.max(initial=1.0))
        too_far = reach + max(high, -low) > most
        if too_far:  # where both cavities sum to one, μ and ν lie in [min F, 1]
            incoming /= sums[:, None]
            low = high = 0.0
        mu = messages(layout, factors, incoming)
        if cavities is not None:
            cavities[pairs] = incoming
        del incoming  # the next cavities take its memory, which is near
        own_psi = log_psi if log_psi.ndim == 1 else log_psi[items]
        w[items], terms = layout.by_item.beliefs(mu, own_psi, max(reach - low, high))
        outgoing = cavity(w[items].astype(slot.dtype, copy=False), layout.item, mu)
        if too_far:
            outgoing /= row_sums(outgoing)[:, None]
        new = messages(layout, factors.transpose(0, 2, 1), outgoing, out=nu[pairs])
        furthest = reach + max(high, -low)
        if damping:  # the old message is of other factors
            new[...] = new ** (1 - damping) * before[pairs] ** damping
            furthest = most
        # Messages to items are too large by s, which comes off here. What ν is too large by stands once in
        # Z_n and once in Z_e. An answer's scale stands once in every Z_m, Z_n and Z_e of its pair, so it
        # counts once in all.
        offset = float(scale @ layout.pairs_of_answers) + (0.0 if too_far else pair_term)
        item_terms += float(terms.sum()) + offset
        pair_terms += pair_term
        logits[places] += layout.by_annotator.of_logs(new, furthest)
    moved = float(rel_entr(w, state.w).sum()) if measure else 0.0
    kept = slot.keep(MemoryState(w, nu, cavities))
    return RoundPart(kept, block.who, logits, column_sums(w), item_terms, pair_terms, moved)


def _mean_field_step(
    block: PairBlock,
    own: tuple[BlockState, Array, Slot],
    z: Array,
    log_theta: Array,
    damping: float,
    keep_cavities: bool,
    measure: bool,
) -> RoundPart:
    del damping, keep_cavities  # mean field passes no messages
    state, log_psi, slot = own
    K, L, P = log_theta.shape
    w = np.empty((block.n_items, K))
    logits = np.zeros((block.n_who, L))
    item_terms = 0.0
    shards = zip(block.layouts, block.items, block.places, strict=True)
    for layout, items, places in shards:
        logs = (layout.answers @ log_theta.reshape(K * L, P).T).reshape(-1, K, L)
        # log w_mk = log ψ_k + Σ_e Σ_l z_nl log F_akl
        mu = messages(layout, logs, np.take(z, layout.annotator, axis=0))
        own_psi = log_psi if log_psi.ndim == 1 else log_psi[items]
        w[items], _ = softmax_rows(layout.by_item.of_rows(mu) + own_psi)
        nu = messages(layout, logs.transpose(0, 2, 1), np.take(w[items], layout.item, axis=0))
        # Given w, Σ_n log Z_n holds the pairs' and the annotators' terms; the items' own remain.
        item_terms += float((w[items] * own_psi).sum() - xlogy(w[items], w[items]).sum())
        logits[places] += layout.by_annotator.of_rows(nu)
    moved = float(rel_entr(w, state.w).sum()) if measure else 0.0
    kept = slot.keep(MemoryState(w, None, None))
    return RoundPart(kept, block.who, logits, column_sums(w), item_terms, 0.0, moved)
