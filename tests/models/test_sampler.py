"""The Gibbs sampler against enumeration, Geweke's joint test, calibration and the prior, with seeded faults.

Expected values come from the generative model alone (``prior_state``, ``labels_of``, ``log_joint`` below).
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import chisquare

from dissensus.models.hpgm import sampler
from dissensus.models.hpgm.sampler import Data, GibbsState, HyperPriors
from dissensus.models.sampled import effective_size, split_rhats
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
    w, z = rng.choice(K, size=data.M, p=psi), rng.choice(L, size=data.N, p=omega)
    from_item = rng.random(len(data.item)) < lam
    return GibbsState(w, z, from_item, theta, phi, phi0, psi, omega, r, s, q, a, gamma, tau, lam)


def dirichlet(alpha: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    gammas = np.maximum(rng.standard_gamma(alpha), 1e-300)
    return np.asarray(gammas / gammas.sum(axis=-1, keepdims=True))


def labels_of(data: Data, state: GibbsState, rng: np.random.Generator) -> Data:
    """Draw π and ρ given a state, then every label."""
    pi = dirichlet(state.r * state.theta[:, state.z].transpose(1, 0, 2), rng)  # (N, K, P)
    rho = dirichlet(state.q * state.phi[state.w], rng)
    probabilities = np.where(state.from_item[:, None], rho[data.item], pi[data.annotator, state.w[data.item]])
    label = (rng.random(len(probabilities))[:, None] > probabilities.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return with_labels(data, label)


def with_labels(data: Data, label: np.ndarray) -> Data:
    """Replace the labels, with the same items, annotators and blocks."""
    P, rows = data.P, data.busy_rows
    index = np.searchsorted(data.busy, data.annotator[rows])
    sums = sampler.adder(data.item[rows], data.M, index * P + label[rows], len(data.busy) * P)
    blocks = tuple(replace(block, cell=block.annotator * P + label[block.rows]) for block in data.blocks)
    return replace(data, label=label, blocks=blocks, busy_sums=sums)


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


def crowd(n_blocks: int, repeated: bool = False) -> Data:
    """Return seven labels of three items by three annotators; one pair may be repeated."""
    item = [0, 0, 0, 1, 1, 2, 2]
    annotator = [0, 1, 1 if repeated else 2, 0, 1, 0, 2]
    return Data.of(np.array(item), np.array(annotator), np.array([0, 1, 1, 0, 0, 1, 0]), 3, 3, 2, n_blocks)


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
    q_phi, r_theta = state.q * state.phi, state.r * state.theta
    draws = np.empty((n, 13), dtype=bool)
    for i in range(n):
        rows, sizes = sampler.row_priors(r_theta, state.z), np.full((data.N, len(state.psi)), state.r)
        w = sampler.draw_clusters(data, rows, sizes, state.psi, q_phi, state.w, state.from_item, rng)
        from_item = sampler.draw_label_sources(data, rows, sizes, q_phi, state.lam, w, state.from_item, rng)
        counts = sampler.annotator_counts(data, w, from_item, 2)
        z = sampler.draw_annotator_clusters(counts, r_theta, state.omega, rng)
        state = replace(state, w=w, z=z, from_item=from_item)
        draws[i] = np.concatenate([w, z, from_item])
    return draws


def worst_against_enumeration(n_blocks: int, repeated: bool, n: int = usually(1200, verify=4000)) -> float:
    """Return the largest z-score over single bits and pairs of bits."""
    data = crowd(n_blocks, repeated)
    state = strong_state(data)
    posterior = enumerated(data, state)
    chain = discrete_chain(data, state, n, np.random.default_rng(1)).astype(float)
    pairs = list(itertools.combinations(range(13), 2))
    moments = np.column_stack([chain, *(chain[:, i] * chain[:, j] for i, j in pairs)])
    truth = np.column_stack([BITS, *(BITS[:, i] * BITS[:, j] for i, j in pairs)]).T @ posterior
    return float(z_score(moments, truth, np.sqrt(truth * (1 - truth) / n)).max())


@pytest.mark.parametrize(
    ("n_blocks", "repeated", "n_busy"), [(1, False, 3), (3, False, 0), (3, True, 1), (2, False, 1)]
)
def test_discrete_steps_match_enumeration(n_blocks: int, repeated: bool, n_busy: int) -> None:
    assert len(crowd(n_blocks, repeated).busy) == n_busy
    assert worst_against_enumeration(n_blocks, repeated) < 4.5


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


def geweke_data(n_blocks: int = 3) -> Data:
    """Return ten labels of four items by three annotators, one pair repeated."""
    item = np.array([0, 0, 0, 1, 1, 2, 2, 2, 3, 3])
    annotator = np.array([0, 1, 2, 0, 1, 0, 0, 1, 0, 2])
    return Data.of(item, annotator, np.zeros(10, dtype=np.int64), 4, 3, 3, n_blocks)


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
    assert geweke(expected, usually(700, verify=4000), 12) < 4.5


# ---- simulation-based calibration ------------------------------------------------------------------------


def calibration_data() -> Data:
    """Return eight items with three labels each, by five annotators."""
    item = np.repeat(np.arange(8), 3)
    annotator = (item + np.tile([0, 1, 3], 8)) % 5
    return Data.of(item, annotator, np.zeros(24, dtype=np.int64), 8, 5, 3, 3)


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


@pytest.mark.parametrize("n", [1, sampler.MIN_LONG_ROW - 1, sampler.MIN_LONG_ROW, 1000])
def test_cumulative_rows_match_cumsum(n: int) -> None:
    table = np.random.default_rng(n).gamma(0.1, size=(7, n))
    np.testing.assert_array_equal(sampler.cumulative_rows(table.copy()), table.cumsum(axis=0))


def test_sum_log_rising_matches_gamma_functions() -> None:
    """Cover counts below and above the tabulated ones, and rows without entries."""
    rng = np.random.default_rng(0)
    who, cell = np.sort(rng.integers(3, 9, size=60)), rng.integers(40, size=60)
    counts, alpha = rng.integers(1, 3 * sampler.MAX_TABULATED_COUNT, size=60), rng.gamma(1.0, size=(40, 5))
    expected = np.zeros((10, 5))
    np.add.at(expected, who, gammaln(alpha[cell] + counts[:, None]) - gammaln(alpha[cell]))
    draws = sampler.sum_log_rising(who, 10, cell, counts, alpha)
    np.testing.assert_allclose(draws, expected, rtol=1e-10)


def test_sweep_does_not_modify_its_data() -> None:
    """Chains on several threads share the data."""
    data = crowd(1)
    state = replace(strong_state(data), from_item=np.arange(7) % 2 == 0)
    sampler.sweep(state, data, np.random.default_rng(0), TIGHT)
    np.testing.assert_array_equal(data.busy_sums.data, np.ones(7))


# ---- seeded faults, one per conditional distribution ----------------------------------------------------


def theta_for_pi(data, rows, sizes, psi, q_phi, w, from_item, rng):  # type: ignore[no-untyped-def]
    """Draw clusters with Θ instead of π: ignore the annotator's other labels."""
    K, P = q_phi.shape
    ratio = rows.reshape(-1, K)[data.annotator * P + data.label] / sizes[data.annotator]
    scores = sampler.adder(data.item, data.M) @ (np.log(ratio) * ~from_item[:, None])
    scores += sampler.item_label_scores(data, q_phi, from_item)
    return sampler.draw_categories(np.log(psi) + scores, rng)


def mean_probabilities(data, rows, sizes, w, from_item, rng):  # type: ignore[no-untyped-def]
    """Use the mean of π_nk, with the label itself counted."""
    top = rows + sampler.annotator_counts(data, w, from_item, rows.shape[2])
    return (top / top.sum(axis=1, keepdims=True))[data.annotator, data.label, w[data.item]]


def no_item_tables(data, state, priors, counts, rng):  # type: ignore[no-untyped-def]
    """Leave the tables of labels from ρ out of Φ."""
    without = replace(state, from_item=np.zeros_like(state.from_item))
    drawn = RIGHT["draw_measures"](data, without, priors, counts, rng)
    return replace(drawn, from_item=state.from_item)


def full_concentration(codes, size, concentration, prior, rng):  # type: ignore[no-untyped-def]
    """Use the full concentration in every cell."""
    concentration, _ = RIGHT["draw_weights"](codes, size, concentration, prior, rng)
    return concentration, sampler.draw_dirichlet(concentration + np.bincount(codes, minlength=size), rng)


def plain_power(who, n, cell, counts, alpha):  # type: ignore[no-untyped-def]
    """Use α^c instead of α (α + 1) …: labels of one annotator as if independent."""
    return sampler.adder(who, n) @ (np.log(alpha[cell]) * counts[:, None])


def with_argument(name, index, change):  # type: ignore[no-untyped-def]
    """Return the function with one of its arguments changed."""

    def faulty(*arguments):  # type: ignore[no-untyped-def]
        before, after = arguments[:index], arguments[index + 1 :]
        return RIGHT[name](*before, change(arguments[index]), *after)

    return faulty


# function, name of the fault, faulty version
CASES = [
    ("draw_clusters", "theta_for_pi", theta_for_pi),
    ("draw_clusters", "no_cluster_weights", with_argument("draw_clusters", 3, np.ones_like)),
    ("item_label_scores", "no_item_labels", lambda data, q_phi, mask: np.zeros((data.M, len(q_phi)))),
    ("draw_label_probabilities", "mean_probabilities", mean_probabilities),
    ("draw_label_sources", "lambda_exchanged", with_argument("draw_label_sources", 4, lambda lam: 1 - lam)),
    ("draw_annotator_clusters", "no_omega", with_argument("draw_annotator_clusters", 2, np.ones_like)),
    ("sum_log_rising", "plain_power", plain_power),
    ("draw_tables", "one_table_each", lambda counts, alpha, rng: counts),
    ("draw_concentration", "sizes_off_by_one", with_argument("draw_concentration", 3, lambda n: n + 1)),
    ("draw_measures", "no_item_tables", no_item_tables),
    ("draw_weights", "full_concentration", full_concentration),
    ("draw_lambda", "no_prior", lambda mask, prior, rng: rng.beta(1 + mask.sum(), 1 + (~mask).sum())),
]
RIGHT = {name: getattr(sampler, name) for name, _, _ in CASES}
DISCRETE = [name for name, _, _ in CASES[:7]]


# `make verify` tries every fault; otherwise one of a discrete step and one of a continuous step.
TRIED = usually([CASES[1], CASES[-1]], verify=CASES)


@pytest.mark.parametrize(("name", "_", "fault"), TRIED, ids=[fault for _, fault, _ in TRIED])
def test_seeded_fault_is_detected(name, _, fault, monkeypatch, expected):  # type: ignore[no-untyped-def]
    """Detect it by enumeration if the step is discrete, else by the joint distribution."""
    monkeypatch.setattr(sampler, name, fault)
    if name in DISCRETE:
        assert worst_against_enumeration(3, False, n=usually(2000, verify=8000)) > 6
    else:
        assert geweke(expected, usually(1000, verify=3000), 12) > 6


def test_without_labels_the_prior_is_invariant() -> None:
    nothing = np.zeros(0, dtype=np.int64)
    data = Data.of(nothing, nothing, nothing, 5, 4, 3)
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
    tables = sampler.draw_tables(np.full(20_000, 3), np.full(20_000, alpha), np.random.default_rng(0))
    exact = np.array([2 * alpha, 3 * alpha**2, alpha**3]) / (alpha * (alpha + 1) * (alpha + 2))
    draws = np.bincount(tables, minlength=4)[1:] / 20_000
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
