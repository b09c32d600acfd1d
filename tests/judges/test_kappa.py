"""κ of judges and of humans: independent libraries, enumeration, coverage of the intervals."""

import math

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

import dissensus as ds
from dissensus.judges.answers import JudgeAnswers
from dissensus.judges.kappa import excess_disagreement, human_kappa, human_kappas, judge_kappa, outliers
from experiments.judges import kappa_coverage, split_crowd
from tests.helpers.judge import seen, table
from tests.helpers.sizes import usually


def answers_of(columns, label_type="nominal"):
    labels = table(columns)
    return JudgeAnswers.of(labels, labels.annotators == "gpt", label_type)


@pytest.mark.parametrize(
    ("label_type", "weights"), [("nominal", None), ("ordinal", "quadratic"), ("numeric", "quadratic")]
)
def test_kappa_with_one_human_is_that_of_scikit_learn(label_type, weights):
    rng = np.random.default_rng(0)
    truth = rng.integers(5, size=90)
    columns = {"gpt": seen(rng, truth, 5, 0.6), "h": seen(rng, truth, 5, 0.7)}
    answers = answers_of(columns, label_type)
    expected = cohen_kappa_score(columns["h"], columns["gpt"], weights=weights)
    assert judge_kappa(answers, answers.answers_of(0), answers.human_counts).value == pytest.approx(
        expected, abs=1e-12
    )
    # a human with the others is compared in the same way
    both = answers_of({"h1": columns["gpt"], "h2": columns["h"]}, label_type)
    assert human_kappas(both, 9)[0][1].value == pytest.approx(expected, abs=1e-12)


def direct_kappa(columns, squared):
    """κ of the judge, and of a human with the others, in loops over items, humans and classes."""

    def distance(a, b):
        return (a - b) ** 2 if squared else float(a != b)

    humans = [column for name, column in columns.items() if name != "gpt"]
    items = [[column[m] for column in humans if column[m] >= 0] for m in range(len(columns["gpt"]))]
    used = [m for m in range(len(items)) if items[m] and columns["gpt"][m] >= 0]
    observed = np.mean([np.mean([distance(columns["gpt"][m], x) for x in items[m]]) for m in used])
    chance = np.mean(
        [[np.mean([distance(columns["gpt"][k], x) for x in items[m]]) for m in used] for k in used]
    )
    two = [x for x in items if len(x) > 1]
    pairs = np.mean(
        [np.mean([distance(a, b) for i, a in enumerate(x) for j, b in enumerate(x) if i != j]) for x in two]
    )
    by_chance = np.mean([[np.mean([distance(a, b) for a in x for b in y]) for x in two] for y in two])
    return 1 - observed / chance, 1 - pairs / by_chance


@pytest.mark.parametrize("label_type", ["nominal", "ordinal"])
def test_kappa_with_missing_labels_is_that_of_enumeration(label_type):
    rng = np.random.default_rng(1)
    truth = rng.integers(4, size=40)
    columns = {f"h{i}": np.where(rng.random(40) < 0.6, seen(rng, truth, 4, 0.7), -1) for i in range(4)}
    columns["gpt"] = np.where(rng.random(40) < 0.9, seen(rng, truth, 4, 0.7), -1)
    answers = answers_of(columns, label_type)
    judge, human = direct_kappa(columns, label_type == "ordinal")
    assert judge_kappa(answers, answers.answers_of(0), answers.human_counts).value == pytest.approx(
        judge, abs=1e-12
    )
    assert human_kappa(answers, answers.human_counts).value == pytest.approx(human, abs=1e-12)


def test_kappa_of_two_humans_is_fleiss_and_the_majority_exceeds_it():
    rng = np.random.default_rng(2)
    truth = rng.integers(3, size=300)
    columns = {f"h{i}": seen(rng, truth, 3, 0.75) for i in range(5)}
    humans = table(columns)
    columns["gpt"] = humans.counts.argmax(axis=1)
    row = ds.judge_report(table(columns), "gpt").rows()[0]
    fleiss = pytest.importorskip("statsmodels.stats.inter_rater").fleiss_kappa(humans.counts)
    assert row["human_kappa"] == pytest.approx(fleiss, abs=1e-12)
    same = ds.agreement(humans, "fleiss").to_frame().iloc[0]
    ends = [row["human_kappa_low"], row["human_kappa_high"]]
    np.testing.assert_allclose(ends, [same.low, same.high], atol=1e-12)
    assert row["kappa"] > row["human_kappa_high"]
    assert row["kappa"] < 1


def test_kappa_without_chance_disagreement_or_without_any():
    same = np.zeros(40, dtype=int)
    answers = answers_of({"gpt": same, "h1": same, "h2": same})
    assert math.isnan(judge_kappa(answers, same, answers.human_counts).value)
    half = np.arange(40) % 2
    answers = answers_of({"gpt": half, "h1": half, "h2": half})
    value, low, high, n = judge_kappa(answers, half, answers.human_counts)
    # 40 items without disagreement have the probability 0.05 if its share is 1 − 0.05^(1/40); chance is 1/2
    assert (value, high, n) == (1.0, 1.0, 40)
    assert low == pytest.approx(1 - (1 - 0.05 ** (1 / 40)) / 0.5)


# ---- outliers -----------------------------------------------------------------------------------------


def crowd(rng, n_humans, n_items, p, spread, per_item=3, label_type="nominal"):
    """Humans who draw from the distribution of the item: κ = 1 / (1 + spread) for each of them."""
    shares = rng.dirichlet(np.array(p) * spread, size=n_items).cumsum(axis=1)
    draws = (rng.random((n_humans, n_items, 1)) > shares[:, :-1]).sum(axis=2)
    chosen = rng.random((n_humans, n_items)).argsort(axis=0) < per_item
    columns = dict(enumerate(np.where(chosen, draws, -1)))
    return columns, lambda: JudgeAnswers.of(table(columns), np.zeros(n_humans, bool), label_type)


EVEN, RARE = [0.4, 0.3, 0.3], [0.9, 0.1]


@pytest.mark.parametrize(
    "crowds",
    [
        {"n_humans": 10, "n_items": 300, "p": EVEN, "spread": 1},
        {"n_humans": 10, "n_items": 300, "p": EVEN, "spread": 30},  # κ = 0.03
        {"n_humans": 3, "n_items": 35, "p": EVEN, "spread": 2},
        {"n_humans": 20, "n_items": 400, "p": RARE, "spread": 2},  # 6 items of the rare class per human
        {
            "n_humans": 20,
            "n_items": 400,
            "p": [0.02, 0.03, 0.05, 0.9],
            "spread": 0.5,
            "label_type": "ordinal",
        },
        {"n_humans": 50, "n_items": 800, "p": EVEN, "spread": 2, "per_item": 2},
    ],
)
def test_equal_humans_have_no_outlier(crowds):
    crowd_of = (crowd(np.random.default_rng(seed), **crowds)[1]() for seed in range(200))
    assert sum(bool(outliers(answers)[0]) for answers in crowd_of) <= 4


@pytest.mark.parametrize("label_type", ["nominal", "ordinal"])
@pytest.mark.parametrize("p", [EVEN, RARE])
def test_random_and_constant_humans_are_outliers(p, label_type):
    rng = np.random.default_rng(0)
    columns, answers = crowd(rng, 8, 1200, p, 0.5, label_type=label_type)
    assert outliers(answers())[0] == {}
    first = columns[5].copy()
    columns[5][first >= 0] = first.max()  # the same answer to all items
    assert outliers(answers())[0] == {5: pytest.approx(0, abs=1e-12)}
    columns[5][first >= 0] = rng.permutation(first[first >= 0])
    low, lowest = outliers(answers())
    assert low.keys() == {5}
    assert abs(low[5]) < 0.15
    assert 0.4 < lowest < 0.7
    # with 29 items, a human is not tested; of two humans, none is the outlier
    columns[5][np.flatnonzero(columns[5] >= 0)[29:]] = -1
    assert outliers(answers())[0] == {}
    columns.clear()
    columns |= {0: np.arange(60) % 2, 1: rng.integers(2, size=60)}
    answers = JudgeAnswers.of(table(columns), np.zeros(2, bool))
    assert outliers(answers) == ({}, pytest.approx(math.nan, nan_ok=True))


def test_excess_disagreement_is_linear_in_the_items():
    """Its mean is 0 at the κ of the human, and the deviations are those of the jackknife."""
    columns, answers = crowd(np.random.default_rng(3), 6, 200, EVEN, 1)
    ((_, kappa),) = [pair for pair in human_kappas(answers(), 6) if pair[0] == 0]
    excess = excess_disagreement(answers(), 0, kappa.value)
    assert excess.mean() == pytest.approx(0, abs=1e-12)
    assert len(excess) == kappa.n_items
    # κ without item m is about κ + z_m / (n C), with C the mean chance disagreement
    chance = (excess_disagreement(answers(), 0, 0.0) - excess_disagreement(answers(), 0, 1.0)).mean() * -1
    items = np.flatnonzero(columns[0] >= 0)
    for item, z in zip(items[:20], excess[:20], strict=True):
        label, columns[0][item] = columns[0][item], -1
        ((_, without),) = [pair for pair in human_kappas(answers(), 6) if pair[0] == 0]
        columns[0][item] = label
        assert without.value - kappa.value == pytest.approx(z / len(items) / chance, abs=3e-4)


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3])
def test_intervals_cover_kappa_if_humans_split_two_to_one(n_classes):
    n = usually(300, verify=1000)
    for share in (1 / 3, 1.0):
        values = kappa_coverage(split_crowd(n_classes, share), 200, n)
        if share == 1.0:  # κ of a human depends on the class shares alone, near their extremum
            del values["a human"]
        for name, coverage in values.items():
            assert abs(coverage - 0.95) <= 0.02 + 2 * math.sqrt(0.05 * 0.95 / n), name


def test_a_judge_is_compared_on_the_items_on_which_humans_are():
    # three humans label the hard items only; on the others, one human and the judge are nearly always right
    rng = np.random.default_rng(0)
    truth, hard = rng.integers(2, size=600), np.arange(600) < 150
    columns = {f"h{i}": np.where(hard, seen(rng, truth, 2, 0.7), -1) for i in range(3)}
    columns["h0"][150:] = truth[150:]
    columns["gpt"] = np.where(hard, seen(rng, truth, 2, 0.7), truth)
    report = ds.judge_report(table(columns), "gpt")
    row = report.rows()[0]
    only_hard = ds.judge_report(
        table({name: column[hard] for name, column in columns.items()}), "gpt"
    ).rows()[0]
    for name in ("kappa", "kappa_low", "human_kappa", "tpr", "tpr_low", "human_tpr", "tnr"):
        assert row[name] == pytest.approx(only_hard[name], abs=1e-12), name
    assert report.kappas[0].n_items == 150
    assert "κ and rates are of the items with labels of two humans: gpt 150 of 600" in report.notes
    # fewer than 30 items with two humans cannot stand for all
    few = {name: np.where(np.arange(600) < 20, column, -1) for name, column in columns.items()}
    few["h0"], few["gpt"] = columns["h0"], columns["gpt"]
    report = ds.judge_report(table(few), "gpt")
    assert (report.kappas[0].n_items, report.human_kappas[0].n_items) == (600, 20)
