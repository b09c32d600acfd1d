"""Calibration of the probabilities of the true class.

Models of one true class regard the labels of an item as independent given its class. In fact, annotators find
the same items difficult, so the posterior p_mk is too close to 0 and 1. Here, the n_m labels of an item count
as n_m T_m independent ones, which is never more than the limit t:

    T_m = 1 / (1 + n_m / t),        p_mk^T_m / Σ_j p_mj^T_m                                            (1)

The limit is learned from the labels. With C the population's matrix and π_n that of annotator n, each label y
by n is predicted from the n_m − 1 other labels of its item m:

    log Σ_k q_k C_ky,        q_k ∝ (p_mk d′_mk / (d_mk π_nky))^(1 / (1 + (n_m − 1) / t))               (2)

The factors d, d′ damp classes that no label of the item, or none of the others, names. Errors that almost all
annotators make cannot be seen in the labels. Therefore t is the smallest limit whose predictions are not
worse than the best by more than two standard errors, and a share λ of the labelled items is assumed to
mislead annotators, so that any class with p_mk > 0 may be true:

    (1 − λ) p_mk^T_m / Σ_j p_mj^T_m + λ [p_mk > 0] / Σ_j [p_mj > 0]                                    (3)

The order of the classes stays the same, and so does the answer. An item with a gold label stays certain.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dissensus.labels.annotations import Annotations
from dissensus.numerics import Array, normalised, safe_log

MISLEADING_SHARE = 0.08  # λ, chosen on datasets with gold labels (docs/results/truth.md)
LIMITS = np.geomspace(0.25, 1024.0, 25)  # values tried for t, in steps of √2
MAX_PREDICTED_LABELS = 10_000  # labels predicted to learn t
STANDARD_ERRORS = 2.0  # difference at which predictions count as worse
MIN_DAMPING = math.exp(-7)


def damping(counts: NDArray[np.int64], unseen: float) -> Array:
    """Return (items, classes): 1 for classes among the item's labels, ``unseen``^n_labels for the others.

    It is at least ``MIN_DAMPING``.
    """
    return np.where(counts > 0, 1.0, np.maximum(unseen ** counts.sum(axis=1, keepdims=True), MIN_DAMPING))


def calibrated(
    posterior: Array, n_labels: NDArray[np.int64], limit: float, misleading: float = MISLEADING_SHARE
) -> Array:
    """Return the calibrated probabilities (3) of the classes, (items, classes)."""
    # (1), with the largest probability of an item as the unit
    exponent = 1.0 / (1.0 + n_labels[:, None] / limit)
    tempered = normalised((posterior / posterior.max(axis=1, keepdims=True)) ** exponent)
    share = misleading * (n_labels[:, None] > 0)
    return np.asarray((1.0 - share) * tempered + share * normalised((posterior > 0).astype(float)))


def evidence_limit(
    labels: Annotations, posterior: Array, matrices: Array, population: Array, unseen: float = 1.0
) -> float:
    """Return the limit t in labels, or infinity if no item has two labels.

    Parameters
    ----------
    labels
        Labels; if there are more than ``MAX_PREDICTED_LABELS``, a sample is predicted.
    posterior
        (items, classes): p.
    matrices
        (annotators, classes, answers): π.
    population
        (classes, answers): C.
    unseen
        Factor of the damping d.
    """
    rows = np.linspace(0, labels.n_labels - 1, min(labels.n_labels, MAX_PREDICTED_LABELS)).astype(np.intp)
    others = np.diff(labels.item_pointers)[labels.item[rows]] - 1
    rows, others = rows[others > 0], others[others > 0]
    if not len(rows):
        return np.inf
    item, annotator, label = labels.item[rows], labels.annotator[rows], labels.label[rows]
    log_q = safe_log(posterior[item]) - safe_log(matrices[annotator, :, label])
    if unseen < 1.0:
        counts = labels.counts[item]
        log_q -= np.log(damping(counts, unseen))
        counts[np.arange(len(label)), label] -= 1
        log_q += np.log(damping(counts, unseen))
    log_q -= log_q.max(axis=1, keepdims=True)
    answers = np.maximum(population.T[label], np.finfo(float).tiny)
    scores = np.empty((len(LIMITS), len(rows)))  # (2)
    for row, limit in zip(scores, LIMITS, strict=True):
        q = np.exp(log_q / (1.0 + others / limit)[:, None])
        row[:] = np.log((q * answers).sum(axis=1) / q.sum(axis=1))
    worse = scores[scores.sum(axis=1).argmax()] - scores
    tied = worse.mean(axis=1) <= STANDARD_ERRORS * worse.std(axis=1) / math.sqrt(len(rows))
    return float(LIMITS[tied.argmax()])
