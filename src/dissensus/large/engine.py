"""The engine of fits that need more than a plain one: a memory limit, and checkpoints.

It has the methods of :class:`dissensus.engine.Engine`. Layouts of blocks are kept as long as they fit into
the memory allowed, and built anew for every step otherwise; arrays that do not fit are mapped from files.
Sums are added in the same order, so that none of this changes a bit of the result.
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
    """Bytes that layouts and messages may take; None is no limit."""

    def __init__(self, n_bytes: int | None) -> None:
        self.unlimited = n_bytes is None
        self._left = math.inf if n_bytes is None else n_bytes
        self._changing = threading.Lock()

    def take(self, n_bytes: int) -> bool:
        """Take so many bytes, if they are there."""
        with self._changing:
            fits = n_bytes <= self._left
            self._left -= n_bytes if fits else 0
            return fits

    def give_back(self, n_bytes: int) -> None:
        """Free bytes that were taken."""
        with self._changing:
            self._left += n_bytes


@dataclass(eq=False, kw_only=True)
class LargeEngine(Engine):
    """Threads of this process, within a memory limit."""

    budget: Budget
    scratch: Callable[[], Path]  # makes the directory for files, when first asked for

    def __post_init__(self) -> None:
        self.files = FileArrays(self.scratch)

    def blocks(self, labels: Annotations, lay_out: Callable[[Block], Any]) -> Blocks:
        """Cut labels into blocks, each laid out for a model's steps by ``lay_out``."""
        return BudgetedBlocks(self, cut_blocks(labels), lay_out)

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
        """An array for a step to fill, in memory if it fits there."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if not self.budget.take(size):
            return self.files.empty(shape, dtype)
        if self.budget.unlimited:
            return super().empty(shape, dtype)
        array = np.empty(shape, dtype)  # unused memory would not be in the budget
        weakref.finalize(array, self.budget.give_back, size)
        return array


class BudgetedBlocks(Blocks):
    """Blocks of which some layouts stay in memory."""

    engine: LargeEngine

    def layout(self, number: int) -> Any:
        """The layout of a block, kept if it fits into the budget."""
        layout = self.layouts.get(number)
        if layout is None:
            layout = self.lay_out(self.blocks[number])
            size = n_bytes(layout)
            if self.engine.budget.take(size):
                self.layouts[number] = layout
                weakref.finalize(self, self.engine.budget.give_back, size)
        return layout


def n_bytes(value: Any) -> int:
    """Bytes of the arrays in a layout: arrays, sparse matrices, and dataclasses and tuples of them."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, tuple):
        return sum(map(n_bytes, value))
    if hasattr(value, "indptr"):
        return int(value.data.nbytes + value.indices.nbytes + value.indptr.nbytes)
    if is_dataclass(value):
        return sum(n_bytes(getattr(value, field.name)) for field in fields(value))
    return 0
