"""What turns statistics into parameters: the M-step of EM, and its fully Bayesian counterpart.

Both give the potentials the messages use and the term that the priors add to the objective.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dissensus.models.pgm.dirichlet import Hyperprior, divergence, expected_log, learn_prior, mean
from dissensus.models.pgm.joint import Parameters, Priors, log_prior
from dissensus.models.pgm.propagation import Potentials, Statistics
from dissensus.numerics import Array, normalised, safe_log


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

    alpha: float | None
    gamma: float | None
    tau: float | None

    def learn(self, statistics: Statistics, before: Learned | None) -> Learned:
        """Priors given the expected counts, then posteriors given the priors."""
        counts = {
            "alpha": statistics.label_mass,
            "gamma": statistics.item_mass,
            "tau": statistics.annotator_mass,
        }
        priors = {name: self._prior(name, mass, before) for name, mass in counts.items()}
        theta, psi, omega = posteriors = [priors[name] + mass for name, mass in counts.items()]
        term = sum(
            self._term(name, posterior, priors[name])
            for name, posterior in zip(counts, posteriors, strict=True)
        )
        return Learned(
            Parameters(mean(theta), mean(psi), mean(omega)),
            Potentials(expected_log(theta), expected_log(psi), expected_log(omega)),
            term,
            *(np.atleast_1d(prior) for prior in priors.values()),
        )

    def _prior(self, name: str, counts: Array, before: Learned | None) -> float:
        given: float | None = getattr(self, name)
        if given is not None:
            return given
        if before is None:
            return STARTING_PRIORS[name]
        return learn_prior(counts, float(getattr(before, name)[0]), HYPERPRIORS[name])

    def _term(self, name: str, posterior: Array, prior: float) -> float:
        """What one group of parameters adds to the bound: −KL(q ‖ prior), and the hyperprior if in force."""
        hyper = HYPERPRIORS[name].log_density(prior) if getattr(self, name) is None else 0.0
        return hyper - divergence(posterior, np.asarray(prior))
