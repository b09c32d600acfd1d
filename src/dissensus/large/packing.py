"""From files of labels to a store on disk.

Files are read in chunks. The ids of each chunk join three growing vocabularies, and its rows become 12 bytes
of codes each. When all are read, the ids are sorted, the rows take their final codes, are sorted in memory,
and are written. All of it happens in a folder beside the store, which takes the store's name as its last
step. What is written depends on the labels alone: not on the memory, on the order or number of the files, or
on how many packings it took.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dissensus.errors import DataError, bad_parameter
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import LabelType
from dissensus.labels.rows import DUPLICATE_POLICIES, Coded, Duplicates, resolved_rows
from dissensus.labels.vocabulary import (
    Codes,
    Place,
    Vocabulary,
    dictionary,
    encode,
    numbers,
    ordered_vocabulary,
    sorted_order,
    texts,
)
from dissensus.large.label_files import ChunkLimits, Inputs, list_files
from dissensus.large.store import (
    COLUMNS,
    MANIFEST,
    OURS,
    Manifest,
    StoredFile,
    checksum,
    is_store,
    open_store,
    read_manifest,
    write_manifest,
)
from dissensus.numerics import pointers
from dissensus.progress import Progress, ShowProgress, shown
from dissensus.tables.atomic import cannot_be_written, gone_afterwards, held, publication, sync
from dissensus.tables.layouts import Columns, Missing, declared_classes, lookalike_notes
from dissensus.tables.source import within_memory

MOST_IDS = (1 << 31) - 1  # 32-bit codes
# Bytes of memory for each label: its three codes; these with a sorting key; and with pairs compared as well.
ROW_CODED, ROW_SORTED, ROW_RESOLVED = 12, 24, 60
ID_SORTED = 100  # bytes of memory for each id that is sorted, its text apart


def pack(
    files: Any,
    store: str | os.PathLike[str],
    *,
    item: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    classes: Sequence[Any] | None = None,
    duplicates: Duplicates | None = None,
    label_type: LabelType | None = None,
    format: str | None = None,
    missing_words: Sequence[str] | str = (),
    memory: str | int = "2GB",
    again: bool = False,
    progress: ShowProgress = None,
) -> Manifest:
    """Pack files of labels into a store, or add them to the labels of a store that is there.

    A file that the store holds already (the same bytes) is skipped, so that a
    packing that was stopped can be run again; the manifest's notes say so.

    Parameters
    ----------
    files
        A path, or several: CSV, TSV, JSON lines or Parquet with one row per label, each also gzipped, or
        directories of such files.
    store
        The directory to write. It appears, or changes, whole or not at all.
    item, annotator, label
        Names of the three columns, found by their usual names where not given.
    classes, duplicates, label_type, format, missing_words
        As for :func:`dissensus.read_annotations`. A store keeps the first three: labels added later obey
        them.
    memory
        How much memory the packing may take, mapped files apart: ``"2GB"``, or a number of bytes. Labels
        that do not fit are refused.
    again
        Add files that the store holds already once more.
    progress
        True or False, a function that is told (what, share done), or None: a bar on a terminal.
    """
    path, budget = Path(store), ChunkLimits.of(memory)
    with publication() as tell, workspace(path) as folder, within_memory(budget.memory):
        old = read_manifest(path) if is_store(path) else None
        labels = None if old is None else open_store(path, old)  # checked to the last byte
        rules = _rules(path, old, classes, duplicates, label_type)
        blanks = Missing.of(missing_words)
        inputs = Inputs(list_files(files), Columns(item, annotator, label), format, folder, blanks)
        inputs, digests, notes = _fresh(inputs, old.inputs if old else (), again)
        notes += inputs.guesses({"item": item, "annotator": annotator, "label": label})
        if old is not None and not inputs.files:
            _remove_unlisted(path)
            return replace(old, notes=(*old.notes, *notes))
        built = folder / "store"
        built.mkdir()
        with shown(progress) as told:
            packing = _Packing(inputs, budget, rules, labels, told)
            rows, left_out = packing.read()
            manifest = packing.write(built, rows, left_out + (old.left_out if old else 0), digests)
        tell()
        publish(built, path)
    notes += blanks.notes(sum(inputs.skipped.values()))
    return replace(manifest, notes=(*manifest.notes, *notes))


def _fresh(inputs: Inputs, known: Sequence[str], again: bool) -> tuple[Inputs, tuple[str, ...], list[str]]:
    """The files to add, the digests of all that the store will hold, and a word on those that are skipped."""
    files, digests, notes = [], list(known), list[str]()
    for file in inputs.files:
        digest = inputs.digest(file)
        if digest in digests and not again:
            notes.append(f"{file.path} is in the store already and was skipped (again=True adds it anew)")
        else:
            files.append(file)
            digests.append(digest)
    return replace(inputs, files=files), tuple(sorted(digests)), notes


@dataclass(frozen=True)
class _Rules:
    """What a store keeps to."""

    classes: Vocabulary | None
    duplicates: Duplicates
    label_type: LabelType | None


def _rules(
    store: Path,
    old: Manifest | None,
    classes: Sequence[Any] | None,
    duplicates: Duplicates | None,
    label_type: LabelType | None,
) -> _Rules:
    classes, label_type = declared_classes("pack", classes, label_type)
    if duplicates is not None and duplicates not in DUPLICATE_POLICIES:
        raise bad_parameter("pack", "duplicates", f"one of {DUPLICATE_POLICIES}", duplicates)
    given = None if classes is None else tuple(map(str, classes))
    if old is None:
        order = None if given is None else ordered_vocabulary(Vocabulary(texts(given), "label"), "label")
        return _Rules(order, duplicates or "keep", label_type)
    if given is not None and given != (old.classes if old.declared else None):
        raise DataError(f"{store}: was packed with another label set; leave classes= out")
    if duplicates not in (None, old.duplicates):
        raise DataError(f"{store}: was packed with duplicates={old.duplicates!r}; leave duplicates= out")
    if label_type not in (None, old.label_type):
        raise DataError(f"{store}: was packed with label_type={old.label_type!r}; leave label_type= out")
    kept = Vocabulary(texts(old.classes), "label") if old.declared else None
    return _Rules(kept, old.duplicates, old.label_type)


class _Column:
    """Items, annotators or labels of all chunks: codes, and the ids that they stand for.

    The distinct ids of a chunk wait in a list of their own until many have come together; then those that
    several chunks have get one code. Without an ``order``, ids stand as they were first read.
    """

    def __init__(self, what: str, known: Vocabulary | None, order: Vocabulary | None) -> None:
        self.what, self._order = what, order
        self.codes: list[Codes] = []
        self.ids = pa.array([], pa.large_string()) if known is None else known.arrow.cast(pa.large_string())
        self.lists: list[pa.Array] = []  # of the last chunks

    def add(self, values: pa.ChunkedArray, place: Place) -> None:
        """Code the values of a chunk."""
        if self._order is not None:
            self.codes.append(encode(values, self.what, self._order, place)[0])
            return
        codes, distinct = dictionary(values, self.what, place)
        self.codes.append(codes)
        self.lists.append(distinct.cast(pa.large_string()))

    def merge(self) -> None:
        """Give ids that several chunks have one code."""
        n_lists, first = len(self.lists), len(self.codes) - len(self.lists)
        if not n_lists:
            return
        # Arrow codes in order of appearance, so that ids that are merged already keep their codes.
        merged = pa.chunked_array([self.ids, *self.lists]).dictionary_encode().chunks[-n_lists:]
        for chunk, coded in enumerate(merged, start=first):
            self.codes[chunk] = numbers(coded.indices)[self.codes[chunk]]
        self.ids, self.lists = merged[0].dictionary, []
        pa.default_memory_pool().release_unused()
        if len(self.ids) > MOST_IDS:
            raise DataError(f"there are {len(self.ids):,} {self.what}s, more than 2 billion; split the files")

    def sorted(self) -> Coded:
        """All codes in order of reading, and the sorted vocabulary that they count in."""
        vocabulary, code = self._order, None
        if vocabulary is None:
            ids, self.ids = Vocabulary(self.ids, self.what), None
            order = sorted_order(ids.arrow, self.what)
            code = np.empty(len(ids), np.int32)
            code[order] = np.arange(len(ids), dtype=np.int32)
            vocabulary = ids.take(order)
        column = np.empty(sum(map(len, self.codes)), np.int32)
        stop = len(column)
        while self.codes:  # from the last on: the memory of one is free before the next is copied
            chunk = self.codes.pop()
            column[stop - len(chunk) : stop] = chunk if code is None else code[chunk]
            stop -= len(chunk)
        return column, vocabulary


@dataclass
class _Packing:
    """One packing."""

    inputs: Inputs
    budget: ChunkLimits
    rules: _Rules
    old: Annotations | None  # the labels that are in the store already
    progress: Progress
    started: float = field(default_factory=time.monotonic)

    def read(self) -> tuple[list[Coded], int]:
        """All rows in canonical order, with what their codes stand for, and how many rows were left out."""
        columns, n_old, n_rows = self._columns()
        self._tell("sorting ids", 0.6, n_rows)
        with ThreadPoolExecutor(len(COLUMNS)) as threads:
            list(threads.map(_Column.merge, columns))
            self._check_memory(n_rows, columns)
            item, annotator, label = threads.map(_Column.sorted, columns)
        self._tell("sorting labels", 0.7, n_rows)

        def place(row: int) -> str:
            return self.inputs.place(self.inputs.pieces(self.budget), row - n_old)

        rows, left_out = resolved_rows(item, annotator, label, self.rules.duplicates, place)
        return list(zip(rows, (item[1], annotator[1], label[1]), strict=True)), left_out

    def _columns(self) -> tuple[list[_Column], int, int]:
        """The columns of all chunks, and the number of rows, those of the store and all."""
        old, order = self.old, (None, None, self.rules.classes)
        known = (None, None, None) if old is None else old.vocabularies
        columns = list(map(_Column, COLUMNS, known, order))
        n_old = n_rows = 0 if old is None else old.n_labels
        if old is not None:
            for column, codes in zip(columns, old.columns, strict=True):
                column.codes.append(codes)
        about = n_old + self.inputs.n_rows_about
        self._check_memory(about, columns)
        whole, done = max(1, self.inputs.n_bytes), 0
        for pieces in self.inputs.chunks(self.budget):
            parts = zip(*(piece.columns for piece in pieces), strict=True)
            values = [pa.chunked_array(part, pa.string()) for part in parts]
            places = [partial(self.inputs.place, pieces)] * len(COLUMNS)
            with ThreadPoolExecutor(len(COLUMNS)) as threads:
                list(threads.map(_Column.add, columns, values, places))
            n_rows += sum(map(len, pieces))
            done += sum(piece.n_bytes for piece in pieces)
            share = 0.6 * min(1.0, done / whole)
            self._tell(f"reading {pieces[-1].file.path.name}", share, n_rows - n_old)
            self._check_memory(max(n_rows, about), columns)
            pieces.clear()  # their memory is wanted for merging
            del parts, values, places
            pa.default_memory_pool().release_unused()
            for column in columns:
                if sum(waiting.nbytes for waiting in column.lists) > self.budget.text:
                    column.merge()
        return columns, n_old, n_rows

    def _check_memory(self, n_rows: int, columns: Sequence[_Column]) -> None:
        """Refuse what does not fit: all rows with their sorting keys, or their codes with the ids' keys."""
        row = ROW_SORTED if self.rules.duplicates == "keep" else ROW_RESOLVED
        ids = sum(ID_SORTED * len(column.ids) + 3 * column.ids.nbytes for column in columns)
        waiting = sum(own.nbytes for column in columns for own in column.lists)
        needed = max(row * n_rows, ROW_CODED * n_rows + ids + 2 * waiting)
        self.budget.check(needed, f"packing about {n_rows:,} labels", "pack the files into several stores")

    def write(self, folder: Path, rows: Sequence[Coded], left_out: int, digests: tuple[str, ...]) -> Manifest:
        """The files of the new store, and the manifest that names them."""
        (item, items), (_, annotators), (_, classes) = rows
        self._tell("writing labels", 0.8, len(item))
        content: dict[str, NDArray[Any] | Vocabulary] = {"item-rows": pointers(item, len(items))}
        content |= {f"{what}-codes": codes for what, (codes, _) in zip(COLUMNS, rows, strict=True)}
        content |= {"item-ids": items, "annotator-ids": annotators}
        files = {what: _stored(folder, what, held) for what, held in content.items()}
        self.progress("looking at ids", 0.95)
        manifest = Manifest(
            n_labels=len(item),
            n_items=len(items),
            n_annotators=len(annotators),
            classes=tuple(classes.arrow.to_pylist()),
            declared=self.rules.classes is not None,
            duplicates=self.rules.duplicates,
            left_out=left_out,
            notes=tuple(note for _, vocabulary in rows for note in lookalike_notes(vocabulary)),
            inputs=digests,
            files=files,
            label_type=self.rules.label_type,
        )
        write_manifest(manifest, folder)
        return manifest

    def _tell(self, what: str, share: float, n_rows: int) -> None:
        seconds = max(time.monotonic() - self.started, 1e-3)
        self.progress(f"{what} ({n_rows:,} labels, {n_rows / seconds:,.0f} a second)", share)


def _stored(folder: Path, what: str, content: NDArray[Any] | Vocabulary) -> StoredFile:
    """Write numbers or ids into a file that is named after its content."""
    path = folder / what
    with path.open("wb") as file:  # where a full disk is an error; in a memory map it is a crash
        if isinstance(content, Vocabulary):
            table = pa.table({content.what: content.arrow})
            with pa.ipc.new_file(file, table.schema) as writer:
                writer.write_table(table)
        else:
            numbers = content.astype(content.dtype.newbyteorder("<"), copy=False)
            np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(numbers))
            file.write(numbers.data)
    crc, suffix = checksum(path), "arrow" if isinstance(content, Vocabulary) else "npy"
    named = path.rename(folder / f"{what}-{crc:08x}.{suffix}")
    return StoredFile(named.name, named.stat().st_size, crc)


# ---- the folder beside the store, and the one step that makes the result visible ----------------------


@contextmanager
def workspace(store: Path) -> Iterator[Path]:
    """An empty folder beside the store for as long as the block lasts, ours alone."""
    target = Path(os.path.realpath(store))
    if target.exists() and not target.is_dir():
        raise DataError(f"{store}: is a file; name a directory for the store")
    if target.is_dir() and not is_store(target) and any(target.iterdir()):
        raise DataError(f"{store}: exists and is no store; choose another place for the store")
    folder = target.with_name(f".{target.name}.packing")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_be_written(store, error) from error
    with held(folder) as ours:
        if not ours:
            raise DataError(f"{store}: another packing is at work on it; wait for its end")
        with gone_afterwards(store, folder):
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
