"""Majority vote, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

import dissensus as ds

COUNTS = [
    [3, 1, 0],  # a clear winner
    [2, 2, 0],  # two classes tied
    [1, 1, 1],  # all tied
    [0, 0, 1],  # one label
    [0, 0, 0],  # nobody labelled it
]


@pytest.fixture(scope="module")
def model() -> ds.MajorityVote:
    return ds.MajorityVote().fit(
        ds.Annotations.from_counts(COUNTS, items=list("vwxyz"), classes=["no", "yes", "maybe"])
    )


def test_tied_classes_share(model: ds.MajorityVote) -> None:
    third = 1 / 3
    expected = [[1, 0, 0], [0.5, 0.5, 0], [third, third, third], [0, 0, 1], [1, 0, 0]]
    np.testing.assert_allclose(model.label_distributions_, expected, rtol=1e-15)


def test_the_first_tied_class_in_class_order_is_named(model: ds.MajorityVote) -> None:
    # Class order is the one given, not the alphabet's.
    assert model.predict().tolist() == ["no", "no", "no", "maybe", "no"]


def test_ties_are_counted_among_labelled_items(model: ds.MajorityVote) -> None:
    assert model.ties_ == 2
    assert model.transform(ds.Annotations.from_counts([[1, 1]], classes=["yes", "no"])).ties_ == 1


def test_an_item_never_seen_gets_the_crowds_most_frequent_class(model: ds.MajorityVote) -> None:
    # Over all items: 6 × no, 4 × yes, 2 × maybe.
    assert model.predict_proba(["never seen", "z"]).tolist() == [[1, 0, 0], [1, 0, 0]]
    moved = model.transform(ds.Annotations.from_counts([[0, 5], [0, 0]], classes=["no", "yes"]))
    assert moved.label_distributions_.tolist() == [[0, 1, 0], [1, 0, 0]]


def test_a_crowd_that_is_tied_itself_expects_both() -> None:
    model = ds.MajorityVote().fit(ds.Annotations.from_counts([[2, 0], [0, 2]]))
    assert model.predict_proba([99]).tolist() == [[0.5, 0.5]]
    assert model.ties_ == 0


def test_a_label_that_lost_is_impossible(model: ds.MajorityVote) -> None:
    hidden = ds.Annotations.from_counts([[0, 1, 0]], items=["v"], classes=["no", "yes", "maybe"])
    assert model.score(hidden) == -np.inf
    half = ds.Annotations.from_counts([[1, 1, 0]], items=["w"], classes=["no", "yes", "maybe"])
    np.testing.assert_allclose(model.score(half), np.log(0.5), rtol=1e-15)


def test_there_is_nothing_to_iterate(model: ds.MajorityVote) -> None:
    assert model.trace_.shape == (0,)
    assert model.stopped_ == "closed form"
