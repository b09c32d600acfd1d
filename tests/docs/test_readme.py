"""The examples of the README print the output that it shows, and its links are valid."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.cli import run

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(after: str, language: str) -> str:
    """Return the first fenced block of a language after a text."""
    match = re.search(rf"```{language}\n(.*?)```", README[README.index(after) :], re.DOTALL)
    assert match, f"the README has no {language} block after {after!r}"
    return match.group(1)


@pytest.mark.slow
def test_python_example_prints_the_output_shown(tmp_path: Path) -> None:
    command = [sys.executable, "-c", block("## Python", "python")]
    printed = subprocess.check_output(command, text=True, cwd=tmp_path)
    assert printed.strip() == block("\nprints\n", "text").strip()


@pytest.mark.slow
def test_demo_prints_the_output_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    printed = "\n".join(line.rstrip() for line in run("demo", "-o", "demo-output").stdout.splitlines())
    assert printed.strip() == block("`make demo` sets up", "text").strip()
    summary = json.loads(Path("demo-output/summary.json").read_text())
    distance = {row["model"]: row["KL to the population"] for row in summary["compared"]}
    assert min(distance.values()) < distance["empirical"] < distance["raw counts"]
    assert Path("demo-output/refined/labels.csv").is_file()
    assert Path("demo-output/crowd/population.csv").is_file()


def rows_of(page: str) -> list[list[str]]:
    """Return the cells of all table rows on a page of results."""
    lines = (ROOT / "docs" / "results" / page).read_text(encoding="utf-8").splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]


def test_its_three_numbers_are_those_of_the_results() -> None:
    peers = rows_of("peers.md")
    head = next(row for row in peers if "**default**" in row)
    mean = dict(zip(head, next(row for row in peers if row[0] == "**mean**"), strict=True))
    assert f"**{float(mean['**default**']):.1%} accuracy.**".replace("%", " %") in README
    peer = f"Dawid–Skene finds it for {float(mean['crowd-kit Dawid–Skene']):.1%} ("
    assert peer.replace("%", " %") in README
    few = [row for row in rows_of("default.md") if len(row) == 9 and row[1] == "4"]
    default, counts = (sum(float(row[column]) for row in few) for column in (2, 5))
    assert len(few) == 9
    assert f"**{1 - default / counts:.0%} lower KL".replace("%", " %") in README
    speed = {(row[0], row[1]): row[2] for row in rows_of("speed.md")}
    faster = float(speed["dawid_skene", "times faster per iteration, on two cores"])
    assert f"**{faster:.0f} times faster.**" in README
    assert float(speed["dawid_skene", "memory over crowd-kit's"]) < 1 / 3


@pytest.mark.parametrize("target", re.findall(r"\]\((?!http)([^)#]+)", README))
def test_links_are_valid(target: str) -> None:
    assert (ROOT / target).exists()
