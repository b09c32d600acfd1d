"""Work on labels in shards: the unit that is mapped over, on threads today and on any other executor.

A shard is a run of consecutive items with their labels. Where shards begin and end depends on the labels
alone, a step returns additive statistics, and :func:`total` adds them in shard order: the result is the same
to the last bit whatever executes the steps.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import bad_parameter

if TYPE_CHECKING:
    from dissensus.annotations import Annotations
    from dissensus.kernels import PairLayout

SHARD_LABELS = 1 << 15  # a shard's messages should fit a core's cache

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class Shard:
    """Consecutive items and their labels; item codes count from the shard's first item."""

    first_item: int
    n_items: int
    n_classes: int
    item: NDArray[np.int32]
    annotator: NDArray[np.int32]
    label: NDArray[np.int32]

    @property
    def rows(self) -> slice:
        """Where this shard's items stand in a table of all items."""
        return slice(self.first_item, self.first_item + self.n_items)

    @cached_property
    def counts(self) -> NDArray[np.float64]:
        """(items, classes): label counts as floats, ready for products."""
        M, P = self.n_items, self.n_classes
        cells = self.item * np.int64(P) + self.label
        return np.bincount(cells, minlength=M * P).reshape(M, P).astype(np.float64)

    @cached_property
    def pairs(self) -> PairLayout:
        """The (item, annotator) pairs, laid out for message passing."""
        from dissensus.kernels import PairLayout

        return PairLayout.of(self)


def shards_of(annotations: Annotations, times: int = 1) -> tuple[Shard, ...]:
    """Cut the items into runs of about ``times`` · ``SHARD_LABELS`` labels; an item is never cut."""
    cuts = item_cuts(annotations.item_pointers, times)
    return tuple(_shard(annotations, int(a), int(b)) for a, b in itertools.pairwise(cuts))


def item_cuts(pointers: NDArray[np.int64], times: int = 1) -> NDArray[np.int64]:
    """The items at which shards begin, and the number of items; those of ``times`` > 1 are some of the rest.

    ``pointers`` (items + 1,) say where each item's labels begin.
    """
    size = times * SHARD_LABELS
    marks = np.arange(size, pointers[-1], size)
    return np.unique(np.concatenate([[0], np.searchsorted(pointers, marks), [len(pointers) - 1]]))


def _shard(annotations: Annotations, first: int, stop: int) -> Shard:
    rows = slice(annotations.item_pointers[first], annotations.item_pointers[stop])
    return Shard(
        first,
        stop - first,
        annotations.n_classes,
        annotations.item[rows] - np.int32(first),
        annotations.annotator[rows],
        annotations.label[rows],
    )


class Executor(Protocol):
    """Anything that can apply a function to each element and give the results back in order."""

    def map(self, step: Callable[[Any], Result], over: Sequence[Any]) -> list[Result]:
        """The step's result for every element, in their order."""
        ...


class Serial:
    """One after the other, in this thread."""

    def map(self, step: Callable[[Any], Result], over: Sequence[Any]) -> list[Result]:
        """The step's result for every element, in their order."""
        return [step(element) for element in over]


class Threads:
    """A pool of threads; NumPy and BLAS release the interpreter's lock where it matters."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool

    def map(self, step: Callable[[Any], Result], over: Sequence[Any]) -> list[Result]:
        """The step's result for every element, in their order."""
        if len(over) < 2:
            return [step(element) for element in over]
        return list(self._pool.map(step, over))


@contextmanager
def executor(n_jobs: int = 1) -> Iterator[Executor]:
    """An executor on ``n_jobs`` threads (−1: all cores), BLAS held to one thread meanwhile.

    BLAS may sum in another order with more threads, and contends with ours; one thread each is both
    reproducible and faster.
    """
    from threadpoolctl import threadpool_limits

    if n_jobs != -1 and n_jobs < 1:
        raise bad_parameter("executor", "n_jobs", "an int >= 1, or -1 for all cores", n_jobs)
    n_threads = n_cores() if n_jobs == -1 else n_jobs
    with threadpool_limits(limits=1, user_api="blas"):
        if n_threads == 1:
            yield Serial()
            return
        with ThreadPoolExecutor(n_threads) as pool:
            yield Threads(pool)


def n_cores() -> int:
    """Cores this process may use."""
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def total(parts: Sequence[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Add the shards' statistics, entry by entry, in shard order."""
    return reduce(lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)), parts)
