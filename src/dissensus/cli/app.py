"""The application: its name, its greeting, and the options that stand before any command."""

from __future__ import annotations

from typing import Annotated

import typer

from dissensus._version import __version__
from dissensus.cli.door import EXIT_CODES, Door
from dissensus.cli.terminal import say

GREETING = (
    f"dissensus {__version__}: from disagreeing labels to the distribution a population would give",
    "",
    "  dissensus demo                   see it work on a simulated crowd whose truth is known",
    "  dissensus describe labels.csv    what is in a file of labels",
    "  dissensus fit labels.csv         refine them: choose a model, fit it, write the result",
    "",
    "All commands: dissensus --help    One command: dissensus fit --help",
)

app = typer.Typer(
    cls=Door,
    name="dissensus",
    invoke_without_command=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
    pretty_exceptions_enable=False,
)


def example(*lines: str) -> str:
    """The end of a command's help: lines that can be typed as they stand."""
    return "[bold]Examples[/bold]\n\n" + "\n\n".join(line.replace("[", r"\[") for line in lines)


def _version(asked: bool) -> None:
    if asked:
        say(f"dissensus {__version__}")
        raise typer.Exit


@app.callback()
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show a traceback if dissensus itself fails (may stand anywhere).")
    ] = False,
) -> None:
    """From the disagreeing labels of many annotators to the label distribution a population would give."""
    del version, debug  # the first acts through its callback, the second in the door
    if context.invoked_subcommand is None:
        say(*GREETING)
