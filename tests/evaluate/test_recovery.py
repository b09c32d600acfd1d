"""recover: estimates from few labels, compared with reserved labels."""

import itertools
import json
import math
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError, ParameterError
from dissensus.evaluate import recovery
from dissensus.evaluate.bootstrap import Resamples
from dissensus.labels.rows import pairs_per_item
from dissensus.metrics import kl, kl_rows
from dissensus.models.counting import SMOOTHING_GRID


@pytest.fixture(scope="module")
def crowd() -> ds.Annotations:
    """Simulate twelve labels per item, three repeated pairs, and two items with fewer annotators."""
    shape = {"n_item_clusters": 3, "n_annotator_clusters": 2, "labels_per_item": 12}
    simulated = ds.simulate(40, 20, 3, **shape, alpha=0.5).annotations
    ids = simulated.items[simulated.item], simulated.annotators[simulated.annotator], simulated.label
    few = np.isin(simulated.item, [3, 7]) & (np.arange(simulated.n_labels) % 2 == 0)
    rows = np.concatenate([np.flatnonzero(~few), [0, 13, 200]])
    return ds.Annotations.from_arrays(*(column[rows] for column in ids))


def pairs(annotations: ds.Annotations) -> set[tuple[Any, Any]]:
    """Return the (item, annotator) pairs by id."""
    items = annotations.items[annotations.item]
    return set(zip(items, annotations.annotators[annotations.annotator], strict=True))


def measured(
    annotations: ds.Annotations, models: Any = None, *args: Any, **settings: Any
) -> recovery.Recovery:
    """Run a small recovery in this process."""
    models = {"fmm": [ds.FMM(2), ds.FMM(4)], "pgm": ds.PGM(3, 2, max_iter=20)} if models is None else models
    options = {"pool": 6, "min_reserved": 5, "n_draws": 3, "n_jobs": 1, "n_boot": 200} | settings
    return ds.recover(annotations, models, *(args or ((2, 4),)), **options)


# ---- shown and reserved labels ------------------------------------------------------------------------


def test_pool_and_reserved_pairs_are_disjoint(crowd: ds.Annotations) -> None:
    design = recovery.Design.of(crowd, 6, 5, 0, 1e-5)
    assert design.n_left_out == 2
    assert design.pool.n_items == design.reserved.n_items == 38
    assert set(pairs_per_item(design.pool)) == {6}
    assert set(pairs_per_item(design.reserved)) == {6}
    assert not pairs(design.pool) & pairs(design.reserved)
    all_pairs = {pair for pair in pairs(crowd) if pair[0] in set(design.pool.items)}
    assert pairs(design.pool) | pairs(design.reserved) == all_pairs
    assert design.pool.n_labels + design.reserved.n_labels == 38 * 12 + 3  # repeated labels stay together


def test_labels_shown_are_nested(crowd: ds.Annotations) -> None:
    design = recovery.Design.of(crowd, 6, 5, 0, 1e-5)
    shown = [design.shown(R, 1) for R in range(1, 7)]
    for R, labels in enumerate(shown, start=1):
        assert set(pairs_per_item(labels)) == {R}
    assert all(pairs(a) < pairs(b) for a, b in itertools.pairwise(shown))
    assert pairs(shown[-1]) == pairs(design.pool)
    assert pairs(design.shown(2, 0)) != pairs(design.shown(2, 1))


def test_reference_and_floor_by_hand() -> None:
    # one item, eight annotators, four of them reserved
    annotations = ds.Annotations.from_arrays(["i"] * 8, list("abcdefgh"), list("xxxxxxyy"))
    design = recovery.Design.of(annotations, 4, 4, 0, 1e-5)
    y = int((design.reserved.label == 1).sum())
    assert design.reference.tolist() == [[1 - y / 4, y / 4]]
    # all labels estimate the truth, a quarter of them y; four are drawn: Σ_k Bin(k; 4, ¼) KL(k/4 ‖ ¼)
    chances = [math.comb(4, k) * 0.25**k * 0.75 ** (4 - k) for k in range(5)]
    divergences = [kl([[1 - k / 4, k / 4]], [[0.75, 0.25]]) for k in range(5)]
    expected = float(np.dot(chances, divergences))
    assert design.floor == pytest.approx(expected, rel=1e-9)


def test_default_sizes_adapt_to_the_data() -> None:
    for sizes, expected in (
        ([20] * 60 + [3] * 900, (8, 6)),  # sixty items are enough
        ([10] * 60, (6, 4)),  # 10 in the proportion 8 : 6
        ([20] * 5 + [6] * 95, (3, 3)),  # five are too few, and a tenth has 6
        ([2] + [1] * 30, (1, 1)),  # the only item with two
    ):
        assert recovery.adapt_sizes(np.array(sizes), None, None) == expected


def test_notes(crowd: ds.Annotations) -> None:
    result = ds.recover(crowd, {"counts": ds.EmpiricalDistribution()}, n_draws=1, n_boot=10, n_jobs=1)
    assert (result.pool, result.min_reserved) == (7, 5)
    assert [row.labels_shown for row in result.results] == [1, 2, 4]
    assert result.notes[0].startswith("items have few annotators: up to 7 are shown and at least 5")
    sparse = ds.simulate(60, 10, 3, labels_per_item=3).annotations
    few = ds.recover(sparse, {"counts": ds.EmpiricalDistribution()}, n_draws=1, n_boot=10, n_jobs=1)
    assert "is mostly noise" in few.notes[1]
    plenty = ds.simulate(60, 20, 3, labels_per_item=15).annotations
    full = ds.recover(plenty, {"counts": ds.EmpiricalDistribution()}, n_draws=1, n_boot=10, n_jobs=1)
    assert (full.pool, full.min_reserved, full.notes) == (8, 6, [])


def labels_of_sizes(sizes: list[int]) -> ds.Annotations:
    """Return items with these numbers of annotators."""
    items, annotators = np.repeat(np.arange(len(sizes)), sizes), np.concatenate([*map(np.arange, sizes)])
    return ds.Annotations.from_arrays(items, annotators, np.arange(len(items)) % 2)


def test_too_few_labels_suggest_other_settings() -> None:
    # two of twenty have 7 or more, split 4 : 3; only one has 9
    annotations = labels_of_sizes([9, 7] + [3] * 18)
    advice = "pool=4, min_reserved=3, labels_shown=[1, 2, 4] keeps 2 of 20 items"
    with pytest.raises(DataError, match=re.escape(advice)):
        recovery.Design.of(annotations, 8, 6, 0, 1e-5)
    assert recovery.Design.of(annotations, 4, 3, 0, 1e-5).pool.n_items == 2
    with pytest.raises(DataError, match="items need at least two"):
        recovery.Design.of(labels_of_sizes([1, 1]), 8, 6, 0, 1e-5)


# ---- smoothed counts ----------------------------------------------------------------------------------


def test_best_smoothing_of_the_grid(crowd: ds.Annotations) -> None:
    design = recovery.Design.of(crowd, 6, 5, 0, 1e-5)
    tables = [design.shown(3, draw).counts for draw in range(2)]

    def mean_kl(strength: float) -> float:
        return float(np.mean([kl(design.reference, recovery.additive(table, strength)) for table in tables]))

    result = recovery.best_in_hindsight(design, tables)
    assert mean_kl(result) == pytest.approx(min(map(mean_kl, SMOOTHING_GRID)), rel=1e-12)


def test_label_efficiency_by_hand() -> None:
    curve = (0.4, 0.3, 0.2, 0.2)
    assert recovery.label_efficiency(0.4, curve) == 1
    assert recovery.label_efficiency(0.375, curve) == pytest.approx(1.25, rel=1e-12)
    assert recovery.label_efficiency(0.25, curve) == pytest.approx(2.5, rel=1e-12)
    assert recovery.label_efficiency(0.19, curve) == math.inf
    assert recovery.label_efficiency(0.41, curve) == 0
    # an increase of the curve is ignored
    assert recovery.label_efficiency(0.25, (0.4, 0.3, 0.35, 0.2)) == pytest.approx(3.5, rel=1e-12)
    assert [recovery.efficiency_words(x, 8) for x in (math.inf, 0.0, 2.54)] == ["> 8", "< 1", "2.5"]


# ---- intervals ----------------------------------------------------------------------------------------


def test_intervals_over_items_and_draws() -> None:
    rows = np.random.default_rng(0).normal(size=(1, 400))
    result = Resamples(1, 400, 4000, seed=1).interval(rows)
    assert result.value == rows.mean()
    assert result.high - result.low == pytest.approx(2 * 1.96 * rows.std() / 20, rel=0.06)
    # draws differ and items do not: resampled means are means of four numbers drawn with replacement
    rows = np.repeat(np.array([0.0, 1.0, 2.0, 3.0])[:, None], 50, axis=1)
    result = Resamples(4, 50, 4000).interval(rows)
    assert result.value == 1.5
    low, high = np.quantile([sum(d) / 4 for d in np.ndindex(4, 4, 4, 4)], [0.025, 0.975])
    assert (result.low, result.high) == pytest.approx((low, high), rel=1e-9)


# ---- recover ------------------------------------------------------------------------------------------


def test_results_by_hand(crowd: ds.Annotations) -> None:
    """Compare with closed-form models, which need no seed."""
    result = measured(crowd, {"votes": ds.MajorityVote(), "counts 1": ds.EmpiricalDistribution(1.0)}, (3,))
    design = recovery.Design.of(crowd, 6, 5, 0, 1e-5)
    for row in result.results:
        model = ds.MajorityVote() if row.name == "votes" else ds.EmpiricalDistribution(1.0)
        for draw in range(3):
            estimate = model.fit(design.shown(3, draw)).label_distributions_
            assert np.array_equal(row.rows[draw], kl_rows(design.reference, estimate))
        assert row.kl.value == row.rows.mean()
        assert row.kl.low < row.kl.value < row.kl.high


def test_efficiency_of_counts_is_the_number_of_labels(crowd: ds.Annotations) -> None:
    curve = measured(crowd).counts
    models = {f"best {point.labels_shown}": ds.EmpiricalDistribution(point.smoothing) for point in curve}
    result = measured(crowd, models, (1, 3, 6))
    for shown in (1, 3, 6):
        row = result.best(f"best {shown}", shown)
        assert row.efficiency == pytest.approx(shown, rel=1e-9)
        assert result.difference(row.name, "counts", shown) == pytest.approx((0, 0, 0), abs=1e-12)


def test_best_of_a_group_and_paired_differences(crowd: ds.Annotations) -> None:
    result = measured(crowd)
    assert len(result.results) == 6  # three models, two numbers of labels
    group = [row for row in result.results if row.name == "fmm" and row.labels_shown == 2]
    assert result.best("fmm", 2).kl.value == min(row.kl.value for row in group)
    rows = result.rows()
    names = [(row["labels_shown"], row["name"]) for row in rows]
    assert names == [(2, "fmm"), (2, "pgm"), (4, "fmm"), (4, "pgm")]
    assert rows[0]["model"] == result.best("fmm", 2).model
    with pytest.raises(DataError, match="fmm with 2"):
        result.best("fmm", 3)
    pgm, fmm = (result.best(name, 4).kl for name in ("pgm", "fmm"))
    difference = result.difference("pgm", "fmm", 4)
    assert difference.value == pytest.approx(pgm.value - fmm.value, rel=1e-9)
    assert difference.high - difference.low < fmm.high - fmm.low
    values = json.loads(json.dumps(result.to_dict()))
    assert (values["n_items"], values["n_left_out"], values["pool"]) == (38, 2, 6)
    assert [len(result.to_frame()), len(result.to_frame(every=True))] == [4, 6]


@pytest.mark.slow
def test_result_does_not_depend_on_the_executor(crowd: ds.Annotations) -> None:
    here = measured(crowd)
    with ThreadPoolExecutor(2) as threads:
        others = [measured(crowd, n_jobs=2), measured(crowd, executor=threads)]
    for other in others:
        for a, b in zip(here.results, other.results, strict=True):
            assert np.array_equal(a.rows, b.rows)
            assert a.kl == b.kl


def test_planted_clusters_beat_counts() -> None:
    """Check that a model of the planted clusters is closer than any smoothed counts."""
    shape = {"n_item_clusters": 4, "n_annotator_clusters": 2, "labels_per_item": 14, "alpha": 0.5}
    planted = ds.simulate(200, 40, 4, **shape).annotations
    result = ds.recover(planted, {"pgm": ds.PGM(4, 2, n_restarts=2)}, (4,), n_draws=2, n_jobs=1)
    assert result.difference("pgm", "counts", 4).high < 0
    assert result.best("pgm", 4).efficiency > 4
    assert result.floor < result.best("pgm", 4).kl.value


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"labels_shown": (1, 9)}, "1 to the pool of 6"),
        ({"labels_shown": ()}, "labels_shown"),
        ({"pool": 0}, "'pool'"),
        ({"weight_by": "items"}, "'weight_by'"),
        ({"models": {}}, "'models'"),
        ({"models": ["fmmm"]}, "'fmm'"),
        ({"models": {"fmm": ds.FMM(0)}}, "'n_item_clusters'"),
    ],
)
def test_invalid_settings(crowd: ds.Annotations, settings: dict[str, Any], message: str) -> None:
    options = {"models": {"fmm": ds.FMM(2)}, "labels_shown": (2,), "pool": 6, "min_reserved": 5}
    with pytest.raises(ParameterError, match=message):
        ds.recover(crowd, **(options | settings), n_jobs=1)


@pytest.mark.data
def test_four_labels_of_nli_variation_are_worth_more_than_four(data_dir: Path) -> None:
    """An earlier, independent program: 0.153 for counts, 0.116 for PGM, which is worth seven raw labels."""
    annotations = ds.read_annotations(data_dir / "nli_variation" / "annotations.csv")
    result = ds.recover(annotations, {"pgm": [ds.PGM(6, 4), ds.PGM(12, 8)]}, (4,), n_draws=2, n_jobs=1)
    assert result.counts[3].kl.value == pytest.approx(0.153, rel=0.06)
    assert result.best("pgm", 4).kl.value == pytest.approx(0.116, rel=0.06)
    assert result.best("pgm", 4).efficiency > 6
