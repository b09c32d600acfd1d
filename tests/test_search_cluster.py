"""A search on a Dask cluster: the table of the processes, whatever becomes of a worker."""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import dissensus as ds
from dissensus.errors import DataError
from dissensus.evaluate.select import Selection
from dissensus.evaluate.tasks import workers
from dissensus.labels.annotations import Annotations
from dissensus.large.dask import ClusterTasks
from dissensus.large.resources import _fit_name
from dissensus.large.store import StoredAnnotations, StoreOrigin

pytestmark = pytest.mark.cluster

pytest.importorskip("distributed")

GRID = {"n_item_clusters": [2, 4], "n_annotator_clusters": [2, 3]}
HOW: dict[str, Any] = {"repeats": 2, "finalists": None, "seed": 3}


@pytest.fixture(scope="module")
def crowd() -> Annotations:
    return ds.simulate(n_items=120, seed=5).annotations


@pytest.fixture(scope="module")
def store(crowd: Annotations, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    rows = zip(
        crowd.items[crowd.item], crowd.annotators[crowd.annotator], crowd.classes[crowd.label], strict=True
    )
    (folder / "votes.csv").write_text(
        "item,annotator,label\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows)
    )
    ds.write_store(folder / "votes.csv", folder / "votes.store")
    return folder / "votes.store"


def table(selection: Selection) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row if name != "seconds"} for row in selection.rows()]


def test_the_table_is_that_of_this_process(client: Any, crowd: Annotations, store: Path) -> None:
    here = ds.select(crowd, ds.PGM(max_iter=15), GRID, n_jobs=1, **HOW)
    with ds.resources(cluster=client):
        on_cluster = ds.select(crowd, ds.PGM(max_iter=15), GRID, **HOW)
        on_store = ds.select(ds.read_annotations(store), ds.PGM(max_iter=15), GRID, **HOW)
    assert table(on_cluster) == table(here)
    assert table(on_store) == table(here)
    np.testing.assert_array_equal(on_cluster.model.theta_, here.model.theta_)
    np.testing.assert_array_equal(on_store.model.theta_, here.model.theta_)


def test_labels_of_a_store_do_not_travel(crowd: Annotations, store: Path) -> None:
    opened = ds.read_annotations(store)
    large, small = pickle.dumps(crowd), pickle.dumps(opened)
    assert crowd.item.tobytes() in large
    assert len(small) < 2_000
    assert store.name.encode() in small
    there = pickle.loads(small)
    assert there.origin == opened.origin
    graded = opened.with_label_type("ordinal")
    assert (pickle.loads(pickle.dumps(graded)).origin, graded.label_type) == (opened.origin, "ordinal")
    assert opened.take_items([0, 1]).origin is None  # other labels than those of the store
    for name in ("item", "annotator", "label", "item_pointers", "items", "annotators", "classes"):
        np.testing.assert_array_equal(getattr(there, name), getattr(opened, name))


def test_checkpoints_of_a_store_depend_on_the_annotator_table(store: Path) -> None:
    """Its seal says nothing of the table, which HPGM reads with ``represent=``."""
    names, kinds = ds.read_annotations(store).annotators, ["human", "model"]
    both = [np.resize(kinds[::step], len(names)) for step in (1, -1)]
    tables = [pa.table({"annotator": names.astype(str), "kind": column}) for column in both]
    opened = [ds.read_annotations(store), *(ds.read_annotations(store, annotators=table) for table in tables)]
    assert len({labels.origin for labels in opened}) == 1
    model = ds.HPGM(represent={"kind": "human"})
    assert len({_fit_name(model, labels, {}, "double") for labels in opened}) == 3


def test_another_store_at_the_same_path_is_refused(client: Any, store: Path, tmp_path: Path) -> None:
    annotations = ds.read_annotations(store)
    annotations = StoredAnnotations.of(annotations, StoreOrigin(store, "0" * 64))
    with (
        ds.resources(cluster=client),
        pytest.raises(DataError, match="holds other labels on this worker's machine"),
    ):
        ds.select(annotations, ds.FMM(), {"n_item_clusters": [2]}, repeats=1)


def _squared(shared: int, task: tuple[int, str]) -> int:
    """The first worker that is given task 3 dies of it, once."""
    number, mark = task
    if number == 3 and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return shared * number**2


def test_the_tasks_of_a_killed_worker_are_done_again(client: Any, tmp_path: Path) -> None:
    tasks = [(number, str(tmp_path / "mark")) for number in range(8)]
    with ds.resources(cluster=client), workers(10, len(tasks)) as pool:
        assert isinstance(pool, ClusterTasks)
        found = {task[0]: result for task, result in pool.completed(_squared, tasks)}
    assert (tmp_path / "mark").exists()
    assert found == {number: 10 * number**2 for number in range(8)}


def _failing(shared: str, task: int) -> int:
    raise OSError(f"{shared} {task}")


def test_an_error_of_a_task_is_the_callers(client: Any) -> None:
    with (
        ds.resources(cluster=client),
        workers("no such file", 1) as pool,
        pytest.raises(OSError, match="no such file 7"),
    ):
        list(pool.completed(_failing, [7]))


def test_a_store_that_a_worker_does_not_have_is_one_line(client: Any, store: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(store, tmp_path / "votes.store")
    annotations = ds.read_annotations(moved)
    moved.rename(tmp_path / "away")
    with (
        ds.resources(cluster=client),
        pytest.raises(DataError, match=r"votes\.store: not reachable from the worker on \S+; put the store"),
    ):
        ds.select(annotations, ds.FMM(), {"n_item_clusters": [2]}, repeats=1)


def _length(shared: str, task: int) -> int:
    return len(shared) + task


def test_no_worker_keeps_what_the_tasks_of_a_search_shared(client: Any) -> None:
    with ds.resources(cluster=client), workers("shared", 8) as pool:
        assert {kept for _, kept in pool.completed(_length, range(8))} == set(range(6, 14))
    deadline = time.monotonic() + 20
    while any(client.has_what().values()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(client.has_what().values())


def test_labels_in_memory_may_be_many(client: Any) -> None:
    """Dask warns of what is large, and a warning is an error in these tests."""
    with ds.resources(cluster=client), workers("x" * 20_000_000, 1) as pool:
        assert list(pool.completed(_length, [1])) == [(1, 20_000_001)]


def test_memory_is_divided_among_the_tasks_that_run_at_once(client: Any) -> None:
    n_threads = sum(client.nthreads().values())
    with ds.resources(cluster=client, memory="8GB"), workers(None, 1) as pool:
        assert [memory for _, memory in pool.completed(_memory, [1])] == [8_000_000_000 // n_threads]


def _memory(shared: None, task: int) -> int | None:
    from dissensus.engine import current

    return current().memory


def test_an_executor_of_the_callers_is_given_the_same() -> None:
    with (
        ThreadPoolExecutor(4) as threads,
        ds.resources(memory="8GB", precision="single"),
        workers(None, 1, executor=threads) as pool,
    ):
        assert list(pool.completed(_precision, [1])) == [(1, "single")]
        assert list(pool.completed(_memory, [1])) == [(1, 2_000_000_000)]


def test_precision_reaches_every_task(client: Any) -> None:
    with ds.resources(precision="single"), workers(None, 1, n_jobs=1) as pool:
        assert list(pool.completed(_precision, [1])) == [(1, "single")]
    with ds.resources(precision="single", cluster=client), workers(None, 1) as pool:
        assert list(pool.completed(_precision, [1])) == [(1, "single")]


def _precision(shared: None, task: int) -> str:
    from dissensus.engine import current

    assert current().n_cluster_threads == 0
    return current().precision
