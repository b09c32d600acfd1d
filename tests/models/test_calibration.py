"""Calibrated probabilities of the true class: equations by hand, answers, and simulated crowds."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray

import dissensus as ds
from dissensus.metrics import log_loss
from dissensus.models.calibration import LIMITS, MISLEADING_SHARE, calibrated, evidence_limit
from tests.helpers.small_graphs import crowd

Array = NDArray[np.float64]


def test_calibration_by_hand() -> None:
    posterior = np.array([[0.9, 0.1], [1.0, 0.0], [0.3, 0.7]])
    result = calibrated(posterior, np.array([3, 5, 0]), 1.5, misleading=0.1)
    # T = 1 / (1 + 3/1.5) = 1/3: odds of 9 become 9^(1/3); the last item has no labels
    first = 0.9 * 9 ** (1 / 3) / (1 + 9 ** (1 / 3)) + 0.05
    assert_allclose(result, [[first, 1 - first], [1.0, 0.0], [0.3, 0.7]], rtol=1e-12)
    assert_allclose(calibrated(posterior, np.array([3, 5, 0]), np.inf, misleading=0.0), posterior, rtol=1e-12)


def test_calibration_changes_no_answer() -> None:
    rng = np.random.default_rng(0)
    posterior = rng.dirichlet(np.full(4, 0.02), size=5000)
    posterior[::50] = [0.5, 0.5, 0.0, 0.0]  # a tie
    result = calibrated(posterior, rng.integers(60, size=5000), 2.0)
    assert_allclose(result.sum(axis=1), 1.0, rtol=1e-12)
    assert_array_equal(result.argmax(axis=1), posterior.argmax(axis=1))
    assert_array_equal(result[::50, 0], result[::50, 1])
    assert_array_equal(result > 0, posterior > 0)


@pytest.mark.parametrize(
    "model", [ds.CBCC(), ds.DawidSkene(), ds.EBCC(), ds.IBCC(), ds.LogLinear()], ids=repr
)
def test_no_item_without_gold_is_certain(model: ds.DawidSkene) -> None:
    m, n = np.indices((20, 80))  # all annotators agree: posteriors underflow
    labels = ds.Annotations.from_arrays(m.ravel(), n.ravel(), m.ravel() % 3)
    assert model.fit(labels).label_distributions_.max() <= 1 - MISLEADING_SHARE * 2 / 3 + 1e-9


@pytest.mark.parametrize("unseen", [1.0, 0.3])
def test_limit_by_hand(unseen: float) -> None:
    """Predict every label from the others by Bayes' rule, label by label."""
    rng = np.random.default_rng(3)
    rows = [(m, n, int(rng.integers(3))) for m in range(8) for n in rng.permutation(6)[: 1 + m % 5]]
    labels = crowd(rows, 8, 6, 3)
    matrices, population = rng.dirichlet(np.ones(3), size=(6, 3)), rng.dirichlet(np.ones(3), size=3)
    posterior = rng.dirichlet(np.ones(3), size=8)

    def damping(item: int, skipped: int) -> Array:
        answers = [y for row, (m, _, y) in enumerate(rows) if m == item and row != skipped]
        factor = max(unseen ** len(answers), math.exp(-7))
        return np.array([1.0 if k in answers else factor for k in range(3)])

    scores = []
    for limit in LIMITS:
        logs = []
        for row, (m, n, y) in enumerate(rows):
            others = sum(item == m for item, _, _ in rows) - 1
            if others:
                q = posterior[m] * damping(m, row) / damping(m, -1) / matrices[n, :, y]
                q **= 1 / (1 + others / limit)
                logs.append(math.log(q @ population[:, y] / q.sum()))
        scores.append(np.array(logs))
    best = max(scores, key=np.mean)
    worse = [best - score for score in scores]
    tied = [gap.mean() <= 2 * gap.std() / math.sqrt(len(gap)) for gap in worse]
    assert evidence_limit(labels, posterior, matrices, population, unseen) == LIMITS[tied.index(True)]


def test_limit_without_two_labels_of_an_item() -> None:
    labels = crowd([(0, 0, 1), (1, 1, 0), (2, 0, 0)], 3, 2, 2)
    model = ds.DawidSkene().fit(labels)
    assert model.evidence_limit_ == np.inf
    assert ds.DawidSkene(estimate="population").fit(labels).evidence_limit_ == np.inf


def simulated(seed: int, share: float, P: int = 3, M: int = 500, N: int = 20) -> tuple[ds.Annotations, Array]:
    """Simulate eight labels an item; on a share of the items, half of all labels are the same wrong class."""
    rng = np.random.default_rng(seed)
    truth, skill = rng.integers(P, size=M), rng.uniform(0.6, 0.9, N)
    wrong = (truth[:, None] + rng.integers(1, P, (M, N))) % P
    hard = rng.random(M) < share
    wrong[hard] = ((truth + rng.integers(1, P, M)) % P)[hard, None]
    right = rng.random((M, N)) < np.where(hard[:, None], 0.5, skill)
    rows = [(m, n) for m in range(M) for n in rng.permutation(N)[:8]]
    answers = np.where(right, truth[:, None], wrong)
    return crowd([(m, n, int(answers[m, n])) for m, n in rows], M, N, P), np.eye(P)[truth]


@pytest.mark.parametrize("model", [ds.DawidSkene(), ds.LogLinear(), ds.IBCC(), ds.EBCC(), ds.CBCC()])
def test_calibration_lowers_the_log_loss_of_correlated_errors(model: ds.DawidSkene) -> None:
    labels, truth = simulated(1, share=0.4)
    fitted = model.fit(labels)
    assert log_loss(truth, fitted.label_distributions_) < 0.75 * log_loss(truth, fitted.posterior_)
    assert_array_equal(fitted.label_distributions_.argmax(axis=1), fitted.posterior_.argmax(axis=1))


@pytest.mark.parametrize("model", [ds.DawidSkene(), ds.LogLinear()])
def test_calibration_costs_little_with_independent_errors(model: ds.DawidSkene) -> None:
    """Negative control: the posterior is right, and calibration makes it more cautious than needed."""
    for seed in range(3):
        labels, truth = simulated(seed, share=0.0)
        fitted = model.fit(labels)
        before, after = (log_loss(truth, table) for table in (fitted.posterior_, fitted.label_distributions_))
        assert after < before + 0.08
        assert fitted.evidence_limit_ > simulated_limit(seed)


def simulated_limit(seed: int) -> float:
    """Return the limit of a crowd with correlated errors."""
    return float(ds.DawidSkene().fit(simulated(seed, share=0.4)[0]).evidence_limit_)


def test_applying_a_model_to_its_own_labels_changes_nothing() -> None:
    labels, _ = simulated(2, share=0.3, M=60)
    model = ds.LogLinear().fit(labels)
    applied = model.apply(labels).label_distributions_
    assert_allclose(applied, model.label_distributions_, rtol=1e-9, atol=1e-12)
