"""Model comparison by held-out labels."""

import math

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError
from dissensus.evaluate.compare import (
    FAST_CANDIDATES,
    HeldOut,
    _chosen,
    compare,
    comparison_settings,
    held_out_scores,
    with_gaps,
)
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import with_features
from dissensus.labels.simulation import simulate
from dissensus.models import MODELS, build_model, name_of, simplicity, title_of
from dissensus.models.counting import EmpiricalDistribution

pytestmark = pytest.mark.no_cover


def two_kinds_of_items() -> Annotations:
    """Return items labelled a or b with equal probability, and as many labelled c or d."""
    rng = np.random.default_rng(0)
    item = np.repeat(np.arange(200), 6)
    annotator = np.tile(np.arange(6), 200)
    label = np.array(["a", "b", "c", "d"], dtype=object)[2 * (item >= 100) + rng.integers(2, size=len(item))]
    return Annotations.from_arrays(item, annotator, label)


def test_scores_by_hand() -> None:
    labels = simulate(30, 10, 3, seed=1).annotations
    train, hidden = labels.split_labels(0.2, seed=5)
    expected = 0.0
    for m, y in zip(hidden.item, hidden.label, strict=True):
        labels_ = [int(c) for i, c in zip(train.item, train.label, strict=True) if i == m]
        expected += math.log((labels_.count(int(y)) + 1) / (len(labels_) + 3)) / hidden.n_labels
    (row,) = held_out_scores(labels, [EmpiricalDistribution(smoothing=1.0)], seed=5)
    assert row.score == pytest.approx(expected, rel=1e-12)
    assert row.score_items == pytest.approx(expected, rel=1e-12)
    assert row.n_hidden == hidden.n_labels


def test_mixture_wins_for_two_kinds_of_items() -> None:
    # Two kinds of items with two equally likely labels each: the entropy given the kind is log 2. Five labels
    # of an item are too few to estimate its distribution, so the mixture predicts hidden labels better.
    mixtures = [("empirical", {}), ("fmm", {"n_item_clusters": 8}), ("fmm", {"n_item_clusters": 2})]
    choice = compare(two_kinds_of_items(), seed=0, candidates=mixtures)
    assert name_of(choice.model) == "fmm"
    best = max(choice.table, key=lambda row: row.score_items)
    assert best.score_items == pytest.approx(-math.log(2), rel=0.05)
    assert choice.reason.startswith("fmm")


def test_comparison_settings() -> None:
    assert comparison_settings(build_model("hpgm", {})) == {"n_chains": 2, "n_sweeps": 90}
    assert comparison_settings(build_model("hpgm", {"n_sweeps": 30})) == {"n_chains": 2}
    assert comparison_settings(build_model("fmm", {})) == {}
    labels = simulate(60, 12, 3, labels_per_item=4, seed=1).annotations
    short, long = (held_out_scores(labels, [build_model("hpgm", {"n_sweeps": n})])[0] for n in (10, 60))
    assert short.score != long.score


def test_too_little_memory() -> None:
    labels = simulate(60, 12, 3, labels_per_item=4, seed=1).annotations
    line = r"^\w+ on \d+ labels needs at least 250\.\d+MB of memory, and the limit is (9\.\d+|10)MB; "
    with ds.resources(memory="10MB"), pytest.raises(DataError, match=line):
        compare(labels)


@pytest.mark.slow
def test_candidates_with_features() -> None:
    labels = simulate(40, 12, 3).annotations
    features = np.random.default_rng(0).normal(size=(40, 4))
    short = [("hpgm", {"n_sweeps": 10, "n_chains": 1}), ("hpgm", {"n_sweeps": 10, "use_features": True})]
    assert len(compare(labels, candidates=short).table) == 1
    assert len(compare(with_features(labels, features), candidates=short).table) == 2


def test_candidates_that_do_not_fit_the_labels_are_skipped() -> None:
    labels = simulate(12, 12, 3, labels_per_item=10).annotations
    table = compare(labels, candidates=FAST_CANDIDATES).table
    assert max(getattr(row.model, "n_item_clusters", 0) for row in table) <= 12
    # the sizes of HPGM are upper bounds, so it is always applicable
    assert compare(labels, candidates=[("hpgm", {"n_sweeps": 10, "n_chains": 1})]).table
    table = compare(Annotations.from_counts([[3, 1], [2, 2], [0, 4]] * 10)).table
    assert table
    assert not any(row.model._needs_annotators for row in table)


def test_too_few_labels_to_compare() -> None:
    # 97 pairs hide 19, one less than a comparison needs
    labels = Annotations.from_counts([[97, 0]])
    choice = compare(labels)
    assert isinstance(choice.model, EmpiricalDistribution)
    assert choice.table == []
    assert choice.reason == "too few labels to compare models: empirical without a comparison"
    assert compare(Annotations.from_counts([[98, 0]])).table != []


def test_one_annotator_per_item() -> None:
    labels = simulate(200, 20, 3, labels_per_item=1).annotations
    choice = compare(labels)
    assert name_of(choice.model) == "hpgm"
    assert choice.table == []
    assert choice.reason.startswith("no item has labels by two annotators")
    assert isinstance(compare(labels, candidates=FAST_CANDIDATES).model, EmpiricalDistribution)
    # repeated labels of one annotator do not help
    again = Annotations.from_arrays(*(np.tile(codes, 2) for codes in labels.columns))
    assert compare(again).reason == choice.reason


def row(name: str, pair: float, item: float, contradicted: int = 0, noise: int = 0) -> HeldOut:
    """Return a candidate with these scores on 400 hidden labels of 200 items; ``noise`` seeds deviations."""
    deviation = 0.1 * np.random.default_rng(noise).normal(size=400) if noise else np.zeros(400)
    logs = np.stack([pair + deviation - deviation.mean(), item + deviation - deviation.mean()])
    items = np.repeat(np.arange(200), 2).astype(np.int32)
    return HeldOut(build_model(name, {}), pair, item, 400, 0.0, contradicted, logs, items)


def test_tied_default_is_chosen() -> None:
    # 0.001 nats apart, with a standard error of some 0.005
    table = with_gaps([row("cbcc", -1.0, -1.0, noise=1), row("hpgm", -1.001, -1.001)])
    choice = _chosen(table, "population", "hpgm")
    assert name_of(choice.model) == "hpgm"
    assert choice.reason.startswith("hpgm 20×20 is tied with cbcc 3 (0.0010 ± ")
    assert choice.reason.endswith(" behind) and is the default")
    # 0.1 nats are not a tie
    by_estimate = with_gaps([row("hpgm", -1.0, -0.5), row("fmm", -0.5, -1.0)])
    assert name_of(_chosen(by_estimate, "population", "hpgm").model) == "hpgm"
    second = _chosen(by_estimate, "annotators", "hpgm")
    assert name_of(second.model) == "fmm"
    assert second.reason == "fmm 10 predicts hidden labels best"


def test_simplest_model_wins_ties() -> None:
    names = ("hpgm", "cbcc", "fmm")
    tied = [row(name, -1 - n / 1000, -1 - n / 1000, noise=n) for n, name in enumerate(names)]
    for table in (tied, tied[::-1]):
        choice = _chosen(with_gaps(table), "population", None)
        assert name_of(choice.model) == "fmm"
        assert choice.reason.startswith("fmm 10 is tied with hpgm 20×20 (0.0020 ± ")
        assert choice.reason.endswith(" behind) and is the simplest")
    # a default that is far behind is not chosen
    table = with_gaps([row("hpgm", -1.5, -1.5), row("pgm", -1.0, -1.0), row("fmm", -1.001, -1.001, noise=1)])
    assert name_of(_chosen(table, "population", "hpgm").model) == "fmm"


def test_models_that_contradict_unanimity_lose_ties() -> None:
    table = [row("hpgm", -1.001, -1.001, contradicted=3), row("dawid-skene", -1.0, -1.0, noise=1)]
    choice = _chosen(with_gaps(table), "population", "hpgm")
    assert name_of(choice.model) == "dawid-skene"
    table = [row("fmm", -1.002, -1.002), row("cbcc", -1.0, -1.0, contradicted=3, noise=1)]
    choice = _chosen(with_gaps(table), "population", "hpgm")
    assert name_of(choice.model) == "fmm"
    assert choice.reason.endswith(
        "; cbcc 3 was skipped: on some items with 5 or more unanimous labels, it gives that answer less "
        "than 60%"
    )


def test_order_of_simplicity() -> None:
    assert [simplicity(build_model(name, {}))[0] for name in MODELS] == list(range(len(MODELS)))
    for name, simple, complex_ in (
        ("fmm", {"n_item_clusters": 8}, {"n_item_clusters": 16}),
        ("hpgm", {}, {"use_features": True}),
        ("sets", {"dependence": False}, {}),
    ):
        assert simplicity(build_model(name, simple)) < simplicity(build_model(name, complex_))


def test_gaps_by_hand() -> None:
    """Compute the differences of two items with two hidden labels each by hand."""
    items = np.array([0, 0, 1, 1], np.int32)
    logs = np.array([[-1.0, -1.0, -1.0, -1.0], [-1.1, -1.2, -1.3, -1.4], [-1.0, -1.2, -0.9, -1.1]])
    rows = [
        HeldOut(build_model(name, {}), log_p.mean(), log_p.mean(), 4, 0.0, 0, np.stack([log_p, log_p]), items)
        for name, log_p in zip(("hpgm", "fmm", "pgm"), logs, strict=True)
    ]
    best, second, tied = with_gaps(rows)
    assert best.behind_items == (0.0, 0.0)
    # behind by .1 .2 .3 .4, mean .25; by item −.2 and +.2 from it: √(.04 + .04) / 4
    assert second.behind_items == pytest.approx((0.25, math.sqrt(0.08) / 4))
    # by 0, .2, −.1, .1, mean .05; by item +.1 and −.1: √(.01 + .01) / 4, and .05 is less than two of these
    assert tied.behind_items == pytest.approx((0.05, math.sqrt(0.02) / 4))
    assert [row.as_row()["behind_items_tied"] for row in (best, second, tied)] == [True, False, True]
    assert [str(row.gap("population")) for row in (best, tied)] == ["best", "0.0500 ± 0.0354, tied"]


def test_many_labels_are_subsampled_by_item(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dissensus.evaluate.compare.MAX_COMPARED_LABELS", 250)
    labels = simulate(100, 20, 3, labels_per_item=5).annotations
    table = compare(labels, candidates=[("empirical", {})]).table
    # 50 items have 250 labels, of which a fifth is hidden
    assert table[0].n_hidden == 50


def test_title_of_a_model() -> None:
    sizes = {"n_item_clusters": 6, "n_annotator_clusters": 4}
    assert title_of(build_model("empirical", {"smoothing": 0.5})) == "empirical smoothing=0.5"
    assert title_of(build_model("fmm", {})) == "fmm 10"
    assert title_of(build_model("pgm", {**sizes, "seed": 3})) == "pgm 6×4"
    assert title_of(build_model("pgm", {**sizes, "inference": "vb"})) == "pgm 6×4 inference=vb"
