"""A fit that was stopped goes on where it was, with the same bits; a checkpoint is whole or absent."""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dissensus as ds
from cluster_help import (
    ITERATIONS,
    MODELS,
    WITH_MESSAGES,
    Counting,
    StoppedError,
    alone,
    crowd,
    differing,
    least_memory,
    small_shards,
)
from dissensus.engine import Checkpoint, ConvergenceMonitor
from dissensus.errors import DataError
from dissensus.large import checkpoints, scratch
from dissensus.large.checkpoints import STATE_FILE, Checkpoints
from dissensus.large.engine import Budget, LargeEngine
from dissensus.large.file_arrays import FileArrays
from dissensus.large.resources import Resources
from dissensus.large.scratch import LOCK, alone_in
from dissensus.models.base import Model
from sizes import usually

__all__ = ["small_shards"]
pytestmark = [pytest.mark.slow, pytest.mark.no_cover, pytest.mark.usefixtures("small_shards")]

VICTIM = Path(__file__).with_name("checkpoint_victim.py")
# The test files beside what the tests themselves import.
ENVIRONMENT = os.environ | {
    "PYTHONPATH": os.pathsep.join([str(VICTIM.parent), os.environ.get("PYTHONPATH", "")])
}
KILLED = "-9"


@pytest.fixture(autouse=True)
def _quick_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dozens of small files a checkpoint are not waited for; a machine that loses its power is not tested."""
    monkeypatch.setattr(checkpoints, "sync", lambda path: None)


def little(name: str) -> int:
    """Memory in which messages do not fit."""
    return least_memory(MODELS[name](), crowd())


def run(folder: Path, model: Model, progress: Any = None, **settings: Any) -> Model:
    with ds.resources(checkpoint=folder, progress=progress, **settings):
        return model.fit(crowd())


def stopped_at(iteration: int, folder: Path, model: Model, **settings: Any) -> None:
    with pytest.raises(StoppedError):
        run(folder, model, Counting(iteration), **settings)


def pages(folder: Path) -> list[Path]:
    return sorted(folder.rglob("step-*"))


def iterations_after(kept: int) -> int:
    """Iterations that are left: a checkpoint has the state that its iteration began with."""
    return ITERATIONS - kept + 1


# ---- going on -----------------------------------------------------------------------------------------


# EBCC has several starts, each with iterations of its own.
@pytest.mark.parametrize("name", [name for name in MODELS if name != "ebcc"])
@pytest.mark.parametrize("every", usually([2], verify=[1, 2]))
def test_a_stopped_fit_goes_on_with_the_same_bits(name: str, every: int, tmp_path: Path) -> None:
    stopped_at(5, tmp_path, MODELS[name](), checkpoint_every=every)
    progress = Counting()
    resumed = run(tmp_path, MODELS[name](), progress, checkpoint_every=every)
    assert differing(resumed, alone(name)) == []
    # The checkpoint was written at iteration 5, or 4.
    assert len(progress.words) == iterations_after(5 if every == 1 else 4)


@pytest.mark.parametrize("name", usually(["pgm-vb"], verify=WITH_MESSAGES))
def test_messages_on_disk_and_stopped_again_and_again(name: str, tmp_path: Path) -> None:
    for _ in range(ITERATIONS - 1):
        stopped_at(2, tmp_path, MODELS[name](), checkpoint_every=1, memory=little(name))
    # The last one goes on in memory, and on two threads.
    assert differing(run(tmp_path, MODELS[name](n_jobs=2)), alone(name)) == []
    assert [path.name[:5] for path in tmp_path.iterdir()] == ["pgm-" + pages(tmp_path)[0].parts[-3][4]]


def test_each_restart_has_checkpoints_of_its_own(tmp_path: Path) -> None:
    alone = ds.PGM(3, 2, n_restarts=3, max_iter=4, tol=0.0).fit(crowd())
    model = ds.PGM(3, 2, n_restarts=3, max_iter=4, tol=0.0)
    stopped_at(6, tmp_path, model, checkpoint_every=1)
    progress = Counting()
    assert differing(run(tmp_path, model, progress, checkpoint_every=1), alone) == []
    assert len(progress.words) == 3 * 4 - 6 + 1


def test_a_finished_fit_is_not_done_again(tmp_path: Path) -> None:
    for name in usually(["fmm", "cbcc", "pgm-pairwise"], verify=[*MODELS]):
        first = run(tmp_path, MODELS[name]())
        progress = Counting()
        assert differing(run(tmp_path, MODELS[name](), progress), first) == []
        assert progress.words == []


def test_a_fit_that_converged_says_so_again(tmp_path: Path) -> None:
    first = run(tmp_path, ds.FMM(2, tol=1e-3))
    assert first.stopped_ == "tolerance"
    again = run(tmp_path, ds.FMM(2, tol=1e-3))
    assert differing(again, first) == []


def test_the_end_is_found_by_who_was_stopped_just_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Checkpoints.write

    def stop(self: Checkpoints, name: str, reached: Checkpoint[Any]) -> None:
        if reached.stopped:
            raise StoppedError
        real(self, name, reached)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "write", stop)
        with pytest.raises(StoppedError):
            run(tmp_path, MODELS["fmm"](), checkpoint_every=1)
    assert differing(run(tmp_path, MODELS["fmm"](), checkpoint_every=1), alone("fmm")) == []


@pytest.mark.parametrize(
    "other",
    [
        lambda known, model: (known, model.set_params(seed=1)),
        lambda known, model: (known, model.set_params(max_iter=ITERATIONS + 1)),
        lambda known, model: (known.take_items(np.arange(known.n_items - 1)), model),
    ],
    ids=["seed", "iterations", "labels"],
)
def test_another_fit_never_takes_the_checkpoint(other: Any, tmp_path: Path) -> None:
    stopped_at(5, tmp_path, MODELS["pgm-bp"](), checkpoint_every=1)
    known, model = other(crowd(), MODELS["pgm-bp"]())
    alone = type(model)(**model.get_params()).fit(known)
    with ds.resources(checkpoint=tmp_path):
        assert differing(model.fit(known), alone) == []
    assert len(list(tmp_path.iterdir())) == 2


def test_what_was_given_beside_the_labels_counts_too(tmp_path: Path) -> None:
    known = crowd()
    prior = np.random.default_rng(0).dirichlet(np.ones(known.n_classes), known.n_items)
    for given in (prior, prior[::-1]):
        alone = MODELS["dawid-skene"]().fit(known, prior=given)
        with ds.resources(checkpoint=tmp_path):
            assert differing(MODELS["dawid-skene"]().fit(known, prior=given), alone) == []
    with ds.resources(checkpoint=tmp_path, precision="single"):
        MODELS["dawid-skene"]().fit(known, prior=prior)
    assert len(list(tmp_path.iterdir())) == 3


def test_where_messages_are_makes_no_other_fit(tmp_path: Path) -> None:
    stopped_at(5, tmp_path, MODELS["pgm-bp"](), checkpoint_every=1)
    progress = Counting()
    run(tmp_path, MODELS["pgm-bp"](), progress, memory=little("pgm-bp"))
    assert len(progress.words) == iterations_after(5)


# ---- killed -------------------------------------------------------------------------------------------


def moments(seed: int, n_files: int) -> list[str]:
    """Some moments of a fit's work: in an iteration, or in the writing of a checkpoint of so many files.

    Two of them come after a checkpoint, so that later ones meet fits that resume.
    """
    chance = random.Random(seed)
    early = ["iteration=1", "rename=1", f"sync={chance.randint(1, n_files)}", "write=1"]
    early += [f"link={chance.randint(1, n_files - 1)}" for _ in range(3 * (n_files > 1))]
    picked = chance.choices(early, k=usually(2, verify=8))
    for place in (chance.randint(1, 4), chance.randint(5, 8)):
        picked.insert(place, "iteration=2")
    return picked


@pytest.mark.parametrize(
    ("name", "on_disk"),
    usually(
        [("cbcc", False), ("pgm-pairwise", True)],
        verify=[("cbcc", False), ("pgm-pairwise", False), ("pgm-pairwise", True)],
    ),
)
def test_a_killed_fit_goes_on_with_the_same_bits(name: str, on_disk: bool, tmp_path: Path) -> None:
    memory = little(name) if on_disk else 0
    kills = moments(len(name) + on_disk, n_files=4 if on_disk else 1)  # the state; w, ν and cavities
    done = subprocess.run(
        [sys.executable, VICTIM, tmp_path, name, str(memory), *kills, "end"],
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
        env=ENVIRONMENT,
    )
    ends = [line.split()[-1] for line in done.stdout.splitlines()]
    assert ends == [KILLED] * len(kills) + ["0"]
    progress = Counting()
    assert differing(run(tmp_path, MODELS[name](), progress, memory=memory or None), alone(name)) == []
    assert progress.words == []
    assert [path for path in tmp_path.rglob(".*") if path.is_dir()] == []
    assert [path for path in tmp_path.iterdir() if path.name.startswith("dissensus-messages")] == []


# ---- two runs -----------------------------------------------------------------------------------------

HOLDER = """
import sys, time
import dissensus as ds
from cluster_help import MODELS, crowd, cut_small

def wait(words, share):
    if words.startswith("iteration 3 "):
        print("here", flush=True)
        time.sleep(60)

cut_small()
with ds.resources(checkpoint=sys.argv[1], checkpoint_every=1, progress=wait):
    MODELS["pgm-bp"]().fit(crowd())
"""


def test_a_second_run_of_the_same_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, tmp_path], stdout=subprocess.PIPE, env=ENVIRONMENT
    )
    with holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"here\n"
            (folder,) = tmp_path.iterdir()
            half = folder / "restart-0" / ".step-000004"
            half.mkdir()
            line = f"another run is using this checkpoint ({folder}); wait for it, or name another directory"
            with pytest.raises(DataError, match=f"^{re.escape(line)}$"):
                run(tmp_path, MODELS["pgm-bp"]())
            assert half.is_dir()
            run(tmp_path, MODELS["fmm"]())  # another fit is not in its way
        finally:
            holder.kill()
    progress = Counting()
    assert differing(run(tmp_path, MODELS["pgm-bp"](), progress), MODELS["pgm-bp"]().fit(crowd())) == []
    assert len(progress.words) == iterations_after(3)
    assert list(tmp_path.glob(f"*/{LOCK}")) == []


def test_checkpoints_in_use_are_not_forgotten(tmp_path: Path) -> None:
    with ds.resources(checkpoint=tmp_path) as found:
        MODELS["fmm"]().fit(crowd())
        (folder,) = tmp_path.iterdir()
        with alone_in(folder):
            Resources(used={folder}).forget()
            assert pages(folder) != []
        found.forget()
    assert list(tmp_path.iterdir()) == []


def test_chains_on_threads_share_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = scratch._taken

    def slow(folder: Path) -> int:
        time.sleep(0.3)  # the others ask meanwhile
        return real(folder)

    monkeypatch.setattr(scratch, "_taken", slow)
    model = ds.HPGM(4, 3, n_chains=3, n_sweeps=12, n_jobs=3)
    alone = ds.HPGM(4, 3, n_chains=3, n_sweeps=12, n_jobs=1).fit(crowd())
    resumed = run(tmp_path, model)
    np.testing.assert_array_equal(resumed.label_distributions_, alone.label_distributions_)


def test_a_lock_that_was_removed_meanwhile_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, first = scratch.take_lock, [True]

    def late(handle: int, **more: Any) -> bool:
        """Between the opening of the file and the lock on it, the run before leaves."""
        if first.pop() if first else False:
            (tmp_path / "fit" / LOCK).unlink()
            (tmp_path / "fit").rmdir()
        return real(handle, **more)

    monkeypatch.setattr(scratch, "take_lock", late)
    with (
        alone_in(tmp_path / "fit"),
        pytest.raises(DataError, match="another run is using"),
        alone_in(tmp_path / "fit"),
    ):
        pass


def test_a_disk_without_locks_is_used_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", unsupported)
    stopped_at(5, tmp_path, MODELS["fmm"](), checkpoint_every=1)
    progress = Counting()
    run(tmp_path, MODELS["fmm"](), progress)
    assert len(progress.words) == iterations_after(5)


# ---- damaged ------------------------------------------------------------------------------------------


def damaged(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def test_a_damaged_checkpoint_is_one_line(tmp_path: Path) -> None:
    stopped_at(5, tmp_path, MODELS["pgm-pairwise"](), checkpoint_every=1, memory=little("pgm-pairwise"))
    *before, page = pages(tmp_path)
    for other in before:
        shutil.rmtree(other)
    line = f"^{re.escape(str(page))}: the checkpoint is damaged; remove {re.escape(str(page.parent))} and run"

    def refused() -> None:
        with pytest.raises(DataError, match=line):
            run(tmp_path, MODELS["pgm-pairwise"]())

    assert sorted(file.name for file in page.iterdir()) == ["array-0", "array-1", "array-2", STATE_FILE]
    for file in page.iterdir():
        content = file.read_bytes()
        n_places = 12 if file.name == STATE_FILE else 3
        for place in np.linspace(0, len(content) - 1, n_places).astype(int).tolist():
            file.write_bytes(damaged(content, place))
            refused()
        file.write_bytes(content[:-1])
        refused()
        file.unlink()
        refused()
        file.write_bytes(content)
    assert differing(run(tmp_path, MODELS["pgm-pairwise"]()), alone("pgm-pairwise")) == []


@pytest.mark.parametrize("what", [STATE_FILE, "array-1"])
def test_where_the_last_checkpoint_is_damaged_the_one_before_serves(what: str, tmp_path: Path) -> None:
    settings = {"checkpoint_every": 1, "memory": little("pgm-bp")}
    stopped_at(5, tmp_path, MODELS["pgm-bp"](), **settings)
    page = pages(tmp_path)[-1]
    content = (page / what).read_bytes()
    (page / what).write_bytes(damaged(content, len(content) - 1))
    assert differing(run(tmp_path, MODELS["pgm-bp"]()), alone("pgm-bp")) == []
    # Where both are, there is nothing to resume from.
    stopped_at(5, tmp_path / "both", MODELS["pgm-bp"](), **settings)
    for page in pages(tmp_path / "both"):
        (page / what).unlink()
    with pytest.raises(DataError, match="the checkpoint is damaged; remove"):
        run(tmp_path / "both", MODELS["pgm-bp"]())


@pytest.mark.parametrize("on_disk", [False, True])
def test_a_full_disk_is_one_line_and_nothing_is_lost(
    on_disk: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = little("pgm-bp") if on_disk else None
    real, left = checkpoints._write, [2]

    def full(folder: Path, *more: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            (folder / "some").write_text("bytes")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "more"))
        real(folder, *more)

    line = (
        r"pgm-[0-9a-f]{16}/restart-0: a checkpoint cannot be written \(no space left on device\); make room "
        r"there and run the same again: it resumes from the last one$"
    )
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "_write", full)
        with pytest.raises(DataError, match=line):
            run(tmp_path, MODELS["pgm-bp"](), checkpoint_every=1, memory=memory)
    assert [page.name for page in pages(tmp_path)] == ["step-000001", "step-000002"]
    assert len(list(tmp_path.iterdir())) == 1
    progress = Counting()
    assert differing(run(tmp_path, MODELS["pgm-bp"](), progress, memory=memory), alone("pgm-bp")) == []
    assert len(progress.words) == iterations_after(2)


def test_no_room_for_messages_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, left = os.posix_fallocate, [7]  # w, and then w and ν of every round

    def full(*given: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(*given)

    line = (
        r"dissensus-messages-\w+: messages cannot be written \(no space left on device\); make room there, "
        r"or name another place with scratch=$"
    )
    memory = little("pgm-bp")
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(DataError, match=line):
            run(tmp_path, MODELS["pgm-bp"](), checkpoint_every=1, memory=memory)
    assert len(list(tmp_path.iterdir())) == 1
    progress = Counting()
    assert differing(run(tmp_path, MODELS["pgm-bp"](), progress, memory=memory), alone("pgm-bp")) == []
    assert 0 < len(progress.words) < ITERATIONS


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"a checkpoint cannot be written \(not a directory\)"):
        run(tmp_path / "file" / "below", MODELS["fmm"](), checkpoint_every=1)


# ---- pages --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Inner:
    table: np.ndarray
    share: float


@dataclass(frozen=True)
class Outer:
    inner: Inner
    history: tuple[float, ...]
    scalar: np.ndarray


def test_a_state_comes_back_as_it_lay_in_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for axes in ((0, 1, 2), (0, 2, 1), (2, 0, 1), (2, 1, 0)):
        table = rng.random((3, 4, 5)).transpose(axes)
        state = Outer(Inner(table, 0.1 + 0.2), (1 / 3, -np.inf), np.asarray(np.nextafter(1, 2)))
        kept = Checkpoints(lambda axes=axes: tmp_path / str(axes), 1)
        kept.write("fit", Checkpoint(state, 2, (0.1, float("nan")), ""))
        page = kept.latest("fit", Outer)
        assert page is not None
        found = page.state
        assert found.inner.table.tobytes(order="A") == table.tobytes(order="A")
        assert found.inner.table.strides == table.strides
        assert (found.inner.share, found.history) == (0.1 + 0.2, (1 / 3, -np.inf))
        assert found.scalar.shape == ()
        assert found.scalar == np.nextafter(1, 2)
        assert page.trace[0] == 0.1
        assert np.isnan(page.trace[1])
        assert (page.done, page.stopped) == (2, "")


def test_an_array_in_a_file_gets_a_second_name_and_stays_as_it_was(tmp_path: Path) -> None:
    files = FileArrays(lambda: tmp_path)
    whole = files.empty((4, 3), np.float32)
    whole[...] = np.arange(12).reshape(4, 3)
    kept = Checkpoints(lambda: tmp_path / "kept", 1)
    kept.write("fit", Checkpoint(Outer(Inner(whole[1:], 0.0), (), np.asarray(0.0)), 1))
    (page,) = pages(tmp_path)
    assert (page / "array-0").stat().st_nlink == 2
    del whole
    assert (page / "array-0").stat().st_nlink == 1
    files.empty((4, 3), np.float32)[...] = -1.0  # another file
    found = kept.latest("fit", Outer)
    assert found is not None
    np.testing.assert_array_equal(found.state.inner.table, np.arange(3, 12).reshape(3, 3))
    assert found.state.inner.table.dtype == np.float32


def test_two_pages_stay(tmp_path: Path) -> None:
    kept = Checkpoints(lambda: tmp_path, 2)
    engine = LargeEngine(
        1, None, 1, budget=Budget(None), scratch=lambda: tmp_path, checkpoints=kept, dtype=np.float64
    )
    monitor = ConvergenceMonitor(engine, 8, 0.0, "fit")
    state = Inner(np.zeros(2), 0.0)
    for n in range(7):
        monitor.report(float(n), state)
    assert [page.name for page in pages(tmp_path)] == ["step-000004", "step-000006"]
    monitor.report(6.0, state)  # the objective does not move
    assert [page.name for page in pages(tmp_path)] == ["step-000006", "step-000008"]


def test_what_is_compared_differs_between_models_and_seeds() -> None:
    builders = [MODELS[name] for name in usually(["fmm", "one-coin", "pgm-bp", "pgm-vb"], verify=[*MODELS])]
    found = [build().fit(crowd()) for build in builders]
    found.append(MODELS["fmm"]().set_params(seed=1).fit(crowd()))
    assert len({model.label_distributions_.tobytes() for model in found}) == len(builders) + 1
    assert len({model.trace_.tobytes() for model in found}) == len(builders) + 1


def test_a_place_that_cannot_be_made_is_not_taken_for_another_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    line = r"file/fit: a checkpoint cannot be written \(not a directory\); name another directory"
    with pytest.raises(DataError, match=line), alone_in(tmp_path / "file" / "fit"):
        pass
    nowhere = Path("/proc/no-such-place/fit")
    with (
        pytest.raises(DataError, match=r"cannot be written \(no such file or directory\)"),
        alone_in(nowhere),
    ):
        pass
