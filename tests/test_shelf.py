"""Rounds keep what they have beside what was before, in memory or on disk, and clean up after themselves."""

from __future__ import annotations

import gc
import pickle
from pathlib import Path

import numpy as np
import pytest

from dissensus.errors import DataError
from dissensus.execution.messages import (
    BlockState,
    DiskSlot,
    FiledState,
    InMemory,
    MemoryState,
    OnDisk,
    write_array,
)

TABLE = np.arange(12.0).reshape(4, 3) / 7


def test_in_memory_the_state_itself_is_kept() -> None:
    shelf = InMemory(np.float32)
    stored = shelf.round(2)
    state = MemoryState(TABLE, None, None)
    assert len(stored.slots) == 2
    assert stored.slots[0].keep(state) is state
    assert stored.slots[0].dtype is np.float32


@pytest.mark.parametrize(
    "state",
    [
        MemoryState(TABLE, None, None),
        MemoryState(TABLE, TABLE[:2].astype(np.float32), None),
        MemoryState(TABLE, np.asfortranarray(TABLE), TABLE[:0]),
    ],
    ids=["beliefs", "single precision", "all, as they lie"],
)
def test_on_disk_arrays_come_back_as_they_were(state: MemoryState, tmp_path: Path) -> None:
    stored = OnDisk(tmp_path).round(1)
    kept = pickle.loads(pickle.dumps(stored.slots[0].keep(state)))  # as a task brings it home
    for name in ("w", "nu", "incoming"):
        before, after = getattr(state, name), getattr(kept, name)
        assert (before is None) is (after is None)
        if before is not None:
            assert (after.dtype, after.shape, after.strides) == (before.dtype, before.shape, before.strides)
            assert after.tobytes() == before.tobytes()


def test_a_share_of_the_blocks_stays_in_memory(tmp_path: Path) -> None:
    slots = OnDisk(tmp_path, in_memory=0.5).round(5).slots
    assert [isinstance(place, DiskSlot) for place in slots] == [False, False, True, True, True]


@pytest.mark.slow
def test_a_round_goes_with_the_last_who_holds_it(tmp_path: Path) -> None:
    shelf = OnDisk(tmp_path)
    first, second = shelf.round(1), shelf.round(1)
    for stored in (first, second):
        stored.slots[0].keep(MemoryState(TABLE, None, None))
    held = first.files
    del first, second, stored
    gc.collect()
    assert len(list(tmp_path.iterdir())) == 1
    del held
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_step_that_runs_twice_leaves_one_file(tmp_path: Path) -> None:
    place = DiskSlot(str(tmp_path / "block-0"))
    once: BlockState = place.keep(MemoryState(TABLE, None, None))
    assert place.keep(MemoryState(TABLE, None, None)) == once
    assert [path.name for path in tmp_path.iterdir()] == ["block-0.w.npy"]


@pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04", b"\x93NUMPY\x01\x00", "short", "pickled"])
def test_a_file_that_is_not_whole_is_one_line_and_never_nothing(
    content: bytes | str | None, tmp_path: Path
) -> None:
    path = tmp_path / "block-0.nu.npy"
    if content == "short":
        write_array(path, TABLE)
        path.write_bytes(path.read_bytes()[:-8])
    elif content == "pickled":
        np.save(path, np.array([print], dtype=object), allow_pickle=True)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(DataError, match=r"block-0.nu.npy: the messages of a round cannot be read \(") as told:
        _ = FiledState(str(tmp_path / "block-0"), ("w", "nu")).nu
    assert "\n" not in str(told.value)


def test_a_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    line = r"gone: the messages of a round cannot be written \(no such file or directory\); make room there"
    with pytest.raises(DataError, match=line):
        write_array(tmp_path / "gone" / "block-0.w.npy", TABLE)
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match=r"file: the messages of a round cannot be written \(not a directory"):
        OnDisk(tmp_path / "file").round(1)
