"""How much of anything may be in memory at once."""

from __future__ import annotations

import re
from dataclasses import dataclass

from dissensus.errors import DataError, bad_parameter

# What a process has before the first row: interpreter, NumPy, Arrow and their buffers.
BASE = 250_000_000
# Bytes of memory that one row or id of a chunk takes at most while it is coded and sorted, its text apart.
ROW = 200
# Copies of a chunk's text at once: as read, joined, in the dictionary, sorted.
TEXT_COPIES = 5
# A chunk should hold so many rows at least, or the packing would never end.
FEWEST_ROWS = 200_000

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class Budget:
    """A limit on memory, and what it means for a chunk."""

    memory: int  # bytes, of the whole process
    rows: int  # label rows, or ids, in memory at once
    text: int  # bytes of ids in memory at once

    @classmethod
    def of(cls, memory: str | int) -> Budget:
        """The budget for ``"2GB"``, ``"512MB"`` or a number of bytes."""
        whole = _parsed(memory)
        least = BASE + 2 * ROW * FEWEST_ROWS
        if whole < least:
            raise bad_parameter("pack", "memory", f"at least {words(least)}", memory)
        free = whole - BASE
        return cls(whole, free // (2 * ROW), free // (2 * TEXT_COPIES))

    def check(self, needed: int, what: str, remedy: str) -> None:
        """Refuse what cannot be done in less than ``needed`` bytes beside the base."""
        if BASE + needed > self.memory:
            raise DataError(
                f"{what} needs {words(BASE + needed)} of memory, and {words(self.memory)} are allowed; "
                f"give memory= (--memory), or {remedy}"
            )


def words(n_bytes: int) -> str:
    """``1.5GB``, as it may be given back to ``memory=``; rounded up."""
    unit = next((unit for unit in ("TB", "GB", "MB") if n_bytes >= _UNITS[unit]), "KB")
    return f"{-(-n_bytes * 10 // _UNITS[unit]) / 10:g}{unit}"


def _parsed(memory: str | int) -> int:
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?B?)\s*", str(memory), re.IGNORECASE)
    if found is None:
        raise bad_parameter("pack", "memory", "a size such as '2GB', or a number of bytes", memory)
    unit = found[2].upper().removesuffix("B")
    return int(float(found[1]) * _UNITS[f"{unit}B" if unit else ""])
