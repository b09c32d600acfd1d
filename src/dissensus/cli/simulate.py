"""``dissensus simulate``: labels from the generative process, with the truth beside them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer

from dissensus.cli.app import app, example
from dissensus.cli.bundles import unbundled
from dissensus.cli.terminal import amounts, say, show_json
from dissensus.cli.writing import Json, Output, command_line, say_written

PANEL = "The crowd"


def _option(*flags: str, metavar: str, help: str) -> Any:
    return typer.Option(*flags, metavar=metavar, help=help, rich_help_panel=PANEL)


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """The settings of :func:`dissensus.simulate`, under its own names."""

    n_items: Annotated[int, _option("--n-items", metavar="M", help="Items.")] = 500
    n_annotators: Annotated[int, _option("--n-annotators", metavar="N", help="Annotators.")] = 100
    n_classes: Annotated[int, _option("--n-classes", metavar="P", help="Label classes.")] = 4
    n_item_clusters: Annotated[int, _option("--item-clusters", "-k", metavar="K", help="Item clusters.")] = 5
    n_annotator_clusters: Annotated[
        int, _option("--annotator-clusters", "-l", metavar="L", help="Annotator clusters.")
    ] = 3
    labels_per_item: Annotated[int, _option("--labels-per-item", metavar="R", help="Labels an item.")] = 5
    load: Annotated[
        str,
        _option("--load", metavar="even|long-tail", help="How the labels spread over the annotators."),
    ] = "even"
    alpha: Annotated[float, _option("--alpha", metavar="A", help="Dirichlet of the label distributions.")] = (
        0.5
    )
    gamma: Annotated[float, _option("--gamma", metavar="G", help="Dirichlet of the item cluster sizes.")] = (
        5.0
    )
    tau: Annotated[float, _option("--tau", metavar="T", help="Dirichlet of the annotator cluster sizes.")] = (
        5.0
    )
    seed: Annotated[int, _option("--seed", metavar="N", help="Replays a simulation.")] = 0


@app.command(
    epilog=example(
        "dissensus simulate -o crowd",
        "dissensus simulate --n-items 2000 --n-annotators 300 --load long-tail -k 8 -l 4 --seed 7 -o crowd",
    )
)
@unbundled
def simulate(context: typer.Context, output: Output, crowd: Crowd, as_json: Json = False) -> None:
    """Draw labels from the generative process, and write them with the truth they came from."""
    directory = output.directory("simulated-crowd")
    from dissensus.cli.simulation_files import write_simulation
    from dissensus.data import simulation

    settings = asdict(crowd)
    drawn = simulation.simulate(**settings)
    summary = write_simulation(
        drawn, directory, settings=settings, command=command_line(context), force=output.force
    )
    if as_json:
        show_json(summary)
        return
    say(amounts(drawn.annotations))
    say_written(directory, summary["files"])
