"""Compiled loops: C functions of this directory, called with NumPy arrays.

A loop is declared once, with the type and the axes of each argument, in the order of the C function's; sizes
of the axes follow the arguments there::

    item_clusters = Loop("hpgm_item_clusters", "M K", ends="int64 M", psi="float64 K", lam="float")
    item_clusters(ends=ends, psi=psi, lam=0.1)

Type, memory layout and sizes of all arguments are checked before every call, so that a wrong call is an error
and not a crash. The loops neither allocate memory nor draw random numbers, and run without the interpreter's
lock. The library is compiled when the package is built (``hatch_build.py``).
"""

from __future__ import annotations

import ctypes
import zlib
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.errors import DissensusError

DIRECTORY = Path(__file__).parent
LIBRARY = DIRECTORY / "loops.so"


def source_checksum() -> int:
    """Return the checksum of the C files, which the compiled library contains."""
    checksum = 0
    for path in sorted(DIRECTORY.glob("*.c")):
        checksum = zlib.crc32(path.read_bytes().replace(b"\r\n", b"\n"), checksum)
    return checksum


@cache
def library() -> ctypes.CDLL:
    """Load the library; raise an error if it is missing, or was compiled from other sources."""
    remedy = "install dissensus again (pip install -e . in a clone)"
    try:
        loaded = ctypes.CDLL(str(LIBRARY))
        compiled = ctypes.c_uint32.in_dll(loaded, "source_checksum").value
    except (OSError, ValueError) as error:
        raise DissensusError(f"{LIBRARY} cannot be loaded ({error}); {remedy}") from None
    if compiled != source_checksum():
        raise DissensusError(f"{LIBRARY} was compiled from other sources than those beside it; {remedy}")
    return loaded


class Loop:
    """Function of the compiled library."""

    def __init__(self, name: str, sizes: str, /, **arguments: str) -> None:
        self.name, self.sizes = name, sizes.split()
        self.floats = [argument for argument, words in arguments.items() if words == "float"]
        self.arrays = {
            argument: (np.dtype(words.split()[0]), tuple(words.split()[1:]))
            for argument, words in arguments.items()
            if words != "float"
        }

    @cached_property
    def function(self) -> Any:
        """C function: pointers to the arrays, then the floats, then the sizes."""
        function = getattr(library(), self.name)
        types = [ctypes.c_void_p] * len(self.arrays) + [ctypes.c_double] * len(self.floats)
        function.argtypes, function.restype = types + [ctypes.c_int64] * len(self.sizes), None
        return function

    def __call__(self, /, **given: Any) -> None:
        """Call the function; arrays that it writes are changed in place."""
        sizes: dict[str, int] = {}
        pointers = []
        for argument, (dtype, axes) in self.arrays.items():
            value = given[argument]
            shape = value.shape
            fits = len(shape) == len(axes) and value.dtype == dtype and value.flags.c_contiguous
            for axis, size in zip(axes, shape, strict=False):
                fits = fits and sizes.setdefault(axis, size) == size
            if not fits:
                raise TypeError(
                    f"{self.name}: {argument} must be a contiguous array of {dtype} with axes {axes}, "
                    f"where {sizes}; got {value.dtype} of shape {shape}"
                )
            pointers.append(value.__array_interface__["data"][0])
        floats = [given[name] for name in self.floats]
        self.function(*pointers, *floats, *[sizes[axis] for axis in self.sizes])
