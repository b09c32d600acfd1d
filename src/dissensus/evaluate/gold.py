"""How right a model is about items whose true class is known, when that knowledge also trains it.

An item that trains is no test. So the items with gold are cut into folds, and each fold is predicted by a fit
that saw the gold of the others alone: the cross-fitted accuracy. Beside it stands that of a fit without gold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError, setting
from dissensus.evaluate.bootstrap import Interval
from dissensus.labels.annotations import Annotations
from dissensus.labels.sources import as_annotations
from dissensus.metrics import accuracy_rows
from dissensus.models.base import with_gold
from dissensus.models.confusion import gold_prior
from dissensus.numerics import Array
from dissensus.params import with_settings

FOLDS = 5
Z = 1.96


@dataclass(frozen=True)
class GoldAccuracy:
    """Share of the items with labels and gold that get their gold class, ties counted in part."""

    n_items: int
    plain: Interval  # by a fit that saw no gold
    cross_fitted: Interval  # each item by a fit that saw the gold of other items

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        shares = {"plain": self.plain._asdict(), "cross_fitted": self.cross_fitted._asdict()}
        return {"n_items": self.n_items, **shares}


def judged_items(annotations: Annotations) -> NDArray[np.intp]:
    """The items that have labels and a gold class."""
    if annotations.gold is None:
        return np.zeros(0, np.intp)
    return np.flatnonzero((annotations.gold >= 0) & (np.diff(annotations.item_pointers) > 0))


def right_rows(annotations: Annotations, chances: Array, items: NDArray[np.intp]) -> Array:
    """(items,): 1 where the largest chance is at the gold class, its part of a tie, 0 elsewhere."""
    return accuracy_rows(np.asarray(annotations.gold)[items], chances[items])


def wilson(right: float, n: float) -> Interval:
    """A share and its 95 % interval (Wilson 1927), which has a width even where all are right."""
    if n <= 0:
        return Interval(math.nan, math.nan, math.nan)
    p, spread = right / n, Z * Z / n
    # (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n)
    middle, reach = p + spread / 2, Z * math.sqrt(p * (1 - p) / n + spread / n / 4)
    return Interval(p, max((middle - reach) / (1 + spread), 0.0), min((middle + reach) / (1 + spread), 1.0))


def gold_accuracy(
    labels: Any, model: Any, *, gold: Any = None, folds: int = FOLDS, seed: int = 0
) -> GoldAccuracy:
    """Plain and cross-fitted accuracy of a model with these settings (the one given is left alone).

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    model
        A model that looks for one true class; its settings are used, it is not changed.
    gold
        The right class of some items, where the labels do not carry it: a mapping or a pandas Series from
        item to class, or a frame or path with one row for each item.
    folds
        Parts of the gold labels, each of which is left out once.
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    """
    annotations = as_annotations(labels)
    if gold is not None:
        annotations = with_gold(annotations, gold)
    items = judged_items(annotations)
    if not len(items):
        raise DataError(f"no item has labels and a gold class to judge by; give {setting('gold')}")
    plain = with_settings(model, {}).fit(annotations).label_distributions_
    crossed = cross_fitted(model, annotations, folds=folds, seed=seed)
    right = (float(right_rows(annotations, table, items).sum()) for table in (plain, crossed))
    return GoldAccuracy(len(items), *(wilson(one, len(items)) for one in right))


def cross_fitted(model: Any, annotations: Annotations, *, folds: int = FOLDS, seed: int = 0) -> Array:
    """(items, classes): P(true class); an item with gold by a fit that did not see its gold."""
    items = judged_items(annotations)
    fold = np.random.default_rng(seed).permutation(len(items)) % folds
    known = gold_prior(annotations)
    chances = np.full(known.shape, 1.0 / known.shape[1])
    for number in range(min(folds, len(items))):
        hidden = items[fold == number]
        prior = known.copy()
        prior[hidden] = 1.0
        fitted = with_settings(model, {}).fit(annotations, prior=prior)
        chances[hidden] = fitted.label_distributions_[hidden]
    return chances
