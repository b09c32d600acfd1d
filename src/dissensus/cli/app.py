"""The application, and the one way out of it: whatever happens inside, one line comes out and an exit code.

====  ==========================================================================
0     done
1     an error in dissensus itself (``--debug`` shows where)
2     the input, an option or the place to write is at fault; nothing was written
130   interrupted with Ctrl-C; nothing was written (a search keeps what is finished)
143   terminated (SIGTERM); nothing was written
====  ==========================================================================
"""

from __future__ import annotations

import shlex
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from dissensus._version import __version__
from dissensus.cli import COMMANDS, GROUPS, INTERRUPTED, OUR_HANDLERS
from dissensus.cli.terminal import note, say
from dissensus.errors import (
    DissensusError,
    DissensusWarning,
    ParameterError,
    Spelling,
    nearest,
    spelled,
    system_words,
)
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
    "  dissensus fit labels.csv         refine them, and write a page to look at",
    "",
    "All commands: dissensus --help    One command: dissensus fit --help",
)
# Settings of the library whose option has another name than theirs; "_" is "-" in all of them.
OPTION_OF = {
    "item": "item_column",
    "annotator": "annotator_column",
    "label": "label_column",
    "n_jobs": "jobs",
    "n_workers": "jobs",
    "n_draws": "draws",
    "n_boot": "bootstrap",
    "metrics": "metric",
}
# Settings of reading that only ``import`` has an option for.
READ_BY_IMPORT = (
    *("duplicates", "layout", "format", "question", "text_column", "separator", "encoding"),
    *("missing_words", "ignore_case", "keep_rejected"),
)


READING = ("--item-column", "--annotator-column", "--label-column", "--label-type", "--classes")


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
        called = next((self.commands[word] for word in words if word in self.commands), self)

        def run() -> Any:
            _refuse_repeated(called, words)
            with spelled(shell_spelling(called, words)), collected_notes() as notes:
                code = super(OneWayOut, self).main(
                    words, prog_name, complete_var, standalone_mode=False, obj=words, **extra
                )
            for line in notes if code != INTERRUPTED else ():  # a command that fails says one line
                note(line)
            return code

        return run() if not standalone_mode else sys.exit(guarded(run, words, debug))

    def list_commands(self, context: Any) -> list[str]:
        """List the commands in the order of help, which is not that of their modules."""
        return [name for name in COMMANDS if name in self.commands]

    def format_commands(self, context: Any, formatter: Any) -> None:
        """Write the commands under their headings."""
        for heading, names in GROUPS.items():
            known = [(name, self.commands[name].get_short_help_str(64)) for name in names]
            with formatter.section(heading):
                formatter.write_dl(known)


def _refuse_repeated(command: Any, words: Sequence[str]) -> None:
    """Refuse an option that takes one value and is given twice: typer would keep the last in silence."""
    for parameter in command.params:
        if parameter.param_type_name != "option" or parameter.multiple or parameter.is_flag:
            continue
        given = [word for word in words if word.partition("=")[0] in parameter.opts]
        if len(given) > 1:
            raise ParameterError(f"{given[0].partition('=')[0]} is given {len(given)} times; give it once")


def shell_spelling(command: Any, words: Sequence[str]) -> Spelling:
    """Spell settings of the library as options of the command that runs, or of the ``import`` it needs."""
    options = {name for parameter in command.params for name in parameter.opts}
    plain = [word for before, word in pairwise(words) if not before.startswith("-")]  # no option's value
    file = next((word for word in plain if Path(word).exists()), "FILE")
    # the reading options that were typed belong to the line that imports the file, too
    typed_before = [
        shlex.quote(word)
        for place, word in enumerate(words)
        if word.partition("=")[0] in READING or (place and words[place - 1] in READING)
    ]

    def spell(name: str, value: Any) -> str:
        flag = f"--{OPTION_OF.get(name, name).replace('_', '-')}"
        several = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        typed = flag if value is None or value is True else f"{flag} {shlex.quote(several)}"
        if flag in options:
            return typed
        if name in READ_BY_IMPORT:
            needed = f"{typed} NAME" if value is None else typed
            return " ".join(["dissensus import", shlex.quote(file), *typed_before, needed, "-o labels.csv"])
        return f"{name}=" if value is None else f"{name}={value!r}"

    return spell


@contextmanager
def collected_notes() -> Iterator[dict[str, None]]:
    """Collect the library's warnings, each once, to print them after the results."""
    notes: dict[str, None] = {}
    usual = warnings.showwarning

    def collect(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, DissensusWarning):
            notes[str(message)] = None
        else:
            usual(message, category, *place, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", DissensusWarning)
        warnings.showwarning = collect
        yield notes


def guarded(run: Callable[[], Any], words: Sequence[str], debug: bool) -> int:
    """Run, and turn whatever was raised into one line on standard error and an exit code."""
    try:
        code = run()
        sys.stdout.flush()
    except DissensusError as error:
        return _fail(str(error), BAD_INPUT)
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


def _usage(error: typer.TyperException) -> str:
    """Say what is wrong with the command line, and where its help is."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "dissensus"
    message = error.format_message().rstrip(".")
    unknown, known = getattr(error, "option_name", None), getattr(error, "possibilities", None)
    if unknown and f"--{unknown.lstrip('-')}".replace("-", "_")[2:] in READ_BY_IMPORT:
        return f"{unknown} is an option of dissensus import; import the file first, and give what it writes"
    if unknown and known:
        near = nearest(unknown, known) or known[0]
        message = f"No such option: {unknown}. Did you mean {near}?"
    gap = "" if message.endswith("?") else ";"
    return f"{message[0].lower()}{message[1:]}{gap} see: {command} --help"


def last_result() -> AbstractContextManager[object]:
    """Let no signal change the outcome once the result written inside takes its name.

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
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES,
    pretty_exceptions_enable=False,
)


def examples(*lines: str) -> str:
    """End a command's help with lines that can be typed as they stand."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def option(metavar: str | None, help: str, *flags: str, **more: Any) -> Any:
    """Declare an option, named after its parameter where there are no flags."""
    return typer.Option(*flags, metavar=metavar, help=help, show_default=False, **more)


def argument(metavar: str, help: str, **more: Any) -> Any:
    """Declare an argument."""
    return typer.Argument(metavar=metavar, help=help, **more)


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
    debug: Annotated[bool, option(None, "Show a traceback if dissensus itself fails.", "--debug")] = False,
) -> None:
    """From the disagreeing labels of many annotators to the label distribution a population would give."""
    if context.invoked_subcommand is None:
        say(*GREETING)
