"""Plain tables: CSV, TSV, JSON lines, Parquet, each also gzipped, and data frames, behind one interface.

Ids and labels from a file are strings, whatever the format: the text that stands in a CSV, the digits of a
JSON or Parquet number. ``none``, ``NA`` and ``007`` stay what they are, and the same table gives the same
annotations in every format.
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

from dissensus.errors import DataError, bad_choice, require
from dissensus.labels.sources import provided
from dissensus.labels.vocabulary import marks, quoted
from dissensus.tables.columns import refuse_doubled
from dissensus.tables.source import PARQUET_MAGIC, Source, open_source

if TYPE_CHECKING:
    import narwhals as nw

    from dissensus.tables.delimited import DelimitedTable
    from dissensus.tables.json_lines import JsonTable

StreamedTable: TypeAlias = "ParquetTable | DelimitedTable | JsonTable"

TABLE_FORMATS = ("csv", "tsv", "jsonl", "json", "parquet")
_SUFFIXES = {".csv": "csv", ".tsv": "tsv", ".tab": "tsv", ".parquet": "parquet", ".pq": "parquet"}
_NO_TABLES = {
    "a PDF document": (b"%pdf",),
    "an HTML page": (b"<!doctype html", b"<html"),
    "an XML document": (b"<?xml",),
    "an RTF document": (b"{\\rtf",),
    "an Office document": (b"\xd0\xcf\x11\xe0",),
    "a picture": (b"\x89png", b"\xff\xd8\xff"),
}
_SUFFIXES |= {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"}


def open_table(
    source: Any, format: str | None = None, name: str = "the data frame", encoding: str | None = None
) -> Table:
    """A table from a path or a data frame.

    ``format`` names the file's format where its content does not; ``name`` is what messages call a frame;
    ``encoding`` is that of a text file that is not UTF-8.
    """
    if isinstance(source, str | os.PathLike):
        if os.fspath(source).lower().endswith((".xlsx", ".xls")):
            return FrameTable(_sheet(os.fspath(source)), os.fspath(source))
        return open_file(open_source(source, encoding=encoding), format)
    return FrameTable(source, name)


def _sheet(path: str) -> Any:
    """The first sheet of an Excel file as a frame of texts, by the reader that pandas has."""
    pd = require("pandas", "excel")
    require("openpyxl", "excel")
    try:
        return pd.read_excel(path, dtype=str, keep_default_na=False)
    except FileNotFoundError:
        raise DataError(f"{path}: does not exist; check the path") from None
    except Exception as error:
        reason = " ".join(str(error).split())
        raise DataError(f"{path}: cannot be read as an Excel file ({reason}); save it as CSV") from None


def open_file(source: Source, format: str | None = None) -> StreamedTable:
    """The table in a file's bytes."""
    kind = format or recognise_format(source)
    if kind == "parquet":
        return ParquetTable(source)
    if kind in ("json", "jsonl"):
        from dissensus.tables.json_lines import JsonTable

        return JsonTable(source)
    if kind in ("csv", "tsv"):
        from dissensus.tables.delimited import DelimitedTable

        return DelimitedTable(source, "\t" if format == "tsv" else None)
    choices = (*TABLE_FORMATS, "wide", "counts", *provided("export_formats")())
    raise bad_choice("read_annotations", "format", choices, kind)


def recognise_format(source: Source) -> str:
    """The format by the first bytes, and by the suffix where they leave it open."""
    start = source.start
    head = start.removeprefix(b"\xef\xbb\xbf").lstrip()[:20].lower()
    what = next((kind for kind, magic in _NO_TABLES.items() if head.startswith(magic)), None)
    if what is not None:
        raise DataError(
            f"{source.name}: this is {what}, not a table; save its table as CSV with one row for each label "
            "(columns item, annotator and label), and give that file"
        )
    named = _SUFFIXES.get(source.suffix, "")
    if start.startswith(PARQUET_MAGIC):
        return "parquet"
    if named == "parquet":
        raise DataError(f"{source.name}: is called {source.suffix} and is no Parquet file; write it again")
    if named in ("json", "jsonl") or (start[:1] in (b"{", b"[") and named not in ("csv", "tsv")):
        return "jsonl"
    return "csv"


class Table:
    """Named columns, read when asked for, and where each row stands. Rows are counted from 0."""

    name: str
    columns: list[str]
    frame_kind = "pandas"

    def typed(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Columns in their own types, by default all."""
        raise NotImplementedError

    def ids(self, columns: Sequence[str]) -> list[pa.ChunkedArray]:
        """Columns of ids: of a file as strings, of a frame in their own types."""
        table = self.typed(columns)
        return [self.as_ids(table.column(name), name) for name in columns]

    def head(self, n: int, columns: Sequence[str] | None = None) -> pa.Table:
        """The first rows."""
        return self.typed(columns).slice(0, n)

    def place(self, row: int) -> str:
        """Where a row stands."""
        return f"{self.name} row {row}"

    def native(self, column: str) -> Any:
        """The column's own name, which in a frame need not be a string."""
        return column

    def as_ids(self, column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        """A column in its own type as ids."""
        return column

    def order(self, column: str) -> Sequence[Any] | None:
        """The order of a column's values, where it declares one."""
        return None

    def holds_lists(self, column: str) -> bool:
        """Whether a column's cells are lists."""
        return False

    def lists(self, column: str) -> pa.Array:
        """A column of lists."""
        return self.typed([column]).column(column).combine_chunks()


class FileTable(Table):
    """A table in a file, which may be larger than memory."""

    at_once = 0  # bytes of memory without which it cannot be read in pieces

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = source.name


# ---- Parquet ------------------------------------------------------------------------------------------

_BATCH = 1 << 16  # rows of a chunk
_UNREADABLE = (pa.ArrowException, OSError, ValueError, MemoryError, OverflowError)


class ParquetTable(FileTable):
    """Typed columns: ids and labels become text, side columns keep their types. Rows are counted from 0."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        from pyarrow import parquet

        try:
            self._file = parquet.ParquetFile(pa.BufferReader(source.data))
            self.columns = list(self._file.schema_arrow.names)
        except _UNREADABLE:
            raise self._damaged() from None
        refuse_doubled(self.columns, self.name)

    def holds_lists(self, column: str) -> bool:
        """Whether a column is of a list type."""
        return _is_list(self._file.schema_arrow.field(column).type)

    def chunks(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """The columns, as strings, some rows at a time."""
        rows = 0
        try:
            for batch in self._file.iter_batches(_BATCH, columns=list(columns)):
                batch.validate(full=True)
                rows += len(batch)
                pieces = [self.as_ids(pa.chunked_array([batch.column(name)]), name) for name in columns]
                yield [piece.combine_chunks() for piece in pieces]
        except _UNREADABLE:
            raise self._damaged() from None
        if not rows:
            raise self._no_rows()

    def typed(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Columns in their own types, by default all."""
        try:
            table = self._file.read(columns=self.columns if columns is None else list(columns))
            table.validate(full=True)
            table = with_class_names(table, self.name)
        except _UNREADABLE:
            raise self._damaged() from None
        if not table.num_rows:
            raise self._no_rows()
        return table

    def as_ids(self, column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
        """A column as strings, the distinct values turned into text one by one."""
        if pa.types.is_string(column.type):
            return column
        plain = column.cast(column.type.value_type) if pa.types.is_dictionary(column.type) else column
        try:
            coded = plain.dictionary_encode().combine_chunks()
            values = coded.dictionary
            if pa.types.is_floating(values.type):  # as Python writes them, NaN blank
                known = [None if math.isnan(value) else repr(value) for value in values.to_pylist()]
                texts = pa.array(known, pa.string())
            else:
                texts = values.cast(pa.string())
            return pa.chunked_array([pa.DictionaryArray.from_arrays(coded.indices, texts)])
        except (pa.ArrowException, TypeError):
            raise DataError(
                f"{self.name}: column {quoted(name)} is of type {column.type}; give strings or numbers"
            ) from None

    def _no_rows(self) -> DataError:
        return DataError(f"{self.name}: has columns and no rows; add one row per label")

    def _damaged(self) -> DataError:
        return DataError(f"{self.name}: the Parquet file is damaged or cut short; write it again")


# ---- data frames --------------------------------------------------------------------------------------

_KINDS = ("pandas", "polars", "pyarrow")  # kinds that results can be given back in
_PROBED = 20  # cells that tell whether a column holds lists


class FrameTable(Table):
    """Any data frame that narwhals knows; ids and labels keep their types.

    A lazy frame is collected. Rows are counted from 0, as ``iloc`` does.
    """

    def __init__(self, frame: Any, name: str = "the data frame") -> None:
        self.name = name
        self._frame = _opened(frame, name)
        self._native = {str(name): name for name in self._frame.columns}
        self.columns = list(self._native)
        if len(self._native) < len(self._frame.columns):
            refuse_doubled([str(name) for name in self._frame.columns], self.name)
        kind = self._frame.implementation.value
        self.frame_kind = kind if kind in _KINDS else "pandas"

    def typed(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Columns in their own types, by default all."""
        return pa.table({name: self._column(name) for name in (self.columns if columns is None else columns)})

    def native(self, column: str) -> Any:
        """The column's own name, which need not be a string."""
        return self._native[column]

    def holds_lists(self, column: str) -> bool:
        """Whether a column's cells are lists."""
        first = self._frame.get_column(self._native[column]).drop_nulls().head(_PROBED)
        try:
            return _is_list(first.to_arrow().type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return False

    def order(self, column: str) -> Sequence[Any] | None:
        """The categories of an ordered categorical, in their order."""
        import narwhals as nw

        kind = self._frame.get_column(self._native[column]).dtype
        return list(kind.categories) if isinstance(kind, nw.Enum) else None

    def _column(self, name: str) -> pa.ChunkedArray:
        if not len(self._frame):
            raise DataError(f"{self.name} has no rows; add some")
        try:
            column = self._frame.get_column(self._native[name]).to_arrow()
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise DataError(
                f"{self.name}: column {quoted(name)} mixes types; give strings or numbers of one type"
            ) from None
        return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])


def _opened(frame: Any, name: str) -> nw.DataFrame[Any]:
    """The frame behind narwhals; a series or mapping keyed by id becomes two columns, a named index one."""
    import narwhals as nw

    if hasattr(frame, "with_format"):  # a Hugging Face dataset, or several by split
        if isinstance(frame, Mapping):
            splits = ", ".join(map(str, frame))
            raise DataError(
                f"{name} has several splits ({splits}); give one of them, or the folder it is saved in"
            )
        frame = with_class_names(frame.with_format("arrow")[:], name)
    if isinstance(frame, Mapping):
        frame = pa.table({"item": list(frame.keys()), "label": list(frame.values())})
    if hasattr(frame, "reset_index") and hasattr(frame, "index"):
        # pandas keeps ids in the index at times: a Series' index, or one that has a name, becomes a column.
        if frame.ndim == 1:
            index = frame.index.name or "item"
            frame = frame.rename(frame.name or "label").rename_axis(index).reset_index()
        else:
            named = [name for name in frame.index.names if name is not None and name not in frame.columns]
            frame = frame.reset_index() if len(named) == frame.index.nlevels else frame
    try:
        opened = nw.from_native(frame)
    except nw.exceptions.DuplicateError:
        refuse_doubled([str(name) for name in frame.columns], name)
        raise
    except TypeError:
        raise DataError(
            f"{name} cannot be read from a {type(frame).__name__} object; give a path or a data frame"
        ) from None
    return opened.collect() if isinstance(opened, nw.LazyFrame) else opened


# ---- Hugging Face's class names, and lists in cells ---------------------------------------------------


def with_class_names(table: pa.Table, where: str) -> pa.Table:
    """Class numbers as the names that Hugging Face's metadata declare for them; −1 stands for none."""
    try:
        features = json.loads((table.schema.metadata or {})[b"huggingface"])["info"]["features"]
        declared = {name: _names_in(features[name]) for name in table.column_names if name in features}
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        return table
    for name, known in declared.items():
        if known:
            place = table.column_names.index(name)
            table = table.set_column(place, name, _named(table.column(name).combine_chunks(), known, where))
    return table


def _names_in(feature: Any) -> list[str] | None:
    if isinstance(feature, list) and feature:
        return _names_in(feature[0])
    if not isinstance(feature, dict):
        return None
    if feature.get("_type") == "ClassLabel" and isinstance(feature.get("names"), list):
        return [str(name) for name in feature["names"]]
    return _names_in(feature.get("feature"))


def _named(column: pa.Array, names: Sequence[str], where: str) -> pa.Array:
    if _is_list(column.type):
        whole = column.cast(pa.list_(column.type.value_type))
        inner = _named(whole.values, names, where)
        return pa.ListArray.from_arrays(
            whole.offsets, inner, mask=whole.is_null() if whole.null_count else None
        )
    if not pa.types.is_integer(column.type):
        return column
    codes = pc.if_else(pc.equal(column, -1), None, column)
    least, most = pc.min_max(codes).as_py().values()
    if least is not None and not 0 <= least <= most < len(names):
        wrong = least if least < 0 else most
        raise DataError(
            f"{where}: label {wrong} is not one of the dataset's {len(names)} classes; correct it"
        )
    return pa.array(names, pa.string()).take(codes)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


class ArrowTable(Table):
    """Columns in memory, made from those of another table; each row stood in one of that table's."""

    def __init__(self, data: pa.Table, origin: Table, rows: pa.Array) -> None:
        self.name, self.columns, self.frame_kind = origin.name, data.column_names, origin.frame_kind
        self.as_ids = origin.as_ids  # type: ignore[method-assign]
        self._data, self._origin, self._rows = data, origin, rows

    def typed(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Columns in their own types, by default all."""
        return self._data if columns is None else self._data.select(list(columns))

    def holds_lists(self, column: str) -> bool:
        """Whether a column is of a list type."""
        return _is_list(self._data.column(column).type)

    def place(self, row: int) -> str:
        """Where a row stood."""
        return self._origin.place(self._rows[row].as_py())


def unfold(table: Table, annotator: str, label: str, beside: Mapping[str, pa.ChunkedArray]) -> ArrowTable:
    """One row per label, of a table whose rows hold parallel lists of annotators and labels."""
    if not table.holds_lists(label):
        raise DataError(
            f"{table.name}: {quoted(annotator)} holds lists and {quoted(label)} does not; give a list of "
            "labels beside each list of annotators"
        )
    who, what = table.lists(annotator), table.lists(label)
    n_parts = [pc.fill_null(pc.list_value_length(one), 0) for one in (who, what)]
    differ = np.flatnonzero(marks(pc.not_equal(*n_parts)))
    if len(differ):
        raise DataError(
            f"{table.place(int(differ[0]))}: the lists of annotators ({quoted(annotator)}) and labels "
            f"({quoted(label)}) differ in length; correct the row"
        )
    rows = pc.list_parent_indices(who)
    columns = {name: side.take(rows) for name, side in beside.items()}
    columns |= {annotator: pc.list_flatten(who), label: pc.list_flatten(what)}
    return ArrowTable(pa.table(columns), table, rows)
