"""What every learner is: fitted on distributions, it gives a distribution to items it has not seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Self, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from dissensus import params
from dissensus.errors import DataError, ModelFileError
from dissensus.metrics import check_distributions, kl
from dissensus.numerics import Array
from dissensus.params import Setting, declare, fitted
from dissensus.tables import arrays
from dissensus.tables.arrays import Arrays, Header

Dev = tuple[Any, Any]  # X and distributions of the part that choices are made on

DEV_SHARE = 0.1  # of the items, where a learner needs a dev part and got none


@dataclass_transform(eq_default=False, field_specifiers=(fitted,))
class Learner:
    """Base of every learner.

    A learner file declares its settings and the arrays it saves, and gives ``_inputs``, ``_fit`` and
    ``_predict``.
    """

    _settings: ClassVar[Mapping[str, Setting]] = {}
    _arrays: ClassVar[tuple[str, ...]] = ()
    _fitted_by = "n_classes_"

    n_classes_: int

    def __init_subclass__(cls) -> None:
        declare(cls)

    get_params = params.get_params
    set_params = params.set_params
    check_params = params.check_params
    __repr__ = params.representation
    __sklearn_tags__ = params.sklearn_tags
    __sklearn_is_fitted__ = params.is_fitted
    _check_fitted = params.check_fitted
    save = arrays.save

    def fit(self, X: Any, distributions: Any, dev: Dev | None = None) -> Self:
        """Learn from one label distribution for each item; ``dev`` is a pair (X, distributions) to choose on.

        Parameters
        ----------
        X
            Features or texts, one row for each item.
        distributions
            (items, classes): the distributions to learn.
        dev
            A pair (X, distributions) of other items to choose on; None takes none, or a part of these.
        """
        self.check_params()
        targets = check_distributions(distributions, "distributions")
        inputs = self._inputs(X)
        check_rows(inputs, targets, "X", "distributions")
        held = None if dev is None else checked_dev(dev, targets.shape[1], self._inputs)
        with params.fitted_copy(self) as fitted:
            fitted.n_classes_ = targets.shape[1]
            fitted._fit(inputs, targets, held)
        return self

    def label_distributions(self, X: Any) -> Array:
        """(items, classes): the distribution predicted for each row of X.

        Parameters
        ----------
        X
            Features or texts, one row for each item.
        """
        self._check_fitted()
        return self._predict(self._inputs(X))

    def score(self, X: Any, distributions: Any) -> float:
        """−KL(distributions ‖ predictions): higher is better, as scikit-learn expects of a score.

        Parameters
        ----------
        X
            Features or texts, one row for each item.
        distributions
            (items, classes): the distributions to compare with.
        """
        return -kl(distributions, self.label_distributions(X))

    # ---- what a learner file fills in ---------------------------------------------------------------

    _inputs: Callable[..., Any]  # X ↦ X in the form this learner works on, checked
    _fit: Callable[..., None]  # X, targets, dev
    _predict: Callable[..., Array]  # X ↦ (items, classes)

    def _state(self) -> tuple[Header, Arrays]:
        """What a file keeps: whatever is JSON, and arrays."""
        return {"n_classes": self.n_classes_}, {name: getattr(self, name) for name in self._arrays}

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        for name in self._arrays:
            setattr(self, name, arrays[name])
        self.n_classes_ = int(facts["n_classes"])


def as_texts(X: Any) -> list[str]:
    """X as a list of strings."""
    if isinstance(X, str):
        raise DataError(f"X is one text, {X!r}; put it in a list")
    if not (texts := list(X)):
        raise DataError("there is no text; give at least one")
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(f"row {place} of X is {text!r}, not a text; give one string an item")
    return texts


def checked_dev(dev: Any, n_classes: int, inputs: Callable[[Any], Any]) -> Dev:
    """A dev part as (X, distributions), X in the form that ``inputs`` gives it."""
    if not isinstance(dev, tuple | list) or len(dev) != 2:
        size = f" of {len(dev)}" if isinstance(dev, tuple | list) else ""
        raise DataError(f"dev: a pair (X, distributions) is needed, got a {type(dev).__name__}{size}")
    targets = check_distributions(dev[1], "dev distributions")
    if targets.shape[1] != n_classes:
        raise DataError(
            f"dev has {targets.shape[1]} classes and the training part {n_classes}; give a column to each"
        )
    X = inputs(dev[0])
    check_rows(X, targets, "dev X", "dev distributions")
    return X, targets


def own_dev(X: list[Any], targets: Array, seed: int) -> tuple[Dev, Dev]:
    """The items a learner trains on, and a seeded tenth of them held out to choose the epoch on."""
    if len(X) < 2:
        raise DataError("one item leaves none to choose the epoch on; give more items, or dev")
    kept, held = hold_out(len(X), seed)
    return ([X[i] for i in kept], targets[kept]), ([X[i] for i in held], targets[held])


def hold_out(n: int, seed: int, share: float = DEV_SHARE) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """A seeded split of n rows into (kept, held out); at least one of each if n > 1."""
    order = np.random.default_rng(seed).permutation(n)
    n_held = min(max(1, round(share * n)), n - 1)
    return np.sort(order[n_held:]), np.sort(order[:n_held])


def batches(lengths: list[int], size: int, rng: np.random.Generator) -> Iterator[NDArray[np.int64]]:
    """All rows once, ``size`` at a time in random order, rows of like length together.

    Sorting by length inside random groups of eight batches halves the padding of short texts, and leaves
    enough chance in what meets what.
    """
    order, of = rng.permutation(len(lengths)), np.asarray(lengths)
    groups = (order[start : start + 8 * size] for start in range(0, len(order), 8 * size))
    rows = np.concatenate([group[np.argsort(of[group], kind="stable")] for group in groups])
    return (rows[start : start + size] for start in rng.permutation(np.arange(0, len(rows), size)))


def check_head(coef: Array, intercept: Array, n_classes: int) -> None:
    """What a file says of a linear head must fit together."""
    if coef.ndim != 2 or coef.shape[1:] != (n_classes,) or intercept.shape != (n_classes,):
        raise ModelFileError(
            f"coef_ of shape {coef.shape} and intercept_ of {intercept.shape} for {n_classes} classes"
        )


def check_rows(X: Any, targets: Array, first: str, second: str) -> None:
    """One row of X for each distribution."""
    if len(X) != len(targets):
        raise DataError(f"{first} has {len(X)} rows and {second} {len(targets)}; give one of each an item")
