"""Parquet: typed columns. Ids and labels become text, as from every file; side columns keep their types."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pyarrow as pa

from dissensus.data.vocabulary import quoted
from dissensus.errors import DataError
from dissensus.io.columns import refuse_doubled
from dissensus.io.source import Source
from dissensus.io.tables import FileTable

_BATCH = 1 << 16  # rows of a chunk
_UNREADABLE = (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError)


class ParquetTable(FileTable):
    """A Parquet file; rows are counted from 0."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        from pyarrow import parquet

        try:
            self._file = parquet.ParquetFile(pa.BufferReader(source.data))
            self.columns = list(self._file.schema_arrow.names)
        except _UNREADABLE:
            raise self._damaged() from None
        refuse_doubled(self.columns, self.name)

    def ids(self, columns: Sequence[str]) -> list[pa.ChunkedArray]:
        """The columns, as strings."""
        table = self._read(list(columns))
        return [self._text(table.column(name), name) for name in columns]

    def chunks(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """The columns, as strings, some rows at a time."""
        rows = 0
        try:
            for batch in self._file.iter_batches(_BATCH, columns=list(columns)):
                batch.validate(full=True)
                rows += len(batch)
                pieces = [self._text(pa.chunked_array([batch.column(name)]), name) for name in columns]
                yield [piece.combine_chunks() for piece in pieces]
        except _UNREADABLE:
            raise self._damaged() from None
        if not rows:
            raise self._no_rows()

    def everything(self) -> pa.Table:
        """All columns in their own types."""
        return self._read(self.columns)

    def place(self, row: int) -> str:
        """File and row."""
        return f"{self.name} row {row}"

    def _read(self, columns: list[str]) -> pa.Table:
        try:
            table = self._file.read(columns=columns)
            table.validate(full=True)
        except _UNREADABLE:
            raise self._damaged() from None
        if not table.num_rows:
            raise self._no_rows()
        return table

    def _text(self, column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        """A column as strings, the distinct values turned into text one by one."""
        if pa.types.is_string(column.type):
            return column
        plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        try:
            return _recoded(plain.dictionary_encode().combine_chunks())
        except (pa.ArrowException, TypeError):
            raise DataError(
                f"{self.name}: column {quoted(name)} is of type {column.type}; give strings or numbers"
            ) from None

    def _no_rows(self) -> DataError:
        return DataError(f"{self.name}: has columns and no rows; add one row a label")

    def _damaged(self) -> DataError:
        return DataError(f"{self.name}: the Parquet file is damaged or cut short; write it again")


def _recoded(coded: pa.DictionaryArray) -> pa.ChunkedArray:
    """A dictionary-coded column with its values as text; a float as Python writes it, NaN blank."""
    values = coded.dictionary
    if pa.types.is_floating(values.type):
        texts = pa.array(
            [None if math.isnan(value) else repr(value) for value in values.to_pylist()], pa.string()
        )
    else:
        texts = values.cast(pa.string())
    return pa.chunked_array([pa.DictionaryArray.from_arrays(coded.indices, texts)])
