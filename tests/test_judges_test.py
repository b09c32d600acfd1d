"""The alternative annotator test: published figures, a plain twin, its pooled version, who is a judge."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest
from scipy.stats import false_discovery_control, ttest_1samp

import dissensus as ds
from dissensus.annotators.judge_detection import find_judges
from dissensus.errors import DataError, ParameterError
from dissensus.judges.answers import Answers
from dissensus.judges.comparison import clustered_error, discovered, may_replace
from experiments.judges import PUBLISHED, figures
from judge_help import humans_and_judges, seen, table
from sizes import usually


def read_set(data_dir, name):
    folder = data_dir.parent / "judges" / name
    if not folder.is_dir():
        pytest.skip("the sets with judges are absent")
    return ds.read_annotations(folder / "annotations.csv", annotators=folder / "annotators.csv")


@pytest.mark.data
@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case[0])
def test_the_published_figures(case, data_dir):
    name, label_type, epsilon = case
    labels = read_set(data_dir, name)
    started = time.process_time()
    report = ds.judge_report(labels, epsilon=epsilon, label_type=label_type)
    assert time.process_time() - started < 3
    assert figures(report) == PUBLISHED[case]


def plain_twin(columns, judge, epsilon, values=None):
    """The test as the paper tells it, in loops: winning rate and advantage probability."""
    humans = [name for name in columns if name.startswith("h")]
    p_values, advantages = [], []
    for left_out in humans:
        differences, won = [], []
        for m, own in enumerate(columns[left_out]):
            others = [columns[h][m] for h in humans if h != left_out and columns[h][m] >= 0]
            if own < 0 or not others or columns[judge][m] < 0:
                continue
            score = agreement if values is None else negative_rmse(values)
            human, machine = score(own, others), score(columns[judge][m], others)
            won.append(machine >= human)
            differences.append(float(human >= machine) - float(machine >= human))
        if len(won) >= 30:
            p_values.append(ttest_1samp(differences, epsilon, alternative="less").pvalue)
            advantages.append(np.mean(won))
    rejected = false_discovery_control(p_values, method="by") <= 0.05
    return rejected.mean(), np.mean(advantages)


def agreement(own, others):
    return np.mean([own == other for other in others])


def negative_rmse(values):
    return lambda own, others: round(-np.sqrt(np.mean([(values[own] - values[o]) ** 2 for o in others])), 9)


@pytest.mark.parametrize("seed", range(usually(3, verify=20)))
@pytest.mark.parametrize("label_type", ["nominal", "ordinal"])
def test_a_plain_twin_agrees(seed, label_type):
    rng = np.random.default_rng(seed)
    truth = rng.integers(4, size=150)
    columns = {f"h{i}": seen(rng, truth, 4, rng.uniform(0.4, 0.8)) for i in range(6)}
    columns = {name: np.where(rng.random(150) < 0.6, column, -1) for name, column in columns.items()}
    columns["gpt"] = seen(rng, truth, 4, 0.7)
    values = None if label_type == "nominal" else np.arange(4)
    expected = plain_twin(columns, "gpt", 0.15, values)
    row = ds.judge_report(table(columns), "gpt", 0.15, label_type).rows()[0]
    np.testing.assert_allclose([row["winning_rate"], row["advantage"]], expected, rtol=1e-12)


def test_a_case_worked_by_hand():
    # Three humans, two items; the judge says 1 and 0. Item 0: humans 0, 0, 1. Item 1: humans 0, 0, 0.
    columns = {
        "h0": np.array([0, 0]),
        "h1": np.array([0, 0]),
        "h2": np.array([1, 0]),
        "gpt": np.array([1, 0]),
    }
    answers = Answers.of(table(columns), np.array([True, False, False, False]), None)
    found = may_replace(answers, 0, 0.15)
    # Item 0: of h0's remaining humans (0, 1) one agrees with h0, one with the judge: both indicators are 1;
    # h1 alike; of h2's (0, 0) none agrees with h2 nor with the judge: 1 and 1. Item 1: all agree: 1 and 1.
    assert found.pooled_difference == 0.0
    assert found.n_humans_left_out == 3
    assert math.isnan(found.winning_rate)


def test_false_discoveries_are_those_of_benjamini_and_yekutieli():
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 40):
        p_values = rng.random(size) ** 4
        expected = false_discovery_control(p_values, method="by") <= 0.05
        np.testing.assert_array_equal(discovered(p_values), expected)


def test_humans_without_spread_are_decided_by_their_mean():
    # The judge says what all humans say: no difference anywhere, which is below epsilon and above none.
    columns = {name: np.arange(40) % 2 for name in ("h0", "h1", "h2", "gpt")}
    row = ds.judge_report(table(columns), "gpt").rows()[0]
    assert (row["winning_rate"], row["advantage"], row["labels_needed"]) == (1.0, 1.0, 0.0)
    hopeless = columns | {"gpt": 1 - np.arange(40) % 2}
    row = ds.judge_report(table(hopeless), "gpt").rows()[0]
    assert (row["winning_rate"], row["advantage"], row["labels_needed"]) == (0.0, 0.0, math.inf)


def test_ordinal_classes_without_numbers_count_by_their_order():
    words = ["low", "middle", "high"]
    rng = np.random.default_rng(1)
    truth = rng.integers(3, size=120)
    columns = {f"h{i}": seen(rng, truth, 3, 0.6) for i in range(4)} | {"gpt": seen(rng, truth, 3, 0.6)}
    labels = table(columns)
    named = ds.Annotations.from_arrays(
        labels.item, labels.annotators[labels.annotator], np.array(words)[labels.label], classes=words
    )
    expected = plain_twin(columns, "gpt", 0.15, np.arange(3))
    row = ds.judge_report(named, "gpt", label_type="ordinal").rows()[0]
    np.testing.assert_allclose([row["winning_rate"], row["advantage"]], expected, rtol=1e-12)


def test_a_class_that_is_no_number_is_refused_for_numbers():
    columns = {"h0": ["1", "2"], "h1": ["2", "none"], "gpt": ["1", "1"]}
    items, names = [0, 1] * 3, np.repeat(list(columns), 2)
    labels = ds.Annotations.from_arrays(items, names, np.concatenate(list(columns.values())))
    with pytest.raises(DataError, match="'none' is not a number"):
        ds.judge_report(labels, "gpt", label_type="numeric")


# ---- the pooled test ----------------------------------------------------------------------------------


def crowd_of_many(seed, judge_accuracy, n_humans=150, n_items=300, each=6):
    """Humans with six items each: too few for the published test."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=n_items)
    item = np.concatenate([rng.choice(n_items, each, replace=False) for _ in range(n_humans)])
    human = np.repeat(np.arange(n_humans), each)
    accuracy = rng.beta(16, 4, size=n_humans)[human]
    label = np.where(rng.random(len(item)) < accuracy, truth[item], 1 - truth[item])
    names = [f"h{n}" for n in human] + ["gpt"] * n_items
    return ds.Annotations.from_arrays(
        np.concatenate([item, np.arange(n_items)]),
        names,
        np.concatenate([label, seen(rng, truth, 2, judge_accuracy)]),
    )


def test_many_humans_with_few_items_are_served_by_the_pooled_test():
    row = ds.judge_report(crowd_of_many(0, 0.9), "gpt").rows()[0]
    assert (row["n_humans"], math.isnan(row["winning_rate"])) == (0, True)
    assert row["pooled_passed"]
    assert not ds.judge_report(crowd_of_many(0, 0.6), "gpt").rows()[0]["pooled_passed"]


@pytest.mark.slow
@pytest.mark.parametrize("n", [usually(100, verify=1000)])
def test_the_pooled_test_keeps_its_level(n):
    # A judge exactly as good as the average human (0.8): the difference is 0, so ε = 0 is the edge.
    rejected = [
        may_replace(
            Answers.of(crowd, crowd.annotators == "gpt", None), int(np.argmax(crowd.annotators == "gpt")), 0.0
        ).pooled_passed
        for crowd in (crowd_of_many(seed, 0.8) for seed in range(n))
    ]
    assert np.mean(rejected) <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / n)


def test_clusters_that_share_all_widen_the_error_as_counted_by_hand():
    # Two humans, two items, all four pairs: values +1 of one human and −1 of the other.
    error, freedom = clustered_error(
        np.array([1.0, 1.0, -1.0, -1.0]), np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    )
    # V_human = (2² + 2²) 2/1 = 16, V_item = 0, V_row = 4 · 4/3; (16 + 0 − 16/3) / 4² = 2/3
    assert error == pytest.approx(math.sqrt(2 / 3), rel=1e-12)
    assert freedom == 1


# ---- who is a judge -----------------------------------------------------------------------------------


def with_kinds(labels, kinds):
    return labels.with_tables(annotators={"annotator": list(labels.annotators), "kind": kinds})


def test_judges_are_found_by_column_pattern_ids_and_names():
    labels = table({name: np.array([0, 1]) for name in ("ann", "bob", "gpt-4o", "gpt-4o-mini")})
    expected = [False, False, True, True]
    kinds = with_kinds(labels, ["human", "human", "llm", "LLM"])
    for known, asked in [
        (kinds, None), (kinds, "kind"), (labels, "gpt*"), (labels, ["gpt-4o", "gpt-4o-mini"]), (labels, None),
    ]:  # fmt: skip
        assert find_judges(known, asked)[0].tolist() == expected
    assert find_judges(kinds, "kind=llm")[0].tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        (None, DataError, "nobody says who is a judge"),
        ("claude*", ParameterError, "fits none as a pattern"),
        (["zoe"], ParameterError, "'zoe', who gave no label"),
    ],
)
def test_nobody_who_is_a_judge_is_an_error_with_a_remedy(asked, error, words):
    labels = table({name: np.array([0, 1]) for name in ("ann", "bob")})
    with pytest.raises(error, match=words):
        ds.judge_report(labels, asked)


def test_people_with_names_that_only_contain_a_models_are_people():
    labels = table({name: np.array([0, 1]) for name in ("Philippa", "yin", "commander", "w3", "gpt-4")})
    assert labels.annotators[find_judges(labels)[0]].tolist() == ["gpt-4"]


def test_judges_alone_are_told_to_be_alone():
    labels = humans_and_judges(0, 60, humans=0)
    found = ds.judge_report(labels)
    assert found.n_humans == 0
    assert "no human gave a label" in found.notes[0]
    given = [found.answers.answers_of(j) for j in found.answers.judges]
    by_hand = np.mean([(given[0] == other).mean() for other in given[1:]])
    assert found.rows()[0]["agreement_with_judges"] == pytest.approx(by_hand, rel=1e-12)


def test_repeated_labels_count_once():
    # h0 gave item 0 twice class 1 and once class 0.
    labels = ds.Annotations.from_arrays([0, 0, 0, 0, 0], ["h0", "h0", "h0", "h1", "gpt"], [1, 0, 1, 1, 1])
    found = ds.judge_report(labels)
    assert found.answers.human_counts.tolist() == [[0, 2]]
    assert "2 repeated labels" in found.notes[0]


@pytest.mark.parametrize("seed", range(5))
def test_a_judge_who_tosses_a_coin_replaces_nobody(seed):
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=200)
    columns = {f"human{i}": seen(rng, truth, 3, 0.8) for i in range(4)} | {"gpt": rng.integers(3, size=200)}
    row = ds.judge_report(table(columns), "gpt").rows()[0]
    assert (row["winning_rate"], row["passed"], row["pooled_passed"]) == (0.0, False, False)
