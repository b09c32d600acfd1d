"""How right each annotator is, by a model of one true class: skill, bias and confusion, with intervals.

**Skill** asks whether an annotator's answers follow the truth as the *others* see it. Annotators are cut into
folds, and each fold is held against w'_mk = P(t_m = k) of a fit that saw the labels of the other folds alone.
Over an annotator's labels e, with Y_ek = [y_e = k] and means written with a bar,

    skill = Σ_e d_e / Σ_ek (w'_ek − w̄'_k)²,        d_e = Σ_k (w'_ek − w̄'_k) (Y_ek − Ȳ_k),              (1)

the slope of the answers on the truth: 0 for who answers whatever the item is, 1 for who is always right, and
(P q − 1)/(P − 1) for who is right with chance q and else says any other class; an unsure w' lowers
precision, not skill. The interval is Student's, with the larger of the spread of d and of what shuffling the
answers over the items would give.

**Accuracy, bias and confusion** are counted under the model's own P(true class) w, all labels heard:

    n_kp = Σ_e w_ek Y_ep,     accuracy = Σ_k n_kk / E,     bias_k = Ȳ_k − w̄_k                          (2)

with Beta intervals (bias: Student's). Who is seldom right can still be informative: where answers stand for
other classes than they name (two classes swapped, a scale upside down), reading each answer as the class it
most often stands for mends it. That correction is learned on one half of the labels and judged on the other.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import betaincinv, stdtrit

from dissensus.errors import ParameterError
from dissensus.labels.annotations import Annotations
from dissensus.labels.display import make_frame
from dissensus.labels.sources import as_annotations
from dissensus.models.confusion import ConfusionModel
from dissensus.numerics import Array, normalised, ones
from dissensus.params import check_rules, real, with_settings

PRIOR = 0.5  # pseudo-labels on both sides of a Beta interval
FOLDS = 5
CROWD = 1.0  # labels' worth of the crowd's matrix in each row of a confusion matrix


@dataclass(frozen=True, eq=False)
class AnnotatorSkills:
    """What a model of one true class knows of each annotator, in the annotations' order.

    Attributes
    ----------
    annotators
        Annotator ids.
    classes
        Class names.
    n_labels
        Labels of each annotator.
    accuracy
        (N, 3): chance of the right answer: value, low, high.
    skill
        (N, 3): 0 by chance, 1 always right, below 0 systematically wrong. It is not ``skills_`` of a fitted
        model, which is the chance of the right answer, with luck counted in.
    bias
        (N, P, 3): how much more often an answer is given than the class occurs.
    confusion
        (N, P, P, 3): P(answer | true class).
    corrected
        (N, 3): accuracy with each answer read as the class it stands for.
    correction
        (N, P): that class, for every answer.
    interval
        Size of the intervals, such as 0.9.
    frame_kind
        The kind of data frame that results come in.
    """

    annotators: NDArray[Any]
    classes: NDArray[Any]
    n_labels: NDArray[np.int64]
    accuracy: Array  # (N, 3): value, low, high
    skill: Array  # (N, 3): 0 by chance, 1 always right, below 0 systematically wrong
    bias: Array  # (N, P, 3): how much more often it gives an answer than the class occurs
    confusion: Array  # (N, P, P, 3): P(answer | true class)
    corrected: Array  # (N, 3): accuracy with each answer read as the class it stands for
    correction: NDArray[np.intp]  # (N, P): that class, for every answer
    interval: float
    frame_kind: str = "pandas"

    @property
    def systematic(self) -> NDArray[np.bool_]:
        """(N,): right less often than the crowd, and surely more often once corrected."""
        load = self.n_labels / max(self.n_labels.sum(), 1)
        below = self.accuracy[:, 2] < float(load @ self.accuracy[:, 0])
        return np.asarray(below & (self.corrected[:, 1] > self.accuracy[:, 2]))

    def to_frame(self) -> Any:
        """One row for each annotator: labels, accuracy, skill, systematic error, correction."""
        columns = {"annotator": self.annotators, "n_labels": self.n_labels} | self.columns()
        return make_frame(columns, self.frame_kind)

    def columns(self) -> dict[str, Any]:
        """The columns of the frame that are about skill."""
        found, columns = self.systematic, dict[str, Any]()
        for name, table in (("accuracy", self.accuracy), ("skill", self.skill)):
            columns |= {name: table[:, 0], f"{name}_low": table[:, 1], f"{name}_high": table[:, 2]}
        columns |= {f"bias_{name}": self.bias[:, k, 0] for k, name in enumerate(self.classes)}
        columns["systematic"] = found
        # answers that stand for another class, as ``said → meant``
        changed = [[(p, k) for p, k in enumerate(row) if p != k] for row in self.correction]
        columns["correction"] = [
            ", ".join(f"{self.classes[p]} → {self.classes[k]}" for p, k in pairs) if wrong else ""
            for pairs, wrong in zip(changed, found, strict=True)
        ]
        return columns


def annotator_skills(
    labels: Any, model: Any, *, interval: float = 0.95, prior: Any = None, folds: int = FOLDS, seed: int = 0
) -> AnnotatorSkills:
    """Skill, bias and confusion of every annotator, by a model of one true class fitted to the same labels.

    ``prior`` is what the model was fitted with (gold labels, say); ``folds`` more fits are made.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    model
        A model of one true class, fitted to the same labels.
    interval
        Size of the intervals, such as 0.9.
    prior
        What the model was fitted with (gold labels, for example).
    folds
        How many more fits are made, each without a part of the items.
    seed
        Seed of the random numbers. The same seed gives the same result, to the last bit.
    """
    if not isinstance(model, ConfusionModel):
        raise ParameterError(f"{type(model).__name__} has no confusion matrices; take one of one true class")
    check_rules("annotator_skills", {"interval": real(0.0, 1.0, open_low=True)}, interval=interval)
    annotations = as_annotations(labels)
    told = _counted(annotations, model.posterior_)
    E, right = np.maximum(told.load, 1.0), np.einsum("nkk->n", told.counts)
    corrected, correction = _corrected(told.halves)
    rows = CROWD * model.crowd_confusion_ + told.counts
    return AnnotatorSkills(
        annotations.annotators,
        annotations.classes,
        annotations.annotator_load,
        beta_interval(right, E - right, interval, PRIOR),
        _skill(_by_others(model, annotations, prior, folds, seed), interval),
        _bias(told, interval),
        beta_interval(rows, rows.sum(axis=-1, keepdims=True) - rows, interval, 0.0),
        beta_interval(corrected, E - corrected, interval, PRIOR),
        correction,
        interval,
        annotations.frame_kind,
    )


# ---- sums over the labels of each annotator ------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Sums:
    load: Array  # (N,): E
    counts: Array  # (N, P, P): n (2)
    products: Array  # (N, P, P): Σ_e w_ek w_el
    spread: Array  # (N,): Σ_e d_e²
    halves: Array  # (2, N, P, P): n (2) of every other label

    def __add__(self, other: _Sums) -> _Sums:
        return _Sums(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


def _counted(annotations: Annotations, w: Array) -> _Sums:
    """The sums over all labels, for P(true class) of every item."""
    N, P = annotations.n_annotators, annotations.n_classes
    who, label, load = annotations.annotator, annotations.label, annotations.annotator_load
    counts, products, halves = np.zeros((N, P, P)), np.zeros((N, P, P)), np.zeros((2, N, P, P))
    for rows in annotations.pieces():
        n = who[rows]
        by = sparse.csr_array((ones(len(n)), (n, np.arange(len(n)))), shape=(N, len(n)))
        own = w[annotations.item[rows]]
        said, odd = np.eye(P)[label[rows]], (annotations.item[rows] % 2)[:, None]
        counts += _outer_sums(by, own, said)
        products += _outer_sums(by, own, own)
        halves += np.stack([_outer_sums(by, own * (odd == half), said) for half in (0, 1)])
    E = np.maximum(load, 1.0)[:, None]
    truth, answers, spread = counts.sum(axis=2) / E, counts.sum(axis=1) / E, np.zeros(N)
    for rows in annotations.pieces():
        n = who[rows]
        d = (w[annotations.item[rows]] - truth[n]) * (np.eye(P)[label[rows]] - answers[n])
        spread += np.bincount(n, d.sum(axis=1) ** 2, minlength=N)
    return _Sums(np.asarray(load, np.float64), counts, products, spread, halves)


def _by_others(model: ConfusionModel, annotations: Annotations, prior: Any, folds: int, seed: int) -> _Sums:
    """The sums for P(true class) by fits without the annotator; items that nobody else labelled left out."""
    N = annotations.n_annotators
    fold = np.random.default_rng(seed).permutation(N) % min(folds, N)
    parts = []
    for number in range(min(folds, N)):
        mine = fold[annotations.annotator] == number
        others = annotations.take_rows(~mine)
        if others.n_labels:
            fitted = with_settings(model, {"estimate": "truth"}).fit(others, prior=prior)
            heard = np.diff(others.item_pointers)[annotations.item] > 0
            parts.append(_counted(annotations.take_rows(mine & heard), fitted.posterior_))
    none = annotations.take_rows(np.zeros(annotations.n_labels, bool))
    return sum(parts, _counted(none, model.posterior_))


def _outer_sums(by: Any, left: Array, right: Array) -> Array:
    """(N, P, P): Σ_e left_ek right_ep over each annotator's labels."""
    P = left.shape[1]
    pairs = (left[:, :, None] * right[:, None, :]).reshape(len(left), P * P)
    return np.asarray(by @ pairs).reshape(by.shape[0], P, P)


# ---- what is made of them ------------------------------------------------------------------------------


def beta_interval(hits: Array, misses: Array, interval: float, prior: float) -> Array:
    """(…, 3): share of hits, and the middle of its Beta posterior."""
    a, b = hits + prior, np.maximum(misses, 0.0) + prior
    edge = (1 - interval) / 2
    total = np.maximum(hits + misses, 1e-12)
    low, high = (betaincinv(np.maximum(a, 1e-9), np.maximum(b, 1e-9), q) for q in (edge, 1 - edge))
    share = np.clip(hits / total, 0, 1)
    return np.stack([share, np.minimum(low, share), np.maximum(high, share)], axis=-1)


def _half_width(error: Array, E: Array, interval: float) -> Array:
    """Student's; of a single label nothing is known."""
    t = stdtrit(np.maximum(E - 1, 1), 1 - (1 - interval) / 2)
    return np.asarray(np.where(E > 1, t * error, 2.0))


def _skill(sums: _Sums, interval: float) -> Array:
    """(N, 3): skill (1) and its interval."""
    E = np.maximum(sums.load, 1.0)
    w, y = sums.counts.sum(axis=2) / E[:, None], sums.counts.sum(axis=1) / E[:, None]
    gain = np.einsum("nkk->n", sums.counts) / E - (w * y).sum(axis=1)  # the mean of d
    own = np.maximum(sums.spread / E - gain**2, 0.0) / np.maximum(E - 1, 1)
    # shuffled: Var(Σ_e d_e) = Σ_kl S^w_kl S^Y_kl / (E − 1), S being sums of products about the mean
    about_w = sums.products - E[:, None, None] * w[:, :, None] * w[:, None, :]
    about_y = E[:, None, None] * (y[:, :, None] * np.eye(y.shape[1]) - y[:, :, None] * y[:, None, :])
    shuffled = (about_w * about_y).sum(axis=(1, 2)) / np.maximum(E - 1, 1) / E**2
    half = _half_width(np.sqrt(np.maximum(own, np.maximum(shuffled, 0.0))), E, interval)
    spread = np.einsum("nkk->n", about_w) / E
    known = spread > 1e-9  # else the truth, or the annotator, never varies
    slope = np.where(known, gain / np.where(known, spread, 1.0), 0.0)
    width = np.where(known, half / np.where(known, spread, 1.0), 2.0)
    # by chance a slope may lie beyond what an annotator can be
    return np.asarray(np.clip(np.stack([slope, slope - width, slope + width], axis=1), -1.0, 1.0))


def _bias(sums: _Sums, interval: float) -> Array:
    """(N, P, 3): bias (2) and its interval."""
    E = np.maximum(sums.load, 1.0)[:, None]
    answers = sums.counts.sum(axis=1)
    bias = (answers - sums.counts.sum(axis=2)) / E
    # Σ_e (Y − w')² = Σ Y − 2 Σ Y w' + Σ w'²
    squares = answers - 2 * np.einsum("nkk->nk", sums.counts) + np.einsum("nkk->nk", sums.products)
    error = np.sqrt(np.maximum(squares / E - bias**2, 0.0) / np.maximum(E - 1, 1))
    half = _half_width(error, E, interval)
    return np.stack([bias, bias - half, bias + half], axis=-1)


def _corrected(halves: Array) -> tuple[Array, NDArray[np.intp]]:
    """(N,): labels that are right once read by the other half's correction; (N, P): that of all labels."""
    # the true class that each answer most often stands for; itself where it was never given
    counts = np.concatenate([halves, halves.sum(axis=0, keepdims=True)]).swapaxes(2, 3)
    meant = np.asarray((normalised(counts) + 1e-9 * np.eye(counts.shape[-1])).argmax(axis=3))
    right = np.zeros(halves.shape[1])
    for learn, judge in ((0, 1), (1, 0)):
        right += np.take_along_axis(halves[judge], meant[learn][:, None, :], axis=1)[:, 0].sum(axis=1)
    return right, meant[2]
