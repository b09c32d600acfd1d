"""Adapters that fit any supported learner to one label distribution per item.

Three kinds of learner are distinguished by their methods:

* learners with ``fit(X, distributions, dev)`` and ``label_distributions`` take the distributions directly;
* :class:`~dissensus.LDLNM`, which also learns from the labels of each annotator, takes them as targets y_I;
* a scikit-learn classifier whose ``fit`` takes ``sample_weight`` gets one row for each item and class of
  positive probability, weighted by that probability: its log-loss is the cross-entropy with the distribution.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import threads
from dissensus.errors import DataError, bad_parameter
from dissensus.labels import as_annotations, is_source
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import as_features, holds_texts, rows_by_item, texts_of_column
from dissensus.labels.vocabulary import encode
from dissensus.numerics import Array
from dissensus.text.learners.base import Dev

LEARNER_RULE = (
    "a learner on distributions (SoftmaxRegression, FineTunedEncoder), LDLNM, or a scikit-learn "
    "classifier with predict_proba whose fit takes sample_weight"
)
DISTRIBUTIONS, LABELS = "distributions", "labels"  # kinds of learner


def learner_kind(learner: Any) -> str:
    """Return DISTRIBUTIONS, LABELS or, for a classifier, the argument of ``fit`` for sample weights.

    Raise an error if the learner is not supported.
    """
    if isinstance(learner, type) or not hasattr(learner, "fit"):
        raise bad_parameter("GuidedClassifier", "learner", LEARNER_RULE, learner)
    if hasattr(learner, "label_distributions"):
        takes_labels = "item_distributions" in inspect.signature(learner.fit).parameters
        return LABELS if takes_labels else DISTRIBUTIONS
    from sklearn.utils.validation import has_fit_parameter

    if hasattr(learner, "predict_proba"):
        if has_fit_parameter(learner, "sample_weight"):
            return "sample_weight"
        # a Pipeline passes the weights to its last step
        for name, last in getattr(learner, "steps", [])[-1:]:
            if has_fit_parameter(last, "sample_weight"):
                return f"{name}__sample_weight"
    raise bad_parameter("GuidedClassifier", "learner", LEARNER_RULE, learner)


def fit_learner(learner: Any, X: Any, y: Annotations, targets: Array, dev: Dev | None) -> None:
    """Fit a learner to the targets, one row for each item of y; a classifier ignores dev."""
    kind = learner_kind(learner)
    if kind == DISTRIBUTIONS:
        learner.fit(texts_of_column(X), targets, dev=dev)
    elif kind == LABELS:
        learner.fit(y, as_features(X, learner.embedding), dev=dev, item_distributions=targets)
    else:
        # one row for each item and class of positive probability
        item, label = np.nonzero(targets)
        with threads() as _:
            learner.fit(take(_classifier_inputs(learner, X), item), label, **{kind: targets[item, label]})


def predict_with(learner: Any, X: Any, n_classes: int) -> Array:
    """Return predictions (items, classes) of a fitted learner; 0 for classes absent from training."""
    kind = learner_kind(learner)
    if kind in (DISTRIBUTIONS, LABELS):
        return np.asarray(learner.label_distributions(texts_of_column(X) if kind == DISTRIBUTIONS else X))
    probabilities = np.zeros((n_rows(X), n_classes))
    probabilities[:, learner.classes_] = learner.predict_proba(_classifier_inputs(learner, X))
    return probabilities


def _classifier_inputs(learner: Any, X: Any) -> Any:
    """Embed texts for a scikit-learn classifier, unless it is a Pipeline."""
    steps = getattr(learner, "steps", None)
    if steps:  # a Pipeline that starts with a text vectoriser gets texts, others get X unchanged
        return texts_of_column(X) if hasattr(steps[0][1], "build_analyzer") else X
    return as_features(X) if holds_texts(X) else X


# ---- rows of X --------------------------------------------------------------------------------------------


def n_rows(X: Any, name: str = "X") -> int:
    """Count the rows of an array, a frame, a sparse matrix or a sequence of texts."""
    if isinstance(X, str) or not (getattr(X, "shape", ()) or isinstance(X, Sequence)):
        kind = type(X).__name__
        raise DataError(f"{name} must have one row of features, or one text, per item; got {kind}")
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def take(X: Any, rows: NDArray[Any]) -> Any:
    """Return the given rows of X."""
    if hasattr(X, "iloc"):
        return X.iloc[rows]
    return X[rows] if hasattr(X, "shape") else [X[row] for row in rows]


def match_rows(X: Any, y: Any, X_name: str = "X", y_name: str = "y") -> tuple[Any, Annotations]:
    """Return X with its rows in the order of y's items, and y as Annotations.

    The index of X must name the items if y is a frame or a file, since only Annotations have an order of
    items that a caller can know. One label per row of X needs no ids.
    """
    has_ids = is_source(y)
    if has_ids:
        labels = as_annotations(y)
    else:
        values = np.asarray(y)
        if values.ndim != 1 or not len(values):
            remedy = "pass Annotations, a file or a frame of labels by annotators, or one label per item"
            raise DataError(f"{y_name} is a {type(y).__name__} of shape {values.shape}; {remedy}")
        codes, classes = encode(values, "label")
        # one label per item, by unknown annotators
        labels = Annotations.from_counts(np.eye(len(classes), dtype=np.int64)[codes], classes=classes)
    rows = n_rows(X, X_name)
    if rows != len(labels):
        sizes = f"{X_name} has {rows} rows and {y_name} {len(labels)} items"
        raise DataError(f"{sizes}; pass one row per item, in the order of {y_name}.items")
    in_order = rows_by_item(X, labels.item_vocabulary, X_name) if has_ids else X
    if in_order is None and not isinstance(y, Annotations):
        problem = f"{X_name} does not say which row is which item of {y_name}"
        remedy = f"or read {y_name} with read_annotations and pass the rows in the order of its items"
        raise DataError(f"{problem}; index it by item id (a pandas Series or DataFrame), {remedy}")
    return (X if in_order is None else in_order), labels
