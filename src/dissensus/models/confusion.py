"""What Dawid–Skene and its relatives share: annotators with confusion matrices of their own.

Item m has one true class t_m ~ Cat(ψ), and annotator n answers from a row of its matrix,
y_mn ~ Cat(π_{n, t_m}). A shard's labels are a sparse matrix S with one row an item and one column a
(annotator, answer) cell, so both halves of EM are a product with it:

    log P(t_m = k | labels) = log ψ_k + Σ_cells S_m,(n,y) log π_nky + const                            (1)
    n_nky = Σ_m S_m,(n,y) P(t_m = k)                                                                   (2)

Nothing of size labels × annotators, or items × annotators, is ever built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dissensus.annotations import Annotations
from dissensus.engine import Executor, Shard, shards_of
from dissensus.kernels import Array, normalised, safe_log, softmax_rows
from dissensus.models.base import Model
from dissensus.models.majority import winners
from dissensus.vocabulary import Codes

SHARDS_AT_ONCE = 8  # a label costs little here, so a unit of work may hold more of them
DENSE_CELLS = 4  # cells per label of a shard up to which a column for every cell is cheaper


@dataclass(frozen=True, eq=False)
class CellLayout:
    """A shard's labels as an (items, cells) matrix of counts.

    Its columns are all cells, or, in a crowd much larger than the shard, those that occur.
    """

    rows: slice
    cells: NDArray[np.intp] | slice  # n · P + y of each column
    matrix: Any  # sparse (items, cells)
    transposed: Any  # sparse (cells, items)

    @classmethod
    def of(cls, shard: Shard, n_cells: int) -> CellLayout:
        """Number the (annotator, answer) cells."""
        codes = shard.annotator.astype(np.int64) * shard.n_classes + shard.label
        if n_cells <= DENSE_CELLS * len(codes):
            cells, column = slice(None), codes
        else:
            cells, column = np.unique(codes, return_inverse=True)
            n_cells = len(cells)
        pointers = np.searchsorted(shard.item, np.arange(shard.n_items + 1))
        matrix = sparse.csr_array((np.ones(len(codes)), column, pointers), shape=(shard.n_items, n_cells))
        return cls(shard.rows, cells, matrix, matrix.T.tocsr())


@dataclass(frozen=True)
class Crowd:
    """All labels as cell layouts, and what runs over them."""

    layouts: Sequence[CellLayout]
    shape: tuple[int, int, int]  # items, annotators, classes
    pool: Executor

    @classmethod
    def of(cls, annotations: Annotations, pool: Executor) -> Crowd:
        """Lay out the shards of some annotations."""
        n_cells = annotations.n_annotators * annotations.n_classes
        layouts = pool.map(partial(CellLayout.of, n_cells=n_cells), shards_of(annotations, SHARDS_AT_ONCE))
        return cls(layouts, (annotations.n_items, annotations.n_annotators, annotations.n_classes), pool)

    def posterior(self, log_matrices: Array, log_psi: Array) -> tuple[Array, float]:
        """P(t_m = k | labels) of every item (1), and Σ_m log P(labels of m)."""
        _, N, P = self.shape
        # (N, K, P) -> one row a cell, one column a true class
        logs = np.ascontiguousarray(log_matrices.transpose(0, 2, 1)).reshape(N * P, -1)
        parts = self.pool.map(partial(_posterior_step, logs=logs, log_psi=log_psi), self.layouts)
        return np.concatenate([w for w, _ in parts]), sum(evidence for _, evidence in parts)

    def counts(self, w: Array) -> Array:
        """(annotators, true classes, answers): expected label counts (2)."""
        _, N, P = self.shape
        parts = self.pool.map(partial(_counts_step, w=w), self.layouts)
        cells = np.zeros((N * P, w.shape[1]))
        for layout, part in zip(self.layouts, parts, strict=True):
            cells[layout.cells] += part
        return cells.reshape(N, P, -1).transpose(0, 2, 1)


def _posterior_step(layout: CellLayout, logs: Array, log_psi: Array) -> tuple[Array, float]:
    own = log_psi if log_psi.ndim == 1 else log_psi[layout.rows]
    w, evidence = softmax_rows(layout.matrix @ logs[layout.cells] + own)
    return w, float(evidence.sum())


def _counts_step(layout: CellLayout, w: Array) -> Array:
    return np.asarray(layout.transposed @ w[layout.rows])


def votes(annotations: Annotations) -> Array:
    """Each item's most frequent classes, ties shared; an item without labels is like the crowd's labels."""
    labelled = annotations.counts.any(axis=1, keepdims=True)
    return np.where(labelled, winners(annotations.counts), normalised(_crowd_labels(annotations)))


def shares(annotations: Annotations) -> Array:
    """Each item's labels as shares; an item without labels is like the crowd's labels.

    So a class that nobody gave starts at 0, and EM leaves it there.
    """
    labelled = annotations.counts.any(axis=1, keepdims=True)
    return normalised(np.where(labelled, annotations.counts, _crowd_labels(annotations)))


def _crowd_labels(annotations: Annotations) -> Array:
    return np.asarray(annotations.counts.sum(axis=0), dtype=np.float64)


def log_chances(chances: Array) -> Array:
    """log, −∞ at 0: a class without a share never comes back, as `safe_log` in time would let it."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(chances))


class ConfusionModel(Model):
    """Base of the models with one true class an item and a confusion matrix an annotator."""

    _arrays: ClassVar[tuple[str, ...]] = ("posterior_", "psi_", "confusion_", "crowd_confusion_")
    _needs_annotators = True

    population: str
    posterior_: Array  # (M, P): P(true class | labels)
    psi_: Array  # (P,): shares of the true classes
    confusion_: Array  # (N, P, P): P(answer | true class) of each annotator
    crowd_confusion_: Array  # (P, P): the same of the population

    def _decision(self) -> Array:
        """The true class's posterior decides, not the population's distribution."""
        return self.posterior_

    def _finish(self, load: NDArray[Any]) -> None:
        """The population's matrix, and what it makes of each item."""
        weights = load if self.population == "labels" else np.ones(len(load))
        # C_kp = Σ_n load_n π_nkp / Σ_n load_n
        self.crowd_confusion_ = normalised(np.tensordot(weights, self.confusion_, axes=1))
        self.prior_distribution_ = self.psi_ @ self.crowd_confusion_
        self.label_distributions_ = self.posterior_ @ self.crowd_confusion_

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Σ_k P(t_m = k) π_nkp."""
        w = np.vstack([self.posterior_, self.psi_])[item]
        matrices = np.concatenate([self.confusion_, self.crowd_confusion_[None]])
        return np.asarray(np.einsum("ek,ekp->ep", w, matrices[annotator]))

    def annotator_frame(self) -> dict[str, Any]:
        """Columns about annotators: chance of the right answer on an item drawn at random."""
        return {"accuracy": np.einsum("k,nkk->n", self.psi_, self.confusion_)}

    def _transform(self, new: Annotations, fitted: Self) -> None:
        """Fitted annotators keep their matrices and fitted items their posteriors; labels between two of
        them are taken to be those of the fit. New annotators start from the population's matrix."""
        from dissensus.engine import Serial

        item = fitted.item_vocabulary_.codes(new.item_vocabulary)
        annotator = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        fresh = (item[new.item] < 0) | (annotator[new.annotator] < 0)
        crowd = Crowd.of(new.take_rows(fresh), Serial())
        log_psi = safe_log(np.vstack([fitted.posterior_, fitted.psi_])[item])
        matrices = np.concatenate([fitted.confusion_, fitted.crowd_confusion_[None]])[annotator]
        for _ in range(TRANSFORM_ROUNDS):
            self.posterior_, _ = crowd.posterior(safe_log(matrices), log_psi)
            learned = self._matrices_of_new(crowd.counts(self.posterior_), fitted)
            matrices = np.where((annotator < 0)[:, None, None], learned, matrices)
        self.confusion_ = matrices
        self.label_distributions_ = self.posterior_ @ self.crowd_confusion_

    def _matrices_of_new(self, counts: Array, fitted: Self) -> Array:
        """(annotators, P, P) from counts, with the population's matrix as prior."""
        raise NotImplementedError


TRANSFORM_ROUNDS = 20
