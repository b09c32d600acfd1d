"""PGM: exact and monotone on trees, planted clusters, priors, new items and settings."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

import dissensus as ds
from dissensus.errors import ParameterError
from dissensus.labels.simulation import Simulation
from dissensus.models import fmm
from dissensus.models.pgm.m_step import Parameters, Priors, log_prior
from tests.helpers.sizes import usually
from tests.helpers.small_graphs import crowd, enumerated, labelled, random_tree

Array = NDArray[np.float64]

CROWD = ds.simulate(80, 20, 3, labels_per_item=5, seed=2).annotations
# exact EM: pairwise beliefs and converged messages
EXACT: dict[str, Any] = {"m_step": "pairwise", "bp_rounds": 300, "bp_tol": 0.0}


def tree_crowd(n_items: int, n_annotators: int, n_classes: int, seed: int) -> ds.Annotations:
    """Simulate labels of a tree with two repeated pairs, an item and an annotator without labels."""
    rng = np.random.default_rng(seed)
    rows = labelled(random_tree(n_items, n_annotators, "random", rng), n_classes, rng)
    again = [(m, n, int(rng.integers(n_classes))) for m, n, _ in rows[:2]]
    return crowd([*rows, *again, rows[0]], n_items + 1, n_annotators + 1, n_classes)


def assert_never_falls(trace: Array) -> None:
    assert len(trace) > 3
    assert np.diff(trace).min() >= -1e-10 * (1 + abs(trace[-1]))


# ---- the objective never falls, where there is a theorem ------------------------------------------------

SETTINGS: dict[str, dict[str, Any]] = {
    "bp": {"inference": "bp"},
    "bp, no priors": {"inference": "bp", "alpha": 1.0, "gamma": 1.0, "tau": 1.0},
    "bp, strong priors": {"inference": "bp", "alpha": 5.0, "gamma": 1.5, "tau": 20.0},
    "vb, learned priors": {"inference": "vb"},
    "vb, given priors": {"inference": "vb", "alpha": 0.3, "gamma": 0.5, "tau": 0.5},
    "vb, one learned": {"inference": "vb", "gamma": 2.0, "tau": 0.1},
}


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(usually(1, verify=3)))
@pytest.mark.parametrize("name", SETTINGS)
def test_exact_em_never_falls_on_trees(name: str, seed: int) -> None:
    annotations = tree_crowd(25, 18, 3, seed)
    model = ds.PGM(3, 2, seed=seed, tol=0.0, max_iter=30, **EXACT, **SETTINGS[name]).fit(annotations)
    assert_never_falls(model.trace_)


@pytest.mark.parametrize("seed", range(4))
def test_on_trees_the_trace_is_the_log_posterior(seed: int) -> None:
    annotations = tree_crowd(4, 3, 3, seed)
    model = ds.PGM(2, 2, seed=seed, tol=1e-7, max_iter=3000, **EXACT).fit(annotations)
    assert model.stopped_ == "tolerance"
    truth = enumerated(annotations, model.theta_, model.psi_, model.omega_)
    parameters = Parameters(model.theta_, model.psi_, model.omega_)
    expected = truth.log_evidence + log_prior(parameters.logs, Priors(2.0, 2.0, 2.0))
    assert_allclose(model.trace_[-1], expected, rtol=1e-9)
    assert_allclose(model.item_clusters_, truth.w, rtol=1e-7, atol=1e-9)
    assert_allclose(model.annotator_clusters_, truth.z, rtol=1e-7, atol=1e-9)


def test_the_papers_m_step_can_fall_even_on_a_tree() -> None:
    """Products of beliefs are not an exact M-step, so the trace is not a bound."""
    annotations = tree_crowd(30, 8, 4, seed=9)
    settings = EXACT | SETTINGS["bp, no priors"] | {"seed": 9, "tol": 0.0, "max_iter": 40}
    trace = ds.PGM(3, 2, **settings | {"m_step": "product"}).fit(annotations).trace_
    assert np.diff(trace).min() < -1e-4
    assert_never_falls(ds.PGM(3, 2, **settings).fit(annotations).trace_)


@pytest.mark.no_cover
@pytest.mark.parametrize("m_step", ["product", "pairwise"])
def test_one_annotator_cluster_is_fmm(m_step: str) -> None:
    model = ds.PGM(3, 1, m_step=m_step, tol=1e-12, max_iter=5000).fit(CROWD)
    counts = CROWD.counts.astype(float)
    w, evidence = fmm.responsibilities(counts, model.theta_[:, 0], model.psi_)
    w = w.T
    assert_allclose(model.item_clusters_, w, rtol=1e-6, atol=1e-9)
    mixture = fmm.m_step(w.T @ counts, w.sum(axis=0), 2.0, 2.0)
    assert_allclose(model.theta_[:, 0], mixture.theta, atol=1e-4)
    assert_allclose(model.psi_, mixture.psi, atol=1e-4)
    assert_allclose(model.omega_, [1.0], rtol=1e-15)
    expected = evidence + fmm.log_prior(model.theta_[:, 0], model.psi_, 2.0, 2.0)
    assert_allclose(model.trace_[-1], expected, rtol=1e-12)
    assert_allclose(model.label_distributions_, w @ model.theta_[:, 0], rtol=1e-6)


# ---- planted clusters ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planted() -> Simulation:
    clusters = {"n_item_clusters": 4, "n_annotator_clusters": 3}
    return ds.simulate(250, 60, 4, **clusters, labels_per_item=25, alpha=0.4, seed=7)


def fitted(annotations: ds.Annotations, **settings: Any) -> ds.PGM:
    return ds.PGM(4, 3, n_restarts=4, weight_by="annotators", **settings).fit(annotations)


def agreement(planted: Simulation, model: ds.PGM) -> tuple[float, float]:
    return (
        float(adjusted_rand_score(planted.item_cluster, model.item_clusters_.argmax(axis=1))),
        float(adjusted_rand_score(planted.annotator_cluster, model.annotator_clusters_.argmax(axis=1))),
    )


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.parametrize("inference", ["bp", "vb", "annealing"])
def test_planted_clusters_and_the_population_are_found(planted: Simulation, inference: str) -> None:
    model = fitted(planted.annotations, inference=inference)
    assert min(agreement(planted, model)) > 0.95
    error, error_of_counts = (
        np.abs(estimate - planted.population).sum(axis=1).mean()
        for estimate in (model.label_distributions_, planted.annotations.counts / 25)
    )
    assert error < error_of_counts / 2


@pytest.mark.parametrize("inference", ["bp", "vb"])
def test_large_fits_start_from_a_sample(planted: Simulation, inference: str, monkeypatch: Any) -> None:
    settings: dict[str, Any] = {"inference": inference, "seed": 3}
    usual = ds.PGM(4, 3, **settings).fit(planted.annotations)
    monkeypatch.setattr("dissensus.models.pgm.model.MIN_LABELS_FOR_SAMPLE", 3_000)
    monkeypatch.setattr("dissensus.models.pgm.model.ITEMS_PER_SAMPLED", 2)
    sampled, again = (ds.PGM(4, 3, n_jobs=n, **settings).fit(planted.annotations) for n in (1, 2))
    assert min(agreement(planted, sampled)) > 0.95
    assert len(sampled.trace_) < len(usual.trace_)
    assert sampled.trace_[-1] > usual.trace_[-1] - sampled.tol * planted.annotations.n_labels
    for name in (*ds.PGM._arrays, "label_distributions_", "trace_"):
        assert getattr(sampled, name).tobytes() == getattr(again, name).tobytes(), name


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.parametrize("inference", ["bp", "vb", "annealing"])
def test_nothing_is_found_in_shuffled_labels(planted: Simulation, inference: str) -> None:
    labels = planted.annotations
    item, annotator = labels.items[labels.item], labels.annotators[labels.annotator]
    label = np.random.default_rng(0).permutation(labels.classes[labels.label])
    shuffled = ds.Annotations.from_arrays(item, annotator, label)
    items, annotators = agreement(planted, fitted(shuffled, inference=inference, max_iter=100))
    assert abs(items) < 0.05
    assert abs(annotators) < 0.1


# ---- results -------------------------------------------------------------------------------------


@pytest.mark.parametrize("inference", ["bp", "vb", "annealing"])
def test_distributions_by_assignment_and_weights(inference: str) -> None:
    for population, assignment in itertools.product(("labels", "annotators"), ("soft", "hard")):
        settings: dict[str, Any] = {"weight_by": population, "assignment": assignment, "max_iter": 15}
        model = ds.PGM(3, 2, inference=inference, **settings).fit(CROWD)
        load = np.bincount(CROWD.annotator, minlength=20)
        by_load = sum(load[n] * model.annotator_clusters_[n] for n in range(20)) / load.sum()
        weights = by_load if population == "labels" else model.omega_
        assert_allclose(model.population_weights_, weights, rtol=1e-12)
        of_cluster = np.array([sum(weights[j] * model.theta_[k, j] for j in range(2)) for k in range(3)])
        w = model.item_clusters_
        expected = w @ of_cluster if assignment == "soft" else of_cluster[w.argmax(axis=1)]
        assert_allclose(model.label_distributions_, expected, rtol=1e-12)
        assert_allclose(model.prior_distribution_, model.psi_ @ of_cluster, rtol=1e-12)


def test_predict_proba_by_hand() -> None:
    model = ds.PGM(3, 2, max_iter=15).fit(CROWD)
    m, n = 11, 4

    def mixture(w: Array, z: Array) -> list[float]:
        cells = [w[k] * z[j] * model.theta_[k, j] for k in range(3) for j in range(2)]
        return sum(cells).tolist()

    w, z = model.item_clusters_[m], model.annotator_clusters_[n]
    item, annotator = CROWD.items[m], CROWD.annotators[n]
    chances = model.predict_proba([item, item, "?", "?"], [annotator, "?", annotator, "?"])
    assert_allclose(chances[0], mixture(w, z), rtol=1e-12)
    assert_allclose(chances[1], mixture(w, model.population_weights_), rtol=1e-12)
    assert_allclose(chances[2], mixture(model.psi_, z), rtol=1e-12)
    assert_allclose(chances[3], model.prior_distribution_, rtol=1e-12)


# ---- item priors ---------------------------------------------------------------------------------------


def gold_crowd() -> tuple[ds.Annotations, NDArray[np.int64]]:
    """Simulate three classes and accuracy 0.8; the last ten of 60 items have no labels."""
    rng = np.random.default_rng(3)
    gold = rng.integers(3, size=60)
    pairs = ((m, n) for m in range(50) for n in rng.permutation(8)[:5].tolist())
    rows = [(m, n, int(gold[m] if rng.random() < 0.8 else rng.integers(3))) for m, n in pairs]
    return crowd(rows, 60, 8, 3), gold


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["bp", "vb", "annealing"])
def test_gold_prior_determines_clusters(inference: str) -> None:
    annotations, gold = gold_crowd()
    model = ds.PGM(3, 2, inference=inference, n_restarts=3)
    alone = model.fit(annotations)
    assert np.ptp(alone.item_clusters_[50:], axis=0).max() < 1e-9  # items without labels are all alike
    model.fit(annotations, prior=np.eye(3)[gold], prior_strength=10.0)
    clusters = model.item_clusters_.argmax(axis=1)
    assert adjusted_rand_score(gold, clusters) > 0.99
    assert model.predict().tolist() == annotations.classes[gold].tolist()


@pytest.mark.slow
def test_prior_counts_as_labels_of_an_average_annotator() -> None:
    annotations, _ = gold_crowd()
    prior = np.random.default_rng(1).dirichlet(np.ones(3), size=60)
    model = ds.PGM(4, 2, tol=1e-8, max_iter=1000).fit(annotations, prior=prior, prior_strength=3.0)
    average = np.einsum("l,klp->kp", model.population_weights_, model.theta_)
    for m in range(50, 60):  # without labels: ψ_k Π_p Q_kp^{S h_mp}
        chances = model.psi_ * np.prod(average ** (3.0 * prior[m]), axis=1)
        assert_allclose(model.item_clusters_[m], chances / chances.sum(), rtol=1e-3)


@pytest.mark.parametrize("inference", ["bp", "vb", "annealing"])
def test_a_prior_of_zeros_changes_nothing(inference: str) -> None:
    annotations, _ = gold_crowd()
    plain, idle = (ds.PGM(3, 2, inference=inference, max_iter=20) for _ in range(2))
    plain.fit(annotations)
    idle.fit(annotations, prior=np.zeros((60, 3)), prior_strength=10.0)
    assert_allclose(idle.item_clusters_, plain.item_clusters_, rtol=1e-9, atol=1e-15)


def test_a_negative_prior_strength_is_rejected() -> None:
    line = r"\AThe 'prior_strength' parameter of PGM must be a float >= 0\. Got -1 instead\.\Z"
    with pytest.raises(ParameterError, match=line):
        ds.PGM(3, 2).fit(CROWD, prior=np.ones((80, 3)), prior_strength=-1)


# ---- new items and annotators --------------------------------------------------------------------------


def test_new_items_by_hand() -> None:
    """Annotators 0 (twice), 3 and 7 label item x, 9 labels item y: two stars, on which beliefs are exact."""
    model = ds.PGM(3, 2, max_iter=20).fit(CROWD)
    who, labels = CROWD.annotators[[0, 0, 3, 7, 9]], CROWD.classes[[0, 2, 1, 1, 2]]
    new = ds.Annotations.from_arrays(["x"] * 4 + ["y"], who, labels, classes=CROWD.classes)
    moved = model.apply(new)
    z, theta = model.annotator_clusters_, model.theta_
    factors = {0: theta[:, :, 0] * theta[:, :, 2], 3: theta[:, :, 1], 7: theta[:, :, 1]}
    x = model.psi_ * math.prod(F @ z[n] for n, F in factors.items())
    y = model.psi_ * (theta[:, :, 2] @ z[9])
    assert_allclose(moved.item_clusters_, [x / x.sum(), y / y.sum()], rtol=1e-9)
    # belief about annotator 3, given the other labels of x
    others = model.psi_ * (factors[0] @ z[0]) * (factors[7] @ z[7])
    belief = z[3] * (others @ factors[3])
    assert_allclose(moved.annotator_clusters_[1], belief / belief.sum(), rtol=1e-9)
    average = np.einsum("l,klp->kp", model.population_weights_, theta)
    assert_allclose(moved.label_distributions_, moved.item_clusters_ @ average, rtol=1e-12)


def test_new_annotators_by_hand() -> None:
    model = ds.PGM(3, 2, max_iter=20).fit(CROWD)
    columns = CROWD.items[[2, 6, 6]], ["newcomer"] * 3, CROWD.classes[[0, 1, 1]]
    new = ds.Annotations.from_arrays(*columns, classes=CROWD.classes)
    moved = model.apply(new)
    w, theta = model.item_clusters_, model.theta_
    z = model.omega_ * (w[2] @ theta[:, :, 0]) * (w[6] @ theta[:, :, 1] ** 2)
    assert_allclose(moved.annotator_clusters_, [z / z.sum()], rtol=1e-9)


# ---- settings ------------------------------------------------------------------------------------------

CHANGES: dict[str, Any] = {"m_step": "pairwise", "bp_rounds": 3, "bp_tol": 1e9, "damping": 0.5, "n_best": 2}
CHANGES |= {"start": "random", "temperature": 3.0, "cooling": 1.0, "ascent": False}
CHANGES |= {"assignment": "hard", "weight_by": "annotators"}
BASES: dict[str, dict[str, Any]] = {name: {"inference": name} for name in ("bp", "vb", "annealing")}
BASES["bp, four rounds"] = {"inference": "bp", "bp_rounds": 4}


@pytest.mark.parametrize(
    ("base", "name"), [(base, name) for base in BASES for name in CHANGES if name not in BASES[base]]
)
def test_a_setting_has_an_effect_or_is_rejected(base: str, name: str) -> None:
    settings = {"max_iter": 12, "tol": 0.0, **BASES[base]}
    changed = ds.PGM(3, 2, **settings, **{name: CHANGES[name]})
    if name in changed._without_effect():
        with pytest.raises(ParameterError, match=f"'{name}' parameter of PGM must be"):
            changed.fit(CROWD)
        return
    changed.fit(CROWD)
    plain = ds.PGM(3, 2, **settings).fit(CROWD)
    if name == "n_best":
        assert len(plain.best_states_) < len(changed.best_states_)
    else:
        assert not np.array_equal(plain.label_distributions_, changed.label_distributions_)


@pytest.mark.parametrize("inference", ["bp", "annealing"])
@pytest.mark.parametrize("name", ["alpha", "gamma", "tau"])
def test_priors_below_one_are_rejected_without_vb(name: str, inference: str) -> None:
    rule = f"at least 1 with inference='{inference}'"
    line = rf"\AThe '{name}' parameter of PGM must be {rule}, [^\n]+\. Got 0\.5 instead\.\Z"
    with pytest.raises(ParameterError, match=line):
        ds.PGM(3, 2, inference=inference, **{name: 0.5}).fit(CROWD)
    ds.PGM(3, 2, inference=inference, max_iter=2, **{name: 1.0}).fit(CROWD)
    ds.PGM(3, 2, inference="vb", max_iter=2, **{name: 0.5}).fit(CROWD)


def test_priors_are_set_learned_or_the_papers() -> None:
    plain, vb = ds.PGM(3, 2, gamma=3.0, max_iter=5), ds.PGM(3, 2, inference="vb", gamma=3.0, max_iter=30)
    plain.fit(CROWD)
    assert (plain.alpha_, plain.gamma_, plain.tau_) == ([2.0], [3.0], [2.0])
    vb.fit(CROWD)
    assert vb.gamma_ == [3.0]
    assert vb.alpha_.size == vb.tau_.size == 1
    assert vb.alpha_ != [0.5]


def test_oscillation_is_detected() -> None:
    from dissensus.models.pgm.model import oscillates

    assert oscillates([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    assert not oscillates([0.0, 1.0, 0.0, 1.0, 0.0])  # too short
    assert not oscillates([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    assert not oscillates([0.0, 1.0, 0.5, 0.75, 0.625, 0.6875])  # each turn half as large
