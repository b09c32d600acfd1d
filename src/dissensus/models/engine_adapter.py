"""To be deleted with dissensus.execution: the interface of dissensus.engine.Engine over today's Run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from dissensus.execution.checkpoints import Checkpoint, Checkpoints
from dissensus.execution.run import Run
from dissensus.execution.threads import _unless_given_up

Result = TypeVar("Result")
State = TypeVar("State")


class Engine:
    """What a chain needs of an engine."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def map(self, step: Callable[[Any], Result], over: Sequence[Any]) -> list[Result]:
        """``step(x)`` for every x, in order, on threads."""
        return self._run.executor.map(step, over)

    def resume(self, name: str, kind: type[State]) -> State | None:
        """The state of a checkpoint of an earlier run that was stopped."""
        if self._run.checkpoints is None:
            return None
        reached = Checkpoints(self._run.checkpoints() / name, kind, 1).latest()
        return None if reached is None else reached.state

    def checkpoint(self, name: str, state: Any, done: int) -> None:
        """Keep a state, after every few iterations."""
        _unless_given_up()
        run = self._run
        if run.checkpoints is not None and done % run.checkpoint_every == 0:
            kept = Checkpoints(run.checkpoints() / name, type(state), run.checkpoint_every)
            kept.write(Checkpoint(state, (0.0,) * done, ""))

    def show(self, done: int, of: int) -> None:
        """Show how many iterations are done."""
        if self._run.progress is not None:
            self._run.progress(f"iteration {done} of at most {of}", done / of)
