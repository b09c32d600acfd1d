"""What Dawid–Skene and its relatives share: annotators with confusion matrices of their own.

Item m has one true class t_m ~ Cat(ψ), and annotator n answers from a row of its matrix,
y_mn ~ Cat(π_{n, t_m}). A shard's labels are a sparse matrix S with one row per item and one column a
(annotator, answer) cell, so both halves of EM are a product with it:

    log P(t_m = k | labels) = log ψ_k + Σ_cells S_m,(n,y) log π_nky + const                            (1)
    n_nky = Σ_m S_m,(n,y) P(t_m = k)                                                                   (2)

Nothing of size labels × annotators, or items × annotators, is ever built.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import xlogy

from dissensus.engine import Block, ConvergenceMonitor, Engine
from dissensus.errors import bad_parameter
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Codes
from dissensus.models.base import Model, fit_truth
from dissensus.models.results import ClusterView, by_id, table_by_id
from dissensus.models.scoring import fresh_rows
from dissensus.numerics import Array, column_sums, normalised, ones, safe_log, sum_of_logs, winners
from dissensus.params import N_JOBS, WEIGHT_BY, choice, fitted, real, setting

LEAST_DAMPING = math.exp(-7)
FEW_CLASSES = 4  # up to which SciPy multiplies faster with one column after the other
Cells = NDArray[np.int64] | slice
DENSE_CELLS = 4  # cells per label of a block up to which a column for every cell is cheaper


# ---- a block ------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CellLayout:
    """A block's labels as an (items, cells) matrix of counts.

    Its columns are all cells, or, in a crowd much larger than the block, those that occur.
    """

    n_classes: int
    cells: Cells  # n · P + y of each column
    matrix: Any  # sparse (items, cells)
    transposed: Any  # sparse (cells, items): the same arrays, so that sums run through items one by one

    @classmethod
    def of(cls, block: Block) -> CellLayout:
        """Number the (annotator, answer) cells."""
        shard = block.shard()
        n_cells = block.labels.n_annotators * shard.n_classes
        codes = shard.annotator * np.int64(shard.n_classes) + shard.label
        if n_cells <= DENSE_CELLS * len(codes):
            cells, column = slice(None), codes
        else:
            cells, column = np.unique(codes, return_inverse=True)
            n_cells = len(cells)
        pointers = np.searchsorted(shard.item, np.arange(shard.n_items + 1)).astype(np.int32)
        shape = shard.n_items, n_cells
        matrix = sparse.csr_array((ones(len(codes)), column.astype(np.int32), pointers), shape=shape)
        return cls(shard.n_classes, cells, matrix, matrix.T)

    def counts(self) -> Array:
        """(items, classes): how often each class was given to each item."""
        M, P = self.matrix.shape[0], self.n_classes
        column = self.matrix.indices
        answer = column % P if isinstance(self.cells, slice) else self.cells[column] % P
        item = np.repeat(np.arange(M), np.diff(self.matrix.indptr))
        return np.bincount(item * P + answer, minlength=M * P).reshape(M, P).astype(np.float64)


@dataclass(frozen=True)
class Expected:
    """What the M-step consumes, given P(t_m = k) of each item."""

    counts: Array  # (annotators, K, answers): expected label counts (2); K is the true classes, or more
    item_mass: Array  # (K,): Σ_m P(t_m = k)
    entropy: float  # Σ_m H(t_m) + Σ_k P(t_m = k) log h_mk, h being the prior of the items
    evidence: float  # Σ_m log P(labels of m)


Part = tuple[Cells, Expected]  # of one block: its cells, and what its items add, with counts (cells, K)


def _posterior_step(
    layout: CellLayout, log_given: Array, log_psi: Array, ratios: Array
) -> tuple[Array, float]:
    """P(t_m = k | labels) of the items, and Σ_m log P(labels of m) / Π_cells π_n0y^S."""
    # (K, items): log h_mk + log ψ_k + Σ_cells S log π_nky / π_n0y, (1) less a term that no k changes. The
    # classes are few, and NumPy is faster along items than along classes: a row for every class.
    prior, columns = np.atleast_2d(log_psi + log_given).T, ratios[layout.cells]
    scores = np.empty((len(prior), layout.matrix.shape[0]))
    scores[0] = prior[0]
    if len(scores) <= FEW_CLASSES:
        for k in range(1, len(scores)):
            np.add(layout.matrix @ columns[:, k - 1], prior[k], out=scores[k])
    else:
        np.add((layout.matrix @ columns).T, prior[1:], out=scores[1:])
    top = scores.max(axis=0)
    top -= 0.5  # exp takes twice as long where its argument is now and then 0
    scores -= top
    np.exp(scores, out=scores)
    mass = scores.sum(axis=0)
    w = np.empty(scores.T.shape)
    np.divide(scores, mass, out=w.T)
    return w, sum_of_logs(mass) + float(top.sum())


def _e_step(layout: CellLayout, log_given: Array, log_psi: Array, ratios: Array) -> Part:
    """Expected counts under the posterior; the evidence is divided by Π_cells π_n0y^S."""
    w, evidence = _posterior_step(layout, log_given, log_psi, ratios)
    return layout.cells, Expected(np.asarray(layout.transposed @ w), column_sums(w), 0.0, evidence)


def _counts_step(layout: CellLayout, rows: Any, start: Start | None = None, crowd: Any = None) -> Part:
    """The counts that beliefs imply; ``rows`` are w and the items' prior, with ``start`` the prior alone."""
    w, prior = rows if start is None else (times_prior(start(layout.counts(), crowd), rows), rows)
    counts, entropy = np.asarray(layout.transposed @ w), float(xlogy(w, prior).sum() - xlogy(w, w).sum())
    return layout.cells, Expected(counts, column_sums(w), entropy, 0.0)


def _initial_step(layout: CellLayout, prior: Array, start: Start, crowd: Array) -> Array:
    return times_prior(start(layout.counts(), crowd), prior)


def times_prior(labels: Array, prior: Array) -> Array:
    """What labels say times the items' prior; the prior alone where the two exclude each other."""
    product = labels * prior
    return np.where(product.any(axis=1, keepdims=True), normalised(product), prior)


# ---- all of them --------------------------------------------------------------------------------------


class ConfusionSteps:
    """The steps over all labels of a model with confusion matrices."""

    def __init__(self, annotations: Annotations, engine: Engine) -> None:
        self.blocks = engine.blocks(annotations, CellLayout.of)
        self.shape = annotations.n_items, annotations.n_annotators, annotations.n_classes
        self._class_counts = annotations.class_counts.astype(np.float64)

    def posterior(self, log_matrices: Array, log_psi: Array, log_given: Array) -> Array:
        """P(t_m = k | labels) of every item (1); ``log_given`` (items, K) or (K,) is added to log ψ.

        Classes are compared with the first, so that its logarithms must be finite: `safe_log` ends at −708.
        """
        rows, ratios = self._rows(log_given), _log_ratios(_by_cell(log_matrices))
        parts = self.blocks.map(_posterior_step, rows, log_psi=log_psi, ratios=ratios)
        posteriors, _ = zip(*parts, strict=True)
        return np.concatenate(posteriors)

    def e_step(self, log_matrices: Array, log_psi: Array, log_given: Array) -> Expected:
        """Expected counts under the posterior (1)."""
        rows, logs = self._rows(log_given), _by_cell(log_matrices)
        expected = self._sum(self.blocks.map(_e_step, rows, log_psi=log_psi, ratios=_log_ratios(logs)))
        counts, mass = _by_cell(expected.counts), expected.item_mass
        evidence = expected.evidence + float((counts @ ones(len(mass))) @ logs[:, 0])
        # Σ_m log P(labels of m) = Σ_m H(t_m) + Σ_k w_mk (log h_mk + log ψ_k) + Σ_nky n_nky log π_nky
        rest = float(np.vdot(counts, logs)) + float(mass[mass > 0] @ log_psi[mass > 0])
        return replace(expected, entropy=evidence - rest, evidence=evidence)

    def initial_posterior(self, start: Start, prior: Array | None = None) -> Array:
        """(items, classes): where EM starts, by the items' own labels times their prior."""
        parts = self.blocks.map(_initial_step, self._rows(prior), start=start, crowd=self._class_counts)
        return np.concatenate(list(parts))

    def initial_counts(self, start: Start, prior: Array | None = None) -> Expected:
        """Expected counts under the initial posterior."""
        rows, crowd = self._rows(prior), self._class_counts
        return self._sum(self.blocks.map(_counts_step, rows, start=start, crowd=crowd))

    def expected_counts(self, w: Array, prior: Array | None = None) -> Expected:
        """What the M-step consumes, for beliefs (items, K) under the items' prior."""
        rows = zip(self._rows(w), self._rows(prior), strict=True)
        return self._sum(self.blocks.map(_counts_step, rows))

    def _rows(self, table: Array | None) -> list[Array]:
        """Each block's rows of a table of all items; one row for all (None: of ones) goes to every block."""
        if table is None or table.ndim == 1:
            return [np.ones(1) if table is None else table] * len(self.blocks.blocks)
        return [table[block.items] for block in self.blocks.blocks]

    def _sum(self, parts: Iterable[Part]) -> Expected:
        """Add the blocks up, in their order."""
        _, N, P = self.shape
        sums, item_mass, entropy, evidence = np.zeros(0), np.zeros(0), 0.0, 0.0
        for cells, part in parts:
            if not item_mass.size:
                K = len(part.item_mass)
                sums, item_mass = np.zeros((N * P, K)), np.zeros(K)
            sums[cells] += part.counts
            item_mass += part.item_mass
            entropy += part.entropy
            evidence += part.evidence
        return Expected(sums.reshape(N, P, -1).transpose(0, 2, 1), item_mass, entropy, evidence)


def _by_cell(log_matrices: Array) -> Array:
    """(N, K, P) with one row per cell, one column per true class."""
    N, K, P = log_matrices.shape
    return np.ascontiguousarray(log_matrices.transpose(0, 2, 1)).reshape(N * P, K)


def _log_ratios(logs: Array) -> Array:
    """(cells, K − 1): log π_nky / π_n0y, of every true class k but the first."""
    ratio = np.eye(logs.shape[1])[:, 1:]
    ratio[0] = -1.0
    return np.asarray(logs @ ratio)  # a product is faster than differences along short rows


# ---- where EM starts -----------------------------------------------------------------------------------

Start = Callable[[Array, Array], Array]  # of (items, classes) counts and the crowd's (classes,)


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


def checked_prior(model: Model, prior: Any, annotations: Annotations) -> Array:
    """Check what is known beforehand: an (items, classes) table of numbers from 0 on."""
    shape = (annotations.n_items, annotations.n_classes)
    table = np.asarray(prior, dtype=np.float64, order="C")
    if table.shape != shape:
        raise bad_parameter(model, "prior", f"of shape {shape}", table.shape)
    sound = np.isfinite(table) & (table >= 0)
    if not sound.all():
        raise bad_parameter(model, "prior", "probabilities, all >= 0", float(table[~sound][0]))
    return table


def gold_prior(annotations: Annotations) -> Array:
    """(items, classes): an item prior that knows the class of every item with gold, and nothing else.

    Parameters
    ----------
    annotations
        Labels with gold.
    """
    prior = np.ones((annotations.n_items, annotations.n_classes))
    if annotations.gold is not None:
        known = np.flatnonzero(annotations.gold >= 0)
        prior[known] = np.eye(annotations.n_classes)[annotations.gold[known]]
    return prior


def damping(counts: NDArray[np.int64], unseen: float) -> Array:
    """(items, classes): 1 for a class that somebody gave to the item, ``unseen`` to the power of labels else.

    Not below ``LEAST_DAMPING``, so that any number of labels leaves a little.
    """
    n_labels = counts.sum(axis=1, keepdims=True)
    return np.where(counts > 0, 1.0, np.maximum(unseen**n_labels, LEAST_DAMPING))


UNSEEN = (
    real(0.0, 1.0, open_low=True),
    "What each label of an item leaves of the probability of a class that none of them names; 1 leaves all "
    "of it. Below 1, a rare class is not given to items for which nobody named it.",
)


SMOOTHING = 1.0  # labels' worth of the crowd's matrix in each row of an annotator's
TRANSFORM_ROUNDS = 20


class ConfusionModel(Model):
    """Base of the models with one true class an item and a confusion matrix an annotator."""

    _: KW_ONLY
    estimate: str = setting(
        "truth",
        choice("truth", "population"),
        'What ``label_distributions_`` holds: ``"truth"``, the probability that each class is the right one, '
        'or ``"population"``, the share of a population that would answer each class.',
    )
    weight_by: str = setting("labels", *WEIGHT_BY)
    n_jobs: int = setting(-1, *N_JOBS)

    _needs_annotators = True
    _memory_tables: ClassVar[Mapping[str, int]] = {"MP": 5, "NPP": 7}
    finds_truth = True
    unseen = 1.0  # no setting of every model: see UNSEEN

    posterior_: Array = fitted("(M, P): P(true class | labels)")
    psi_: Array = fitted("(P,): shares of the true classes")
    confusion_: Array = fitted("(N, P, P): P(answer | true class) of each annotator")
    crowd_confusion_: Array = fitted("(P, P): the same of the population")

    @property
    def intervals_are(self) -> str:  # type: ignore[override]
        """Shares of a population have intervals; the chance that a class is true is itself a chance."""
        return "none" if self.estimate == "truth" else "approximate"

    fit = fit_truth

    def _begin(
        self, annotations: Annotations, engine: Engine, prior: Any
    ) -> tuple[ConfusionSteps, Array, Array]:
        """The steps, and (items, classes) the item prior and its logarithm; or one row for all items.

        Classes that nobody gave to an item are damped.
        """
        known = np.ones(annotations.n_classes)
        if prior is not None:
            known = normalised(checked_prior(self, prior, annotations))
        if self.unseen < 1.0:
            known = normalised(known * damping(annotations.counts, self.unseen))
        return ConfusionSteps(annotations, engine), known, log_chances(known)

    def _finish(self, load: NDArray[Any] | None = None, monitor: ConvergenceMonitor | None = None) -> None:
        """The answer to the question asked about each item.

        After a fit: the population's matrix by the annotators' ``load``, and how the ``monitor`` ended.
        """
        if load is not None and monitor is not None:
            # C_kp = Σ_n load_n π_nkp / Σ_n load_n
            weights = load if self.weight_by == "labels" else np.ones(len(load))
            self.crowd_confusion_ = normalised(np.tensordot(weights, self.confusion_, axes=1))
            self.trace_, self.stopped_ = np.array(monitor.trace), monitor.stopped
        if self.estimate == "truth":
            self.prior_distribution_, self.label_distributions_ = self.psi_, self.posterior_
        else:
            w, psi, _, crowd = self._states()
            self.prior_distribution_, self.label_distributions_ = psi @ crowd, w @ crowd

    # What decides about a label: the true class here; in other models each class has several states, one
    # after the other.

    def _states(self) -> tuple[Array, Array, Array, Array]:
        """P(state) of the items (M, K), of one never seen (K,), annotators' rows (N, K, P), the crowd's."""
        return self.posterior_, self.psi_, self.confusion_, self.crowd_confusion_

    def _set_states(self, w: Array, matrices: Array) -> None:
        self.posterior_, self.confusion_ = w, matrices

    def _answer_distributions(self, item: Codes) -> Array:
        """Σ_k P(t_m = k) C_kp."""
        w, psi, _, crowd = self._states()
        return np.asarray(np.vstack([w, psi])[item] @ crowd)

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Σ_k P(t_m = k) π_nkp."""
        w, psi, matrices, crowd = self._states()
        rows = np.concatenate([matrices, crowd[None]])[annotator]
        return np.asarray(np.einsum("ek,ekp->ep", np.vstack([w, psi])[item], rows))

    def cluster_view(self, annotator_load: NDArray[Any] | None = None) -> ClusterView:
        """The true classes as item clusters, the population as the one annotator cluster."""
        self._check_fitted()
        one, crowd, load = np.ones(1), self.crowd_confusion_, np.ones(len(self.confusion_))
        if annotator_load is not None and self.weight_by == "labels":
            load = np.asarray(annotator_load, np.float64)
        classes = self.posterior_, None, crowd[:, None], self.psi_, one, one, crowd
        return ClusterView(*classes, True, matrices=self.confusion_, annotator_weights=normalised(load))

    def annotator_frame(self) -> dict[str, Any]:
        """Columns about annotators: the chance of the right answer on an item drawn at random."""
        # Σ_k ψ_k π_nkk
        return {"accuracy": np.einsum("k,nkk->n", self.psi_, self.confusion_)}

    @property
    def skills_(self) -> Any:
        """One number for each annotator, keyed by annotator: the chance of the right answer.

        That chance has luck in it: who guesses between two classes has 0.5. ``skill`` of
        ``annotator_skills`` (annotators/skill.py) is 0 for who guesses and 1 for who is always right.
        """
        self._check_fitted()
        skills = self.annotator_frame()["accuracy"]
        return by_id({"annotator": self.annotators_}, skills, "skill", self.columns_, self.frame_kind_)

    @property
    def errors_(self) -> Any:
        """P(answer | true class), keyed by annotator and answer, with a column for each true class."""
        self._check_fitted()
        N, P = len(self.annotators_), len(self.classes_)
        ids = {"annotator": np.repeat(self.annotators_, P), "label": np.tile(self.classes_, N)}
        by_answer = self.confusion_.transpose(0, 2, 1).reshape(N * P, P)
        columns = dict(zip(self.classes_.tolist(), by_answer.T, strict=True))
        return table_by_id(ids, columns, self.columns_, self.frame_kind_)

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Fitted annotators keep their matrices and fitted items their posteriors; labels between two of
        them are taken to be those of the fit. New annotators start from the population's matrix."""
        item = fitted.item_vocabulary_.codes(new.item_vocabulary)
        annotator = fitted.annotator_vocabulary_.codes(new.annotator_vocabulary)
        steps = ConfusionSteps(fresh_rows(new, item, annotator), engine)
        w, psi, matrices, population = fitted._states()
        known = np.vstack([w, psi])[item]
        if self.unseen < 1.0:  # in what is known of fitted items it is already
            damped = np.repeat(damping(new.counts, self.unseen), len(psi) // new.n_classes, axis=1)
            known = np.where((item < 0)[:, None], known * damped, known)
        matrices = np.concatenate([matrices, population[None]])[annotator]
        for _ in range(TRANSFORM_ROUNDS):
            w = steps.posterior(safe_log(matrices), np.zeros_like(psi), log_chances(known))
            learned = self._matrices_of_new(steps.expected_counts(w).counts, fitted)
            matrices = np.where((annotator < 0)[:, None, None], learned, matrices)
        self._set_states(w, matrices)
        self._finish()

    def _matrices_of_new(self, counts: Array, fitted: Self) -> Array:
        """(annotators, K, P) from counts, with the population's rows as prior."""
        return normalised(SMOOTHING * fitted.crowd_confusion_ + counts)
