"""Checkpoints of a fit: its state every few iterations, from which a stopped run resumes.

A checkpoint is a folder that is renamed to its final name when complete. It contains the arrays of the state
and the objectives so far (tables/arrays.py); arrays that are already files (messages that exceed memory) are
hard-linked, with a checksum. Nothing in it is executed, and a resumed fit gives identical bits. States are
dataclasses of arrays, numbers and other such dataclasses.
"""

from __future__ import annotations

import dataclasses
import errno
import os
import re
import shutil
import typing
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.engine import Checkpoint, State
from dissensus.errors import DataError, ModelFileError, setting, system_words
from dissensus.large.file_arrays import LOCK_FILE, file_checksum, file_location
from dissensus.tables.arrays import read_arrays, write_arrays
from dissensus.tables.atomic import sync, take_lock

STEP_NAME = re.compile(r"step-\d{6}")
STATE_FILE = "state.safetensors"
MAX_LOCK_ATTEMPTS = 20  # attempts while other runs take and release the lock
STEPS_KEPT = 2  # the last checkpoint, and the previous one in case the last is damaged


class Checkpoints:
    """Checkpoints of one fit; ``folder`` creates and locks the folder on first call."""

    def __init__(self, folder: Callable[[], Path], every: int) -> None:
        self.every = every  # iterations between two checkpoints
        self._folder = folder

    def latest(self, name: str, kind: type[State]) -> Checkpoint[State] | None:
        """Read the last checkpoint of a loop, or the previous one if the last is damaged."""
        *earlier, last = [None, *_steps(self._folder() / name)]
        if last is None:
            return None
        try:
            return _read(last, kind)
        except DataError:
            if earlier[-1] is None:
                raise
        checkpoint = _read(earlier[-1], kind)
        shutil.rmtree(last, ignore_errors=True)
        return checkpoint

    def write(self, name: str, checkpoint: Checkpoint[Any]) -> None:
        """Write a checkpoint if it is due: every few iterations, and at the end of the loop."""
        if checkpoint.done % self.every and not checkpoint.stopped:
            return
        folder, step = self._folder() / name, f"step-{checkpoint.done:06d}"
        target, temporary = folder / step, folder / f".{step}"
        try:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            _write(temporary, checkpoint)
            shutil.rmtree(target, ignore_errors=True)
            temporary.rename(target)
            sync(folder)
        except OSError as error:
            raise checkpoint_error(folder, error) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        for old in _steps(folder)[:-STEPS_KEPT]:
            shutil.rmtree(old, ignore_errors=True)


def _steps(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("step-*") if STEP_NAME.fullmatch(path.name))


def checkpoint_error(folder: Path, error: OSError) -> DataError:
    """Return the error for a checkpoint folder that cannot be written."""
    remedy = f"choose another directory with {setting('checkpoint')}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "free some space and run the same command again: it resumes from the last checkpoint"
    return DataError(f"{folder}: a checkpoint cannot be written ({system_words(error)}); {remedy}")


@contextmanager
def checkpoint_folder(folder: Path) -> Iterator[Path]:
    """Create and lock a folder of checkpoints; it is removed afterwards if empty."""
    try:
        handle = _lock(folder)
    except OSError as error:
        raise checkpoint_error(folder, error) from error
    try:
        yield folder
    finally:
        with suppress(OSError):
            (folder / LOCK_FILE).unlink()
            folder.rmdir()
        os.close(handle)


def _lock(folder: Path) -> int:
    """Lock a folder and return the handle; a lock whose file was removed meanwhile is invalid."""
    for _ in range(MAX_LOCK_ATTEMPTS):
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            handle = os.open(folder / LOCK_FILE, os.O_CREAT | os.O_RDWR)
            free = take_lock(handle) is not False
            if free and os.fstat(handle).st_nlink:
                return handle
            os.close(handle)
            if not free:
                break
    problem = f"another run is using this checkpoint ({folder})"
    raise DataError(f"{problem}; wait for it, or choose another directory")


# ---- states as files ----------------------------------------------------------------------------------


def _write(folder: Path, checkpoint: Checkpoint[Any]) -> None:
    arrays: dict[str, Any] = {"trace": np.array(checkpoint.trace, np.float64)}
    _flatten(checkpoint.state, "state", arrays)
    files: dict[str, list[Any]] = {}
    for name, location in [(name, file_location(array)) for name, array in arrays.items()]:
        if location is None:
            continue
        file = folder / f"array-{len(files)}"
        try:
            os.link(location.path, file)
        except OSError:  # another file system, or one without hard links
            shutil.copyfile(location.path, file)
        files[name] = [file.name, location.dtype, location.offset, location.shape, file_checksum(file)]
        del arrays[name]
    # order of the axes in memory, largest stride first: the last bits of a sum depend on it
    axes = {name: np.argsort(np.negative(a.strides), kind="stable").tolist() for name, a in arrays.items()}
    facts = {"stopped": checkpoint.stopped, "done": checkpoint.done, "axes": axes, "files": files}
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
        remedy = f"remove {folder.parent} and run again"
        raise DataError(f"{folder}: the checkpoint is damaged; {remedy}") from None
    trace = tuple(arrays.pop("trace").tolist())
    return Checkpoint(_rebuild(kind, "state", arrays), facts["done"], trace, facts["stopped"])


def _flatten(value: Any, name: str, arrays: dict[str, Any]) -> None:
    """Collect the arrays and numbers of a state under dotted names."""
    for field in dataclasses.fields(value):
        part, key = getattr(value, field.name), f"{name}.{field.name}"
        if dataclasses.is_dataclass(part):
            _flatten(part, key, arrays)
        else:
            arrays[key] = np.asanyarray(part, dtype=getattr(part, "dtype", np.float64))


def _rebuild(kind: Any, name: str, arrays: dict[str, Any]) -> Any:
    """Build a state of a class from the arrays collected by :func:`_flatten`."""
    hints, values = typing.get_type_hints(kind), dict[str, Any]()
    for field in dataclasses.fields(kind):
        hint, key = hints[field.name], f"{name}.{field.name}"
        if dataclasses.is_dataclass(hint):
            values[field.name] = _rebuild(hint, key, arrays)
        elif hint in (float, int, bool):
            values[field.name] = hint(arrays[key])
        elif typing.get_origin(hint) is tuple:
            values[field.name] = tuple(arrays[key].tolist())
        else:
            values[field.name] = arrays[key]
    return kind(**values)
