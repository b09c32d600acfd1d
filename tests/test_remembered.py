"""What is kept of few labels from one fit to the next, and no longer than the labels."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

import dissensus as ds
from dissensus.labels import remembered as module
from dissensus.labels.remembered import MOST_KEPT, remembered
from dissensus.models.pgm import kernels


def crowd() -> ds.Annotations:
    return ds.simulate(30, 8, 3, labels_per_item=4).annotations


def test_a_thing_is_made_once_for_the_same_labels() -> None:
    one, other, made = crowd(), crowd(), []
    for labels in (one, one, other):
        remembered(labels, "thing", lambda: made.append(1) or len(made))
    assert len(made) == 2
    assert remembered(one, "thing", lambda: 5) == 1


def test_the_oldest_is_forgotten_and_of_many_labels_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    labels = crowd()
    for number in range(MOST_KEPT + 1):
        remembered(labels, number, lambda number=number: number)
    assert remembered(labels, 0, lambda: "anew") == "anew"
    assert remembered(labels, MOST_KEPT, lambda: "anew") == MOST_KEPT
    monkeypatch.setattr(module, "FEW_LABELS", labels.n_labels - 1)
    assert remembered(labels, MOST_KEPT, lambda: "anew") == "anew"


def test_nothing_outlives_its_labels() -> None:
    labels = crowd()
    ds.PGM(3, 2, n_jobs=1).fit(labels)
    gone = weakref.ref(labels)
    del labels
    gc.collect()
    assert gone() is None


def test_fits_to_the_same_labels_share_a_layout_and_find_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    built = []
    of = kernels.PairLayout.of
    monkeypatch.setattr(
        kernels.PairLayout, "of", classmethod(lambda cls, *given: built.append(1) or of(*given))
    )
    labels = crowd()
    first, second = (ds.PGM(3, 2, seed=1).fit(labels) for _ in range(2))
    assert len(built) == 1
    afresh = ds.PGM(3, 2, seed=1).fit(crowd())
    for one in (second, afresh):
        assert np.array_equal(one.theta_, first.theta_)
        assert np.array_equal(one.label_distributions_, first.label_distributions_)
