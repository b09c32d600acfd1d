"""The numbers of finished cells, read back from their files: tables and answers take them from here only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dissensus.errors import DataError
from dissensus.paper.cells import Arrays, Cell, Measured, Store
from dissensus.paper.columns import COLUMNS, INSIDE
from dissensus.paper.datasets import Array
from dissensus.paper.ensembles import Ensemble, ensembles_of
from dissensus.paper.plan import Plan


@dataclass(frozen=True)
class Number:
    """A mean over runs, its standard error, and the files that hold the runs."""

    values: tuple[float, ...]
    files: tuple[str, ...]

    @property
    def mean(self) -> float:
        """Over the runs."""
        return float(np.mean(self.values))

    @property
    def deviation(self) -> float:
        """Standard deviation of the runs; NaN for one."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else float("nan")

    @property
    def error(self) -> float:
        """Standard error of the mean."""
        return self.deviation / math.sqrt(len(self.values))


@dataclass(frozen=True)
class ColumnRuns:
    """All runs of one column on one dataset."""

    key: str
    cells: tuple[Measured, ...]

    @property
    def files(self) -> tuple[str, ...]:
        """Where the runs are."""
        return tuple(cell.path for cell in self.cells)

    @cached_property
    def runs(self) -> list[Mapping[str, Any]]:
        """Scores of every run."""
        kept_as = "runs" if COLUMNS[self.key].of is None else INSIDE
        return [run for cell in self.cells for run in cell.numbers[kept_as]]

    def number(self, measure: str, part: str = "test") -> Number:
        """A measure's mean over the runs."""
        return Number(tuple(run[part][measure] for run in self.runs), self.files)

    def before_projection(self, measure: str) -> float | None:
        """The learner's own mean, where predictions were snapped to clusters afterwards."""
        runs = [run for cell in self.cells for run in cell.numbers.get("unprojected", ())]
        return float(np.mean([run["test"][measure] for run in runs])) if runs else None

    @property
    def seconds_a_run(self) -> float:
        """Processor seconds of one cell."""
        return float(np.mean([cell.cpu_seconds for cell in self.cells]))


@dataclass(frozen=True)
class Findings:
    """A finished evaluation."""

    plan: Plan
    store: Store

    def measured(self, cell: Cell) -> Measured:
        """What a cell's file says."""
        found = self.store.read(cell)
        if found is None:
            raise DataError(f"{cell.path}: the cell is not finished; run the same command again")
        return found

    def column(self, name: str, key: str) -> ColumnRuns:
        """A column of Table 3 on a dataset."""
        return ColumnRuns(key, tuple(map(self.measured, self.plan.column(name, key, self.store))))

    def predictions(self, name: str, key: str, part: str) -> Array:
        """(runs, items, classes): what a column predicts."""
        cells = self.plan.column(name, key, self.store)
        kept_as = part if COLUMNS[key].of is None else f"{INSIDE}_{part}"
        return np.concatenate([self.arrays(cell)[kept_as] for cell in cells]).astype(np.float64)

    def arrays(self, cell: Cell) -> Arrays:
        """What stands beside a cell's file."""
        return self.store.arrays(cell)

    def gold(self, name: str, part: str) -> Array:
        """(items, classes): the distributions of the labels that the items got."""
        return self.plan.datasets[name].gold[part]

    def ensembles(self, name: str) -> dict[str, Ensemble]:
        """Averages of columns' predictions."""
        return _ensembles(self, name)

    def search_seconds(self, name: str, key: str) -> float:
        """Processor seconds of the search that a column builds on."""
        search = COLUMNS[COLUMNS[key].of or key].search
        return self.measured(self.plan.search(name, search)).cpu_seconds if search else 0.0

    def chosen(self, name: str, key: str) -> dict[str, Any]:
        """What a search chose."""
        return self.plan.chosen(name, key, self.store)


def _ensembles(findings: Findings, name: str) -> dict[str, Ensemble]:
    def predicted(key: str, part: str) -> Array:
        return findings.predictions(name, key, part)

    def files(keys: Sequence[str]) -> tuple[str, ...]:
        return tuple(file for key in keys for file in findings.column(name, key).files)

    return ensembles_of(predicted, files, findings.gold(name, "dev"), findings.gold(name, "test"))
