"""The page's numbers: worked by hand, enumerated, or checked against an independent library."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

import dissensus as ds
from dissensus.annotators.plan import collect_findings
from dissensus.errors import DataError
from dissensus.evaluate.compare import held_out_scores
from dissensus.evaluate.gold import gold_accuracy
from dissensus.evaluate.group_agreement import Votes, compare_group
from dissensus.models.base import Model
from dissensus.models.confusion import gold_prior
from dissensus.models.sampled import second_run
from dissensus.report import clusters
from dissensus.report.annotators import column_content, page_order, pair_tables
from dissensus.report.page import embedded, page, write_report
from dissensus.report.quality import gold_content, held_out_table, search_content, trace_content
from dissensus.report.summary_cards import always_clear
from tests.helpers.judge import humans_and_judges
from tests.helpers.registry import FROM_LABELS_ALONE
from tests.helpers.report_sample import canteen, page_content
from tests.helpers.sizes import usually


def written(labels: Any, model: Any, path: Path, **settings: Any) -> dict[str, Any]:
    """Write a page and return its data."""
    write_report(labels, model, path, **settings)
    match = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    assert match
    content: dict[str, Any] = json.loads(match[1])
    return content


@pytest.fixture(scope="module")
def sample() -> ds.Annotations:
    return canteen()


@pytest.fixture(scope="module")
def fitted(sample: ds.Annotations) -> Model:
    model: Model = ds.PGM(6, 3, seed=1).fit(sample)
    return model


@pytest.fixture(scope="module")
def content(sample: ds.Annotations, fitted: Model) -> dict[str, Any]:
    return page_content(sample, fitted, title="Canteen", command="a command")


# ---- groups -------------------------------------------------------------------------------------------


def test_only_groups_that_the_labels_confirm_have_sentences(sample: ds.Annotations) -> None:
    literal = np.arange(sample.n_annotators) % 3 == 2  # as planted: literal readers of irony
    for code, confirmed in ((literal, True), (np.arange(sample.n_annotators) % 2 == 0, False)):
        rows = clusters.group_rows(sample, Votes.of(sample), code.astype(int), range(2))
        assert all((row["words"] is not None) == confirmed for row in rows)


def test_clusters_are_ordered_by_size_without_empty_ones(sample: ds.Annotations) -> None:
    grouping = clusters.grouping_of(ds.PGM(4, 6, seed=0).fit(sample), sample)
    assert grouping is not None
    sizes = np.bincount(grouping.items.argmax(axis=1), minlength=grouping.items.shape[1])
    assert (sizes > 0).all()
    assert clusters.grouping_of(ds.EmpiricalDistribution().fit(sample), sample) is None


def test_the_planted_groups_are_reported(content: dict[str, Any], sample: ds.Annotations) -> None:
    literal = np.arange(sample.n_annotators) % 3 == 2  # as planted: literal readers of irony
    group = content["annotators"]["group"]
    assert literal[group == 1].all()
    assert not literal[group == 0].any()
    found = content["clusters"]
    assert [row["n"] for row in found["groups"]] == [(group == 0).sum(), (group == 1).sum()]
    assert found["says"] in [step["says"] for step in content["steps"]]
    # most examples are ironic items, of which there are 18 %
    texts = [content["items"]["text"][i] for i in found["examples"]]
    ironic = [text.startswith(("Great, the", "I do love to wait", "Bravo, another")) for text in texts]
    assert np.mean(ironic) >= 0.75


# ---- items --------------------------------------------------------------------------------------------


def test_every_overturned_label_is_flagged_and_explained(content: dict[str, Any]) -> None:
    items = content["items"]
    pairs = zip(items["most"], items["label"], strict=True)
    overturned = {i for i, (most, label) in enumerate(pairs) if most not in (-1, label)}
    assert {i for i, flags in enumerate(items["flags"]) if flags & 16} == overturned
    assert {row["item"] for row in content["overturned"]} == overturned
    assert all("The model chooses" in row["why"] for row in content["overturned"])


def test_flags_by_hand() -> None:
    # i1: 4–1, i2: 3–2, i3: 2–2 (four labels), i4: one label
    votes = {"i1": "xxxxy", "i2": "xxxyy", "i3": "xxyy", "i4": "x"}
    rows = [(item, f"a{n}", label) for item, labels in votes.items() for n, label in enumerate(labels)]
    gold = {"item": ["i1", "i4"], "label": ["x", "y"]}
    labels = ds.Annotations.from_arrays(*zip(*rows, strict=True), gold=gold)
    findings = collect_findings(ds.MajorityVote().fit(labels), labels)
    assert findings.clear[0].tolist() == [True, False, False, True]
    assert findings.adjudicate.tolist() == [False, True, True, False]  # MajorityVote claims no intervals
    assert findings.wrong.tolist() == [False, False, False, True]
    assert findings.more.tolist() == [False, False, False, True]  # fewer than half of the usual 4.5
    assert findings.narrowing() is None


def test_narrowing_follows_the_dirichlet_variance() -> None:
    labels = ds.simulate(40, 10, 3, seed=1).annotations
    findings = collect_findings(ds.FMM(2).fit(labels), labels)
    widths, intervals = findings.narrowing(), findings.intervals
    assert widths is not None
    assert intervals is not None
    # a Beta(v p, v (1 − p)) has variance p (1 − p) / (v + 1)
    ratio = np.sqrt((intervals.effective_labels + 1) / (intervals.effective_labels + 2))
    np.testing.assert_allclose(widths[1], widths[0] * ratio, rtol=1e-12)


# ---- gold ---------------------------------------------------------------------------------------------


def test_accuracy_on_gold_by_hand(tmp_path: Path) -> None:
    rows = [("i1", "a", "x"), ("i1", "b", "x"), ("i2", "a", "y"), ("i2", "b", "x"), ("i3", "a", "y")]
    gold = {"item": ["i1", "i2", "i3"], "label": ["x", "x", "x"]}
    labels = ds.Annotations.from_arrays(*zip(*rows, strict=True), gold=gold)
    model = ds.MajorityVote().fit(labels)
    accuracy = gold_content(model, labels)
    assert accuracy is not None
    assert accuracy["n"] == 3
    assert accuracy["raw"][0] == pytest.approx((1 + 0.5 + 0) / 3)
    assert accuracy["classes"].tolist() == [3, 0]
    assert accuracy["class_right"]["raw"][0] == pytest.approx(0.5)
    assert accuracy["confusion"].sum() == 3
    assert gold_content(model, ds.Annotations.from_arrays(*zip(*rows, strict=True))) is None
    people = written(labels, model, tmp_path / "page.html")["annotators"]
    assert (people["gold_n"], people["gold_right"]) == ([3, 2], [1, 2])
    expected = [binomtest(right, n).proportion_ci(0.95, method="wilson") for right, n in ((1, 3), (2, 2))]
    assert people["gold_low"] == pytest.approx([ends.low for ends in expected], abs=1e-3)
    assert people["gold_high"] == pytest.approx([ends.high for ends in expected], abs=1e-3)


def test_models_trained_on_gold_are_cross_fitted() -> None:
    """Random gold labels: fitted with them the model is always right, cross-fitted it is not."""
    rng = np.random.default_rng(3)
    rows = [(f"i{m:02d}", f"a{n}", "xy"[rng.integers(2)]) for m in range(60) for n in range(5)]
    gold = {"item": [f"i{m:02d}" for m in range(60)], "label": rng.choice(["x", "y"], 60)}
    labels = ds.Annotations.from_arrays(*zip(*rows, strict=True), gold=gold)
    trained = gold_content(ds.DawidSkene().fit(labels, prior=gold_prior(labels)), labels, seed=4)
    untrained = gold_content(ds.DawidSkene().fit(labels), labels)
    assert trained is not None
    assert untrained is not None
    assert (trained["crossed"], untrained["crossed"]) == (True, False)
    assert trained["model"][0] == gold_accuracy(labels, ds.DawidSkene(), seed=4).cross_fitted.value < 0.75
    assert np.trace(trained["confusion"]) < 45


# ---- annotators ---------------------------------------------------------------------------------------


def test_annotator_columns_are_compared_by_value(sample: ds.Annotations, fitted: Model) -> None:
    votes = Votes.of(sample)
    (column,) = column_content(sample, votes, None, [], anonymise=False)
    reads = sample.annotator_column("reads_on")
    assert column["values"] == ["screen", "phone"]
    for value, row in zip(column["values"], column["sides"], strict=True):
        assert row["n"] == int((reads == value).sum())
        assert row["within"] == compare_group(votes, reads == value).within
    lumped = column_content(sample, votes, None, [], anonymise=True)
    assert [row["name"] for row in lumped] == ["reads_on"]


def test_pairwise_agreement_by_hand() -> None:
    labels = ds.Annotations.from_arrays(list("iijjjj"), list("ababcc"), list("xxxyyx"))
    agreed, shared = pair_tables(Votes.of(labels), np.arange(3), 3)
    assert (shared[0, 1], shared[0, 2], shared[1, 2]) == (2, 1, 1)
    assert (agreed[0, 1], agreed[0, 2], agreed[1, 2]) == (1, 0.5, 0.5)


def test_anonymised_pages_contain_no_id(sample: ds.Annotations, fitted: Model, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    content = written(sample, fitted, path, anonymise=True, held_out=[])
    text = path.read_text(encoding="utf-8")
    assert not any(str(name) in text for name in sample.annotators)
    assert sorted(content["annotators"]["n"]) == sorted(sample.annotator_load.tolist())
    # the labels follow the order of the page, which is random and does not depend on a seed
    loads = np.bincount(content["rows"]["who"], minlength=sample.n_annotators)
    assert loads.tolist() == content["annotators"]["n"]
    order, names = page_order(sample, True)
    assert sorted(order) == list(range(40))
    assert (order != page_order(sample, True)[0]).any()
    assert [names[n] for n in order] == [f"annotator {rank + 1}" for rank in range(40)]
    assert list(page_order(sample, False)[0]) == list(range(40))


def test_annotators_who_differ_are_named_whatever_the_verdict() -> None:
    """Ten annotators agree, the last answers at random; verdicts are set by hand."""
    rng = np.random.default_rng(0)
    item, annotator = (column.ravel() for column in np.indices((40, 11)))
    label = (item + ((annotator == 10) & (rng.random(440) < 0.5))) % 2
    labels = ds.Annotations.from_arrays(item, annotator, label)
    findings = collect_findings(ds.HPGM(n_chains=2, n_sweeps=20, seed=0).fit(labels), labels)
    assert findings.verdicts is not None
    for verdict in ("cannot tell", "minority view", "spam", "typical"):
        findings.verdicts.verdict[:] = ["typical"] * 10 + [verdict]
        assert replace(findings).check.tolist() == [False] * 10 + [True]
    # without verdicts the same annotator is named
    assert collect_findings(ds.FMM(2).fit(labels), labels).check.tolist() == [False] * 10 + [True]


def test_judges_named_in_the_table_have_a_section(tmp_path: Path) -> None:
    labels, path = humans_and_judges(0, 120), tmp_path / "page.html"
    model = ds.FMM(4).fit(labels)
    kinds = ["llm" if str(name).startswith("judge") else "human" for name in labels.annotators]
    with_kinds = labels.with_tables(annotators={"annotator": labels.annotators, "kind": kinds})
    for anonymise in (False, True):
        content = written(with_kinds, model, path, held_out=[], anonymise=anonymise)
        judges = content["judges"]
        names = [row["judge"] for row in judges["judges"]]
        assert (names == [f"judge{i}" for i in range(5)]) is not anonymise
        # the same names as in the table of annotators
        assert {row[0] for row in judges["axis"]} <= set(content["annotators"]["id"])
    assert "judge0" not in path.read_text(encoding="utf-8")
    report = ds.judge_report(with_kinds)
    rates = [row["winning_rate"] for row in report.rows()]
    assert [row["winning_rate"] for row in judges["judges"]] == rates
    assert report.panel is not None
    assert f"{report.panel.effective_votes:.1f} independent votes" in judges["panel"]["says"]
    assert written(labels, model, path, held_out=[])["judges"] is None


# ---- quality ------------------------------------------------------------------------------------------


def test_scores_of_a_run_are_shown(sample: ds.Annotations) -> None:
    models = [ds.EmpiricalDistribution(), ds.FMM(5), ds.DawidSkene(), ds.PGM(4, 2)]
    scores = held_out_scores(sample, models)
    fitted = ds.PGM(4, 2, seed=3).fit(sample)
    table = held_out_table(fitted, scores)
    assert {row["title"] for row in table} == {
        *("smoothed counts (empirical)", "FMM (5 item clusters)", "Dawid–Skene"),
        "PGM (4 item and 2 annotator clusters)",
    }
    assert [row["title"] for row in table if row["own"]] == ["PGM (4 item and 2 annotator clusters)"]
    by_score = sorted(scores, key=lambda row: -row.score_items)
    assert [row["score_items"] for row in table] == [row.score_items for row in by_score]
    assert [row["behind_items"] for row in table] == [
        [*row.behind_items, row.behind_items.tied] for row in by_score
    ]
    assert table[0]["behind_items"] == [0.0, 0.0, True]
    assert {row["n"] for row in table} == {scores[0].n_hidden}
    # a saved run has the same scores as plain values
    assert held_out_table(fitted, [row.as_row() for row in scores]) == table
    assert held_out_table(fitted, []) == []


def test_a_second_run_is_said_on_the_page(sample: ds.Annotations, tmp_path: Path) -> None:
    model = ds.HPGM(n_chains=2, n_sweeps=20).fit(sample)
    words = written(sample, model, tmp_path / "page.html")["trace"]["second_run"]
    moved = f"{100 * float(model.run_difference_):.1f}"
    assert words == f"A second run, with another seed, would move an item's shares by {moved} % on average."
    assert second_run(0.0009).endswith("by less than 0.1 % on average.")
    for other in (ds.FMM(3), ds.HPGM(n_chains=1, n_sweeps=20)):
        content = written(sample, other.fit(sample), tmp_path / "page.html")
        assert content["trace"]["second_run"] is None


# ---- search, trace ------------------------------------------------------------------------------------


def test_the_search_table_and_the_trace() -> None:
    cells = ((4, 2, "-0.5", "0.0"), (4, 3, "-0.4", "0.1"), (4, 3, "-0.7", "0.2"), (6, 2, "", ""))
    keys = ("n_item_clusters", "n_annotator_clusters", "score", "behind")
    rows = [dict(zip(keys, map(str, cell), strict=True)) for cell in cells]
    best = {"k": [4], "l": [2, 3], "scores": [[-0.5, -0.6]], "winner": (4, 2), "n": 4}
    assert (search_content(rows), search_content(None)) == (best, None)
    # a long trace is thinned
    model = ds.EmpiricalDistribution()
    model.trace_, model.stopped_ = np.linspace(-9.0, -1.0, 5000), "tolerance"
    trace = trace_content(model)
    assert trace is not None
    assert len(trace["objective"]) <= 300
    assert (trace["objective"][0], trace["objective"][-1], trace["iteration"][-1]) == (-9.0, -1.0, 5000)


# ---- every model, odd data ----------------------------------------------------------------------------


# models of items alone and of annotators, with clusters of items or annotators, and without
SOME = ["empirical", "fmm", "dawid-skene", "cbcc", "pgm", "hpgm", "pool"]


@pytest.mark.slow
@pytest.mark.parametrize("name", usually(SOME, verify=FROM_LABELS_ALONE))
def test_every_model_has_a_page(name: str, sample: ds.Annotations, tmp_path: Path) -> None:
    from dissensus.models import build_model

    model = build_model(name, {"n_sweeps": 40} if name in ("hpgm", "latent", "pool") else {}).fit(sample)
    content = written(sample, model, tmp_path / "page.html", held_out=[])
    assert content["strip"][0]["title"].startswith("Agreement")
    assert len(content["items"]["p"]) == sample.n_items * sample.n_classes
    assert len(content["clusters"]["groups"]) == 2
    assert bool(content["clusters"]["items"]) == (name != "empirical")


def test_unusual_data_have_a_page(sample: ds.Annotations, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    counts = ds.Annotations.from_counts(sample.counts, classes=sample.classes)
    content = written(counts, ds.FMM(4).fit(counts), path)
    assert content["annotators"] is None
    assert content["rows"]["counts"] == sample.counts.ravel().tolist()
    assert content["clusters"]["groups"] == []
    assert [card["title"] for card in content["strip"]][3:] == ["Effect of one more label per item"]
    few = ds.Annotations.from_arrays(["a", "a", "b"], ["x", "y", "x"], ["yes", "no", "yes"])
    content = written(few, ds.EmpiricalDistribution().fit(few), path)
    assert content["held_out"] == []
    # the features are not part of the labels, so that no model can be fitted for a comparison
    crowd = ds.simulate(60, 12, 3, labels_per_item=4, seed=0).annotations
    model = ds.DirichletRegression(folds=2).fit(crowd, np.random.default_rng(0).normal(size=(60, 3)))
    content = written(crowd, model, path)
    assert content["held_out"] == []
    assert content["data"]["n_items"] == 60


def test_mismatched_labels_are_refused(sample: ds.Annotations, fitted: Model, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="are not those of the model"):
        write_report(sample.take_items(np.arange(10)), fitted, tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


# ---- the page as a file -------------------------------------------------------------------------------


def test_data_cannot_end_its_html_element(content: dict[str, Any]) -> None:
    nasty = "</script><script>alert(1)</script><!-- {{script}} \u2028 &amp;"
    text = embedded(content | {"title": nasty})
    assert "<" not in text
    assert "&" not in text
    assert json.loads(text)["title"] == nasty
    html = page(content | {"title": nasty})
    assert html.count("<script") == 2
    assert "alert(1)</script>" not in html
    assert set(re.findall(r"https?://[^\s\"')]+", html)) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.data
def test_two_documented_groups_are_found(data_dir: Path, tmp_path: Path) -> None:
    """In hs_brexit Ann1–3 are Muslim immigrants and Ann4–6 a control group (Akhtar et al. 2021)."""
    folder = data_dir / "hs_brexit"
    labels = ds.read_annotations(folder / "annotations.csv", items=folder / "items.csv")
    content = written(labels, ds.CBCC().fit(labels), tmp_path / "page.html", held_out=[])
    group = dict(zip(content["annotators"]["id"], content["annotators"]["group"], strict=True))
    assert group["Ann1"] == group["Ann2"] == group["Ann3"]
    assert group["Ann4"] == group["Ann5"] == group["Ann6"] != group["Ann1"]
    # share of ‘hate’ among the raw labels of each three
    hate = labels.label == list(labels.classes).index("hate")
    shares = [hate[np.isin(labels.annotator, who)].mean() for who in ([0, 1, 2], [3, 4, 5])]
    smaller = shares[0] if group["Ann1"] == 1 else shares[1]
    often = "more" if smaller == max(shares) else "less"
    assert content["clusters"]["groups"][1]["name"] == f"smaller group: {often} often ‘hate’"
    assert f"the smaller group answers ‘hate’ {often} often" in content["clusters"]["says"]


def test_an_annotator_table_of_ids_alone(tmp_path: Path) -> None:
    simulated = ds.simulate(20, 12, 3, labels_per_item=4, seed=0).annotations
    labels = simulated.with_tables(annotators={"annotator": simulated.annotators})
    ds.write_report(labels, ds.FMM(2).fit(labels), tmp_path / "page.html")


def test_clear_raw_labels_are_not_counted_where_they_cannot_be_unclear() -> None:
    """The most frequent of P answers has ⌈n / P⌉ labels or more: two thirds for 3 in 2, not for 4 or in 3."""
    assert always_clear(np.array([[2, 1], [0, 3], [1, 0]]))
    assert not always_clear(np.array([[2, 1], [2, 2]]))
    assert not always_clear(np.array([[1, 1, 1]]))
