"""GuidedClassifier: the paper's workflow, around any guide and any learner.

1. *Refine.* The guide, a model of this library, is fitted on the training labels, and every training item
   gets the distribution of its cluster, or of its clusters' posterior, in place of its own few labels.
2. *Learn.* The learner is fitted to these distributions from the items' features or texts.
3. *Project.* What it predicts for a new item is snapped to the guide's most likely item cluster, or averaged
   over the clusters by how likely each is (:mod:`dissensus.text.guided.guides`).

Each of the three can be left out, and what is chosen is chosen by the dev items' own labels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dissensus import params
from dissensus.errors import DataError, ParameterError, bad_parameter, require
from dissensus.labels.annotations import Annotations
from dissensus.labels.features import as_features, with_features
from dissensus.labels.vocabulary import Vocabulary
from dissensus.metrics import kl
from dissensus.models.base import Model
from dissensus.models.scoring import in_classes
from dissensus.numerics import Array, row_shares
from dissensus.params import ANY, NONE, Setting, choice, declare, fitted, integer, real, setting
from dissensus.tables import arrays
from dissensus.tables.arrays import Arrays, Header, pack_ids, unpack_ids
from dissensus.text.guided.adapters import fit_learner, learner_kind, matched, n_rows, predicted, take
from dissensus.text.guided.files import pack_parts, unpack_part
from dissensus.text.guided.guides import ItemClusters, Projection
from dissensus.text.learners.base import Dev, hold_out

HOW = choice("none", "hard", "soft")
PRIOR_WORTHS: Array = np.exp2(np.arange(9.0))  # S tried: 1, 2, 4, …, 256 labels


@declare
class GuidedClassifier:
    """A learner whose training labels are refined, and whose predictions are projected, by a guide.

    ``refine="none", project="none"`` is the learner on raw labels. A guide without item clusters refines by
    its own distributions either way and cannot project. Guide and learner have seeds of their own.

    X has one row for each item, features (sparse ones too) or texts, in the order of ``y.items``; a pandas
    Series or frame whose index names the items is put in their order, and must name them where y is a frame
    or a file. y is :class:`Annotations`, a file or a frame of
    labels by annotators, or one label for each item.
    """

    guide: Any = setting(
        None, ANY, "A model of this library; None is DirichletRegression(), which reads the features too."
    )
    learner: Any = setting(
        None, ANY, "Anything that :mod:`dissensus.text.guided.adapters` can fit; None is SoftmaxRegression()."
    )
    _: KW_ONLY
    refine: str = setting(
        "soft",
        HOW,
        'How training labels are refined: ``"none"``, ``"hard"`` (the most likely cluster) or ``"soft"`` '
        "(averaged over the clusters).",
    )
    project: str = setting("none", HOW, "How predictions are projected onto the clusters, in the same words.")
    annotator_sum: str = setting(
        "inside",
        choice("inside", "outside"),
        'Where the projection sums over annotators: ``"inside"`` the likelihood of a label, or '
        '``"outside"``, as the paper prints it.',
    )
    prior_worth: float | None = setting(
        None,
        real(0.0, open_low=True) | NONE,
        "How many labels a prediction stands for (S). None chooses it on dev or, where none is given, by "
        "running the workflow once without a tenth of the items.",
    )
    seed: int = setting(0, integer(0), "Seed of the random choice of that tenth.")

    _fitted_by = "learner_"
    _settings: ClassVar[Mapping[str, Setting]]
    _arrays: ClassVar[tuple[str, ...]]

    guide_: Any = fitted("the fitted guide; None where nothing asks for it", saved=False)
    learner_: Any = fitted("the fitted learner", saved=False)
    refined_: Array = fitted("(train items, classes): what the learner learns; NaN where there is no label")
    prior_worth_: float | None = fitted("S in use; None where nothing is projected", saved=False)
    prior_worth_tried_: Array = fitted("the S tried")
    path_kl_: Array = fitted("the KL that each S tried reached on the items it was chosen on")
    class_vocabulary_: Vocabulary = fitted("the classes of y", saved=False)
    n_features_in_: int = fitted("columns of X, where it has any", saved=False)
    _projection: Projection | None = fitted("what projects, where project asks for it", saved=False)
    _annotator_load: NDArray[Any] = fitted("(annotators,): labels each gave")

    get_params = params.get_params
    set_params = params.set_params
    __repr__ = params.representation
    __sklearn_is_fitted__ = params.is_fitted
    _check_fitted = params.check_fitted
    save = arrays.save

    # ---- fitting --------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, dev: tuple[Any, Any] | None = None) -> Self:
        """Refine, and fit the learner; ``dev`` is a pair (X, y) to choose settings on.

        Parameters
        ----------
        X
            Features or texts, one row for each item.
        y
            Labels of the same items.
        dev
            A pair (X, y) of other items to choose on; None takes none, or a part of these.
        """
        self.check_params()
        from sklearn.base import clone

        X, y = matched(X, y)
        held = None if dev is None else _shares_of_dev(dev, y.class_vocabulary)
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
                raise DataError("y has no label to learn from; give at least one")
            part = (X, y) if len(labelled) == len(y) else (take(X, labelled), y[labelled])
            fitted.learner_ = clone(self._learner())
            fit_learner(fitted.learner_, *part, fitted.refined_[labelled], held)
            fitted._choose_projection(clusters, X, y, held)
        return self

    def check_params(self) -> None:
        """The rules, and that guide and learner can do what is asked of them."""
        params.check_params(self)
        require("sklearn", "guided")
        learner_kind(self._learner())
        if not isinstance(_thawed(self.guide), Model | None):
            raise bad_parameter(self, "guide", "a model of this library, or None", self.guide)

    def __sklearn_tags__(self) -> Any:
        """A classifier, which takes sparse features and texts too."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        target, texts = TargetTags(required=True), InputTags(sparse=True, string=True)
        return Tags("classifier", target, classifier_tags=ClassifierTags(), input_tags=texts)

    def _learner(self) -> Any:
        if self.learner is not None:
            return self.learner
        from dissensus.text.learners.softmax import SoftmaxRegression

        return SoftmaxRegression()

    def _fit_guide(self, X: Any, y: Annotations) -> ItemClusters | None:
        """Fit a copy of the guide, if anything asks for it, and give its clusters, if it has any.

        A guide in scikit-learn's FrozenEstimator keeps its fit.
        """
        self.guide_ = None
        if self.refine == self.project == "none":
            return None
        from sklearn.base import clone

        from dissensus.models.dirichlet_regression import DirichletRegression

        guide = DirichletRegression() if self.guide is None else self.guide
        frozen = _thawed(guide) is not guide
        own = _thawed(guide) if frozen else clone(guide)
        known = with_features(y, as_features(X, own.embedding)) if own.uses_features else y
        if not frozen:
            self.guide_ = own.fit(known)
        elif own.class_vocabulary_ != y.class_vocabulary:
            raise DataError("the frozen guide and y have different classes; fit it on the classes of y")
        else:
            people = own.annotator_vocabulary_ == y.annotator_vocabulary
            same = people and own.item_vocabulary_ == y.item_vocabulary
            self.guide_ = own if same else own.apply(known)
        clusters = ItemClusters.of(self.guide_, self._annotator_load)
        if clusters is None and self.project != "none":
            raise ParameterError(
                f"{type(guide).__name__} has no item clusters to project on; set project='none' or "
                "take a guide with clusters (FMM, PGM, CBCC, DawidSkene, OneCoin)"
            )
        return clusters

    # ---- how many labels a prediction stands for ------------------------------------------------------

    def _choose_projection(
        self, clusters: ItemClusters | None, X: Any, y: Annotations, held: Dev | None
    ) -> None:
        """The projection with the prior_worth given, or with the best one for the held items."""
        self.prior_worth_tried_ = self.path_kl_ = np.zeros(0)
        self.prior_worth_, self._projection = None, None
        if clusters is None or self.project == "none":
            return
        project = partial(Projection, clusters, self.project, self.annotator_sum)
        self.prior_worth_ = self.prior_worth
        if self.prior_worth_ is None:
            self.prior_worth_tried_ = PRIOR_WORTHS
            if held is None:
                self.path_kl_ = self._path_of_part(X, y)
            else:
                raw = self._raw(held[0])
                self.path_kl_ = np.asarray([kl(held[1], project(S)(raw)) for S in PRIOR_WORTHS.tolist()])
            self.prior_worth_ = float(PRIOR_WORTHS[self.path_kl_.argmin()])
        self._projection = project(self.prior_worth_)

    def _path_of_part(self, X: Any, y: Annotations) -> Array:
        """The path of the workflow without a tenth of the labelled items, on these."""
        labelled = np.flatnonzero(y.counts.any(axis=1))
        if len(labelled) < 2:
            raise DataError("one labelled item leaves none to choose on; give prior_worth= or dev=")
        held = labelled[hold_out(len(labelled), self.seed)[1]]
        kept = np.setdiff1d(np.arange(len(y)), held)
        part = type(self)(**self.get_params(deep=False))
        return part.fit(take(X, kept), y[kept], dev=(take(X, held), y[held])).path_kl_

    # ---- asking ---------------------------------------------------------------------------------------

    @property
    def classes_(self) -> NDArray[Any]:
        """Class names, in the order of the distributions' columns."""
        self._check_fitted()
        return self.class_vocabulary_.ids

    def label_distributions(self, X: Any) -> Array:
        """(items, classes): the label distribution predicted for each row of X.

        Parameters
        ----------
        X
            Features or texts, one row for each item.
        """
        raw = self._raw(X)
        return raw if self._projection is None else self._projection(raw)

    def predict_proba(self, X: Any) -> Array:
        """The same as :meth:`label_distributions`, under the name that scikit-learn asks for.

        Parameters
        ----------
        X
            Features or texts, one row for each item.
        """
        return self.label_distributions(X)

    def predict(self, X: Any) -> NDArray[Any]:
        """One class per item: the most probable one (the first in class order where several are).

        Parameters
        ----------
        X
            Features or texts, one row for each item.
        """
        best: NDArray[Any] = self.classes_[self.label_distributions(X).argmax(axis=1)]
        return best

    def score(self, X: Any, y: Any) -> float:
        """−KL(labels' shares ‖ prediction), the mean over the items that have labels: higher is better.

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

    def cluster_posteriors(self, X: Any) -> Array:
        """(items, K): P(cluster | prediction), by which predictions are projected.

        Parameters
        ----------
        X
            Features or texts, one row for each item.
        """
        self._check_fitted()
        if self._projection is None:
            raise ParameterError("this GuidedClassifier was not fitted to project; set project and fit")
        return self._projection.posteriors(self._raw(X))

    def _raw(self, X: Any) -> Array:
        """What the learner says."""
        self._check_fitted()
        n_rows(X)
        return predicted(self.learner_, X, len(self.class_vocabulary_))

    # ---- keeping it: guide and learner inside the same file -------------------------------------------

    def _state(self) -> tuple[Header, Arrays]:
        arrays = {name: getattr(self, name) for name in self._arrays}
        arrays |= pack_ids("class", self.class_vocabulary_)
        guide = _thawed(self.guide)
        frozen = guide is not self.guide
        own_guide = None if frozen and guide is self.guide_ else self.guide_
        parts = {"guide": (guide, frozen), "learner": (self.learner, False)}
        headers, fits = pack_parts(parts | {"guide_": (own_guide, True), "learner_": (self.learner_, True)})
        how = None if self._projection is None else self._projection.settings
        facts = {"projection": how, "frozen": frozen, "parts": headers}
        facts["n_features_in"] = vars(self).get("n_features_in_")
        return facts, arrays | fits

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        require("sklearn", "guided")
        from sklearn.frozen import FrozenEstimator

        guide, self.learner, own_guide, self.learner_ = (
            unpack_part(name, facts["parts"], arrays) for name in ("guide", "learner", "guide_", "learner_")
        )
        self.guide = FrozenEstimator(guide) if facts["frozen"] else guide
        self.guide_ = guide if facts["frozen"] and own_guide is None else own_guide
        for name in self._arrays:
            setattr(self, name, arrays[name])
        self.class_vocabulary_ = unpack_ids("class", arrays)
        if facts["n_features_in"] is not None:
            self.n_features_in_ = facts["n_features_in"]
        how = facts["projection"]
        clusters = None if how is None else ItemClusters.of(self.guide_, self._annotator_load)
        self._projection = None if clusters is None else Projection(clusters, **how)
        self.prior_worth_ = None if self._projection is None else self._projection.prior_worth


def _thawed(guide: Any) -> Any:
    """The guide itself, out of the FrozenEstimator it may stand in."""
    from sklearn.frozen import FrozenEstimator

    return guide.estimator if isinstance(guide, FrozenEstimator) else guide


def _shares_of_dev(dev: Any, classes: Vocabulary, X_name: str = "dev X", y_name: str = "dev y") -> Dev:
    """X and label shares of the items that have labels, in the order of ``classes``."""
    if not (isinstance(dev, tuple | list) and len(dev) == 2):
        raise DataError(f"dev must be a pair (X, y); got {type(dev).__name__}")
    X, y = matched(dev[0], dev[1], X_name, y_name)
    shares = row_shares(in_classes(y, classes).counts, empty=np.nan)
    labelled = np.flatnonzero(~np.isnan(shares[:, 0]))
    if not len(labelled):
        raise DataError(f"{y_name} has no label to compare with; give at least one")
    return (X, shares) if len(labelled) == len(y) else (take(X, labelled), shares[labelled])
