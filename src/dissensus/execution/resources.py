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
from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.errors import DataError, bad_parameter
from dissensus.execution.blas import one_blas_thread
from dissensus.execution.blocks import Executor, executor
from dissensus.execution.desk import Desk
from dissensus.execution.memory import Plan, planned
from dissensus.execution.progress import PROGRESS, ShowProgress, shown
from dissensus.execution.scratch import alone_in, scratch_below
from dissensus.params import Rule, check_rules, choice, integer, n_bytes, n_cores

if TYPE_CHECKING:
    from dissensus.data.annotations import Annotations
    from dissensus.models.base import Model

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
    books: set[Path] = field(default_factory=set)  # folders of checkpoints that fits have used

    @contextmanager
    def executor(
        self, model: Model, annotations: Annotations, given: Mapping[str, Any]
    ) -> Iterator[Executor]:
        """What a fit of this model on these annotations runs on."""
        n_jobs = getattr(model, "n_jobs", 1)
        plan = self._plan(model, annotations, n_jobs, given)
        checkpoints = None
        with ExitStack() as stack:
            if self.checkpoint is not None:
                checkpoints = _once(lambda: self._book(model, annotations, given, stack))
            remote = self.client is not None
            place = self.scratch or self.checkpoint
            scratch = stack.enter_context(scratch_below(place)) if remote or plan.messages < 1 else None
            told = None if self.progress is False else stack.enter_context(shown(self.progress))
            desk = Desk(
                scratch,
                0.0 if remote else plan.messages,
                PRECISIONS[self.precision],
                checkpoints,
                self.checkpoint_every,
                told,
            )
            if scratch is not None and remote:
                from dissensus.execution.dask.executor import Dask

                stack.enter_context(one_blas_thread())
                pool = Dask(self.client, desk, scratch, plan.laid_out)
                stack.callback(pool.close)
                yield pool
            else:
                yield stack.enter_context(executor(n_jobs, desk, plan.laid_out))

    def forget(self) -> None:
        """Remove the checkpoints of the fits so far, once what they found is safe elsewhere."""
        for folder in self.books:
            with suppress(DataError), alone_in(folder):
                shutil.rmtree(folder, ignore_errors=True)
        self.books.clear()

    def _book(
        self, model: Model, annotations: Annotations, given: Mapping[str, Any], stack: ExitStack
    ) -> Path:
        """Where this very fit, and no other run, keeps its checkpoints."""
        assert self.checkpoint is not None
        folder = self.checkpoint / _identity(model, annotations, given, self.precision)
        stack.enter_context(alone_in(folder))
        self.books.add(folder)
        return folder

    def _plan(self, model: Model, annotations: Annotations, n_jobs: int, given: Mapping[str, Any]) -> Plan:
        if self.memory is None:
            return Plan()
        dtype = PRECISIONS[self.precision]
        if self.client is None:
            n_threads = n_cores() if n_jobs == -1 else n_jobs
            return planned(model, annotations, self.memory, dtype, n_threads=n_threads, **given)
        from dissensus.execution.dask.connection import running_workers

        workers = running_workers(self.client)
        n_threads = sum(workers.values())
        return planned(
            model, annotations, self.memory, dtype, n_threads=n_threads, n_workers=len(workers), **given
        )


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
        Processes of a local cluster; −1: one a core.
    tls
        Files of the certificate authority, of our certificate and of our key, for a ``tls://`` address.
    memory
        How much a fit may take, all processes together and mapped files apart: ``"8GB"``, or a number of
        bytes. Messages then go to disk where they would not fit; what cannot be done in it is refused.
    scratch
        A directory for messages, on a cluster one that every worker reaches; default: ``checkpoint``, or the
        system's place for temporary files.
    checkpoint
        A directory for checkpoints. A fit with the same settings on the same labels goes on where an earlier
        one was stopped, and has the same bits as if it had not been.
    checkpoint_every
        Iterations between two checkpoints.
    precision
        Of the messages: ``"double"``, or ``"single"``, which takes half the room and changes the result a
        little (docs/scale.md says how much).
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
            from dissensus.execution.dask.connection import Tls, connected

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


def _identity(model: Model, annotations: Annotations, given: Mapping[str, Any], precision: str) -> str:
    """A name for a fit that is the same for the same model, settings, labels and precision."""
    from dissensus._version import __version__
    from dissensus.data.fingerprint import fingerprint

    settings = {name: value for name, value in model.get_params(deep=False).items() if name != "n_jobs"}
    stored = annotations.stored
    content = {
        "version": __version__,
        "model": type(model).__name__,
        "settings": {name: repr(value) for name, value in settings.items()},
        "labels": fingerprint(annotations) if stored is None else stored.seal,
        "given": {name: _digest(value) for name, value in given.items()},
        "precision": precision,
    }
    whole = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return f"{type(model).__name__.lower()}-{whole[:16]}"


def _digest(value: Any) -> str:
    if value is None:
        return ""
    table = np.ascontiguousarray(value, dtype=np.float64)
    return hashlib.sha256(f"{table.shape}".encode() + table.tobytes()).hexdigest()
