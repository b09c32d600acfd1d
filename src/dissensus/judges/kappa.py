"""Agreement beyond chance (κ) of a judge with the humans, and of a human with the other humans.

Classes have coordinates e_p, so that D(a, b) = |e_a − e_b|² is the disagreement of two answers: 0 or 1 for
nominal classes (Cohen's κ), the squared difference of their values for ordered classes and numbers (quadratic
weights). With x_m the judge's answer and s_mp the share of the item's humans who answer p,

    κ = 1 − mean_m Σ_p s_mp D(x_m, p) / Σ_ap q_a r_p D(a, p),   q = mean_m 1[x_m = a], r = mean_m s_m

The judge is compared with a random human of the item, and not with the majority, which would count answers
of the minority as errors. For the same reason 1 cannot be reached where humans disagree. The *human ceiling*
is the same figure for a human, compared with the other humans of the item: the mean of D over all pairs of
different humans of an item, and chance Σ_ap r_a r_p D(a, p). Fleiss' κ is its nominal case.

Intervals are those of a jackknife over items.

A human is an *outlier* if κ with the other humans is below c, the smaller of half of the median human's κ and
the lower end of the ceiling. With C_m the part of item m in the chance disagreement, κ < c if the mean of
z_m = D_m − (1 − c) C_m is above 0 (one-sided, at 1 % for all humans together by Bonferroni). The variance is
pooled over the humans: one who met few items of a rare class can have κ = 0 with hardly any variance of z.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dissensus.judges.answers import MIN_ITEMS, JudgeAnswers
from dissensus.labels.agreement import item_groups, jackknife_interval
from dissensus.labels.vocabulary import Codes
from dissensus.numerics import Array, row_shares

MAX_TESTED, MIN_TESTED = 500, 3  # humans tested for outliers: those with the most labels
OUTLIER_LEVEL = 0.01  # probability of an outlier among humans who are alike


class Kappa(NamedTuple):
    """κ with its 95 % interval, and the number of items."""

    value: float
    low: float
    high: float
    n_items: int


def scale_range(answers: JudgeAnswers) -> float:
    """Return the difference of the ends of a scale; 1 for nominal classes."""
    return 1.0 if answers.values is None else max(float(np.ptp(answers.values)), 1e-300)


def coordinates(answers: JudgeAnswers, exact_scale: float | None = None) -> Array:
    """Return (classes, dimensions) e, with distances of 1 between nominal classes, or ends of a scale.

    With ``exact_scale``, only equal answers agree, also on an ordered scale; numbers are in this unit.
    """
    exact = exact_scale is not None and answers.annotations.label_type != "numeric"
    if answers.values is None or exact:
        return np.eye(answers.annotations.n_classes) / math.sqrt(2)
    return answers.values[:, None] / (exact_scale or scale_range(answers))


def judge_kappa(answers: JudgeAnswers, answer: Codes, counts: NDArray[np.int64]) -> Kappa:
    """Return κ of answers (items,), −1 for none, with the humans counted in ``counts`` (items, classes)."""
    items = np.flatnonzero((answer >= 0) & (counts.sum(axis=1) > 0))
    return _kappa(*judge_disagreement(coordinates(answers), answer[items], counts[items]))


def human_kappa(answers: JudgeAnswers, counts: NDArray[np.int64]) -> Kappa:
    """Return κ of a human with the other humans of the item, over items with at least two."""
    return _kappa(*human_disagreement(coordinates(answers), counts[counts.sum(axis=1) >= 2]))


def judge_disagreement(
    e: Array, answer: Codes, counts: NDArray[np.int64]
) -> tuple[Array, Array, Array, Array]:
    """Return, by item, Σ_p s_p D(x, p); and |x|² + Σ_p s_p |e_p|², x, Σ_p s_p e_p, which chance needs."""
    shares, squares = row_shares(counts), (e**2).sum(axis=1)
    # Σ_p s_p |x − e_p|² = |x|² − 2 x · Σ_p s_p e_p + Σ_p s_p |e_p|²
    x, mean, size = e[answer], shares @ e, squares[answer] + shares @ squares
    return size - 2 * (x * mean).sum(axis=1), size, x, mean


def human_disagreement(e: Array, counts: NDArray[np.int64]) -> tuple[Array, Array, Array, Array]:
    """Return the same of a human and another human of the item; NaN with fewer than two."""
    n, shares = counts.sum(axis=1), row_shares(counts)
    mean, size = shares @ e, 2 * (shares @ (e**2).sum(axis=1))
    # mean over pairs of different humans: 2 n / (n − 1) (Σ_p s_p |e_p|² − |Σ_p s_p e_p|²)
    scale = np.where(n >= 2, n / np.maximum(n - 1, 1), np.nan)
    return scale * (size - 2 * (mean**2).sum(axis=1)), size, mean, mean


def human_kappas(answers: JudgeAnswers, most: int = MAX_TESTED) -> list[tuple[int, Kappa]]:
    """Return code and κ with the other humans, for the humans with the most labels."""
    load = np.bincount(answers.annotator[answers.human_rows])
    humans = np.argsort(-load, kind="stable")[: min(most, (load > 0).sum())].tolist()
    return [(human, judge_kappa(answers, *with_others(answers, human))) for human in humans]


def with_others(answers: JudgeAnswers, human: int) -> tuple[Codes, NDArray[np.int64]]:
    """Return the labels of a human on shared items, and the number of other humans (labels, classes)."""
    rows = np.flatnonzero(answers.annotator == human)
    others = answers.human_counts[answers.item[rows]]
    others[np.arange(len(rows)), answers.label[rows]] -= 1
    shared = others.any(axis=1)
    return answers.label[rows][shared], others[shared]


def outliers(answers: JudgeAnswers) -> tuple[dict[int, float], float]:
    """Return code and κ of the humans who hardly agree with the others, and the lowest κ of those who do."""
    kappas = {h: k.value for h, k in human_kappas(answers) if k.n_items >= MIN_ITEMS and k.value == k.value}
    if len(kappas) < MIN_TESTED:
        return {}, math.nan
    bound = min(float(np.median([*kappas.values()])) / 2, human_kappa(answers, answers.human_counts).low)
    excess = {human: excess_disagreement(answers, human, bound) for human in kappas}
    limit = ndtri(1 - OUTLIER_LEVEL / len(kappas)) * np.sqrt(np.mean([z.var() for z in excess.values()]))
    low = {human: kappas[human] for human, z in excess.items() if z.mean() * math.sqrt(len(z)) > limit}
    return low, min(kappas[human] for human in kappas.keys() - low)


def excess_disagreement(answers: JudgeAnswers, human: int, kappa: float) -> Array:
    """Return D_m − (1 − κ) C_m for the shared items of a human; the mean is 0 if this is its κ."""
    D, size, x, y = judge_disagreement(coordinates(answers), *with_others(answers, human))
    # C_m = |x_m|² + Σ_p s_mp |e_p|² − 2 (x_m · ȳ + x̄ · y_m − x̄ · ȳ)
    mean_x, mean_y = x.mean(axis=0), y.mean(axis=0)
    return np.asarray(D - (1 - kappa) * (size - 2 * (x @ mean_y + y @ mean_x - mean_x @ mean_y)))


def _kappa(disagreement: Array, size: Array, x: Array, y: Array) -> Kappa:
    """Return 1 − observed / chance, with chance = mean size − 2 mean x · mean y, and its interval."""
    M, d = x.shape
    group, G = item_groups(np.ones(M), 1)
    columns = np.column_stack([np.ones(M), disagreement, size, x, y])
    sums = np.column_stack([np.bincount(group, column, G) for column in columns.T])

    def parts(sums: Array) -> Array:
        """Return κ and chance disagreement from sums over items."""
        n, observed, size, x, y = np.split(sums, [1, 2, 3, 3 + d], axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            chance = size / n - 2 * (x * y).sum(axis=1, keepdims=True) / n**2
            return np.hstack([np.where(chance > 1e-12, 1 - observed / n / chance, np.nan), chance])

    total = sums.sum(axis=0, keepdims=True)
    value, chance = map(float, parts(total)[0])
    without = parts(total - sums)[:, 0]
    return Kappa(value, *jackknife_interval(value, without, 0.95, 1 - chance), M)
