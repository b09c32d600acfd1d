"""Decisions replayed with gold labels: what deciding the proposed items gains, against items at random.

python -m experiments.decide [--data DIR] [--finished FILE]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dissensus as ds
from dissensus.annotators.plan import Findings
from dissensus.decide.items import DecisionItems
from dissensus.evaluate.gold import judged_items, right_rows
from dissensus.evaluate.truth import choose_truth
from dissensus.models.confusion import gold_prior
from dissensus.params import with_settings
from dissensus.tables.decisions import Decision
from dissensus.workflow.refine import fit
from experiments.runner import (
    Measurements,
    Values,
    dataset_names,
    line,
    page_parser,
    read_dataset,
    table,
    write_page,
)

SHARE = 0.05  # of the judged items that are decided
BATCHES = 20  # fits of the truth while they are decided
RANDOM_DRAWS = 5
N_BOOT = 10_000


def decided(labels: ds.Annotations, items: NDArray[np.intp]) -> dict[str, Decision]:
    """Return decisions that equal the gold labels of the items."""
    names, ids = labels.classes[np.asarray(labels.gold)[items]], labels.items[items]
    return {str(m): Decision(n, "", str(m), str(p)) for n, (m, p) in enumerate(zip(ids, names, strict=True))}


def with_decisions(labels: ds.Annotations, items: NDArray[np.intp]) -> ds.Annotations:
    """Return the labels with the gold labels of the given items alone."""
    gold = np.full(labels.n_items, -1, dtype=np.int32)
    gold[items] = np.asarray(labels.gold)[items]
    return replace(labels, gold=gold)


def trained(labels: ds.Annotations, model: Any, items: NDArray[np.intp]) -> Any:
    """Fit the model of the truth again, with the gold labels of the given items."""
    return with_settings(model, {}).fit(labels, prior=gold_prior(with_decisions(labels, items)))


def replay(labels: ds.Annotations) -> Values:
    """Decide the proposed items, and items at random; return the changes in accuracy over judged items."""
    judged = judged_items(labels)
    n = max(1, round(SHARE * len(judged)))
    open_labels = replace(labels, gold=None)
    model = fit(open_labels, fast=True, settings={"use_features": False}, progress=False).model
    start: Any = choose_truth(open_labels, progress=False).model
    findings = Findings(model, open_labels, model.intervals(), *(None,) * 4)
    items = DecisionItems(findings, start, {}, Path())
    proposed = np.zeros(0, dtype=np.intp)
    for size in np.diff(np.linspace(0, n, min(BATCHES, n) + 1).round().astype(int)):
        order = items.order[np.isin(items.order, judged)]
        proposed = np.concatenate([proposed, order[:size]])
        truth = trained(labels, start, proposed)
        items = replace(items, truth=truth, decisions=decided(labels, proposed))
    before = right_rows(labels, start.label_distributions_, judged).mean()

    def gain(truth: Any) -> float:
        return float(right_rows(labels, truth.label_distributions_, judged).mean() - before)

    drawn = (np.random.default_rng(draw).permutation(judged)[:n] for draw in range(RANDOM_DRAWS))
    at_random = [gain(trained(labels, start, chosen)) for chosen in drawn]
    values = {
        "judged": len(judged),
        "decided": n,
        "before": float(before),
        "adjudicate": int(findings.adjudicate.sum()),
    }
    return values | {"proposed": gain(items.truth), "random": float(np.mean(at_random))}


def ratio(rows: Sequence[Values]) -> tuple[float, float, float]:
    """Return the ratio of the mean gains with its 95 % interval, by resampling datasets."""
    gains = np.array([[row["proposed"], row["random"]] for row in rows])
    drawn = np.random.default_rng(0).integers(len(gains), size=(N_BOOT, len(gains)))
    means = gains[drawn].mean(axis=1)
    low, high = np.quantile(means[:, 0] / np.maximum(means[:, 1], 1e-9), [0.025, 0.975])
    value = gains[:, 0].mean() / gains[:, 1].mean()
    return float(value), float(low), float(high)


PAGE = """# Decisions

Written by `python -m experiments.decide`. On the page of `dissensus open`, {share:.0%} of the items with gold
labels are decided as their gold label says: those that the page proposes, and as many at random (mean of
{draws} draws). The model of the right class is fitted again after every twentieth of the decisions. The table
shows the change in accuracy over all items with gold, in percentage points; decided items count.

{table}

Decisions on the proposed items raise accuracy {value:.1f} times as much as decisions at random (ratio of
the means; 95 % interval over datasets {low:.1f} to {high:.1f}).
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure all datasets with gold labels, and write the page."""
    options = page_parser("experiments.decide", __doc__ or "").parse_args(arguments)
    measurements, rows, lines = Measurements(options.finished), list[Values](), list[str]()
    for name in dataset_names(options.data, "gold"):
        row = measurements.get(name, lambda name=name: replay(read_dataset(options.data / name)))
        rows.append(row)
        cells = [f"{100 * row[key]:+.2f}" for key in ("proposed", "random")]
        lines.append(line(name, row["judged"], row["decided"], f"{row['before']:.4f}", *cells))
    means = [f"**{100 * np.mean([row[key] for row in rows]):+.2f}**" for key in ("proposed", "random")]
    lines.append(line("**mean**", "", "", f"{np.mean([row['before'] for row in rows]):.4f}", *means))
    value, low, high = ratio(rows)
    head = ["dataset", "items with gold", "decided", "accuracy before", "proposed items", "items at random"]
    fields = {"share": SHARE, "draws": RANDOM_DRAWS, "value": value, "low": low, "high": high}
    write_page(options.output, PAGE.format(table=table(head, lines), **fields))


if __name__ == "__main__":
    main()
