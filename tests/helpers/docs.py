"""Run the pages of docs/: Python blocks, commands, and the output that the pages show."""

import contextlib
import io
import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.helpers.cli import run

DOCS = Path(__file__).resolve().parents[2] / "docs"
_BLOCK = re.compile(r"^```(python|console|text)\n(.*?)^```", re.M | re.S)
_DECIMAL = re.compile(r"-?\d+\.\d+")


def run_page(
    page: Path,
    variables: Mapping[str, Any] = {},
    replacements: Mapping[str, str] = {},
    *,
    console: bool = True,
) -> int:
    """Run the blocks of a page in order, and return their number.

    A text block must equal the output of the Python block before it. ``variables`` are defined before the
    first block; ``replacements`` are made in each block before it runs.
    """
    names: dict[str, Any] = {"__name__": "__main__", **variables}
    output = io.StringIO()
    n_blocks = 0
    for language, content in _BLOCK.findall(page.read_text(encoding="utf-8")):
        for old, new in replacements.items():
            content = content.replace(old, new)
        if language == "text":
            expected, printed = lines_of(content), lines_of(output.getvalue())
            assert len(expected) == len(printed), f"{page.name} prints {printed}"
            assert all(map(alike, expected, printed)), f"{page.name} prints {printed}"
        elif language == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(content, str(page), "exec"), names)
            n_blocks += 1
        elif console:
            run_console(content)
            n_blocks += 1
    return n_blocks


def run_console(content: str) -> None:
    """Run the lines that begin with ``$``; other lines must be in the output of the last command."""
    printed: list[str] = []
    for line in content.splitlines():
        if line.startswith("$ dissensus "):
            printed = lines_of(run(*shlex.split(line, comments=True)[2:]).stdout)
        elif line.strip():
            assert any(alike(line.rstrip(), other) for other in printed), f"{line!r} is not in {printed}"


def alike(expected: str, printed: str) -> bool:
    """Compare two lines; decimal numbers may differ by 3 in the last digit, or by 5 %.

    The draws of a sampled model depend on the processor, because processors sum in different orders.
    """
    if _DECIMAL.sub("#", expected) != _DECIMAL.sub("#", printed):
        return False
    pairs = zip(_DECIMAL.findall(expected), _DECIMAL.findall(printed), strict=True)
    return all(
        abs(float(a) - float(b)) <= max(3.5 * 10.0 ** -len(a.partition(".")[2]), 0.05 * abs(float(a)))
        for a, b in pairs
    )


def lines_of(text: str) -> list[str]:
    """Return the lines without trailing white space, and without blank lines at both ends."""
    return [line.rstrip() for line in text.strip("\n").splitlines()]
