"""What Dawid–Skene and its relatives share: annotators with confusion matrices of their own.

Item m has one true class t_m ~ Cat(ψ), and annotator n answers from a row of its matrix,
y_mn ~ Cat(π_{n, t_m}). A shard's labels are a sparse matrix S with one row an item and one column a
(annotator, answer) cell, so both halves of EM are a product with it:

    log P(t_m = k | labels) = log ψ_k + Σ_cells S_m,(n,y) log π_nky + const                            (1)
    n_nky = Σ_m S_m,(n,y) P(t_m = k)                                                                   (2)

Nothing of size labels × annotators, or items × annotators, is ever built.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import xlogy

from dissensus.data.annotations import Annotations
from dissensus.data.blocks import Block, Labels
from dissensus.data.vocabulary import Codes
from dissensus.execution.memory import Needs, block_labels
from dissensus.execution.run import Run
from dissensus.execution.threads import Work
from dissensus.models.base import Model
from dissensus.models.clusters import ClusterView
from dissensus.numerics import Array, column_sums, normalised, ones, safe_log, softmax_rows, winners

DENSE_CELLS = 4  # cells per label of a block up to which a column for every cell is cheaper


# ---- a block ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CellLayout:
    """A block's labels as an (items, cells) matrix of counts.

    Its columns are all cells, or, in a crowd much larger than the block, those that occur.
    """

    n_classes: int
    cells: NDArray[np.int64] | slice  # n · P + y of each column
    matrix: Any  # sparse (items, cells)
    transposed: Any  # sparse (cells, items)

    @classmethod
    def of(cls, block: Block, labels: Labels) -> CellLayout:
        """Number the (annotator, answer) cells."""
        shard = block.whole(labels)
        n_cells = labels.n_annotators * labels.n_classes
        codes = shard.annotator * np.int64(shard.n_classes) + shard.label
        if n_cells <= DENSE_CELLS * len(codes):
            cells, column = slice(None), codes
        else:
            cells, column = np.unique(codes, return_inverse=True)
            n_cells = len(cells)
        pointers = np.searchsorted(shard.item, np.arange(shard.n_items + 1)).astype(np.int32)
        whole = ones(len(codes))
        shape = shard.n_items, n_cells
        matrix = sparse.csr_array((whole, column.astype(np.int32), pointers), shape=shape)
        turned = matrix.T.tocsr()
        turned = sparse.csr_array((whole, turned.indices, turned.indptr), shape=turned.shape)
        return cls(shard.n_classes, cells, matrix, turned)

    def counts(self) -> Array:
        """(items, classes): how often each class was given to each item."""
        M, P = self.matrix.shape[0], self.n_classes
        column = self.matrix.indices
        answer = column % P if isinstance(self.cells, slice) else self.cells[column] % P
        item = np.repeat(np.arange(M), np.diff(self.matrix.indptr))
        return np.bincount(item * P + answer, minlength=M * P).reshape(M, P).astype(np.float64)


@dataclass(frozen=True)
class ExpectedPart:
    """What a block's items add, given P(t_m = k) of each."""

    cells: NDArray[np.int64] | slice
    counts: Array  # (cells, K): this block's part of (2)
    item_mass: Array  # (K,): Σ_m P(t_m = k)
    entropy: float  # Σ_m H(t_m)
    evidence: float  # Σ_m log P(labels of m)


def _expected(layout: CellLayout, w: Array, evidence: float) -> ExpectedPart:
    counts = np.asarray(layout.transposed @ w)
    return ExpectedPart(layout.cells, counts, column_sums(w), -float(xlogy(w, w).sum()), evidence)


def _posterior_step(layout: CellLayout, log_psi: Array, logs: Array) -> tuple[Array, float]:
    w, evidence = softmax_rows(layout.matrix @ logs[layout.cells] + log_psi)
    return w, float(evidence.sum())


def _e_step(layout: CellLayout, log_psi: Array, logs: Array) -> ExpectedPart:
    return _expected(layout, *_posterior_step(layout, log_psi, logs))


def _given_step(layout: CellLayout, w: Array) -> ExpectedPart:
    return _expected(layout, w, 0.0)


def _guessed_step(layout: CellLayout, given: Array, guess: Guess, crowd: Array) -> ExpectedPart:
    return _expected(layout, _both(guess(layout.counts(), crowd), given), 0.0)


def _guess_step(layout: CellLayout, guess: Guess, crowd: Array) -> Array:
    return guess(layout.counts(), crowd)


def _both(labels: Array, given: Array) -> Array:
    """What labels say times what was known beforehand; that alone where the two exclude each other."""
    both = labels * given
    return np.where(both.any(axis=1, keepdims=True), normalised(both), given)


# ---- all of them --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Expected:
    """What the M-step consumes."""

    counts: Array  # (annotators, true classes, answers): expected label counts (2)
    item_mass: Array  # (true classes,)
    entropy: float
    evidence: float


@dataclass(frozen=True)
class Crowd:
    """All labels as cell layouts, and what runs over them."""

    work: Work
    shape: tuple[int, int, int]  # items, annotators, classes
    class_counts: NDArray[np.int64]

    @classmethod
    def of(cls, annotations: Annotations, run: Run) -> Crowd:
        """Lay out the blocks of some annotations."""
        shape = annotations.n_items, annotations.n_annotators, annotations.n_classes
        return cls(run.over(annotations, CellLayout.of), shape, annotations.class_counts)

    def posterior(self, log_matrices: Array, log_psi: Array) -> tuple[Array, float]:
        """P(t_m = k | labels) of every item (1), and Σ_m log P(labels of m)."""
        parts = list(self.work.map(_posterior_step, self._own(log_psi), logs=_by_cell(log_matrices)))
        return np.concatenate([w for w, _ in parts]), sum(evidence for _, evidence in parts)

    def expect(self, log_matrices: Array, log_psi: Array) -> Expected:
        """Expected counts under the posterior (1)."""
        return self._sum(self.work.map(_e_step, self._own(log_psi), logs=_by_cell(log_matrices)))

    def guessed(self, guess: Guess, given: Array | None = None) -> Expected:
        """Expected counts under a first guess by the items' own labels, times what is known beforehand."""
        own = self._own(np.ones(self.shape[2]) if given is None else given)
        crowd = self.class_counts.astype(np.float64)
        return self._sum(self.work.map(_guessed_step, own, guess=guess, crowd=crowd))

    def guess(self, guess: Guess) -> Array:
        """(items, classes): a first guess by the items' own labels."""
        crowd = self.class_counts.astype(np.float64)
        return np.concatenate(list(self.work.map(_guess_step, guess=guess, crowd=crowd)))

    def counts(self, w: Array) -> Array:
        """(annotators, true classes, answers): expected label counts (2) for given beliefs (items, K)."""
        return self._sum(self.work.map(_given_step, self._own(w))).counts

    def _own(self, table: Array) -> Iterable[Array]:
        """Each block's rows of a table of all items; a row for all goes to everyone."""
        return (table if table.ndim == 1 else table[block.place] for block in self.work.blocks)

    def _sum(self, parts: Iterable[ExpectedPart]) -> Expected:
        """Add the blocks up, in their order."""
        _, N, P = self.shape
        cells, item_mass, entropy, evidence = np.zeros((N * P, P)), np.zeros(P), 0.0, 0.0
        for part in parts:
            cells[part.cells] += part.counts
            item_mass += part.item_mass
            entropy += part.entropy
            evidence += part.evidence
        counts = cells.reshape(N, P, P).transpose(0, 2, 1)
        return Expected(counts, item_mass, entropy, evidence)


def _by_cell(log_matrices: Array) -> Array:
    """(N, K, P) with one row a cell, one column a true class."""
    N, K, P = log_matrices.shape
    return np.ascontiguousarray(log_matrices.transpose(0, 2, 1)).reshape(N * P, K)


# ---- first guesses ------------------------------------------------------------------------------------

Guess = Callable[[Array, Array], Array]  # of (items, classes) counts and the crowd's (classes,)


def votes(counts: Array, crowd: Array) -> Array:
    """Each item's most frequent classes, ties shared; an item without labels is like the crowd's labels."""
    labelled = counts.any(axis=1, keepdims=True)
    return np.where(labelled, winners(counts), normalised(crowd))


def shares(counts: Array, crowd: Array) -> Array:
    """Each item's labels as shares; an item without labels is like the crowd's labels.

    So a class that nobody gave starts at 0, and EM leaves it there.
    """
    labelled = counts.any(axis=1, keepdims=True)
    return normalised(np.where(labelled, counts, crowd))


def log_chances(chances: Array) -> Array:
    """log, −∞ at 0. With `safe_log` a class at 0 could slowly come back during EM; here it stays 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(chances))


class ConfusionModel(Model):
    """Base of the models with one true class an item and a confusion matrix an annotator."""

    _arrays: ClassVar[tuple[str, ...]] = ("posterior_", "psi_", "confusion_", "crowd_confusion_")
    _needs_annotators = True

    weight_by: str
    posterior_: Array  # (M, P): P(true class | labels)
    psi_: Array  # (P,): shares of the true classes
    confusion_: Array  # (N, P, P): P(answer | true class) of each annotator
    crowd_confusion_: Array  # (P, P): the same of the population

    def _needs(self, annotations: Annotations, itemsize: int, **given: Any) -> Needs:
        del itemsize  # there are no messages
        M, N, P = annotations.n_items, annotations.n_annotators, annotations.n_classes
        prior = 3 * P if given.get("item_prior") is not None else 0
        L, in_block = getattr(self, "n_annotator_clusters", 0), block_labels(annotations)
        cells = min(N * P, DENSE_CELLS * in_block)  # columns of a block's matrix, at most
        return Needs(
            # posteriors twice while they are gathered, the items' distributions; matrices, counts, logarithms
            fixed=8 * (M * (4 * P + 2 + prior) + N * P * P * (8 + 3 * L)),
            # a label in two orders; where an item's labels begin, and a cell's, and which cell it is
            layout_bytes=13
            + 4 * M // annotations.n_labels
            + min(4 * cells // in_block, 16)
            + 8 * (cells < N * P),
            message_bytes=0,
            working=60 * in_block + 8 * (6 * P * M * in_block // annotations.n_labels + 2 * N * P * P),
        )

    def _decision(self) -> Array:
        """The true class's posterior decides, not the population's distribution."""
        return self.posterior_

    def _finish(self, load: NDArray[Any]) -> None:
        """The population's matrix, and what it makes of each item."""
        weights = load if self.weight_by == "labels" else np.ones(len(load))
        # C_kp = Σ_n load_n π_nkp / Σ_n load_n
        self.crowd_confusion_ = normalised(np.tensordot(weights, self.confusion_, axes=1))
        self.prior_distribution_ = self.psi_ @ self.crowd_confusion_
        self.label_distributions_ = self.posterior_ @ self.crowd_confusion_

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Σ_k P(t_m = k) π_nkp."""
        w = np.vstack([self.posterior_, self.psi_])[item]
        matrices = np.concatenate([self.confusion_, self.crowd_confusion_[None]])
        return np.asarray(np.einsum("ek,ekp->ep", w, matrices[annotator]))

    def cluster_view(self, annotator_load: NDArray[Any] | None = None) -> ClusterView:
        """The true classes as item clusters, the population as the one annotator cluster."""
        self._check_fitted()
        one, crowd = np.ones(1), self.crowd_confusion_
        return ClusterView(
            self.posterior_,
            None,
            crowd[:, None],
            self.psi_,
            one,
            one,
            crowd,
            true_classes=True,
            matrices=self.confusion_,
            annotator_weights=self._annotator_weights(annotator_load),
        )

    def _annotator_weights(self, load: NDArray[Any] | None) -> Array:
        """(N,): what each annotator counts in the population."""
        by_labels = load is not None and self.weight_by == "labels"
        return normalised(np.asarray(load, np.float64) if by_labels else np.ones(len(self.confusion_)))

    def annotator_frame(self) -> dict[str, Any]:
        """Columns about annotators: chance of the right answer on an item drawn at random."""
        return {"accuracy": np.einsum("k,nkk->n", self.psi_, self.confusion_)}

    def _transform(self, new: Annotations, fitted: Self) -> None:
        """Fitted annotators keep their matrices and fitted items their posteriors; labels between two of
        them are taken to be those of the fit. New annotators start from the population's matrix."""
        item = fitted.item_vocabulary_.codes(new.item_vocabulary)
        annotator = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        fresh = (item[new.item] < 0) | (annotator[new.annotator] < 0)
        crowd = Crowd.of(new.take_rows(fresh), Run())
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
