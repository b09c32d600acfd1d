"""Gibbs sampler of HPGM, a fully Bayesian version of the graphical model of Weerasooriya et al. (2021).

How a label is generated, with P classes, M items, N annotators, and at most K clusters of items and L of
annotators:

    φ0    ~ Dir(2/P, …)                  overall label distribution
    Φ_k   ~ Dir(a φ0)                    label distribution of item cluster k
    Θ_kl  ~ Dir(s Φ_k)                   ... as given by annotator cluster l
    π_nk  ~ Dir(r Θ_{k, z_n})            ... as given by annotator n
    ρ_m   ~ Dir(q Φ_{w_m})               label distribution specific to item m
    w_m   ~ ψ ~ Dir(γ/K, …)              cluster of item m
    z_n   ~ Ω ~ Dir(τ/L, …)              cluster of annotator n
    o_e   ~ Bernoulli(λ)                 whether label e comes from the item's ρ_m
    y_e   ~ ρ_m if o_e, else π_{n, w_m}

with r, s, q ~ Gamma(1, 0.1), a ~ Gamma(2, 0.8), γ ~ Gamma(300, 10), τ ~ Gamma(1, 0.3) (shape, rate) and
λ ~ Beta(1, 9). Items vary continuously, so γ is large: clusters of items have about equal weights and act as
a grid. With a small γ a few large clusters take all items, variation within them is lost, and intervals are
too narrow however long the chains run.

Limits: r → ∞, λ = 0 is PGM; with L = 1 FMM; K = 1, λ = 1 smoothed counts; small r gives every annotator a
separate matrix, as in Dawid and Skene.

The population's answer about item m, in one draw of the sampler:

    Y_m = (1 − λ) Σ_n v_n E π_{n, w_m} + λ E ρ_m,   v_n the annotators' weights, which sum to 1.

π and ρ are integrated out. Items, labels and annotators are visited one after the other, by compiled loops
(``compiled/hpgm.c`` has the conditionals). Every step draws from a conditional distribution of the joint
above, so the posterior is invariant; nothing is approximate.

* w: the labels of an item leave the counts, its cluster is drawn given all other items, and they return.
* o: likewise each label, which comes from its item's ρ or its annotator's π.
* z: annotators are independent given Θ.
* Φ, Θ, φ0 and the concentrations: by table counts of the Chinese restaurant franchise (Antoniak 1974; Teh et
  al. 2006), with π, ρ, Θ and Φ integrated out on the way up and drawn on the way down.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dissensus.compiled import Loop
from dissensus.models.hpgm.attributes import KAPPA_PRIOR, AttributeCells, annotator_prior, eta_prior
from dissensus.numerics import Array

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Bools = NDArray[np.bool_]
PriorPair = tuple[float, float]  # shape and rate of a Gamma prior, or the two parameters of a Beta

MIN_GAMMA_ALPHA = 0.1  # Dirichlets with a smaller sum are drawn on the log scale
MIN_HINT_SHARE = 1e-4  # floor of class shares in the weights of hints
MIN_SHARE = 1e-300  # floor of Dirichlet draws, so that logarithms are finite
MIN_COUNT = 1e-30  # floor of pseudo-counts, so that products of several do not underflow
START_GROUPS = 6  # groups of items at the start of a chain; every second chain starts with all K


# ---- the compiled loops -------------------------------------------------------------------------------

LABELS = {"annotator": "int32 E", "label": "int32 E"}
BY_ITEM = {"ends": "int64 M", **LABELS, "from_item": "bool E"}
BY_ANNOTATOR = {"ends": "int64 N", "by_annotator": "int32 E", "cluster": "int32 E"}
BY_ANNOTATOR |= {"label": "int32 E", "from_item": "bool E"}
COUNT_ARRAYS = {"table": "float64 N P K", "totals": "float64 N K", "inverse": "float64 N K"}
PRIORS = {"psi": "float64 R K", "q_phi": "float64 K P"}
PSEUDO_COUNTS = {"prior": "float64 Q P K", "sizes": "float64 Q K", "row": "int32 N"}
count_labels = Loop("hpgm_count", "M E N P K Q", **BY_ITEM, w="int32 M", **PSEUDO_COUNTS, **COUNT_ARRAYS)
item_clusters = Loop(
    "hpgm_item_clusters", "M E N P K R", **BY_ITEM, **PRIORS, **COUNT_ARRAYS,
    u="float64 M", w="int32 M", weights="float64 K",
)  # fmt: skip
item_beliefs = Loop(
    "hpgm_item_beliefs", "M E N P K R", **BY_ITEM, **PRIORS, **COUNT_ARRAYS,
    w="int32 M", beliefs="float64 M K",
)  # fmt: skip
product = Loop("hpgm_product", "R K P", left="float64 R K", right="float64 K P", product="float64 R P")
mean_population = Loop(
    "hpgm_population", "N P K", table="float64 N P K", inverse="float64 N K",
    v="float64 N", population="float64 K P",
)  # fmt: skip
label_sources = Loop(
    "hpgm_label_sources", "M E N P K", ends="int64 M", **LABELS, w="int32 M", q_phi="float64 K P",
    **COUNT_ARRAYS, u="float64 E", from_item="bool E", counts="float64 P", q="float", lam="float",
)  # fmt: skip
annotator_clusters = Loop(
    "hpgm_annotator_clusters", "N E K P L R", **BY_ANNOTATOR, omega="float64 R L", r_theta="float64 K P L",
    u="float64 N", z="int32 N", weights="float64 L", counts="float64 K P",
)  # fmt: skip
annotator_tables = Loop(
    "hpgm_annotator_tables", "N E K P L", **BY_ANNOTATOR, z="int32 N", r_theta="float64 K P L",
    u="float64 E", tables="int64 K P L", larger="int64 E", counts="float64 K P", sizes="float64 K",
)  # fmt: skip
item_tables = Loop(
    "hpgm_item_tables", "M E K P", ends="int64 M", label="int32 E", from_item="bool E", w="int32 M",
    q_phi="float64 K P", u="float64 E", tables="int64 K P", larger="int64 E", counts="float64 P",
)  # fmt: skip
tables_of = Loop(
    "hpgm_tables", "R P U S", customers="int64 R P", alpha="float64 R P",
    u="float64 U", tables="int64 R P", larger="int64 S",
)  # fmt: skip


# ---- the labels ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Data:
    """Labels sorted by item and annotator."""

    item: Codes  # (E,)
    annotator: Codes  # (E,)
    label: Codes  # (E,)
    M: int
    N: int
    P: int
    hints: Array | None = None  # (M, P): evidence of the features, in labels above or below the average
    attributes: AttributeCells | None = None  # of the annotators, if their clusters depend on attributes

    @classmethod
    def of_labels(
        cls, labels: Annotations, hints: Array | None = None, attributes: AttributeCells | None = None
    ) -> Data:
        """Take the columns of annotations; ``hints`` (M, P) is the evidence of the items' features."""
        item, annotator, label = (np.ascontiguousarray(column, dtype=np.int32) for column in labels.columns)
        sizes = labels.n_items, labels.n_annotators, labels.n_classes
        return cls(item, annotator, label, *sizes, hints, attributes)

    @property
    def n_labels(self) -> int:
        """Number of labels."""
        return len(self.label)

    @cached_property
    def item_ends(self) -> Ints:
        """Number of the label after the last one of each item."""
        return np.bincount(self.item, minlength=self.M).cumsum()

    @cached_property
    def by_annotator(self) -> Codes:
        """Numbers of the labels, sorted by annotator."""
        return np.argsort(self.annotator, kind="stable").astype(np.int32)

    @cached_property
    def annotator_ends(self) -> Ints:
        """Position in ``by_annotator`` after the last label of each annotator."""
        return np.bincount(self.annotator, minlength=self.N).cumsum()


# ---- the state ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HyperPriors:
    """Hyperpriors: Gamma (shape, rate) of concentrations and hint trust, Beta of λ, Dir(phi0/P, …) of φ0."""

    r: PriorPair = (1.0, 0.1)
    s: PriorPair = (1.0, 0.1)
    q: PriorPair = (1.0, 0.1)
    a: PriorPair = (2.0, 0.8)
    gamma: PriorPair = (300.0, 10.0)
    tau: PriorPair = (1.0, 0.3)
    lam: PriorPair = (1.0, 9.0)
    trust: PriorPair = (2.0, 2.0)
    phi0: float = 2.0


DEFAULT_PRIORS = HyperPriors()


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

    w: Codes  # (M,): cluster of each item
    z: Codes  # (N,): cluster of each annotator
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
    eta: Array = field(default_factory=lambda: np.ones(1))  # (1 + J,): how often attributes decide
    values: Array = field(default_factory=lambda: np.zeros((0, 0)))  # (values, L): B
    kappa: float = 5.0

    def take(self, annotators: Ints, labels: Ints) -> Self:
        """Select annotators and labels."""
        return replace(self, z=self.z[annotators], from_item=self.from_item[labels])

    def r_theta(self) -> Array:
        """Return (K, P, L) r Θ_klp, the pseudo-counts of π for every annotator cluster."""
        return np.maximum(self.r * np.ascontiguousarray(self.theta.transpose(0, 2, 1)), MIN_COUNT)


# ---- draws from distributions -------------------------------------------------------------------------


def draw_dirichlet(alpha: Array, rng: Generator, least: float | None = None) -> Array:
    """Draw from Dirichlets along the last axis, as gammas divided by their sum.

    Gammas of very small shape underflow to 0, so they are drawn on the log scale: with U uniform,
    Gamma(α) = Gamma(α + 1) U^{1/α}. ``least`` is a lower bound of the sums of α, if one is known.
    """
    least = alpha.sum(axis=-1).min(initial=1.0) if least is None else least
    if least < MIN_GAMMA_ALPHA:
        logs = np.log(1.0 - rng.random(alpha.shape)) / np.maximum(alpha, MIN_SHARE)
        logs += np.log(rng.standard_gamma(alpha + 1.0))
        gammas = np.exp(logs - logs.max(axis=-1, keepdims=True))
    else:
        gammas = rng.standard_gamma(alpha)
    gammas = np.maximum(gammas, MIN_SHARE)
    return np.asarray(gammas / gammas.sum(axis=-1, keepdims=True))


def draw_tables(customers: Ints, alpha: Array, rng: Generator) -> tuple[Ints, Ints]:
    """Draw the numbers of tables (R, P) of restaurants and dishes (Antoniak 1974).

    A customer who follows i others of the same dish opens a table with probability α / (α + i). Also return
    #{restaurants with more than i customers} for every i.
    """
    u, tables = rng.random(int(customers.sum())), np.zeros(customers.shape, dtype=np.int64)
    larger = np.zeros(int(customers.sum(axis=1).max(initial=0)), dtype=np.int64)
    tables_of(customers=customers, alpha=alpha, u=u, tables=tables, larger=larger)
    return tables, larger


def draw_concentration(value: float, prior: PriorPair, tables: Ints, larger: Ints, rng: Generator) -> float:
    """Draw a concentration c given the tables and the sizes n_j of its restaurants.

    With T tables, p(c | T, n) ∝ p(c) c^T Π_j Γ(c) / Γ(c + n_j), and Γ(c) / Γ(c + n) is proportional to
    ∫ η^{c−1} (1−η)^{n−1} dη. So with η_j ~ Beta(c, n_j), c ~ Gamma(shape + T, rate − Σ_j log η_j). As
    Beta(c, n) = Π_{i<n} Beta(c + i, 1), and −log Beta(c + i, 1) is exponential with rate c + i, the sum needs
    one gamma for each i, whose shape is the number of restaurants with more than i customers, ``larger[i]``.
    """
    minus_log_eta = float((rng.standard_gamma(larger) / (value + np.arange(len(larger)))).sum())
    return draw_gamma(prior, tables, minus_log_eta, rng)


def draw_weight_concentration(
    value: float, prior: PriorPair, tables: Ints, size: int, rng: Generator
) -> float:
    """Draw γ or τ, likewise, of one restaurant with ``size`` customers: η ~ Beta(c, n) in two gammas."""
    # log Gamma(c) = log Gamma(c + 1) + (log U) / c does not underflow
    log_first = math.log(rng.standard_gamma(value + 1)) + math.log(1 - rng.random()) / value
    log_second = math.log(max(rng.standard_gamma(size), MIN_SHARE))
    return draw_gamma(prior, tables, float(np.logaddexp(log_first, log_second)) - log_first, rng)


def draw_gamma(prior: PriorPair, tables: Ints, minus_log_eta: float, rng: Generator) -> float:
    """Draw from Gamma(shape + T, rate − Σ_j log η_j)."""
    drawn = rng.standard_gamma(prior[0] + float(tables.sum())) / (prior[1] + minus_log_eta)
    return float(max(drawn, MIN_SHARE))


def softmax(logits: Array) -> Array:
    """Return exp(logits) with rows normalised to sum 1."""
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))


def ordered_product(left: Array, right: Array) -> Array:
    """Return left @ right, summed in an order that does not depend on the library or number of threads."""
    result: Array = np.empty((left.shape[0], right.shape[1]))
    left, right = (np.ascontiguousarray(factor, np.float64) for factor in (left, right))
    product(left=left, right=right, product=result)
    return result


# ---- counts -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Counts:
    """Posterior pseudo-counts of every π_nk, which the loops keep up to date."""

    table: Array  # (N, P, K): r Θ_{k z_n p} + n_nkp
    totals: Array  # (N, K): r + n_nk
    inverse: Array  # (N, K): 1 / (r + n_nk)

    @classmethod
    def of(cls, data: Data, prior: Array, sizes: Array, row: Codes, w: Codes, from_item: Bools) -> Self:
        """Add the labels that come from annotators to the pseudo-counts of each annotator's ``row``.

        ``prior`` (Q, P, K) are pseudo-counts, ``sizes`` (Q, K) their sums.
        """
        N, (_, P, K) = data.N, prior.shape
        counts = cls(np.empty((N, P, K)), np.empty((N, K)), np.empty((N, K)))
        pseudo_counts = {"prior": prior, "sizes": sizes, "row": row}
        count_labels(**by_item(data), from_item=from_item, w=w, **pseudo_counts, **vars(counts))
        return counts

    @classmethod
    def of_state(cls, data: Data, state: GibbsState) -> Self:
        """Add the labels that come from annotators to r Θ."""
        by_cluster = np.maximum(state.r * np.ascontiguousarray(state.theta.transpose(1, 2, 0)), MIN_COUNT)
        sizes = np.full((by_cluster.shape[0], by_cluster.shape[2]), state.r)
        return cls.of(data, by_cluster, sizes, state.z, state.w, state.from_item)


def by_item(data: Data) -> dict[str, Any]:
    """Return the arguments of loops over items."""
    return {"ends": data.item_ends, "annotator": data.annotator, "label": data.label}


def by_annotator(data: Data, w: Codes, from_item: Bools) -> dict[str, Any]:
    """Return the arguments of loops over annotators."""
    labels = {"cluster": w.take(data.item), "label": data.label, "from_item": from_item}
    return {"ends": data.annotator_ends, "by_annotator": data.by_annotator, **labels}


def item_label_counts(data: Data, from_item: Bools) -> Ints:
    """Return (M, P) counts of the labels that come from ρ_m."""
    cell = (data.item.astype(np.int64) * data.P + data.label)[from_item]
    return np.bincount(cell, minlength=data.M * data.P).reshape(data.M, data.P)


# ---- the steps ----------------------------------------------------------------------------------------


def draw_clusters(
    data: Data, counts: Counts, psi: Array, q_phi: Array, w: Codes, from_item: Bools, rng: Generator
) -> Codes:
    """Draw the cluster of every item; ``psi`` is (1, K), or (M, K) with a prior for each item."""
    w, weights = w.copy(), np.empty(len(q_phi))
    u, priors = rng.random(data.M), {"psi": psi, "q_phi": q_phi}
    item_clusters(**by_item(data), from_item=from_item, **priors, **vars(counts), u=u, w=w, weights=weights)
    return w


def draw_label_sources(
    data: Data, counts: Counts, q_phi: Array, q: float, lam: float, w: Codes, from_item: Bools, rng: Generator
) -> Bools:
    """Draw which labels come from ρ."""
    from_item, u, scratch = from_item.copy(), rng.random(len(from_item)), np.empty(data.P)
    rates = {"q_phi": q_phi, "q": q, "lam": lam}
    label_sources(**by_item(data), w=w, **rates, **vars(counts), u=u, from_item=from_item, counts=scratch)
    return from_item


def draw_annotator_clusters(
    data: Data, w: Codes, from_item: Bools, r_theta: Array, omega: Array, rng: Generator
) -> Codes:
    """Draw the cluster of every annotator; ``r_theta`` is (K, P, L), ``omega`` (1, L) or (N, L)."""
    K, P, L = r_theta.shape
    z, u = np.empty(data.N, dtype=np.int32), rng.random(data.N)
    scratch = {"weights": np.empty(L), "counts": np.empty((K, P))}
    annotator_clusters(**by_annotator(data, w, from_item), omega=omega, r_theta=r_theta, u=u, z=z, **scratch)
    return z


def draw_measures(data: Data, state: GibbsState, priors: HyperPriors, rng: Generator) -> GibbsState:
    """Draw r, s, q, a, γ, τ, φ0, Φ, Θ, ψ and Ω given the clusters and the sources of the labels.

    On the way up, labels open tables in the restaurants of π; these are customers in Θ's restaurants, and
    their tables, with those of labels from ρ, customers in Φ's. On the way down, values are drawn. Items are
    customers in the restaurant of ψ, and annotators in that of Ω.
    """
    K, L, P = state.theta.shape
    E, u = len(data.item), rng.random(len(data.item))
    # t_klp: tables of π_nk of the annotators in l
    t, larger_r = np.zeros((K, P, L), dtype=np.int64), np.zeros(E, dtype=np.int64)
    scratch: dict[str, Any] = {"counts": np.empty((K, P)), "sizes": np.empty(K)}
    labels = by_annotator(data, state.w, state.from_item)
    annotator_tables(**labels, z=state.z, r_theta=state.r_theta(), u=u, tables=t, larger=larger_r, **scratch)
    t = np.ascontiguousarray(t.transpose(0, 2, 1))
    # u_klp: tables of Θ_kl
    s_phi = np.repeat(state.s * state.phi, L, axis=0)
    opened, larger_s = draw_tables(t.reshape(K * L, P), s_phi, rng)
    # v_kp: tables of ρ_m, over the items of k; its labels are not those of the tables t, nor are the uniforms
    q_phi = np.maximum(state.q * state.phi, MIN_COUNT)
    v, larger_q, counts = np.zeros((K, P), dtype=np.int64), np.zeros(E, dtype=np.int64), np.empty(P)
    labels = {"ends": data.item_ends, "label": data.label, "from_item": state.from_item, "w": state.w}
    item_tables(**labels, q_phi=q_phi, u=u, tables=v, larger=larger_q, counts=counts)
    # x_kp: tables of Φ_k
    served = opened.reshape(K, L, P).sum(axis=1) + v
    x, larger_a = draw_tables(served, np.tile(state.a * state.phi0, (K, 1)), rng)
    # tables of ψ and Ω
    of_omega = np.bincount(state.z, minlength=L)
    if data.attributes is not None:
        state, of_omega, members = draw_reasons(data.attributes, state, rng)
    sizes = np.concatenate([np.bincount(state.w, minlength=K), of_omega])
    alpha = np.repeat([state.gamma / K, state.tau / L], [K, L])
    weights, _ = draw_tables(sizes[None], alpha[None], rng)
    r = draw_concentration(state.r, priors.r, t, occupied(larger_r), rng)
    s = draw_concentration(state.s, priors.s, opened, larger_s, rng)
    q = draw_concentration(state.q, priors.q, v, occupied(larger_q), rng)
    a = draw_concentration(state.a, priors.a, x, larger_a, rng)
    gamma = draw_weight_concentration(state.gamma, priors.gamma, weights[0, :K], data.M, rng)
    tau = draw_weight_concentration(state.tau, priors.tau, weights[0, K:], int(of_omega.sum()), rng)
    # φ0 ~ Dir(2/P + Σ_k x_k), Φ_k ~ Dir(a φ0 + Σ_l u_kl + v_k), Θ_kl ~ Dir(s Φ_k + t_kl)
    phi0 = draw_dirichlet(priors.phi0 / P + x.sum(axis=0), rng, priors.phi0)
    phi = draw_dirichlet(a * phi0 + served, rng, a)
    theta = draw_dirichlet(s * phi[:, None, :] + t, rng, s)
    # ψ ~ Dir(γ/K + items), Ω ~ Dir(τ/L + annotators)
    psi = draw_dirichlet(gamma / K + sizes[:K], rng, gamma)
    omega = draw_dirichlet(tau / L + sizes[K:], rng, tau)
    if data.attributes is not None:  # B_jv ~ Dir(κ Ω + members)
        values = draw_dirichlet(np.maximum(state.kappa * omega, MIN_COUNT) + members, rng)
        state = replace(state, values=values)
    state = replace(state, phi0=phi0, phi=phi, theta=theta, psi=psi, omega=omega)
    return replace(state, r=r, s=s, q=q, a=a, gamma=gamma, tau=tau)


def draw_reasons(
    attributes: AttributeCells, state: GibbsState, rng: Generator
) -> tuple[GibbsState, Ints, Ints]:
    """Draw which attribute decides the cluster of each annotator, η and κ.

    Also return the customers (L,) of Ω, and the members (values, L) of every B_jv.
    """
    (N, J), L = attributes.cell.shape, len(state.omega)
    rows = np.arange(N)
    # P(g_n = 0) ∝ η_0 Ω_{z_n};  P(g_n = j) ∝ η_j B_{j, v_nj, z_n}, with Ω for a missing value
    chosen = np.vstack([state.values, state.omega])[attributes.cell, state.z[:, None]]
    chances = np.cumsum(state.eta * np.column_stack([state.omega[state.z], chosen]), axis=1)
    reason = (rng.random((N, 1)) * chances[:, -1:] >= chances[:, :-1]).sum(axis=1)
    cell = np.column_stack([np.full(N, -1), attributes.cell])[rows, reason]
    members = np.zeros((attributes.n_values, L), dtype=np.int64)
    np.add.at(members, (cell[cell >= 0], state.z[cell >= 0]), 1)
    # the tables of B_jv are customers of Ω
    alpha = np.maximum(state.kappa * state.omega, MIN_COUNT)
    tables, larger = draw_tables(members, np.tile(alpha, (len(members), 1)), rng)
    kappa = draw_concentration(state.kappa, KAPPA_PRIOR, tables, occupied(larger), rng)
    # η ~ Dir(8 + #{g = 0}, 1 + #{g = j})
    eta = draw_dirichlet(eta_prior(J) + np.bincount(reason, minlength=J + 1), rng)
    of_omega = np.bincount(state.z[cell < 0], minlength=L) + tables.sum(axis=0)
    return replace(state, eta=eta, kappa=kappa), of_omega, members


def occupied(larger: Ints) -> Ints:
    """Return the counts up to the size of the largest restaurant."""
    return larger[: np.count_nonzero(larger)]


def draw_lambda(from_item: Bools, prior: PriorPair, rng: Generator) -> float:
    """Draw λ ~ Beta(1 + labels from ρ, 9 + the others)."""
    return float(rng.beta(prior[0] + from_item.sum(), prior[1] + (~from_item).sum()))


# ---- one sweep ----------------------------------------------------------------------------------------


def sweep(state: GibbsState, data: Data, rng: Generator, priors: HyperPriors = DEFAULT_PRIORS) -> GibbsState:
    """Draw every part of the state once, given the others."""
    q_phi, counts = np.maximum(state.q * state.phi, MIN_COUNT), Counts.of_state(data, state)
    psi, trust = np.maximum(state.psi, MIN_COUNT)[None], state.trust
    if data.hints is not None:
        psi = hinted_weights(state.psi, data.hints, trust, state.phi)
    w = draw_clusters(data, counts, psi, q_phi, state.w, state.from_item, rng)
    if data.hints is not None:
        trust = draw_trust(data.hints, state, psi, w, priors.trust, rng)
    from_item = draw_label_sources(data, counts, q_phi, state.q, state.lam, w, state.from_item, rng)
    omega = state.omega[None]
    if data.attributes is not None:
        omega = annotator_prior(state.omega, state.eta, state.values, data.attributes.cell)
    z = draw_annotator_clusters(data, w, from_item, state.r_theta(), omega, rng)
    lam = draw_lambda(from_item, priors.lam, rng)
    state = replace(state, w=w, from_item=from_item, z=z, lam=lam, trust=trust)
    return draw_measures(data, state, priors, rng)


# ---- hints from features ------------------------------------------------------------------------------


def hinted_weights(psi: Array, hints: Array, trust: float, phi: Array) -> Array:
    """Return (M, K) cluster weights by item: P(w_m = k) ∝ ψ_k Π_p Φ_kp^{t H_mp}.

    H_mp is the number of labels of class p above average that the features of item m count as, t their trust.
    """
    logs = np.log(np.maximum(phi, MIN_HINT_SHARE))
    logits = np.log(np.maximum(psi, MIN_SHARE)) + trust * ordered_product(hints, logs.T)
    return np.maximum(softmax(logits), MIN_COUNT)


def draw_trust(
    hints: Array, state: GibbsState, weights: Array, w: Codes, prior: PriorPair, rng: Generator
) -> float:
    """Draw t given the clusters, by one Metropolis step on log t: Π_m P(w_m | t) Gamma(t).

    ``weights`` (M, K) are the cluster weights with the present t.
    """
    proposed = float(state.trust * np.exp(0.3 * rng.standard_normal()))
    proposed_weights = hinted_weights(state.psi, hints, proposed, state.phi)

    def log_density(trust: float, weights: Array) -> float:
        chosen = weights[np.arange(len(w)), w]
        return float(np.log(chosen).sum() + prior[0] * np.log(trust) - prior[1] * trust)

    change = log_density(proposed, proposed_weights) - log_density(state.trust, weights)
    return proposed if np.log(1.0 - rng.random()) < change else state.trust


# ---- start of a chain ---------------------------------------------------------------------------------


def start(data: Data, K: int, L: int, rng: Generator, number: int = 0) -> GibbsState:
    """Return the first state of chain ``number``: items grouped by votes, annotators in clusters.

    Chains start from few groups of items or from all K in turn, with annotators spread over all clusters.
    From few groups the sampler finds more within some sweeps; many groups take long to merge. Annotators who
    start in one cluster hardly ever leave it: labels are predicted worse, and minorities are missed.
    """
    N, P = data.N, data.P
    votes = item_label_counts(data, np.ones(len(data.item), dtype=bool)).astype(np.float64)
    w = cluster_counts(votes, K if number % 2 else min(K, START_GROUPS), rng)
    z = rng.integers(L, size=N, dtype=np.int32)
    from_item = np.zeros(len(data.item), dtype=bool)
    phi0 = (votes.sum(axis=0) + 1.0) / (votes.sum() + P)
    measures = np.tile(phi0, (K, L, 1)), np.tile(phi0, (K, 1)), phi0, np.full(K, 1 / K), np.full(L, 1 / L)
    numbers = 5.0, 5.0, 5.0, 2.0, 3.0, 3.0, 0.05  # r, s, q, a, γ, τ, λ
    state = GibbsState(w, z, from_item, *measures, *numbers)
    if data.attributes is not None:
        prior = eta_prior(data.attributes.cell.shape[1])
        values = np.full((data.attributes.n_values, L), 1 / L)
        state = replace(state, eta=prior / prior.sum(), values=values)
    return draw_measures(data, state, DEFAULT_PRIORS, rng)


def extend_state(
    state: GibbsState, item: Codes, annotator: Codes, rows: Ints, shape: tuple[int, int, int], rng: Generator
) -> GibbsState:
    """Extend a state to more labels; ``item``, ``annotator`` and ``rows`` are the new codes of the old ones.

    ``shape`` is the number of items, annotators and labels. New items and annotators start in a cluster drawn
    from ψ or Ω, and new labels come from their annotators.
    """
    w = rng.choice(len(state.psi), size=shape[0], p=state.psi / state.psi.sum()).astype(np.int32)
    z = rng.choice(len(state.omega), size=shape[1], p=state.omega / state.omega.sum()).astype(np.int32)
    from_item = np.zeros(shape[2], dtype=bool)
    w[item], z[annotator], from_item[rows] = state.w, state.z, state.from_item
    return replace(state, w=w, z=z, from_item=from_item)


def cluster_counts(votes: Array, size: int, rng: Generator) -> Codes:
    """Group rows of counts: hard EM of a mixture of ``size`` multinomials from randomly chosen rows."""
    M = len(votes)
    smooth = votes.sum(axis=0) / max(votes.sum(), 1.0) + 1e-3
    centres = votes[rng.choice(M, size=size, replace=size > M)] + smooth
    for _ in range(8):
        fit = ordered_product(votes, np.log(centres / centres.sum(axis=1, keepdims=True)).T)
        # break ties at random: equal rows must not all go to the first of several groups
        group = (fit + 1e-6 * rng.random((M, size))).argmax(axis=1)
        centres = np.eye(size)[group].T @ votes + smooth
    return np.asarray(group, np.int32)
