"""Progress of long work: passed to a function, or shown on a terminal, in a notebook or in a log.

The parameter ``progress`` of many functions is a function of words and the share done; or True to show
progress, False to show none, None to leave the decision to the caller. A terminal has a bar, a notebook one
output that changes in place, and anything else (a pipe, a log file) a line on standard error every
``LINE_SECONDS``. Progress inside work that is shown already becomes a line of words below it.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from html import escape

from dissensus.params import Rule

#: Function of a description of the work and the share of it (0 to 1) that is done.
Progress = Callable[[str, float], None]
Advance = Callable[[int], None]
#: The parameter ``progress``.
ShowProgress = bool | Progress | None

PROGRESS = Rule(
    "a function of words and a share, True, False or None",
    lambda v: v is None or isinstance(v, bool) or callable(v),
)
LINE_SECONDS, PAGE_SECONDS, BAR_SECONDS = 20.0, 0.5, 0.1  # between updates of a pipe, a notebook, a terminal
MIN_SHARE_FOR_ESTIMATE = 0.02  # share done before the time left is estimated

# True while a caller wants no display, or shows progress itself
_silenced: ContextVar[bool] = ContextVar("silenced", default=False)


@contextmanager
def shown(progress: ShowProgress = None) -> Iterator[Progress]:
    """Yield the function that reports progress: ``progress`` itself, that of a display, or ``silent``."""
    global _display
    before = _silenced.get()
    if progress is False or callable(progress) or (before and progress is None):
        _silenced.set(before or progress is False or _display is None)
        try:
            yield progress or silent
        finally:
            _silenced.set(before)
        return
    with _opening:
        outer, display = _display, _display or _Display()
        _display = display
    part = None if outer is None else object()  # several parts may run at once, on threads
    try:
        yield partial(display.report, part)
    finally:
        display.parts.pop(part, None)
        if outer is None:
            _display = None
            display.close()


def silent(what: str, share: float) -> None:
    """Do nothing."""


@contextmanager
def counted(what: str, total: int, progress: ShowProgress = None) -> Iterator[Advance]:
    """Yield a function of the number of further steps done, of ``total``."""
    with shown(progress if total else False) as report:
        yield partial(Clock(report, total).tick, what=what)


def in_words(seconds: float) -> str:
    """Return a duration such as ``40 s``, ``12 min`` or ``3.5 h``."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Clock:
    """Estimate of the time left, from the work done since the start and the work still to do."""

    def __init__(self, progress: Progress, to_do: float) -> None:
        self._progress, self._to_do = progress, to_do
        self._done, self._started = 0.0, time.perf_counter()

    def expect(self, to_do: float) -> None:
        """Replace the estimate of the work still to do."""
        self._to_do = to_do

    def tick(self, weight: float, what: str) -> None:
        """Report that ``weight`` more units of work are finished."""
        self._done += weight
        self._to_do = max(self._to_do - weight, 0.0)
        pace = (time.perf_counter() - self._started) / self._done if self._done else 0.0
        left = in_words(pace * self._to_do)
        self._progress(f"{what}, {left} left", self._done / (self._done + self._to_do))


# ---- displays -----------------------------------------------------------------------------------------


def printable(text: str) -> str:
    """Return the text without control characters, which could manipulate a terminal."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " for letter in text)


class _Display:
    """Display of the work in progress, updated by a thread of its own."""

    def __init__(self) -> None:
        self.whole, self.share, self.parts = "working", 0.0, dict[object, str]()
        self.seconds, self._draw = _surface()
        self._started, self._expected, self._ended = time.monotonic(), 0.0, threading.Event()
        self._thread = threading.Thread(target=self._keep_drawing, name="progress", daemon=True)
        self._thread.start()

    def report(self, part: object | None, what: str, share: float) -> None:
        """Set the description and the share done of a part, or of the whole if ``part`` is None."""
        if part is not None:
            begins, self.parts[part] = part not in self.parts, printable(what)
        else:
            if share > max(self.share, MIN_SHARE_FOR_ESTIMATE):
                now = time.monotonic()
                self._expected = now + (now - self._started) * (1 - share) / share
            begins, self.whole, self.share = what != self.whole, printable(what), share
        if begins and self.seconds == BAR_SECONDS:  # a terminal shows even the shortest stage
            self._draw(self)

    def words(self) -> str:
        """Return the work, the share done, the time left unless the work states it, and its parts."""
        whole, left = f"{self.whole}, {self.share:.0%} done", self._expected - time.monotonic()
        if left > 0 and "left" not in self.whole:
            whole += f", about {in_words(left)} left"
        return "; ".join([whole, *self.parts.copy().values()])

    def _keep_drawing(self) -> None:
        while not self._ended.wait(self.seconds):
            with suppress(OSError, ValueError):  # the reader is gone
                self._draw(self)

    def close(self) -> None:
        self._ended.set()
        self._thread.join()
        self._draw(None)


_display: _Display | None = None
_opening = threading.Lock()
_Draw = Callable[[_Display | None], None]  # None: the work is done


def _surface() -> tuple[float, _Draw]:
    """Return the seconds between two updates and the function that draws on this kind of output."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    if shell and any(kind.__name__ == "ZMQInteractiveShell" for kind in type(shell).__mro__):
        return PAGE_SECONDS, _notebook()
    if sys.stderr and sys.stderr.isatty():
        return BAR_SECONDS, _terminal()

    def draw(display: _Display | None) -> None:
        if display:
            print(f"dissensus: {display.words()}", file=sys.stderr, flush=True)

    return LINE_SECONDS, draw


def _notebook() -> _Draw:
    """Return a function that updates one output of a notebook cell and empties it at the end."""
    from IPython.display import display as put

    name, drawn = f"dissensus-{time.monotonic_ns()}", False

    def draw(display: _Display | None) -> None:
        nonlocal drawn
        words, share = (display.words(), display.share) if display else ("", 0.0)
        page = f'<progress max="1" value="{share:.3f}"></progress> {escape(words)}' if words else ""
        if words or drawn:
            put({"text/plain": words, "text/html": page}, raw=True, display_id=name, update=drawn)
            drawn = True

    return draw


def _terminal() -> _Draw:
    """Return a function that draws a bar with the current parts below it and clears them at the end."""
    from rich import console, live
    from rich import progress as rich
    from rich.text import Text

    text, share = rich.TextColumn("{task.description}", markup=False), rich.TaskProgressColumn()
    wholes = rich.Progress(rich.SpinnerColumn(), text, rich.BarColumn(), share, rich.TimeElapsedColumn())
    whole = wholes.add_task("", total=1.0)
    screen = console.Console(stderr=True, markup=False, highlight=False, emoji=False)
    both = live.Live(wholes, console=screen, auto_refresh=False, transient=True)
    both.start()

    def draw(display: _Display | None) -> None:
        if display is None:
            both.stop()
            return
        wholes.update(whole, description=display.whole, completed=display.share)
        parts = [Text(f"  {words}") for words in display.parts.copy().values()]
        both.update(console.Group(wholes, *parts), refresh=True)

    return draw
