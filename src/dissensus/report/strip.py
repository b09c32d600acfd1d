"""What to do with the labels: a strip of numbers, each opening the table it counts, and the next steps."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dissensus.annotators import sentences
from dissensus.annotators.findings import Findings
from dissensus.labels.description import Description


def strip(found: Findings, described: Description, gold: Any) -> list[dict[str, Any]]:
    """The cards: a title, numbers that each open a table, and a few words."""
    M = max(found.annotations.n_items, 1)
    raw, modelled = (sentences.percent(some.sum() / M) for some in found.clear)
    decide = f"{found.adjudicate.sum():,}"
    cards = [
        _agreement(described),
        _card(
            "Items with a clear answer",
            [(raw, "items", "clear_raw", "as labelled"), (modelled, "items", "clear_model", "by the model")],
            "Two in three or more say the same",
        ),
        _card(
            "Items to adjudicate",
            [(decide, "items", "adjudicate", "")],
            "Nearly a draw" + (", and the model is not sure" if found.known is not None else ""),
        ),
    ]
    if found.votes is not None:
        cards.append(_people(found))
    narrow = found.narrowing()
    if narrow is not None:
        cards.append(_one_more(*(100 * float(width.mean()) / 2 for width in narrow)))
    if gold is not None:
        named = (("raw", "most frequent label"), ("model", "model"))
        right = [(sentences.percent(gold[key][0]), "items", "wrong", word) for key, word in named]
        cards.append(_card("Right, where gold is known", right, f"On {gold['n']:,} items"))
    return cards


def _agreement(described: Description) -> dict[str, Any]:
    known, sure = math.isfinite(described.alpha), math.isfinite(described.alpha_low)
    ends = f"95 % interval {described.alpha_low:.2f} to {described.alpha_high:.2f}. " if sure else ""
    value = f"{described.alpha:.2f}" if known else "–"
    title = "Agreement (Krippendorff’s α)"
    return _card(title, [(value, "items", "contested", "")], ends + described.reading.capitalize())


def _people(found: Findings) -> dict[str, Any]:
    words = "Agree far less with the others than is usual"
    if found.judged is not None:
        words = "They seem not to look, follow a rule of their own, or are far from the others"
    return _card("Annotators to check", [(f"{found.check.sum():,}", "annotators", "check", "")], words)


def _one_more(now: float, after: float) -> dict[str, Any]:
    """How far off the label's share may be, in points: half the width of its interval, on average."""
    digits = 0 if round(now) != round(after) else 1
    reaches = ((now, "now"), (after, "with one more"))
    numbers = [(f"±{reach:.{digits}f}", "items", "more", what) for reach, what in reaches]
    return _card("One more label per item", numbers, "Points by which the label’s share may be off")


def _card(title: str, numbers: list[tuple[str, str, str, str]], words: str) -> dict[str, Any]:
    keys = ("value", "table", "preset", "what")
    return {"title": title, "numbers": [dict(zip(keys, one, strict=True)) for one in numbers], "words": words}


def steps(
    found: Findings, described: Description, gold: Any, names: list[str], clusters: dict[str, Any] | None
) -> list[dict[str, Any]]:
    """What is wrong with the labels and what to do about it, the gravest first; only what is true of them."""
    annotations, classes = found.annotations, [str(name) for name in found.annotations.classes]
    alpha = described.alpha, described.alpha_low, described.alpha_high
    parts = described.n_parts, described.largest_part_items, described.n_items
    contested = ("items", "contested", "Show items without a clear answer")
    said: list[tuple[Any, tuple[str, str, str]]] = []
    if found.votes is not None:
        who, load = np.flatnonzero(found.check), annotations.annotator_load
        who = who[np.argsort(-load[who], kind="stable")]
        check = sentences.check_sentence(found.votes, who, names, load)
        said.append((check, ("annotators", "check", "Show them")))
    said += [
        (sentences.agreement_sentence(*alpha), contested),
        (sentences.rivals_sentence(annotations.counts, classes), contested),
    ]
    if clusters is not None and clusters["contrasts"]:
        first = clusters["contrasts"][0]["says"]
        ways = sentences.groups_sentence(len(clusters["groups"]), first)
        said.append((ways, ("groups", "", "Show the groups")))
    unsure = found.known is not None
    decide = sentences.adjudicate_sentence(
        annotations.counts, np.flatnonzero(found.adjudicate), unsure=unsure
    )
    more = sentences.more_sentence(annotations.counts, np.flatnonzero(found.more))
    said += [
        (sentences.parts_sentence(*parts), ("", "", "")),
        (gold["words"] if gold else None, ("items", "wrong", "Show where gold differs")),
        (decide, ("items", "adjudicate", "Show them")),
        (more, ("items", "more", "Show them")),
    ]
    keys = ("table", "preset", "link")
    return [{"says": words} | dict(zip(keys, link, strict=True)) for words, link in said if words is not None]
