"""Engine of fits with a memory limit or checkpoints.

It extends :class:`dissensus.engine.Engine`. Block layouts are cached while they fit into the memory limit and
rebuilt for every step otherwise; arrays that do not fit are mapped from files. Sums are added in the same
order, so the result is identical bit by bit.
"""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import Block, Blocks, Engine, cut_blocks
from dissensus.labels.annotations import Annotations
from dissensus.large.file_arrays import FileArrays


class Budget:
    """Memory budget of layouts and messages in bytes; None is no limit."""

    def __init__(self, n_bytes: int | None) -> None:
        self.unlimited = n_bytes is None
        self._remaining = math.inf if n_bytes is None else n_bytes
        self._lock = threading.Lock()

    def reserve(self, n_bytes: int) -> bool:
        """Reserve ``n_bytes`` if available, and return whether they were."""
        with self._lock:
            fits = n_bytes <= self._remaining
            self._remaining -= n_bytes if fits else 0
            return fits

    def release(self, n_bytes: int) -> None:
        """Return reserved bytes to the budget."""
        with self._lock:
            self._remaining += n_bytes


@dataclass(eq=False, kw_only=True)
class LargeEngine(Engine):
    """Threads of this process, within a memory limit."""

    budget: Budget
    scratch: Callable[[], Path]  # creates the directory for files on first call

    def __post_init__(self) -> None:
        self.files = FileArrays(self.scratch)

    def blocks(self, labels: Annotations, lay_out: Callable[[Block], Any]) -> Blocks:
        """Divide labels into blocks, each converted to a layout by ``lay_out``."""
        return BudgetedBlocks(self, cut_blocks(labels), lay_out)

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
        """Return an uninitialised array, in memory if it fits into the budget."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if not self.budget.reserve(size):
            return self.files.empty(shape, dtype)
        if self.budget.unlimited:
            return super().empty(shape, dtype)
        array = np.empty(shape, dtype)  # the parent class may reuse memory outside the budget
        weakref.finalize(array, self.budget.release, size)
        return array


class BudgetedBlocks(Blocks):
    """Blocks whose layouts are cached as far as the budget allows."""

    engine: LargeEngine

    def layout(self, number: int) -> Any:
        """Return the layout of a block, and cache it if it fits into the budget."""
        layout = self.layouts.get(number)
        if layout is None:
            layout = self.lay_out(self.blocks[number])
            size = n_bytes(layout)
            if self.engine.budget.reserve(size):
                self.layouts[number] = layout
                weakref.finalize(self, self.engine.budget.release, size)
        return layout


def n_bytes(value: Any) -> int:
    """Return the size of the arrays, sparse matrices, and dataclasses and tuples of them in a layout."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, tuple):
        return sum(map(n_bytes, value))
    if hasattr(value, "indptr"):
        return int(value.data.nbytes + value.indices.nbytes + value.indptr.nbytes)
    if is_dataclass(value):
        return sum(n_bytes(getattr(value, field.name)) for field in fields(value))
    return 0
