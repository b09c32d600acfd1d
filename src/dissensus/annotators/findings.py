"""Which items and annotators something must be done about, and the next batch for the labelling tool.

Items nearly at a draw after some labels go to an adjudicator; items whose label is unsure, or that have none,
get further labels, those first where one more tells most. Within a budget a fitted :class:`~dissensus.HPGM`
gives labels out where they gain most (``plan.py``); any other model gives each item the same number.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.annotators.sentences import close_items, count, quoted
from dissensus.annotators.verdicts import AnnotatorVerdicts, annotator_verdicts
from dissensus.evaluate.sides import Standing, Votes, most_frequent, standing
from dissensus.labels.annotations import Annotations
from dissensus.labels.display import Shown
from dissensus.labels.sources import as_annotations
from dissensus.models import build_model
from dissensus.models.base import Model
from dissensus.models.hpgm.model import HPGM
from dissensus.models.results import Intervals
from dissensus.numerics import Array, row_shares
from dissensus.params import NONE, check_rules, integer

__all__ = ["Findings", "LabelQueue", "findings", "label_queue"]

CLEAR = 2 / 3  # share of the answers that makes one clear
WIDE = 1.25  # times the usual width of a rating's interval that calls for another rating
UNSURE = 0.9  # probability of the label below which another label helps
FAR, FEWEST = 0.1, 20  # below the usual agreement, and shared items, for somebody whom no model judged
PROBLEMS, UNJUDGED = ("spam", "systematic error"), "too few labels"
LABEL, ADJUDICATE = "label", "adjudicate"
_RULES = {"budget": integer(1) | NONE, "each": integer(1) | NONE}


@dataclass(frozen=True)
class Findings:
    """Which items and annotators something must be done about."""

    model: Model
    annotations: Annotations
    known: Intervals | None
    judged: AnnotatorVerdicts | None
    votes: Votes | None
    standing: Standing | None

    @cached_property
    def raw(self) -> Array:
        """(items, classes): shares of the labels given."""
        return row_shares(self.annotations.counts)

    @cached_property
    def clear(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """(items,) each: at least two in three gave one answer, or would, as the model has it."""
        modelled = self.model.label_distributions_.max(axis=1)
        return self.raw.max(axis=1) >= CLEAR - 1e-9, modelled >= CLEAR - 1e-9

    @cached_property
    def adjudicate(self) -> NDArray[np.bool_]:
        """(items,): nearly a draw, and not settled by the model."""
        close = close_items(self.annotations.counts)
        return close if self.known is None else close & (self.known.sure < UNSURE)

    @cached_property
    def more(self) -> NDArray[np.bool_]:
        """(items,): a further label would help; without intervals, items with far fewer than usual."""
        n = self.annotations.counts.sum(axis=1)
        if self.known is None:
            return np.asarray(n < max(2.0, float(np.median(n)) / 2))
        return np.asarray((self.known.sure < UNSURE) & ~self.adjudicate)

    @cached_property
    def overturned(self) -> NDArray[np.bool_]:
        """(items,): the single most frequent label is not the model's."""
        most = most_frequent(self.annotations.counts)
        return np.asarray((most >= 0) & (most != self.model.label_distributions_.argmax(axis=1)))

    @cached_property
    def wrong(self) -> NDArray[np.bool_]:
        """(items,): the model's label is not the gold one."""
        gold = self.annotations.gold
        if gold is None:
            return np.zeros(self.annotations.n_items, dtype=bool)
        given = self.model.label_distributions_.argmax(axis=1)
        return np.asarray((gold >= 0) & (gold != given) & (self.annotations.counts.sum(axis=1) > 0))

    @cached_property
    def flags(self) -> NDArray[np.int64]:
        """(items,): one bit for each set of items, in the order of ``FLAGS`` in assets/items.js."""
        sets = (*self.clear, self.adjudicate, self.more, self.overturned, self.wrong)
        return np.asarray(np.sum([items.astype(np.int64) << bit for bit, items in enumerate(sets)], axis=0))

    @cached_property
    def check(self) -> NDArray[np.bool_]:
        """(annotators,): judged as spam or in error; or not judged, and surely far below usual agreement."""
        found = self.standing
        if found is None:
            return np.zeros(self.annotations.n_annotators, dtype=bool)
        far_below = (found.agreement + 1.96 * found.error < found.usual - FAR) & (found.n >= FEWEST)
        if self.judged is None:
            return np.asarray(far_below)
        verdict = self.judged.verdict.astype(str)
        return np.asarray(np.isin(verdict, PROBLEMS) | (far_below & (verdict == UNJUDGED)))

    def narrowing(self) -> tuple[Array, Array] | None:
        """(items,) each: width of the interval of the label's share now, and after one more label."""
        if self.known is None:
            return None
        label = self.model.label_distributions_.argmax(axis=1)[:, None]
        width = np.take_along_axis(self.known.high - self.known.low, label, axis=1)[:, 0]
        # the variance of a Dirichlet worth v labels is as 1 / (v + 1)
        return width, width * np.sqrt((self.known.worth + 1) / (self.known.worth + 2))


def findings(model: Model, annotations: Annotations, judged: AnnotatorVerdicts | None = None) -> Findings:
    """What must be done; verdicts on annotators where the model has draws that know them.

    ``judged`` are the verdicts where they are known already.
    """
    known = model.intervals()
    if annotations.anonymous:
        return Findings(model, annotations, known, None, None, None)
    if judged is None and isinstance(model, HPGM):
        judged = annotator_verdicts(annotations, model)
    votes = Votes.of(annotations)
    return Findings(model, annotations, known, judged, votes, standing(votes))


# ---- the next batch -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class LabelQueue(Shown):
    """Items to ask about, the most urgent first; one entry for each item in every array.

    Attributes
    ----------
    item
        Item ids.
    code
        Codes of the items, in the order of the annotations.
    action
        ``"label"`` or ``"adjudicate"``.
    n_more
        Labels to ask for.
    reason
        Why it is asked about, in words.
    label
        What the model says now.
    share
        The share of that label in the population.
    n_labels
        Labels that the item has.
    labelled_by
        Who labelled it already: ask others.
    n_by_all
        Items that need a label and are not in the queue, since everybody who may be asked
        (nobody who spams or errs systematically) has labelled them already.
    frame_kind
        The kind of data frame that ``to_frame`` gives.
    """

    item: NDArray[Any]
    code: NDArray[np.intp]  # of the item, in the order of the annotations
    action: NDArray[Any]  # "label" or "adjudicate"
    n_more: NDArray[np.int64]  # labels to ask for
    reason: NDArray[Any]
    label: NDArray[Any]  # what the model says now
    share: NDArray[np.float64]  # of that label in the population
    n_labels: NDArray[np.int64]  # that the item has
    labelled_by: NDArray[Any]  # who labelled it already: ask others
    n_by_all: int = 0  # items that need a label and have one of everybody who may be asked
    frame_kind: str = "pandas"

    def columns(self) -> dict[str, Any]:
        """The arrays by name, as columns of a table."""
        return {name: value for name, value in list(vars(self).items())[:9] if name != "code"}

    def __len__(self) -> int:
        return len(self.item)

    def __repr__(self) -> str:
        decide = int((self.action == ADJUDICATE).sum())
        return f"LabelQueue({decide:,} items to adjudicate, {len(self) - decide:,} to label)"


def label_queue(
    labels: Any, model: Model | None = None, *, budget: int | None = None, each: int | None = None
) -> LabelQueue:
    """Say which items to ask about next, and why.

    Parameters
    ----------
    labels
        Labels, or a data frame or path that :func:`dissensus.read_annotations` reads.
    model
        A model fitted to these labels; None fits an :class:`~dissensus.HPGM`.
    budget
        Labels in all, adjudications included, which get half of it at most while items need labels; None: as
        many as the items in need take.
    each
        Labels for an item that needs some; None: 1 or, within a budget, what the plan gives it.
    """
    check_rules("label_queue", _RULES, budget=budget, each=each)
    annotations = as_annotations(labels)
    if annotations.label_type == "numeric":
        return _rating_queue(annotations, model, budget, each or 1)
    model = HPGM().fit(annotations) if model is None else model
    model.check_labels(annotations)
    found = findings(model, annotations)
    decide = np.flatnonzero(found.adjudicate)
    # the smallest lead of the first answer over the second first, as a share of the labels
    counts = np.sort(annotations.counts[decide], axis=1)[:, ::-1]
    lead = (counts[:, 0] - counts[:, 1:2].sum(axis=1)) / np.maximum(counts.sum(axis=1), 1)
    decide = decide[np.argsort(lead, kind="stable")]
    if budget is not None:  # adjudicators get half of it, or what labels leave
        decide = decide[: max(budget // 2, budget - (each or 1) * int(found.more.sum()))]
    from dissensus.annotators.plan import may_be_asked, people_left

    left = people_left(annotations, may_be_asked(annotations, found.judged))
    ask, n_more = _asked(found, left, None if budget is None else budget - len(decide), each)
    code = np.concatenate([decide, ask]).astype(np.intp)
    action = np.array([ADJUDICATE] * len(decide) + [LABEL] * len(ask), dtype=object)
    given_label = model.label_distributions_[code].argmax(axis=1)
    return LabelQueue(
        item=annotations.items[code],
        code=code,
        action=action,
        n_more=np.concatenate([np.ones(len(decide), np.int64), n_more]),
        reason=np.array([_reason(found, m, place < len(decide)) for place, m in enumerate(code)], object),
        label=annotations.classes[given_label],
        share=model.label_distributions_[code, given_label],
        n_labels=annotations.counts[code].sum(axis=1),
        labelled_by=_labelled_by(annotations, code),
        n_by_all=int((found.more & (left == 0)).sum()),
        frame_kind=annotations.frame_kind,
    )


def _labelled_by(annotations: Annotations, code: NDArray[np.intp]) -> NDArray[Any]:
    """(items,): who labelled each of these items, in one text."""
    if annotations.anonymous:
        return np.full(len(code), "", dtype=object)
    rows = [slice(*annotations.item_pointers[m : m + 2]) for m in code]
    who = [dict.fromkeys(annotations.annotators[annotations.annotator[some]]) for some in rows]
    return np.array([";".join(map(str, people)) for people in who], dtype=object)


def _rating_queue(annotations: Annotations, model: Model | None, budget: int | None, each: int) -> LabelQueue:
    """Items whose mean rating is known least, or whose interval is far wider than usual without a budget."""
    fitted: Any = build_model("ratings", {}).fit(annotations) if model is None else model
    fitted.check_labels(annotations)
    width, n = 2 * 1.645 * fitted.errors_, np.diff(annotations.item_pointers)  # of a 90 % interval
    code = np.argsort(-width, kind="stable")
    code = code[width[code] > WIDE * np.median(width)] if budget is None else code[: max(budget // each, 1)]
    reason = [f"{count(int(n[m]), 'rating')}; the interval of the mean is {width[m]:.2g} wide" for m in code]
    return LabelQueue(
        item=annotations.items[code],
        code=code,
        action=np.full(len(code), LABEL, dtype=object),
        n_more=np.full(len(code), each, dtype=np.int64),
        reason=np.array(reason, dtype=object),
        label=fitted.estimates_[code].round(2),
        share=np.full(len(code), np.nan),
        n_labels=n[code],
        labelled_by=_labelled_by(annotations, code),
    )


def _asked(
    found: Findings, left: NDArray[np.int64], budget: int | None, each: int | None
) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Items to label further and how often, where one more label tells most first."""
    if budget == 0:
        return np.zeros(0, np.intp), np.zeros(0, np.int64)
    if budget is not None and each is None and isinstance(found.model, HPGM):
        from dissensus.annotators.plan import allocated, losses, worth_of_losses

        now, after = losses(found.model.share_draws_)
        most = np.where(found.adjudicate, 0, left)
        wanted = allocated(np.where(found.adjudicate, 0.0, now), worth_of_losses(now, after), budget, most)
        items = np.flatnonzero(wanted)
        items = items[np.lexsort((after[items] - now[items], -wanted[items]))]
        return items, wanted[items]
    narrow, n = found.narrowing(), found.annotations.counts.sum(axis=1)
    gain = -n.astype(np.float64) if narrow is None else narrow[0] - narrow[1]
    items = np.flatnonzero(found.more & (left > 0))
    items = items[np.argsort(-gain[items], kind="stable")]
    n_more = np.minimum(each or 1, left[items])
    if budget is not None:  # what is left of it after the items before
        n_more = np.clip(budget - (np.cumsum(n_more) - n_more), 0, n_more)
    return items[n_more > 0], n_more[n_more > 0]


def _reason(found: Findings, m: int, decide: bool) -> str:
    """Why an item is asked about: its labels as they are."""
    counts, names = found.annotations.counts[m], found.annotations.classes
    n = int(counts.sum())
    if not n:
        return "no label yet"
    order = [int(p) for p in np.argsort(-counts, kind="stable")[:2] if counts[p]]
    votes = " and ".join(f"{counts[p]} {quoted(str(names[p]))}" for p in order)
    if decide:
        return f"nearly a draw: {votes} of {count(n, 'label')}"
    known = found.known
    sure = "" if known is None else f"; the model is {known.sure[m]:.0%} sure which answer is the most common"
    return f"{votes} of {count(n, 'label')}{sure}"
