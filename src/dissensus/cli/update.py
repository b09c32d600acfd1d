"""``dissensus update``: more labels for a finished run, whose chains go on from where they ended."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dissensus.cli.app import app, example
from dissensus.cli.options import Json, Page, Reading, command_line, say_missing, say_written, unbundled
from dissensus.cli.terminal import count, say, show_json


@app.command(
    epilog=example("dissensus update refined monday.csv", "dissensus update refined new.csv -o later")
)
@unbundled
def update(
    context: typer.Context,
    place: Annotated[Path, typer.Argument(metavar="RUN", help="A finished run of the model hpgm.")],
    file: Annotated[
        Path, typer.Argument(metavar="NEW", help="The labels to add, in any form that fit reads.")
    ],
    reading: Reading,
    page: Page,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Directory to write (if left out: RUN itself)."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Add labels to a run: the sampler goes on from its last state, in a fraction of a fit's time."""
    from dissensus.workflow.runs import update_run

    summary = update_run(
        place,
        reading.as_in(place).read(file),
        output,
        command=command_line(context),
        source=str(file),
        page=page.settings(file.name, None),
    )
    directory = output or place
    say_missing(summary["report_missing"], directory, file)
    if as_json:
        show_json(summary)
        return
    known = summary["data"]["n_labels"]
    say(f"{count(known - summary['updated']['n_labels'], 'label')} added, {known:,} in all")
    say_written(directory, summary["files"])
