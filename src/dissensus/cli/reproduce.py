"""``dissensus reproduce``: the paper's evaluation, run again."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dissensus.cli.app import app, example
from dissensus.cli.options import Output, command_line, say_written, unbundled
from dissensus.cli.settings import ALL_CORES, Jobs, resumable
from dissensus.cli.terminal import count, note, say
from dissensus.execution.progress import shown

if TYPE_CHECKING:
    from dissensus.paper.plan import Scale
    from dissensus.paper.run import Reproduction

DEFAULT_DIRECTORY = "paper"


def _names(text: str | None) -> list[str]:
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]


def usual_data() -> Path:
    """Where datasets are looked for: DISSENSUS_DATA, or a folder ``data`` here."""
    return Path(os.environ.get("DISSENSUS_DATA", "data"))


def scale_of(quick: bool, repeats: int | None) -> Scale:
    """How much is computed."""
    from dissensus.errors import bad_parameter
    from dissensus.paper.plan import DEFAULT, QUICK

    scale = QUICK if quick else DEFAULT
    if repeats is None:
        return scale
    if repeats < 1:
        raise bad_parameter("reproduce", "repeats", "an int >= 1", repeats)
    return replace(scale, repeats=repeats)


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
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="Folder of the datasets, or of the authors' JSON files."),
    ] = None,
    sets: Annotated[
        str | None, typer.Option("--sets", metavar="NAME,…", help="Datasets (the paper's if left out).")
    ] = None,
    only: Annotated[
        str | None,
        typer.Option("--only", metavar="PART,…", help="table1, table2, table3, hidden, recover, gold."),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option("--repeats", metavar="N", help="Trainings a column (10; the paper: 100).")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="The same with smaller grids and fewer repeats: ten minutes.")
    ] = False,
    publish: Annotated[
        Path | None,
        typer.Option("--publish", metavar="DIR", help="Write page, tables and figures here too, not cells."),
    ] = None,
    jobs: Jobs = ALL_CORES,
) -> None:
    """Run the paper's evaluation again and write its tables, answers and figures; goes on where it was."""
    directory = output.directory(DEFAULT_DIRECTORY)
    from dissensus.io.results import claimed
    from dissensus.paper.run import reproduce as run
    from dissensus.paper.run import request

    place, scale = data or usual_data(), scale_of(quick, repeats)
    names, parts = _names(sets), _names(only)
    request(place, names, parts)
    notice = {"command": command_line(context), "source": str(place)}
    with (
        resumable(directory, f"{directory}/cells keeps what is finished: run the same again to go on"),
        claimed(directory, notice, output.force),
        shown() as progress,
    ):
        found = run(
            directory,
            data=place,
            sets=names,
            only=parts,
            scale=scale,
            n_jobs=jobs,
            progress=progress,
            command=_shown(sets, only, repeats, quick),
            publish=publish,
        )
    _show(found, directory)


def _shown(sets: str | None, only: str | None, repeats: int | None, quick: bool) -> str:
    """The command as the page gives it: what decides its numbers, without anybody's folders."""
    options = {"--sets": sets, "--only": only, "--repeats": repeats}
    given = [f"{option} {value}" for option, value in options.items() if value is not None]
    return " ".join(["dissensus reproduce", *given, *["--quick"] * quick])


def _show(found: Reproduction, directory: Path) -> None:
    if found.absent:
        note(f"not among the data and left out: {', '.join(found.absent)}")
    work = found.work
    say(
        f"{count(work.measured, 'cell')} measured in {work.cpu_seconds:,.0f} s of processor time, "
        f"{work.found:,} found finished"
    )
    say_written(directory, found.files)
