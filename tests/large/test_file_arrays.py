"""Memory-mapped arrays: locations, pickling and reuse of files."""

import gc
import os
import pickle
from pathlib import Path

import numpy as np
import pytest

from dissensus.errors import DataError
from dissensus.large.file_arrays import FileArrays, FileLocation, file_location, open_file_array

TABLE = np.arange(12.0).reshape(4, 3) / 7


@pytest.fixture
def files(tmp_path: Path) -> FileArrays:
    return FileArrays(lambda: tmp_path)


def location_of(array: np.ndarray) -> FileLocation:
    location = file_location(array)
    assert location is not None
    return location


# ---- locations ----------------------------------------------------------------------------------------


def test_views_are_pickled_as_locations(files: FileArrays) -> None:
    array = files.in_file(TABLE)
    content, copies = files.dumps((array[1:3], "words"), 10**6)
    part, text = pickle.loads(content)
    assert (len(content) < 300, copies, text, type(part)) == (True, [], "words", np.ndarray)
    np.testing.assert_array_equal(part, TABLE[1:3])
    part[...] = -1.0  # shared memory
    np.testing.assert_array_equal(array[1:3], -1.0)
    np.testing.assert_array_equal(array[[0, 3]], TABLE[[0, 3]])


def test_large_arrays_are_copied_to_files(files: FileArrays) -> None:
    table, small = np.arange(1000.0), np.arange(3)
    content, copies = files.dumps({"table": table, "small": small}, 1000)
    assert (len(content) < 600, len(copies)) == (True, 1)
    loaded = pickle.loads(content)
    np.testing.assert_array_equal(loaded["table"], table)
    np.testing.assert_array_equal(loaded["small"], small)


def test_locations_of_arrays(files: FileArrays, tmp_path: Path) -> None:
    assert file_location(TABLE) is None
    np.save(tmp_path / "table.npy", TABLE)
    mapped = np.load(tmp_path / "table.npy", mmap_mode="r")
    np.testing.assert_array_equal(open_file_array(location_of(np.asarray(mapped)[2:])), TABLE[2:])
    assert files.in_file(mapped) is mapped
    np.testing.assert_array_equal(files.in_file(TABLE), TABLE)


# ---- files --------------------------------------------------------------------------------------------


def test_files_are_reused(files: FileArrays, tmp_path: Path) -> None:
    array = files.empty((4, 3), np.float64)
    first, part = location_of(array).path, array[1:]
    del array
    gc.collect()
    assert location_of(files.empty((4, 3), np.float64)).path != first  # a view is in use
    del part
    gc.collect()
    assert location_of(files.empty((3, 4), np.float64)).path == first  # the same size
    assert location_of(files.empty((3, 5), np.float64)).path != first
    assert len(list(tmp_path.iterdir())) == 3


def test_retired_files_are_not_reused(files: FileArrays, tmp_path: Path) -> None:
    spare = location_of(files.empty((4, 3), np.float64)).path
    used = files.empty((2, 2), np.float64)
    path = location_of(used).path
    files.retire()
    assert location_of(files.empty((4, 3), np.float64)).path != spare
    del used
    gc.collect()
    assert not Path(path).exists()
    again = location_of(files.empty((2, 2), np.float64)).path
    assert again != path
    assert location_of(files.empty((2, 2), np.float64)).path == again


def test_linked_files_are_not_reused(files: FileArrays, tmp_path: Path) -> None:
    array = files.in_file(TABLE)
    path = location_of(array).path
    os.link(path, tmp_path / "checkpoint")
    del array
    gc.collect()
    files.empty(TABLE.shape, TABLE.dtype)[...] = -1.0
    np.testing.assert_array_equal(np.fromfile(tmp_path / "checkpoint").reshape(4, 3), TABLE)


def test_missing_and_short_files(files: FileArrays, tmp_path: Path) -> None:
    (tmp_path / "short").write_bytes(b"short")
    for name in ("gone", "short"):
        with pytest.raises(
            DataError, match=r"not reachable from the worker on .*; put scratch=, and"
        ) as caught:
            open_file_array(FileLocation(str(tmp_path / name), "<f8", 0, (10,), "r"))
        assert "\n" not in str(caught.value)
