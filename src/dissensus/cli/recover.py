"""``dissensus recover``: how close a model comes to the population, from how few labels."""

from __future__ import annotations

import itertools
import shlex
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dissensus.cli.app import app, example, last_result, option
from dissensus.cli.options import (
    Force,
    ItemFeatures,
    Json,
    LabelFile,
    Reading,
    command_line,
    say_written,
    unbundled,
    under,
)
from dissensus.cli.settings import (
    ALL_CORES,
    CLUSTERS,
    Cluster,
    Jobs,
    Seed,
    parse_setting,
    parse_values,
)
from dissensus.cli.terminal import count, note, say, show_json, show_table
from dissensus.errors import ParameterError

if TYPE_CHECKING:
    from dissensus.evaluate.recovery import Recovery
    from dissensus.models.base import Model

USUAL_MODELS = ["fmm", "pgm"]

_compared = under("What is compared")


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Models, numbers of labels, and how labels are reserved."""

    model: Annotated[
        list[str],
        _compared(
            "'NAME [SETTING=VALUE …]'",
            "A model, with settings if wanted; repeatable (fmm and pgm if left out).",
            "--model",
            "-m",
        ),
    ] = field(default_factory=list)
    item_clusters: Annotated[
        str, _compared("6,12", "Numbers of item clusters to try; the best is shown.", "--item-clusters", "-k")
    ] = "6,12"
    annotator_clusters: Annotated[
        str,
        _compared(
            "4,8", "Numbers of annotator clusters to try; the best is shown.", "--annotator-clusters", "-l"
        ),
    ] = "4,8"
    labels_shown: Annotated[
        str | None,
        _compared("1,2,4,8", "Numbers of labels per item that a model sees.", "--labels-shown", "-r"),
    ] = None
    pool: Annotated[
        int | None, _compared("N", "Labels per item that may be shown (8, or as many as there are).")
    ] = None
    min_reserved: Annotated[
        int | None, _compared("N", "Least number of labels per item that are kept back (6, or fewer).")
    ] = None
    draws: Annotated[int, _compared("N", "How often labels are drawn.")] = 5
    weight_by: Annotated[
        str | None,
        _compared("labels|annotators", "Whether the population counts every label or every annotator alike."),
    ] = None
    seed: Seed = 0
    jobs: Jobs = ALL_CORES

    def models(self) -> dict[str, list[Model]]:
        """By what was asked for, the models to compare: one for every number of clusters left open."""
        from dissensus.models import build_model

        groups = {}
        for text in self.model or USUAL_MODELS:
            name, *settings = shlex.split(text) or [""]
            given = dict(map(parse_setting, settings))
            known = build_model(name, given).get_params(deep=False)
            left_open = {
                setting: parse_values(getattr(self, option))
                for option, setting in CLUSTERS.items()
                if setting in known and setting not in given
            }
            cells = [
                dict(zip(left_open, cell, strict=True)) for cell in itertools.product(*left_open.values())
            ]
            groups[text] = [build_model(name, given | cell) for cell in cells]
        return groups


@app.command(
    epilog=example(
        "dissensus recover votes.csv",
        "dissensus recover votes.csv -r 2,4 -m fmm -m 'pgm inference=vb' -k 6,12,20 -l 4,8 -o recovery",
    )
)
@unbundled
def recover(
    context: typer.Context,
    file: LabelFile,
    reading: Reading,
    comparison: Comparison,
    features: ItemFeatures,
    cluster: Cluster,
    output: Annotated[Path | None, option("DIR", "Directory to write, if wanted.", "--output", "-o")] = None,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Measure how close models come to labels kept back, and how many raw labels theirs are worth."""
    models = comparison.models()
    cluster.check()
    from dissensus.evaluate.recovery import recover as measure
    from dissensus.tables.results import check_output
    from dissensus.workflow.runs import write_recovery

    if output is not None:
        check_output(output, force)
    annotations = features.attached(reading.read(file))
    wholes = None if comparison.labels_shown is None else parse_values(comparison.labels_shown)
    if wholes and not all(type(value) is int for value in wholes):
        raise ParameterError(f"{comparison.labels_shown}: write whole numbers, as in 1,2,4 or 3:20")
    with cluster.in_use(comparison.jobs):
        found = measure(
            annotations,
            models,
            wholes,
            pool=comparison.pool,
            min_reserved=comparison.min_reserved,
            n_draws=comparison.draws,
            weight_by=comparison.weight_by,
            n_jobs=comparison.jobs,
            seed=comparison.seed,
        )
    files: list[str] = []
    if output is not None:
        notice = {"command": command_line(context), "source": str(file)}
        with last_result():
            written = write_recovery(found, output, **notice, force=force)
        files = written["files"]
    if as_json:
        show_json(found.to_dict())
        return
    _show(found)
    if output is not None:
        say_written(output, files)


def _show(found: Recovery) -> None:
    if found.n_left_out:
        note(f"{count(found.n_left_out, 'item')} with too few labels took no part")
    for words in found.notes:
        note(words)
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
