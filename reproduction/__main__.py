"""Run the paper's evaluation again and write its tables, answers and figures.

A run that was stopped continues where it was: finished cells are kept in the output directory.

    make reproduce
    make reproduce QUICK=1
    python -m reproduction --data datasets --sets gwsd,md_agreement --only table1,table3 -o more
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dissensus.errors import DataError, DissensusError, ParameterError, bad_parameter
from dissensus.tables.results import check_output, claimed
from reproduction.plan import DEFAULT, PARTS, QUICK, Scale
from reproduction.run import paper_encoder, reproduce, request

BAD_INPUT, INTERRUPTED, TERMINATED = 2, 130, 143
# Options that decide the numbers: the page names them, and nobody's folders.
DECISIVE = ("sets", "only", "repeats", "embedding", "quick", "as_printed")


def options() -> argparse.ArgumentParser:
    """Declare the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m reproduction",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    data = Path(os.environ.get("DISSENSUS_DATA", "../shared/data"))
    parser.add_argument(
        "--data", type=Path, default=data, help="folder of the datasets, or of the authors' JSON files"
    )
    parser.add_argument(
        "--sets", type=names, metavar="NAME,…", help="datasets (if left out, those of the paper)"
    )
    parser.add_argument("--only", type=names, metavar="PART,…", help=", ".join(PARTS))
    parser.add_argument("--repeats", type=int, help="trainings for each column (5; the paper has 100)")
    parser.add_argument(
        "--embedding", metavar="MODEL", help="sentence encoder (all-MiniLM-L6-v2, which comes along)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="smaller grids and fewer repeats: ten minutes on two cores"
    )
    parser.add_argument(
        "--as-printed",
        action="store_true",
        help="also run it as the paper prints it, to see what each departure changes",
    )
    parser.add_argument(
        "--glove", type=Path, metavar="FILE", help="with --as-printed: GloVe's word vectors for the CNN"
    )
    parser.add_argument("-o", "--output", type=Path, default=Path("paper"), help="directory to write (paper)")
    parser.add_argument(
        "--publish", type=Path, metavar="DIR", help="write page, tables and figures here too, without cells"
    )
    parser.add_argument("--force", action="store_true", help="write into a directory that has other files")
    parser.add_argument("-j", "--jobs", type=int, default=-1, help="processes (-1: one per core)")
    return parser


def names(text: str) -> list[str]:
    """Split a list of names at its commas."""
    return [name.strip() for name in text.split(",") if name.strip()]


def scale_of(given: argparse.Namespace) -> Scale:
    """Decide how much is computed."""
    scale = replace(QUICK if given.quick else DEFAULT, embedding=given.embedding)
    if given.repeats is not None:
        if given.repeats < 1:
            raise bad_parameter("reproduce", "repeats", "an int >= 1", given.repeats)
        scale = replace(scale, repeats=given.repeats)
    if given.glove is not None and not given.as_printed:
        raise ParameterError("--glove has an effect with --as-printed alone; add it, or leave --glove out")
    if given.glove is not None and not given.glove.is_file():
        raise DataError(f"{given.glove}: there is no such file of word vectors; check --glove")
    if not given.as_printed:
        return scale
    encoder = paper_encoder() if "table3" in (given.only or PARTS) else None
    glove = None if given.glove is None else str(given.glove)
    return replace(scale, as_printed=True, glove=glove, printed_embedding=encoder)


def command(given: argparse.Namespace) -> str:
    """Write the command as the page gives it, with the options that decide its numbers."""
    words = []
    for name in DECISIVE:
        value = getattr(given, name)
        if value:
            words.append(f"--{name.replace('_', '-')}")
            words += [] if value is True else [",".join(value) if isinstance(value, list) else str(value)]
    return f"python -m reproduction {shlex.join(words)}" if words else "make reproduce"


def run(given: argparse.Namespace) -> None:
    """Check everything, then run, and print what was done."""
    check_output(given.output, given.force)
    request(given.data, given.sets or (), given.only or ())
    scale = scale_of(given)
    notice = {"command": command(given), "source": str(given.data)}
    with claimed(given.output, notice, given.force):
        done = reproduce(
            given.output,
            data=given.data,
            sets=given.sets or (),
            only=given.only or (),
            scale=scale,
            n_jobs=given.jobs,
            command=command(given),
            publish=given.publish,
        )
    if done.absent:
        print(f"note: not among the data and left out: {', '.join(done.absent)}", file=sys.stderr)
    seconds = f"{done.work.cpu_seconds:,.0f} s of processor time"
    print(f"{done.work.measured:,} cells measured in {seconds}, {done.work.found:,} found finished")
    print(f"Wrote {given.output}/: {', '.join(done.files)}")


def main(words: Sequence[str] | None = None) -> int:
    """Run a command line; a failure is one line on standard error and an exit code."""
    given = options().parse_args(words)
    try:
        run(given)
    except (DissensusError, OSError) as error:
        message = " ".join(str(error).replace("force=True", "--force").split())
        print(f"reproduction: {message}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        kept = f"{given.output}/cells keeps what is finished: run the same again to continue"
        kept = kept if given.output.exists() else "nothing was written"
        print(f"reproduction: interrupted; {kept}", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # through every finally
    code = main()
    if code == INTERRUPTED:  # at once, without waiting for processes that are still busy
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
