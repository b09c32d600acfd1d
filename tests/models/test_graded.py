"""Graded response: formulas against differences and enumeration, planted parameters recovered."""

import itertools

import numpy as np
import pytest
from scipy.special import expit

import dissensus as ds
from dissensus.labels.annotations import Annotations
from dissensus.models import graded as code
from tests.helpers.scales import divided_scale, graded_scale


def parameters(grid: code.Grid, P: int = 4, N: int = 3) -> code.AnnotatorParameters:
    rng = np.random.default_rng(0)
    D = grid.x.shape[1]
    theta = np.column_stack([np.sort(rng.normal(0, 2, (N, P - 1)), axis=1), rng.uniform(0.5, 2, (N, D))])
    return code.AnnotatorParameters(
        theta, np.array([0.1, 0.02, 0.3])[:N], theta.mean(axis=0), np.ones(2 + D), grid.normal[::-1].copy()
    )


@pytest.mark.parametrize("sides", [False, True])
def test_probabilities_follow_the_formula(sides: bool) -> None:
    """P(y ≤ k) = σ(d (c_k − a x)), or σ(√2 (c_k − a x − b u)) with sides."""
    grid = code.Grid.of(sides)
    params = parameters(grid)
    theta = params.theta
    steps, _ = code.graded(theta, grid)
    for q in (0, 11, len(grid.d) - 1):
        clarity = 2**0.5 if sides else grid.d[q]
        for n in range(len(theta)):
            location = theta[n, 3:] @ grid.x[q]
            cumulative = [float(expit(clarity * (c - location))) for c in theta[n, :3]]
            np.testing.assert_allclose(steps[n, q], np.diff([0, *cumulative, 1]), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("sides", [False, True])
def test_derivatives_match_differences(sides: bool) -> None:
    """Compare with differences of Σ n_qy log P(y | q); information is minus the expected curvature."""
    grid, rng = code.Grid.of(sides), np.random.default_rng(1)
    theta = parameters(grid).theta

    def likelihood(values: np.ndarray, counts: np.ndarray) -> float:
        return float((counts * np.log(code.graded(values[None], grid)[0][0])).sum())

    for n in range(len(theta)):
        steps, below = code.graded(theta[n : n + 1], grid)
        counts = rng.random((1, *steps.shape[1:])) * steps
        gradient, _ = code._derivatives(counts, steps, below, grid)
        bumps = 1e-5 * np.eye(theta.shape[1])
        values = [[likelihood(theta[n] + s * b, counts[0]) for s in (1, -1)] for b in bumps]
        numeric = [(up - down) / 2e-5 for up, down in values]
        np.testing.assert_allclose(gradient[0], numeric, rtol=1e-4, atol=1e-5)
        # counts in the model's proportions: minus the second differences
        expected = rng.random((1, steps.shape[1], 1)) * steps
        _, information = code._derivatives(expected, steps, below, grid)
        big = 1e-3 * np.eye(theta.shape[1])
        for (i, a), (j, b) in itertools.product(enumerate(big), enumerate(big)):
            signs = itertools.product((1, -1), (1, -1))
            second = sum(s * t * likelihood(theta[n] + s * a + t * b, expected[0]) for s, t in signs) / 4e-6
            assert information[0, i, j] == pytest.approx(-second, rel=2e-3, abs=2e-3)


def test_posterior_and_expected_counts_by_enumeration() -> None:
    labels = Annotations.from_arrays([0, 0, 1, 2], [0, 1, 2, 0], [3, 1, 0, 2], label_type="ordinal")
    grid = code.Grid.of(sides=True)
    params = parameters(grid)
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    table = code.label_probabilities(params.theta, params.guess_rates, shares, grid)
    np.testing.assert_allclose(table.sum(axis=2), 1, rtol=1e-9)
    posterior, log_likelihood = code.e_step(labels, np.log(table), np.log(params.psi))
    total = 0.0
    for m in range(3):
        joint = params.psi.copy()
        for e in np.flatnonzero(labels.item == m):
            joint = joint * table[labels.annotator[e], :, labels.label[e]]
        np.testing.assert_allclose(posterior[m], joint / joint.sum(), rtol=1e-9)
        total += np.log(joint.sum())
    assert log_likelihood == pytest.approx(total, rel=1e-12)
    counts = code.expected_label_counts(labels, posterior)
    assert counts[0, :, 3] == pytest.approx(posterior[0])
    assert counts[0, :, 2] == pytest.approx(posterior[2])
    assert counts.sum() == pytest.approx(4)


def test_planted_parameters_are_recovered() -> None:
    labels, planted = graded_scale(0)
    model = ds.GradedResponse().fit(labels)
    frame = model.annotator_frame()
    honest = slice(1, None)
    assert np.corrcoef(frame["leniency"][honest], -planted["shift"][honest])[0, 1] > 0.9
    assert np.corrcoef(frame["slope"][honest], planted["slope"][honest])[0, 1] > 0.6
    assert frame["guesses"][0] > 2 * frame["guesses"][honest].max() or frame["slope"][0] < 0.4
    assert np.corrcoef(model.item_posterior_ @ code.Grid.of(model.sides).x[:, 0], planted["x"])[0, 1] > 0.9
    assert np.diff(model.trace_).min() > -1e-3 * labels.n_labels


def test_sides_are_found_only_where_annotators_differ() -> None:
    labels, kind = divided_scale(0, distance=1.5)
    visible, hidden = labels.split_labels(0.2, 0)
    plain, sides = (ds.GradedResponse(sides=sides).fit(visible) for sides in (False, True))
    slopes = sides.thresholds_and_slopes_[:, -1]
    assert abs(np.corrcoef(np.sign(slopes), kind)[0, 1]) == pytest.approx(1)
    assert sides.score(hidden) > plain.score(hidden) + 0.05
    undivided, _ = divided_scale(1, distance=0.0)
    assert ds.GradedResponse(sides=True).fit(undivided).spread_[3] < 0.3 * sides.spread_[3]
