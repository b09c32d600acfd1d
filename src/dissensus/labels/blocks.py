"""How labels are cut for work: shards, and blocks of shards.

A shard is a run of consecutive items with their labels, small enough for a core's cache; a block is a run of
consecutive shards, and the unit of work. Where they begin and end depends on the labels alone.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dissensus.numerics import Array

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations

SHARD_LABELS = 1 << 15  # a shard's messages should fit a core's cache
LEAST_BLOCKS = 16  # more labels make more blocks of one shard until there are so many, then larger blocks
MOST_SHARDS = 64  # of a block: two million labels

Codes = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Shard:
    """Consecutive items and their labels; item codes count from the shard's first item."""

    first_item: int
    n_items: int
    n_classes: int
    item: Codes
    annotator: Codes
    label: Codes

    @cached_property
    def counts(self) -> Array:
        """(items, classes): label counts as floats, ready for products."""
        M, P = self.n_items, self.n_classes
        cells = self.item * np.int64(P) + self.label
        return np.bincount(cells, minlength=M * P).reshape(M, P).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Labels:
    """The columns of all labels, in canonical order, in memory or mapped from a file."""

    item: Codes
    annotator: Codes
    label: Codes
    n_annotators: int
    n_classes: int


@dataclass(frozen=True)
class Block:
    """Where a run of consecutive shards stands: at which items and label rows its shards begin and end."""

    items: tuple[int, ...]
    rows: tuple[int, ...]

    @property
    def n_items(self) -> int:
        """Number of items."""
        return self.items[-1] - self.items[0]

    @property
    def place(self) -> slice:
        """Where this block's items stand in a table of all items."""
        return slice(self.items[0], self.items[-1])

    def whole(self, labels: Labels) -> Shard:
        """All of it as one shard."""
        return _shard(labels, (self.items[0], self.items[-1]), (self.rows[0], self.rows[-1]))

    def shards(self, labels: Labels) -> tuple[Shard, ...]:
        """Its shards."""
        both = zip(itertools.pairwise(self.items), itertools.pairwise(self.rows), strict=True)
        return tuple(_shard(labels, items, rows) for items, rows in both)


def _shard(labels: Labels, items: tuple[int, int], rows: tuple[int, int]) -> Shard:
    first, stop = items
    part = slice(*rows)
    item = labels.item[part] - np.int32(first)
    return Shard(first, stop - first, labels.n_classes, item, labels.annotator[part], labels.label[part])


def labels_of(annotations: Annotations) -> Labels:
    """The label columns of some annotations."""
    columns = annotations.item, annotations.annotator, annotations.label
    return Labels(*columns, annotations.n_annotators, annotations.n_classes)


def shards_of(annotations: Annotations) -> tuple[Shard, ...]:
    """Cut the items into runs of about ``SHARD_LABELS`` labels; an item is never cut."""
    labels = labels_of(annotations)
    return tuple(shard for block in blocks_of(annotations) for shard in block.shards(labels))


def blocks_of(annotations: Annotations) -> tuple[Block, ...]:
    """The blocks of some annotations."""
    items = item_cuts(annotations.item_pointers)
    rows = annotations.item_pointers[items]
    n_shards = len(items) - 1
    size = shards_a_block(n_shards)
    return tuple(
        Block(tuple(items[at : at + size + 1].tolist()), tuple(rows[at : at + size + 1].tolist()))
        for at in range(0, n_shards, size)
    )


def shards_a_block(n_shards: int) -> int:
    """How many shards make a block."""
    return min(max(n_shards // LEAST_BLOCKS, 1), MOST_SHARDS)


def item_cuts(pointers: NDArray[np.int64], times: int = 1) -> NDArray[np.int64]:
    """The items at which shards begin, and the number of items; those of ``times`` > 1 are some of the rest.

    ``pointers`` (items + 1,) say where each item's labels begin.
    """
    size = times * SHARD_LABELS
    marks = np.arange(size, pointers[-1], size)
    return np.unique(np.concatenate([[0], np.searchsorted(pointers, marks), [len(pointers) - 1]]))
