"""What every model is: fitted on annotations, it knows a label distribution for each item.

A model file gives ``_fit`` (and, where labels depend on the annotator, ``_pair_distributions``); everything a
user calls is here, once.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import DataError, MessagesLostError, NotFittedError, bad_parameter, workers_died
from dissensus.execution.memory import Needs
from dissensus.execution.resources import Identity, current
from dissensus.execution.run import Run
from dissensus.execution.threads import executor
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import LabelType
from dissensus.labels.remembered import remembered
from dissensus.labels.sources import as_annotations
from dissensus.labels.vocabulary import Codes, Vocabulary, numbers_of, one_slip_away, quoted
from dissensus.models.clusters import ClusterView
from dissensus.models.frames import by_id, make_frame, table_by_id
from dissensus.params import real
from dissensus.tables.arrays import Arrays, Header, Savable, pack_ids, unpack_ids
from dissensus.tables.layouts import with_side_tables

Array = NDArray[np.float64]

VOCABULARIES = ("item", "annotator", "class")
COMMON_ARRAYS = ("label_distributions_", "prior_distribution_", "prior_worth_", "n_labels_", "trace_")
BY_ROW = ("features", "item_prior", "item_distributions")  # what ``fit`` takes with one row for each item
LOSSES = 20  # of messages with their workers, before a fit is given up
PIECE = 1 << 16  # items whose refined labels are put together at a time,
PIECE_CELLS = 1 << 21  # and cells of theirs (one for each item and class)
SCORE_ROWS = 1 << 16  # label rows scored at a time
WORTHS = np.geomspace(0.1, 300, 33)  # numbers of labels that the crowd's shares may be worth
UNANIMOUS, LEAST_SHARE = 5, 0.6  # labels of an item that agree, and the share their class should then have
SETTLED = 1.1  # split-R̂ up to which chains are said to agree
UNKNOWN_WORTH = 1.5  # where no item has two labels, so that nothing tells
LOOKED_AT = 1_000  # items that tell how many they are


@dataclass(frozen=True)
class Intervals:
    """How sure a model is of its answers about the items."""

    low: Array  # (M, P): credible interval of each class's share
    high: Array
    sure: Array  # (M,): P(the label is the population's most common answer)
    worth: Array  # (M,): so many labels drawn from the whole population would tell as much about the item


class Model(Savable):
    """Base of every model.

    Fitted attributes: ``label_distributions_`` (items, classes), ``trace_`` (the objective by iteration),
    ``stopped_`` (why the fit ended) and, per model, what else it learned.
    """

    # Fitted arrays that a saved model keeps: those that most have, and its own.
    _common_arrays: ClassVar[tuple[str, ...]] = COMMON_ARRAYS
    _arrays: ClassVar[tuple[str, ...]] = ()
    _needs_annotators: ClassVar[bool] = False
    _reads_as: ClassVar[LabelType | None] = None  # what a frame's labels are, where one kind alone will do
    _label_types: ClassVar[tuple[LabelType, ...]] = ("nominal", "ordinal", "multi", "pairwise")
    intervals_are: ClassVar[str] = "approximate"  # or "sampled"; "none" where it makes no claim
    _sizes_are_bounds: ClassVar[bool] = False  # clusters that are not needed stay empty
    _threads_from: ClassVar[int] = 0  # labels: of fewer, threads gain a fit nothing worth their cost
    _fitted_by = "label_distributions_"
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

    # ---- fitting --------------------------------------------------------------------------------------

    def fit(self, annotations: Any) -> Self:
        """Learn from annotations (or a data frame with item, annotator and label columns).

        Parameters
        ----------
        annotations
            Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
        """
        return self._run_fit(annotations)

    def _run_fit(self, annotations: Any, **given: Any) -> Self:
        """Check, fit on ``n_jobs`` threads, and remember whose labels they were."""
        _refuse_unordered(annotations, given)
        known = self._checked(annotations)
        resources = current()
        needs = self._needs(known, resources.itemsize, **given)
        identity = Identity(type(self).__name__, self.get_params(deep=False), given)
        with self._twin() as twin:
            twin._remember(known)
            with resources.run(known, identity, needs, self._n_threads(known.n_labels)) as run:
                through_losses(partial(twin._fit, known, run, **given))
            if "prior_worth_" in self._common_arrays:
                twin.prior_worth_ = np.asarray(
                    remembered(known, worth_of_shares, partial(worth_of_shares, known))
                )
            # in C order, as a file gives them back: a loaded model then computes the same bits
            for name in self._arrays:
                setattr(twin, name, np.asarray(getattr(twin, name), order="C"))
        return self

    def _n_threads(self, n_labels: int) -> int:
        """How many threads work on so many labels, −1 standing for one on each core."""
        n_jobs: int = getattr(self, "n_jobs", 1)
        return 1 if n_jobs == -1 and n_labels < self._threads_from else n_jobs

    def _fit(self, annotations: Annotations, run: Run) -> None:
        raise NotImplementedError

    def _needs(self, annotations: Annotations, itemsize: int, **given: Any) -> Needs:
        """Bytes that a fit takes; ``itemsize`` is that of a message, ``given`` what ``fit`` is given.

        ``transform=True`` asks for those of a transform.
        """
        del itemsize
        M, P = annotations.n_items, annotations.n_classes
        tables = [annotations.item_table, *given.values()]
        # counts, the model's distributions, and what is in between; copies of what there is about items
        own = sum(getattr(table, "nbytes", 0) for table in tables)
        return Needs(fixed=4 * 8 * M * P + 6 * own, layout_bytes=0, message_bytes=0, working=0)

    def _checked(self, annotations: Any) -> Annotations:
        """Settings and data, checked before work begins."""
        self.check_params()
        known = as_annotations(annotations, self._reads_as)
        if not known.n_labels:
            raise DataError("there is no label to learn from; give at least one")
        self._check_annotators(known)
        self._check_label_type(known)
        return known

    def _check_label_type(self, known: Annotations) -> None:
        if known.label_type in self._label_types:
            return
        if known.label_type == "numeric":
            raise DataError(
                f"{type(self).__name__} knows classes, and the labels are {known.n_classes:,} different "
                "numbers; fit NumericRatings, or say label_type='ordinal' if they are grades"
            )
        raise DataError(
            f"{type(self).__name__} is for labels of type {' or '.join(self._label_types)}, and these are "
            f"{known.label_type}; take another model, or say label_type={self._label_types[0]!r}"
        )

    def _check_annotators(self, known: Annotations) -> None:
        if self._needs_annotators and known.anonymous:
            raise DataError(
                f"{type(self).__name__} needs to know who gave each label, and class counts do not say; "
                "use an item-side model (majority, empirical, fmm)"
            )

    def _remember(self, annotations: Annotations) -> None:
        """Vocabularies and label counts, so that the fitted model speaks in the user's ids."""
        self.item_vocabulary_ = annotations.item_vocabulary
        self.annotator_vocabulary_ = annotations.annotator_vocabulary
        self.class_vocabulary_ = annotations.class_vocabulary
        self.n_labels_ = np.diff(annotations.item_pointers)
        self.frame_kind_ = annotations.frame_kind
        self.columns_ = dict(annotations.columns_read)
        self.label_type_ = annotations.label_type

    def transform(self, new: Any) -> Self:
        """The fitted model over ``new``'s items and annotators: parameters kept, this model untouched.

        Parameters
        ----------
        new
            Labels of other items, or by other annotators.
        """
        self._check_fitted()
        known = as_annotations(new)
        self._check_annotators(known)
        moved = copy.copy(self)
        moved._remember(known)
        moved.class_vocabulary_ = self.class_vocabulary_
        resources, own = current(), self._in_own_classes(known)
        identity = Identity(f"{type(self).__name__}-transform", self.get_params(deep=False))
        needs = self._needs(own, resources.itemsize, transform=True)
        with resources.run(own, identity, needs, self._n_threads(own.n_labels)) as run:
            through_losses(partial(moved._transform, own, self, run))
        return moved

    def _transform(self, new: Annotations, fitted: Self, run: Run) -> None:
        raise NotImplementedError

    def fit_predict(self, annotations: Any, true_labels: Any = None) -> Any:
        """Fit, and give the labels keyed by item (:attr:`labels_`).

        Parameters
        ----------
        annotations
            Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
        true_labels
            The right class of some items: a mapping or a pandas Series from item to class. Only models that
            look for one true class (``finds_truth``) can learn from it.
        """
        return self._fit_with(annotations, true_labels).labels_

    def fit_predict_proba(self, annotations: Any, true_labels: Any = None) -> Any:
        """Fit, and give the distributions keyed by item (:attr:`probas_`).

        Parameters
        ----------
        annotations
            Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
        true_labels
            As in :meth:`fit_predict`.
        """
        return self._fit_with(annotations, true_labels).probas_

    def _fit_with(self, annotations: Any, true_labels: Any) -> Self:
        if true_labels is None:
            return self.fit(annotations)
        if not self.finds_truth:
            raise DataError(
                f"{type(self).__name__} does not look for one true class, so true_labels cannot teach it; "
                "leave them out, or take a model such as DawidSkene"
            )
        from dissensus.models.confusion import gold_prior

        known = as_annotations(annotations, self._reads_as)
        keys = list(true_labels.keys())
        if keys and not set(keys) & set(known.items.tolist()):
            raise DataError(
                "true_labels maps items to their right class, and none of its keys is an item (the first is "
                f"{keys[0]!r}); weights of annotators cannot be given, Wawa learns them"
            )
        known = with_gold(known, true_labels)
        return self.fit(known, item_prior=gold_prior(known))  # type: ignore[call-arg]

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
        best: NDArray[Any] = self.classes_[self._top(self.label_distributions_)]
        return best

    def predict_proba(self, items: Any, annotators: Any = None) -> Array:
        """P(label | item, annotator), one row for each pair; without annotators, P(label | item).

        Ids are the user's own. Items and annotators never seen get the population's expectation.

        Parameters
        ----------
        items
            Item ids.
        annotators
            Annotator ids, one for each item id; None gives P(label | item).
        """
        self._check_fitted()
        item = _codes_of(items, self.item_vocabulary_)
        annotator = None if annotators is None else _codes_of(annotators, self.annotator_vocabulary_)
        if annotator is not None and len(item) != len(annotator):
            raise DataError(f"{len(item)} items and {len(annotator)} annotators do not pair up")
        chances = np.empty((len(item), len(self.classes_)))

        def fill(rows: slice) -> None:
            chances[rows] = (
                self._item_distributions(item[rows])
                if annotator is None
                else self._pair_distributions(item[rows], annotator[rows])
            )

        with executor(getattr(self, "n_jobs", 1)) as local:
            local.map(fill, list(_batches(len(item))))
        return chances

    def _item_distributions(self, item: Codes) -> Array:
        """P(label | item) by item code; −1 stands for an item never seen."""
        table = np.vstack([self.label_distributions_, self.prior_distribution_])
        return np.asarray(table[item])

    def _answer_distributions(self, item: Codes) -> Array:
        """P(label | item) by item code, also where the model is asked for another thing of an item."""
        return self._item_distributions(item)

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """P(label | item, annotator) by codes; models without annotators know only the item."""
        del annotator
        return self._item_distributions(item)

    def score(self, hidden: Any) -> float:
        """Mean log P(label | item, annotator) over the labels of ``hidden``.

        Parameters
        ----------
        hidden
            Labels that were not learned from.
        """
        return float(self.log_chances(hidden).mean())

    def score_items(self, hidden: Any) -> float:
        """Mean log P(label | item) over the labels of ``hidden``.

        Parameters
        ----------
        hidden
            Labels that were not learned from.
        """
        return float(self.log_chances(hidden, annotators=False).mean())

    def log_chances(self, hidden: Any, annotators: bool = True) -> Array:
        """log P(label | item, annotator) of every label of ``hidden``, or log P(label | item).

        Parameters
        ----------
        hidden
            Labels that were not learned from.
        annotators
            Whether the annotator is known; otherwise P(label | item).
        """
        known, item, annotator = self._codes_of_hidden(hidden)
        known = self._in_own_classes(known)
        logs = np.empty(known.n_labels)
        for rows in _batches(known.n_labels):
            label = known.label[rows].astype(np.intp)
            chances = (
                self._label_chances(item[rows], annotator[rows], label)
                if annotators
                else self._answer_distributions(item[rows])[np.arange(len(label)), label]
            )
            with np.errstate(divide="ignore"):
                logs[rows] = np.log(chances)
        return logs

    def _label_chances(self, item: Codes, annotator: Codes, label: NDArray[np.intp]) -> Array:
        """P(label | item, annotator) by codes: of these labels alone, where that is less work."""
        return self._pair_distributions(item, annotator)[np.arange(len(label)), label]

    def _codes_of_hidden(self, hidden: Any) -> tuple[Annotations, Codes, Codes]:
        """Labels to be scored, with this model's codes of their items and annotators (−1: never seen)."""
        self._check_fitted()
        known = as_annotations(hidden)
        if not known.n_labels:
            raise DataError("there is no label to score; give at least one")
        item = _translate(known.item, known.item_vocabulary, self.item_vocabulary_)
        annotator = _translate(known.annotator, known.annotator_vocabulary, self.annotator_vocabulary_)
        return known, item, annotator

    def _in_own_classes(self, known: Annotations) -> Annotations:
        """The annotations with label codes of this model's classes."""
        return in_classes(known, self.class_vocabulary_)

    def intervals(self, interval: float = 0.9, items: slice = slice(None)) -> Intervals | None:
        """How sure it is of its answers about the items (or some of them); None where it makes no claim.

        A fitted distribution says nothing of its own error. Approximately, the population's answer about item
        m is a Dirichlet around it, worth the item's n_m labels and those that the crowd's shares are worth
        without them. A model with draws of its posterior reads its intervals off the draws instead.

        Parameters
        ----------
        interval
            Size of the credible interval, 0.9 for 90 %.
        items
            Which items, as a slice.
        """
        from scipy.special import betainc, betaincinv

        self._check_fitted()
        if self.intervals_are == "none":
            return None
        answers = self.label_distributions_[items]
        mean = np.clip(answers, 1e-9, 1 - 1e-9)
        worth = (self.n_labels_[items] + self.prior_worth_).astype(np.float64)
        # Y_m ~ Dir(worth_m mean_m), so Y_mp ~ Beta(worth mean, worth (1 − mean))
        above, below = worth[:, None] * mean, worth[:, None] * (1 - mean)
        low, high = (betaincinv(above, below, (1 + side * interval) / 2) for side in (-1, 1))
        # P(the first is larger than the second) in Dir(…): their share of each other is a Beta
        first, second = np.sort(mean, axis=1)[:, [-1, -2 if mean.shape[1] > 1 else -1]].T * worth
        sure = 1 - betainc(first, second, 0.5) if mean.shape[1] > 1 else np.ones(len(mean))
        return Intervals(np.minimum(low, answers), np.maximum(high, answers), sure, worth)

    def to_frame(self, interval: float | None = None) -> Any:
        """One row for each item: item, label, ``p_<class>`` for every class, entropy (nats), n_labels.

        Then ``low_<class>``, ``high_<class>`` (a credible interval of this size, 0.9 unless
        told otherwise, for each share), ``sure``
        (the probability that the label is the most common answer) and ``worth`` (so many labels of the
        population would tell as much); ``intervals_are`` says whether they are sampled or approximate.

        Parameters
        ----------
        interval
            Size of the credible intervals; None is 0.9.
        """
        self._check_fitted()
        rule = real(0.0, 1.0, open_low=True)
        if interval is not None and not rule.holds(interval):
            raise bad_parameter("to_frame", "interval", rule.words, interval)
        columns = next(self.label_pieces(interval, size=max(len(self.n_labels_), 1)))
        return make_frame(columns | {"item": self.items_}, self.frame_kind_)

    def label_pieces(self, interval: float | None = None, size: int = 0) -> Iterator[dict[str, Any]]:
        """The columns of refined labels, some items at a time; ids stay in Arrow's hands.

        Parameters
        ----------
        interval
            Size of the credible intervals; None is 0.9.
        size
            Items in a piece; 0: as many as keep a piece small.
        """
        from dissensus.tables.labels_file import label_columns, scale_columns

        ids = self.item_vocabulary_.arrow
        step = size or min(PIECE, max(PIECE_CELLS // len(self.class_vocabulary_), 1))
        for first in range(0, max(len(ids), 1), step):
            rows = slice(first, first + step)
            chances = self.label_distributions_[rows]
            labels, known = self.classes_[self._top(chances)], self.intervals(interval or 0.9, rows)
            columns = label_columns(ids[rows], labels, self.classes_, chances, self.n_labels_[rows], known)
            ordered = self.label_type_ == "ordinal"
            yield columns | (scale_columns(self.classes_, self._values(), chances) if ordered else {})

    def _top(self, chances: Array) -> NDArray[np.intp]:
        """(items,): the class of the largest chance; of several, on a scale, the one next to the median."""
        return middle_of_largest(chances) if self.label_type_ == "ordinal" else chances.argmax(axis=1)

    def _values(self) -> Array:
        """(classes,): the numbers that the classes are, or their places from 1."""
        numbers = numbers_of(self.class_vocabulary_.arrow)
        return np.arange(1.0, len(self.classes_) + 1) if numbers is None else numbers

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
        del annotator_load
        self._check_fitted()
        return None

    # ---- keeping it -----------------------------------------------------------------------------------

    def _state(self) -> tuple[Header, Arrays]:
        """What a file keeps: the fitted arrays and the ids, and how the fit ended."""
        arrays = {name: getattr(self, name) for name in (*self._common_arrays, *self._arrays)}
        for what in VOCABULARIES:
            arrays |= pack_ids(what, getattr(self, f"{what}_vocabulary_"))
        facts = {"stopped": self.stopped_, "frame_kind": self.frame_kind_, "label_type": self.label_type_}
        return facts | {"columns": self.columns_}, arrays

    def _restore(self, facts: Header, arrays: Arrays) -> None:
        for what in VOCABULARIES:
            setattr(self, f"{what}_vocabulary_", unpack_ids(what, arrays))
        for name in (*self._common_arrays, *self._arrays):
            setattr(self, name, arrays[name])
        self.stopped_, self.frame_kind_ = facts["stopped"], facts["frame_kind"]
        self.label_type_, self.columns_ = facts["label_type"], dict(facts["columns"])
        self._check_restored()

    def _check_restored(self) -> None:
        """What every model has must fit together: a distribution an item, over the classes."""
        if "label_distributions_" not in self._common_arrays:
            return
        M, P = len(self.item_vocabulary_), len(self.class_vocabulary_)
        found = self.label_distributions_
        if found.shape != (M, P) or self.n_labels_.shape != (M,) or not np.isfinite(found).all():
            raise ValueError(f"label_distributions_ of shape {found.shape} for {M} items and {P} classes")
        if "prior_worth_" in self._common_arrays and np.ndim(self.prior_worth_):
            raise ValueError("prior_worth_ is not one number")

    if not TYPE_CHECKING:  # type checkers should go on refusing names that nobody declared

        def __getattr__(self, name: str) -> Any:
            """A fitted attribute that is not there yet says so."""
            if name.endswith("_") and not name.startswith("_") and not self.__sklearn_is_fitted__():
                raise NotFittedError(f"this {type(self).__name__} is not fitted yet; call fit first")
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def contradicted(chances: Array, counts: NDArray[np.int64]) -> NDArray[np.intp]:
    """Items of five or more labels, all the same, whose class gets a share below ``LEAST_SHARE``."""
    sizes, said = counts.sum(axis=1), counts.argmax(axis=1)
    unanimous = (counts.max(axis=1) == sizes) & (sizes >= UNANIMOUS)
    return np.flatnonzero(unanimous & (chances[np.arange(len(said)), said] < LEAST_SHARE))


def worth_of_shares(annotations: Annotations) -> float:
    """How many labels of an item tell as much about it as the crowd's shares do.

    Where items' distributions are Dir(w p̄), counts have the likelihood Π_m Γ(w) / Γ(w + n_m) Π_p Γ(w p̄_p +
    c_mp) / Γ(w p̄_p); w is the best of a grid. Where no item has two labels, nothing tells.
    """
    from scipy.special import gammaln

    some = np.unique(np.linspace(0, annotations.n_items - 1, LOOKED_AT).astype(np.int64))
    item, rows = annotations.rows_of_items(some)
    M, P = len(some), annotations.n_classes
    counts = np.bincount(item * np.int64(P) + annotations.label[rows], minlength=M * P).reshape(M, P)
    sizes = counts.sum(axis=1)
    if sizes.max(initial=0) < 2:
        return UNKNOWN_WORTH
    shares = counts.sum(axis=0) / counts.sum()
    # Items with equally many labels, and cells of one class with equally many, have the same term.
    n, n_items = np.unique(sizes, return_counts=True)
    cells, n_cells = np.unique((counts * P + np.arange(P))[counts > 0], return_counts=True)
    c, p = np.divmod(cells, P)
    fits = np.empty(len(WORTHS))
    for place, w in enumerate(WORTHS):
        alpha = w * shares[p]
        told = n_cells @ (gammaln(alpha + c) - gammaln(alpha))
        fits[place] = told - n_items @ (gammaln(w + n) - gammaln(w))
    return float(WORTHS[fits.argmax()])


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
        warnings.warn(note, stacklevel=4)
    return told


def _refuse_unordered(data: Any, given: Mapping[str, Any]) -> None:
    """Rows for items in an order that only Annotations have."""
    if isinstance(data, Annotations):
        return
    for name in BY_ROW:
        if given.get(name) is not None:
            raise DataError(
                f"{name}= has one row for each item, and a file or a frame of labels does not say in which "
                "order; read it with read_annotations, and put the rows in the order of its items"
            )


def through_losses(step: Callable[[], None]) -> None:
    """A fit, which goes on from its last checkpoint where a worker of a cluster took messages with it."""
    for _ in range(LOSSES):
        try:
            step()
        except MessagesLostError:
            continue
        return
    raise workers_died()


def fresh_rows(new: Annotations, item: Codes, annotator: Codes) -> Annotations:
    """The labels with an item or an annotator (codes of the fit, by those of ``new``) that is new (−1)."""
    fresh = np.empty(new.n_labels, dtype=bool)
    for rows in _batches(new.n_labels):
        fresh[rows] = (item[new.item[rows]] < 0) | (annotator[new.annotator[rows]] < 0)
    return new if fresh.all() else new.take_rows(fresh)


def in_classes(known: Annotations, own: Vocabulary) -> Annotations:
    """The annotations with label codes of the classes that something was fitted on."""
    if known.class_vocabulary == own:
        return known
    codes = own.codes(known.class_vocabulary)
    used = np.unique(known.label)
    if (codes[used] < 0).any():
        row = int(np.flatnonzero(codes[known.label] < 0)[0])
        stranger = known.classes[known.label[row]]
        meant = one_slip_away(stranger, own)
        hint = "" if meant is None else f"did you mean {quoted(meant)}? If so, correct it; otherwise "
        by = "" if known.anonymous else f" by annotator {quoted(known.annotators[known.annotator[row]])}"
        raise DataError(
            f"item {quoted(known.items[known.item[row]])}{by}: class {quoted(stranger)} was not there when "
            f"the model was fitted; {hint}fit all labels anew with it declared in classes=, or drop its "
            "labels"
        )
    return replace(known, label=codes[known.label], class_vocabulary=own, gold=None)


def middle_of_largest(chances: Array) -> NDArray[np.intp]:
    """(items,): where the largest chance is; of several within rounding, the one nearest the median."""
    largest = chances >= chances.max(axis=1, keepdims=True) * (1 - 1e-9)
    median = (np.cumsum(chances, axis=1) < 0.5 - 1e-12).sum(axis=1, keepdims=True)
    off = np.abs(np.arange(chances.shape[1]) - median)
    return np.asarray(np.where(largest, off, chances.shape[1] + 1).argmin(axis=1))


def _codes_of(ids: Any, vocabulary: Vocabulary) -> Codes:
    """The codes of a list of ids; a bare id is refused, since a string would pass for a list of letters."""
    if isinstance(ids, str | bytes) or not hasattr(ids, "__len__"):
        raise DataError(f"{vocabulary.what}s: a list of ids is needed, got {ids!r}; write [{ids!r}]")
    return vocabulary.codes(ids)


def _translate(codes: Codes, source: Vocabulary, target: Vocabulary) -> Codes:
    """Codes of one vocabulary as codes of another; −1 where the id is unknown there."""
    if source is target or source == target:
        return codes
    return target.codes(source)[codes]


def _batches(n: int) -> Iterator[slice]:
    return (slice(start, start + SCORE_ROWS) for start in range(0, n, SCORE_ROWS))
