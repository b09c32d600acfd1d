"""Leaps of EM: the formula by hand, what is taken back, and that a stopped fit goes on with the same bits."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from dissensus.execution.checkpoints import Checkpoints
from dissensus.execution.leaps import LEFT, LONGEST, NEAR, leap
from dissensus.execution.run import Ascent, Pause

import dissensus as ds
from reproduction.datasets import read_dataset
from sizes import usually

MODELS = {"fmm": ds.FMM, "dawid-skene": ds.DawidSkene, "one-coin": ds.OneCoin, "mace": ds.MACE}


@dataclass(frozen=True)
class Point:
    x: np.ndarray


END, AWAY = np.array([0.2, 0.3, 0.5]), np.array([0.1, -0.04, -0.06])


def creeping(point: Point, factor: float = 0.9) -> Point:
    """A step that leaves a fixed share of the way to the end."""
    return Point(END + factor * (point.x - END))


def height(point: Point) -> float:
    return -float(np.square(point.x - END).sum())


# ---- the formula ---------------------------------------------------------------------------------------


def test_steps_that_shrink_by_one_factor_end_where_they_lead() -> None:
    # x_t = p + cᵗ d: r = (c−1) d, v = (c−1)² d, a = 1 / (1−c), so x₀ + 2 a r + a² v = p
    x0 = Point(END + AWAY)
    x1 = creeping(x0)
    np.testing.assert_allclose(leap(x0, x1, creeping(x1)).x, END, rtol=1e-9)


def test_a_leap_by_hand() -> None:
    # r = (1, 0), v = (0, −2): a = ½, so at least 1: (1, 5) + 2 (1, 0) + (0, −2)
    x = [Point(np.array(given)) for given in ([1.0, 5.0], [2.0, 5.0], [3.0, 3.0])]
    np.testing.assert_allclose(leap(*x, shares=False).x, [3.0, 3.0])
    # r = (1, 0), v = (−¼, 0): a = 4: 1 + 8 − 4
    x = [Point(np.array([given, 1.0])) for given in (1.0, 2.0, 2.75)]
    np.testing.assert_allclose(leap(*x, shares=False).x, [5.0, 1.0])


def test_a_leap_is_not_endless() -> None:
    straight = [Point(np.array([1.0 + t])) for t in range(3)]  # v = 0
    np.testing.assert_allclose(leap(*straight, shares=False).x, [1 + 2 * LONGEST])


def test_what_is_0_stays_0_and_nothing_else_becomes_0() -> None:
    rows = [[0.0, 0.4 * 0.5**t, 1 - 0.4 * 0.5**t] for t in range(3)]
    found = leap(*(Point(np.array([row])) for row in rows)).x
    assert found[0, 0] == 0.0
    # the second leads to 0 itself, and LEFT of its last value is left
    np.testing.assert_allclose(found[0, 1], LEFT * 0.1 / (1 + LEFT * 0.1), rtol=1e-6)
    np.testing.assert_allclose(found.sum(), 1.0)


# ---- when a fit leaps ----------------------------------------------------------------------------------


def climbed(
    ascent: Ascent[Point], step: Callable[[Point], Point], objective: Callable[[Point], float]
) -> list[Point]:
    """Everything a loop has looked at, from the start or from where it was stopped."""
    state, seen = ascent.resumed or Point(END + AWAY), []
    for _ in ascent.iterations(200, 1e-12):
        seen.append(state)
        state = ascent.advance(state, objective(state), step(state))
    return seen


def ascent_of(checkpoints: Checkpoints[Point] | None = None, **given: object) -> Ascent[Point]:
    return Ascent(checkpoints, 1, None, np.random.default_rng(0), leap=leap, **given)  # type: ignore[arg-type]


def test_leaps_take_fewer_steps_to_the_same_end() -> None:
    usual = Ascent[Point](None, 1, None, np.random.default_rng(0))
    plain = climbed(usual, creeping, height)
    leaping = ascent_of()
    found = climbed(leaping, creeping, height)
    assert len(found) < 15 < 40 < len(plain)
    assert leaping.trace[-1] >= usual.trace[-1]
    assert (np.diff(leaping.trace) >= 0).all()


def test_there_is_no_leap_while_steps_are_large() -> None:
    far = ascent_of()
    found = climbed(far, creeping, lambda point: 1e6 * height(point))
    own = [np.array_equal(after.x, creeping(before).x) for before, after in itertools.pairwise(found)]
    large = np.abs(np.diff(far.trace)) > NEAR
    assert large[:10].all()
    # what follows the t-th state is EM's own step where the step to the t-th was large
    assert all(own[: np.flatnonzero(~large)[0] + 1])
    assert not all(own)


@pytest.mark.parametrize("fallen", [-10.0, float("nan")])
def test_a_leap_that_ends_lower_or_at_no_number_is_taken_back(fallen: float) -> None:
    path = [Point(END + AWAY)]
    for _ in range(200):
        path.append(creeping(path[-1]))
    on_path = {point.x.tobytes(): number for number, point in enumerate(path)}

    def objective(point: Point) -> float:
        return height(point) if point.x.tobytes() in on_path else fallen

    ascent = ascent_of()
    seen = climbed(ascent, creeping, objective)
    kept = [on_path[point.x.tobytes()] for point in seen if point.x.tobytes() in on_path]
    assert kept == list(range(len(kept)))  # EM's own steps, none left out
    assert len(seen) > len(kept)  # and leaps between them
    np.testing.assert_array_equal(ascent.trace, [height(point) for point in path[: len(kept)]])
    assert ascent.stopped == "tolerance"


def test_a_leap_that_gains_nothing_does_not_end_a_fit() -> None:
    heights: list[float] = []

    def objective(point: Point) -> float:  # the first leap is as high as the step before it
        leapt = len(heights) == 2
        heights.append(heights[-1] if leapt else 0.1 * height(point))
        return heights[-1]

    ascent = ascent_of()
    climbed(ascent, creeping, objective)
    assert ascent.trace[2] == ascent.trace[1]
    assert len(ascent.trace) > 3


def test_a_fit_that_is_stopped_anywhere_goes_on_with_the_same_bits(tmp_path: Path) -> None:
    def bumpy(point: Point) -> float:  # some leaps are taken back
        return height(point) if point.x[0] > END[0] + 1e-4 else -1.0

    for number, objective in enumerate((height, bumpy)):
        whole = ascent_of()
        climbed(whole, partial(creeping, factor=0.8), objective)
        for after in range(1, len(whole.trace)):
            kept = Checkpoints(tmp_path / f"{number}-{after}", Point, after)
            first = ascent_of(kept)
            state = Point(END + AWAY)
            for _ in first.iterations(200, 1e-12):
                state = first.advance(state, objective(state), creeping(state, 0.8))
                if len(first.trace) == after:
                    break
            resumed = ascent_of(kept)
            climbed(resumed, partial(creeping, factor=0.8), objective)
            assert resumed.trace.tobytes() == whole.trace.tobytes()
            assert resumed.state.x.tobytes() == whole.state.x.tobytes()


def test_a_fit_that_is_paused_goes_on_with_the_same_bits() -> None:
    whole = ascent_of()
    climbed(whole, creeping, height)
    for after in range(1, len(whole.trace)):
        pause = Pause(after)
        climbed(ascent_of(pause=pause), creeping, height)
        resumed = ascent_of(pause=Pause(None, pause.held))
        climbed(resumed, creeping, height)
        assert resumed.trace.tobytes() == whole.trace.tobytes()


# ---- models --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("seed", usually((0, 33), verify=range(40)))  # 33 has a long slope that is hardly one
def test_an_accelerated_model_ends_no_lower_and_never_falls(model: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    items, annotators, classes, n = (
        int(rng.integers(*ends)) for ends in ((50, 300), (5, 40), (2, 6), (2, 6))
    )
    crowd = ds.simulate(items, annotators, classes, labels_per_item=min(n, annotators), seed=seed).annotations
    plain, faster = (MODELS[model](accelerate=way).fit(crowd) for way in (False, True))
    assert len(faster.trace_) < len(plain.trace_)
    assert faster.trace_[-1] >= plain.trace_[-1] - 1e-6 * crowd.n_labels
    assert (np.diff(faster.trace_) >= -1e-9 * abs(faster.trace_[0])).all()
    settled = MODELS[model](accelerate=False, tol=1e-11, max_iter=20_000).fit(crowd).label_distributions_
    error = abs(faster.label_distributions_ - settled).mean()
    assert error <= abs(plain.label_distributions_ - settled).mean() + 1e-3


@pytest.mark.data
@pytest.mark.parametrize("model", [name for name, model in MODELS.items() if model().accelerate])
def test_on_real_labels_too(model: str, data_dir: Path) -> None:
    every = sorted(path.name for path in data_dir.iterdir() if path.is_dir())
    for name in usually(["bluebirds", "hs_brexit", "jq2"], verify=every):
        labels = read_dataset(data_dir / name)
        plain, faster = (MODELS[model](accelerate=way).fit(labels) for way in (False, True))
        assert faster.trace_[-1] >= plain.trace_[-1] - 1e-6 * labels.n_labels, name
