"""The tables: Markdown for people, and long rows for machines that name the files behind a number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dissensus.evaluate.bootstrap import bootstrap_mean
from dissensus.metrics import kl_rows
from dissensus.numerics import Array
from dissensus.progress import in_words
from reproduction import printed
from reproduction.columns import COLUMNS, FURTHER_COLUMNS, GUIDES
from reproduction.findings import ENSEMBLES, Findings, Number, best_models, ensembles
from reproduction.plan import GOLD_MODELS, HIDDEN_MODELS

Row = dict[str, Any]

MEASURES = {
    "kl": "KL(gold ‖ prediction), nats, lower is better",
    "accuracy": "accuracy",
    "onehot_accuracy": "one-hot accuracy, as the paper's FMM and LDL-NM columns are printed",
}
MODEL_TITLES = {"counts": "smoothed counts", "dawid_skene": "Dawid–Skene", "majority": "majority vote"} | {
    key: guide.title for key, guide in GUIDES.items()
}


# ---- Markdown -----------------------------------------------------------------------------------------


def table(head: Sequence[str], lines: Sequence[str]) -> str:
    """A Markdown table out of its head and its ready-made lines."""
    return "\n".join([line(*head), line(*["---"] * len(head)), *lines])


def line(*cells: object) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(map(str, cells)) + " |"


def yes(holds: bool) -> str:
    """What a table says of a bound."""
    return "yes" if holds else "NO"


# ---- ours beside the paper's --------------------------------------------------------------------------


def paper_figure(measure: str, key: str, name: str) -> printed.Figure | None:
    """What the paper prints for a column's measure on a dataset, if it does."""
    if measure == "kl":
        return printed.KL.get(key, {}).get(name)
    if measure == printed.accuracy_measure(key):
        return printed.ACCURACY.get(key, {}).get(name)
    return None


def as_good(measure: str, ours: float, figure: printed.Figure) -> bool:
    """Whether ours is at least as good as printed."""
    return ours <= figure.value if measure == "kl" else ours >= figure.value


def mean_and_error(number: Number) -> str:
    """Mean ± standard error."""
    error = "" if math.isnan(number.error) else f" ± {number.error:.3f}"
    return f"**{number.mean:.3f}**{error}"


def _beside(measure: str, number: Number, figure: printed.Figure | None) -> str:
    """Ours, and the paper's figure beside it with a sign between."""
    if figure is None:
        return mean_and_error(number)
    signs = ("≤", ">") if measure == "kl" else ("≥", "<")
    sign = signs[0] if as_good(measure, number.mean, figure) else signs[1]
    return f"{mean_and_error(number)} {sign} {figure.value:.3f} ± {figure.error:.3f}"


# ---- Table 1 ------------------------------------------------------------------------------------------


def table_1(findings: Findings) -> tuple[str, list[Row]]:
    """What the datasets are, the paper's figures in brackets."""
    lines, rows = [], []
    for name in findings.plan.asked("table1"):
        cell = findings.measured(findings.plan.description(name))
        paper = printed.TABLE_1.get(name)
        lines.append(_summary_line(name, cell.numbers, paper, findings.plan.datasets[name].seeded))
        for measure in printed.Summary._fields:
            ours = cell.numbers[measure]
            rows.append(csv_row("table1", name, "", measure, ours, getattr(paper, measure, None), cell.path))
    head = ("dataset", "items", "annotators", "labels per item", "classes", "mean entropy", "split")
    return table(head, lines), rows


def _summary_line(name: str, found: Mapping[str, Any], paper: printed.Summary | None, seeded: bool) -> str:
    def pair(ours: str, theirs: object) -> str:
        return ours if paper is None else f"{ours} ({theirs})"

    split = f"{found['train']} / {found['dev']} / {found['test']}{', drawn by us' if seeded else ''}"
    return line(
        name,
        pair(f"{found['items']:,}", paper and paper.items),
        pair(f"{found['annotators']:,}", paper and paper.annotators),
        pair(f"{found['labels_per_item']:.2f}", paper and paper.labels_per_item),
        pair(str(found["classes"]), paper and paper.classes),
        pair(f"{found['entropy']:.3f}", paper and paper.entropy),
        split,
    )


# ---- Table 2 ------------------------------------------------------------------------------------------


def table_2(findings: Findings) -> tuple[str, list[Row]]:
    """K and L chosen on dev, and KL(empirical ‖ hard cluster) of the training items."""
    lines, rows = [], []
    for name in findings.plan.asked("table2"):
        for key in (key for key, guide in GUIDES.items() if guide.item_side):
            sizes = findings.plan.chosen(name, key)
            number, own = _clusters(findings, name, key)
            paper = printed.TABLE_2.get(key, {}).get(name)
            lines.append(
                line(
                    *(name, GUIDES[key].title, _sizes(sizes), mean_and_error(number)),
                    *("–" if own is None else f"{own.mean:.3f}",),
                    *(("–", "–") if paper is None else (_paper_sizes(paper), f"{paper.kl:.3f}")),
                )
            )
            for label, one in (("kl", number), ("kl at the paper's K × L", own)):
                if one is not None:
                    files = " ".join(one.files)
                    rows.append(csv_row("table2", name, key, label, one.mean, paper and paper.kl, files, one))
    head = ("dataset", "model", "K × L chosen on dev", "KL", "KL at the paper's K × L", "paper: K × L", "KL")
    return table(head, lines), rows


def _clusters(findings: Findings, name: str, key: str) -> tuple[Number, Number | None]:
    """KL at the K × L chosen here, and at the paper's."""
    plan = findings.plan
    cell = findings.measured(plan.chosen_clusters(name, key))
    search = plan.search(name, key).path
    theirs = {one.name: one for one in plan.paper_clusters(name)}.get(f"{key}-clusters-paper")
    own = None if theirs is None else findings.measured(theirs)
    return (
        Number(tuple(cell.numbers["kl"]), (cell.path, search)),
        None if own is None else Number(tuple(own.numbers["kl"]), (own.path,)),
    )


def _sizes(sizes: Mapping[str, Any]) -> str:
    return " × ".join(str(value) for value in sizes.values())


def _paper_sizes(paper: printed.Clustering) -> str:
    return " × ".join(str(size) for size in paper[1:] if size is not None)


# ---- Table 3 ------------------------------------------------------------------------------------------


def table_3(findings: Findings, measure: str) -> tuple[str, list[Row]]:
    """One measure of every column on the test items, the paper's figure beside ours."""
    names = findings.plan.asked("table3")
    lines, rows = [], []
    for key, column in COLUMNS.items():
        if key == next(iter(FURTHER_COLUMNS)):
            lines.append(line("*not in the paper:*", *[""] * len(names)))
        cells = []
        for name in names:
            number, figure = findings.column(name, key).number(measure), paper_figure(measure, key, name)
            cells.append(_beside(measure, number, figure))
            rows.append(_table_3_row(name, key, measure, number, figure))
        lines.append(line(column.title, *cells))
    more = _ensemble_lines(findings, measure)
    return table(("model", *names), lines + more[0]), rows + more[1]


def _ensemble_lines(findings: Findings, measure: str) -> tuple[list[str], list[Row]]:
    lines, rows = [], []
    made = {name: ensembles(findings, name) for name in findings.plan.asked("table3")}
    for key, (title, _) in ENSEMBLES.items():
        lines.append(line(title, *(f"**{own[key].test[measure]:.3f}**" for own in made.values())))
        for name, own in made.items():
            files = " ".join(own[key].files)
            rows.append(csv_row("table3", name, key, measure, own[key].test[measure], None, files))
    return lines, rows


def _table_3_row(name: str, key: str, measure: str, number: Number, figure: printed.Figure | None) -> Row:
    row = csv_row("table3", name, key, measure, number.mean, None, " ".join(number.files), number)
    if figure is not None:
        row |= {"paper": figure.value, "paper_error": figure.error}
        row["kept"] = "yes" if as_good(measure, number.mean, figure) else "no"
    return row


def times(findings: Findings) -> str:
    """Processor time of a single pass: the search, and one training with its evaluation."""
    names = findings.plan.asked("table3")
    lines = []
    for key, column in COLUMNS.items():
        cells = [
            in_words(findings.search_seconds(name, key) + findings.column(name, key).seconds_a_run)
            for name in names
        ]
        paper = in_words(printed.SECONDS[key]) if key in printed.SECONDS else "–"
        lines.append(line(column.title, *cells, paper))
    return table(("model", *names, "the paper's, on its slowest dataset"), lines)


# ---- the model that dev would choose ------------------------------------------------------------------

# KL on test of a MiniLM encoder fine-tuned end to end (AdamW 1e-4, two or three epochs), with slack for the
# luck of its seed on jq3: what a model that knows of annotators should reach.
TO_REACH = {"jq1": 0.272, "jq2": 0.287, "jq3": 0.525}


@dataclass(frozen=True)
class Candidate:
    """A model that could be taken."""

    title: str
    dev: float
    test: float
    rows: Array  # (test items,): KL of each


def candidates(findings: Findings, name: str) -> list[Candidate]:
    """Every column and ensemble of a dataset, the lowest KL on dev first."""
    found = []
    for key, column in COLUMNS.items():
        runs = findings.column(name, key)
        dev, test = (runs.number("kl", part).mean for part in ("dev", "test"))
        found.append(Candidate(column.title, dev, test, findings.test_kl(name, key)))
    gold = findings.gold(name, "test")
    for one in ensembles(findings, name).values():
        title = one.title if one.weight is None else f"{one.title} {one.weight:.2f} : {1 - one.weight:.2f}"
        found.append(Candidate(title, one.dev["kl"], one.test["kl"], kl_rows(gold, one.prediction)))
    return sorted(found, key=lambda one: one.dev)


def chosen_table(findings: Findings) -> str:
    """Per dataset, the model that dev chooses and what it reaches on test."""
    lines = []
    for name in findings.plan.asked("table3"):
        best = candidates(findings, name)[0]
        interval = bootstrap_mean(best.rows, n_boot=findings.plan.scale.n_boot)
        reached = f"**{best.test:.4f}** ({interval.low:.3f} to {interval.high:.3f})"
        asked = TO_REACH.get(name)
        verdict = ("–", "–") if asked is None else (f"{asked:.3f}", yes(best.test <= asked))
        lines.append(line(name, best.title, f"{best.dev:.4f}", reached, *verdict))
    return table(("dataset", "chosen on dev", "KL on dev", "KL on test", "the line", "reached"), lines)


# ---- the further measures -----------------------------------------------------------------------------


def hidden_table(findings: Findings) -> tuple[str, list[Row]]:
    """−log P of hidden labels, given item and annotator, and given the item alone."""
    names = findings.plan.asked("hidden")
    lines, rows = [], []
    for model in HIDDEN_MODELS:
        cells = []
        for name in names:
            cell = findings.measured(findings.plan.hidden(name, model))
            for given in ("pair", "item"):
                number = Number(tuple(cell.numbers[given]), (cell.path,))
                cells.append(mean_and_error(number))
                rows.append(csv_row("hidden", name, model, given, number.mean, None, cell.path, number))
        lines.append(line(MODEL_TITLES[model], *cells))
    head = [f"{name}, given {what}" for name in names for what in ("item and annotator", "item")]
    return table(("model", *head), lines), rows


def gold_table(findings: Findings) -> tuple[str, list[Row]]:
    """The share of items whose most likely class is the reference label."""
    names = findings.plan.asked("gold")
    lines, rows = [], []
    for model in GOLD_MODELS:
        cells = {name: findings.measured(findings.plan.gold(name, model)) for name in names}
        lines.append(line(MODEL_TITLES[model], *(f"{one.numbers['accuracy']:.3f}" for one in cells.values())))
        rows += [
            csv_row("gold", name, model, "accuracy", one.numbers["accuracy"], None, one.path)
            for name, one in cells.items()
        ]
    return table(("model", *names), lines), rows


def recovery_table(findings: Findings) -> tuple[str, list[Row]]:
    """How close each model comes to the labels kept back."""
    lines, rows = [], []
    for name in findings.plan.asked("recover"):
        cell = findings.measured(findings.plan.recovery(name))
        for found in best_models(cell.numbers):
            interval = f"**{found['kl']:.4f}** ({found['low']:.4f} to {found['high']:.4f})"
            lines.append(
                line(
                    *(name, found["labels_shown"], found["name"], interval),
                    *(f"{found['counts']:.4f}", f"{found['floor']:.4f}", found["efficiency"]),
                )
            )
            label = f"kl, {found['labels_shown']} labels shown"
            rows.append(csv_row("recover", name, found["name"], label, found["kl"], None, cell.path))
    head = ("dataset", "labels shown", "model", "KL (95 % interval)", "KL of counts", "floor", "worth")
    return table(head, lines), rows


def csv_row(
    table_name: str,
    dataset: str,
    column: str,
    measure: str,
    ours: float,
    paper: float | None,
    files: str,
    number: Number | None = None,
) -> Row:
    """A number with everything known of it."""
    return {
        "table": table_name,
        "dataset": dataset,
        "column": column,
        "measure": measure,
        "ours": ours,
        "error": math.nan if number is None else number.error,
        "deviation": math.nan if number is None else number.deviation,
        "runs": 1 if number is None else len(number.values),
        "paper": math.nan if paper is None else float(paper),
        "paper_error": math.nan,
        "kept": "",
        "cells": files,
    }
