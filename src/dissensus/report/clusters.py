"""Clusters of items and groups of annotators on the page, and the contrasts between groups.

Every model with clusters provides them in one form (``Model.cluster_view``). Clusters and groups are ordered
by size, so that group A is the largest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dissensus.annotators import sentences
from dissensus.evaluate.group_agreement import Votes, compare_group
from dissensus.labels.annotations import Annotations
from dissensus.models import display_name
from dissensus.models.base import Model
from dissensus.numerics import Array, normalised, row_shares
from dissensus.report import Content

GROUP_MODEL_SIZE = (6, 3)  # item and annotator clusters of the PGM that looks for groups
MIN_ANNOTATORS_TO_GROUP = 4
GROUP_LABELS_PER_CHUNK = 1 << 16
ITEMS_PER_CLUSTER = 4  # items shown for a cluster
MAX_CONTRASTS = 5  # clusters on which groups are contrasted


@dataclass(frozen=True)
class Grouping:
    """Clusters of items, and perhaps groups of annotators, of a model."""

    theta: Array  # (K, L, P): answers of group l to cluster k
    items: Array  # (M, K): P(cluster | item)
    annotators: Array | None  # (N, L): P(group | annotator); None: annotators are not grouped
    weights: Array  # (L,): each group's share in the population
    true_classes: bool  # item clusters are the model's true classes, in class order
    source: str  # title of the model
    borrowed: bool = False  # True: from a small model fitted for the page, not from the reported one

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Numbers of item clusters, groups and classes."""
        K, L, P = self.theta.shape
        return K, L, P

    def expected(self, rows: slice) -> Array:
        """Return (items, L, P): expected answers of each group."""
        K, L, P = self.theta.shape
        return normalised((self.items[rows] @ self.theta.reshape(K, L * P)).reshape(-1, L, P))


def grouping_of(model: Model, annotations: Annotations) -> Grouping | None:
    """Return the model's non-empty clusters and groups, the largest first; None if it has neither."""
    view = model.cluster_view(annotations.annotator_load)
    if view is None:
        return None
    load, people = annotations.annotator_load, view.annotators if view.theta.shape[1] > 1 else None
    clusters = np.arange(len(view.theta)) if view.true_classes else _by_size(view.items, view.items.sum(0))
    groups = np.zeros(1, dtype=np.intp) if people is None else _by_size(people, load @ people)
    theta, items = view.theta[np.ix_(clusters, groups)], normalised(view.items[:, clusters])
    annotators = None if people is None else normalised(people[:, groups])
    weights = normalised(view.weights[groups])
    return Grouping(theta, items, annotators, weights, view.true_classes, display_name(model))


def _by_size(members: Array, size: Array) -> Any:
    """Return the clusters that are the most likely one of some row, the largest first."""
    used = np.unique(members.argmax(axis=1))
    return used[np.argsort(-size[used], kind="stable")]


def group_name(index: int) -> str:
    """Return A, B, …, Z, AA, AB, … for groups of annotators."""
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


# ---- content of the page ------------------------------------------------------------------------------


def groups_shown(
    annotations: Annotations, grouping: Grouping | None, votes: Votes | None, seed: int
) -> tuple[Grouping | None, Content | None, Any]:
    """Return the model's clusters and groups; those of a small PGM if the labels confirm none of the groups.

    Returns the grouping, the content of the page, and (annotators,) the index of each annotator's group: −1
    for none, None without groups.
    """
    from dissensus.models.pgm.model import PGM

    shown, content = grouping, None if grouping is None else cluster_content(annotations, grouping, votes)
    no_groups = content is None or not content["groups"]
    if no_groups and not annotations.anonymous and annotations.n_annotators >= MIN_ANNOTATORS_TO_GROUP:
        K, L = GROUP_MODEL_SIZE
        model = PGM(min(K, annotations.n_items), L, seed=seed).fit(annotations)
        small = grouping_of(model, annotations)
        if small is not None and small.annotators is not None:
            small = replace(small, borrowed=True)
            other = cluster_content(annotations, small, votes)
            if content is None or other["groups"]:
                shown, content = small, other
    if shown is None or shown.annotators is None or not content or not content["groups"]:
        return shown, content, None
    index = {group["code"]: i for i, group in enumerate(content["groups"])}
    return shown, content, np.array([index.get(int(g), -1) for g in shown.annotators.argmax(axis=1)])


def cluster_content(annotations: Annotations, grouping: Grouping, votes: Votes | None) -> Content:
    """Return the clusters of items, and the groups of annotators that the raw labels confirm."""
    names, counts = [str(name) for name in annotations.classes], annotations.counts
    member, n_labels = grouping.items.argmax(axis=1), counts.sum(axis=1)
    items = []
    for k in range(grouping.sizes[0]):
        inside = np.flatnonzero(member == k)
        # the most probable members first, among ties those with more labels
        order = np.lexsort((inside, -n_labels[inside], -np.round(grouping.items[inside, k], 3)))
        words, shown = sentences.cluster_sentence(counts, inside, names), inside[order][:ITEMS_PER_CLUSTER]
        items.append({"words": words, "n": len(inside), "counts": counts[inside].sum(axis=0), "items": shown})
    groups, contrasts = list[Content](), list[Content]()
    if votes is not None and grouping.annotators is not None and grouping.sizes[1] > 1:
        # groups whose members agree with one another more than with the others, if at least two
        group, confirmed = grouping.annotators.argmax(axis=1), confirmed_groups(annotations, grouping, votes)
        rows = group_rows(annotations, votes, group, np.flatnonzero(confirmed))
        rows = [row for row in rows if row["words"] is not None]
        if len(rows) > 1:
            groups = [row | {"name": group_name(i)} for i, row in enumerate(rows)]
            contrasts = _contrasts(group, groups, votes, names, member, grouping.true_classes)
    n_groups = grouping.sizes[1] if grouping.annotators is not None else 1
    content = {name: getattr(grouping, name) for name in ("source", "borrowed", "true_classes")}
    return content | {"items": items, "groups": groups, "n_found": n_groups, "contrasts": contrasts}


# ---- groups -------------------------------------------------------------------------------------------


def confirmed_groups(annotations: Annotations, grouping: Grouping, votes: Votes) -> Any:
    """Return (L,): groups whose agreement holds on items that were not used to assign their members.

    Annotators grouped by similar answers agree on the same items even if there are no groups. They are
    therefore assigned by one half of the items and compared on the other half, and vice versa.
    """
    half = np.random.default_rng(0).permutation(annotations.n_items) % 2 == 0
    gaps = []
    for assigning in (half, ~half):
        member = assign_groups(annotations, grouping, assigning)
        tested = votes.on(~assigning)
        gaps.append([compare_group(tested, member == g).gap for g in range(grouping.sizes[1])])
    first, second = np.array(gaps)  # (L, 3) each
    # mean of two independent differences, and the half-width of its 95 % interval
    mean = (first[:, 0] + second[:, 0]) / 2
    half_width = np.hypot(first[:, 2] - first[:, 0], second[:, 2] - second[:, 0]) / 2
    return mean - half_width > 0


def assign_groups(annotations: Annotations, grouping: Grouping, items: Any) -> Any:
    """Return (annotators,): the most likely group by the labels of some items, Σ_e log Σ_k w_mk Θ_klp."""
    rows = np.flatnonzero(items[annotations.item])
    weight = np.tile(np.log(np.maximum(grouping.weights, 1e-12)), (annotations.n_annotators, 1))
    for start in range(0, len(rows), GROUP_LABELS_PER_CHUNK):
        chunk = rows[start : start + GROUP_LABELS_PER_CHUNK]
        item, label = annotations.item[chunk], annotations.label[chunk]
        first, last = int(item[0]), int(item[-1]) + 1
        chances = grouping.expected(slice(first, last))[item - first, :, label]  # labels, groups
        np.add.at(weight, annotations.annotator[chunk], np.log(np.maximum(chances, 1e-12)))
    return weight.argmax(axis=1)


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


def _contrasts(
    group: Any, groups: list[Content], votes: Votes, names: Any, member: Any, true_classes: bool
) -> list[Content]:
    """Return the clusters of items on which two groups differ most in the raw labels, largest gap first."""
    codes = [row["code"] for row in groups]
    tables = np.stack([votes.votes(group == code) for code in codes])  # groups, items, classes
    # among classes with equal gaps (as always with two classes), prefer the rarer one
    rarity = 1 + 1e-6 * (1 - row_shares(votes.table.sum(axis=0)))
    contrasts: list[Content] = []
    for k in range(int(member.max()) + 1):
        inside = np.flatnonzero(member == k)
        a, b, gap = _widest(tables[:, inside], rarity)
        members = np.flatnonzero(group == codes[a]), np.flatnonzero(group == codes[b])
        letters = str(groups[a]["name"]), str(groups[b]["name"])
        cluster = f"true class {sentences.quoted(names[k])}" if true_classes else f"item cluster {k + 1}"
        says = sentences.contrast_sentence(votes, members, letters, inside, names, cluster)
        if says is not None:
            both = (tables[[a, b]][:, inside].sum(axis=2) > 0).all(axis=0)  # items of the sentence
            # items with the largest gap between the groups' shares of the class
            first, second = (row_shares(tables[g][inside])[:, says.about["label"]] for g in (a, b))
            order = np.argsort(-np.where(both, first - second, -2.0), kind="stable")[:ITEMS_PER_CLUSTER]
            shown = [int(inside[m]) for m in order if both[m] and first[m] > second[m]]
            shares = [np.round(row, 6) for row in row_shares(tables[:, inside[both]].sum(axis=1))]
            contrasts.append({"gap": gap, "says": says, "items": shown, "groups": [a, b], "shares": shares})
    return sorted(contrasts, key=lambda row: -float(row["gap"]))[:MAX_CONTRASTS]


def _widest(tables: Array, rarity: Array) -> tuple[int, int, float]:
    """Return the two groups with the largest gap on shared items, times √items, and that gap."""
    best = (0, 1, -1.0)
    for a, b in itertools.permutations(range(len(tables)), 2):
        both = (tables[a].sum(axis=1) > 0) & (tables[b].sum(axis=1) > 0)
        first, second = row_shares(np.stack([tables[a][both].sum(axis=0), tables[b][both].sum(axis=0)]))
        gap = float(((first - second) * rarity).max(initial=0.0)) * math.sqrt(float(both.sum()))
        best = (a, b, gap) if gap > best[2] else best
    return best
