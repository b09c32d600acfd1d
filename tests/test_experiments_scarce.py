"""The scarce-label experiment's parts: draws, slopes, differences, and the picture, on made-up crowds."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import dissensus as ds
from dissensus.evaluate.bootstrap import Interval
from experiments import scarce
from experiments.draws import Draw, covariance, drawn_to_mean, measure, slope
from experiments.scarce import Condition, findings, page, pictures
from reproduction.datasets import shares
from reproduction.figures import Axes, curves


def crowd(n_items: int, seed: int) -> tuple[ds.Annotations, Any]:
    """Ten labels per item; what people say follows from the features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_items, 3))
    lean = np.exp(2 * X)
    truth = np.array([rng.dirichlet(5 * row / row.sum()) for row in lean])
    item = np.repeat(np.arange(n_items), 10)
    annotator = np.concatenate([rng.choice(30, 10, replace=False) for _ in range(n_items)])
    label = [rng.choice(3, p=truth[m]) for m in item]
    known = ds.Annotations.from_arrays(item, annotator, label, classes=range(3))
    return ds.text.with_features(known, X), truth


PARTS = {name: crowd(120, seed)[0] for seed, name in enumerate(("train", "dev", "test"))}


def test_what_is_shown_and_what_is_hidden_make_up_the_labels() -> None:
    few, more = Draw.of(PARTS, 2, 0), Draw.of(PARTS, 3, 0)
    assert set(few.train.counts.sum(axis=1)) == set(few.dev.counts.sum(axis=1)) == {2}
    np.testing.assert_array_equal(few.train.counts + few.hidden.counts, PARTS["train"].counts)
    assert (more.train.counts >= few.train.counts).all()  # a draw's labels are among those of a larger R
    assert (Draw.of(PARTS, 2, 1).train.counts != few.train.counts).any()
    assert few.test is PARTS["test"]
    everything = Draw.of(PARTS, None, 0)
    assert not everything.hidden.n_labels
    np.testing.assert_array_equal(everything.train.counts, PARTS["train"].counts)


@pytest.mark.slow
def test_the_slope_of_targets_over_the_truth() -> None:
    known, truth = crowd(4000, 5)
    draw = Draw.of({"train": known, "dev": known, "test": known}, 2, 0)
    raw = shares(draw.train)
    assert slope(raw, draw) == 1.0
    mean = np.tile(raw.mean(axis=0), (len(raw), 1))
    assert slope(mean, draw) == pytest.approx(0.0, abs=1e-12)
    assert slope(drawn_to_mean(raw, 0.3), draw) == pytest.approx(0.3, rel=1e-9)
    # The truth itself has slope 1, whatever the noise of the labels; 4,000 items leave a few per cent.
    assert slope(truth, draw) == pytest.approx(1.0, abs=0.05)
    assert slope(0.5 * truth, draw) == pytest.approx(0.5, abs=0.03)


def test_covariance_by_hand() -> None:
    first, second = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[0.8, 0.2], [0.4, 0.6]])
    # deviations ±0.5 and ±0.2 in both classes of both items
    assert covariance(first, second) == pytest.approx(0.2, rel=1e-12)


@pytest.mark.slow
def test_a_draw_is_measured() -> None:
    values = measure(Draw.of(PARTS, 1, 0))
    means = {name: np.mean(rows) for name, rows in values["test"].items()}
    assert set(means) == {"raw", "FMM", "PGM", "guided", "pulled", "loose raw", "loose guided"}
    assert len(values["test"]["raw"]) == 120
    assert means["guided"] < means["FMM"]
    items = {name: np.mean(rows) for name, rows in values["items"].items()}
    assert items["guided"] < min(items["counts"], items["FMM"], items["PGM"])
    assert values["slope"]["raw"] == 1.0
    assert values["slope"]["FMM"] < 0.8
    assert "items" not in measure(Draw.of(PARTS, None, 0))


# ---- the page -------------------------------------------------------------------------------------------


def made_up(dataset: str, n_labels: int | None, guided: float) -> Condition:
    """Two draws of three items: FMM one nat above raw labels, the default as told."""
    base = np.array([[1.0, 2.0, 3.0], [1.5, 2.5, 3.5]])
    above = {"raw": 0.0, "FMM": 1.0, "PGM": 2.0, "pulled": 0.8, "guided": guided}
    above |= {"loose raw": 5.0, "loose guided": 0.5}
    items = {"counts": 3.0, "FMM": 2.0, "PGM": 2.5, "guided": 0.0}
    draws = [
        {
            "test": {name: list(row + more) for name, more in above.items()},
            "items": {name: list(row + more) for name, more in items.items()},
            "slope": {"raw": 1.0, "FMM": 0.2, "PGM": 0.1, "guided": 0.5},
            "reach": dict.fromkeys(above, 0.4),
            "concentration": 8.0,
        }
        for row in base
    ]
    return Condition(dataset, n_labels, draws)


CONDITIONS = [
    made_up(name, n_labels, 0.25 if (name, n_labels) == ("jq3", 2) else -0.25)
    for name in scarce.SETS
    for n_labels in scarce.SHOWN
]


def test_means_and_paired_differences() -> None:
    one = CONDITIONS[0]
    assert one.interval("test", "raw").value == 2.25
    assert one.interval("test", "FMM", "raw") == Interval(1.0, 1.0, 1.0)  # the same for every item
    assert one.mean("slope", "PGM") == pytest.approx(0.1, rel=1e-12)
    assert (one.mark, CONDITIONS[4].mark, CONDITIONS[4].where) == ("1", "all", "jq1 at R = all")


def test_the_findings_say_what_the_numbers_say() -> None:
    words = findings(CONDITIONS)
    assert "helps the learner in 0 of 20 cases, and hurts it in 20, by 1.000 to 2.000 nats" in words
    assert "keep 10% to 20% of the distance" in words
    assert "cost the learner 80% to 80% of what FMM's labels cost it" in words
    assert "not worse than raw labels in 5 of 6 cells with one to three labels" in words
    assert "worse in 1 (jq3 at R = 2)" in words
    # 1 − 2.25 / 4.25
    assert "in 6 of 6 cells with one to three labels, by 47% to 47%" in words


def test_the_page_and_its_pictures() -> None:
    text = page(CONDITIONS, "../images")
    row = next(line for line in text.splitlines() if line.startswith("| jq3 | 2 |"))
    assert row.endswith("| +0.2500 [+0.2500, +0.2500] | NO |")
    assert "![jq1: test](../images/scarce-jq1-test.svg)" in text
    drawn = pictures(CONDITIONS)
    assert set(drawn) == {f"scarce-{name}-{kind}.svg" for name in scarce.SETS for kind in ("test", "items")}
    for picture in drawn.values():
        ElementTree.fromstring(picture)


def test_a_picture_has_its_points_where_they_belong() -> None:
    series = {
        "first & best": {"1": Interval(1.0, 0.5, 1.5), "2": Interval(2.0, 1.5, 2.5)},
        "second": {"all": Interval(2.0, 1.0, 3.0)},
    }
    axes = Axes.of(series)
    assert list(axes.marks) == ["1", "2", "all"]
    assert (axes.low, axes.high) == (0.375, 3.125)  # 5 % of room on either side
    assert axes.ticks() == [0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    root = ElementTree.fromstring(curves(series, "Two <lines>", "labels", "KL"))
    circles = [node for node in root.iter() if node.tag.endswith("circle")]
    assert len(circles) == 3
    for circle, (mark, value, shift) in zip(
        circles, [("1", 1, -6), ("2", 2, -6), ("all", 2, 6)], strict=True
    ):
        assert float(circle.get("cx", "")) == pytest.approx(axes.x(mark) + shift, abs=0.06)
        assert float(circle.get("cy", "")) == pytest.approx(axes.y(value), abs=0.06)
    assert axes.y(axes.low) > axes.y(axes.high)  # larger values stand higher
    words = [node.text for node in root.iter() if node.tag.endswith("text")]
    assert "first & best" in words


@pytest.mark.slow
def test_the_command_writes_page_and_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scarce, "measured", lambda *_: CONDITIONS)
    output, images = tmp_path / "results" / "page.md", tmp_path / "images"
    for folder in (output.parent, images):
        folder.mkdir()
    scarce.main(["-o", str(output), "--images", str(images)])
    assert output.read_text(encoding="utf-8") == page(CONDITIONS, "../images")
    assert {file.name: file.read_text(encoding="utf-8") for file in images.iterdir()} == pictures(CONDITIONS)
