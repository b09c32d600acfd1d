"""Verdicts as a finished run keeps them: read back without the model, in no time."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from dissensus.tables.results import is_ours, read_summary

ANNOTATORS = "annotators.csv"
COLUMNS = (
    "annotator",
    "n_labels",
    "verdict",
    "probability",
    "model_agreement",
    "bias_of",
    "bias",
    "bias_error",
    "information",
    "information_low",
    "information_high",
    "spam_probability",
    "minority_probability",
    "error_probability",
    "view",
    "evidence",
)
WORDS = ("annotator", "verdict", "bias_of", "evidence")
WHOLE = ("n_labels", "view")  # the other columns are numbers


def read_verdicts(place: Path) -> tuple[dict[str, list[Any]], str] | None:
    """The columns of a run's verdicts, and how many views there are, in words; None where it has none."""
    table = place / ANNOTATORS
    if not is_ours(place) or not table.is_file():
        return None
    words = read_summary(place).get("views")
    if not isinstance(words, str):
        return None
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    columns: dict[str, list[Any]] = {name: [row[name] for row in rows] for name in COLUMNS}
    for name in set(COLUMNS) - set(WORDS):
        texts = columns[name]
        columns[name] = [int(text) if name in WHOLE else float(text or "nan") for text in texts]
    return columns, words
