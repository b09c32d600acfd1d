"""Corrected rates, effective votes and the command: by hand, against other libraries, and by simulation."""

import json
import math
import re

import numpy as np
import pytest
from scipy.stats import skew, t

import dissensus as ds
from dissensus.annotators.judge_detection import find_judges
from dissensus.judges.answers import JudgeAnswers
from dissensus.judges.panel import Panel, effective_votes, group_judges, judge_panel, vote_weights
from dissensus.judges.rates import prediction_powered, refusal, rogan_gladen
from experiments.judges import JudgedPopulation, coverage
from tests.helpers.cli import failure, run
from tests.helpers.judge import humans_and_judges, seen, table
from tests.helpers.sizes import usually

# ---- corrected rates ----------------------------------------------------------------------------------


def sample(seed, n=200, N=2000, share=0.3, chances=(0.85, 0.2)):
    rng = np.random.default_rng(seed)
    truth = (rng.random(n + N) < share).astype(float)
    judge = (rng.random(n + N) < np.where(truth > 0, *chances)).astype(float)
    return truth[:n], judge[:n], judge[n:]


@pytest.mark.parametrize("seed", range(3))
def test_ppi_is_that_of_its_authors(seed):
    peer = pytest.importorskip("ppi_py")
    Y, f, F = sample(seed)
    estimate, tuning = prediction_powered(Y, f, F, 0.95)
    value = float(np.squeeze(peer.ppi_mean_pointestimate(Y, f, F)))
    low, high = (float(np.squeeze(end)) for end in peer.ppi_mean_ci(Y, f, F, alpha=0.05))
    assert 0 < tuning < 1
    assert estimate.value == pytest.approx(value, rel=1e-12)
    # they use the normal quantile and n; we use Student's and n − 1
    n = len(Y)
    wider = t.ppf(0.975, n - 1) / 1.959964 * math.sqrt(n / (n - 1))
    assert (estimate.high - estimate.low) / (high - low) == pytest.approx(wider, rel=1e-3)


def test_without_other_items_ppi_is_the_mean_with_johnsons_shift():
    Y = np.random.default_rng(0).exponential(size=80)
    estimate, tuning = prediction_powered(Y, np.ones(80), np.zeros(0), 0.9)
    z, s = t.ppf(0.95, 79), Y.std(ddof=1) / math.sqrt(80)
    # (1 + 2 z²) μ₃ / (6 n s²); skew() is m₃ / m₂^1.5
    m3 = skew(Y) * Y.var() ** 1.5 / 80**2
    centre = Y.mean() + (1 + 2 * z**2) * m3 / (6 * s**2)
    assert tuning == 0
    expected = [Y.mean(), centre - z * s, centre + z * s]
    np.testing.assert_allclose([estimate.value, estimate.low, estimate.high], expected, rtol=1e-9)


def test_uninformative_judges_get_no_weight():
    Y, _, _ = sample(0)
    others = np.random.default_rng(1).random(1000)
    for f, F in ((1 - Y, others), (np.ones(len(Y)), np.ones(1000))):  # always wrong, or constant
        estimate, tuning = prediction_powered(Y, f, F, 0.95)
        assert (tuning, estimate.value) == (0.0, pytest.approx(Y.mean()))
    f = (np.random.default_rng(0).random(100) < 0.5) * 1.0
    refused = rogan_gladen(np.repeat([1.0, 0.0], [50, 50]), f, others.round(), 0.95).refused
    assert "too poorly" in refused


def test_rogan_and_gladen_by_hand():
    # 40 of 100 are of the class: the judge finds 30 of them (a = 3/4), and 6 of the 60 others (b = 1/10)
    Y = np.repeat([1.0, 0.0], [40, 60])
    f = np.concatenate([np.repeat([1.0, 0.0], [30, 10]), np.repeat([1.0, 0.0], [6, 54])])
    F = np.repeat([1.0, 0.0], [264, 636])  # with the 36: 300 of 1,000
    estimate = rogan_gladen(Y, f, F, 0.95)
    assert estimate.value == pytest.approx((0.3 - 0.1) / (0.75 - 0.1), rel=1e-12)
    # at both ends the test of q = θ a + (1 − θ) b just keeps θ
    for end in (estimate.low, estimate.high):
        labelled = (f - 0.3) / 1000 - end * Y * (f - 0.75) / 40 - (1 - end) * (1 - Y) * (f - 0.1) / 60
        variance = (labelled**2).sum() + ((F - 0.3) ** 2).sum() / 1000**2
        statistic = (0.3 - end * 0.75 - (1 - end) * 0.1) / math.sqrt(variance)
        assert abs(statistic) == pytest.approx(t.ppf(0.975, 99), rel=1e-9)


def test_refusals_state_the_number_of_items_needed():
    others = np.zeros(1000)
    for of_class, other, text in (
        (30, 70, ""),
        (10, 10, "20 items have human labels; about 50 are needed"),
        (
            4,
            96,
            "100 items have human labels; about 250 are needed",
        ),  # ten of the class are expected among 250
        (0, 100, "100 items have human labels; about 2,000 are needed (there are 1,100 in all)"),
    ):
        assert refusal(np.repeat([1.0, 0.0], [of_class, other]), others, True) == text


@pytest.mark.parametrize("chances", [(0.9, 0.15), (0.8, 0.25)])
def test_intervals_of_rates_cover_the_truth(chances):
    truth = (np.arange(1000) < 150).astype(float)
    n = usually(250, verify=2000)
    result = coverage(JudgedPopulation("made up", "", "", truth, chances), n, with_peer=False)
    for name in ("rogan_gladen", "ppi"):
        assert abs(result[name]["coverage"] - 0.95) < max(2.6 * math.sqrt(0.05 * 0.95 / n), 0.02)
    assert result["ppi_width"] <= result["plain_width"]


def test_rates_by_column_and_of_means():
    truth = np.random.default_rng(0).integers(1, 4, size=600)
    columns = {f"h{i}": np.where(np.arange(600) < 200, truth, -1) for i in range(2)} | {"gpt": truth}
    items = {"item": list(range(600)), "half": ["ab"[m % 2] for m in range(600)]}
    labels = table(columns).with_tables(items=items)
    rates = ds.judge_report(labels, label_type="ordinal", by="half").rates_frame()
    assert rates.group.unique().tolist() == ["", "a", "b"]
    overall = rates[rates.group == ""].set_index("class")
    # a judge who is always right: λ = N / (n + N), and θ is the mean over all items
    assert overall.loc["1", "ppi"] == pytest.approx((truth == 1).mean(), abs=5e-3)
    mean = overall.loc["mean"]
    assert mean.ppi == pytest.approx(truth.mean(), abs=5e-3)
    assert mean.ppi_high - mean.ppi_low < 0.7 * (mean.humans_alone_high - mean.humans_alone_low)
    assert rates[rates.group == "a"].n_items.unique().tolist() == [300]


# ---- the panel ----------------------------------------------------------------------------------------


def panel(labels):
    return judge_panel(JudgeAnswers.of(labels, find_judges(labels)[0]))


@pytest.mark.parametrize(("judges", "n_classes"), [(3, 2), (5, 3), (9, 3)])
def test_independent_judges_have_one_vote_each(judges, n_classes):
    seeds = range(usually(8, verify=40))
    panels = [panel(humans_and_judges(seed, n_classes=n_classes, judges=judges)) for seed in seeds]
    assert abs(np.mean([p.effective_votes for p in panels]) / judges - 1) < 0.1
    assert np.mean([p.low <= judges <= p.high + 1e-9 or p.high > 0.9 * judges for p in panels]) > 0.8
    # estimates at the upper end have an interval, too
    clipped = [p for p in panels if p.effective_votes == judges]
    assert clipped
    assert all(p.high == judges for p in clipped)
    assert min(p.low for p in clipped) < judges


def test_copies_and_near_copies_share_one_vote():
    for judges in (2, 5):
        copies = panel(humans_and_judges(1, judges=judges, clones=True))
        assert copies.effective_votes == pytest.approx(1.0, rel=1e-6)
        assert copies.groups == [list(range(judges))]
        np.testing.assert_allclose(copies.weights, 1 / judges)
    rng = np.random.default_rng(5)
    truth = rng.integers(3, size=2000)
    columns = {f"human{i}": seen(rng, truth, 3, 0.75) for i in range(3)}
    columns |= {f"judge{i}": seen(rng, truth, 3, 0.8) for i in range(3)}
    for i in range(4):
        is_copy = rng.random(2000) < 0.97
        columns[f"judge-copy{i}"] = np.where(is_copy, columns["judge0"], rng.integers(3, size=2000))
    labels = table(columns)
    family = panel(labels)
    names = labels.annotators[family.judges]
    assert sorted(names[family.groups[0]]) == [*(f"judge-copy{i}" for i in range(4)), "judge0"]
    # a family of five and two others
    assert family.effective_votes == pytest.approx(49 / (5 * 5 + 2), rel=0.1)
    assert family.weights[family.groups[0]].sum() == pytest.approx(1 / 3, abs=0.06)


def test_votes_by_hand():
    # two copies and one independent judge: Σ r = 5, so 9 / 5
    r = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    assert effective_votes(r) == pytest.approx(1.8)
    np.testing.assert_allclose(vote_weights(r), [0.25, 0.25, 0.5])
    assert group_judges(r) == [[0, 1], [2]]
    assert panel(humans_and_judges(0, 200, humans=1)) is None  # two humans per item are needed


def test_sentences_on_the_panel():
    dependent = "1.4 independent votes (95 % interval 1.2 to 1.6): they agree with each other more than"
    independent = "1.9 independent votes (95 % lower bound 1.7): dependence of their errors is not shown, but"
    for votes, low, high, groups, text in (
        (1.4, 1.2, 1.6, [[0], [1]], dependent),
        (1.9, 1.7, 2.0, [[0], [1]], independent),
        (1.2, 1.0, 2.0, [[0, 1]], "Judges that err together: ‘gpt’ and ‘claude’."),
    ):
        judges = Panel(np.arange(2), np.eye(2), votes, low, high, groups, np.full(2, 0.5), 99)
        assert text in judges.in_words(["gpt", "claude"]).replace("\u00a0", " ")


# ---- the command --------------------------------------------------------------------------------------


def write_table(path, labels, header="item,annotator,label"):
    names, classes = labels.annotators[labels.annotator], np.array(["bad", "good", "tie"])[labels.label]
    rows = [f"p{item},{name},{label}" for item, name, label in zip(labels.item, names, classes, strict=True)]
    path.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    return path


def test_a_plain_table_is_read_in_one_command(tmp_path):
    file = write_table(tmp_path / "verdicts.csv", humans_and_judges(0, 120), "prompt_id,model,verdict")
    shown = run("judges", file, "-o", tmp_path / "judges.csv").stdout
    lines = [line for line in shown.splitlines() if line.strip().startswith("judge")]
    assert len(lines) == 6  # the heads, and one line per judge
    assert "independent votes" not in shown
    for text in (
        "5 judges (by name), 3 humans",
        "κ (95 %)",
        "κ of a human",
        "‘nearly’: the labels show",
        "bias: compared with the humans",
    ):
        assert text in shown
    shown = run("judges", file, "--verbose").stdout
    for text in ("5 judges (by name)", "winning rate", "independent votes", "Clearest errors"):
        assert text in shown
    assert len((tmp_path / "judges.csv").read_text().splitlines()) == 6
    run("judges", file, "-o", tmp_path / "judges.json")
    report = json.loads((tmp_path / "judges.json").read_text())
    assert [row["judge"] for row in report["judges"]] == [f"judge{i}" for i in range(5)]
    assert json.loads(run("judges", file, "--json").stdout) == report


def test_a_run_has_the_judges_of_its_file(tmp_path):
    file = write_table(tmp_path / "votes.csv", humans_and_judges(0, 60))
    quick = ["--set", "n_sweeps=10", "--set", "n_chains=1", "--no-report"]
    run("fit", file, "--model", "hpgm", *quick, "-o", tmp_path / "run")
    kinds = tmp_path / "kinds.csv"
    rows = [f"{name}{i},{kind}" for name, kind in (("human", "human"), ("judge", "llm")) for i in range(5)]
    kinds.write_text("\n".join(["annotator,kind", *rows]) + "\n")
    of_file, of_run = (
        json.loads(run("judges", path, "--annotators", kinds, "--json").stdout)
        for path in (file, tmp_path / "run")
    )
    assert of_file == of_run
    assert of_file["found_by"] == "by the column kind"
    run("fit", file, "--model", "empirical", "--no-report", "-o", tmp_path / "counts")
    assert run("judges", tmp_path / "counts").stdout.startswith("5 judges")


@pytest.mark.data
def test_a_human_on_whom_verdicts_hang_is_named(data_dir, tmp_path):
    folder = data_dir.parent / "judges" / "cebab_stars"
    if not folder.is_dir():
        pytest.skip("the sets with judges are absent")
    files = [folder / "annotations.csv", "--annotators", folder / "annotators.csv"]
    result = run("judges", *files, "-o", tmp_path / "judges.html")
    note = "κ with the other humans is -0.07 for human02, and at least 0.68 for all others; without human02, "
    note += "it is 0.85 on average, and the verdicts on these change: gemini_flash no, mistral-v03 no"
    assert f"note: {note}" in result.stderr
    assert "note: the number of independent votes is estimated without these humans" in result.stderr
    assert note in (tmp_path / "judges.html").read_text(encoding="utf-8")
    # these are the verdicts on a file without that human
    rows = (folder / "annotations.csv").read_text(encoding="utf-8").splitlines()
    rest = tmp_path / "rest.csv"
    rest.write_text("\n".join(row for row in rows if ",human02," not in row), encoding="utf-8")
    report = json.loads(run("judges", rest, *files[1:], "--json").stdout)
    verdicts = {row["judge"]: row["verdict"] for row in report["judges"]}
    assert {judge for judge, verdict in verdicts.items() if verdict != "replaces"} == {
        "gemini_flash",
        "mistral-v03",
    }
    assert report["judges"][0]["human_kappa"] == pytest.approx(0.85, abs=0.005)
    run("judges", *files, "-o", tmp_path / "all.json")
    assert json.loads((tmp_path / "all.json").read_text(encoding="utf-8"))["panel"] == report["panel"]
    assert not any("without" in note for note in report["notes"])


def test_broken_humans_on_whom_no_verdict_hangs():
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=400)
    columns = {f"h{i}": seen(rng, truth, 3, 0.85 if i > 1 else 1 / 3) for i in range(8)}
    report = ds.judge_report(table(columns | {"gpt": seen(rng, truth, 3, 0.9)}))
    (note,) = report.notes
    assert re.fullmatch(
        r"κ with the other humans is -?0\.0\d for h\d and -?0\.0\d for h\d, and at least 0\.\d\d for all "
        r"others; without h[01] and h[01], it is 0\.\d\d on average, and no verdict changes",
        note,
    )


def two_classes(path, judge_accuracy=0.7):
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=200)
    columns = {f"human{i}": seen(rng, truth, 2, 0.85) for i in range(3)}
    columns["gpt"] = seen(rng, truth, 2, judge_accuracy)
    words = np.array(["no", "yes"])
    rows = [f"{m},{name},{words[column[m]]}" for name, column in columns.items() for m in range(200)]
    path.write_text("\n".join(["item,annotator,label", *rows]) + "\n", encoding="utf-8")
    humans = np.array([column for name, column in columns.items() if name != "gpt"])
    return path, humans, columns["gpt"]


def test_rates_of_two_classes_are_against_all_humans(tmp_path):
    file, humans, judge = two_classes(tmp_path / "votes.csv")
    (row,) = json.loads(run("judges", file, "--json").stdout)["judges"]
    # over all labels of humans: how often the judge says yes where a human says yes, and no where no
    assert row["tpr"] == pytest.approx((judge * humans).sum() / humans.sum(), abs=1e-12)
    assert row["tnr"] == pytest.approx(((1 - judge) * (1 - humans)).sum() / (1 - humans).sum(), abs=1e-12)
    assert row["agreement"] == pytest.approx((judge == humans).mean(), abs=1e-12)
    shown = run("judges", file).stdout
    assert f"{row['tpr']:.2f} ({row['human_tpr']:.2f})" in shown
    assert "TPR: share of the human answers ‘yes’ it gives too; TNR: of the others" in shown


def test_requirements_have_an_exit_code_and_say_by_how_much(tmp_path):
    file = two_classes(tmp_path / "votes.csv")[0]
    kappa = json.loads(run("judges", file, "--json").stdout)["judges"][0]["kappa"]
    met = ("--require", f"kappa>={kappa}", "--require", "agreement > 0.1", "--require", "tpr>=.1")
    run("judges", file, *met)
    page = tmp_path / "judges.json"
    result = run("judges", file, "--require", "kappa>=0.9", "--require", "replaces", "-o", page, code=3)
    assert page.exists()
    (line,) = result.stderr.splitlines()
    below = f"gpt: kappa {kappa:.2f} is {0.9 - kappa:.2g} below 0.9; gpt: no, not replaces ("
    assert line.startswith(f"dissensus: {below}")
    assert "is not above" in run("judges", file, "--require", f"kappa>{kappa}", code=3).stderr
    for rule in ("kappa", "kappa=0.6", "accuracy>=0.6", "kappa>=high"):
        assert "write replaces, stable, or kappa" in failure("judges", file, "--require", rule)
    three = write_table(tmp_path / "three.csv", humans_and_judges(0, 60), "item,annotator,label")
    assert "do not have two classes" in failure("judges", three, "--require", "tnr>0.5")


def test_errors_of_the_command(tmp_path):
    file = write_table(tmp_path / "votes.csv", humans_and_judges(0, 60))
    assert "epsilon" in failure("judges", file, "--epsilon", "2")
    assert "matches no annotator id" in failure("judges", file, "--judges", "claude*")
    assert "no item table" in failure("judges", file, "--by", "topic")
    missing_columns = {"item,foo,bar": "no annotator and no label", "foo,bar,baz": "no item, no ann"}
    for header, missing in missing_columns.items():
        file.write_text(f"{header}\n1,2,3\n", encoding="utf-8")
        assert missing in failure("judges", file)
