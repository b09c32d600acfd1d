"""FMM: E-step against enumeration, M-step by hand, a monotone objective, planted clusters."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from sklearn.metrics import adjusted_rand_score

import dissensus as ds
from dissensus.labels.simulation import Simulation
from dissensus.models import fmm
from dissensus.models.fmm import e_step, m_step, responsibilities
from tests.helpers.sizes import usually

pytestmark = pytest.mark.no_cover

Array = NDArray[np.float64]

COUNTS = np.array([[2.0, 0.0, 1.0], [0.0, 3.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
THETA = np.array([[0.7, 0.1, 0.2], [0.2, 0.5, 0.3]])
PSI = np.array([0.4, 0.6])


def enumerate_assignments(counts: Array, theta: Array, psi: Array) -> tuple[Array, float]:
    """Return cluster posteriors and log-evidence, by summing over all assignments of all items."""
    M, K = len(counts), len(psi)
    posterior, evidence = np.zeros((M, K)), 0.0
    for w in itertools.product(range(K), repeat=M):
        joint = math.prod(psi[k] * math.prod(theta[k] ** row) for k, row in zip(w, counts, strict=True))
        evidence += joint
        for m in range(M):
            posterior[m, w[m]] += joint
    return posterior / evidence, math.log(evidence)


def log_posterior(counts: Array, theta: Array, psi: Array, alpha: float, gamma: float) -> float:
    """Compute (1) item by item."""
    likelihood = sum(math.log(sum(psi * [math.prod(theta_k**row) for theta_k in theta])) for row in counts)
    return float(likelihood + (alpha - 1) * np.log(theta).sum() + (gamma - 1) * np.log(psi).sum())


def test_e_step_equals_enumeration() -> None:
    expected, log_evidence = enumerate_assignments(COUNTS, THETA, PSI)
    w, evidence = responsibilities(COUNTS, THETA, PSI)
    assert_allclose(w.T, expected, rtol=1e-12)
    assert_allclose(w.T[3], PSI, rtol=1e-12)  # no labels: the shares
    label_mass, item_mass, total = e_step(COUNTS, THETA, PSI)
    sums = [[sum(expected[m, k] * COUNTS[m, p] for m in range(4)) for p in range(3)] for k in range(2)]
    assert_allclose(label_mass, sums, rtol=1e-12)
    assert_allclose(item_mass, expected.sum(axis=0), rtol=1e-12)
    assert_allclose([evidence, total], [log_evidence] * 2, rtol=1e-12)


def test_m_step_by_hand() -> None:
    mixture = m_step(np.array([[3.0, 1.0], [0.0, 5.0]]), np.array([2.0, 4.0]), alpha=2.0, gamma=3.0)
    theta, psi = mixture.theta, mixture.psi
    # one pseudo-label per class: (3+1, 1+1)/6 and (0+1, 5+1)/7; two pseudo-items per cluster: (2+2, 4+2)/10
    assert_allclose(theta, [[4 / 6, 2 / 6], [1 / 7, 6 / 7]], rtol=1e-15)
    assert_allclose(psi, [0.4, 0.6], rtol=1e-15)
    mixture = m_step(np.array([[3.0, 1.0], [0.0, 0.0]]), np.array([4.0, 0.0]), alpha=1.0, gamma=1.0)
    theta, psi = mixture.theta, mixture.psi
    assert_allclose(theta, [[0.75, 0.25], [0.5, 0.5]], rtol=1e-15)  # a cluster without labels is uniform
    assert_allclose(psi, [1.0, 0.0], atol=0)


CROWD = ds.simulate(150, 30, 4, labels_per_item=6, seed=5).annotations


@pytest.mark.parametrize("seed", range(usually(1, verify=4)))
@pytest.mark.parametrize(("alpha", "gamma"), [(2.0, 2.0), (1.0, 1.0), (1.1, 5.0), (20.0, 1.0)])
@pytest.mark.parametrize("K", [1, 4, 25])
def test_the_objective_never_falls(K: int, alpha: float, gamma: float, seed: int) -> None:
    model = ds.FMM(K, alpha=alpha, gamma=gamma, tol=0.0, max_iter=120, seed=seed).fit(CROWD)
    assert len(model.trace_) > 2
    # rounding of a sum of 900 terms near 1,000
    assert np.diff(model.trace_).min() >= -1e-9


@pytest.mark.parametrize(("alpha", "gamma"), [(2.0, 2.0), (1.5, 4.0)])
def test_the_trace_ends_at_the_log_posterior(alpha: float, gamma: float) -> None:
    model = ds.FMM(3, alpha=alpha, gamma=gamma, tol=1e-7, max_iter=5000).fit(CROWD)
    assert model.stopped_ == "tolerance"
    expected = log_posterior(CROWD.counts.astype(float), model.theta_, model.psi_, alpha, gamma)
    assert_allclose(model.trace_[-1], expected, rtol=1e-12)


def test_one_cluster_is_smoothed_counts() -> None:
    model = ds.FMM(1, alpha=3.0).fit(CROWD)
    mass = CROWD.counts.sum(axis=0) + 2.0
    assert_allclose(model.theta_[0], mass / mass.sum(), rtol=1e-12)
    assert_allclose(model.label_distributions_, np.tile(model.theta_[0], (150, 1)), rtol=1e-12)


def test_hard_and_soft_assignment() -> None:
    hard, soft = (ds.FMM(4, assignment=assignment, seed=2).fit(CROWD) for assignment in ("hard", "soft"))
    assert_array_equal(hard.theta_, soft.theta_)
    assert_array_equal(hard.label_distributions_, hard.theta_[hard.item_clusters_.argmax(axis=1)])
    averaged = [sum(w[k] * soft.theta_[k] for k in range(4)) for w in soft.item_clusters_]
    assert_allclose(soft.label_distributions_, averaged, rtol=1e-12)
    assert (hard.label_distributions_ != soft.label_distributions_).any()


def test_new_items_get_their_posterior() -> None:
    model = ds.FMM(3).fit(CROWD)
    counts = np.array([[4, 0, 1, 0], [0, 0, 0, 6]])
    moved = model.apply(ds.Annotations.from_counts(counts, classes=CROWD.classes))
    expected, _ = enumerate_assignments(counts.astype(float), model.theta_, model.psi_)
    assert_allclose(moved.item_clusters_, expected, rtol=1e-9)


def test_random_start_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = np.array([[4, 0], [0, 4], [3, 1], [1, 3]])
    known = ds.Annotations.from_counts(counts)
    w = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.0, 1.0]])
    monkeypatch.setattr(fmm, "random_clusters", lambda n, K, rng: w)
    start = ds.FMM(2, start="random", max_iter=1).fit(known)  # returns its start
    # Θ_k ∝ 1 + Σ_m w_mk c_m: 1 + 3.6 + 0.9 and 1 + 3.2 + 0.3; 1 + 0.4 + 2.1 + 1 and 1 + 0.8 + 0.7 + 3
    assert_allclose(start.theta_, [[5.5 / 10, 4.5 / 10], [4.5 / 10, 5.5 / 10]])
    assert_allclose(start.psi_, [3 / 6, 3 / 6])  # 1 + 2 members each


@pytest.fixture(scope="module")
def planted() -> Simulation:
    clusters = {"n_item_clusters": 4, "n_annotator_clusters": 1}
    return ds.simulate(400, 60, 5, **clusters, labels_per_item=30, alpha=0.5, seed=1)


def test_nothing_is_found_in_shuffled_labels(planted: Simulation) -> None:
    item, label = planted.annotations.item, planted.annotations.label
    counts = np.zeros((400, 5), dtype=int)
    np.add.at(counts, (item, np.random.default_rng(0).permutation(label)), 1)
    clusters = ds.FMM(4, n_restarts=5).fit(ds.Annotations.from_counts(counts)).item_clusters_
    assert abs(adjusted_rand_score(planted.item_cluster, clusters.argmax(axis=1))) < 0.05


def test_planted_parameters_and_the_population_are_found(planted: Simulation) -> None:
    model = ds.FMM(4, n_restarts=5).fit(planted.annotations)
    assert adjusted_rand_score(planted.item_cluster, model.item_clusters_.argmax(axis=1)) > 0.95
    distance = np.abs(model.theta_[:, None] - planted.theta[None, :, 0]).sum(axis=2)
    estimated, true = linear_sum_assignment(distance)
    assert distance[estimated, true].max() < 0.1
    assert_allclose(model.psi_[estimated], np.bincount(planted.item_cluster)[true] / 400, atol=0.03)
    error, error_of_counts = (
        np.abs(shares - planted.population).sum(axis=1).mean()
        for shares in (model.label_distributions_, planted.annotations.counts / 30)
    )
    assert error < error_of_counts / 3
