"""CSV, TSV and similar tables, read with Arrow; Python reads line by line only to explain an error."""

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
from dissensus.labels.vocabulary import arrow_strings
from dissensus.tables.columns import listed, refuse_duplicate_names
from dissensus.tables.source import Source, encoding_error
from dissensus.tables.tables import FileTable

_DELIMITERS = (",", "\t", ";", "|")
_CSV_BLOCK_BYTES = 1 << 20  # read by Arrow at a time
_MAX_BLOCK_BYTES = (1 << 31) - 1
_COUNTED_BYTES = 1 << 16  # per step of counting; fits the processor's cache
_MEMORY_PER_BYTE = 4  # bytes of memory for each byte of a file that is read in one block
_PARSE_ERRORS = (pa.ArrowException, OSError, ValueError)

LineRecord = tuple[int, list[str]]  # number of its first line, fields


class DelimitedTable(FileTable):
    """A file with a header and one record per row; every field is text."""

    def __init__(self, source: Source, delimiter: str | None = None) -> None:
        # Excel may write a first line ``sep=;`` that names the delimiter; only the line break is kept.
        separator = re.match(rb"(?:\xef\xbb\xbf)?\"?sep=(.)\"?(?=\r?\n)", source.raw[:16], re.IGNORECASE)
        if separator is not None:
            source = replace(source, raw=bytes(source.raw[separator.end() :]))
            delimiter = delimiter or separator[1].decode("latin-1")
        super().__init__(source)
        self.delimiter = delimiter or _guess_delimiter(source)
        self.columns = next(_records(source, self.delimiter, "strict"), (1, []))[1]
        self._named_columns = [name for name in self.columns if name.strip()]
        refuse_duplicate_names(self.columns, f"{self.name} line 1")

    def chunks(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """Yield the columns as strings, some rows at a time."""
        rows = 0
        try:
            for batch in self._stream(list(columns), *self._block_settings):
                rows += len(batch)
                yield [batch.column(name) for name in columns]
        except _PARSE_ERRORS as error:
            raise self._explained(error) from None
        if not rows:
            raise self._no_rows_error()

    @property
    def min_memory(self) -> int:  # type: ignore[override]
        """Bytes needed to read the file, if line breaks in quotes mean that it must be read in one block."""
        block, _ = self._block_settings
        return _MEMORY_PER_BYTE * block if block > _CSV_BLOCK_BYTES else 0

    def typed(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return columns as strings, by default all that have a name."""
        names = self._named_columns if columns is None else list(columns)
        try:
            table = arrow_csv.read_csv(**self._options(names, _CSV_BLOCK_BYTES, line_breaks=False))
        except _PARSE_ERRORS:
            table = None
        if table is None or not self._has_one_line_per_record(table.num_rows):
            self._refuse_open_quote()
            table = self._read_with_line_breaks(names)
        if not table.num_rows:
            raise self._no_rows_error()
        return table

    def head(self, n: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the first rows without reading the others."""
        rows = [fields for _, fields in islice(self._records(), n)]
        if not rows or any(len(fields) != len(self.columns) for fields in rows):
            return self.typed(columns).slice(0, n)  # raises the error that names the row
        cells = dict(zip(self.columns, zip(*rows, strict=True), strict=True))
        return pa.table({name: arrow_strings(cells[name]) for name in columns or self._named_columns})

    def locate(self, row: int) -> str:
        """Return the file and line of a row, found by counting."""
        lines = (f"line {line}" for line, _ in self._records())
        return f"{self.name} {next(islice(lines, row, None), f'row {row}')}"

    # ---- reading the whole table ----------------------------------------------------------------------

    def _has_one_line_per_record(self, n_records: int) -> bool:
        """Return True if no field contains a line break, so that Arrow may split the file at any line.

        If there are quotes, this holds when there are as many records as lines, and the last line does not
        open a quote without closing it.
        """
        if not self._has_quotes:
            return True
        raw = self.source.raw
        last = raw.rfind(b"\n", 0, len(raw) - 1) + 1
        return n_records + 1 == _n_lines(raw) and not self._is_open([raw[last:].decode(errors="replace")])

    @property
    def _has_quotes(self) -> bool:
        """True if there are quotes after the header."""
        raw = self.source.raw
        return raw.find(b'"', raw.find(b"\n") + 1) >= 0

    def _read_with_line_breaks(self, columns: list[str]) -> pa.Table:
        """Read a table with line breaks in quotes; in one block if a record is longer than a block."""
        # Arrow drops a line feed when a block ends between it and its carriage return, even in quotes.
        may_split = self.source.raw.find(b"\r") < 0
        for block in [_CSV_BLOCK_BYTES] * may_split + [self._file_size]:
            try:
                return arrow_csv.read_csv(**self._options(columns, block, line_breaks=True))
            except _PARSE_ERRORS as error:
                reason = error
        raise self._explained(reason)

    def _options(self, columns: list[str], block: int, line_breaks: bool) -> dict[str, Any]:
        return {
            "input_file": pa.BufferReader(pa.py_buffer(self.source.raw)),
            "read_options": arrow_csv.ReadOptions(block_size=block),
            "parse_options": arrow_csv.ParseOptions(delimiter=self.delimiter, newlines_in_values=line_breaks),
            "convert_options": arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(columns, pa.string()), include_columns=columns, null_values=[]
            ),
        }

    @property
    def _file_size(self) -> int:
        """Size of a block that holds the whole file."""
        return min(max(len(self.source.raw), _CSV_BLOCK_BYTES) + 1, _MAX_BLOCK_BYTES)

    # ---- reading in chunks ----------------------------------------------------------------------------

    def _stream(self, columns: list[str], block: int, line_breaks: bool) -> Iterator[pa.RecordBatch]:
        with arrow_csv.open_csv(**self._options(columns, block, line_breaks)) as batches:
            yield from batches

    @cached_property
    def _block_settings(self) -> tuple[int, bool]:
        """Block size for reading in chunks, and True if fields contain line breaks.

        If there are quotes, finding out takes an extra pass over the file.
        """
        if not self._has_quotes or self._has_one_line_per_record(self._n_records(line_breaks=False)):
            return _CSV_BLOCK_BYTES, False
        self._refuse_open_quote()
        if self.source.raw.find(b"\r") < 0 and self._n_records(line_breaks=True) >= 0:
            return _CSV_BLOCK_BYTES, True
        return self._file_size, True

    def _n_records(self, line_breaks: bool) -> int:
        """Count the records in blocks of the usual size; −1 if they cannot be read that way."""
        try:
            return sum(map(len, self._stream(self._named_columns[:1], _CSV_BLOCK_BYTES, line_breaks)))
        except _PARSE_ERRORS:
            return -1

    # ---- explaining errors ----------------------------------------------------------------------------

    def _records(self) -> Iterator[LineRecord]:
        """Return the records after the header."""
        records = _records(self.source, self.delimiter, "replace")
        next(records, None)
        return records

    def _explained(self, error: Exception) -> DataError:
        """Return the error for the line that Arrow could not parse."""
        encoding = encoding_error(self.source)
        if encoding:
            return encoding
        record = None
        for record in self._records():
            if len(record[1]) != len(self.columns):
                return _ragged(self.name, self.columns, *record)
        if record is None:
            return self._no_rows_error()
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        return DataError(f"{self.name}: cannot be read as a table ({reason}); save it again as CSV in UTF-8")

    def _no_rows_error(self) -> DataError:
        return DataError(f"{self.name}: has a header but no rows; add one row per label")

    def _refuse_open_quote(self) -> None:
        """Raise an error if a quote is never closed, which would swallow the rest of the file."""
        if _count(self.source.raw, '"') % 2 == 0:
            return
        line = max((line for line, _ in _records(self.source, self.delimiter, "replace")), default=1)
        with self.source.text("replace") as lines:
            last = [text for number, text in enumerate(lines, start=1) if number >= line]
        if self._is_open(last):
            remedy = "close it or double it"
            raise DataError(f"{self.name} line {line}: a quote is opened and never closed; {remedy}")

    def _is_open(self, lines: list[str]) -> bool:
        """Return True if the lines of a record end inside quotes."""
        with _long_fields():
            try:
                list(csv.reader(lines, delimiter=self.delimiter, strict=True))
            except csv.Error as error:
                return "end of data" in str(error)
        return False


def rows(source: Source, optional: frozenset[str] = frozenset()) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the line and the fields by column of each row that is not blank.

    Columns in ``optional`` may be missing at the end of a row; any other ragged row is an error.
    """
    records = _records(source, _guess_delimiter(source), "strict", strict=True)
    header = next(records, (1, []))[1]
    refuse_duplicate_names(header, f"{source.name} line 1")
    for line, fields in records:
        missing = header[len(fields) :]
        if len(fields) > len(header) or not optional.issuperset(missing):
            raise _ragged(source.name, header, line, fields)
        if any(fields):
            yield f"line {line}", dict(zip(header, fields + [""] * len(missing), strict=True))


def header_of(source: Source) -> list[str]:
    """Return the column names, read from the beginning of a file."""
    return next(_records(source, _guess_delimiter(source), "ignore"), (1, []))[1]


def _records(source: Source, delimiter: str, errors: str, *, strict: bool = False) -> Iterator[LineRecord]:
    """Yield every record that is not empty, beginning with the header."""
    with source.text(errors) as lines, _long_fields():
        reader = csv.reader(lines, delimiter=delimiter, strict=strict)
        line = 1
        try:
            for fields in reader:
                if fields:
                    yield line, fields
                line = reader.line_num + 1
        except csv.Error as error:
            problem = f"not a valid table ({error})"
            raise DataError(f"{source.name} line {reader.line_num}: {problem}; correct it") from None


def _ragged(name: str, columns: Sequence[str], line: int, fields: Sequence[str]) -> DataError:
    n = len(fields)
    problem = f"{n} field{'s' * (n != 1)} but the header has {len(columns)} ({listed(columns)})"
    remedy = "complete the row, or quote a field that contains the delimiter"
    return DataError(f"{name} line {line}: {problem}; {remedy}")


def _guess_delimiter(source: Source) -> str:
    """Return the delimiter that splits the header into most columns; ties go to the comma (.tsv: tab)."""
    preferred = "\t" if source.suffix in (".tsv", ".tab") else ","
    candidates = sorted(_DELIMITERS, key=lambda delimiter: delimiter != preferred)
    return max(candidates, key=lambda mark: len(next(_records(source, mark, "replace"), (1, []))[1]))


def _n_lines(raw: bytes | mmap.mmap) -> int:
    """Count the lines; −1 if some end in ``\\n`` and others in ``\\r\\n``."""
    ends = _count(raw, "\n")
    if raw.find(b"\r") >= 0:
        starts = range(0, len(raw), _CSV_BLOCK_BYTES)
        pairs = sum(raw[start : start + _CSV_BLOCK_BYTES + 1].count(b"\r\n") for start in starts)
        if not ends == pairs == _count(raw, "\r"):
            return -1
    return ends if raw[-1:] == b"\n" else ends + 1


def _count(raw: bytes | mmap.mmap, character: str) -> int:
    """Count an ASCII character."""
    text, code = np.frombuffer(raw, dtype=np.uint8), ord(character)
    starts = range(0, len(text), _COUNTED_BYTES)
    return sum(int(np.count_nonzero(text[start : start + _COUNTED_BYTES] == code)) for start in starts)


@contextmanager
def _long_fields() -> Iterator[None]:
    """Allow fields of any length inside the block."""
    limit = csv.field_size_limit(sys.maxsize)
    try:
        yield
    finally:
        csv.field_size_limit(limit)
