"""Belief propagation against enumeration: exact on trees, its distance stated elsewhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

import dissensus as ds
from dissensus import engine
from dissensus.models.pgm.kernels import FURTHEST, FURTHEST_SINGLE
from dissensus.models.pgm.messages import Beliefs, Graph, Potentials
from sizes import usually
from small_graphs import (
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
    """Beliefs after so many rounds, from a random start.

    The KL between successive beliefs is of second order, so it rounds to 0 while beliefs still move by 1e-8:
    no tolerance here.
    """
    K, L, _ = potentials.log_theta.shape
    rng = np.random.default_rng(seed)
    M, N, _ = graph._shape
    start = graph.start(rng.dirichlet(np.ones(K), size=M), rng.dirichlet(np.ones(L), size=N))
    return graph.settle(start, potentials, rounds=rounds, tol=-np.inf, damping=damping)


def assert_exact(graph: Graph, beliefs: Beliefs, potentials: Potentials, truth: Truth) -> None:
    np.testing.assert_allclose(beliefs.w, truth.w, rtol=EXACT, atol=EXACT)
    np.testing.assert_allclose(beliefs.z, truth.z, rtol=EXACT, atol=EXACT)
    np.testing.assert_allclose(graph.evidence(beliefs), truth.log_evidence, rtol=EXACT)
    statistics = graph.statistics(beliefs, potentials.log_theta)
    np.testing.assert_allclose(statistics.label_mass, truth.label_mass, rtol=EXACT, atol=EXACT)
    np.testing.assert_allclose(statistics.item_mass, truth.w.sum(axis=0), rtol=EXACT)
    np.testing.assert_allclose(statistics.annotator_mass, truth.z.sum(axis=0), rtol=EXACT)


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
def test_a_pair_labelled_again_is_exact(second: str, seed: int) -> None:
    rows, parameters = tree("random", seed)
    m, n, y = rows[seed]
    rows += {
        "the same label": [(m, n, y)],
        "another label": [(m, n, (y + 1) % 3)],
        "three more": [(m, n, 0), (m, n, 1), (m, n, 1)],
    }[second]
    check(crowd(rows, 4, 4, 3), *parameters)


@pytest.mark.parametrize("seed", range(3))
def test_a_forest_with_items_and_annotators_nobody_met_is_exact(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first = labelled(random_tree(2, 2, "random", rng), 3, rng)
    second = labelled(random_tree(2, 1, "random", rng), 3, rng)
    rows = first + [(m + 3, n + 3, y) for m, n, y in second]  # item 2 and annotator 2 have no label
    theta, psi, omega = random_parameters(2, 3, 3, rng)
    annotations = crowd(rows, 5, 4, 3)
    check(annotations, theta, psi, omega)
    beliefs = settled(graph_of(annotations), logs(theta, psi, omega))
    np.testing.assert_allclose(beliefs.w[2], psi, rtol=1e-12)
    np.testing.assert_allclose(beliefs.z[2], omega, rtol=1e-12)


def test_without_any_label_the_shares_are_all_there_is() -> None:
    theta, psi, omega = random_parameters(3, 2, 2, np.random.default_rng(0))
    graph = graph_of(crowd([], 3, 2, 2))
    beliefs = settled(graph, logs(theta, psi, omega))
    np.testing.assert_allclose(beliefs.w, np.tile(psi, (3, 1)), rtol=1e-12)
    np.testing.assert_allclose(beliefs.z, np.tile(omega, (2, 1)), rtol=1e-12)
    np.testing.assert_allclose(graph.evidence(beliefs), 0.0, atol=1e-12)  # nothing said, P = 1


@pytest.mark.parametrize(("K", "L"), [(1, 1), (1, 3), (3, 1)])
def test_one_cluster_on_a_side_is_exact(K: int, L: int) -> None:
    rng = np.random.default_rng(K)
    rows = labelled(random_tree(4, 3, "random", rng), 3, rng)
    check(crowd(rows, 4, 3, 3), *random_parameters(K, L, 3, rng))


def test_sharp_parameters_are_exact() -> None:
    """Clusters that almost never share a label, where messages are as unequal as they get."""
    rng = np.random.default_rng(7)
    rows = labelled(random_tree(4, 4, "random", rng), 3, rng)
    theta, psi, omega = random_parameters(3, 2, 3, rng, alpha=0.05)
    check(crowd(rows, 4, 4, 3), theta + 1e-12, psi, omega)


@pytest.mark.parametrize("n", [6, 12])
def test_many_strong_pairs_that_contradict_each_other_are_exact(n: int) -> None:
    """Each pair speaks for its side by exp(±130) or more: all of them multiplied would be no number."""
    theta = np.array([[[0.999, 0.001], [0.9985, 0.0015]], [[0.001, 0.999], [0.0015, 0.9985]]])
    psi, omega = np.array([0.6, 0.4]), np.array([0.7, 0.3])
    rows = [(0, annotator, annotator % 2) for annotator in range(n) for _ in range(20)]
    graph = graph_of(crowd(rows, 1, n, 2))
    beliefs = settled(graph, logs(theta, psi, omega))
    # w_k ∝ ψ_k Π_n Σ_l Ω_l Θ_kly^20, and by symmetry the product is the same for both k
    of_pairs = np.log((theta[0] ** 20).T @ omega).sum() * n / 2
    np.testing.assert_allclose(beliefs.w, [psi], rtol=EXACT)
    np.testing.assert_allclose(graph.evidence(beliefs), of_pairs, rtol=EXACT)


def test_mild_factors_after_strong_ones_are_exact() -> None:
    """Messages of strong factors, divided out a round later, are large even where factors are mild."""
    sides = [0] * 7 + [1] * 6
    rows = [(0, annotator, side) for annotator, side in enumerate(sides) for _ in range(20)]
    graph, psi, omega = graph_of(crowd(rows, 1, 13, 2)), np.array([0.6, 0.4]), np.array([0.7, 0.3])
    strong = np.array([[[0.999, 0.001], [0.9985, 0.0015]], [[0.001, 0.999], [0.0015, 0.9985]]])
    mild = np.array([[[0.51, 0.49], [0.52, 0.48]], [[0.49, 0.51], [0.48, 0.52]]])
    beliefs = settled(graph, logs(strong, psi, omega))
    beliefs = graph.settle(beliefs, logs(mild, psi, omega), rounds=60, tol=-np.inf)
    # w_k ∝ ψ_k Π_n Σ_l Ω_l Θ_kly^20
    of_sides = np.einsum("l,klp->kp", omega, mild**20)
    weights = psi * np.prod(of_sides[:, sides], axis=1)
    np.testing.assert_allclose(beliefs.w[0], weights / weights.sum(), rtol=EXACT)


@pytest.mark.parametrize("seed", range(3))
def test_items_and_annotators_with_priors_of_their_own_are_exact(seed: int) -> None:
    rows, (theta, _, _) = tree("random", seed)
    rng = np.random.default_rng(seed)
    psi, omega = rng.dirichlet(np.ones(3), size=4), rng.dirichlet(np.ones(2), size=4)
    check(crowd(rows, 4, 4, 3), theta, psi, omega)


@pytest.mark.parametrize("seed", range(3))
def test_potentials_that_are_no_probabilities_are_exact(seed: int) -> None:
    """What variational Bayes passes in: exp of expected logarithms, which sum to less than one."""
    rows, (theta, psi, omega) = tree("random", seed)
    check(crowd(rows, 4, 4, 3), 0.3 * theta, 0.7 * psi, 0.9 * omega)


@pytest.mark.parametrize("seed", range(4))
def test_the_belief_of_every_pair_is_exact(seed: int) -> None:
    """With a class for every pair, the mass of a class is the belief of its pair."""
    rng = np.random.default_rng(seed)
    edges = sorted((m, n) for m, n, _ in random_tree(4, 4, "random", rng))
    rows = [(m, n, e) for e, (m, n) in enumerate(edges)]
    theta, psi, omega = random_parameters(2, 3, len(rows), rng)
    annotations = crowd(rows, 4, 4, len(rows))
    graph, potentials = graph_of(annotations), logs(theta, psi, omega)
    mass = graph.statistics(settled(graph, potentials), potentials.log_theta).label_mass
    truth = enumerated(annotations, theta, psi, omega)
    np.testing.assert_allclose(mass.transpose(2, 0, 1), truth.pairs, rtol=EXACT, atol=EXACT)


def test_the_product_statistics_multiply_node_beliefs() -> None:
    rows, parameters = tree("random", 0)
    rows.append(rows[0])
    annotations = crowd(rows, 4, 4, 3)
    graph, truth = graph_of(annotations), enumerated(annotations, *parameters)
    expected = np.zeros((3, 2, 3))
    for m, n, y in rows:
        expected[:, :, y] += np.outer(truth.w[m], truth.z[n])
    beliefs = settled(graph, logs(*parameters))
    np.testing.assert_allclose(graph.statistics(beliefs, None).label_mass, expected, rtol=1e-9)
    assert np.abs(expected - truth.label_mass).max() > 1e-3  # what the paper's M-step leaves out


def test_as_many_rounds_as_the_tree_is_deep_settle_it() -> None:
    rows, parameters = tree("chain", 1)
    graph, potentials = graph_of(crowd(rows, 4, 4, 2)), logs(*parameters)
    beliefs = settled(graph, potentials, rounds=9)
    assert beliefs.change < 1e-15
    assert settled(graph, potentials, rounds=2).change > 1e-6


def test_settling_stops_at_the_tolerance() -> None:
    rows, parameters = tree("chain", 1)
    graph, potentials = graph_of(crowd(rows, 4, 4, 2)), logs(*parameters)
    start = graph.start(np.full((4, 2), 0.5), np.full((4, 3), 1 / 3))
    loose = graph.settle(start, potentials, rounds=50, tol=0.01)
    assert 1e-15 < loose.change <= 0.01
    once = graph.round(start, potentials)
    assert once.change > 0.01
    # A single round is never compared with anything, so its movement is not measured.
    assert np.isnan(graph.settle(start, potentials, rounds=1, tol=0.01).change)


def test_the_change_is_the_summed_divergence_of_the_beliefs() -> None:
    rows, parameters = tree("random", 2)
    graph, potentials = graph_of(crowd(rows, 4, 4, 3)), logs(*parameters)
    before = settled(graph, potentials, rounds=1)
    after = graph.round(before, potentials)
    expected = sum(
        float((new * np.log(new / old)).sum()) for new, old in ((after.w, before.w), (after.z, before.z))
    )
    np.testing.assert_allclose(after.change, expected, rtol=1e-9)


# ---- loops ---------------------------------------------------------------------------------------------

# The largest distance from enumeration over ten draws of Θ ~ Dir(1): of a belief, and of the log-evidence.
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
def test_the_distance_from_enumeration_on_loops_is_stated(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    edges, belief_bound, evidence_bound = LOOPY[name]
    gaps = []
    for seed in range(usually(4, verify=10)):
        annotations, parameters = loopy(edges, seed)
        graph, truth = graph_of(annotations), enumerated(annotations, *parameters)
        beliefs = settled(graph, logs(*parameters), rounds=300)
        gaps.append(
            (
                max(np.abs(beliefs.w - truth.w).max(), np.abs(beliefs.z - truth.z).max()),
                abs(graph.evidence(beliefs) - truth.log_evidence),
            )
        )
    belief, evidence = np.max(gaps, axis=0)
    with capsys.disabled():
        print(f"\n{name}: beliefs within {belief:.4f} of enumeration, log-evidence within {evidence:.4f}")
    assert 1e-9 < belief < belief_bound
    assert 1e-9 < evidence < evidence_bound


@pytest.mark.parametrize("name", LOOPY)
def test_damping_reaches_the_same_fixed_point(name: str) -> None:
    annotations, parameters = loopy(LOOPY[name][0], 3)
    graph, potentials = graph_of(annotations), logs(*parameters)
    plain, damped = (settled(graph, potentials, rounds=400, damping=damping) for damping in (0.0, 0.7))
    np.testing.assert_allclose(damped.w, plain.w, rtol=EXACT)
    np.testing.assert_allclose(damped.z, plain.z, rtol=EXACT)
    np.testing.assert_allclose(graph.evidence(damped), graph.evidence(plain), rtol=EXACT)
    np.testing.assert_allclose(
        graph.statistics(damped, potentials.log_theta).label_mass,
        graph.statistics(plain, potentials.log_theta).label_mass,
        rtol=EXACT,
    )


def test_damping_slows_the_messages_down() -> None:
    annotations, parameters = loopy(LOOPY["complete, 3 × 3"][0], 3)
    graph, potentials = graph_of(annotations), logs(*parameters)
    plain, damped = (settled(graph, potentials, rounds=5, damping=damping) for damping in (0.0, 0.7))
    assert damped.change > 2 * plain.change


def test_a_damped_message_is_the_geometric_mean_of_the_new_and_the_old() -> None:
    """At first messages say nothing, so what one round says of z counts 1 − damping times."""
    annotations, parameters = loopy(LOOPY["complete, 3 × 3"][0], 3)
    graph, potentials = graph_of(annotations), logs(*parameters)
    plain, damped = (settled(graph, potentials, rounds=1, damping=damping) for damping in (0.0, 0.2))
    expected = np.exp(potentials.log_omega + 0.8 * (np.log(plain.z) - potentials.log_omega))
    np.testing.assert_allclose(damped.z, expected / expected.sum(axis=1, keepdims=True), rtol=EXACT)


def test_damped_trees_are_exact() -> None:
    rows, parameters = tree("random", 4)
    annotations = crowd(rows, 4, 4, 3)
    graph, potentials = graph_of(annotations), logs(*parameters)
    truth = enumerated(annotations, *parameters)
    assert_exact(graph, settled(graph, potentials, rounds=200, damping=0.5), potentials, truth)


# ---- the scale of messages -----------------------------------------------------------------------------


def scaled(beliefs: Beliefs, scale: float, dtype: type = np.float64) -> Beliefs:
    """The same beliefs, the messages of every other pair times exp(scale), the others' times exp(−scale)."""
    by = np.exp(scale * (-1.0) ** np.arange(len(beliefs.nu)))[:, None]
    return replace(beliefs, nu=(beliefs.nu * by).astype(dtype))


@pytest.mark.parametrize("damping", [0.0, 0.4])
@pytest.mark.parametrize("scale", [1.0, 30.0, 145.0, 149.9])  # the last is too far
def test_the_scale_of_messages_says_nothing(scale: float, damping: float) -> None:
    """Messages are not normalised: what each is too large by stands once in Z_n and once in Z_e."""
    annotations, parameters = loopy(LOOPY["complete, 3 × 3"][0], 3)
    graph, potentials = graph_of(annotations), logs(*parameters)
    beliefs = settled(graph, potentials, rounds=2)
    plain = graph.round(beliefs, potentials, damping)
    other = graph.round(scaled(beliefs, scale), potentials, damping)
    np.testing.assert_allclose(other.w, plain.w, rtol=EXACT)
    np.testing.assert_allclose(other.z, plain.z, rtol=EXACT)
    np.testing.assert_allclose(graph.evidence(other), graph.evidence(plain), rtol=EXACT)


def star(of: str, labels: int = 1, sides: int = 2) -> Graph:
    """One item with 13 annotators, or one annotator with 13 items; the pairs say 0, or 0 and 1 in turn."""
    ends = [(0, other) if of == "an item" else (other, 0) for other in range(13)]
    rows = [(*end, other % sides) for other, end in enumerate(ends) for _ in range(labels)]
    return graph_of(crowd(rows, *((1, 13) if of == "an item" else (13, 1)), 2))


def times(beliefs: Beliefs, factor: float) -> Beliefs:
    """The same beliefs, every message so many times as large."""
    return replace(beliefs, nu=beliefs.nu * beliefs.nu.dtype.type(factor))


@pytest.mark.parametrize("of", ["an item", "an annotator"])
@pytest.mark.parametrize("scale", [-145.0, 145.0])
@pytest.mark.parametrize("damping", [0.0, 0.5])
def test_far_messages_of_many_pairs_are_multiplied_a_few_at_a_time(
    scale: float, of: str, damping: float
) -> None:
    graph, potentials = star(of), logs(*random_parameters(2, 2, 2, np.random.default_rng(3)))
    beliefs = settled(graph, potentials, rounds=2)
    plain = graph.round(beliefs, potentials, damping)
    other = graph.round(times(beliefs, np.exp(scale)), potentials, damping)
    np.testing.assert_allclose(other.w, plain.w, rtol=EXACT)
    np.testing.assert_allclose(other.z, plain.z, rtol=EXACT)
    np.testing.assert_allclose(graph.evidence(other), graph.evidence(plain), rtol=EXACT)


@pytest.mark.parametrize("of", ["an item", "an annotator"])
@pytest.mark.parametrize("sides", [1, 2])
@pytest.mark.parametrize("damping", [0.0, 0.9])
def test_strong_messages_of_many_pairs_are_multiplied_a_few_at_a_time(
    of: str, sides: int, damping: float
) -> None:
    """Each pair speaks by exp(130) for a cluster: 13 of them multiplied are no number, or 6 against 7."""
    by_cluster = np.array([[0.9985, 0.0015], [0.0015, 0.9985]])
    theta = np.stack([by_cluster] * 2, axis=1 if of == "an item" else 0)
    graph, shares = star(of, labels=20, sides=sides), (np.array([0.6, 0.4]), np.array([0.7, 0.3]))
    strong, mild = logs(theta, *shares), logs(0.5 + 0.01 * (theta - 0.5), *shares)
    beliefs, said = settled(graph, strong, rounds=3), np.arange(13) % sides
    for potentials in (strong, mild):
        after = graph.round(beliefs, potentials, damping)
        # a message is Θ_y^20, whoever hears it; one to an annotator is damped by the old one, a strong one
        new, old = (
            20 * (one.log_theta[:, 0] if of == "an item" else one.log_theta[0])
            for one in (potentials, strong)
        )
        heard = new if of == "an item" else (1 - damping) * new + damping * old
        logits = (potentials.log_psi if of == "an item" else potentials.log_omega) + heard[:, said].sum(
            axis=1
        )
        expected = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        np.testing.assert_allclose(after.w[0] if of == "an item" else after.z[0], expected, rtol=1e-7)
        assert np.isfinite(after.node_terms)
        assert np.isfinite(graph.evidence(after))


@pytest.mark.parametrize(("dtype", "furthest"), [(np.float64, FURTHEST), (np.float32, FURTHEST_SINGLE)])
def test_messages_that_have_gone_far_are_normalised(dtype: type, furthest: float) -> None:
    annotations, parameters = loopy(LOOPY["complete, 3 × 3"][0], 3)
    graph, potentials = graph_of(annotations, dtype=dtype), logs(*parameters)
    beliefs = settled(graph, potentials, rounds=2)
    near, far = (graph.round(scaled(beliefs, scale, dtype), potentials).nu for scale in (10.0, furthest))
    assert np.abs(np.log(near)).max() > 5  # as they came
    # ν = Σ_k F ŵ_e(k) with ŵ that sums to one and F ≤ 1
    assert 0 < far.min() < far.max() <= 1
    ratio = near.astype(np.float64) / far  # of a pair the same in every column
    np.testing.assert_allclose(ratio, np.repeat(ratio[:, :1], ratio.shape[1], axis=1), rtol=1e-5)


@pytest.mark.parametrize("scale", [10.0, 25.0, 60.0])
def test_in_single_precision_strong_messages_that_have_gone_far_stay_numbers(scale: float) -> None:
    """An outvoted pair whose factor is at its floor, its message far from one: what would leave the range is
    normalised before it is multiplied."""
    theta = np.array([[[0.999, 0.001], [0.99, 0.01]], [[0.001, 0.999], [0.01, 0.99]]])
    rows = [(0, annotator, int(annotator == 3)) for annotator in range(4) for _ in range(25)]
    graph = graph_of(crowd(rows, 1, 4, 2), dtype=np.float32)
    potentials = logs(theta, np.array([0.5, 0.5]), np.array([0.5, 0.5]))
    beliefs = settled(graph, potentials, rounds=2)
    plain, other = (graph.round(times(beliefs, by), potentials) for by in (1.0, np.exp(scale)))
    nu = other.nu[:4]  # a row for each pair; the rows of further labels of a pair are not filled
    assert np.isfinite(nu).all()
    assert (nu > 0).all()
    np.testing.assert_allclose(other.w, plain.w, rtol=1e-5)
    np.testing.assert_allclose(other.z, plain.z, rtol=1e-5)
    np.testing.assert_allclose(graph.evidence(other), graph.evidence(plain), rtol=1e-5)


# ---- shards --------------------------------------------------------------------------------------------

CROWD = ds.simulate(60, 12, 3, labels_per_item=5, seed=3).annotations


def test_how_items_are_cut_into_shards_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    potentials = logs(*random_parameters(4, 3, 3, rng))
    start = rng.dirichlet(np.ones(4), size=60), rng.dirichlet(np.ones(3), size=12)

    def run() -> tuple[Array, ...]:
        graph = graph_of(CROWD)
        beliefs = graph.settle(graph.start(*start), potentials, rounds=4, tol=0.0)
        statistics = graph.statistics(beliefs, potentials.log_theta)
        return beliefs.w, beliefs.z, statistics.label_mass, np.array(graph.evidence(beliefs))

    whole = run()
    for size in (7, 40, 1000):
        monkeypatch.setattr(engine, "LABELS_PER_SHARD", size)
        n_shards = sum(len(block.item_bounds) - 1 for block in engine.cut_blocks(CROWD))
        assert n_shards == max(1, min(60, -(-300 // size)))
        for one, other in zip(whole, run(), strict=True):
            np.testing.assert_allclose(other, one, rtol=1e-12)


@pytest.mark.parametrize("damping", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("rounds", [1, 3])
def test_pairwise_counts_keep_every_label_even_before_messages_settle(rounds: int, damping: float) -> None:
    potentials = logs(*random_parameters(4, 3, 3, np.random.default_rng(0)))
    graph = graph_of(CROWD)
    beliefs = settled(graph, potentials, rounds=rounds, damping=damping)
    mass = graph.statistics(beliefs, potentials.log_theta).label_mass.sum(axis=(0, 1))
    np.testing.assert_allclose(mass, np.bincount(CROWD.label), rtol=1e-12)


def test_threads_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LABELS_PER_SHARD", 20)
    rng = np.random.default_rng(0)
    potentials = logs(*random_parameters(4, 3, 3, rng))
    start = rng.dirichlet(np.ones(4), size=60), rng.dirichlet(np.ones(3), size=12)
    results = []
    for n_jobs in (1, 2, 3):
        with engine.threads(n_jobs) as threads:
            graph = Graph(CROWD, threads)
            beliefs = graph.settle(graph.start(*start), potentials, rounds=6, tol=0.0)
            mass = graph.statistics(beliefs, potentials.log_theta).label_mass
            results.append(
                (beliefs.w.tobytes(), beliefs.z.tobytes(), mass.tobytes(), graph.evidence(beliefs))
            )
    assert results[0] == results[1] == results[2]
