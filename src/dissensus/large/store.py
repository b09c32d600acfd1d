"""Stores: labels on disk in the order and coding of ``Annotations``, memory-mapped when opened.

Three columns of 32-bit codes are ``.npy`` files and the ids are Parquet files; a sealed manifest lists all
files with their checksums.

Checksums are CRC-32, which detects all bursts of up to 32 bits and all but one in four billion other changes,
and runs at several gigabytes per second, so a store is checked whenever it is opened. The manifest is sealed
with SHA-256. Neither is a signature: they detect damage, not forgery. The properties that models rely on are
therefore always checked as well: file sizes, the order of rows by item, codes within their vocabulary, and
ids that are text.
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
from dissensus.labels.vocabulary import Vocabulary, arrow_strings, is_string_type
from dissensus.large.file_arrays import file_checksum, labels_differ
from dissensus.params import n_cores
from dissensus.tables.atomic import restore
from dissensus.tables.layouts import single_value_notes, with_inferred_type, with_side_tables
from dissensus.tables.source import not_reached

MANIFEST = "dissensus-store.json"
STORE_FORMAT = 4
CODE_COLUMNS = ("item", "annotator", "label")
CODES = tuple(f"{name}-codes.npy" for name in CODE_COLUMNS)
IDS = ("item-ids.parquet", "annotator-ids.parquet")  # classes are in the manifest
CODES_PER_CHECK = 1 << 20  # codes checked at a time


@dataclass(frozen=True)
class StoredFile:
    """Size and checksum of a file of the store."""

    bytes: int
    crc32: int


@dataclass(frozen=True)
class Manifest:
    """Description of a store, which does not depend on the order and number of input files."""

    n_labels: int
    n_items: int
    n_annotators: int
    classes: tuple[str, ...]
    declared: bool  # whether the classes were declared, not inferred from the labels
    duplicates: Duplicates
    left_out: int  # label rows removed by the policy for duplicates
    notes: tuple[str, ...]  # remarks for the user
    files: Mapping[str, StoredFile]  # by name
    label_type: LabelType | None = None  # as declared; None: inferred when the store is opened

    @property
    def n_classes(self) -> int:
        """Number of label classes."""
        return len(self.classes)

    @property
    def seal(self) -> str:
        """Digest of the manifest and, through the checksums, of every file."""
        return _seal({"format": STORE_FORMAT} | asdict(self))

    @property
    def n_bytes(self) -> int:
        """Size of the store without the manifest."""
        return sum(file.bytes for file in self.files.values())


def is_store(path: Path) -> bool:
    """Return True if a directory contains a store, damaged or not."""
    restore(path)
    return (path / MANIFEST).is_file()


def write_manifest(manifest: Manifest, folder: Path) -> None:
    """Write the manifest to the folder of its files."""
    content = {"format": STORE_FORMAT} | asdict(manifest) | {"seal": manifest.seal}
    (folder / MANIFEST).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def read_manifest(store: Path) -> Manifest:
    """Read the manifest of a store, or raise an error that explains the damage."""
    try:
        content = json.loads((store / MANIFEST).read_bytes())
        if content.pop("seal") != _seal(content):
            raise ValueError
        if content.pop("format") != STORE_FORMAT:
            raise DataError(f"{store}: written by another version of dissensus; write the store again")
        files = {name: StoredFile(**file) for name, file in content.pop("files").items()}
        for name in ("classes", "notes"):
            content[name] = tuple(map(str, content[name]))
        manifest = Manifest(**content, files=files)
        numbers = [manifest.n_labels, manifest.n_items, manifest.n_annotators, manifest.left_out]
        numbers += [n for file in files.values() for n in (file.bytes, file.crc32)]
        valid = all(type(n) is int and n >= 0 for n in numbers)
        valid &= manifest.label_type in (None, *LABEL_TYPES) and manifest.duplicates in DUPLICATE_POLICIES
        valid &= len(set(manifest.classes)) == manifest.n_classes
        valid &= files.keys() == {*CODES, *IDS}
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        valid = False
    if not valid:
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
    """Open the labels of a store.

    Parameters
    ----------
    store
        The store's directory.
    items, annotators, gold
        Side tables, as for :func:`dissensus.read_annotations`.
    label_type
        Kind of answers, if it differs from the declared one.
    verify
        Whether to verify the checksums; other checks are always made.
    """
    path = Path(store)
    manifest = read_manifest(path)
    sizes = manifest.n_items, manifest.n_annotators, manifest.n_classes
    with ThreadPoolExecutor(n_cores()) as threads:
        list(threads.map(lambda file: _check_file(path / file[0], file[1], verify), manifest.files.items()))
        columns = threads.map(lambda name, n: _codes(path, name, n, manifest.n_labels), CODES, sizes)
        vocabularies = threads.map(lambda *ids: _ids(path, *ids), IDS, sizes)
    classes = Vocabulary(arrow_strings(manifest.classes), "label")
    notes = repeats_note(manifest.left_out, manifest.duplicates)
    (item, annotator, label), (item_ids, annotator_ids) = columns, vocabularies
    labels = Annotations(item, annotator, label, item_ids, annotator_ids, classes, notes=notes)
    labels = with_inferred_type(labels, label_type or manifest.label_type)
    ids, new_classes = ("item", "annotator"), not manifest.declared
    labels = with_side_tables(labels, items, annotators, gold, ids, new_classes)
    labels = replace(labels, notes=(*labels.notes, *manifest.notes, *single_value_notes(labels)))
    if items is not None or gold is not None:
        return labels  # items or classes may have been added, which changes codes
    return StoredAnnotations.of(labels, StoreOrigin(path.absolute(), manifest.seal))


@dataclass(frozen=True)
class StoreOrigin:
    """The store that labels were opened from; other processes reopen it at the same path."""

    path: Path  # absolute
    seal: str  # changes with any label or id


class StoredAnnotations(Annotations):
    """Annotations in a store, which other processes reopen instead of receiving a copy.

    Labels derived from them have no origin and are pickled as usual.
    """

    origin: ClassVar[StoreOrigin | None] = None

    @classmethod
    def of(cls, labels: Annotations, origin: StoreOrigin | None) -> StoredAnnotations:
        """Attach the store to its labels."""
        stored = cls(**{field.name: getattr(labels, field.name) for field in fields(labels) if field.init})
        vars(stored)["origin"] = origin
        return stored

    def with_label_type(self, label_type: LabelType) -> Annotations:  # type: ignore[override]
        """Return these labels as another kind of answer, in the same store."""
        return self.of(super().with_label_type(label_type), self.origin)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.origin is None:
            return super().__reduce_ex__(protocol)
        names = ("annotator_table", "frame_kind", "notes", "label_type")  # not part of the store
        return _reopen, (self.origin, {name: getattr(self, name) for name in names})


def _reopen(origin: StoreOrigin, others: Mapping[str, Any]) -> StoredAnnotations:
    """Open labels pickled as their origin, verifying this machine's copy."""
    if not origin.path.is_dir():
        raise not_reached(origin.path, "put the store at the same path there, shared or copied")
    labels = open_annotations(origin.path)
    if getattr(labels, "origin", None) != origin:
        raise labels_differ(origin.path)
    return StoredAnnotations.of(replace(labels, **others), origin)


def _check_file(path: Path, expected: StoredFile, verify: bool) -> None:
    """Raise an error if a file is missing or has another size or, if ``verify``, another checksum."""
    if not path.is_file():
        raise DataError(f"{path.parent}: {path.name} is missing; write the store again")
    if path.stat().st_size != expected.bytes or (verify and file_checksum(path) != expected.crc32):
        raise _damaged(path)


def _codes(store: Path, name: str, n_ids: int, n_labels: int) -> NDArray[np.int32]:
    """Map a column after checking that codes are in their vocabulary and rows are sorted by item."""
    try:
        codes = np.lib.format.open_memmap(store / name, mode="r").view(np.ndarray)
    except Exception:  # a forged header can be anything
        raise _damaged(store / name) from None
    valid = codes.dtype == np.dtype("<i4") and codes.shape == (n_labels,) and n_labels > 0
    if valid and name == CODES[0]:
        valid = (codes[0], codes[-1]) == (0, n_ids - 1)
    for start in range(0, n_labels, CODES_PER_CHECK) if valid else ():
        chunk = codes[start : start + CODES_PER_CHECK + 1]
        # viewed as unsigned, a negative code or step is a very large number
        valid &= int(chunk.view("<u4").max()) < n_ids
        if name == CODES[0] and len(chunk) > 1:
            valid &= int(np.diff(chunk).view("<u4").max()) <= 1
    if not valid:
        raise _damaged(store / name)
    return codes


def _ids(store: Path, name: str, n: int) -> Vocabulary:
    """Read the ids of items or annotators, which must be ``n`` strings."""
    role = name.partition("-")[0]
    try:
        with parquet.ParquetFile(store / name) as file:
            table = file.read([role]) if file.metadata.num_rows == n else pa.table({})
        table.validate(full=True)
        ids = table.column(role).combine_chunks()
    except (pa.ArrowException, OSError, KeyError, ValueError, MemoryError):
        raise _damaged(store / name) from None
    if not is_string_type(ids.type) or ids.null_count or len(ids) != n:
        raise _damaged(store / name)
    return Vocabulary(ids, role)
