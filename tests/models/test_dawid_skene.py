"""Dawid–Skene: published tables, M-steps by hand, iterations of crowd-kit."""

import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

import dissensus as ds
from dissensus.models.confusion import majority_votes
from tests.helpers.sizes import usually
from tests.helpers.small_graphs import counts_by_hand, crowd, posterior_by_hand

pytestmark = pytest.mark.no_cover

Array = NDArray[np.float64]

CROWD = ds.simulate(120, 15, 3, labels_per_item=5, seed=4).annotations


def log_posterior(model: ds.DawidSkene, annotations: ds.Annotations, anchor: Array) -> float:
    """Compute the log-posterior (1) at the fitted parameters."""
    _, evidence = posterior_by_hand(annotations, model.confusion_, model.psi_)
    prior = model.smoothing * anchor * np.log(np.maximum(model.confusion_, 1e-300))
    return evidence + float(prior.sum())


def crowd_matrix(annotations: ds.Annotations) -> Array:
    """Compute the crowd's matrix under the majority vote, plus one label spread over each row."""
    votes = majority_votes(annotations.counts, annotations.class_counts.astype(float))
    counts = counts_by_hand(annotations, votes).sum(axis=0) + 1.0 / annotations.n_classes
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


def test_m_step_by_hand() -> None:
    counts = np.array([[[2.0, 0.5], [0.0, 1.0]]])
    anchor = np.array([[0.75, 0.25], [0.5, 0.5]])
    smoothed = ds.DawidSkene(smoothing=2.0)._m_step(counts, anchor)
    assert_allclose(smoothed, [[[3.5 / 4.5, 1 / 4.5], [1 / 3, 2 / 3]]], rtol=1e-12)
    raw = ds.DawidSkene(smoothing=0.0)._m_step(counts, anchor)
    assert_allclose(raw, [[[0.8, 0.2], [0, 1]]], rtol=1e-12)


@pytest.mark.parametrize("strength", [0.0, 4.0])
def test_a_class_without_labels_is_never_the_true_class(strength: float) -> None:
    """Items without labels do not change that."""
    rows = list(zip(CROWD.item.tolist(), CROWD.annotator.tolist(), CROWD.label.tolist(), strict=True))
    model = ds.DawidSkene(smoothing=strength).fit(crowd(rows, 150, 15, 5))
    assert model.psi_[3:].max() == 0.0
    assert model.posterior_[:, 3:].max() == 0.0
    without = ds.DawidSkene(smoothing=strength).fit(crowd(rows, 150, 15, 3))
    assert (without.predict() == model.predict()).mean() > 0.95


@pytest.mark.parametrize("strength", [0.0, 3.0])
def test_the_trace_ends_at_the_log_posterior(strength: float) -> None:
    model = ds.DawidSkene(smoothing=strength, tol=1e-9, max_iter=5000).fit(CROWD)
    assert model.stopped_ == "tolerance"
    assert_allclose(model.trace_[-1], log_posterior(model, CROWD, crowd_matrix(CROWD)), rtol=1e-12)


# Dawid and Skene, "Maximum Likelihood Estimation of Observer Error-Rates Using the EM Algorithm", Applied
# Statistics 28 (1979) 20–28, doi:10.2307/2346806: estimates with the true responses unknown, two decimals.
PUBLISHED_SHARES = [0.40, 0.42, 0.11, 0.07]
PUBLISHED_RATES = [  # observer, true class, answer
    [[0.89, 0.11, 0, 0], [0.07, 0.88, 0.05, 0], [0, 0.34, 0.66, 0], [0, 0, 0.56, 0.44]],
    [[0.83, 0.17, 0, 0], [0.05, 0.63, 0.31, 0], [0, 0, 1.00, 0], [0, 0, 0, 1.00]],
    [[1.00, 0, 0, 0], [0.11, 0.79, 0.11, 0], [0, 0.40, 0.20, 0.40], [0, 0, 0.67, 0.33]],
    [[0.94, 0.06, 0, 0], [0.05, 0.84, 0.10, 0], [0, 0, 0.80, 0.20], [0, 0, 0.33, 0.67]],
    [[1.00, 0, 0, 0], [0.16, 0.73, 0.11, 0], [0, 0.21, 0.79, 0], [0, 0, 0.33, 0.67]],
]
# Patients 1–45; all but three are certain to two decimals.
PUBLISHED_CLASSES = [int(k) for k in "142222132243121111222222112111131224233111212"]
PUBLISHED_DOUBTS = {7: [0.98, 0.02, 0, 0], 35: [0, 0.95, 0.05, 0], 38: [0, 0.02, 0.98, 0]}
ROUNDING = 0.005 + 1e-9


@pytest.fixture(scope="module")
def anaesthesia(data_dir: Path) -> ds.Annotations:
    """Load the ratings of 1979, with patients in numerical order.

    In the paper's Table 1 observer 1 gave patient 7 the classes 1, 2, 2. The file follows the R package
    rater, which has 1, 1, 2; the published figures (0.89 for observer 1, 0.98 for patient 7) are those of
    the paper's ratings, and so they are restored here.
    """
    ratings = ds.read_annotations(data_dir / "anesthesia" / "annotations.csv")
    patient = np.array([int(name[1:]) for name in ratings.items[ratings.item]])
    label = ratings.classes[ratings.label].astype(int)
    label[np.flatnonzero((patient == 7) & (ratings.annotator == 0) & (label == 1))[0]] = 2
    return ds.Annotations.from_arrays(patient, ratings.annotators[ratings.annotator], label)


@pytest.mark.data
def test_published_result_of_1979(anaesthesia: ds.Annotations) -> None:
    model = ds.DawidSkene(smoothing=0.0).fit(anaesthesia)
    assert model.annotators_.tolist() == [f"obs{i}" for i in range(1, 6)]
    assert_allclose(model.psi_, PUBLISHED_SHARES, atol=ROUNDING)
    assert_allclose(model.confusion_, PUBLISHED_RATES, atol=ROUNDING)
    published = np.eye(4)[np.array(PUBLISHED_CLASSES) - 1]
    for patient, chances in PUBLISHED_DOUBTS.items():
        published[patient - 1] = chances
    assert_allclose(model.posterior_, published, atol=ROUNDING)
    assert model.predict().tolist() == PUBLISHED_CLASSES


@pytest.mark.slow
@pytest.mark.parametrize("iterations", usually([5], verify=[1, 5]))
def test_iterations_equal_those_of_crowd_kit(iterations: int) -> None:
    """The stopping rule of crowd-kit is disabled, because its objective is wrong.

    It keeps probabilities above 1e-10, hence the tolerance.
    """
    peers = pytest.importorskip("crowdkit.aggregation")
    rows = CROWD.to_frame().set_axis(["task", "worker", "label"], axis=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = peers.DawidSkene(n_iter=iterations, tol=-math.inf).fit(rows)
    # our first state is already an M-step ahead of the start, and counts as an iteration
    model = ds.DawidSkene(smoothing=0.0, tol=0.0, max_iter=iterations + 1).fit(rows)
    assert len(peer.loss_history_) == iterations
    assert_allclose(model.psi_, peer.priors_[model.classes_], rtol=1e-7)
    assert model.errors_.index.names == peer.errors_.index.names == ["worker", "label"]
    errors = peer.errors_.reindex(index=model.errors_.index, columns=model.errors_.columns)
    assert_allclose(model.errors_, errors.fillna(0.0), rtol=1e-6, atol=1e-9)


def test_a_strong_prior_makes_matrices_equal() -> None:
    model = ds.DawidSkene(smoothing=1e9).fit(CROWD)
    assert_allclose(model.confusion_, np.tile(crowd_matrix(CROWD), (15, 1, 1)), rtol=1e-6)


def test_systematic_errors_are_recognised() -> None:
    """Eight annotators are always correct, two always one class off: both are fully informative."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=60)
    rows = [(m, n, int(truth[m]) if n < 8 else int(truth[m] + 1) % 3) for m in range(60) for n in range(10)]
    model = ds.DawidSkene(smoothing=0.0).fit(crowd(rows, 60, 10, 3))
    assert model.posterior_.argmax(axis=1).tolist() == truth.tolist()
    assert_allclose(model.confusion_[:8], np.tile(np.eye(3), (8, 1, 1)), atol=1e-9)
    assert_allclose(model.confusion_[8:], np.tile(np.roll(np.eye(3), 1, axis=1), (2, 1, 1)), atol=1e-9)
