"""``dissensus import``: another tool's export as a plain table of labels."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dissensus.cli.app import app, example, last_result
from dissensus.cli.options import LabelFile, Reading, SafeCsv, unbundled
from dissensus.cli.terminal import amounts, count, say
from dissensus.errors import DataError

OutputFile = Annotated[
    Path,
    typer.Option("--output", "-o", metavar="FILE", help="File to write: .csv, .jsonl or .parquet (or .gz)."),
]


@app.command(
    "import",
    epilog=example(
        "dissensus import project-1.json -o labels.csv",
        "dissensus import project-1.json --question sentiment -o labels.csv --items-to texts.csv",
    ),
)
@unbundled
def import_export(
    file: LabelFile,
    output: OutputFile,
    reading: Reading,
    items_to: Annotated[
        Path | None,
        typer.Option("--items-to", metavar="FILE", help="File for what the export says about the items."),
    ] = None,
    safe_csv: SafeCsv = False,
) -> None:
    """Convert an annotation tool's export to a plain table of labels (other commands read both)."""
    for path in (output, items_to):
        if path is not None and path.exists() and path.samefile(file):
            raise DataError(f"{path}: is the file being read; name another with -o or --items-to")
    annotations = reading.read(file)
    from dissensus.tables.results import for_spreadsheets, label_table
    from dissensus.tables.write import write_tables

    if items_to is not None and annotations.item_table is None:
        raise DataError(f"{file}: says nothing about items; leave out --items-to")
    tables = {output: label_table(annotations)}
    if items_to is not None:
        tables[items_to] = annotations.item_table
    with for_spreadsheets(safe_csv), last_result():
        write_tables(tables)
    say(f"Wrote {output}: {amounts(annotations)}")
    if items_to is not None:
        say(f"Wrote {items_to}: {count(annotations.n_items, 'item')}")
