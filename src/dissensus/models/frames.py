"""What a model knows as data frames of the kind that came in, under the names of the user's own columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dissensus.errors import require


def make_frame(columns: dict[str, Any], kind: str) -> Any:
    """A data frame of the named kind (pandas, polars or pyarrow)."""
    if kind == "polars":
        return require("polars", "dev").DataFrame(columns)
    if kind == "pyarrow":
        import pyarrow as pa

        return pa.table(columns)
    return require("pandas", "pandas").DataFrame(columns)


def by_id(ids: Mapping[str, Any], values: Any, name: str, read: Mapping[str, str], kind: str) -> Any:
    """One value for each id (by role): a pandas Series, or a frame with the id in a column."""
    if kind == "pandas":
        pd = require("pandas", "pandas")
        return pd.Series(values, index=_index(ids, read), name=name)
    return make_frame({read.get(role, role): column for role, column in ids.items()} | {name: values}, kind)


def table_by_id(
    ids: Mapping[str, Any], columns: Mapping[Any, Any], read: Mapping[str, str], kind: str
) -> Any:
    """Several columns for each id; where frames have no index, ids are columns and class names are text."""
    if kind == "pandas":
        pd = require("pandas", "pandas")
        table = pd.DataFrame(dict(columns), index=_index(ids, read))
        return table.rename_axis(columns=read.get("label", "label"))
    named = {read.get(role, role): column for role, column in ids.items()}
    return make_frame(named | {str(name): column for name, column in columns.items()}, kind)


def _index(ids: Mapping[str, Any], read: Mapping[str, str]) -> Any:
    pd = require("pandas", "pandas")
    names = [read.get(role, role) for role in ids]
    if len(ids) == 1:
        return pd.Index(*ids.values(), name=names[0])
    return pd.MultiIndex.from_arrays(list(ids.values()), names=names)
