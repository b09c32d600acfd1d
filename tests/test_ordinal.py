"""Models of ordered scales: formulas against differences and enumeration, planted ways, the pool's weight."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit
from scipy.stats import multinomial

import dissensus as ds
from dissensus.labels.annotations import Annotations
from dissensus.metrics import ranked_probability_score
from dissensus.models import graded as code
from dissensus.models.ordinal import best_weights
from dissensus.models.results import most_probable


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


def ways(grid: code.Grid, P: int = 4, N: int = 3) -> code.AnnotatorParameters:
    rng = np.random.default_rng(0)
    D = grid.x.shape[1]
    own = np.column_stack([np.sort(rng.normal(0, 2, (N, P - 1)), axis=1), rng.uniform(0.5, 2, (N, D))])
    return code.AnnotatorParameters(
        own, np.array([0.1, 0.02, 0.3])[:N], own.mean(axis=0), np.ones(2 + D), grid.normal[::-1].copy()
    )


@pytest.mark.parametrize("sides", [False, True])
def test_chances_are_those_of_the_story(sides: bool) -> None:
    """P(y ≤ k) = σ(d (c_k − a x)), or σ(√2 (c_k − a x − b u)), at a place worked out on its own."""
    grid = code.Grid.of(sides)
    some = ways(grid)
    steps, _ = code.graded(some.own, grid)
    for q in (0, 11, len(grid.d) - 1):
        place, second = float(grid.x[q, 0]), float(grid.x[q, 1] if sides else grid.d[q])
        for n, (*thresholds, a, b) in enumerate(some.own if sides else np.insert(some.own, 4, 0.0, axis=1)):
            at = a * place + b * second if sides else a * place
            up_to = [float(expit((2**0.5 if sides else second) * (c - at))) for c in thresholds]
            np.testing.assert_allclose(steps[n, q], np.diff([0, *up_to, 1]), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("sides", [False, True])
def test_derivatives_are_those_of_the_log_likelihood(sides: bool) -> None:
    """Σ n_qy log P(y | q) by differences; its expected curvature is minus the Fisher information."""
    grid, rng = code.Grid.of(sides), np.random.default_rng(1)
    own = ways(grid).own

    def likelihood(values: np.ndarray, counts: np.ndarray) -> float:
        return float((counts * np.log(code.graded(values[None], grid)[0][0])).sum())

    for n in range(len(own)):
        steps, below = code.graded(own[n : n + 1], grid)
        counts = rng.random((1, *steps.shape[1:])) * steps
        gradient, _ = code._derivatives(counts, steps, below, grid)
        bumps = 1e-5 * np.eye(own.shape[1])
        numeric = [
            (likelihood(own[n] + b, counts[0]) - likelihood(own[n] - b, counts[0])) / 2e-5 for b in bumps
        ]
        np.testing.assert_allclose(gradient[0], numeric, rtol=1e-4, atol=1e-5)
        # counts in the proportions that the model expects: minus the second differences
        expected = rng.random((1, steps.shape[1], 1)) * steps
        _, information = code._derivatives(expected, steps, below, grid)
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
    grid = code.Grid.of(sides=True)
    some = ways(grid)
    shares = np.array([0.1, 0.2, 0.3, 0.4])
    table = code.table_of(some.own, some.guesses, shares, grid)
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
    assert np.corrcoef(model.places_ @ code.Grid.of(model.sides).x[:, 0], planted["x"])[0, 1] > 0.9
    assert np.diff(model.trace_).min() > -1e-3 * labels.n_labels


def parted(
    seed: int, apart: float, n_items: int = 300, n_annotators: int = 12
) -> tuple[Annotations, np.ndarray]:
    """Two kinds of annotators who answer one way on average, and part about a second quality of items."""
    rng = np.random.default_rng(seed)
    x, u = rng.normal(size=(2, n_items))
    kind = np.where(np.arange(n_annotators) % 2 == 0, 1.0, -1.0)
    item, who = (table.ravel() for table in np.indices((n_items, n_annotators)))
    kept = rng.random(len(item)) < 0.6
    item, who = item[kept], who[kept]
    at = 2 * x[item] + apart * kind[who] * u[item]
    label = (rng.random((len(item), 1)) > expit(np.array([-2, -0.7, 0.7, 2]) - at[:, None])).sum(axis=1)
    return Annotations.from_arrays(item, who, label, label_type="ordinal"), kind


def test_annotators_who_part_are_found_and_nobody_where_nobody_does() -> None:
    """The slopes to the sides have the two kinds' signs, and foresee hidden labels; else they are small."""
    labels, kind = parted(0, apart=1.5)
    kept, hidden = labels.split_labels(0.2, 0)
    one, two = ds.GradedResponse().fit(kept), ds.GradedResponse(sides=True).fit(kept)
    slopes = two.own_[:, -1]
    assert abs(np.corrcoef(np.sign(slopes), kind)[0, 1]) == pytest.approx(1)
    assert two.score(hidden) > one.score(hidden) + 0.05
    alone, _ = parted(1, apart=0.0)
    assert ds.GradedResponse(sides=True).fit(alone).spread_[3] < 0.3 * two.spread_[3]


def test_how_annotators_part_is_an_eigenvector() -> None:
    """Of the correlations of residuals without their diagonal, by a dense solver."""
    labels, _ = parted(2, apart=1.5, n_items=40, n_annotators=6)
    left = np.full((labels.n_annotators, labels.n_items), np.nan)
    left[labels.annotator, labels.item] = labels.label
    left -= np.nanmean(left, axis=0)
    left = np.nan_to_num(left - np.nanmean(left, axis=1, keepdims=True))
    left /= np.linalg.norm(left, axis=1, keepdims=True)
    together = left @ left.T
    np.fill_diagonal(together, 0)
    _, vectors = np.linalg.eigh(together)
    found = code.leading_disagreement(labels)
    assert float((found**2).mean()) == pytest.approx(1)
    assert abs(float(found @ vectors[:, -1])) / np.linalg.norm(found) == pytest.approx(1, abs=1e-3)


@pytest.mark.slow
def test_the_order_helps_and_the_pool_is_no_worse(tmp_path: Path) -> None:
    labels, _ = scale(1)
    kept, hidden = labels.split_labels(0.2, 0)
    nominal = ds.HPGM(n_chains=2, n_sweeps=60).fit(kept)
    pooled = ds.OrdinalHPGM(n_chains=2, n_sweeps=60).fit(kept)
    assert pooled.score(hidden) > nominal.score(hidden) + 0.01
    assert pooled.score_items(hidden) > nominal.score_items(hidden)
    np.testing.assert_allclose(pooled.pool_.sum(axis=1), 1, rtol=1e-9)
    assert (pooled.pool_[:, 1:].sum(axis=1) > 0.2).all()
    known = pooled.intervals()
    assert (known.low <= pooled.label_distributions_).all()
    assert (known.high >= pooled.label_distributions_).all()
    np.testing.assert_allclose(pooled.label_distributions_.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_allclose(pooled.share_draws_.mean(axis=0), pooled.label_distributions_, atol=0.15)
    pooled.save(tmp_path / "m.safetensors")
    loaded = ds.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.log_chances(hidden), pooled.log_chances(hidden))
    moved = loaded.apply(kept.take_items(np.arange(50)))
    np.testing.assert_allclose(moved.label_distributions_, pooled.label_distributions_[:50], atol=1e-6)


def test_the_weights_are_the_maximum_over_a_grid() -> None:
    chances = np.random.default_rng(0).random((3, 200))
    steps = np.linspace(0.01, 0.98, 98)
    grid = [np.array([a, b, 1 - a - b]) for a in steps for b in steps if a + b < 0.995]
    for favoured in (np.zeros(3), np.array([40.0, 0, 0])):
        scores = [np.log(w @ chances).sum() + favoured @ np.log(w) for w in grid]
        np.testing.assert_allclose(
            best_weights(chances, favoured), grid[int(np.argmax(scores))], rtol=0, atol=0.015
        )


@pytest.mark.slow
def test_copies_count_once_in_the_pool() -> None:
    """Three more names for one annotator: the answers stay near those without them."""
    labels, _ = scale(3, n_items=80, n_annotators=8)
    rows = labels.annotator == 1
    names = np.concatenate([labels.annotator, *(np.full(rows.sum(), 90 + i) for i in range(3))])
    item, label = (np.concatenate([column, *[column[rows]] * 3]) for column in (labels.item, labels.label))
    more = Annotations.from_arrays(item, names, label, label_type="ordinal")
    settings = {"n_chains": 1, "n_sweeps": 40}
    plain, copied = (ds.OrdinalHPGM(**settings).fit(one) for one in (labels, more))
    assert copied.graded_[0].own_.shape[0] == labels.n_annotators + 3
    assert np.abs(copied.graded_[0].label_distributions_ - plain.graded_[0].label_distributions_).max() < 0.02
    assert copied.predict_proba([0], [90]).shape == (1, 5)


def test_ties_go_to_the_middle_and_files_have_the_scale() -> None:
    chances = np.array([[0.4, 0.1, 0.1, 0.4], [0.45, 0.05, 0.45, 0.05], [0.1, 0.2, 0.3, 0.4]])
    # up to each class .4 .5 .6 1: the median is class 1, to which 0 is nearer than 3
    assert most_probable(chances, "ordinal").tolist() == [0, 0, 3]
    assert most_probable(np.array([[0.1, 0.45, 0.0, 0.0, 0.45]]), "ordinal").tolist() == [1]
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
    assert ranked_probability_score([[0, 1, 0]], predicted) == pytest.approx(0.5**2 + 0.0)
    # the true distribution has the least expected score
    truth = np.array([0.2, 0.5, 0.3])
    draws = multinomial(1, truth).rvs(4000, random_state=0)
    own = ranked_probability_score(draws, np.tile(truth, (4000, 1)))
    for other in ([0.3, 0.4, 0.3], [0.1, 0.5, 0.4]):
        assert own < ranked_probability_score(draws, np.tile(other, (4000, 1)))


def test_models_of_a_scale_refuse_other_labels() -> None:
    labels, _ = scale(2, n_items=20)
    with pytest.raises(ds.DissensusError, match="for labels of type ordinal"):
        ds.OrdinalHPGM().fit(labels.with_label_type("nominal"))
