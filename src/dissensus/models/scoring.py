"""Predictions of a fitted model: probabilities of labels by pair, and scores of held-out labels.

The functions whose first argument is ``self`` are methods of :class:`~dissensus.models.base.Model`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.engine import threads
from dissensus.errors import DataError, setting, warn
from dissensus.labels import as_annotations, is_source
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Codes, Vocabulary, quoted, suggest_spelling, to_arrow
from dissensus.numerics import Array, batches

if TYPE_CHECKING:
    from dissensus.models.base import Model

PAIRS_PER_BATCH = 1 << 16


def predict_proba(self: Model, items: Any, annotators: Any = None) -> Array:
    """Return P(label | item, annotator), one row per pair; without annotators, P(label | item).

    Items and annotators that were not fitted get the population's expectation, with a warning.

    Parameters
    ----------
    items
        Item ids; or labels (:class:`~dissensus.Annotations`, a data frame or a path), for one row per item in
        the order of ``Annotations.items``.
    annotators
        Annotator ids, one per item id; None for P(label | item).
    """
    self._check_fitted()
    if is_source(items) and (not isinstance(items, str) or Path(items).exists()):
        items = as_annotations(items).item_vocabulary
    item = fitted_codes(items, self.item_vocabulary_, "item")
    annotator = (
        None if annotators is None else fitted_codes(annotators, self.annotator_vocabulary_, "annotator")
    )
    if annotator is not None and len(item) != len(annotator):
        raise DataError(f"{len(item)} items and {len(annotator)} annotators do not pair up")
    probabilities = np.empty((len(item), len(self.classes_)))

    def fill(rows: slice) -> None:
        if annotator is None:
            probabilities[rows] = self._item_distributions(item[rows])
        else:
            probabilities[rows] = self._pair_distributions(item[rows], annotator[rows])

    with threads(getattr(self, "n_jobs", 1)) as engine:
        engine.map(fill, list(batches(len(item), PAIRS_PER_BATCH)))
    return probabilities


def fitted_codes(ids: Any, vocabulary: Vocabulary, role: str) -> Codes:
    """Return the codes of ids in the fit, −1 with a warning for those that it does not have."""
    if isinstance(ids, str | bytes) or not hasattr(ids, "__len__"):  # a string would be read as letters
        raise DataError(f"{vocabulary.role}s: a list of ids is needed, got {ids!r}; write [{ids!r}]")
    codes = vocabulary.codes(ids)
    unknown = np.flatnonzero(codes < 0)
    if len(unknown):
        names = to_arrow(ids, role).take(unknown).unique().to_pylist()
        more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
        warn(
            f"the model was not fitted on {role} {', '.join(map(quoted, names[:3]))}{more} and predicts "
            f"an average {role}; check the spelling, or pass the labels of new {role}s to apply"
        )
    return codes


def score(self: Model, hidden: Any) -> float:
    """Return the mean log P(label | item, annotator) of held-out labels.

    Parameters
    ----------
    hidden
        Labels that the model was not fitted on.
    """
    return float(self.log_probabilities(hidden).mean())


def score_items(self: Model, hidden: Any) -> float:
    """Return the mean log P(label | item) of held-out labels.

    Parameters
    ----------
    hidden
        Labels that the model was not fitted on.
    """
    return float(self.log_probabilities(hidden, annotators=False).mean())


def log_probabilities(self: Model, hidden: Any, annotators: bool = True) -> Array:
    """Return log P(label | item, annotator) of each held-out label, or log P(label | item).

    Parameters
    ----------
    hidden
        Labels that the model was not fitted on.
    annotators
        True for P(label | item, annotator), False for P(label | item).
    """
    labels, item, annotator = held_out_codes(self, hidden)
    labels = recode_classes(labels, self.class_vocabulary_)
    logs = np.empty(labels.n_labels)
    for rows in batches(labels.n_labels, PAIRS_PER_BATCH):
        label = labels.label[rows].astype(np.intp)
        if annotators:
            probabilities = self._label_probabilities(item[rows], annotator[rows], label)
        else:
            probabilities = self._answer_distributions(item[rows])[np.arange(len(label)), label]
        with np.errstate(divide="ignore"):
            logs[rows] = np.log(probabilities)
    return logs


def held_out_codes(model: Model, hidden: Any) -> tuple[Annotations, Codes, Codes]:
    """Return held-out labels, and the model's codes of their items and annotators (−1: not fitted)."""
    model._check_fitted()
    labels = as_annotations(hidden)
    if not labels.n_labels:
        raise DataError("there are no labels to score; give at least one")
    item = _translate(labels.item, labels.item_vocabulary, model.item_vocabulary_)
    annotator = _translate(labels.annotator, labels.annotator_vocabulary, model.annotator_vocabulary_)
    return labels, item, annotator


def unfitted_rows(new: Annotations, fitted: Model) -> tuple[Annotations, Codes, Codes]:
    """Return the labels whose item or annotator was not fitted, and the fit's codes of all in ``new``.

    Codes are −1 for items and annotators that were not fitted.
    """
    item = fitted.item_vocabulary_.codes(new.item_vocabulary)
    annotator = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
    mask = np.empty(new.n_labels, dtype=bool)
    for rows in batches(new.n_labels, PAIRS_PER_BATCH):
        mask[rows] = (item[new.item[rows]] < 0) | (annotator[new.annotator[rows]] < 0)
    return new if mask.all() else new.take_rows(mask), item, annotator


def recode_classes(labels: Annotations, vocabulary: Vocabulary) -> Annotations:
    """Return the annotations with the label codes of the classes that a model was fitted on."""
    if labels.class_vocabulary == vocabulary:
        return labels
    codes = vocabulary.codes(labels.class_vocabulary)
    if (codes[np.unique(labels.label)] < 0).any():
        row = int(np.flatnonzero(codes[labels.label] < 0)[0])
        unknown = labels.classes[labels.label[row]]
        similar = suggest_spelling(unknown, vocabulary)
        hint = "" if similar is None else f"did you mean {quoted(similar)}? If so, correct it; otherwise "
        by = "" if labels.anonymous else f" by annotator {quoted(labels.annotators[labels.annotator[row]])}"
        raise DataError(
            f"item {quoted(labels.items[labels.item[row]])}{by}: the model was not fitted on class "
            f"{quoted(unknown)}; {hint}refit all labels with it declared in {setting('classes')}, or drop "
            "its labels"
        )
    return replace(labels, label=codes[labels.label], class_vocabulary=vocabulary, gold=None)


def _translate(codes: Codes, source: Vocabulary, target: Vocabulary) -> Codes:
    """Translate codes of one vocabulary to those of another; −1 for ids that it does not have."""
    return codes if source is target or source == target else target.codes(source)[codes]
