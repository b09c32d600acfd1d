"""Belief propagation between the clusters of items and of annotators (the paper's E-step).

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

A round works on one block of items at a time: it reads the block's rows of the last round's messages, fills
those of the new ones, and returns additive statistics. The engine allocates both (``Engine.empty``), in
memory or on disk. They have a row for each label; a block's pairs, which may be fewer, fill its first rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from scipy.special import rel_entr

from dissensus.engine import Engine, total
from dissensus.labels.annotations import Annotations
from dissensus.models.fmm import assigned
from dissensus.models.pgm import kernels
from dissensus.models.pgm.kernels import Annotators, PairBlock, cavity, messages
from dissensus.numerics import Array, column_sums, normalised, row_sums, safe_log, softmax_rows, sum_of_logs


@dataclass(frozen=True)
class Potentials:
    """Logarithms of the parameters, or their expectations, as the messages use them."""

    log_theta: Array  # (K, L, P)
    log_psi: Array  # (K,), or (M, K) where items have priors of their own
    log_omega: Array  # (L,), or (N, L)


def with_prior(potentials: Potentials, prior: Array | None, z: Array, load: Array) -> Potentials:
    """Item potentials of their own where something is known of the items beforehand."""
    if prior is None:
        return potentials
    own = prior_scores(prior, normalised(np.exp(potentials.log_theta)), z.T @ load)
    return replace(potentials, log_psi=potentials.log_psi + own)


def prior_scores(prior: Array, theta: Array, mass: Array) -> Array:
    """(items, K): Σ_p h_mp log Σ_l π_l Θ_klp, the pseudo-labels h_m as those of an average annotator.

    ``mass`` (annotator clusters) weighs the clusters: π ∝ mass.
    """
    average = np.einsum("l,klp->kp", normalised(mass), theta)
    return np.asarray(prior @ safe_log(average).T)


@dataclass(frozen=True)
class Beliefs:
    """Posterior of every item's and annotator's cluster, and the messages behind them."""

    z: Array  # (N, L)
    w: Array  # (M, K)
    nu: Array  # (labels, L): messages to annotators; (0, L) before the first round
    incoming: Array  # (labels, L): z_n / ν_e of the last round, kept where pairwise beliefs need it
    item_mass: Array  # (K,): Σ_m w_mk
    node_terms: float  # Σ_m log Z_m + Σ_n log Z_n
    change: float  # summed KL of these beliefs from the previous ones; NaN where not measured
    pair_terms_before: float = math.nan  # Σ_e log Z_e of the beliefs that the first round began with


@dataclass(frozen=True)
class Statistics:
    """What the M-step consumes."""

    label_mass: Array  # (K, L, P)
    item_mass: Array  # (K,)
    annotator_mass: Array  # (L,)


class Graph:
    """The blocks of some annotations, and what runs over them."""

    def __init__(self, labels: Annotations, engine: Engine, *, keep_cavities: bool = True) -> None:
        self.blocks = engine.blocks(labels, PairBlock.of)
        self.keep_cavities = keep_cavities  # for pairwise beliefs; without, a pair costs half the memory
        self._shape = labels.n_items, labels.n_annotators, labels.n_labels
        self._engine = engine

    # ---- beliefs --------------------------------------------------------------------------------------

    def start(self, w: Array, z: Array) -> Beliefs:
        """Beliefs given, messages that say nothing yet."""
        (item_mass,) = total([(column_sums(w[block.items]),) for block in self.blocks.blocks])
        return self._without_messages(w, z, item_mass)

    def start_by_counts(self, theta: Array, psi: Array, z: Array) -> Beliefs:
        """Items by comparing their own label counts with Θ (K, P), annotators given."""
        w = self._engine.empty((self._shape[0], len(psi)))
        (item_mass,) = total(self.blocks.map(_counted_step, self._rows_of_items(w), theta=theta, psi=psi))
        return self._without_messages(w, z, item_mass)

    def _without_messages(self, w: Array, z: Array, item_mass: Array) -> Beliefs:
        none = np.zeros((0, z.shape[1]))
        return Beliefs(z, w, none, none, item_mass, -math.inf, math.inf)

    def round(
        self, beliefs: Beliefs, potentials: Potentials, damping: float = 0.0, *, measure: bool = True
    ) -> Beliefs:
        """One round: all messages to items, then all messages to annotators.

        How far beliefs moved is measured only where it is asked for, as it costs time.
        """
        (K, L, _), (M, N, E) = potentials.log_theta.shape, self._shape
        engine = self._engine
        w, nu = engine.empty((M, K)), engine.empty((E, L), engine.dtype)
        incoming = engine.empty((E if self.keep_cavities else 0, L), engine.dtype)
        log_psi = potentials.log_psi
        each = []
        for block in self.blocks.blocks:
            items, rows = block.items, block.rows
            own_psi = log_psi if log_psi.ndim == 1 else log_psi[items]
            before = beliefs.w[items], beliefs.nu[rows], own_psi
            each.append(RoundRows(*before, w[items], nu[rows], incoming[rows]))
        common = {"z": beliefs.z, "log_theta": potentials.log_theta, "damping": damping, "measure": measure}
        parts = self.blocks.map(_round_step, each, **common)
        logits, item_mass, sums = np.zeros((N, L)), np.zeros(K), np.zeros(3)
        for who, block_logits, block_mass, terms in parts:
            logits[who] += block_logits
            item_mass += block_mass
            sums += terms
        item_terms, pair_terms, moved = sums.tolist()
        z, annotator_terms = softmax_rows(logits + potentials.log_omega)
        change = float(moved + rel_entr(z, beliefs.z).sum()) if measure else math.nan
        node_terms = float(annotator_terms.sum()) + item_terms
        return Beliefs(z, w, nu, incoming, item_mass, node_terms, change, pair_terms)

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
        if log_theta is None or not len(beliefs.incoming):  # pairwise beliefs need a round of messages
            parts = self.blocks.map(_product_counts_step, self._rows_of_items(beliefs.w), z=beliefs.z)
        else:
            w, nu, incoming = beliefs.w, beliefs.nu, beliefs.incoming
            rows = [(w[block.items], nu[block.rows], incoming[block.rows]) for block in self.blocks.blocks]
            parts = self.blocks.map(_pairwise_counts_step, rows, z=beliefs.z, log_theta=log_theta)
        (label_mass,) = total(parts)
        return Statistics(label_mass, beliefs.item_mass, column_sums(beliefs.z))

    def evidence(self, beliefs: Beliefs, pair_terms: float | None = None) -> float:
        """log Z in Bethe's form (3).

        ``pair_terms`` are those that the next round found, where there was one.
        """
        if pair_terms is None:
            rows = [beliefs.nu[block.rows] for block in self.blocks.blocks]
            (pair_terms,) = total(self.blocks.map(_pair_terms_step, rows, z=beliefs.z))
        return beliefs.node_terms - float(pair_terms)

    def _rows_of_items(self, table: Array) -> Sequence[Array]:
        return [table[block.items] for block in self.blocks.blocks]


# ---- the steps of a block -----------------------------------------------------------------------------


class RoundRows(NamedTuple):
    """A block's rows of what a round reads, and of what it fills."""

    w_before: Array
    nu_before: Array
    log_psi: Array
    w: Array
    nu: Array
    incoming: Array


def _counted_step(block: PairBlock, w: Array, theta: Array, psi: Array) -> tuple[Array]:
    w[...] = assigned(block.counts(), theta, psi)
    return (column_sums(w),)


def _messages_before(block: PairBlock, nu: Array, z: Array) -> Array:
    """(pairs, L): the messages of the last round; ones before the first round."""
    return nu[: block.n_pairs] if len(nu) else np.ones((block.n_pairs, z.shape[1]))


def _pair_terms_step(block: PairBlock, nu: Array, z: Array) -> tuple[float]:
    """Σ_e log Z_e = −Σ_e log s_e."""
    nu, terms = _messages_before(block, nu, z), 0.0
    for layout, pairs in zip(block.layouts, block.pair_slices, strict=True):
        terms -= sum_of_logs(row_sums(cavity(z.astype(nu.dtype, copy=False), layout.annotator, nu[pairs])))
    return (terms,)


def _product_counts_step(block: PairBlock, w: Array, z: Array) -> tuple[Array]:
    """Σ w_mk z_nl over the labels of each class."""
    shards = zip(block.layouts, block.item_slices, strict=True)
    return total([(layout.same.counts(w[items], z),) for layout, items in shards])


def _pairwise_counts_step(
    block: PairBlock, rows: tuple[Array, Array, Array], z: Array, log_theta: Array
) -> tuple[Array]:
    """Σ_e b_e(k, l) over the pairs of each answer."""
    w, nu, incoming = rows
    z, parts = z.astype(nu.dtype, copy=False), []
    for layout, items, pairs in zip(block.layouts, block.item_slices, block.pair_slices, strict=True):
        right = cavity(z, layout.annotator, nu[pairs])
        left = np.take(w[items].astype(nu.dtype, copy=False), layout.item, axis=0)
        factors, _ = layout.factors(log_theta, nu.dtype)
        # ŵ_e ∝ w_m / μ_e;  b_e(k, l) ∝ F_akl ŵ_e(k) z_n(l) / ν_e(l), which sums to one by itself only where
        # ν_e is the undamped message of ŵ_e
        left /= messages(layout, factors, incoming[pairs])
        sums_of_beliefs = (messages(layout, factors.transpose(0, 2, 1), left) * right).sum(axis=1)
        left /= sums_of_beliefs[:, None]
        counts = factors * kernels.pair_counts(layout, left, right)
        parts.append((kernels.class_counts(layout, counts.astype(np.float64, copy=False)),))
    return total(parts)


def _round_step(
    block: PairBlock, rows: RoundRows, z: Array, log_theta: Array, damping: float, measure: bool
) -> tuple[Annotators, Array, Array, tuple[float, float, float]]:
    """What a block adds to a round: its annotators' Σ_e log ν_e(l), Σ_m w_mk, and three terms.

    The terms are Σ_m log Z_m, Σ_e log Z_e of the beliefs that the round began with, and how far w moved.
    """
    w, nu, dtype = rows.w, rows.nu[: block.n_pairs], rows.nu.dtype
    before = _messages_before(block, rows.nu_before, z).astype(dtype, copy=False)
    z = z.astype(dtype, copy=False)
    logits = np.zeros((block.n_who, z.shape[1]))
    item_terms = pair_terms = 0.0
    most = kernels.FURTHEST_SINGLE if dtype == np.float32 else kernels.FURTHEST
    shards = zip(block.layouts, block.item_slices, block.pair_slices, block.places, strict=True)
    for layout, items, pairs, places in shards:
        factors, scale = layout.factors(log_theta, dtype)
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
        if len(rows.incoming):
            rows.incoming[pairs] = incoming
        del incoming  # the next cavities take its memory, which is near
        own_psi = rows.log_psi if rows.log_psi.ndim == 1 else rows.log_psi[items]
        w[items], terms = layout.by_item.beliefs(mu, own_psi, max(reach - low, high))
        outgoing = cavity(w[items].astype(dtype, copy=False), layout.item, mu)
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
    moved = float(rel_entr(w, rows.w_before).sum()) if measure else 0.0
    return block.who, logits, column_sums(w), (item_terms, pair_terms, moved)
