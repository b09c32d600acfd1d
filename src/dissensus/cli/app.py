"""The typer application. Every error becomes one line on standard error and an exit code.

====  ===================================================================================
0     success; also if a result was written and only its description could not be printed
1     internal error in dissensus (``--debug`` shows the traceback)
2     invalid input, option or output path; nothing was written
3     a requirement of ``judges --require`` is not met; the results were written
130   interrupted with Ctrl-C; nothing was written (a search or a checkpointed fit can be resumed)
141   standard output was closed before all was printed
143   terminated (SIGTERM); nothing was written
====  ===================================================================================
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dissensus._version import __version__
from dissensus.cli import COMMAND_GROUPS, COMMANDS, INTERRUPTED, OUR_HANDLERS, PIPE_CLOSED
from dissensus.cli.terminal import note, say
from dissensus.errors import DissensusError, DissensusWarning, ParameterError, nearest, spelled, system_words
from dissensus.progress import printable

SUCCESS, INTERNAL_ERROR, BAD_INPUT, UNMET = 0, 1, 2, 3

EXIT_CODES = (
    "Exit codes: 0 success; 1 internal error; 2 invalid input, option or output path; 3 a requirement "
    "(judges --require) is not met; 130 interrupted; 141 output closed; 143 terminated. With any code but "
    "0 and 3, no result was written."
)
# Settings of the library whose option has a different name; in options, "_" becomes "-".
OPTION_NAMES = {
    "item": "item_column",
    "annotator": "annotator_column",
    "label": "label_column",
    "n_jobs": "jobs",
    "n_workers": "jobs",
    "n_draws": "draws",
    "n_boot": "bootstrap",
    "metrics": "metric",
    "coefficients": "agreement",
}
# Settings of ``read_annotations`` that are options of ``import`` alone.
IMPORT_SETTINGS = (
    *("duplicates", "layout", "format", "question", "text_column", "separator", "encoding", "sheet"),
    *("missing_words", "ignore_case", "keep_rejected"),
)
READING_OPTIONS = ("--item-column", "--annotator-column", "--label-column", "--label-type", "--classes")


typed: ContextVar[Sequence[str]] = ContextVar("typed", default=())  # words of the running command
written: ContextVar[bool] = ContextVar("written", default=False)  # whether its result is in place


class StoppedError(Exception):
    """Ctrl-C during a job that can be resumed; the message says how."""


class UnmetError(Exception):
    """A requirement that the results do not meet; the message says by how much."""


class CommandGroup(TyperGroup):
    """The commands; every error goes through :func:`exit_code`."""

    def main(self, args: Sequence[str] | None = None, *, standalone_mode: bool = True, **more: Any) -> Any:  # type: ignore[override]
        """Run a command line and exit (``standalone_mode=False``: return, and let errors propagate)."""
        words = list(sys.argv[1:] if args is None else args)
        debug = "--debug" in words
        if debug:
            # --debug is accepted anywhere: it is easiest to append to the line that failed
            words = ["--debug", *(word for word in words if word != "--debug")]
        command = next((self.commands[word] for word in words if word in self.commands), self)

        def run() -> Any:
            check_repeated(command, words)
            typed.set(words)
            written.set(False)
            with spelled(shell_spelling(command, words)), collected_notes() as notes:
                code = super(CommandGroup, self).main(words, standalone_mode=False, **more)
            if notes and code != INTERRUPTED:  # a failing command prints one line only
                note(*notes)
            return code

        return run() if not standalone_mode else sys.exit(exit_code(run, words, debug))

    def list_commands(self, context: Any) -> list[str]:
        """List the commands in the order of the help text."""
        return [name for name in COMMANDS if name in self.commands]

    def format_commands(self, context: Any, formatter: Any) -> None:
        """Write the commands under their headings."""
        for heading, names in COMMAND_GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(70)) for name in names])


def check_repeated(command: Any, words: Sequence[str]) -> None:
    """Reject a single-valued option that is given twice; typer would silently keep the last value."""
    for parameter in command.params:
        if parameter.param_type_name != "option" or parameter.multiple or parameter.is_flag:
            continue
        short = tuple(name for name in parameter.opts if not name.startswith("--"))
        # --jobs 2, --jobs=2, -j 2 or -j2
        n_times = sum(word.partition("=")[0] in parameter.opts or word.startswith(short) for word in words)
        if n_times > 1:
            raise ParameterError(f"{parameter.opts[0]} is given {n_times} times; give it once")


def shell_spelling(command: Any, words: Sequence[str]) -> Callable[[str, Any], str]:
    """Return a function that writes a setting as an option of the command, or of the ``import`` it needs.

    ``command`` is None for a file that is not the first one of its command: it always needs ``import``.
    """
    options = {name for parameter in getattr(command, "params", ()) for name in parameter.opts}

    def spell(name: str, value: Any) -> str:
        flag = f"--{OPTION_NAMES.get(name, name).replace('_', '-')}"
        text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        option = flag if value is None or value is True else f"{flag} {shlex.quote(text)}"
        if flag in options:
            return option
        if name in IMPORT_SETTINGS or command is None:
            option = f"{option} NAME" if value is None else option
            arguments = [word for before, word in pairwise(words) if not before.startswith("-")]
            file = next((word for word in arguments if Path(word).exists()), "FILE")
            # Reading options of the command line are repeated in the suggested import.
            reading = [
                shlex.quote(word)
                for before, word in pairwise(["", *words])
                if word.partition("=")[0] in READING_OPTIONS or before in READING_OPTIONS
            ]
            return " ".join(["dissensus import", shlex.quote(file), *reading, option, "-o labels.csv"])
        return f"{name}=" if value is None else f"{name}={value!r}"

    return spell


@contextmanager
def collected_notes() -> Iterator[dict[str, None]]:
    """Collect the library's warnings without duplicates, to print them after the results."""
    notes: dict[str, None] = {}
    show = warnings.showwarning

    def collect(message: Any, category: type[Warning], *location: Any, **more: Any) -> None:
        if issubclass(category, DissensusWarning):
            notes[str(message)] = None
        else:
            show(message, category, *location, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", DissensusWarning)
        warnings.showwarning = collect
        yield notes


def exit_code(run: Callable[[], Any], words: Sequence[str], debug: bool) -> int:
    """Call ``run``; print any exception as one line on standard error, and return the exit code."""
    try:
        code = run()
        sys.stdout.flush()
    except DissensusError as error:
        return _fail(str(error), BAD_INPUT)
    except typer.TyperException as error:
        return _fail(_usage(error), BAD_INPUT)
    except StoppedError as error:
        return _fail(str(error), INTERRUPTED)
    except UnmetError as error:
        return _fail(str(error), UNMET)
    except typer.Abort:
        code = INTERRUPTED
    except OSError as error:
        if error.filename:
            reason = f"{error.filename}: {system_words(error)}"
            return _fail(f"{reason}; check the path and its permissions", BAD_INPUT)
        discard_output()
        if isinstance(error, BrokenPipeError):  # as with | head
            return SUCCESS if written.get() else PIPE_CLOSED
        if written.get():
            note(f"the result was written, but standard output was not: {system_words(error)}")
            return SUCCESS
        return _fail(f"{system_words(error)}; check standard output, and the disk", BAD_INPUT)
    except (MemoryError, OverflowError) as error:
        reason = f"not enough memory on this machine ({str(error) or 'out of memory'})"
        return _fail(f"{reason}; use smaller settings or less data", BAD_INPUT)
    except Exception as error:
        if isinstance(error.__cause__ or error.__context__, KeyboardInterrupt):  # by an import, for example
            return _fail("interrupted; nothing was written", INTERRUPTED)
        if debug:
            traceback.print_exc()
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        again = shlex.join(["dissensus", "--debug", *(word for word in words if word != "--debug")])
        remedy = f"please report this bug with the output of: {again}"
        return _fail(f"internal error ({reason}); {remedy}", INTERNAL_ERROR)
    if code == INTERRUPTED:
        return _fail("interrupted; nothing was written", INTERRUPTED)
    return code if isinstance(code, int) else SUCCESS


def discard_output() -> None:
    """Send the rest of standard output nowhere, so that the exit does not fail to flush it."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.stdout.flush()


def _fail(message: str, code: int) -> int:
    """Print an error message as one line, where standard error can be written, and return the exit code."""
    with suppress(OSError):
        sys.stderr.write(f"dissensus: {printable(' '.join(message.split()))}\n")
        sys.stderr.flush()
    return code


def _usage(error: typer.TyperException) -> str:
    """Return the message for a command line that cannot be parsed, with a pointer to the help."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "dissensus"
    message = error.format_message().rstrip(".")
    message = re.sub(r"Invalid value for (.+): Input should be (a valid \w+).*", r"\1 must be \2", message)
    unknown, options = getattr(error, "option_name", None), getattr(error, "possibilities", None)
    if unknown and unknown.lstrip("-").replace("-", "_") in IMPORT_SETTINGS:
        return f"{unknown} is an option of dissensus import; import the file first, then use its output"
    if unknown and options:
        message = f"No such option: {unknown}. Did you mean {nearest(unknown, options) or options[0]}?"
    separator = "" if message.endswith("?") else ";"
    return f"{message[0].lower()}{message[1:]}{separator} see: {command} --help"


@contextmanager
def last_result(safe_csv: bool = False) -> Iterator[None]:
    """Ignore signals once the result written inside the block is renamed into place.

    A signal before the rename means that nothing was written. After it, the command has succeeded and only
    prints its result. With ``safe_csv``, text that a spreadsheet would compute as a formula is quoted.
    """
    from dissensus.tables.atomic import calling_before_rename
    from dissensus.tables.results import for_spreadsheets

    def ignore_signals() -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            if signal.getsignal(number) in OUR_HANDLERS:
                signal.signal(number, signal.SIG_IGN)

    with for_spreadsheets(safe_csv), calling_before_rename(ignore_signals):
        yield
    written.set(True)


# ---- the application ----------------------------------------------------------------------------------

app = typer.Typer(
    cls=CommandGroup,
    name="dissensus",
    invoke_without_command=True,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
    pretty_exceptions_enable=False,
)


def option(metavar: str | None, help: str, *flags: str, **more: Any) -> Any:
    """Declare an option, named after its parameter unless ``flags`` are given."""
    return typer.Option(*flags, metavar=metavar, help=help, **more)


def argument(metavar: str, help: str, **more: Any) -> Any:
    """Declare an argument."""
    return typer.Argument(metavar=metavar, help=help, **more)


def _version(requested: bool) -> None:
    """Print the version and exit."""
    if requested:
        say(f"dissensus {__version__}")
        raise typer.Exit


@app.callback()
def start(
    context: typer.Context,
    version: Annotated[
        bool, option(None, "Print the version and exit.", "--version", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, option(None, "Show the traceback of an internal error.", "--debug")] = False,
) -> None:
    """Estimate, from the labels of annotators who disagree, what a whole population would answer."""
    if context.invoked_subcommand is None:
        say(*context.get_help().splitlines())
