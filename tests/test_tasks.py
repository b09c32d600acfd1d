"""Tasks on processes: each is done once, and what goes wrong is told."""

from __future__ import annotations

import os
import time
from pathlib import Path

import numpy as np
import pytest

from dissensus.errors import DataError, DissensusError
from dissensus.evaluate.tasks import workers


def _who(shared: int, task: float) -> tuple[int, float]:
    """Take some time, and say who it was."""
    time.sleep(task)
    return os.getpid(), shared + task


def test_every_task_is_done_once_by_the_processes() -> None:
    tasks = [0.01 + 0.0001 * n for n in range(60)]
    with workers(1, len(tasks), n_jobs=2) as pool:
        found = dict(pool.completed(_who, tasks))
        more = dict(pool.completed(_who, [0.05, 0.06, 0.07, 0.08]))
    assert sorted(found) == tasks
    assert all(value == 1 + task for task, (_, value) in found.items())
    processes = {who for who, _ in [*found.values(), *more.values()]}
    assert len(processes) == 2
    assert os.getpid() not in processes


def _fails(shared: Path, task: int) -> int:
    if task == 3:
        raise DataError("task 3 cannot be done")
    return task


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_task_that_fails_is_told_wherever_it_ran(n_jobs: int) -> None:
    with pytest.raises(DataError, match="task 3 cannot be done"), workers(None, 6, n_jobs=n_jobs) as pool:
        list(pool.completed(_fails, range(6)))


def _deadly(shared: None, task: int) -> None:
    os._exit(1)


@pytest.mark.filterwarnings("ignore")
def test_a_process_that_dies_is_one_clear_line() -> None:
    with pytest.raises(DissensusError, match="a worker process died"), workers(None, 100, n_jobs=2) as pool:
        list(pool.completed(_deadly, range(100)))


def _threads_of_blas(shared: None, task: int) -> set[int]:
    from threadpoolctl import threadpool_info

    np.ones((2, 2)) @ np.ones((2, 2))
    time.sleep(0.02)
    return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_blas_has_one_thread_wherever_a_task_runs(n_jobs: int) -> None:
    with workers(None, 10, n_jobs=n_jobs) as pool:
        assert all(threads == {1} for _, threads in pool.completed(_threads_of_blas, range(10)))
