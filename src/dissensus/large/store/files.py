"""The files of a store: numbers, ids, label rows cut into shards, and the manifest that names them all.

Three columns of 32-bit codes in canonical order, where each item's rows begin, and the ids; every file is
named after its content. Files are written through handles and never through memory maps, so that a full disk
is an error and not a crash.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.errors import DataError
from dissensus.labels.blocks import item_cuts
from dissensus.labels.kinds import LABEL_TYPES, LabelType
from dissensus.labels.rows import DUPLICATE_POLICIES, Duplicates, Rows
from dissensus.labels.vocabulary import MOST_TEXT, text_of

# ---- the manifest -------------------------------------------------------------------------------------
# Checksums are CRC-32: it notices every flipped byte (any burst of up to 32 bits, and all else but one change
# in four billion), it is in the standard library, and it runs at several gigabytes a second, so a store can
# be checked whenever it is opened. The manifest itself is sealed with SHA-256. Neither is a signature: they
# tell a damaged store from a sound one, not who packed it.

MANIFEST = "dissensus-store.json"
FORMAT = 2
OURS = re.compile(r"[a-z]+(-[a-z]+)*-[0-9a-f]{8}\.[a-z0-9]+")  # names of the files that a store consists of


@dataclass(frozen=True)
class StoredFile:
    """A file of the store."""

    name: str
    bytes: int
    crc32: int


@dataclass(frozen=True)
class StoredShard:
    """Consecutive items with their labels: rows of the three columns, and the checksum of each part."""

    first_item: int
    first_row: int
    n_rows: int
    crc32: tuple[int, int, int]  # of its items, annotators and labels


@dataclass(frozen=True)
class Manifest:
    """What is in a store; the same for the same files, in whatever order and however many steps."""

    n_labels: int
    n_items: int
    n_annotators: int
    classes: tuple[str, ...]
    declared: bool  # whether the classes were given, or are those that occur
    duplicates: Duplicates
    left_out: int  # label rows that the policy for duplicates left out
    notes: tuple[str, ...]  # what a person should know
    inputs: tuple[str, ...]  # digests of the files that went in, sorted: none goes in twice by mistake
    files: Mapping[str, StoredFile]  # by what they hold
    shards: tuple[StoredShard, ...]
    label_type: LabelType | None = None  # as declared; None: told from the labels when they are opened

    @property
    def n_classes(self) -> int:
        """Number of label classes."""
        return len(self.classes)

    @property
    def seal(self) -> str:
        """A digest of all of it, and so, through the checksums, of every file."""
        return _seal({"format": FORMAT} | asdict(self))

    @property
    def n_bytes(self) -> int:
        """Size of the store, the manifest apart."""
        return sum(file.bytes for file in self.files.values())


def is_store(path: Path) -> bool:
    """Whether a directory holds a store, sound or not."""
    return (path / MANIFEST).is_file()


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write the manifest beside the files that it names."""
    content = {"format": FORMAT} | asdict(manifest)
    text = json.dumps(content | {"seal": _seal(content)}, indent=1, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def read_manifest(store: Path) -> Manifest:
    """The manifest of a store, or one line that says why there is none."""
    try:
        content = json.loads((store / MANIFEST).read_bytes())
    except FileNotFoundError:
        raise DataError(f"{store}: is no store; make one with dissensus pack FILES -o {store}") from None
    except (OSError, ValueError, RecursionError):
        raise _damaged(store) from None
    if not isinstance(content, dict) or content.pop("seal", None) != _seal(content):
        raise _damaged(store)
    if content.pop("format", None) != FORMAT:
        raise DataError(f"{store}: was packed by another version of dissensus; pack the files again")
    try:
        return _checked(content)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _damaged(store) from None


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _damaged(store: Path) -> DataError:
    return DataError(f"{store}: {MANIFEST} is damaged; pack the files again")


def _checked(content: dict[str, Any]) -> Manifest:
    """A manifest out of plain values; whatever does not fit is an error."""
    files = {what: StoredFile(**file) for what, file in content.pop("files").items()}
    shards = tuple(
        StoredShard(**{**shard, "crc32": tuple(shard["crc32"])}) for shard in content.pop("shards")
    )
    for name in ("classes", "notes", "inputs"):
        content[name] = tuple(map(str, content[name]))
    manifest = Manifest(**content, files=files, shards=shards)
    counts = manifest.n_labels, manifest.n_items, manifest.n_annotators, manifest.left_out
    named = all(OURS.fullmatch(file.name) for file in files.values())
    numbers = [n for shard in shards for n in (shard.first_item, shard.first_row, shard.n_rows, *shard.crc32)]
    numbers += [n for file in files.values() for n in (file.bytes, file.crc32)]
    if not named or any(type(n) is not int or n < 0 for n in (*counts, *numbers)):
        raise ValueError
    if manifest.label_type not in (None, *LABEL_TYPES):
        raise ValueError
    if manifest.duplicates not in DUPLICATE_POLICIES or sum(s.n_rows for s in shards) != manifest.n_labels:
        raise ValueError
    return manifest


# ---- numbers and ids in plain files -------------------------------------------------------------------

CODES, PLACES, TEXT = "<i4", "<i8", "u1"


class NumberFile:
    """Numbers of one type, one after another; the file is new, and open for as long as ``files`` is."""

    def __init__(self, path: Path, kind: str, files: ExitStack) -> None:
        self.path = path
        self.kind = np.dtype(kind)
        self._file = files.enter_context(path.open("w+b"))
        self._n = 0

    def __len__(self) -> int:
        return self._n

    def append(self, values: NDArray[Any]) -> None:
        """Add numbers at the end."""
        self.write(self._n, values)
        self._n += len(values)

    def write(self, start: int, values: NDArray[Any]) -> None:
        """Put numbers at a place."""
        self._file.seek(start * self.kind.itemsize)
        self._file.write(np.ascontiguousarray(values, self.kind).view(np.uint8).data)

    def read(self, rows: range) -> NDArray[Any]:
        """The numbers at some places."""
        values = np.empty(len(rows), self.kind)
        self._file.seek(rows.start * self.kind.itemsize)
        self._file.readinto(values.view(np.uint8).data)
        return values

    def close(self) -> None:
        """Put what was written into the file."""
        self._file.close()

    def remove(self) -> None:
        """Close and delete the file."""
        self._file.close()
        self.path.unlink()


class IdFile:
    """Ids, one after another: their UTF-8 text, and where each of them starts."""

    def __init__(self, folder: Path, name: str, files: ExitStack) -> None:
        self.starts = NumberFile(folder / f"{name}.starts", PLACES, files)
        self.text = NumberFile(folder / f"{name}.text", TEXT, files)
        self.starts.append(np.zeros(1))

    def __len__(self) -> int:
        return len(self.starts) - 1

    def append(self, ids: pa.Array) -> range:
        """Add ids at the end; their places."""
        first = len(self)
        starts, text = text_of(ids)
        self.starts.append(starts[1:] - starts[:1] + np.int64(len(self.text)))
        self.text.append(text[starts[0] : starts[-1]])
        return range(first, len(self))

    def read(self, rows: range) -> pa.Array:
        """The ids at some places, as Arrow strings."""
        starts = self.starts.read(range(rows.start, rows.stop + 1))
        text = self.text.read(range(starts[0], starts[-1]))
        buffers = [None, pa.py_buffer(starts - starts[0]), pa.py_buffer(text)]
        return pa.Array.from_buffers(pa.large_string(), len(rows), buffers).cast(pa.string())

    def key(self, row: int) -> bytes:
        """One id as bytes, which sort as code points do."""
        start, stop = self.starts.read(range(row, row + 2))
        return self.text.read(range(start, stop)).tobytes()

    @property
    def mean_bytes(self) -> int:
        """Bytes of text that an id has on average, rounded up."""
        return -(-len(self.text) // max(len(self), 1))

    def remove(self) -> None:
        """Close and delete both files."""
        self.starts.remove()
        self.text.remove()


# ---- label rows and vocabularies ----------------------------------------------------------------------

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


class LabelFiles:
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
    """Numbers of whole items, cut by the rule of `data.blocks`: each of its shards lies in one of these."""
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
