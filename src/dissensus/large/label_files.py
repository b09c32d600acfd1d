"""Files and partitioned directories as chunks of ids that fit memory, and where each row stood.

A directory stands for all files in it and below, in the order of their paths; names that begin with a dot or
an underscore are left aside, as other engines do. A folder called ``label=yes`` gives every row below it that
value, where the files have no such column themselves.
"""

from __future__ import annotations

import hashlib
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import parquet

from dissensus.errors import DataError, bad_parameter
from dissensus.labels.sources import provided
from dissensus.labels.vocabulary import places, to_arrow
from dissensus.large.store import COLUMNS, is_store
from dissensus.params import PROCESS_BYTES, n_bytes, size_words
from dissensus.tables.columns import (
    find_column,
    guess_words,
    has_column,
    only_column_left,
    refuse_one_for_two,
)
from dissensus.tables.layouts import KEEP_BLANKS, Columns, Missing
from dissensus.tables.source import (
    GZIP_MAGIC,
    PARQUET_MAGIC,
    explained,
    first_bytes,
    open_source,
    refuse_pipe,
)
from dissensus.tables.tables import StreamedTable, open_file

# ---- how much may be in memory at once ----------------------------------------------------------------

# Bytes of memory that one row or id of a chunk takes at most while it is coded and sorted, its text apart.
ROW = 200
# Copies of a chunk's text at once: as read, joined, in the dictionary, sorted.
TEXT_COPIES = 5
# Bytes for chunks, codes and ids: with less, chunks would be so small that the packing would never end.
LEAST_FREE = 80_000_000


@dataclass(frozen=True)
class ChunkLimits:
    """A limit on memory, and what it means for a chunk."""

    memory: int  # bytes, of the whole process
    rows: int  # label rows, or ids, in memory at once
    text: int  # bytes of ids in memory at once

    @classmethod
    def of(cls, memory: str | int) -> ChunkLimits:
        """The budget for ``"2GB"``, ``"512MB"`` or a number of bytes."""
        whole = n_bytes(memory, "pack")
        least = PROCESS_BYTES + LEAST_FREE
        if whole < least:
            raise bad_parameter("pack", "memory", f"at least {size_words(least)}", memory)
        free = whole - PROCESS_BYTES
        # A third for the chunk; the rest for the codes and ids of all chunks so far.
        return cls(whole, free // (3 * ROW), free // (3 * TEXT_COPIES))

    def check(self, needed: int, what: str, remedy: str) -> None:
        """Refuse what cannot be done in less than ``needed`` bytes beside the base."""
        if PROCESS_BYTES + needed > self.memory:
            raise DataError(
                f"{what} needs {size_words(PROCESS_BYTES + needed)} of memory, and {size_words(self.memory)} "
                f"are allowed; give memory=, or {remedy}"
            )


# ---- files in chunks ----------------------------------------------------------------------------------

_NOTHING = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True)
class File:
    """A file, and the columns that the folders above it stand for."""

    path: Path
    folders: dict[str, str | None]


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of one file."""

    file: File
    first_row: int
    columns: list[pa.Array]  # items, annotators, labels
    rows: NDArray[np.intp] | None = None  # which of the rows from the first on; None: all

    def __len__(self) -> int:
        return len(self.columns[0])

    @property
    def n_bytes(self) -> int:
        """Of text."""
        return sum(column.nbytes for column in self.columns)


@dataclass(frozen=True)
class Inputs:
    """Where the labels are, and how they are read."""

    files: Sequence[File]
    columns: Columns
    format: str | None
    scratch: Path  # where gzipped files are unzipped
    missing: Missing = KEEP_BLANKS
    skipped: dict[Path, int] = field(default_factory=dict)  # rows without a label, once a file was read

    @property
    def n_bytes(self) -> int:
        """Size of all files."""
        return sum(file.path.stat().st_size for file in self.files if file.path.exists())

    @property
    def n_rows_about(self) -> int:
        """The number of rows that the largest file of each kind makes likely."""
        kinds: dict[str, list[tuple[int, Path]]] = {}
        for path in [file.path for file in self.files if file.path.is_file()]:
            kinds.setdefault("".join(path.suffixes), []).append((path.stat().st_size, path))
        return sum(
            int(self._rows_per_byte(max(files)[1]) * sum(size for size, _ in files))
            for files in kinds.values()
        )

    def _rows_per_byte(self, path: Path) -> float:
        """As the beginning of a file has them; 0 where it cannot be read: a JSON array, or an error later."""
        try:
            source = first_bytes(path)
            if source.start.startswith(PARQUET_MAGIC):
                return float(parquet.read_metadata(path).num_rows / path.stat().st_size)
            whole = replace(source, raw=source.raw[: source.raw.rfind(b"\n") + 1])
            table = open_file(whole, self.format)
            n_rows = sum(len(columns[0]) for columns in table.chunks(table.columns[:1]))
            with path.open("rb") as file:
                zipped = file.read(2) == GZIP_MAGIC
            return n_rows / len(zlib.compress(whole.raw) if zipped else whole.raw)
        except (DataError, pa.ArrowException, OSError, EOFError, zlib.error):
            return 0.0

    def chunks(self, budget: ChunkLimits) -> Iterator[list[Piece]]:
        """All rows, as many at a time as the budget allows."""
        pieces: list[Piece] = []
        rows = text = 0
        for piece in self.pieces(budget):
            if pieces and (rows + len(piece) > budget.rows or text + piece.n_bytes > budget.text):
                yield pieces
                pieces, rows, text = [], 0, 0
            pieces.append(piece)
            rows, text = rows + len(piece), text + piece.n_bytes
        if not pieces:
            raise DataError(f"{self.files[0].path}: every label is blank; there is nothing to pack")
        yield pieces

    def pieces(self, budget: ChunkLimits) -> Iterator[Piece]:
        """The rows that have a label, a few at a time; all rows where blank labels are to be refused."""
        for file in self.files:
            table = self._open(file)
            budget.check(table.at_once, f"{file.path}: reading it whole, as it is written,", "write it anew")
            row = skipped = 0
            for columns in self._rows(table, file):
                piece, n_rows = Piece(file, row, columns), len(columns[0])
                none = self.missing.among(columns[2])
                if none.any():
                    rows = np.flatnonzero(~none)
                    labelled = [column.take(places(rows)) for column in columns]
                    piece = Piece(file, row, labelled, rows)
                if len(piece):
                    yield piece
                row, skipped = row + n_rows, skipped + n_rows - len(piece)
                table.source.forget()
            self.skipped[file.path] = skipped

    @staticmethod
    def digest(file: File) -> str:
        """SHA-256 of a file's bytes, and of the folders above it that stand for columns."""
        with explained(str(file.path), file.path), file.path.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256")
        digest.update(json.dumps(file.folders, sort_keys=True).encode())
        return digest.hexdigest()

    def guesses(self, given: Mapping[str, str | None]) -> list[str]:
        """What is taken for what in the first file whose columns are not called as their roles are."""
        named = [role for role, name in given.items() if name is not None]
        for file in self.files:
            names = self._names(self._open(file), file)
            word = guess_words(dict(zip(COLUMNS, names, strict=True)), named)
            if word:
                return [f"{file.path}: {word}"]
        return []

    def _open(self, file: File) -> StreamedTable:
        return open_file(open_source(file.path, self.scratch), self.format)

    def _rows(self, table: StreamedTable, file: File) -> Iterator[list[pa.Array]]:
        """Items, annotators and labels of a file, as strings, some rows at a time."""
        names = self._names(table, file)
        inside = [name for name in names if name in table.columns] or table.columns[:1]
        for arrays in table.chunks(inside):
            columns = dict(zip(inside, arrays, strict=True))
            for name in set(names).difference(inside):
                columns[name] = pa.repeat(pa.scalar(file.folders[name], pa.string()), len(arrays[0]))
            yield [to_arrow(columns[name], role) for name, role in zip(names, COLUMNS, strict=True)]

    def _names(self, table: StreamedTable, file: File) -> list[str]:
        """The three columns, each by its name or as told."""
        known = list(dict.fromkeys([*table.columns, *file.folders]))
        item, annotator, label = self.columns.item, self.columns.annotator, self.columns.label
        told = annotator is not None or label is not None
        if not (told or has_column(known, "annotator") or has_column(known, "label")):
            raise _not_long(table.name, "no column is called annotator or label")
        if item is None and not has_column(known, "item"):
            item = only_column_left(known, annotator, label)
        names: list[str] = []
        for role, name in zip(COLUMNS, (item, annotator, label), strict=True):
            if name is not None and not isinstance(name, str):
                raise bad_parameter("pack", role, "the name of a column", name)
            names.append(find_column(known, role, name, table.name, taken=names))
        refuse_one_for_two(names, known, table.name)
        return names

    def place(self, pieces: Iterable[Piece], row: int) -> str:
        """Where a row of consecutive pieces stands in its file."""
        for piece in pieces:
            if row < len(piece):
                own = row if piece.rows is None else int(piece.rows[row])
                return self._open(piece.file).place(piece.first_row + own)
            row -= len(piece)
        raise IndexError(row)


def list_files(given: Any) -> list[File]:
    """Every file that the given paths stand for, in order."""
    paths = [given] if isinstance(given, str | os.PathLike) else list(given)
    files = [file for path in paths for file in _below(Path(path))]
    if not files:
        raise bad_parameter("pack", "files", "one or more files or directories", given)
    for file in files:
        export = provided("export_title")(file.path) if file.path.is_file() else None
        if export is not None:
            raise _not_long(str(file.path), export)
    return files


def _below(path: Path) -> list[File]:
    """A file, or those in a directory and below, with the columns in folder names such as ``label=yes``."""
    if not path.is_dir():
        return [File(path, {})]
    if is_store(path):
        raise DataError(f"{path}: is a store; give the files it was packed from")
    files = []
    for file in sorted(path.rglob("*")):
        parts = file.relative_to(path).parts
        if file.is_dir() or any(part.startswith((".", "_")) for part in parts):
            continue
        refuse_pipe(file)
        pairs = [part.partition("=") for part in parts[:-1] if "=" in part]
        named = {unquote(name): None if value == _NOTHING else unquote(value) for name, _, value in pairs}
        files.append(File(file, named))
    if not files:
        raise DataError(f"{path}: there is no file in this directory; check the path")
    return files


def _not_long(name: str, reason: str) -> DataError:
    return DataError(
        f"{name}: is not a table with one row per label ({reason}); name its columns, or convert it first "
        f"with: dissensus import {name} -o labels.parquet"
    )
