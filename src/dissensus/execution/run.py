"""What a fit uses while it runs: what maps over blocks, restarts, iterations, checkpoints, progress.

The loop of a model stands in the model's own file. What is here is used by the loop and never calls it back::

    restarts = run.restarts(State, n_restarts, seed)
    for restart in restarts:
        state = restart.resumed                     # of an earlier run that was stopped, or None
        if state is None:
            state = ...                             # start
        for _ in restart.iterations(max_iter, tol):
            ...                                     # expectation, objective, maximisation
            state = restart.advance(state, objective, following)
    best = restarts.best                            # best.state, best.trace, best.stopped

A fit without restarts takes the one ``run.ascent(State)``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from dissensus.execution.checkpoints import Checkpoint, Checkpoints
from dissensus.execution.leaps import NEAR, SETTLED
from dissensus.execution.messages import InMemory, MessageStorage
from dissensus.execution.threads import Executor, Local
from dissensus.numerics import Array
from dissensus.progress import Progress, in_words

State = TypeVar("State")
Leap = Callable[[State, State, State], State]  # three states, each EM's step from the one before (leaps.py)


@dataclass
class Pause:
    """After how many iterations a fit stops for now, and where it is then.

    The same fit with what was ``held`` goes on from there, with the bits of one that never stopped.
    """

    after: int | None  # None: it goes on to its end
    held: Checkpoint[Any] | None = None  # where to go on; once the fit is over, where it was paused


@dataclass(frozen=True)
class Run:
    """What one fit runs on, and where it keeps things meanwhile."""

    executor: Executor = field(default_factory=Local)
    n_labels: int = 1
    storage: MessageStorage = field(default_factory=InMemory)  # for messages between rounds
    checkpoints: Callable[[], Path] | None = None  # where this very fit keeps its own; None: nowhere
    checkpoint_every: int = 5  # iterations between two checkpoints
    progress: Progress | None = None
    pause: Pause | None = None

    def ascent(
        self,
        kind: type[State],
        name: str = "fit",
        rng: np.random.Generator | None = None,
        leap: Leap[State] | None = None,
    ) -> Ascent[State]:
        """The iterations of one fit whose states are of a kind; with leaps where a way to leap is given."""
        kept = (
            None
            if self.checkpoints is None
            else Checkpoints(self.checkpoints() / name, kind, self.checkpoint_every)
        )
        return Ascent(kept, self.n_labels, self.progress, rng or np.random.default_rng(0), self.pause, leap)

    def restarts(
        self, kind: type[State], n_restarts: int, seed: int, leap: Leap[State] | None = None
    ) -> Restarts[State]:
        """Fits from several starts, one after the other; the best is kept."""
        return Restarts(self, kind, n_restarts, seed, leap)


class Restarts(Generic[State]):
    """Ascents from several starts. Restart r draws from its own stream of random numbers."""

    best: Ascent[State]  # the one that ended highest, the first of several

    def __init__(
        self, run: Run, kind: type[State], n_restarts: int, seed: int, leap: Leap[State] | None = None
    ) -> None:
        self._run = run
        self._kind = kind
        self._n_restarts = n_restarts
        self._seed = seed
        self._leap = leap

    def __iter__(self) -> Iterator[Ascent[State]]:
        for number in range(self._n_restarts):
            rng = np.random.default_rng([self._seed, number])
            ascent = self._run.ascent(self._kind, f"restart-{number}", rng, self._leap)
            yield ascent
            if number == 0 or ascent.trace[-1] > self.best.trace[-1]:
                self.best = ascent


class Ascent(Generic[State]):
    """Iterations of one fit until its objective settles: what was found, and how it came about."""

    state: State  # the state whose objective is the trace's last, once the iterations are over
    stopped: str  # "tolerance", "max_iter" or "paused"; empty while iterations go on

    def __init__(
        self,
        checkpoints: Checkpoints[State] | None,
        n_labels: int,
        progress: Progress | None,
        rng: np.random.Generator,
        pause: Pause | None = None,
        leap: Leap[State] | None = None,
    ) -> None:
        self.rng = rng
        self._leap = leap
        # A fit with checkpoints goes on from those.
        self._pause = Pause(None) if pause is None or checkpoints is not None else pause
        self._checkpoints = checkpoints
        self._n_labels = max(n_labels, 1)
        self._progress = progress
        self._began: tuple[float, int] | None = None
        found = self._pause.held if checkpoints is None else checkpoints.latest()
        self._pause.held = None
        self.resumed = None if found is None else found.state
        self.stopped = "" if found is None else found.stopped
        self._objectives = [] if found is None else list(found.trace)
        # Beside the state to go on with: the one it came from or, where it is a leap, EM's own step.
        self._other = None if found is None else found.other
        self._leapt = found is not None and found.leapt
        if found is not None:
            self.state = found.state

    @property
    def trace(self) -> Array:
        """The objective at every iteration."""
        return np.array(self._objectives)

    def iterations(self, max_iter: int, tol: float) -> Iterator[int]:
        """Until the objective per label changes by at most ``tol``, ``max_iter`` of them at most."""
        self._max_iter, self._tol = max_iter, tol
        while not self.stopped:
            yield len(self._objectives)

    def advance(self, state: State, objective: float, following: State) -> State:
        """At the end of an iteration: the state it began with, that state's objective, and what follows.

        Returns the state to go on with; after the last iteration, the one whose objective is the last. A leap
        that ended lower does not count: EM's own step takes its place.
        """
        objectives, leapt = self._objectives, self._leapt
        if leapt:
            step, self._other, self._leapt = self._other, None, False
            if step is not None and not objective >= objectives[-1]:  # lower, or no number
                return step
        objectives.append(objective)
        if not leapt and self._within(self._tol if self._leap is None else SETTLED * self._tol):
            return self._stop(state, "tolerance")
        following = self._onward(state, following)
        last = len(objectives) == self._max_iter
        reached = Checkpoint(following, tuple(objectives), "", self._other, self._leapt)
        if self._checkpoints is not None and len(objectives) % self._checkpoints.every == 0 and not last:
            self._checkpoints.write(reached)
        self._tell(len(objectives))
        if len(objectives) == self._pause.after and not last:
            self._pause.held = reached
            return self._stop(state, "paused")
        return self._stop(state, "max_iter") if last else following

    def _onward(self, state: State, following: State) -> State:
        """EM's own step or, near the end, where it and the one before lead."""
        if self._leap is None:
            return following
        before, self._other = self._other, state
        if before is None or not self._within(NEAR):
            return following
        self._other, self._leapt = following, True
        return self._leap(before, state, following)

    def _within(self, tol: float) -> bool:
        """Whether the last change of the objective per label was at most so much."""
        last = self._objectives[-2:]
        return len(last) == 2 and abs(last[1] - last[0]) <= tol * self._n_labels

    def _stop(self, state: State, why: str) -> State:
        self.state, self.stopped = state, why
        if self._checkpoints is not None:
            self._checkpoints.write(Checkpoint(state, tuple(self._objectives), why))
        return state

    def _tell(self, done: int) -> None:
        if self._progress is None:
            return
        now = time.monotonic()
        if self._began is None:
            self._began = now, done
        since, first = self._began
        words = f"iteration {done} of at most {self._max_iter}"
        if done > first:
            seconds = (now - since) / (done - first)
            left = in_words(seconds * (self._max_iter - done))
            words += f", {self._n_labels / seconds:,.0f} labels per second, at most {left} left"
        self._progress(words, done / self._max_iter)
