"""How well annotators agree, as a crowd and one by one.

Every function takes the labels in one of two forms: an :class:`~dissensus.Annotations` (or a data frame that
:func:`dissensus.read_annotations` reads), or integer codes from zero, one per label:
``krippendorff_alpha(frame)`` or ``krippendorff_alpha(item, label)``. Coefficients of the whole crowd need
only the (items, classes) table of counts and take that too.

The crowd: :func:`krippendorff_alpha`, :func:`fleiss_kappa`. Pairs: :func:`pairwise_cohen`. One annotator
against the others: :func:`agreement_with_others`; whether labels tell anything is a matter of
`annotators/verdicts.py`. Nothing here is dense in items × annotators.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol, get_args, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, triu

from dissensus.errors import DataError, bad_parameter
from dissensus.labels.alpha import Level, blocks, interval_alpha, level_of, table_alpha
from dissensus.labels.sets import set_alpha
from dissensus.labels.sources import as_annotations
from dissensus.labels.vocabulary import Vocabulary
from dissensus.numerics import Array

Codes = NDArray[np.intp]


@runtime_checkable
class LabelTable(Protocol):
    """What is asked of an ``Annotations``: three code columns, the counts and the sizes."""

    @property
    def item(self) -> NDArray[Any]:
        """Item code of each label."""

    @property
    def annotator(self) -> NDArray[Any]:
        """Annotator code of each label."""

    @property
    def label(self) -> NDArray[Any]:
        """Class code of each label."""

    @property
    def counts(self) -> NDArray[Any]:
        """(items, classes) number of labels."""

    @property
    def n_items(self) -> int:
        """Number of items."""

    @property
    def n_annotators(self) -> int:
        """Number of annotators."""

    @property
    def n_classes(self) -> int:
        """Number of classes."""


# ---- the crowd ----------------------------------------------------------------------------------------


def krippendorff_alpha(
    item: LabelTable | ArrayLike,
    label: ArrayLike | None = None,
    *,
    n_classes: int | None = None,
    level: Level | None = None,
) -> float:
    """Krippendorff's α: 1 for full agreement, 0 for what chance would give.

    ``level`` says how far apart two classes are: all alike (nominal), by how many labels lie between them in
    class order (ordinal), or by their difference (interval; one step each where they are no numbers). None
    takes the level of the annotations' ``label_type``: interval for numeric labels, MASI for sets ("jaccard"
    is the other distance of sets). Items with one label are left out. NaN where all labels that can be paired
    are of one class, or none can be paired: chance then leaves nothing to explain.
    Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability".

    Parameters
    ----------
    item
        Annotations, a data frame of labels, an (items, classes) table of counts, or the item code of each
        label.
    label
        Class code of each label, where ``item`` has item codes.
    n_classes
        How many classes there are, where codes alone do not tell.
    level
        How far apart two classes are: see above.
    """
    if level not in (None, *get_args(Level)):
        raise bad_parameter("krippendorff_alpha", "level", f"one of {get_args(Level)}", level)
    item = labels_of(item, label)
    level = level or level_of(item)
    if level == "interval" and isinstance(item, LabelTable):
        return interval_alpha(item.item, getattr(item, "values", item.label), item.n_items)
    if level in ("jaccard", "masi"):
        return set_alpha(_counts_by_class(item, label, n_classes), _sets_of(item), level)
    return table_alpha(_counts_by_class(item, label, n_classes), level)


def _sets_of(annotations: Any) -> Vocabulary:
    if getattr(annotations, "label_type", "") != "multi":
        raise DataError("'jaccard' and 'masi' are distances of sets; read the labels with label_type='multi'")
    classes: Vocabulary = annotations.class_vocabulary
    return classes


def fleiss_kappa(
    item: LabelTable | ArrayLike, label: ArrayLike | None = None, *, n_classes: int | None = None
) -> float:
    """Fleiss' κ: agreement of pairs of labels beyond chance, items weighing alike.

    Fleiss (1971) has the same number of labels on every item. For unequal numbers this is Gwet's
    generalisation (Handbook of Inter-Rater Reliability, 2014): observed agreement is the mean over items
    with two labels or more, chance comes from the mean of the items' class shares. NaN where chance
    agreement is full or no item has two labels.

    Parameters
    ----------
    item
        Annotations, a data frame of labels, an (items, classes) table of counts, or the item code of each
        label.
    label
        Class code of each label, where ``item`` has item codes.
    n_classes
        How many classes there are, where codes alone do not tell.
    """
    item = labels_of(item, label)
    agreement, n_paired, shares, n_labelled = 0.0, 0, 0.0, 0
    for counts, n in blocks(_counts_by_class(item, label, n_classes)):
        # P_i = Σ_c n_ic (n_ic − 1) / (n_i (n_i − 1))
        agreement += float((((counts**2).sum(axis=0) - n) / np.maximum(n * (n - 1), 1)).sum())
        shares = shares + (counts / np.maximum(n, 1)).sum(axis=1)
        n_paired += int((n > 1).sum())
        n_labelled += int((n > 0).sum())
    chance = float(np.sum((shares / max(n_labelled, 1)) ** 2))
    if not n_paired or chance >= 1:
        return float("nan")
    return (agreement / n_paired - chance) / (1 - chance)


def labels_of(given: Any, label: Any = None) -> Any:
    """A data frame of labels read as annotations; codes, counts and annotations as they are."""
    if label is not None or isinstance(given, LabelTable) or not hasattr(given, "columns"):
        return given
    return as_annotations(given)


def _counts_by_class(
    item: LabelTable | ArrayLike, label: ArrayLike | None, n_classes: int | None
) -> NDArray[Any]:
    """(classes, items) counts, whatever form the labels came in."""
    if isinstance(item, LabelTable):
        return item.counts.T
    if label is None:
        table = np.asarray(item)
        if table.ndim != 2 or 0 in table.shape or not (table >= 0).all():
            raise DataError("give item and label codes, Annotations, or an (items, classes) table of counts")
        return table.T
    items, labels = _check_codes(item=item, label=label)
    M, used = int(items.max()) + 1, int(labels.max()) + 1
    P = n_classes or used
    if used > P:
        raise bad_parameter("an agreement coefficient", "n_classes", "above every label code", n_classes)
    cell = np.multiply(labels, M, dtype=np.intp)
    np.add(cell, items, out=cell, casting="unsafe")
    return np.bincount(cell, minlength=P * M).reshape(P, M)


def _check_codes(**columns: ArrayLike) -> list[NDArray[Any]]:
    """Integer columns of one length without negative codes, of whatever width they came in."""
    arrays = {name: np.asarray(column) for name, column in columns.items()}
    for name, array in arrays.items():
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer) or not array.size or array.min() < 0:
            raise DataError(
                f"{name}: codes must be integers from 0, one per label; Annotations has them ready"
            )
    if len({array.size for array in arrays.values()}) != 1:
        raise DataError(f"{', '.join(arrays)} must have one code per label each")
    return list(arrays.values())


# ---- annotators ---------------------------------------------------------------------------------------


class Pairs(NamedTuple):
    """The labels gathered by (item, annotator) pair: one row per pair, repeated labels in one row."""

    item: Codes  # (pairs,)
    annotator: Codes  # (pairs,)
    counts: csr_array[Any]  # (pairs, classes) labels the pair carries
    others: csr_array[Any]  # (pairs, classes) labels that other annotators gave to the item
    n_annotators: int


def gather_pairs(
    item: LabelTable | ArrayLike, annotator: ArrayLike | None = None, label: ArrayLike | None = None
) -> Pairs:
    """The labels by (item, annotator) pair, and beside each pair what the others said of the item."""
    columns, sizes = _columns(item, annotator, label)
    return _gathered(columns[0], columns[1], columns[2], sizes)


def pairs_in_pieces(
    item: LabelTable | ArrayLike, annotator: ArrayLike | None = None, label: ArrayLike | None = None
) -> Iterator[Pairs]:
    """The same, some whole items at a time where labels are sorted by item: memory is that of a piece."""
    columns, sizes = _columns(item, annotator, label)
    pieces = getattr(item, "pieces", lambda: [slice(None)])
    return (_gathered(columns[0][rows], columns[1][rows], columns[2][rows], sizes) for rows in pieces())


def _gathered(
    item: NDArray[Any], annotator: NDArray[Any], label: NDArray[Any], sizes: tuple[int, int, int]
) -> Pairs:
    _, N, P = sizes
    first, last = int(item.min()), int(item.max())
    local, labels = item.astype(np.intp) - first, label.astype(np.intp)
    keys, pair = _distinct(local * N + annotator)
    ones = np.ones(len(item))
    counts = csr_array((ones, (pair, labels)), shape=(len(keys), P))
    by_item = csr_array((ones, (local, labels)), shape=(last - first + 1, P))
    pair_item = keys // N
    return Pairs(first + pair_item, keys % N, counts, by_item[pair_item] - counts, N)


def _distinct(keys: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Distinct keys in order, and the place of each key among them; quick where they are sorted already."""
    step = np.diff(keys, prepend=keys[0] - 1)
    if (step < 0).any():
        distinct, places = np.unique(keys, return_inverse=True)
        return distinct, places
    new = step > 0
    return keys[new], np.cumsum(new) - 1


def _columns(
    item: LabelTable | ArrayLike, annotator: ArrayLike | None, label: ArrayLike | None
) -> tuple[list[NDArray[Any]], tuple[int, int, int]]:
    """Item, annotator and label codes with the numbers of items, annotators and classes."""
    item = labels_of(item, label)
    if isinstance(item, LabelTable):
        if getattr(item, "anonymous", False):
            raise DataError("the labels name no annotators, so annotators cannot be compared")
        sizes = item.n_items, item.n_annotators, item.n_classes
        return _check_codes(item=item.item, annotator=item.annotator, label=item.label), sizes
    if annotator is None or label is None:
        raise DataError("give Annotations, or item, annotator and label codes")
    columns = _check_codes(item=item, annotator=annotator, label=label)
    return columns, (int(columns[0].max()) + 1, int(columns[1].max()) + 1, int(columns[2].max()) + 1)


class CohenTable(NamedTuple):
    """Cohen's κ of pairs of annotators: one entry a pair in each array."""

    first: Codes  # annotator codes, first < second
    second: Codes
    n_items: Codes  # items that both labelled
    agreement: Array  # share of those items on which they agree
    kappa: Array  # NaN where both gave one and the same class throughout

    @property
    def mean(self) -> float:
        """Mean κ of the pairs that have one; NaN where there is none."""
        known = self.kappa[~np.isnan(self.kappa)]
        return float(known.mean()) if known.size else float("nan")


def pairwise_cohen(
    item: LabelTable | ArrayLike,
    annotator: ArrayLike | None = None,
    label: ArrayLike | None = None,
    *,
    min_items: int = 5,
) -> CohenTable:
    """Cohen's κ of every two annotators who share at least ``min_items`` items.

    Class shares are those on the shared items. An annotator who labelled an item several times is there with
    each of those labels in equal parts. Work and memory go with the number of pairs that meet.
    """
    if min_items < 1:
        raise bad_parameter("pairwise_cohen", "min_items", "an integer >= 1", min_items)
    pairs = gather_pairs(item, annotator, label)
    busy = np.bincount(pairs.annotator, minlength=pairs.n_annotators)[pairs.annotator] >= min_items
    said = _labels_of_annotators(pairs, busy)
    seen = sum(said[1:], start=said[0])
    shared = triu(seen @ seen.T, k=1).tocoo()
    enough = shared.data >= min_items - 1e-6
    first, second, n = shared.row[enough], shared.col[enough], np.rint(shared.data[enough])
    agreed, chance = np.zeros(n.size), np.zeros(n.size)
    for of_class in said:
        here = (of_class @ seen.T).tocsr()  # (a, b): a's labels of this class on items shared with b
        agreed += (of_class @ of_class.T).tocsr()[first, second]
        chance += here[first, second] * here[second, first]
    # κ = (p_o − p_e) / (1 − p_e), p_o = agreed / n, p_e = Σ_c n_ac n_bc / n²
    agreement, chance = agreed / n, chance / n**2
    left = 1 - chance
    kappa = np.divide(agreement - chance, left, out=np.full(n.size, np.nan), where=left > 1e-12)
    return CohenTable(first.astype(np.intp), second.astype(np.intp), n.astype(np.intp), agreement, kappa)


def _labels_of_annotators(pairs: Pairs, chosen: NDArray[np.bool_]) -> list[csr_array[Any]]:
    """For each class, (annotators, items): what part of an annotator's labels on an item is that class."""
    shape = pairs.n_annotators, int(pairs.item.max()) + 1
    own = pairs.counts.sum(axis=1)
    tables = []
    for column in range(pairs.counts.shape[1]):
        labels = pairs.counts[:, [column]].tocoo()
        rows = labels.row[chosen[labels.row]]
        parts = labels.data[chosen[labels.row]] / own[rows]
        tables.append(csr_array((parts, (pairs.annotator[rows], pairs.item[rows])), shape=shape))
    return tables


def agreement_with_others(
    item: LabelTable | ArrayLike, annotator: ArrayLike | None = None, label: ArrayLike | None = None
) -> Array:
    """For each annotator, the chance that another's label on the same item, drawn at random, equals theirs.

    The mean over the annotator's labels on items that others labelled too; NaN where there are none.
    """
    agreed: Any = 0.0
    totals: Any = 0.0
    for pairs in pairs_in_pieces(item, annotator, label):
        n_others = pairs.others.sum(axis=1)
        own = pairs.counts.sum(axis=1) * (n_others > 0)
        # Σ_c own_c · others_c / Σ_c others_c, for each pair
        matches = pairs.counts.multiply(pairs.others).sum(axis=1) / np.maximum(n_others, 1)
        totals = totals + np.bincount(pairs.annotator, own, minlength=pairs.n_annotators)
        agreed = agreed + np.bincount(pairs.annotator, matches, minlength=pairs.n_annotators)
    return shares(agreed, totals)


def shares(part: Array, whole: Array) -> Array:
    """part / whole, NaN where there is nothing."""
    found: Array = np.divide(part, whole, out=np.full(whole.size, np.nan), where=whole > 0)
    return found
