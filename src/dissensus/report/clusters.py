"""Clusters as the page shows them: clusters of items, groups of annotators, and what sets groups apart.

Every model that clusters is brought to one form (``Model.cluster_view``). Both sides are ordered by size, so
that group A is the largest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dissensus.data.annotations import Annotations
from dissensus.metrics import entropy_rows, total_variation_rows
from dissensus.models import title_of
from dissensus.models.base import Model
from dissensus.numerics import Array, normalised
from dissensus.report import sentences

LENS = {"n_item_clusters": 6, "n_annotator_clusters": 3}  # the small PGM that looks for groups
FEWEST_ANNOTATORS = 4  # below that, looking for groups among them is idle
BLOCK = 4096  # items whose expected answers by group are worked out at a time
TYPICAL = 4  # items shown for a cluster
CONTRASTS = 5  # clusters on which groups are contrasted
SMALLEST = 0.03  # share of the population below which a group is not contrasted
DULL = 0.2  # of what an average label tells: a group below that hardly looks at the items
LEAST_GAP = 0.1  # between two groups' answers, to be named as a contrast


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

    def others(self, group: int) -> Array:
        """(K, P): what all groups but this one answer."""
        rest = np.where(np.arange(len(self.weights)) == group, 0.0, self.weights)
        return np.asarray(np.einsum("l,klp->kp", normalised(rest), self.theta))

    def divided(self) -> Array:
        """(M,): how much of each item's disagreement lies between the groups, in nats.

        I_m = H(Σ_l π_l D_ml) − Σ_l π_l H(D_ml), with D_ml = Σ_k w_mk Θ_kl what group l would answer: the
        information that a label of the item gives about who gave it.
        """
        return np.concatenate([self._divided(start) for start in range(0, len(self.items), BLOCK)])

    def _divided(self, start: int) -> Array:
        answers = self.expected(slice(start, start + BLOCK))
        M, L, P = answers.shape
        within = entropy_rows(answers.reshape(M * L, P)).reshape(M, L) @ self.weights
        together = entropy_rows(np.einsum("l,mlp->mp", self.weights, answers))
        return np.maximum(together - within, 0.0)

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


def cluster_content(annotations: Annotations, grouping: Grouping, spam: Any = None) -> dict[str, Any]:
    """Everything the page says about clusters; ``spam`` (annotators,) marks those judged to be spam."""
    K, L, _ = grouping.sizes
    names = [str(name) for name in annotations.classes]
    divided = grouping.divided() if grouping.divides else np.zeros(annotations.n_items)
    idle = Idle.of(annotations, grouping, spam) if grouping.divides else None
    return {
        "source": grouping.source,
        "borrowed": grouping.borrowed,
        "true_classes": grouping.true_classes,
        "items": [_item_cluster(grouping, k, names, annotations) for k in range(K)],
        "groups": [_group(grouping, g, names, annotations, idle) for g in range(L)] if idle else [],
        "theta": np.rint(1000 * grouping.theta).astype(int).ravel(),
        "contrasts": _contrasts(grouping, names, divided, idle) if idle else [],
        "between": between(grouping, divided) if grouping.divides else None,
        "one_group": grouping.annotators is not None and not grouping.divides,
    }


def between(grouping: Grouping, divided: Array) -> float:
    """Which share of the items' disagreement lies between groups: Σ_m I_m / Σ_m H_m."""
    total = entropy_rows(normalised(grouping.items @ grouping.cluster_answers)).sum()
    return float(divided.sum() / total) if total > 0 else 0.0


def _item_cluster(grouping: Grouping, k: int, names: list[str], annotations: Annotations) -> dict[str, Any]:
    answers = grouping.cluster_answers[k]
    members = grouping.items.argmax(axis=1) == k
    return {
        "words": _cluster_words(grouping, k, names),
        "share": float(grouping.cluster_shares[k]),
        "n": int(members.sum()),
        "p": np.rint(1000 * answers).astype(int),
        "items": _typical(grouping.items[:, k], members, annotations),
    }


def _cluster_words(grouping: Grouping, k: int, names: list[str]) -> str:
    answers = grouping.cluster_answers[k]
    first, *others = [int(p) for p in np.argsort(-answers, kind="stable")[:2]]
    top = [first, *(p for p in others if answers[p] >= 0.1)]  # of very many classes none may be that frequent
    true_class = names[k] if grouping.true_classes else None
    return sentences.cluster_words(
        k, float(grouping.cluster_shares[k]), [(names[p], float(answers[p])) for p in top], true_class
    )


def _typical(belief: Array, members: Any, annotations: Annotations) -> list[int]:
    """The items that most surely are in a cluster, those with more labels first."""
    places = np.flatnonzero(members)
    n_labels = annotations.counts.sum(axis=1)[places]
    order = np.lexsort((places, -n_labels, -np.round(belief[places], 3)))
    return [int(m) for m in places[order][:TYPICAL]]


# ---- groups -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Idle:
    """Groups that do not look at the items: they differ from everybody, which is no difference of opinion."""

    dull: Any  # (L,): their labels tell far less than an average label does
    spam: Any  # (L,): most of their labels come from annotators judged to be spam

    @classmethod
    def of(cls, annotations: Annotations, grouping: Grouping, spam: Any = None) -> Idle:
        """Judge every group."""
        told = group_information(grouping)
        if spam is None or grouping.annotators is None:
            spam_labels = np.zeros(len(told))
        else:
            load = annotations.annotator_load[:, None] * grouping.annotators
            spam_labels = (np.asarray(spam) @ load) / np.maximum(load.sum(axis=0), 1e-9)
        return cls(told < DULL * (told @ grouping.weights), spam_labels > 0.5)

    @property
    def looking(self) -> Any:
        """The groups that do look."""
        return np.flatnonzero(~(self.dull | self.spam))


def _group(
    grouping: Grouping, g: int, names: list[str], annotations: Annotations, idle: Idle
) -> dict[str, Any]:
    assert grouping.annotators is not None
    members = grouping.annotators.argmax(axis=1) == g
    return {
        "name": group_name(g),
        "n": int(members.sum()),
        "labels": float(
            annotations.annotator_load @ grouping.annotators[:, g] / max(annotations.n_labels, 1)
        ),
        "idle": bool(idle.dull[g] or idle.spam[g]),
        "words": group_sentences(grouping, g, names, idle),
    }


def group_information(grouping: Grouping) -> Array:
    """(L,): nats that a group's label tells about the item's cluster, H(Σ_k ψ_k Θ_kl) − Σ_k ψ_k H(Θ_kl)."""
    shares, (K, L, P) = grouping.cluster_shares, grouping.sizes
    together = entropy_rows(normalised(np.einsum("k,klp->lp", shares, grouping.theta)))
    each = entropy_rows(normalised(grouping.theta).reshape(K * L, P)).reshape(K, L)
    return np.maximum(together - shares @ each, 0.0)


def group_sentences(grouping: Grouping, g: int, names: list[str], idle: Idle) -> list[str]:
    """What distinguishes one group from the others."""
    shares, own, others = grouping.cluster_shares, grouping.theta[:, g], grouping.others(g)
    use, usual = shares @ own, shares @ others
    change = use - usual
    order = np.argsort(-np.abs(change), kind="stable")
    notable = [int(p) for p in order[:4] if abs(change[p]) >= sentences.NOTABLE]
    habits = [(names[p], float(use[p]), float(usual[p])) for p in notable]
    more, less = [h for h in habits if h[1] > h[2]][:2], [h for h in habits if h[1] < h[2]][:2]
    said = [sentences.group_habits(more, less)]
    k = int((shares * total_variation_rows(normalised(own), normalised(others))).argmax())
    p = int((own[k] - others[k]).argmax())
    cluster = _cluster_words(grouping, k, names)
    said.append(sentences.group_difference(cluster, names[p], float(own[k, p]), float(others[k, p])))
    said += [sentences.UNINFORMATIVE] if idle.dull[g] else []
    said += [sentences.MOSTLY_SPAM] if idle.spam[g] else []
    return said


def _contrasts(grouping: Grouping, names: list[str], divided: Array, idle: Idle) -> list[dict[str, Any]]:
    """The clusters of items on which groups that look differ most, and which two differ most there."""
    looking = idle.looking
    if len(looking) < 2:
        return []
    spread = grouping.cluster_shares * _spread(grouping, looking)
    found: list[dict[str, Any]] = []
    for k in (int(k) for k in np.argsort(-spread, kind="stable")):
        group, other, p = _widest(grouping, k, looking)
        shares = float(grouping.theta[k, group, p]), float(grouping.theta[k, other, p])
        if len(found) == CONTRASTS or shares[0] - shares[1] < LEAST_GAP:
            continue
        says = sentences.contrast_words(group_name(group), group_name(other), names[p], shares)
        members = grouping.items.argmax(axis=1) == k
        dividing = np.argsort(-np.where(members, divided, -1.0), kind="stable")[:TYPICAL]
        items = [int(m) for m in dividing if members[m]]
        found.append({"cluster": k, "groups": [group, other], "says": says, "items": items})
    return found


def _spread(grouping: Grouping, looking: Any) -> Array:
    """(K,): how much some groups differ on a cluster, H(Σ_l π_l Θ_kl) − Σ_l π_l H(Θ_kl)."""
    theta, weights = normalised(grouping.theta[:, looking]), normalised(grouping.weights[looking])
    K, L, P = theta.shape
    each = entropy_rows(theta.reshape(K * L, P)).reshape(K, L) @ weights
    together = entropy_rows(normalised(np.einsum("l,klp->kp", weights, theta)))
    return np.maximum(together - each, 0.0)


def _widest(grouping: Grouping, k: int, looking: Any) -> tuple[int, int, int]:
    """The two groups of some size that are furthest apart on a cluster, and the class that parts them."""
    weights = grouping.weights
    large = looking[weights[looking] >= min(SMALLEST, np.sort(weights[looking])[-2])]
    answers = grouping.theta[k, large]  # groups, classes
    # √(π_a π_b) · (Θ_kap − Θ_kbp), over ordered pairs of groups and classes
    gaps = answers[:, None] - answers[None, :]
    size = np.sqrt(np.multiply.outer(weights[large], weights[large]))
    # Where classes part them equally, as two always do, the rarer one says more.
    rarity = 1 + 1e-6 * (1 - grouping.cluster_shares @ grouping.cluster_answers)
    a, b, p = np.unravel_index(int((gaps * size[:, :, None] * rarity).argmax()), gaps.shape)
    return int(large[a]), int(large[b]), int(p)
