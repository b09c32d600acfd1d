"""Runs the pages of docs/: their Python, their commands, and what they say that is printed."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cli_help import run

DOCS = Path(__file__).resolve().parents[1] / "docs"
_BLOCK = re.compile(r"^```(python|console|text)\n(.*?)^```", re.M | re.S)
_DECIMAL = re.compile(r"-?\d+\.\d+")


def blocks(page: Path) -> list[tuple[str, str]]:
    """The page's fenced blocks in order, as (language, content)."""
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


def run_page(
    page: Path, known: Mapping[str, Any] = {}, instead: Mapping[str, str] = {}, *, console: bool = True
) -> int:
    """Run every block in order; a text block is what the Python block before it prints. How many ran.

    ``known`` are names that the page takes for granted; ``instead`` are words that are replaced before a
    block is run, so that an address exists or a search is short.
    """
    names: dict[str, Any] = {"__name__": "__main__", **known}
    printed = io.StringIO()
    ran = 0
    for language, content in blocks(page):
        for words, others in instead.items():
            content = content.replace(words, others)
        if language == "console" and not console:
            continue
        if language == "text":
            said, shown = lines_of(content), lines_of(printed.getvalue())
            assert len(said) == len(shown), f"{page.name} prints {shown}"
            assert all(map(alike, said, shown)), f"{page.name} prints {shown}"
            continue
        ran += 1
        printed = io.StringIO()
        if language == "python":
            with contextlib.redirect_stdout(printed):
                exec(compile(content, str(page), "exec"), names)
        else:
            run_console(content)
    return ran


def run_console(content: str) -> None:
    """Run the lines that begin with ``$``; each other line must be among what the last of them printed."""
    shown: list[str] = []
    for line in content.splitlines():
        if line.startswith("$ dissensus "):
            shown = lines_of(run(*shlex.split(line)[2:]).stdout)
        elif line.strip():
            assert any(alike(line.rstrip(), other) for other in shown), f"{line!r} is not among {shown}"


def alike(said: str, shown: str) -> bool:
    """The same words and whole numbers; a decimal number within 3 of its last digit, or 5 %.

    Processors add in different orders, so that the draws of a sampled model are not the same on all.
    """
    if _DECIMAL.sub("#", said) != _DECIMAL.sub("#", shown):
        return False
    pairs = zip(_DECIMAL.findall(said), _DECIMAL.findall(shown), strict=True)
    return all(
        abs(float(a) - float(b)) <= max(3.5 * 10.0 ** -len(a.partition(".")[2]), 0.05 * abs(float(a)))
        for a, b in pairs
    )


def lines_of(text: str) -> list[str]:
    """Lines without white space at their ends, nor blank lines around them."""
    return [line.rstrip() for line in text.strip("\n").splitlines()]
