"""M-steps of PGM: closed forms by hand, Dirichlet divergences, learned priors."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import gammaln
from scipy.stats import dirichlet
from sklearn.base import clone

import dissensus as ds
from dissensus.errors import ParameterError
from dissensus.models.base import Model
from dissensus.models.ibcc import expected_log
from dissensus.models.pgm import m_step
from dissensus.models.pgm.messages import Statistics
from dissensus.numerics import normalised
from tests.helpers.sizes import usually

pytestmark = pytest.mark.no_cover

Array = NDArray[np.float64]

FLAT = m_step.Hyperprior(1.0, 0.0)

STATISTICS = Statistics(
    np.array([[[3.0, 1.0], [0.0, 0.0]], [[0.5, 0.5], [0.0, 7.0]]]), np.array([2.0, 4.0]), np.array([1.0, 2.5])
)


def test_closed_forms_by_hand() -> None:
    learned = m_step.MaximumPosterior(m_step.Priors(2.0, 3.0, 1.5)).m_step(STATISTICS, None)
    theta = [[[4 / 6, 2 / 6], [1 / 2, 1 / 2]], [[1 / 2, 1 / 2], [1 / 9, 8 / 9]]]
    assert_allclose(learned.parameters.theta, theta, rtol=1e-15)
    assert_allclose(learned.parameters.psi, [4 / 10, 6 / 10], rtol=1e-15)
    assert_allclose(learned.parameters.omega, [1.5 / 4.5, 3 / 4.5], rtol=1e-15)
    assert_allclose(learned.potentials.log_theta, np.log(theta), rtol=1e-12)
    expected = np.log(theta).sum() + 2 * np.log([0.4, 0.6]).sum() + 0.5 * np.log([1 / 3, 2 / 3]).sum()
    assert_allclose(learned.prior_term, expected, rtol=1e-12)


def test_variational_posteriors_by_hand() -> None:
    learned = m_step.VariationalBayes(0.5, 1.0, 2.0).m_step(STATISTICS, None)
    assert_allclose(learned.parameters.theta[0], [[3.5 / 5, 1.5 / 5], [1 / 2, 1 / 2]], rtol=1e-15)
    assert_allclose(learned.parameters.psi, [3 / 8, 5 / 8], rtol=1e-15)
    assert_allclose(learned.parameters.omega, [3 / 7.5, 4.5 / 7.5], rtol=1e-15)
    assert_allclose(learned.potentials.log_psi, expected_log(np.array([3.0, 5.0])), rtol=1e-15)
    assert (learned.alpha, learned.gamma, learned.tau) == ([0.5], [1.0], [2.0])


def test_closed_forms_with_vector_priors_by_hand() -> None:
    mass = Statistics(np.full((1, 1, 2), [3.0, 1.0]), np.array([5.0, 2.0]), np.array([4.0, 0.0]))
    priors = m_step.Priors(np.array([2.0, 1.5]), np.array([1.0, 4.0]), np.array([3.0, 2.0]))
    parameters = m_step.MaximumPosterior(priors).m_step(mass, None).parameters
    assert_allclose(parameters.theta, [[[4 / 5.5, 1.5 / 5.5]]], rtol=1e-12)  # (1 + 3, 0.5 + 1)
    assert_allclose(parameters.psi, [5 / 10, 5 / 10], rtol=1e-12)  # (0 + 5, 3 + 2)
    assert_allclose(parameters.omega, [6 / 7, 1 / 7], rtol=1e-12)  # (2 + 4, 1 + 0)


def test_distributions_are_along_the_last_axis() -> None:
    parameters = np.random.default_rng(1).gamma(1.0, size=(2, 3, 4))
    for k in range(2):
        for j in range(3):
            assert_array_equal(expected_log(parameters)[k, j], expected_log(parameters[k, j]))
            mean = normalised(parameters)[k, j]
            assert_allclose(mean, dirichlet.mean(parameters[k, j]), rtol=1e-12)


def test_divergence_equals_a_sample_mean() -> None:
    q, p = np.array([1.5, 4.0, 0.8]), np.full(3, 0.5)
    draws = np.random.default_rng(2).dirichlet(q, size=200_000).T
    ratios = dirichlet.logpdf(draws, q) - dirichlet.logpdf(draws, p)
    gap = ratios.mean() - m_step.dirichlet_divergence(q, np.asarray(0.5))
    assert abs(gap) < 4 * ratios.std() / math.sqrt(ratios.size)
    assert_allclose(m_step.dirichlet_divergence(np.full((5, 3), 0.7), np.asarray(0.7)), 0.0, atol=1e-12)


def log_probability(counts: Array, prior: float, hyperprior: m_step.Hyperprior) -> float:
    """Compute log Π B(b + n) / B(b) plus the log-hyperprior, one distribution at a time."""
    P = counts.shape[-1]
    total = (hyperprior.shape - 1) * math.log(prior) - hyperprior.rate * prior
    for n in counts.reshape(-1, P):
        total += gammaln(P * prior) - gammaln(P * prior + n.sum())
        total += sum(gammaln(prior + n_p) - gammaln(prior) for n_p in n)
    return float(total)


@pytest.mark.parametrize("hyperprior", [FLAT, m_step.Hyperprior(201.0, 100.0), m_step.Hyperprior(3.0, 0.5)])
@pytest.mark.parametrize("seed", range(usually(8, verify=40)))
def test_learn_prior_never_lowers_the_probability(seed: int, hyperprior: m_step.Hyperprior) -> None:
    """Minka's proof is for integers; these counts include fractions below one."""
    rng = np.random.default_rng(seed)
    shape, scale, size = rng.choice([0.05, 0.5, 3.0]), 10.0 ** rng.uniform(-2, 2), rng.integers(2, 6)
    counts = rng.gamma(shape, scale, size=(4, 2, size))
    prior = 10.0 ** rng.uniform(-2, 2)
    for _ in range(20):
        following = m_step.learn_prior(counts, prior, hyperprior)
        before = log_probability(counts, prior, hyperprior)
        assert log_probability(counts, following, hyperprior) >= before - 1e-12 * (1 + abs(before))
        prior = following


@pytest.mark.parametrize("hyperprior", [FLAT, m_step.Hyperprior(4.0, 3.0)])
def test_learn_prior_converges_to_the_maximum(hyperprior: m_step.Hyperprior) -> None:
    rng = np.random.default_rng(5)
    counts = rng.multinomial(12, rng.dirichlet(np.full(4, 0.8), size=30)).astype(float)
    prior = 5.0
    for _ in range(2000):
        prior = m_step.learn_prior(counts, prior, hyperprior)
    bounded = {"bounds": (-4, 4), "method": "bounded", "options": {"xatol": 1e-9}}
    best = minimize_scalar(lambda u: -log_probability(counts, math.exp(u), hyperprior), **bounded)
    assert_allclose(prior, math.exp(best.x), rtol=1e-5)


def test_a_learned_prior_stays_in_its_range() -> None:
    certain, even = np.tile([50.0, 0, 0], (10, 1)), np.full((10, 3), 50.0)
    low = high = 1.0
    for _ in range(3000):
        low, high = m_step.learn_prior(certain, low, FLAT), m_step.learn_prior(even, high, FLAT)
    assert low == 0.01
    assert 100 < high <= 1000


K, L, P = 3, 2, 4
CLUSTERS = {"n_item_clusters": K, "n_annotator_clusters": L}
LABELS = ds.simulate(60, 15, P, **CLUSTERS, labels_per_item=6, seed=1).annotations


FITS: dict[str, Any] = {
    "fmm": lambda **priors: ds.FMM(K, max_iter=30, **{k: v for k, v in priors.items() if k != "tau"}),
    "bp": lambda **priors: ds.PGM(K, L, max_iter=30, **priors),
    "vb": lambda **priors: ds.PGM(K, L, inference="vb", max_iter=30, **priors),
    "annealing": lambda **priors: ds.PGM(K, L, inference="annealing", max_iter=30, **priors),
}


@pytest.mark.parametrize("name", FITS)
def test_each_prior_acts_on_its_parameter(name: str, tmp_path: Path) -> None:
    model: Model = FITS[name](alpha=(1.0, 1.0, 1.0, 400.0), gamma=(1.0, 1.0, 900.0), tau=(1.0, 900.0))
    fitted = clone(model).fit(LABELS)
    assert (fitted.theta_.argmax(axis=-1) == 3).all()
    assert fitted.psi_.argmax() == 2
    if name != "fmm":
        assert fitted.omega_.argmax() == 1
    fitted.save(tmp_path / "model.safetensors")
    assert ds.load(tmp_path / "model.safetensors").get_params() == fitted.get_params()


def test_one_cluster_is_a_dirichlet_multinomial() -> None:
    """The bound is log B(α + n) / B(α), and Θ the posterior mean."""
    alpha, n = np.array([0.5, 2.0, 3.0, 1.5]), LABELS.class_counts
    fitted = ds.PGM(1, 1, inference="vb", alpha=alpha.tolist(), gamma=1.0, tau=1.0).fit(LABELS)

    def log_beta(a: Any) -> float:
        return float(gammaln(a).sum() - gammaln(a.sum()))

    expected = log_beta(alpha + n) - log_beta(alpha)
    assert_allclose(fitted.trace_[-1], expected, rtol=1e-9)
    assert_allclose(fitted.theta_[0, 0], (alpha + n) / (alpha + n).sum(), rtol=1e-9)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"alpha": [1.0, 2.0]}, r"'alpha' parameter of PGM must be a number or a list of 4"),
        ({"tau": [2.0, 0.5]}, r"'tau' parameter of PGM must be at least 1 with inference='bp'"),
        ({"tau": []}, r"'tau' parameter of PGM must be a float > 0, or a list of them"),
    ],
)
def test_lists_of_wrong_length_are_rejected(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        ds.PGM(K, L, **settings).fit(LABELS)
