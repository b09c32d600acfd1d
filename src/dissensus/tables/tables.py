"""One interface to tables: CSV, TSV, JSON lines and Parquet files, each also gzipped, and data frames.

Ids and labels from a file are strings in every format: the text in a CSV, the digits of a JSON or Parquet
number. ``none``, ``NA`` and ``007`` are left as they are, so a table gives the same annotations in every
format.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dissensus.errors import DataError, bad_choice, setting
from dissensus.labels import provided
from dissensus.labels.vocabulary import numpy_bools, quoted
from dissensus.tables.columns import refuse_duplicate_names
from dissensus.tables.source import PARQUET_MAGIC, Source, file_bytes, open_source

if TYPE_CHECKING:
    import narwhals as nw

    from dissensus.tables.delimited import DelimitedTable
    from dissensus.tables.json_lines import JsonTable

StreamedTable: TypeAlias = "ParquetTable | DelimitedTable | JsonTable"

INPUT_FORMATS = ("csv", "tsv", "jsonl", "json", "parquet")
_INPUT_SUFFIXES = {
    ".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet", ".jsonl": "jsonl",
    ".ndjson": "jsonl", ".json": "json",
}  # fmt: skip
# First bytes of files that are often given in place of a table.
WORKBOOK_SUFFIXES = (".xlsx", ".xlsm")
_OTHER_DOCUMENTS = {
    "a PDF document": (b"%pdf",),
    "an HTML page": (b"<!doctype html", b"<html"),
    "an XML document": (b"<?xml",),
    "an RTF document": (b"{\\rtf",),
    "an Office document": (b"\xd0\xcf\x11\xe0",),
    "a picture": (b"\x89png", b"\xff\xd8\xff"),
}


def open_table(
    source: Any,
    format: str | None = None,
    name: str = "the data frame",
    encoding: str | None = None,
    sheet: str | None = None,
) -> Table:
    """Open a table from a path or a data frame.

    ``format`` is the format of a file, recognised from its content if None; messages call a frame ``name``;
    ``encoding`` is that of a text file that is not UTF-8, and ``sheet`` the one to read of a workbook.
    """
    is_path = isinstance(source, str | os.PathLike)
    if is_path and os.fspath(source).lower().endswith(WORKBOOK_SUFFIXES):
        from dissensus.tables.excel import read_workbook

        return open_file(read_workbook(os.fspath(source), file_bytes(source), sheet))
    if sheet is not None:
        raise DataError(f"{source if is_path else name}: has no sheets; leave out {setting('sheet')}")
    if is_path:
        return open_file(open_source(source, encoding=encoding), format)
    return FrameTable(source, name)


def open_file(source: Source, format: str | None = None) -> StreamedTable:
    """Open the table in a file."""
    kind = format or recognise_format(source)
    if kind == "parquet":
        return ParquetTable(source)
    if kind in ("json", "jsonl"):
        from dissensus.tables.json_lines import JsonTable

        return JsonTable(source)
    if kind in ("csv", "tsv"):
        from dissensus.tables.delimited import DelimitedTable

        return DelimitedTable(source, "\t" if format == "tsv" else None)
    choices = (*INPUT_FORMATS, "wide", "counts", *provided("export_formats"))
    raise bad_choice("read_annotations", "format", choices, kind)


def recognise_format(source: Source) -> str:
    """Return the format according to the first bytes, or to the suffix if they leave it open."""
    start = source.start
    for document, magic in _OTHER_DOCUMENTS.items():
        if start.lower().startswith(magic):
            remedy = "save its table as CSV with one row per label (columns item, annotator and label)"
            raise DataError(f"{source.name}: this is {document}, not a table; {remedy}, and give that file")
    by_suffix = _INPUT_SUFFIXES.get(source.suffix, "")
    if start.startswith(PARQUET_MAGIC):
        return "parquet"
    if by_suffix == "parquet":
        problem = f"its name ends in {source.suffix} but it is not a Parquet file"
        raise DataError(f"{source.name}: {problem}; write it again")
    if by_suffix in ("json", "jsonl") or (start[:1] in (b"{", b"[") and by_suffix not in ("csv", "tsv")):
        return "jsonl"
    return "csv"


class Table:
    """Named columns, read on demand. Rows are counted from 0."""

    name: str
    columns: list[str]
    frame_kind = "pandas"

    def typed(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return columns in their types, by default all."""
        raise NotImplementedError

    def ids(self, columns: Sequence[str]) -> list[pa.ChunkedArray]:
        """Return columns of ids: strings from a file, any type from a frame."""
        table = self.typed(columns)
        return [self.as_ids(table.column(name), name) for name in columns]

    def head(self, n: int, columns: Sequence[str] | None = None) -> pa.Table:
        """Return the first rows."""
        return self.typed(columns).slice(0, n)

    def locate(self, row: int) -> str:
        """Return the position of a row, for messages."""
        return f"{self.name} row {row}"

    def native(self, column: str) -> Any:
        """Return the column's name, which in a frame need not be a string."""
        return column

    def as_ids(self, column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        """Convert a typed column to ids."""
        return column

    def order(self, column: str) -> Sequence[Any] | None:
        """Return the order of a column's values, if it declares one."""
        return None

    def holds_lists(self, column: str) -> bool:
        """Return True if a column's cells are lists."""
        return False

    def lists(self, column: str) -> pa.Array:
        """Return a column of lists."""
        return self.typed([column]).column(column).combine_chunks()


class FileTable(Table):
    """Table in a file, which may be larger than memory."""

    min_memory = 0  # bytes needed even if it is read in chunks

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name


# ---- Parquet ------------------------------------------------------------------------------------------

_ROWS_PER_CHUNK = 1 << 16
_PARQUET_ERRORS = (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError)


class ParquetTable(FileTable):
    """Parquet file: ids and labels become strings, other columns keep their types."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        from pyarrow import parquet

        try:
            self._file = parquet.ParquetFile(pa.BufferReader(pa.py_buffer(source.raw)))
            self.columns = list(self._file.schema_arrow.names)
        except _PARQUET_ERRORS:
            raise self._damaged() from None
        refuse_duplicate_names(self.columns, self.name)

    def holds_lists(self, column: str) -> bool:
        """Return True if a column is of a list type."""
        return _is_list(self._file.schema_arrow.field(column).type)

    def chunks(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """Yield the columns as strings, some rows at a time."""
        try:
            for batch in self._file.iter_batches(_ROWS_PER_CHUNK, columns=list(columns)):
                batch.validate(full=True)
                chunks = [self.as_ids(pa.chunked_array([batch.column(name)]), name) for name in columns]
                yield [chunk.combine_chunks() for chunk in chunks]
        except _PARQUET_ERRORS:
            raise self._damaged() from None
        if not self._file.metadata.num_rows:
            raise self._no_rows()

    def typed(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return columns in their types, by default all."""
        try:
            table = self._file.read(columns=self.columns if columns is None else list(columns))
            table.validate(full=True)
            table = with_class_names(table, self.name)
        except _PARQUET_ERRORS:
            raise self._damaged() from None
        if not table.num_rows:
            raise self._no_rows()
        return table

    def as_ids(self, column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        """Convert a column to strings, each distinct value once."""
        if pa.types.is_string(column.type):
            return column
        plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        try:
            coded = plain.dictionary_encode().combine_chunks()
            texts = coded.dictionary
            if pa.types.is_floating(texts.type):  # as Python writes them, NaN blank
                texts = pa.array([None if math.isnan(value) else repr(value) for value in texts.to_pylist()])
            texts = texts.cast(pa.string())
            return pa.chunked_array([pa.DictionaryArray.from_arrays(coded.indices, texts)])
        except (pa.ArrowException, TypeError):
            problem = f"column {quoted(name)} is of type {column.type}"
            raise DataError(f"{self.name}: {problem}; give strings or numbers") from None

    def _no_rows(self) -> DataError:
        return DataError(f"{self.name}: has columns but no rows; add one row per label")

    def _damaged(self) -> DataError:
        return DataError(f"{self.name}: the Parquet file is damaged or cut short; write it again")


# ---- data frames --------------------------------------------------------------------------------------

_FRAME_KINDS = ("pandas", "polars", "pyarrow")  # types of frames that results are returned in
_FRAME_CELLS_PROBED = 20  # to find out if a column holds lists


class FrameTable(Table):
    """Data frame of any library that narwhals supports; ids and labels keep their types.

    A lazy frame is collected. Rows are counted from 0, as ``iloc`` does.
    """

    def __init__(self, frame: Any, name: str = "the data frame") -> None:
        self.name = name
        self._frame = _narwhals_frame(frame, name)
        self._native = {str(name): name for name in self._frame.columns}
        self.columns = list(self._native)
        if len(self._native) < len(self._frame.columns):
            refuse_duplicate_names([str(name) for name in self._frame.columns], self.name)
        kind = self._frame.implementation.value
        self.frame_kind = kind if kind in _FRAME_KINDS else "pandas"

    def typed(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return columns in their types, by default all."""
        return pa.table({name: self._column(name) for name in (self.columns if columns is None else columns)})

    def native(self, column: str) -> Any:
        """Return the column's name, which need not be a string."""
        return self._native[column]

    def holds_lists(self, column: str) -> bool:
        """Return True if a column's cells are lists."""
        first = self._frame.get_column(self._native[column]).drop_nulls().head(_FRAME_CELLS_PROBED)
        try:
            return _is_list(first.to_arrow().type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return False

    def order(self, column: str) -> Sequence[Any] | None:
        """Return the categories of an ordered categorical, in their order."""
        import narwhals as nw

        kind = self._frame.get_column(self._native[column]).dtype
        return list(kind.categories) if isinstance(kind, nw.Enum) else None

    def _column(self, name: str) -> pa.ChunkedArray:
        if not len(self._frame):
            raise DataError(f"{self.name} has no rows; add one row per label")
        try:
            column = self._frame.get_column(self._native[name]).to_arrow()
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            remedy = "give strings or numbers of one type"
            raise DataError(f"{self.name}: column {quoted(name)} mixes types; {remedy}") from None
        return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _narwhals_frame(frame: Any, name: str) -> nw.DataFrame[Any]:
    """Wrap a frame with narwhals; a series or mapping becomes two columns, a named index one more."""
    import narwhals as nw

    if hasattr(frame, "with_format"):  # a Hugging Face dataset, or several by split
        if isinstance(frame, Mapping):
            remedy = "give one of them, or the folder it is saved in"
            raise DataError(f"{name} has several splits ({', '.join(map(str, frame))}); {remedy}")
        frame = with_class_names(frame.with_format("arrow")[:], name)
    if isinstance(frame, Mapping):
        frame = pa.table({"item": list(frame.keys()), "label": list(frame.values())})
    if hasattr(frame, "reset_index") and hasattr(frame, "index"):
        # Ids may be in a pandas index: that of a Series, or one with a name, becomes a column.
        if frame.ndim == 1:
            frame = frame.rename(frame.name or "label")
            has_names = frame.index.nlevels > 1 or frame.index.name
            frame = (frame if has_names else frame.rename_axis("item")).reset_index()
        else:
            named = [name for name in frame.index.names if name is not None and name not in frame.columns]
            frame = frame.reset_index() if len(named) == frame.index.nlevels else frame
    try:
        opened = nw.from_native(frame)
    except nw.exceptions.DuplicateError:
        refuse_duplicate_names([str(name) for name in frame.columns], name)
        raise
    except TypeError:
        remedy = "give a path or a data frame"
        raise DataError(f"{name} cannot be read from a {type(frame).__name__} object; {remedy}") from None
    return opened.collect() if isinstance(opened, nw.LazyFrame) else opened


# ---- class names of Hugging Face datasets, and lists in cells -----------------------------------------


def with_class_names(table: pa.Table, source: str) -> pa.Table:
    """Replace class numbers by the names declared in Hugging Face metadata; −1 means no label."""
    try:
        features = json.loads((table.schema.metadata or {})[b"huggingface"])["info"]["features"]
        declared = {name: _class_names(features[name]) for name in table.column_names if name in features}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return table
    for column, names in declared.items():
        if names:
            values = _numbers_to_names(table.column(column).combine_chunks(), names, source)
            table = table.set_column(table.column_names.index(column), column, values)
    return table


def _class_names(feature: Any) -> list[str] | None:
    if isinstance(feature, list) and feature:
        return _class_names(feature[0])
    if not isinstance(feature, dict):
        return None
    if feature.get("_type") == "ClassLabel" and isinstance(feature.get("names"), list):
        return [str(name) for name in feature["names"]]
    return _class_names(feature.get("feature"))


def _numbers_to_names(column: pa.Array, names: Sequence[str], source: str) -> pa.Array:
    if _is_list(column.type):
        lists = column.cast(pa.list_(column.type.value_type))
        values = _numbers_to_names(lists.values, names, source)
        mask = lists.is_null() if lists.null_count else None
        return pa.ListArray.from_arrays(lists.offsets, values, mask=mask)
    if not pa.types.is_integer(column.type):
        return column
    codes = pc.if_else(pc.equal(column, -1), None, column)
    lowest, highest = pc.min_max(codes).as_py().values()
    if lowest is not None and not 0 <= lowest <= highest < len(names):
        wrong = lowest if lowest < 0 else highest
        problem = f"label {wrong} is not one of the dataset's {len(names)} classes"
        raise DataError(f"{source}: {problem}; correct it")
    return pa.array(names, pa.string()).take(codes)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


class ArrowTable(Table):
    """Table in memory, derived from another one; ``rows`` are the rows of that table."""

    def __init__(self, data: pa.Table, origin: Table, rows: pa.Array) -> None:
        self.name, self.columns, self.frame_kind = origin.name, data.column_names, origin.frame_kind
        self.as_ids = origin.as_ids  # type: ignore[method-assign]
        self._data, self._origin, self._rows = data, origin, rows

    def typed(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return columns in their types, by default all."""
        return self._data if columns is None else self._data.select(list(columns))

    def holds_lists(self, column: str) -> bool:
        """Return True if a column is of a list type."""
        return _is_list(self._data.column(column).type)

    def locate(self, row: int) -> str:
        """Return the position of a row in the original table."""
        return self._origin.locate(self._rows[row].as_py())


def unfold(table: Table, annotator: str, label: str, others: Mapping[str, pa.ChunkedArray]) -> ArrowTable:
    """Return one row per label from rows with parallel lists of annotators and labels."""
    if not table.holds_lists(label):
        problem = f"{quoted(annotator)} holds lists but {quoted(label)} does not"
        raise DataError(f"{table.name}: {problem}; give a list of labels for each list of annotators")
    annotators, labels = table.lists(annotator), table.lists(label)
    lengths = [pc.fill_null(pc.list_value_length(column), 0) for column in (annotators, labels)]
    differing = np.flatnonzero(numpy_bools(pc.not_equal(*lengths)))
    if len(differing):
        lists = f"the lists of annotators ({quoted(annotator)}) and labels ({quoted(label)})"
        raise DataError(f"{table.locate(int(differing[0]))}: {lists} differ in length; correct the row")
    rows = pc.list_parent_indices(annotators)
    columns = {name: column.take(rows) for name, column in others.items()}
    columns |= {annotator: pc.list_flatten(annotators), label: pc.list_flatten(labels)}
    return ArrowTable(pa.table(columns), table, rows)
