"""The tables about speed: one of all benchmarks, answers before and after."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import dissensus as ds
from experiments import same_answers

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def benchmark_run(monkeypatch: pytest.MonkeyPatch):
    """The module ``benchmarks/run.py``."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import run

    yield run
    for name in ("run", "timing"):
        sys.modules.pop(name, None)


# ---- one table of all benchmarks ----------------------------------------------------------------------

SCRIPT = """
from timing import verdict
verdict("times faster", 3.0, 2.0, at_least=True)
verdict("seconds", 3.0, 2.0)
"""


def test_every_figure_stands_beside_its_limit_and_all_runs_are_kept(
    benchmark_run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "timing.py").write_text((BENCHMARKS / "timing.py").read_text())
    (tmp_path / "bench_made_up.py").write_text(SCRIPT)
    (tmp_path / "bench_broken.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(benchmark_run, "HERE", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", "made_up", "broken", "--results", str(tmp_path)])
    for _ in range(2):
        assert benchmark_run.main() == 1
    printed = capsys.readouterr().out
    assert "| made_up | times faster | 3.00 | at least 2 | kept |" in printed
    assert "| made_up | seconds | 3.00 | at most 2 | **missed** |" in printed
    assert "| broken | the script failed | 3.00 | at most 0 | **missed** |" in printed
    assert len((tmp_path / "speed.jsonl").read_text().splitlines()) == 2
    latest, history = (tmp_path / "speed.md").read_text().split("## All runs")
    assert latest.count("| made_up | seconds |") == 1
    assert history.count("| made_up | seconds |") == 2


# ---- answers before and after -------------------------------------------------------------------------


def test_answers_before_and_after_are_compared_seed_by_seed() -> None:
    old = {"objective": [-1.0, -2.0], "held_out": [-1.0, -1.0]}
    new = {"objective": [-1.0, -1.0], "held_out": [-1.0, -1.002]}
    assert same_answers.gains({"old": old, "new": new}) == pytest.approx((0.5, -0.001))
    text = same_answers.page([("made up", "PGM", {"old": old, "new": new})])
    assert "the objective in 0 of 1 rows" in text
    assert "the held-out score in 1" in text


@pytest.mark.slow
def test_a_checkout_gives_the_same_answers_as_itself(tmp_path: Path) -> None:
    labels = ds.simulate(30, 8, 3, seed=3).annotations
    rows = zip(labels.item, labels.annotator, labels.label, strict=True)
    text = "\n".join(["item,annotator,label", *(f"i{m},a{n},c{y}" for m, n, y in rows)])
    (tmp_path / "labels.csv").write_text(text)
    here = Path(__file__).parents[1]
    found = same_answers.both(here, here, "ds.FMM(2, seed=seed)", tmp_path / "labels.csv")
    assert same_answers.gains(json.loads(json.dumps(found))) == (0.0, 0.0)
