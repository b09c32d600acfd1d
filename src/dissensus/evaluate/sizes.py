"""Numbers of clusters that fit the labels: said here once, for ``auto``, ``select`` and ``reproduction/``.

A model with K clusters of items, L of annotators and P classes learns K L (P − 1) shares. It fits labels that
have as many items as K, as many annotators as L, and a label for every share:

    K ≤ items,   L ≤ annotators,   K L (P − 1) ≤ labels.

Beyond that clusters stay empty or share what cannot be told apart, and the time they take is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dissensus.labels.annotations import Annotations
from dissensus.models import CLUSTER_SETTINGS


def fits(settings: Mapping[str, Any], annotations: Annotations) -> bool:
    """Whether a model with these settings is not too large for the labels; without clusters, it has one."""
    sizes = [_whole(settings.get(setting)) for setting in CLUSTER_SETTINGS]
    there_are = [getattr(annotations, size) for size in CLUSTER_SETTINGS.values()]
    if any(n > max(most, 1) for n, most in zip(sizes, there_are, strict=True)):
        return False
    K, L = sizes
    # K L (P − 1) ≤ labels; a single cluster is what any labels bear
    return K * L == 1 or K * L * (annotations.n_classes - 1) <= annotations.n_labels


def fitting_cells(
    estimator: Any, cells: Sequence[dict[str, Any]], annotations: Annotations
) -> list[dict[str, Any]]:
    """The cells of a grid that fit the labels; all where none does, or where sizes are upper bounds."""
    if getattr(estimator, "_sizes_are_bounds", False):
        return list(cells)
    usual = estimator.get_params()
    return [cell for cell in cells if fits({**usual, **cell}, annotations)] or list(cells)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 1
