"""What runs on a worker: steps over some blocks, their layouts kept from one round to the next."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from dissensus.cluster.sources import Source
from dissensus.engine import Block, Labels, Layout

MOST_SOURCES = 2  # labels that a worker keeps laid out at the same time


@dataclass(frozen=True)
class Task:
    """Some consecutive blocks, and what each of them is given of its own."""

    source: Source
    layout: Layout
    most_labels: int | None  # of which a worker keeps layouts in memory; None: of all
    numbers: range
    blocks: Sequence[Block]
    own: Sequence[tuple[Any, ...]]


def run_blocks(task: Task, step: Callable[..., Any], common: dict[str, Any]) -> list[Any]:
    """The step's result for every block of a task."""
    desk = _desk_of(task)
    with one_blas_thread():
        return [
            step(desk.layout(task, number, block), *own, **common)
            for number, block, own in zip(task.numbers, task.blocks, task.own, strict=True)
        ]


# ---- layouts that stay --------------------------------------------------------------------------------


@dataclass
class _Desk:
    """The labels of one source, and the layouts of some of its blocks."""

    labels: Labels
    layouts: dict[int, Any] = field(default_factory=dict)
    n_labels: int = 0

    def layout(self, task: Task, number: int, block: Block) -> Any:
        found = self.layouts.get(number)
        if found is not None:
            return found
        built = task.layout(block, self.labels)
        size = block.rows[-1] - block.rows[0]
        with _changing:
            if number not in self.layouts and (
                task.most_labels is None or self.n_labels + size <= task.most_labels
            ):
                self.layouts[number] = built
                self.n_labels += size
        return built


_desks: OrderedDict[tuple[str, str], _Desk] = OrderedDict()
_changing = threading.Lock()


def _desk_of(task: Task) -> _Desk:
    key = task.source.key, getattr(task.layout, "__qualname__", repr(task.layout))
    with _changing:
        if key not in _desks:
            _desks[key] = _Desk(task.source.labels())
            while len(_desks) > MOST_SOURCES:
                _desks.popitem(last=False)
        _desks.move_to_end(key)
        return _desks[key]


# ---- one thread for BLAS ------------------------------------------------------------------------------

_limit: Any = None
_n_running = 0


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS on one thread while any task of this process runs: sums then have one order."""
    from threadpoolctl import threadpool_limits

    global _limit, _n_running
    with _changing:
        if _n_running == 0:
            _limit = threadpool_limits(limits=1, user_api="blas")
        _n_running += 1
    try:
        yield
    finally:
        with _changing:
            _n_running -= 1
            if _n_running == 0:
                _limit.restore_original_limits()
