"""``dissensus reproduce``: the paper's evaluation, run again."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli.app import app, example
from dissensus.cli.options import Output, command_line, say_written, unbundled
from dissensus.cli.settings import ALL_CORES, Jobs, resumable
from dissensus.cli.terminal import count, note, say

if TYPE_CHECKING:
    from dissensus.paper.plan import Scale
    from dissensus.paper.run import Reproduction

DEFAULT_DIRECTORY = "paper"


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """What is run again, on which data, and how much of it."""

    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Folder of the datasets, or of the authors' JSON files."),
    ] = None
    sets: Annotated[
        str | None,
        typer.Option("--sets", metavar="NAME,…", help="Datasets (if left out, those of the paper)."),
    ] = None
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="PART,…", help="table1, table2, table3, hidden, recover, gold."),
    ] = None
    repeats: Annotated[
        int | None,
        typer.Option(
            "--repeats", metavar="N", help="Number of trainings for each column (5; the paper has 100)."
        ),
    ] = None
    embedding: Annotated[
        str | None,
        typer.Option("--embedding", metavar="MODEL", help="Sentence encoder (all-MiniLM-L6-v2, offline)."),
    ] = None
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller grids and fewer repeats; it takes ten minutes.")
    ] = False
    as_printed: Annotated[
        bool,
        typer.Option(
            "--as-printed", help="Also run it as the paper prints it, to see what each departure changes."
        ),
    ] = False
    glove: Annotated[
        Path | None,
        typer.Option(
            "--glove", metavar="FILE", help="GloVe's word vectors, for the CNN as the paper has it."
        ),
    ] = None
    publish: Annotated[
        Path | None,
        typer.Option(
            "--publish", metavar="DIR", help="Write the page, tables and figures here too, without the cells."
        ),
    ] = None

    def settings(self) -> dict[str, Any]:
        """The same by the library's names, checked before any work is done."""
        from dissensus.paper.run import request

        place = self.data or Path(os.environ.get("DISSENSUS_DATA", "data"))
        sets, only = _names(self.sets), _names(self.only)
        request(place, sets, only)
        return {"data": place, "sets": sets, "only": only, "scale": self.scale(), "publish": self.publish}

    def scale(self) -> Scale:
        """How much is computed."""
        from dissensus.errors import bad_parameter
        from dissensus.paper.plan import DEFAULT, QUICK

        scale = replace(QUICK if self.quick else DEFAULT, embedding=self.embedding)
        if self.repeats is not None:
            if self.repeats < 1:
                raise bad_parameter("reproduce", "repeats", "an int >= 1", self.repeats)
            scale = replace(scale, repeats=self.repeats)
        return replace(scale, **self.printed())

    def printed(self) -> dict[str, Any]:
        """What is run as the paper prints it."""
        from dissensus.errors import DataError, ParameterError

        if self.glove is not None and not self.as_printed:
            raise ParameterError(
                "--glove has an effect with --as-printed alone; add it, or leave --glove out"
            )
        if self.glove is not None and not self.glove.is_file():
            raise DataError(f"{self.glove}: there is no such file of word vectors; check --glove")
        if not self.as_printed:
            return {}
        from dissensus.paper.run import paper_encoder

        learned = "table3" in (_names(self.only) or ["table3"])
        glove = None if self.glove is None else str(self.glove)
        encoder = paper_encoder() if learned else None
        return {"as_printed": True, "glove": glove, "printed_embedding": encoder}

    def command(self) -> str:
        """The command as the page gives it: what decides its numbers, without anybody's folders."""
        options = {"--sets": self.sets, "--only": self.only, "--repeats": self.repeats}
        options["--embedding"] = self.embedding
        given = [f"{option} {value}" for option, value in options.items() if value is not None]
        flags = [*["--quick"] * self.quick, *["--as-printed"] * self.as_printed]
        return " ".join(["dissensus reproduce", *given, *flags])


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]


@app.command(
    epilog=example(
        "dissensus reproduce --data datasets --quick",
        "dissensus reproduce --data datasets --sets gwsd,md_agreement --only table1,table3 -o more",
    )
)
@unbundled
def reproduce(
    context: typer.Context,
    output: Output,
    evaluation: Evaluation,
    jobs: Jobs = ALL_CORES,
) -> None:
    """Run the paper's evaluation again and write its tables, answers and figures; goes on where it was."""
    directory = output.directory(DEFAULT_DIRECTORY)
    settings = evaluation.settings()
    from dissensus.paper.run import reproduce as run
    from dissensus.tables.results import claimed

    kept = f"{directory}/cells keeps what is finished: run the same again to go on"
    notice = {"command": command_line(context), "source": str(settings["data"])}
    with resumable(directory, kept), claimed(directory, notice, output.force):
        found = run(directory, n_jobs=jobs, command=evaluation.command(), **settings)
    _show(found, directory)


def _show(found: Reproduction, directory: Path) -> None:
    if found.absent:
        note(f"not among the data and left out: {', '.join(found.absent)}")
    work = found.work
    say(
        f"{count(work.measured, 'cell')} measured in {work.cpu_seconds:,.0f} s of processor time, "
        f"{work.found:,} found finished"
    )
    say_written(directory, found.files)
