"""Steps over blocks, in this process: one after the other, or on threads.

A step returns additive statistics of its block, and whoever asked for them adds them in the order of the
blocks: the result is the same to the last bit whatever executes the steps, and however many at once.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import cache, lru_cache, reduce
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from dissensus.errors import bad_parameter
from dissensus.labels import blocks
from dissensus.labels.blocks import Block, Labels, blocks_of, labels_of
from dissensus.labels.remembered import remembered
from dissensus.params import n_cores

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations

Result = TypeVar("Result")

# What a step is given of a block's labels; built once, where the block is worked on.
Layout = Callable[[Block, Labels], Any]


# ---- what runs ----------------------------------------------------------------------------------------


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

    def map(self, step: Callable[[Any], Result], over: Sequence[Any]) -> list[Result]:
        """The step's result for every element, in their order."""
        ...

    def over(self, annotations: Annotations, layout: Layout) -> Work:
        """The annotations' blocks, ready for steps."""
        ...


class Local:
    """This process: the calling thread or, with a pool, several.

    Layouts of the first ``most_labels`` labels stay in memory (None: all).
    """

    def __init__(
        self, n_threads: int = 1, pool: ThreadPoolExecutor | None = None, most_labels: int | None = None
    ) -> None:
        self.n_threads = n_threads
        self._pool = pool
        self._most_labels = most_labels
        self.given_up = threading.Event()  # nobody waits any more for what the threads do

    def map(self, step: Callable[[Any], Result], over: Sequence[Any]) -> list[Result]:
        """The step's result for every element, in their order."""
        return list(self.mapped(step, over))

    def mapped(self, step: Callable[[Any], Result], over: Sequence[Any]) -> Iterator[Result]:
        """The same, one at a time; never many more than there are threads wait to be taken."""
        _unless_given_up()
        if self._pool is None or len(over) < 2:
            return map(step, over)
        return self._on_threads(self._pool, step, over)

    def _on_threads(
        self, pool: ThreadPoolExecutor, step: Callable[[Any], Result], over: Sequence[Any]
    ) -> Iterator[Result]:
        def submitted(element: Any) -> Future[Result]:
            # A thread should see what the caller sees of its context (resources).
            return pool.submit(copy_context().run, self._run, step, element)

        waiting = deque(map(submitted, over[: 2 * self.n_threads]))
        following = iter(over[2 * self.n_threads :])
        try:
            while waiting:
                result = waiting.popleft().result()
                waiting.extend(map(submitted, itertools.islice(following, 1)))
                yield result
        finally:
            for future in waiting:
                future.cancel()

    def _run(self, step: Callable[[Any], Result], element: Any) -> Result:
        _given_up.set(self.given_up)
        return step(element)

    def over(self, annotations: Annotations, layout: Layout) -> LocalWork:
        """The annotations' blocks, ready for steps."""
        most_labels = annotations.n_labels if self._most_labels is None else self._most_labels
        return LocalWork(self, annotations, layout, most_labels)


_given_up: ContextVar[threading.Event | None] = ContextVar("given_up", default=None)


def _unless_given_up() -> None:
    """Leave a thread whose work nobody waits for any more."""
    event = _given_up.get()
    if event is not None and event.is_set():
        raise CancelledError


class LocalWork:
    """Blocks that are worked on in this process; the layouts of the first of them stay in memory.

    Those of few labels stay there for the next fit to the same labels, too.
    """

    def __init__(self, local: Local, annotations: Annotations, layout: Layout, most_labels: int) -> None:
        self.blocks = blocks_of(annotations)
        self._labels = labels_of(annotations)
        self._build = layout
        self._layouts: dict[int, Any] = {}
        if (
            most_labels >= annotations.n_labels
        ):  # otherwise memory is limited, for those of an earlier fit too
            self._layouts = remembered(annotations, (layout, blocks.SHARD_LABELS), dict)
        self._local = local
        self._most_labels = most_labels

    def map(self, step: Callable[..., Result], each: Iterable[Any] = (), **common: Any) -> Iterator[Result]:
        """``step(layout, own, **common)`` of every block, in their order."""
        own, common = list(each), in_one_order(common)

        def run(number: int) -> Result:
            return step(self._layout(number), *own[number : number + 1], **common)

        return self._local.mapped(run, range(len(self.blocks)))

    def _layout(self, number: int) -> Any:
        found = self._layouts.get(number)
        if found is None:
            found = self._build(self.blocks[number], self._labels)
            if self.blocks[number].rows[-1] <= self._most_labels:
                self._layouts[number] = found
        return found


@contextmanager
def executor(n_jobs: int = -1, most_labels: int | None = None) -> Iterator[Local]:
    """``n_jobs`` threads (−1: all cores), BLAS held to one thread meanwhile: reproducible, and faster."""
    if n_jobs != -1 and n_jobs < 1:
        raise bad_parameter("executor", "n_jobs", "an int >= 1, or -1 for all cores", n_jobs)
    n_threads = n_cores() if n_jobs == -1 else n_jobs
    with one_blas_thread():
        if n_threads == 1:
            yield Local(most_labels=most_labels)
            return
        with ThreadPoolExecutor(n_threads) as pool:
            local = Local(n_threads, pool, most_labels)
            try:
                yield local
            except BaseException:  # Ctrl-C above all: whole fits may be running on the threads
                local.given_up.set()
                raise


def in_one_order(common: dict[str, Any]) -> dict[str, Any]:
    """Arrays in C order, as they would be after a journey: a product's last bits may hang on it."""
    return {
        name: np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value
        for name, value in common.items()
    }


def total(parts: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Add the blocks' statistics, entry by entry, in their order."""
    return reduce(lambda a, b: tuple(x + y for x, y in zip(a, b, strict=True)), parts)


# ---- memory and BLAS ----------------------------------------------------------------------------------

_changing = threading.Lock()
_limit: Any = None
_n_inside = 0


# What the C library may keep of freed memory, and the size from which an array has pages of its own.
KEPT_BYTES, OWN_PAGES_BYTES = 64 << 20, 16 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as glibc's malloc.h numbers them


@cache
def keep_freed_memory() -> None:
    """Let the C library keep some megabytes of what arrays gave back, instead of returning it to the system.

    Rounds free and take arrays of the same sizes. Returned and fetched anew each time, they cost fresh pages:
    up to two fifths of a small fit. Where the library has no such settings, nothing changes.
    """
    import ctypes

    with suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        library.mallopt(_MMAP_THRESHOLD, OWN_PAGES_BYTES)


@lru_cache(maxsize=1)
def _loaded_libraries(n_modules: int) -> Any:
    """What holds the threads of BLAS; looked for anew, which takes milliseconds, once more is imported."""
    from threadpoolctl import ThreadpoolController

    del n_modules
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS on one thread while anybody in this process is inside: with more it may sum in another order.

    The first to come sets it, the last restores.
    """
    keep_freed_memory()
    global _limit, _n_inside
    with _changing:
        if _n_inside == 0:
            _limit = _loaded_libraries(len(sys.modules)).limit(limits=1, user_api="blas")
        _n_inside += 1
    try:
        yield
    finally:
        with _changing:
            _n_inside -= 1
            if _n_inside == 0:
                _limit.restore_original_limits()
