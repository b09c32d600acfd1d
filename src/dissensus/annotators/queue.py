"""The next batch for the labelling tool: items that need a label, or somebody who decides, and the reason.

Items nearly at a draw after some labels go to an adjudicator; items whose label is unsure, or that have none,
get further labels, those first where one more tells most. Within a budget a fitted :class:`~dissensus.HPGM`
gives labels out where they gain most (``plan.py``); any other model gives each item the same number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.annotators.findings import Findings, findings
from dissensus.annotators.plan import allocated, losses, may_be_asked, people_left, worth_of_losses
from dissensus.annotators.sentences import count, quoted
from dissensus.errors import DataError
from dissensus.labels.annotations import Annotations
from dissensus.models.base import Model
from dissensus.models.hpgm.model import HPGM
from dissensus.params import check_rules, integer

__all__ = ["LabelQueue", "label_queue"]

LABEL, ADJUDICATE = "label", "adjudicate"
_RULES = {"budget": integer(1), "each": integer(1)}


@dataclass(frozen=True)
class LabelQueue:
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

    def columns(self) -> dict[str, Any]:
        """The arrays by name, as columns of a table."""
        names = ("item", "action", "n_more", "reason", "label", "share", "n_labels", "labelled_by")
        return {name: getattr(self, name) for name in names}

    def __len__(self) -> int:
        return len(self.item)


def label_queue(
    model: Model, annotations: Annotations, *, budget: int | None = None, each: int | None = None
) -> LabelQueue:
    """What to ask next, of a fitted model and its labels.

    Parameters
    ----------
    model
        A fitted model.
    annotations
        The labels that it was fitted to.
    budget
        Labels in all, adjudications included, which get half of it at most while items need labels; None: as
        many as the items in need take.
    each
        Labels for an item that needs some; None: 1 or, within a budget, what the plan gives it.
    """
    given = {name: value for name, value in (("budget", budget), ("each", each)) if value is not None}
    check_rules("label_queue", {name: _RULES[name] for name in given}, **given)
    if annotations.label_type == "numeric":
        raise DataError(
            "a queue is of items whose labels are classes, and these are numbers; see their intervals"
        )
    found = findings(model, annotations)
    decide = _closest_first(annotations, np.flatnonzero(found.adjudicate))
    if budget is not None:  # adjudicators get half of it, or what labels leave
        decide = decide[: max(budget // 2, budget - (each or 1) * int(found.more.sum()))]
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
        reason=np.array(
            [_reason(found, int(m), str(what)) for m, what in zip(code, action, strict=True)], object
        ),
        label=annotations.classes[given_label],
        share=model.label_distributions_[code, given_label],
        n_labels=annotations.counts[code].sum(axis=1),
        labelled_by=np.array([_by_whom(annotations, int(m)) for m in code], dtype=object),
        n_by_all=int((found.more & (left == 0)).sum()),
    )


def _closest_first(annotations: Annotations, items: NDArray[np.intp]) -> NDArray[np.intp]:
    """Items by the lead of their first answer over the second, as a share of the labels."""
    counts = np.sort(annotations.counts[items], axis=1)[:, ::-1]
    lead = (counts[:, 0] - counts[:, 1:2].sum(axis=1)) / np.maximum(counts.sum(axis=1), 1)
    return items[np.argsort(lead, kind="stable")]


def _asked(
    found: Findings, left: NDArray[np.int64], budget: int | None, each: int | None
) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Items to label further and how often, where one more label tells most first."""
    if budget == 0:
        return np.zeros(0, np.intp), np.zeros(0, np.int64)
    if budget is not None and each is None and isinstance(found.model, HPGM):
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


def _reason(found: Findings, m: int, action: str) -> str:
    """Why an item is asked about: its labels as they are."""
    counts, names = found.annotations.counts[m], found.annotations.classes
    n = int(counts.sum())
    if not n:
        return "no label yet"
    order = [int(p) for p in np.argsort(-counts, kind="stable")[:2] if counts[p]]
    votes = " and ".join(f"{counts[p]} {quoted(str(names[p]))}" for p in order)
    if action == ADJUDICATE:
        return f"nearly a draw: {votes} of {count(n, 'label')}"
    known = found.known
    sure = "" if known is None else f"; the model is {known.sure[m]:.0%} sure which answer is the most common"
    return f"{votes} of {count(n, 'label')}{sure}"


def _by_whom(annotations: Annotations, m: int) -> str:
    if annotations.anonymous:
        return ""
    rows = slice(annotations.item_pointers[m], annotations.item_pointers[m + 1])
    return ";".join(dict.fromkeys(str(annotations.annotators[n]) for n in annotations.annotator[rows]))
