"""The head of the page: numbers that each open the table they count, the next steps, changes since a run."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.annotators import sentences
from dissensus.annotators.findings import Findings
from dissensus.annotators.sentences import Sentence, count
from dissensus.annotators.verdicts import ANNOTATORS
from dissensus.errors import DataError
from dissensus.labels.description import Description
from dissensus.tables.labels_file import ITEM, LABEL, N_LABELS
from dissensus.tables.results import is_ours, read_summary

LABELS = "labels.csv"


def summary_cards(found: Findings, described: Description, gold: Any) -> list[dict[str, Any]]:
    """The cards: a title, numbers that each open a table, and a few words."""
    alpha = f"{described.alpha:.2f}" if math.isfinite(described.alpha) else "–"
    low, high = described.alpha_low, described.alpha_high
    ends = f"95\u00a0% interval {low:.2f} to {high:.2f}. " if math.isfinite(low) else ""
    raw, modelled = (sentences.percent(clear.sum() / max(len(clear), 1)) for clear in found.clear)
    clear = [(raw, "items", "clear_raw", "as labelled"), (modelled, "items", "clear_model", "by the model")]
    draw = "Nearly a draw" + (", and the model is not sure" if found.known is not None else "")
    decide = [(f"{found.adjudicate.sum():,}", "items", "adjudicate", "")]
    reading = ends + described.reading.capitalize()
    cards = [
        _card("Agreement (Krippendorff’s α)", [(alpha, "items", "contested", "")], reading),
        _card("Items with a clear answer", clear, "Two in three or more say the same"),
        _card("Items to adjudicate", decide, draw),
    ]
    if found.votes is not None:
        words = "Agree far less with the others than is usual"
        if found.judged is not None:
            words = "They seem not to look, follow a rule of their own, or are far from the others"
        check = [(f"{found.check.sum():,}", "annotators", "check", "")]
        cards.append(_card("Annotators to check", check, words))
    narrow = found.narrowing()
    if narrow is not None:
        # how far off the label's share may be, in points: half the width of its interval, on average
        now, after = (100 * float(width.mean()) / 2 for width in narrow)
        digits = 0 if round(now) != round(after) else 1
        reaches = ((now, "now"), (after, "with one more"))
        numbers = [(f"±{reach:.{digits}f}", "items", "more", what) for reach, what in reaches]
        off = "Points by which the label’s share may be off"
        cards.append(_card("One more label per item", numbers, off))
    if gold is not None:
        named = (("raw", "most frequent label"), ("model", "model"))
        right = [(sentences.percent(gold[key][0]), "items", "wrong", word) for key, word in named]
        cards.append(_card("Right, where gold is known", right, f"On {gold['n']:,} items"))
    return cards


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
    unsure, near = found.known is not None, np.flatnonzero(found.adjudicate)
    decide = sentences.adjudicate_sentence(annotations.counts, near, unsure=unsure)
    more = sentences.more_sentence(annotations.counts, np.flatnonzero(found.more))
    said += [
        (sentences.parts_sentence(*parts), ("", "", "")),
        (gold["words"] if gold else None, ("items", "wrong", "Show where gold differs")),
        (decide, ("items", "adjudicate", "Show them")),
        (more, ("items", "more", "Show them")),
    ]
    keys = ("table", "preset", "link")
    return [{"says": words} | dict(zip(keys, link, strict=True)) for words, link in said if words is not None]


# ---- since an earlier run -----------------------------------------------------------------------------


def changes(earlier: Path, found: Findings, now: Description, names: list[str]) -> dict[str, Any]:
    """The earlier run's files beside this model and its labels; ``names``: of the annotators, as shown."""
    if not is_ours(earlier) or not (earlier / LABELS).is_file():
        problem = f"{earlier}: is not the directory of a finished run"
        raise DataError(f"{problem}; name one that fit or update wrote")
    before = {row[ITEM]: row for row in _rows(earlier / LABELS)}
    if before and LABEL not in next(iter(before.values())):
        raise DataError(f"{earlier}: its labels are no classes, which have nothing to compare here")
    annotations = found.annotations
    label = annotations.classes[found.model.label_distributions_.argmax(axis=1)]
    n = annotations.counts.sum(axis=1)
    flipped = []
    for m, item in enumerate(map(str, annotations.items)):
        old = before.get(item)
        if old is not None and old[LABEL] != str(label[m]):
            flipped.append([item, old[LABEL], str(label[m]), int(n[m]) - int(old[N_LABELS])])
    verdicts, people = _verdicts(earlier, found, names)
    summary = read_summary(earlier).get("data", {})
    more = annotations.n_labels - int(summary.get("n_labels", 0))
    items = sum(str(item) not in before for item in annotations.items)
    new = sum(str(who) not in people for who in annotations.annotators) if people else 0
    parts = [f"{count(more, 'label')} more, {count(items, 'new item')} and {count(new, 'new annotator')}."]
    if isinstance(summary.get("alpha"), float) and np.isfinite(now.alpha):
        parts.append(f"Krippendorff's α was {summary['alpha']:.2f} and is {now.alpha:.2f}.")
    parts.append(f"{count(len(flipped), 'item')} of {len(before):,} got another label.")
    if found.judged is not None and people:
        parts.append(f"{count(len(verdicts), 'annotator')} got another verdict.")
    says = Sentence(" ".join(parts), "since")
    return {"name": earlier.name, "flipped": flipped, "verdicts": verdicts, "says": says}


def _verdicts(earlier: Path, found: Findings, names: list[str]) -> tuple[list[list[str]], set[str]]:
    """Annotators of both runs whose verdict is another, and all annotators of the earlier one."""
    if not (earlier / ANNOTATORS).is_file():
        return [], set()
    rows = {row["annotator"]: row.get("verdict") for row in _rows(earlier / ANNOTATORS)}
    if found.judged is None:
        return [], set(rows)
    now = zip(map(str, found.annotations.annotators), names, map(str, found.judged.verdict), strict=True)
    changed = [[name, str(rows[who]), new] for who, name, new in now if rows.get(who) not in (None, new)]
    return changed, set(rows)


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
