"""``dissensus report``: a fitted model as one page, made again."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from dissensus.cli.app import app, example, last_result, option
from dissensus.cli.options import Anonymise, LabelsOfRun, LabelsOrRun, Reading, Title, unbundled, under
from dissensus.cli.terminal import say

_page = under("The page")


@app.command(
    epilog=example(
        "dissensus report refined",
        "dissensus report votes.csv -o page.html",
        "dissensus report later --since refined",
        "dissensus report refined votes.csv --items tweets.csv --anonymise --title 'Pilot' -o pilot.html",
    )
)
@unbundled
def report(
    place: LabelsOrRun,
    reading: Reading,
    file: LabelsOfRun = None,
    output: Annotated[
        Path | None, option("FILE", "The page to write (if left out: report.html in RUN).", "--output", "-o")
    ] = None,
    title: Title = None,
    anonymise: Anonymise = False,
    text_column: Annotated[str | None, _page("NAME", "Column with the text of the items.")] = None,
    projection: Annotated[str, _page("pca|tsne", "How the map of items is made.")] = "auto",
    since: Annotated[Path | None, _page("RUN", "An earlier run: say what changed since then.")] = None,
    time_column: Annotated[
        str | None, _page("NAME", "Column of FILE that says when each label was given.")
    ] = None,
) -> None:
    """Write a fitted model as one page to look at: items, annotators, clusters, quality."""
    from dissensus.report.page import write_report
    from dissensus.tables.layouts import read_times
    from dissensus.tables.results import changed_file
    from dissensus.workflow.runs import REPORT, opened

    tables = (reading.items, reading.annotators, reading.gold)
    saved, annotations = opened(place, file, reading.as_in(place).read, tables)
    target = output or (place / REPORT if place.is_dir() and saved.summary else Path(REPORT))
    in_run = place.is_dir() and target.resolve() == (place / REPORT).resolve()
    with last_result(), changed_file(place, REPORT) if in_run else nullcontext(target) as page:
        write_report(
            annotations,
            saved.model,
            page,
            title=title or (file or place).name,
            texts=text_column,
            anonymise=anonymise,
            projection=projection,  # type: ignore[arg-type]
            run=str(place) if place.is_dir() else "",
            since=since,
            times=None if time_column is None else read_times(file or place, time_column, annotations),
            **saved.evidence(),
        )
    say(f"Wrote {target}")
