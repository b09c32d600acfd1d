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
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dissensus.judges.answers import JudgeAnswers
from dissensus.labels.agreement import item_groups, jackknife_interval
from dissensus.labels.vocabulary import Codes
from dissensus.numerics import Array, row_shares


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


def human_kappas(answers: JudgeAnswers, most: int) -> list[tuple[int, Kappa]]:
    """Return code and κ with the other humans, for the humans with the most labels."""
    load, result = np.bincount(answers.annotator[answers.human_rows]), []
    for human in np.argsort(-load, kind="stable")[: min(most, (load > 0).sum())].tolist():
        labels = answers.answers_of(human)
        others, items = answers.human_counts.copy(), np.flatnonzero(labels >= 0)
        others[items, labels[items]] -= 1
        result.append((human, judge_kappa(answers, labels, others)))
    return result


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
