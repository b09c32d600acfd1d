"""``dissensus queue``: the next batch of items, for a table or for the labelling tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dissensus.cli.app import app, example
from dissensus.cli.options import Json, LabelsOfRun, LabelsOrRun, Reading, SafeCsv, unbundled
from dissensus.cli.terminal import count, note, say, show_json, show_table

SHOWN = 10  # items


@app.command(
    epilog=example(
        "dissensus queue refined -o to-label.csv",
        "dissensus queue refined --items texts.csv --budget 200 --for label-studio -o tasks.json",
        "dissensus queue votes.csv --each 2 --json",
    )
)
@unbundled
def queue(
    place: LabelsOrRun,
    reading: Reading,
    file: LabelsOfRun = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="File to write: a table (.csv, .jsonl, .parquet), or the tasks of --for.",
        ),
    ] = None,
    budget: Annotated[
        int | None,
        typer.Option("--budget", metavar="N", help="Number of labels that can be paid for, in all."),
    ] = None,
    each: Annotated[
        int | None,
        typer.Option("--each", metavar="N", help="Number of annotators for each item that needs labels."),
    ] = None,
    tool: Annotated[
        Literal["table", "label-studio", "argilla", "prodigy"],
        typer.Option(
            "--for",
            metavar="TOOL",
            help="Write tasks for label-studio, argilla or prodigy instead of a table.",
        ),
    ] = "table",
    control: Annotated[
        str | None,
        typer.Option(
            "--control", metavar="NAME", help="Name of the question in that tool (if left out: label)."
        ),
    ] = None,
    safe_csv: SafeCsv = False,
    as_json: Json = False,
) -> None:
    """Print the next batch: items that need a label or somebody who decides, each with the reason."""
    from dissensus.annotators.queue import label_queue
    from dissensus.tables.results import for_spreadsheets
    from dissensus.workflow.runs import opened

    tables = (reading.items, reading.annotators, reading.gold)
    saved, annotations = opened(place, file, reading.as_in(place).read, tables)
    found = label_queue(saved.model, annotations, budget=budget, each=each)
    if output is not None:
        with for_spreadsheets(safe_csv):
            _write(found, annotations, output, tool, control or reading.question, reading.item_text)
    if as_json:
        show_json(found.columns())
        return
    decide = int((found.action == "adjudicate").sum())
    labels = int(found.n_more.sum()) - decide
    rest = count(len(found) - decide, "item")
    say(f"{count(decide, 'item')} to adjudicate, {count(labels, 'label')} for {rest}")
    if found.n_by_all:
        items = count(found.n_by_all, "item")
        note(f"{items} more need labels of new people: everybody who may be asked has labelled them")
    rows = [
        [str(found.item[q]), str(found.action[q]), int(found.n_more[q]), str(found.reason[q])]
        for q in range(min(SHOWN, len(found)))
    ]
    if rows:
        show_table("The next items", ["item", "action", "labels", "reason"], rows)
    if output is not None:
        say(f"Wrote {output}: {count(len(found), 'item')}")


def _write(
    found: Any, annotations: Any, output: Path, tool: str, control: str | None, text_column: str | None
) -> None:
    from dissensus.models.frames import make_frame
    from dissensus.report.items import texts_of
    from dissensus.tables.write import write_table, write_tasks

    texts = texts_of(annotations, text_column)
    columns = found.columns() | ({} if texts is None else {"text": [texts[m] for m in found.code]})
    if tool == "table":
        write_table(make_frame(columns, "pyarrow"), output)
        return
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    plain = [{"text": None, **row, "item": str(row["item"]), "label": str(row["label"])} for row in rows]
    classes = [str(name) for name in annotations.classes]
    write_tasks(plain, output, tool, classes, question=control or "label")
