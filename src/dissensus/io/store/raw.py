"""Numbers and ids in plain files: appended at the end, read and written anywhere, little-endian.

Written through file handles and never through memory maps, so that a full disk is an error and not a crash.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.data.vocabulary import text_of

CODES, PLACES, TEXT = "<i4", "<i8", "u1"


class NumberFile:
    """Numbers of one type, one after another; the file is new, and open for as long as ``files`` is."""

    def __init__(self, path: Path, kind: str, files: ExitStack) -> None:
        self.path = path
        self.kind = np.dtype(kind)
        self._file = files.enter_context(path.open("w+b"))
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def append(self, values: NDArray[Any]) -> None:
        """Add numbers at the end."""
        self.write(self._n, values)
        self._n += len(values)

    def write(self, start: int, values: NDArray[Any]) -> None:
        """Put numbers at a place."""
        self._file.seek(start * self.kind.itemsize)
        self._file.write(np.ascontiguousarray(values, self.kind).view(np.uint8).data)

    def read(self, rows: range) -> NDArray[Any]:
        """The numbers at some places."""
        values = np.empty(len(rows), self.kind)
        self._file.seek(rows.start * self.kind.itemsize)
        self._file.readinto(values.view(np.uint8).data)
        return values

    def close(self) -> None:
        """Put what was written into the file."""
        self._file.close()

    def remove(self) -> None:
        """Close and delete the file."""
        self._file.close()
        self.path.unlink()


class IdFile:
    """Ids, one after another: their UTF-8 text, and where each of them starts."""

    def __init__(self, folder: Path, name: str, files: ExitStack) -> None:
        self.starts = NumberFile(folder / f"{name}.starts", PLACES, files)
        self.text = NumberFile(folder / f"{name}.text", TEXT, files)
        self.starts.append(np.zeros(1))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def append(self, ids: pa.Array) -> range:
        """Add ids at the end; their places."""
        first = len(self)
        starts, text = text_of(ids)
        self.starts.append(starts[1:] - starts[:1] + np.int64(len(self.text)))
        self.text.append(text[starts[0] : starts[-1]])
        return range(first, len(self))

    def read(self, rows: range) -> pa.Array:
        """The ids at some places, as Arrow strings."""
        starts = self.starts.read(range(rows.start, rows.stop + 1))
        text = self.text.read(range(starts[0], starts[-1]))
        buffers = [None, pa.py_buffer(starts - starts[0]), pa.py_buffer(text)]
        return pa.Array.from_buffers(pa.large_string(), len(rows), buffers).cast(pa.string())

    def key(self, row: int) -> bytes:
        """One id as bytes, which sort as code points do."""
        start, stop = self.starts.read(range(row, row + 2))
        return self.text.read(range(start, stop)).tobytes()

    @property
    def mean_bytes(self) -> int:
        """Bytes of text that an id has on average, rounded up."""
        return -(-len(self.text) // max(len(self), 1))

    def remove(self) -> None:
        """Close and delete both files."""
        self.starts.remove()
        self.text.remove()
