"""A cell: one measured thing, kept as one file with the settings, seeds and versions that made it.

``cells/jq1/pd-3.json`` holds the fourth repeat of PD on jq1. Predictions stand beside it in
``cells/jq1/pd-3.npz``. The JSON file is written last and whole or not at all: where it stands, the cell is
finished. A cell whose settings are no longer those in its file is measured anew.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dissensus._version import __version__
from dissensus.tables.atomic import atomic_path
from dissensus.tables.results import finite, versions

FOLDER = "cells"

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Cell:
    """What is to be measured: everything that decides the numbers is in ``settings``."""

    dataset: str
    kind: str  # which measure
    name: str  # of what
    repeat: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0  # processor seconds it may take, roughly

    @property
    def path(self) -> str:
        """Its file, from the output directory."""
        return f"{FOLDER}/{self.dataset}/{self.name}-{self.repeat}.json"

    @property
    def identity(self) -> dict[str, Any]:
        """What must agree for a file to count as this cell's."""
        own = {"dataset": self.dataset, "kind": self.kind, "name": self.name, "repeat": self.repeat}
        return dict(finite({**own, "settings": self.settings, "version": __version__}))

    def __str__(self) -> str:
        return f"{self.dataset} {self.name} {self.repeat + 1}"


@dataclass(frozen=True)
class Measured:
    """A finished cell."""

    path: str
    numbers: Mapping[str, Any]
    cpu_seconds: float
    identity: Mapping[str, Any]


@dataclass(frozen=True)
class FinishedCells:
    """The finished cells of an output directory."""

    directory: Path

    def __contains__(self, cell: Cell) -> bool:
        return self.read(cell) is not None

    def read(self, cell: Cell) -> Measured | None:
        """What was measured, or None where the file is absent, damaged or of other settings."""
        try:
            content = json.loads((self.directory / cell.path).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(content, dict) or content.get("cell") != json.loads(json.dumps(cell.identity)):
            return None
        return Measured(cell.path, content["numbers"], content["cpu_seconds"], content["cell"])

    def arrays(self, path: str) -> Arrays:
        """The arrays beside a finished cell's file."""
        with np.load(self._beside(path), allow_pickle=False) as content:
            return {name: content[name] for name in content.files}

    def write(self, cell: Cell, numbers: Mapping[str, Any], arrays: Arrays, cpu_seconds: float) -> None:
        """Keep a cell: arrays first, then the file that says it is finished."""
        if arrays:
            with atomic_path(self._beside(cell.path)) as temporary, temporary.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **arrays)
        content = {
            "cell": cell.identity,
            "numbers": finite(numbers),
            "cpu_seconds": round(cpu_seconds, 3),
            "arrays": sorted(arrays),
            "versions": _versions(),
        }
        with atomic_path(self.directory / cell.path) as temporary:
            temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")

    def _beside(self, path: str) -> Path:
        return (self.directory / path).with_suffix(".npz")


def _versions() -> dict[str, str]:
    torch = sys.modules.get("torch")
    return versions() | ({} if torch is None else {"torch": str(torch.__version__)})
