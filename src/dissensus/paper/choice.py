"""Which model would be taken: the one with the lowest KL on dev."""

from __future__ import annotations

from dataclasses import dataclass

from dissensus.evaluation.intervals import bootstrap_mean
from dissensus.metrics import kl_rows
from dissensus.paper.answers import test_rows
from dissensus.paper.columns import COLUMNS
from dissensus.paper.datasets import Array
from dissensus.paper.findings import Findings
from dissensus.paper.pages import line, table, yes

# KL on test of a MiniLM encoder fine-tuned end to end (AdamW 1e-4, two or three epochs), with slack for the
# luck of its seed on jq3: what a model that knows of annotators should reach.
LINE = {"jq1": 0.272, "jq2": 0.287, "jq3": 0.525}


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
        found.append(Candidate(column.title, dev, test, test_rows(findings, name, key)))
    gold = findings.gold(name, "test")
    for one in findings.ensembles(name).values():
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
        asked = LINE.get(name)
        verdict = ("–", "–") if asked is None else (f"{asked:.3f}", yes(best.test <= asked))
        lines.append(line(name, best.title, f"{best.dev:.4f}", reached, *verdict))
    return table(("dataset", "chosen on dev", "KL on dev", "KL on test", "the line", "reached"), lines)
