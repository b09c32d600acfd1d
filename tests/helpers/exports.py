"""Exports made by tests, and what is read from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dissensus.importers.gather import Gatherer
from tests.helpers.export_samples import choice


def triples(imported: Gatherer) -> list[tuple[str, str, str]]:
    """Return (item, annotator, label) of every label."""
    return list(zip(*(column.to_pylist() for column in imported.labels.columns), strict=True))


def item_texts(imported: Gatherer) -> dict[str, str | None]:
    """Return the text of every item."""
    rows = [] if imported.items is None else imported.items.to_pylist()
    return {row["item"]: row.get("text") for row in rows}


def written(folder: Path, value: Any, name: str = "export.json") -> Path:
    """Write a string, or another value as JSON."""
    file = folder / name
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return file


def task(**changes: Any) -> dict[str, Any]:
    """Return a Label Studio task with one annotation."""
    annotation = {"id": 1, "completed_by": 10, "result": [choice("mood", "neg")]}
    return {"id": 7, "data": {"text": "x"}, "annotations": [annotation | changes]}
