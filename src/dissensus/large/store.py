"""A store on disk: labels in the order and the coding of ``Annotations``, packed once, mapped when opened.

Three columns of 32-bit codes and the first row of each item lie in ``.npy`` files, the ids in Arrow files; a
manifest, sealed, names them all with their checksums. Every file is named after its content.

Checksums are CRC-32: it notices every flipped byte (any burst of up to 32 bits, and all else but one change
in four billion), it is in the standard library, and it runs at several gigabytes a second, so a store can be
checked whenever it is opened. The manifest itself is sealed with SHA-256. Neither is a signature: they tell a
damaged store from a sound one, not who packed it, and can be computed anew. So what models rely on is checked
apart from them, always: files have the sizes of what they hold, each item's rows follow those of the one
before, every code is in its vocabulary, and ids are text.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import LABEL_TYPES, LabelType
from dissensus.labels.rows import DUPLICATE_POLICIES, Duplicates, repeats_note
from dissensus.labels.vocabulary import Vocabulary, is_text, texts
from dissensus.params import n_cores
from dissensus.tables.layouts import one_only, with_kind, with_side_tables
from dissensus.tables.source import not_reached

MANIFEST = "dissensus-store.json"
FORMAT = 3
OURS = re.compile(r"[a-z]+(-[a-z]+)*-[0-9a-f]{8}\.[a-z0-9]+")  # names of the files that a store consists of
COLUMNS = ("item", "annotator", "label")
IDS = ("item", "annotator")  # classes are few, and stand in the manifest
AT_A_TIME = 1 << 20  # bytes or numbers that are looked at


@dataclass(frozen=True)
class StoredFile:
    """A file of the store."""

    name: str
    bytes: int
    crc32: int


@dataclass(frozen=True)
class Manifest:
    """The content of a store; the same for the same files, in whatever order and however many steps."""

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
        raise _damaged(store, MANIFEST) from None
    if not isinstance(content, dict) or content.pop("seal", None) != _seal(content):
        raise _damaged(store, MANIFEST)
    if content.pop("format", None) != FORMAT:
        raise DataError(f"{store}: was packed by another version of dissensus; pack the files again")
    try:
        files = {what: StoredFile(**file) for what, file in content.pop("files").items()}
        for name in ("classes", "notes", "inputs"):
            content[name] = tuple(map(str, content[name]))
        manifest = Manifest(**content, files=files)
        numbers = [manifest.n_labels, manifest.n_items, manifest.n_annotators, manifest.left_out]
        numbers += [n for file in files.values() for n in (file.bytes, file.crc32)]
        sound = all(type(n) is int and n >= 0 for n in numbers)
        sound &= all(OURS.fullmatch(file.name) is not None for file in files.values())
        sound &= manifest.label_type in (None, *LABEL_TYPES) and manifest.duplicates in DUPLICATE_POLICIES
    except (KeyError, TypeError, ValueError, AttributeError):
        sound = False
    if not sound:
        raise _damaged(store, MANIFEST)
    return manifest


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _damaged(store: Path, what: str) -> DataError:
    return DataError(f"{store}: {what} is damaged; pack the files again")


def checksum(path: Path) -> int:
    """CRC-32 of a file."""
    crc = 0
    with path.open("rb") as file:
        while piece := file.read(AT_A_TIME):
            crc = zlib.crc32(piece, crc)
    return crc


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
    """The labels of a store, as every model takes them.

    ``label_type`` says what kind of answers they are, if it is another than the store was packed with.

    ``items``, ``annotators`` and ``gold`` are side tables, as for :func:`dissensus.read_annotations`.
    ``verify=False`` leaves the checksums aside, and only these: for a store that this process, or a process
    it trusts, has checked before.
    """
    path = Path(store)
    manifest = read_manifest(path)
    stored = open_store(path, manifest, verify)
    labels = with_kind(stored, label_type or manifest.label_type)
    new_classes = not manifest.declared
    labels = with_side_tables(labels, items, annotators, gold, ("item", "annotator"), new_classes)
    labels = replace(labels, notes=(*labels.notes, *manifest.notes, *one_only(labels)))
    if items is not None or gold is not None:
        return labels  # items or classes may have joined, and codes have changed
    return StoredAnnotations.of(labels, stored.origin, stored.item_pointers)


@dataclass(frozen=True)
class StoreOrigin:
    """A store that labels were opened from, at a path that is the same for every process that reopens it."""

    path: Path  # absolute
    seal: str  # changes with any label or id

    def reopen(self) -> Annotations:
        """The labels, every byte of this machine's copy checked."""
        if not self.path.is_dir():
            raise not_reached(self.path, "put the store at the same path there, shared or copied")
        here = open_annotations(self.path)
        if getattr(here, "origin", None) != self:
            raise DataError(
                f"{self.path}: holds other labels on this worker's machine than on the driver's; "
                "copy the store there again"
            )
        return here


class StoredAnnotations(Annotations):
    """Annotations that lie in a store: another process opens them there instead of getting a copy.

    Labels that are derived from them have no origin, and are pickled as plain ones are.
    """

    origin: ClassVar[StoreOrigin | None] = None

    @classmethod
    def of(
        cls, labels: Annotations, origin: StoreOrigin | None, item_pointers: NDArray[np.int64]
    ) -> StoredAnnotations:
        """The same labels with the store that they lie in, and with the rows at which each item begins."""
        stored = cls(**{field.name: getattr(labels, field.name) for field in fields(labels) if field.init})
        vars(stored).update(item_pointers=item_pointers, origin=origin)
        return stored

    def with_label_type(self, label_type: LabelType) -> Annotations:  # type: ignore[override]
        """The same labels as another kind of answer, in the same store."""
        return self.of(super().with_label_type(label_type), self.origin, self.item_pointers)

    def __reduce_ex__(self, protocol: Any) -> Any:
        if self.origin is None:
            return super().__reduce_ex__(protocol)
        names = ("annotator_table", "frame_kind", "notes", "label_type")  # what the store does not have
        return _reopen, (self.origin, {name: getattr(self, name) for name in names})


def _reopen(origin: StoreOrigin, others: Mapping[str, Any]) -> StoredAnnotations:
    """Open labels that were pickled as their origin, with the other fields that they had."""
    here = origin.reopen()
    return StoredAnnotations.of(replace(here, **others), origin, here.item_pointers)


def open_store(store: Path, manifest: Manifest, verify: bool = True) -> StoredAnnotations:
    """The labels that a manifest describes, without side tables."""
    _check_files(store, manifest, verify)
    pointers = _mapped(store, manifest, "item-rows", "<i8", manifest.n_items + 1)
    sizes = manifest.n_items, manifest.n_annotators, manifest.n_classes
    with ThreadPoolExecutor(n_cores()) as threads:
        item, annotator, label = threads.map(lambda *column: _codes(store, manifest, *column), COLUMNS, sizes)
    _check_rows(store, manifest, item, pointers)
    items, annotators = (_vocabulary(store, manifest, what, n) for what, n in zip(IDS, sizes, strict=False))
    classes = Vocabulary(texts(manifest.classes), "label")
    notes = repeats_note(manifest.left_out, manifest.duplicates)
    annotations = Annotations(item, annotator, label, items, annotators, classes, notes=notes)
    return StoredAnnotations.of(annotations, StoreOrigin(store.absolute(), manifest.seal), pointers)


def _check_files(store: Path, manifest: Manifest, verify: bool) -> None:
    """Every file is there, with its size and, if ``verify``, its checksum."""
    expected = {f"{what}-codes" for what in COLUMNS} | {"item-rows"} | {f"{what}-ids" for what in IDS}
    files = manifest.files
    if files.keys() != expected or len({file.name for file in files.values()}) < len(expected):
        raise _damaged(store, "the list of its files")
    if len(set(manifest.classes)) < manifest.n_classes:
        raise _damaged(store, "the list of its classes")
    for file in files.values():
        try:
            size = (store / file.name).stat().st_size
        except OSError:
            raise DataError(f"{store}: {file.name} is missing; pack the files again") from None
        if size != file.bytes:
            raise DataError(
                f"{store}: {file.name} has {size:,} bytes instead of {file.bytes:,}; pack the files again"
            )
    if verify:
        with ThreadPoolExecutor(n_cores()) as threads:
            sums = threads.map(lambda file: checksum(store / file.name), files.values())
            for file, crc in zip(files.values(), sums, strict=True):
                if crc != file.crc32:
                    raise _damaged(store, file.name)


def _mapped(store: Path, manifest: Manifest, what: str, kind: str, n: int) -> NDArray[Any]:
    """The numbers of a file, of the type and length that they must have."""
    name = manifest.files[what].name
    try:
        numbers = np.lib.format.open_memmap(store / name, mode="r")
    except Exception:  # a forged header can be anything
        raise _damaged(store, name) from None
    if numbers.dtype != np.dtype(kind) or numbers.shape != (n,):
        raise _damaged(store, name)
    return numbers.view(np.ndarray)


def _check_rows(
    store: Path, manifest: Manifest, item: NDArray[np.int32], pointers: NDArray[np.int64]
) -> None:
    """Each item's rows begin where those of the one before end, from the first row to the last."""
    pieces = [pointers[at : at + AT_A_TIME + 1] for at in range(0, manifest.n_items, AT_A_TIME)]
    forwards = all(bool((np.diff(piece) >= 0).all()) for piece in pieces)
    if (pointers[0], pointers[-1]) != (0, manifest.n_labels) or not forwards:
        raise _damaged(store, manifest.files["item-rows"].name)
    for number, starts in enumerate(pieces):
        labelled = np.flatnonzero(np.diff(starts))
        codes = labelled + number * AT_A_TIME
        # Codes never fall, so that an item's first and last row tell.
        for ends in (item[starts[labelled]], item[starts[labelled + 1] - 1]):
            if not np.array_equal(ends, codes):
                raise _damaged(store, manifest.files["item-codes"].name)


def _codes(store: Path, manifest: Manifest, what: str, size: int) -> NDArray[np.int32]:
    """A column, no code of which is beyond its vocabulary; those of items never fall."""
    codes = _mapped(store, manifest, f"{what}-codes", "<i4", manifest.n_labels)
    for at in range(0, len(codes), AT_A_TIME):
        piece = codes[at : at + AT_A_TIME + 1]
        # A negative code is a very large one without its sign.
        beyond = int(piece.view("<u4").max()) >= size
        if beyond or (what == "item" and bool((np.diff(piece) < 0).any())):
            raise _damaged(store, manifest.files[f"{what}-codes"].name)
    return codes


def _vocabulary(store: Path, manifest: Manifest, what: str, n: int) -> Vocabulary:
    """Ids, mapped, that are text."""
    name = manifest.files[f"{what}-ids"].name
    try:
        with pa.memory_map(str(store / name)) as file:
            table = pa.ipc.open_file(file).read_all()
        table.validate(full=True)
        (ids,) = table.column(what).chunks
    except (pa.ArrowException, OSError, KeyError, ValueError):
        raise _damaged(store, name) from None
    if not is_text(ids.type) or ids.null_count or len(ids) != n:
        raise _damaged(store, name)
    return Vocabulary(ids, what)
