"""Every error this library raises on purpose.

::

    DissensusError
    ├── DataError           a table, a row or a column is not what it should be
    ├── ParameterError      a setting is outside its rule (also a ValueError)
    │   └── UnknownSettingError   there is no such setting (also a TypeError)
    ├── ModelFileError      a saved model, learner or state cannot be read
    ├── ClusterError        a cluster, or the way to it, is lost
    ├── NotFittedError      a fitted attribute was asked for before ``fit``
    └── MissingExtraError   an optional package is needed (also an ImportError)

A message is one line: what is wrong, where, and what to do about it. :func:`setting` writes the settings in a
message, so that the command line can name its options where Python names keywords. Findings that are no
errors are raised as :class:`DissensusWarning`.
"""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from types import ModuleType
from typing import Any, TypeVar

T = TypeVar("T")


class DissensusError(Exception):
    """Base of every error raised on purpose."""


class DataError(DissensusError):
    """The data cannot be used as they are."""


class ParameterError(DissensusError, ValueError):
    """A setting is outside its rule."""


class UnknownSettingError(ParameterError, TypeError):
    """There is no setting of this name."""


class ModelFileError(DissensusError):
    """A file of arrays is damaged, of another version, or not ours."""


class ClusterError(DissensusError):
    """A cluster cannot be reached, or was lost."""


class NotFittedError(DissensusError, AttributeError):
    """The model has not been fitted yet."""


class MissingExtraError(DissensusError, ImportError):
    """An optional dependency is not installed."""


class DissensusWarning(UserWarning):
    """Finding in the data or the settings that a user should check, with its remedy."""


def warn(note: str, stacklevel: int = 2) -> None:
    """Raise a DissensusWarning."""
    warnings.warn(note, DissensusWarning, stacklevel=stacklevel + 1)


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module, or say which command installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise MissingExtraError(
            f"this needs {module}, which is not installed; install it with: {install_command(extra)}"
        ) from None


def install_command(extra: str) -> str:
    """Return the command that adds an extra, for the way in which dissensus was installed here."""
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.parse import unquote, urlsplit

    source = {}
    with suppress(PackageNotFoundError):  # run from source, not installed
        source = json.loads(distribution("dissensus").read_text("direct_url.json") or "{}")
    if "dir_info" not in source:
        return f"pip install 'dissensus[{extra}]'"
    folder = unquote(urlsplit(source["url"]).path)  # the checkout
    editable = "-e " if source["dir_info"].get("editable") else ""
    return f"pip install -c '{folder}/constraints.txt' {editable}'{folder}[{extra}]'"


# ---- words that messages share ------------------------------------------------------------------------

Spelling = Callable[[str, Any], str]
_SPELLING: ContextVar[Spelling | None] = ContextVar("spelling", default=None)  # None: Python's keywords


def setting(name: str, value: Any = None) -> str:
    """Return a setting as a user types it: ``label='answer'`` in Python, an option on the command line."""
    spelling = _SPELLING.get()
    if spelling is not None:
        return spelling(name, value)
    return f"{name}=" if value is None else f"{name}={value!r}"


@contextmanager
def setting_variable(variable: ContextVar[T], value: T) -> Iterator[T]:
    """Give a context variable another value inside the block, and yield the value it had."""
    former, token = variable.get(), variable.set(value)
    try:
        yield former
    finally:
        variable.reset(token)


def spelled(spelling: Spelling) -> AbstractContextManager[Any]:
    """Let ``spelling`` write the settings in messages inside the block."""
    return setting_variable(_SPELLING, spelling)


def bad_parameter(owner: object, name: str, rule: str, value: Any) -> ParameterError:
    """Return the error for a setting that breaks its rule."""
    if _SPELLING.get() is not None:
        return ParameterError(f"{setting(name)} must be {rule}; got {value!r}")
    title = owner if isinstance(owner, str) else type(owner).__name__
    return ParameterError(f"The {name!r} parameter of {title} must be {rule}. Got {value!r} instead.")


def bad_choice(owner: object, name: str, choices: Collection[str], value: str) -> ParameterError:
    """Return the error for a setting that is none of the choices, and name the nearest of them."""
    hint = did_you_mean(value, choices).rstrip()
    return bad_parameter(owner, name, f"one of {', '.join(choices)}" + (f" ({hint})" if hint else ""), value)


def nearest(name: str, names: Iterable[str], min_similarity: float = 0.6) -> str | None:
    """Return the most similar of the names, or None if none is similar."""
    import difflib

    return next(iter(difflib.get_close_matches(name, list(names), 1, min_similarity)), None)


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return ``did you mean 'near'? ``, or nothing if no name is near."""
    near = nearest(name, names)
    return "" if near is None else f"did you mean {near!r}? "


def system_words(error: BaseException) -> str:
    """Return the reason of the operating system, without the name of the file."""
    return (getattr(error, "strerror", None) or " ".join(str(error).split()) or "it is empty").lower()
