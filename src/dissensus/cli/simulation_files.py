"""A simulated crowd as files, its truth beside its labels.

::

    annotations.csv   item, annotator, label
    population.csv    what the whole population would answer: the columns of a run's labels.csv, and the
                      cluster each item was drawn from
    annotators.csv    annotator, n_labels, and the cluster each annotator was drawn from
    summary.json      the settings, and Θ, ψ, Ω
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dissensus.data.simulation import Simulation
from dissensus.io.results import label_table, output_directory, write_csv, write_summary
from dissensus.metrics import entropy_rows


def write_simulation(
    simulation: Simulation,
    directory: Path,
    *,
    settings: Mapping[str, Any] | None = None,
    command: str = "",
    force: bool = False,
) -> dict[str, Any]:
    """Write labels and truth, all or none, and give back the summary."""
    with output_directory(directory, force) as folder:
        write_csv(label_table(simulation.annotations), folder / "annotations.csv")
        write_csv(population_table(simulation), folder / "population.csv")
        write_csv(annotator_truth(simulation), folder / "annotators.csv")
        truth = {name: getattr(simulation, name) for name in ("theta", "psi", "omega")}
        return write_summary(folder, {"command": command, "settings": dict(settings or {}), "truth": truth})


def population_table(simulation: Simulation) -> Any:
    """One row an item: what the population would answer, and the cluster it was drawn from."""
    import pandas as pd

    labels, population = simulation.annotations, simulation.population
    columns = {"item": labels.items, "label": labels.classes[population.argmax(axis=1)]}
    columns |= {f"p_{name}": population[:, p] for p, name in enumerate(labels.classes)}
    columns |= {"entropy": entropy_rows(population), "n_labels": labels.counts.sum(axis=1)}
    return pd.DataFrame(columns | {"cluster": simulation.item_cluster})


def annotator_truth(simulation: Simulation) -> Any:
    """One row an annotator: labels given, and the cluster it was drawn from."""
    import pandas as pd

    labels = simulation.annotations
    return pd.DataFrame(
        {
            "annotator": labels.annotators,
            "n_labels": labels.annotator_load,
            "cluster": simulation.annotator_cluster,
        }
    )
