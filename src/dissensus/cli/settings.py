"""Which model, and its settings: the common ones by their own option, every one as ``--set name=value``."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from dissensus.errors import ParameterError

PANEL = "The model"

# option -> the models' setting it stands for
COMMON = {
    "item_clusters": "n_item_clusters",
    "annotator_clusters": "n_annotator_clusters",
    "restarts": "n_restarts",
    "inference": "inference",
}


def model_names(incomplete: str) -> list[str]:
    """For shell completion."""
    from dissensus.models import FEATURE_MODELS, MODELS

    return [name for name in ("auto", *MODELS, *FEATURE_MODELS) if name.startswith(incomplete)]


def _option(*flags: str, metavar: str, help: str, **more: Any) -> Any:
    return typer.Option(*flags, metavar=metavar, help=help, rich_help_panel=PANEL, **more)


Inference = Annotated[
    str | None, _option("--inference", metavar="NAME", help="How the model is learned (pgm).")
]
Restarts = Annotated[
    int | None, _option("--restarts", metavar="N", help="Fits from different starts; the best stays.")
]
Seed = Annotated[int, _option("--seed", metavar="N", help="Replays a run.")]
Jobs = Annotated[int, _option("--jobs", "-j", metavar="N", help="Threads or processes; -1: all cores.")]
SetOption = Annotated[
    list[str],
    _option("--set", "-s", metavar="NAME=VALUE", help="Any setting of the model; repeatable."),
]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A model by name, with settings."""

    model: Annotated[
        str,
        _option(
            "--model",
            "-m",
            metavar="NAME",
            help="A model (dissensus models lists them), or the best by held-out likelihood.",
            autocompletion=model_names,
        ),
    ] = "auto"
    item_clusters: Annotated[
        int | None, _option("--item-clusters", "-k", metavar="K", help="Item clusters.")
    ] = None
    annotator_clusters: Annotated[
        int | None, _option("--annotator-clusters", "-l", metavar="L", help="Annotator clusters.")
    ] = None
    inference: Inference = None
    restarts: Restarts = None
    seed: Seed = 0
    jobs: Jobs = 1
    set: SetOption = field(default_factory=list)

    def chosen(self) -> dict[str, Any]:
        """The settings that were given, by the models' names for them."""
        common = {setting: getattr(self, option) for option, setting in COMMON.items()}
        given = {setting: value for setting, value in common.items() if value is not None}
        return given | dict(map(parse_setting, self.set))

    def check(self) -> None:
        """Refuse an unknown model or a setting outside its rule before any file is read."""
        from dissensus.models import build_model

        if self.model != "auto":
            build_model(self.model, self.chosen(), seed=self.seed, n_jobs=self.jobs)


def parse_setting(text: str) -> tuple[str, Any]:
    """``name=value``, the value read as JSON would (3, 0.5, true, null), or else as text."""
    name, equals, value = text.partition("=")
    if not (equals and name.strip()):
        raise ParameterError(f"{text}: write it as name=value, as in n_item_clusters=12")
    return name.strip(), parse_value(value)


def parse_value(text: str) -> Any:
    """A value as JSON would read it, or else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return {"none": None, "true": True, "false": False}.get(text.strip().lower(), text.strip())


def parse_values(text: str) -> list[Any]:
    """Values to try: single ones with commas between, and ``3:20`` for every whole number from 3 to 20."""
    values: list[Any] = []
    for part in text.split(","):
        bounds = re.fullmatch(r"\s*(\d+):(\d+)\s*", part)
        values += range(int(bounds[1]), int(bounds[2]) + 1) if bounds else [parse_value(part)]
    if not values or "" in values:
        raise ParameterError(f"{text}: write values to try as 3:20 or 1,2,4")
    return values


def parse_wholes(text: str) -> list[int]:
    """Values to try that must be whole numbers."""
    values = parse_values(text)
    if not all(type(value) is int for value in values):
        raise ParameterError(f"{text}: write whole numbers, as in 1,2,4 or 3:20")
    return values
