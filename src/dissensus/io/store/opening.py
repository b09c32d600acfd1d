"""From a store to ``Annotations``: columns and ids are mapped into memory, and read when somebody looks.

Sizes are always checked. Contents are checked too unless told otherwise: every byte against its checksum, and
every code against its vocabulary, so that a damaged shard is named and never trusted.
"""

from __future__ import annotations

import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.data.annotations import Annotations
from dissensus.data.kinds import LabelType
from dissensus.data.side_tables import repeats_note
from dissensus.data.vocabulary import Vocabulary, texts
from dissensus.errors import DataError
from dissensus.io.read import one_only, with_kind, with_side_tables
from dissensus.io.source import not_reached
from dissensus.io.store.files import (
    CODES,
    COLUMNS,
    IDS,
    PLACES,
    Manifest,
    StoredFile,
    StoredShard,
    checksum,
    read_manifest,
    read_pieces,
)
from dissensus.params import n_cores


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
    ``verify=False`` leaves the checksums aside: for a store that this process, or a process it trusts, has
    checked before.
    """
    path = Path(store)
    manifest = read_manifest(path)
    labels = open_store(path, manifest, verify)
    pointers, origin = labels.item_pointers, labels.origin
    labels = with_kind(labels, label_type or manifest.label_type)
    new_classes = not manifest.declared
    labels = with_side_tables(labels, items, annotators, gold, ("item", "annotator"), new_classes)
    labels = replace(labels, notes=(*labels.notes, *manifest.notes, *one_only(labels)))
    if items is not None or gold is not None:
        return labels  # items or classes may have joined, and codes have changed
    return labels.with_origin(origin, pointers)


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
        if here.origin != self:
            raise DataError(
                f"{self.path}: holds other labels on this worker's machine than on the driver's; "
                "copy the store there again"
            )
        return here


def open_store(store: Path, manifest: Manifest, verify: bool = True) -> Annotations:
    """The labels that a manifest describes, without side tables."""
    for file in manifest.files.values():
        _check_size(store, file)
    if verify:
        _verify(store, manifest)
    item, annotator, label = (_mapped(store, manifest, f"{what}-codes") for what in COLUMNS)
    items, annotators = (_vocabulary(store, manifest, what) for what in IDS)
    classes = Vocabulary(texts(manifest.classes), "label")
    notes = repeats_note(manifest.left_out, manifest.duplicates)
    annotations = Annotations(item, annotator, label, items, annotators, classes, notes=notes)
    origin = StoreOrigin(store.absolute(), manifest.seal)
    return annotations.with_origin(origin, _mapped(store, manifest, "item-rows"))


# ---- mapping ------------------------------------------------------------------------------------------


def _mapped(store: Path, manifest: Manifest, what: str) -> NDArray[Any]:
    file = manifest.files[what]
    kind = PLACES if file.name.endswith("int64") else CODES
    return np.memmap(store / file.name, kind, mode="r").view(np.ndarray)


def _vocabulary(store: Path, manifest: Manifest, what: str) -> Vocabulary:
    starts, text = manifest.files[f"{what}-starts"], manifest.files[f"{what}-text"]
    wide = starts.name.endswith("int64")
    with pa.memory_map(str(store / starts.name)) as first, pa.memory_map(str(store / text.name)) as second:
        buffers = [None, first.read_buffer(), second.read_buffer()]
    n = starts.bytes // (8 if wide else 4) - 1
    return Vocabulary(pa.Array.from_buffers(pa.large_string() if wide else pa.string(), n, buffers), what)


# ---- checking -----------------------------------------------------------------------------------------


def _check_size(store: Path, file: StoredFile) -> None:
    try:
        size = (store / file.name).stat().st_size
    except OSError:
        raise DataError(f"{store}: {file.name} is missing; pack the files again") from None
    if size != file.bytes:
        raise DataError(
            f"{store}: {file.name} has {size:,} bytes instead of {file.bytes:,}; pack the files again"
        )


def _verify(store: Path, manifest: Manifest) -> None:
    """Check every byte of every file, on all cores."""
    columns = {f"{what}-codes" for what in COLUMNS}
    whole = [file for what, file in manifest.files.items() if what not in columns]
    with ThreadPoolExecutor(n_cores()) as threads:
        list(threads.map(lambda file: _verify_file(store, file), whole))
        list(threads.map(lambda shard: _verify_shard(store, manifest, shard), manifest.shards))
    for what in IDS:
        try:
            _vocabulary(store, manifest, what).arrow.validate(full=True)
        except pa.ArrowInvalid:
            raise _damaged(store, manifest.files[f"{what}-text"].name) from None


def _verify_file(store: Path, file: StoredFile) -> None:
    if checksum(store / file.name) != file.crc32:
        raise _damaged(store, file.name)


def _verify_shard(store: Path, manifest: Manifest, shard: StoredShard) -> None:
    """The shard's part of each column: unchanged, and no code beyond its vocabulary."""
    sizes = manifest.n_items, manifest.n_annotators, manifest.n_classes
    for what, size, crc in zip(COLUMNS, sizes, shard.crc32, strict=True):
        name, found, sound = manifest.files[f"{what}-codes"].name, 0, True
        for piece in read_pieces(store / name, 4 * shard.first_row, 4 * (shard.first_row + shard.n_rows)):
            found = zlib.crc32(piece, found)
            # A negative code is a very large one without its sign.
            sound = sound and int(np.frombuffer(piece, "<u4").max()) < size
        if found != crc or not sound:
            number = manifest.shards.index(shard) + 1
            raise _damaged(store, f"shard {number} of {len(manifest.shards)} in {name}")


def _damaged(store: Path, what: str) -> DataError:
    return DataError(f"{store}: {what} is damaged; pack the files again")
