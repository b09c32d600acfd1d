"""Array functions that every room uses: rows of probabilities, their logarithms and sums."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import bad_parameter

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
Concentration = float | Array  # a Dirichlet parameter: one number for all components, or one for each
# Factors multiplied before a logarithm, which costs more, is taken of their product. Products stay within
# double precision if each factor is within exp(±150), as messages of pgm/kernels.py are.
FACTORS_PER_LOG = 4


def concentration(owner: object, name: str, value: Any, n: int) -> Concentration:
    """Return a Dirichlet parameter of n components as a float or an array; a list must have n numbers."""
    if not isinstance(value, list | tuple):
        return float(value)
    if len(value) != n:
        raise bad_parameter(owner, name, f"a number or a list of {n}", value)
    return np.asarray(value, dtype=np.float64)


@cache
def _ones(n: int, dtype: Any) -> NDArray[Any]:
    array = np.ones(n, dtype)
    array.setflags(write=False)
    return array


def ones(n: int, dtype: Any = np.float64) -> NDArray[Any]:
    """Return n ones, read-only: sparse matrices of similar sizes share one array.

    SciPy copies a view of less than half of an array, so there is one array for every power of two.
    """
    return _ones(1 << max(n - 1, 0).bit_length(), np.dtype(dtype))[:n]


def normalised(mass: Array) -> Array:
    """Normalise rows to sum to one; a row without mass becomes uniform."""
    sums = mass.sum(axis=-1, keepdims=True)
    if (sums > 0).all():
        return np.asarray(mass / sums)
    uniform = np.full_like(mass, 1.0 / mass.shape[-1])
    return np.asarray(np.divide(mass, sums, out=uniform, where=sums > 0))


def row_shares(counts: NDArray[Any], empty: float = 0.0) -> Array:
    """Divide counts by the sum of their row; a row without counts is filled with ``empty``."""
    sums = counts.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(counts, sums, out=np.full(counts.shape, empty), where=sums > 0))


def safe_log(chances: Array) -> Array:
    """Return log p, with 0 replaced by the smallest positive float so that 0 · log 0 stays 0."""
    return np.asarray(np.log(np.maximum(chances, np.finfo(np.float64).tiny)))


def softmax_rows(logits: Array) -> tuple[Array, Array]:
    """Return the softmax of each row, and the logarithm of its normalising sum."""
    # NumPy reduces short rows slowly: long ones of a copy, and a product with ones, are faster.
    top = np.ascontiguousarray(logits.T).max(axis=0)
    chances = logits - top[:, None]
    np.exp(chances, out=chances)
    sums = row_sums(chances)
    chances /= sums[:, None]
    np.log(sums, out=sums)
    sums += top
    return chances, sums


def softmax_columns(logits: Array) -> tuple[Array, Array]:
    """Return the softmax of each column and the logarithm of its sum: faster for few, long rows."""
    top = logits.max(axis=0)
    chances = logits - top
    np.exp(chances, out=chances)
    sums = chances.sum(axis=0)
    chances /= sums
    np.log(sums, out=sums)
    sums += top
    return chances, sums


def sum_of_logs(values: Array) -> float:
    """Return Σ log v, as the logarithms of products of ``FACTORS_PER_LOG`` values."""
    whole = len(values) - len(values) % FACTORS_PER_LOG
    products = values[:whole].reshape(FACTORS_PER_LOG, -1).astype(np.float64, copy=False).prod(axis=0)
    return float(np.log(products).sum() + np.log(values[whole:], dtype=np.float64).sum())


def column_sums(rows: Array) -> Array:
    """Sum over rows by a product with ones, which is much faster than NumPy's sum for short rows."""
    return np.asarray(np.ones(len(rows), rows.dtype) @ rows)


def row_sums(rows: Array) -> Array:
    """Sum over columns by a product with ones, which is faster than NumPy's sum for short rows."""
    return np.asarray(rows @ np.ones(rows.shape[1], rows.dtype))


def one_hot_rows(chances: Array) -> Array:
    """Return 1 at each row's largest entry (the first of several) and 0 elsewhere."""
    hot = np.zeros_like(chances)
    hot[np.arange(len(chances)), chances.argmax(axis=1)] = 1.0
    return hot


def winners(counts: NDArray[Any]) -> Array:
    """Return equal shares, summing to one, for the most frequent classes of each row."""
    top = counts == counts.max(axis=1, keepdims=True)
    return np.asarray(top / top.sum(axis=1, keepdims=True))


CODES_PER_COUNT = 1 << 24


def tally(codes: NDArray[Any], n: int) -> NDArray[np.int64]:
    """Return (n,): the count of each code; in parts, since bincount makes a wider copy of its input."""
    counts = np.zeros(n, np.int64)
    for start in range(0, len(codes), CODES_PER_COUNT):
        counts += np.bincount(codes[start : start + CODES_PER_COUNT], minlength=n)
    return counts


def pointers(sorted_codes: NDArray[Any], n: int) -> NDArray[np.int64]:
    """Return (n + 1,): the rows of code c are ``pointers[c]:pointers[c + 1]``."""
    return np.concatenate([[0], np.cumsum(tally(sorted_codes, n))])


def batches(n: int, size: int) -> Iterator[slice]:
    """Yield consecutive slices of ``size`` rows that cover ``n`` rows."""
    return (slice(start, start + size) for start in range(0, n, size))
