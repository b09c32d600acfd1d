"""The simulator draws from Algorithm 1, and its parameters are exact."""

import itertools
import re

import numpy as np
import pytest
from numpy.typing import NDArray

import dissensus as ds
from dissensus.errors import ParameterError
from dissensus.labels import simulation
from dissensus.labels.simulation import Simulation, assign, draw

MAX_STANDARD_ERRORS = 5  # of a frequency: one test in a million would fail by chance


def assert_frequencies(counts: NDArray[np.int64], probabilities: NDArray[np.float64]) -> None:
    """Compare counts with planted probabilities, cell by cell."""
    n = counts.sum()
    error = np.sqrt(n * probabilities * (1 - probabilities)) + 1
    distance = np.abs(counts - n * probabilities)
    assert (distance <= MAX_STANDARD_ERRORS * error).all(), (counts / n, probabilities)


@pytest.fixture(scope="module")
def large() -> Simulation:
    clusters = {"n_item_clusters": 3, "n_annotator_clusters": 2}
    return ds.simulate(6000, 800, 3, **clusters, labels_per_item=10, alpha=1.0, seed=4)


def test_frequencies_follow_the_parameters(large: Simulation) -> None:
    assert_frequencies(np.bincount(large.item_cluster, minlength=3), large.psi)
    assert_frequencies(np.bincount(large.annotator_cluster, minlength=2), large.omega)
    labels = large.annotations
    k, l = large.item_cluster[labels.item], large.annotator_cluster[labels.annotator]  # noqa: E741
    for cell in itertools.product(range(3), range(2)):
        of_cell = labels.label[(k == cell[0]) & (l == cell[1])]
        assert len(of_cell) > 500
        assert_frequencies(np.bincount(of_cell, minlength=3), large.theta[cell])


def test_each_prior_has_its_own_parameter() -> None:
    """A large parameter gives even shares, a small one concentrates them."""
    for even in ("alpha", "gamma", "tau"):
        priors = {name: 5000.0 if name == even else 0.01 for name in ("alpha", "gamma", "tau")}
        drawn = ds.simulate(20, 10, 4, n_item_clusters=4, n_annotator_clusters=4, seed=2, **priors)
        rows = {"alpha": drawn.theta.reshape(-1, 4), "gamma": drawn.psi[None], "tau": drawn.omega[None]}
        for name, shares in rows.items():
            largest = shares.max(axis=1).mean()
            assert largest < 0.3 if name == even else largest > 0.8, (even, name)


def test_every_item_has_distinct_annotators_in_canonical_order(large: Simulation) -> None:
    labels = large.annotations
    assert labels.n_pairs == labels.n_labels == 60_000
    np.testing.assert_array_equal(labels.counts.sum(axis=1), 10)
    rebuilt = ds.Annotations.from_arrays(*labels.to_frame().to_numpy().T)
    for column in ("item", "annotator", "label"):
        np.testing.assert_array_equal(getattr(rebuilt, column), getattr(labels, column))


def test_population_by_hand(large: Simulation) -> None:
    for m in (0, 17, 5999):
        expected = sum(large.omega[l] * large.theta[large.item_cluster[m], l] for l in range(2))  # noqa: E741
        np.testing.assert_allclose(large.population[m], expected, rtol=1e-12)
    np.testing.assert_allclose(large.population.sum(axis=1), 1, rtol=1e-12)


def test_seeds_reproduce_for_any_chunk_size(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ds.simulate(50, 20, 4, load="long-tail", seed=1)
    monkeypatch.setattr(simulation, "KEYS_PER_CHUNK", 60)
    second, other = (ds.simulate(50, 20, 4, load="long-tail", seed=seed) for seed in (1, 2))
    for name in ("theta", "psi", "omega", "item_cluster", "annotator_cluster"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    for column in ("item", "annotator", "label"):
        np.testing.assert_array_equal(getattr(first.annotations, column), getattr(second.annotations, column))
    assert not np.array_equal(first.annotations.label, other.annotations.label)
    assert not np.array_equal(first.theta, other.theta)


def test_long_tail_loads() -> None:
    def busiest_tenth(load: simulation.Load) -> float:
        loads = ds.simulate(4000, 500, 2, load=load, labels_per_item=5, seed=0).annotations.annotator_load
        return float(np.sort(loads)[-50:].sum() / loads.sum())

    assert 0.10 < busiest_tenth("even") < 0.15
    assert 0.40 < busiest_tenth("long-tail") < 0.65


def test_assign_matches_sampling_without_replacement() -> None:
    weights = np.array([1.0, 2.0, 5.0])
    drawn = assign(60_000, weights, 2, np.random.default_rng(0))
    assert (drawn[:, 0] < drawn[:, 1]).all()
    pairs = [(0, 1), (0, 2), (1, 2)]
    # P(i, then j) = w_i/W · w_j/(W − w_i), in either order
    product = {(i, j): weights[i] / 8 * weights[j] / 8 for i, j in pairs}
    chance = [product[i, j] * (8 / (8 - weights[i]) + 8 / (8 - weights[j])) for i, j in pairs]
    np.testing.assert_allclose(sum(chance), 1, rtol=1e-12)
    counts = np.array([(drawn == pair).all(axis=1).sum() for pair in pairs])
    assert_frequencies(counts, np.array(chance))


def test_all_annotators_label_every_item() -> None:
    labels = ds.simulate(7, 5, 3, labels_per_item=5, load="long-tail").annotations
    np.testing.assert_array_equal(labels.annotator.reshape(7, 5), np.tile(np.arange(5), (7, 1)))


class Fixed(np.random.Generator):
    """Generator with given uniform numbers."""

    def __init__(self, numbers: list[float]) -> None:
        super().__init__(np.random.PCG64(0))
        self.numbers = np.array(numbers)

    def random(self, *args: object, **kwargs: object) -> NDArray[np.float64]:  # type: ignore[override]
        return self.numbers


def test_draw_by_inversion() -> None:
    rows = np.array([[0.25, 0.25, 0.5], [0.0, 1.0, 0.0], [0.0, 0.5, 0.5]])
    numbers = [0.0, 0.2499, 0.25, 0.49, 0.5, 0.9999, 0.0, 0.9999, 0.0, 0.5]
    which = np.array([0, 0, 0, 0, 0, 0, 1, 1, 2, 2])
    assert draw(rows, which, Fixed(numbers)).tolist() == [0, 0, 1, 1, 2, 2, 1, 1, 1, 2]


def test_invalid_settings_are_rejected() -> None:
    for name, value, rule in (
        ("n_items", 0, "an int >= 1"),
        ("n_item_clusters", 2.0, "an int >= 1"),
        ("tau", float("inf"), "a float > 0, or a list of them"),
        ("load", "uneven", "one of 'even', 'long-tail'"),
        ("labels_per_item", 101, "at most n_annotators"),
    ):
        line = f"The '{name}' parameter of simulate must be {rule}. Got {value!r} instead."
        with pytest.raises(ParameterError, match=re.escape(line)):
            ds.simulate(**{name: value})  # type: ignore[arg-type]


def test_vector_parameters() -> None:
    # Dir(s π) has the mean π and the variance π (1 − π) / (s + 1): 4,000 distributions
    alpha = [0.5, 1.5, 3.0, 5.0]
    theta = ds.simulate(5, 5, 4, n_item_clusters=80, n_annotator_clusters=50, alpha=alpha, seed=3).theta
    share = np.array(alpha) / 10
    error = np.sqrt(share * (1 - share) / 11 / 4000)
    assert (np.abs(theta.mean(axis=(0, 1)) - share) < 5 * error).all()
    shares = ds.simulate(5, 5, 4, n_item_clusters=3, gamma=[1.0, 1.0, 5000.0], tau=[5000.0, 1.0, 1.0], seed=4)
    assert (shares.psi.argmax(), shares.omega.argmax()) == (2, 0)
    same = [ds.simulate(20, 9, 4, alpha=alpha, seed=5) for alpha in (0.7, [0.7] * 4)]
    np.testing.assert_array_equal(same[0].annotations.label, same[1].annotations.label)


def test_given_pairs_get_new_labels() -> None:
    rows = [("i", "b", 0), ("i", "a", 1), ("j", "b", 0), ("j", "b", 1), ("j", "b", 1), ("k", "c", 0)]
    real = ds.Annotations.from_arrays(*zip(*rows, strict=True), items={"item": ["i", "j", "k", "unlabelled"]})
    drawn = ds.simulate(pairs=real, n_classes=5, n_item_clusters=2, n_annotator_clusters=2, seed=0)
    labels = drawn.annotations
    np.testing.assert_array_equal(labels.item, real.item)
    np.testing.assert_array_equal(labels.annotator, real.annotator)
    assert labels.item_vocabulary == real.item_vocabulary
    assert labels.annotator_vocabulary == real.annotator_vocabulary
    assert labels.classes.tolist() == ["c1", "c2", "c3", "c4", "c5"]
    assert drawn.item_cluster.shape == (4,)


def test_labels_of_given_pairs_follow_theta() -> None:
    """Pairs with three labels each: rows must be sorted, and cells still follow Θ."""
    columns = np.indices((40, 30, 3)).reshape(3, -1)
    real = ds.Annotations.from_arrays(columns[0], columns[1], np.zeros(3600, int))
    drawn = ds.simulate(pairs=real, n_classes=3, n_item_clusters=2, n_annotator_clusters=2, alpha=1.0, seed=8)
    labels = drawn.annotations
    assert (np.diff(labels.label.reshape(-1, 3), axis=1) >= 0).all()
    for k, j in np.ndindex(2, 2):
        mask = (drawn.item_cluster[labels.item] == k) & (drawn.annotator_cluster[labels.annotator] == j)
        share, truth = np.bincount(labels.label[mask], minlength=3) / mask.sum(), drawn.theta[k, j]
        assert (np.abs(share - truth) <= 5 * np.sqrt(truth * (1 - truth) / mask.sum())).all()


def test_pairs_exclude_other_settings() -> None:
    for settings in ({"n_items": 7}, {"n_annotators": 7}, {"labels_per_item": 2}, {"load": "long-tail"}):
        with pytest.raises(ParameterError, match="with pairs, which determines it"):
            ds.simulate(pairs=ds.simulate(9, 4, 2, labels_per_item=2).annotations, **settings)
    with pytest.raises(ParameterError, match="labels with annotators"):
        ds.simulate(pairs=ds.Annotations.from_counts([[1, 2]]))
