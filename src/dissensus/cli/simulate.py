"""``dissensus simulate``: labels from the generative process, with the truth beside them.

::

    annotations.csv   item, annotator, label
    population.csv    what the whole population would answer: the columns of a run's labels.csv, and the
                      cluster each item was drawn from
    annotators.csv    annotator, n_labels, and the cluster each annotator was drawn from
    summary.json      the settings, and Θ, ψ, Ω
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli.app import app, example, last_result
from dissensus.cli.options import Json, Output, command_line, say_written, unbundled, under
from dissensus.cli.terminal import amounts, say, show_json
from dissensus.errors import ParameterError

if TYPE_CHECKING:
    from dissensus.labels.simulation import Simulation

_crowd = under("The crowd")
DIRICHLETS = ("alpha", "gamma", "tau")


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """The settings of :func:`dissensus.simulate`, under its own names."""

    n_items: Annotated[int, _crowd("--n-items", metavar="M", help="Number of items.")] = 500
    n_annotators: Annotated[int, _crowd("--n-annotators", metavar="N", help="Number of annotators.")] = 100
    n_classes: Annotated[int, _crowd("--n-classes", metavar="P", help="Number of classes.")] = 4
    n_item_clusters: Annotated[
        int, _crowd("--item-clusters", "-k", metavar="K", help="Number of item clusters.")
    ] = 5
    n_annotator_clusters: Annotated[
        int, _crowd("--annotator-clusters", "-l", metavar="L", help="Number of annotator clusters.")
    ] = 3
    labels_per_item: Annotated[
        int, _crowd("--labels-per-item", metavar="R", help="Number of labels for each item.")
    ] = 5
    load: Annotated[
        str,
        _crowd("--load", metavar="even|long-tail", help="How the labels are spread over the annotators."),
    ] = "even"
    alpha: Annotated[
        str, _crowd("--alpha", metavar="A[,A…]", help="Dirichlet of the label distributions.")
    ] = "0.5"
    gamma: Annotated[
        str, _crowd("--gamma", metavar="G[,G…]", help="Dirichlet of the item cluster sizes.")
    ] = "5"
    tau: Annotated[
        str, _crowd("--tau", metavar="T[,T…]", help="Dirichlet of the annotator cluster sizes.")
    ] = "5"
    pairs: Annotated[
        Path | None,
        _crowd(
            "--pairs",
            metavar="FILE",
            help="File of labels: the same annotators label the same items, with new answers.",
        ),
    ] = None
    seed: Annotated[int, _crowd("--seed", metavar="N", help="Seed of the random numbers.")] = 0


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
    from dissensus.labels import simulation
    from dissensus.labels.sources import as_annotations

    settings = asdict(crowd) | {name: numbers(name, getattr(crowd, name)) for name in DIRICHLETS}
    pairs = None if crowd.pairs is None else as_annotations(crowd.pairs)
    drawn = simulation.simulate(**settings | {"pairs": pairs})
    settings["pairs"] = None if crowd.pairs is None else str(crowd.pairs)
    with last_result():
        summary = write_simulation(
            drawn, directory, settings=settings, command=command_line(context), force=output.force
        )
    if as_json:
        show_json(summary)
        return
    say(amounts(drawn.annotations))
    say_written(directory, summary["files"])


def numbers(name: str, text: str) -> float | list[float]:
    """A number, or several between commas."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        raise ParameterError(f"--{name} {text}: write a number, or several as in 0.5,1,2") from None
    return found if len(found) > 1 else found[0]


def write_simulation(
    simulation: Simulation,
    directory: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    command: str = "",
    force: bool = False,
) -> dict[str, Any]:
    """Write labels and truth, all or none, and give back the summary."""
    from dissensus.tables.results import label_table, output_directory, write_csv, write_summary

    with output_directory(directory, force) as folder:
        write_csv(label_table(simulation.annotations), folder / "annotations.csv")
        write_csv(population_table(simulation), folder / "population.csv")
        write_csv(annotator_truth(simulation), folder / "annotators.csv")
        truth = {name: getattr(simulation, name) for name in ("theta", "psi", "omega")}
        return write_summary(folder, {"command": command, "settings": dict(settings or {}), "truth": truth})


def population_table(simulation: Simulation) -> Any:
    """One row for each item: what the population would answer, and the cluster it was drawn from."""
    from dissensus.labels.vocabulary import arrow_table
    from dissensus.tables.labels_file import label_columns

    labels, population = simulation.annotations, simulation.population
    best, n_labels = labels.classes[population.argmax(axis=1)], labels.counts.sum(axis=1)
    columns = label_columns(labels.items, best, labels.classes, population, n_labels)
    return arrow_table(columns | {"cluster": simulation.item_cluster})


def annotator_truth(simulation: Simulation) -> Any:
    """One row for each annotator: labels given, and the cluster it was drawn from."""
    from dissensus.labels.vocabulary import arrow_table

    labels = simulation.annotations
    return arrow_table(
        {
            "annotator": labels.annotators,
            "n_labels": labels.annotator_load,
            "cluster": simulation.annotator_cluster,
        }
    )
