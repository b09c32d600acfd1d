"""``dissensus export``: refined labels for another tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dissensus.cli.app import app, example, last_result, option
from dissensus.cli.options import SafeCsv
from dissensus.cli.terminal import count, say


def format_names(incomplete: str) -> list[str]:
    """For shell completion."""
    from dissensus.tables.write import OUTPUT_FORMATS

    return [name for name in OUTPUT_FORMATS if name.startswith(incomplete)]


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
    output: Annotated[Path, option("PATH", "File (or dataset directory) to write.", "--output", "-o")],
    format: Annotated[
        str | None,
        option(
            "NAME",
            "csv, parquet, jsonl, huggingface, label-studio, weighted (told by the suffix if left out).",
            autocompletion=format_names,
        ),
    ] = None,
    items: Annotated[Path | None, option("FILE", "Table of items whose columns are written too.")] = None,
    question: Annotated[str, option("NAME", "Label Studio: the name of the control.")] = "label",
    to_name: Annotated[
        str, option("NAME", "Label Studio: the name of the object that is labelled.")
    ] = "text",
    safe_csv: SafeCsv = False,
) -> None:
    """Write refined labels for another tool: tables, Hugging Face, Label Studio, weighted rows."""
    from dissensus.tables.results import for_spreadsheets
    from dissensus.tables.tables import open_table
    from dissensus.tables.write import write_labels
    from dissensus.workflow.runs import open_run

    fitted = open_run(model).model
    side = None if items is None else open_table(items).typed()
    with for_spreadsheets(safe_csv), last_result():
        write_labels(fitted, output, format, items=side, question=question, to_name=to_name)
    say(f"Wrote {output}: {count(len(fitted.items_), 'item')}")
