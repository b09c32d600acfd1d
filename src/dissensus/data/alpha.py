"""Krippendorff's α and its kin, from counts or from numbers: what agreement there is beyond chance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dissensus.numerics import Array

Level = Literal["nominal", "ordinal", "interval", "jaccard", "masi"]

_BLOCK = 80_000  # table cells worked on at a time: few enough to stay in the processor's cache


def level_of(annotations: object) -> Level:
    """The level that the labels' type has: ordinal, interval for numbers, MASI for sets, else nominal."""
    kind = getattr(annotations, "label_type", "nominal")
    levels: dict[str, Level] = {"numeric": "interval", "ordinal": "ordinal", "multi": "masi"}
    return levels.get(kind, "nominal")


def table_alpha(by_class: NDArray[Any], level: Level) -> float:
    """α of a (classes, items) table of counts; NaN where chance leaves nothing to explain."""
    together = coincidences(by_class)
    totals = together.sum(axis=1)
    return alpha(together, squared_distances(totals, level))


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
    """(classes, classes): δ² of two classes."""
    if level == "nominal":
        return 1 - np.eye(len(totals))
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
