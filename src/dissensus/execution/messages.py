"""Where the blocks keep what they carry from one round of messages to the next.

A round reads what the last one kept and keeps its own beside it, never in place: a block's step may run
twice, on a worker that is lost and on another, and gives the same both times. In memory that is a pair of
arrays; on disk every round has a folder of its own, which goes with the last one who holds its states.
"""

from __future__ import annotations

import shutil
import threading
import uuid
import weakref
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError, system_words

Array = NDArray[np.float64]

# NumPy parses a file's header as Python, and Python 3.11 fails now and then where two threads parse at once.
_opening = threading.Lock()


class BlockState(Protocol):
    """What a block keeps, in memory or on disk."""

    @property
    def w(self) -> Array:
        """(items, K): beliefs of its items' clusters."""
        ...

    @property
    def nu(self) -> Array | None:
        """(pairs, L): messages to annotators; None before the first round."""
        ...

    @property
    def incoming(self) -> Array | None:
        """(pairs, L): z_n / ν_e of the last round, kept where pairwise beliefs need it."""
        ...


@dataclass(frozen=True)
class MemoryState:
    """What a block keeps, in memory."""

    w: Array
    nu: Array | None
    incoming: Array | None


@dataclass(frozen=True)
class FiledState:
    """What a block keeps, in files; read whenever it is looked at."""

    stem: str  # the files are <stem>.<array>.npy
    arrays: tuple[str, ...]  # which there are: a file that is gone is not one that never was

    @property
    def w(self) -> Array:
        """(items, K)"""
        return read_array(self.file("w"))

    @property
    def nu(self) -> Array | None:
        """(pairs, L)"""
        return read_array(self.file("nu")) if "nu" in self.arrays else None

    @property
    def incoming(self) -> Array | None:
        """(pairs, L)"""
        return read_array(self.file("incoming")) if "incoming" in self.arrays else None

    def file(self, array: str) -> Path:
        """Where an array is."""
        return Path(f"{self.stem}.{array}.npy")


class Slot(Protocol):
    """Where one block's next state goes."""

    @property
    def dtype(self) -> Any:
        """The precision of messages."""
        ...

    def keep(self, state: MemoryState) -> BlockState:
        """Keep it, and say where it is."""
        ...


@dataclass(frozen=True)
class MemorySlot:
    """Nowhere but in the caller's hands."""

    dtype: Any = np.float64

    def keep(self, state: MemoryState) -> BlockState:
        """The state itself."""
        return state


@dataclass(frozen=True)
class DiskSlot:
    """Files in the folder of a round."""

    stem: str
    dtype: Any = np.float64

    def keep(self, state: BlockState) -> BlockState:
        """Write the arrays, each under another name until it is whole."""
        arrays = arrays_of(state)
        kept = FiledState(self.stem, tuple(arrays))
        for name, array in arrays.items():
            write_array(kept.file(name), array)
        return kept


def arrays_of(state: BlockState) -> dict[str, Array]:
    """What a state has, by name."""
    every = {"w": state.w, "nu": state.nu, "incoming": state.incoming}
    return {name: array for name, array in every.items() if array is not None}


def read_array(path: Path) -> Array:
    """An array from its file."""
    try:
        # Mapped, not read: a block looks at its messages once, and the system has just written them.
        with _opening:
            mapped = np.lib.format.open_memmap(path, mode="r")
        return np.asarray(mapped.view(np.ndarray))
    except (OSError, ValueError, EOFError) as error:
        raise DataError(
            f"{path}: the messages of a round cannot be read ({system_words(error)}); run again, with "
            "scratch= on a disk that everyone who works on them reaches"
        ) from error


def write_array(path: Path, array: NDArray[Any]) -> None:
    """An array as a file, whole or not at all."""
    temporary = path.with_name(f".{uuid.uuid4().hex[:8]}-{path.name}")
    try:
        with temporary.open("wb") as file:
            np.lib.format.write_array(file, array, allow_pickle=False)
        temporary.replace(path)
    except OSError as error:
        raise cannot_keep(path.parent, error) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def cannot_keep(folder: Path, error: OSError) -> DataError:
    """The line for a place that does not take what a fit has to keep."""
    return DataError(
        f"{folder}: the messages of a round cannot be written ({system_words(error)}); make room there, or "
        "name another place with scratch="
    )


@dataclass(frozen=True)
class Round:
    """Slots for the states of one round; whoever holds the states holds ``files`` with them."""

    slots: Sequence[Slot]
    files: object = None  # the files of the round are removed when nobody holds this any more


class MessageStorage(Protocol):
    """Gives every round of every block a slot."""

    @property
    def dtype(self) -> Any:
        """The precision of messages."""
        ...

    def round(self, n_blocks: int) -> Round:
        """Slots for the coming round, one a block."""
        ...


@dataclass(frozen=True)
class InMemory:
    """States stay in memory while somebody holds them."""

    dtype: Any = np.float64

    def round(self, n_blocks: int) -> Round:
        """Slots for the coming round, one a block."""
        return Round([MemorySlot(self.dtype)] * n_blocks)


class OnDisk:
    """One folder a round, below a folder that those who work on the blocks can all reach.

    The states of a share of the blocks, the first ones, stay in memory all the same.
    """

    def __init__(self, folder: Path, dtype: Any = np.float64, in_memory: float = 0.0) -> None:
        self.folder = folder
        self.dtype = dtype
        self.in_memory = in_memory

    def round(self, n_blocks: int) -> Round:
        """Slots for the coming round, one a block."""
        folder = self.folder / f"round-{uuid.uuid4().hex[:12]}"
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise cannot_keep(folder.parent, error) from error
        here = int(self.in_memory * n_blocks)
        stems = [str(folder / f"block-{number:05d}") for number in range(here, n_blocks)]
        slots: list[Slot] = [MemorySlot(self.dtype)] * here
        return Round(slots + [DiskSlot(stem, self.dtype) for stem in stems], _Folder(folder))


class _Folder:
    """A folder that goes with the last one who holds this."""

    def __init__(self, folder: Path) -> None:
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
