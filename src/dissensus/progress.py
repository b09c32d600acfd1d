"""How far the work is: told to a function, or shown as a bar on standard error.

``progress`` means the same wherever it is a parameter: a function told what is being done and which share of
the whole is behind; True or False for a bar or none; None for a bar on a terminal. A bar that is asked for
while another is shown becomes a line of words below that one.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from dissensus.params import Rule

#: Told what is being done, and which share of the whole (0 to 1) is behind.
Progress = Callable[[str, float], None]
#: The parameter ``progress``.
ShowProgress = bool | Progress | None

PROGRESS = Rule(
    "a function of words and a share, True, False or None",
    lambda v: v is None or isinstance(v, bool) or callable(v),
)


@contextmanager
def shown(progress: ShowProgress = None) -> Iterator[Progress]:
    """What to tell: the function given, a bar, or nobody."""
    if callable(progress):
        yield progress
    elif sys.stderr.isatty() if progress is None else progress:
        with _bar() as tell:
            yield tell
    else:
        yield silent


def silent(what: str, share: float) -> None:
    """Nobody is told."""


@contextmanager
def counted(what: str, total: int, progress: ShowProgress = None) -> Iterator[Callable[[int], None]]:
    """Yield a function that is told how many more of ``total`` steps are done."""
    with shown(progress if total else False) as tell:
        clock = Clock(tell, total)
        yield lambda steps: clock.tick(steps, what)


def in_words(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Clock:
    """Expected time left, from the weight of the work done since it was started and that still to do."""

    def __init__(self, progress: Progress, to_do: float) -> None:
        self._progress = progress
        self._to_do = to_do
        self._done = 0.0
        self._started = time.perf_counter()

    def expect(self, to_do: float) -> None:
        """What is still to do, known better than before."""
        self._to_do = to_do

    def tick(self, weight: float, what: str) -> None:
        """So much more is done."""
        self._done += weight
        self._to_do = max(self._to_do - weight, 0.0)
        share = self._done / (self._done + self._to_do)
        elapsed = time.perf_counter() - self._started
        left = elapsed * self._to_do / self._done if self._done else 0.0  # at the pace so far
        self._progress(f"{what}, {in_words(left)} left", share)


# ---- on a terminal ------------------------------------------------------------------------------------


def printable(text: str) -> str:
    """The text without control characters, which could play tricks with a terminal."""
    return "".join(letter if letter.isprintable() else " " for letter in text)


class _Bar:
    """A bar for the whole, and below it words on the part that is being done."""

    def __init__(self) -> None:
        from rich.console import Console, Group
        from rich.live import Live
        from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn
        from rich.progress import TimeElapsedColumn as Elapsed

        text = TextColumn("{task.description}", markup=False)
        self._whole = Progress(SpinnerColumn(), text, BarColumn(), TaskProgressColumn(), Elapsed())
        self._parts = Progress(TextColumn("  {task.description}", markup=False))
        self._bar, self._line = self._whole.add_task("", total=1.0), self._parts.add_task("", visible=False)
        console = Console(stderr=True, markup=False, highlight=False, emoji=False)
        self.live = Live(Group(self._whole, self._parts), console=console, transient=True)
        self._stage = ""

    def tell_whole(self, what: str, share: float) -> None:
        self._whole.update(self._bar, description=printable(what), completed=share)
        self._parts.update(self._line, visible=False)
        if what != self._stage:  # a stage shorter than the time between two drawings is seen all the same
            self._stage = what
            self.live.refresh()

    def tell_part(self, what: str, share: float) -> None:
        self._parts.update(self._line, description=printable(what), visible=True)


_shown: _Bar | None = None
_showing = threading.Lock()


@contextmanager
def _bar() -> Iterator[Progress]:
    """The one bar, gone when the work is done; a line of its own where there is a bar already."""
    global _shown
    with _showing:
        outer, _shown = _shown, _shown or _Bar()
        own = _shown
    if outer is not None:
        yield outer.tell_part
        return
    try:
        with own.live:
            yield own.tell_whole
    finally:
        _shown = None
