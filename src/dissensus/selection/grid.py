"""Grids of settings, and estimators that have them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dissensus.errors import bad_parameter
from dissensus.params import key_of

Settings = dict[str, Any]
Grid = Mapping[str, Any] | Sequence[Mapping[str, Any]]


def cells_of(grid: Grid) -> list[Settings]:
    """Every combination of a grid's values, each once, in the grid's order.

    A grid maps the name of a setting to the values to try (one value may stand alone); a list of such
    mappings is tried one after the other.
    """
    parts = [grid] if isinstance(grid, Mapping) else list(grid)
    cells = [dict(zip(part, chosen, strict=True)) for part in parts for chosen in _product(part)]
    if not cells:
        raise bad_parameter("select", "grid", "a mapping of setting names to values to try", grid)
    return list({key_of(cell): cell for cell in cells}.values())


def _product(part: Mapping[str, Any]) -> Iterable[tuple[Any, ...]]:
    return itertools.product(*(_values(part[name]) for name in part))


def _values(given: Any) -> list[Any]:
    several = isinstance(given, Iterable) and not isinstance(given, str | bytes | Mapping)
    return [one.item() if isinstance(one, np.generic) else one for one in (given if several else [given])]


def size_of(settings: Mapping[str, Any]) -> int:
    """How big a cell is: the product of its whole numbers. Big ones are run first and lose ties."""
    wholes = [value for value in settings.values() if isinstance(value, int) and not isinstance(value, bool)]
    return math.prod(max(value, 1) for value in wholes)
