"""Numeric ratings: conditionals against grid sums, Geweke's joint test, planted parameters recovered."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dissensus as ds
from dissensus.labels.annotations import Annotations
from dissensus.models import ratings as code
from tests.helpers.cli import run
from tests.helpers.sizes import usually

EDGES = np.arange(0, 13, 3)
EMPTY = [np.zeros(0)] * 3  # sums over draws


def simulate(
    seed: int, n_items: int = 150, n_annotators: int = 20, n_labels: int = 6, outliers: float = 0.05
) -> tuple[Annotations, dict[str, np.ndarray]]:
    """Return ratings with planted parameters and outliers; the scale of annotator 0 is reversed."""
    rng = np.random.default_rng(seed)
    value = rng.normal(50, 15, n_items)
    bias, scale = rng.normal(0, 6, n_annotators), rng.normal(1, 0.25, n_annotators)
    noise = 5 * np.exp(rng.normal(0, 0.4, n_annotators))
    scale[0] = -1.0
    item = np.repeat(np.arange(n_items), n_labels)
    who = np.concatenate([rng.choice(n_annotators, n_labels, replace=False) for _ in range(n_items)])
    y = 50 + bias[who] + scale[who] * (value[item] - 50) + noise[who] * rng.normal(size=len(item))
    outlying = rng.random(len(item)) < outliers
    y[outlying] = rng.uniform(-100, 200, outlying.sum())
    planted = {"value": value, "bias": bias, "scale": scale, "noise": noise}
    return Annotations.from_arrays(item, who, y, label_type="numeric"), planted


@pytest.mark.slow
def test_planted_parameters_and_interval_coverage() -> None:
    inside, errors, plain = [], [], []
    for seed in range(usually(8, verify=40)):
        labels, planted = simulate(seed)
        model = ds.NumericRatings(seed=seed).fit(labels)
        frame = model.to_frame()
        inside.append(frame["low"].lt(planted["value"]) & frame["high"].gt(planted["value"]))
        errors.append(frame["estimate"] - planted["value"])
        means = np.bincount(labels.item, labels.values) / np.bincount(labels.item)
        plain.append(means - planted["value"])
        annotators = model.annotator_frame()
        assert annotators["scale_high"][0] < 0
        for name, least in {"bias": 0.9, "scale": 0.9, "noise": 0.65}.items():
            assert np.corrcoef(annotators[name], planted[name])[0, 1] > least, name
    assert 0.93 <= np.mean(inside) <= 0.97
    assert np.sqrt(np.mean(np.square(errors))) < 0.5 * np.sqrt(np.mean(np.square(plain)))


def test_item_conditionals_match_sums_over_a_grid() -> None:
    item, who, y = np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([1.0, 2.0, -1.0])
    data = code.Ratings(item, who, y, 2, 2, np.array([0, 2, 3]))
    beta, scale, precision = np.array([0.1, -0.2]), np.array([1.2, 0.7]), np.array([2.0, 3.0])
    weight = np.array([1.0, 0.5, 1.5]) * precision[who]
    mean, variance = code.item_conditionals(data, 0.3, 0.8, beta, scale, weight)
    grid = np.linspace(-8, 8, 40_001)
    for m in range(2):
        logs = -((grid - 0.3) ** 2) / (2 * 0.8)
        for e in np.flatnonzero(item == m):
            logs = logs - weight[e] * (y[e] - beta[who[e]] - scale[who[e]] * grid) ** 2 / 2
        density = np.exp(logs - logs.max())
        density /= density.sum()
        assert mean[m] == pytest.approx(density @ grid, abs=1e-6)
        assert variance[m] == pytest.approx(density @ (grid - density @ grid) ** 2, rel=1e-5)


@pytest.mark.slow
def test_geweke_joint_distribution() -> None:
    """Redraw the data after each sweep: the unknowns keep the moments of their prior.

    The flat priors of μ and v are fixed at a value here, so that there is a joint distribution.
    """
    rng = np.random.default_rng(1)
    item, who, M, N = np.repeat(np.arange(4), 3), np.tile(np.arange(3), 4), 4, 3
    numbers = np.array([0.0, 0.5, 0.3, 0.1, 0.4, 3.0, 5.0])
    x, beta = rng.normal(0, np.sqrt(0.5), M), rng.normal(0, np.sqrt(0.3), N)
    s, precision = rng.normal(1, np.sqrt(0.1), N), rng.gamma(3.0, 1 / (3.0 * 0.4), N)
    state = code.RatingState(x, beta, s, precision, np.ones(N), numbers, *EMPTY)
    draws = []
    for _ in range(usually(4000, verify=20_000)):
        noise = rng.standard_t(5.0, len(item)) / np.sqrt(state.precision[who])
        y = state.beta[who] + state.scale[who] * state.x[item] + noise
        data = code.Ratings(item, who, y, M, N, EDGES)
        weights, _ = code.draw_weights(data, state, noise, rng)
        squares = data.by_annotator(weights * noise**2)
        precision, _, _ = code.draw_precisions(squares, np.full(N, 4.0), 0.4, 3.0, rng)
        weight = weights * precision[who]
        beta, s = code.draw_annotators(data, state, weight, True, True, rng)
        q = code.draw_spreads(replace(state, scale=s), rng)[1]  # κ² itself is fixed
        mean, variance = code.item_conditionals(data, 0.0, 0.5, beta, s, weight)
        x = mean + rng.standard_normal(M) * np.sqrt(variance)
        state = replace(state, precision=precision, beta=beta, scale=s, q=q, x=x)
        bounded = np.tanh((s[0] - 1) ** 2)
        draws.append([x[0], x[0] ** 2, beta[0] ** 2, s[0], bounded, precision[0], beta[0] * x[0]])
    prior = 1 + np.sqrt(0.1) * rng.standard_t(4, 400_000)
    wide = float(np.tanh((prior - 1) ** 2).mean())
    expected = np.array([0.0, 0.5, 0.3, 1.0, wide, 1 / 0.4, 0.0])
    batches = np.array(draws).reshape(40, -1, 7).mean(axis=1)
    error = batches.std(axis=0, ddof=1) / np.sqrt(40)
    assert (np.abs(np.mean(draws, axis=0) - expected) < 4.5 * error + 1e-3).all()


def test_shift_and_stretch_keep_every_expectation() -> None:
    rng = np.random.default_rng(0)
    x, beta, s = rng.normal(size=5), rng.normal(size=4), rng.normal(1, 0.2, 4)
    numbers = np.array([0.1, 1.0, 0.3, 0.1, 1.0, 1.0, 5.0])
    state = code.RatingState(x, beta, s, np.ones(4), np.ones(4), numbers, *EMPTY)
    after = code.shift_and_stretch(state, True, True, rng)
    before = beta[:, None] + s[:, None] * x
    np.testing.assert_allclose(after.beta[:, None] + after.scale[:, None] * after.x, before, atol=1e-12)
    assert not np.allclose(after.x, x)


def test_without_annotator_effects_it_is_a_shrunken_mean() -> None:
    labels, _ = simulate(3, outliers=0)
    model = ds.NumericRatings(bias=False, scale=False, robust=False).fit(labels)
    means = np.bincount(labels.item, labels.values) / np.bincount(labels.item)
    assert np.corrcoef(model.estimates_, means)[0, 1] > 0.98
    assert (model.annotator_estimates_[0] == 0).all()
    assert (model.annotator_estimates_[1] == 1).all()


def test_hidden_ratings_are_predicted_better_than_by_means() -> None:
    labels, _ = simulate(5)
    visible, hidden = labels.split_labels(0.2, 0)
    model = ds.NumericRatings().fit(visible)
    n_ratings = np.bincount(visible.item, minlength=visible.n_items)
    means = np.bincount(visible.item, visible.values, visible.n_items) / n_ratings
    plain = np.median(np.abs(hidden.values - means[hidden.item]))
    own = np.median(np.abs(hidden.values - model.expected(hidden.item, hidden.annotator)[0]))
    assert own < 0.7 * plain
    simple = ds.NumericRatings(bias=False, scale=False, robust=False).fit(visible)
    assert model.score(hidden) > simple.score(hidden)


def test_apply_save_and_reproducibility(tmp_path: Path) -> None:
    labels, planted = simulate(7, n_items=200)
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
    with pytest.raises(ds.DissensusError, match="not classes"):
        model.predict_proba([0])


def test_constant_ratings_have_finite_intervals() -> None:
    same = Annotations.from_arrays([0, 0, 1], [0, 1, 0], [3.0, 3.0, 3.0], label_type="numeric")
    frame = ds.NumericRatings().fit(same).to_frame()
    assert (frame["low"] < 3).all()
    assert (frame["high"] > 3).all()
    assert np.isfinite(frame[["low", "high"]].to_numpy()).all()


def test_fit_command_and_report(tmp_path: Path) -> None:
    labels, _ = simulate(2, n_items=80)
    ids = [f"<b>{m}" for m in labels.item]
    frame = pd.DataFrame({"item": ids, "rater": labels.annotator, "score": labels.values})
    frame.to_csv(tmp_path / "r.csv", index=False)
    result = run("fit", tmp_path / "r.csv", "-o", tmp_path / "out")
    assert "different numbers" in result.stdout
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["model"] == "ratings"
    written = pd.read_csv(tmp_path / "out" / "labels.csv")
    assert list(written.columns) == ["item", "estimate", "low", "high", "n_labels"]
    model = ds.load(tmp_path / "out" / "model.safetensors")
    np.testing.assert_allclose(written["estimate"], model.estimates_, rtol=1e-5)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "<b>" not in page
    assert "&lt;b&gt;0" in page
    assert "reversed scale" in page
    assert f"{model.estimates_.max():.4g}" in page
    assert {"bias", "scale", "noise"} <= set(pd.read_csv(tmp_path / "out" / "annotators.csv").columns)
