"""``dissensus select``: how many clusters, and whatever else should be chosen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli import options as opt
from dissensus.cli.app import app, examples, last_result, option
from dissensus.cli.terminal import amounts, cell, count, say, say_missing, show_json, show_table

if TYPE_CHECKING:
    from dissensus.evaluate.select import Selection

SHOWN = 10  # cells in the table
USUAL = "3:20"


@app.command(
    epilog=examples(
        "dissensus select votes.csv -k 3:20 -l 3:20 -o search",
        "dissensus select votes.csv --model fmm -k 1,2,4,8,16 --grid alpha=1.5,2,3",
    )
)
def select(
    context: typer.Context,
    file: opt.LabelFile,
    item_column: opt.ItemColumn = None,
    annotator_column: opt.AnnotatorColumn = [],
    label_column: opt.LabelColumn = [],
    label_type: opt.LabelTypes = None,
    classes: opt.Classes = [],
    items: opt.ItemTable = None,
    features: opt.Features = None,
    model: opt.Model = "pgm",
    item_clusters: opt.ItemSizes = None,
    annotator_clusters: opt.AnnotatorSizes = None,
    grid: Annotated[list[str], option("NAME=VALUES", "Values of another setting.", "--grid", "-g")] = [],
    set: opt.SetOption = [],
    criterion: Annotated[str, option("NAME", "held-out, dev, or another criterion.")] = "held-out",
    dev: Annotated[Path | None, option("FILE", "Labels of other items, to judge settings by.")] = None,
    test_size: Annotated[float, option("SHARE", "Share of the labels that is hidden (0.2).")] = 0.2,
    repeats: Annotated[int, option("N", "Splits on which the best settings are tried (5).")] = 5,
    seed: opt.Seed = 0,
    jobs: opt.Jobs = opt.ALL_CORES,
    output: opt.OutputDirectory = None,
    force: opt.Force = False,
    no_report: opt.NoReport = False,
    cluster: opt.Cluster = None,
    scratch: opt.Scratch = None,
    as_json: opt.Json = False,
) -> None:
    """Choose K and L, or any setting, by hidden labels."""
    from dissensus.models import build_model, check_known
    from dissensus.tables.results import check_output, claimed

    directory = output or Path(f"{opt.stem(file)}-search")
    check_output(directory, force)
    estimator = build_model(model, dict(map(opt.parse_setting, set)), seed=seed)
    known = estimator.get_params(deep=False)
    sizes = dict(zip(opt.CLUSTERS, (item_clusters, annotator_clusters), strict=True))
    values = {
        name: opt.parse_values(given or USUAL)
        for name, given in sizes.items()
        if given is not None or name in known
    }
    values |= {
        name.strip(): opt.parse_values(tried) for name, _, tried in (text.partition("=") for text in grid)
    }
    check_known(model, values, known)
    from dissensus.evaluate.select import select as search
    from dissensus.large.resources import resources
    from dissensus.workflow.runs import write_selection

    columns = opt.Columns(item_column, annotator_column, label_column, label_type, classes)
    labels = opt.with_features(columns.read(file, items=items), features)
    others = None if dev is None else opt.with_features(columns.read(dev, items=items), features)
    notice: dict[str, Any] = {"command": opt.command_line(context), "source": str(file)}
    kept = directory.exists, f"{directory} keeps what is finished: run the same again"
    with (
        opt.resumable(*kept),
        claimed(directory, notice, force),
        resources(n_workers=jobs, cluster=cluster, scratch=scratch),
    ):
        selection = search(
            labels,
            estimator,
            values,
            criterion=criterion,
            dev=others,
            test_size=test_size,
            repeats=repeats,
            directory=directory,
            n_jobs=jobs,
            seed=seed,
        )
    with opt.resumable(*kept), last_result():
        page = None if no_report else {"title": file.name}
        summary = write_selection(selection, labels, directory, **notice, reading=columns.given(), page=page)
    if as_json:
        show_json(summary)
        return
    say(amounts(labels))
    _show(selection, criterion)
    say_missing(summary["report_missing"], directory)
    opt.say_written(directory, summary["files"])


def _show(selection: Selection, criterion: str) -> None:
    best = [
        [_short(str(one)), one.score, one.error, one.repeats, f"{one.seconds:.2f}"]
        for one in selection.cells[:SHOWN]
    ]
    title = f"The best of {count(len(selection.cells), 'cell')} by {criterion} (nats, higher is better)"
    show_table(title, ["settings", "score", "± error", "splits", "seconds"], best, best=0)
    if selection.n_too_large:
        left_out = count(selection.n_too_large, "cell")
        say(f"Not tried: {left_out} with more clusters than the items, annotators or labels bear")
    for name, gain in selection.gains.items():
        say(f"Better than the best {name} by {cell(gain.mean)} ± {cell(gain.error)}")
    wins = "; ".join(f"{_short(name)} on {n}" for name, n in selection.stability.wins.items())
    say(f"First on the splits: {wins}")
    if selection.winner.repeats > 1:
        tied = ", ".join(_short(str(one)) for one in selection.stability.tied[1:])
        say(
            f"Correlation of two splits' rankings: {selection.stability.rank_correlation:.2f}; "
            f"within the error of the winner: {tied or 'none'}"
        )


def _short(settings: str) -> str:
    """Numbers of clusters by their option's letter."""
    return settings.replace("n_item_clusters", "k").replace("n_annotator_clusters", "l")
