"""The alternative annotator test against published figures and a direct implementation; who is a judge."""

import math
import time

import numpy as np
import pytest
from scipy.stats import false_discovery_control, ttest_1samp

import dissensus as ds
from dissensus.annotators.judge_detection import find_judges
from dissensus.errors import DataError, ParameterError
from dissensus.judges.answers import JudgeAnswers
from dissensus.judges.comparison import (
    benjamini_yekutieli,
    clustered_error,
    conditional_shares,
    judge_difference,
    replacement_test,
)
from experiments.judges import PUBLISHED, figures
from tests.helpers.judge import humans_and_judges, seen, table
from tests.helpers.sizes import usually


@pytest.mark.data
@pytest.mark.parametrize("case", PUBLISHED, ids=lambda case: case[0])
def test_published_figures(case, data_dir):
    name, label_type, epsilon = case
    folder = data_dir.parent / "judges" / name
    if not folder.is_dir():
        pytest.skip("the sets with judges are absent")
    labels = ds.read_annotations(folder / "annotations.csv", annotators=folder / "annotators.csv")
    started = time.process_time()
    report = ds.judge_report(labels, epsilon=epsilon, label_type=label_type)
    assert time.process_time() - started < 3
    assert figures(report) == PUBLISHED[case]


def direct_test(columns, judge, epsilon, values=None):
    """The test as described in the paper, in loops: winning rate and advantage probability."""

    def score(label, others):
        if values is None:
            return np.mean([label == other for other in others])
        return round(-np.sqrt(np.mean([(values[label] - values[other]) ** 2 for other in others])), 9)

    humans = [name for name in columns if name.startswith("h")]
    p_values, advantages = [], []
    for left_out in humans:
        differences, won = [], []
        for m, label in enumerate(columns[left_out]):
            others = [columns[h][m] for h in humans if h != left_out and columns[h][m] >= 0]
            if label < 0 or not others or columns[judge][m] < 0:
                continue
            human, machine = score(label, others), score(columns[judge][m], others)
            won.append(machine >= human)
            differences.append(float(human >= machine) - float(machine >= human))
        if len(won) >= 30:
            p_values.append(ttest_1samp(differences, epsilon, alternative="less").pvalue)
            advantages.append(np.mean(won))
    rejected = false_discovery_control(p_values, method="by") <= 0.05
    return rejected.mean(), np.mean(advantages)


@pytest.mark.parametrize("seed", range(usually(3, verify=20)))
@pytest.mark.parametrize("label_type", ["nominal", "ordinal"])
def test_a_direct_implementation_agrees(seed, label_type):
    rng = np.random.default_rng(seed)
    truth = rng.integers(4, size=150)
    columns = {f"h{i}": seen(rng, truth, 4, rng.uniform(0.4, 0.8)) for i in range(6)}
    columns = {name: np.where(rng.random(150) < 0.6, column, -1) for name, column in columns.items()}
    columns["gpt"] = seen(rng, truth, 4, 0.7)
    labels, values = table(columns), None if label_type == "nominal" else np.arange(4)
    expected = direct_test(columns, "gpt", 0.15, values)
    # ordinal classes without numbers count by their order
    words, names = ["low", "middle", "high", "top"], labels.annotators[labels.annotator]
    named = ds.Annotations.from_arrays(labels.item, names, np.array(words)[labels.label], classes=words)
    for crowd in (labels, named):
        row = ds.judge_report(crowd, "gpt", 0.15, label_type).rows()[0]
        np.testing.assert_allclose([row["winning_rate"], row["advantage"]], expected, rtol=1e-12)


def test_a_case_worked_by_hand():
    # item 0: humans 0, 0, 1; item 1: humans 0, 0, 0; the judge says 1 and 0
    columns = {"h0": [0, 0], "h1": [0, 0], "h2": [1, 0], "gpt": [1, 0]}
    labels = table({name: np.array(column) for name, column in columns.items()})
    test = replacement_test(JudgeAnswers.of(labels, labels.annotators == "gpt"), 0, 0.15)
    # Item 0: of h0's remaining humans (0, 1) one agrees with h0, one with the judge: both indicators are 1;
    # h1 alike; of h2's (0, 0) none agrees with h2 nor with the judge: 1 and 1. Item 1: all agree: 1 and 1.
    assert test.pooled_difference == 0.0
    assert test.n_humans_left_out == 3
    assert math.isnan(test.winning_rate)


def test_false_discoveries_are_scipys():
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 40):
        p_values = rng.random(size) ** 4
        expected = false_discovery_control(p_values, method="by") <= 0.05
        np.testing.assert_array_equal(benjamini_yekutieli(p_values), expected)


def test_perfect_reversed_and_random_judges():
    # without variance the mean decides
    columns = {name: np.arange(40) % 2 for name in ("h0", "h1", "h2", "gpt")}
    for judge, expected in ((columns["gpt"], (1.0, 1.0, 0.0)), (1 - columns["gpt"], (0.0, 0.0, math.inf))):
        row = ds.judge_report(table(columns | {"gpt": judge}), "gpt").rows()[0]
        assert (row["winning_rate"], row["advantage"], row["labels_needed"]) == expected
    for seed in range(5):
        rng = np.random.default_rng(seed)
        truth = rng.integers(3, size=200)
        columns = {f"human{i}": seen(rng, truth, 3, 0.8) for i in range(4)}
        row = ds.judge_report(table(columns | {"gpt": rng.integers(3, size=200)}), "gpt").rows()[0]
        assert (row["winning_rate"], row["passed"], row["pooled_passed"]) == (0.0, False, False)


# ---- the pooled test ----------------------------------------------------------------------------------


def crowd_of_many(seed, judge_accuracy, n_humans=150, n_items=300, each=6):
    """Humans with six items each: too few for the published test."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(2, size=n_items)
    item = np.concatenate([rng.choice(n_items, each, replace=False) for _ in range(n_humans)])
    human = np.repeat(np.arange(n_humans), each)
    accuracy = rng.beta(16, 4, size=n_humans)[human]
    label = np.where(rng.random(len(item)) < accuracy, truth[item], 1 - truth[item])
    judge = seen(rng, truth, 2, judge_accuracy)
    names = [f"h{n}" for n in human] + ["gpt"] * n_items
    items = np.concatenate([item, np.arange(n_items)])
    return ds.Annotations.from_arrays(items, names, np.concatenate([label, judge]))


def test_the_pooled_test_serves_many_humans_with_few_items():
    row = ds.judge_report(crowd_of_many(0, 0.9), "gpt").rows()[0]
    assert (row["n_humans"], math.isnan(row["winning_rate"])) == (0, True)
    assert row["pooled_passed"]
    assert not ds.judge_report(crowd_of_many(0, 0.6), "gpt").rows()[0]["pooled_passed"]


@pytest.mark.slow
def test_the_pooled_test_keeps_its_level():
    # a judge exactly as good as the average human (0.8): the difference is 0, and ε = 0 is the edge
    n, passed = usually(100, verify=1000), []
    for seed in range(n):
        crowd = crowd_of_many(seed, 0.8)
        is_judge = crowd.annotators == "gpt"
        answers = JudgeAnswers.of(crowd, is_judge, None)
        passed.append(replacement_test(answers, int(np.argmax(is_judge)), 0.0).pooled_passed)
    assert np.mean(passed) <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / n)


def test_clustered_error_by_hand():
    # two humans, two items, all four pairs: values +1 of one human and −1 of the other
    human, item = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    error, freedom = clustered_error(np.array([1.0, 1.0, -1.0, -1.0]), human, item)
    # V_human = (2² + 2²) 2/1 = 16, V_item = 0, V_row = 4 · 4/3; (16 + 0 − 16/3) / 4² = 2/3
    assert (error, freedom) == (pytest.approx(math.sqrt(2 / 3), rel=1e-12), 1)


# ---- the verdict --------------------------------------------------------------------------------------


def judged(seed, n_items, judge, n_classes=3):
    """Five humans who are right with 80 %, and a judge of the given kind."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n_items)
    misread = rng.random(n_items) < 0.4  # humans take these items for another class, if the judge is right
    seen_as = np.where(misread, (truth + 1) % n_classes, truth) if judge == "right" else truth
    columns = {f"h{i}": seen(rng, seen_as, n_classes, 0.8) for i in range(5)}
    votes = np.array([np.bincount(row, minlength=n_classes) for row in np.array(list(columns.values())).T])
    columns["gpt"] = {
        "random": rng.integers(n_classes, size=n_items),
        "constant": np.zeros(n_items, dtype=int),
        "copy": columns["h2"],
        "majority": votes.argmax(axis=1),
        "equal": seen(rng, truth, n_classes, 0.8),
        "right": truth,
    }[judge]
    return table(columns), truth


def test_verdicts_on_judges_of_known_quality():
    none = "more labels would not help: it is behind the humans by more than the tolerance"
    expected = {
        ("random", 300): ("no", "0 of 5 humans", none),
        ("random", 30): ("no", "0 of 5 humans", none),
        ("constant", 300): ("no", "0 of 5 humans", none),
        ("copy", 300): ("replaces", "5 of 5 humans", "no further labels are needed"),
        ("majority", 300): ("replaces", "5 of 5 humans", "no further labels are needed"),
        ("majority", 20): ("", "–", "only 20 of the 30 items for a verdict have labels of two humans"),
        ("equal", 300): ("replaces", "5 of 5 humans", "no further labels are needed"),
        ("right", 1000): ("no", "0 of 5 humans", none),
    }
    for (judge, n_items), words in expected.items():
        row = ds.judge_report(judged(0, n_items, judge)[0], "gpt").rows()[0]
        assert (row["verdict"], row["within_epsilon_of"], row["settled_by"]) == words, judge
    row = ds.judge_report(judged(0, 40, "equal")[0], "gpt").rows()[0]
    assert row["verdict"] == "nearly"
    assert row["settled_by"].endswith(
        " more labels of humans would show that it replaces one, if this remains"
    )


def test_a_judge_not_shown_to_be_behind_may_gain_from_more_labels():
    nearly = set()
    for seed in range(40):
        labels = judged(seed, 32, "equal")[0]
        row = ds.judge_report(labels, "gpt", epsilon=0.02).rows()[0]
        if row["verdict"] == "nearly":
            nearly.add(row["settled_by"].partition(":")[0])
            assert "would not help" not in row["settled_by"]
    assert "so far it is behind by more than the tolerance, but these labels are too few to show it" in nearly


def test_a_judge_as_good_as_the_humans_is_rarely_refused():
    n = usually(40, verify=400)
    verdicts = []
    for seed in range(n):
        labels = judged(seed, 60, "equal")[0]
        answers = JudgeAnswers.of(labels, labels.annotators == "gpt")
        verdicts.append(replacement_test(answers, int(answers.judges[0]), 0.15).verdict)
    assert verdicts.count("no") <= n * (0.05 + 2.6 * math.sqrt(0.05 * 0.95 / n))
    assert {"nearly", "replaces"} <= set(verdicts)


def test_the_pooled_test_decides_for_many_humans_with_few_items():
    for accuracy, verdict, as_good in ((0.9, "replaces", "the average human"), (0.5, "no", "–")):
        row = ds.judge_report(crowd_of_many(0, accuracy), "gpt").rows()[0]
        assert (row["by_humans"], row["verdict"], row["within_epsilon_of"]) == (False, verdict, as_good)
    assert math.isfinite(
        ds.judge_report(crowd_of_many(0, 0.78, n_humans=30), "gpt").rows()[0]["labels_needed"]
    )


def test_a_copy_of_a_human_and_a_judge_that_gold_confirms_are_noted():
    copy = ds.judge_report(judged(0, 300, "copy")[0], "gpt").notes
    assert len(copy) == 1
    assert copy[0].startswith("gpt gives h2's answer on ")
    assert copy[0].endswith("if one of them has seen the other's labels, leave it out")
    for judge in ("equal", "majority", "right", "random"):
        assert ds.judge_report(judged(0, 300, judge)[0], "gpt").notes == []
    for judge, n_notes in (("random", 0), ("right", 1)):
        labels, truth = judged(0, 300, judge)
        gold = {"item": labels.items, "label": truth[labels.items.astype(int)]}
        notes = ds.judge_report(labels.with_tables(gold=gold), "gpt").notes
        assert len(notes) == n_notes
    votes = labels.take_rows(labels.annotators[labels.annotator] != "gpt").counts
    first, second = np.sort(votes, axis=1)[:, :-3:-1].T
    apart = ((first > second) & (votes.argmax(axis=1) != truth[labels.items.astype(int)])).sum()
    where = f"on the {apart} items where it differs from the most frequent answer of the humans"
    assert notes == [f"gpt has the gold label on {apart}, and they on 0, {where}"]


# ---- differences --------------------------------------------------------------------------------------


def test_confusion_and_agreement_by_hand():
    # three items with two humans each: 00, 01, 11; the judge says 0, 1, 1
    columns = {"h0": np.array([0, 0, 1]), "h1": np.array([0, 1, 1]), "gpt": np.array([0, 1, 1])}
    difference = judge_difference(JudgeAnswers.of(table(columns), np.array([True, False, False])), 0)
    np.testing.assert_allclose(difference.confusion, [[1 / 1.5, 0.5 / 1.5], [0, 1]])
    # pairs of humans that begin with 0: two on item 00 (both 0), one on item 01
    np.testing.assert_allclose(difference.among_humans, [[2 / 3, 1 / 3], [1 / 3, 2 / 3]])
    assert difference.agreement == pytest.approx((1 + 0.5 + 1) / 3)
    assert difference.human_agreement == pytest.approx((1 + 0 + 1) / 3)


def test_intervals_of_shares_are_wilsons():
    # 20 of 20: 1 / (1 + z² / n) = 0.8389 (Wilson 1927); 15 of 20: with Student's quantile 2.0930 of 19
    # degrees of freedom in place of z, (0.75 + z² / 40 ± z √(0.1875 / 20 + z² / 1600)) / (1 + z² / 20)
    weights = np.eye(2)[np.repeat([1, 0], 20)]
    outcomes = np.eye(2)[np.r_[np.ones(20, int), np.zeros(15, int), np.ones(5, int)]]
    share, (low, high) = conditional_shares(weights, outcomes)
    np.testing.assert_allclose([share[1, 1], low[1, 1], high[1, 1]], [1, 0.8389, 1], atol=5e-5)
    np.testing.assert_allclose([share[0, 0], low[0, 0], high[0, 0]], [0.75, 0.5161, 0.8940], atol=5e-5)


def test_a_judge_like_a_human_differs_like_a_human():
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=3000)
    columns = {f"h{i}": seen(rng, truth, 3, 0.7) for i in range(4)} | {"gpt": seen(rng, truth, 3, 0.7)}
    report = ds.judge_report(table(columns))
    row = report.rows()[0]
    assert row["agreement"] == pytest.approx(row["human_agreement"], abs=0.02)
    shares = report.confusion_frame()
    # two with an accuracy of 70 % agree in 0.7² + 2 · 0.15² = 0.535, and give either other class in 0.2325
    expected = np.where(shares.human == shares.answer, 0.535, 0.2325)
    for column in (shares.chance, shares.among_humans):
        assert (abs(column - expected) < 0.04).all()
    assert ((shares.low <= expected) & (expected <= shares.high)).sum() >= 7


def test_planted_errors_of_a_judge_are_listed():
    rng = np.random.default_rng(0)
    truth, wrong = rng.integers(3, size=200), [3, 77, 150]
    columns = {f"h{i}": seen(rng, truth, 3, 0.9) for i in range(6)}
    for column in columns.values():
        column[wrong] = truth[wrong]
    judge = truth.copy()
    judge[wrong] = (truth[wrong] + 1) % 3
    items = ds.judge_report(table(columns | {"gpt": judge})).items_frame()
    assert sorted(items.item.tolist()) == wrong
    assert (items.share_as_judge < 0.1).all()
    assert not items.humans_split.any()


def test_bias_of_a_judge_by_hand():
    # the judge labels 7 of 8 items 1; both humans, who agree, 4
    humans = {"h1": [0, 0, 0, 0, 1, 1, 1, 1], "h2": [0, 0, 0, 0, 1, 1, 1, 1]}
    report = ds.judge_report(table(humans | {"gpt": [0, 1, 1, 1, 1, 1, 1, 1]}))
    (row,) = report.rows()
    assert repr(report) == "JudgeReport(1 judge, 2 humans; 0 may replace a human)"
    assert (row["bias_of"], row["bias"]) == ("1", pytest.approx(3 / 8))
    error = np.std([0, 1, 1, 1, 0, 0, 0, 0], ddof=1) / np.sqrt(8)
    assert row["bias_error"] == pytest.approx(1.959964 * error, rel=1e-6)


# ---- who is a judge -----------------------------------------------------------------------------------


def test_judges_are_identified_by_column_pattern_ids_or_names():
    labels = table({name: np.array([0, 1]) for name in ("ann", "bob", "gpt-4o", "gpt-4o-mini")})
    kinds = {"annotator": list(labels.annotators), "kind": ["human", "human", "llm", "LLM"]}
    with_kinds = labels.with_tables(annotators=kinds)
    ids = ["gpt-4o", "gpt-4o-mini"]
    cases = (with_kinds, None), (with_kinds, "kind"), (labels, "gpt*"), (labels, ids), (labels, None)
    for crowd, judges in cases:
        assert find_judges(crowd, judges)[0].tolist() == [False, False, True, True]
    assert find_judges(with_kinds, "kind=llm")[0].tolist() == [False, False, True, False]
    people = table({name: np.array([0, 1]) for name in ("Philippa", "yin", "commander", "w3", "gpt-4")})
    assert people.annotators[find_judges(people)[0]].tolist() == ["gpt-4"]


def test_missing_judges_are_an_error():
    labels = table({name: np.array([0, 1]) for name in ("ann", "bob")})
    for judges, error, message in (
        (None, DataError, "no annotator is known to be a judge"),
        ("claude*", ParameterError, "matches no annotator id"),
        (["zoe"], ParameterError, "'zoe', who is not among the annotators"),
    ):
        with pytest.raises(error, match=message):
            ds.judge_report(labels, judges)


def test_unusual_tables_have_notes():
    report = ds.judge_report(humans_and_judges(0, 60, humans=0))
    assert report.n_humans == 0
    assert "no human labels" in report.notes[0]
    answers = [report.answers.answers_of(j) for j in report.answers.judges]
    by_hand = np.mean([(answers[0] == other).mean() for other in answers[1:]])
    assert report.rows()[0]["agreement_with_judges"] == pytest.approx(by_hand, rel=1e-12)
    # h0 labels the item 1, 0, 1: the most frequent label counts once
    names = ["h0", "h0", "h0", "h1", "gpt"]
    report = ds.judge_report(ds.Annotations.from_arrays([0] * 5, names, [1, 0, 1, 1, 1]))
    assert report.answers.human_counts.tolist() == [[0, 2]]
    assert "2 repeated labels" in report.notes[0]
    labels = ds.Annotations.from_arrays([0, 1] * 2, ["h0", "h0", "gpt", "gpt"], ["1", "none", "1", "1"])
    with pytest.raises(DataError, match="'none' is not a number"):
        ds.judge_report(labels, "gpt", label_type="numeric")
