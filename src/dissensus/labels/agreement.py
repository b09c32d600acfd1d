"""How well annotators agree, as a crowd and one by one.

Coefficients of the whole crowd (:func:`krippendorff_alpha`, :func:`fleiss_kappa`) take the labels as
:class:`~dissensus.Annotations` (or a data frame that :func:`dissensus.read_annotations` reads), as integer
codes from zero, one per label (``krippendorff_alpha(item, label)``), or as an (items, classes) table of
counts.

One annotator against the others: :func:`agreement_with_others`; whether labels tell anything is a matter of
`annotators/verdicts.py`. Nothing here is dense in items × annotators. The end of the file computes α and its
kin from counts or from numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from dissensus.errors import DataError, bad_parameter, setting
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import set_distances
from dissensus.labels.sources import as_annotations, is_source
from dissensus.numerics import Array

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Codes = NDArray[np.intp]
Level = Literal["nominal", "ordinal", "interval", "jaccard", "masi"]
SET_LEVELS = ("jaccard", "masi")

GROUPS = 200  # of items, of which one is left out at a time
_MOST_CELLS = 4_000_000  # of the tables of all groups
_BLOCK = 80_000  # table cells worked on at a time: few enough to stay in the processor's cache


# ---- the crowd ----------------------------------------------------------------------------------------


def krippendorff_alpha(
    item: Annotations | ArrayLike,
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
    if level == "interval" and isinstance(item, Annotations):
        return interval_alpha(item.item, item.values, item.n_items)
    if level in SET_LEVELS:
        if not isinstance(item, Annotations) or item.label_type != "multi":
            raise DataError(
                "'jaccard' and 'masi' are distances of sets; read the labels with "
                f"{setting('label_type', 'multi')}"
            )
        return alpha(coincidences(item.counts.T), set_distances(item.class_vocabulary, level))
    by_class = _counts_by_class(item, label, n_classes)
    if level == "nominal":  # without a table of (classes, classes)
        return _nominal(*_nominal_parts(by_class))
    together = coincidences(by_class)
    return alpha(together, squared_distances(together.sum(axis=1), level))


def fleiss_kappa(
    item: Annotations | ArrayLike, label: ArrayLike | None = None, *, n_classes: int | None = None
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
    """Read a data frame or a path of labels; leave codes, counts and annotations as they are."""
    return as_annotations(given) if label is None and is_source(given) else given


def _counts_by_class(
    item: Annotations | ArrayLike, label: ArrayLike | None, n_classes: int | None
) -> NDArray[Any]:
    """(classes, items) counts, whatever form the labels came in."""
    if isinstance(item, Annotations):
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


def gather_pairs(annotations: Annotations, rows: slice = slice(None)) -> Pairs:
    """Gather labels (all, or one of ``annotations.pieces()``) by pair, beside what others said of it."""
    from scipy.sparse import csr_array  # slow to import

    if annotations.anonymous:
        raise DataError("the labels name no annotators, so annotators cannot be compared")
    N, P = annotations.n_annotators, annotations.n_classes
    item, annotator, labels = (column[rows].astype(np.intp) for column in annotations.columns)
    first, last = int(item[0]), int(item[-1])  # rows are sorted by item
    local = item - first
    key = local * N + annotator
    step = np.diff(key, prepend=key[0] - 1)
    if (step < 0).any():
        keys, pair = np.unique(key, return_inverse=True)
    else:  # sorted already: no need to sort again
        keys, pair = key[step > 0], np.cumsum(step > 0) - 1
    ones = np.ones(len(item))
    counts = csr_array((ones, (pair, labels)), shape=(len(keys), P))
    by_item = csr_array((ones, (local, labels)), shape=(last - first + 1, P))
    pair_item = keys // N
    return Pairs(first + pair_item, keys % N, counts, by_item[pair_item] - counts)


def agreement_with_others(annotations: Annotations) -> Array:
    """For each annotator, the chance that another's label on the same item, drawn at random, equals theirs.

    The mean over the annotator's labels on items that others labelled too; NaN where there are none.
    """
    N = annotations.n_annotators
    agreed, totals = np.zeros(N), np.zeros(N)
    for rows in annotations.pieces():
        pairs = gather_pairs(annotations, rows)
        n_others = pairs.others.sum(axis=1)
        own = pairs.counts.sum(axis=1) * (n_others > 0)
        # Σ_c own_c · others_c / Σ_c others_c, for each pair
        matches = pairs.counts.multiply(pairs.others).sum(axis=1) / np.maximum(n_others, 1)
        totals += np.bincount(pairs.annotator, own, minlength=N)
        agreed += np.bincount(pairs.annotator, matches, minlength=N)
    chance: Array = np.divide(agreed, totals, out=np.full(totals.size, np.nan), where=totals > 0)
    return chance


# ---- Krippendorff's α and its kin ---------------------------------------------------------------------


def agreement(annotations: Annotations, size: float = 0.95) -> tuple[float, float, float]:
    """Krippendorff's α at the level of the labels' type, and an interval of this size over items."""
    level = level_of(annotations)
    if level == "interval":
        item, values, M = annotations.item, annotations.values, annotations.n_items
        group = item_groups(M, len(item))[item]
        rows = [group != g for g in range(group.max(initial=-1) + 1)]
        without = np.array([interval_alpha(item[kept], values[kept], M) for kept in rows])
    elif level == "nominal":
        by_class = annotations.counts.T
        group = item_groups(by_class.shape[1], len(by_class))
        parts = [_nominal_parts(by_class[:, group == g]) for g in range(group.max(initial=-1) + 1)]
        totals, observed = np.sum([part[0] for part in parts], axis=0), sum(part[1] for part in parts)
        without = np.array([_nominal(totals - part[0], observed - part[1]) for part in parts])
    else:
        by_class = annotations.counts.T
        group = item_groups(by_class.shape[1], len(by_class) ** 2)
        tables = [coincidences(by_class[:, group == g]) for g in range(group.max(initial=-1) + 1)]
        whole = np.sum(tables, axis=0)
        of_sets = set_distances(annotations.class_vocabulary, level) if level in SET_LEVELS else None
        without = np.empty(len(tables))
        for g, table in enumerate(tables):
            rest = whole - table
            apart = squared_distances(rest.sum(axis=1), level) if of_sets is None else of_sets
            without[g] = alpha(rest, apart)
    value = krippendorff_alpha(annotations)
    return value, *jackknife_interval(value, without, size)


def level_of(annotations: object) -> Level:
    """The level that the labels' type has: ordinal, interval for numbers, MASI for sets, else nominal."""
    kind = getattr(annotations, "label_type", "nominal")
    levels: dict[str, Level] = {"numeric": "interval", "ordinal": "ordinal", "multi": "masi"}
    return levels.get(kind, "nominal")


def _nominal_parts(by_class: NDArray[Any]) -> tuple[Array, float]:
    """(classes,): labels that can be paired; and Σ_{c≠k} o_ck = Σ_i (n_i² − Σ_c n_ic²) / (n_i − 1)."""
    totals, observed = np.zeros(len(by_class)), 0.0
    for counts, n in blocks(by_class):
        paired = n > 1
        counts, n = counts[:, paired], n[paired]
        totals += counts.sum(axis=1)
        observed += float(((n**2 - (counts**2).sum(axis=0)) / (n - 1)).sum())
    return totals, observed


def _nominal(totals: Array, observed: float) -> float:
    # Σ_{c≠k} n_c n_k = n² − Σ_c n_c²
    expected = totals.sum() ** 2 - (totals**2).sum()
    return float(1 - (totals.sum() - 1) * observed / expected) if expected > 0 else float("nan")


def alpha(together: Array, distances: Array) -> float:
    """α of classes that are found together so often and are so far apart (squared)."""
    totals = together.sum(axis=1)
    # α = 1 − (n − 1) Σ_ck o_ck δ²_ck / Σ_ck n_c n_k δ²_ck
    expected = totals @ distances @ totals
    if expected <= 0:
        return float("nan")
    return float(1 - (totals.sum() - 1) * (together * distances).sum() / expected)


def coincidences(by_class: NDArray[Any]) -> Array:
    """(classes, classes): how often two labels of one item were c and k, each item weighing as its labels."""
    P = len(by_class)
    together, alone = np.zeros((P, P)), np.zeros(P)
    for counts, n in blocks(by_class):
        weight = (n > 1) / np.maximum(n - 1, 1)
        # o_ck = Σ_i n_ic (n_ik − [c = k]) / (n_i − 1)
        together += (counts * weight) @ counts.T
        alone += counts @ weight
    return together - np.diag(alone)


def squared_distances(totals: Array, level: Level) -> Array:
    """(classes, classes): δ² of two classes that have an order."""
    # Ordinal: δ_ck = Σ_{g=c}^{k} n_g − (n_c + n_k)/2, the distance between the classes' middle ranks.
    places = totals.cumsum() - totals / 2 if level == "ordinal" else np.arange(len(totals), dtype=np.float64)
    return np.subtract.outer(places, places) ** 2


def blocks(by_class: NDArray[Any]) -> Iterator[tuple[Array, Array]]:
    """The (classes, items) table some items at a time, as floats, with each item's number of labels."""
    P, M = by_class.shape
    step = max(1, _BLOCK // P)
    for start in range(0, M, step):
        counts = by_class[:, start : start + step].astype(np.float64)
        yield counts, counts.sum(axis=0)


# ---- how sure it is -----------------------------------------------------------------------------------


def reading(value: float) -> str:
    """What α says, in words: Krippendorff's own marks are 0.8 and 0.667."""
    if math.isnan(value):
        return "cannot be computed: no two labels to compare, or one class only"
    if value >= 0.8:
        return "annotators agree well"
    if value >= 0.667:
        return "enough agreement for tentative conclusions"
    if value >= 0.2:
        return "annotators disagree often"
    return "agreement is little above chance" if value >= 0 else "annotators agree less than by chance"


def item_groups(n_items: int, n_cells: int) -> NDArray[np.intp]:
    """(items,): items dealt at random, always the same way, into at most 200 groups of one size.

    There are fewer groups, but 20 at least, where the tables of ``n_cells`` for all of them would be large.
    """
    most = int(np.clip(_MOST_CELLS // max(n_cells, 1), 20, GROUPS))
    return np.random.default_rng(0).permutation(n_items) % max(min(n_items, most), 1)


def jackknife_interval(value: float, without: Array, size: float) -> tuple[float, float]:
    """An interval of a number, from the same number with one of G groups of items left out."""
    known = without[np.isfinite(without)]
    if not math.isfinite(value) or len(known) < 3:
        return float("nan"), float("nan")
    # s² = (G − 1) / G Σ_g (x_(−g) − x̄)², and Student's quantile of G − 1 degrees of freedom
    G = len(known)
    error = math.sqrt((G - 1) / G * float(((known - known.mean()) ** 2).sum()))
    reach = float(stdtrit(G - 1, (1 + size) / 2)) * error
    return max(value - reach, -1.0), min(value + reach, 1.0)


# ---- numbers ------------------------------------------------------------------------------------------


def interval_alpha(item: NDArray[Any], value: NDArray[Any], n_items: int) -> float:
    """α of numbers whose distance is their difference, without a table of classes."""
    n = np.bincount(item, minlength=n_items)
    paired = n[item] > 1
    item, value = item[paired], np.asarray(value, np.float64)[paired]
    if not len(value):
        return float("nan")
    value = value - value.mean()
    deviations = value - (np.bincount(item, value, n_items) / np.maximum(n, 1))[item]
    # Σ_ck o_ck (v_c − v_k)² = 2 Σ_i n_i / (n_i − 1) Σ_a (x_a − x̄_i)²
    # Σ_ck n_c n_k (v_c − v_k)² = 2 n Σ_a (x_a − x̄)²
    observed = float((deviations**2 * (n / np.maximum(n - 1, 1))[item]).sum())
    expected = len(value) * float((value**2).sum())
    return 1 - (len(value) - 1) * observed / expected if expected > 0 else float("nan")


def intraclass_correlation(item: NDArray[Any], value: NDArray[Any], n_items: int) -> float:
    """ICC(1): the share of the variance of numbers that lies between items, by one-way analysis of variance.

    Shrout and Fleiss (1979), with unequal numbers of labels by the usual mean n₀.
    """
    n = np.bincount(item, minlength=n_items)
    used = n > 0
    value = np.asarray(value, np.float64) - float(np.mean(value))
    means = np.bincount(item, value, n_items) / np.maximum(n, 1)
    M, E = int(used.sum()), len(value)
    if M < 2 or E <= M:
        return float("nan")
    between = float((n * means**2).sum()) / (M - 1)
    within = float(((value - means[item]) ** 2).sum()) / (E - M)
    # n₀ = (E − Σ n_i² / E) / (M − 1);  ICC = (MSB − MSW) / (MSB + (n₀ − 1) MSW)
    n0 = (E - float((n**2).sum()) / E) / (M - 1)
    total = between + (n0 - 1) * within
    return (between - within) / total if total > 0 else float("nan")
