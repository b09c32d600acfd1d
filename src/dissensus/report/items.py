"""Items on the page: labels and intervals, and reasons for labels that are not the most frequent."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dissensus.annotators import sentences
from dissensus.annotators.plan import Findings
from dissensus.evaluate.group_agreement import most_frequent
from dissensus.numerics import Array
from dissensus.report import Content
from dissensus.report.clusters import Grouping
from dissensus.report.quality import gold_decides

MAX_EXPLANATIONS = 300  # of labels that are not the most frequent


def item_columns(findings: Findings, shown: Grouping | None, texts: Sequence[str] | None) -> Content:
    """Return one list per column, with one entry per item; distributions are in thousandths, row by row."""
    annotations, chances = findings.annotations, findings.model.label_distributions_
    columns: Content = {"id": [str(name) for name in annotations.items], "label": findings.label}
    columns |= {"p": thousandths(chances).ravel(), "n": annotations.counts.sum(axis=1)}
    columns |= {"most": most_frequent(annotations.counts), "agreed": thousandths(findings.raw.max(axis=1))}
    columns["flags"] = findings.flags
    intervals, widths = findings.intervals, findings.narrowing()
    if intervals is not None and widths is not None:
        rows = np.arange(len(findings.label))
        for name in ("low", "high"):
            columns[name] = thousandths(getattr(intervals, name)[rows, findings.label])
        columns |= {"p_top": np.round(intervals.p_top, 2), "next": thousandths(widths[0] - widths[1])}
    moves = getattr(findings.model, "item_difference_", None)
    if moves is not None and len(moves) == len(findings.label):
        columns["moves"] = thousandths(np.nan_to_num(moves))
    if annotations.gold is not None:
        columns["gold"] = annotations.gold
    if texts is not None:
        columns["text"] = [str(text) for text in texts]
    if shown is not None:
        columns["cluster"] = shown.items.argmax(axis=1)
    return columns


def thousandths(shares: Array) -> NDArray[np.int64]:
    """Return 1000 times the shares, rounded."""
    return np.rint(1000 * shares).astype(np.int64)


def overturned(findings: Findings, grouping: Grouping | None) -> list[Content]:
    """Return items whose label is not the single most frequent one, the clearest first, with the reasons."""
    annotations, chances = findings.annotations, findings.model.label_distributions_
    counts = annotations.counts
    predicted, most = findings.label, most_frequent(counts)
    items = np.flatnonzero(findings.overturned)
    lead = chances[items, predicted[items]] - chances[items, most[items]]
    items = items[np.argsort(-lead, kind="stable")][:MAX_EXPLANATIONS]
    names = [str(name) for name in annotations.classes]
    deciding_gold = annotations.gold if gold_decides(findings.model, annotations) else None
    cluster, totals = None, np.zeros((0, annotations.n_classes))
    if grouping is not None and not grouping.true_classes:
        cluster = grouping.items.argmax(axis=1)
        totals = np.zeros((grouping.items.shape[1], annotations.n_classes))
        np.add.at(totals, cluster, counts)  # labels in each cluster
    explanations = []
    for m in items.tolist():
        agreements = similar = None
        both = [predicted[m], most[m]]
        if findings.agreement is not None:
            # mean agreement with others, over all their labels, of the annotators who chose each class
            rows = slice(*annotations.item_pointers[m : m + 2])
            agreement = findings.agreement.agreement[annotations.annotator[rows]]
            label = annotations.label[rows]
            first, second = (agreement[(label == p) & np.isfinite(agreement)] for p in both)
            if len(first) and len(second):
                agreements = float(first.mean()), float(second.mean())
        if cluster is not None:
            others = np.flatnonzero((cluster == cluster[m]) & (np.arange(len(cluster)) != m))
            labels = totals[cluster[m]] - counts[m]
            similar = (others, *(labels[both] / labels.sum()).tolist()) if labels.sum() else None
        gold = deciding_gold is not None and bool(deciding_gold[m] >= 0)
        answer = int(predicted[m])
        why = sentences.overturned_sentence(m, counts[m], answer, names, agreements, similar, gold=gold)
        explanations.append({"item": m, "why": why})
    return explanations
