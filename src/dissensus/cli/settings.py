"""Which model, and its settings: the common ones by their own option, every one as ``--set name=value``."""

from __future__ import annotations

import json
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
    from dissensus.models import MODELS

    return [name for name in ("auto", *MODELS) if name.startswith(incomplete)]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A model by name, with settings."""

    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            metavar="NAME",
            help="A model (dissensus models lists them), or the best by held-out likelihood.",
            autocompletion=model_names,
            rich_help_panel=PANEL,
        ),
    ] = "auto"
    item_clusters: Annotated[
        int | None,
        typer.Option("--item-clusters", "-k", metavar="K", help="Item clusters.", rich_help_panel=PANEL),
    ] = None
    annotator_clusters: Annotated[
        int | None,
        typer.Option(
            "--annotator-clusters", "-l", metavar="L", help="Annotator clusters.", rich_help_panel=PANEL
        ),
    ] = None
    inference: Annotated[
        str | None,
        typer.Option(
            "--inference", metavar="NAME", help="How the model is learned (pgm).", rich_help_panel=PANEL
        ),
    ] = None
    restarts: Annotated[
        int | None,
        typer.Option(
            "--restarts",
            metavar="N",
            help="Fits from different starts; the best stays.",
            rich_help_panel=PANEL,
        ),
    ] = None
    seed: Annotated[
        int, typer.Option("--seed", metavar="N", help="Replays a run.", rich_help_panel=PANEL)
    ] = 0
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", metavar="N", help="Threads; -1: all cores.", rich_help_panel=PANEL)
    ] = 1
    set: Annotated[
        list[str],
        typer.Option(
            "--set",
            "-s",
            metavar="NAME=VALUE",
            help="Any setting of the model; repeatable.",
            rich_help_panel=PANEL,
        ),
    ] = field(default_factory=list)

    def chosen(self) -> dict[str, Any]:
        """The settings that were given, by the models' names for them."""
        common = {setting: getattr(self, option) for option, setting in COMMON.items()}
        given = {setting: value for setting, value in common.items() if value is not None}
        return given | dict(map(parse_setting, self.set))

    def check(self) -> None:
        """Refuse an unknown model or a setting outside its rule before any file is read."""
        from dissensus.auto import build_model

        if self.model != "auto":
            build_model(self.model, self.chosen(), seed=self.seed, n_jobs=self.jobs)


def parse_setting(text: str) -> tuple[str, Any]:
    """``name=value``, the value read as JSON would (3, 0.5, true, null), or else as text."""
    name, equals, value = text.partition("=")
    if not (equals and name.strip()):
        raise ParameterError(f"--set {text}: write it as name=value, as in --set n_item_clusters=12")
    try:
        return name.strip(), json.loads(value)
    except ValueError:
        words = {"none": None, "true": True, "false": False}
        return name.strip(), words.get(value.strip().lower(), value.strip())
