"""``dissensus annotators``: who answers without looking, and who sees something else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dissensus.cli.app import app, example
from dissensus.cli.options import Json, LabelFile, Reading, unbundled
from dissensus.cli.settings import ALL_CORES, Jobs, Seed
from dissensus.cli.terminal import count, say, show_json, show_table
from dissensus.execution.progress import shown

if TYPE_CHECKING:
    from dissensus.annotators.verdicts import AnnotatorVerdicts

SHOWN = 10  # annotators of each kind in the table


@app.command(
    epilog=example(
        "dissensus annotators votes.csv", "dissensus annotators votes.csv --min-labels 20 -o who.csv"
    )
)
@unbundled
def annotators(
    file: LabelFile,
    reading: Reading,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write a row an annotator: .csv, .jsonl, .parquet."
        ),
    ] = None,
    min_labels: Annotated[
        int, typer.Option("--min-labels", metavar="N", help="Labels that a verdict needs.")
    ] = 10,
    seed: Seed = 0,
    jobs: Jobs = ALL_CORES,
    as_json: Json = False,
) -> None:
    """Tell spam from minority views, annotator by annotator, with the evidence."""
    labels = reading.read(file)
    from dissensus.annotators.verdicts import annotator_verdicts
    from dissensus.io.write import write_table
    from dissensus.models.base import make_frame

    with shown() as progress:
        progress("looking for spam and for groups", 0.0)
        found = annotator_verdicts(labels, min_labels=min_labels, seed=seed, n_jobs=jobs)
    if output is not None:
        write_table(make_frame(found.columns(), "pyarrow"), output)
    if as_json:
        show_json(found.columns())
        return
    _show(found)
    if output is not None:
        say(f"Wrote {output}: {count(len(found), 'annotator')}")


def _show(found: AnnotatorVerdicts) -> None:
    say("; ".join(f"{n:,} {verdict}" for verdict, n in found.counts().items() if n))
    rows = [
        [str(found.annotator[n]), str(found.verdict[n]), int(found.n_labels[n]), str(found.evidence[n])]
        for verdict in ("spam", "minority view")
        for n in (found.verdict == verdict).nonzero()[0][:SHOWN]
    ]
    if rows:
        title = f"Up to {SHOWN} of each kind that is not typical"
        show_table(title, ["annotator", "verdict", "labels", "evidence"], rows)
