"""Models with confusion matrices: the E-step, objectives, priors of the items, and new items."""

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy.special import xlogy

import dissensus as ds
from dissensus import engine
from dissensus.engine import Engine
from dissensus.errors import ParameterError
from dissensus.labels.simulation import simulate
from dissensus.models import MODELS, confusion, model_class
from dissensus.models.calibration import calibrated, damping
from experiments.runner import read_dataset
from tests.helpers.sizes import usually
from tests.helpers.small_graphs import counts_by_hand, crowd, posterior_by_hand

pytestmark = pytest.mark.no_cover

Array = NDArray[np.float64]

PAIR = crowd([(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 1)], 2, 2, 2)
MATRICES = np.array([[[0.8, 0.2], [0.4, 0.6]], [[0.9, 0.1], [0.3, 0.7]]])
CROWD = ds.simulate(120, 15, 3, labels_per_item=5, seed=4).annotations


def test_e_step_by_hand() -> None:
    logs = np.log(MATRICES), np.log([0.5, 0.5]), np.zeros(2)
    steps = confusion.ConfusionSteps(PAIR, Engine())
    w, evidence = steps.posterior(*logs), steps.e_step(*logs).evidence
    # item 0: ½·.8·.9 = .36 against ½·.4·.3 = .06; item 1: ½·.8·.1 = .04 against ½·.4·.7 = .14
    assert_allclose(w, [[6 / 7, 1 / 7], [2 / 9, 7 / 9]], rtol=1e-12)
    assert_allclose(evidence, math.log(0.42) + math.log(0.18), rtol=1e-12)


@pytest.mark.parametrize("K", [1, 2, confusion.MAX_CLASSES_BY_COLUMN, confusion.MAX_CLASSES_BY_COLUMN + 1, 9])
@pytest.mark.parametrize("dense_cells", [0, 1000])
def test_e_step_is_bayes_rule_for_any_number_of_states(K: int, dense_cells: int, monkeypatch: Any) -> None:
    """With repeated pairs, a prior per item, excluded states, tiny probabilities, and both layouts."""
    monkeypatch.setattr(confusion, "MAX_CELLS_PER_LABEL", dense_cells)
    monkeypatch.setattr(engine, "LABELS_PER_SHARD", 150)
    rng = np.random.default_rng(K)
    rows = rng.integers([119, 15, 3], size=(600, 3)).tolist()  # no labels of the last item
    annotations = crowd([tuple(row) for row in rows], 120, 15, 3)
    matrices, psi = rng.dirichlet(np.full(3, 0.5), size=(15, K)), rng.dirichlet(np.ones(K))
    matrices[0, -1], matrices[1, 0] = [1e-40, 1e-40, 1.0], [1.0, 1e-40, 1e-40]
    prior = rng.dirichlet(np.ones(K), size=120)
    prior[::7, : K // 2], prior[1::7, 1:] = 0.0, 0.0
    joint = psi * prior
    for m, n, y in rows:
        joint[m] *= matrices[n, :, y]
    evidence = joint.sum(axis=1)
    w = joint / evidence[:, None]
    # Σ_m H(t_m) + Σ_k w_mk log h_mk
    entropy = (xlogy(w, prior) - xlogy(w, w)).sum()
    steps = confusion.ConfusionSteps(annotations, Engine())
    logs = np.log(matrices), np.log(psi), confusion.log_with_zeros(prior)
    result = steps.e_step(*logs)
    assert_allclose(steps.posterior(*logs), w, rtol=1e-10, atol=1e-300)
    assert_allclose(result.counts, counts_by_hand(annotations, w), rtol=1e-10, atol=1e-300)
    assert_allclose(result.item_mass, w.sum(axis=0), rtol=1e-12)
    assert_allclose(result.evidence, np.log(evidence).sum(), rtol=1e-12)
    assert_allclose(result.entropy, entropy, rtol=1e-9, atol=1e-9)


def test_starting_points() -> None:
    annotations = crowd([(0, 0, 1), (0, 1, 1), (0, 2, 0), (1, 0, 0), (1, 1, 2)], 3, 3, 4)
    counts, overall = annotations.counts, annotations.class_counts.astype(float)
    tied, unlabelled = [0.5, 0, 0.5, 0], [2 / 5, 2 / 5, 1 / 5, 0]
    assert_allclose(confusion.majority_votes(counts, overall), [[0, 1, 0, 0], tied, unlabelled], rtol=1e-15)
    expected = [[1 / 3, 2 / 3, 0, 0], tied, unlabelled]
    assert_allclose(confusion.label_shares(counts, overall), expected, rtol=1e-15)


def test_damping_by_hand() -> None:
    damped = damping(np.array([[2, 0, 1], [1, 0, 0], [0, 0, 0], [20, 0, 0]]), 0.3)
    expected = [[1, 0.027, 1], [1, 0.3, 0.3], [1, 1, 1], [1, math.exp(-7), math.exp(-7)]]
    assert_allclose(damped, expected, rtol=1e-12)


EXACT = ("dawid-skene", "cbcc", "ibcc", "ebcc", "log-linear")


@pytest.mark.no_cover
@pytest.mark.parametrize("gold_share", [0.0, 0.2])
@pytest.mark.parametrize("name", EXACT)
def test_the_objective_never_falls(name: str, gold_share: float) -> None:
    annotations = simulate(80, 12, 4, labels_per_item=4, seed=8).annotations
    rng = np.random.default_rng(0)
    prior = rng.dirichlet(np.ones(4), 80)
    gold = rng.random(80) < gold_share
    prior[gold] = np.eye(4)[rng.integers(4, size=gold.sum())]
    model = model_class(name)(tol=0.0, max_iter=60).fit(annotations, prior=prior)
    steps = np.diff(model.trace_)
    assert steps.min() >= -1e-9 * np.abs(model.trace_).max()
    assert len(steps) > 10


FEW_SETS = ("bluebirds", "snow_wsd", "anesthesia")


@pytest.mark.data
def test_the_objective_never_falls_on_real_labels(data_dir: Path) -> None:
    every = tuple(sorted(folder.name for folder in data_dir.iterdir() if folder.is_dir()))
    for dataset, name in itertools.product(usually(FEW_SETS, verify=every), EXACT):
        annotations = read_dataset(data_dir / dataset)
        gold = confusion.gold_prior(annotations)
        gold[::3] = 1.0
        for prior in (None, gold)[: 1 + (annotations.gold is not None)]:
            trace = model_class(name)(tol=0.0, max_iter=25).fit(annotations, prior=prior).trace_
            assert np.diff(trace).min() >= -1e-9 * np.abs(trace).max(), (dataset, name)


def test_truth_and_population_estimates() -> None:
    model = ds.DawidSkene().fit(CROWD)
    assert model.predict().tolist() == CROWD.classes[model.posterior_.argmax(axis=1)].tolist()
    load = np.bincount(CROWD.annotator)
    by_load = sum(load[n] * model.confusion_[n] for n in range(15)) / load.sum()
    assert_allclose(model.crowd_confusion_, by_load, rtol=1e-12)
    expected = calibrated(model.posterior_, CROWD.counts.sum(axis=1), float(model.evidence_limit_))
    assert_allclose(model.label_distributions_, expected, rtol=1e-12)
    population = ds.DawidSkene(estimate="population").fit(CROWD)
    assert_allclose(population.label_distributions_, model.posterior_ @ by_load, rtol=1e-12)
    first = CROWD.classes[population.label_distributions_.argmax(axis=1)]
    assert population.predict().tolist() == first.tolist()
    equal = ds.DawidSkene(weight_by="annotators").fit(CROWD)
    assert_allclose(equal.crowd_confusion_, equal.confusion_.mean(axis=0), rtol=1e-12)


def test_predict_proba_by_hand() -> None:
    model = ds.DawidSkene().fit(CROWD)
    expected = [sum(model.posterior_[3, k] * model.confusion_[7, k, p] for k in range(3)) for p in range(3)]
    chances = model.predict_proba([*CROWD.items[[3, 3]], "never seen"], [CROWD.annotators[7], "?", "?"])
    assert_allclose(chances[0], expected, rtol=1e-12)
    assert_allclose(chances[1], model.posterior_[3] @ model.crowd_confusion_, rtol=1e-12)
    assert_allclose(chances[2], model.psi_ @ model.crowd_confusion_, rtol=1e-12)


TRUTH_MODELS = [name for name in MODELS if model_class(name).finds_truth]


@pytest.mark.parametrize("name", TRUTH_MODELS)
def test_gold_fixes_items_and_informs_about_annotators(name: str) -> None:
    """Six of nine annotators swap two classes; gold for a third of the items corrects all but votes."""
    rng = np.random.default_rng(5)
    truth = rng.integers(2, size=150)
    swaps = np.arange(9) < 6
    label = truth[:, None] ^ swaps ^ (rng.random((150, 9)) > 0.9)
    annotations = crowd([(m, n, label[m, n]) for m in range(150) for n in range(9)], 150, 9, 2)
    prior = np.ones((150, 2))
    prior[:50] = np.eye(2)[truth[:50]]
    model: Any = model_class(name)()
    shares = model.fit(annotations, prior=prior).label_distributions_
    assert_allclose(shares[:50], prior[:50], atol=1e-12)
    accuracy = (shares[50:].argmax(axis=1) == truth[50:]).mean()
    assert (accuracy < 0.9) if name == "majority" else (accuracy > 0.9)


@pytest.mark.parametrize("strength", [0.0, 4.0])
def test_gold_overrules_labels_and_adds_classes(strength: float) -> None:
    rows = [(m, n, m % 2) for m in range(2, 40) for n in range(9)]
    rows += [(0, n, 0) for n in range(3000)] + [(1, n, n % 2) for n in range(9)]
    gold = np.array([1, 2, *range(2, 40)]) % 2
    gold[1] = 2  # item 0 against 3,000 labels, item 1 of an unused class
    prior = np.eye(3)[gold]
    prior[10:] = 0.0  # zeros carry no information
    model = ds.DawidSkene(smoothing=strength).fit(crowd(rows, 40, 3000, 3), prior=prior)
    assert model.posterior_.argmax(axis=1).tolist() == gold.tolist()
    assert_allclose(model.posterior_[:10], prior[:10], rtol=1e-12)
    assert np.isfinite(model.trace_).all()


def test_item_priors_multiply_the_shares() -> None:
    prior = np.random.default_rng(1).dirichlet(np.ones(3), size=120)
    model = ds.DawidSkene().fit(CROWD, prior=prior)
    expected = prior * posterior_by_hand(CROWD, model.confusion_, model.psi_)[0]
    assert_allclose(model.posterior_, expected / expected.sum(axis=1, keepdims=True), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(
    ("prior", "line"),
    [
        (np.ones((3, 3)), r"must be of shape \(120, 3\)\. Got \(3, 3\) instead"),
        (np.where(np.eye(120, 3), -0.5, 1.0), r"must be probabilities, all >= 0\. Got -0\.5 instead"),
        (np.where(np.eye(120, 3), np.nan, 1.0), r"must be probabilities, all >= 0\. Got nan instead"),
    ],
)
def test_invalid_item_priors_are_rejected(prior: Array, line: str) -> None:
    with pytest.raises(ParameterError, match=rf"\AThe 'prior' parameter of DawidSkene {line}\.\Z"):
        ds.DawidSkene().fit(CROWD, prior=prior)


def test_new_items_get_bayes_rule() -> None:
    model = ds.DawidSkene().fit(CROWD)
    who, labels = CROWD.annotators[[0, 3, 3, 5]], CROWD.classes[[0, 1, 1, 2]]
    new = ds.Annotations.from_arrays(list("xxxy"), who, labels, classes=CROWD.classes)
    moved = model.apply(new)
    x = model.psi_ * model.confusion_[0, :, 0] * model.confusion_[3, :, 1] ** 2
    y = model.psi_ * model.confusion_[5, :, 2]
    assert_allclose(moved.posterior_, [x / x.sum(), y / y.sum()], rtol=1e-9)
    assert_allclose(moved.confusion_, model.confusion_[[0, 3, 5]], rtol=1e-12)


def test_new_annotators_get_matrices_from_fitted_items() -> None:
    model = ds.DawidSkene(smoothing=2.0).fit(CROWD)
    codes = np.random.default_rng(2).integers(3, size=40)
    columns = CROWD.items[:40], ["newcomer"] * 40, CROWD.classes[codes]
    new = ds.Annotations.from_arrays(*columns, classes=CROWD.classes)
    moved = model.apply(new)
    w = model.posterior_[:40] * moved.confusion_[0][:, codes].T
    w /= w.sum(axis=1, keepdims=True)
    assert_allclose(moved.posterior_, w, rtol=1e-4, atol=1e-6)
    mass = 2.0 * model.crowd_confusion_
    for m in range(40):
        mass[:, codes[m]] += w[m]
    assert_allclose(moved.confusion_[0], mass / mass.sum(axis=1, keepdims=True), atol=1e-4)
