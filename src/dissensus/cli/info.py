"""``dissensus info``: installed packages, models, and the settings of a model."""

from __future__ import annotations

import inspect
import platform
import re
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Annotated, Any

from dissensus._version import __version__
from dissensus.cli import options as opt
from dissensus.cli.app import argument
from dissensus.cli.terminal import say, show_json, show_table
from dissensus.errors import install_command
from dissensus.params import n_cores, physical_memory

if TYPE_CHECKING:
    from dissensus.models.base import Model

# Purpose of each extra; its packages are read from the metadata of the installation.
EXTRAS = {
    "pandas": "results as pandas data frames",
    "text": "sentence embeddings, LDL-NM, text classifiers (PyTorch)",
    "guided": "classifiers trained on refined labels (scikit-learn)",
    "arviz": "posterior draws for ArviZ",
    "mlflow": "logging runs to MLflow and reading its assessments",
    "excel": "reading .xlsx files",
    "app": "the page on which items are decided",
    "cluster": "fits on a Dask cluster",
}
CORE = "core"


@opt.command("dissensus info", "dissensus info fmm")
def info(
    model: Annotated[str | None, argument("MODEL", "Show the settings of this model.")] = None,
    as_json: opt.Json = False,
) -> None:
    """Show versions, extras, models and their settings."""
    if model is not None:
        _show_settings(model, as_json)
        return
    report = environment() | {"models": _titles()}
    if as_json:
        show_json(report)
        return
    core = ", ".join(f"{name} {number or 'missing'}" for name, number in report["core"].items())
    say(
        f"dissensus {report['dissensus']}, Python {report['python']}, {report['system']}",
        f"environment   {report['environment']}",
        f"cores         {report['cores']}",
        f"memory        {report['memory_gb']} GB",
        f"core          {core}",
    )
    extras, commands = [], []
    for name, extra in report["extras"].items():
        missing = ", ".join(extra["missing"])
        extras.append([name, extra["for"], f"missing {missing}" if missing else "installed"])
        commands += [f"{name}: {extra['get_it_with']}"] if missing else []
    show_table("Extras", ["extra", "purpose", "status"], extras)
    say(*commands)
    show_table("Models", ["name", "description"], [list(row) for row in report["models"].items()])
    say("Settings of a model: dissensus info MODEL")


def _titles() -> dict[str, str]:
    """Return the first paragraph of each model's documentation."""
    from dissensus.models import MODELS, model_class

    titles = {name: _first_paragraph(model_class(name)) for name in MODELS}
    for name, title in titles.items():
        if model_class(name).uses_features is True:
            titles[name] = f"{title.rstrip('.')}; needs the text or features of the items."
    return titles


def _show_settings(name: str, as_json: bool) -> None:
    """Print the settings of a model."""
    from dissensus.models import model_class

    kind = model_class(name)
    settings = []
    for setting, declared in kind._settings.items():
        row = {"name": setting, "default": str(declared.default), "rule": declared.rule.words}
        row["meaning"] = re.sub(r":\w+:`~?([^`]*)`", r"\1", declared.meaning).replace("``", "")
        settings.append(row)
    if as_json:
        show_json(settings)
        return
    say(_first_paragraph(kind))
    rows = [list(row.values()) for row in settings]
    show_table(f"Settings of {name}", ["setting", "default", "allowed values", "meaning"], rows)


def _first_paragraph(kind: type[Model]) -> str:
    """Return the first paragraph of a class's docstring as plain text."""
    paragraph = (inspect.getdoc(kind) or kind.__name__).split("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "")


def packages() -> dict[str, dict[str, str]]:
    """Return the installed version of each package of the core and of every extra; "" if it is missing."""
    lines, versions = list[str](), {part: dict[str, str]() for part in (CORE, *EXTRAS)}
    with suppress(PackageNotFoundError):  # run from source, not installed
        lines = requires("dissensus") or []
    for line in lines:
        text, _, marker = line.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
        name = re.match(r"[\w.-]+", text.strip())[0]  # type: ignore[index]
        part = extra[1] if extra else CORE
        if part in versions:
            versions[part][name] = ""
            with suppress(PackageNotFoundError):
                versions[part][name] = version(name)
    return versions


def environment() -> dict[str, Any]:
    """Return versions, cores, memory, and the purpose, packages and install command of each extra."""
    versions, extras = packages(), {}
    for extra, purpose in EXTRAS.items():
        missing = [name for name, number in versions[extra].items() if not number]
        extras[extra] = {
            "for": purpose,
            "installed": {name: number for name, number in versions[extra].items() if number},
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
        "core": versions[CORE],
        "extras": extras,
    }
