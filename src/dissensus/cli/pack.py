"""``dissensus pack``: files of labels into a store on disk."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dissensus.cli.app import app, example
from dissensus.cli.bundles import unbundled
from dissensus.cli.reading import class_order
from dissensus.cli.terminal import count, note, say, show_json
from dissensus.cli.writing import Json
from dissensus.execution.progress import shown


def _option(flag: str, metavar: str, help: str) -> Any:
    return typer.Option(flag, metavar=metavar, help=help, rich_help_panel="Reading the files")


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Where the labels stand in files with one row a label, and what a store keeps to."""

    item_column: Annotated[str | None, _option("--item-column", "NAME", "Column of item ids.")] = None
    annotator_column: Annotated[
        str | None, _option("--annotator-column", "NAME", "Column of annotator ids.")
    ] = None
    label_column: Annotated[str | None, _option("--label-column", "NAME", "Column of labels.")] = None
    labels: Annotated[list[str], _option("--labels", "A,B,…", "The label set in its order.")] = field(
        default_factory=list
    )
    duplicates: Annotated[
        Literal["keep", "first", "last", "error"] | None,
        _option("--duplicates", "keep|first|last|error", "When an annotator labels an item more than once."),
    ] = None
    format: Annotated[
        str | None, _option("--format", "NAME", "The format, where the content does not tell.")
    ] = None

    def settings(self) -> dict[str, Any]:
        """As the library calls them."""
        columns = {"item": self.item_column, "annotator": self.annotator_column, "label": self.label_column}
        rules = {"classes": class_order(self.labels), "duplicates": self.duplicates, "format": self.format}
        return columns | rules


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
    rows: Rows,
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="Memory to keep to, such as 512MB or 8GB.")
    ] = "2GB",
    as_json: Json = False,
) -> None:
    """Pack files of labels, larger than memory if need be, into a store that every command reads."""
    from dissensus.io.store.packing import pack as pack_files

    with shown() as progress:
        manifest = pack_files(files, output, memory=memory, progress=progress, **rows.settings())
    if as_json:
        show_json(asdict(manifest))
        return
    for remark in manifest.notes:
        note(remark)
    items, annotators = count(manifest.n_items, "item"), count(manifest.n_annotators, "annotator")
    classes = count(manifest.n_classes, "class", "classes")
    say(f"{count(manifest.n_labels, 'label')} by {annotators} on {items}, {classes}")
    say(f"Wrote {output}/: {count(len(manifest.shards), 'shard')}, {manifest.n_bytes / 1e6:,.1f} MB")
