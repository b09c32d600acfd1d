"""The command line. A command parses, calls one library function, and prints.

Only typer is loaded to show help; numbers, tables and colours are loaded by the command that needs them.
"""

from __future__ import annotations

import importlib
import keyword
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

__all__ = ["application", "main"]

INTERRUPTED, TERMINATED = 130, 143

#: A module a command, in the order in which help lists them.
COMMANDS = (
    "describe",
    "fit",
    "rank",
    "report",
    "annotators",
    "judges",
    "plan",
    "queue",
    "update",
    "select",
    "recover",
    "score",
    "models",
    "import_",
    "export",
    "serve",
    "pack",
    "simulate",
    "demo",
    "doctor",
)


def main() -> None:
    """The program ``dissensus``."""
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGINT, _interrupt)
    try:
        app = application(sys.argv[1:])
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    try:
        app(prog_name="dissensus")
    except SystemExit as done:
        if done.code == INTERRUPTED:
            _leave_at_once()
        raise


def application(words: Sequence[str] = ()) -> typer.Typer:
    """The application with every command; each module adds its own when it is imported.

    Where the words of a command line call one, it is enough.
    """
    called = next((word for word in words if not word.startswith("-")), "")
    module = f"{called}_" if keyword.iskeyword(called) else called
    for name in [module] if module in COMMANDS else COMMANDS:
        importlib.import_module(f"dissensus.cli.{name}")
    from dissensus.cli.app import app

    return app


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


OUR_HANDLERS = (_interrupt, _terminate)
