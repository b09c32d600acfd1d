"""How much of anything may be in memory at once."""

from __future__ import annotations

from dataclasses import dataclass

from dissensus.errors import DataError, bad_parameter
from dissensus.params import PROCESS_BYTES, n_bytes, size_words

# Bytes of memory that one row or id of a chunk takes at most while it is coded and sorted, its text apart.
ROW = 200
# Copies of a chunk's text at once: as read, joined, in the dictionary, sorted.
TEXT_COPIES = 5
# A chunk should hold so many rows at least, or the packing would never end.
FEWEST_ROWS = 200_000


@dataclass(frozen=True)
class Budget:
    """A limit on memory, and what it means for a chunk."""

    memory: int  # bytes, of the whole process
    rows: int  # label rows, or ids, in memory at once
    text: int  # bytes of ids in memory at once

    @classmethod
    def of(cls, memory: str | int) -> Budget:
        """The budget for ``"2GB"``, ``"512MB"`` or a number of bytes."""
        whole = n_bytes(memory, "pack")
        least = PROCESS_BYTES + 2 * ROW * FEWEST_ROWS
        if whole < least:
            raise bad_parameter("pack", "memory", f"at least {size_words(least)}", memory)
        free = whole - PROCESS_BYTES
        return cls(whole, free // (2 * ROW), free // (2 * TEXT_COPIES))

    def check(self, needed: int, what: str, remedy: str) -> None:
        """Refuse what cannot be done in less than ``needed`` bytes beside the base."""
        if PROCESS_BYTES + needed > self.memory:
            raise DataError(
                f"{what} needs {size_words(PROCESS_BYTES + needed)} of memory, and {size_words(self.memory)} "
                f"are allowed; give memory=, or {remedy}"
            )
