"""Percentile bootstrap intervals over items.

Items are drawn with replacement, and the interval covers the central 95 % of the resampled scores. A metric
that is a mean over items is resampled from its values per item; any other metric is called on every resample.

If there are several values per item (of held-out labels, for instance), ``items`` gives the item code of
each, and an item is drawn with all its values: those of one item are not independent, and resampling them
separately would make intervals too narrow. Two models are compared on the same held-out labels by
``bootstrap_mean(log_probability_rows(p, labels) - log_probability_rows(q, labels), items=items)``.

:class:`Resamples` resamples items and random draws at once.
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

RESAMPLED_VALUES_PER_CHUNK = 4_000_000  # entries of a temporary array
RESAMPLES_PER_CHUNK = 100
CONFIDENCE_LEVEL = 0.95


class Interval(NamedTuple):
    """A score with the ends of its interval."""

    value: float
    low: float
    high: float


def bootstrap_interval(
    metric: Callable[..., float], *arrays: ArrayLike, n_boot: int = 1000, seed: int = 0, **settings: Any
) -> Interval:
    """Return a metric of arrays and its interval over items; ``settings`` are passed to the metric.

    >>> bootstrap_interval(kl, gold, predicted, smoothing=1e-4)  # doctest: +SKIP
    Interval(value=0.288, low=0.266, high=0.311)
    """
    rows = rows_of(metric)
    if rows is not None:
        return bootstrap_mean(rows(*arrays, **settings), n_boot=n_boot, seed=seed)
    columns = [np.asarray(array) for array in arrays]
    if len({len(column) for column in columns}) != 1:
        raise DataError(f"the arrays must have equal numbers of rows, got {[*map(len, columns)]}")
    n_items = len(_item_codes(len(columns[0]), None, n_boot))
    rng = np.random.default_rng(seed)
    scores = np.empty(n_boot)
    for draw in range(n_boot):
        drawn = rng.integers(n_items, size=n_items)
        scores[draw] = metric(*(column[drawn] for column in columns), **settings)
    return _interval(metric(*columns, **settings), scores)


def bootstrap_mean(
    rows: ArrayLike, *, items: ArrayLike | None = None, n_boot: int = 1000, seed: int = 0
) -> Interval:
    """Return the mean of values, one per item or one per row of an item, and its interval over items."""
    values = np.asarray(rows, dtype=np.float64)
    groups = _item_codes(len(values), items, n_boot)
    sums, sizes = np.bincount(groups, values), np.bincount(groups)
    rng = np.random.default_rng(seed)
    means: list[Array] = []
    chunk = max(1, RESAMPLED_VALUES_PER_CHUNK // len(sums))
    for start in range(0, n_boot, chunk):
        drawn = rng.integers(len(sums), size=(min(chunk, n_boot - start), len(sums)))
        # mean of a resample = Σ of its items' sums / Σ of its items' sizes
        means.append(sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1))
    return _interval(float(values.mean()), np.concatenate(means))


def _item_codes(n_rows: int, items: ArrayLike | None, n_boot: int) -> NDArray[np.intp]:
    """Check the settings and return the item codes of rows without gaps."""
    if n_boot < 1:
        raise bad_parameter("a bootstrap interval", "n_boot", "an int >= 1", n_boot)
    if items is None:
        return np.arange(n_rows)
    codes = np.asarray(items)
    if codes.shape != (n_rows,):
        raise DataError(f"items must have one code for each of the {n_rows} rows; got shape {codes.shape}")
    return np.unique(codes, return_inverse=True)[1].astype(np.intp)


def _interval(value: float, scores: Array) -> Interval:
    """Return the central part of the scores, rounded outwards to two of them."""
    # a resample without a score (with a single class, for instance) is ignored
    ordered = np.sort(scores[~np.isnan(scores)])
    if not ordered.size:
        return Interval(value, float("nan"), float("nan"))
    outside = int((1 - CONFIDENCE_LEVEL) / 2 * (ordered.size - 1))
    return Interval(value, float(ordered[outside]), float(ordered[-1 - outside]))


# ---- over items and draws at once ------------------------------------------------------------------------


@dataclass(frozen=True)
class Resamples:
    """``n_boot`` resamples of both draws and items, stored so that several means use the same ones.

    With the same resamples, the interval of a difference of means is the interval of the paired differences.
    """

    n_draws: int
    n_items: int
    n_boot: int = 1000
    seed: int = 0

    @cached_property
    def _weights(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Counts of each draw (n_boot, draws) and of each item (n_boot, items) in each resample."""
        _item_codes(self.n_items, None, self.n_boot)
        draws, items = (
            np.random.default_rng([self.seed, stream]).multinomial(n, np.full(n, 1 / n), size=self.n_boot)
            for stream, n in ((1, self.n_draws), (0, self.n_items))
        )
        # the probability that an item is drawn 256 times is negligible
        return draws, items.astype(np.uint8)

    def interval(self, rows: Array) -> Interval:
        """Return the mean of values (draws, items) and its 95 % interval."""
        draws, items = self._weights
        blocks = np.array_split(np.arange(self.n_boot), -(-self.n_boot // RESAMPLES_PER_CHUNK))
        # mean of a resample = Σ_d u_d Σ_m v_m x_dm / (D M)
        sums = [((items[b] @ rows.T) * draws[b]).sum(axis=1) for b in blocks]
        return _interval(float(rows.mean()), np.concatenate(sums) / rows.size)
