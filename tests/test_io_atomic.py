"""Files and folders appear whole or not at all."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from dissensus.errors import DataError
from dissensus.io.atomic import atomic_directory, atomic_path


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_the_file_takes_its_name_only_at_the_end(tmp_path: Path) -> None:
    target = tmp_path / "labels.csv"
    with atomic_path(target) as temporary:
        temporary.write_text("whole")
        assert not target.exists()
        assert temporary.parent == tmp_path
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
