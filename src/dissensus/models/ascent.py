"""The loop every EM-like fit runs, and the choice among restarts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from dissensus.engine import Executor
from dissensus.models.base import Array

State = TypeVar("State")


@dataclass(frozen=True)
class Climb(Generic[State]):
    """Where a fit ended: its state, the objective at every iteration, and why it stopped."""

    state: State
    trace: Array
    stopped: str  # "tolerance" or "max_iter"


def climb(
    step: Callable[[State], tuple[State, float]], start: State, *, max_iter: int, tol: float, n_labels: int
) -> Climb[State]:
    """Repeat ``step`` until the objective per label changes by at most ``tol``.

    A step returns the next state and the objective of the state it was given; the state that is returned is
    the one whose objective is the trace's last.
    """
    state, following, trace = start, start, list[float]()
    for _ in range(max_iter):
        state = following
        following, objective = step(state)
        trace.append(objective)
        if len(trace) > 1 and abs(trace[-1] - trace[-2]) <= tol * max(n_labels, 1):
            return Climb(state, np.array(trace), "tolerance")
    return Climb(state, np.array(trace), "max_iter")


def best_restart(
    run: Callable[[np.random.Generator], Climb[State]], n_restarts: int, seed: int, pool: Executor
) -> Climb[State]:
    """The climb that ended highest; restart r draws from its own stream, whatever runs it."""
    streams = [np.random.default_rng([seed, restart]) for restart in range(n_restarts)]
    return max(pool.map(run, streams), key=lambda climbed: float(climbed.trace[-1]))
