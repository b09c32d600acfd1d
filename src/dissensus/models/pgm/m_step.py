"""The parameters Θ, ψ and Ω of the graphical model: their joint likelihood, and how they are learned.

The joint log-likelihood of a complete state (the paper's Eq. graphloglikely), up to the priors' constants:

    ℓ = Σ_klp (α_p−1) log Θ_klp + Σ_k (γ_k−1) log ψ_k + Σ_l (τ_l−1) log Ω_l
        + Σ_m log ψ_{w_m} + Σ_n log Ω_{z_n} + Σ_{labels (m, n, y)} log Θ_{w_m, z_n, y}                 (1)

The paper prints p_τ(Ω) without its logarithm; it has one.

Two M-steps turn expected counts into parameters: :class:`MaximumPosterior` has the paper's closed forms;
:class:`VariationalBayes` has Dirichlet posteriors,

    q(Θ_kl) = Dir(b + n_kl),   E log Θ_klp = Ψ(b + n_klp) − Ψ(Σ_p b + n_klp)                           (2)
    KL(Dir(a) ‖ Dir(b)) = log Γ(Σa)/Γ(Σb) − Σ log Γ(a)/Γ(b) + Σ (a − b) E log Θ                        (3)

and learns their priors (empirical Bayes): with the distributions integrated out, the counts have the
probability Π B(b + n) / B(b). For a symmetric prior b with a Gamma(s, r) hyperprior the fixed point

    b ← (b Σ [Ψ(b + n) − Ψ(b)] + s − 1) / (Σ [Ψ(Pb + Σ_p n) − Ψ(Pb)] + r)                              (4)

(Minka 2000; sums over all components of all distributions) never lowers that probability times the
hyperprior.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import digamma, gammaln, xlogy

from dissensus.labels.annotations import Annotations
from dissensus.models.pgm.messages import Potentials, Statistics
from dissensus.numerics import Array, Concentration, normalised, safe_log

Clusters = NDArray[np.intp]  # of items (M,), or of annotators (N,)
LEAST, MOST = 1e-2, 1e3  # a learned prior stays between these


# ---- the joint likelihood -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Priors:
    """Dirichlet parameters, each a number or one for every component: α of Θ, γ of ψ, τ of Ω."""

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
        """Their logarithms."""
        return Potentials(safe_log(self.theta), safe_log(self.psi), safe_log(self.omega))


def log_prior(logs: Potentials, priors: Priors) -> float:
    """The terms of ℓ that hold no hidden variable."""
    return float(
        ((priors.alpha - 1) * logs.log_theta).sum()
        + ((priors.gamma - 1) * logs.log_psi).sum()
        + ((priors.tau - 1) * logs.log_omega).sum()
    )


def block_counts(annotations: Annotations, w: Clusters, z: Clusters, K: int, L: int) -> Array:
    """(K, L, P): labels of each class between item cluster k and annotator cluster l."""
    P = annotations.n_classes
    cell = (w[annotations.item] * L + z[annotations.annotator]) * P + annotations.label
    return np.bincount(cell, minlength=K * L * P).reshape(K, L, P).astype(np.float64)


def log_joint(
    annotations: Annotations, parameters: Parameters, w: Clusters, z: Clusters, priors: Priors
) -> float:
    """ℓ of a complete state."""
    K, L, _ = parameters.theta.shape
    labels = xlogy(block_counts(annotations, w, z, K, L), parameters.theta).sum()
    items = xlogy(np.bincount(w, minlength=K), parameters.psi).sum()
    annotators = xlogy(np.bincount(z, minlength=L), parameters.omega).sum()
    return float(labels + items + annotators) + log_prior(parameters.logs, priors)


# ---- Dirichlet distributions --------------------------------------------------------------------------


def expected_log(posterior: Array) -> Array:
    """E log of every component (2)."""
    return np.asarray(digamma(posterior) - digamma(posterior.sum(axis=-1, keepdims=True)))


def divergence(posterior: Array, prior: Array) -> float:
    """Σ of KL(q ‖ p) over all distributions along the last axis (3)."""
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
        """Up to a constant."""
        return (self.shape - 1) * float(np.log(prior)) - self.rate * prior


def learn_prior(counts: Array, prior: float, hyperprior: Hyperprior) -> float:
    """One fixed-point step (4) for distributions along the last axis of ``counts``."""
    P = counts.shape[-1]
    gain = digamma(prior + counts) - digamma(prior)
    pull = P * (digamma(P * prior + counts.sum(axis=-1)) - digamma(P * prior))
    up = prior * float(gain.sum()) + hyperprior.shape - 1
    return float(np.clip(up / (float(pull.sum()) + hyperprior.rate), LEAST, MOST))


# ---- the M-step ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Learned:
    """Parameters (MAP or posterior means), what the messages see of them, and the priors in force."""

    parameters: Parameters
    potentials: Potentials
    prior_term: float
    alpha: Array
    gamma: Array
    tau: Array


@dataclass(frozen=True)
class MaximumPosterior:
    """The paper's closed forms."""

    priors: Priors

    def learn(self, statistics: Statistics, before: Learned | None) -> Learned:
        """The parameters that maximise the expected log-posterior."""
        p = self.priors
        # Θ_klp = (α_p−1 + n_klp) / (Σ_p α_p − P + n_kl)
        theta = normalised(p.alpha - 1 + statistics.label_mass)
        # ψ_k = (γ_k−1 + Σ_m w_mk) / (Σ_k γ_k − K + M)
        psi = normalised(p.gamma - 1 + statistics.item_mass)
        # Ω_l = (τ_l−1 + Σ_n z_nl) / (Σ_l τ_l − L + N)
        omega = normalised(p.tau - 1 + statistics.annotator_mass)
        parameters = Parameters(theta, psi, omega)
        logs = parameters.logs
        return Learned(parameters, logs, log_prior(logs, p), *map(np.atleast_1d, (p.alpha, p.gamma, p.tau)))


# Θ has one distribution a pair of clusters, enough to learn its prior from. ψ and Ω are a single draw each,
# and left alone the bound rewards ever emptier clusters; so their priors stay near a stated value.
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

    def learn(self, statistics: Statistics, before: Learned | None) -> Learned:
        """Priors given the expected counts, then posteriors given the priors."""
        masses = statistics.label_mass, statistics.item_mass, statistics.annotator_mass
        counts = dict(zip(HYPERPRIORS, masses, strict=True))
        priors = {name: self._prior(name, mass, before) for name, mass in counts.items()}
        posteriors = {name: priors[name] + mass for name, mass in counts.items()}
        term = sum(self._term(name, posterior, priors[name]) for name, posterior in posteriors.items())
        means = Parameters(*map(normalised, posteriors.values()))
        logs = Potentials(*map(expected_log, posteriors.values()))
        return Learned(means, logs, term, *map(np.atleast_1d, priors.values()))

    def _prior(self, name: str, counts: Array, before: Learned | None) -> Concentration:
        given: Concentration | None = getattr(self, name)
        if given is not None:
            return given
        if before is None:
            return STARTING_PRIORS[name]
        return learn_prior(counts, float(getattr(before, name)[0]), HYPERPRIORS[name])

    def _term(self, name: str, posterior: Array, prior: Concentration) -> float:
        """What one group of parameters adds to the bound: −KL(q ‖ prior), and the hyperprior if in force."""
        learned = getattr(self, name) is None
        hyper = HYPERPRIORS[name].log_density(float(prior)) if learned else 0.0
        return hyper - divergence(posterior, np.asarray(prior))
