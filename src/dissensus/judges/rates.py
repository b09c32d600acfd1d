"""Corrected rates: the human share of a class over all items, if humans labelled only some of them.

A judge labelled all items, humans some. Y_i is the share of the item's humans who answer the class (for
ordered answers also their mean value), f_i the judge's answer: 1 or 0 (or its value). n items are labelled by
both, N by the judge alone.

Prediction-powered inference with a tuned weight (PPI++; Angelopoulos, Duchi and Zrnic 2023):

    θ = λ mean_N(f) + mean_n(Y − λ f),   λ = cov_n(Y, f) / ((1 + n/N) var(f)) within [0, 1]

It assumes that the labelled items are a random sample of all items, and nothing about the judge: a bad one
gets λ near 0. The estimator of Rogan and Gladen (1978), with the sensitivity a = P(f = 1 | humans answer the
class) and the false alarm rate b = P(f = 1 | they do not) from the labelled items, and q the judge's share
over all items, is

    θ = (q − b) / (a − b)

It assumes only that the judge's error rates are the same on labelled and other items, so that items may be
selected by class; in return it is less precise. Its interval is Fieller's: all θ not rejected by a test of
q = θ a + (1 − θ) b.

The interval of PPI++ has the usual width, but its centre is shifted for skewness (Johnson 1978): without the
shift, shares near 0 or 1 would be missed too often on one side.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from dissensus.judges.answers import JudgeAnswers
from dissensus.labels.annotations import Annotations
from dissensus.numerics import Array, Mask
from dissensus.params import real

MIN_RATE_ITEMS = 50  # items labelled by humans and the judge
MIN_CLASS_ITEMS = 10  # labelled items of the class, and of the other classes
MEAN_CLASS = "mean"  # class name in the row of the mean of ordered answers
LEVEL_RULES = {"level": real(0.5, 0.999)}


@dataclass(frozen=True)
class Estimate:
    """A share (or mean) and its interval; NaN if it is refused, with the reason."""

    value: float
    low: float
    high: float
    refused: str = ""


@dataclass(frozen=True)
class Rate:
    """Share of one class in one group of items, from a judge's labels and some human labels."""

    judge: str
    group: str  # "" for all items
    class_name: str
    n_human_items: int
    n_items: int
    humans_alone: Estimate
    rogan_gladen: Estimate
    ppi: Estimate
    tuning: float  # λ
    judge_share: float  # uncorrected share

    def as_row(self) -> dict[str, Any]:
        """Return the rate as one row of plain values."""
        row: dict[str, Any] = {"judge": self.judge, "group": self.group, "class": self.class_name}
        row |= {name: getattr(self, name) for name in ("n_human_items", "n_items", "judge_share")}
        for name in ("humans_alone", "rogan_gladen", "ppi"):
            estimate: Estimate = getattr(self, name)
            row |= {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}
        refused = self.ppi.refused
        if self.rogan_gladen.refused and not refused:
            refused = f"Rogan–Gladen: {self.rogan_gladen.refused}"
        return row | {"tuning": self.tuning, "refused": refused}


def class_rates(answers: JudgeAnswers, judge: int, by: str | None, level: float) -> Iterator[Rate]:
    """Yield the share of every class (and the mean of ordered answers), over all items and by a column."""
    answer, counts = answers.answers_of(judge), answers.human_counts
    n_humans = counts.sum(axis=1)
    for group, members in item_groups(answers.annotations, by):
        labelled = np.flatnonzero(members & (answer >= 0) & (n_humans > 0))
        others = np.flatnonzero(members & (answer >= 0) & (n_humans == 0))
        shares = counts[labelled] / n_humans[labelled, None]
        name = str(answers.annotations.annotators[judge])
        classes = () if answers.annotations.label_type == "numeric" else answers.annotations.classes
        for p, class_name in enumerate(classes):
            f, F = (answer[labelled] == p).astype(np.float64), (answer[others] == p).astype(np.float64)
            yield rate(name, group, str(class_name), shares[:, p], f, F, level, is_share=True)
        if answers.values is not None:
            f, F = answers.values[answer[labelled]], answers.values[answer[others]]
            yield rate(name, group, MEAN_CLASS, shares @ answers.values, f, F, level, is_share=False)


def item_groups(annotations: Annotations, by: str | None) -> Iterator[tuple[str, Mask]]:
    """Yield all items, then those of every value of a column of the item table."""
    yield "", np.ones(annotations.n_items, dtype=bool)
    if by is not None:
        values = np.array(["" if v is None else str(v) for v in annotations.item_column(by)], dtype=object)
        for value in sorted(set(values.tolist()) - {""}):
            yield value, values == value


def rate(
    judge: str, group: str, class_name: str, Y: Array, f: Array, F: Array, level: float, *, is_share: bool
) -> Rate:
    """Return both corrections of one share, and the share among the labelled items."""
    n, N = len(Y), len(F)
    reason = refusal(Y, F, is_share)
    humans = ppi = Estimate(math.nan, math.nan, math.nan, reason)
    tuning = math.nan
    correction = Estimate(math.nan, math.nan, math.nan, reason if is_share else "defined for shares only")
    if not reason:
        humans, _ = prediction_powered(Y, np.zeros(n), np.zeros(0), level)
        ppi, tuning = prediction_powered(Y, f, F, level)
        correction = rogan_gladen(Y, f, F, level) if is_share else correction
    bounds = (0.0, 1.0) if is_share else (-math.inf, math.inf)

    def clipped(estimate: Estimate) -> Estimate:
        value, low, high = np.clip([estimate.value, estimate.low, estimate.high], *bounds).tolist()
        return Estimate(value, low, high, estimate.refused)

    all_answers = np.concatenate([f, F])
    return Rate(
        judge, group, class_name, n, n + N, clipped(humans), clipped(correction), clipped(ppi), tuning,
        float(all_answers.mean()) if len(all_answers) else math.nan,
    )  # fmt: skip


def refusal(Y: Array, F: Array, is_share: bool) -> str:
    """Return the reason for no interval, with the number of items needed; "" if there are enough."""
    n = len(Y)
    least = min(float(Y.sum()), n - float(Y.sum())) if is_share else math.inf
    if n >= MIN_RATE_ITEMS and least >= MIN_CLASS_ITEMS:
        return ""
    # enough for ten expected items of the rarer side, which counts as half an item if it was never seen
    needed = MIN_RATE_ITEMS
    if is_share and n:
        needed = max(needed, math.ceil(MIN_CLASS_ITEMS * n / max(least, 0.5)))
    total = f" (there are {n + len(F):,} in all)" if needed > n + len(F) else ""
    return f"{n:,} items have human labels; about {needed:,} are needed{total}"


def prediction_powered(Y: Array, f: Array, F: Array, level: float) -> tuple[Estimate, float]:
    """Return the PPI++ estimate of a mean and its weight λ; without further items, the mean of Y."""
    n, N = len(Y), len(F)
    # λ = cov_n(Y, f) / ((1 + n/N) var(f)), within [0, 1]; 0 without further items
    tuning, spread = 0.0, np.concatenate([f, F]).var(ddof=1) if n + N > 1 else 0.0
    if N and spread > 0:
        covariance = ((Y - Y.mean()) * (f - f.mean())).mean()
        tuning = float(np.clip(covariance / ((1 + n / N) * spread), 0.0, 1.0))
    rest = Y - tuning * f
    value = float(rest.mean()) + (tuning * float(F.mean()) if N else 0.0)
    # var θ = var_n(Y − λ f) / n + λ² var_N(f) / N
    centred, others = rest - rest.mean(), tuning * (F - F.mean()) if N else F
    variance = (centred**2).sum() / (n - 1) / n + ((others**2).sum() / max(N - 1, 1) / N if N else 0.0)
    z = float(stdtrit(n - 1, (1 + level) / 2))
    half = z * math.sqrt(variance)
    # Johnson's shift: (1 + 2 z²) μ₃ / (6 σ²), with μ₃ and σ² of θ
    third = (centred**3).sum() / n**3 + ((others**3).sum() / N**3 if N else 0.0)
    shift = (1 + 2 * z**2) * third / (6 * variance) if variance > 0 else 0.0
    return Estimate(value, min(value, value + shift - half), max(value, value + shift + half)), tuning


def rogan_gladen(Y: Array, f: Array, F: Array, level: float) -> Estimate:
    """Return the corrected share with Fieller's interval, or the reason for none."""
    n, T = len(Y), len(Y) + len(F)
    of_class, other = Y.sum(), (1 - Y).sum()
    q = (f.sum() + F.sum()) / T
    a, b = (Y * f).sum() / of_class, ((1 - Y) * f).sum() / other
    # linearised: contributions of each labelled item to the errors of q − b and b − a
    alarm = (1 - Y) * (f - b) / other
    constant, slope = (f - q) / T - alarm, alarm - Y * (f - a) / of_class
    cc = (constant**2).sum() + ((F - q) ** 2).sum() / T**2
    cs, ss = (constant * slope).sum(), (slope**2).sum()
    z2 = float(stdtrit(n - 1, (1 + level) / 2)) ** 2
    # all θ with (q − b − θ (a − b))² ≤ z² (cc + 2 θ cs + θ² ss): between the roots of a quadratic
    A, B, C = (a - b) ** 2 - z2 * ss, (q - b) * (a - b) + z2 * cs, (q - b) ** 2 - z2 * cc
    if a <= b or A <= 0:
        words = "the judge distinguishes the class too poorly for a correction by its error rates"
        return Estimate(math.nan, math.nan, math.nan, words)
    root = math.sqrt(max(B * B - A * C, 0.0))
    return Estimate(float((q - b) / (a - b)), (B - root) / A, (B + root) / A)
