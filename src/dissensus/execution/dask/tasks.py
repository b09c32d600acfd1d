"""Independent tasks on the workers of a Dask cluster.

What the tasks share is sent to every worker once, and unpacked there once. Labels of a store do not travel:
each worker opens the store at its path. Results come as they finish; the tasks of a worker that dies are done
again on another.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from dissensus.errors import ClusterError, require
from dissensus.execution.resources import Resources, using

Task = TypeVar("Task")
Result = TypeVar("Result")

PACKING = "distributed.protocol.pickle"  # as Dask itself sends a function and its arguments
TRIES = 6  # how often unfinished tasks are sent before the cluster is given up


class OnCluster:
    """The workers of a cluster."""

    def __init__(self, client: Any, shared: Any, used: Resources) -> None:
        self._client = client
        # As bytes, so that a worker unpacks it once; labels of a store are no more than its path.
        self._content = uuid.uuid4().hex, require(PACKING, "cluster").dumps(shared)
        self._used = used
        self._of_task = False  # was it a task that raised the last error?

    def completed(
        self, step: Callable[[Any, Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[Task, Result]]:
        """Each task with ``step(shared, task)``, as they finish."""
        from dissensus.execution.dask.connection import is_loss, running_workers

        left = dict(enumerate(tasks))
        for _ in range(TRIES):
            running_workers(self._client)
            try:
                for number, result in self._finished(step, left):
                    yield left.pop(number), result
                return
            except Exception as error:
                if not is_loss(self._client, error, of_task=self._of_task):
                    raise
        raise ClusterError(
            "the cluster's workers died again and again, out of memory perhaps; give them more of it, or "
            "fewer threads"
        )

    def close(self) -> None:
        """No worker keeps what the tasks of a search shared once it is over."""
        from dissensus.execution.dask.connection import tell_workers

        tell_workers(self._client, forget, self._content[0])

    def _finished(
        self, step: Callable[[Any, Task], Result], left: dict[int, Task]
    ) -> Iterator[tuple[int, Result]]:
        distributed = require("distributed", "cluster")
        self._of_task = False
        content = self._client.scatter(self._content, broadcast=True, hash=False)
        futures = {
            self._client.submit(run_task, content, step, task, self._used, pure=False): number
            for number, task in left.items()
        }
        try:
            for future in distributed.as_completed(list(futures), loop=self._client.loop):
                self._of_task = future.status == "error"
                yield futures[future], future.result()
        finally:
            self._client.cancel(list(futures))


# ---- inside a worker ----------------------------------------------------------------------------------

_unpacked: dict[str, tuple[Any]] = {}  # what the tasks of the last search share
_unpacking = threading.Lock()


def run_task(
    content: tuple[str, bytes], step: Callable[[Any, Task], Result], task: Task, used: Resources
) -> Result:
    """One task, with BLAS on one thread."""
    from dissensus.execution.threads import one_blas_thread

    with using(used), one_blas_thread():
        return step(_shared(*content), task)


def _shared(name: str, content: bytes) -> Any:
    with _unpacking:
        found = _unpacked.get(name)
        if found is None:
            _unpacked.clear()
            found = _unpacked[name] = (require(PACKING, "cluster").loads(content),)
        return found[0]


def forget(name: str) -> None:
    """Drop what the tasks of a search shared."""
    _unpacked.pop(name, None)
