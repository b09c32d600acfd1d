"""Command line, stored measurements, limits, datasets and Markdown tables, shared by all measurements."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dissensus.evaluate.bootstrap import Interval
from dissensus.importers.read import read_annotations
from dissensus.labels.annotations import Annotations
from dissensus.tables.atomic import atomic_path

Values = dict[str, Any]
DATA_FOLDER = Path(os.environ.get("DISSENSUS_DATA", "../shared/data"))


def page_parser(module: str, title: str) -> argparse.ArgumentParser:
    """Return the options of every measurement; the page is named after the module."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=title)
    page = Path(f"docs/results/{module.rpartition('.')[2]}.md")
    parser.add_argument("--data", type=Path, default=DATA_FOLDER, help="folder of the datasets")
    parser.add_argument("-o", "--output", type=Path, default=page, help="page to write")
    parser.add_argument(
        "--finished", type=Path, help="file of finished measurements; a stopped run resumes from it"
    )
    return parser


@dataclass
class Measurements:
    """Finished measurements by key, one JSON line each; without a file they are kept in memory only."""

    path: Path | None
    values: dict[str, Values] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            lines = self.path.read_text(encoding="utf-8").splitlines()
            self.values = {entry["key"]: entry["values"] for entry in map(json.loads, lines)}

    def get(self, key: str, measure: Callable[..., Values], *arguments: Any) -> Values:
        """Return the values of a key; call ``measure(*arguments)`` if they are not stored yet."""
        if key not in self.values:
            start = time.process_time()
            values = measure(*arguments)
            self.values[key] = values | {"cpu_seconds": round(time.process_time() - start, 1)}
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps({"key": key, "values": self.values[key]}) + "\n")
        return self.values[key]


FIGURES_FILE = "DISSENSUS_FIGURES"  # environment variable: the file that collects figures and their limits


def check_limit(title: str, value: float, limit: float, *, at_least: bool = False) -> int:
    """Print a figure and its limit; return 0 if the limit is met and 1 if it is missed."""
    met = value >= limit if at_least else value <= limit
    bound = f"{'at least' if at_least else 'at most'} {limit:g}"
    print(f"{title}: {value:.2f} ({bound}: {'met' if met else 'MISSED'})", flush=True)
    if FIGURES_FILE in os.environ:
        figure = {"what": title, "value": float(value), "limit": bound, "kept": bool(met)}
        with Path(os.environ[FIGURES_FILE]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(figure) + "\n")
    return int(not met)


def write_page(page: Path, text: str) -> None:
    """Write a page atomically and print it."""
    with atomic_path(page) as temporary:
        temporary.write_text(text, encoding="utf-8")
    print(f"{text}\nwritten to {page}")


# ---- datasets -----------------------------------------------------------------------------------------


def read_dataset(folder: Path) -> Annotations:
    """Read the labels of a dataset folder, with its items and gold labels if it has them."""

    def first(stem: str) -> Path | None:
        paths = (folder / f"{stem}{suffix}" for suffix in (".csv", ".csv.gz"))
        return next((path for path in paths if path.exists()), None)

    labels = first("annotations") or folder / "annotations.csv"  # if missing, the reader reports this path
    return read_annotations(labels, items=first("items"), gold=first("gold"))


def dataset_names(data: Path, table: str = "annotations") -> list[str]:
    """List the dataset folders that contain a table."""
    return sorted(folder.name for folder in data.iterdir() if any(folder.glob(f"{table}.csv*")))


# ---- Markdown -----------------------------------------------------------------------------------------


def table(head: Sequence[str], lines: Sequence[str]) -> str:
    """Return a Markdown table from its column names and its lines."""
    return "\n".join([line(*head), line(*["---"] * len(head)), *lines])


def line(*cells: object) -> str:
    """Return one line of a Markdown table."""
    return "| " + " | ".join(map(str, cells)) + " |"


def yes(condition: bool) -> str:
    """Return "yes" or, to stand out, "NO"."""
    return "yes" if condition else "NO"


def with_interval(interval: Interval) -> str:
    """Format a difference and its interval."""
    return f"{interval.value:+.4f} ({interval.low:+.4f} to {interval.high:+.4f})"


def compared(difference: Interval) -> str:
    """Say whether the first of two models, where lower is better, is better, tied or worse."""
    return "worse" if difference.low > 0 else "better" if difference.high < 0 else "tied"
