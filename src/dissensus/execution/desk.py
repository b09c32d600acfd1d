"""What a fit has at hand beside its labels: places for messages, books for checkpoints, a watcher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dissensus.execution.checkpoints import Book, FiledBook
from dissensus.execution.messages import InMemory, OnDisk, Shelf
from dissensus.execution.progress import Progress

State = TypeVar("State")


@dataclass(frozen=True)
class Desk:
    """Where a fit keeps things."""

    scratch: Path | None = None  # where messages go; None: they stay in memory
    in_memory: float = 0.0  # share of the blocks whose messages stay in memory all the same
    dtype: Any = np.float64  # the precision of messages
    checkpoints: Callable[[], Path] | None = None  # where this very fit keeps its books; None: nowhere
    every: int = 5  # iterations between two checkpoints
    progress: Progress | None = None

    def shelf(self) -> Shelf:
        """A place for the messages between rounds."""
        if self.scratch is None:
            return InMemory(self.dtype)
        return OnDisk(self.scratch, self.dtype, self.in_memory)

    def book(self, name: str, kind: type[State]) -> Book[State]:
        """A book for states of a kind."""
        if self.checkpoints is None:
            return Book(self.progress)
        return FiledBook(self.checkpoints() / name, kind, self.every, self.progress)
