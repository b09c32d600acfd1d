"""Where a command writes, and how it says so: shared by every command with an output directory."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from dissensus.cli.terminal import say


@dataclass(frozen=True, kw_only=True)
class Output:
    """An output directory and what may be replaced there."""

    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Directory to write (a name is made if left out)."
        ),
    ] = None
    force: Annotated[
        bool, typer.Option("--force", help="Write into a directory that dissensus did not make.")
    ] = False

    def directory(self, default: str) -> Path:
        """The place to write, checked before any work is done."""
        from dissensus.io.results import check_output

        place = self.output or Path(default)
        check_output(place, self.force)
        return place


Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON, for machines.")]


def command_line(context: typer.Context) -> str:
    """The command that is running, as it could be typed again."""
    return shlex.join(["dissensus", *(context.obj or [])])


def stem(file: Path, question: str | None = None) -> str:
    """The file's name without its suffix, and the question asked of it: ``votes`` of ``votes.csv.gz``."""
    name = Path(file.resolve().name.removesuffix(".gz")).stem
    return name if question is None else "-".join([name, *re.findall(r"[\w.]+", question)])


def say_written(directory: Path, files: list[str]) -> None:
    """Which files are where."""
    say(f"Wrote {directory}/: {', '.join(files)}")
