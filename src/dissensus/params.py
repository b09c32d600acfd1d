"""Settings in the scikit-learn manner, without importing scikit-learn.

An estimator declares each setting once, as a dataclass declares its fields, and each fitted attribute too::

    class FMM(Model):
        n_item_clusters: int = setting(10, integer(1), "How many clusters of items there are.")
        _: KW_ONLY
        max_iter: int = setting(500, *MAX_ITER)

        theta_: Array = fitted("(K, P): label distribution of each item cluster")

:func:`declare` makes ``__init__``, its signature and two sections of the documentation of it. ``__init__``
stores each argument under its own name and does nothing else, so that ``get_params``, ``set_params`` and
``sklearn.base.clone`` work; rules are checked when work begins, never in ``__init__``.
The last section reads sizes of memory and counts cores.
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
from inspect import Parameter
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, Self, TypeVar, dataclass_transform

from dissensus.errors import NotFittedError, ParameterError, UnknownSettingError, bad_parameter, did_you_mean

T = TypeVar("T")


@dataclass(frozen=True)
class Rule:
    """Condition on the value of a setting: in words, and as a test."""

    words: str
    holds: Callable[[Any], bool]

    def __or__(self, other: Rule) -> Rule:
        return Rule(f"{self.words} or {other.words}", lambda v: self.holds(v) or other.holds(v))


def integer(low: int) -> Rule:
    """Require a whole number of at least ``low``."""
    words = f"an int >= {low}"
    return Rule(words, lambda v: isinstance(v, Integral) and not isinstance(v, bool) and int(v) >= low)


LARGEST = 1e100  # of a parameter: sums and products of a few stay finite


def real(low: float, high: float = float("inf"), *, open_low: bool = False) -> Rule:
    """Require a finite number between two bounds (the lower one excluded if ``open_low``)."""
    sign = ">" if open_low else ">="
    words = f"a float {sign} {low:g}" + ("" if high == float("inf") else f" and <= {high:g}")

    def holds(v: Any) -> bool:
        if not isinstance(v, Real) or isinstance(v, bool) or not math.isfinite(v):
            return False
        return (float(v) > low if open_low else float(v) >= low) and float(v) <= min(high, LARGEST)

    return Rule(words, holds)


def dirichlet(low: float, *, open_low: bool = False) -> Rule:
    """Require a Dirichlet parameter: one number for all components, or a list with one for each."""
    number = real(low, open_low=open_low)

    def holds(v: Any) -> bool:
        return number.holds(v) or (isinstance(v, list | tuple) and len(v) > 0 and all(map(number.holds, v)))

    return Rule(f"{number.words}, or a list of them", holds)


def choice(*values: str | bool) -> Rule:
    """Require one of the named values."""
    words = "one of " + ", ".join(map(repr, values))
    typed = list(zip(map(type, values), values, strict=True))  # `1 in (True, False)` holds in Python
    return Rule(words, lambda v: (type(v), v) in typed)


NONE = Rule("None", lambda v: v is None)
FLAG = choice(True, False)
POSITIVE = real(0.0, open_low=True)
ANY = Rule("anything", lambda _: True)


def check_rules(owner: object, rules: Mapping[str, Rule], /, **values: Any) -> None:
    """Raise a ParameterError for the first value that breaks the rule of its name."""
    for name, value in values.items():
        if not rules[name].holds(value):
            raise bad_parameter(owner, name, rules[name].words, value)


# ---- declarations ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """Argument of an estimator's constructor: default, rule and meaning."""

    default: Any
    rule: Rule
    meaning: str
    keyword_only: bool = False
    annotation: Any = Any


@dataclass(frozen=True)
class Fitted:
    """Attribute that a fit sets; a saved estimator keeps it if ``saved``."""

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


# Rules and meanings of settings that many estimators share: ``max_iter: int = setting(500, *MAX_ITER)``.
MAX_ITER = integer(1), "Maximum number of iterations."
TOL = real(0.0), "The fit stops when the objective per label changes by at most this much (nats)."
N_RESTARTS = integer(1), "Number of fits from random starts; the best one is kept."
SEED = integer(0), "Seed of the random numbers. The same seed gives the same result, to the last bit."
N_JOBS = integer(-1), "Number of threads; −1 takes all cores. The result does not depend on it."
WEIGHT_BY = (
    choice("labels", "annotators"),
    'Weight of annotators in the population: in proportion to their number of ``"labels"``, or equal '
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
EARLY_STOPPING = (
    integer(1) | NONE,
    "Number of epochs without improvement on the dev items after which training stops; None trains for all "
    "epochs.",
)

# Names of these settings in crowd-kit and scikit-learn; scripts written for those packages run unchanged.
OTHER_NAMES = {"n_iter": "max_iter", "random_state": "seed"}


@dataclass_transform(eq_default=False, field_specifiers=(fitted,))
def declare(cls: type[T]) -> type[T]:
    """Collect the declarations of a class, and build its ``__init__`` and its documentation.

    A setting's default stays as the class attribute; a fitted attribute leaves none. Settings after
    ``_: KW_ONLY`` are taken by name alone. The order is: inherited positional settings, the class's own, then
    the other inherited ones; a setting that is declared again replaces the inherited one.
    """
    inherited, attributes = dict[str, Setting](), dict[str, Fitted]()
    for base in reversed(cls.__mro__[1:]):
        inherited |= vars(base).get("_settings", {})
        attributes |= vars(base).get("_attributes", {})
    declared, keyword_only = dict[str, Setting](), False
    for name, value in vars(cls).items():
        if isinstance(value, Setting | Fitted) and name not in cls.__annotations__:
            raise TypeError(f"{cls.__name__}.{name} is declared without a type; write {name}: type = ...")
    for name, annotation in cls.__annotations__.items():
        value = vars(cls).get(name)
        if isinstance(value, Setting):
            declared[name] = replace(value, keyword_only=keyword_only, annotation=annotation)
            setattr(cls, name, value.default)
        elif isinstance(value, Fitted):
            attributes[name] = value
            delattr(cls, name)
        keyword_only = keyword_only or name == "_"
    first = {name: setting for name, setting in inherited.items() if not setting.keyword_only}
    last = {name: setting for name, setting in inherited.items() if name not in {*first, *declared}}
    estimator: Any = cls
    estimator._settings, estimator._attributes = first | declared | last, attributes
    if "_arrays" not in vars(cls):
        estimator._arrays = tuple(name for name, attribute in attributes.items() if attribute.saved)
    if "__init__" not in vars(cls):
        estimator.__init__ = _constructor(estimator._settings)
        estimator.__init__.__qualname__ = f"{cls.__qualname__}.__init__"
    if cls.__doc__ is not None:
        cls.__doc__ = _with_sections(cls.__doc__, estimator._settings, attributes)
    return cls


def _constructor(settings: Mapping[str, Setting]) -> Callable[..., None]:
    """Return an ``__init__`` that stores settings and understands the names of other libraries."""
    positional = [name for name, setting in settings.items() if not setting.keyword_only]
    defaults = {name: setting.default for name, setting in settings.items()}
    names = ", ".join(settings) or "none"
    parameters = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)]
    for name, setting in settings.items():
        kind = Parameter.KEYWORD_ONLY if setting.keyword_only else Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(Parameter(name, kind, default=setting.default, annotation=setting.annotation))

    def initialise(self: object, *args: Any, **kwargs: Any) -> None:
        title, values = type(self).__name__, dict(zip(positional, args, strict=False))
        if len(args) > len(positional):
            limit = f"{title} takes at most {len(positional)} settings without a name"
            raise UnknownSettingError(f"{limit}, got {len(args)}; it has {names}")
        for name, value in kwargs.items():
            setting = name if name in settings else OTHER_NAMES.get(name, name)
            if setting not in settings:
                hint = did_you_mean(name, settings)
                raise UnknownSettingError(f"{title} has no setting {name!r}; {hint}it has {names}")
            if setting in values:
                alias = "" if name == setting else f": {name!r} is another name for it"
                raise UnknownSettingError(f"{title} was given {setting!r} twice{alias}")
            values[setting] = value
        vars(self).update(defaults | values)

    vars(initialise)["__signature__"] = inspect.Signature(parameters, return_annotation=None)
    initialise.__name__ = "__init__"
    return initialise


def _with_sections(story: str, settings: Mapping[str, Setting], attributes: Mapping[str, Fitted]) -> str:
    """Return the documentation in numpydoc's form: the story, ``Parameters``, ``Attributes``."""
    text, public = inspect.cleandoc(story), {name: a for name, a in attributes.items() if name[0] != "_"}
    for title, declared in (("Parameters", settings), ("Attributes", public)):
        text += f"\n\n{title}\n----------" if declared else ""
        for name, entry in declared.items():
            if isinstance(entry, Setting):
                name += f" : {entry.rule.words}, default {entry.default!r}"
            text += f"\n{name}\n" + textwrap.indent(textwrap.fill(entry.meaning, 96), "    ")
    return text


# ---- estimators -----------------------------------------------------------------------------------------


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
        if name.startswith("_"):  # scikit-learn's searches store attributes there
            vars(fresh).setdefault(name, value)
    self.__dict__ = vars(fresh)


def with_settings(estimator: Any, settings: Mapping[str, Any]) -> Any:
    """Return an unfitted copy of the estimator with these settings."""
    if not hasattr(estimator, "get_params") or isinstance(estimator, type):
        return copy.deepcopy(estimator)
    params = estimator.get_params(deep=False)
    fresh = type(estimator)(**{name: with_settings(value, {}) for name, value in params.items()})
    return fresh.set_params(**settings) if settings else fresh


class Estimator:
    """Methods that models, learners and classifiers have in common with scikit-learn's estimators."""

    _settings: ClassVar[Mapping[str, Setting]] = {}
    _arrays: ClassVar[tuple[str, ...]] = ()  # fitted arrays in a file
    _fitted_by: ClassVar[str]  # attribute that marks a fit

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the settings by name; with ``deep``, those of nested estimators as ``outer__inner`` too."""
        params = {name: getattr(self, name) for name in self._settings}
        for outer, value in [*params.items()] if deep else ():
            if hasattr(value, "get_params") and not isinstance(value, type):
                params |= {f"{outer}__{inner}": nested for inner, nested in value.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Change settings by name (``outer__inner`` reaches into nested estimators)."""
        settings = self._settings
        for name, value in params.items():
            outer, _, inner = name.partition("__")
            if outer not in settings or (inner and not hasattr(getattr(self, outer), "set_params")):
                names = ", ".join(settings) or "none"
                raise ParameterError(f"{type(self).__name__} has no setting {name!r}; it has {names}")
            if inner:
                getattr(self, outer).set_params(**{inner: value})
            else:
                setattr(self, outer, value)
        return self

    def check_params(self) -> None:
        """Check every setting that differs from its default against its rule."""
        for name, setting in self._settings.items():
            value = getattr(self, name)
            if value is not setting.default and not setting.rule.holds(value):
                raise bad_parameter(self, name, setting.rule.words, value)

    def __repr__(self) -> str:
        """Return the class name with the settings that differ from their defaults."""
        changed = []
        for name, setting in self._settings.items():
            value, default = getattr(self, name), setting.default
            if value is not default and not (type(value) is type(default) and bool(value == default)):
                changed.append(f"{name}={value!r}")
        return f"{type(self).__name__}({', '.join(changed)})"

    def __sklearn_tags__(self) -> Any:
        """Return the tags that scikit-learn's own helpers (``check_is_fitted``, pipelines) ask for."""
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def __sklearn_is_fitted__(self) -> bool:
        """Return True once the attribute that marks a fit is set."""
        return self._fitted_by in vars(self)

    def _check_fitted(self) -> None:
        """Raise a NotFittedError before the first fit."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")


# ---- the machine --------------------------------------------------------------------------------------

# Memory of a process before it reads the first row: interpreter, NumPy, Arrow and their buffers.
PROCESS_BYTES = 250_000_000
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def n_bytes(memory: str | int, owner: str) -> int:
    """Return a size such as ``"2GB"`` or ``"512MB"`` as a number of bytes."""
    size = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?B?)\s*", str(memory), re.IGNORECASE)
    if size is None:
        raise bad_parameter(owner, "memory", "a size such as '2GB', or a number of bytes", memory)
    unit = size[2].upper().removesuffix("B")
    return int(float(size[1]) * _UNITS[f"{unit}B" if unit else ""])


def size_words(size: int) -> str:
    """Return a size in the form that ``memory=`` reads, such as ``1.52GB``; rounded up."""
    unit = next((unit for unit in ("TB", "GB", "MB") if size >= _UNITS[unit]), "KB")
    return f"{-(-size * 100 // _UNITS[unit]) / 100:g}{unit}"


@functools.cache
def physical_memory() -> int:
    """Return the memory of the machine in bytes; 8 GB if it cannot be read."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 8 * 10**9


@functools.cache
def n_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
