"""GuidedClassifier: the paper's workflow, with any guide and any learner.

1. *Refine.* The guide, a model of this library, is fitted to the training labels. The few labels of each
   training item are replaced by the distribution of its most likely cluster, or by the posterior mean over
   clusters.
2. *Learn.* The learner is fitted to these distributions from the items' features or texts.
3. *Project.* Its prediction for a new item is replaced by the distribution of the most likely item cluster of
   the guide, or by the posterior mean over clusters.

Each step is optional. Settings are chosen by the raw labels of the dev items.

A guide with K item clusters has their shares ψ_k and, for annotator cluster l of weight π_l in the
population, label distributions Θ_kl. The population answers about an item of cluster k with

    Y'_k = Σ_l π_l Θ_kl                                                                         Eq. (4.1)

The projection treats a predicted distribution h as S labels in the proportions h. With the sum over
annotators outside, as the paper prints it, one annotator cluster gave all of these labels; with the sum
inside, each label came from a different annotator:

    P(k | h) ∝ ψ_k Σ_l π_l exp(S Σ_p h_p log Θ_klp)                                  outside, Eq. (12.2)
    P(k | h) ∝ ψ_k exp(S Σ_p h_p log Y'_kp)                                           inside, Eq. (12.3)
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from dissensus import params
from dissensus.errors import DataError, ParameterError, bad_parameter, require
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import as_features, with_features
from dissensus.labels.vocabulary import Vocabulary
from dissensus.metrics import kl
from dissensus.models.base import Model
from dissensus.models.confusion import log_with_zeros
from dissensus.models.scoring import recode_classes
from dissensus.numerics import Array, batches, one_hot_rows, row_shares, safe_log, softmax_rows
from dissensus.params import ANY, NONE, Estimator, choice, declare, fitted, integer, real, setting
from dissensus.tables import arrays
from dissensus.tables.arrays import Arrays, Header, pack_ids, unpack_ids
from dissensus.text.guided import pack_parts, unpack_part
from dissensus.text.guided.adapters import fit_learner, learner_kind, match_rows, n_rows, predict_with, take
from dissensus.text.learners.base import Dev, hold_out

MODES = choice("none", "hard", "soft")
MODES_MEANING = '``"none"``, ``"hard"`` (the most likely cluster) or ``"soft"`` (averaged over clusters)'
ANNOTATOR_SUMS = choice("inside", "outside")
PRIOR_STRENGTHS: Array = np.exp2(np.arange(9.0))  # values of S tried: 1, 2, 4, …, 256 labels
PROJECTION_CELLS_PER_CHUNK = 4_000_000  # entries of a temporary (items, K, L) array


@dataclass(frozen=True)
class ItemClusters:
    """Item clusters of a fitted guide."""

    posterior: Array  # (M, K): P(w_m = k | labels) of the training items
    shares: Array  # (K,): ψ
    theta: Array  # (K, L, P): Θ
    weights: Array  # (L,): π
    population: Array  # (K, P): Y'

    @classmethod
    def of(cls, guide: Any, annotator_load: NDArray[Any]) -> ItemClusters | None:
        """Return the clusters of a fitted guide, or None if it has none.

        If the guide has a confusion matrix for each annotator, each annotator is an annotator cluster,
        weighted by ``annotator_load``, the number of their labels.
        """
        view = guide.cluster_view(annotator_load)
        if view is None:
            return None
        theta, weights = view.theta, view.weights
        if view.matrices is not None:
            theta, weights = view.matrices.transpose(1, 0, 2), view.annotator_weights
        return cls(view.items, view.psi, theta, weights, view.population)

    def distributions(self, w: Array, mode: str) -> Array:
        """Return Y' of each row's most likely cluster ("hard"), or its mean over the row ("soft")."""
        return np.asarray((one_hot_rows(w) if mode == "hard" else w) @ self.population)

    def log_likelihood(self, h: Array, prior_strength: float, annotator_sum: str) -> Array:
        """Return log P(h | k), (n, K), of distributions h (n, P) that count as ``prior_strength`` labels."""
        if annotator_sum == "inside":
            # S Σ_p h_p log Y'_kp
            return np.asarray(prior_strength * (h @ safe_log(self.population).T))
        K, L, P = self.theta.shape
        log_theta, log_pi = safe_log(self.theta).reshape(K * L, P).T, log_with_zeros(self.weights)
        log_likelihood = np.empty((len(h), K))
        for rows in batches(len(h), max(1, PROJECTION_CELLS_PER_CHUNK // (K * L))):
            # log Σ_l π_l exp(S Σ_p h_p log Θ_klp)
            exponents = prior_strength * (h[rows] @ log_theta).reshape(-1, K, L) + log_pi
            log_likelihood[rows] = logsumexp(exponents, axis=2)
        return log_likelihood


@dataclass(frozen=True)
class Projection:
    """Projection of predicted distributions onto item clusters."""

    clusters: ItemClusters
    mode: str  # "hard" or "soft"
    annotator_sum: str  # "inside" or "outside"
    prior_strength: float  # S

    @property
    def settings(self) -> dict[str, Any]:
        """Settings without the clusters, for a file."""
        return {name: getattr(self, name) for name in ("mode", "annotator_sum", "prior_strength")}

    def posteriors(self, h: Array) -> Array:
        """Return P(k | h), (n, K), of predicted distributions h (n, P)."""
        log_likelihood = self.clusters.log_likelihood(h, self.prior_strength, self.annotator_sum)
        return softmax_rows(log_likelihood + log_with_zeros(self.clusters.shares))[0]

    def __call__(self, h: Array) -> Array:
        """Project predictions h (n, P), Eq. (12.5) or (12.6)."""
        return self.clusters.distributions(self.posteriors(h), self.mode)


@declare
class GuidedClassifier(Estimator):
    """A learner whose training labels are refined, and whose predictions are projected, by a guide.

    ``refine="none", project="none"`` fits the learner to raw labels. A guide without item clusters refines by
    its estimated distributions and cannot project. Guide and learner have their own seeds.

    X has one row for each item, features (dense or sparse) or texts, in the order of ``y.items``. A pandas
    Series or frame whose index names the items may be in any order; such an index is required if y is a frame
    or a file. y is :class:`Annotations`, a file or a frame of labels by annotators, or one label per item.
    """

    guide: Any = setting(None, ANY, "A model of labels; None is DirichletRegression(), which uses features.")
    learner: Any = setting(None, ANY, "A learner (see ``text.guided.adapters``); None: SoftmaxRegression().")
    _: KW_ONLY
    refine: str = setting("soft", MODES, f"How training labels are refined: {MODES_MEANING}.")
    project: str = setting("none", MODES, f"How predictions are projected: {MODES_MEANING}.")
    annotator_sum: str = setting(
        "inside",
        ANNOTATOR_SUMS,
        "Sum over annotators inside the likelihood of each label, or outside (paper).",
    )
    prior_strength: float | None = setting(
        None,
        real(0.0, open_low=True) | NONE,
        "Number of labels that a prediction counts as (S). None chooses it on dev or, without dev, by "
        "running the workflow once without a tenth of the items.",
    )
    seed: int = setting(0, integer(0), "Seed for choosing that tenth.")

    _fitted_by = "learner_"

    guide_: Any = fitted("the fitted guide; None if no step uses it", saved=False)
    learner_: Any = fitted("the fitted learner", saved=False)
    refined_: Array = fitted("(training items, classes): targets of the learner; NaN without labels")
    prior_strength_: float | None = fitted("S in use; None without projection", saved=False)
    prior_strength_tried_: Array = fitted("values of S tried")
    path_kl_: Array = fitted("KL of each value tried, on dev or the held-out items")
    class_vocabulary_: Vocabulary = fitted("the classes of y", saved=False)
    n_features_in_: int = fitted("number of columns of X, if it has any", saved=False)
    _projection: Projection | None = fitted('the projection; None with ``project="none"``', saved=False)
    _annotator_load: NDArray[Any] = fitted("(annotators,): number of labels of each")

    save = arrays.save

    # ---- fitting --------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, dev: tuple[Any, Any] | None = None) -> Self:
        """Refine the labels and fit the learner.

        Parameters
        ----------
        X
            Features or texts, one row for each item.
        y
            Labels of the same items.
        dev
            A pair (X, y) of other items on which settings are chosen.
        """
        self.check_params()
        from sklearn.base import clone

        X, y = match_rows(X, y)
        dev = None if dev is None else _shares_of_dev(dev, y.class_vocabulary)
        with params.fitted_copy(self) as fitted:
            if len(getattr(X, "shape", ())) == 2:
                fitted.n_features_in_ = int(X.shape[1])
            fitted.class_vocabulary_ = y.class_vocabulary
            fitted._annotator_load = np.asarray(y.annotator_load)
            clusters = fitted._fit_guide(X, y)
            if self.refine == "none":
                fitted.refined_ = row_shares(y.counts, empty=np.nan)
            elif clusters is None:
                fitted.refined_ = np.asarray(fitted.guide_.label_distributions_)
            else:
                # Y'_m = Y' of arg max_k w_mk, or Σ_k w_mk Y'_k   (Eq. infer)
                fitted.refined_ = clusters.distributions(clusters.posterior, self.refine)
            labelled = np.flatnonzero(~np.isnan(fitted.refined_[:, 0]))
            if not len(labelled):
                raise DataError("y has no labels to learn from; pass at least one")
            part = (X, y) if len(labelled) == len(y) else (take(X, labelled), y[labelled])
            fitted.learner_ = clone(self._learner())
            fit_learner(fitted.learner_, *part, fitted.refined_[labelled], dev)
            fitted._set_projection(clusters, X, y, dev)
        return self

    def check_params(self) -> None:
        """Check the settings, and that guide and learner support them."""
        super().check_params()
        require("sklearn", "guided")
        learner_kind(self._learner())
        if not isinstance(_thawed(self.guide), Model | None):
            raise bad_parameter(self, "guide", "a model of this library, or None", self.guide)

    def __sklearn_tags__(self) -> Any:
        """Declare a classifier that accepts sparse features and texts."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        target, texts = TargetTags(required=True), InputTags(sparse=True, string=True)
        return Tags("classifier", target, classifier_tags=ClassifierTags(), input_tags=texts)

    def _learner(self) -> Any:
        from dissensus.text.learners.softmax import SoftmaxRegression

        return SoftmaxRegression() if self.learner is None else self.learner

    def _fit_guide(self, X: Any, y: Annotations) -> ItemClusters | None:
        """Fit a copy of the guide if a step uses it, and return its item clusters if it has any.

        A guide inside scikit-learn's FrozenEstimator is not fitted again.
        """
        self.guide_ = None
        if self.refine == self.project == "none":
            return None
        from sklearn.base import clone

        from dissensus.models.dirichlet_regression import DirichletRegression

        guide = DirichletRegression() if self.guide is None else self.guide
        frozen = _thawed(guide) is not guide
        model = _thawed(guide) if frozen else clone(guide)
        labels = with_features(y, as_features(X, model.embedding)) if model.uses_features else y
        if not frozen:
            self.guide_ = model.fit(labels)
        elif model.class_vocabulary_ != y.class_vocabulary:
            raise DataError("the frozen guide and y have different classes; fit it on the classes of y")
        else:
            fitted_ids = model.item_vocabulary_, model.annotator_vocabulary_
            same = fitted_ids == (y.item_vocabulary, y.annotator_vocabulary)
            self.guide_ = model if same else model.apply(labels)
        clusters = ItemClusters.of(self.guide_, self._annotator_load)
        if clusters is None and self.project != "none":
            remedy = "set project='none' or use a guide with clusters (FMM, PGM, CBCC, DawidSkene)"
            raise ParameterError(f"{type(guide).__name__} has no item clusters to project on; {remedy}")
        return clusters

    def _set_projection(self, clusters: ItemClusters | None, X: Any, y: Annotations, dev: Dev | None) -> None:
        """Set the projection, with the prior strength of the settings or the best on held-out items."""
        self.prior_strength_tried_ = self.path_kl_ = np.zeros(0)
        self.prior_strength_, self._projection = None, None
        if clusters is None or self.project == "none":
            return
        project = partial(Projection, clusters, self.project, self.annotator_sum)
        self.prior_strength_ = self.prior_strength
        if self.prior_strength_ is None:
            self.prior_strength_tried_ = PRIOR_STRENGTHS
            if dev is None:
                self.path_kl_ = self._path_without_dev(X, y)
            else:
                h = self._predict(dev[0])
                self.path_kl_ = np.asarray([kl(dev[1], project(S)(h)) for S in PRIOR_STRENGTHS.tolist()])
            self.prior_strength_ = float(PRIOR_STRENGTHS[self.path_kl_.argmin()])
        self._projection = project(self.prior_strength_)

    def _path_without_dev(self, X: Any, y: Annotations) -> Array:
        """Return the KL of each S on a random tenth of the labelled items, after a fit to the others."""
        labelled = np.flatnonzero(y.counts.any(axis=1))
        if len(labelled) < 2:
            raise DataError("one labelled item is not enough to choose prior_strength; pass it, or dev")
        test = labelled[hold_out(len(labelled), self.seed)[1]]
        train = np.setdiff1d(np.arange(len(y)), test)
        part = type(self)(**self.get_params(deep=False))
        return part.fit(take(X, train), y[train], dev=(take(X, test), y[test])).path_kl_

    # ---- prediction -----------------------------------------------------------------------------------

    @property
    def classes_(self) -> NDArray[Any]:
        """Class names, in the order of the columns of distributions."""
        self._check_fitted()
        return self.class_vocabulary_.ids

    def label_distributions(self, X: Any) -> Array:
        """Predict the label distribution of each row of X, (items, classes).

        Parameters
        ----------
        X
            Features or texts, one row for each item.
        """
        h = self._predict(X)
        return h if self._projection is None else self._projection(h)

    def predict_proba(self, X: Any) -> Array:
        """Predict label distributions; the name that scikit-learn uses for :meth:`label_distributions`.

        Parameters
        ----------
        X
            Features or texts, one row for each item.
        """
        return self.label_distributions(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """Predict the most probable class of each item, the first in class order if there are ties.

        Parameters
        ----------
        X
            Features or texts, one row for each item.
        """
        return np.asarray(self.classes_[self.label_distributions(X).argmax(axis=1)])

    def score(self, X: Any, y: Any) -> float:
        """Return −KL(label shares ‖ prediction), the mean over items with labels: higher is better.

        Parameters
        ----------
        X
            Features or texts, one row for each item.
        y
            Labels of the same items.
        """
        self._check_fitted()
        X, shares = _shares_of_dev((X, y), self.class_vocabulary_, "X", "y")
        return -kl(shares, self.label_distributions(X))

    def _predict(self, X: Any) -> Array:
        """Return the predictions of the learner, before projection."""
        self._check_fitted()
        n_rows(X)
        return predict_with(self.learner_, X, len(self.class_vocabulary_))

    # ---- saving, with guide and learner in the same file ----------------------------------------------

    def _state(self) -> tuple[Header, Arrays]:
        arrays = {name: getattr(self, name) for name in self._arrays}
        arrays |= pack_ids("class", self.class_vocabulary_)
        guide = _thawed(self.guide)
        frozen = guide is not self.guide
        fitted_guide = None if frozen and guide is self.guide_ else self.guide_
        parts = {"guide": (guide, frozen), "learner": (self.learner, False)}
        parts |= {"guide_": (fitted_guide, True), "learner_": (self.learner_, True)}
        headers, fits = pack_parts(parts)
        projection = None if self._projection is None else self._projection.settings
        facts = {"projection": projection, "frozen": frozen, "parts": headers}
        return facts | {"n_features_in": vars(self).get("n_features_in_")}, arrays | fits

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        require("sklearn", "guided")
        from sklearn.frozen import FrozenEstimator

        guide, self.learner, fitted_guide, self.learner_ = (
            unpack_part(name, facts["parts"], arrays) for name in ("guide", "learner", "guide_", "learner_")
        )
        self.guide = FrozenEstimator(guide) if facts["frozen"] else guide
        self.guide_ = guide if facts["frozen"] and fitted_guide is None else fitted_guide
        for name in self._arrays:
            setattr(self, name, arrays[name])
        self.class_vocabulary_ = unpack_ids("class", arrays)
        if facts["n_features_in"] is not None:
            self.n_features_in_ = facts["n_features_in"]
        settings = facts["projection"]
        clusters = None if settings is None else ItemClusters.of(self.guide_, self._annotator_load)
        self._projection = None if clusters is None else Projection(clusters, **settings)
        self.prior_strength_ = None if self._projection is None else self._projection.prior_strength


def _thawed(guide: Any) -> Any:
    """Return the guide without a FrozenEstimator around it."""
    from sklearn.frozen import FrozenEstimator

    return guide.estimator if isinstance(guide, FrozenEstimator) else guide


def _shares_of_dev(dev: Any, classes: Vocabulary, X_name: str = "dev X", y_name: str = "dev y") -> Dev:
    """Return X and the label shares of items with labels, in the order of ``classes``."""
    if not (isinstance(dev, tuple | list) and len(dev) == 2):
        raise DataError(f"dev must be a pair (X, y); got {type(dev).__name__}")
    X, y = match_rows(dev[0], dev[1], X_name, y_name)
    shares = row_shares(recode_classes(y, classes).counts, empty=np.nan)
    labelled = np.flatnonzero(~np.isnan(shares[:, 0]))
    if not len(labelled):
        raise DataError(f"{y_name} has no labels to compare with; pass at least one")
    return (X, shares) if len(labelled) == len(y) else (take(X, labelled), shares[labelled])
