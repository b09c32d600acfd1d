"""The application, and the one way out of it: whatever happens inside, one line comes out and an exit code.

====  ==========================================================================
0     done
1     an error in dissensus itself (``--debug`` shows where)
2     the input, an option or the place to write is at fault; nothing was written
130   interrupted with Ctrl-C; nothing was written (a search keeps what is finished)
143   terminated (SIGTERM); likewise
====  ==========================================================================
"""

from __future__ import annotations

import re
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dissensus._version import __version__
from dissensus.cli import COMMANDS, INTERRUPTED, OUR_HANDLERS
from dissensus.cli.terminal import say
from dissensus.errors import DissensusError, nearest, system_words
from dissensus.progress import printable

DONE, BROKEN, BAD_INPUT = 0, 1, 2

EXIT_CODES = (
    "Exit codes: 0 done; 1 an error in dissensus itself; 2 bad input, option or output place; "
    "130 interrupted; 143 terminated. Unless it is 0, no result was written."
)
GREETING = (
    f"dissensus {__version__}: from disagreeing labels to the distribution a population would give",
    "",
    "  dissensus demo                   see it work on a simulated crowd whose truth is known",
    "  dissensus describe labels.csv    what is in a file of labels",
    "  dissensus fit labels.csv         refine them: choose a model, fit it, write the result",
    "",
    "All commands: dissensus --help    One command: dissensus fit --help",
)
# Settings of the library whose option has another name than theirs; "_" is "-" in all of them.
OPTION_OF = {
    "item": "item_column",
    "annotator": "annotator_column",
    "label": "label_column",
    "text_column": "item_text",
    "n_jobs": "jobs",
    "n_draws": "draws",
}


class StoppedError(Exception):
    """Ctrl-C where there is more to say than that nothing was written."""


class OneWayOut(TyperGroup):
    """The command group, with every way out leading through :func:`guarded`."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command line and exit (``standalone_mode=False``: return, and let errors through)."""
        words = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in words
        if debug:
            # Where it stands does not matter: it is easiest typed at the end of the line that failed.
            words = ["--debug", *(word for word in words if word != "--debug")]

        def run() -> Any:
            return super(OneWayOut, self).main(
                words, prog_name, complete_var, standalone_mode=False, obj=words, **extra
            )

        if not standalone_mode:
            return run()
        called = next((self.commands[word] for word in words if word in self.commands), self)
        options = {name for parameter in called.params for name in parameter.opts}
        sys.exit(guarded(run, words, debug, options))

    def list_commands(self, context: Any) -> list[str]:
        """The commands in the order of help, which is not that of their modules."""
        return [name for name in COMMANDS if name in self.commands]


def guarded(run: Callable[[], Any], words: Sequence[str], debug: bool, options: Collection[str] = ()) -> int:
    """Run, and turn whatever was raised into one line on standard error and an exit code."""
    try:
        code = run()
        sys.stdout.flush()
    except DissensusError as error:
        return _fail(in_shell_words(str(error), options), BAD_INPUT)
    except typer.TyperException as error:
        return _fail(_usage(error), BAD_INPUT)
    except StoppedError as error:
        return _fail(str(error), INTERRUPTED)
    except typer.Abort:
        code = INTERRUPTED
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _fail(f"{where}{system_words(error)}; check the path and its permissions", BAD_INPUT)
    except (MemoryError, OverflowError) as error:
        reason = " ".join(str(error).split()) or "out of memory"
        remedy = "give smaller numbers or a part of the data"
        return _fail(f"this asks for more than the machine has ({reason}); {remedy}", BAD_INPUT)
    except Exception as error:
        if debug:
            traceback.print_exc()
        what = f"{type(error).__name__}: {error}".rstrip(": ")
        again = shlex.join(["dissensus", "--debug", *(word for word in words if word != "--debug")])
        remedy = f"please report it with what this prints: {again}"
        return _fail(f"this should not have happened ({what}); {remedy}", BROKEN)
    if code == INTERRUPTED:
        return _fail("interrupted; nothing was written", INTERRUPTED)
    return code if isinstance(code, int) else DONE


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"dissensus: {printable(' '.join(message.split()))}\n")
    return code


def in_shell_words(message: str, options: Collection[str]) -> str:
    """A message of the library with its settings as the command's options.

    >>> in_shell_words("hide none (test_size=0), or allow more memory=", {"--test-size", "--memory"})
    'hide none (--test-size 0), or allow more --memory'
    """

    def typed(found: re.Match[str]) -> str:
        name, value = found["name"], found["text"] or found["value"]
        flag = f"--{OPTION_OF.get(name, name).replace('_', '-')}"
        if flag not in options:
            return found[0]
        return flag if value in (None, "True") else f"{flag} {shlex.quote(value)}"

    return re.sub(r"(?<=[ (])(?P<name>[a-z_]+)=(?:'(?P<text>[^']*)'|(?P<value>[\w.,]*\w))?", typed, message)


def _usage(error: typer.TyperException) -> str:
    """What is wrong with the command line, and where its help is."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "dissensus"
    message = error.format_message().rstrip(".")
    unknown, known = getattr(error, "option_name", None), getattr(error, "possibilities", None)
    if unknown and known:
        near = nearest(unknown, known) or known[0]
        message = f"No such option: {unknown}. Did you mean {near}?"
    gap = "" if message.endswith("?") else ";"
    return f"{message[0].lower()}{message[1:]}{gap} see: {command} --help"


def last_result() -> AbstractContextManager[object]:
    """What is written inside is the command's result: once it takes its name, no signal changes the outcome.

    Before that moment a signal means that nothing was written; from then on the command is done, and only
    says so.
    """
    from dissensus.tables.atomic import telling

    def ignore_signals() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) in OUR_HANDLERS:
                signal.signal(number, signal.SIG_IGN)

    return telling(ignore_signals)


# ---- the application ----------------------------------------------------------------------------------

app = typer.Typer(
    cls=OneWayOut,
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


def option(metavar: str | None, help: str, *flags: str, **more: Any) -> Any:
    """A typer option; without flags it has its parameter's name, as ``--item-column`` of ``item_column``."""
    return typer.Option(*flags, metavar=metavar, help=help, **more)


def _version(asked: bool) -> None:
    if asked:
        say(f"dissensus {__version__}")
        raise typer.Exit


@app.callback()
def start(
    context: typer.Context,
    version: Annotated[
        bool, option(None, "Print the version and exit.", "--version", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool, option(None, "Show a traceback if dissensus itself fails (may stand anywhere).", "--debug")
    ] = False,
) -> None:
    """From the disagreeing labels of many annotators to the label distribution a population would give."""
    if context.invoked_subcommand is None:
        say(*GREETING)
