"""The numbers of finished cells, read back from their files: tables and answers take them from here only.

Averages of predictions are made here too. An ensemble's members are the runs of a column; two columns are
blended with the weight that has the lowest KL on dev.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dissensus.errors import DataError
from dissensus.metrics import kl, kl_rows
from dissensus.numerics import Array
from reproduction.cells import Arrays, Cell, Measured
from reproduction.columns import COLUMNS
from reproduction.measures import ASKED, scores
from reproduction.plan import Plan


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
        kept_as = COLUMNS[self.key].kept_as or "runs"
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

    def measured(self, cell: Cell) -> Measured:
        """What a cell's file says."""
        found = self.plan.finished.read(cell)
        if found is None:
            raise DataError(f"{cell.path}: the cell is not finished; run the same command again")
        return found

    def column(self, name: str, key: str) -> ColumnRuns:
        """A column of Table 3 on a dataset."""
        return ColumnRuns(key, tuple(map(self.measured, self.plan.column(name, key))))

    def predictions(self, name: str, key: str, part: str) -> Array:
        """(runs, items, classes): what a column predicts."""
        cells = self.plan.column(name, key)
        own = COLUMNS[key].kept_as
        kept_as = f"{own}_{part}" if own else part
        return np.concatenate([self.arrays(cell)[kept_as] for cell in cells]).astype(np.float64)

    def arrays(self, cell: Cell) -> Arrays:
        """What stands beside a cell's file."""
        return self.plan.finished.arrays(cell.path)

    def gold(self, name: str, part: str) -> Array:
        """(items, classes): the distributions of the labels that the items got."""
        return self.plan.datasets[name].gold[part]

    def test_kl(self, name: str, key: str) -> Array:
        """(test items,): KL of every item under a column, the mean over its runs."""
        return np.asarray(self._kl_of_runs(name, key).mean(axis=0))

    def difference(self, name: str, first: str, second: str) -> Array:
        """(test items,): KL of every item under the first column minus that under the second.

        Runs of one kind have the same seeds, and those that both columns have are compared.
        """
        one, other = (self._kl_of_runs(name, key) for key in (first, second))
        if COLUMNS[first].kind == COLUMNS[second].kind:
            shared = min(len(one), len(other))
            one, other = one[:shared], other[:shared]
        return np.asarray(one.mean(axis=0) - other.mean(axis=0))

    def _kl_of_runs(self, name: str, key: str) -> Array:
        """(runs, test items)."""
        gold = self.gold(name, "test")
        return np.stack([kl_rows(gold, run) for run in self.predictions(name, key, "test")])

    def search_seconds(self, name: str, key: str) -> float:
        """Processor seconds of the search that a column builds on."""
        search = COLUMNS[COLUMNS[key].of or key].search
        return self.measured(self.plan.search(name, search)).cpu_seconds if search else 0.0


# ---- averages of predictions --------------------------------------------------------------------------

WEIGHTS = np.linspace(0.0, 1.0, 21)  # of the first of two that are blended

# Key in the tables -> title, and the columns whose predictions are averaged.
ENSEMBLES = {
    "ldlnm_default_ensemble": ("LDL-NM, defaults, seeds averaged", ("ldlnm_default",)),
    "blend": ("FineTunedEncoder and LDL-NM, blended", ("encoder", "ldlnm_default")),
}


@dataclass(frozen=True, eq=False)
class Ensemble:
    """One prediction out of many."""

    title: str
    dev: dict[str, float]
    test: dict[str, float]
    prediction: Array  # (test items, classes)
    files: tuple[str, ...]
    weight: float | None = None  # of the first of two


def blend_weight(gold: Array, first: Array, second: Array) -> float:
    """The weight of ``first`` at which the mixture has the lowest KL; of equals, the smallest."""
    reached = [kl(gold, weight * first + (1 - weight) * second) for weight in WEIGHTS]
    return float(WEIGHTS[int(np.argmin(reached))])


def ensembles(findings: Findings, name: str) -> dict[str, Ensemble]:
    """Every ensemble of a dataset."""
    return {key: _ensemble(findings, name, *one) for key, one in ENSEMBLES.items()}


def _ensemble(findings: Findings, name: str, title: str, columns: Sequence[str]) -> Ensemble:
    """The mean over a column's runs, or two such means blended."""
    means = [{part: findings.predictions(name, key, part).mean(axis=0) for part in ASKED} for key in columns]
    predicted, weight = means[0], None
    if len(means) == 2:
        first, second = means
        weight = blend_weight(findings.gold(name, "dev"), first["dev"], second["dev"])
        predicted = {part: weight * first[part] + (1 - weight) * second[part] for part in ASKED}
    dev, test = (scores(findings.gold(name, part), predicted[part]) for part in ASKED)
    files = tuple(file for key in columns for file in findings.column(name, key).files)
    return Ensemble(title, dev, test, predicted["test"], files, weight)


# ---- the population from few labels -------------------------------------------------------------------


def best_models(numbers: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Of every group and number of labels, the model with the lowest KL (in hindsight, as for counts)."""
    best: dict[tuple[int, str], Mapping[str, Any]] = {}
    for found in numbers["models"]:
        place = found["labels_shown"], found["name"]
        if place not in best or found["kl"] < best[place]["kl"]:
            best[place] = found
    return (best[place] for place in sorted(best))
