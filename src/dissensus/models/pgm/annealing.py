"""Simulated annealing on the graphical model (Algorithm 2 of the paper).

A sweep proposes anew, in this order, every Θ_kl, ψ, Ω, every w_m and every z_n, and takes a proposal with
probability min(1, exp(δ / T)), where δ is the difference it makes to the joint log-likelihood ℓ and
T(t) = 1/(t+1)^c the temperature of sweep t (c = 1 in the paper). How each proposal is drawn:

* Θ_kl, ψ and Ω from their Dirichlet conditionals given w and z (drawn from the prior instead, almost every
  proposal is refused and the fit stays poor);
* w_m and z_n uniformly from all clusters.

As in the paper the acceptance rule is Metropolis', without a correction for unsymmetric proposals: this is a
search for a good state, not a sampler. Given Θ and z the items are independent, and given Θ and w the
annotators, so a sweep over them is one vectorised step and changes nothing in the rule.

The paper prints δ_ψ and δ_Ω with their prior terms alone. By their own definition, a difference of ℓ, they
also hold Σ_m log ψ_{w_m} and Σ_n log Ω_{z_n}; that is what is computed here.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dissensus.data.annotations import Annotations
from dissensus.models.pgm.parameters import Parameters, Priors, block_counts, log_joint
from dissensus.models.pgm.propagation import pseudo_label_scores
from dissensus.numerics import Array, safe_log

Clusters = NDArray[np.intp]

PATIENCE = 100  # sweeps over which the best ℓ must still rise


@dataclass(frozen=True)
class HardState:
    """A complete state of the model."""

    parameters: Parameters
    w: Clusters  # (M,)
    z: Clusters  # (N,)


@dataclass(frozen=True)
class Annealed:
    """The best states met (best first), ℓ after every sweep, and why the search ended."""

    best: list[tuple[float, HardState]]
    trace: Array
    stopped: str


# ---- the five differences -----------------------------------------------------------------------------


def delta_theta(new: Array, old: Array, counts: Array, priors: Priors) -> Array:
    """(K, L): (α−1) Σ_p log Θ'_klp/Θ_klp + Σ_{labels of (k, l)} log Θ'_kly/Θ_kly."""
    return np.asarray(((priors.alpha - 1 + counts) * (safe_log(new) - safe_log(old))).sum(axis=-1))


def delta_shares(new: Array, old: Array, members: Array, prior: float) -> float:
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
    if known is None:
        return delta
    items = np.arange(annotations.n_items)
    return np.asarray(delta + known[items, proposal] - known[items, state.w])


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


def accepted(delta: Array | float, temperature: float, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Metropolis' rule: taken with probability min(1, exp(δ / T))."""
    return np.asarray(np.log(rng.random(np.shape(delta))) < np.asarray(delta) / temperature)


def sweep(
    annotations: Annotations,
    state: HardState,
    priors: Priors,
    temperature: float,
    rng: np.random.Generator,
    pseudo_labels: Array | None = None,
) -> HardState:
    """Propose every unknown once."""
    K, L, _ = state.parameters.theta.shape
    parameters = _propose_parameters(annotations, state, priors, temperature, rng)
    state = HardState(parameters, state.w, state.z)
    items = rng.integers(K, size=len(state.w))
    known = _known(annotations, state, pseudo_labels)
    taken = accepted(delta_items(annotations, state, items, known), temperature, rng)
    state = HardState(parameters, np.where(taken, items, state.w), state.z)
    annotators = rng.integers(L, size=len(state.z))
    taken = accepted(delta_annotators(annotations, state, annotators), temperature, rng)
    return HardState(parameters, state.w, np.where(taken, annotators, state.z))


def _known(annotations: Annotations, state: HardState, pseudo_labels: Array | None) -> Array | None:
    """(items, K): what pseudo-labels of an average annotator say of each item's cluster."""
    if pseudo_labels is None:
        return None
    mass = np.bincount(state.z, annotations.annotator_load, minlength=len(state.parameters.omega))
    return pseudo_label_scores(pseudo_labels, state.parameters.theta, np.asarray(mass, dtype=np.float64))


def _propose_parameters(
    annotations: Annotations,
    state: HardState,
    priors: Priors,
    temperature: float,
    rng: np.random.Generator,
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
    old: Array, clusters: Clusters, prior: float, temperature: float, rng: np.random.Generator
) -> Array:
    members = np.bincount(clusters, minlength=len(old)).astype(np.float64)
    new = _dirichlet(prior + members, rng)
    return new if accepted(delta_shares(new, old, members, prior), temperature, rng) else old


def _dirichlet(parameters: Array, rng: np.random.Generator) -> Array:
    """Dirichlet draws along the last axis, for any array of parameters."""
    draws = rng.standard_gamma(parameters)
    return np.asarray(draws / draws.sum(axis=-1, keepdims=True))


def anneal(
    annotations: Annotations,
    start: HardState,
    priors: Priors,
    rng: np.random.Generator,
    *,
    max_iter: int,
    tol: float,
    n_best: int = 1,
    pseudo_labels: Array | None = None,
    cooling: float = 1.0,
) -> Annealed:
    """Sweeps at falling temperature; of the states met, the ``n_best`` that differ in some cluster are kept.

    ``pseudo_labels`` (items, classes) are known of the items beforehand. They steer the items'
    clusters and count in ℓ; the proposals of Θ do not look at them.
    """
    state, best, trace = start, dict[bytes, tuple[float, HardState]](), list[float]()
    for t in range(max_iter):
        state = sweep(annotations, state, priors, (t + 1.0) ** -cooling, rng, pseudo_labels)
        trace.append(_objective(annotations, state, priors, pseudo_labels))
        _keep_best(best, trace[-1], state, n_best)
        if t > PATIENCE and max(trace) - max(trace[:-PATIENCE]) <= tol * annotations.n_labels:
            return Annealed(_ranked(best), np.array(trace), "tolerance")
    return Annealed(_ranked(best), np.array(trace), "max_iter")


def _objective(
    annotations: Annotations, state: HardState, priors: Priors, pseudo_labels: Array | None
) -> float:
    known = _known(annotations, state, pseudo_labels)
    own = 0.0 if known is None else float(known[np.arange(len(state.w)), state.w].sum())
    return own + log_joint(annotations, state.parameters, state.w, state.z, priors)


def _keep_best(
    best: dict[bytes, tuple[float, HardState]], value: float, state: HardState, n_best: int
) -> None:
    """Keep the state in ``best`` if it is one of the n best; of states with the same clusters, the better."""
    clusters = state.w.tobytes() + state.z.tobytes()
    if clusters in best and best[clusters][0] >= value:
        return
    best[clusters] = value, state
    if len(best) > n_best:
        del best[min(best, key=lambda kept: best[kept][0])]


def _ranked(best: dict[bytes, tuple[float, HardState]]) -> list[tuple[float, HardState]]:
    return sorted(best.values(), key=lambda kept: -kept[0])


def conditionals(
    annotations: Annotations, state: HardState, pseudo_labels: Array | None = None
) -> tuple[Array, Array]:
    """log P(w_m = k | Θ, z) and log P(z_n = l | Θ, w), up to a constant for each item and annotator."""
    log_theta = safe_log(state.parameters.theta)
    by_item = log_theta.transpose(1, 2, 0)[state.z[annotations.annotator], annotations.label]
    by_annotator = log_theta.transpose(0, 2, 1)[state.w[annotations.item], annotations.label]
    items = _sum_rows(by_item, annotations.item, annotations.n_items)
    annotators = _sum_rows(by_annotator, annotations.annotator, annotations.n_annotators)
    known = _known(annotations, state, pseudo_labels)
    if known is not None:
        items = items + known
    return (
        np.asarray(items + safe_log(state.parameters.psi)),
        np.asarray(annotators + safe_log(state.parameters.omega)),
    )


def _sum_rows(rows: Array, target: NDArray[np.int32], n: int) -> Array:
    return np.stack([np.bincount(target, column, minlength=n) for column in rows.T], axis=1)


def start_at(annotations: Annotations, w: Clusters, z: Clusters, K: int, L: int, priors: Priors) -> HardState:
    """The given clusters, with parameters at their conditional means."""
    counts = block_counts(annotations, w, z, K, L)
    theta = priors.alpha + counts
    psi = priors.gamma + np.bincount(w, minlength=K)
    omega = priors.tau + np.bincount(z, minlength=L)
    return HardState(
        Parameters(theta / theta.sum(-1, keepdims=True), psi / psi.sum(), omega / omega.sum()), w, z
    )
