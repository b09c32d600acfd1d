"""The measurement of SQUAREM: its leap, its safeguard, and what the page says."""

from __future__ import annotations

import numpy as np
import pytest

import dissensus as ds
from experiments.acceleration import MODELS, leap, leaping, measured, page


def test_a_leap_ends_steps_that_shrink_by_one_factor() -> None:
    # x_t = p + cᵗ d: the leap from x₀, x₁, x₂ is p itself
    p, d, c = np.array([0.2, 0.3, 0.5]), np.array([0.1, -0.05, -0.05]), 0.9
    (end,) = leap(*([p + c**t * d] for t in range(3)))
    np.testing.assert_allclose(end, p, rtol=1e-9)


def test_a_leap_that_falls_is_taken_back() -> None:
    # The objective is the step's number, and anything but a step of EM has a lower one.
    path = [np.array([0.5 + 0.4 * 0.5**t, 0.5 - 0.4 * 0.5**t]) for t in range(60)]

    def step(x):
        at = [t for t, one in enumerate(path) if np.array_equal(one, x[0])]
        return ([path[at[0] + 1]], -(0.5 ** at[0])) if at else ([path[0]], -10.0)

    assert leaping([path[0]], step, 1e-6).objective == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("model", MODELS)
def test_both_ways_climb_to_a_maximum(model: str) -> None:
    known = ds.simulate(60, 8, 3, n_item_clusters=2, n_annotator_clusters=1, labels_per_item=6).annotations
    found = measured(known, model)
    assert all(gain > -0.05 for gain in found["gain"])
    assert model in page([("made up", one, found) for one in MODELS])
