"""A crowd, a group that sees some items otherwise, and those who do not look: one small model of all three.

How a label is born. An item is *clear* (of one class a), *torn* (of class a for some, b for others, whoever
looks) or *contested* (a for the crowd, b for the group). An annotator belongs to the crowd or to the group
and is careless to a degree ε: sees the item's class c and answers by Θ_c, or, in a share ε of the cases,
answers by the noise ν without looking. Or the annotator is a spammer, who answers by the class shares, by all
classes alike, or nearly always with one class, whatever the item.

    P(y | item of kind k, crowd, ε) = (1 − ε) Σ_c C_kc Θ_cy + ε ν_y        (1)
    P(y | item of kind k, group, ε) = (1 − ε) Σ_c G_kc Θ_cy + ε ν_y        (2)
    P(y | spam strategy s)          = S_sy                                 (3)

C and G, fixed, say which classes a kind is made of; they differ for contested kinds alone. This is the joint
model of models/pgm.py with tied parameters: kinds are its item clusters, (crowd or group, ε) and strategies
its annotator clusters. So the same messages fit it, and an annotator's posterior rests on the items as the
*others* labelled them. Torn items matter: without them any disagreement looks like two groups.

A group is another view only if it differs on a tenth of the items or more; the share of contested items is
never learned to be less.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus.annotations import Annotations
from dissensus.engine import Executor, shards_of
from dissensus.kernels import Array, cavity, messages, normalised, safe_log, softmax_rows
from dissensus.models.propagation import Beliefs, Graph, Potentials, Statistics

CARELESS = np.array([0.0, 0.15, 0.3, 0.5, 0.7])  # the degrees ε
USUAL = np.array([0.3, 0.3, 0.2, 0.15, 0.05])  # their shares among those who look, before any label
LEAST_CONTESTED = 0.1  # share of the items on which a group must differ to be one
TORN = 0.65  # share of the first class in a torn item
MOST_PAIRS = 28  # pairs of classes that items can be torn between: all of eight classes
CONSTANT = 0.9  # how often a one-class spammer gives that class
EXPECTED = {"crowd": 0.88, "group": 0.07, "spam": 0.05}  # shares of annotators, before any label
ANNOTATORS_WORTH, ITEMS_WORTH = 5.0, 10.0  # annotators and items that these expectations count as
TOLERANCE = 1e-5  # nats a label

_J = len(CARELESS)


# ---- kinds of items -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kinds:
    """What an item can be, and of which classes it is then made for the crowd and for the group."""

    crowd: Array  # (K, P) C
    group: Array  # (K, P) G
    expected: Array  # (K,) shares before any label
    contested: NDArray[np.bool_]  # (K,)

    @classmethod
    def of(cls, shares: Array, pairs: NDArray[np.intp], *, contested: bool) -> Kinds:
        """Clear and torn kinds; with ``contested`` those as well. ``pairs`` are ordered pairs of classes."""
        first, second = np.eye(len(shares))[pairs[:, 0]], np.eye(len(shares))[pairs[:, 1]]
        clear, torn = np.eye(len(shares)), TORN * first + (1 - TORN) * second
        both = (shares[pairs[:, 0]] * shares[pairs[:, 1]])[:, None]
        parts = [(clear, clear, shares[:, None], False), (torn, torn, 0.3 * both, False)]
        if contested:
            parts.append((first, second, 0.3 * both, True))
        crowd, group, expected = (np.concatenate([part[i] for part in parts]) for i in range(3))
        marks = np.concatenate([np.full(len(part[0]), part[3]) for part in parts])
        return cls(crowd, group, normalised(expected[:, 0]), marks)


@dataclass(frozen=True)
class Ways:
    """The parameters."""

    theta: Array  # (P, P) Θ: answers to a class that is seen
    noise: Array  # (P,) ν: answers without looking
    psi: Array  # (K,) shares of the kinds of items
    omega: Array  # (L,) shares of the annotators: crowd by ε, group by ε, spam by strategy


@dataclass(frozen=True)
class Fit:
    """A fitted model: what was learned, what is believed of each item and annotator, and the evidence."""

    kinds: Kinds
    ways: Ways
    beliefs: Beliefs
    evidence: float  # log-probability of the labels, in Bethe's form

    def accounts(self, load: NDArray[Any], enough: float) -> Array:
        """(N, 3): probability that an annotator is of the crowd, of the group, a spammer.

        Labels in excess of about ``enough`` hardly count: no model of people is right to the last label.
        """
        omega = safe_log(self.ways.omega)
        # log P(z) = log Ω + log P(labels | z) / (1 + n / enough)
        weight = 1 / (1 + load / enough)
        logits = omega + weight[:, None] * (safe_log(self.beliefs.z) - omega)
        z, _ = softmax_rows(logits)
        stop = 2 * _J if self.kinds.contested.any() else _J
        return np.stack([part.sum(axis=1) for part in (z[:, :_J], z[:, _J:stop], z[:, stop:])], axis=1)


# ---- the model over some annotations ------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """The labels to be explained, laid out for messages, and what is taken from them beforehand."""

    annotations: Annotations
    pool: Executor

    @cached_property
    def graph(self) -> Graph:
        """Items and annotators, linked by labels."""
        return Graph(shards_of(self.annotations), self.annotations.n_annotators, self.pool)

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

    @cached_property
    def spam(self) -> Array:
        """(S, P): the class shares, all classes alike, and nearly always one of them."""
        P = len(self.shares)
        # Not surer of a class than a good annotator is: who saw only items of one class is no spammer.
        others = normalised(self.shares * (1 - np.eye(P)))
        return np.vstack([self.shares, np.full(P, 1 / P), CONSTANT * np.eye(P) + (1 - CONSTANT) * others])

    def expected_omega(self, *, group: bool) -> Array:
        """(L,) shares of the annotators' columns before any label."""
        parts = {"crowd": USUAL, "spam": np.full(len(self.spam), 1 / len(self.spam))}
        parts = {"crowd": USUAL, "group": USUAL, "spam": parts["spam"]} if group else parts
        return normalised(np.concatenate([EXPECTED[who] * part for who, part in parts.items()]))

    # ---- fitting --------------------------------------------------------------------------------------

    def alone(self, rounds: int) -> Fit:
        """The crowd and spammers, no other group."""
        kinds = Kinds.of(self.shares, self.pairs, contested=False)
        theta = normalised(0.8 * np.eye(len(self.shares)) + 0.2 * self.shares)
        ways = Ways(theta, self.shares, kinds.expected, self.expected_omega(group=False))
        z = np.tile(ways.omega, (self.annotations.n_annotators, 1))
        return self.climb(self.started(kinds, ways, z), rounds)

    def joined(self, base: Fit, member: Array, rounds: int) -> Fit:
        """The same with a group, of which ``member`` (annotators,) says who might be in it."""
        kinds = Kinds.of(self.shares, self.pairs, contested=True)
        psi = np.where(kinds.contested, kinds.expected, 0)
        psi *= 0.25 / psi.sum()
        psi[~kinds.contested] = 0.75 * base.ways.psi
        spam = base.beliefs.z[:, _J:]
        sense = np.outer(1 - spam.sum(axis=1), USUAL)
        z = np.hstack([sense * (1 - member[:, None]), sense * member[:, None], spam])
        omega = normalised(z.sum(axis=0) + self.expected_omega(group=True))
        ways = replace(base.ways, psi=psi, omega=omega)
        return self.climb(self.started(kinds, ways, z), rounds)

    def started(self, kinds: Kinds, ways: Ways, z: Array) -> Fit:
        """Annotators as given, messages that say nothing yet."""
        w = np.tile(ways.psi, (self.annotations.n_items, 1))
        return Fit(kinds, ways, self.graph.start(w, z), -np.inf)

    def climb(self, fit: Fit, rounds: int, *, learn: bool = True) -> Fit:
        """Rounds of messages, each followed by learning, until the evidence settles."""
        kinds, ways, beliefs, evidence = fit.kinds, fit.ways, fit.beliefs, fit.evidence
        for _ in range(rounds):
            theta = safe_log(chances(kinds, ways, self.spam))
            beliefs = self.graph.round(beliefs, Potentials(theta, safe_log(ways.psi), safe_log(ways.omega)))
            statistics = self.graph.statistics(beliefs, theta)
            before, evidence = evidence, beliefs.node_terms - statistics.pair_terms
            if abs(evidence - before) <= TOLERANCE * self.annotations.n_labels:
                break
            if learn:
                ways = self._learned(kinds, ways, statistics)
        return Fit(kinds, ways, beliefs, evidence)

    def _learned(self, kinds: Kinds, ways: Ways, statistics: Statistics) -> Ways:
        group = bool(kinds.contested.any())
        theta, noise = _answers_learned(kinds, ways, statistics.label_mass[:, : (1 + group) * _J])
        psi = normalised(statistics.item_mass + ITEMS_WORTH * kinds.expected)
        annotators = statistics.annotator_mass + ANNOTATORS_WORTH * self.expected_omega(group=group)
        looking = annotators[: (1 + group) * _J].reshape(-1, _J)
        # Ω_{who, ε} = Ω_who Ω_ε: a group is no more careless than the crowd
        looking[:] = np.outer(looking.sum(axis=1), normalised(looking.sum(axis=0)))
        return Ways(
            normalised(theta + 2 * np.eye(len(theta)) + 0.5 * self.shares),
            normalised(noise + 10 * self.shares),
            _at_least_contested(psi, kinds.contested),
            normalised(annotators),
        )


def chances(kinds: Kinds, ways: Ways, spam: Array) -> Array:
    """(K, L, P): equations (1), (2) and (3), one after the other along L."""
    seen = [kinds.crowd, kinds.group] if kinds.contested.any() else [kinds.crowd]
    careless = CARELESS[:, None]
    parts = [(1 - careless) * (made_of @ ways.theta)[:, None, :] + careless * ways.noise for made_of in seen]
    return np.concatenate([*parts, np.broadcast_to(spam, (len(kinds.crowd), *spam.shape))], axis=1)


def _answers_learned(kinds: Kinds, ways: Ways, mass: Array) -> tuple[Array, Array]:
    """Labels given after seeing each class (P, P), and without looking (P,), out of the expected counts."""
    theta, noise = np.zeros_like(ways.theta), np.zeros_like(ways.noise)
    careless = CARELESS[:, None]
    for place, made_of in zip(range(0, mass.shape[1], _J), (kinds.crowd, kinds.group), strict=False):
        total = (1 - careless) * (made_of @ ways.theta)[:, None, :] + careless * ways.noise
        rate = mass[:, place : place + _J] / total
        # Θ_cy Σ_k C_kc Σ_ε (1 − ε) n_kεy / P(y | k, ε)   and   ν_y Σ_kε ε n_kεy / P(y | k, ε)
        theta += ways.theta * (made_of.T @ ((1 - careless) * rate).sum(axis=1))
        noise += ways.noise * (careless * rate).sum(axis=(0, 1))
    return theta, noise


def _at_least_contested(psi: Array, contested: NDArray[np.bool_]) -> Array:
    """The shares of the kinds, those of contested items raised to the least that makes a view."""
    share = psi[contested].sum()
    if not contested.any() or share >= LEAST_CONTESTED:
        return psi
    raised: Array = np.where(
        contested, psi * LEAST_CONTESTED / share, psi * (1 - LEAST_CONTESTED) / (1 - share)
    )
    return raised


# ---- where a group might be ---------------------------------------------------------------------------


def deviations(scene: Scene, fit: Fit) -> Array:
    """(N, P, P): how much more often than expected an annotator said y on items that are c to the others."""
    P, N = len(scene.shares), scene.annotations.n_annotators
    answers = safe_log(chances(fit.kinds, fit.ways, scene.spam))
    crowd = fit.beliefs.z[:, :_J]
    looks = crowd @ (1 - CARELESS)
    found = np.zeros((N, P, P))
    for shard, state in zip(scene.graph.shards, fit.beliefs.states, strict=True):
        layout = shard.pairs
        # The item by all labels but the pair's own: ŵ_e ∝ w_m / μ_e
        incoming, _ = cavity(fit.beliefs.z, layout.annotator, state.nu)
        mu = messages(layout, layout.factors(answers)[0], incoming)
        classes = normalised(np.take(state.w, layout.item, axis=0) / mu) @ fit.kinds.crowd
        given = np.repeat(layout.answers, np.diff(layout.bounds), axis=0)
        look = looks[layout.annotator][:, None]
        expected = look * (classes @ fit.ways.theta) + (1 - look) * fit.ways.noise
        surplus = given - expected * given.sum(axis=1, keepdims=True)
        for c in range(P):
            found[layout.who, c] += layout.to_annotators @ (surplus * classes[:, [c]])
    return found


def guesses(scene: Scene, base: Fit) -> list[Array]:
    """Who might be in a group: those who deviate most along the main directions, or agree least."""
    N = scene.annotations.n_annotators
    load = np.maximum(scene.annotations.annotator_load, 1)
    sense = base.beliefs.z[:, :_J].sum(axis=1)
    table = deviations(scene, base) * (sense / np.sqrt(load))[:, None, None]
    flat = table.reshape(N, -1)
    flat = flat - flat.mean(axis=0)
    _, directions = np.linalg.eigh(flat.T @ flat)
    along = [flat @ directions[:, -i] for i in range(1, min(2, directions.shape[1]) + 1)]
    scores = [sign * score for score in along for sign in (1, -1)]
    scores.append(-np.trace(table, axis1=1, axis2=2))
    return [np.where(score - score.mean() > 0.7 * score.std(), 0.9, 0.05) for score in scores]
