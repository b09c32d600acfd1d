"""Items: what the model says of each, where it overturns the majority and why, which need a label more, and a
map on which near ones are alike."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma

from dissensus.data.annotations import Annotations
from dissensus.errors import bad_parameter
from dissensus.metrics import entropy_rows
from dissensus.models.base import Model
from dissensus.numerics import Array
from dissensus.report import sentences
from dissensus.report.clusters import Grouping

Projection = Literal["auto", "pca", "tsne"]

UNCLEAR = -1  # in place of a class: no label, or several most frequent ones
MOST_EXPLAINED = 300  # overturned majorities that get a sentence
TEXT_COLUMNS = ("text", "sentence", "content", "comment", "tweet", "document", "title", "question")
FEATURES = "features"  # the column of the item table that holds them
GRID = 1000  # places are whole numbers from 0 to this
SEED_GAP = 4.0  # between items that share a place
GOLDEN = np.pi * (3 - np.sqrt(5))  # the angle between one seed and the next


def majority(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """(items,): the single most frequent class, −1 where there is none."""
    top = counts.max(axis=1, keepdims=True)
    single = (counts == top).sum(axis=1) == 1
    return np.where(single & (top[:, 0] > 0), counts.argmax(axis=1), UNCLEAR)


def need_of_label(model: Model, own: Grouping | None, counts: NDArray[np.int64]) -> Array:
    """(items,): what one more label of an average annotator is expected to tell, in nats.

    With clusters it is the information between that label and the item's cluster,
    H(Σ_k w_mk θ_k) − Σ_k w_mk H(θ_k). Without, it is that between the label and the item's distribution,
    which is Dirichlet around the model's with one label's weight, after the labels already given.
    """
    if own is not None:
        answers = own.cluster_answers
        told = entropy_rows(own.items @ answers) - own.items @ entropy_rows(answers)
        return np.maximum(told, 0.0)
    a = counts + np.maximum(model.label_distributions_, 1e-9)
    total = a.sum(axis=1, keepdims=True)
    # E H(p) = Ψ(A + 1) − Σ_c a_c/A Ψ(a_c + 1) for p ~ Dir(a)
    expected = digamma(total[:, 0] + 1) - (a / total * digamma(a + 1)).sum(axis=1)
    return np.asarray(np.maximum(entropy_rows(a / total) - expected, 0.0))


def texts_of(annotations: Annotations, column: str | None = None) -> list[str] | None:
    """The items' texts: the named column of their table, or one that is called as texts usually are."""
    table = annotations.item_table
    if column is None:
        names = [] if table is None else table.column_names[1:]
        column = next((name for name in TEXT_COLUMNS if name in names), None)
        if column is None:
            return None
    return ["" if text is None else str(text) for text in annotations.item_column(column)]


def item_columns(
    model: Model,
    annotations: Annotations,
    own: Grouping | None,
    shown: Grouping | None,
    texts: list[str] | None,
) -> dict[str, Any]:
    """One list a column, one entry an item; distributions in thousandths, row after row.

    ``own`` are the model's clusters and groups, ``shown`` those of the page.
    """
    chances = model.label_distributions_
    columns: dict[str, Any] = {
        "id": [str(name) for name in annotations.items],
        "label": decisions(model),
        "p": np.rint(1000 * chances).astype(int).ravel(),
        "entropy": np.round(entropy_rows(chances), 3),
        "n": annotations.counts.sum(axis=1),
        "majority": majority(annotations.counts),
        "need": np.round(need_of_label(model, own, annotations.counts), 4),
    }
    columns |= uncertainty(model)
    if texts is not None:
        columns["text"] = texts
    if shown is not None:
        columns["cluster"] = shown.items.argmax(axis=1)
    if shown is not None and shown.divides:
        columns["divided"] = np.round(shown.divided(), 4)
    return columns


def uncertainty(model: Model) -> dict[str, Any]:
    """How sure the label is, and the ends of the interval of its share in thousandths; nothing if unknown."""
    known = model.intervals()
    if known is None:
        return {}
    label = decisions(model)[:, None]
    low, high = (np.take_along_axis(end, label, axis=1)[:, 0] for end in (known.low, known.high))
    return {
        "low": np.rint(1000 * low).astype(int),
        "high": np.rint(1000 * high).astype(int),
        "sure": np.round(known.sure, 2),
    }


def true_classes(model: Model) -> bool:
    """Whether the model was asked for a true class rather than for what the population would say."""
    return getattr(model, "estimate", None) == "truth"


def decisions(model: Model) -> NDArray[np.intp]:
    """(items,): the class that the model gives, by code."""
    return np.asarray(model.label_distributions_.argmax(axis=1))


def overturned_places(model: Model, annotations: Annotations) -> NDArray[np.intp]:
    """Items whose single most frequent label is not the one that the model gives."""
    most = majority(annotations.counts)
    return np.flatnonzero((most != UNCLEAR) & (most != decisions(model)))


def overturned(
    model: Model, annotations: Annotations, own: Grouping | None, information: Array | None
) -> list[dict[str, Any]]:
    """Items whose single most frequent label the model does not give, the clearest first, and why."""
    given, most = decisions(model), majority(annotations.counts)
    places = overturned_places(model, annotations)
    chances = model.label_distributions_
    lead = chances[places, given[places]] - chances[places, most[places]]
    places = places[np.argsort(-lead, kind="stable")][:MOST_EXPLAINED]
    return [
        {
            "item": int(m),
            "why": _why(int(m), model, annotations, own, information, int(given[m]), int(most[m])),
        }
        for m in places
    ]


def _why(
    m: int,
    model: Model,
    annotations: Annotations,
    own: Grouping | None,
    information: Array | None,
    given: int,
    most: int,
) -> str:
    names = [str(name) for name in annotations.classes]
    counts = annotations.counts[m]
    cluster = None
    if own is not None and not own.true_classes:
        k = int(own.items[m].argmax())
        cluster = (k, float(own.cluster_answers[k, given]), float(own.cluster_answers[k, most]))
    return sentences.why_overturned(
        names[given],
        names[most],
        (int(counts[given]), int(counts[most]), int(counts.sum())),
        float(model.label_distributions_[m, given]),
        true_classes(model),
        None if information is None else _information_by_side(m, annotations, information, given, most),
        cluster,
    )


def _information_by_side(
    m: int, annotations: Annotations, information: Array, given: int, most: int
) -> tuple[float, float]:
    """Mean information per label of those who said the model's class, and the majority's."""
    rows = slice(annotations.item_pointers[m], annotations.item_pointers[m + 1])
    told, label = information[annotations.annotator[rows]], annotations.label[rows]
    sides = [told[label == side] for side in (given, most)]
    means = [float(np.nanmean(side)) if np.isfinite(side).any() else float("nan") for side in sides]
    return means[0], means[1]


# ---- the map ------------------------------------------------------------------------------------------


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
        from dissensus.features.items import features_of

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
