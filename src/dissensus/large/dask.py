"""Fits and searches on the workers of a Dask cluster. See docs/cluster.md.

A block of labels is laid out once, on the worker that Dask gives it to, and a step is submitted for each
block. Labels and messages are files that every worker reaches (file_arrays.py); a step reads those of the
last round, fills those of the new one and returns sums, which are added here in block order. So a step may
run twice: when a worker dies, Dask runs its steps again elsewhere, and nothing but these steps is lost.
"""

from __future__ import annotations

import logging
import pickle
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import Block, Blocks, Resources, Result, cut_blocks, one_blas_thread, using
from dissensus.errors import ClusterError, DataError, bad_parameter, require, setting
from dissensus.labels.annotations import Annotations
from dissensus.large.engine import LargeEngine, n_bytes
from dissensus.large.file_arrays import place_in_file
from dissensus.params import n_cores

WORKER_SECONDS = 60.0  # to wait for a worker, before there is none to do the work
CONNECT_SECONDS = 15.0
POLL_SECONDS = 0.5  # between two looks at whether the cluster is still there
DEATHS = 10  # of workers that had a task, before it is given up
PARTS_PER_THREAD = 2  # of the blocks, for each thread of the cluster: tasks of a step
SMALL_BYTES = 200_000  # up to which parameters travel with every step; larger tables are files
ANY_SIZE = {"distributed.admin.large-graph-warning-threshold": "1TB"}  # of labels that tasks share
QUIET = logging.CRITICAL  # of the cluster's own messages, what reaches the terminal


# ---- a cluster ----------------------------------------------------------------------------------------


@contextmanager
def connected(cluster: Any, *, n_workers: int = -1) -> Iterator[Any]:
    """A client of an address, of processes that are started, or as it is."""
    distributed = require("distributed", "cluster")
    if isinstance(cluster, distributed.Client):
        yield cluster
        return
    if not isinstance(cluster, str):
        raise bad_parameter("resources", "cluster", "an address, 'local' or a distributed.Client", cluster)
    way = _local(n_cores() if n_workers == -1 else n_workers) if cluster == "local" else _remote(cluster)
    with _quiet(), way as client:
        yield client


@contextmanager
def _local(n_workers: int) -> Iterator[Any]:
    """One process per worker; one that dies is started again, however often.

    Whoever may send a scheduler work runs code as we do. So these processes listen on this machine alone, and
    only to those who have the certificate that is made here, in memory, for this one cluster.
    """
    distributed = require("distributed", "cluster")
    require("cryptography", "cluster")
    settings = {
        # Dask closes for good a worker that is found dead some seconds after it has died before.
        "distributed.deploy.lost-worker-timeout": "1000 days",
        "distributed.scheduler.allowed-failures": DEATHS,
        # A step runs where its labels are laid out; moving them elsewhere costs more than the step.
        "distributed.scheduler.work-stealing": False,
        # It also looks a hundred times a second at what each process does, for a page not opened here.
        "distributed.worker.profile.enabled": False,
        "distributed.admin.tick.interval": "500ms",
    }
    with (
        require("dask", "cluster").config.set(settings),
        distributed.LocalCluster(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address="127.0.0.1:0",  # None would take a fixed port, on every network
            memory_limit=0,  # what may be used is decided before the fit
            host="127.0.0.1",
            protocol="tls://",
            security=distributed.Security.temporary(),
            silence_logs=QUIET,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False, direct_to_workers=True) as client,
    ):
        yield client


@contextmanager
def _remote(address: str) -> Iterator[Any]:
    distributed = require("distributed", "cluster")
    security = distributed.Security() if address.startswith("tls://") else None  # as Dask is configured
    if security is not None and security.tls_ca_file is None:
        raise ClusterError(
            f"{address}: asks for a certificate; name its files in Dask's configuration "
            "(DASK_DISTRIBUTED__COMM__TLS__CA_FILE and the others)"
        )
    try:
        # A client that was never more than begun would print something when it is thrown away.
        distributed.comm.get_address_host_port(address)
        client = distributed.Client(address, security=security, timeout=CONNECT_SECONDS, set_as_default=False)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        raise ClusterError(
            f"{address}: no scheduler answers there ({_reason(error)}); start it with dask scheduler, "
            "and give its address as it prints it, with the TLS files if it asks for them"
        ) from None
    try:
        yield client
    finally:
        client.close(timeout=5)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence Dask's log: steps of a worker that dies run again, and what cannot is an error."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(QUIET)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def running_workers(client: Any) -> dict[str, int]:
    """Threads of every worker by its address; waits until there is one."""
    deadline = time.monotonic() + WORKER_SECONDS
    while time.monotonic() < deadline:
        try:
            threads = dict(client.nthreads())
        except Exception as error:
            raise _lost(client, error) from error
        if threads:
            return threads
        time.sleep(0.2)
    raise ClusterError(
        f"{_address(client)}: the cluster has had no worker for {WORKER_SECONDS:.0f} seconds; "
        "start some with dask worker ADDRESS"
    )


def _lost(client: Any, error: BaseException) -> ClusterError:
    return ClusterError(
        f"{_address(client)}: the scheduler was lost ({_reason(error)}); start it again and run the same "
        "again: with a checkpoint directory the fit resumes where it was"
    )


def _address(client: Any) -> str:
    return str(getattr(client.scheduler, "address", None) or "the cluster")


def _reason(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]


def result_of(client: Any, future: Any) -> Any:
    """The result of a future, once it is there; an error where the cluster cannot give it."""
    distributed = require("distributed", "cluster")
    while True:
        try:
            return future.result(timeout=POLL_SECONDS)
        except distributed.scheduler.KilledWorker as error:
            raise ClusterError(
                "workers died again and again, out of memory perhaps; allow less with "
                f"{setting('memory')}, use fewer workers on a machine, or look into their logs"
            ) from error
        except (TimeoutError, CancelledError, UnboundLocalError, OSError) as error:
            if future.status == "error":
                raise
            if client.status != "running" or future.status == "cancelled":
                raise _lost(client, error) from error
            running_workers(client)  # there is one to do the work


# ---- fits ---------------------------------------------------------------------------------------------


class DaskEngine(LargeEngine):
    """The threads of a cluster's workers; what has no steps over blocks runs here."""

    client: Any
    ending: ExitStack  # what is done when the fit is over
    known_workers: Mapping[str, int] = MappingProxyType({})

    def blocks(self, labels: Annotations, lay_out: Callable[[Block], Any]) -> Blocks:
        """Cut labels into blocks, each laid out by ``lay_out`` on a worker."""
        blocks = DaskBlocks(self, labels, lay_out)
        self.ending.callback(blocks.release)
        return blocks

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
        """An array for steps to fill: a file that every worker reaches."""
        self.workers()
        return self.files.empty(shape, dtype)

    def workers(self) -> Mapping[str, int]:
        """Threads of every worker by its address. One that was lost may still write to a file for a while."""
        before, self.known_workers = self.known_workers, running_workers(self.client)
        if not before.keys() <= self.known_workers.keys():
            self.files.retire()
        return self.known_workers


class DaskBlocks(Blocks):
    """Blocks that workers lay out and keep, a few consecutive ones in each task."""

    engine: DaskEngine

    def __init__(self, engine: DaskEngine, labels: Annotations, layout: Callable[[Block], Any]) -> None:
        super().__init__(engine, cut_blocks(labels), layout)
        filed = SimpleNamespace(n_annotators=labels.n_annotators, n_classes=labels.n_classes)
        filed.item, filed.annotator, filed.label = map(engine.files.holding, labels.columns)
        self.blocks = [replace(block, labels=filed) for block in self.blocks]
        self._checksums = [_checksum(block) for block in self.blocks]
        self._workers: Mapping[str, int] = {}
        self._parts: list[tuple[slice, Any]] = []  # blocks of a task, and a future of their layouts
        self._keeps_layouts = engine.budget.unlimited
        if not self._keeps_layouts:
            size = n_bytes(layout(self.blocks[0])) / max(len(self.blocks[0].shard().item), 1)
            self._keeps_layouts = engine.budget.take(int(size * labels.n_labels))

    def map(self, step: Callable[..., Result], each: Iterable[Any] = (), **common: Any) -> Iterator[Result]:
        """Yield ``step(layout, own, **common)`` of every block, in order."""
        client, own = self.engine.client, [[value] for value in each] or [[] for _ in self.blocks]
        for name, value in common.items():
            if isinstance(value, np.ndarray):
                common[name] = np.ascontiguousarray(value)
        workers = self.engine.workers()
        if workers != self._workers:  # share the blocks among those that are there now
            self._share(workers)
        shared, copies = self.engine.files.pickled(common, SMALL_BYTES)
        futures = []
        for part, layouts in self._parts:
            content, more = self.engine.files.pickled(own[part], SMALL_BYTES)
            futures.append(client.submit(_stepped, step, layouts, content, shared, pure=False))
            copies += more
        try:
            for future in futures:
                yield from result_of(client, future)
        finally:
            for future in futures:
                future.release()

    def _share(self, workers: Mapping[str, int]) -> None:
        """Divide the blocks into parts, a few for each thread of the cluster, and have them laid out."""
        self.release()
        n = n_parts = len(self.blocks)  # one at a time where a step lays them out for itself
        if self._keeps_layouts:
            n_parts = min(n, PARTS_PER_THREAD * sum(workers.values()))
        for number in range(n_parts):
            part = slice(n * number // n_parts, n * (number + 1) // n_parts)
            to_lay_out = self.lay_out, self.blocks[part], self._checksums[part]
            layouts: Any = self.engine.files.pickled(to_lay_out, SMALL_BYTES)[0]
            if self._keeps_layouts:
                layouts = self.engine.client.submit(_laid_out, layouts, pure=False)
            self._parts.append((part, layouts))
        self._workers = workers

    def release(self) -> None:
        """Let workers forget the layouts."""
        for _, layouts in self._parts if self._keeps_layouts else ():
            layouts.release()
        self._parts = []


def _checksum(block: Block) -> int:
    checksum = 0
    for column in (block.labels.item, block.labels.annotator, block.labels.label):
        checksum = zlib.crc32(column[block.rows], checksum)
    return checksum


# Arguments are pickled here and unpickled inside the tasks, where a file that is missing is the task's error.


def _laid_out(content: bytes) -> list[Any]:
    lay_out, blocks, checksums = pickle.loads(content)
    if checksums != [_checksum(block) for block in blocks]:
        place = place_in_file(blocks[0].labels.label)
        raise DataError(
            f"{place and place.path}: holds other labels on this worker's machine than on the driver's; copy "
            "the store there again"
        )
    return [lay_out(block) for block in blocks]


def _stepped(step: Callable[..., Any], layouts: Any, own: bytes, common: bytes) -> list[Any]:
    if isinstance(layouts, bytes):
        layouts = _laid_out(layouts)
    given = pickle.loads(common)
    with one_blas_thread():
        return [step(layout, *mine, **given) for layout, mine in zip(layouts, pickle.loads(own), strict=True)]


# ---- independent tasks --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClusterTasks:
    """Tasks of a search on the workers; what they share is sent to the workers once."""

    client: Any
    shared: Any
    resources: Resources

    def completed(self, step: Callable[..., Result], tasks: Sequence[Any]) -> Iterator[tuple[Any, Result]]:
        """Yield each task with ``step(shared, task)``, as they finish."""
        client, distributed = self.client, require("distributed", "cluster")
        with require("dask", "cluster").config.set(ANY_SIZE):
            content = require("cloudpickle", "cluster").dumps(self.shared)
            shared = client.submit(pickle.loads, content, pure=False)
        submit = partial(client.submit, _run_task, self.resources, step, shared, pure=False)
        futures = {submit(task): task for task in tasks}
        pending = set(futures)
        try:
            while pending:
                done = [future for future in futures if future in pending and future.done()]
                for future in done:
                    yield futures[future], result_of(client, future)
                    future.release()
                if not done:
                    running_workers(client)  # there is one to do the rest
                    with suppress(TimeoutError), client.as_current():
                        distributed.wait(list(pending), timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")
                pending.difference_update(done)
        finally:
            for future in (shared, *futures):
                future.release()


def _run_task(resources: Resources, step: Callable[..., Result], shared: Any, task: Any) -> Result:
    with using(resources), one_blas_thread():
        return step(shared, task)
