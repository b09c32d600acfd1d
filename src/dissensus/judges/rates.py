"""Corrected rates: the share of a class among humans over all items, where humans labelled few of them.

A judge labelled all items, humans some. Y_i is the share of the item's humans who answer the class (for
ordered answers also the mean of their numbers), f_i what the judge says: 1 or 0 (or its number). Labelled
items are those with both, n of them; N items have the judge alone.

Prediction-powered inference with a tuned weight (PPI++; Angelopoulos, Duchi and Zrnic 2023):

    θ = λ mean_N(f) + mean_n(Y − λ f),   λ = cov_n(Y, f) / ((1 + n/N) var(f)) within [0, 1]

It assumes that the labelled items are a random sample of all items, and nothing of the judge: a bad one gets
λ near 0. Rogan and Gladen (1978), with sensitivity a = P(f = 1 | humans say the class) and the false alarms
b = P(f = 1 | they do not), both from the labelled items, and q the judge's share over all items:

    θ = (q − b) / (a − b)

It assumes only that the judge errs on other items as it does on the labelled ones, which may be chosen by
class; for that it is less exact. Its interval is Fieller's: every θ that a test of q = θ a + (1 − θ) b
keeps.

The interval of PPI++ is as wide as the usual one, but its centre is moved for skewness (Johnson 1978):
without it, shares near 0 or 1 would be missed on one side too often.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dissensus.judges.answers import Answers
from dissensus.labels.annotations import Annotations
from dissensus.numerics import Array
from dissensus.params import real

LEAST_ITEMS = 50  # items with labels of humans and the judge, at least
LEAST_OF_CLASS = 10  # labelled items' worth of the class, and of all others, at least
MEAN = "mean"  # the "class" of the mean of ordered answers
LEVELS = {"level": real(0.5, 0.999)}


@dataclass(frozen=True)
class Estimate:
    """A share (or mean) and its interval; not a number where it is refused, with the reason."""

    value: float
    low: float
    high: float
    refused: str = ""

    @property
    def width(self) -> float:
        """From end to end."""
        return self.high - self.low


@dataclass(frozen=True)
class Rate:
    """The share of one class in one group of items, from one judge's labels and some of humans."""

    judge: str
    group: str  # "" for all items
    class_name: str
    n_human_items: int
    n_items: int
    humans_alone: Estimate
    rogan_gladen: Estimate
    ppi: Estimate
    tuning: float  # λ
    judge_share: float  # uncorrected
    items_to_halve: float  # more items for humans to label until PPI++'s interval is half as wide

    def as_row(self) -> dict[str, Any]:
        """Plain values for a table."""
        row: dict[str, Any] = {"judge": self.judge, "group": self.group, "class": self.class_name}
        row |= {name: getattr(self, name) for name in ("n_human_items", "n_items", "judge_share")}
        for name in ("humans_alone", "rogan_gladen", "ppi"):
            found: Estimate = getattr(self, name)
            row |= {name: found.value, f"{name}_low": found.low, f"{name}_high": found.high}
        reasons = {self.ppi.refused: 0, self.rogan_gladen.refused: 0}
        refused = "; ".join(reason for reason in reasons if reason)
        return row | {"tuning": self.tuning, "items_to_halve": self.items_to_halve, "refused": refused}


def rates_of(answers: Answers, judge: int, by: str | None = None, level: float = 0.95) -> Iterator[Rate]:
    """Every class's share (and, for ordered answers, the mean), over all items and by an item column."""
    given = answers.answers_of(judge)
    counts = answers.human_counts
    n_humans = counts.sum(axis=1)
    for group, members in item_groups(answers.annotations, by):
        labelled = np.flatnonzero(members & (given >= 0) & (n_humans > 0))
        others = np.flatnonzero(members & (given >= 0) & (n_humans == 0))
        shares = counts[labelled] / n_humans[labelled, None]
        name = str(answers.annotations.annotators[judge])
        classes = () if answers.annotations.label_type == "numeric" else answers.annotations.classes
        for p, class_name in enumerate(classes):
            f, F = (given[labelled] == p).astype(np.float64), (given[others] == p).astype(np.float64)
            yield rate(name, group, str(class_name), shares[:, p], f, F, level, is_share=True)
        if answers.values is not None:
            numbers, v = answers.values, given
            Y = shares @ numbers
            yield rate(name, group, MEAN, Y, numbers[v[labelled]], numbers[v[others]], level, is_share=False)


def item_groups(annotations: Annotations, by: str | None) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """All items, then those of every value of a column of the item table."""
    yield "", np.ones(annotations.n_items, dtype=bool)
    if by is not None:
        values = np.array(["" if v is None else str(v) for v in annotations.item_column(by)], dtype=object)
        for value in sorted(set(values.tolist()) - {""}):
            yield value, values == value


def rate(
    judge: str, group: str, class_name: str, Y: Array, f: Array, F: Array, level: float, *, is_share: bool
) -> Rate:
    """Both corrections of one share, and that of the labelled items alone."""
    n, N = len(Y), len(F)
    reason = too_few(Y, F, is_share)
    nothing = Estimate(math.nan, math.nan, math.nan, reason)
    humans, found, tuning = nothing, nothing, math.nan
    correction = Estimate(math.nan, math.nan, math.nan, reason if is_share else "it is for shares alone")
    if not reason:
        humans, _ = prediction_powered(Y, np.zeros(n), np.zeros(0), level)
        found, tuning = prediction_powered(Y, f, F, level)
        correction = rogan_gladen(Y, f, F, level) if is_share else correction
    bounds = (0.0, 1.0) if is_share else (-math.inf, math.inf)

    def clipped(one: Estimate) -> Estimate:
        value, low, high = np.clip([one.value, one.low, one.high], *bounds).tolist()
        return Estimate(value, low, high, one.refused)

    both = np.concatenate([f, F])
    return Rate(
        judge, group, class_name, n, n + N, clipped(humans), clipped(correction), clipped(found), tuning,
        float(both.mean()) if len(both) else math.nan,
        math.nan if reason else items_to_halve(Y, f, F, tuning),
    )  # fmt: skip


def too_few(Y: Array, F: Array, is_share: bool) -> str:
    """Why there is no interval, and how many items labelled by humans there should be; "" where enough."""
    n, of_class = len(Y), float(Y.sum()) if is_share else math.inf
    least = min(of_class, n - of_class) if is_share else math.inf
    if n >= LEAST_ITEMS and least >= LEAST_OF_CLASS:
        return ""
    # so many that the rarer side is expected to be there ten times; half an item where it was never seen
    needed = LEAST_ITEMS
    if is_share and n:
        needed = max(needed, math.ceil(LEAST_OF_CLASS * n / max(least, 0.5)))
    at_most = f", of {n + len(F):,}" if needed > n + len(F) else ""
    return f"{n:,} items have labels of humans, and about {needed:,} are needed{at_most}"


def prediction_powered(Y: Array, f: Array, F: Array, level: float) -> tuple[Estimate, float]:
    """PPI++ of a mean, and its weight λ; without further items, the mean of Y."""
    n, N = len(Y), len(F)
    # λ = cov_n(Y, f) / ((1 + n/N) var(f)), within [0, 1]; 0 without further items
    tuning, spread = 0.0, np.concatenate([f, F]).var(ddof=1) if n + N > 1 else 0.0
    if N and spread > 0:
        covariance = ((Y - Y.mean()) * (f - f.mean())).mean()
        tuning = float(np.clip(covariance / ((1 + n / N) * spread), 0.0, 1.0))
    rest = Y - tuning * f
    value = float(rest.mean()) + (tuning * float(F.mean()) if N else 0.0)
    # var θ = var_n(Y − λ f) / n + λ² var_N(f) / N
    centred, far = rest - rest.mean(), tuning * (F - F.mean()) if N else F
    variance = (centred**2).sum() / (n - 1) / n + ((far**2).sum() / max(N - 1, 1) / N if N else 0.0)
    z = float(stdtrit(n - 1, (1 + level) / 2))
    half = z * math.sqrt(variance)
    # Johnson's shift: (1 + 2 z²) μ₃ / (6 σ²), μ₃ and σ² being those of θ
    third = (centred**3).sum() / n**3 + ((far**3).sum() / N**3 if N else 0.0)
    shift = (1 + 2 * z**2) * third / (6 * variance) if variance > 0 else 0.0
    return Estimate(value, min(value, value + shift - half), max(value, value + shift + half)), tuning


def rogan_gladen(Y: Array, f: Array, F: Array, level: float) -> Estimate:
    """The corrected share with Fieller's interval, or why there is none."""
    n, T = len(Y), len(Y) + len(F)
    of_class, other = Y.sum(), (1 - Y).sum()
    q = (f.sum() + F.sum()) / T
    a, b = (Y * f).sum() / of_class, ((1 - Y) * f).sum() / other
    # what each labelled item adds to q − b, and to b − a: linear terms of their errors
    alarm = (1 - Y) * (f - b) / other
    constant, slope = (f - q) / T - alarm, alarm - Y * (f - a) / of_class
    cc = (constant**2).sum() + ((F - q) ** 2).sum() / T**2
    cs, ss = (constant * slope).sum(), (slope**2).sum()
    z2 = float(stdtrit(n - 1, (1 + level) / 2)) ** 2
    # all θ with (q − b − θ (a − b))² ≤ z² (cc + 2 θ cs + θ² ss): between the roots of a quadratic
    A, B, C = (a - b) ** 2 - z2 * ss, (q - b) * (a - b) + z2 * cs, (q - b) ** 2 - z2 * cc
    if a <= b or A <= 0:
        words = "the judge tells the class from others too seldom to be corrected by its errors"
        return Estimate(math.nan, math.nan, math.nan, words)
    root = math.sqrt(max(B * B - A * C, 0.0))
    return Estimate(float((q - b) / (a - b)), (B - root) / A, (B + root) / A)


def items_to_halve(Y: Array, f: Array, F: Array, tuning: float) -> float:
    """More items labelled by humans until the interval of PPI++ is half as wide, by its variance formula.

    ∞ where labels on all items that there are would not do it.
    """
    n, N = len(Y), len(F)
    labelled, far = (Y - tuning * f).var(ddof=1), tuning**2 * F.var(ddof=1) if N > 1 else 0.0
    now = labelled / n + (far / N if N else 0.0)
    for m in np.unique(np.geomspace(n + 1, n + N, 200).astype(int)) if N else []:
        left = n + N - m
        if labelled / m + (far / left if left else 0.0) <= now / 4:
            return float(m - n)
    return math.inf
