"""Recovery of the population's answers from few labels per item.

For each item with enough labels a fixed subset is reserved, the same for every model and every R. A model is
shown R of the remaining labels and estimates the distribution of the population, which is compared with the
reserved labels by KL(reserved ‖ estimate) with 1e-5 added to both arguments. On average no estimate scores
better than the *sampling floor*, the score of the true distribution against so small a reserved sample.

Pairs (item, annotator) are drawn and reserved, so "R labels" are the answers of R annotators. Items with
fewer than ``pool + min_reserved`` pairs are excluded. By default both adapt to the data: 8 and 6 if enough
items have 14 annotators, smaller in the same proportion otherwise.

The baseline are the item's label counts with the additive smoothing that is best in hindsight, for every R up
to the pool. The *label efficiency* of a model is the number of raw labels per item at which the baseline
reaches the same KL.
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
from dissensus.labels import as_annotations
from dissensus.labels.annotations import Annotations
from dissensus.labels.display import TableResult
from dissensus.labels.rows import pairs_per_item, random_ranks, take_pairs
from dissensus.metrics import kl_rows, sampling_floor
from dissensus.models import build_model
from dissensus.models.counting import SMOOTHING_GRID
from dissensus.numerics import Array, row_shares
from dissensus.params import NONE, check_rules, choice, integer, with_settings
from dissensus.progress import Clock, ShowProgress, shown

Models = Mapping[str, Any] | Sequence[Any]

COUNTS = "counts"
POOL_SIZE, RESERVED_SIZE = 8, 6  # pairs of an item that may be shown and that are reserved, by default
ENOUGH_ITEMS, ENOUGH_SHARE = 50, 0.1  # number or share of items that suffices for a comparison
MIN_INFORMATIVE_RESERVED = 4  # with fewer reserved labels, the distance to the population is mostly noise
RECOVERY_RULES = {"pool": integer(1) | NONE, "min_reserved": integer(1) | NONE, "n_draws": integer(1)}
RECOVERY_RULES |= {"weight_by": NONE | choice("labels", "annotators")}


# ---- reserved and shown labels --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Design:
    """Reserved labels and labels that may be shown, of the items that have enough of both."""

    reserved: Annotations
    pool: Annotations
    pool_size: int  # pairs of each item in the pool
    n_left_out: int  # excluded items, with too few pairs
    seed: int
    smoothing: float

    @classmethod
    def of(cls, labels: Annotations, pool: int, min_reserved: int, seed: int, smoothing: float) -> Design:
        """Put ``pool`` random pairs of each item into the pool and reserve the others."""
        sizes = pairs_per_item(labels)
        enough = sizes >= pool + min_reserved
        if not enough.any():
            largest = int(sizes.max(initial=0))
            problem = f"no item has {pool} + {min_reserved} annotators (the maximum is {largest})"
            if largest < 2:
                raise DataError(f"{problem}; items need at least two: one to show and one to reserve")
            smaller, reserved = adapt_sizes(sizes, None, None)
            n_items = int((sizes >= smaller + reserved).sum())
            raise DataError(
                f"{problem}; lower them: {setting('pool', smaller)}, {setting('min_reserved', reserved)}, "
                f"{setting('labels_shown', list(powers(smaller)))} keeps {n_items:,} of {len(sizes):,} items"
            )
        items = labels.take_items(np.flatnonzero(enough))
        drawable = random_ranks(items, np.random.default_rng([seed])) < pool
        parts = take_pairs(items, ~drawable), take_pairs(items, drawable)
        return cls(*parts, pool, int((~enough).sum()), seed, smoothing)

    def shown(self, n_labels: int, draw: int) -> Annotations:
        """Draw ``n_labels`` pairs of each item; smaller numbers in the same draw are subsets."""
        ranks = random_ranks(self.pool, np.random.default_rng([self.seed, draw + 1]))
        return take_pairs(self.pool, ranks < n_labels)

    @cached_property
    def reference(self) -> Array:
        """Distribution of the reserved labels of each item, (items, classes)."""
        return row_shares(self.reserved.counts)

    def divergence(self, estimate: Any) -> Array:
        """Return KL(reserved ‖ estimate) of each item."""
        return kl_rows(self.reference, estimate, smoothing=self.smoothing)

    @cached_property
    def floor(self) -> float:
        """Expected mean KL of the true distributions against the reserved labels.

        The truth is unknown and replaced by the distribution of all labels of an item.
        """
        truth = row_shares(self.reserved.counts + self.pool.counts)
        return sampling_floor(truth, self.reserved.counts.sum(axis=1), smoothing=self.smoothing)


def adapt_sizes(sizes: NDArray[np.int64], pool: int | None, min_reserved: int | None) -> tuple[int, int]:
    """Return ``pool`` and ``min_reserved``, replacing None by sizes that suit the numbers of pairs per item.

    14 pairs are split 8 : 6. If too few items have 14, T pairs are split in that proportion, with T the
    largest number that 50 items, or a tenth of them, have.
    """
    if pool is not None and min_reserved is not None:
        return pool, min_reserved
    ordered = np.sort(sizes)[::-1]
    enough = min(ENOUGH_ITEMS, max(int(ENOUGH_SHARE * len(sizes)), 1))
    total = min(int(ordered[min(enough, len(ordered)) - 1]), POOL_SIZE + RESERVED_SIZE)
    total = max(total if total >= 2 else int(ordered[0]), 2)
    if pool is not None:
        return pool, max(min(total - pool, RESERVED_SIZE), 1)
    if min_reserved is not None:
        return max(min(total - min_reserved, POOL_SIZE), 1), min_reserved
    shown = min(max(round(total * POOL_SIZE / (POOL_SIZE + RESERVED_SIZE)), 1), total - 1)
    return shown, total - shown


def powers(pool: int) -> tuple[int, ...]:
    """Return 1, 2, 4, … up to the pool."""
    return tuple(1 << power for power in range(pool.bit_length()))


# ---- smoothed counts ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CountsPoint:
    """Smoothed counts of R labels: the best smoothing in hindsight, and its KL."""

    labels_shown: int
    smoothing: float
    rows: Array  # (draws, items)
    kl: Interval

    def to_dict(self) -> dict[str, float]:
        """Return everything as plain values, without the values per item."""
        return {"labels_shown": self.labels_shown, "smoothing": self.smoothing, **self.kl._asdict()}


def counts_curve(design: Design, n_draws: int, resamples: Resamples) -> tuple[CountsPoint, ...]:
    """Return the additive smoothing with the lowest mean KL for every R up to the pool."""
    points = []
    for n_labels in range(1, design.pool_size + 1):
        tables = [design.shown(n_labels, draw).counts for draw in range(n_draws)]
        smoothing = best_in_hindsight(design, tables)
        rows = np.array([design.divergence(additive(table, smoothing)) for table in tables])
        points.append(CountsPoint(n_labels, smoothing, rows, resamples.interval(rows)))
    return tuple(points)


def additive(counts: NDArray[np.int64], smoothing: float) -> Array:
    """Return q_mp = (c_mp + s) / (n_m + P s)."""
    return row_shares(counts + smoothing)


def best_in_hindsight(design: Design, tables: Sequence[NDArray[np.int64]]) -> float:
    """Return the smoothing whose smoothed counts are closest to the reserved labels, over all draws.

    Few labels give few distinct rows of counts, so the KL is summed by row: with g the reference, ε the
    smoothing and W_up = Σ_{m with counts u} (g_mp + ε), it is − Σ_up W_up log(q_up + ε) up to a constant.
    """
    rows, index = np.unique(np.concatenate(tables), axis=0, return_inverse=True)
    weights = np.zeros(rows.shape)
    np.add.at(weights, index.ravel(), np.tile(design.reference + design.smoothing, (len(tables), 1)))
    losses = [-(weights * np.log(additive(rows, s) + design.smoothing)).sum() for s in SMOOTHING_GRID]
    return float(SMOOTHING_GRID[int(np.argmin(losses))])


def label_efficiency(kl: float, curve: Sequence[float]) -> float:
    """Return the number of labels at which the curve (KL at 1, 2, … labels) reaches ``kl``, interpolated.

    The result is ∞ if the curve stays above ``kl``, and 0 if one label is already better.
    """
    falling = np.minimum.accumulate(np.asarray(curve, dtype=np.float64))
    # np.interp needs increasing abscissae, so the curve is reversed
    labels = np.arange(len(falling), 0, -1.0)
    return float(np.interp(kl, falling[::-1], labels, left=np.inf, right=0.0))


def efficiency_words(efficiency: float, pool: int) -> str:
    """Format an efficiency for a table: a number between 1 and the pool, "< 1" or "> pool"."""
    return {float("inf"): f"> {pool}", 0.0: "< 1"}.get(efficiency, f"{efficiency:.1f}")


# ---- models -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Recovered:
    """Result of one model that was shown R labels per item."""

    name: str
    model: str  # repr of the model
    labels_shown: int
    rows: Array  # (draws, items): KL of each item in each draw
    kl: Interval  # over items and draws
    efficiency: float  # raw labels per item for the same KL; ∞ beyond the pool, 0 below one
    seconds: float  # mean time of a fit


PlannedFit = tuple[str, int, int, int]  # group, index in it, labels shown, draw
Groups = Mapping[str, Sequence[Any]]  # models by group


def run_fit(setup: tuple[Design, Groups], planned: PlannedFit) -> tuple[Array, float]:
    """Fit one model to the labels of one draw; return its KL on every item and the time in seconds."""
    (design, groups), (name, index, labels_shown, draw) = setup, planned
    model = trial_copy(groups[name][index], stream_seed(design.seed, *planned), ())
    shown = design.shown(labels_shown, draw)
    started = time.perf_counter()
    estimate = model.fit(shown).label_distributions_
    return design.divergence(estimate), time.perf_counter() - started


@dataclass(frozen=True)
class Recovery(TableResult):
    """Results of :func:`recover`: the KL of every model for every number of labels.

    Attributes
    ----------
    results
        Every model of every group, in the order given.
    counts
        Smoothed counts, for every number of labels shown.
    floor
        KL that remains because few labels are reserved.
    pool
        Pairs of each item that may be shown.
    n_items
        Number of items in the comparison.
    n_left_out
        Number of excluded items, which have too few labels.
    n_reserved
        Mean number of reserved labels per item.
    n_draws
        Number of draws of the labels to show.
    resamples
        Resamples of items and draws for the intervals.
    min_reserved
        Minimum number of reserved pairs of an item.
    """

    results: tuple[Recovered, ...]
    counts: tuple[CountsPoint, ...]
    floor: float
    pool: int
    n_items: int
    n_left_out: int
    n_reserved: float
    n_draws: int
    resamples: Resamples
    min_reserved: int

    @property
    def notes(self) -> list[str]:
        """Limits of the conclusions if items have few labels."""
        notes = []
        if self.pool + self.min_reserved < POOL_SIZE + RESERVED_SIZE:
            sizes = f"up to {self.pool} are shown and at least {self.min_reserved} reserved"
            usual = f"{POOL_SIZE} and {RESERVED_SIZE} if there are enough"
            notes.append(f"items have few annotators: {sizes} ({usual})")
        if self.min_reserved < MIN_INFORMATIVE_RESERVED:
            limit = "models can be ranked, but their distance to the population is mostly noise"
            notes.append(f"few labels are reserved ({self.min_reserved} per item): {limit}")
        return notes

    def best(self, name: str, labels_shown: int) -> Recovered:
        """Return the model of a group with the lowest mean KL, chosen in hindsight like the smoothing.

        Parameters
        ----------
        name
            Name of a group.
        labels_shown
            A number R of labels that was shown.
        """
        group = [row for row in self.results if (row.name, row.labels_shown) == (name, labels_shown)]
        if not group:
            done = dict.fromkeys(f"{row.name} with {row.labels_shown}" for row in self.results)
            raise DataError(f"{name!r} was not run with {labels_shown} labels; choose from {', '.join(done)}")
        return min(group, key=lambda row: row.kl.value)

    def difference(self, first: str, second: str, labels_shown: int) -> Interval:
        """Return KL of ``first`` minus KL of ``second`` (groups, or "counts"), on the same resamples.

        Parameters
        ----------
        first
            A group, or ``"counts"``.
        second
            Another group, or ``"counts"``.
        labels_shown
            A number R of labels that was shown.
        """
        names = {row.name for row in self.results}

        def rows(name: str) -> Array:
            is_counts = name == COUNTS and name not in names
            return (self.counts[labels_shown - 1] if is_counts else self.best(name, labels_shown)).rows

        return self.resamples.interval(rows(first) - rows(second))

    def rows(self, every: bool = False) -> list[dict[str, Any]]:
        """Return one row for each number of labels and group (its best model), or for every model."""
        shown = dict.fromkeys((row.labels_shown, row.name) for row in self.results)
        best = [self.best(name, labels_shown) for labels_shown, name in sorted(shown, key=lambda x: x[0])]
        rows = []
        for row in self.results if every else best:
            fit = {"labels_shown": row.labels_shown, "name": row.name, "model": row.model}
            divergence = {"kl": row.kl.value, "low": row.kl.low, "high": row.kl.high, "floor": self.floor}
            counts = self.counts[row.labels_shown - 1].kl.value
            efficiency = efficiency_words(row.efficiency, self.pool)
            others = {"counts": counts, "efficiency": efficiency, "seconds": row.seconds}
            rows.append(fit | divergence | others)
        return rows

    def to_frame(self, every: bool = False) -> Any:
        """Return the rows as a pandas data frame.

        Parameters
        ----------
        every
            Whether to include every model, or only the best of each group.
        """
        return require("pandas", "pandas").DataFrame(self.rows(every))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, without the values per item."""
        names = ("n_items", "n_left_out", "pool", "min_reserved", "notes", "n_draws", "floor")
        return {
            **{name: getattr(self, name) for name in names},
            "reserved_labels_per_item": self.n_reserved,
            "counts": [point.to_dict() for point in self.counts],
            "models": self.rows(every=True),
        }

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(row.name for row in self.results))
        return f"Recovery({names}; {self.n_items:,} items, {self.n_draws} draws, floor {self.floor:.4f})"


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
    """Compare the estimates of models shown R labels per item with reserved labels.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    models
        Name → model, or → several models: a group, whose best model at each R is reported. A list of models
        or of their command-line names is also accepted.
    labels_shown
        Values of R, at most ``pool``; None: 1, 2, 4, … up to ``pool``.
    pool, min_reserved
        Number of pairs of each item that may be shown; all others are reserved. Items with fewer than
        ``pool + min_reserved`` pairs are excluded. None: 8 and 6, or less if items have fewer annotators
        (see ``Recovery.notes``).
    n_draws
        Number of random draws of R labels from the pool; the labels of a draw are nested in R.
    weight_by
        ``"labels"`` or ``"annotators"`` for every model with that setting; None leaves it unchanged.
    smoothing
        Value added to both arguments of the KL divergence.
    n_boot
        Number of resamples of items and draws for the 95 % intervals.
    n_jobs, executor, progress, seed
        As in :func:`dissensus.select`. The result does not depend on the number of jobs.
    """
    annotations = as_annotations(labels)
    min_pool = None if labels_shown is None or pool is not None else max(labels_shown, default=1)
    largest = min_pool if pool is None else pool
    options = {"min_reserved": min_reserved, "n_draws": n_draws, "weight_by": weight_by}
    check_rules("recover", RECOVERY_RULES, pool=largest, **options)
    if labels_shown is not None and not all(1 <= R <= (largest or 0) for R in labels_shown or [0]):
        rule = f"integers from 1 to the pool of {largest}"
        raise bad_parameter("recover", "labels_shown", rule, tuple(labels_shown))
    groups = _groups(models, weight_by)
    pool, min_reserved = adapt_sizes(pairs_per_item(annotations), pool, min_reserved)
    if min_pool is not None and min_pool > pool:
        pool, min_reserved = adapt_sizes(pairs_per_item(annotations), min_pool, None)
    labels_shown = powers(pool) if labels_shown is None else labels_shown
    design = Design.of(annotations, pool, min_reserved, seed, smoothing)
    resamples = Resamples(n_draws, design.pool.n_items, n_boot, seed)
    members = [(name, index) for name, group in groups.items() for index in range(len(group))]
    cells = [(*member, R) for R in dict.fromkeys(labels_shown) for member in members]
    # largest R first: these fits take longest
    plan = [(*cell, draw) for cell in sorted(cells, key=lambda cell: -cell[2]) for draw in range(n_draws)]
    done: dict[PlannedFit, tuple[Array, float]] = {}
    with shown(progress) as report:
        report("smoothed counts", 0.0)
        counts = counts_curve(design, n_draws, resamples)
        clock = Clock(report, len(plan))
        with workers((design, groups), len(plan), n_jobs=n_jobs, executor=executor) as tasks:
            for planned, result in tasks.completed(run_fit, plan):
                done[planned] = result
                clock.tick(1, f"{len(done)} of {len(plan)}: {planned[0]}, {planned[2]} labels")
    curve, results = [point.kl.value for point in counts], list[Recovered]()
    for name, index, R in cells:  # combine all draws
        fits = [done[name, index, R, draw] for draw in range(n_draws)]
        rows, seconds = np.array([kl for kl, _ in fits]), float(np.mean([spent for _, spent in fits]))
        kl, model = resamples.interval(rows), repr(groups[name][index])
        results.append(Recovered(name, model, R, rows, kl, label_efficiency(kl.value, curve), seconds))
    n_items, n_reserved = design.pool.n_items, design.reserved.n_labels / design.pool.n_items
    sizes = pool, n_items, design.n_left_out, n_reserved, n_draws
    return Recovery(tuple(results), counts, design.floor, *sizes, resamples, min_reserved)


def _groups(models: Models, weight_by: str | None) -> dict[str, list[Any]]:
    """Return unfitted copies of the models by group."""
    if not isinstance(models, Mapping):
        models = {model if isinstance(model, str) else repr(model): model for model in models}
    if not models:
        raise bad_parameter("recover", "models", "at least one model", models)
    groups: dict[str, list[Any]] = {}
    settings = {"estimate": "population"} | ({} if weight_by is None else {"weight_by": weight_by})
    for name, members in models.items():
        groups[name] = []
        for member in members if isinstance(members, list | tuple) else [members]:
            model = build_model(member, {}) if isinstance(member, str) else member
            params = model.get_params(deep=False)
            model = with_settings(model, {k: v for k, v in settings.items() if k in params})
            if hasattr(model, "check_params"):
                model.check_params()
            groups[name].append(model)
    return groups
