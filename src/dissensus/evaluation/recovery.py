"""How close does a model come to the population, from how few labels?

Of every item with enough labels a fixed part is reserved: the same for every model and every R. A model is
shown R of the labels that are left and says what the population would answer; the reserved labels tell how
far off it is, as KL(reserved ‖ estimate) with 1e-5 added to both sides. No estimate does better on average
than the *sampling floor*: what the true distribution itself would score against so few reserved labels.

Whole (item, annotator) pairs are drawn and reserved, so "R labels" are the answers of R annotators. Items
with fewer than ``pool + min_reserved`` pairs take no part: they are neither scored nor shown to any model.

The yardstick is the item's own counts with the additive smoothing that is best in hindsight, for every R up
to the pool. *Label efficiency* reads a model's KL off that curve: how many raw labels per item the counts
need for the same KL.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dissensus.errors import DataError, bad_parameter
from dissensus.evaluation.intervals import Interval
from dissensus.evaluation.resampling import Resamples
from dissensus.evaluation.reservation import (
    CountsPoint,
    Design,
    counts_curve,
    efficiency_words,
    label_efficiency,
)
from dissensus.execution.progress import Clock, Progress, ShowProgress, shown
from dissensus.execution.tasks import workers
from dissensus.models.base import as_annotations
from dissensus.numerics import Array
from dissensus.params import stream_seed, trial_copy, with_settings

Models = Mapping[str, Any] | Sequence[Any]

COUNTS = "counts"
WEIGHTS = ("labels", "annotators")


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


@dataclass(frozen=True)
class Task:
    """One fit."""

    name: str
    place: int  # within its group
    labels_shown: int
    draw: int


@dataclass(frozen=True)
class Material:
    """What all fits share."""

    design: Design
    groups: Mapping[str, Sequence[Any]]


def attempt(material: Material, task: Task) -> tuple[Array, float]:
    """Fit one model to what one draw shows it: its KL on every item, and the seconds it took."""
    design = material.design
    seed = stream_seed(design.seed, task.name, task.place, task.labels_shown, task.draw)
    model = trial_copy(material.groups[task.name][task.place], seed, ())
    shown = design.shown(task.labels_shown, task.draw)
    started = time.perf_counter()
    estimate = model.fit(shown).label_distributions_
    return design.divergence(estimate), time.perf_counter() - started


@dataclass(frozen=True)
class Recovery:
    """How close every model came with every number of labels, beside the counts and the floor."""

    results: tuple[Recovered, ...]  # every model of every group, in the order given
    counts: tuple[CountsPoint, ...]  # R = 1 … pool
    floor: float
    pool: int
    n_items: int  # that take part
    n_left_out: int
    n_reserved: float  # labels per item, on average
    n_draws: int
    resamples: Resamples

    def best(self, name: str, labels_shown: int) -> Recovered:
        """Of a group, the model with the lowest mean KL: chosen in hindsight, like the counts' smoothing."""
        group = [one for one in self.results if (one.name, one.labels_shown) == (name, labels_shown)]
        if not group:
            raise DataError(f"{name!r} was not shown {labels_shown} labels; recover did {self._done()}")
        return min(group, key=lambda one: one.kl.value)

    def difference(self, first: str, second: str, labels_shown: int) -> Interval:
        """KL of ``first`` minus KL of ``second`` (groups, or "counts"), on the same resamples."""
        return self.resamples.interval(self._rows(first, labels_shown) - self._rows(second, labels_shown))

    def _rows(self, name: str, labels_shown: int) -> Array:
        if name == COUNTS and not any(one.name == COUNTS for one in self.results):
            return self.counts[labels_shown - 1].rows
        return self.best(name, labels_shown).rows

    def _done(self) -> str:
        return ", ".join(dict.fromkeys(f"{one.name} with {one.labels_shown}" for one in self.results))

    def rows(self, every: bool = False) -> list[dict[str, Any]]:
        """One row a number of labels and group (its best model), or every model with ``every``."""
        shown = dict.fromkeys((one.labels_shown, one.name) for one in self.results)
        best = [self.best(name, labels_shown) for labels_shown, name in sorted(shown, key=lambda x: x[0])]
        return [
            {
                "labels_shown": one.labels_shown,
                "name": one.name,
                "model": one.model,
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
        """The same as a pandas data frame."""
        import pandas as pd

        return pd.DataFrame(self.rows(every))

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
            "pool": self.pool,
            "n_draws": self.n_draws,
            "floor": self.floor,
            "counts": curve,
            "models": self.rows(every=True),
        }

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(one.name for one in self.results))
        return f"Recovery({names}; {self.n_items:,} items, {self.n_draws} draws, floor {self.floor:.4f})"


# ---- the call -----------------------------------------------------------------------------------------


def recover(
    models: Models,
    annotations: Any,
    labels_shown: Sequence[int] = (1, 2, 4, 8),
    *,
    pool: int = 8,
    min_reserved: int = 6,
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
    models
        Name → model, or → several models: a group, of which the best at each R is reported with its
        settings. A list of models or of their names on the command line does as well.
    labels_shown
        The R's, each at most ``pool``.
    pool, min_reserved
        So many pairs of each item may be shown, all others are reserved; items with fewer than
        ``pool + min_reserved`` take no part.
    n_draws
        How often R of the pool are drawn (R labels of a draw are among its R + 1).
    weight_by
        ``"labels"`` or ``"annotators"`` for every model that has the setting; None leaves each as it is.
    smoothing
        Added to both sides of the KL.
    n_boot
        Resamples of items and draws behind the 95 % intervals.
    n_jobs, executor, progress, seed
        As in :func:`dissensus.select`; the result is the same for any number of jobs.
    """
    _check(labels_shown, pool, min_reserved, n_draws, weight_by)
    groups = _groups(models, weight_by)
    design = Design.of(as_annotations(annotations), pool, min_reserved, seed, smoothing)
    resamples = Resamples(n_draws, design.pool.n_items, n_boot, seed)
    tasks = [
        Task(name, place, R, draw)
        for R in dict.fromkeys(labels_shown)
        for name, group in groups.items()
        for place in range(len(group))
        for draw in range(n_draws)
    ]
    with shown(progress) as tell:
        tell("smoothed counts", 0.0)
        counts = counts_curve(design, n_draws, resamples)
        done = _run(Material(design, groups), tasks, n_jobs, executor, tell)
    curve = [point.kl.value for point in counts]
    return Recovery(
        tuple(_recovered(one, groups, done, n_draws, resamples, curve) for one in tasks if not one.draw),
        counts,
        design.floor,
        pool,
        design.pool.n_items,
        design.n_left_out,
        design.reserved.n_labels / design.pool.n_items,
        n_draws,
        resamples,
    )


def _check(
    labels_shown: Sequence[int], pool: int, min_reserved: int, n_draws: int, weight_by: str | None
) -> None:
    for name, value in (("pool", pool), ("min_reserved", min_reserved), ("n_draws", n_draws)):
        if value < 1:
            raise bad_parameter("recover", name, "an int >= 1", value)
    if not labels_shown or min(labels_shown) < 1 or max(labels_shown) > pool:
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
    return {
        name: [
            _prepared(one, weight_by) for one in (several if isinstance(several, list | tuple) else [several])
        ]
        for name, several in models.items()
    }


def _prepared(model: Any, weight_by: str | None) -> Any:
    if isinstance(model, str):
        from dissensus.models import build_model

        model = build_model(model, {})
    wanted = {} if weight_by is None else {"weight_by": weight_by}
    prepared = with_settings(model, {k: v for k, v in wanted.items() if k in model.get_params(deep=False)})
    if hasattr(prepared, "check_params"):
        prepared.check_params()
    return prepared


def _run(
    material: Material, tasks: Sequence[Task], n_jobs: int, executor: Executor | None, tell: Progress
) -> dict[Task, tuple[Array, float]]:
    """Every fit, the last number of labels (the most) first."""
    clock, done = Clock(tell, len(tasks)), {}
    with workers(material, len(tasks), n_jobs=n_jobs, executor=executor) as pool:
        for task, found in pool.completed(attempt, sorted(tasks, key=lambda task: -task.labels_shown)):
            done[task] = found
            clock.tick(1, f"{len(done)} of {len(tasks)}: {task.name}, {task.labels_shown} labels")
    return done


def _recovered(
    task: Task,
    groups: Mapping[str, Sequence[Any]],
    done: Mapping[Task, tuple[Array, float]],
    n_draws: int,
    resamples: Resamples,
    curve: Sequence[float],
) -> Recovered:
    """All draws of one model and R put together."""
    found = [done[replace(task, draw=draw)] for draw in range(n_draws)]
    rows = np.array([kl for kl, _ in found])
    kl = resamples.interval(rows)
    seconds = float(np.mean([seconds for _, seconds in found]))
    model = repr(groups[task.name][task.place])
    efficiency = label_efficiency(kl.value, curve)
    return Recovered(task.name, model, task.labels_shown, rows, kl, efficiency, seconds)
