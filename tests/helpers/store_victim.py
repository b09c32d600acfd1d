"""Write a store in child processes that are stopped by SIGKILL or by a full disk.

    python store_victim.py FILE STORE PLANS…

A plan is ``progress=3`` (killed at the third progress report), ``sync=3`` (at the third synced file) or
``bytes=3`` (maximum file size). Standard output has, for each plan, the exit code of the child, its error if
any, and the content of the store.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
from typing import Any

import pandas  # noqa: F401  imported once for all children

import dissensus as ds
from dissensus.tables import atomic, delimited


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def countdown(n: int) -> Any:
    """Return a function that kills the process at its n-th call."""
    remaining = [n]

    def call(*_: Any) -> None:
        remaining[0] -= 1
        if not remaining[0]:
            die()

    return call


def write(file: str, store: str, kind: str, value: float) -> None:
    vars(delimited)["_CSV_BLOCK_BYTES"] = 2048
    progress = countdown(int(value)) if kind == "progress" else lambda title, share: None
    if kind == "sync":
        count, real = countdown(int(value)), atomic.sync
        vars(atomic)["sync"] = lambda path: (real(path), count())
    if kind == "bytes":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(value), int(value)))
    ds.write_store(file, store, progress=progress)


def main() -> None:
    file, store, *plans = sys.argv[1:]
    for plan in plans:
        kind, _, value = plan.partition("=")
        sys.stdout.flush()
        child = os.fork()
        if not child:
            try:
                write(file, store, kind, float(value or 0))
            except ds.DissensusError as error:
                print(plan, error, flush=True)
                os._exit(2)
            os._exit(0)
        print(plan, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        check(store)


def check(store: str) -> None:
    """Print the number of labels in the store."""
    manifest = ds.read_annotations(store) if os.path.exists(store) else None  # noqa: PTH110
    print("found", manifest.n_labels if manifest else None, flush=True)


if __name__ == "__main__":
    main()
