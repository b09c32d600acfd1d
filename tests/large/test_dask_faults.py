"""Workers and schedulers that die: the same result, or one clear error."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import dissensus as ds
from dissensus.engine import cut_blocks
from dissensus.errors import ClusterError, DataError
from dissensus.large import dask
from dissensus.models import confusion
from dissensus.models.fmm import counts_of
from dissensus.models.pgm import messages
from tests.helpers.cluster import ITERATIONS, MODELS, Counting, alone, crowd, differing
from tests.helpers.sizes import usually

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("small_shards")]
KILLS = usually(1, verify=10)
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", autouse=True)
def _forked_workers() -> Iterator[None]:
    """Fork new workers from a process that has imported Dask, which is three times faster."""
    import dask
    import distributed  # noqa: F401  (defines the setting)

    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        yield


# ---- workers ------------------------------------------------------------------------------------------


def watched_step(layout: Any, *values: Any, step: Any, folder: Path, **common: Any) -> Any:
    """Run a step, record it in a file, and kill the worker if it is marked."""
    part = step(layout, *values, **common)
    with (folder / "notes").open("a") as file:
        file.write("x")
    mark = folder / str(os.getpid())
    if mark.exists():
        mark.unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    return part


class WorkerKiller(Counting):
    """Marks one or all workers at every iteration until enough have died."""

    def __init__(self, client: Any, folder: Path, kills: int, *, all_workers: bool = False) -> None:
        super().__init__()
        self.dead: set[int] = set()
        self.notes = folder / "notes"
        self._client, self._folder, self._kills, self._all_workers = client, folder, kills, all_workers
        self._rng = random.Random(kills)

    def __call__(self, words: str, share: float) -> None:
        super().__call__(words, share)
        if len(self.dead) >= self._kills:
            return
        dask.running_workers(self._client)
        processes = sorted(self._client.run(os.getpid).values())
        for process in processes if self._all_workers else [self._rng.choice(processes)]:
            (self._folder / str(process)).touch()
            self.dead.add(process)

    @property
    def n_steps(self) -> int:
        """Number of steps over a block on all workers."""
        return len(self.notes.read_text())


@pytest.fixture
def watching(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Record the steps of PGM and of Dawid–Skene in a folder."""
    folder = tmp_path / "watched_step"
    folder.mkdir()
    for module, name in ((messages, "_round_step"), (confusion, "_e_step")):
        step = partial(watched_step, step=getattr(module, name), folder=folder)
        monkeypatch.setattr(module, name, step)
    return folder


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize("name", ["dawid-skene", "pgm-bp"])
def test_killed_workers_do_not_change_the_result(
    name: str, client: Any, tmp_path: Path, watching: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask, "MAX_INLINE_BYTES", 0 if name == "dawid-skene" else dask.MAX_INLINE_BYTES)
    model, n_blocks = MODELS[name]().set_params(max_iter=KILLS + 2), len(cut_blocks(crowd()))
    alone = MODELS[name]().set_params(max_iter=KILLS + 2, n_jobs=1).fit(crowd())
    progress = WorkerKiller(client, watching, KILLS)
    done_alone = progress.n_steps
    with ds.resources(cluster=client, progress=progress, scratch=tmp_path / "scratch"):
        survived = model.fit(crowd())
    assert differing(survived, alone) == []
    assert len(progress.dead) == KILLS
    assert not any(map(alive, progress.dead))
    assert list((tmp_path / "scratch").iterdir()) == []
    # no iteration is repeated, and at most all steps of the iteration in which a worker died
    assert len(progress.words) == KILLS + 2
    assert done_alone < progress.n_steps - done_alone <= done_alone + KILLS * n_blocks


def test_all_workers_killed_at_once(client: Any, tmp_path: Path, watching: Path) -> None:
    client.wait_for_workers(2, timeout=60)
    progress = WorkerKiller(client, watching, 2, all_workers=True)
    with ds.resources(cluster=client, scratch=tmp_path / "scratch", progress=progress):
        model = MODELS["pgm-bp"]().fit(crowd())
    assert differing(model, alone("pgm-bp")) == []
    assert len(progress.dead) == 2
    assert not any(map(alive, progress.dead))
    assert len(progress.words) == ITERATIONS


# ---- a step that fails --------------------------------------------------------------------------------


def failing(counts: Any, error: type[Exception], notes: str) -> None:
    with Path(notes).open("a") as file:
        file.write("x")
    raise error("votes.csv: something is wrong; do something")


@pytest.mark.parametrize("error", [DataError, TimeoutError])
def test_error_in_a_step_is_raised_once(error: type[Exception], client: Any, tmp_path: Path) -> None:
    with (
        ds.resources(cluster=client, scratch=tmp_path) as model,
        model.engine(ds.FMM(), crowd(), {}) as engine,
        pytest.raises(error, match=r"votes.csv: something is wrong; do something"),
    ):
        list(engine.blocks(crowd(), counts_of).map(failing, error=error, notes=str(tmp_path / "notes")))
    # each task stops at its first block and is not repeated
    assert len((tmp_path / "notes").read_text()) <= dask.TASKS_PER_THREAD * sum(client.nthreads().values())


def test_workers_that_die_repeatedly(client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed.scheduler import KilledWorker

    class Dead:
        status = "error"

        def result(self, timeout: float) -> None:
            raise KilledWorker("task", None, 4)

        def release(self) -> None:
            pass

    monkeypatch.setattr(client, "submit", lambda *args, **options: Dead())
    line = r"^workers died repeatedly, perhaps out of memory"
    with ds.resources(cluster=client, scratch=tmp_path), pytest.raises(ClusterError, match=line):
        MODELS["fmm"]().fit(crowd())


# ---- the scheduler ------------------------------------------------------------------------------------


@contextmanager
def scheduler_and_worker(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Start a scheduler and a worker; yield the address and process of the scheduler."""
    folder.mkdir()
    file = folder / "scheduler.json"
    tools = (
        ["distributed.cli.dask_scheduler", "--port", "0", "--host", "127.0.0.1"],
        ["distributed.cli.dask_worker", "--no-nanny", "--nthreads", "1", "--death-timeout", "20"],
    )
    quiet = {"cwd": folder, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = [
        subprocess.Popen([sys.executable, "-m", *tool, "--no-dashboard", "--scheduler-file", file], **quiet)
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


class SchedulerKiller(Counting):
    """Kills the scheduler at an iteration."""

    def __init__(self, process: subprocess.Popen[bytes], iteration: int) -> None:
        super().__init__()
        self._process, self._iteration = process, iteration

    def __call__(self, words: str, share: float) -> None:
        super().__call__(words, share)
        if len(self.words) == self._iteration:
            self._process.kill()
            self._process.wait()


def test_lost_scheduler_and_resumed_fit(tmp_path: Path) -> None:
    settings = {"checkpoint": tmp_path / "run", "checkpoint_every": 1}
    with scheduler_and_worker(tmp_path / "first") as (address, scheduler):
        progress, started_at = SchedulerKiller(scheduler, 3), time.monotonic()
        resources = ds.resources(cluster=address, progress=progress, **settings)
        with pytest.raises(ClusterError) as lost, resources:
            MODELS["pgm-bp"]().fit(crowd())
        assert time.monotonic() - started_at < 60
    assert str(lost.value).startswith(f"{address}: the connection to the scheduler was lost (")
    assert str(lost.value).endswith("with a checkpoint directory the fit resumes")
    assert "\n" not in str(lost.value)
    assert [path.name for path in (tmp_path / "run").glob("dissensus-messages-*")] == []
    second = usually(nullcontext((None, None)), verify=scheduler_and_worker(tmp_path / "second"))
    with second as (address, _):
        progress = Counting()
        with ds.resources(cluster=address, progress=progress, **settings):
            assert differing(MODELS["pgm-bp"]().fit(crowd()), alone("pgm-bp")) == []
    assert len(progress.words) == ITERATIONS - 3 + 1


PROGRAM = """
import os, signal, sys
import dissensus as ds
from tests.helpers.cluster import MODELS, crowd

dead = []

def progress(words, share):
    if not dead:
        dead.extend(resources.client.run(os.getpid).values())
        os.kill(dead[0], signal.SIGKILL)

if __name__ == "__main__":
    with ds.resources(cluster="local", n_workers=1, scratch=sys.argv[1], progress=progress) as resources:
        MODELS["pgm-bp"]().fit(crowd())
    print(len(dead))
"""


def test_dying_worker_prints_nothing(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    command, paths = [sys.executable, program, tmp_path / "scratch"], os.pathsep.join([str(ROOT), *sys.path])
    environment = os.environ | {"PYTHONPATH": paths}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "", 0)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_a_worker_that_comes_later_takes_its_share(tmp_path: Path) -> None:
    """Blocks are shared anew when the workers are others than before."""
    told: list[int] = []

    def progress(words: str, share: float) -> None:
        told.append(len(found.client.cluster.workers))
        if len(told) == 2:
            found.client.cluster.scale(2)
            found.client.wait_for_workers(2, timeout=60)
        if len(told) == 4:
            shared.update({who: len(keys) for who, keys in found.client.has_what().items()})

    shared: dict[str, int] = {}
    with ds.resources(cluster="local", n_workers=1, scratch=tmp_path, progress=progress) as found:
        assert differing(MODELS["pgm-bp"]().fit(crowd()), alone("pgm-bp")) == []
    assert len(shared) == 2
    assert all(shared.values())
