"""PGM: exact where it can be, monotone where it must be, and finding what was planted."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy
from sklearn.metrics import adjusted_rand_score

import dissensus as ds
from dissensus import engine
from dissensus.errors import ParameterError
from dissensus.labels.simulation import Simulation
from dissensus.models import fmm
from dissensus.models.pgm.m_step import (
    HYPERPRIORS,
    Learned,
    MaximumPosterior,
    Parameters,
    Priors,
    VariationalBayes,
    expected_log,
    log_joint,
    log_prior,
)
from dissensus.models.pgm.messages import Potentials, Statistics
from sizes import usually
from small_graphs import crowd, enumerated, graph_of, labelled, logs, random_parameters, random_tree

Array = NDArray[np.float64]

CROWD = ds.simulate(80, 20, 3, labels_per_item=5, seed=2).annotations
# Exact EM: pairwise beliefs, and messages passed until they stand still.
EXACT: dict[str, Any] = {"m_step": "pairwise", "bp_rounds": 300, "bp_tol": 0.0}


def tree_crowd(n_items: int, n_annotators: int, n_classes: int, seed: int) -> ds.Annotations:
    """A tree's labels, two of its pairs labelled again, and an item and an annotator without labels."""
    rng = np.random.default_rng(seed)
    rows = labelled(random_tree(n_items, n_annotators, "random", rng), n_classes, rng)
    again = [(m, n, int(rng.integers(n_classes))) for m, n, _ in rows[:2]]
    return crowd([*rows, *again, rows[0]], n_items + 1, n_annotators + 1, n_classes)


def assert_never_falls(trace: Array) -> None:
    assert len(trace) > 3
    assert np.diff(trace).min() >= -1e-10 * (1 + abs(trace[-1]))


# ---- the M-steps by hand -------------------------------------------------------------------------------

STATISTICS = Statistics(
    np.array([[[3.0, 1.0], [0.0, 0.0]], [[0.5, 0.5], [0.0, 7.0]]]), np.array([2.0, 4.0]), np.array([1.0, 2.5])
)


def test_the_closed_forms_by_hand() -> None:
    learned = MaximumPosterior(Priors(2.0, 3.0, 1.5)).learn(STATISTICS, None)
    theta = [[[4 / 6, 2 / 6], [1 / 2, 1 / 2]], [[1 / 2, 1 / 2], [1 / 9, 8 / 9]]]
    np.testing.assert_allclose(learned.parameters.theta, theta, rtol=1e-15)
    np.testing.assert_allclose(learned.parameters.psi, [4 / 10, 6 / 10], rtol=1e-15)
    np.testing.assert_allclose(learned.parameters.omega, [1.5 / 4.5, 3 / 4.5], rtol=1e-15)
    np.testing.assert_allclose(learned.potentials.log_theta, np.log(theta), rtol=1e-12)
    expected = np.log(theta).sum() + 2 * np.log([0.4, 0.6]).sum() + 0.5 * np.log([1 / 3, 2 / 3]).sum()
    np.testing.assert_allclose(learned.prior_term, expected, rtol=1e-12)


def test_the_posteriors_of_variational_bayes_by_hand() -> None:
    learned = VariationalBayes(0.5, 1.0, 2.0).learn(STATISTICS, None)
    np.testing.assert_allclose(learned.parameters.theta[0], [[3.5 / 5, 1.5 / 5], [1 / 2, 1 / 2]], rtol=1e-15)
    np.testing.assert_allclose(learned.parameters.psi, [3 / 8, 5 / 8], rtol=1e-15)
    np.testing.assert_allclose(learned.parameters.omega, [3 / 7.5, 4.5 / 7.5], rtol=1e-15)
    np.testing.assert_allclose(learned.potentials.log_psi, expected_log(np.array([3.0, 5.0])), rtol=1e-15)
    assert (learned.alpha, learned.gamma, learned.tau) == ([0.5], [1.0], [2.0])


def test_no_other_parameters_beat_those_of_the_m_step() -> None:
    rng = np.random.default_rng(0)
    priors = Priors(1.4, 2.0, 3.0)
    best = MaximumPosterior(priors).learn(STATISTICS, None).parameters

    def objective(p: Parameters) -> float:
        masses = (
            (STATISTICS.label_mass, p.theta),
            (STATISTICS.item_mass, p.psi),
            (STATISTICS.annotator_mass, p.omega),
        )
        return float(sum(xlogy(mass, part).sum() for mass, part in masses)) + log_prior(p.logs, priors)

    for _ in range(100):
        t, u = 10.0 ** rng.uniform(-3, 0), 10.0 ** rng.uniform(-3, 0)
        other = Parameters(
            best.theta + t * (rng.dirichlet(np.ones(2), size=(2, 2)) - best.theta),
            best.psi + u * (rng.dirichlet(np.ones(2)) - best.psi),
            best.omega + u * (rng.dirichlet(np.ones(2)) - best.omega),
        )
        assert objective(other) < objective(best)


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


@pytest.mark.parametrize("seed", range(usually(1, verify=3)))
def test_one_annotator_cluster_never_falls_on_any_graph(seed: int) -> None:
    """With L = 1 nothing passes between items: belief propagation is exact, whatever the graph."""
    for inference in ("bp", "vb"):
        model = ds.PGM(4, 1, inference=inference, seed=seed, tol=0.0, max_iter=60).fit(CROWD)
        assert_never_falls(model.trace_)


@pytest.mark.parametrize("seed", range(4))
def test_on_trees_the_trace_is_the_log_posterior(seed: int) -> None:
    annotations = tree_crowd(4, 3, 3, seed)
    model = ds.PGM(2, 2, seed=seed, tol=1e-7, max_iter=3000, **EXACT).fit(annotations)
    assert model.stopped_ == "tolerance"
    truth = enumerated(annotations, model.theta_, model.psi_, model.omega_)
    parameters = Parameters(model.theta_, model.psi_, model.omega_)
    expected = truth.log_evidence + log_prior(parameters.logs, Priors(2.0, 2.0, 2.0))
    np.testing.assert_allclose(model.trace_[-1], expected, rtol=1e-9)
    np.testing.assert_allclose(model.item_clusters_, truth.w, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(model.annotator_clusters_, truth.z, rtol=1e-7, atol=1e-9)


def log_marginal(
    annotations: ds.Annotations, K: int, L: int, alpha: float, gamma: float, tau: float
) -> float:
    """log P(labels) with Θ, ψ and Ω integrated out, by summing over all clusters."""

    def ratio(counts: Array, prior: float) -> float:
        b = np.full(counts.shape, prior)
        parts = gammaln(b + counts).sum(-1) - gammaln(b).sum(-1) + gammaln(b.sum(-1))
        return float((parts - gammaln((b + counts).sum(-1))).sum())

    M, N, terms = annotations.n_items, annotations.n_annotators, []
    for w in itertools.product(range(K), repeat=M):
        for z in itertools.product(range(L), repeat=N):
            counts = np.zeros((K, L, annotations.n_classes))
            k, j = np.array(w)[annotations.item], np.array(z)[annotations.annotator]
            np.add.at(counts, (k, j, annotations.label), 1)
            shares = ratio(np.bincount(w, minlength=K), gamma) + ratio(np.bincount(z, minlength=L), tau)
            terms.append(ratio(counts, alpha) + shares)
    return float(np.logaddexp.reduce(terms))


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(usually(1, verify=3)))
def test_on_trees_variational_bayes_is_below_the_evidence(seed: int) -> None:
    annotations = tree_crowd(3, 2, 2, seed)
    priors = {"alpha": 0.8, "gamma": 1.5, "tau": 1.2}
    exact = log_marginal(annotations, 2, 2, **priors)
    model = ds.PGM(2, 2, inference="vb", seed=seed, tol=1e-9, **EXACT, **priors)
    trace = model.fit(annotations).trace_
    assert (trace < exact).all()
    assert exact - trace[-1] < 3.0  # and not far below


def test_the_bound_of_variational_bayes_holds_the_hyperpriors() -> None:
    """Bound = log Z of the expected logarithms − KL(q ‖ prior) + log of each learned prior's own density."""
    annotations = tree_crowd(3, 2, 2, 0)
    graph, learner = graph_of(annotations), VariationalBayes(None, 1.5, None)
    rng = np.random.default_rng(0)
    beliefs = graph.start(rng.dirichlet(np.ones(2), size=4), rng.dirichlet(np.ones(2), size=3))
    learned: Learned | None = None
    for _ in range(3):
        theta = None if learned is None else learned.potentials.log_theta
        learned = learner.learn(graph.statistics(beliefs, theta), learned)
        beliefs = graph.settle(beliefs, learned.potentials, rounds=50, tol=-np.inf)
    assert learned is not None
    tables = (learned.potentials.log_theta, learned.potentials.log_psi, learned.potentials.log_omega)
    truth = enumerated(annotations, *(np.exp(table) for table in tables))
    np.testing.assert_allclose(graph.evidence(beliefs), truth.log_evidence, rtol=1e-9)
    given = VariationalBayes(float(learned.alpha[0]), 1.5, float(learned.tau[0])).learn(
        graph.statistics(beliefs, tables[0]), None
    )
    again = learner.learn(graph.statistics(beliefs, tables[0]), learned)
    densities = [HYPERPRIORS[name].log_density(float(getattr(again, name)[0])) for name in ("alpha", "tau")]
    fixed = VariationalBayes(float(again.alpha[0]), 1.5, float(again.tau[0])).learn(
        graph.statistics(beliefs, tables[0]), None
    )
    np.testing.assert_allclose(again.prior_term, fixed.prior_term + sum(densities), rtol=1e-9)
    assert given.prior_term != fixed.prior_term


@pytest.mark.no_cover
@pytest.mark.slow
def test_on_loops_the_trace_is_bethes_form() -> None:
    model = ds.PGM(3, 2, tol=1e-10, max_iter=3000, bp_rounds=200, bp_tol=0.0).fit(CROWD)
    graph, potentials = graph_of(CROWD), logs(model.theta_, model.psi_, model.omega_)
    beliefs = graph.start(model.item_clusters_, model.annotator_clusters_)
    beliefs = graph.settle(beliefs, potentials, rounds=500, tol=-np.inf)
    parameters = Parameters(model.theta_, model.psi_, model.omega_)
    expected = graph.evidence(beliefs) + log_prior(parameters.logs, Priors(2.0, 2.0, 2.0))
    np.testing.assert_allclose(model.trace_[-1], expected, rtol=1e-7)


def test_the_papers_m_step_can_fall_even_on_a_tree() -> None:
    """Products of node beliefs are no exact M-step; that is why the trace is called no bound."""
    annotations = tree_crowd(30, 8, 4, seed=9)
    settings = EXACT | SETTINGS["bp, no priors"] | {"seed": 9, "tol": 0.0, "max_iter": 40}
    trace = ds.PGM(3, 2, **settings | {"m_step": "product"}).fit(annotations).trace_
    assert np.diff(trace).min() < -1e-4
    assert_never_falls(ds.PGM(3, 2, **settings).fit(annotations).trace_)


# ---- the L = 1 case is FMM -----------------------------------------------------------------------------


def test_with_one_annotator_cluster_beliefs_are_fmms_responsibilities() -> None:
    rng = np.random.default_rng(0)
    theta, psi, _ = random_parameters(4, 1, 3, rng)
    graph = graph_of(CROWD)
    start = graph.start(np.full((80, 4), 0.25), np.ones((20, 1)))
    beliefs = graph.round(start, logs(theta, psi, np.ones(1)))
    w, evidence = fmm.responsibilities(CROWD.counts.astype(float), theta[:, 0], psi)
    w = w.T
    np.testing.assert_allclose(beliefs.w, w, rtol=1e-9)
    np.testing.assert_allclose(graph.evidence(beliefs), evidence, rtol=1e-12)


@pytest.mark.no_cover
@pytest.mark.parametrize("m_step", ["product", "pairwise"])
def test_with_one_annotator_cluster_a_fit_ends_where_fmm_would_stay(m_step: str) -> None:
    model = ds.PGM(3, 1, m_step=m_step, tol=1e-12, max_iter=5000).fit(CROWD)
    counts = CROWD.counts.astype(float)
    w, evidence = fmm.responsibilities(counts, model.theta_[:, 0], model.psi_)
    w = w.T
    np.testing.assert_allclose(model.item_clusters_, w, rtol=1e-6, atol=1e-9)
    theta, psi = fmm.m_step(w.T @ counts, w.sum(axis=0), 2.0, 2.0)
    np.testing.assert_allclose(model.theta_[:, 0], theta, atol=1e-4)
    np.testing.assert_allclose(model.psi_, psi, atol=1e-4)
    np.testing.assert_allclose(model.omega_, [1.0], rtol=1e-15)
    expected = evidence + fmm.log_prior(model.theta_[:, 0], model.psi_, 2.0, 2.0)
    np.testing.assert_allclose(model.trace_[-1], expected, rtol=1e-12)
    np.testing.assert_allclose(model.label_distributions_, w @ model.theta_[:, 0], rtol=1e-6)


# ---- what was planted ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def planted() -> Simulation:
    return ds.simulate(
        *(250, 60, 4), n_item_clusters=4, n_annotator_clusters=3, labels_per_item=25, alpha=0.4, seed=7
    )


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
    items, annotators = agreement(planted, model)
    assert items > 0.95
    assert annotators > 0.95
    counts = planted.annotations.counts / 25
    gap = {
        name: np.abs(estimate - planted.population).sum(axis=1).mean()
        for name, estimate in (("model", model.label_distributions_), ("counts", counts))
    }
    assert gap["model"] < gap["counts"] / 2


@pytest.mark.parametrize("inference", ["bp", "vb"])
def test_pairwise_counts_find_planted_clusters(planted: Simulation, inference: str) -> None:
    model = fitted(planted.annotations, inference=inference, m_step="pairwise")
    items, annotators = agreement(planted, model)
    assert items > 0.95
    assert annotators > 0.95


@pytest.mark.parametrize("inference", ["bp", "vb"])
def test_a_fit_to_many_labels_begins_where_a_fit_to_a_sample_ended(
    planted: Simulation, inference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"inference": inference, "seed": 3}
    usual = ds.PGM(4, 3, **settings).fit(planted.annotations)
    monkeypatch.setattr("dissensus.models.pgm.model.MANY_LABELS", 3_000)
    monkeypatch.setattr("dissensus.models.pgm.model.SAMPLED", 2)
    sampled, again = (ds.PGM(4, 3, n_jobs=n, **settings).fit(planted.annotations) for n in (1, 2))
    assert min(agreement(planted, sampled)) > 0.95
    assert len(sampled.trace_) < len(usual.trace_)
    assert sampled.trace_[-1] > usual.trace_[-1] - sampled.tol * planted.annotations.n_labels
    for name in (*ds.PGM._arrays, "label_distributions_", "trace_"):
        assert getattr(sampled, name).tobytes() == getattr(again, name).tobytes(), name


def test_a_sample_that_misses_most_labels_is_not_begun_with(monkeypatch: pytest.MonkeyPatch) -> None:
    lone = ds.Annotations.from_arrays(["a"] * 40, range(40), [0, 1] * 20)
    usual = ds.PGM(2, 2).fit(lone)
    monkeypatch.setattr("dissensus.models.pgm.model.MANY_LABELS", 40)
    monkeypatch.setattr("dissensus.models.pgm.model.SAMPLED", 10**9)
    np.testing.assert_allclose(ds.PGM(2, 2).fit(lone).trace_[-1], usual.trace_[-1], rtol=1e-3)


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.parametrize("inference", ["bp", "vb", "annealing"])
def test_nothing_is_found_once_labels_are_dealt_out_anew(planted: Simulation, inference: str) -> None:
    known = planted.annotations
    dealt = np.random.default_rng(0).permutation(known.label)
    shuffled = ds.Annotations.from_arrays(
        known.items[known.item], known.annotators[known.annotator], known.classes[dealt]
    )
    items, annotators = agreement(planted, fitted(shuffled, inference=inference, max_iter=100))
    assert abs(items) < 0.05
    assert abs(annotators) < 0.1


# ---- what it gives -------------------------------------------------------------------------------------


@pytest.mark.parametrize("inference", ["bp", "vb", "annealing"])
def test_hard_and_soft_labels_and_annotators(inference: str) -> None:
    for population, assignment in itertools.product(("labels", "annotators"), ("soft", "hard")):
        settings: dict[str, Any] = {"weight_by": population, "assignment": assignment, "max_iter": 15}
        model = ds.PGM(3, 2, inference=inference, **settings).fit(CROWD)
        load = np.bincount(CROWD.annotator, minlength=20)
        by_load = sum(load[n] * model.annotator_clusters_[n] for n in range(20)) / load.sum()
        weights = by_load if population == "labels" else model.omega_
        np.testing.assert_allclose(model.population_weights_, weights, rtol=1e-12)
        of_cluster = np.array([sum(weights[j] * model.theta_[k, j] for j in range(2)) for k in range(3)])
        w = model.item_clusters_
        expected = w @ of_cluster if assignment == "soft" else of_cluster[w.argmax(axis=1)]
        np.testing.assert_allclose(model.label_distributions_, expected, rtol=1e-12)
        np.testing.assert_allclose(model.prior_distribution_, model.psi_ @ of_cluster, rtol=1e-12)


@pytest.mark.parametrize("inference", ["bp", "vb", "annealing"])
def test_the_chance_of_a_label_given_item_and_annotator(inference: str) -> None:
    model = ds.PGM(3, 2, inference=inference, max_iter=15).fit(CROWD)
    m, n = 11, 4

    def mixture(w: Array, z: Array) -> list[float]:
        return [
            sum(w[k] * z[j] * model.theta_[k, j, p] for k in range(3) for j in range(2)) for p in range(3)
        ]

    w, z = model.item_clusters_[m], model.annotator_clusters_[n]
    item, annotator = CROWD.items[m], CROWD.annotators[n]
    chances = model.predict_proba([item, item, "?", "?"], [annotator, "?", annotator, "?"])
    np.testing.assert_allclose(chances[0], mixture(w, z), rtol=1e-12)
    np.testing.assert_allclose(chances[1], mixture(w, model.population_weights_), rtol=1e-12)
    np.testing.assert_allclose(chances[2], mixture(model.psi_, z), rtol=1e-12)
    np.testing.assert_allclose(chances[3], model.prior_distribution_, rtol=1e-12)


def test_annealing_keeps_the_best_states_and_their_conditionals() -> None:
    model = ds.PGM(3, 2, inference="annealing", n_best=3, max_iter=80, tol=0.0).fit(CROWD)
    assert model.best_states_[0][0] == model.trace_.max()
    assert len({state.w.tobytes() + state.z.tobytes() for _, state in model.best_states_}) == 3
    value, state = model.best_states_[0]
    expected = log_joint(CROWD, state.parameters, state.w, state.z, Priors(2.0, 2.0, 2.0))
    np.testing.assert_allclose(value, expected, rtol=1e-12)
    np.testing.assert_array_equal(model.theta_, state.parameters.theta)
    chances = state.parameters.psi.copy()
    for m, n, y in zip(CROWD.item, CROWD.annotator, CROWD.label, strict=True):
        if m == 5:
            chances *= state.parameters.theta[:, state.z[n], y]
    np.testing.assert_allclose(model.item_clusters_[5], chances / chances.sum(), rtol=1e-9)


@pytest.mark.slow
def test_the_best_of_the_restarts_is_kept() -> None:
    for inference in ("bp", "vb", "annealing"):
        tops = [
            ds.PGM(5, 3, inference=inference, n_restarts=n, max_iter=40, tol=0.0).fit(CROWD).trace_
            for n in (1, 5)
        ]
        pick = max if inference == "annealing" else (lambda trace: trace[-1])
        assert pick(tops[1]) >= pick(tops[0])


# ---- item priors ---------------------------------------------------------------------------------------


def gold_crowd() -> tuple[ds.Annotations, NDArray[np.int64]]:
    """Three classes, five annotators right four times in five; the last ten of 60 items have no label."""
    rng = np.random.default_rng(3)
    gold = rng.integers(3, size=60)
    rows = [
        (m, n, int(gold[m] if rng.random() < 0.8 else rng.integers(3)))
        for m in range(50)
        for n in rng.permutation(8)[:5].tolist()
    ]
    return crowd(rows, 60, 8, 3), gold


@pytest.mark.slow
@pytest.mark.parametrize("inference", ["bp", "vb", "annealing"])
def test_gold_as_pseudo_labels_pulls_items_together(inference: str) -> None:
    annotations, gold = gold_crowd()
    model = ds.PGM(3, 2, inference=inference, n_restarts=3)
    alone = model.fit(annotations)
    assert np.ptp(alone.item_clusters_[50:], axis=0).max() < 1e-9  # nothing known of items without labels
    model.fit(annotations, prior=np.eye(3)[gold], prior_worth=10.0)
    clusters = model.item_clusters_.argmax(axis=1)
    assert adjusted_rand_score(gold, clusters) > 0.99
    assert model.predict().tolist() == annotations.classes[gold].tolist()


@pytest.mark.slow
def test_an_pseudo_labels_counts_as_labels_of_an_average_annotator() -> None:
    annotations, _ = gold_crowd()
    prior = np.random.default_rng(1).dirichlet(np.ones(3), size=60)
    model = ds.PGM(4, 2, tol=1e-8, max_iter=1000).fit(annotations, prior=prior, prior_worth=3.0)
    average = np.einsum("l,klp->kp", model.population_weights_, model.theta_)
    for m in range(50, 60):  # without labels: ψ_k Π_p Q_kp^{S h_mp} is all there is
        chances = model.psi_ * np.prod(average ** (3.0 * prior[m]), axis=1)
        np.testing.assert_allclose(model.item_clusters_[m], chances / chances.sum(), rtol=1e-3)


def test_an_pseudo_labels_of_no_labels_changes_nothing() -> None:
    annotations, gold = gold_crowd()
    plain = ds.PGM(3, 2, max_iter=20).fit(annotations)
    idle = ds.PGM(3, 2, max_iter=20).fit(annotations, prior=np.eye(3)[gold], prior_worth=0.0)
    np.testing.assert_allclose(idle.item_clusters_, plain.item_clusters_, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("inference", ["bp", "vb", "annealing"])
def test_a_row_of_zeros_says_nothing_of_its_item(inference: str) -> None:
    annotations, gold = gold_crowd()
    plain, idle = (ds.PGM(3, 2, inference=inference, max_iter=20) for _ in range(2))
    plain.fit(annotations)
    idle.fit(annotations, prior=np.zeros((60, 3)), prior_worth=10.0)
    np.testing.assert_allclose(idle.item_clusters_, plain.item_clusters_, rtol=1e-9, atol=1e-15)
    some = np.where(np.arange(60)[:, None] < 55, np.eye(3)[gold], 0.0)
    model = ds.PGM(3, 2, inference="bp", n_restarts=3).fit(annotations, prior=some, prior_worth=10.0)
    np.testing.assert_allclose(model.item_clusters_[55:], np.tile(model.psi_, (5, 1)), rtol=1e-4)


@pytest.mark.parametrize(
    ("prior", "line"),
    [
        (np.ones((4, 3)), r"must be of shape \(80, 3\)\. Got \(4, 3\) instead\."),
        (np.ones(80), r"must be of shape \(80, 3\)\. Got \(80,\) instead\."),
        (-np.ones((80, 3)), r"must be probabilities, all >= 0\. Got -1\.0 instead\."),
        (np.full((80, 3), np.nan), r"must be probabilities, all >= 0\. Got nan instead\."),
    ],
)
def test_a_prior_that_is_none_is_refused(prior: Array, line: str) -> None:
    with pytest.raises(ParameterError, match=rf"\AThe 'prior' parameter of PGM {line}\Z"):
        ds.PGM(3, 2).fit(CROWD, prior=prior)


def test_a_negative_number_of_prior_labels_is_refused() -> None:
    line = r"\AThe 'prior_worth' parameter of PGM must be a float >= 0\. Got -1 instead\.\Z"
    with pytest.raises(ParameterError, match=line):
        ds.PGM(3, 2).fit(CROWD, prior=np.ones((80, 3)), prior_worth=-1)


# ---- new items and annotators --------------------------------------------------------------------------


@pytest.mark.parametrize("inference", ["bp", "vb", "annealing"])
def test_the_training_data_get_their_beliefs_back(inference: str) -> None:
    model = ds.PGM(3, 2, inference=inference, max_iter=20).fit(CROWD)
    moved = model.apply(CROWD)
    np.testing.assert_allclose(moved.item_clusters_, model.item_clusters_, rtol=1e-9, atol=1e-15)
    np.testing.assert_allclose(moved.annotator_clusters_, model.annotator_clusters_, rtol=1e-9, atol=1e-15)


def test_a_new_item_gets_belief_propagation_by_hand() -> None:
    """Annotators 0 (twice), 3 and 7 on item x, 9 on item y: two stars, so the beliefs are exact."""
    model = ds.PGM(3, 2, max_iter=20).fit(CROWD)
    who, labels = CROWD.annotators[[0, 0, 3, 7, 9]], CROWD.classes[[0, 2, 1, 1, 2]]
    new = ds.Annotations.from_arrays(["x"] * 4 + ["y"], who, labels, classes=CROWD.classes)
    moved = model.apply(new)
    z, theta = model.annotator_clusters_, model.theta_
    factors = {0: theta[:, :, 0] * theta[:, :, 2], 3: theta[:, :, 1], 7: theta[:, :, 1]}
    x = model.psi_ * math.prod(F @ z[n] for n, F in factors.items())
    y = model.psi_ * (theta[:, :, 2] @ z[9])
    np.testing.assert_allclose(moved.item_clusters_, [x / x.sum(), y / y.sum()], rtol=1e-9)
    # What annotator 3 is believed to be, x having been seen with everybody else's labels.
    others = model.psi_ * (factors[0] @ z[0]) * (factors[7] @ z[7])
    belief = z[3] * (others @ factors[3])
    np.testing.assert_allclose(moved.annotator_clusters_[1], belief / belief.sum(), rtol=1e-9)
    average = np.einsum("l,klp->kp", model.population_weights_, theta)
    np.testing.assert_allclose(moved.label_distributions_, moved.item_clusters_ @ average, rtol=1e-12)


def test_a_new_annotator_gets_belief_propagation_by_hand() -> None:
    model = ds.PGM(3, 2, max_iter=20).fit(CROWD)
    new = ds.Annotations.from_arrays(
        CROWD.items[[2, 6, 6]], ["newcomer"] * 3, CROWD.classes[[0, 1, 1]], classes=CROWD.classes
    )
    moved = model.apply(new)
    w, theta = model.item_clusters_, model.theta_
    z = model.omega_ * (w[2] @ theta[:, :, 0]) * (w[6] @ theta[:, :, 1] ** 2)
    np.testing.assert_allclose(moved.annotator_clusters_, [z / z.sum()], rtol=1e-9)


def test_labels_between_known_items_and_annotators_are_not_counted_twice() -> None:
    model = ds.PGM(3, 2, max_iter=20).fit(CROWD)
    some = CROWD.take_items(np.arange(10))
    np.testing.assert_allclose(
        model.apply(some).item_clusters_, model.item_clusters_[:10], rtol=1e-9, atol=1e-15
    )


def test_new_items_by_new_annotators_are_exact_on_a_tree() -> None:
    model = ds.PGM(2, 2, max_iter=20).fit(CROWD)
    annotations = tree_crowd(3, 3, 3, seed=5)
    new = ds.Annotations.from_arrays(
        [f"new {m}" for m in annotations.item],
        [f"new {n}" for n in annotations.annotator],
        CROWD.classes[annotations.label],
        classes=CROWD.classes,
    )
    moved = model.apply(new)
    truth = enumerated(annotations, model.theta_, model.psi_, model.omega_)
    np.testing.assert_allclose(moved.item_clusters_, truth.w[:3], rtol=1e-6)
    np.testing.assert_allclose(moved.annotator_clusters_, truth.z[:3], rtol=1e-6)


# ---- nothing but labels and settings decides -----------------------------------------------------------


@pytest.mark.no_cover
@pytest.mark.slow
@pytest.mark.parametrize("n_restarts", [1, 3])
@pytest.mark.parametrize("inference", ["bp", "vb", "annealing"])
@pytest.mark.parametrize("shard_labels", [60, 10**6])
def test_the_number_of_jobs_does_not_matter(
    inference: str, n_restarts: int, shard_labels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "LABELS_PER_SHARD", shard_labels)
    n_shards = sum(len(block.item_bounds) - 1 for block in engine.cut_blocks(CROWD))
    assert n_shards == (7 if shard_labels == 60 else 1)
    settings: dict[str, Any] = {"inference": inference, "n_restarts": n_restarts, "max_iter": 15}
    one, two = (ds.PGM(4, 3, n_jobs=n_jobs, **settings).fit(CROWD) for n_jobs in (1, 2))
    for name in (*ds.PGM._arrays, "label_distributions_", "trace_"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes(), name


@pytest.mark.parametrize("inference", ["bp", "vb"])
def test_how_items_are_cut_into_shards_does_not_matter(
    inference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = ds.PGM(3, 2, inference=inference, max_iter=10).fit(CROWD)
    monkeypatch.setattr(engine, "LABELS_PER_SHARD", 50)
    pieces = ds.PGM(3, 2, inference=inference, max_iter=10).fit(CROWD)
    np.testing.assert_allclose(pieces.theta_, whole.theta_, rtol=1e-9)
    np.testing.assert_allclose(pieces.trace_, whole.trace_, rtol=1e-12)


# ---- settings ------------------------------------------------------------------------------------------

CHANGES: dict[str, Any] = {
    "m_step": "pairwise",
    "bp_rounds": 3,
    "bp_tol": 1e9,
    "damping": 0.5,
    "n_best": 2,
    "start": "random",
    "temperature": 3.0,
    "cooling": 1.0,
    "ascent": False,
    "assignment": "hard",
    "weight_by": "annotators",
}


BASES: dict[str, dict[str, Any]] = {
    "bp": {"inference": "bp"},
    "bp, four rounds": {"inference": "bp", "bp_rounds": 4},
    "vb": {"inference": "vb"},
    "annealing": {"inference": "annealing"},
}


@pytest.mark.parametrize(
    ("base", "name"), [(base, name) for base in BASES for name in CHANGES if name not in BASES[base]]
)
def test_a_setting_has_an_effect_or_is_refused(base: str, name: str) -> None:
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
def test_priors_below_one_are_refused_where_closed_forms_need_more(name: str, inference: str) -> None:
    line = (
        rf"\AThe '{name}' parameter of PGM must be at least 1 with inference='{inference}', [^\n]+\. "
        r"Got 0\.5 instead\.\Z"
    )
    with pytest.raises(ParameterError, match=line):
        ds.PGM(3, 2, inference=inference, **{name: 0.5}).fit(CROWD)
    ds.PGM(3, 2, inference=inference, max_iter=2, **{name: 1.0}).fit(CROWD)
    ds.PGM(3, 2, inference="vb", max_iter=2, **{name: 0.5}).fit(CROWD)


def test_given_priors_are_kept_and_others_learned_or_the_papers() -> None:
    plain, vb = ds.PGM(3, 2, gamma=3.0, max_iter=5), ds.PGM(3, 2, inference="vb", gamma=3.0, max_iter=30)
    plain.fit(CROWD)
    assert (plain.alpha_, plain.gamma_, plain.tau_) == ([2.0], [3.0], [2.0])
    vb.fit(CROWD)
    assert vb.gamma_ == [3.0]
    assert vb.alpha_.size == vb.tau_.size == 1
    assert vb.alpha_ != [0.5]


@pytest.mark.slow
def test_damping_ends_where_undamped_messages_end() -> None:
    plain, damped = (
        ds.PGM(3, 2, bp_rounds=30, bp_tol=1e-12, damping=damping, tol=1e-8, max_iter=500).fit(CROWD)
        for damping in (0.0, 0.4)
    )
    np.testing.assert_allclose(damped.trace_[-1], plain.trace_[-1], rtol=1e-6)
    np.testing.assert_allclose(damped.label_distributions_, plain.label_distributions_, atol=1e-3)


def test_potentials_with_evidence_are_rows_of_items() -> None:
    """What an item prior becomes: log ψ_k + S Σ_p h_mp log Q_kp, worked by hand."""
    from dissensus.models.pgm.messages import with_prior

    theta = np.array([[[0.9, 0.1], [0.5, 0.5]], [[0.2, 0.8], [0.4, 0.6]]])
    potentials = Potentials(np.log(theta), np.log([0.3, 0.7]), np.log([0.5, 0.5]))
    moved = with_prior(
        potentials, 2.0 * np.array([[1.0, 0.0], [0.25, 0.75]]), np.eye(2), np.array([3.0, 1.0])
    )
    # Q = (3 Θ_k0 + Θ_k1) / 4 = [[.8, .2], [.25, .75]]
    expected = [
        [math.log(0.3 * 0.8**2), math.log(0.7 * 0.25**2)],
        [math.log(0.3 * 0.8**0.5 * 0.2**1.5), math.log(0.7 * 0.25**0.5 * 0.75**1.5)],
    ]
    np.testing.assert_allclose(moved.log_psi, expected, rtol=1e-12)


def test_an_objective_that_keeps_swinging_is_told_from_one_that_calms_down() -> None:
    from dissensus.models.pgm.model import swings

    assert swings([0.0, 1.0, 0.0, 1.0, 0.0, 1.0])
    assert not swings([0.0, 1.0, 0.0, 1.0, 0.0])  # too short to tell
    assert not swings([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    assert not swings([0.0, 1.0, 0.5, 0.75, 0.625, 0.6875])  # each turn half as large


def test_damping_is_said_when_it_is_used() -> None:
    assert float(ds.PGM(3, 2, max_iter=5).fit(CROWD).damping_) == 0.0
    assert float(ds.PGM(3, 2, max_iter=5, damping=0.3).fit(CROWD).damping_) == 0.3


def test_chances_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dissensus.models.scoring.ROWS_AT_A_TIME", 500)
    known = ds.simulate(400, 40, 4, labels_per_item=6, seed=3).annotations
    fitted = ds.PGM(4, 3, max_iter=5, n_jobs=1).fit(known)
    pairs = known.items[known.item], known.annotators[known.annotator]
    alone = fitted.predict_proba(*pairs)
    np.testing.assert_array_equal(fitted.set_params(n_jobs=2).predict_proba(*pairs), alone)
    np.testing.assert_allclose(
        np.log(alone[np.arange(known.n_labels), known.label]).mean(), fitted.score(known)
    )
