"""How much of a search is behind, and how long the rest will take."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Told what is being done, and which share of the whole (0 to 1) is behind.
Progress = Callable[[str, float], None]


@contextmanager
def shown(progress: bool | Progress | None) -> Iterator[Progress]:
    """What to tell: the function given, a bar on standard error, or nobody (None: a bar on a terminal)."""
    if callable(progress):
        yield progress
    elif sys.stderr.isatty() if progress is None else progress:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn())
        with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bars:
            bar = bars.add_task("", total=1.0)
            yield lambda what, share: bars.update(bar, description=what, completed=share)
    else:
        yield lambda what, share: None


class Clock:
    """Expected time left, from the weight of the work done since it was started and that still to do."""

    def __init__(self, progress: Progress, to_do: float, behind: float = 0.0) -> None:
        self._progress = progress
        self._to_do = to_do
        self._behind = behind  # done in an earlier run: part of the share, not of the pace
        self._done = 0.0
        self._started = time.perf_counter()

    def expect(self, to_do: float) -> None:
        """What is still to do, known better than before."""
        self._to_do = to_do

    def tick(self, weight: float, what: str) -> None:
        """So much more is done."""
        self._done += weight
        self._to_do = max(self._to_do - weight, 0.0)
        whole = self._behind + self._done + self._to_do
        self._progress(f"{what}, {in_words(self.seconds_left)} left", (self._behind + self._done) / whole)

    @property
    def seconds_left(self) -> float:
        """At the pace so far."""
        return (time.perf_counter() - self._started) * self._to_do / self._done if self._done else 0.0


def in_words(seconds: float) -> str:
    """A time as a person would say it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
