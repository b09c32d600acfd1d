"""A crowd, a group that sees some items otherwise, and those who do not look: one small model of all three.

How a label is born. An item is *clear* (of one class a), *torn* (of class a for some, b for others, whoever
looks) or *contested* (a for the crowd, b for the group). An annotator of the crowd or of the group sees the
item's class c and answers by Θ_c or, in a share ε of the cases, answers without looking: by the noise ν
(careless) or always with the same class (leaning to it). A spammer never looks, and answers by the class
shares, by all classes alike, or nearly always with one class.

    P(y | type k, crowd, manner j) = (1 − ε_j) Σ_c C_kc Θ_cy + ε_j B_jy        (1)
    P(y | type k, group, manner j) = (1 − ε_j) Σ_c G_kc Θ_cy + ε_j B_jy        (2)
    P(y | spam strategy s)         = S_sy                                      (3)

C and G, fixed, say which classes a type is made of; they differ for contested types alone. B_j is ν or a
class. This is the joint model of models/pgm.py with tied parameters: types are its item clusters, crowd and
group by manner and the strategies its annotator clusters. So the same messages fit it, and an annotator's
posterior rests on the items as the *others* labelled them. Torn items matter: without them any disagreement
looks like two groups. Leaning matters too: without it whoever prefers a class is a spammer.

A group is another view only if it differs on a tenth of the items or more; the share of contested items is
never learned to be less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.data.annotations import Annotations
from dissensus.execution.messages import BlockState
from dissensus.execution.run import Run
from dissensus.execution.threads import Executor
from dissensus.models.pgm.kernels import PairBlock, cavity, messages
from dissensus.models.pgm.propagation import Beliefs, Graph, Potentials, Statistics
from dissensus.numerics import Array, normalised, safe_log, softmax_rows

LEAST_CONTESTED = 0.1  # share of the items on which a group must differ to be one
TORN = 0.65  # share of the first class in a torn item
MOST_PAIRS = 28  # pairs of classes that items can be torn between: all those of eight classes

CARELESS = np.array([0.0, 0.15, 0.3, 0.5, 0.7])  # degrees ε of those who answer by ν
USUAL = np.array([0.285, 0.285, 0.19, 0.1425, 0.0475])  # their shares, before any label
LEANING, LEANERS, MOST_LEANINGS = 0.5, 0.05, 5  # ε of those who lean, their share, and to how many classes
CONSTANT = 0.95  # how often a one-class spammer gives that class
EXPECTED = {"crowd": 0.88, "group": 0.07, "spam": 0.05}  # shares of annotators, before any label

ANNOTATORS_WORTH, ITEMS_WORTH = 5.0, 10.0  # annotators and items that expected shares count as
TOLERANCE = 1e-5  # nats a label


# ---- what items and annotators can be -----------------------------------------------------------------


@dataclass(frozen=True)
class ItemTypes:
    """What an item can be, and of which classes it is then made for the crowd and for the group."""

    crowd: Array  # (K, P) C
    group: Array  # (K, P) G
    expected: Array  # (K,) shares before any label
    contested: NDArray[np.bool_]  # (K,)

    @classmethod
    def of(cls, shares: Array, pairs: NDArray[np.intp], *, group: bool) -> ItemTypes:
        """Clear and torn types; with a group, contested ones. ``pairs`` are ordered pairs of classes."""
        clear = np.eye(len(shares))
        first, second = clear[pairs[:, 0]], clear[pairs[:, 1]]
        torn = TORN * first + (1 - TORN) * second
        rare = 0.3 * shares[pairs[:, 0]] * shares[pairs[:, 1]]
        parts = [(clear, clear, shares), (torn, torn, rare), *([(first, second, rare)] if group else [])]
        crowd, other, expected = (np.concatenate(column) for column in zip(*parts, strict=True))
        contested = np.arange(len(crowd)) >= len(clear) + len(torn)
        return cls(crowd, other, normalised(expected), contested)


@dataclass(frozen=True)
class People:
    """What an annotator can be: of the crowd or the group, in some manner, or a spammer of some strategy."""

    careless: Array  # (J, 1) ε
    leaning: Array  # (J, P): the class they lean to; zeros for those who answer by ν
    usual: Array  # (J,) shares of the manners before any label
    spam: Array  # (S, P)
    group: bool  # whether there is one

    @classmethod
    def of(cls, shares: Array, *, group: bool) -> People:
        """Manners and strategies for these class shares."""
        P = len(shares)
        leanings = np.eye(P)[np.argsort(-shares, kind="stable")[:MOST_LEANINGS]]
        careless = np.concatenate([CARELESS, np.full(len(leanings), LEANING)])
        usual = np.concatenate([USUAL, np.full(len(leanings), LEANERS / len(leanings))])
        # Not surer of a class than a good annotator is: who saw items of one class alone is no spammer.
        constant = CONSTANT * np.eye(P) + (1 - CONSTANT) * normalised(shares * (1 - np.eye(P)))
        spam = np.vstack([shares, np.full(P, 1 / P), constant])
        leaning = np.vstack([np.zeros((len(CARELESS), P)), leanings])
        return cls(careless[:, None], leaning, usual, spam, group)

    def blind(self, noise: Array) -> Array:
        """(J, P) B: what each manner answers without looking."""
        return np.where(self.leaning.any(axis=1, keepdims=True), self.leaning, noise)

    def expected(self) -> Array:
        """(L,) shares before any label."""
        looking = [EXPECTED["crowd"] * self.usual, *([EXPECTED["group"] * self.usual] if self.group else [])]
        S = len(self.spam)
        return normalised(np.concatenate([*looking, np.full(S, EXPECTED["spam"] / S)]))

    def parts(self, columns: Array) -> tuple[Array, Array, Array]:
        """The columns (last axis) of the crowd, the group (none where there is none) and the spammers."""
        J = len(self.usual)
        stop = J * (1 + self.group)
        return columns[..., :J], columns[..., J:stop], columns[..., stop:]


@dataclass(frozen=True)
class Ways:
    """The parameters."""

    theta: Array  # (P, P) Θ: answers to a class that is seen
    noise: Array  # (P,) ν: answers of the careless
    psi: Array  # (K,) shares of the types of items
    omega: Array  # (L,) shares of the annotators: crowd by manner, group by manner, spam by strategy


@dataclass(frozen=True)
class Fit:
    """A fitted model: what was learned, what is believed of each item and annotator, and the evidence."""

    types: ItemTypes
    people: People
    ways: Ways
    beliefs: Beliefs
    evidence: float  # log-probability of the labels, in Bethe's form

    def accounts(self, load: NDArray[Any], enough: float) -> Array:
        """(N, 3): probability that an annotator is of the crowd, of the group, a spammer.

        Labels in excess of about ``enough`` hardly count: no model of people is right to the last label.
        """
        omega = safe_log(self.ways.omega)
        # log P(z) = log Ω_z + log P(labels | z) / (1 + n / enough)
        weight = 1 / (1 + load / enough)
        z, _ = softmax_rows(omega + weight[:, None] * (safe_log(self.beliefs.z) - omega))
        return np.stack([part.sum(axis=1) for part in self.people.parts(z)], axis=1)


# ---- the equations ------------------------------------------------------------------------------------


def chances(types: ItemTypes, people: People, ways: Ways) -> Array:
    """(K, L, P): equations (1), (2) and (3), one after the other along L."""
    parts = [_looking(made_of, people, ways) for made_of in _seen(types, people)]
    return np.concatenate([*parts, np.broadcast_to(people.spam, (len(ways.psi), *people.spam.shape))], axis=1)


def _looking(made_of: Array, people: People, ways: Ways) -> Array:
    """(K, J, P)."""
    seen = (1 - people.careless) * (made_of @ ways.theta)[:, None, :]
    return np.asarray(seen + people.careless * people.blind(ways.noise))


def _seen(types: ItemTypes, people: People) -> list[Array]:
    return [types.crowd, types.group] if people.group else [types.crowd]


def learned(fit: Fit, statistics: Statistics, shares: Array) -> Ways:
    """The parameters out of expected counts, each with a few counts of what is expected beforehand."""
    types, people = fit.types, fit.people
    theta, noise = _answers(fit, statistics.label_mass)
    psi = normalised(statistics.item_mass + ITEMS_WORTH * types.expected)
    omega = statistics.annotator_mass + ANNOTATORS_WORTH * people.expected()
    looking = omega[: -len(people.spam)].reshape(-1, len(people.usual))
    # Ω_{who, manner} = Ω_who Ω_manner: a group is no more careless than the crowd.
    looking[:] = np.outer(looking.sum(axis=1), normalised(looking.sum(axis=0)))
    return Ways(
        normalised(theta + 2 * np.eye(len(theta)) + 0.5 * shares),
        normalised(noise + 10 * shares),
        _at_least_contested(psi, types.contested),
        normalised(omega),
    )


def _answers(fit: Fit, mass: Array) -> tuple[Array, Array]:
    """Labels given after seeing each class (P, P), and by the noise (P,), out of the expected counts."""
    people, ways = fit.people, fit.ways
    theta, noise = np.zeros_like(ways.theta), np.zeros_like(ways.noise)
    by_noise = people.careless * ~people.leaning.any(axis=1, keepdims=True)
    for place, made_of in enumerate(_seen(fit.types, people)):
        J = len(people.usual)
        rate = mass[:, place * J : (place + 1) * J] / _looking(made_of, people, ways)
        # Θ_cy Σ_k C_kc Σ_j (1 − ε_j) n_kjy / P(y | k, j)   and   ν_y Σ_kj ε_j n_kjy / P(y | k, j)
        theta += ways.theta * (made_of.T @ ((1 - people.careless) * rate).sum(axis=1))
        noise += ways.noise * (by_noise * rate).sum(axis=(0, 1))
    return theta, noise


def _at_least_contested(psi: Array, contested: NDArray[np.bool_]) -> Array:
    """The shares of the types, those of contested items raised to the least that makes a view."""
    share = psi[contested].sum()
    if not contested.any() or share >= LEAST_CONTESTED:
        return psi
    raise_by, lower_by = LEAST_CONTESTED / share, (1 - LEAST_CONTESTED) / (1 - share)
    return np.asarray(psi * np.where(contested, raise_by, lower_by))


# ---- fitting ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fitting:
    """The labels to be explained, laid out for messages."""

    annotations: Annotations
    pool: Executor

    @cached_property
    def graph(self) -> Graph:
        """Items and annotators, linked by labels."""
        return Graph.of(self.annotations, Run(self.pool))

    @cached_property
    def shares(self) -> Array:
        """(P,) how often each class is given."""
        return normalised(self.annotations.counts.sum(axis=0) + 1.0)

    @cached_property
    def pairs(self) -> NDArray[np.intp]:
        """(pairs, 2): classes that meet on an item, both ways round; the most frequent where many do."""
        counts = self.annotations.counts
        met = np.triu(counts.T @ counts, k=1)
        a, b = np.unravel_index(np.argsort(-met, axis=None, kind="stable")[:MOST_PAIRS], met.shape)
        a, b = a[a < b], b[a < b]
        return np.stack([np.concatenate([a, b]), np.concatenate([b, a])], axis=1)

    def without_group(self, rounds: int) -> Fit:
        """The crowd and spammers, no other group."""
        types = ItemTypes.of(self.shares, self.pairs, group=False)
        people = People.of(self.shares, group=False)
        theta = normalised(0.8 * np.eye(len(self.shares)) + 0.2 * self.shares)
        ways = Ways(theta, self.shares, types.expected, people.expected())
        z = np.tile(ways.omega, (self.annotations.n_annotators, 1))
        return self.improved(self.started(types, people, ways, z), rounds)

    def with_group(self, base: Fit, member: Array, rounds: int) -> Fit:
        """The same with a group, of which ``member`` (annotators,) says who might be in it."""
        types = ItemTypes.of(self.shares, self.pairs, group=True)
        people = replace(base.people, group=True)
        psi = np.where(types.contested, types.expected, 0)
        psi *= 0.25 / psi.sum()
        psi[~types.contested] = 0.75 * base.ways.psi
        spam = base.people.parts(base.beliefs.z)[2]
        sense = np.outer(1 - spam.sum(axis=1), people.usual)
        z = np.hstack([sense * (1 - member[:, None]), sense * member[:, None], spam])
        ways = replace(base.ways, psi=psi, omega=normalised(z.sum(axis=0) + people.expected()))
        return self.improved(self.started(types, people, ways, z), rounds)

    def started(self, types: ItemTypes, people: People, ways: Ways, z: Array) -> Fit:
        """Annotators as given, messages that say nothing yet."""
        w = np.tile(ways.psi, (self.annotations.n_items, 1))
        return Fit(types, people, ways, self.graph.start(w, z), -np.inf)

    def improved(self, fit: Fit, rounds: int) -> Fit:
        """Rounds of messages, each followed by learning, until the evidence settles."""
        for _ in range(rounds):
            moved = self.propagated(fit)
            statistics = self.graph.statistics(
                moved.beliefs, safe_log(chances(fit.types, fit.people, fit.ways))
            )
            evidence = moved.beliefs.node_terms - statistics.pair_terms
            settled = abs(evidence - fit.evidence) <= TOLERANCE * self.annotations.n_labels
            fit = replace(moved, evidence=evidence)
            if settled:
                break
            fit = replace(fit, ways=learned(fit, statistics, self.shares))
        return fit

    def propagated(self, fit: Fit) -> Fit:
        """One round of messages, parameters kept."""
        theta = safe_log(chances(fit.types, fit.people, fit.ways))
        potentials = Potentials(theta, safe_log(fit.ways.psi), safe_log(fit.ways.omega))
        return replace(fit, beliefs=self.graph.round(fit.beliefs, potentials))


# ---- where a group might be ---------------------------------------------------------------------------


def deviations(fitting: Fitting, fit: Fit) -> Array:
    """(N, P, P): how much more often than expected an annotator said y on items that are c to the others."""
    P, N = len(fitting.shares), fitting.annotations.n_annotators
    looks, blind = _looks(fit)
    parts = fitting.graph.work.map(
        _deviations_step,
        fit.beliefs.states,
        z=fit.beliefs.z,
        answers=safe_log(chances(fit.types, fit.people, fit.ways)),
        crowd=fit.types.crowd,
        theta=fit.ways.theta,
        looks=looks,
        blind=blind,
    )
    found = np.zeros((N, P, P))
    for who, table in parts:
        found[who] += table
    return found


def _deviations_step(
    block: PairBlock,
    state: BlockState,
    z: Array,
    answers: Array,
    crowd: Array,
    theta: Array,
    looks: Array,
    blind: Array,
) -> tuple[NDArray[np.int32], Array]:
    w, nu, P = state.w, state.nu, answers.shape[2]
    assert nu is not None
    found = np.zeros((len(block.who), P, P))
    for layout, items, pairs, places in zip(
        block.layouts, block.items, block.pairs, block.places, strict=True
    ):
        # The item by all labels but the pair's own: ŵ_e ∝ w_m / μ_e
        incoming, _ = cavity(z, layout.annotator, nu[pairs])
        mu = messages(layout, layout.factors(answers)[0], incoming)
        classes = normalised(np.take(w[items], layout.item, axis=0) / mu) @ crowd
        given = np.repeat(layout.answers, np.diff(layout.bounds), axis=0)
        expected = looks[layout.annotator] * (classes @ theta) + blind[layout.annotator]
        surplus = given - expected * given.sum(axis=1, keepdims=True)
        for c in range(P):
            found[places, c] += layout.to_annotators @ (surplus * classes[:, [c]])
    return block.who, found


def _looks(fit: Fit) -> tuple[Array, Array]:
    """(N, 1) how often an annotator looks, and (N, P) what comes where they do not."""
    people, z = fit.people, fit.beliefs.z
    crowd, _, spam = people.parts(z)
    return crowd @ (1 - people.careless), crowd @ (
        people.careless * people.blind(fit.ways.noise)
    ) + spam @ people.spam


def guesses(fitting: Fitting, base: Fit) -> list[Array]:
    """Who might be in a group: those who deviate most along the main directions, or agree least."""
    N = fitting.annotations.n_annotators
    load = np.maximum(fitting.annotations.annotator_load, 1)
    sense = base.people.parts(base.beliefs.z)[0].sum(axis=1)
    table = deviations(fitting, base) * (sense / np.sqrt(load))[:, None, None]
    flat = table.reshape(N, -1)
    flat = flat - flat.mean(axis=0)
    _, directions = np.linalg.eigh(flat.T @ flat)
    scores = [sign * (flat @ directions[:, -i]) for i in (1, 2) for sign in (1, -1)]
    scores.append(-np.trace(table, axis1=1, axis2=2))
    return [np.where(score - score.mean() > 0.7 * score.std(), 0.9, 0.05) for score in scores]
