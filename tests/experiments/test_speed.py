"""The table of benchmarks: every figure with its limit, the latest run only."""

import json
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchmarks import speed

ROOT = Path(__file__).resolve().parents[2]
PART = """
from experiments.runner import check_limit
check_limit("times faster", {value}, 2.0, at_least=True)
check_limit("seconds", 3.0, 2.0)
"""


def test_the_latest_figures_are_shown_with_their_limits(tmp_path: Path, monkeypatch: Any) -> None:
    package = tmp_path / "invented_parts"
    package.mkdir()
    (package / "broken.py").write_text("raise SystemExit(3)")
    monkeypatch.setattr(speed, "PACKAGE", package.name)
    paths = [str(tmp_path), str(ROOT), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # cached code of the first value would be used again
    monkeypatch.setattr(sys, "argv", ["speed", "timed", "broken", "--results", str(tmp_path)])
    for value in (3.0, 4.0):
        (package / "timed.py").write_text(PART.format(value=value))
        assert speed.main() == 1
    page = (tmp_path / "speed.md").read_text(encoding="utf-8")
    assert "| timed | times faster | 4.00 | at least 2 | met |" in page
    assert "| timed | seconds | 3.00 | at most 2 | **missed** |" in page
    assert "| broken | exit status | 3.00 | at most 0 | **missed** |" in page
    stored = (tmp_path / "speed.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["benchmark"] for line in stored] == ["broken", "timed", "timed"]


@pytest.mark.parametrize("name", sorted(path.stem for path in (ROOT / "benchmarks").glob("[!_]*.py")))
def test_every_benchmark_can_be_imported(name: str) -> None:
    import_module(f"benchmarks.{name}")
