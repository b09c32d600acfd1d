"""Gold labels on the page: how right the labels, the model and each annotator are, by class and in all."""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.annotators.sentences import gold_sentence
from dissensus.evaluate.gold import cross_fitted, judged_items, right_rows, wilson
from dissensus.labels.annotations import Annotations
from dissensus.models.base import Model
from dissensus.numerics import Array


def gold_decides(model: Model, annotations: Annotations) -> bool:
    """Whether gold has trained the model: then every gold item has its class for sure."""
    items = judged_items(annotations)
    if annotations.gold is None or not len(items):
        return False
    sure = model.label_distributions_[items, annotations.gold[items]] == 1.0
    return model.finds_truth and bool(sure.all())


def gold_content(model: Model, annotations: Annotations, seed: int = 0) -> dict[str, Any] | None:
    """How often the most frequent label and the model's are right, by class; None without gold.

    A model that gold has trained gives every gold item its class for sure. Then each item is judged by a fit
    that saw the gold of others alone; where it was sure without gold, that changes nothing.
    """
    items = judged_items(annotations)
    if not len(items) or annotations.gold is None:
        return None
    gold, P = annotations.gold[items], annotations.n_classes
    chances = model.label_distributions_
    crossed = gold_decides(model, annotations)
    if crossed:
        chances = cross_fitted(model, annotations, seed=seed)
    tables = {"raw": annotations.counts.astype(np.float64), "model": chances}
    right = {name: right_rows(annotations, table, items) for name, table in tables.items()}
    found = {name: list(wilson(rows.sum(), len(rows))) for name, rows in right.items()}
    confusion = np.bincount(gold * P + chances[items].argmax(axis=1), minlength=P * P)
    low, high = found["raw"][1:]
    return {
        "n": len(items),
        "crossed": crossed,
        **found,
        "words": gold_sentence(right["raw"], "The most frequent label", (low, high)),
        "classes": np.bincount(gold, minlength=P),
        "class_right": {name: _by_class(rows, gold, P) for name, rows in right.items()},
        "confusion": confusion.reshape(P, P),
    }


def _by_class(right: Array, gold: Any, P: int) -> Array:
    """(classes,): share right of the items of each gold class; NaN where there is none."""
    n = np.bincount(gold, minlength=P)
    found: Array = np.divide(np.bincount(gold, right, minlength=P), n, out=np.full(P, np.nan), where=n > 0)
    return found


def annotator_gold(annotations: Annotations) -> tuple[Any, Any] | None:
    """(annotators,) each: labels on items with gold, and how many of them are right; None without gold."""
    if annotations.gold is None:
        return None
    gold, N = annotations.gold[annotations.item], annotations.n_annotators
    asked = gold >= 0
    right = asked & (annotations.label == gold)
    return np.bincount(annotations.annotator[asked], minlength=N), np.bincount(
        annotations.annotator[right], minlength=N
    )
