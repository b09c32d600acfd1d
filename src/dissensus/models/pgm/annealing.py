"""Simulated annealing on the graphical model (Algorithm 2 of the paper).

A sweep proposes new values of every Θ_kl, ψ, Ω, every w_m and every z_n, in this order, and accepts each with
probability min(1, exp(δ / T)), where δ is the change of the joint log-likelihood ℓ and
T(t) = T₀/(t+1)^c the temperature of sweep t. The paper has T₀ = c = 1, which is cold from the start: a single
label changes ℓ by more than one, so the search stays near the first local maximum. Proposals are drawn

* for Θ_kl, ψ and Ω from their Dirichlet conditionals given w and z (proposals from the prior are almost
  always rejected, and the fit stays poor);
* for w_m and z_n uniformly from all clusters.

As in the paper the acceptance rule is Metropolis', without a correction for asymmetric proposals: this is a
search for a good state, not a sampler. Given Θ and z the items are independent, and given Θ and w the
annotators are, so a sweep over either is one vectorised step.

The last temperatures still accept worse states, and the best state visited is rarely a local maximum. So the
best states are improved by coordinate ascent (not in the paper): w, z and the parameters in turn, until ℓ
does not rise.

The paper prints δ_ψ and δ_Ω with their prior terms only. By their definition as differences of ℓ they also
contain Σ_m log ψ_{w_m} and Σ_n log Ω_{z_n}, which are included here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from dissensus.engine import raise_if_cancelled
from dissensus.labels.annotations import Annotations
from dissensus.models.hpgm.sampler import draw_dirichlet
from dissensus.models.pgm.m_step import Clusters, Parameters, Priors, block_counts, log_joint
from dissensus.models.pgm.messages import prior_scores
from dissensus.numerics import Array, Concentration, normalised, safe_log

MAX_SWEEPS_WITHOUT_GAIN = 100  # not counting warm sweeps
WARM_TEMPERATURE = 1.0  # above it, the search does not stop
N_ASCENTS = 5  # number of best states from which coordinate ascent starts


@dataclass(frozen=True)
class HardState:
    """Complete state of the model: parameters and a cluster for every item and annotator."""

    parameters: Parameters
    w: Clusters  # (M,)
    z: Clusters  # (N,)


@dataclass(frozen=True)
class Annealed:
    """Best states (best first), ℓ after every sweep and ascent step, and why the search ended."""

    best: list[tuple[float, HardState]]
    trace: Array
    stopped: str


ItemPrior = Array | None  # (items, classes): pseudo-labels of an average annotator
BestStates = dict[bytes, tuple[float, HardState]]  # by a hash of their clusters, with ℓ


# ---- differences of ℓ ---------------------------------------------------------------------------------


def delta_theta(new: Array, old: Array, counts: Array, priors: Priors) -> Array:
    """Return (K, L): (α−1) Σ_p log Θ'_klp/Θ_klp + Σ_{labels of (k, l)} log Θ'_kly/Θ_kly."""
    return np.asarray(((priors.alpha - 1 + counts) * (safe_log(new) - safe_log(old))).sum(axis=-1))


def delta_shares(new: Array, old: Array, members: Array, prior: Concentration) -> float:
    """Return (prior−1) Σ_k log ψ'_k/ψ_k + Σ_m log ψ'_{w_m}/ψ_{w_m}, or its analogue for Ω and z."""
    return float(((prior - 1 + members) * (safe_log(new) - safe_log(old))).sum())


def delta_items(
    labels: Annotations, state: HardState, proposal: Clusters, scores: Array | None = None
) -> Array:
    """Return (M,): log ψ_{w'}/ψ_w + Σ_{labels of m} log Θ_{w', z_n, y}/Θ_{w, z_n, y}.

    ``scores`` (items, K) are the log-prior of the items' clusters.
    """
    log_psi = safe_log(state.parameters.psi)
    new = _label_terms(labels, state.parameters.theta, proposal, state.z)
    old = _label_terms(labels, state.parameters.theta, state.w, state.z)
    terms = np.bincount(labels.item, new - old, minlength=labels.n_items)
    delta = np.asarray(log_psi[proposal] - log_psi[state.w] + terms)
    items = np.arange(labels.n_items)
    return delta if scores is None else delta + scores[items, proposal] - scores[items, state.w]


def delta_annotators(labels: Annotations, state: HardState, proposal: Clusters) -> Array:
    """Return (N,): log Ω_{z'}/Ω_z + Σ_{labels of n} log Θ_{w_m, z', y}/Θ_{w_m, z, y}."""
    log_omega = safe_log(state.parameters.omega)
    new = _label_terms(labels, state.parameters.theta, state.w, proposal)
    old = _label_terms(labels, state.parameters.theta, state.w, state.z)
    terms = np.bincount(labels.annotator, new - old, minlength=labels.n_annotators)
    return np.asarray(log_omega[proposal] - log_omega[state.z] + terms)


def _label_terms(labels: Annotations, theta: Array, w: Clusters, z: Clusters) -> Array:
    """Return log Θ_{w_m, z_n, y} of every label."""
    return np.asarray(safe_log(theta)[w[labels.item], z[labels.annotator], labels.label])


# ---- the search ---------------------------------------------------------------------------------------


def accepted(delta: Array | float, temperature: float, rng: Generator) -> NDArray[np.bool_]:
    """Accept each proposal with probability min(1, exp(δ / T)) (Metropolis)."""
    return np.asarray(np.log(rng.random(np.shape(delta))) < np.asarray(delta) / temperature)


def sweep(
    labels: Annotations, state: HardState, priors: Priors, T: float, rng: Generator, prior: ItemPrior = None
) -> HardState:
    """Propose a new value of every parameter and cluster once."""
    K, L, _ = state.parameters.theta.shape
    parameters = _propose_parameters(labels, state, priors, T, rng)
    state = HardState(parameters, state.w, state.z)
    items = rng.integers(K, size=len(state.w))
    taken = accepted(delta_items(labels, state, items, _item_scores(labels, state, prior)), T, rng)
    state = HardState(parameters, np.where(taken, items, state.w), state.z)
    annotators = rng.integers(L, size=len(state.z))
    taken = accepted(delta_annotators(labels, state, annotators), T, rng)
    return HardState(parameters, state.w, np.where(taken, annotators, state.z))


def _item_scores(labels: Annotations, state: HardState, prior: ItemPrior) -> Array | None:
    """Return (items, K): the log-prior of each item's cluster, or None without a prior."""
    if prior is None:
        return None
    mass = np.bincount(state.z, labels.annotator_load, minlength=len(state.parameters.omega))
    return prior_scores(prior, state.parameters.theta, np.asarray(mass, dtype=np.float64))


def _propose_parameters(
    labels: Annotations, state: HardState, priors: Priors, T: float, rng: Generator
) -> Parameters:
    old = state.parameters
    K, L, _ = old.theta.shape
    counts = block_counts(labels, state.w, state.z, K, L)
    theta = draw_dirichlet(priors.alpha + counts, rng)
    taken = accepted(delta_theta(theta, old.theta, counts, priors), T, rng)
    psi = _propose_shares(old.psi, state.w, priors.gamma, T, rng)
    omega = _propose_shares(old.omega, state.z, priors.tau, T, rng)
    return Parameters(np.where(taken[..., None], theta, old.theta), psi, omega)


def _propose_shares(old: Array, clusters: Clusters, prior: Concentration, T: float, rng: Generator) -> Array:
    members = _members(clusters, len(old))
    new = draw_dirichlet(prior + members, rng)
    return new if accepted(delta_shares(new, old, members, prior), T, rng) else old


def _members(clusters: Clusters, n: int) -> Array:
    """Return the number of members of each cluster."""
    return np.bincount(clusters, minlength=n).astype(np.float64)


def anneal(
    labels: Annotations,
    start: HardState,
    priors: Priors,
    rng: Generator,
    *,
    max_iter: int,
    tol: float,
    n_best: int = 1,
    prior: ItemPrior = None,
    temperature: float = 1.0,
    cooling: float = 1.0,
    ascent: bool = True,
) -> Annealed:
    """Run sweeps at falling temperature, then ``ascent``, and return the ``n_best`` distinct states.

    ``prior`` (items, classes) contributes to ℓ and to the proposals of the items' clusters, but not to those
    of Θ.
    """
    state, best, trace = start, BestStates(), list[float]()
    stopped, n_warm = "max_iter", 0
    for t in range(max_iter):
        raise_if_cancelled()
        current = temperature * (t + 1.0) ** -cooling
        state = sweep(labels, state, priors, current, rng, prior)
        trace.append(objective(labels, state, priors, prior))
        _keep_best(best, trace[-1], state, max(n_best, N_ASCENTS))
        n_warm += current > WARM_TEMPERATURE
        before = trace[:-MAX_SWEEPS_WITHOUT_GAIN] if t > n_warm + MAX_SWEEPS_WITHOUT_GAIN else []
        if before and max(trace) - max(before) <= tol * labels.n_labels:
            stopped = "tolerance"
            break
    if ascent:
        ascents = [ascend(labels, start, priors, prior) for _, start in _ranked(best)]
        for values, maximum in ascents:
            _keep_best(best, values[-1], maximum, len(best) + 1)
        trace += max(ascents, key=lambda ascent: ascent[0][-1])[0]
    return Annealed(_ranked(best)[:n_best], np.array(trace), stopped)


def ascend(
    labels: Annotations, start: HardState, priors: Priors, prior: ItemPrior = None
) -> tuple[list[float], HardState]:
    """Run coordinate ascent until ℓ does not rise; return the values of ℓ and the last state."""
    values, state = [objective(labels, start, priors, prior)], start
    while True:
        # maximise over w given Θ and z, over z given Θ and w, then over the parameters
        w = conditionals(labels, state, prior)[0].argmax(axis=1)
        z = conditionals(labels, HardState(state.parameters, w, state.z))[1].argmax(axis=1)
        K, L, _ = state.parameters.theta.shape
        # modes of the Dirichlet conditionals: (α−1 + n) / Σ (α−1 + n)
        theta = normalised(priors.alpha - 1 + block_counts(labels, w, z, K, L))
        psi = normalised(priors.gamma - 1 + _members(w, K))
        omega = normalised(priors.tau - 1 + _members(z, L))
        updated = HardState(Parameters(theta, psi, omega), w, z)
        value = objective(labels, updated, priors, prior)
        if value <= values[-1]:
            return values, state
        values.append(value)
        state = updated


def objective(labels: Annotations, state: HardState, priors: Priors, prior: ItemPrior) -> float:
    """Return ℓ plus the items' log-prior."""
    scores = _item_scores(labels, state, prior)
    prior_term = 0.0 if scores is None else float(scores[np.arange(len(state.w)), state.w].sum())
    return prior_term + log_joint(labels, state.parameters, state.w, state.z, priors)


def _keep_best(best: BestStates, value: float, state: HardState, n_best: int) -> None:
    """Add a state to the n best; of states with the same clusters, keep the better one."""
    clusters = hashlib.sha256(state.w.tobytes() + state.z.tobytes()).digest()
    if clusters in best and best[clusters][0] >= value:
        return
    best[clusters] = value, state
    if len(best) > n_best:
        del best[min(best, key=lambda key: best[key][0])]


def _ranked(best: BestStates) -> list[tuple[float, HardState]]:
    return sorted(best.values(), key=lambda scored: -scored[0])


def conditionals(labels: Annotations, state: HardState, prior: ItemPrior = None) -> tuple[Array, Array]:
    """Return log P(w_m = k | Θ, z) and log P(z_n = l | Θ, w), each up to a constant."""
    log_theta, label = safe_log(state.parameters.theta), labels.label
    w, z = state.w[labels.item], state.z[labels.annotator]
    items = _sums((of_k[z, label] for of_k in log_theta), labels.item, labels.n_items)
    by_annotator = (of_l[w, label] for of_l in log_theta.transpose(1, 0, 2))
    annotators = _sums(by_annotator, labels.annotator, labels.n_annotators)
    scores = _item_scores(labels, state, prior)
    items = items if scores is None else items + scores
    return items + safe_log(state.parameters.psi), annotators + safe_log(state.parameters.omega)


def _sums(columns: Iterable[Array], target: NDArray[np.int32], n: int) -> Array:
    """Return (n, columns): sums by target of the columns, which are generated one at a time."""
    sums = [np.bincount(target, column, minlength=n).astype(np.float64) for column in columns]
    return np.stack(sums, axis=1)


def start_at(labels: Annotations, w: Clusters, z: Clusters, K: int, L: int, priors: Priors) -> HardState:
    """Return a state with the given clusters, and parameters at their conditional means."""
    theta = normalised(priors.alpha + block_counts(labels, w, z, K, L))
    psi, omega = normalised(priors.gamma + _members(w, K)), normalised(priors.tau + _members(z, L))
    return HardState(Parameters(theta, psi, omega), w, z)
