"""Models of ordered scales: formulas against differences and enumeration, planted ways, the pool's weight."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import multinomial

import dissensus as ds
from dissensus.data.annotations import Annotations
from dissensus.metrics import ranked_probability_of_labels, ranked_probability_score
from dissensus.models import graded as code
from dissensus.models.base import middle_of_largest
from dissensus.models.ordinal import best_weight


def scale(
    seed: int, n_items: int = 300, n_annotators: int = 20, n_labels: int = 5
) -> tuple[Annotations, dict[str, np.ndarray]]:
    """Labels of a graded response with planted thresholds and slopes; annotator 0 guesses."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n_items)
    shift, slope = rng.normal(0, 0.8, n_annotators), np.exp(rng.normal(0.7, 0.3, n_annotators))
    item = np.repeat(np.arange(n_items), n_labels)
    who = np.concatenate([rng.choice(n_annotators, n_labels, replace=False) for _ in range(n_items)])
    below = expit(np.array([-2, -0.7, 0.7, 2]) + shift[who][:, None] - (slope[who] * x[item])[:, None])
    label = (rng.random((len(item), 1)) > below).sum(axis=1)
    label[who == 0] = rng.integers(0, 5, (who == 0).sum())
    planted = {"x": x, "shift": shift, "slope": slope}
    return Annotations.from_arrays(item, who, label, label_type="ordinal"), planted


def ways(P: int = 4, N: int = 3) -> code.Ways:
    rng = np.random.default_rng(0)
    own = np.column_stack([np.sort(rng.normal(0, 2, (N, P - 1)), axis=1), rng.uniform(0.5, 2, N)])
    psi = np.exp(-(code.GRID_X**2))
    return code.Ways(own, np.array([0.1, 0.02, 0.3])[:N], own.mean(axis=0), np.ones(3), psi / psi.sum())


def test_derivatives_are_those_of_the_log_likelihood() -> None:
    """Σ n_qy log P(y | q) by differences; its expected curvature is minus the Fisher information."""
    some, rng = ways(), np.random.default_rng(1)
    own = some.own

    def likelihood(values: np.ndarray, counts: np.ndarray) -> float:
        return float((counts * np.log(code.graded(values[None])[0][0])).sum())

    for n in range(len(own)):
        steps, below = code.graded(own[n : n + 1])
        counts = rng.random((1, *steps.shape[1:])) * steps
        gradient, _ = code._derivatives(counts, steps, below)
        bumps = 1e-5 * np.eye(own.shape[1])
        numeric = [
            (likelihood(own[n] + b, counts[0]) - likelihood(own[n] - b, counts[0])) / 2e-5 for b in bumps
        ]
        np.testing.assert_allclose(gradient[0], numeric, rtol=1e-4, atol=1e-5)
        # counts in the proportions that the model expects: minus the second differences
        expected = rng.random((1, steps.shape[1], 1)) * steps
        _, information = code._derivatives(expected, steps, below)
        big = 1e-3 * np.eye(own.shape[1])
        for i, a in enumerate(big):
            for j, b in enumerate(big):
                second = (
                    likelihood(own[n] + a + b, expected[0])
                    - likelihood(own[n] + a - b, expected[0])
                    - likelihood(own[n] - a + b, expected[0])
                    + likelihood(own[n] - a - b, expected[0])
                ) / 4e-6
                assert information[0, i, j] == pytest.approx(-second, rel=2e-3, abs=2e-3)


def test_places_and_counts_by_enumeration() -> None:
    labels = Annotations.from_arrays([0, 0, 1, 2], [0, 1, 2, 0], [3, 1, 0, 2], label_type="ordinal")
    some = ways()
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    table = code.table_of(some, shares)
    np.testing.assert_allclose(table.sum(axis=2), 1, rtol=1e-9)
    places, evidence = code.places_of(labels, np.log(table), np.log(some.psi))
    total = 0.0
    for m in range(3):
        joint = some.psi.copy()
        for e in np.flatnonzero(labels.item == m):
            joint = joint * table[labels.annotator[e], :, labels.label[e]]
        np.testing.assert_allclose(places[m], joint / joint.sum(), rtol=1e-9)
        total += np.log(joint.sum())
    assert evidence == pytest.approx(total, rel=1e-12)
    counts = code.expected_counts(labels, places)
    assert counts[0, :, 3] == pytest.approx(places[0])
    assert counts[0, :, 2] == pytest.approx(places[2])
    assert counts.sum() == pytest.approx(4)


def test_planted_ways_are_found() -> None:
    labels, planted = scale(0)
    model = ds.GradedResponse().fit(labels)
    told = model.annotator_frame()
    honest = slice(1, None)
    assert np.corrcoef(told["leniency"][honest], -planted["shift"][honest])[0, 1] > 0.9
    assert np.corrcoef(told["slope"][honest], planted["slope"][honest])[0, 1] > 0.6
    assert told["guesses"][0] > 2 * told["guesses"][honest].max() or told["slope"][0] < 0.4
    assert np.corrcoef(model.places_ @ code.GRID_X, planted["x"])[0, 1] > 0.9
    assert np.diff(model.trace_).min() > -1e-3 * labels.n_labels


def test_the_order_helps_and_the_pool_is_no_worse(tmp_path: Path) -> None:
    labels, _ = scale(1)
    kept, hidden = labels.split_labels(0.2, 0)
    nominal = ds.HPGM(n_chains=2, n_sweeps=60).fit(kept)
    pooled = ds.OrdinalHPGM(n_chains=2, n_sweeps=60).fit(kept)
    assert pooled.score(hidden) > nominal.score(hidden) + 0.01
    assert pooled.score_items(hidden) > nominal.score_items(hidden)
    assert (pooled.pool_ > 0.2).all()
    known = pooled.intervals()
    assert (known.low <= pooled.label_distributions_).all()
    assert (known.high >= pooled.label_distributions_).all()
    np.testing.assert_allclose(pooled.label_distributions_.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(pooled.share_draws_.mean(axis=0), pooled.label_distributions_, atol=0.15)
    pooled.save(tmp_path / "m.safetensors")
    loaded = ds.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.log_chances(hidden), pooled.log_chances(hidden))
    moved = loaded.transform(kept.take_items(np.arange(50)))
    np.testing.assert_allclose(moved.label_distributions_, pooled.label_distributions_[:50], atol=1e-6)


def test_the_weight_is_the_maximum_over_a_grid() -> None:
    rng = np.random.default_rng(0)
    own, graded = rng.random(200), rng.random(200)
    grid = np.linspace(0.001, 0.999, 999)
    scores = [np.log((1 - w) * own + w * graded).sum() + np.log(w) + np.log(1 - w) for w in grid]
    assert best_weight(own, graded) == pytest.approx(grid[int(np.argmax(scores))], abs=2e-3)


def test_ties_go_to_the_middle_and_files_have_the_scale() -> None:
    chances = np.array([[0.4, 0.1, 0.1, 0.4], [0.45, 0.05, 0.45, 0.05], [0.1, 0.2, 0.3, 0.4]])
    # up to each class .4 .5 .6 1: the median is class 1, to which 0 is nearer than 3
    assert middle_of_largest(chances).tolist() == [0, 0, 3]
    assert middle_of_largest(np.array([[0.1, 0.45, 0.0, 0.0, 0.45]])).tolist() == [1]
    frame = pd.DataFrame({"item": ["a"] * 4, "annotator": list("wxyz"), "label": [1, 2, 2, 5]})
    model = ds.EmpiricalDistribution(smoothing=0.0).fit(ds.read_annotations(frame, label_type="ordinal"))
    row = model.to_frame().iloc[0]
    assert row["mean"] == pytest.approx(2.5)
    assert (row["lower_quartile"], row["median"], row["upper_quartile"]) == (1, 2, 2)
    nominal = ds.EmpiricalDistribution().fit(ds.read_annotations(frame, label_type="nominal"))
    assert "median" not in nominal.to_frame().columns


def test_ranked_probability_score_by_hand_and_as_an_expectation() -> None:
    gold, predicted = np.array([[0.2, 0.3, 0.5]]), np.array([[0.5, 0.5, 0.0]])
    assert ranked_probability_score(gold, predicted) == pytest.approx(0.3**2 + 0.5**2)
    assert ranked_probability_of_labels(predicted, [1])[0] == pytest.approx(0.5**2 + 0.0)
    # the true distribution has the least expected score
    truth = np.array([0.2, 0.5, 0.3])
    draws = multinomial(1, truth).rvs(4000, random_state=0).argmax(axis=1)
    own = ranked_probability_of_labels(np.tile(truth, (4000, 1)), draws).mean()
    for other in ([0.3, 0.4, 0.3], [0.1, 0.5, 0.4]):
        assert own < ranked_probability_of_labels(np.tile(other, (4000, 1)), draws).mean()


def test_models_of_a_scale_refuse_other_labels() -> None:
    labels, _ = scale(2, n_items=20)
    with pytest.raises(ds.DissensusError, match="for labels of type ordinal"):
        ds.OrdinalHPGM().fit(labels.with_label_type("nominal"))
