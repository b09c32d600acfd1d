"""``dissensus select``: search for numbers of clusters and other settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from dissensus.cli import options as opt
from dissensus.cli.app import last_result, option
from dissensus.cli.terminal import amounts, cell, count, say, say_written, show_json, show_table

if TYPE_CHECKING:
    from dissensus.evaluate.select import Selection

CELLS_SHOWN = 10  # rows of the table
DEFAULT_SIZES = "3:20"  # numbers of clusters to try


@opt.command(
    "dissensus select votes.csv -k 3:20 -l 3:20 -o search",
    "dissensus select votes.csv --model fmm -k 1,2,4,8,16 --grid alpha=1.5,2,3",
)
def select(
    file: opt.LabelFile,
    columns: opt.Columns,
    items: opt.ItemTable = None,
    features: opt.Features = None,
    model: opt.Model = "pgm",
    item_clusters: opt.ItemSizes = None,
    annotator_clusters: opt.AnnotatorSizes = None,
    grid: Annotated[list[str], option("NAME=LIST", "Values to try; repeatable.", "--grid", "-g")] = [],
    set: opt.SetOption = [],
    criterion: Annotated[
        str, option("NAME", "held-out: labels of FILE hidden from the model; dev: labels of other items.")
    ] = "held-out",
    dev: Annotated[Path | None, option("FILE", "File of labels of other items, for --criterion dev.")] = None,
    test_size: Annotated[float, option("SHARE", "Share of the labels that are held out.")] = 0.2,
    repeats: Annotated[int, option("N", "Number of splits on which the best settings are compared.")] = 5,
    seed: opt.Seed = 0,
    jobs: opt.Jobs = opt.ALL_CORES,
    output: opt.OutputDirectory = None,
    force: opt.Force = False,
    no_report: opt.NoReport = False,
    cluster: opt.Cluster = None,
    scratch: opt.Scratch = None,
    as_json: opt.Json = False,
) -> None:
    """Choose numbers of clusters or other settings on held-out labels."""
    from dissensus.models import build_model, check_setting_names
    from dissensus.tables.results import check_output, claimed_directory

    directory = output or Path(f"{opt.stem(file)}-search")
    check_output(directory, force)
    estimator = build_model(model, opt.parse_settings(set), seed=seed)
    parameters = estimator.get_params(deep=False)
    values = {}
    for name, size in zip(opt.CLUSTERS, (item_clusters, annotator_clusters), strict=True):
        if size is not None or name in parameters:
            values[name] = opt.parse_values(size or DEFAULT_SIZES)
    for text in grid:
        name, _, listed = text.partition("=")
        values[name.strip()] = opt.parse_values(listed)
    check_setting_names(model, values, parameters)
    from dissensus.evaluate.select import select as search
    from dissensus.large.resources import resources
    from dissensus.workflow.runs import write_selection

    labels = opt.attach_features(columns.read(file, items=items), features)
    dev_labels = None if dev is None else opt.attach_features(columns.read(dev, items=items), features)
    settings: dict[str, Any] = {"criterion": criterion, "test_size": test_size, "repeats": repeats}
    origin: dict[str, Any] = {"command": opt.command_line(), "source": opt.shown_path(file)}
    more: dict[str, Any] = {"dev": dev_labels, "directory": directory, "n_jobs": jobs, "seed": seed}
    resume = f"finished trials are saved in {directory}; run the same command to resume"
    page = None if no_report else {"title": opt.page_title(file)}
    limits = resources(n_workers=jobs, cluster=cluster, scratch=scratch)
    with opt.resumable(directory.exists, resume):
        with claimed_directory(directory, origin, force), limits:
            selection = search(labels, estimator, values, **settings, **more)
        origin["reading"] = columns.settings()
        with last_result():
            summary = write_selection(selection, labels, directory, **origin, page=page)
    if as_json:
        show_json(summary)
        return
    say(amounts(labels))
    _show(selection, criterion)
    say_written(directory, summary)


def _show(selection: Selection, criterion: str) -> None:
    """Print the best settings, and how stable the ranking is over splits."""

    def short(settings: object) -> str:
        return str(settings).replace("n_item_clusters", "k").replace("n_annotator_clusters", "l")

    cells = selection.cells[:CELLS_SHOWN]
    best = [[short(row), row.score, row.error, row.repeats, f"{row.seconds:.2f}"] for row in cells]
    title = f"Best of {count(len(selection.cells), 'combination')} by {criterion} (nats, higher is better)"
    show_table(title, ["settings", "score", "± error", "splits", "seconds"], best, best=0)
    if selection.n_too_large:
        skipped = count(selection.n_too_large, "combination")
        say(f"Skipped {skipped} with too many clusters for the numbers of items, annotators or labels")
    for name, gain in selection.gains.items():
        say(f"Gain over {name}: {cell(gain.mean)} ± {cell(gain.error)}")
    wins = "; ".join(f"{short(name)} on {count(n, 'split')}" for name, n in selection.stability.wins.items())
    say(f"Ranked first: {wins}")
    if selection.winner.repeats > 1:
        tied = ", ".join(map(short, selection.stability.tied[1:]))
        say(f"Rank correlation between splits: {selection.stability.rank_correlation:.2f}")
        say(f"Within the error of the winner: {tied or 'none'}")
