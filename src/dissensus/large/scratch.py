"""Folders that one run has to itself: for what a fit need not keep, and for its checkpoints.

The first are gone afterwards, and what killed runs left behind goes with the next. A folder is held by a lock
on a file in it, which ends with the process, however that ends.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dissensus.errors import DataError
from dissensus.large.checkpoints import cannot_write
from dissensus.large.file_arrays import cannot_keep
from dissensus.tables.atomic import held, take_lock

PREFIX = "dissensus-messages-"
LOCK = "lock"  # held while the folder is in use
TRIES = 20  # to take a lock, where others take it and leave at the same moment


@contextmanager
def scratch_below(folder: Path | None) -> Iterator[Path]:
    """A folder of our own below another (None: the system's place for temporary files)."""
    parent = folder or Path(tempfile.gettempdir())
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for lock in parent.glob(f"{PREFIX}*/{LOCK}"):
            with suppress(OSError), held(lock, wait=False, create=True) as abandoned:
                if abandoned:
                    shutil.rmtree(lock.parent, ignore_errors=True)
        own = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    except OSError as error:
        raise cannot_keep(parent, error) from error
    try:
        # Locked first and named then: nobody finds a lock that is not held.
        with held(own / f".{LOCK}", create=True):
            (own / f".{LOCK}").rename(own / LOCK)
            yield own
    finally:
        for _ in range(10):  # a worker that was not told of the end yet may write a last file meanwhile
            shutil.rmtree(own, ignore_errors=True)
            if not own.exists():
                break
            time.sleep(0.1)


@contextmanager
def alone_in(folder: Path) -> Iterator[Path]:
    """A folder for checkpoints, while no other run uses it; gone again where nothing was put into it."""
    try:
        handle = _taken(folder)
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        yield folder
    finally:
        with suppress(OSError):
            (folder / LOCK).unlink()
            folder.rmdir()
        os.close(handle)


def _taken(folder: Path) -> int:
    """The folder's lock in our hands; one whose file was removed before we had it holds nobody off."""
    for _ in range(TRIES):
        folder.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            handle = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR)
            free = take_lock(handle) is not False
            if free and os.fstat(handle).st_nlink:
                return handle
            os.close(handle)
            if not free:
                break
    raise DataError(
        f"another run is using this checkpoint ({folder}); wait for it, or name another directory"
    )
