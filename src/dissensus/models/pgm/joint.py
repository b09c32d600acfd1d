"""The joint log-likelihood of the graphical model (Eq. graphloglikely), up to the priors' constants.

    ℓ = (α−1) Σ_klp log Θ_klp + (γ−1) Σ_k log ψ_k + (τ−1) Σ_l log Ω_l
        + Σ_m log ψ_{w_m} + Σ_n log Ω_{z_n} + Σ_{labels (m, n, y)} log Θ_{w_m, z_n, y}

The paper prints p_τ(Ω) without its logarithm; it has one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import xlogy

from dissensus.data.annotations import Annotations
from dissensus.numerics import Array


@dataclass(frozen=True)
class Priors:
    """Symmetric Dirichlet parameters: α of Θ, γ of ψ, τ of Ω."""

    alpha: float = 2.0
    gamma: float = 2.0
    tau: float = 2.0


@dataclass(frozen=True)
class Parameters:
    """Θ (K, L, P), ψ (K,), Ω (L,)."""

    theta: Array
    psi: Array
    omega: Array


def log_prior(parameters: Parameters, priors: Priors) -> float:
    """The terms of ℓ that hold no hidden variable."""
    return float(
        xlogy(priors.alpha - 1, parameters.theta).sum()
        + xlogy(priors.gamma - 1, parameters.psi).sum()
        + xlogy(priors.tau - 1, parameters.omega).sum()
    )


def block_counts(annotations: Annotations, w: NDArray[np.intp], z: NDArray[np.intp], K: int, L: int) -> Array:
    """(K, L, P): labels of each class between item cluster k and annotator cluster l."""
    P = annotations.n_classes
    cell = (w[annotations.item] * L + z[annotations.annotator]) * P + annotations.label
    return np.bincount(cell, minlength=K * L * P).reshape(K, L, P).astype(np.float64)


def log_joint(
    annotations: Annotations,
    parameters: Parameters,
    w: NDArray[np.intp],
    z: NDArray[np.intp],
    priors: Priors,
) -> float:
    """ℓ of a complete state."""
    K, L, _ = parameters.theta.shape
    labels = xlogy(block_counts(annotations, w, z, K, L), parameters.theta).sum()
    items = xlogy(np.bincount(w, minlength=K), parameters.psi).sum()
    annotators = xlogy(np.bincount(z, minlength=L), parameters.omega).sum()
    return float(labels + items + annotators) + log_prior(parameters, priors)
