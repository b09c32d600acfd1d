"""Dirichlet posteriors over the parameters: expectations, divergences, and priors learned from data.

    q(Θ_kl) = Dir(b + n_kl),   E log Θ_klp = Ψ(b + n_klp) − Ψ(Σ_p b + n_klp)                           (1)
    KL(Dir(a) ‖ Dir(b)) = log Γ(Σa)/Γ(Σb) − Σ log Γ(a)/Γ(b) + Σ (a − b) E log Θ                        (2)

Empirical Bayes: with the distributions integrated out, the counts have the probability Π B(b + n) / B(b).
For a symmetric prior b with a Gamma(s, r) hyperprior the fixed point

    b ← (b Σ [Ψ(b + n) − Ψ(b)] + s − 1) / (Σ [Ψ(Pb + Σ_p n) − Ψ(Pb)] + r)                              (3)

(Minka 2000; sums over all components of all distributions) never lowers that probability times the
hyperprior.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.special import digamma, gammaln

from dissensus.numerics import Array

LEAST, MOST = 1e-2, 1e3  # a learned prior stays between these


def expected_log(posterior: Array) -> Array:
    """E log of every component (1)."""
    return np.asarray(digamma(posterior) - digamma(posterior.sum(axis=-1, keepdims=True)))


def mean(posterior: Array) -> Array:
    """Posterior means."""
    return np.asarray(posterior / posterior.sum(axis=-1, keepdims=True))


def divergence(posterior: Array, prior: Array) -> float:
    """Σ of KL(q ‖ p) over all distributions along the last axis (2)."""
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
    """One fixed-point step (3) for distributions along the last axis of ``counts``."""
    P = counts.shape[-1]
    gain = digamma(prior + counts) - digamma(prior)
    pull = P * (digamma(P * prior + counts.sum(axis=-1)) - digamma(P * prior))
    up = prior * float(gain.sum()) + hyperprior.shape - 1
    return float(np.clip(up / (float(pull.sum()) + hyperprior.rate), LEAST, MOST))
