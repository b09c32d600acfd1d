"""Clusters as the page shows them: clusters of items, groups of annotators, and what sets groups apart.

Every model that clusters is brought to one form (``Model.cluster_view``). Both sides are ordered by size, so
that group A is the largest.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dissensus.annotators import sentences
from dissensus.evaluate.sides import Votes, side_of
from dissensus.labels.annotations import Annotations
from dissensus.models import title_of
from dissensus.models.base import Model
from dissensus.numerics import Array, normalised, row_shares

LENS = {"n_item_clusters": 6, "n_annotator_clusters": 3}  # the small PGM that looks for groups
FEWEST_ANNOTATORS = 4  # below that, looking for groups among them is idle
BLOCK = 1 << 16  # labels worked on at a time
TYPICAL = 4  # items shown for a cluster
CONTRASTS = 5  # clusters on which groups are contrasted


@dataclass(frozen=True)
class Grouping:
    """What is common to all models that put items, and perhaps annotators, into clusters."""

    theta: Array  # (K, L, P): what group l answers about cluster k
    items: Array  # (M, K): P(cluster | item)
    annotators: Array | None  # (N, L): P(group | annotator); None: annotators are not grouped
    weights: Array  # (L,): each group's share in the population
    true_classes: bool  # item clusters are the model's true classes, in class order
    source: str  # the model that found them, in a few words
    borrowed: bool = False  # True: not the reported model but a small one fitted beside it

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(item clusters, groups, classes)."""
        K, L, P = self.theta.shape
        return K, L, P

    def expected(self, rows: slice) -> Array:
        """(items, L, P): what each group would answer about some items."""
        K, L, P = self.theta.shape
        return normalised((self.items[rows] @ self.theta.reshape(K, L * P)).reshape(-1, L, P))


def grouping_of(model: Model, annotations: Annotations) -> Grouping | None:
    """The model's own clusters and groups by falling size, empty ones left out; None where it has neither."""
    view = model.cluster_view(annotations.annotator_load)
    if view is None:
        return None
    load, people = annotations.annotator_load, view.annotators if view.theta.shape[1] > 1 else None
    clusters = np.arange(len(view.theta)) if view.true_classes else _by_size(view.items, view.items.sum(0))
    groups = np.zeros(1, dtype=np.intp) if people is None else _by_size(people, load @ people)
    return Grouping(
        view.theta[np.ix_(clusters, groups)],
        normalised(view.items[:, clusters]),
        None if people is None else normalised(people[:, groups]),
        normalised(view.weights[groups]),
        view.true_classes,
        title_of(model),
    )


def _by_size(members: Array, size: Array) -> Any:
    """Clusters that are somebody's most likely one, the largest first."""
    used = np.unique(members.argmax(axis=1))
    return used[np.argsort(-size[used], kind="stable")]


def group_name(place: int) -> str:
    """A, B, …, Z, AA, AB, … for groups of annotators."""
    letters = ""
    place += 1
    while place:
        place, rest = divmod(place - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


# ---- what the page says of them -----------------------------------------------------------------------


def groups_shown(
    annotations: Annotations, own: Grouping | None, votes: Votes | None, seed: int
) -> tuple[Grouping | None, dict[str, Any] | None, Any]:
    """The model's own clusters and groups; a small model's where the labels bear none of the groups out.

    Given as they are, as the page has them, and as the place (annotators,) of each one's group among those
    shown: −1 for none, None without groups.
    """
    from dissensus.models.pgm.model import PGM

    shown, content = own, None if own is None else cluster_content(annotations, own, votes)
    lacking = content is None or not content["groups"]
    if lacking and not annotations.anonymous and annotations.n_annotators >= FEWEST_ANNOTATORS:
        K = min(LENS["n_item_clusters"], annotations.n_items)
        model = PGM(K, LENS["n_annotator_clusters"], seed=seed).fit(annotations)
        lens = grouping_of(model, annotations)
        if lens is not None and lens.annotators is not None:
            lens = replace(lens, borrowed=True)
            other = cluster_content(annotations, lens, votes)
            if content is None or other["groups"]:
                shown, content = lens, other
    if shown is None or shown.annotators is None or not content or not content["groups"]:
        return shown, content, None
    place = {one["code"]: place for place, one in enumerate(content["groups"])}
    return shown, content, np.array([place.get(int(g), -1) for g in shown.annotators.argmax(axis=1)])


def cluster_content(annotations: Annotations, grouping: Grouping, votes: Votes | None) -> dict[str, Any]:
    """Clusters of items, and the groups of annotators that the raw labels bear out."""
    names, counts = [str(name) for name in annotations.classes], annotations.counts
    member, n_labels = grouping.items.argmax(axis=1), counts.sum(axis=1)
    items = []
    for k in range(grouping.sizes[0]):
        inside = np.flatnonzero(member == k)
        # typical are those that most surely are in the cluster, those with more labels first
        order = np.lexsort((inside, -n_labels[inside], -np.round(grouping.items[inside, k], 3)))
        items.append(
            {
                "words": sentences.cluster_sentence(counts, inside, names),
                "n": len(inside),
                "counts": counts[inside].sum(axis=0),
                "items": inside[order][:TYPICAL].tolist(),
            }
        )
    groups, contrasts = list[dict[str, Any]](), list[dict[str, Any]]()
    if votes is not None and grouping.annotators is not None and grouping.sizes[1] > 1:
        group = grouping.annotators.argmax(axis=1)
        groups = supported_groups(annotations, grouping, votes, group, names)
        contrasts = _contrasts(group, groups, votes, names, member) if groups else []
    return {
        "source": grouping.source,
        "borrowed": grouping.borrowed,
        "true_classes": grouping.true_classes,
        "items": items,
        "groups": groups,
        "n_found": grouping.sizes[1] if grouping.annotators is not None else 1,
        "contrasts": contrasts,
    }


# ---- groups -------------------------------------------------------------------------------------------


def supported_groups(
    annotations: Annotations, grouping: Grouping, votes: Votes, group: Any, names: list[str]
) -> list[dict[str, Any]]:
    """Groups whose members agree with one another more than with the others; one alone is no group."""
    steady = np.flatnonzero(steady_groups(annotations, grouping, votes))
    found = side_rows(annotations, votes, group, steady.tolist(), names) if len(steady) > 1 else []
    kept = [one for one in found if one["words"] is not None]
    return [one | {"name": group_name(place)} for place, one in enumerate(kept)] if len(kept) > 1 else []


def steady_groups(annotations: Annotations, grouping: Grouping, votes: Votes) -> Any:
    """(L,): groups that show on items other than those by which their members are told.

    Whoever is put together for giving like answers agrees on them, whether there are groups or not. So
    annotators are told apart by half of the items, and compared on the other half; then the other way round.
    """
    half = np.random.default_rng(0).permutation(annotations.n_items) % 2 == 0
    gaps = []
    for told in (half, ~half):
        member = told_by(annotations, grouping, told)
        tested = votes.on(~told)
        gaps.append([side_of(tested, member == g).gap for g in range(grouping.sizes[1])])
    first, second = np.array(gaps)  # (L, 3) each
    # the mean of two independent differences; half the width of an interval is 1.96 standard errors
    middle = (first[:, 0] + second[:, 0]) / 2
    reach = np.hypot(first[:, 2] - first[:, 0], second[:, 2] - second[:, 0]) / 2
    return middle - reach > 0


def told_by(annotations: Annotations, grouping: Grouping, items: Any) -> Any:
    """(annotators,): the likeliest group of each by their labels on some items, Σ_e log Σ_k w_mk Θ_klp."""
    rows = np.flatnonzero(items[annotations.item])
    weight = np.tile(np.log(np.maximum(grouping.weights, 1e-12)), (annotations.n_annotators, 1))
    for start in range(0, len(rows), BLOCK):
        some = rows[start : start + BLOCK]
        item, label = annotations.item[some], annotations.label[some]
        first, last = int(item[0]), int(item[-1]) + 1
        chances = grouping.expected(slice(first, last))[item - first, :, label]  # labels, groups
        np.add.at(weight, annotations.annotator[some], np.log(np.maximum(chances, 1e-12)))
    return weight.argmax(axis=1)


def side_rows(
    annotations: Annotations, votes: Votes, code: Any, codes: Iterable[int], names: list[str]
) -> list[dict[str, Any]]:
    """Annotators by a code of theirs: how many, their labels, whom they agree with, what they answer."""
    rows = []
    for value in codes:
        members = np.flatnonzero(code == value)
        side = side_of(votes, code == value)
        labels = annotations.annotator_load[members].sum() / max(annotations.n_labels, 1)
        rows.append(
            {
                "code": int(value),
                "n": len(members),
                "labels": float(labels),
                "within": side.within,
                "between": side.between,
                "gap": list(side.gap),
                "n_shared": side.n_shared,
                "own": np.round(1000 * side.own),
                "usual": np.round(1000 * side.usual),
                "words": sentences.group_sentence(side, names, members),
            }
        )
    return rows


def _contrasts(
    group: Any, groups: list[dict[str, Any]], votes: Votes, names: list[str], member: Any
) -> list[dict[str, Any]]:
    """Clusters of items on which two groups differ most in the raw labels, the widest first."""
    codes = [one["code"] for one in groups]
    tables = np.stack([votes.votes(group == code) for code in codes])  # groups, items, classes
    # Where classes part two groups equally, as two always do, the rarer one says more.
    rarity = 1 + 1e-6 * (1 - row_shares(votes.table.sum(axis=0)))
    found: list[dict[str, Any]] = []
    for k in range(int(member.max()) + 1):
        inside = np.flatnonzero(member == k)
        a, b, gap = _widest(tables[:, inside], rarity)
        sides = np.flatnonzero(group == codes[a]), np.flatnonzero(group == codes[b])
        letters = str(groups[a]["name"]), str(groups[b]["name"])
        says = sentences.contrast_sentence(votes, sides, letters, inside, names)
        if says is not None:
            both = (tables[[a, b]][:, inside].sum(axis=2) > 0).all(axis=0)  # as the sentence counts them
            # items on which the first group says the class most and the second least
            one, other = (row_shares(tables[g][inside])[:, says.about["label"]] for g in (a, b))
            order = np.argsort(-np.where(both, one - other, -2.0), kind="stable")[:TYPICAL]
            shown = [int(inside[m]) for m in order if both[m] and one[m] > other[m]]
            shares = [np.round(1000 * row) for row in row_shares(tables[:, inside[both]].sum(axis=1))]
            found.append({"gap": gap, "says": says, "items": shown, "groups": [a, b], "shares": shares})
    return sorted(found, key=lambda one: -float(one["gap"]))[:CONTRASTS]


def _widest(tables: Array, rarity: Array) -> tuple[int, int, float]:
    """The two groups that differ most on items which both labelled, more such items weighing more."""
    best = (0, 1, -1.0)
    for a, b in itertools.permutations(range(len(tables)), 2):
        both = (tables[a].sum(axis=1) > 0) & (tables[b].sum(axis=1) > 0)
        one, other = row_shares(np.stack([tables[a][both].sum(axis=0), tables[b][both].sum(axis=0)]))
        gap = float(((one - other) * rarity).max(initial=0.0)) * math.sqrt(float(both.sum()))
        best = (a, b, gap) if gap > best[2] else best
    return best
