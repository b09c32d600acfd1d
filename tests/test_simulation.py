"""The simulator draws what Algorithm 1 says, and its truth is exact."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

import dissensus as ds
from dissensus.errors import ParameterError
from dissensus.labels import simulation
from dissensus.labels.simulation import Simulation, assign, draw

SIGMAS = 5  # how many standard errors a frequency may be off: one test in a million would fail by chance


def assert_frequencies(counts: NDArray[np.int64], chances: NDArray[np.float64]) -> None:
    """Observed counts agree with planted chances, cell by cell."""
    n = counts.sum()
    error = np.sqrt(n * chances * (1 - chances)) + 1
    assert (np.abs(counts - n * chances) <= SIGMAS * error).all(), (counts / n, chances)


@pytest.fixture(scope="module")
def large() -> Simulation:
    return ds.simulate(
        *(6000, 800, 3), n_item_clusters=3, n_annotator_clusters=2, labels_per_item=10, alpha=1.0, seed=4
    )


def test_the_parts_have_the_shapes_of_algorithm_1(large: Simulation) -> None:
    known = large.annotations
    assert (known.n_items, known.n_annotators, known.n_classes, known.n_labels) == (6000, 800, 3, 60_000)
    assert large.theta.shape == (3, 2, 3)
    assert large.psi.shape == (3,)
    assert large.omega.shape == (2,)
    assert large.item_cluster.shape == (6000,)
    assert large.annotator_cluster.shape == (800,)
    for chances in (large.theta.reshape(-1, 3), large.psi[None], large.omega[None]):
        assert (chances >= 0).all()
        np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-12)


def test_clusters_come_in_their_planted_shares(large: Simulation) -> None:
    assert_frequencies(np.bincount(large.item_cluster, minlength=3), large.psi)
    assert_frequencies(np.bincount(large.annotator_cluster, minlength=2), large.omega)


def test_labels_of_each_pair_of_clusters_follow_theta(large: Simulation) -> None:
    known = large.annotations
    k, l = large.item_cluster[known.item], large.annotator_cluster[known.annotator]  # noqa: E741
    for cell in itertools.product(range(3), range(2)):
        labels = known.label[(k == cell[0]) & (l == cell[1])]
        assert len(labels) > 500
        assert_frequencies(np.bincount(labels, minlength=3), large.theta[cell])


def test_each_prior_has_its_own_parameter() -> None:
    """A large parameter spreads its shares evenly, a small one leaves nearly all to a few; three in turn."""
    for even in ("alpha", "gamma", "tau"):
        priors = {name: 5000.0 if name == even else 0.01 for name in ("alpha", "gamma", "tau")}
        drawn = ds.simulate(20, 10, 4, n_item_clusters=4, n_annotator_clusters=4, seed=2, **priors)
        rows = {"alpha": drawn.theta.reshape(-1, 4), "gamma": drawn.psi[None], "tau": drawn.omega[None]}
        for name, shares in rows.items():
            largest = shares.max(axis=1).mean()
            assert largest < 0.3 if name == even else largest > 0.8, (even, name)


def test_no_annotator_labels_an_item_twice(large: Simulation) -> None:
    known = large.annotations
    assert known.n_pairs == known.n_labels
    np.testing.assert_array_equal(known.counts.sum(axis=1), 10)


def test_rows_and_names_are_in_canonical_order(large: Simulation) -> None:
    known = large.annotations
    rebuilt = ds.Annotations.from_arrays(
        known.items[known.item], known.annotators[known.annotator], known.classes[known.label]
    )
    for column in ("item", "annotator", "label"):
        np.testing.assert_array_equal(getattr(rebuilt, column), getattr(known, column))
    assert rebuilt.item_vocabulary == known.item_vocabulary


def test_the_population_is_the_mean_over_annotator_clusters(large: Simulation) -> None:
    for m in (0, 17, 5999):
        expected = sum(large.omega[l] * large.theta[large.item_cluster[m], l] for l in range(2))  # noqa: E741
        np.testing.assert_allclose(large.population[m], expected, rtol=1e-12)
    np.testing.assert_allclose(large.population.sum(axis=1), 1, rtol=1e-12)


def test_the_population_by_load_weights_annotators_by_their_labels() -> None:
    sim = ds.simulate(80, 12, 3, load="long-tail", labels_per_item=4, seed=3)
    known, weight = sim.annotations, np.zeros(3)
    for annotator in known.annotator:
        weight[sim.annotator_cluster[annotator]] += 1 / known.n_labels
    expected = [sum(weight[l] * sim.theta[k, l] for l in range(3)) for k in sim.item_cluster]  # noqa: E741
    np.testing.assert_allclose(sim.population_by_load, expected, rtol=1e-12)


def test_labels_of_a_cluster_follow_the_population_by_load(large: Simulation) -> None:
    counts = large.annotations.counts[large.item_cluster == 0].sum(axis=0)
    chances = large.population_by_load[large.item_cluster == 0][0]
    # Loads are even, so the share of each annotator cluster varies little from item to item.
    assert_frequencies(counts, chances)


def test_one_seed_replays_a_simulation() -> None:
    first, second, other = (ds.simulate(50, 20, 4, load="long-tail", seed=seed) for seed in (1, 1, 2))
    for part in ("theta", "psi", "omega", "item_cluster", "annotator_cluster"):
        assert getattr(first, part).tobytes() == getattr(second, part).tobytes()
    for column in ("item", "annotator", "label"):
        np.testing.assert_array_equal(getattr(first.annotations, column), getattr(second.annotations, column))
    assert not np.array_equal(first.annotations.label, other.annotations.label)
    assert not np.array_equal(first.theta, other.theta)


def test_the_size_of_a_chunk_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ds.simulate(50, 20, 4, load="long-tail", seed=1).annotations
    monkeypatch.setattr(simulation, "CHUNK_CELLS", 60)
    pieces = ds.simulate(50, 20, 4, load="long-tail", seed=1).annotations
    np.testing.assert_array_equal(whole.annotator, pieces.annotator)
    np.testing.assert_array_equal(whole.label, pieces.label)


def test_a_long_tail_gives_few_annotators_most_labels() -> None:
    def share_of_the_busiest_tenth(load: simulation.Load) -> float:
        loads = ds.simulate(4000, 500, 2, load=load, labels_per_item=5, seed=0).annotations.annotator_load
        return float(np.sort(loads)[-50:].sum() / loads.sum())

    assert 0.10 < share_of_the_busiest_tenth("even") < 0.15
    assert 0.40 < share_of_the_busiest_tenth("long-tail") < 0.65


def test_alpha_tells_how_peaked_the_distributions_are() -> None:
    peaked, flat = (
        ds.simulate(2, 2, 4, n_item_clusters=300, labels_per_item=1, alpha=alpha, seed=0).theta
        for alpha in (0.1, 50.0)
    )
    # Each entry of Dir(α, …, α) over P classes has variance (P−1) / (P² (Pα + 1)).
    for theta, alpha in ((peaked, 0.1), (flat, 50.0)):
        np.testing.assert_allclose(theta.var(), 3 / (16 * (4 * alpha + 1)), rtol=0.1)


def test_annotators_are_drawn_without_replacement_in_proportion_to_weights() -> None:
    weights = np.array([1.0, 2.0, 5.0])
    drawn = assign(60_000, weights, 2, np.random.default_rng(0))
    assert (drawn[:, 0] < drawn[:, 1]).all()
    pairs = [(0, 1), (0, 2), (1, 2)]
    # One after the other: P(i then j) = w_i/W · w_j/(W − w_i), either order.
    chance = [
        weights[i] / 8 * weights[j] / (8 - weights[i]) + weights[j] / 8 * weights[i] / (8 - weights[j])
        for i, j in pairs
    ]
    np.testing.assert_allclose(sum(chance), 1, rtol=1e-12)
    counts = np.array([(drawn == pair).all(axis=1).sum() for pair in pairs])
    assert_frequencies(counts, np.array(chance))


def test_everybody_labels_everything_when_as_many_are_asked_for() -> None:
    known = ds.simulate(7, 5, 3, labels_per_item=5, load="long-tail").annotations
    np.testing.assert_array_equal(known.annotator.reshape(7, 5), np.tile(np.arange(5), (7, 1)))


class Fixed(np.random.Generator):
    """A generator whose uniform numbers are given."""

    def __init__(self, numbers: list[float]) -> None:
        super().__init__(np.random.PCG64(0))
        self.numbers = np.array(numbers)

    def random(self, *args: object, **kwargs: object) -> NDArray[np.float64]:  # type: ignore[override]
        return self.numbers


def test_a_class_is_drawn_by_inversion() -> None:
    rows = np.array([[0.25, 0.25, 0.5], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]])
    numbers = [0.0, 0.2499, 0.25, 0.49, 0.5, 0.9999, 0.0, 0.9999, 0.0, 0.5]
    which = np.array([0, 0, 0, 0, 0, 0, 1, 1, 2, 2])
    assert draw(rows, which, Fixed(numbers)).tolist() == [0, 0, 1, 1, 2, 2, 1, 1, 1, 2]


@pytest.mark.parametrize(
    ("setting", "value", "rule"),
    [
        ("n_items", 0, "an int >= 1"),
        ("n_classes", 1, "an int >= 2"),
        ("n_item_clusters", 2.0, "an int >= 1"),
        ("alpha", 0, "a float > 0, or a list of them"),
        ("tau", float("inf"), "a float > 0, or a list of them"),
        ("seed", -1, "an int >= 0"),
        ("load", "uneven", "one of 'even', 'long-tail'"),
        ("labels_per_item", 101, "at most n_annotators"),
    ],
)
def test_bad_settings_are_refused_in_the_one_form(setting: str, value: object, rule: str) -> None:
    with pytest.raises(ParameterError) as caught:
        ds.simulate(**{setting: value})  # type: ignore[arg-type]
    assert (
        str(caught.value) == f"The '{setting}' parameter of simulate must be {rule}. Got {value!r} instead."
    )


def test_the_truth_is_frozen(large: Simulation) -> None:
    with pytest.raises(AttributeError):
        large.psi = np.ones(3)  # type: ignore[misc]
