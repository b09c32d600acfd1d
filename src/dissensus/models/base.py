"""Base class of all models: fitted to annotations, a model has a label distribution for each item.

A subclass defines

* ``_fit(annotations, engine)``, which sets ``label_distributions_``, ``prior_distribution_`` (used for items
  without labels) and, unless the model has a closed form, ``trace_`` and ``stopped_``;
* ``_apply(new, fitted, engine)``, which sets ``label_distributions_`` for other items;
* ``_pair_distributions``, if labels depend on the annotator, with ``_needs_annotators = True``;
* ``intervals_are``, if the approximate intervals of ``results.intervals`` do not suit the model.

The public methods are defined here, in results.py and in scoring.py.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, dataclass_transform

import numpy as np
from numpy.typing import NDArray

from dissensus import params
from dissensus.engine import LABELS_PER_SHARD, MAX_SHARDS_PER_BLOCK, MIN_BLOCKS, Engine, current
from dissensus.errors import DataError, NotFittedError, setting, warn
from dissensus.labels import as_annotations
from dissensus.labels.annotations import Annotations
from dissensus.labels.display import TableResult
from dissensus.labels.features import n_features, rows_by_item, unknown_order
from dissensus.labels.kinds import LabelType
from dissensus.labels.vocabulary import Codes, Vocabulary
from dissensus.models import results, scoring
from dissensus.models.results import ClusterView, by_id, most_probable, table_by_id
from dissensus.models.scoring import recode_classes
from dissensus.numerics import Array
from dissensus.params import PROCESS_BYTES, Estimator, declare, fitted, physical_memory, size_words
from dissensus.tables import arrays
from dissensus.tables.arrays import Arrays, Header, pack_ids, unpack_ids

COMMON_ARRAYS = ("label_distributions_", "prior_distribution_", "prior_strength_", "n_labels_", "trace_")
VOCABULARIES = ("item", "annotator", "class")
SIZE_SETTINGS = {"K": "n_item_clusters", "L": "n_annotator_clusters", "G": "n_subtypes"}
PER_ITEM_ARGUMENTS = ("features", "prior", "item_distributions")  # arguments of ``fit`` with one row per item


@dataclass_transform(eq_default=False, field_specifiers=(fitted,))
class Model(Estimator):
    """Base class of all models.

    Every fitted model has ``label_distributions_`` (items, classes), ``trace_`` (objective after each
    iteration) and ``stopped_`` (why the fit ended); each model adds its parameters.
    """

    # Fitted arrays in a saved model: those of most models, and those of this class.
    _common_arrays: ClassVar[tuple[str, ...]] = COMMON_ARRAYS
    _draw_arrays: ClassVar[tuple[str, ...]] = ()  # of ``_arrays``, those that may be saved in a second file
    _needs_annotators: ClassVar[bool] = False
    _reads_as: ClassVar[LabelType | None] = None  # label type that a data frame is read as; None: detected
    _label_types: ClassVar[tuple[LabelType, ...]] = ("nominal", "ordinal", "multi", "pairwise")
    intervals_are: ClassVar[str] = "approximate"  # or "sampled", or "none"
    # Number of tables that a fit holds at once besides messages, by shape, for memory_needed: "MK" is
    # items × item clusters, "MD" is items × features.
    _memory_tables: ClassVar[Mapping[str, int]] = {"MP": 3}
    _sizes_are_bounds: ClassVar[bool] = False  # numbers of clusters are upper bounds: extra ones stay empty
    _fitted_by = "label_distributions_"
    answers_are_classes: ClassVar[bool] = True  # not numbers, ranks or sets
    finds_truth: ClassVar[bool] = False  # estimates one true class per item and can learn from gold
    uses_features: ClassVar[bool] = False  # also learns from features of the items

    label_distributions_: Array
    prior_distribution_: Array  # (classes,): distribution of an item without labels
    prior_strength_: Array  # (): number of labels that the crowd's shares count for in an item's estimate
    n_labels_: NDArray[np.int64]  # (items,)
    trace_: Array
    stopped_: str
    item_vocabulary_: Vocabulary
    annotator_vocabulary_: Vocabulary
    class_vocabulary_: Vocabulary
    frame_kind_: str
    columns_: dict[str, str]  # role (item, annotator, label) -> name of the column that was read
    label_type_: LabelType

    def __init_subclass__(cls) -> None:
        declare(cls)

    _repr_html_ = TableResult._repr_html_
    _n_html_rows = TableResult._n_html_rows

    # ---- fitting --------------------------------------------------------------------------------------

    def fit(self, labels: Any) -> Self:
        """Fit the model to labels.

        Parameters
        ----------
        labels
            Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
        """
        return self._run_fit(labels)

    def _run_fit(self, annotations: Any, **arguments: Any) -> Self:
        """Fit a copy on ``n_jobs`` threads, then take over its state: an interrupted fit changes nothing."""
        labels = self._checked(annotations, arguments)
        with params.fitted_copy(self) as fitted, current().engine(fitted, labels, arguments) as engine:
            fitted.fit_on(engine, labels, **arguments)
        return self

    def fit_on(self, engine: Engine, labels: Annotations, **arguments: Any) -> None:
        """Fit this model on an engine, for checked labels.

        Parameters
        ----------
        engine
            Engine of the fit.
        labels
            Labels to fit.
        arguments
            Arguments of the model's ``_fit``.
        """
        self._remember(labels)
        self.trace_, self.stopped_ = np.zeros(0), "closed form"  # replaced by iterative fits
        self._fit(labels, engine, **arguments)
        if "prior_strength_" in self._common_arrays:
            self.prior_strength_ = np.asarray(labels.prior_strength)
        for name in self._arrays:  # C order, as after loading: layout can change the last bits
            setattr(self, name, np.asarray(getattr(self, name), order="C"))

    def _fit(self, annotations: Annotations, engine: Engine) -> None:
        raise NotImplementedError

    def _checked(self, annotations: Any, arguments: dict[str, Any]) -> Annotations:
        """Return the labels, after checking settings, labels, rows per item and memory."""
        self.check_params()
        in_order = isinstance(annotations, Annotations)
        labels = annotations if in_order else as_annotations(annotations, self._reads_as)
        for name in PER_ITEM_ARGUMENTS:
            rows = arguments.get(name)
            sorted_rows = None if rows is None else rows_by_item(rows, labels.item_vocabulary, name)
            if sorted_rows is not None:
                arguments[name] = sorted_rows
            elif rows is not None and not in_order:
                raise unknown_order(name)
        features, title = arguments.get("features"), type(self).__name__
        if features is not None and not self.uses_features:
            warn(f"{self!r} does not use features; set use_features=True, or use DirichletRegression", 4)
        if not labels.n_labels:
            raise DataError("there are no labels to fit; give at least one")
        if self._needs_annotators and labels.anonymous:
            raise self._unknown_annotators()
        if labels.label_type not in self._label_types and labels.label_type == "numeric":
            raise DataError(
                f"{title} needs classes, but the labels are {labels.n_classes:,} different numbers; use "
                f"NumericRatings, or set {setting('label_type', 'ordinal')} if they are grades"
            )
        if labels.label_type not in self._label_types:
            raise DataError(
                f"{title} is for labels of type {' or '.join(self._label_types)}, but these are "
                f"{labels.label_type}; use another model, or set "
                f"{setting('label_type', self._label_types[0])}"
            )
        needed, available = self.memory_needed(labels, features=features), physical_memory()
        if needed > available and current().memory is None:
            raise DataError(
                f"{title} on {labels.n_labels:,} labels needs at least {size_words(needed)} of memory, but "
                f"this machine has {size_words(available)}; use fewer clusters, classes or features, or a "
                "simpler model"
            )
        return labels

    def check_labels(self, labels: Annotations) -> None:
        """Raise an error unless the labels have the items, classes and annotators of the fit.

        Parameters
        ----------
        labels
            Labels to compare with those of the fit.
        """
        self._check_fitted()
        same_annotators = labels.anonymous or self.annotator_vocabulary_ == labels.annotator_vocabulary
        ids = labels.item_vocabulary, labels.class_vocabulary
        if (self.item_vocabulary_, self.class_vocabulary_) != ids or not same_annotators:
            raise DataError(
                f"the labels ({labels.n_items:,} items, {labels.n_annotators:,} annotators) are not "
                f"those of the model ({len(self.items_):,} items, {len(self.annotators_):,} annotators); "
                "give the same labels, read with the same options"
            )

    def memory_needed(self, labels: Annotations, n_threads: int = 1, features: Any = None) -> int:
        """Estimate the bytes that a fit needs at least, for the process, its tables and its threads.

        Messages may be on disk, and layouts of blocks may be rebuilt in each step; neither is counted.

        Parameters
        ----------
        labels
            Labels to fit.
        n_threads
            Number of threads that work on blocks at once.
        features
            Features passed to ``fit``, if the labels do not carry them.
        """
        n_axis = labels.n_items, labels.n_annotators, labels.n_classes, labels.n_labels
        sizes: dict[str, int] = dict(zip("MNPE", n_axis, strict=True))
        sizes["D"] = n_features(labels, features) if self.uses_features else 0
        for axis, name in SIZE_SETTINGS.items():
            sizes[axis] = vars(self).get(name, 1)
        tables = {axes: math.prod(sizes[axis] for axis in axes) for axes in self._memory_tables}
        numbers = sum(n_tables * tables[axes] for axes, n_tables in self._memory_tables.items())
        by_annotator = max((size for axes, size in tables.items() if axes[0] == "N"), default=0)
        n_shards = min(max(labels.n_labels // (LABELS_PER_SHARD * MIN_BLOCKS), 1), MAX_SHARDS_PER_BLOCK)
        block = min(labels.n_labels, n_shards * LABELS_PER_SHARD)
        # a thread's messages and cavities, and the sums over annotators of two blocks
        work = (8 + 2 * sizes["L"]) * block + 2 * min(by_annotator, 4 * sizes["P"] * block)
        return PROCESS_BYTES + 8 * (numbers + n_threads * work)

    def _unknown_annotators(self) -> DataError:
        return DataError(
            f"{type(self).__name__} needs the annotator of each label, which class counts do not have; "
            "use a model without annotators (majority, empirical, fmm)"
        )

    def _remember(self, annotations: Annotations) -> None:
        """Store the vocabularies, label counts and columns of the labels."""
        self.item_vocabulary_ = annotations.item_vocabulary
        self.annotator_vocabulary_ = annotations.annotator_vocabulary
        self.class_vocabulary_ = annotations.class_vocabulary
        self.n_labels_ = np.diff(annotations.item_pointers)
        self.frame_kind_, self.label_type_ = annotations.frame_kind, annotations.label_type
        self.columns_ = dict(annotations.columns_read)

    def apply(self, new: Any) -> Self:
        """Return a copy of the fitted model for other items and annotators, with the same parameters.

        Parameters
        ----------
        new
            Labels of other items, or by other annotators.
        """
        self._check_fitted()
        labels = as_annotations(new)
        if self._needs_annotators and labels.anonymous:
            raise self._unknown_annotators()
        applied = copy.copy(self)
        applied._remember(labels)
        applied.class_vocabulary_ = self.class_vocabulary_
        labels = recode_classes(labels, self.class_vocabulary_)
        with current().engine(self, labels, {"new": True}) as engine:
            applied._apply(labels, self, engine)
        return applied

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        raise NotImplementedError

    def fit_predict(self, labels: Any, gold: Any = None) -> Any:
        """Fit, and return one label per item, keyed by item (:attr:`labels_`).

        Parameters
        ----------
        labels
            Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
        gold
            The true class of some items: a mapping or a pandas Series from item to class. Only models that
            estimate a true class (``finds_truth``) can learn from it.
        """
        return self._fit_with(labels, gold).labels_

    def fit_predict_proba(self, labels: Any, gold: Any = None) -> Any:
        """Fit, and return the label distributions, keyed by item (:attr:`probas_`).

        Parameters
        ----------
        labels
            Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
        gold
            As in :meth:`fit_predict`.
        """
        return self._fit_with(labels, gold).probas_

    def _fit_with(self, labels: Any, gold: Any) -> Self:
        if gold is None:
            return self.fit(labels)
        if not self.finds_truth:
            raise DataError(
                f"{type(self).__name__} does not estimate a true class, so it cannot learn from gold; "
                "omit it, or use a model such as DawidSkene"
            )
        return self.fit(labels, gold=gold)  # type: ignore[call-arg]

    # ---- results -------------------------------------------------------------------------------------

    @property
    def items_(self) -> NDArray[Any]:
        """Item ids, in the order of ``label_distributions_``."""
        return self.item_vocabulary_.ids

    @property
    def annotators_(self) -> NDArray[Any]:
        """Annotator ids, in order."""
        return self.annotator_vocabulary_.ids

    @property
    def classes_(self) -> NDArray[Any]:
        """Class names, in the order of the distributions' columns."""
        return self.class_vocabulary_.ids

    @property
    def labels_(self) -> Any:
        """One label per item, keyed by item: a pandas Series, or a data frame of the kind that was read."""
        self._check_fitted()
        return by_id({"item": self.items_}, self.predict(), "label", self.columns_, self.frame_kind_)

    @property
    def probas_(self) -> Any:
        """Label distribution of each item: a data frame keyed by item, with a column per class."""
        self._check_fitted()
        columns = dict(zip(self.classes_.tolist(), self.label_distributions_.T, strict=True))
        return table_by_id({"item": self.items_}, columns, self.columns_, self.frame_kind_)

    def predict(self) -> NDArray[Any]:
        """Return the most probable class of each item; of tied classes, the first in class order."""
        self._check_fitted()
        return np.asarray(self.classes_[most_probable(self.label_distributions_, self.label_type_)])

    predict_proba = scoring.predict_proba
    score = scoring.score
    score_items = scoring.score_items
    log_probabilities = scoring.log_probabilities
    intervals = results.intervals
    to_frame = results.to_frame
    label_batches = results.label_batches
    save = arrays.save
    save_draws_apart = arrays.save_draws_apart

    def _state(self) -> tuple[Header, Arrays]:
        """Return what is saved: facts about the fit as JSON, and the fitted arrays and ids."""
        saved = {name: getattr(self, name) for name in (*self._common_arrays, *self._arrays)}
        for name in VOCABULARIES:
            saved |= pack_ids(name, getattr(self, f"{name}_vocabulary_"))
        facts = {"stopped": self.stopped_, "frame_kind": self.frame_kind_, "label_type": self.label_type_}
        return facts | {"columns": self.columns_}, saved

    def _restore(self, facts: Header, saved: Arrays) -> None:
        """Restore a saved state; raise ValueError unless the shapes fit the items and classes."""
        for name in VOCABULARIES:
            setattr(self, f"{name}_vocabulary_", unpack_ids(name, saved))
        for name in (*self._common_arrays, *self._arrays):
            setattr(self, name, saved[name])
        self.stopped_, self.frame_kind_ = facts["stopped"], facts["frame_kind"]
        self.label_type_, self.columns_ = facts["label_type"], dict(facts["columns"])
        if "label_distributions_" in self._common_arrays:
            M, P = len(self.item_vocabulary_), len(self.class_vocabulary_)
            table = self.label_distributions_
            if table.shape != (M, P) or self.n_labels_.shape != (M,) or not np.isfinite(table).all():
                raise ValueError(f"label_distributions_ of shape {table.shape} for {M} items and {P} classes")
            if np.ndim(self.prior_strength_):
                raise ValueError("prior_strength_ is not a single number")

    def _head(self, n: int | None) -> Mapping[str, Any]:
        """Return the columns of the first n items; empty before a fit."""
        if not self.__sklearn_is_fitted__():
            return {}
        columns = next(self.label_batches(size=n or len(self.n_labels_)))
        return {name: values[:n] for name, values in columns.items()}

    def _caption(self) -> str:
        return repr(self) if self.__sklearn_is_fitted__() else f"{self!r}, not fitted"

    def _item_distributions(self, item: Codes) -> Array:
        """Return P(label | item) by item code; −1 is an unknown item."""
        return np.asarray(np.vstack([self.label_distributions_, self.prior_distribution_])[item])

    def _answer_distributions(self, item: Codes) -> Array:
        """Return P(label | item) by item code, even if ``label_distributions_`` estimate something else."""
        return self._item_distributions(item)

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Return P(label | item, annotator) by codes; here it does not depend on the annotator."""
        return self._item_distributions(item)

    def _label_probabilities(self, item: Codes, annotator: Codes, label: NDArray[np.intp]) -> Array:
        """Return P(label | item, annotator) of the given labels only."""
        return self._pair_distributions(item, annotator)[np.arange(len(label)), label]

    def convergence(self) -> dict[str, float]:
        """Return split-R̂ of a sampled model's quantities (1: the chains agree); empty for other models."""
        self._check_fitted()
        return {}

    def cluster_view(self, annotator_load: NDArray[Any] | None = None) -> ClusterView | None:
        """Return the clusters of the fitted model, or None for a model without clusters.

        Parameters
        ----------
        annotator_load
            (annotators,): number of labels by each annotator, for models that weight annotators by it and do
            not store it; None weights all annotators equally.
        """
        self._check_fitted()
        return None

    if not TYPE_CHECKING:  # type checkers should still reject undeclared names

        def __getattr__(self, name: str) -> Any:
            """Raise NotFittedError for a fitted attribute before the fit."""
            if name.endswith("_") and not name.startswith("_") and not self.__sklearn_is_fitted__():
                raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
