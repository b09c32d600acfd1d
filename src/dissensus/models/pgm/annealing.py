"""Simulated annealing on the graphical model (Algorithm 2 of the paper).

A sweep proposes anew, in this order, every Θ_kl, ψ, Ω, every w_m and every z_n, and takes a proposal with
probability min(1, exp(δ / T)), where δ is the difference it makes to the joint log-likelihood ℓ and
T(t) = T₀/(t+1)^c the temperature of sweep t. The paper has T₀ = c = 1, which is cold from the beginning: a
label more or less changes ℓ by more than one, and the search stays in the first valley it meets. How each
proposal is drawn:

* Θ_kl, ψ and Ω from their Dirichlet conditionals given w and z (drawn from the prior instead, almost every
  proposal is refused and the fit stays poor);
* w_m and z_n uniformly from all clusters.

As in the paper the acceptance rule is Metropolis', without a correction for unsymmetric proposals: this is a
search for a good state, not a sampler. Given Θ and z the items are independent, and given Θ and w the
annotators, so a sweep over them is one vectorised step and changes nothing in the rule.

The last temperatures still take worse states, and the best state met is seldom a peak. So the best states end
in coordinate ascent (the paper's Algorithm 2 does not): w, z and the parameters in turn at their best given
the others, until ℓ rises no more.

The paper prints δ_ψ and δ_Ω with their prior terms alone. By their own definition, a difference of ℓ, they
also hold Σ_m log ψ_{w_m} and Σ_n log Ω_{z_n}; that is what is computed here.
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
from dissensus.models.pgm.m_step import Clusters, Parameters, Priors, block_counts, log_joint
from dissensus.models.pgm.messages import prior_scores
from dissensus.numerics import Array, Concentration, normalised, safe_log

PATIENCE = 100  # sweeps over which the best ℓ must still rise, those that are WARM not counted
WARM = 1.0  # temperature above which nothing is said by a best ℓ that does not rise
ASCENDED = 5  # of the best states met, from how many coordinate ascent is tried


@dataclass(frozen=True)
class HardState:
    """A complete state of the model."""

    parameters: Parameters
    w: Clusters  # (M,)
    z: Clusters  # (N,)


@dataclass(frozen=True)
class Annealed:
    """The best states (best first), ℓ after every sweep and ascending step, and why the search ended."""

    best: list[tuple[float, HardState]]
    trace: Array
    stopped: str


# ---- the five differences -----------------------------------------------------------------------------


def delta_theta(new: Array, old: Array, counts: Array, priors: Priors) -> Array:
    """(K, L): (α−1) Σ_p log Θ'_klp/Θ_klp + Σ_{labels of (k, l)} log Θ'_kly/Θ_kly."""
    return np.asarray(((priors.alpha - 1 + counts) * (safe_log(new) - safe_log(old))).sum(axis=-1))


def delta_shares(new: Array, old: Array, members: Array, prior: Concentration) -> float:
    """(prior−1) Σ_k log ψ'_k/ψ_k + Σ_m log ψ'_{w_m}/ψ_{w_m}; the same for Ω and z."""
    return float(((prior - 1 + members) * (safe_log(new) - safe_log(old))).sum())


def delta_items(
    annotations: Annotations, state: HardState, proposal: Clusters, known: Array | None = None
) -> Array:
    """(M,): log ψ_{w'}/ψ_w + Σ_{labels of m} log Θ_{w', z_n, y}/Θ_{w, z_n, y}.

    ``known`` (items, K) adds what is known of the items beforehand, as logarithms.
    """
    log_psi = safe_log(state.parameters.psi)
    new = _label_terms(annotations, state.parameters.theta, proposal, state.z)
    old = _label_terms(annotations, state.parameters.theta, state.w, state.z)
    labels = np.bincount(annotations.item, new - old, minlength=annotations.n_items)
    delta = np.asarray(log_psi[proposal] - log_psi[state.w] + labels)
    items = np.arange(annotations.n_items)
    return delta if known is None else delta + known[items, proposal] - known[items, state.w]


def delta_annotators(annotations: Annotations, state: HardState, proposal: Clusters) -> Array:
    """(N,): the mirror image of :func:`delta_items`."""
    log_omega = safe_log(state.parameters.omega)
    new = _label_terms(annotations, state.parameters.theta, state.w, proposal)
    old = _label_terms(annotations, state.parameters.theta, state.w, state.z)
    labels = np.bincount(annotations.annotator, new - old, minlength=annotations.n_annotators)
    return np.asarray(log_omega[proposal] - log_omega[state.z] + labels)


def _label_terms(annotations: Annotations, theta: Array, w: Clusters, z: Clusters) -> Array:
    """log Θ_{w_m, z_n, y} of every label."""
    _, L, P = theta.shape
    cell = (w[annotations.item] * L + z[annotations.annotator]) * P + annotations.label
    return np.asarray(safe_log(theta).ravel()[cell])


# ---- the search ---------------------------------------------------------------------------------------


def accepted(delta: Array | float, temperature: float, rng: Generator) -> NDArray[np.bool_]:
    """Metropolis' rule: taken with probability min(1, exp(δ / T))."""
    return np.asarray(np.log(rng.random(np.shape(delta))) < np.asarray(delta) / temperature)


def sweep(
    annotations: Annotations,
    state: HardState,
    priors: Priors,
    temperature: float,
    rng: Generator,
    prior: Array | None = None,
) -> HardState:
    """Propose every unknown once."""
    K, L, _ = state.parameters.theta.shape
    parameters = _propose_parameters(annotations, state, priors, temperature, rng)
    state = HardState(parameters, state.w, state.z)
    items = rng.integers(K, size=len(state.w))
    known = _known(annotations, state, prior)
    taken = accepted(delta_items(annotations, state, items, known), temperature, rng)
    state = HardState(parameters, np.where(taken, items, state.w), state.z)
    annotators = rng.integers(L, size=len(state.z))
    taken = accepted(delta_annotators(annotations, state, annotators), temperature, rng)
    return HardState(parameters, state.w, np.where(taken, annotators, state.z))


def _known(annotations: Annotations, state: HardState, prior: Array | None) -> Array | None:
    """(items, K): what pseudo-labels of an average annotator say of each item's cluster."""
    if prior is None:
        return None
    mass = np.bincount(state.z, annotations.annotator_load, minlength=len(state.parameters.omega))
    return prior_scores(prior, state.parameters.theta, np.asarray(mass, dtype=np.float64))


def _propose_parameters(
    annotations: Annotations, state: HardState, priors: Priors, temperature: float, rng: Generator
) -> Parameters:
    old = state.parameters
    K, L, _ = old.theta.shape
    counts = block_counts(annotations, state.w, state.z, K, L)
    theta = _dirichlet(priors.alpha + counts, rng)
    taken = accepted(delta_theta(theta, old.theta, counts, priors), temperature, rng)
    psi = _proposed_shares(old.psi, state.w, priors.gamma, temperature, rng)
    omega = _proposed_shares(old.omega, state.z, priors.tau, temperature, rng)
    return Parameters(np.where(taken[..., None], theta, old.theta), psi, omega)


def _proposed_shares(
    old: Array, clusters: Clusters, prior: Concentration, temperature: float, rng: Generator
) -> Array:
    members = _members(clusters, len(old))
    new = _dirichlet(prior + members, rng)
    return new if accepted(delta_shares(new, old, members, prior), temperature, rng) else old


def _members(clusters: Clusters, n: int) -> Array:
    """How many each cluster has."""
    return np.bincount(clusters, minlength=n).astype(np.float64)


def _dirichlet(parameters: Array, rng: Generator) -> Array:
    """Dirichlet draws along the last axis, for any array of parameters."""
    draws = rng.standard_gamma(parameters)
    return np.asarray(draws / draws.sum(axis=-1, keepdims=True))


def anneal(
    annotations: Annotations,
    start: HardState,
    priors: Priors,
    rng: Generator,
    *,
    max_iter: int,
    tol: float,
    n_best: int = 1,
    prior: Array | None = None,
    temperature: float = 1.0,
    cooling: float = 1.0,
    ascent: bool = True,
) -> Annealed:
    """Sweeps at falling temperature, then ``ascent``; of the states met, the ``n_best`` that differ are kept.

    ``prior`` (items, classes) are known of the items beforehand. They steer the items'
    clusters and count in ℓ; the proposals of Θ do not look at them.
    """
    state, best, trace = start, dict[bytes, tuple[float, HardState]](), list[float]()
    stopped, warm = "max_iter", 0
    for t in range(max_iter):
        raise_if_cancelled()
        now = temperature * (t + 1.0) ** -cooling
        state = sweep(annotations, state, priors, now, rng, prior)
        trace.append(objective(annotations, state, priors, prior))
        _keep_best(best, trace[-1], state, max(n_best, ASCENDED))
        warm += now > WARM
        if t > warm + PATIENCE and max(trace) - max(trace[:-PATIENCE]) <= tol * annotations.n_labels:
            stopped = "tolerance"
            break
    if ascent:
        climbs = [ascend(annotations, found, priors, prior) for _, found in _ranked(best)]
        for values, peak in climbs:
            _keep_best(best, values[-1], peak, len(best) + 1)
        trace += max(climbs, key=lambda climb: climb[0][-1])[0]
    return Annealed(_ranked(best)[:n_best], np.array(trace), stopped)


def ascend(
    annotations: Annotations, start: HardState, priors: Priors, prior: Array | None = None
) -> tuple[list[float], HardState]:
    """Coordinate ascent until ℓ rises no more: ℓ at the start and after each step, and the last state."""
    values, state = [objective(annotations, start, priors, prior)], start
    while True:
        following = _step_up(annotations, state, priors, prior)
        value = objective(annotations, following, priors, prior)
        if value <= values[-1]:
            return values, state
        values.append(value)
        state = following


def _step_up(annotations: Annotations, state: HardState, priors: Priors, prior: Array | None) -> HardState:
    """w at its best given Θ and z, z given Θ and w, then the parameters given both."""
    w = conditionals(annotations, state, prior)[0].argmax(axis=1)
    z = conditionals(annotations, HardState(state.parameters, w, state.z))[1].argmax(axis=1)
    K, L, _ = state.parameters.theta.shape
    # the modes of their Dirichlet conditionals: (α−1 + n) / Σ (α−1 + n)
    theta = normalised(priors.alpha - 1 + block_counts(annotations, w, z, K, L))
    psi, omega = normalised(priors.gamma - 1 + _members(w, K)), normalised(priors.tau - 1 + _members(z, L))
    return HardState(Parameters(theta, psi, omega), w, z)


def objective(annotations: Annotations, state: HardState, priors: Priors, prior: Array | None) -> float:
    """ℓ, and what is known of the items beforehand."""
    known = _known(annotations, state, prior)
    own = 0.0 if known is None else float(known[np.arange(len(state.w)), state.w].sum())
    return own + log_joint(annotations, state.parameters, state.w, state.z, priors)


def _keep_best(
    best: dict[bytes, tuple[float, HardState]], value: float, state: HardState, n_best: int
) -> None:
    """Keep the state in ``best`` if it is one of the n best; of states with the same clusters, the better."""
    clusters = hashlib.sha256(state.w.tobytes() + state.z.tobytes()).digest()
    if clusters in best and best[clusters][0] >= value:
        return
    best[clusters] = value, state
    if len(best) > n_best:
        del best[min(best, key=lambda kept: best[kept][0])]


def _ranked(best: dict[bytes, tuple[float, HardState]]) -> list[tuple[float, HardState]]:
    return sorted(best.values(), key=lambda kept: -kept[0])


def conditionals(
    annotations: Annotations, state: HardState, prior: Array | None = None
) -> tuple[Array, Array]:
    """log P(w_m = k | Θ, z) and log P(z_n = l | Θ, w), up to a constant for each item and annotator."""
    log_theta, label = safe_log(state.parameters.theta), annotations.label
    w, z = state.w[annotations.item], state.z[annotations.annotator]
    items = _sums((of_k[z, label] for of_k in log_theta), annotations.item, annotations.n_items)
    by_annotator = (of_l[w, label] for of_l in log_theta.transpose(1, 0, 2))
    annotators = _sums(by_annotator, annotations.annotator, annotations.n_annotators)
    known = _known(annotations, state, prior)
    items = items if known is None else items + known
    return items + safe_log(state.parameters.psi), annotators + safe_log(state.parameters.omega)


def _sums(columns: Iterable[Array], target: NDArray[np.int32], n: int) -> Array:
    """(n, columns): each column, a number a label, summed by target; only one of them is there at a time."""
    sums = [np.bincount(target, column, minlength=n).astype(np.float64) for column in columns]
    return np.stack(sums, axis=1)


def start_at(annotations: Annotations, w: Clusters, z: Clusters, K: int, L: int, priors: Priors) -> HardState:
    """The given clusters, with parameters at their conditional means."""
    theta = normalised(priors.alpha + block_counts(annotations, w, z, K, L))
    psi, omega = normalised(priors.gamma + _members(w, K)), normalised(priors.tau + _members(z, L))
    return HardState(Parameters(theta, psi, omega), w, z)
