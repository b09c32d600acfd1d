"""``dissensus select``: how many clusters, and whatever else should be chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli.app import app, example
from dissensus.cli.options import (
    ItemFeatures,
    Json,
    LabelFile,
    Page,
    Reading,
    TablesOutput,
    command_line,
    say_missing,
    say_written,
    stem,
    unbundled,
    under,
)
from dissensus.cli.settings import (
    ALL_CORES,
    CLUSTERS,
    Cluster,
    Inference,
    Jobs,
    Restarts,
    Seed,
    SetOption,
    model_names,
    parse_setting,
    parse_values,
    resumable,
)
from dissensus.cli.terminal import amounts, cell, count, say, show_json, show_table

if TYPE_CHECKING:
    from dissensus.evaluate.select import Selection
    from dissensus.models.base import Model

SHOWN = 10  # cells in the table
USUAL = "3:20"

_search = under("The search")


@dataclass(frozen=True, kw_only=True)
class Grid:
    """A model, the values to try, and how cells are judged."""

    model: Annotated[
        str,
        _search(
            "NAME", "The model whose settings are searched.", "--model", "-m", autocompletion=model_names
        ),
    ] = "pgm"
    item_clusters: Annotated[
        str | None, _search("3:20", "Numbers of item clusters to try.", "--item-clusters", "-k")
    ] = None
    annotator_clusters: Annotated[
        str | None, _search("3:20", "Numbers of annotator clusters to try.", "--annotator-clusters", "-l")
    ] = None
    grid: Annotated[
        list[str], _search("NAME=VALUES", "Values to try of another setting; repeatable.", "--grid", "-g")
    ] = field(default_factory=list)
    criterion: Annotated[str, _search("NAME", "held-out or dev.")] = "held-out"
    dev: Annotated[Path | None, _search("FILE", "Labels of other items, by which settings are judged.")] = (
        None
    )
    test_size: Annotated[
        float,
        _search("SHARE", "Share of the labels that are hidden (or of the items, with --criterion dev)."),
    ] = 0.2
    repeats: Annotated[int, _search("N", "Number of splits on which the best settings are tried.")] = 5
    finalists: Annotated[int, _search("N", "Number of the best settings that are tried on all splits.")] = 10
    inference: Inference = None
    restarts: Restarts = None
    seed: Seed = 0
    jobs: Jobs = ALL_CORES
    set: SetOption = field(default_factory=list)

    def estimator(self) -> Model:
        """The model, with the settings that stay the same."""
        from dissensus.models import build_model

        fixed = {"inference": self.inference, "n_restarts": self.restarts}
        given = {name: value for name, value in fixed.items() if value is not None}
        return build_model(self.model, given | dict(map(parse_setting, self.set)), seed=self.seed)

    def values(self, estimator: Model) -> dict[str, list[Any]]:
        """What is tried: the numbers of clusters the model has, and every ``--grid``."""
        from dissensus.models import check_known

        known = estimator.get_params(deep=False)
        sizes = {setting: getattr(self, option) for option, setting in CLUSTERS.items()}
        wanted = {
            name: parse_values(given or USUAL)
            for name, given in sizes.items()
            if given is not None or name in known
        }
        others = (text.partition("=") for text in self.grid)
        wanted |= {name.strip(): parse_values(values) for name, _, values in others}
        check_known(self.model, wanted, known)
        return wanted


@app.command(
    epilog=example(
        "dissensus select votes.csv -k 3:20 -l 3:20 --inference bp -o search",
        "dissensus select votes.csv --model fmm -k 1,2,4,8,16,32 --grid alpha=1.5,2,3",
        "dissensus select votes.store -k 4,8 --cluster tcp://10.0.0.1:8786 --scratch /data/scratch -o search",
    )
)
@unbundled
def select(
    context: typer.Context,
    file: LabelFile,
    output: TablesOutput,
    reading: Reading,
    grid: Grid,
    features: ItemFeatures,
    page: Page,
    cluster: Cluster,
    as_json: Json = False,
) -> None:
    """Choose K and L, or any setting, by labels not seen; a killed search goes on where it was."""
    directory = output.directory(f"{stem(file, reading.question)}-search")
    estimator = grid.estimator()
    values = grid.values(estimator)
    cluster.check()
    from dissensus.evaluate.select import select as search
    from dissensus.tables.results import claimed
    from dissensus.workflow.runs import write_selection

    annotations = page.hidden(features.attached(reading.read(file)))
    dev = None if grid.dev is None else features.attached(reading.read(grid.dev))
    notice: dict[str, Any] = {"command": command_line(context), "source": str(file)}
    kept = directory, f"{directory} keeps what is finished: run the same again"
    with (
        resumable(*kept),
        claimed(directory, notice, output.force),
        cluster.in_use(grid.jobs),
    ):
        selection = search(
            estimator,
            annotations,
            values,
            criterion=grid.criterion,
            dev=dev,
            test_size=grid.test_size,
            repeats=grid.repeats,
            finalists=grid.finalists,
            directory=directory,
            n_jobs=grid.jobs,
            seed=grid.seed,
        )
    looks = page.settings(file.name, features.text_column)
    with resumable(*kept), output.writing():
        summary = write_selection(
            selection, annotations, directory, **notice, reading=reading.given(), page=looks
        )
    say_missing(summary["report_missing"], directory, file)
    if as_json:
        show_json(summary)
        return
    say(amounts(annotations))
    _show(selection, grid.criterion)
    say_written(directory, summary["files"])


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
