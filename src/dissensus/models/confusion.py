"""E-step and base class of the models with a confusion matrix per annotator: Dawid–Skene and its relatives.

Item m has a true class t_m ~ Cat(ψ); annotator n answers from a row of its matrix, y_mn ~ Cat(π_{n, t_m}).
The labels of a block are a sparse matrix S with a row per item and a column per cell (annotator, answer), so
that both halves of EM are products with it:

    log P(t_m = k | labels) = log ψ_k + Σ_cells S_m,(n,y) log π_nky + const                            (1)
    n_nky = Σ_m S_m,(n,y) P(t_m = k)                                                                   (2)

No array has labels × annotators or items × annotators entries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import xlogy

from dissensus import errors
from dissensus.engine import Block, ConvergenceMonitor, Engine
from dissensus.errors import DataError, ParameterError, bad_parameter, warn
from dissensus.labels import as_annotations
from dissensus.labels.annotations import Annotations
from dissensus.labels.vocabulary import Codes
from dissensus.models.base import Model
from dissensus.models.calibration import MAX_PREDICTED_LABELS, calibrated, damping, evidence_limit
from dissensus.models.results import ClusterView, by_id, table_by_id
from dissensus.models.scoring import unfitted_rows
from dissensus.numerics import Array, column_sums, normalised, ones, safe_log, sum_of_logs, winners
from dissensus.params import MAX_ITER, N_JOBS, TOL, WEIGHT_BY, choice, fitted, real, setting
from dissensus.tables.layouts import with_side_tables

MAX_CLASSES_BY_COLUMN = 4  # up to here, SciPy multiplies faster column by column
MAX_CELLS_PER_LABEL = 4  # up to here, a column for every cell of a block is cheaper
NEW_ANNOTATOR_SMOOTHING = 1.0  # weight, in labels, of the crowd's row in each row of a new annotator
APPLY_ITERATIONS = 20
Cells = NDArray[np.int64] | slice


# ---- steps of a block ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CellLayout:
    """A block's labels as an (items, cells) matrix of counts.

    The columns are all cells or, if annotators are many and labels few, the cells that occur.
    """

    n_classes: int
    cells: Cells  # n · P + y of each column
    matrix: Any  # sparse (items, cells)
    transposed: Any  # sparse (cells, items), sharing the arrays of ``matrix``

    @classmethod
    def of(cls, block: Block) -> CellLayout:
        """Build the matrix of a block."""
        shard = block.shard()
        n_cells = block.labels.n_annotators * shard.n_classes
        codes = shard.annotator * np.int64(shard.n_classes) + shard.label
        if n_cells <= MAX_CELLS_PER_LABEL * len(codes):
            cells, column = slice(None), codes
        else:
            cells, column = np.unique(codes, return_inverse=True)
            n_cells = len(cells)
        pointers = np.searchsorted(shard.item, np.arange(shard.n_items + 1)).astype(np.int32)
        shape = shard.n_items, n_cells
        matrix = sparse.csr_array((ones(len(codes)), column.astype(np.int32), pointers), shape=shape)
        return cls(shard.n_classes, cells, matrix, matrix.T)

    def counts(self) -> Array:
        """Return (items, classes): labels of each class per item."""
        M, P = self.matrix.shape[0], self.n_classes
        column = self.matrix.indices
        answer = column % P if isinstance(self.cells, slice) else self.cells[column] % P
        item = np.repeat(np.arange(M), np.diff(self.matrix.indptr))
        return np.bincount(item * P + answer, minlength=M * P).reshape(M, P).astype(np.float64)


@dataclass(frozen=True)
class ExpectedCounts:
    """Expected sufficient statistics under P(t_m = k), for the M-step."""

    counts: Array  # (annotators, K, answers): expected label counts (2), by true class or subtype
    item_mass: Array  # (K,): Σ_m P(t_m = k)
    entropy: float  # Σ_m [H(t_m) + Σ_k P(t_m = k) log h_mk], with the items' prior h
    evidence: float  # Σ_m log P(labels of m)


BlockCounts = tuple[Cells, ExpectedCounts]  # the block's cells, and its terms, with counts (cells, K)


def _posteriors(layout: CellLayout, log_prior: Array, log_psi: Array, ratios: Array) -> tuple[Array, float]:
    """Return P(t_m = k | labels) of the items, and Σ_m log P(labels of m) / Π_cells π_n0y^S."""
    # (K, items): log h_mk + log ψ_k + Σ_cells S log π_nky / π_n0y, which is (1) up to a constant in k. Rows
    # are classes because NumPy is faster along the longer axis.
    prior, columns = np.atleast_2d(log_psi + log_prior).T, ratios[layout.cells]
    scores = np.empty((len(prior), layout.matrix.shape[0]))
    scores[0] = prior[0]
    if len(scores) <= MAX_CLASSES_BY_COLUMN:
        for k in range(1, len(scores)):
            np.add(layout.matrix @ columns[:, k - 1], prior[k], out=scores[k])
    else:
        np.add((layout.matrix @ columns).T, prior[1:], out=scores[1:])
    top = scores.max(axis=0)
    top -= 0.5  # avoids exp(0), which takes twice as long
    scores -= top
    np.exp(scores, out=scores)
    mass = scores.sum(axis=0)
    w = np.empty(scores.T.shape)
    np.divide(scores, mass, out=w.T)
    return w, sum_of_logs(mass) + float(top.sum())


def _e_step(layout: CellLayout, log_prior: Array, log_psi: Array, ratios: Array) -> BlockCounts:
    """Return expected counts under the posterior; the evidence is divided by Π_cells π_n0y^S."""
    w, evidence = _posteriors(layout, log_prior, log_psi, ratios)
    return layout.cells, ExpectedCounts(np.asarray(layout.transposed @ w), column_sums(w), 0.0, evidence)


def _counts_step(layout: CellLayout, rows: tuple[Array, Array]) -> BlockCounts:
    """Return expected counts under w; ``rows`` are w and the items' prior."""
    w, prior = rows
    counts, entropy = np.asarray(layout.transposed @ w), float(xlogy(w, prior).sum() - xlogy(w, w).sum())
    return layout.cells, ExpectedCounts(counts, column_sums(w), entropy, 0.0)


def _initial_step(layout: CellLayout, prior: Array, start: Start, class_counts: Array) -> Array:
    return times_prior(start(layout.counts(), class_counts), prior)


def times_prior(distributions: Array, prior: Array) -> Array:
    """Return the normalised product with the items' prior; the prior itself where the product is 0."""
    product = distributions * prior
    return np.where(product.any(axis=1, keepdims=True), normalised(product), prior)


# ---- steps over all labels ---------------------------------------------------------------------------------


class ConfusionSteps:
    """E-steps over all labels for models with confusion matrices."""

    def __init__(self, annotations: Annotations, engine: Engine) -> None:
        self.blocks = engine.blocks(annotations, CellLayout.of)
        self.shape = annotations.n_items, annotations.n_annotators, annotations.n_classes
        self._class_counts = annotations.class_counts.astype(np.float64)

    def posterior(self, log_matrices: Array, log_psi: Array, log_prior: Array) -> Array:
        """Return P(t_m = k | labels) of every item (1); ``log_prior`` (items, K) or (K,) is added to log ψ.

        Classes are compared with the first, whose logarithms must be finite; `safe_log` is at least −708.
        Only classes with a prior of 0 get a probability of 0, however small those of others are.
        """
        rows, ratios = self._rows(log_prior), _log_ratios(_by_cell(log_matrices))
        parts = self.blocks.map(_posteriors, rows, log_psi=log_psi, ratios=ratios)
        posteriors, _ = zip(*parts, strict=True)
        least = np.where(np.isfinite(log_psi + log_prior), np.finfo(float).tiny, 0.0)
        return np.asarray(np.maximum(np.concatenate(posteriors), least))

    def e_step(self, log_matrices: Array, log_psi: Array, log_prior: Array) -> ExpectedCounts:
        """Return expected counts under the posterior (1)."""
        rows, logs = self._rows(log_prior), _by_cell(log_matrices)
        expected = self._sum(self.blocks.map(_e_step, rows, log_psi=log_psi, ratios=_log_ratios(logs)))
        counts, mass = _by_cell(expected.counts), expected.item_mass
        evidence = expected.evidence + float((counts @ ones(len(mass))) @ logs[:, 0])
        # Σ_m log P(labels of m) = Σ_m H(t_m) + Σ_k w_mk (log h_mk + log ψ_k) + Σ_nky n_nky log π_nky
        rest = float(np.vdot(counts, logs)) + float(mass[mass > 0] @ log_psi[mass > 0])
        return replace(expected, entropy=evidence - rest, evidence=evidence)

    def initial_posterior(self, start: Start, prior: Array | None = None) -> Array:
        """Return (items, classes): the start of EM, from the items' labels times their prior."""
        rows, class_counts = self._rows(prior), self._class_counts
        parts = self.blocks.map(_initial_step, rows, start=start, class_counts=class_counts)
        return np.concatenate(list(parts))

    def initial_counts(self, start: Start, prior: Array | None = None) -> ExpectedCounts:
        """Return expected counts under the initial posterior."""
        return self.expected_counts(self.initial_posterior(start, prior), prior)

    def expected_counts(self, w: Array, prior: Array | None = None) -> ExpectedCounts:
        """Return expected counts under w (items, K) and the items' prior."""
        rows = zip(self._rows(w), self._rows(prior), strict=True)
        return self._sum(self.blocks.map(_counts_step, rows))

    def _rows(self, table: Array | None) -> list[Array]:
        """Split a table of all items into the blocks' rows; a single row (None: ones) is used for all."""
        if table is None or table.ndim == 1:
            return [np.ones(1) if table is None else table] * len(self.blocks.blocks)
        return [table[block.items] for block in self.blocks.blocks]

    def _sum(self, parts: Iterable[BlockCounts]) -> ExpectedCounts:
        """Add up the blocks, in order."""
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
        return ExpectedCounts(sums.reshape(N, P, -1).transpose(0, 2, 1), item_mass, entropy, evidence)


def _by_cell(log_matrices: Array) -> Array:
    """Return (N, K, P) as (cells, K)."""
    N, K, P = log_matrices.shape
    return np.ascontiguousarray(log_matrices.transpose(0, 2, 1)).reshape(N * P, K)


def _log_ratios(logs: Array) -> Array:
    """Return (cells, K − 1): log π_nky / π_n0y for every true class k but the first."""
    ratio = np.eye(logs.shape[1])[:, 1:]
    ratio[0] = -1.0
    return np.asarray(logs @ ratio)  # faster than differences along short rows


# ---- starting points of EM -----------------------------------------------------------------------------

Start = Callable[[Array, Array], Array]  # from (items, classes) counts and overall counts (classes,)


def majority_votes(counts: Array, class_counts: Array) -> Array:
    """Return each item's most frequent classes, ties shared; overall shares for items without labels."""
    return np.where(counts.any(axis=1, keepdims=True), winners(counts), normalised(class_counts))


def label_shares(counts: Array, class_counts: Array) -> Array:
    """Return each item's shares of labels; overall shares for items without labels.

    A class without labels starts at 0, and stays there in EM.
    """
    return normalised(np.where(counts.any(axis=1, keepdims=True), counts, class_counts))


def log_with_zeros(probabilities: Array) -> Array:
    """Return the logarithm, −∞ at 0, so that a class at 0 stays there in EM (unlike with `safe_log`)."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(probabilities))


# ---- gold and other prior knowledge --------------------------------------------------------------------


def fit_truth(self: Any, labels: Any, *, gold: Any = None, prior: Any = None) -> Any:
    """Fit the model to labels, and optionally to gold or other prior knowledge of the true classes.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    gold
        The true class of some items: a mapping or a pandas Series from item to class, or a data frame or path
        with one row per item.
    prior
        (items, classes): weights that multiply the class shares of each item, instead of gold. A row with all
        its weight on one class is a gold label, a row of equal numbers carries no information.
    """
    if gold is None:
        return self._run_fit(labels, prior=prior)
    if prior is not None:
        raise ParameterError(f"pass {errors.setting('gold')} or {errors.setting('prior')}, not both")
    labels = as_annotations(labels, self._reads_as)
    keys = [] if hasattr(gold, "columns") or not hasattr(gold, "keys") else list(gold.keys())
    if keys and not set(keys) & set(labels.items.tolist()):
        raise DataError(
            f"gold must map items to their true class, but none of its keys is an item (the first is "
            f"{keys[0]!r}); annotator weights cannot be passed, models learn them"
        )
    labels = with_gold(labels, gold)
    return self._run_fit(labels, prior=gold_prior(labels))


def with_gold(labels: Annotations, gold: Any) -> Annotations:
    """Return the labels with gold: a mapping or a pandas Series from item to class, or a data frame or path.

    Notes about gold (a class that no annotator used, an item without labels) are issued as warnings, because
    callers that pass gold here do not see the notes of the labels.
    """
    if hasattr(gold, "items") and not hasattr(gold, "columns"):
        pairs = dict(gold.items())
        labels_with_gold = labels.with_tables(gold={"item": list(pairs), "label": list(pairs.values())})
    else:
        labels_with_gold = with_side_tables(labels, None, None, gold, ("item", "annotator"), True)
    for note in labels_with_gold.notes[len(labels.notes) :]:
        warn(note, 4)
    return labels_with_gold


def checked_prior(model: Model, prior: Any, annotations: Annotations) -> Array:
    """Return the prior as an array, after checking its shape and that all numbers are ≥ 0."""
    shape = (annotations.n_items, annotations.n_classes)
    table = np.asarray(prior, dtype=np.float64, order="C")
    if table.shape != shape:
        raise bad_parameter(model, "prior", f"of shape {shape}", table.shape)
    sound = np.isfinite(table) & (table >= 0)
    if not sound.all():
        raise bad_parameter(model, "prior", "probabilities, all >= 0", float(table[~sound][0]))
    return table


def gold_prior(annotations: Annotations) -> Array:
    """Return (items, classes): a prior with the class of every item with gold, and ones elsewhere.

    Parameters
    ----------
    annotations
        Labels with gold.
    """
    prior = np.ones((annotations.n_items, annotations.n_classes))
    if annotations.gold is not None:
        items = np.flatnonzero(annotations.gold >= 0)
        prior[items] = np.eye(annotations.n_classes)[annotations.gold[items]]
    return prior


UNSEEN = (
    real(0.0, 1.0, open_low=True),
    "Factor by which each label of an item lowers the probability of a class that none of its labels names. "
    "Below 1, a rare class is not assigned to items for which no annotator chose it.",
)


# ---- the base class ------------------------------------------------------------------------------------


class ConfusionModel(Model):
    """Base class of models with one true class per item and a confusion matrix per annotator."""

    _: KW_ONLY
    estimate: str = setting(
        "truth",
        choice("truth", "population"),
        'What ``label_distributions_`` estimate: ``"truth"``, the calibrated probability of each class, or '
        '``"population"``, the share of a population that would choose each class.',
    )
    weight_by: str = setting("labels", *WEIGHT_BY)
    max_iter: int = setting(200, *MAX_ITER)
    tol: float = setting(1e-6, *TOL)
    n_jobs: int = setting(-1, *N_JOBS)

    _needs_annotators = True
    _memory_tables: ClassVar[Mapping[str, int]] = {"MP": 5, "NPP": 7}
    finds_truth = True
    unseen = 1.0  # a setting of some models: UNSEEN

    posterior_: Array = fitted("(M, P): P(true class | labels) under the model, not calibrated")
    psi_: Array = fitted("(P,): shares of the true classes")
    confusion_: Array = fitted("(N, P, P): P(answer | true class) of each annotator")
    crowd_confusion_: Array = fitted("(P, P): P(answer | true class) of the population")
    evidence_limit_: Array = fitted("(): largest number of independent labels that an item's labels count as")

    def memory_needed(self, labels: Annotations, n_threads: int = 1, features: Any = None) -> int:
        """Estimate the memory of a fit in bytes, with the labels predicted to calibrate its answers."""
        predicted = min(labels.n_labels, MAX_PREDICTED_LABELS) * (labels.n_classes + 8)
        return super().memory_needed(labels, n_threads, features) + 8 * 8 * predicted

    @property
    def intervals_are(self) -> str:  # type: ignore[override]
        """Kind of intervals: none for probabilities of the truth, approximate for shares of a population."""
        return "none" if self.estimate == "truth" else "approximate"

    fit = fit_truth

    def _setup(self, labels: Annotations, engine: Engine, prior: Any) -> tuple[ConfusionSteps, Array, Array]:
        """Return the steps, the items' prior, (items, classes) or (classes,) if uniform, and its log."""
        item_prior = np.ones(labels.n_classes)
        if prior is not None:
            item_prior = normalised(checked_prior(self, prior, labels))
        if self.unseen < 1.0:
            item_prior = normalised(item_prior * damping(labels.counts, self.unseen))
        return ConfusionSteps(labels, engine), item_prior, log_with_zeros(item_prior)

    def _set_fitted(self, labels: Annotations, monitor: ConvergenceMonitor) -> None:
        """Set the population's matrix, the trace of the fit and the label distributions."""
        self.crowd_confusion_ = self._crowd(labels, self.confusion_)
        self.trace_, self.stopped_ = np.array(monitor.trace), monitor.stopped
        limit = np.inf  # of no use for shares of a population
        if self.estimate == "truth":
            fitted = self.posterior_, self.confusion_, self.crowd_confusion_
            limit = evidence_limit(labels, *fitted, self.unseen)
        self.evidence_limit_ = np.asarray(limit)
        self._set_distributions(self.n_labels_)

    def _crowd(self, labels: Annotations, matrices: Array) -> Array:
        """Return (K, P): C_kp = Σ_n load_n π_nkp / Σ_n load_n."""
        weights = labels.annotator_load if self.weight_by == "labels" else np.ones(labels.n_annotators)
        return normalised(np.tensordot(weights, matrices, axes=1))

    def _set_distributions(self, n_labels: NDArray[np.int64]) -> None:
        """Set the label distributions, as ``estimate`` asks, for posteriors from ``n_labels`` (items,)."""
        if self.estimate == "truth":
            self.prior_distribution_, limit = self.psi_, float(self.evidence_limit_)
            self.label_distributions_ = calibrated(self.posterior_, n_labels, limit)
        else:
            w, psi, _, crowd = self._states()
            self.prior_distribution_, self.label_distributions_ = psi @ crowd, w @ crowd

    def _states(self) -> tuple[Array, Array, Array, Array]:
        """Return P(state) of items (M, K), its prior (K,), matrices (N, K, P) and the population's (K, P).

        A state is a true class; in EBCC, a subtype of one.
        """
        return self.posterior_, self.psi_, self.confusion_, self.crowd_confusion_

    def _set_states(self, w: Array, matrices: Array) -> None:
        """Set the items' posteriors and the annotators' matrices."""
        self.posterior_, self.confusion_ = w, matrices

    def _answer_distributions(self, item: Codes) -> Array:
        """Return Σ_k P(t_m = k) C_kp."""
        w, psi, _, crowd = self._states()
        return np.asarray(np.vstack([w, psi])[item] @ crowd)

    def _pair_distributions(self, item: Codes, annotator: Codes) -> Array:
        """Return Σ_k P(t_m = k) π_nkp."""
        w, psi, matrices, crowd = self._states()
        rows = np.concatenate([matrices, crowd[None]])[annotator]
        return np.asarray(np.einsum("ek,ekp->ep", np.vstack([w, psi])[item], rows))

    def cluster_view(self, annotator_load: NDArray[Any] | None = None) -> ClusterView:
        """Return the true classes as item clusters, and the population as the only annotator cluster."""
        self._check_fitted()
        single, crowd, load = np.ones(1), self.crowd_confusion_, np.ones(len(self.confusion_))
        if annotator_load is not None and self.weight_by == "labels":
            load = np.asarray(annotator_load, np.float64)
        classes = self.posterior_, None, crowd[:, None], self.psi_, single, single, crowd
        return ClusterView(*classes, True, matrices=self.confusion_, annotator_weights=normalised(load))

    def annotator_frame(self) -> dict[str, Any]:
        """Return columns about annotators: the probability of a correct answer on a random item."""
        # Σ_k ψ_k π_nkk
        return {"accuracy": np.einsum("k,nkk->n", self.psi_, self.confusion_)}

    @property
    def skills_(self) -> Any:
        """Probability of a correct answer of each annotator, keyed by annotator.

        It is not corrected for chance: guessing between two classes gives 0.5.
        """
        self._check_fitted()
        skills = self.annotator_frame()["accuracy"]
        return by_id({"annotator": self.annotators_}, skills, "skill", self.columns_, self.frame_kind_)

    @property
    def errors_(self) -> Any:
        """P(answer | true class), keyed by annotator and answer, with a column per true class."""
        self._check_fitted()
        N, P = len(self.annotators_), len(self.classes_)
        ids = {"annotator": np.repeat(self.annotators_, P), "label": np.tile(self.classes_, N)}
        by_answer = self.confusion_.transpose(0, 2, 1).reshape(N * P, P)
        columns = dict(zip(self.classes_.tolist(), by_answer.T, strict=True))
        return table_by_id(ids, columns, self.columns_, self.frame_kind_)

    def _apply(self, new: Annotations, fitted: Self, engine: Engine) -> None:
        """Alternate between new items and new annotators, who start from the population's matrix.

        Fitted annotators keep their matrices and fitted items their posteriors; labels between a fitted item
        and a fitted annotator are assumed to be those of the fit, and are not counted again.
        """
        rows, item, annotator = unfitted_rows(new, fitted)
        steps = ConfusionSteps(rows, engine)
        w, psi, matrices, population = fitted._states()
        prior = np.vstack([w, psi])[item]
        if self.unseen < 1.0:  # posteriors of fitted items are already damped
            damped = np.repeat(damping(new.counts, self.unseen), len(psi) // new.n_classes, axis=1)
            prior = np.where((item < 0)[:, None], prior * damped, prior)
        matrices = np.concatenate([matrices, population[None]])[annotator]
        for _ in range(APPLY_ITERATIONS):
            w = steps.posterior(safe_log(matrices), np.zeros_like(psi), log_with_zeros(prior))
            new_matrices = self._new_matrices(steps.expected_counts(w).counts, fitted)
            matrices = np.where((annotator < 0)[:, None, None], new_matrices, matrices)
        self._set_states(w, matrices)
        self._set_distributions(np.append(fitted.n_labels_, 0)[item] + np.diff(rows.item_pointers))

    def _new_matrices(self, counts: Array, fitted: Self) -> Array:
        """Return (annotators, K, P): matrices of new annotators, given their expected counts."""
        return normalised(NEW_ANNOTATOR_SMOOTHING * fitted.crowd_confusion_ + counts)
