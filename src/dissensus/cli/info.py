"""``dissensus models`` and ``dissensus doctor``: what there is to choose from, and what is installed here."""

from __future__ import annotations

import inspect
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dissensus._version import __version__
from dissensus.cli.app import app, example
from dissensus.cli.options import Json
from dissensus.cli.settings import model_names
from dissensus.cli.terminal import say, show_json, show_table
from dissensus.errors import install_command
from dissensus.params import n_cores, physical_memory

if TYPE_CHECKING:
    from dissensus.models.base import Model

NEED = "it also needs the items' text or features (--text-column, --features)."
# What each extra is for; the packages of an extra are read from what the installer wrote.
EXTRAS = {
    "pandas": "results as pandas data frames",
    "text": "sentence embeddings, LDL-NM, text classifiers (PyTorch)",
    "report": "maps of items in the report (t-SNE)",
    "guided": "classifiers taught by refined labels (scikit-learn)",
    "arviz": "posterior draws for ArviZ",
    "mlflow": "runs logged to MLflow, and its assessments read",
    "excel": "reading .xlsx files",
    "cluster": "fits on a Dask cluster",
}
CORE = "core"


# ---- models -------------------------------------------------------------------------------------------


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
        titles = {}
        for short in MODELS:
            kind, title = model_class(short), _first_sentence(model_class(short))
            titles[short] = f"{title.rstrip('.')}; {NEED}" if kind.uses_features is True else title
        if as_json:
            show_json(titles)
            return
        show_table("Models", ["name", "what it is"], [list(row) for row in titles.items()])
        say("Settings of one: dissensus models NAME")
        return
    kind = model_class(name)
    settings = model_settings(kind)
    if as_json:
        show_json(settings)
        return
    say(_first_sentence(kind))
    rows = [[row["name"], row["default"], row["rule"], row["meaning"]] for row in settings]
    show_table(f"Settings of {name}", ["setting", "default", "must be", "what it means"], rows)


def _first_sentence(kind: type[Model]) -> str:
    """The first paragraph of the model's documentation, on one line."""
    paragraph = (inspect.getdoc(kind) or kind.__name__).split("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "")


def model_settings(kind: type[Model]) -> list[dict[str, Any]]:
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


# ---- doctor -------------------------------------------------------------------------------------------


@app.command(epilog=example("dissensus doctor", "dissensus doctor --json"))
def doctor(as_json: Json = False) -> None:
    """Show versions, threads and memory, and which extras are missing and how to get them."""
    found = environment()
    if as_json:
        show_json(found)
        return
    say(
        f"dissensus {found['dissensus']}, Python {found['python']}, {found['system']}",
        f"environment   {found['environment']}",
        f"cores         {found['cores']}",
        f"memory        {found['memory_gb']} GB",
        f"libraries     {'; '.join(found['libraries'])}",
    )
    core = [[name, number or "missing"] for name, number in found["core"].items()]
    show_table("Core", ["package", "version"], core)
    extras = []
    for name, about in found["extras"].items():
        state = f"missing {', '.join(about['missing'])}" if about["missing"] else "complete"
        extras.append([name, about["for"], state])
    show_table("Extras", ["extra", "what for", "state"], extras)
    for name, about in found["extras"].items():
        if about["missing"]:
            say(f"{name}: {about['get_it_with']}")


class Package(NamedTuple):
    """A package that dissensus uses."""

    part: str  # "core", or the name of an extra
    name: str
    wanted: str  # the least version
    found: str  # empty where it is missing


def packages() -> list[Package]:
    """The packages of the core and of each extra, with the versions that are installed here."""
    try:
        lines = requires("dissensus") or []
    except PackageNotFoundError:  # run from its source, never installed
        lines = []
    known = []
    for line in lines:
        text, _, marker = line.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
        name, wanted = re.match(r"([\w.-]+)\s*(.*)", text.strip()).groups()  # type: ignore[union-attr]
        try:
            found = version(name)
        except PackageNotFoundError:
            found = ""
        known.append(Package(extra[1] if extra else CORE, name, wanted.strip(), found))
    return [one for one in known if one.part == CORE or one.part in EXTRAS]


def environment() -> dict[str, Any]:
    """Versions, threads, memory, and for each extra what it is for, what is missing and how to get it."""
    known, extras = packages(), {}
    for name, purpose in EXTRAS.items():
        missing = [one.name for one in known if one.part == name and not one.found]
        extras[name] = {
            "for": purpose,
            "installed": {one.name: one.found for one in known if one.part == name and one.found},
            "missing": missing,
            "get_it_with": install_command(name) if missing else "",
        }
    return {
        "dissensus": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "environment": sys.prefix,
        "cores": n_cores(),
        "memory_gb": round(physical_memory() / 1e9, 1),
        "libraries": _thread_pools(),
        "core": {one.name: one.found for one in known if one.part == CORE},
        "extras": extras,
    }


def _thread_pools() -> list[str]:
    """The libraries that compute in threads of their own, and how many."""
    import numpy  # noqa: F401  # loads its BLAS, which is then found
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    pools = {(pool["internal_api"], pool["version"] or "", pool["num_threads"]) for pool in threadpool_info()}
    return [f"{name} {number}".strip() + f", {threads} threads" for name, number, threads in sorted(pools)]
