"""An executor whose blocks are worked on by a Dask cluster.

Every round is a set of tasks of some consecutive blocks each, sent to the worker that had them before where
it is free. A step reads what the round before kept and writes its own, so a task may run twice: when a worker
dies its tasks run elsewhere, and when too much is lost at once the round's open tasks are sent again.
"""

from __future__ import annotations

import itertools
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from dissensus.data.annotations import Annotations
from dissensus.data.blocks import blocks_of
from dissensus.errors import ClusterError
from dissensus.execution.dask.connection import tell_workers
from dissensus.execution.dask.sources import source_of
from dissensus.execution.dask.worker import FiledTable, Task, forget, run_blocks
from dissensus.execution.messages import cannot_keep, write_array
from dissensus.execution.threads import Layout, in_one_order

Result = TypeVar("Result")

TASKS_A_THREAD = 4  # tasks of a round for every thread of the cluster: some even out what others take longer
SMALL = 200_000  # bytes up to which parameters travel with every task; larger tables are read from a file
PATIENCE = 0.5  # seconds between two looks at whether anybody works on a task
TRIES = 6  # how often a round's open tasks are sent before the cluster is given up


class Dask:
    """The threads of a cluster's workers."""

    def __init__(self, client: Any, scratch: Path, most_labels: int | None = None) -> None:
        self._client = client
        self._scratch = scratch
        self._most_labels = most_labels
        self._sources: set[str] = set()

    def map(self, step: Callable[[Any], Result], over: Sequence[Any]) -> list[Result]:
        """One after the other, here: each of them has the whole cluster to itself."""
        return [step(element) for element in over]

    def over(self, annotations: Annotations, layout: Layout) -> RemoteWork:
        """The annotations' blocks, ready for steps."""
        work = RemoteWork(self._client, annotations, layout, self._scratch, self._most_labels)
        self._sources.add(work.source.key)
        return work

    def close(self) -> None:
        """No worker keeps labels of a fit that is over."""
        for key in self._sources:
            tell_workers(self._client, forget, key)


class RemoteWork:
    """Blocks that are worked on where the cluster likes."""

    def __init__(
        self, client: Any, annotations: Annotations, layout: Layout, scratch: Path, most_labels: int | None
    ) -> None:
        self.blocks = blocks_of(annotations)
        self._client = client
        self.source = source_of(annotations, scratch)
        self._layout = layout
        self._scratch = scratch
        self._most_labels = most_labels

    def map(self, step: Callable[..., Result], each: Iterable[Any] = (), **common: Any) -> Iterator[Result]:
        """``step(layout, own, **common)`` of every block, in their order."""
        own: list[tuple[Any, ...]] = [(one,) for one in each] or [()] * len(self.blocks)
        workers = self._workers()
        left = self._tasks(own, sum(workers.values()))
        with self._filed(in_one_order(common)) as shared:
            for _ in range(TRIES):
                futures: list[Any] = []
                try:
                    futures = self._sent(left, step, shared, sorted(workers))
                    while futures:
                        results = self._result(futures[0])
                        del futures[0], left[0]
                        yield from results
                    return
                except Exception as error:
                    if not self._is_loss(error, of_task=bool(futures) and futures[0].status == "error"):
                        raise
                    workers = self._workers()
        raise ClusterError(
            "the cluster's workers died again and again, out of memory perhaps; give them more of it, or "
            "fewer threads"
        )

    def _tasks(self, own: Sequence[tuple[Any, ...]], n_threads: int) -> list[Task]:
        """Runs of consecutive blocks; how they are cut does not reach the result."""
        n = len(self.blocks)
        n_tasks = min(n, TASKS_A_THREAD * n_threads)
        cuts = itertools.pairwise(n * task // n_tasks for task in range(n_tasks + 1))
        return [
            Task(self.source, self._layout, self._most_labels, a, self.blocks[a:b], own[a:b]) for a, b in cuts
        ]

    @contextmanager
    def _filed(self, common: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The same, large tables as files: written once, and not lost with a worker."""
        folder = self._scratch / f"tables-{uuid.uuid4().hex[:12]}"
        shared = dict(common)
        try:
            for name, value in common.items():
                if getattr(value, "nbytes", 0) > SMALL:
                    shared[name] = _filed_table(folder / f"{name}.npy", value)
            yield shared
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _sent(
        self, tasks: Sequence[Task], step: Callable[..., Any], common: dict[str, Any], workers: Sequence[str]
    ) -> list[Any]:
        """A future for every task."""
        return [
            self._client.submit(
                run_blocks,
                task,
                step,
                common,
                pure=False,
                workers=[workers[task.first * len(workers) // len(self.blocks)]],
                allow_other_workers=True,
            )
            for task in tasks
        ]

    def _result(self, future: Any) -> list[Any]:
        """What a task returned; a task that nobody has in hand is lost.

        Dask would let it wait for ever: where for a moment there is no worker at all, a task that prefers
        one of them is not given to those that come after. Missed once, it may be on its way.
        """
        missed = 0
        while True:
            try:
                return list(future.result(timeout=PATIENCE))
            except TimeoutError:
                missed = 0 if self._in_hand(future) else missed + 1
                if future.status == "error" or missed > 1:
                    raise

    def _in_hand(self, future: Any) -> bool:
        self._workers()  # there is one that could take it
        return any(future.key in keys for keys in self._client.processing().values())

    def _workers(self) -> dict[str, int]:
        """Threads of every worker that is there; waits for one, but not for ever."""
        from dissensus.execution.dask.connection import running_workers

        return running_workers(self._client)

    def _is_loss(self, error: Exception, *, of_task: bool) -> bool:
        """Was it the cluster and not the step that failed? A lost scheduler is for the caller to know."""
        from dissensus.execution.dask.connection import is_loss

        return is_loss(self._client, error, of_task=of_task)


def _filed_table(path: Path, table: Any) -> FiledTable:
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise cannot_keep(path.parent, error) from error
    write_array(path, table)
    return FiledTable(str(path))
