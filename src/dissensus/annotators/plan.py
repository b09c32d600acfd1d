"""How many more labels, of which items, by whom; when to stop; and how to lay out the next study.

The draws of a fitted :class:`~dissensus.HPGM` are possible answers of the population. With Y_m one of them,
Ȳ_m their mean, the estimate's expected distance from the truth is what one more label would tell about Y_m:

    loss_m = E KL(Y_m ‖ Ȳ_m) = H(Ȳ_m) − E H(Y_m).

A label p of somebody in the population makes draws with much Y_mp likelier: weights ∝ Y_mp. The same formula
over the weighted draws gives the loss afterwards, and the mean over p ~ Ȳ_m what to expect:

    gain_m = loss_m − Σ_p Ȳ_mp loss_m(p).

More labels ahead the loss falls as that of a Dirichlet would, loss · n / (n + j) after j labels, with n such
that it is right for the first. Labels are given out where the next one gains most.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.annotators.judge_detection import are_models
from dissensus.annotators.verdicts import ERROR, SPAM, AnnotatorVerdicts, judged, posterior
from dissensus.errors import bad_parameter
from dissensus.labels.agreement import agreement
from dissensus.labels.annotations import Annotations
from dissensus.labels.display import Shown
from dissensus.labels.sources import as_annotations
from dissensus.models.base import Model
from dissensus.models.hpgm.model import HPGM
from dissensus.numerics import Array
from dissensus.params import NONE, check_rules, integer, real

__all__ = ["LabelPlan", "plan_labels"]

INTERVAL = 0.9
DONE = 0.9  # share of the items that must have reached the target for the labelling to stop
PIECE = 1 << 21  # numbers of draws worked on at a time
FAR = 1e9
_WIDTH = real(0.0, 1.0, open_low=True) | NONE
_RULES = {"budget": integer(1) | NONE, "target_interval": _WIDTH, "target_alpha_width": _WIDTH}


# ---- what one more label is worth ---------------------------------------------------------------------


def expected_loss(shares: NDArray[Any], weight: Array | None = None) -> Array:
    """(M,): H(Ȳ) − E H(Y) over draws (D, M, P), which may have weights (D, M) in sum 1 over D."""
    if weight is None:
        return np.asarray(entropies(shares.mean(axis=0)) - entropies(shares).mean(axis=0))
    mean = np.einsum("dm,dmp->mp", weight, shares)
    return np.asarray(entropies(mean) - (weight * entropies(shares)).sum(axis=0))


def entropies(shares: NDArray[Any]) -> Array:
    """−Σ_p Y log Y along the last axis."""
    return np.asarray(-(shares * np.log(np.maximum(shares, 1e-12))).sum(axis=-1))


def losses(shares: NDArray[Any]) -> tuple[Array, Array]:
    """(M,) each: the expected loss now, and after one more label of somebody in the population."""
    D, M, P = shares.shape
    size = max(1, PIECE // (D * P))
    now, after = np.zeros(M), np.zeros(M)
    for m in range(0, M, size):
        some = shares[:, m : m + size].astype(np.float64)
        loss, later = expected_loss(some), np.zeros(some.shape[1])
        for p in range(P):
            chance = some[:, :, p].mean(axis=0)
            weight = some[:, :, p] / np.maximum(some[:, :, p].sum(axis=0), 1e-12)
            later += chance * expected_loss(some, weight)
        now[m : m + size], after[m : m + size] = np.maximum(loss, 0.0), np.clip(later, 0.0, loss)
    return now, after


def worth_of_losses(now: Array, after: Array) -> Array:
    """(M,): n with now · n / (n + 1) = after."""
    return np.asarray(np.where(now > after, after / np.maximum(now - after, 1e-12), FAR))


def allocated(
    now: Array, worth: Array, budget: int, most: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """(M,): how many of ``budget`` labels each item gets, ``most`` at most, so that the loss falls most.

    The j-th gains now · n / ((n + j)(n + j + 1)), j from 0: less every time, so giving each label where it
    gains most is best, and all labels that gain at least some λ are given.
    """

    def wanted(gain: float) -> NDArray[np.int64]:
        # (n + j)(n + j + 1) ≤ now · n / λ  ⇔  j ≤ √(¼ + now · n / λ) − ½ − n
        return np.floor(np.sqrt(0.25 + now * worth / gain) - 0.5 - worth + 1).clip(0, limit).astype(np.int64)

    limit = np.full(len(now), budget) if most is None else most
    budget = min(budget, int(limit.sum()))
    low, high = 1e-15, max(float((now / (worth + 1)).max()), 1e-14)
    for _ in range(80):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if wanted(middle).sum() > budget else (low, middle)
    given = wanted(high)
    while (rest := budget - int(given.sum())) > 0:
        gains = np.where(given < limit, now * worth / ((worth + given) * (worth + given + 1)), -1.0)
        best = np.argsort(-gains, kind="stable")[:rest]
        given[best[gains[best] >= 0]] += 1
    return given


def may_be_asked(annotations: Annotations, found: AnnotatorVerdicts | None) -> NDArray[np.bool_]:
    """(N,): people, no language models, of whom no verdict says that they spam or err systematically."""
    people = ~are_models(annotations)
    return people if found is None else people & (found.verdict != SPAM) & (found.verdict != ERROR)


def people_left(annotations: Annotations, people: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(M,): of these people, those who have not labelled the item; no end of them among counts."""
    if annotations.anonymous:
        return np.full(annotations.n_items, np.iinfo(np.int32).max, dtype=np.int64)
    pairs = np.unique(annotations.pair, return_index=True)[1]
    by_people = people[annotations.annotator[pairs]]
    taken = np.bincount(annotations.item[pairs], by_people, minlength=annotations.n_items)
    return np.asarray(people.sum() - taken, dtype=np.int64)


# ---- a plan -------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class LabelPlan(Shown):
    """Which items to label further; one entry for each item in every array, in the model's order.

    Attributes
    ----------
    item
        Item ids.
    n_labels
        Labels that each item has.
    n_more
        Labels to ask for.
    gain
        Nats by which the next label is expected to lower the loss.
    loss
        Expected KL of the estimate from the population's answer, now.
    loss_after
        The same after the labels asked for.
    width
        Width of the interval of the most probable class's share, now.
    width_after
        The same after the labels asked for.
    ask
        Annotators to ask, the most informative first; no language models, and none who spam or err
        systematically.
    target
        Width of the intervals asked for.
    uniform_loss
        Mean expected loss if the labels went to all items alike.
    alpha
        Krippendorff's α and its interval.
    items_for_alpha
        Items of this kind that a narrow enough interval of α takes.
    n_by_all
        Items that everybody in ``ask`` has labelled already, so that further labels take new people.
    frame_kind
        The kind of data frame that results come in.
    """

    item: NDArray[Any]
    n_labels: NDArray[np.int64]
    n_more: NDArray[np.int64]  # labels to ask for
    gain: Array  # nats by which the next label is expected to lower the loss
    loss: Array  # expected KL of the estimate from the population's answer, now
    loss_after: Array  # … and after the labels asked for
    width: Array  # of the interval of the most probable class's share, now
    width_after: Array
    ask: NDArray[Any]  # annotators to ask, the most informative first; no spam, no systematic errors
    target: float | None  # width of the intervals asked for
    uniform_loss: float  # mean expected loss if the labels went to all items alike
    alpha: tuple[float, float, float]  # Krippendorff's α and its interval
    items_for_alpha: int | None  # items of this kind that a narrow enough interval of α takes
    n_by_all: int = 0  # items that everybody in ``ask`` has labelled already
    frame_kind: str = "pandas"

    @property
    def budget(self) -> int:
        """All labels asked for."""
        return int(self.n_more.sum())

    @property
    def stop(self) -> bool:
        """Whether enough items have intervals as narrow as asked for."""
        return self.target is not None and bool((self.width <= self.target).mean() >= DONE)

    def columns(self) -> dict[str, Any]:
        """The arrays by name."""
        return dict(list(vars(self).items())[:8])

    def _head(self, n: int | None) -> dict[str, Any]:
        """Items to be asked about come first."""
        order = np.lexsort((-self.gain, -self.n_more))[:n]
        return {name: values[order] for name, values in self.columns().items()}

    def to_dict(self) -> dict[str, Any]:
        """Everything but the items, as plain values."""
        return {
            "budget": self.budget,
            "stop": self.stop,
            "target_interval": self.target,
            "loss": float(self.loss.mean()),
            "loss_after": float(self.loss_after.mean()),
            "uniform_loss": self.uniform_loss,
            "width": float(self.width.mean()),
            "width_after": float(self.width_after.mean()),
            "alpha": self.alpha[0],
            "alpha_interval": list(self.alpha[1:]),
            "items_for_alpha": self.items_for_alpha,
            "n_by_all": self.n_by_all,
            "ask": [str(name) for name in self.ask],
        }

    def __repr__(self) -> str:
        n, of = (self.n_more > 0).sum(), len(self.item)
        return f"LabelPlan({self.budget:,} labels for {n:,} of {of:,} items)"


def plan_labels(
    labels: Any,
    model: Model | None = None,
    *,
    budget: int | None = None,
    target_interval: float | None = None,
    target_alpha_width: float | None = None,
    interval: float = INTERVAL,
) -> LabelPlan:
    """Which items need further labels, how many, and by whom.

    ``budget`` labels are given out where they gain most. With ``target_interval`` instead, each item gets
    what makes the credible interval (of size ``interval``) of its first class so narrow. With both, the
    budget goes to items that have not reached the target. ``target_alpha_width`` asks how many items it takes
    for an interval of Krippendorff's α that wide.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads. The column ``kind`` of
        their annotator table says who is a language model (these are not asked); without it, names tell.
    model
        An :class:`~dissensus.HPGM` fitted to these labels; None fits one.
    budget
        Labels to give out. No item gets more than there are people in ``ask`` who have not labelled it.
    target_interval
        How narrow the credible interval of an item's first class should become.
    target_alpha_width
        How narrow the interval of Krippendorff's α should become.
    interval
        Size of the credible intervals, such as 0.9.
    """
    targets = {"target_interval": target_interval, "target_alpha_width": target_alpha_width}
    if budget is target_interval is target_alpha_width is None:
        raise bad_parameter("plan_labels", "budget", "given, or target_interval or target_alpha_width", None)
    check_rules("plan_labels", _RULES, budget=budget, **targets)
    annotations = as_annotations(labels)
    drawn = HPGM().fit(annotations) if model is None else posterior(model, "plans")
    drawn.check_labels(annotations)
    now, after = losses(drawn.share_draws_)
    known = drawn.intervals(interval)
    best = drawn.label_distributions_.argmax(axis=1)[:, None]
    width = np.take_along_axis(known.high - known.low, best, axis=1)[:, 0]
    worth = worth_of_losses(now, after)
    # the variance of a Dirichlet worth v labels is as 1 / (v + 1): width · √((v + 1) / (v + 1 + j)) = target
    goal = 1.0 if target_interval is None else target_interval
    missing = np.ceil((known.worth + 1) * np.maximum((width / goal) ** 2 - 1, 0)).astype(np.int64)
    found = judged(drawn, None)
    people = may_be_asked(annotations, found)
    left = people_left(annotations, people)
    more = np.minimum(missing, left)
    if budget is not None:
        wanting = (missing > 0) | (target_interval is None)
        more = allocated(np.where(wanting, now, 0.0), worth, budget, np.where(wanting, left, 0))
    alpha = agreement(annotations, interval)
    wide = alpha[2] - alpha[1]
    return LabelPlan(
        item=drawn.items_,
        n_labels=drawn.n_labels_,
        n_more=more,
        gain=now - after,
        loss=now,
        loss_after=now * worth / (worth + more),
        width=width,
        width_after=width * np.sqrt((known.worth + 1) / (known.worth + 1 + more)),
        ask=_whom(found, people),
        target=target_interval,
        uniform_loss=float((now * worth / (worth + more.mean())).mean()),
        alpha=alpha,
        items_for_alpha=None
        if target_alpha_width is None or not np.isfinite(wide)
        # the interval narrows as 1 / √items
        else int(np.ceil(len(now) * (wide / target_alpha_width) ** 2)),
        n_by_all=int((left == 0).sum()),
        frame_kind=drawn.frame_kind_,
    )


def _whom(found: AnnotatorVerdicts, people: NDArray[np.bool_]) -> NDArray[Any]:
    """People whose labels help, the most informative first; equal views take turns."""
    order = np.argsort(-found.information, kind="stable")
    order = order[people[order]]
    if found.n_equal > 1:
        view = found.view[order]
        turn = np.array([(view[:place] == one).sum() for place, one in enumerate(view)])
        order = order[np.argsort(turn, kind="stable")]
    return np.asarray(found.annotator[order])
