"""Files and folders appear whole or not at all."""

from __future__ import annotations

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
from dissensus.tables.atomic import atomic_directory, atomic_path, atomic_paths, is_left_over, telling
from dissensus.tables.results import (
    check_output,
    claimed,
    is_ours,
    output_directory,
    read_summary,
    write_summary,
)


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_the_file_takes_its_name_only_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "labels.csv"
    with atomic_path(target) as temporary:
        temporary.write_text("whole")
        assert not target.exists()
        assert temporary.parent.parent == tmp_path
    assert target.read_text() == "whole"
    assert names(tmp_path) == ["labels.csv"]


def test_an_error_leaves_the_old_file_and_no_litter(tmp_path: Path) -> None:
    target = tmp_path / "labels.csv"
    target.write_text("old")

    def write_half() -> None:
        with atomic_path(target) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert target.read_text() == "old"
    assert names(tmp_path) == ["labels.csv"]


def test_suffixes_are_kept_for_writers_that_look_at_them(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "labels.csv.gz") as temporary:
        assert temporary.suffixes == [".csv", ".gz"]


def test_parents_are_made_and_permissions_follow_the_umask(tmp_path: Path) -> None:
    target = tmp_path / "a" / "b" / "labels.csv"
    with atomic_path(target) as temporary:
        temporary.write_text("x")
    plain = tmp_path / "plain"
    plain.write_text("x")
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(plain.stat().st_mode)


def test_a_symbolic_link_is_written_through(tmp_path: Path) -> None:
    real, link = tmp_path / "real.csv", tmp_path / "link.csv"
    real.write_text("old")
    link.symlink_to(real)
    with atomic_path(link) as temporary:
        temporary.write_text("new")
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_a_pipe_receives_the_bytes(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    with atomic_path(pipe) as temporary:
        temporary.write_text("through")
    reader.join(timeout=10)
    assert received == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_directory_is_no_file_and_a_file_no_directory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    with pytest.raises(DataError, match="is a directory; name a file"), atomic_path(tmp_path):
        pass
    with pytest.raises(DataError, match="is a file; name a directory"), atomic_directory(file):
        pass
    with pytest.raises(DataError, match="cannot be written"), atomic_path(file / "below.csv"):
        pass


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"labels\.csv: cannot be written .*no space"):  # noqa: SIM117
        with atomic_path(tmp_path / "labels.csv"):
            raise OSError(errno.ENOSPC, "No space left on device")
    assert names(tmp_path) == []


def test_the_writers_own_errors_pass_through(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "labels.csv"):
        Path(tmp_path / "absent" / "input.csv").read_text()
    assert names(tmp_path) == []


def test_a_new_directory_appears_at_once(tmp_path: Path) -> None:
    target = tmp_path / "out"
    with atomic_directory(target) as temporary:
        (temporary / "sub").mkdir()
        (temporary / "sub" / "a.csv").write_text("a")
        (temporary / "b.csv").write_text("b")
        assert not target.exists()
    assert names(tmp_path) == ["out"]
    assert (target / "sub" / "a.csv").read_text() == "a"
    assert (target / "b.csv").read_text() == "b"


def test_a_directory_with_files_keeps_the_strangers(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "labels.csv").write_text("old")
    (target / "notes.txt").write_text("mine")
    with atomic_directory(target) as temporary:
        (temporary / "labels.csv").write_text("new")
        assert (target / "labels.csv").read_text() == "old"
    assert (target / "labels.csv").read_text() == "new"
    assert (target / "notes.txt").read_text() == "mine"
    assert names(tmp_path) == ["out"]


def test_a_failed_directory_leaves_the_old_one(tmp_path: Path) -> None:
    target = tmp_path / "out"
    target.mkdir()
    (target / "labels.csv").write_text("old")

    def write_half() -> None:
        with atomic_directory(target) as temporary:
            (temporary / "labels.csv").write_text("half")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        write_half()
    assert (target / "labels.csv").read_text() == "old"
    assert names(tmp_path) == ["out"]


def test_a_folder_in_the_way_is_refused_before_anything_moves(tmp_path: Path) -> None:
    target = tmp_path / "out"
    (target / "labels.csv").mkdir(parents=True)

    def write() -> None:
        with atomic_directory(target) as temporary:
            (temporary / "annotators.csv").write_text("x")
            (temporary / "labels.csv").write_text("x")

    with pytest.raises(DataError, match=r"holds a folder called labels\.csv"):
        write()
    assert names(target) == ["labels.csv"]


# ---- replacing ----------------------------------------------------------------------------------------


def write_result(directory: Path, text: str, *names: str) -> None:
    with output_directory(directory) as folder:
        for name in names:
            (folder / name).write_text(text)
        write_summary(folder, {})


def test_a_result_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "out"
    write_result(target, "old", "a.csv", "b.csv")
    (target / "notes").mkdir()
    (target / "notes" / "mine.txt").write_text("mine")
    write_result(target, "new", "a.csv")
    assert names(target) == ["a.csv", "notes", "summary.json"]
    assert (target / "a.csv").read_text() == "new"
    assert (target / "notes" / "mine.txt").read_text() == "mine"
    assert names(tmp_path) == ["out"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of a fork where there are threads
def test_a_directory_moved_aside_by_a_killed_process_is_put_back(tmp_path: Path) -> None:
    def kill_between() -> None:
        """Leave what a process leaves that is killed when the old result is aside, and no new one there."""
        process = os.fork()
        if not process:
            real = Path.rename

            def rename(self: Path, place: Path) -> Path:
                if self.name == "new":
                    os.kill(os.getpid(), signal.SIGKILL)
                return real(self, place)

            Path.rename = rename  # type: ignore[method-assign, assignment]
            write_result(target, "new", "a.csv")
        assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == -signal.SIGKILL
        assert not target.exists()

    target = tmp_path / "out"
    write_result(target, "old", "a.csv")
    (target / "mine.txt").write_text("mine")
    readers: list[Callable[[], object]] = [
        lambda: read_summary(target),
        lambda: check_output(target),
        lambda: is_ours(target),
        lambda: write_result(tmp_path / "other", "x", "a.csv"),
        lambda: atomic_path(tmp_path / "other.csv").__enter__(),
    ]
    for read in readers:
        kill_between()
        read()
        assert names(target) == ["a.csv", "mine.txt", "summary.json"]
        assert (target / "a.csv").read_text() == "old"
        read_summary(target)
    kill_between()
    write_result(target, "newer", "a.csv")
    assert (target / "a.csv").read_text() == "newer"
    assert (target / "mine.txt").read_text() == "mine"
    # A directory that was removed afterwards stays removed.
    shutil.rmtree(target)
    assert not is_ours(target)
    assert not target.exists()


def test_readers_wait_while_a_directory_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out"
    write_result(target, "old", "a.csv")
    real, reading, seen = Path.rename, threading.Event(), list[str]()

    def rename(self: Path, place: Path) -> Path:
        if self.name == "new":
            assert not target.exists()
            reading.set()
            time.sleep(0.2)
        return real(self, place)

    def read() -> None:
        reading.wait(10)
        read_summary(target)
        seen.append((target / "a.csv").read_text())

    monkeypatch.setattr(Path, "rename", rename)
    reader = threading.Thread(target=read)
    reader.start()
    write_result(target, "new", "a.csv")
    reader.join(timeout=10)
    assert seen == ["new"]


@pytest.mark.parametrize("fails", [1, 2])
@pytest.mark.parametrize("where", ["cannot be moved", "inside"])
def test_where_directories_cannot_be_moved_files_are_replaced(
    where: str, fails: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "out"
    write_result(target, "old", "a.csv", "b.csv")
    (target / "mine.txt").write_text("mine")
    real, left = Path.rename, [fails]

    def refuse(self: Path, place: Path) -> Path:
        left[0] -= 1
        if not left[0]:
            raise OSError(errno.EBUSY, "busy")
        return real(self, place)

    if where == "inside":
        monkeypatch.chdir(target)
    else:
        monkeypatch.setattr(Path, "rename", refuse)
    inode = target.stat().st_ino
    write_result(target, "new", "a.csv")
    assert target.stat().st_ino == inode
    assert names(target) == ["a.csv", "mine.txt", "summary.json"]
    assert (target / "a.csv").read_text() == "new"
    read_summary(target)


def test_two_writers_of_one_directory_leave_one_whole_result(tmp_path: Path) -> None:
    target = tmp_path / "out"
    write_result(target, "old", "a.csv", "b.csv")
    writers = [
        threading.Thread(target=write_result, args=(target, str(number), "a.csv", "b.csv"))
        for number in range(8)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(timeout=30)
    read_summary(target)
    assert (target / "a.csv").read_text() == (target / "b.csv").read_text() != "old"
    assert names(tmp_path) == ["out"]


def test_a_mixture_of_two_results_is_refused(tmp_path: Path) -> None:
    target = tmp_path / "out"
    write_result(target, "new", "a.csv", "b.csv")
    read_summary(target)
    (target / "b.csv").write_text("old")
    with pytest.raises(DataError, match=r"out: b\.csv is not the file that summary\.json was written with"):
        read_summary(target)
    (target / "b.csv").unlink()
    with pytest.raises(DataError, match=r"out: b\.csv is missing"):
        read_summary(target)


def test_modes_of_what_is_replaced_are_kept(tmp_path: Path) -> None:
    file, target = tmp_path / "labels.csv", tmp_path / "out"
    file.write_text("old")
    file.chmod(0o600)
    with atomic_path(file) as temporary:
        temporary.write_text("new")
    write_result(target, "old", "a.csv")
    (target / "a.csv").chmod(0o640)
    target.chmod(0o750)
    write_result(target, "new", "a.csv")
    modes = [stat.S_IMODE(place.stat().st_mode) for place in (file, target / "a.csv", target)]
    assert modes == [0o600, 0o640, 0o750]


def test_what_a_killed_run_left_goes_with_the_next_and_what_is_in_use_stays(tmp_path: Path) -> None:
    left, empty = tmp_path / ".dissensus-0123abcd", tmp_path / ".dissensus-00000000"
    (left / "half").mkdir(parents=True)
    empty.mkdir()
    (tmp_path / ".dissensus-mine").mkdir()
    with atomic_path(tmp_path / "a.csv") as one, atomic_path(tmp_path / "b.csv") as other:
        assert one.exists()
        assert other.exists()
        assert not left.exists()
        assert not empty.exists()
    assert names(tmp_path) == [".dissensus-mine", "a.csv", "b.csv"]
    assert not is_left_over(".dissensus-mine")


def test_several_files_appear_together(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_paths([tmp_path / "a.csv", tmp_path / "b.csv"]) as (one, _):
            one.write_text("a")
            raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"):
        write()
    assert names(tmp_path) == []


def test_the_result_is_told_of_before_it_takes_its_name_and_its_parts_are_not(tmp_path: Path) -> None:
    seen: list[list[str]] = []
    with telling(lambda: seen.append(names(tmp_path))):
        write_result(tmp_path / "out", "x", "a.csv")
        assert len(seen) == 1
        with atomic_directory(tmp_path / "more") as folder, atomic_path(folder / "part"):
            pass
    assert len(seen) == 2
    assert all("more" not in found for found in seen)
    assert [name for name in seen[0] if not is_left_over(name)] == []


def test_a_long_job_in_somebody_elses_directory_takes_nothing_away(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with claimed(tmp_path, {}, force=True):
        pass
    write_result(tmp_path, "x", "a.csv")
    assert names(tmp_path) == ["a.csv", "mine.txt", "summary.json"]
