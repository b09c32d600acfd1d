"""The loop every EM-like fit runs, and the choice among restarts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from dissensus.execution.blocks import Executor
from dissensus.execution.checkpoints import Book
from dissensus.models.base import Array

State = TypeVar("State")


@dataclass(frozen=True)
class Climb(Generic[State]):
    """Where a fit ended: its state, the objective at every iteration, and why it stopped."""

    state: State
    trace: Array
    stopped: str  # "tolerance" or "max_iter"


def climb(
    step: Callable[[State], tuple[State, float]],
    start: Callable[[], State],
    *,
    max_iter: int,
    tol: float,
    n_labels: int,
    book: Book[State],
) -> Climb[State]:
    """Repeat ``step`` until the objective per label changes by at most ``tol``.

    A step returns the next state and the objective of the state it was given; the state that is returned is
    the one whose objective is the trace's last. What the ``book`` holds of an earlier run is gone on with.
    """
    found = book.latest()
    if found is not None and found.stopped:
        return Climb(found.state, np.array(found.trace), found.stopped)
    state = following = start() if found is None else found.state
    trace = [] if found is None else list(found.trace)
    stopped = "max_iter"
    while len(trace) < max_iter:
        state = following
        following, objective = step(state)
        trace.append(objective)
        if len(trace) > 1 and abs(trace[-1] - trace[-2]) <= tol * max(n_labels, 1):
            stopped = "tolerance"
            break
        book.note(following, trace, max_iter, n_labels)
    book.close(state, trace, stopped)
    return Climb(state, np.array(trace), stopped)


def best_restart(
    run: Callable[[np.random.Generator, Book[State]], Climb[State]],
    n_restarts: int,
    seed: int,
    pool: Executor,
    *,
    kind: type[State],
) -> Climb[State]:
    """The climb that ended highest; restart r draws from its own stream, whatever runs it.

    ``kind`` is the class of the climbs' states.
    """

    def restarted(restart: int) -> Climb[State]:
        book = pool.desk.book(f"restart-{restart}", kind)
        return run(np.random.default_rng([seed, restart]), book)

    # One at a time where they run one after the other: only the best so far is kept, with its messages.
    return max(pool.mapped(restarted, range(n_restarts)), key=lambda climbed: float(climbed.trace[-1]))
