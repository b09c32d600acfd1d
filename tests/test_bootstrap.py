"""Bootstrap intervals: against enumeration of resamples, coverage, and the two ways agreeing."""

from __future__ import annotations

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


def test_ends_are_those_of_all_resamples_enumerated():
    rows = np.array([0.0, 1.0, 5.0])
    means = np.sort([np.mean(draw) for draw in itertools.product(rows, repeat=3)])  # 27 equally likely
    found = bootstrap.bootstrap_mean(rows, level=0.8, n_boot=20_000)
    assert found.value == pytest.approx(2.0, rel=1e-12)
    assert found.low == pytest.approx(np.quantile(means, 0.1, method="inverted_cdf"), rel=1e-12)
    assert found.high == pytest.approx(np.quantile(means, 0.9, method="inverted_cdf"), rel=1e-12)


def test_width_is_that_of_the_normal_approximation():
    rows = RNG.normal(size=2000)
    found = bootstrap.bootstrap_mean(rows, n_boot=4000)
    expected = 2 * 1.96 * rows.std() / np.sqrt(2000)
    assert found.high - found.low == pytest.approx(expected, rel=0.05)


def test_metric_without_rows_is_resampled_by_calling_it():
    def mean_kl(gold, predicted, smoothing):
        return metrics.kl(gold, predicted, smoothing=smoothing)

    called = bootstrap.bootstrap_interval(mean_kl, GOLD, NEAR, smoothing=1e-4, n_boot=300)
    by_rows = bootstrap.bootstrap_interval(metrics.kl, GOLD, NEAR, smoothing=1e-4, n_boot=300)
    np.testing.assert_allclose(called, by_rows, rtol=1e-9)


@pytest.mark.parametrize("name", metrics.METRICS)
def test_every_metric_has_an_interval(name):
    metric = metrics.METRICS[name]
    found = bootstrap.bootstrap_interval(metric, GOLD, FAR, n_boot=100)
    assert found.value == pytest.approx(metric(GOLD, FAR), rel=1e-12)
    assert found.low < found.value < found.high


def test_paired_difference_is_surer_than_two_intervals():
    differences = metrics.kl_rows(GOLD, NEAR) - metrics.kl_rows(GOLD, 0.9 * NEAR + 0.1 * GOLD)
    paired = bootstrap.bootstrap_mean(differences, n_boot=300)
    alone = bootstrap.bootstrap_interval(metrics.kl, GOLD, NEAR, n_boot=300)
    assert paired.high - paired.low < alone.high - alone.low


def test_rows_of_one_item_are_drawn_together():
    items = np.repeat([30, 10, 20], 50)  # any codes, gaps or not
    rows = np.repeat([0.0, 1.0, 2.0], 50)
    together = bootstrap.bootstrap_mean(rows, items=items)
    assert (together.low, together.high) == (0, 2)  # one item alone, with all its rows, has chance 1/27
    apart = bootstrap.bootstrap_mean(rows)
    assert apart.high - apart.low < 0.4
    called = bootstrap.bootstrap_interval(lambda values: float(values.mean()), rows, items=items)
    np.testing.assert_allclose(called, together, rtol=1e-9)


def test_items_of_unequal_size_weigh_by_their_rows():
    found = bootstrap.bootstrap_mean([1.0, 1.0, 1.0, 5.0], items=[0, 0, 0, 1], level=0.4, n_boot=4000)
    # Resamples: 1, 5, and (twice as likely as each) both items: (3 + 5)/4 = 2.
    assert found == (2, 2, 2)


def test_one_seed_replays_and_blocks_do_not_matter(monkeypatch):
    first = bootstrap.bootstrap_interval(metrics.kl, GOLD, FAR, n_boot=101, seed=4)
    monkeypatch.setattr(bootstrap, "_BLOCK", 1000)
    assert bootstrap.bootstrap_interval(metrics.kl, GOLD, FAR, n_boot=101, seed=4) == first
    assert bootstrap.bootstrap_interval(metrics.kl, GOLD, FAR, n_boot=101, seed=5) != first


def test_scores_that_are_not_numbers():
    constant = np.full((80, 3), 1 / 3)
    undefined = bootstrap.bootstrap_interval(metrics.entropy_correlation, GOLD, constant, n_boot=20)
    assert all(isnan(end) for end in undefined)
    assert bootstrap.bootstrap_mean([-np.inf, 0.0], n_boot=100) == (-np.inf, -np.inf, 0)


def test_bad_arguments_are_named():
    with pytest.raises(ParameterError, match="'level' parameter"):
        bootstrap.bootstrap_mean([1.0], level=1)
    with pytest.raises(ParameterError, match="'n_boot' parameter"):
        bootstrap.bootstrap_mean([1.0], n_boot=0)
    with pytest.raises(DataError, match="items: one code for each of the 2 rows"):
        bootstrap.bootstrap_mean([1.0, 2.0], items=[0])
    with pytest.raises(DataError, match="one row each per item"):
        bootstrap.bootstrap_interval(metrics.macro_f1, GOLD, FAR[:5])
