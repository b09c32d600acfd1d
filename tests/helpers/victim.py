"""Write a store, or fit with checkpoints, in child processes that are killed or find the disk full.

    python -m tests.helpers.victim store FILE STORE MOMENTS…
    python -m tests.helpers.victim fit DIRECTORY MODEL MEMORY MOMENTS…

A moment is ``progress=3`` (killed at the third progress report), ``sync=3`` (before the third synced file),
``rename=2`` (before the second checkpoint is renamed), ``write=1`` (while writing the first state),
``link=2`` (before the second array is linked), ``bytes=300`` (maximum file size) or ``end`` (no kill). For
each moment, the output has the exit code of the child, or its error, and the number of labels in a store.
"""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas  # noqa: F401  imported once for all children

import dissensus as ds
from dissensus.large import checkpoints
from dissensus.tables import atomic, delimited
from tests.helpers.cluster import MODELS, crowd, cut_small

ROOT = Path(__file__).resolve().parents[2]
KILLED = "-9"


def run_victim(*arguments: Any, timeout: float = 240) -> list[str]:
    """Run this program, and return the lines that it prints."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-m", "tests.helpers.victim", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def killing(
    n: int,
    real: Callable[..., Any] = lambda *_: None,
    counts: Callable[..., bool] = lambda *_: True,
    before: Callable[..., Any] = lambda *_: None,
) -> Any:
    """Return a function that kills the process at the n-th counted call."""
    remaining = [n]

    def call(*args: Any, **options: Any) -> Any:
        remaining[0] -= counts(*args)
        if not remaining[0]:
            before(*args)
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **options)

    return call


def write_store(file: str, store: str, kind: str, n: int) -> None:
    vars(delimited)["_CSV_BLOCK_BYTES"] = 2048
    if kind == "sync":
        vars(atomic)["sync"] = killing(n, atomic.sync)
    if kind == "bytes":
        resource.setrlimit(resource.RLIMIT_FSIZE, (n, n))
    ds.write_store(file, store, progress=killing(n if kind == "progress" else 0))


def fit(folder: str, model: str, memory: str, kind: str, n: int) -> None:
    cut_small()
    vars(checkpoints)["sync"] = killing(n if kind == "sync" else 0)
    if kind == "rename":
        is_step = lambda _, target: Path(target).name.startswith("step")  # noqa: E731
        Path.rename = killing(n, Path.rename, is_step)  # type: ignore[method-assign]
    if kind == "write":
        half = lambda file, *_: file.write_bytes(b"half")  # noqa: E731
        vars(checkpoints)["write_arrays"] = killing(n, checkpoints.write_arrays, before=half)
    if kind == "link":
        os.link = killing(n, os.link)
    progress = killing(n) if kind == "progress" else None
    with ds.resources(memory=int(memory) or None, checkpoint=folder, checkpoint_every=2, progress=progress):
        MODELS[model]().fit(crowd())


def main(work: str, *arguments: str) -> None:
    act, n_arguments = (write_store, 2) if work == "store" else (fit, 3)
    for moment in arguments[n_arguments:]:
        kind, _, n = moment.partition("=")
        sys.stdout.flush()
        child = os.fork()
        if not child:
            try:
                act(*arguments[:n_arguments], kind, int(n or 0))
            except ds.DissensusError as error:
                print(moment, error, flush=True)
                os._exit(2)
            os._exit(0)
        print(moment, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        if work == "store":
            n_labels = ds.read_annotations(arguments[1]).n_labels if Path(arguments[1]).exists() else None
            print("labels:", n_labels, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
