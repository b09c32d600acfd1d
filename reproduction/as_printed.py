"""The paper's columns once more, as it prints them: what is each departure from it worth?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from reproduction import printed
from reproduction.cells import Cell
from reproduction.columns import COLUMNS, DEPARTURES, EVERYTHING, GUIDES, Departure, with_all
from reproduction.findings import Findings, Number
from reproduction.tables import Row, csv_row, line, mean_and_error, table

HEAD = ("model", "as in the paper")
NOTHING = "nothing of the below"


def printed_table(findings: Findings) -> tuple[str, list[Row]]:
    """KL on test of every column: ours, with each departure undone, with all undone, and the paper's."""
    plan, lines, rows = findings.plan, list[str](), list[Row]()
    names = plan.asked("table3")
    for key in DEPARTURES:
        undone = max((plan.departures(name, key) for name in names), key=len)
        numbers = {
            one: [_test_kl(findings, plan.printed(name, key).get(one)) for name in names] for one in undone
        }
        figures = [printed.KL.get(key, {}).get(name) for name in names]
        theirs = ["–" if one is None else f"{one.value:.3f} ± {one.error:.3f}" for one in figures]
        ours = [findings.column(name, key).number("kl") for name in names]
        lines += _lines(COLUMNS[key].title, ours, undone, numbers, theirs)
        rows += _rows(key, "kl", names, numbers)
    return table((*HEAD, *names), lines), rows


def printed_clusters_table(findings: Findings) -> tuple[str, list[Row]]:
    """Table 2's KL at the paper's K × L, with each departure undone, with all undone, and the paper's."""
    plan, lines, rows = findings.plan, list[str](), list[Row]()
    names = [name for name in plan.asked("table2") if name in printed.PAPER_SETS]
    for key, figures in printed.TABLE_2.items():
        cells = {name: {one.name: one for one in plan.paper_clusters(name)} for name in names}
        ours = [_clusters_kl(findings, cells[name][f"{key}-clusters-paper"]) for name in names]
        undone = with_all(DEPARTURES[key])
        numbers = {
            one: [_clusters_kl(findings, plan.printed_clusters(name, key)[one]) for name in names]
            for one in undone
        }
        theirs = [f"{figures[name].kl:.3f}" for name in names]
        lines += _lines(GUIDES[key].title, ours, undone, numbers, theirs)
        rows += _rows(key, "kl of clusters", names, numbers)
    return table((*HEAD, *names), lines), rows


Numbers = Mapping[str, Sequence[Number | None]]  # departure -> a number for every dataset


def _lines(
    title: str,
    ours: Sequence[Number],
    undone: Mapping[str, Departure],
    numbers: Numbers,
    theirs: Sequence[str],
) -> list[str]:
    """Ours, a line for every departure, and the paper's own figures."""
    lines = [line(title, NOTHING if undone else "–", *map(mean_and_error, ours))]
    for one, departure in undone.items():
        told = ["–" if number is None else mean_and_error(number) for number in numbers[one]]
        lines.append(line("", f"**{departure.title}**" if one == EVERYTHING else departure.title, *told))
    return [*lines, line("", "*printed*", *theirs)]


def _rows(key: str, measure: str, names: Sequence[str], numbers: Numbers) -> list[Row]:
    def row(name: str, column: str, number: Number) -> Row:
        files = " ".join(number.files)
        return csv_row("as_printed", name, column, measure, number.mean, None, files, number)

    return [
        row(name, f"{key}, {one}", number)
        for one, found in numbers.items()
        for name, number in zip(names, found, strict=True)
        if number is not None
    ]


def _test_kl(findings: Findings, cells: Sequence[Cell] | None) -> Number | None:
    if cells is None:
        return None
    found = [findings.measured(cell) for cell in cells]
    values = tuple(run["test"]["kl"] for one in found for run in one.numbers["runs"])
    return Number(values, tuple(one.path for one in found))


def _clusters_kl(findings: Findings, cell: Cell) -> Number:
    found = findings.measured(cell)
    return Number(tuple(found.numbers["kl"]), (found.path,))
