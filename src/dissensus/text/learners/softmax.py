"""Softmax regression on label distributions: the baseline for every other learner.

An item with features x has the distribution p(x) = softmax(W x + b). With target distributions d_i,

    J(W, b) = −(1/M) Σ_i Σ_p d_ip log p_p(x_i) + (λ/2) ‖W‖²                                            (1)

is convex; L-BFGS finds its minimum. λ is ``l2`` times the mean squared length of the centred features, so
that a value suits features of any scale. If ``l2`` is None, it is chosen on the dev set, or by
cross-validation without one, along a path from strong to weak, each fit starting from the previous one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY
from typing import Any

import numpy as np

from dissensus.engine import threads
from dissensus.errors import DataError
from dissensus.labels.features import as_features
from dissensus.metrics import kl
from dissensus.models import dirichlet_regression
from dissensus.models.dirichlet_regression import L2_PATH, fit_softmax, predict_softmax, total_variance
from dissensus.numerics import Array
from dissensus.params import EMBEDDING, MAX_ITER, NONE, POSITIVE, SEED, fitted, integer, real, setting
from dissensus.tables.arrays import Arrays, Header
from dissensus.text.learners.base import Dev, Learner, check_head


class SoftmaxRegression(Learner):
    """L2-regularised softmax regression on label distributions.

    X is an (items, features) array, or texts, which are embedded.
    """

    l2: float | None = setting(None, real(0.0) | NONE, "L2 penalty; None: chosen on dev or by ``cv`` folds.")
    _: KW_ONLY
    cv: int = setting(5, integer(2), "Number of folds for choosing ``l2``.")
    max_iter: int = setting(1000, *MAX_ITER)
    tol: float = setting(1e-6, POSITIVE, "The fit stops when no component of the gradient exceeds this.")
    embedding: str | None = setting(None, *EMBEDDING)
    seed: int = setting(0, *SEED)

    coef_: Array = fitted("(features, classes)")
    intercept_: Array = fitted("(classes,)")
    l2_: Array = fitted("the ``l2`` in use, as a 0-d array")
    l2_tried_: Array = fitted("the values of ``l2`` tried")
    path_kl_: Array = fitted("KL on dev, or the mean over folds, of each value tried")

    def _inputs(self, X: Any) -> Array:
        return as_features(X, self.embedding).astype(np.float64)

    def _fit(self, X: Array, targets: Array, dev: Dev | None) -> None:
        with threads() as _:
            self._choose(X, targets, dev)
            start = np.zeros((X.shape[1] + 1, targets.shape[1]))
            l2 = float(self.l2_) * total_variance(X)
            weights = fit_softmax(X, targets, l2, start, self.max_iter, self.tol)
        self.coef_, self.intercept_ = weights[:-1], weights[-1]

    def _predict(self, X: Array) -> Array:
        if X.shape[1] != len(self.coef_):
            raise DataError(f"X has {X.shape[1]} features and the learner was fitted on {len(self.coef_)}")
        return predict_softmax(X, np.vstack([self.coef_, self.intercept_]))

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        super()._restore(facts, arrays)
        check_head(self.coef_, self.intercept_, self.n_classes_)

    def _choose(self, X: Array, targets: Array, dev: Dev | None) -> None:
        """Set ``l2_`` to the setting, or to the best of the path on dev or by cross-validation."""
        if self.l2 is not None:
            self.l2_tried_, self.path_kl_ = np.asarray([float(self.l2)]), np.full(1, np.nan)
            self.l2_ = np.asarray(self.l2_tried_[0])
            return
        parts: list[tuple[Dev, Dev]] = [] if dev is None else [((X, targets), dev)]
        if dev is None:
            if len(X) < self.cv:
                raise DataError(f"{len(X)} items cannot be split into cv={self.cv} folds; pass l2 or dev")
            order = np.random.default_rng(self.seed).permutation(len(X))
            for fold in np.array_split(order, self.cv):
                train = np.setdiff1d(order, fold)
                parts.append(((X[train], targets[train]), (X[fold], targets[fold])))
        # KL on the held-out sets along the path, until it has not improved for a while
        losses: list[float] = []
        for fits in zip(*(self._path(*train) for train, _ in parts), strict=True):
            pairs = zip(fits, parts, strict=True)
            folds = [kl(test[1], predict_softmax(test[0], w)) for w, (_, test) in pairs]
            losses.append(float(np.mean(folds)))
            if len(losses) - 1 - int(np.argmin(losses)) >= dirichlet_regression.L2_PATIENCE:
                break
        self.l2_tried_, self.path_kl_ = L2_PATH[: len(losses)], np.asarray(losses)
        self.l2_ = np.asarray(self.l2_tried_[self.path_kl_.argmin()])

    def _path(self, X: Array, targets: Array) -> Iterator[Array]:
        """Yield the minimisers from the strongest to the weakest penalty, each started from the last."""
        weights = np.zeros((X.shape[1] + 1, targets.shape[1]))
        for l2 in L2_PATH:
            weights = fit_softmax(X, targets, l2 * total_variance(X), weights, self.max_iter, self.tol)
            yield weights
