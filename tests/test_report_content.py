"""The page's numbers: worked by hand, enumerated, or checked against an independent library."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import contingency

import dissensus as ds
from dissensus.errors import DataError
from dissensus.evaluate.compare import held_out_scores
from dissensus.evaluate.gold import gold_accuracy, wilson
from dissensus.evaluate.sides import Votes, cramers_v, side_of
from dissensus.models.base import Model
from dissensus.models.confusion import gold_prior
from dissensus.report.annotators import column_content, pair_tables
from dissensus.report.clusters import (
    Grouping,
    cluster_content,
    group_name,
    grouping_of,
    side_rows,
    steady_groups,
    told_by,
)
from dissensus.report.items import fanned, principal_plane
from dissensus.report.page import embedded, findings, page, write_report
from dissensus.report.quality import gold_content, held_out_table, search_content, trace_content, worth
from judge_help import humans_and_judges
from registry import FROM_LABELS_ALONE
from report_sample import canteen, page_content
from sizes import usually


def written(labels: Any, model: Any, path: Path, **settings: Any) -> dict[str, Any]:
    """What stands in the data element of a page that is written."""
    write_report(labels, model, path, **settings)
    return data_of(path)


def data_of(path: Path) -> dict[str, Any]:
    """What stands in a page's data element."""
    found = re.search(r'id="data">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    content: dict[str, Any] = json.loads(found[1])
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


def test_groups_that_the_labels_do_not_bear_out_are_not_spoken_of(sample: ds.Annotations) -> None:
    literal = np.arange(sample.n_annotators) % 3 == 2  # as planted: who takes irony by its word
    names, votes = list(map(str, sample.classes)), Votes.of(sample)
    for code, said in ((literal, True), (np.arange(sample.n_annotators) % 2 == 0, False)):
        rows = side_rows(sample, votes, code.astype(int), range(2), names)
        assert all((row["words"] is not None) == said for row in rows)


def test_groups_come_largest_first_and_empty_ones_go(sample: ds.Annotations) -> None:
    model = ds.PGM(4, 6, seed=0).fit(sample)
    grouping = grouping_of(model, sample)
    assert grouping is not None
    assert grouping.annotators is not None
    load = sample.annotator_load @ grouping.annotators
    assert (np.diff(load) <= 0).all()
    assert set(grouping.annotators.argmax(axis=1)) == set(range(grouping.sizes[1]))
    assert set(grouping.items.argmax(axis=1)) == set(range(grouping.sizes[0]))


def test_the_planted_contrast_is_found_and_said(content: dict[str, Any]) -> None:
    first = content["clusters"]["contrasts"][0]
    text = content["items"]["text"][first["items"][0]]
    ironic = ("Great, the", "I do love to wait", "Bravo, another")
    assert text.startswith(ironic)
    assert "praise" in first["says"] or "complaint" in first["says"]
    assert any(first["says"] in step["says"] for step in content["steps"])


def test_letters_go_on_after_z() -> None:
    assert [group_name(n) for n in (0, 25, 26, 51, 52, 701, 702)] == ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]


# ---- items --------------------------------------------------------------------------------------------


def test_every_overturned_label_is_counted_and_explained(content: dict[str, Any]) -> None:
    items = content["items"]
    places = [
        i
        for i, (most, given) in enumerate(zip(items["most"], items["label"], strict=True))
        if most not in (-1, given)
    ]
    assert {i for i, flags in enumerate(items["flags"]) if flags & 16} == set(places)
    assert {one["item"] for one in content["overturned"]} == set(places)
    assert all("The model gives" in one["why"] for one in content["overturned"])


def test_flags_by_hand() -> None:
    # i1: 4–1, i2: 3–2, i3: 2–2 (four labels), i4: one label
    given = {"i1": "xxxxy", "i2": "xxxyy", "i3": "xxyy", "i4": "x"}
    rows = [(item, f"a{n}", label) for item, labels in given.items() for n, label in enumerate(labels)]
    gold = {"item": ["i1", "i4"], "label": ["x", "y"]}
    labels = ds.Annotations.from_arrays(*zip(*rows, strict=True), gold=gold)
    found = findings(ds.MajorityVote().fit(labels), labels)
    assert found.clear[0].tolist() == [True, False, False, True]
    assert found.adjudicate.tolist() == [False, True, True, False]  # MajorityVote claims no intervals
    assert found.wrong.tolist() == [False, False, False, True]
    assert found.more.tolist() == [False, False, False, True]  # fewer than half of the usual 4.5
    assert found.narrowing() is None


def test_what_one_more_label_narrows() -> None:
    labels = ds.simulate(40, 10, 3, seed=1).annotations
    found = findings(ds.FMM(2).fit(labels), labels)
    narrow, known = found.narrowing(), found.known
    assert narrow is not None
    assert known is not None
    # a Beta(v p, v (1 − p)) has variance p (1 − p) / (v + 1)
    expected = narrow[0] * np.sqrt((known.worth + 1) / (known.worth + 2))
    np.testing.assert_allclose(narrow[1], expected, rtol=1e-12)
    assert (narrow[1] < narrow[0]).all()


# ---- gold ---------------------------------------------------------------------------------------------


def test_gold_by_hand() -> None:
    rows = [("i1", "a", "x"), ("i1", "b", "x"), ("i2", "a", "y"), ("i2", "b", "x"), ("i3", "a", "y")]
    gold = {"item": ["i1", "i2", "i3"], "label": ["x", "x", "x"]}
    labels = ds.Annotations.from_arrays(*zip(*rows, strict=True), gold=gold)
    model = ds.MajorityVote().fit(labels)
    found = gold_content(model, labels)
    assert found is not None
    assert found["n"] == 3
    assert found["raw"][0] == pytest.approx((1 + 0.5 + 0) / 3)
    assert found["classes"].tolist() == [3, 0]
    assert found["class_right"]["raw"][0] == pytest.approx(0.5)
    assert found["confusion"].sum() == 3
    assert gold_content(model, ds.Annotations.from_arrays(*zip(*rows, strict=True))) is None


def test_a_model_that_gold_has_trained_is_judged_by_fits_that_did_not_see_it() -> None:
    """Gold by chance: the model gives every item its gold class, and the page says how often it would."""
    rng = np.random.default_rng(3)
    rows = [(f"i{m:02d}", f"a{n}", "xy"[rng.integers(2)]) for m in range(60) for n in range(5)]
    gold = {"item": [f"i{m:02d}" for m in range(60)], "label": rng.choice(["x", "y"], 60)}
    labels = ds.Annotations.from_arrays(*zip(*rows, strict=True), gold=gold)
    plain, trained = (ds.DawidSkene().fit(labels), ds.DawidSkene().fit(labels, prior=gold_prior(labels)))
    found = gold_content(trained, labels, seed=4)
    assert found is not None
    assert found["crossed"]
    assert found["model"][0] == gold_accuracy(labels, ds.DawidSkene(), seed=4).cross_fitted.value < 0.75
    assert np.trace(found["confusion"]) < 45
    untrained = gold_content(plain, labels)
    assert untrained is not None
    assert not untrained["crossed"]


def test_annotators_are_held_against_gold_with_intervals(tmp_path: Path) -> None:
    rows = [(f"i{m}", who, "x" if m % 4 or who == "b" else "y") for m in range(8) for who in "ab"]
    gold = {"item": [f"i{m}" for m in range(8)], "label": ["x"] * 8}
    labels = ds.Annotations.from_arrays(*zip(*rows, strict=True), gold=gold)
    people = written(labels, ds.MajorityVote().fit(labels), tmp_path / "page.html")["annotators"]
    assert (people["gold_n"], people["gold_right"]) == ([8, 8], [6, 8])
    assert people["gold_low"][0] < 0.75 < people["gold_high"][0] < people["gold_high"][1] == 1.0


def test_wilsons_interval_is_that_of_scipy() -> None:
    from scipy.stats import binomtest

    for right, n in ((0, 5), (3, 10), (50, 50), (411, 500)):
        expected = binomtest(right, n).proportion_ci(0.95, method="wilson")
        found = wilson(right, n)
        np.testing.assert_allclose([found.low, found.high], [expected.low, expected.high], atol=1e-4)


# ---- annotators ---------------------------------------------------------------------------------------


def test_cramers_v_is_scipys() -> None:
    table = np.random.default_rng(3).integers(1, 30, size=(3, 4))
    expected = contingency.association(table, method="cramer", correction=False)
    assert cramers_v(table) == pytest.approx(expected, rel=1e-12)
    assert cramers_v(np.array([[5, 0], [0, 7]])) == pytest.approx(1.0)
    assert cramers_v(np.array([[5, 5]])) == 0.0


def test_side_columns_stand_beside_the_others(sample: ds.Annotations, fitted: Model) -> None:
    votes = Votes.of(sample)
    (column,) = column_content(sample, votes, None, [], anonymise=False)
    reads = sample.annotator_column("reads_on")
    assert column["values"] == ["screen", "phone"]
    for value, row in zip(column["values"], column["sides"], strict=True):
        assert row["n"] == int((reads == value).sum())
        assert row["within"] == side_of(votes, reads == value).within
    lumped = column_content(sample, votes, None, [], anonymise=True)
    assert [one["name"] for one in lumped] == ["reads_on"]


def test_pairs_of_annotators_by_hand() -> None:
    rows = [
        ("i", "a", "x"),
        ("i", "b", "x"),
        ("j", "a", "x"),
        ("j", "b", "y"),
        ("j", "c", "y"),
        ("j", "c", "x"),
    ]
    labels = ds.Annotations.from_arrays(*zip(*rows, strict=True))
    agreed, shared = pair_tables(Votes.of(labels), np.arange(3), 3)
    assert (shared[0, 1], shared[0, 2], shared[1, 2]) == (2, 1, 1)
    assert (agreed[0, 1], agreed[0, 2], agreed[1, 2]) == (1, 0.5, 0.5)


def test_anonymised_pages_hold_no_annotator_id(sample: ds.Annotations, fitted: Model, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write_report(sample, fitted, path, anonymise=True, held_out=[])
    text = path.read_text(encoding="utf-8")
    assert not any(str(name) in text for name in sample.annotators)
    content = data_of(path)
    assert sorted(content["annotators"]["n"]) == sorted(sample.annotator_load.tolist())
    # The order is another one, and the labels follow it.
    given = np.bincount(content["rows"]["who"], minlength=sample.n_annotators)
    assert given.tolist() == content["annotators"]["n"]


# ---- quality ------------------------------------------------------------------------------------------


def test_held_out_scores_of_a_run_are_taken_over(sample: ds.Annotations) -> None:
    from dissensus.workflow.refine import fit

    run = fit(sample, "pgm", {"n_item_clusters": 4, "n_annotator_clusters": 2})
    table = held_out_table(run.model, sample, run.held_out, 0.2, 0)
    by_title = {row["title"]: row for row in table}
    assert set(by_title) == {"pgm 4×2", "smoothed counts", "item clusters only (FMM)", "Dawid–Skene"}
    assert by_title["pgm 4×2"]["own"]
    assert by_title["pgm 4×2"]["score"] == run.held_out[0].score
    assert [row["score"] for row in table] == sorted((row["score"] for row in table), reverse=True)
    assert held_out_table(run.model, sample, [], 0.2, 0) == []


def test_how_far_models_are_behind_the_best_is_shown_where_it_is_known(sample: ds.Annotations) -> None:
    from dissensus.workflow.refine import fit

    run = fit(sample, "pgm", {"n_item_clusters": 4, "n_annotator_clusters": 2})
    # the rivals are scored for the page, on the same hidden labels: all can be compared, pair by pair
    table = held_out_table(run.model, sample, run.held_out, 0.2, 0)
    for gap, score in (("behind", "score"), ("behind_items", "score_items")):
        top = max(row[score] for row in table)
        assert [row[gap][0] for row in table] == pytest.approx([top - row[score] for row in table])
        assert all(tied == (mean <= 2 * error) for mean, error, tied in (row[gap] for row in table))
        assert [row[score] for row in table if not row[gap][0]] == [top]
    # of a saved run the scores are left, without the labels: its model is asked again, with the same table
    saved = [row.as_row() for row in run.held_out]
    assert held_out_table(run.model, sample, saved, 0.2, 0) == table


def test_a_model_that_foresees_best_is_shown_whatever_it_is(sample: ds.Annotations) -> None:
    models = [ds.FMM(5), ds.EmpiricalDistribution(), ds.DawidSkene(), ds.PGM(5, 2), ds.PGM(1, 1)]
    known = held_out_scores(sample, models)
    best = max(known, key=lambda row: row.score)
    assert best.model.get_params()["n_item_clusters"] == 5
    saved = [row.as_row() for row in known]
    table = held_out_table(ds.EmpiricalDistribution().fit(sample), sample, saved, 0.2, 0)
    assert table[0]["behind"] == [0.0, 0.0, True]
    assert table[0]["score"] == best.score
    assert len({row["title"] for row in table}) == len(table)


def test_scores_on_other_hidden_labels_are_not_mixed_in(sample: ds.Annotations) -> None:
    from dissensus.workflow.refine import fit

    run = fit(sample, "fmm", {"n_item_clusters": 4}, test_size=0.3)
    table = held_out_table(run.model, sample, run.held_out, 0.2, 0)
    assert {row["n"] for row in table} == {run.held_out[0].n_hidden}


def test_the_worth_of_a_label_is_taken_from_a_recovery(sample: ds.Annotations) -> None:
    found = ds.recover(
        sample,
        {"fmm": ds.FMM(5), "ours": ds.PGM(5, 2)},
        (1, 2, 3),
        pool=4,
        min_reserved=2,
        n_draws=1,
        n_jobs=1,
        progress=False,
    )
    worthy = worth(ds.PGM(5, 2), found)
    assert worthy["shown"] == 2
    assert worthy["efficiency"] == found.best("ours", 2).efficiency
    assert "(240 items, 1 draw)" in worthy["words"]


# ---- map, search, trace -------------------------------------------------------------------------------


def test_the_plane_holds_the_directions_of_most_variance() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 5)) * np.array([0.1, 5.0, 0.2, 2.0, 0.1])
    plane = principal_plane(rows)
    singular = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False)
    np.testing.assert_allclose(np.linalg.norm(plane, axis=0), singular[:2], rtol=1e-9)


def test_items_at_one_place_are_fanned_out() -> None:
    places = np.repeat([[0, 0], [1000, 1000]], 40, axis=0)
    moved = fanned(places)
    assert len(np.unique(moved, axis=0)) > 60
    assert moved.min() >= 0
    assert moved.max() <= 1000


def test_the_search_surface_keeps_the_best_of_each_size() -> None:
    sizes, scores, gaps = (
        ((4, 2), (4, 3), (4, 3), (6, 2)),
        ("-0.5", "-0.4", "-0.7", ""),
        ("0.0", "0.1", "0.2", ""),
    )
    rows = [
        {"n_item_clusters": str(k), "n_annotator_clusters": str(g), "score": score, "behind": gap}
        for (k, g), score, gap in zip(sizes, scores, gaps, strict=True)
    ]
    found = search_content(rows)
    assert found == {"k": [4], "l": [2, 3], "scores": [[-0.5, -0.6]], "winner": (4, 2), "n": 4}
    assert search_content(None) is None


def test_a_long_trace_is_thinned_and_keeps_its_ends(fitted: Model) -> None:
    model = ds.EmpiricalDistribution()
    model.trace_, model.stopped_ = np.linspace(-9.0, -1.0, 5000), "tolerance"
    found = trace_content(model)
    assert found is not None
    assert len(found["objective"]) <= 300
    assert (found["objective"][0], found["objective"][-1]) == (-9.0, -1.0)
    assert found["iteration"][-1] == 5000


# ---- every model, odd data ----------------------------------------------------------------------------


# Of items alone and of annotators; with clusters of its own, of items and annotators, and without.
SOME = ["empirical", "fmm", "dawid-skene", "cbcc", "pgm", "hpgm"]


@pytest.mark.slow
@pytest.mark.parametrize("name", usually(SOME, verify=FROM_LABELS_ALONE))
def test_every_model_has_a_page(name: str, sample: ds.Annotations, tmp_path: Path) -> None:
    from dissensus.models import build_model

    model = build_model(name, {"n_sweeps": 40} if name in ("hpgm", "latent") else {}).fit(sample)
    content = written(sample, model, tmp_path / "page.html", held_out=[])
    assert content["strip"][0]["title"].startswith("Agreement")
    assert len(content["items"]["p"]) == sample.n_items * sample.n_classes
    assert len(content["clusters"]["groups"]) >= 2
    assert content["clusters"]["borrowed"] == (name not in ("pgm", "cbcc", "hpgm"))


def test_counts_without_annotators_have_a_page(sample: ds.Annotations, tmp_path: Path) -> None:
    nobody = ds.Annotations.from_counts(sample.counts, classes=sample.classes)
    model = ds.FMM(4).fit(nobody)
    content = written(nobody, model, tmp_path / "page.html")
    assert content["annotators"] is None
    assert content["rows"]["counts"] == sample.counts.ravel().tolist()
    assert content["clusters"]["groups"] == []
    assert [card["title"] for card in content["strip"]][3:] == ["One more label per item"]


def test_a_handful_of_labels_has_a_page(tmp_path: Path) -> None:
    few = ds.Annotations.from_arrays(["a", "a", "b"], ["x", "y", "x"], ["yes", "no", "yes"])
    model = ds.EmpiricalDistribution().fit(few)
    content = written(few, model, tmp_path / "page.html")
    assert content["quality"]["held_out"] == []
    assert content["quality"]["worth"] is None


def test_labels_of_another_set_are_refused(sample: ds.Annotations, fitted: Model, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="are not those of the model"):
        write_report(sample.take_items(np.arange(10)), fitted, tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_texts_must_be_one_an_item(sample: ds.Annotations, fitted: Model, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="3 texts were given for 240 items"):
        write_report(sample, fitted, tmp_path / "page.html", texts=["a", "b", "c"])


# ---- the page as a file -------------------------------------------------------------------------------


def test_nothing_in_the_data_can_end_its_element(content: dict[str, Any]) -> None:
    nasty = "</script><script>alert(1)</script><!-- {{script}} \u2028 &amp;"
    text = embedded(content | {"title": nasty})
    assert "<" not in text
    assert "&" not in text
    assert json.loads(text)["title"] == nasty
    whole = page(content | {"title": nasty})
    assert whole.count("<script") == 2
    assert "alert(1)</script>" not in whole


def test_the_page_names_no_address(content: dict[str, Any]) -> None:
    outside = re.findall(r"https?://[^\s\"')]+", page(content))
    assert set(outside) <= {"http://www.w3.org/2000/svg"}


@pytest.mark.data
def test_two_known_groups_and_what_they_disagree_about(data_dir: Path, tmp_path: Path) -> None:
    """In hs_brexit Ann1–3 are Muslim immigrants and Ann4–6 a control group (Akhtar et al. 2021)."""
    folder = data_dir / "hs_brexit"
    labels = ds.read_annotations(folder / "annotations.csv", items=folder / "items.csv")
    model = ds.CBCC().fit(labels)
    content = written(labels, model, tmp_path / "page.html", held_out=[])
    group = dict(zip(content["annotators"]["id"], content["annotators"]["group"], strict=True))
    assert group["Ann1"] == group["Ann2"] == group["Ann3"]
    assert group["Ann4"] == group["Ann5"] == group["Ann6"] != group["Ann1"]
    # What the raw labels say: the share of ‘hate’ among the labels of each three.
    hate = labels.label == list(labels.classes).index("hate")
    shares = [hate[np.isin(labels.annotator, who)].mean() for who in ([0, 1, 2], [3, 4, 5])]
    more = group_name(group["Ann1"] if shares[0] > shares[1] else group["Ann4"])
    says = content["clusters"]["contrasts"][0]["says"]
    assert re.match(
        rf"On \d+ items group {more} says ‘hate’ [6-9]\d\u00a0% of the time, group \w \d+\u00a0%", says
    )


def test_a_model_fitted_on_features_of_its_own_has_a_page(tmp_path: Path) -> None:
    # The features are not among the annotations, so nothing can be fitted again for a comparison.
    crowd = ds.simulate(60, 12, 3, labels_per_item=4, seed=0).annotations
    model = ds.DirichletRegression(folds=2).fit(crowd, np.random.default_rng(0).normal(size=(60, 3)))
    page = written(crowd, model, tmp_path / "page.html")
    assert page["quality"]["held_out"] == []
    assert page["data"]["n_items"] == 60


def test_no_seed_leads_back_from_an_anonymous_page() -> None:
    from dissensus.report.annotators import page_order

    labels = ds.simulate(20, 50, 3, labels_per_item=10, seed=0).annotations
    order, names = page_order(labels, True)
    assert sorted(order) == list(range(50))
    assert (order != page_order(labels, True)[0]).any()
    assert [names[n] for n in order] == [f"annotator {place + 1}" for place in range(50)]
    assert list(page_order(labels, False)[0]) == list(range(50))


def test_judges_have_a_panel_where_the_table_names_them(tmp_path: Path) -> None:
    labels = humans_and_judges(0, 120)
    model = ds.FMM(4).fit(labels)
    kinds = ["llm" if str(name).startswith("judge") else "human" for name in labels.annotators]
    known = labels.with_tables(annotators={"annotator": labels.annotators, "kind": kinds})
    for shown, names in (
        (False, [f"judge{i}" for i in range(5)]),
        (True, [f"judge {i}" for i in range(1, 6)]),
    ):
        content = written(known, model, tmp_path / "page.html", held_out=[], anonymise=shown)
        assert content["judges"]["names"] == names
    expected = ds.judge_report(known)
    assert [row["winning_rate"] for row in content["judges"]["rows"]] == [
        row["winning_rate"] for row in expected.rows()
    ]
    assert expected.panel is not None
    assert f"{expected.panel.effective_votes:.1f} independent votes" in content["judges"]["panel"]["says"]
    plain = written(labels, model, tmp_path / "page.html", held_out=[])
    assert plain["judges"] is None


def test_a_crowd_of_one_kind_has_no_groups_however_it_is_cut() -> None:
    # Everybody answers by the same shares; whoever is put together by half of the items agrees on no other.
    rng = np.random.default_rng(1)
    item = np.repeat(np.arange(300), 6)
    annotator = np.concatenate([rng.choice(30, 6, replace=False) for _ in range(300)])
    label = rng.random(1800) < np.where(item % 2, 0.8, 0.3)
    labels = ds.Annotations.from_arrays(item, annotator, label.astype(int))
    grouping = grouping_of(ds.PGM(4, 3, seed=0).fit(labels), labels)
    if grouping is not None and grouping.annotators is not None and grouping.sizes[1] > 1:
        assert cluster_content(labels, grouping, Votes.of(labels))["groups"] == []


def test_annotators_are_told_by_the_likelihood_of_their_labels() -> None:
    theta = np.array([[[0.9, 0.1], [0.2, 0.8]]])  # one cluster of items, two groups
    labels = ds.Annotations.from_arrays(["i", "j", "i", "j"], ["a", "a", "b", "b"], ["x", "x", "y", "x"])
    grouping = Grouping(theta, np.ones((2, 1)), np.eye(2), np.array([0.5, 0.5]), False, "by hand")
    # a: 0.9 · 0.9 against 0.2 · 0.2; b: 0.1 · 0.9 against 0.8 · 0.2; by i alone, b is surely of the second
    assert told_by(labels, grouping, np.array([True, True])).tolist() == [0, 1]
    assert told_by(labels, grouping, np.array([False, True])).tolist() == [0, 0]


def test_groups_told_by_their_own_noise_do_not_show_on_other_items() -> None:
    # Coins are tossed. Whoever tossed more heads on half of the items did so on that half alone.
    rng = np.random.default_rng(2)
    pairs = [(m, n) for m in range(300) for n in rng.choice(300, 6, replace=False)]
    item, annotator = np.array(pairs).T
    labels = ds.Annotations.from_arrays(item, annotator, (rng.random(1800) < 0.5).astype(int))
    theta = np.array([[[0.8, 0.2], [0.2, 0.8]]])
    people = np.eye(2)[np.arange(labels.n_annotators) % 2]
    grouping = Grouping(theta, np.ones((300, 1)), people, np.array([0.5, 0.5]), False, "by hand")
    votes = Votes.of(labels)
    every = np.ones(300, dtype=bool)
    member = told_by(labels, grouping, every)
    assert all(side_of(votes, member == g).gap.low > 0 for g in range(2))  # on the items they were told by
    assert not steady_groups(labels, grouping, votes).any()


def test_somebody_far_below_usual_whom_the_verdict_leaves_open_is_to_be_checked() -> None:
    # Ten who agree and one who tosses a coin; the verdicts are put in by hand.
    rng = np.random.default_rng(0)
    rows = [
        (m, n, int(m % 2) if n < 10 or rng.random() < 0.5 else 1 - m % 2)
        for m in range(40)
        for n in range(11)
    ]
    labels = ds.Annotations.from_arrays(*zip(*rows, strict=True))
    found = findings(ds.HPGM(n_chains=2, n_sweeps=20, seed=0).fit(labels), labels)
    assert found.judged is not None
    for verdict, check in (("too few labels", True), ("minority view", False), ("spam", True)):
        found.judged.verdict[:] = "typical"
        found.judged.verdict[10] = verdict
        again = replace(found)
        assert again.check.tolist() == [False] * 10 + [check]
