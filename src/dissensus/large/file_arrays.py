"""Memory-mapped arrays, for messages that exceed memory or are shared between processes.

For another process, an array in a file is pickled as its location (:meth:`FileArrays.dumps`), and unpickling
maps the same bytes. The files are in a scratch folder, which is locked while a run uses it and removed
afterwards; folders left by killed runs are removed by the next run.
"""

from __future__ import annotations

import io
import mmap
import os
import pickle
import shutil
import tempfile
import time
import uuid
import weakref
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError, setting, system_words
from dissensus.tables.atomic import locked
from dissensus.tables.source import not_reached

SCRATCH_PREFIX = "dissensus-messages-"
LOCK_FILE = "lock"  # locked while its folder is in use, and released when the process ends


class FileLocation(NamedTuple):
    """Location of an array in a file."""

    path: str
    dtype: str
    offset: int
    shape: tuple[int, ...]
    mode: Any  # mode of the map: "r" or "r+"


def file_checksum(path: str | Path) -> int:
    """Return the CRC-32 of a file."""
    crc = 0
    with Path(path).open("rb") as file:
        while chunk := file.read(1 << 20):
            crc = zlib.crc32(chunk, crc)
    return crc


def file_location(array: NDArray[Any]) -> FileLocation | None:
    """Return the location of an array, or of a view of one, mapped from a file; None for others."""
    owner: Any = array
    while isinstance(owner, np.ndarray) and getattr(owner, "_mmap", None) is None:
        owner = owner.base
    if not isinstance(owner, np.memmap) or not array.flags.c_contiguous or not array.size:
        return None
    first_byte = np.frombuffer(vars(owner)["_mmap"], np.uint8).__array_interface__["data"][0]
    page = owner.offset - owner.offset % mmap.ALLOCATIONGRANULARITY  # maps begin at a page boundary
    offset = page + array.__array_interface__["data"][0] - first_byte
    return FileLocation(str(owner.filename), array.dtype.str, offset, array.shape, owner.mode)


def open_file_array(location: FileLocation) -> NDArray[Any]:
    """Map an array from a file."""
    try:
        path, dtype, offset, shape, mode = location
        return np.asarray(np.memmap(path, dtype, mode, offset, shape))
    except (OSError, ValueError) as error:
        remedy = f"put {setting('scratch')}, and stores, on a disk shared by all workers"
        raise not_reached(location.path, remedy) from error


class FileArrays:
    """Arrays in files of a folder. The file of a deleted array is reused for the next one of its size.

    Reusing a file costs a tenth of creating one: its pages are in memory, and its disk space is allocated.
    """

    def __init__(self, folder: Callable[[], Path]) -> None:
        self._folder = folder
        self._spare = defaultdict[int, list[Path]](list)  # free files by size
        self._generation = 0

    def empty(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """Create an uninitialised array in a file."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        if not size:
            return np.empty(shape, dtype)
        path = self._spare[size].pop() if self._spare[size] else self._new_file(size)
        array = np.memmap(path, dtype, "r+", 0, shape)
        weakref.finalize(array, self._recycle, path, size, self._generation)
        return array

    def _new_file(self, size: int) -> Path:
        folder = self._folder()
        path = folder / f"array-{uuid.uuid4().hex[:16]}"
        try:
            with path.open("xb") as file:
                allocate = getattr(os, "posix_fallocate", lambda file, _, size: os.truncate(file, size))
                allocate(file.fileno(), 0, size)  # a full disk raises an error here, not a crash later
        except OSError as error:
            with suppress(OSError):
                path.unlink()
            raise scratch_error(folder, error) from error
        return path

    def _recycle(self, path: Path, size: int, generation: int) -> None:
        with suppress(OSError):
            if generation == self._generation and path.stat().st_nlink == 1:  # checkpoints hard-link files
                self._spare[size].append(path)
            else:
                path.unlink()

    def retire(self) -> None:
        """Stop reusing existing files, since a lost worker may still read or write them."""
        self._generation += 1
        for paths in self._spare.values():
            while paths:
                paths.pop().unlink(missing_ok=True)

    def in_file(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the array if it is in a file, otherwise a copy in a file."""
        if file_location(array) is not None:
            return array
        copy = self.empty(array.shape, array.dtype)
        copy[...] = array
        return copy

    def dumps(self, value: Any, max_bytes: int) -> tuple[bytes, list[NDArray[Any]]]:
        """Pickle a value, with arrays in files as their locations.

        Other arrays larger than ``max_bytes`` are copied to files, which exist as long as the returned
        arrays.
        """
        content = io.BytesIO()
        pickler = _LocationPickler(content, self, max_bytes)
        pickler.dump(value)
        return content.getvalue(), pickler.copies


@contextmanager
def scratch_folder(parent: Path | None) -> Iterator[Path]:
    """Create a locked folder below ``parent`` (None: the system's temporary directory)."""
    parent = parent or Path(tempfile.gettempdir())
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for lock in parent.glob(f"{SCRATCH_PREFIX}*/{LOCK_FILE}"):
            with suppress(OSError), locked(lock, wait=False, create=True) as abandoned:
                if abandoned:
                    shutil.rmtree(lock.parent, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=parent))
    except OSError as error:
        raise scratch_error(parent, error) from error
    try:
        # locked before it gets its name, so that a lock file is never seen unlocked
        with locked(folder / f".{LOCK_FILE}", create=True):
            (folder / f".{LOCK_FILE}").rename(folder / LOCK_FILE)
            yield folder
    finally:
        for _ in range(10):  # a worker may still write a last file
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
            time.sleep(0.1)


def scratch_error(folder: Path, error: OSError) -> DataError:
    """Return the error for a scratch folder that cannot be written."""
    remedy = f"free some space, or choose another directory with {setting('scratch')}"
    return DataError(f"{folder}: messages cannot be written ({system_words(error)}); {remedy}")


def labels_differ(path: Any) -> DataError:
    """Return the error for a file or store of labels that differs between machines."""
    problem = f"{path}: the labels on this worker's machine differ from the driver's"
    return DataError(f"{problem}; copy the store there again")


class _LocationPickler(pickle.Pickler):
    def __init__(self, content: io.BytesIO, files: FileArrays, max_bytes: int) -> None:
        super().__init__(content, protocol=pickle.HIGHEST_PROTOCOL)
        self.copies, self._files, self._max_bytes = list[NDArray[Any]](), files, max_bytes

    def reducer_override(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return NotImplemented
        if value.nbytes > self._max_bytes and value.flags.c_contiguous:
            value = self._files.in_file(value)
            self.copies.append(value)
        location = file_location(value)
        return NotImplemented if location is None else (open_file_array, (location,))
