"""What the measurements share: a file of finished ones, and the command line that writes a page."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dissensus.tables.atomic import atomic_path

Values = dict[str, Any]


@dataclass
class Finished:
    """Finished measurements, one JSON line each; without a file they are only remembered."""

    path: Path | None
    done: dict[str, Values] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            lines = self.path.read_text(encoding="utf-8").splitlines()
            self.done = {entry["key"]: entry["values"] for entry in map(json.loads, lines)}

    def measured(self, key: str, measure: Callable[[], Values]) -> Values:
        """The values under a key, measured if nobody has."""
        if key not in self.done:
            began = time.process_time()
            values = measure()
            self.done[key] = values | {"cpu_seconds": round(time.process_time() - began, 1)}
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"key": key, "values": self.done[key]}) + "\n")
        return self.done[key]


def command_line(command: str, title: str, output: str, *, finished: bool = False) -> argparse.ArgumentParser:
    """The options that the measurements share; ``finished`` adds the file to go on from."""
    parser = argparse.ArgumentParser(prog=command, description=title)
    default = Path(os.environ.get("DISSENSUS_DATA", "../shared/data"))
    parser.add_argument("--data", type=Path, default=default, help="folder of the datasets")
    parser.add_argument("-o", "--output", type=Path, default=Path(output))
    if finished:
        parser.add_argument(
            "--finished", type=Path, help="file of finished measurements, to go on where a run was"
        )
    return parser


def write_files(page: Path, text: str, others: dict[Path, str] | None = None) -> None:
    """Write a page, and what belongs to it, each whole or not at all; print the page."""
    for file, content in ((others or {}) | {page: text}).items():
        with atomic_path(file) as temporary:
            temporary.write_text(content, encoding="utf-8")
    print(f"{text}\nwritten to {page}")


def write_page(
    command: str, title: str, page: Callable[[Path], str], output: str, arguments: Sequence[str] | None = None
) -> None:
    """Parse the command line, compute the page from the folder of the datasets, and write it."""
    options = command_line(command, title, output).parse_args(arguments)
    write_files(options.output, page(options.data))
