"""Arrays into a safetensors file as they lie in memory, without a second copy of them.

The file begins with the length of a JSON header, which says where each array's bytes are; widest numbers come
first, so that every array is aligned. The bytes are those that the safetensors package writes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

# In the order in which the package places them.
KINDS = {
    "uint64": "U64",
    "int64": "I64",
    "float64": "F64",
    "float32": "F32",
    "uint32": "U32",
    "int32": "I32",
    "float16": "F16",
    "uint16": "U16",
    "int16": "I16",
    "int8": "I8",
    "uint8": "U8",
    "bool": "BOOL",
}
ALIGNED = 8


def write_tensors(path: Path, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write arrays, in C order, and texts about them."""
    order = {kind: place for place, kind in enumerate(KINDS)}
    names = sorted(arrays, key=lambda name: (order[arrays[name].dtype.name], name))
    entries: dict[str, Any] = {"__metadata__": dict(metadata)}
    at = 0
    for name in names:
        array = arrays[name]
        places = [at, at + array.nbytes]
        entries[name] = {
            "dtype": KINDS[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": places,
        }
        at = places[1]
    header = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode()
    header += b" " * (-len(header) % ALIGNED)
    with path.open("wb") as file:
        file.write(len(header).to_bytes(8, "little"))
        file.write(header)
        for name in names:
            file.write(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8).data)
