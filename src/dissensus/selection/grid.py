"""Grids of settings, and estimators that have them."""

from __future__ import annotations

import copy
import hashlib
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dissensus.errors import bad_parameter

Settings = dict[str, Any]
Grid = Mapping[str, Any] | Sequence[Mapping[str, Any]]

SEED_NAMES = ("seed", "random_state")


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


def label_of(settings: Mapping[str, Any]) -> str:
    """The settings in a few words, as tables and progress show them."""
    return ", ".join(f"{name}={plain(value)}" for name, value in settings.items()) or "as given"


def key_of(value: Any) -> str:
    """A text that is the same for the same settings, in any order and any process."""
    return json.dumps(plain(value), sort_keys=True, ensure_ascii=False)


def plain(value: Any) -> Any:
    """A value in JSON's terms; what JSON has no word for, as Python would write it."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return value if value is None or isinstance(value, str | bool | int | float) else repr(value)


def size_of(settings: Mapping[str, Any]) -> int:
    """How big a cell is: the product of its whole numbers. Big ones are run first and lose ties."""
    wholes = [value for value in settings.values() if isinstance(value, int) and not isinstance(value, bool)]
    return math.prod(max(value, 1) for value in wholes)


# ---- estimators ---------------------------------------------------------------------------------------


def with_settings(estimator: Any, settings: Mapping[str, Any]) -> Any:
    """A fresh, unfitted estimator with these settings; the one given is left alone."""
    fresh = _fresh(estimator)
    return fresh.set_params(**settings) if settings else fresh


def _fresh(value: Any) -> Any:
    if hasattr(value, "get_params") and not isinstance(value, type):
        own = value.get_params(deep=False)
        return type(value)(**{name: _fresh(inner) for name, inner in own.items()})
    return copy.deepcopy(value)


def for_trial(estimator: Any, seed: int, kept: Iterable[str]) -> Any:
    """A fresh estimator with a seed of its own, on one thread: a trial has one core.

    Settings in ``kept`` are part of the grid and stay as they are.
    """
    has = estimator.get_params(deep=False)
    wanted = {name: seed for name in SEED_NAMES if name in has} | ({"n_jobs": 1} if "n_jobs" in has else {})
    return with_settings(estimator, {name: value for name, value in wanted.items() if name not in set(kept)})


def stream_seed(seed: int, *path: Any) -> int:
    """A seed below 2³² that depends on ``seed`` and on what it is for, and on nothing else."""
    digest = hashlib.sha256(key_of([seed, *path]).encode()).digest()
    return int.from_bytes(digest[:4], "big")


def described(estimator: Any) -> Settings:
    """Class and settings of an estimator in plain values, threads apart: they change no result."""
    own = estimator.get_params()
    settings = {name: plain(value) for name, value in own.items() if name.split("__")[-1] != "n_jobs"}
    return {"class": f"{type(estimator).__module__}.{type(estimator).__qualname__}", "settings": settings}
