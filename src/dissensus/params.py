"""Settings in the scikit-learn manner, without importing scikit-learn.

An estimator declares each setting once, as a dataclass declares its fields, and each fitted attribute too::

    class FMM(Model):
        n_item_clusters: int = setting(10, integer(1), "How many clusters of items there are.")
        _: KW_ONLY
        max_iter: int = setting(500, *MAX_ITER)

        theta_: Array = fitted("(K, P): label distribution of each item cluster")

:func:`declare` makes ``__init__``, its signature and two sections of the documentation of it. ``__init__``
stores each argument under its own name and does nothing else, so that ``get_params``, ``set_params`` and
``sklearn.base.clone`` work; rules are checked when work begins, never in ``__init__``. Functions whose first
argument is ``self`` become methods of the classes at the root: Model, Learner and GuidedClassifier.
Below them, what settings of a machine mean: sizes of memory and numbers of cores.
"""

from __future__ import annotations

import copy
import functools
import inspect
import math
import os
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Literal, TypeVar, dataclass_transform

from dissensus.errors import NotFittedError, ParameterError, UnknownSettingError, bad_parameter, did_you_mean

T = TypeVar("T")


@dataclass(frozen=True)
class Rule:
    """What a setting must be: in words, and as a test."""

    words: str
    holds: Callable[[Any], bool]

    def __or__(self, other: Rule) -> Rule:
        return Rule(f"{self.words} or {other.words}", lambda v: self.holds(v) or other.holds(v))


def integer(low: int) -> Rule:
    """A whole number of at least ``low``."""
    words = f"an int >= {low}"
    return Rule(words, lambda v: isinstance(v, Integral) and not isinstance(v, bool) and int(v) >= low)


def real(low: float, high: float = float("inf"), *, open_low: bool = False) -> Rule:
    """A finite number between two bounds (the lower one excluded if ``open_low``)."""
    sign = ">" if open_low else ">="
    words = f"a float {sign} {low:g}" + ("" if high == float("inf") else f" and <= {high:g}")

    def holds(v: Any) -> bool:
        if not isinstance(v, Real) or isinstance(v, bool) or not math.isfinite(v):
            return False
        return (float(v) > low if open_low else float(v) >= low) and float(v) <= high

    return Rule(words, holds)


def dirichlet(low: float, *, open_low: bool = False) -> Rule:
    """A Dirichlet parameter: one number for all components, or a list with one for each."""
    one = real(low, open_low=open_low)
    return Rule(
        f"{one.words}, or a list of them",
        lambda v: one.holds(v) or (isinstance(v, list | tuple) and len(v) > 0 and all(map(one.holds, v))),
    )


def choice(*values: str | bool) -> Rule:
    """One of the named values."""
    words = "one of " + ", ".join(map(repr, values))
    # `1 in (True, False)` holds in Python, so the type is compared as well.
    return Rule(words, lambda v: any(type(v) is type(c) and v == c for c in values))


NONE = Rule("None", lambda v: v is None)
FLAG = choice(True, False)
POSITIVE = real(0.0, open_low=True)
ANY = Rule("anything", lambda _: True)


def check_rules(owner: object, rules: Mapping[str, Rule], /, **given: Any) -> None:
    """Hold every given value against the rule of its name."""
    for name, value in given.items():
        if not rules[name].holds(value):
            raise bad_parameter(owner, name, rules[name].words, value)


# ---- declarations ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """An argument of an estimator's constructor: default, rule and meaning."""

    default: Any
    rule: Rule
    meaning: str
    keyword_only: bool = False
    annotation: Any = Any


@dataclass(frozen=True)
class Fitted:
    """An attribute that a fit sets; a saved estimator keeps it, unless told otherwise."""

    meaning: str
    saved: bool


def setting(default: Any, rule: Rule, meaning: str) -> Any:
    """Declare a setting in the body of a class."""
    return Setting(default, rule, meaning)


def flag(default: bool, meaning: str) -> Any:
    """Declare a setting that is True or False."""
    return Setting(default, choice(True, False), meaning)


def fitted(meaning: str, *, saved: bool = True, init: Literal[False] = False) -> Any:
    """Declare a fitted attribute; ``init`` tells type checkers that the constructor does not take it."""
    return Fitted(meaning, saved)


# Rule and meaning of settings that many estimators share: ``max_iter: int = setting(500, *MAX_ITER)``.
MAX_ITER = integer(1), "The most iterations."
TOL = real(0.0), "The fit stops when the objective per label changes by at most this much (nats)."
N_RESTARTS = integer(1), "How many fits from random starts there are; the best one is kept."
SEED = integer(0), "Seed of the random numbers. The same seed gives the same result, to the last bit."
N_JOBS = integer(-1), "Number of threads; −1 takes all cores. The result does not depend on it."
WEIGHT_BY = (
    choice("labels", "annotators"),
    'How annotators count in the population: by the number of their ``"labels"``, or all alike '
    '(``"annotators"``).',
)
EMBEDDING = (
    ANY,
    "The sentence encoder for items that have a text and no features: a name or a path, as in "
    ":func:`dissensus.text.embed`; None takes the one that comes with the extra ``text``.",
)
DEVICE = (
    ANY,
    'Where PyTorch computes, such as ``"cpu"`` or ``"cuda"``; None takes a graphics card where there is one.',
)
N_THREADS = (
    integer(1) | NONE,
    "Threads of PyTorch; None leaves its own number. The same seed and number of threads give the same "
    "result.",
)
PATIENCE = (
    integer(1) | NONE,
    "Training ends after so many epochs without a better one on dev; None makes all epochs.",
)

# Names of the same settings in crowd-kit and scikit-learn; scripts written for them run unchanged.
OTHER_NAMES = {"n_iter": "max_iter", "random_state": "seed"}


@dataclass_transform(eq_default=False, field_specifiers=(fitted,))
def declare(cls: type[T]) -> type[T]:
    """Collect what a class declares, and build its ``__init__`` and its documentation.

    A setting's default stays as the class attribute; a fitted attribute leaves none. Settings after
    ``_: KW_ONLY`` are taken by name alone. The order is: inherited positional settings, the class's own, then
    the other inherited ones; a setting that is declared again replaces the inherited one.
    """
    inherited, attributes = dict[str, Setting](), dict[str, Fitted]()
    for base in reversed(cls.__mro__[1:]):
        inherited |= vars(base).get("_settings", {})
        attributes |= vars(base).get("_attributes", {})
    own, keyword_only = dict[str, Setting](), False
    for name, value in vars(cls).items():
        if isinstance(value, Setting | Fitted) and name not in cls.__annotations__:
            raise TypeError(f"{cls.__name__}.{name} is declared without a type; write {name}: type = ...")
    for name, annotation in cls.__annotations__.items():
        value = vars(cls).get(name)
        if isinstance(value, Setting):
            own[name] = replace(value, keyword_only=keyword_only, annotation=annotation)
            setattr(cls, name, value.default)
        elif isinstance(value, Fitted):
            attributes[name] = value
            delattr(cls, name)
        keyword_only = keyword_only or name == "_"
    first = {name: known for name, known in inherited.items() if not known.keyword_only}
    last = {name: known for name, known in inherited.items() if name not in {*first, *own}}
    found: Any = cls
    found._settings, found._attributes = first | own | last, attributes
    if "_arrays" not in vars(cls):
        found._arrays = tuple(name for name, known in attributes.items() if known.saved)
    if "__init__" not in vars(cls):
        found.__init__ = _constructor(found._settings)
        found.__init__.__qualname__ = f"{cls.__qualname__}.__init__"
    if cls.__doc__ is not None:
        cls.__doc__ = _with_sections(cls.__doc__, found._settings, attributes)
    return cls


def _constructor(settings: Mapping[str, Setting]) -> Callable[..., None]:
    """An ``__init__`` that stores settings; other libraries' names for them are known to it."""
    positional = [name for name, known in settings.items() if not known.keyword_only]
    defaults = {name: known.default for name, known in settings.items()}
    anywhere, by_name = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = [inspect.Parameter("self", anywhere)]
    for name, known in settings.items():
        kind, usual = by_name if known.keyword_only else anywhere, known.default
        parameters.append(inspect.Parameter(name, kind, default=usual, annotation=known.annotation))

    def initialise(self: object, *args: Any, **given: Any) -> None:
        title, own = type(self).__name__, dict(zip(positional, args, strict=False))
        if len(args) > len(positional):
            raise UnknownSettingError(
                f"{title} takes at most {len(positional)} settings without a name, got {len(args)}; "
                f"it has {', '.join(settings) or 'none'}"
            )
        for name, value in given.items():
            known = name if name in settings else OTHER_NAMES.get(name, name)
            if known not in settings:
                raise UnknownSettingError(
                    f"{title} has no setting {name!r}; {did_you_mean(name, settings)}"
                    f"it has {', '.join(settings) or 'none'}"
                )
            if known in own:
                means = "" if name == known else f": {name!r} means the same"
                raise UnknownSettingError(f"{title} was given {known!r} twice{means}")
            own[known] = value
        vars(self).update(defaults | own)

    vars(initialise)["__signature__"] = inspect.Signature(parameters, return_annotation=None)
    initialise.__name__ = "__init__"
    return initialise


def _with_sections(story: str, settings: Mapping[str, Setting], attributes: Mapping[str, Fitted]) -> str:
    """Documentation in numpydoc's form: the story, then ``Parameters`` and ``Attributes``."""
    text, public = inspect.cleandoc(story), {name: a for name, a in attributes.items() if name[0] != "_"}
    for title, declared in (("Parameters", settings), ("Attributes", public)):
        text += f"\n\n{title}\n----------" if declared else ""
        for name, known in declared.items():
            if isinstance(known, Setting):
                name += f" : {known.rule.words}, default {known.default!r}"
            text += f"\n{name}\n" + textwrap.indent(textwrap.fill(known.meaning, 96), "    ")
    return text


# ---- methods of an estimator ----------------------------------------------------------------------------


def get_params(self: Any, deep: bool = True) -> dict[str, Any]:
    """The settings by name; with ``deep``, those of nested estimators as ``outer__inner`` too."""
    own = {name: getattr(self, name) for name in self._settings}
    for outer, holder in [*own.items()] if deep else ():
        if hasattr(holder, "get_params") and not isinstance(holder, type):
            own |= {f"{outer}__{inner}": value for inner, value in holder.get_params().items()}
    return own


def set_params(self: T, **params: Any) -> T:
    """Change settings by name (``outer__inner`` reaches into nested estimators)."""
    known: Mapping[str, Setting] = type(self)._settings  # type: ignore[attr-defined]
    for name, value in params.items():
        outer, _, inner = name.partition("__")
        if outer not in known or (inner and not hasattr(getattr(self, outer), "set_params")):
            names = ", ".join(known) or "none"
            raise ParameterError(f"{type(self).__name__} has no setting {name!r}; it has {names}")
        if inner:
            getattr(self, outer).set_params(**{inner: value})
        else:
            setattr(self, outer, value)
    return self


def check_params(self: Any) -> None:
    """Hold every setting that is not at its default against its rule."""
    for name, known in self._settings.items():
        value = getattr(self, name)
        if value is not known.default and not known.rule.holds(value):
            raise bad_parameter(self, name, known.rule.words, value)


def representation(self: Any) -> str:
    """The class with the settings that differ from their defaults."""
    changed = []
    for name, known in self._settings.items():
        value, usual = getattr(self, name), known.default
        if value is not usual and not (type(value) is type(usual) and bool(value == usual)):
            changed.append(f"{name}={value!r}")
    return f"{type(self).__name__}({', '.join(changed)})"


@contextmanager
def fitted_copy(self: T) -> Iterator[T]:
    """Yield an unfitted copy to fit, whose state becomes this one's when the block ends well.

    A fit that fails or is interrupted leaves the estimator as it was, and nothing of an earlier fit
    survives a later one.
    """
    fresh = object.__new__(type(self))
    for name in self._settings:  # type: ignore[attr-defined]
        setattr(fresh, name, getattr(self, name))
    yield fresh
    for name, value in vars(self).items():
        if name.startswith("_"):  # scikit-learn's searches note something there, and want it back
            vars(fresh).setdefault(name, value)
    self.__dict__ = vars(fresh)


def with_settings(estimator: Any, settings: Mapping[str, Any]) -> Any:
    """A fresh, unfitted estimator with these settings; the one given is left alone."""
    if not hasattr(estimator, "get_params") or isinstance(estimator, type):
        return copy.deepcopy(estimator)
    own = estimator.get_params(deep=False)
    fresh = type(estimator)(**{name: with_settings(inner, {}) for name, inner in own.items()})
    return fresh.set_params(**settings) if settings else fresh


def is_fitted(self: Any) -> bool:
    """Whether the attribute is there that says so."""
    return self._fitted_by in vars(self)


def check_fitted(self: Any) -> None:
    """Refuse what is not fitted yet."""
    if not self.__sklearn_is_fitted__():
        raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")


def sklearn_tags(self: Any) -> Any:
    """Answers to what scikit-learn's own helpers (``check_is_fitted``, pipelines) ask of an estimator."""
    from sklearn.utils import Tags, TargetTags

    return Tags(estimator_type=None, target_tags=TargetTags(required=False))


# ---- the machine --------------------------------------------------------------------------------------

# What a process has before the first row: interpreter, NumPy, Arrow and their buffers.
PROCESS_BYTES = 250_000_000
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def n_bytes(memory: str | int, owner: str) -> int:
    """``"2GB"``, ``"512MB"`` or a number of bytes, as a number of bytes."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?B?)\s*", str(memory), re.IGNORECASE)
    if found is None:
        raise bad_parameter(owner, "memory", "a size such as '2GB', or a number of bytes", memory)
    unit = found[2].upper().removesuffix("B")
    return int(float(found[1]) * _UNITS[f"{unit}B" if unit else ""])


def size_words(size: int) -> str:
    """``1.52GB``, as it may be given back to ``memory=``; rounded up."""
    unit = next((unit for unit in ("TB", "GB", "MB") if size >= _UNITS[unit]), "KB")
    return f"{-(-size * 100 // _UNITS[unit]) / 100:g}{unit}"


@functools.cache
def physical_memory() -> int:
    """Bytes of memory that the machine has; 8 GB where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 8 * 10**9


@functools.cache
def n_cores() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
