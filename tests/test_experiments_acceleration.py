"""The measurement of SQUAREM and Anderson's mixing: their steps, their safeguard, and what the page says."""

from __future__ import annotations

import numpy as np
import pytest

import dissensus as ds
from experiments import acceleration
from experiments.acceleration import (
    MODELS,
    WAYS,
    Place,
    Start,
    Stepped,
    measured,
    mixing,
    page,
    plain,
)


def test_mixing_solves_linear_steps_of_two_factors() -> None:
    # x ← p + A (x − p) with factors .99 and .9: EM takes hundreds of steps, two differences span them
    p, A = np.array([3.0, 2.0]), np.diag([0.99, 0.9])

    def step(place: Place) -> Stepped:
        (x,) = place.point
        return Stepped(Place([p + A @ (x - p)]), -float(np.square(x - p).sum()))

    start = Start(Place([np.array([1.0, 1.0])]), step, shares=False)
    found, usual = mixing(start, 1e-9), plain(start, 1e-9)
    assert found.passes < 12 < 100 < usual.passes
    assert found.objective == pytest.approx(0.0, abs=1e-12)


@pytest.mark.parametrize("way", WAYS.values())
def test_what_falls_is_taken_back(way) -> None:
    # The objective grows with the step's number, and anything but a step of EM has a lower one.
    path = [np.array([0.5 + 0.4 * 0.5**t, 0.5 - 0.4 * 0.5**t]) for t in range(40)]
    fallen = []

    def step(place: Place) -> Stepped:
        at = [t for t, one in enumerate(path) if np.array_equal(one, place.point[0])]
        if at:
            return Stepped(Place([path[at[0] + 1]]), -(0.5 ** at[0]))
        fallen.append(place)
        return Stepped(Place([np.array([0.1, 0.9])]), -10.0)

    end = way(Start(Place([path[0]]), step), 1e-6)
    assert fallen
    assert end.objective == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("way", WAYS.values())
def test_a_fit_that_ends_by_the_limit_says_where_it_is(way, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceleration, "MOST", 6)
    p, factors, seen = np.array([3.0, 2.0]), np.array([0.99, 0.7]), []

    def step(place: Place) -> Stepped:
        (x,) = place.point
        seen.append(-float(np.square(x - p).sum()))
        return Stepped(Place([p + factors * (x - p)]), seen[-1])

    end = way(Start(Place([np.array([1.0, 1.0])]), step, shares=False), 0.0)
    assert end == (max(seen), len(seen))
    assert len(seen) <= 6


@pytest.mark.parametrize("model", MODELS)
def test_all_ways_climb_to_a_maximum(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begin, seeds = MODELS[model]
    monkeypatch.setitem(MODELS, model, (begin, min(seeds, 2)))
    known = ds.simulate(60, 8, 3, n_item_clusters=2, n_annotator_clusters=1, labels_per_item=6).annotations
    found = measured(known, model)
    assert all(gain > -0.05 for way in WAYS for gain in found[way]["gain"])
    told = page([("made up", one, found) for one in MODELS])
    assert f"| {model} | Anderson | {len(found['plain'])} |" in told


def test_steps_of_em_never_lower_what_has_a_bound() -> None:
    known = ds.simulate(80, 10, 3, labels_per_item=5, seed=4).annotations
    for model, (begin, _) in MODELS.items():
        if model == "PGM":  # Bethe's objective may fall
            continue
        start = begin(known, 0)
        place, objectives = start.place, []
        for _ in range(15):
            place, objective = start.step(place)
            objectives.append(objective)
        assert (np.diff(objectives) >= -1e-9 * abs(objectives[0])).all(), model
