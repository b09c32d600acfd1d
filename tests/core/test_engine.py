"""Shards depend on the labels alone, and whatever executes a step, the sum has the same bits."""

import itertools
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from threadpoolctl import threadpool_info

import dissensus as ds
from dissensus import engine
from dissensus.engine import ConvergenceMonitor, Engine, Restarts, Shard, cut_blocks, threads, total


def crowd(seed: int = 0) -> ds.Annotations:
    """200 items of very different sizes, some without labels, one larger than a shard."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 12, size=200)
    sizes[[0, 17, 18, 199]] = 0
    sizes[100] = 150
    item = np.repeat(np.arange(200), sizes)
    return ds.Annotations.from_arrays(item, rng.integers(0, 30, len(item)), rng.integers(0, 3, len(item)))


@pytest.fixture
def small_shards(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(engine, "LABELS_PER_SHARD", 64)
    return 64


def shards_of(labels: ds.Annotations) -> list[Shard]:
    return [block.shard(n, n + 1) for block in cut_blocks(labels) for n in range(len(block.item_bounds) - 1)]


def item_ranges(labels: ds.Annotations) -> list[tuple[int, int]]:
    return [pair for block in cut_blocks(labels) for pair in itertools.pairwise(block.item_bounds)]


def test_shards_cover_every_item_and_label_once_in_order(small_shards: int) -> None:
    known = crowd()
    shards, ranges = shards_of(known), item_ranges(known)
    assert len(ranges) > 10
    assert [stop - start for start, stop in ranges] == [shard.n_items for shard in shards]
    starts, stops = zip(*ranges, strict=True)
    assert (*starts, known.n_items) == (0, *stops)
    assert all(shard.n_items for shard in shards)
    items = [shard.item + start for start, shard in zip(starts, shards, strict=True)]
    np.testing.assert_array_equal(np.concatenate(items), known.item)
    np.testing.assert_array_equal(np.concatenate([s.annotator for s in shards]), known.annotator)
    np.testing.assert_array_equal(np.concatenate([s.label for s in shards]), known.label)
    for start, shard in zip(starts, shards, strict=True):
        assert shard.item.min(initial=0) >= 0
        assert shard.item.max(initial=0) < shard.n_items
        # Each shard ends with the item in which its share of labels was reached.
        largest = known.counts[start:][: shard.n_items].sum(axis=1).max()
        assert len(shard.label) < small_shards + largest


def test_the_total_is_added_in_shard_order() -> None:
    parts = [(1e16, np.array([1.0, 2.0])), (1.0, np.array([10.0, 20.0])), (-1e16, np.array([0.0, 0.5]))]
    scalar, vector = total(parts)
    # (1e16 + 1) − 1e16 is 0 in floating point; any other order would give 1.
    assert scalar == 0.0
    np.testing.assert_array_equal(vector, [11.0, 22.5])


def test_an_error_in_a_step_comes_out() -> None:
    for n_jobs in (1, 2):
        with pytest.raises(ZeroDivisionError), threads(n_jobs) as pool:
            pool.map(lambda x: 1 // x, range(3))


def blas_threads() -> set[int]:
    return {library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"}


def test_blas_keeps_to_one_thread_meanwhile() -> None:
    before = blas_threads()
    assert before
    with threads(2):
        assert blas_threads() == {1}
    assert blas_threads() == before


def test_an_interrupted_caller_does_not_wait_for_a_long_step() -> None:
    began, leave = threading.Event(), threading.Event()

    def long(number: int) -> None:
        if number:
            began.wait()
            raise KeyboardInterrupt
        began.set()
        leave.wait(30)

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), threads(2) as pool:
        list(pool.map_lazily(long, [1, 0]))
    assert time.monotonic() - started < 5
    leave.set()


SCRIPT = """
import dissensus as ds
labels = ds.simulate(n_items=2000, n_annotators=300, labels_per_item=10, seed=0).annotations
model = ds.{model}(n_sweeps=100_000, n_jobs=2)
try:
    with ds.resources(progress=lambda *told: print("sampling", flush=True)):
        model.fit(labels)
except KeyboardInterrupt:
    print(f"interrupted {{hasattr(model, 'label_distributions_')}}")
"""


@pytest.mark.parametrize("model", ["HPGM", "LatentPositions"])
def test_ctrl_c_ends_a_sampled_fit_between_sweeps(model: str) -> None:
    words = [sys.executable, "-c", SCRIPT.format(model=model)]
    # a job in the background would have the signal ignored
    restore = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    both = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, **both, text=True, preexec_fn=restore) as run:
        assert run.stdout is not None
        assert "sampling" in run.stdout.readline()
        sent = time.monotonic()
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
        assert time.monotonic() - sent < 5
    assert "interrupted False" in out
    assert err == ""


# ---- blocks -------------------------------------------------------------------------------------------


def test_steps_get_their_block_and_layouts_are_made_once(small_shards: int) -> None:
    known, made = crowd(), list[int]()

    def lay_out(block: engine.Block) -> Shard:
        made.append(block.items.start)
        return block.shard()

    def step(shard: Shard, own: np.ndarray, scale: float) -> tuple[int, np.ndarray]:
        return shard.n_items, scale * own

    for n_jobs in (1, 2):
        made.clear()
        with threads(n_jobs) as pool:
            blocks = pool.blocks(known, lay_out)
            table = np.arange(float(known.n_items))
            for _ in range(2):
                parts = list(blocks.map(step, [table[block.items] for block in blocks.blocks], scale=2.0))
        assert sorted(made) == [block.items.start for block in blocks.blocks]
        assert [n_items for n_items, _ in parts] == [len(rows) for _, rows in parts]
        np.testing.assert_array_equal(np.concatenate([rows for _, rows in parts]), 2 * table)


# ---- convergence --------------------------------------------------------------------------------------


def run(objectives: list[float], n_labels: int = 1, **settings: float) -> ConvergenceMonitor:
    """Report objectives, the state being their number."""
    monitor = ConvergenceMonitor(Engine(n_labels=n_labels), **{"max_iter": 100, "tol": 0.0} | settings)
    for n in monitor:
        if monitor.report(objectives[n], n):
            break
    return monitor


def test_a_fit_stops_at_the_tolerance_per_label_or_max_iter() -> None:
    monitor = run([0.0, 5.0, 6.0, 6.09, 9.0], n_labels=10, tol=0.01)
    assert (monitor.stopped, monitor.state, monitor.trace) == ("tolerance", 3, [0.0, 5.0, 6.0, 6.09])
    monitor = run([0.0, 1.0, 2.0, 3.0], max_iter=3)
    assert (monitor.stopped, monitor.state, monitor.trace) == ("max_iter", 2, [0.0, 1.0, 2.0])
    assert list(monitor) == []


def test_the_best_restart_is_the_first_that_ends_highest() -> None:
    restarts, draws = Restarts(Engine(), 4, 7, max_iter=1, tol=0.0), []
    for number, monitor in enumerate(restarts):
        draws.append(monitor.rng.random())
        monitor.report([1.0, 3.0, 3.0, 2.0][number], number)
    assert restarts.best.state == 1
    assert draws == [np.random.default_rng([7, number]).random() for number in range(4)]


def test_progress_tells_the_rate_and_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, told = iter([100.0, 102.0, 104.0]), list[tuple[str, float]]()
    # the name in this module only: threads of other tests look at the clock as well
    monkeypatch.setattr("dissensus.engine.time", SimpleNamespace(monotonic=lambda: next(clock)))
    shown = Engine(n_labels=3_000_000, progress=lambda words, share: told.append((words, share)))
    monitor = ConvergenceMonitor(shown, max_iter=10, tol=0.0)
    for n in range(3):
        monitor.report(float(n), None)
    assert told == [
        ("iteration 1 of at most 10", 0.1),
        ("iteration 2 of at most 10, 1,500,000 labels per second, at most 16 s left", 0.2),
        ("iteration 3 of at most 10, 1,500,000 labels per second, at most 14 s left", 0.3),
    ]
