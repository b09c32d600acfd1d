"""``dissensus demo``: the main job on a crowd whose truth is known.

Items and annotators are drawn from the paper's generative process, a few labels per item. The population's
distribution of every item is known, since the process is; the models see the labels alone. How close do raw
counts, and each model, come to it?
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli.app import app, example, last_result
from dissensus.cli.options import Json, Output, command_line, unbundled
from dissensus.cli.simulate import write_simulation
from dissensus.cli.terminal import say, show_json, show_table

if TYPE_CHECKING:
    from dissensus.evaluate.bootstrap import Interval
    from dissensus.evaluate.compare import HeldOut
    from dissensus.labels.simulation import Simulation
    from dissensus.models.base import Model
    from dissensus.workflow.refine import Refinement

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
    seed: Annotated[
        int,
        typer.Option(
            "--seed", metavar="N", help="Seed of the random numbers: another seed draws another crowd."
        ),
    ] = 0,
    as_json: Json = False,
) -> None:
    """Simulate a crowd whose truth is known, refine its labels, and show how close each model comes."""
    directory = output.directory("demo-output")
    found = contest(seed)
    with last_result():
        summary = write_contest(found, directory, command=command_line(context), force=output.force)
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

    def as_row(self) -> dict[str, Any]:
        """The same as plain values."""
        return {
            "name": self.name,
            "settings": self.model.get_params(deep=False),
            "kl": self.kl._asdict(),
            "accuracy": self.accuracy,
            "score": self.score,
        }


@dataclass(frozen=True)
class Contest:
    """The crowd, the contenders in order of their distance to the truth, and the run to be written."""

    simulation: Simulation
    contenders: list[Contender]
    run: Refinement


def contest(seed: int) -> Contest:
    """Simulate a crowd, fit the best settings of every model, and hold each against the population."""
    from dissensus.evaluate.compare import choose_model
    from dissensus.labels.simulation import simulate
    from dissensus.models import name_of
    from dissensus.models.empirical import EmpiricalDistribution
    from dissensus.workflow.refine import Refinement

    simulation = simulate(**CROWD, seed=seed)
    annotations = simulation.annotations
    choice = choose_model(annotations, seed)
    chosen, table = choice.model, choice.table
    contenders = [_contender("raw counts", EmpiricalDistribution(smoothing=0.0), None, simulation)]
    contenders += [
        _contender(name_of(row.model), row.model, row.score, simulation) for row in best_of_each(table)
    ]
    # The chosen model is one of the contenders, and fitted with them.
    run = Refinement(annotations, chosen, table, choice.reason, seed)
    return Contest(simulation, sorted(contenders, key=lambda one: one.kl.value), run)


def best_of_each(table: Sequence[HeldOut]) -> list[HeldOut]:
    """Of every kind of model, the settings with the highest held-out score."""
    best: dict[type, HeldOut] = {}
    for row in table:
        kind = type(row.model)
        if kind not in best or row.score > best[kind].score:
            best[kind] = row
    return list(best.values())


def _contender(name: str, model: Model, score: float | None, simulation: Simulation) -> Contender:
    from dissensus.evaluate.bootstrap import bootstrap_interval
    from dissensus.metrics import accuracy, kl

    fitted = model.fit(simulation.annotations)
    estimate, truth = fitted.label_distributions_, simulation.population
    return Contender(name, fitted, bootstrap_interval(kl, truth, estimate), accuracy(truth, estimate), score)


def write_contest(found: Contest, directory: Path, *, command: str, force: bool) -> dict[str, Any]:
    """Write the crowd, the refined labels and the comparison, all or none."""
    from dissensus.tables.results import output_directory, write_summary
    from dissensus.workflow.runs import write_run

    looks = {"title": "A simulated crowd"}
    with output_directory(directory, force) as folder:
        write_simulation(found.simulation, folder / "crowd", settings=CROWD, command=command)
        write_run(found.run, folder / "refined", command=command, source="crowd/annotations.csv", page=looks)
        rows = [contender.as_row() for contender in found.contenders]
        return write_summary(folder, {"command": command, "crowd": CROWD, "contenders": rows})


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
