"""Top of the page: cards that link to the tables they count, the next steps, and changes since a run."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.annotators import sentences
from dissensus.annotators.plan import Findings, people_left
from dissensus.annotators.sentences import Sentence, count
from dissensus.annotators.verdicts import ANNOTATORS_FILE
from dissensus.errors import DataError
from dissensus.labels.description import Description
from dissensus.report import Content
from dissensus.tables.results import ITEM, LABEL, N_LABELS, is_result_directory, read_rows, read_summary

RUN_LABELS_FILE = "labels.csv"


def summary_cards(findings: Findings, described: Description, gold: Any) -> list[Content]:
    """Return the cards: a title, numbers that each link to a table, and a note."""
    counts = findings.annotations.counts
    alpha = f"{described.alpha:.2f}" if math.isfinite(described.alpha) else "–"
    low, high = described.alpha_low, described.alpha_high
    interval = f"95\u00a0% interval {low:.2f} to {high:.2f}. " if math.isfinite(low) else ""
    raw, modelled = (sentences.percent(clear.sum() / max(len(clear), 1)) for clear in findings.clear)
    clear = [(modelled, "items", "clear_model", "according to the model")]
    if not always_clear(counts):
        clear.insert(0, (raw, "items", "clear_raw", "in the raw labels"))
    unsure = ", and the model is unsure which answer is more common"
    least = sentences.labels_to_adjudicate(counts)
    tied = f"Nearly tied, with {least} or more labels" + unsure * (findings.intervals is not None)
    adjudicate = [(f"{findings.adjudicate.sum():,}", "items", "adjudicate", "")]
    agreement = [(alpha, "items", "contested", "")]
    cards = [
        top_card("Agreement (Krippendorff’s α)", agreement, interval + described.reading.capitalize())
        | {"scale": [described.alpha, low, high] if math.isfinite(low) else None},
        top_card("Items with a clear answer", clear, "One class has two thirds or more of the distribution"),
        top_card("Items to adjudicate", adjudicate, tied),
    ]
    if findings.votes is not None:
        note = "Those who agree clearly less with the others than two others do on the same items"
        if findings.verdicts is not None:
            note += "; spam and systematic errors"
        check = [(f"{findings.check.sum():,}", "annotators", "check", "")]
        cards.append(top_card("Annotators to talk to first", check, note))
    widths = findings.narrowing()
    if widths is not None:
        # mean width of the interval of the label's share, in percentage points
        now, after = (100 * float(width.mean()) for width in widths)
        digits = 0 if round(now) != round(after) else 1
        means = {"now": now, "with one more": after}
        numbers = [(f"{mean:.{digits}f} pp", "items", "more", when) for when, mean in means.items()]
        note = "Mean width of the 90\u00a0% interval of the label’s share, in percentage points"
        cards.append(top_card("Effect of one more label per item", numbers, note))
    if gold is not None:
        sources = (("raw", "most frequent label"), ("model", "model"))
        right = [(sentences.percent(gold[key][0]), "items", "wrong", name) for key, name in sources]
        difficult = ", on which annotators agree less than on others" * gold["difficult"]
        cards.append(top_card("Accuracy on gold labels", right, f"On {count(gold['n'], 'item')}{difficult}"))
    return cards


def always_clear(counts: NDArray[Any]) -> bool:
    """Return True if any labels would leave two thirds for one class, as 3 labels in 2 classes do."""
    n = counts.sum(axis=1)
    # the most frequent of P answers has at least ⌈n / P⌉ of n labels
    return bool((3 * np.ceil(n / counts.shape[1]) >= 2 * n).all())


def top_card(title: str, numbers: list[tuple[str, str, str, str]], words: str) -> Content:
    """Return a card; its numbers have a value, the table that they count, its filter, and a note."""
    keys = ("value", "table", "preset", "what")
    return {"title": title, "numbers": [dict(zip(keys, row, strict=True)) for row in numbers], "words": words}


def steps(findings: Findings, described: Description, gold: Any, names: list[str]) -> list[Content]:
    """Return sentences on problems and what to do about them, each with a link; the most serious first."""
    annotations, classes = findings.annotations, [str(name) for name in findings.annotations.classes]
    alpha = described.alpha, described.alpha_low, described.alpha_high, described.pairwise_agreement
    parts = described.n_parts, described.largest_part_items, described.n_items
    contested = ("items", "contested", "Show items without a clear answer")
    rows: list[tuple[Any, tuple[str, str, str]]] = []
    if findings.votes is not None:
        rows.append((findings.check_sentence(names), ("annotators", "check", "Show these annotators")))
    unsure, tied = findings.intervals is not None, np.flatnonzero(findings.adjudicate)
    adjudicate = sentences.adjudicate_sentence(annotations.counts, tied, unsure=unsure)
    by_all = not people_left(annotations, np.ones(annotations.n_annotators, bool))[findings.more].any()
    more = sentences.more_sentence(annotations.counts, np.flatnonzero(findings.more), by_all=by_all)
    rows += [
        (sentences.groups_sentence(findings.groups, annotations), ("groups", "", "Show the groups")),
        (sentences.agreement_sentence(*alpha), contested),
        (sentences.rivals_sentence(annotations.counts, classes), contested),
        (sentences.parts_sentence(*parts), ("", "", "")),
        (gold["words"] if gold else None, ("items", "wrong", "Show items that differ from gold")),
        (adjudicate, ("items", "adjudicate", "Show these items")),
        (more, ("items", "more", "Show these items")),
    ]
    keys = ("table", "preset", "link")
    return [{"says": text} | dict(zip(keys, link, strict=True)) for text, link in rows if text is not None]


# ---- changes since an earlier run ---------------------------------------------------------------------


def changes(earlier: Path, findings: Findings, now: Description, names: list[str]) -> Content:
    """Compare with an earlier run's files; ``names`` are the annotators' names on the page."""
    if not is_result_directory(earlier) or not (earlier / RUN_LABELS_FILE).is_file():
        problem = f"{earlier} is not the directory of a finished run"
        raise DataError(f"{problem}; give one written by fit or update")
    before = {row[ITEM]: row for row in read_rows(earlier / RUN_LABELS_FILE)}
    if before and LABEL not in next(iter(before.values())):
        raise DataError(f"{earlier}: its labels are not classes; only classes can be compared")
    annotations = findings.annotations
    label = annotations.classes[findings.label]
    n = annotations.counts.sum(axis=1)
    flipped = []
    for m, item in enumerate(map(str, annotations.items)):
        row = before.get(item)
        if row is not None and row[LABEL] != str(label[m]):
            flipped.append([item, row[LABEL], str(label[m]), int(n[m]) - int(row[N_LABELS])])
    verdicts, people = list[list[str]](), dict[str, str | None]()
    if (earlier / ANNOTATORS_FILE).is_file():
        people = {row["annotator"]: row.get("verdict") for row in read_rows(earlier / ANNOTATORS_FILE)}
    if findings.verdicts is not None:
        old_verdicts = [people.get(str(name)) for name in annotations.annotators]
        for name, old, new in zip(names, old_verdicts, findings.verdicts.verdict, strict=True):
            if old not in (None, new):
                verdicts.append([name, str(old), str(new)])
    summary = read_summary(earlier).get("data", {})
    more = annotations.n_labels - int(summary.get("n_labels", 0))
    items = sum(str(item) not in before for item in annotations.items)
    annotators = sum(str(name) not in people for name in annotations.annotators) if people else 0
    labels = count(abs(more), f"{'more' if more >= 0 else 'fewer'} label")
    parts = [f"{labels}, {count(items, 'new item')} and {count(annotators, 'new annotator')}."]
    if isinstance(summary.get("alpha"), float) and np.isfinite(now.alpha):
        parts.append(f"Krippendorff's α changed from {summary['alpha']:.2f} to {now.alpha:.2f}.")
    parts.append(f"{len(flipped):,} of {count(len(before), 'item')} changed label.")
    if findings.verdicts is not None and people:
        parts.append(f"{count(len(verdicts), 'annotator')} changed verdict.")
    says = Sentence(" ".join(parts), "since")
    return {"name": earlier.name, "flipped": flipped, "verdicts": verdicts, "says": says}
