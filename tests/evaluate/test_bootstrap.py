"""Bootstrap intervals: against enumeration of resamples, and rows against metrics."""

import itertools
from math import isnan

import numpy as np
import pytest

from dissensus import metrics
from dissensus.errors import DataError, ParameterError
from dissensus.evaluate import bootstrap

RNG = np.random.default_rng(11)
GOLD = RNG.dirichlet(np.ones(3), size=80)
NEAR = 0.7 * GOLD + 0.3 * RNG.dirichlet(np.ones(3), size=80)
FAR = RNG.dirichlet(np.ones(3), size=80)


def test_interval_equals_enumeration_of_resamples(monkeypatch):
    monkeypatch.setattr(bootstrap, "CONFIDENCE_LEVEL", 0.8)
    rows = np.array([0.0, 1.0, 5.0])
    means = np.sort([np.mean(draw) for draw in itertools.product(rows, repeat=3)])  # 27 equally likely
    interval = bootstrap.bootstrap_mean(rows, n_boot=20_000)
    ends = [np.quantile(means, level, method="inverted_cdf") for level in (0.1, 0.9)]
    np.testing.assert_allclose(interval, [2.0, *ends], rtol=1e-12)


def test_metric_without_rows_is_resampled_by_calling_it():
    def mean_kl(gold, predicted, smoothing):
        return metrics.kl(gold, predicted, smoothing=smoothing)

    called = bootstrap.bootstrap_interval(mean_kl, GOLD, NEAR, smoothing=1e-4, n_boot=300)
    by_rows = bootstrap.bootstrap_interval(metrics.kl, GOLD, NEAR, smoothing=1e-4, n_boot=300)
    np.testing.assert_allclose(called, by_rows, rtol=1e-9)


@pytest.mark.parametrize("name", metrics.METRICS)
def test_every_metric_has_an_interval(name):
    metric = metrics.METRICS[name]
    interval = bootstrap.bootstrap_interval(metric, GOLD, FAR, n_boot=100)
    assert interval.value == pytest.approx(metric(GOLD, FAR), rel=1e-12)
    assert interval.low < interval.value < interval.high


def test_rows_of_one_item_are_drawn_together():
    items = np.repeat([30, 10, 20], 50)  # any codes, gaps or not
    rows = np.repeat([0.0, 1.0, 2.0], 50)
    together = bootstrap.bootstrap_mean(rows, items=items)
    assert (together.low, together.high) == (0, 2)  # one item alone, with all its rows, has chance 1/27
    apart = bootstrap.bootstrap_mean(rows)
    assert apart.high - apart.low < 0.4


def test_items_are_weighted_by_their_rows(monkeypatch):
    monkeypatch.setattr(bootstrap, "CONFIDENCE_LEVEL", 0.4)
    interval = bootstrap.bootstrap_mean([1.0, 1.0, 1.0, 5.0], items=[0, 0, 0, 1], n_boot=4000)
    # Resamples: 1, 5, and (twice as likely as each) both items: (3 + 5)/4 = 2.
    assert interval == (2, 2, 2)


def test_seed_replays_for_any_chunk_size(monkeypatch):
    first = bootstrap.bootstrap_interval(metrics.kl, GOLD, FAR, n_boot=101, seed=4)
    monkeypatch.setattr(bootstrap, "RESAMPLED_VALUES_PER_CHUNK", 1000)
    assert bootstrap.bootstrap_interval(metrics.kl, GOLD, FAR, n_boot=101, seed=4) == first
    assert bootstrap.bootstrap_interval(metrics.kl, GOLD, FAR, n_boot=101, seed=5) != first


def test_undefined_scores():
    constant = np.full((80, 3), 1 / 3)
    undefined = bootstrap.bootstrap_interval(metrics.entropy_correlation, GOLD, constant, n_boot=20)
    assert all(isnan(end) for end in undefined)
    assert bootstrap.bootstrap_mean([-np.inf, 0.0], n_boot=100) == (-np.inf, -np.inf, 0)


def test_invalid_arguments():
    with pytest.raises(ParameterError, match="'n_boot' parameter"):
        bootstrap.bootstrap_mean([1.0], n_boot=0)
    with pytest.raises(DataError, match="items must have one code for each of the 2 rows"):
        bootstrap.bootstrap_mean([1.0, 2.0], items=[0])
    with pytest.raises(DataError, match="equal numbers of rows"):
        bootstrap.bootstrap_interval(metrics.macro_f1, GOLD, FAR[:5])
