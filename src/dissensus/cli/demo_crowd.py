"""A crowd whose truth is known: how close do raw counts, and each model, come to it?

Items and annotators are drawn from the paper's generative process, a few labels an item. The population's
distribution of every item is known, since the process is; the models see the labels alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dissensus.cli.simulation_files import write_simulation
from dissensus.data.simulation import Simulation, simulate
from dissensus.evaluation.intervals import Interval, bootstrap_interval
from dissensus.execution.progress import ShowProgress
from dissensus.io.results import output_directory, write_summary
from dissensus.metrics import accuracy, kl
from dissensus.models import name_of
from dissensus.models.base import Model
from dissensus.models.empirical import EmpiricalDistribution
from dissensus.selection.compare import HeldOut, choose_model
from dissensus.workflow import Run, write_run

CROWD: dict[str, Any] = {
    "n_items": 600,
    "n_annotators": 60,
    "n_classes": 4,
    "n_item_clusters": 6,
    "n_annotator_clusters": 3,
    "labels_per_item": 5,
    "alpha": 0.3,
}


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
class Demo:
    """The crowd, the contenders in order of their distance to the truth, and the run to be written."""

    simulation: Simulation
    contenders: list[Contender]
    run: Run


def demo(seed: int = 0, *, progress: ShowProgress = None) -> Demo:
    """Simulate a crowd, fit the best settings of every model, and hold each against the population."""
    simulation = simulate(**CROWD, seed=seed)
    annotations = simulation.annotations
    chosen, table = choose_model(annotations, seed, progress=progress)
    raw = EmpiricalDistribution(smoothing=0.0)
    contenders = [_contender("raw counts", raw, None, simulation)]
    contenders += [
        _contender(name_of(row.model), row.model, row.score, simulation) for row in best_of_each(table)
    ]
    # The chosen model is one of the contenders, and fitted with them.
    run = Run(annotations, chosen, table, True, seed)
    return Demo(simulation, sorted(contenders, key=lambda one: one.kl.value), run)


def best_of_each(table: Sequence[HeldOut]) -> list[HeldOut]:
    """Of every kind of model, the settings with the highest held-out score."""
    best: dict[str, HeldOut] = {}
    for row in table:
        name = name_of(row.model)
        if name not in best or row.score > best[name].score:
            best[name] = row
    return list(best.values())


def _contender(name: str, model: Model, score: float | None, simulation: Simulation) -> Contender:
    fitted = model.fit(simulation.annotations)
    estimate, truth = fitted.label_distributions_, simulation.population
    return Contender(name, fitted, bootstrap_interval(kl, truth, estimate), accuracy(truth, estimate), score)


def write_demo(found: Demo, directory: Path, *, command: str = "", force: bool = False) -> dict[str, Any]:
    """Write the crowd, the refined labels and the comparison, all or none."""
    with output_directory(directory, force) as folder:
        write_simulation(found.simulation, folder / "crowd", settings=CROWD, command=command)
        write_run(
            found.run,
            folder / "refined",
            command=command,
            source="crowd/annotations.csv",
            page={"title": "A simulated crowd"},
        )
        rows = [contender.as_row() for contender in found.contenders]
        return write_summary(folder, {"command": command, "crowd": CROWD, "contenders": rows})
