"""(item, annotator) pairs in a random order within their items: what folding-in and reserving draw from.

A pair is never cut: whoever sees one of its labels sees them all.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dissensus.data.annotations import Annotations
from dissensus.data.rows import pointers


def pair_items(annotations: Annotations) -> NDArray[np.int64]:
    """(pairs,): the item of each pair."""
    first = np.flatnonzero(np.diff(annotations.pair, prepend=-1))
    return annotations.item[first].astype(np.int64)


def pairs_per_item(annotations: Annotations) -> NDArray[np.int64]:
    """(items,): how many annotators labelled each item."""
    return np.bincount(pair_items(annotations), minlength=annotations.n_items)


def random_places(annotations: Annotations, rng: np.random.Generator) -> NDArray[np.int64]:
    """(pairs,): the place of each pair, from 0, in a random order of its item's pairs."""
    item = pair_items(annotations)
    order = np.lexsort((rng.random(len(item)), item))
    places = np.empty(len(item), dtype=np.int64)
    places[order] = np.arange(len(item)) - pointers(item, annotations.n_items)[item]
    return places


def take_pairs(annotations: Annotations, chosen: NDArray[np.bool_]) -> Annotations:
    """The label rows of some pairs; every vocabulary and side table stays."""
    return annotations.take_rows(chosen[annotations.pair])
