"""Run the paper's evaluation and write its tables, answers and figures.

A stopped run resumes: finished cells are kept in the output directory.

    make reproduce
    make reproduce QUICK=1
    python -m reproduction --data datasets --sets gwsd,md_agreement --only table1,table3 -o more
    python -m reproduction --render docs/results/paper
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
from dissensus.tables.results import check_output, claimed_directory
from experiments.runner import DATA_FOLDER
from reproduction.page import write_page
from reproduction.plan import DEFAULT, PARTS, QUICK, Scale
from reproduction.printed import REPEATS
from reproduction.run import paper_encoder, reproduce, request

BAD_INPUT, INTERRUPTED, TERMINATED = 2, 130, 143  # exit codes
# Options that decide the numbers; the page shows them, but no folders.
SHOWN_OPTIONS = ("sets", "only", "repeats", "embedding", "quick", "as_printed", "paper_repeats")


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m reproduction",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )

    def names(text: str) -> list[str]:
        return [name.strip() for name in text.split(",") if name.strip()]

    add = parser.add_argument
    add("--data", type=Path, default=DATA_FOLDER, help="folder of the datasets, or of the authors' files")
    add("--sets", type=names, metavar="NAME,…", help="datasets (default: those of the paper)")
    add("--only", type=names, metavar="PART,…", help=", ".join(PARTS))
    add("--repeats", type=int, help="trainings per column (default 5; the paper has 100)")
    add("--embedding", metavar="MODEL", help="sentence encoder (default: all-MiniLM-L6-v2)")
    add("--quick", action="store_true", help="smaller grids and fewer repeats: ten minutes on two cores")
    add("--as-printed", action="store_true", help="also undo every departure from the paper, and compare")
    add("--paper-repeats", action="store_true", help="also train PD, FMM and PGM as often as the paper")
    add("--glove", type=Path, metavar="FILE", help="with --as-printed: GloVe word vectors for the CNN")
    add("-o", "--output", type=Path, default=Path("paper"), help="directory to write (default: paper)")
    add("--publish", type=Path, metavar="DIR", help="also write the page here, without cells")
    add("--render", type=Path, metavar="DIR", help="only write the page of DIR again, from its cells.jsonl")
    add("--force", action="store_true", help="write into a directory that has other files")
    add("-j", "--jobs", type=int, default=-1, help="processes (default: one per core)")
    return parser


def scale_of(options: argparse.Namespace) -> Scale:
    """Return the size of the evaluation."""
    scale = replace(QUICK if options.quick else DEFAULT, embedding=options.embedding)
    if options.repeats is not None:
        if options.repeats < 1:
            raise bad_parameter("reproduce", "repeats", "an int >= 1", options.repeats)
        scale = replace(scale, repeats=options.repeats)
    if options.paper_repeats:
        scale = replace(scale, paper_repeats=REPEATS)
    if options.glove is not None and not options.as_printed:
        raise ParameterError("--glove needs --as-printed; add it, or leave --glove out")
    if options.glove is not None and not options.glove.is_file():
        raise DataError(f"{options.glove}: no such file of word vectors; check --glove")
    if not options.as_printed:
        return scale
    encoder = paper_encoder() if "table3" in (options.only or PARTS) else None
    glove = None if options.glove is None else str(options.glove)
    return replace(scale, as_printed=True, glove=glove, printed_embedding=encoder)


def command_of(options: argparse.Namespace) -> str:
    """Return the command as shown on the page, with the options that decide its numbers."""
    words = []
    for name in SHOWN_OPTIONS:
        value = getattr(options, name)
        if value:
            words.append(f"--{name.replace('_', '-')}")
            words += [] if value is True else [",".join(value) if isinstance(value, list) else str(value)]
    return f"python -m reproduction {shlex.join(words)}" if words else "make reproduce"


def run(options: argparse.Namespace) -> None:
    """Check everything, run, and print a summary."""
    if options.render is not None:
        print(f"Wrote {options.render}/: {', '.join(write_page(options.render))}")
        return
    check_output(options.output, options.force)
    request(options.data, options.sets or (), options.only or ())
    scale, command = scale_of(options), command_of(options)
    with claimed_directory(options.output, {"command": command, "source": str(options.data)}, options.force):
        done = reproduce(
            options.output,
            data=options.data,
            names=options.sets or (),
            only=options.only or (),
            scale=scale,
            n_jobs=options.jobs,
            command=command,
            publish=options.publish,
        )
    if done.absent:
        print(f"note: left out, not in the data folder: {', '.join(done.absent)}", file=sys.stderr)
    seconds = f"{done.cpu_seconds:,.0f} s of processor time"
    print(f"{done.n_measured:,} cells measured in {seconds}, {done.n_finished:,} were finished")
    print(f"Wrote {options.output}/: {', '.join(done.files)}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; a failure prints one line to standard error and returns an exit code."""
    options = parser().parse_args(arguments)
    try:
        run(options)
    except (DissensusError, OSError) as error:
        message = " ".join(str(error).replace("force=True", "--force").split())
        print(f"reproduction: {message}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        state = "nothing was written"
        if options.output.exists():
            state = f"finished cells are in {options.output}/cells: run the same command to resume"
        print(f"reproduction: interrupted; {state}", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(TERMINATED))  # runs all finally blocks
    code = main()
    if code == INTERRUPTED:  # at once, without waiting for busy processes
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
