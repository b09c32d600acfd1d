"""Any learner behind one signature: it is fitted to one label distribution an item.

Three kinds of learner are told apart by what they offer, and each is given the distributions in its own way:

* those with ``fit(X, distributions, dev)`` and ``label_distributions`` take them as they are;
* :class:`~dissensus.LDLNM`, which also learns from who gave which label, takes them as its targets y_I;
* a scikit-learn classifier whose ``fit`` takes ``sample_weight`` sees an item once for every class of
  positive probability, that row weighing as much as the probability: a log-loss is then the cross-entropy
  with the distribution.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import threads
from dissensus.errors import DataError, bad_parameter
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import as_features, is_text, texts_of_column
from dissensus.numerics import Array
from dissensus.text.learners.base import Dev

LEARNERS = (
    "a learner on distributions (SoftmaxRegression, TextCNN, FineTunedEncoder), LDLNM, or a scikit-learn "
    "classifier with predict_proba whose fit takes sample_weight"
)


class Adapter(Protocol):
    """A learner behind one signature."""

    def fit(self, X: Any, y: Annotations, targets: Array, dev: Dev | None) -> None:
        """Fit it to the targets, one row per item of y."""

    def label_distributions(self, X: Any, n_classes: int) -> Array:
        """(items, classes): what it predicts."""


def adapter(learner: Any) -> Adapter:
    """The learner behind one signature, or an error that says what a learner is."""
    if isinstance(learner, type) or not hasattr(learner, "fit"):
        raise bad_parameter("GuidedClassifier", "learner", LEARNERS, learner)
    if hasattr(learner, "label_distributions"):
        takes_labels = "item_distributions" in inspect.signature(learner.fit).parameters
        return LabelAdapter(learner) if takes_labels else DistributionAdapter(learner)
    weights = _weight_argument(learner)
    if weights is None or not hasattr(learner, "predict_proba"):
        raise bad_parameter("GuidedClassifier", "learner", LEARNERS, learner)
    return WeightedAdapter(learner, weights)


@dataclass
class DistributionAdapter:
    """A learner that takes distributions."""

    learner: Any

    def fit(self, X: Any, y: Annotations, targets: Array, dev: Dev | None) -> None:
        """Fit it to the targets."""
        del y
        self.learner.fit(texts_of_column(X), targets, dev=dev)

    def label_distributions(self, X: Any, n_classes: int) -> Array:
        """(items, classes): what it predicts."""
        del n_classes
        return np.asarray(self.learner.label_distributions(texts_of_column(X)))


@dataclass
class LabelAdapter:
    """A model of labels and features, whose items' distributions can be replaced."""

    learner: Any

    def fit(self, X: Any, y: Annotations, targets: Array, dev: Dev | None) -> None:
        """Fit it to the labels, with the targets as the items' distributions."""
        features = as_features(X, self.learner.embedding)
        self.learner.fit(y, features, dev=dev, item_distributions=targets)

    def label_distributions(self, X: Any, n_classes: int) -> Array:
        """(items, classes): what it predicts."""
        del n_classes
        return np.asarray(self.learner.label_distributions(X))


@dataclass
class WeightedAdapter:
    """A scikit-learn classifier, which takes rows with weights; texts are embedded, except for a Pipeline."""

    learner: Any
    weights: str  # the name under which its fit takes sample weights

    def fit(self, X: Any, y: Annotations, targets: Array, dev: Dev | None) -> None:
        """Fit it to the targets as weighted rows; it chooses nothing, so dev is not needed."""
        del y, dev
        item, label, weight = weighted_rows(targets)
        with threads() as _:
            self.learner.fit(take(self._inputs(X), item), label, **{self.weights: weight})

    def label_distributions(self, X: Any, n_classes: int) -> Array:
        """(items, classes): what it predicts; a class without any weight in training gets 0."""
        chances = np.zeros((n_rows(X), n_classes))
        chances[:, self.learner.classes_] = self.learner.predict_proba(self._inputs(X))
        return chances

    def _inputs(self, X: Any) -> Any:
        steps = getattr(self.learner, "steps", None)
        if steps:  # one that begins by cutting texts into words reads texts, others choose their columns
            return texts_of_column(X) if hasattr(steps[0][1], "build_analyzer") else X
        return as_features(X) if not hasattr(X, "tocsr") and is_text(X) else X


def weighted_rows(targets: Array) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
    """Item, class and weight of a row for each class of positive probability, item by item."""
    item, label = np.nonzero(targets)
    return item, label, targets[item, label]


def _weight_argument(learner: Any) -> str | None:
    """The argument of ``fit`` for sample weights; a Pipeline hands them to its last step."""
    from sklearn.utils.validation import has_fit_parameter

    if has_fit_parameter(learner, "sample_weight"):
        return "sample_weight"
    for name, last in getattr(learner, "steps", [])[-1:]:
        if has_fit_parameter(last, "sample_weight"):
            return f"{name}__sample_weight"
    return None


# ---- rows of X --------------------------------------------------------------------------------------------


def n_rows(X: Any, where: str = "X") -> int:
    """Rows of an array, a frame, a sparse matrix or a sequence of texts."""
    if isinstance(X, str) or not (getattr(X, "shape", ()) or isinstance(X, Sequence)):
        raise DataError(f"{where}: one row per item is needed, features or texts; got {type(X).__name__}")
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def take(X: Any, rows: NDArray[Any]) -> Any:
    """Some rows of X, in the order given."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[rows] if hasattr(X, "shape") else [X[row] for row in rows]
