"""A griffe extension that documents estimators as they are after import.

The source of a class contains neither the sections on its declared settings nor the docstrings of methods
that are functions of other files.
"""

from __future__ import annotations

import inspect
from typing import Any

import griffe

import dissensus

PUBLIC = [getattr(dissensus, name) for name in dissensus.__all__]
ESTIMATORS = {
    f"{kind.__module__}.{kind.__qualname__}": kind
    for public in PUBLIC
    if hasattr(public, "_settings")
    for kind in public.__mro__[:-1]
}


class Declared(griffe.Extension):
    """Replace the docstrings and methods of estimators by those of the imported class."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Replace the docstring, and add methods that the source does not define."""
        kind = ESTIMATORS.get(cls.path)
        if kind is None:
            return
        cls.docstring = griffe.Docstring(inspect.getdoc(kind) or "", parent=cls)
        for name, value in vars(kind).items():
            written = cls.members.get(name)
            if inspect.isfunction(value) and not isinstance(written, griffe.Function):
                cls.set_member(name, _function(name, value))


def _function(name: str, function: Any) -> griffe.Function:
    parameters = [
        griffe.Parameter(
            parameter.name,
            kind=griffe.ParameterKind[parameter.kind.name.lower()],
            default=None if parameter.default is parameter.empty else repr(parameter.default),
        )
        for parameter in inspect.signature(function).parameters.values()
    ]
    documented = griffe.Function(name, parameters=griffe.Parameters(*parameters))
    documented.docstring = griffe.Docstring(inspect.getdoc(function) or "", parent=documented, parser="numpy")
    return documented
