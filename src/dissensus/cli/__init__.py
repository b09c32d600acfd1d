"""The command line: a door. A command parses, calls one library function, and prints.

Only typer is loaded to show help; numbers, tables and colours are loaded by the command that needs them.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

__all__ = ["main"]

INTERRUPTED, TERMINATED = 130, 143


def main() -> None:
    """The program ``dissensus``."""
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        from dissensus.cli.commands import app
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    try:
        app(prog_name="dissensus")
    except SystemExit as done:
        if done.code == INTERRUPTED:
            _leave_at_once()
        raise


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise what Ctrl-C raises; helper threads that fail on the way out have nothing to say any more."""
    del number, frame
    threading.excepthook = lambda _: None
    raise KeyboardInterrupt


def _leave_at_once() -> None:
    """End without waiting for threads and worker processes that are still busy: Ctrl-C means now."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(INTERRUPTED)


def _terminate(number: int, frame: FrameType | None) -> None:
    """Leave through every ``finally``, so that temporary files go."""
    del number, frame
    sys.exit(TERMINATED)
