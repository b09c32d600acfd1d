"""t-SNE keeps planted groups apart."""

from __future__ import annotations

import numpy as np
import pytest

from reproduction.tsne import project_2d

pytest.importorskip("openTSNE")


def groups(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    which = np.arange(n) % 3
    return rng.normal(size=(n, 10)) + 12 * np.eye(10)[which], which


def test_planted_groups_stay_apart():
    rows, which = groups()
    points = project_2d(rows, perplexity=10, n_iter=250)
    assert points.shape == (60, 2)
    # The nearest neighbour in the picture is of one's own group.
    gaps = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(gaps, np.inf)
    assert np.mean(which[gaps.argmin(axis=1)] == which) > 0.98
    np.testing.assert_array_equal(points, project_2d(rows, perplexity=10, n_iter=250))


def test_few_rows():
    assert project_2d(np.eye(3)).shape == (3, 2)
    assert project_2d(np.random.default_rng(0).normal(size=(6, 3)), n_iter=50).shape == (6, 2)
