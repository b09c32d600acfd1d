"""What is in a store: one JSON file, sealed, that names every other file with its size and checksum.

Checksums are CRC-32: it notices every flipped byte (any burst of up to 32 bits, and all else but one change
in four billion), it is in the standard library, and it runs at several gigabytes a second, so a store can be
checked whenever it is opened. The manifest itself is sealed with SHA-256. Neither is a signature: they tell a
damaged store from a sound one, not who packed it.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dissensus.data.rows import DUPLICATE_POLICIES, Duplicates
from dissensus.errors import DataError

MANIFEST = "dissensus-store.json"
FORMAT = 1
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
    """What is in a store; the same for the same labels, however they were packed."""

    n_labels: int
    n_items: int
    n_annotators: int
    classes: tuple[str, ...]
    declared: bool  # whether the classes were given, or are those that occur
    duplicates: Duplicates
    left_out: int  # label rows that the policy for duplicates left out
    notes: tuple[str, ...]  # what a person should know
    files: Mapping[str, StoredFile]  # by what they hold
    shards: tuple[StoredShard, ...]

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
    except (OSError, ValueError):
        raise _damaged(store) from None
    if not isinstance(content, dict) or content.pop("seal", None) != _seal(content):
        raise _damaged(store)
    if content.pop("format", None) != FORMAT:
        raise DataError(f"{store}: was packed by another version of dissensus; pack the files again")
    try:
        return _checked(content)
    except (KeyError, TypeError, ValueError):
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
    classes, notes = (tuple(map(str, content.pop(name))) for name in ("classes", "notes"))
    manifest = Manifest(**content, classes=classes, notes=notes, files=files, shards=shards)
    counts = manifest.n_labels, manifest.n_items, manifest.n_annotators, manifest.left_out
    named = all(OURS.fullmatch(file.name) for file in files.values())
    if not named or any(type(n) is not int or n < 0 for n in counts):
        raise ValueError
    if manifest.duplicates not in DUPLICATE_POLICIES or sum(s.n_rows for s in shards) != manifest.n_labels:
        raise ValueError
    return manifest
