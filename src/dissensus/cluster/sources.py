"""Where a worker finds the labels: in the store they were opened from, or in files written for it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from dissensus.annotations import Annotations
from dissensus.engine import Codes, Labels, labels_of
from dissensus.errors import DataError
from dissensus.shelf import write_array

COLUMNS = ("item", "annotator", "label")


class Source(Protocol):
    """Says which labels, and can fetch them on any machine that has the path."""

    @property
    def key(self) -> str:
        """The same for the same labels, another for others."""
        ...

    def labels(self) -> Labels:
        """The columns, mapped into memory."""
        ...


@dataclass(frozen=True)
class StoreSource:
    """A store, at a path that is the same for everyone: shared, or copied to each machine."""

    path: str
    key: str  # the manifest's seal

    def labels(self) -> Labels:
        """The store's columns, every byte of this machine's copy checked."""
        from dissensus.store.opening import open_annotations

        here = open_annotations(self.path)
        if here.stored is None or here.stored.seal != self.key:
            raise DataError(
                f"{self.path}: holds other labels on this worker's machine than on the driver's; "
                "copy the store there again"
            )
        return labels_of(here)


@dataclass(frozen=True)
class FolderSource:
    """Columns that were in the driver's memory, written to a folder that everyone can reach."""

    folder: str
    key: str
    n_annotators: int
    n_classes: int

    def labels(self) -> Labels:
        """The columns as they were written."""
        item, annotator, label = (self._mapped(name) for name in COLUMNS)
        return Labels(item, annotator, label, self.n_annotators, self.n_classes)

    def _mapped(self, name: str) -> Codes:
        path = Path(self.folder) / f"{name}.npy"
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray))


def source_of(annotations: Annotations, scratch: Path) -> Source:
    """The store that annotations were opened from; else their columns, written to ``scratch``."""
    stored = annotations.stored
    if stored is not None:
        return StoreSource(str(stored.path), stored.seal)
    key = uuid.uuid4().hex
    folder = scratch / f"labels-{key[:12]}"
    folder.mkdir(parents=True)
    for name in COLUMNS:
        write_array(folder / f"{name}.npy", getattr(annotations, name))
    return FolderSource(str(folder), key, annotations.n_annotators, annotations.n_classes)
