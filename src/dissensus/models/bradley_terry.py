"""Paired comparisons: scores of things from who was preferred to whom, with annotators who differ.

How an answer is born (Bradley and Terry 1952; ties after Davidson 1970). Item m shows thing i on the left and
j on the right; annotator n has a reliability a_n, a leaning γ_n to the left and a readiness κ_n to tie:

    θ_i ~ N(0, σ²)                                 the things' scores
    δ_m ~ N(0, ρ²)                                 what is special about this pair (or this question)
    (a_n, γ_n, κ_n) ~ N((1, γ, κ), diag(v))        annotators' ways; v has a prior worth four of them
    η = a_n (θ_i − θ_j + δ_m) + γ_n
    P(left) ∝ e^{η/2},  P(right) ∝ e^{−η/2},  P(tie) ∝ e^{κ_n}

Where a_n is 0 somebody's answers say nothing about the things; below 0 they say the opposite. Fitted by steps
of Fisher scoring in turn for scores, pairs and annotators; variances by empirical Bayes with what the
curvature leaves. Intervals of scores and of ranks come from draws of the normal around the scores (Laplace's
approximation, the pairs' own effects integrated out).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import ConvergenceMonitor, Engine
from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.display import make_frame
from dissensus.labels.kinds import WINNERS
from dissensus.labels.vocabulary import Codes, Vocabulary, encode, places
from dissensus.models.base import Model
from dissensus.models.results import PIECE, by_id
from dissensus.numerics import Array, row_shares
from dissensus.params import MAX_ITER, SEED, TOL, fitted, flag, setting
from dissensus.tables.arrays import Arrays, Header, pack_ids, unpack_ids

DRAWS = 1_000
MOST_THINGS = 10_000  # a table of all pairs of them must fit memory
LEAST_VARIANCE = 1e-4
LARGEST_STEP = 1.0
SMALLEST_UNIT = 0.2
PRIOR_ANNOTATORS, PRIOR_VARIANCES = 4.0, np.array([0.1, 0.05, 0.3])  # of the annotators' three numbers


@dataclass(frozen=True)
class Pairs:
    """The answers: which thing on which side, by whom, and with which outcome."""

    left: NDArray[np.int64]  # (labels,)
    right: NDArray[np.int64]
    item: NDArray[np.int64]
    annotator: NDArray[np.int64]
    won: Array  # (labels,): ½ for the left, −½ for the right, 0 for a tie
    tied: Array  # (labels,): 1 for a tie
    sizes: tuple[int, int, int]  # things, items, annotators


@dataclass(frozen=True)
class Ways:
    """What is learned."""

    theta: Array  # (K,)
    delta: Array  # (M,)
    own: Array  # (N, 3): reliability, leaning, readiness to tie
    crowd: Array  # (3,)
    spread: Array  # (5,): σ², ρ², and the variances of the three
    left_over: Array  # (K,): posterior variances of the scores


def outcomes(pairs: Pairs, ways: Ways) -> tuple[Array, Array, Array]:
    """P(left), P(tie), P(right) of every answer."""
    a, lean, tie = ways.own[pairs.annotator].T
    eta = a * (ways.theta[pairs.left] - ways.theta[pairs.right] + ways.delta[pairs.item]) + lean
    return chances(eta, tie)


def chances(eta: Array, tie: Array) -> tuple[Array, Array, Array]:
    """P(left) ∝ e^{η/2}, P(tie) ∝ e^κ, P(right) ∝ e^{−η/2}."""
    top = np.maximum(np.abs(eta) / 2, tie)
    left, drawn, right = np.exp(eta / 2 - top), np.exp(tie - top), np.exp(-eta / 2 - top)
    total = left + drawn + right
    return left / total, drawn / total, right / total


def slopes(pairs: Pairs, ways: Ways) -> tuple[Array, Array, Array, Array]:
    """Of each answer: ∂ log P/∂η, the Fisher information of η, of κ, and their product's."""
    left, tie, right = outcomes(pairs, ways)
    ahead = left - right
    # ½([left] − [right]) − ½(P_l − P_r); ¼(P_l + P_r − (P_l − P_r)²); P_t (1 − P_t); −½ (P_l − P_r) P_t
    information = (left + right - ahead**2) / 4
    return pairs.won - ahead / 2, information, tie * (1 - tie), -ahead * tie / 2


def scores_given(pairs: Pairs, ways: Ways) -> Ways:
    """One step for all scores together."""
    K = len(ways.theta)
    slope, information, _, _ = slopes(pairs, ways)
    a = ways.own[pairs.annotator, 0]
    pull = np.bincount(pairs.left, a * slope, K) - np.bincount(pairs.right, a * slope, K)
    curvature = _curvature(pairs.left, pairs.right, a**2 * information, K) + np.eye(K) / ways.spread[0]
    inverse = np.linalg.inv(curvature)
    step = inverse @ (pull - ways.theta / ways.spread[0])
    theta = ways.theta + np.clip(step, -LARGEST_STEP, LARGEST_STEP)
    left_over = np.diag(inverse)
    spread = ways.spread.copy()
    spread[0] = max(float(np.mean(theta**2 + left_over)), LEAST_VARIANCE)
    return replace(ways, theta=theta, left_over=left_over, spread=spread)


def _curvature(left: NDArray[np.int64], right: NDArray[np.int64], weight: Array, K: int) -> Array:
    """(K, K): Σ w (e_i − e_j)(e_i − e_j)'."""
    beside = np.bincount(left * K + right, weight, K * K).reshape(K, K)
    beside = beside + beside.T
    return np.asarray(np.diag(beside.sum(axis=1)) - beside)


def pairs_given(pairs: Pairs, ways: Ways) -> Ways:
    """One step for what is special about each pair."""
    M = len(ways.delta)
    slope, information, _, _ = slopes(pairs, ways)
    a = ways.own[pairs.annotator, 0]
    precision = np.bincount(pairs.item, a**2 * information, M) + 1 / ways.spread[1]
    step = (np.bincount(pairs.item, a * slope, M) - ways.delta / ways.spread[1]) / precision
    delta = ways.delta + np.clip(step, -LARGEST_STEP, LARGEST_STEP)
    met = np.bincount(pairs.item, minlength=M) > 0
    spread = ways.spread.copy()
    spread[1] = max(float(np.mean((delta**2 + 1 / precision)[met])), LEAST_VARIANCE)
    return replace(ways, delta=delta, spread=spread)


def about_annotators(pairs: Pairs, ways: Ways) -> tuple[Array, Array]:
    """(N, 3), (N, 3, 3): gradient and curvature of the log-posterior in everyone's three numbers."""
    N = len(ways.own)
    slope, information, of_tie, both = slopes(pairs, ways)
    ahead = ways.theta[pairs.left] - ways.theta[pairs.right] + ways.delta[pairs.item]
    _, tie, _ = outcomes(pairs, ways)
    one = np.ones(len(ahead))
    by = (ahead, one, one)  # ∂η/∂a, ∂η/∂γ, ∂κ/∂κ
    pulls = (slope, slope, pairs.tied - tie)
    gradient = np.stack([np.bincount(pairs.annotator, x * g, N) for x, g in zip(by, pulls, strict=True)])
    kinds = ((information, information, both), (information, information, both), (both, both, of_tie))
    weights = [[by[i] * by[j] * kinds[i][j] for j in range(3)] for i in range(3)]
    curvature = np.array([[np.bincount(pairs.annotator, weight, N) for weight in row] for row in weights])
    curvature = curvature.transpose(2, 0, 1)
    precision = np.diag(1 / ways.spread[2:])
    return gradient.T - (ways.own - ways.crowd) @ precision, np.asarray(curvature + precision)


def annotators_given(pairs: Pairs, ways: Ways, leaning: bool) -> Ways:
    """One step for everyone's three numbers; the crowd's means and variances from them."""
    N = len(ways.own)
    gradient, curvature = about_annotators(pairs, ways)
    step = np.asarray(np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0], np.float64)
    own = ways.own + np.clip(step, -LARGEST_STEP, LARGEST_STEP)
    if not leaning:
        own[:, 1] = 0.0  # and so the crowd's
    varying = np.diagonal(np.linalg.inv(curvature), axis1=1, axis2=2)
    load = np.bincount(pairs.annotator, minlength=N)
    crowd = np.average(own, axis=0, weights=load / (load + 5.0))
    # The crowd's reliability is the unit of the scores: a / u, θ u, δ u leave every η as it is.
    unit = max(float(crowd[0]), SMALLEST_UNIT)
    own[:, 0], crowd[0] = own[:, 0] / unit, 1.0
    squares = ((own - crowd) ** 2 + varying / [unit**2, 1, 1]).sum(axis=0)
    # ρ² is left as it is: with few answers per pair EM moves it too slowly to make good what units would add.
    spread = ways.spread * [unit**2, 1, 1, 1, 1]
    spread[2:] = (squares + PRIOR_VARIANCES * PRIOR_ANNOTATORS) / (N + PRIOR_ANNOTATORS)
    scores = {"theta": ways.theta * unit, "delta": ways.delta * unit}
    return replace(ways, **scores, own=own, crowd=crowd, spread=spread)


def log_posterior(pairs: Pairs, ways: Ways) -> float:
    """log P(answers) and the log-priors of scores, pairs and annotators, up to a constant."""
    left, tie, right = outcomes(pairs, ways)
    given = np.where(pairs.tied > 0, tie, np.where(pairs.won > 0, left, right))
    prior = float((ways.theta**2).sum() / ways.spread[0] + (ways.delta**2).sum() / ways.spread[1])
    prior += float(((ways.own - ways.crowd) ** 2 / ways.spread[2:]).sum())
    return float(np.log(np.maximum(given, 1e-300)).sum()) - prior / 2


# ---- the model ----------------------------------------------------------------------------------------


class BradleyTerry(Model):
    """Scores and ranks of things compared in pairs; annotators differ in reliability, leaning and ties."""

    max_iter: int = setting(100, *MAX_ITER)
    _: KW_ONLY
    position: bool = flag(
        True, "Whether annotators may lean to the left or right; give False where sides mean nothing."
    )
    pair_effects: bool = flag(True, "Whether a pair may be unlike what its two scores say.")
    tol: float = setting(1e-5, *TOL)
    seed: int = setting(0, *SEED)

    _needs_annotators = True
    answers_are_classes = False
    _label_types = ("pairwise",)
    _reads_as = "pairwise"

    scores_: Array = fitted("(K,): log-odds against a thing of score 0")
    covariance_: Array = fitted("(K, K): posterior covariance of the scores")
    effects_: Array = fitted("(M,): δ")
    own_: Array = fitted("(N, 3): reliability, leaning, readiness to tie")
    own_errors_: Array = fitted("(N, 3): posterior standard deviations")
    crowd_: Array = fitted("(3,)")
    spread_: Array = fitted("(5,)")
    sides_: NDArray[np.int64] = fitted("(M, 2): the things on the left and on the right")
    comparisons_: NDArray[np.int64] = fitted("(K,): how many answers there are about each thing")
    thing_vocabulary_: Vocabulary = fitted("the things compared", saved=False)

    @property
    def things_(self) -> NDArray[Any]:
        """The ids of what was compared, in the order of ``scores_``."""
        return self.thing_vocabulary_.ids

    def fit_predict(self, labels: Any, gold: Any = None) -> Any:
        """Fit, and give the scores keyed by thing, the best first.

        Parameters
        ----------
        annotations
            Comparisons, or a frame with two columns of things and one of winners.
        gold
            Not used: comparisons have no true class.
        """
        self._fit_with(labels, gold)
        order = np.argsort(-self.scores_, kind="stable")
        return by_id({"item": self.things_[order]}, self.scores_[order], "score", {}, self.frame_kind_)

    def _fit(self, annotations: Annotations, engine: Engine) -> None:
        self.sides_, self.thing_vocabulary_ = sides_of(annotations)
        pairs = pairs_of(annotations, self.sides_, len(self.thing_vocabulary_))
        K, M, N = pairs.sizes
        monitor = ConvergenceMonitor(engine, self.max_iter, self.tol)
        ways = monitor.resume(Ways)
        if ways is None:
            crowd, spread = np.array([1.0, 0.0, -1.0]), np.array([1.0, 0.2, 0.1, 0.1, 0.5])
            ways = Ways(np.zeros(K), np.zeros(M), np.tile(crowd, (N, 1)), crowd, spread, np.ones(K))
        for _ in monitor:
            if monitor.report(log_posterior(pairs, ways), ways):
                break
            ways = scores_given(pairs, ways)
            if self.pair_effects:
                ways = pairs_given(pairs, ways)
            ways = annotators_given(pairs, ways, self.position)
        self.trace_, self.stopped_ = np.array(monitor.trace), monitor.stopped
        self.scores_, self.effects_, self.own_ = ways.theta, ways.delta, ways.own
        self.crowd_, self.spread_ = ways.crowd, ways.spread
        covariances = np.linalg.inv(about_annotators(pairs, ways)[1])
        self.own_errors_ = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
        # Laplace's approximation of the scores, the pairs' own effects integrated out: answers to one pair
        # share δ, and w_m = I_m / (1 + ρ² I_m) of information on θ_i − θ_j is left
        _, information, _, _ = slopes(pairs, ways)
        squares = ways.own[pairs.annotator, 0] ** 2 * information
        weight = np.asarray(np.bincount(pairs.item, squares, M), np.float64)
        if self.pair_effects:
            weight = weight / (1 + ways.spread[1] * weight)
        left, right = self.sides_.T
        precision = _curvature(left, right, weight, K) + np.eye(K) / ways.spread[0]
        self.covariance_ = np.asarray(np.linalg.inv(precision), np.float64)
        self.comparisons_ = np.bincount(np.concatenate([pairs.left, pairs.right]), minlength=K)
        self._answer()

    def _answer(self) -> None:
        """What annotators answer about every item, on average: one like the crowd."""
        every, nobody = np.arange(len(self.sides_), dtype=np.int32), np.full(len(self.sides_), -1, np.int32)
        self.label_distributions_ = self._pair_distributions(every, nobody)
        self.prior_distribution_ = self._pair_distributions(nobody[:1], nobody[:1])[0]

    # ---- what it knows --------------------------------------------------------------------------------

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """P(y | item, annotator); one never seen is like the crowd, a pair never seen is even."""
        left, right = np.vstack([self.sides_, [0, 0]])[item].T
        ahead = self.scores_[left] - self.scores_[right] + np.append(self.effects_, 0.0)[item]
        a, lean, tie = np.vstack([self.own_, self.crowd_])[annotator].T
        table = np.stack(chances(a * ahead + lean, tie), axis=1)
        return row_shares(table[:, [WINNERS.index(str(name)) for name in self.classes_]])

    def ranking(self, interval: float = 0.95) -> dict[str, Any]:
        """Things from the highest to the lowest: score and rank with their intervals, answers about each.

        Parameters
        ----------
        interval
            Size of the intervals, such as 0.9.
        """
        root = np.linalg.cholesky(self.covariance_ + 1e-12 * np.eye(len(self.scores_)))
        normal = np.random.default_rng(self.seed).standard_normal((DRAWS, len(self.scores_)))
        draws = self.scores_ + normal @ root.T
        draws = draws - draws.mean(axis=1, keepdims=True)
        centred = self.scores_ - self.scores_.mean()
        ends = [(1 - interval) / 2, (1 + interval) / 2]
        low, high = np.quantile(draws, ends, axis=0)
        ranks = len(centred) - draws.argsort(axis=1).argsort(axis=1)
        rank_low, rank_high = np.quantile(ranks, ends, axis=0, method="inverted_cdf").astype(np.int64)
        order = np.argsort(-centred, kind="stable")
        return {
            "item": self.thing_vocabulary_.arrow.take(places(order)),
            "score": centred[order],
            "low": np.minimum(low, centred)[order],
            "high": np.maximum(high, centred)[order],
            "rank_low": rank_low[order],
            "rank_high": rank_high[order],
            "n_labels": self.comparisons_[order],
        }

    def label_pieces(self, interval: float | None = None, size: int = PIECE) -> Iterator[dict[str, Any]]:
        """One row per thing, best first: item, score, low, high, rank_low, rank_high, n_labels."""
        yield self.ranking(interval or 0.95)

    def to_frame(self, interval: float | None = None) -> Any:
        """The ranking, one row per thing, best first.

        Parameters
        ----------
        interval
            Size of the intervals; None is 0.95.
        """
        self._check_fitted()
        columns = self.ranking(interval or 0.95)
        order = np.argsort(-self.scores_, kind="stable")
        return make_frame(columns | {"item": self.things_[order]}, self.frame_kind_)

    def annotator_frame(self) -> dict[str, Any]:
        """Columns about annotators: reliability (1: as usual, 0: says nothing), leaning to the left, ties.

        Reliability has a 95 % interval.
        """
        reliability, reach = self.own_[:, 0], 1.96 * self.own_errors_[:, 0]
        ends = {"reliability_low": reliability - reach, "reliability_high": reliability + reach}
        return {"reliability": reliability, **ends, "leaning": self.own_[:, 1], "ties": self.own_[:, 2]}

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Scores stay; pairs of things of the fit are answered by them, with effects from their labels."""
        sides, things = sides_of(new)
        code = fitted.thing_vocabulary_.codes(things)
        if (code < 0).any():
            raise DataError(
                f"{things[int(np.flatnonzero(code < 0)[0])]!r} was not compared when the model was fitted; "
                "fit with it"
            )
        self.sides_ = code[sides].astype(np.int64)
        who = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        self.own_ = np.vstack([fitted.own_, fitted.crowd_])[who]
        self.own_errors_ = np.vstack([fitted.own_errors_, np.sqrt(fitted.spread_[2:])])[who]
        pairs = pairs_of(new, self.sides_, len(fitted.scores_))
        crowd = fitted.crowd_, fitted.spread_, np.ones(0)
        ways = Ways(fitted.scores_, np.zeros(new.n_items), self.own_, *crowd)
        for _ in range(20 * self.pair_effects):
            ways = replace(pairs_given(pairs, ways), spread=fitted.spread_)
        self.effects_ = ways.delta
        self._answer()

    # ---- keeping it -----------------------------------------------------------------------------------

    def _state(self) -> tuple[Header, Arrays]:
        facts, arrays = super()._state()
        return facts, arrays | pack_ids("thing", self.thing_vocabulary_)

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        super()._restore(facts, arrays)
        self.thing_vocabulary_ = unpack_ids("thing", arrays)


def sides_of(annotations: Annotations) -> tuple[NDArray[np.int64], Vocabulary]:
    """(items, 2): which thing is on the left and on the right of each item, and the things."""
    left, right = annotations.item_column("left"), annotations.item_column("right")
    codes, things = encode(np.concatenate([left, right]), "thing")
    if len(things) > MOST_THINGS:
        raise DataError(
            f"{len(things):,} things are compared, more than {MOST_THINGS:,}; rank a part of them"
        )
    return codes.reshape(2, -1).T.astype(np.int64), things


def pairs_of(annotations: Annotations, sides: NDArray[np.int64], n_things: int) -> Pairs:
    """The answers with the things they are about."""
    names = [str(name) for name in annotations.classes]
    won = np.array([{"left": 0.5, "right": -0.5}.get(name, 0.0) for name in names])
    item = annotations.item.astype(np.int64)
    left, right = sides[item].T
    tied = np.array([float(name == "tie") for name in names])[annotations.label]
    annotator, sizes = annotations.annotator.astype(np.int64), (annotations.n_items, annotations.n_annotators)
    return Pairs(left, right, item, annotator, won[annotations.label], tied, (n_things, *sizes))
