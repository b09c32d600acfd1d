"""Krippendorff's α and its kin, from counts or from numbers: what agreement there is beyond chance."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from dissensus.numerics import Array

Level = Literal["nominal", "ordinal", "interval", "jaccard", "masi"]

GROUPS = 200  # of items, of which one is left out at a time
_MOST_CELLS = 4_000_000  # of the tables of all groups
_BLOCK = 80_000  # table cells worked on at a time: few enough to stay in the processor's cache


def agreement(annotations: Any, size: float = 0.95) -> tuple[float, float, float]:
    """Krippendorff's α at the level of the labels' type, and an interval of this size over items."""
    value, without = _alphas(annotations)
    return value, *jackknife_interval(value, without, size)


def _alphas(annotations: Any) -> tuple[float, Array]:
    """α, and the same without each of some groups of items."""
    level, M = level_of(annotations), annotations.n_items
    if level == "interval":
        value = interval_alpha(annotations.item, annotations.values, M)
        return value, interval_alphas(annotations.item, annotations.values, M)
    by_class = annotations.counts.T
    if level in ("jaccard", "masi"):
        from dissensus.labels.sets import set_distances

        fixed = set_distances(annotations.class_vocabulary, level)
        value = alpha(coincidences(by_class), fixed)
        return value, grouped_alphas(by_class, lambda _: fixed)
    value = table_alpha(by_class, level)
    if level == "nominal":
        return value, nominal_alphas(by_class)
    return value, grouped_alphas(by_class, lambda totals: squared_distances(totals, level))


def level_of(annotations: object) -> Level:
    """The level that the labels' type has: ordinal, interval for numbers, MASI for sets, else nominal."""
    kind = getattr(annotations, "label_type", "nominal")
    levels: dict[str, Level] = {"numeric": "interval", "ordinal": "ordinal", "multi": "masi"}
    return levels.get(kind, "nominal")


def table_alpha(by_class: NDArray[Any], level: Level) -> float:
    """α of a (classes, items) table of counts; NaN where chance leaves nothing to explain."""
    if level == "nominal":
        return _nominal_alpha(by_class)
    together = coincidences(by_class)
    totals = together.sum(axis=1)
    return alpha(together, squared_distances(totals, level))


def _nominal_alpha(by_class: NDArray[Any]) -> float:
    """The same where classes are equal or not: without a table of (classes, classes)."""
    return _nominal(*_nominal_parts(by_class))


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


def item_groups(n_items: int, most: int) -> NDArray[np.intp]:
    """(items,): items dealt at random, always the same way, into at most so many groups of one size."""
    return np.random.default_rng(0).permutation(n_items) % max(min(n_items, most), 1)


def nominal_alphas(by_class: NDArray[Any]) -> Array:
    """(groups,): α without one group of items, for every group; classes are equal or not."""
    group = item_groups(by_class.shape[1], int(np.clip(_MOST_CELLS // len(by_class), 20, GROUPS)))
    parts = [_nominal_parts(by_class[:, group == g]) for g in range(group.max(initial=-1) + 1)]
    totals, observed = np.sum([part[0] for part in parts], axis=0), sum(part[1] for part in parts)
    return np.array([_nominal(totals - part[0], observed - part[1]) for part in parts])


def grouped_alphas(by_class: NDArray[Any], distances: Callable[[Array], Array]) -> Array:
    """(groups,): α of a (classes, items) table without one group of items, for every group."""
    P, M = by_class.shape
    group = item_groups(M, int(np.clip(_MOST_CELLS // P**2, 20, GROUPS)))
    parts = [coincidences(by_class[:, group == g]) for g in range(group.max(initial=-1) + 1)]
    whole = np.sum(parts, axis=0)
    return np.array([alpha(whole - part, distances((whole - part).sum(axis=1))) for part in parts])


def interval_alphas(item: NDArray[Any], value: NDArray[Any], n_items: int) -> Array:
    """(groups,): α of numbers without one group of items, for every group."""
    group = item_groups(n_items, int(np.clip(_MOST_CELLS // max(len(item), 1), 20, GROUPS)))[item]
    values = np.asarray(value, np.float64)
    return np.array(
        [
            interval_alpha(item[group != g], values[group != g], n_items)
            for g in range(group.max(initial=-1) + 1)
        ]
    )


def jackknife_interval(value: float, without: Array, size: float = 0.95) -> tuple[float, float]:
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
