"""Comparison of a judge with humans: may it replace one of them, and how does it differ from them?

**The alternative annotator test** (Calderon, Reichart and Dror, ACL 2025). Each human h is left out in turn.
On every item labelled by h, the judge and at least one other human, h and the judge are scored against the
remaining humans: by the share who agree or, for numbers, by minus the root mean squared difference. With W =
1 if the judge scores at least as well as h and H = 1 if h scores at least as well as the judge, the judge
wins against h if mean(H − W) < ε by a one-sided t-test, with Benjamini and Yekutieli's control of false
discoveries over humans. ω is the share of humans against whom it wins (it passes at ω ≥ 1/2), ρ the mean over
humans of mean(W). ε is a bonus for the lower cost of a judge: 0.2 if the humans are experts, 0.15 for skilled
annotators, 0.1 for a crowd.

A human needs 30 items for this test. For many humans with few items each there is a pooled test, which is not
part of the paper: the mean of H − W over all labels of humans, its variance clustered by human and by item.
It concerns the average human, whereas the published test concerns at least half of the humans.

**The verdict** unites the two. The published test decides if humans with 30 items gave at least half of the
labels; if not, the pooled test decides, with at least 30 items. A judge *replaces* a human if this test is
passed. The answer is *no* if the judge is shown to be behind: the mean of H − W over these labels is above 0
(one-sided t-test at 5 %; clustered by item if the published test decides, which is about these humans, and
two-way if not). It is *nearly* if the labels show neither.

**The difference** is from the human population, that is, from every human's answer and not the majority's.
With s_mp the share of the item's humans who answer p,

    P(judge answers a | a human answers p) = Σ_m s_mp x_ma / Σ_m s_mp

Given the item, a human and the judge answer independently, so that this is unbiased for any number of humans.
(A model's estimate in place of s would be closer for each item but too flat here, since it does not depend on
the judge's answer. It is used for single items.)

Humans do not have 1 on the diagonal either; P(another human answers a | a human answers p) is given for
comparison.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit

from dissensus.evaluate.group_agreement import largest_bias, most_frequent
from dissensus.judges.answers import MIN_ITEMS, JudgeAnswers
from dissensus.labels.agreement import pair_sums, student_quantile
from dissensus.labels.vocabulary import Codes
from dissensus.numerics import Array, Indices, Mask, row_shares

FALSE_DISCOVERY_RATE = 0.05
PASSING_RATE = 0.5  # winning rate at which a judge passes
POWER = 0.8  # of the test, for the number of labels needed
Z = float(ndtri(0.975))
MIN_CONFUSION_ITEMS = 10  # effective number of items of a share with an interval
MIN_COPIED_ITEMS, MIN_COPIED_SHARE = 10, 0.9  # items where one human is alone; share with the same answer
SPLIT_SHARE = 2 / 3  # share of the top answer below which humans are split


# ---- alternative annotator test -----------------------------------------------------------------------


@dataclass(frozen=True)
class Replacement:
    """Result of the test for one judge."""

    judge: int
    winning_rate: float  # ω
    advantage: float  # ρ
    humans: Indices  # codes of the humans tested
    p_values: Array  # one per human tested
    n_humans_left_out: int  # humans with too few items
    pooled_difference: float  # pooled mean of H − W
    standard_error: float
    pooled_p: float
    freedom: int  # degrees of freedom of the pooled test
    labels_needed: float  # further labels needed to pass: 0 if it passed, ∞ if they would not help
    n_items: int  # items compared
    by_humans: bool  # the published test decides, and not the pooled one
    behind_p: float  # of the test that the judge is not behind

    @property
    def verdict(self) -> str:
        """``replaces``, ``nearly`` or ``no``; empty if fewer than 30 items were compared."""
        if self.n_items < MIN_ITEMS:
            return ""
        if self.passed if self.by_humans else self.pooled_passed:
            return "replaces"
        return "no" if self.behind_p < FALSE_DISCOVERY_RATE else "nearly"

    @property
    def within_epsilon_of(self) -> str:
        """Number of humans behind whom the judge is by less than ε, if at all; or the average human."""
        if self.by_humans:
            return f"{self.winning_rate * len(self.humans):.0f} of {len(self.humans)} humans"
        return "the average human" if self.verdict == "replaces" else "–"

    @property
    def settled_by(self) -> str:
        """Further labels that would let the judge pass, as text."""
        if not self.verdict:
            return f"only {self.n_items} of the {MIN_ITEMS} items for a verdict have labels of two humans"
        if self.verdict == "replaces":
            return "no further labels are needed"
        if math.isinf(self.labels_needed) and self.verdict == "nearly":
            return "so far it is behind by more than the tolerance, but these labels are too few to show it"
        if math.isinf(self.labels_needed):
            return "more labels would not help: it is behind the humans by more than the tolerance"
        number = "a few" if self.labels_needed < 10 else f"about {self.labels_needed:,.0f}"
        if self.verdict == "nearly":
            return f"{number} more labels of humans would show that it replaces one, if this remains"
        return f"it is behind; {number} more labels of humans could show that this is within the tolerance"

    @property
    def passed(self) -> bool:
        """True if ω ≥ 1/2."""
        return self.winning_rate >= PASSING_RATE

    @property
    def pooled_passed(self) -> bool:
        """True if the judge may replace the average human."""
        return self.pooled_p < FALSE_DISCOVERY_RATE

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the confidence interval of the pooled difference."""
        half = self.standard_error * float(stdtrit(max(self.freedom, 1), (1 + level) / 2))
        return self.pooled_difference - half, self.pooled_difference + half


def replacement_test(answers: JudgeAnswers, judge: int, epsilon: float) -> Replacement:
    """Test whether a judge may replace a human."""
    item, human, judge_wins, human_wins = win_indicators(answers, judge)
    difference = human_wins.astype(np.float64) - judge_wins
    n = np.bincount(human, minlength=len(answers.is_judge))
    tested = np.flatnonzero(n >= MIN_ITEMS)
    # mean and standard deviation of H − W for each human tested
    means = np.bincount(human, difference, minlength=len(n))[tested] / n[tested]
    squares = np.bincount(human, difference**2, minlength=len(n))[tested]
    variance = np.maximum(squares - n[tested] * means**2, 0.0) / (n[tested] - 1)
    deviations = np.sqrt(np.where(variance < 1e-12, 0.0, variance))
    p_values = t_test_below(means, deviations / np.sqrt(n[tested]), n[tested] - 1, epsilon)
    winning_rate = float(benjamini_yekutieli(p_values).mean()) if len(tested) else math.nan
    win_shares = np.bincount(human, judge_wins, minlength=len(n))[tested] / n[tested]
    advantage = float(win_shares.mean()) if len(tested) else math.nan
    error, freedom = clustered_error(difference, human, item)
    mean = float(difference.mean()) if len(difference) else math.nan
    p = float(t_test_below(mean, error, freedom, epsilon))
    by_humans = bool(len(tested) > 0 and 2 * n[tested].sum() >= len(human))
    sample = np.array([mean]), error * np.sqrt([len(human)]), np.array([len(human)])
    rows, clusters = n[human] >= 0, human
    if by_humans:  # about these humans: every row is a cluster, so that only items are random
        rows, clusters = n[human] >= MIN_ITEMS, np.arange(len(human), dtype=human.dtype)
        sample = means, deviations, n[tested]
    decided = winning_rate >= PASSING_RATE if by_humans else p < FALSE_DISCOVERY_RATE
    needed = 0.0 if decided else labels_needed(*sample, epsilon)
    behind = clustered_error(difference[rows], clusters[rows], item[rows])
    behind_p = float(1 - t_test_below(difference[rows].mean() if len(human) else math.nan, *behind, 0.0))
    return Replacement(
        judge, winning_rate, advantage, tested, p_values, int(((n > 0) & (n < MIN_ITEMS)).sum()),
        mean, error, p, freedom, needed, len(np.unique(item)), by_humans, behind_p,
    )  # fmt: skip


def win_indicators(answers: JudgeAnswers, judge: int) -> tuple[Codes, Codes, Mask, Mask]:
    """Return item and human of every comparison, and the indicators W and H."""
    rows = answers.human_rows
    machine = answers.answers_of(judge)[answers.item[rows]]
    others = answers.human_counts.sum(axis=1)[answers.item[rows]] - 1
    usable = (machine >= 0) & (others >= 1)
    rows, machine = rows[usable], machine[usable]
    item, label = answers.item[rows], answers.label[rows]
    # distance of the left-out human and of the judge from the remaining humans of the item
    counts, values = answers.human_counts, answers.values
    if values is None:
        # minus the number of remaining humans who agree
        of_human = 1.0 - counts[item, label].astype(np.float64)
        of_judge = (machine == label) - counts[item, machine].astype(np.float64)
    else:
        # Σ_others (x − y)² = n x² − 2 x Σ y + Σ y², in the same order as its root
        y, x = values[label], values[machine]
        n = counts[item].sum(axis=1) - 1.0
        sums, squares = (counts @ values)[item] - y, (counts @ values**2)[item] - y**2
        of_human, of_judge = n * y**2 - 2 * y * sums + squares, n * x**2 - 2 * x * sums + squares
    tolerance = 1e-9 * (1.0 + np.abs(of_human))
    judge_wins, human_wins = of_judge <= of_human + tolerance, of_human <= of_judge + tolerance
    return item, answers.annotator[rows], judge_wins, human_wins


def t_test_below(mean: Array | float, error: Array | float, freedom: Any, bound: float) -> Array:
    """Return p-values of one-sided t-tests that means with standard errors lie below the bound."""
    # t = (mean − ε) / error; ±∞ if the error is 0
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(mean == bound, 0.0, np.divide(mean - bound, error))
    return np.where(np.isnan(mean), np.nan, stdtr(np.maximum(freedom, 1), t))


def benjamini_yekutieli(p_values: Array) -> Mask:
    """Return the hypotheses rejected under any dependence (Benjamini and Yekutieli 2001)."""
    m = len(p_values)
    order = np.argsort(p_values)
    # the largest k with p_(k) ≤ k α / (m Σ_i 1/i)
    bounds = np.arange(1, m + 1) * FALSE_DISCOVERY_RATE / (m * (1 / np.arange(1, m + 1)).sum())
    below = np.flatnonzero(p_values[order] <= bounds)
    rejected = np.zeros(m, dtype=bool)
    rejected[order[: below[-1] + 1 if len(below) else 0]] = True
    return rejected


def clustered_error(values: Array, human: Codes, item: Codes) -> tuple[float, int]:
    """Return the two-way clustered standard error of a mean (Cameron, Gelbach and Miller 2011).

    Also returns the degrees of freedom: the smaller number of clusters minus one.
    """
    E = len(values)
    if E < 2:
        return math.nan, 1
    centred = values - values.mean()

    def part(codes: Codes) -> tuple[float, int]:
        G, sums = len(np.unique(codes)), np.bincount(codes, centred)
        return float((sums**2).sum()) * (G / (G - 1) if G > 1 else 1.0), G

    # V = (V_human + V_item − V_row) / E²
    (by_human, n_humans), (by_item, n_items) = part(human), part(item)
    by_row = float((centred**2).sum()) * E / (E - 1)
    variance = max(by_human + by_item - by_row, by_row) / E**2
    return math.sqrt(variance), min(n_humans, n_items) - 1


def labels_needed(means: Array, deviations: Array, n: NDArray[np.int64], epsilon: float) -> float:
    """Return the further labels of the tested humans at which the judge passes with a power of 80 %.

    ∞ if the judge is behind too many humans for more labels to help.
    """
    m = len(means)
    if not m or np.isnan(means).any():
        return math.nan
    k = math.ceil(PASSING_RATE * m)
    level = FALSE_DISCOVERY_RATE * k / (m * sum(1 / i for i in range(1, m + 1)))
    ahead = means < epsilon
    # n = ((z_{1−α} + z_{power}) s / (ε − mean))²
    sizes = ((ndtri(1 - level) + ndtri(POWER)) * deviations[ahead] / (epsilon - means[ahead])) ** 2
    missing = np.sort(np.maximum(np.ceil(sizes) - n[ahead], 0.0))
    return float(missing[:k].sum()) if len(missing) >= k else math.inf


def cautions(answers: JudgeAnswers, judge: int) -> Iterator[str]:
    """Yield remarks on a judge that seems to copy a human, and on who is right where gold labels tell."""
    names, counts = answers.annotations.annotators, answers.human_counts
    rows, machine = answers.human_rows, answers.answers_of(judge)
    item, label, human = answers.item[rows], answers.label[rows], answers.annotator[rows]
    # a copy gives the human's answer also where no other human of the item does; a good judge rarely does
    alone = (counts[item, label] == 1) & (counts[item].sum(axis=1) > 1) & (machine[item] >= 0)
    n = np.bincount(human[alone], minlength=len(names))
    same = np.bincount(human[alone & (machine[item] == label)], minlength=len(names))
    for h in np.flatnonzero((n >= MIN_COPIED_ITEMS) & (same >= MIN_COPIED_SHARE * n)):
        where = f"on {same[h]} of the {n[h]} items where no other human does"
        remedy = "if one of them has seen the other's labels, leave it out"
        yield f"{names[judge]} gives {names[h]}'s answer {where}: {remedy}"
    if answers.annotations.gold is not None:
        gold, most = answers.annotations.gold, most_frequent(counts)
        apart = (machine >= 0) & (most >= 0) & (gold >= 0) & (machine != most)
        right, theirs = (int((apart & (gold == x)).sum()) for x in (machine, most))
        if right > theirs:
            where = f"on the {apart.sum()} items where it differs from the most frequent answer of the humans"
            yield f"{names[judge]} has the gold label on {right}, and they on {theirs}, {where}"


# ---- difference from humans ---------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Difference:
    """Difference of one judge from the humans."""

    judge: int
    items: Indices  # items that humans and the judge answered
    answer: Codes  # the judge's answers
    confusion: Array  # (P, P): P(judge answers a | a human answers p)
    confusion_ends: Array  # (2, P, P): 95 % intervals
    among_humans: Array  # (P, P): P(another human answers a | a human answers p)
    agreement: float  # share of an item's humans who give the judge's answer
    human_agreement: float  # share of the other humans who give a human's answer
    bias_of: str  # class whose share differs most from the humans'; empty for ordered answers
    bias: float  # share of that class (ordered answers: mean value) minus that of the humans
    bias_error: float  # half-width of its 95 % interval over items, simultaneous for all classes


def judge_difference(answers: JudgeAnswers, judge: int) -> Difference:
    """Compare one judge with the humans on the same items."""
    answer = answers.answers_of(judge)
    items = np.flatnonzero((answer >= 0) & (answers.human_counts.sum(axis=1) > 0))
    shares, x = row_shares(answers.human_counts[items]), np.eye(answers.annotations.n_classes)[answer[items]]
    same = answers.compared_with_humans(judge)[items]  # as P(another human …), if that has enough items
    confusion, confusion_ends = conditional_shares(shares[same], x[same])
    # P(another human answers a | a human answers p), from items with at least two humans
    counts, one_group = answers.human_counts[items], np.zeros(len(items), np.uint8)
    sums = pair_sums(counts, one_group, 1, by_label=False, table=True)
    (pairs,), (n_items,) = sums.agreed, sums.pairs
    with np.errstate(invalid="ignore", divide="ignore"):
        among_humans = pairs / pairs.sum(axis=1, keepdims=True)
        agreement = (shares * x)[same].sum() / np.float64(same.sum())
        human_agreement = np.trace(pairs) / n_items
    return Difference(
        judge, items, answer[items], confusion, confusion_ends, among_humans,
        float(agreement), float(human_agreement), *_judge_bias(answers, x - shares),
    )  # fmt: skip


def _judge_bias(answers: JudgeAnswers, difference: Array) -> tuple[str, float, float]:
    """Return ``bias_of``, ``bias`` and ``bias_error`` from the judge's one-hot answers minus human shares."""
    n, v = len(difference), answers.values
    if not n:
        return "", math.nan, math.nan
    difference = difference if v is None else (difference @ v)[:, None]
    mean = difference.mean(axis=0)
    most = int(largest_bias(mean))
    P = difference.shape[1]  # the deviations of two classes are one; of more, Bonferroni's interval
    z = float(ndtri(1 - 0.025 / (P if P > 2 else 1)))
    error = z * float(difference[:, most].std(ddof=1)) / np.sqrt(n) if n > 1 else float("nan")
    return str(answers.annotations.classes[most]) if v is None else "", float(mean[most]), error


def conditional_shares(weights: Array, outcomes: Array) -> tuple[Array, Array]:
    """Return (P, P): Σ_m w_mp o_ma / Σ_m w_mp, and (2, P, P) the ends of Wilson's 95 % intervals.

    The outcomes are 0 or 1. Shares are NaN for zero weights, and intervals for few items.
    """
    mass, n_items = weights.sum(axis=0)[:, None], (weights > 0).sum(axis=0)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        p = (weights.T @ outcomes) / mass
        # Σ_m d² and Σ_m d⁴ of the linearised ratio, d = w_mp (o_ma − p)
        squares, quartics = (
            ((weights**k).T @ outcomes) * ((1 - p) ** k - p**k) + p**k * (weights**k).sum(axis=0)[:, None]
            for k in (2, 4)
        )
        # effective number of items: p (1 − p) / variance or, without variance, (Σ w)² / Σ w²
        items = mass**2 / (weights**2).sum(axis=0)[:, None]
        n = np.where(squares > 1e-12, p * (1 - p) * mass**2 / squares, items)
        n = np.where(items < MIN_CONFUSION_ITEMS, np.nan, n)
        z = np.where(squares > 1e-12, student_quantile(squares, quartics, n_items, 0.95), Z)
        # (p + z²/2n ± z √(p (1 − p) / n + z²/4n²)) / (1 + z²/n)
        half = z * np.sqrt(np.maximum(p * (1 - p), 0.0) / n + z**2 / (4 * n**2))
        ends = (p + z**2 / (2 * n) + np.array([-half, half])) / (1 + z**2 / n)
    return p, np.clip(ends, 0.0, 1.0)


def confusion_rows(answers: JudgeAnswers, difference: Difference) -> list[dict[str, Any]]:
    """Return one row per pair of classes: human answer, judge's answer, and the shares with intervals."""
    names, judge = answers.annotations.classes, str(answers.annotations.annotators[difference.judge])
    low, high = difference.confusion_ends
    tables = {"chance": difference.confusion, "low": low, "high": high}
    tables["among_humans"] = difference.among_humans
    return [
        {"judge": judge, "human": str(human), "answer": str(answer)}
        | {name: float(table[p, a]) for name, table in tables.items()}
        for p, human in enumerate(names)
        for a, answer in enumerate(names)
    ]


def wrong_items(
    answers: JudgeAnswers, difference: Difference, expected: Array, high: Array | None, n_items: int
) -> list[dict[str, Any]]:
    """Return the items with the fewest humans expected to agree with the judge.

    ``expected`` (items, classes) is a model's estimate for humans; items are ranked by the upper ends
    ``high`` of its intervals, if there are any.
    """
    names, counts = answers.annotations.classes, answers.human_counts.sum(axis=1)
    items, answer = difference.items, difference.answer
    share, top = expected[items, answer], expected[items].argmax(axis=1)
    bound = share if high is None else high[items, answer]
    at_most = np.full(len(items), np.nan) if high is None else bound
    order = np.lexsort((items, -counts[items], share, bound))
    rows, judge = list[dict[str, Any]](), str(answers.annotations.annotators[difference.judge])
    for i in order[top[order] != answer[order]][:n_items]:
        item, share_of_top = items[i], float(expected[items[i], top[i]])
        row = {"judge": judge, "item": answers.annotations.items[item]}
        row |= {"answer": str(names[answer[i]]), "human_answer": str(names[top[i]])}
        row |= {"share_as_judge": float(share[i]), "share_at_most": float(at_most[i])}
        row |= {"share_of_top": share_of_top, "n_human_labels": int(counts[item])}
        rows.append(row | {"humans_split": share_of_top < SPLIT_SHARE})
    return rows
