"""Checkpoints: stopped and killed fits resume with identical bits."""

import errno
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from dissensus.engine import ConvergenceMonitor
from dissensus.errors import DataError
from dissensus.large import checkpoints
from dissensus.large.checkpoints import LOCK_FILE, STATE_FILE, Checkpoints, checkpoint_folder
from dissensus.large.engine import Budget, LargeEngine
from dissensus.large.resources import Resources
from dissensus.models.base import Model
from dissensus.models.dawid_skene import DawidSkeneState
from tests.helpers.cluster import (
    ITERATIONS,
    MODELS,
    WITH_MESSAGES,
    Counting,
    StoppedError,
    alone,
    crowd,
    differing,
    least_memory,
)
from tests.helpers.sizes import usually
from tests.helpers.victim import KILLED, ROOT, run_victim

pytestmark = [pytest.mark.slow, pytest.mark.no_cover, pytest.mark.usefixtures("small_shards")]


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the synchronisation of files, which matters only in a power failure."""
    monkeypatch.setattr(checkpoints, "sync", lambda path: None)


def small_memory(name: str) -> int:
    """Return a memory limit at which messages do not fit."""
    return least_memory(MODELS[name](), crowd())


def run(folder: Path, model: Model, progress: Any = None, **settings: Any) -> Model:
    with ds.resources(checkpoint=folder, progress=progress, **settings):
        return model.fit(crowd())


def stop_at(iteration: int, folder: Path, model: Model, **settings: Any) -> None:
    with pytest.raises(StoppedError):
        run(folder, model, Counting(iteration), **settings)


def steps(folder: Path) -> list[Path]:
    return sorted(folder.rglob("step-*"))


def remaining_iterations(checkpoints_: int) -> int:
    """Return the iterations left: a checkpoint has the state at the beginning of its iteration."""
    return ITERATIONS - checkpoints_ + 1


# ---- resuming -----------------------------------------------------------------------------------------


# EBCC has several starts with their own iterations
@pytest.mark.parametrize("name", [name for name in MODELS if name != "ebcc"])
@pytest.mark.parametrize("every", usually([2], verify=[1, 2]))
def test_stopped_fit_resumes_with_identical_bits(name: str, every: int, tmp_path: Path) -> None:
    stop_at(5, tmp_path, MODELS[name](), checkpoint_every=every)
    progress = Counting()
    resumed = run(tmp_path, MODELS[name](), progress, checkpoint_every=every)
    assert differing(resumed, alone(name)) == []
    # the last checkpoint is of iteration 5 or 4
    assert len(progress.words) == remaining_iterations(5 if every == 1 else 4)


@pytest.mark.parametrize("name", usually(["pgm-vb"], verify=WITH_MESSAGES))
def test_repeated_stops_with_messages_on_disk(name: str, tmp_path: Path) -> None:
    for _ in range(ITERATIONS - 1):
        stop_at(2, tmp_path, MODELS[name](), checkpoint_every=1, memory=small_memory(name))
    # resume in memory and on two threads
    assert differing(run(tmp_path, MODELS[name](n_jobs=2)), alone(name)) == []
    assert [path.name[:5] for path in tmp_path.iterdir()] == ["pgm-" + steps(tmp_path)[0].parts[-3][4]]


def test_finished_fit_is_not_repeated(tmp_path: Path) -> None:
    for name in usually(["fmm", "cbcc", "pgm-pairwise"], verify=[*MODELS]):
        first = run(tmp_path, MODELS[name]())
        progress = Counting()
        assert differing(run(tmp_path, MODELS[name](), progress), first) == []
        assert progress.words == []


def test_other_fits_ignore_the_checkpoint(tmp_path: Path) -> None:
    stop_at(5, tmp_path, MODELS["pgm-bp"](), checkpoint_every=1)
    fewer = crowd().take_items(np.arange(crowd().n_items - 1))
    others = (crowd(), {"seed": 1}), (crowd(), {"max_iter": ITERATIONS + 1}), (fewer, {})
    for labels, settings in others:
        expected = MODELS["pgm-bp"]().set_params(**settings).fit(labels)
        with ds.resources(checkpoint=tmp_path):
            assert differing(MODELS["pgm-bp"]().set_params(**settings).fit(labels), expected) == []
    assert len(list(tmp_path.iterdir())) == 1 + len(others)


# ---- killed -------------------------------------------------------------------------------------------


def kill_points(seed: int, n_files: int) -> list[str]:
    """Choose points at which to kill a fit: in an iteration, or while writing ``n_files`` files.

    Two of them come after a checkpoint, so that later ones kill resumed fits.
    """
    chance = random.Random(seed)
    early = ["progress=1", "rename=1", f"sync={chance.randint(1, n_files)}", "write=1"]
    early += [f"link={chance.randint(1, n_files - 1)}" for _ in range(3 * (n_files > 1))]
    picked = chance.choices(early, k=usually(2, verify=8))
    for position in (chance.randint(1, 4), chance.randint(5, 8)):
        picked.insert(position, "progress=2")
    return picked


@pytest.mark.parametrize(
    ("name", "on_disk"),
    usually(
        [("cbcc", False), ("pgm-pairwise", True)],
        verify=[("cbcc", False), ("pgm-pairwise", False), ("pgm-pairwise", True)],
    ),
)
def test_killed_fit_resumes_with_identical_bits(name: str, on_disk: bool, tmp_path: Path) -> None:
    memory = small_memory(name) if on_disk else 0
    kills = kill_points(len(name) + on_disk, n_files=4 if on_disk else 1)  # the state; w, ν and cavities
    lines = run_victim("fit", tmp_path, name, str(memory), *kills, "end")
    assert [line.split()[-1] for line in lines] == [KILLED] * len(kills) + ["0"]
    progress = Counting()
    assert differing(run(tmp_path, MODELS[name](), progress, memory=memory or None), alone(name)) == []
    assert progress.words == []
    assert [path for path in tmp_path.rglob(".*") if path.is_dir()] == []
    assert [path for path in tmp_path.iterdir() if path.name.startswith("dissensus-messages")] == []


# ---- two runs -----------------------------------------------------------------------------------------

HOLDER = """
import sys, time
import dissensus as ds
from tests.helpers.cluster import MODELS, crowd, cut_small

def wait(words, share):
    if words.startswith("iteration 3 "):
        print("here", flush=True)
        time.sleep(60)

cut_small()
with ds.resources(checkpoint=sys.argv[1], checkpoint_every=1, progress=wait):
    MODELS["pgm-bp"]().fit(crowd())
"""


def test_parallel_run_of_the_same_fit_is_rejected(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"here\n"
            (folder,) = tmp_path.iterdir()
            half = folder / "restart-0" / ".step-000004"
            half.mkdir()
            line = f"another run is using this checkpoint ({folder}); wait for it, or choose another"
            with pytest.raises(DataError, match=f"^{re.escape(line)}"):
                run(tmp_path, MODELS["pgm-bp"]())
            assert half.is_dir()
            run(tmp_path, MODELS["fmm"]())  # other fits are allowed
        finally:
            holder.kill()
    progress = Counting()
    assert differing(run(tmp_path, MODELS["pgm-bp"](), progress), MODELS["pgm-bp"]().fit(crowd())) == []
    assert len(progress.words) == remaining_iterations(3)
    assert list(tmp_path.glob(f"*/{LOCK_FILE}")) == []


def test_checkpoints_in_use_are_not_removed(tmp_path: Path) -> None:
    with ds.resources(checkpoint=tmp_path) as restored:
        MODELS["fmm"]().fit(crowd())
        (folder,) = tmp_path.iterdir()
        with checkpoint_folder(folder):
            Resources(used={folder}).forget()
            assert steps(folder) != []
        restored.forget()
    assert list(tmp_path.iterdir()) == []


def test_disk_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", unsupported)
    stop_at(5, tmp_path, MODELS["fmm"](), checkpoint_every=1)
    progress = Counting()
    run(tmp_path, MODELS["fmm"](), progress)
    assert len(progress.words) == remaining_iterations(5)


# ---- damaged ------------------------------------------------------------------------------------------


def damaged(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def test_damaged_checkpoint(tmp_path: Path) -> None:
    stop_at(5, tmp_path, MODELS["pgm-pairwise"](), checkpoint_every=1, memory=small_memory("pgm-pairwise"))
    *earlier, step = steps(tmp_path)
    for other in earlier:
        shutil.rmtree(other)
    line = f"^{re.escape(str(step))}: the checkpoint is damaged; remove {re.escape(str(step.parent))} and run"

    def refused() -> None:
        with pytest.raises(DataError, match=line):
            run(tmp_path, MODELS["pgm-pairwise"]())

    assert sorted(file.name for file in step.iterdir()) == ["array-0", "array-1", "array-2", STATE_FILE]
    for file in step.iterdir():
        content = file.read_bytes()
        n_positions = 12 if file.name == STATE_FILE else 3
        for position in np.linspace(0, len(content) - 1, n_positions).astype(int).tolist():
            file.write_bytes(damaged(content, position))
            refused()
        file.write_bytes(content[:-1])
        refused()
        file.unlink()
        refused()
        file.write_bytes(content)
    assert differing(run(tmp_path, MODELS["pgm-pairwise"]()), alone("pgm-pairwise")) == []


@pytest.mark.parametrize("file_name", [STATE_FILE, "array-1"])
def test_previous_checkpoint_replaces_a_damaged_one(file_name: str, tmp_path: Path) -> None:
    settings = {"checkpoint_every": 1, "memory": small_memory("pgm-bp")}
    stop_at(5, tmp_path, MODELS["pgm-bp"](), **settings)
    step = steps(tmp_path)[-1]
    content = (step / file_name).read_bytes()
    (step / file_name).write_bytes(damaged(content, len(content) - 1))
    assert differing(run(tmp_path, MODELS["pgm-bp"]()), alone("pgm-bp")) == []
    # if both are damaged, the fit cannot resume
    stop_at(5, tmp_path / "both", MODELS["pgm-bp"](), **settings)
    for step in steps(tmp_path / "both"):
        (step / file_name).unlink()
    with pytest.raises(DataError, match="the checkpoint is damaged; remove"):
        run(tmp_path / "both", MODELS["pgm-bp"]())


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"memory": small_memory("pgm-bp"), "checkpoint_every": 1}
    real, remaining = checkpoints._write, [2]

    def full(folder: Path, *arguments: Any) -> None:
        remaining[0] -= 1
        if remaining[0] < 0:
            (folder / "some").write_text("bytes")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "more"))
        real(folder, *arguments)

    line = (
        r"pgm-[0-9a-f]{16}/restart-0: a checkpoint cannot be written \(no space left on device\); free some "
        r"space and run the same command again: it resumes from the last checkpoint$"
    )
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_write", full)
        with pytest.raises(DataError, match=line):
            run(tmp_path, MODELS["pgm-bp"](), **settings)
    assert [step.name for step in steps(tmp_path)] == ["step-000001", "step-000002"]
    progress = Counting()
    assert differing(run(tmp_path, MODELS["pgm-bp"](), progress, **settings), alone("pgm-bp")) == []
    assert len(progress.words) == remaining_iterations(2)


# ---- files --------------------------------------------------------------------------------------------


def test_two_checkpoints_are_kept(tmp_path: Path) -> None:
    kept = {"checkpoints": Checkpoints(lambda: tmp_path, 2), "scratch": lambda: tmp_path}
    engine = LargeEngine(1, None, 1, budget=Budget(None), dtype=np.float64, **kept)
    monitor = ConvergenceMonitor(engine, 8, 0.0, "fit")
    state = DawidSkeneState(np.zeros(2), np.zeros((1, 2, 2)))
    for n in range(7):
        monitor.report(float(n), state)
    assert [step.name for step in steps(tmp_path)] == ["step-000004", "step-000006"]
    monitor.report(6.0, state)  # converged
    assert [step.name for step in steps(tmp_path)] == ["step-000006", "step-000008"]
