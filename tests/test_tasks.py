"""Tasks on processes, the asking one among them: each is done once, and what goes wrong is told."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import numpy as np
import pytest

from dissensus.errors import DataError, DissensusError
from dissensus.evaluate.tasks import COLLECTED, workers


def _who(shared: int, task: float) -> tuple[int, float, int]:
    """Take some time, and say who it was."""
    time.sleep(task)
    return os.getpid(), shared + task, gc.get_threshold()[0]


def test_the_asking_process_takes_part_and_every_task_is_done_once() -> None:
    before, tasks = gc.get_threshold(), [0.01 + 0.0001 * n for n in range(60)]
    with workers(1, len(tasks), n_jobs=2, takes_part=True) as pool:
        found = dict(pool.completed(_who, tasks))
        more = dict(pool.completed(_who, [0.05, 0.06, 0.07, 0.08]))
    assert sorted(found) == tasks
    assert all(value == 1 + task for task, (_, value, _) in found.items())
    assert os.getpid() in {who for who, *_ in found.values()}
    assert len({who for who, *_ in [*found.values(), *more.values()]}) == 2
    assert {often for *_, often in found.values()} == {COLLECTED}
    assert gc.get_threshold() == before


def test_without_taking_part_the_asking_process_does_nothing() -> None:
    with workers(1, 4, n_jobs=2) as pool:
        found = dict(pool.completed(_who, [0.01, 0.02, 0.03, 0.04]))
    assert os.getpid() not in {who for who, *_ in found.values()}


def _fails(shared: Path, task: int) -> int:
    if task == 3:
        raise DataError("task 3 cannot be done")
    return task


@pytest.mark.parametrize("order", [(3, 0, 1, 2, 4, 5), (0, 1, 2, 4, 5, 3)])  # theirs, and ours
def test_a_task_that_fails_is_told_wherever_it_ran(order: tuple[int, ...]) -> None:
    with (
        pytest.raises(DataError, match="task 3 cannot be done"),
        workers(None, 6, n_jobs=2, takes_part=True) as pool,
    ):
        list(pool.completed(_fails, order))


def _deadly(shared: int, task: int) -> None:
    if os.getpid() != shared:
        os._exit(1)
    time.sleep(0.05)


@pytest.mark.filterwarnings("ignore")
def test_a_process_that_dies_is_one_clear_line_where_this_one_takes_part() -> None:
    with (
        pytest.raises(DissensusError, match="a worker process died"),
        workers(os.getpid(), 100, n_jobs=2, takes_part=True) as pool,
    ):
        list(pool.completed(_deadly, range(100)))


def _threads_of_blas(shared: None, task: int) -> set[int]:
    from threadpoolctl import threadpool_info

    np.ones((2, 2)) @ np.ones((2, 2))
    time.sleep(0.02)
    return {found["num_threads"] for found in threadpool_info() if found["user_api"] == "blas"}


def test_blas_has_one_thread_wherever_a_task_runs() -> None:
    with workers(None, 80, n_jobs=2, takes_part=True) as pool:
        assert all(threads == {1} for _, threads in pool.completed(_threads_of_blas, range(80)))
