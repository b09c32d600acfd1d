"""What a person takes away from the page: gold, labels, tasks of other tools, and sentences for a paper."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dissensus._version import __version__
from dissensus.decide.items import DecisionItems
from dissensus.decide.room import Room
from dissensus.labels.description import describe
from dissensus.labels.kinds import parse_set
from dissensus.labels.vocabulary import arrow_table
from dissensus.models import display_name
from dissensus.tables.results import label_columns
from dissensus.tables.write import write_table, write_tasks

ALPHA_ROW = "Krippendorff’s α"
LATEX = {ord(c): f"\\{c}" for c in "&%$#_{}"} | {
    ord("α"): r"$\alpha$",
    ord("’"): "'",
    ord("\\"): r"\textbackslash{}",
}


def gold_table(room: Room) -> str:
    """Return the decided items and their classes as CSV."""
    decisions = [d for d in room.opened().decisions.values() if d.label is not None]
    columns = {"item": [d.item for d in decisions], "label": [d.class_name for d in decisions]}
    columns |= {"note": [d.note for d in decisions], "time": [d.time for d in decisions]}
    return _csv(columns)


def label_table(room: Room) -> str:
    """Return every item's label as CSV: the decision, or the class that is most likely right."""
    items = room.opened()
    labels, answers = _answers(items)
    shares, n_labels = items.truth.label_distributions_, items.labels.counts.sum(axis=1)
    classes = [str(name) for name in items.truth.classes_]
    columns: dict[str, Any] = label_columns(items.ids, answers, classes, shares, n_labels)
    columns["decided"] = [label is not None for label in labels]
    return _csv(columns)


def _answers(items: DecisionItems) -> tuple[list[str | None], list[str]]:
    """Return the decided class of each item, or None, and its label."""
    decided = {d.item: d.class_name for d in items.decisions.values()}
    top = items.truth.classes_[items.truth.label_distributions_.argmax(axis=1)]
    labels = [decided.get(name) for name in items.ids]
    return labels, [str(p) if label is None else label for label, p in zip(labels, top, strict=True)]


def tool_tasks(room: Room, tool: str) -> str:
    """Return the items with their labels as tasks of a labelling tool."""
    items = room.opened()
    decided, answers = _answers(items)
    certainty = items.truth.label_distributions_.max(axis=1)
    rows = []
    for m, name in enumerate(items.ids):
        decision = items.decisions.get(name)
        is_decided, label = decided[m] is not None, parse_set(answers[m]) if items.takes_sets else answers[m]
        row = {"item": name, "text": items.text(m) or name, "label": label, "n_more": 0}
        row |= {
            "action": "decided" if is_decided else "predicted",
            "reason": decision.note if decision else "",
        }
        rows.append(row | {"share": 1.0 if is_decided else float(certainty[m])})
    with tempfile.TemporaryDirectory() as folder:
        path = write_tasks(rows, Path(folder) / "tasks.json", tool, items.class_names)
        return path.read_text(encoding="utf-8")


def facts(items: DecisionItems) -> dict[str, str]:
    """Return what a paper reports about the labels, by name."""
    described, decisions = describe(items.labels), items.decisions.values()
    per_item, n_unsure = described.labels_per_item, sum(d.label is None for d in decisions)
    rows = {"Items": f"{described.n_items:,}", "Labels": f"{described.n_labels:,}"}
    rows["Labels per item"] = f"{per_item.mean:.1f} ({per_item.min} to {per_item.max})"
    if described.n_annotators is not None:
        rows["Annotators"] = f"{described.n_annotators:,}"
    if np.isfinite(described.alpha):
        interval = f"95 % interval {described.alpha_low:.2f} to {described.alpha_high:.2f}, {described.level}"
        rows[ALPHA_ROW] = f"{described.alpha:.2f} ({interval})"
    rows |= {"Items adjudicated": f"{len(decisions) - n_unsure:,}", "Items left undecided": f"{n_unsure:,}"}
    rows |= {"Model of the population": display_name(items.findings.model)}
    return rows | {"Model of the right class": display_name(items.truth), "Version of dissensus": __version__}


def methods(room: Room) -> str:
    """Return a paragraph for the methods section of a paper."""
    fact = facts(room.opened())
    by, alpha = (f" by {fact['Annotators']} annotators" if "Annotators" in fact else ""), fact.get(ALPHA_ROW)
    says = [
        f"{fact['Labels']} labels{by} of {fact['Items']} items; labels per item: {fact['Labels per item']}.",
        f"{ALPHA_ROW} is {alpha}." if alpha else "",
        "The share of each class in the population was estimated with dissensus "
        f"{fact['Version of dissensus']} (model: {fact['Model of the population']}).",
    ]
    if fact["Items adjudicated"] != "0":
        adjudicated, undecided = fact["Items adjudicated"], fact["Items left undecided"]
        says.append(f"Items adjudicated: {adjudicated}; left undecided: {undecided}.")
        model = fact["Model of the right class"]
        says.append(f"Labels of other items are those of the model {model}, trained on the decisions.")
    return " ".join(filter(None, says)) + "\n"


def latex_table(room: Room) -> str:
    """Return the same facts as a LaTeX table that uses the package booktabs."""
    rows = (
        f"{name.translate(LATEX)} & {value.translate(LATEX)} \\\\"
        for name, value in facts(room.opened()).items()
    )
    return "\n".join([r"\begin{tabular}{ll}", r"\toprule", *rows, r"\bottomrule", r"\end{tabular}", ""])


def _csv(columns: dict[str, Any]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return write_table(arrow_table(columns), Path(folder) / "table.csv").read_text(encoding="utf-8")


TAKEOUTS: dict[str, tuple[str, Callable[[Room], str]]] = {
    "gold.csv": ("text/csv", gold_table),
    "labels.csv": ("text/csv", label_table),
    "label-studio.json": ("application/json", lambda room: tool_tasks(room, "label-studio")),
    "argilla.json": ("application/json", lambda room: tool_tasks(room, "argilla")),
    "methods.txt": ("text/plain", methods),
    "table.tex": ("text/plain", latex_table),
    "decisions.jsonl": ("application/x-ndjson", lambda room: room.journal.path.read_text(encoding="utf-8")),
}
