"""Labels in memory, and the conversion of data frames and paths to labels.

Models are fitted to ``Annotations``, but users pass data frames, paths and texts. Models may not import the
functions that read files and encode texts (see docs/architecture.md); the package lists these by name in
``PROVIDED``, and each is loaded on its first call.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any, cast

from dissensus.errors import DataError, spelled

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations
    from dissensus.labels.kinds import LabelType

# types without columns, from which labels cannot be read
NOT_LABELS = {
    "NoneType", "bool", "int", "float", "bytes", "list", "tuple", "set", "dict", "ndarray", "Series",
}  # fmt: skip


def provided(name: str) -> Any:
    """Return a function or table that the package lists in ``PROVIDED``."""
    module, attribute = sys.modules["dissensus"].PROVIDED[name].split(":")
    return getattr(importlib.import_module(module), attribute)


def is_source(data: Any) -> bool:
    """Check whether data are labels, a data frame or a path, rather than a plain sequence."""
    return isinstance(data, str | os.PathLike) or hasattr(data, "columns") or hasattr(data, "column_names")


def as_annotations(data: Any, label_type: LabelType | None = None) -> Annotations:
    """Return annotations unchanged; read anything else (a data frame or a path)."""
    from dissensus.labels.annotations import Annotations  # slow to import

    if isinstance(data, Annotations):
        return data
    kind, model = type(data).__name__, hasattr(data, "get_params")
    if model or kind in NOT_LABELS:
        remedy = "pass the labels first" if model else "pass a frame with columns item, annotator and label"
        raise DataError(f"labels must be a data frame, a path or Annotations, not {kind}; {remedy}")
    with spelled(_as_read_call):
        return cast("Annotations", provided("read_annotations")(data, label_type=label_type))


def _as_read_call(name: str, value: Any) -> str:
    """Return a setting as the call that accepts it, ``read_annotations``."""
    return f"read_annotations(data, {name}={'…' if value is None else repr(value)})"
