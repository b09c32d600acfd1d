"""The map: a place in the plane for every item, near ones alike."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dissensus.data.annotations import Annotations
from dissensus.errors import bad_parameter
from dissensus.models.base import Model
from dissensus.numerics import Array
from dissensus.report.grouping import Grouping

Projection = Literal["auto", "pca", "tsne"]
FEATURES = "features"  # the column of the item table that holds them
GRID = 1000  # places are whole numbers from 0 to this
SEED_GAP = 4.0  # between items that share a place
GOLDEN = np.pi * (3 - np.sqrt(5))  # the angle between one seed and the next


def map_content(
    model: Model, annotations: Annotations, grouping: Grouping | None, projection: Projection, seed: int
) -> dict[str, Any]:
    """Places on a square grid, and in a few words what they come from."""
    if projection not in ("auto", "pca", "tsne"):
        raise bad_parameter("write_report", "projection", "'auto', 'pca' or 'tsne'", projection)
    rows, source = _rows(model, annotations, grouping)
    if projection == "tsne":
        places, how = _neighbours(rows, seed), "t-SNE"
    else:
        places, how = principal_plane(rows), "principal components"
    on_grid = fanned(_on_grid(places))
    return {"x": on_grid[:, 0], "y": on_grid[:, 1], "words": f"{how} of {source}"}


def _rows(model: Model, annotations: Annotations, grouping: Grouping | None) -> tuple[NDArray[Any], str]:
    """What tells items apart: their features, or the answers expected of each group."""
    table = annotations.item_table
    if table is not None and FEATURES in table.column_names:
        from dissensus.features.features import features_of

        return features_of(annotations), "the items' features"
    # Square roots: Euclidean distance between them is Hellinger's between distributions.
    if grouping is not None and grouping.annotators is not None:
        answers = grouping.expected(slice(None)) * grouping.weights[:, None]
        return np.sqrt(answers.reshape(len(answers), -1)), "what each group of annotators would answer"
    return np.sqrt(model.label_distributions_), "the items' label distributions"


def principal_plane(rows: NDArray[Any]) -> Array:
    """(items, 2): the two directions in which the rows vary most."""
    centred = np.asarray(rows, dtype=np.float64) - rows.mean(axis=0)
    _, directions = np.linalg.eigh(centred.T @ centred)
    plane = centred @ directions[:, ::-1][:, :2]
    # A direction has no sign of its own: the largest deviation points up, whatever the library gave.
    signs = np.sign(plane[np.abs(plane).argmax(axis=0), np.arange(plane.shape[1])])
    plane = plane * np.where(signs == 0, 1.0, signs)
    return plane if plane.shape[1] == 2 else np.column_stack([plane, np.zeros(len(plane))])


def _neighbours(rows: NDArray[Any], seed: int) -> Array:
    from dissensus.report.projection import project_2d

    return project_2d(rows, seed=seed)


def fanned(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Items that share a place laid out around it like seeds in a sunflower, so that none hides another."""
    _, place, size = np.unique(places, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(place.ravel(), kind="stable")
    rank = np.empty(len(places), dtype=np.intp)
    rank[order] = np.arange(len(places)) - np.repeat(np.cumsum(size) - size, size)
    step = min(SEED_GAP, GRID / 12 / float(np.sqrt(size.max())))
    angle, radius = GOLDEN * rank, step * np.sqrt(rank)
    moved = places + np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    return _on_grid(moved)


def _on_grid(places: Array) -> NDArray[np.int64]:
    """Stretched to fill the square from 0 to ``GRID`` in both directions."""
    low, high = places.min(axis=0), places.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    spread: Array = np.where(high > low, (places - low) / width, 0.5)
    return np.rint(GRID * spread).astype(np.int64)
