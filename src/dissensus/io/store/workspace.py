"""A place to work beside the store, and the one step that makes the result visible.

The place has a fixed name, so what a killed packing left behind is found and removed by the next one; a lock
that ends with the process tells that from a packing still at work.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dissensus.errors import DataError
from dissensus.io.atomic import cannot_be_written, gone_afterwards, sync, take_lock
from dissensus.io.store.manifest import MANIFEST, OURS, is_store, read_manifest


@contextmanager
def workspace(store: Path) -> Iterator[Path]:
    """An empty folder beside the store for as long as the block lasts, ours alone."""
    target = Path(os.path.realpath(store))
    _check_target(store, target)
    folder = target.with_name(f".{target.name}.packing")
    with _locked(folder, store), gone_afterwards(store, folder):
        for left in sorted(folder.rglob("*"), reverse=True):
            left.rmdir() if left.is_dir() else left.unlink()
        yield folder


def publish(built: Path, store: Path) -> None:
    """Give a finished store its name.

    Where a store stands already, its files stay until the new manifest has replaced the old one in a single
    step; files are named after their content, so the two never share a name with different bytes.
    """
    target = Path(os.path.realpath(store))
    for file in built.iterdir():
        sync(file)
    if is_store(target):
        for file in built.iterdir():
            if file.name != MANIFEST:
                file.replace(target / file.name)
        sync(target)
        (built / MANIFEST).replace(target / MANIFEST)
        sync(target)
        _remove_unlisted(target)
    else:
        built.rename(target)
    sync(target.parent)


def _remove_unlisted(store: Path) -> None:
    """Files of an earlier packing, finished or not, that the manifest no longer names."""
    listed = {file.name for file in read_manifest(store).files.values()}
    for file in store.iterdir():
        if OURS.fullmatch(file.name) and file.name not in listed:
            file.unlink()


def _check_target(store: Path, target: Path) -> None:
    if target.exists() and not target.is_dir():
        raise DataError(f"{store}: is a file; name a directory for the store")
    if target.is_dir() and not is_store(target) and any(target.iterdir()):
        raise DataError(f"{store}: exists and is no store; choose another place for the store")


@contextmanager
def _locked(folder: Path, store: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_be_written(store, error) from error
    try:
        handle = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows lets no folder be opened; two packings are then the user's to avoid
        yield
        return
    try:
        if not take_lock(handle):
            raise DataError(f"{store}: another packing is at work on it; wait for its end")
        yield
    finally:
        os.close(handle)
