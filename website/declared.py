"""Estimators on the pages of the API, as they are once they are imported.

Settings are declared, and some methods are functions of other files; the source of a class has neither the
sections about its settings nor the documentation of such methods.
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
    """What mkdocstrings is to show of an estimator."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Replace what was read from the source of an estimator and differs from it."""
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
            one.name,
            kind=griffe.ParameterKind[one.kind.name.lower()],
            default=None if one.default is one.empty else repr(one.default),
        )
        for one in inspect.signature(function).parameters.values()
    ]
    known = griffe.Function(name, parameters=griffe.Parameters(*parameters))
    known.docstring = griffe.Docstring(inspect.getdoc(function) or "", parent=known, parser="numpy")
    return known
