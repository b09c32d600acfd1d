"""Sentences: true on every dataset by an independent count, and withheld if their condition does not hold."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.annotators import sentences
from dissensus.annotators.groups import Groups
from dissensus.annotators.plan import collect_findings
from dissensus.annotators.sentences import Sentence
from dissensus.evaluate.bootstrap import Interval
from dissensus.evaluate.group_agreement import Votes, annotator_agreement, compare_group
from dissensus.report.items import overturned
from dissensus.report.quality import gold_decides
from tests.helpers.data import find_data
from tests.helpers.report_sample import canteen, page_content
from tests.helpers.sentence_checker import Checker, sentences_in
from tests.helpers.sizes import VERIFY, usually

NB = "\u00a0"
FIVE = ("anesthesia", "hs_brexit", "rte", "snow_wsd", "xhate_stability")
MAX_SAMPLED_LABELS = 100_000  # larger sets are fitted by PGM
ABC = ["a", "b", "c"]


def datasets() -> list[str]:
    """Return every real dataset, or five of them."""
    folder = find_data()
    every = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder else []
    return usually(list(FIVE), verify=every)


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.no_cover
@pytest.mark.parametrize("name", datasets())
def test_every_sentence_of_a_page_is_true(name: str, data_dir: Path) -> None:
    file = next(iter(sorted((data_dir / name).glob("annotations.csv*"))))
    gold = next(iter(sorted((data_dir / name).glob("gold.csv*"))), None)
    labels = ds.read_annotations(file, gold=gold)
    if labels.n_labels <= MAX_SAMPLED_LABELS:
        model: Any = ds.HPGM(n_sweeps=usually(60, verify=200), n_chains=2, seed=0).fit(labels)
    else:
        model = ds.PGM(6, 3, seed=0).fit(labels)
    content = page_content(labels, model, held_out=[])
    checker = Checker(labels)
    assert {"agreement", "cluster"} <= check_all(content, checker)
    assert unchecked_texts(content) == []
    check_cards(content, labels, checker)


def check_all(content: dict[str, Any], checker: Checker) -> set[str]:
    """Check every sentence of a page, and return their kinds."""
    texts = list(sentences_in(content))
    for text in texts:
        checker.check(text)
    return {text.kind for text in texts}


def unchecked_texts(content: dict[str, Any]) -> list[str]:
    """Return texts with numbers that are neither checked sentences nor from the data."""
    texts: list[str] = []
    from_data = {"title", "version", "command", "classes", "id", "text", "model", "source", "notes", "strip"}
    from_data |= {"values", "name", "search", "held_out", "judges", "second_run"}  # the last is of the chains

    def look(value: Any, key: str) -> None:
        if key in from_data or isinstance(value, Sentence):
            return
        if isinstance(value, dict):
            for name, inner in value.items():
                look(inner, name)
        elif isinstance(value, list | tuple):
            for inner in value:
                look(inner, key)
        elif isinstance(value, str) and " " in value and any(letter.isdigit() for letter in value):
            texts.append(f"{key}: {value}")

    look(content, "")
    return texts


def check_cards(content: dict[str, Any], labels: ds.Annotations, checker: Checker) -> None:
    cards = {card["title"]: [row["value"] for row in card["numbers"]] for card in content["strip"]}
    (alpha,) = next(values for title, values in cards.items() if title.startswith("Agreement"))
    assert abs(float(alpha) - checker.alpha()) <= 0.005 + 1e-9
    shares = [max(counts.values()) / sum(counts.values()) for counts in checker.counts.values()]
    clear = sum(share >= 2 / 3 - 1e-9 for share in shares) / labels.n_items
    raw, *_ = clear_shown = cards["Items with a clear answer"]
    if len(clear_shown) > 1:  # hidden if it could not be otherwise
        checker.share(raw.replace(NB, " "), clear)
    (n,) = cards["Items to adjudicate"]
    assert int(n.replace(",", "")) == sum(flags & 4 > 0 for flags in content["items"]["flags"].tolist())


def test_sentences_on_planted_groups_and_columns_are_true() -> None:
    labels = canteen()
    content = page_content(labels, ds.PGM(6, 3, seed=1).fit(labels), held_out=[])
    kinds = check_all(content, Checker(labels))
    assert {"contrast", "column", "attribute", "check", "overturned", "groups", "standing"} <= kinds
    findings = collect_findings(ds.HPGM(n_chains=2, n_sweeps=60).fit(labels), labels)
    assert findings.verdicts is not None
    checker = Checker(labels)
    for evidence in findings.verdicts.evidence:
        checker.check(evidence)


def test_the_checker_finds_a_false_sentence() -> None:
    labels = canteen()
    checker = Checker(labels)
    true = sentences.cluster_sentence(labels.counts, np.arange(20), [str(name) for name in labels.classes])
    checker.check(true)
    before, after = true.split(f"{NB}%", 1)
    share = int(before.split()[-1])
    for false in (
        true.replace("20 items", "21 items"),
        f"{before.removesuffix(str(share))}{share + 2}{NB}%{after}",
    ):
        with pytest.raises(AssertionError):
            checker.check(Sentence(false, "cluster", **true.about))


# ---- withheld -----------------------------------------------------------------------------------------


def crowd(rows: list[tuple[str, str, str]]) -> ds.Annotations:
    return ds.Annotations.from_arrays(*zip(*rows, strict=True))


def two_camps(swap: bool, n_items: int = 40) -> ds.Annotations:
    """Six annotators; with ``swap`` the last three reverse their answers on half of the items."""
    rng = np.random.default_rng(0)
    rows = []
    for m in range(n_items):
        truth = rng.random() < 0.5
        for n in range(6):
            reverse = swap and n >= 3 and m % 2 == 0
            yes = truth != reverse if rng.random() < 0.9 else rng.random() < 0.5
            rows.append((f"i{m:02d}", f"a{n}", "yes" if yes else "no"))
    return crowd(rows)


def test_crowd_sentences_are_withheld_without_their_condition() -> None:
    assert sentences.agreement_sentence(math.nan, math.nan, math.nan) is None
    assert "Agreement beyond chance is low" in str(sentences.agreement_sentence(0.5, 0.4, 0.6))
    assert sentences.rivals_sentence(np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]]), ABC) is None
    most = sentences.rivals_sentence(np.array([[2, 2, 0], [0, 1, 1]]), ABC)
    assert most == f"When two labels of an item differ, they are ‘a’ and ‘b’ in 80{NB}% of the cases."
    assert sentences.rivals_sentence(np.array([[2, 2], [1, 1]]), ["a", "b"]) is None  # trivial
    assert sentences.parts_sentence(1, 10, 10) is None
    assert sentences.parts_sentence(2, 6, 10) is not None
    assert sentences.gold_sentence(np.array([]), (0.0, 1.0)) is None
    assert sentences.groups_sentence(None, two_camps(False)) is None
    assert sentences.contrast_sentence(None, two_camps(False)) is None


@pytest.mark.parametrize("swap", [True, False])
def test_groups_of_columns_need_closer_members(swap: bool) -> None:
    votes, members, names = Votes.of(two_camps(swap)), np.array([3, 4, 5]), ["no", "yes"]
    comparison = compare_group(votes, np.arange(6) > 2)
    group = sentences.group_sentence(comparison, names, members)
    assert (group is not None) == swap
    if swap:
        # swapped on half of the items, both ways: no class is used significantly more
        change = abs(comparison.answers - comparison.others_answers).max()
        assert change < 1.96 * comparison.error.max() + 0.03
        assert "more often" not in str(group)


def split_by_hand(n_items: int) -> Groups:
    """Three annotators in each group, found alike on both halves; the gap is set by hand."""
    members = np.repeat([0, 1], 3)
    return Groups(
        members.astype(float),
        np.stack([members, members]),
        np.arange(n_items) % 2,
        (0.9, 0.9),
        0.5,
        Interval(0.4, 0.3, 0.5),
        True,
    )


def test_the_words_of_groups() -> None:
    # the second group answers b where the first answers a, on three of four items, each time another pair
    rows = []
    for m, (first, second) in enumerate([("a", "b"), ("b", "c"), ("c", "a"), ("a", "a")] * 6):
        rows += [(f"i{m:02d}", f"a{n}", first) for n in range(3)]
        rows += [(f"i{m:02d}", f"b{n}", second) for n in range(3)]
    labels = crowd(rows)
    text = str(sentences.contrast_sentence(split_by_hand(24), labels))
    assert "differ on 18 of 24 shared items, most often" in text
    tables = split_by_hand(24).tables(Votes.of(labels))
    assert sentences.habit(tables, ABC, None) == ("", "")  # each class as often in both groups
    assert sentences.habit(tables[:, :3], ABC, None) == ("", "")  # too few items
    lower = np.stack([np.tile([0.0, 0, 1], (8, 1)), np.tile([0.0, 1, 0], (8, 1))])
    lower[1, 0] = [0, 0, 1]
    name, words = sentences.habit(lower, ABC, np.array([1.0, 2.0, 3.0]))
    assert (name, words) == (
        "lower grades",
        "the mean grade of the smaller group is 2.12, that of the larger 3.00",
    )
    name, words = sentences.habit(lower, ABC, None)
    assert (name, words) == (
        "more often ‘b’",
        f"the smaller group answers ‘b’ more often: 88{NB}% against 0{NB}%",
    )


def test_near_ties_are_adjudicated_and_disagreements_need_labels() -> None:
    counts = np.array([[3, 2], [5, 0], [1, 1], [6, 4]])
    text = sentences.adjudicate_sentence(counts, np.arange(4))
    assert text is not None
    assert text.startswith("Adjudicate 2 items")  # 3–2 and 6–4; two labels are too few
    assert list(text.about["items"]) == [0, 3]
    assert sentences.adjudicate_sentence(counts, np.array([1])) is None
    # two annotators, one against one
    text = sentences.adjudicate_sentence(np.array([[1, 1], [2, 0], [1, 0]]), np.arange(3))
    assert str(text).startswith("Adjudicate 1 item: it has 2 or more labels")
    counts = np.array([[5, 0], [5, 0], [3, 2], [3, 2]])
    assert sentences.more_sentence(counts, np.array([0, 1])) is None
    more = str(sentences.more_sentence(counts, np.array([2, 3])))
    answers = f"60{NB}% of an item’s labels are the most frequent answer (other items: 100{NB}%)"
    assert more == f"Collect more labels for 2 items. On average, {answers}."
    empty = str(sentences.more_sentence(np.array([[0, 0], [4, 1], [5, 0]]), np.array([0]), by_all=True))
    who = "from new annotators: the present ones have labelled it"
    assert empty == f"Collect more labels for 1 item {who}. It has 0 labels (other items: 5.0)."
    assert "They have" not in more  # 5 labels are not fewer than 5
    fewer = str(sentences.more_sentence(np.array([[12, 8], [16, 5]]), np.array([0])))
    assert "It has" not in fewer  # 20 labels are hardly fewer than 21
    nearly = np.array([[200, 100], [201, 99]])  # both 67 % when rounded
    assert sentences.more_sentence(nearly, np.array([0])) is None


def test_only_reasons_for_the_models_label_are_given() -> None:
    counts, names, items = np.array([2, 3]), ["b", "a"], np.arange(9)

    def explained(*reasons: Any, votes: Any = counts, gold: bool = False) -> str:
        return sentences.overturned_sentence(0, votes, 0, names, *reasons, gold=gold)

    both = explained((0.8, 0.6), (items, 0.7, 0.2))
    assert both.startswith(
        "3 of 5 labels are ‘a’ and 2 are ‘b’. The model chooses ‘b’ because the annotators who"
    )
    assert f"9 similarly labelled items received 70{NB}% ‘b’ and 20{NB}% ‘a’" in both
    neither = explained((0.6, 0.8), (items, 0.2, 0.7))
    assert neither.endswith("The model chooses ‘b’; the raw labels show no simple reason.")
    assert "and none is ‘b’" in explained(None, None, votes=np.array([0, 5]))
    by_gold = explained((0.8, 0.6), (items, 0.7, 0.2), gold=True)
    assert by_gold.endswith("are ‘b’. The gold label is ‘b’, and gold labels take precedence.")


def test_gold_is_the_reason_only_if_it_decided() -> None:
    item, annotator = np.repeat(np.arange(12), 4), np.tile(np.arange(4), 12)
    labels = ds.Annotations.from_arrays(item, annotator, np.array(ABC)[item % 3])
    gold = {"item": [0, 1], "gold": ["b", "b"]}  # the first item has no label b
    run = ds.fit(labels.with_tables(gold=gold), model="dawid-skene", estimate="truth")
    (row,) = overturned(collect_findings(run.model, run.annotations), None)
    assert row["item"] == 0
    votes = "4 of 4 labels are ‘a’ and none is ‘b’."
    assert row["why"] == f"{votes} The gold label is ‘b’, and gold labels take precedence."
    assert not gold_decides(ds.DawidSkene().fit(labels), run.annotations)


# ---- one annotator ------------------------------------------------------------------------------------


def with_sixth(answers: Any, n_items: int = 60) -> ds.Annotations:
    """Five good annotators and a sixth, who answers ``answers(truth, rng)``."""
    rng = np.random.default_rng(4)
    rows = []
    for m in range(n_items):
        truth = "abc"[m % 3]
        good = [truth if rng.random() < 0.9 else "abc"[rng.integers(3)] for _ in range(5)]
        rows += [(f"i{m:02d}", f"g{n}", label) for n, label in enumerate(good)]
        rows.append((f"i{m:02d}", "x", answers(truth, rng)))
    return crowd(rows)


def careful(truth: str, rng: Any) -> str:
    return truth


def test_evidence_on_one_annotator_needs_its_condition() -> None:
    def random(truth: str, rng: Any) -> str:
        return str("abc"[rng.integers(3)])

    for answers in (random, careful):
        agreement = annotator_agreement(Votes.of(with_sixth(answers)))
        usual = float(np.nanmedian(agreement.agreement - agreement.chance))
        assert (sentences.blind_sentence(5, agreement, usual) is not None) == (answers is random)
        says = str(sentences.undecided_sentence(5, 60, agreement, 80, 0.3, 0.0))
        assert ("not significantly above" in says) == (answers is random)
        assert says.endswith("; about 80 labels on items that others label too are usually enough here")
        assert "usually enough" not in str(sentences.undecided_sentence(5, 60, agreement, 50, 0.3, 0.0))
    few = crowd([("i1", "a", "x"), ("i1", "b", "x"), ("i2", "a", "x"), ("i2", "b", "y")])
    says = str(sentences.undecided_sentence(0, 2, annotator_agreement(Votes.of(few)), None, 0.3, 0.0))
    assert says == "2 labels: shares 2 items with others"
    alone = annotator_agreement(Votes.of(crowd([("i1", "a", "x"), ("i2", "b", "y")])))
    assert sentences.standing_sentence(0, alone) is None
    swapped = with_sixth(lambda truth, rng: {"a": "b", "b": "a", "c": "c"}[truth])
    assert "items that the others label" in str(sentences.rule_sentence(Votes.of(swapped), 5, ABC))
    assert sentences.rule_sentence(Votes.of(with_sixth(careful)), 5, ABC) is None
    constant = Votes.of(with_sixth(lambda truth, rng: "b"))
    assert sentences.constant_sentence(constant, 5, ABC) == "answers ‘b’ to all 60 items"
    assert sentences.constant_sentence(constant, 4, ABC) is None


def test_a_column_explained_by_chance_is_not_mentioned() -> None:
    group = np.repeat([0, 1], 20)
    value = np.where(np.arange(40) % 20 < 18, group, 1 - group)
    text = sentences.column_sentence("platform", ["web", "phone"], ["A", "B"], value, group)
    assert text == f"platform is ‘web’ for 90{NB}% of group A and 50{NB}% of all annotators."
    mixed = np.arange(40) % 2
    assert sentences.column_sentence("platform", ["web", "phone"], ["A", "B"], mixed, group) is None


# ---- wording ------------------------------------------------------------------------------------------


def test_numbers_beyond_the_range_are_bounds() -> None:
    shares = {0.0: "0 %", 0.004: "under 1 %", 0.375: "38 %", 0.996: "over 99 %", 1.0: "100 %"}
    for share, text in shares.items():
        assert sentences.percent(share) == text.replace(" %", f"{NB}%")


def test_biases_are_withheld_if_their_interval_contains_zero() -> None:
    assert sentences.bias_sentence(0, "hate", 0.1, 0.12) is None
    assert sentences.bias_sentence(0, "hate", np.nan, np.nan) is None
    assert sentences.bias_sentence(0, "hate", 0.004, 0.001) is None  # 0 points
    text = "answers ‘hate’ 16 points more often than the others of the same items (± 5)"
    assert sentences.bias_sentence(0, "hate", 0.16, 0.05) == text
    assert sentences.bias_words("", -0.52, 0.1) == "0.5 lower on the scale"


def test_only_five_annotators_are_named() -> None:
    item, annotator = (column.ravel() for column in np.indices((30, 24)))
    votes = Votes.of(ds.Annotations.from_arrays(item, annotator, (item + (annotator > 14)) % 2))
    names, load, agreement = [str(n) for n in range(24)], np.full(24, 30), annotator_agreement(votes)
    reasons = ["spam"] * 24
    for codes, text in ((range(22, 24), "23 (spam, agrees on"), (range(15, 24), "items) and 4 more. Read")):
        says = sentences.check_sentence(np.array(codes), names, load, agreement, reasons)
        assert text in str(says)
        Checker(ds.Annotations.from_arrays(item, annotator, (item + (annotator > 14)) % 2)).check(says)
    assert sentences.check_sentence(np.array([], dtype=int), names, load, agreement, reasons) is None


def test_full_verification_reads_all_datasets() -> None:
    assert len(datasets()) == (34 if VERIFY and find_data() else 5)
