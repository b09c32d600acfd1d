"""A fit's checkpoints: its state every few iterations, so that a run that was stopped goes on where it was.

A checkpoint is a folder that takes its name when it is whole. It holds the numbers of the state and the
objective so far (io/arrays.py), and the messages of every block, which on one disk are the round's own files
under a second name, with a checksum each. Nothing in it is ever executed, and what is resumed continues with
the same bits. States are dataclasses of arrays, numbers, other such dataclasses and what blocks keep.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import shutil
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError, ModelFileError, system_words
from dissensus.execution.messages import BlockState, DiskSlot, FiledState, arrays_of, cannot_keep
from dissensus.tables.arrays import read_arrays, write_arrays
from dissensus.tables.atomic import sync

State = TypeVar("State")

STEP = re.compile(r"step-\d{6}")
STATE = "state.safetensors"
KEPT = 2  # the last one, and the one before, whose files a state may still look at


@dataclass(frozen=True)
class Checkpoint(Generic[State]):
    """A state, the objectives up to it, and why the fit stopped, if it did."""

    state: State
    trace: tuple[float, ...]
    stopped: str
    other: State | None = None  # what the next leap needs beside the state (run.py)
    leapt: bool = False  # whether the state is a leap, and ``other`` EM's own step


class Checkpoints(Generic[State]):
    """The checkpoints of one fit, in a folder of their own."""

    def __init__(self, folder: Path, kind: type[State], every: int) -> None:
        self.every = every  # iterations between two
        self._folder = folder
        self._kind = kind

    def latest(self) -> Checkpoint[State] | None:
        """The last one, or the one before where that is damaged; what a killed run left half written goes."""
        for left in self._folder.glob(".step-*"):
            shutil.rmtree(left, ignore_errors=True)
        *before, last = [None, *self._written()]
        if last is None:
            return None
        try:
            return _read(last, self._kind)
        except DataError:
            if before[-1] is None:
                raise
        found = _read(before[-1], self._kind)
        shutil.rmtree(last, ignore_errors=True)
        return found

    def write(self, reached: Checkpoint[State]) -> None:
        """Keep a state: the one to go on with or, where the fit has ``stopped``, the one that was found."""
        # The last one follows the one that was written after the same iteration.
        target = self._folder / f"step-{2 * len(reached.trace) + bool(reached.stopped):06d}"
        temporary = target.with_name(f".{target.name}")
        try:
            temporary.mkdir(parents=True)
            _write(temporary, reached)
            temporary.rename(target)
            sync(self._folder)
        except OSError as error:
            raise cannot_write(self._folder, error) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        for old in self._written()[:-KEPT]:
            shutil.rmtree(old, ignore_errors=True)

    def _written(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return sorted(path for path in self._folder.iterdir() if STEP.fullmatch(path.name))


def cannot_write(folder: Path, error: OSError) -> DataError:
    """The line for a place that does not take checkpoints."""
    reason = system_words(error)
    full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    remedy = (
        "make room there and run the same again: it goes on from the last one"
        if full
        else "name another directory with checkpoint="
    )
    return DataError(f"{folder}: a checkpoint cannot be written ({reason}); {remedy}")


# ---- states as files ----------------------------------------------------------------------------------


def _write(folder: Path, reached: Checkpoint[Any]) -> None:
    arrays, blocks = {"trace": np.array(reached.trace, np.float64)}, list[BlockState]()
    _take_apart(reached.state, "state", arrays, blocks)
    if reached.other is not None:  # of models that leap, and these have no blocks
        _take_apart(reached.other, "other", arrays, [])
    axes = {name: _axes(array) for name, array in arrays.items()}
    prints = [_put_block(block, _stem(folder, number)) for number, block in enumerate(blocks)]
    tensors = {name: array.transpose(axes[name]) for name, array in arrays.items()}
    about = {"stopped": reached.stopped, "leapt": reached.leapt, "axes": axes, "blocks": prints}
    write_arrays(folder / STATE, about, tensors)
    for file in folder.iterdir():
        sync(file)


def _read(folder: Path, kind: type[State]) -> Checkpoint[State]:
    try:
        about, tensors = read_arrays(folder / STATE)
        blocks = tuple(_block(_stem(folder, n), prints) for n, prints in enumerate(about["blocks"]))
    except (OSError, ValueError, ModelFileError):
        raise DataError(
            f"{folder}: the checkpoint is damaged; remove {folder.parent} and run again"
        ) from None
    arrays = {name: _as_it_lay(tensor, about["axes"][name]) for name, tensor in tensors.items()}
    trace = tuple(arrays.pop("trace").tolist())
    state, other = _put_together(kind, "state", arrays, blocks), None
    if any(name.startswith("other.") for name in arrays):
        other = _put_together(kind, "other", arrays, ())
    return Checkpoint(state, trace, about["stopped"], other, about.get("leapt", False))


def _axes(array: NDArray[Any]) -> list[int]:
    """The axes from the widest step in memory to the narrowest: the last bits of a sum hang on them."""
    return [int(axis) for axis in np.argsort([-step for step in array.strides], kind="stable")]


def _as_it_lay(tensor: NDArray[Any], axes: Sequence[int]) -> NDArray[Any]:
    return np.array(tensor).transpose([axes.index(axis) for axis in range(len(axes))])


# ---- what blocks keep ---------------------------------------------------------------------------------


def with_blocks_in(folder: Path, state: State) -> State:
    """The same state, what its blocks keep moved to files in a folder: so little of it is sent about."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_keep(folder, error) from error
    filed: State = _with_filed_blocks(folder, state)
    return filed


def _with_filed_blocks(folder: Path, value: Any) -> Any:
    changed: dict[str, Any] = {}
    for part in dataclasses.fields(value):
        field = getattr(value, part.name)
        if part.name == "states":
            slots = (DiskSlot(_stem(folder, number)) for number in range(len(field)))
            changed[part.name] = tuple(slot.keep(block) for slot, block in zip(slots, field, strict=True))
        elif dataclasses.is_dataclass(field):
            changed[part.name] = _with_filed_blocks(folder, field)
    return dataclasses.replace(value, **changed)


def _stem(folder: Path, number: int) -> str:
    return str(folder / f"block-{number:05d}")


Print = list[int]  # how many bytes a file has, and their checksum


def _put_block(block: BlockState, stem: str) -> dict[str, Print]:
    """A print of each array; files get a second name where the disk allows it, arrays are written."""
    if isinstance(block, FiledState):
        target = FiledState(stem, block.arrays)
        for name in block.arrays:
            _copy(block.file(name), target.file(name))
    else:
        arrays = arrays_of(block)
        target = FiledState(stem, tuple(arrays))
        for name, array in arrays.items():
            with target.file(name).open("wb") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)
    return {name: _print(target.file(name)) for name in target.arrays}


def _print(file: Path) -> Print:
    from dissensus.large.store import checksum

    return [file.stat().st_size, checksum(file)]


def _copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copyfile(source, target)


def _block(stem: str, prints: Mapping[str, Print]) -> FiledState:
    """A block's files, all there and none changed."""
    found = FiledState(stem, tuple(prints))
    if any(_print(found.file(name)) != expected for name, expected in prints.items()):
        raise ValueError(stem)
    return found


# ---- states as arrays ---------------------------------------------------------------------------------


def _take_apart(value: Any, name: str, arrays: dict[str, NDArray[Any]], blocks: list[BlockState]) -> None:
    for part in dataclasses.fields(value):
        field, own = getattr(value, part.name), f"{name}.{part.name}"
        if part.name == "files":
            continue
        if part.name == "states":
            blocks.extend(field)
        elif dataclasses.is_dataclass(field):
            _take_apart(field, own, arrays, blocks)
        else:
            arrays[own] = np.asarray(field, dtype=getattr(field, "dtype", np.float64))


def _put_together(
    kind: Any, name: str, arrays: dict[str, NDArray[Any]], blocks: tuple[BlockState, ...]
) -> Any:
    hints = typing.get_type_hints(kind)
    given: dict[str, Any] = {}
    for part in dataclasses.fields(kind):
        hint, own = hints[part.name], f"{name}.{part.name}"
        if part.name == "files":
            continue
        if part.name == "states":
            given[part.name] = blocks
        elif dataclasses.is_dataclass(hint):
            given[part.name] = _put_together(hint, own, arrays, blocks)
        elif hint is float:
            given[part.name] = float(arrays[own])
        elif typing.get_origin(hint) is tuple:
            given[part.name] = tuple(arrays[own].tolist())
        else:
            given[part.name] = arrays[own]
    return kind(**given)
