"""Agreement of annotators with each other: weights and sums of pairs of labels, and intervals over items.

The coefficients of agreement (:mod:`dissensus.labels.coefficients`) are functions of sums over items, which
are kept for groups of items: leaving a group out, or drawing groups at random, is a product of these sums
with weights of the groups. :func:`agreement_with_others` compares each annotator with the others. Nothing
here is dense in items × annotators.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import stdtrit

from dissensus.errors import DataError, bad_choice
from dissensus.labels.annotations import Annotations
from dissensus.numerics import Array

if TYPE_CHECKING:
    from scipy.sparse import csr_array

Codes = NDArray[np.intp]
ALPHA_THRESHOLDS = (0.2, 0.667, 0.8)
ALPHA_LEVELS = ("below chance", "slight", "low", "enough for tentative conclusions", "high")

MAX_ITEM_GROUPS, MIN_ITEM_GROUPS = 200, 20  # groups of items left out in turn by the jackknife
MAX_GROUP_CELLS = 4_000_000  # table cells over all groups
MIN_DEGREES = 3.0  # of freedom, of an interval


# ---- weights of two labels ----------------------------------------------------------------------------


def agreement_weights(classes: int | ArrayLike, kind: str = "identity") -> Array:
    """Return (classes, classes) agreement of two labels, from 1 for equal classes to 0 for the most distant.

    ``identity`` counts equal labels only; ``linear`` and ``quadratic`` go by the distance of the classes'
    values; ``ordinal`` by the number of pairs of classes from one to the other (Gwet 2014).

    Parameters
    ----------
    classes
        Number of ordered classes, or their values (classes,).
    kind
        ``"identity"``, ``"linear"``, ``"quadratic"`` or ``"ordinal"``.
    """
    values = np.arange(classes) if isinstance(classes, int) else np.asarray(classes)
    steps = np.abs(np.subtract.outer(*[np.arange(len(values)) if kind == "ordinal" else values] * 2))
    # δ_ck = [c ≠ k], |x_c − x_k|, (x_c − x_k)², or C(|c − k| + 1, 2)
    distances = {"identity": steps > 0, "linear": steps, "quadratic": steps**2}
    distances["ordinal"] = steps * (steps + 1) / 2
    if kind not in distances:
        raise bad_choice("agreement_weights", "kind", list(distances), kind)
    return weights_from(distances[kind])


def weights_from(distances: NDArray[Any]) -> Array:
    """Return weights w = 1 − δ / max δ from distances (…, classes, classes)."""
    largest = distances.max(axis=(-2, -1), keepdims=True, initial=0)
    return np.asarray(1 - distances / np.maximum(largest, np.finfo(float).tiny))


def rank_weights(totals: Array) -> Array:
    """Return Krippendorff's ordinal weights (…, classes, classes) from the labels of each class (…, classes).

    δ_ck = (Σ_{g=c}^{k} n_g − (n_c + n_k) / 2)², the squared distance between the classes' middle ranks.
    """
    ranks = totals.cumsum(axis=-1) - totals / 2
    return weights_from((ranks[..., :, None] - ranks[..., None, :]) ** 2)


# ---- sums over groups of items ------------------------------------------------------------------------


def item_groups(n_labels: NDArray[Any], n_cells: int) -> tuple[NDArray[np.uint8], int]:
    """Return the group (items,) of every item, of at most 200 random groups, and the number of groups.

    The labelled items are divided evenly, always in the same way. There are fewer groups, but at least 20, if
    their tables of ``n_cells`` would be large.
    """
    labelled = np.flatnonzero(n_labels)
    limit = int(np.clip(MAX_GROUP_CELLS // max(n_cells, 1), MIN_ITEM_GROUPS, MAX_ITEM_GROUPS))
    n_groups = max(min(len(labelled), limit), 1)
    group = np.zeros(len(n_labels), np.uint8)
    group[labelled] = np.random.default_rng(0).permutation(len(labelled)) % n_groups
    return group, n_groups


class AgreementSums(NamedTuple):
    """Sums over the items of each group, or over groups with each of B vectors of weights."""

    agreed: Array  # (B,) Σ_i v_i Σ_c a_icc, or (B, classes, classes) Σ_i v_i a_ick
    pairs: Array  # (B,) Σ_i v_i
    shares: Array  # (B, classes) Σ_i u_i n_ic / n_i
    items: Array  # (B,) Σ_i u_i

    def weighted(self, omega: Array) -> AgreementSums:
        """Return the sums over groups of items with weights (B, groups)."""
        return AgreementSums(*(np.tensordot(omega, part, axes=1) for part in self))


def pair_sums(
    counts: NDArray[Any], group: NDArray[Any], n_groups: int, *, by_label: bool, table: bool
) -> AgreementSums:
    """Sum pairs of labels over the items of each group, from (items, classes) counts.

    A share a_ick = n_ic (n_ik − [c = k]) / n_i (n_i − 1) of the pairs of labels of item i are c and k. By
    item, v_i = 1 for items with two labels or more, and u_i = 1 for those with one or more; by label, both
    are n_i for items with two labels or more. Without ``table``, only pairs of equal labels are counted.
    """
    items = np.split(np.argsort(group, kind="stable"), np.cumsum(np.bincount(group, minlength=n_groups))[:-1])
    sums = []
    for n_ic in (counts[rows].astype(np.float64) for rows in items):
        n = n_ic @ np.ones(n_ic.shape[1])
        v = (n > 1) * (n if by_label else 1.0)
        u = v if by_label else (n > 0) * 1.0
        scale = v / np.maximum(n * (n - 1), 1)
        if table:
            agreed = (n_ic.T * scale) @ n_ic - np.diag(scale @ n_ic)
        else:
            agreed = scale @ (np.einsum("ic,ic->i", n_ic, n_ic) - n)
        sums.append((agreed, v.sum(), (u / np.maximum(n, 1)) @ n_ic, u.sum()))
    return AgreementSums(*(np.array(column) for column in zip(*sums, strict=True)))


# ---- intervals ----------------------------------------------------------------------------------------


def jackknife_margin(without: Array, size: float) -> tuple[float, int]:
    """Return the margin of error of a value, from its values with one group of items left out, and G."""
    values = without[np.isfinite(without)]
    G = len(values)
    if G < 3:
        return float("nan"), G
    # s² = (G − 1) / G Σ_g d_g², with d_g = x_(−g) − x̄
    squares = (values - values.mean()) ** 2
    error = math.sqrt((G - 1) / G * float(squares.sum()))
    return float(student_quantile(squares.sum(), (squares**2).sum(), G, size)) * error, G


def student_quantile(squares: Any, quartics: Any, G: Any, size: float) -> Array:
    """Return Student's quantile for a variance Σ d² that is estimated from G deviations d, with Σ d⁴.

    The degrees of freedom are fewer than G − 1 where a few deviations decide the variance.
    """
    # s² varies as with 2 G / (k − 1) degrees of freedom, where k = G Σ d⁴ / (Σ d²)² is the kurtosis
    kurtosis = G * quartics / np.maximum(squares**2, np.finfo(float).tiny)
    degrees = np.clip(2 * G / np.maximum(kurtosis - 1, 1e-9), np.minimum(MIN_DEGREES, G - 1), G - 1)
    return np.asarray(stdtrit(degrees, (1 + size) / 2))


def jackknife_interval(
    value: float, without: Array, size: float, chance: float = math.nan
) -> tuple[float, float]:
    """Return an interval of a coefficient from its values with one of G groups of items left out.

    The upper end is at the margin m above the value; the lower end is on the scale of √(1 − value), on which
    values near 1 are less skewed. If all labels agree, the lower end is where G groups without disagreement
    have the probability 1 − size. No end is below the value without any agreement, which follows from
    ``chance``; without it, there is no least value.
    """
    odds = 0.0 if math.isnan(chance) else chance / (1 - chance) if chance < 1 else math.inf
    floor = -math.inf if math.isnan(chance) else min(0.0 - odds, value)
    margin, G = jackknife_margin(without, size)
    if not math.isfinite(value) or math.isnan(margin):
        return float("nan"), float("nan")
    if abs(value - 1) < 1e-9:
        return max(1 - (1 - (1 - size) ** (1 / G)) * (1 + odds), floor), 1.0
    # √(1 − low) = √(1 − x) + m / 2 √(1 − x)
    return max(value - margin - margin**2 / (4 * abs(1 - value)), floor), max(min(value + margin, 1.0), value)


# ---- interpretation -----------------------------------------------------------------------------------


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
