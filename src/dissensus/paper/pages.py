"""What the pages of results share: reading datasets, a journal, tables in Markdown, the command line."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dissensus.data.annotations import Annotations
from dissensus.io import read_annotations
from dissensus.io.atomic import atomic_path

Values = dict[str, Any]


def read_dataset(folder: Path) -> Annotations:
    """A dataset folder: its annotations, with items and gold where it has them."""
    return read_annotations(
        _first(folder, "annotations"), items=_first(folder, "items"), gold=_first(folder, "gold")
    )


def _first(folder: Path, stem: str) -> Path | None:
    found = [folder / f"{stem}{ending}" for ending in (".csv", ".csv.gz")]
    return next((path for path in found if path.exists()), None)


@dataclass
class Journal:
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


def table(head: Sequence[str], lines: Sequence[str]) -> str:
    """A Markdown table out of its head and its ready-made lines."""
    return "\n".join([line(*head), line(*["---"] * len(head)), *lines])


def line(*cells: object) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(map(str, cells)) + " |"


def yes(holds: bool) -> str:
    """What a table says of a bound."""
    return "yes" if holds else "NO"


def write_page(
    command: str,
    title: str,
    page: Callable[[Path], str],
    output: str,
    arguments: Sequence[str] | None = None,
) -> None:
    """Parse the command line, compute the page, and write it whole or not at all."""
    parser = argparse.ArgumentParser(prog=command, description=title)
    default = os.environ.get("DISSENSUS_DATA", "../shared/data")
    parser.add_argument("--data", type=Path, default=Path(default), help="folder of the datasets")
    parser.add_argument("-o", "--output", type=Path, default=Path(output))
    options = parser.parse_args(arguments)
    text = page(options.data)
    with atomic_path(options.output) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"{text}\nwritten to {options.output}")
