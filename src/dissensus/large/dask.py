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
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import Block, Blocks, Resources, Result, cut_blocks, one_blas_thread, using
from dissensus.errors import ClusterError, DataError, bad_parameter, require
from dissensus.labels.annotations import Annotations
from dissensus.large.engine import LargeEngine, n_bytes
from dissensus.large.file_arrays import as_file_array, new_file_array, pickled_places, place_in_file
from dissensus.params import n_cores

WORKER_SECONDS = 60.0  # to wait for a worker, before there is none to do the work
CONNECT_SECONDS = 15.0
POLL_SECONDS = 0.5  # between two looks at whether the cluster is still there
DEATHS = 10  # of workers that had a task, before it is given up
PARTS_PER_THREAD = 2  # of the blocks, for each thread of the cluster: tasks of a step
SMALL_BYTES = 200_000  # up to which parameters travel with every step; larger tables are files
QUIET = logging.CRITICAL  # of the cluster's own messages, what reaches the terminal


# ---- a cluster ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Tls:
    """Three files: who is trusted, who we are, and our key."""

    ca: Path
    cert: Path
    key: Path

    def security(self) -> Any:
        """As Dask wants it; an unencrypted connection is refused."""
        for file in (self.ca, self.cert, self.key):
            if not Path(file).is_file():
                raise ClusterError(f"{file}: there is no such file; give the three files of TLS")
        return require("distributed", "cluster").Security(
            tls_ca_file=str(self.ca),
            tls_client_cert=str(self.cert),
            tls_client_key=str(self.key),
            require_encryption=True,
        )


@contextmanager
def connected(cluster: Any, *, n_workers: int = -1, tls: Tls | None = None) -> Iterator[Any]:
    """A client of the cluster: an address, ``"local"`` (processes on this machine), or a client as it is."""
    distributed = require("distributed", "cluster")
    if isinstance(cluster, distributed.Client):
        yield cluster
        return
    if not isinstance(cluster, str):
        raise bad_parameter("resources", "cluster", "an address, 'local' or a distributed.Client", cluster)
    opened = (
        _local(distributed, n_cores() if n_workers == -1 else n_workers)
        if cluster == "local"
        else _remote(distributed, cluster, tls)
    )
    with _quiet(), opened as client:
        yield client


@contextmanager
def _local(distributed: Any, n_workers: int) -> Iterator[Any]:
    """One process per worker; one that dies is started again, however often.

    Whoever may send a scheduler work runs code as we do. So these processes listen on this machine alone, and
    only to those who have the certificate that is made here, in memory, for this one cluster.
    """
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
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def _remote(distributed: Any, address: str, tls: Tls | None) -> Iterator[Any]:
    security = None if tls is None else tls.security()
    if tls is None and address.startswith("tls://"):
        raise ClusterError(f"{address}: asks for a certificate; give the three files of TLS with tls=")
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
    loggers = [logging.getLogger(n) for n in logging.root.manager.loggerDict if n.startswith("distributed")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(QUIET)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
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
    scheduler = getattr(client, "scheduler", None)
    return str(getattr(scheduler, "address", None) or "the cluster")


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return (text or type(error).__name__)[:200]


def result_of(client: Any, future: Any) -> Any:
    """The result of a future, once it is there; an error where the cluster cannot give it."""
    distributed = require("distributed", "cluster")
    while True:
        try:
            return future.result(timeout=POLL_SECONDS)
        except distributed.scheduler.KilledWorker as error:
            raise ClusterError(
                "workers died again and again, out of memory perhaps; allow less with memory=, use fewer "
                "workers on a machine, or look into their logs"
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

    client: Any = None

    @contextmanager
    def using(self, client: Any) -> Iterator[None]:
        """Use a client for the length of a fit; no worker keeps anything of it afterwards."""
        self.client = client
        self.all_blocks: list[DaskBlocks] = []
        try:
            yield
        finally:
            for blocks in self.all_blocks:
                blocks.release()

    def blocks(self, labels: Annotations, lay_out: Callable[[Block], Any]) -> Blocks:
        """Cut labels into blocks, each laid out by ``lay_out`` on a worker."""
        self.all_blocks.append(DaskBlocks(self, labels, lay_out))
        return self.all_blocks[-1]

    def empty(self, shape: tuple[int, ...], dtype: Any = np.float64) -> NDArray[Any]:
        """An array for steps to fill: a file that every worker reaches."""
        return new_file_array(self.scratch(), shape, dtype)


@dataclass(frozen=True, eq=False)
class FiledLabels:
    """The columns of labels in files, for the workers."""

    item: Any
    annotator: Any
    label: Any
    n_annotators: int
    n_classes: int


class DaskBlocks(Blocks):
    """Blocks that workers lay out and keep, a few consecutive ones in each task."""

    engine: DaskEngine

    def __init__(self, engine: DaskEngine, labels: Annotations, layout: Callable[[Block], Any]) -> None:
        super().__init__(engine, cut_blocks(labels), layout)
        item, annotator, label = (as_file_array(column, engine.scratch()) for column in labels.columns)
        filed = FiledLabels(item, annotator, label, labels.n_annotators, labels.n_classes)
        self.blocks = [replace(block, labels=filed) for block in self.blocks]
        self._checksums = [_checksum(block) for block in self.blocks]
        self._workers: dict[str, int] = {}
        self._parts: list[tuple[slice, Any]] = []  # blocks of a task, and a future of their layouts
        self._keeps_layouts = engine.budget.unlimited
        if not self._keeps_layouts:
            size = n_bytes(layout(self.blocks[0])) / max(len(self.blocks[0].shard().item), 1)
            self._keeps_layouts = engine.budget.take(int(size * labels.n_labels))

    def map(self, step: Callable[..., Result], each: Iterable[Any] = (), **common: Any) -> Iterator[Result]:
        """Yield ``step(layout, own, **common)`` of every block, in order."""
        client = self.engine.client
        own: list[tuple[Any, ...]] = [(value,) for value in each] or [()] * len(self.blocks)
        for name, value in common.items():
            if isinstance(value, np.ndarray):
                common[name] = np.ascontiguousarray(value)
        workers = running_workers(client)
        if workers != self._workers:  # share the blocks among those that are there now
            self._share(workers)
        shared, files = self._pickled(common)
        futures = []
        for part, layouts in self._parts:
            content, more = self._pickled(own[part])
            futures.append(client.submit(_stepped, step, layouts, content, shared, pure=False))
            files += more
        try:
            for future in futures:
                yield from result_of(client, future)
        finally:
            for future in futures:
                future.release()

    def _share(self, workers: dict[str, int]) -> None:
        """Divide the blocks into parts, a few for each thread of the cluster, and have them laid out."""
        self.release()
        n, n_parts = len(self.blocks), min(len(self.blocks), PARTS_PER_THREAD * sum(workers.values()))
        for number in range(n_parts):
            part = slice(n * number // n_parts, n * (number + 1) // n_parts)
            checked = list(zip(self.blocks[part], self._checksums[part], strict=True))
            content, _ = self._pickled((self.lay_out, checked))
            if self._keeps_layouts:
                layouts = self.engine.client.submit(_laid_out, content, pure=False)
            self._parts.append((part, layouts if self._keeps_layouts else content))
        self._workers = workers

    def _pickled(self, value: Any) -> tuple[bytes, list[NDArray[Any]]]:
        return pickled_places(value, self.engine.scratch(), SMALL_BYTES)

    def release(self) -> None:
        """Let workers forget the layouts."""
        for _, layouts in self._parts if self._keeps_layouts else ():
            layouts.release()
        self._parts = []


def _checksum(block: Block) -> int:
    """A checksum of a block's labels."""
    checksum = 0
    for column in (block.labels.item, block.labels.annotator, block.labels.label):
        checksum = zlib.crc32(column[block.rows], checksum)
    return checksum


# Arguments are pickled here and unpickled inside the tasks, where a file that is missing is the task's error.


def _laid_out(content: bytes) -> list[Any]:
    return list(_layouts(content))


def _layouts(content: bytes) -> Iterator[Any]:
    lay_out, blocks = pickle.loads(content)
    for block, checksum in blocks:
        if _checksum(block) != checksum:
            place = place_in_file(block.labels.label)
            raise DataError(
                f"{place and Path(place.path).parent}: holds other labels on this worker's machine than on "
                "the driver's; copy the store there again"
            )
        yield lay_out(block)


def _stepped(step: Callable[..., Any], layouts: Any, own: bytes, common: bytes) -> list[Any]:
    laid_out = _layouts(layouts) if isinstance(layouts, bytes) else layouts
    with one_blas_thread():
        given = pickle.loads(common)
        return [
            step(layout, *mine, **given) for layout, mine in zip(laid_out, pickle.loads(own), strict=True)
        ]


# ---- independent tasks --------------------------------------------------------------------------------


class ClusterTasks:
    """Tasks of a search on the workers; what they share is sent to each worker once."""

    def __init__(self, client: Any, shared: Any, resources: Resources) -> None:
        self._client = client
        self._resources = resources
        self._shared = shared

    def completed(self, step: Callable[..., Result], tasks: Sequence[Any]) -> Iterator[tuple[Any, Result]]:
        """Yield each task with ``step(shared, task)``, as they finish."""
        client, wait = self._client, require("distributed", "cluster").wait
        shared = client.submit(_itself, self._shared, pure=False)
        options = {"pure": False}
        futures = {
            client.submit(_run_task, step, shared, task, self._resources, **options): task for task in tasks
        }
        try:
            while futures:
                done = [future for future in futures if future.done()]
                for future in done:
                    result = result_of(client, future)
                    yield futures.pop(future), result
                if not done:
                    running_workers(client)
                    try:
                        with client.as_current():
                            wait(list(futures), timeout=POLL_SECONDS, return_when="FIRST_COMPLETED")
                    except TimeoutError:
                        continue
        finally:
            for future in (shared, *futures):
                future.release()


def _itself(shared: Any) -> Any:
    return shared


def _run_task(step: Callable[..., Result], shared: Any, task: Any, resources: Resources) -> Result:
    with using(resources), one_blas_thread():
        return step(shared, task)
