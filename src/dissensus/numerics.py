"""Small steps on arrays that every room uses: rows of probabilities, logarithms of them, sums over them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.errors import bad_parameter

Array = NDArray[np.float64]
Concentration = float | Array  # a Dirichlet parameter: one number for all components, or one for each
# Factors that are multiplied before a logarithm, which costs more, is taken of them. Their products stay
# within double precision where each is within exp(±150), as messages of pgm/kernels.py are.
AT_ONCE = 4


def concentration(owner: object, name: str, given: Any, n: int) -> Concentration:
    """A Dirichlet parameter of n components as it is computed with; a list must have one number for each."""
    if not isinstance(given, list | tuple):
        return float(given)
    if len(given) != n:
        raise bad_parameter(owner, name, f"a number or a list of {n}", given)
    return np.asarray(given, dtype=np.float64)


@cache
def _ones(n: int, dtype: Any) -> NDArray[Any]:
    made = np.ones(n, dtype)
    made.setflags(write=False)
    return made


def ones(n: int, dtype: Any = np.float64) -> NDArray[Any]:
    """So many ones, read-only: sparse matrices of about the same size share the same.

    SciPy copies what is less than half of a larger array, so there is one array for every power of two.
    """
    return _ones(1 << max(n - 1, 0).bit_length(), np.dtype(dtype))[:n]


def normalised(mass: Array) -> Array:
    """Rows that sum to one; a row without mass becomes uniform."""
    sums = mass.sum(axis=-1, keepdims=True)
    if (sums > 0).all():
        return np.asarray(mass / sums)
    uniform = np.full_like(mass, 1.0 / mass.shape[-1])
    return np.asarray(np.divide(mass, sums, out=uniform, where=sums > 0))


def row_shares(counts: NDArray[Any], empty: float = 0.0) -> Array:
    """Counts as shares of their row; a row without counts is ``empty`` throughout."""
    sums = counts.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(counts, sums, out=np.full(counts.shape, empty), where=sums > 0))


def safe_log(chances: Array) -> Array:
    """log, with 0 taken as the smallest positive float so that 0 · log 0 stays 0."""
    return np.asarray(np.log(np.maximum(chances, np.finfo(np.float64).tiny)))


def softmax_rows(logits: Array) -> tuple[Array, Array]:
    """Each row's exp, normalised, and the logarithm of what it was divided by."""
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
    """The same of columns, which is faster where rows are few and long."""
    top = logits.max(axis=0)
    chances = logits - top
    np.exp(chances, out=chances)
    sums = chances.sum(axis=0)
    chances /= sums
    np.log(sums, out=sums)
    sums += top
    return chances, sums


def sum_of_logs(values: Array) -> float:
    """Σ log, as the logarithms of products of ``AT_ONCE``."""
    whole = len(values) - len(values) % AT_ONCE
    products = values[:whole].reshape(AT_ONCE, -1).astype(np.float64, copy=False).prod(axis=0)
    return float(np.log(products).sum() + np.log(values[whole:], dtype=np.float64).sum())


def column_sums(rows: Array) -> Array:
    """Σ over rows; a product with ones, which short rows make much faster than NumPy's own sum."""
    return np.asarray(np.ones(len(rows), rows.dtype) @ rows)


def row_sums(rows: Array) -> Array:
    """Σ over columns, by a product with ones for the same reason."""
    return np.asarray(rows @ np.ones(rows.shape[1], rows.dtype))


def one_hot_rows(chances: Array) -> Array:
    """1 at each row's largest entry (the first of several), 0 elsewhere."""
    hot = np.zeros_like(chances)
    hot[np.arange(len(chances)), chances.argmax(axis=1)] = 1.0
    return hot


def winners(counts: NDArray[Any]) -> Array:
    """Each row's most frequent classes, with equal shares of one."""
    top = counts == counts.max(axis=1, keepdims=True)
    return np.asarray(top / top.sum(axis=1, keepdims=True))


CODES_COUNTED_AT_A_TIME = 1 << 24


def tally(codes: NDArray[Any], n: int) -> NDArray[np.int64]:
    """(n,): how often each code occurs, a part at a time: bincount takes a wider copy of what it counts."""
    counts = np.zeros(n, np.int64)
    for start in range(0, len(codes), CODES_COUNTED_AT_A_TIME):
        counts += np.bincount(codes[start : start + CODES_COUNTED_AT_A_TIME], minlength=n)
    return counts


def pointers(sorted_codes: NDArray[Any], n: int) -> NDArray[np.int64]:
    """(n + 1,): the rows of code c are ``pointers[c]:pointers[c + 1]``."""
    return np.concatenate([[0], np.cumsum(tally(sorted_codes, n))])


def batches(n: int, size: int) -> Iterator[slice]:
    """Slices of ``size`` rows each, one after the other, until all ``n`` are covered."""
    return (slice(start, start + size) for start in range(0, n, size))
