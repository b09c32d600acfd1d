"""``dissensus describe``: what is in a file of labels."""

from __future__ import annotations

import dataclasses

from dissensus.cli.app import app, example, in_shell_words
from dissensus.cli.options import Json, LabelsOrRun, Reading, unbundled
from dissensus.cli.terminal import say, show_json


@app.command(
    epilog=example(
        "dissensus describe votes.csv",
        "dissensus describe refined",
        "dissensus describe votes.csv --gold gold.csv --items tweets.csv --json",
        "dissensus describe ratings.tsv --item-column page --label-column grade --classes low,mid,high",
    )
)
@unbundled
def describe(place: LabelsOrRun, reading: Reading, as_json: Json = False) -> None:
    """Say what is in a file: how far annotators agree, labels per item, self-consistency, parts, classes."""
    from dissensus.labels.description import describe as describe_annotations
    from dissensus.tables.results import is_ours

    if place.suffix == ".safetensors" or is_ours(place):
        from dissensus.workflow.runs import labels_of

        annotations = labels_of(place, reading.read, reading.items, reading.annotators)
    else:
        annotations = reading.read(place, aloud=False)

    description = describe_annotations(annotations)
    if as_json:
        show_json(description.to_dict())
    else:
        options = {f"--{one.name.replace('_', '-')}" for one in dataclasses.fields(reading)}
        lines = description.as_text().splitlines()
        say(*(in_shell_words(line, options) if line.startswith("note: ") else line for line in lines))
