"""M-MSR: skills from agreement between annotators, robust to adversaries (Ma & Olshevsky, NeurIPS 2020).

Annotator n is right with chance p_n and otherwise says any other class alike. Two annotators then agree on an
item with a chance that, put in the scale of

    X_nj = (P A_nj − 1) / (P − 1),       A_nj: the share of their common items on which n and j agree,   (1)

is x_n x_j, with x_n = (P p_n − 1) / (P − 1): a matrix of rank one, of which the pairs without common items
are missing. It is completed by turns,

    v_j ← trimmed mean over n of |X_nj| / u_n,           u_n ← trimmed mean over j of |X_nj| / v_j,      (2)

where a mean leaves out up to F values above and F below the one before it, so that F adversaries among one's
neighbours cannot move it. F is half of the smallest number of neighbours, less one, and not below 0. The
signs are those of X's leading eigenvector. An item's class is the largest of
Σ_n log((P − 1) p_n / (1 − p_n)) [y_mn = k].
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Any

import numpy as np
from scipy import sparse

from dissensus.engine import Engine
from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.models.confusion import WEIGHTS, ConfusionModel, ConfusionSteps, gold_signs, times_prior
from dissensus.models.weighted import diagonal, keep_votes
from dissensus.numerics import Array, ones, softmax_rows
from dissensus.params import MAX_ITER, SEED, fitted, real, setting

WHOLE = 100  # annotators up to which all eigenvectors are found
MOST_ANNOTATORS = 20_000  # of which every two are compared


def agreements(annotations: Annotations) -> tuple[Array, Array]:
    """(N, N) twice: on how many items two annotators answered, and on how many of those alike."""
    M, N, P = annotations.n_items, annotations.n_annotators, annotations.n_classes
    cells = annotations.item * np.int64(P) + annotations.label
    by_answer = sparse.csr_array(
        (ones(annotations.n_labels), (cells, annotations.annotator)), shape=(M * P, N)
    )
    by_item = sparse.csr_array(
        (ones(annotations.n_labels), (annotations.item, annotations.annotator)), shape=(M, N)
    )
    return (by_item.T @ by_item).toarray(), (by_answer.T @ by_answer).toarray()


def trimmed_means(ratios: Array, seen: Any, before: Array, F: int, least: float) -> Array:
    """(N,): each column's mean, up to F values above and F below ``before`` left out (2)."""
    values = np.sort(np.where(seen, ratios, np.inf), axis=0)  # what is missing comes last
    n = seen.sum(axis=0)
    below, above = (values < before).sum(axis=0), n - (values <= before).sum(axis=0)
    first, last = np.minimum(below, F), n - np.minimum(above, F)
    rank = np.arange(len(values))[:, None]
    kept = (rank >= first) & (rank < last)
    size = kept.sum(axis=0)
    means = np.where(kept, values, 0.0).sum(axis=0) / np.maximum(size, 1)
    # A lone 0 would stay 0 for ever, and be divided by.
    return np.where(size > 0, np.maximum(means, least), before)


class MMSR(ConfusionModel):
    """Skills by robust completion of the matrix of agreements between annotators, then a weighted vote."""

    max_iter: int = setting(1000, *MAX_ITER)
    _: KW_ONLY
    tol: float = setting(
        1e-10,
        real(0.0),
        "The fit stops when the completed matrix changes by less than this (Frobenius norm).",
    )
    seed: int = setting(0, *SEED)

    _memory_tables = {"MP": 3, "NPP": 7, "NN": 8}

    weights_: Array = fitted(WEIGHTS)

    def _fit(self, annotations: Annotations, engine: Engine, item_prior: Any = None) -> None:
        if annotations.n_annotators > MOST_ANNOTATORS:
            raise DataError(
                f"MMSR compares every two annotators, and {annotations.n_annotators:,} are too many; "
                "take another model (ibcc, dawid-skene)"
            )
        steps, P = ConfusionSteps(annotations, engine), annotations.n_classes
        given = self._known_before(item_prior, annotations)
        x, stopped = self._completed(annotations, gold_signs(given, annotations))
        # p_n = x_n (P − 1)/P + 1/P, kept off 0 and 1 by what so many items can tell
        edge = 1.0 / np.sqrt(max(annotations.n_items, 4))
        x = np.maximum(np.minimum(x, 1.0 - edge), -1.0 / max(P - 1, 1) + edge)
        chance = np.clip(x * (P - 1) / P + 1.0 / P, 1e-9, 1 - 1e-9)
        skills = np.log(chance * max(P - 1, 1) / (1 - chance))
        posterior, _ = softmax_rows(steps.scores(diagonal(skills, P)))
        keep_votes(self, steps, annotations, times_prior(posterior, given), skills, stopped)

    def _completed(self, annotations: Annotations, gold: Array) -> tuple[Array, str]:
        """(N,): x, of rank one with the agreements (1); and why the completion ended."""
        M, P = annotations.n_items, annotations.n_classes
        common, alike = agreements(annotations)
        np.fill_diagonal(common, 0.0)
        seen = common > 0
        X = (P * np.divide(alike, common, out=np.zeros_like(alike), where=seen) - 1) / max(P - 1, 1)
        X[~seen] = 0.0
        neighbours = seen.sum(axis=0)
        F, least = max(int(neighbours.min() // 2) - 1, 0), 1.0 / np.sqrt(max(M, 1))
        rng = np.random.default_rng(self.seed)
        u, v = rng.uniform(size=len(X)), rng.uniform(size=len(X))
        size, stopped = np.abs(X), "max_iter"
        for _ in range(self.max_iter):
            before = np.outer(u, v)
            v = trimmed_means(size / u[:, None], seen, v, F, least)
            u = trimmed_means(size / v[:, None], seen, u, F, least)
            if np.linalg.norm(np.outer(u, v) - before) < max(self.tol, 1e-12):
                stopped = "tolerance"
                break
        scale = float(np.sqrt(np.linalg.norm(v) / np.linalg.norm(u)))
        return self._signs(X, gold, annotations) * u * scale, stopped

    def _signs(self, X: Array, gold: Array, annotations: Annotations) -> Array:
        """(N,): ±1, by X's leading eigenvector; gold, or that most annotators are right, says which is +."""
        symmetric = (X + X.T) / 2
        if len(X) <= WHOLE:
            leading = np.linalg.eigh(symmetric)[1][:, -1]
        else:
            from scipy.sparse.linalg import eigsh

            leading = eigsh(symmetric, k=1, which="LA", v0=np.ones(len(X)))[1][:, 0]
        signs = np.where(leading < 0, -1.0, 1.0)
        right = float(signs[annotations.annotator] @ gold[annotations.item, annotations.label])
        agree = right if gold.any() else float(signs @ np.abs(leading))
        return signs if agree >= 0 else -signs
