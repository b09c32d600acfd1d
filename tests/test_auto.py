"""Choosing a model by labels it has not seen."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError, ParameterError
from dissensus.evaluate.compare import (
    CANDIDATES,
    FAST_CANDIDATES,
    HeldOut,
    _chosen,
    compare,
    for_comparison,
    held_out_scores,
    with_gaps,
)
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import with_features
from dissensus.labels.simulation import simulate
from dissensus.models import MODELS, build_model, name_of, simplicity, title_of
from dissensus.models.counting import EmpiricalDistribution, MajorityVote
from dissensus.models.fmm import FMM

pytestmark = pytest.mark.no_cover


def one_kind_of_item_each() -> Annotations:
    """Half of the items are always labelled a or b alike often, the other half c or d."""
    rng = np.random.default_rng(0)
    item = np.repeat(np.arange(200), 6)
    annotator = np.tile(np.arange(6), 200)
    label = np.array(["a", "b", "c", "d"], dtype=object)[2 * (item >= 100) + rng.integers(2, size=len(item))]
    return Annotations.from_arrays(item, annotator, label)


def test_scores_are_the_mean_log_probability_of_the_hidden_labels() -> None:
    labels = simulate(30, 10, 3, seed=1).annotations
    kept, hidden = labels.split_labels(0.2, seed=5)
    expected = 0.0
    for m, y in zip(hidden.item, hidden.label, strict=True):
        given = [int(c) for i, c in zip(kept.item, kept.label, strict=True) if i == m]
        expected += math.log((given.count(int(y)) + 1) / (len(given) + 3)) / hidden.n_labels
    (row,) = held_out_scores(labels, [EmpiricalDistribution(smoothing=1.0)], seed=5)
    assert row.score == pytest.approx(expected, rel=1e-12)
    assert row.score_items == pytest.approx(expected, rel=1e-12)
    assert row.n_hidden == hidden.n_labels


def test_the_mixture_wins_where_items_come_in_kinds() -> None:
    # Two kinds of item, two equally likely labels each: knowing the kind costs log 2 a label. Five labels of
    # an item are too few for its counts to say "even", so the mixture foresees hidden labels better.
    mixtures = [("empirical", {}), ("fmm", {"n_item_clusters": 8}), ("fmm", {"n_item_clusters": 2})]
    choice = compare(one_kind_of_item_each(), seed=0, candidates=mixtures)
    assert name_of(choice.model) == "fmm"
    best = max(choice.table, key=lambda row: row.score_items)
    assert best.score_items == pytest.approx(-math.log(2), rel=0.05)
    assert choice.reason.startswith("fmm")


def test_a_comparison_leaves_settings_that_are_given_alone() -> None:
    assert for_comparison(build_model("hpgm", {})) == {"n_chains": 2, "n_sweeps": 90}
    assert for_comparison(build_model("hpgm", {"n_sweeps": 30})) == {"n_chains": 2}
    assert for_comparison(build_model("fmm", {})) == {}
    labels = simulate(60, 12, 3, labels_per_item=4, seed=1).annotations
    short, long = (held_out_scores(labels, [build_model("hpgm", {"n_sweeps": n})])[0] for n in (10, 60))
    assert short.score != long.score


def test_candidates_that_no_memory_is_left_for_are_refused_in_one_line() -> None:
    labels = simulate(60, 12, 3, labels_per_item=4, seed=1).annotations
    line = r"^\w+ on \d+ labels needs 250\.\d+MB of memory at least, and (9\.\d+|10)MB are allowed; "
    with ds.resources(memory="10MB"), pytest.raises(DataError, match=line):
        compare(labels)


def test_the_chosen_model_is_not_fitted_yet() -> None:
    choice = compare(simulate(30, 10, 3).annotations, candidates=FAST_CANDIDATES)
    assert not hasattr(choice.model, "label_distributions_")


@pytest.mark.slow
def test_every_candidate_is_in_the_table_once() -> None:
    table = compare(simulate(60, 30, 3).annotations).table
    assert [(name_of(row.model), row.as_row()["settings"]) for row in table] == [
        (name, build_model(name, settings, seed=0).get_params(deep=False))
        for name, settings in CANDIDATES
        if "use_features" not in settings  # these items have none
    ]


@pytest.mark.slow
def test_features_bring_a_candidate_that_uses_them() -> None:
    labels = simulate(40, 12, 3).annotations
    features = np.random.default_rng(0).normal(size=(40, 4))
    short = [("hpgm", {"n_sweeps": 10, "n_chains": 1}), ("hpgm", {"n_sweeps": 10, "use_features": True})]
    assert len(compare(labels, candidates=short).table) == 1
    assert len(compare(with_features(labels, features), candidates=short).table) == 2


def test_candidates_with_more_clusters_than_items_are_left_out() -> None:
    labels = simulate(12, 12, 3, labels_per_item=10).annotations
    table = compare(labels, candidates=FAST_CANDIDATES).table
    assert max(getattr(row.model, "n_item_clusters", 0) for row in table) <= 12
    # HPGM's numbers are upper bounds, so it is there whatever the numbers are
    bounds = [("hpgm", {"n_sweeps": 10, "n_chains": 1})]
    assert compare(labels, candidates=bounds).table


def test_models_that_need_annotators_are_left_out_of_class_counts() -> None:
    counts = Annotations.from_counts([[3, 1], [2, 2], [0, 4]] * 10)
    table = compare(counts).table
    assert table
    assert not any(row.model._needs_annotators for row in table)


def test_too_few_labels_to_choose_by_leave_the_smoothed_counts() -> None:
    # 97 pairs hide 19, one short of what a choice needs.
    labels = Annotations.from_counts([[97, 0]])
    choice = compare(labels)
    assert isinstance(choice.model, EmpiricalDistribution)
    assert choice.table == []
    assert choice.reason == "too few labels to choose by: empirical, without a comparison"
    assert compare(Annotations.from_counts([[98, 0]])).table != []


def test_one_label_an_item_leaves_nothing_to_compare() -> None:
    labels = simulate(200, 20, 3, labels_per_item=1).annotations
    choice = compare(labels)
    assert name_of(choice.model) == "hpgm"
    assert choice.table == []
    assert choice.reason.startswith("no item has two labels")
    assert isinstance(compare(labels, candidates=FAST_CANDIDATES).model, EmpiricalDistribution)
    # nor do labels that one annotator repeats
    again = Annotations.from_arrays(*(np.tile(ids, 2) for ids in named(labels)))
    assert compare(again).reason == choice.reason


def named(labels: Annotations) -> list[Any]:
    """Items, annotators and classes of the labels."""
    vocabularies = labels.items, labels.annotators, labels.classes
    return [ids[codes] for ids, codes in zip(vocabularies, labels.columns, strict=True)]


def row(name: str, pair: float, item: float, contradicted: int = 0, noise: int = 0) -> HeldOut:
    """A candidate with given scores on 400 hidden labels of 200 items; ``noise`` seeds what is its own."""
    own = 0.1 * np.random.default_rng(noise).normal(size=400) if noise else np.zeros(400)
    logs = np.stack([pair + own - own.mean(), item + own - own.mean()])
    items = np.repeat(np.arange(200), 2).astype(np.int32)
    return HeldOut(build_model(name, {}), pair, item, 400, 0.0, contradicted, logs, items)


def test_the_measure_is_that_of_the_question() -> None:
    table = with_gaps([row("hpgm", -1.0, -0.5), row("fmm", -0.5, -1.0)])
    assert name_of(_chosen(table, "population", "hpgm").model) == "hpgm"
    assert name_of(_chosen(table, "annotators", "hpgm").model) == "fmm"


def test_a_tied_default_stays_and_is_called_tied() -> None:
    # 0.001 nats apart, with a standard error of some 0.005
    table = with_gaps([row("cbcc", -1.0, -1.0, noise=1), row("hpgm", -1.001, -1.001)])
    choice = _chosen(table, "population", "hpgm")
    assert name_of(choice.model) == "hpgm"
    assert choice.reason.startswith("hpgm 20×20 is tied with cbcc 3 (0.0010 ± ")
    assert choice.reason.endswith(" behind) and is the default")
    # 0.1 nats are no tie
    table = with_gaps([row("hpgm", -1.1, -1.1), row("cbcc", -1.0, -1.0, noise=1)])
    apart = _chosen(table, "population", "hpgm")
    assert name_of(apart.model) == "cbcc"
    assert apart.reason == "cbcc 3 predicts hidden labels best"


def test_without_a_default_ties_go_to_the_simplest_whatever_the_order() -> None:
    tied = [
        row("hpgm", -1.0, -1.0),
        row("cbcc", -1.001, -1.001, noise=1),
        row("fmm", -1.002, -1.002, noise=2),
    ]
    for table in (tied, tied[::-1]):
        choice = _chosen(with_gaps(table), "population", None)
        assert name_of(choice.model) == "fmm"
        assert choice.reason.startswith("fmm 10 is tied with hpgm 20×20 (0.0020 ± ")
        assert choice.reason.endswith(" behind) and is the simplest")
    # nor is a default that is far behind one
    table = with_gaps([row("hpgm", -1.5, -1.5), row("pgm", -1.0, -1.0), row("fmm", -1.001, -1.001, noise=1)])
    assert name_of(_chosen(table, "population", "hpgm").model) == "fmm"


def test_among_the_tied_those_that_contradict_unanimity_come_last() -> None:
    table = [row("hpgm", -1.001, -1.001, contradicted=3), row("dawid-skene", -1.0, -1.0, noise=1)]
    choice = _chosen(with_gaps(table), "population", "hpgm")
    assert name_of(choice.model) == "dawid-skene"
    table = [row("fmm", -1.002, -1.002), row("cbcc", -1.0, -1.0, contradicted=3, noise=1)]
    choice = _chosen(with_gaps(table), "population", "hpgm")
    assert name_of(choice.model) == "fmm"
    assert choice.reason.endswith(
        "; cbcc 3 was passed over: on some items with 5 labels or more that all agree, it gives the common "
        "answer less than 60%"
    )


def test_every_model_has_its_place_from_the_simplest_on() -> None:
    places = [simplicity(build_model(name, {}))[0] for name in MODELS]
    assert places == list(range(len(MODELS)))
    assert simplicity(build_model("empirical", {})) < simplicity(build_model("dawid-skene", {}))
    small, large = (build_model("fmm", {"n_item_clusters": K}) for K in (8, 16))
    assert simplicity(small) < simplicity(large)
    assert simplicity(build_model("hpgm", {})) < simplicity(build_model("hpgm", {"use_features": True}))
    apart = build_model("sets", {"dependence": False})
    assert simplicity(apart) < simplicity(build_model("sets", {}))


def test_a_comparison_says_how_far_each_is_behind_and_who_is_tied() -> None:
    """Two items of two hidden labels each; the differences by hand, given the item."""
    items = np.array([0, 0, 1, 1], np.int32)
    logs = np.array([[-1.0, -1.0, -1.0, -1.0], [-1.1, -1.2, -1.3, -1.4], [-1.0, -1.2, -0.9, -1.1]])
    rows = [
        HeldOut(build_model(name, {}), one.mean(), one.mean(), 4, 0.0, 0, np.stack([one, one]), items)
        for name, one in zip(("hpgm", "fmm", "pgm"), logs, strict=True)
    ]
    best, apart, tied = with_gaps(rows)
    assert best.behind_items == (0.0, 0.0)
    # behind by .1 .2 .3 .4, mean .25; by item −.2 and +.2 from it: √(.04 + .04) / 4
    assert apart.behind_items == pytest.approx((0.25, math.sqrt(0.08) / 4))
    # by 0, .2, −.1, .1, mean .05; by item +.1 and −.1: √(.01 + .01) / 4, and .05 is less than two of these
    assert tied.behind_items == pytest.approx((0.05, math.sqrt(0.02) / 4))
    assert [row.as_row()["behind_items_tied"] for row in (best, apart, tied)] == [True, False, True]
    assert [str(row.gap("population")) for row in (best, tied)] == ["best", "0.0500 ± 0.0354, tied"]


def test_the_standard_error_is_taken_over_items() -> None:
    # Every item's two labels differ by the same amount: 200 independent differences, not 400.
    rng = np.random.default_rng(0)
    by_item = np.repeat(rng.normal(size=200), 2)
    first, second = row("fmm", 0.0, 0.0), row("cbcc", 0.0, 0.0)
    first = replace(first, logs=np.stack([by_item, by_item]))
    mean, error = first.ahead_of(second, "population")
    assert mean == pytest.approx(by_item.mean())
    assert error == pytest.approx(by_item[::2].std() / math.sqrt(200), rel=1e-9)


def test_a_question_that_is_none() -> None:
    with pytest.raises(ParameterError, match="'estimate' parameter of compare must be one of"):
        compare(simulate(30, 10, 3).annotations, estimate="truth")


def test_from_very_many_labels_a_part_of_the_items_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dissensus.evaluate.compare.MOST_LABELS", 250)
    labels = simulate(100, 20, 3, labels_per_item=5).annotations
    table = compare(labels, candidates=[("empirical", {})]).table
    # 250 labels are those of 50 items, and a fifth of them is hidden.
    assert table[0].n_hidden == 50


@pytest.mark.slow
def test_threads_change_nothing() -> None:
    labels = simulate(60, 20, 3).annotations
    scores = [[row.score for row in compare(labels, n_jobs=jobs).table] for jobs in (1, 2)]
    assert scores[0] == scores[1]


class Noting(FMM):
    """Notes on how many threads it was fitted."""

    def _fit(self, *given: Any, **more: Any) -> None:
        THREADS.append(self.n_jobs)
        super()._fit(*given, **more)


THREADS: list[int] = []


@pytest.mark.parametrize(("n_jobs", "threads"), [(1, 2), (2, 1)], ids=["in turn", "side by side"])
def test_models_that_run_side_by_side_have_one_thread_each(n_jobs: int, threads: int) -> None:
    THREADS.clear()
    models = [Noting(2, n_jobs=2), Noting(3, n_jobs=2)]
    table = held_out_scores(simulate(20, 8, 3).annotations, models, n_jobs=n_jobs)
    assert [threads, threads] == THREADS
    assert [row.model.n_jobs for row in table] == [2, 2]


def test_the_chosen_model_has_the_threads_that_were_given() -> None:
    labels = one_kind_of_item_each()
    choice = compare(labels, n_jobs=2, candidates=[("empirical", {}), ("fmm", {})])
    model, table = choice.model, choice.table
    assert [name_of(row.model) for row in table] == ["empirical", "fmm"]
    assert (name_of(model), model.n_jobs) == ("fmm", 2)


def test_progress_is_told() -> None:
    told: list[tuple[str, float]] = []
    models = [MajorityVote(), EmpiricalDistribution()]
    held_out_scores(
        simulate(20, 8, 3).annotations, models, n_jobs=1, progress=lambda *news: told.append(news)
    )
    assert [share for _, share in told] == [0.0, 0.5]
    assert told[0][0] == "held-out labels: majority"


@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_built_by_name(name: str) -> None:
    model = build_model(name, {}, seed=7, n_jobs=1)
    assert name_of(model) == name
    assert getattr(model, "seed", 7) == 7


@pytest.mark.parametrize(
    ("name", "settings", "title"),
    [
        ("majority", {}, "majority"),
        ("empirical", {"smoothing": 0.5}, "empirical smoothing=0.5"),
        ("fmm", {}, "fmm 10"),
        ("pgm", {"n_item_clusters": 6, "n_annotator_clusters": 4, "seed": 3}, "pgm 6×4"),
        ("pgm", {"n_item_clusters": 6, "n_annotator_clusters": 4, "inference": "vb"}, "pgm 6×4 inference=vb"),
    ],
)
def test_a_title_has_the_sizes_and_what_is_not_the_default(
    name: str, settings: dict[str, Any], title: str
) -> None:
    assert title_of(build_model(name, settings)) == title


def test_an_unknown_setting_names_the_near_one() -> None:
    with pytest.raises(ParameterError, match=r"no setting 'alfa'; did you mean 'alpha'\?"):
        build_model("fmm", {"alfa": 2.0})


def test_a_setting_outside_its_rule_is_refused_before_any_work() -> None:
    with pytest.raises(ParameterError, match="'n_item_clusters' parameter of FMM must be an int >= 1"):
        build_model("fmm", {"n_item_clusters": 0})
