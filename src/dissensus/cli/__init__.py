"""The command line: a door. A command parses, calls one library function, and prints.

Only typer is loaded to show help; numbers, tables and colours are loaded by the command that needs them.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

__all__ = ["main"]

INTERRUPTED, TERMINATED = 130, 143


def main() -> None:
    """The program ``dissensus``."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        from dissensus.cli.commands import app
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    app(prog_name="dissensus")


def _terminate(number: int, frame: FrameType | None) -> None:
    """Leave through every ``finally``, so that temporary files go."""
    del number, frame
    sys.exit(TERMINATED)
