"""Softmax regression on label distributions: its objective, its minimum and its prediction.

For features x_i and distributions d_i of M items, with an L2 penalty λ on W but not on b,

    J(W, b) = −(1/M) Σ_i Σ_p d_ip log p_p(x_i) + λ/2 ‖W‖²,    p(x) = softmax(W x + b)                    (1)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import log_softmax

from dissensus.engine import raise_if_cancelled
from dissensus.numerics import Array

PATH = np.geomspace(1.0, 1e-6, 25)  # path tried; neighbours differ by a factor of 1.8
PATIENCE = 3  # path tried beyond the best so far


def objective(weights: Array, X: Array, targets: Array, penalty: float) -> tuple[float, Array]:
    """J of equation (1) and its gradient; the last row of ``weights`` (features + 1, classes) is b."""
    W, b = weights[:-1], weights[-1]
    log_p = log_softmax(X @ W + b, axis=1)
    value = -float((targets * log_p).sum()) / len(X) + 0.5 * penalty * float((W * W).sum())
    # ∂J/∂(W x + b)_i = (p(x_i) − d_i) / M
    residual = (np.exp(log_p) - targets) / len(X)
    return value, np.vstack([X.T @ residual + penalty * W, residual.sum(axis=0)])


def minimise(X: Array, targets: Array, penalty: float, start: Array, max_iter: int, tol: float) -> Array:
    """The weights where no entry of the gradient exceeds ``tol``, or where ``max_iter`` ends the search."""
    from scipy.optimize import minimize

    def flat(w: Array) -> tuple[float, Array]:
        raise_if_cancelled()
        value, gradient = objective(w.reshape(start.shape), X, targets, penalty)
        return value, gradient.ravel()

    options: Any = {"maxiter": max_iter, "gtol": tol, "ftol": 0.0, "maxcor": 20}
    found = minimize(flat, start.ravel(), jac=True, method="L-BFGS-B", options=options)
    weights: Array = found.x.reshape(start.shape)
    return weights


def predict(X: Array, weights: Array) -> Array:
    """softmax(W x + b) of each row."""
    chances: Array = np.exp(log_softmax(X @ weights[:-1] + weights[-1], axis=1))
    return chances


def spread(X: Array) -> float:
    """Mean squared length of the centred features (1 where they do not vary)."""
    return float(X.var(axis=0).sum()) or 1.0
