"""``dissensus import`` and ``dissensus export``: from other tools' files to ours, and back."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dissensus.cli.app import app, example
from dissensus.cli.bundles import unbundled
from dissensus.cli.reading import LabelFile, Reading
from dissensus.cli.terminal import amounts, count, say
from dissensus.execution.progress import shown

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
        typer.Option("--items-to", metavar="FILE", help="Write what the export says about items here."),
    ] = None,
) -> None:
    """Convert an annotation tool's export to a plain table of labels (other commands read both)."""
    with shown() as progress:
        progress(f"reading {file.name}", 0.0)
        annotations = reading.read(file)
        from dissensus.errors import DataError
        from dissensus.io.results import label_table
        from dissensus.io.write import write_table

        if items_to is not None and annotations.item_table is None:
            raise DataError(f"{file}: says nothing about items; leave out --items-to")
        for path in (output, items_to):
            if path is not None and path.exists() and path.samefile(file):
                raise DataError(f"{path}: is the file being read; name another with -o or --items-to")
        progress(f"writing {output.name}", 0.5)
        write_table(label_table(annotations), output)
        if items_to is not None:
            write_table(annotations.item_table, items_to)
    say(f"Wrote {output}: {amounts(annotations)}")
    if items_to is not None:
        say(f"Wrote {items_to}: {count(annotations.n_items, 'item')}")


def format_names(incomplete: str) -> list[str]:
    """For shell completion."""
    from dissensus.io.write import FORMATS

    return [name for name in FORMATS if name.startswith(incomplete)]


@app.command(
    "export",
    epilog=example(
        "dissensus export refined -o labels.parquet",
        "dissensus export refined -o rows.csv --format weighted",
        "dissensus export refined -o tasks.json --format label-studio --items texts.csv",
    ),
)
def export_labels(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="A run's directory, or its model.safetensors.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="PATH", help="File (or dataset directory) to write.")
    ],
    format: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="NAME",
            help="csv, parquet, jsonl, huggingface, label-studio, weighted (the suffix tells otherwise).",
            autocompletion=format_names,
        ),
    ] = None,
    items: Annotated[
        Path | None, typer.Option("--items", metavar="FILE", help="Table of items whose columns come along.")
    ] = None,
    question: Annotated[
        str, typer.Option("--question", metavar="NAME", help="Label Studio: the name of the control.")
    ] = "label",
    to_name: Annotated[
        str, typer.Option("--to-name", metavar="NAME", help="Label Studio: the object it labels.")
    ] = "text",
) -> None:
    """Write refined labels for another tool: tables, Hugging Face, Label Studio, weighted rows."""
    from dissensus.io.tables import open_table
    from dissensus.io.write import write_labels
    from dissensus.models.files import load
    from dissensus.workflow import MODEL

    fitted = load(model / MODEL if model.is_dir() else model)
    side = None if items is None else open_table(items).everything()
    write_labels(fitted, output, format, items=side, question=question, to_name=to_name)
    say(f"Wrote {output}: {count(len(fitted.items_), 'item')}")
