"""A fit's book: its state every few iterations, so that a run that was stopped goes on where it was.

A checkpoint is a folder that takes its name when it is whole. It holds the numbers of the state (a
safetensors file), the objective so far, and the messages of every block, which on one disk are the round's
own files under a second name. Nothing in it is ever executed, and what is resumed continues with the same
bits. States are dataclasses of arrays, numbers, other such dataclasses and what blocks keep.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import shutil
import time
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError
from dissensus.io.atomic import gone_afterwards, sync
from dissensus.shelf import ARRAYS, DiskPlace, FiledState, Kept

State = TypeVar("State")
Watch = Callable[[str, float], None]

STEP = re.compile(r"step-\d{6}")
NUMBERS, TRACE = "state.safetensors", "trace.json"
KEPT = 2  # the last one, and the one before, whose files a state may still look at


@dataclass(frozen=True)
class Page(Generic[State]):
    """What a book holds: a state, the objectives up to it, and why the fit stopped, if it did."""

    state: State
    trace: tuple[float, ...]
    stopped: str


class Book(Generic[State]):
    """Nothing is kept; progress is told."""

    def __init__(self, watch: Watch | None = None) -> None:
        self._watch = watch
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
        if self._watch is None:
            return
        now = time.monotonic()
        if self._began is None:
            self._began = now, done
        since, first = self._began
        words = f"iteration {done} of at most {max_iter}"
        if done > first:
            seconds = (now - since) / (done - first)
            left = span(seconds * (max_iter - done))
            words += f", {n_labels / seconds:,.0f} labels a second, at most {left} left"
        self._watch(words, done / max_iter)


class FiledBook(Book[State]):
    """A page every few iterations, in a folder."""

    def __init__(self, folder: Path, kind: type[State], every: int, watch: Watch | None = None) -> None:
        super().__init__(watch)
        self._folder = folder
        self._kind = kind
        self._every = every

    def latest(self) -> Page[State] | None:
        """The last page that is whole."""
        pages = self._pages()
        return None if not pages else _read(pages[-1], self._kind)

    def note(self, state: State, trace: Sequence[float], max_iter: int, n_labels: int) -> None:
        """A page, where it is time for one."""
        if len(trace) % self._every == 0:
            self._write(state, trace, "")
        super().note(state, trace, max_iter, n_labels)

    def close(self, state: State, trace: Sequence[float], stopped: str) -> None:
        """The last page."""
        self._write(state, trace, stopped)

    def _write(self, state: State, trace: Sequence[float], stopped: str) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        # The last page follows the one that was noted after the same iteration.
        target = self._folder / f"step-{2 * len(trace) + bool(stopped):06d}"
        temporary = target.with_name(f".{target.name}")
        shutil.rmtree(temporary, ignore_errors=True)
        with gone_afterwards(self._folder, temporary):
            temporary.mkdir()
            _write(temporary, state, trace, stopped)
            temporary.rename(target)
            sync(self._folder)
        for page in self._pages()[:-KEPT]:
            shutil.rmtree(page, ignore_errors=True)

    def _pages(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return sorted(path for path in self._folder.iterdir() if STEP.fullmatch(path.name))


def span(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


# ---- states as files ----------------------------------------------------------------------------------


def _write(folder: Path, state: Any, trace: Sequence[float], stopped: str) -> None:
    from safetensors.numpy import save

    arrays, blocks = dict[str, NDArray[Any]](), list[Kept]()
    _take_apart(state, "state", arrays, blocks)
    for number, block in enumerate(blocks):
        _put_block(block, folder / f"block-{number:05d}")
    (folder / NUMBERS).write_bytes(save(arrays))
    # repr gives every float back as it was
    content = {"trace": [repr(float(value)) for value in trace], "stopped": stopped, "blocks": len(blocks)}
    (folder / TRACE).write_text(json.dumps(content))
    for file in (folder / NUMBERS, folder / TRACE):
        sync(file)


def _read(folder: Path, kind: type[State]) -> Page[State]:
    from safetensors import SafetensorError
    from safetensors.numpy import load

    try:
        content = json.loads((folder / TRACE).read_text())
        arrays = load((folder / NUMBERS).read_bytes())
        blocks = tuple(FiledState(str(folder / f"block-{n:05d}")) for n in range(content["blocks"]))
        state = _put_together(kind, "state", arrays, blocks)
        return Page(state, tuple(map(float, content["trace"])), content["stopped"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError):
        raise DataError(
            f"{folder}: the checkpoint is damaged; remove {folder.parent} and run again"
        ) from None


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
            arrays[own] = np.array(field, dtype=np.float64, order="C")


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


def _put_block(block: Kept, stem: Path) -> None:
    """Files get a second name where the disk allows it; arrays are written."""
    if not isinstance(block, FiledState):
        DiskPlace(str(stem)).keep(block)  # type: ignore[arg-type]
        return
    for name in ARRAYS:
        source, target = f"{block.stem}.{name}.npy", f"{stem}.{name}.npy"
        try:
            os.link(source, target)
        except FileNotFoundError:
            continue
        except OSError:
            shutil.copyfile(source, target)
