"""How results show themselves: as data frames, and in notebooks as a caption above the first rows."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from dissensus.errors import require


class Shown:
    """A result that is a table: of the columns ``columns()``, or of the rows ``rows()``."""

    frame_kind = "pandas"
    _rows_shown = 10  # in a notebook

    def _head(self, n: int | None) -> Mapping[str, Any]:
        """The first rows (None: all), by column."""
        if hasattr(self, "rows"):
            rows = self.rows()[:n]
            names = dict.fromkeys(name for row in rows for name in row)
            return {name: [row.get(name) for row in rows] for name in names}
        columns: Mapping[str, Any] = self.columns()  # type: ignore[attr-defined]
        return {name: values[:n] for name, values in columns.items()}

    def _caption(self) -> str:
        return repr(self)

    def to_frame(self) -> Any:
        """The whole table as a data frame, of the kind that the labels came in."""
        return make_frame(dict(self._head(None)), self.frame_kind)

    def _repr_html_(self: Any) -> str:
        n, head = self._rows_shown, self._head(self._rows_shown + 1)
        rows = list(zip(*([_cell(one) for one in values] for values in head.values()), strict=True))
        shown = [*rows[:n], *([["…"] * len(head)] if len(rows) > n else [])]
        body = "".join(f"<tr>{_cells('td', row)}</tr>" for row in shown)
        names = f"<thead><tr>{_cells('th', map(str, head))}</tr></thead>" if head else ""
        return f"<table><caption>{escape(self._caption())}</caption>{names}<tbody>{body}</tbody></table>"


def _cells(tag: str, texts: Any) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


def _cell(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def make_frame(columns: dict[str, Any], kind: str) -> Any:
    """Make a data frame of the named kind (pandas, polars or pyarrow)."""
    if kind == "polars":
        return require("polars", "dev").DataFrame(columns)
    if kind == "pyarrow":
        import pyarrow as pa

        return pa.table(columns)
    return require("pandas", "pandas").DataFrame(columns)
