"""Accuracy on items with gold labels that also train the model.

Items used in training are no test. Items with gold are therefore split into folds, and each fold is predicted
by a fit that saw only the gold of the other folds (cross-fitted accuracy). The accuracy of a fit without gold
is reported for comparison.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError, setting
from dissensus.evaluate.bootstrap import Interval
from dissensus.evaluate.group_agreement import Z
from dissensus.labels import as_annotations
from dissensus.labels.annotations import Annotations
from dissensus.metrics import accuracy_rows
from dissensus.models.confusion import gold_prior, with_gold
from dissensus.numerics import Array
from dissensus.params import with_settings

N_GOLD_FOLDS = 5


@dataclass(frozen=True)
class GoldAccuracy:
    """Share of the items with labels and gold whose predicted class is right; ties count in part."""

    n_items: int
    plain: Interval  # of a fit without gold
    cross_fitted: Interval  # each item predicted by a fit that saw only the gold of other items

    def to_dict(self) -> dict[str, Any]:
        """Return the accuracies as plain values."""
        shares = {"plain": self.plain._asdict(), "cross_fitted": self.cross_fitted._asdict()}
        return {"n_items": self.n_items, **shares}


def judged_items(annotations: Annotations) -> NDArray[np.intp]:
    """Return the items that have labels and a gold class."""
    if annotations.gold is None:
        return np.zeros(0, np.intp)
    return np.flatnonzero((annotations.gold >= 0) & (np.diff(annotations.item_pointers) > 0))


def right_rows(annotations: Annotations, probabilities: Array, items: NDArray[np.intp]) -> Array:
    """Return 1 for items whose most probable class is the gold class, a fraction for ties, 0 otherwise."""
    return accuracy_rows(np.asarray(annotations.gold)[items], probabilities[items])


def wilson(right: float, n: float) -> Interval:
    """Return a share and its 95 % interval (Wilson 1927), which has positive width even if all are right."""
    if n <= 0:
        return Interval(math.nan, math.nan, math.nan)
    p, width = right / n, Z * Z / n
    # (p + z²/2n ± z √(p(1 − p)/n + z²/4n²)) / (1 + z²/n)
    middle, half = p + width / 2, Z * math.sqrt(p * (1 - p) / n + width / n / 4)
    return Interval(p, max((middle - half) / (1 + width), 0.0), min((middle + half) / (1 + width), 1.0))


def gold_accuracy(
    labels: Any, model: Any, *, gold: Any = None, folds: int = N_GOLD_FOLDS, seed: int = 0
) -> GoldAccuracy:
    """Return the plain and the cross-fitted accuracy of a model on gold labels.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    model
        A model of one true class; only its settings are used.
    gold
        Gold labels, if they are not attached to the labels: a mapping or a pandas Series from item to class,
        or a frame or path with one row for each item.
    folds
        Number of folds of the gold labels.
    seed
        Seed of the random numbers; the same seed gives identical results.
    """
    annotations = as_annotations(labels)
    if gold is not None:
        annotations = with_gold(annotations, gold)
    items = judged_items(annotations)
    if not len(items):
        raise DataError(f"no item has labels and a gold class; pass {setting('gold')}")
    plain = with_settings(model, {}).fit(annotations).label_distributions_
    crossed = cross_fitted(model, annotations, folds=folds, seed=seed)
    n_right = (float(right_rows(annotations, table, items).sum()) for table in (plain, crossed))
    return GoldAccuracy(len(items), *(wilson(right, len(items)) for right in n_right))


def cross_fitted(model: Any, annotations: Annotations, *, folds: int = N_GOLD_FOLDS, seed: int = 0) -> Array:
    """Return P(true class), (items, classes), each item with gold predicted by a fit without its gold."""
    items = judged_items(annotations)
    fold = np.random.default_rng(seed).permutation(len(items)) % folds
    full_prior = gold_prior(annotations)
    probabilities = np.full(full_prior.shape, 1.0 / full_prior.shape[1])
    for number in range(min(folds, len(items))):
        hidden = items[fold == number]
        prior = full_prior.copy()
        prior[hidden] = 1.0
        fitted = with_settings(model, {}).fit(annotations, prior=prior)
        probabilities[hidden] = fitted.label_distributions_[hidden]
    return probabilities
