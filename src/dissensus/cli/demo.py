"""``dissensus demo``: the main job on a crowd whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dissensus.cli.app import app, example
from dissensus.cli.bundles import unbundled
from dissensus.cli.terminal import say, show_json, show_table
from dissensus.cli.writing import Json, Output, command_line
from dissensus.execution.progress import shown

if TYPE_CHECKING:
    from dissensus.cli.demo_crowd import Demo


@app.command(epilog=example("dissensus demo", "dissensus demo --seed 3 -o demo-output"))
@unbundled
def demo(
    context: typer.Context,
    output: Output,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Draws another crowd.")] = 0,
    as_json: Json = False,
) -> None:
    """Simulate a crowd whose truth is known, refine its labels, and show how close each model comes."""
    directory = output.directory("demo-output")
    from dissensus.cli.demo_crowd import demo as run_demo
    from dissensus.cli.demo_crowd import write_demo

    with shown() as progress:
        found = run_demo(seed, progress=progress)
        progress(f"writing {directory}", 0.95)
        summary = write_demo(found, directory, command=command_line(context), force=output.force)
    if as_json:
        show_json(summary)
    else:
        _show(found, directory)


def _show(found: Demo, directory: Path) -> None:
    crowd = found.simulation.annotations
    K, L, _ = found.simulation.theta.shape
    R = crowd.n_labels // crowd.n_items
    say(
        f"A simulated crowd: {crowd.n_items:,} items of {K} kinds, {R} labels each,",
        f"by {crowd.n_annotators} annotators of {L} kinds. What would the whole population answer?",
        "",
    )
    rows = [
        [one.name, one.kl.value, f"{one.kl.low:.3f} – {one.kl.high:.3f}", f"{one.accuracy:.1%}", one.score]
        for one in found.contenders
    ]
    columns = ["model", "KL to the truth", "95 % interval", "top class right", "hidden labels (log)"]
    show_table("How close each comes (nats, lower is better)", columns, rows, best=0)
    say(
        f"Refined labels ({found.run.model}): {directory / 'refined' / 'labels.csv'}",
        f"A page to look at: {directory / 'refined' / 'report.html'}",
        f"The crowd and its truth: {directory / 'crowd'}",
    )
