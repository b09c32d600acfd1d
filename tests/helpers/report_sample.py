"""A crowd with texts of our own: guests' remarks about a canteen, and people who hear irony or do not.

Four kinds of remarks, two groups of annotators and a few who do not read: on ironic remarks the literal
readers answer ``praise`` where the others hear a ``complaint``. Everything else they see alike.
"""

import itertools
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from dissensus.labels.annotations import Annotations
from dissensus.report import page as report_page

CLASSES = ("complaint", "mixed", "off_topic", "praise")

OPENINGS = {
    "praise": ("The {dish} was a delight", "I came back for the {dish}", "Finally a {dish} worth the walk"),
    "complaint": ("The {dish} was cold", "I could not finish the {dish}", "The {dish} tasted of the tin"),
    "irony": (
        "Great, the {dish} was cold again",
        "I do love to wait for a {dish}",
        "Bravo, another grey {dish}",
    ),
    "mixed": ("The {dish} was fine", "I liked the {dish}", "A good {dish}"),
    "off_topic": ("The lift is broken", "Has anybody seen my umbrella", "Wet feet, no {dish} today"),
}
ENDINGS = {
    "praise": ("and everyone was kind.", "well seasoned and warm.", "and I told my whole floor."),
    "complaint": ("and nobody seemed to mind.", "I will bring my own.", "after half an hour in line."),
    "irony": ("what a treat!", "my favourite part of the day.", "five stars for effort."),
    "mixed": ("but the queue was endless.", "the salad less so.", "a pity about the noise."),
    "off_topic": ("since Monday.", "please call me.", "who do I tell?"),
}
DISHES = ("soup", "curry", "pasta", "stew", "salad", "pie", "risotto", "goulash")

# What each group answers about each kind, over CLASSES.
ANSWERS = {
    "praise": ((0.03, 0.09, 0.02, 0.86), (0.03, 0.10, 0.02, 0.85)),
    "complaint": ((0.88, 0.08, 0.02, 0.02), (0.86, 0.10, 0.02, 0.02)),
    "irony": ((0.80, 0.12, 0.02, 0.06), (0.12, 0.10, 0.03, 0.75)),
    "mixed": ((0.22, 0.64, 0.02, 0.12), (0.12, 0.62, 0.02, 0.24)),
    "off_topic": ((0.06, 0.05, 0.84, 0.05), (0.06, 0.05, 0.84, 0.05)),
}
SHARES = {"praise": 0.30, "complaint": 0.22, "irony": 0.18, "mixed": 0.20, "off_topic": 0.10}


def canteen(
    n_items: int = 720, n_annotators: int = 40, labels_per_item: int = 7, n_spam: int = 3, seed: int = 10
) -> Annotations:
    """The labels, with the texts as item table and ``reads_on`` (phone or screen) as annotator table."""
    rng = np.random.default_rng(seed)
    kinds = rng.choice(list(SHARES), n_items, p=list(SHARES.values()))
    texts = [_remark(str(kind), rng) for kind in kinds]
    literal = np.arange(n_annotators) % 3 == 2
    spam = np.arange(n_annotators) < n_spam
    item, annotator, label = [], [], []
    guests = [f"guest {n + 1:02d}" for n in range(n_annotators)]
    for m, n in itertools.product(range(n_items), range(labels_per_item)):
        who = (m * 11 + n * 13 + m // 3) % n_annotators
        chances = np.full(4, 0.25) if spam[who] else ANSWERS[str(kinds[m])][int(literal[who])]
        item.append(f"remark {m + 1:03d}")
        annotator.append(guests[who])
        label.append(CLASSES[rng.choice(4, p=chances)])
    phone = rng.random(n_annotators) < np.where(literal, 0.9, 0.2)
    people = pa.table({"annotator": guests, "reads_on": np.where(phone, "phone", "screen").tolist()})
    items = pa.table({"item": [f"remark {m + 1:03d}" for m in range(n_items)], "text": texts})
    return Annotations.from_arrays(item, annotator, label, classes=CLASSES, items=items, annotators=people)


def _remark(kind: str, rng: np.random.Generator) -> str:
    opening, ending = rng.choice(OPENINGS[kind]), rng.choice(ENDINGS[kind])
    return f"{opening.format(dish=rng.choice(DISHES))}, {ending}"


def page_content(labels: Annotations, model: Any, **settings: Any) -> dict[str, Any]:
    """Return the content of the page before it is written as HTML."""
    with TemporaryDirectory() as folder, patch.object(report_page, "page", return_value="") as written:
        report_page.write_report(labels, model, Path(folder) / "page.html", **settings)
    content: dict[str, Any] = written.call_args.args[0]
    return content
