"""What a winner is held against: smoothed counts and FMM, each with its best settings on the same splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dissensus.data.annotations import Annotations
from dissensus.params import with_settings
from dissensus.selection.criteria import Criterion, DevItems, HeldOutLabels
from dissensus.selection.grid import Settings
from dissensus.selection.information import InformationCriterion
from dissensus.selection.trials import Candidate

References = Mapping[str, Sequence[Any]]

FMM_SIZES = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 20, 24, 30, 40)
AMOUNTS = tuple(np.geomspace(0.01, 10.0, 13).round(4).tolist())  # pseudo-labels added to every class


def reference_candidates(
    estimator: Any, annotations: Annotations, criterion: Criterion, given: References | None
) -> list[Candidate]:
    """The references given, or those that the criterion can judge; none for a function of the user's own."""
    if given is not None:
        return [
            Candidate(name, {"model": repr(one)}, with_settings(one, {}))
            for name, several in given.items()
            for one in several
        ]
    wanted = _comparable(criterion)
    tables = {"FMM": _mixtures(annotations), "counts": _counts()}
    return [
        Candidate(name, settings, with_settings(model, settings))
        for name, (model, grid) in tables.items()
        if name in wanted and type(model) is not type(estimator)
        for settings in grid
    ]


def _comparable(criterion: Criterion) -> tuple[str, ...]:
    if isinstance(criterion, HeldOutLabels | DevItems):
        return ("FMM", "counts")
    if isinstance(criterion, InformationCriterion) and criterion.name != "evidence":
        return ("FMM",)
    return ()


def _mixtures(annotations: Annotations) -> tuple[Any, list[Settings]]:
    from dissensus.models.fmm import FMM

    sizes = [size for size in FMM_SIZES if size <= max(annotations.n_items, 1)]
    return FMM(), [{"n_item_clusters": size} for size in sizes]


def _counts() -> tuple[Any, list[Settings]]:
    from dissensus.models.empirical import EmpiricalDistribution

    return EmpiricalDistribution(), [{"smoothing": amount} for amount in (None, *AMOUNTS)]
