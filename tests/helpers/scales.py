"""Simulated labels on ordered scales."""

import numpy as np
from scipy.special import expit

from dissensus.labels.annotations import Annotations

THRESHOLDS = np.array([-2, -0.7, 0.7, 2])


def graded_scale(
    seed: int, n_items: int = 300, n_annotators: int = 20, n_labels: int = 5
) -> tuple[Annotations, dict[str, np.ndarray]]:
    """Return labels of annotators with planted thresholds and slopes; annotator 0 guesses."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n_items)
    shift, slope = rng.normal(0, 0.8, n_annotators), np.exp(rng.normal(0.7, 0.3, n_annotators))
    item = np.repeat(np.arange(n_items), n_labels)
    who = np.concatenate([rng.choice(n_annotators, n_labels, replace=False) for _ in range(n_items)])
    below = expit(THRESHOLDS + shift[who][:, None] - (slope[who] * x[item])[:, None])
    label = (rng.random((len(item), 1)) > below).sum(axis=1)
    label[who == 0] = rng.integers(0, 5, (who == 0).sum())
    planted = {"x": x, "shift": shift, "slope": slope}
    return Annotations.from_arrays(item, who, label, label_type="ordinal"), planted


def divided_scale(
    seed: int, distance: float, n_items: int = 300, n_annotators: int = 12
) -> tuple[Annotations, np.ndarray]:
    """Return labels of two kinds of annotators, who disagree about a second quality of the items."""
    rng = np.random.default_rng(seed)
    x, u = rng.normal(size=(2, n_items))
    kind = np.where(np.arange(n_annotators) % 2 == 0, 1.0, -1.0)
    item, who = (table.ravel() for table in np.indices((n_items, n_annotators)))
    mask = rng.random(len(item)) < 0.6
    item, who = item[mask], who[mask]
    position = 2 * x[item] + distance * kind[who] * u[item]
    label = (rng.random((len(item), 1)) > expit(THRESHOLDS - position[:, None])).sum(axis=1)
    return Annotations.from_arrays(item, who, label, label_type="ordinal"), kind
