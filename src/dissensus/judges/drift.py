"""Drift of a judge since an earlier report, with false alarms at 5 % however often one looks.

Each item with labels of the judge and of humans has a score: the share of its humans who give the judge's
answer (for numbers 1 − mean D, see ``kappa.py``), minus the share of pairs of its humans who agree. Items
that are harder for all change both, and their difference little. If less than half of the earlier items, or
fewer than 30, have two humans, the score is the first share alone, and harder items look like a drift.

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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np

from dissensus.errors import DataError, setting
from dissensus.judges.answers import JudgeAnswers
from dissensus.judges.kappa import coordinates, human_disagreement, judge_disagreement, scale_range
from dissensus.numerics import Array, Indices

MIN_NEW_ITEMS = 30
TIGHTEST = 500  # new items at which the boundary is narrowest
ALPHA = 0.05
U = 8.212  # solves u = log(1 + u) + 2 log(1/α)


@dataclass(frozen=True)
class Drift:
    """Change of one judge's score since the baseline; an interval that holds at all times at once."""

    judge: str
    n_items: int  # new items
    score: str  # excess: agreement with humans minus that of two humans; or agreement
    change: float
    reach: float  # half-width of the interval

    @property
    def drifted(self) -> bool:
        """True if there are 30 new items and the interval does not contain 0."""
        return self.n_items >= MIN_NEW_ITEMS and abs(self.change) > self.reach

    def in_words(self) -> str:
        """Return the change in percentage points as text."""
        if self.n_items < MIN_NEW_ITEMS:
            return f"{self.judge}: {self.n_items} new items; a comparison needs {MIN_NEW_ITEMS}"
        minus = ", less that of two humans," if self.score == "excess" else ""
        change = f"{100 * self.change:+.1f} points (± {100 * self.reach:.1f}) on {self.n_items:,} new items"
        verdict = "drifted" if self.drifted else "no drift shown"
        return f"{self.judge}: {verdict}; agreement with humans{minus} changed by {change}"


def read_baseline(source: Any) -> Mapping[str, Any]:
    """Return the baseline in an earlier report: a file that ``dissensus judges -o`` wrote, or its content."""
    if not isinstance(source, Mapping):
        try:
            source = json.loads(Path(source).read_text(encoding="utf-8"))
        except ValueError:
            source = {}
    if not isinstance(source, Mapping) or not isinstance(source.get("baseline"), Mapping):
        remedy = "give the .json file that dissensus judges -o wrote"
        raise DataError(f"{setting('since')} is not an earlier comparison of judges; {remedy}")
    return cast("Mapping[str, Any]", source["baseline"])


def scores(answers: JudgeAnswers, judge: int, scale: float) -> tuple[Indices, Array, Array]:
    """Return the items that the judge and humans answered, its agreement, and that of two humans (or NaN).

    Disagreement is in units of the square of ``scale``: the range of the classes may grow as labels arrive.
    """
    answer, counts = answers.answers_of(judge), answers.human_counts
    items = np.flatnonzero((answer >= 0) & (counts.sum(axis=1) > 0))
    unit = (scale_range(answers) / scale) ** 2 if answers.annotations.label_type == "numeric" else 1.0
    e = coordinates(answers, exact=True)
    agreement = 1 - unit * judge_disagreement(e, answer[items], counts[items])[0]
    return items, agreement, 1 - unit * human_disagreement(e, counts[items])[0]


def baseline(answers: JudgeAnswers) -> dict[str, Any]:
    """Return what a later report needs: the items, and number, mean and variance of each judge's scores."""
    judges, scored = dict[str, Any](), np.zeros(answers.annotations.n_items, dtype=bool)
    scale = scale_range(answers)
    for judge in answers.judges:
        items, agreement, human = scores(answers, int(judge), scale)
        scored[items] = True
        two = np.isfinite(human)
        excess = two.sum() >= max(MIN_NEW_ITEMS, len(two) / 2)
        values = (agreement - human)[two] if excess else agreement
        if len(values) >= MIN_NEW_ITEMS:
            moments = {"n_items": len(values), "mean": float(values.mean()), "variance": float(values.var())}
            name = str(answers.annotations.annotators[judge])
            judges[name] = moments | {"score": "excess" if excess else "agreement"}
    names = [str(item) for item in answers.annotations.items[scored]]
    return {"items": names, "scale": scale, "judges": judges}


def drifts(answers: JudgeAnswers, earlier: Mapping[str, Any]) -> list[Drift]:
    """Compare the judges with a ``baseline``; judges that it lacks are left out."""
    old_items, result = set(earlier["items"]), list[Drift]()
    for judge in answers.judges:
        name = str(answers.annotations.annotators[judge])
        before = earlier["judges"].get(name)
        if before is None:
            continue
        items, agreement, human = scores(answers, int(judge), earlier["scale"])
        values = agreement - human if before["score"] == "excess" else agreement
        new = np.array([str(item) not in old_items for item in answers.annotations.items[items]], dtype=bool)
        values = values[new & np.isfinite(values)]
        change = reach = math.nan
        if len(values):
            sums = len(values), float(values.sum()), float((values**2).sum())
            change, reach = (float(x) for x in change_and_reach(before, *sums))
        result.append(Drift(name, len(values), before["score"], change, reach))
    return result


def change_and_reach(before: Mapping[str, Any], t: Any, total: Any, squares: Any) -> tuple[Any, Any]:
    """Return x̄_t − x̄₀ and the boundary, from the number, sum and sum of squares of the new scores."""
    n0, mean0 = before["n_items"], before["mean"]
    both = mean0 * n0 + total
    variance = (n0 * (before["variance"] + mean0**2) + squares) / (n0 + t) - (both / (n0 + t)) ** 2
    variance = np.maximum(variance, 0.0)
    v, rho = variance * (1 / t + 1 / n0), variance * (1 / TIGHTEST + 1 / n0) / U
    # √((v + ρ) (log((v + ρ) / ρ) + 2 log(1/α))); v / ρ does not depend on σ²
    ratio = (1 / t + 1 / n0) / (1 / TIGHTEST + 1 / n0) * U
    return total / t - mean0, np.sqrt((v + rho) * (np.log1p(ratio) + 2 * math.log(1 / ALPHA)))
