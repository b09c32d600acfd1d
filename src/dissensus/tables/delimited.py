"""CSV, TSV and their kin, read by Arrow; the file is looked at line by line only when something is wrong."""

from __future__ import annotations

import csv
import mmap
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv as arrow_csv

from dissensus.errors import DataError
from dissensus.labels.vocabulary import texts
from dissensus.tables.columns import listed, refuse_doubled
from dissensus.tables.source import Source, encoding_error
from dissensus.tables.tables import FileTable

_DELIMITERS = (",", "\t", ";", "|")
_BLOCK = 1 << 20  # bytes that Arrow reads at a time
_PIECE = 1 << 16
_LARGEST_BLOCK = (1 << 31) - 1
_BLOCK_MEMORY = 4  # bytes of memory for each byte of a file that is read in one block
_UNPARSED = (pa.ArrowException, OSError, ValueError)

Record = tuple[int, list[str]]  # the line a record starts on, and its fields


class DelimitedTable(FileTable):
    """A header and one record a row, fields quoted where needed; every field is text."""

    def __init__(self, source: Source, delimiter: str | None = None) -> None:
        # A first line ``sep=;``, as Excel writes and reads it, names the delimiter; the line becomes empty.
        found = re.match(rb"(?:\xef\xbb\xbf)?\"?sep=(.)\"?(?=\r?\n)", source.raw[:16], re.IGNORECASE)
        if found is not None:
            source = replace(source, raw=bytes(source.raw[found.end() :]))
            delimiter = delimiter or found[1].decode("latin-1")
        super().__init__(source)
        self.delimiter = delimiter or _guess_delimiter(source)
        self.columns = next(_records(source, self.delimiter, "strict"), (1, []))[1]
        refuse_doubled(self.columns, f"{self.name} line 1")

    def chunks(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """The columns, as strings, some rows at a time."""
        rows = 0
        try:
            for batch in self._stream(list(columns), *self._cutting):
                rows += len(batch)
                yield [batch.column(name) for name in columns]
        except _UNPARSED as error:
            raise self._explained(error) from None
        if not rows:
            raise self._no_rows()

    @property
    def at_once(self) -> int:  # type: ignore[override]
        """A file whose quotes hide line breaks may have to be read in one block."""
        block, _ = self._cutting
        return _BLOCK_MEMORY * block if block > _BLOCK else 0

    def typed(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Columns as strings, by default all that have a name."""
        names = self._named if columns is None else list(columns)
        try:
            table = arrow_csv.read_csv(**self._options(names, _BLOCK, line_breaks=False))
        except _UNPARSED:
            table = None
        if table is None or not self._is_cut_at_lines(table.num_rows):
            self._refuse_open_quote()
            table = self._any_records(names)
        if not table.num_rows:
            raise self._no_rows()
        return table

    @property
    def _named(self) -> list[str]:
        """The columns that have a name."""
        return [name for name in self.columns if name.strip()]

    def head(self, n: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The first rows, without reading the others."""
        rows = [fields for _, fields in islice(self._records(), n)]
        if not rows or any(len(fields) != len(self.columns) for fields in rows):
            return self.typed(columns).slice(0, n)  # which says what is wrong
        cells = dict(zip(self.columns, zip(*rows, strict=True), strict=True))
        return pa.table({name: texts(cells[name]) for name in columns or self._named})

    def place(self, row: int) -> str:
        """File and line, found by counting."""
        lines = (f"line {line}" for line, _ in self._records())
        return f"{self.name} {next(islice(lines, row, None), f'row {row}')}"

    # ---- the fast way ---------------------------------------------------------------------------------

    def _is_cut_at_lines(self, n_records: int) -> bool:
        """Whether no field holds a line break: then Arrow may cut the file into blocks at any line.

        Where there are quotes, the proof is that there are as many records as lines, and that the last line
        does not open a quote that it does not close.
        """
        if not self._has_quotes:
            return True
        raw = self.source.raw
        last = raw.rfind(b"\n", 0, len(raw) - 1) + 1
        return n_records + 1 == _n_lines(raw) and not self._is_open([raw[last:].decode(errors="replace")])

    @property
    def _has_quotes(self) -> bool:
        """After the header, which may be quoted where nothing else is."""
        raw = self.source.raw
        return raw.find(b'"', raw.find(b"\n") + 1) >= 0

    def _any_records(self, columns: list[str]) -> pa.Table:
        """The table, line breaks in quotes and all; in one block where a record is longer than a block."""
        # Arrow drops a line feed that the edge of a block parts from its carriage return, even in quotes.
        cut = self.source.raw.find(b"\r") < 0
        for block in (_BLOCK, self._one_block) if cut else (self._one_block,):
            try:
                return arrow_csv.read_csv(**self._options(columns, block, line_breaks=True))
            except _UNPARSED as error:
                reason = error
        raise self._explained(reason)

    def _options(self, columns: list[str], block: int, line_breaks: bool) -> dict[str, Any]:
        return {
            "input_file": pa.BufferReader(self.source.data),
            "read_options": arrow_csv.ReadOptions(block_size=block),
            "parse_options": arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=line_breaks),
            "convert_options": arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()), include_columns=columns, null_values=[]
            ),
        }

    @property
    def _one_block(self) -> int:
        """The size of a block that holds the whole file."""
        return min(max(len(self.source.raw), _BLOCK) + 1, _LARGEST_BLOCK)

    # ---- in pieces ------------------------------------------------------------------------------------

    def _stream(self, columns: list[str], block: int, line_breaks: bool) -> Iterator[pa.RecordBatch]:
        with arrow_csv.open_csv(**self._options(columns, block, line_breaks)) as batches:
            yield from batches

    @cached_property
    def _cutting(self) -> tuple[int, bool]:
        """Into blocks of which size the file may be cut, and whether its fields hold line breaks.

        The same proofs as for a whole table; where there are quotes they cost a reading of their own.
        """
        if not self._has_quotes or self._is_cut_at_lines(self._n_records(line_breaks=False)):
            return _BLOCK, False
        self._refuse_open_quote()
        if self.source.raw.find(b"\r") < 0 and self._n_records(line_breaks=True) >= 0:
            return _BLOCK, True
        return self._one_block, True

    def _n_records(self, line_breaks: bool) -> int:
        """The number of records in blocks of the usual size; −1 where they cannot be read so."""
        try:
            return sum(map(len, self._stream(self._named[:1], _BLOCK, line_breaks)))
        except _UNPARSED:
            return -1

    # ---- the careful way ------------------------------------------------------------------------------

    def _records(self) -> Iterator[Record]:
        """The records after the header."""
        records = _records(self.source, self.delimiter, "replace")
        next(records, None)
        return records

    def _explained(self, error: Exception) -> DataError:
        """Which line Arrow stumbled over."""
        encoding = encoding_error(self.source)
        if encoding:
            return encoding
        record = None
        for record in self._records():
            if len(record[1]) != len(self.columns):
                return _ragged(self.name, self.columns, *record)
        if record is None:
            return self._no_rows()
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return DataError(f"{self.name}: cannot be read as a table ({reason}); save it again as CSV in UTF-8")

    def _no_rows(self) -> DataError:
        return DataError(f"{self.name}: has a header and no rows; add one row per label")

    def _refuse_open_quote(self) -> None:
        """An odd number of quotes may mean one that never closes and swallows the rest of the file."""
        if _count(self.source.raw, '"') % 2 == 0:
            return
        line = max((line for line, _ in _records(self.source, self.delimiter, "replace")), default=1)
        with self.source.text("replace") as lines:
            last = [text for number, text in enumerate(lines, start=1) if number >= line]
        if self._is_open(last):
            raise DataError(
                f"{self.name} line {line}: a quote is opened and never closed; close it or double it"
            )

    def _is_open(self, lines: list[str]) -> bool:
        """Whether a record's lines end within quotes."""
        with _long_fields():
            try:
                list(csv.reader(lines, delimiter=self.delimiter, strict=True))
            except csv.Error as error:
                return "end of data" in str(error)
        return False


def rows(source: Source, optional: frozenset[str] = frozenset()) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows as dictionaries, each with its line; blank rows are passed over.

    Columns in ``optional`` may be cut from the end of a row; any other ragged row is an error.
    """
    everything = _records(source, _guess_delimiter(source), "strict", strict=True)
    header = next(everything, (1, []))[1]
    refuse_doubled(header, f"{source.name} line 1")
    for line, fields in everything:
        missing = header[len(fields) :]
        if len(fields) > len(header) or not optional.issuperset(missing):
            raise _ragged(source.name, header, line, fields)
        if any(fields):
            yield f"line {line}", dict(zip(header, fields + [""] * len(missing), strict=True))


def header_of(source: Source) -> list[str]:
    """The names of the columns, as well as a part of a file tells."""
    return next(_records(source, _guess_delimiter(source), "ignore"), (1, []))[1]


def _records(source: Source, delimiter: str, errors: str, *, strict: bool = False) -> Iterator[Record]:
    """Every record that is not empty, the header first."""
    with source.text(errors) as lines, _long_fields():
        reader = csv.reader(lines, delimiter=delimiter, strict=strict)
        line = 1
        try:
            for fields in reader:
                if fields:
                    yield line, fields
                line = reader.line_num + 1
        except csv.Error as error:
            raise DataError(
                f"{source.name} line {reader.line_num}: is not a valid table ({error}); correct it"
            ) from None


def _ragged(name: str, columns: Sequence[str], line: int, fields: Sequence[str]) -> DataError:
    n = len(fields)
    return DataError(
        f"{name} line {line}: {n} field{'s' * (n != 1)} where the header has {len(columns)} "
        f"({listed(columns)}); complete the row, or quote a field that holds the delimiter"
    )


def _guess_delimiter(source: Source) -> str:
    """The delimiter that splits the header into most columns; comma, or tab for .tsv, where they tie."""
    preferred = "\t" if source.suffix in (".tsv", ".tab") else ","
    candidates = sorted(_DELIMITERS, key=lambda delimiter: delimiter != preferred)
    return max(
        candidates, key=lambda delimiter: len(next(_records(source, delimiter, "replace"), (1, []))[1])
    )


def _n_lines(raw: bytes | mmap.mmap) -> int:
    """The number of lines, or −1 where their ends are not all alike (``\\n`` or ``\\r\\n``)."""
    ends = _count(raw, "\n")
    if raw.find(b"\r") >= 0:
        both = sum(raw[at : at + _BLOCK + 1].count(b"\r\n") for at in range(0, len(raw), _BLOCK))
        if not ends == both == _count(raw, "\r"):
            return -1
    return ends if raw[-1:] == b"\n" else ends + 1


def _count(raw: bytes | mmap.mmap, character: str) -> int:
    """How often an ASCII character occurs; in pieces that fit the processor's cache."""
    text, code = np.frombuffer(raw, dtype=np.uint8), ord(character)
    pieces = range(0, len(text), _PIECE)
    return sum(int(np.count_nonzero(text[at : at + _PIECE] == code)) for at in pieces)


@contextmanager
def _long_fields() -> Iterator[None]:
    """Fields of any length, for as long as the block lasts."""
    limit = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(limit)
