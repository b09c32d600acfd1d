"""Independent tasks on processes: what they share is sent to each process once, results come as they finish.

Where :func:`dissensus.resources` names a cluster, its workers take the processes' place. At the end of the
file: copies, seeds and keys of the trials that tasks consist of.

Processes are loky's: they start clean, so that threads and locks of the caller cannot trip them,
and need no ``if __name__ == "__main__"`` in the caller's script. Each has BLAS on one thread, and ends by
itself when the process that started it is gone.
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

from dissensus.engine import Resources, current, one_blas_thread, using
from dissensus.errors import DissensusError, bad_parameter
from dissensus.params import n_cores, with_settings
from dissensus.progress import shown

Task = TypeVar("Task")
Result = TypeVar("Result")

WATCH_SECONDS = 0.5
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

_shared: Any = None  # in a worker process: what all of its tasks share


@contextmanager
def workers(
    shared: Any, n_tasks: int, *, n_jobs: int = -1, executor: Executor | None = None
) -> Iterator[Workers]:
    """``n_jobs`` processes (−1: one a core) but no more than tasks; 1 keeps the work in this process.

    On a cluster (``resources``) it is the cluster's workers, however many. An ``executor`` of the caller's
    own (``concurrent.futures``, or a Dask client's ``get_executor()``) takes their place; every task then
    carries what it shares with the others.
    """
    if n_jobs != -1 and n_jobs < 1:
        raise bad_parameter("a search", "n_jobs", "an int >= 1, or -1 for all cores", n_jobs)
    n_processes = min(n_cores() if n_jobs == -1 else n_jobs, n_tasks)
    on_cluster = current().tasks(shared)
    if executor is not None:
        # Executors of Python know how many tasks they run at once; of others n_jobs says it.
        n_at_once = getattr(executor, "_max_workers", None) or (n_cores() if n_jobs == -1 else n_jobs)
        yield Workers(partial(_run, current().share(n_at_once), shared), executor)
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
    """Calls ``run(step, task)`` of every task: in this process one after the other, or on an executor."""

    run: Callable[..., Any]
    executor: Executor | None = None
    cancels: bool = True  # not where the executor's processes are killed anyway

    def completed(
        self, step: Callable[[Any, Task], Result], tasks: Sequence[Task]
    ) -> Iterator[tuple[Task, Result]]:
        """Each task with ``step(shared, task)``, as they finish."""
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

    # loky replaces a process that has grown by 300 MB, which large tasks do: nothing to tell anybody
    warnings.filterwarnings("ignore", message="A worker was restarted", category=UserWarning)
    begin = {"initializer": _begin, "initargs": (shared, os.getpid()), "env": ONE_THREAD}
    pool = ProcessPoolExecutor(n_processes, **begin)
    try:
        yield pool
    except BrokenProcessPool as error:
        raise DissensusError(
            "a worker process died, out of memory perhaps; what was finished is kept where a directory was "
            "given: run again with fewer jobs"
        ) from error
    finally:
        pool.shutdown(wait=True, kill_workers=True)


# ---- inside a worker process --------------------------------------------------------------------------


def _begin(shared: Any, parent: int) -> None:
    global _shared
    _shared = shared
    # Ctrl-C reaches every process of a terminal; the one that started us decides what becomes of the search.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from threadpoolctl import threadpool_limits

    threadpool_limits(limits=1, user_api="blas")
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """Leave when the parent is gone: a killed search must not go on in the background."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(1)


def _run(used: Resources, shared: Any, step: Callable[[Any, Task], Result], task: Task) -> Result:
    with using(used), shown(False):
        return step(shared, task)


def _run_in_worker(used: Resources, step: Callable[[Any, Task], Result], task: Task) -> Result:
    return _run(used, _shared, step, task)


# ---- settings and seeds of trials ---------------------------------------------------------------------

SEED_NAMES = ("seed", "random_state")


def trial_copy(estimator: Any, seed: int, kept: Iterable[str]) -> Any:
    """A fresh estimator with a seed of its own, on one thread: a trial has one core.

    Settings in ``kept`` are part of the grid and stay as they are.
    """
    has = estimator.get_params(deep=False)
    wanted = {name: seed for name in SEED_NAMES if name in has} | ({"n_jobs": 1} if "n_jobs" in has else {})
    return with_settings(estimator, {name: value for name, value in wanted.items() if name not in set(kept)})


def stream_seed(seed: int, *path: Any) -> int:
    """A seed below 2³² that depends on ``seed`` and on what it is for, and on nothing else."""
    digest = hashlib.sha256(key_of([seed, *path]).encode()).digest()
    return int.from_bytes(digest[:4], "big")


def described(estimator: Any) -> dict[str, Any]:
    """Class and settings of an estimator in plain values, threads apart: they change no result."""
    own = estimator.get_params()
    settings = {name: plain(value) for name, value in own.items() if name.split("__")[-1] != "n_jobs"}
    return {"class": f"{type(estimator).__module__}.{type(estimator).__qualname__}", "settings": settings}


def settings_words(settings: Mapping[str, Any]) -> str:
    """The settings in a few words, as tables and progress show them."""
    return ", ".join(f"{name}={plain(value)}" for name, value in settings.items()) or "as given"


def key_of(value: Any) -> str:
    """A text that is the same for the same settings, in any order and any process."""
    return json.dumps(plain(value), sort_keys=True, ensure_ascii=False)


def plain(value: Any) -> Any:
    """A value in JSON's terms; what JSON has no word for, as Python would write it."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return value if value is None or isinstance(value, str | bool | int | float) else repr(value)
