"""Rounds over blocks on the workers of a Dask cluster.

The driver sends parameters and gets sums. A round is a number of calls of some consecutive blocks each, sent
to the worker that had them before where it is free. A step reads what the round before kept and writes its
own. Labels are read where they are used: from the store they were opened from, or from files written for the
workers, who keep the layouts of their blocks from one round to the next.
"""

from __future__ import annotations

import itertools
import shutil
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.errors import DataError, system_words
from dissensus.execution.dask.cluster import completed, running_workers, tell_workers
from dissensus.execution.dask.held import HeldState, InWorkers, Rounds, drop_others
from dissensus.execution.messages import cannot_keep, read_array, write_array
from dissensus.execution.threads import Layout, Result, in_one_order, one_blas_thread
from dissensus.labels.annotations import Annotations, Origin
from dissensus.labels.blocks import Block, Codes, Labels, blocks_of, labels_of
from dissensus.tables.source import not_reached

CALLS_A_THREAD = 4  # calls of a round for every thread of the cluster: some even out what others take longer
SMALL = 200_000  # bytes up to which parameters travel with every call; larger tables are read from a file
MOST_SOURCES = 2  # labels that a worker keeps laid out at the same time
COLUMNS = ("item", "annotator", "label")


# ---- where the labels are -----------------------------------------------------------------------------


@dataclass(frozen=True)
class FiledLabels:
    """Columns that were in the driver's memory, written to a folder that everyone can reach."""

    folder: str
    seal: str  # of these labels and no others
    n_annotators: int
    n_classes: int

    def labels(self) -> Labels:
        """The columns as they were written."""
        item, annotator, label = (self._mapped(name) for name in COLUMNS)
        return Labels(item, annotator, label, self.n_annotators, self.n_classes)

    def _mapped(self, name: str) -> Codes:
        path = Path(self.folder) / f"{name}.npy"
        try:
            return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False).view(np.ndarray))
        except (OSError, ValueError, EOFError):
            raise not_reached(path, "give scratch= that every worker reaches") from None


def labels_for_workers(annotations: Annotations, scratch: Path) -> Origin | FiledLabels:
    """Where annotations can be opened again; else their columns, written to ``scratch``."""
    if annotations.origin is not None:
        return annotations.origin
    seal = uuid.uuid4().hex
    folder = scratch / f"labels-{seal[:12]}"
    try:
        folder.mkdir(parents=True)
        for name in COLUMNS:
            with (folder / f"{name}.npy").open("xb") as file:
                np.lib.format.write_array(file, getattr(annotations, name), allow_pickle=False)
    except OSError as error:
        raise DataError(
            f"{folder}: labels cannot be written for the workers ({system_words(error)}); "
            "make room there, or name another place with scratch="
        ) from error
    return FiledLabels(str(folder), seal, annotations.n_annotators, annotations.n_classes)


@dataclass(frozen=True)
class FiledTable:
    """A table that is too large to travel with every call: read where it is used."""

    path: str


def _filed_table(path: Path, table: Any) -> FiledTable:
    try:
        path.parent.mkdir(exist_ok=True)
    except OSError as error:
        raise cannot_keep(path.parent, error) from error
    write_array(path, table)
    return FiledTable(str(path))


# ---- on the driver ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockRange:
    """Some consecutive blocks, and what each of them is given of its own."""

    source: Origin | FiledLabels
    layout: Layout
    most_labels: int | None  # of which a worker keeps layouts in memory; None: of all
    blocks: Sequence[Block]
    own: Sequence[tuple[Any, ...]]
    rounds: Rounds | None = None  # whose messages the driver holds


class Dask:
    """The threads of a cluster's workers."""

    def __init__(
        self, client: Any, scratch: Path, most_labels: int | None = None, held: InWorkers | None = None
    ) -> None:
        self.client = client
        self.scratch = scratch
        self.most_labels = most_labels
        self.held = held  # messages that stay with the workers
        self._seals: set[str] = set()

    def map(self, step: Callable[[Any], Result], over: Sequence[Any]) -> list[Result]:
        """One after the other, here: each of them has the whole cluster to itself."""
        return [step(element) for element in over]

    def over(self, annotations: Annotations, layout: Layout) -> RemoteWork:
        """The annotations' blocks, ready for steps."""
        work = RemoteWork(self, annotations, layout)
        self._seals.add(work.source.seal)
        return work

    def close(self) -> None:
        """No worker keeps labels of a fit that is over."""
        for seal in self._seals:
            tell_workers(self.client, forget_labels, seal)
        if self.held is not None:
            self.held.close()


class RemoteWork:
    """Blocks that are worked on where the cluster likes."""

    def __init__(self, dask: Dask, annotations: Annotations, layout: Layout) -> None:
        self.blocks = blocks_of(annotations)
        self.source = labels_for_workers(annotations, dask.scratch)
        self._dask = dask
        self._layout = layout

    def map(self, step: Callable[..., Result], each: Iterable[Any] = (), **common: Any) -> Iterator[Result]:
        """``step(layout, own, **common)`` of every block, in their order."""
        own: list[tuple[Any, ...]] = [(one,) for one in each] or [()] * len(self.blocks)
        holders = [_holder(one) for one in own]
        cuts, dask = self._cuts(holders), self._dask
        rounds = None if dask.held is None else dask.held.rounds()
        # How blocks are put together does not reach the result.
        ranges = [
            BlockRange(self.source, self._layout, dask.most_labels, self.blocks[a:b], own[a:b], rounds)
            for a, b in itertools.pairwise(cuts)
        ]
        where = [holders[first] or first / len(self.blocks) for first in cuts[:-1]]
        with self._filed(in_one_order(common)) as shared:
            for _, results in completed(dask.client, run_blocks, ranges, lambda: (step, shared), where):
                yield from results

    def _cuts(self, holders: Sequence[str | None]) -> list[int]:
        """Before which blocks a call begins, and the number of blocks; a call's blocks have one holder."""
        n, n_threads = len(self.blocks), sum(running_workers(self._dask.client).values())
        n_calls = min(n, CALLS_A_THREAD * n_threads)
        evenly = {n * call // n_calls for call in range(n_calls + 1)}
        return sorted(evenly | {b for b in range(1, n) if holders[b] != holders[b - 1]})

    @contextmanager
    def _filed(self, common: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The same, large tables as files: written once, and not lost with a worker."""
        folder = self._dask.scratch / f"tables-{uuid.uuid4().hex[:12]}"
        shared = dict(common)
        try:
            for name, value in common.items():
                if getattr(value, "nbytes", 0) > SMALL:
                    shared[name] = _filed_table(folder / f"{name}.npy", value)
            yield shared
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _holder(own: tuple[Any, ...]) -> str | None:
    """The worker that has a block's messages; None where everybody reaches them."""
    parts = own[0] if own and isinstance(own[0], tuple) else own
    return next((part.worker for part in parts if isinstance(part, HeldState)), None)


# ---- on a worker --------------------------------------------------------------------------------------


def run_blocks(these: BlockRange, step: Callable[..., Any], common: dict[str, Any]) -> list[Any]:
    """The step's result for every block of these."""
    if these.rounds is not None:
        drop_others(these.rounds)
    laid_out = _laid_out(these)
    common = {
        name: read_array(Path(value.path)) if isinstance(value, FiledTable) else value
        for name, value in common.items()
    }
    with one_blas_thread():
        return [
            step(laid_out.layout(these, block), *own, **common)
            for block, own in zip(these.blocks, these.own, strict=True)
        ]


@dataclass
class _LaidOut:
    """The labels of one source, and the layouts of some of its blocks."""

    labels: Labels
    layouts: dict[Block, Any] = field(default_factory=dict)

    @property
    def n_labels(self) -> int:
        return sum(block.rows[-1] - block.rows[0] for block in self.layouts)

    def layout(self, these: BlockRange, block: Block) -> Any:
        found = self.layouts.get(block)
        if found is None:
            found = these.layout(block, self.labels)
            with _changing:
                if these.most_labels is None or _room_for(block, self, these.most_labels):
                    self.layouts[block] = found
        return found


_kept: OrderedDict[tuple[str, str], _LaidOut] = OrderedDict()  # the one used last is last
_changing = threading.Lock()  # held for a moment only
_opening = threading.Lock()  # held while labels are fetched, which may take long


def _laid_out(these: BlockRange) -> _LaidOut:
    key = these.source.seal, getattr(these.layout, "__qualname__", repr(these.layout))
    with _opening:
        found = _kept.get(key) or _LaidOut(_opened(these.source))
        with _changing:
            _kept[key] = found
            _kept.move_to_end(key)
            while len(_kept) > MOST_SOURCES:
                _kept.popitem(last=False)
        return found


def _opened(source: Origin | FiledLabels) -> Labels:
    return source.labels() if isinstance(source, FiledLabels) else labels_of(source.reopen())


def forget_labels(seal: str) -> None:
    """Drop the labels of a source, with all that is laid out of them."""
    with _changing:
        for name in [name for name in _kept if name[0] == seal]:
            del _kept[name]


def _room_for(block: Block, own: _LaidOut, most_labels: int) -> bool:
    """Is there room for one more, once others' layouts have made way?"""
    left = most_labels - (block.rows[-1] - block.rows[0]) - own.n_labels
    for other in _kept.values():
        if other is not own and other.n_labels > left:
            other.layouts.clear()
    return left >= 0
