"""Belief propagation between the clusters of items and of annotators (the paper's E-step).

Messages run along (item, annotator) pairs. With the cavities (a variable's belief without the pair)
ẑ_e = z_n without e and ŵ_e = w_m without e:

    μ_e(k) = Σ_l F_akl ẑ_e(l)          log w_mk = log ψ_k + Σ_{e of m} log μ_e(k) + const             (1)
    ν_e(l) = Σ_k F_akl ŵ_e(k)          log z_nl = log Ω_l + Σ_{e of n} log ν_e(l) + const             (2)

The Bethe approximation of the log-evidence (exact if the graph is a tree and the messages have converged):

    log Z = Σ_m log Z_m + Σ_n log Z_n − Σ_e log Z_e                                                   (3)
    Z_m = Σ_k ψ_k Π_e μ_e(k),   Z_n = Σ_l Ω_l Π_e ν_e(l),   Z_e = Σ_kl F_akl ŵ_e(k) ẑ_e(l).

Because ν_e = F ŵ_e and ẑ_e ∝ z_n / ν_e, the terms of a pair need no further product: with
s_e = Σ_l z_n(l) / ν_e(l) they are Z_e = 1 / s_e and b_e(k, l) = F_akl ŵ_e(k) z_n(l) / ν_e(l). If ν_e is
multiplied by c, then so are Z_n and Z_e, and the evidence does not change; so messages need no normalising.

A round works on one block of items at a time: it reads the block's rows of the previous messages, writes
those of the new ones, and returns additive statistics. The engine allocates both tables (``Engine.empty``),
in memory or on disk. They have a row per label; the pairs of a block, which may be fewer, use its first rows.
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
from dissensus.models.fmm import cluster_posterior
from dissensus.models.pgm import kernels
from dissensus.models.pgm.kernels import AnnotatorCodes, PairBlock, cavity, messages
from dissensus.numerics import Array, column_sums, normalised, row_sums, safe_log, softmax_rows, sum_of_logs


@dataclass(frozen=True)
class Potentials:
    """Logarithms of the parameters, or expected logarithms, as used by the messages."""

    log_theta: Array  # (K, L, P)
    log_psi: Array  # (K,), or (M, K) with a prior per item
    log_omega: Array  # (L,), or (N, L)


def with_prior(potentials: Potentials, prior: Array | None, z: Array, load: Array) -> Potentials:
    """Add the items' prior, if any, to the item potentials."""
    if prior is None:
        return potentials
    scores = prior_scores(prior, normalised(np.exp(potentials.log_theta)), z.T @ load)
    return replace(potentials, log_psi=potentials.log_psi + scores)


def prior_scores(prior: Array, theta: Array, mass: Array) -> Array:
    """Return (items, K): Σ_p h_mp log Σ_l π_l Θ_klp, for pseudo-labels h_m of an average annotator.

    ``mass`` (annotator clusters) is proportional to the weights π.
    """
    return np.asarray(prior @ safe_log(np.einsum("l,klp->kp", normalised(mass), theta)).T)


@dataclass(frozen=True)
class Beliefs:
    """Posteriors of the clusters of items and annotators, and the messages behind them."""

    z: Array  # (N, L)
    w: Array  # (M, K)
    nu: Array  # (labels, L): messages to annotators; (0, L) before the first round
    incoming: Array  # (labels, L): z_n / ν_e of the last round, if pairwise beliefs need it
    item_mass: Array  # (K,): Σ_m w_mk
    node_terms: float  # Σ_m log Z_m + Σ_n log Z_n
    change: float  # summed KL from the previous beliefs; NaN if not measured
    pair_terms_before: float = math.nan  # Σ_e log Z_e of the beliefs before the first round


@dataclass(frozen=True)
class Statistics:
    """Expected sufficient statistics for the M-step."""

    label_mass: Array  # (K, L, P)
    item_mass: Array  # (K,)
    annotator_mass: Array  # (L,)


class Graph:
    """Factor graph of annotations: message rounds and statistics over its blocks."""

    def __init__(self, labels: Annotations, engine: Engine, *, keep_cavities: bool = True) -> None:
        self.blocks = engine.blocks(labels, PairBlock.of)
        self.keep_cavities = keep_cavities  # for pairwise beliefs, at twice the memory per pair
        self._shape = labels.n_items, labels.n_annotators, labels.n_labels
        self._engine = engine

    # ---- beliefs --------------------------------------------------------------------------------------

    def start(self, w: Array, z: Array) -> Beliefs:
        """Return the given beliefs, without messages."""
        (item_mass,) = total([(column_sums(w[block.items]),) for block in self.blocks.blocks])
        empty = np.zeros((0, z.shape[1]))
        return Beliefs(z, w, empty, empty, item_mass, -math.inf, math.inf)

    def start_by_counts(self, theta: Array, psi: Array, z: Array) -> Beliefs:
        """Return the given z, and beliefs about items from their label counts and Θ (K, P)."""
        w = self._engine.empty((self._shape[0], len(psi)))
        list(self.blocks.map(_counts_start_step, self._item_rows(w), theta=theta, psi=psi))  # fills w
        return self.start(w, z)

    def round(
        self, beliefs: Beliefs, potentials: Potentials, damping: float = 0.0, *, measure: bool = True
    ) -> Beliefs:
        """Pass all messages to items, then all messages to annotators.

        ``measure`` computes the change of the beliefs, which costs time.
        """
        (K, L, _), (M, N, E) = potentials.log_theta.shape, self._shape
        engine = self._engine
        w, nu = engine.empty((M, K)), engine.empty((E, L), engine.dtype)
        incoming = engine.empty((E if self.keep_cavities else 0, L), engine.dtype)
        log_psi, block_rows = potentials.log_psi, []
        for block in self.blocks.blocks:
            items, rows = block.items, block.rows
            before = beliefs.w[items], beliefs.nu[rows], log_psi if log_psi.ndim == 1 else log_psi[items]
            block_rows.append(RoundRows(*before, w[items], nu[rows], incoming[rows]))
        common = {"z": beliefs.z, "log_theta": potentials.log_theta, "damping": damping, "measure": measure}
        parts = self.blocks.map(_round_step, block_rows, **common)
        logits, item_mass, sums = np.zeros((N, L)), np.zeros(K), np.zeros(3)
        for codes, block_logits, block_mass, terms in parts:
            logits[codes] += block_logits
            item_mass += block_mass
            sums += terms
        item_terms, pair_terms, item_change = sums.tolist()
        z, annotator_terms = softmax_rows(logits + potentials.log_omega)
        change = float(item_change + rel_entr(z, beliefs.z).sum()) if measure else math.nan
        node_terms = float(annotator_terms.sum()) + item_terms
        return Beliefs(z, w, nu, incoming, item_mass, node_terms, change, pair_terms)

    def propagate(
        self, beliefs: Beliefs, potentials: Potentials, rounds: int, tol: float, damping: float = 0.0
    ) -> Beliefs:
        """Run rounds until the summed KL between successive beliefs is at most ``tol``."""
        beliefs = self.round(beliefs, potentials, damping, measure=rounds > 1)
        pair_terms_before = beliefs.pair_terms_before
        for _ in range(rounds - 1):
            if beliefs.change <= tol:
                break
            beliefs = self.round(beliefs, potentials, damping)
        return replace(beliefs, pair_terms_before=pair_terms_before)

    # ---- statistics -----------------------------------------------------------------------------------

    def statistics(self, beliefs: Beliefs, log_theta: Array | None) -> Statistics:
        """Return expected counts, from products of beliefs (the paper's M-step) or joint beliefs about pairs.

        Joint beliefs (those of exact EM) need the Θ potentials of the last round.
        """
        if log_theta is None or not len(beliefs.incoming):  # no pairwise beliefs before the first round
            parts = self.blocks.map(_product_counts_step, self._item_rows(beliefs.w), z=beliefs.z)
        else:
            w, nu, incoming = beliefs.w, beliefs.nu, beliefs.incoming
            rows = [(w[block.items], nu[block.rows], incoming[block.rows]) for block in self.blocks.blocks]
            parts = self.blocks.map(_pairwise_counts_step, rows, z=beliefs.z, log_theta=log_theta)
        (label_mass,) = total(parts)
        return Statistics(label_mass, beliefs.item_mass, column_sums(beliefs.z))

    def _item_rows(self, table: Array) -> Sequence[Array]:
        return [table[block.items] for block in self.blocks.blocks]


# ---- steps of a block ---------------------------------------------------------------------------------


class RoundRows(NamedTuple):
    """Rows of a block in the tables that a round reads and writes."""

    w_before: Array
    nu_before: Array
    log_psi: Array
    w: Array
    nu: Array
    incoming: Array


def _counts_start_step(block: PairBlock, w: Array, theta: Array, psi: Array) -> None:
    w[...] = cluster_posterior(block.counts(), theta, psi)


def _product_counts_step(block: PairBlock, w: Array, z: Array) -> tuple[Array]:
    """Return Σ w_mk z_nl over the labels of each class."""
    shards = zip(block.layouts, block.item_slices, strict=True)
    return total([(layout.runs.counts(w[items], z),) for layout, items in shards])


def _pairwise_counts_step(
    block: PairBlock, rows: tuple[Array, Array, Array], z: Array, log_theta: Array
) -> tuple[Array]:
    """Return Σ_e b_e(k, l) over the labels of each class."""
    w, nu, incoming = rows
    z, parts = z.astype(nu.dtype, copy=False), []
    for layout, items, pairs in zip(block.layouts, block.item_slices, block.pair_slices, strict=True):
        right = cavity(z, layout.annotator, nu[pairs])
        left = np.take(w[items].astype(nu.dtype, copy=False), layout.item, axis=0)
        factors, _ = layout.factors(log_theta, nu.dtype)
        # ŵ_e ∝ w_m / μ_e;  b_e(k, l) ∝ F_akl ŵ_e(k) z_n(l) / ν_e(l), normalised here because its sum is 1
        # only if ν_e is the undamped message of ŵ_e
        left /= messages(layout, factors, incoming[pairs])
        sums_of_beliefs = (messages(layout, factors.transpose(0, 2, 1), left) * right).sum(axis=1)
        left /= sums_of_beliefs[:, None]
        counts = factors * kernels.pair_counts(layout, left, right)
        parts.append((kernels.class_counts(layout, counts.astype(np.float64, copy=False)),))
    return total(parts)


def _round_step(
    block: PairBlock, rows: RoundRows, z: Array, log_theta: Array, damping: float, measure: bool
) -> tuple[AnnotatorCodes, Array, Array, tuple[float, float, float]]:
    """Return a block's terms of a round: its annotators and their Σ_e log ν_e(l), Σ_m w_mk, and three sums.

    The sums are Σ_m log Z_m, Σ_e log Z_e of the beliefs before the round, and the change of w.
    """
    w, nu, dtype = rows.w, rows.nu[: block.n_pairs], rows.nu.dtype
    # messages are 1 before the first round
    before = rows.nu_before[: block.n_pairs] if len(rows.nu_before) else np.ones(nu.shape)
    before = before.astype(dtype, copy=False)
    z = z.astype(dtype, copy=False)
    logits = np.zeros((block.n_codes, z.shape[1]))
    item_terms = pair_terms = 0.0
    limit = kernels.MAX_LOG_MESSAGE_SINGLE if dtype == np.float32 else kernels.MAX_LOG_MESSAGE
    shards = zip(block.layouts, block.item_slices, block.pair_slices, block.positions, strict=True)
    for layout, items, pairs, positions in shards:
        factors, scale = layout.factors(log_theta, dtype)
        incoming = cavity(z, layout.annotator, before[pairs])
        sums = row_sums(incoming)
        pair_term = -sum_of_logs(sums)  # Σ_e log Z_e = −Σ_e log s_e
        # Cavities are not normalised: z_n / ν_e sums to s_e. With F in [min F, 1], μ is in
        # [min F · min s, max s] and ν in [min F / max s, 1 / (min F · min s)].
        log_range = -math.log(factors.min(initial=1.0))
        low, high = math.log(sums.min(initial=1.0)), math.log(sums.max(initial=1.0))
        rescale = log_range + max(high, -low) > limit
        if rescale:  # if both cavities sum to 1, μ and ν are in [min F, 1]
            incoming /= sums[:, None]
            low = high = 0.0
        mu = messages(layout, factors, incoming)
        if len(rows.incoming):
            rows.incoming[pairs] = incoming
        del incoming  # its memory, which is cached, is reused for the next cavities
        log_prior = rows.log_psi if rows.log_psi.ndim == 1 else rows.log_psi[items]
        w[items], terms = layout.by_item.beliefs(mu, log_prior, max(log_range - low, high))
        outgoing = cavity(w[items].astype(dtype, copy=False), layout.item, mu)
        if rescale:
            outgoing /= row_sums(outgoing)[:, None]
        new = messages(layout, factors.transpose(0, 2, 1), outgoing, out=nu[pairs])
        max_log = log_range + max(high, -low)
        if damping:  # the old messages come from other factors
            new[...] = new ** (1 - damping) * before[pairs] ** damping
            max_log = limit
        # Messages to items are too large by the factor s, which is subtracted here; the factor of ν cancels
        # between Z_n and Z_e. The scale of an answer is in Z_m, Z_n and Z_e of each pair: once in total.
        offset = float(scale @ np.diff(layout.bounds)) + (0.0 if rescale else pair_term)
        item_terms += float(terms.sum()) + offset
        pair_terms += pair_term
        logits[positions] += layout.by_annotator.of_logs(new, max_log)
    change = float(rel_entr(w, rows.w_before).sum()) if measure else 0.0
    return block.codes, logits, column_sums(w), (item_terms, pair_terms, change)
