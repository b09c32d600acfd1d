"""Skill, bias and confusion of each annotator, by a model of one true class, with intervals.

**Skill** measures how far an annotator's answers follow the truth as the *others* see it. Annotators are
split into folds, and each fold is compared with w'_mk = P(t_m = k) of a fit to the labels of the other folds.
Over an annotator's labels e, with Y_ek = [y_e = k] and means written with a bar,

    skill = Σ_e d_e / Σ_ek (w'_ek − w̄'_k)²,        d_e = Σ_k (w'_ek − w̄'_k) (Y_ek − Ȳ_k),              (1)

the slope of the answers on the truth: 0 for answers that do not depend on the item, 1 for an annotator who is
always right, and (P q − 1)/(P − 1) for one who is right with probability q and otherwise chooses another
class at random; an uncertain w' lowers precision, not skill. The interval is Student's, with the larger of
the variance of d and the variance under permutation of the answers over the items.

**Accuracy, bias and confusion** are counted under the model's P(true class) w, given all labels:

    n_kp = Σ_e w_ek Y_ep,     accuracy = Σ_k n_kk / E,     bias_k = Ȳ_k − w̄_k                          (2)

with Beta intervals (bias: Student's). An annotator who is seldom right can still be informative if answers
stand for other classes (two classes swapped, a scale reversed): reading each answer as the class it most
often stands for corrects that. The correction is learned on one half of the labels and evaluated on the
other.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import betaincinv, stdtrit

from dissensus.errors import ParameterError
from dissensus.labels import as_annotations
from dissensus.labels.annotations import Annotations
from dissensus.labels.display import make_frame
from dissensus.models.confusion import ConfusionModel
from dissensus.numerics import Array, Indices, Mask, normalised, ones
from dissensus.params import check_rules, real, with_settings

BETA_PRIOR = 0.5  # pseudo-counts of hits and misses
CROWD_PSEUDO_LABELS = 1.0  # weight of the crowd's matrix in each row of a confusion matrix


@dataclass(frozen=True, eq=False)
class AnnotatorSkills:
    """Skills by a model of one true class; arrays have one entry per annotator, in the annotations' order.

    Attributes
    ----------
    annotators
        Annotator ids.
    classes
        Class names.
    n_labels
        Labels of each annotator.
    accuracy
        (N, 3): probability of the right answer: value, low, high.
    skill
        (N, 3): 0 by chance, 1 always right, below 0 systematically wrong. Not the same as ``skills_`` of
        a fitted model, which is the probability of the right answer, chance included.
    bias
        (N, P, 3): share of an answer minus the share of the class.
    confusion
        (N, P, P, 3): P(answer | true class).
    corrected
        (N, 3): accuracy if each answer is read as the class it stands for.
    correction
        (N, P): that class, for every answer.
    interval
        Level of the intervals, such as 0.9.
    frame_kind
        Kind of data frame returned.
    """

    annotators: NDArray[Any]
    classes: NDArray[Any]
    n_labels: NDArray[np.int64]
    accuracy: Array
    skill: Array
    bias: Array
    confusion: Array
    corrected: Array
    correction: Indices
    interval: float
    frame_kind: str = "pandas"

    @property
    def systematic(self) -> Mask:
        """(N,): less accurate than the crowd, and significantly more accurate once corrected."""
        load = self.n_labels / max(self.n_labels.sum(), 1)
        below = self.accuracy[:, 2] < float(load @ self.accuracy[:, 0])
        return np.asarray(below & (self.corrected[:, 1] > self.accuracy[:, 2]))

    def to_frame(self) -> Any:
        """Return one row per annotator: labels, accuracy, skill, systematic error, correction."""
        columns = {"annotator": self.annotators, "n_labels": self.n_labels} | self.columns()
        return make_frame(columns, self.frame_kind)

    def columns(self) -> dict[str, Any]:
        """Return the columns of the frame that are about skill."""
        systematic, columns = self.systematic, dict[str, Any]()
        for name, table in (("accuracy", self.accuracy), ("skill", self.skill)):
            columns |= {name: table[:, 0], f"{name}_low": table[:, 1], f"{name}_high": table[:, 2]}
        columns |= {f"bias_{name}": self.bias[:, k, 0] for k, name in enumerate(self.classes)}
        columns["systematic"] = systematic
        # answers that stand for another class, as ``answer → class``
        changed = [[(p, k) for p, k in enumerate(row) if p != k] for row in self.correction]
        columns["correction"] = [
            ", ".join(f"{self.classes[p]} → {self.classes[k]}" for p, k in pairs) if wrong else ""
            for pairs, wrong in zip(changed, systematic, strict=True)
        ]
        return columns


def annotator_skills(
    labels: Any, model: Any, *, interval: float = 0.95, prior: Any = None, folds: int = 5, seed: int = 0
) -> AnnotatorSkills:
    """Estimate skill, bias and confusion of every annotator by a model of one true class.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    model
        A model of one true class, fitted to the same labels.
    interval
        Level of the intervals, such as 0.9.
    prior
        Prior that the model was fitted with (gold labels, for example).
    folds
        Number of further fits, each without one fold of the annotators.
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    """
    if not isinstance(model, ConfusionModel):
        name = type(model).__name__
        raise ParameterError(f"{name} has no confusion matrices; use a model such as DawidSkene")
    check_rules("annotator_skills", {"interval": real(0.0, 1.0, open_low=True)}, interval=interval)
    annotations = as_annotations(labels)
    sums = _counted(annotations, model.posterior_)
    E, right = np.maximum(sums.load, 1.0), np.einsum("nkk->n", sums.counts)
    corrected, correction = _corrected(sums.halves)
    rows = CROWD_PSEUDO_LABELS * model.crowd_confusion_ + sums.counts
    return AnnotatorSkills(
        annotations.annotators, annotations.classes, annotations.annotator_load,
        accuracy=beta_interval(right, E - right, interval, BETA_PRIOR),
        skill=_skill(_by_others(model, annotations, prior, folds, seed), interval),
        bias=_bias(sums, interval),
        confusion=beta_interval(rows, rows.sum(axis=-1, keepdims=True) - rows, interval, 0.0),
        corrected=beta_interval(corrected, E - corrected, interval, BETA_PRIOR),
        correction=correction, interval=interval, frame_kind=annotations.frame_kind,
    )  # fmt: skip


# ---- sums over the labels of each annotator ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Sums:
    load: Array  # (N,): E
    counts: Array  # (N, P, P): n (2)
    products: Array  # (N, P, P): Σ_e w_ek w_el
    spread: Array  # (N,): Σ_e d_e²
    halves: Array  # (2, N, P, P): n (2) of every other label

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))


def _counted(annotations: Annotations, w: Array) -> _Sums:
    """Return the sums over all labels, given P(true class) ``w`` of every item."""
    N, P = annotations.n_annotators, annotations.n_classes
    who, label, load = annotations.annotator, annotations.label, annotations.annotator_load
    counts, products, halves = np.zeros((N, P, P)), np.zeros((N, P, P)), np.zeros((2, N, P, P))
    for rows in annotations.chunks():
        n = who[rows]
        by = sparse.csr_array((ones(len(n)), (n, np.arange(len(n)))), shape=(N, len(n)))
        truth = w[annotations.item[rows]]
        answer, odd = np.eye(P)[label[rows]], (annotations.item[rows] % 2)[:, None]
        counts += _outer_sums(by, truth, answer)
        products += _outer_sums(by, truth, truth)
        halves += np.stack([_outer_sums(by, truth * (odd == half), answer) for half in (0, 1)])
    E = np.maximum(load, 1.0)[:, None]
    mean_truth, mean_answer, spread = counts.sum(axis=2) / E, counts.sum(axis=1) / E, np.zeros(N)
    for rows in annotations.chunks():
        n = who[rows]
        d = (w[annotations.item[rows]] - mean_truth[n]) * (np.eye(P)[label[rows]] - mean_answer[n])
        spread += np.bincount(n, d.sum(axis=1) ** 2, minlength=N)
    return _Sums(np.asarray(load, np.float64), counts, products, spread, halves)


def _by_others(model: ConfusionModel, annotations: Annotations, prior: Any, folds: int, seed: int) -> _Sums:
    """Return the sums for P(true class) by fits without the annotator, over items that others labelled."""
    N = annotations.n_annotators
    fold = np.random.default_rng(seed).permutation(N) % min(folds, N)
    parts = []
    for number in range(min(folds, N)):
        in_fold = fold[annotations.annotator] == number
        others = annotations.take_rows(~in_fold)
        if others.n_labels:
            fitted = with_settings(model, {"estimate": "truth"}).fit(others, prior=prior)
            is_shared = np.diff(others.item_pointers)[annotations.item] > 0
            parts.append(_counted(annotations.take_rows(in_fold & is_shared), fitted.posterior_))
    empty = annotations.take_rows(np.zeros(annotations.n_labels, bool))
    return sum(parts, _counted(empty, model.posterior_))


def _outer_sums(by: Any, left: Array, right: Array) -> Array:
    """Return (N, P, P): Σ_e left_ek right_ep over each annotator's labels."""
    P = left.shape[1]
    pairs = (left[:, :, None] * right[:, None, :]).reshape(len(left), P * P)
    return np.asarray(by @ pairs).reshape(by.shape[0], P, P)


# ---- estimates and intervals ---------------------------------------------------------------------------


def beta_interval(hits: Array, misses: Array, interval: float, prior: float) -> Array:
    """Return (…, 3): share of hits and its central Beta posterior interval."""
    a, b = hits + prior, np.maximum(misses, 0.0) + prior
    edge = (1 - interval) / 2
    total = np.maximum(hits + misses, 1e-12)
    low, high = (betaincinv(np.maximum(a, 1e-9), np.maximum(b, 1e-9), q) for q in (edge, 1 - edge))
    share = np.clip(hits / total, 0, 1)
    return np.stack([share, np.minimum(low, share), np.maximum(high, share)], axis=-1)


def _half_width(error: Array, E: Array, interval: float) -> Array:
    """Return the half-width of Student's interval; 2 for a single label."""
    t = stdtrit(np.maximum(E - 1, 1), 1 - (1 - interval) / 2)
    return np.asarray(np.where(E > 1, t * error, 2.0))


def _skill(sums: _Sums, interval: float) -> Array:
    """Return (N, 3): skill (1) and its interval."""
    E = np.maximum(sums.load, 1.0)
    w, y = sums.counts.sum(axis=2) / E[:, None], sums.counts.sum(axis=1) / E[:, None]
    gain = np.einsum("nkk->n", sums.counts) / E - (w * y).sum(axis=1)  # the mean of d
    observed = np.maximum(sums.spread / E - gain**2, 0.0) / np.maximum(E - 1, 1)
    # under permutation: Var(Σ_e d_e) = Σ_kl S^w_kl S^Y_kl / (E − 1), S sums of products about the mean
    about_w = sums.products - E[:, None, None] * w[:, :, None] * w[:, None, :]
    about_y = E[:, None, None] * (y[:, :, None] * np.eye(y.shape[1]) - y[:, :, None] * y[:, None, :])
    permuted = (about_w * about_y).sum(axis=(1, 2)) / np.maximum(E - 1, 1) / E**2
    half = _half_width(np.sqrt(np.maximum(observed, np.maximum(permuted, 0.0))), E, interval)
    spread = np.einsum("nkk->n", about_w) / E
    varies = spread > 1e-9  # otherwise the slope is undefined
    slope = np.where(varies, gain / np.where(varies, spread, 1.0), 0.0)
    width = np.where(varies, half / np.where(varies, spread, 1.0), 2.0)
    # a slope beyond −1 or 1 is due to chance
    return np.asarray(np.clip(np.stack([slope, slope - width, slope + width], axis=1), -1.0, 1.0))


def _bias(sums: _Sums, interval: float) -> Array:
    """Return (N, P, 3): bias (2) and its interval."""
    E = np.maximum(sums.load, 1.0)[:, None]
    answers = sums.counts.sum(axis=1)
    bias = (answers - sums.counts.sum(axis=2)) / E
    # Σ_e (Y − w')² = Σ Y − 2 Σ Y w' + Σ w'²
    squares = answers - 2 * np.einsum("nkk->nk", sums.counts) + np.einsum("nkk->nk", sums.products)
    error = np.sqrt(np.maximum(squares / E - bias**2, 0.0) / np.maximum(E - 1, 1))
    half = _half_width(error, E, interval)
    return np.stack([bias, bias - half, bias + half], axis=-1)


def _corrected(halves: Array) -> tuple[Array, Indices]:
    """Return (N,) labels that are right after the other half's correction, and (N, P) that of all labels."""
    # the true class that each answer most often stands for; the answer itself if it was never given
    counts = np.concatenate([halves, halves.sum(axis=0, keepdims=True)]).swapaxes(2, 3)
    meaning = np.asarray((normalised(counts) + 1e-9 * np.eye(counts.shape[-1])).argmax(axis=3))
    right = np.zeros(halves.shape[1])
    for train, test in ((0, 1), (1, 0)):
        right += np.take_along_axis(halves[test], meaning[train][:, None, :], axis=1)[:, 0].sum(axis=1)
    return right, meaning[2]
