"""How well a fitted model predicts labels: chances of pairs, and scores of labels that it has not seen.

The functions whose first argument is ``self`` are methods of :class:`~dissensus.models.base.Model`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dissensus.engine import threads
from dissensus.errors import DataError, setting, warn
from dissensus.labels.annotations import Annotations
from dissensus.labels.sources import as_annotations, is_source
from dissensus.labels.vocabulary import Codes, Vocabulary, one_slip_away, quoted, to_arrow
from dissensus.numerics import Array, batches

if TYPE_CHECKING:
    from dissensus.models.base import Model

ROWS_AT_A_TIME = 1 << 16


def predict_proba(self: Model, items: Any, annotators: Any = None) -> Array:
    """P(label | item, annotator), one row for each pair; without annotators, P(label | item).

    Ids are the user's own. Items and annotators never seen get the population's expectation, and a warning
    names such items.

    Parameters
    ----------
    items
        Item ids; or labels (:class:`~dissensus.Annotations`, a data frame or a path), of whose items each
        gets a row, in the order of ``Annotations.items``.
    annotators
        Annotator ids, one for each item id; None gives P(label | item).
    """
    self._check_fitted()
    if is_source(items) and (not isinstance(items, str) or Path(items).exists()):
        items = as_annotations(items).item_vocabulary
    item = _codes_of(items, self.item_vocabulary_)
    annotator = None if annotators is None else _codes_of(annotators, self.annotator_vocabulary_)
    for what, ids, codes in (("item", items, item), ("annotator", annotators, annotator)):
        unseen = np.flatnonzero(codes < 0) if codes is not None else ()
        if len(unseen):
            names = to_arrow(ids, what).take(unseen).unique().to_pylist()
            more = f" and {len(names) - 3:,} more" if len(names) > 3 else ""
            warn(
                f"the model knows no {what} {', '.join(map(quoted, names[:3]))}{more} and answers as of one "
                f"never seen; look for typing errors, or give labels of new {what}s to apply"
            )
    if annotator is not None and len(item) != len(annotator):
        raise DataError(f"{len(item)} items and {len(annotator)} annotators do not pair up")
    chances = np.empty((len(item), len(self.classes_)))

    def fill(rows: slice) -> None:
        if annotator is None:
            chances[rows] = self._item_distributions(item[rows])
        else:
            chances[rows] = self._pair_distributions(item[rows], annotator[rows])

    with threads(getattr(self, "n_jobs", 1)) as engine:
        engine.map(fill, list(batches(len(item), ROWS_AT_A_TIME)))
    return chances


def score(self: Model, hidden: Any) -> float:
    """Mean log P(label | item, annotator) over the labels of ``hidden``.

    Parameters
    ----------
    hidden
        Labels that were not learned from.
    """
    return float(self.log_chances(hidden).mean())


def score_items(self: Model, hidden: Any) -> float:
    """Mean log P(label | item) over the labels of ``hidden``.

    Parameters
    ----------
    hidden
        Labels that were not learned from.
    """
    return float(self.log_chances(hidden, annotators=False).mean())


def log_chances(self: Model, hidden: Any, annotators: bool = True) -> Array:
    """log P(label | item, annotator) of every label of ``hidden``, or log P(label | item).

    Parameters
    ----------
    hidden
        Labels that were not learned from.
    annotators
        Whether the annotator is known; otherwise P(label | item).
    """
    known, item, annotator = codes_of_hidden(self, hidden)
    known = in_classes(known, self.class_vocabulary_)
    logs = np.empty(known.n_labels)
    for rows in batches(known.n_labels, ROWS_AT_A_TIME):
        label = known.label[rows].astype(np.intp)
        if annotators:
            chances = self._label_chances(item[rows], annotator[rows], label)
        else:
            chances = self._answer_distributions(item[rows])[np.arange(len(label)), label]
        with np.errstate(divide="ignore"):
            logs[rows] = np.log(chances)
    return logs


def codes_of_hidden(model: Model, hidden: Any) -> tuple[Annotations, Codes, Codes]:
    """Labels to be scored, with this model's codes of their items and annotators (−1: never seen)."""
    model._check_fitted()
    known = as_annotations(hidden)
    if not known.n_labels:
        raise DataError("there is no label to score; give at least one")
    item = _translate(known.item, known.item_vocabulary, model.item_vocabulary_)
    annotator = _translate(known.annotator, known.annotator_vocabulary, model.annotator_vocabulary_)
    return known, item, annotator


def fresh_rows(new: Annotations, item: Codes, annotator: Codes) -> Annotations:
    """The labels with an item or an annotator (codes of the fit, by those of ``new``) that is new (−1)."""
    fresh = np.empty(new.n_labels, dtype=bool)
    for rows in batches(new.n_labels, ROWS_AT_A_TIME):
        fresh[rows] = (item[new.item[rows]] < 0) | (annotator[new.annotator[rows]] < 0)
    return new if fresh.all() else new.take_rows(fresh)


def in_classes(known: Annotations, own: Vocabulary) -> Annotations:
    """The annotations with label codes of the classes that something was fitted on."""
    if known.class_vocabulary == own:
        return known
    codes = own.codes(known.class_vocabulary)
    used = np.unique(known.label)
    if (codes[used] < 0).any():
        row = int(np.flatnonzero(codes[known.label] < 0)[0])
        stranger = known.classes[known.label[row]]
        meant = one_slip_away(stranger, own)
        hint = "" if meant is None else f"did you mean {quoted(meant)}? If so, correct it; otherwise "
        by = "" if known.anonymous else f" by annotator {quoted(known.annotators[known.annotator[row]])}"
        raise DataError(
            f"item {quoted(known.items[known.item[row]])}{by}: class {quoted(stranger)} was not there when "
            f"the model was fitted; {hint}fit all labels anew with it declared in {setting('classes')}, or "
            "drop its labels"
        )
    return replace(known, label=codes[known.label], class_vocabulary=own, gold=None)


def _codes_of(ids: Any, vocabulary: Vocabulary) -> Codes:
    """The codes of a list of ids; a bare id is refused, since a string would pass for a list of letters."""
    if isinstance(ids, str | bytes) or not hasattr(ids, "__len__"):
        raise DataError(f"{vocabulary.what}s: a list of ids is needed, got {ids!r}; write [{ids!r}]")
    return vocabulary.codes(ids)


def _translate(codes: Codes, source: Vocabulary, target: Vocabulary) -> Codes:
    """Codes of one vocabulary as codes of another; −1 where the id is unknown there."""
    return codes if source is target or source == target else target.codes(source)[codes]
