"""Paired comparisons: scores of options from pairwise preferences, with annotators who differ.

How an answer is generated (Bradley and Terry 1952; ties after Davidson 1970). Item m shows option i on the
left and j on the right; annotator n has a reliability a_n, a bias γ_n to the left and a tie propensity κ_n:

    θ_i ~ N(0, σ²)                                 scores of the options
    δ_m ~ N(0, ρ²)                                 effect of this pair (or question) beyond the scores
    (a_n, γ_n, κ_n) ~ N((1, γ, κ), diag(v))        annotators; v has a prior worth four of them
    η = a_n (θ_i − θ_j + δ_m) + γ_n
    P(left) ∝ e^{η/2},  P(right) ∝ e^{−η/2},  P(tie) ∝ e^{κ_n}

With a_n = 0 the answers carry no information about the options; below 0 they are reversed. Fitted by
alternating steps of Fisher scoring for scores, pairs and annotators; variances by empirical Bayes, with the
posterior variances from the curvature. Intervals of scores and ranks come from draws of the normal around the
scores (Laplace approximation, pair effects integrated out).
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import ConvergenceMonitor, Engine
from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.display import make_frame
from dissensus.labels.kinds import WINNERS
from dissensus.labels.vocabulary import Codes, Vocabulary, arrow_indices, encode
from dissensus.models.base import Model
from dissensus.models.results import ITEMS_PER_BATCH, ColumnBatches, by_id
from dissensus.numerics import Array, row_shares
from dissensus.params import MAX_ITER, SEED, TOL, fitted, flag, setting
from dissensus.tables.arrays import Arrays, Header, pack_ids, unpack_ids

RANK_DRAWS = 1_000
MAX_OPTIONS = 10_000  # a table of all pairs of options must fit in memory
MIN_VARIANCE_COMPONENT = 1e-4
MAX_STEP = 1.0
MIN_MEAN_RELIABILITY = 0.2
PRIOR_ANNOTATORS, PRIOR_VARIANCES = 4.0, np.array([0.1, 0.05, 0.3])  # prior size and mean of v


@dataclass(frozen=True)
class Comparisons:
    """Answers: the options on the two sides, the annotator, and the outcome."""

    left: NDArray[np.int64]  # (labels,)
    right: NDArray[np.int64]
    item: NDArray[np.int64]
    annotator: NDArray[np.int64]
    won: Array  # (labels,): ½ for left, −½ for right, 0 for a tie
    tied: Array  # (labels,): 1 for a tie
    sizes: tuple[int, int, int]  # options, items, annotators


@dataclass(frozen=True)
class Preferences:
    """Parameters of the model."""

    theta: Array  # (K,)
    delta: Array  # (M,)
    annotators: Array  # (N, 3): a, γ, κ
    mean: Array  # (3,): mean of the annotators
    variances: Array  # (5,): σ², ρ², and v


def probabilities(data: Comparisons, params: Preferences) -> tuple[Array, Array, Array]:
    """Return P(left), P(tie), P(right) of every answer."""
    a, lean, tie = params.annotators[data.annotator].T
    eta = a * (params.theta[data.left] - params.theta[data.right] + params.delta[data.item]) + lean
    return outcome_probabilities(eta, tie)


def outcome_probabilities(eta: Array, tie: Array) -> tuple[Array, Array, Array]:
    """Return P(left) ∝ e^{η/2}, P(tie) ∝ e^κ, P(right) ∝ e^{−η/2}."""
    top = np.maximum(np.abs(eta) / 2, tie)
    left, drawn, right = np.exp(eta / 2 - top), np.exp(tie - top), np.exp(-eta / 2 - top)
    total = left + drawn + right
    return left / total, drawn / total, right / total


def derivatives(data: Comparisons, params: Preferences) -> tuple[Array, Array, Array, Array]:
    """Return, by answer, ∂ log P/∂η and the Fisher information of η, of κ, and of η with κ."""
    left, tie, right = probabilities(data, params)
    ahead = left - right
    # ½([left] − [right]) − ½(P_l − P_r); ¼(P_l + P_r − (P_l − P_r)²); P_t (1 − P_t); −½ (P_l − P_r) P_t
    return data.won - ahead / 2, (left + right - ahead**2) / 4, tie * (1 - tie), -ahead * tie / 2


def update_scores(data: Comparisons, params: Preferences) -> Preferences:
    """Take one step of Fisher scoring for all scores."""
    K = len(params.theta)
    slope, information, _, _ = derivatives(data, params)
    a = params.annotators[data.annotator, 0]
    pull = np.bincount(data.left, a * slope, K) - np.bincount(data.right, a * slope, K)
    curvature = _curvature(data.left, data.right, a**2 * information, K) + np.eye(K) / params.variances[0]
    inverse = np.linalg.inv(curvature)
    step = inverse @ (pull - params.theta / params.variances[0])
    theta = params.theta + np.clip(step, -MAX_STEP, MAX_STEP)
    variances = params.variances.copy()
    variances[0] = max(float(np.mean(theta**2 + np.diag(inverse))), MIN_VARIANCE_COMPONENT)
    return replace(params, theta=theta, variances=variances)


def _curvature(left: NDArray[np.int64], right: NDArray[np.int64], weight: Array, K: int) -> Array:
    """Return (K, K) Σ w (e_i − e_j)(e_i − e_j)'."""
    weights = np.bincount(left * K + right, weight, K * K).reshape(K, K)
    weights = weights + weights.T
    return np.asarray(np.diag(weights.sum(axis=1)) - weights)


def update_pair_effects(data: Comparisons, params: Preferences) -> Preferences:
    """Take one step of Fisher scoring for the pair effects."""
    M = len(params.delta)
    slope, information, _, _ = derivatives(data, params)
    a = params.annotators[data.annotator, 0]
    precision = np.bincount(data.item, a**2 * information, M) + 1 / params.variances[1]
    step = (np.bincount(data.item, a * slope, M) - params.delta / params.variances[1]) / precision
    delta = params.delta + np.clip(step, -MAX_STEP, MAX_STEP)
    answered = np.bincount(data.item, minlength=M) > 0
    variances = params.variances.copy()
    variances[1] = max(float(np.mean((delta**2 + 1 / precision)[answered])), MIN_VARIANCE_COMPONENT)
    return replace(params, delta=delta, variances=variances)


def annotator_derivatives(data: Comparisons, params: Preferences) -> tuple[Array, Array]:
    """Return gradient (N, 3) and curvature (N, 3, 3) of the log posterior in a, γ and κ."""
    N = len(params.annotators)
    slope, information, of_tie, both = derivatives(data, params)
    ahead = params.theta[data.left] - params.theta[data.right] + params.delta[data.item]
    _, tie, _ = probabilities(data, params)
    ones = np.ones(len(ahead))
    by = (ahead, ones, ones)  # ∂η/∂a, ∂η/∂γ, ∂κ/∂κ
    pulls = (slope, slope, data.tied - tie)
    gradient = np.stack([np.bincount(data.annotator, x * g, N) for x, g in zip(by, pulls, strict=True)])
    kinds = ((information, information, both), (information, information, both), (both, both, of_tie))
    weights = [[by[i] * by[j] * kinds[i][j] for j in range(3)] for i in range(3)]
    curvature = np.array([[np.bincount(data.annotator, weight, N) for weight in row] for row in weights])
    curvature = curvature.transpose(2, 0, 1)
    precision = np.diag(1 / params.variances[2:])
    return gradient.T - (params.annotators - params.mean) @ precision, np.asarray(curvature + precision)


def update_annotators(data: Comparisons, params: Preferences, position: bool) -> Preferences:
    """Take one step of Fisher scoring for the annotators, then update their means and variances."""
    N = len(params.annotators)
    gradient, curvature = annotator_derivatives(data, params)
    step = np.asarray(np.linalg.solve(curvature, gradient[:, :, None])[:, :, 0], np.float64)
    annotators = params.annotators + np.clip(step, -MAX_STEP, MAX_STEP)
    if not position:
        annotators[:, 1] = 0.0  # and so the mean
    posterior = np.diagonal(np.linalg.inv(curvature), axis1=1, axis2=2)
    load = np.bincount(data.annotator, minlength=N)
    mean = np.average(annotators, axis=0, weights=load / (load + 5.0))
    # The mean reliability is the unit of the scores: a / u, θ u, δ u leave every η unchanged.
    unit = max(float(mean[0]), MIN_MEAN_RELIABILITY)
    annotators[:, 0], mean[0] = annotators[:, 0] / unit, 1.0
    squares = ((annotators - mean) ** 2 + posterior / [unit**2, 1, 1]).sum(axis=0)
    # ρ² is not rescaled: with few answers per pair, EM moves it too slowly to undo repeated rescaling.
    variances = params.variances * [unit**2, 1, 1, 1, 1]
    variances[2:] = (squares + PRIOR_VARIANCES * PRIOR_ANNOTATORS) / (N + PRIOR_ANNOTATORS)
    scores = {"theta": params.theta * unit, "delta": params.delta * unit}
    return replace(params, **scores, annotators=annotators, mean=mean, variances=variances)


def log_posterior(data: Comparisons, params: Preferences) -> float:
    """Return log P(answers) plus the log priors of scores, pairs and annotators, up to a constant."""
    left, tie, right = probabilities(data, params)
    observed = np.where(data.tied > 0, tie, np.where(data.won > 0, left, right))
    v = params.variances
    prior = float((params.theta**2).sum() / v[0] + (params.delta**2).sum() / v[1])
    prior += float(((params.annotators - params.mean) ** 2 / v[2:]).sum())
    return float(np.log(np.maximum(observed, 1e-300)).sum()) - prior / 2


# ---- the model ----------------------------------------------------------------------------------------


class BradleyTerry(Model):
    """Scores and ranks of options compared in pairs, with reliability, side bias and ties by annotator."""

    max_iter: int = setting(100, *MAX_ITER)
    _: KW_ONLY
    position: bool = flag(True, "Whether annotators may prefer a side; False where sides were not shown.")
    pair_effects: bool = flag(True, "Whether a pair may deviate from the difference of its scores.")
    tol: float = setting(1e-5, *TOL)
    seed: int = setting(0, *SEED)

    _needs_annotators = True
    answers_are_classes = False
    _label_types = ("pairwise",)
    _reads_as = "pairwise"

    scores_: Array = fitted("(K,): log-odds against an option of score 0")
    covariance_: Array = fitted("(K, K): posterior covariance of the scores")
    effects_: Array = fitted("(M,): δ")
    annotator_parameters_: Array = fitted("(N, 3): reliability, bias to the left, tie propensity")
    annotator_errors_: Array = fitted("(N, 3): posterior standard deviations")
    annotator_mean_: Array = fitted("(3,): mean of annotator_parameters_")
    variances_: Array = fitted("(5,): σ², ρ², and the variances of annotator_parameters_")
    sides_: NDArray[np.int64] = fitted("(M, 2): options on the left and on the right")
    comparisons_: NDArray[np.int64] = fitted("(K,): number of answers about each option")
    option_vocabulary_: Vocabulary = fitted("options compared", saved=False)

    @property
    def options_(self) -> NDArray[Any]:
        """Ids of the options, in the order of ``scores_``."""
        return self.option_vocabulary_.ids

    def fit_predict(self, labels: Any, gold: Any = None) -> Any:
        """Fit, and return the scores by option, best first.

        Parameters
        ----------
        labels
            Comparisons, or a data frame with two columns of options and one of winners.
        gold
            Not used: comparisons have no true class.
        """
        self._fit_with(labels, gold)
        order = np.argsort(-self.scores_, kind="stable")
        return by_id({"item": self.options_[order]}, self.scores_[order], "score", {}, self.frame_kind_)

    def _fit(self, annotations: Annotations, engine: Engine) -> None:
        self.sides_, self.option_vocabulary_ = sides_of(annotations)
        data = comparisons_of(annotations, self.sides_, len(self.option_vocabulary_))
        K, M, N = data.sizes
        monitor = ConvergenceMonitor(engine, self.max_iter, self.tol)
        params = monitor.resume(Preferences)
        if params is None:
            mean, variances = np.array([1.0, 0.0, -1.0]), np.array([1.0, 0.2, 0.1, 0.1, 0.5])
            params = Preferences(np.zeros(K), np.zeros(M), np.tile(mean, (N, 1)), mean, variances)
        for _ in monitor:
            if monitor.report(log_posterior(data, params), params):
                break
            params = update_scores(data, params)
            if self.pair_effects:
                params = update_pair_effects(data, params)
            params = update_annotators(data, params, self.position)
        self.trace_, self.stopped_ = np.array(monitor.trace), monitor.stopped
        self.scores_, self.effects_, self.variances_ = params.theta, params.delta, params.variances
        self.annotator_parameters_, self.annotator_mean_ = params.annotators, params.mean
        covariances = np.linalg.inv(annotator_derivatives(data, params)[1])
        self.annotator_errors_ = np.sqrt(np.diagonal(covariances, axis1=1, axis2=2))
        # Laplace approximation of the scores with pair effects integrated out: answers to one pair share δ,
        # which leaves information w_m = I_m / (1 + ρ² I_m) on θ_i − θ_j
        _, information, _, _ = derivatives(data, params)
        squares = params.annotators[data.annotator, 0] ** 2 * information
        weight = np.asarray(np.bincount(data.item, squares, M), np.float64)
        if self.pair_effects:
            weight = weight / (1 + params.variances[1] * weight)
        left, right = self.sides_.T
        precision = _curvature(left, right, weight, K) + np.eye(K) / params.variances[0]
        self.covariance_ = np.asarray(np.linalg.inv(precision), np.float64)
        self.comparisons_ = np.bincount(np.concatenate([data.left, data.right]), minlength=K)
        self._compute_answers()

    def _compute_answers(self) -> None:
        """Set the answers of the average annotator for every item, and for an unseen item."""
        items = np.arange(len(self.sides_), dtype=np.int32)
        unseen = np.full(len(items), -1, np.int32)
        self.label_distributions_ = self._pair_distributions(items, unseen)
        self.prior_distribution_ = self._pair_distributions(unseen[:1], unseen[:1])[0]

    # ---- predictions ----------------------------------------------------------------------------------

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Return P(y | item, annotator); unseen annotators are average, unseen pairs are even."""
        left, right = np.vstack([self.sides_, [0, 0]])[item].T
        ahead = self.scores_[left] - self.scores_[right] + np.append(self.effects_, 0.0)[item]
        a, lean, tie = np.vstack([self.annotator_parameters_, self.annotator_mean_])[annotator].T
        table = np.stack(outcome_probabilities(a * ahead + lean, tie), axis=1)
        return row_shares(table[:, [WINNERS.index(str(name)) for name in self.classes_]])

    def ranking(self, interval: float = 0.95) -> dict[str, Any]:
        """Return columns by option, best first: score and rank with intervals, and number of answers.

        Parameters
        ----------
        interval
            Probability content of the intervals, such as 0.9.
        """
        root = np.linalg.cholesky(self.covariance_ + 1e-12 * np.eye(len(self.scores_)))
        normal = np.random.default_rng(self.seed).standard_normal((RANK_DRAWS, len(self.scores_)))
        draws = self.scores_ + normal @ root.T
        draws = draws - draws.mean(axis=1, keepdims=True)
        centred = self.scores_ - self.scores_.mean()
        ends = [(1 - interval) / 2, (1 + interval) / 2]
        low, high = np.quantile(draws, ends, axis=0)
        ranks = len(centred) - draws.argsort(axis=1).argsort(axis=1)
        rank_low, rank_high = np.quantile(ranks, ends, axis=0, method="inverted_cdf").astype(np.int64)
        order = np.argsort(-centred, kind="stable")
        return {
            "item": self.option_vocabulary_.arrow.take(arrow_indices(order)),
            "score": centred[order],
            "low": np.minimum(low, centred)[order],
            "high": np.maximum(high, centred)[order],
            "rank_low": rank_low[order],
            "rank_high": rank_high[order],
            "n_labels": self.comparisons_[order],
        }

    def label_batches(self, interval: float | None = None, size: int = ITEMS_PER_BATCH) -> ColumnBatches:
        """Yield the ranking: item, score, low, high, rank_low, rank_high, n_labels; best first."""
        yield self.ranking(interval or 0.95)

    def to_frame(self, interval: float | None = None) -> Any:
        """Return the ranking as a data frame, one row per option, best first.

        Parameters
        ----------
        interval
            Probability content of the intervals; None is 0.95.
        """
        self._check_fitted()
        columns = self.ranking(interval or 0.95)
        order = np.argsort(-self.scores_, kind="stable")
        return make_frame(columns | {"item": self.options_[order]}, self.frame_kind_)

    def annotator_frame(self) -> dict[str, Any]:
        """Return columns about annotators: reliability with a 95 % interval, bias to the left, ties.

        A reliability of 1 is average; at 0, answers carry no information.
        """
        reliability, leaning, ties = self.annotator_parameters_.T
        margin = 1.96 * self.annotator_errors_[:, 0]
        interval = {"reliability_low": reliability - margin, "reliability_high": reliability + margin}
        return {"reliability": reliability, **interval, "leaning": leaning, "ties": ties}

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Answer pairs of options from their fitted scores, with pair effects from the new labels."""
        sides, options = sides_of(new)
        code = fitted.option_vocabulary_.codes(options)
        if (code < 0).any():
            stranger = options[int(np.flatnonzero(code < 0)[0])]
            raise DataError(f"the model was not fitted on {stranger!r}; fit again with its comparisons")
        self.sides_ = code[sides].astype(np.int64)
        annotator = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        parameters, errors = fitted.annotator_parameters_, fitted.annotator_errors_
        self.annotator_parameters_ = np.vstack([parameters, fitted.annotator_mean_])[annotator]
        self.annotator_errors_ = np.vstack([errors, np.sqrt(fitted.variances_[2:])])[annotator]
        data = comparisons_of(new, self.sides_, len(fitted.scores_))
        common = self.annotator_parameters_, fitted.annotator_mean_, fitted.variances_
        params = Preferences(fitted.scores_, np.zeros(new.n_items), *common)
        for _ in range(20 * self.pair_effects):
            params = replace(update_pair_effects(data, params), variances=fitted.variances_)
        self.effects_ = params.delta
        self._compute_answers()

    # ---- saving and loading ---------------------------------------------------------------------------

    def _state(self) -> tuple[Header, Arrays]:
        facts, arrays = super()._state()
        return facts, arrays | pack_ids("option", self.option_vocabulary_)

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        super()._restore(facts, arrays)
        self.option_vocabulary_ = unpack_ids("option", arrays)


def sides_of(annotations: Annotations) -> tuple[NDArray[np.int64], Vocabulary]:
    """Return (items, 2) the options on the left and right of each item, and the vocabulary of options."""
    left, right = annotations.item_column("left"), annotations.item_column("right")
    codes, options = encode(np.concatenate([left, right]), "option")
    if len(options) > MAX_OPTIONS:
        raise DataError(f"more than {MAX_OPTIONS:,} options are compared ({len(options):,}); rank a subset")
    return codes.reshape(2, -1).T.astype(np.int64), options


def comparisons_of(annotations: Annotations, sides: NDArray[np.int64], n_options: int) -> Comparisons:
    """Combine the answers with the options that they compare."""
    names = [str(name) for name in annotations.classes]
    won = np.array([{"left": 0.5, "right": -0.5}.get(name, 0.0) for name in names])
    item = annotations.item.astype(np.int64)
    left, right = sides[item].T
    tied = np.array([float(name == "tie") for name in names])[annotations.label]
    annotator, sizes = annotations.annotator.astype(np.int64), (annotations.n_items, annotations.n_annotators)
    return Comparisons(left, right, item, annotator, won[annotations.label], tied, (n_options, *sizes))
