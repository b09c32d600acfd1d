"""What pages of results share: reading a dataset's folder, tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dissensus.data.annotations import Annotations
from dissensus.io import read_annotations


def read_dataset(folder: Path) -> Annotations:
    """A dataset folder: its annotations, with items and gold where it has them."""
    return read_annotations(
        _first(folder, "annotations"), items=_first(folder, "items"), gold=_first(folder, "gold")
    )


def _first(folder: Path, stem: str) -> Path | None:
    found = [folder / f"{stem}{ending}" for ending in (".csv", ".csv.gz")]
    return next((path for path in found if path.exists()), None)


def table(head: Sequence[str], lines: Sequence[str]) -> str:
    """A Markdown table out of its head and its ready-made lines."""
    return "\n".join([line(*head), line(*["---"] * len(head)), *lines])


def line(*cells: object) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(map(str, cells)) + " |"


def yes(holds: bool) -> str:
    """What a table says of a bound."""
    return "yes" if holds else "NO"
