"""Atomic writes: an output file or directory appears complete or not at all.

The writer fills a temporary file or folder next to the target. Only when it has finished, and the bytes are
on the disk, is the result renamed. After a crash, a full disk or Ctrl-C the previous version is still there.

A file is replaced with ``os.replace``. A directory takes two renames (the old one is moved aside), under a
lock on the parent folder that readers respect. If a process is killed between the two renames, the next one
that reads or writes there moves the old directory back.

Temporary files are in a hidden folder next to the target, which is locked while its process lives. Folders
left by killed processes are removed by the next writer.

    >>> with atomic_path("labels.csv") as temporary:        # doctest: +SKIP
    ...     temporary.write_text("item,label\\n")
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from dissensus.errors import DataError, setting_variable, system_words
from dissensus.labels.vocabulary import valid_text

# Errors of the disk itself; other errors of a writer are raised unchanged.
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
_BEFORE_RENAME: ContextVar[Callable[[], None]] = ContextVar("before_rename", default=lambda: None)

PathName = str | os.PathLike[str]


def calling_before_rename(callback: Callable[[], None] = lambda: None) -> AbstractContextManager[Any]:
    """Call ``callback`` when a result written in the block is complete and about to be renamed.

    Yield the callback set by the enclosing block. A writer calls that one itself, so nested writers call
    nothing.
    """
    return setting_variable(_BEFORE_RENAME, callback)


@contextmanager
def atomic_path(path: PathName) -> Iterator[Path]:
    """Yield a temporary file (same name) that becomes ``path`` when the block succeeds.

    Missing parent folders are created, symbolic links are followed, and the mode of a replaced file is kept.
    A pipe or device such as ``/dev/stdout`` cannot be replaced, so the finished bytes are copied to it.
    """
    with atomic_paths([path]) as (temporary,):
        yield temporary


@contextmanager
def atomic_paths(paths: Sequence[PathName]) -> Iterator[list[Path]]:
    """Yield a temporary file for each path; all of them are complete before the first is renamed."""
    with calling_before_rename() as before, ExitStack() as stack:
        moves: list[tuple[Path, Path]] = []
        for path in map(Path, paths):
            if path.is_dir():
                raise DataError(f"{path}: is a directory; name a file to write")
            is_pipe = path.exists() and not path.is_file()
            target = path if is_pipe else Path(os.path.realpath(path))
            parent = Path(tempfile.gettempdir()) if is_pipe else target.parent
            temporary = stack.enter_context(_hidden_folder(path, parent)) / target.name
            temporary.touch()
            moves.append((temporary, target))
        yield [temporary for temporary, _ in moves]
        for temporary, target in moves:
            _sync_with_mode(temporary, target)
        before()
        for temporary, target in moves:
            if target.is_file() or not target.exists():
                temporary.replace(target)
                sync(target.parent)
            else:
                with temporary.open("rb") as reader, target.open("wb") as writer:
                    shutil.copyfileobj(reader, writer)


@contextmanager
def atomic_directory(
    path: PathName, obsolete: Callable[[Path], Collection[str]] = lambda _: ()
) -> Iterator[Path]:
    """Yield an empty temporary folder that becomes ``path`` when the block succeeds.

    If ``path`` already exists, files of the same name are replaced and the others are kept, except those that
    ``obsolete`` returns for the finished folder. If the directory cannot be renamed (a mount point, or the
    current directory), its files are replaced one by one, those at its top level last.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_dir():
        raise DataError(f"{path}: is a file; name a directory to write into")
    with calling_before_rename() as before, _hidden_folder(path, target.parent) as folder:
        new = folder / "new"
        new.mkdir()
        yield new
        names = [file.relative_to(new) for file in new.rglob("*") if not file.is_dir()]
        for name in names:
            if (target / name).is_dir():
                problem = f"contains a folder {name}, but a file of that name must be written"
                raise DataError(f"{path}: {problem}; remove it")
            _sync_with_mode(new / name, target / name)
        removed = {target / name for name in obsolete(new)}
        before()
        with locked(target.parent):
            try:
                _exchange(folder, target, removed.union(target / name for name in names))
            except OSError as error:
                if error.errno in _DISK_ERRORS:
                    raise
                # The summary, which lists the other files, is at the top level and comes last.
                for name in sorted(names, key=lambda name: (len(name.parts) == 1, name)):
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                    (new / name).replace(target / name)
                for file in removed:
                    file.unlink(missing_ok=True)
                sync(target)
        sync(target.parent)


def _sync_with_mode(new: Path, old: Path) -> None:
    """Flush a file to the disk, and copy the mode of the file it replaces."""
    sync(new)
    with suppress(OSError):
        new.chmod(stat.S_IMODE(old.stat().st_mode))


def _exchange(folder: Path, target: Path, replaced: Collection[Path]) -> None:
    """Link the files to keep into ``folder/new``, then exchange it with the target directory."""
    new, old = folder / "new", folder / "old" / target.name

    def ignored(parent: str, names: list[str]) -> list[str]:
        return [name for name in names if is_temporary_name(name) or Path(parent, name) in replaced]

    old.parent.mkdir()
    if target.exists():
        if Path.cwd().is_relative_to(target):
            raise OSError(errno.EBUSY, "the current directory would be moved")
        shutil.copytree(target, new, True, ignored, os.link, dirs_exist_ok=True)
    for part in (folder, new, *filter(Path.is_dir, new.rglob("*"))):
        sync(part)
    try:
        if target.exists():
            target.rename(old)
        new.rename(target)
    finally:
        _put_back(target.parent)
    old.parent.rename(folder / "gone")  # from here on nothing is put back


@contextmanager
def unchanged(path: PathName) -> Iterator[None]:
    """Keep other processes and threads from replacing a directory inside the block.

    A directory that a killed process had moved aside is moved back first.
    """
    target = Path(os.path.realpath(path))
    with ExitStack() as stack:
        # A temporary folder is locked by its writer, the only one to replace what is inside.
        if not is_temporary_name(target.parent.name):
            with suppress(OSError):
                stack.enter_context(locked(target.parent))
                _put_back(target.parent)
        yield


def restore(path: PathName) -> None:
    """Move back a directory that a killed process had moved aside; wait if it is being replaced."""
    if not Path(path).exists():
        with unchanged(path):
            pass


def _put_back(parent: Path) -> None:
    """Move directories back to where they were below ``parent``, whose lock the caller holds."""
    for old in parent.glob(".dissensus-*/old/*"):
        if is_temporary_name(old.parts[-3]) and not (parent / old.name).exists():
            old.rename(parent / old.name)


@contextmanager
def _hidden_folder(path: PathName, parent: Path) -> Iterator[Path]:
    """Create a temporary folder in ``parent`` and remove it afterwards; report disk errors in one line."""
    folder = parent / f".dissensus-{uuid.uuid4().hex[:8]}"
    if valid_text(str(path)) != str(path):  # Arrow opens no such names
        raise DataError(f"{path}: the name is not UTF-8; choose another path to write to")
    try:
        with ExitStack() as stack:
            parent.mkdir(parents=True, exist_ok=True)
            with locked(parent):  # no other writer takes the folder for abandoned before it is locked
                _put_back(parent)
                for other in parent.glob(".dissensus-*"):
                    with suppress(OSError), locked(other, wait=False) as abandoned:
                        if abandoned and is_temporary_name(other.name):
                            shutil.rmtree(other, ignore_errors=True)
                folder.mkdir()
                stack.enter_context(locked(folder))
            yield folder
    except OSError as error:
        file, ours = str(error.filename or " "), str(folder)
        if not (ours.startswith(file) or ours in file or error.errno in _DISK_ERRORS):
            raise
        reason = system_words(error)
        raise DataError(f"{path}: cannot be written ({reason}); choose another path to write to") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_temporary_name(name: str) -> bool:
    """Return True for the name of a temporary folder of this module."""
    return re.fullmatch(r"\.dissensus-[0-9a-f]{8}", name) is not None


def sync(path: Path) -> None:
    """Flush a file's bytes or a folder's entries to the disk (where the system can do so for a folder)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno in _DISK_ERRORS:
            raise
    finally:
        os.close(handle)


@contextmanager
def locked(path: Path, *, wait: bool = True, create: bool = False) -> Iterator[bool | None]:
    """Lock a file or folder inside the block, and yield the result of :func:`take_lock`."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR if create else os.O_RDONLY)
    try:
        yield take_lock(handle, wait=wait)
    finally:
        os.close(handle)


def take_lock(handle: int, *, wait: bool = False) -> bool | None:
    """Take the exclusive lock of an open file, which ends with the process.

    Return False if another process has it, and None if the file system has no locks; then users must not run
    two processes in one directory.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
