"""Arrays in files: for messages that do not fit into memory, and for those that several processes work on."""

from __future__ import annotations

import os
import uuid
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError, system_words


class FileArray(np.memmap[Any, Any]):
    """A mapped array that is pickled as its place in a file: whoever unpickles it maps the same bytes."""

    def __reduce__(self) -> Any:
        place = _place_in_file(self)
        return np.array(self).__reduce__() if place is None else (open_file_array, (*place, self.mode))


def _place_in_file(array: NDArray[Any]) -> tuple[str, str, int, tuple[int, ...]] | None:
    """File, type, offset and shape of an array that is mapped; None for others."""
    owner: Any = array
    while owner is not None and not hasattr(owner, "_mmap"):  # an attribute of np.memmap
        owner = getattr(owner, "base", None)
    if owner is None or not array.flags.c_contiguous:
        return None
    beginning = np.frombuffer(owner._mmap, np.uint8)  # maps begin at the file's first byte
    offset = array.__array_interface__["data"][0] - beginning.__array_interface__["data"][0]
    return str(owner.filename), array.dtype.str, offset, array.shape


def open_file_array(path: str, dtype: str, offset: int, shape: tuple[int, ...], mode: Any = "r") -> Any:
    """Map an array of a file."""
    if 0 in shape:
        return np.empty(shape, dtype)
    try:
        return FileArray(path, dtype, "r" if mode == "r" else "r+", offset, shape)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: labels or messages cannot be read here ({system_words(error)}); give scratch=, and a "
            "store, on a disk that every worker reaches by the same path"
        ) from error


def new_file_array(folder: Path, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """An array in a new file, which is removed with the array."""
    if 0 in shape:
        return np.empty(shape, dtype)
    path = folder / f"array-{uuid.uuid4().hex[:16]}"
    try:
        with path.open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, int(np.prod(shape)) * np.dtype(dtype).itemsize)
        array = FileArray(path, dtype, "r+", 0, shape)
    except OSError as error:
        with suppress(OSError):
            path.unlink()
        raise cannot_keep(folder, error) from error
    weakref.finalize(array, _remove, path)
    return array


def as_file_array(array: NDArray[Any], folder: Path) -> Any:
    """Map the file that an array is in, or a new one with a copy of it."""
    place = _place_in_file(array)
    if place is not None:
        return open_file_array(*place)
    copy = new_file_array(folder, array.shape, array.dtype)
    copy[...] = array
    return copy


def cannot_keep(folder: Path, error: OSError) -> DataError:
    """The error for a folder that does not take what a fit has to keep."""
    return DataError(
        f"{folder}: messages cannot be written ({system_words(error)}); make room there, or name another "
        "place with scratch="
    )


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
