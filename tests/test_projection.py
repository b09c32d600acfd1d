"""t-SNE keeps planted groups apart, and the plot is one file that shows every row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError, ParameterError

pytest.importorskip("openTSNE")


def groups(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    which = np.arange(n) % 3
    return rng.normal(size=(n, 10)) + 12 * np.eye(10)[which], which


def test_planted_groups_stay_apart():
    rows, which = groups()
    points = ds.project_2d(rows, perplexity=10, n_iter=250)
    assert points.shape == (60, 2)
    # The nearest neighbour in the picture is of one's own group.
    gaps = np.linalg.norm(points[:, None] - points[None], axis=2)
    np.fill_diagonal(gaps, np.inf)
    assert np.mean(which[gaps.argmin(axis=1)] == which) > 0.98
    np.testing.assert_array_equal(points, ds.project_2d(rows, perplexity=10, n_iter=250))


def test_few_rows_and_bad_rows():
    assert ds.project_2d(np.eye(3)).shape == (3, 2)
    assert ds.project_2d(np.random.default_rng(0).normal(size=(6, 3)), n_iter=50).shape == (6, 2)
    with pytest.raises(DataError, match="row 1 of the embeddings has NaN"):
        ds.project_2d([[0.0, 1.0], [np.nan, 0.0]])
    with pytest.raises(DataError, match=r"got shape \(3,\)"):
        ds.project_2d([1.0, 2.0, 3.0])
    with pytest.raises(ParameterError, match="perplexity"):
        ds.project_2d(np.eye(9), perplexity=0)


def test_a_plot_shows_every_row_under_its_colour(tmp_path: Path):
    rows, which = groups()
    names = np.array(["hired", "fired", "quit"])[which]
    figure = ds.plot_2d(rows[:, :2], names, path=tmp_path / "p.html", title="jobs", hover=names)
    assert {trace.name: len(trace.x) for trace in figure.data} == {"fired": 20, "hired": 20, "quit": 20}
    page = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert "fired" in page
    assert "<script src=" not in page  # nothing is fetched
    scale = ds.plot_2d(rows[:, :2], np.linspace(0, 1, 60))
    assert len(scale.data) == 1
    np.testing.assert_array_equal(scale.data[0].marker.color, np.linspace(0, 1, 60))
    assert len(ds.plot_2d(rows[:, :2]).data[0].x) == 60
    with pytest.raises(DataError, match="colour has 3 values for 60 points"):
        ds.plot_2d(rows[:, :2], [1, 2, 3])
    with pytest.raises(DataError, match="project them with project_2d"):
        ds.plot_2d(rows)
