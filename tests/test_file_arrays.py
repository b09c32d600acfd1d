"""Arrays in files: the same bytes for whoever maps them, and files that are used again, but never in use."""

from __future__ import annotations

import gc
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from dissensus.errors import DataError
from dissensus.large.file_arrays import FileArrays, Place, open_file_array, place_in_file

TABLE = np.arange(12.0).reshape(4, 3) / 7


@pytest.fixture
def files(tmp_path: Path) -> FileArrays:
    return FileArrays(lambda: tmp_path)


def place_of(array: np.ndarray) -> Place:
    place = place_in_file(array)
    assert place is not None
    return place


# ---- places -------------------------------------------------------------------------------------------


def test_a_part_is_pickled_as_its_place_and_maps_the_same_bytes(files: FileArrays) -> None:
    array = files.holding(TABLE)
    content, copies = files.pickled((array[1:3], "words"), 10**6)
    part, words = pickle.loads(content)
    assert (len(content) < 300, copies, words, type(part)) == (True, [], "words", np.ndarray)
    np.testing.assert_array_equal(part, TABLE[1:3])
    part[...] = -1.0  # what a worker writes is there for everyone
    np.testing.assert_array_equal(array[1:3], -1.0)
    np.testing.assert_array_equal(array[[0, 3]], TABLE[[0, 3]])


def test_a_large_array_in_memory_is_pickled_as_a_copy_in_a_file(files: FileArrays) -> None:
    table, small = np.arange(1000.0), np.arange(3)
    content, copies = files.pickled({"table": table, "small": small}, 1000)
    assert (len(content) < 600, len(copies)) == (True, 1)
    found = pickle.loads(content)
    np.testing.assert_array_equal(found["table"], table)
    np.testing.assert_array_equal(found["small"], small)


def test_only_arrays_in_files_have_a_place(files: FileArrays, tmp_path: Path) -> None:
    assert place_in_file(TABLE) is None
    np.save(tmp_path / "table.npy", TABLE)
    mapped = np.load(tmp_path / "table.npy", mmap_mode="r")
    np.testing.assert_array_equal(open_file_array(place_of(np.asarray(mapped)[2:])), TABLE[2:])
    assert files.holding(mapped) is mapped
    np.testing.assert_array_equal(files.holding(TABLE), TABLE)


def test_what_is_computed_of_mapped_arrays_is_not_mapped(files: FileArrays) -> None:
    array = files.holding(TABLE)
    for computed in (array + 1, array.take([1, 2], axis=0), array.astype(np.float32), array @ np.ones(3)):
        assert place_in_file(computed) is None
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(computed)), computed)
    assert place_in_file(array[:, 1:]) is None  # not one run of bytes


# ---- files --------------------------------------------------------------------------------------------


def test_a_file_is_used_again_once_nothing_maps_it(files: FileArrays, tmp_path: Path) -> None:
    array = files.empty((4, 3), np.float64)
    first, part = place_of(array).path, array[1:]
    del array
    gc.collect()
    assert place_of(files.empty((4, 3), np.float64)).path != first  # a part of it is in use
    del part
    gc.collect()
    assert place_of(files.empty((3, 4), np.float64)).path == first  # the size is what counts
    assert place_of(files.empty((3, 5), np.float64)).path != first
    assert len(list(tmp_path.iterdir())) == 3


def test_files_that_a_lost_worker_may_still_have_are_not_used_again(
    files: FileArrays, tmp_path: Path
) -> None:
    spare = place_of(files.empty((4, 3), np.float64)).path
    used = files.empty((2, 2), np.float64)
    path = place_of(used).path
    files.retire()
    assert place_of(files.empty((4, 3), np.float64)).path != spare
    del used
    gc.collect()
    assert not Path(path).exists()
    again = place_of(files.empty((2, 2), np.float64)).path
    assert again != path
    assert place_of(files.empty((2, 2), np.float64)).path == again


def test_a_file_with_a_second_name_is_not_used_again(files: FileArrays, tmp_path: Path) -> None:
    array = files.holding(TABLE)
    path = place_of(array).path
    os.link(path, tmp_path / "checkpoint")
    del array
    gc.collect()
    files.empty(TABLE.shape, TABLE.dtype)[...] = -1.0
    np.testing.assert_array_equal(np.fromfile(tmp_path / "checkpoint").reshape(4, 3), TABLE)


def test_nothing_needs_no_file(files: FileArrays, tmp_path: Path) -> None:
    assert files.empty((0, 3), np.float64).shape == (0, 3)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_gone_or_short_is_one_line(files: FileArrays, tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"short")
    for name in ("gone", "short"):
        with pytest.raises(DataError, match=r"not reachable from the worker on .*; put scratch=, and") as no:
            open_file_array(Place(str(tmp_path / name), "<f8", 0, (10,), "r"))
        assert "\n" not in str(no.value)


def test_a_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone: messages cannot be written \(no such file or directory\)"):
        FileArrays(lambda: tmp_path / "gone").empty((2, 2), np.float64)
