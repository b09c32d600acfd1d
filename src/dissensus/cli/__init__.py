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

#: Every command and its module, by the headings under which help lists them.
GROUPS = {
    "Look": {"describe": "look", "fit": "fit", "report": "look"},
    "People and models": {"annotators": "look", "judges": "judges"},
    "More labels": {"plan": "plan", "update": "fit"},
    "Files": {"import": "files", "export": "files"},
    "Research": {
        "select": "select",
        "recover": "recover",
        "score": "recover",
        "simulate": "simulate",
        "demo": "simulate",
    },
    "Machine": {"info": "info"},
}
COMMANDS = {command: module for group in GROUPS.values() for command, module in group.items()}


def main() -> None:
    """Run the program ``dissensus``."""
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
    """Load the commands: the one that a command line calls, or all of them."""
    called = next((word for word in words if not word.startswith("-")), "")
    for module in [COMMANDS[called]] if called in COMMANDS else dict.fromkeys(COMMANDS.values()):
        importlib.import_module(f"dissensus.cli.{module}")
    from dissensus.cli.app import app

    return app


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, and let helper threads that fail on the way out say nothing."""
    threading.excepthook = lambda _: None
    raise KeyboardInterrupt


def _terminate(number: int, frame: FrameType | None) -> None:
    """Leave through every ``finally``, so that temporary files go."""
    sys.exit(TERMINATED)


OUR_HANDLERS = (_interrupt, _terminate)
