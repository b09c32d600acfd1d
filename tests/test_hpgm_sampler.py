"""The sampler against what does not know how it works: enumeration, simulation from the model, the prior.

Expected values come from the generative story alone (``prior_state``, ``labels_of``, ``log_joint`` below).
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import chisquare

from dissensus.models.hpgm import sampler
from dissensus.models.hpgm.sampler import Data, Priors, State
from dissensus.models.sampled import effective_size, split_rhats
from sizes import usually

pytestmark = [pytest.mark.slow, pytest.mark.no_cover]

TIGHT = Priors(
    r=(4.0, 1.0),
    s=(4.0, 1.0),
    q=(4.0, 1.0),
    a=(4.0, 1.0),
    gamma=(4.0, 2.0),
    tau=(4.0, 2.0),
    lam=(2.0, 4.0),
    phi0=6.0,
)


# ---- the story, told forwards ---------------------------------------------------------------------------


def prior_state(data: Data, K: int, L: int, priors: Priors, rng: np.random.Generator) -> State:
    """A state straight from the prior."""
    r, s, q, a, gamma, tau = (
        rng.gamma(shape) / rate
        for shape, rate in (priors.r, priors.s, priors.q, priors.a, priors.gamma, priors.tau)
    )
    phi0 = rng.dirichlet(np.full(data.P, priors.phi0 / data.P))
    phi = dirichlet(np.tile(a * phi0, (K, 1)), rng)
    theta = dirichlet(np.repeat(s * phi[:, None], L, axis=1), rng)
    psi, omega = dirichlet(np.full(K, gamma / K), rng), dirichlet(np.full(L, tau / L), rng)
    lam = rng.beta(*priors.lam)
    w, z = rng.choice(K, size=data.M, p=psi), rng.choice(L, size=data.N, p=omega)
    own = rng.random(len(data.item)) < lam
    return State(w, z, own, theta, phi, phi0, psi, omega, r, s, q, a, gamma, tau, lam)


def dirichlet(alpha: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    gammas = np.maximum(rng.standard_gamma(alpha), 1e-300)
    return np.asarray(gammas / gammas.sum(axis=-1, keepdims=True))


def labels_of(data: Data, state: State, rng: np.random.Generator) -> Data:
    """Labels for a state: π and ρ drawn, then every label."""
    pi = dirichlet(state.r * state.theta[:, state.z].transpose(1, 0, 2), rng)  # (N, K, P)
    rho = dirichlet(state.q * state.phi[state.w], rng)
    chances = np.where(state.own[:, None], rho[data.item], pi[data.annotator, state.w[data.item]])
    label = (rng.random(len(chances))[:, None] > chances.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return redealt(data, label)


def redealt(data: Data, label: np.ndarray) -> Data:
    """The same items and annotators, cut as before, with other labels."""
    P, rows = data.P, data.busy_rows
    place = np.searchsorted(data.busy, data.annotator[rows])
    sums = sampler.adder(data.item[rows], data.M, place * P + label[rows], len(data.busy) * P)
    blocks = tuple(replace(block, cell=block.annotator * P + label[block.rows]) for block in data.blocks)
    return replace(data, label=label, blocks=blocks, busy_sums=sums)


def log_joint(data: Data, state: State, w: np.ndarray, z: np.ndarray, own: np.ndarray) -> np.ndarray:
    """log P(y, w, z, own | all else), π and ρ integrated out, for many (w, z, own) at once (one a row)."""
    total = np.log(state.psi[w]).sum(axis=1) + np.log(state.omega[z]).sum(axis=1)
    total += np.log(np.where(own, state.lam, 1 - state.lam)).sum(axis=1)
    is_label = np.eye(data.P)[data.label]  # (E, P)
    for n, k in itertools.product(range(data.N), range(len(state.psi))):
        mine = (data.annotator == n) & (w[:, data.item] == k) & ~own
        total += polya(mine @ is_label, state.r * state.theta[k, z[:, n]])
    for m in range(data.M):
        total += polya(((data.item == m) & own) @ is_label, state.q * state.phi[w[:, m]])
    return total


def polya(counts: np.ndarray, alpha: np.ndarray) -> np.ndarray:
    """log P(a sequence with these counts), its distribution ~ Dir(alpha)."""
    top = gammaln(alpha + counts).sum(axis=1) - gammaln(alpha).sum(axis=1)
    return top + gammaln(alpha.sum(axis=1)) - gammaln(alpha.sum(axis=1) + counts.sum(axis=1))


# ---- help -----------------------------------------------------------------------------------------------


def crowd(n_blocks: int, repeated: bool = False) -> Data:
    """Three items, three annotators, seven labels of two classes; perhaps one annotator repeats an item."""
    item = [0, 0, 0, 1, 1, 2, 2]
    annotator = [0, 1, 1 if repeated else 2, 0, 1, 0, 2]
    return Data.of(np.array(item), np.array(annotator), np.array([0, 1, 1, 0, 0, 1, 0]), 3, 3, 2, n_blocks)


def one_state(data: Data) -> State:
    """Parameters under which labels, clusters and own labels pull hard at each other."""
    phi = np.array([[0.8, 0.2], [0.25, 0.75]])
    theta = np.array([[[0.9, 0.1], [0.45, 0.55]], [[0.3, 0.7], [0.1, 0.9]]])
    weights = np.array([0.7, 0.3]), np.array([0.4, 0.6])
    state = prior_state(data, 2, 2, TIGHT, np.random.default_rng(5))
    return replace(state, theta=theta, phi=phi, psi=weights[0], omega=weights[1], r=0.8, q=0.7, lam=0.4)


def z_score(chain: np.ndarray, mean: float | np.ndarray, error: float | np.ndarray = 0.0) -> np.ndarray:
    """How far the mean of a chain is from ``mean``, in standard errors by batch means."""
    size = max(len(chain) // 40, 1)
    batches = chain[: size * (len(chain) // size)].reshape(-1, size, *chain.shape[1:]).mean(axis=1)
    spread = np.sqrt(batches.var(axis=0, ddof=1) / len(batches) + np.square(error))
    return np.abs(chain.mean(axis=0) - mean) / np.maximum(spread, 1e-12)


# ---- enumeration ----------------------------------------------------------------------------------------


BITS = np.array(list(itertools.product((0, 1), repeat=13)))


def enumerated(data: Data, state: State) -> np.ndarray:
    """Posterior of (w, z, own) over all 2^(3 + 3 + 7) states, by the joint."""
    logs = log_joint(data, state, BITS[:, :3], BITS[:, 3:6], BITS[:, 6:].astype(bool))
    chances = np.exp(logs - logs.max())
    return np.asarray(chances / chances.sum())


def discrete_chain(data: Data, state: State, n: int, rng: np.random.Generator) -> np.ndarray:
    """(n, 13): the bits of w, z and own, all else held."""
    q_phi, r_theta = state.q * state.phi, state.r * state.theta
    found = np.empty((n, 13), dtype=bool)
    for i in range(n):
        rows, sizes = sampler.row_priors(r_theta, state.z), np.full((data.N, len(state.psi)), state.r)
        w = sampler.draw_clusters(data, rows, sizes, state.psi, q_phi, state.w, state.own, rng)
        own = sampler.draw_own(data, rows, sizes, q_phi, state.lam, w, state.own, rng)
        z = sampler.draw_annotator_clusters(
            sampler.annotator_counts(data, w, own, 2), r_theta, state.omega, rng
        )
        state = replace(state, w=w, z=z, own=own)
        found[i] = np.concatenate([w, z, own])
    return found


def worst_against_enumeration(n_blocks: int, repeated: bool, n: int = usually(1200, verify=4000)) -> float:
    """The largest z-score over single bits and pairs of bits."""
    data = crowd(n_blocks, repeated)
    state = one_state(data)
    chances = enumerated(data, state)
    chain = discrete_chain(data, state, n, np.random.default_rng(1)).astype(float)
    pairs = list(itertools.combinations(range(13), 2))
    seen = np.column_stack([chain, *(chain[:, i] * chain[:, j] for i, j in pairs)])
    truth = np.column_stack([BITS, *(BITS[:, i] * BITS[:, j] for i, j in pairs)]).T @ chances
    return float(z_score(seen, truth, np.sqrt(truth * (1 - truth) / n)).max())


@pytest.mark.parametrize(
    ("n_blocks", "repeated", "n_busy"), [(1, False, 3), (3, False, 0), (3, True, 1), (2, False, 1)]
)
def test_clusters_and_own_labels_against_enumeration(n_blocks: int, repeated: bool, n_busy: int) -> None:
    assert len(crowd(n_blocks, repeated).busy) == n_busy
    assert worst_against_enumeration(n_blocks, repeated) < 4.5


# ---- Geweke: the joint distribution, from both sides ------------------------------------------------------


def statistics(data: Data, state: State) -> np.ndarray:
    """Numbers of a joint draw that any wrong conditional should move."""
    y, k, n = data.label, state.w[data.item], data.annotator
    i, j = np.triu_indices(len(y), 1)
    agree = y[i] == y[j]
    alike = agree & (n[i] == n[j]) & (k[i] == k[j])
    same_item = agree & (data.item[i] == data.item[j])
    both_own = same_item & state.own[i] & state.own[j]
    sizes = np.bincount(state.w, minlength=len(state.psi)), np.bincount(state.z, minlength=len(state.omega))
    return np.array([
        state.r, np.log(state.r), state.s, np.log(state.s), state.q, np.log(state.q), state.a,
        np.log(state.a), state.gamma, state.tau, state.lam, state.own.mean(), state.own.mean() * state.lam,
        (state.phi0**2).sum(), (state.phi**2).sum(), (state.theta**2).sum(), (state.psi**2).sum(),
        (state.omega**2).sum(), (sizes[0] ** 2).sum(), (sizes[1] ** 2).sum(), state.psi[state.w].mean(),
        state.omega[state.z].mean(), np.sum(alike), np.sum(same_item), np.sum(both_own), (y == 0).mean(),
        state.phi0[y].mean(), state.phi[k, y].mean(), state.theta[k, state.z[n], y].mean(),
        (state.own * state.phi[k, y]).mean(), (~state.own * state.theta[k, state.z[n], y]).mean(),
        np.sqrt(state.phi * state.phi0).sum(), np.sqrt(state.theta * state.phi[:, None]).sum(),
        state.s * (state.theta**2).sum(), state.a * (state.phi**2).sum(), state.gamma * (state.psi**2).sum(),
        state.tau * (state.omega**2).sum(), state.r * np.sum(alike), state.q * np.sum(both_own),
        state.lam * np.sum(same_item), state.psi[state.w].mean() * state.gamma,
    ])  # fmt: skip


def geweke_data(n_blocks: int = 3) -> Data:
    """Four items, three annotators of one to five labels, one pair repeated."""
    item = np.array([0, 0, 0, 1, 1, 2, 2, 2, 3, 3])
    annotator = np.array([0, 1, 2, 0, 1, 0, 0, 1, 0, 2])
    return Data.of(item, annotator, np.zeros(10, dtype=np.int64), 4, 3, 3, n_blocks)


def forwards(n: int, seed: int) -> np.ndarray:
    """Statistics of n independent draws of state and labels."""
    data, rng = geweke_data(), np.random.default_rng(seed)
    found = []
    for _ in range(n):
        state = prior_state(data, 3, 2, TIGHT, rng)
        found.append(statistics(labels_of(data, state, rng), state))
    return np.array(found)


def onwards(n: int, seed: int) -> np.ndarray:
    """Statistics of a chain that draws labels given the state, and the state by ``sweep``."""
    data, rng = geweke_data(), np.random.default_rng(seed)
    state = prior_state(data, 3, 2, TIGHT, rng)
    found = []
    for _ in range(n):
        data = labels_of(data, state, rng)
        state = sampler.sweep(state, data, rng, TIGHT)
        found.append(statistics(data, state))
    return np.array(found)


@pytest.fixture(scope="module")
def expected() -> tuple[np.ndarray, np.ndarray]:
    """Means of the statistics under the joint, and their standard errors."""
    draws = forwards(usually(3000, verify=8000), 11)
    return draws.mean(axis=0), draws.std(axis=0) / np.sqrt(len(draws))


def geweke(expected: tuple[np.ndarray, np.ndarray], n: int, seed: int) -> float:
    return float(z_score(onwards(n, seed), *expected).max())


def test_joint_distribution_from_both_sides(expected: tuple[np.ndarray, np.ndarray]) -> None:
    assert geweke(expected, usually(700, verify=4000), 12) < 4.5


# ---- simulation-based calibration ------------------------------------------------------------------------


def calibration_data() -> Data:
    """Eight items, five annotators, three labels an item."""
    item = np.repeat(np.arange(8), 3)
    annotator = (item + np.tile([0, 1, 3], 8)) % 5
    return Data.of(item, annotator, np.zeros(24, dtype=np.int64), 8, 5, 3, 3)


def uncertain(data: Data, state: State, rng: np.random.Generator) -> np.ndarray:
    """What a fit is uncertain about, label-invariant: concentrations, λ, clusters, and the item's answer."""
    together = float(state.w[0] == state.w[1]), float(state.z[0] == state.z[1])
    kinds = len(np.unique(state.w)), len(np.unique(state.z))
    return np.array([
        state.r, state.s, state.q, state.a, state.gamma, state.tau, state.lam, state.phi0[0],
        state.own.sum(), *together, *kinds, answer(data, state, rng),
    ])  # fmt: skip


def answer(data: Data, state: State, rng: np.random.Generator) -> float:
    """Y_0 of the first class, (1 − λ) mean_n π_{n w_0} + λ ρ_0, with π and ρ drawn given the state."""
    mine = (state.w[data.item] == state.w[0]) & ~state.own
    given = np.zeros((data.N, data.P))
    np.add.at(given, (data.annotator[mine], data.label[mine]), 1)
    pi = dirichlet(state.r * state.theta[state.w[0], state.z] + given, rng)
    own = np.bincount(data.label[(data.item == 0) & state.own], minlength=data.P)
    rho = dirichlet(state.q * state.phi[state.w[0]] + own, rng)
    return float((1 - state.lam) * pi[:, 0].mean() + state.lam * rho[0])


def ranks(n: int, n_burn: int, thin: int, n_draws: int, seed: int) -> np.ndarray:
    """(n, quantities): the place of what labels were made with among the draws given these labels.

    Uniform on 0 … n_draws where the draws are of the posterior (Talts et al. 2018). Chance decides ties.
    """
    found = []
    for i in range(n):
        rng = np.random.default_rng([seed, i])
        made = prior_state(calibration_data(), 3, 2, TIGHT, rng)
        data = labels_of(calibration_data(), made, rng)
        state = prior_state(data, 3, 2, TIGHT, rng)
        draws = []
        for sweep in range(n_burn + thin * n_draws):
            state = sampler.sweep(state, data, rng, TIGHT)
            if sweep >= n_burn and (sweep - n_burn) % thin == 0:
                draws.append(uncertain(data, state, rng))
        # π and ρ of the made state given its labels: as good a draw of them as those the labels came from
        truth, drawn = uncertain(data, made, rng), np.array(draws)
        ties = (drawn == truth).sum(axis=0)
        found.append((drawn < truth).sum(axis=0) + rng.integers(ties + 1))
    return np.array(found)


def uniformity(found: np.ndarray, n_draws: int, n_bins: int) -> np.ndarray:
    """(quantities,): p-values of a chi-square test that ranks are uniform."""
    bins = found * n_bins // (n_draws + 1)
    counts = np.stack([np.bincount(column, minlength=n_bins) for column in bins.T])
    return np.asarray(chisquare(counts, axis=1).pvalue)


def test_what_labels_were_made_with_is_a_draw_like_any_other() -> None:
    """14 chi-squares; the least p-value, times 14 (Bonferroni), must not be small."""
    n, n_burn, thin, n_draws, n_bins = usually((20, 20, 6, 9, 5), verify=(400, 100, 15, 19, 20))
    values = uniformity(ranks(n, n_burn, thin, n_draws, 7), n_draws, n_bins)
    assert values.min() * len(values) > 0.01, values.round(4)


# ---- fast forms are plain forms ------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, sampler.LONG_ROW - 1, sampler.LONG_ROW, 1000])
def test_rows_add_up_as_cumsum_adds_them(n: int) -> None:
    table = np.random.default_rng(n).gamma(0.1, size=(7, n))
    np.testing.assert_array_equal(sampler.rising(table.copy()), table.cumsum(axis=0))


def test_rising_products_are_ratios_of_gamma_functions() -> None:
    """Counts below and above those that are tabulated, rows without entries."""
    rng = np.random.default_rng(0)
    who, cell = np.sort(rng.integers(3, 9, size=60)), rng.integers(40, size=60)
    counts, alpha = rng.integers(1, 3 * sampler.SMALL_COUNT, size=60), rng.gamma(1.0, size=(40, 5))
    expected = np.zeros((10, 5))
    np.add.at(expected, who, gammaln(alpha[cell] + counts[:, None]) - gammaln(alpha[cell]))
    found = sampler.summed_log_rising(who, 10, cell, counts, alpha)
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_sums_of_table_rows_by_hand() -> None:
    sums, table = sampler.adder(np.array([0, 0, 2]), 3, np.array([1, 0, 1]), 2), np.array([[1.0], [10.0]])
    np.testing.assert_array_equal(sums @ table, [[11.0], [0.0], [10.0]])


def test_a_sweep_leaves_the_labels_as_they_were() -> None:
    """Chains on several threads share the data."""
    data = crowd(1)
    state = replace(one_state(data), own=np.arange(7) % 2 == 0)
    sampler.sweep(state, data, np.random.default_rng(0), TIGHT)
    np.testing.assert_array_equal(data.busy_sums.data, np.ones(7))


# ---- one fault a conditional distribution: each must be caught ----------------------------------------


def wrong_clusters(data, rows, sizes, psi, q_phi, w, own, rng):  # type: ignore[no-untyped-def]
    """What annotators gave to other items of the cluster forgotten: Θ in place of π."""
    K, P = q_phi.shape
    ratio = rows.reshape(-1, K)[data.annotator * P + data.label] / sizes[data.annotator]
    scores = sampler.adder(data.item, data.M) @ (np.log(ratio) * ~own[:, None])
    return sampler.draw_categories(np.log(psi) + sampler.own_scores(data, q_phi, own) + scores, rng)


def flat_clusters(data, rows, sizes, psi, q_phi, w, own, rng):  # type: ignore[no-untyped-def]
    """The weights of the clusters forgotten."""
    return RIGHT["draw_clusters"](data, rows, sizes, np.full_like(psi, 1.0), q_phi, w, own, rng)


def own_forgotten(data, q_phi, own):  # type: ignore[no-untyped-def]
    """Own labels say nothing about the cluster."""
    return np.zeros((data.M, len(q_phi)))


def mean_chances(data, rows, sizes, w, own, rng):  # type: ignore[no-untyped-def]
    """π_nk by its expectation though several labels depend on it, the label itself counted."""
    K = len(w) and rows.shape[2]
    top = rows + sampler.annotator_counts(data, w, own, K)
    return (top / top.sum(axis=1, keepdims=True))[data.annotator, data.label, w[data.item]]


def wrong_own(data, rows, sizes, q_phi, lam, w, own, rng):  # type: ignore[no-untyped-def]
    """λ and 1 − λ exchanged."""
    return RIGHT["draw_own"](data, rows, sizes, q_phi, 1 - lam, w, own, rng)


def wrong_annotators(counts, r_theta, omega, rng):  # type: ignore[no-untyped-def]
    """Annotator clusters without their weights."""
    return RIGHT["draw_annotator_clusters"](counts, r_theta, np.ones_like(omega), rng)


def plain_product(who, n, cell, counts, alpha):  # type: ignore[no-untyped-def]
    """α^c instead of α (α + 1) …: labels by one annotator as if independent."""
    return sampler.adder(who, n) @ (np.log(alpha[cell]) * counts[:, None])


def wrong_tables(counts, alpha, rng):  # type: ignore[no-untyped-def]
    """Every customer opens a table."""
    return counts


def wrong_concentration(value, prior, tables, sizes, rng):  # type: ignore[no-untyped-def]
    """The restaurants' sizes off by one."""
    return RIGHT["draw_concentration"](value, prior, tables, sizes + 1, rng)


def wrong_measures(data, state, priors, counts, rng):  # type: ignore[no-untyped-def]
    """Own labels leave no tables in Φ."""
    silent = replace(state, own=np.zeros_like(state.own))
    found = RIGHT["draw_measures"](data, silent, priors, counts, rng)
    return replace(found, own=state.own)


def wrong_weights(codes, size, concentration, prior, rng):  # type: ignore[no-untyped-def]
    """Weights with the concentration in every cell instead of its part."""
    concentration, _ = RIGHT["draw_weights"](codes, size, concentration, prior, rng)
    return concentration, sampler.draw_dirichlet(concentration + np.bincount(codes, minlength=size), rng)


def wrong_share(own, prior, rng):  # type: ignore[no-untyped-def]
    """λ without its prior."""
    return float(rng.beta(1 + own.sum(), 1 + (~own).sum()))


FAULTS = {
    "draw_clusters": (wrong_clusters, flat_clusters),
    "own_scores": (own_forgotten,),
    "draw_label_chances": (mean_chances,),
    "draw_own": (wrong_own,),
    "draw_annotator_clusters": (wrong_annotators,),
    "summed_log_rising": (plain_product,),
    "draw_tables": (wrong_tables,),
    "draw_concentration": (wrong_concentration,),
    "draw_measures": (wrong_measures,),
    "draw_weights": (wrong_weights,),
    "draw_share": (wrong_share,),
}
RIGHT = {name: getattr(sampler, name) for name in FAULTS}
DISCRETE = (
    "draw_clusters",
    "own_scores",
    "draw_label_chances",
    "draw_own",
    "draw_annotator_clusters",
    "summed_log_rising",
)
CASES = [(name, fault) for name, faults in FAULTS.items() for fault in faults]


# Every fault is tried by `make verify`; usually one of a discrete step and one of a continuous one.
TRIED = usually([case for case in CASES if case[1] in (flat_clusters, wrong_share)], verify=CASES)


@pytest.mark.parametrize(("name", "fault"), TRIED, ids=[fault.__name__ for _, fault in TRIED])
def test_a_fault_is_caught(name, fault, monkeypatch, expected):  # type: ignore[no-untyped-def]
    """By enumeration where the step is discrete, by the joint distribution otherwise."""
    monkeypatch.setattr(sampler, name, fault)
    if name in DISCRETE:
        assert worst_against_enumeration(3, False, n=usually(2000, verify=8000)) > 6
    else:
        assert geweke(expected, usually(1000, verify=3000), 12) > 6


# ---- without labels, the prior; small parts against theory ---------------------------------------------


def test_without_labels_the_prior_stays() -> None:
    """No label: r, s, q, a, γ, τ, λ and the sizes of clusters keep their prior moments."""
    nothing = np.zeros(0, dtype=np.int64)
    data = Data.of(nothing, nothing, nothing, 5, 4, 3)
    rng = np.random.default_rng(3)
    state, found = prior_state(data, 3, 2, TIGHT, rng), []
    for _ in range(usually(1000, verify=3000)):
        state = sampler.sweep(state, data, rng, TIGHT)
        pairs = (state.w[0] == state.w[1]), (state.z[0] == state.z[1])
        found.append([state.r, state.s, state.q, state.a, state.gamma, state.tau, state.lam, state.phi0[0]])
        found[-1] += [state.theta[0, 0, 0], *pairs]
    moments = [shape / rate for shape, rate in (TIGHT.r, TIGHT.s, TIGHT.q, TIGHT.a, TIGHT.gamma, TIGHT.tau)]
    moments += [TIGHT.lam[0] / sum(TIGHT.lam), 1 / 3, 1 / 3]
    # P(w_0 = w_1) = E (1 + γ/K) / (1 + γ), by quadrature over γ ~ Gamma(4, 2)
    gamma = np.random.default_rng(0).gamma(4.0, 0.5, size=400_000)
    moments += [float(np.mean((1 + gamma / 3) / (1 + gamma))), float(np.mean((1 + gamma / 2) / (1 + gamma)))]
    assert z_score(np.array(found, dtype=float), np.array(moments)).max() < 4.5


def test_tables_against_their_exact_distribution() -> None:
    """P(t tables | 3 customers, α) = |s(3, t)| α^t / (α (α + 1) (α + 2)), Stirling numbers 2, 3, 1."""
    alpha = 0.7
    tables = sampler.draw_tables(np.full(20_000, 3), np.full(20_000, alpha), np.random.default_rng(0))
    exact = np.array([2 * alpha, 3 * alpha**2, alpha**3]) / (alpha * (alpha + 1) * (alpha + 2))
    found = np.bincount(tables, minlength=4)[1:] / 20_000
    assert np.abs(found - exact).max() < 4 * np.sqrt(0.25 / 20_000)


def split_rhat(chains: np.ndarray) -> float:
    """Of one quantity, (chains, draws)."""
    return float(split_rhats(chains[:, :, None])[0])


def test_split_rhat_and_effective_size() -> None:
    """Independent draws: R̂ near 1, nearly all count. With correlation ρ: (1 − ρ) / (1 + ρ) of them."""
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
