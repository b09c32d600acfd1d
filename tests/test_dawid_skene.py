"""Dawid–Skene and one-coin: the published tables, steps by hand, a theorem at every step, a peer's steps."""

from __future__ import annotations

import itertools
import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import xlogy

import dissensus as ds
from dissensus import engine
from dissensus.engine import Engine
from dissensus.errors import ParameterError
from dissensus.models import confusion
from dissensus.models.confusion import ConfusionSteps, log_chances, shares, votes
from sizes import usually
from small_graphs import crowd

pytestmark = pytest.mark.no_cover

Array = NDArray[np.float64]

# Two items, two annotators, worked by hand below.
PAIR = crowd([(0, 0, 0), (0, 1, 0), (1, 0, 0), (1, 1, 1)], 2, 2, 2)
MATRICES = np.array([[[0.8, 0.2], [0.4, 0.6]], [[0.9, 0.1], [0.3, 0.7]]])

CROWD = ds.simulate(120, 15, 3, labels_per_item=5, seed=4).annotations
LONG_TAIL = ds.simulate(80, 40, 4, labels_per_item=6, load="long-tail", seed=5).annotations


def posterior_by_hand(annotations: ds.Annotations, matrices: Array, psi: Array) -> tuple[Array, float]:
    """Bayes' rule item by item, and the log-likelihood."""
    chances = np.tile(psi, (annotations.n_items, 1))
    for m, n, y in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        chances[m] *= matrices[n, :, y]
    sums = chances.sum(axis=1)
    return chances / sums[:, None], float(np.log(sums).sum())


def counts_by_hand(annotations: ds.Annotations, w: Array) -> Array:
    P = annotations.n_classes
    counts = np.zeros((annotations.n_annotators, P, P))
    for m, n, y in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        counts[n, :, y] += w[m]
    return counts


def log_posterior(model: ds.DawidSkene, annotations: ds.Annotations, anchor: Array) -> float:
    """Equation (1) of the module at the fitted parameters."""
    _, evidence = posterior_by_hand(annotations, model.confusion_, model.psi_)
    prior = model.smoothing * anchor * np.log(np.maximum(model.confusion_, 1e-300))
    return evidence + float(prior.sum())


def crowd_matrix(annotations: ds.Annotations) -> Array:
    """The crowd's matrix under the majority vote, one pseudo-label spread over each row."""
    counts = (
        counts_by_hand(annotations, votes(annotations.counts, annotations.class_counts.astype(float))).sum(
            axis=0
        )
        + 1.0 / annotations.n_classes
    )
    return np.asarray(counts / counts.sum(axis=1, keepdims=True))


# ---- the two steps -------------------------------------------------------------------------------------


def test_the_e_step_by_hand() -> None:
    crowd, given = ConfusionSteps(PAIR, Engine()), (np.log(MATRICES), np.log([0.5, 0.5]), np.zeros(2))
    w, evidence = crowd.posterior(*given), crowd.e_step(*given).evidence
    # item 0: ½·.8·.9 = .36 against ½·.4·.3 = .06; item 1: ½·.8·.1 = .04 against ½·.4·.7 = .14
    np.testing.assert_allclose(w, [[6 / 7, 1 / 7], [2 / 9, 7 / 9]], rtol=1e-12)
    np.testing.assert_allclose(evidence, math.log(0.42) + math.log(0.18), rtol=1e-12)


def test_the_m_step_by_hand() -> None:
    w = np.array([[6 / 7, 1 / 7], [2 / 9, 7 / 9]])
    counts = ConfusionSteps(PAIR, Engine()).expected_counts(w).counts
    right, wrong = 6 / 7 + 2 / 9, 1 / 7 + 7 / 9
    np.testing.assert_allclose(counts[0], [[right, 0], [wrong, 0]], rtol=1e-12)
    np.testing.assert_allclose(counts[1], [[6 / 7, 2 / 9], [1 / 7, 7 / 9]], rtol=1e-12)
    anchor = np.array([[0.75, 0.25], [0.5, 0.5]])
    learned = ds.DawidSkene(smoothing=2.0)._learn(counts, anchor)
    np.testing.assert_allclose(learned[0, 0], [(1.5 + right) / (2 + right), 0.5 / (2 + right)], rtol=1e-12)
    np.testing.assert_allclose(
        learned[1, 1], [(1 + 1 / 7) / (2 + wrong), (1 + 7 / 9) / (2 + wrong)], rtol=1e-12
    )
    bare = ds.DawidSkene(smoothing=0.0)._learn(counts, anchor)
    np.testing.assert_allclose(bare[0], [[1, 0], [1, 0]], rtol=1e-12)


def test_the_e_step_equals_enumeration() -> None:
    """All P^M true classes of a few items, repeated pairs among their labels, one item without any."""
    rng = np.random.default_rng(0)
    rows = [(m, n, int(rng.integers(3))) for m in range(4) for n in range(3)] + [
        (0, 0, 1),
        (0, 0, 1),
        (3, 2, 0),
    ]
    annotations = crowd(rows, 5, 4, 3)
    matrices, psi = rng.dirichlet(np.ones(3), size=(4, 3)), rng.dirichlet(np.ones(3))
    expected, total = np.zeros((5, 3)), 0.0
    for t in itertools.product(range(3), repeat=5):
        joint = math.prod(psi[k] for k in t) * math.prod(matrices[n, t[m], y] for m, n, y in rows)
        total += joint
        for m in range(5):
            expected[m, t[m]] += joint
    members, given = ConfusionSteps(annotations, Engine()), (np.log(matrices), np.log(psi), np.zeros(3))
    w, evidence = members.posterior(*given), members.e_step(*given).evidence
    np.testing.assert_allclose(w, expected / total, rtol=1e-10)
    np.testing.assert_allclose(evidence, math.log(total), rtol=1e-12)
    np.testing.assert_allclose(w[4], psi, rtol=1e-12)
    np.testing.assert_allclose(
        ConfusionSteps(annotations, Engine()).expected_counts(w).counts,
        counts_by_hand(annotations, w),
        rtol=1e-10,
    )


@pytest.mark.parametrize("K", [1, 2, confusion.FEW_CLASSES, confusion.FEW_CLASSES + 1, 9])
@pytest.mark.parametrize("dense_cells", [0, 1000])
def test_the_e_step_is_bayes_rule_for_any_number_of_states(
    K: int, dense_cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Items with priors of their own, some states excluded; tiny chances; columns for all cells or some."""
    monkeypatch.setattr(confusion, "DENSE_CELLS", dense_cells)
    monkeypatch.setattr(engine, "LABELS_PER_SHARD", 150)
    rng = np.random.default_rng(K)
    annotations = ds.simulate(120, 15, 3, labels_per_item=5, seed=4).annotations
    matrices, psi = rng.dirichlet(np.full(3, 0.5), size=(15, K)), rng.dirichlet(np.ones(K))
    matrices[0, -1], matrices[1, 0] = [1e-40, 1e-40, 1.0], [1.0, 1e-40, 1e-40]
    known = rng.dirichlet(np.ones(K), size=120)
    known[::7, : K // 2], known[1::7, 1:] = 0.0, 0.0
    chances = psi * known
    for m, n, y in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        chances[m] *= matrices[n, :, y]
    evidence = chances.sum(axis=1)
    w = chances / evidence[:, None]
    counts = np.zeros((15, K, 3))
    for m, n, y in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        counts[n, :, y] += w[m]
    # Σ_m H(t_m) + Σ_k w_mk log h_mk
    entropy = (xlogy(w, known) - xlogy(w, w)).sum()
    members = ConfusionSteps(annotations, Engine())
    given = np.log(matrices), np.log(psi), log_chances(known)
    found = members.e_step(*given)
    np.testing.assert_allclose(members.posterior(*given), w, rtol=1e-10, atol=1e-300)
    np.testing.assert_allclose(found.counts, counts, rtol=1e-10, atol=1e-300)
    np.testing.assert_allclose(found.item_mass, w.sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found.evidence, np.log(evidence).sum(), rtol=1e-12)
    np.testing.assert_allclose(found.entropy, entropy, rtol=1e-9, atol=1e-9)


def test_no_other_matrices_beat_those_of_the_m_step() -> None:
    rng = np.random.default_rng(1)
    counts, anchor = rng.gamma(2.0, size=(3, 4, 4)), rng.dirichlet(np.ones(4), size=4)
    model = ds.DawidSkene(smoothing=1.5)
    best = model._learn(counts, anchor)

    def objective(matrices: Array) -> float:
        return float(((counts + 1.5 * anchor) * np.log(matrices)).sum())

    for _ in range(100):
        step = 10.0 ** rng.uniform(-3, 0)
        assert objective(best + step * (rng.dirichlet(np.ones(4), size=(3, 4)) - best)) < objective(best)


def test_votes_and_shares() -> None:
    annotations = crowd([(0, 0, 1), (0, 1, 1), (0, 2, 0), (1, 0, 0), (1, 1, 2)], 3, 3, 4)
    tied, nobody = [0.5, 0, 0.5, 0], [2 / 5, 2 / 5, 1 / 5, 0]  # item 2 has no labels: like all five
    np.testing.assert_allclose(
        votes(annotations.counts, annotations.class_counts.astype(float)),
        [[0, 1, 0, 0], tied, nobody],
        rtol=1e-15,
    )
    np.testing.assert_allclose(
        shares(annotations.counts, annotations.class_counts.astype(float)),
        [[1 / 3, 2 / 3, 0, 0], tied, nobody],
        rtol=1e-15,
    )


@pytest.mark.parametrize("strength", [0.0, 4.0])
def test_a_class_that_nobody_gave_is_nobodys_true_class(strength: float) -> None:
    """Not even where items without labels leave its share open: no row of answers could belong to it."""
    rows = list(zip(CROWD.item.tolist(), CROWD.annotator.tolist(), CROWD.label.tolist(), strict=True))
    model = ds.DawidSkene(smoothing=strength).fit(crowd(rows, 150, 15, 5))
    assert model.psi_[3:].max() == 0.0
    assert model.posterior_[:, 3:].max() == 0.0
    known = ds.DawidSkene(smoothing=strength).fit(crowd(rows, 150, 15, 3))
    assert (known.predict() == model.predict()).mean() > 0.95


def test_one_coin_by_hand() -> None:
    counts = np.array([[[3.0, 1.0, 0.0], [0.5, 2.0, 0.5], [0.0, 1.0, 2.0]]])  # right: 7 of 10
    model = ds.OneCoin(smoothing=5.0)
    model.class_vocabulary_ = CROWD.class_vocabulary
    learned = model._learn(counts, np.array([0.8, 0.2]))
    np.testing.assert_allclose(learned, [[11 / 15, 4 / 15]], rtol=1e-12)
    off = 2 / 15
    np.testing.assert_allclose(
        model._matrices(learned)[0], np.full((3, 3), off) + (11 / 15 - off) * np.eye(3), rtol=1e-12
    )


def test_one_coin_answers_alike_whatever_the_class() -> None:
    fitted = ds.OneCoin(smoothing=2.0).fit(CROWD)
    for matrix in fitted.confusion_:
        off = matrix[~np.eye(3, dtype=bool)]
        np.testing.assert_allclose(np.diag(matrix), matrix[0, 0], rtol=1e-12)
        np.testing.assert_allclose(off, (1 - matrix[0, 0]) / 2, rtol=1e-12)


# ---- the objective never falls -------------------------------------------------------------------------


@pytest.mark.parametrize("annotations", [CROWD, LONG_TAIL], ids=["even", "long tail"])
@pytest.mark.parametrize("strength", usually([0.0, 4.0], verify=[0.0, 0.1, 1.0, 4.0, 100.0]))
@pytest.mark.parametrize("kind", [ds.DawidSkene, ds.OneCoin])
def test_the_objective_never_falls(
    kind: type[ds.DawidSkene], strength: float, annotations: ds.Annotations
) -> None:
    trace = kind(smoothing=strength, tol=0.0, max_iter=100).fit(annotations).trace_
    assert len(trace) > 5
    assert np.diff(trace).min() >= -1e-12 * abs(trace[-1])
    assert trace[-1] > trace[0]


REAL = usually(["bluebirds", "jq3"], verify=["anesthesia", "bluebirds", "weather_sentiment_cf", "jq3"])


@pytest.mark.data
@pytest.mark.parametrize("dataset", REAL)
@pytest.mark.parametrize("kind", [ds.DawidSkene, ds.OneCoin])
def test_the_objective_never_falls_on_real_labels(
    data_dir: Path, kind: type[ds.DawidSkene], dataset: str
) -> None:
    annotations = ds.read_annotations(data_dir / dataset / "annotations.csv")
    for strength in (0.0, 4.0):
        trace = kind(smoothing=strength, tol=0.0, max_iter=25).fit(annotations).trace_
        assert np.diff(trace).min() >= -1e-12 * abs(trace[-1])


def test_the_objective_never_falls_with_item_priors() -> None:
    prior = np.random.default_rng(0).dirichlet(np.full(3, 0.5), size=120)
    trace = ds.DawidSkene(tol=0.0, max_iter=60).fit(CROWD, prior=prior).trace_
    assert np.diff(trace).min() >= -1e-12 * abs(trace[-1])


@pytest.mark.parametrize("strength", [0.0, 3.0])
def test_the_trace_ends_at_the_log_posterior_of_the_parameters(strength: float) -> None:
    model = ds.DawidSkene(smoothing=strength, tol=1e-9, max_iter=5000).fit(CROWD)
    assert model.stopped_ == "tolerance"
    np.testing.assert_allclose(model.trace_[-1], log_posterior(model, CROWD, crowd_matrix(CROWD)), rtol=1e-12)


@pytest.mark.parametrize("strength", [0.0, 3.0])
def test_a_converged_fit_is_a_fixed_point(strength: float) -> None:
    model = ds.DawidSkene(smoothing=strength, tol=0.0, max_iter=3000).fit(CROWD)
    w, _ = posterior_by_hand(CROWD, model.confusion_, model.psi_)
    np.testing.assert_allclose(model.posterior_, w, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(model.psi_, w.mean(axis=0), rtol=1e-6)
    mass = strength * crowd_matrix(CROWD) + counts_by_hand(CROWD, w)
    np.testing.assert_allclose(model.confusion_, mass / mass.sum(axis=2, keepdims=True), atol=1e-6)


# ---- published results ---------------------------------------------------------------------------------

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
    """The 1979 ratings, patients in order of their numbers.

    In the paper's Table 1 observer 1 gave patient 7 the classes 1, 2, 2. The file follows the R package
    rater, which has 1, 1, 2; the published figures (0.89 for observer 1, 0.98 for patient 7) are those of
    the paper's ratings, and so they are restored here.
    """
    known = ds.read_annotations(data_dir / "anesthesia" / "annotations.csv")
    patients = [int(name[1:]) for name in known.items[known.item]]
    label = known.classes[known.label].astype(int)
    first = next(
        row for row, m in enumerate(patients) if m == 7 and known.annotator[row] == 0 and label[row] == 1
    )
    label[first] = 2
    return ds.Annotations.from_arrays(patients, known.annotators[known.annotator], label)


@pytest.mark.data
def test_the_published_result_of_1979(anaesthesia: ds.Annotations) -> None:
    model = ds.DawidSkene(smoothing=0.0).fit(anaesthesia)
    assert model.annotators_.tolist() == [f"obs{i}" for i in range(1, 6)]
    np.testing.assert_allclose(model.psi_, PUBLISHED_SHARES, atol=ROUNDING)
    np.testing.assert_allclose(model.confusion_, PUBLISHED_RATES, atol=ROUNDING)
    published = np.eye(4)[np.array(PUBLISHED_CLASSES) - 1]
    for patient, chances in PUBLISHED_DOUBTS.items():
        published[patient - 1] = chances
    np.testing.assert_allclose(model.posterior_, published, atol=ROUNDING)
    assert model.predict().tolist() == PUBLISHED_CLASSES


@pytest.mark.data
def test_the_file_as_it_is_gives_the_published_shares_and_classes(data_dir: Path) -> None:
    model = ds.DawidSkene(smoothing=0.0).fit(data_dir / "anesthesia" / "annotations.csv")
    np.testing.assert_allclose(model.psi_, PUBLISHED_SHARES, atol=ROUNDING)
    found = {int(item[1:]): int(label) for item, label in zip(model.items_, model.predict(), strict=True)}
    assert [found[patient] for patient in range(1, 46)] == PUBLISHED_CLASSES


@pytest.mark.data
def test_the_steps_of_the_fit_are_those_of_a_plain_em(anaesthesia: ds.Annotations) -> None:
    w = anaesthesia.counts / anaesthesia.counts.sum(axis=1, keepdims=True)
    for iterations in range(1, 13):
        counts = counts_by_hand(anaesthesia, w)
        matrices, psi = counts / counts.sum(axis=2, keepdims=True), w.mean(axis=0)
        w, evidence = posterior_by_hand(anaesthesia, matrices, psi)
        plain = ds.DawidSkene(smoothing=0.0, tol=0.0, max_iter=iterations)
        model = plain.fit(anaesthesia)
        np.testing.assert_allclose(model.trace_[-1], evidence, rtol=1e-12)
    assert iterations == len(model.trace_)


def crowdkit_labels(annotations: ds.Annotations) -> Any:
    import pandas as pd

    return pd.DataFrame(
        {
            "task": annotations.items[annotations.item],
            "worker": annotations.annotators[annotations.annotator],
            "label": annotations.classes[annotations.label],
        }
    )


@pytest.mark.slow
@pytest.mark.parametrize("iterations", usually([5], verify=[1, 5]))
@pytest.mark.parametrize("kind", ["DawidSkene", "OneCoinDawidSkene"])
def test_the_steps_of_the_fit_are_crowd_kits(kind: str, iterations: int) -> None:
    """crowd-kit's steps are sound; only its objective, and so its stopping, is not: it is kept from stopping.

    It keeps chances above 1e-10, hence the tolerance.
    """
    peers = pytest.importorskip("crowdkit.aggregation")
    rows = crowdkit_labels(CROWD)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = getattr(peers, kind)(n_iter=iterations, tol=-math.inf).fit(rows)
    ours = {"DawidSkene": ds.DawidSkene, "OneCoinDawidSkene": ds.OneCoin}[kind]
    # Our first state is already an M-step ahead of the start, and counts as the first iteration.
    model = ours(smoothing=0.0, tol=0.0, max_iter=iterations + 1).fit(CROWD)
    assert len(peer.loss_history_) == iterations
    np.testing.assert_allclose(model.psi_, peer.priors_[model.classes_], rtol=1e-7)
    for n, worker in enumerate(model.annotators_):
        errors = peer.errors_.loc[worker].reindex(index=model.classes_, columns=model.classes_).fillna(0.0)
        np.testing.assert_allclose(model.confusion_[n], errors.to_numpy().T, rtol=1e-6, atol=1e-9)


# ---- what it gives -------------------------------------------------------------------------------------


def test_predict_is_the_posteriors_choice_and_the_distribution_the_populations() -> None:
    model = ds.DawidSkene().fit(CROWD)
    assert model.predict().tolist() == CROWD.classes[model.posterior_.argmax(axis=1)].tolist()
    load = np.bincount(CROWD.annotator)
    by_load = sum(load[n] * model.confusion_[n] for n in range(15)) / load.sum()
    np.testing.assert_allclose(model.crowd_confusion_, by_load, rtol=1e-12)
    assert model.label_distributions_.tobytes() == model.posterior_.tobytes()
    population = ds.DawidSkene(estimate="population").fit(CROWD)
    np.testing.assert_allclose(population.label_distributions_, model.posterior_ @ by_load, rtol=1e-12)
    # never two answers of one model
    first = CROWD.classes[population.label_distributions_.argmax(axis=1)]
    assert population.predict().tolist() == first.tolist()
    equal = ds.DawidSkene(weight_by="annotators").fit(CROWD)
    np.testing.assert_allclose(equal.crowd_confusion_, equal.confusion_.mean(axis=0), rtol=1e-12)


def test_the_chance_of_a_label_given_item_and_annotator() -> None:
    model = ds.DawidSkene().fit(CROWD)
    expected = [sum(model.posterior_[3, k] * model.confusion_[7, k, p] for k in range(3)) for p in range(3)]
    chances = model.predict_proba(
        [CROWD.items[3], CROWD.items[3], "never seen"], [CROWD.annotators[7], "?", "?"]
    )
    np.testing.assert_allclose(chances[0], expected, rtol=1e-12)
    np.testing.assert_allclose(chances[1], model.posterior_[3] @ model.crowd_confusion_, rtol=1e-12)
    np.testing.assert_allclose(chances[2], model.psi_ @ model.crowd_confusion_, rtol=1e-12)


def test_a_strong_prior_makes_every_annotator_the_crowd() -> None:
    model = ds.DawidSkene(smoothing=1e9).fit(CROWD)
    np.testing.assert_allclose(model.confusion_, np.tile(crowd_matrix(CROWD), (15, 1, 1)), rtol=1e-6)


def test_annotators_are_told_apart() -> None:
    """Eight annotators always right, two always wrong by one class: both are fully informative."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=60)
    rows = [(m, n, int(truth[m]) if n < 8 else int(truth[m] + 1) % 3) for m in range(60) for n in range(10)]
    model = ds.DawidSkene(smoothing=0.0).fit(crowd(rows, 60, 10, 3))
    assert model.posterior_.argmax(axis=1).tolist() == truth.tolist()
    np.testing.assert_allclose(model.confusion_[:8], np.tile(np.eye(3), (8, 1, 1)), atol=1e-9)
    np.testing.assert_allclose(
        model.confusion_[8:], np.tile(np.roll(np.eye(3), 1, axis=1), (2, 1, 1)), atol=1e-9
    )


# ---- item priors, and new items ------------------------------------------------------------------------


def test_gold_as_item_prior_decides() -> None:
    gold = np.random.default_rng(0).integers(3, size=120)
    model = ds.DawidSkene().fit(CROWD, prior=np.eye(3)[gold])
    assert model.posterior_.argmax(axis=1).tolist() == gold.tolist()
    np.testing.assert_allclose(model.posterior_.max(axis=1), 1.0, rtol=1e-12)


@pytest.mark.parametrize("strength", [0.0, 4.0])
def test_gold_decides_against_any_number_of_labels_and_beyond_the_labels_classes(strength: float) -> None:
    rows = [(m, n, m % 2) for m in range(2, 40) for n in range(9)]
    rows += [(0, n, 0) for n in range(3000)] + [(1, n, n % 2) for n in range(9)]
    gold = np.array([1, 2] + [m % 2 for m in range(2, 40)])  # item 0 by gold alone, item 1 of an unused class
    prior = np.eye(3)[gold]
    prior[10:] = 0.0  # nothing known: as if not given
    model = ds.DawidSkene(smoothing=strength).fit(crowd(rows, 40, 3000, 3), prior=prior)
    assert model.posterior_.argmax(axis=1).tolist() == gold.tolist()
    np.testing.assert_allclose(model.posterior_[:10], prior[:10], rtol=1e-12)
    assert np.isfinite(model.trace_).all()


def test_a_uniform_item_prior_changes_nothing() -> None:
    plain, flat = ds.DawidSkene().fit(CROWD), ds.DawidSkene().fit(CROWD, prior=np.full((120, 3), 0.2))
    np.testing.assert_allclose(flat.posterior_, plain.posterior_, rtol=1e-9, atol=1e-15)


def test_an_item_prior_multiplies_the_shares() -> None:
    prior = np.random.default_rng(1).dirichlet(np.ones(3), size=120)
    model = ds.DawidSkene().fit(CROWD, prior=prior)
    expected = prior * posterior_by_hand(CROWD, model.confusion_, model.psi_)[0]
    np.testing.assert_allclose(
        model.posterior_, expected / expected.sum(axis=1, keepdims=True), rtol=1e-9, atol=1e-15
    )


@pytest.mark.parametrize(
    ("prior", "line"),
    [
        (np.ones((3, 3)), r"must be of shape \(120, 3\)\. Got \(3, 3\) instead"),
        (np.where(np.eye(120, 3), -0.5, 1.0), r"must be probabilities, all >= 0\. Got -0\.5 instead"),
        (np.where(np.eye(120, 3), np.nan, 1.0), r"must be probabilities, all >= 0\. Got nan instead"),
        (np.where(np.eye(120, 3), np.inf, 1.0), r"must be probabilities, all >= 0\. Got inf instead"),
    ],
)
def test_item_priors_that_are_none_are_refused(prior: Array, line: str) -> None:
    with pytest.raises(ParameterError, match=rf"\AThe 'prior' parameter of DawidSkene {line}\.\Z"):
        ds.DawidSkene().fit(CROWD, prior=prior)


@pytest.mark.parametrize("kind", [ds.DawidSkene, ds.OneCoin])
def test_new_items_get_bayes_rule_with_the_kept_matrices(kind: type[ds.DawidSkene]) -> None:
    model = kind().fit(CROWD)
    new = ds.Annotations.from_arrays(
        ["x", "x", "x", "y"],
        CROWD.annotators[[0, 3, 3, 5]],
        CROWD.classes[[0, 1, 1, 2]],
        classes=CROWD.classes,
    )
    moved = model.apply(new)
    x = model.psi_ * model.confusion_[0, :, 0] * model.confusion_[3, :, 1] ** 2
    y = model.psi_ * model.confusion_[5, :, 2]
    np.testing.assert_allclose(moved.posterior_, [x / x.sum(), y / y.sum()], rtol=1e-9)
    np.testing.assert_allclose(moved.confusion_, model.confusion_[[0, 3, 5]], rtol=1e-12)


def test_new_annotators_learn_their_matrix_from_known_items() -> None:
    model = ds.DawidSkene(smoothing=2.0).fit(CROWD)
    codes = np.random.default_rng(2).integers(3, size=40)
    new = ds.Annotations.from_arrays(
        CROWD.items[:40], ["newcomer"] * 40, CROWD.classes[codes], classes=CROWD.classes
    )
    moved = model.apply(new)
    w = model.posterior_[:40] * moved.confusion_[0][:, codes].T
    w /= w.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(moved.posterior_, w, rtol=1e-4, atol=1e-6)
    mass = 2.0 * model.crowd_confusion_
    for m in range(40):
        mass[:, codes[m]] += w[m]
    np.testing.assert_allclose(moved.confusion_[0], mass / mass.sum(axis=1, keepdims=True), atol=1e-4)


# ---- shards and jobs -----------------------------------------------------------------------------------


def test_shards_and_jobs_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ds.DawidSkene().fit(CROWD)
    monkeypatch.setattr(engine, "LABELS_PER_SHARD", 50)
    one, two = (ds.DawidSkene(n_jobs=n_jobs).fit(CROWD) for n_jobs in (1, 2))
    np.testing.assert_allclose(one.posterior_, whole.posterior_, rtol=1e-9, atol=1e-15)
    assert one.posterior_.tobytes() == two.posterior_.tobytes()
    assert one.trace_.tobytes() == two.trace_.tobytes()
