"""Ordered scales: pooling weights, the pooled model, and results on a scale."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multinomial

import dissensus as ds
from dissensus.metrics import ranked_probability_score
from dissensus.models.ordinal import best_weights
from dissensus.models.results import most_probable
from tests.helpers.scales import graded_scale


@pytest.mark.slow
def test_pool_predicts_better_than_hpgm(tmp_path: Path) -> None:
    labels, _ = graded_scale(1)
    visible, hidden = labels.split_labels(0.2, 0)
    nominal = ds.HPGM(n_chains=2, n_sweeps=60).fit(visible)
    pooled = ds.OrdinalHPGM(n_chains=2, n_sweeps=60).fit(visible)
    assert pooled.score(hidden) > nominal.score(hidden) + 0.01
    assert pooled.score_items(hidden) > nominal.score_items(hidden)
    np.testing.assert_allclose(pooled.pool_.sum(axis=1), 1, rtol=1e-9)
    assert (pooled.pool_[:, 1:].sum(axis=1) > 0.2).all()
    intervals = pooled.intervals()
    assert (intervals.low <= pooled.label_distributions_).all()
    assert (intervals.high >= pooled.label_distributions_).all()
    np.testing.assert_allclose(pooled.label_distributions_.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(pooled.share_draws_.mean(axis=0), pooled.label_distributions_, atol=0.15)
    pooled.save(tmp_path / "m.safetensors")
    loaded = ds.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.log_probabilities(hidden), pooled.log_probabilities(hidden))
    applied = loaded.apply(visible.take_items(np.arange(50)))
    np.testing.assert_allclose(applied.label_distributions_, pooled.label_distributions_[:50], atol=1e-6)


def test_best_weights_maximise_over_a_grid() -> None:
    probabilities = np.random.default_rng(0).random((3, 200))
    steps = np.linspace(0.01, 0.98, 98)
    grid = [np.array([a, b, 1 - a - b]) for a in steps for b in steps if a + b < 0.995]
    for prior in (np.zeros(3), np.array([40.0, 0, 0])):
        scores = [np.log(w @ probabilities).sum() + prior @ np.log(w) for w in grid]
        best = grid[int(np.argmax(scores))]
        np.testing.assert_allclose(best_weights(probabilities, prior), best, rtol=0, atol=0.015)


def test_ties_go_to_the_middle_and_frames_have_quantiles() -> None:
    shares = np.array([[0.4, 0.1, 0.1, 0.4], [0.45, 0.05, 0.45, 0.05], [0.1, 0.2, 0.3, 0.4]])
    # cumulative .4 .5 .6 1: the median is class 1, and 0 is nearer to it than 3
    assert most_probable(shares, "ordinal").tolist() == [0, 0, 3]
    assert most_probable(np.array([[0.1, 0.45, 0.0, 0.0, 0.45]]), "ordinal").tolist() == [1]
    frame = pd.DataFrame({"item": ["a"] * 4, "annotator": list("wxyz"), "label": [1, 2, 2, 5]})
    model = ds.EmpiricalDistribution(smoothing=0.0).fit(ds.read_annotations(frame, label_type="ordinal"))
    row = model.to_frame().iloc[0]
    assert row["mean"] == pytest.approx(2.5)
    assert (row["lower_quartile"], row["median"], row["upper_quartile"]) == (1, 2, 2)
    nominal = ds.EmpiricalDistribution().fit(ds.read_annotations(frame, label_type="nominal"))
    assert "median" not in nominal.to_frame().columns


def test_ranked_probability_score_by_hand() -> None:
    gold, predicted = np.array([[0.2, 0.3, 0.5]]), np.array([[0.5, 0.5, 0.0]])
    assert ranked_probability_score(gold, predicted) == pytest.approx(0.3**2 + 0.5**2)
    assert ranked_probability_score([[0, 1, 0]], predicted) == pytest.approx(0.5**2 + 0.0)
    # the true distribution has the least expected score
    truth = np.array([0.2, 0.5, 0.3])
    draws = multinomial(1, truth).rvs(4000, random_state=0)
    best = ranked_probability_score(draws, np.tile(truth, (4000, 1)))
    for other in ([0.3, 0.4, 0.3], [0.1, 0.5, 0.4]):
        assert best < ranked_probability_score(draws, np.tile(other, (4000, 1)))


def test_ordinal_model_refuses_nominal_labels() -> None:
    labels, _ = graded_scale(2, n_items=20)
    with pytest.raises(ds.DissensusError, match="for labels of type ordinal"):
        ds.OrdinalHPGM().fit(labels.with_label_type("nominal"))
