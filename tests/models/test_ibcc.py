"""IBCC and EBCC: bounds against enumeration, a learned prior against its bound, Minka's fixed point."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.optimize import approx_fprime
from scipy.special import gammaln

import dissensus as ds
from dissensus.engine import Engine
from dissensus.labels.simulation import simulate
from dissensus.models.confusion import ConfusionSteps
from dissensus.models.ibcc import MAX_PSEUDO_COUNT, MIN_PSEUDO_COUNT, fixed_prior, minka_step
from tests.helpers.small_graphs import crowd

Array = NDArray[np.float64]
CROWD = simulate(60, 9, 3, labels_per_item=5, seed=4).annotations
ROWS = [(0, 0, 0), (0, 1, 0), (1, 0, 1), (1, 1, 0), (2, 0, 1), (2, 1, 1), (3, 1, 0)]


def log_beta(a: Array) -> float:
    return float(gammaln(a).sum() - gammaln(a.sum()))


def log_evidence(rows: list[tuple[int, int, int]], M: int, N: int, P: int, G: int, s: float) -> float:
    """Return log P(labels), by summing over all assignments of the items to classes and subtypes.

    Given an assignment, matrices, subtypes and classes integrate out to Pólya terms.
    """
    prior, logs = fixed_prior(P), []
    for states in itertools.product(range(P * G), repeat=M):
        classes = np.bincount([state // G for state in states], minlength=P)
        total = log_beta(np.ones(P) + classes) - log_beta(np.ones(P))
        subtypes = np.bincount(states, minlength=P * G).reshape(P, G)
        total += sum(log_beta(s + row) - log_beta(np.full(G, s)) for row in subtypes)
        counts = np.zeros((N, P * G, P))
        for m, n, y in rows:
            counts[n, states[m], y] += 1
        for n, state in itertools.product(range(N), range(P * G)):
            a = prior[state // G]
            total += log_beta(a + counts[n, state]) - log_beta(a)
        logs.append(total)
    return float(np.logaddexp.reduce(logs))


@pytest.mark.parametrize("subtypes", [1, 2])
def test_bounds_are_just_below_the_evidence(subtypes: int) -> None:
    """A bound with a normaliser missing or repeated would be nats away."""
    exact = log_evidence(ROWS, 4, 2, 2, subtypes, 0.5)
    annotations = crowd(ROWS, 4, 2, 2)
    model = ds.EBCC(subtypes, subtype_prior=0.5, n_restarts=10, tol=0.0, max_iter=200).fit(annotations)
    assert exact - 1.2 * subtypes < model.trace_[-1] < exact
    if subtypes == 1:  # equal to IBCC with a fixed prior
        same = ds.IBCC(prior="fixed", tol=0.0, max_iter=200).fit(annotations)
        assert_allclose(same.trace_, model.trace_, rtol=1e-9)
        assert_allclose(same.posterior_, model.posterior_, rtol=1e-6)


def test_with_gold_the_bound_is_the_joint_probability() -> None:
    """With every class fixed there is no approximation: the bound is log P(labels, classes)."""
    gold = np.array([0, 1, 1, 0])
    model = ds.IBCC(prior="fixed").fit(crowd(ROWS, 4, 2, 2), prior=np.eye(2)[gold])
    joint = log_beta(np.ones(2) + np.bincount(gold)) - log_beta(np.ones(2))
    for n, k in itertools.product(range(2), range(2)):
        counts = np.bincount([y for m, who, y in ROWS if who == n and gold[m] == k], minlength=2)
        joint += log_beta(fixed_prior(2)[k] + counts) - log_beta(fixed_prior(2)[k])
    assert_allclose(model.trace_[-1], joint, rtol=1e-12)


def test_a_learned_prior_is_a_maximum_of_its_bound() -> None:
    model = ds.IBCC(tol=0.0, max_iter=600).fit(CROWD)
    counts = ConfusionSteps(CROWD, Engine()).expected_counts(model.posterior_).counts

    def bound(a: Array) -> float:
        a = a.reshape(3, 3)
        rows = sum(log_beta(a[k] + counts[n, k]) - log_beta(a[k]) for n in range(9) for k in range(3))
        return float(rows - a.sum() / 10.0)

    best = model.prior_parameters_
    slopes = approx_fprime(best.ravel(), bound, 1e-6).reshape(3, 3)
    inside = (best > 2e-3) & (best < 9e3)
    assert np.abs(slopes * best)[inside].max() < 0.05
    assert inside.any()


def community_objective(counts: Array, share: Array, a: Array, concentration: float) -> float:
    """Compute a community's term of the bound: Σ_n z_n Σ_k log B(a_k + n_nk) / B(a_k) − Σ a / c."""
    pairs = itertools.product(range(len(counts)), range(len(a)))
    fit = sum(share[n] * (log_beta(a[k] + counts[n, k]) - log_beta(a[k])) for n, k in pairs)
    return float(fit - a.sum() / concentration)


@pytest.mark.parametrize("seed", range(60))
def test_minka_step_never_lowers_the_bound(seed: int) -> None:
    """Minka's proof is for integers; these counts include fractions below one."""
    rng = np.random.default_rng(seed)
    N, P = rng.integers(1, 5), rng.integers(2, 4)
    counts = rng.gamma(rng.choice([0.05, 0.3, 3.0]), 10.0 ** rng.uniform(-2, 1.5), size=(N, P, P))
    a = rng.gamma(0.5, 10.0 ** rng.uniform(-2, 2), size=(1, P, P))
    a = np.clip(a, MIN_PSEUDO_COUNT, MAX_PSEUDO_COUNT)
    z, concentration = rng.random((N, 1)), 10.0 ** rng.uniform(-1, 3)
    for _ in range(5):
        following = minka_step(counts, z, a, concentration)
        before = community_objective(counts, z[:, 0], a[0], concentration)
        after = community_objective(counts, z[:, 0], following[0], concentration)
        assert after >= before - 1e-10 * (1 + abs(before))
        a = following
