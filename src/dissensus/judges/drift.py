"""Drift of a judge since an earlier report, with false alarms at 5 % however often one looks.

Each item with labels of the judge and of humans has a score: the share of its humans who give the judge's
answer (for numbers 1 − mean D, see ``kappa.py``), minus the share of pairs of its humans who agree. If the
judge is as reliable as a human, items that are harder for all change both alike, and the score does not
change. It does for a better or a worse judge: of two classes, with humans right with probability h and the
judge with j, the mean score is (2h − 1)(j − h). The agreement of humans is therefore compared in the same
way, and if it has changed beyond its own boundary, the score's change is not called a drift of the judge. If
less than half of the earlier items, or fewer than 30, have two humans, the score is the first share alone,
and harder items look like a drift.

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

import json
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

MIN_NEW_ITEMS = 30
TIGHTEST = 500  # new items at which the boundary is narrowest
FALSE_ALARM_RATE = 0.05
TIGHTEST_RATIO = 8.212  # solves u = log(1 + u) + 2 log(1/α)


@dataclass(frozen=True)
class Drift:
    """Change of one judge's score since the baseline; an interval that holds at all times at once."""

    judge: str
    n_items: int  # new items
    score: str  # excess: agreement with humans minus that of two humans; or agreement
    change: float
    reach: float  # half-width of the interval
    human_change: float = math.nan  # change in the agreement of two humans; NaN without
    human_reach: float = math.nan

    @property
    def stable(self) -> bool:
        """True if there are 30 new items and the interval contains 0."""
        return self.n_items >= MIN_NEW_ITEMS and abs(self.change) <= self.reach

    @property
    def drifted(self) -> bool:
        """True if the score has changed, and the agreement of two humans is not shown to have changed."""
        changed = self.n_items >= MIN_NEW_ITEMS and abs(self.change) > self.reach
        return changed and not abs(self.human_change) > self.human_reach

    def in_words(self) -> str:
        """Return the change in percentage points as text."""
        if not self.score:
            return f"{self.judge}: no baseline in the earlier output, so nothing is compared"
        if self.n_items < MIN_NEW_ITEMS:
            return f"{self.judge}: {self.n_items} new items; a comparison needs {MIN_NEW_ITEMS}"
        minus = ", less that of two humans," if self.score == "excess" else ""
        change = f"{100 * self.change:+.1f} points (± {100 * self.reach:.1f}) on {self.n_items:,} new items"
        verdict = "no drift shown" if self.stable else "drifted" if self.drifted else "changed"
        words = f"{self.judge}: {verdict}; agreement with humans{minus} changed by {change}"
        if self.score == "agreement" and self.drifted:
            words += "; too few items have labels of two humans to tell if they are harder"
        if not math.isnan(self.human_change):
            words += f"; that of two humans changed by {100 * self.human_change:+.1f}"
        return words + (", which alone can do this" if verdict == "changed" else "")


def read_baseline(source: Any) -> Mapping[str, Any]:
    """Return the baseline in an earlier report: a file that ``dissensus judges -o`` wrote, or its content."""
    try:
        report = source if isinstance(source, Mapping) else json.loads(Path(source).read_text("utf-8"))
        return {name: report["baseline"][name] for name in ("items", "scale", "judges")}
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
        two = np.isfinite(human)
        excess = two.sum() >= max(MIN_NEW_ITEMS, len(two) / 2)
        values = (agreement - human)[two] if excess else agreement
        if len(values) >= MIN_NEW_ITEMS:
            judges[name] = {"score": "excess" if excess else "agreement", "n_items": float(len(values))}
            columns = {"": values} | ({"human_": human[two]} if excess else {})
            for prefix, x in columns.items():
                judges[name] |= {f"{prefix}mean": float(x.mean()), f"{prefix}variance": float(x.var())}
    return {"items": sorted(scored), "scale": scale, "judges": judges}


def drifts(answers: JudgeAnswers, earlier: Mapping[str, Any]) -> Iterator[Drift]:
    """Compare the judges with a ``baseline``; judges that it lacks have no score."""
    old_items = set(earlier["items"])
    is_new = np.array([str(item) not in old_items for item in answers.annotations.items], dtype=bool)
    for name, judge in zip(answers.names, answers.judges, strict=True):
        if (before := earlier["judges"].get(name)) is None:
            yield Drift(name, 0, "", math.nan, math.nan)
            continue
        items, agreement, human = scores(answers, int(judge), earlier["scale"])
        values = agreement - human if before["score"] == "excess" else agreement
        new, figures = is_new[items] & np.isfinite(values), list[float]()
        for prefix, x in (("", values[new]), ("human_", human[new])):
            if len(x) and f"{prefix}mean" in before:
                moments = before | {end: before[prefix + end] for end in ("mean", "variance")}
                figures += map(float, change_and_reach(moments, len(x), x.sum(), (x**2).sum()))
        yield Drift(name, int(new.sum()), before["score"], *(figures or [math.nan] * 2))


def change_and_reach(before: Mapping[str, Any], t: Any, total: Any, squares: Any) -> tuple[Any, Any]:
    """Return x̄_t − x̄₀ and the boundary, from the number, sum and sum of squares of the new scores."""
    n0, mean0 = before["n_items"], before["mean"]
    mean = (mean0 * n0 + total) / (n0 + t)
    variance = (n0 * (before["variance"] + mean0**2) + squares) / (n0 + t) - mean**2
    # √((v + ρ) (log((v + ρ) / ρ) + 2 log(1/α))), with v = σ² a and ρ = σ² b
    a, b = 1 / t + 1 / n0, (1 / TIGHTEST + 1 / n0) / TIGHTEST_RATIO
    reach = np.sqrt(np.maximum(variance, 0.0) * (a + b) * (np.log1p(a / b) - 2 * math.log(FALSE_ALARM_RATE)))
    return total / t - mean0, reach
