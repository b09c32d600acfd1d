"""Where a worker finds the labels: in the store they were opened from, or in files written for it."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from dissensus.data.annotations import Annotations, Origin
from dissensus.data.blocks import Codes, Labels, labels_of
from dissensus.errors import DataError, system_words
from dissensus.io.source import not_reached

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

    origin: Origin

    @property
    def key(self) -> str:
        """The store's seal."""
        return self.origin.seal

    def labels(self) -> Labels:
        """The store's columns, every byte of this machine's copy checked."""
        return labels_of(self.origin.reopen())


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
        try:
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray))
        except (OSError, ValueError, EOFError):
            raise not_reached(path, "give scratch= that every worker reaches") from None


def source_of(annotations: Annotations, scratch: Path) -> Source:
    """The store that annotations were opened from; else their columns, written to ``scratch``."""
    if annotations.origin is not None:
        return StoreSource(annotations.origin)
    key = uuid.uuid4().hex
    folder = scratch / f"labels-{key[:12]}"
    try:
        folder.mkdir(parents=True)
        for name in COLUMNS:
            with (folder / f"{name}.npy").open("xb") as file:
                np.lib.format.write_array(file, getattr(annotations, name), allow_pickle=False)
    except OSError as error:
        raise DataError(
            f"{folder}: labels cannot be written for the workers ({system_words(error)}); "
            "make room there, or name another place with scratch="
        ) from error
    return FolderSource(str(folder), key, annotations.n_annotators, annotations.n_classes)
