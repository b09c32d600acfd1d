"""Tables of humans and judges for which it is known what must come out."""

from __future__ import annotations

import numpy as np

from dissensus import Annotations


def seen(rng: np.random.Generator, truth: np.ndarray, n_classes: int, accuracy: float) -> np.ndarray:
    """Answers that are the truth with this chance, and another class, any, otherwise."""
    other = (truth + rng.integers(1, n_classes, size=len(truth))) % n_classes
    return np.where(rng.random(len(truth)) < accuracy, truth, other)


def table(columns: dict[str, np.ndarray]) -> Annotations:
    """Annotations of columns of answers, one an annotator, a row per item; −1: no answer."""
    names = np.repeat(list(columns), [len(column) for column in columns.values()])
    items = np.concatenate([np.arange(len(column)) for column in columns.values()])
    labels = np.concatenate(list(columns.values()))
    given = labels >= 0
    return Annotations.from_arrays(items[given], names[given], labels[given])


def humans_and_judges(
    seed: int,
    n_items: int = 1000,
    n_classes: int = 3,
    humans: int = 3,
    judges: int = 5,
    *,
    clones: bool = False,
) -> Annotations:
    """Humans who are right in 75 % of their answers, judges in 80 %; ``clones``: one judge, many names."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n_items)
    columns = {f"human{i}": seen(rng, truth, n_classes, 0.75) for i in range(humans)}
    own = [seen(rng, truth, n_classes, 0.8) for _ in range(judges)]
    return table(columns | {f"judge{i}": own[0 if clones else i] for i in range(judges)})
