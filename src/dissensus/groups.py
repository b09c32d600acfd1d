"""The search for groups of annotators who see items otherwise than the crowd does.

The small model of :mod:`dissensus.views` is fitted without a group and, from several guesses, with one. The
group is believed in where it explains the labels better by more nats than it takes to describe it: one for
each member, a half for each kind of contested items, and a margin. Its members and the spammers are then put
aside and the rest is searched in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.annotations import Annotations
from dissensus.engine import Executor
from dissensus.kernels import Array
from dissensus.views import Fit, Scene, guesses

MARGIN = 5.0  # nats that a group must gain beyond what it takes to describe it
ENOUGH = 200.0  # labels of one annotator that count in full; more say the same again
LEARN_FROM = 200_000  # labels; of more, a random part of the items teaches the parameters
SCREENING, LEARNING, SETTLING = 8, 80, 8  # rounds

CROWD, MEMBER, SPAM = 0, 1, 2  # columns of the accounts


@dataclass(frozen=True)
class Difference:
    """Items that are one class to the crowd and another to a group."""

    crowd: Any
    group: Any
    share: float  # of all items


@dataclass(frozen=True)
class Group:
    """Annotators with a view of their own."""

    members: NDArray[np.intp]  # annotator codes
    share_of_labels: float
    share_of_items: float  # on which it differs from the crowd
    differences: tuple[Difference, ...]  # the largest first
    gain: float  # nats by which the labels are explained better with the group than without

    def in_words(self) -> str:
        """Where it differs."""
        found = [f"{str(d.group)!r} where the crowd sees {str(d.crowd)!r}" for d in self.differences[:2]]
        where = f", mostly {' and '.join(found)}" if found else ""
        return f"see {self.share_of_items:.0%} of the items differently{where}"


@dataclass(frozen=True)
class Views:
    """What became of everybody."""

    accounts: Array  # (N, 3): probability of being of the crowd, of a group, a spammer
    group: NDArray[np.intp]  # (N,): 0 the crowd, 1, 2, … groups, −1 spammers
    groups: tuple[Group, ...]


def find_views(annotations: Annotations, max_groups: int, seed: int, pool: Executor) -> Views:
    """Tell crowd, groups and spammers apart."""
    rng = np.random.default_rng(seed)
    N, load = annotations.n_annotators, annotations.annotator_load
    left, group, groups = load > 0, np.zeros(N, dtype=np.intp), list[Group]()
    accounts = np.tile([1.0, 0.0, 0.0], (N, 1))
    while left.any() and len(groups) < max_groups:
        fit, gain = _explained(Scene(annotations.take_rows(left[annotations.annotator]), pool), rng)
        if groups and not gain:
            break
        chances = fit.accounts(load, ENOUGH)
        swapped = bool(load[left] @ (chances[left, MEMBER] - chances[left, CROWD]) > 0)
        accounts[left] = chances[left][:, [MEMBER, CROWD, SPAM] if swapped else [CROWD, MEMBER, SPAM]]
        likeliest = np.where(left, accounts.argmax(axis=1), CROWD)
        group[likeliest == SPAM] = -1
        if not gain:
            break
        group[likeliest == MEMBER] = len(groups) + 1
        groups.append(_described(annotations, fit, gain, np.flatnonzero(likeliest == MEMBER), swapped))
        left &= likeliest == CROWD
    return Views(accounts, group, tuple(groups))


def _explained(scene: Scene, rng: np.random.Generator) -> tuple[Fit, float]:
    """The fit to believe in, and what it gains by a group: 0 where it has none."""
    part = _part_of(scene, rng)
    base = part.alone(LEARNING)
    screened = [part.joined(base, member, SCREENING) for member in guesses(part, base)]
    best = part.climb(max(screened, key=lambda fit: fit.evidence), LEARNING)
    gain = best.evidence - base.evidence
    fit, gain = (best, gain) if gain > _description(best) + MARGIN else (base, 0.0)
    if part is not scene:
        fit = scene.climb(scene.started(fit.kinds, fit.ways, fit.beliefs.z), SETTLING, learn=False)
    return fit, gain


def _description(fit: Fit) -> float:
    """Nats that it takes to say who is in the group (the smaller side) and what it sees."""
    crowd, group, _ = fit.accounts(np.zeros(len(fit.beliefs.z)), ENOUGH).sum(axis=0)
    return float(min(crowd, group) + fit.kinds.contested.sum() / 2)


def _part_of(scene: Scene, rng: np.random.Generator) -> Scene:
    """The scene itself or, of very many labels, a random part of its items."""
    whole = scene.annotations
    if whole.n_labels <= LEARN_FROM:
        return scene
    items = rng.permutation(whole.n_items)
    few = np.searchsorted(np.cumsum(np.diff(whole.item_pointers)[items]), LEARN_FROM)
    return Scene(whole.take_items(np.sort(items[:few])), scene.pool)


def _described(
    annotations: Annotations, fit: Fit, gain: float, members: NDArray[np.intp], swapped: bool
) -> Group:
    """The group in the user's own classes."""
    contested = fit.kinds.contested
    shares = fit.ways.psi[contested]
    crowd, group = fit.kinds.crowd[contested].argmax(axis=1), fit.kinds.group[contested].argmax(axis=1)
    if swapped:
        crowd, group = group, crowd
    classes = annotations.classes
    differences = tuple(
        Difference(classes[crowd[k]], classes[group[k]], float(shares[k]))
        for k in np.argsort(-shares, kind="stable")
    )
    labels = annotations.annotator_load
    return Group(members, labels[members].sum() / labels.sum(), float(shares.sum()), differences, gain)
