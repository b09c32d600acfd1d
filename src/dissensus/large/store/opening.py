"""From a store to ``Annotations``: columns and ids are mapped into memory, and read when somebody looks.

Checksums tell a damaged store from a sound one; they do not tell who wrote it, and can be computed anew. So
what models rely on is checked apart from them, always: files have the sizes of what they hold, each item's
rows follow those of the one before, every code is in its vocabulary, and ids are text.
"""

from __future__ import annotations

import itertools
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import LabelType
from dissensus.labels.side_tables import repeats_note
from dissensus.labels.vocabulary import Vocabulary, texts
from dissensus.large.store.files import (
    CODES,
    COLUMNS,
    IDS,
    PIECE,
    PLACES,
    Manifest,
    StoredFile,
    checksum,
    read_manifest,
    read_pieces,
)
from dissensus.params import n_cores
from dissensus.tables.plain_tables import one_only, with_kind, with_side_tables
from dissensus.tables.source import not_reached


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
    _check_lengths(store, manifest)
    if verify:
        _verify_files(store, manifest)
    _check_places(store, manifest)
    with ThreadPoolExecutor(n_cores()) as threads:
        numbers = range(len(manifest.shards))
        list(threads.map(lambda number: _check_shard(store, manifest, number, verify), numbers))
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


def _check_lengths(store: Path, manifest: Manifest) -> None:
    """Every file has room for what it holds, and for nothing else; shards follow each other to the end."""
    starts = (("item-starts", manifest.n_items), ("annotator-starts", manifest.n_annotators))
    expected = {f"{what}-codes": 4 * manifest.n_labels for what in COLUMNS}
    expected["item-rows"] = 8 * (manifest.n_items + 1)
    expected |= {what: (8 if _is_wide(manifest, what) else 4) * (n + 1) for what, n in starts}
    names = {*expected, "item-text", "annotator-text"}
    if set(manifest.files) != names or len({file.name for file in manifest.files.values()}) < len(names):
        raise _damaged(store, "the list of its files")
    for what, size in expected.items():
        if manifest.files[what].bytes != size:
            raise _damaged(store, manifest.files[what].name)
    ends = itertools.accumulate((shard.n_rows for shard in manifest.shards), initial=0)
    tiled = [shard.first_row for shard in manifest.shards] == list(ends)[:-1]
    firsts = [shard.first_item for shard in manifest.shards]
    in_order = firsts == sorted(set(firsts)) and all(0 <= first < manifest.n_items for first in firsts)
    if not (tiled and in_order) or any(shard.n_rows <= 0 for shard in manifest.shards):
        raise _damaged(store, "the list of its shards")
    if len(set(manifest.classes)) < manifest.n_classes:
        raise _damaged(store, "the list of its classes")


def _is_wide(manifest: Manifest, what: str) -> bool:
    return manifest.files[what].name.endswith("int64")


def _verify_files(store: Path, manifest: Manifest) -> None:
    """Check every byte of every file but the columns, whose shards have checksums of their own."""
    columns = {f"{what}-codes" for what in COLUMNS}
    whole = [file for what, file in manifest.files.items() if what not in columns]
    with ThreadPoolExecutor(n_cores()) as threads:
        list(threads.map(lambda file: _verify_file(store, file), whole))


def _verify_file(store: Path, file: StoredFile) -> None:
    if checksum(store / file.name) != file.crc32:
        raise _damaged(store, file.name)


def _check_places(store: Path, manifest: Manifest) -> None:
    """Where each item's rows begin: from the first row to the end, never backwards; and ids that are text."""
    starts = _mapped(store, manifest, "item-rows")
    forwards = all(
        bool((np.diff(starts[at : at + PIECE + 1]) >= 0).all()) for at in range(0, len(starts), PIECE)
    )
    if (starts[0], starts[-1]) != (0, manifest.n_labels) or not forwards:
        raise _damaged(store, manifest.files["item-rows"].name)
    for what in IDS:
        try:
            _vocabulary(store, manifest, what).arrow.validate(full=True)
        except pa.ArrowInvalid:
            raise _damaged(store, manifest.files[f"{what}-text"].name) from None


def _check_shard(store: Path, manifest: Manifest, number: int, verify: bool) -> None:
    """A shard's part of each column: unchanged (if ``verify``), and no code beyond its vocabulary."""
    shard = manifest.shards[number]
    sizes = manifest.n_items, manifest.n_annotators, manifest.n_classes
    for what, size, crc in zip(COLUMNS, sizes, shard.crc32, strict=True):
        name, found, sound = manifest.files[f"{what}-codes"].name, 0, True
        for piece in read_pieces(store / name, 4 * shard.first_row, 4 * (shard.first_row + shard.n_rows)):
            found = zlib.crc32(piece, found) if verify else crc
            # A negative code is a very large one without its sign.
            sound = sound and int(np.frombuffer(piece, "<u4").max()) < size
        if found != crc or not sound or (what == "item" and not _is_at_its_place(store, manifest, number)):
            raise _damaged(store, f"shard {number + 1} of {len(manifest.shards)} in {name}")


def _is_at_its_place(store: Path, manifest: Manifest, number: int) -> bool:
    """Whether each row of a shard is of the item whose rows stand there."""
    shard, after = manifest.shards[number], manifest.shards[number + 1 : number + 2]
    items = range(shard.first_item, after[0].first_item if after else manifest.n_items)
    starts = _mapped(store, manifest, "item-rows")[items.start : items.stop + 1]
    rows = slice(shard.first_row, shard.first_row + shard.n_rows)
    if (starts[0], starts[-1]) != (rows.start, rows.stop):
        return False
    codes = _mapped(store, manifest, "item-codes")[rows]
    return bool(np.array_equal(codes, np.repeat(np.arange(items.start, items.stop), np.diff(starts))))


def _damaged(store: Path, what: str) -> DataError:
    return DataError(f"{store}: {what} is damaged; pack the files again")
