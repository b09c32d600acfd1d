"""Items and annotators that need attention: what to adjudicate, label or check next, and how many labels.

Items that are nearly tied after several labels go to an adjudicator (:func:`label_queue`); items whose label
is uncertain, or that have none, get further labels, starting where one more label helps most.

Within a budget, labels go where they gain most. The draws of a fitted :class:`~dissensus.HPGM` are possible
answer distributions of the population. With Y_m a draw and Ȳ_m the mean, the expected distance of the
estimate from the truth is

    loss_m = E KL(Y_m ‖ Ȳ_m) = H(Ȳ_m) − E H(Y_m).

A further label p of a random annotator gives the draws weights ∝ Y_mp. The same formula over the weighted
draws gives the loss afterwards, and its mean over p ~ Ȳ_m the expected gain:

    gain_m = loss_m − Σ_p Ȳ_mp loss_m(p).

For several labels, the loss falls like that of a Dirichlet, loss · n / (n + j) after j labels, where n is
such that the formula is exact for the first label.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.annotators.groups import Groups
from dissensus.annotators.judge_detection import are_models
from dissensus.annotators.sentences import Sentence, check_sentence, close_items, count, quoted
from dissensus.annotators.verdicts import (
    DIFFERS,
    ERROR,
    SPAM,
    AnnotatorVerdicts,
    compute_verdicts,
    require_draws,
    searched_groups,
)
from dissensus.errors import bad_parameter
from dissensus.evaluate.group_agreement import AnnotatorAgreement, Votes, annotator_agreement, most_frequent
from dissensus.labels import as_annotations
from dissensus.labels.annotations import Annotations
from dissensus.labels.coefficients import agreement
from dissensus.labels.display import TableResult
from dissensus.labels.kinds import parse_set
from dissensus.models import build_model
from dissensus.models.base import Model
from dissensus.models.hpgm.model import HPGM
from dissensus.models.results import Intervals
from dissensus.numerics import Array, Indices, Mask, batches, row_shares
from dissensus.params import NONE, check_rules, integer, real

CLEAR_SHARE = 2 / 3  # share of the answers that makes an item clear
WIDE_RATIO = 1.25  # of the median width of a rating's interval; wider ones call for another rating
MIN_TOP_PROBABILITY = 0.9  # below this probability of the label, another label helps
MAX_TIED_PROBABILITY = 0.75  # of the label; above it, the model is not unsure of a tie
STOP_SHARE = 0.9  # share of the items that must reach the target interval
DRAWS_PER_CHUNK = 1 << 21  # entries of the draws processed at a time
UNLIMITED_LABELS = 1e9
_WIDTH = real(0.0, 1.0, open_low=True) | NONE
PLAN_RULES = {"target_interval": _WIDTH, "target_alpha_width": _WIDTH}
QUEUE_RULES = {"budget": integer(1) | NONE, "each": integer(1) | NONE}


# ---- findings -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Findings:
    """Items and annotators that need attention."""

    model: Model
    annotations: Annotations
    intervals: Intervals | None
    verdicts: AnnotatorVerdicts | None = None
    votes: Votes | None = None
    agreement: AnnotatorAgreement | None = None
    groups: Groups | None = None

    @cached_property
    def raw(self) -> Array:
        """(items, classes): shares of the labels."""
        return row_shares(self.annotations.counts)

    @cached_property
    def label(self) -> Indices:
        """(items,): the model's label."""
        return np.asarray(self.model.label_distributions_.argmax(axis=1))

    @cached_property
    def clear(self) -> tuple[Mask, Mask]:
        """(items,) each: at least two thirds share one answer, in the labels and by the model."""
        modelled = self.model.label_distributions_.max(axis=1)
        return self.raw.max(axis=1) >= CLEAR_SHARE - 1e-9, modelled >= CLEAR_SHARE - 1e-9

    @cached_property
    def tied(self) -> Mask:
        """(items,): nearly tied, and the model is unsure."""
        close = close_items(self.annotations.counts)
        return close if self.intervals is None else close & (self.intervals.p_top < MAX_TIED_PROBABILITY)

    @cached_property
    def adjudicate(self) -> Mask:
        """(items,): nearly tied, and not decided by a gold label."""
        gold = self.annotations.gold
        return self.tied if gold is None else np.asarray(self.tied & (gold < 0))

    @cached_property
    def more(self) -> Mask:
        """(items,): another label would help; without intervals, items with far fewer labels than usual."""
        n = self.annotations.counts.sum(axis=1)
        if self.intervals is None:
            return np.asarray(n < max(2.0, float(np.median(n)) / 2))
        return np.asarray((self.intervals.p_top < MIN_TOP_PROBABILITY) & ~self.tied)

    @cached_property
    def overturned(self) -> Mask:
        """(items,): the single most frequent label is not the model's label."""
        most = most_frequent(self.annotations.counts)
        return np.asarray((most >= 0) & (most != self.label))

    @cached_property
    def wrong(self) -> Mask:
        """(items,): the model's label is not the gold label."""
        gold = self.annotations.gold
        if gold is None:
            return np.zeros(self.annotations.n_items, dtype=bool)
        return np.asarray((gold >= 0) & (gold != self.label) & (self.annotations.counts.sum(axis=1) > 0))

    @cached_property
    def flags(self) -> NDArray[np.int64]:
        """(items,): one bit per set of items, in the order of ``FLAGS`` in assets/items.js."""
        sets = (*self.clear, self.adjudicate, self.more, self.overturned, self.wrong)
        return np.asarray(np.sum([items.astype(np.int64) << bit for bit, items in enumerate(sets)], axis=0))

    @cached_property
    def check(self) -> Mask:
        """(annotators,): those to look at first."""
        if self.verdicts is not None:
            return self.verdicts.check
        if self.agreement is None:
            return np.zeros(self.annotations.n_annotators, dtype=bool)
        return self.agreement.differs

    def check_sentence(self, names: list[str]) -> Sentence | None:
        """Return whom to talk to first, and why; None if there is no reason."""
        if self.verdicts is not None:
            return self.verdicts.check_sentence(names)
        if self.agreement is None:
            return None
        load = self.annotations.annotator_load
        codes = self.agreement.most_disagreements(np.flatnonzero(self.check), load)
        return check_sentence(codes, names, load, self.agreement, [""] * len(names))

    def narrowing(self) -> tuple[Array, Array] | None:
        """Return (items,) each: width of the interval of the label's share now, and after one more label."""
        if self.intervals is None:
            return None
        widths = self.intervals.high - self.intervals.low
        width = np.take_along_axis(widths, self.label[:, None], axis=1)[:, 0]
        # the variance of a Dirichlet worth v labels is proportional to 1 / (v + 1)
        v = self.intervals.effective_labels
        return width, width * np.sqrt((v + 1) / (v + 2))


def collect_findings(
    model: Model, annotations: Annotations, verdicts: AnnotatorVerdicts | None = None
) -> Findings:
    """Return items and annotators that need attention; None: verdicts are computed if the model has draws."""
    intervals = model.intervals()
    if annotations.anonymous:
        return Findings(model, annotations, intervals)
    if verdicts is None and isinstance(model, HPGM):
        verdicts = compute_verdicts(model, annotations)
    votes = Votes.of(annotations)
    agreed, no_one = annotator_agreement(votes), np.zeros(annotations.n_annotators, dtype=bool)
    is_scale = annotations.label_type == "ordinal"
    groups = searched_groups(votes, agreed, no_one, is_scale) if verdicts is None else verdicts.groups
    return Findings(model, annotations, intervals, verdicts, votes, agreed, groups)


# ---- gain of a label ----------------------------------------------------------------------------------


def expected_loss(shares: NDArray[Any], weight: Array | None = None) -> Array:
    """Return (M,): H(Ȳ) − E H(Y) over draws (D, M, P), with weights (D, M) that sum to 1 over D."""
    if weight is None:
        return np.asarray(entropies(shares.mean(axis=0)) - entropies(shares).mean(axis=0))
    mean = np.einsum("dm,dmp->mp", weight, shares)
    return np.asarray(entropies(mean) - (weight * entropies(shares)).sum(axis=0))


def entropies(shares: NDArray[Any]) -> Array:
    """Return −Σ_p Y log Y along the last axis."""
    return np.asarray(-(shares * np.log(np.maximum(shares, 1e-12))).sum(axis=-1))


def losses(shares: NDArray[Any]) -> tuple[Array, Array]:
    """Return (M,) each: the expected loss now, and after one more label of a random annotator."""
    D, M, P = shares.shape
    now, after = np.zeros(M), np.zeros(M)
    for items in batches(M, max(1, DRAWS_PER_CHUNK // (D * P))):
        chunk = shares[:, items].astype(np.float64)
        loss, later = expected_loss(chunk), np.zeros(chunk.shape[1])
        for p in range(P):
            chance = chunk[:, :, p].mean(axis=0)
            weight = chunk[:, :, p] / np.maximum(chunk[:, :, p].sum(axis=0), 1e-12)
            later += chance * expected_loss(chunk, weight)
        now[items], after[items] = np.maximum(loss, 0.0), np.clip(later, 0.0, loss)
    return now, after


def equivalent_labels(now: Array, after: Array) -> Array:
    """Return (M,): n with now · n / (n + 1) = after."""
    return np.asarray(np.where(now > after, after / np.maximum(now - after, 1e-12), UNLIMITED_LABELS))


def allocate(now: Array, n: Array, budget: int, limit: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (M,): labels for each item, ``budget`` in all and at most ``limit`` each, minimising the loss.

    Label j (from 0) gains now · n / ((n + j)(n + j + 1)), which decreases in j, so that giving each label
    where it gains most is optimal: all labels that gain at least some λ.
    """

    def labels_above(gain: float) -> NDArray[np.int64]:
        # (n + j)(n + j + 1) ≤ now · n / λ  ⇔  j ≤ √(¼ + now · n / λ) − ½ − n
        return np.floor(np.sqrt(0.25 + now * n / gain) - 0.5 - n + 1).clip(0, limit).astype(np.int64)

    budget = min(budget, int(limit.sum()))
    low, high = 1e-15, max(float((now / (n + 1)).max()), 1e-14)
    for _ in range(80):
        middle = float(np.sqrt(low * high))
        low, high = (middle, high) if labels_above(middle).sum() > budget else (low, middle)
    allocation = labels_above(high)
    while (rest := budget - int(allocation.sum())) > 0:
        gains = now * n / ((n + allocation) * (n + allocation + 1))
        gains = np.where(allocation < limit, gains, -1.0)
        best = np.argsort(-gains, kind="stable")[:rest]
        allocation[best[gains[best] >= 0]] += 1
    return allocation


def may_be_asked(annotations: Annotations, verdicts: AnnotatorVerdicts | None) -> Mask:
    """Return (N,): humans without a verdict of spam or systematic error, and who do not differ otherwise."""
    people = ~are_models(annotations)
    if verdicts is None:
        return people
    return people & ~np.isin(verdicts.verdict.astype(str), (SPAM, ERROR, DIFFERS))


def people_left(annotations: Annotations, people: Mask) -> NDArray[np.int64]:
    """Return (M,): the number of ``people`` who have not labelled the item; unlimited for class counts."""
    if annotations.anonymous:
        return np.full(annotations.n_items, np.iinfo(np.int32).max, dtype=np.int64)
    pairs = np.unique(annotations.pair, return_index=True)[1]
    by_people = people[annotations.annotator[pairs]]
    taken = np.bincount(annotations.item[pairs], by_people, minlength=annotations.n_items)
    return np.asarray(people.sum() - taken, dtype=np.int64)


# ---- the next batch -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelQueue(TableResult):
    """Items to ask about, the most urgent first; every array has one entry per item.

    Attributes
    ----------
    item
        Item ids.
    code
        Item codes, in the order of the annotations.
    action
        ``"label"`` or ``"adjudicate"``.
    n_more
        Labels to collect.
    reason
        Why the item is in the queue, as text.
    label
        The model's current label.
    share
        Its share in the population.
    n_labels
        Labels that the item has.
    labelled_by
        Annotators who have labelled it; ask others.
    n_by_all
        Items that need a label but are not in the queue, because every eligible annotator (no spam, no
        systematic error) has labelled them.
    frame_kind
        Kind of data frame that ``to_frame`` returns.
    """

    item: NDArray[Any]
    code: Indices
    action: NDArray[Any]
    n_more: NDArray[np.int64]
    reason: NDArray[Any]
    label: NDArray[Any]
    share: NDArray[np.float64]
    n_labels: NDArray[np.int64]
    labelled_by: NDArray[Any]
    n_by_all: int = 0
    frame_kind: str = "pandas"

    def columns(self) -> dict[str, Any]:
        """Return the arrays by name, as columns of a table."""
        return {name: value for name, value in list(vars(self).items())[:9] if name != "code"}

    def __len__(self) -> int:
        return len(self.item)

    def __repr__(self) -> str:
        n = int((self.action == "adjudicate").sum())
        return f"LabelQueue({n:,} items to adjudicate, {len(self) - n:,} to label)"


def label_queue(
    labels: Any, model: Model | None = None, *, budget: int | None = None, each: int | None = None
) -> LabelQueue:
    """Return the items to label or adjudicate next, with reasons.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    model
        A model fitted to these labels; None fits an :class:`~dissensus.HPGM`.
    budget
        Total number of labels. Adjudications count, and get at most half while items need labels. None: no
        limit.
    each
        Labels for each item that needs some; None: 1 or, within a budget, as planned.
    """
    check_rules("label_queue", QUEUE_RULES, budget=budget, each=each)
    annotations = as_annotations(labels)
    if annotations.label_type == "numeric":
        return _rating_queue(annotations, model, budget, each or 1)
    model = HPGM().fit(annotations) if model is None else model
    model.check_labels(annotations)
    findings = collect_findings(model, annotations)
    adjudicated = np.flatnonzero(findings.adjudicate)
    # smallest lead of the first answer over the second first, as a share of the labels
    counts = np.sort(annotations.counts[adjudicated], axis=1)[:, ::-1]
    lead = (counts[:, 0] - counts[:, 1:2].sum(axis=1)) / np.maximum(counts.sum(axis=1), 1)
    adjudicated = adjudicated[np.argsort(lead, kind="stable")]
    if budget is not None:  # half of the budget, or what the labels leave
        adjudicated = adjudicated[: max(budget // 2, budget - (each or 1) * int(findings.more.sum()))]
    n_decide = len(adjudicated)
    left = people_left(annotations, may_be_asked(annotations, findings.verdicts))
    to_label, n_more = _items_to_label(findings, left, None if budget is None else budget - n_decide, each)
    code = np.concatenate([adjudicated, to_label]).astype(np.intp)
    label = findings.label[code]
    action = np.array(["adjudicate"] * n_decide + ["label"] * len(to_label), dtype=object)
    n_more = np.concatenate([np.ones(n_decide, np.int64), n_more])
    reason = np.array([reason_of(findings, m, i < n_decide) for i, m in enumerate(code)], object)
    share, n_labels = model.label_distributions_[code, label], annotations.counts[code].sum(axis=1)
    asked = action, n_more, reason, annotations.classes[label], share, n_labels
    n_by_all = int((findings.more & (left == 0)).sum())
    names = _labelled_by(annotations, code)
    return LabelQueue(annotations.items[code], code, *asked, names, n_by_all, annotations.frame_kind)


def _labelled_by(annotations: Annotations, code: Indices) -> NDArray[Any]:
    """Return (items,): the ids of the annotators of each item, joined by semicolons."""
    if annotations.anonymous:
        return np.full(len(code), "", dtype=object)
    rows = [slice(*annotations.item_pointers[m : m + 2]) for m in code]
    names = [dict.fromkeys(annotations.annotators[annotations.annotator[subset]]) for subset in rows]
    return np.array([";".join(map(str, ids)) for ids in names], dtype=object)


def _rating_queue(annotations: Annotations, model: Model | None, budget: int | None, each: int) -> LabelQueue:
    """Return the items with the widest intervals of the mean; without a budget, unusually wide ones."""
    fitted: Any = build_model("ratings", {}).fit(annotations) if model is None else model
    fitted.check_labels(annotations)
    width, n = 2 * 1.645 * fitted.errors_, np.diff(annotations.item_pointers)  # of a 90 % interval
    code = np.argsort(-width, kind="stable")
    is_wide = width[code] > WIDE_RATIO * np.median(width)
    code = code[is_wide] if budget is None else code[: max(budget // each, 1)]
    interval = "90\u00a0% interval of the mean: width"
    reason = [f"{count(int(n[m]), 'rating')}; {interval} {width[m]:.2g}" for m in code]
    action, n_more = np.full(len(code), "label", dtype=object), np.full(len(code), each, dtype=np.int64)
    share = np.full(len(code), np.nan)
    asked = action, n_more, np.array(reason, dtype=object), fitted.estimates_[code].round(2), share, n[code]
    return LabelQueue(annotations.items[code], code, *asked, _labelled_by(annotations, code))


def _items_to_label(
    findings: Findings, left: NDArray[np.int64], budget: int | None, each: int | None
) -> tuple[Indices, NDArray[np.int64]]:
    """Return the items to label and the number of labels of each, those first where a label helps most."""
    if budget == 0:
        return np.zeros(0, np.intp), np.zeros(0, np.int64)
    if budget is not None and each is None and isinstance(findings.model, HPGM):
        now, after = losses(findings.model.share_draws_)
        loss, limit = (np.where(findings.adjudicate, 0, values) for values in (now, left))
        n_more = allocate(loss, equivalent_labels(now, after), budget, limit)
        items = np.flatnonzero(n_more)
        items = items[np.lexsort((after[items] - now[items], -n_more[items]))]
        return items, n_more[items]
    widths, n = findings.narrowing(), findings.annotations.counts.sum(axis=1)
    gain = -n.astype(np.float64) if widths is None else widths[0] - widths[1]
    items = np.flatnonzero(findings.more & (left > 0))
    items = items[np.argsort(-gain[items], kind="stable")]
    n_more = np.minimum(each or 1, left[items])
    if budget is not None:  # the rest of the budget after the preceding items
        n_more = np.clip(budget - (np.cumsum(n_more) - n_more), 0, n_more)
    return items[n_more > 0], n_more[n_more > 0]


def reason_of(findings: Findings, m: int, tied: bool) -> str:
    """Return the reason why an item is in the queue: its labels, and the model's certainty."""
    labels, counts = findings.annotations, findings.annotations.counts[m]
    names, n = [str(name) for name in labels.classes], int(counts.sum())
    if labels.label_type == "multi":
        names = [", ".join(parse_set(name)) or "none" for name in names]
    if not n:
        return "no label yet"
    order = [int(p) for p in np.argsort(-counts, kind="stable") if counts[p]]
    order = [p for p in order if counts[p] >= counts[order[:2]].min()]  # more than two if they are tied
    votes = " and ".join(f"{counts[p]} {quoted(names[p])}" for p in order)
    if tied:
        return f"{count(n, 'label')}, nearly tied: {votes}"
    reason = f"{count(n, 'label')}: {votes}"
    if findings.intervals is None:
        return reason
    label, probability = quoted(names[findings.label[m]]), findings.intervals.p_top[m]
    return f"{reason}; {label} is the most common answer with probability {probability:.0%}"


# ---- plans --------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class LabelPlan(TableResult):
    """Labels to collect; every array has one entry per item, in the model's order.

    Attributes
    ----------
    item
        Item ids.
    n_labels
        Labels that each item has.
    n_more
        Labels to collect.
    gain
        Expected decrease of the loss by the next label, in nats.
    loss
        Expected KL divergence of the estimate from the population's answer.
    loss_after
        Expected loss after the labels of the plan.
    width
        Width of the interval of the most probable class's share.
    width_after
        Expected width after the labels of the plan.
    ask
        Annotators to ask, the most informative first; no language models, spam or systematic errors.
    target
        Target width of the intervals.
    uniform_loss
        Mean expected loss if all items got the same number of labels.
    alpha
        Krippendorff's α and its interval.
    items_for_alpha
        Items needed for the target width of the interval of α.
    n_by_all
        Items that everyone in ``ask`` has labelled; further labels need new annotators.
    n_out_of_reach
        Items whose target width needs more labels than there are annotators left to ask.
    frame_kind
        Kind of data frame returned.
    """

    item: NDArray[Any]
    n_labels: NDArray[np.int64]
    n_more: NDArray[np.int64]
    gain: Array
    loss: Array
    loss_after: Array
    width: Array
    width_after: Array
    ask: NDArray[Any]
    target: float | None
    uniform_loss: float
    alpha: tuple[float, float, float]
    items_for_alpha: int | None
    n_by_all: int = 0
    n_out_of_reach: int = 0
    frame_kind: str = "pandas"

    @property
    def budget(self) -> int:
        """Total number of labels to collect."""
        return int(self.n_more.sum())

    @property
    def stop(self) -> bool:
        """True if enough items have reached the target width."""
        return self.target is not None and bool((self.width <= self.target).mean() >= STOP_SHARE)

    def columns(self) -> dict[str, Any]:
        """Return the arrays by name."""
        return dict(list(vars(self).items())[:8])

    def _head(self, n: int | None) -> dict[str, Any]:
        """Return the first ``n`` rows, items with most labels to collect first."""
        order = np.lexsort((-self.gain, -self.n_more))[:n]
        return {name: values[order] for name, values in self.columns().items()}

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the items, as plain values."""
        averaged = ("loss", "loss_after", "width", "width_after")
        means = {name: float(getattr(self, name).mean()) for name in averaged}
        names = ("uniform_loss", "items_for_alpha", "n_by_all", "n_out_of_reach")
        plain = {name: getattr(self, name) for name in names}
        alpha = {"alpha": self.alpha[0], "alpha_interval": list(self.alpha[1:])}
        summary = {"budget": self.budget, "stop": self.stop, "target_interval": self.target}
        return summary | means | plain | alpha | {"ask": [str(name) for name in self.ask]}

    def __repr__(self) -> str:
        n = (self.n_more > 0).sum()
        return f"LabelPlan({self.budget:,} labels for {n:,} of {len(self.item):,} items)"


def plan_labels(
    labels: Any,
    model: Model | None = None,
    *,
    budget: int | None = None,
    target_interval: float | None = None,
    target_alpha_width: float | None = None,
    interval: float = 0.9,
) -> LabelPlan:
    """Plan which items to label further, how often, and by whom.

    A ``budget`` is spent where labels gain most. With ``target_interval`` instead, each item gets as many
    labels as an interval of that width takes; with both, the budget goes to the items above the target.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads. Language models are not
        asked; the column ``kind`` of the annotator table, or else the name, identifies them.
    model
        An :class:`~dissensus.HPGM` fitted to these labels; None fits one.
    budget
        Labels to distribute. No item gets more than there are annotators in ``ask`` who have not labelled it.
    target_interval
        Target width of the credible interval of an item's most probable class.
    target_alpha_width
        Target width of the interval of Krippendorff's α, for ``items_for_alpha``.
    interval
        Level of the credible intervals, such as 0.9.
    """
    targets = {"target_interval": target_interval, "target_alpha_width": target_alpha_width}
    if budget is target_interval is target_alpha_width is None:
        raise bad_parameter("plan_labels", "budget", "given, or target_interval or target_alpha_width", None)
    check_rules("plan_labels", PLAN_RULES | QUEUE_RULES, budget=budget, **targets)
    annotations = as_annotations(labels)
    sampled = require_draws(model or HPGM().fit(annotations), "plans")
    sampled.check_labels(annotations)
    now, after = losses(sampled.share_draws_)
    intervals = sampled.intervals(interval)
    best = sampled.label_distributions_.argmax(axis=1)[:, None]
    width = np.take_along_axis(intervals.high - intervals.low, best, axis=1)[:, 0]
    n, v = equivalent_labels(now, after), intervals.effective_labels
    # the variance of a Dirichlet worth v labels is proportional to 1 / (v + 1), so that
    # width · √((v + 1) / (v + 1 + j)) = target
    target = 1.0 if target_interval is None else target_interval
    missing = np.ceil((v + 1) * np.maximum((width / target) ** 2 - 1, 0)).astype(np.int64)
    verdicts = compute_verdicts(sampled, annotations)
    people = may_be_asked(annotations, verdicts)
    left = people_left(annotations, people)
    more = np.minimum(missing, left)
    if budget is not None:
        eligible = (missing > 0) | (target_interval is None)
        more = allocate(np.where(eligible, now, 0.0), n, budget, np.where(eligible, left, 0))
    alpha = agreement(annotations, "alpha", interval=interval)["alpha"]
    items_for_alpha = None
    if target_alpha_width is not None and np.isfinite(alpha.high - alpha.low):
        # the width of the interval is proportional to 1 / √items
        items_for_alpha = int(np.ceil(len(now) * ((alpha.high - alpha.low) / target_alpha_width) ** 2))
    return LabelPlan(
        item=sampled.items_, n_labels=sampled.n_labels_, n_more=more,
        gain=now - after, loss=now, loss_after=now * n / (n + more),
        width=width, width_after=width * np.sqrt((v + 1) / (v + 1 + more)),
        ask=annotators_to_ask(verdicts, people), target=target_interval,
        uniform_loss=float((now * n / (n + more.mean())).mean()),
        alpha=(alpha.value, alpha.low, alpha.high),
        items_for_alpha=items_for_alpha, n_by_all=int((left == 0).sum()),
        n_out_of_reach=int((missing > left).sum()) if target_interval is not None else 0,
        frame_kind=sampled.frame_kind_,
    )  # fmt: skip


def annotators_to_ask(verdicts: AnnotatorVerdicts, people: Mask) -> NDArray[Any]:
    """Return the ids of ``people``, the most informative first; groups take turns."""
    order = np.argsort(-verdicts.information, kind="stable")
    order = order[people[order]]
    if verdicts.groups is not None:
        group = verdicts.group[order]
        turn = np.array([(group[:i] == g).sum() for i, g in enumerate(group)])
        order = order[np.argsort(turn, kind="stable")]
    return np.asarray(verdicts.annotator[order])
