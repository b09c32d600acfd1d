"""``dissensus recover`` and ``score``: how close models, or a file of estimates, come to a reference."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dissensus.cli import options as opt
from dissensus.cli.app import app, argument, examples, last_result, option
from dissensus.cli.terminal import count, note, say, show_json, show_table
from dissensus.errors import ParameterError

if TYPE_CHECKING:
    from dissensus.evaluate.recovery import Recovery
    from dissensus.models.base import Model

USUAL_MODELS = ["fmm", "pgm"]


@app.command(
    epilog=examples(
        "dissensus recover votes.csv",
        "dissensus recover votes.csv -r 2,4 -m fmm -m 'pgm inference=vb' -k 6,12 -l 4,8",
    )
)
def recover(
    context: typer.Context,
    file: opt.LabelFile,
    item_column: opt.ItemColumn = None,
    annotator_column: opt.AnnotatorColumn = [],
    label_column: opt.LabelColumn = [],
    label_type: opt.LabelTypes = None,
    classes: opt.Classes = [],
    items: opt.ItemTable = None,
    features: opt.Features = None,
    model: Annotated[list[str], option("'NAME [X=Y]'", "A model, with settings.", "--model", "-m")] = [],
    item_clusters: opt.ItemSizes = "6,12",
    annotator_clusters: opt.AnnotatorSizes = "4,8",
    labels_shown: Annotated[str, option("1,2,4", "Labels that a model sees.", "--labels-shown", "-r")] = "",
    draws: Annotated[int, option("N", "How often labels are drawn (5).")] = 5,
    weight_by: Annotated[str | None, option("WHAT", "Count labels or annotators alike.")] = None,
    seed: opt.Seed = 0,
    jobs: opt.Jobs = opt.ALL_CORES,
    output: opt.OutputDirectory = None,
    force: opt.Force = False,
    as_json: opt.Json = False,
) -> None:
    """Measure how close models come, from how few labels."""
    models = _models(model, dict(zip(opt.CLUSTERS, (item_clusters, annotator_clusters), strict=True)))
    from dissensus.evaluate.recovery import recover as measure
    from dissensus.large.resources import resources
    from dissensus.tables.results import check_output
    from dissensus.workflow.runs import write_recovery

    if output is not None:
        check_output(output, force)
    columns = opt.Columns(item_column, annotator_column, label_column, label_type, classes)
    labels = opt.with_features(columns.read(file, items=items), features)
    wholes = opt.parse_values(labels_shown) if labels_shown else None
    if wholes and not all(type(value) is int for value in wholes):
        raise ParameterError(f"{labels_shown}: write whole numbers, as in 1,2,4 or 3:20")
    with resources(n_workers=jobs):
        found = measure(labels, models, wholes, n_draws=draws, weight_by=weight_by, n_jobs=jobs, seed=seed)
    files: list[str] = []
    if output is not None:
        notice = {"command": opt.command_line(context), "source": str(file)}
        with last_result():
            files = write_recovery(found, output, **notice, force=force)["files"]
    if as_json:
        show_json(found.to_dict())
        return
    _show(found)
    if output is not None:
        opt.say_written(output, files)


def _models(asked: list[str], clusters: dict[str, str | None]) -> dict[str, list[Model]]:
    """By what was asked for, the models to compare: one for every number of clusters left open."""
    from dissensus.models import build_model

    groups = {}
    for text in asked or USUAL_MODELS:
        name, *settings = shlex.split(text) or [""]
        given = dict(map(opt.parse_setting, settings))
        known = build_model(name, given).get_params(deep=False)
        left_open = {
            setting: opt.parse_values(values or "")
            for setting, values in clusters.items()
            if setting in known and setting not in given
        }
        cells = [dict(zip(left_open, cell, strict=True)) for cell in itertools.product(*left_open.values())]
        groups[text] = [build_model(name, given | cell) for cell in cells]
    return groups


def _show(found: Recovery) -> None:
    kept = f"{found.n_reserved:.1f} labels kept back each"
    say(f"{count(found.n_items, 'item')}, {kept}; no estimate does better than {found.floor:.4f} on average")
    rows = [
        [
            row["labels_shown"],
            row["model"],
            row["kl"],
            f"{row['low']:.4f} – {row['high']:.4f}",
            row["counts"],
            row["efficiency"],
        ]
        for row in found.rows()
    ]
    columns = ["labels shown", "best model", "KL", "95 % interval", "KL of counts", "worth raw labels"]
    show_table("KL(labels kept back ‖ estimate), nats, lower is better", columns, rows)
    if found.n_left_out:
        note(f"{count(found.n_left_out, 'item')} with too few labels took no part")
    for words in found.notes:
        note(words)


@app.command(
    epilog=examples(
        "dissensus score refined crowd/population.csv",
        "dissensus score refined/labels.csv gold.csv --metric accuracy --metric macro_f1",
    )
)
def score(
    estimates: Annotated[Path, argument("ESTIMATES", "A run, a table of labels, or a saved model.")],
    reference: Annotated[Path, argument("REFERENCE", "Distributions (p_…), gold, or annotators' labels.")],
    item_column: opt.ItemColumn = None,
    annotator_column: opt.AnnotatorColumn = [],
    label_column: opt.LabelColumn = [],
    label_type: opt.LabelTypes = None,
    classes: opt.Classes = [],
    metric: Annotated[list[str], option("NAME", "A measure; repeatable.")] = [],
    bootstrap: Annotated[int, option("N", "Resamples for the intervals (1000; 0: none).", min=0)] = 1000,
    as_json: opt.Json = False,
) -> None:
    """Score estimates against a reference."""
    from dissensus.workflow.scoring import LABELS
    from dissensus.workflow.scoring import score as score_files

    columns = opt.Columns(item_column, annotator_column, label_column, label_type, classes)
    scores = score_files(
        estimates,
        reference,
        metrics=metric,
        n_boot=bootstrap,
        item=item_column,
        label=label_column[0] if label_column else None,
        kind=LABELS if annotator_column else None,
        read_labels=columns.read,
    )
    if as_json:
        show_json(scores.to_dict())
    else:
        rows = [[name, found.value, found.low, found.high] for name, found in scores.values.items()]
        title = f"{count(scores.n_items, 'item')} against {scores.against}"
        show_table(title, ["measure", "value", "from", "to (95 %)"], rows)
    if scores.left_out:
        note(f"left out: {count(scores.left_out, 'item')} of {reference} not found in {estimates}")
    if scores.perhaps_seen:
        note("as many labels as in the fit: if they are the same, the score is of memory, not of prediction")
