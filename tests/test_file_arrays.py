"""Arrays in files: the same bytes for whoever maps them, and gone with the array."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path

import numpy as np
import pytest

from dissensus.errors import DataError
from dissensus.large.file_arrays import (
    as_file_array,
    new_file_array,
    open_file_array,
    pickled_places,
    place_in_file,
)

TABLE = np.arange(12.0).reshape(4, 3) / 7


def test_a_part_is_pickled_as_its_place_and_maps_the_same_bytes(tmp_path: Path) -> None:
    array = new_file_array(tmp_path, TABLE.shape, np.float64)
    array[...] = TABLE
    content, _ = pickled_places((array[1:3], "words"), tmp_path, 10**6)
    part, words = pickle.loads(content)
    np.testing.assert_array_equal(part, TABLE[1:3])
    assert words == "words"
    part[...] = -1.0  # what a worker writes is there for everyone
    np.testing.assert_array_equal(array[1:3], -1.0)
    np.testing.assert_array_equal(array[[0, 3]], TABLE[[0, 3]])


def test_the_file_goes_with_the_array(tmp_path: Path) -> None:
    array = new_file_array(tmp_path, TABLE.shape, np.float32)
    assert len(list(tmp_path.iterdir())) == 1
    part = array[1:]
    del array
    gc.collect()
    assert part.shape == (3, 3)
    del part
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_only_arrays_in_files_have_a_place(tmp_path: Path) -> None:
    assert place_in_file(TABLE) is None
    np.save(tmp_path / "table.npy", TABLE)
    mapped = np.load(tmp_path / "table.npy", mmap_mode="r")
    place = place_in_file(np.asarray(mapped)[2:])
    assert place is not None
    np.testing.assert_array_equal(open_file_array(place), TABLE[2:])
    assert as_file_array(mapped, tmp_path) is mapped
    np.testing.assert_array_equal(as_file_array(TABLE, tmp_path), TABLE)


def test_a_file_that_is_gone_is_one_line(tmp_path: Path) -> None:
    place = place_in_file(as_file_array(TABLE, tmp_path))
    assert place is not None
    gc.collect()
    with pytest.raises(DataError, match="scratch=") as refused:
        open_file_array(place._replace(path=str(tmp_path / "gone")))
    assert "\n" not in str(refused.value)


def test_a_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone: messages cannot be written \(no such file or directory\)"):
        new_file_array(tmp_path / "gone", (2, 2), np.float64)
