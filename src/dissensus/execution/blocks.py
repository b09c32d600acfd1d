"""Work on labels in blocks: the unit that is mapped over, on threads here and on the workers of a cluster.

A step returns additive statistics of its block (`data/blocks.py`), and whoever asked for them adds them in
the order of the blocks: the result is the same to the last bit whatever executes the steps, and however many
at once.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from functools import reduce
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from dissensus.data.blocks import Block, Labels, blocks_of, labels_of
from dissensus.errors import bad_parameter
from dissensus.execution.blas import one_blas_thread
from dissensus.params import n_cores

if TYPE_CHECKING:
    from dissensus.data.annotations import Annotations
    from dissensus.execution.desk import Desk

Result = TypeVar("Result")


# ---- what runs over them ------------------------------------------------------------------------------

# What a step is given of a block's labels; built once, where the block is worked on.
Layout = Callable[[Block, Labels], Any]


class Work(Protocol):
    """The blocks of some labels, laid out for a kind of step."""

    @property
    def blocks(self) -> Sequence[Block]:
        """Where each block's items and labels stand."""
        ...

    def map(self, step: Callable[..., Result], each: Iterable[Any] = (), **common: Any) -> Iterator[Result]:
        """``step(layout, own, **common)`` of every block, in their order; ``each`` has one ``own`` a block.

        Without ``each``, ``step(layout, **common)``.
        """
        ...


class Executor(Protocol):
    """What steps run on."""

    @property
    def desk(self) -> Desk:
        """What a fit has at hand beside its labels."""
        ...

    def map(self, step: Callable[[Any], Result], over: Sequence[Any]) -> list[Result]:
        """The step's result for every element, in their order."""
        ...

    def mapped(self, step: Callable[[Any], Result], over: Sequence[Any]) -> Iterator[Result]:
        """The same, one at a time."""
        ...

    def over(self, annotations: Annotations, layout: Layout) -> Work:
        """The annotations' blocks, ready for steps."""
        ...


class Serial:
    """One after the other, in this thread."""

    def __init__(self, desk: Desk | None = None, most_labels: int | None = None) -> None:
        self.desk = desk or _plain_desk()
        self._most_labels = most_labels

    def map(self, step: Callable[[Any], Result], over: Sequence[Any]) -> list[Result]:
        """The step's result for every element, in their order."""
        return list(self.mapped(step, over))

    def mapped(self, step: Callable[[Any], Result], over: Sequence[Any]) -> Iterator[Result]:
        """The same, one at a time."""
        return (step(element) for element in over)

    def over(self, annotations: Annotations, layout: Layout) -> Work:
        """The annotations' blocks, ready for steps."""
        return LocalWork(annotations, layout, self.mapped, self._most_labels)


class Threads:
    """A pool of threads; NumPy and BLAS release the interpreter's lock where it matters."""

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        n_threads: int,
        desk: Desk | None = None,
        most_labels: int | None = None,
    ) -> None:
        self.desk = desk or _plain_desk()
        self._most_labels = most_labels
        self._pool = pool
        self._n_threads = n_threads

    def map(self, step: Callable[[Any], Result], over: Sequence[Any]) -> list[Result]:
        """The step's result for every element, in their order."""
        return list(self.mapped(step, over))

    def mapped(self, step: Callable[[Any], Result], over: Sequence[Any]) -> Iterator[Result]:
        """The same, one at a time; never many more than there are threads wait to be taken."""
        if len(over) < 2:
            yield from map(step, over)
            return
        # A thread should see what the caller sees of its context (resources).
        waiting = deque(self._submit(step, element) for element in over[: 2 * self._n_threads])
        following = iter(over[2 * self._n_threads :])
        try:
            while waiting:
                result = waiting.popleft().result()
                waiting.extend(self._submit(step, element) for element in itertools.islice(following, 1))
                yield result
        finally:
            for future in waiting:
                future.cancel()

    def _submit(self, step: Callable[[Any], Result], element: Any) -> Future[Result]:
        return self._pool.submit(copy_context().run, step, element)

    def over(self, annotations: Annotations, layout: Layout) -> Work:
        """The annotations' blocks, ready for steps."""
        return LocalWork(annotations, layout, self.mapped, self._most_labels)


class LocalWork:
    """Blocks that are worked on in this process; the layouts of the first of them stay in memory."""

    def __init__(
        self,
        annotations: Annotations,
        layout: Layout,
        mapped: Callable[..., Iterator[Any]],
        most_labels: int | None = None,
    ) -> None:
        self.blocks = blocks_of(annotations)
        self._labels = labels_of(annotations)
        self._build = layout
        self._layouts: dict[int, Any] = {}
        self._mapped = mapped
        self._most_labels = annotations.n_labels if most_labels is None else most_labels

    def map(self, step: Callable[..., Result], each: Iterable[Any] = (), **common: Any) -> Iterator[Result]:
        """``step(layout, own, **common)`` of every block, in their order."""
        own, common = list(each), in_one_order(common)

        def run(number: int) -> Result:
            return step(self._layout(number), *own[number : number + 1], **common)

        return self._mapped(run, range(len(self.blocks)))

    def _layout(self, number: int) -> Any:
        found = self._layouts.get(number)
        if found is None:
            found = self._build(self.blocks[number], self._labels)
            if self.blocks[number].rows[-1] <= self._most_labels:
                self._layouts[number] = found
        return found


@contextmanager
def executor(
    n_jobs: int = -1, desk: Desk | None = None, most_labels: int | None = None
) -> Iterator[Executor]:
    """An executor on ``n_jobs`` threads (−1: all cores), BLAS held to one thread meanwhile.

    Layouts of ``most_labels`` labels stay in memory (None: all).

    One thread each is both reproducible and faster.
    """
    if n_jobs != -1 and n_jobs < 1:
        raise bad_parameter("executor", "n_jobs", "an int >= 1, or -1 for all cores", n_jobs)
    n_threads = n_cores() if n_jobs == -1 else n_jobs
    with one_blas_thread():
        if n_threads == 1:
            yield Serial(desk, most_labels)
            return
        with ThreadPoolExecutor(n_threads) as pool:
            yield Threads(pool, n_threads, desk, most_labels)


def _plain_desk() -> Desk:
    from dissensus.execution.desk import Desk

    return Desk()


def in_one_order(common: dict[str, Any]) -> dict[str, Any]:
    """Arrays in C order, as they would be after a journey: a product's last bits may hang on it."""
    return {
        name: np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value
        for name, value in common.items()
    }


# ---- sums ---------------------------------------------------------------------------------------------


def total(parts: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Add the blocks' statistics, entry by entry, in their order."""
    return reduce(lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)), parts)
