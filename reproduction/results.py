"""The numbers of all cells, read from ``cells.jsonl``: the tables take them from here only."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.errors import DataError
from reproduction.cells import Numbers
from reproduction.columns import COLUMNS
from reproduction.derived import DERIVED


@dataclass(frozen=True)
class RunValues:
    """The values of a number in all runs."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Mean over the runs."""
        return float(np.mean(self.values))

    @property
    def error(self) -> float:
        """Standard error of the mean; NaN for a single run."""
        n = len(self.values)
        return float(np.std(self.values, ddof=1)) / math.sqrt(n) if n > 1 else math.nan

    def __str__(self) -> str:
        error = "" if math.isnan(self.error) else f" ± {self.error:.3f}"
        return f"**{self.mean:.3f}**{error}"


@dataclass(frozen=True)
class Results:
    """All records of a finished evaluation, by file."""

    records: Mapping[str, Mapping[str, Any]]

    @classmethod
    def read(cls, folder: Path) -> Results:
        """Read the records of a folder."""
        path = folder / "cells.jsonl"
        if not path.is_file():
            raise DataError(f"{path}: no such file; run the evaluation first")
        lines = path.read_text(encoding="utf-8").splitlines()
        return cls({record["file"]: record for record in map(json.loads, lines)})

    @property
    def derived(self) -> Numbers:
        """Numbers that were computed from the predictions of several cells."""
        return dict(self.records[DERIVED]["numbers"])

    @property
    def scale(self) -> Numbers:
        """Settings of the size of the evaluation."""
        return dict(self.derived["scale"])

    def datasets_with(self, part: str) -> list[str]:
        """Return the datasets for which a part was requested."""
        return [name for name, parts in self.derived["parts"].items() if part in parts]

    def repeats(self, dataset: str, name: str) -> Iterator[Mapping[str, Any]]:
        """Yield the records of a cell's repeats."""
        repeat = 0
        while (file := f"cells/{dataset}/{name}-{repeat}.json") in self.records:
            yield self.records[file]
            repeat += 1

    def numbers(self, dataset: str, name: str) -> Numbers:
        """Return the numbers of a cell with one repeat."""
        return dict(next(self.repeats(dataset, name))["numbers"])

    def has(self, dataset: str, name: str) -> bool:
        """Check whether a cell was measured."""
        return f"cells/{dataset}/{name}-0.json" in self.records

    def clusters(self, dataset: str, name: str) -> RunValues | None:
        """Return the KL of Table 2 over seeds; None if it was not measured."""
        return RunValues(tuple(self.numbers(dataset, name)["kl"])) if self.has(dataset, name) else None

    def runs(self, dataset: str, name: str, variant: str = "runs") -> list[Numbers]:
        """Return the scores of all runs of a cell; empty if there are none."""
        records = self.repeats(dataset, name)
        return [run for record in records for run in record["numbers"].get(variant, ())]

    def column(self, dataset: str, key: str, measure: str, part: str = "test") -> RunValues:
        """Return a measure of a column of Table 3 over its runs."""
        column = COLUMNS[key]
        runs = self.runs(dataset, column.source or key, column.variant or "runs")
        return RunValues(tuple(run[part][measure] for run in runs))

    def column_seconds(self, dataset: str, key: str) -> float:
        """Return the processor seconds of a column: its search and one training with its evaluation."""
        column = COLUMNS[key]
        seconds = float(np.mean([r["cpu_seconds"] for r in self.repeats(dataset, column.source or key)]))
        search = COLUMNS[column.source or key].search
        if search:
            seconds += next(self.repeats(dataset, f"{search}-search"))["cpu_seconds"]
        return seconds
