"""Exports of annotation tools and crowd platforms, read as (item, annotator, label).

Each importer knows one family of exports and fills a :class:`~dissensus.io.exports.gather.Gatherer`. The
format is recognised from the content, or named; of several questions one is chosen by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from dissensus.errors import DataError, bad_choice, bad_parameter
from dissensus.io.exports import (
    argilla,
    crowd,
    doccano,
    ground_truth,
    huggingface,
    label_studio,
    prodigy,
    research,
)
from dissensus.io.exports.gather import Gatherer, Imported, Options, Several
from dissensus.io.exports.recognition import recognise

__all__ = ["FORMATS", "Format", "Imported", "load_export", "recognise"]


@dataclass(frozen=True)
class Format:
    """A format that can be imported: its name for ``format=``, what people call it, and the importer."""

    name: str
    title: str
    read: Callable[[Path, Gatherer], None]


FORMATS: Mapping[str, Format] = MappingProxyType(
    {
        name: Format(name, title, read)
        for name, title, read in (
            ("label-studio", "Label Studio (JSON, JSON-MIN, CSV)", label_studio.read),
            ("prodigy", "Prodigy (JSONL)", prodigy.read),
            ("argilla", "Argilla 2 (flattened or nested JSON)", argilla.read),
            ("doccano", "doccano (zip or folder of JSONL files)", doccano.read),
            ("mturk", "Amazon Mechanical Turk batch results (CSV)", crowd.read_mturk),
            ("appen", "Appen / FigureEight full report (CSV)", crowd.read_appen),
            ("toloka", "Toloka assignments (TSV)", crowd.read_toloka),
            ("ground-truth", "SageMaker Ground Truth, custom jobs (JSONL)", ground_truth.read),
            ("lewidi", "LeWiDi 2023 and 2025 (JSON)", research.read_lewidi),
            ("pldl", "pandas split JSON of the label-distribution papers", research.read_split),
            ("huggingface", "Hugging Face dataset on disk (Arrow, Parquet)", huggingface.read),
        )
    }
)


def load_export(
    path: str | Path,
    *,
    format: str | None = None,
    question: str | None = None,
    several: Several = "keep",
    keep_rejected: bool = False,
    item_column: str | None = None,
    annotator_column: str | None = None,
    text_column: str | None = None,
) -> Imported:
    """Read the labels of one question from a tool's export.

    ``format`` is one of :data:`FORMATS`, recognised from the content if not given. ``question`` names the
    question where there are several. ``several="error"`` refuses more than one label in one answer.
    ``keep_rejected`` keeps rejected assignments. ``item_column`` and ``text_column`` name the fields that
    identify an item and hold its text, where the tool's usual ones are not wanted; ``annotator_column`` does
    so for the annotators of a dataset on disk, the one format whose columns have no fixed names.
    """
    path = Path(path)
    name = format if format is not None else _recognised(path)
    if name not in FORMATS:
        raise bad_choice("load_export", "format", FORMATS, name)
    if several not in ("keep", "error"):
        raise bad_parameter("load_export", "several", "'keep' or 'error'", several)
    if not path.exists():
        raise DataError(f"{path}: no such file; check the name")
    if annotator_column is not None and name != "huggingface":
        raise DataError(f"{path}: {name} files say themselves who annotated; leave annotator= out")
    options = Options(question, several, keep_rejected, item_column, annotator_column, text_column)
    gather = Gatherer(path, name, options)
    FORMATS[name].read(path, gather)
    return gather.finish()


def _recognised(path: Path) -> str:
    if not path.exists():
        raise DataError(f"{path}: no such file; check the name")
    name = recognise(path)
    if name is None:
        raise DataError(f"{path}: is no export that is known; name it with format= ({', '.join(FORMATS)})")
    return name
