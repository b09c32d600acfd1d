"""Arrays in files: for messages that do not fit into memory, and for those that several processes work on.

They are NumPy's memory maps. For another process, an array in a file is pickled as its place there
(:meth:`FileArrays.pickled`), and whoever unpickles it maps the same bytes.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import uuid
import weakref
import zlib
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError, setting, system_words
from dissensus.tables.source import not_reached


class Place(NamedTuple):
    """Where an array lies in a file."""

    path: str
    dtype: str
    offset: int
    shape: tuple[int, ...]
    mode: Any  # of the map: "r" or "r+"


def file_checksum(path: str | Path) -> int:
    """CRC-32 of a file."""
    crc = 0
    with Path(path).open("rb") as file:
        while piece := file.read(1 << 20):
            crc = zlib.crc32(piece, crc)
    return crc


def place_in_file(array: NDArray[Any]) -> Place | None:
    """The place of an array, or of a part of one, that is mapped from a file; None for others."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and getattr(owner, "_mmap", None) is None:
        owner = owner.base
    if not isinstance(owner, np.memmap) or not array.flags.c_contiguous or not array.size:
        return None
    first_byte = np.frombuffer(vars(owner)["_mmap"], np.uint8).__array_interface__["data"][0]
    skipped = owner.offset - owner.offset % mmap.ALLOCATIONGRANULARITY  # maps begin at a page
    offset = skipped + array.__array_interface__["data"][0] - first_byte
    return Place(str(owner.filename), array.dtype.str, offset, array.shape, owner.mode)


def open_file_array(place: Place) -> NDArray[Any]:
    """Map an array of a file."""
    try:
        return np.asarray(np.memmap(place.path, place.dtype, place.mode, place.offset, place.shape))
    except (OSError, ValueError) as error:
        raise not_reached(
            place.path, f"put {setting('scratch')}, and stores, on a disk that every worker reaches"
        ) from error


class FileArrays:
    """Arrays in files of a folder. A file without an array is used again for the next one of its size.

    A file that is there already costs a tenth of a new one: its pages are in memory, and its room on disk is
    its own.
    """

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._spare = defaultdict[int, list[Path]](list)  # by size
        self._age = 0

    def empty(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """An array in a file."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if not size:
            return np.empty(shape, dtype)
        path = self._spare[size].pop() if self._spare[size] else self._new_file(size)
        array = np.memmap(path, dtype, "r+", 0, shape)
        weakref.finalize(array, self._take_back, path, size, self._age)
        return array

    def _new_file(self, size: int) -> Path:
        folder = self._folder()
        path = folder / f"array-{uuid.uuid4().hex[:16]}"
        try:
            with path.open("xb") as file:
                allocate = getattr(os, "posix_fallocate", lambda file, _, size: os.truncate(file, size))
                allocate(file.fileno(), 0, size)  # a full disk is an error here, not a crash later
        except OSError as error:
            with suppress(OSError):
                path.unlink()
            raise cannot_keep(folder, error) from error
        return path

    def _take_back(self, path: Path, size: int, age: int) -> None:
        with suppress(OSError):
            if age == self._age and path.stat().st_nlink == 1:  # checkpoints give files a second name
                self._spare[size].append(path)
            else:
                path.unlink()

    def retire(self) -> None:
        """Use no file again that is there now: a worker that was lost may still read it, or write to it."""
        self._age += 1
        for paths in self._spare.values():
            while paths:
                paths.pop().unlink(missing_ok=True)

    def holding(self, array: NDArray[Any]) -> NDArray[Any]:
        """The array itself if it is in a file, else a copy that is."""
        if place_in_file(array) is not None:
            return array
        copy = self.empty(array.shape, array.dtype)
        copy[...] = array
        return copy

    def pickled(self, value: Any, max_bytes: int) -> tuple[bytes, list[NDArray[Any]]]:
        """Pickle a value whose arrays may be in files: these as their places.

        Other arrays of more than ``max_bytes`` are copied to files, which are there as long as the arrays
        that are returned with the bytes.
        """
        content = io.BytesIO()
        pickler = _PlacePickler(content, self, max_bytes)
        pickler.dump(value)
        return content.getvalue(), pickler.copies


def cannot_keep(folder: Path, error: OSError) -> DataError:
    """The error for a folder that does not take what a fit has to keep."""
    return DataError(
        f"{folder}: messages cannot be written ({system_words(error)}); make room there, or name another "
        f"place with {setting('scratch')}"
    )


class _PlacePickler(pickle.Pickler):
    def __init__(self, content: io.BytesIO, files: FileArrays, max_bytes: int) -> None:
        super().__init__(content, protocol=pickle.HIGHEST_PROTOCOL)
        self.copies, self._files, self._max_bytes = list[NDArray[Any]](), files, max_bytes

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return NotImplemented
        if value.nbytes > self._max_bytes and value.flags.c_contiguous:
            value = self._files.holding(value)
            self.copies.append(value)
        place = place_in_file(value)
        return NotImplemented if place is None else (open_file_array, (place,))
