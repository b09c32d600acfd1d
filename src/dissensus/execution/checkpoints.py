"""A fit's book: its state every few iterations, so that a run that was stopped goes on where it was.

A checkpoint is a folder that takes its name when it is whole. It holds the numbers of the state and the
objective so far (a safetensors file behind its checksum), and the messages of every block, which on one disk
are the round's own files under a second name, with a checksum each. Nothing in it is ever executed, and what
is resumed continues with the same bits. States are dataclasses of arrays, numbers, other such dataclasses and
what blocks keep.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import shutil
import time
import typing
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError, system_words
from dissensus.execution.messages import FiledState, Kept, arrays_of
from dissensus.execution.progress import Progress, in_words
from dissensus.io.atomic import sync

State = TypeVar("State")

STEP = re.compile(r"step-\d{6}")
STATE = "state"  # a checksum, a line break, a safetensors file
SEAL_BYTES = 9
KEPT = 2  # the last one, and the one before, whose files a state may still look at


@dataclass(frozen=True)
class Page(Generic[State]):
    """What a book holds: a state, the objectives up to it, and why the fit stopped, if it did."""

    state: State
    trace: tuple[float, ...]
    stopped: str


class Book(Generic[State]):
    """Nothing is kept; progress is told."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._began: tuple[float, int] | None = None

    def latest(self) -> Page[State] | None:
        """The last page of an earlier run, if there is one."""
        return None

    def note(self, state: State, trace: Sequence[float], max_iter: int, n_labels: int) -> None:
        """After every iteration: the state to go on with."""
        self._tell(len(trace), max_iter, n_labels)

    def close(self, state: State, trace: Sequence[float], stopped: str) -> None:
        """At the end: the state that was found."""

    def _tell(self, done: int, max_iter: int, n_labels: int) -> None:
        if self._progress is None:
            return
        now = time.monotonic()
        if self._began is None:
            self._began = now, done
        since, first = self._began
        words = f"iteration {done} of at most {max_iter}"
        if done > first:
            seconds = (now - since) / (done - first)
            left = in_words(seconds * (max_iter - done))
            words += f", {n_labels / seconds:,.0f} labels a second, at most {left} left"
        self._progress(words, done / max_iter)


class FiledBook(Book[State]):
    """A page every few iterations, in a folder."""

    def __init__(self, folder: Path, kind: type[State], every: int, progress: Progress | None = None) -> None:
        super().__init__(progress)
        self._folder = folder
        self._kind = kind
        self._every = every

    def latest(self) -> Page[State] | None:
        """The last page; what a killed run left half written is removed."""
        for left in self._folder.glob(".step-*"):
            shutil.rmtree(left, ignore_errors=True)
        pages = self._pages()
        return None if not pages else _read(pages[-1], self._kind)

    def note(self, state: State, trace: Sequence[float], max_iter: int, n_labels: int) -> None:
        """A page, where it is time for one; after the last iteration nobody goes on with the state."""
        if len(trace) % self._every == 0 and len(trace) < max_iter:
            self._write(state, trace, "")
        super().note(state, trace, max_iter, n_labels)

    def close(self, state: State, trace: Sequence[float], stopped: str) -> None:
        """The last page."""
        self._write(state, trace, stopped)

    def _write(self, state: State, trace: Sequence[float], stopped: str) -> None:
        # The last page follows the one that was noted after the same iteration.
        target = self._folder / f"step-{2 * len(trace) + bool(stopped):06d}"
        temporary = target.with_name(f".{target.name}")
        try:
            temporary.mkdir(parents=True)
            _write(temporary, state, trace, stopped)
            temporary.rename(target)
            sync(self._folder)
        except OSError as error:
            raise cannot_write(self._folder, error) from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        for page in self._pages()[:-KEPT]:
            shutil.rmtree(page, ignore_errors=True)

    def _pages(self) -> list[Path]:
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
        else "name another directory with checkpoint= (--checkpoint)"
    )
    return DataError(f"{folder}: a checkpoint cannot be written ({reason}); {remedy}")


# ---- states as files ----------------------------------------------------------------------------------


def _write(folder: Path, state: Any, trace: Sequence[float], stopped: str) -> None:
    from safetensors.numpy import save

    arrays, blocks = {"trace": np.array(trace, np.float64)}, list[Kept]()
    _take_apart(state, "state", arrays, blocks)
    axes = {name: _axes(array) for name, array in arrays.items()}
    content = {
        "stopped": stopped,
        "axes": axes,
        "blocks": [_put_block(block, _stem(folder, number)) for number, block in enumerate(blocks)],
    }
    tensors = {name: np.array(array.transpose(axes[name]), order="C") for name, array in arrays.items()}
    tensors["content"] = np.frombuffer(json.dumps(content).encode(), np.uint8)
    numbers = save(tensors)
    (folder / STATE).write_bytes(_seal(numbers) + numbers)
    for file in folder.iterdir():
        sync(file)


def _read(folder: Path, kind: type[State]) -> Page[State]:
    from safetensors.numpy import load

    try:
        sealed = (folder / STATE).read_bytes()
        numbers = sealed[SEAL_BYTES:]
        if sealed[:SEAL_BYTES] != _seal(numbers):
            raise ValueError(STATE)
        tensors = load(numbers)
        content = json.loads(tensors.pop("content").tobytes())
        blocks = tuple(_block(_stem(folder, n), prints) for n, prints in enumerate(content["blocks"]))
    except (OSError, ValueError):
        raise DataError(
            f"{folder}: the checkpoint is damaged; remove {folder.parent} and run again"
        ) from None
    arrays = {name: _as_it_lay(tensor, content["axes"][name]) for name, tensor in tensors.items()}
    trace = tuple(arrays.pop("trace").tolist())
    return Page(_put_together(kind, "state", arrays, blocks), trace, content["stopped"])


def _seal(numbers: bytes) -> bytes:
    return f"{zlib.crc32(numbers):08x}\n".encode()


def _axes(array: NDArray[Any]) -> list[int]:
    """The axes from the widest step in memory to the narrowest: the last bits of a sum hang on them."""
    return [int(axis) for axis in np.argsort([-step for step in array.strides], kind="stable")]


def _as_it_lay(tensor: NDArray[Any], axes: Sequence[int]) -> NDArray[Any]:
    return np.array(tensor).transpose([axes.index(axis) for axis in range(len(axes))])


# ---- what blocks keep ---------------------------------------------------------------------------------


def _stem(folder: Path, number: int) -> str:
    return str(folder / f"block-{number:05d}")


Print = list[int]  # how many bytes a file has, and their checksum


def _put_block(block: Kept, stem: str) -> dict[str, Print]:
    """A print of each array; files get a second name where the disk allows it, arrays are written."""
    arrays = block.arrays if isinstance(block, FiledState) else tuple(arrays_of(block))
    target = FiledState(stem, arrays)
    for name in arrays:
        if isinstance(block, FiledState):
            _copy(block.file(name), target.file(name))
        else:
            with target.file(name).open("wb") as file:
                np.lib.format.write_array(file, arrays_of(block)[name], allow_pickle=False)
    return {name: _print(target.file(name)) for name in arrays}


def _print(file: Path) -> Print:
    from dissensus.io.store.layout import checksum

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


def _take_apart(value: Any, name: str, arrays: dict[str, NDArray[Any]], blocks: list[Kept]) -> None:
    for part in dataclasses.fields(value):
        field, own = getattr(value, part.name), f"{name}.{part.name}"
        if part.name == "keeper":
            continue
        if part.name == "states":
            blocks.extend(field)
        elif dataclasses.is_dataclass(field):
            _take_apart(field, own, arrays, blocks)
        else:
            arrays[own] = np.asarray(field, dtype=np.float64)


def _put_together(kind: Any, name: str, arrays: dict[str, NDArray[Any]], blocks: tuple[Kept, ...]) -> Any:
    hints = typing.get_type_hints(kind)
    given: dict[str, Any] = {}
    for part in dataclasses.fields(kind):
        hint, own = hints[part.name], f"{name}.{part.name}"
        if part.name == "keeper":
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
