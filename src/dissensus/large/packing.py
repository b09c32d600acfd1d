"""Writing files of labels into a store on disk.

Files are read in chunks of rows. Their ids join three growing vocabularies, and each row becomes 12 bytes of
codes. After reading, ids and rows are sorted in memory and written to a temporary folder, which is renamed to
the store as the last step. The store depends only on the labels, not on the order, number or format of files.

A directory means all files in it and below, in the order of their paths; names that begin with a dot or an
underscore are ignored, as by other engines. A folder called ``label=yes`` gives every row below it that value
if the files have no such column.
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
from dissensus.labels import provided, vocabulary
from dissensus.labels.kinds import LabelType
from dissensus.labels.rows import DUPLICATE_POLICIES, Coded, Duplicates, resolve_duplicates
from dissensus.labels.vocabulary import Locate, Vocabulary, arrow_indices, dictionary_encode, encode, to_arrow
from dissensus.large.file_arrays import file_checksum
from dissensus.large.store import CODE_COLUMNS, CODES, IDS, Manifest, StoredFile, is_store, write_manifest
from dissensus.params import PROCESS_BYTES, n_bytes, physical_memory, size_words
from dissensus.progress import Progress, ShowProgress, shown
from dissensus.tables.atomic import atomic_directory
from dissensus.tables.columns import guess_note, has_column
from dissensus.tables.layouts import MissingWords, ReadOptions, long_columns, lookalike_notes, parse_classes
from dissensus.tables.source import GZIP_MAGIC, PARQUET_MAGIC, open_source, refuse_pipe, within_memory
from dissensus.tables.tables import StreamedTable, open_file

NEW_ID_BYTES = 64_000_000  # bytes of ids collected before they are merged into a vocabulary
SAMPLED_BYTES = 1 << 22  # bytes at the beginning of a file from which its rows are estimated
# Bytes per label: three codes; codes with a sorting key; and with the comparison of repeated pairs.
CODED_ROW_BYTES, SORTED_ROW_BYTES, RESOLVED_ROW_BYTES = 12, 24, 60
SORTED_ID_BYTES, ID_TEXT_COPIES = 100, 3  # bytes per sorted id, and copies of its text


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
    """Write files of labels, possibly larger than memory, into a store that is read like a file.

    Parameters
    ----------
    files
        One or several paths: CSV, TSV, JSON lines or Parquet with one row per label, possibly gzipped, or
        directories of such files.
    store
        The directory to write. It appears complete or not at all; an existing store is replaced.
    item, annotator, label
        Names of the three columns; by default they are found by their usual names.
    classes, label_type, duplicates, format, missing_words
        As for :func:`dissensus.read_annotations`.
    memory
        Memory limit without mapped files: ``"2GB"``, or a number of bytes. Labels that do not fit are
        refused. None uses the limit of :func:`dissensus.resources`, or the memory of the machine.
    progress
        True or False, a function called with (title, share done), or None for a bar on a terminal.

    Returns
    -------
    Manifest
        Counts, classes and notes of the store.
    """
    path = Path(store)
    if path.is_dir() and not is_store(path) and any(path.iterdir()):
        raise DataError(f"{store}: exists and is not a store; choose another directory")
    limit = engine.current().memory if memory is None else n_bytes(memory, "write_store")
    classes, label_type = parse_classes("write_store", classes, label_type)
    if duplicates not in DUPLICATE_POLICIES:
        raise bad_parameter("write_store", "duplicates", f"one of {DUPLICATE_POLICIES}", duplicates)
    order = None if classes is None else list(map(str, classes))
    blanks = MissingWords.parse(missing_words)
    with shown(progress) as report, within_memory(limit), atomic_directory(path) as folder:
        # gzipped files are unpacked in the hidden parent folder of the new store
        row_bytes = SORTED_ROW_BYTES if duplicates == "keep" else RESOLVED_ROW_BYTES
        options = (item, annotator, label), format, folder.parent, blanks, limit or physical_memory()
        reader = LabelFileReader(list_files(files), *options, row_bytes)
        items, annotators, labels = reader.read(order, report)
        rows, left_out = resolve_duplicates(items, annotators, labels, duplicates, reader.locate)
        report(f"writing {len(rows[0]):,} labels", 0.8)
        content: tuple[Any, ...] = (*rows, items[1], annotators[1])
        paths = [folder / name for name in (*CODES, *IDS)]
        stored = {path.name: _write_column(path, column) for path, column in zip(paths, content, strict=True)}
        report("comparing ids", 0.95)
        sizes, classes = (len(rows[0]), len(items[1]), len(annotators[1])), labels[1].arrow.to_pylist()
        notes = [note for _, ids in (items, annotators, labels) for note in lookalike_notes(ids)]
        policy = order is not None, duplicates, left_out
        manifest = Manifest(*sizes, tuple(classes), *policy, tuple(notes), stored, label_type)
        write_manifest(manifest, folder)
    skipped = blanks.notes(sum(len(span.blank) for span in reader.spans))
    return replace(manifest, notes=(*manifest.notes, *reader.guesses, *skipped))


def _write_column(path: Path, content: NDArray[Any] | Vocabulary) -> StoredFile:
    """Write codes or ids to a file of the store."""
    with path.open("wb") as file:  # not a memory map, in which a full disk would crash
        if isinstance(content, Vocabulary):
            parquet.write_table(pa.table({content.role: content.arrow}), file, use_dictionary=False)
        else:
            codes = content.astype("<i4", copy=False)
            np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(codes))
            file.write(codes.data)
    return StoredFile(path.stat().st_size, file_checksum(path))


class _GrowingColumn:
    """Items, annotators or labels of all rows, as an Arrow dictionary array that grows by chunks.

    Each chunk has its own dictionary until many ids have accumulated; then the chunks are merged. With an
    ``order``, every dictionary is that order.
    """

    def __init__(self, role: str, order: Sequence[str] | None) -> None:
        self.role, self._order = role, order
        self._chunks: list[pa.DictionaryArray] = []
        self.n_ids = self.n_bytes = self.n_new_bytes = 0  # of merged chunks, and of ids added since

    def add(self, values: pa.Array, locate: Locate) -> None:
        """Encode the values of a chunk."""
        if self._order is None:
            codes, ids = dictionary_encode(values, self.role, locate)
        else:
            codes, classes = encode(values, self.role, self._order, locate)
            ids = classes.arrow
        # all ids together may exceed the 2 GB limit of Arrow strings
        ids = ids.cast(pa.large_string())
        self._chunks.append(pa.DictionaryArray.from_arrays(vocabulary.arrow_numbers(codes), ids))
        self.n_new_bytes += ids.nbytes
        if self.n_new_bytes > max(NEW_ID_BYTES, self.n_bytes):
            self.merge()

    def merge(self) -> pa.DictionaryArray:
        """Merge the dictionaries of all chunks."""
        merged = pa.chunked_array(self._chunks).unify_dictionaries().combine_chunks()
        self._chunks = [merged]
        pa.default_memory_pool().release_unused()
        self.n_ids, self.n_bytes, self.n_new_bytes = len(merged.dictionary), merged.dictionary.nbytes, 0
        return merged

    def sorted(self) -> Coded:
        """Return all codes in the order of reading, and their sorted vocabulary."""
        merged, self._chunks = self.merge(), []
        if self._order is not None:
            return encode(merged, self.role, self._order)
        # as encode, for many ids that are distinct and all in use
        order = vocabulary.sorted_order(merged.dictionary, self.role)
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order), dtype=np.int32)
        ids = Vocabulary(merged.dictionary, self.role).take(order)
        return rank[vocabulary.numpy_numbers(merged.indices)], ids


# ---- files --------------------------------------------------------------------------------------------


class Span(NamedTuple):
    """Consecutive rows of one file, and those without a label."""

    file: Path
    first_row: int
    n_rows: int
    blank: NDArray[np.int32]


@dataclass
class LabelFileReader:
    """Reads files in chunks of rows and remembers the origin of each row."""

    files: Sequence[Path]
    names: tuple[str | None, str | None, str | None]  # column names given by the user
    format: str | None
    scratch: Path
    missing: MissingWords
    memory: int  # limit in bytes
    row_bytes: int  # memory per row for sorting
    columns: Sequence[_GrowingColumn] = ()
    spans: list[Span] = field(default_factory=list)  # rows read so far
    guesses: list[str] = field(default_factory=list)

    def read(self, order: Sequence[str] | None, report: Progress) -> list[Coded]:
        """Return the codes of items, annotators and labels of all rows, each with the sorted ids."""
        self.columns = list(map(_GrowingColumn, CODE_COLUMNS, (None, None, order)))
        expected, n_rows = sum(map(_estimate_rows, filter(Path.is_file, self.files))), 0
        self._check_memory(expected)
        with ThreadPoolExecutor(len(CODE_COLUMNS)) as threads:
            for file in self.files:
                for values in self._chunks(file, expected):
                    locate = partial(self.locate, first=n_rows)
                    list(threads.map(_GrowingColumn.add, self.columns, values, [locate] * len(CODE_COLUMNS)))
                    n_rows += len(values[0])
                    expected = max(expected, n_rows)
                    report(f"reading {file.name} ({n_rows:,} labels)", 0.6 * n_rows / expected)
                    self._check_memory(expected)
        if not n_rows:
            problem = "every label is blank, so there is nothing to write"
            raise DataError(f"{self.files[0]}: {problem}; check the label column")
        report(f"sorting {n_rows:,} labels", 0.6)
        return [column.sorted() for column in self.columns]

    def _chunks(self, file: Path, expected: int) -> Iterator[list[pa.Array]]:
        """Yield items, annotators and labels, as strings, of the rows of a file that have a label."""
        table, first_row = self._open(file), 0
        self._check_memory(expected, table.min_memory)
        for arrays in table.chunks(self._column_names(table)):
            n_rows = len(arrays[0])
            values = [to_arrow(column, role) for column, role in zip(arrays, CODE_COLUMNS, strict=True)]
            blank = self.missing.mask(values[2])
            if blank.any():
                values = [column.take(arrow_indices(np.flatnonzero(~blank))) for column in values]
            self.spans.append(Span(file, first_row, n_rows, np.flatnonzero(blank).astype(np.int32)))
            first_row += n_rows
            if len(values[0]):
                yield values
            table.source.forget()

    def _check_memory(self, n_rows: int, reading: int = 0) -> None:
        """Raise an error if rows with sorting keys, or their codes with sorted ids, exceed the memory."""
        text = sum(column.n_bytes + column.n_new_bytes for column in self.columns)
        ids = SORTED_ID_BYTES * sum(column.n_ids for column in self.columns) + ID_TEXT_COPIES * text
        needed = PROCESS_BYTES + max(self.row_bytes * n_rows, CODED_ROW_BYTES * n_rows + ids + reading)
        if needed > self.memory:
            sizes = f"{size_words(needed)} of memory, and the limit is {size_words(self.memory)}"
            remedy = f"raise {setting('memory')}, or write several stores"
            raise DataError(f"reading and sorting about {n_rows:,} labels needs {sizes}; {remedy}")

    def locate(self, row: int, first: int = 0) -> str:
        """Return file and line of a row, counted from the label row ``first``."""
        row += first
        for span in self.spans:
            n_labels = span.n_rows - len(span.blank)
            if row < n_labels:
                inside = np.delete(np.arange(span.n_rows), span.blank)[row]
                return self._open(span.file).locate(span.first_row + int(inside))
            row -= n_labels
        raise IndexError(row)

    def _open(self, file: Path) -> StreamedTable:
        return open_file(open_source(file, self.scratch), self.format)

    def _column_names(self, table: StreamedTable) -> tuple[str, str, str]:
        """Return the names of the three columns, and note the first guess."""
        pairs = zip(CODE_COLUMNS, self.names, strict=True)
        named: dict[str, Any] = {role: name for role, name in pairs if name is not None}
        if not named and not any(has_column(table.columns, role) for role in CODE_COLUMNS[1:]):
            raise _not_long(table.name, "no column is called annotator or label")
        names = long_columns(table, ReadOptions(**named), [])
        guess = guess_note(dict(zip(CODE_COLUMNS, names, strict=True)), named)
        if guess and not self.guesses:
            self.guesses.append(f"{table.name}: {guess}")
        return names


def _estimate_rows(path: Path) -> int:
    """Estimate the rows of a file from its beginning; 0 if it cannot be read, which fails later."""
    try:
        with path.open("rb") as raw:
            start = raw.peek(4)
            if start.startswith(PARQUET_MAGIC):
                return int(parquet.read_metadata(path).num_rows)
            lines = gzip.GzipFile(fileobj=raw) if start.startswith(GZIP_MAGIC) else raw
            return lines.read(SAMPLED_BYTES).count(b"\n") * path.stat().st_size // max(raw.tell(), 1)
    except (pa.ArrowException, OSError, EOFError, zlib.error):
        return 0


def list_files(paths: Any) -> list[Path]:
    """List the files of paths and directories."""
    files: list[Path] = []
    for path in map(Path, [paths] if isinstance(paths, str | os.PathLike) else paths):
        if is_store(path):
            raise DataError(f"{path}: this is a store; pass the files it was written from")
        n_before = len(files)
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            parts = file.relative_to(path).parts
            if file.is_dir() or any(part.startswith((".", "_")) for part in parts):
                continue
            if parts:
                refuse_pipe(file)
            export = provided("recognise_export")(file) if file.is_file() else None
            if export is not None:
                raise _not_long(str(file), provided("export_formats")[export].title)
            files.append(file)
        if len(files) == n_before:
            raise DataError(f"{path}: the directory contains no files; check the path")
    if not files:
        raise bad_parameter("write_store", "files", "one or more files or directories", paths)
    return files


def _not_long(name: str, reason: str) -> DataError:
    problem, command = "not a table with one row per label", f"dissensus import {name} -o labels.parquet"
    return DataError(f"{name}: {problem} ({reason}); name its columns, or convert it first with: {command}")
