"""Majority vote and smoothed counts by hand, leave-one-out against brute force."""

import math

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

import dissensus as ds
from dissensus.models.counting import leave_one_out
from dissensus.models.results import most_probable

COUNTS = np.array([[3, 1, 0], [0, 0, 1], [2, 2, 2], [0, 7, 0], [0, 0, 0]])


def brute_force(counts: NDArray[np.int64], strength: float) -> float:
    """Remove every label in turn and compute its probability from the smoothed rest."""
    logs = []
    for row in counts:
        for p, times in enumerate(row):
            for _ in range(times):
                rest = row.astype(float)
                rest[p] -= 1
                smoothed = rest + strength
                logs.append(math.log(smoothed[p] / smoothed.sum()))
    return sum(logs) / len(logs)


@pytest.mark.parametrize("strength", [1e-3, 0.1, 1.0, 30.0])
def test_leave_one_out_equals_brute_force(strength: float) -> None:
    assert_allclose(leave_one_out(COUNTS, strength), brute_force(COUNTS, strength), rtol=1e-12)
    random = np.random.default_rng(0).poisson(1.5, size=(40, 5))
    assert_allclose(leave_one_out(random, strength), brute_force(random, strength), rtol=1e-12)


def test_smoothing_by_hand() -> None:
    model = ds.EmpiricalDistribution(smoothing=0.5).fit(ds.Annotations.from_counts(COUNTS))
    # (c + 1/2) / (n + 3/2); the item without labels gets the overall 5, 10, 3 of 18
    expected = np.array(
        [
            [3.5 / 5.5, 1.5 / 5.5, 0.5 / 5.5],
            [0.5 / 2.5, 0.5 / 2.5, 1.5 / 2.5],
            [1 / 3, 1 / 3, 1 / 3],
            [0.5 / 8.5, 7.5 / 8.5, 0.5 / 8.5],
            [5 / 18, 10 / 18, 3 / 18],
        ]
    )
    assert_allclose(model.label_distributions_, expected, rtol=1e-14)
    assert_allclose(model.predict_proba([77]), expected[4:], rtol=1e-14)
    assert model.smoothing_.item() == 0.5


def crowd(alpha: float) -> NDArray[np.int64]:
    """Simulate ten labels of each of 3,000 items with distributions from Dir(α)."""
    rng = np.random.default_rng(1)
    return np.array([rng.multinomial(10, chances) for chances in rng.dirichlet([alpha] * 4, size=3000)])


def best_smoothing(counts: NDArray[np.int64]) -> float:
    return ds.EmpiricalDistribution().fit(ds.Annotations.from_counts(counts)).smoothing_.item()


@pytest.mark.parametrize("alpha", [0.1, 0.7, 4.0])
def test_the_planted_smoothing_is_recovered(alpha: float) -> None:
    # for items from Dir(α), P(label | the others) = (c + α) / (n + Pα)
    assert_allclose(best_smoothing(crowd(alpha)), alpha, rtol=0.15)


def test_single_labels_leave_smoothing_at_one() -> None:
    singles = np.eye(3, dtype=np.int64)
    # without other labels the probability is 1/P for any smoothing
    for strength in (0.01, 1.0, 50.0):
        assert_allclose(leave_one_out(singles, strength), math.log(1 / 3), rtol=1e-12)
    assert best_smoothing(singles) == 1.0


# ---- approximate intervals ------------------------------------------------------------------------------


@pytest.mark.parametrize("worth", [0.5, 4.0, 30.0])
def test_prior_strength_is_recovered(worth: float) -> None:
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(worth * np.array([0.5, 0.3, 0.2]), size=900)
    counts = np.array([rng.multinomial(8, row) for row in shares])
    assert ds.Annotations.from_counts(counts).prior_strength == pytest.approx(worth, rel=0.35)


def test_coverage_of_approximate_intervals() -> None:
    """The approximation is exact for posterior means of items from a single Dirichlet."""
    rng = np.random.default_rng(2)
    shares = rng.dirichlet([2.0, 1.2, 0.8], size=900)
    counts = np.array([rng.multinomial(5, row) for row in shares])
    model = ds.EmpiricalDistribution().fit(ds.Annotations.from_counts(counts))
    model.label_distributions_ = (counts + np.array([2.0, 1.2, 0.8])) / (5 + 4.0)
    for size in (0.5, 0.9):
        known = model.intervals(size)
        assert known is not None
        covered = ((known.low <= shares) & (shares <= known.high)).mean()
        assert covered == pytest.approx(size, abs=0.03)
    # p_top is calibrated
    best = model.label_distributions_.argmax(axis=1) == shares.argmax(axis=1)
    assert best.mean() == pytest.approx(known.p_top.mean(), abs=0.06)


# ---- majority vote ------------------------------------------------------------------------------------

VOTES = [
    [3, 1, 0],  # a clear winner
    [2, 2, 0],  # two classes tied
    [1, 1, 1],  # all tied
    [0, 0, 1],  # one label
    [0, 0, 0],  # no labels
]


@pytest.fixture(scope="module")
def vote() -> ds.MajorityVote:
    votes = ds.Annotations.from_counts(VOTES, items=list("vwxyz"), classes=["no", "yes", "maybe"])
    return ds.MajorityVote().fit(votes)


def test_votes_by_hand(vote: ds.MajorityVote) -> None:
    third = 1 / 3
    expected = [[1, 0, 0], [0.5, 0.5, 0], [third, third, third], [0, 0, 1], [1, 0, 0]]
    assert_allclose(vote.label_distributions_, expected, rtol=1e-15)
    # the first tied class, in the order of the classes
    assert vote.predict().tolist() == ["no", "no", "no", "maybe", "no"]
    assert vote.ties_ == 2  # among items with labels
    assert (vote.trace_.shape, vote.stopped_) == ((0,), "closed form")


def test_unknown_items_get_the_most_frequent_class(vote: ds.MajorityVote) -> None:
    # over all items: 6 × no, 4 × yes, 2 × maybe
    assert vote.predict_proba(["never seen", "z"]).tolist() == [[1, 0, 0], [1, 0, 0]]
    moved = vote.apply(ds.Annotations.from_counts([[0, 5], [0, 0]], classes=["no", "yes"]))
    assert moved.label_distributions_.tolist() == [[0, 1, 0], [1, 0, 0]]
    tied = ds.MajorityVote().fit(ds.Annotations.from_counts([[2, 0], [0, 2]]))
    assert tied.predict_proba([99]).tolist() == [[0.5, 0.5]]


def test_other_classes_have_probability_zero(vote: ds.MajorityVote) -> None:
    hidden = ds.Annotations.from_counts([[0, 1, 0]], items=["v"], classes=["no", "yes", "maybe"])
    assert vote.score(hidden) == -np.inf


def test_ties_go_to_the_middle_and_frames_have_quantiles() -> None:
    shares = np.array([[0.4, 0.1, 0.1, 0.4], [0.45, 0.05, 0.45, 0.05], [0.1, 0.2, 0.3, 0.4]])
    # cumulative .4 .5 .6 1: the median is class 1, and 0 is nearer to it than 3
    assert most_probable(shares, "ordinal").tolist() == [0, 0, 3]
    assert most_probable(np.array([[0.1, 0.45, 0.0, 0.0, 0.45]]), "ordinal").tolist() == [1]
    frame = pd.DataFrame({"item": ["a"] * 4, "annotator": list("wxyz"), "label": [1, 2, 2, 5]})
    model = ds.EmpiricalDistribution(smoothing=0.0).fit(ds.read_annotations(frame, label_type="ordinal"))
    row = model.to_frame().iloc[0]
    assert row["mean"] == pytest.approx(2.5)
    assert (row["lower_quartile"], row["median"], row["upper_quartile"]) == (1, 2, 2)
    nominal = ds.EmpiricalDistribution().fit(ds.read_annotations(frame, label_type="nominal"))
    assert "median" not in nominal.to_frame().columns
