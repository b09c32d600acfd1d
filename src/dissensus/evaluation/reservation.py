"""A part of every item's labels reserved as the reference, and what smoothed counts make of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.data.annotations import Annotations
from dissensus.data.pairs import pairs_per_item, random_places, take_pairs
from dissensus.errors import DataError
from dissensus.evaluation.intervals import Interval
from dissensus.evaluation.resampling import Resamples
from dissensus.metrics import kl_rows, sampling_floor
from dissensus.models.empirical import GRID
from dissensus.numerics import Array, row_shares


@dataclass(frozen=True, eq=False)
class Design:
    """The items that take part: reserved labels, and those that may be shown."""

    reserved: Annotations
    pool: Annotations
    pool_size: int  # pairs of each item in the pool
    n_left_out: int  # items with too few pairs
    seed: int
    smoothing: float

    @classmethod
    def of(
        cls, annotations: Annotations, pool: int, min_reserved: int, seed: int, smoothing: float
    ) -> Design:
        """Put ``pool`` random pairs of each item into the pool and reserve the others."""
        sizes = pairs_per_item(annotations)
        enough = sizes >= pool + min_reserved
        if not enough.any():
            raise _too_few(sizes, pool, min_reserved)
        items = annotations.take_items(np.flatnonzero(enough))
        drawable = random_places(items, np.random.default_rng([seed])) < pool
        left_out = int((~enough).sum())
        return cls(take_pairs(items, ~drawable), take_pairs(items, drawable), pool, left_out, seed, smoothing)

    def shown(self, n_labels: int, draw: int) -> Annotations:
        """``n_labels`` pairs of each item; those of a smaller number in the same draw are among them."""
        places = random_places(self.pool, np.random.default_rng([self.seed, draw + 1]))
        return take_pairs(self.pool, places < n_labels)

    @cached_property
    def reference(self) -> Array:
        """(items, classes): the reserved labels' own distributions."""
        return row_shares(self.reserved.counts)

    def divergence(self, estimate: Any) -> Array:
        """(items,): KL(reserved ‖ estimate)."""
        return kl_rows(self.reference, estimate, smoothing=self.smoothing)

    @cached_property
    def floor(self) -> float:
        """The mean KL that the true distributions are expected to score against the reserved labels.

        The truth is unknown; all labels of an item, shown and reserved, stand in for it.
        """
        everything = row_shares(self.reserved.counts + self.pool.counts)
        return sampling_floor(everything, self.reserved.counts.sum(axis=1), smoothing=self.smoothing)


def _too_few(sizes: NDArray[np.int64], pool: int, min_reserved: int) -> DataError:
    """No item takes part; in the proportion asked for, a tenth of the items allow this pool and reserve."""
    most = int(sizes.max())
    problem = f"no item has {pool} + {min_reserved} annotators (the most is {most})"
    if most < 2:
        return DataError(f"{problem}; give some items two at least: one to show and one to reserve")
    tenth = int(np.sort(sizes)[::-1][(len(sizes) - 1) // 10])
    within = tenth if tenth >= 2 else most
    smaller = min(max(round(within * pool / (pool + min_reserved)), 1), within - 1)
    shown = ",".join(str(1 << power) for power in range(smaller.bit_length()))
    return DataError(
        f"{problem}; lower pool and min_reserved: --pool {smaller} --min-reserved {within - smaller} "
        f"--labels-shown {shown} leaves {int((sizes >= within).sum()):,} of {len(sizes):,} items"
    )


# ---- smoothed counts ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CountsPoint:
    """Smoothed counts of R labels: the smoothing that is best in hindsight, and its KL."""

    labels_shown: int
    smoothing: float
    rows: Array  # (draws, items)
    kl: Interval


def counts_curve(design: Design, n_draws: int, resamples: Resamples) -> tuple[CountsPoint, ...]:
    """For every R up to the pool, the additive smoothing of the grid with the lowest mean KL."""
    points = []
    for n_labels in range(1, design.pool_size + 1):
        tables = [design.shown(n_labels, draw).counts for draw in range(n_draws)]
        smoothing = best_in_hindsight(design, tables)
        rows = np.array([design.divergence(additive(table, smoothing)) for table in tables])
        points.append(CountsPoint(n_labels, smoothing, rows, resamples.interval(rows)))
    return tuple(points)


def additive(counts: NDArray[np.int64], smoothing: float) -> Array:
    """q_mp = (c_mp + s) / (n_m + P s)."""
    return row_shares(counts + smoothing)


def best_in_hindsight(design: Design, tables: Sequence[NDArray[np.int64]]) -> float:
    """The smoothing whose smoothed counts are closest to the reserved labels, over all draws.

    Few labels make few different rows of counts, so the KL is summed by row: with g the reference, ε the
    smoothing and W_up = Σ_{m with counts u} (g_mp + ε), it is − Σ_up W_up log(q_up + ε) up to a constant.
    """
    rows, which = np.unique(np.concatenate(tables), axis=0, return_inverse=True)
    weights = np.zeros(rows.shape)
    np.add.at(weights, which.ravel(), np.tile(design.reference + design.smoothing, (len(tables), 1)))
    losses = [-(weights * np.log(additive(rows, s) + design.smoothing)).sum() for s in GRID]
    return float(GRID[int(np.argmin(losses))])


def label_efficiency(kl: float, curve: Sequence[float]) -> float:
    """How many labels the curve (KL at 1, 2, … labels) needs for ``kl``, read off between its points.

    ∞ where the curve does not come down to it, 0 where one label already does better.
    """
    falling = np.minimum.accumulate(np.asarray(curve, dtype=np.float64))
    if kl < falling[-1]:
        return float("inf")
    if kl > falling[0]:
        return 0.0
    # np.interp wants rising abscissae: the curve from its end
    return float(np.interp(kl, falling[::-1], np.arange(len(falling), 0, -1.0)))


def efficiency_words(efficiency: float, pool: int) -> str:
    """As a table shows it: a number between 1 and the pool, or that it lies beyond."""
    if efficiency == float("inf"):
        return f"> {pool}"
    return "< 1" if efficiency == 0.0 else f"{efficiency:.1f}"
