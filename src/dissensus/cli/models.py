"""``dissensus models``: what there is to choose from."""

from __future__ import annotations

import inspect
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dissensus.cli.app import app, example
from dissensus.cli.options import Json
from dissensus.cli.settings import model_names
from dissensus.cli.terminal import say, show_json, show_table

if TYPE_CHECKING:
    from dissensus.models.base import Model

NEED = "it also needs the items' text or features (--text-column, --features)."


@app.command(epilog=example("dissensus models", "dissensus models fmm"))
def models(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A model, for its settings.", autocompletion=model_names),
    ] = None,
    as_json: Json = False,
) -> None:
    """List the models, or the settings of one: what fit takes with --set name=value."""
    from dissensus.models import MODELS, model_class

    if name is None:
        titles = {short: _in_the_list(model_class(short)) for short in MODELS}
        if as_json:
            show_json(titles)
            return
        show_table("Models", ["name", "what it is"], [list(row) for row in titles.items()])
        say("Settings of one: dissensus models NAME")
        return
    kind = model_class(name)
    settings = _settings(kind)
    if as_json:
        show_json(settings)
        return
    say(_first_sentence(kind))
    rows = [[row["name"], row["default"], row["rule"], row["meaning"]] for row in settings]
    show_table(f"Settings of {name}", ["setting", "default", "must be", "what it means"], rows)


def _in_the_list(kind: type[Model]) -> str:
    """What it is, and whether labels alone are not enough for it."""
    told = _first_sentence(kind)
    return f"{told.rstrip('.')}; {NEED}" if kind.uses_features is True else told


def _first_sentence(kind: type[Model]) -> str:
    """The first paragraph of the model's documentation, on one line."""
    paragraph = (inspect.getdoc(kind) or kind.__name__).split("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "")


def _settings(kind: type[Model]) -> list[dict[str, Any]]:
    """Name, default, rule and meaning of every setting, from the model itself."""
    return [
        {
            "name": name,
            "default": str(setting.default),
            "rule": setting.rule.words,
            "meaning": re.sub(r":\w+:`~?([^`]*)`", r"\1", setting.meaning).replace("``", ""),
        }
        for name, setting in kind._settings.items()
    ]
