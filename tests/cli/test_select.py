"""``dissensus select``: the winner of a grid, and searches that were stopped."""

import json
from pathlib import Path

import pytest

from tests.helpers.cli import read_csv, run


@pytest.mark.slow
def test_best_cell_of_the_grid_is_fitted(crowd: Path) -> None:
    words = ["select", crowd / "annotations.csv", "-k", "2:3", "-l", "1,2", "--repeats", 2, "--no-report"]
    summary = json.loads(run(*words, "-o", "search", "--json").stdout)
    cells = read_csv(Path("search/cells.csv"))
    sizes = [(int(row["n_item_clusters"]), int(row["n_annotator_clusters"])) for row in cells]
    assert sorted(sizes) == [(2, 1), (2, 2), (3, 1), (3, 2)]
    scores = [float(row["score"]) for row in cells]
    assert scores == sorted(scores, reverse=True)
    winner = summary["search"]["winner"]
    assert (winner["n_item_clusters"], winner["n_annotator_clusters"]) == sizes[0]
    assert {name: summary["settings"][name] for name in winner} == winner
    assert set(summary["search"]["gains"]) == {"FMM", "counts"}
    assert Path("search/labels.csv").is_file()
