"""docs/tutorial.md, executed: its commands and its Python, in order, in an empty directory."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from cli_help import run

PAGE = Path(__file__).resolve().parents[1] / "docs" / "tutorial.md"


def blocks() -> list[tuple[str, str]]:
    """The page's fenced blocks in order, as (language, content)."""
    return re.findall(r"^```(python|console)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)


@pytest.mark.slow
def test_the_tutorial_runs_and_shows_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for language, content in blocks():
        if language == "python":
            exec(compile(content, str(PAGE), "exec"), names)
            continue
        shown: list[str] = []
        for line in content.splitlines():
            if line.startswith("$ "):
                shown = run(*shlex.split(line)[2:]).stdout.splitlines()
            else:
                assert line in shown
