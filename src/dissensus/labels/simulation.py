"""Simulator of the paper's generative process (Algorithm 1): labels with known parameters.

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
from dissensus.labels import as_annotations
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Vocabulary
from dissensus.numerics import Array, batches, concentration
from dissensus.params import check_rules, choice, dirichlet, integer

Load = Literal["even", "long-tail"]

LONG_TAIL_SIGMA = 1.5  # of log-normal loads: as on real platforms, the busiest tenth give half of the labels
KEYS_PER_CHUNK = 1 << 22  # (item, annotator) keys drawn at a time
MIN_CROWD_PER_LABEL = 30  # annotators per label of an item from which rejection sampling is efficient


@dataclass(frozen=True)
class Simulation:
    """Simulated annotations and their parameters."""

    annotations: Annotations
    theta: Array  # (K, L, P)
    psi: Array  # (K,)
    omega: Array  # (L,)
    item_cluster: NDArray[np.int64]  # (M,)
    annotator_cluster: NDArray[np.int64]  # (N,)

    @property
    def population(self) -> Array:
        """Population's answers (items, classes), Σ_l Ω_l Θ_{w_m,l} (Eq. infer)."""
        return np.asarray(np.einsum("l,klp->kp", self.omega, self.theta)[self.item_cluster])


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
    """Simulate labels from the paper's generative process.

    Parameters
    ----------
    n_items
        Number of items.
    n_annotators
        Number of annotators.
    n_classes
        Number of classes.
    n_item_clusters
        Number of item clusters (K).
    n_annotator_clusters
        Number of annotator clusters (L).
    labels_per_item
        Number of annotators of each item.
    load
        ``"even"``, or ``"long-tail"``: a few annotators give most of the labels, in proportion to
        log-normal weights.
    alpha
        Dirichlet parameter of the answers of each pair of clusters: a number, or one per class.
    gamma
        Dirichlet parameter of the sizes of the item clusters.
    tau
        Dirichlet parameter of the sizes of the annotator clusters.
    pairs
        Labels (a frame, a path or Annotations) whose items, annotators and pairs are used, with new labels;
        the arguments that would determine these must then be left out.
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    """
    pairs = None if pairs is None else as_annotations(pairs)
    _check(locals())
    rng = np.random.default_rng(seed)
    K, L, P = n_item_clusters, n_annotator_clusters, n_classes
    M, N = (n_items, n_annotators) if pairs is None else (pairs.n_items, pairs.n_annotators)
    theta = rng.dirichlet(np.broadcast_to(concentration("simulate", "alpha", alpha, P), P), size=(K, L))
    psi = rng.dirichlet(np.broadcast_to(concentration("simulate", "gamma", gamma, K), K))
    omega = rng.dirichlet(np.broadcast_to(concentration("simulate", "tau", tau, L), L))
    w, z = rng.choice(K, M, p=psi), rng.choice(L, N, p=omega)
    if pairs is None:
        weights = rng.lognormal(0, LONG_TAIL_SIGMA, N) if load == "long-tail" else np.ones(N)
        annotator = assign(M, weights, labels_per_item, rng).ravel()
        item = np.repeat(np.arange(M, dtype=np.int32), labels_per_item)
        names = _names("item", M), _names("annotator", N)
    else:
        item, annotator = pairs.item, pairs.annotator
        names = pairs.item_vocabulary, pairs.annotator_vocabulary
    label = draw(theta.reshape(K * L, -1), w[item] * L + z[annotator], rng)
    if pairs is not None:  # restore the order within pairs with several labels
        label = label[np.lexsort([label, annotator, item])]
    annotations = Annotations(item, annotator, label, *names, _names("class", P))
    return Simulation(annotations, theta, psi, omega, w, z)


def assign(n_items: int, weights: Array, per_item: int, rng: np.random.Generator) -> NDArray[np.int32]:
    """Draw (items, per_item) different annotators for each item, sorted, with probability ∝ weight.

    Annotators are drawn one by one, rejecting repeats. In a small crowd, where repeats are frequent, those
    with the smallest Exp(1) / weight are chosen: the same distribution.
    """
    N = len(weights)
    chosen = np.full((n_items, per_item), -1, dtype=np.int32)
    if MIN_CROWD_PER_LABEL * per_item > N or weights.max() > weights.sum() / 2:
        for part in batches(n_items, max(1, KEYS_PER_CHUNK // N)):
            keys = rng.exponential(size=(len(chosen[part]), N)) / weights
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
    """Draw one class from row ``which[e]`` of the distributions for every e, by inversion."""
    P = distributions.shape[1]
    # row i's cumulative sums, shifted by i, form one sorted array for all draws
    cumulative = np.cumsum(distributions, axis=1)
    steps = (cumulative / cumulative[:, -1:] + np.arange(len(distributions))[:, None]).ravel()
    index = np.searchsorted(steps, which + rng.random(len(which)), side="right")
    return np.asarray(np.clip(index - which * P, 0, P - 1), np.int32)


def _names(role: str, n: int) -> Vocabulary:
    """Return names that sort in the order of their numbers."""
    return Vocabulary([f"{role[0]}{i:0{len(str(n))}d}" for i in range(1, n + 1)], role)


def _check(values: dict[str, Any]) -> None:
    counts = ("n_items", "n_annotators", "n_item_clusters", "n_annotator_clusters", "labels_per_item")
    rules = {name: integer(1) for name in counts} | {"n_classes": integer(2), "seed": integer(0)}
    rules |= {name: dirichlet(0.0, open_low=True) for name in ("alpha", "gamma", "tau")}
    rules["load"] = choice("even", "long-tail")
    check_rules("simulate", rules, **{name: values[name] for name in rules})
    pairs, n_labels = values["pairs"], values["labels_per_item"]
    if pairs is None and n_labels > values["n_annotators"]:
        raise bad_parameter("simulate", "labels_per_item", "at most n_annotators", n_labels)
    if pairs is not None and (pairs.anonymous or not pairs.n_labels):
        raise bad_parameter("simulate", "pairs", "labels with annotators, or None", pairs)
    for name in ("n_items", "n_annotators", "labels_per_item", "load") if pairs is not None else ():
        default = inspect.signature(simulate).parameters[name].default
        if values[name] != default:
            rule = f"left at {default!r} with pairs, which determines it"
            raise bad_parameter("simulate", name, rule, values[name])
