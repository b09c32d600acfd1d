"""Corrected rates, effective votes, and how a judge differs: hand-worked, against peers, and simulated."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy.stats import skew, t

import dissensus as ds
from cli_help import failure, run
from dissensus.annotators.judge_detection import find_judges
from dissensus.judges.answers import Answers
from dissensus.judges.comparison import difference_of
from dissensus.judges.panel import Panel, grouped, panel_of, vote_weights, votes_of
from dissensus.judges.rates import prediction_powered, rogan_gladen, too_few
from experiments.judge_rates import Population, coverage
from judge_help import humans_and_judges, seen, table
from sizes import usually

# ---- corrected rates ----------------------------------------------------------------------------------


def sample(seed, n=200, N=2000, share=0.3, chances=(0.85, 0.2)):
    rng = np.random.default_rng(seed)
    truth = (rng.random(n + N) < share).astype(float)
    said = (rng.random(n + N) < np.where(truth > 0, *chances)).astype(float)
    return truth[:n], said[:n], said[n:]


@pytest.mark.parametrize("seed", range(3))
def test_ppi_is_that_of_its_authors(seed):
    peer = pytest.importorskip("ppi_py")
    Y, f, F = sample(seed)
    found, tuning = prediction_powered(Y, f, F, 0.95)
    value = float(np.squeeze(peer.ppi_mean_pointestimate(Y, f, F)))
    low, high = (float(np.squeeze(end)) for end in peer.ppi_mean_ci(Y, f, F, alpha=0.05))
    assert 0 < tuning < 1
    assert found.value == pytest.approx(value, rel=1e-12)
    # They take the normal quantile and divide by n; we take Student's and n − 1.
    n = len(Y)
    wider = t.ppf(0.975, n - 1) / 1.959964 * math.sqrt(n / (n - 1))
    assert found.width / (high - low) == pytest.approx(wider, rel=1e-3)


def test_without_other_items_it_is_the_mean_moved_for_skewness():
    Y = np.random.default_rng(0).exponential(size=80)
    found, tuning = prediction_powered(Y, np.ones(80), np.zeros(0), 0.9)
    z, s = t.ppf(0.95, 79), Y.std(ddof=1) / math.sqrt(80)
    # (1 + 2 z²) μ₃ / (6 n s²): skew() has m₃ / m₂^1.5
    m3 = skew(Y) * Y.var() ** 1.5 / 80**2
    shift = (1 + 2 * z**2) * m3 / (6 * s**2)
    assert tuning == 0
    np.testing.assert_allclose(
        [found.value, found.low, found.high],
        [Y.mean(), Y.mean() + shift - z * s, Y.mean() + shift + z * s],
        rtol=1e-9,
    )


def test_a_judge_who_says_nothing_is_not_listened_to():
    Y, _, _ = sample(0)
    rng = np.random.default_rng(1)
    found, tuning = prediction_powered(Y, 1 - Y, rng.random(1000), 0.95)  # even a liar
    assert (tuning, found.value) == (0.0, pytest.approx(Y.mean()))
    constant, tuning = prediction_powered(Y, np.ones(len(Y)), np.ones(1000), 0.95)
    assert (tuning, constant.value) == (0.0, pytest.approx(Y.mean()))


def test_rogan_and_gladen_by_hand():
    # 40 of 100 are of the class: the judge sees 30 of them (a = 3/4), and 6 of the 60 others (b = 1/10).
    Y = np.repeat([1.0, 0.0], [40, 60])
    f = np.concatenate([np.repeat([1.0, 0.0], [30, 10]), np.repeat([1.0, 0.0], [6, 54])])
    F = np.repeat([1.0, 0.0], [264, 636])  # with the 36: 300 of 1,000
    found = rogan_gladen(Y, f, F, 0.95)
    assert found.value == pytest.approx((0.3 - 0.1) / (0.75 - 0.1), rel=1e-12)
    # Both ends are where the test of q = θ a + (1 − θ) b just keeps θ. By hand, for a θ:
    # what a labelled item adds to q − θ a − (1 − θ) b, and what another one adds.
    for end in (found.low, found.high):
        labelled = (f - 0.3) / 1000 - end * Y * (f - 0.75) / 40 - (1 - end) * (1 - Y) * (f - 0.1) / 60
        variance = (labelled**2).sum() + ((F - 0.3) ** 2).sum() / 1000**2
        statistic = (0.3 - end * 0.75 - (1 - end) * 0.1) / math.sqrt(variance)
        assert abs(statistic) == pytest.approx(t.ppf(0.975, 99), rel=1e-9)


def test_a_judge_that_cannot_tell_is_not_corrected_by():
    rng = np.random.default_rng(0)
    Y = np.repeat([1.0, 0.0], [50, 50])
    assert (
        "too seldom" in rogan_gladen(Y, (rng.random(100) < 0.5) * 1.0, rng.random(500).round(), 0.95).refused
    )


def test_too_few_labels_are_refused_with_the_number_needed():
    many = np.zeros(1000)
    assert too_few(np.repeat([1.0, 0.0], [30, 70]), many, True) == ""
    assert too_few(np.repeat([1.0, 0.0], [10, 10]), many, True) == (
        "20 items have labels of humans, and about 50 are needed"
    )
    # 4 of 100: ten of the class are expected among 250
    assert "about 250 are needed" in too_few(np.repeat([1.0, 0.0], [4, 96]), many, True)
    assert "about 2,000 are needed, of 1,100" in too_few(np.zeros(100), many, True)


@pytest.mark.parametrize("chances", [(0.9, 0.15), (0.8, 0.25)])
def test_intervals_of_rates_hold_the_truth(chances):
    truth = (np.arange(1000) < 150).astype(float)
    n = usually(250, verify=2000)
    found = coverage(Population("made up", "", "", truth, chances), n, against_peer=False)
    slack = 2.6 * math.sqrt(0.05 * 0.95 / n)
    for name in ("rogan_gladen", "ppi"):
        assert abs(found[name]["coverage"] - 0.95) < max(slack, 0.02)
    assert found["ppi_width"] <= found["plain_width"]


def test_rates_by_subgroup_and_of_means():
    rng = np.random.default_rng(0)
    truth = rng.integers(1, 4, size=600)
    given = {f"h{i}": np.where(np.arange(600) < 200, truth, -1) for i in range(2)} | {"gpt": truth}
    labels = table(given).with_tables(
        items={"item": list(range(600)), "half": ["ab"[m % 2] for m in range(600)]}
    )
    found = ds.judge_report(labels, label_type="ordinal", by="half").rates_frame()
    assert found.group.unique().tolist() == ["", "a", "b"]
    whole = found[found.group == ""].set_index("class")
    # A judge who is always right: λ = N / (n + N), which makes θ the mean over all items.
    assert whole.loc["1", "ppi"] == pytest.approx((truth == 1).mean(), abs=5e-3)
    assert whole.loc["mean", "ppi"] == pytest.approx(truth.mean(), abs=5e-3)
    assert whole.loc["mean", "ppi_high"] - whole.loc["mean", "ppi_low"] < 0.7 * (
        whole.loc["mean", "humans_alone_high"] - whole.loc["mean", "humans_alone_low"]
    )
    assert found[found.group == "a"].n_items.unique().tolist() == [300]


# ---- the panel ----------------------------------------------------------------------------------------


def panel(labels):
    return panel_of(Answers.of(labels, find_judges(labels)[0]))


@pytest.mark.parametrize(("judges", "n_classes"), [(3, 2), (5, 3), (9, 3)])
def test_independent_judges_are_as_many_votes_as_judges(judges, n_classes):
    seeds = range(usually(8, verify=40))
    found = [panel(humans_and_judges(s, n_classes=n_classes, judges=judges)) for s in seeds]
    assert abs(np.mean([one.effective_votes for one in found]) / judges - 1) < 0.1
    assert np.mean([one.low <= judges <= one.high + 1e-9 or one.high > 0.9 * judges for one in found]) > 0.8


@pytest.mark.parametrize("judges", [2, 5])
def test_clones_are_one_vote(judges):
    found = panel(humans_and_judges(1, judges=judges, clones=True))
    assert found.effective_votes == pytest.approx(1.0, rel=1e-6)
    assert found.groups == [list(range(judges))]
    np.testing.assert_allclose(found.weights, 1 / judges)


def test_a_family_of_clones_shares_one_vote_with_others_beside_it():
    labels = humans_and_judges(0, 2000, judges=3)
    rng = np.random.default_rng(5)
    given = [
        Answers.of(labels, find_judges(labels)[0]).answers_of(int(j))
        for j in find_judges(labels)[0].nonzero()[0]
    ]
    columns = {f"human{i}": column for i, column in enumerate(human_columns(labels))}
    copies = {
        f"judge-copy{i}": np.where(rng.random(2000) < 0.97, given[0], rng.integers(3, size=2000))
        for i in range(4)
    }
    together = table(columns | {f"judge{i}": column for i, column in enumerate(given)} | copies)
    found = panel(together)
    names = together.annotators[found.judges]
    assert sorted(names[found.groups[0]]) == [
        "judge-copy0",
        "judge-copy1",
        "judge-copy2",
        "judge-copy3",
        "judge0",
    ]
    # of a family of five and two others
    assert found.effective_votes == pytest.approx(49 / (5 * 5 + 2), rel=0.1)
    family = found.weights[found.groups[0]].sum()
    assert family == pytest.approx(1 / 3, abs=0.06)


def human_columns(labels):
    return [labels.label[labels.annotator == n] for n in np.flatnonzero(~find_judges(labels)[0])]


def test_a_panel_needs_two_humans_an_item():
    assert panel(humans_and_judges(0, 200, humans=1)) is None


def test_a_panel_is_said_to_err_together_only_where_it_does():
    def words(votes, low, high, groups):
        shown = Panel(np.arange(2), np.eye(2), votes, low, high, groups, np.full(2, 0.5), 99)
        return shown.in_words(["gpt", "claude"]).replace("\u00a0", " ")

    apart = [[0], [1]]
    same = "given what humans say of an item, they still agree with each other"
    assert f"1.4 independent votes (95 % interval 1.2 to 1.6): {same}" in words(1.4, 1.2, 1.6, apart)
    for votes, low in ((1.9, 1.7), (2.0, 1.9)):
        said = words(votes, low, 2.0, apart)
        assert f"{votes} independent votes (at least {low}, at 95 %)" in said
        assert said.endswith("as far as these labels show, they err independently.")
    assert "They err together: ‘gpt’ and ‘claude’." in words(1.2, 1.0, 2.0, [[0, 1]])


def test_the_interval_of_independent_judges_has_a_width():
    found = [panel(humans_and_judges(seed, 200, judges=2)) for seed in range(6)]
    clipped = [one for one in found if one.effective_votes == 2]
    assert clipped
    assert all(one.high == 2 for one in clipped)
    assert min(one.low for one in clipped) < 2


def test_votes_by_hand():
    # Two copies and one alone: Σ r = 5, so 9 / 5.
    r = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert votes_of(r) == pytest.approx(1.8)
    np.testing.assert_allclose(vote_weights(r), [0.25, 0.25, 0.5])
    assert grouped(r) == [[0, 1], [2]]


# ---- how it differs -----------------------------------------------------------------------------------


def test_confusion_and_distances_by_hand():
    # Three items, two humans each: 00, 01, 11. The judge says 0, 1, 1.
    columns = {"h0": np.array([0, 0, 1]), "h1": np.array([0, 1, 1]), "gpt": np.array([0, 1, 1])}
    answers = Answers.of(table(columns), np.array([True, False, False]))
    found = difference_of(answers, 0)
    np.testing.assert_allclose(found.confusion, [[1 / 1.5, 0.5 / 1.5], [0, 1]])
    np.testing.assert_allclose(found.meaning, [[1, 0.25], [0, 0.75]])
    # another human says 0 where one does: items 00 (both), 01 (never): 2 of 3 ordered pairs that begin with 0
    np.testing.assert_allclose(found.among_humans, [[2 / 3, 1 / 3], [1 / 3, 2 / 3]])
    assert found.disagreement == pytest.approx((0 + 0.5 + 0) / 3)
    assert found.human_disagreement == pytest.approx((0 + 1 + 0) / 3)


def test_a_judge_that_is_one_more_human_differs_as_a_human_does():
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=3000)
    columns = {f"h{i}": seen(rng, truth, 3, 0.7) for i in range(4)} | {"gpt": seen(rng, truth, 3, 0.7)}
    report = ds.judge_report(table(columns))
    row = report.rows()[0]
    assert row["excess_low"] <= 0 <= row["excess_high"]
    chances = report.confusion_frame()
    # two who are right in 70 % say the same in 0.7² + 2 · 0.15² = 0.535, either other class in 0.2325
    expected = np.where(chances.human == chances.answer, 0.535, 0.2325)
    assert (abs(chances.chance - expected) < 0.04).all()
    assert (abs(chances.meaning - expected) < 0.04).all()
    assert (abs(chances.among_humans - expected) < 0.04).all()
    inside = (chances.low <= expected) & (expected <= chances.high)
    assert inside.sum() >= 7


def test_the_items_it_is_most_surely_wrong_about_are_the_planted_ones():
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=200)
    columns = {f"h{i}": seen(rng, truth, 3, 0.9) for i in range(6)}
    wrong = [3, 77, 150]
    for column in columns.values():
        column[wrong] = truth[wrong]
    said = truth.copy()
    said[wrong] = (truth[wrong] + 1) % 3
    found = ds.judge_report(table(columns | {"gpt": said})).items_frame()
    assert sorted(found.item.tolist()) == wrong
    assert (found.share_as_judge < 0.1).all()
    assert not found.humans_split.any()


# ---- the command --------------------------------------------------------------------------------------


def write_table(path, labels, header="prompt_id,model,verdict"):
    names, given = labels.annotators[labels.annotator], np.array(["bad", "good", "tie"])[labels.label]
    rows = [f"p{item},{name},{label}" for item, name, label in zip(labels.item, names, given, strict=True)]
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def test_a_newcomers_table_goes_through_in_one_command(tmp_path):
    file = write_table(tmp_path / "verdicts.csv", humans_and_judges(0, 120))
    shown = run("judges", file, "-o", tmp_path / "judges.csv").stdout
    assert "5 judges (by their names" in shown
    assert "independent votes" in shown
    assert "bias (judge" in shown
    lines = (tmp_path / "judges.csv").read_text().splitlines()
    assert len(lines) == 6
    run("judges", file, "-o", tmp_path / "judges.json")
    everything = json.loads((tmp_path / "judges.json").read_text())
    assert [row["judge"] for row in everything["judges"]] == [f"judge{i}" for i in range(5)]
    assert json.loads(run("judges", file, "--json").stdout) == everything


def test_a_judge_that_likes_one_answer_is_seen():
    # Of 8 items the judge calls 7 good; each of the two humans, who agree, 4.
    humans = {"h1": [0, 0, 0, 0, 1, 1, 1, 1], "h2": [0, 0, 0, 0, 1, 1, 1, 1]}
    found = ds.judge_report(table(humans | {"gpt": [0, 1, 1, 1, 1, 1, 1, 1]}))
    (row,) = found.rows()
    assert repr(found) == "JudgeReport(1 judges beside 2 humans, 0 may replace a human)"
    assert (row["bias_of"], row["bias"]) == ("1", pytest.approx(3 / 8))
    spread = np.std([0, 1, 1, 1, 0, 0, 0, 0], ddof=1) / np.sqrt(8)
    assert row["bias_error"] == pytest.approx(1.959964 * spread, rel=1e-6)


def test_a_finished_run_has_the_same_judges_as_its_file(tmp_path):
    file = write_table(tmp_path / "votes.csv", humans_and_judges(0, 60), "item,annotator,label")
    quick = [
        "--model",
        "hpgm",
        "--set",
        "n_sweeps=10",
        "--set",
        "n_chains=1",
        "--no-report",
        "--test-size",
        "0",
    ]
    run("fit", file, *quick, "-o", tmp_path / "run")
    kinds = tmp_path / "kinds.csv"
    names = [f"{kind}{i}" for kind in ("human", "judge") for i in range(5)]
    rows = [f"{name},{'llm' if name.startswith('judge') else 'human'}" for name in names]
    kinds.write_text("\n".join(["annotator,kind", *rows]) + "\n")
    places = (file, tmp_path / "run")
    found = [json.loads(run("judges", place, "--annotators", kinds, "--json").stdout) for place in places]
    assert found[0] == found[1]
    assert found[0]["found_by"] == "by the column kind"
    run("fit", file, "--model", "empirical", "--no-report", "--test-size", "0", "-o", tmp_path / "counts")
    assert run("judges", tmp_path / "counts").stdout.startswith("5 judges")


def test_wrong_settings_are_one_line(tmp_path):
    file = write_table(tmp_path / "votes.csv", humans_and_judges(0, 60), "item,annotator,label")
    assert "epsilon" in failure("judges", file, "--epsilon", "2")
    assert "fits none as a pattern" in failure("judges", file, "--judges", "claude*")
    assert "no item table" in failure("judges", file, "--by", "topic")


def test_columns_that_are_missing_are_named_in_one_message(tmp_path):
    file = tmp_path / "table.csv"
    file.write_text("item,foo,bar\n1,2,3\n", encoding="utf-8")
    words = failure("judges", file)
    assert "no annotator and no label column found" in words
    file.write_text("foo,bar,baz\n1,2,3\n", encoding="utf-8")
    assert "no item, no annotator and no label column found" in failure("judges", file)
