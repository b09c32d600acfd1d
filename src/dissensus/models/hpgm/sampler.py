"""Gibbs sampler of HPGM, a fully Bayesian version of the graphical model of Weerasooriya et al. (2021).

How a label is generated, with P classes, M items, N annotators, and at most K clusters of items and L of
annotators:

    φ0    ~ Dir(2/P, …)                  overall label distribution
    Φ_k   ~ Dir(a φ0)                    label distribution of item cluster k
    Θ_kl  ~ Dir(s Φ_k)                   ... as given by annotator cluster l
    π_nk  ~ Dir(r Θ_{k, z_n})            ... as given by annotator n
    ρ_m   ~ Dir(q Φ_{w_m})               label distribution specific to item m
    w_m   ~ ψ ~ Dir(γ/K, …)              cluster of item m; clusters that are not needed stay empty
    z_n   ~ Ω ~ Dir(τ/L, …)              cluster of annotator n
    o_e   ~ Bernoulli(λ)                 whether label e comes from the item's ρ_m
    y_e   ~ ρ_m if o_e, else π_{n, w_m}

with r, s, q ~ Gamma(1, 0.1), a ~ Gamma(2, 0.8), γ, τ ~ Gamma(1, 0.3) (shape, rate) and λ ~ Beta(1, 9). With
many items, γ ~ Gamma(300, 10) (``MANY_KINDS``), so that clusters of items have about equal weights. Items
vary continuously: with a small γ a few large clusters take all items, variation within them is lost, and
intervals are too narrow however long the chains run. Clusters of equal weight act as a grid.

Limits: r → ∞, λ = 0 is PGM; with L = 1 FMM; K = 1, λ = 1 smoothed counts; small r gives every annotator a
separate matrix, as in Dawid and Skene.

The population's answer about item m, in one draw of the sampler:

    Y_m = (1 − λ) Σ_n v_n E π_{n, w_m} + λ E ρ_m,   v_n the annotators' weights, which sum to 1.

π and ρ are integrated out wherever that is possible *exactly* for many labels at once; elsewhere they are
drawn for one step and discarded. Every step draws from a conditional distribution of the joint above, so the
posterior is invariant; nothing is approximate.

* w: items that share an annotator are coupled through π_n. Items are assigned to fixed blocks such that most
  annotators with few labels occur at most once in a block: for these π_n is integrated out, block by block.
  For the other ("busy") annotators π_n is drawn first; given it, items are independent.
* o: labels are independent given π and ρ, which are drawn; a π_nk with a single label is integrated out.
* z: annotators are independent given Θ, with π integrated out.
* Φ, Θ, φ0 and the concentrations: by table counts of the Chinese restaurant franchise (Antoniak 1974; Teh et
  al. 2006), with π, ρ, Θ and Φ integrated out on the way up and drawn on the way down.
"""

from __future__ import annotations

import itertools
from copy import copy
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import gammaln

from dissensus.numerics import Array

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.integer]
PriorPair = tuple[float, float]  # shape and rate of a Gamma prior, or the two parameters of a Beta

MIN_GAMMA_ALPHA = 0.1  # Dirichlets with a smaller sum are drawn on the log scale
MIN_HINT_SHARE = 1e-4  # floor of class shares in the weights of hints
MIN_SHARE = 1e-300  # floor of Dirichlet draws, so that logarithms are finite
LABELS_PER_BATCH = 1 << 13  # so that a table of labels × clusters fits in the cache
START_GROUPS = 6  # groups of items at the start of a chain; every second chain starts with all K
MIN_LONG_ROW = 150  # row length from which rows are added in place
MAX_TABULATED_COUNT = 24  # Γ(α + c) / Γ(α) is tabulated up to this count c


# ---- the labels ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ItemBlock:
    """Items whose clusters are drawn together, and their labels by annotators with one label in the block."""

    items: Ints  # (B,)
    rows: Ints  # (R,): row numbers of these labels
    item: Ints  # (R,)
    annotator: Ints  # (R,)
    cell: Ints  # (R,): annotator × P + label
    sums: csr_array  # (B, R): sums over the labels of each item


@dataclass(frozen=True, eq=False)
class Data:
    """Labels sorted by item, divided into blocks."""

    item: Ints  # (E,)
    annotator: Ints  # (E,)
    label: Ints  # (E,)
    M: int
    N: int
    P: int
    blocks: tuple[ItemBlock, ...]
    busy: Ints  # annotators with more than one label in some block
    busy_rows: Ints  # row numbers of their labels
    busy_sums: csr_array  # (M, busy × P): sums rows of the table of their π over the labels of each item
    load: Ints  # (N,): number of labels of each annotator
    hints: Array | None = None  # (M, P): evidence of the features, in labels above or below the average

    @classmethod
    def of(
        cls, item: Ints, annotator: Ints, label: Ints, M: int, N: int, P: int, n_blocks: int | None = None
    ) -> Data:
        """Divide sorted labels into blocks; ``n_blocks`` None depends on the annotators' loads."""
        load = np.bincount(annotator, minlength=N)
        if n_blocks is None:
            # Enough for annotators with few labels to occur at most once in each; at most 32. Annotators with
            # more labels determine their rows of π well, so that drawing π costs little.
            n_blocks = int(np.clip(np.quantile(load, 0.75) * 1.3 if len(load) else 1, 1, 32))
        block_of = assign_blocks(item, annotator, M, N, n_blocks)
        B = int(block_of.max(initial=0)) + 1
        is_busy = np.bincount(annotator * B + block_of[item], minlength=N * B).reshape(N, B).max(axis=1) > 1
        light, cell, blocks = ~is_busy[annotator], annotator * P + label, []
        for b in range(B):
            items = np.flatnonzero(block_of == b)
            rows = np.flatnonzero(light & (block_of[item] == b))
            sums = adder(np.searchsorted(items, item[rows]), len(items))
            blocks.append(ItemBlock(items, rows, item[rows], annotator[rows], cell[rows], sums))
        busy, rows = np.flatnonzero(is_busy), np.flatnonzero(~light)
        columns = (np.cumsum(is_busy) - 1)[annotator[rows]] * P + label[rows]
        sums = adder(item[rows], M, columns, len(busy) * P)
        return cls(item, annotator, label, M, N, P, tuple(blocks), busy, rows, sums, load)

    @classmethod
    def of_labels(cls, labels: Annotations, hints: Array | None = None) -> Data:
        """Divide annotations into blocks; ``hints`` (M, P) is the evidence of the items' features."""
        item, annotator = labels.item.astype(np.int64), labels.annotator.astype(np.int64)
        shape = labels.n_items, labels.n_annotators, labels.n_classes
        return replace(cls.of(item, annotator, labels.label.astype(np.int64), *shape), hints=hints)

    @cached_property
    def cell(self) -> Ints:
        """Index of each label in an (annotators, classes) table."""
        return self.annotator * self.P + self.label

    @cached_property
    def item_cell(self) -> Ints:
        """Index of each label in an (items, classes) table."""
        return self.item * self.P + self.label


def adder(sorted_codes: Ints, n: int, columns: Ints | None = None, n_columns: int | None = None) -> csr_array:
    """Return the (n, columns) matrix whose product with a table sums its rows by code.

    Entry e refers to row ``columns[e]``, or to row e without ``columns``.
    """
    entries = np.arange(len(sorted_codes)) if columns is None else columns
    shape = (n, len(entries) if n_columns is None else n_columns)
    starts = np.searchsorted(sorted_codes, np.arange(n + 1))
    return csr_array((np.ones(len(entries)), entries, starts), shape=shape)


def assign_blocks(item: Ints, annotator: Ints, M: int, N: int, n_blocks: int) -> Ints:
    """Return (M,) the block of every item, such that few annotators occur in a block twice.

    One by one, each item goes to the block that has the fewest of its annotators, the smallest one on ties.
    Annotators with more labels than there are blocks are ignored: they must occur twice in one.
    """
    block_of = np.zeros(M, dtype=np.int64)
    few = np.bincount(annotator, minlength=N)[annotator] <= n_blocks
    if n_blocks <= 1 or not few.any():
        return block_of
    present, size = np.zeros((n_blocks, N), dtype=bool), np.zeros(n_blocks)
    starts = np.searchsorted(item[few], np.arange(M + 1)).tolist()
    annotator = annotator[few]
    for m in range(M):
        people = annotator[starts[m] : starts[m + 1]]
        b = int(np.argmin(present[:, people].sum(axis=1) + size / (M + 1)))
        block_of[m] = b
        present[b, people] = True
        size[b] += 1
    return block_of


# ---- the state ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HyperPriors:
    """Hyperpriors: Gamma (shape, rate) of concentrations and hint trust, Beta of λ, Dir(phi0/P, …) of φ0."""

    r: PriorPair = (1.0, 0.1)
    s: PriorPair = (1.0, 0.1)
    q: PriorPair = (1.0, 0.1)
    a: PriorPair = (2.0, 0.8)
    gamma: PriorPair = (1.0, 0.3)
    tau: PriorPair = (1.0, 0.3)
    lam: PriorPair = (1.0, 9.0)
    trust: PriorPair = (2.0, 2.0)
    phi0: float = 2.0


FEW_KINDS = HyperPriors()
MANY_KINDS = HyperPriors(gamma=(300.0, 10.0))


@dataclass(frozen=True)
class Record:
    """Dataclass of arrays and numbers that is saved field by field."""

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """Return the fields as arrays named ``prefix.field``."""
        return {f"{prefix}.{field.name}": np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], prefix: str) -> Self:
        """Restore a record from the arrays of :meth:`to_arrays`."""
        values = [arrays[f"{prefix}.{field.name}"] for field in fields(cls)]
        return cls(*(value if value.ndim else value.item() for value in values))


@dataclass(frozen=True, eq=False)
class GibbsState(Record):
    """State of the Markov chain."""

    w: Ints  # (M,): cluster of each item
    z: Ints  # (N,): cluster of each annotator
    from_item: Bools  # (E,): o, whether the label comes from ρ_m
    theta: Array  # (K, L, P)
    phi: Array  # (K, P)
    phi0: Array  # (P,)
    psi: Array  # (K,), or (M, K) with a prior for each item
    omega: Array  # (L,)
    r: float
    s: float
    q: float
    a: float
    gamma: float
    tau: float
    lam: float
    trust: float = 1.0  # weight of hints


# ---- draws from distributions -------------------------------------------------------------------------


def draw_dirichlet(alpha: Array, rng: Generator, axis: int = -1) -> Array:
    """Draw from Dirichlets along ``axis``, as gammas divided by their sum.

    Gammas of very small shape underflow to 0, so they are drawn on the log scale: with U uniform,
    Gamma(α) = Gamma(α + 1) U^{1/α}.
    """
    if alpha.sum(axis=axis).min(initial=1.0) < MIN_GAMMA_ALPHA:
        logs = np.log(1.0 - rng.random(alpha.shape)) / np.maximum(alpha, MIN_SHARE)
        logs += np.log(rng.standard_gamma(alpha + 1.0))
        gammas = np.exp(logs - logs.max(axis=axis, keepdims=True))
    else:
        gammas = rng.standard_gamma(alpha)
    gammas = np.maximum(gammas, MIN_SHARE)
    return np.asarray(gammas / gammas.sum(axis=axis, keepdims=True))


def draw_categories(logits: Array, rng: Generator) -> Ints:
    """Draw one category per row, with probabilities proportional to exp(logits)."""
    columns = np.array(logits.T, order="C")  # summing few long rows is faster than many short ones
    columns -= columns.max(axis=0)
    heights = cumulative_rows(np.exp(columns, out=columns))
    return np.asarray((heights <= rng.random(len(logits)) * heights[-1]).sum(axis=0))


def cumulative_rows(table: Array) -> Array:
    """Return cumulative sums over the rows.

    Long rows are added in place: ``cumsum`` would go through the columns one by one.
    """
    if table.shape[1] < MIN_LONG_ROW:
        return table.cumsum(axis=0)
    for before, row in itertools.pairwise(table):
        row += before
    return table


def draw_tables(counts: Ints, alpha: Array, rng: Generator) -> Ints:
    """Draw the number of tables of ``counts`` customers, the i-th opening one with probability α / (α + i).

    Customers count from 0; counts and α are flat arrays of the same length (Antoniak 1974).
    """
    cell = np.arange(len(counts)).repeat(counts)
    i, alpha = np.arange(len(cell)) - (counts.cumsum() - counts).take(cell), alpha.take(cell)
    return np.bincount(cell[rng.random(len(cell)) * (alpha + i) < alpha], minlength=len(counts))


def draw_concentration(value: float, prior: PriorPair, tables: int, sizes: Ints, rng: Generator) -> float:
    """Draw a concentration c given its total number of tables T and the sizes n_j of its restaurants.

    p(c | T, n) ∝ p(c) c^T Π_j Γ(c) / Γ(c + n_j), and Γ(c) / Γ(c + n) ∝ ∫ η^{c−1} (1−η)^{n−1} dη: with
    η_j ~ Beta(c, n_j), c ~ Gamma(shape + T, rate − Σ_j log η_j). As Beta(c, n) = Π_{i<n} Beta(c + i, 1), and
    −log Beta(c + i, 1) is exponential with rate c + i, the sum needs one gamma for each i, whose shape is the
    number of restaurants with more than i customers.
    """
    if not tables:
        return float(max(rng.gamma(prior[0]) / prior[1], MIN_SHARE))
    larger = np.bincount(sizes)[::-1].cumsum()[::-1][1:]  # larger[i] = #{j: n_j > i}
    minus_log_eta = (rng.standard_gamma(larger) / (value + np.arange(len(larger)))).sum()
    return float(max(rng.gamma(prior[0] + tables) / (prior[1] + minus_log_eta), MIN_SHARE))


def sum_log_rising(who: Ints, n: int, cell: Ints, counts: Ints, alpha: Array) -> Array:
    """Return (n, C) Σ_{e: who_e = i} log Γ(α_{cell_e, c} + counts_e) − log Γ(α_{cell_e, c}).

    ``who`` is sorted, ``alpha`` is (cells, C). Small counts are looked up in one table.
    """
    top = min(int(counts.max(initial=0)), MAX_TABULATED_COUNT)
    # table[c − 1] = log α + … + log(α + c − 1)
    logs = np.log(alpha + np.arange(top)[:, None, None])
    table = cumulative_rows(logs.reshape(top, alpha.size)).reshape(-1, alpha.shape[1])
    small = counts <= MAX_TABULATED_COUNT
    columns = (counts[small] - 1) * len(alpha) + cell[small]
    total = np.asarray(adder(who[small], n, columns, len(table)) @ table)
    if not small.all():
        big = ~small
        values = gammaln(alpha.take(cell[big], axis=0) + counts[big, None])
        values -= gammaln(alpha).take(cell[big], axis=0)
        total += adder(who[big], n) @ values
    return total


def softmax(logits: Array) -> Array:
    """Return exp(logits) with rows normalised to sum 1."""
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def ordered_product(left: Array, right: Array) -> Array:
    """Return left @ right, summed in an order that does not depend on the library or number of threads."""
    return np.asarray(np.einsum("ik,kp->ip", left, right))


# ---- counts -------------------------------------------------------------------------------------------


def annotator_counts(data: Data, w: Ints, from_item: Bools, K: int) -> Ints:
    """Return (N, P, K) counts of label p by annotator n in cluster k, without labels from ρ."""
    N, P = data.N, data.P
    return np.bincount((data.cell * K + w.take(data.item))[~from_item], minlength=N * P * K).reshape(N, P, K)


def item_label_counts(data: Data, from_item: Bools) -> Ints:
    """Return (M, P) counts of the labels that come from ρ_m."""
    return np.bincount(data.item_cell[from_item], minlength=data.M * data.P).reshape(data.M, data.P)


def row_priors(r_theta: Array, z: Ints) -> Array:
    """Return (N, P, K) r Θ_{k, z_n, p}, the prior pseudo-counts of every π_nk."""
    return np.ascontiguousarray(r_theta.transpose(1, 2, 0)).take(z, axis=0)


# ---- the steps ----------------------------------------------------------------------------------------


def draw_clusters(
    data: Data, rows: Array, sizes: Array, psi: Array, q_phi: Array, w: Ints, from_item: Bools, rng: Generator
) -> Ints:
    """Draw the cluster of every item, with ρ integrated out, and π too except for busy annotators.

    ``rows`` (N, P, K) are the prior pseudo-counts of π, ``sizes`` (N, K) their sums; ``q_phi`` (K, P) is ρ's.
    """
    K, w = len(q_phi), w.copy()
    counts = annotator_counts(data, w, from_item, K)
    from_annotator = (~from_item).astype(np.float64)
    # log P(w_m = k | …) = log ψ_k + log P(from_item labels | q Φ_k) + Σ_{busy n} log π_{n k y}
    logits = np.log(psi) + item_label_scores(data, q_phi, from_item)
    if len(data.busy):
        log_pi = np.log(draw_dirichlet(rows[data.busy] + counts[data.busy], rng, axis=1)).reshape(-1, K)
        busy_sums = copy(data.busy_sums)  # rebuilding it would take SciPy as long as the product
        busy_sums.data = from_annotator[data.busy_rows]
        logits += busy_sums @ log_pi
    totals = sizes + counts.sum(axis=1)
    prior, cell_counts = rows.reshape(-1, K), counts.reshape(-1, K).astype(np.float64)
    for block in data.blocks:
        if not len(block.rows):
            w[block.items] = draw_categories(logits.take(block.items, axis=0), rng)
            continue
        n, cell, weight = block.annotator, block.cell, from_annotator[block.rows]
        old = w[block.item]
        cell_counts[cell, old] -= weight  # annotators occur once in a block: no cell twice
        totals[n, old] = np.maximum(totals[n, old] - weight, MIN_SHARE)
        # … + Σ_{other n} log (r Θ_{k z_n y} + n_nky) / (r + n_nk), counted without item m
        scores = np.log((prior.take(cell, axis=0) + cell_counts.take(cell, axis=0)) / totals.take(n, axis=0))
        scores[from_item[block.rows]] = 0
        w[block.items] = draw_categories(logits.take(block.items, axis=0) + block.sums @ scores, rng)
        new = w[block.item]
        cell_counts[cell, new] += weight
        totals[n, new] += weight
    return w


def item_label_scores(data: Data, q_phi: Array, from_item: Bools) -> Array:
    """Return (M, K) log P(labels of item m from ρ | cluster k), up to a constant."""
    counts = item_label_counts(data, from_item)
    cells = np.flatnonzero(counts)
    m, p = cells // data.P, cells % data.P
    return sum_log_rising(m, data.M, p, counts.ravel()[cells], np.ascontiguousarray(q_phi.T))


def draw_label_sources(
    data: Data, rows: Array, sizes: Array, q_phi: Array, lam: float, w: Ints, from_item: Bools, rng: Generator
) -> Bools:
    """Draw which labels come from ρ: λ ρ_{m y} against (1 − λ) π_{n w_m y}."""
    rho = draw_dirichlet(q_phi.take(w, axis=0) + item_label_counts(data, from_item), rng)
    by_item = lam * rho.take(data.item_cell)
    by_annotator = (1 - lam) * draw_label_probabilities(data, rows, sizes, w, from_item, rng)
    return np.asarray(rng.random(len(from_item)) * (by_item + by_annotator) < by_item)


def draw_label_probabilities(
    data: Data, rows: Array, sizes: Array, w: Ints, from_item: Bools, rng: Generator
) -> Array:
    """Draw (E,) π_{n w_m y} of every label; its expectation where a label is alone in its π_nk.

    Only the classes that occur are drawn separately; the others of a Dirichlet are drawn as one.
    """
    N, P, K = rows.shape
    cell = data.cell * K + w.take(data.item)
    all_counts = np.bincount(cell, minlength=N * P * K)  # labels from ρ included
    occupied = np.flatnonzero(all_counts)
    pair_of = occupied // (P * K) * K + occupied % K
    counts = np.bincount(cell[~from_item], minlength=N * P * K)[occupied]
    prior, totals = rows.ravel()[occupied], sizes.ravel()
    rest = np.maximum(totals - np.bincount(pair_of, prior, minlength=N * K), 0.0)
    several = all_counts.reshape(N, P, K).sum(axis=1).ravel() > 1
    gammas = np.zeros(len(occupied))
    drawn = several[pair_of]
    gammas[drawn] = np.maximum(rng.standard_gamma(prior[drawn] + counts[drawn]), MIN_SHARE)
    sums = np.bincount(pair_of, gammas, minlength=N * K).astype(np.float64)
    sums[several] += rng.standard_gamma(rest[several])
    sums[~several] = totals[~several]
    pi = np.zeros(N * P * K)
    pi[occupied] = np.where(drawn, gammas, prior) / sums[pair_of]
    return np.asarray(pi.take(cell))


def draw_annotator_clusters(counts: Ints, r_theta: Array, omega: Array, rng: Generator) -> Ints:
    """Draw the cluster of every annotator, with π integrated out.

    log P(z_n = l | …) = log Ω_l + Σ_kp log Γ(r Θ_klp + n_nkp) − log Γ(r Θ_klp) + constant.
    """
    N, P, K = counts.shape
    cells = np.flatnonzero(counts)
    n, kind = cells // (P * K), cells % (P * K)  # kind = p K + k
    alpha = r_theta.transpose(2, 0, 1).reshape(P * K, -1)
    return draw_categories(np.log(omega) + sum_log_rising(n, N, kind, counts.ravel()[cells], alpha), rng)


def draw_measures(
    data: Data, state: GibbsState, priors: HyperPriors, counts: Ints, rng: Generator
) -> GibbsState:
    """Draw r, s, q, a, φ0, Φ and Θ given the clusters and the sources of the labels.

    On the way up, labels open tables in the restaurants of π; these are customers in Θ's restaurants, and
    their tables, with those of labels from ρ, customers in Φ's. On the way down, values are drawn.
    """
    K, L, P = state.theta.shape
    # t_klp: tables of π_nk of the annotators in l
    cells = np.flatnonzero(counts)
    n, p, k = cells // (P * K), cells // K % P, cells % K
    where = (k * L + state.z[n]) * P + p
    t = draw_tables(counts.ravel()[cells], state.r * state.theta.ravel()[where], rng)
    t = np.bincount(where, t, minlength=K * L * P).astype(np.int64).reshape(K, L, P)
    r = draw_concentration(state.r, priors.r, int(t.sum()), counts.sum(axis=1).ravel(), rng)
    # u_kp: tables of Θ_kl, over l
    u = draw_tables(t.ravel(), np.repeat(state.s * state.phi, L, axis=0).ravel(), rng).reshape(K, L, P)
    s = draw_concentration(state.s, priors.s, int(u.sum()), t.sum(axis=2).ravel(), rng)
    # v_kp: tables of ρ_m, over the items of k
    item_counts = item_label_counts(data, state.from_item)
    cells = np.flatnonzero(item_counts)
    m, p = cells // P, cells % P
    where = state.w[m] * P + p
    v = draw_tables(item_counts.ravel()[cells], state.q * state.phi.ravel()[where], rng)
    v = np.bincount(where, v, minlength=K * P).astype(np.int64).reshape(K, P)
    q = draw_concentration(state.q, priors.q, int(v.sum()), item_counts.sum(axis=1), rng)
    # x_kp: tables of Φ_k
    served = u.sum(axis=1) + v
    x = draw_tables(served.ravel(), (state.a * state.phi0)[np.arange(K * P) % P], rng).reshape(K, P)
    a = draw_concentration(state.a, priors.a, int(x.sum()), served.sum(axis=1), rng)
    # φ0 ~ Dir(2/P + Σ_k x_k), Φ_k ~ Dir(a φ0 + Σ_l u_kl + v_k), Θ_kl ~ Dir(s Φ_k + t_kl)
    phi0 = draw_dirichlet(priors.phi0 / P + x.sum(axis=0).astype(np.float64), rng)
    phi = draw_dirichlet(a * phi0 + served, rng)
    theta = draw_dirichlet(s * phi[:, None, :] + t, rng)
    return replace(state, r=r, s=s, q=q, a=a, phi0=phi0, phi=phi, theta=theta)


def draw_weights(codes: Ints, size: int, c: float, prior: PriorPair, rng: Generator) -> tuple[float, Array]:
    """Draw γ (``c``) and ψ of a finite mixture: weights ~ Dir(γ/K, …), integrated out while γ is drawn."""
    counts = np.bincount(codes, minlength=size)
    tables = draw_tables(counts, np.full(size, c / size), rng)
    c = draw_concentration(c, prior, int(tables.sum()), np.array([len(codes)]), rng)
    return c, draw_dirichlet(np.asarray(c / size + counts, dtype=np.float64), rng)


def draw_lambda(from_item: Bools, prior: PriorPair, rng: Generator) -> float:
    """Draw λ ~ Beta(1 + labels from ρ, 9 + the others)."""
    return float(rng.beta(prior[0] + from_item.sum(), prior[1] + (~from_item).sum()))


# ---- one sweep ----------------------------------------------------------------------------------------


def sweep(state: GibbsState, data: Data, rng: Generator, priors: HyperPriors = FEW_KINDS) -> GibbsState:
    """Draw every part of the state once, given the others."""
    K, L, _ = state.theta.shape
    q_phi, r_theta = np.maximum(state.q * state.phi, MIN_SHARE), np.maximum(state.r * state.theta, MIN_SHARE)
    rows, sizes = row_priors(r_theta, state.z), np.full((data.N, K), state.r)
    psi, trust = state.psi, state.trust
    if data.hints is not None:
        psi = hinted_weights(psi, data.hints, trust, state.phi)
    w = draw_clusters(data, rows, sizes, psi, q_phi, state.w, state.from_item, rng)
    if data.hints is not None:
        trust = draw_trust(data.hints, state, w, priors.trust, rng)
    from_item = draw_label_sources(data, rows, sizes, q_phi, state.lam, w, state.from_item, rng)
    counts = annotator_counts(data, w, from_item, K)
    z = draw_annotator_clusters(counts, r_theta, state.omega, rng)
    state = draw_measures(data, replace(state, w=w, from_item=from_item, z=z), priors, counts, rng)
    gamma, psi = draw_weights(w, K, state.gamma, priors.gamma, rng)
    tau, omega = draw_weights(z, L, state.tau, priors.tau, rng)
    lam = draw_lambda(from_item, priors.lam, rng)
    return replace(state, gamma=gamma, psi=psi, tau=tau, omega=omega, lam=lam, trust=trust)


# ---- hints from features ------------------------------------------------------------------------------


def hinted_weights(psi: Array, hints: Array, trust: float, phi: Array) -> Array:
    """Return (M, K) cluster weights by item: P(w_m = k) ∝ ψ_k Π_p Φ_kp^{t H_mp}.

    H_mp is the number of labels of class p above average that the features of item m count as, t their trust.
    """
    logs = np.log(np.maximum(phi, MIN_HINT_SHARE))
    logits = np.log(np.maximum(psi, MIN_SHARE)) + trust * ordered_product(hints, logs.T)
    return np.maximum(softmax(logits), MIN_SHARE)


def draw_trust(hints: Array, state: GibbsState, w: Ints, prior: PriorPair, rng: Generator) -> float:
    """Draw t given the clusters, by one Metropolis step on log t: Π_m P(w_m | t) Gamma(t)."""
    proposed = state.trust * np.exp(0.3 * rng.standard_normal())

    def log_density(trust: float) -> float:
        weights = hinted_weights(state.psi, hints, trust, state.phi)[np.arange(len(w)), w]
        return float(np.log(weights).sum() + prior[0] * np.log(trust) - prior[1] * trust)

    accepted = np.log(1.0 - rng.random()) < log_density(proposed) - log_density(state.trust)
    return float(proposed if accepted else state.trust)


# ---- start of a chain ---------------------------------------------------------------------------------


def start(data: Data, K: int, L: int, priors: HyperPriors, rng: Generator, number: int = 0) -> GibbsState:
    """Return the first state of chain ``number``: items grouped by votes, annotators in clusters.

    Chains start from few groups of items or from all K in turn, with annotators in one cluster or in all:
    overdispersed starts make agreement of chains meaningful. From few groups the sampler finds more within
    some sweeps; many groups take long to merge.
    """
    M, N, P = data.M, data.N, data.P
    votes = np.bincount(data.item_cell, minlength=M * P).reshape(M, P).astype(np.float64)
    w = cluster_counts(votes, K if number % 2 else min(K, START_GROUPS), rng)
    z = rng.integers(L, size=N) if number // 2 % 2 else np.zeros(N, dtype=np.int64)
    from_item = np.zeros(len(data.item), dtype=bool)
    phi0 = (votes.sum(axis=0) + 1.0) / (votes.sum() + P)
    measures = np.tile(phi0, (K, L, 1)), np.tile(phi0, (K, 1)), phi0, np.full(K, 1 / K), np.full(L, 1 / L)
    numbers = 5.0, 5.0, 5.0, 2.0, 3.0, 3.0, 0.05  # r, s, q, a, γ, τ, λ
    state = GibbsState(w, z, from_item, *measures, *numbers)
    return draw_measures(data, state, priors, annotator_counts(data, w, from_item, K), rng)


def extend_state(
    state: GibbsState, item: Codes, annotator: Codes, rows: Ints, shape: tuple[int, int, int], rng: Generator
) -> GibbsState:
    """Extend a state to more labels; ``item``, ``annotator`` and ``rows`` are the new codes of the old ones.

    ``shape`` is the number of items, annotators and labels. New items and annotators start in a cluster drawn
    from ψ or Ω, and new labels come from their annotators.
    """
    w = rng.choice(len(state.psi), size=shape[0], p=state.psi / state.psi.sum())
    z = rng.choice(len(state.omega), size=shape[1], p=state.omega / state.omega.sum())
    from_item = np.zeros(shape[2], dtype=bool)
    w[item], z[annotator], from_item[rows] = state.w, state.z, state.from_item
    return replace(state, w=w, z=z, from_item=from_item)


def cluster_counts(votes: Array, size: int, rng: Generator, n_rounds: int = 8) -> Ints:
    """Group rows of counts: hard EM of a mixture of ``size`` multinomials from randomly chosen rows."""
    M, P = votes.shape
    smooth = votes.sum(axis=0) / max(votes.sum(), 1.0) + 1e-3
    centres = votes[rng.choice(M, size=size, replace=size > M)] + smooth
    group = np.zeros(M, dtype=np.int64)
    for _ in range(n_rounds):
        logs = np.log(centres / centres.sum(axis=1, keepdims=True))
        fit = np.zeros((M, size))
        for p in range(P):
            fit += votes[:, [p]] * logs[:, p]
        # break ties at random: equal rows must not all go to the first of several groups
        fit += 1e-6 * rng.random((M, size))
        group = np.argmax(fit, axis=1)
        centres = np.tile(smooth, (size, 1))
        for p in range(P):
            centres[:, p] += np.bincount(group, votes[:, p], minlength=size)
    return group
