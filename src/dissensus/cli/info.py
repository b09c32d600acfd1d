"""``dissensus models`` and ``dissensus doctor``: what there is to choose from, and what is installed here."""

from __future__ import annotations

import inspect
import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Annotated, Any

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
    """The first paragraph of the model's documentation, on one line."""
    paragraph = (inspect.getdoc(kind) or kind.__name__).split("\n\n")[0]
    return " ".join(paragraph.split()).replace("``", "")


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
    import numpy  # noqa: F401  # loads its BLAS, which is then found
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    # libraries that compute in threads of their own, and how many
    pools = {(pool["internal_api"], pool["version"] or "", pool["num_threads"]) for pool in threadpool_info()}
    libraries = [f"{name} {number}".strip() + f", {n} threads" for name, number, n in sorted(pools)]
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
        "libraries": libraries,
        "core": {name: found for part, name, found in known if part == CORE},
        "extras": extras,
    }
