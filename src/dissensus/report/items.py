"""Items: what the model says of each and how sure it is, where it does not give the most frequent label and
why, and a map on which near ones are alike."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.annotators import sentences
from dissensus.annotators.findings import Findings
from dissensus.evaluate.sides import most_frequent
from dissensus.labels.annotations import Annotations
from dissensus.models.base import Model
from dissensus.numerics import Array
from dissensus.report.clusters import Grouping
from dissensus.report.quality import gold_decides

MOST_EXPLAINED = 300  # overturned labels that get a sentence
TEXT_COLUMNS = ("text", "sentence", "content", "comment", "tweet", "document", "title", "question")
FEATURES = "features"  # the column of the item table that holds them
GRID = 1000  # places are whole numbers from 0 to this
SEED_GAP = 4.0  # between items that share a place
GOLDEN = np.pi * (3 - np.sqrt(5))  # the angle between one seed and the next


def texts_of(annotations: Annotations, column: str | None = None) -> list[str] | None:
    """The items' texts: the named column of their table, or one that is called as texts usually are."""
    table = annotations.item_table
    if column is None:
        names = [] if table is None else table.column_names[1:]
        column = next((name for name in TEXT_COLUMNS if name in names), None)
        if column is None:
            return None
    return ["" if text is None else str(text) for text in annotations.item_column(column)]


def item_columns(found: Findings, shown: Grouping | None, texts: list[str] | None) -> dict[str, Any]:
    """One list a column, one entry an item; distributions in thousandths, row after row."""
    model, annotations = found.model, found.annotations
    chances = model.label_distributions_
    columns: dict[str, Any] = {
        "id": [str(name) for name in annotations.items],
        "label": chances.argmax(axis=1),
        "p": np.rint(1000 * chances).astype(int).ravel(),
        "n": annotations.counts.sum(axis=1),
        "most": most_frequent(annotations.counts),
        "agreed": np.rint(1000 * found.raw.max(axis=1)).astype(int),
        "flags": found.flags,
    }
    known, narrow = found.known, found.narrowing()
    if known is not None and narrow is not None:
        # how sure the label is, the interval of its share, what one more label would narrow
        label = columns["label"][:, None]
        low, high = (np.take_along_axis(end, label, axis=1)[:, 0] for end in (known.low, known.high))
        columns |= {
            "low": np.rint(1000 * low).astype(int),
            "high": np.rint(1000 * high).astype(int),
            "sure": np.round(known.sure, 2),
            "next": np.rint(1000 * (narrow[0] - narrow[1])).astype(int),
        }
    if annotations.gold is not None:
        columns["gold"] = annotations.gold
    if texts is not None:
        columns["text"] = texts
    if shown is not None:
        columns["cluster"] = shown.items.argmax(axis=1)
    return columns


def overturned(found: Findings, own: Grouping | None) -> list[dict[str, Any]]:
    """Items whose single most frequent label the model does not give, the clearest first, and why."""
    annotations, chances = found.annotations, found.model.label_distributions_
    counts = annotations.counts
    given, most = chances.argmax(axis=1), most_frequent(counts)
    items = np.flatnonzero(found.overturned)
    lead = chances[items, given[items]] - chances[items, most[items]]
    items = items[np.argsort(-lead, kind="stable")][:MOST_EXPLAINED]
    names = [str(name) for name in annotations.classes]
    decided = annotations.gold if gold_decides(found.model, annotations) else None
    cluster, totals = None, np.zeros((0, annotations.n_classes))
    if own is not None and not own.true_classes:
        cluster, totals = own.items.argmax(axis=1), np.zeros((own.sizes[0], annotations.n_classes))
        np.add.at(totals, cluster, counts)  # labels that each cluster's items got
    explained = []
    for m in items.tolist():
        sides = alike = None
        both = [given[m], most[m]]
        if found.standing is not None:
            # mean agreement with others, over all their labels, of those who said either class
            rows = slice(annotations.item_pointers[m], annotations.item_pointers[m + 1])
            agreement, label = found.standing.agreement[annotations.annotator[rows]], annotations.label[rows]
            said = [agreement[(label == side) & np.isfinite(agreement)] for side in both]
            sides = (float(said[0].mean()), float(said[1].mean())) if len(said[0]) and len(said[1]) else None
        if cluster is not None:
            # the other items of its cluster, and the shares of both classes among their labels
            others = np.flatnonzero((cluster == cluster[m]) & (np.arange(len(cluster)) != m))
            got = totals[cluster[m]] - counts[m]
            alike = (others, *(got[both] / got.sum()).tolist()) if got.sum() else None
        gold = decided is not None and bool(decided[m] >= 0)
        why = sentences.overturned_sentence(m, counts[m], int(given[m]), names, sides, alike, gold=gold)
        explained.append({"item": m, "why": why})
    return explained


# ---- the map ------------------------------------------------------------------------------------------


def map_content(model: Model, annotations: Annotations, grouping: Grouping | None) -> dict[str, Any]:
    """Places on a square grid, and in a few words what they come from."""
    rows, source = _rows(model, annotations, grouping)
    on_grid = fanned(_on_grid(principal_plane(rows)))
    return {"x": on_grid[:, 0], "y": on_grid[:, 1], "words": f"principal components of {source}"}


def _rows(model: Model, annotations: Annotations, grouping: Grouping | None) -> tuple[NDArray[Any], str]:
    """What tells items apart: their features, or the answers expected of each group."""
    table = annotations.item_table
    if table is not None and FEATURES in table.column_names:
        from dissensus.labels.features import features_of

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


def fanned(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """Items that share a place laid out around it like seeds in a sunflower, so that none hides another."""
    _, place, size = np.unique(places, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(place.ravel(), kind="stable")
    rank = np.empty(len(places), dtype=np.intp)
    rank[order] = np.arange(len(places)) - np.repeat(np.cumsum(size) - size, size)
    step = min(SEED_GAP, GRID / 12 / float(np.sqrt(size.max())))
    angle, radius = GOLDEN * rank, step * np.sqrt(rank)
    return _on_grid(places + np.column_stack([radius * np.cos(angle), radius * np.sin(angle)]))


def _on_grid(places: Array) -> NDArray[np.int64]:
    """Stretched to fill the square from 0 to ``GRID`` in both directions."""
    low, high = places.min(axis=0), places.max(axis=0)
    width = np.where(high > low, high - low, 1.0)
    spread: Array = np.where(high > low, (places - low) / width, 0.5)
    return np.rint(GRID * spread).astype(np.int64)
