"""A fit's checkpoints: its state every few iterations, so that a run that was stopped resumes where it was.

A checkpoint is a folder that takes its name when it is whole. It holds the numbers of the state and the
objectives so far (tables/arrays.py); arrays that are files already (messages that do not fit into memory)
get a second name there, with a checksum. Nothing in it is ever executed, and what is resumed continues with
the same bits. States are dataclasses of arrays, numbers and other such dataclasses.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import shutil
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.engine import Checkpoint, State
from dissensus.errors import DataError, ModelFileError, setting, system_words
from dissensus.large.file_arrays import file_checksum, place_in_file
from dissensus.tables.arrays import read_arrays, write_arrays
from dissensus.tables.atomic import sync

STEP = re.compile(r"step-\d{6}")
STATE_FILE = "state.safetensors"
STEPS_KEPT = 2  # the last checkpoint, and the one before it in case the last is damaged


class Checkpoints:
    """The checkpoints of one fit. ``folder`` makes and locks its folder, when first asked for."""

    def __init__(self, folder: Callable[[], Path], every: int) -> None:
        self.every = every  # iterations between two checkpoints
        self._folder = folder

    def latest(self, name: str, kind: type[State]) -> Checkpoint[State] | None:
        """The last checkpoint of a loop, or the one before it where that is damaged."""
        *before, last = [None, *_steps(self._folder() / name)]
        if last is None:
            return None
        try:
            return _read(last, kind)
        except DataError:
            if before[-1] is None:
                raise
        reached = _read(before[-1], kind)
        shutil.rmtree(last, ignore_errors=True)
        return reached

    def write(self, name: str, reached: Checkpoint[Any]) -> None:
        """Keep a state where it is due: after every few iterations, and when the loop has stopped."""
        if reached.done % self.every and not reached.stopped:
            return
        folder, step = self._folder() / name, f"step-{reached.done:06d}"
        target, temporary = folder / step, folder / f".{step}"
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            _write(temporary, reached)
            shutil.rmtree(target, ignore_errors=True)
            temporary.rename(target)
            sync(folder)
        except OSError as error:
            raise cannot_write(folder, error) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        for old in _steps(folder)[:-STEPS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)


def _steps(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*") if STEP.fullmatch(path.name))


def cannot_write(folder: Path, error: OSError) -> DataError:
    """The error for a folder that does not take checkpoints."""
    remedy = f"name another directory with {setting('checkpoint')}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "make room there and run the same again: it resumes from the last one"
    return DataError(f"{folder}: a checkpoint cannot be written ({system_words(error)}); {remedy}")


# ---- states as files ----------------------------------------------------------------------------------


def _write(folder: Path, reached: Checkpoint[Any]) -> None:
    arrays: dict[str, Any] = {"trace": np.array(reached.trace, np.float64)}
    _take_apart(reached.state, "state", arrays)
    files: dict[str, list[Any]] = {}
    for name, place in [(name, place_in_file(array)) for name, array in arrays.items()]:
        if place is None:
            continue
        file = folder / f"array-{len(files)}"
        try:
            os.link(place.path, file)
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copyfile(place.path, file)
        files[name] = [file.name, place.dtype, place.offset, place.shape, file_checksum(file)]
        del arrays[name]
    # the order of axes in memory, from the widest step to the narrowest: the last bits of a sum hang on it
    axes = {
        name: [int(axis) for axis in np.argsort([-step for step in array.strides], kind="stable")]
        for name, array in arrays.items()
    }
    facts = {"stopped": reached.stopped, "done": reached.done, "axes": axes, "files": files}
    write_arrays(folder / STATE_FILE, facts, {name: a.transpose(axes[name]) for name, a in arrays.items()})
    for written in folder.iterdir():
        sync(written)


def _read(folder: Path, kind: type[State]) -> Checkpoint[State]:
    try:
        facts, tensors = read_arrays(folder / STATE_FILE)
        arrays: dict[str, Any] = {}
        for name, tensor in tensors.items():
            axes = facts["axes"][name]
            arrays[name] = np.array(tensor).transpose([axes.index(axis) for axis in range(len(axes))])
        for name, (file, dtype, offset, shape, checksum) in facts["files"].items():
            if file_checksum(folder / file) != checksum:
                raise ValueError(file)
            arrays[name] = np.memmap(folder / file, dtype, "r", offset, tuple(shape))
    except (OSError, ValueError, ModelFileError):
        raise DataError(
            f"{folder}: the checkpoint is damaged; remove {folder.parent} and run again"
        ) from None
    trace = tuple(arrays.pop("trace").tolist())
    return Checkpoint(_put_together(kind, "state", arrays), facts["done"], trace, facts["stopped"])


def _take_apart(value: Any, name: str, arrays: dict[str, Any]) -> None:
    """Collect the arrays and numbers of a state under dotted names."""
    for field in dataclasses.fields(value):
        part, own = getattr(value, field.name), f"{name}.{field.name}"
        if dataclasses.is_dataclass(part):
            _take_apart(part, own, arrays)
        elif isinstance(part, np.ndarray):
            arrays[own] = part
        else:
            arrays[own] = np.asarray(part, dtype=getattr(part, "dtype", np.float64))


def _put_together(kind: Any, name: str, arrays: dict[str, Any]) -> Any:
    """Build a state of a kind from the arrays that :func:`_take_apart` collected."""
    hints, given = typing.get_type_hints(kind), dict[str, Any]()
    for field in dataclasses.fields(kind):
        hint, own = hints[field.name], f"{name}.{field.name}"
        if dataclasses.is_dataclass(hint):
            given[field.name] = _put_together(hint, own, arrays)
        elif hint in (float, int, bool):
            given[field.name] = hint(arrays[own])
        elif typing.get_origin(hint) is tuple:
            given[field.name] = tuple(arrays[own].tolist())
        else:
            given[field.name] = arrays[own]
    return kind(**given)
