"""Dirichlet parameters with a number for every component: against scipy's densities and closed forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import dirichlet
from sklearn.base import clone

import dissensus as ds
from dissensus.errors import ParameterError
from dissensus.models.base import Model
from dissensus.models.pgm.m_step import MaximumPosterior, Parameters, Priors, log_prior
from dissensus.models.pgm.messages import Statistics

K, L, P = 3, 2, 4
ALPHA, GAMMA, TAU = [1.2, 2.0, 3.5, 1.0], [2.0, 1.5, 4.0], [1.1, 3.0]
LABELS = ds.simulate(
    60, 15, P, n_item_clusters=K, n_annotator_clusters=L, labels_per_item=6, seed=1
).annotations


def drawn(seed: int) -> Parameters:
    rng = np.random.default_rng(seed)
    sizes = (np.ones(P), (K, L)), (np.ones(K), None), (np.ones(L), None)
    return Parameters(*(rng.dirichlet(one, size=size) for one, size in sizes))


def test_the_prior_is_scipys_density() -> None:
    """Up to a constant, so two draws are compared."""

    def density(one: Parameters) -> float:
        cells = sum(dirichlet.logpdf(row, ALPHA) for row in one.theta.reshape(-1, P))
        return float(cells + dirichlet.logpdf(one.psi, GAMMA) + dirichlet.logpdf(one.omega, TAU))

    priors = Priors(*map(np.array, (ALPHA, GAMMA, TAU)))
    first, second = drawn(1), drawn(2)
    ours = log_prior(first.logs, priors) - log_prior(second.logs, priors)
    np.testing.assert_allclose(ours, density(first) - density(second), rtol=1e-10)


def test_the_m_step_by_hand() -> None:
    mass = Statistics(np.full((1, 1, 2), [3.0, 1.0]), np.array([5.0, 2.0]), np.array([4.0, 0.0]))
    priors = Priors(np.array([2.0, 1.5]), np.array([1.0, 4.0]), np.array([3.0, 2.0]))
    found = MaximumPosterior(priors).learn(mass, None).parameters
    np.testing.assert_allclose(found.theta, [[[4 / 5.5, 1.5 / 5.5]]], rtol=1e-12)  # (1 + 3, 0.5 + 1)
    np.testing.assert_allclose(found.psi, [5 / 10, 5 / 10], rtol=1e-12)  # (0 + 5, 3 + 2)
    np.testing.assert_allclose(found.omega, [6 / 7, 1 / 7], rtol=1e-12)  # (2 + 4, 1 + 0)


FITS: dict[str, Any] = {
    "fmm": lambda **priors: ds.FMM(K, max_iter=30, **{k: v for k, v in priors.items() if k != "tau"}),
    "bp": lambda **priors: ds.PGM(K, L, max_iter=30, **priors),
    "vb": lambda **priors: ds.PGM(K, L, inference="vb", max_iter=30, **priors),
    "annealing": lambda **priors: ds.PGM(K, L, inference="annealing", max_iter=30, **priors),
}


@pytest.mark.parametrize("name", FITS)
def test_equal_numbers_in_a_list_are_that_number(name: str) -> None:
    one = FITS[name](alpha=1.5, gamma=2.5, tau=3.0).fit(LABELS)
    many = FITS[name](alpha=[1.5] * P, gamma=[2.5] * K, tau=[3.0] * L).fit(LABELS)
    for array in ("theta_", "psi_", "label_distributions_", "trace_"):
        np.testing.assert_allclose(getattr(many, array), getattr(one, array), rtol=1e-12)


@pytest.mark.parametrize("name", FITS)
def test_every_prior_pulls_where_it_should(name: str, tmp_path: Path) -> None:
    model: Model = FITS[name](alpha=(1.0, 1.0, 1.0, 400.0), gamma=(1.0, 1.0, 900.0), tau=(1.0, 900.0))
    fitted = clone(model).fit(LABELS)
    assert (fitted.theta_.argmax(axis=-1) == 3).all()
    assert fitted.psi_.argmax() == 2
    if name != "fmm":
        assert fitted.omega_.argmax() == 1
    fitted.save(tmp_path / "model.safetensors")
    again = ds.load(tmp_path / "model.safetensors")
    assert again.get_params() == fitted.get_params()
    np.testing.assert_array_equal(again.label_distributions_, fitted.label_distributions_)


def test_fmms_objective_never_falls() -> None:
    trace = ds.FMM(K, alpha=ALPHA, gamma=GAMMA, tol=0.0, max_iter=60).fit(LABELS).trace_
    assert (np.diff(trace) >= -1e-9).all()


def test_one_cluster_of_each_is_a_dirichlet_multinomial() -> None:
    """Then the bound of variational Bayes is log B(α + n) / B(α), and Θ the posterior mean."""
    alpha, n = np.array([0.5, 2.0, 3.0, 1.5]), LABELS.class_counts
    fitted = ds.PGM(1, 1, inference="vb", alpha=alpha.tolist(), gamma=1.0, tau=1.0).fit(LABELS)

    def log_beta(a: Any) -> float:
        return float(gammaln(a).sum() - gammaln(a.sum()))

    expected = log_beta(alpha + n) - log_beta(alpha)
    np.testing.assert_allclose(fitted.trace_[-1], expected, rtol=1e-9)
    np.testing.assert_allclose(fitted.theta_[0, 0], (alpha + n) / (alpha + n).sum(), rtol=1e-9)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"alpha": [1.0, 2.0]}, r"'alpha' parameter of PGM must be a number or a list of 4"),
        ({"gamma": [2.0] * 5}, r"'gamma' parameter of PGM must be a number or a list of 3"),
        ({"tau": [2.0, 0.5]}, r"'tau' parameter of PGM must be at least 1 with inference='bp'"),
        ({"tau": [2.0, "x"]}, r"'tau' parameter of PGM must be a float > 0, or a list of them"),
        ({"tau": []}, r"'tau' parameter of PGM must be a float > 0, or a list of them"),
    ],
)
def test_lists_of_another_length_are_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        ds.PGM(K, L, **settings).fit(LABELS)


# ---- the simulator --------------------------------------------------------------------------------------


def test_the_simulator_draws_around_the_parameters_shares() -> None:
    # Dir(s π) has the mean π and the variance π (1 − π) / (s + 1): 4,000 distributions
    alpha = [0.5, 1.5, 3.0, 5.0]
    theta = ds.simulate(5, 5, P, n_item_clusters=80, n_annotator_clusters=50, alpha=alpha, seed=3).theta
    share = np.array(alpha) / 10
    error = np.sqrt(share * (1 - share) / 11 / 4000)
    assert (np.abs(theta.mean(axis=(0, 1)) - share) < 5 * error).all()
    shares = ds.simulate(5, 5, P, n_item_clusters=3, gamma=[1.0, 1.0, 5000.0], tau=[5000.0, 1.0, 1.0], seed=4)
    assert (shares.psi.argmax(), shares.omega.argmax()) == (2, 0)
    same = [ds.simulate(20, 9, P, alpha=alpha, seed=5) for alpha in (0.7, [0.7] * P)]
    np.testing.assert_array_equal(same[0].annotations.label, same[1].annotations.label)


def test_labels_are_drawn_anew_for_the_pairs_given() -> None:
    rows = [("i", "b", 0), ("i", "a", 1), ("j", "b", 0), ("j", "b", 1), ("j", "b", 1), ("k", "c", 0)]
    real = ds.Annotations.from_arrays(*zip(*rows, strict=True), items={"item": ["i", "j", "k", "nobody's"]})
    drawn = ds.simulate(pairs=real, n_classes=5, n_item_clusters=2, n_annotator_clusters=2, seed=0)
    known = drawn.annotations
    np.testing.assert_array_equal(known.item, real.item)
    np.testing.assert_array_equal(known.annotator, real.annotator)
    assert known.item_vocabulary == real.item_vocabulary
    assert known.annotator_vocabulary == real.annotator_vocabulary
    assert drawn.item_cluster.shape == (4,)
    again = ds.simulate(pairs=real, n_classes=5, n_item_clusters=2, n_annotator_clusters=2, seed=0)
    np.testing.assert_array_equal(again.annotations.label, known.label)


def test_labels_of_pairs_given_follow_theta() -> None:
    """Pairs labelled three times over, so that rows must come out in order and each cell still be right."""
    columns = np.indices((40, 30, 3)).reshape(3, -1)
    real = ds.Annotations.from_arrays(columns[0], columns[1], np.zeros(3600, int))
    drawn = ds.simulate(pairs=real, n_classes=3, n_item_clusters=2, n_annotator_clusters=2, alpha=1.0, seed=8)
    known = drawn.annotations
    assert (np.diff(known.label.reshape(-1, 3), axis=1) >= 0).all()
    for k, j in np.ndindex(2, 2):
        mine = (drawn.item_cluster[known.item] == k) & (drawn.annotator_cluster[known.annotator] == j)
        share, truth = np.bincount(known.label[mine], minlength=3) / mine.sum(), drawn.theta[k, j]
        assert (np.abs(share - truth) <= 5 * np.sqrt(truth * (1 - truth) / mine.sum())).all()


def test_pairs_given_leave_nothing_else_to_say_who_labels_what() -> None:
    for settings in ({"n_items": 7}, {"n_annotators": 7}, {"labels_per_item": 2}, {"load": "long-tail"}):
        with pytest.raises(ParameterError, match="with pairs, which decides it"):
            ds.simulate(pairs=LABELS, **settings)
    with pytest.raises(ParameterError, match="labels that say who labelled what"):
        ds.simulate(pairs=ds.Annotations.from_counts([[1, 2]]))
