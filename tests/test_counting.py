"""The counting models: majority vote by hand, smoothed counts by hand and leave-one-out by brute force."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

import dissensus as ds
from dissensus.models.counting import GRID, leave_one_out

COUNTS = np.array([[3, 1, 0], [0, 0, 1], [2, 2, 2], [0, 7, 0], [0, 0, 0]])


def brute_force(counts: NDArray[np.int64], strength: float) -> float:
    """Take out every label in turn, smooth what is left of its item, and look the label up."""
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
    np.testing.assert_allclose(leave_one_out(COUNTS, strength), brute_force(COUNTS, strength), rtol=1e-12)
    random = np.random.default_rng(0).poisson(1.5, size=(40, 5))
    np.testing.assert_allclose(leave_one_out(random, strength), brute_force(random, strength), rtol=1e-12)


def test_leave_one_out_by_hand() -> None:
    # Labels a, a, b with s = 1: an a is left with {a, b}, chance 2/4; the b with {a, a}, chance 1/4.
    np.testing.assert_allclose(
        leave_one_out(np.array([[2, 1]]), 1.0), (2 * math.log(2 / 4) + math.log(1 / 4)) / 3, rtol=1e-15
    )


def test_smoothing_by_hand() -> None:
    model = ds.EmpiricalDistribution(smoothing=0.5).fit(ds.Annotations.from_counts(COUNTS))
    # (c + 1/2) / (n + 3/2); the item without labels gets the crowd's 5, 10, 3 of 18.
    expected = np.array(
        [
            [3.5 / 5.5, 1.5 / 5.5, 0.5 / 5.5],
            [0.5 / 2.5, 0.5 / 2.5, 1.5 / 2.5],
            [1 / 3, 1 / 3, 1 / 3],
            [0.5 / 8.5, 7.5 / 8.5, 0.5 / 8.5],
            [5 / 18, 10 / 18, 3 / 18],
        ]
    )
    np.testing.assert_allclose(model.label_distributions_, expected, rtol=1e-14)
    np.testing.assert_allclose(model.predict_proba([77]), expected[4:], rtol=1e-14)
    assert model.smoothing_.item() == 0.5


def test_without_smoothing_it_is_the_raw_distribution() -> None:
    model = ds.EmpiricalDistribution(smoothing=0).fit(ds.Annotations.from_counts(COUNTS))
    np.testing.assert_allclose(model.label_distributions_[0], [0.75, 0.25, 0], rtol=1e-15)
    assert np.isfinite(model.label_distributions_).all()


def crowd(alpha: float) -> NDArray[np.int64]:
    """Ten labels on each of 3,000 items whose distributions are drawn from Dir(α)."""
    rng = np.random.default_rng(1)
    return np.array([rng.multinomial(10, chances) for chances in rng.dirichlet([alpha] * 4, size=3000)])


def best_smoothing(counts: NDArray[np.int64]) -> float:
    return ds.EmpiricalDistribution().fit(ds.Annotations.from_counts(counts)).smoothing_.item()


@pytest.mark.parametrize("alpha", [0.1, 0.7, 4.0])
def test_the_best_strength_is_the_planted_one(alpha: float) -> None:
    # With items drawn from Dir(α) the chance of a label given the others is (c + α) / (n + Pα).
    np.testing.assert_allclose(best_smoothing(crowd(alpha)), alpha, rtol=0.15)


def test_the_best_strength_is_that_of_a_continuous_search() -> None:
    counts = crowd(0.7)
    found = minimize_scalar(
        lambda log_s: -leave_one_out(counts, math.exp(log_s)), bounds=(-7, 5), method="bounded"
    )
    assert abs(math.log(best_smoothing(counts)) - found.x) <= math.log(GRID[1] / GRID[0])


@pytest.mark.slow
def test_the_best_strength_has_no_better_neighbour() -> None:
    counts = crowd(0.7)
    best = leave_one_out(counts, best_smoothing(counts))
    assert all(leave_one_out(counts, s) <= best for s in GRID)


def test_fit_chooses_the_strength_from_the_labels() -> None:
    counts = crowd(0.7)
    model = ds.EmpiricalDistribution().fit(ds.Annotations.from_counts(counts))
    assert model.smoothing_.item() == best_smoothing(counts)
    assert model.smoothing is None
    np.testing.assert_allclose(
        model.label_distributions_[0],
        (counts[0] + model.smoothing_) / (10 + 4 * model.smoothing_),
        rtol=1e-14,
    )


def test_new_items_are_smoothed_with_the_same_strength() -> None:
    model = ds.EmpiricalDistribution(smoothing=2.0).fit(ds.Annotations.from_counts(COUNTS))
    moved = model.apply(ds.Annotations.from_counts([[0, 1, 0]]))
    np.testing.assert_allclose(moved.label_distributions_, [[2 / 7, 3 / 7, 2 / 7]], rtol=1e-15)


def test_single_labels_say_nothing_about_the_strength() -> None:
    singles = np.eye(3, dtype=np.int64)
    # With no other label the chance is 1/P whatever the strength.
    for strength in (0.01, 1.0, 50.0):
        np.testing.assert_allclose(leave_one_out(singles, strength), math.log(1 / 3), rtol=1e-12)
    assert best_smoothing(singles) == 1.0


@pytest.mark.data
def test_leave_one_out_foretells_hidden_labels(data_dir: Path) -> None:
    annotations = ds.read_annotations(data_dir / "jq1" / "annotations.csv")
    train, hidden = annotations.split_labels(test_size=0.2, seed=0)

    def score(strength: float | None) -> float:
        return ds.EmpiricalDistribution(smoothing=strength).fit(train).score_items(hidden)

    # What labels left out of the training part foretell is within 0.002 nats of the best in hindsight.
    assert score(None) > max(score(s) for s in GRID) - 0.002


# ---- how sure a model without draws is ------------------------------------------------------------------


@pytest.mark.parametrize("worth", [0.5, 4.0, 30.0])
def test_what_shares_are_worth_is_found(worth: float) -> None:
    rng = np.random.default_rng(1)
    shares = rng.dirichlet(worth * np.array([0.5, 0.3, 0.2]), size=900)
    counts = np.array([rng.multinomial(8, row) for row in shares])
    assert ds.Annotations.from_counts(counts).prior_strength == pytest.approx(worth, rel=0.35)


def test_nine_in_ten_approximate_intervals_hold_the_truth() -> None:
    """Where the approximation is exact: items drawn from one Dirichlet, shown by their posterior means."""
    rng = np.random.default_rng(2)
    shares = rng.dirichlet([2.0, 1.2, 0.8], size=900)
    counts = np.array([rng.multinomial(5, row) for row in shares])
    model = ds.EmpiricalDistribution().fit(ds.Annotations.from_counts(counts))
    model.label_distributions_ = (counts + np.array([2.0, 1.2, 0.8])) / (
        counts.sum(axis=1, keepdims=True) + 4.0
    )
    for size in (0.5, 0.9):
        known = model.intervals(size)
        assert known is not None
        covered = ((known.low <= shares) & (shares <= known.high)).mean()
        assert covered == pytest.approx(size, abs=0.03)
    # the label that looks most common is that as often as it says
    best = model.label_distributions_.argmax(axis=1) == shares.argmax(axis=1)
    assert best.mean() == pytest.approx(known.sure.mean(), abs=0.06)


# ---- majority vote ------------------------------------------------------------------------------------

VOTES = [
    [3, 1, 0],  # a clear winner
    [2, 2, 0],  # two classes tied
    [1, 1, 1],  # all tied
    [0, 0, 1],  # one label
    [0, 0, 0],  # nobody labelled it
]


@pytest.fixture(scope="module")
def vote() -> ds.MajorityVote:
    return ds.MajorityVote().fit(
        ds.Annotations.from_counts(VOTES, items=list("vwxyz"), classes=["no", "yes", "maybe"])
    )


def test_tied_classes_share(vote: ds.MajorityVote) -> None:
    third = 1 / 3
    expected = [[1, 0, 0], [0.5, 0.5, 0], [third, third, third], [0, 0, 1], [1, 0, 0]]
    np.testing.assert_allclose(vote.label_distributions_, expected, rtol=1e-15)


def test_the_first_tied_class_in_class_order_is_named(vote: ds.MajorityVote) -> None:
    # Class order is the one given, not the alphabet's.
    assert vote.predict().tolist() == ["no", "no", "no", "maybe", "no"]


def test_ties_are_counted_among_labelled_items(vote: ds.MajorityVote) -> None:
    assert vote.ties_ == 2
    assert vote.apply(ds.Annotations.from_counts([[1, 1]], classes=["yes", "no"])).ties_ == 1


def test_an_item_never_seen_gets_the_crowds_most_frequent_class(vote: ds.MajorityVote) -> None:
    # Over all items: 6 × no, 4 × yes, 2 × maybe.
    assert vote.predict_proba(["never seen", "z"]).tolist() == [[1, 0, 0], [1, 0, 0]]
    moved = vote.apply(ds.Annotations.from_counts([[0, 5], [0, 0]], classes=["no", "yes"]))
    assert moved.label_distributions_.tolist() == [[0, 1, 0], [1, 0, 0]]


def test_a_crowd_that_is_tied_itself_expects_both() -> None:
    model = ds.MajorityVote().fit(ds.Annotations.from_counts([[2, 0], [0, 2]]))
    assert model.predict_proba([99]).tolist() == [[0.5, 0.5]]
    assert model.ties_ == 0


def test_a_label_that_lost_is_impossible(vote: ds.MajorityVote) -> None:
    hidden = ds.Annotations.from_counts([[0, 1, 0]], items=["v"], classes=["no", "yes", "maybe"])
    assert vote.score(hidden) == -np.inf
    half = ds.Annotations.from_counts([[1, 1, 0]], items=["w"], classes=["no", "yes", "maybe"])
    np.testing.assert_allclose(vote.score(half), np.log(0.5), rtol=1e-15)


def test_there_is_nothing_to_iterate(vote: ds.MajorityVote) -> None:
    assert vote.trace_.shape == (0,)
    assert vote.stopped_ == "closed form"
