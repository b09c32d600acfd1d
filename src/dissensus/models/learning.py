"""What turns statistics into parameters: the M-step of EM, and its fully Bayesian counterpart.

Both give the potentials the messages use and the term that the priors add to the objective.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dissensus.kernels import Array, normalised, safe_log
from dissensus.models.dirichlet import divergence, expected_log, learn_prior, mean
from dissensus.models.joint import Parameters, Priors, log_prior
from dissensus.models.propagation import Potentials, Statistics


@dataclass(frozen=True)
class Learned:
    """Parameters (MAP or posterior means), what the messages see of them, and the priors in force."""

    parameters: Parameters
    potentials: Potentials
    prior_term: float
    alpha: Array
    gamma: Array
    tau: Array


class Learner(Protocol):
    """Parameters from statistics; ``before`` is what was learned last."""

    def learn(self, statistics: Statistics, before: Learned | None) -> Learned:
        """The next parameters."""
        ...


@dataclass(frozen=True)
class MaximumPosterior:
    """The closed forms of Section "maxeq"."""

    priors: Priors

    def learn(self, statistics: Statistics, before: Learned | None) -> Learned:
        """The parameters that maximise the expected log-posterior."""
        del before
        p = self.priors
        parameters = Parameters(
            # Θ_klp = (α−1 + n_klp) / (Pα−P + n_kl)
            normalised(p.alpha - 1 + statistics.label_mass),
            # ψ_k = (γ−1 + Σ_m w_mk) / (Kγ−K + M)
            normalised(p.gamma - 1 + statistics.item_mass),
            # Ω_l = (τ−1 + Σ_n z_nl) / (Lτ−L + N)
            normalised(p.tau - 1 + statistics.annotator_mass),
        )
        logs = Potentials(safe_log(parameters.theta), safe_log(parameters.psi), safe_log(parameters.omega))
        term = log_prior(parameters, p)
        return Learned(parameters, logs, term, *map(np.atleast_1d, (p.alpha, p.gamma, p.tau)))


@dataclass(frozen=True)
class VariationalBayes:
    """Dirichlet posteriors over Θ, ψ and Ω; a prior that is None is learned by empirical Bayes."""

    alpha: float | None
    gamma: float | None
    tau: float | None

    def learn(self, statistics: Statistics, before: Learned | None) -> Learned:
        """Posteriors given the priors in force, then the priors given the posteriors."""
        P = statistics.label_mass.shape[2]
        alpha = _prior(self.alpha, None if before is None else before.alpha, np.full(P, 0.5))
        gamma = _prior(self.gamma, None if before is None else before.gamma, np.ones(1))
        tau = _prior(self.tau, None if before is None else before.tau, np.ones(1))
        theta = alpha + statistics.label_mass
        psi, omega = gamma + statistics.item_mass, tau + statistics.annotator_mass
        term = -divergence(theta, alpha) - divergence(psi, gamma) - divergence(omega, tau)
        return Learned(
            Parameters(mean(theta), mean(psi), mean(omega)),
            Potentials(expected_log(theta), expected_log(psi), expected_log(omega)),
            term,
            alpha if self.alpha is not None else learn_prior(theta.reshape(-1, P), alpha),
            gamma if self.gamma is not None else learn_prior(psi[None], gamma),
            tau if self.tau is not None else learn_prior(omega[None], tau),
        )


def _prior(given: float | None, learned: Array | None, start: Array) -> Array:
    if given is not None:
        return np.full(1, given)
    return start if learned is None else learned
