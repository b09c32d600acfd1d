"""The paper's generative process (Algorithm 1) as a simulator: labels whose truth is known.

Θ_kl ~ Dir_P(α),  ψ ~ Dir_K(γ),  Ω ~ Dir_L(τ)
w_m ~ Cat(ψ),  z_n ~ Cat(Ω),  y_mn ~ Cat(Θ_{w_m, z_n})  for every assigned pair (m, n)
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import bad_parameter
from dissensus.labels.annotations import Annotations
from dissensus.labels.sources import as_annotations
from dissensus.labels.vocabulary import Vocabulary
from dissensus.numerics import concentration
from dissensus.params import check_rules, choice, dirichlet, integer

Array = NDArray[np.float64]
Load = Literal["even", "long-tail"]

TAIL_SIGMA = 1.5  # spread of the log-normal loads; real platforms' busiest tenth give half of the labels
CHUNK_CELLS = 1 << 22  # (item, annotator) keys drawn at a time
CROWD_PER_LABEL = 30  # annotators per label of an item above which repeats are rare enough to draw again


@dataclass(frozen=True)
class Simulation:
    """Simulated annotations and what they were made from."""

    annotations: Annotations
    theta: Array  # (K, L, P)
    psi: Array  # (K,)
    omega: Array  # (L,)
    item_cluster: NDArray[np.int64]  # (M,)
    annotator_cluster: NDArray[np.int64]  # (N,)

    @property
    def population(self) -> Array:
        """(items, classes): Σ_l Ω_l Θ_{w_m,l}, what the whole population would answer (Eq. infer)."""
        of_cluster: Array = np.einsum("l,klp->kp", self.omega, self.theta)
        return of_cluster[self.item_cluster]

    @property
    def population_by_load(self) -> Array:
        """The same with annotators weighted by how much they labelled, as empirical distributions do."""
        share = np.bincount(
            self.annotator_cluster, self.annotations.annotator_load, minlength=len(self.omega)
        )
        of_cluster: Array = np.einsum("l,klp->kp", share / share.sum(), self.theta)
        return of_cluster[self.item_cluster]


def simulate(
    n_items: int = 500,
    n_annotators: int = 100,
    n_classes: int = 4,
    *,
    n_item_clusters: int = 5,
    n_annotator_clusters: int = 3,
    labels_per_item: int = 5,
    load: Load = "even",
    alpha: float | Sequence[float] = 0.5,
    gamma: float | Sequence[float] = 5.0,
    tau: float | Sequence[float] = 5.0,
    pairs: Any = None,
    seed: int = 0,
) -> Simulation:
    """Labels from the paper's generative process, and the truth behind them.

    Parameters
    ----------
    n_items
        How many items there are.
    n_annotators
        How many annotators there are.
    n_classes
        How many classes there are.
    n_item_clusters
        Clusters of items (K).
    n_annotator_clusters
        Clusters of annotators (L).
    labels_per_item
        Different annotators who label each item.
    load
        ``"even"``, or ``"long-tail"``: a few annotators give most of the labels, in proportion to
        log-normal weights.
    alpha
        Dirichlet parameter of the answers of each pair of clusters: a number, or a list with one for each
        class.
    gamma
        The same for the sizes of the item clusters.
    tau
        The same for the sizes of the annotator clusters.
    pairs
        Labels (a frame, a path or Annotations) whose items, annotators and pairs are kept while each label
        is drawn anew; what else decides who labels what must then be left out.
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    """
    pairs = None if pairs is None else as_annotations(pairs)
    _check(locals())
    rng = np.random.default_rng(seed)
    K, L, P = n_item_clusters, n_annotator_clusters, n_classes
    M, N = (n_items, n_annotators) if pairs is None else (pairs.n_items, pairs.n_annotators)
    theta = rng.dirichlet(np.broadcast_to(concentration("simulate", "alpha", alpha, P), P), size=(K, L))
    psi, omega = (
        rng.dirichlet(np.broadcast_to(concentration("simulate", name, given, n), n))
        for name, given, n in (("gamma", gamma, K), ("tau", tau, L))
    )
    w, z = rng.choice(K, M, p=psi), rng.choice(L, N, p=omega)
    if pairs is None:
        weights = rng.lognormal(0, TAIL_SIGMA, N) if load == "long-tail" else np.ones(N)
        annotator = assign(M, weights, labels_per_item, rng).ravel()
        item = np.repeat(np.arange(M, dtype=np.int32), labels_per_item)
        names = _names("item", M), _names("annotator", N)
    else:
        item, annotator = pairs.item, pairs.annotator
        names = pairs.item_vocabulary, pairs.annotator_vocabulary
    label = draw(theta.reshape(K * L, -1), w[item] * L + z[annotator], rng)
    if pairs is not None:  # a pair that is labelled more than once
        label = label[np.lexsort([label, annotator, item])]
    annotations = Annotations(item, annotator, label, *names, _names("class", P))
    return Simulation(annotations, theta, psi, omega, w, z)


def assign(n_items: int, weights: Array, per_item: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """(items, per_item): different annotators for each item, sorted, chances in proportion to weights.

    Annotators are drawn one after another; one that an item already has is drawn again. In a crowd so small
    that this would often happen, the smallest of Exp(1)/weight are taken: the same distribution.
    """
    N = len(weights)
    chosen = np.full((n_items, per_item), -1, dtype=np.int32)
    if CROWD_PER_LABEL * per_item > N or weights.max() > weights.sum() / 2:
        rows_at_once = max(1, CHUNK_CELLS // N)
        for start in range(0, n_items, rows_at_once):
            part = slice(start, min(start + rows_at_once, n_items))
            keys = rng.exponential(size=(part.stop - part.start, N)) / weights
            chosen[part] = np.argpartition(keys, per_item - 1, axis=1)[:, :per_item]
    else:
        cumulative = np.cumsum(weights) / weights.sum()
        for column in range(per_item):
            rows = np.arange(n_items)
            while len(rows):
                draws = np.searchsorted(cumulative, rng.random(len(rows)), side="right")
                repeated = (chosen[rows, :column] == draws[:, None]).any(axis=1)
                chosen[rows[~repeated], column] = draws[~repeated]
                rows = rows[repeated]
        chosen = np.minimum(chosen, N - 1)
    chosen.sort(axis=1)
    return chosen


def draw(distributions: Array, which: NDArray[np.int64], rng: np.random.Generator) -> NDArray[np.int32]:
    """One class from row ``which[e]`` of the distributions for every e, by inversion."""
    P = distributions.shape[1]
    # Shifting row i's cumulative sums by i makes one sorted array, searched once for all draws.
    cumulative = np.cumsum(distributions, axis=1)
    steps = (cumulative / cumulative[:, -1:] + np.arange(len(distributions))[:, None]).ravel()
    place = np.searchsorted(steps, which + rng.random(len(which)), side="right")
    label: NDArray[np.int32] = np.clip(place - which * P, 0, P - 1).astype(np.int32)
    return label


def _names(what: str, n: int) -> Vocabulary:
    """Names that sort in the order of their numbers."""
    width = len(str(n))
    return Vocabulary([f"{what[0]}{i:0{width}d}" for i in range(1, n + 1)], what)


def _check(values: dict[str, Any]) -> None:
    counts = ("n_items", "n_annotators", "n_item_clusters", "n_annotator_clusters", "labels_per_item")
    rules = {name: integer(1) for name in counts} | {"n_classes": integer(2), "seed": integer(0)}
    rules |= {name: dirichlet(0.0, open_low=True) for name in ("alpha", "gamma", "tau")}
    rules["load"] = choice("even", "long-tail")
    check_rules("simulate", rules, **{name: values[name] for name in rules})
    given = values["pairs"]
    if given is None:
        if values["labels_per_item"] > values["n_annotators"]:
            n_labels = values["labels_per_item"]
            raise bad_parameter("simulate", "labels_per_item", "at most n_annotators", n_labels)
        return
    if given.anonymous or not given.n_labels:
        raise bad_parameter("simulate", "pairs", "labels that say who labelled what, or None", given)
    for name in ("n_items", "n_annotators", "labels_per_item", "load"):
        default = inspect.signature(simulate).parameters[name].default
        if values[name] != default:
            raise bad_parameter(
                "simulate", name, f"left at {default!r} with pairs, which decides it", values[name]
            )
