"""The bootstrap over items and draws at once: both are a sample, and both move a mean over them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import bad_parameter
from dissensus.evaluation.intervals import Interval
from dissensus.numerics import Array

BLOCK = 100  # resamples that are weighed at a time


@dataclass(frozen=True)
class Resamples:
    """Draws and items, each drawn with replacement ``n_boot`` times; the same for whatever is weighed.

    Two sets of numbers weighed by the same resamples are compared pairwise: the interval of their difference
    is that of the difference of their numbers.
    """

    n_draws: int
    n_items: int
    n_boot: int = 1000
    seed: int = 0
    level: float = 0.95

    def __post_init__(self) -> None:
        if self.n_boot < 1:
            raise bad_parameter("a bootstrap interval", "n_boot", "an int >= 1", self.n_boot)

    @cached_property
    def _items(self) -> NDArray[np.uint8]:
        """(n_boot, items): how often each item is in each resample."""
        rng = np.random.default_rng([self.seed, 0])
        drawn = rng.multinomial(self.n_items, np.full(self.n_items, 1 / self.n_items), size=self.n_boot)
        return drawn.astype(np.uint8)  # the same item 256 times: less likely than any fault of the machine

    @cached_property
    def _draws(self) -> NDArray[np.int64]:
        rng = np.random.default_rng([self.seed, 1])
        return rng.multinomial(self.n_draws, np.full(self.n_draws, 1 / self.n_draws), size=self.n_boot)

    def interval(self, rows: Array) -> Interval:
        """The mean of some numbers (draws, items), and the middle ``level`` of its resamples."""
        blocks = np.array_split(np.arange(self.n_boot), -(-self.n_boot // BLOCK))
        # mean of a resample = Σ_d u_d Σ_m v_m x_dm / (D M)
        sums = [((self._items[b] @ rows.T) * self._draws[b]).sum(axis=1) for b in blocks]
        edge = (1 - self.level) / 2
        low, high = np.quantile(np.concatenate(sums) / rows.size, [edge, 1 - edge])
        return Interval(float(rows.mean()), float(low), float(high))
