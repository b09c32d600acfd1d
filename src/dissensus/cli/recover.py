"""``dissensus recover``: how close models come to the population, from how few labels."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli.app import app, example
from dissensus.cli.bundles import unbundled
from dissensus.cli.reading import LabelFile, Reading
from dissensus.cli.settings import Jobs, Restarts, Seed, SetOption, parse_setting, parse_values
from dissensus.cli.terminal import amounts, cell, count, note, progress, say, show_json, show_table
from dissensus.cli.writing import Json

if TYPE_CHECKING:
    from dissensus.models.base import Model
    from dissensus.recovery import Recovery

PANEL = "The models"
DRAWING = "What is shown and what is reserved"


def _option(*flags: str, metavar: str, help: str, panel: str = PANEL) -> Any:
    return typer.Option(*flags, metavar=metavar, help=help, rich_help_panel=panel)


@dataclass(frozen=True, kw_only=True)
class Contenders:
    """Models by name, each with every combination of the settings it has."""

    models: Annotated[str, _option("--models", "-m", metavar="A,B,…", help="Models by name.")] = "fmm,pgm"
    item_clusters: Annotated[
        str | None, _option("--item-clusters", "-k", metavar="6,12", help="Numbers of item clusters to try.")
    ] = None
    annotator_clusters: Annotated[
        str | None,
        _option("--annotator-clusters", "-l", metavar="4,8", help="Numbers of annotator clusters to try."),
    ] = None
    inference: Annotated[
        str | None,
        _option("--inference", metavar="bp,vb", help="How pgm is learned; each is a line of its own."),
    ] = None
    restarts: Restarts = None
    set: SetOption = field(default_factory=list)

    def groups(self) -> dict[str, list[Model]]:
        """Name → the models to try under it, settings given where a model has them."""
        from dissensus.auto import check_known
        from dissensus.models import model_class

        known = {name: model_class(name)._param_names() for name in map(str.strip, self.models.split(","))}
        wanted = self._wanted()
        check_known(self.models, wanted, list(dict.fromkeys(itertools.chain(*known.values()))))
        groups: dict[str, list[Model]] = {}
        for name, settings in known.items():
            own = {setting: values for setting, values in wanted.items() if setting in settings}
            for title, model in _combinations(name, own):
                groups.setdefault(title, []).append(model)
        return groups

    def _wanted(self) -> dict[str, list[Any]]:
        several = {
            "n_item_clusters": self.item_clusters,
            "n_annotator_clusters": self.annotator_clusters,
            "inference": self.inference,
        }
        wanted = {name: parse_values(text) for name, text in several.items() if text is not None}
        single = dict(map(parse_setting, self.set))
        single |= {} if self.restarts is None else {"n_restarts": self.restarts}
        return wanted | {name: [value] for name, value in single.items()}


def _combinations(name: str, wanted: dict[str, list[Any]]) -> list[tuple[str, Model]]:
    """Every combination as a model, under its name and, where several are tried, how it is learned."""
    from dissensus.auto import build_model

    split = len(wanted.get("inference", [])) > 1
    cells = [dict(zip(wanted, values, strict=True)) for values in itertools.product(*wanted.values())]
    return [
        (f"{name} {settings['inference']}" if split else name, build_model(name, settings))
        for settings in cells
    ]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """How many labels are shown, and how many are kept to judge by."""

    labels_shown: Annotated[
        str, _option("--labels-shown", metavar="1,2,4", help="Labels shown per item.", panel=DRAWING)
    ] = "1,2,4,8"
    pool: Annotated[
        int, _option("--pool", metavar="N", help="Labels of each item that may be shown.", panel=DRAWING)
    ] = 8
    min_reserved: Annotated[
        int,
        _option("--min-reserved", metavar="N", help="Items with fewer others take no part.", panel=DRAWING),
    ] = 6
    n_draws: Annotated[
        int, _option("--draws", metavar="N", help="How often labels are drawn.", panel=DRAWING)
    ] = 5
    population: Annotated[
        str | None,
        _option("--population", metavar="labels|annotators", help="What weighs the same.", panel=DRAWING),
    ] = None

    def settings(self) -> dict[str, Any]:
        """By the library's names."""
        return vars(self) | {"labels_shown": parse_values(self.labels_shown)}


@app.command(
    epilog=example(
        "dissensus recover votes.csv",
        "dissensus recover votes.csv --models fmm,pgm -k 6,12 -l 4,8 --inference bp,vb --labels-shown 2,4",
    )
)
@unbundled
def recover(
    file: LabelFile,
    reading: Reading,
    contenders: Contenders,
    drawing: Drawing,
    seed: Seed = 0,
    jobs: Jobs = -1,
    as_json: Json = False,
) -> None:
    """How close models come to labels they were not shown, and how many raw labels that is worth."""
    groups = contenders.groups()
    from dissensus.recovery import recover as run

    with progress() as watch:
        watch(f"reading {file.name}", 0.0)
        annotations = reading.read(file)
        recovery = run(groups, annotations, n_jobs=jobs, seed=seed, progress=watch, **drawing.settings())
    if recovery.n_left_out:
        note(f"{count(recovery.n_left_out, 'item')} with too few labels took no part, not even in the fits")
    if as_json:
        show_json(recovery.to_dict())
        return
    say(amounts(annotations))
    _show(recovery)


def _show(recovery: Recovery) -> None:
    rows = []
    for shown, lines in itertools.groupby(recovery.rows(), key=lambda row: row["labels_shown"]):
        point = recovery.counts[shown - 1]
        strength = f"best smoothing: {point.strength:.2f}"
        rows.append([shown, "counts", point.kl.value, _range(point.kl.low, point.kl.high), shown, strength])
        rows += [
            [shown, row["name"], row["kl"], _range(row["low"], row["high"]), row["efficiency"], row["model"]]
            for row in lines
        ]
    title = (
        f"KL of {recovery.n_reserved:.1f} reserved labels per item from each estimate "
        f"({count(recovery.n_items, 'item')}, {count(recovery.n_draws, 'draw')}; nats, lower is better)"
    )
    columns = ["labels", "model", "KL", "95 % interval", "worth raw labels", "best of its settings"]
    show_table(title, columns, rows)
    say(f"No estimate is expected below the sampling floor of {cell(recovery.floor)}")


def _range(low: float, high: float) -> str:
    return f"{low:.4f} – {high:.4f}"
