"""CBCC: memberships by integration, a bound that never falls and is below the evidence, communities found."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.integrate import quad
from scipy.special import gammaln
from scipy.stats import beta
from sklearn.metrics import adjusted_rand_score

import dissensus as ds
from dissensus import engine
from dissensus.engine import Engine
from dissensus.models.cbcc import by_community, memberships
from dissensus.models.confusion import ConfusionSteps
from dissensus.models.ibcc import LEAST, MOST, expected_log, fixed_point
from dissensus.numerics import normalised
from small_graphs import crowd

pytestmark = pytest.mark.no_cover

Array = NDArray[np.float64]

CROWD = ds.simulate(100, 18, 3, labels_per_item=6, seed=1).annotations


def log_beta(a: Array) -> float:
    return float(sum(gammaln(x) for x in a) - gammaln(sum(a)))


class Communities(NamedTuple):
    psi: Array
    omega: Array
    a: Array


def random_communities(L: int, P: int, seed: int) -> Communities:
    rng = np.random.default_rng(seed)
    return Communities(rng.dirichlet(np.ones(P)), rng.dirichlet(np.ones(L)), rng.gamma(2.0, size=(L, P, P)))


# ---- memberships and expectations ----------------------------------------------------------------------


@pytest.mark.slow
def test_memberships_equal_numerical_integration() -> None:
    """P(z_n = l | counts) with the two rows of a 2 × 2 matrix integrated out one by one."""
    communities = random_communities(3, 2, 0)
    counts = np.array([[[3.0, 1.0], [0.4, 2.6]], [[0.0, 0.0], [1.0, 0.0]]])

    def likelihood(n: Array, a: Array) -> float:
        rows = [
            quad(lambda x, k=k: x ** n[k, 0] * (1 - x) ** n[k, 1] * beta.pdf(x, *a[k]), 0, 1)[0]
            for k in (0, 1)
        ]
        return rows[0] * rows[1]

    z, terms = memberships(counts, communities.omega, communities.a)
    for n in range(2):
        joint = [communities.omega[j] * likelihood(counts[n], communities.a[j]) for j in range(3)]
        np.testing.assert_allclose(z[n], np.array(joint) / sum(joint), rtol=1e-6)
        np.testing.assert_allclose(terms[n], math.log(sum(joint)), rtol=1e-6)


def test_expected_logs_equal_numerical_integration() -> None:
    """E log π_nkp under the mixture over communities of Dirichlet posteriors."""
    communities = random_communities(2, 2, 1)
    counts = np.array([[[2.0, 0.5], [0.0, 4.0]]])
    z = np.array([[0.3, 0.7]])
    found = by_community(expected_log, counts, z, communities.a)
    for k in range(2):
        expected = sum(
            z[0, j]
            * quad(
                lambda x, j=j, k=k: math.log(x) * beta.pdf(x, *(communities.a[j, k] + counts[0, k])), 0, 1
            )[0]
            for j in range(2)
        )
        np.testing.assert_allclose(found[0, k, 0], expected, rtol=1e-6)


def test_an_annotator_without_labels_belongs_as_the_shares_say() -> None:
    communities = random_communities(3, 4, 2)
    z, terms = memberships(np.zeros((1, 4, 4)), communities.omega, communities.a)
    np.testing.assert_allclose(z[0], communities.omega, rtol=1e-12)
    np.testing.assert_allclose(terms, [0.0], atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_tight_communities_are_tied(seed: int) -> None:
    """As the concentration grows, members answer exactly like their community: PGM with K = P."""
    rng = np.random.default_rng(seed)
    theta = rng.dirichlet(np.ones(3), size=(2, 3))  # community, true class, answer
    omega, counts = rng.dirichlet(np.ones(2)), rng.gamma(1.0, size=(4, 3, 3))
    tied = Communities(np.full(3, 1 / 3), omega, 1e7 * theta)
    z, _ = memberships(counts, tied.omega, tied.a)
    expected = np.array(
        [[omega[j] * math.exp((counts[n] * np.log(theta[j])).sum()) for j in range(2)] for n in range(4)]
    )
    np.testing.assert_allclose(z, expected / expected.sum(axis=1, keepdims=True), rtol=1e-3)
    logs_of = np.einsum("nl,lkp->nkp", z, np.log(theta))
    np.testing.assert_allclose(by_community(expected_log, counts, z, tied.a), logs_of, rtol=1e-3)


def test_a_round_with_tight_communities_is_a_mean_field_round_of_pgm() -> None:
    rng = np.random.default_rng(4)
    theta, psi, omega = (
        rng.dirichlet(np.ones(3), size=(3, 2)),
        rng.dirichlet(np.ones(3)),
        rng.dirichlet(np.ones(2)),
    )
    w = rng.dirichlet(np.ones(3), size=100)
    tied = Communities(psi, omega, 1e7 * theta.transpose(1, 0, 2))
    members = ConfusionSteps(CROWD, Engine())
    counts = members.expected_counts(w).counts
    z, _ = memberships(counts, tied.omega, tied.a)
    following = members.posterior(
        by_community(expected_log, counts, z, tied.a), np.log(psi), np.zeros(len(psi))
    )
    # log w_mk = log ψ_k + Σ_{labels of m} Σ_l z_nl log Θ_kly
    scores = np.tile(np.log(psi), (100, 1))
    for m, n, y in zip(CROWD.item, CROWD.annotator, CROWD.label, strict=True):
        scores[m] += np.log(theta[:, :, y]) @ z[n]
    expected = np.exp(scores - scores.max(axis=1, keepdims=True))
    np.testing.assert_allclose(
        following, expected / expected.sum(axis=1, keepdims=True), rtol=1e-4, atol=1e-9
    )


# ---- the fixed point -----------------------------------------------------------------------------------


def community_objective(counts: Array, share: Array, a: Array, concentration: float) -> float:
    """What one community adds to the bound: Σ_n z_n Σ_k log B(a_k + n_nk) / B(a_k) − Σ a / c."""
    fit = sum(
        share[n] * (log_beta(a[k] + counts[n, k]) - log_beta(a[k]))
        for n in range(len(counts))
        for k in range(a.shape[0])
    )
    return float(fit - a.sum() / concentration)


@pytest.mark.parametrize("seed", range(60))
def test_the_fixed_point_never_lowers_the_bound(seed: int) -> None:
    """Counts of all sizes, fractions below one among them: Minka's own proof is for whole counts."""
    rng = np.random.default_rng(seed)
    N, P = rng.integers(1, 5), rng.integers(2, 4)
    counts = rng.gamma(rng.choice([0.05, 0.3, 3.0]), 10.0 ** rng.uniform(-2, 1.5), size=(N, P, P))
    a = np.clip(rng.gamma(0.5, 10.0 ** rng.uniform(-2, 2), size=(1, P, P)), LEAST, MOST)
    z, concentration = rng.random((N, 1)), 10.0 ** rng.uniform(-1, 3)
    for _ in range(5):
        following = fixed_point(counts, z, a, concentration)
        before = community_objective(counts, z[:, 0], a[0], concentration)
        after = community_objective(counts, z[:, 0], following[0], concentration)
        assert after >= before - 1e-10 * (1 + abs(before))
        a = following


def test_the_fixed_point_stands_still_at_the_maximum() -> None:
    rng = np.random.default_rng(9)
    counts, z = rng.gamma(2.0, 3.0, size=(12, 2, 2)), np.ones((12, 1))
    a = np.ones((1, 2, 2))
    for _ in range(5000):
        a = fixed_point(counts, z, a, 10.0)
    best = community_objective(counts, z[:, 0], a[0], 10.0)
    for _ in range(100):
        near = a[0] * np.exp(rng.normal(0, 10.0 ** rng.uniform(-3, -0.5), size=(2, 2)))
        assert community_objective(counts, z[:, 0], near, 10.0) < best


def test_a_community_whose_members_scatter_is_told_from_one_whose_members_keep_together() -> None:
    rng = np.random.default_rng(3)
    sums = []
    for true in (2.0, 50.0):
        matrices = rng.beta(0.8 * true, 0.2 * true, size=200)
        right = rng.binomial(40, matrices)
        counts = np.stack([right, 40 - right], axis=1)[:, None, :].repeat(2, axis=1).astype(float)
        a = np.full((1, 2, 2), 5.0)
        for _ in range(800):
            a = fixed_point(counts, np.ones((200, 1)), a, 1e4)
        sums.append(a[0, 0].sum())
        np.testing.assert_allclose(a[0, 0] / a[0, 0].sum(), [0.8, 0.2], atol=0.03)
    np.testing.assert_allclose(sums, [2.0, 50.0], rtol=0.3)


# ---- the bound -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("concentration", [0.5, 10.0, 1000.0])
@pytest.mark.parametrize("L", [1, 3])
@pytest.mark.parametrize("seed", range(2))
def test_the_bound_never_falls(seed: int, L: int, concentration: float) -> None:
    trace = ds.CBCC(L, concentration=concentration, seed=seed, tol=0.0, max_iter=80).fit(CROWD).trace_
    assert len(trace) > 5
    assert np.diff(trace).min() >= -1e-12 * abs(trace[-1])
    assert trace[-1] > trace[0]


@pytest.mark.data
@pytest.mark.parametrize("dataset", ["anesthesia", "bluebirds", "weather_sentiment_cf"])
def test_the_bound_never_falls_on_real_labels(data_dir: Path, dataset: str) -> None:
    annotations = ds.read_annotations(data_dir / dataset / "annotations.csv")
    trace = ds.CBCC(3, tol=0.0, max_iter=30).fit(annotations).trace_
    assert np.diff(trace).min() >= -1e-12 * abs(trace[-1])


def bound_by_hand(
    annotations: ds.Annotations, w: Array, communities: Communities, concentration: float
) -> float:
    """Equation (3) of the module, term by term."""
    P, N = annotations.n_classes, annotations.n_annotators
    counts = np.zeros((N, P, P))
    for m, n, y in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        counts[n, :, y] += w[m]
    bound = sum(x * math.log(communities.psi[k] / x) for row in w for k, x in enumerate(row) if x > 0)
    for n in range(N):
        bound += math.log(
            sum(
                share * math.exp(sum(log_beta(a[k] + counts[n, k]) - log_beta(a[k]) for k in range(P)))
                for share, a in zip(communities.omega, communities.a, strict=True)
            )
        )
    return float(bound - communities.a.sum() / concentration)


def test_the_trace_ends_at_the_bound_of_what_was_learned() -> None:
    model = ds.CBCC(2, tol=1e-8, max_iter=3000).fit(CROWD)
    assert model.stopped_ == "tolerance"
    communities = Communities(model.psi_, model.omega_, model.community_parameters_)
    expected = bound_by_hand(CROWD, model.posterior_, communities, 10.0)
    np.testing.assert_allclose(model.trace_[-1], expected, rtol=1e-10)


def log_evidence(annotations: ds.Annotations, communities: Communities) -> float:
    """log P(labels | ψ, Ω, a): the sum over all true classes, matrices and communities integrated out."""
    terms = []
    for t in itertools.product(range(annotations.n_classes), repeat=annotations.n_items):
        counts = np.zeros((annotations.n_annotators,) + (annotations.n_classes,) * 2)
        np.add.at(counts, (annotations.annotator, np.array(t)[annotations.item], annotations.label), 1)
        _, of_annotators = memberships(counts, communities.omega, communities.a)
        terms.append(sum(math.log(communities.psi[k]) for k in t) + of_annotators.sum())
    return float(np.logaddexp.reduce(terms))


@pytest.mark.slow
def test_the_bound_is_below_the_evidence() -> None:
    rows = [(m, n, (m + (n == 4 and m < 3)) % 2) for m in range(8) for n in range(5)]
    annotations = crowd(rows, 8, 5, 2)
    model = ds.CBCC(2, tol=1e-9, max_iter=2000).fit(annotations)
    communities = Communities(model.psi_, model.omega_, model.community_parameters_)
    exact = log_evidence(annotations, communities) - communities.a.sum() / 10.0
    assert exact - 2.0 < model.trace_[-1] < exact


# ---- what it gives -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_annotators_matrix_is_its_posterior_mean() -> None:
    """Against integration over the mixture of communities, both rows of a 2 × 2 matrix at once."""
    communities = Communities(np.full(2, 0.5), np.array([0.4, 0.6]), 1 + random_communities(2, 2, 3).a)
    counts = np.array([[[2.0, 0.5], [1.0, 3.0]]])
    z, _ = memberships(counts, communities.omega, communities.a)

    x, y = np.meshgrid(*[(np.arange(1000) + 0.5) / 1000] * 2)  # midpoints
    likelihood = x**2 * (1 - x) ** 0.5 * y * (1 - y) ** 3
    joint = likelihood * sum(
        share * beta.pdf(x, *a[0]) * beta.pdf(y, *a[1])
        for share, a in zip(communities.omega, communities.a, strict=True)
    )
    mean = [(joint * part).sum() / joint.sum() for part in (x, y)]
    np.testing.assert_allclose(by_community(normalised, counts, z, communities.a)[0, :, 0], mean, rtol=1e-4)


def community_crowd(
    spread: float, seed: int = 0
) -> tuple[ds.Annotations, NDArray[np.int64], NDArray[np.int64]]:
    """Forty annotators of two communities: careful ones, and ones that answer one class too high."""
    rng = np.random.default_rng(seed)
    truth, community = rng.integers(3, size=150), rng.permutation(40) % 2
    careful = 0.8 * np.eye(3) + 0.2 / 3
    high = np.array([[0.2, 0.75, 0.05], [0.05, 0.2, 0.75], [0.05, 0.05, 0.9]])
    means = np.stack([careful, high])
    matrices = np.stack([[rng.dirichlet(spread * row) for row in means[c]] for c in community])
    rows = [
        (m, n, int(rng.choice(3, p=matrices[n, truth[m]])))
        for m in range(150)
        for n in rng.permutation(40)[:12].tolist()
    ]
    return crowd(rows, 150, 40, 3), truth, community


@pytest.mark.slow
def test_communities_are_found() -> None:
    annotations, truth, community = community_crowd(spread=40.0)
    model = ds.CBCC(2, n_restarts=4).fit(annotations)
    assert adjusted_rand_score(community, model.annotator_clusters_.argmax(axis=1)) > 0.9
    assert (model.posterior_.argmax(axis=1) == truth).mean() > 0.95


@pytest.mark.slow
def test_no_communities_are_found_among_labels_dealt_out_anew() -> None:
    annotations, _, community = community_crowd(spread=40.0)
    dealt = np.random.default_rng(0).permutation(annotations.label)
    rows = np.column_stack([annotations.item, annotations.annotator, dealt]).tolist()
    model = ds.CBCC(2, n_restarts=4).fit(crowd([tuple(row) for row in rows], 150, 40, 3))
    assert abs(adjusted_rand_score(community, model.annotator_clusters_.argmax(axis=1))) < 0.15


def test_predict_is_the_posteriors_choice() -> None:
    model = ds.CBCC(2).fit(CROWD)
    assert model.predict().tolist() == CROWD.classes[model.posterior_.argmax(axis=1)].tolist()
    load = np.bincount(CROWD.annotator, minlength=18)
    by_load = sum(load[n] * model.confusion_[n] for n in range(18)) / load.sum()
    population = ds.CBCC(2, estimate="population").fit(CROWD)
    np.testing.assert_allclose(population.label_distributions_, model.posterior_ @ by_load, rtol=1e-12)


def test_new_items_get_bayes_rule_with_the_kept_matrices() -> None:
    model = ds.CBCC(2).fit(CROWD)
    who, what = CROWD.annotators[[0, 3]], CROWD.classes[[0, 1]]
    moved = model.apply(ds.Annotations.from_arrays(["x", "x"], who, what, classes=CROWD.classes))
    x = model.psi_ * model.confusion_[0, :, 0] * model.confusion_[3, :, 1]
    np.testing.assert_allclose(moved.posterior_, [x / x.sum()], rtol=1e-9)


def test_shards_and_jobs_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ds.CBCC(3, max_iter=20).fit(CROWD)
    monkeypatch.setattr(engine, "LABELS_PER_SHARD", 50)
    one, two = (ds.CBCC(3, max_iter=20, n_restarts=2, n_jobs=n_jobs).fit(CROWD) for n_jobs in (1, 2))
    assert one.posterior_.tobytes() == two.posterior_.tobytes()
    assert one.trace_.tobytes() == two.trace_.tobytes()
    single = ds.CBCC(3, max_iter=20).fit(CROWD)
    np.testing.assert_allclose(single.posterior_, whole.posterior_, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("concentration", [1e-9, 1e-6, 1e-4, 1e-3, 1e-2, 1e6])
def test_the_objective_never_falls_at_extreme_concentrations(concentration: float) -> None:
    known = ds.simulate(n_items=60, n_annotators=12, n_classes=3, labels_per_item=4, seed=2).annotations
    for seed in range(3):
        trace = ds.CBCC(2, concentration=concentration, seed=seed, max_iter=60).fit(known).trace_
        assert np.all(np.diff(trace) >= -1e-10 * np.abs(trace[:-1])), (seed, np.diff(trace).min())
