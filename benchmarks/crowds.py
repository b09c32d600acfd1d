"""Simulated crowds of any size, written in chunks: the paper's process with a long-tailed crowd."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from dissensus.labels.simulation import LONG_TAIL_SIGMA, assign, draw

LABELS_PER_ITEM = 5
LABELS_PER_ANNOTATOR = 1000  # mean; the median is a third of it
ITEMS_PER_CHUNK = 200_000
LABELS_PER_FILE = 10_000_000


@dataclass(frozen=True)
class SimulatedCrowd:
    """Settings of a crowd; labels are drawn while they are written."""

    n_labels: int
    n_classes: int
    n_item_clusters: int = 6
    n_annotator_clusters: int = 4
    alpha: float = 0.3
    seed: int = 0

    @property
    def n_items(self) -> int:
        """M."""
        return self.n_labels // LABELS_PER_ITEM

    @property
    def n_annotators(self) -> int:
        """N."""
        return max(50, self.n_labels // LABELS_PER_ANNOTATOR)

    def parameters(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.random.Generator]:
        """Return Θ, the annotators' clusters and loads, and the generator for everything else."""
        rng = np.random.default_rng(self.seed)
        K, L = self.n_item_clusters, self.n_annotator_clusters
        theta = rng.dirichlet(np.full(self.n_classes, self.alpha), size=(K, L))
        z = rng.integers(0, L, self.n_annotators)
        weights = rng.lognormal(0, LONG_TAIL_SIGMA, self.n_annotators)
        return theta, z, weights, rng

    def write(self, folder: Path) -> np.ndarray:
        """Write Parquet files with the items in random order, and return the items' clusters."""
        theta, z, weights, rng = self.parameters()
        K, L, P = theta.shape
        names = pa.array([f"class {p}" for p in range(P)])
        item_ids = rng.permutation(self.n_items)
        clusters = np.empty(self.n_items, np.int8)
        folder.mkdir(parents=True, exist_ok=True)
        writer, room = None, 0
        for start in range(0, self.n_items, ITEMS_PER_CHUNK):
            n = min(ITEMS_PER_CHUNK, self.n_items - start)
            w = rng.integers(0, K, n)
            annotator = assign(n, weights, LABELS_PER_ITEM, rng).ravel()
            label = draw(theta.reshape(K * L, P), np.repeat(w, LABELS_PER_ITEM) * L + z[annotator], rng)
            item = item_ids[start : start + n]
            clusters[item] = w
            columns = {"item": np.repeat(item, LABELS_PER_ITEM), "annotator": annotator}
            table = pa.table(columns | {"label": names.take(pa.array(label))})
            if room <= 0:
                if writer is not None:
                    writer.close()
                writer = parquet.ParquetWriter(folder / f"part-{start:010d}.parquet", table.schema)
                room = LABELS_PER_FILE
            writer.write_table(table)
            room -= len(table)
        if writer is not None:
            writer.close()
        return clusters
