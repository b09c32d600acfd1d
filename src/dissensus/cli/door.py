"""The door: whatever happens inside, one line comes out, and an exit code that says what kind it was.

====  ==========================================================================
0     done
1     an error in dissensus itself (``--debug`` shows where)
2     the input, an option or the place to write is at fault; nothing was written
130   interrupted with Ctrl-C; nothing was written (a search keeps what is finished)
143   terminated (SIGTERM); likewise
====  ==========================================================================
"""

from __future__ import annotations

import shlex
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import typer
from typer.core import TyperGroup

from dissensus.cli import INTERRUPTED
from dissensus.errors import DissensusError, system_words
from dissensus.execution.progress import printable

DONE, BROKEN, BAD_INPUT = 0, 1, 2

EXIT_CODES = (
    "Exit codes: 0 done; 1 an error in dissensus itself; 2 bad input, option or output place; "
    "130 interrupted; 143 terminated. Unless it is 0, no result was written."
)


class StoppedError(Exception):
    """Ctrl-C where there is more to say than that nothing was written."""


class Door(TyperGroup):
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
            return super(Door, self).main(
                words, prog_name, complete_var, standalone_mode=False, obj=words, **extra
            )

        if not standalone_mode:
            return run()
        sys.exit(guarded(run, words, debug))


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
        return _fail(_system(error), BAD_INPUT)
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _fail(_unexpected(error, words), BROKEN)
    if code == INTERRUPTED:
        return _fail("interrupted; nothing was written", INTERRUPTED)
    return code if isinstance(code, int) else DONE


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"dissensus: {printable(' '.join(message.split()))}\n")
    return code


def _usage(error: typer.TyperException) -> str:
    """What is wrong with the command line, and where its help is."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context else "dissensus"
    message = error.format_message().rstrip(".")
    gap = "" if message.endswith("?") else ";"
    return f"{message[0].lower()}{message[1:]}{gap} see: {command} --help"


def _system(error: OSError) -> str:
    """What the operating system refused, and for which file."""
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{system_words(error)}; check the path and its permissions"


def _unexpected(error: Exception, words: Sequence[str]) -> str:
    command = shlex.join(["dissensus", "--debug", *(word for word in words if word != "--debug")])
    what = f"{type(error).__name__}: {error}".rstrip(": ")
    return f"this should not have happened ({what}); please report it with what this prints: {command}"
