"""A progress bar on standard error: on a terminal unless told otherwise, quiet in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str, total: int, show: bool | None = None) -> Iterator[Callable[[int], None]]:
    """Yield a function that moves the bar on by so many steps; nothing is drawn if there is nothing to do."""
    if not total or not (sys.stderr.isatty() if show is None else show):
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True)) as bars:
        bar = bars.add_task(what, total=total)
        yield lambda steps: bars.update(bar, advance=steps)
