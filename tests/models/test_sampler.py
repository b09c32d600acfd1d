"""The Gibbs sampler against enumeration, Geweke's joint test, calibration and the prior, with seeded faults.

Expected values come from the generative model alone (``prior_state``, ``labels_of``, ``log_joint`` below).
"""

import copy
import inspect
import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import chisquare

from dissensus.models.hpgm import sampler
from dissensus.models.hpgm.attributes import KAPPA_PRIOR, AttributeCells, eta_prior
from dissensus.models.hpgm.posterior import item_beliefs
from dissensus.models.hpgm.sampler import Counts, Data, GibbsState, HyperPriors, softmax
from dissensus.models.sampled import effective_size, split_rhats
from tests.helpers import hpgm_twin
from tests.helpers.sizes import usually

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

Array = np.ndarray
WIDE, NARROW = (4.0, 1.0), (4.0, 2.0)  # shape and rate of a gamma prior
TIGHT = HyperPriors(r=WIDE, s=WIDE, q=WIDE, a=WIDE, gamma=NARROW, tau=NARROW, lam=(2.0, 4.0), phi0=6.0)


# ---- the generative model -------------------------------------------------------------------------------


def prior_state(data: Data, K: int, L: int, priors: HyperPriors, rng: np.random.Generator) -> GibbsState:
    """Draw a state from the prior."""
    gammas = priors.r, priors.s, priors.q, priors.a, priors.gamma, priors.tau
    r, s, q, a, gamma, tau = (rng.gamma(shape) / rate for shape, rate in gammas)
    phi0 = rng.dirichlet(np.full(data.P, priors.phi0 / data.P))
    phi = dirichlet(np.tile(a * phi0, (K, 1)), rng)
    theta = dirichlet(np.repeat(s * phi[:, None], L, axis=1), rng)
    psi, omega = dirichlet(np.full(K, gamma / K), rng), dirichlet(np.full(L, tau / L), rng)
    lam = rng.beta(*priors.lam)
    w, z = (rng.choice(len(p), size=n, p=p).astype(np.int32) for p, n in ((psi, data.M), (omega, data.N)))
    from_item = rng.random(len(data.item)) < lam
    state = GibbsState(w, z, from_item, theta, phi, phi0, psi, omega, r, s, q, a, gamma, tau, lam)
    if data.attributes is None:
        return state
    kappa = rng.gamma(KAPPA_PRIOR[0]) / KAPPA_PRIOR[1]
    eta = rng.dirichlet(eta_prior(data.attributes.cell.shape[1]))
    values = dirichlet(np.tile(kappa * omega, (data.attributes.n_values, 1)), rng)
    for n, cells in enumerate(data.attributes.cell):
        reason = rng.choice(len(eta), p=eta)
        known = reason and cells[reason - 1] >= 0
        z[n] = rng.choice(L, p=values[cells[reason - 1]] if known else omega)
    return replace(state, z=z, eta=eta, values=values, kappa=kappa)


def dirichlet(alpha: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    gammas = np.maximum(rng.standard_gamma(alpha), 1e-300)
    return np.asarray(gammas / gammas.sum(axis=-1, keepdims=True))


def labels_of(data: Data, state: GibbsState, rng: np.random.Generator) -> Data:
    """Draw π and ρ given a state, then every label."""
    pi = dirichlet(state.r * state.theta[:, state.z].transpose(1, 0, 2), rng)  # (N, K, P)
    rho = dirichlet(state.q * state.phi[state.w], rng)
    probabilities = np.where(state.from_item[:, None], rho[data.item], pi[data.annotator, state.w[data.item]])
    label = (rng.random(len(probabilities))[:, None] > probabilities.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return replace(data, label=label.astype(np.int32))


def log_joint(data: Data, state: GibbsState, w: Array, z: Array, from_item: Array) -> Array:
    """Return log P(y, w, z, from_item | rest), with π and ρ integrated out, for many states (rows)."""
    total = np.log(state.psi[w]).sum(axis=1) + np.log(state.omega[z]).sum(axis=1)
    total += np.log(np.where(from_item, state.lam, 1 - state.lam)).sum(axis=1)
    is_label = np.eye(data.P)[data.label]  # (E, P)
    for n, k in itertools.product(range(data.N), range(len(state.psi))):
        mine = (data.annotator == n) & (w[:, data.item] == k) & ~from_item
        total += polya(mine @ is_label, state.r * state.theta[k, z[:, n]])
    for m in range(data.M):
        total += polya(((data.item == m) & from_item) @ is_label, state.q * state.phi[w[:, m]])
    return total


def polya(counts: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """log P(a sequence with these counts), its distribution ~ Dir(alpha)."""
    top = gammaln(alpha + counts).sum(axis=1) - gammaln(alpha).sum(axis=1)
    return top + gammaln(alpha.sum(axis=1)) - gammaln(alpha.sum(axis=1) + counts.sum(axis=1))


def crowd(repeated: bool = False) -> Data:
    """Return seven labels of three items by three annotators; one pair may be repeated."""
    item = [0, 0, 0, 1, 1, 2, 2]
    annotator = [0, 1, 1 if repeated else 2, 0, 1, 0, 2]
    return data_of(item, annotator, [0, 1, 1, 0, 0, 1, 0], 3, 3, 2)


def data_of(item: object, annotator: object, label: object, *sizes: int) -> Data:
    return Data(*(np.array(column, dtype=np.int32) for column in (item, annotator, label)), *sizes)


def strong_state(data: Data) -> GibbsState:
    """Return parameters under which clusters and label sources depend strongly on each other."""
    phi = np.array([[0.8, 0.2], [0.25, 0.75]])
    theta = np.array([[[0.9, 0.1], [0.45, 0.55]], [[0.3, 0.7], [0.1, 0.9]]])
    weights = np.array([0.7, 0.3]), np.array([0.4, 0.6])
    state = prior_state(data, 2, 2, TIGHT, np.random.default_rng(5))
    return replace(state, theta=theta, phi=phi, psi=weights[0], omega=weights[1], r=0.8, q=0.7, lam=0.4)


def z_score(chain: np.ndarray, mean: float | np.ndarray, error: float | np.ndarray = 0.0) -> np.ndarray:
    """Return the distance of a chain's mean from ``mean``, in standard errors by batch means."""
    size = max(len(chain) // 40, 1)
    batches = chain[: size * (len(chain) // size)].reshape(-1, size, *chain.shape[1:]).mean(axis=1)
    spread = np.sqrt(batches.var(axis=0, ddof=1) / len(batches) + np.square(error))
    return np.abs(chain.mean(axis=0) - mean) / np.maximum(spread, 1e-12)


# ---- enumeration ----------------------------------------------------------------------------------------


BITS = np.array(list(itertools.product((0, 1), repeat=13)))


def enumerated(data: Data, state: GibbsState) -> np.ndarray:
    """Return the posterior of (w, z, from_item) over all 2^13 states."""
    logs = log_joint(data, state, BITS[:, :3], BITS[:, 3:6], BITS[:, 6:].astype(bool))
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def discrete_chain(data: Data, state: GibbsState, n: int, rng: np.random.Generator) -> np.ndarray:
    """Return (n, 13) draws of w, z and from_item, with the rest fixed."""
    q_phi, draws = state.q * state.phi, np.empty((n, 13), dtype=bool)
    for i in range(n):
        counts, psi = Counts.of_state(data, state), state.psi[None]
        w = sampler.draw_clusters(data, counts, psi, q_phi, state.w, state.from_item, rng)
        rates = q_phi, state.q, state.lam
        from_item = sampler.draw_label_sources(data, counts, *rates, w, state.from_item, rng)
        z = sampler.draw_annotator_clusters(data, w, from_item, state.r_theta(), state.omega[None], rng)
        state = replace(state, w=w, z=z, from_item=from_item)
        draws[i] = np.concatenate([w, z, from_item])
    return draws


def worst_against_enumeration(repeated: bool, n: int = usually(1200, verify=4000)) -> float:
    """Return the largest z-score over single bits and pairs of bits."""
    data = crowd(repeated)
    state = strong_state(data)
    posterior = enumerated(data, state)
    chain = discrete_chain(data, state, n, np.random.default_rng(1)).astype(float)
    pairs = list(itertools.combinations(range(13), 2))
    moments = np.column_stack([chain, *(chain[:, i] * chain[:, j] for i, j in pairs)])
    truth = np.column_stack([BITS, *(BITS[:, i] * BITS[:, j] for i, j in pairs)]).T @ posterior
    return float(z_score(moments, truth, np.sqrt(truth * (1 - truth) / n)).max())


@pytest.mark.parametrize("repeated", [False, True])
def test_discrete_steps_match_enumeration(repeated: bool) -> None:
    assert worst_against_enumeration(repeated) < 4.5


@pytest.mark.parametrize("repeated", [False, True])
def test_item_beliefs_match_enumeration(repeated: bool) -> None:
    """P(w_m = k | everything else), by the joint at both values of w_m."""
    data, rng = crowd(repeated), np.random.default_rng(4)
    for _ in range(10):
        state = replace(strong_state(data), from_item=rng.random(7) < 0.4)
        state = replace(state, w=rng.integers(2, size=3, dtype=np.int32))
        counts = Counts.of_state(data, state)
        beliefs = item_beliefs(data, counts, state.psi[None], state.q * state.phi, state.w, state.from_item)
        for m in range(3):
            w = np.tile(state.w, (2, 1))
            w[:, m] = 0, 1
            logs = log_joint(data, state, w, np.tile(state.z, (2, 1)), np.tile(state.from_item, (2, 1)))
            np.testing.assert_allclose(beliefs[m], softmax(logs[None])[0], rtol=1e-10)


# ---- the twin in plain Python -----------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(usually(12, verify=60)))
def test_compiled_loops_have_the_bits_of_their_twins(seed: int) -> None:
    """Labels may be repeated, items and annotators without labels, counts far above and below 1."""
    rng = np.random.default_rng(seed)
    M, N, P, K, L, E = (int(rng.integers(1, top)) for top in (9, 7, 5, 24, 5, 60))
    item, annotator = rng.integers(M, size=E), rng.integers(N, size=E)
    order = np.lexsort((annotator, item))
    data = data_of(item[order], annotator[order], rng.integers(P, size=E), M, N, P)
    state = prior_state(data, K, L, replace(TIGHT, a=(2.0, 0.2 if seed % 2 else 20.0)), rng)
    q_phi = np.maximum(state.q * state.phi, sampler.MIN_COUNT)
    psi = state.psi[None] if seed % 3 else rng.dirichlet(np.ones(K), size=M)
    prior = np.ascontiguousarray(np.maximum(state.r * state.theta.transpose(1, 2, 0), sampler.MIN_COUNT))
    labels, own = sampler.by_item(data), {"from_item": state.from_item, "w": state.w}
    counts = {"table": np.empty((N, P, K)), "totals": np.empty((N, K)), "inverse": np.empty((N, K))}
    pseudo = {"prior": prior, "sizes": np.full((L, K), state.r), "row": state.z}
    people = sampler.by_annotator(data, state.w, state.from_item)
    u = rng.random(E)
    cell, larger = np.empty((K, P)), np.zeros(E, dtype=np.int64)
    customers = rng.integers(5, size=(2, 3))

    def check(name: str, **arguments: object) -> None:
        twins = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in arguments.items()}
        getattr(sampler, name)(**arguments)
        getattr(hpgm_twin, name)(**twins)
        for argument in set(arguments) - {"weights", "sizes", "counts"}:  # scratch
            np.testing.assert_array_equal(arguments[argument], twins[argument], err_msg=f"{name}: {argument}")

    check("count_labels", **labels, **own, **pseudo, **counts)
    item_arguments = {**labels, **own, "psi": psi, "q_phi": q_phi, **counts}
    check("item_beliefs", **item_arguments, beliefs=np.empty((M, K)))
    check("item_clusters", **item_arguments, u=rng.random(M), weights=np.empty(K))
    answers = {"left": rng.random((M, K)), "right": q_phi, "product": np.empty((M, P))}
    check("product", **answers)
    table = {"table": counts["table"], "inverse": counts["inverse"]}
    check("mean_population", **table, v=rng.random(N), population=np.empty((K, P)))
    rates = {"q_phi": q_phi, "q": state.q, "lam": state.lam}
    check("label_sources", **labels, **own, **rates, **counts, u=u, counts=np.empty(P))
    z, scratch = np.empty(N, dtype=np.int32), {"weights": np.empty(L), "counts": cell}
    clusters = {"r_theta": state.r_theta(), "u": rng.random(N), "z": z}
    for omega in (state.omega[None], rng.dirichlet(np.ones(L), size=N)):
        check("annotator_clusters", **people, **clusters, omega=omega, **scratch)
    t = {
        "tables": np.zeros((K, P, L), dtype=np.int64),
        "larger": larger,
        "counts": cell,
        "sizes": np.empty(K),
    }
    check("annotator_tables", **people, z=z, r_theta=state.r_theta(), u=u, **t)
    v = {"tables": np.zeros((K, P), dtype=np.int64), "larger": larger, "counts": np.empty(P)}
    mine = {"ends": data.item_ends, "label": data.label, **own}
    check("item_tables", **mine, q_phi=q_phi, u=u, **v)
    restaurants = {
        "customers": customers,
        "alpha": rng.gamma(1.0, size=(2, 3)),
        "u": rng.random(customers.sum()),
    }
    check(
        "tables_of",
        **restaurants,
        tables=np.zeros((2, 3), dtype=np.int64),
        larger=np.zeros(12, dtype=np.int64),
    )


def test_loops_refuse_wrong_arrays() -> None:
    data, state = crowd(), strong_state(crowd())
    with pytest.raises(TypeError, match="hpgm_count: w must be a contiguous array of int32"):
        Counts.of_state(data, replace(state, w=state.w.astype(np.int64)))
    with pytest.raises(TypeError, match="w must be a contiguous array"):
        Counts.of_state(data, replace(state, w=state.w[:2]))
    counts, q_phi = Counts.of_state(data, state), np.asfortranarray(state.phi)
    with pytest.raises(TypeError, match="q_phi must be a contiguous array of float64"):
        item_beliefs(data, counts, state.psi[None], q_phi, state.w, state.from_item)


# ---- Geweke's joint distribution test ----------------------------------------------------------------------


def statistics(data: Data, state: GibbsState) -> np.ndarray:
    """Return statistics of a joint draw that any wrong conditional should change."""
    y, k, n = data.label, state.w[data.item], data.annotator
    i, j = np.triu_indices(len(y), 1)
    agree = y[i] == y[j]
    alike = agree & (n[i] == n[j]) & (k[i] == k[j])
    same_item = agree & (data.item[i] == data.item[j])
    both_own = same_item & state.from_item[i] & state.from_item[j]
    sizes = np.bincount(state.w, minlength=len(state.psi)), np.bincount(state.z, minlength=len(state.omega))
    return np.array([
        state.r, np.log(state.r), state.s, np.log(state.s), state.q, np.log(state.q), state.a,
        np.log(state.a), state.gamma, state.tau, state.lam, state.from_item.mean(),
        state.from_item.mean() * state.lam, (state.phi0**2).sum(),
        (state.phi**2).sum(), (state.theta**2).sum(), (state.psi**2).sum(),
        (state.omega**2).sum(), (sizes[0] ** 2).sum(), (sizes[1] ** 2).sum(), state.psi[state.w].mean(),
        state.omega[state.z].mean(), np.sum(alike), np.sum(same_item), np.sum(both_own), (y == 0).mean(),
        state.phi0[y].mean(), state.phi[k, y].mean(), state.theta[k, state.z[n], y].mean(),
        (state.from_item * state.phi[k, y]).mean(), (~state.from_item * state.theta[k, state.z[n], y]).mean(),
        np.sqrt(state.phi * state.phi0).sum(), np.sqrt(state.theta * state.phi[:, None]).sum(),
        state.s * (state.theta**2).sum(), state.a * (state.phi**2).sum(), state.gamma * (state.psi**2).sum(),
        state.tau * (state.omega**2).sum(), state.r * np.sum(alike), state.q * np.sum(both_own),
        state.lam * np.sum(same_item), state.psi[state.w].mean() * state.gamma,
    ])  # fmt: skip


def geweke_data() -> Data:
    """Return ten labels of four items by three annotators, one pair repeated."""
    item, annotator = [0, 0, 0, 1, 1, 2, 2, 2, 3, 3], [0, 1, 2, 0, 1, 0, 0, 1, 0, 2]
    return data_of(item, annotator, np.zeros(10), 4, 3, 3)


def attribute_data() -> Data:
    """Return the same with two attributes of three and two values; two are missing."""
    cell = np.array([[0, 3], [1, -1], [0, 4], [-1, 3], [2, 4]])
    item, annotator = [0, 0, 1, 1, 2, 2, 3, 3, 3], [0, 1, 1, 2, 3, 4, 0, 2, 4]
    data = data_of(item, annotator, np.zeros(9), 4, 5, 3)
    return replace(data, attributes=AttributeCells(cell, 5))


def attribute_statistics(data: Data, state: GibbsState) -> np.ndarray:
    """Return the statistics, and some of the attributes' parameters."""
    assert data.attributes is not None
    cell = data.attributes.cell
    shares = np.vstack([state.values, state.omega])[cell, state.z[:, None]]
    same = (state.z[0] == state.z[2]), (state.z[0] == state.z[1])
    more = [
        *state.eta, np.log(state.kappa), 1 / (1 + state.kappa), (state.values**2).sum(), shares.mean(),
        (state.values * state.omega).sum(), *same, state.eta[1] * same[0], state.kappa * same[0],
        state.kappa * (state.values**2).sum(), (state.eta[1:] * shares).sum(),
    ]  # fmt: skip
    return np.append(statistics(data, state), more)


def test_geweke_with_attributes() -> None:
    data, n, draws = attribute_data(), usually(2500, verify=8000), []
    rng = np.random.default_rng(21)
    for _ in range(n):
        state = prior_state(data, 3, 3, TIGHT, rng)
        draws.append(attribute_statistics(labels_of(data, state, rng), state))
    independent, successive = np.array(draws), []
    state = prior_state(data, 3, 3, TIGHT, rng)
    for _ in range(n):
        data = labels_of(data, state, rng)
        state = sampler.sweep(state, data, rng, TIGHT)
        successive.append(attribute_statistics(data, state))
    error = independent.std(axis=0) / np.sqrt(n)
    assert z_score(np.array(successive), independent.mean(axis=0), error).max() < 4.5


def decided_by_attribute(n: int, seed: int) -> tuple[Data, GibbsState]:
    """Return annotators without labels whose clusters all follow from the attribute, and B of one value."""
    data = replace(data_of([], [], [], 3, n, 3), attributes=AttributeCells(np.arange(n)[:, None] % 3, 3))
    state = prior_state(data, 2, 3, TIGHT, np.random.default_rng(seed))
    return data, replace(state, eta=np.array([0.0, 1.0]), values=np.eye(3)[[2, 0, 1]])


def test_clusters_follow_from_the_attribute() -> None:
    data, state = decided_by_attribute(30, 0)
    state = sampler.sweep(state, data, np.random.default_rng(0), TIGHT)
    np.testing.assert_array_equal(state.z, np.array([2, 0, 1])[np.arange(30) % 3])


@pytest.mark.parametrize("seed", range(5))
def test_members_of_values_are_customers_of_omega(seed: int) -> None:
    """With a large κ, every member of B opens a table, and Ω is about the shares of the clusters."""
    data, state = decided_by_attribute(300, seed)
    state = replace(state, z=np.zeros(300, np.int32), values=np.full((3, 3), 1 / 3), kappa=1e6)
    drawn = sampler.draw_measures(data, state, TIGHT, np.random.default_rng(seed))
    assert drawn.omega[0] > 0.95
    np.testing.assert_array_equal(drawn.eta.round(1), [0.0, 1.0])


def independent_draws(n: int, seed: int) -> np.ndarray:
    """Return statistics of n independent draws of state and labels."""
    data, rng = geweke_data(), np.random.default_rng(seed)
    draws = []
    for _ in range(n):
        state = prior_state(data, 3, 2, TIGHT, rng)
        draws.append(statistics(labels_of(data, state, rng), state))
    return np.array(draws)


def successive_draws(n: int, seed: int) -> np.ndarray:
    """Return statistics of a chain that draws labels given the state, and the state by ``sweep``."""
    data, rng = geweke_data(), np.random.default_rng(seed)
    state = prior_state(data, 3, 2, TIGHT, rng)
    draws = []
    for _ in range(n):
        data = labels_of(data, state, rng)
        state = sampler.sweep(state, data, rng, TIGHT)
        draws.append(statistics(data, state))
    return np.array(draws)


@pytest.fixture(scope="module")
def expected() -> tuple[np.ndarray, np.ndarray]:
    """Means of the statistics under the joint, and their standard errors."""
    draws = independent_draws(usually(3000, verify=8000), 11)
    return draws.mean(axis=0), draws.std(axis=0) / np.sqrt(len(draws))


def geweke(expected: tuple[np.ndarray, np.ndarray], n: int, seed: int) -> float:
    return float(z_score(successive_draws(n, seed), *expected).max())


def test_geweke_joint_distribution(expected: tuple[np.ndarray, np.ndarray]) -> None:
    assert geweke(expected, usually(1500, verify=4000), 12) < 4.5


# ---- simulation-based calibration ------------------------------------------------------------------------


def calibration_data() -> Data:
    """Return eight items with three labels each, by five annotators."""
    item = np.repeat(np.arange(8), 3)
    annotator = np.sort(((item + np.tile([0, 1, 3], 8)) % 5).reshape(8, 3), axis=1).ravel()
    return data_of(item, annotator, np.zeros(24), 8, 5, 3)


def unknowns(data: Data, state: GibbsState, rng: np.random.Generator) -> np.ndarray:
    """Return label-invariant unknowns: concentrations, λ, clusters, and the answer for an item."""
    together = float(state.w[0] == state.w[1]), float(state.z[0] == state.z[1])
    kinds = len(np.unique(state.w)), len(np.unique(state.z))
    return np.array([
        state.r, state.s, state.q, state.a, state.gamma, state.tau, state.lam, state.phi0[0],
        state.from_item.sum(), *together, *kinds, answer(data, state, rng),
    ])  # fmt: skip


def answer(data: Data, state: GibbsState, rng: np.random.Generator) -> float:
    """Y_0 of the first class, (1 − λ) mean_n π_{n w_0} + λ ρ_0, with π and ρ drawn given the state."""
    mask = (state.w[data.item] == state.w[0]) & ~state.from_item
    counts = np.zeros((data.N, data.P))
    np.add.at(counts, (data.annotator[mask], data.label[mask]), 1)
    pi = dirichlet(state.r * state.theta[state.w[0], state.z] + counts, rng)
    item_counts = np.bincount(data.label[(data.item == 0) & state.from_item], minlength=data.P)
    rho = dirichlet(state.q * state.phi[state.w[0]] + item_counts, rng)
    return float((1 - state.lam) * pi[:, 0].mean() + state.lam * rho[0])


def calibration_ranks(n: int, n_burn: int, thin: int, n_draws: int, seed: int) -> np.ndarray:
    """Return (n, quantities) ranks of the true values among the posterior draws.

    They are uniform on 0 … n_draws for a correct sampler (Talts et al. 2018). Ties are broken at random.
    """
    ranks = []
    for i in range(n):
        rng = np.random.default_rng([seed, i])
        true_state = prior_state(calibration_data(), 3, 2, TIGHT, rng)
        data = labels_of(calibration_data(), true_state, rng)
        state = prior_state(data, 3, 2, TIGHT, rng)
        draws = []
        for sweep in range(n_burn + thin * n_draws):
            state = sampler.sweep(state, data, rng, TIGHT)
            if sweep >= n_burn and (sweep - n_burn) % thin == 0:
                draws.append(unknowns(data, state, rng))
        truth, drawn = unknowns(data, true_state, rng), np.array(draws)
        ties = (drawn == truth).sum(axis=0)
        ranks.append((drawn < truth).sum(axis=0) + rng.integers(ties + 1))
    return np.array(ranks)


def uniformity(ranks: np.ndarray, n_draws: int, n_bins: int) -> np.ndarray:
    """Return p-values of chi-square tests that ranks are uniform."""
    bins = ranks * n_bins // (n_draws + 1)
    counts = np.stack([np.bincount(column, minlength=n_bins) for column in bins.T])
    return np.asarray(chisquare(counts, axis=1).pvalue)


def test_simulation_based_calibration() -> None:
    """Bonferroni: the smallest of 14 p-values, times 14, must not be small."""
    n, n_burn, thin, n_draws, n_bins = usually((20, 20, 6, 9, 5), verify=(400, 100, 15, 19, 20))
    values = uniformity(calibration_ranks(n, n_burn, thin, n_draws, 7), n_draws, n_bins)
    assert values.min() * len(values) > 0.01, values.round(4)


def test_sweep_does_not_modify_its_arguments() -> None:
    """Chains on several threads share the data; a checkpoint keeps the state."""
    data, state = crowd(), strong_state(crowd())
    before = copy.deepcopy((vars(data), vars(state)))
    sampler.sweep(state, data, np.random.default_rng(0), TIGHT)
    for record, old in zip((data, state), before, strict=True):
        for name, value in old.items():
            np.testing.assert_array_equal(getattr(record, name), value)


# ---- seeded faults, one per conditional distribution ----------------------------------------------------


def no_item_tables(data, state, priors, rng):  # type: ignore[no-untyped-def]
    """Leave the tables of labels from ρ out of Φ."""
    without = replace(state, from_item=np.zeros_like(state.from_item))
    return replace(RIGHT["draw_measures"](data, without, priors, rng), from_item=state.from_item)


def full_concentration(data, state, priors, rng):  # type: ignore[no-untyped-def]
    """Use the full concentration in every cell of ψ."""
    drawn = RIGHT["draw_measures"](data, state, priors, rng)
    sizes = np.bincount(state.w, minlength=len(state.psi))
    return replace(drawn, psi=sampler.draw_dirichlet(drawn.gamma + sizes, rng))


def with_argument(name, index, change):  # type: ignore[no-untyped-def]
    """Return the function with one of its arguments changed."""

    def faulty(*arguments):  # type: ignore[no-untyped-def]
        before, after = arguments[:index], arguments[index + 1 :]
        return RIGHT[name](*before, change(arguments[index]), *after)

    return faulty


def twin_with(name, old, new):  # type: ignore[no-untyped-def]
    """Return the loop's twin with a fault in its text."""
    source, namespace = inspect.getsource(hpgm_twin), dict[str, object]()
    assert source.count(old) == 1
    exec(source.replace(old, new), namespace)
    return namespace[name]


# function, name of the fault, faulty version
CASES = [
    ("draw_clusters", "no_cluster_weights", with_argument("draw_clusters", 2, np.ones_like)),
    ("item_clusters", "item_is_counted", ("label[i] == y for i in rest", "0 for i in rest")),
    ("item_clusters", "no_item_labels", ("[q_phi[k, y] + same for", "[1.0 for")),
    ("item_clusters", "repeats_as_if_independent", ("        elif before:\n", "        elif False:\n")),
    ("label_sources", "label_itself_counted", ("table[n, y, k] - (not was)", "table[n, y, k]")),
    ("label_sources", "prior_only", ("(q_phi[k, y] + (own[y] - was)) / (q +", "q_phi[k, y] / (q + 0 *")),
    ("draw_label_sources", "lambda_exchanged", with_argument("draw_label_sources", 4, lambda lam: 1 - lam)),
    ("draw_annotator_clusters", "no_omega", with_argument("draw_annotator_clusters", 4, np.ones_like)),
    ("annotator_clusters", "plain_power", ("float(alpha + before[k, y])", "float(alpha)")),
    ("annotator_tables", "one_table_each", ("u[e] * (alpha + before[k, y])", "0")),
    ("tables_of", "one_table_each", ("(alpha[r, p] + i)", "alpha[r, p]")),
    ("draw_concentration", "no_sizes", with_argument("draw_concentration", 3, lambda n: n[:1])),
    ("draw_weight_concentration", "one_more", with_argument("draw_weight_concentration", 3, lambda n: 9 * n)),
    ("draw_measures", "no_item_tables", no_item_tables),
    ("draw_measures", "full_concentration", full_concentration),
    ("draw_lambda", "no_prior", lambda mask, prior, rng: rng.beta(1 + mask.sum(), 1 + (~mask).sum())),
]  # fmt: skip
RIGHT = {name: getattr(sampler, name) for name, _, _ in CASES}
DISCRETE = [name for name, _, _ in CASES[:9]]


# `make verify` tries every fault; otherwise two of a discrete step and one of a continuous step.
TRIED = usually([CASES[0], CASES[2], CASES[-1]], verify=CASES)


@pytest.mark.parametrize(("name", "_", "fault"), TRIED, ids=[f"{name}-{fault}" for name, fault, _ in TRIED])
def test_seeded_fault_is_detected(name, _, fault, monkeypatch, expected):  # type: ignore[no-untyped-def]
    """Detect it by enumeration if the step is discrete, else by the joint distribution."""
    monkeypatch.setattr(sampler, name, twin_with(name, *fault) if isinstance(fault, tuple) else fault)
    if name in DISCRETE:
        assert worst_against_enumeration(True, n=usually(2000, verify=12_000)) > 6
    else:
        assert geweke(expected, usually(1000, verify=3000), 12) > 6


def test_without_labels_the_prior_is_invariant() -> None:
    data = data_of([], [], [], 5, 4, 3)
    rng = np.random.default_rng(3)
    state, draws = prior_state(data, 3, 2, TIGHT, rng), []
    for _ in range(usually(1000, verify=3000)):
        state = sampler.sweep(state, data, rng, TIGHT)
        pairs = (state.w[0] == state.w[1]), (state.z[0] == state.z[1])
        draws.append([state.r, state.s, state.q, state.a, state.gamma, state.tau, state.lam, state.phi0[0]])
        draws[-1] += [state.theta[0, 0, 0], *pairs]
    moments = [shape / rate for shape, rate in (TIGHT.r, TIGHT.s, TIGHT.q, TIGHT.a, TIGHT.gamma, TIGHT.tau)]
    moments += [TIGHT.lam[0] / sum(TIGHT.lam), 1 / 3, 1 / 3]
    # P(w_0 = w_1) = E (1 + γ/K) / (1 + γ), by quadrature over γ ~ Gamma(4, 2)
    gamma = np.random.default_rng(0).gamma(4.0, 0.5, size=400_000)
    moments += [float(np.mean((1 + gamma / 3) / (1 + gamma))), float(np.mean((1 + gamma / 2) / (1 + gamma)))]
    assert z_score(np.array(draws, dtype=float), np.array(moments)).max() < 4.5


def test_draw_tables_matches_exact_distribution() -> None:
    """P(t tables | 3 customers, α) = |s(3, t)| α^t / (α (α + 1) (α + 2)), Stirling numbers 2, 3, 1."""
    alpha = 0.7
    customers = np.full((20_000, 1), 3)
    tables, larger = sampler.draw_tables(customers, np.full((20_000, 1), alpha), np.random.default_rng(0))
    assert larger.tolist() == [20_000] * 3
    exact = np.array([2 * alpha, 3 * alpha**2, alpha**3]) / (alpha * (alpha + 1) * (alpha + 2))
    draws = np.bincount(tables.ravel(), minlength=4)[1:] / 20_000
    assert np.abs(draws - exact).max() < 4 * np.sqrt(0.25 / 20_000)


def split_rhat(chains: np.ndarray) -> float:
    """Return split-R̂ of one quantity (chains, draws)."""
    return float(split_rhats(chains[:, :, None])[0])


def test_split_rhat_and_effective_size() -> None:
    """AR(1) chains with correlation ρ have an effective share of (1 − ρ) / (1 + ρ)."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(4, 4000))
    assert split_rhat(noise) < 1.01
    assert effective_size(noise) > 14_000
    slow = noise.copy()
    for t in range(1, 4000):
        slow[:, t] += 0.8 * slow[:, t - 1]
    assert effective_size(slow) == pytest.approx(16_000 * 0.2 / 1.8, rel=0.2)
    assert split_rhat(noise + np.arange(4)[:, None]) > 1.3
    # by hand: halves (0, 2), (4, 6), (0, 2), (4, 6) have variance 2 within, means 1, 5, 1, 5 and 16/3 between
    steps = np.array([[0.0, 2.0, 4.0, 6.0]] * 2)
    assert split_rhat(steps) == pytest.approx(np.sqrt(1 / 2 + 16 / 3 / 2))
    both = split_rhats(np.stack([steps, np.ones((2, 4))], axis=2))
    np.testing.assert_allclose(both, [np.sqrt(1 / 2 + 16 / 3 / 2), 1.0])
