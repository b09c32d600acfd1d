"""Atomic files and directories, under errors, kills and concurrent writers."""

import errno
import os
import shutil
import signal
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dissensus.errors import DataError
from dissensus.tables import atomic, results


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_file_appears_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "labels.csv"
    with atomic.atomic_path(target) as temporary:
        temporary.write_text("whole")
        assert not target.exists()
        assert temporary.parent.parent == tmp_path
    assert target.read_text() == "whole"
    assert names(tmp_path) == ["labels.csv"]


def test_error_leaves_the_old_file(tmp_path: Path) -> None:
    target = tmp_path / "labels.csv"
    target.write_text("old")

    def write_half() -> None:
        with atomic.atomic_path(target) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert target.read_text() == "old"
    assert names(tmp_path) == ["labels.csv"]


def test_parents_are_created_with_the_umask(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "labels.csv"
    with atomic.atomic_path(target) as temporary:
        temporary.write_text("x")
    plain = tmp_path / "plain"
    plain.write_text("x")
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_symbolic_link_is_followed(tmp_path: Path) -> None:
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    link.symlink_to(real)
    with atomic.atomic_path(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_file_and_directory_in_the_way(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(DataError, match="is a directory; name a file"), atomic.atomic_path(tmp_path):
        pass
    with pytest.raises(DataError, match="is a file; name a directory"), atomic.atomic_directory(file):
        pass
    with pytest.raises(DataError, match="cannot be written"), atomic.atomic_path(file / "below.csv"):
        pass


def test_full_disk(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"labels\.csv: cannot be written .*no space"):  # noqa: SIM117
        with atomic.atomic_path(tmp_path / "labels.csv"):
            raise OSError(errno.ENOSPC, "No space left on device")
    assert names(tmp_path) == []


def test_new_directory(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with atomic.atomic_directory(target) as temporary:
        (temporary / "sub").mkdir()
        (temporary / "sub" / "a.csv").write_text("a")
        (temporary / "b.csv").write_text("b")
        assert not target.exists()
    assert names(tmp_path) == ["out"]
    assert (target / "sub" / "a.csv").read_text() == "a"
    assert (target / "b.csv").read_text() == "b"


def test_failed_directory_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "labels.csv").write_text("old")

    def write_half() -> None:
        with atomic.atomic_directory(target) as temporary:
            (temporary / "labels.csv").write_text("half")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        write_half()
    assert (target / "labels.csv").read_text() == "old"
    assert names(tmp_path) == ["out"]


# ---- replacing ----------------------------------------------------------------------------------------


def write_result(directory: Path, text: str, *names: str) -> None:
    with results.output_directory(directory) as folder:
        for name in names:
            (folder / name).write_text(text)
        results.write_summary(folder, {})


def test_result_is_replaced(tmp_path: Path) -> None:
    target = tmp_path / "out"
    write_result(target, "old", "a.csv", "b.csv")
    (target / "notes").mkdir()
    (target / "notes" / "mine.txt").write_text("mine")
    write_result(target, "new", "a.csv")
    assert names(target) == ["a.csv", "notes", "summary.json"]
    assert (target / "a.csv").read_text() == "new"
    assert (target / "notes" / "mine.txt").read_text() == "mine"
    assert names(tmp_path) == ["out"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # fork with threads
def test_directory_of_a_killed_process_is_restored(tmp_path: Path) -> None:
    def kill_between() -> None:
        """Leave the state of a process killed between the two renames."""
        process = os.fork()
        if not process:
            real = Path.rename

            def rename(self: Path, target: Path) -> Path:
                if self.name == "new":
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(self, target)

            Path.rename = rename  # type: ignore[method-assign, assignment]
            write_result(target, "new", "a.csv")
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
        assert not target.exists()

    target = tmp_path / "out"
    write_result(target, "old", "a.csv")
    (target / "mine.txt").write_text("mine")
    readers: list[Callable[[], object]] = [
        lambda: results.read_summary(target),
        lambda: results.check_output(target),
        lambda: results.is_result_directory(target),
        lambda: write_result(tmp_path / "other", "x", "a.csv"),
        lambda: atomic.atomic_path(tmp_path / "other.csv").__enter__(),
    ]
    for read in readers:
        kill_between()
        read()
        assert names(target) == ["a.csv", "mine.txt", "summary.json"]
        assert (target / "a.csv").read_text() == "old"
        results.read_summary(target)
    kill_between()
    write_result(target, "newer", "a.csv")
    assert (target / "a.csv").read_text() == "newer"
    assert (target / "mine.txt").read_text() == "mine"
    # A directory removed by the user is not restored.
    shutil.rmtree(target)
    assert not results.is_result_directory(target)
    assert not target.exists()


def test_readers_wait_for_a_replacement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"
    write_result(target, "old", "a.csv")
    real, reading, seen = Path.rename, threading.Event(), list[str]()

    def rename(self: Path, target: Path) -> Path:
        if self.name == "new":
            assert not target.exists()
            reading.set()
            time.sleep(0.2)
        return real(self, target)

    def read() -> None:
        reading.wait(10)
        results.read_summary(target)
        seen.append((target / "a.csv").read_text())

    monkeypatch.setattr(Path, "rename", rename)
    reader = threading.Thread(target=read)
    reader.start()
    write_result(target, "new", "a.csv")
    reader.join(timeout=10)
    assert seen == ["new"]


@pytest.mark.parametrize("fails", [1, 2])
@pytest.mark.parametrize("where", ["cannot be moved", "inside"])
def test_files_are_replaced_if_directories_cannot_move(
    where: str, fails: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    write_result(target, "old", "a.csv", "b.csv")
    (target / "mine.txt").write_text("mine")
    real, calls_left = Path.rename, [fails]

    def refuse(self: Path, target: Path) -> Path:
        calls_left[0] -= 1
        if not calls_left[0]:
            raise OSError(errno.EBUSY, "busy")
        return real(self, target)

    if where == "inside":
        monkeypatch.chdir(target)
    else:
        monkeypatch.setattr(Path, "rename", refuse)
    inode = target.stat().st_ino
    write_result(target, "new", "a.csv")
    assert target.stat().st_ino == inode
    assert names(target) == ["a.csv", "mine.txt", "summary.json"]
    assert (target / "a.csv").read_text() == "new"
    results.read_summary(target)


def test_abandoned_folders_are_removed(tmp_path: Path) -> None:
    abandoned, empty = tmp_path / ".dissensus-0123abcd", tmp_path / ".dissensus-00000000"
    (abandoned / "half").mkdir(parents=True)
    empty.mkdir()
    (tmp_path / ".dissensus-mine").mkdir()
    with atomic.atomic_path(tmp_path / "a.csv") as first, atomic.atomic_path(tmp_path / "b.csv") as second:
        assert first.exists()
        assert second.exists()
        assert not abandoned.exists()
        assert not empty.exists()
    assert names(tmp_path) == [".dissensus-mine", "a.csv", "b.csv"]
    assert not atomic.is_temporary_name(".dissensus-mine")


def test_several_files_or_none(tmp_path: Path) -> None:
    def write() -> None:
        with atomic.atomic_paths([tmp_path / "a.csv", tmp_path / "b.csv"]) as (first, _):
            first.write_text("a")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        write()
    assert names(tmp_path) == []


def test_claimed_directory_keeps_other_files(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with results.claimed_directory(tmp_path, {}, force=True):
        pass
    write_result(tmp_path, "x", "a.csv")
    assert names(tmp_path) == ["a.csv", "mine.txt", "summary.json"]


def test_pipe_receives_the_bytes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    with atomic.atomic_path(pipe) as temporary:
        temporary.write_text("through")
    reader.join(timeout=10)
    assert received == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_concurrent_writers(tmp_path: Path) -> None:
    target = tmp_path / "out"
    errors: list[Exception] = []

    def write_and_read(number: int) -> None:
        try:
            write_result(target, str(number), "a.csv", "b.csv")
            results.read_summary(target)
        except Exception as error:
            errors.append(error)

    write_result(target, "old", "a.csv", "b.csv")
    for _ in range(5):
        writers = [threading.Thread(target=write_and_read, args=(number,)) for number in range(8)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join(timeout=30)
    assert not errors
    assert (target / "a.csv").read_text() == (target / "b.csv").read_text() != "old"
    assert names(tmp_path) == ["out"]


def test_mixed_results_are_refused(tmp_path: Path) -> None:
    target = tmp_path / "out"
    write_result(target, "new", "a.csv", "b.csv")
    results.read_summary(target)
    (target / "b.csv").write_text("old")
    with pytest.raises(DataError, match=r"out: b\.csv was changed since summary\.json was written"):
        results.read_summary(target)
    (target / "b.csv").unlink()
    with pytest.raises(DataError, match=r"out: b\.csv is missing"):
        results.read_summary(target)


def test_modes_are_kept(tmp_path: Path) -> None:
    file, target = tmp_path / "labels.csv", tmp_path / "out"
    file.write_text("old")
    file.chmod(0o600)
    with atomic.atomic_path(file) as temporary:
        temporary.write_text("new")
    write_result(target, "old", "a.csv")
    (target / "a.csv").chmod(0o640)
    target.chmod(0o750)
    write_result(target, "new", "a.csv")
    modes = [stat.S_IMODE(path.stat().st_mode) for path in (file, target / "a.csv", target)]
    assert modes == [0o600, 0o640, 0o750]


def test_callback_before_the_rename(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    with atomic.calling_before_rename(lambda: seen.append(names(tmp_path))):
        write_result(tmp_path / "out", "x", "a.csv")
        assert len(seen) == 1
        with atomic.atomic_directory(tmp_path / "more") as folder, atomic.atomic_path(folder / "part"):
            pass
    assert len(seen) == 2
    assert all("more" not in entries for entries in seen)
    assert [name for name in seen[0] if not atomic.is_temporary_name(name)] == []
