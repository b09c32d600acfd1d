"""``dissensus pack``: files of labels into a store on disk."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dissensus.cli.app import app, example, in_shell_words, last_result
from dissensus.cli.options import Columns, Json, unbundled
from dissensus.cli.terminal import count, note, say, show_json


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
        Path,
        typer.Option("--output", "-o", metavar="STORE", help="The store: made, or added to if it is there."),
    ],
    columns: Columns,
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="Memory to keep to, such as 512MB or 8GB.")
    ] = "2GB",
    again: Annotated[
        bool, typer.Option("--again", help="Add files that are in the store already once more.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Pack files of labels, larger than memory if need be, into a store that every command reads."""
    from dissensus.large.packing import pack as pack_files

    with last_result():
        manifest = pack_files(files, output, memory=memory, again=again, **columns.settings())
    if as_json:
        show_json(asdict(manifest))
        return
    for remark in manifest.notes:
        note(in_shell_words(remark, {"--again", "--item-column", "--annotator-column", "--label-column"}))
    items, annotators = count(manifest.n_items, "item"), count(manifest.n_annotators, "annotator")
    classes = count(manifest.n_classes, "class", "classes")
    say(f"{count(manifest.n_labels, 'label')} by {annotators} on {items}, {classes}")
    say(f"Wrote {output}/: {manifest.n_bytes / 1e6:,.1f} MB")
