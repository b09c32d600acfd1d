"""Simulated crowds of any size, written piece by piece: the paper's process with a long-tailed crowd."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from dissensus.labels.simulation import TAIL_SIGMA, assign, draw

PER_ITEM = 5
PER_ANNOTATOR = 1000  # labels of an annotator on average; in the middle it is a third of that
ITEMS_AT_ONCE = 200_000
A_FILE = 10_000_000  # labels


@dataclass(frozen=True)
class Crowd:
    """A simulated crowd; labels are drawn when they are written."""

    n_labels: int
    n_classes: int
    n_item_clusters: int = 6
    n_annotator_clusters: int = 4
    alpha: float = 0.3
    seed: int = 0

    @property
    def n_items(self) -> int:
        """M."""
        return self.n_labels // PER_ITEM

    @property
    def n_annotators(self) -> int:
        """N."""
        return max(50, self.n_labels // PER_ANNOTATOR)

    def parameters(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.random.Generator]:
        """Θ, the annotators' clusters and loads, and the generator that draws the rest."""
        rng = np.random.default_rng(self.seed)
        K, L = self.n_item_clusters, self.n_annotator_clusters
        theta = rng.dirichlet(np.full(self.n_classes, self.alpha), size=(K, L))
        z = rng.integers(0, L, self.n_annotators)
        weights = rng.lognormal(0, TAIL_SIGMA, self.n_annotators)
        return theta, z, weights, rng

    def write(self, folder: Path) -> np.ndarray:
        """Parquet files of labels, items in an order that is not that of their ids; the items' clusters."""
        theta, z, weights, rng = self.parameters()
        K, L, P = theta.shape
        names = pa.array([f"class {p}" for p in range(P)])
        number = rng.permutation(self.n_items)  # an item's id
        clusters = np.empty(self.n_items, np.int8)
        folder.mkdir(parents=True, exist_ok=True)
        writer, left = None, 0
        for start in range(0, self.n_items, ITEMS_AT_ONCE):
            n = min(ITEMS_AT_ONCE, self.n_items - start)
            w = rng.integers(0, K, n)
            annotator = assign(n, weights, PER_ITEM, rng).ravel()
            label = draw(theta.reshape(K * L, P), np.repeat(w, PER_ITEM) * L + z[annotator], rng)
            item = number[start : start + n]
            clusters[item] = w
            table = pa.table(
                {
                    "item": np.repeat(item, PER_ITEM),
                    "annotator": annotator,
                    "label": names.take(pa.array(label)),
                }
            )
            if left <= 0:
                if writer is not None:
                    writer.close()
                writer, left = (
                    parquet.ParquetWriter(folder / f"part-{start:010d}.parquet", table.schema),
                    A_FILE,
                )
            writer.write_table(table)
            left -= len(table)
        if writer is not None:
            writer.close()
        return clusters
