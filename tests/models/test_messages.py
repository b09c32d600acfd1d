"""Belief propagation against enumeration: exact on trees, close on loops; the scale of messages."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.special import softmax

import dissensus as ds
from dissensus.models.pgm.kernels import MAX_LOG_MESSAGE, MAX_LOG_MESSAGE_SINGLE
from dissensus.models.pgm.messages import Beliefs, Graph, Potentials
from tests.helpers.sizes import usually
from tests.helpers.small_graphs import (
    Row,
    Truth,
    crowd,
    enumerated,
    graph_of,
    labelled,
    logs,
    random_parameters,
    random_tree,
)

pytestmark = pytest.mark.no_cover

Array = NDArray[np.float64]
EXACT = 1e-9

SHAPES = {  # K, L, P, items, annotators
    "random": (3, 2, 3, 4, 4),
    "chain": (2, 3, 2, 4, 4),
    "star": (2, 2, 4, 4, 5),
}


def settled(
    graph: Graph, potentials: Potentials, *, rounds: int = 60, damping: float = 0.0, seed: int = 0
) -> Beliefs:
    """Return the beliefs after ``rounds`` rounds from a random start.

    There is no tolerance: the KL between beliefs is of second order, and rounds to 0 while they move by 1e-8.
    """
    K, L, _ = potentials.log_theta.shape
    rng = np.random.default_rng(seed)
    M, N, _ = graph._shape
    start = graph.start(rng.dirichlet(np.ones(K), size=M), rng.dirichlet(np.ones(L), size=N))
    return graph.propagate(start, potentials, rounds=rounds, tol=-np.inf, damping=damping)


def evidence_of(graph: Graph, beliefs: Beliefs) -> float:
    """Return log Z: a further round, with any potentials, computes the pair terms of its start."""
    K, L, P = beliefs.w.shape[1], beliefs.z.shape[1], graph.blocks.blocks[0].labels.n_classes
    flat = Potentials(np.zeros((K, L, P)), np.zeros(K), np.zeros(L))
    return beliefs.node_terms - graph.round(beliefs, flat).pair_terms_before


def assert_exact(graph: Graph, beliefs: Beliefs, potentials: Potentials, truth: Truth) -> None:
    assert_allclose(beliefs.w, truth.w, rtol=EXACT, atol=EXACT)
    assert_allclose(beliefs.z, truth.z, rtol=EXACT, atol=EXACT)
    assert_allclose(evidence_of(graph, beliefs), truth.log_evidence, rtol=EXACT)
    statistics = graph.statistics(beliefs, potentials.log_theta)
    assert_allclose(statistics.label_mass, truth.label_mass, rtol=EXACT, atol=EXACT)
    assert_allclose(statistics.item_mass, truth.w.sum(axis=0), rtol=EXACT)
    assert_allclose(statistics.annotator_mass, truth.z.sum(axis=0), rtol=EXACT)


def assert_equal_beliefs(graph: Graph, first: Beliefs, second: Beliefs, rtol: float = EXACT) -> None:
    assert_allclose(first.w, second.w, rtol=rtol)
    assert_allclose(first.z, second.z, rtol=rtol)
    assert_allclose(evidence_of(graph, first), evidence_of(graph, second), rtol=rtol)


def check(annotations: ds.Annotations, theta: Array, psi: Array, omega: Array) -> None:
    graph, potentials = graph_of(annotations), logs(theta, psi, omega)
    truth = enumerated(annotations, theta, psi, omega)
    assert_exact(graph, settled(graph, potentials), potentials, truth)


def tree(shape: str, seed: int) -> tuple[list[Row], tuple[Array, Array, Array]]:
    K, L, P, M, N = SHAPES[shape]
    rng = np.random.default_rng([seed, len(shape)])
    rows = labelled(random_tree(M, N, shape, rng), P, rng)
    return rows, random_parameters(K, L, P, rng)


# ---- exact on trees ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("shape", SHAPES)
def test_trees_are_exact(shape: str, seed: int) -> None:
    rows, parameters = tree(shape, seed)
    _, _, P, M, N = SHAPES[shape]
    check(crowd(rows, M, N, P), *parameters)


@pytest.mark.parametrize("second", ["the same label", "another label", "three more"])
@pytest.mark.parametrize("seed", range(3))
def test_repeated_labels_of_a_pair_are_exact(second: str, seed: int) -> None:
    rows, parameters = tree("random", seed)
    m, n, y = rows[seed]
    rows += {
        "the same label": [(m, n, y)],
        "another label": [(m, n, (y + 1) % 3)],
        "three more": [(m, n, 0), (m, n, 1), (m, n, 1)],
    }[second]
    check(crowd(rows, 4, 4, 3), *parameters)


@pytest.mark.parametrize("seed", range(3))
def test_a_forest_with_isolated_nodes_is_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first = labelled(random_tree(2, 2, "random", rng), 3, rng)
    second = labelled(random_tree(2, 1, "random", rng), 3, rng)
    rows = first + [(m + 3, n + 3, y) for m, n, y in second]  # item 2 and annotator 2 have no labels
    theta, psi, omega = random_parameters(2, 3, 3, rng)
    annotations = crowd(rows, 5, 4, 3)
    check(annotations, theta, psi, omega)
    beliefs = settled(graph_of(annotations), logs(theta, psi, omega))
    assert_allclose(beliefs.w[2], psi, rtol=1e-12)
    assert_allclose(beliefs.z[2], omega, rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_priors_per_item_and_annotator_are_exact(seed: int) -> None:
    """Also if they sum to less than one, as exp of expected logarithms does in variational Bayes."""
    rows, (theta, _, _) = tree("random", seed)
    rng = np.random.default_rng(seed)
    psi, omega = rng.dirichlet(np.ones(3), size=4), rng.dirichlet(np.ones(2), size=4)
    check(crowd(rows, 4, 4, 3), 0.3 * theta, 0.7 * psi, 0.9 * omega)


def test_product_statistics_multiply_beliefs() -> None:
    rows, parameters = tree("random", 0)
    rows.append(rows[0])
    annotations = crowd(rows, 4, 4, 3)
    graph, truth = graph_of(annotations), enumerated(annotations, *parameters)
    expected = np.zeros((3, 2, 3))
    for m, n, y in rows:
        expected[:, :, y] += np.outer(truth.w[m], truth.z[n])
    beliefs = settled(graph, logs(*parameters))
    assert_allclose(graph.statistics(beliefs, None).label_mass, expected, rtol=1e-9)
    assert np.abs(expected - truth.label_mass).max() > 1e-3  # the error of the paper's M-step


def test_propagation_stops_at_the_tolerance() -> None:
    rows, parameters = tree("chain", 1)
    graph, potentials = graph_of(crowd(rows, 4, 4, 2)), logs(*parameters)
    start = graph.start(np.full((4, 2), 0.5), np.full((4, 3), 1 / 3))
    loose = graph.propagate(start, potentials, rounds=50, tol=0.01)
    assert 1e-15 < loose.change <= 0.01
    once = graph.round(start, potentials)
    assert once.change > 0.01
    # the change of a single round is not measured
    assert np.isnan(graph.propagate(start, potentials, rounds=1, tol=0.01).change)


def test_change_is_the_summed_divergence() -> None:
    rows, parameters = tree("random", 2)
    graph, potentials = graph_of(crowd(rows, 4, 4, 3)), logs(*parameters)
    before = settled(graph, potentials, rounds=1)
    after = graph.round(before, potentials)
    rows = (after.w, before.w), (after.z, before.z)
    expected = sum(float((new * np.log(new / old)).sum()) for new, old in rows)
    assert_allclose(after.change, expected, rtol=1e-9)


# ---- loops ---------------------------------------------------------------------------------------------

# largest distance from enumeration over ten draws of Θ ~ Dir(1), of a belief and of the log-evidence
LOOPY: dict[str, tuple[list[tuple[int, int]], float, float]] = {
    "a ring of four": ([(0, 0), (0, 1), (1, 0), (1, 1)], 0.02, 0.02),
    "a ring of eight": ([(m, n % 4) for m in range(4) for n in (m, m + 1)], 0.01, 0.02),
    "complete, 3 × 3": ([(m, n) for m in range(3) for n in range(3)], 0.15, 0.2),
}


def loopy(edges: list[tuple[int, int]], seed: int) -> tuple[ds.Annotations, tuple[Array, Array, Array]]:
    rng = np.random.default_rng(seed)
    rows = [(m, n, int(rng.integers(3))) for m, n in edges]
    size = max(m for m, _ in edges) + 1, max(n for _, n in edges) + 1
    return crowd(rows, *size, 3), random_parameters(2, 2, 3, rng)


@pytest.mark.parametrize("name", LOOPY)
def test_distance_from_enumeration_on_loops(name: str) -> None:
    edges, belief_bound, evidence_bound = LOOPY[name]
    gaps = []
    for seed in range(usually(4, verify=10)):
        annotations, parameters = loopy(edges, seed)
        graph, truth = graph_of(annotations), enumerated(annotations, *parameters)
        beliefs = settled(graph, logs(*parameters), rounds=300)
        gap = max(np.abs(beliefs.w - truth.w).max(), np.abs(beliefs.z - truth.z).max())
        gaps.append((gap, abs(evidence_of(graph, beliefs) - truth.log_evidence)))
    belief, evidence = np.max(gaps, axis=0)
    assert 1e-9 < belief < belief_bound
    assert 1e-9 < evidence < evidence_bound


def test_damped_messages_are_geometric_means() -> None:
    """The initial messages are ones, so the first message to z has the exponent 1 − damping."""
    annotations, parameters = loopy(LOOPY["complete, 3 × 3"][0], 3)
    graph, potentials = graph_of(annotations), logs(*parameters)
    plain, damped = (settled(graph, potentials, rounds=1, damping=damping) for damping in (0.0, 0.2))
    expected = np.exp(potentials.log_omega + 0.8 * (np.log(plain.z) - potentials.log_omega))
    assert_allclose(damped.z, expected / expected.sum(axis=1, keepdims=True), rtol=EXACT)


@pytest.mark.parametrize("damping", [0.0, 0.9])
def test_pairwise_counts_sum_to_the_labels(damping: float) -> None:
    """Also before the messages have converged."""
    annotations, parameters = loopy(LOOPY["complete, 3 × 3"][0], 3)
    graph, potentials = graph_of(annotations), logs(*parameters)
    beliefs = settled(graph, potentials, rounds=1, damping=damping)
    mass = graph.statistics(beliefs, potentials.log_theta).label_mass.sum(axis=(0, 1))
    assert_allclose(mass, np.bincount(annotations.label, minlength=3), rtol=1e-12)


# ---- the scale of messages -----------------------------------------------------------------------------


def scaled(beliefs: Beliefs, scale: float, dtype: type = np.float64) -> Beliefs:
    """Multiply the messages of pairs by exp(scale) and exp(−scale) in turn."""
    by = np.exp(scale * (-1.0) ** np.arange(len(beliefs.nu)))[:, None]
    return replace(beliefs, nu=(beliefs.nu * by).astype(dtype))


@pytest.mark.parametrize("damping", [0.0, 0.4])
@pytest.mark.parametrize("scale", [1.0, 30.0, 145.0, 149.9])  # the last is rescaled
def test_the_scale_of_messages_does_not_matter(scale: float, damping: float) -> None:
    """The factor of a message is once in Z_n and once in Z_e, and cancels."""
    annotations, parameters = loopy(LOOPY["complete, 3 × 3"][0], 3)
    graph, potentials = graph_of(annotations), logs(*parameters)
    beliefs = settled(graph, potentials, rounds=2)
    plain = graph.round(beliefs, potentials, damping)
    assert_equal_beliefs(graph, graph.round(scaled(beliefs, scale), potentials, damping), plain)


def star(of: str, labels: int = 1, sides: int = 2) -> Graph:
    """Build one item with 13 annotators or one annotator with 13 items, with classes in turn."""
    ends = [(0, other) if of == "an item" else (other, 0) for other in range(13)]
    rows = [(*end, other % sides) for other, end in enumerate(ends) for _ in range(labels)]
    return graph_of(crowd(rows, *((1, 13) if of == "an item" else (13, 1)), 2))


def times(beliefs: Beliefs, factor: float) -> Beliefs:
    """Multiply every message by ``factor``."""
    return replace(beliefs, nu=beliefs.nu * beliefs.nu.dtype.type(factor))


@pytest.mark.parametrize("of", ["an item", "an annotator"])
@pytest.mark.parametrize("scale", [-145.0, 145.0])
@pytest.mark.parametrize("damping", [0.0, 0.5])
def test_products_of_large_messages_do_not_overflow(scale: float, of: str, damping: float) -> None:
    graph, potentials = star(of), logs(*random_parameters(2, 2, 2, np.random.default_rng(3)))
    beliefs = settled(graph, potentials, rounds=2)
    plain = graph.round(beliefs, potentials, damping)
    assert_equal_beliefs(graph, graph.round(times(beliefs, np.exp(scale)), potentials, damping), plain)


@pytest.mark.parametrize("of", ["an item", "an annotator"])
@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("damping", [0.0, 0.9])
def test_products_of_strong_messages_do_not_overflow(of: str, sides: int, damping: float) -> None:
    """Messages are exp(130) for a cluster; the product of 13, or of 6 against 7, would overflow."""
    by_cluster = np.array([[0.9985, 0.0015], [0.0015, 0.9985]])
    theta = np.stack([by_cluster] * 2, axis=1 if of == "an item" else 0)
    graph, shares = star(of, labels=20, sides=sides), (np.array([0.6, 0.4]), np.array([0.7, 0.3]))
    strong, mild = logs(theta, *shares), logs(0.5 + 0.01 * (theta - 0.5), *shares)
    beliefs, label = settled(graph, strong, rounds=3), np.arange(13) % sides
    for potentials in (strong, mild):
        after = graph.round(beliefs, potentials, damping)
        # a message is Θ_y^20; one to an annotator is damped by the old, strong one
        if of == "an item":
            belief, logits, message = after.w[0], potentials.log_psi, 20 * potentials.log_theta[:, 0]
        else:
            belief, logits, message = after.z[0], potentials.log_omega, 20 * potentials.log_theta[0]
            message = (1 - damping) * message + damping * 20 * strong.log_theta[0]
        logits = logits + message[:, label].sum(axis=1)
        assert_allclose(belief, softmax(logits), rtol=1e-7)
        assert np.isfinite(after.node_terms)
        assert np.isfinite(evidence_of(graph, after))


@pytest.mark.parametrize(
    ("dtype", "furthest"), [(np.float64, MAX_LOG_MESSAGE), (np.float32, MAX_LOG_MESSAGE_SINGLE)]
)
def test_large_messages_are_normalised(dtype: type, furthest: float) -> None:
    annotations, parameters = loopy(LOOPY["complete, 3 × 3"][0], 3)
    graph, potentials = graph_of(annotations, dtype=dtype), logs(*parameters)
    beliefs = settled(graph, potentials, rounds=2)
    near, far = (graph.round(scaled(beliefs, scale, dtype), potentials).nu for scale in (10.0, furthest))
    assert np.abs(np.log(near)).max() > 5  # not normalised
    # ν = Σ_k F ŵ_e(k) with ŵ that sums to one and F ≤ 1
    assert 0 < far.min() < far.max() <= 1
    ratio = near.astype(np.float64) / far  # equal in all columns of a pair
    assert_allclose(ratio, np.repeat(ratio[:, :1], ratio.shape[1], axis=1), rtol=1e-5)


@pytest.mark.parametrize("scale", [10.0, 25.0, 60.0])
def test_large_single_precision_messages_stay_finite(scale: float) -> None:
    """The factor of an outvoted pair is at its minimum, and its message is large."""
    theta = np.array([[[0.999, 0.001], [0.99, 0.01]], [[0.001, 0.999], [0.01, 0.99]]])
    rows = [(0, annotator, int(annotator == 3)) for annotator in range(4) for _ in range(25)]
    graph = graph_of(crowd(rows, 1, 4, 2), dtype=np.float32)
    potentials = logs(theta, np.array([0.5, 0.5]), np.array([0.5, 0.5]))
    beliefs = settled(graph, potentials, rounds=2)
    plain, other = (graph.round(times(beliefs, by), potentials) for by in (1.0, np.exp(scale)))
    nu = other.nu[:4]  # a row per pair; other rows are unused
    assert np.isfinite(nu).all()
    assert (nu > 0).all()
    assert_equal_beliefs(graph, other, plain, rtol=1e-5)
