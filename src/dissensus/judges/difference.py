"""How a judge differs from the human population.

Against every human's answer, not a majority's: with s_mp the share of the item's humans who say p,

    P(judge says a | a human says p) = Σ_m s_mp x_ma / Σ_m s_mp

Given the item, a human and the judge answer independently, so this is right for any number of humans. (What
a model expects of humans, put in the place of s, is nearer to each item's truth, and yet too flat here: it
does not know what the judge said. For single items it is better, and used there.)

A random human is not 1 on the diagonal either: P(another human says a | a human says p) stands beside it.
How far the judge is from humans, compared with how far humans are from each other, needs no model: the share
of the item's humans who answer otherwise, and the share of other humans who answer otherwise than a human.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from dissensus.evaluate.sides import largest_bias
from dissensus.judges.answers import Answers
from dissensus.numerics import Array, row_shares

Z = float(ndtri(0.975))
LEAST_ITEMS = 10  # that a chance needs to have an interval
SPLIT = 2 / 3  # humans are split where their most common answer has a smaller share


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
    distances = _distances(answers, items, given[items])
    return Difference(
        judge, items, given[items], confusion, confusion_error, meaning.T, meaning_error.T,
        _among_humans(answers.human_counts[items]), *distances, *_bias(answers, x - shares),
    )  # fmt: skip


def _bias(answers: Answers, apart: Array) -> tuple[str, float, float]:
    """What the judge gives more often than humans, or how much higher its numbers are; and the error."""
    n, v = len(apart), answers.values
    if not n:
        return "", float("nan"), float("nan")
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


def _among_humans(counts: NDArray[np.int64]) -> Array:
    """P(another human of the item says a | a human says p), from items with at least two humans."""
    n = counts.sum(axis=1)
    many = n >= 2
    scaled = counts[many] / (n[many] * (n[many] - 1))[:, None]
    pairs = scaled.T @ counts[many] - np.diag(scaled.sum(axis=0))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(pairs / pairs.sum(axis=1, keepdims=True))


def _distances(
    answers: Answers, items: NDArray[np.intp], given: NDArray[np.int32]
) -> tuple[float, float, float, float]:
    """Disagreement of judge and human, of two humans, their difference, and its standard error."""
    counts = answers.human_counts[items]
    n = counts.sum(axis=1)
    many = np.flatnonzero(n >= 2)
    if len(many) < 2:
        return float("nan"), float("nan"), float("nan"), float("nan")
    counts, n = counts[many], n[many]
    judge = 1 - counts[np.arange(len(many)), given[many]] / n
    humans = 1 - ((counts**2).sum(axis=1) - n) / (n * (n - 1))
    excess = judge - humans
    error = float(excess.std(ddof=1)) / np.sqrt(len(many))
    return float(judge.mean()), float(humans.mean()), float(excess.mean()), float(error)


def confusion_rows(answers: Answers, found: Difference) -> list[dict[str, Any]]:
    """One row for every two classes: what humans say, what the judge says, how often, and among humans."""
    names, judge = answers.annotations.classes, str(answers.annotations.annotators[found.judge])
    rows = []
    for p, human in enumerate(names):
        for a, answer in enumerate(names):
            chance, error = found.confusion[p, a], Z * found.confusion_error[p, a]
            meaning, meant = found.meaning[p, a], Z * found.meaning_error[p, a]
            rows.append(
                {
                    "judge": judge,
                    "human": str(human),
                    "answer": str(answer),
                    "chance": float(chance),
                    "low": float(np.maximum(chance - error, 0.0)),
                    "high": float(np.minimum(chance + error, 1.0)),
                    "among_humans": float(found.among_humans[p, a]),
                    "meaning": float(meaning),
                    "meaning_low": float(np.maximum(meaning - meant, 0.0)),
                    "meaning_high": float(np.minimum(meaning + meant, 1.0)),
                }
            )
    return rows


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
