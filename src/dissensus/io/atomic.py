"""Outputs that are whole or absent.

A writer fills a temporary sibling of the place asked for; only when it has finished, and the bytes are on the
disk, does the result take its name. A crash, a full disk or Ctrl-C leaves what was there before.

    >>> with atomic_path("labels.csv") as temporary:        # doctest: +SKIP
    ...     temporary.write_text("item,label\\n")
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dissensus.errors import DataError, system_words

# What a disk says when it cannot take more: the writer's own errors pass through unchanged.
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}


@contextmanager
def atomic_path(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary sibling of ``path`` (same suffixes) that becomes ``path`` when the block ends well.

    Missing parent folders are made. A symbolic link is written through. A pipe or a device such as
    ``/dev/stdout`` cannot be renamed onto: it receives the finished bytes instead.
    """
    special = Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir())
    target = Path(path) if special else _real(path)
    if target.is_dir():
        raise DataError(f"{path}: is a directory; name a file to write")
    temporary = _sibling(Path(tempfile.gettempdir()) / target.name if special else target)
    with gone_afterwards(path, temporary):
        temporary.parent.mkdir(parents=True, exist_ok=True)
        temporary.touch()
        yield temporary
        if special:
            _copy_bytes(temporary, target)
        else:
            sync(temporary)
            temporary.replace(target)
            sync(target.parent)


@contextmanager
def atomic_directory(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield an empty temporary folder whose files become those of ``path`` when the block ends well.

    Where ``path`` already holds files, those of the same name are replaced, one rename each, once all the new
    ones are complete; any other file there is left alone.
    """
    target = _real(path)
    if target.exists() and not target.is_dir():
        raise DataError(f"{path}: is a file; name a directory to write into")
    temporary = _sibling(target)
    with gone_afterwards(path, temporary):
        temporary.mkdir(parents=True)
        yield temporary
        for file in _files(temporary):
            sync(file)
        _check_no_clash(temporary, target, path)
        _move_in(temporary, target)


def _real(path: str | os.PathLike[str]) -> Path:
    """The place itself: absolute, symbolic links followed."""
    return Path(os.path.realpath(path))


def _sibling(target: Path) -> Path:
    """A free hidden name beside ``target``, suffixes kept: writers choose format and compression by them."""
    return target.with_name(f".{uuid.uuid4().hex[:8]}-{target.name}")


@contextmanager
def gone_afterwards(path: str | os.PathLike[str], temporary: Path) -> Iterator[None]:
    """Remove ``temporary`` whatever happens, and turn the disk's refusals into one line."""
    try:
        yield
    except OSError as error:
        ours = error.filename is not None and str(temporary) in str(error.filename)
        parent = error.filename is not None and str(temporary).startswith(str(error.filename))
        if ours or parent or error.errno in _DISK_ERRORS:
            raise cannot_be_written(path, error) from error
        raise
    finally:
        _remove(temporary)


def cannot_be_written(path: str | os.PathLike[str], error: OSError) -> DataError:
    """The line for a place that takes nothing."""
    return DataError(f"{path}: cannot be written ({system_words(error)}); choose another place to write")


def _remove(temporary: Path) -> None:
    if temporary.is_dir():
        shutil.rmtree(temporary, ignore_errors=True)
    else:
        with suppress(OSError):
            temporary.unlink()


def _copy_bytes(source: Path, target: Path) -> None:
    with source.open("rb") as reader, target.open("wb") as writer:
        shutil.copyfileobj(reader, writer)


def sync(path: Path) -> None:
    """Put a file's bytes, or a folder's names, on the disk (where the system lets a folder be opened)."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno in _DISK_ERRORS:
            raise
    finally:
        os.close(handle)


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


def _check_no_clash(temporary: Path, target: Path, path: str | os.PathLike[str]) -> None:
    """Refuse before the first rename what would stop a later one: a folder where a file should go."""
    for file in _files(temporary):
        name = file.relative_to(temporary)
        if (target / name).is_dir():
            raise DataError(f"{path}: holds a folder called {name} where a file should go; remove it")


def _move_in(temporary: Path, target: Path) -> None:
    if not target.exists():
        temporary.rename(target)
    else:
        for file in _files(temporary):
            place = target / file.relative_to(temporary)
            place.parent.mkdir(parents=True, exist_ok=True)
            file.replace(place)
        sync(target)
    sync(target.parent)


def take_lock(handle: int, *, where_there_are_none: bool = True) -> bool:
    """Hold an open file for ourselves, if it is free; the lock is gone with the process, however it ends.

    Where the system or the disk knows no locks, two runs in one place are the user's to avoid.
    """
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return where_there_are_none
    return True
