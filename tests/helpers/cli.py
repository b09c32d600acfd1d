"""Helpers for tests of the command line: run commands in this process, write small files of labels."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import typer
from typer.testing import CliRunner

import dissensus as ds
from dissensus.cli import application
from dissensus.cli.demo import write_crowd

COMMANDS: dict[str, Any] = vars(typer.main.get_command(application()))["commands"]


def run(*words: Any, code: int = 0) -> Any:
    """Run a command in this process and check its exit code."""
    result = CliRunner().invoke(application(), [str(word) for word in words], prog_name="dissensus")
    assert result.exit_code == code, f"{result.stdout}\n{result.stderr}"
    return result


def failure(*words: Any, code: int = 2) -> str:
    """Return the only line that a failing command prints, on standard error."""
    result = run(*words, code=code)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("dissensus: ")
    return lines[0].removeprefix("dissensus: ")


def tree(folder: Path) -> dict[str, bytes]:
    """Return the bytes of every file below a folder, hidden ones included."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in files}


def write_votes(path: Path, rows: str) -> Path:
    """Write a file of labels with the header item,annotator,label."""
    path.write_text(f"item,annotator,label\n{rows}", encoding="utf-8")
    return path


def random_votes(path: Path = Path("votes.csv"), n_items: int = 24, seed: int = 0) -> Path:
    """Write labels of three classes by five annotators, most of whom agree."""
    rng = np.random.default_rng(seed)
    cells = [(m, n, "xyz"[(m + (rng.random() < 0.3)) % 3]) for m in range(n_items) for n in range(5)]
    return write_votes(path, "".join(f"i{m},a{n},{label}\n" for m, n, label in cells))


def write_simulation(directory: Path, *sizes: int, **settings: Any) -> Path:
    """Write simulated labels and the population's answers to a new directory, and return its path."""
    drawn = ds.simulate(*sizes, **settings)
    directory.mkdir()
    clusters = {"cluster": drawn.annotator_cluster}
    write_crowd(directory, drawn.annotations, drawn.population, {}, annotators=clusters)
    return directory


def read_csv(path: Path) -> list[dict[str, str]]:
    """Read a table as one dict per row."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
