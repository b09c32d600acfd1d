"""What a person sees: results on standard output, everything passing on standard error.

On a terminal there is colour and a live progress line; in a pipe, plain text without control characters.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dissensus.progress import printable

if TYPE_CHECKING:
    from rich.console import Console

    from dissensus.labels.annotations import Annotations

NUMBER = re.compile(r"[\d.,%∞+<>\-−– ]*")  # a table's cell that stands to the right
PIPE_WIDTH = 160  # columns of a table where no terminal says how wide it is


def out() -> Console:
    """Where results go. Text from the data is never taken for markup."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else PIPE_WIDTH
    return Console(file=sys.stdout, width=width, markup=False, highlight=False, emoji=False)


def say(*lines: str) -> None:
    """Print lines of a result, as they are."""
    console = out()
    for line in lines:
        console.print(printable(line), soft_wrap=True)


def note(line: str) -> None:
    """Say something by the way, on standard error."""
    from rich.console import Console

    console = Console(file=sys.stderr, markup=False, highlight=False, emoji=False)
    console.print(f"note: {printable(line)}", style="yellow", soft_wrap=True)


def say_page(path: Path) -> None:
    """Say where a page is, as a link that a terminal opens."""
    from rich.style import Style
    from rich.text import Text

    link = Style(link=path.resolve().as_uri())
    out().print(Text("Page: ") + Text(printable(str(path)), link), soft_wrap=True)


def say_missing(reason: str | None, run: Path) -> None:
    """Say why a run has no page, and how to try again."""
    if reason is not None:
        note(f"no page ({reason}); try again with: dissensus report {run}")


def show_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], best: int = -1) -> None:
    """A table of words and numbers: numbers to the right, row number ``best`` set off."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    texts = [[cell(value) for value in row] for row in rows]
    for place, column in enumerate(columns):
        numeric = all(NUMBER.fullmatch(row[place]) for row in texts)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for place, row in enumerate(texts):
        table.add_row(*row, style="bold green" if place == best else None)
    console = out()
    console.print(printable(title), style="bold", soft_wrap=True)
    console.print(table)


def cell(value: Any) -> str:
    """A value as a table shows it: thousands apart, four decimals, ∞ as a sign."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{round(value, 4) + 0.0:,.4f}" if math.isfinite(value) else ("∞" if value > 0 else "−∞")
    return printable(str(value))


def count(n: int, one: str, many: str = "") -> str:
    """``1 item``, ``2,000 items``."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def amounts(annotations: Annotations) -> str:
    """How much there is of everything, on one line."""
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
    """Print a value as JSON; numbers that JSON has no word for become null."""
    from dissensus.tables.results import finite

    sys.stdout.write(json.dumps(finite(value), indent=2, ensure_ascii=False) + "\n")
