"""The foundation's page of results: its measures by hand, and its bounds on the paper's data."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import dissensus as ds
from experiments import foundation
from experiments.foundation import LEAST_MARGIN, PAPER_SETS, SPLITS, PaperSet, held_out
from reproduction.measures import cluster_divergence
from sizes import usually


def test_the_divergence_of_one_cluster_by_hand() -> None:
    train = ds.Annotations.from_counts([[4, 0], [0, 4]])
    # One cluster: (4 + 1, 4 + 1)/10 with the default prior; each item is certain, so KL is log 2.
    smoothed = (1 + 1e-5) * math.log((1 + 1e-5) / (0.5 + 1e-5)) + 1e-5 * math.log(1e-5 / (0.5 + 1e-5))
    np.testing.assert_allclose(
        cluster_divergence(train, "fmm", {"n_item_clusters": 1}, seed=0), smoothed, rtol=1e-12
    )


@pytest.mark.slow
def test_hindsight_is_never_worse_than_foresight() -> None:
    result = held_out(ds.simulate(200, 40, 3, labels_per_item=8, seed=1).annotations, split=0)
    assert result.hindsight <= result.foresight
    assert result.margin == result.hindsight - result.fmm
    assert 0 < result.fmm < math.log(3) + 0.1


def write_dataset(folder: Path) -> None:
    known = ds.simulate(60, 15, 3, labels_per_item=6, seed=2).annotations
    rows = zip(
        known.items[known.item], known.annotators[known.annotator], known.classes[known.label], strict=True
    )
    folder.mkdir()
    (folder / "annotations.csv").write_text(
        "item,annotator,label\n" + "".join(f"{i},{a},{y}\n" for i, a, y in rows)
    )
    (folder / "items.csv").write_text("item,split\n" + "".join(f"{item},train\n" for item in known.items))


@pytest.mark.slow
def test_the_page_is_written_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_dataset(tmp_path / "toy")
    monkeypatch.setattr(foundation, "PAPER_SETS", (PaperSet("toy", 3, bound=0.0, printed=0.5),))
    monkeypatch.setattr(foundation, "SPLITS", range(2))
    foundation.main(["--data", str(tmp_path), "-o", str(tmp_path / "page.md")])
    text = (tmp_path / "page.md").read_text(encoding="utf-8")
    assert text in capsys.readouterr().out
    lines = [line for line in text.splitlines() if line.startswith("| toy |")]
    assert len(lines) == 2
    # A bound of 0 cannot be kept, and the page says so.
    assert lines[0].endswith("| 0.000 | 0.500 | NO |")


@pytest.mark.data
@pytest.mark.parametrize("paper", usually(PAPER_SETS[:1], verify=PAPER_SETS), ids=lambda paper: paper.name)
def test_the_bounds_are_kept(paper: PaperSet, data_dir: Path) -> None:
    folder = data_dir / paper.name
    annotations = ds.read_annotations(folder / "annotations.csv", items=folder / "items.csv")
    train = annotations.split_items()["train"]
    sizes = {"n_item_clusters": paper.n_item_clusters}
    assert np.mean([cluster_divergence(train, "fmm", sizes, seed) for seed in range(3)]) <= paper.bound
    margins = [held_out(annotations, split).margin for split in SPLITS[:2]]
    assert min(margins) >= LEAST_MARGIN
