"""Fit with checkpoints in child processes that are killed.

    python checkpoint_victim.py DIRECTORY MODEL MEMORY KILL_POINTS…

A kill point is ``iteration=3`` (the third progress report), ``sync=3`` (the third synced file), ``rename=2``
(before the second checkpoint is renamed), ``write=1`` (while writing the first state), ``link=2`` (before the
second array is linked) or ``end`` (no kill). Standard output has the exit code of each child.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dissensus as ds
from dissensus.large import checkpoints
from tests.helpers.cluster import MODELS, crowd, cut_small


def killing(
    real: Callable[..., Any],
    n: int,
    *,
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


def write_half(file: Path, *content: Any) -> None:
    file.write_bytes(b"half")


def fit(folder: str, model: str, memory: int, kill_point: str) -> None:
    kind, _, n = kill_point.partition("=")
    progress = killing(lambda *_: None, int(n)) if kind == "iteration" else None
    vars(checkpoints)["sync"] = lambda path: None
    if kind == "sync":
        vars(checkpoints)["sync"] = killing(checkpoints.sync, int(n))
    if kind == "rename":
        is_step = lambda _, target: Path(target).name.startswith("step")  # noqa: E731
        Path.rename = killing(Path.rename, int(n), counts=is_step)  # type: ignore[method-assign]
    if kind == "write":
        vars(checkpoints)["write_arrays"] = killing(checkpoints.write_arrays, int(n), before=write_half)
    if kind == "link":
        os.link = killing(os.link, int(n))
    with ds.resources(memory=memory or None, checkpoint=folder, checkpoint_every=2, progress=progress):
        MODELS[model]().fit(crowd())


def main() -> None:
    folder, model, memory, *kill_points = sys.argv[1:]
    cut_small()
    for kill_point in kill_points:
        child = os.fork()
        if not child:
            fit(folder, model, int(memory), kill_point)
            os._exit(0)
        print(kill_point, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
