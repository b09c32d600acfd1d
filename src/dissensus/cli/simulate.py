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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli.app import app, example, last_result, option
from dissensus.cli.options import Json, Output, command_line, say_written, unbundled, under
from dissensus.cli.terminal import amounts, say, show_json, show_table
from dissensus.errors import ParameterError

if TYPE_CHECKING:
    from dissensus.evaluate.bootstrap import Interval
    from dissensus.evaluate.compare import HeldOut
    from dissensus.labels.simulation import Simulation
    from dissensus.models.base import Model
    from dissensus.workflow.refine import Refinement

_crowd = under("The crowd")
DIRICHLETS = ("alpha", "gamma", "tau")


@dataclass(frozen=True, kw_only=True)
class Crowd:
    """The settings of :func:`dissensus.simulate`, under its own names."""

    n_items: Annotated[int, _crowd("M", "Number of items.")] = 500
    n_annotators: Annotated[int, _crowd("N", "Number of annotators.")] = 100
    n_classes: Annotated[int, _crowd("P", "Number of classes.")] = 4
    n_item_clusters: Annotated[int, _crowd("K", "Number of item clusters.", "--item-clusters", "-k")] = 5
    n_annotator_clusters: Annotated[
        int, _crowd("L", "Number of annotator clusters.", "--annotator-clusters", "-l")
    ] = 3
    labels_per_item: Annotated[int, _crowd("R", "Number of labels for each item.")] = 5
    load: Annotated[str, _crowd("even|long-tail", "How the labels are spread over the annotators.")] = "even"
    alpha: Annotated[str, _crowd("A[,A…]", "Dirichlet of the label distributions.")] = "0.5"
    gamma: Annotated[str, _crowd("G[,G…]", "Dirichlet of the item cluster sizes.")] = "5"
    tau: Annotated[str, _crowd("T[,T…]", "Dirichlet of the annotator cluster sizes.")] = "5"
    pairs: Annotated[
        Path | None,
        _crowd("FILE", "File of labels: the same annotators label the same items, with new answers."),
    ] = None
    seed: Annotated[int, _crowd("N", "Seed of the random numbers.")] = 0


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
    settings: Mapping[str, Any],
    command: str,
    force: bool = False,
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

CROWD: dict[str, Any] = {
    "n_items": 600,
    "n_annotators": 60,
    "n_classes": 4,
    "n_item_clusters": 6,
    "n_annotator_clusters": 3,
    "labels_per_item": 5,
    "alpha": 0.3,
}


@app.command(epilog=example("dissensus demo", "dissensus demo --seed 3 -o demo-output"))
@unbundled
def demo(
    context: typer.Context,
    output: Output,
    seed: Annotated[int, option("N", "Seed of the random numbers: another seed draws another crowd.")] = 0,
    as_json: Json = False,
) -> None:
    """Simulate a crowd whose truth is known, refine its labels, and show how close each model comes."""
    directory = output.directory("demo-output")
    from dissensus.tables.results import output_directory, write_summary
    from dissensus.workflow.runs import write_run

    found, command, looks = contest(seed), command_line(context), {"title": "A simulated crowd"}
    with last_result(), output_directory(directory, output.force) as folder:
        write_simulation(found.simulation, folder / "crowd", settings=CROWD, command=command)
        write_run(found.run, folder / "refined", command=command, source="crowd/annotations.csv", page=looks)
        rows = [
            {
                "name": one.name,
                "settings": one.model.get_params(deep=False),
                "kl": one.kl._asdict(),
                "accuracy": one.accuracy,
                "score": one.score,
            }
            for one in found.contenders
        ]
        summary = write_summary(folder, {"command": command, "crowd": CROWD, "contenders": rows})
    if as_json:
        show_json(summary)
    else:
        _show(found, directory)


@dataclass(frozen=True)
class Contender:
    """A fitted model against the truth."""

    name: str
    model: Model
    kl: Interval  # KL(population ‖ estimate) in nats
    accuracy: float  # share of items whose most likely class is the population's
    score: float | None  # mean log-probability of hidden labels


@dataclass(frozen=True)
class Contest:
    """The crowd, the contenders in order of their distance to the truth, and the run to be written."""

    simulation: Simulation
    contenders: list[Contender]
    run: Refinement


def contest(seed: int) -> Contest:
    """Simulate a crowd, fit the best settings of every model, and hold each against the population."""
    from dissensus.evaluate.bootstrap import bootstrap_interval
    from dissensus.evaluate.compare import compare
    from dissensus.labels.simulation import simulate
    from dissensus.metrics import accuracy, kl
    from dissensus.models import name_of
    from dissensus.models.counting import EmpiricalDistribution
    from dissensus.workflow.refine import Refinement

    simulation = simulate(**CROWD, seed=seed)
    annotations, truth = simulation.annotations, simulation.population
    choice = compare(annotations, seed)
    best: dict[str, HeldOut] = {}  # of every model, the settings with the highest held-out score
    for row in choice.table:
        name = name_of(row.model)
        if name not in best or row.score > best[name].score:
            best[name] = row
    rivals: list[tuple[str, Model, float | None]] = [
        ("raw counts", EmpiricalDistribution(smoothing=0.0), None),
        *((name, row.model, row.score) for name, row in best.items()),
    ]
    contenders = []
    for name, model, score in rivals:
        shares = model.fit(annotations).label_distributions_
        distance = bootstrap_interval(kl, truth, shares)
        contenders.append(Contender(name, model, distance, accuracy(truth, shares), score))
    # The chosen model is one of the contenders, and fitted with them.
    run = Refinement(annotations, choice.model, choice.table, choice.reason, seed)
    return Contest(simulation, sorted(contenders, key=lambda one: one.kl.value), run)


def _show(found: Contest, directory: Path) -> None:
    crowd = found.simulation.annotations
    K, L, _ = found.simulation.theta.shape
    R = crowd.n_labels // crowd.n_items
    say(
        f"A simulated crowd: {crowd.n_items:,} items in {K} clusters, {R} labels each,",
        f"by {crowd.n_annotators} annotators in {L} clusters. What would the whole population answer?",
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
