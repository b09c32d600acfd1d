"""What to do with the labels: a strip of numbers, each opening the table it counts, and the next steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from dissensus.annotators.findings import Findings
from dissensus.data.description import Description
from dissensus.evaluation import sentences


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
