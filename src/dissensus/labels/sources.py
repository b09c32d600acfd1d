"""What labels are made from, and the functions that make them.

A model is fitted to ``Annotations``, but people hand it frames, paths and texts. The functions that read
files and encode texts live above the boundary of docs/architecture.md, where models may not import from; the
package registers them here by name when it is imported, and each is loaded when it is first called.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from dissensus.errors import DataError, spelled

if TYPE_CHECKING:
    from dissensus.labels.annotations import Annotations
    from dissensus.labels.kinds import LabelType

# types without columns, of which no labels can be read
NO_LABELS = ("NoneType", "bool", "int", "float", "bytes", "list", "tuple", "set", "dict", "ndarray", "Series")

_homes: dict[str, str] = {}  # name -> "module:function"


def register(**homes: str) -> None:
    """Say where functions live: ``register(embed="dissensus.text.embedding:embed")``."""
    _homes.update(homes)


def provided(name: str) -> Any:
    """Load a registered function."""
    module, function = _homes[name].split(":")
    return getattr(importlib.import_module(module), function)


def is_source(data: Any) -> bool:
    """Tell labels, frames of them and paths from plain sequences."""
    return isinstance(data, str | os.PathLike) or hasattr(data, "columns") or hasattr(data, "column_names")


def as_annotations(data: Any, label_type: LabelType | None = None) -> Annotations:
    """Return annotations as they are; read anything else (a data frame or a path)."""
    from dissensus.labels.annotations import Annotations  # heavy: the package imports this module

    if isinstance(data, Annotations):
        return data
    kind, model = type(data).__name__, hasattr(data, "get_params")
    if model or kind in NO_LABELS:
        first = (
            "give the labels first" if model else "make a frame with the columns item, annotator and label"
        )
        raise DataError(f"labels are a data frame, a path or Annotations, and {kind} came; {first}")
    with spelled(_as_a_call):
        annotations: Annotations = provided("read_annotations")(data, label_type=label_type)
    return annotations


def _as_a_call(name: str, value: Any) -> str:
    """A setting as the call that takes it: only ``read_annotations`` has it."""
    return f"read_annotations(data, {name}={'…' if value is None else repr(value)})"
