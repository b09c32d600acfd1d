"""``dissensus annotators``: who answers without looking, and who sees something else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dissensus.cli.app import app, example
from dissensus.cli.options import Json, LabelsOrRun, Reading, unbundled
from dissensus.cli.settings import ALL_CORES, Jobs, Seed
from dissensus.cli.terminal import count, say, show_json, show_table

if TYPE_CHECKING:
    from dissensus.annotators.verdicts import AnnotatorVerdicts

SHOWN = 10  # annotators of each kind in the table


@app.command(epilog=example("dissensus annotators votes.csv", "dissensus annotators refined -o who.csv"))
@unbundled
def annotators(
    place: LabelsOrRun,
    reading: Reading,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write a row an annotator: .csv, .jsonl, .parquet."
        ),
    ] = None,
    interval: Annotated[
        float, typer.Option("--interval", metavar="SHARE", help="Size of the intervals of information.")
    ] = 0.9,
    seed: Seed = 0,
    jobs: Jobs = ALL_CORES,
    as_json: Json = False,
) -> None:
    """Tell spam, minority views and systematic errors from typical annotators, with the evidence."""
    from dissensus.annotators.verdicts import annotator_verdicts
    from dissensus.io.write import write_table
    from dissensus.models.base import make_frame
    from dissensus.workflow import posterior_of

    model, labels = posterior_of(place, reading.read, seed=seed, n_jobs=jobs)
    found = annotator_verdicts(labels, model, interval=interval)
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
    say(f"Views: {found.in_words()}")
    rows = [
        [
            str(found.annotator[n]),
            verdict,
            f"{found.probability[n]:.0%}",
            int(found.n_labels[n]),
            str(found.evidence[n]),
        ]
        for verdict in ("spam", "systematic error", "minority view")
        for n in (found.verdict == verdict).nonzero()[0][:SHOWN]
    ]
    if rows:
        title = f"Up to {SHOWN} of each kind that is not typical"
        show_table(title, ["annotator", "verdict", "probability", "labels", "evidence"], rows)
