"""A folder for what a fit need not keep, gone afterwards; what killed runs left behind goes with the next."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dissensus.shelf import cannot_keep

PREFIX = "dissensus-messages-"
LOCK = "lock"  # held while the folder is in use; it ends with the process, however that ends


@contextmanager
def scratch_below(folder: Path | None) -> Iterator[Path]:
    """A folder of our own below another (None: the system's place for temporary files)."""
    parent = folder or Path(tempfile.gettempdir())
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(parent)
        own = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    except OSError as error:
        raise cannot_keep(parent, error) from error
    try:
        with _held(own):
            yield own
    finally:
        _remove(own)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Locked first and named then: nobody finds a lock that is not held."""
    handle = os.open(folder / f".{LOCK}", os.O_CREAT | os.O_RDWR)
    try:
        _lock(handle)
        (folder / f".{LOCK}").rename(folder / LOCK)
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    """Take the lock, if it is free; where the system has no such locks, it never is."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True


def _remove_abandoned(parent: Path) -> None:
    for lock in parent.glob(f"{PREFIX}*/{LOCK}"):
        with suppress(OSError):
            handle = os.open(lock, os.O_RDWR)
            try:
                if _lock(handle):
                    shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(handle)


def _remove(folder: Path) -> None:
    """A worker that was not told of the end yet may write a last file meanwhile."""
    for _ in range(10):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            return
        time.sleep(0.1)
