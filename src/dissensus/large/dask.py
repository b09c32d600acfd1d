"""Fits and searches on the workers of a Dask cluster. See docs/cluster.md.

The layout of a block of labels is built once, on the worker that Dask assigns it to, and a step is submitted
for each block. Labels and messages are files on a disk shared by all workers (file_arrays.py); a step reads
those of the previous round, writes those of the new one and returns sums, which are added here in block
order. A step can therefore run twice: when a worker dies, Dask repeats its steps elsewhere.
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

from dissensus.engine import Block, Blocks, LocalResources, Result, cut_blocks, one_blas_thread, using
from dissensus.errors import ClusterError, bad_parameter, require, setting
from dissensus.labels.annotations import Annotations
from dissensus.large.engine import LargeEngine, n_bytes
from dissensus.large.file_arrays import file_location, labels_differ
from dissensus.params import n_cores

distributed = require("distributed", "cluster")  # this module is imported for a cluster only

WORKER_TIMEOUT = 60.0  # seconds to wait for a worker
CONNECT_TIMEOUT = 15.0  # seconds to wait for the scheduler
POLL_SECONDS = 0.5  # interval of checks that the cluster is alive
MAX_WORKER_DEATHS = 10  # deaths of workers with the same task before it fails
TASKS_PER_THREAD = 2  # tasks of a step for each thread of the cluster
MAX_INLINE_BYTES = 200_000  # larger arrays are sent to workers as files
NO_SIZE_WARNING = {"distributed.admin.large-graph-warning-threshold": "1TB"}
DASK_LOG_LEVEL = logging.CRITICAL


# ---- cluster ------------------------------------------------------------------------------------------


@contextmanager
def connect(cluster: Any, *, n_workers: int = -1) -> Iterator[Any]:
    """Yield a client of an address, of new local processes, or the client itself."""
    if isinstance(cluster, distributed.Client):
        yield cluster
        return
    if not isinstance(cluster, str):
        raise bad_parameter("resources", "cluster", "an address, 'local' or a distributed.Client", cluster)
    is_local, n = cluster == "local", n_cores() if n_workers == -1 else n_workers
    with _quiet(), _local(n) if is_local else _remote(cluster) as client:
        yield client


@contextmanager
def _local(n_workers: int) -> Iterator[Any]:
    """Start one process per worker; a worker that dies is restarted.

    A client of a scheduler can run any code. The processes therefore listen on this machine only, and accept
    only clients with a certificate that is created here, in memory, for this cluster.
    """
    require("cryptography", "cluster")
    settings = {
        # otherwise Dask does not restart a worker that dies twice within some seconds
        "distributed.deploy.lost-worker-timeout": "1000 days",
        "distributed.scheduler.allowed-failures": MAX_WORKER_DEATHS,
        # a step runs where its layout is; moving the layout costs more than the step
        "distributed.scheduler.work-stealing": False,
        # no dashboard, and no pages over plain HTTP about workers and logs: the ports answer 404
        "distributed.worker.profile.enabled": False,
        **{f"distributed.{part}.http.routes": [] for part in ("scheduler", "worker", "nanny")},
        "distributed.admin.tick.interval": "500ms",
    }
    # memory is checked before the fit
    processes: dict[str, Any] = {"n_workers": n_workers, "threads_per_worker": 1, "processes": True}
    processes |= {"memory_limit": 0, "scheduler_kwargs": {"dashboard": False}}
    # without a dashboard address, Dask would open a fixed port on all networks
    network = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0", "protocol": "tls://"}
    network["security"] = distributed.Security.temporary()
    with (
        require("dask", "cluster").config.set(settings),
        distributed.LocalCluster(**processes, **network, silence_logs=DASK_LOG_LEVEL) as cluster,
        distributed.Client(cluster, set_as_default=False, direct_to_workers=True) as client,
    ):
        yield client


@contextmanager
def _remote(address: str) -> Iterator[Any]:
    # from the configuration of Dask
    security = distributed.Security() if address.startswith("tls://") else None
    if security is not None and security.tls_ca_file is None:
        files = "DASK_DISTRIBUTED__COMM__TLS__CA_FILE and the others"
        remedy = f"name its files in Dask's configuration ({files})"
        raise ClusterError(f"{address}: TLS needs a certificate; {remedy}")
    try:
        # checked first: a client that fails to start prints messages
        distributed.comm.get_address_host_port(address)
        client = distributed.Client(address, security=security, timeout=CONNECT_TIMEOUT, set_as_default=False)
    except (OSError, ValueError, TypeError, RuntimeError) as error:
        remedy = "pass the address that it prints, with TLS files if it needs them"
        problem = f"{address}: no scheduler answers ({_reason(error)})"
        raise ClusterError(f"{problem}; start one with dask scheduler and {remedy}") from None
    try:
        yield client
    finally:
        client.close(timeout=5)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the log of Dask: failed steps are repeated, and permanent failures raise errors."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]
    levels = {logger: logger.level for logger in map(logging.getLogger, names)}
    for logger in levels:
        logger.setLevel(DASK_LOG_LEVEL)
    try:
        yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


def running_workers(client: Any) -> dict[str, int]:
    """Return the number of threads of every worker by address; wait until there is a worker."""
    deadline = time.monotonic() + WORKER_TIMEOUT
    while time.monotonic() < deadline:
        try:
            threads = dict(client.nthreads())
        except Exception as error:
            raise _lost(client, error) from error
        if threads:
            return threads
        time.sleep(0.2)
    problem = f"{_address(client)}: the cluster has had no workers for {WORKER_TIMEOUT:.0f} seconds"
    raise ClusterError(f"{problem}; start some with dask worker ADDRESS")


def _lost(client: Any, error: BaseException) -> ClusterError:
    problem = f"{_address(client)}: the connection to the scheduler was lost ({_reason(error)})"
    return ClusterError(f"{problem}; restart it and run again: with a checkpoint directory the fit resumes")


def _address(client: Any) -> str:
    return str(getattr(client.scheduler, "address", None) or "the cluster")


def _reason(error: BaseException) -> str:
    return (" ".join(str(error).split()) or type(error).__name__)[:200]


def result_of(client: Any, future: Any) -> Any:
    """Wait for the result of a future; raise an error if the cluster is lost."""
    while True:
        failed = future.status == "error"  # checked before: the task may fail right after a timeout
        try:
            return future.result(timeout=POLL_SECONDS)
        except distributed.scheduler.KilledWorker as error:
            remedy = f"lower {setting('memory')}, use fewer workers per machine, or look into their logs"
            raise ClusterError(f"workers died repeatedly, perhaps out of memory; {remedy}") from error
        except (TimeoutError, CancelledError, UnboundLocalError, OSError) as error:
            if failed:
                raise
            if client.status != "running" or future.status == "cancelled":
                raise _lost(client, error) from error
            running_workers(client)  # raises an error if there are none


# ---- fits ---------------------------------------------------------------------------------------------


class DaskEngine(LargeEngine):
    """Engine that runs the steps over blocks on the workers of a cluster."""

    client: Any
    ending: ExitStack  # callbacks at the end of the fit
    last_workers: Mapping[str, int] = MappingProxyType({})

    def blocks(self, labels: Annotations, lay_out: Callable[[Block], Any]) -> Blocks:
        """Divide labels into blocks, each converted to a layout by ``lay_out`` on a worker."""
        blocks = DaskBlocks(self, labels, lay_out)
        self.ending.callback(blocks.release)
        return blocks

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
        """Return an uninitialised array in a file shared by all workers."""
        self.workers()
        return self.files.empty(shape, dtype)

    def workers(self) -> Mapping[str, int]:
        """Return the number of threads of every worker by address."""
        before, self.last_workers = self.last_workers, running_workers(self.client)
        if not before.keys() <= self.last_workers.keys():
            self.files.retire()  # a lost worker may still write to its files
        return self.last_workers


class DaskBlocks(Blocks):
    """Blocks whose layouts are built and cached by workers, a few consecutive blocks per task."""

    engine: DaskEngine

    def __init__(self, engine: DaskEngine, labels: Annotations, layout: Callable[[Block], Any]) -> None:
        super().__init__(engine, cut_blocks(labels), layout)
        file_labels = SimpleNamespace(n_annotators=labels.n_annotators, n_classes=labels.n_classes)
        file_labels.item, file_labels.annotator, file_labels.label = map(engine.files.in_file, labels.columns)
        self.blocks = [replace(block, labels=file_labels) for block in self.blocks]
        self._checksums = [_checksum(block) for block in self.blocks]
        self._workers: Mapping[str, int] = {}
        self._parts: list[tuple[slice, Any]] = []  # blocks of a task, and the future of their layouts
        self._caches_layouts = engine.budget.unlimited
        if not self._caches_layouts:
            size = n_bytes(layout(self.blocks[0])) / max(len(self.blocks[0].shard().item), 1)
            self._caches_layouts = engine.budget.reserve(int(size * labels.n_labels))

    def map(self, step: Callable[..., Result], each: Iterable[Any] = (), **common: Any) -> Iterator[Result]:
        """Yield ``step(layout, value, **common)`` of every block, in order."""
        client, values = self.engine.client, [[value] for value in each] or [[] for _ in self.blocks]
        for name, value in common.items():
            if isinstance(value, np.ndarray):
                common[name] = np.ascontiguousarray(value)
        workers = self.engine.workers()
        if workers != self._workers:
            self._assign_blocks(workers)
        shared, copies = self.engine.files.dumps(common, MAX_INLINE_BYTES)
        futures = []
        for part, layouts in self._parts:
            content, more = self.engine.files.dumps(values[part], MAX_INLINE_BYTES)
            futures.append(client.submit(_run_step, step, layouts, content, shared, pure=False))
            copies += more
        try:
            for future in futures:
                yield from result_of(client, future)
        finally:
            for future in futures:
                future.release()

    def _assign_blocks(self, workers: Mapping[str, int]) -> None:
        """Divide the blocks into a few parts per thread of the cluster, and build their layouts."""
        self.release()
        n = n_parts = len(self.blocks)  # one block per task if layouts are not cached
        if self._caches_layouts:
            n_parts = min(n, TASKS_PER_THREAD * sum(workers.values()))
        for number in range(n_parts):
            part = slice(n * number // n_parts, n * (number + 1) // n_parts)
            arguments = self.lay_out, self.blocks[part], self._checksums[part]
            layouts: Any = self.engine.files.dumps(arguments, MAX_INLINE_BYTES)[0]
            if self._caches_layouts:
                layouts = self.engine.client.submit(_build_layouts, layouts, pure=False)
            self._parts.append((part, layouts))
        self._workers = workers

    def release(self) -> None:
        """Release the layouts on the workers."""
        for _, layouts in self._parts if self._caches_layouts else ():
            layouts.release()
        self._parts = []


def _checksum(block: Block) -> int:
    checksum = 0
    for column in (block.labels.item, block.labels.annotator, block.labels.label):
        checksum = zlib.crc32(column[block.rows], checksum)
    return checksum


# Arguments are unpickled inside the tasks, so that a missing file raises an error of the task.


def _build_layouts(content: bytes) -> list[Any]:
    lay_out, blocks, checksums = pickle.loads(content)
    if checksums != [_checksum(block) for block in blocks]:
        location = file_location(blocks[0].labels.label)
        raise labels_differ(location and location.path)
    return [lay_out(block) for block in blocks]


def _run_step(step: Callable[..., Any], layouts: Any, values: bytes, common: bytes) -> list[Any]:
    if isinstance(layouts, bytes):
        layouts = _build_layouts(layouts)
    arguments, pairs = pickle.loads(common), zip(layouts, pickle.loads(values), strict=True)
    with one_blas_thread():
        return [step(layout, *value, **arguments) for layout, value in pairs]


# ---- independent tasks --------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClusterTasks:
    """Tasks of a search on the workers; shared data are sent once."""

    client: Any
    shared: Any
    resources: LocalResources

    def completed(self, step: Callable[..., Result], tasks: Sequence[Any]) -> Iterator[tuple[Any, Result]]:
        """Yield each task with the result of ``step(shared, task)`` as it finishes."""
        client = self.client
        with require("dask", "cluster").config.set(NO_SIZE_WARNING):
            content = require("cloudpickle", "cluster").dumps(self.shared)
            shared = client.submit(pickle.loads, content, pure=False)
        submit = partial(client.submit, _run_task, self.resources, step, shared, pure=False)
        pending = {submit(task): task for task in tasks}
        try:
            while pending:
                done = [future for future in pending if future.done()]
                for future in done:
                    yield pending[future], result_of(client, future)
                    future.release()
                    del pending[future]
                if not done:
                    running_workers(client)  # raises an error if there are none
                    with suppress(TimeoutError), client.as_current():
                        distributed.wait(list(pending), timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")
        finally:
            for future in (shared, *pending):
                future.release()


def _run_task(resources: LocalResources, step: Callable[..., Result], shared: Any, task: Any) -> Result:
    with using(resources), one_blas_thread():
        return step(shared, task)
