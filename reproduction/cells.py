"""Cells: single measurements, each in one file with its settings, seeds and versions.

``cells/jq1/pd-3.json`` is the fourth repeat of PD on jq1; its predictions are in ``cells/jq1/pd-3.npz``. The
JSON file is written last and atomically, so a cell is finished if it exists. A cell whose settings have
changed is measured again.
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
from dissensus.tables.results import json_safe, versions

Arrays = dict[str, NDArray[Any]]
Numbers = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """A measurement to be made; ``settings`` contain everything that decides the numbers."""

    dataset: str
    kind: str  # the measure
    name: str
    repeat: int = 0
    settings: Mapping[str, Any] = field(default_factory=dict)
    weight: float = 1.0  # expected processor seconds

    @property
    def path(self) -> str:
        """File of the cell, relative to the output directory."""
        return f"cells/{self.dataset}/{self.name}-{self.repeat}.json"

    @property
    def identity(self) -> dict[str, Any]:
        """Everything that must agree with the file of the cell."""
        names = ("dataset", "kind", "name", "repeat", "settings")
        return dict(json_safe({name: getattr(self, name) for name in names} | {"version": __version__}))

    def __str__(self) -> str:
        return f"{self.dataset} {self.name} {self.repeat + 1}"


@dataclass(frozen=True)
class FinishedCells:
    """The finished cells of an output directory."""

    directory: Path

    def __contains__(self, cell: Cell) -> bool:
        return self.read(cell) is not None

    def read(self, cell: Cell) -> dict[str, Any] | None:
        """Return the content of a cell's file; None if it is missing, damaged or of other settings."""
        try:
            content = json.loads((self.directory / cell.path).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        if not isinstance(content, dict) or content.get("cell") != json.loads(json.dumps(cell.identity)):
            return None
        return content

    def arrays(self, path: str) -> Arrays:
        """Return the arrays of a finished cell."""
        with np.load((self.directory / path).with_suffix(".npz"), allow_pickle=False) as content:
            return {name: content[name] for name in content.files}

    def write(self, cell: Cell, numbers: Numbers, arrays: Arrays, cpu_seconds: float) -> None:
        """Write the arrays, then the file that marks the cell as finished."""
        path = self.directory / cell.path
        if arrays:
            with atomic_path(path.with_suffix(".npz")) as temporary, temporary.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **arrays)
        torch = sys.modules.get("torch")
        content = {
            "cell": cell.identity,
            "numbers": json_safe(numbers),
            "cpu_seconds": round(cpu_seconds, 3),
            "arrays": sorted(arrays),
            "versions": versions() | ({} if torch is None else {"torch": str(torch.__version__)}),
        }
        with atomic_path(path) as temporary:
            temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
