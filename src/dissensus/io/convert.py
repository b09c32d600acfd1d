"""From an export to plain tables: the labels, and beside them what the export knows of the items."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dissensus.io.exports import Imported, load_export
from dissensus.io.write import write_table


@dataclass(frozen=True)
class Converted:
    """What was read, and where it now stands."""

    imported: Imported
    labels: Path
    items: Path | None  # None where the export tells of the items nothing but their ids


def convert_export(
    source: str | Path, output: str | Path, items: str | Path | None = None, **options: Any
) -> Converted:
    """Write an export's labels to ``output`` (CSV, JSON lines or Parquet by its name; also gzipped).

    Texts and other columns of the items go to ``items``; by default ``labels.items.csv`` for ``labels.csv``.
    ``options`` are those of :func:`dissensus.io.exports.load_export`.
    """
    imported = load_export(source, **options)
    labels = Path(output)
    beside = Path(items) if items is not None else items_beside(labels)
    if imported.items is not None:
        write_table(imported.items, beside)
    write_table(imported.labels, labels)
    return Converted(imported, labels, beside if imported.items is not None else None)


def items_beside(labels: Path) -> Path:
    """``labels.items.csv.gz`` for ``labels.csv.gz``."""
    suffixes = labels.suffixes[-2:] if labels.suffix == ".gz" else labels.suffixes[-1:]
    ending = "".join(suffixes)
    return labels.with_name(labels.name.removesuffix(ending) + ".items" + ending)
