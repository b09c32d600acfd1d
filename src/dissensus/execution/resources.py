"""What fits may use: threads here or a cluster, how much memory, where to keep messages and checkpoints.

::

    with ds.resources(cluster="tcp://10.0.0.1:8786", memory="8GB", checkpoint="run"):
        model = ds.PGM(8, 8).fit("votes.store")

None of it reaches the result, except ``precision="single"``: with the same seed a fit has the same bits on
one thread, on four workers, in memory, from a store, and resumed after it was killed.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from dissensus._version import __version__
from dissensus.errors import DataError, bad_parameter
from dissensus.execution.memory import Needs, Plan, least_bytes, planned, refuse_beyond, threads_that_fit
from dissensus.execution.messages import InMemory, MessageStorage, OnDisk
from dissensus.execution.run import Pause, Run
from dissensus.execution.scratch import alone_in, scratch_below
from dissensus.execution.threads import Executor, one_blas_thread
from dissensus.execution.threads import executor as executor_here
from dissensus.labels.annotations import Annotations
from dissensus.params import Rule, check_rules, choice, integer, n_bytes, n_cores, physical_memory
from dissensus.progress import PROGRESS, ShowProgress, shown

EVERY_ON_A_CLUSTER = 20  # iterations between two checkpoints, where none are asked for
PRECISIONS = {"double": np.float64, "single": np.float32}


@dataclass(frozen=True)
class Resources:
    """What fits may use."""

    client: Any = None
    memory: int | None = None
    scratch: Path | None = None
    checkpoint: Path | None = None
    checkpoint_every: int = 5
    precision: str = "double"
    progress: ShowProgress = False
    pause: Pause | None = None
    used: set[Path] = field(default_factory=set)  # folders of checkpoints that fits have used
    at_once: int = 1  # tasks that share the memory that was allowed; ``memory`` is the part of each

    @contextmanager
    def run(
        self, annotations: Annotations, identity: Identity, needs: Needs | None = None, n_jobs: int = -1
    ) -> Iterator[Run]:
        """What one fit on these annotations runs on; ``needs`` say what it takes, where memory is limited."""
        if n_jobs == -1 and self.memory is not None and needs is not None and self.client is None:
            n_jobs = threads_that_fit(needs, self.memory, n_cores())
        plan = self._plan(annotations, identity.name, needs, n_jobs)
        checkpoints = None
        with ExitStack() as stack:
            if self.checkpoint is not None:
                checkpoints = _once(lambda: self._checkpoints(annotations, identity, stack))
            place = self.scratch or self.checkpoint
            progress = None if self.progress is False else stack.enter_context(shown(self.progress))
            every = self.checkpoint_every
            if self.client is not None:
                scratch = stack.enter_context(scratch_below(place))
                storage, executor = stack.enter_context(self._on_cluster(plan, scratch))
                if checkpoints is None and needs is not None and needs.message_bytes:
                    # A worker that is lost takes its messages along: the fit then goes on from these.
                    checkpoints, every = (lambda: scratch / "checkpoints"), EVERY_ON_A_CLUSTER
            else:
                storage = self._storage(place, plan, stack)
                executor = stack.enter_context(executor_here(n_jobs, plan.labels_laid_out))
            yield Run(executor, annotations.n_labels, storage, checkpoints, every, progress, self.pause)

    def has_room(self, needs: Needs) -> bool:
        """Whether a fit with one thread keeps to the memory allowed, or to what the machine has."""
        return least_bytes(needs) <= (self.memory or physical_memory())

    @property
    def itemsize(self) -> int:
        """Bytes of a message's number."""
        return np.dtype(PRECISIONS[self.precision]).itemsize

    def _storage(self, place: Path | None, plan: Plan, stack: ExitStack) -> MessageStorage:
        """Messages stay in memory, but for those that would not fit."""
        dtype = PRECISIONS[self.precision]
        if plan.share_in_memory == 1:
            return InMemory(dtype)
        return OnDisk(stack.enter_context(scratch_below(place)), dtype, plan.share_in_memory)

    @contextmanager
    def _on_cluster(self, plan: Plan, scratch: Path) -> Iterator[tuple[MessageStorage, Executor]]:
        """Messages stay with the workers, as far as there is room; steps run where they are."""
        from dissensus.execution.dask.blocks import Dask
        from dissensus.execution.dask.held import InWorkers

        held = InWorkers(self.client, scratch, PRECISIONS[self.precision], plan.share_in_memory)
        remote = Dask(self.client, scratch, plan.labels_laid_out, held)
        with one_blas_thread():
            try:
                yield held, remote
            finally:
                remote.close()

    def forget(self) -> None:
        """Remove the checkpoints of the fits so far, once what they found is safe elsewhere."""
        for folder in self.used:
            with suppress(DataError), alone_in(folder):
                shutil.rmtree(folder, ignore_errors=True)
        self.used.clear()

    def _checkpoints(self, annotations: Annotations, identity: Identity, stack: ExitStack) -> Path:
        """Where this very fit, and no other run, keeps its checkpoints."""
        assert self.checkpoint is not None
        folder = self.checkpoint / identity.folder(annotations, self.precision)
        stack.enter_context(alone_in(folder))
        self.used.add(folder)
        return folder

    def _plan(self, annotations: Annotations, name: str, needs: Needs | None, n_jobs: int) -> Plan:
        if needs is None:
            return Plan()
        if self.memory is None:
            refuse_beyond(name, needs, annotations.n_labels, physical_memory())
            return Plan() if self.client is None else Plan(self._share_with_workers(needs))
        if self.client is None:
            n_threads = n_cores() if n_jobs == -1 else n_jobs
            return planned(
                name, needs, annotations.n_labels, self.memory, n_threads=n_threads, at_once=self.at_once
            )
        from dissensus.execution.dask.cluster import running_workers

        workers = running_workers(self.client)
        n_threads = sum(workers.values())
        return planned(
            name, needs, annotations.n_labels, self.memory, n_threads=n_threads, n_workers=len(workers)
        )

    def _share_with_workers(self, needs: Needs) -> float:
        """The share of the blocks whose messages workers keep where no limit is named: half their memory."""
        from dissensus.execution.dask.cluster import memory_of_workers

        room = memory_of_workers(self.client) // 2
        return min(1.0, room / needs.message_bytes) if needs.message_bytes else 1.0


@dataclass(frozen=True)
class Identity:
    """What tells one fit from another: the model's name, its settings, and what it is given beside labels."""

    name: str
    settings: Mapping[str, Any]
    given: Mapping[str, Any] = field(default_factory=dict)

    def folder(self, annotations: Annotations, precision: str) -> str:
        """A name that is the same for the same model, settings, labels and precision."""
        origin = annotations.origin
        content = {
            "version": __version__,
            "model": self.name,
            "settings": {name: repr(value) for name, value in self.settings.items() if name != "n_jobs"},
            "labels": annotations.fingerprint() if origin is None else origin.seal,
            "given": {name: _digest(value) for name, value in self.given.items()},
            "precision": precision,
        }
        whole = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
        return f"{self.name.lower()}-{whole[:16]}"


_DIRECTORY = Rule(
    "a directory, there already or to be made", lambda v: v is None or (_is_path(v) and not Path(v).is_file())
)
_RULES = {
    "n_workers": Rule("an int >= 1, or -1 for one a core", lambda v: integer(1).holds(v) or v == -1),
    "tls": Rule(
        "three files: the authority's certificate, ours, and our key",
        lambda v: v is None or (isinstance(v, tuple | list) and len(v) == 3 and all(map(_is_path, v))),
    ),
    "scratch": _DIRECTORY,
    "checkpoint": _DIRECTORY,
    "checkpoint_every": integer(1),
    "precision": choice(*PRECISIONS),
    "progress": PROGRESS,
}


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


PLAIN = Resources()
_current: ContextVar[Resources] = ContextVar("resources", default=PLAIN)


def current() -> Resources:
    """What fits may use at this moment."""
    return _current.get()


@contextmanager
def using(found: Resources) -> Iterator[Resources]:
    """Every fit inside the block uses these, as they are."""
    token = _current.set(found)
    try:
        yield found
    finally:
        _current.reset(token)


@contextmanager
def resources(
    *,
    cluster: Any = None,
    n_workers: int = -1,
    tls: tuple[Any, Any, Any] | None = None,
    memory: str | int | None = None,
    scratch: Any = None,
    checkpoint: Any = None,
    checkpoint_every: int = 5,
    precision: str = "double",
    progress: ShowProgress = None,
) -> Iterator[Resources]:
    """Every fit inside the block uses these.

    Fits in threads or processes that you start yourself do not see them: open a block in each.

    Parameters
    ----------
    cluster
        A Dask scheduler's address, ``"local"`` for processes on this machine, or a ``distributed.Client``.
    n_workers
        Number of processes of a local cluster; −1 starts one for each core.
    tls
        Files of the certificate authority, of our certificate and of our key, for a ``tls://`` address.
    memory
        How much a fit may take, all processes together and mapped files apart: ``"8GB"``, or a number of
        bytes. Messages then go to disk where they would not fit; what cannot be done in it is refused.
    scratch
        A directory for messages, also of cells of a search that wait (unless memory is limited); on a cluster
        one that every worker reaches. Default: ``checkpoint``, or the system's place for temporary files.
    checkpoint
        A directory for checkpoints. A fit with the same settings on the same labels goes on where an earlier
        one was stopped, and has the same bits as if it had not been.
    checkpoint_every
        Iterations between two checkpoints.
    precision
        Precision of the messages: ``"double"``, or ``"single"``, which takes half the memory and changes
        the result a little (docs/scale.md says how much).
    progress
        True or False, a function told (what, share of the iterations done), or None: a bar on a terminal.
    """
    check_rules(
        "resources",
        _RULES,
        n_workers=n_workers,
        tls=tls,
        scratch=scratch,
        checkpoint=checkpoint,
        checkpoint_every=checkpoint_every,
        precision=precision,
        progress=progress,
    )
    if tls is not None and not str(cluster).startswith("tls://"):
        raise bad_parameter("resources", "cluster", "a tls:// address where tls is given", cluster)
    with ExitStack() as stack:
        client = None
        if cluster is not None:
            from dissensus.execution.dask.cluster import Tls, connected

            secured = None if tls is None else Tls(*map(Path, tls))
            client = stack.enter_context(connected(cluster, n_workers=n_workers, tls=secured))
        found = Resources(
            client,
            None if memory is None else n_bytes(memory, "resources"),
            None if scratch is None else Path(scratch).absolute(),
            None if checkpoint is None else Path(checkpoint).absolute(),
            checkpoint_every,
            precision,
            progress,
        )
        yield stack.enter_context(using(found))


def _once(make: Callable[[], Path]) -> Callable[[], Path]:
    """``make()`` when somebody first asks, and the same for everybody after, on whichever thread."""
    made, asking = cache(make), threading.Lock()

    def ask() -> Path:
        with asking:
            return made()

    return ask


def _digest(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list):  # of states: dataclasses of arrays and numbers
        return hashlib.sha256(
            "".join(_digest(part) for one in value for part in vars(one).values()).encode()
        ).hexdigest()
    table = np.ascontiguousarray(value, dtype=np.float64)
    return hashlib.sha256(f"{table.shape}".encode() + table.tobytes()).hexdigest()
