"""recover: labels shown, labels reserved, and what the one tells of the other."""

from __future__ import annotations

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
from dissensus.evaluate.bootstrap import Resamples
from dissensus.evaluate.recovery import (
    Design,
    Recovery,
    additive,
    best_in_hindsight,
    efficiency_words,
    fitting,
    label_efficiency,
)
from dissensus.labels.rows import pairs_per_item
from dissensus.metrics import kl, kl_rows
from dissensus.models.counting import GRID


@pytest.fixture(scope="module")
def crowd() -> ds.Annotations:
    """Twelve labels per item; three pairs are labelled twice, and two items have fewer annotators."""
    simulated = ds.simulate(
        40, 20, 3, n_item_clusters=3, n_annotator_clusters=2, labels_per_item=12, alpha=0.5
    ).annotations
    ids = simulated.items[simulated.item], simulated.annotators[simulated.annotator], simulated.label
    few = np.isin(simulated.item, [3, 7]) & (np.arange(simulated.n_labels) % 2 == 0)
    rows = np.concatenate([np.flatnonzero(~few), [0, 13, 200]])
    return ds.Annotations.from_arrays(*(column[rows] for column in ids))


def pairs(annotations: ds.Annotations) -> set[tuple[Any, Any]]:
    """(item, annotator) by their ids."""
    items = annotations.items[annotations.item]
    return set(zip(items, annotations.annotators[annotations.annotator], strict=True))


def measured(annotations: ds.Annotations, models: Any = None, *args: Any, **settings: Any) -> Recovery:
    """A small recovery in this process."""
    models = {"fmm": [ds.FMM(2), ds.FMM(4)], "pgm": ds.PGM(3, 2, max_iter=20)} if models is None else models
    given = {"pool": 6, "min_reserved": 5, "n_draws": 3, "n_jobs": 1, "n_boot": 200} | settings
    return ds.recover(annotations, models, *(args or ((2, 4),)), **given)


# ---- what is shown and what is reserved ---------------------------------------------------------------


def test_the_pool_and_the_reserved_part_share_no_pair(crowd: ds.Annotations) -> None:
    design = Design.of(crowd, 6, 5, 0, 1e-5)
    assert design.n_left_out == 2
    assert design.pool.n_items == design.reserved.n_items == 38
    assert set(pairs_per_item(design.pool)) == {6}
    assert set(pairs_per_item(design.reserved)) == {6}
    assert not pairs(design.pool) & pairs(design.reserved)
    whole = {pair for pair in pairs(crowd) if pair[0] in set(design.pool.items)}
    assert pairs(design.pool) | pairs(design.reserved) == whole
    assert design.pool.n_labels + design.reserved.n_labels == 38 * 12 + 3  # repeats stay with their pair


def test_fewer_labels_are_among_more_of_the_same_draw(crowd: ds.Annotations) -> None:
    design = Design.of(crowd, 6, 5, 0, 1e-5)
    shown = [design.shown(R, 1) for R in range(1, 7)]
    for R, some in enumerate(shown, start=1):
        assert set(pairs_per_item(some)) == {R}
    assert all(pairs(a) < pairs(b) for a, b in itertools.pairwise(shown))
    assert pairs(shown[-1]) == pairs(design.pool)
    assert pairs(design.shown(2, 0)) != pairs(design.shown(2, 1))


def test_the_reference_and_the_floor_by_hand() -> None:
    # One item, eight annotators: four are reserved, and only which labels they gave matters.
    annotations = ds.Annotations.from_arrays(["i"] * 8, list("abcdefgh"), list("xxxxxxyy"))
    design = Design.of(annotations, 4, 4, 0, 1e-5)
    y = int((design.reserved.label == 1).sum())
    assert design.reference.tolist() == [[1 - y / 4, y / 4]]
    # All eight labels stand for the truth, a quarter of them y; four are drawn: Σ_k Bin(k; 4, ¼) KL(k/4 ‖ ¼)
    chances = [math.comb(4, k) * 0.25**k * 0.75 ** (4 - k) for k in range(5)]
    divergences = [kl([[1 - k / 4, k / 4]], [[0.75, 0.25]]) for k in range(5)]
    expected = float(np.dot(chances, divergences))
    assert design.floor == pytest.approx(expected, rel=1e-9)


def test_no_item_with_enough_labels(crowd: ds.Annotations) -> None:
    with pytest.raises(DataError, match=r"no item has 8 \+ 6 annotators \(the most is 12\)"):
        ds.recover(crowd, {"fmm": ds.FMM(2)}, pool=8, min_reserved=6)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([20] * 60 + [3] * 900, (8, 6)),  # sixty items are enough to compare on, whatever the others have
        ([10] * 60, (6, 4)),  # 10 in the proportion 8 : 6
        ([20] * 5 + [6] * 95, (3, 3)),  # five are too few: a tenth has 6
        ([3] * 200, (2, 1)),
        ([2] + [1] * 30, (1, 1)),  # the one item there is
    ],
)
def test_the_reservation_fits_the_data(sizes: list[int], expected: tuple[int, int]) -> None:
    assert fitting(np.array(sizes), None, None) == expected


def test_what_can_be_concluded_is_said(crowd: ds.Annotations) -> None:
    found = ds.recover(crowd, {"counts": ds.EmpiricalDistribution()}, n_draws=1, n_boot=10, n_jobs=1)
    assert (found.pool, found.min_reserved) == (7, 5)
    assert [one.labels_shown for one in found.results] == [1, 2, 4]
    assert found.notes[0].startswith("items have few annotators: 7 may be shown, at least 5 are kept")
    sparse = ds.simulate(60, 10, 3, labels_per_item=3).annotations
    few = ds.recover(sparse, {"counts": ds.EmpiricalDistribution()}, n_draws=1, n_boot=10, n_jobs=1)
    assert "but not how close either is" in few.notes[1]
    plenty = ds.simulate(60, 20, 3, labels_per_item=15).annotations
    full = ds.recover(plenty, {"counts": ds.EmpiricalDistribution()}, n_draws=1, n_boot=10, n_jobs=1)
    assert (full.pool, full.min_reserved, full.notes) == (8, 6, [])


def annotated(sizes: list[int]) -> ds.Annotations:
    """Items with so many annotators each."""
    rows = [(item, who) for item, size in enumerate(sizes) for who in range(size)]
    items, annotators = zip(*rows, strict=True)
    return ds.Annotations.from_arrays(
        items, annotators, ["x", "y"] * (len(rows) // 2) + ["x"] * (len(rows) % 2)
    )


@pytest.mark.parametrize(
    ("sizes", "advice"),
    [
        # Two of twenty have 7 (8 : 6 of 7 is 4 : 3); one more has 9, but that is a twentieth.
        ([9, 7] + [3] * 18, "pool=4, min_reserved=3, labels_shown=[1, 2, 4] leaves 2 of 20 items"),
        ([2] + [1] * 30, "pool=1, min_reserved=1, labels_shown=[1] leaves 1 of 31 items"),
        ([1, 1], "give some items two at least"),
    ],
    ids=["a tenth", "fewer than a tenth", "none"],
)
def test_too_few_labels_come_with_settings_that_work(sizes: list[int], advice: str) -> None:
    annotations = annotated(sizes)
    with pytest.raises(DataError, match=re.escape(advice)):
        Design.of(annotations, 8, 6, 0, 1e-5)
    if "leaves" in advice:
        pool, reserved = re.findall(r"(?:pool|reserved)=(\d+)", advice)
        n_items = advice.split()[-4]
        assert Design.of(annotations, int(pool), int(reserved), 0, 1e-5).pool.n_items == int(n_items)


# ---- smoothed counts ----------------------------------------------------------------------------------


def test_the_best_smoothing_is_the_best_of_the_grid(crowd: ds.Annotations) -> None:
    design = Design.of(crowd, 6, 5, 0, 1e-5)
    tables = [design.shown(3, draw).counts for draw in range(2)]

    def mean_kl(strength: float) -> float:
        return float(np.mean([kl(design.reference, additive(table, strength)) for table in tables]))

    found = best_in_hindsight(design, tables)
    assert mean_kl(found) == pytest.approx(min(map(mean_kl, GRID)), rel=1e-12)


def test_label_efficiency_by_hand() -> None:
    curve = (0.4, 0.3, 0.2, 0.2)
    assert label_efficiency(0.4, curve) == 1
    assert label_efficiency(0.375, curve) == pytest.approx(1.25, rel=1e-12)
    assert label_efficiency(0.25, curve) == pytest.approx(2.5, rel=1e-12)
    assert label_efficiency(0.19, curve) == math.inf
    assert label_efficiency(0.41, curve) == 0
    # A bump that more labels cannot really make is passed over
    assert label_efficiency(0.25, (0.4, 0.3, 0.35, 0.2)) == pytest.approx(3.5, rel=1e-12)


def test_efficiencies_in_words() -> None:
    assert [efficiency_words(x, 8) for x in (math.inf, 0.0, 2.54)] == ["> 8", "< 1", "2.5"]


# ---- intervals ----------------------------------------------------------------------------------------


def test_an_interval_over_items_has_the_width_of_the_normal_law() -> None:
    rows = np.random.default_rng(0).normal(size=(1, 400))
    found = Resamples(1, 400, 4000, seed=1).interval(rows)
    assert found.value == rows.mean()
    assert found.high - found.low == pytest.approx(2 * 1.96 * rows.std() / 20, rel=0.06)


def test_draws_widen_an_interval_too() -> None:
    # Draws differ and items do not: resampled means are those of four numbers drawn with replacement.
    rows = np.repeat(np.array([0.0, 1.0, 2.0, 3.0])[:, None], 50, axis=1)
    found = Resamples(4, 50, 4000).interval(rows)
    assert found.value == 1.5
    sums = [sum(d) / 4 for d in np.ndindex(4, 4, 4, 4)]
    low, high = np.quantile(sums, [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-9)


def test_equal_numbers_have_no_width() -> None:
    assert Resamples(3, 10).interval(np.full((3, 10), 0.25)) == (0.25, 0.25, 0.25)


# ---- the whole ----------------------------------------------------------------------------------------


def test_a_fit_can_be_had_by_hand(crowd: ds.Annotations) -> None:
    """The figures of closed-form models need no seed: shown labels in, KL to the reserved ones out."""
    found = measured(crowd, {"votes": ds.MajorityVote(), "counts 1": ds.EmpiricalDistribution(1.0)}, (3,))
    design = Design.of(crowd, 6, 5, 0, 1e-5)
    for one in found.results:
        model = ds.MajorityVote() if one.name == "votes" else ds.EmpiricalDistribution(1.0)
        for draw in range(3):
            estimate = model.fit(design.shown(3, draw)).label_distributions_
            assert np.array_equal(one.rows[draw], kl_rows(design.reference, estimate))
        assert one.kl.value == one.rows.mean()
        assert one.kl.low < one.kl.value < one.kl.high


def test_counts_are_worth_the_labels_they_were_shown(crowd: ds.Annotations) -> None:
    curve = measured(crowd).counts
    models = {f"best {point.labels_shown}": ds.EmpiricalDistribution(point.smoothing) for point in curve}
    found = measured(crowd, models, (1, 3, 6))
    for shown in (1, 3, 6):
        one = found.best(f"best {shown}", shown)
        assert one.efficiency == pytest.approx(shown, rel=1e-9)
        assert found.difference(one.name, "counts", shown) == pytest.approx((0, 0, 0), abs=1e-12)


def test_a_group_is_as_good_as_its_best(crowd: ds.Annotations) -> None:
    found = measured(crowd)
    assert len(found.results) == 6  # three models, two numbers of labels
    group = [one for one in found.results if one.name == "fmm" and one.labels_shown == 2]
    assert found.best("fmm", 2).kl.value == min(one.kl.value for one in group)
    rows = found.rows()
    assert [(row["labels_shown"], row["name"]) for row in rows] == [
        (2, "fmm"),
        (2, "pgm"),
        (4, "fmm"),
        (4, "pgm"),
    ]
    assert rows[0]["model"] == found.best("fmm", 2).model
    with pytest.raises(DataError, match="fmm with 2"):
        found.best("fmm", 3)


def test_differences_are_paired(crowd: ds.Annotations) -> None:
    found = measured(crowd)
    difference = found.difference("pgm", "fmm", 4)
    assert difference.value == pytest.approx(
        found.best("pgm", 4).kl.value - found.best("fmm", 4).kl.value, rel=1e-9
    )
    apart = found.best("fmm", 4).kl
    assert difference.high - difference.low < apart.high - apart.low


def test_the_same_labels_are_reserved_whatever_is_asked(crowd: ds.Annotations) -> None:
    alone, both = measured(crowd, None, (4,)), measured(crowd)
    assert np.array_equal(alone.best("fmm", 4).rows, both.best("fmm", 4).rows)
    assert alone.floor == both.floor
    assert measured(crowd, None, (4,), seed=1).floor != alone.floor


@pytest.mark.slow
def test_results_do_not_depend_on_what_runs_them(crowd: ds.Annotations) -> None:
    here = measured(crowd)
    with ThreadPoolExecutor(2) as threads:
        others = [measured(crowd, n_jobs=2), measured(crowd, executor=threads)]
    for other in others:
        for a, b in zip(here.results, other.results, strict=True):
            assert np.array_equal(a.rows, b.rows)
            assert a.kl == b.kl


def test_models_by_name_as_a_list_and_with_another_population(crowd: ds.Annotations) -> None:
    found = measured(crowd, ["majority", ds.PGM(2, 2)], (2,), weight_by="annotators")
    assert [one.name for one in found.results] == ["majority", repr(ds.PGM(2, 2))]
    assert "weight_by='annotators'" in found.results[1].model


def test_the_result_as_plain_values(crowd: ds.Annotations) -> None:
    found = measured(crowd)
    plain = json.loads(json.dumps(found.to_dict()))
    assert (plain["n_items"], plain["n_left_out"], plain["pool"]) == (38, 2, 6)
    assert [point["labels_shown"] for point in plain["counts"]] == [1, 2, 3, 4, 5, 6]
    assert len(plain["models"]) == len(found.to_frame(every=True)) == 6
    assert len(found.to_frame()) == 4
    assert "fmm, pgm; 38 items" in repr(found)


def test_the_population_is_recovered_where_there_is_one() -> None:
    """Planted clusters: the model that knows of them comes closer than any smoothing of the counts."""
    shape = {"n_item_clusters": 4, "n_annotator_clusters": 2, "labels_per_item": 14, "alpha": 0.5}
    planted = ds.simulate(200, 40, 4, **shape).annotations
    found = ds.recover(planted, {"pgm": ds.PGM(4, 2, n_restarts=2)}, (4,), n_draws=2, n_jobs=1)
    assert found.difference("pgm", "counts", 4).high < 0
    assert found.best("pgm", 4).efficiency > 4
    assert found.floor < found.best("pgm", 4).kl.value


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"labels_shown": (1, 9)}, "1 to the pool of 6"),
        ({"labels_shown": ()}, "labels_shown"),
        ({"pool": 0}, "'pool'"),
        ({"min_reserved": 0}, "'min_reserved'"),
        ({"n_draws": 0}, "'n_draws'"),
        ({"weight_by": "items"}, "'weight_by'"),
        ({"models": {}}, "'models'"),
        ({"models": ["fmmm"]}, "'fmm'"),
        ({"models": {"fmm": ds.FMM(0)}}, "'n_item_clusters'"),
        ({"n_boot": 0}, "'n_boot'"),
    ],
)
def test_bad_settings_are_refused(crowd: ds.Annotations, settings: dict[str, Any], words: str) -> None:
    given = {
        "models": {"fmm": ds.FMM(2)},
        "labels": crowd,
        "labels_shown": (2,),
        "pool": 6,
        "min_reserved": 5,
    }
    with pytest.raises(ParameterError, match=words):
        ds.recover(**(given | settings), n_jobs=1)


@pytest.mark.data
def test_four_labels_of_nli_variation_are_worth_more_than_four(data_dir: Path) -> None:
    """An earlier, independent program: 0.153 for counts, 0.116 for PGM, which is worth seven raw labels."""
    annotations = ds.read_annotations(data_dir / "nli_variation" / "annotations.csv")
    found = ds.recover(annotations, {"pgm": [ds.PGM(6, 4), ds.PGM(12, 8)]}, (4,), n_draws=2, n_jobs=1)
    assert found.counts[3].kl.value == pytest.approx(0.153, rel=0.06)
    assert found.best("pgm", 4).kl.value == pytest.approx(0.116, rel=0.06)
    assert found.best("pgm", 4).efficiency > 6
