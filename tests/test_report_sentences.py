"""Sentences: true on every dataset by an independent count, and withheld where they would not be."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from conftest import find_data
from dissensus.annotators import sentences
from dissensus.annotators.findings import findings
from dissensus.annotators.sentences import Sentence
from dissensus.evaluate.sides import Votes, agreement_gap, clash, leaning, most_frequent, side_of, standing
from dissensus.report.items import overturned
from dissensus.report.quality import gold_decides
from report_sample import canteen, page_content
from sentence_checker import Checker, sentences_in
from sizes import VERIFY, usually

NB = "\u00a0"
FIVE = ("anesthesia", "hs_brexit", "rte", "snow_wsd", "xhate_stability")
MOST_SAMPLED = 100_000  # labels that a sampled model is fitted to here


def datasets() -> list[str]:
    """Every real dataset, or five of them."""
    folder = find_data()
    every = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder else []
    return usually(list(FIVE), verify=every)


def content_of(labels: ds.Annotations, model: Any, **settings: Any) -> dict[str, Any]:
    return page_content(labels, model, held_out=[], **settings)


def read(folder: Path) -> ds.Annotations:
    file = next(iter(sorted(folder.glob("annotations.csv*"))))
    gold = next(iter(sorted(folder.glob("gold.csv*"))), None)
    return ds.read_annotations(file, gold=gold)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("name", datasets())
def test_every_sentence_of_every_page_is_true(name: str, data_dir: Path) -> None:
    labels = read(data_dir / name)
    if labels.n_labels <= MOST_SAMPLED:
        model: Any = ds.HPGM(n_sweeps=usually(60, verify=200), n_chains=2, seed=0).fit(labels)
    else:
        model = ds.PGM(6, 3, seed=0).fit(labels)
    content = content_of(labels, model)
    said = list(sentences_in(content))
    checker = Checker(labels)
    for one in said:
        checker.check(one)
    kinds = {one.kind for one in said}
    assert {"agreement", "cluster"} <= kinds
    assert loose_words(content) == []
    check_strip(content, labels, checker)


def loose_words(content: dict[str, Any]) -> list[str]:
    """Words with numbers in them that are no sentence of the grammar, nor anything from the data."""
    found: list[str] = []
    known = {"title", "version", "command", "classes", "id", "text", "model", "source", "notes", "strip"}
    known |= {"values", "name", "search", "held_out", "judges"}

    def look(value: Any, key: str) -> None:
        if key in known or isinstance(value, Sentence):
            return
        if isinstance(value, dict):
            for name, inner in value.items():
                look(inner, name)
        elif isinstance(value, list | tuple):
            for inner in value:
                look(inner, key)
        elif isinstance(value, str) and " " in value and any(letter.isdigit() for letter in value):
            found.append(f"{key}: {value}")

    look(content, "")
    return found


def check_strip(content: dict[str, Any], labels: ds.Annotations, checker: Checker) -> None:
    cards = {card["title"]: [one["value"] for one in card["numbers"]] for card in content["strip"]}
    (alpha,) = next(values for title, values in cards.items() if title.startswith("Agreement"))
    assert abs(float(alpha) - checker.alpha()) <= 0.005 + 1e-9
    shares = [max(counts.values()) / sum(counts.values()) for counts in checker.counts.values()]
    clear = sum(share >= 2 / 3 - 1e-9 for share in shares) / labels.n_items
    checker.share(cards["Items with a clear answer"][0].replace(NB, " "), clear)
    (n,) = cards["Items to adjudicate"]
    assert int(n.replace(",", "")) == sum(flags & 4 > 0 for flags in content["items"]["flags"].tolist())


def test_leaning_by_hand() -> None:
    # a, b and c on items 1 to 4; c says y where a and b say x, on items 1 and 2; d is alone on item 5
    said = {"a": "xxyy", "b": "xxyy", "c": "yyyy"}
    rows = [(f"{m + 1}", who, what) for who, answers in said.items() for m, what in enumerate(answers)]
    item, who, label = zip(*rows, ("5", "d", "x"), strict=True)
    labels = ds.Annotations.from_arrays(item, who, label)
    found = leaning(labels)
    # c: y on 4 of 4 items where the others say it on 2; a: the others of its items say y on ½, ½, 1, 1
    np.testing.assert_allclose(found.value[:3], [0.25, 0.25, 0.5])
    assert [labels.classes[one] for one in found.of[:3]] == ["x", "x", "y"]
    apart = np.array([1.0, 1.0, 0.0, 0.0])
    np.testing.assert_allclose(found.error[2], 1.96 * apart.std(ddof=1) / 2)
    assert np.isnan(found.value[3])
    assert found.of[3] == -1
    grades = leaning(labels, np.array([1.0, 3.0]))
    np.testing.assert_allclose(grades.value[:3], [-0.5, -0.5, 1.0])
    assert (grades.of == -1).all()


def test_sentences_of_planted_groups_and_columns_are_true() -> None:
    labels = canteen()
    content = content_of(labels, ds.PGM(6, 3, seed=1).fit(labels))
    said = list(sentences_in(content))
    checker = Checker(labels)
    for one in said:
        checker.check(one)
    assert {"group", "contrast", "column", "check", "overturned", "groups"} <= {one.kind for one in said}


def test_the_checker_finds_a_false_sentence() -> None:
    labels = canteen()
    checker = Checker(labels)
    true = sentences.cluster_sentence(labels.counts, np.arange(20), [str(name) for name in labels.classes])
    checker.check(true)
    wrong = Sentence(true.replace("20 items", "21 items"), "cluster", **true.about)
    with pytest.raises(AssertionError):
        checker.check(wrong)
    first, *rest = true.split(f"{NB}%", 1)
    share = str(int(first.split()[-1]) + 2)
    wrong = Sentence(first[: first.rindex(" ") + 1] + share + f"{NB}%" + rest[0], "cluster", **true.about)
    with pytest.raises(AssertionError):
        checker.check(wrong)


# ---- withheld -----------------------------------------------------------------------------------------


def crowd(rows: list[tuple[str, str, str]], **settings: Any) -> ds.Annotations:
    return ds.Annotations.from_arrays(*zip(*rows, strict=True), **settings)


def two_camps(swap: bool, n_items: int = 40, seed: int = 0) -> ds.Annotations:
    """Six annotators; with ``swap`` the last three answer the other way round on half of the items."""
    rng = np.random.default_rng(seed)
    rows = []
    for m in range(n_items):
        truth = rng.random() < 0.5
        for n in range(6):
            other = (n >= 3) and m % 2 == 0 if swap else False
            said = bool(truth) ^ other if rng.random() < 0.9 else bool(rng.random() < 0.5)
            rows.append((f"i{m:02d}", f"a{n}", "yes" if said else "no"))
    return crowd(rows)


def test_agreement_is_withheld_where_there_is_none() -> None:
    assert sentences.agreement_sentence(math.nan, math.nan, math.nan) is None
    said = sentences.agreement_sentence(0.5, 0.4, 0.6)
    assert said is not None
    assert said.startswith("Annotators disagree often")


def test_rivals_are_withheld_below_half_of_the_disagreements() -> None:
    names = ["a", "b", "c"]
    even = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]])
    assert sentences.rivals_sentence(even, names) is None
    most = sentences.rivals_sentence(np.array([[2, 2, 0], [0, 1, 1]]), names)
    assert most == f"80{NB}% of all disagreements are between ‘a’ and ‘b’."
    assert (
        sentences.rivals_sentence(np.array([[2, 2], [1, 1]]), ["a", "b"]) is None
    )  # nothing else is possible


def test_parts_are_withheld_where_all_is_linked() -> None:
    assert sentences.parts_sentence(1, 10, 10) is None
    assert sentences.parts_sentence(2, 6, 10) is not None


@pytest.mark.parametrize("swap", [True, False])
def test_views_and_groups_are_withheld_where_members_are_no_closer(swap: bool) -> None:
    labels = two_camps(swap)
    votes, members = Votes.of(labels), np.array([3, 4, 5])
    inside = np.isin(np.arange(6), members)
    view = sentences.view_sentence(votes, members, ["no", "yes"])
    group = sentences.group_sentence(side_of(votes, inside), ["no", "yes"], members)
    contrast = sentences.contrast_sentence(
        votes, (np.array([0, 1, 2]), members), ("A", "B"), np.arange(0, 40, 2), ["no", "yes"]
    )
    assert (view is not None) == (group is not None) == swap
    if swap:
        assert "another answer than the others on" in str(view)
    # The first three and the last three differ on every second item, and on no other.
    plain = sentences.contrast_sentence(
        votes, (np.array([0, 1, 2]), members), ("A", "B"), np.arange(1, 40, 2), ["no", "yes"]
    )
    assert plain is None
    if not swap:
        assert contrast is None


def test_mostly_is_said_of_half_or_more() -> None:
    # On three of four items they differ, each time between other classes.
    rows = []
    said = [("a", "b"), ("b", "c"), ("c", "a"), ("a", "a")]
    for m, (crowd_says, they_say) in enumerate(said * 6):
        rows += [(f"i{m:02d}", f"c{n}", crowd_says) for n in range(3)]
        rows += [(f"i{m:02d}", f"v{n}", they_say) for n in range(2)]
    labels = crowd(rows)
    view = sentences.view_sentence(Votes.of(labels), np.array([3, 4]), ["a", "b", "c"])
    assert view is not None
    assert "on 18 of 24 items" in view
    assert "mostly" not in view


def test_classes_are_named_only_where_the_group_surely_uses_them_more() -> None:
    labels = two_camps(True)
    votes = Votes.of(labels)
    side = side_of(votes, np.isin(np.arange(6), [3, 4, 5]))
    # Swapped on half of the items, both ways: yes and no stay as frequent.
    assert abs(side.own - side.usual).max() < 1.96 * side.error.max() + 0.03
    said = sentences.group_sentence(side, ["no", "yes"], np.array([3, 4, 5]))
    assert said is not None
    assert "more often" not in said


def test_checks_are_withheld_of_people_who_agree_as_well_as_others() -> None:
    labels, load = two_camps(False), np.full(6, 40)
    names = [f"a{n}" for n in range(6)]
    assert sentences.check_sentence(Votes.of(labels), np.array([5]), names, load) is None
    camps = two_camps(True)
    assert sentences.check_sentence(Votes.of(camps), np.array([4, 5]), names, load) is not None
    assert sentences.check_sentence(Votes.of(camps), np.array([], dtype=int), names, load) is None


def test_adjudication_is_for_near_draws_alone() -> None:
    counts = np.array([[3, 2], [5, 0], [1, 1], [6, 4]])
    said = sentences.adjudicate_sentence(counts, np.arange(4))
    assert said is not None
    assert said.startswith("Adjudicate 2 items")  # 3–2 and 6–4; two labels are too few
    assert list(said.about["items"]) == [0, 3]
    assert sentences.adjudicate_sentence(counts, np.array([1])) is None


def test_more_labels_are_not_asked_for_where_labels_agree_better_than_elsewhere() -> None:
    counts = np.array([[5, 0], [5, 0], [3, 2], [3, 2]])
    assert sentences.more_sentence(counts, np.array([0, 1])) is None
    said = sentences.more_sentence(counts, np.array([2, 3]))
    assert said is not None
    assert f"their most frequent answer has 60{NB}% of them (100{NB}% elsewhere)" in said


def test_gold_is_silent_without_gold() -> None:
    assert sentences.gold_sentence(np.array([]), "The most frequent label", (0.0, 1.0)) is None


def test_reasons_that_point_the_other_way_are_not_named() -> None:
    counts, names, items = np.array([2, 3]), ["b", "a"], np.arange(9)
    both = sentences.overturned_sentence(0, counts, 0, names, (0.8, 0.6), (items, 0.7, 0.2))
    assert both.startswith("3 of 5 said ‘a’ and 2 ‘b’. The model gives ‘b’, because those who said ‘b’ agree")
    assert f"9 items labelled like it got 70{NB}% ‘b’ and 20{NB}% ‘a’" in both
    neither = sentences.overturned_sentence(0, counts, 0, names, (0.6, 0.8), (items, 0.2, 0.7))
    assert "agree with others" not in neither
    assert "labelled like it" not in neither
    nobody = sentences.overturned_sentence(0, np.array([0, 5]), 0, names, None, None)
    assert "nobody ‘b’" in nobody
    known = sentences.overturned_sentence(0, counts, 0, names, (0.8, 0.6), (items, 0.7, 0.2), gold=True)
    assert known == "3 of 5 said ‘a’ and 2 ‘b’. The gold label is ‘b’, and gold decides."


def test_gold_is_the_reason_only_where_it_decided() -> None:
    item, who = np.repeat(np.arange(12), 4), np.tile(np.arange(4), 12)
    labels = ds.Annotations.from_arrays(item, who, np.array(["a", "b", "c"])[item % 3])
    gold = {"item": [0, 1], "gold": ["b", "b"]}  # nobody said b of the first item
    run = ds.fit(labels.with_tables(gold=gold), model="dawid-skene", estimate="truth")
    (row,) = overturned(findings(run.model, run.annotations), None)
    assert row["item"] == 0
    assert row["why"] == "4 of 4 said ‘a’ and nobody ‘b’. The gold label is ‘b’, and gold decides."
    assert not gold_decides(ds.DawidSkene().fit(labels), run.annotations)


def one_who(answers: Any, n_items: int = 60) -> ds.Annotations:
    """Five good annotators and a sixth, who answers ``answers(truth, rng)``."""
    rng = np.random.default_rng(4)
    rows = []
    for m in range(n_items):
        truth = "abc"[m % 3]
        good = [truth if rng.random() < 0.9 else "abc"[rng.integers(3)] for _ in range(5)]
        rows += [(f"i{m:02d}", f"g{n}", said) for n, said in enumerate(good)]
        rows.append((f"i{m:02d}", "x", answers(truth, rng)))
    return crowd(rows)


def test_answers_that_follow_the_item_are_not_called_blind() -> None:
    careless = one_who(lambda truth, rng: "abc"[rng.integers(3)])
    careful = one_who(lambda truth, rng: truth)
    for labels, blind in ((careless, True), (careful, False)):
        found = standing(Votes.of(labels))
        usual = float(np.nanmedian(found.agreement - found.chance))
        assert (sentences.blind_sentence(5, found, usual) is not None) == blind


def test_labels_that_show_more_than_chance_are_not_too_few() -> None:
    few = crowd([("i1", "a", "x"), ("i1", "b", "x"), ("i2", "a", "x"), ("i2", "b", "y")])
    assert sentences.few_sentence(0, 2, standing(Votes.of(few))) is not None
    many = standing(Votes.of(one_who(lambda truth, rng: truth)))
    assert sentences.few_sentence(5, 60, many) is None


def test_a_rule_is_named_only_where_most_items_follow_it() -> None:
    swaps = one_who(lambda truth, rng: {"a": "b", "b": "a", "c": "c"}[truth])
    said = sentences.rule_sentence(Votes.of(swaps), 5, ["a", "b", "c"])
    assert said is not None
    assert "items that the others call" in said
    assert sentences.rule_sentence(Votes.of(one_who(lambda truth, rng: truth)), 5, ["a", "b", "c"]) is None


def test_a_column_that_chance_explains_is_not_mentioned() -> None:
    group = np.repeat([0, 1], 20)
    value = np.where(np.arange(40) % 20 < 18, group, 1 - group)
    said = sentences.column_sentence("platform", ["web", "phone"], ["A", "B"], value, group)
    assert said == f"‘web’ (platform) are 90{NB}% of group A and 50{NB}% of all annotators."
    mixed = np.arange(40) % 2
    assert sentences.column_sentence("platform", ["web", "phone"], ["A", "B"], mixed, group) is None


def test_nothing_is_said_of_somebody_alone() -> None:
    alone = crowd([("i1", "a", "x"), ("i2", "b", "y")])
    found = standing(Votes.of(alone))
    assert sentences.standing_sentence(0, found, 0.5) is None
    assert sentences.groups_sentence(2, None) is None


# ---- the statistics behind them -----------------------------------------------------------------------


def test_sides_by_hand() -> None:
    # One item: a and b say x, c says y, d says x and y: pairs inside {a, b}: 1; across: x–y 0, x–(x,y) ½.
    labels = crowd([("i", "a", "x"), ("i", "b", "x"), ("i", "c", "y"), ("i", "d", "x"), ("i", "d", "y")])
    side = side_of(Votes.of(labels), np.array([True, True, False, False]))
    assert (side.within, side.between) == (1.0, 0.25)
    np.testing.assert_allclose(side.own, [1.0, 0.0])
    np.testing.assert_allclose(side.usual, [0.25, 0.75])
    found = standing(Votes.of(labels))
    np.testing.assert_allclose(found.agreement, [0.5, 0.5, 1 / 6, 0.5])
    # a says x always, and half of the others' answers are x; d says x and y, the others x in two of three
    np.testing.assert_allclose(found.chance, [0.5, 0.5, 1 / 6, 0.5 * 2 / 3 + 0.5 * 1 / 3])


@pytest.mark.slow
@pytest.mark.no_cover
def test_intervals_of_gaps_are_those_of_items_drawn_again() -> None:
    labels = two_camps(True, n_items=150, seed=3)
    inside = np.isin(np.arange(6), [3, 4, 5])
    side = side_of(Votes.of(labels), inside)
    item = labels.item
    rng, drawn, others = np.random.default_rng(0), [], []
    rows = [np.flatnonzero(item == m) for m in range(150)]
    for _ in range(200):
        chosen = rng.integers(150, size=150)
        new = np.repeat(np.arange(150), [len(rows[m]) for m in chosen])
        at = np.concatenate([rows[m] for m in chosen])
        again = ds.Annotations.from_arrays(new, labels.annotator[at], labels.label[at])
        drawn.append(side_of(Votes.of(again), inside).gap.value)
        others.append(agreement_gap(Votes.of(again), inside).value)
    assert side.gap.high - side.gap.low == pytest.approx(2 * 1.96 * np.std(drawn), rel=0.2)
    gap = agreement_gap(Votes.of(labels), inside)
    assert gap.high - gap.low == pytest.approx(2 * 1.96 * np.std(others), rel=0.2)


def test_most_frequent_is_unclear_for_ties_and_for_no_label() -> None:
    counts = np.array([[3, 1, 0], [2, 2, 0], [0, 0, 0], [0, 0, 1]])
    assert most_frequent(counts).tolist() == [0, -1, -1, 2]
    assert clash(np.array([[0.0, 0.0]]), np.array([[1.0, 0.0]])) is None


# ---- words --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.0, "0 %"), (0.004, "under 1 %"), (0.375, "38 %"), (0.996, "over 99 %"), (1.0, "100 %")],
)
def test_a_share_is_said_without_pretending(share: float, said: str) -> None:
    assert sentences.percent(share) == said.replace(" %", f"{NB}%")


def test_many_names_are_counted() -> None:
    camps = ds.Annotations.from_arrays(
        [m for m in range(30) for _ in range(24)],
        [f"n{n:02d}" for _ in range(30) for n in range(24)],
        [f"{(m + (n > 14)) % 2}" for m in range(30) for n in range(24)],
    )
    votes, names, load = Votes.of(camps), [str(n) for n in range(24)], np.full(24, 30)
    few = sentences.check_sentence(votes, np.array([22, 23]), names, load)
    assert few is not None
    assert "): 22 and 23. The others" in few
    many = sentences.check_sentence(votes, np.arange(15, 24), names, load)
    assert many is not None
    assert "): 15, 16, 17, 18, 19 and 4 more. The others" in many


@pytest.mark.parametrize(
    ("efficiency", "said"), [(math.inf, "more than 8"), (0.0, "less than one"), (5.72, "5.7")]
)
def test_worth_says_when_it_lies_beyond_what_was_tried(efficiency: float, said: str) -> None:
    assert f"as {said} raw ones (quick)" in sentences.worth_words(4, efficiency, 8, "quick")


def test_all_datasets_are_read_in_full_verification() -> None:
    assert len(datasets()) == (34 if VERIFY and find_data() else 5)
