"""The clusters as the page shows them: kinds of items, groups of annotators, and what sets groups apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.data.annotations import Annotations
from dissensus.metrics import entropy_rows, total_variation_rows
from dissensus.numerics import Array, normalised
from dissensus.report import words
from dissensus.report.grouping import Grouping, group_name

TYPICAL = 4  # items shown for a kind
CONTRASTS = 5  # kinds on which groups are contrasted
SMALLEST = 0.03  # share of the population below which a group is not contrasted
DULL = 0.2  # of what an average label tells: a group below that hardly looks at the items
LEAST_GAP = 0.1  # between two groups' answers, to be named as a contrast


def cluster_content(annotations: Annotations, grouping: Grouping, spam: Any = None) -> dict[str, Any]:
    """Everything the page says about clusters; ``spam`` (annotators,) marks those judged to be spam."""
    K, L, _ = grouping.sizes
    names = [str(name) for name in annotations.classes]
    divided = grouping.divided() if grouping.divides else np.zeros(annotations.n_items)
    kinds = [_kind(grouping, k, names, annotations) for k in range(K)]
    idle = Idle.of(annotations, grouping, spam) if grouping.divides else None
    return {
        "source": grouping.source,
        "borrowed": grouping.borrowed,
        "true_classes": grouping.true_classes,
        "kinds": kinds,
        "groups": [_group(grouping, g, names, annotations, idle) for g in range(L)] if idle else [],
        "theta": np.rint(1000 * grouping.theta).astype(int).ravel(),
        "contrasts": _contrasts(grouping, names, divided, idle) if idle else [],
        "between": between(grouping, divided) if grouping.divides else None,
        "one_group": grouping.annotators is not None and not grouping.divides,
    }


def between(grouping: Grouping, divided: Array) -> float:
    """Which share of the items' disagreement lies between groups: Σ_m I_m / Σ_m H_m."""
    total = entropy_rows(normalised(grouping.items @ grouping.kind_answers)).sum()
    return float(divided.sum() / total) if total > 0 else 0.0


def _kind(grouping: Grouping, k: int, names: list[str], annotations: Annotations) -> dict[str, Any]:
    answers = grouping.kind_answers[k]
    members = grouping.items.argmax(axis=1) == k
    return {
        "words": _kind_words(grouping, k, names),
        "share": float(grouping.kind_shares[k]),
        "n": int(members.sum()),
        "p": np.rint(1000 * answers).astype(int),
        "items": _typical(grouping.items[:, k], members, annotations),
    }


def _kind_words(grouping: Grouping, k: int, names: list[str]) -> str:
    answers = grouping.kind_answers[k]
    top = [int(p) for p in np.argsort(-answers, kind="stable")[:2] if answers[p] >= 0.1]
    true_class = names[k] if grouping.true_classes else None
    return words.kind_words(
        k, float(grouping.kind_shares[k]), [(names[p], float(answers[p])) for p in top], true_class
    )


def _typical(belief: Array, members: Any, annotations: Annotations) -> list[int]:
    """The items that most surely are of a kind, those with more labels first."""
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
    """(L,): what a group's label tells about the item's kind, H(Σ_k ψ_k Θ_kl) − Σ_k ψ_k H(Θ_kl), in nats."""
    shares, (K, L, P) = grouping.kind_shares, grouping.sizes
    together = entropy_rows(normalised(np.einsum("k,klp->lp", shares, grouping.theta)))
    each = entropy_rows(normalised(grouping.theta).reshape(K * L, P)).reshape(K, L)
    return np.maximum(together - shares @ each, 0.0)


def group_sentences(grouping: Grouping, g: int, names: list[str], idle: Idle) -> list[str]:
    """What distinguishes one group from the others."""
    shares, own, others = grouping.kind_shares, grouping.theta[:, g], grouping.others(g)
    use, usual = shares @ own, shares @ others
    change = use - usual
    order = np.argsort(-np.abs(change), kind="stable")
    notable = [int(p) for p in order[:4] if abs(change[p]) >= words.NOTABLE]
    habits = [(names[p], float(use[p]), float(usual[p])) for p in notable]
    more, less = [h for h in habits if h[1] > h[2]][:2], [h for h in habits if h[1] < h[2]][:2]
    sentences = [words.group_habits(more, less)]
    k = int((shares * total_variation_rows(normalised(own), normalised(others))).argmax())
    p = int((own[k] - others[k]).argmax())
    kind = _kind_words(grouping, k, names)
    sentences.append(words.group_difference(kind, names[p], float(own[k, p]), float(others[k, p])))
    sentences += [words.UNINFORMATIVE] if idle.dull[g] else []
    sentences += [words.MOSTLY_SPAM] if idle.spam[g] else []
    return sentences


def _contrasts(grouping: Grouping, names: list[str], divided: Array, idle: Idle) -> list[dict[str, Any]]:
    """The kinds of items on which groups that look at them differ most, and which two differ most there."""
    looking = idle.looking
    if len(looking) < 2:
        return []
    spread = grouping.kind_shares * _spread(grouping, looking)
    found: list[dict[str, Any]] = []
    for k in (int(k) for k in np.argsort(-spread, kind="stable")):
        group, other, p = _widest(grouping, k, looking)
        shares = float(grouping.theta[k, group, p]), float(grouping.theta[k, other, p])
        if len(found) == CONTRASTS or shares[0] - shares[1] < LEAST_GAP:
            continue
        says = words.contrast_words(group_name(group), group_name(other), names[p], shares)
        members = grouping.items.argmax(axis=1) == k
        dividing = np.argsort(-np.where(members, divided, -1.0), kind="stable")[:TYPICAL]
        items = [int(m) for m in dividing if members[m]]
        found.append({"kind": k, "groups": [group, other], "says": says, "items": items})
    return found


def _spread(grouping: Grouping, looking: Any) -> Array:
    """(K,): how much some groups differ on a kind, H(Σ_l π_l Θ_kl) − Σ_l π_l H(Θ_kl)."""
    theta, weights = normalised(grouping.theta[:, looking]), normalised(grouping.weights[looking])
    K, L, P = theta.shape
    each = entropy_rows(theta.reshape(K * L, P)).reshape(K, L) @ weights
    together = entropy_rows(normalised(np.einsum("l,klp->kp", weights, theta)))
    return np.maximum(together - each, 0.0)


def _widest(grouping: Grouping, k: int, looking: Any) -> tuple[int, int, int]:
    """The two groups of some size that are furthest apart on a kind, and the class that parts them."""
    weights = grouping.weights
    large = looking[weights[looking] >= min(SMALLEST, np.sort(weights[looking])[-2])]
    answers = grouping.theta[k, large]  # groups, classes
    # √(π_a π_b) · (Θ_kap − Θ_kbp), over ordered pairs of groups and classes
    gaps = answers[:, None] - answers[None, :]
    size = np.sqrt(np.multiply.outer(weights[large], weights[large]))
    # Where classes part them equally, as two always do, the rarer one says more.
    rarity = 1 + 1e-6 * (1 - grouping.kind_shares @ grouping.kind_answers)
    a, b, p = np.unravel_index(int((gaps * size[:, :, None] * rarity).argmax()), gaps.shape)
    return int(large[a]), int(large[b]), int(p)
