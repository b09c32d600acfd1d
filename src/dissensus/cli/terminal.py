"""Printing: results on standard output; notes, progress and errors on standard error.

A terminal gets colour and a live progress line; a pipe gets plain text without control characters.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dissensus.progress import printable

if TYPE_CHECKING:
    from rich.console import Console

    from dissensus.labels.annotations import Annotations

NUMERIC_CELL = re.compile(r"[\d.,%∞+<>\-−– ]*")  # columns of such cells are right-aligned
PIPE_WIDTH = 160  # characters in a line of a table that is not printed on a terminal


def out() -> Console:
    """Return a console for results, on which text from the data is never parsed as markup."""
    from rich.console import Console

    class Output(Console):  # type: ignore[misc]
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Output(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def say(*lines: str) -> None:
    """Print lines of a result."""
    console = out()
    for line in lines:
        console.print(printable(line), soft_wrap=True)


def note(*lines: str) -> None:
    """Print notes on standard error, where it can be written."""
    from rich.console import Console

    console = Console(file=sys.stderr, markup=False, highlight=False, emoji=False)
    with suppress(OSError):
        for line in lines:
            console.print(f"note: {printable(line)}", style="yellow", soft_wrap=True)


def say_report(path: Path) -> None:
    """Print the path of a report, as a link that a terminal can open."""
    from rich.style import Style
    from rich.text import Text

    link = Style(link=path.resolve().as_uri())
    out().print(Text("Report: ") + Text(printable(str(path)), link), soft_wrap=True)


def say_written(directory: Path, summary: dict[str, Any]) -> None:
    """Print the files of a run, and if its report could not be made, why and how to try again."""
    say(f"Wrote {directory}/: {', '.join(summary['files'])}")
    missing = summary.get("report_missing")
    if missing:
        note(f"the report was not written ({missing}); try again with: dissensus report {directory}")


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], best: int = -1) -> None:
    """Print a table; columns of numbers are right-aligned, and row number ``best`` is highlighted."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    texts = [[cell(value) for value in row] for row in rows]
    for index, column in enumerate(columns):
        numeric = all(NUMERIC_CELL.fullmatch(row[index]) for row in texts)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for index, row in enumerate(texts):
        table.add_row(*row, style="bold green" if index == best else None)
    console = out()
    console.print(printable(title), style="bold", soft_wrap=True)
    console.print(table)


def cell(value: Any) -> str:
    """Format a value for a table: thousands separators, four decimals, ∞ for infinity."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{round(value, 4) + 0.0:,.4f}" if math.isfinite(value) else ("∞" if value > 0 else "−∞")
    return printable(str(value))


def count(n: int, singular: str, plural: str = "") -> str:
    """Return ``1 item`` or ``2,000 items``."""
    return f"{n:,} {singular if n == 1 else plural or singular + 's'}"


def amounts(annotations: Annotations) -> str:
    """Return the numbers of labels, annotators, items and classes on one line."""
    labels, items = count(annotations.n_labels, "label"), count(annotations.n_items, "item")
    if annotations.label_type == "pairwise":
        items = count(annotations.n_items, "pair compared", "pairs compared")
    classes = count(annotations.n_classes, "class", "classes")
    if annotations.label_type == "multi":
        from dissensus.labels.kinds import membership

        members = count(len(membership(annotations.class_vocabulary)[1]), "class", "classes")
        classes = f"{members} in {count(annotations.n_classes, 'different set')}"
    if annotations.label_type == "numeric":
        classes = count(annotations.n_classes, "different number")
    by = "" if annotations.anonymous else f" by {count(annotations.n_annotators, 'annotator')}"
    return f"{labels}{by} on {items}, {classes}"


def show_json(value: Any) -> None:
    """Print a value as JSON; NaN and infinity become null."""
    from dissensus.tables.results import json_safe

    sys.stdout.write(json.dumps(json_safe(value), indent=2, ensure_ascii=False) + "\n")
