"""Drift of a judge since an earlier report, with false alarms at 5 % however often one looks.

Each item with labels of the judge and of humans has a score: the share of its humans who give the judge's
answer (for numbers 1 − mean D, see ``kappa.py``). A change of the mean score is called a drift unless more
than a third of it is shared by the agreement of two humans on the same items: items that are harder for all
lower both. If less than half of the earlier or of the new items, or fewer than 30, have two humans, harder
items look like a drift.

The earlier report is a fixed baseline: n₀ items with mean x̄₀. New items are those that are not among them.
After t new items with mean x̄_t, D_t = x̄_t − x̄₀ behaves like a Brownian motion at the "time"

    v_t = σ² (1/t + 1/n₀),

since cov(D_s, D_t) = σ² (1/max(s, t) + 1/n₀) = min(v_s, v_t). v_t decreases as t grows; by inversion of time,
the boundary of a normal mixture (Robbins 1970) holds for all t at once:

    P(|D_t| ≥ √((v_t + ρ) (log((v_t + ρ) / ρ) + 2 log(1/α))) for some t) ≤ α

It is narrowest at v if v/ρ = u with u = log(1 + u) + 2 log(1/α); ρ is chosen so for t = 500. σ² is the
variance of all scores, earlier and new, around their common mean: without drift, both have the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.errors import DataError, setting
from dissensus.judges.answers import JudgeAnswers
from dissensus.judges.kappa import coordinates, human_disagreement, judge_disagreement, scale_range
from dissensus.numerics import Array, Indices
from dissensus.tables.json_lines import PLAIN_DECODER

MIN_NEW_ITEMS = 30
TIGHTEST = 500  # new items at which the boundary is narrowest
FALSE_ALARM_RATE = 0.05
TIGHTEST_RATIO = 8.212  # solves u = log(1 + u) + 2 log(1/α)
SHARED_CHANGE = 1 / 3  # share of the change that two humans share, above which it is no drift
STABLE, DRIFTED = "no drift shown", "drifted"


@dataclass(frozen=True)
class Drift:
    """Change of one judge's score since the baseline; an interval that holds at all times at once."""

    judge: str
    n_items: int | None  # new items; None without a baseline
    change: float = math.nan
    reach: float = math.nan  # half-width of the interval
    human_change: float = math.nan  # change in the agreement of two humans; NaN if too few items have two

    @property
    def verdict(self) -> str:
        """``no drift shown``, ``changed`` or ``drifted``; empty if nothing is compared."""
        if self.n_items is None or self.n_items < MIN_NEW_ITEMS:
            return ""
        if abs(self.change) <= self.reach:
            return STABLE
        return "changed" if self.human_change / self.change > SHARED_CHANGE else DRIFTED

    def in_words(self) -> str:
        """Return the change in percentage points as text."""
        if self.n_items is None:
            return f"{self.judge}: no baseline in the earlier output, so nothing is compared"
        if not self.verdict:
            number = f"{self.n_items} new items with labels of humans"
            return f"{self.judge}: {number}; a comparison needs {MIN_NEW_ITEMS}"
        change = f"{100 * self.change:+.1f} points (± {100 * self.reach:.1f}) on {self.n_items:,} new items"
        words = f"{self.judge}: {self.verdict}; agreement with humans changed by {change}"
        if not math.isnan(self.human_change):
            words += f", that of two humans by {100 * self.human_change:+.1f}"
            return words + (": the items may have changed" if self.verdict == "changed" else "")
        unknown = "; too few items have labels of two humans to tell if they are harder"
        return words + (unknown if self.verdict == DRIFTED else "")


def read_baseline(source: Any) -> Mapping[str, Any]:
    """Return the baseline in an earlier report: a file that ``dissensus judges -o`` wrote, or its content."""
    try:
        report = (
            source if isinstance(source, Mapping) else PLAIN_DECODER.decode(Path(source).read_text("utf-8"))
        )
        return {name: report["baseline"][name] for name in ("items", "scale", "agreement")}
    except (ValueError, KeyError, TypeError):
        remedy = "give the .json file that dissensus judges -o wrote"
        raise DataError(f"{setting('since')} is not an earlier comparison of judges; {remedy}") from None


def scores(answers: JudgeAnswers, judge: int, scale: float) -> tuple[Indices, Array, Array]:
    """Return the items that the judge and humans answered, its agreement, and that of two humans (or NaN)."""
    answer, counts, e = answers.answers_of(judge), answers.human_counts, coordinates(answers, scale)
    items = np.flatnonzero((answer >= 0) & (counts.sum(axis=1) > 0))
    agreement = 1 - judge_disagreement(e, answer[items], counts[items])[0]
    return items, agreement, 1 - human_disagreement(e, counts[items])[0]


def baseline(answers: JudgeAnswers) -> dict[str, Any]:
    """Return what a later report needs: the items, and number, mean and variance of each judge's scores."""
    judges, scale, scored = dict[str, Any](), scale_range(answers), set[str]()
    for name, judge in zip(answers.names, answers.judges, strict=True):
        items, agreement, human = scores(answers, int(judge), scale)
        scored |= set(map(str, answers.annotations.items[items]))
        if len(items) >= MIN_NEW_ITEMS:
            moments = {"mean": float(agreement.mean()), "variance": float(agreement.var())}
            judges[name] = {"n_items": len(items), **moments}
            if enough_pairs(human):
                judges[name]["human_mean"] = float(np.nanmean(human))
    return {"items": sorted(scored), "scale": scale, "agreement": judges}


def drifts(answers: JudgeAnswers, earlier: Mapping[str, Any]) -> Iterator[Drift]:
    """Compare the judges with a ``baseline``."""
    old_items = set(earlier["items"])
    is_new = np.array([str(item) not in old_items for item in answers.annotations.items], dtype=bool)
    for name, judge in zip(answers.names, answers.judges, strict=True):
        if (before := earlier["agreement"].get(name)) is None:
            yield Drift(name, None)
            continue
        items, agreement, human = scores(answers, int(judge), earlier["scale"])
        x, human = agreement[is_new[items]], human[is_new[items]]
        if len(x) < MIN_NEW_ITEMS:
            yield Drift(name, len(x))
            continue
        change, reach = map(float, change_and_reach(before, len(x), x.sum(), (x**2).sum()))
        human_mean = float(np.nanmean(human)) if enough_pairs(human) else math.nan
        yield Drift(name, len(x), change, reach, human_mean - before.get("human_mean", math.nan))


def enough_pairs(human: Array) -> bool:
    """Return True if half of the items, and 30, have two humans; ``human`` is NaN for the others."""
    return bool(np.isfinite(human).sum() >= max(MIN_NEW_ITEMS, len(human) / 2))


def change_and_reach(before: Mapping[str, Any], t: Any, total: Any, squares: Any) -> tuple[Any, Any]:
    """Return x̄_t − x̄₀ and the boundary, from the number, sum and sum of squares of the new scores."""
    n0, mean0 = before["n_items"], before["mean"]
    mean = (mean0 * n0 + total) / (n0 + t)
    variance = (n0 * (before["variance"] + mean0**2) + squares) / (n0 + t) - mean**2
    # √((v + ρ) (log((v + ρ) / ρ) + 2 log(1/α))), with v = σ² a and ρ = σ² b
    a, b = 1 / t + 1 / n0, (1 / TIGHTEST + 1 / n0) / TIGHTEST_RATIO
    reach = np.sqrt(np.maximum(variance, 0.0) * (a + b) * (np.log1p(a / b) - 2 * math.log(FALSE_ALARM_RATE)))
    return total / t - mean0, reach
