"""Outputs that are whole or absent.

A writer fills a temporary sibling of the place asked for; only when it has finished, and the bytes are on the
disk, does the result take its name. A crash, a full disk or Ctrl-C leaves what was there before. Where a
directory stands already, the new one changes places with it in a single step.

Temporary files lie in a hidden folder beside the target, held by a lock that ends with the process; what
killed runs left there is removed by the next one that writes beside it.

    >>> with atomic_path("labels.csv") as temporary:        # doctest: +SKIP
    ...     temporary.write_text("item,label\\n")
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import shutil
import stat
import sys
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
_LEFT = re.compile(r"\.dissensus-[0-9a-f]{8}")

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
    """The same of several files: all are whole before the first of them takes its name."""
    with publication() as tell, ExitStack() as stack:
        both = [stack.enter_context(_file_for(path)) for path in paths]
        yield [temporary for temporary, _ in both]
        for temporary, target in both:
            _keep_mode(target, temporary)
            sync(temporary)
        tell()
        for temporary, target in both:
            _put(temporary, target)


@contextmanager
def _file_for(path: Place) -> Iterator[tuple[Path, Path]]:
    """A temporary file and the place that it is for."""
    special = Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir())
    target = Path(path) if special else _real(path)
    if target.is_dir():
        raise DataError(f"{path}: is a directory; name a file to write")
    with _hidden_folder(path, Path(tempfile.gettempdir()) if special else target.parent) as folder:
        temporary = folder / target.name
        temporary.touch()
        yield temporary, target


def _put(temporary: Path, target: Path) -> None:
    if target.exists() and not target.is_file():
        _copy_bytes(temporary, target)
    else:
        temporary.replace(target)
        sync(target.parent)


@contextmanager
def atomic_directory(
    path: Place, without: Callable[[Path], Collection[str]] = lambda _: ()
) -> Iterator[Path]:
    """Yield an empty temporary folder that becomes ``path`` when the block ends well.

    Where ``path`` already holds files, those of the same name are replaced and any other is kept, except
    those that ``without`` names (it is given the finished folder). The new folder and the old one change
    places in one step. Where that cannot be done (a mounted folder, the one we are in, another system), files
    are replaced one after another, those in the folder itself last.
    """
    target = _real(path)
    if target.exists() and not target.is_dir():
        raise DataError(f"{path}: is a file; name a directory to write into")
    with publication() as tell, _hidden_folder(path, target.parent) as folder:
        temporary = folder / "new"
        temporary.mkdir()
        yield temporary
        _check_no_clash(temporary, target, path)
        for file in _files(temporary):
            _keep_mode(target / file.relative_to(temporary), file)
            sync(file)
        tell()
        _take_place(temporary, target, without(temporary))
        sync(target.parent)


def _real(path: Place) -> Path:
    """The place itself: absolute, symbolic links followed."""
    return Path(os.path.realpath(path))


# ---- the moment of publication ------------------------------------------------------------------------


def _nobody() -> None:
    return


_BEFORE: ContextVar[Callable[[], None]] = ContextVar("before", default=_nobody)


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
    with telling(_nobody):
        yield before


# ---- temporary folders --------------------------------------------------------------------------------


@contextmanager
def _hidden_folder(path: Place, parent: Path) -> Iterator[Path]:
    """A folder of our own below ``parent`` for what is to become ``path``; gone afterwards."""
    with gone_afterwards(path, parent / _HIDDEN):
        parent.mkdir(parents=True, exist_ok=True)
        _remove_left(parent)
        folder, handle = _held_folder(parent)
    try:
        with gone_afterwards(path, folder):
            yield folder
    finally:
        if handle is not None:
            os.close(handle)


def _held_folder(parent: Path) -> tuple[Path, int | None]:
    """A new folder, held by a lock for as long as its handle is open (None: the system opens no folders)."""
    while True:
        folder = parent / f"{_HIDDEN}{uuid.uuid4().hex[:8]}"
        folder.mkdir()
        try:
            handle = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue
        except PermissionError:  # Windows
            return folder, None
        # Before we held it, another run may have taken it for abandoned.
        if take_lock(handle) and folder.exists():
            return folder, handle
        os.close(handle)


def is_left_over(name: str) -> bool:
    """Whether a file's name is that of a temporary folder, of a run at work or of one that was killed."""
    return _LEFT.fullmatch(name) is not None


def _remove_left(parent: Path) -> None:
    """Remove what killed runs left: folders of ours that nobody holds."""
    for left in [entry for entry in os.scandir(parent) if is_left_over(entry.name)]:
        with suppress(OSError):
            handle = os.open(left.path, os.O_RDONLY)
            try:
                if take_lock(handle, where_there_are_none=False):
                    shutil.rmtree(left.path, ignore_errors=True)
            finally:
                os.close(handle)


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


# ---- one directory in the place of another ------------------------------------------------------------


def _files(folder: Path) -> list[Path]:
    """All files below, those in the folder itself last: the one that names the others is among them."""
    found = [file for file in folder.rglob("*") if not file.is_dir() or file.is_symlink()]
    return sorted(found, key=lambda file: (file.parent == folder, file))


def _check_no_clash(temporary: Path, target: Path, path: Place) -> None:
    """Refuse before anything moves what cannot be: a folder where a file should go."""
    for file in _files(temporary):
        name = file.relative_to(temporary)
        if (target / name).is_dir():
            raise DataError(f"{path}: holds a folder called {name} where a file should go; remove it")


def _keep_mode(old: Path, new: Path) -> None:
    """Give a file or folder the mode of the one that it replaces."""
    with suppress(OSError):
        new.chmod(stat.S_IMODE(old.stat().st_mode))


def _take_place(temporary: Path, target: Path, without: Collection[str]) -> None:
    if not target.exists():
        temporary.rename(target)
    elif _is_inside(Path.cwd(), target) or not _exchanged(temporary, target, without):
        _replace_files(temporary, target, without)


def _is_inside(place: Path, folder: Path) -> bool:
    """Whoever works there would find themselves in a folder that is gone."""
    return place == folder or folder in place.parents


def _exchanged(temporary: Path, target: Path, without: Collection[str]) -> bool:
    """Complete the new folder with what is kept of the old one, and let them change places; False: cannot."""
    try:
        _link_rest(target, temporary, {target / name for name in without})
        _keep_mode(target, temporary)
        for folder in (temporary, *(part for part in temporary.rglob("*") if part.is_dir())):
            sync(folder)
        _exchange(temporary, target)
    except OSError as error:
        if error.errno in _DISK_ERRORS:
            raise
        return False
    return True


def _link_rest(old: Path, new: Path, without: Collection[Path]) -> None:
    """Give every file of the old folder that the new one lacks a second name there."""
    for entry in old.iterdir():
        twin = new / entry.name
        if entry in without or is_left_over(entry.name):
            continue
        if entry.is_dir() and not entry.is_symlink():
            twin.mkdir(exist_ok=True)
            _keep_mode(entry, twin)
            _link_rest(entry, twin, without)
        elif not twin.exists():
            os.link(entry, twin, follow_symlinks=False)


def _exchange(one: Path, other: Path) -> None:
    """Let two names change places, in one step of the file system."""
    library = ctypes.CDLL(None, use_errno=True)
    here, swap = -100, 2  # AT_FDCWD, and RENAME_EXCHANGE or RENAME_SWAP
    names = os.fsencode(one), os.fsencode(other)
    if sys.platform.startswith("linux") and hasattr(library, "renameat2"):
        failed = library.renameat2(here, names[0], here, names[1], swap)
    elif sys.platform == "darwin":
        failed = library.renamex_np(names[0], names[1], swap)
    else:
        raise OSError(errno.ENOSYS, "no exchange of names")
    if failed:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _replace_files(temporary: Path, target: Path, without: Collection[str]) -> None:
    for file in _files(temporary):
        name = file.relative_to(temporary)
        # What was linked here from the old folder is there already.
        if (target / name).exists() and (target / name).samefile(file):
            continue
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        file.replace(target / name)
    for gone in without:
        (target / gone).unlink(missing_ok=True)
    sync(target)


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
