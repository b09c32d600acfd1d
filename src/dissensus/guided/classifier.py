"""GuidedClassifier: the paper's workflow, around any guide and any learner.

1. *Refine.* The guide, a model of this library, is fitted on the training labels, and every training item
   gets the distribution of its cluster, or of its clusters' posterior, in place of its own few labels.
2. *Learn.* The learner is taught these distributions from the items' features or texts.
3. *Project.* What it predicts for a new item is snapped to the guide's most likely item cluster, or averaged
   over the clusters by how likely each is (:mod:`dissensus.guided.guides`).

Each of the three can be left out, and what is chosen is chosen by the dev items' own labels.
"""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.data.annotations import Annotations
from dissensus.data.vocabulary import Vocabulary
from dissensus.errors import DataError, NotFittedError, ParameterError, bad_parameter
from dissensus.features.features import as_features, with_features
from dissensus.guided.adapters import n_rows, pupil, take
from dissensus.guided.guides import ItemClusters, Projection
from dissensus.learners.base import Dev, hold_out
from dissensus.metrics import kl
from dissensus.models.base import Model, in_classes
from dissensus.numerics import Array, row_shares
from dissensus.params import ANY, NONE, SEED, Params, choice, real

PRIOR_LABELS: Array = np.exp2(np.arange(9.0))  # S tried: 1, 2, 4, …, 256 labels


class GuidedClassifier(Params):
    """A learner whose training labels are refined, and whose predictions are projected, by a guide.

    ``guide`` is a model of this library (None: DirichletRegression(), which reads the features too);
    ``refine="none", project="none"`` asks for none and is the learner on raw labels. ``learner`` is anything
    that :mod:`dissensus.guided.adapters` can teach (None: SoftmaxRegression()).
    ``refine`` and ``project`` are "none", "hard" (the most likely cluster) or "soft" (averaged over the
    clusters); a guide without item clusters refines by its own distributions either way and cannot project.
    ``annotator_sum`` puts the sum over annotators of the projection "inside" the likelihood of a label or
    "outside", as the paper prints it. ``prior_labels`` is S, the labels a prediction stands for; None
    chooses it on dev, or, where none is given, by running the workflow once without a tenth of the items,
    drawn by ``seed``. Guide and learner have seeds of their own.

    X has one row an item, features or texts, in the order of ``y.items``; y is :class:`Annotations`.
    """

    _rules = {
        "guide": ANY,
        "learner": ANY,
        "refine": choice("none", "hard", "soft"),
        "project": choice("none", "hard", "soft"),
        "annotator_sum": choice("inside", "outside"),
        "prior_labels": real(0.0, open_low=True) | NONE,
        "seed": SEED,
    }

    guide_: Any  # the fitted guide; None where nothing asks for it
    learner_: Any  # the fitted learner
    refined_: Array  # (train items, classes): what was taught; NaN for items without labels, left out
    prior_labels_: float | None  # S in use; None where nothing is projected
    prior_labels_tried_: Array  # the S tried, and …
    path_kl_: Array  # … the KL each reached on the items it was chosen on
    class_vocabulary_: Vocabulary
    _projection: Projection | None

    def __init__(
        self,
        guide: Any = None,
        learner: Any = None,
        *,
        refine: str = "soft",
        project: str = "none",
        annotator_sum: str = "inside",
        prior_labels: float | None = None,
        seed: int = 0,
    ) -> None:
        self.guide = guide
        self.learner = learner
        self.refine = refine
        self.project = project
        self.annotator_sum = annotator_sum
        self.prior_labels = prior_labels
        self.seed = seed

    # ---- fitting --------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Annotations, dev: tuple[Any, Annotations] | None = None) -> Self:
        """Refine, and teach the learner; ``dev`` is a pair (X, y) to choose settings on."""
        self.check_params()
        _check_items(X, y, "X", "y")
        held = None if dev is None else _shares_of_dev(dev, y.class_vocabulary)
        twin = type(self)(**self.get_params(deep=False))
        twin.class_vocabulary_ = y.class_vocabulary
        clusters = twin._fit_guide(X, y)
        twin.refined_ = twin._refined(y, clusters)
        twin._teach(X, y, held)
        twin._choose_projection(clusters, X, y, held)
        vars(self).update(vars(twin))
        return self

    def check_params(self) -> None:
        """The rules, and that guide and learner can do what is asked of them."""
        super().check_params()
        pupil(self._learner())
        if not isinstance(_thawed(self.guide), Model | None):
            raise bad_parameter(self, "guide", "a model of this library, or None", self.guide)

    @property
    def _guided(self) -> bool:
        return (self.refine, self.project) != ("none", "none")

    def _guide(self) -> Any:
        if self.guide is not None:
            return self.guide
        from dissensus.models.dirichlet_regression import DirichletRegression

        return DirichletRegression()

    def _learner(self) -> Any:
        if self.learner is not None:
            return self.learner
        from dissensus.learners.softmax import SoftmaxRegression

        return SoftmaxRegression()

    def _fit_guide(self, X: Any, y: Annotations) -> ItemClusters | None:
        """Fit a copy of the guide, if anything asks for it, and give its clusters, if it has any."""
        self.guide_ = None
        if not self._guided:
            return None
        self.guide_ = fitted_guide(self._guide(), X, y)
        clusters = ItemClusters.of(self.guide_, y.annotator_load)
        if clusters is None and self.project != "none":
            raise ParameterError(
                f"{type(self._guide()).__name__} has no item clusters to project on; set project='none' or "
                "take a guide with clusters (FMM, PGM, CBCC, DawidSkene, OneCoin)"
            )
        return clusters

    def _refined(self, y: Annotations, clusters: ItemClusters | None) -> Array:
        if self.refine == "none":
            return empirical(y)
        if clusters is None:
            return np.asarray(self.guide_.label_distributions_)
        # Y'_m = Y' of arg max_k w_mk, or Σ_k w_mk Y'_k   (Eq. infer)
        return clusters.distributions(clusters.posterior, self.refine)

    def _teach(self, X: Any, y: Annotations, held: Dev | None) -> None:
        from sklearn.base import clone

        taught = np.flatnonzero(~np.isnan(self.refined_[:, 0]))
        if not len(taught):
            raise DataError("y has no label to learn from; give at least one")
        if len(taught) < len(y):
            X, y = take(X, taught), y[taught]
        self.learner_ = clone(self._learner())
        pupil(self.learner_).fit(X, y, self.refined_[taught], held)

    # ---- how many labels a prediction stands for ------------------------------------------------------

    def _choose_projection(
        self, clusters: ItemClusters | None, X: Any, y: Annotations, held: Dev | None
    ) -> None:
        """The projection with the prior_labels given, or with the best one for the held items."""
        self.prior_labels_, self.prior_labels_tried_, self.path_kl_ = (
            self.prior_labels,
            np.zeros(0),
            np.zeros(0),
        )
        if clusters is None or self.project == "none":
            self.prior_labels_, self._projection = None, None
            return
        if self.prior_labels_ is None:
            self.prior_labels_tried_ = PRIOR_LABELS
            self.path_kl_ = self._rehearse(X, y).path_kl_ if held is None else self._path(clusters, *held)
            self.prior_labels_ = float(PRIOR_LABELS[self.path_kl_.argmin()])
        self._projection = Projection(clusters, self.project, self.annotator_sum, self.prior_labels_)

    def _path(self, clusters: ItemClusters, X: Any, shares: Array) -> Array:
        """KL(shares ‖ projection) at every prior_labels tried."""
        raw, prior = self._raw(X), self._prior(X)
        tried = [Projection(clusters, self.project, self.annotator_sum, S) for S in PRIOR_LABELS.tolist()]
        return np.asarray([kl(shares, projection(raw, prior)) for projection in tried])

    def _rehearse(self, X: Any, y: Annotations) -> Self:
        """The workflow without a tenth of the labelled items, its prior_labels chosen on these."""
        labelled = np.flatnonzero(y.counts.any(axis=1))
        if len(labelled) < 2:
            raise DataError("one labelled item leaves none to choose on; give prior_labels= or dev=")
        held = labelled[hold_out(len(labelled), self.seed)[1]]
        kept = np.setdiff1d(np.arange(len(y)), held)
        twin = type(self)(**self.get_params(deep=False))
        return twin.fit(take(X, kept), y[kept], dev=(take(X, held), y[held]))

    # ---- asking ---------------------------------------------------------------------------------------

    @property
    def classes_(self) -> NDArray[Any]:
        """Class names, in the order of the distributions' columns."""
        self._check_fitted()
        return self.class_vocabulary_.ids

    def label_distributions(self, X: Any) -> Array:
        """(items, classes): the label distribution predicted for each row of X."""
        raw = self._raw(X)
        return raw if self._projection is None else self._projection(raw, self._prior(X))

    def predict_proba(self, X: Any) -> Array:
        """The same as :meth:`label_distributions`, under the name that scikit-learn asks for."""
        return self.label_distributions(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """One class an item: the most probable one (the first in class order where several are)."""
        best: NDArray[Any] = self.classes_[self.label_distributions(X).argmax(axis=1)]
        return best

    def score(self, X: Any, y: Annotations) -> float:
        """−KL(labels' shares ‖ prediction), the mean over the items that have labels: higher is better."""
        self._check_fitted()
        X, shares = _shares_of_dev((X, y), self.class_vocabulary_, "X", "y")
        return -kl(shares, self.label_distributions(X))

    def cluster_posteriors(self, X: Any) -> Array:
        """(items, K): P(cluster | prediction), by which predictions are projected."""
        self._check_fitted()
        if self._projection is None:
            raise ParameterError("this GuidedClassifier was not fitted to project; set project and fit")
        return self._projection.posteriors(self._raw(X), self._prior(X))

    def _raw(self, X: Any) -> Array:
        """What the learner says."""
        self._check_fitted()
        n_rows(X)
        return pupil(self.learner_).label_distributions(X, len(self.class_vocabulary_))

    def _prior(self, X: Any) -> Array | None:
        """(items, K) where the guide reads it off the features, else None: ψ."""
        if not hasattr(self.guide_, "item_prior"):
            return None
        return np.asarray(self.guide_.item_prior(_features(self.guide_, X)))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "learner_")

    def _check_fitted(self) -> None:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this GuidedClassifier is not fitted yet; call fit first")


def empirical(y: Annotations) -> Array:
    """(items, classes): each item's labels as shares, NaN where there are none."""
    return row_shares(y.counts, empty=np.nan)


def fitted_guide(guide: Any, X: Any, y: Annotations) -> Any:
    """A copy of the guide, fitted on y; scikit-learn's FrozenEstimator around one keeps the fit it has."""
    from sklearn.base import clone

    own = _thawed(guide)
    frozen = own is not guide
    own = own if frozen else clone(guide)
    # A guide learns from features too if it says so, or if its fit has a place for them.
    uses_features = getattr(own, "uses_features", "features" in inspect.signature(own.fit).parameters)
    known = with_features(y, _features(own, X)) if uses_features else y
    if not frozen:
        return own.fit(known)
    if own.class_vocabulary_ != y.class_vocabulary:
        raise DataError("the frozen guide and y have different classes; fit it on the classes of y")
    same = own.item_vocabulary_ == y.item_vocabulary and own.annotator_vocabulary_ == y.annotator_vocabulary
    return own if same else own.transform(known)


def _thawed(guide: Any) -> Any:
    """The guide itself, out of the FrozenEstimator it may stand in."""
    from sklearn.frozen import FrozenEstimator

    return guide.estimator if isinstance(guide, FrozenEstimator) else guide


def _features(guide: Any, X: Any) -> Any:
    return as_features(X, getattr(guide, "embedding", None))


def _check_items(X: Any, y: Any, X_name: str, y_name: str) -> None:
    if not isinstance(y, Annotations):
        raise DataError(
            f"{y_name} is a {type(y).__name__}, and Annotations are needed; make them with "
            "dissensus.read_annotations or Annotations.from_arrays"
        )
    rows = n_rows(X, X_name)
    if rows != len(y):
        raise DataError(
            f"{X_name} has {rows} rows and {y_name} {len(y)} items; give one row an item, in the order of "
            f"{y_name}.items"
        )


def _shares_of_dev(dev: Any, classes: Vocabulary, X_name: str = "dev X", y_name: str = "dev y") -> Dev:
    """X and label shares of the items that have labels, in the order of ``classes``."""
    if not (isinstance(dev, tuple | list) and len(dev) == 2):
        raise DataError(f"dev must be a pair (X, y); got {type(dev).__name__}")
    X, y = dev
    _check_items(X, y, X_name, y_name)
    shares = empirical(in_classes(y, classes))
    labelled = np.flatnonzero(~np.isnan(shares[:, 0]))
    if not len(labelled):
        raise DataError(f"{y_name} has no label to compare with; give at least one")
    return (X, shares) if len(labelled) == len(y) else (take(X, labelled), shares[labelled])
