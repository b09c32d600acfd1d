"""The simulated crowd of the verdicts' measurement is what it says it is."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.mixed_crowd import mixed_crowd


def test_sizes_and_shares():
    crowd = mixed_crowd(200, 50, seed=1)
    known = crowd.annotations
    assert (known.n_annotators, known.n_items, known.n_labels, known.n_classes) == (200, 2000, 10_000, 5)
    assert (known.annotator_load == 50).all()
    assert (np.diff(known.item_pointers) == 5).all()
    assert [(crowd.kind == kind).sum() for kind in ("typical", "spam", "minority view")] == [150, 20, 30]
    assert crowd.contested.mean() == pytest.approx(1 / 3, abs=0.04)


@pytest.mark.parametrize("sees", ["next", "any"])
def test_what_each_kind_answers(sees):
    crowd = mixed_crowd(400, 200, accuracy=0.7, sees=sees, seed=2)
    known = crowd.annotations
    kind, contested = crowd.kind[known.annotator], crowd.contested[known.item]
    truth = crowd.truth[known.item]
    right = known.label == truth
    assert right[kind == "typical"].mean() == pytest.approx(0.7, abs=0.01)
    assert right[(kind == "minority view") & ~contested].mean() == pytest.approx(0.7, abs=0.01)
    # Where they see another class, the crowd's class is one of the four wrong ones.
    assert right[(kind == "minority view") & contested].mean() == pytest.approx(0.3 / 4, abs=0.01)
    following = (known.label == (truth + 1) % 5)[(kind == "minority view") & contested].mean()
    assert following == pytest.approx(0.7 if sees == "next" else 0.7 / 4 + 0.3 / 4 * 3 / 4, abs=0.02)
    spam = np.bincount(known.label[kind == "spam"], minlength=5) / (kind == "spam").sum()
    np.testing.assert_allclose(spam, [0.3, 0.25, 0.2, 0.15, 0.1], atol=0.02)


def test_accuracies_spread():
    crowd = mixed_crowd(300, 200, spammers=0, minority=0, accuracy_spread=0.1, seed=3)
    known = crowd.annotations
    right = np.bincount(known.annotator, known.label == crowd.truth[known.item]) / 200
    # Binomial noise of 200 labels adds 0.028² to the variance.
    assert right.std() == pytest.approx(np.hypot(0.1, 0.028), rel=0.15)
