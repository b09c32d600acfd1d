"""Agreement of annotators, overall and one by one.

Overall coefficients (:func:`krippendorff_alpha`, :func:`fleiss_kappa`) accept labels as
:class:`~dissensus.Annotations` (or a data frame that :func:`dissensus.read_annotations` reads), as integer
codes from zero, one per label (``krippendorff_alpha(item, label)``), or as an (items, classes) table of
counts. :func:`agreement_with_others` compares each annotator with the others. Nothing here is dense in
items × annotators.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from dissensus.errors import DataError, bad_parameter, setting
from dissensus.labels import as_annotations, is_source
from dissensus.labels.annotations import Annotations
from dissensus.labels.kinds import set_distances
from dissensus.numerics import Array

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Codes = NDArray[np.intp]
Level = Literal["nominal", "ordinal", "interval", "jaccard", "masi"]
ALPHA_THRESHOLDS = (0.2, 0.667, 0.8)
ALPHA_LEVELS = ("below chance", "slight", "low", "enough for tentative conclusions", "high")
SET_LEVELS = ("jaccard", "masi")

MAX_ITEM_GROUPS, MIN_ITEM_GROUPS = 200, 20  # groups of items left out in turn by the jackknife
MAX_GROUP_CELLS = 4_000_000  # table cells over all groups
CELLS_PER_BLOCK = 80_000  # table cells that stay in the processor's cache


# ---- overall agreement --------------------------------------------------------------------------------


def krippendorff_alpha(
    item: Annotations | ArrayLike,
    label: ArrayLike | None = None,
    *,
    n_classes: int | None = None,
    level: Level | None = None,
) -> float:
    """Return Krippendorff's α: 1 for full agreement, 0 for agreement by chance.

    ``level`` defines the distance of two classes: equal for all (nominal), the number of labels between them
    in class order (ordinal), or their difference (interval; one step each if they are not numbers). None is
    the level of the annotations' ``label_type``: interval for numeric labels, MASI for sets ("jaccard" is the
    other distance of sets). Items with one label are left out. NaN if all labels that can be paired are of
    one class, or none can be paired. Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability".

    Parameters
    ----------
    item
        Annotations, a data frame of labels, an (items, classes) table of counts, or the item code of each
        label.
    label
        Class code of each label, where ``item`` has item codes.
    n_classes
        Number of classes; by default, the largest code plus one.
    level
        Distance of two classes: see above.
    """
    if level not in (None, *get_args(Level)):
        raise bad_parameter("krippendorff_alpha", "level", f"one of {get_args(Level)}", level)
    item = read_labels(item, label)
    level = level or level_of(item)
    if level == "interval" and isinstance(item, Annotations):
        return interval_alpha(item.item, item.values, item.n_items)
    if level in SET_LEVELS and level_of(item) != "masi":
        remedy = f"read the labels with {setting('label_type', 'multi')}"
        raise DataError(f"'jaccard' and 'masi' are distances of sets; {remedy}")
    by_class = _counts_by_class(item, label, n_classes)
    if level == "nominal":  # without a table of (classes, classes)
        return _nominal(*_nominal_parts(by_class))
    together = coincidences(by_class)
    return alpha(together, squared_distances(item, together.sum(axis=1), level))


def fleiss_kappa(
    item: Annotations | ArrayLike, label: ArrayLike | None = None, *, n_classes: int | None = None
) -> float:
    """Return Fleiss' κ: agreement of pairs of labels beyond chance, with equal weights of items.

    Fleiss (1971) assumes the same number of labels on every item. For unequal numbers this is Gwet's
    generalisation (Handbook of Inter-Rater Reliability, 2014): observed agreement is the mean over items
    with two labels or more, and chance agreement comes from the mean class shares of the items. NaN if
    chance agreement is 1 or no item has two labels.

    Parameters
    ----------
    item
        Annotations, a data frame of labels, an (items, classes) table of counts, or the item code of each
        label.
    label
        Class code of each label, where ``item`` has item codes.
    n_classes
        Number of classes; by default, the largest code plus one.
    """
    item = read_labels(item, label)
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


def read_labels(source: Any, label: Any = None) -> Any:
    """Read a data frame or path of labels; return codes, counts and annotations unchanged."""
    return as_annotations(source) if label is None and is_source(source) else source


def _counts_by_class(
    item: Annotations | ArrayLike, label: ArrayLike | None, n_classes: int | None
) -> NDArray[Any]:
    """Return (classes, items) counts from any form of labels."""
    if isinstance(item, Annotations):
        return item.counts.T
    if label is None:
        table = np.asarray(item)
        if table.ndim != 2 or 0 in table.shape or not (table >= 0).all():
            raise DataError("pass item and label codes, Annotations, or an (items, classes) table of counts")
        return table.T
    items, labels = np.asarray(item), np.asarray(label)
    for name, codes in (("item", items), ("label", labels)):
        if codes.ndim != 1 or not np.issubdtype(codes.dtype, np.integer) or not codes.size or codes.min() < 0:
            raise DataError(f"{name}: codes must be integers from 0, one per label; or pass Annotations")
    if items.size != labels.size:
        raise DataError("item, label must have one code per label each")
    M, used = int(items.max()) + 1, int(labels.max()) + 1
    P = n_classes or used
    if used > P:
        raise bad_parameter("an agreement coefficient", "n_classes", "above every label code", n_classes)
    cell = np.multiply(labels, M, dtype=np.intp)
    np.add(cell, items, out=cell, casting="unsafe")
    return np.bincount(cell, minlength=P * M).reshape(P, M)


# ---- annotators ---------------------------------------------------------------------------------------


class PairLabels(NamedTuple):
    """Labels grouped by (item, annotator) pair, one row per pair."""

    item: Codes  # (pairs,)
    annotator: Codes  # (pairs,)
    counts: csr_array[Any]  # (pairs, classes) labels of the pair
    others: csr_array[Any]  # (pairs, classes) labels of the item by other annotators


def gather_pairs(annotations: Annotations, rows: slice = slice(None)) -> PairLabels:
    """Group labels (all, or one of ``annotations.chunks()``) by pair, with the others' labels."""
    from scipy.sparse import csr_array  # slow to import

    if annotations.anonymous:
        raise DataError("the labels do not name annotators, so annotators cannot be compared")
    N, P = annotations.n_annotators, annotations.n_classes
    item, annotator, labels = (column[rows].astype(np.intp) for column in annotations.columns)
    first, last = int(item[0]), int(item[-1])
    local = item - first
    key = local * N + annotator
    is_first = np.diff(key, prepend=-1) > 0  # rows are sorted by item and annotator
    keys, pair = key[is_first], np.cumsum(is_first) - 1
    ones = np.ones(len(item))
    counts = csr_array((ones, (pair, labels)), shape=(len(keys), P))
    by_item = csr_array((ones, (local, labels)), shape=(last - first + 1, P))
    pair_item = keys // N
    return PairLabels(first + pair_item, keys % N, counts, by_item[pair_item] - counts)


def agreement_with_others(annotations: Annotations) -> Array:
    """Return, by annotator, the probability that a random other label of the same item equals theirs.

    It is the mean over the annotator's labels of items that others labelled too; NaN if there are none.
    """
    N = annotations.n_annotators
    agreed, totals = np.zeros(N), np.zeros(N)
    for rows in annotations.chunks():
        pairs = gather_pairs(annotations, rows)
        n_others = pairs.others.sum(axis=1)
        # Σ_c counts_c · others_c / Σ_c others_c, for each pair
        matches = pairs.counts.multiply(pairs.others).sum(axis=1) / np.maximum(n_others, 1)
        totals += np.bincount(pairs.annotator, pairs.counts.sum(axis=1) * (n_others > 0), minlength=N)
        agreed += np.bincount(pairs.annotator, matches, minlength=N)
    shares: Array = np.divide(agreed, totals, out=np.full(totals.size, np.nan), where=totals > 0)
    return shares


# ---- Krippendorff's α ---------------------------------------------------------------------------------


def agreement(annotations: Annotations, size: float = 0.95) -> tuple[float, float, float]:
    """Return Krippendorff's α at the level of the labels' type, with a jackknife interval over items."""
    level, M, P = level_of(annotations), annotations.n_items, annotations.n_classes
    if level == "interval":
        item, values = annotations.item, annotations.values
        rows = [~group[item] for group in item_groups(M, len(item))]
        without = [interval_alpha(item[mask], values[mask], M) for mask in rows]
    elif level == "nominal":
        parts = [_nominal_parts(annotations.counts.T[:, group]) for group in item_groups(M, P)]
        totals, observed = np.sum([part[0] for part in parts], axis=0), sum(part[1] for part in parts)
        without = [_nominal(totals - part[0], observed - part[1]) for part in parts]
    else:
        tables = [coincidences(annotations.counts.T[:, group]) for group in item_groups(M, P**2)]
        rests = [np.sum(tables, axis=0) - table for table in tables]
        without = [alpha(rest, squared_distances(annotations, rest.sum(axis=1), level)) for rest in rests]
    value = krippendorff_alpha(annotations)
    return value, *jackknife_interval(value, np.array(without), size)


def level_of(annotations: object) -> Level:
    """Return the level of the labels' type: ordinal, interval for numbers, MASI for sets, else nominal."""
    levels: dict[str, Level] = {"numeric": "interval", "ordinal": "ordinal", "multi": "masi"}
    return levels.get(getattr(annotations, "label_type", ""), "nominal")


def _nominal_parts(by_class: NDArray[Any]) -> tuple[Array, float]:
    """Return (classes,) labels that can be paired, and Σ_{c≠k} o_ck = Σ_i (n_i² − Σ_c n_ic²) / (n_i − 1)."""
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
    """Return α from a coincidence matrix and squared distances of the classes."""
    totals = together.sum(axis=1)
    # α = 1 − (n − 1) Σ_ck o_ck δ²_ck / Σ_ck n_c n_k δ²_ck
    expected = totals @ distances @ totals
    if expected <= 0:
        return float("nan")
    return float(1 - (totals.sum() - 1) * (together * distances).sum() / expected)


def coincidences(by_class: NDArray[Any]) -> Array:
    """Return (classes, classes) coincidences: pairs of labels of one item, weighted by 1 / (n − 1)."""
    P = len(by_class)
    products, diagonal = np.zeros((P, P)), np.zeros(P)
    for counts, n in blocks(by_class):
        weight = (n > 1) / np.maximum(n - 1, 1)
        # o_ck = Σ_i n_ic (n_ik − [c = k]) / (n_i − 1)
        products += (counts * weight) @ counts.T
        diagonal += counts @ weight
    return products - np.diag(diagonal)


def squared_distances(labels: Any, totals: Array, level: Level) -> Array:
    """Return (classes, classes) δ² of ordered classes, or the distances of sets."""
    if level in SET_LEVELS:
        return set_distances(labels.class_vocabulary, level)
    # Ordinal: δ_ck = Σ_{g=c}^{k} n_g − (n_c + n_k)/2, the distance between the classes' middle ranks.
    ranks = totals.cumsum() - totals / 2 if level == "ordinal" else np.arange(len(totals), dtype=np.float64)
    return np.subtract.outer(ranks, ranks) ** 2


def blocks(by_class: NDArray[Any]) -> Iterator[tuple[Array, Array]]:
    """Yield blocks of the (classes, items) table as floats, with the number of labels of each item."""
    P, M = by_class.shape
    step = max(1, CELLS_PER_BLOCK // P)
    for start in range(0, M, step):
        counts = by_class[:, start : start + step].astype(np.float64)
        yield counts, counts.sum(axis=0)


# ---- weights ------------------------------------------------------------------------------------------

Weighting = Literal["identity", "linear", "quadratic", "ordinal"]


def agreement_weights(classes: int | ArrayLike, kind: Weighting = "identity") -> Array:
    """Return (classes, classes) agreement of two labels, from 1 for equal classes to 0 for the most distant.

    ``identity`` counts equal labels only; ``linear`` and ``quadratic`` go by the distance of the classes'
    values; ``ordinal`` by the number of pairs of classes from one to the other (Gwet 2014, section 3.5).

    Parameters
    ----------
    classes
        Number of ordered classes, or their values (classes,).
    kind
        ``"identity"``, ``"linear"``, ``"quadratic"`` or ``"ordinal"``.
    """
    if kind not in get_args(Weighting):
        raise bad_parameter("agreement_weights", "kind", f"one of {get_args(Weighting)}", kind)
    values = np.arange(classes) if isinstance(classes, int) else np.asarray(classes, np.float64)
    x = np.arange(len(values)) if kind == "ordinal" else values
    steps = np.abs(np.subtract.outer(x, x))
    # w_ck = 1 − δ_ck / max δ, where δ = [c ≠ k], |x_c − x_k|, (x_c − x_k)² or C(|c − k| + 1, 2)
    distances = {"identity": steps > 0, "linear": steps, "quadratic": steps**2, "ordinal": steps * (steps + 1)}
    return 1 - distances[kind] / max(distances[kind].max(initial=0), np.finfo(float).tiny)


# ---- interpretation and intervals ---------------------------------------------------------------------


def reading(value: float, low: float = math.nan, high: float = math.nan) -> str:
    """Return an interpretation of α and its interval in words; Krippendorff's thresholds are 0.8 and 0.667.

    If the ends of the interval are read differently, both readings are given.
    """
    if math.isnan(value):
        return "cannot be computed: no two labels to compare, or one class only"
    if math.isnan(low) or math.isnan(high):
        low = high = value
    levels = [(end > 0) + sum(end >= threshold for threshold in ALPHA_THRESHOLDS) for end in (low, high)]
    if levels[0] == 0:
        return "agreement is below chance" if high < 0 else "agreement is not clearly above chance"
    words = [ALPHA_LEVELS[level] for level in levels]
    if words[0] == words[1]:
        return f"agreement beyond chance is {words[0]}"
    return f"agreement beyond chance is between {words[0]} and {words[1]}"


def item_groups(n_items: int, n_cells: int) -> list[NDArray[np.bool_]]:
    """Return masks (items,) of at most 200 random groups of items of equal size, always the same.

    There are fewer groups, but at least 20, if their tables of ``n_cells`` would be large.
    """
    n_groups = int(np.clip(MAX_GROUP_CELLS // max(n_cells, 1), MIN_ITEM_GROUPS, MAX_ITEM_GROUPS))
    group = np.random.default_rng(0).permutation(n_items) % max(min(n_items, n_groups), 1)
    return [group == g for g in range(group.max(initial=-1) + 1)]


def jackknife_interval(value: float, without: Array, size: float) -> tuple[float, float]:
    """Return an interval of ``value`` from its values with one of G groups of items left out."""
    values = without[np.isfinite(without)]
    if not math.isfinite(value) or len(values) < 3:
        return float("nan"), float("nan")
    # s² = (G − 1) / G Σ_g (x_(−g) − x̄)², and Student's quantile of G − 1 degrees of freedom
    G = len(values)
    error = math.sqrt((G - 1) / G * float(((values - values.mean()) ** 2).sum()))
    margin = float(stdtrit(G - 1, (1 + size) / 2)) * error
    return max(value - margin, -1.0), min(value + margin, 1.0)


# ---- numbers ------------------------------------------------------------------------------------------


def interval_alpha(item: NDArray[Any], value: NDArray[Any], n_items: int) -> float:
    """Return α of numbers at the interval level, without a table of classes."""
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
    """Return ICC(1), the share of variance between items, by one-way analysis of variance.

    Shrout and Fleiss (1979); n₀ replaces the number of labels per item if they differ.
    """
    n = np.bincount(item, minlength=n_items)
    value = np.asarray(value, np.float64) - float(np.mean(value))
    means = np.bincount(item, value, n_items) / np.maximum(n, 1)
    M, E = int((n > 0).sum()), len(value)
    if M < 2 or E <= M:
        return float("nan")
    between = float((n * means**2).sum()) / (M - 1)
    within = float(((value - means[item]) ** 2).sum()) / (E - M)
    # n₀ = (E − Σ n_i² / E) / (M − 1);  ICC = (MSB − MSW) / (MSB + (n₀ − 1) MSW)
    n0 = (E - float((n**2).sum()) / E) / (M - 1)
    total = between + (n0 - 1) * within
    return (between - within) / total if total > 0 else float("nan")
