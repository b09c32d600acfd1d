"""Workers die in the midst of their work, and the scheduler too: the same result, or one clear line."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

import dissensus as ds
from cluster_help import ITERATIONS, MODELS, SHARD, Counting, alone, crowd, differing, small_shards
from dissensus.errors import ClusterError, DataError, MessagesLostError
from dissensus.execution.dask import blocks as remote
from dissensus.execution.dask import cluster as dask_cluster
from dissensus.models import base
from sizes import usually

__all__ = ["small_shards"]
pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("small_shards")]
KILLS = usually(1, verify=10)


@pytest.fixture(scope="module", autouse=True)
def _forked_workers() -> Iterator[None]:
    """Who follows a dead worker is forked from a process that has read Dask, at a third of the cost."""
    import dask

    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


def doom(n_blocks: int) -> int:
    """On a worker: die in the next task, after some of its blocks; the process that dies."""
    real = remote.run_blocks

    def dying(task: Any, *more: Any) -> Any:
        few = remote.BlockRange(**vars(task) | {"blocks": task.blocks[:n_blocks], "own": task.own[:n_blocks]})
        real(few, *more)
        os.kill(os.getpid(), signal.SIGKILL)

    vars(remote)["run_blocks"] = dying
    return os.getpid()


class Killing(Counting):
    """Dooms a worker, or all of them, at every iteration until enough have died."""

    def __init__(self, client: Any, seed: int, kills: int, *, everyone: bool = False) -> None:
        super().__init__()
        self.dead: set[int] = set()
        self._client, self._chance, self._kills, self._everyone = client, random.Random(seed), kills, everyone

    def __call__(self, words: str, share: float) -> None:
        super().__call__(words, share)
        if len(self.dead) >= self._kills:
            return
        workers = sorted(dask_cluster.running_workers(self._client))
        chosen = workers if self._everyone else [self._chance.choice(workers)]
        self.dead.update(self._client.run(doom, self._chance.randint(0, 3), workers=chosen).values())


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def refit(name: str) -> Any:
    """The same model with an iteration a kill, and one more."""
    return MODELS[name]().set_params(max_iter=KILLS + 2)


@pytest.mark.parametrize("name", ["dawid-skene", "pgm-pairwise"])
def test_killed_workers_change_nothing(
    name: str, client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = refit(name).fit(crowd())
    monkeypatch.setattr(remote, "SMALL", 0 if name == "dawid-skene" else remote.SMALL)
    progress = Killing(client, seed=len(name), kills=KILLS)
    # Messages are lost with their worker: every iteration has a checkpoint to go on from.
    kept = {"scratch": tmp_path / "scratch", "checkpoint": tmp_path / "run", "checkpoint_every": 1}
    with ds.resources(cluster=client, progress=progress, **kept):
        survived = refit(name).fit(crowd())
    assert differing(survived, alone) == []
    assert len(progress.dead) == KILLS
    assert len(progress.words) == KILLS + 2
    assert not any(map(alive, progress.dead))
    assert list((tmp_path / "scratch").iterdir()) == []


def test_all_workers_killed_at_once_change_nothing(client: Any, tmp_path: Path) -> None:
    client.wait_for_workers(2, timeout=60)
    progress = Killing(client, seed=0, kills=2, everyone=True)
    with ds.resources(cluster=client, scratch=tmp_path, progress=progress):
        assert differing(MODELS["pgm-bp"]().fit(crowd()), alone("pgm-bp")) == []
    assert len(progress.dead) == 2
    assert not any(map(alive, progress.dead))


def test_messages_lost_before_any_checkpoint_are_computed_anew(client: Any, tmp_path: Path) -> None:
    progress = Killing(client, seed=1, kills=1)
    with ds.resources(cluster=client, scratch=tmp_path, progress=progress):
        assert differing(MODELS["pgm-pairwise"]().fit(crowd()), alone("pgm-pairwise")) == []
    assert len(progress.words) == ITERATIONS + 1  # the first one twice
    assert list(tmp_path.iterdir()) == []


def test_messages_that_are_lost_again_and_again_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []

    def lost(self: ds.PGM, annotations: Any, run: Any, **given: Any) -> None:
        tries.append(1)
        raise MessagesLostError("lost")

    monkeypatch.setattr(ds.PGM, "_fit", lost)
    with pytest.raises(ClusterError, match=r"^the cluster's workers died again and again"):
        MODELS["pgm-bp"]().fit(crowd())
    assert len(tries) == base.LOSSES


# ---- a step that fails --------------------------------------------------------------------------------


def failing(counts: Any, kind: type[Exception], notes: str, **_: Any) -> None:
    with Path(notes).open("a") as file:
        file.write("x")
    raise kind("votes.csv: something is wrong; do something")


@pytest.mark.parametrize("kind", [DataError, FileNotFoundError, TimeoutError, ZeroDivisionError])
def test_an_error_of_a_step_comes_out_once(kind: type[Exception], client: Any, tmp_path: Path) -> None:
    from dissensus.execution.resources import Identity
    from dissensus.models.fmm import counts_of

    with (
        ds.resources(cluster=client, scratch=tmp_path) as found,
        found.run(crowd(), Identity("FMM", {})) as run,
    ):
        work = run.executor.over(crowd(), counts_of)
        with pytest.raises(kind, match=r"votes.csv: something is wrong; do something"):
            list(work.map(failing, kind=kind, notes=str(tmp_path / "notes")))
    # Each call stops at its first block, and none is sent again.
    assert len((tmp_path / "notes").read_text()) <= remote.CALLS_A_THREAD * 2


def test_workers_that_die_whatever_they_are_given_are_given_up(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distributed.scheduler import KilledWorker

    monkeypatch.setattr(dask_cluster, "TRIES", 3)
    sent = []

    class Dead:
        status = "error"

        def result(self, timeout: float) -> None:
            raise KilledWorker("task", None, 4)

        def release(self) -> None:
            pass

    monkeypatch.setattr(client, "submit", lambda *args, **more: (sent.append(args), Dead())[1])
    with (
        ds.resources(cluster=client, scratch=tmp_path),
        pytest.raises(
            ClusterError, match=r"^the cluster's workers died again and again, out of memory perhaps"
        ),
    ):
        MODELS["fmm"]().fit(crowd())
    assert len(sent) == 3 * remote.CALLS_A_THREAD * sum(client.nthreads().values())


# ---- the scheduler ------------------------------------------------------------------------------------


@contextmanager
def scheduler_and_worker(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Programs of their own, as a user would start them: the scheduler's address and process."""
    folder.mkdir()
    file, common = (
        folder / "scheduler.json",
        ["--no-dashboard", "--scheduler-file", folder / "scheduler.json"],
    )
    tools = (
        ["distributed.cli.dask_scheduler", "--port", "0", "--host", "127.0.0.1", *common],
        ["distributed.cli.dask_worker", "--no-nanny", "--nthreads", "1", "--death-timeout", "20", *common],
    )
    started = [
        subprocess.Popen(
            [sys.executable, "-m", *tool],
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for tool in tools
    ]
    try:
        deadline = time.monotonic() + 60
        while not file.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        yield json.loads(file.read_text())["address"], started[0]
    finally:
        for process in started:
            process.kill()
            process.wait()


class Beheading(Counting):
    """Kills a process at an iteration."""

    def __init__(self, process: subprocess.Popen[bytes], iteration: int) -> None:
        super().__init__()
        self._process, self._iteration = process, iteration

    def __call__(self, words: str, share: float) -> None:
        super().__call__(words, share)
        if len(self.words) == self._iteration:
            self._process.kill()
            self._process.wait()


def test_a_lost_scheduler_is_one_line_and_the_fit_goes_on(tmp_path: Path) -> None:
    settings = {"checkpoint": tmp_path / "run", "checkpoint_every": 1}
    with scheduler_and_worker(tmp_path / "first") as (address, scheduler):
        progress, began = Beheading(scheduler, 3), time.monotonic()
        with (
            pytest.raises(ClusterError) as lost,
            ds.resources(cluster=address, progress=progress, **settings),
        ):
            MODELS["pgm-bp"]().fit(crowd())
        assert time.monotonic() - began < 60
    assert str(lost.value).startswith(f"{address}: the scheduler was lost (")
    assert str(lost.value).endswith("with a checkpoint directory the fit goes on where it was")
    assert "\n" not in str(lost.value)
    assert [path.name for path in (tmp_path / "run").glob("dissensus-messages-*")] == []
    second = usually(nullcontext((None, None)), verify=scheduler_and_worker(tmp_path / "second"))
    with second as (address, _):
        progress = Counting()
        with ds.resources(cluster=address, progress=progress, **settings):
            assert differing(MODELS["pgm-bp"]().fit(crowd()), alone("pgm-bp")) == []
    assert len(progress.words) == ITERATIONS - 3


# ---- noise --------------------------------------------------------------------------------------------

PROGRAM = f"""
import sys
import dissensus as ds
from cluster_help import MODELS, crowd
from dissensus.labels import blocks
from test_cluster_faults import Killing

if __name__ == "__main__":
    blocks.SHARD_LABELS = {SHARD}
    told = lambda *words: progress(*words)
    with ds.resources(cluster="local", n_workers=1, scratch=sys.argv[1], progress=told) as found:
        progress = Killing(found.client, seed=1, kills=1)
        MODELS["pgm-bp"]().fit(crowd())
    print(len(progress.dead))
"""


def test_a_dying_worker_and_a_closing_cluster_print_nothing(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, program, tmp_path / "scratch"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 0)
    assert list((tmp_path / "scratch").iterdir()) == []
