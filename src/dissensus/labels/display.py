"""Results as data frames, and as HTML tables in notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np

from dissensus.errors import require


class TableResult:
    """Mixin of results that are tables, given by ``columns()`` or ``rows()``."""

    frame_kind = "pandas"
    _n_html_rows = 10

    def _head(self, n: int | None) -> Mapping[str, Any]:
        """Return the first n rows (None for all), by column."""
        if hasattr(self, "rows"):
            rows = self.rows()[:n]
            names = dict.fromkeys(name for row in rows for name in row)
            return {name: [row.get(name) for row in rows] for name in names}
        columns: Mapping[str, Any] = self.columns()  # type: ignore[attr-defined]
        return {name: values[:n] for name, values in columns.items()}

    def _caption(self) -> str:
        """Return the caption of the HTML table."""
        return repr(self)

    def to_frame(self) -> Any:
        """Return the table as a data frame of the same kind as the labels."""
        return make_frame(dict(self._head(None)), self.frame_kind)

    def _repr_html_(self: Any) -> str:
        n, head = self._n_html_rows, self._head(self._n_html_rows + 1)
        rows: list[Any] = list(zip(*(map(_cell_text, values) for values in head.values()), strict=True))
        rows[n:] = [["…"] * len(head)] if len(rows) > n else []
        body = "".join(f"<tr>{_html_cells('td', row)}</tr>" for row in rows)
        names = f"<thead><tr>{_html_cells('th', map(str, head))}</tr></thead>" if head else ""
        return f"<table><caption>{escape(self._caption())}</caption>{names}<tbody>{body}</tbody></table>"


def _html_cells(tag: str, texts: Any) -> str:
    return "".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts)


def _cell_text(value: Any) -> str:
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def make_frame(columns: dict[str, Any], kind: str) -> Any:
    """Return a data frame of the given kind (pandas, polars or pyarrow)."""
    if kind == "polars":
        return require("polars", "dev").DataFrame(columns)
    if kind == "pyarrow":
        import pyarrow as pa

        return pa.table(columns)
    return require("pandas", "pandas").DataFrame(columns)
