"""Tasks on processes."""

import os
import time

import numpy as np
import pytest

from dissensus.errors import DissensusError
from dissensus.evaluate.tasks import workers


def _run_task(shared: int, task: float) -> tuple[int, float]:
    """Sleep, and return the process and a sum."""
    time.sleep(task)
    return os.getpid(), shared + task


def test_every_task_runs_once() -> None:
    tasks = [0.01 + 0.0001 * n for n in range(60)]
    with workers(1, len(tasks), n_jobs=2) as pool:
        results = dict(pool.completed(_run_task, tasks))
        more = dict(pool.completed(_run_task, [0.05, 0.06, 0.07, 0.08]))
    assert sorted(results) == tasks
    assert all(value == 1 + task for task, (_, value) in results.items())
    processes = {process for process, _ in [*results.values(), *more.values()]}
    assert len(processes) == 2
    assert os.getpid() not in processes


def _deadly(shared: None, task: int) -> None:
    os._exit(1)


@pytest.mark.filterwarnings("ignore")
def test_dead_process() -> None:
    with pytest.raises(DissensusError, match="a worker process died"), workers(None, 100, n_jobs=2) as pool:
        list(pool.completed(_deadly, range(100)))


def _threads_of_blas(shared: None, task: int) -> set[int]:
    from threadpoolctl import threadpool_info

    np.ones((2, 2)) @ np.ones((2, 2))
    time.sleep(0.02)
    return {results["num_threads"] for results in threadpool_info() if results["user_api"] == "blas"}


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_blas_uses_one_thread(n_jobs: int) -> None:
    with workers(None, 10, n_jobs=n_jobs) as pool:
        assert all(threads == {1} for _, threads in pool.completed(_threads_of_blas, range(10)))
