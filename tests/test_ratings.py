"""Numeric ratings: conditionals against sums over grids, Geweke's joint test, planted ways found again."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dissensus as ds
from cli_help import run
from dissensus.labels.annotations import Annotations
from dissensus.models import ratings as code
from sizes import usually

EDGES = np.arange(0, 13, 3)


def crowd(
    seed: int, n_items: int = 150, n_annotators: int = 20, n_labels: int = 6, outliers: float = 0.05
) -> tuple[Annotations, dict[str, np.ndarray]]:
    """Ratings with planted ways and outliers; the first annotator rates the other way round."""
    rng = np.random.default_rng(seed)
    value = rng.normal(50, 15, n_items)
    bias, scale = rng.normal(0, 6, n_annotators), rng.normal(1, 0.25, n_annotators)
    noise = 5 * np.exp(rng.normal(0, 0.4, n_annotators))
    scale[0] = -1.0
    item = np.repeat(np.arange(n_items), n_labels)
    who = np.concatenate([rng.choice(n_annotators, n_labels, replace=False) for _ in range(n_items)])
    y = 50 + bias[who] + scale[who] * (value[item] - 50) + noise[who] * rng.normal(size=len(item))
    wild = rng.random(len(item)) < outliers
    y[wild] = rng.uniform(-100, 200, wild.sum())
    planted = {"value": value, "bias": bias, "scale": scale, "noise": noise}
    return Annotations.from_arrays(item, who, y, label_type="numeric"), planted


@pytest.mark.slow
def test_what_was_planted_is_found_and_intervals_cover() -> None:
    inside, errors, plain = [], [], []
    for seed in range(usually(8, verify=40)):
        labels, planted = crowd(seed)
        model = ds.NumericRatings(seed=seed).fit(labels)
        frame = model.to_frame()
        inside.append(frame["low"].lt(planted["value"]) & frame["high"].gt(planted["value"]))
        errors.append(frame["estimate"] - planted["value"])
        means = np.bincount(labels.item, labels.values) / np.bincount(labels.item)
        plain.append(means - planted["value"])
        told = model.annotator_frame()
        assert told["scale_high"][0] < 0
        for name, least in {"bias": 0.9, "scale": 0.9, "noise": 0.65}.items():
            assert np.corrcoef(told[name], planted[name])[0, 1] > least, name
    assert 0.93 <= np.mean(inside) <= 0.97
    assert np.sqrt(np.mean(np.square(errors))) < 0.5 * np.sqrt(np.mean(np.square(plain)))


def test_the_posterior_of_an_item_is_what_sums_over_a_grid_say() -> None:
    """Two items, one annotator without bias or scale, no outliers: x given the draws' numbers is normal."""
    item, who, y = np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([1.0, 2.0, -1.0])
    data = code.Ratings(item, who, y, 2, 2, np.array([0, 2, 3]))
    numbers = np.array([0.3, 0.8, 1.0, 1.0, 1.0, 1.0, 5.0])
    beta, scale, precision = np.array([0.1, -0.2]), np.array([1.2, 0.7]), np.array([2.0, 3.0])
    state = code.State(np.zeros(2), beta, scale, precision, np.ones(2), numbers, *([np.zeros(0)] * 3))
    weight = np.array([1.0, 0.5, 1.5]) * precision[who]
    mean, variance = code.items_given(data, state, weight)
    grid = np.linspace(-8, 8, 40_001)
    for m in range(2):
        logs = -((grid - 0.3) ** 2) / (2 * 0.8)
        for e in np.flatnonzero(item == m):
            logs = logs - weight[e] * (y[e] - beta[who[e]] - scale[who[e]] * grid) ** 2 / 2
        chance = np.exp(logs - logs.max())
        chance /= chance.sum()
        assert mean[m] == pytest.approx(chance @ grid, abs=1e-6)
        assert variance[m] == pytest.approx(chance @ (grid - chance @ grid) ** 2, rel=1e-5)


@pytest.mark.slow
def test_geweke_the_sampler_leaves_the_joint_as_it_is() -> None:
    """Draws of unknowns from the prior, with data drawn anew after each sweep, keep the prior's moments.

    The flat priors of μ and v are held at a value here, so that there is a joint to draw from.
    """
    rng = np.random.default_rng(1)
    item, who, M, N = np.repeat(np.arange(4), 3), np.tile(np.arange(3), 4), 4, 3
    numbers = np.array([0.0, 0.5, 0.3, 0.1, 0.4, 3.0, 5.0])
    x, beta = rng.normal(0, np.sqrt(0.5), M), rng.normal(0, np.sqrt(0.3), N)
    s, precision = rng.normal(1, np.sqrt(0.1), N), rng.gamma(3.0, 1 / (3.0 * 0.4), N)
    unused = np.zeros((3, M)), np.zeros((6, N)), np.zeros(8)
    state = code.State(x, beta, s, precision, np.ones(N), numbers, *unused)
    found = []
    for _ in range(usually(4000, verify=20_000)):
        noise = rng.standard_t(5.0, len(item)) / np.sqrt(state.precision[who])
        y = state.beta[who] + state.scale[who] * state.x[item] + noise
        data = code.Ratings(item, who, y, M, N, EDGES)
        weights, _ = code.weights_given(data, state, noise, rng)
        squares = data.by_annotator(weights * noise**2)
        precision, _, _ = code.precisions_given(squares, np.full(N, 4.0), 0.4, 3.0, rng)
        weight = weights * precision[who]
        beta, s = code.annotators_given(data, state, weight, True, True, rng)
        # κ² stays what it is, so q is drawn as the sampler draws it
        usual = code.spreads_given(replace(state, scale=s), rng)[1]
        state = replace(state, precision=precision, beta=beta, scale=s, usual=usual)
        mean, variance = code.items_given(data, state, weight)
        x = mean + rng.standard_normal(M) * np.sqrt(variance)
        state = replace(state, x=x)
        bounded = np.tanh((s[0] - 1) ** 2)
        found.append([x[0], x[0] ** 2, beta[0] ** 2, s[0], bounded, precision[0], beta[0] * x[0]])
    prior = 1 + np.sqrt(0.1) * rng.standard_t(4, 400_000)
    wide = float(np.tanh((prior - 1) ** 2).mean())
    expected = np.array([0.0, 0.5, 0.3, 1.0, wide, 1 / 0.4, 0.0])
    draws = np.array(found)
    batches = draws.reshape(40, -1, draws.shape[1]).mean(axis=1)
    error = batches.std(axis=0, ddof=1) / np.sqrt(40)
    assert (np.abs(draws.mean(axis=0) - expected) < 4.5 * error + 1e-3).all()


def test_shift_and_stretch_keep_every_expectation() -> None:
    rng = np.random.default_rng(0)
    x, beta, s = rng.normal(size=5), rng.normal(size=4), rng.normal(1, 0.2, 4)
    numbers = np.array([0.1, 1.0, 0.3, 0.1, 1.0, 1.0, 5.0])
    state = code.State(x, beta, s, np.ones(4), np.ones(4), numbers, *([np.zeros(0)] * 3))
    after = code.moved(state, True, True, rng)
    before = beta[:, None] + s[:, None] * x
    np.testing.assert_allclose(after.beta[:, None] + after.scale[:, None] * after.x, before, atol=1e-12)
    assert not np.allclose(after.x, x)


def test_without_annotators_ways_it_is_a_shrunken_mean() -> None:
    labels, _ = crowd(3, outliers=0)
    model = ds.NumericRatings(bias=False, scale=False, robust=False).fit(labels)
    means = np.bincount(labels.item, labels.values) / np.bincount(labels.item)
    assert np.corrcoef(model.estimates_, means)[0, 1] > 0.98
    assert (model.annotators_told_[0] == 0).all()
    assert (model.annotators_told_[1] == 1).all()


def test_hidden_ratings_are_foreseen_better_than_by_means() -> None:
    labels, _ = crowd(5)
    kept, hidden = labels.split_labels(0.2, 0)
    model = ds.NumericRatings().fit(kept)
    means = np.bincount(kept.item, kept.values, kept.n_items) / np.bincount(kept.item, minlength=kept.n_items)
    plain = np.median(np.abs(hidden.values - means[hidden.item]))
    own = np.median(np.abs(hidden.values - model.expected(hidden.item, hidden.annotator)[0]))
    assert own < 0.7 * plain
    simple = ds.NumericRatings(bias=False, scale=False, robust=False).fit(kept)
    assert model.score(hidden) > simple.score(hidden)


def test_new_items_saving_and_the_same_bits(tmp_path: Path) -> None:
    labels, planted = crowd(7, n_items=200)
    first, rest = labels.take_items(np.arange(150)), labels.take_items(np.arange(150, 200))
    model = ds.NumericRatings().fit(first)
    again = ds.NumericRatings().fit(first)
    np.testing.assert_array_equal(model.estimates_, again.estimates_)
    model.save(tmp_path / "m.safetensors")
    loaded = ds.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.to_frame(), model.to_frame())
    new = loaded.apply(rest)
    means = np.bincount(rest.item, rest.values) / np.bincount(rest.item)
    own, plain = new.estimates_ - planted["value"][150:], means - planted["value"][150:]
    assert np.mean(own**2) < 0.25 * np.mean(plain**2)
    assert list(new.items_) == list(rest.items)
    with pytest.raises(ds.DissensusError, match="no classes"):
        model.predict_proba([0])


def test_a_constant_and_a_lone_rating_do_no_harm() -> None:
    same = Annotations.from_arrays([0, 0, 1], [0, 1, 0], [3.0, 3.0, 3.0], label_type="numeric")
    frame = ds.NumericRatings().fit(same).to_frame()
    assert (frame["low"] < 3).all()
    assert (frame["high"] > 3).all()
    assert np.isfinite(frame[["low", "high"]].to_numpy()).all()


def test_a_million_ratings_are_quick_enough() -> None:
    rng = np.random.default_rng(0)
    n = usually(100_000, verify=1_000_000)
    item, who = np.repeat(np.arange(n // 5), 5), rng.integers(0, n // 500, n)
    y = rng.normal(size=n // 5)[item] + rng.normal(size=n)
    labels = Annotations.from_arrays(item, who, y, label_type="numeric")
    before = time.process_time()
    ds.NumericRatings(n_sweeps=30).fit(labels)
    assert time.process_time() - before < 10 * n / 1_000_000 + 1


def test_fit_picks_it_and_the_page_is_true(tmp_path: Path) -> None:
    labels, _ = crowd(2, n_items=80)
    ids = [f"<b>{m}" for m in labels.item]
    frame = pd.DataFrame({"item": ids, "rater": labels.annotator, "score": labels.values})
    frame.to_csv(tmp_path / "r.csv", index=False)
    said = run("fit", tmp_path / "r.csv", "-o", tmp_path / "out")
    assert "different numbers" in said.stdout
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["model"] == "ratings"
    written = pd.read_csv(tmp_path / "out" / "labels.csv")
    assert list(written.columns) == ["item", "estimate", "low", "high", "n_labels"]
    model = ds.load(tmp_path / "out" / "model.safetensors")
    np.testing.assert_allclose(written["estimate"], model.estimates_, rtol=1e-5)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<b>" not in page
    assert "&lt;b&gt;0" in page
    assert "rates the other way round" in page
    assert f"{model.estimates_.max():.4g}" in page
    assert {"bias", "scale", "noise"} <= set(pd.read_csv(tmp_path / "out" / "annotators.csv").columns)
