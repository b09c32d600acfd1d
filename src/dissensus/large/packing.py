"""From files of labels to a store on disk.

Files are read some rows at a time. Their ids join three growing vocabularies, and each row becomes 12 bytes
of codes. When all are read, the ids are sorted, the rows take their final codes, are sorted in memory, and
are written into a folder beside the store, which takes the store's name as its last step. The store depends
on the labels alone: not on the order, number or format of the files.

A directory stands for all files in it and below, in the order of their paths; names that begin with a dot or
an underscore are left aside, as other engines do. A folder called ``label=yes`` gives every row below it that
value, where the files have no such column themselves.
"""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from dissensus import engine
from dissensus.errors import DataError, bad_parameter, setting
from dissensus.labels import vocabulary
from dissensus.labels.kinds import LabelType
from dissensus.labels.rows import DUPLICATE_POLICIES, Coded, Duplicates, resolved_rows
from dissensus.labels.sources import provided
from dissensus.labels.vocabulary import Place, Vocabulary, dictionary, encode, places, to_arrow
from dissensus.large.file_arrays import file_checksum
from dissensus.large.store import CODES, COLUMNS, IDS, Manifest, StoredFile, is_store, write_manifest
from dissensus.params import PROCESS_BYTES, n_bytes, physical_memory, size_words
from dissensus.progress import Progress, ShowProgress, shown
from dissensus.tables.atomic import atomic_directory
from dissensus.tables.columns import guess_words, has_column
from dissensus.tables.layouts import Missing, Wanted, declared_classes, long_columns, lookalike_notes
from dissensus.tables.source import GZIP_MAGIC, PARQUET_MAGIC, open_source, refuse_pipe, within_memory
from dissensus.tables.tables import StreamedTable, open_file

NEW_IDS = 64_000_000  # bytes of ids that are collected before they join a vocabulary
SAMPLE = 1 << 22  # bytes at the beginning of a file by which its rows are estimated
# Bytes of memory for each label: its three codes; these with a sorting key; and with pairs compared as well.
ROW_CODED, ROW_SORTED, ROW_RESOLVED = 12, 24, 60
ID_SORTED, TEXT_COPIES = 100, 3  # bytes of memory for each id that is sorted, and for each byte of its text


def write_store(
    files: Any,
    store: str | os.PathLike[str],
    *,
    item: str | None = None,
    annotator: str | None = None,
    label: str | None = None,
    classes: Sequence[Any] | None = None,
    label_type: LabelType | None = None,
    duplicates: Duplicates = "keep",
    format: str | None = None,
    missing_words: Sequence[str] | str = (),
    memory: str | int | None = None,
    progress: ShowProgress = None,
) -> Manifest:
    """Write files of labels, larger than memory if need be, into a store that is read like a file.

    Parameters
    ----------
    files
        A path, or several: CSV, TSV, JSON lines or Parquet with one row per label, each also gzipped, or
        directories of such files.
    store
        The directory to write. It appears whole or not at all; a store that is there is replaced.
    item, annotator, label
        Names of the three columns, found by their usual names where not given.
    classes, label_type, duplicates, format, missing_words
        As for :func:`dissensus.read_annotations`.
    memory
        How much memory may be used, mapped files apart: ``"2GB"``, or a number of bytes. Labels that do not
        fit are refused. None takes the limit of :func:`dissensus.resources`, or the memory of the machine.
    progress
        True or False, a function that is told (what, share done), or None: a bar on a terminal.

    Returns
    -------
    Manifest
        The counts, classes and notes of the store.
    """
    path = Path(store)
    if path.is_dir() and not is_store(path) and any(path.iterdir()):
        raise DataError(f"{store}: exists and is no store; choose another place for the store")
    limit = engine.current().memory if memory is None else n_bytes(memory, "write_store")
    classes, label_type = declared_classes("write_store", classes, label_type)
    if duplicates not in DUPLICATE_POLICIES:
        raise bad_parameter("write_store", "duplicates", f"one of {DUPLICATE_POLICIES}", duplicates)
    order = None if classes is None else list(map(str, classes))
    blanks = Missing.of(missing_words)
    with shown(progress) as tell, within_memory(limit), atomic_directory(path) as folder:
        # Gzipped files are unzipped in the hidden folder that the new store lies in.
        row_bytes, memory = ROW_SORTED if duplicates == "keep" else ROW_RESOLVED, limit or physical_memory()
        names = item, annotator, label
        reader = _Reader(list_files(files), names, format, folder.parent, blanks, memory, row_bytes)
        items, annotators, labels = reader.read(order, tell)
        rows, left_out = resolved_rows(items, annotators, labels, duplicates, reader.place)
        tell(f"writing {len(rows[0]):,} labels", 0.8)
        content: tuple[Any, ...] = (*rows, items[1], annotators[1])
        paths = [folder / name for name in (*CODES, *IDS)]
        stored = {path.name: _written(path, column) for path, column in zip(paths, content, strict=True)}
        tell("comparing ids", 0.95)
        manifest = Manifest(
            n_labels=len(rows[0]),
            n_items=len(items[1]),
            n_annotators=len(annotators[1]),
            classes=tuple(labels[1].arrow.to_pylist()),
            declared=order is not None,
            duplicates=duplicates,
            left_out=left_out,
            notes=tuple(note for _, ids in (items, annotators, labels) for note in lookalike_notes(ids)),
            files=stored,
            label_type=label_type,
        )
        write_manifest(manifest, folder)
    skipped = blanks.notes(sum(len(span.blank) for span in reader.spans))
    return replace(manifest, notes=(*manifest.notes, *reader.guesses, *skipped))


def _written(path: Path, content: NDArray[Any] | Vocabulary) -> StoredFile:
    """Write codes or ids into a file of the store."""
    with path.open("wb") as file:  # where a full disk is an error; in a memory map it is a crash
        if isinstance(content, Vocabulary):
            parquet.write_table(pa.table({content.what: content.arrow}), file, use_dictionary=False)
        else:
            codes = content.astype("<i4", copy=False)
            np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(codes))
            file.write(codes.data)
    return StoredFile(path.stat().st_size, file_checksum(path))


class _Column:
    """Items, annotators or labels of all rows, as an Arrow dictionary that grows piece by piece.

    A piece has a dictionary of its own until many ids have come together; then the pieces become one. With an
    ``order``, every dictionary is that.
    """

    def __init__(self, what: str, order: Sequence[str] | None) -> None:
        self.what, self._order = what, order
        self._pieces: list[pa.DictionaryArray] = []
        self.n_ids = self.n_bytes = self.n_new_bytes = 0  # of the merged pieces, and of ids that came since

    def add(self, values: pa.Array, place: Place) -> None:
        """Code the values of a piece."""
        if self._order is None:
            codes, ids = dictionary(values, self.what, place)
        else:
            codes, known = encode(values, self.what, self._order, place)
            ids = known.arrow
        # Ids of all pieces may have more text than Arrow's plain strings can count.
        ids = ids.cast(pa.large_string())
        self._pieces.append(pa.DictionaryArray.from_arrays(vocabulary.column(codes), ids))
        self.n_new_bytes += ids.nbytes
        if self.n_new_bytes > max(NEW_IDS, self.n_bytes):
            self.merge()

    def merge(self) -> pa.DictionaryArray:
        """Give ids that several pieces have one code."""
        merged = pa.chunked_array(self._pieces).unify_dictionaries().combine_chunks()
        self._pieces = [merged]
        pa.default_memory_pool().release_unused()
        self.n_ids, self.n_bytes, self.n_new_bytes = len(merged.dictionary), merged.dictionary.nbytes, 0
        return merged

    def sorted(self) -> Coded:
        """All codes in order of reading, and the sorted vocabulary that they count in."""
        merged, self._pieces = self.merge(), []
        if self._order is not None:
            return encode(merged, self.what, self._order)
        # The steps of encode for ids that are known to be distinct and used, and may be many.
        order = vocabulary.sorted_order(merged.dictionary, self.what)
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        return rank[vocabulary.numbers(merged.indices)], Vocabulary(merged.dictionary, self.what).take(order)


# ---- files --------------------------------------------------------------------------------------------


class Span(NamedTuple):
    """Consecutive rows of one file, and those of them that have no label."""

    file: Path
    first_row: int
    n_rows: int
    blank: NDArray[np.int32]


@dataclass
class _Reader:
    """Reads files a few rows at a time, and knows where each row stood."""

    files: Sequence[Path]
    names: tuple[str | None, str | None, str | None]  # of columns, as the user gave them
    format: str | None
    scratch: Path
    missing: Missing
    memory: int  # bytes that may be used
    row_bytes: int  # of each row, when it is sorted
    columns: Sequence[_Column] = ()
    spans: list[Span] = field(default_factory=list)  # of the rows read so far
    guesses: list[str] = field(default_factory=list)

    def read(self, order: Sequence[str] | None, tell: Progress) -> list[Coded]:
        """Codes of the items, annotators and labels of all rows, each with the sorted ids."""
        self.columns = list(map(_Column, COLUMNS, (None, None, order)))
        expected, n_rows = sum(map(_n_rows_about, filter(Path.is_file, self.files))), 0
        self._check_memory(expected)
        with ThreadPoolExecutor(len(COLUMNS)) as threads:
            for file in self.files:
                for values in self._pieces(file, expected):
                    place = partial(self.place, first=n_rows)
                    list(threads.map(_Column.add, self.columns, values, [place] * len(COLUMNS)))
                    n_rows += len(values[0])
                    expected = max(expected, n_rows)
                    tell(f"reading {file.name} ({n_rows:,} labels)", 0.6 * n_rows / expected)
                    self._check_memory(expected)
        if not n_rows:
            raise DataError(f"{self.files[0]}: every label is blank; there is nothing to write")
        tell(f"sorting {n_rows:,} labels", 0.6)
        return [column.sorted() for column in self.columns]

    def _pieces(self, file: Path, expected: int) -> Iterator[list[pa.Array]]:
        """Items, annotators and labels of the rows of a file that have a label, as strings."""
        table, first_row = self._open(file), 0
        self._check_memory(expected, table.at_once)
        for arrays in table.chunks(self._column_names(table)):
            n_rows = len(arrays[0])
            values = [to_arrow(column, role) for column, role in zip(arrays, COLUMNS, strict=True)]
            blank = self.missing.among(values[2])
            if blank.any():
                values = [column.take(places(np.flatnonzero(~blank))) for column in values]
            self.spans.append(Span(file, first_row, n_rows, np.flatnonzero(blank).astype(np.int32)))
            first_row += n_rows
            if len(values[0]):
                yield values
            table.source.forget()

    def _check_memory(self, n_rows: int, reading: int = 0) -> None:
        """Refuse labels that do not fit: rows with their sorting keys, or their codes and the ids' keys."""
        text = sum(column.n_bytes + column.n_new_bytes for column in self.columns)
        ids = ID_SORTED * sum(column.n_ids for column in self.columns) + TEXT_COPIES * text
        needed = PROCESS_BYTES + max(self.row_bytes * n_rows, ROW_CODED * n_rows + ids + reading)
        if needed > self.memory:
            raise DataError(
                f"reading and sorting about {n_rows:,} labels needs {size_words(needed)} of memory, and "
                f"{size_words(self.memory)} are allowed; allow more with {setting('memory')}, or write "
                "several stores"
            )

    def place(self, row: int, first: int = 0) -> str:
        """File and line of a row, counted from the label row ``first`` on."""
        row += first
        for span in self.spans:
            n_labels = span.n_rows - len(span.blank)
            if row < n_labels:
                inside = np.delete(np.arange(span.n_rows), span.blank)[row]
                return self._open(span.file).place(span.first_row + int(inside))
            row -= n_labels
        raise IndexError(row)

    def _open(self, file: Path) -> StreamedTable:
        return open_file(open_source(file, self.scratch), self.format)

    def _column_names(self, table: StreamedTable) -> tuple[str, str, str]:
        """The three columns, each by its name or as given; the first guess is noted."""
        given: dict[str, Any] = {
            role: name for role, name in zip(COLUMNS, self.names, strict=True) if name is not None
        }
        if not given and not any(has_column(table.columns, role) for role in COLUMNS[1:]):
            raise _not_long(table.name, "no column is called annotator or label")
        names = long_columns(table, Wanted(**given))
        guess = guess_words(dict(zip(COLUMNS, names, strict=True)), given)
        if guess and not self.guesses:
            self.guesses.append(f"{table.name}: {guess}")
        return names


def _n_rows_about(path: Path) -> int:
    """Estimate a file's rows by the lines at its beginning; 0 where it cannot be read (an error later)."""
    try:
        with path.open("rb") as raw:
            start = raw.peek(4)
            if start.startswith(PARQUET_MAGIC):
                return int(parquet.read_metadata(path).num_rows)
            lines = gzip.GzipFile(fileobj=raw) if start.startswith(GZIP_MAGIC) else raw
            return lines.read(SAMPLE).count(b"\n") * path.stat().st_size // max(raw.tell(), 1)
    except (pa.ArrowException, OSError, EOFError, zlib.error):
        return 0


def list_files(given: Any) -> list[Path]:
    """List every file that the given paths stand for."""
    files: list[Path] = []
    for path in map(Path, [given] if isinstance(given, str | os.PathLike) else given):
        if is_store(path):
            raise DataError(f"{path}: is a store; give the files it was written from")
        n_before = len(files)
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            parts = file.relative_to(path).parts
            if file.is_dir() or any(part.startswith((".", "_")) for part in parts):
                continue
            if parts:
                refuse_pipe(file)
            export = provided("export_title")(file) if file.is_file() else None
            if export is not None:
                raise _not_long(str(file), export)
            files.append(file)
        if len(files) == n_before:
            raise DataError(f"{path}: there is no file in this directory; check the path")
    if not files:
        raise bad_parameter("write_store", "files", "one or more files or directories", given)
    return files


def _not_long(name: str, reason: str) -> DataError:
    return DataError(
        f"{name}: is not a table with one row per label ({reason}); name its columns, or convert it first "
        f"with: dissensus import {name} -o labels.parquet"
    )
