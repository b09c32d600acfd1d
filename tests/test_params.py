"""Settings: rules, the one error form, and scikit-learn's manners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from dissensus.errors import ParameterError
from dissensus.params import ANY, NONE, SEED, Params, Rule, choice, integer, real


class Inner(Params):
    _rules = {"depth": integer(1), "rate": real(0.0, 1.0) | NONE}

    def __init__(self, depth: int = 3, rate: float | None = None) -> None:
        self.depth = depth
        self.rate = rate


class Outer(Params):
    _rules = {"inner": ANY, "mode": choice("fast", "slow"), "seed": SEED}

    def __init__(self, inner: Any = None, *, mode: str = "fast", seed: int = 0) -> None:
        self.inner = inner
        self.mode = mode
        self.seed = seed


class Plain(Params):
    """No settings at all."""


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (integer(1), [1, 7, np.int64(3), np.uint8(1)], [0, -1, 1.0, True, "1", None, float("nan")]),
        (SEED, [0, 2**40], [-1, None, False]),
        (
            real(0.0),
            [0, 0.0, 3, np.float32(0.5), 1e300],
            [-1e-300, True, "0", None, float("inf"), float("nan")],
        ),
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


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (integer(2), "an int >= 2"),
        (real(0.0), "a float >= 0"),
        (real(1.0, open_low=True), "a float > 1"),
        (real(0.0, 1.0), "a float >= 0 and <= 1"),
        (choice("soft", "hard"), "one of 'soft', 'hard'"),
        (real(0.0) | NONE, "a float >= 0 or None"),
    ],
)
def test_rules_say_themselves_in_words(rule: Rule, words: str) -> None:
    assert rule.words == words


def test_a_bad_setting_names_itself_its_owner_its_rule_and_what_came() -> None:
    with pytest.raises(ParameterError) as caught:
        Inner(depth=0).check_params()
    assert str(caught.value) == "The 'depth' parameter of Inner must be an int >= 1. Got 0 instead."
    assert isinstance(caught.value, ValueError)


def test_nothing_is_checked_before_work_begins() -> None:
    built = Inner(depth=-5)
    built.set_params(rate=7)
    with pytest.raises(ParameterError, match="'depth'"):
        built.check_params()
    built.set_params(depth=1)
    with pytest.raises(
        ParameterError, match=r"'rate' parameter of Inner must be a float >= 0 and <= 1 or None"
    ):
        built.check_params()


def test_settings_by_name_and_those_of_nested_estimators() -> None:
    outer = Outer(Inner(depth=4), mode="slow")
    assert outer.get_params(deep=False) == {"inner": outer.inner, "mode": "slow", "seed": 0}
    assert outer.get_params() == outer.get_params(deep=False) | {"inner__depth": 4, "inner__rate": None}
    assert outer.set_params(inner__depth=9, seed=2) is outer
    assert (outer.inner.depth, outer.seed) == (9, 2)


def test_a_class_is_a_value_not_a_nested_estimator() -> None:
    assert Outer(Inner).get_params() == {"inner": Inner, "mode": "fast", "seed": 0}


@pytest.mark.parametrize("name", ["nonsense", "nonsense__depth", "mode__depth"])
def test_a_name_that_is_no_setting_is_answered_with_those_that_are(name: str) -> None:
    with pytest.raises(ParameterError, match=rf"\AOuter has no setting '{name}'; it has inner, mode, seed\Z"):
        Outer(Inner()).set_params(**{name: 1})


def test_a_class_without_init_has_no_settings() -> None:
    assert Plain().get_params() == {}
    assert repr(Plain()) == "Plain()"
    assert isinstance(clone(Plain()), Plain)
    Plain().check_params()
    with pytest.raises(ParameterError, match=r"\APlain has no setting 'depth'; it has none\Z"):
        Plain().set_params(depth=1)


def test_clone_copies_settings_deeply() -> None:
    outer = Outer(Inner(depth=4), seed=3)
    copied = clone(outer)
    assert copied.inner is not outer.inner
    assert copied.inner.depth == 4
    assert copied.seed == 3


def test_the_repr_shows_what_differs_from_the_defaults() -> None:
    assert repr(Outer()) == "Outer()"
    assert repr(Outer(Inner(2), mode="slow")) == "Outer(inner=Inner(depth=2), mode='slow')"
    assert repr(Outer(seed=True)) == "Outer(seed=True)"
    assert repr(Inner(rate=np.float64(0.5))) == "Inner(rate=np.float64(0.5))"
