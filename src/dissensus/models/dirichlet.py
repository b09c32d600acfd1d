"""Dirichlet posteriors over the parameters: expectations, divergences, and priors learned from data.

    q(Θ_kl) = Dir(α + n_kl),   E log Θ_klp = Ψ(a_klp) − Ψ(Σ_p a_klp)                                  (1)
    KL(Dir(a) ‖ Dir(b)) = log Γ(Σa)/Γ(Σb) − Σ log Γ(a)/Γ(b) + Σ (a − b) E log Θ                        (2)

Empirical Bayes: the prior that maximises the bound, given E log Θ, solves for each component

    Ψ(b_p) − Ψ(Σ b) = mean over distributions of E log Θ_p.                                            (3)
"""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, gammaln, polygamma

from dissensus.kernels import Array

LEAST, MOST = 1e-2, 1e3  # a learned prior stays between these
NEWTON_STEPS = 50


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


def learn_prior(posterior: Array, prior: Array) -> Array:
    """The Dirichlet prior that best explains some posteriors (3), by Newton's method in log b.

    ``posterior`` is (distributions, P); ``prior`` the starting point: one value for a symmetric prior, P
    values for a free one.
    """
    if posterior.shape[-1] == 1:
        return prior  # over one class there is one distribution, whatever the prior
    target = expected_log(posterior).mean(axis=0)
    b = np.array(prior, dtype=np.float64)
    for _ in range(NEWTON_STEPS):
        following = np.clip(_newton(b, target), LEAST, MOST)
        if np.max(np.abs(np.log(following / b))) < 1e-6:
            return following
        b = following
    return b


def _newton(b: Array, target: Array) -> Array:
    """One damped Newton step on the log scale for the symmetric (size 1) or free prior."""
    if b.size == 1:
        P, value = len(target), float(b[0])
        slope = P * (digamma(P * value) - digamma(value)) + target.sum()
        curve = P * (P * polygamma(1, P * value) - polygamma(1, value))
        # d/d(log b) = b · slope;  d²/d(log b)² = b · slope + b² · curve
        return np.asarray(b * np.exp(_bounded(-slope / (slope / value + curve) / value, slope)))
    total = b.sum()
    slope = digamma(total) - digamma(b) + target
    # Minka's Newton: the Hessian is diagonal plus rank one
    q, shared = -polygamma(1, b), polygamma(1, total)
    shift = (slope / q).sum() / (1 / shared + (1 / q).sum())
    return np.asarray(np.maximum(b - (slope - shift) / q, b / 2))


def _bounded(step: float, slope: float) -> float:
    """At most a doubling; where the curvature has the wrong sign, follow the slope."""
    if not np.isfinite(step) or step * slope < 0:
        step = np.sign(slope)
    return float(np.clip(step, -0.7, 0.7))
