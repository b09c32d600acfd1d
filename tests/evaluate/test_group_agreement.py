"""Agreement of annotators and groups: worked by hand, by bootstrap, and against SciPy."""

import numpy as np
import pytest
from scipy.stats import contingency

import dissensus as ds
from dissensus.evaluate.group_agreement import (
    Votes,
    annotator_agreement,
    annotator_bias,
    compare_group,
    compare_majorities,
    cramers_v,
    most_frequent,
)


def test_bias_by_hand() -> None:
    # a, b and c on items 1 to 4; c says y where a and b say x, on items 1 and 2; d is alone on item 5
    answers = {"a": "xxyy", "b": "xxyy", "c": "yyyy"}
    rows = [(f"{m + 1}", name, label) for name, labels in answers.items() for m, label in enumerate(labels)]
    labels = ds.Annotations.from_arrays(*zip(*rows, ("5", "d", "x"), strict=True))
    bias = annotator_bias(labels)
    # c: y on 4 of 4 items where the others say it on 2; a: the others of its items say y on ½, ½, 1, 1
    np.testing.assert_allclose(bias.value[:3], [0.25, 0.25, 0.5])
    assert [labels.classes[code] for code in bias.class_code[:3]] == ["x", "x", "y"]
    np.testing.assert_allclose(bias.error[2], 1.96 * np.array([1.0, 1.0, 0.0, 0.0]).std(ddof=1) / 2)
    assert np.isnan(bias.value[3])
    assert bias.class_code[3] == -1
    grades = annotator_bias(labels, np.array([1.0, 3.0]))
    np.testing.assert_allclose(grades.value[:3], [-0.5, -0.5, 1.0])
    assert (grades.class_code == -1).all()


def test_agreement_by_hand() -> None:
    # one item: a and b say x, c says y, d says x and y: pairs inside {a, b}: 1; across: x–y 0, x–(x,y) ½
    rows = [("i", "a", "x"), ("i", "b", "x"), ("i", "c", "y"), ("i", "d", "x"), ("i", "d", "y")]
    votes = Votes.of(ds.Annotations.from_arrays(*zip(*rows, strict=True)))
    group = compare_group(votes, np.array([True, True, False, False]))
    assert (group.within, group.between) == (1.0, 0.25)
    np.testing.assert_allclose(group.answers, [1.0, 0.0])
    np.testing.assert_allclose(group.others_answers, [0.25, 0.75])
    agreement = annotator_agreement(votes)
    np.testing.assert_allclose(agreement.agreement, [0.5, 0.5, 1 / 6, 0.5])
    # a always says x, and half of the others' answers are x; d says x and y, the others x in two of three
    np.testing.assert_allclose(agreement.chance, [0.5, 0.5, 1 / 6, 0.5 * 2 / 3 + 0.5 * 1 / 3])


@pytest.mark.slow
@pytest.mark.no_cover
def test_intervals_of_gaps_match_a_bootstrap_over_items() -> None:
    rng = np.random.default_rng(3)
    truth, camp = rng.integers(2, size=150), np.arange(6) >= 3
    item, annotator = (codes.ravel() for codes in np.indices((150, 6)))
    label = truth[item] ^ (camp[annotator] & (item % 2 == 0)) ^ (rng.random(900) < 0.05)
    labels = ds.Annotations.from_arrays(item, annotator, label)
    gaps = []
    for _ in range(200):
        rows = (rng.integers(150, size=150)[:, None] * 6 + np.arange(6)).ravel()
        votes = Votes.of(ds.Annotations.from_arrays(item, annotator, labels.label[rows]))
        gaps.append((compare_group(votes, camp).gap.value, annotator_agreement(votes).gap[4]))
    votes = Votes.of(labels)
    gap, standing = compare_group(votes, camp).gap, annotator_agreement(votes)
    reaches = (gap.high - gap.low) / 2, 1.96 * standing.gap_error[4]
    for reach, error in zip(reaches, np.std(gaps, axis=0), strict=True):
        assert reach == pytest.approx(1.96 * error, rel=0.2)


def test_the_gap_compares_with_others_on_the_same_items() -> None:
    # i: a and b say x, c says y; j: a alone with b; a's gap counts item i only
    rows = [("i", "a", "x"), ("i", "b", "x"), ("i", "c", "y"), ("j", "a", "x"), ("j", "b", "x")]
    standing = annotator_agreement(Votes.of(ds.Annotations.from_arrays(*zip(*rows, strict=True))))
    # on i, a agrees with b and not with c, who disagree with each other; c agrees with neither, they agree
    np.testing.assert_allclose(standing.gap, [0.5, 0.5, -1.0])
    np.testing.assert_allclose(standing.usual, [0.0, 0.0, 1.0])
    assert standing.n_usual.tolist() == [1, 1, 1]
    assert standing.n.tolist() == [2, 2, 1]
    assert not standing.differs.any()  # too few items


def test_ties_and_missing_labels_have_no_most_frequent_class() -> None:
    counts = np.array([[3, 1, 0], [2, 2, 0], [0, 0, 0], [0, 0, 1]])
    assert most_frequent(counts).tolist() == [0, -1, -1, 2]
    assert compare_majorities(np.array([[0.0, 0.0]]), np.array([[1.0, 0.0]])) is None


def test_cramers_v_is_scipys() -> None:
    table = np.random.default_rng(3).integers(1, 30, size=(3, 4))
    expected = contingency.association(table, method="cramer", correction=False)
    assert cramers_v(table) == pytest.approx(expected, rel=1e-12)
    assert cramers_v(np.array([[5, 0], [0, 7]])) == pytest.approx(1.0)
    assert cramers_v(np.array([[5, 5]])) == 0.0
