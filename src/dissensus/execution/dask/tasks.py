"""Independent tasks on the workers of a Dask cluster.

What the tasks share is sent to every worker once, and unpacked there once. Labels of a store do not travel:
each worker opens the store at its path. Results come as they finish.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dissensus.errors import require
from dissensus.evaluate.tasks import Result, Task
from dissensus.execution.dask.cluster import completed, tell_workers
from dissensus.execution.resources import Resources, using
from dissensus.execution.threads import one_blas_thread

PACKING = "distributed.protocol.pickle"  # as Dask itself sends a function and its arguments


class OnCluster:
    """The workers of a cluster."""

    def __init__(self, client: Any, shared: Any, used: Resources) -> None:
        self._client = client
        # As bytes, so that a worker unpacks it once; labels of a store are no more than its path.
        self._content = uuid.uuid4().hex, require(PACKING, "cluster").dumps(shared)
        self._used = used

    def completed(
        self, step: Callable[[Any, Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[Task, Result]]:
        """Each task with ``step(shared, task)``, as they finish."""

        def given() -> tuple[Any, ...]:
            return self._client.scatter(self._content, broadcast=True, hash=False), step, self._used

        for number, result in completed(self._client, run_task, tasks, given):
            yield tasks[number], result

    def close(self) -> None:
        """No worker keeps what the tasks shared once they are done."""
        tell_workers(self._client, forget_shared, self._content[0])


# ---- inside a worker ----------------------------------------------------------------------------------

_unpacked: dict[str, tuple[Any]] = {}  # what the tasks of the last search share
_unpacking = threading.Lock()


def run_task(
    task: Task, content: tuple[str, bytes], step: Callable[[Any, Task], Result], used: Resources
) -> Result:
    """One task, with BLAS on one thread."""
    with using(used), one_blas_thread():
        return step(_shared(*content), task)


def _shared(name: str, content: bytes) -> Any:
    with _unpacking:
        found = _unpacked.get(name)
        if found is None:
            _unpacked.clear()
            found = _unpacked[name] = (require(PACKING, "cluster").loads(content),)
        return found[0]


def forget_shared(name: str) -> None:
    """Drop what the tasks of a search shared."""
    _unpacked.pop(name, None)
