"""Command line: each command parses its options, calls one library function, and prints the result.

Help loads only typer; NumPy, Arrow and rich are imported by the commands that need them.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import signal
import sys
import threading
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import typer

INTERRUPTED, PIPE_CLOSED, TERMINATED = 130, 141, 143

#: Commands and their modules, under the headings of ``dissensus --help``.
COMMAND_GROUPS = {
    "Basics": {"describe": "inspection", "fit": "fit", "report": "inspection"},
    "Annotators and language models": {"annotators": "inspection", "judges": "judges"},
    "Deciding and collecting more labels": {"open": "open", "plan": "inspection", "update": "fit"},
    "Importing and exporting": {"import": "files", "export": "files"},
    "Evaluation": {"select": "select", "recover": "recover", "score": "recover", "demo": "demo"},
    "Installation": {"info": "info"},
}
COMMANDS = {command: module for group in COMMAND_GROUPS.values() for command, module in group.items()}


def main() -> None:
    """Run the command that the program's arguments name."""
    signal.signal(signal.SIGTERM, _terminate)
    sys.stdout, sys.stderr = sys.stdout or ClosedOutput(), sys.stderr or io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # characters that the terminal cannot show
    app = application(sys.argv[1:])
    signal.signal(signal.SIGINT, _interrupt)
    try:
        app(prog_name="dissensus")
    except SystemExit as exit_:
        if exit_.code == INTERRUPTED:
            # Ctrl-C exits at once, without waiting for busy threads and worker processes.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(INTERRUPTED)
        raise


class ClosedOutput(io.TextIOBase):
    """Standard output that was closed by the caller."""

    def write(self, text: str) -> int:
        """Raise an error."""
        raise OSError(errno.EBADF, "standard output is closed")


def application(words: Sequence[str] = ()) -> typer.Typer:
    """Load the module of the command that ``words`` name, or the modules of all commands."""
    command = next((word for word in words if not word.startswith("-")), "")
    for module in [COMMANDS[command]] if command in COMMANDS else dict.fromkeys(COMMANDS.values()):
        importlib.import_module(f"dissensus.cli.{module}")
    from dissensus.cli.app import app

    return app


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, and silence threads that fail during the exit."""
    threading.excepthook = lambda _: None
    sys.unraisablehook = _interrupt_again
    raise KeyboardInterrupt


def _interrupt_again(error: sys.UnraisableHookArgs) -> None:
    """Repeat an interrupt that came in a callback (as of an import), from which no exception is raised."""
    if error.exc_type is KeyboardInterrupt:
        threading.Timer(0.01, signal.raise_signal, [signal.SIGINT]).start()


def _terminate(number: int, frame: FrameType | None) -> None:
    """Exit through every ``finally``, so that temporary files are removed."""
    sys.exit(TERMINATED)


OUR_HANDLERS = (_interrupt, _terminate)
