"""Metrics against hand-work, enumeration, SciPy, scikit-learn and LeWiDi's published scores."""

import csv
import itertools
from collections import Counter
from math import comb, inf, isnan, log, prod

import numpy as np
import pytest
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy as scipy_entropy
from scipy.stats import multinomial, pearsonr, wasserstein_distance
from sklearn.metrics import accuracy_score, brier_score_loss, f1_score
from sklearn.metrics import log_loss as sklearn_log_loss

from dissensus import metrics as m
from dissensus.errors import DataError, ParameterError

RNG = np.random.default_rng(7)
GOLD = RNG.dirichlet(np.full(4, 0.7), size=60)
PREDICTED = RNG.dirichlet(np.ones(4), size=60)


def test_kl_by_hand():
    gold, predicted = [[0.5, 0.5], [1.0, 0.0]], [[0.25, 0.75], [0.5, 0.5]]
    by_hand = (0.5 * log(2) + 0.5 * log(2 / 3) + log(2)) / 2
    assert m.kl(gold, predicted, smoothing=0) == pytest.approx(by_hand, rel=1e-12)
    assert m.kl(predicted, gold, smoothing=0) == inf
    reverse = m.kl_rows(predicted[:1], gold[:1], smoothing=0)
    np.testing.assert_allclose(reverse, [0.25 * log(0.5) + 0.75 * log(1.5)], rtol=1e-12)


def test_smoothing_is_added_to_both_sides_and_not_divided_out():
    s = 0.01
    by_hand = (1 + s) * log((1 + s) / (0.5 + s)) + s * log(s / (0.5 + s))
    assert m.kl([[1.0, 0.0]], [[0.5, 0.5]], smoothing=s) == pytest.approx(by_hand, rel=1e-12)


SMOOTHED = scipy_entropy(GOLD + 0.01, PREDICTED + 0.01, axis=1)  # SciPy divides rows by their sums
RELATIVE = scipy_entropy(GOLD, PREDICTED, axis=1)


@pytest.mark.parametrize(
    ("rows", "settings", "expected"),
    [
        (m.kl_rows, {"smoothing": 0.01, "renormalise": True}, SMOOTHED),
        (m.kl_rows, {"smoothing": 0.01}, SMOOTHED * 1.04),
        (m.cross_entropy_rows, {"smoothing": 0}, scipy_entropy(GOLD, axis=1) + RELATIVE),
        (m.jensen_shannon_rows, {}, jensenshannon(GOLD, PREDICTED, axis=1) ** 2),
        (m.jensen_shannon_rows, {"base": 2}, jensenshannon(GOLD, PREDICTED, 2, axis=1) ** 2),
    ],
)
def test_divergences_are_scipys(rows, settings, expected):
    np.testing.assert_allclose(rows(GOLD, PREDICTED, **settings), expected, rtol=1e-12)


def test_log_loss_and_brier_score_are_scikit_learns():
    codes = RNG.integers(4, size=60)
    gold = np.eye(4)[codes]
    expected = sklearn_log_loss(codes, PREDICTED)
    assert m.log_loss(gold, PREDICTED, floor=0) == pytest.approx(expected, rel=1e-12)
    two = PREDICTED[:, :2] / PREDICTED[:, :2].sum(axis=1, keepdims=True)
    expected = 2 * brier_score_loss(codes % 2, two[:, 1])
    assert m.brier(np.eye(2)[codes % 2], two) == pytest.approx(expected, rel=1e-12)
    assert m.log_loss([[1.0, 0.0]], [[0.0, 1.0]]) == pytest.approx(-log(1e-4), rel=1e-12)


def test_calibration_error_by_hand():
    predicted = [[0.6, 0.4], [0.42, 0.58], [0.9, 0.1], [0.05, 0.95]]
    gold = [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    # bins (0.5, 0.6], (0.8, 0.9] and (0.9, 1]: |1 − 1.18|, |1 − 0.9| and |0 − 0.95|
    assert m.calibration_error(gold, predicted) == pytest.approx((0.18 + 0.1 + 0.95) / 4, rel=1e-12)
    assert m.calibration_error(gold, predicted, n_bins=1) == pytest.approx((3.03 - 2) / 4, rel=1e-12)


def test_jensen_shannon_of_opposite_and_equal_rows():
    assert m.jensen_shannon([[1.0, 0.0]], [[0.0, 1.0]]) == pytest.approx(log(2), rel=1e-12)
    assert m.jensen_shannon(GOLD, GOLD) == 0


@pytest.mark.parametrize("positions", [None, [0.0, 1.0, 4.0, 4.5]])
def test_wasserstein_is_scipys(positions):
    places = range(4) if positions is None else positions
    expected = [wasserstein_distance(places, places, g, p) for g, p in zip(GOLD, PREDICTED, strict=True)]
    np.testing.assert_allclose(m.wasserstein_rows(GOLD, PREDICTED, positions=positions), expected, rtol=1e-9)


def test_entropies_by_hand():
    gold = [[0.5, 0.5], [1.0, 0.0]]
    np.testing.assert_allclose(m.entropy_rows(gold), [log(2), 0], rtol=1e-12)
    assert m.entropy(gold) == pytest.approx(log(2) / 2, rel=1e-12)


def test_entropy_correlation_is_scipys():
    expected = pearsonr(scipy_entropy(GOLD, axis=1), scipy_entropy(PREDICTED, axis=1)).statistic
    assert m.entropy_correlation(GOLD, PREDICTED) == pytest.approx(expected, rel=1e-10)
    assert isnan(m.entropy_correlation(GOLD, np.full((60, 4), 0.25)))


TIED_GOLD = [[2, 2, 0], [0, 1, 1], [3, 1, 0], [1, 1, 1]]  # counts


@pytest.mark.parametrize(
    ("ties", "expected"),
    [
        ("share", [1 / 2, 1 / 2, 1, 1 / 3]),  # one of 2, of 2, of 1, of 3 tied classes
        ("any", [1, 1, 1, 1]),
        ("first", [1, 0, 1, 0]),
    ],
)
def test_accuracy_of_tied_gold_classes(ties, expected):
    predicted = [0, 2, 0, 2]
    np.testing.assert_allclose(m.accuracy_rows(TIED_GOLD, predicted, ties=ties), expected, rtol=1e-12)
    as_distributions = np.asarray(TIED_GOLD) / np.sum(TIED_GOLD, axis=1, keepdims=True)
    assert m.accuracy(as_distributions, np.eye(3)[predicted], ties=ties) == pytest.approx(np.mean(expected))


def test_a_tied_prediction_is_an_even_draw():
    uniform = np.full((4, 3), 1 / 3)
    np.testing.assert_allclose(m.accuracy_rows([0, 1, 2, 0], uniform), [1 / 3] * 4, rtol=1e-12)
    np.testing.assert_allclose(m.accuracy_rows([0, 1, 2, 0], uniform, ties="first"), [1, 0, 0, 1], rtol=1e-12)


def test_onehot_accuracy_compares_element_by_element():
    gold, predicted = RNG.integers(5, size=200), RNG.integers(5, size=200)
    elements = np.eye(5)[gold] == np.eye(5)[predicted]
    assert m.onehot_accuracy(gold, predicted, n_classes=5) == pytest.approx(elements.mean(), rel=1e-12)
    wrong = m.onehot_accuracy_rows([0], [1], n_classes=12)
    np.testing.assert_allclose(wrong, [10 / 12], rtol=1e-12)


def test_f1_is_scikit_learns():
    gold, predicted = GOLD.argmax(axis=1), RNG.integers(4, size=60)
    for ours, average in ((m.macro_f1, "macro"), (m.weighted_f1, "weighted")):
        expected = f1_score(gold, predicted, average=average)
        assert ours(gold, predicted) == pytest.approx(expected, rel=1e-12)
        assert ours(GOLD, np.eye(4)[predicted], ties="first") == pytest.approx(expected, rel=1e-12)
    assert m.accuracy(gold, predicted) == pytest.approx(accuracy_score(gold, predicted), rel=1e-12)


def test_f1_leaves_out_classes_that_never_occur_and_shares_ties():
    assert m.macro_f1([0, 0, 2], [0, 2, 2]) == pytest.approx(f1_score([0, 0, 2], [0, 2, 2], average="macro"))
    # Item 1 is half class 0, half class 1. F1: class 0 2·1.5/(1.5 + 2), class 1 0.
    assert m.macro_f1([[1, 0], [1, 1]], [0, 0]) == pytest.approx((3 / 3.5) / 2, rel=1e-12)


def test_log_probability_by_hand():
    probabilities = [[0.2, 0.8], [0.2, 0.8], [1.0, 0.0]]
    assert m.log_probability(probabilities, [0, 1, 0]) == pytest.approx((log(0.2) + log(0.8)) / 3, rel=1e-12)
    assert m.log_probability_rows(probabilities, [0, 1, 1])[2] == -inf


def test_ranked_probability_score_by_hand():
    gold, predicted = np.array([[0.2, 0.3, 0.5]]), np.array([[0.5, 0.5, 0.0]])
    assert m.ranked_probability_score(gold, predicted) == pytest.approx(0.3**2 + 0.5**2)
    assert m.ranked_probability_score([[0, 1, 0]], predicted) == pytest.approx(0.5**2 + 0.0)
    # the true distribution has the least expected score
    truth = np.array([0.2, 0.5, 0.3])
    draws = multinomial(1, truth).rvs(4000, random_state=0)
    best = m.ranked_probability_score(draws, np.tile(truth, (4000, 1)))
    for other in ([0.3, 0.4, 0.3], [0.1, 0.5, 0.4]):
        assert best < m.ranked_probability_score(draws, np.tile(other, (4000, 1)))


def enumerated_floor(p, n, smoothing):
    """E KL(k/n ‖ p) over every way of sharing n labels among the classes."""
    total = 0.0
    for k in itertools.product(range(n + 1), repeat=len(p)):
        if sum(k) == n:
            ways = prod(comb(n - sum(k[:c]), k[c]) for c in range(len(k)))
            chance = ways * prod(x**y for x, y in zip(p, k, strict=True))
            pairs = [(y / n + smoothing, x + smoothing) for x, y in zip(p, k, strict=True)]
            total += chance * sum(q * log(q / x) for q, x in pairs)
    return total


def test_sampling_floor_equals_enumeration():
    p, n = [[0.5, 0.3, 0.2], [1.0, 0.0, 0.0], [0.1, 0.1, 0.8]], [4, 7, 6]
    expected = [enumerated_floor(row, size, 1e-5) for row, size in zip(p, n, strict=True)]
    np.testing.assert_allclose(m.sampling_floor_rows(p, n), expected, rtol=1e-9, atol=1e-12)


def test_lewidi_2023_of_a_confident_wrong_answer():
    # −log(1e-12 + 1e-9), and log(1 − 1e-12 + 1e-9) for a right one
    assert m.lewidi_cross_entropy([[1.0, 0.0]], [[0.0, 1.0]]) == pytest.approx(-log(1.001e-9), rel=1e-12)
    assert m.lewidi_cross_entropy([[1.0, 0.0]], [[1.0, 0.0]]) == pytest.approx(-9.99e-10, rel=1e-3)


def test_lewidi_2025_rounds_to_five_digits():
    gold, predicted = [[2 / 3, 1 / 3, 0.0], [0.0, 0.0, 1.0]], [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    assert m.lewidi_manhattan(gold[:1], predicted[:1]) == 0.66667
    assert m.lewidi_wasserstein(gold, predicted) == 0.16667
    # Distances 4e-6, 4e-6 and 14e-6: each rounded first, so 1e-5 / 3, which is zero at five digits.
    steps = np.array([2e-6, 2e-6, 7e-6])
    assert m.lewidi_manhattan(np.full((3, 2), 0.5), np.stack([0.5 + steps, 0.5 - steps], axis=1)) == 0


@pytest.mark.data
@pytest.mark.parametrize(
    # The majority baseline's cross-entropy and F1: Leonardelli et al., SemEval 2023 task 11, results.
    ("dataset", "majority", "cross_entropy", "f1"),
    [("armis", "not_misogynistic", 8.908, 0.417), ("md_agreement", "not_offensive", 7.385, 0.534)],
)
def test_lewidi_2023_published_majority_baseline(data_dir, dataset, majority, cross_entropy, f1):
    with (data_dir / dataset / "items.csv").open(encoding="utf-8") as file:
        test_items = {row["item"] for row in csv.DictReader(file) if row["split"] == "test"}
    votes: dict[str, Counter[bool]] = {item: Counter() for item in test_items}
    with (data_dir / dataset / "annotations.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["item"] in votes:
                votes[row["item"]][row["label"] == majority] += 1
    counts = np.array([[count[True], count[False]] for count in votes.values()])
    gold, predicted = counts / counts.sum(axis=1, keepdims=True), np.tile([1.0, 0.0], (len(counts), 1))
    assert m.lewidi_cross_entropy(gold, predicted) == pytest.approx(cross_entropy, abs=6e-4)
    assert m.lewidi_f1(gold, predicted) == pytest.approx(f1, abs=6e-4)


@pytest.mark.parametrize("name", m.METRICS)
def test_every_metric_is_named_documented_and_bounded_by_its_perfect_score(name):
    metric = m.METRICS[name]
    assert metric.__name__ == name
    assert metric.__doc__
    perfect, imperfect = metric(GOLD, GOLD), metric(GOLD, PREDICTED)
    assert isinstance(imperfect, float)
    higher_is_better = "accuracy" in name or "f1" in name or "correlation" in name
    assert perfect > imperfect if higher_is_better else perfect < imperfect
    assert perfect == pytest.approx(float(higher_is_better), abs=1e-9) or "cross_entropy" in name


def test_a_metric_is_the_mean_of_its_rows():
    means = [metric for metric in m.METRICS.values() if m.rows_of(metric)]
    assert len(means) == 10
    for metric in means:
        rows = m.rows_of(metric)(GOLD, PREDICTED)
        assert rows.shape == (60,)
        assert metric(GOLD, PREDICTED) == pytest.approx(rows.mean(), rel=1e-12)
    assert m.rows_of(m.macro_f1) is None


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: m.kl([0.5, 0.5], [0.5, 0.5]),
            r"gold: an \(items, classes\) array is needed, got shape \(2,\)",
        ),
        (lambda: m.kl(GOLD, PREDICTED[:3]), r"gold has shape \(60, 4\) and predicted \(3, 4\)"),
        (lambda: m.kl([[1.0, 0.0], [0.6, 0.6]], np.eye(2)), "gold: row 1 is not a distribution"),
        (lambda: m.kl(np.eye(2), [[1.5, -0.5], [0, 1]]), "predicted: row 0 is not a distribution"),
        (lambda: m.entropy([[0.5, np.nan]]), "distributions: row 0 is not a distribution"),
        (lambda: m.kl([["a", "b"]], [[0, 1]]), "gold: numbers are needed"),
        (lambda: m.accuracy([0.5, 1.0], [0, 1]), "gold: class codes must be integers from 0"),
        (lambda: m.accuracy([0, -1], [0, 1]), "gold: class codes must be integers from 0"),
        (lambda: m.accuracy([[0, 0]], [0]), "gold: class codes are needed, or rows of counts"),
        (lambda: m.accuracy([0, 1], [0]), "do not have the same items and classes"),
        (lambda: m.accuracy([[1, 0]], [2]), "do not have the same items and classes"),
        (lambda: m.log_probability([[0.5, 0.5]], [2]), "labels: 1 codes below 2 are needed"),
    ],
)
def test_bad_arrays_are_named(call, message):
    with pytest.raises(DataError, match=message):
        call()


@pytest.mark.parametrize(
    ("call", "parameter"),
    [
        (lambda: m.kl(GOLD, GOLD, smoothing=-1), "smoothing"),
        (lambda: m.jensen_shannon(GOLD, GOLD, base=1), "base"),
        (lambda: m.wasserstein(GOLD, GOLD, positions=[0, 1, 1, 2]), "positions"),
        (lambda: m.wasserstein(GOLD, GOLD, positions=[0, 1]), "positions"),
        (lambda: m.accuracy(GOLD, GOLD, ties="last"), "ties"),
        (lambda: m.macro_f1(GOLD, GOLD, ties="any"), "ties"),
        (lambda: m.sampling_floor(GOLD, 0), "n_labels"),
        (lambda: m.sampling_floor(GOLD, 2.5), "n_labels"),
        (lambda: m.lewidi_f1(GOLD, GOLD, average="macro"), "average"),
    ],
)
def test_bad_settings_are_named(call, parameter):
    with pytest.raises(ParameterError, match=f"The '{parameter}' parameter of"):
        call()
