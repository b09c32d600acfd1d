"""Parameters Θ, ψ and Ω of the graphical model: their joint likelihood, and the M-steps that learn them.

The joint log-likelihood of a complete state (the paper's Eq. graphloglikely), up to the priors' constants:

    ℓ = Σ_klp (α_p−1) log Θ_klp + Σ_k (γ_k−1) log ψ_k + Σ_l (τ_l−1) log Ω_l
        + Σ_m log ψ_{w_m} + Σ_n log Ω_{z_n} + Σ_{labels (m, n, y)} log Θ_{w_m, z_n, y}                 (1)

The paper prints p_τ(Ω) without its logarithm.

Two M-steps turn expected counts into parameters: :class:`MaximumPosterior` has the paper's closed forms;
:class:`VariationalBayes` has Dirichlet posteriors,

    q(Θ_kl) = Dir(b + n_kl),   E log Θ_klp = Ψ(b + n_klp) − Ψ(Σ_p b + n_klp)                           (2)
    KL(Dir(a) ‖ Dir(b)) = log Γ(Σa)/Γ(Σb) − Σ log Γ(a)/Γ(b) + Σ (a − b) E log Θ                        (3)

and learns their priors by empirical Bayes: with the distributions integrated out, the counts have probability
Π B(b + n) / B(b). For a symmetric prior b with a Gamma(s, r) hyperprior, the fixed point

    b ← (b Σ [Ψ(b + n) − Ψ(b)] + s − 1) / (Σ [Ψ(Pb + Σ_p n) − Ψ(Pb)] + r)                              (4)

(Minka 2000; sums over all components of all distributions) never lowers this probability times the
hyperprior.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, xlogy

from dissensus.labels.annotations import Annotations
from dissensus.models.ibcc import expected_log
from dissensus.models.pgm.messages import Potentials, Statistics
from dissensus.numerics import Array, Concentration, normalised, safe_log

Clusters = NDArray[np.intp]  # of items (M,), or of annotators (N,)
MIN_CONCENTRATION, MAX_CONCENTRATION = 1e-2, 1e3  # range of a learned prior


# ---- the joint likelihood -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Priors:
    """Dirichlet parameters α of Θ, γ of ψ and τ of Ω, each a number or one per component."""

    alpha: Concentration = 2.0
    gamma: Concentration = 2.0
    tau: Concentration = 2.0


@dataclass(frozen=True)
class Parameters:
    """Θ (K, L, P), ψ (K,), Ω (L,)."""

    theta: Array
    psi: Array
    omega: Array

    @property
    def logs(self) -> Potentials:
        """Logarithms of the parameters."""
        return Potentials(safe_log(self.theta), safe_log(self.psi), safe_log(self.omega))


def log_prior(logs: Potentials, priors: Priors) -> float:
    """Return the terms of ℓ without hidden variables."""
    theta, psi = (priors.alpha - 1) * logs.log_theta, (priors.gamma - 1) * logs.log_psi
    return float(theta.sum() + psi.sum() + ((priors.tau - 1) * logs.log_omega).sum())


def block_counts(labels: Annotations, w: Clusters, z: Clusters, K: int, L: int) -> Array:
    """Return (K, L, P): labels of each class between item cluster k and annotator cluster l."""
    P = labels.n_classes
    cell = (w[labels.item] * L + z[labels.annotator]) * P + labels.label
    return np.bincount(cell, minlength=K * L * P).reshape(K, L, P).astype(np.float64)


def log_joint(labels: Annotations, p: Parameters, w: Clusters, z: Clusters, priors: Priors) -> float:
    """Return ℓ (1) of a complete state."""
    K, L, _ = p.theta.shape
    terms = xlogy(block_counts(labels, w, z, K, L), p.theta).sum()
    items = xlogy(np.bincount(w, minlength=K), p.psi).sum()
    annotators = xlogy(np.bincount(z, minlength=L), p.omega).sum()
    return float(terms + items + annotators) + log_prior(p.logs, priors)


# ---- Dirichlet distributions --------------------------------------------------------------------------


def dirichlet_divergence(posterior: Array, prior: Array) -> float:
    """Return Σ KL(q ‖ p) over all distributions along the last axis (3)."""
    prior = np.broadcast_to(prior, posterior.shape)
    totals = gammaln(posterior.sum(-1)) - gammaln(prior.sum(-1))
    parts = gammaln(prior) - gammaln(posterior) + (posterior - prior) * expected_log(posterior)
    return float(totals.sum() + parts.sum())


@dataclass(frozen=True)
class Hyperprior:
    """Gamma(shape, rate) on the parameter of a symmetric Dirichlet; its mode is (shape − 1) / rate."""

    shape: float
    rate: float

    def log_density(self, prior: float) -> float:
        """Return the log-density, up to a constant."""
        return (self.shape - 1) * float(np.log(prior)) - self.rate * prior


def learn_prior(counts: Array, prior: float, hyperprior: Hyperprior) -> float:
    """Return the prior after one step of (4), for distributions along the last axis of ``counts``."""
    P = counts.shape[-1]
    by_component = digamma(prior + counts) - digamma(prior)
    by_row = P * (digamma(P * prior + counts.sum(axis=-1)) - digamma(P * prior))
    numerator = prior * float(by_component.sum()) + hyperprior.shape - 1
    update = numerator / (float(by_row.sum()) + hyperprior.rate)
    return float(np.clip(update, MIN_CONCENTRATION, MAX_CONCENTRATION))


# ---- the M-step ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MStepResult:
    """Parameters (MAP or posterior means), their potentials for the messages, and the priors in use."""

    parameters: Parameters
    potentials: Potentials
    prior_term: float  # term of the objective
    alpha: Array
    gamma: Array
    tau: Array


@dataclass(frozen=True)
class MaximumPosterior:
    """The paper's closed forms."""

    priors: Priors

    def m_step(self, statistics: Statistics, before: MStepResult | None) -> MStepResult:
        """Return the parameters that maximise the expected log-posterior."""
        p = self.priors
        # Θ_klp = (α_p−1 + n_klp) / (Σ_p α_p − P + n_kl)
        theta = normalised(p.alpha - 1 + statistics.label_mass)
        # ψ_k = (γ_k−1 + Σ_m w_mk) / (Σ_k γ_k − K + M)
        psi = normalised(p.gamma - 1 + statistics.item_mass)
        # Ω_l = (τ_l−1 + Σ_n z_nl) / (Σ_l τ_l − L + N)
        omega = normalised(p.tau - 1 + statistics.annotator_mass)
        parameters = Parameters(theta, psi, omega)
        logs = parameters.logs
        concentrations = map(np.atleast_1d, (p.alpha, p.gamma, p.tau))
        return MStepResult(parameters, logs, log_prior(logs, p), *concentrations)


# Θ has one distribution per pair of clusters, from which its prior can be learned. ψ and Ω are a single draw
# each, and without a hyperprior the bound would favour ever emptier clusters.
HYPERPRIORS = {
    "alpha": Hyperprior(1.0, 0.0),  # flat
    "gamma": Hyperprior(201.0, 100.0),  # near 2
    "tau": Hyperprior(51.0, 100.0),  # near 0.5
}
STARTING_PRIORS = {"alpha": 0.5, "gamma": 1.0, "tau": 1.0}


@dataclass(frozen=True)
class VariationalBayes:
    """Dirichlet posteriors over Θ, ψ and Ω; a prior that is None is learned by empirical Bayes."""

    alpha: Concentration | None
    gamma: Concentration | None
    tau: Concentration | None

    def m_step(self, statistics: Statistics, before: MStepResult | None) -> MStepResult:
        """Learn the priors from the expected counts, then the posteriors from the priors."""
        masses = statistics.label_mass, statistics.item_mass, statistics.annotator_mass
        counts = dict(zip(HYPERPRIORS, masses, strict=True))
        priors = {name: self._prior(name, mass, before) for name, mass in counts.items()}
        posteriors = {name: priors[name] + mass for name, mass in counts.items()}
        # the bound contains −KL(q ‖ prior) of each parameter, and log p of each learned prior
        terms = []
        for name, posterior in posteriors.items():
            learned = getattr(self, name) is None
            hyper = HYPERPRIORS[name].log_density(float(priors[name])) if learned else 0.0
            terms.append(hyper - dirichlet_divergence(posterior, np.asarray(priors[name])))
        means = Parameters(*map(normalised, posteriors.values()))
        logs = Potentials(*map(expected_log, posteriors.values()))
        return MStepResult(means, logs, sum(terms), *map(np.atleast_1d, priors.values()))

    def _prior(self, name: str, counts: Array, before: MStepResult | None) -> Concentration:
        """Return the prior that is set, or else the next value of the learned one."""
        prior: Concentration | None = getattr(self, name)
        if prior is not None:
            return prior
        if before is None:
            return STARTING_PRIORS[name]
        return learn_prior(counts, float(getattr(before, name)[0]), HYPERPRIORS[name])
