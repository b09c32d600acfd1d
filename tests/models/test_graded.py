"""Graded response: formulas against differences and enumeration, planted parameters recovered."""

import itertools
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import dissensus as ds
from dissensus.labels.annotations import Annotations
from dissensus.models import graded as code
from tests.helpers import graded_twin
from tests.helpers.scales import divided_scale, graded_scale
from tests.helpers.sizes import usually


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
    below = code.cumulative_probabilities(theta, grid)
    steps = code.label_probabilities(below, np.zeros(3), np.ones(4))
    for q in (0, 11, len(grid.d) - 1):
        clarity = 2**0.5 if sides else grid.d[q]
        for n in range(len(theta)):
            location = theta[n, 3:] @ grid.x[q]
            cumulative = [float(expit(clarity * (c - location))) for c in theta[n, :3]]
            np.testing.assert_allclose(steps[n, :, q], np.diff([0, *cumulative, 1]), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("sides", [False, True])
def test_derivatives_match_differences(sides: bool) -> None:
    """Compare with differences of Σ n_qy log P(y | q); information is minus the expected curvature."""
    grid, rng = code.Grid.of(sides), np.random.default_rng(1)
    theta = parameters(grid).theta

    no_guesses, shares = np.zeros(1), np.full(4, 0.25)

    def likelihood(values: np.ndarray, counts: np.ndarray) -> float:
        below = code.cumulative_probabilities(values[None], grid)
        return float((counts * np.log(code.label_probabilities(below, no_guesses, shares)[0])).sum())

    for row in theta:
        below = code.cumulative_probabilities(row[None], grid)
        steps = code.label_probabilities(below, no_guesses, shares)
        counts = rng.random(steps.shape) * steps
        guesses, gradient, _ = code.derivatives(counts, below, no_guesses, shares, grid)
        assert guesses[0] == pytest.approx(0, abs=1e-12)
        bumps = 1e-5 * np.eye(len(row))
        values = [[likelihood(row + s * b, counts[0]) for s in (1, -1)] for b in bumps]
        numeric = [(up - down) / 2e-5 for up, down in values]
        np.testing.assert_allclose(gradient[0], numeric, rtol=1e-4, atol=1e-5)
        # counts in the model's proportions: minus the second differences
        expected = rng.random((1, 1, steps.shape[2])) * steps
        _, _, information = code.derivatives(expected, below, no_guesses, shares, grid)
        big = 1e-3 * np.eye(len(row))
        for (i, a), (j, b) in itertools.product(enumerate(big), enumerate(big)):
            signs = itertools.product((1, -1), (1, -1))
            second = sum(s * t * likelihood(row + s * a + t * b, expected[0]) for s, t in signs) / 4e-6
            assert information[0, i, j] == pytest.approx(-second, rel=2e-3, abs=2e-3)


def test_posterior_and_expected_counts_by_enumeration() -> None:
    labels = Annotations.from_arrays([0, 0, 1, 2], [0, 1, 2, 0], [3, 1, 0, 2], label_type="ordinal")
    grid = code.Grid.of(sides=True)
    params = parameters(grid)
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    below = code.cumulative_probabilities(params.theta, grid)
    table = code.label_probabilities(below, params.guess_rates, shares)
    np.testing.assert_allclose(table.sum(axis=1), 1, rtol=1e-9)
    posterior, log_likelihood = code.e_step(labels, np.log(table), np.log(params.psi))
    total = 0.0
    for m in range(3):
        joint = params.psi.copy()
        for e in np.flatnonzero(labels.item == m):
            joint = joint * table[labels.annotator[e], labels.label[e]]
        np.testing.assert_allclose(posterior[m], joint / joint.sum(), rtol=1e-9)
        total += np.log(joint.sum())
    assert log_likelihood == pytest.approx(total, rel=1e-12)
    counts = code.expected_label_counts(labels, posterior)
    assert counts[0, 3] == pytest.approx(posterior[0])
    assert counts[0, 2] == pytest.approx(posterior[2])
    assert counts.sum() == pytest.approx(4)


@pytest.mark.parametrize("seed", range(usually(6, verify=60)))
def test_compiled_loops_have_the_bits_of_their_twins(seed: int) -> None:
    """Labels may be repeated, items and annotators without labels, and thresholds far apart or equal."""
    rng = np.random.default_rng(seed)
    M, N, P, E, D = (int(rng.integers(*range_)) for range_ in ((1, 9), (1, 6), (2, 6), (1, 60), (1, 3)))
    grid = code.Grid.of(sides=D == 2)
    Q, T = len(grid.d), P - 1
    theta = np.hstack([np.sort(rng.normal(0, 5, (N, T)).round(), axis=1), rng.normal(0, 3, (N, D))])
    below, guess_rates = code.cumulative_probabilities(theta, grid), rng.random(N) * (rng.random(N) < 0.7)
    shares = rng.dirichlet(np.ones(P))
    labels = {
        "ends": np.searchsorted(np.sort(rng.integers(M, size=E)), np.arange(M), side="right"),
        "annotator": rng.integers(N, size=E).astype(np.int32),
        "label": rng.integers(P, size=E).astype(np.int32),
    }

    def check(name: str, *results: str, **arguments: Any) -> None:
        twins = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
        getattr(code, name)(**arguments)
        getattr(graded_twin, name)(**twins)
        for result in results:
            np.testing.assert_array_equal(arguments[result], twins[result])

    check(
        "add_logs", "log_posterior", **labels, logs=rng.normal(size=(N, P, Q)), log_posterior=np.ones((M, Q))
    )
    counts = np.zeros((N, P, Q))
    check("add_counts", "counts", **labels, posterior=rng.dirichlet(np.ones(Q), M), counts=counts)
    check(
        "add_derivatives", "guesses", "gradient", "information",
        counts=counts, below=below, guess_rates=guess_rates, shares=shares, x=grid.x, d=grid.d,
        guesses=np.zeros(N), gradient=np.zeros((N, T + D)), information=np.zeros((N, T + D, T + D)),
        min_probability=1e-12,
    )  # fmt: skip


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
