"""Kinds of items and groups of annotators, however a model knows them.

Every model that clusters is brought to one form: Θ (kinds, groups, classes), P(kind | item) and
P(group | annotator). A mixture over items has one group; Dawid–Skene's kinds are the true classes. Both
sides are ordered by size, so that group A is the largest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dissensus.data.annotations import Annotations
from dissensus.metrics import entropy_rows
from dissensus.models import title_of
from dissensus.models.base import Model
from dissensus.numerics import Array, normalised

LENS = {"n_item_clusters": 6, "n_annotator_clusters": 3}  # the small PGM that looks for groups
FEWEST_ANNOTATORS = 4  # below that, looking for groups among them is idle
BLOCK = 4096  # items whose expected answers by group are worked out at a time


@dataclass(frozen=True)
class Grouping:
    """What is common to all models that put items, and perhaps annotators, into clusters."""

    theta: Array  # (K, L, P): what group l answers about kind k
    items: Array  # (M, K): P(kind | item)
    annotators: Array | None  # (N, L): P(group | annotator); None: annotators are not grouped
    weights: Array  # (L,): each group's share in the population
    true_classes: bool  # kinds are the model's true classes, in class order
    source: str  # the model that found them, in a few words
    borrowed: bool = False  # True: not the reported model but a small one fitted beside it

    @property
    def sizes(self) -> tuple[int, int, int]:
        """(kinds, groups, classes)."""
        K, L, P = self.theta.shape
        return K, L, P

    @property
    def divides(self) -> bool:
        """Whether annotators fall into more groups than one."""
        return self.annotators is not None and self.sizes[1] > 1

    @property
    def kind_shares(self) -> Array:
        """(K,): what share of the items is of each kind."""
        return normalised(self.items.sum(axis=0))

    @property
    def kind_answers(self) -> Array:
        """(K, P): what the population answers about each kind, Σ_l π_l Θ_kl."""
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
    """The model's own kinds and groups; None where it has neither."""
    view = model.cluster_view(annotations.annotator_load)
    if view is None:
        return None
    people = view.annotators if view.theta.shape[1] > 1 else None
    found = Grouping(view.theta, view.items, people, view.weights, view.true_classes, title_of(model))
    return _ordered(found, annotations.annotator_load)


def _ordered(found: Grouping, load: Any) -> Grouping:
    """Kinds and groups by falling size, those that nothing belongs to left out."""
    kinds = np.arange(found.sizes[0]) if found.true_classes else _by_size(found.items, found.items.sum(0))
    groups = np.zeros(1, dtype=np.intp)
    if found.annotators is not None:
        groups = _by_size(found.annotators, load @ found.annotators)
    return Grouping(
        found.theta[np.ix_(kinds, groups)],
        normalised(found.items[:, kinds]),
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
    from dataclasses import replace

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
