"""Exports of annotation tools and crowd platforms, read as (item, annotator, label).

Each importer knows one family of exports and fills a :class:`~dissensus.importers.gather.Gatherer`. The
format is recognised from the content, or named; of several questions one is chosen by name.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dissensus.errors import DataError, bad_choice, setting
from dissensus.importers import (
    argilla,
    crowd,
    doccano,
    huggingface,
    json_records,
    label_studio,
    research,
)
from dissensus.importers.gather import Gatherer, Imported, Options
from dissensus.tables.delimited import header_of
from dissensus.tables.json_lines import JsonStream, records
from dissensus.tables.source import Source, first_bytes

__all__ = ["FORMATS", "Format", "Imported", "load_export", "recognise"]


_LOOK = 20_000  # bytes of a log that tell what it is
Test = Callable[[Mapping[str, Any]], bool]


@dataclass(frozen=True)
class Format:
    """A format that can be imported: its name for ``--format``, what people call it, and the importer.

    ``is_record`` knows it by the first JSON record of a file, ``is_table`` by the columns of a table.
    """

    name: str
    title: str
    read: Callable[[Path, Gatherer], None]
    is_record: Test | None = None
    is_table: Test | None = None


def _some_begin(columns: Mapping[str, Any], prefix: str) -> bool:
    return any(name.startswith(prefix) for name in columns)


# The order matters where one record could pass for two: the more particular test comes first.
_FORMATS = (
    Format(
        "prodigy",
        "Prodigy (JSONL)",
        json_records.read_prodigy,
        lambda record: {"_input_hash", "answer"} <= record.keys(),
    ),
    Format(
        "label-studio",
        "Label Studio (JSON, JSON-MIN, CSV)",
        label_studio.read,
        label_studio.is_record,
        label_studio.is_annotation,
    ),
    Format("argilla", "Argilla 1 and 2 (JSON)", argilla.read, argilla.is_record),
    Format(
        "ground-truth",
        "SageMaker Ground Truth, custom jobs (JSONL)",
        json_records.read_ground_truth,
        json_records.is_ground_truth,
    ),
    Format("doccano", "doccano (zip or folder of JSONL files)", doccano.read, doccano.is_record),
    Format(
        "mturk",
        "Amazon Mechanical Turk batch results (CSV)",
        crowd.read_mturk,
        is_table=lambda columns: "HITId" in columns and _some_begin(columns, "Answer."),
    ),
    Format(
        "appen",
        "Appen / FigureEight full report (CSV)",
        crowd.read_appen,
        is_table=lambda columns: (
            "_unit_id" in columns
            and not columns.keys().isdisjoint({"_worker_id", "_trusted_judgments", "_golden"})
        ),
    ),
    Format(
        "toloka",
        "Toloka assignments (TSV)",
        crowd.read_toloka,
        is_table=lambda columns: _some_begin(columns, "ASSIGNMENT:") and _some_begin(columns, "OUTPUT:"),
    ),
    Format(
        "zooniverse",
        "Zooniverse classifications (CSV)",
        crowd.read_zooniverse,
        is_table=lambda columns: (
            {"classification_id", "user_name", "annotations", "subject_ids"} <= columns.keys()
        ),
    ),
    Format(
        "potato",
        "Potato (folder of JSONL files)",
        json_records.read_potato,
        lambda record: {"label_annotations", "id"} <= record.keys(),
    ),
    Format("inspect", "Inspect evaluation log (JSON)", json_records.read_inspect),
    Format(
        "langfuse",
        "Langfuse scores (JSON, JSONL, CSV)",
        json_records.read_langfuse,
        json_records.is_langfuse,
        json_records.is_langfuse,
    ),
    Format("lewidi", "LeWiDi 2023 and 2025 (JSON)", research.read_lewidi),
    Format("pldl", "pandas split JSON of the label-distribution papers", research.read_split),
    Format("huggingface", "Hugging Face dataset on disk (Arrow, Parquet)", huggingface.read),
)
FORMATS: Mapping[str, Format] = MappingProxyType({format.name: format for format in _FORMATS})


def load_export(
    path: str | Path,
    *,
    format: str | None = None,
    question: str | None = None,
    keep_rejected: bool = False,
    item_column: str | None = None,
    annotator_column: str | None = None,
    text_column: str | None = None,
) -> Imported:
    """Read the labels of one question from a tool's export.

    ``format`` is one of :data:`FORMATS`, recognised from the content if not given. ``question`` names the
    question where there are several.
    ``keep_rejected`` keeps rejected assignments. ``item_column`` and ``text_column`` name the fields that
    identify an item and hold its text, where the tool's usual ones are not wanted; ``annotator_column`` does
    so for the annotators of a dataset on disk, the one format whose columns have no fixed names.
    """
    path = Path(path)
    if format is None and not path.exists():
        raise DataError(f"{path}: no such file; check the name")
    name = format if format is not None else recognise(path)
    if name is None:
        raise DataError(
            f"{path}: is no export that is known; name it with {setting('format')} ({', '.join(FORMATS)})"
        )
    if name not in FORMATS:
        raise bad_choice("load_export", "format", FORMATS, name)
    if not path.exists():
        raise DataError(f"{path}: no such file; check the name")
    if annotator_column is not None and name != "huggingface":
        raise DataError(
            f"{path}: {name} files say themselves who annotated; leave {setting('annotator')} out"
        )
    options = Options(question, keep_rejected, item_column, annotator_column, text_column)
    gather = Gatherer(path, name, options)
    FORMATS[name].read(path, gather)
    return gather.finish()


# ---- which tool wrote a file, judged from a look at its beginning -------------------------------------


def export_formats() -> tuple[str, ...]:
    """Names of the formats that can be imported."""
    return tuple(FORMATS)


def export_title(path: Path) -> str | None:
    """What people call the tool that wrote a file; None where it is no export."""
    name = recognise(path)
    return None if name is None else FORMATS[name].title


def recognise(path: str | Path) -> str | None:
    """The name of the export format, or None: no export, to be read as a plain table.

    Cheap (a few megabytes at most are read) and never raises: what cannot be read is no export.
    """
    path = Path(path)
    try:
        if path.is_dir():
            if any((path / name).is_file() for name in huggingface.MARKERS) or huggingface.files_of(path):
                return "huggingface"
            if next(path.glob(f"*/{json_records.POTATO_FILE}"), None) is not None:
                return "potato"
        if path.is_dir() or zipfile.is_zipfile(path):
            members = (record for _, source in doccano.members(path) for _, record in records(source))
            return "doccano" if doccano.is_record(next(members, {})) else None
        source = first_bytes(path)
        if source.start[:1] in (b"{", b"["):
            key, value = _first_member(source)
            if research.is_lewidi(value):
                return "lewidi"
            if (
                key == "columns"
                and isinstance(value, list)
                and all(c in value for c in research.SPLIT_COLUMNS)
            ):
                return "pldl"
            start = bytes(source.raw[:_LOOK])
            if key == "version" and all(f'"{word}"'.encode() in start for word in json_records.INSPECT_KEYS):
                return "inspect"
            with source.text("ignore") as text:
                stream = JsonStream(text, source.name)
                if stream.peek() == "[":
                    stream.take("[")
                first = stream.value()
            record = first if isinstance(first, dict) else {}
            return next((one.name for one in _FORMATS if one.is_record and one.is_record(record)), None)
        columns = dict.fromkeys(header_of(source))
        return next(
            (format.name for format in _FORMATS if format.is_table and format.is_table(columns)), None
        )
    except (DataError, OSError, EOFError, ValueError, RecursionError, KeyError, zlib.error):
        return None


def _first_member(source: Source) -> tuple[str, Any]:
    """The first key and value of the object that a file opens with."""
    with source.text("ignore") as text:
        stream = JsonStream(text, source.name)
        if stream.peek() == "{":
            for key in stream.members():
                try:
                    return key, stream.value()
                except DataError:
                    break
    return "", None
