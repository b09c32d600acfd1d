"""FMM: enumeration, hand-worked steps, a theorem at every step, and planted clusters found again."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.stats import dirichlet
from sklearn.metrics import adjusted_rand_score

import dissensus as ds
from dissensus import engine
from dissensus.labels.simulation import Simulation
from dissensus.models import fmm
from dissensus.models.fmm import e_step, initial_theta, log_prior, m_step, responsibilities
from sizes import usually

pytestmark = pytest.mark.no_cover

Array = NDArray[np.float64]

COUNTS = np.array([[2.0, 0.0, 1.0], [0.0, 3.0, 1.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
THETA = np.array([[0.7, 0.1, 0.2], [0.2, 0.5, 0.3]])
PSI = np.array([0.4, 0.6])


def enumerate_assignments(counts: Array, theta: Array, psi: Array) -> tuple[Array, float]:
    """Cluster posteriors and the log-evidence, by summing over every assignment of all items."""
    (M, P), K = counts.shape, len(psi)
    posterior, evidence = np.zeros((M, K)), 0.0
    for w in itertools.product(range(K), repeat=M):
        joint = math.prod(
            psi[w[m]] * math.prod(theta[w[m], p] ** counts[m, p] for p in range(P)) for m in range(M)
        )
        evidence += joint
        for m in range(M):
            posterior[m, w[m]] += joint
    return posterior / evidence, math.log(evidence)


def log_posterior(counts: Array, theta: Array, psi: Array, alpha: float, gamma: float) -> float:
    """Equation (1) of the module, item by item, with SciPy's Dirichlet for the priors (constants removed)."""
    likelihood = sum(
        math.log(sum(psi[k] * math.prod(theta[k] ** row) for k in range(len(psi)))) for row in counts
    )
    K, P = theta.shape

    def log_density(chances: Array, concentration: float) -> float:
        flat = np.full(len(chances), concentration)
        return float(
            dirichlet.logpdf(chances, flat) - dirichlet.logpdf(np.full(len(chances), 1 / len(chances)), flat)
        )

    at_uniform = (alpha - 1) * K * P * math.log(1 / P) + (gamma - 1) * K * math.log(1 / K)
    return likelihood + sum(log_density(row, alpha) for row in theta) + log_density(psi, gamma) + at_uniform


def test_the_e_step_equals_enumeration() -> None:
    w, evidence = responsibilities(COUNTS, THETA, PSI)
    w = w.T
    expected, log_evidence = enumerate_assignments(COUNTS, THETA, PSI)
    np.testing.assert_allclose(w, expected, rtol=1e-12)
    np.testing.assert_allclose(evidence, log_evidence, rtol=1e-12)
    np.testing.assert_allclose(w[3], PSI, rtol=1e-12)  # nothing known but the shares


def test_the_e_step_of_a_shard_sums_the_posteriors() -> None:
    annotations = ds.Annotations.from_counts(COUNTS.astype(int))
    label_mass, item_mass, evidence = e_step(annotations.counts.astype(float), THETA, PSI)
    w, log_evidence = enumerate_assignments(COUNTS, THETA, PSI)
    expected = [[sum(w[m, k] * COUNTS[m, p] for m in range(4)) for p in range(3)] for k in range(2)]
    np.testing.assert_allclose(label_mass, expected, rtol=1e-12)
    np.testing.assert_allclose(item_mass, w.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(evidence, log_evidence, rtol=1e-12)


def test_the_m_step_by_hand() -> None:
    theta, psi = m_step(np.array([[3.0, 1.0], [0.0, 5.0]]), np.array([2.0, 4.0]), alpha=2.0, gamma=3.0)
    # One pseudo-label a class: (3+1, 1+1)/6 and (0+1, 5+1)/7; two pseudo-items a cluster: (2+2, 4+2)/10.
    np.testing.assert_allclose(theta, [[4 / 6, 2 / 6], [1 / 7, 6 / 7]], rtol=1e-15)
    np.testing.assert_allclose(psi, [0.4, 0.6], rtol=1e-15)


def test_the_m_step_without_priors_is_the_share_of_the_mass() -> None:
    theta, psi = m_step(np.array([[3.0, 1.0], [0.0, 0.0]]), np.array([4.0, 0.0]), alpha=1.0, gamma=1.0)
    # A cluster without labels knows nothing: uniform.
    np.testing.assert_allclose(theta, [[0.75, 0.25], [0.5, 0.5]], rtol=1e-15)
    np.testing.assert_allclose(psi, [1.0, 0.0], atol=0)


def test_no_other_parameters_beat_those_of_the_m_step() -> None:
    rng = np.random.default_rng(0)
    label_mass, item_mass = rng.gamma(2.0, size=(3, 4)), rng.gamma(2.0, size=3)

    def expected_log_posterior(theta: Array, psi: Array) -> float:
        prior = log_prior(theta, psi, 1.5, 2.5)
        return float((label_mass * np.log(theta)).sum() + (item_mass * np.log(psi)).sum()) + prior

    best = expected_log_posterior(*m_step(label_mass, item_mass, 1.5, 2.5))
    theta, psi = m_step(label_mass, item_mass, 1.5, 2.5)
    for _ in range(200):
        near = rng.dirichlet(np.ones(4), size=3), rng.dirichlet(np.ones(3))
        step = 10.0 ** rng.uniform(-3, 0)
        moved = theta + step * (near[0] - theta), psi + step * (near[1] - psi)
        assert expected_log_posterior(*moved) < best


def test_the_log_prior_by_hand() -> None:
    expected = 1.0 * np.log(THETA).sum() + 2.0 * np.log(PSI).sum()
    np.testing.assert_allclose(log_prior(THETA, PSI, 2.0, 3.0), expected, rtol=1e-14)
    assert log_prior(np.array([[1.0, 0.0]]), np.array([1.0]), 1.0, 1.0) == 0.0


CROWD = ds.simulate(150, 30, 4, labels_per_item=6, seed=5).annotations


@pytest.mark.parametrize("seed", range(usually(1, verify=4)))
@pytest.mark.parametrize(("alpha", "gamma"), [(2.0, 2.0), (1.0, 1.0), (1.1, 5.0), (20.0, 1.0)])
@pytest.mark.parametrize("K", [1, 4, 25])
def test_the_objective_never_falls(K: int, alpha: float, gamma: float, seed: int) -> None:
    model = ds.FMM(K, alpha=alpha, gamma=gamma, tol=0.0, max_iter=120, seed=seed).fit(CROWD)
    assert len(model.trace_) > 2
    # Rounding of a sum of 900 terms near 1,000.
    assert np.diff(model.trace_).min() >= -1e-9


@pytest.mark.data
@pytest.mark.parametrize("dataset", usually(["jq3"], verify=["jq1", "jq3", "weather_sentiment_cf"]))
def test_the_objective_never_falls_on_real_labels(data_dir: Path, dataset: str) -> None:
    annotations = ds.read_annotations(data_dir / dataset / "annotations.csv")
    trace = ds.FMM(12, tol=0.0, max_iter=60, seed=1).fit(annotations).trace_
    assert np.diff(trace).min() >= -1e-12 * abs(trace[-1])


@pytest.mark.parametrize(("alpha", "gamma"), [(2.0, 2.0), (1.5, 4.0)])
def test_the_trace_ends_at_the_log_posterior_of_the_parameters(alpha: float, gamma: float) -> None:
    model = ds.FMM(3, alpha=alpha, gamma=gamma, tol=1e-7, max_iter=5000).fit(CROWD)
    assert model.stopped_ == "tolerance"
    expected = log_posterior(CROWD.counts.astype(float), model.theta_, model.psi_, alpha, gamma)
    np.testing.assert_allclose(model.trace_[-1], expected, rtol=1e-12)


def test_a_converged_fit_is_a_fixed_point() -> None:
    model = ds.FMM(3, tol=1e-13, max_iter=20_000).fit(CROWD)
    label_mass, item_mass, _ = e_step(CROWD.counts.astype(float), model.theta_, model.psi_)
    theta, psi = m_step(label_mass, item_mass, 2.0, 2.0)
    np.testing.assert_allclose(theta, model.theta_, atol=1e-4)
    np.testing.assert_allclose(psi, model.psi_, atol=1e-4)


def test_it_says_why_it_stopped() -> None:
    short = ds.FMM(5, max_iter=3, tol=0.0).fit(CROWD)
    assert short.stopped_ == "max_iter"
    assert len(short.trace_) == 3
    long = ds.FMM(5, tol=1e-4).fit(CROWD)
    assert long.stopped_ == "tolerance"
    gains = np.diff(long.trace_) / CROWD.n_labels
    assert gains[-1] <= 1e-4
    assert (gains[:-1] > 1e-4).all()


def test_one_cluster_is_the_smoothed_crowd() -> None:
    model = ds.FMM(1, alpha=3.0).fit(CROWD)
    mass = CROWD.counts.sum(axis=0) + 2.0
    np.testing.assert_allclose(model.theta_[0], mass / mass.sum(), rtol=1e-12)
    np.testing.assert_allclose(model.label_distributions_, np.tile(model.theta_[0], (150, 1)), rtol=1e-12)


def test_hard_takes_the_most_likely_cluster_and_soft_averages() -> None:
    hard, soft = (ds.FMM(4, assignment=assignment, seed=2).fit(CROWD) for assignment in ("hard", "soft"))
    np.testing.assert_array_equal(hard.theta_, soft.theta_)
    np.testing.assert_array_equal(hard.label_distributions_, hard.theta_[hard.item_clusters_.argmax(axis=1)])
    averaged = [sum(w[k] * soft.theta_[k] for k in range(4)) for w in soft.item_clusters_]
    np.testing.assert_allclose(soft.label_distributions_, averaged, rtol=1e-12)
    assert (hard.label_distributions_ != soft.label_distributions_).any()


def test_new_items_get_their_posterior_under_the_kept_parameters() -> None:
    model = ds.FMM(3).fit(CROWD)
    counts = np.array([[4, 0, 1, 0], [0, 0, 0, 6]])
    moved = model.apply(ds.Annotations.from_counts(counts, classes=CROWD.classes))
    expected, _ = enumerate_assignments(counts.astype(float), model.theta_, model.psi_)
    np.testing.assert_allclose(moved.item_clusters_, expected, rtol=1e-9)


def test_the_best_of_the_restarts_is_kept() -> None:
    ends = {n: ds.FMM(6, n_restarts=n, seed=3).fit(CROWD).trace_[-1] for n in (1, 2, 4, 8)}
    assert list(ends.values()) == sorted(ends.values())
    assert ends[8] > ends[1]


def test_each_seed_starts_elsewhere() -> None:
    starts = [ds.FMM(6, seed=seed, max_iter=1).fit(CROWD).trace_[0] for seed in range(5)]
    assert len(set(starts)) == 5


def test_a_random_start_puts_items_into_clusters_whatever_their_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = np.array([[4, 0], [0, 4], [3, 1], [1, 3]])
    known = ds.Annotations.from_counts(counts)
    w = np.array([[0.9, 0.1], [0.8, 0.2], [0.3, 0.7], [0.0, 1.0]])
    monkeypatch.setattr(fmm, "random_clusters", lambda n, K, rng: w)
    start = ds.FMM(2, start="random", max_iter=1).fit(known)  # ends where it begins
    # Θ_k ∝ 1 + Σ_m w_mk c_m: 1 + 3.6 + 0.9 and 1 + 3.2 + 0.3; 1 + 0.4 + 2.1 + 1 and 1 + 0.8 + 0.7 + 3
    np.testing.assert_allclose(start.theta_, [[5.5 / 10, 4.5 / 10], [4.5 / 10, 5.5 / 10]])
    np.testing.assert_allclose(start.psi_, [3 / 6, 3 / 6])  # 1 + 2 members each


def test_the_start_is_a_distribution_even_with_more_clusters_than_items() -> None:
    known = ds.Annotations.from_counts([[2, 0], [0, 0]])
    theta = initial_theta(known, 5, 1.0, np.random.default_rng(0))
    assert theta.shape == (5, 2)
    assert (theta > 0).all()
    np.testing.assert_allclose(theta.sum(axis=1), 1, rtol=1e-12)
    assert len(np.unique(theta[:, 0])) == 5


def test_who_gave_a_label_does_not_matter() -> None:
    shuffled = np.random.default_rng(0).permutation(CROWD.annotator)
    other = ds.Annotations.from_arrays(CROWD.items[CROWD.item], shuffled, CROWD.classes[CROWD.label])
    first, second = ds.FMM(4).fit(CROWD), ds.FMM(4).fit(other)
    np.testing.assert_array_equal(first.label_distributions_, second.label_distributions_)


def test_many_shards_find_what_one_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ds.FMM(3, seed=1).fit(CROWD)
    monkeypatch.setattr(engine, "LABELS_PER_SHARD", 50)
    pieces = ds.FMM(3, seed=1).fit(CROWD)
    np.testing.assert_allclose(pieces.theta_, whole.theta_, rtol=1e-9)
    np.testing.assert_allclose(pieces.trace_, whole.trace_, rtol=1e-12)


@pytest.fixture(scope="module")
def planted() -> Simulation:
    return ds.simulate(
        *(400, 60, 5), n_item_clusters=4, n_annotator_clusters=1, labels_per_item=30, alpha=0.5, seed=1
    )


def agreement(planted: Simulation, annotations: ds.Annotations) -> float:
    model = ds.FMM(4, n_restarts=5).fit(annotations)
    return float(adjusted_rand_score(planted.item_cluster, model.item_clusters_.argmax(axis=1)))


def test_planted_clusters_are_found(planted: Simulation) -> None:
    assert agreement(planted, planted.annotations) > 0.95


def test_nothing_is_found_once_labels_are_dealt_out_anew(planted: Simulation) -> None:
    known = planted.annotations
    dealt = np.random.default_rng(0).permutation(known.label)
    shuffled = ds.Annotations.from_arrays(known.items[known.item], known.annotator, known.classes[dealt])
    assert abs(agreement(planted, shuffled)) < 0.05


def test_planted_parameters_and_the_population_are_found(planted: Simulation) -> None:
    model = ds.FMM(4, n_restarts=5).fit(planted.annotations)
    distance = np.abs(model.theta_[:, None] - planted.theta[None, :, 0]).sum(axis=2)
    found, true = linear_sum_assignment(distance)
    assert distance[found, true].max() < 0.1
    np.testing.assert_allclose(model.psi_[found], np.bincount(planted.item_cluster)[true] / 400, atol=0.03)
    gap = {
        name: np.abs(estimate - planted.population).sum(axis=1).mean()
        for name, estimate in (
            ("FMM", model.label_distributions_),
            ("counts", planted.annotations.counts / 30),
        )
    }
    assert gap["FMM"] < gap["counts"] / 3
