"""Shards depend on the labels alone, and whatever executes a step, the sum has the same bits."""

from __future__ import annotations

import itertools
import re
import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import dissensus as ds
from dissensus.errors import ParameterError
from dissensus.execution.threads import Local, executor, total
from dissensus.labels import blocks
from dissensus.labels.blocks import Shard, shards_of
from dissensus.params import n_cores


def crowd(seed: int = 0) -> ds.Annotations:
    """200 items of very different sizes, some without labels, one larger than a shard."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 12, size=200)
    sizes[[0, 17, 18, 199]] = 0
    sizes[100] = 150
    item = np.repeat(np.arange(200), sizes)
    table = {
        "item": item,
        "annotator": rng.integers(0, 30, len(item)),
        "label": rng.integers(0, 3, len(item)),
    }
    order = rng.permutation(len(item))
    known = ds.Annotations.from_arrays(*(column[order] for column in table.values()))
    return known.take_items(np.arange(known.n_items))


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(blocks, "SHARD_LABELS", 64)
    return 64


def item_ranges(shards: tuple[Shard, ...]) -> list[tuple[int, int]]:
    return [(shard.first_item, shard.first_item + shard.n_items) for shard in shards]


def test_shards_cover_every_item_once_in_order(small_shards: int) -> None:
    known = crowd()
    shards = shards_of(known)
    assert len(shards) > 10
    ranges = item_ranges(shards)
    assert ranges[0][0] == 0
    assert ranges[-1][1] == known.n_items
    assert all(first[1] == second[0] for first, second in itertools.pairwise(ranges))
    assert all(start < stop for start, stop in ranges)


def test_an_item_is_never_cut_and_every_label_is_kept(small_shards: int) -> None:
    known = crowd()
    shards = shards_of(known)
    np.testing.assert_array_equal(np.concatenate([s.item + s.first_item for s in shards]), known.item)
    np.testing.assert_array_equal(np.concatenate([s.annotator for s in shards]), known.annotator)
    np.testing.assert_array_equal(np.concatenate([s.label for s in shards]), known.label)
    for shard in shards:
        assert shard.item.min(initial=0) >= 0
        assert shard.item.max(initial=0) < shard.n_items
        # Each shard ends with the item in which its share of labels was reached.
        largest = known.counts[shard.first_item :][: shard.n_items].sum(axis=1).max()
        assert len(shard.label) < small_shards + largest


def test_shard_counts_are_the_annotations_counts(small_shards: int) -> None:
    known = crowd()
    counts = np.vstack([shard.counts for shard in shards_of(known)])
    assert counts.dtype == np.float64
    np.testing.assert_array_equal(counts, known.counts)


def test_shards_depend_on_the_labels_alone(small_shards: int) -> None:
    rows = ds.simulate(60, 10, 3, seed=2).annotations
    shuffled = np.random.default_rng(0).permutation(rows.n_labels)
    again = ds.Annotations.from_arrays(
        rows.items[rows.item][shuffled],
        rows.annotators[rows.annotator][shuffled],
        rows.classes[rows.label][shuffled],
    )
    assert item_ranges(shards_of(rows)) == item_ranges(shards_of(again))
    for first, second in zip(shards_of(rows), shards_of(again), strict=True):
        for column in ("item", "annotator", "label"):
            np.testing.assert_array_equal(getattr(first, column), getattr(second, column))


def test_few_labels_make_one_shard() -> None:
    known = crowd()
    assert item_ranges(shards_of(known)) == [(0, known.n_items)]


def test_the_total_is_added_in_shard_order() -> None:
    parts = [(1e16, np.array([1.0, 2.0])), (1.0, np.array([10.0, 20.0])), (-1e16, np.array([0.0, 0.5]))]
    scalar, vector = total(parts)
    # (1e16 + 1) − 1e16 is 0 in floating point; any other order would give 1.
    assert scalar == 0.0
    np.testing.assert_array_equal(vector, [11.0, 22.5])


def slow_square(x: int) -> tuple[int, int]:
    time.sleep(0.02 if x == 0 else 0)  # the first is the last to finish
    return x * x, threading.get_ident()


@pytest.mark.parametrize("n_jobs", [1, 2, 4, -1])
def test_results_come_back_in_order_whatever_runs_the_steps(n_jobs: int) -> None:
    with executor(n_jobs) as pool:
        squares = [square for square, _ in pool.map(slow_square, range(8))]
    assert squares == [x * x for x in range(8)]


def test_two_jobs_run_at_once() -> None:
    meeting = threading.Barrier(2, timeout=10)
    with executor(2) as pool:
        assert sorted(pool.map(lambda _: meeting.wait(), range(2))) == [0, 1]


def test_one_job_stays_in_this_thread() -> None:
    with executor(1) as pool:
        assert pool.n_threads == 1
        assert {thread for _, thread in pool.map(slow_square, range(3))} == {threading.get_ident()}


def test_an_error_in_a_step_comes_out() -> None:
    for n_jobs in (1, 2):
        with pytest.raises(ZeroDivisionError), executor(n_jobs) as pool:
            pool.map(lambda x: 1 // x, range(3))


@pytest.mark.parametrize("n_jobs", [0, -2])
def test_no_jobs_are_refused(n_jobs: int) -> None:
    line = (
        f"The 'n_jobs' parameter of executor must be an int >= 1, or -1 for all cores. Got {n_jobs} instead."
    )
    with pytest.raises(ParameterError, match=re.escape(line)), executor(n_jobs):
        pass


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_blas_keeps_to_one_thread_meanwhile() -> None:
    before = blas_threads()
    assert before
    with executor(2):
        assert blas_threads() == {1}
    assert blas_threads() == before


def test_cores_are_those_this_process_may_use() -> None:
    assert n_cores() >= 1


def test_the_sum_over_shards_has_the_same_bits_on_threads(small_shards: int) -> None:
    shards = shards_of(crowd())
    weights = np.random.default_rng(1).random((3, 5))

    def step(shard: Shard) -> tuple[np.ndarray, float]:
        mass = np.exp(shard.counts @ np.log(weights))
        return mass.sum(axis=0), float(np.log1p(mass).sum())

    sums = []
    for n_jobs in (1, 2, 3):
        with executor(n_jobs) as pool:
            sums.append(total(pool.map(step, shards)))
    for vector, scalar in sums[1:]:
        assert vector.tobytes() == sums[0][0].tobytes()
        assert scalar == sums[0][1]


def test_work_that_is_given_up_ends_in_every_thread() -> None:
    began = threading.Event()

    def endless(number: int) -> None:
        if number:
            began.wait()
            raise KeyboardInterrupt
        while True:
            Local().map(time.sleep, [0.01])
            began.set()

    with pytest.raises(KeyboardInterrupt), executor(2) as pool:
        list(pool.mapped(endless, [1, 0]))
