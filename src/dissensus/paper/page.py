"""Everything on one page, and beside it the tables as CSV, the figures, and a list of all cells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dissensus._version import __version__
from dissensus.execution.progress import in_words
from dissensus.io.atomic import atomic_directory
from dissensus.io.results import write_csv
from dissensus.paper import stories
from dissensus.paper.answers import answers_text, contrasts
from dissensus.paper.cells import Store
from dissensus.paper.choice import chosen_table
from dissensus.paper.figures import scatter
from dissensus.paper.findings import Findings
from dissensus.paper.misses import misses, tally
from dissensus.paper.pages import line, table
from dissensus.paper.plan import Plan
from dissensus.paper.recovery_curve import recovery_curve
from dissensus.paper.tables import (
    MEASURES,
    Row,
    gold_table,
    hidden_table,
    recovery_table,
    table_1,
    table_2,
    table_3,
    times,
)


@dataclass
class Sheet:
    """A page under way: its sections, its rows for the CSV files, and its figures."""

    sections: list[str]
    tables: dict[str, list[Row]]
    figures: dict[str, str]

    def add(self, title: str, *paragraphs: str) -> None:
        """One more section."""
        self.sections.append("\n\n".join([f"## {title}", *filter(None, paragraphs)]))

    def add_table(self, name: str, title: str, story: str, text: str, rows: list[Row]) -> None:
        """A section that is a table, with its rows."""
        self.add(title, story, text)
        self.tables.setdefault(name, []).extend(rows)


def write_page(plan: Plan, store: Store, directory: Path, command: str) -> list[str]:
    """Write README.md, a CSV file for every table, the figures, and ``cells.jsonl``; gives their names."""
    findings = Findings(plan, store)
    sheet = Sheet([], {}, {})
    for fill in (_first_tables, _table_3, _answers, _further, _figures, _files):
        fill(findings, sheet)
    text = stories.HEAD.format(command=command, version=__version__, **_amounts(findings)) + "\n\n".join(
        sheet.sections
    )
    with atomic_directory(directory) as folder:
        (folder / "README.md").write_text(text + "\n", encoding="utf-8")
        for name, rows in sheet.tables.items():
            _write_rows(rows, folder / f"{name}.csv")
        for name, figure in sheet.figures.items():
            (folder / name).write_text(figure, encoding="utf-8")
        (folder / "cells.jsonl").write_text("".join(_cell_lines(findings)), encoding="utf-8")
        return sorted(file.name for file in folder.iterdir())


def _write_rows(rows: list[Row], path: Path) -> None:
    import pandas as pd

    write_csv(pd.DataFrame(rows), path)


def _cell_lines(findings: Findings) -> Iterator[str]:
    """Every cell's settings and numbers, one a line: what stands in its file, the arrays apart."""
    for cell in findings.plan.cells(findings.store):
        found = findings.measured(cell)
        content = {"file": found.path, "cell": found.identity, "numbers": found.numbers}
        yield json.dumps(content | {"cpu_seconds": found.cpu_seconds}, ensure_ascii=False) + "\n"


def _amounts(findings: Findings) -> dict[str, Any]:
    cells = findings.plan.cells(findings.store)
    seconds = sum(findings.measured(cell).cpu_seconds for cell in cells)
    scale = findings.plan.scale
    return {
        "cells": len(cells),
        "hours": in_words(seconds),
        "scale": scale.name,
        "repeats": scale.repeats,
        "own": scale.own_repeats,
    }


# ---- sections -----------------------------------------------------------------------------------------


def _first_tables(findings: Findings, sheet: Sheet) -> None:
    if findings.plan.asked("table1"):
        sheet.add_table("table1", "Table 1: the datasets", stories.TABLE_1, *table_1(findings))
    if findings.plan.asked("table2"):
        scale = findings.plan.scale
        grids = {
            "clusters": _span(scale.item_clusters),
            "annotators": _span(scale.annotator_clusters),
            "fmm": _span(scale.fmm_clusters),
            "seeds": scale.seeds,
        }
        sheet.add_table("table2", "Table 2: clusters", stories.TABLE_2.format(**grids), *table_2(findings))


def _span(values: tuple[int, ...]) -> str:
    whole = len(values) > 2 and values == tuple(range(values[0], values[-1] + 1))
    return f"{values[0]} to {values[-1]}" if whole else ", ".join(map(str, values))


def _table_3(findings: Findings, sheet: Sheet) -> None:
    if not findings.plan.asked("table3"):
        return
    scale = findings.plan.scale
    for number, (measure, title) in enumerate(MEASURES.items()):
        story = stories.TABLE_3.format(repeats=scale.repeats, own=scale.own_repeats) if number == 0 else ""
        sheet.add_table("table3", f"Table 3: {title}", story, *table_3(findings, measure))
    found = misses(findings)
    listed = "\n".join(f"- {miss}" for miss in found) or "None."
    sheet.add("Exceptions: worse than printed", stories.EXCEPTIONS, tally(findings), listed)
    sheet.add("The model that dev chooses", stories.CHOSEN, chosen_table(findings))
    sheet.add("Running times", stories.TIMES, times(findings))


def _answers(findings: Findings, sheet: Sheet) -> None:
    found = contrasts(findings)
    if found:
        sheet.add("Answers", stories.ANSWERS, answers_text(found))


def _further(findings: Findings, sheet: Sheet) -> None:
    plan = findings.plan
    if plan.asked("hidden"):
        story = stories.HIDDEN.format(splits=plan.scale.hidden_splits)
        sheet.add_table("hidden", "Hidden labels", story, *hidden_table(findings))
    if plan.asked("recover"):
        story = stories.RECOVER.format(draws=plan.scale.draws)
        sheet.add_table("recover", "The population from few labels", story, *recovery_table(findings))
    if plan.asked("gold"):
        sheet.add_table("gold", "Reference labels", stories.GOLD, *gold_table(findings))


def _figures(findings: Findings, sheet: Sheet) -> None:
    plan, store = findings.plan, findings.store
    for name in plan.asked("recover"):
        numbers = findings.measured(plan.recovery(name)).numbers
        sheet.figures[f"recovery-{name}.svg"] = recovery_curve(name, numbers)
    for cell in plan.stage(3, store):
        arrays, names = findings.arrays(cell), plan.datasets[cell.dataset].annotations.classes
        title = f"{cell.dataset}: LDL-NM's training items by t-SNE"
        picture = scatter(arrays["points"], arrays["classes"], list(map(str, names)), title)
        sheet.figures[f"tsne-{cell.dataset}.svg"] = picture
    if sheet.figures:
        shown = [f"![{name.removesuffix('.svg')}]({name})" for name in sorted(sheet.figures)]
        sheet.add("Figures", stories.FIGURES, *shown)


def _files(findings: Findings, sheet: Sheet) -> None:
    lines = [line(f"`{name}.csv`", "the table's numbers, each with its cells") for name in sheet.tables]
    lines.append(line("`cells.jsonl`", "every cell: settings, seeds, numbers, processor seconds"))
    sheet.add("Files", table(("file", "content"), lines), stories.FILES)
