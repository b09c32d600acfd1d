"""Every error this library raises on purpose.

::

    DissensusError
    ├── DataError           a table, a row or a column is not what it should be
    ├── ParameterError      a setting is outside its rule (also a ValueError)
    ├── ModelFileError      a saved model, learner or state cannot be read
    ├── ClusterError        a cluster, or the way to it, is lost
    ├── NotFittedError      a fitted attribute was asked for before ``fit``
    └── MissingExtraError   an optional package is needed (also an ImportError)

A message is one line: what is wrong, where, and what to do about it.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable
from types import ModuleType
from typing import Any


class DissensusError(Exception):
    """Base of every error raised on purpose."""


class DataError(DissensusError):
    """The data given cannot be used as they are."""


class ParameterError(DissensusError, ValueError):
    """A setting is outside its rule."""


class ModelFileError(DissensusError):
    """A file of arrays is damaged, of another version, or not ours."""


class ClusterError(DissensusError):
    """A cluster cannot be reached, or was lost."""


class NotFittedError(DissensusError, AttributeError):
    """The model has not been fitted yet."""


class MissingExtraError(DissensusError, ImportError):
    """An optional dependency is not installed."""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module, or say which command installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise MissingExtraError(
            f"{module} is needed for this and is not installed; "
            f"install it with: pip install 'dissensus[{extra}]'"
        ) from None


# ---- words that messages share ------------------------------------------------------------------------


def bad_parameter(owner: object, name: str, rule: str, value: Any) -> ParameterError:
    """One error form for every setting: name, owner, rule, what came."""
    title = owner if isinstance(owner, str) else type(owner).__name__
    return ParameterError(f"The {name!r} parameter of {title} must be {rule}. Got {value!r} instead.")


def bad_choice(owner: object, name: str, known: Collection[str], value: str) -> ParameterError:
    """The same where a setting is one of some words: the nearest of them is named."""
    hint = did_you_mean(value, known).rstrip()
    return bad_parameter(owner, name, f"one of {', '.join(known)}" + (f" ({hint})" if hint else ""), value)


def nearest(given: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """The known name that looks most like the given one, if any does."""
    import difflib

    return next(iter(difflib.get_close_matches(given, list(known), 1, least)), None)


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """``did you mean 'near'? ``, or nothing where no known name is near."""
    near = nearest(given, known)
    return "" if near is None else f"did you mean {near!r}? "


def system_words(error: BaseException) -> str:
    """Why the operating system refused, in its own words, without the file it names."""
    return (getattr(error, "strerror", None) or " ".join(str(error).split()) or "it is empty").lower()
