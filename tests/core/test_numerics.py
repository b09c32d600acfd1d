"""Rows of probabilities and their logarithms, at any scale."""

import math

import numpy as np
import pytest

from dissensus.models.pgm.kernels import MIN_FACTOR
from dissensus.numerics import normalised, one_hot_rows, safe_log, softmax_columns, softmax_rows, sum_of_logs


@pytest.mark.parametrize("n", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("extreme", [math.log(MIN_FACTOR), -math.log(MIN_FACTOR)])
def test_logarithms_are_summed_in_any_number(n: int, extreme: float) -> None:
    exponents = extreme * np.random.default_rng(n).uniform(0.9, 1.0, n)
    np.testing.assert_allclose(sum_of_logs(np.exp(exponents)), exponents.sum(), rtol=1e-13)
    small = exponents * (70 / 150)  # what single precision holds
    np.testing.assert_allclose(sum_of_logs(np.exp(small).astype(np.float32)), small.sum(), rtol=1e-6)


def test_rows_are_normalised_and_rows_without_mass_become_uniform() -> None:
    rows = normalised(np.array([[1.0, 3.0], [0.0, 0.0]]))
    np.testing.assert_allclose(rows, [[0.25, 0.75], [0.5, 0.5]], rtol=1e-15)


def test_the_softmax_survives_any_size() -> None:
    logits = np.array([[1e5, 1e5 + math.log(3)], [-1e5, -1e5], [0.0, -2000.0]])
    by_column, sums_of_columns = softmax_columns(logits.T)
    for chances, sums in (softmax_rows(logits), (by_column.T, sums_of_columns)):
        np.testing.assert_allclose(chances, [[0.25, 0.75], [0.5, 0.5], [1.0, 0.0]], rtol=1e-10)
        np.testing.assert_allclose(sums, [1e5 + math.log(4), -1e5 + math.log(2), 0.0], rtol=1e-15)


def test_the_logarithm_of_nothing_is_finite() -> None:
    np.testing.assert_allclose(safe_log(np.array([0.0, 1.0])), [math.log(2.2250738585072014e-308), 0.0])


def test_one_hot_takes_the_first_of_several() -> None:
    rows = one_hot_rows(np.array([[0.4, 0.4, 0.2], [0.1, 0.2, 0.7]]))
    np.testing.assert_array_equal(rows, [[1, 0, 0], [0, 0, 1]])
