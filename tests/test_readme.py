"""The README tells the truth: its example runs, prints what it says, and its links lead somewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli_help import run

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(after: str, language: str) -> str:
    """The first fenced block of a language after some words."""
    found = re.search(rf"```{language}\n(.*?)```", README[README.index(after) :], re.DOTALL)
    assert found, f"the README has no {language} block after {after!r}"
    return found.group(1)


@pytest.mark.slow
def test_the_python_example_prints_what_the_readme_says(tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, "-c", block("## Ten lines of Python", "python")],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert finished.stdout.strip() == block("\nprints\n", "text").strip()


@pytest.mark.slow
def test_the_demo_prints_what_the_readme_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = "\n".join(line.rstrip() for line in run("demo", "-o", "demo-output").stdout.splitlines())
    assert printed.strip() == block("`make demo` sets up", "text").strip()
    # Refining helps, and what is said to be there is there.
    found = json.loads(Path("demo-output/summary.json").read_text())
    distance = {row["model"]: row["KL to the truth"] for row in found["contenders"]}
    assert min(distance.values()) < distance["empirical"] < distance["raw counts"]
    assert Path("demo-output/refined/labels.csv").is_file()
    assert Path("demo-output/crowd/population.csv").is_file()


@pytest.mark.parametrize("target", re.findall(r"\]\((?!http)([^)#]+)", README))
def test_links_lead_somewhere(target: str) -> None:
    assert (ROOT / target).exists()
