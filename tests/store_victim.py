"""A program whose child writes a store and is stopped: by SIGKILL at a moment named, or by a full disk.

    python store_victim.py FILE STORE PLANS…

A plan is ``progress=3`` (killed when told of progress for the third time), ``sync=3`` (when the third file is
put on the disk), ``seconds=0.3`` (after so many) or ``bytes=3`` (no file may be larger). Standard output says
of each how the child ended, its error if it had one, and what is in the store then.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from typing import Any

import pandas  # noqa: F401  Arrow loads it at times; once is enough for all children

import dissensus as ds
from dissensus.tables import atomic, delimited


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def countdown(n: int) -> Any:
    """A function that kills the process when it is called for the n-th time."""
    left = [n]

    def call(*_: Any) -> None:
        left[0] -= 1
        if not left[0]:
            die()

    return call


def write(file: str, store: str, how: str, when: float) -> None:
    vars(delimited)["_BLOCK"] = 2048
    progress = countdown(int(when)) if how == "progress" else lambda what, share: None
    if how == "sync":
        count, real = countdown(int(when)), atomic.sync
        vars(atomic)["sync"] = lambda path: (real(path), count())
    if how == "seconds":
        threading.Timer(when, die).start()
    if how == "bytes":
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(when), int(when)))
    ds.write_store(file, store, progress=progress)


def main() -> None:
    file, store, *plans = sys.argv[1:]
    for plan in plans:
        how, _, when = plan.partition("=")
        sys.stdout.flush()
        child = os.fork()
        if not child:
            try:
                write(file, store, how, float(when or 0))
            except ds.DissensusError as error:
                print(plan, error, flush=True)
                os._exit(2)
            os._exit(0)
        print(plan, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        check(store)


def check(store: str) -> None:
    """What anybody would find now."""
    manifest = ds.read_annotations(store) if os.path.exists(store) else None  # noqa: PTH110
    print("found", manifest.n_labels if manifest else None, flush=True)


if __name__ == "__main__":
    main()
