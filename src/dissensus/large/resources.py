"""Resources of fits: a cluster, a memory limit, and folders for messages and checkpoints.

::

    with ds.resources(cluster="tcp://10.0.0.1:8786", memory="8GB", checkpoint="run"):
        model = ds.PGM(8, 8).fit("votes.store")

Only ``precision="single"`` changes results: with the same seed, a fit gives identical bits on one thread, on
four workers, in memory, from a store, and resumed after a kill.
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
from dissensus.large.checkpoints import Checkpoints, checkpoint_folder
from dissensus.large.engine import Budget, LargeEngine
from dissensus.large.file_arrays import scratch_folder
from dissensus.params import PROCESS_BYTES, Rule, check_rules, choice, integer, n_bytes, n_cores, size_words
from dissensus.progress import PROGRESS, ShowProgress

PRECISIONS = {"double": np.float64, "single": np.float32}


@dataclass(frozen=True)
class Resources(plain.LocalResources):
    """A cluster, a memory limit, and folders for messages and checkpoints."""

    client: Any = None
    scratch: Path | None = None
    checkpoint: Path | None = None
    checkpoint_every: int = 5
    used: set[Path] = field(default_factory=set)  # checkpoint folders of the fits so far
    n_sharing: int = 1  # tasks that share the memory limit; ``memory`` is the share of each

    @contextmanager
    def engine(self, model: Any, labels: Any, arguments: Mapping[str, Any]) -> Iterator[Engine]:
        """Yield the engine of one fit; ``arguments`` are those of ``fit`` other than the labels."""
        budget, n_threads = self._budget(model, labels, arguments)
        with ExitStack() as stack:
            scratch = _once(lambda: stack.enter_context(scratch_folder(self.scratch or self.checkpoint)))
            checkpoints = None
            if (parent := self.checkpoint) is not None:

                def lock_folder() -> Path:
                    name = _fit_name(model, labels, arguments, self.precision)
                    folder = stack.enter_context(checkpoint_folder(parent / name))
                    self.used.add(folder)
                    return folder

                checkpoints = Checkpoints(_once(lock_folder), self.checkpoint_every)
            kind: Any = LargeEngine
            if self.client is not None:
                from dissensus.large.dask import DaskEngine as kind  # noqa: N813
            threads = stack.enter_context(plain.threads(n_threads))
            sizes = threads.n_threads, threads.pool, labels.n_labels, PRECISIONS[self.precision]
            engine = kind(*sizes, budget=Budget(budget), scratch=scratch, checkpoints=checkpoints)
            if self.client is not None:
                engine.client, engine.ending = self.client, stack
            engine.show, engine.title, engine.displays = self.progress, type(model).__name__, stack
            engine.minutes = self.minutes
            yield engine

    def _budget(self, model: Any, labels: Any, arguments: Mapping[str, Any]) -> tuple[int | None, int]:
        """Return the bytes left for layouts and messages, and the number of threads."""
        n_jobs = 1 if self.client is not None else vars(model).get("n_jobs", 1)
        n_threads = n_cores() if n_jobs == -1 else n_jobs
        if self.memory is None:
            return None, n_threads
        needed = model.memory_needed(labels, features=arguments.get("features"))
        per_thread = model.memory_needed(labels, n_threads=2) - model.memory_needed(labels)
        for name, value in arguments.items():  # the prior and its logarithm
            needed += 0 if name == "features" else 2 * getattr(value, "nbytes", 0)
        if self.client is not None:
            from dissensus.large.dask import running_workers

            workers = running_workers(self.client)
            needed += len(workers) * PROCESS_BYTES + (sum(workers.values()) - 1) * per_thread
        budget = self.memory - needed
        if budget < 0:
            each = total = ""
            if self.n_sharing > 1:
                each = f" for each of {self.n_sharing} parallel tasks"
                total = f" to {size_words(self.n_sharing * needed)}"
            sizes = f"{size_words(needed)} of memory, and the limit is {size_words(self.memory)}{each}"
            problem = f"{type(model).__name__} on {labels.n_labels:,} labels needs at least {sizes}"
            remedy = "use fewer clusters, classes, features, jobs or workers"
            raise DataError(f"{problem}; raise {setting('memory')}{total}, or {remedy}")
        n_threads = min(n_threads, 1 + budget // (2 * per_thread))
        return budget - (n_threads - 1) * per_thread, n_threads

    def share(self, n_at_once: int) -> Self:
        """Return the resources of one of ``n_at_once`` parallel tasks, without cluster and checkpoints."""
        alone = replace(super().share(n_at_once), client=None, n_cluster_threads=0, checkpoint=None)
        return replace(alone, n_sharing=self.n_sharing * n_at_once)

    def tasks(self, shared: Any) -> Any:
        """Return the object that runs the tasks of a search on the cluster; None without a cluster."""
        if self.client is None:
            return None
        from dissensus.large.dask import ClusterTasks

        return ClusterTasks(self.client, shared, self.share(self.n_cluster_threads))

    def forget(self) -> None:
        """Remove the checkpoints of the fits so far, after their results were saved."""
        for folder in self.used:
            with suppress(DataError), checkpoint_folder(folder):
                shutil.rmtree(folder, ignore_errors=True)
        self.used.clear()


def _once(make: Callable[[], Path]) -> Callable[[], Path]:
    """Return a thread-safe function that calls ``make`` once and then returns the same path."""
    cached, lock = cache(make), threading.Lock()

    def call() -> Path:
        with lock:
            return cached()

    return call


def _fit_name(model: Any, labels: Any, arguments: Mapping[str, Any], precision: str) -> str:
    """Return a name that identifies model, settings, labels, precision and arguments of ``fit``."""
    name, origin = type(model).__name__, getattr(labels, "origin", None)
    annotators = labels.annotator_table  # not covered by the seal of a store
    settings = {key: repr(value) for key, value in model.get_params(deep=False).items() if key != "n_jobs"}
    content: dict[str, Any] = {"version": __version__, "model": name, "settings": settings}
    content["labels"] = labels.fingerprint() if origin is None else origin.seal  # without reading a store
    content["annotators"] = None if annotators is None else _digest(annotators.to_pylist())
    content |= {"label_type": labels.label_type, "precision": precision}
    content["given"] = {key: _digest(value) for key, value in arguments.items()}
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return f"{name.lower()}-{digest[:16]}"


def _digest(value: Any) -> str:
    """Return a digest of arrays, labels, states, and lists of them."""
    if isinstance(value, Annotations):
        return value.fingerprint()
    if is_dataclass(value):
        value = list(vars(value).values())
    if isinstance(value, list | tuple):
        return hashlib.sha256("".join(map(_digest, value)).encode()).hexdigest()
    array = np.asarray(value)
    content = repr(value).encode() if array.dtype == object else np.ascontiguousarray(array).tobytes()
    return hashlib.sha256(f"{array.dtype}{array.shape}".encode() + content).hexdigest()


def _is_directory(value: Any) -> bool:
    return value is None or (isinstance(value, str | os.PathLike) and not Path(value).is_file())


_DIRECTORY = Rule("an existing or new directory", _is_directory)
N_WORKERS = Rule("an int >= 1, or -1 for one per core", lambda v: integer(1).holds(v) or v == -1)
RESOURCE_RULES = {"n_workers": N_WORKERS, "scratch": _DIRECTORY, "checkpoint": _DIRECTORY}
RESOURCE_RULES |= {"checkpoint_every": integer(1), "precision": choice(*PRECISIONS), "progress": PROGRESS}


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
    """Set the resources of all fits inside the block.

    Threads and processes that you start yourself need a block of their own.

    Parameters
    ----------
    cluster
        Address of a Dask scheduler, ``"local"`` for processes on this machine, or a ``distributed.Client``.
        The certificates of a ``tls://`` address come from Dask's configuration.
    n_workers
        Number of processes of a local cluster; −1 starts one for each core.
    memory
        Memory limit of a fit, for all processes together and without mapped files: ``"8GB"``, or a number of
        bytes. Messages of PGM that do not fit go to disk; a fit that needs more is refused.
    scratch
        Directory for messages that do not fit into memory; on a cluster for all messages, on a disk shared by
        all workers. Default: ``checkpoint``, or the system's temporary directory.
    checkpoint
        Directory for checkpoints. A fit with the same settings and labels resumes where an earlier one was
        stopped, with identical results. Annealing, regressions on features and models of counts have no
        checkpoints and start again.
    checkpoint_every
        Number of iterations between checkpoints.
    precision
        Precision of the messages: ``"double"``, or ``"single"``, which takes half the memory and changes the
        result slightly (see docs/scale.md).
    progress
        True or False, a function called with (title, share of the iterations done), or None for a bar on a
        terminal.
    """
    arguments = locals()
    check_rules("resources", RESOURCE_RULES, **{name: arguments[name] for name in RESOURCE_RULES})
    limit = None if memory is None else n_bytes(memory, "resources")
    if limit is not None and limit < 10**6 and not str(memory).strip()[-1].isalpha():  # 5 probably means 5 GB
        raise bad_parameter("resources", "memory", "a size such as '2GB', or 1,000,000 bytes or more", memory)
    with ExitStack() as stack:
        client, n_threads = None, 0
        if cluster is not None:
            from dissensus.large.dask import connect, running_workers

            client = stack.enter_context(connect(cluster, n_workers=n_workers))
            n_threads = sum(running_workers(client).values())
        scratch, checkpoint = (path and Path(path).absolute() for path in (scratch, checkpoint))
        folders = scratch, checkpoint, checkpoint_every
        granted = Resources(limit, None, progress, precision, n_threads, client, *folders)
        with using(granted):
            yield granted
