"""Averages of predictions, made from the predictions in the cells' files.

An ensemble's members are the runs of a column. Two columns are blended with the weight that has the lowest KL
on dev.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dissensus.metrics import kl
from dissensus.paper.datasets import Array
from dissensus.paper.measures import scores

WEIGHTS = np.linspace(0.0, 1.0, 21)

SEEDS = {
    "encoder_ensemble": ("FineTunedEncoder, seeds averaged", "encoder"),
    "ldlnm_default_ensemble": ("LDL-NM, defaults, seeds averaged", "ldlnm_default"),
}
BLEND = "blend"
BLENDED = ("encoder", "ldlnm_default")
BLEND_TITLE = "FineTunedEncoder and LDL-NM, blended"


@dataclass(frozen=True, eq=False)
class Ensemble:
    """One prediction out of many."""

    title: str
    dev: dict[str, float]
    test: dict[str, float]
    prediction: Array  # (test items, classes)
    files: tuple[str, ...]
    weight: float | None = None  # of the first of two


def blend_weight(gold: Array, first: Array, second: Array) -> float:
    """The weight of ``first`` at which the mixture has the lowest KL; of equals, the smallest."""
    reached = [kl(gold, weight * first + (1 - weight) * second) for weight in WEIGHTS]
    return float(WEIGHTS[int(np.argmin(reached))])


def ensembles_of(
    predicted: Callable[[str, str], Array],
    files: Callable[[Sequence[str]], tuple[str, ...]],
    dev: Array,
    test: Array,
) -> dict[str, Ensemble]:
    """Every ensemble of a dataset; ``predicted(column, part)`` gives (runs, items, classes)."""
    mean = {key: {part: predicted(key, part).mean(axis=0) for part in ("dev", "test")} for key in BLENDED}
    made = {
        name: Ensemble(
            title,
            scores(dev, mean[key]["dev"]),
            scores(test, mean[key]["test"]),
            mean[key]["test"],
            files([key]),
        )
        for name, (title, key) in SEEDS.items()
    }
    first, second = (mean[key] for key in BLENDED)
    weight = blend_weight(dev, first["dev"], second["dev"])
    both = {part: weight * first[part] + (1 - weight) * second[part] for part in ("dev", "test")}
    made[BLEND] = Ensemble(
        BLEND_TITLE,
        scores(dev, both["dev"]),
        scores(test, both["test"]),
        both["test"],
        files(BLENDED),
        weight,
    )
    return made
