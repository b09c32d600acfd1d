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

A message is one line: what is wrong, where, and what to do about it. Settings in a message are written by
:func:`setting`, so that the command line can name its options where Python names keywords. What is worth a
word and no error is a :class:`DissensusWarning`.
"""

from __future__ import annotations

import importlib
import json
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any


class DissensusError(Exception):
    """Base of every error raised on purpose."""


class DataError(DissensusError):
    """The data given cannot be used as they are."""


class ParameterError(DissensusError, ValueError):
    """A setting is outside its rule."""


class UnknownSettingError(ParameterError, TypeError):
    """A setting was given that there is not."""


class ModelFileError(DissensusError):
    """A file of arrays is damaged, of another version, or not ours."""


class ClusterError(DissensusError):
    """A cluster cannot be reached, or was lost."""


class NotFittedError(DissensusError, AttributeError):
    """The model has not been fitted yet."""


class MissingExtraError(DissensusError, ImportError):
    """An optional dependency is not installed."""


class DissensusWarning(UserWarning):
    """Something in the data or the settings that is worth a look, with its remedy."""


def warn(note: str, stacklevel: int = 2) -> None:
    """Warn of something that is no error."""
    warnings.warn(note, DissensusWarning, stacklevel=stacklevel + 1)


def require(module: str, extra: str) -> ModuleType:
    """Import an optional module, or say which command installs it."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise MissingExtraError(
            f"{module} is needed for this and is not installed; install it with: {install_command(extra)}"
        ) from None


def install_command(extra: str) -> str:
    """Return the command that adds an extra, for the way in which dissensus was installed here."""
    source = json.loads(_installed_file("direct_url.json") or "{}")
    if "dir_info" not in source:
        return f"pip install 'dissensus[{extra}]'"
    from urllib.parse import unquote, urlsplit

    folder = unquote(urlsplit(source["url"]).path)  # of the checkout
    editable = "-e " if source["dir_info"].get("editable") else ""
    return f"pip install -c '{folder}/constraints.txt' {editable}'{folder}[{extra}]'"


def _installed_file(name: str) -> str:
    """What an installer wrote about this package; empty where it was not installed."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return distribution("dissensus").read_text(name) or ""
    except PackageNotFoundError:
        return ""


# ---- words that messages share ------------------------------------------------------------------------

Spelling = Callable[[str, Any], str]
_SPELLING: ContextVar[Spelling | None] = ContextVar("spelling", default=None)  # None: Python's keywords


def setting(name: str, value: Any = None) -> str:
    """A setting as its reader can type it: ``label='answer'`` in Python, an option on the command line."""
    spelling = _SPELLING.get()
    if spelling is not None:
        return spelling(name, value)
    return f"{name}=" if value is None else f"{name}={value!r}"


@contextmanager
def spelled(spelling: Spelling) -> Iterator[None]:
    """Write settings in messages by another function inside the block."""
    token = _SPELLING.set(spelling)
    try:
        yield
    finally:
        _SPELLING.reset(token)


def bad_parameter(owner: object, name: str, rule: str, value: Any) -> ParameterError:
    """One error form for every setting: name, owner, rule, what came."""
    if _SPELLING.get() is not None:
        return ParameterError(f"{setting(name)} must be {rule}; got {value!r}")
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
