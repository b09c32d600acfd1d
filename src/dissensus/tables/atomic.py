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

# What a disk says when it cannot take more: the writer's own errors pass through unchanged.
_DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS}
_HIDDEN = ".dissensus-"  # and eight digits: a folder for what is being written
_NEW, _OLD, _GONE = "new", "old", "gone"  # in it: a directory in the making, one moved aside, one replaced

Place = str | os.PathLike[str]


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
    with publication() as tell, ExitStack() as stack:
        moves: list[tuple[Path, Path, bool]] = []
        for path in paths:
            pipe = Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir())
            target = Path(path) if pipe else Path(os.path.realpath(path))
            if target.is_dir():
                raise DataError(f"{path}: is a directory; name a file to write")
            parent = Path(tempfile.gettempdir()) if pipe else target.parent
            temporary = stack.enter_context(_hidden_folder(path, parent)) / target.name
            temporary.touch()
            moves.append((temporary, target, pipe))
        yield [temporary for temporary, *_ in moves]
        for temporary, target, _ in moves:
            _keep_mode(target, temporary)
            sync(temporary)
        tell()
        for temporary, target, pipe in moves:
            if pipe:
                with temporary.open("rb") as reader, target.open("wb") as writer:
                    shutil.copyfileobj(reader, writer)
            else:
                temporary.replace(target)
                sync(target.parent)


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
    with publication() as tell, _hidden_folder(path, target.parent) as folder:
        new = folder / _NEW
        new.mkdir()
        yield new
        for file in _files(new):
            name = file.relative_to(new)
            if (target / name).is_dir():
                raise DataError(f"{path}: holds a folder called {name} where a file should go; remove it")
            _keep_mode(target / name, file)
            sync(file)
        removed = without(new)
        tell()
        with held(target.parent, wait=True):
            if not target.exists():
                new.rename(target)
            elif not _swapped(folder, target, removed):
                _replace_files(new, target, removed)
        sync(target.parent)


def _files(folder: Path) -> list[Path]:
    """All files below, those in the folder itself last: the one that names the others is among them."""
    found = [file for file in folder.rglob("*") if not file.is_dir() or file.is_symlink()]
    return sorted(found, key=lambda file: (file.parent == folder, file))


def _keep_mode(old: Path, new: Path) -> None:
    """Give a file or folder the mode of the one that it replaces."""
    with suppress(OSError):
        new.chmod(stat.S_IMODE(old.stat().st_mode))


# ---- one directory in the place of another ------------------------------------------------------------


def _swapped(folder: Path, target: Path, without: Collection[str]) -> bool:
    """Complete the new directory with what is kept of the old one, and move both; False where that fails."""
    new, old = folder / _NEW, folder / _OLD / target.name
    removed = {target / name for name in without}

    def link(source: str, copy: str) -> None:
        if not Path(copy).exists():
            os.link(source, copy, follow_symlinks=False)

    def unwanted(inside: str, names: list[str]) -> list[str]:
        return [name for name in names if is_left_over(name) or Path(inside, name) in removed]

    try:
        if target in (Path.cwd(), *Path.cwd().parents):
            return False  # whoever works there would find themselves in a folder that is gone
        shutil.copytree(target, new, True, unwanted, link, dirs_exist_ok=True)
        old.parent.mkdir()
        for part in (folder, new, *(part for part in new.rglob("*") if part.is_dir())):
            sync(part)
        try:
            target.rename(old)
            new.rename(target)
        finally:
            _put_back(folder)
        old.parent.rename(folder / _GONE)
    except OSError as error:
        if error.errno in _DISK_ERRORS:
            raise
        return False
    return True


def _replace_files(new: Path, target: Path, without: Collection[str]) -> None:
    for file in _files(new):
        place = target / file.relative_to(new)
        if place.exists() and place.samefile(file):
            continue  # linked here from the old folder
        place.parent.mkdir(parents=True, exist_ok=True)
        file.replace(place)
    for name in without:
        (target / name).unlink(missing_ok=True)
    sync(target)


def restore(path: Place) -> None:
    """Put back a directory that a killed process had moved aside; wait for one that is being replaced."""
    target = Path(os.path.realpath(path))
    if not target.exists() and target.parent.is_dir():
        with suppress(OSError), held(target.parent, wait=True):
            for folder in _hidden_folders(target.parent):
                _put_back(folder)


def _put_back(folder: Path) -> None:
    for old in (folder / _OLD).glob("*"):
        if not (folder.parent / old.name).exists():
            old.rename(folder.parent / old.name)


# ---- the moment of publication ------------------------------------------------------------------------

_BEFORE: ContextVar[Callable[[], None]] = ContextVar("before", default=lambda: None)


@contextmanager
def telling(before: Callable[[], None]) -> Iterator[None]:
    """Call ``before`` when the result written in the block is whole and about to take its name."""
    token = _BEFORE.set(before)
    try:
        yield
    finally:
        _BEFORE.reset(token)


@contextmanager
def publication() -> Iterator[Callable[[], None]]:
    """What a writer calls before its result takes its name; what it writes inside, as parts, tells nobody."""
    before = _BEFORE.get()
    with telling(lambda: None):
        yield before


# ---- temporary folders --------------------------------------------------------------------------------


@contextmanager
def _hidden_folder(path: Place, parent: Path) -> Iterator[Path]:
    """A folder of our own below ``parent`` for what is to become ``path``; gone afterwards."""
    folder = parent / f"{_HIDDEN}{uuid.uuid4().hex[:8]}"
    with gone_afterwards(path, folder), ExitStack() as stack:
        parent.mkdir(parents=True, exist_ok=True)
        with held(parent, wait=True):  # nobody takes the folder for abandoned before we hold it
            for left in _hidden_folders(parent):
                with suppress(OSError), held(left, where_there_are_none=False) as free:
                    if free:
                        _put_back(left)
                        shutil.rmtree(left, ignore_errors=True)
            folder.mkdir()
            stack.enter_context(held(folder))
        yield folder


def _hidden_folders(parent: Path) -> list[Path]:
    return [Path(entry.path) for entry in os.scandir(parent) if is_left_over(entry.name)]


def is_left_over(name: str) -> bool:
    """Whether a file's name is that of a temporary folder, of a run at work or of one that was killed."""
    return re.fullmatch(rf"{re.escape(_HIDDEN)}[0-9a-f]{{8}}", name) is not None


@contextmanager
def gone_afterwards(path: Place, temporary: Path) -> Iterator[None]:
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
        shutil.rmtree(temporary, ignore_errors=True)


def cannot_be_written(path: Place, error: OSError) -> DataError:
    """The line for a place that takes nothing."""
    return DataError(f"{path}: cannot be written ({system_words(error)}); choose another place to write")


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


# ---- locks --------------------------------------------------------------------------------------------


@contextmanager
def held(folder: Path, *, wait: bool = False, where_there_are_none: bool = True) -> Iterator[bool]:
    """Hold a folder's lock inside the block; yield False where another process does, unless we ``wait``."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows opens no folders
        yield where_there_are_none
        return
    try:
        yield take_lock(handle, wait=wait, where_there_are_none=where_there_are_none)
    finally:
        os.close(handle)


def take_lock(handle: int, *, wait: bool = False, where_there_are_none: bool = True) -> bool:
    """Hold an open file for ourselves, if it is free; the lock is gone with the process, however it ends.

    Where the system or the disk knows no locks, two runs in one place are the user's to avoid.
    """
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return where_there_are_none
    return True
