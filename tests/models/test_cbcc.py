"""CBCC: memberships against integration, the bound by hand, planted communities."""

import math
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import gammaln
from scipy.stats import beta
from sklearn.metrics import adjusted_rand_score

import dissensus as ds
from dissensus.models.cbcc import mean_over_communities, memberships
from dissensus.models.ibcc import expected_log
from tests.helpers.small_graphs import counts_by_hand, crowd

pytestmark = pytest.mark.no_cover

Array = NDArray[np.float64]

CROWD = ds.simulate(100, 18, 3, labels_per_item=6, seed=1).annotations


def log_beta(a: Array) -> float:
    return float(sum(gammaln(x) for x in a) - gammaln(sum(a)))


class Communities(NamedTuple):
    psi: Array
    omega: Array
    a: Array


def random_communities(L: int, P: int, seed: int) -> Communities:
    rng = np.random.default_rng(seed)
    return Communities(rng.dirichlet(np.ones(P)), rng.dirichlet(np.ones(L)), rng.gamma(2.0, size=(L, P, P)))


@pytest.mark.slow
def test_memberships_equal_numerical_integration() -> None:
    """Integrate out the two rows of a 2 × 2 matrix one by one."""
    communities = random_communities(3, 2, 0)
    counts = np.array([[[3.0, 1.0], [0.4, 2.6]], [[0.0, 0.0], [1.0, 0.0]]])

    def likelihood(n: Array, a: Array) -> float:
        def row(x: float, k: int) -> float:
            return float(x ** n[k, 0] * (1 - x) ** n[k, 1] * beta.pdf(x, *a[k]))

        return float(quad(row, 0, 1, (0,))[0] * quad(row, 0, 1, (1,))[0])

    z, terms = memberships(counts, communities.omega, communities.a)
    for n in range(2):
        joint = [communities.omega[j] * likelihood(counts[n], communities.a[j]) for j in range(3)]
        assert_allclose(z[n], np.array(joint) / sum(joint), rtol=1e-6)
        assert_allclose(terms[n], math.log(sum(joint)), rtol=1e-6)


def test_expected_logs_equal_numerical_integration() -> None:
    """Integrate log π_nkp over the mixture of the communities' Dirichlet posteriors."""
    communities = random_communities(2, 2, 1)
    counts = np.array([[[2.0, 0.5], [0.0, 4.0]]])
    z = np.array([[0.3, 0.7]])
    logs = mean_over_communities(expected_log, counts, z, communities.a)

    def integral(a: Array) -> float:
        return float(quad(lambda x: math.log(x) * beta.pdf(x, *a), 0, 1)[0])

    for k in range(2):
        expected = sum(z[0, j] * integral(communities.a[j, k] + counts[0, k]) for j in range(2))
        assert_allclose(logs[0, k, 0], expected, rtol=1e-6)


def bound_by_hand(annotations: ds.Annotations, w: Array, communities: Communities, scale: float) -> float:
    """Compute the bound (3) term by term."""
    P, counts = annotations.n_classes, counts_by_hand(annotations, w)
    bound = sum(x * math.log(communities.psi[k] / x) for row in w for k, x in enumerate(row) if x > 0)
    for n in range(annotations.n_annotators):
        bound += math.log(
            sum(
                share * math.exp(sum(log_beta(a[k] + counts[n, k]) - log_beta(a[k]) for k in range(P)))
                for share, a in zip(communities.omega, communities.a, strict=True)
            )
        )
    return float(bound - communities.a.sum() / scale)


def test_the_trace_ends_at_the_bound() -> None:
    model = ds.CBCC(2, tol=1e-8, max_iter=3000).fit(CROWD)
    assert model.stopped_ == "tolerance"
    communities = Communities(model.psi_, model.omega_, model.community_parameters_)
    expected = bound_by_hand(CROWD, model.posterior_, communities, 10.0)
    assert_allclose(model.trace_[-1], expected, rtol=1e-10)


def community_crowd(spread: float, seed: int = 0) -> tuple[ds.Annotations, *tuple[NDArray[np.int64], ...]]:
    """Simulate two communities of twenty: accurate annotators, and ones that answer one class too high."""
    rng = np.random.default_rng(seed)
    truth, community = rng.integers(3, size=150), rng.permutation(40) % 2
    careful = 0.8 * np.eye(3) + 0.2 / 3
    high = np.array([[0.2, 0.75, 0.05], [0.05, 0.2, 0.75], [0.05, 0.05, 0.9]])
    means = np.stack([careful, high])
    matrices = np.stack([[rng.dirichlet(spread * row) for row in means[c]] for c in community])
    pairs = ((m, n) for m in range(150) for n in rng.permutation(40)[:12].tolist())
    rows = [(m, n, int(rng.choice(3, p=matrices[n, truth[m]]))) for m, n in pairs]
    return crowd(rows, 150, 40, 3), truth, community


@pytest.mark.slow
def test_communities_are_found() -> None:
    annotations, truth, community = community_crowd(spread=40.0)
    model = ds.CBCC(2, n_restarts=4).fit(annotations)
    assert adjusted_rand_score(community, model.annotator_clusters_.argmax(axis=1)) > 0.9
    assert (model.posterior_.argmax(axis=1) == truth).mean() > 0.95


@pytest.mark.slow
def test_no_communities_are_found_in_shuffled_labels() -> None:
    annotations, _, community = community_crowd(spread=40.0)
    label = np.random.default_rng(0).permutation(annotations.label)
    rows = np.column_stack([annotations.item, annotations.annotator, label]).tolist()
    model = ds.CBCC(2, n_restarts=4).fit(crowd([tuple(row) for row in rows], 150, 40, 3))
    assert abs(adjusted_rand_score(community, model.annotator_clusters_.argmax(axis=1))) < 0.15


@pytest.mark.parametrize("concentration", [1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 1e6])
def test_the_bound_never_falls_at_any_concentration(concentration: float) -> None:
    labels = ds.simulate(60, 12, 3, labels_per_item=4, seed=2).annotations
    for seed in range(3):
        trace = ds.CBCC(2, concentration=concentration, seed=seed, max_iter=60).fit(labels).trace_
        assert np.all(np.diff(trace) >= -1e-10 * np.abs(trace[:-1])), (seed, np.diff(trace).min())
