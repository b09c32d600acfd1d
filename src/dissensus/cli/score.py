"""``dissensus score``: how good estimates are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dissensus.cli.app import app, example, option
from dissensus.cli.options import Json, Reading, unbundled
from dissensus.cli.terminal import count, note, show_json, show_table


def metric_names(incomplete: str) -> list[str]:
    """For shell completion."""
    from dissensus.metrics import METRICS

    return [name for name in METRICS if name.startswith(incomplete)]


@app.command(
    epilog=example(
        "dissensus score refined crowd/population.csv",
        "dissensus score refined/labels.csv gold.csv --metric accuracy --metric macro_f1",
        "dissensus score refined/model.safetensors hidden.csv --json",
    )
)
@unbundled
def score(
    estimates: Annotated[
        Path,
        typer.Argument(metavar="ESTIMATES", help="A run, a labels.csv, a table of labels, or a saved model."),
    ],
    reference: Annotated[
        Path,
        typer.Argument(
            metavar="REFERENCE",
            help="Distributions (p_… columns), gold labels, or labels by annotators.",
        ),
    ],
    reading: Reading,
    metric: Annotated[
        list[str] | None, option("NAME", "Name of a measure; repeatable.", autocompletion=metric_names)
    ] = None,
    bootstrap: Annotated[
        int, option("N", "Number of resamples for the intervals; 0 leaves them out.", min=0)
    ] = 1000,
    as_json: Json = False,
) -> None:
    """Score estimates against the truth, gold labels, or labels by annotators."""
    from dissensus.workflow.scoring import LABELS
    from dissensus.workflow.scoring import score as score_tables

    scores = score_tables(
        estimates,
        reference,
        metrics=metric or (),
        n_boot=bootstrap,
        item=reading.item_column,
        label=reading.label_column,
        kind=LABELS if reading.annotator_column or reading.layout or reading.format else None,
        read_labels=reading.read,
    )
    if scores.left_out:
        note(f"left out: {count(scores.left_out, 'item')} of {reference} not found in {estimates}")
    if scores.perhaps_seen:
        note(
            f"every item has as many labels in {reference} as in the fit: if they are the same labels, the "
            "score says how well they are remembered, and nothing about labels to come"
        )
    if as_json:
        show_json(scores.to_dict())
        return
    rows = [[name, found.value, found.low, found.high] for name, found in scores.values.items()]
    title = f"{count(scores.n_items, 'item')} against {scores.against}"
    show_table(title, ["measure", "value", "from", "to (95 %)"], rows)
