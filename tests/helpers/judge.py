"""Tables of humans and judges with known accuracies."""

import numpy as np

from dissensus import Annotations


def seen(rng: np.random.Generator, truth: np.ndarray, n_classes: int, accuracy: float) -> np.ndarray:
    """Return answers that are right with this probability, and otherwise another class at random."""
    other = (truth + rng.integers(1, n_classes, size=len(truth))) % n_classes
    return np.where(rng.random(len(truth)) < accuracy, truth, other)


def table(columns: dict[str, np.ndarray]) -> Annotations:
    """Return annotations from one column of answers per annotator; −1: no answer."""
    names = np.repeat(list(columns), [len(column) for column in columns.values()])
    items = np.concatenate([np.arange(len(column)) for column in columns.values()])
    labels = np.concatenate(list(columns.values()))
    answered = labels >= 0
    return Annotations.from_arrays(items[answered], names[answered], labels[answered])


def humans_and_judges(
    seed: int,
    n_items: int = 1000,
    n_classes: int = 3,
    humans: int = 3,
    judges: int = 5,
    *,
    clones: bool = False,
) -> Annotations:
    """Return labels of humans (75 % right) and judges (80 %); ``clones``: all judges answer alike."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n_items)
    columns = {f"human{i}": seen(rng, truth, n_classes, 0.75) for i in range(humans)}
    answers = [seen(rng, truth, n_classes, 0.8) for _ in range(judges)]
    return table(columns | {f"judge{i}": answers[0 if clones else i] for i in range(judges)})
