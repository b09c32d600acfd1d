"""``dissensus import`` and ``dissensus pack``: exports as a table of labels, files as a store on disk."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dissensus.cli.app import app, example, in_shell_words, last_result, option
from dissensus.cli.options import Columns, Json, LabelFile, Reading, SafeCsv, unbundled
from dissensus.cli.terminal import amounts, count, note, say, show_json
from dissensus.errors import DataError


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
    output: Annotated[
        Path, option("FILE", "File to write: .csv, .jsonl or .parquet (or .gz).", "--output", "-o")
    ],
    reading: Reading,
    items_to: Annotated[Path | None, option("FILE", "File for what the export says about the items.")] = None,
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


@app.command(
    epilog=example(
        "dissensus pack votes-1.csv votes-2.csv -o votes.store",
        "dissensus pack exports/ -o votes.store --memory 8GB --item-column page",
        "dissensus pack today.csv -o votes.store --json",
    )
)
@unbundled
def pack(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILES", help="CSV, TSV, JSONL or Parquet (also gzipped), or directories of them."
        ),
    ],
    output: Annotated[
        Path, option("STORE", "The store to write; one that is there is replaced.", "--output", "-o")
    ],
    columns: Columns,
    memory: Annotated[str | None, option("SIZE", "Memory to keep to, such as 512MB or 8GB.")] = None,
    as_json: Json = False,
) -> None:
    """Pack files of labels, larger than memory if need be, into a store that every command reads."""
    from dissensus.large.packing import write_store

    with last_result():
        settings = columns.settings() | {"duplicates": columns.duplicates or "keep"}
        settings.pop("missing")
        manifest = write_store(files, output, memory=memory, **settings)
    if as_json:
        show_json(asdict(manifest))
        return
    for remark in manifest.notes:
        note(in_shell_words(remark, {"--item-column", "--annotator-column", "--label-column"}))
    items, annotators = count(manifest.n_items, "item"), count(manifest.n_annotators, "annotator")
    classes = count(manifest.n_classes, "class", "classes")
    say(f"{count(manifest.n_labels, 'label')} by {annotators} on {items}, {classes}")
    say(f"Wrote {output}/: {manifest.n_bytes / 1e6:,.1f} MB")
