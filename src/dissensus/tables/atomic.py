"""Outputs that are whole or absent.

A writer fills a temporary sibling of the place asked for; only when it has finished, and the bytes are on the
disk, does the result take its name. A crash, a full disk or Ctrl-C leaves what was there before.

A file takes its place by ``os.replace``. A directory that is there already is moved aside and the new one
takes its name: two renames, under a lock on the folder above. Between the two no reader of ours looks, and
where a process is killed there, the next one that reads or writes puts the old directory back.

Temporary files lie in a hidden folder beside the target, held by a lock that ends with the process; what
killed runs left there is removed by the next one that writes beside it.

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
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path

from dissensus.errors import DataError, system_words

# Errors of a disk that cannot take more; the writer's own errors pass through unchanged.
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
_BEFORE: ContextVar[Callable[[], None]] = ContextVar("before", default=lambda: None)

Place = str | os.PathLike[str]


@contextmanager
def telling(before: Callable[[], None] = lambda: None) -> Iterator[Callable[[], None]]:
    """Call ``before`` when the result written in the block is whole and about to take its name.

    Yield the function that was to be called until now: a writer calls that one, and its parts call nothing.
    """
    outer, token = _BEFORE.get(), _BEFORE.set(before)
    try:
        yield outer
    finally:
        _BEFORE.reset(token)


@contextmanager
def atomic_path(path: Place) -> Iterator[Path]:
    """Yield a temporary file (same name) that becomes ``path`` when the block ends well.

    Missing parent folders are made. A symbolic link is written through, and a file that is replaced leaves
    its mode to the new one. A pipe or a device such as ``/dev/stdout`` cannot be renamed onto: it receives
    the finished bytes instead.
    """
    with atomic_paths([path]) as (temporary,):
        yield temporary


@contextmanager
def atomic_paths(paths: Sequence[Place]) -> Iterator[list[Path]]:
    """Yield a temporary file for each path; all are whole before the first of them takes its name."""
    with telling() as before, ExitStack() as stack:
        moves: list[tuple[Path, Path]] = []
        for path in map(Path, paths):
            if path.is_dir():
                raise DataError(f"{path}: is a directory; name a file to write")
            pipe = path.exists() and not path.is_file()
            target = path if pipe else Path(os.path.realpath(path))
            parent = Path(tempfile.gettempdir()) if pipe else target.parent
            temporary = stack.enter_context(_hidden_folder(path, parent)) / target.name
            temporary.touch()
            moves.append((temporary, target))
        yield [temporary for temporary, _ in moves]
        for temporary, target in moves:
            _finish(temporary, target)
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
    path: Place, without: Callable[[Path], Collection[str]] = lambda _: ()
) -> Iterator[Path]:
    """Yield an empty temporary folder that becomes ``path`` when the block ends well.

    Where ``path`` already holds files, those of the same name are replaced and any other is kept, except
    those that ``without`` names (it is given the finished folder). Where a directory cannot be moved (a
    mounted folder, the one we are in), files are replaced one after another, those in the folder itself last.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_dir():
        raise DataError(f"{path}: is a file; name a directory to write into")
    with telling() as before, _hidden_folder(path, target.parent) as folder:
        new = folder / "new"
        new.mkdir()
        yield new
        names = [file.relative_to(new) for file in new.rglob("*") if not file.is_dir()]
        for name in names:
            if (target / name).is_dir():
                raise DataError(f"{path}: holds a folder called {name} where a file should go; remove it")
            _finish(new / name, target / name)
        removed = {target / name for name in without(new)}
        before()
        with held(target.parent):
            try:
                _move(folder, target, removed.union(target / name for name in names))
            except OSError as error:
                if error.errno in _DISK_ERRORS:
                    raise
                # The file that lists the others lies in the folder itself.
                for name in sorted(names, key=lambda name: (len(name.parts) == 1, name)):
                    (target / name).parent.mkdir(parents=True, exist_ok=True)
                    (new / name).replace(target / name)
                for file in removed:
                    file.unlink(missing_ok=True)
                sync(target)
        sync(target.parent)


def _finish(new: Path, old: Path) -> None:
    """Put a file's bytes on the disk, and give it the mode of the one that it replaces."""
    sync(new)
    with suppress(OSError):
        new.chmod(stat.S_IMODE(old.stat().st_mode))


def _move(folder: Path, target: Path, replaced: Collection[Path]) -> None:
    """Complete the new directory with links to files of the old one that are kept, and exchange both."""
    new, old = folder / "new", folder / "old" / target.name

    def unwanted(inside: str, names: list[str]) -> list[str]:
        return [name for name in names if is_left_over(name) or Path(inside, name) in replaced]

    old.parent.mkdir()
    if target.exists():
        if Path.cwd().is_relative_to(target):
            raise OSError(errno.EBUSY, "a process at work there would find itself in a folder that is gone")
        shutil.copytree(target, new, True, unwanted, os.link, dirs_exist_ok=True)
    for part in (folder, new, *filter(Path.is_dir, new.rglob("*"))):
        sync(part)
    try:
        if target.exists():
            target.rename(old)
        new.rename(target)
    finally:
        _put_back(target.parent)
    old.parent.rename(folder / "gone")  # from here on nothing is put back


def restore(path: Place) -> None:
    """Put back a directory that a killed process had moved aside; wait for one that is being replaced."""
    target = Path(os.path.realpath(path))
    if not target.exists():
        with suppress(OSError), held(target.parent):
            _put_back(target.parent)


def _put_back(parent: Path) -> None:
    """Give directories below ``parent``, whose lock is held, the names that they were moved from."""
    for old in parent.glob(".dissensus-*/old/*"):
        if is_left_over(old.parts[-3]) and not (parent / old.name).exists():
            old.rename(parent / old.name)


@contextmanager
def _hidden_folder(path: Place, parent: Path) -> Iterator[Path]:
    """Make a folder below ``parent`` for what is to become ``path``, remove it afterwards whatever happens.

    Refusals of the disk become one line.
    """
    folder = parent / f".dissensus-{uuid.uuid4().hex[:8]}"
    try:
        with ExitStack() as stack:
            parent.mkdir(parents=True, exist_ok=True)
            with held(parent):  # nobody takes the folder for abandoned before we hold it
                _put_back(parent)
                for left in parent.glob(".dissensus-*"):
                    with suppress(OSError), held(left, wait=False) as abandoned:
                        if abandoned and is_left_over(left.name):
                            shutil.rmtree(left, ignore_errors=True)
                folder.mkdir()
                stack.enter_context(held(folder))
            yield folder
    except OSError as error:
        file, ours = str(error.filename or " "), str(folder)
        if not (ours.startswith(file) or ours in file or error.errno in _DISK_ERRORS):
            raise
        reason = system_words(error)
        raise DataError(f"{path}: cannot be written ({reason}); choose another place to write") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_left_over(name: str) -> bool:
    """Tell the name of a temporary folder, of a run at work or of one that was killed."""
    return re.fullmatch(r"\.dissensus-[0-9a-f]{8}", name) is not None


def sync(path: Path) -> None:
    """Put a file's bytes, or a folder's names, on the disk (where the system can do that for a folder)."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno in _DISK_ERRORS:
            raise
    finally:
        os.close(handle)


@contextmanager
def held(path: Path, *, wait: bool = True, create: bool = False) -> Iterator[bool | None]:
    """Hold the lock of a file or a folder inside the block, and yield what :func:`take_lock` says."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR if create else os.O_RDONLY)
    try:
        yield take_lock(handle, wait=wait)
    finally:
        os.close(handle)


def take_lock(handle: int, *, wait: bool = False) -> bool | None:
    """Hold an open file for ourselves, if it is free; the lock is gone with the process, however it ends.

    None where the disk knows no locks: two runs in one place are then the user's to avoid.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
