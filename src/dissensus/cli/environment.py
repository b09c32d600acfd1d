"""What is installed here: versions, extras and what they lack, threads and memory."""

from __future__ import annotations

import platform
import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any, NamedTuple

from dissensus._version import __version__
from dissensus.errors import install_command
from dissensus.params import n_cores, physical_memory

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
    known = [_package(line) for line in lines]
    return [one for one in known if one.part == CORE or one.part in EXTRAS]


def _package(line: str) -> Package:
    text, _, marker = line.partition(";")
    extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", marker)
    name, wanted = re.match(r"([\w.-]+)\s*(.*)", text.strip()).groups()  # type: ignore[union-attr]
    return Package(extra[1] if extra else CORE, name, wanted.strip(), _version(name))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def environment() -> dict[str, Any]:
    """Versions, threads, memory, and for each extra what it is for, what is missing and how to get it."""
    found = packages()
    return {
        "dissensus": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "environment": sys.prefix,
        "cores": n_cores(),
        "memory_gb": round(physical_memory() / 1e9, 1),
        "libraries": _thread_pools(),
        "core": {one.name: one.found for one in found if one.part == CORE},
        "extras": {name: _extra(name, [one for one in found if one.part == name]) for name in EXTRAS},
    }


def _extra(name: str, found: list[Package]) -> dict[str, Any]:
    missing = [one.name for one in found if not one.found]
    return {
        "for": EXTRAS[name],
        "installed": {one.name: one.found for one in found if one.found},
        "missing": missing,
        "get_it_with": install_command(name) if missing else "",
    }


def _thread_pools() -> list[str]:
    """The libraries that compute in threads of their own, and how many."""
    import numpy  # noqa: F401  # loads its BLAS, which is then found
    import scipy.linalg  # noqa: F401
    from threadpoolctl import threadpool_info

    pools = {(pool["internal_api"], pool["version"] or "", pool["num_threads"]) for pool in threadpool_info()}
    return [f"{name} {number}".strip() + f", {threads} threads" for name, number, threads in sorted(pools)]
