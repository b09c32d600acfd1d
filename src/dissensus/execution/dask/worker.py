"""What runs on a worker: steps over some blocks, their layouts kept from one round to the next."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dissensus.data.blocks import Block, Labels
from dissensus.execution.dask.sources import Source
from dissensus.execution.messages import read_array
from dissensus.execution.threads import Layout, one_blas_thread

MOST_SOURCES = 2  # labels that a worker keeps laid out at the same time


@dataclass(frozen=True)
class Task:
    """Some consecutive blocks, and what each of them is given of its own."""

    source: Source
    layout: Layout
    most_labels: int | None  # of which a worker keeps layouts in memory; None: of all
    first: int  # which of all blocks is the first of these
    blocks: Sequence[Block]
    own: Sequence[tuple[Any, ...]]


@dataclass(frozen=True)
class FiledTable:
    """An argument that is large: read where it is used."""

    path: str


def run_blocks(task: Task, step: Callable[..., Any], common: dict[str, Any]) -> list[Any]:
    """The step's result for every block of a task."""
    laid_out = _laid_out(task)
    common = {
        name: read_array(Path(value.path)) if isinstance(value, FiledTable) else value
        for name, value in common.items()
    }
    with one_blas_thread():
        return [
            step(laid_out.layout(task, block), *own, **common)
            for block, own in zip(task.blocks, task.own, strict=True)
        ]


# ---- layouts that stay --------------------------------------------------------------------------------


@dataclass
class _LaidOut:
    """The labels of one source, and the layouts of some of its blocks."""

    labels: Labels
    layouts: dict[Block, Any] = field(default_factory=dict)

    @property
    def n_labels(self) -> int:
        return sum(block.rows[-1] - block.rows[0] for block in self.layouts)

    def layout(self, task: Task, block: Block) -> Any:
        found = self.layouts.get(block)
        if found is None:
            found = task.layout(block, self.labels)
            with _changing:
                if task.most_labels is None or _room_for(block, self, task.most_labels):
                    self.layouts[block] = found
        return found


_kept: OrderedDict[tuple[str, str], _LaidOut] = OrderedDict()  # the one used last is last
_changing = threading.Lock()  # held for a moment only
_opening = threading.Lock()  # held while labels are fetched, which may take long


def _laid_out(task: Task) -> _LaidOut:
    key = task.source.key, getattr(task.layout, "__qualname__", repr(task.layout))
    with _opening:
        found = _kept.get(key) or _LaidOut(task.source.labels())
        with _changing:
            _kept[key] = found
            _kept.move_to_end(key)
            while len(_kept) > MOST_SOURCES:
                _kept.popitem(last=False)
        return found


def forget(key: str) -> None:
    """Drop the labels of a source, with all that is laid out of them."""
    with _changing:
        for name in [name for name in _kept if name[0] == key]:
            del _kept[name]


def _room_for(block: Block, own: _LaidOut, most_labels: int) -> bool:
    """Is there room for one more, once others' layouts have made way?"""
    left = most_labels - (block.rows[-1] - block.rows[0]) - own.n_labels
    for other in _kept.values():
        if other is not own and other.n_labels > left:
            other.layouts.clear()
    return left >= 0
