"""Searches on a Dask cluster."""

import os
import pickle
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.errors import DataError
from dissensus.evaluate.select import Selection
from dissensus.evaluate.tasks import workers
from dissensus.labels.annotations import Annotations
from dissensus.large.dask import ClusterTasks
from dissensus.large.store import StoredAnnotations, StoreOrigin
from dissensus.tables.results import label_table
from dissensus.tables.write import write_table

pytestmark = pytest.mark.cluster

pytest.importorskip("distributed")

GRID = {"n_item_clusters": [2, 4], "n_annotator_clusters": [2, 3]}
OPTIONS: dict[str, Any] = {"repeats": 2, "finalists": None, "seed": 3}


@pytest.fixture(scope="module")
def crowd() -> Annotations:
    return ds.simulate(n_items=120, seed=5).annotations


@pytest.fixture(scope="module")
def store(crowd: Annotations, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("search")
    write_table(label_table(crowd), folder / "votes.parquet")
    ds.write_store(folder / "votes.parquet", folder / "votes.store")
    return folder / "votes.store"


def table(selection: Selection) -> list[dict[str, Any]]:
    return [{name: row[name] for name in row if name != "seconds"} for row in selection.rows()]


def test_cluster_gives_the_same_table(client: Any, crowd: Annotations, store: Path) -> None:
    here = ds.select(crowd, ds.PGM(max_iter=15), GRID, n_jobs=1, **OPTIONS)
    with ds.resources(cluster=client):
        on_cluster = ds.select(crowd, ds.PGM(max_iter=15), GRID, **OPTIONS)
        on_store = ds.select(ds.read_annotations(store), ds.PGM(max_iter=15), GRID, **OPTIONS)
    assert table(on_cluster) == table(here)
    assert table(on_store) == table(here)
    np.testing.assert_array_equal(on_cluster.model.theta_, here.model.theta_)
    np.testing.assert_array_equal(on_store.model.theta_, here.model.theta_)


def test_stores_are_pickled_by_path(crowd: Annotations, store: Path) -> None:
    opened = ds.read_annotations(store)
    large, small = pickle.dumps(crowd), pickle.dumps(opened)
    assert crowd.item.tobytes() in large
    assert len(small) < 2_000
    assert store.name.encode() in small
    reopened = pickle.loads(small)
    assert reopened.origin == opened.origin
    graded = opened.with_label_type("ordinal")
    assert (pickle.loads(pickle.dumps(graded)).origin, graded.label_type) == (opened.origin, "ordinal")
    assert opened.take_items([0, 1]).origin is None  # derived labels
    for name in ("item", "annotator", "label", "item_pointers", "items", "annotators", "classes"):
        np.testing.assert_array_equal(getattr(reopened, name), getattr(opened, name))


def test_other_store_at_the_same_path_is_rejected(client: Any, store: Path, tmp_path: Path) -> None:
    annotations = ds.read_annotations(store)
    annotations = StoredAnnotations.of(annotations, StoreOrigin(store, "0" * 64))
    line = "the labels on this worker's machine differ"
    with ds.resources(cluster=client), pytest.raises(DataError, match=line):
        ds.select(annotations, ds.FMM(), {"n_item_clusters": [2]}, repeats=1)


def _squared(shared: int, task: tuple[int, str]) -> int:
    """Kill the first worker that runs task 3."""
    number, mark = task
    if number == 3 and not Path(mark).exists():
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return shared * number**2


def test_tasks_of_a_killed_worker_are_repeated(client: Any, tmp_path: Path) -> None:
    tasks = [(number, str(tmp_path / "mark")) for number in range(8)]
    with ds.resources(cluster=client), workers(10, len(tasks), -1) as pool:
        assert isinstance(pool, ClusterTasks)
        results = {task[0]: result for task, result in pool.completed(_squared, tasks)}
    assert (tmp_path / "mark").exists()
    assert results == {number: 10 * number**2 for number in range(8)}


def test_store_missing_on_a_worker(client: Any, store: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(store, tmp_path / "votes.store")
    annotations = ds.read_annotations(moved)
    moved.rename(tmp_path / "away")
    line = r"votes\.store: not reachable from the worker on \S+; put the store"
    with ds.resources(cluster=client), pytest.raises(DataError, match=line):
        ds.select(annotations, ds.FMM(), {"n_item_clusters": [2]}, repeats=1)


def _memory(shared: None, task: int) -> int | None:
    from dissensus.engine import current

    return current().memory


def test_resources_reach_every_task(client: Any) -> None:
    with ThreadPoolExecutor(4) as threads:
        for cluster, n_jobs, executor in ((None, 1, None), (None, -1, threads), (client, -1, None)):
            with (
                ds.resources(precision="single", cluster=cluster),
                workers(None, 1, n_jobs, executor) as pool,
            ):
                assert list(pool.completed(_precision, [1])) == [(1, "single")]
        with ds.resources(memory="8GB"), workers(None, 1, -1, threads) as pool:
            assert list(pool.completed(_memory, [1])) == [(1, 2_000_000_000)]


def _precision(shared: None, task: int) -> str:
    from dissensus.engine import current

    assert current().n_cluster_threads == 0
    return current().precision
