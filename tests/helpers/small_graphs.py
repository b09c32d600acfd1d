"""Graphs small enough to enumerate all states of the hidden clusters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dissensus as ds
from dissensus.engine import Engine
from dissensus.labels.vocabulary import Vocabulary
from dissensus.models.pgm.messages import Graph, Potentials

Array = NDArray[np.float64]
Row = tuple[int, int, int]  # item, annotator, label


def names(letter: str, n: int) -> list[str]:
    return [f"{letter}{i:02d}" for i in range(n)]


def crowd(rows: Sequence[Row], n_items: int, n_annotators: int, n_classes: int) -> ds.Annotations:
    """Return annotations by codes, including items and annotators without labels."""
    item, annotator, label = np.array(sorted(rows), dtype=np.int32).reshape(-1, 3).T.copy()
    sizes = {"item": n_items, "annotator": n_annotators, "class": n_classes}
    return ds.Annotations(item, annotator, label, *(Vocabulary(names(k[0], n), k) for k, n in sizes.items()))


def random_tree(n_items: int, n_annotators: int, shape: str, rng: np.random.Generator) -> list[Row]:
    """Return the edges (item, annotator, 0) of a tree over all items and annotators.

    ``"random"`` connects each new node to any node of the other kind, ``"chain"`` to the latest, ``"star"``
    to the first.
    """
    newcomers = ["annotator"] + ["item"] * (n_items - 1) + ["annotator"] * (n_annotators - 1)
    if shape == "chain":
        newcomers = [("annotator", "item")[i % 2] for i in range(n_items + n_annotators - 1)]
    elif shape == "random":
        newcomers[1:] = rng.permutation(newcomers[1:]).tolist()
    here = {"item": 1, "annotator": 0}
    edges = []
    for kind in newcomers:
        other = "annotator" if kind == "item" else "item"
        host = {"random": int(rng.integers(here[other])), "chain": here[other] - 1, "star": 0}[shape]
        new = here[kind]
        here[kind] += 1
        edges.append((new, host, 0) if kind == "item" else (host, new, 0))
    return edges


def labelled(edges: Sequence[Row], n_classes: int, rng: np.random.Generator) -> list[Row]:
    """Return the edges with random labels."""
    return [(m, n, int(rng.integers(n_classes))) for m, n, _ in edges]


@dataclass(frozen=True)
class Truth:
    """Posteriors and evidence by enumeration, given the parameters."""

    w: Array  # (M, K)
    z: Array  # (N, L)
    pairs: Array  # (pairs, K, L): P(w_m = k, z_n = l), pairs in order of (item, annotator)
    label_mass: Array  # (K, L, P)
    log_evidence: float


def enumerated(annotations: ds.Annotations, theta: Array, psi: Array, omega: Array) -> Truth:
    """Sum over all K^M · L^N states; ψ and Ω may have a row per item or annotator."""
    (K, L, P), M, N = theta.shape, annotations.n_items, annotations.n_annotators
    states = np.indices((K,) * M + (L,) * N).reshape(M + N, -1).T
    w, z = states[:, :M], states[:, M:]
    psi, omega = np.broadcast_to(psi, (M, K)), np.broadcast_to(omega, (N, L))
    joint = psi[np.arange(M), w].prod(axis=1) * omega[np.arange(N), z].prod(axis=1)
    for m, n, y in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        joint = joint * theta[w[:, m], z[:, n], y]
    evidence = joint.sum()
    posterior = joint / evidence

    def table(of: Array, size: int) -> Array:
        return np.stack([np.bincount(column, posterior, size) for column in of.T]) if of.size else of

    couples = sorted(set(zip(annotations.item.tolist(), annotations.annotator.tolist(), strict=True)))
    pairs = np.stack([np.bincount(w[:, m] * L + z[:, n], posterior, K * L).reshape(K, L) for m, n in couples])
    mass = np.zeros((K, L, P))
    for m, n, y in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        mass[:, :, y] += pairs[couples.index((m, n))]
    return Truth(table(w, K), table(z, L), pairs, mass, float(np.log(evidence)))


def random_parameters(
    K: int, L: int, P: int, rng: np.random.Generator, alpha: float = 1.0
) -> tuple[Array, Array, Array]:
    """Draw Θ, ψ and Ω."""
    theta = rng.dirichlet(np.full(P, alpha), size=(K, L))
    return theta, rng.dirichlet(np.full(K, 2.0)), rng.dirichlet(np.full(L, 2.0))


def graph_of(annotations: ds.Annotations, *, dtype: Any = np.float64) -> Graph:
    return Graph(annotations, Engine(dtype=dtype))


def logs(theta: Array, psi: Array, omega: Array) -> Potentials:
    return Potentials(np.log(theta), np.log(psi), np.log(omega))


def posterior_by_hand(annotations: ds.Annotations, matrices: Array, psi: Array) -> tuple[Array, float]:
    """Apply Bayes' rule item by item; return the posteriors of the true classes and the log-likelihood."""
    joint = np.tile(psi, (annotations.n_items, 1))
    for m, n, y in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        joint[m] *= matrices[n, :, y]
    sums = joint.sum(axis=1)
    return joint / sums[:, None], float(np.log(sums).sum())


def counts_by_hand(annotations: ds.Annotations, w: Array) -> Array:
    """Return the expected number of answers by annotator, true class and answer."""
    counts = np.zeros((annotations.n_annotators, w.shape[1], annotations.n_classes))
    for m, n, y in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        counts[n, :, y] += w[m]
    return counts
