"""Messages that stay in the memory of the workers who computed them.

The driver knows a block's state by name and by its worker, and sends the block's next step there: a round
moves no messages. They are lost with their worker; the fit then goes on from its last checkpoint, with the
same bits (``through_losses`` in models/base.py). A worker drops the rounds that the driver no longer
holds.
"""

from __future__ import annotations

import itertools
import threading
import uuid
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.errors import MessagesLostError
from dissensus.execution.dask.cluster import completed, tell_workers
from dissensus.execution.messages import Array, BlockState, MemoryState, OnDisk, Round, Slot

MOST_FITS = 4  # whose messages a worker keeps: those of a driver that was killed go with later fits


@dataclass(frozen=True)
class Rounds:
    """Which rounds of a fit somebody still holds, as far as they had begun when this was said."""

    fit: str
    newest: int
    held: frozenset[int]


# ---- on the driver ------------------------------------------------------------------------------------


class InWorkers:
    """States stay with the workers; of a share of the blocks, the others go to disk."""

    def __init__(self, client: Any, scratch: Path, dtype: Any = np.float64, share: float = 1.0) -> None:
        self.dtype = dtype
        self._client = client
        self._share = share
        self._disk = OnDisk(scratch, dtype)
        self._fit = uuid.uuid4().hex
        self._numbers = itertools.count(1)
        self._newest = 0
        self._live: set[int] = set()
        _clients[self._fit] = client

    def round(self, n_blocks: int) -> Round:
        """Slots for the coming round, one for every block."""
        number = self._newest = next(self._numbers)
        n_held = round(self._share * n_blocks)
        slots: list[Slot] = [HeldSlot(self._fit, number, block, self.dtype) for block in range(n_held)]
        filed = self._disk.round(n_blocks - n_held) if n_held < n_blocks else Round([])
        holder = _Holder(filed.files)
        self._live.add(number)
        weakref.finalize(holder, self._live.discard, number)
        return Round([*slots, *filed.slots], holder)

    def rounds(self) -> Rounds:
        """What workers need to keep, as of now."""
        return Rounds(self._fit, self._newest, frozenset(self._live))

    def close(self) -> None:
        """No worker keeps messages of a fit that is over."""
        del _clients[self._fit]
        tell_workers(self._client, forget_fit, self._fit)


class _Holder:
    """Whoever holds the states of a round holds this, and with it the files of those on disk."""

    def __init__(self, files: object) -> None:
        self._files = files


_clients: dict[str, Any] = {}  # of every fit that runs: how its messages are reached


# ---- on the driver and on a worker --------------------------------------------------------------------


@dataclass(frozen=True)
class HeldState:
    """What a block keeps, by name: on its worker it is at hand, the driver fetches it."""

    fit: str
    round: int
    block: int
    worker: str  # its address

    @property
    def w(self) -> Array:
        """(items, K)"""
        return np.asarray(self._array("w"))

    @property
    def nu(self) -> Array | None:
        """(pairs, L)"""
        return self._array("nu")

    @property
    def incoming(self) -> Array | None:
        """(pairs, L)"""
        return self._array("incoming")

    def _array(self, name: str) -> Array | None:
        here = (self.round, self.block) in _held.get(self.fit, {})
        if here or self.fit not in _clients:
            return held_array(self, name)
        calls = completed(_clients[self.fit], held_array, [self], lambda: (name,), [self.worker])
        found: Array | None = next(calls)[1]
        return found


@dataclass(frozen=True)
class HeldSlot:
    """The memory of the worker that keeps something in it."""

    fit: str
    round: int
    block: int
    dtype: Any = np.float64

    def keep(self, state: MemoryState) -> BlockState:
        """Keep it here, and say whose memory it is."""
        from distributed import get_worker

        with _changing:
            _held.setdefault(self.fit, {})[self.round, self.block] = state
            _held.move_to_end(self.fit)
            while len(_held) > MOST_FITS:
                _held.popitem(last=False)
        return HeldState(self.fit, self.round, self.block, get_worker().address)


# ---- on a worker --------------------------------------------------------------------------------------

_held: OrderedDict[str, dict[tuple[int, int], MemoryState]] = OrderedDict()  # the fit used last is last
_changing = threading.Lock()


def held_array(state: HeldState, name: str) -> Array | None:
    """An array of a state that this process keeps."""
    try:
        found: Array | None = getattr(_held[state.fit][state.round, state.block], name)
        return found
    except KeyError:
        raise MessagesLostError(f"{state.worker} no longer has its messages; run the same again") from None


def drop_others(rounds: Rounds) -> None:
    """Drop the rounds that nobody holds; later ones than the driver knew of then may be there already."""
    with _changing:
        kept = _held.get(rounds.fit, {})
        for number, block in list(kept):
            if number <= rounds.newest and number not in rounds.held:
                del kept[number, block]


def forget_fit(fit: str) -> None:
    """Drop all messages of a fit."""
    with _changing:
        _held.pop(fit, None)
