"""The page's numbers: worked by hand, enumerated, or checked against an independent library."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import contingency

import dissensus as ds
from dissensus.errors import DataError
from dissensus.models import MODELS
from dissensus.models.base import Model
from dissensus.report.annotators import cramers_v, crosstabs
from dissensus.report.clusters import (
    Grouping,
    Idle,
    between,
    cluster_content,
    group_information,
    group_name,
    grouping_of,
)
from dissensus.report.items import fanned, majority, need_of_label, principal_plane, texts_of, uncertainty
from dissensus.report.page import Request, embedded, gather, page, rivals, write_report
from dissensus.report.quality import held_out_table, search_content, trace_content, worth
from judge_help import humans_and_judges
from report_sample import canteen


def entropy(distribution: Any) -> float:
    return -sum(p * math.log(p) for p in distribution if p > 0)


def two_groups() -> Grouping:
    """Two clusters, two groups: they agree on cluster 0 and contradict each other on cluster 1."""
    theta = np.array([[[0.9, 0.1], [0.9, 0.1]], [[1.0, 0.0], [0.0, 1.0]]])
    items = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])
    return Grouping(theta, items, np.eye(2), np.array([0.75, 0.25]), False, "by hand")


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
    request = Request(
        fitted, sample, "Canteen", texts_of(sample), False, None, None, None, "a command", "auto", 0.2, 0
    )
    return gather(request)


# ---- groups -------------------------------------------------------------------------------------------


def test_division_is_the_information_about_the_group() -> None:
    grouping = two_groups()
    # Kind 1 separates the groups fully: the label gives away the group, H(0.75, 0.25) nats.
    mixed = [0.75 * (0.45 + 0.5) + 0.25 * 0.45, 0.75 * 0.05 + 0.25 * (0.05 + 0.5)]
    half = entropy(mixed) - 0.75 * entropy([0.95, 0.05]) - 0.25 * entropy([0.45, 0.55])
    np.testing.assert_allclose(grouping.divided(), [0.0, entropy([0.75, 0.25]), half], rtol=1e-12, atol=1e-12)


def test_between_and_within_make_up_all_disagreement() -> None:
    grouping = two_groups()
    divided = grouping.divided()
    answers = np.einsum("mk,klp->mlp", grouping.items, grouping.theta)
    within = sum(w * entropy(row[g]) for row in answers for g, w in enumerate(grouping.weights))
    share = between(grouping, divided)
    assert share == pytest.approx(divided.sum() / (divided.sum() + within), rel=1e-12)


def test_a_group_that_ignores_the_item_tells_nothing() -> None:
    theta = np.array([[[1.0, 0.0], [0.5, 0.5]], [[0.0, 1.0], [0.5, 0.5]]])
    grouping = Grouping(theta, np.eye(2), np.eye(2), np.array([0.5, 0.5]), False, "by hand")
    np.testing.assert_allclose(group_information(grouping), [math.log(2), 0.0], rtol=1e-12, atol=1e-12)


def test_groups_of_spam_and_of_noise_are_not_contrasted(sample: ds.Annotations) -> None:
    theta = np.array([[[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]], [[0.1, 0.9], [0.5, 0.5], [0.9, 0.1]]])
    people = np.eye(3)[np.arange(sample.n_annotators) % 3]
    items = np.eye(2)[np.arange(sample.n_items) % 2]
    grouping = Grouping(theta, items, people, np.full(3, 1 / 3), False, "by hand")
    assert Idle.of(sample, grouping).looking.tolist() == [0, 2]
    third = np.arange(sample.n_annotators) % 3 == 2
    assert Idle.of(sample, grouping, third).looking.tolist() == [0]


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
    assert text in content["findings"][1][1]


def test_letters_go_on_after_z() -> None:
    assert [group_name(n) for n in (0, 25, 26, 51, 52, 701, 702)] == ["A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"]


# ---- items --------------------------------------------------------------------------------------------


def test_majority_is_unclear_for_ties_and_for_no_label() -> None:
    counts = np.array([[3, 1, 0], [2, 2, 0], [0, 0, 0], [0, 0, 1]])
    assert majority(counts).tolist() == [0, -1, -1, 2]


def test_need_is_nothing_where_the_cluster_is_known() -> None:
    grouping = two_groups()
    need = need_of_label(None, grouping, np.zeros((3, 2)))  # type: ignore[arg-type]
    answers = [[0.9, 0.1], [0.75, 0.25]]
    unsure = entropy(np.mean(answers, axis=0)) - np.mean([entropy(row) for row in answers])
    np.testing.assert_allclose(need, [0.0, 0.0, unsure], rtol=1e-12, atol=1e-12)


def test_need_without_clusters_is_what_a_label_tells_about_the_distribution(sample: ds.Annotations) -> None:
    model = ds.EmpiricalDistribution().fit(sample)
    need = need_of_label(model, None, sample.counts)
    a = sample.counts[7] + model.label_distributions_[7]
    draws = np.random.default_rng(0).dirichlet(a, size=200_000)
    mean_entropy = float(np.mean(-(draws * np.log(np.maximum(draws, 1e-300))).sum(axis=1)))
    assert need[7] == pytest.approx(entropy(a / a.sum()) - mean_entropy, abs=2e-3)


def test_every_overturned_majority_is_counted_and_explained(content: dict[str, Any]) -> None:
    items = content["items"]
    places = [
        i
        for i, (most, given) in enumerate(zip(items["majority"], items["label"], strict=True))
        if most not in (-1, given)
    ]
    assert content["n_overturned"] == len(places) > 0
    assert {one["item"] for one in content["overturned"]} == set(places)
    assert all("The model" in one["why"] for one in content["overturned"])


def test_rivals_are_the_classes_that_share_most(fitted: Model) -> None:
    names = ["a", "b", "c"]
    model = ds.EmpiricalDistribution(smoothing=0.0)
    model.label_distributions_ = np.array([[0.6, 0.4, 0.0], [0.9, 0.0, 0.1], [0.0, 0.3, 0.7]])
    assert rivals(model, names) == ("a", "b")
    assert rivals(fitted, [str(name) for name in fitted.classes_]) is not None


# ---- annotators ---------------------------------------------------------------------------------------


def test_cramers_v_is_scipys() -> None:
    table = np.random.default_rng(3).integers(1, 30, size=(3, 4))
    expected = contingency.association(table, method="cramer", correction=False)
    assert cramers_v(table) == pytest.approx(expected, rel=1e-12)
    assert cramers_v(np.array([[5, 0], [0, 7]])) == pytest.approx(1.0)
    assert cramers_v(np.array([[5, 5]])) == 0.0


def test_side_columns_are_counted_by_group(sample: ds.Annotations, fitted: Model) -> None:
    grouping = grouping_of(fitted, sample)
    assert grouping is not None
    assert grouping.annotators is not None
    (tab,) = crosstabs(sample, grouping, anonymise=False)
    group = grouping.annotators.argmax(axis=1)
    reads = sample.annotator_column("reads_on")
    for (row, value), g in itertools.product(enumerate(tab["values"]), range(grouping.sizes[1])):
        assert tab["counts"][row, g] == np.sum((reads == value) & (group == g))


def test_anonymised_pages_hold_no_annotator_id(sample: ds.Annotations, fitted: Model, tmp_path: Path) -> None:
    path = write_report(fitted, sample, tmp_path / "page.html", anonymise=True, held_out=[])
    text = path.read_text(encoding="utf-8")
    assert not any(str(name) in text for name in sample.annotators)
    content = data_of(path)
    assert sorted(content["annotators"]["n"]) == sorted(sample.annotator_load.tolist())
    # The order is another one, and the labels follow it.
    given = np.bincount(content["rows"]["who"], minlength=sample.n_annotators)
    assert given.tolist() == content["annotators"]["n"]


# ---- quality ------------------------------------------------------------------------------------------


def test_held_out_scores_of_a_run_are_taken_over(sample: ds.Annotations) -> None:
    from dissensus.workflow import refine

    run = refine(sample, "pgm", {"n_item_clusters": 4, "n_annotator_clusters": 2})
    table = held_out_table(run.model, sample, run.held_out, 0.2, 0)
    by_title = {row["title"]: row for row in table}
    assert set(by_title) == {"pgm 4×2", "smoothed counts", "item clusters only (FMM)", "Dawid–Skene"}
    assert by_title["pgm 4×2"]["own"]
    assert by_title["pgm 4×2"]["score"] == run.held_out[0].score
    assert [row["score"] for row in table] == sorted((row["score"] for row in table), reverse=True)
    assert held_out_table(run.model, sample, [], 0.2, 0) == []


def test_scores_on_other_hidden_labels_are_not_mixed_in(sample: ds.Annotations) -> None:
    from dissensus.workflow import refine

    run = refine(sample, "fmm", {"n_item_clusters": 4}, test_size=0.3)
    table = held_out_table(run.model, sample, run.held_out, 0.2, 0)
    assert {row["n"] for row in table} == {run.held_out[0].n_hidden}


def test_the_worth_of_a_label_is_taken_from_a_recovery(sample: ds.Annotations) -> None:
    found = ds.recover(
        {"fmm": ds.FMM(5), "ours": ds.PGM(5, 2)},
        sample,
        (1, 2, 3),
        pool=4,
        min_reserved=2,
        n_draws=1,
        n_jobs=1,
        progress=False,
    )
    worthy = worth(ds.PGM(5, 2), sample, found, 0)
    assert worthy is not None
    assert worthy["shown"] == 2
    assert worthy["efficiency"] == found.best("ours", 2).efficiency
    assert "(a full comparison: 240 items, 1 draw)" in worthy["words"]


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


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MODELS if name != "ldlnm"])
def test_every_model_has_a_page(name: str, sample: ds.Annotations, tmp_path: Path) -> None:
    from dissensus.models import build_model

    model = build_model(name, {"n_sweeps": 40} if name == "hpgm" else {}).fit(sample)
    content = data_of(write_report(model, sample, tmp_path / "page.html", held_out=[]))
    assert len(content["findings"]) == 3
    assert len(content["items"]["p"]) == sample.n_items * sample.n_classes
    assert content["clusters"]["groups"]
    assert content["clusters"]["borrowed"] == (name not in ("pgm", "cbcc", "hpgm"))


def test_counts_without_annotators_have_a_page(sample: ds.Annotations, tmp_path: Path) -> None:
    nobody = ds.Annotations.from_counts(sample.counts, classes=sample.classes)
    model = ds.FMM(4).fit(nobody)
    content = data_of(write_report(model, nobody, tmp_path / "page.html"))
    assert content["annotators"] is None
    assert content["rows"]["counts"] == sample.counts.ravel().tolist()
    assert content["findings"][1][1].startswith("The items fall into clusters")


def test_a_handful_of_labels_has_a_page(tmp_path: Path) -> None:
    few = ds.Annotations.from_arrays(["a", "a", "b"], ["x", "y", "x"], ["yes", "no", "yes"])
    model = ds.EmpiricalDistribution().fit(few)
    content = data_of(write_report(model, few, tmp_path / "page.html"))
    assert content["quality"]["held_out"] == []
    assert content["quality"]["worth"] is None


def test_labels_of_another_set_are_refused(sample: ds.Annotations, fitted: Model, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="are not those of the model"):
        write_report(fitted, sample.take_items(np.arange(10)), tmp_path / "page.html")
    assert not list(tmp_path.iterdir())


def test_texts_must_be_one_an_item(sample: ds.Annotations, fitted: Model, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="3 texts were given for 240 items"):
        write_report(fitted, sample, tmp_path / "page.html", texts=["a", "b", "c"])


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


def test_clusters_in_words_for_every_group(content: dict[str, Any], sample: ds.Annotations) -> None:
    clusters = content["clusters"]
    assert all(group["words"] for group in clusters["groups"])
    assert sum(group["n"] for group in clusters["groups"]) == sample.n_annotators
    assert sum(cluster["n"] for cluster in clusters["items"]) == sample.n_items
    assert cluster_content(sample, two_groups_of(sample))["between"] == pytest.approx(0.0, abs=1e-9)


def two_groups_of(sample: ds.Annotations) -> Grouping:
    """Two groups that answer alike: nothing lies between them."""
    theta = np.tile(np.array([0.4, 0.3, 0.2, 0.1]), (1, 2, 1))
    items = np.ones((sample.n_items, 1))
    people = np.eye(2)[np.arange(sample.n_annotators) % 2]
    return Grouping(theta, items, people, np.array([0.5, 0.5]), False, "by hand")


@pytest.mark.data
def test_two_known_groups_and_what_they_disagree_about(data_dir: Path, tmp_path: Path) -> None:
    """In hs_brexit Ann1–3 are Muslim immigrants and Ann4–6 a control group (Akhtar et al. 2021)."""
    folder = data_dir / "hs_brexit"
    labels = ds.read_annotations(folder / "annotations.csv", items=folder / "items.csv")
    model = ds.CBCC().fit(labels)
    content = data_of(write_report(model, labels, tmp_path / "page.html", held_out=[]))
    group = dict(zip(content["annotators"]["id"], content["annotators"]["group"], strict=True))
    assert group["Ann1"] == group["Ann2"] == group["Ann3"]
    assert group["Ann4"] == group["Ann5"] == group["Ann6"] != group["Ann1"]
    sentence = content["findings"][1][1]
    assert "fall into 2 groups, which differ most on items such as “" in sentence
    assert re.search(r"group [AB] answers ‘hate’ 7\d\u00a0% of the time, group [AB] 2\d\u00a0%", sentence)
    # What the raw labels say: the share of ‘hate’ among the labels of each three.
    hate = labels.label == list(labels.classes).index("hate")
    shares = [hate[np.isin(labels.annotator, who)].mean() for who in ([0, 1, 2], [3, 4, 5])]
    more = group["Ann1"] if shares[0] > shares[1] else group["Ann4"]
    assert f"group {group_name(more)} answers ‘hate’" in sentence


def test_a_model_fitted_on_features_of_its_own_has_a_page(tmp_path: Path) -> None:
    # The features are not among the annotations, so nothing can be fitted again for a comparison.
    crowd = ds.simulate(60, 12, 3, labels_per_item=4, seed=0).annotations
    model = ds.DirichletRegression(folds=2).fit(crowd, np.random.default_rng(0).normal(size=(60, 3)))
    page = data_of(ds.write_report(model, crowd, tmp_path / "page.html"))
    assert page["quality"]["held_out"] == []
    assert page["data"]["n_items"] == 60


def test_no_seed_leads_back_from_an_anonymous_page() -> None:
    from dissensus.report.annotators import page_order

    labels = ds.simulate(20, 50, 3, labels_per_item=10, seed=0).annotations
    assert sorted(page_order(labels, True)) == list(range(50))
    assert (page_order(labels, True) != page_order(labels, True)).any()
    assert list(page_order(labels, False)) == list(range(50))


def test_judges_have_a_panel_where_the_table_names_them(tmp_path: Path) -> None:
    labels = humans_and_judges(0, 120)
    model = ds.FMM(4).fit(labels)
    kinds = ["llm" if str(name).startswith("judge") else "human" for name in labels.annotators]
    known = labels.with_tables(annotators={"annotator": labels.annotators, "kind": kinds})
    for shown, names in (
        (False, [f"judge{i}" for i in range(5)]),
        (True, [f"judge {i}" for i in range(1, 6)]),
    ):
        content = data_of(write_report(model, known, tmp_path / "page.html", held_out=[], anonymise=shown))
        assert content["judges"]["names"] == names
    expected = ds.judge_report(known)
    assert [row["winning_rate"] for row in content["judges"]["rows"]] == [
        row["winning_rate"] for row in expected.rows()
    ]
    assert expected.panel is not None
    assert f"{expected.panel.effective_votes:.1f} independent votes" in content["judges"]["panel"]["says"]
    plain = data_of(write_report(model, labels, tmp_path / "page.html", held_out=[]))
    assert plain["judges"] is None


def test_the_page_says_how_sure_it_is() -> None:
    labels = ds.simulate(30, 8, 3, seed=1).annotations
    model = ds.FMM(2).fit(labels)
    known = model.intervals()
    assert known is not None
    told = uncertainty(model)
    label = model.label_distributions_.argmax(axis=1)
    np.testing.assert_allclose(told["low"] / 1000, known.low[np.arange(30), label], atol=6e-4)
    np.testing.assert_allclose(told["high"] / 1000, known.high[np.arange(30), label], atol=6e-4)
    assert uncertainty(ds.MajorityVote().fit(labels)) == {}
    assert uncertainty(ds.DawidSkene(estimate="truth").fit(labels)) == {}
