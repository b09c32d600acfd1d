"""Biases by length, position and family: an independent library, planted effects, false alarms."""

import math

import numpy as np
import pytest

import dissensus as ds
from dissensus.judges.answers import JudgeAnswers
from dissensus.judges.bias import judge_biases, slope
from experiments.judges import NOISE, bias_alarms, noisy_alarms
from tests.helpers.judge import seen, table
from tests.helpers.sizes import usually


def with_texts(labels, lengths):
    texts = ["x" * n for n in lengths[labels.items.astype(int)]]
    return labels.with_tables(items={"item": labels.items, "text": texts})


def test_slopes_are_those_of_two_humans_as_instruments_of_each_other():
    gmm = pytest.importorskip("statsmodels.sandbox.regression.gmm")
    rng = np.random.default_rng(0)
    z, truth = rng.normal(size=60), rng.normal(size=60)
    first, second = (truth + rng.normal(size=60) / 2 for _ in range(2))
    y = 0.3 * z + 0.7 * truth + rng.normal(size=60) / 2
    Z = np.vander(z, 2)

    def fitted(rows):
        # every item twice: one human explains the judge, the other is the instrument
        x, w = (np.vstack([np.c_[Z, h][rows] for h in pair]) for pair in ((first, second), (second, first)))
        return gmm.IV2SLS(np.tile(y[rows], 2), x, w).fit().params[0]

    s, pairs = (first + second) / 2, first * second
    bias = slope("gpt", "length", [""], np.stack([y, s, pairs])[:, :, None], Z)
    assert bias.value == pytest.approx(fitted(np.arange(60)), rel=1e-9)
    # (n − 1) / n Σ (x_(−m) − x̄)², with Student's quantile for 60 − 3 degrees of freedom
    without = [fitted(np.delete(np.arange(60), m)) for m in range(60)]
    half = 2.0025 * math.sqrt(59 * np.var(without))
    np.testing.assert_allclose([bias.value - bias.low, bias.high - bias.value], half, rtol=1e-4)


def ratings(seed, by_length, n=400):
    """Humans and a judge who rate long texts higher; the judge by ``by_length`` more per doubling."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(20, 2000, size=n)
    value = np.log2(lengths) / 2 + rng.normal(size=n)
    columns = {f"h{i}": value + rng.normal(size=n) for i in range(3)}
    columns["gpt"] = value + by_length * np.log2(lengths) + rng.normal(size=n)
    columns = {name: np.clip(np.rint(column), 0, 10).astype(int) for name, column in columns.items()}
    labels = with_texts(table(columns), lengths)
    return JudgeAnswers.of(labels, labels.annotators == "gpt", "ordinal")


def test_a_preference_for_long_texts_beyond_that_of_humans_is_found():
    (bias,) = judge_biases(ratings(0, 0.3), 0)
    assert bias.low < 0.3 < bias.high
    assert bias.in_words().startswith("scale +0.")
    assert bias.in_words().endswith("per doubling of the text’s length")
    # what the humans prefer as well is no bias
    (bias,) = judge_biases(ratings(0, 0.0), 0)
    assert not bias.shown
    assert bias.in_words().startswith("length: none shown, ")
    assert bias.in_words().endswith(") per doubling of the text’s length")


def battles(seed, left=0.0, own=0.0, n=400):
    """Comparisons of models; the judge adds ``left`` and ``own`` to the log-odds of the left and its own."""
    rng = np.random.default_rng(seed)
    models = np.array(["gpt-4", "gpt-3.5-turbo", "claude-v1", "llama-13b"])
    strength = np.array([2.0, 1.0, 1.5, -1.0])  # the judge's own family is the best for all
    pairs = np.array([rng.choice(4, 2, replace=False) for _ in range(n)])
    family = (pairs < 2).astype(float)
    columns = {}
    for name in ("h0", "h1", "h2", "gpt-4o"):
        odds = strength[pairs[:, 0]] - strength[pairs[:, 1]] + 0.5  # all favour the left side
        if name == "gpt-4o":
            odds = odds + left + own * (family[:, 0] - family[:, 1])
        columns[name] = np.where(
            rng.random(n) < 0.1, 1, np.where(rng.random(n) < 1 / (1 + np.exp(-odds)), 0, 2)
        )
    names = np.repeat(list(columns), n)
    words = np.array(["left", "tie", "right"])[np.concatenate(list(columns.values()))]
    items = np.tile([f"q{m:03}" for m in range(n)], 4)
    labels = ds.Annotations.from_arrays(
        items, names, words, classes=["left", "tie", "right"], label_type="pairwise"
    )
    sides = {"left": models[pairs[:, 0]], "right": models[pairs[:, 1]]}
    return labels.with_tables(items={"item": [f"q{m:03}" for m in range(n)], **sides})


def test_position_and_family_are_compared_with_the_humans():
    for left, own, expected in ((1.0, 0.0, ["position"]), (0.0, 1.5, ["family"]), (0.0, 0.0, [])):
        report = ds.judge_report(battles(0, left, own), "gpt-4o")
        assert [bias.by for bias in report.biases] == ["position", "family"]
        assert [bias.by for bias in report.biases if bias.shown] == expected
    assert "gpt options +" in ds.judge_report(battles(0, 0.0, 1.5), "gpt-4o").rows()[0]["biases"]
    assert "left side +" in ds.judge_report(battles(0, 1.0), "gpt-4o").rows()[0]["biases"]


def test_biases_that_the_labels_cannot_show_say_so_in_one_line():
    few = ds.judge_report(battles(0, n=20), "gpt-4o").biases
    needed = "needs 30 items with labels of two humans, 10 with a difference; there are 20 and "
    assert [bias.by for bias in few if bias.refused.startswith(needed)] == ["position", "family"]
    assert few[0].in_words().startswith(f"position: {needed}")
    labels = table({name: np.arange(60) % 3 for name in ("h0", "h1", "gpt")})
    report = ds.judge_report(labels, "gpt")
    assert [bias.in_words() for bias in report.biases] == ["length: needs items with texts"]
    assert report.rows()[0]["biases_not_tested"] == "length"
    same_length = with_texts(labels, np.full(60, 30))
    assert "needs" in ds.judge_report(same_length, "gpt").biases[0].refused


def test_pairs_that_are_not_read_as_pairs_say_so():
    labels = battles(0)
    names = dict(zip(("item", "annotator", "label"), labels.columns, strict=True))
    rows = [
        labels.items[names["item"]],
        labels.annotators[names["annotator"]],
        labels.classes[names["label"]],
    ]
    unread = ds.judge_report(ds.Annotations.from_arrays(*rows), "gpt-4o").biases
    needs = ["length: needs items with texts", "position: needs label_type='pairwise'"]
    assert [bias.in_words() for bias in unread] == needs
    read = ds.judge_report(ds.Annotations.from_arrays(*rows, label_type="pairwise"), "gpt-4o").biases
    assert read[0].by == "position"
    assert not read[0].refused
    assert read[1].in_words() == "family: needs columns left and right with the models compared"


def test_the_length_is_that_of_the_output():
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=400)
    length = rng.integers(3, 9, size=400)
    said = np.where(rng.random(400) < 0.2 * (length - 3), 1, seen(rng, truth, 2, 0.85))
    labels = table({f"h{i}": seen(rng, truth, 2, 0.85) for i in range(3)} | {"gpt": said})
    prompts = ["y" * int(n) for n in rng.integers(200, 9000, size=400)]
    outputs = ["x" * int(n) for n in 2**length]
    columns = {"item": labels.items, "text": [p + o for p, o in zip(prompts, outputs, strict=True)]}
    (alone,) = ds.judge_report(labels.with_tables(items=columns), "gpt").biases
    (bias,) = ds.judge_report(labels.with_tables(items=columns | {"output": outputs}), "gpt").biases
    assert (alone.shown, bias.shown, bias.of) == (False, True, "1")
    assert bias.value > 0.05
    for other in (np.arange(400), [str(n) for n in range(400)], [None] * 400, [""] * 400):  # no texts
        report = ds.judge_report(labels.with_tables(items=columns | {"output": other}), "gpt")
        assert report.biases[0].value == alone.value


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["length", "pairs"])
def test_false_alarms_of_judges_drawn_from_the_humans(kind):
    n = usually(300, verify=1000)
    if kind == "length":
        rng = np.random.default_rng(3)
        truth, lengths = rng.integers(3, size=200), rng.integers(20, 2000, size=200)
        # humans err more on long texts, and say 0 there
        columns = {
            f"h{i}": np.where(rng.random(200) < lengths / 4000, 0, seen(rng, truth, 3, 0.8)) for i in range(4)
        }
        labels = with_texts(table(columns | {"gpt": truth}), lengths)
        judge = "gpt"
    else:
        labels, judge = battles(5, 1.0, 1.0, n=150), "gpt-4o"
    alarms = bias_alarms(labels, judge, n)
    for by, share in alarms.items():
        assert share <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / n), by


@pytest.mark.parametrize("judge", list(NOISE))
def test_a_judge_that_is_only_noisy_is_rarely_said_to_be_biased(judge):
    n = usually(100, verify=1000)
    alarms = noisy_alarms(*NOISE[judge], n)
    if judge == "planted, 10 points":
        assert alarms["position"] >= 0.9
        assert alarms["family"] <= 0.07 + 2.6 * math.sqrt(0.07 * 0.93 / n)
    elif judge != "items hard for humans only":
        for by, share in alarms.items():
            assert share <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / n), by


def test_a_bias_is_refused_if_humans_do_not_agree():
    rng = np.random.default_rng(0)
    columns = {name: rng.integers(2, size=200) for name in ("h0", "h1", "gpt")}
    labels = with_texts(table(columns), rng.integers(20, 2000, size=200))
    (bias,) = ds.judge_report(labels, "gpt").biases
    assert bias.refused == "humans agree too little to tell a bias from noise"


def test_a_bias_that_rests_on_few_items_is_refused():
    # all texts but one have the same length: without this item, there is no slope
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=200)
    columns = {name: seen(rng, truth, 2, 0.8) for name in ("h0", "h1", "gpt")}
    (bias,) = ds.judge_report(with_texts(table(columns), np.r_[99, np.full(199, 30)]), "gpt").biases
    assert bias.refused.endswith("10 with a difference; there are 200 and 1")
