"""``dissensus info``: what is installed here, the models, and the settings of one."""

from __future__ import annotations

import inspect
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Annotated, Any

from dissensus._version import __version__
from dissensus.cli import options as opt
from dissensus.cli.app import app, argument, examples
from dissensus.cli.terminal import say, show_json, show_table
from dissensus.errors import install_command
from dissensus.params import n_cores, physical_memory

if TYPE_CHECKING:
    from dissensus.models.base import Model

NEED = "it also needs the items' text or features."
# What each extra is for; the packages of an extra are read from what the installer wrote.
EXTRAS = {
    "pandas": "results as pandas data frames",
    "text": "sentence embeddings, LDL-NM, text classifiers (PyTorch)",
    "guided": "classifiers taught by refined labels (scikit-learn)",
    "arviz": "posterior draws for ArviZ",
    "mlflow": "runs logged to MLflow, and its assessments read",
    "excel": "reading .xlsx files",
    "cluster": "fits on a Dask cluster",
}
CORE = "core"


@app.command(epilog=examples("dissensus info", "dissensus info fmm"))
def info(
    model: Annotated[str | None, argument("[MODEL]", "A model, for its settings.")] = None,
    as_json: opt.Json = False,
) -> None:
    """Show versions, extras, models and their settings."""
    if model is not None:
        _show_settings(model, as_json)
        return
    found = environment() | {"models": _titles()}
    if as_json:
        show_json(found)
        return
    core = ", ".join(f"{name} {number or 'missing'}" for name, number in found["core"].items())
    say(
        f"dissensus {found['dissensus']}, Python {found['python']}, {found['system']}",
        f"environment   {found['environment']}",
        f"cores         {found['cores']}",
        f"memory        {found['memory_gb']} GB",
        f"core          {core}",
    )
    extras = []
    for name, about in found["extras"].items():
        state = f"missing {', '.join(about['missing'])}" if about["missing"] else "complete"
        extras.append([name, about["for"], state])
    show_table("Extras", ["extra", "what for", "state"], extras)
    for name, about in found["extras"].items():
        if about["missing"]:
            say(f"{name}: {about['get_it_with']}")
    show_table("Models", ["name", "what it is"], [list(row) for row in found["models"].items()])
    say("Settings of one: dissensus info MODEL")


def _titles() -> dict[str, str]:
    """The first sentence of every model's documentation."""
    from dissensus.models import MODELS, model_class

    titles = {}
    for name in MODELS:
        kind, title = model_class(name), _first_sentence(model_class(name))
        titles[name] = f"{title.rstrip('.')}; {NEED}" if kind.uses_features is True else title
    return titles


def _show_settings(name: str, as_json: bool) -> None:
    from dissensus.models import model_class

    kind = model_class(name)
    settings = [
        {
            "name": setting,
            "default": str(declared.default),
            "rule": declared.rule.words,
            "meaning": re.sub(r":\w+:`~?([^`]*)`", r"\1", declared.meaning).replace("``", ""),
        }
        for setting, declared in kind._settings.items()
    ]
    if as_json:
        show_json(settings)
        return
    say(_first_sentence(kind))
    rows = [list(row.values()) for row in settings]
    show_table(f"Settings of {name}", ["setting", "default", "must be", "what it means"], rows)


def _first_sentence(kind: type[Model]) -> str:
    paragraph = (inspect.getdoc(kind) or kind.__name__).split("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "")


def packages() -> list[tuple[str, str, str]]:
    """(part, name, version here) of the packages of the core and of each extra; "" where it is missing."""
    try:
        lines = requires("dissensus") or []
    except PackageNotFoundError:  # run from its source, never installed
        lines = []
    known = []
    for line in lines:
        text, _, marker = line.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
        name = re.match(r"[\w.-]+", text.strip())[0]  # type: ignore[index]
        try:
            found = version(name)
        except PackageNotFoundError:
            found = ""
        known.append((extra[1] if extra else CORE, name, found))
    return [(part, name, found) for part, name, found in known if part == CORE or part in EXTRAS]


def environment() -> dict[str, Any]:
    """Versions, threads, memory, and for each extra what it is for, what is missing and how to get it."""
    known, extras = packages(), {}
    for extra, purpose in EXTRAS.items():
        versions = {name: found for part, name, found in known if part == extra}
        missing = [name for name, found in versions.items() if not found]
        extras[extra] = {
            "for": purpose,
            "installed": {name: found for name, found in versions.items() if found},
            "missing": missing,
            "get_it_with": install_command(extra) if missing else "",
        }
    return {
        "dissensus": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "environment": sys.prefix,
        "cores": n_cores(),
        "memory_gb": round(physical_memory() / 1e9, 1),
        "core": {name: found for part, name, found in known if part == CORE},
        "extras": extras,
    }
