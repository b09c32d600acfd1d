"""What changed between two runs of a growing project: labels, agreement, labels that flipped, verdicts."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from dissensus.annotators.findings import Findings
from dissensus.annotators.kept import ANNOTATORS
from dissensus.annotators.sentences import Sentence, count
from dissensus.errors import DataError
from dissensus.labels.description import Description
from dissensus.tables.labels_file import ITEM, LABEL, N_LABELS
from dissensus.tables.results import is_ours, read_summary

LABELS = "labels.csv"


def changes(earlier: Path, found: Findings, now: Description, names: list[str]) -> dict[str, Any]:
    """The earlier run's files beside this model and its labels; ``names``: of the annotators, as shown."""
    if not is_ours(earlier) or not (earlier / LABELS).is_file():
        raise DataError(
            f"{earlier}: is not the directory of a finished run; name one that fit or update wrote"
        )
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
    known = read_summary(earlier).get("data", {})
    verdicts, people = _verdicts(earlier, found, names)
    return {
        "name": earlier.name,
        "flipped": flipped,
        "verdicts": verdicts,
        "says": _says(found, now, known, before, people, flipped, verdicts),
    }


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


def _says(
    found: Findings,
    now: Description,
    known: dict[str, Any],
    before: dict[str, Any],
    people: set[str],
    flipped: list[Any],
    verdicts: list[Any],
) -> Sentence:
    """All of it in a few sentences."""
    annotations = found.annotations
    more = annotations.n_labels - int(known.get("n_labels", 0))
    items = sum(str(item) not in before for item in annotations.items)
    new = sum(str(who) not in people for who in annotations.annotators) if people else 0
    parts = [f"{count(more, 'label')} more, {count(items, 'new item')} and {count(new, 'new annotator')}."]
    if isinstance(known.get("alpha"), float) and np.isfinite(now.alpha):
        parts.append(f"Krippendorff's α was {known['alpha']:.2f} and is {now.alpha:.2f}.")
    parts.append(f"{count(len(flipped), 'item')} of {len(before):,} got another label.")
    if found.judged is not None and people:
        parts.append(f"{count(len(verdicts), 'annotator')} got another verdict.")
    return Sentence(" ".join(parts), "since")


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
