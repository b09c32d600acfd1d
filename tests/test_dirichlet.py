"""Dirichlet posteriors against numerical integration and sampling; learned priors against an optimiser."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.optimize import minimize_scalar
from scipy.special import gammaln
from scipy.stats import beta, dirichlet, gamma

from dissensus.models.pgm.m_step import LEAST, MOST, Hyperprior, divergence, expected_log, learn_prior
from dissensus.numerics import normalised
from sizes import usually

pytestmark = pytest.mark.no_cover

Array = NDArray[np.float64]
FLAT = Hyperprior(1.0, 0.0)


def log_probability(counts: Array, prior: float, hyperprior: Hyperprior) -> float:
    """log Π B(b + n) / B(b) plus the hyperprior's logarithm, one distribution after the other."""
    P = counts.shape[-1]
    total = (hyperprior.shape - 1) * math.log(prior) - hyperprior.rate * prior
    for n in counts.reshape(-1, P):
        total += gammaln(P * prior) - gammaln(P * prior + n.sum())
        total += sum(gammaln(prior + n_p) - gammaln(prior) for n_p in n)
    return float(total)


# ---- expectations --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("a", "b"), [(0.5, 0.5), (2.0, 7.5), (40.0, 1.2)])
def test_the_expected_logarithm_equals_an_integral(a: float, b: float) -> None:
    integral, _ = quad(lambda x: math.log(x) * beta.pdf(x, a, b), 0, 1)
    np.testing.assert_allclose(expected_log(np.array([a, b]))[0], integral, rtol=1e-6)


def test_the_expected_logarithm_equals_a_sample_mean() -> None:
    parameters = np.array([0.7, 1.0, 3.0, 12.0])
    logs = np.log(np.random.default_rng(0).dirichlet(parameters, size=200_000))
    error = logs.std(axis=0) / math.sqrt(len(logs))
    assert (np.abs(logs.mean(axis=0) - expected_log(parameters)) < 4 * error).all()


def test_every_distribution_along_the_last_axis_is_its_own() -> None:
    parameters = np.random.default_rng(1).gamma(1.0, size=(2, 3, 4))
    for k in range(2):
        for j in range(3):
            np.testing.assert_array_equal(expected_log(parameters)[k, j], expected_log(parameters[k, j]))
            mean = normalised(parameters)[k, j]
            np.testing.assert_allclose(mean, dirichlet.mean(parameters[k, j]), rtol=1e-12)


@pytest.mark.parametrize(("q", "p"), [((2.0, 3.0), (1.0, 1.0)), ((0.6, 9.0), (4.0, 0.5))])
def test_the_divergence_equals_an_integral(q: tuple[float, float], p: tuple[float, float]) -> None:
    integral, _ = quad(lambda x: beta.pdf(x, *q) * (beta.logpdf(x, *q) - beta.logpdf(x, *p)), 0, 1)
    np.testing.assert_allclose(divergence(np.array([q]), np.array(p)), integral, rtol=1e-6)


def test_the_divergence_equals_a_sample_mean() -> None:
    q, p = np.array([1.5, 4.0, 0.8]), np.full(3, 0.5)
    draws = np.random.default_rng(2).dirichlet(q, size=200_000).T
    ratios = dirichlet.logpdf(draws, q) - dirichlet.logpdf(draws, p)
    assert abs(ratios.mean() - divergence(q, np.asarray(0.5))) < 4 * ratios.std() / math.sqrt(ratios.size)


def test_divergences_add_up_and_vanish_at_the_prior() -> None:
    posteriors = np.random.default_rng(3).gamma(2.0, size=(3, 2, 4))
    apart = sum(divergence(row, np.asarray(0.7)) for row in posteriors.reshape(-1, 4))
    np.testing.assert_allclose(divergence(posteriors, np.asarray(0.7)), apart, rtol=1e-12)
    assert divergence(posteriors, np.asarray(0.7)) > 0
    np.testing.assert_allclose(divergence(np.full((5, 3), 0.7), np.asarray(0.7)), 0.0, atol=1e-12)


# ---- the prior, learned --------------------------------------------------------------------------------


def test_a_hyperprior_is_a_gamma_density() -> None:
    hyperprior = Hyperprior(5.0, 2.0)
    at, reference = (hyperprior.log_density(b) for b in (0.4, 3.0))
    np.testing.assert_allclose(
        at - reference, gamma.logpdf(0.4, 5.0, scale=0.5) - gamma.logpdf(3.0, 5.0, scale=0.5), rtol=1e-12
    )


@pytest.mark.parametrize("hyperprior", [FLAT, Hyperprior(201.0, 100.0), Hyperprior(3.0, 0.5)])
@pytest.mark.parametrize("seed", range(usually(8, verify=40)))
def test_a_step_never_lowers_the_probability(seed: int, hyperprior: Hyperprior) -> None:
    """Counts of all sizes, fractions below one among them, where Minka's own proof does not reach."""
    rng = np.random.default_rng(seed)
    counts = rng.gamma(
        rng.choice([0.05, 0.5, 3.0]), 10.0 ** rng.uniform(-2, 2), size=(4, 2, rng.integers(2, 6))
    )
    prior = 10.0 ** rng.uniform(-2, 2)
    for _ in range(20):
        following = learn_prior(counts, prior, hyperprior)
        before = log_probability(counts, prior, hyperprior)
        assert log_probability(counts, following, hyperprior) >= before - 1e-12 * (1 + abs(before))
        prior = following


@pytest.mark.parametrize("hyperprior", [FLAT, Hyperprior(4.0, 3.0)])
def test_steps_lead_to_the_most_probable_prior(hyperprior: Hyperprior) -> None:
    rng = np.random.default_rng(5)
    counts = rng.multinomial(12, rng.dirichlet(np.full(4, 0.8), size=30)).astype(float)
    prior = 5.0
    for _ in range(2000):
        prior = learn_prior(counts, prior, hyperprior)
    best = minimize_scalar(
        lambda u: -log_probability(counts, math.exp(u), hyperprior),
        bounds=(-4, 4),
        method="bounded",
        options={"xatol": 1e-9},
    )
    np.testing.assert_allclose(prior, math.exp(best.x), rtol=1e-5)


@pytest.mark.parametrize("true", [0.2, 1.0, 4.0])
def test_the_prior_behind_many_distributions_is_found(true: float) -> None:
    rng = np.random.default_rng(6)
    counts = rng.multinomial(200, rng.dirichlet(np.full(5, true), size=2000)).astype(float)
    prior = 0.5
    for _ in range(300):
        prior = learn_prior(counts, prior, FLAT)
    np.testing.assert_allclose(prior, true, rtol=0.05)


def test_a_learned_prior_keeps_within_its_bounds() -> None:
    certain, even = np.tile([50.0, 0, 0], (10, 1)), np.full((10, 3), 50.0)
    low = high = 1.0
    for _ in range(3000):
        low, high = learn_prior(certain, low, FLAT), learn_prior(even, high, FLAT)
    assert low == LEAST
    assert 100 < high <= MOST


def test_without_counts_the_hyperprior_is_all_there_is() -> None:
    prior = 1.0
    for _ in range(5):
        prior = learn_prior(np.zeros((3, 4)), prior, Hyperprior(51.0, 100.0))
    np.testing.assert_allclose(prior, 0.5, rtol=1e-12)  # its mode, (51 − 1) / 100
