"""Annealing: δ against differences of ℓ, the Metropolis rule, coordinate ascent and the best states."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

import dissensus as ds
from dissensus.models.pgm import annealing
from dissensus.models.pgm.m_step import Parameters, Priors, block_counts, log_joint
from dissensus.numerics import softmax_rows
from tests.helpers.small_graphs import crowd, enumerated

pytestmark = pytest.mark.no_cover

Array = NDArray[np.float64]

K, L, P = 3, 2, 4
# one parameter per class, item cluster and annotator cluster
PRIORS = Priors(np.array([1.7, 1.2, 2.5, 3.0]), np.array([2.3, 1.1, 4.0]), np.array([3.1, 1.5]))


def annotations_of(seed: int) -> ds.Annotations:
    """Return random labels with repeated pairs; the last item and the last annotator have none."""
    rows = np.random.default_rng(seed).integers([11, 6, P], size=(60, 3)).tolist()
    return crowd([tuple(row) for row in rows], 12, 7, P)


def state_of(seed: int, annotations: ds.Annotations) -> annealing.HardState:
    rng = np.random.default_rng([seed, 1])
    theta = rng.dirichlet(np.ones(P), size=(K, L))
    parameters = Parameters(theta, rng.dirichlet(np.ones(K)), rng.dirichlet(np.ones(L)))
    w, z = rng.integers(K, size=annotations.n_items), rng.integers(L, size=annotations.n_annotators)
    return annealing.HardState(parameters, w, z)


def joint(annotations: ds.Annotations, state: annealing.HardState) -> float:
    return log_joint(annotations, state.parameters, state.w, state.z, PRIORS)


def replaced(state: annealing.HardState, **parts: Array) -> annealing.HardState:
    old = state.parameters
    theta, psi, omega = (parts.get(name, getattr(old, name)) for name in ("theta", "psi", "omega"))
    return annealing.HardState(
        Parameters(theta, psi, omega), parts.get("w", state.w), parts.get("z", state.z)
    )


@pytest.mark.parametrize("seed", range(3))
def test_joint_log_likelihood_by_hand(seed: int) -> None:
    annotations = annotations_of(seed)
    state = state_of(seed, annotations)
    theta, psi, omega = state.parameters.theta, state.parameters.psi, state.parameters.omega
    product = math.prod((theta ** [0.7, 0.2, 1.5, 2.0]).ravel())
    product *= math.prod(psi ** [1.3, 0.1, 3.0]) * math.prod(omega ** [2.1, 0.5])
    product *= math.prod(psi[k] for k in state.w) * math.prod(omega[j] for j in state.z)
    for m, n, y in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        product *= theta[state.w[m], state.z[n], y]
    assert_allclose(joint(annotations, state), math.log(product), rtol=1e-12)


@pytest.mark.parametrize("seed", range(5))
def test_deltas_are_differences_of_the_joint(seed: int) -> None:
    """δ of shares includes Σ_m log ψ_{w_m} and Σ_n log Ω_{z_n}, which the paper omits."""
    annotations = annotations_of(seed)
    state, rng = state_of(seed, annotations), np.random.default_rng([seed, 2])

    def check(delta: float, **parts: Array) -> None:
        difference = joint(annotations, replaced(state, **parts)) - joint(annotations, state)
        assert_allclose(delta, difference, rtol=1e-9, atol=1e-9)

    new = rng.dirichlet(np.ones(P), size=(K, L))
    counts = block_counts(annotations, state.w, state.z, K, L)
    deltas = annealing.delta_theta(new, state.parameters.theta, counts, PRIORS)
    for k, j in itertools.product(range(K), range(L)):
        theta = state.parameters.theta.copy()
        theta[k, j] = new[k, j]
        check(deltas[k, j], theta=theta)
    for name, size, clusters, prior in (("psi", K, state.w, PRIORS.gamma), ("omega", L, state.z, PRIORS.tau)):
        new, old = rng.dirichlet(np.ones(size)), getattr(state.parameters, name)
        members = np.bincount(clusters, minlength=size).astype(float)
        check(annealing.delta_shares(new, old, members, prior), **{name: new})
    for name, delta, size in (("w", annealing.delta_items, K), ("z", annealing.delta_annotators, L)):
        proposal = rng.integers(size, size=len(getattr(state, name)))
        deltas = delta(annotations, state, proposal)
        for index, value in enumerate(proposal):
            moved = getattr(state, name).copy()
            moved[index] = value
            check(deltas[index], **{name: moved})


@pytest.mark.parametrize("seed", range(3))
def test_item_priors_enter_deltas_and_conditionals(seed: int) -> None:
    """Pseudo-labels h_m of an average annotator: Σ_p h_mp log Σ_l π_l Θ_klp, π by the clusters' load."""
    annotations = annotations_of(seed)
    state = state_of(seed, annotations)
    rng = np.random.default_rng([seed, 6])
    evidence = 2.0 * rng.dirichlet(np.ones(P), size=12)
    load = np.bincount(state.z, np.bincount(annotations.annotator, minlength=7), minlength=L)
    average = np.einsum("l,klp->kp", load / load.sum(), state.parameters.theta)

    def objective(w: NDArray[np.int64]) -> float:
        item_terms = sum(float(evidence[m] @ np.log(average[k])) for m, k in enumerate(w))
        return joint(annotations, replaced(state, w=w)) + item_terms

    scores = annealing._item_scores(annotations, state, evidence)
    assert_allclose(annealing.objective(annotations, state, PRIORS, evidence), objective(state.w), rtol=1e-12)
    proposal = rng.integers(K, size=12)
    deltas = annealing.delta_items(annotations, state, proposal, scores)
    chances, _ = softmax_rows(annealing.conditionals(annotations, state, evidence)[0])
    for m, value in enumerate(proposal):
        moved = state.w.copy()
        moved[m] = value
        difference = objective(moved) - objective(state.w)
        assert_allclose(deltas[m], difference, rtol=1e-9, atol=1e-9)
        ratio = chances[m, value] / chances[m, state.w[m]]
        assert_allclose(math.log(ratio), difference, rtol=1e-6, atol=1e-9)


DRAWS = 100_000


@pytest.mark.parametrize("temperature", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("delta", [-3.0, -1.0, -0.1, 0.0, 2.0])
def test_acceptance_rate_is_metropolis(delta: float, temperature: float) -> None:
    chance = min(1.0, math.exp(delta / temperature))
    rate = annealing.accepted(np.full(DRAWS, delta), temperature, np.random.default_rng(0)).mean()
    # four standard errors of a share of 100,000 draws
    assert abs(rate - chance) <= 4 * math.sqrt(chance * (1 - chance) / DRAWS)


def stationary(annotations: ds.Annotations, parameters: Parameters, temperature: float) -> Array:
    """Return P(w, z) ∝ exp(ℓ / T) of every assignment of one item and one annotator."""
    states = [(np.array([k]), np.array([j])) for k in range(K) for j in range(L)]
    logs = [log_joint(annotations, parameters, w, z, PRIORS) for w, z in states]
    weights = [math.exp(log / temperature) for log in logs]
    return np.array(weights) / sum(weights)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_sweeps_sample_the_tempered_distribution(temperature: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With fixed parameters, sweeps are a Metropolis sampler of exp(ℓ / T)."""
    annotations = crowd([(0, 0, 2), (0, 0, 1)], 1, 1, P)
    state = state_of(3, annotations)
    monkeypatch.setattr(annealing, "_propose_parameters", lambda *_: state.parameters)
    expected = stationary(annotations, state.parameters, temperature)
    rng, visits, sweeps = np.random.default_rng(1), np.zeros(K * L), 8_000
    for _ in range(sweeps):
        state = annealing.sweep(annotations, state, PRIORS, temperature, rng)
        visits[int(state.w[0]) * L + int(state.z[0])] += 1
    # states are correlated: four standard errors of a sample a tenth as large
    error = np.sqrt(expected * (1 - expected) / (sweeps / 10))
    assert (np.abs(visits / sweeps - expected) < 4 * error).all()


@pytest.mark.slow
def test_parameters_are_proposed_from_their_conditionals() -> None:
    """At a temperature that accepts everything, Θ, ψ and Ω have the means of their conditionals."""
    annotations = annotations_of(1)
    state = state_of(1, annotations)
    rng, draws = np.random.default_rng(0), 3000
    total = [np.zeros((K, L, P)), np.zeros(K), np.zeros(L)]
    for _ in range(draws):
        parameters = annealing._propose_parameters(annotations, state, PRIORS, 1e12, rng)
        for sums, part in zip(total, (parameters.theta, parameters.psi, parameters.omega), strict=True):
            sums += part / draws
    counts = block_counts(annotations, state.w, state.z, K, L) + PRIORS.alpha
    members = np.bincount(state.w, minlength=K) + PRIORS.gamma, np.bincount(state.z, minlength=L) + PRIORS.tau
    # the standard deviation is at most 1/2: four standard errors of 3,000 draws are below 0.04
    assert_allclose(total[0], counts / counts.sum(-1, keepdims=True), atol=0.04)
    assert_allclose(total[1], members[0] / members[0].sum(), atol=0.04)
    assert_allclose(total[2], members[1] / members[1].sum(), atol=0.04)


def search(max_iter: int = 60, tol: float = 0.0, **settings: Any) -> annealing.Annealed:
    annotations, rng = annotations_of(4), np.random.default_rng(0)
    start = state_of(4, annotations)
    return annealing.anneal(annotations, start, PRIORS, rng, max_iter=max_iter, tol=tol, **settings)


def test_n_best_returns_distinct_states_best_first(monkeypatch: pytest.MonkeyPatch) -> None:
    visited: list[annealing.HardState] = []
    real = annealing.sweep

    def recorded(*arguments: object) -> annealing.HardState:
        visited.append(real(*arguments))  # type: ignore[arg-type]
        return visited[-1]

    monkeypatch.setattr(annealing, "sweep", recorded)
    result = search(n_best=5)
    # the best value of every assignment of clusters that was visited
    best: dict[tuple[bytes, bytes], float] = {}
    states = {}
    for value, state in zip(result.trace[: len(visited)], visited, strict=True):
        clusters = state.w.tobytes(), state.z.tobytes()
        if value > best.get(clusters, -np.inf):
            best[clusters], states[clusters] = value, state
    assert len(best) < len(visited)  # some were visited more than once
    # and the maxima reached from the five best of them
    for clusters in sorted(best, key=lambda clusters: -best[clusters])[:5]:
        values, state = annealing.ascend(annotations_of(4), states[clusters], PRIORS)
        peak = state.w.tobytes(), state.z.tobytes()
        best[peak] = max(best.get(peak, -np.inf), values[-1])
    assert_allclose([value for value, _ in result.best], sorted(best.values())[::-1][:5], rtol=1e-12)
    for value, state in result.best:
        assert_allclose(joint(annotations_of(4), state), value, rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_ascent_ends_at_a_local_maximum(seed: int) -> None:
    annotations = annotations_of(seed)
    values, state = annealing.ascend(annotations, state_of(seed, annotations), PRIORS)
    assert len(values) > 2
    assert (np.diff(values) > 0).all()
    top = values[-1]
    assert_allclose(joint(annotations, state), top, rtol=1e-12)
    for name, size in (("w", K), ("z", L)):
        for index, cluster in itertools.product(range(len(getattr(state, name))), range(size)):
            moved = getattr(state, name).copy()
            moved[index] = cluster
            assert joint(annotations, replaced(state, **{name: moved})) <= top + 1e-9
    rng = np.random.default_rng(seed)
    for _ in range(20):
        near = {
            "theta": 0.99 * state.parameters.theta + 0.01 * rng.dirichlet(np.ones(P), size=(K, L)),
            "psi": 0.99 * state.parameters.psi + 0.01 * rng.dirichlet(np.ones(K)),
            "omega": 0.99 * state.parameters.omega + 0.01 * rng.dirichlet(np.ones(L)),
        }
        for name, part in near.items():
            assert joint(annotations, replaced(state, **{name: part})) < top


def test_temperature_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    temperatures: list[float] = []

    def watched(_labels: Any, state: annealing.HardState, _priors: Any, temperature: float, *_: Any) -> Any:
        temperatures.append(temperature)
        return state

    monkeypatch.setattr(annealing, "sweep", watched)
    search(max_iter=5)
    assert_allclose(temperatures, [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5], rtol=1e-15)
    temperatures.clear()
    ds.PGM(2, 2, inference="annealing", temperature=6.0, cooling=0.5, max_iter=4).fit(annotations_of(4))
    assert_allclose(temperatures, [6, 6 / 2**0.5, 6 / 3**0.5, 3], rtol=1e-15)


def test_it_stops_without_further_gain() -> None:
    long = search(max_iter=4000, tol=1e-3)
    assert long.stopped == "tolerance"
    assert len(long.trace) < 4000
    short = search(max_iter=20)
    assert short.stopped == "max_iter"
    assert len(short.trace) > 20  # includes the steps of the ascent
    assert (np.diff(short.trace[20:]) > 0).all()
    assert short.trace[-1] == short.trace.max()


@pytest.mark.parametrize("seed", range(3))
def test_conditionals_equal_enumeration(seed: int) -> None:
    """Compare P(w | Θ, z, labels) with enumeration under one-hot shares of the annotators."""
    rng = np.random.default_rng(seed)
    rows = [(int(rng.integers(4)), int(rng.integers(3)), int(rng.integers(P))) for _ in range(9)]
    annotations = crowd(rows, 5, 4, P)
    state = state_of(seed, annotations)
    theta, psi, omega = state.parameters.theta, state.parameters.psi, state.parameters.omega
    items, annotators = (softmax_rows(table)[0] for table in annealing.conditionals(annotations, state))
    assert_allclose(items, enumerated(annotations, theta, psi, np.eye(L)[state.z]).w, rtol=1e-9, atol=1e-12)
    of_items = np.eye(K)[state.w]
    assert_allclose(annotators, enumerated(annotations, theta, of_items, omega).z, rtol=1e-9, atol=1e-12)
    assert_allclose(items[4], psi, rtol=1e-9)
    assert_allclose(annotators[3], omega, rtol=1e-9)


def test_start_has_conditional_means() -> None:
    annotations = crowd([(0, 0, 0), (0, 1, 1), (1, 1, 1)], 2, 2, 2)
    start = annealing.start_at(annotations, np.array([0, 1]), np.array([1, 1]), 2, 2, Priors(2.0, 3.0, 1.0))
    assert_allclose(start.parameters.theta[0], [[1 / 2, 1 / 2], [3 / 6, 3 / 6]], rtol=1e-12)
    assert_allclose(start.parameters.theta[1, 1], [2 / 5, 3 / 5], rtol=1e-12)
    assert_allclose(start.parameters.psi, [4 / 8, 4 / 8], rtol=1e-12)
    assert_allclose(start.parameters.omega, [1 / 4, 3 / 4], rtol=1e-12)
