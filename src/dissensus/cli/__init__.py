"""The command line. A command parses, calls one library function, and prints.

Only typer is loaded to show help; numbers, tables and colours are loaded by the command that needs them.
"""

from __future__ import annotations

import importlib
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

#: Every command and its module, in the order in which help lists them.
COMMANDS = {
    "describe": "describe",
    "fit": "fit",
    "rank": "fit",
    "report": "report",
    "annotators": "annotators",
    "judges": "judges",
    "plan": "plan",
    "queue": "plan",
    "update": "fit",
    "select": "select",
    "recover": "recover",
    "score": "score",
    "models": "info",
    "import": "import_",
    "export": "export",
    "serve": "serve",
    "pack": "import_",
    "simulate": "simulate",
    "demo": "simulate",
    "doctor": "info",
}


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
            # Ctrl-C means now: threads and worker processes that are still busy are not waited for.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        raise


def application(words: Sequence[str] = ()) -> typer.Typer:
    """The application with every command; each module adds its own when it is imported.

    Where the words of a command line call one, it is enough.
    """
    called = next((word for word in words if not word.startswith("-")), "")
    for module in [COMMANDS[called]] if called in COMMANDS else dict.fromkeys(COMMANDS.values()):
        importlib.import_module(f"dissensus.cli.{module}")
    from dissensus.cli.app import app

    return app


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise what Ctrl-C raises; helper threads that fail on the way out have nothing to say any more."""
    threading.excepthook = lambda _: None
    raise KeyboardInterrupt


def _terminate(number: int, frame: FrameType | None) -> None:
    """Leave through every ``finally``, so that temporary files go."""
    sys.exit(TERMINATED)


OUR_HANDLERS = (_interrupt, _terminate)
