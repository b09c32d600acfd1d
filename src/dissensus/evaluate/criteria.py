"""What a trial is judged by: how well an estimator foresees what it was not shown. Higher is better.

A criterion is any function of (estimator, annotations, seed) that fits the estimator and gives a number. The
seed stands for the split: trials with the same seed hide the same labels, so that their scores can be
subtracted. A criterion that judges several estimators at less cost than one by one also has the methods
``groups(estimators)`` (lists of places, each judged in one go) and ``scores(estimators, annotations, seed)``.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.errors import DataError, bad_parameter
from dissensus.evaluate.tasks import plain
from dissensus.labels.annotations import Annotations
from dissensus.labels.rows import pair_items, pairs_per_item, random_places, take_pairs

Criterion = Callable[[Any, Annotations, int], float]


@dataclass(frozen=True)
class HeldOutLabels:
    """Mean log P(label | item, annotator) of hidden labels, in nats.

    A share ``test_size`` of the (item, annotator) pairs is hidden with all their labels, as by
    ``annotations.split_labels(test_size, seed)``.
    """

    test_size: float = 0.2

    def __call__(self, estimator: Any, annotations: Annotations, seed: int) -> float:
        """Fit on what is left and score what is hidden."""
        return self.judge(estimator, *self.split(annotations, seed))

    def split(self, annotations: Annotations, seed: int) -> tuple[Annotations, Annotations]:
        """The labels to fit to, and the hidden ones; a search splits once for many estimators."""
        kept, hidden = annotations.split_labels(self.test_size, seed)
        if not (kept.n_labels and hidden.n_labels):
            raise DataError(f"{annotations.n_pairs} pairs are too few to hide {self.test_size:.0%} of them")
        return kept, hidden

    def judge(self, estimator: Any, kept: Annotations, hidden: Annotations) -> float:
        """Fit to the one part of a split and score the other."""
        return float(estimator.fit(kept).score(hidden))


@dataclass(frozen=True)
class DevItems:
    """The same of items not seen in the fit: half of a dev item's pairs folded in, the other half scored.

    ``dev`` holds the items to judge by; without it, a seeded share ``test_size`` of all items is kept out of
    the fit. Of an odd number of pairs the odd one is folded in (``apply``).
    """

    dev: Annotations | None = None
    test_size: float = 0.2

    def __call__(self, estimator: Any, annotations: Annotations, seed: int) -> float:
        """Fit on the training items, fold in half of each dev item, score the other half."""
        train, dev = annotations, self.dev
        if dev is None:
            parts = annotations.split_items({"dev": self.test_size, "train": 1 - self.test_size}, seed=seed)
            train, dev = parts["train"], parts["dev"]
        folded, hidden = halves(dev, seed)
        if not (train.n_labels and hidden.n_labels):
            raise DataError("the dev items have no two annotators each; give others, or hide labels instead")
        return float(estimator.fit(train).apply(folded).score(hidden))


def halves(annotations: Annotations, seed: int) -> tuple[Annotations, Annotations]:
    """Half of every item's pairs drawn at random (the larger half of an odd number), and the others."""
    places = random_places(annotations, np.random.default_rng(seed))
    # place < n / 2, in whole numbers
    first = 2 * places < pairs_per_item(annotations)[pair_items(annotations)]
    return take_pairs(annotations, first), take_pairs(annotations, ~first)


# ---- by name ------------------------------------------------------------------------------------------


def criterion_of(
    wanted: str | Criterion, *, dev: Annotations | None = None, test_size: float = 0.2
) -> Criterion:
    """A criterion by name, or the function given."""
    if callable(wanted):
        return wanted
    if not 0 < test_size < 1:
        raise bad_parameter("select", "test_size", "a float > 0 and < 1", test_size)
    if wanted == "held-out":
        return HeldOutLabels(test_size)
    if wanted == "dev":
        return DevItems(dev, test_size)
    raise bad_parameter("select", "criterion", "a function, 'held-out' or 'dev'", wanted)


def criterion_record(criterion: Criterion) -> dict[str, Any]:
    """What a search writes down of its criterion: name and settings, data as their fingerprint.

    Of a function of the user's own only the name is known.
    """
    if not dataclasses.is_dataclass(criterion) or isinstance(criterion, type):
        return {"name": getattr(criterion, "__qualname__", type(criterion).__qualname__)}
    record = {"name": type(criterion).__name__}
    for field in dataclasses.fields(criterion):
        value = getattr(criterion, field.name)
        record[field.name] = value.fingerprint() if isinstance(value, Annotations) else plain(value)
    return record
