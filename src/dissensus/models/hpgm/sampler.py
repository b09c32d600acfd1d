"""HPGM: the graphical model of Weerasooriya et al. (2021) made fully Bayesian, sampled by Gibbs.

How a label is born. There are P classes, M items, N annotators, and at most K clusters of items and L of
annotators.

    φ0    ~ Dir(2/P, …)                  what labels are like at all
    Φ_k   ~ Dir(a φ0)                    what labels are like in item cluster k
    Θ_kl  ~ Dir(s Φ_k)                   ... when annotators of cluster l give them
    π_nk  ~ Dir(r Θ_{k, z_n})            ... when annotator n gives them: everyone's own ways
    ρ_m   ~ Dir(q Φ_{w_m})               what is special about item m itself
    w_m   ~ ψ ~ Dir(γ/K, …)              clusters of items; those that are not needed stay empty
    z_n   ~ Ω ~ Dir(τ/L, …)              clusters of annotators
    o_e   ~ Bernoulli(λ)                 is label e the item's *own*?
    y_e   ~ ρ_m if o_e, else π_{n, w_m}

with r, s, q ~ Gamma(1, 0.1), a ~ Gamma(2, 0.8), γ, τ ~ Gamma(1, 0.3) (shape, rate) and λ ~ Beta(1, 9).
Where there are many items, γ ~ Gamma(300, 10) (``MANY_KINDS``): near 30, so that the clusters of items are of
about even weight. What people say of items varies from item to item without steps; with a small γ a few large
clusters take all items, what varies within them is lost, and intervals are too narrow however long the chains
run. Clusters of even weight are the points of a grid over what people may say.

Limits: r → ∞, λ = 0 is PGM; with L = 1 FMM; K = 1, λ = 1 smoothed counts; small r gives every annotator a
matrix of their own, as in Dawid and Skene.

What the population would answer about item m, in one draw of the sampler:

    Y_m = (1 − λ) Σ_n v_n E π_{n, w_m} + λ E ρ_m,   v_n the annotators' weights, in sum 1.

How it is sampled. π and ρ are integrated out wherever that can be done *exactly* for many labels at once;
where it cannot, they are drawn for the length of one step and forgotten. Every step draws from a conditional
distribution of the joint above, so the sampler leaves the posterior as it is; nothing in it is approximate.

* w: items that share an annotator are tied through π_n. Items are dealt into fixed blocks such that most
  annotators with few labels meet a block at most once: for these π_n is integrated out, block after block. Of
  the others ("busy") π_n is drawn first; given it, items are independent.
* o: labels are independent given π and ρ, which are drawn; a π_nk of one label alone is integrated out.
* z: annotators are independent given Θ, with π integrated out.
* Φ, Θ, φ0 and the concentrations: by tables of the Chinese restaurant (Antoniak 1974; Teh et al. 2006), π, ρ,
  Θ and Φ integrated out on the way up and drawn on the way down.
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

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Codes = NDArray[np.integer]

SMALL_ALPHA = 0.1  # Dirichlets with less than this in all are drawn by logarithms
HINT_FLOOR = 1e-4  # the least share of a class in a cluster that hints are weighed by
TINY = 1e-300  # the least share a Dirichlet draw may have, so that logarithms stay finite
PIECE = 1 << 13  # labels at a time, so that a table of labels and clusters fits a cache
FEW_GROUPS = 6  # of items, when a chain starts; every second one starts with all K
LONG_ROW = 150  # from which tables are added up row by row
SMALL_COUNT = 24  # Γ(α + c) / Γ(α) is tabulated up to this count c, and computed beyond


# ---- the labels ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Block:
    """Items whose clusters are drawn at once, and their labels by annotators who meet the block once."""

    items: Ints  # (B,)
    rows: Ints  # (R,): numbers of these labels
    item: Ints  # (R,): of each of them
    annotator: Ints  # (R,)
    cell: Ints  # (R,): annotator P + label
    sums: csr_array  # (B, R): adds up the labels of each item


@dataclass(frozen=True, eq=False)
class Data:
    """The labels, sorted by item, and how the sampler cuts them up."""

    item: Ints  # (E,)
    annotator: Ints  # (E,)
    label: Ints  # (E,)
    M: int
    N: int
    P: int
    blocks: tuple[Block, ...]
    busy: Ints  # annotators that meet some block more than once
    busy_rows: Ints  # numbers of their labels
    busy_sums: csr_array  # (M, busy P): adds up, for the labels of each item, rows of the table of their π
    load: Ints  # (N,): labels of each annotator
    hints: Floats | None = None  # (M, P): what features say of each item, as labels above or below the usual

    @classmethod
    def of(
        cls, item: Ints, annotator: Ints, label: Ints, M: int, N: int, P: int, n_blocks: int | None = None
    ) -> Data:
        """Cut sorted labels into blocks; ``n_blocks`` None takes what suits the annotators' loads."""
        load = np.bincount(annotator, minlength=N)
        if n_blocks is None:
            # Enough that annotators with few labels can meet each at most once; at most 32. Annotators of
            # more labels have rows of π that their labels fix well, and lose little by being drawn.
            n_blocks = int(np.clip(np.quantile(load, 0.75) * 1.3 if len(load) else 1, 1, 32))
        block_of = deal_items(item, annotator, M, N, n_blocks)
        B = int(block_of.max(initial=0)) + 1
        meetings = np.bincount(annotator * B + block_of[item], minlength=N * B).reshape(N, B)
        is_busy = meetings.max(axis=1) > 1
        light, cell, blocks = ~is_busy[annotator], annotator * P + label, []
        for b in range(B):
            items = np.flatnonzero(block_of == b)
            rows = np.flatnonzero(light & (block_of[item] == b))
            sums = adder(np.searchsorted(items, item[rows]), len(items))
            blocks.append(Block(items, rows, item[rows], annotator[rows], cell[rows], sums))
        busy, rows = np.flatnonzero(is_busy), np.flatnonzero(~light)
        columns = (np.cumsum(is_busy) - 1)[annotator[rows]] * P + label[rows]
        sums = adder(item[rows], M, columns, len(busy) * P)
        return cls(item, annotator, label, M, N, P, tuple(blocks), busy, rows, sums, load)

    @classmethod
    def of_labels(cls, labels: Annotations, hints: Floats | None = None) -> Data:
        """Cut annotations into blocks; ``hints`` (M, P) is what features say of their items."""
        item, annotator = labels.item.astype(np.int64), labels.annotator.astype(np.int64)
        shape = labels.n_items, labels.n_annotators, labels.n_classes
        return replace(cls.of(item, annotator, labels.label.astype(np.int64), *shape), hints=hints)

    @cached_property
    def cell(self) -> Ints:
        """(E,): the place of each label in a table of annotators and classes."""
        return self.annotator * self.P + self.label

    @cached_property
    def item_cell(self) -> Ints:
        """(E,): the place of each label in a table of items and classes."""
        return self.item * self.P + self.label


def adder(sorted_codes: Ints, n: int, columns: Ints | None = None, n_columns: int | None = None) -> csr_array:
    """(n, columns): the matrix whose product with a table adds up the rows that each code has.

    Without ``columns``, entry e has row e.
    """
    entries = np.arange(len(sorted_codes)) if columns is None else columns
    shape = (n, len(entries) if n_columns is None else n_columns)
    starts = np.searchsorted(sorted_codes, np.arange(n + 1))
    return csr_array((np.ones(len(entries)), entries, starts), shape=shape)


def deal_items(item: Ints, annotator: Ints, M: int, N: int, n_blocks: int) -> Ints:
    """(M,): a block for every item, such that few annotators meet a block twice.

    One after the other, each item goes where the fewest of its annotators have been; among equals to the
    smallest block. Annotators with more labels than blocks are not looked at: they must meet one twice.
    """
    place = np.zeros(M, dtype=np.int64)
    few = np.bincount(annotator, minlength=N)[annotator] <= n_blocks
    if n_blocks <= 1 or not few.any():
        return place
    been = np.zeros((n_blocks, N), dtype=bool)
    size = np.zeros(n_blocks)
    starts = np.searchsorted(item[few], np.arange(M + 1)).tolist()
    who = annotator[few]
    for m in range(M):
        mine = who[starts[m] : starts[m + 1]]
        b = int(np.argmin(been[:, mine].sum(axis=1) + size / (M + 1)))
        place[m] = b
        been[b, mine] = True
        size[b] += 1
    return place


# ---- the state ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Priors:
    """Hyperpriors: Gamma (shape, rate) of concentrations and trust, Beta of λ, Dir(phi0/P, …) of φ0."""

    r: tuple[float, float] = (1.0, 0.1)
    s: tuple[float, float] = (1.0, 0.1)
    q: tuple[float, float] = (1.0, 0.1)
    a: tuple[float, float] = (2.0, 0.8)
    gamma: tuple[float, float] = (1.0, 0.3)
    tau: tuple[float, float] = (1.0, 0.3)
    lam: tuple[float, float] = (1.0, 9.0)
    trust: tuple[float, float] = (2.0, 2.0)
    phi0: float = 2.0


PRIORS = Priors()
MANY_KINDS = Priors(gamma=(300.0, 10.0))


@dataclass(frozen=True)
class Record:
    """A dataclass of arrays and numbers, which a file keeps under the names of its fields."""

    def to_arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The fields as arrays named ``prefix.field``."""
        return {f"{prefix}.{field.name}": np.asarray(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]], prefix: str) -> Self:
        """Restore what :meth:`to_arrays` gave."""
        values = [arrays[f"{prefix}.{field.name}"] for field in fields(cls)]
        return cls(*(value if value.ndim else value.item() for value in values))


@dataclass(frozen=True, eq=False)
class State(Record):
    """Everything the sampler remembers from one sweep to the next."""

    w: Ints  # (M,): cluster of each item
    z: Ints  # (N,): cluster of each annotator
    own: Bools  # (E,): is the label the item's own?
    theta: Floats  # (K, L, P)
    phi: Floats  # (K, P)
    phi0: Floats  # (P,)
    psi: Floats  # (K,), or (M, K) where items have priors of their own
    omega: Floats  # (L,)
    r: float
    s: float
    q: float
    a: float
    gamma: float
    tau: float
    lam: float
    trust: float = 1.0  # in hints


# ---- draws from distributions -------------------------------------------------------------------------


def draw_dirichlet(alpha: Floats, rng: Generator, axis: int = -1) -> Floats:
    """Dirichlet draws along ``axis``: independent gammas over their sum.

    Gammas of very small shape are all 0 in floating point; their logarithms are not: with U uniform,
    Gamma(α) = Gamma(α + 1) U^{1/α}.
    """
    if alpha.sum(axis=axis).min(initial=1.0) < SMALL_ALPHA:
        logs = np.log(1.0 - rng.random(alpha.shape)) / np.maximum(alpha, TINY)
        logs += np.log(rng.standard_gamma(alpha + 1.0))
        gammas = np.exp(logs - logs.max(axis=axis, keepdims=True))
    else:
        gammas = rng.standard_gamma(alpha)
    gammas = np.maximum(gammas, TINY)
    return np.asarray(gammas / gammas.sum(axis=axis, keepdims=True))


def draw_categories(logits: Floats, rng: Generator) -> Ints:
    """One category a row, with probabilities in proportion to exp(logits)."""
    columns = np.array(logits.T, order="C")  # long rows add up faster than many short ones
    columns -= columns.max(axis=0)
    heights = rising(np.exp(columns, out=columns))
    marks = rng.random(len(logits)) * heights[-1]
    return np.asarray((heights <= marks).sum(axis=0))


def rising(table: Floats) -> Floats:
    """Each row the sum of those up to it.

    Long rows are added in place, one after the other: cumsum would go through the columns one by one.
    """
    if table.shape[1] < LONG_ROW:
        return table.cumsum(axis=0)
    for before, row in itertools.pairwise(table):
        row += before
    return table


def draw_tables(counts: Ints, alpha: Floats, rng: Generator) -> Ints:
    """How many tables ``counts`` customers open when the i-th (from 0) opens one with chance α / (α + i).

    Counts and α are flat arrays of the same length (Antoniak 1974).
    """
    cell = np.arange(len(counts)).repeat(counts)
    first = (counts.cumsum() - counts).take(cell)
    i, alpha = np.arange(len(cell)) - first, alpha.take(cell)
    opens = rng.random(len(cell)) * (alpha + i) < alpha
    return np.bincount(cell[opens], minlength=len(counts))


def draw_concentration(
    value: float, prior: tuple[float, float], tables: int, sizes: Ints, rng: Generator
) -> float:
    """A concentration c given all its tables T and the sizes n_j of the restaurants it rules.

    p(c | T, n) ∝ p(c) c^T Π_j Γ(c) / Γ(c + n_j), and Γ(c) / Γ(c + n) ∝ ∫ η^{c−1} (1−η)^{n−1} dη: with
    η_j ~ Beta(c, n_j), c ~ Gamma(shape + T, rate − Σ_j log η_j). As Beta(c, n) = Π_{i<n} Beta(c + i, 1), and
    −log Beta(c + i, 1) is exponential with rate c + i, the sum needs one gamma for each i, whose shape is the
    number of restaurants with more than i customers.
    """
    if not tables:
        return float(max(rng.gamma(prior[0]) / prior[1], TINY))
    larger = np.bincount(sizes)[::-1].cumsum()[::-1][1:]  # larger[i] = #{j: n_j > i}
    minus_log_eta = (rng.standard_gamma(larger) / (value + np.arange(len(larger)))).sum()
    return float(max(rng.gamma(prior[0] + tables) / (prior[1] + minus_log_eta), TINY))


def summed_log_rising(who: Ints, n: int, cell: Ints, counts: Ints, alpha: Floats) -> Floats:
    """(n, C): Σ over entries e with who_e = i of log Γ(α_{cell_e, c} + counts_e) − log Γ(α_{cell_e, c}).

    ``who`` is sorted, ``alpha`` is (cells, C). Small counts are read from one table, so that a logarithm is
    taken once.
    """
    top = min(int(counts.max(initial=0)), SMALL_COUNT)
    # table[c − 1] = log α + … + log(α + c − 1)
    logs = np.log(alpha + np.arange(top)[:, None, None])
    table = rising(logs.reshape(top, alpha.size)).reshape(-1, alpha.shape[1])
    small = counts <= SMALL_COUNT
    columns = (counts[small] - 1) * len(alpha) + cell[small]
    total = np.asarray(adder(who[small], n, columns, len(table)) @ table)
    if not small.all():
        big = ~small
        values = gammaln(alpha.take(cell[big], axis=0) + counts[big, None])
        values -= gammaln(alpha).take(cell[big], axis=0)
        total += adder(who[big], n) @ values
    return total


def shares_of(logits: Floats) -> Floats:
    """exp(logits), every row in sum 1."""
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def product(left: Floats, right: Floats) -> Floats:
    """left @ right for a few columns, by a sum whose order no library or number of threads changes."""
    return np.asarray(np.einsum("ik,kp->ip", left, right))


# ---- counts -------------------------------------------------------------------------------------------


def annotator_counts(data: Data, w: Ints, own: Bools, K: int) -> Ints:
    """(N, P, K): how often annotator n gave label p to items of cluster k, own labels left out."""
    N, P = data.N, data.P
    cells = (data.cell * K + w.take(data.item))[~own]
    return np.bincount(cells, minlength=N * P * K).reshape(N, P, K)


def own_counts(data: Data, own: Bools) -> Ints:
    """(M, P): how many own labels of each class every item has."""
    return np.bincount(data.item_cell[own], minlength=data.M * data.P).reshape(data.M, data.P)


def row_priors(r_theta: Floats, z: Ints) -> Floats:
    """(N, P, K): r Θ_{k, z_n, p}, the prior pseudo-counts of every π_nk."""
    return np.ascontiguousarray(r_theta.transpose(1, 2, 0)).take(z, axis=0)


# ---- the steps ----------------------------------------------------------------------------------------


def draw_clusters(
    data: Data, rows: Floats, sizes: Floats, psi: Floats, q_phi: Floats, w: Ints, own: Bools, rng: Generator
) -> Ints:
    """The cluster of every item, ρ integrated out, π too except for the busy annotators.

    ``rows`` (N, P, K) are the prior pseudo-counts of π, ``sizes`` (N, K) their sums; ``q_phi`` (K, P) is ρ's.
    """
    K = len(q_phi)
    w = w.copy()
    counts = annotator_counts(data, w, own, K)
    kept = (~own).astype(np.float64)
    # log P(w_m = k | …) = log ψ_k + log P(own labels | q Φ_k) + Σ_{busy n} log π_{n k y}
    logits = np.log(psi) + own_scores(data, q_phi, own)
    if len(data.busy):
        log_pi = np.log(draw_dirichlet(rows[data.busy] + counts[data.busy], rng, axis=1)).reshape(-1, K)
        busy_sums = copy(data.busy_sums)  # SciPy would take as long to build it anew as for the product
        busy_sums.data = kept[data.busy_rows]
        logits += busy_sums @ log_pi
    totals = sizes + counts.sum(axis=1)
    prior, given = rows.reshape(-1, K), counts.reshape(-1, K).astype(np.float64)
    for block in data.blocks:
        if not len(block.rows):
            w[block.items] = draw_categories(logits.take(block.items, axis=0), rng)
            continue
        n, cell, weight = block.annotator, block.cell, kept[block.rows]
        old = w[block.item]
        given[cell, old] -= weight  # in a block these annotators come once: no cell is met twice
        totals[n, old] = np.maximum(totals[n, old] - weight, TINY)
        # … + Σ_{other n} log (r Θ_{k z_n y} + n_nky) / (r + n_nk), counted without item m
        scores = np.log((prior.take(cell, axis=0) + given.take(cell, axis=0)) / totals.take(n, axis=0))
        scores[own[block.rows]] = 0
        w[block.items] = draw_categories(logits.take(block.items, axis=0) + block.sums @ scores, rng)
        new = w[block.item]
        given[cell, new] += weight
        totals[n, new] += weight
    return w


def own_scores(data: Data, q_phi: Floats, own: Bools) -> Floats:
    """(M, K): log P(own labels of item m | cluster k), up to a term that no k changes."""
    counts = own_counts(data, own)
    cells = np.flatnonzero(counts)
    m, p = cells // data.P, cells % data.P
    return summed_log_rising(m, data.M, p, counts.ravel()[cells], np.ascontiguousarray(q_phi.T))


def draw_own(
    data: Data, rows: Floats, sizes: Floats, q_phi: Floats, lam: float, w: Ints, own: Bools, rng: Generator
) -> Bools:
    """Which labels are their item's own: λ ρ_{m y} against (1 − λ) π_{n w_m y}."""
    rho = draw_dirichlet(q_phi.take(w, axis=0) + own_counts(data, own), rng)
    from_item = lam * rho.take(data.item_cell)
    from_annotator = (1 - lam) * draw_label_chances(data, rows, sizes, w, own, rng)
    return np.asarray(rng.random(len(own)) * (from_item + from_annotator) < from_item)


def draw_label_chances(
    data: Data, rows: Floats, sizes: Floats, w: Ints, own: Bools, rng: Generator
) -> Floats:
    """(E,): π_{n w_m y} of every label, drawn; its expectation where no other label depends on that π_nk.

    Of each Dirichlet only the classes that occur are drawn apart; the others are one class together.
    """
    N, P, K = rows.shape
    cell = data.cell * K + w.take(data.item)
    given = np.bincount(cell, minlength=N * P * K)  # own labels included
    occupied = np.flatnonzero(given)
    pair_of = occupied // (P * K) * K + occupied % K
    counts = np.bincount(cell[~own], minlength=N * P * K)[occupied]
    prior = rows.ravel()[occupied]
    totals = sizes.ravel()
    rest = np.maximum(totals - np.bincount(pair_of, prior, minlength=N * K), 0.0)
    several = given.reshape(N, P, K).sum(axis=1).ravel() > 1
    gammas = np.zeros(len(occupied))
    drawn = several[pair_of]
    gammas[drawn] = np.maximum(rng.standard_gamma(prior[drawn] + counts[drawn]), TINY)
    sums = np.bincount(pair_of, gammas, minlength=N * K).astype(np.float64)
    sums[several] += rng.standard_gamma(rest[several])
    sums[~several] = totals[~several]
    chances = np.zeros(N * P * K)
    chances[occupied] = np.where(drawn, gammas, prior) / sums[pair_of]
    return np.asarray(chances.take(cell))


def draw_annotator_clusters(counts: Ints, r_theta: Floats, omega: Floats, rng: Generator) -> Ints:
    """The cluster of every annotator, π integrated out.

    log P(z_n = l | …) = log Ω_l + Σ_kp log Γ(r Θ_klp + n_nkp) − log Γ(r Θ_klp) + a term that no l changes.
    """
    N, P, K = counts.shape
    cells = np.flatnonzero(counts)
    n, kind = cells // (P * K), cells % (P * K)  # kind = p K + k
    alpha = r_theta.transpose(2, 0, 1).reshape(P * K, -1)
    return draw_categories(np.log(omega) + summed_log_rising(n, N, kind, counts.ravel()[cells], alpha), rng)


def draw_measures(data: Data, state: State, priors: Priors, counts: Ints, rng: Generator) -> State:
    """Everything continuous about labels: r, s, q, a, φ0, Φ and Θ, given the clusters and own labels.

    Tables go up: labels open tables in π's restaurants, served from Θ; these open tables in Θ's, served from
    Φ; these and the tables of own labels in Φ's, served from φ0. Then values come down.
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
    own = own_counts(data, state.own)
    cells = np.flatnonzero(own)
    m, p = cells // P, cells % P
    where = state.w[m] * P + p
    v = draw_tables(own.ravel()[cells], state.q * state.phi.ravel()[where], rng)
    v = np.bincount(where, v, minlength=K * P).astype(np.int64).reshape(K, P)
    q = draw_concentration(state.q, priors.q, int(v.sum()), own.sum(axis=1), rng)
    # x_kp: tables of Φ_k
    served = u.sum(axis=1) + v
    x = draw_tables(served.ravel(), (state.a * state.phi0)[np.arange(K * P) % P], rng).reshape(K, P)
    a = draw_concentration(state.a, priors.a, int(x.sum()), served.sum(axis=1), rng)
    # φ0 ~ Dir(2/P + Σ_k x_k), Φ_k ~ Dir(a φ0 + Σ_l u_kl + v_k), Θ_kl ~ Dir(s Φ_k + t_kl)
    phi0 = draw_dirichlet(priors.phi0 / P + x.sum(axis=0).astype(np.float64), rng)
    phi = draw_dirichlet(a * phi0 + served, rng)
    theta = draw_dirichlet(s * phi[:, None, :] + t, rng)
    return replace(state, r=r, s=s, q=q, a=a, phi0=phi0, phi=phi, theta=theta)


def draw_weights(
    codes: Ints, size: int, concentration: float, prior: tuple[float, float], rng: Generator
) -> tuple[float, Floats]:
    """γ and ψ of a finite mixture: weights ~ Dir(γ/K, …), integrated out while γ is drawn."""
    counts = np.bincount(codes, minlength=size)
    tables = draw_tables(counts, np.full(size, concentration / size), rng)
    total = np.array([len(codes)])
    concentration = draw_concentration(concentration, prior, int(tables.sum()), total, rng)
    return concentration, draw_dirichlet(np.asarray(concentration / size + counts, dtype=np.float64), rng)


def draw_share(own: Bools, prior: tuple[float, float], rng: Generator) -> float:
    """λ ~ Beta(1 + own labels, 9 + the others)."""
    return float(rng.beta(prior[0] + own.sum(), prior[1] + (~own).sum()))


# ---- one sweep ----------------------------------------------------------------------------------------


def sweep(state: State, data: Data, rng: Generator, priors: Priors = PRIORS) -> State:
    """Draw everything once, each part given the others."""
    K, L, _ = state.theta.shape
    q_phi, r_theta = np.maximum(state.q * state.phi, TINY), np.maximum(state.r * state.theta, TINY)
    rows, sizes = row_priors(r_theta, state.z), np.full((data.N, K), state.r)
    psi, trust = state.psi, state.trust
    if data.hints is not None:
        psi = hinted(psi, data.hints, trust, state.phi)
    w = draw_clusters(data, rows, sizes, psi, q_phi, state.w, state.own, rng)
    if data.hints is not None:
        trust = draw_trust(data.hints, state, w, priors.trust, rng)
    own = draw_own(data, rows, sizes, q_phi, state.lam, w, state.own, rng)
    counts = annotator_counts(data, w, own, K)
    z = draw_annotator_clusters(counts, r_theta, state.omega, rng)
    state = draw_measures(data, replace(state, w=w, own=own, z=z), priors, counts, rng)
    gamma, psi = draw_weights(w, K, state.gamma, priors.gamma, rng)
    tau, omega = draw_weights(z, L, state.tau, priors.tau, rng)
    lam = draw_share(own, priors.lam, rng)
    return replace(state, gamma=gamma, psi=psi, tau=tau, omega=omega, lam=lam, trust=trust)


# ---- what features say of items -----------------------------------------------------------------------


def hinted(psi: Floats, hints: Floats, trust: float, phi: Floats) -> Floats:
    """(M, K): the clusters' weights, item by item: P(w_m = k) ∝ ψ_k Π_p Φ_kp^{t H_mp}.

    H_mp is how many labels of class p more than usual the features of item m are worth, and t how far they
    are trusted.
    """
    logs = np.log(np.maximum(phi, HINT_FLOOR))
    return np.maximum(shares_of(np.log(np.maximum(psi, TINY)) + trust * product(hints, logs.T)), TINY)


def draw_trust(hints: Floats, state: State, w: Ints, prior: tuple[float, float], rng: Generator) -> float:
    """t given the clusters, by one Metropolis step on log t: Π_m P(w_m | t) Gamma(t)."""
    proposed = state.trust * np.exp(0.3 * rng.standard_normal())

    def log_density(trust: float) -> float:
        chances = hinted(state.psi, hints, trust, state.phi)[np.arange(len(w)), w]
        return float(np.log(chances).sum() + prior[0] * np.log(trust) - prior[1] * trust)

    accepted = np.log(1.0 - rng.random()) < log_density(proposed) - log_density(state.trust)
    return float(proposed if accepted else state.trust)


# ---- where a chain starts -----------------------------------------------------------------------------


def start(
    data: Data,
    K: int,
    L: int,
    rng: Generator,
    priors: Priors = PRIORS,
    n_groups: int = FEW_GROUPS,
    spread: bool = False,
) -> State:
    """A first state: items grouped by votes, annotators all alike or (``spread``) all over the clusters.

    From few groups the sampler finds further ones within some sweeps; many groups take it long to merge.
    """
    M, N, P = data.M, data.N, data.P
    votes = np.bincount(data.item_cell, minlength=M * P).reshape(M, P).astype(np.float64)
    w = group_rows(votes, min(K, n_groups), rng)
    z = rng.integers(L, size=N) if spread else np.zeros(N, dtype=np.int64)
    own = np.zeros(len(data.item), dtype=bool)
    phi0 = (votes.sum(axis=0) + 1.0) / (votes.sum() + P)
    state = State(
        w, z, own,
        theta=np.tile(phi0, (K, L, 1)), phi=np.tile(phi0, (K, 1)), phi0=phi0,
        psi=np.full(K, 1 / K), omega=np.full(L, 1 / L),
        r=5.0, s=5.0, q=5.0, a=2.0, gamma=3.0, tau=3.0, lam=0.05,
    )  # fmt: skip
    return draw_measures(data, state, priors, annotator_counts(data, w, own, K), rng)


def continued(
    state: State, item: Codes, annotator: Codes, rows: Ints, shape: tuple[int, int, int], rng: Generator
) -> State:
    """A state over more labels: what it knew of ``item``, ``annotator`` and ``rows`` of now stays.

    ``shape`` is how many items, annotators and labels there are. New items and annotators begin in a cluster
    drawn from ψ or Ω, and new labels as their annotators'.
    """
    w = rng.choice(len(state.psi), size=shape[0], p=state.psi / state.psi.sum())
    z = rng.choice(len(state.omega), size=shape[1], p=state.omega / state.omega.sum())
    own = np.zeros(shape[2], dtype=bool)
    w[item], z[annotator], own[rows] = state.w, state.z, state.own
    return replace(state, w=w, z=z, own=own)


def group_rows(votes: Floats, size: int, rng: Generator, n_rounds: int = 8) -> Ints:
    """Rows of counts in ``size`` groups: hard EM of a mixture of multinomials from randomly chosen rows."""
    M, P = votes.shape
    smooth = votes.sum(axis=0) / max(votes.sum(), 1.0) + 1e-3
    centres = votes[rng.choice(M, size=size, replace=size > M)] + smooth
    group = np.zeros(M, dtype=np.int64)
    for _ in range(n_rounds):
        logs = np.log(centres / centres.sum(axis=1, keepdims=True))
        fit = np.zeros((M, size))
        for p in range(P):
            fit += votes[:, [p]] * logs[:, p]
        # chance decides among equals: rows that look alike must not all go to the first of several groups
        fit += 1e-6 * rng.random((M, size))
        group = np.argmax(fit, axis=1)
        centres = np.tile(smooth, (size, 1))
        for p in range(P):
            centres[:, p] += np.bincount(group, votes[:, p], minlength=size)
    return group
