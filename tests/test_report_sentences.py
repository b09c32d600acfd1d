"""Sentences from numbers: what they say, and when they stay silent."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dissensus.report import sentences

NB = "\u00a0"


@pytest.mark.parametrize(
    ("share", "said"),
    [(0.0, "0 %"), (0.004, "under 1 %"), (0.375, "38 %"), (0.996, "over 99 %"), (1.0, "100 %")],
)
def test_a_share_is_said_without_pretending(share: float, said: str) -> None:
    assert sentences.percent(share) == said.replace(" %", f"{NB}%")


def test_an_excerpt_is_one_line_and_short() -> None:
    assert sentences.excerpt("two\n lines") == "“two lines”"
    long = sentences.excerpt("word " * 50)
    assert long.endswith("…”")
    assert len(long) <= sentences.EXCERPT + 2


def test_clarity_names_the_rivals_and_counts_the_undecided() -> None:
    said = sentences.clarity_sentence(0.5, 0.25, ("yes", "maybe"))
    assert f"On 50{NB}% of the items" in said
    assert f"on 25{NB}% no answer reaches half" in said
    assert said.endswith("mostly between ‘yes’ and ‘maybe’.")
    assert "some answer reaches half" in sentences.clarity_sentence(1.0, 0.0, None)


def test_groups_sentence_says_who_says_what_where() -> None:
    says = sentences.contrast_words("B", "A", "hate", (0.75, 0.26))
    said = sentences.groups_sentence(2, 0, 0.1, "cluster 1", says, borrowed=False)
    assert said.startswith(
        "The annotators fall into 2 groups, which differ most on cluster 1: group B answers ‘hate’"
    )
    assert f"group A 26{NB}%; 10{NB}% of the disagreement lies between groups" in said
    assert sentences.one_group_sentence(borrowed=False).startswith("The annotators answer as one group")
    assert sentences.groups_sentence(2, 0, 0.1, "", "", borrowed=True).startswith(
        "Seen through a small joint model"
    )


@pytest.mark.parametrize(("n_idle", "said"), [(1, "(1 of them hardly looks"), (2, "(2 of them hardly look ")])
def test_groups_that_do_not_look_are_counted_apart(n_idle: int, said: str) -> None:
    assert said in sentences.groups_sentence(4, n_idle, 0.1, "", "", borrowed=False)


def test_gains_are_named_only_where_there_are_any() -> None:
    better = sentences.gains_sentence({"n_overturned": 3, "overturned": 0.03, "ours": 0.5, "counts": 0.4})
    assert f"50{NB}% on average instead of 40{NB}%" in better
    assert f"changes the most frequent label of 3 items (3{NB}%)" in better
    worse = sentences.gains_sentence({"n_overturned": 0, "overturned": 0.0, "ours": 0.3, "counts": 0.4})
    assert worse == "Compared with counting votes, the model keeps every item's most frequent label."


@pytest.mark.parametrize(
    ("verdicts", "said"),
    [
        ({"typical": 9}, "; no annotator looks like spam."),
        ({"spam": 1}, "; 1 annotator looks like spam."),
        ({"spam": 2, "minority view": 1}, "; 2 annotators look like spam and 1 holds a minority view."),
        ({"minority view": 4}, "; 4 annotators hold a minority view."),
    ],
)
def test_spam_and_minority_are_kept_apart(verdicts: dict[str, int], said: str) -> None:
    sentence = sentences.gains_sentence({"n_overturned": 0, "overturned": 0.0, "verdicts": verdicts})
    assert sentence.endswith(said)


def test_why_names_only_reasons_that_point_that_way() -> None:
    votes = (2, 3, 5)
    both = sentences.why_overturned("b", "a", votes, 0.6, False, (0.4, 0.1), (2, 0.7, 0.2))
    assert both.startswith("3 of 5 said ‘a’ and 2 ‘b’. The model gives ‘b’ a share of 60")
    assert "those who said ‘b’ tell more (0.40 against 0.10 nats a label)" in both
    assert f"cluster 3, which get 70{NB}% ‘b’ and 20{NB}% ‘a’" in both
    neither = sentences.why_overturned("b", "a", votes, 0.6, False, (0.1, 0.4), (2, 0.2, 0.7))
    assert "tell more" not in neither
    assert "cluster 3" not in neither
    unknown = sentences.why_overturned("b", "a", (0, 3, 5), 0.6, False, (math.nan, 0.4), None)
    assert "nobody ‘b’" in unknown
    assert "tell more" not in unknown


def test_why_speaks_of_truth_where_the_model_looks_for_one() -> None:
    said = sentences.why_overturned("b", "a", (2, 3, 5), 0.9, True, None, None)
    assert f"holds ‘b’ to be true (90{NB}% sure)" in said


def test_habits_say_more_and_less() -> None:
    said = sentences.group_habits([("yes", 0.6, 0.4)], [("no", 0.1, 0.3)])
    assert f"says ‘yes’ (60{NB}% against 40{NB}%) more often and says ‘no’" in said
    assert sentences.group_habits([], []) == "Uses the classes about as often as the others do."


def test_a_side_column_is_told_by_its_most_surprising_cell() -> None:
    counts = np.array([[8, 2], [2, 8]])
    said = sentences.crosstab_sentence("platform", ["web", "phone"], counts, 0.6)
    assert f"‘web’ are 80{NB}% of group A and 50{NB}% of all annotators" in said
    assert "little to do" in sentences.crosstab_sentence("platform", ["web", "phone"], counts, 0.05)


@pytest.mark.parametrize(
    ("efficiency", "said"), [(math.inf, "more than 8"), (0.0, "less than one"), (5.72, "5.7")]
)
def test_worth_says_when_it_lies_beyond_what_was_tried(efficiency: float, said: str) -> None:
    assert f"as {said} raw ones (quick)" in sentences.worth_words(4, efficiency, 8, "quick")


@pytest.mark.parametrize(
    ("alpha", "said"),
    [(0.85, "agree well"), (0.7, "tentative"), (0.3, "often"), (0.1, "chance"), (math.nan, "cannot")],
)
def test_agreement_in_words(alpha: float, said: str) -> None:
    assert said in sentences.agreement_words(alpha)
