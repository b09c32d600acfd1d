"""DirichletRegression: label distributions predicted from features and corrected by the items' labels.

Generative model: the label distribution of item m is drawn around a regression on its features x_m, and every
label of the item is drawn from it, whichever annotator gives it:

    p_m ~ Dir(S h(x_m)),   h(x) = softmax(Wᵀ x + b),   y_mn ~ Cat(p_m).                                (1)

The concentration S is the number of labels that the features are worth. With counts c_m of n_m labels,

    E[p_m | labels, x_m] = (S h(x_m) + c_m) / (S + n_m).                                               (2)

h is a softmax regression on the label shares d_m of M items, with an L2 penalty λ on W but not on b:

    J(W, b) = −(1/M) Σ_m Σ_p d_mp log h_p(x_m) + λ/2 ‖W‖².                                             (3)

h(x_m) comes from a regression that has not seen the labels of item m (cross-fitting); otherwise they would
count twice. λ and S are those that best predict each answer of an annotator from the features and the answers
of the other annotators, of which ``same`` are of the same class:

    J(λ, S) = Σ_mn log [(S h_λ(x_m)_y + same_mn) / (S + others_mn)] + log p(S).                        (4)

λ is chosen on as few folds as hold ``VALIDATION_ITEMS`` items, from a coarse grid, and then interpolated. All
folds give h at this λ, and S. If no item has answers of two annotators, only the prior in (4)
depends on S: Gamma(2, 1/8), with mode 8.

Why the prior must contain the features if a learner is fitted to the estimates: its loss is linear in the
targets, so it learns the mean target of items that look alike. Raw shares have the right mean. Estimates of a
model without features are shrunk towards the crowd's mean, the more the fewer labels an item has, and so is
the learner. Given x, the mean is right again: E[ E[p | labels, x] | x ] = E[p | x].
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax

from dissensus.engine import Engine, raise_if_cancelled
from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import as_features, features_of
from dissensus.models.base import Model
from dissensus.numerics import Array, normalised
from dissensus.params import EMBEDDING, NONE, POSITIVE, SEED, fitted, integer, real, setting

S_PRIOR_SHAPE, S_PRIOR_RATE = 2.0, 1 / 8  # Gamma prior of S
L2_PATH = np.geomspace(1.0, 1e-6, 25)  # penalties that SoftmaxRegression tries, from strong to weak
L2_PATIENCE = 3  # penalties that it tries after the best one
L2_GRID = np.array([1, 0.1, 0.01, 3e-3, 1e-3, 3e-4, 1e-4, 1e-5])  # penalties tried, up to the first worse one
VALIDATION_ITEMS = 400  # items on which a penalty is chosen
MIN_CURVATURE = 1e-3  # floor of d̄_p (1 − d̄_p) in the scale of weights
MIN_RELATIVE_VARIANCE = 1e-9  # added to the variance of each feature, as a share of the total
REGRESSION_MAX_ITER = 500
REGRESSION_TOL, FOLD_TOL = 1e-5, 1e-3  # gradient at which the final regression and those of the folds stop


# ---- softmax regression -------------------------------------------------------------------------------


def softmax_objective(weights: Array, X: Array, targets: Array, penalty: float) -> tuple[float, Array]:
    """Return J (3) and its gradient; the last row of ``weights`` (features + 1, classes) is b."""
    W, b = weights[:-1], weights[-1]
    log_p = log_softmax(X @ W + b, axis=1)
    value = -float((targets * log_p).sum()) / len(X) + 0.5 * penalty * float((W * W).sum())
    # ∂J/∂(Wᵀ x_m + b) = (h(x_m) − d_m) / M
    residual = (np.exp(log_p) - targets) / len(X)
    return value, np.vstack([X.T @ residual + penalty * W, residual.sum(axis=0)])


def fit_softmax(X: Array, targets: Array, penalty: float, start: Array, max_iter: int, tol: float) -> Array:
    """Return the weights that minimise J (3), by L-BFGS in scaled weights V.

    With V, all directions have about the same curvature, so that few steps suffice. No entry of the gradient
    for V exceeds ``tol``.
    """
    from scipy.optimize import minimize

    # W_jp = V_jp / √c_jp,  c_jp = var(x_j) d̄_p (1 − d̄_p) + λ ≈ ∂²J/∂W_jp²
    # b_p = V_bp / √c_bp − W_pᵀ x̄,  c_bp = d̄_p (1 − d̄_p)
    x_mean, shares, variance = X.mean(axis=0), targets.mean(axis=0), X.var(axis=0)
    variance += MIN_RELATIVE_VARIANCE * (variance.sum() or 1.0)
    curvature = np.outer(np.append(variance, 1.0), np.maximum(shares * (1 - shares), MIN_CURVATURE))
    curvature[:-1] += penalty
    scale = 1 / np.sqrt(curvature)

    def unscaled(v: Array) -> Array:
        weights = scale * v.reshape(start.shape)
        weights[-1] -= x_mean @ weights[:-1]
        # h does not depend on the mean over classes, which is 0 at the minimum
        return np.asarray(weights - weights.mean(axis=1, keepdims=True))

    def scaled_objective(v: Array) -> tuple[float, Array]:
        raise_if_cancelled()
        value, gradient = softmax_objective(unscaled(v), X, targets, penalty)
        gradient[:-1] -= np.outer(x_mean, gradient[-1])
        return value, (scale * gradient).ravel()

    v = start.copy()
    v[-1] += x_mean @ v[:-1]
    options: Any = {"maxiter": max_iter, "gtol": tol, "ftol": 0.0, "maxcor": 20}
    solution = minimize(scaled_objective, (v / scale).ravel(), jac=True, method="L-BFGS-B", options=options)
    return unscaled(solution.x)


def predict_softmax(X: Array, weights: Array) -> Array:
    """Return softmax(Wᵀ x + b) of each row."""
    return np.asarray(np.exp(log_softmax(X @ weights[:-1] + weights[-1], axis=1)))


def total_variance(X: Array) -> float:
    """Return the mean squared length of the centred features, or 1 if they do not vary."""
    return float(X.var(axis=0).sum()) or 1.0


def cross_fitted(X: Array, shares: Array, tests: Sequence[NDArray[np.int64]], path: Array) -> Iterator[Array]:
    """Yield (items, classes) for each l2: h of the items of each test fold, from the items outside the fold.

    Items in no test fold, and a single item, have uniform rows.
    """
    tests = tests if len(X) > 1 else []
    trains = [np.setdiff1d(np.arange(len(X)), test) for test in tests]
    weights = [np.zeros((X.shape[1] + 1, shares.shape[1])) for _ in tests]
    for l2 in path:
        means = np.full_like(shares, 1 / shares.shape[1])
        for f, (train, test) in enumerate(zip(trains, tests, strict=True)):
            rows = X[train]
            penalty = l2 * total_variance(rows)
            weights[f] = fit_softmax(rows, shares[train], penalty, weights[f], REGRESSION_MAX_ITER, FOLD_TOL)
            means[test] = predict_softmax(X[test], weights[f])
        yield means


def interpolated_maximum(penalties: Array, values: Array) -> float:
    """Return the penalty at the top of the parabola through the best value and its neighbours, in log λ."""
    best = int(np.argmax(values))
    if not 0 < best < len(values) - 1:
        return float(penalties[best])
    nearest = slice(best - 1, best + 2)
    square, slope, _ = np.polyfit(np.log(penalties[nearest]), values[nearest], 2)
    # the maximum of a x² + b x + c is at −b / 2a
    return float(np.exp(-slope / (2 * square)))


# ---- S: the number of labels that the features are worth ----------------------------------------------


@dataclass(frozen=True)
class LeaveOneOutLabels:
    """Every label with the counts of the other annotators' labels of its item."""

    item: NDArray[np.int32]
    label: NDArray[np.int32]
    same: Array  # (labels,): labels of the same class by others
    others: Array  # (labels,): all labels by others

    @classmethod
    def of(cls, annotations: Annotations) -> Self:
        """Leave out all labels of a pair together; labels of class counts are each a pair."""
        item, label, counts = annotations.item, annotations.label, annotations.counts
        pair = np.arange(annotations.n_labels) if annotations.anonymous else annotations.pair
        cells = pair * annotations.n_classes + label
        _, cell, cell_size = np.unique(cells, return_inverse=True, return_counts=True)
        same = counts[item, label] - cell_size[cell]
        others = counts.sum(axis=1)[item] - np.bincount(pair)[pair]
        return cls(item, label, same.astype(np.float64), others.astype(np.float64))

    def log_likelihood(self, means: Array, concentration: float) -> float:
        """Return Σ log P(label | features, other labels), the sum in (4)."""
        expected = means[self.item, self.label]
        probability = (concentration * expected + self.same) / (concentration + self.others)
        return float(np.log(probability).sum())


def log_gamma_prior(concentration: float) -> float:
    """Return log p(S) up to a constant."""
    return (S_PRIOR_SHAPE - 1) * float(np.log(concentration)) - S_PRIOR_RATE * concentration


def best_concentration(labels: LeaveOneOutLabels, means: Array) -> tuple[float, float]:
    """Return the S that maximises (4) for the regression means, and the maximum."""
    from scipy.optimize import minimize_scalar

    def loss(log_s: float) -> float:
        s = float(np.exp(log_s))
        return -labels.log_likelihood(means, s) - log_gamma_prior(s)

    bounds = float(np.log(1e-2)), float(np.log(1e4))
    solution = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    return float(np.exp(solution.x)), -float(solution.fun)


# ---- the model ----------------------------------------------------------------------------------------


class DirichletRegression(Model):
    """Label distributions from features and labels: a Dirichlet prior centred on a softmax regression.

    Items carry features (:func:`dissensus.text.with_features`) or a text.
    """

    concentration: float | None = setting(
        None, POSITIVE | NONE, "Number of labels that the features of an item are worth (S); None learns it."
    )
    _: KW_ONLY
    l2: float | None = setting(None, real(0.0) | NONE, "Weight of the L2 penalty; None learns it.")
    folds: int = setting(10, integer(2), "Number of folds for predicting items without their labels.")
    embedding: str | None = setting(None, *EMBEDDING)
    seed: int = setting(0, *SEED)

    uses_features = True
    _memory_tables = {"MP": 10, "MD": 4}

    coef_: Array = fitted("(features, classes): W")
    intercept_: Array = fitted("(classes,): b")
    item_means_: Array = fitted("(items, classes): h of each item, from a regression without its labels")
    concentration_: Array = fitted("S in use, as a 0-d array")
    l2_: Array = fitted("the l2 in use, as a 0-d array")
    l2_tried_: Array = fitted("the l2 tried; trace_ has the value of (4) on the validation items at each")

    def fit(self, labels: Any, features: Any = None) -> Self:
        """Fit the model to labels and the features of their items.

        ``features`` has one row per item, in the order of ``labels.items``; by default, the features that the
        labels carry are used, or embeddings of their ``text`` column.
        """
        return self._run_fit(labels, features=features)

    def _fit(self, annotations: Annotations, engine: Engine, features: Any = None) -> None:
        X = features_of(annotations, self.embedding, features=features).astype(np.float64)
        labelled = np.flatnonzero(annotations.counts.any(axis=1))
        shares = normalised(annotations.counts[labelled].astype(np.float64))
        rows = X if len(labelled) == len(X) else X[labelled]
        l2, S, means = self._choose(annotations[labelled], rows, shares)
        start = np.zeros((X.shape[1] + 1, annotations.n_classes))
        penalty = l2 * total_variance(rows)
        weights = fit_softmax(rows, shares, penalty, start, REGRESSION_MAX_ITER, REGRESSION_TOL)
        self.coef_, self.intercept_ = weights[:-1], weights[-1]
        self.item_means_ = predict_softmax(X, weights)
        self.item_means_[labelled] = means
        self.concentration_, self.l2_ = np.asarray(S), np.asarray(l2)
        self.prior_distribution_ = normalised(self.item_means_.sum(axis=0))
        # (S h(x_m) + c_m) / (S + n_m)   (2)
        self.label_distributions_ = normalised(S * self.item_means_ + annotations.counts)

    def _choose(self, annotations: Annotations, X: Array, shares: Array) -> tuple[float, float, Array]:
        """Return l2, S, and the means of the items, each from a regression without its labels."""
        order = np.random.default_rng(self.seed).permutation(len(X))
        tests = np.array_split(order, min(self.folds, len(X)))
        validation = tests[: -(-VALIDATION_ITEMS // len(tests[0]))]
        rows = np.isin(annotations.item, np.concatenate(validation))
        labels, values = LeaveOneOutLabels.of(annotations.take_rows(rows)), list[float]()
        grid = L2_GRID if self.l2 is None else np.asarray([float(self.l2)])
        for means in cross_fitted(X, shares, validation, grid):
            values.append(self._best_concentration(labels, means)[1])
            if values[-1] < max(values):
                break
        self.l2_tried_, self.trace_ = grid[: len(values)].copy(), np.asarray(values)
        self.stopped_ = "patience" if len(values) < len(grid) else "end of path"
        l2 = interpolated_maximum(self.l2_tried_, self.trace_)
        means = next(cross_fitted(X, shares, tests, np.asarray([l2])))
        S, _ = self._best_concentration(LeaveOneOutLabels.of(annotations), means)
        return l2, S, means

    def _best_concentration(self, labels: LeaveOneOutLabels, means: Array) -> tuple[float, float]:
        """Return S, the best one if it is not a setting, and the value of (4)."""
        if self.concentration is None:
            return best_concentration(labels, means)
        S = float(self.concentration)
        return S, labels.log_likelihood(means, S) + log_gamma_prior(S)

    def label_distributions(self, features: Any) -> Array:
        """Return (items, classes): h, predicted from features or texts alone.

        Parameters
        ----------
        features
            (items, features) of items to predict.
        """
        self._check_fitted()
        X = as_features(features, self.embedding).astype(np.float64)
        if X.shape[1] != len(self.coef_):
            raise DataError(f"got {X.shape[1]} features, but the model was fitted on {len(self.coef_)}")
        return predict_softmax(X, np.vstack([self.coef_, self.intercept_]))

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Keep the means of fitted items; predict those of other items from their features."""
        codes = fitted.item_vocabulary_.codes(new.item_vocabulary)
        self.item_means_ = fitted.item_means_[codes]
        unknown = np.flatnonzero(codes < 0)
        if len(unknown):
            self.item_means_[unknown] = fitted.label_distributions(features_of(new[unknown], self.embedding))
        self.label_distributions_ = normalised(float(self.concentration_) * self.item_means_ + new.counts)
