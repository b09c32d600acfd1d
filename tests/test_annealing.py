"""Annealing: every δ is a difference of ℓ, Metropolis' rule holds, and the best state comes back."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

import dissensus as ds
from dissensus.models.pgm import annealing
from dissensus.models.pgm.annealing import (
    HardState,
    accepted,
    anneal,
    ascend,
    conditionals,
    delta_annotators,
    delta_items,
    delta_shares,
    delta_theta,
    start_at,
    sweep,
)
from dissensus.models.pgm.m_step import Parameters, Priors, block_counts, log_joint, log_prior
from dissensus.numerics import softmax_rows
from small_graphs import crowd, enumerated

pytestmark = pytest.mark.no_cover

Array = NDArray[np.float64]

K, L, P = 3, 2, 4
# A parameter for every class, item cluster and annotator cluster; numbers are the case of equal ones.
PRIORS = Priors(np.array([1.7, 1.2, 2.5, 3.0]), np.array([2.3, 1.1, 4.0]), np.array([3.1, 1.5]))


def annotations_of(seed: int) -> ds.Annotations:
    """Random labels, some pairs labelled several times; the last item and annotator have none."""
    rows = np.random.default_rng(seed).integers([11, 6, P], size=(60, 3)).tolist()
    return crowd([tuple(row) for row in rows], 12, 7, P)


def state_of(seed: int, annotations: ds.Annotations) -> HardState:
    rng = np.random.default_rng([seed, 1])
    parameters = Parameters(
        rng.dirichlet(np.ones(P), size=(K, L)), rng.dirichlet(np.ones(K)), rng.dirichlet(np.ones(L))
    )
    w, z = rng.integers(K, size=annotations.n_items), rng.integers(L, size=annotations.n_annotators)
    return HardState(parameters, w, z)


def joint(annotations: ds.Annotations, state: HardState) -> float:
    return log_joint(annotations, state.parameters, state.w, state.z, PRIORS)


def replaced(state: HardState, **parts: Array) -> HardState:
    parameters = {
        "theta": state.parameters.theta,
        "psi": state.parameters.psi,
        "omega": state.parameters.omega,
    }
    given = parameters | {name: part for name, part in parts.items() if name in parameters}
    return HardState(Parameters(**given), parts.get("w", state.w), parts.get("z", state.z))


# ---- the joint log-likelihood --------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_the_joint_is_the_products_logarithm(seed: int) -> None:
    annotations = annotations_of(seed)
    state = state_of(seed, annotations)
    theta, psi, omega = state.parameters.theta, state.parameters.psi, state.parameters.omega
    product = math.prod((theta ** [0.7, 0.2, 1.5, 2.0]).ravel())
    product *= math.prod(psi ** [1.3, 0.1, 3.0]) * math.prod(omega ** [2.1, 0.5])
    product *= math.prod(psi[k] for k in state.w) * math.prod(omega[j] for j in state.z)
    for m, n, y in zip(annotations.item, annotations.annotator, annotations.label, strict=True):
        product *= theta[state.w[m], state.z[n], y]
    np.testing.assert_allclose(joint(annotations, state), math.log(product), rtol=1e-12)


def test_the_prior_term_without_a_prior_is_nothing() -> None:
    hard = Parameters(np.eye(2)[None], np.ones(1), np.array([1.0, 0.0]))
    assert log_prior(hard.logs, Priors(1.0, 1.0, 1.0)) == 0.0


def test_an_impossible_label_makes_the_state_impossible() -> None:
    annotations = crowd([(0, 0, 1)], 1, 1, 2)
    hard = Parameters(np.array([[[1.0, 0.0]]]), np.ones(1), np.ones(1))
    nothing = np.zeros(1, dtype=np.intp)
    assert log_joint(annotations, hard, nothing, nothing, Priors(1.0, 1.0, 1.0)) == -math.inf


# ---- the five differences ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_difference_of_each_theta(seed: int) -> None:
    annotations = annotations_of(seed)
    state = state_of(seed, annotations)
    new = np.random.default_rng([seed, 2]).dirichlet(np.ones(P), size=(K, L))
    counts = block_counts(annotations, state.w, state.z, K, L)
    deltas = delta_theta(new, state.parameters.theta, counts, PRIORS)
    for k, j in itertools.product(range(K), range(L)):
        theta = state.parameters.theta.copy()
        theta[k, j] = new[k, j]
        difference = joint(annotations, replaced(state, theta=theta)) - joint(annotations, state)
        np.testing.assert_allclose(deltas[k, j], difference, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_the_difference_of_the_shares(seed: int) -> None:
    """With Σ_m log ψ_{w_m} and Σ_n log Ω_{z_n}, which the paper's print leaves out."""
    annotations = annotations_of(seed)
    state = state_of(seed, annotations)
    rng = np.random.default_rng([seed, 3])
    for name, size, clusters, prior in (("psi", K, state.w, PRIORS.gamma), ("omega", L, state.z, PRIORS.tau)):
        new, old = rng.dirichlet(np.ones(size)), getattr(state.parameters, name)
        members = np.bincount(clusters, minlength=size).astype(float)
        difference = joint(annotations, replaced(state, **{name: new})) - joint(annotations, state)
        np.testing.assert_allclose(delta_shares(new, old, members, prior), difference, rtol=1e-9, atol=1e-9)
        printed = ((prior - 1) * (np.log(new) - np.log(old))).sum()
        assert abs(printed - difference) > 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_the_difference_of_each_item_and_annotator(seed: int) -> None:
    annotations = annotations_of(seed)
    state = state_of(seed, annotations)
    rng = np.random.default_rng([seed, 4])
    for name, delta, size in (("w", delta_items, K), ("z", delta_annotators, L)):
        proposal = rng.integers(size, size=len(getattr(state, name)))
        deltas = delta(annotations, state, proposal)
        for place, value in enumerate(proposal):
            moved = getattr(state, name).copy()
            moved[place] = value
            difference = joint(annotations, replaced(state, **{name: moved})) - joint(annotations, state)
            np.testing.assert_allclose(deltas[place], difference, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_differences_of_one_group_add_up(seed: int) -> None:
    """Items are independent given Θ and z, annotators given Θ and w, and the Θ_kl given both."""
    annotations = annotations_of(seed)
    state = state_of(seed, annotations)
    rng = np.random.default_rng([seed, 5])
    w, z = rng.integers(K, size=12), rng.integers(L, size=7)
    theta = rng.dirichlet(np.ones(P), size=(K, L))
    counts = block_counts(annotations, state.w, state.z, K, L)
    for total, moved in (
        (delta_items(annotations, state, w).sum(), replaced(state, w=w)),
        (delta_annotators(annotations, state, z).sum(), replaced(state, z=z)),
        (delta_theta(theta, state.parameters.theta, counts, PRIORS).sum(), replaced(state, theta=theta)),
    ):
        np.testing.assert_allclose(total, joint(annotations, moved) - joint(annotations, state), rtol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_what_is_known_of_items_beforehand_is_in_their_difference(seed: int) -> None:
    """Pseudo-labels h_m of an average annotator: Σ_p h_mp log Σ_l π_l Θ_klp, π by the clusters' load."""
    annotations = annotations_of(seed)
    state = state_of(seed, annotations)
    rng = np.random.default_rng([seed, 6])
    evidence = 2.0 * rng.dirichlet(np.ones(P), size=12)
    load = np.bincount(state.z, np.bincount(annotations.annotator, minlength=7), minlength=L)
    average = np.einsum("l,klp->kp", load / load.sum(), state.parameters.theta)

    def objective(w: NDArray[np.int64]) -> float:
        own = sum(float(evidence[m] @ np.log(average[k])) for m, k in enumerate(w))
        return joint(annotations, replaced(state, w=w)) + own

    known = annealing._known(annotations, state, evidence)
    np.testing.assert_allclose(
        annealing.objective(annotations, state, PRIORS, evidence), objective(state.w), rtol=1e-12
    )
    proposal = rng.integers(K, size=12)
    deltas = delta_items(annotations, state, proposal, known)
    chances, _ = softmax_rows(conditionals(annotations, state, evidence)[0])
    for m, value in enumerate(proposal):
        moved = state.w.copy()
        moved[m] = value
        difference = objective(moved) - objective(state.w)
        np.testing.assert_allclose(deltas[m], difference, rtol=1e-9, atol=1e-9)
        ratio = chances[m, value] / chances[m, state.w[m]]
        np.testing.assert_allclose(math.log(ratio), difference, rtol=1e-6, atol=1e-9)


def test_staying_makes_no_difference() -> None:
    annotations = annotations_of(0)
    state = state_of(0, annotations)
    assert not delta_items(annotations, state, state.w).any()
    assert not delta_annotators(annotations, state, state.z).any()


# ---- Metropolis' rule ----------------------------------------------------------------------------------

DRAWS = 100_000


@pytest.mark.parametrize("temperature", [0.25, 1.0, 3.0])
@pytest.mark.parametrize("delta", [-3.0, -1.0, -0.1, 0.0, 2.0])
def test_proposals_are_taken_as_often_as_metropolis_says(delta: float, temperature: float) -> None:
    chance = min(1.0, math.exp(delta / temperature))
    rate = accepted(np.full(DRAWS, delta), temperature, np.random.default_rng(0)).mean()
    # Four standard errors of a share of 100,000 draws.
    assert abs(rate - chance) <= 4 * math.sqrt(chance * (1 - chance) / DRAWS)


def test_one_proposal_or_many() -> None:
    rng = np.random.default_rng(0)
    assert bool(accepted(0.0, 1.0, rng)) is True
    assert bool(accepted(-1e9, 1.0, rng)) is False
    assert accepted(np.array([[1.0, -1e9]]), 1.0, rng).tolist() == [[True, False]]


def stationary(annotations: ds.Annotations, parameters: Parameters, temperature: float) -> Array:
    """P(w, z) ∝ exp(ℓ / T) of every complete assignment of one item and one annotator."""
    weights = [
        math.exp(log_joint(annotations, parameters, np.array([k]), np.array([j]), PRIORS) / temperature)
        for k in range(K)
        for j in range(L)
    ]
    return np.array(weights) / sum(weights)


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_sweeps_at_a_fixed_temperature_visit_states_as_often_as_they_should(
    temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the parameters held, w and z are proposed uniformly: Metropolis' own sampler of exp(ℓ / T)."""
    annotations = crowd([(0, 0, 2), (0, 0, 1)], 1, 1, P)
    state = state_of(3, annotations)
    monkeypatch.setattr(annealing, "_propose_parameters", lambda *_: state.parameters)
    expected = stationary(annotations, state.parameters, temperature)
    rng, visits, sweeps = np.random.default_rng(1), np.zeros(K * L), 8_000
    for _ in range(sweeps):
        state = sweep(annotations, state, PRIORS, temperature, rng)
        visits[int(state.w[0]) * L + int(state.z[0])] += 1
    # Successive states are correlated: allow four standard errors of a sample a tenth as large.
    error = np.sqrt(expected * (1 - expected) / (sweeps / 10))
    assert (np.abs(visits / sweeps - expected) < 4 * error).all()


@pytest.mark.slow
def test_parameters_are_proposed_from_their_conditionals() -> None:
    """At a temperature that takes everything, Θ, ψ and Ω have their Dirichlet conditionals' means."""
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
    # A component's standard deviation is at most 1/2: four standard errors of 3,000 draws are below 0.04.
    np.testing.assert_allclose(total[0], counts / counts.sum(-1, keepdims=True), atol=0.04)
    np.testing.assert_allclose(total[1], members[0] / members[0].sum(), atol=0.04)
    np.testing.assert_allclose(total[2], members[1] / members[1].sum(), atol=0.04)


def test_when_cold_nothing_gets_worse() -> None:
    annotations = annotations_of(2)
    state, rng = state_of(2, annotations), np.random.default_rng(0)
    values = [joint(annotations, state)]
    for _ in range(50):
        state = sweep(annotations, state, PRIORS, 1e-9, rng)
        values.append(joint(annotations, state))
    assert np.diff(values).min() >= -1e-9
    assert values[-1] > values[0]


# ---- the search ----------------------------------------------------------------------------------------


def search(n_best: int = 1, max_iter: int = 60, tol: float = 0.0, seed: int = 0) -> annealing.Annealed:
    annotations = annotations_of(4)
    return anneal(
        annotations,
        state_of(4, annotations),
        PRIORS,
        np.random.default_rng(seed),
        max_iter=max_iter,
        tol=tol,
        n_best=n_best,
    )


def test_the_best_state_of_the_trace_is_returned() -> None:
    found = search()
    value, state = found.best[0]
    assert len(found.best) == 1
    assert value == found.trace.max()
    np.testing.assert_allclose(joint(annotations_of(4), state), value, rtol=1e-12)


def test_without_ascent_the_best_state_met_is_returned() -> None:
    annotations = annotations_of(4)
    found, climbed = (
        anneal(
            annotations,
            state_of(4, annotations),
            PRIORS,
            np.random.default_rng(0),
            max_iter=60,
            tol=0.0,
            ascent=ascent,
        )
        for ascent in (False, True)
    )
    assert len(found.trace) == 60 < len(climbed.trace)
    np.testing.assert_array_equal(found.trace, climbed.trace[:60])
    assert found.best[0][0] == found.trace.max() < climbed.best[0][0]


def test_annealing_as_printed_is_asked_for_by_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[HardState] = []
    settings: dict[str, object] = {}
    real = annealing.anneal

    def recorded(given: ds.Annotations, start: HardState, *rest: object, **own: object) -> object:
        starts.append(start)
        settings.update(own)
        return real(given, start, *rest, **own)  # type: ignore[arg-type]

    monkeypatch.setattr(annealing, "anneal", recorded)
    rows = np.random.default_rng(0).integers([40, 12, 2], size=(300, 3))
    printed = ds.PGM(
        3, 2, inference="annealing", start="random", temperature=1.0, cooling=1.0, ascent=False, max_iter=2
    )
    for label in (rows[:, 2], 1 - rows[:, 2], rows[:, 0] % 2):
        known = ds.Annotations.from_arrays(rows[:, 0], rows[:, 1], label)
        printed.fit(known)
        ds.PGM(3, 2, inference="annealing", max_iter=2).fit(known)
    ours, theirs = starts[1::2], starts[::2]
    # a start at random does not look at the labels; one at items' labels does
    assert all((one.w == theirs[0].w).all() for one in theirs)
    assert not (ours[0].w == ours[2].w).all()
    assert set(theirs[0].w.tolist()) == {0, 1, 2}
    assert (settings["temperature"], settings["cooling"], settings["ascent"]) == (10.0, 0.5, True)  # of ours
    assert len(printed.trace_) == 2  # sweeps alone


def test_the_best_few_are_returned_best_first_and_no_two_are_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    met: list[HardState] = []
    real = annealing.sweep

    def recorded(*given: object) -> HardState:
        met.append(real(*given))  # type: ignore[arg-type]
        return met[-1]

    monkeypatch.setattr(annealing, "sweep", recorded)
    found = search(n_best=5)
    # by hand: the best value of every assignment of clusters that was met
    best: dict[tuple[bytes, bytes], float] = {}
    states = {}
    for value, state in zip(found.trace[: len(met)], met, strict=True):
        clusters = state.w.tobytes(), state.z.tobytes()
        if value > best.get(clusters, -np.inf):
            best[clusters], states[clusters] = value, state
    assert len(best) < len(met)  # some were met more than once
    # … and the peaks above the five best of them
    for clusters in sorted(best, key=lambda one: -best[one])[:5]:
        values, state = ascend(annotations_of(4), states[clusters], PRIORS)
        peak = state.w.tobytes(), state.z.tobytes()
        best[peak] = max(best.get(peak, -np.inf), values[-1])
    np.testing.assert_allclose(
        [value for value, _ in found.best], sorted(best.values())[::-1][:5], rtol=1e-12
    )
    for value, state in found.best:
        np.testing.assert_allclose(joint(annotations_of(4), state), value, rtol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_ascent_rises_to_a_state_that_no_single_change_betters(seed: int) -> None:
    annotations = annotations_of(seed)
    values, state = ascend(annotations, state_of(seed, annotations), PRIORS)
    assert len(values) > 2
    assert (np.diff(values) > 0).all()
    top = values[-1]
    np.testing.assert_allclose(joint(annotations, state), top, rtol=1e-12)
    for m, k in itertools.product(range(annotations.n_items), range(K)):
        w = state.w.copy()
        w[m] = k
        assert joint(annotations, replaced(state, w=w)) <= top + 1e-9
    for n, j in itertools.product(range(annotations.n_annotators), range(L)):
        z = state.z.copy()
        z[n] = j
        assert joint(annotations, replaced(state, z=z)) <= top + 1e-9
    rng = np.random.default_rng(seed)
    for _ in range(20):
        near = {
            "theta": 0.99 * state.parameters.theta + 0.01 * rng.dirichlet(np.ones(P), size=(K, L)),
            "psi": 0.99 * state.parameters.psi + 0.01 * rng.dirichlet(np.ones(K)),
            "omega": 0.99 * state.parameters.omega + 0.01 * rng.dirichlet(np.ones(L)),
        }
        for name, part in near.items():
            assert joint(annotations, replaced(state, **{name: part})) < top


def test_the_temperature_falls_as_one_over_t_plus_one(monkeypatch: pytest.MonkeyPatch) -> None:
    temperatures: list[float] = []

    def watched(
        annotations: ds.Annotations, state: HardState, priors: Priors, temperature: float, *_: object
    ) -> HardState:
        temperatures.append(temperature)
        return state

    monkeypatch.setattr(annealing, "sweep", watched)
    search(max_iter=5)
    np.testing.assert_allclose(temperatures, [1, 1 / 2, 1 / 3, 1 / 4, 1 / 5], rtol=1e-15)
    temperatures.clear()
    ds.PGM(2, 2, inference="annealing", temperature=6.0, cooling=0.5, max_iter=4).fit(annotations_of(4))
    np.testing.assert_allclose(temperatures, [6, 6 / 2**0.5, 6 / 3**0.5, 3], rtol=1e-15)


def test_it_stops_when_the_best_has_long_been_found() -> None:
    found = search(max_iter=4000, tol=1e-3)
    assert found.stopped == "tolerance"
    assert len(found.trace) < 4000
    short = search(max_iter=20)
    assert short.stopped == "max_iter"
    assert len(short.trace) > 20  # and the steps of the ascent
    assert (np.diff(short.trace[20:]) > 0).all()
    assert short.trace[-1] == short.trace.max()


@pytest.mark.parametrize("seed", range(4))
def test_it_finds_the_most_probable_clusters_of_a_tiny_graph(seed: int) -> None:
    """2 items × 2 annotators × sharp labels: compared with the best of all assignments and parameters."""
    rows = [(m, n, m) for m in range(2) for n in range(2) for _ in range(6)]
    annotations = crowd(rows, 2, 2, 2)
    priors = Priors(2.0, 2.0, 2.0)

    def best_given(w: tuple[int, ...], z: tuple[int, ...]) -> float:
        counts = block_counts(annotations, np.array(w), np.array(z), 2, 2) + 1
        members = [np.bincount(c, minlength=2) + 1 for c in (w, z)]
        tables = counts / counts.sum(-1, keepdims=True), *(m / m.sum() for m in members)
        return log_joint(annotations, Parameters(*tables), np.array(w), np.array(z), priors)

    pairs = list(itertools.product(range(2), repeat=2))
    optimum = max(best_given(w, z) for w in pairs for z in pairs)
    rng = np.random.default_rng(seed)
    start = start_at(annotations, rng.integers(2, size=2), rng.integers(2, size=2), 2, 2, priors)
    found = anneal(annotations, start, priors, rng, max_iter=1500, tol=0.0)
    assert optimum - 0.5 < found.best[0][0] <= optimum + 1e-9


# ---- conditionals and start ----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_conditionals_equal_enumeration(seed: int) -> None:
    """P(w | Θ, z, labels) with z clamped: annotators whose shares are one-hot."""
    rng = np.random.default_rng(seed)
    rows = [(int(rng.integers(4)), int(rng.integers(3)), int(rng.integers(P))) for _ in range(9)]
    annotations = crowd(rows, 5, 4, P)
    state = state_of(seed, annotations)
    theta, psi, omega = state.parameters.theta, state.parameters.psi, state.parameters.omega
    items, annotators = (softmax_rows(table)[0] for table in conditionals(annotations, state))
    np.testing.assert_allclose(
        items, enumerated(annotations, theta, psi, np.eye(L)[state.z]).w, rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(
        annotators, enumerated(annotations, theta, np.eye(K)[state.w], omega).z, rtol=1e-9, atol=1e-12
    )
    np.testing.assert_allclose(items[4], psi, rtol=1e-9)
    np.testing.assert_allclose(annotators[3], omega, rtol=1e-9)


def test_the_start_has_its_clusters_and_the_conditional_means() -> None:
    annotations = crowd([(0, 0, 0), (0, 1, 1), (1, 1, 1)], 2, 2, 2)
    start = start_at(annotations, np.array([0, 1]), np.array([1, 1]), 2, 2, Priors(2.0, 3.0, 1.0))
    np.testing.assert_allclose(start.parameters.theta[0], [[1 / 2, 1 / 2], [3 / 6, 3 / 6]], rtol=1e-12)
    np.testing.assert_allclose(start.parameters.theta[1, 1], [2 / 5, 3 / 5], rtol=1e-12)
    np.testing.assert_allclose(start.parameters.psi, [4 / 8, 4 / 8], rtol=1e-12)
    np.testing.assert_allclose(start.parameters.omega, [1 / 4, 3 / 4], rtol=1e-12)
