"""What to do with the labels: a strip of numbers, each opening the table it counts, and the next steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dissensus.data.annotations import Annotations
from dissensus.data.description import Description
from dissensus.evaluation import sentences
from dissensus.evaluation.sides import Standing, Votes, most_frequent
from dissensus.models.base import Intervals, Model
from dissensus.numerics import Array, row_shares

if TYPE_CHECKING:
    from dissensus.annotators.verdicts import AnnotatorVerdicts

CLEAR = 2 / 3  # share of the answers that makes one clear
UNSURE = 0.9  # probability of the label below which another label helps
FAR, FEWEST = 0.1, 5  # below the usual agreement, and shared items, for somebody whom no model judged
PROBLEMS = ("spam", "systematic error")
# flags of an item, added up; assets/items.js has the same
CLEAR_RAW, CLEAR_MODEL, ADJUDICATE, MORE, OVERTURNED, WRONG = 1, 2, 4, 8, 16, 32


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
        close = sentences.close_items(self.annotations.counts)
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
        """(items,): all of it, added up."""
        sets = (*self.clear, self.adjudicate, self.more, self.overturned, self.wrong)
        names = (CLEAR_RAW, CLEAR_MODEL, ADJUDICATE, MORE, OVERTURNED, WRONG)
        parts = [flag * some.astype(np.int64) for flag, some in zip(names, sets, strict=True)]
        return np.asarray(np.sum(parts, axis=0))

    @cached_property
    def check(self) -> NDArray[np.bool_]:
        """(annotators,): judged as spam or in error; without verdicts, surely far below usual agreement."""
        if self.judged is not None:
            return np.isin(self.judged.verdict.astype(str), PROBLEMS)
        if self.standing is None:
            return np.zeros(self.annotations.n_annotators, dtype=bool)
        found = self.standing
        usual = np.nanmedian(found.agreement) if np.isfinite(found.agreement).any() else np.nan
        low = found.agreement + 1.96 * found.error < usual - FAR
        return np.asarray(low & (found.n >= FEWEST))

    def narrowing(self) -> tuple[Array, Array] | None:
        """(items,) each: width of the interval of the label's share now, and after one more label."""
        if self.known is None:
            return None
        label = self.model.label_distributions_.argmax(axis=1)[:, None]
        width = np.take_along_axis(self.known.high - self.known.low, label, axis=1)[:, 0]
        # the variance of a Dirichlet worth v labels is as 1 / (v + 1)
        return width, width * np.sqrt((self.known.worth + 1) / (self.known.worth + 2))


def strip(found: Findings, described: Description, gold: Any, names: list[str]) -> list[dict[str, Any]]:
    """The cards: a title, numbers that each open a table, and a few words."""
    M = max(found.annotations.n_items, 1)
    alpha = f"{described.alpha:.2f}" if described.alpha == described.alpha else "–"
    ends = f"95 % interval {described.alpha_low:.2f} to {described.alpha_high:.2f}. "
    cards = [
        _card("Agreement (Krippendorff’s α)", [(alpha, "items", "contested", "")],
              (ends if described.alpha_low == described.alpha_low else "") + described.reading.capitalize()),
        _card("Items with a clear answer",
              [(sentences.percent(some.sum() / M), "items", key, word) for some, key, word in
               zip(found.clear, ("clear_raw", "clear_model"), ("as labelled", "by the model"), strict=True)],
              "Two in three or more say the same"),
        _card("Items to adjudicate", [(f"{found.adjudicate.sum():,}", "items", "adjudicate", "")],
              "Nearly a draw between two answers"),
    ]  # fmt: skip
    if found.votes is not None:
        words = "Answer without looking, or by a rule of their own" if found.judged is not None else (
            "Agree far less with the others than is usual")  # fmt: skip
        cards.append(
            _card("Annotators to check", [(f"{found.check.sum():,}", "annotators", "check", "")], words)
        )
    narrow = found.narrowing()
    if narrow is not None:
        now, after = (100 * float(width.mean()) / 2 for width in narrow)
        words = f"points: how sure the label’s share is now, and with one more label on each of {M:,} items"
        cards.append(
            _card("One more label per item", [(f"±{now:.0f} → ±{after:.0f}", "items", "more", "")], words)
        )
    if gold is not None:
        numbers = [(sentences.percent(gold[key][0]), "items", "wrong", word)
                   for key, word in (("raw", "most frequent label"), ("model", "model"))]  # fmt: skip
        cards.append(_card("Right, where gold is known", numbers, f"On {gold['n']:,} items"))
    return cards


def _card(title: str, numbers: list[tuple[str, str, str, str]], words: str) -> dict[str, Any]:
    keys = ("value", "table", "preset", "what")
    return {"title": title, "numbers": [dict(zip(keys, one, strict=True)) for one in numbers], "words": words}


def steps(
    found: Findings, described: Description, gold: Any, names: list[str], clusters: dict[str, Any] | None
) -> list[dict[str, Any]]:
    """What is wrong with the labels and what to do about it, the gravest first; only what is true of them."""
    annotations, classes = found.annotations, [str(name) for name in found.annotations.classes]
    said: list[tuple[Any, str, str]] = [
        (
            sentences.agreement_sentence(described.alpha, described.alpha_low, described.alpha_high),
            "items",
            "contested",
        ),
        (sentences.rivals_sentence(annotations.counts, classes), "items", "contested"),
        (
            sentences.parts_sentence(described.n_parts, described.largest_part_items, described.n_items),
            "",
            "",
        ),
    ]
    if clusters is not None and clusters["contrasts"]:
        first = clusters["contrasts"][0]["says"]
        said.append((sentences.groups_sentence(len(clusters["groups"]), first), "groups", ""))
    if found.votes is not None:
        who = np.flatnonzero(found.check)
        load = annotations.annotator_load
        who = who[np.argsort(-load[who], kind="stable")]
        said.append((sentences.check_sentence(found.votes, who, names, load), "annotators", "check"))
    said += [
        (gold["words"] if gold else None, "items", "wrong"),
        (
            sentences.adjudicate_sentence(annotations.counts, np.flatnonzero(found.adjudicate)),
            "items",
            "adjudicate",
        ),
        (sentences.more_sentence(annotations.counts, np.flatnonzero(found.more)), "items", "more"),
    ]
    return [
        {"says": words, "table": table, "preset": preset}
        for words, table, preset in said
        if words is not None
    ]
