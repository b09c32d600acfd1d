"""Bootstrap intervals over items: how far a score would move had other items been drawn.

Items are drawn with replacement and the score computed anew; the interval holds the middle ``level`` of the
scores (the percentile bootstrap). A metric that is a mean over items is resampled through its numbers per
item, computed once; any other metric is called on every resample.

Where an array has several rows per item (held-out labels, say), ``items`` gives the item code of each row,
and an item is drawn with all its rows: rows of one item are not independent, and treating them as if they
were makes intervals too narrow. What two models give to the same held-out labels compares as
``bootstrap_mean(log_probability_rows(p, labels) - log_probability_rows(q, labels), items=items)``.

Where numbers come from several random draws too, :class:`Resamples` draws anew among both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dissensus.errors import DataError, bad_parameter
from dissensus.metrics import rows_of
from dissensus.numerics import Array

_BLOCK = 4_000_000  # numbers a temporary array may hold
RESAMPLES_AT_ONCE = 100
LEVEL = 0.95


class Interval(NamedTuple):
    """A score and the ends of its interval."""

    value: float
    low: float
    high: float


def bootstrap_interval(
    metric: Callable[..., float],
    *arrays: ArrayLike,
    items: ArrayLike | None = None,
    level: float = 0.95,
    n_boot: int = 1000,
    seed: int = 0,
    **settings: Any,
) -> Interval:
    """The metric of these arrays and its interval over items; ``settings`` go to the metric.

    >>> bootstrap_interval(kl, gold, predicted, smoothing=1e-4)  # doctest: +SKIP
    Interval(value=0.288, low=0.266, high=0.311)
    """
    rows = rows_of(metric)
    if rows is not None:
        return bootstrap_mean(rows(*arrays, **settings), items=items, level=level, n_boot=n_boot, seed=seed)
    known = [np.asarray(array) for array in arrays]
    if len({len(array) for array in known}) != 1:
        raise DataError(
            f"the arrays must have one row each per item, got {[len(array) for array in known]} rows"
        )
    groups = _check(len(known[0]), items, level, n_boot)
    members = np.split(np.argsort(groups, kind="stable"), np.bincount(groups).cumsum()[:-1])
    rng = np.random.default_rng(seed)
    scores = np.empty(n_boot)
    for draw in range(n_boot):
        drawn = np.concatenate([members[item] for item in rng.integers(len(members), size=len(members))])
        scores[draw] = metric(*(array[drawn] for array in known), **settings)
    return _interval(metric(*known, **settings), scores, level)


def bootstrap_mean(
    rows: ArrayLike, *, items: ArrayLike | None = None, level: float = 0.95, n_boot: int = 1000, seed: int = 0
) -> Interval:
    """The mean of some numbers, one per item or one per row of an item, and its interval over items."""
    values = np.asarray(rows, dtype=np.float64)
    groups = _check(len(values), items, level, n_boot)
    sums, sizes = np.bincount(groups, values), np.bincount(groups)
    rng = np.random.default_rng(seed)
    means: list[Array] = []
    at_once = max(1, _BLOCK // len(sums))
    for start in range(0, n_boot, at_once):
        drawn = rng.integers(len(sums), size=(min(at_once, n_boot - start), len(sums)))
        # mean of a resample = Σ of its items' sums / Σ of its items' sizes
        means.append(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1))
    return _interval(float(values.mean()), np.concatenate(means), level)


def _check(n_rows: int, items: ArrayLike | None, level: float, n_boot: int) -> NDArray[np.intp]:
    """Refuse bad settings; return the rows' item codes without gaps."""
    if not 0 < level < 1:
        raise bad_parameter("a bootstrap interval", "level", "a float between 0 and 1", level)
    if n_boot < 1:
        raise bad_parameter("a bootstrap interval", "n_boot", "an int >= 1", n_boot)
    if items is None:
        return np.arange(n_rows)
    codes = np.asarray(items)
    if codes.shape != (n_rows,):
        raise DataError(f"items: one code for each of the {n_rows} rows is needed, got shape {codes.shape}")
    return np.unique(codes, return_inverse=True)[1].astype(np.intp)


def _interval(value: float, scores: Array, level: float) -> Interval:
    """The middle ``level`` of the scores, rounded outwards to two of them."""
    # A resample may have no score (one class left, say): it says nothing of where the score lies.
    ordered = np.sort(scores[~np.isnan(scores)])
    if not ordered.size:
        return Interval(value, float("nan"), float("nan"))
    last = ordered.size - 1
    low, high = ordered[int((1 - level) / 2 * last)], ordered[-1 - int((1 - level) / 2 * last)]
    return Interval(value, float(low), float(high))


# ---- over items and draws at once ------------------------------------------------------------------------


@dataclass(frozen=True)
class Resamples:
    """Draws and items, both a sample and both moving a mean over them: each resampled ``n_boot`` times.

    Two sets of numbers weighed by the same resamples are compared pairwise: the interval of their difference
    is that of the difference of their numbers. Therefore how often each item is in each resample is counted
    once and kept, which ``bootstrap_mean``, asked once and about any number of items, has no need of.
    """

    n_draws: int
    n_items: int
    n_boot: int = 1000
    seed: int = 0

    @cached_property
    def _weights(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """(n_boot, draws) and (n_boot, items): how often each draw and each item is in each resample."""
        _check(self.n_items, None, LEVEL, self.n_boot)
        draws, items = (
            np.random.default_rng([self.seed, stream]).multinomial(n, np.full(n, 1 / n), size=self.n_boot)
            for stream, n in ((1, self.n_draws), (0, self.n_items))
        )
        # an item drawn 256 times or more is less likely than a fault of the machine
        return draws, items.astype(np.uint8)

    def interval(self, rows: Array) -> Interval:
        """The mean of some numbers (draws, items), and its 95 % interval."""
        draws, items = self._weights
        blocks = np.array_split(np.arange(self.n_boot), -(-self.n_boot // RESAMPLES_AT_ONCE))
        # mean of a resample = Σ_d u_d Σ_m v_m x_dm / (D M)
        sums = [((items[b] @ rows.T) * draws[b]).sum(axis=1) for b in blocks]
        return _interval(float(rows.mean()), np.concatenate(sums) / rows.size, LEVEL)
