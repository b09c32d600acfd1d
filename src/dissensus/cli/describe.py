"""``dissensus describe``: what is in a file of labels."""

from __future__ import annotations

from dissensus.cli.app import app, example
from dissensus.cli.options import Json, LabelFile, Reading, unbundled
from dissensus.cli.terminal import say, show_json


@app.command(
    epilog=example(
        "dissensus describe votes.csv",
        "dissensus describe votes.csv --gold gold.csv --items tweets.csv --json",
        "dissensus describe ratings.tsv --item-column page --label-column grade --classes low,mid,high",
    )
)
@unbundled
def describe(file: LabelFile, reading: Reading, as_json: Json = False) -> None:
    """Say what is in a file: how far annotators agree, labels per item, self-consistency, parts, classes."""
    annotations = reading.read(file, aloud=False)
    from dissensus.data.description import describe as describe_annotations

    description = describe_annotations(annotations)
    if as_json:
        show_json(description.to_dict())
    else:
        say(*description.as_text().splitlines())
