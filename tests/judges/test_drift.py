"""Drift since an earlier report: the boundary, false alarms over whole streams, power, and files."""

import json
import math
import re

import numpy as np
import pytest
from scipy.optimize import brentq, minimize_scalar

import dissensus as ds
from dissensus.errors import DataError
from dissensus.judges.answers import JudgeAnswers
from dissensus.judges.drift import (
    FALSE_ALARM_RATE,
    TIGHTEST,
    TIGHTEST_RATIO,
    baseline,
    change_and_reach,
    drifts,
)
from experiments.judges import drift_alarms
from tests.helpers.cli import failure, run
from tests.helpers.judge import seen, table
from tests.helpers.sizes import usually


def test_the_boundary_is_the_normal_mixture_and_narrowest_at_500():
    before = {"n_items": 800, "mean": 0.7, "variance": 0.21}
    t = 120
    total = 84.0
    change, reach = change_and_reach(before, t, total, total)  # scores of 0 and 1
    assert change == pytest.approx(0.0)
    variance = 0.7 * 0.3  # of both together
    v = variance * (1 / t + 1 / 800)

    def boundary(rho, v):
        # Robbins 1970: ∫ exp(λx − λ²v/2) dN(λ; 0, 1/ρ) = √(ρ/(v + ρ)) exp(x²/2(v + ρ)) reaches 1/α
        def log_ratio(x):
            return math.log(rho / (v + rho)) / 2 + x**2 / (2 * (v + rho)) + math.log(FALSE_ALARM_RATE)

        return brentq(log_ratio, 0, 9, xtol=1e-14)

    at = variance * (1 / TIGHTEST + 1 / 800)
    best = minimize_scalar(lambda log: boundary(math.exp(log), at), bounds=(-14, -4), method="bounded").x
    assert at / math.exp(best) == pytest.approx(TIGHTEST_RATIO, rel=1e-2)
    assert reach == pytest.approx(boundary(at / TIGHTEST_RATIO, v), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.5, 0.95])
@pytest.mark.parametrize("n_before", [200, 2000])
def test_streams_without_drift_rarely_alarm_at_any_look(share, n_before):
    n = usually(200, verify=2000)
    scores = (np.arange(1000) < 1000 * share).astype(float)
    alarms = drift_alarms(scores, np.full(1000, np.nan), n_before, 5000, n, seed=1)
    assert alarms <= 0.05 + 2.6 * math.sqrt(0.05 * 0.95 / n)


@pytest.mark.slow
def test_a_drift_of_ten_points_is_found_within_500_items():
    n = usually(200, verify=2000)
    for share, n_before in ((0.8, 500), (0.7, 1000), (0.9, 500)):
        scores = (np.arange(1000) < 1000 * share).astype(float)
        found = drift_alarms(scores, np.full(1000, np.nan), n_before, 500, n, seed=2, drift=0.1)
        assert found >= 0.8 - 2.6 * math.sqrt(0.16 / n)


def crowd(seed, start, stop, accuracy, hard=0.0):
    rng = np.random.default_rng(seed)
    n = stop - start
    truth = rng.integers(2, size=n)
    hardness = np.where(rng.random(n) < hard, 0.3, 0.0)
    answer = {f"h{i}": np.where(rng.random(n) < 0.9 - hardness, truth, 1 - truth) for i in range(3)}
    answer["gpt"] = np.where(rng.random(n) < accuracy - hardness, truth, 1 - truth)
    items = np.tile([f"item{m}" for m in range(start, stop)], 4)
    return items, np.repeat(list(answer), n), np.concatenate(list(answer.values()))


def joined(*parts):
    return ds.Annotations.from_arrays(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def answers_of(labels):
    return JudgeAnswers.of(labels, labels.annotators == "gpt")


def test_a_judge_that_drifted_is_named_and_harder_items_are_no_drift():
    before = crowd(0, 0, 500, 0.9)
    earlier = ds.judge_report(joined(before), "gpt").to_dict()
    parts = {
        "same": crowd(1, 500, 1000, 0.9),
        "worse": crowd(1, 500, 1000, 0.75),
        "harder": crowd(1, 500, 1000, 0.9, 0.5),
        "few": crowd(1, 500, 520, 0.5),
    }
    labels = {name: joined(before, part) for name, part in parts.items()}
    later = {name: ds.judge_report(shown, "gpt", since=earlier).drifts[0] for name, shown in labels.items()}
    verdicts = {"same": "no drift shown", "worse": "drifted", "harder": "changed", "few": ""}
    assert {name: drift.verdict for name, drift in later.items()} == verdicts
    assert later["worse"].in_words().startswith("gpt: drifted; agreement with humans changed by -")
    assert later["harder"].in_words().endswith(": the items may have changed")
    assert later["few"].in_words() == "gpt: 20 new items with labels of humans; a comparison needs 30"


def test_a_change_is_no_drift_if_the_agreement_of_humans_changed():
    def labels(seed, start, humans, judge):
        rng = np.random.default_rng(seed)
        truth = rng.integers(2, size=500)
        columns = {f"h{i}": seen(rng, truth, 2, humans) for i in range(3)} | {
            "gpt": seen(rng, truth, 2, judge)
        }
        items = np.tile([f"item{m}" for m in range(start, start + 500)], 4)
        return items, np.repeat(list(columns), 500), np.concatenate(list(columns.values()))

    before = labels(0, 0, 0.98, 0.85)
    earlier = ds.judge_report(joined(before), "gpt").to_dict()
    harder = joined(before, labels(1, 500, 0.75, 0.85))
    (drift,) = ds.judge_report(harder, "gpt", since=earlier).drifts
    # h j + (1 − h)(1 − j) is 0.836 before and 0.675 after; humans agree in h² + (1 − h)² = 0.961 and 0.625
    assert drift.change == pytest.approx(-0.161, abs=0.04)
    assert drift.human_change == pytest.approx(-0.336, abs=0.04)
    assert drift.verdict == "changed"
    assert re.search(r"^gpt: changed; .*, that of two humans by -3\d\.\d: the items may", drift.in_words())
    # a drift on items like the earlier ones, and with too few items of two humans to compare these
    worse = joined(before, labels(1, 500, 0.98, 0.7))
    (drift,) = ds.judge_report(worse, "gpt", since=earlier).drifts
    assert drift.verdict == "drifted"
    del earlier["baseline"]["agreement"]["gpt"]["human_mean"]
    for shown in (worse, harder):
        (drift,) = ds.judge_report(shown, "gpt", since=earlier).drifts
        assert drift.verdict == "drifted"
        assert drift.in_words().endswith(
            "; too few items have labels of two humans to tell if they are harder"
        )
    # of the new items, one alone has two humans: their agreement is not known
    items, names, answers = labels(1, 500, 0.98, 0.7)
    alone = (items != "item500") & np.isin(names, ["h1", "h2"])
    earlier["baseline"]["agreement"]["gpt"]["human_mean"] = 0.961
    few = joined(before, (items[~alone], names[~alone], answers[~alone]))
    (drift,) = ds.judge_report(few, "gpt", since=earlier).drifts
    assert drift.verdict == "drifted"
    assert math.isnan(drift.human_change)


@pytest.mark.slow
def test_some_harder_items_are_rarely_called_a_drift_of_an_equal_judge():
    n, named = usually(60, verify=600), 0
    for seed in range(n):
        earlier = baseline(answers_of(joined(crowd(2 * seed, 0, 500, 0.9))))
        later = answers_of(joined(crowd(2 * seed + 1, 500, 1500, 0.9, hard=0.3)))
        (drift,) = drifts(later, earlier)
        named += drift.verdict == "drifted"
    assert named <= (0.05 + 2.6 * math.sqrt(0.05 * 0.95 / n)) * n


def test_repeated_items_and_unknown_judges_are_left_out():
    earlier = ds.judge_report(joined(crowd(0, 0, 200, 0.9)), "gpt").to_dict()
    assert ds.judge_report(joined(crowd(0, 0, 200, 0.9)), "gpt", since=earlier).drifts[0].n_items == 0
    renamed = json.loads(json.dumps(earlier).replace('"gpt"', '"old"'))
    (missing,) = ds.judge_report(joined(crowd(0, 0, 200, 0.9)), "gpt", since=renamed).drifts
    assert missing.in_words() == "gpt: no baseline in the earlier output, so nothing is compared"
    with pytest.raises(DataError, match="not an earlier comparison"):
        ds.judge_report(joined(crowd(0, 0, 200, 0.9)), "gpt", since={"judges": []})


def test_numbers_keep_their_unit_as_the_range_grows():
    rng = np.random.default_rng(0)
    value = rng.normal(50, 10, size=300).round(1)
    columns = {name: (value + rng.normal(size=300)).round(1) for name in ("h0", "h1", "gpt")}

    def labels(n, extreme):
        parts = {name: column[:n].copy() for name, column in columns.items()}
        for column in parts.values():
            column[-1] = extreme
        items, names = np.tile(np.arange(n), 3), np.repeat(list(parts), n)
        return ds.Annotations.from_arrays(
            items, names, np.concatenate(list(parts.values())), label_type="numeric"
        )

    earlier = ds.judge_report(labels(200, 50.0), "gpt").to_dict()
    for extreme in (50.0, 500.0):
        (drift,) = ds.judge_report(labels(300, extreme), "gpt", since=earlier).drifts
        assert drift.n_items == 100
        assert drift.verdict == "no drift shown"
        assert abs(drift.change) < 0.01


def test_since_and_stable_on_the_command_line(tmp_path):
    def write(name, *parts):
        rows = "\n".join(f"{i},{a},{label}" for part in parts for i, a, label in zip(*part, strict=True))
        path = tmp_path / name
        path.write_text(f"item,annotator,label\n{rows}\n")
        return path

    first = write("first.csv", crowd(0, 0, 400, 0.9))
    run("judges", first, "-o", tmp_path / "first.json")
    same = write("same.csv", crowd(0, 0, 400, 0.9), crowd(1, 400, 700, 0.9))
    worse = write("worse.csv", crowd(0, 0, 400, 0.9), crowd(1, 400, 700, 0.6))
    since = ("--since", tmp_path / "first.json", "--require", "stable")
    assert "gpt: no drift shown; agreement" in run("judges", same, *since).stdout
    assert "dissensus: gpt: drifted; agreement with humans" in run("judges", worse, *since, code=3).stderr
    # nothing compared is not stable
    renamed = tmp_path / "renamed.csv"
    renamed.write_text(same.read_text().replace(",gpt,", ",gpt-new,"))
    few = write("few.csv", crowd(0, 0, 400, 0.9), crowd(1, 400, 420, 0.9))
    line = "dissensus: gpt-new: no baseline in the earlier output, so nothing is compared"
    assert line in run("judges", renamed, *since, code=3).stderr
    line = "dissensus: gpt: 20 new items with labels of humans; a comparison needs 30"
    assert line in run("judges", few, *since, code=3).stderr
    assert "--since" in failure("judges", same, "--require", "stable")
    assert "not an earlier comparison" in failure("judges", same, "--since", same)


def test_one_human_per_item_is_compared_by_agreement_alone():
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=200)
    labels = table({"h0": seen(rng, truth, 2, 0.9), "gpt": seen(rng, truth, 2, 0.9)})
    assert baseline(answers_of(labels))["agreement"]["gpt"].keys() == {"n_items", "mean", "variance"}
