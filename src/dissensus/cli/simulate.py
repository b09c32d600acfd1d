"""``dissensus simulate``: labels from the generative process, with the truth beside them; ``dissensus demo``.

A simulation is written as

::

    annotations.csv   item, annotator, label
    population.csv    what the whole population would answer: the columns of a run's labels.csv, and the
                      cluster each item was drawn from
    annotators.csv    annotator, n_labels, and the cluster each annotator was drawn from
    summary.json      the settings, and Θ, ψ, Ω

The demo does the main job on such a crowd. The population's distribution of every item is known, since the
process is; the models see the labels alone. How close do raw counts, and each model, come to it?
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli import options as opt
from dissensus.cli.app import app, examples, last_result, option
from dissensus.cli.terminal import amounts, say, say_page, show_table

if TYPE_CHECKING:
    from dissensus.labels.simulation import Simulation


@app.command(
    epilog=examples(
        "dissensus simulate -o crowd",
        "dissensus simulate --n-items 2000 --load long-tail -k 8 -l 4 --seed 7 -o crowd",
    )
)
def simulate(
    context: typer.Context,
    n_items: Annotated[int, option("M", "Number of items (500).")] = 500,
    n_annotators: Annotated[int, option("N", "Number of annotators (100).")] = 100,
    n_classes: Annotated[int, option("P", "Number of classes (4).")] = 4,
    item_clusters: opt.ItemClusters = 5,
    annotator_clusters: opt.AnnotatorClusters = 3,
    labels_per_item: Annotated[int, option("R", "Number of labels for each item (5).")] = 5,
    load: Annotated[str, option("even|long-tail", "How labels are spread over annotators.")] = "even",
    alpha: Annotated[str, option("A[,A…]", "Dirichlet of the label distributions.")] = "0.5",
    gamma: Annotated[str, option("G[,G…]", "Dirichlet of the item cluster sizes.")] = "5",
    tau: Annotated[str, option("T[,T…]", "Dirichlet of the annotator cluster sizes.")] = "5",
    pairs: Annotated[Path | None, option("FILE", "Labels whose items and annotators are taken.")] = None,
    seed: opt.Seed = 0,
    output: opt.OutputDirectory = None,
    force: opt.Force = False,
) -> None:
    """Draw labels whose truth is known."""
    from dissensus.labels import simulation
    from dissensus.tables.results import check_output

    directory = output or Path("simulated-crowd")
    check_output(directory, force)
    settings: dict[str, Any] = {
        "n_items": n_items,
        "n_annotators": n_annotators,
        "n_classes": n_classes,
        "n_item_clusters": item_clusters,
        "n_annotator_clusters": annotator_clusters,
        "labels_per_item": labels_per_item,
        "load": load,
        "alpha": opt.parse_value(alpha),
        "gamma": opt.parse_value(gamma),
        "tau": opt.parse_value(tau),
        "pairs": None if pairs is None else str(pairs),
        "seed": seed,
    }
    drawn = simulation.simulate(**settings)
    with last_result():
        command = opt.command_line(context)
        summary = write_simulation(drawn, directory, settings=settings, command=command, force=force)
    say(amounts(drawn.annotations))
    opt.say_written(directory, summary["files"])


def write_simulation(
    simulation: Simulation, directory: Path, *, settings: Mapping[str, Any], command: str, force: bool = False
) -> dict[str, Any]:
    """Write labels and truth, all or none, and give back the summary."""
    from dissensus.labels.vocabulary import arrow_table
    from dissensus.tables.labels_file import label_columns
    from dissensus.tables.results import label_table, output_directory, write_csv, write_summary

    labels, population = simulation.annotations, simulation.population
    best, n_labels = labels.classes[population.argmax(axis=1)], labels.counts.sum(axis=1)
    items = label_columns(labels.items, best, labels.classes, population, n_labels)
    annotators = {"annotator": labels.annotators, "n_labels": labels.annotator_load}
    with output_directory(directory, force) as folder:
        write_csv(label_table(labels), folder / "annotations.csv")
        write_csv(arrow_table(items | {"cluster": simulation.item_cluster}), folder / "population.csv")
        drawn = annotators | {"cluster": simulation.annotator_cluster}
        write_csv(arrow_table(drawn), folder / "annotators.csv")
        truth = {name: getattr(simulation, name) for name in ("theta", "psi", "omega")}
        return write_summary(folder, {"command": command, "settings": dict(settings), "truth": truth})


# ---- the demo -----------------------------------------------------------------------------------------

STORY = (
    "A simulated crowd: {n_items} items in {n_item_clusters} clusters, {labels_per_item} labels each,",
    "by {n_annotators} annotators in {n_annotator_clusters} clusters. What would the population answer?",
)
CROWD: dict[str, Any] = {
    "n_items": 600,
    "n_annotators": 60,
    "n_classes": 4,
    "n_item_clusters": 6,
    "n_annotator_clusters": 3,
    "labels_per_item": 5,
    "alpha": 0.3,
}


@app.command(epilog=examples("dissensus demo", "dissensus demo --seed 3 -o demo-output"))
def demo(
    context: typer.Context, seed: opt.Seed = 0, output: opt.OutputDirectory = None, force: opt.Force = False
) -> None:
    """Show how close models come to a simulated truth."""
    from dissensus.evaluate.bootstrap import bootstrap_interval
    from dissensus.labels.simulation import simulate
    from dissensus.metrics import accuracy, kl
    from dissensus.models import name_of
    from dissensus.models.base import Model
    from dissensus.models.counting import EmpiricalDistribution
    from dissensus.tables.results import check_output, output_directory, write_summary
    from dissensus.workflow.refine import fit
    from dissensus.workflow.runs import write_run

    directory = output or Path("demo-output")
    check_output(directory, force)
    simulation = simulate(**CROWD, seed=seed)
    labels, truth = simulation.annotations, simulation.population
    run = fit(labels, seed=seed)
    best: dict[str, tuple[Model, float | None]] = {"raw counts": (EmpiricalDistribution(smoothing=0.0), None)}
    for row in sorted(run.held_out, key=lambda row: row.score):  # of every model, its best settings
        best[name_of(row.model)] = row.model, row.score
    rows: list[list[Any]] = []
    for name, (model, held_out) in best.items():
        shares = model.fit(labels).label_distributions_
        distance = bootstrap_interval(kl, truth, shares)
        ends = f"{distance.low:.3f} – {distance.high:.3f}"
        rows.append([name, distance.value, ends, f"{accuracy(truth, shares):.1%}", held_out])
    rows.sort(key=lambda row: row[1])
    columns = ["model", "KL to the truth", "95 % interval", "top class right", "hidden labels (log)"]
    command, page = opt.command_line(context), {"title": "A simulated crowd"}
    with last_result(), output_directory(directory, force) as folder:
        write_simulation(simulation, folder / "crowd", settings=CROWD, command=command)
        write_run(run, folder / "refined", command=command, source="crowd/annotations.csv", page=page)
        contenders = [dict(zip(columns, row, strict=True)) for row in rows]
        write_summary(folder, {"command": command, "crowd": CROWD, "contenders": contenders})
    say(*(line.format(**CROWD) for line in STORY), "")
    show_table("How close each comes (nats, lower is better)", columns, rows, best=0)
    say(f"Refined labels ({run.model}): {directory / 'refined' / 'labels.csv'}")
    say(f"The crowd and its truth: {directory / 'crowd'}")
    say_page(directory / "refined" / "report.html")
