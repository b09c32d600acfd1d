"""Engine of a fit in memory: blocks of labels, threads, restarts and a monitor of convergence.

The loop of a model is in the model's own file and reads downward::

    blocks = engine.blocks(labels, layout)                    # consecutive items, laid out for the steps
    restarts = Restarts(engine, n_restarts, seed, max_iter, tol)
    for monitor in restarts:
        state = monitor.resume(State) or start(monitor.rng)
        for _ in monitor:
            statistics = total(blocks.map(e_step, theta=state.theta))      # summed in block order
            if monitor.report(objective, state):                           # stops with this state
                break
            state = m_step(statistics)
    best = restarts.best                                      # best.state, best.trace, best.stopped

Where blocks begin and end depends on the labels alone, each is worked on by one thread, and sums are added in
block order: the result has the same bits for any number of threads. ``ds.resources`` puts an engine with the
same methods in the place of this one, for fits that need a memory limit, checkpoints or a cluster
(large/engine.py).
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import bad_parameter, setting_variable
from dissensus.numerics import Array
from dissensus.params import n_cores
from dissensus.progress import Progress, ShowProgress, in_words, shown

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations

Result = TypeVar("Result")
State = TypeVar("State")  # parameters that a loop learns: a dataclass of arrays, numbers and dataclasses
Codes = NDArray[np.int32]

LABELS_PER_SHARD = 1 << 15  # a shard's messages should fit a core's cache
MIN_BLOCKS = 16  # blocks have several shards only if there are at least twice as many shards
MAX_SHARDS_PER_BLOCK = 64  # about two million labels
SECONDS_BEFORE_PROGRESS = 1.0  # a shorter fit shows no progress unless asked


# ---- blocks -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Shard:
    """Labels of consecutive items; item codes count from the shard's first item."""

    n_items: int
    n_classes: int
    item: Codes
    annotator: Codes
    label: Codes

    @cached_property
    def counts(self) -> Array:
        """Label counts, (items, classes), as floats."""
        M, P = self.n_items, self.n_classes
        cells = self.item * np.int64(P) + self.label
        return np.bincount(cells, minlength=M * P).reshape(M, P).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Block:
    """Run of consecutive shards, the unit of work; ``item_bounds`` and ``row_bounds`` delimit its shards."""

    labels: Any  # Annotations, or an object with their columns and sizes
    item_bounds: tuple[int, ...]
    row_bounds: tuple[int, ...]
    items: slice  # rows of this block in a table of all items
    rows: slice  # rows of this block in a table of all labels

    def shard(self, first: int = 0, last: int = -1) -> Shard:
        """Return the labels between two shard bounds as one shard; the whole block by default."""
        start, stop = self.item_bounds[first], self.item_bounds[last]
        rows = slice(self.row_bounds[first], self.row_bounds[last])
        item = self.labels.item[rows] - np.int32(start)
        annotator, label = self.labels.annotator[rows], self.labels.label[rows]
        return Shard(stop - start, self.labels.n_classes, item, annotator, label)


def cut_blocks(labels: Annotations) -> list[Block]:
    """Cut labels into shards of about ``LABELS_PER_SHARD`` labels, and the shards into blocks."""
    # A shard ends with the item that reaches its number of labels, so an item is never divided.
    marks = np.arange(LABELS_PER_SHARD, labels.n_labels, LABELS_PER_SHARD)
    ends = np.searchsorted(labels.item_pointers, marks)
    items = np.unique(np.concatenate([[0], ends, [labels.n_items]]))
    rows, n_shards = labels.item_pointers[items], len(items) - 1
    size, blocks = min(max(n_shards // MIN_BLOCKS, 1), MAX_SHARDS_PER_BLOCK), []
    for first in range(0, n_shards, size):
        item_bounds, row_bounds = (tuple(ends[first : first + size + 1].tolist()) for ends in (items, rows))
        whole = slice(item_bounds[0], item_bounds[-1]), slice(row_bounds[0], row_bounds[-1])
        blocks.append(Block(labels, item_bounds, row_bounds, *whole))
    return blocks


def total(parts: Iterable[tuple[Any, ...]]) -> tuple[Any, ...]:
    """Add the statistics of blocks, entry by entry, in their order."""
    sums: list[Any] = []
    for part in parts:
        sums = [a + b for a, b in zip(sums, part, strict=True)] if sums else list(part)
    return tuple(sums)


@dataclass(eq=False)
class Blocks:
    """Blocks of labels, laid out for a model's steps."""

    engine: Engine
    blocks: list[Block]
    lay_out: Callable[[Block], Any]
    layouts: dict[int, Any] = field(default_factory=dict)  # by number of the block, built when first needed

    def map(self, step: Callable[..., Result], each: Iterable[Any] = (), **common: Any) -> Iterator[Result]:
        """Yield ``step(layout, argument, **common)`` for every block, in order.

        ``each`` has one argument per block; without it, ``step(layout, **common)`` is called.
        """
        arguments = list(each)
        for name, value in common.items():
            if isinstance(value, np.ndarray):  # C order, as after unpickling: layout can change the last bits
                common[name] = np.ascontiguousarray(value)

        def run(number: int) -> Result:
            return step(self.layout(number), *arguments[number : number + 1], **common)

        return self.engine.map_lazily(run, range(len(self.blocks)))

    def layout(self, number: int) -> Any:
        """Return the layout of a block, built when first needed."""
        if number not in self.layouts:
            self.layouts[number] = self.lay_out(self.blocks[number])
        return self.layouts[number]


# ---- the engine ---------------------------------------------------------------------------------------


@dataclass(eq=False)
class Engine:
    """Fit on the threads of this process, with all arrays in memory."""

    n_threads: int = 1
    pool: ThreadPoolExecutor | None = None
    n_labels: int = 1
    dtype: Any = np.float64  # precision of messages
    progress: Progress | None = None  # set once progress is shown
    show: ShowProgress = False
    displays: ExitStack = field(default_factory=ExitStack)  # closed when the fit ends
    title: str = "fit"
    opened: float = field(default_factory=time.monotonic)
    minutes: float | None = None  # time limit of a sampled fit
    opening: threading.Lock = field(default_factory=threading.Lock)
    done: dict[int, int] = field(default_factory=dict)  # iterations, by chain
    stage: int = 0  # number of the model that is fitted, if a fit consists of several
    n_stages: int = 1
    stage_opened: float = field(default_factory=time.monotonic)
    checkpoints: Any = None  # where states are kept during a fit (large/checkpoints.py)
    started: tuple[float, int] | None = None  # time and number of the first iteration that was shown
    unused: dict[Any, list[NDArray[Any]]] = field(default_factory=dict)  # memory of arrays, by shape and type

    def blocks(self, labels: Annotations, lay_out: Callable[[Block], Any]) -> Blocks:
        """Cut labels into blocks, each laid out for a model's steps by ``lay_out``."""
        return Blocks(self, cut_blocks(labels), lay_out)

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
        """Return an array for steps to fill; memory of an unused array of this shape is used again.

        Fresh pages would cost a tenth of every round. An engine with a memory limit may map the array from a
        file.
        """
        if 0 in shape:
            return np.empty(shape, dtype)
        unused = self.unused.setdefault((shape, np.dtype(dtype)), [])
        memory = unused.pop() if unused else np.empty(shape, dtype)
        array = np.frombuffer(memory.data, dtype)  # slices refer to it, so it lives as long as they do
        weakref.finalize(array, unused.append, memory).atexit = False
        return array.reshape(shape)

    def map(self, step: Callable[[Any], Result], over: Sequence[Any]) -> list[Result]:
        """Return the step's result for every element, in order."""
        return list(self.map_lazily(step, over))

    def map_lazily(self, step: Callable[[Any], Result], over: Sequence[Any]) -> Iterator[Result]:
        """Lazy `map`; at most 2 × n_threads results are pending."""
        raise_if_cancelled()
        if self.pool is None or len(over) < 2:
            return map(step, over)
        return self._map_on_threads(self.pool, step, over)

    def _map_on_threads(
        self, pool: ThreadPoolExecutor, step: Callable[[Any], Result], over: Sequence[Any]
    ) -> Iterator[Result]:
        remaining, pending = iter(over), deque[Future[Result]]()
        try:
            while True:
                for element in itertools.islice(remaining, 2 * self.n_threads - len(pending)):
                    # The thread sees the caller's context (resources, cancellation).
                    pending.append(pool.submit(copy_context().run, step, element))
                if not pending:
                    return
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()

    def step_done(self, done: int, of: int, chain: int = 0, n_chains: int = 1) -> None:
        """Show the number of iterations done, and at most to do; stop if the caller was interrupted."""
        raise_if_cancelled()
        now = time.monotonic()
        if self.progress is None:
            # Most fits end before a display would be useful.
            if self.show is False or (self.show is None and now - self.opened < SECONDS_BEFORE_PROGRESS):
                return
            with self.opening:
                self.progress = self.progress or self._display()
        self.done[chain] = done
        done, of = sum(self.done.values()), max(n_chains, len(self.done)) * of
        if self.started is None or done <= self.started[1]:  # a restart counts from the beginning
            self.started = now, done
        since, first = self.started
        words = f"iteration {done} of at most {of}"
        if done > first:
            seconds = (now - since) / (done - first)
            remaining = in_words(seconds * (of - done))
            words += f", {self.n_labels / seconds:,.0f} labels per second, at most {remaining} left"
        self.progress(words, (self.stage + done / of) / self.n_stages)

    def next_stage(self) -> None:
        """Begin to fit the next of several models."""
        self.stage += 1
        self.done, self.started = {}, None
        self.stage_opened = time.monotonic()

    def seconds_left(self, share: float = 0.0) -> float:
        """Return the time left to this model once ``share`` of its work so far is done again.

        It is infinite without a limit. Each of several models has the same part of the time.
        """
        if self.minutes is None:
            return np.inf
        now, limit = time.monotonic(), 60 * self.minutes * (self.stage + 1) / self.n_stages
        return limit - (now - self.opened) - share * (now - self.stage_opened)

    def _display(self) -> Progress:
        """Return the caller's function, or a display that names the fit."""
        if callable(self.show):
            return self.show
        report, title = self.displays.enter_context(shown(self.show)), self.title
        return lambda words, share: report(f"{title}: {words}", share)


# ---- convergence --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checkpoint(Generic[State]):
    """State of a fit, the objectives up to it, and why it stopped (empty while it runs)."""

    state: State
    done: int = 0  # iterations; a sampled chain has no trace to count them by
    trace: tuple[float, ...] = ()
    stopped: str = ""


@dataclass
class ConvergenceMonitor:
    """Iterations of one fit until its objective settles: ``for _ in monitor: … monitor.report(…)``."""

    engine: Engine
    max_iter: int
    tol: float  # nats per label
    name: str = "fit"
    rng: np.random.Generator = field(default_factory=partial(np.random.default_rng, 0))
    trace: list[float] = field(default_factory=list)  # the objective at every iteration
    stopped: str = ""  # "tolerance" or "max_iter" once the fit has stopped
    state: Any = None  # the state that the fit stopped with

    def resume(self, kind: type[State]) -> State | None:
        """Return the state of a checkpoint, or None. The iteration that ended there is repeated."""
        checkpoints = self.engine.checkpoints
        reached: Checkpoint[State] | None = checkpoints.latest(self.name, kind) if checkpoints else None
        if reached is None:
            return None
        self.stopped = reached.stopped
        self.state = reached.state if reached.stopped else None
        self.trace = list(reached.trace if reached.stopped else reached.trace[:-1])
        return reached.state

    def __iter__(self) -> Iterator[int]:
        while not self.stopped:
            yield len(self.trace)

    def report(self, objective: float, state: Any) -> bool:
        """Record the objective of a state; return True if the fit should stop with this state.

        A fit stops once the objective per label changes by at most ``tol``, or after ``max_iter`` iterations.
        """
        self.trace.append(objective)
        done = len(self.trace)
        if done > 1 and abs(objective - self.trace[-2]) <= self.tol * self.engine.n_labels:
            self.stopped = "tolerance"
        elif done == self.max_iter:
            self.stopped = "max_iter"
        self.state = state if self.stopped else None  # earlier states should not take memory
        if self.engine.checkpoints:
            reached = Checkpoint(state, done, tuple(self.trace), self.stopped)
            self.engine.checkpoints.write(self.name, reached)
        self.engine.step_done(done, self.max_iter)
        return bool(self.stopped)


@dataclass
class Restarts:
    """Monitors of fits from several starts; restart r has its own stream of random numbers."""

    engine: Engine
    n_restarts: int
    seed: int
    max_iter: int
    tol: float
    best: ConvergenceMonitor = field(init=False)  # the first with the highest final objective

    def __iter__(self) -> Iterator[ConvergenceMonitor]:
        for number in range(self.n_restarts):
            rng = np.random.default_rng([self.seed, number])
            monitor = ConvergenceMonitor(self.engine, self.max_iter, self.tol, f"restart-{number}", rng)
            yield monitor
            if number == 0 or monitor.trace[-1] > self.best.trace[-1]:
                self.best = monitor


# ---- resources ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LocalResources:
    """Resources of a fit: the threads and the memory of this process. large/resources.py has more."""

    memory: int | None = None  # bytes that a fit may take; None: what the machine has
    minutes: float | None = None  # time that a sampled fit may take; None: until its chains agree
    progress: ShowProgress = None
    precision: str = "double"  # of messages
    n_cluster_threads: int = 0  # tasks that a cluster runs at once; 0 without a cluster

    @contextmanager
    def engine(self, model: Any, labels: Annotations, given: Mapping[str, Any]) -> Iterator[Engine]:
        """Yield the engine of one fit; ``given`` holds the arguments of ``fit`` besides the labels."""
        with threads(vars(model).get("n_jobs", 1), labels.n_labels) as engine, engine.displays:
            engine.show, engine.title, engine.minutes = self.progress, type(model).__name__, self.minutes
            yield engine

    def share(self, n_at_once: int) -> Self:
        """Return the resources of one of ``n_at_once`` concurrent tasks: no progress, no checkpoints."""
        return replace(self, memory=self.memory and self.memory // n_at_once, progress=False)

    def tasks(self, shared: Any) -> Any:
        """Return the executor of a search on a cluster; None without a cluster."""
        return None


LOCAL = LocalResources()
_current: ContextVar[LocalResources] = ContextVar("resources", default=LOCAL)


def current() -> LocalResources:
    """Return the resources that fits may use now."""
    return _current.get()


def using(resources: LocalResources) -> AbstractContextManager[Any]:
    """Let every fit inside the block use these resources."""
    return setting_variable(_current, resources)


# Events that an interrupted caller sets to stop the work it waits for.
_cancelled: ContextVar[tuple[threading.Event, ...]] = ContextVar("cancelled", default=())


def raise_if_cancelled() -> None:
    """Raise CancelledError in a thread whose caller was interrupted."""
    for event in _cancelled.get():
        if event.is_set():
            raise CancelledError


@contextmanager
def threads(n_jobs: int = -1, n_labels: int = 1) -> Iterator[Engine]:
    """Yield an engine of ``n_jobs`` threads (−1: all cores) with BLAS on one thread."""
    if n_jobs != -1 and n_jobs < 1:
        raise bad_parameter("engine", "n_jobs", "an int >= 1, or -1 for all cores", n_jobs)
    n_threads = n_cores() if n_jobs == -1 else n_jobs
    with one_blas_thread():
        if n_threads == 1:
            yield Engine(n_labels=n_labels)
            return
        pool, cancelled, wait = ThreadPoolExecutor(n_threads), threading.Event(), True
        token = _cancelled.set((*_cancelled.get(), cancelled))
        try:
            yield Engine(n_threads, pool, n_labels)
        except BaseException as error:
            cancelled.set()
            # Ctrl-C does not wait for the threads, which end when they next check the event.
            wait = isinstance(error, Exception)
            raise
        finally:
            _cancelled.reset(token)
            pool.shutdown(wait, cancel_futures=True)


# ---- memory and BLAS ----------------------------------------------------------------------------------

_counting = threading.Lock()
_blas_limit: Any = None
_n_inside = 0

# Freed memory that the C library may keep, and the size from which an array has pages of its own.
KEPT_BYTES, OWN_PAGES_BYTES = 64 << 20, 16 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as glibc's malloc.h numbers them


@cache
def keep_freed_memory() -> None:
    """Let the C library keep some megabytes of freed arrays, instead of returning them to the system.

    Iterations free and take arrays of the same sizes. Fetched anew each time, they cost fresh pages: up to
    two fifths of a small fit. Where the library has no such settings, nothing changes.
    """
    import ctypes

    with suppress(OSError, AttributeError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
        library.mallopt(_MMAP_THRESHOLD, OWN_PAGES_BYTES)


@lru_cache(maxsize=1)
def _blas_controller(n_modules: int) -> Any:
    """Return the control of BLAS threads; detected again (milliseconds) when modules were imported."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread while any caller is inside: more threads may sum in another order."""
    keep_freed_memory()
    global _blas_limit, _n_inside
    with _counting:
        if _n_inside == 0:
            _blas_limit = _blas_controller(len(sys.modules)).limit(limits=1, user_api="blas")
        _n_inside += 1
    try:
        yield
    finally:
        with _counting:
            _n_inside -= 1
            if _n_inside == 0:
                _blas_limit.restore_original_limits()
