"""What every model is: fitted on annotations, it knows a label distribution for each item.

A model file gives

* ``_fit(annotations, engine)``, which sets ``label_distributions_``, ``prior_distribution_`` (an item without
  labels gets it) and, unless it has a closed form, ``trace_`` and ``stopped_``;
* ``_apply(new, fitted, engine)``, which sets ``label_distributions_`` for other items;
* ``_pair_distributions``, where a label depends on who gives it, with ``_needs_annotators = True``;
* ``intervals_are``, where the intervals that counts imply (``results.intervals``) are not right for it.

Everything that a user calls is here, once.
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
from dissensus.errors import DataError, NotFittedError, ParameterError, setting, warn
from dissensus.labels.annotations import Annotations
from dissensus.labels.display import Shown
from dissensus.labels.features import by_item, n_features, unknown_order
from dissensus.labels.kinds import LabelType
from dissensus.labels.sources import as_annotations
from dissensus.labels.vocabulary import Codes, Vocabulary
from dissensus.models import files, results, scoring
from dissensus.models.results import ClusterView, by_id, most_probable, table_by_id
from dissensus.models.scoring import in_classes
from dissensus.numerics import Array
from dissensus.params import PROCESS_BYTES, Setting, declare, fitted, physical_memory, size_words
from dissensus.tables import arrays
from dissensus.tables.layouts import with_side_tables

COMMON_ARRAYS = ("label_distributions_", "prior_distribution_", "prior_worth_", "n_labels_", "trace_")
SIZE_SETTINGS = {"K": "n_item_clusters", "L": "n_annotator_clusters", "G": "n_subtypes"}
BY_ROW = ("features", "prior", "item_distributions")  # what ``fit`` takes with one row for each item


@dataclass_transform(eq_default=False, field_specifiers=(fitted,))
class Model:
    """Base of every model.

    Fitted attributes: ``label_distributions_`` (items, classes), ``trace_`` (the objective by iteration),
    ``stopped_`` (why the fit ended) and, per model, what else it learned.
    """

    _settings: ClassVar[Mapping[str, Setting]] = {}
    # Fitted arrays that a saved model keeps: those that most have, and its own.
    _common_arrays: ClassVar[tuple[str, ...]] = COMMON_ARRAYS
    _arrays: ClassVar[tuple[str, ...]] = ()
    _drawn: ClassVar[tuple[str, ...]] = ()  # of its own, those that may stand in a file beside the model's
    _needs_annotators: ClassVar[bool] = False
    _reads_as: ClassVar[LabelType | None] = None  # what a frame's labels are, where one kind alone will do
    _label_types: ClassVar[tuple[LabelType, ...]] = ("nominal", "ordinal", "multi", "pairwise")
    intervals_are: ClassVar[str] = "approximate"  # or "sampled"; "none" where it makes no claim
    # Tables that a fit holds at once beside messages, for memory_needed: "MK" is items × item clusters, and
    # "MD" items × features.
    _memory_tables: ClassVar[Mapping[str, int]] = {"MP": 3}
    _sizes_are_bounds: ClassVar[bool] = False  # clusters that are not needed stay empty
    _fitted_by = "label_distributions_"
    answers_are_classes: ClassVar[bool] = True  # and no numbers, ranks or sets
    finds_truth: ClassVar[bool] = False  # whether it can say which class is right, and learn from gold labels
    uses_features: ClassVar[bool] = False  # whether it also learns from features of the items

    label_distributions_: Array
    prior_distribution_: Array  # (classes,): what to expect of an item never seen
    prior_worth_: Array  # (), so many labels of an item tell as much as the crowd's shares
    n_labels_: NDArray[np.int64]  # (items,)
    trace_: Array
    stopped_: str
    item_vocabulary_: Vocabulary
    annotator_vocabulary_: Vocabulary
    class_vocabulary_: Vocabulary
    frame_kind_: str
    columns_: dict[str, str]  # by role (item, annotator, label), the name of the column that was read
    label_type_: LabelType

    def __init_subclass__(cls) -> None:
        declare(cls)

    get_params = params.get_params
    set_params = params.set_params
    check_params = params.check_params
    __repr__ = params.representation
    _repr_html_ = Shown._repr_html_
    _rows_shown = Shown._rows_shown
    __sklearn_tags__ = params.sklearn_tags
    __sklearn_is_fitted__ = params.is_fitted
    _check_fitted = params.check_fitted

    # ---- fitting --------------------------------------------------------------------------------------

    def fit(self, labels: Any) -> Self:
        """Learn from labels (or a data frame with item, annotator and label columns).

        Parameters
        ----------
        labels
            Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
        """
        return self._run_fit(labels)

    def _run_fit(self, annotations: Any, **given: Any) -> Self:
        """Fit a copy on ``n_jobs`` threads, and become the copy: an interrupted fit changes nothing."""
        labels = self._checked(annotations, given)
        with params.fitted_copy(self) as fitted:
            fitted._remember(labels)
            fitted.trace_, fitted.stopped_ = np.zeros(0), "closed form"  # unless the model's loop says more
            with current().engine(fitted, labels, given) as engine:
                fitted._fit(labels, engine, **given)
            if "prior_worth_" in self._common_arrays:
                fitted.prior_worth_ = np.asarray(labels.prior_strength)
            for name in self._arrays:  # in C order, as a file gives them back: the same bits after loading
                setattr(fitted, name, np.asarray(getattr(fitted, name), order="C"))
        return self

    def _fit(self, annotations: Annotations, engine: Engine) -> None:
        raise NotImplementedError

    def _checked(self, annotations: Any, given: dict[str, Any]) -> Annotations:
        """Check settings, labels and memory before work begins."""
        self.check_params()
        plain = isinstance(annotations, Annotations)
        labels = annotations if plain else as_annotations(annotations, self._reads_as)
        for name in BY_ROW:
            rows = given.get(name)
            placed = None if rows is None else by_item(rows, labels.item_vocabulary, name)
            if placed is not None:
                given[name] = placed
            elif rows is not None and not plain:
                raise unknown_order(name)
        if given.get("features") is not None and not self.uses_features:
            warn(f"{self!r} does not use features; set use_features=True, or fit DirichletRegression", 4)
        if not labels.n_labels:
            raise DataError("there is no label to learn from; give at least one")
        if self._needs_annotators and labels.anonymous:
            raise self._unknown_annotators()
        if labels.label_type not in self._label_types and labels.label_type == "numeric":
            raise DataError(
                f"{type(self).__name__} knows classes, and the labels are {labels.n_classes:,} different "
                f"numbers; fit NumericRatings, or say {setting('label_type', 'ordinal')} if they are grades"
            )
        if labels.label_type not in self._label_types:
            raise DataError(
                f"{type(self).__name__} is for labels of type {' or '.join(self._label_types)}, and these "
                f"are {labels.label_type}; take another model, or say "
                f"{setting('label_type', self._label_types[0])}"
            )
        needed, machine = self.memory_needed(labels, features=given.get("features")), physical_memory()
        if needed > machine and current().memory is None:
            raise DataError(
                f"{type(self).__name__} on {labels.n_labels:,} labels needs {size_words(needed)} of memory "
                f"at least, and this machine has {size_words(machine)}; use fewer clusters, classes or "
                "features, or a simpler model"
            )
        return labels

    def check_labels(self, labels: Annotations) -> None:
        """Refuse labels of other items, classes or annotators than the model was fitted to.

        Parameters
        ----------
        labels
            Labels that should be those of the fit.
        """
        self._check_fitted()
        same_people = labels.anonymous or self.annotator_vocabulary_ == labels.annotator_vocabulary
        ids = labels.item_vocabulary, labels.class_vocabulary
        if (self.item_vocabulary_, self.class_vocabulary_) != ids or not same_people:
            raise DataError(
                f"the labels ({labels.n_items:,} items, {labels.n_annotators:,} annotators) are not "
                f"those of the model ({len(self.items_):,} items, {len(self.annotators_):,} annotators); "
                "give the same labels, read with the same options"
            )

    def memory_needed(self, labels: Annotations, n_threads: int = 1, features: Any = None) -> int:
        """Bytes that a fit takes at least, estimated: the process, its tables, and what threads work on.

        Messages may be on disk and layouts of blocks built anew for each step, so neither is counted.

        Parameters
        ----------
        labels
            Labels to fit.
        n_threads
            Threads that work on blocks at once.
        features
            What ``fit`` is given as features, where the labels do not carry them.
        """
        n_axis = labels.n_items, labels.n_annotators, labels.n_classes, labels.n_labels
        sizes: dict[str, int] = dict(zip("MNPE", n_axis, strict=True))
        sizes["D"] = n_features(labels, features) if self.uses_features else 0
        for axis, name in SIZE_SETTINGS.items():
            sizes[axis] = vars(self).get(name, 1)
        numbers = by_annotator = 0
        for axes, n_tables in self._memory_tables.items():
            size = math.prod(map(sizes.__getitem__, axes))
            numbers += n_tables * size
            by_annotator = max(by_annotator, size if axes[0] == "N" else 0)
        n_shards = min(max(labels.n_labels // (LABELS_PER_SHARD * MIN_BLOCKS), 1), MAX_SHARDS_PER_BLOCK)
        block = min(labels.n_labels, n_shards * LABELS_PER_SHARD)
        # a thread's messages and cavities, and the sums over annotators of two blocks
        work = (8 + 2 * sizes["L"]) * block + 2 * min(by_annotator, 4 * sizes["P"] * block)
        return PROCESS_BYTES + 8 * (numbers + n_threads * work)

    def _unknown_annotators(self) -> DataError:
        return DataError(
            f"{type(self).__name__} needs to know who gave each label, and class counts do not say; "
            "use an item-side model (majority, empirical, fmm)"
        )

    def _remember(self, annotations: Annotations) -> None:
        """Vocabularies and label counts, so that the fitted model speaks in the user's ids."""
        self.item_vocabulary_ = annotations.item_vocabulary
        self.annotator_vocabulary_ = annotations.annotator_vocabulary
        self.class_vocabulary_ = annotations.class_vocabulary
        self.n_labels_ = np.diff(annotations.item_pointers)
        self.frame_kind_, self.label_type_ = annotations.frame_kind, annotations.label_type
        self.columns_ = dict(annotations.columns_read)

    def apply(self, new: Any) -> Self:
        """The fitted model over ``new``'s items and annotators: parameters kept, this model untouched.

        Parameters
        ----------
        new
            Labels of other items, or by other annotators.
        """
        self._check_fitted()
        labels = as_annotations(new)
        if self._needs_annotators and labels.anonymous:
            raise self._unknown_annotators()
        moved = copy.copy(self)
        moved._remember(labels)
        moved.class_vocabulary_ = self.class_vocabulary_
        labels = in_classes(labels, self.class_vocabulary_)
        with current().engine(self, labels, {"new": True}) as engine:
            moved._apply(labels, self, engine)
        return moved

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        raise NotImplementedError

    def fit_predict(self, labels: Any, gold: Any = None) -> Any:
        """Fit, and give the labels keyed by item (:attr:`labels_`).

        Parameters
        ----------
        labels
            Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
        gold
            The right class of some items: a mapping or a pandas Series from item to class. Only models that
            look for one true class (``finds_truth``) can learn from it.
        """
        return self._fit_with(labels, gold).labels_

    def fit_predict_proba(self, labels: Any, gold: Any = None) -> Any:
        """Fit, and give the distributions keyed by item (:attr:`probas_`).

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
                f"{type(self).__name__} does not look for one true class, so gold cannot teach it; "
                "leave it out, or take a model such as DawidSkene"
            )
        return self.fit(labels, gold=gold)  # type: ignore[call-arg]

    # ---- what it knows --------------------------------------------------------------------------------

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
        """One label for each item, keyed by item: a pandas Series, or a frame of the kind that came."""
        self._check_fitted()
        return by_id({"item": self.items_}, self.predict(), "label", self.columns_, self.frame_kind_)

    @property
    def probas_(self) -> Any:
        """The distribution of each item, keyed by item: a frame with a column for each class."""
        self._check_fitted()
        columns = dict(zip(self.classes_.tolist(), self.label_distributions_.T, strict=True))
        return table_by_id({"item": self.items_}, columns, self.columns_, self.frame_kind_)

    def predict(self) -> NDArray[Any]:
        """One class per item: the most probable one (the first in class order where several are)."""
        self._check_fitted()
        best: NDArray[Any] = self.classes_[most_probable(self.label_distributions_, self.label_type_)]
        return best

    predict_proba = scoring.predict_proba
    score = scoring.score
    score_items = scoring.score_items
    log_chances = scoring.log_chances
    intervals = results.intervals
    to_frame = results.to_frame
    label_pieces = results.label_pieces
    _state = files.state
    _restore = files.restore
    save = arrays.save
    save_apart = arrays.save_apart

    def _head(self, n: int | None) -> Mapping[str, Any]:
        """The first items' labels and distributions; nothing before a fit."""
        if not self.__sklearn_is_fitted__():
            return {}
        columns = next(self.label_pieces(size=n or len(self.n_labels_)))
        return {name: values[:n] for name, values in columns.items()}

    def _caption(self) -> str:
        return repr(self) if self.__sklearn_is_fitted__() else f"{self!r}, not fitted"

    def _item_distributions(self, item: Codes) -> Array:
        """P(label | item) by item code; −1 stands for an item never seen."""
        return np.asarray(np.vstack([self.label_distributions_, self.prior_distribution_])[item])

    def _answer_distributions(self, item: Codes) -> Array:
        """P(label | item) by item code, also where the model is asked for another thing of an item."""
        return self._item_distributions(item)

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """P(label | item, annotator) by codes; models without annotators know only the item."""
        return self._item_distributions(item)

    def _label_chances(self, item: Codes, annotator: Codes, label: NDArray[np.intp]) -> Array:
        """P(label | item, annotator) by codes: of these labels alone, where that is less work."""
        return self._pair_distributions(item, annotator)[np.arange(len(label)), label]

    def convergence(self) -> dict[str, float]:
        """Split-R̂ of what a sampled model's chains are compared by (1: they agree); empty for the others."""
        self._check_fitted()
        return {}

    def cluster_view(self, annotator_load: NDArray[Any] | None = None) -> ClusterView | None:
        """What it knows about clusters; None for a model without any.

        ``annotator_load``, the labels that each annotator gave, is asked for by models that weigh annotators
        by it and do not keep it; without it each annotator counts alike.

        Parameters
        ----------
        annotator_load
            (annotators,): labels that each annotator gave.
        """
        self._check_fitted()
        return None

    if not TYPE_CHECKING:  # type checkers should go on refusing names that nobody declared

        def __getattr__(self, name: str) -> Any:
            """A fitted attribute that is not there yet says so."""
            if name.endswith("_") and not name.startswith("_") and not self.__sklearn_is_fitted__():
                raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def fit_truth(self: Any, labels: Any, *, gold: Any = None, prior: Any = None) -> Any:
    """Learn from labels, and from what is known of the items' true classes.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    gold
        The right class of some items: a mapping or a pandas Series from item to class, or a frame or path
        with one row for each item.
    prior
        (items, classes): what is known beforehand, in place of gold; it multiplies the shares of the classes.
        A row with all its weight on one class is a gold label, a row of equal numbers says nothing.
    """
    if gold is None:
        return self._run_fit(labels, prior=prior)
    if prior is not None:
        raise ParameterError(f"{setting('gold')} and {setting('prior')} exclude each other; leave one out")
    from dissensus.models.confusion import gold_prior

    labels = as_annotations(labels, self._reads_as)
    keys = [] if hasattr(gold, "columns") or not hasattr(gold, "keys") else list(gold.keys())
    if keys and not set(keys) & set(labels.items.tolist()):
        raise DataError(
            "gold maps items to their right class, and none of its keys is an item (the first is "
            f"{keys[0]!r}); weights of annotators cannot be given, models learn them"
        )
    labels = with_gold(labels, gold)
    return self._run_fit(labels, prior=gold_prior(labels))


def with_gold(known: Annotations, gold: Any) -> Annotations:
    """The labels with gold: a mapping or a pandas Series from item to class, or a frame or path of them.

    A class that no annotator used, or an item without labels, is told by a warning: whoever gives gold here
    does not see the notes of the labels.
    """
    if hasattr(gold, "items") and not hasattr(gold, "columns"):
        pairs = dict(gold.items())
        told = known.with_tables(gold={"item": list(pairs), "label": list(pairs.values())})
    else:
        told = with_side_tables(known, None, None, gold, ("item", "annotator"), True)
    for note in told.notes[len(known.notes) :]:
        warn(note, 4)
    return told
