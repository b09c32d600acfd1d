"""Cells of Table 3 that fall short of the printed figure: named, and explained by numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dissensus.evaluation.intervals import bootstrap_mean
from dissensus.paper import printed
from dissensus.paper.answers import test_rows
from dissensus.paper.columns import COLUMNS, INSIDE, PAPER_COLUMNS
from dissensus.paper.findings import ColumnRuns, Findings
from dissensus.paper.tables import kept, paper_figure

NEAR = 0.01  # a printed figure this close to the constant prediction's is called equal to it


@dataclass(frozen=True)
class Miss:
    """A cell worse than printed."""

    column: str
    dataset: str
    measure: str
    ours: float
    figure: printed.Figure
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        title = PAPER_COLUMNS[self.column].title
        words = {"kl": "KL", "accuracy": "accuracy", "onehot_accuracy": "one-hot accuracy"}[self.measure]
        compared = f"{self.ours:.3f}, printed {self.figure.value:.3f}"
        return f"**{title} on {self.dataset}, {words}**: {compared}. {' '.join(self.reasons)}"


def misses(findings: Findings) -> list[Miss]:
    """Every cell of the paper's columns that is worse than printed."""
    return list(_misses(findings))


def tally(findings: Findings) -> str:
    """How many cells are at least as good as printed, under the printed projection and under the other."""
    as_printed, otherwise, total = 0, 0, 0
    for key in PAPER_COLUMNS:
        for name in findings.plan.asked("table3"):
            for measure in ("kl", printed.accuracy_measure(key)):
                figure = paper_figure(measure, key, name)
                if figure is not None:
                    other = f"{key}_{INSIDE}" if f"{key}_{INSIDE}" in COLUMNS else key
                    ours, theirs = (findings.column(name, one).number(measure).mean for one in (key, other))
                    total += 1
                    as_printed += kept(measure, ours, figure)
                    otherwise += kept(measure, theirs, figure)
    return (
        f"{as_printed} of {total} cells (KL and accuracy) are at least as good as printed; "
        f"{otherwise} where FMM and PGM project with the annotator sum inside and S chosen on dev."
    )


def _misses(findings: Findings) -> Iterator[Miss]:
    for key in PAPER_COLUMNS:
        for name in findings.plan.asked("table3"):
            column = findings.column(name, key)
            for measure in ("kl", printed.accuracy_measure(key)):
                figure, ours = paper_figure(measure, key, name), column.number(measure).mean
                if figure is not None and not kept(measure, ours, figure):
                    reasons = tuple(_reasons(findings, name, column, measure, figure))
                    yield Miss(key, name, measure, ours, figure, reasons)


def _reasons(
    findings: Findings, name: str, column: ColumnRuns, measure: str, figure: printed.Figure
) -> Iterator[str]:
    if measure == "kl":
        found = bootstrap_mean(test_rows(findings, name, column.key), n_boot=findings.plan.scale.n_boot)
        inside = "inside" if found.low <= figure.value <= found.high else "outside"
        ends = f"{found.low:.3f} to {found.high:.3f}"
        yield f"The printed figure is {inside} the interval over test items ({ends})."
    raw = column.before_projection(measure)
    if raw is not None:
        yield (
            f"The CNN alone, before its predictions were snapped to clusters, is at {raw:.3f}: "
            f"snapping moves it by {column.number(measure).mean - raw:+.3f}."
        )
        yield _clusters_used(column)
        other = findings.column(name, f"{column.key}_{INSIDE}").number(measure).mean
        yield (
            f"With the annotator sum inside and S chosen on dev, the same networks reach {other:.3f}, "
            f"{'at least as good as' if kept(measure, other, figure) else 'also worse than'} printed."
        )
    constant: Mapping[str, Any] = findings.measured(findings.plan.description(name)).numbers["constant"]
    equal = abs(constant[measure] - figure.value) <= NEAR
    yield (
        f"The mean training distribution, predicted for every item, scores {constant[measure]:.3f}"
        f"{': the printed figure is that of a constant' if equal else ''}."
    )


def _clusters_used(column: ColumnRuns) -> str:
    used = [cell.numbers["clusters_used"] for cell in column.cells]
    return f"The test items fall on {min(used)} to {max(used)} different distributions."
