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

    @property
    def divides(self) -> bool:
        """Whether annotators fall into more groups than one."""
        return self.annotators is not None and self.sizes[1] > 1

    @property
    def cluster_shares(self) -> Array:
        """(K,): what share of the items is in each cluster."""
        return normalised(self.items.sum(axis=0))

    @property
    def cluster_answers(self) -> Array:
        """(K, P): what the population answers about each cluster, Σ_l π_l Θ_kl."""
        return np.asarray(np.einsum("l,klp->kp", self.weights, self.theta))

    def expected(self, rows: slice) -> Array:
        """(items, L, P): what each group would answer about some items."""
        K, L, P = self.theta.shape
        return normalised((self.items[rows] @ self.theta.reshape(K, L * P)).reshape(-1, L, P))


def grouping_of(model: Model, annotations: Annotations) -> Grouping | None:
    """The model's own clusters and groups; None where it has neither."""
    view = model.cluster_view(annotations.annotator_load)
    if view is None:
        return None
    people = view.annotators if view.theta.shape[1] > 1 else None
    found = Grouping(view.theta, view.items, people, view.weights, view.true_classes, title_of(model))
    return _ordered(found, annotations.annotator_load)


def _ordered(found: Grouping, load: Any) -> Grouping:
    """Clusters and groups by falling size, those that nothing belongs to left out."""
    clusters = np.arange(found.sizes[0]) if found.true_classes else _by_size(found.items, found.items.sum(0))
    groups = np.zeros(1, dtype=np.intp)
    if found.annotators is not None:
        groups = _by_size(found.annotators, load @ found.annotators)
    return Grouping(
        found.theta[np.ix_(clusters, groups)],
        normalised(found.items[:, clusters]),
        None if found.annotators is None else normalised(found.annotators[:, groups]),
        normalised(found.weights[groups]),
        found.true_classes,
        found.source,
        found.borrowed,
    )


def _by_size(members: Array, size: Array) -> Any:
    """Clusters that are somebody's most likely one, the largest first."""
    used = np.unique(members.argmax(axis=1))
    return used[np.argsort(-size[used], kind="stable")]


def borrowed_grouping(annotations: Annotations, seed: int = 0) -> Grouping | None:
    """Groups of annotators as a small PGM sees them, for models that do not look for any."""
    from dissensus.models.pgm.model import PGM

    if annotations.anonymous or annotations.n_annotators < FEWEST_ANNOTATORS:
        return None
    K = min(LENS["n_item_clusters"], annotations.n_items)
    model = PGM(K, LENS["n_annotator_clusters"], seed=seed).fit(annotations)
    found = grouping_of(model, annotations)
    return None if found is None or found.annotators is None else replace(found, borrowed=True)


def group_name(place: int) -> str:
    """A, B, …, Z, AA, AB, … for groups of annotators."""
    letters = ""
    place += 1
    while place:
        place, rest = divmod(place - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


# ---- what the page says of them -----------------------------------------------------------------------


def cluster_content(annotations: Annotations, grouping: Grouping, votes: Votes | None) -> dict[str, Any]:
    """Clusters of items, and the groups of annotators that the raw labels bear out."""
    names = [str(name) for name in annotations.classes]
    member = grouping.items.argmax(axis=1)
    groups = supported_groups(annotations, grouping, votes, names) if votes is not None else []
    return {
        "source": grouping.source,
        "borrowed": grouping.borrowed,
        "true_classes": grouping.true_classes,
        "items": [_item_cluster(grouping, k, member, names, annotations) for k in range(grouping.sizes[0])],
        "groups": groups,
        "n_found": grouping.sizes[1] if grouping.divides else 1,
        "contrasts": _contrasts(grouping, groups, votes, names, member) if votes is not None else [],
    }


def groups_shown(
    annotations: Annotations, own: Grouping | None, votes: Votes | None, seed: int
) -> tuple[Grouping | None, dict[str, Any] | None]:
    """The model's own clusters and groups; a small model's where the labels bear none of the groups out."""
    content = None if own is None else cluster_content(annotations, own, votes)
    if content is not None and content["groups"]:
        return own, content
    lens = borrowed_grouping(annotations, seed)
    other = None if lens is None else cluster_content(annotations, lens, votes)
    if other is not None and (content is None or other["groups"]):
        return lens, other
    return own, content


def _item_cluster(
    grouping: Grouping, k: int, member: Any, names: list[str], annotations: Annotations
) -> dict[str, Any]:
    inside = np.flatnonzero(member == k)
    return {
        "words": sentences.cluster_sentence(annotations.counts, inside, names),
        "n": len(inside),
        "counts": annotations.counts[inside].sum(axis=0),
        "items": _typical(grouping.items[:, k], member == k, annotations),
    }


def _typical(belief: Array, members: Any, annotations: Annotations) -> list[int]:
    """The items that most surely are in a cluster, those with more labels first."""
    places = np.flatnonzero(members)
    n_labels = annotations.counts.sum(axis=1)[places]
    order = np.lexsort((places, -n_labels, -np.round(belief[places], 3)))
    return [int(m) for m in places[order][:TYPICAL]]


# ---- groups -------------------------------------------------------------------------------------------


def supported_groups(
    annotations: Annotations, grouping: Grouping, votes: Votes, names: list[str]
) -> list[dict[str, Any]]:
    """Groups whose members agree with one another more than with the others; one alone is no group."""
    if grouping.annotators is None or not grouping.divides:
        return []
    group = grouping.annotators.argmax(axis=1)
    steady = np.flatnonzero(steady_groups(annotations, grouping, votes))
    found = side_rows(annotations, votes, group, steady.tolist(), names) if len(steady) > 1 else []
    kept = [one for one in found if one["words"] is not None]
    if len(kept) < 2:
        return []
    return [one | {"name": group_name(place)} for place, one in enumerate(kept)]


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


def page_groups(annotations: Annotations, grouping: Grouping | None, content: Any) -> Any:
    """(annotators,): place of each one's group among those shown, −1 for none; None without groups."""
    if grouping is None or grouping.annotators is None or not content or not content["groups"]:
        return None
    place = {one["code"]: place for place, one in enumerate(content["groups"])}
    return np.array([place.get(int(g), -1) for g in grouping.annotators.argmax(axis=1)])


def _contrasts(
    grouping: Grouping, groups: list[dict[str, Any]], votes: Votes, names: list[str], member: Any
) -> list[dict[str, Any]]:
    """Clusters of items on which two groups differ most in the raw labels, the widest first."""
    if len(groups) < 2 or grouping.annotators is None:
        return []
    group = grouping.annotators.argmax(axis=1)
    codes = [one["code"] for one in groups]
    tables = np.stack([votes.votes(group == code) for code in codes])  # groups, items, classes
    # Where classes part two groups equally, as two always do, the rarer one says more.
    rarity = 1 + 1e-6 * (1 - row_shares(votes.table.sum(axis=0)))
    found: list[dict[str, Any]] = []
    for k in range(grouping.sizes[0]):
        inside = np.flatnonzero(member == k)
        a, b, gap = _widest(tables[:, inside], rarity)
        sides = np.flatnonzero(group == codes[a]), np.flatnonzero(group == codes[b])
        letters = str(groups[a]["name"]), str(groups[b]["name"])
        says = sentences.contrast_sentence(votes, sides, letters, inside, names)
        if says is not None:
            shown = _dividing(tables[a], tables[b], inside, says.about["label"])
            both = (tables[[a, b]][:, inside].sum(axis=2) > 0).all(axis=0)  # as the sentence counts them
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


def _dividing(one: Array, other: Array, inside: Any, label: int) -> list[int]:
    """Items on which the first group says the class most and the second least."""
    shares = [row_shares(table[inside])[:, label] for table in (one, other)]
    both = (one[inside].sum(axis=1) > 0) & (other[inside].sum(axis=1) > 0)
    order = np.argsort(-np.where(both, shares[0] - shares[1], -2.0), kind="stable")[:TYPICAL]
    return [int(inside[m]) for m in order if both[m] and shares[0][m] > shares[1][m]]
