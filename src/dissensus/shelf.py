"""Where the blocks keep what they carry from one round of messages to the next.

A round reads what the last one kept and keeps its own beside it, never in place: a block's step may run
twice, on a worker that is lost and on another, and gives the same both times. In memory that is a pair of
arrays; on disk every round has a folder of its own, which goes with the last one who holds its states.
"""

from __future__ import annotations

import shutil
import uuid
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError

Array = NDArray[np.float64]
ARRAYS = ("w", "nu", "incoming")


class Kept(Protocol):
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
class BlockState:
    """What a block keeps, in memory."""

    w: Array
    nu: Array | None
    incoming: Array | None


@dataclass(frozen=True)
class FiledState:
    """What a block keeps, in files; read whenever it is looked at."""

    stem: str  # the files are <stem>.<array>.npy

    @property
    def w(self) -> Array:
        """(items, K)"""
        found = self._read("w")
        assert found is not None
        return found

    @property
    def nu(self) -> Array | None:
        """(pairs, L)"""
        return self._read("nu")

    @property
    def incoming(self) -> Array | None:
        """(pairs, L)"""
        return self._read("incoming")

    def _read(self, name: str) -> Array | None:
        try:
            return np.asarray(np.load(f"{self.stem}.{name}.npy", allow_pickle=False))
        except FileNotFoundError:
            return None


class Place(Protocol):
    """Where one block's next state goes."""

    @property
    def dtype(self) -> Any:
        """The precision of messages."""
        ...

    def keep(self, state: BlockState) -> Kept:
        """Keep it, and say where it is."""
        ...


@dataclass(frozen=True)
class MemoryPlace:
    """Nowhere but in the caller's hands."""

    dtype: Any = np.float64

    def keep(self, state: BlockState) -> Kept:
        """The state itself."""
        return state


@dataclass(frozen=True)
class DiskPlace:
    """Files in the folder of a round."""

    stem: str
    dtype: Any = np.float64

    def keep(self, state: BlockState) -> Kept:
        """Write the arrays, each under another name until it is whole."""
        for name in ARRAYS:
            array = getattr(state, name)
            if array is not None:
                write_array(Path(f"{self.stem}.{name}.npy"), array)
        return FiledState(self.stem)


def write_array(path: Path, array: NDArray[Any]) -> None:
    """An array as a file, whole or not at all."""
    temporary = path.with_name(f".{uuid.uuid4().hex[:8]}-{path.name}")
    try:
        with temporary.open("wb") as file:
            np.lib.format.write_array(file, array, allow_pickle=False)
        temporary.replace(path)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DataError(
            f"{path.parent}: the messages of a round cannot be written ({reason}); make room there, or name "
            "another place with scratch= (--scratch)"
        ) from error
    finally:
        temporary.unlink(missing_ok=True)


@dataclass(frozen=True)
class Round:
    """Places for the states of one round; whoever holds the states holds ``keeper`` with them."""

    places: Sequence[Place]
    keeper: object = None  # files of the round are gone when nobody holds this any more


class Shelf(Protocol):
    """Gives every round of every block a place."""

    @property
    def dtype(self) -> Any:
        """The precision of messages."""
        ...

    def round(self, n_blocks: int) -> Round:
        """Places for the coming round, one a block."""
        ...


@dataclass(frozen=True)
class InMemory:
    """States stay in memory while somebody holds them."""

    dtype: Any = np.float64

    def round(self, n_blocks: int) -> Round:
        """Places for the coming round, one a block."""
        return Round([MemoryPlace(self.dtype)] * n_blocks)


class OnDisk:
    """One folder a round, below a folder that those who work on the blocks can all reach."""

    def __init__(self, folder: Path, dtype: Any = np.float64) -> None:
        self.folder = folder
        self.dtype = dtype

    def round(self, n_blocks: int) -> Round:
        """Places for the coming round, one a block."""
        folder = self.folder / f"round-{uuid.uuid4().hex[:12]}"
        folder.mkdir(parents=True)
        stems = [str(folder / f"block-{number:05d}") for number in range(n_blocks)]
        return Round([DiskPlace(stem, self.dtype) for stem in stems], _Folder(folder))


class _Folder:
    """A folder that goes with the last one who holds this."""

    def __init__(self, folder: Path) -> None:
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
