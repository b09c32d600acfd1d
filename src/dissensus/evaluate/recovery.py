"""How close does a model come to the population, from how few labels?

Of every item with enough labels a fixed part is reserved: the same for every model and every R. A model is
shown R of the labels that are left and says what the population would answer; the reserved labels tell how
far off it is, as KL(reserved ‖ estimate) with 1e-5 added to both sides. No estimate does better on average
than the *sampling floor*: what the true distribution itself would score against so few reserved labels.

Whole (item, annotator) pairs are drawn and reserved, so "R labels" are the answers of R annotators. Items
with fewer than ``pool + min_reserved`` pairs take no part: they are neither scored nor shown to any model.
Both fit themselves to the data: 8 and 6 where enough items have 14 annotators, less in that proportion where
they have fewer.

The yardstick is the item's own counts with the additive smoothing that is best in hindsight, for every R up
to the pool. *Label efficiency* reads a model's KL off that curve: how many raw labels per item the counts
need for the same KL.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError, bad_parameter, require, setting
from dissensus.evaluate.bootstrap import Interval, Resamples
from dissensus.evaluate.tasks import stream_seed, trial_copy, workers
from dissensus.labels.annotations import Annotations
from dissensus.labels.display import Shown
from dissensus.labels.rows import pairs_per_item, random_places, take_pairs
from dissensus.labels.sources import as_annotations
from dissensus.metrics import kl_rows, sampling_floor
from dissensus.models import build_model
from dissensus.models.counting import GRID
from dissensus.numerics import Array, row_shares
from dissensus.params import NONE, check_rules, integer, with_settings
from dissensus.progress import Clock, ShowProgress, shown

Models = Mapping[str, Any] | Sequence[Any]

COUNTS = "counts"
POOL, RESERVED = 8, 6  # pairs that may be shown and that are reserved, where items have so many
ENOUGH_ITEMS, ENOUGH_SHARE = 50, 0.1  # so many items, or such a share of them, carry a comparison
FEW_RESERVED = 4  # reserved labels below which the distance to the population is mostly noise
WEIGHTS = ("labels", "annotators")
_RULES = {"pool": integer(1) | NONE, "min_reserved": integer(1) | NONE, "n_draws": integer(1)}


# ---- the labels: reserved, and shown --------------------------------------------------------------------


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
            most = int(sizes.max(initial=0))
            problem = f"no item has {pool} + {min_reserved} annotators (the most is {most})"
            if most < 2:
                raise DataError(f"{problem}; give some items two at least: one to show and one to reserve")
            smaller, reserved = fitting(sizes, None, None)
            n_items = int((sizes >= smaller + reserved).sum())
            raise DataError(
                f"{problem}; lower them: {setting('pool', smaller)}, {setting('min_reserved', reserved)}, "
                f"{setting('labels_shown', list(powers(smaller)))} leaves {n_items:,} of {len(sizes):,} items"
            )
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


def fitting(sizes: NDArray[np.int64], pool: int | None, min_reserved: int | None) -> tuple[int, int]:
    """``pool`` and ``min_reserved``, those that are None as the items' numbers of pairs allow.

    14 pairs are cut 8 : 6. Where too few items have so many, T pairs are cut in that proportion, T being the
    most that enough items have: 50 of them, or a tenth.
    """
    if pool is not None and min_reserved is not None:
        return pool, min_reserved
    ordered = np.sort(sizes)[::-1]
    enough = min(ENOUGH_ITEMS, max(int(ENOUGH_SHARE * len(sizes)), 1))
    total = min(int(ordered[min(enough, len(ordered)) - 1]), POOL + RESERVED)
    total = max(total if total >= 2 else int(ordered[0]), 2)
    if pool is not None:
        return pool, max(min(total - pool, RESERVED), 1)
    if min_reserved is not None:
        return max(min(total - min_reserved, POOL), 1), min_reserved
    shown = min(max(round(total * POOL / (POOL + RESERVED)), 1), total - 1)
    return shown, total - shown


def powers(pool: int) -> tuple[int, ...]:
    """1, 2, 4, … up to the pool."""
    return tuple(1 << power for power in range(pool.bit_length()))


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
    # np.interp wants rising abscissae: the curve from its end
    labels = np.arange(len(falling), 0, -1.0)
    return float(np.interp(kl, falling[::-1], labels, left=np.inf, right=0.0))


def efficiency_words(efficiency: float, pool: int) -> str:
    """As a table shows it: a number between 1 and the pool, or that it lies beyond."""
    return {float("inf"): f"> {pool}", 0.0: "< 1"}.get(efficiency, f"{efficiency:.1f}")


# ---- the models ---------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Recovered:
    """One model shown R labels per item."""

    name: str
    model: str  # its settings, as Python would write them
    labels_shown: int
    rows: Array  # (draws, items): KL of each item in each draw
    kl: Interval  # over items and draws
    efficiency: float  # raw labels per item that the counts need; ∞ beyond the pool, 0 below one
    seconds: float  # of one fit, on average


PlannedFit = tuple[str, int, int, int]  # name of a group, place in it, labels shown, draw
Setup = tuple[Design, Mapping[str, Sequence[Any]]]  # what all fits share: the labels and the groups of models


def attempt(setup: Setup, planned: PlannedFit) -> tuple[Array, float]:
    """Fit one model to what one draw shows it: its KL on every item, and the seconds it took."""
    (design, groups), (name, place, labels_shown, draw) = setup, planned
    model = trial_copy(groups[name][place], stream_seed(design.seed, *planned), ())
    shown = design.shown(labels_shown, draw)
    started = time.perf_counter()
    estimate = model.fit(shown).label_distributions_
    return design.divergence(estimate), time.perf_counter() - started


@dataclass(frozen=True)
class Recovery(Shown):
    """How close every model came with every number of labels, beside the counts and the floor.

    Attributes
    ----------
    results
        Every model of every group, in the order given.
    counts
        The same for plain counts, for every number of labels shown.
    floor
        The KL that remains because reserved labels are few.
    pool
        Pairs of each item that may be shown.
    n_items
        Items that take part.
    n_left_out
        Items that have too few labels.
    n_reserved
        Reserved labels for each item, on average.
    n_draws
        How often labels to show were drawn.
    resamples
        Resamples of items and draws behind the intervals.
    min_reserved
        The fewest labels that are reserved of an item.
    """

    results: tuple[Recovered, ...]  # every model of every group, in the order given
    counts: tuple[CountsPoint, ...]  # R = 1 … pool
    floor: float
    pool: int
    n_items: int  # that take part
    n_left_out: int
    n_reserved: float  # labels per item, on average
    n_draws: int
    resamples: Resamples
    min_reserved: int

    @property
    def notes(self) -> list[str]:
        """What can and cannot be concluded from so many labels."""
        told = []
        if self.pool + self.min_reserved < POOL + RESERVED:
            told.append(
                f"items have few annotators: {self.pool} may be shown, at least {self.min_reserved} are kept "
                f"back ({POOL} and {RESERVED} where there are enough)"
            )
        if self.min_reserved < FEW_RESERVED:
            told.append(
                f"so few labels kept back ({self.min_reserved}) say which of two models is closer, but not "
                "how close either is to the population"
            )
        return told

    def best(self, name: str, labels_shown: int) -> Recovered:
        """Of a group, the model with the lowest mean KL: chosen in hindsight, like the counts' smoothing.

        Parameters
        ----------
        name
            A group that was asked for.
        labels_shown
            A number of labels that was shown (R).
        """
        group = [one for one in self.results if (one.name, one.labels_shown) == (name, labels_shown)]
        if not group:
            done = dict.fromkeys(f"{one.name} with {one.labels_shown}" for one in self.results)
            raise DataError(f"{name!r} was not shown {labels_shown} labels; recover did {', '.join(done)}")
        return min(group, key=lambda one: one.kl.value)

    def difference(self, first: str, second: str, labels_shown: int) -> Interval:
        """KL of ``first`` minus KL of ``second`` (groups, or "counts"), on the same resamples.

        Parameters
        ----------
        first
            A group, or ``"counts"``.
        second
            Another.
        labels_shown
            A number of labels that was shown (R).
        """
        asked = {one.name for one in self.results}

        def rows(name: str) -> Array:
            counted = name == COUNTS and name not in asked
            return (self.counts[labels_shown - 1] if counted else self.best(name, labels_shown)).rows

        return self.resamples.interval(rows(first) - rows(second))

    def rows(self, every: bool = False) -> list[dict[str, Any]]:
        """One row per number of labels and group (its best model), or every model with ``every``."""
        shown = dict.fromkeys((one.labels_shown, one.name) for one in self.results)
        best = [self.best(name, labels_shown) for labels_shown, name in sorted(shown, key=lambda x: x[0])]
        return [
            {
                **{name: getattr(one, name) for name in ("labels_shown", "name", "model")},
                "kl": one.kl.value,
                "low": one.kl.low,
                "high": one.kl.high,
                "floor": self.floor,
                "counts": self.counts[one.labels_shown - 1].kl.value,
                "efficiency": efficiency_words(one.efficiency, self.pool),
                "seconds": one.seconds,
            }
            for one in (self.results if every else best)
        ]

    def to_frame(self, every: bool = False) -> Any:
        """The same as a pandas data frame.

        Parameters
        ----------
        every
            Whether every model has a row, or the best of each group.
        """
        return require("pandas", "pandas").DataFrame(self.rows(every))

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, numbers per item apart."""
        curve = [
            {"labels_shown": point.labels_shown, "smoothing": point.smoothing, **point.kl._asdict()}
            for point in self.counts
        ]
        return {
            "n_items": self.n_items,
            "n_left_out": self.n_left_out,
            "reserved_labels_per_item": self.n_reserved,
            **{name: getattr(self, name) for name in ("pool", "min_reserved", "notes", "n_draws", "floor")},
            "counts": curve,
            "models": self.rows(every=True),
        }

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(one.name for one in self.results))
        return f"Recovery({names}; {self.n_items:,} items, {self.n_draws} draws, floor {self.floor:.4f})"


# ---- the call -----------------------------------------------------------------------------------------


def recover(
    labels: Any,
    models: Models,
    labels_shown: Sequence[int] | None = None,
    *,
    pool: int | None = None,
    min_reserved: int | None = None,
    n_draws: int = 5,
    weight_by: str | None = None,
    smoothing: float = 1e-5,
    n_boot: int = 1000,
    n_jobs: int = -1,
    executor: Executor | None = None,
    progress: ShowProgress = None,
    seed: int = 0,
) -> Recovery:
    """How close each model comes to reserved labels when it is shown R labels per item.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    models
        Name → model, or → several models: a group, of which the best at each R is reported with its
        settings. A list of models or of their names on the command line does as well.
    labels_shown
        The R's, each at most ``pool``; None: 1, 2, 4, … up to it.
    pool, min_reserved
        So many pairs of each item may be shown, all others are reserved; items with fewer than
        ``pool + min_reserved`` take no part. None: 8 and 6, or less where items have fewer annotators
        (``Recovery.notes`` says what can then be concluded).
    n_draws
        How often R of the pool are drawn (R labels of a draw are among its R + 1).
    weight_by
        ``"labels"`` or ``"annotators"`` for every model that has the setting; None leaves each as it is.
    smoothing
        What is added to both sides of the KL divergence.
    n_boot
        Resamples of items and draws behind the 95 % intervals.
    n_jobs, executor, progress, seed
        As in :func:`dissensus.select`; the result is the same for any number of jobs.
    """
    known = as_annotations(labels)
    least_pool = None if labels_shown is None or pool is not None else max(labels_shown, default=1)
    _check(labels_shown, least_pool if pool is None else pool, min_reserved, n_draws, weight_by)
    groups = _groups(models, weight_by)
    pool, min_reserved = fitting(pairs_per_item(known), pool, min_reserved)
    if least_pool is not None and least_pool > pool:  # what was asked to be shown must be in the pool
        pool, min_reserved = fitting(pairs_per_item(known), least_pool, None)
    labels_shown = powers(pool) if labels_shown is None else labels_shown
    design = Design.of(known, pool, min_reserved, seed, smoothing)
    resamples = Resamples(n_draws, design.pool.n_items, n_boot, seed)
    cells = [
        (name, place, R)
        for R in dict.fromkeys(labels_shown)
        for name, group in groups.items()
        for place in range(len(group))
    ]
    # the most labels first: these fits take longest
    plan = [(*cell, draw) for cell in sorted(cells, key=lambda cell: -cell[2]) for draw in range(n_draws)]
    done: dict[PlannedFit, tuple[Array, float]] = {}
    with shown(progress) as tell:
        tell("smoothed counts", 0.0)
        counts = counts_curve(design, n_draws, resamples)
        clock = Clock(tell, len(plan))
        with workers((design, groups), len(plan), n_jobs=n_jobs, executor=executor) as tasks:
            for planned, found in tasks.completed(attempt, plan):
                done[planned] = found
                clock.tick(1, f"{len(done)} of {len(plan)}: {planned[0]}, {planned[2]} labels")
    curve, results = [point.kl.value for point in counts], []
    for name, place, R in cells:  # all draws of one model and R put together
        fits = [done[name, place, R, draw] for draw in range(n_draws)]
        rows, seconds = np.array([kl for kl, _ in fits]), float(np.mean([spent for _, spent in fits]))
        kl, model = resamples.interval(rows), repr(groups[name][place])
        worth = label_efficiency(kl.value, curve)
        results.append(Recovered(name, model, R, rows, kl, worth, seconds))
    n_items, n_reserved = design.pool.n_items, design.reserved.n_labels / design.pool.n_items
    sizes = pool, n_items, design.n_left_out, n_reserved, n_draws
    return Recovery(tuple(results), counts, design.floor, *sizes, resamples, min_reserved)


def _check(
    labels_shown: Sequence[int] | None,
    pool: int | None,
    min_reserved: int | None,
    n_draws: int,
    weight_by: str | None,
) -> None:
    check_rules("recover", _RULES, pool=pool, min_reserved=min_reserved, n_draws=n_draws)
    allowed = not labels_shown or (min(labels_shown) >= 1 and max(labels_shown) <= (pool or POOL))
    if labels_shown is not None and not (labels_shown and allowed):
        rule = f"whole numbers from 1 to the pool of {pool}"
        raise bad_parameter("recover", "labels_shown", rule, tuple(labels_shown))
    if weight_by not in (None, *WEIGHTS):
        raise bad_parameter("recover", "weight_by", f"None or one of {WEIGHTS}", weight_by)


def _groups(models: Models, weight_by: str | None) -> dict[str, list[Any]]:
    """Name → fresh models, in the order given."""
    if not isinstance(models, Mapping):
        models = {one if isinstance(one, str) else repr(one): one for one in models}
    if not models:
        raise bad_parameter("recover", "models", "at least one model", models)
    groups: dict[str, list[Any]] = {}
    for name, several in models.items():
        groups[name] = []
        for model in several if isinstance(several, list | tuple) else [several]:
            known = build_model(model, {}) if isinstance(model, str) else model
            wanted = {"estimate": "population"} | ({} if weight_by is None else {"weight_by": weight_by})
            has = known.get_params(deep=False)
            prepared = with_settings(known, {k: v for k, v in wanted.items() if k in has})
            if hasattr(prepared, "check_params"):
                prepared.check_params()
            groups[name].append(prepared)
    return groups
