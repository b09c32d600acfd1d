"""DirichletRegression: what an item's features lead one to expect, corrected by the labels it got.

How a label is born: the label distribution of item m is scattered around what its features x_m say, and every
label is drawn from it, whoever gives it:

    p_m ~ Dir(S h(x_m)),   h(x) = softmax(Vᵀ x + b),   y_mn ~ Cat(p_m).                                (1)

S is how many labels the features are worth. With counts c_m of n_m labels the item's distribution is expected
to be

    E[p_m | labels, x_m] = (S h(x_m) + c_m) / (S + n_m).                                               (2)

h is an L2-regularised softmax regression of the items' label shares. An item's own h(x_m) comes from a
regression that has not seen its labels (cross-fitting), or they would count twice; the l2 λ and S are
those that best predict each answer of an annotator from the features and the other annotators' answers:

    J(λ, S) = Σ_mn log [(S h_λ(x_m)_y + c_my − own_y) / (S + n_m − own)] + log p(S).                   (3)

Where no item has answers of two annotators, (3) does not depend on S but for its prior, Gamma(2, 1/8), whose
mode is eight labels.

Why the features must be in the prior when a learner is fitted to it: its loss is linear in the targets, so
what it learns is the mean of the targets of items that look alike. Raw shares have the right mean. The
estimates of a model that has not seen x have not: they are drawn towards the crowd's mean, by more the fewer
the labels, and so is the learner. With x in the condition the mean is right again, because
E[ E[p | labels, x] | x ] = E[p | x].
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.engine import Engine
from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import as_features, features_of
from dissensus.models.base import Model
from dissensus.models.softmax import PATH, PATIENCE, minimise, predict, spread
from dissensus.numerics import Array, normalised
from dissensus.params import EMBEDDING, NONE, SEED, fitted, integer, real, setting

PRIOR_SHAPE, PRIOR_RATE = 2.0, 1 / 8  # Gamma prior of S: its mode is (shape − 1) / rate
MAX_ITER, TOL = 500, 1e-5  # of the regression
FOLD_TOL = 1e-4  # of the folds' regressions, of which there are many


# ---- S: how many labels the features are worth --------------------------------------------------------


@dataclass(frozen=True)
class Answers:
    """Every label, and what the other annotators of its item said."""

    item: NDArray[np.int32]
    label: NDArray[np.int32]
    same: Array  # (labels,): labels of the same class by others
    others: Array  # (labels,): all labels by others

    @classmethod
    def of(cls, annotations: Annotations) -> Self:
        """A pair's labels are left out together; class counts name nobody, and every label is its own."""
        item, label, counts = annotations.item, annotations.label, annotations.counts
        pair = np.arange(annotations.n_labels) if annotations.anonymous else annotations.pair
        cells = pair * annotations.n_classes + label
        _, which, own_class = np.unique(cells, return_inverse=True, return_counts=True)
        same = counts[item, label] - own_class[which]
        others = counts.sum(axis=1)[item] - np.bincount(pair)[pair]
        return cls(item, label, same.astype(np.float64), others.astype(np.float64))

    def log_chance(self, means: Array, concentration: float) -> float:
        """Σ log P(label | features, the others' labels): the sum of (3)."""
        expected = means[self.item, self.label]
        chance = (concentration * expected + self.same) / (concentration + self.others)
        return float(np.log(chance).sum())


def log_prior(concentration: float) -> float:
    """log Gamma(S), up to a constant."""
    return (PRIOR_SHAPE - 1) * float(np.log(concentration)) - PRIOR_RATE * concentration


def best_concentration(answers: Answers, means: Array) -> tuple[float, float]:
    """The S that maximises (3) for given expectations, and its value."""
    from scipy.optimize import minimize_scalar

    def loss(log_s: float) -> float:
        s = float(np.exp(log_s))
        return -answers.log_chance(means, s) - log_prior(s)

    bounds = float(np.log(1e-2)), float(np.log(1e4))
    found = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    return float(np.exp(found.x)), -float(found.fun)


def posterior_mean(means: Array, counts: NDArray[Any], concentration: float) -> Array:
    """E[p_m | labels, x_m] (2)."""
    return normalised(concentration * means + counts)


# ---- h: what the features say -------------------------------------------------------------------------


def cross_fitted(X: Array, shares: Array, folds: int, seed: int, path: Array) -> Iterator[Array]:
    """(items, classes) at each l2: every item's h from the items of the other folds."""
    order = np.random.default_rng(seed).permutation(len(X))
    held = np.array_split(order, min(folds, len(X)))
    kept = [np.setdiff1d(order, part) for part in held]
    weights = [np.zeros((X.shape[1] + 1, shares.shape[1])) for _ in held]
    for l2 in path:
        means = np.empty_like(shares)
        for f, (train, test) in enumerate(zip(kept, held, strict=True)):
            rows = X[train]
            weights[f] = minimise(rows, shares[train], l2 * spread(rows), weights[f], MAX_ITER, FOLD_TOL)
            means[test] = predict(X[test], weights[f])
        yield means


class DirichletRegression(Model):
    """Label distributions from features and labels together: Dirichlet scatter around a softmax regression.

    Items carry features (:func:`dissensus.text.with_features`) or a text.
    """

    concentration: float | None = setting(
        None,
        real(0.0, open_low=True) | NONE,
        "How many labels the features of an item are worth (S); None learns it.",
    )
    _: KW_ONLY
    l2: float | None = setting(
        None, real(0.0) | NONE, "Weight of the L2 penalty of the regression; None learns it."
    )
    folds: int = setting(
        10, integer(2), "Parts of the items over which ``l2`` and ``concentration`` are learned."
    )
    embedding: str | None = setting(None, *EMBEDDING)
    seed: int = setting(0, *SEED)

    uses_features = True
    _memory_tables = {"MP": 10, "MD": 4}

    coef_: Array = fitted("(features, classes): V")
    intercept_: Array = fitted("(classes,): b")
    item_means_: Array = fitted("(items, classes): what each item's features say, its own labels not seen")
    concentration_: Array = fitted("S in use, as a 0-d array")
    l2_: Array = fitted("the l2 in use, as a 0-d array")
    l2_tried_: Array = fitted("the path tried; trace_ has the value of (3) at each")

    # ---- fitting --------------------------------------------------------------------------------------

    def fit(self, labels: Any, features: Any = None) -> Self:
        """Learn from labels and the features of their items.

        ``features`` has one row per item, in the order of ``labels.items``; without it, those that the
        labels carry are taken, or the embeddings of their ``text`` column.
        """
        return self._run_fit(labels, features=features)

    def _fit(self, annotations: Annotations, engine: Engine, features: Any = None) -> None:
        X = features_of(annotations, self.embedding, given=features).astype(np.float64)
        labelled = np.flatnonzero(annotations.counts.any(axis=1))
        shares = normalised(annotations.counts[labelled].astype(np.float64))
        rows = X if len(labelled) == len(X) else X[labelled]
        l2, S, means = self._choose(annotations, rows, shares, labelled)
        start = np.zeros((X.shape[1] + 1, annotations.n_classes))
        weights = minimise(rows, shares, l2 * spread(rows), start, MAX_ITER, TOL)
        self.coef_, self.intercept_ = weights[:-1], weights[-1]
        self.item_means_ = predict(X, weights)
        self.item_means_[labelled] = means
        self.concentration_, self.l2_ = np.asarray(S), np.asarray(l2)
        self.prior_distribution_ = normalised(self.item_means_.sum(axis=0))
        self.label_distributions_ = posterior_mean(self.item_means_, annotations.counts, S)

    def _choose(
        self, annotations: Annotations, X: Array, shares: Array, labelled: NDArray[np.intp]
    ) -> tuple[float, float, Array]:
        """The l2 and S with the highest (3), along the path from strong to weak, and the items' means."""
        answers = Answers.of(annotations[labelled])
        path = PATH if self.l2 is None else np.asarray([float(self.l2)])
        if len(X) < 2:  # all classes alike, of a lone item
            expected = iter([np.full_like(shares, 1 / shares.shape[1])] * len(path))
        else:
            expected = cross_fitted(X, shares, self.folds, self.seed, path)
        tried, values = list[tuple[float, float, Array]](), list[float]()
        for l2, means in zip(path, expected, strict=True):
            if self.concentration is None:
                S, value = best_concentration(answers, means)
            else:
                S = float(self.concentration)
                value = answers.log_chance(means, S) + log_prior(S)
            tried.append((float(l2), S, means))
            values.append(value)
            best = int(np.argmax(values))
            if len(tried) - 1 - best >= PATIENCE:
                break
        self.l2_tried_, self.trace_ = path[: len(tried)].copy(), np.asarray(values)
        self.stopped_ = "patience" if len(tried) < len(path) else "end of path"
        return tried[best]

    # ---- asking ---------------------------------------------------------------------------------------

    def label_distributions(self, features: Any) -> Array:
        """(items, classes) from features (or texts) alone: h.

        Parameters
        ----------
        features
            (items, features) of items to predict.
        """
        self._check_fitted()
        X = as_features(features, self.embedding).astype(np.float64)
        if X.shape[1] != len(self.coef_):
            raise DataError(f"{X.shape[1]} features were given and this was fitted on {len(self.coef_)}")
        return predict(X, np.vstack([self.coef_, self.intercept_]))

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Items of the fit keep what their features said there; the others' features are asked."""
        place = fitted.item_vocabulary_.codes(new.item_vocabulary)
        self.item_means_ = fitted.item_means_[place]
        strangers = np.flatnonzero(place < 0)
        if len(strangers):
            features = features_of(new[strangers], self.embedding)
            self.item_means_[strangers] = fitted.label_distributions(features)
        self.label_distributions_ = posterior_mean(self.item_means_, new.counts, float(self.concentration_))
