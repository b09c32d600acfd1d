"""Softmax regression on label distributions: the line every clever model has to beat.

An item with features x has the distribution p(x) = softmax(W x + b). With target distributions d_i,

    J(W, b) = −(1/M) Σ_i Σ_p d_ip log p_p(x_i) + (λ/2) ‖W‖²                                            (1)

is convex; L-BFGS finds its minimum. λ is ``l2`` times the mean squared length of the centred features,
so that the same values suit features of any scale. Unless given, it is chosen on the dev
part, or by cross-validation without one, along a path from strong to weak, each fit starting from the last.
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
from dissensus.models.softmax import PATH, PATIENCE, minimise, predict, spread
from dissensus.numerics import Array
from dissensus.params import EMBEDDING, MAX_ITER, NONE, POSITIVE, SEED, fitted, integer, real, setting
from dissensus.tables.arrays import Arrays, Header
from dissensus.text.learners.base import Dev, Learner, check_head


class SoftmaxRegression(Learner):
    """L2-regularised softmax regression on label distributions.

    X is an (items, features) array, or texts, which are then embedded.
    """

    l2: float | None = setting(
        None, real(0.0) | NONE, "Weight of the L2 penalty; None chooses it on dev, or by ``cv`` folds."
    )
    _: KW_ONLY
    cv: int = setting(5, integer(2), "Folds by which ``l2`` is chosen.")
    max_iter: int = setting(1000, *MAX_ITER)
    tol: float = setting(1e-6, POSITIVE, "The fit stops when the gradient is at most this large.")
    embedding: str | None = setting(None, *EMBEDDING)
    seed: int = setting(0, *SEED)

    coef_: Array = fitted("(features, classes)")
    intercept_: Array = fitted("(classes,)")
    l2_: Array = fitted("the l2 in use, as a 0-d array")
    l2_tried_: Array = fitted("the path tried")
    path_kl_: Array = fitted("the KL that each l2 tried reached on dev, or the folds' mean")

    def _inputs(self, X: Any) -> Array:
        return as_features(X, self.embedding).astype(np.float64)

    def _fit(self, X: Array, targets: Array, dev: Dev | None) -> None:
        with threads() as _:
            self._choose(X, targets, dev)
            start = np.zeros((X.shape[1] + 1, targets.shape[1]))
            weights = minimise(X, targets, float(self.l2_) * spread(X), start, self.max_iter, self.tol)
        self.coef_, self.intercept_ = weights[:-1], weights[-1]

    def _predict(self, X: Array) -> Array:
        if X.shape[1] != len(self.coef_):
            raise DataError(f"X has {X.shape[1]} features and this was fitted on {len(self.coef_)}")
        return predict(X, np.vstack([self.coef_, self.intercept_]))

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        super()._restore(facts, arrays)
        check_head(self.coef_, self.intercept_, self.n_classes_)

    # ---- the l2 -------------------------------------------------------------------------------

    def _choose(self, X: Array, targets: Array, dev: Dev | None) -> None:
        """Set ``l2_`` to the one given, or to the best of the path on dev or on ``cv`` folds."""
        if self.l2 is not None:
            self.l2_tried_, self.path_kl_ = np.asarray([float(self.l2)]), np.full(1, np.nan)
            self.l2_ = np.asarray(self.l2_tried_[0])
            return
        parts: list[tuple[Dev, Dev]] = [] if dev is None else [((X, targets), dev)]
        if dev is None:
            if len(X) < self.cv:
                raise DataError(f"{len(X)} items cannot be cut into cv={self.cv} folds; give l2 or dev")
            order = np.random.default_rng(self.seed).permutation(len(X))
            for fold in np.array_split(order, self.cv):
                kept = np.setdiff1d(order, fold)
                parts.append(((X[kept], targets[kept]), (X[fold], targets[fold])))
        # KL on the held parts along the path, until it has got no better for a while
        reached: list[float] = []
        for each in zip(*(self._path(*train) for train, _ in parts), strict=True):
            pairs = zip(each, (held for _, held in parts), strict=True)
            reached.append(
                float(np.mean([kl(held[1], predict(held[0], weights)) for weights, held in pairs]))
            )
            if len(reached) - 1 - int(np.argmin(reached)) >= PATIENCE:
                break
        self.l2_tried_, self.path_kl_ = PATH[: len(reached)], np.asarray(reached)
        self.l2_ = np.asarray(self.l2_tried_[self.path_kl_.argmin()])

    def _path(self, X: Array, targets: Array) -> Iterator[Array]:
        """The minimisers from the strongest penalty to the weakest, each started from the one before."""
        weights = np.zeros((X.shape[1] + 1, targets.shape[1]))
        for l2 in PATH:
            weights = minimise(X, targets, l2 * spread(X), weights, self.max_iter, self.tol)
            yield weights
