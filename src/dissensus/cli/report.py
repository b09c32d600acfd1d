"""``dissensus report``, and the page that ``fit`` and ``select`` write at their end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from dissensus.cli.app import app, example
from dissensus.cli.bundles import unbundled
from dissensus.cli.reading import Reading
from dissensus.cli.terminal import note, say
from dissensus.execution.progress import shown

PANEL = "The page"

Title = Annotated[
    str | None, typer.Option("--title", metavar="TEXT", help="Of the page.", rich_help_panel=PANEL)
]
Anonymise = Annotated[
    bool, typer.Option("--anonymise", help="Hide annotator ids on the page.", rich_help_panel=PANEL)
]


@dataclass(frozen=True, kw_only=True)
class Page:
    """Whether a page is written, and how."""

    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Write report.html.", rich_help_panel=PANEL)
    ] = True
    title: Title = None
    anonymise: Anonymise = False

    def settings(self, name: str, text_column: str | None) -> dict[str, Any] | None:
        """Settings of ``write_report``; None where no page is wanted."""
        if not self.report:
            return None
        return {"title": self.title or name, "anonymise": self.anonymise, "texts": text_column}


def say_missing(reason: str | None, directory: Path, file: Path) -> None:
    """Where the page could not be made, why, and how to try again."""
    if reason is not None:
        note(f"no report ({reason}); try again with: dissensus report {directory} {file} --debug")


@app.command(
    epilog=example(
        "dissensus report refined votes.csv",
        "dissensus report refined votes.csv --items tweets.csv --anonymise --title 'Pilot' -o pilot.html",
    )
)
@unbundled
def report(
    place: Annotated[
        Path, typer.Argument(metavar="RUN", help="A directory that fit or select wrote, or a saved model.")
    ],
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The labels it was fitted to.")],
    reading: Reading,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="The page (report.html in RUN if left out)."),
    ] = None,
    title: Title = None,
    anonymise: Anonymise = False,
    text_column: Annotated[
        str | None,
        typer.Option("--text-column", metavar="NAME", help="The items' text.", rich_help_panel=PANEL),
    ] = None,
    projection: Annotated[
        str,
        typer.Option("--projection", metavar="pca|tsne", help="Of the map of items.", rich_help_panel=PANEL),
    ] = "auto",
) -> None:
    """Write a fitted model as one page to look at: items, annotators, clusters, quality."""
    from dissensus.report.page import write_report
    from dissensus.workflow import REPORT, open_run

    saved = open_run(place)
    target = output or (place / REPORT if place.is_dir() else Path(REPORT))
    annotations = reading.read(file)
    with shown() as progress:
        write_report(
            saved.model,
            annotations,
            target,
            title=title or file.name,
            texts=text_column,
            anonymise=anonymise,
            projection=projection,  # type: ignore[arg-type]
            progress=progress,
            **saved.evidence(),
        )
    say(f"Wrote {target}")
