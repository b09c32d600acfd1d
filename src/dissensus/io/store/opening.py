"""From a store to ``Annotations``: columns and ids are mapped into memory, and read when somebody looks.

Sizes are always checked. Contents are checked too unless told otherwise: every byte against its checksum, and
every code against its vocabulary, so that a damaged shard is named and never trusted.
"""

from __future__ import annotations

import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.data.annotations import Annotations, Stored
from dissensus.data.arrow import texts
from dissensus.data.side_tables import counted
from dissensus.data.vocabulary import Vocabulary
from dissensus.errors import DataError
from dissensus.io.read import one_only, with_side_tables
from dissensus.io.store.layout import COLUMNS, IDS, checksum, read_pieces
from dissensus.io.store.manifest import Manifest, StoredFile, StoredShard, read_manifest
from dissensus.io.store.raw import CODES, PLACES
from dissensus.params import n_cores


def open_annotations(
    store: str | os.PathLike[str],
    *,
    items: Any = None,
    annotators: Any = None,
    gold: Any = None,
    verify: bool = True,
) -> Annotations:
    """The labels of a store, as every model takes them.

    ``items``, ``annotators`` and ``gold`` are side tables, as for :func:`dissensus.read_annotations`.
    ``verify=False`` leaves the checksums aside: for a store that this process, or a process it trusts, has
    checked before.
    """
    path = Path(store)
    manifest = read_manifest(path)
    labels = open_store(path, manifest, verify)
    pointers, stored = labels.item_pointers, labels.stored
    new_classes = not manifest.declared
    labels = with_side_tables(labels, items, annotators, gold, ("item", "annotator"), new_classes)
    labels = replace(labels, notes=(*labels.notes, *manifest.notes, *one_only(labels)))
    if items is not None or gold is not None:
        return labels  # items or classes may have joined, and codes have changed
    return _with_origin(labels, pointers, stored)


def reopened(
    stored: Stored, annotator_table: pa.Table | None, frame_kind: str, notes: tuple[str, ...]
) -> Annotations:
    """The labels of a store in another process, perhaps on another machine; every byte is checked there."""
    from dissensus.execution.dask.sources import check_reached

    check_reached(stored.path)
    here = open_annotations(stored.path)
    if here.stored != stored:
        raise DataError(
            f"{stored.path}: holds other labels on this worker's machine than on the driver's; "
            "copy the store there again"
        )
    labels = replace(here, annotator_table=annotator_table, frame_kind=frame_kind, notes=notes)
    return _with_origin(labels, here.item_pointers, stored)


def open_store(store: Path, manifest: Manifest, verify: bool = True) -> Annotations:
    """The labels that a manifest describes, without side tables."""
    for file in manifest.files.values():
        _check_size(store, file)
    if verify:
        _verify(store, manifest)
    item, annotator, label = (_mapped(store, manifest, f"{what}-codes") for what in COLUMNS)
    items, annotators = (_vocabulary(store, manifest, what) for what in IDS)
    classes = Vocabulary(texts(manifest.classes), "label")
    words = f"{{}} {{are}} left out: the {manifest.duplicates} label of a pair counts"
    notes = counted((manifest.left_out, words, "repeat"))
    annotations = Annotations(item, annotator, label, items, annotators, classes, notes=notes)
    stored = Stored(store.absolute(), manifest.seal)
    return _with_origin(annotations, _mapped(store, manifest, "item-rows"), stored)


def _with_origin(annotations: Annotations, pointers: NDArray[np.int64], stored: Stored | None) -> Annotations:
    """Where the labels are from; and where each item's rows begin, which spares the counting."""
    vars(annotations).update(item_pointers=pointers, _stored=stored)
    return annotations


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
