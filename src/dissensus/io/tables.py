"""Plain tables: CSV, TSV, JSON lines, Parquet, each also gzipped, and data frames, behind one interface.

Ids and labels from a file are strings, whatever the format: the text that stands in a CSV, the digits of a
JSON or Parquet number. ``none``, ``NA`` and ``007`` stay what they are, and the same table gives the same
annotations in every format.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import pyarrow as pa

from dissensus.errors import DataError, bad_choice
from dissensus.io.source import PARQUET_MAGIC, Source, open_source

FORMATS = ("csv", "tsv", "jsonl", "json", "parquet")
_SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet"}
_SUFFIXES |= {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"}


class Table(Protocol):
    """Named columns, read when asked for, and where each row stands in the source."""

    name: str
    columns: list[str]
    frame_kind: str

    def ids(self, columns: Sequence[str]) -> list[pa.ChunkedArray]:
        """Columns of ids or labels."""

    def everything(self) -> pa.Table:
        """All columns."""

    def native(self, column: str) -> Any:
        """A column's name as the source has it (frames may name columns by numbers)."""

    def order(self, column: str) -> Sequence[Any] | None:
        """The order of a column's values, where the source declares one."""

    def place(self, row: int) -> str:
        """Where a row stands, in words."""


class StreamedTable(Table, Protocol):
    """A table in a file, which may be larger than memory."""

    source: Source

    def chunks(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """What ``ids`` gives, some rows at a time."""

    @property
    def at_once(self) -> int:
        """Bytes of memory that ``chunks`` needs beside the chunk, where the format cannot be cut."""


def open_table(source: Any, format: str | None = None, name: str = "the data frame") -> Table:
    """A table from a path or a data frame.

    ``format`` names the file's format where its content does not; ``name`` is what messages call a frame.
    """
    if isinstance(source, str | os.PathLike):
        return open_file(open_source(source), format)
    from dissensus.io.frames import FrameTable

    return FrameTable(source, name)


def open_file(source: Source, format: str | None = None) -> StreamedTable:
    """The table in a file's bytes."""
    from dissensus.io.delimited import DelimitedTable
    from dissensus.io.json_lines import JsonTable
    from dissensus.io.parquet import ParquetTable

    kind = format or recognise_format(source)
    if kind == "parquet":
        return ParquetTable(source)
    if kind in ("json", "jsonl"):
        return JsonTable(source)
    if kind in ("csv", "tsv"):
        return DelimitedTable(source, "\t" if format == "tsv" else None)
    from dissensus.io import exports

    raise bad_choice("read_annotations", "format", (*FORMATS, "wide", "counts", *exports.FORMATS), kind)


def recognise_format(source: Source) -> str:
    """The format by the first bytes, and by the suffix where they leave it open."""
    start = source.start
    named = _SUFFIXES.get(source.suffix, "")
    if start.startswith(PARQUET_MAGIC):
        return "parquet"
    if named == "parquet":
        raise DataError(f"{source.name}: is called {source.suffix} and is no Parquet file; write it again")
    if named in ("json", "jsonl") or (start[:1] in (b"{", b"[") and named not in ("csv", "tsv")):
        return "jsonl"
    return "csv"


class FileTable:
    """What the tables in files share: rows are named after the file, columns are what they are called."""

    frame_kind = "pandas"
    columns: list[str]

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name

    def native(self, column: str) -> str:
        """The column's name."""
        return column

    def order(self, column: str) -> None:
        """Files declare no order."""
        return

    @property
    def at_once(self) -> int:
        """Most formats can be read in pieces of any size."""
        return 0
