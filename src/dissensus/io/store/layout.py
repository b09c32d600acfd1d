"""The files of a store: written block by block, cut into shards, named after their content.

Three columns of 32-bit codes in canonical order, where each item's rows begin, and the ids. A shard is a
number of whole items; its boundaries follow the rule of `data.blocks.item_cuts`, so every shard of
the engine lies in one shard of the store.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from dissensus.data.blocks import item_cuts
from dissensus.data.rows import Rows
from dissensus.data.vocabulary import MOST_TEXT
from dissensus.io.store.manifest import StoredFile, StoredShard
from dissensus.io.store.raw import CODES, PLACES, IdFile, NumberFile

SHARD_TIMES = 64  # a shard of the store has so many of the engine's: two million labels
COLUMNS = ("item", "annotator", "label")
IDS = ("item", "annotator")  # classes are few, and stand in the manifest
PIECE = 1 << 20  # bytes read at a time


def read_pieces(path: Path, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
    """The bytes of a file, some at a time."""
    left = path.stat().st_size - start if stop is None else stop - start
    with path.open("rb") as file:
        file.seek(start)
        while left > 0 and (piece := file.read(min(PIECE, left))):
            left -= len(piece)
            yield piece


class Layout:
    """The label rows of a store in the making."""

    def __init__(self, folder: Path, files: ExitStack) -> None:
        self.columns = [NumberFile(folder / f"{what}-codes", CODES, files) for what in COLUMNS]
        self.pointers = NumberFile(folder / "item-rows", PLACES, files)

    def append(self, rows: Rows) -> None:
        """Add rows of whole items, in canonical order."""
        item = rows[0]
        new = np.flatnonzero(np.diff(item, prepend=item[:1] - 1))
        self.pointers.append(new + len(self.columns[0]))
        for file, column in zip(self.columns, rows, strict=True):
            file.append(column)

    def finish(self) -> tuple[dict[str, StoredFile], tuple[StoredShard, ...]]:
        """Close the files, give them their names, and cut the shards."""
        self.pointers.append(np.array([len(self.columns[0])]))
        for file in (*self.columns, self.pointers):
            file.close()
        shards = _shards(self.pointers.path, [file.path for file in self.columns])
        names = [f"{what}-codes" for what in COLUMNS]
        files = {
            name: stored(file.path, name, "int32") for name, file in zip(names, self.columns, strict=True)
        }
        return files | {"item-rows": stored(self.pointers.path, "item-rows", "int64")}, shards


def _shards(pointers: Path, columns: Sequence[Path]) -> tuple[StoredShard, ...]:
    starts = np.memmap(pointers, PLACES, mode="r")
    cuts = item_cuts(starts, SHARD_TIMES)
    shards = []
    for first, stop in itertools.pairwise(cuts):
        rows = range(int(starts[first]), int(starts[stop]))
        sums = [checksum(path, 4 * rows.start, 4 * rows.stop) for path in columns]
        shards.append(StoredShard(int(first), rows.start, len(rows), (sums[0], sums[1], sums[2])))
    return tuple(shards)


def finish_ids(ids: IdFile, what: str, files: ExitStack) -> dict[str, StoredFile]:
    """The two files of a vocabulary; starts take 32 bits wherever the text is short enough."""
    starts, text = ids.starts, ids.text
    width = "int32" if len(text) <= MOST_TEXT else "int64"
    if width == "int32":
        narrow = NumberFile(starts.path.with_suffix(".narrow"), CODES, files)
        for at in range(0, len(starts), PIECE):
            narrow.append(starts.read(range(at, min(at + PIECE, len(starts)))))
        starts.remove()
        starts = narrow
    starts.close()
    text.close()
    return {
        f"{what}-starts": stored(starts.path, f"{what}-starts", width),
        f"{what}-text": stored(text.path, f"{what}-text", "utf8"),
    }


def stored(path: Path, what: str, kind: str) -> StoredFile:
    """Name a finished file after what it holds, and say what it is."""
    crc = checksum(path)
    named = path.rename(path.with_name(f"{what}-{crc:08x}.{kind}"))
    return StoredFile(named.name, named.stat().st_size, crc)


def checksum(path: Path, start: int = 0, stop: int | None = None) -> int:
    """CRC-32 of a file, or of a part of it."""
    crc = 0
    for piece in read_pieces(path, start, stop):
        crc = zlib.crc32(piece, crc)
    return crc
