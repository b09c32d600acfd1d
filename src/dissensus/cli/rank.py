"""``dissensus rank``: comparisons in, scores and ranks out."""

from __future__ import annotations

from typing import Annotated

import typer

from dissensus.cli.app import app, example
from dissensus.cli.options import (
    Json,
    LabelFile,
    Output,
    Page,
    Reading,
    command_line,
    say_missing,
    say_written,
    stem,
    unbundled,
)
from dissensus.cli.terminal import amounts, say, show_json, show_table

SHOWN = 20


@app.command(
    epilog=example(
        "dissensus rank battles.csv",
        "dissensus rank preferences.jsonl --annotator-column judge -o ranking --no-position",
    )
)
@unbundled
def rank(
    context: typer.Context,
    file: LabelFile,
    output: Output,
    reading: Reading,
    page: Page,
    position: Annotated[
        bool,
        typer.Option("--position/--no-position", help="Let annotators prefer the left or the right answer."),
    ] = True,
    pair_effects: Annotated[
        bool,
        typer.Option(
            "--pair-effects/--no-pair-effects",
            help="Let a pair of answers differ from what their scores say.",
        ),
    ] = True,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the random numbers.")] = 0,
    as_json: Json = False,
) -> None:
    """Rank what was compared in pairs: scores and ranks with intervals, and how reliable annotators are."""
    directory = output.directory(f"{stem(file)}-ranked")
    from dissensus.tables.layouts import refuse_other_type
    from dissensus.workflow.refine import refine
    from dissensus.workflow.runs import write_run

    annotations = reading.read(file)
    refuse_other_type(annotations, "pairwise")
    settings = {"position": position, "pair_effects": pair_effects}
    run = refine(annotations, "bradley-terry", settings, seed=seed)
    summary = write_run(
        run,
        directory,
        command=command_line(context),
        source=str(file),
        force=output.force,
        page=page.settings(file.name, None),
    )
    say_missing(summary["report_missing"], directory, file)
    if as_json:
        show_json(summary)
        return
    say(amounts(annotations))
    columns = ["item", "score", "low", "high", "rank_low", "rank_high", "n_labels"]
    found = next(run.model.label_pieces())
    values = [found[name].to_pylist() if name == "item" else found[name].tolist() for name in columns]
    rows = [list(row) for row in zip(*values, strict=True)][:SHOWN]
    show_table("Scores (log-odds) and ranks with 95 % intervals", columns, rows)
    if len(values[0]) > SHOWN:
        say(f"… and {len(values[0]) - SHOWN:,} more in labels.csv")
    say_written(directory, summary["files"])
