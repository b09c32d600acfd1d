"""Options that several commands share, declared once.

A bundle is a frozen dataclass whose fields are typer options. A command that has a parameter of that type
and is decorated with :func:`unbundled` offers every one of them and receives them as one value.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints


def unbundled(command: Callable[..., None]) -> Callable[..., None]:
    """The command with its bundles spread out into single options, as typer wants to see them."""
    signature = inspect.signature(command, eval_str=True)
    bundles: dict[str, Any] = {
        name: parameter.annotation
        for name, parameter in signature.parameters.items()
        if dataclasses.is_dataclass(parameter.annotation)
    }

    @functools.wraps(command)
    def spread(**given: Any) -> None:
        for name, bundle in bundles.items():
            fields = [field.name for field in dataclasses.fields(bundle)]
            given[name] = bundle(**{field: given.pop(field) for field in fields})
        command(**given)

    options = [
        option
        for name, parameter in signature.parameters.items()
        for option in (_options(bundles[name]) if name in bundles else [_keyword(parameter)])
    ]
    vars(spread)["__signature__"] = inspect.Signature(options)
    spread.__annotations__ = {option.name: option.annotation for option in options}
    del spread.__wrapped__  # typer would look behind it
    return spread


def _options(bundle: Any) -> list[inspect.Parameter]:
    """One keyword parameter for every field, its typer declaration kept."""
    hints = get_type_hints(bundle, include_extras=True)
    return [
        inspect.Parameter(
            field.name, inspect.Parameter.KEYWORD_ONLY, default=_default(field), annotation=hints[field.name]
        )
        for field in dataclasses.fields(bundle)
    ]


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default


def _keyword(parameter: inspect.Parameter) -> inspect.Parameter:
    return parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
