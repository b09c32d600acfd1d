"""EM on the graphical model, its E-step by messages (Algorithm 3): maximum posterior or variational Bayes.

One iteration: parameters from the expected counts, then up to ``rounds`` rounds of messages. The objective is
Bethe's log-evidence plus what the priors add; under mean field, and with pairwise counts and settled messages
on a tree, it is a bound or the evidence itself and never falls. Elsewhere it is neither, and may swing: when
it keeps swinging without calming down, messages are damped from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from dissensus.execution.checkpoints import Book
from dissensus.models.ascent import Climb, climb
from dissensus.models.pgm.learning import Learned, Learner
from dissensus.models.pgm.propagation import Beliefs, Graph, Potentials
from dissensus.numerics import Array, normalised, safe_log

AUTO_DAMPING = 0.5  # share of the old message that is kept once messages are found to swing
SWINGS = 4  # changes of direction in a row that count as swinging


@dataclass(frozen=True)
class State:
    """Beliefs, what was learned for them, and how the fit has gone so far."""

    beliefs: Beliefs
    learned: Learned
    objectives: tuple[float, ...] = ()  # the last few, oldest first
    damping: float = 0.0


@dataclass(frozen=True)
class MessageEM:
    """The settings of a fit and the graph it runs on."""

    graph: Graph
    learner: Learner
    pairwise: bool
    rounds: int
    bp_tol: float
    damping: float | None  # None: damped when found to swing
    load: Array  # (annotators,): labels of each annotator
    evidence: Array | None  # (items, classes): pseudo-labels known of the items beforehand

    def climb(
        self,
        beginning: Callable[[], Beliefs],
        *,
        max_iter: int,
        tol: float,
        n_labels: int,
        book: Book[State],
    ) -> Climb[State]:
        """Iterate from first beliefs until the objective settles."""

        def start() -> State:
            beliefs = beginning()
            learned = self.learner.learn(self.graph.statistics(beliefs, None), None)
            damping = float(self.damping or 0.0)
            return State(self._settled(beliefs, learned, damping), learned, (), damping)

        return climb(self._step, start, max_iter=max_iter, tol=tol, n_labels=n_labels, book=book)

    def _step(self, state: State) -> tuple[State, float]:
        theta = state.learned.potentials.theta if self.pairwise else None
        statistics = self.graph.statistics(state.beliefs, theta)
        pair_terms = 0.0 if self.graph.mean_field else statistics.pair_terms
        objective = state.beliefs.node_terms - pair_terms + state.learned.prior_term
        objectives = (*state.objectives, objective)[-(SWINGS + 2) :]
        damping = state.damping
        if self.damping is None and not damping and swings(objectives):
            damping = AUTO_DAMPING
        learned = self.learner.learn(statistics, state.learned)
        beliefs = self._settled(state.beliefs, learned, damping)
        return State(beliefs, learned, objectives, damping), objective

    def _settled(self, beliefs: Beliefs, learned: Learned, damping: float) -> Beliefs:
        mass = beliefs.z.T @ self.load
        potentials = with_evidence(learned.potentials, self.evidence, mass)
        return self.graph.settle(beliefs, potentials, rounds=self.rounds, tol=self.bp_tol, damping=damping)


def swings(objectives: Sequence[float]) -> bool:
    """Has the objective turned at every step of late, without the turns getting smaller?"""
    changes = np.diff(objectives)
    if len(changes) <= SWINGS:
        return False
    turned = (np.sign(changes[1:]) * np.sign(changes[:-1]) < 0).all()
    return bool(turned and abs(changes[-1]) > 0.5 * abs(changes[0]))


def with_evidence(potentials: Potentials, evidence: Array | None, mass: Array) -> Potentials:
    """Item potentials of their own where something is known of the items beforehand."""
    if evidence is None:
        return potentials
    own = item_evidence(evidence, normalised(np.exp(potentials.theta)), mass)
    return replace(potentials, psi=potentials.psi + own)


def item_evidence(evidence: Array, theta: Array, mass: Array) -> Array:
    """(items, K): Σ_p h_mp log Σ_l π_l Θ_klp, the pseudo-labels h_m as those of an average annotator.

    ``mass`` (annotator clusters) weighs the clusters: π ∝ mass.
    """
    average = np.einsum("l,klp->kp", normalised(mass), theta)
    return np.asarray(evidence @ safe_log(average).T)
