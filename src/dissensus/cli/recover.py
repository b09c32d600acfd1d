"""``dissensus recover`` and ``score``: accuracy of models with few labels, and of any estimates."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dissensus.cli import options as opt
from dissensus.cli.app import argument, last_result, option
from dissensus.cli.terminal import count, note, say, say_written, show_json, show_table
from dissensus.errors import ParameterError

if TYPE_CHECKING:
    from dissensus.evaluate.recovery import Recovery
    from dissensus.models.base import Model

DEFAULT_MODELS = ["fmm", "pgm"]


@opt.command(
    "dissensus recover votes.csv",
    "dissensus recover votes.csv -r 2,4 -m fmm -m 'pgm inference=vb' -k 6,12 -l 4,8",
)
def recover(
    file: opt.LabelFile,
    columns: opt.Columns,
    items: opt.ItemTable = None,
    features: opt.Features = None,
    model: Annotated[list[str], option("'NAME [X=Y]'", "Model, settings; repeatable.", "--model", "-m")] = [],
    item_clusters: opt.ItemSizes = "6,12",
    annotator_clusters: opt.AnnotatorSizes = "4,8",
    labels_shown: Annotated[
        str, option("LIST", "How many labels of each item the models see: 1,2,4.", "--labels-shown", "-r")
    ] = "",
    draws: Annotated[int, option("N", "Number of random subsets of labels.")] = 5,
    weight_by: Annotated[
        str | None, option("UNIT", "Count every label equally (labels), or every annotator (annotators).")
    ] = None,
    seed: opt.Seed = 0,
    jobs: opt.Jobs = opt.ALL_CORES,
    output: opt.OutputDirectory = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Measure how accurate models are with few labels per item."""
    models = _models(model, dict(zip(opt.CLUSTERS, (item_clusters, annotator_clusters), strict=True)))
    from dissensus.evaluate.recovery import recover as measure
    from dissensus.large.resources import resources
    from dissensus.tables.results import check_output
    from dissensus.workflow.runs import write_recovery

    if output is not None:
        check_output(output, force)
    labels = opt.attach_features(columns.read(file, items=items), features)
    numbers = opt.parse_values(labels_shown) if labels_shown else None
    if numbers and not all(type(value) is int for value in numbers):
        raise ParameterError(f"{labels_shown}: write whole numbers, as in 1,2,4 or 3:20")
    settings: dict[str, Any] = {"n_draws": draws, "weight_by": weight_by, "n_jobs": jobs, "seed": seed}
    with resources(n_workers=jobs):
        recovery = measure(labels, models, numbers, **settings)
    summary: dict[str, Any] = {}
    if output is not None:
        origin = {"command": opt.command_line(), "source": opt.shown_path(file)}
        with last_result():
            summary = write_recovery(recovery, output, force, **origin)
    if as_json:
        show_json(recovery.to_dict())
        return
    _show(recovery)
    if output is not None:
        say_written(output, summary)


def _models(texts: list[str], clusters: dict[str, str | None]) -> dict[str, list[Model]]:
    """Return the models of each text, one for every combination of cluster numbers it does not set."""
    from dissensus.models import build_model

    groups = {}
    for text in texts or DEFAULT_MODELS:
        name, *words = shlex.split(text) or [""]
        settings = opt.parse_settings(words)
        parameters = build_model(name, settings).get_params(deep=False)
        free = [setting for setting in clusters if setting in parameters and setting not in settings]
        grid = {setting: opt.parse_values(clusters[setting] or "") for setting in free}
        cells = [dict(zip(grid, cell, strict=True)) for cell in itertools.product(*grid.values())]
        groups[text] = [build_model(name, settings | cell) for cell in cells]
    return groups


def _show(recovery: Recovery) -> None:
    """Print the best model for each number of labels shown."""
    say(f"{count(recovery.n_items, 'item')} with {recovery.n_reserved:.1f} held-out labels each")
    say(f"Expected KL of the true distribution (no estimate is better on average): {recovery.floor:.4f}")
    rows = []
    for row in recovery.rows():
        model, interval = [row["labels_shown"], row["model"]], f"{row['low']:.4f} – {row['high']:.4f}"
        rows.append([*model, row["kl"], interval, row["counts"], row["efficiency"]])
    columns = ["labels shown", "best model", "KL", "95 % interval", "KL of counts", "equivalent raw labels"]
    show_table("KL(held-out labels ‖ estimate) in nats, lower is better", columns, rows)
    if recovery.n_left_out:
        note(f"left out: {count(recovery.n_left_out, 'item')} with too few labels")
    note(*recovery.notes)


@opt.command(
    "dissensus score refined crowd/population.csv",
    "dissensus score refined/labels.csv gold.csv --metric accuracy --metric macro_f1",
)
def score(
    estimates: Annotated[Path, argument("ESTIMATES", "A run, a table of refined labels, or a saved model.")],
    reference: Annotated[Path, argument("REFERENCE", "Distributions, gold labels, or labels by annotators.")],
    columns: opt.Columns,
    metric: Annotated[list[str], option("NAME", "A metric such as kl or accuracy; repeatable.")] = [],
    bootstrap: Annotated[int, option("N", "Bootstrap samples for the intervals; 0 for none.", min=0)] = 1000,
    as_json: opt.Json = False,
) -> None:
    """Compare estimates with a reference."""
    from dissensus.workflow.scoring import ANNOTATORS_LABELS
    from dissensus.workflow.scoring import score as score_files

    reading: dict[str, Any] = {"item": columns.item, "read_labels": columns.read}
    reading["label"] = columns.label[0] if isinstance(columns.label, list) else columns.label
    reading["kind"] = ANNOTATORS_LABELS if columns.annotator else None
    scores = score_files(estimates, reference, metrics=metric, n_boot=bootstrap, **reading)
    if as_json:
        show_json(scores.to_dict())
    else:
        rows = [[name, value.value, value.low, value.high] for name, value in scores.values.items()]
        title = f"{count(scores.n_items, 'item')}, compared with {scores.against} (95 % intervals)"
        show_table(title, ["metric", "value", "low", "high"], rows)
    if scores.left_out:
        note(f"left out: {count(scores.left_out, 'item')} of {reference} that {estimates} does not have")
    if scores.perhaps_seen:
        reason = "the reference has as many labels for each item as the fit"
        note(f"{reason}; if they are the same labels, these scores overstate the accuracy")
