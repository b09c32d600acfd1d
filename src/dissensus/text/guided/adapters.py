"""X and y as they come, and any learner behind one signature: one label distribution for each item.

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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import threads
from dissensus.errors import DataError, bad_parameter
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import as_features, by_item, is_text, texts_of_column
from dissensus.labels.sources import as_annotations, is_source
from dissensus.labels.vocabulary import encode
from dissensus.numerics import Array
from dissensus.text.learners.base import Dev

LEARNERS = (
    "a learner on distributions (SoftmaxRegression, FineTunedEncoder), LDLNM, or a scikit-learn "
    "classifier with predict_proba whose fit takes sample_weight"
)
DISTRIBUTIONS, LABELS = "distributions", "labels"


def learner_kind(learner: Any) -> str:
    """How a learner takes its targets, or an error that says what a learner is.

    DISTRIBUTIONS, LABELS or, of a classifier, the name under which its ``fit`` takes sample weights.
    """
    if isinstance(learner, type) or not hasattr(learner, "fit"):
        raise bad_parameter("GuidedClassifier", "learner", LEARNERS, learner)
    if hasattr(learner, "label_distributions"):
        takes_labels = "item_distributions" in inspect.signature(learner.fit).parameters
        return LABELS if takes_labels else DISTRIBUTIONS
    from sklearn.utils.validation import has_fit_parameter

    # a Pipeline hands the weights to its last step
    takers = {"sample_weight": learner} | {
        f"{name}__sample_weight": last for name, last in getattr(learner, "steps", [])[-1:]
    }
    weights = [name for name, taker in takers.items() if has_fit_parameter(taker, "sample_weight")]
    if not weights or not hasattr(learner, "predict_proba"):
        raise bad_parameter("GuidedClassifier", "learner", LEARNERS, learner)
    return weights[0]


def fit_learner(learner: Any, X: Any, y: Annotations, targets: Array, dev: Dev | None) -> None:
    """Fit a learner to the targets, one row for each item of y; a classifier chooses nothing on dev."""
    kind = learner_kind(learner)
    if kind == DISTRIBUTIONS:
        learner.fit(texts_of_column(X), targets, dev=dev)
    elif kind == LABELS:
        learner.fit(y, as_features(X, learner.embedding), dev=dev, item_distributions=targets)
    else:
        item, label, weight = weighted_rows(targets)
        with threads() as _:
            learner.fit(take(_classifier_inputs(learner, X), item), label, **{kind: weight})


def predicted(learner: Any, X: Any, n_classes: int) -> Array:
    """(items, classes): predictions of a fitted learner; 0 for a class without any weight in training."""
    kind = learner_kind(learner)
    if kind in (DISTRIBUTIONS, LABELS):
        return np.asarray(learner.label_distributions(texts_of_column(X) if kind == DISTRIBUTIONS else X))
    chances = np.zeros((n_rows(X), n_classes))
    chances[:, learner.classes_] = learner.predict_proba(_classifier_inputs(learner, X))
    return chances


def _classifier_inputs(learner: Any, X: Any) -> Any:
    """Embed texts for a scikit-learn classifier, unless it is a Pipeline."""
    steps = getattr(learner, "steps", None)
    if steps:  # one that begins by cutting texts into words reads texts, others choose their columns
        return texts_of_column(X) if hasattr(steps[0][1], "build_analyzer") else X
    return as_features(X) if not hasattr(X, "tocsr") and is_text(X) else X


def weighted_rows(targets: Array) -> tuple[NDArray[np.intp], NDArray[np.intp], Array]:
    """Item, class and weight of a row for each class of positive probability, item by item."""
    item, label = np.nonzero(targets)
    return item, label, targets[item, label]


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


def matched(X: Any, y: Any, X_name: str = "X", y_name: str = "y") -> tuple[Any, Annotations]:
    """X with one row per item of y, in their order, and y as Annotations.

    Only Annotations have an order of items that a caller can know; beside a frame or a file of labels, the
    index of X must name the items. One label per row of X needs no ids.
    """
    named = is_source(y)
    if named:
        labels = as_annotations(y)
    else:
        values = np.asarray(y)
        if values.ndim != 1 or not len(values):
            raise DataError(
                f"{y_name} is a {type(y).__name__} of shape {values.shape}; give Annotations, a file or a "
                "frame of labels by annotators, or one label per item"
            )
        codes, classes = encode(values, "label")
        # one label per item, and nobody known to have given it
        labels = Annotations.from_counts(np.eye(len(classes), dtype=np.int64)[codes], classes=classes)
    rows = n_rows(X, X_name)
    if rows != len(labels):
        raise DataError(
            f"{X_name} has {rows} rows and {y_name} {len(labels)} items; give one row per item, in the order "
            f"of {y_name}.items"
        )
    placed = by_item(X, labels.item_vocabulary, X_name) if named else X
    if placed is None and not isinstance(y, Annotations):
        raise DataError(
            f"{X_name} does not say which row is which item of {y_name}; index it by item id (a pandas "
            f"Series or DataFrame), or read {y_name} with read_annotations and give the rows in the order of "
            "its items"
        )
    return (X if placed is None else placed), labels
