"""Independent tasks on processes, and the seeds and keys of trials.

Shared data are sent to each process once, and results arrive as they finish. Inside
:func:`dissensus.resources` with a cluster, its workers replace the processes.

The processes are loky's: they do not inherit threads and locks, and the caller's script needs no
``if __name__ == "__main__"``. Each uses one BLAS thread and exits when its parent is gone.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import numpy as np

from dissensus.engine import LocalResources, current, one_blas_thread, using
from dissensus.errors import DissensusError, bad_parameter
from dissensus.params import n_cores, with_settings
from dissensus.progress import shown

Task = TypeVar("Task")
Result = TypeVar("Result")
Step = Callable[[Any, Task], Result]  # takes the shared data and a task

PARENT_CHECK_SECONDS = 0.5
ONE_THREAD_ENVIRONMENT = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

_shared: Any = None  # shared data of all tasks, in a worker process


@contextmanager
def workers(shared: Any, n_tasks: int, n_jobs: int, executor: Executor | None = None) -> Iterator[Workers]:
    """Start ``n_jobs`` processes (−1: one per core), at most one per task; 1 runs tasks in this process.

    On a cluster (``resources``), its workers are used. An ``executor`` (``concurrent.futures``, or a Dask
    client's ``get_executor()``) replaces both; every task then carries the shared data.
    """
    if n_jobs != -1 and n_jobs < 1:
        raise bad_parameter("a search", "n_jobs", "an int >= 1, or -1 for all cores", n_jobs)
    n_processes = min(n_cores() if n_jobs == -1 else n_jobs, n_tasks)
    on_cluster = current().tasks(shared)
    if executor is not None:
        # Python's executors know how many tasks they run in parallel; for others, n_jobs says so
        n_parallel = getattr(executor, "_max_workers", None) or (n_cores() if n_jobs == -1 else n_jobs)
        yield Workers(partial(_run, current().share(n_parallel), shared), executor)
    elif on_cluster is not None:
        yield on_cluster
    elif n_processes > 1:
        with _processes(shared, n_processes) as pool:
            yield Workers(partial(_run_in_worker, current().share(n_processes)), pool, cancels=False)
    else:
        with one_blas_thread():
            yield Workers(partial(_run, current().share(1), shared))


@dataclass(frozen=True)
class Workers:
    """Run ``run(step, task)`` for every task, in this process or on an executor."""

    run: Callable[..., Any]
    executor: Executor | None = None
    cancels: bool = True  # False if the processes of the executor are killed anyway

    def completed(self, step: Step[Task, Result], tasks: Sequence[Task]) -> Iterator[tuple[Task, Result]]:
        """Yield each task with the result of ``step(shared, task)`` as it finishes."""
        if self.executor is None:
            for task in tasks:
                yield task, self.run(step, task)
            return
        futures = {self.executor.submit(self.run, step, task): task for task in tasks}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            for future in futures if self.cancels else ():
                future.cancel()


@contextmanager
def _processes(shared: Any, n_processes: int) -> Iterator[Any]:
    from loky import ProcessPoolExecutor

    # loky replaces a process that has grown by 300 MB, which is normal for large tasks
    warnings.filterwarnings("ignore", message="A worker was restarted", category=UserWarning)
    options = {"initializer": _start_worker, "initargs": (shared, os.getpid()), "env": ONE_THREAD_ENVIRONMENT}
    pool = ProcessPoolExecutor(n_processes, **options)
    try:
        yield pool
    except BrokenProcessPool as error:
        remedy = "run again with fewer jobs (finished trials are kept if a directory was given)"
        raise DissensusError(f"a worker process died, perhaps out of memory; {remedy}") from error
    finally:
        pool.shutdown(wait=True, kill_workers=True)


# ---- inside a worker process --------------------------------------------------------------------------


def _start_worker(shared: Any, parent: int) -> None:
    global _shared
    _shared = shared
    # Ctrl-C reaches every process of a terminal; only the parent handles it
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=1, user_api="blas")
    threading.Thread(target=_exit_with_parent, args=(parent,), daemon=True).start()


def _exit_with_parent(parent: int) -> None:
    """Exit when the parent is gone, so that a killed search leaves no processes behind."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_SECONDS)
    os._exit(1)


def _run(resources: LocalResources, shared: Any, step: Step[Task, Result], task: Task) -> Result:
    with using(resources), shown(False):
        return step(shared, task)


def _run_in_worker(resources: LocalResources, step: Step[Task, Result], task: Task) -> Result:
    return _run(resources, _shared, step, task)


# ---- settings and seeds of trials ---------------------------------------------------------------------

SEED_NAMES = ("seed", "random_state")


def trial_copy(estimator: Any, seed: int, fixed: Iterable[str]) -> Any:
    """Return an unfitted copy with its own seed and one thread; settings in ``fixed`` stay unchanged."""
    settings = dict.fromkeys(SEED_NAMES, seed) | {"n_jobs": 1}
    names = estimator.get_params(deep=False).keys() - set(fixed)
    return with_settings(estimator, {name: value for name, value in settings.items() if name in names})


def stream_seed(seed: int, *path: Any) -> int:
    """Return a seed below 2³² that depends only on ``seed`` and ``path``."""
    return int.from_bytes(hashlib.sha256(key_of([seed, *path]).encode()).digest()[:4], "big")


def describe_estimator(estimator: Any) -> dict[str, Any]:
    """Return class and settings of an estimator as plain values, without ``n_jobs``."""
    params = estimator.get_params()
    settings = {name: plain(value) for name, value in params.items() if name.split("__")[-1] != "n_jobs"}
    return {"class": f"{type(estimator).__module__}.{type(estimator).__qualname__}", "settings": settings}


def settings_words(settings: Mapping[str, Any]) -> str:
    """Format settings for tables and progress messages."""
    return ", ".join(f"{name}={plain(value)}" for name, value in settings.items()) or "default settings"


def key_of(value: Any) -> str:
    """Return a text that is equal for equal settings, in any order and any process."""
    return json.dumps(plain(value), sort_keys=True, ensure_ascii=False)


def plain(value: Any) -> Any:
    """Convert a value to JSON types; other objects become their repr."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return value if value is None or isinstance(value, str | bool | int | float) else repr(value)
