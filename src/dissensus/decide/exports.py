"""Exports of the page: gold, labels, tasks of other tools, and sentences for a paper."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from dissensus._version import __version__
from dissensus.annotators.sentences import count
from dissensus.decide.items import DecisionItems
from dissensus.decide.session import DecisionSession
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


def gold_table(session: DecisionSession) -> str:
    """Return the decided items and their classes as CSV."""
    decisions = [d for d in session.opened().decisions.values() if d.label is not None]
    columns = {"item": [d.item for d in decisions], "label": [d.class_name for d in decisions]}
    columns |= {"note": [d.note for d in decisions], "time": [d.time for d in decisions]}
    return _csv(columns)


def label_table(session: DecisionSession) -> str:
    """Return every item's label as CSV: the decision, or the class that is most likely right."""
    items = session.opened()
    labels, answers = _answers(items)
    shares, n_labels = items.model.label_distributions_, items.labels.counts.sum(axis=1)
    classes = [str(name) for name in items.model.classes_]
    columns: dict[str, Any] = label_columns(items.ids, answers, classes, shares, n_labels)
    columns["decided"] = [label is not None for label in labels]
    return _csv(columns)


def _answers(items: DecisionItems) -> tuple[list[str | None], list[str]]:
    """Return the decided class of each item, or None, and its label."""
    decided = {d.item: d.class_name for d in items.decisions.values()}
    top = items.model.classes_[items.model.label_distributions_.argmax(axis=1)]
    labels = [decided.get(name) for name in items.ids]
    return labels, [str(p) if label is None else label for label, p in zip(labels, top, strict=True)]


def tool_tasks(session: DecisionSession, tool: str) -> str:
    """Return the items with their labels as tasks of a labelling tool."""
    items = session.opened()
    decided, answers = _answers(items)
    certainty = items.model.label_distributions_.max(axis=1)
    rows = []
    for m, name in enumerate(items.ids):
        decision, label = items.decisions.get(name), parse_set(answers[m]) if items.takes_sets else answers[m]
        action = "predicted" if decision is None else "unsure" if decided[m] is None else "decided"
        row: dict[str, Any] = {"item": name, "text": items.text(m) or name, "label": label}
        row |= {"n_more": 0, "action": action, "reason": decision.note if decision else ""}
        rows.append(row | {"share": float(certainty[m]) if decided[m] is None else 1.0})
    question = items.labels.columns_read.get("label", "label")
    with tempfile.TemporaryDirectory() as folder:
        path = write_tasks(rows, Path(folder) / "tasks.json", tool, items.class_names, question=question)
        return path.read_text(encoding="utf-8")


def facts(items: DecisionItems) -> dict[str, str]:
    """Return what a paper reports about the labels, by name."""
    described, decisions = describe(items.labels), items.decisions.values()
    per_item, n_unsure = described.labels_per_item, sum(d.label is None for d in decisions)
    rows = {"Items": f"{described.n_items:,}", "Labels": f"{described.n_labels:,}"}
    rows["Labels per item"] = f"{per_item.mean:.1f} ({per_item.min} to {per_item.max})"
    if described.n_annotators is not None:
        rows["Annotators"] = f"{described.n_annotators:,}"
    if np.isfinite([described.alpha, described.alpha_low]).all():
        interval = f"95 % interval {described.alpha_low:.2f} to {described.alpha_high:.2f}, {described.level}"
        rows[ALPHA_ROW] = f"{described.alpha:.2f} ({interval})"
    rows |= {"Items adjudicated": f"{len(decisions) - n_unsure:,}", "Items left undecided": f"{n_unsure:,}"}
    models = {"Model of the population": items.findings.model, "Model of the right class": items.model}
    rows |= {name: display_name(model).split(" (")[0] for name, model in models.items()}
    return rows | {"Version of dissensus": __version__}


def methods(session: DecisionSession) -> str:
    """Return a paragraph for the methods section of a paper."""
    items = session.opened()
    fact, decisions = facts(items), items.decisions.values()
    by = f" from {fact['Annotators']} annotators" if "Annotators" in fact else ""
    model, truth = fact["Model of the population"], fact["Model of the right class"]
    says = [
        f"{fact['Items']} items received {fact['Labels']} labels{by}, {fact['Labels per item']} per item.",
        f"{ALPHA_ROW} is {fact[ALPHA_ROW]}." if ALPHA_ROW in fact else "",
        "The share of each class in the population was estimated with the model "
        f"{model} of dissensus {fact['Version of dissensus']}{' (a quick fit)' * session.is_fast}.",
    ]
    n_unsure = sum(d.label is None for d in decisions)
    n = len(decisions) - n_unsure
    if n:
        says.append(f"{count(n, 'item')} {'was' if n == 1 else 'were'} adjudicated.")
        learned = ", trained on the decisions" * hasattr(items.model, "confusion_")
        says.append(f"Labels of the other items are those of the model {truth}{learned}.")
    if n_unsure:
        says.append(f"{count(n_unsure, 'item')} {'was' if n_unsure == 1 else 'were'} left undecided.")
    return " ".join(filter(None, says)) + "\n"


def latex_table(session: DecisionSession) -> str:
    """Return the same facts as a LaTeX table that uses the package booktabs."""
    cells = facts(session.opened()).items()
    rows = (f"{name.translate(LATEX)} & {value.translate(LATEX)} \\\\" for name, value in cells)
    return "\n".join([r"\begin{tabular}{ll}", r"\toprule", *rows, r"\bottomrule", r"\end{tabular}", ""])


def _csv(columns: dict[str, Any]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        return write_table(arrow_table(columns), Path(folder) / "table.csv").read_text(encoding="utf-8")


EXPORTS: dict[str, tuple[str, Callable[[DecisionSession], str]]] = {
    "gold.csv": ("text/csv", gold_table),
    "labels.csv": ("text/csv", label_table),
    "label-studio.json": ("application/json", lambda session: tool_tasks(session, "label-studio")),
    "argilla.json": ("application/json", lambda session: tool_tasks(session, "argilla")),
    "methods.txt": ("text/plain", methods),
    "table.tex": ("text/plain", latex_table),
    "decisions.jsonl": (
        "application/x-ndjson",
        lambda session: session.journal.path.read_text(encoding="utf-8"),
    ),
}
