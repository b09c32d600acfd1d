"""What the command line's tests share: a small crowd on disk, and a way to run a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from dissensus.cli import application

COMMANDS: dict[str, Any] = vars(typer.main.get_command(application()))["commands"]


def run(*words: Any, code: int = 0) -> Any:
    """Run a command in this process and insist on its exit code."""
    result = CliRunner().invoke(application(), [str(word) for word in words], prog_name="dissensus")
    assert result.exit_code == code, f"{result.stdout}\n{result.stderr}"
    return result


def failure(*words: Any, code: int = 2) -> str:
    """The one line that a failing command leaves on standard error; nothing may be on standard output."""
    result = run(*words, code=code)
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("dissensus: ")
    return lines[0].removeprefix("dissensus: ")


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes, hidden ones included."""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def write_votes(path: Path, rows: str) -> Path:
    """A file of labels: the header item,annotator,label and these rows."""
    path.write_text(f"item,annotator,label\n{rows}", encoding="utf-8")
    return path
