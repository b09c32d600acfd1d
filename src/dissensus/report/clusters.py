"""Clusters of items, and groups of annotators, on the page.

Every model with clusters provides those of the items in one form (``Model.cluster_view``), ordered by size.
Groups of annotators do not come from the model (``annotators/groups.py``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.annotators import sentences
from dissensus.annotators.plan import Findings
from dissensus.evaluate.group_agreement import Votes, compare_group
from dissensus.labels.annotations import Annotations
from dissensus.labels.description import connected_parts
from dissensus.labels.kinds import class_values
from dissensus.models.base import Model
from dissensus.numerics import Array, Indices, normalised, row_shares
from dissensus.report import Content

ITEMS_PER_CLUSTER = 4  # items shown for a cluster
MIN_EXAMPLE_DISTANCE = 0.5  # total variation between the groups' answers to an example


@dataclass(frozen=True)
class Grouping:
    """Clusters of items of a model."""

    items: Array  # (M, K): P(cluster | item)
    true_classes: bool  # item clusters are the model's true classes, in class order


def grouping_of(model: Model, annotations: Annotations) -> Grouping | None:
    """Return the model's non-empty clusters of items, the largest first; None if it has none."""
    view = model.cluster_view(annotations.annotator_load)
    if view is None:
        return None
    used = np.unique(view.items.argmax(axis=1))
    by_size = used[np.argsort(-view.items.sum(axis=0)[used], kind="stable")]
    clusters = np.arange(view.items.shape[1]) if view.true_classes else by_size
    return Grouping(normalised(view.items[:, clusters]), view.true_classes)


# ---- content of the page ------------------------------------------------------------------------------


def cluster_content(findings: Findings, grouping: Grouping | None) -> Content:
    """Return the clusters of items of a model, and the groups of annotators."""
    annotations, items = findings.annotations, list[Content]()
    names, counts = [str(name) for name in annotations.classes], annotations.counts
    beliefs = np.zeros((annotations.n_items, 0)) if grouping is None else grouping.items
    member = beliefs.argmax(axis=1) if grouping is not None else np.zeros(0)
    n_labels = counts.sum(axis=1)
    for k in range(beliefs.shape[1]):
        inside = np.flatnonzero(member == k)
        # the most probable members first, among ties those with more labels
        order = np.lexsort((inside, -n_labels[inside], -np.round(beliefs[inside, k], 3)))
        words, shown = sentences.cluster_sentence(counts, inside, names), inside[order][:ITEMS_PER_CLUSTER]
        items.append({"words": words, "n": len(inside), "counts": counts[inside].sum(axis=0), "items": shown})
    content = {"items": items, "groups": group_content(findings), "examples": example_items(findings)}
    content["says"] = sentences.groups_sentence(findings.groups, annotations)
    if content["says"] is None and findings.votes is not None:
        content["says"] = sentences.no_groups(connected_parts(annotations)[0])
    content["contrast"] = sentences.contrast_sentence(findings.groups, annotations)
    return content | {"true_classes": grouping is not None and grouping.true_classes}


def group_content(findings: Findings) -> list[Content]:
    """Return the two groups, the larger first: name, size, share of the labels, and answers."""
    groups, annotations = findings.groups, findings.annotations
    if groups is None:
        return []
    assert findings.votes is not None
    tables, load = groups.tables(findings.votes), annotations.annotator_load
    both = (tables.sum(axis=2) > 0.5).all(axis=0)
    values = class_values(annotations) if annotations.label_type == "ordinal" else None
    name = sentences.habit(tables, [str(name) for name in annotations.classes], values)[0]
    rows = []
    for g, title in enumerate(("larger group", f"smaller group: {name}" if name else "smaller group")):
        labels = float(load[groups.group == g].sum() / max(load.sum(), 1))
        shares = row_shares(tables[g][both]).mean(axis=0) if both.any() else np.zeros(tables.shape[2])
        n = int((groups.group == g).sum())
        rows.append({"name": title, "n": n, "labels": labels, "answers": np.round(shares, 6)})
    return rows


def example_items(findings: Findings) -> Indices:
    """Return the items on which the most frequent answers of the groups differ most."""
    if findings.groups is None:
        return np.zeros(0, dtype=np.intp)
    assert findings.votes is not None
    first, second = findings.groups.tables(findings.votes)
    n = np.minimum(first.sum(axis=1), second.sum(axis=1))
    distance = np.abs(row_shares(first) - row_shares(second)).sum(axis=1) / 2
    differ = np.flatnonzero((n > 0.5) & (distance > MIN_EXAMPLE_DISTANCE))
    return differ[np.argsort(-(distance * np.sqrt(n))[differ], kind="stable")][:ITEMS_PER_CLUSTER]


def group_rows(annotations: Annotations, votes: Votes, code: Any, codes: Iterable[int]) -> list[Content]:
    """Return one row per code of the annotators: size, labels, agreement and answers."""
    names, rows = [str(name) for name in annotations.classes], []
    for value in codes:
        members = np.flatnonzero(code == value)
        group = compare_group(votes, code == value)
        labels = annotations.annotator_load[members].sum() / max(annotations.n_labels, 1)
        row: Content = {"code": int(value), "n": len(members), "labels": float(labels)}
        row |= {"within": group.within, "between": group.between, "gap": list(group.gap)}
        row |= {"n_shared": group.n_shared, "words": sentences.group_sentence(group, names, members)}
        row |= {"own": np.round(group.answers, 6), "usual": np.round(group.others_answers, 6)}
        rows.append(row)
    return rows
