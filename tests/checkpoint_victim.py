"""A program that fits with checkpoints and is killed at moments named, each time in a process of its own.

    python checkpoint_victim.py DIRECTORY MODEL MEMORY MOMENTS…

A moment is ``iteration=3`` (told of progress for the third time), ``sync=3`` (when the third file of a
checkpoint is put on the disk), ``rename=2`` (just before the second checkpoint takes its name), ``write=1``
(in the midst of the first state), ``link=2`` (just before the second array gets its name) or ``end`` (not at
all). Standard output says of each how the child ended.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dissensus as ds
from cluster_help import MODELS, crowd, cut_small
from dissensus.large import checkpoints


def killing(
    real: Callable[..., Any],
    n: int,
    *,
    counts: Callable[..., bool] = lambda *_: True,
    before: Callable[..., Any] = lambda *_: None,
) -> Any:
    """The same function, until it is called for the n-th time of those that count."""
    left = [n]

    def call(*args: Any, **more: Any) -> Any:
        left[0] -= counts(*args)
        if not left[0]:
            before(*args)
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **more)

    return call


def half(file: Path, *content: Any) -> None:
    file.write_bytes(b"half")


def fit(folder: str, model: str, memory: int, moment: str) -> None:
    how, _, n = moment.partition("=")
    progress = killing(lambda *_: None, int(n)) if how == "iteration" else None
    vars(checkpoints)["sync"] = lambda path: None
    if how == "sync":
        vars(checkpoints)["sync"] = killing(checkpoints.sync, int(n))
    if how == "rename":
        named = lambda _, target: Path(target).name.startswith("step")  # noqa: E731
        Path.rename = killing(Path.rename, int(n), counts=named)  # type: ignore[method-assign]
    if how == "write":
        vars(checkpoints)["write_arrays"] = killing(checkpoints.write_arrays, int(n), before=half)
    if how == "link":
        os.link = killing(os.link, int(n))
    with ds.resources(memory=memory or None, checkpoint=folder, checkpoint_every=2, progress=progress):
        MODELS[model]().fit(crowd())


def main() -> None:
    folder, model, memory, *moments = sys.argv[1:]
    cut_small()
    for moment in moments:
        child = os.fork()
        if not child:
            fit(folder, model, int(memory), moment)
            os._exit(0)
        print(moment, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
