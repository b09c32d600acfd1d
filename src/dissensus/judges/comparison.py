"""A judge beside humans: may it replace one of them, and how does it differ from them?

**The alternative annotator test** (Calderon, Reichart and Dror, ACL 2025). Each human h is left out in turn.
On every item that h and the judge labelled and some other human too, both are scored against the remaining
humans: by the share of them that agrees, or, for numbers, by minus the root of the mean squared difference.
With W = 1 where the judge's score is at least that of h, and H = 1 where that of h is at least the judge's,
h is won over if mean(H − W) < ε by a one-sided t-test, with Benjamini and Yekutieli's control of false
discoveries over humans. ω is the share of humans won over (the judge passes at ω ≥ 1/2), ρ the mean over
humans of mean(W). ε is the cost advantage a judge is granted: 0.2 beside experts, 0.15 beside skilled
annotators, 0.1 beside a crowd.

A human needs 30 items for it. Where many humans have few items each, the pooled test is for them; it is
ours: the mean of H − W over all labels of humans, its variance clustered by human and by item. It asks about
the average human, where the published test asks about at least half of the humans.

**The difference** is from the human population: against every human's answer, not a majority's. With s_mp
the share of the item's humans who say p,

    P(judge says a | a human says p) = Σ_m s_mp x_ma / Σ_m s_mp

Given the item, a human and the judge answer independently, so this is right for any number of humans. (What
a model expects of humans, put in the place of s, is nearer to each item's truth, and yet too flat here: it
does not know what the judge said. For single items it is better, and used there.)

A random human is not 1 on the diagonal either: P(another human says a | a human says p) stands beside it.
How far the judge is from humans, compared with how far humans are from each other, needs no model: the share
of the item's humans who answer otherwise, and the share of other humans who answer otherwise than a human.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from dissensus.evaluate.sides import largest_bias
from dissensus.judges.answers import Answers
from dissensus.numerics import Array, row_shares

MIN_ITEMS = 30  # items that a human needs
LEVEL = 0.05  # false discoveries among humans won over
ENOUGH = 0.5  # share of humans won over at which a judge passes
POWER = 0.8  # chance to be decided at which a number of labels is called enough
Z = float(ndtri(0.975))
LEAST_ITEMS = 10  # that a chance needs to have an interval
SPLIT = 2 / 3  # humans are split where their most common answer has a smaller share


# ---- may it replace a human? --------------------------------------------------------------------------


@dataclass(frozen=True)
class Replacement:
    """What the test says of one judge."""

    judge: int
    winning_rate: float  # ω
    advantage: float  # ρ
    humans: NDArray[np.intp]  # codes of the humans tested
    p_values: Array  # of each
    n_humans_left_out: int  # with too few items
    pooled_difference: float  # pooled mean of H − W
    standard_error: float
    pooled_p: float
    freedom: int  # degrees of freedom of the pooled test
    labels_needed: float  # more labels until it decides: 0 where it passed, ∞ where they would not help

    @property
    def passed(self) -> bool:
        """ω ≥ 1/2."""
        return self.winning_rate >= ENOUGH

    @property
    def pooled_passed(self) -> bool:
        """Whether the average human may be replaced."""
        return self.pooled_p < LEVEL

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Of the pooled difference."""
        half = self.standard_error * float(stdtrit(max(self.freedom, 1), (1 + level) / 2))
        return self.pooled_difference - half, self.pooled_difference + half


def may_replace(answers: Answers, judge: int, epsilon: float) -> Replacement:
    """The test of one judge."""
    item, human, won, held = indicators(answers, judge)
    difference = held.astype(np.float64) - won
    n = np.bincount(human, minlength=len(answers.is_judge))
    tested = np.flatnonzero(n >= MIN_ITEMS)
    # mean and standard deviation of H − W, of each human tested
    means = np.bincount(human, difference, minlength=len(n))[tested] / n[tested]
    squares = np.bincount(human, difference**2, minlength=len(n))[tested]
    variance = np.maximum(squares - n[tested] * means**2, 0.0) / (n[tested] - 1)
    deviations = np.sqrt(np.where(variance < 1e-12, 0.0, variance))
    p_values = t_test_below(means, deviations, n[tested], epsilon)
    winning_rate = float(discovered(p_values).mean()) if len(tested) else math.nan
    won_shares = np.bincount(human, won, minlength=len(n))[tested] / n[tested]
    advantage = float(won_shares.mean()) if len(tested) else math.nan
    n_left_out = int(((n > 0) & (n < MIN_ITEMS)).sum())
    needed = labels_needed(means, deviations, n[tested], epsilon, winning_rate)
    error, freedom = clustered_error(difference, human, item)
    mean = float(difference.mean()) if len(difference) else math.nan
    p = float(t_test_below(np.array([mean]), np.array([error]), np.array([1]), epsilon, freedom)[0])
    published = judge, winning_rate, advantage, tested, p_values, n_left_out
    return Replacement(*published, mean, error, p, freedom, needed)


def indicators(
    answers: Answers, judge: int
) -> tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_], NDArray[np.bool_]]:
    """Item and human of every comparison, whether the judge scores at least as well, and vice versa."""
    rows = answers.human_rows
    given = answers.answers_of(judge)[answers.item[rows]]
    others = answers.human_counts.sum(axis=1)[answers.item[rows]] - 1
    usable = (given >= 0) & (others >= 1)
    rows, given = rows[usable], given[usable]
    item, label = answers.item[rows], answers.label[rows]
    # how far the left-out human and the judge are from the remaining humans of the item (less is better)
    counts, values = answers.human_counts, answers.values
    if values is None:
        # minus the number of remaining humans who agree
        theirs = 1.0 - counts[item, label].astype(np.float64)
        judges = (given == label) - counts[item, given].astype(np.float64)
    else:
        # Σ_others (x − y)² = n x² − 2 x Σ y + Σ y², which orders as its root does
        y, x = values[label], values[given]
        n = counts[item].sum(axis=1) - 1.0
        sums, squares = (counts @ values)[item] - y, (counts @ values**2)[item] - y**2
        theirs, judges = n * y**2 - 2 * y * sums + squares, n * x**2 - 2 * x * sums + squares
    slack = 1e-9 * (1.0 + np.abs(theirs))
    return item, answers.annotator[rows], judges <= theirs + slack, theirs <= judges + slack


def t_test_below(
    means: Array, deviations: Array, n: NDArray[np.int64], bound: float, freedom: int | None = None
) -> Array:
    """P-values of one-sided t-tests that means lie below the bound."""
    degrees = n - 1 if freedom is None else np.full(len(means), max(freedom, 1))
    # t = (mean − ε) / (s / √n); without any spread the mean itself decides
    with np.errstate(divide="ignore", invalid="ignore"):
        t = (means - bound) / (deviations / np.sqrt(n))
    t = np.where(means == bound, 0.0, t)
    return np.where(np.isnan(means), np.nan, stdtr(degrees, t))


def discovered(p_values: Array) -> NDArray[np.bool_]:
    """Which hypotheses are rejected under any dependence (Benjamini and Yekutieli 2001)."""
    m = len(p_values)
    order = np.argsort(p_values)
    # the largest k with p_(k) ≤ k α / (m Σ_i 1/i)
    bounds = np.arange(1, m + 1) * LEVEL / (m * (1 / np.arange(1, m + 1)).sum())
    below = np.flatnonzero(p_values[order] <= bounds)
    rejected = np.zeros(m, dtype=bool)
    rejected[order[: below[-1] + 1 if len(below) else 0]] = True
    return rejected


def clustered_error(values: Array, human: NDArray[np.int32], item: NDArray[np.int32]) -> tuple[float, int]:
    """Standard error of a mean whose terms share humans and items (Cameron, Gelbach and Miller 2011).

    Returned with the degrees of freedom: one less than the smaller number of clusters.
    """
    E = len(values)
    if E < 2:
        return math.nan, 1
    centred = values - values.mean()

    def part(codes: NDArray[np.int32]) -> tuple[float, int]:
        G, sums = len(np.unique(codes)), np.bincount(codes, centred)
        return float((sums**2).sum()) * (G / (G - 1) if G > 1 else 1.0), G

    # V = (V_human + V_item − V_row) / E², a row being one human's answer about one item
    (by_human, n_humans), (by_item, n_items) = part(human), part(item)
    by_row = float((centred**2).sum()) * E / (E - 1)
    variance = max(by_human + by_item - by_row, by_row) / E**2
    return math.sqrt(variance), min(n_humans, n_items) - 1


def labels_needed(
    means: Array, deviations: Array, n: NDArray[np.int64], epsilon: float, winning_rate: float
) -> float:
    """More labels of the tested humans until the judge passes with a chance of 80 %, all else as it is.

    0 where it passed; ∞ where at least half of the humans would have to be won over that it is not ahead of.
    """
    m = len(means)
    if not m:
        return math.nan
    if winning_rate >= ENOUGH:
        return 0.0
    k = math.ceil(ENOUGH * m)
    level = LEVEL * k / (m * sum(1 / i for i in range(1, m + 1)))
    ahead = means < epsilon
    # n = ((z_{1−α} + z_{power}) s / (ε − mean))²
    sizes = ((ndtri(1 - level) + ndtri(POWER)) * deviations[ahead] / (epsilon - means[ahead])) ** 2
    missing = np.sort(np.maximum(np.ceil(sizes) - n[ahead], 0.0))
    return float(missing[:k].sum()) if len(missing) >= k else math.inf


# ---- how does it differ from humans? ------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Difference:
    """What sets one judge apart."""

    judge: int
    items: NDArray[np.intp]  # items that humans and the judge answered
    given: NDArray[np.int32]  # its answers
    confusion: Array  # (P, P): P(judge says a | a human says p)
    confusion_error: Array  # (P, P): standard errors
    meaning: Array  # (P, P): P(a human says p | judge says a)
    meaning_error: Array
    among_humans: Array  # (P, P): P(another human says a | a human says p)
    disagreement: float  # share of humans who answer otherwise than the judge
    human_disagreement: float  # … otherwise than a human; both over items with at least two humans
    excess: float  # their difference
    excess_error: float
    bias_of: str  # the class whose share differs most from humans'; empty for ordered answers
    bias: float  # share of that class, or for ordered answers the mean number, minus humans'
    bias_error: float  # half of its 95 % interval, over items


def difference_of(answers: Answers, judge: int) -> Difference:
    """Compare one judge with the humans of the same items."""
    given = answers.answers_of(judge)
    items = np.flatnonzero((given >= 0) & (answers.human_counts.sum(axis=1) > 0))
    shares, x = row_shares(answers.human_counts[items]), np.eye(answers.annotations.n_classes)[given[items]]
    confusion, confusion_error = conditional(shares, x)
    meaning, meaning_error = conditional(x, shares)
    # P(another human of the item says a | a human says p), from items with at least two humans
    many = items[answers.human_counts[items].sum(axis=1) >= 2]
    counts = answers.human_counts[many]
    n = counts.sum(axis=1)
    scaled = counts / (n * (n - 1))[:, None]
    pairs = scaled.T @ counts - np.diag(scaled.sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        among_humans = pairs / pairs.sum(axis=1, keepdims=True)
    distances = (math.nan,) * 4
    if len(many) >= 2:
        apart = 1 - counts[np.arange(len(many)), given[many]] / n
        humans = 1 - ((counts**2).sum(axis=1) - n) / (n * (n - 1))
        error = float((apart - humans).std(ddof=1)) / math.sqrt(len(many))
        distances = float(apart.mean()), float(humans.mean()), float((apart - humans).mean()), error
    return Difference(
        judge, items, given[items], confusion, confusion_error, meaning.T, meaning_error.T,
        among_humans, *distances, *_bias(answers, x - shares),
    )  # fmt: skip


def _bias(answers: Answers, apart: Array) -> tuple[str, float, float]:
    """What the judge gives more often than humans, or how much higher its numbers are; and the error."""
    n, v = len(apart), answers.values
    if not n:
        return "", math.nan, math.nan
    apart = apart if v is None else (apart @ v)[:, None]
    mean = apart.mean(axis=0)
    most = int(largest_bias(mean))
    error = Z * float(apart[:, most].std(ddof=1)) / np.sqrt(n) if n > 1 else float("nan")
    return str(answers.annotations.classes[most]) if v is None else "", float(mean[most]), error


def conditional(weights: Array, outcomes: Array) -> tuple[Array, Array]:
    """(P, P): Σ_m w_mp o_ma / Σ_m w_mp and its standard errors; not a number where the weights are none."""
    mass = weights.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        chance = (weights.T @ outcomes) / mass[:, None]
        # the ratio's linear terms: w_mp (o_ma − C_pa) / Σ w_p
        squares = (weights**2).T @ outcomes**2 - 2 * chance * ((weights**2).T @ outcomes)
        squares = squares + chance**2 * (weights**2).sum(axis=0)[:, None]
        error = np.sqrt(np.maximum(squares, 0.0)) / mass[:, None]
        # (Σ w)² / Σ w²: items that it stands on
        error[mass**2 / (weights**2).sum(axis=0) < LEAST_ITEMS] = np.nan
    return chance, error


def confusion_rows(answers: Answers, found: Difference) -> list[dict[str, Any]]:
    """One row for every two classes: what humans say, what the judge says, how often, and among humans."""
    names, judge = answers.annotations.classes, str(answers.annotations.annotators[found.judge])
    c, m, among = found.confusion, found.meaning, found.among_humans
    reach, meant = Z * found.confusion_error, Z * found.meaning_error
    tables = {"chance": c, "low": np.maximum(c - reach, 0.0), "high": np.minimum(c + reach, 1.0)}
    tables |= {"among_humans": among, "meaning": m}
    tables |= {"meaning_low": np.maximum(m - meant, 0.0), "meaning_high": np.minimum(m + meant, 1.0)}
    return [
        {"judge": judge, "human": str(human), "answer": str(answer)}
        | {name: float(table[p, a]) for name, table in tables.items()}
        for p, human in enumerate(names)
        for a, answer in enumerate(names)
    ]


def wrong_items(
    answers: Answers, found: Difference, expected: Array, high: Array | None, n_items: int
) -> list[dict[str, Any]]:
    """The items where the judge is most surely wrong: fewest humans are expected to answer as it does.

    ``expected`` (items, classes) is what a model expects of humans, ``high`` the upper ends of its intervals,
    which decide where there are any.
    """
    names, counts = answers.annotations.classes, answers.human_counts.sum(axis=1)
    share, top = expected[found.items, found.given], expected[found.items].argmax(axis=1)
    bound = share if high is None else high[found.items, found.given]
    order = np.lexsort((found.items, -counts[found.items], share, bound))
    return [
        {
            "judge": str(answers.annotations.annotators[found.judge]),
            "item": answers.annotations.items[m],
            "answer": str(names[found.given[place]]),
            "human_answer": str(names[top[place]]),
            "share_as_judge": float(share[place]),
            "share_at_most": float("nan") if high is None else float(bound[place]),
            "share_of_top": float(expected[m, top[place]]),
            "n_human_labels": int(counts[m]),
            "humans_split": bool(expected[m, top[place]] < SPLIT),
        }
        for place in order[top[order] != found.given[order]][:n_items]
        for m in [found.items[place]]
    ]
