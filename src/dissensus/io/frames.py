"""Any data frame that narwhals knows (pandas, polars, Arrow and others); ids and labels keep their types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals as nw
import pyarrow as pa

from dissensus.data.vocabulary import quoted
from dissensus.errors import DataError
from dissensus.io.columns import refuse_doubled

_KINDS = ("pandas", "polars", "pyarrow")  # kinds that results can be given back in


class FrameTable:
    """A data frame; a lazy one is collected. Rows are counted from 0, as ``iloc`` does."""

    def __init__(self, frame: Any, name: str = "the data frame") -> None:
        self.name = name
        self._frame = _opened(frame, name)
        self._native = {str(name): name for name in self._frame.columns}
        self.columns = list(self._native)
        if len(self._native) < len(self._frame.columns):
            refuse_doubled([str(name) for name in self._frame.columns], self.name)
        kind = self._frame.implementation.value
        self.frame_kind = kind if kind in _KINDS else "pandas"

    def ids(self, columns: Sequence[str]) -> list[pa.ChunkedArray]:
        """The columns in their own types."""
        return [self._column(name) for name in columns]

    def everything(self) -> pa.Table:
        """All columns."""
        self._refuse_empty()
        return pa.table({name: self._column(name) for name in self.columns})

    def native(self, column: str) -> Any:
        """The column's own name, which need not be a string."""
        return self._native[column]

    def order(self, column: str) -> Sequence[Any] | None:
        """The categories of an ordered categorical, in their order."""
        kind = self._frame.get_column(self._native[column]).dtype
        return list(kind.categories) if isinstance(kind, nw.Enum) else None

    def place(self, row: int) -> str:
        """The row's number."""
        return f"{self.name} row {row}"

    def _column(self, name: str) -> pa.ChunkedArray:
        self._refuse_empty()
        try:
            column = self._frame.get_column(self._native[name]).to_arrow()
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise DataError(
                f"{self.name}: column {quoted(name)} mixes types; give strings or numbers of one type"
            ) from None
        return column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])

    def _refuse_empty(self) -> None:
        if not len(self._frame):
            raise DataError(f"{self.name} has no rows; add some")


def _opened(frame: Any, name: str) -> nw.DataFrame[Any]:
    """The frame behind narwhals; a series or mapping keyed by id becomes two columns, a named index one."""
    if isinstance(frame, Mapping):
        frame = pa.table({"item": list(frame.keys()), "label": list(frame.values())})
    if hasattr(frame, "reset_index") and hasattr(frame, "index"):
        frame = _with_index(frame)
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


def _with_index(frame: Any) -> Any:
    """pandas keeps ids in the index at times: a Series' index, or one that has a name, becomes a column."""
    if frame.ndim == 1:
        index = frame.index.name or "item"
        return frame.rename(frame.name or "label").rename_axis(index).reset_index()
    named = [name for name in frame.index.names if name is not None and name not in frame.columns]
    return frame.reset_index() if len(named) == frame.index.nlevels else frame
