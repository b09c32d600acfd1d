"""What a fit has at hand beside its labels: places for messages, books for checkpoints, a watcher."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dissensus.checkpoints import Book, FiledBook, Watch
from dissensus.shelf import InMemory, OnDisk, Shelf

State = TypeVar("State")


@dataclass(frozen=True)
class Desk:
    """Where a fit keeps things."""

    scratch: Path | None = None  # where messages go; None: they stay in memory
    dtype: Any = np.float64  # the precision of messages
    checkpoints: Path | None = None  # where this very fit keeps its books; None: nowhere
    every: int = 5  # iterations between two checkpoints
    watch: Watch | None = None

    def shelf(self) -> Shelf:
        """A place for the messages between rounds."""
        return InMemory(self.dtype) if self.scratch is None else OnDisk(self.scratch, self.dtype)

    def book(self, name: str, kind: type[State]) -> Book[State]:
        """A book for states of a kind."""
        if self.checkpoints is None:
            return Book(self.watch)
        return FiledBook(self.checkpoints / name, kind, self.every, self.watch)


@contextmanager
def scratch_below(folder: Path | None) -> Iterator[Path]:
    """A folder for messages that is gone afterwards."""
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dissensus-messages-", dir=folder) as name:
        yield Path(name)
