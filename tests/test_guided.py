"""GuidedClassifier: by hand, against scikit-learn, and over every guide and three kinds of learner."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import dissensus as ds

M, N, P, K = 60, 12, 3, 3

GUIDES: dict[str, Any] = {
    "majority": ds.MajorityVote(),
    "empirical": ds.EmpiricalDistribution(),
    "fmm": ds.FMM(K, max_iter=40),
    "pgm-bp": ds.PGM(K, 2, max_iter=20),
    "pgm-annealing": ds.PGM(K, 2, inference="annealing", max_iter=20),
    "pgm-vb": ds.PGM(K, 2, inference="vb", max_iter=20),
    "cbcc": ds.CBCC(2, max_iter=15),
    "dawid-skene": ds.DawidSkene(max_iter=20),
    "one-coin": ds.OneCoin(max_iter=20),
}
LEARNERS: dict[str, Any] = {
    "softmax": ds.SoftmaxRegression(0.01),
    "scikit-learn": LogisticRegression(max_iter=500),
    "ldlnm": ds.LDLNM(4, 2, latent_size=4, n_networks=1, epochs=3),
}
WITHOUT_CLUSTERS = {"majority", "empirical"}


def crowd(n: int = M, seed: int = 0) -> tuple[Any, ds.Annotations]:
    """Features that tell an item's cluster, and the labels of a simulated crowd."""
    drawn = ds.simulate(
        n, N, P, n_item_clusters=K, n_annotator_clusters=2, labels_per_item=4, alpha=0.3, seed=seed
    )
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(7).normal(size=(K, 4))
    return centres[drawn.item_cluster] + 0.2 * rng.normal(size=(n, 4)), drawn.annotations


@pytest.mark.parametrize("learner", LEARNERS)
@pytest.mark.parametrize("guide", GUIDES)
def test_every_guide_with_three_kinds_of_learner(guide: str, learner: str) -> None:
    X, y = crowd()
    project = "none" if guide in WITHOUT_CLUSTERS else "soft"
    built = ds.GuidedClassifier(GUIDES[guide], LEARNERS[learner], project=project)
    fitted = clone(built).fit(X[:40], y[:40], dev=(X[40:50], y[40:50]))
    again = clone(built).fit(X[:40], y[:40], dev=(X[40:50], y[40:50]))
    predicted = fitted.label_distributions(X[50:])
    assert predicted.shape == (10, P)
    np.testing.assert_allclose(predicted.sum(axis=1), 1.0, rtol=1e-12)
    assert predicted.tobytes() == again.label_distributions(X[50:]).tobytes()
    assert set(fitted.predict(X[50:])) <= set(y.classes)
    assert np.isfinite(fitted.score(X[50:], y[50:]))
