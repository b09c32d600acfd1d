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
from dataclasses import dataclass, field, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Self

import numpy as np

from dissensus import engine as plain
from dissensus._version import __version__
from dissensus.engine import Engine, using
from dissensus.errors import DataError, bad_parameter, setting
from dissensus.labels.annotations import Annotations
from dissensus.large.checkpoints import Checkpoints
from dissensus.large.engine import Budget, LargeEngine
from dissensus.large.scratch import alone_in, scratch_below
from dissensus.params import PROCESS_BYTES, Rule, check_rules, choice, integer, n_bytes, n_cores, size_words
from dissensus.progress import PROGRESS, ShowProgress

PRECISIONS = {"double": np.float64, "single": np.float32}


@dataclass(frozen=True)
class Resources(plain.Resources):
    """What fits may use beside threads: a cluster, a memory limit, folders for messages and checkpoints."""

    client: Any = None
    scratch: Path | None = None
    checkpoint: Path | None = None
    checkpoint_every: int = 5
    used: set[Path] = field(default_factory=set)  # folders of checkpoints that fits have used
    at_once: int = 1  # tasks that share the memory that was allowed; ``memory`` is the part of each

    @contextmanager
    def engine(self, model: Any, labels: Any, given: Mapping[str, Any]) -> Iterator[Engine]:
        """Yield what one fit runs on; ``given`` is what ``fit`` was given beside the labels."""
        room, n_threads = self._room(model, labels, given)
        with ExitStack() as stack:
            scratch = _once(lambda: stack.enter_context(scratch_below(self.scratch or self.checkpoint)))
            checkpoints = None
            if (place := self.checkpoint) is not None:

                def own() -> Path:
                    """Lock the folder of this fit, until it is over."""
                    folder = stack.enter_context(
                        alone_in(place / _fit_name(model, labels, given, self.precision))
                    )
                    self.used.add(folder)
                    return folder

                checkpoints = Checkpoints(_once(own), self.checkpoint_every)
            kind: Any = LargeEngine
            if self.client is not None:
                from dissensus.large.dask import DaskEngine as kind  # noqa: N813
            threads = stack.enter_context(plain.threads(n_threads))
            sizes = threads.n_threads, threads.pool, labels.n_labels, PRECISIONS[self.precision]
            engine = kind(*sizes, budget=Budget(room), scratch=scratch, checkpoints=checkpoints)
            if self.client is not None:
                engine.client, engine.ending = self.client, stack
            engine.show, engine.title, engine.displays = self.progress, type(model).__name__, stack
            yield engine

    def _room(self, model: Any, labels: Any, given: Mapping[str, Any]) -> tuple[int | None, int]:
        """Bytes for layouts and messages beside what a fit must have, and threads that work here."""
        n_jobs = 1 if self.client is not None else vars(model).get("n_jobs", 1)
        n_threads = n_cores() if n_jobs == -1 else n_jobs
        if self.memory is None:
            return None, n_threads
        needed = model.memory_needed(labels, features=given.get("features"))
        per_thread = model.memory_needed(labels, n_threads=2) - model.memory_needed(labels)
        for name, value in given.items():  # what is known beforehand, and its logarithm
            needed += 0 if name == "features" else 2 * getattr(value, "nbytes", 0)
        if self.client is not None:
            from dissensus.large.dask import running_workers

            workers = running_workers(self.client)
            needed += len(workers) * PROCESS_BYTES + (sum(workers.values()) - 1) * per_thread
        room = self.memory - needed
        if room < 0:
            each, enough = "", "as much"
            if self.at_once > 1:
                each, enough = f" for each of {self.at_once} at once", size_words(self.at_once * needed)
            raise DataError(
                f"{type(model).__name__} on {labels.n_labels:,} labels needs {size_words(needed)} of memory "
                f"at least, and {size_words(self.memory)} are allowed{each}; allow {enough} with "
                f"{setting('memory')}, or use fewer clusters, classes, features, jobs or workers"
            )
        n_threads = min(n_threads, 1 + room // (2 * per_thread))
        return room - (n_threads - 1) * per_thread, n_threads

    def share(self, n_at_once: int) -> Self:
        """Resources of one task of which this many run at once: in this process, without checkpoints."""
        alone = replace(super().share(n_at_once), client=None, n_cluster_threads=0, checkpoint=None)
        return replace(alone, at_once=self.at_once * n_at_once)

    def tasks(self, shared: Any) -> Any:
        """What runs the tasks of a search on the cluster; None without a cluster."""
        if self.client is None:
            return None
        from dissensus.large.dask import ClusterTasks

        return ClusterTasks(self.client, shared, self.share(self.n_cluster_threads))

    def forget(self) -> None:
        """Remove the checkpoints of the fits so far, once their results are safe elsewhere."""
        for folder in self.used:
            with suppress(DataError), alone_in(folder):
                shutil.rmtree(folder, ignore_errors=True)
        self.used.clear()


def _once(make: Callable[[], Path]) -> Callable[[], Path]:
    """Call ``make`` when it is first needed, on whichever thread, and return the same ever after."""
    made, asking = cache(make), threading.Lock()

    def ask() -> Path:
        with asking:
            return made()

    return ask


def _fit_name(model: Any, labels: Any, given: Mapping[str, Any], precision: str) -> str:
    """A name that is the same for the same model, settings, labels, precision and what ``fit`` was given."""
    name, origin = type(model).__name__, getattr(labels, "origin", None)
    annotators = labels.annotator_table  # which the seal of a store says nothing of
    settings = {key: repr(value) for key, value in model.get_params(deep=False).items() if key != "n_jobs"}
    content = {
        "version": __version__,
        "model": name,
        "settings": settings,
        "labels": labels.fingerprint() if origin is None else origin.seal,  # of a store, without reading it
        "annotators": None if annotators is None else _digest(annotators.to_pylist()),
        "label_type": labels.label_type,
        "given": {key: _digest(value) for key, value in given.items()},
        "precision": precision,
    }
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return f"{name.lower()}-{digest[:16]}"


def _digest(value: Any) -> str:
    """A digest of arrays, labels, states, and lists of them."""
    if isinstance(value, Annotations):
        return value.fingerprint()
    if is_dataclass(value):
        value = list(vars(value).values())
    if isinstance(value, list | tuple):
        return hashlib.sha256("".join(map(_digest, value)).encode()).hexdigest()
    array = np.asarray(value)
    content = repr(value).encode() if array.dtype == object else np.ascontiguousarray(array).tobytes()
    return hashlib.sha256(f"{array.dtype}{array.shape}".encode() + content).hexdigest()


_DIRECTORY = Rule(
    "a directory, there already or to be made", lambda v: v is None or (_is_path(v) and not Path(v).is_file())
)
_RULES = {
    "n_workers": Rule("an int >= 1, or -1 for one a core", lambda v: integer(1).holds(v) or v == -1),
    "scratch": _DIRECTORY,
    "checkpoint": _DIRECTORY,
    "checkpoint_every": integer(1),
    "precision": choice(*PRECISIONS),
    "progress": PROGRESS,
}


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike)


@contextmanager
def resources(
    *,
    cluster: Any = None,
    n_workers: int = -1,
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
        The certificates of a ``tls://`` address are those that Dask's configuration names.
    n_workers
        Number of processes of a local cluster; −1 starts one for each core.
    memory
        How much a fit may take, all processes together and mapped files apart: ``"8GB"``, or a number of
        bytes. Messages of PGM that would not fit go to disk; what cannot be done in it is refused.
    scratch
        A directory for messages that do not fit into memory; on a cluster for all messages, and
        one that every worker reaches. Default: ``checkpoint``, or the system's place for temporary files.
    checkpoint
        A directory for checkpoints. A fit with the same settings on the same labels resumes where an earlier
        one was stopped, and has the same bits as if it had not been. Annealing, regressions on features and
        models that are counts keep no checkpoints, and begin anew.
    checkpoint_every
        Iterations between two checkpoints.
    precision
        Precision of the messages: ``"double"``, or ``"single"``, which takes half the memory and changes
        the result a little (docs/scale.md says how much).
    progress
        True or False, a function told (what, share of the iterations done), or None: a bar on a terminal.
    """
    given = locals()
    check_rules("resources", _RULES, **{name: given[name] for name in _RULES})
    allowed = None if memory is None else n_bytes(memory, "resources")
    if allowed is not None and allowed < 10**6 and not str(memory).strip()[-1].isalpha():  # 5 means 5 GB
        raise bad_parameter("resources", "memory", "a size such as '2GB', or 1,000,000 bytes or more", memory)
    with ExitStack() as stack:
        client, n_threads = None, 0
        if cluster is not None:
            from dissensus.large.dask import connected, running_workers

            client = stack.enter_context(connected(cluster, n_workers=n_workers))
            n_threads = sum(running_workers(client).values())
        own, kept = (None if place is None else Path(place).absolute() for place in (scratch, checkpoint))
        found = Resources(allowed, progress, precision, n_threads, client, own, kept, checkpoint_every)
        with using(found):
            yield found
