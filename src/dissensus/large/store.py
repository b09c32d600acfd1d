"""A store on disk: labels in the order and the coding of ``Annotations``, written once, mapped when opened.

Three columns of 32-bit codes lie in ``.npy`` files, the ids in Parquet files; a manifest, sealed, lists them
all with their checksums.

Checksums are CRC-32: it notices every flipped byte (any burst of up to 32 bits, and all else but one change
in four billion), it is in the standard library, and it runs at several gigabytes a second, so a store can be
checked whenever it is opened. The manifest itself is sealed with SHA-256. Neither is a signature: they tell a
damaged store from a sound one, not who wrote it, and can be computed anew. So the properties that models rely
on are checked apart from them, always: files have the sizes of what they hold, the rows of each item follow
those of the one before, every code is in its vocabulary, and ids are text.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import LABEL_TYPES, LabelType
from dissensus.labels.rows import DUPLICATE_POLICIES, Duplicates, repeats_note
from dissensus.labels.vocabulary import Vocabulary, is_text, texts
from dissensus.large.file_arrays import file_checksum
from dissensus.params import n_cores
from dissensus.tables.atomic import restore
from dissensus.tables.layouts import one_only, with_kind, with_side_tables
from dissensus.tables.source import not_reached

MANIFEST = "dissensus-store.json"
FORMAT = 4
COLUMNS = ("item", "annotator", "label")
CODES = tuple(f"{name}-codes.npy" for name in COLUMNS)
IDS = ("item-ids.parquet", "annotator-ids.parquet")  # classes are few, and stand in the manifest
BLOCK = 1 << 20  # bytes or numbers that are checked at a time


@dataclass(frozen=True)
class StoredFile:
    """Size and checksum of a file of the store."""

    bytes: int
    crc32: int


@dataclass(frozen=True)
class Manifest:
    """Content of a store; the same for the same labels, in whatever order and number of files they came."""

    n_labels: int
    n_items: int
    n_annotators: int
    classes: tuple[str, ...]
    declared: bool  # True: the classes were given; False: they are those that occur
    duplicates: Duplicates
    left_out: int  # label rows that the policy for duplicates left out
    notes: tuple[str, ...]  # remarks on the labels, for a person
    files: Mapping[str, StoredFile]  # by name
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
    """Tell a directory that holds a store, sound or not."""
    restore(path)
    return (path / MANIFEST).is_file()


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write the manifest beside the files that it lists."""
    content = {"format": FORMAT} | asdict(manifest) | {"seal": manifest.seal}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def read_manifest(store: Path) -> Manifest:
    """Read the manifest of a store, or say in one line why there is none."""
    try:
        content = json.loads((store / MANIFEST).read_bytes())
        if content.pop("seal") != _seal(content):
            raise ValueError
        if content.pop("format") != FORMAT:
            raise DataError(f"{store}: was written by another version of dissensus; write it again")
        files = {name: StoredFile(**file) for name, file in content.pop("files").items()}
        for name in ("classes", "notes"):
            content[name] = tuple(map(str, content[name]))
        manifest = Manifest(**content, files=files)
        numbers = [manifest.n_labels, manifest.n_items, manifest.n_annotators, manifest.left_out]
        numbers += [n for file in files.values() for n in (file.bytes, file.crc32)]
        sound = all(type(n) is int and n >= 0 for n in numbers)
        sound &= manifest.label_type in (None, *LABEL_TYPES) and manifest.duplicates in DUPLICATE_POLICIES
        sound &= len(set(manifest.classes)) == manifest.n_classes
        sound &= files.keys() == {*CODES, *IDS}
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        sound = False
    if not sound:
        raise _damaged(store / MANIFEST)
    return manifest


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _damaged(file: Path) -> DataError:
    return DataError(f"{file.parent}: {file.name} is damaged; write the store again")


# ---- opening ------------------------------------------------------------------------------------------


def open_annotations(
    store: str | os.PathLike[str],
    *,
    items: Any = None,
    annotators: Any = None,
    gold: Any = None,
    label_type: LabelType | None = None,
    verify: bool = True,
) -> Annotations:
    """Open the labels of a store, as every model takes them.

    Parameters
    ----------
    store
        The store's directory.
    items, annotators, gold
        Side tables, as for :func:`dissensus.read_annotations`.
    label_type
        Kind of answers, if it is another than the store was written with.
    verify
        False leaves the checksums aside, and only these: for a store that was checked before.
    """
    path = Path(store)
    manifest = read_manifest(path)
    sizes = manifest.n_items, manifest.n_annotators, manifest.n_classes
    with ThreadPoolExecutor(n_cores()) as threads:
        list(threads.map(lambda file: _check_file(path / file[0], file[1], verify), manifest.files.items()))
        columns = threads.map(lambda name, n: _codes(path, name, n, manifest.n_labels), CODES, sizes)
        vocabularies = threads.map(lambda *ids: _ids(path, *ids), IDS, sizes)
    classes = Vocabulary(texts(manifest.classes), "label")
    notes = repeats_note(manifest.left_out, manifest.duplicates)
    (item, annotator, label), (known_items, known_annotators) = columns, vocabularies
    labels = Annotations(item, annotator, label, known_items, known_annotators, classes, notes=notes)
    labels = with_kind(labels, label_type or manifest.label_type)
    ids, new_classes = ("item", "annotator"), not manifest.declared
    labels = with_side_tables(labels, items, annotators, gold, ids, new_classes)
    labels = replace(labels, notes=(*labels.notes, *manifest.notes, *one_only(labels)))
    if items is not None or gold is not None:
        return labels  # items or classes may have joined, and codes have changed
    return StoredAnnotations.of(labels, StoreOrigin(path.absolute(), manifest.seal))


@dataclass(frozen=True)
class StoreOrigin:
    """A store that labels were opened from, at a path that is the same for every process that reopens it."""

    path: Path  # absolute
    seal: str  # changes with any label or id


class StoredAnnotations(Annotations):
    """Annotations that lie in a store: another process opens them there instead of getting a copy.

    Labels that are derived from them have no origin, and are pickled as plain ones are.
    """

    origin: ClassVar[StoreOrigin | None] = None

    @classmethod
    def of(cls, labels: Annotations, origin: StoreOrigin | None) -> StoredAnnotations:
        """Give labels the store that they lie in."""
        stored = cls(**{field.name: getattr(labels, field.name) for field in fields(labels) if field.init})
        vars(stored)["origin"] = origin
        return stored

    def with_label_type(self, label_type: LabelType) -> Annotations:  # type: ignore[override]
        """Return these labels as another kind of answer, in the same store."""
        return self.of(super().with_label_type(label_type), self.origin)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.origin is None:
            return super().__reduce_ex__(protocol)
        names = ("annotator_table", "frame_kind", "notes", "label_type")  # which the store does not have
        return _reopened, (self.origin, {name: getattr(self, name) for name in names})


def _reopened(origin: StoreOrigin, others: Mapping[str, Any]) -> StoredAnnotations:
    """Open labels that were pickled as their origin, every byte of this machine's copy checked."""
    if not origin.path.is_dir():
        raise not_reached(origin.path, "put the store at the same path there, shared or copied")
    here = open_annotations(origin.path)
    if getattr(here, "origin", None) != origin:
        raise DataError(
            f"{origin.path}: holds other labels on this worker's machine than on the driver's; "
            "copy the store there again"
        )
    return StoredAnnotations.of(replace(here, **others), origin)


def _check_file(path: Path, expected: StoredFile, verify: bool) -> None:
    """Refuse a file that is missing, or has another size or, if ``verify``, another checksum."""
    if not path.is_file():
        raise DataError(f"{path.parent}: {path.name} is missing; write the store again")
    if path.stat().st_size != expected.bytes or (verify and file_checksum(path) != expected.crc32):
        raise _damaged(path)


def _codes(store: Path, name: str, n_ids: int, n_labels: int) -> NDArray[np.int32]:
    """Map a column, no code of which is beyond its vocabulary; each item's rows follow those of the last."""
    try:
        codes = np.lib.format.open_memmap(store / name, mode="r").view(np.ndarray)
    except Exception:  # a forged header can be anything
        raise _damaged(store / name) from None
    sound = codes.dtype == np.dtype("<i4") and codes.shape == (n_labels,) and n_labels > 0
    if sound and name == CODES[0]:
        sound = (codes[0], codes[-1]) == (0, n_ids - 1)
    for at in range(0, n_labels, BLOCK) if sound else ():
        piece = codes[at : at + BLOCK + 1]
        # A negative code, or a step back, is a very large one without its sign.
        sound &= int(piece.view("<u4").max()) < n_ids
        if name == CODES[0] and len(piece) > 1:
            sound &= int(np.diff(piece).view("<u4").max()) <= 1
    if not sound:
        raise _damaged(store / name)
    return codes


def _ids(store: Path, name: str, n: int) -> Vocabulary:
    """Read the ids of items or annotators, which must be so many texts."""
    what = name.partition("-")[0]
    try:
        with parquet.ParquetFile(store / name) as file:
            table = file.read([what]) if file.metadata.num_rows == n else pa.table({})
        table.validate(full=True)
        ids = table.column(what).combine_chunks()
    except (pa.ArrowException, OSError, KeyError, ValueError, MemoryError):
        raise _damaged(store / name) from None
    if not is_text(ids.type) or ids.null_count or len(ids) != n:
        raise _damaged(store / name)
    return Vocabulary(ids, what)
