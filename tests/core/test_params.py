"""Settings: declared once, checked by their rules, refused in one form, and scikit-learn's manners."""

import inspect
from dataclasses import KW_ONLY
from typing import Any, dataclass_transform

import numpy as np
import pytest

from dissensus import params
from dissensus.errors import NotFittedError, ParameterError, UnknownSettingError
from dissensus.params import (
    ANY,
    MAX_ITER,
    NONE,
    SEED,
    Estimator,
    Rule,
    choice,
    declare,
    fitted,
    integer,
    real,
    setting,
)


@dataclass_transform(eq_default=False, field_specifiers=(fitted,))
class Root(Estimator):
    """Class with settings."""

    _fitted_by = "mean_"

    def __init_subclass__(cls) -> None:
        declare(cls)


class Inner(Root):
    depth: int = setting(3, integer(1), "How deep.")
    rate: float | None = setting(None, real(0.0, 1.0) | NONE, "How fast.")


class Outer(Root):
    """Another one inside.

    It has two paragraphs.
    """

    inner: Any = setting(None, ANY, "What is inside.")
    _: KW_ONLY
    mode: str = setting("fast", choice("fast", "slow"), "How fast.")
    seed: int = setting(0, *SEED)

    mean_: float = fitted("mean of what was seen")
    notes_: list[str] = fitted("what happened", saved=False)


class Derived(Outer):
    """One setting more, another default, another array."""

    _: KW_ONLY
    max_iter: int = setting(10, *MAX_ITER)
    mode: str = setting("slow", choice("slow", "slower"), "How slow.")

    _spread: float = fitted("spread")

    def check_params(self) -> None:
        super().check_params()
        if self.max_iter > 99:
            raise ParameterError("too many")


@declare
class Drawn:
    """A mixin with an array of its own."""

    draws_: list[float] = fitted("what was drawn")


class Mixed(Drawn, Outer):
    """An estimator with a mixin."""


class Plain(Root):
    """No settings at all."""


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (integer(1), [1, 7, np.int64(3), np.uint8(1)], [0, -1, 1.0, True, "1", None, float("nan")]),
        (SEED[0], [0, 2**40], [-1, None, False]),
        (real(0.0), [0, 0.0, 3, np.float32(0.5), 1e99], [-1e-300, True, "0", None, np.inf, np.nan]),
        (real(0.0, open_low=True), [1e-300, 2], [0, 0.0, -1, float("inf")]),
        (real(0.0, 1.0), [0, 1, 0.5], [1.0001, -0.1]),
        (choice("soft", "hard"), ["soft", "hard"], ["Soft", None, 0]),
        (choice(True, False), [True, False], [1, 0, "True"]),
        (choice("auto", True), ["auto", True], [1, False]),
        (NONE, [None], [0, False, ""]),
        (integer(1) | NONE, [1, None], [0, ""]),
        (ANY, [None, object()], []),
    ],
)
def test_rules_hold_for_the_good_and_not_for_the_bad(rule: Rule, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not rule.holds(value)] == []
    assert [value for value in bad if rule.holds(value)] == []


def test_nothing_is_checked_before_work_begins() -> None:
    built = Inner(depth=-5)
    built.set_params(rate=7)
    line = r"\AThe 'depth' parameter of Inner must be an int >= 1\. Got -5 instead\.\Z"
    with pytest.raises(ParameterError, match=line) as caught:
        built.check_params()
    assert isinstance(caught.value, ValueError)
    built.set_params(depth=1)
    line = r"'rate' parameter of Inner must be a float >= 0 and <= 1 or None"
    with pytest.raises(ParameterError, match=line):
        built.check_params()


def test_settings_by_name_and_those_of_nested_estimators() -> None:
    outer = Outer(Inner(depth=4), mode="slow")
    assert outer.get_params(deep=False) == {"inner": outer.inner, "mode": "slow", "seed": 0}
    assert outer.get_params() == outer.get_params(deep=False) | {"inner__depth": 4, "inner__rate": None}
    assert outer.set_params(inner__depth=9, seed=2) is outer
    assert (outer.inner.depth, outer.seed) == (9, 2)


@pytest.mark.parametrize("name", ["nonsense", "nonsense__depth", "mode__depth"])
def test_a_name_that_is_no_setting_is_answered_with_those_that_are(name: str) -> None:
    with pytest.raises(ParameterError, match=rf"\AOuter has no setting '{name}'; it has inner, mode, seed\Z"):
        Outer(Inner()).set_params(**{name: 1})


def test_the_repr_shows_what_differs_from_the_defaults() -> None:
    assert repr(Outer()) == "Outer()"
    assert repr(Outer(Inner(2), mode="slow")) == "Outer(inner=Inner(depth=2), mode='slow')"
    assert repr(Outer(seed=True)) == "Outer(seed=True)"
    assert repr(Inner(rate=np.float64(0.5))) == "Inner(rate=np.float64(0.5))"


# ---- what declarations become -----------------------------------------------------------------------------


def test_the_signature_is_what_was_declared() -> None:
    assert str(inspect.signature(Inner)) == "(depth: int = 3, rate: float | None = None) -> None"
    assert list(inspect.signature(Outer.__init__).parameters) == ["self", "inner", "mode", "seed"]
    kinds = {name: one.kind for name, one in inspect.signature(Derived).parameters.items()}
    keyword_only = inspect.Parameter.KEYWORD_ONLY
    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    own_first = {"inner": positional, "max_iter": keyword_only, "mode": keyword_only, "seed": keyword_only}
    assert list(kinds.items()) == list(own_first.items())
    assert Outer.__init__.__qualname__ == "Outer.__init__"


def test_a_setting_without_a_type_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Untyped\.depth is declared without a type; write depth: type = "):

        class Untyped(Root):
            depth = setting(3, integer(1), "How deep.")


def test_a_fitted_attribute_is_no_setting_and_not_there_before_the_fit() -> None:
    assert not hasattr(Outer, "mean_")
    assert not hasattr(Outer(), "mean_")
    assert (Outer._arrays, Derived._arrays) == (("mean_",), ("mean_", "_spread"))
    model = Outer(mode="slow")
    with pytest.raises(NotFittedError, match="this Outer is not fitted yet; call fit first"):
        model._check_fitted()
    with params.fitted_copy(model) as fitted:
        fitted.mean_ = 1.0
        assert not model.__sklearn_is_fitted__()
    model._check_fitted()
    assert vars(model) == {"inner": None, "mode": "slow", "seed": 0, "mean_": 1.0}


def test_the_documentation_is_numpydocs() -> None:
    assert Derived.__doc__ == inspect.cleandoc(
        """One setting more, another default, another array.

        Parameters
        ----------
        inner : anything, default None
            What is inside.
        max_iter : an int >= 1, default 10
            Maximum number of iterations.
        mode : one of 'slow', 'slower', default 'slow'
            How slow.
        seed : an int >= 0, default 0
            Seed of the random numbers. The same seed gives the same result, to the last bit.

        Attributes
        ----------
        mean_
            mean of what was seen
        notes_
            what happened
        """
    )
    assert (Outer.__doc__ or "").startswith("Another one inside.\n\nIt has two paragraphs.\n\nParameters\n")
    assert Plain.__doc__ == "No settings at all."
    assert Inner.__doc__ is None


def test_other_libraries_names_are_known_and_a_near_one_is_named() -> None:
    assert Derived(n_iter=5, random_state=7).get_params()["max_iter"] == 5  # type: ignore[call-arg]
    with pytest.raises(UnknownSettingError, match=r"\ADerived was given 'seed' twice: 'random_state' is a"):
        Derived(seed=1, random_state=2)  # type: ignore[call-arg]
    with pytest.raises(UnknownSettingError, match=r"\ADerived was given 'inner' twice\Z"):
        Derived(1, inner=2)  # type: ignore[call-arg]
    with pytest.raises(
        UnknownSettingError, match=r"\AOuter has no setting 'sead'; did you mean 'seed'\? it has"
    ):
        Outer(sead=1)  # type: ignore[call-arg]
    with pytest.raises(
        UnknownSettingError, match=r"\AOuter takes at most 1 settings without a name, got 2; it"
    ):
        Outer(1, "slow")  # type: ignore[misc]
    with pytest.raises(UnknownSettingError, match=r"\AOuter has no setting 'n_iter'"):
        Outer(n_iter=5)  # type: ignore[call-arg]
    assert issubclass(UnknownSettingError, TypeError)
