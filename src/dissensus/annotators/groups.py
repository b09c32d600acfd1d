"""The search for groups of annotators who see items otherwise than the crowd does.

The small model of `views.py` is fitted without a group and, from several guesses, with one. What
a fit is worth is its evidence less the entropy that is left about who is what, and half a nat for each kind
of contested items; so a group is believed in where it explains the labels better *and* can be told from the
crowd. (The integrated classification likelihood of Biernacki, Celeux & Govaert, 2000.) Its members and the
spammers are then put aside and the rest is searched in the same way, as long as the crowd outweighs all
groups together.

A group is a view if it tells something of what the crowd sees, were it by turning everything round. People
who answer like one another and whose labels have nothing to do with anybody else's copy or follow a pattern:
they are spammers. In between, a group is put aside and its members are judged as if there were none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

from dissensus.annotators.informativeness import information_per_label
from dissensus.annotators.views import LEAST_CONTESTED, Fit, Scene, guesses
from dissensus.data.annotations import Annotations
from dissensus.execution.threads import Executor
from dissensus.numerics import Array

MARGIN = 5.0  # nats by which a fit with a group must be worth more
A_KIND = 0.5  # nats that a kind of contested items costs
ENOUGH = 200.0  # labels of one annotator that count in full; more say the same again
INFORMATIVE, NOTHING = 0.25, 0.1  # of the crowd's information per label: enough for a view, and none
LEARN_FROM = 100_000  # labels; of more, a random part of the items teaches the parameters
SCREENING, LEARNING, SETTLING = 8, 80, 4  # rounds

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

    def in_words(self) -> str:
        """Where it differs; a second difference is named if it is worth a quarter of the first."""
        large = [d for d in self.differences[:2] if 4 * d.share >= self.differences[0].share]
        found = [f"{str(d.group)!r} where the crowd sees {str(d.crowd)!r}" for d in large]
        return f"see {self.share_of_items:.0%} of the items differently, mostly {' and '.join(found)}"


@dataclass
class Views:
    """What became of everybody."""

    accounts: Array  # (N, 3): probability of being of the crowd, of a group, a spammer
    group: NDArray[np.intp]  # (N,): 0 the crowd, 1, 2, … groups, −1 spammers
    groups: list[Group] = field(default_factory=list)

    def enter(self, accounts: Array, among: NDArray[np.bool_]) -> NDArray[np.intp]:
        """Take over the accounts of some annotators; returns everybody's likeliest, the crowd elsewhere."""
        self.accounts[among] = accounts[among]
        likeliest = np.where(among, accounts.argmax(axis=1), CROWD)
        self.group[likeliest == SPAM] = -1
        return likeliest


def find_views(annotations: Annotations, max_groups: int, seed: int, pool: Executor) -> Views:
    """Tell crowd, groups and spammers apart."""
    rng, load = np.random.default_rng(seed), annotations.annotator_load
    N = annotations.n_annotators
    views = Views(np.tile([1.0, 0.0, 0.0], (N, 1)), np.zeros(N, np.intp))
    left = load > 0
    for attempt in range(max_groups if annotations.n_classes > 1 else 0):
        scene = Scene(annotations.take_rows(left[annotations.annotator]), pool)
        base, best = _explained(_part_of(scene, rng))
        if attempt == 0:
            views.enter(_settled(scene, base).accounts(load, ENOUGH), left)
        if best is None:
            break
        best = _settled(scene, best)
        accounts, swapped = _crowd_first(best.accounts(load, ENOUGH), load * left)
        likeliest = accounts.argmax(axis=1)
        stays, member = left & (likeliest == CROWD), left & (likeliest == MEMBER)
        if load[stays].sum() < load[member | (views.group > 0)].sum():
            break
        told = _information_shared(annotations, member, stays)
        if told >= INFORMATIVE:
            views.enter(accounts, left)
            views.groups.append(_described(annotations, best, member, swapped))
            views.group[member] = len(views.groups)
        elif told < NOTHING and _independent(best):
            views.enter(accounts[:, [CROWD, SPAM, MEMBER]], member)
        left = stays
    return views


def _explained(scene: Scene) -> tuple[Fit, Fit | None]:
    """The fit without a group, and the one with a group where that is worth it."""
    base = scene.alone(LEARNING)
    screened = [scene.joined(base, member, SCREENING) for member in guesses(scene, base)]
    best = scene.climb(max(screened, key=_worth), LEARNING)
    return base, best if _worth(best) > _worth(base) + MARGIN and _differs(best) else None


def _settled(scene: Scene, fit: Fit) -> Fit:
    """What a fit to a part of the items, or to all of them, has to say of them all."""
    if len(fit.beliefs.w) == scene.annotations.n_items:
        return fit
    fit = scene.started(fit.kinds, fit.people, fit.ways, fit.beliefs.z)
    for _ in range(SETTLING):
        fit = scene.heard(fit)
    return fit


def _part_of(scene: Scene, rng: np.random.Generator) -> Scene:
    """The scene itself or, of very many labels, a random part of its items."""
    whole = scene.annotations
    if whole.n_labels <= LEARN_FROM:
        return scene
    items = rng.permutation(whole.n_items)
    few = np.searchsorted(np.cumsum(np.diff(whole.item_pointers)[items]), LEARN_FROM)
    return Scene(whole.take_items(np.sort(items[:few])), scene.pool)


def _worth(fit: Fit) -> float:
    """The evidence less what is not known of the annotators, and less what the contested kinds cost."""
    unsettled = entr(fit.accounts(np.zeros(len(fit.beliefs.z)), ENOUGH)).sum()
    return float(fit.evidence - unsettled - A_KIND * fit.kinds.contested.sum())


def _differs(fit: Fit) -> bool:
    """Whether the labels bear out the share of contested items that a view must have."""
    contested = fit.beliefs.w[:, fit.kinds.contested].sum()
    return bool(contested >= LEAST_CONTESTED * len(fit.beliefs.w))


def _independent(fit: Fit) -> bool:
    """Whether the group sees the items about as otherwise as if it saw other items."""
    chance = 1 - np.sum((fit.ways.psi @ fit.kinds.crowd) ** 2)
    return bool(2 * fit.ways.psi[fit.kinds.contested].sum() >= chance)


def _crowd_first(accounts: Array, load: NDArray[Any]) -> tuple[Array, bool]:
    """The accounts with the side that gave more labels as the crowd, and whether it was the other one."""
    swapped = bool(load @ (accounts[:, MEMBER] - accounts[:, CROWD]) > 0)
    return accounts[:, [MEMBER, CROWD, SPAM]] if swapped else accounts, swapped


def _described(annotations: Annotations, fit: Fit, member: NDArray[np.bool_], swapped: bool) -> Group:
    """The group in the user's own classes."""
    contested = fit.kinds.contested
    shares = fit.ways.psi[contested]
    sides = [made_of[contested].argmax(axis=1) for made_of in (fit.kinds.crowd, fit.kinds.group)]
    crowd, group = (annotations.classes[side] for side in (reversed(sides) if swapped else sides))
    order = np.argsort(-shares, kind="stable")
    differences = tuple(Difference(crowd[k], group[k], float(shares[k])) for k in order)
    load = annotations.annotator_load
    return Group(
        np.flatnonzero(member), float(load[member].sum() / load.sum()), float(shares.sum()), differences
    )


def _information_shared(
    annotations: Annotations, member: NDArray[np.bool_], crowd: NDArray[np.bool_]
) -> float:
    """Information of the members' labels, taken together, about the others': as a share of the crowd's."""
    N = annotations.n_annotators
    as_one = np.where(member, N, np.arange(N))[annotations.annotator]
    information = np.nan_to_num(information_per_label(annotations.item, as_one, annotations.label))
    usual = np.average(information[:N], weights=annotations.annotator_load * crowd)
    return float(information[N] / max(usual, np.finfo(float).tiny))
