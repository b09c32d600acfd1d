"""Arrow to NumPy and back, without pandas.

Arrow's own conversions import pandas where it is installed, which takes longer than reading most files.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def numbers(array: pa.Array) -> NDArray[Any]:
    """Numbers without nulls, as they lie in memory; not to be written to."""
    return np.from_dlpack(array)


def marks(array: pa.Array) -> NDArray[np.bool_]:
    """Booleans without nulls, unpacked from their bits."""
    bits = np.frombuffer(array.buffers()[1], dtype=np.uint8) if len(array) else np.zeros(0, np.uint8)
    unpacked = np.unpackbits(bits, count=array.offset + len(array), bitorder="little")
    return unpacked[array.offset :].astype(bool)


def places(rows: NDArray[Any]) -> pa.Array:
    """Row numbers for Arrow's ``take``."""
    whole = np.ascontiguousarray(rows, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(whole), [None, pa.py_buffer(whole)])


def texts(names: Sequence[str]) -> pa.Array:
    """Strings as an Arrow array."""
    encoded = [name.encode() for name in names]
    starts = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def is_text(kind: pa.DataType) -> bool:
    """Strings, with offsets of either width."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def as_values(array: pa.Array) -> NDArray[Any]:
    """Ids as NumPy values: objects for strings, the numbers' own type otherwise."""
    if is_text(array.type):
        return np.array(array.to_pylist(), dtype=object)
    if array.null_count:
        unknown: NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return unknown
    return marks(array) if pa.types.is_boolean(array.type) else numbers(array)
