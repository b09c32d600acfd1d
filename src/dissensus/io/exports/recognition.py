"""Which tool wrote a file, judged from a look at its beginning."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dissensus.errors import DataError
from dissensus.io.delimited import header_of
from dissensus.io.exports import argilla, crowd, doccano, ground_truth, huggingface, label_studio, prodigy
from dissensus.io.exports.research import is_lewidi, is_split
from dissensus.io.json_lines import JsonStream
from dissensus.io.source import Source, first_bytes

# The order matters where one record could pass for two: the more particular test comes first.
_RECORDS: tuple[tuple[str, Callable[[Mapping[str, Any]], bool]], ...] = (
    ("prodigy", prodigy.is_annotation),
    ("label-studio", label_studio.is_task),
    ("label-studio", label_studio.is_annotation),
    ("argilla", argilla.is_record),
    ("ground-truth", ground_truth.is_line),
    ("doccano", doccano.is_record),
)
_COLUMNS: tuple[tuple[str, Callable[[Mapping[str, Any]], bool]], ...] = (
    ("mturk", crowd.is_mturk),
    ("appen", crowd.is_appen),
    ("toloka", crowd.is_toloka),
    ("label-studio", label_studio.is_annotation),
)


def recognise(path: str | Path) -> str | None:
    """The name of the export format, or None: no export, to be read as a plain table.

    Cheap (a few megabytes at most are read) and never raises: what cannot be read is no export.
    """
    path = Path(path)
    try:
        if path.is_dir():
            return _recognise_folder(path)
        if zipfile.is_zipfile(path):
            return "doccano" if doccano.holds_members(path) else None
        source = first_bytes(path)
        return _recognise_json(source) if source.start[:1] in (b"{", b"[") else _recognise_table(source)
    except (DataError, OSError, EOFError, ValueError, RecursionError, KeyError, zlib.error):
        return None


def _recognise_folder(path: Path) -> str | None:
    if huggingface.is_dataset(path):
        return "huggingface"
    return "doccano" if doccano.holds_members(path) else None


def _recognise_json(source: Source) -> str | None:
    key, value = _first_member(source)
    if is_lewidi(value):
        return "lewidi"
    if key == "columns" and is_split(value):
        return "pldl"
    record = _first_record(source)
    return next((name for name, test in _RECORDS if test(record)), None)


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


def _first_record(source: Source) -> Mapping[str, Any]:
    """The first object of a JSON array or of JSON lines."""
    with source.text("ignore") as text:
        stream = JsonStream(text, source.name)
        if stream.peek() == "[":
            stream.take("[")
        record = stream.value()
    return record if isinstance(record, dict) else {}


def _recognise_table(source: Source) -> str | None:
    columns = dict.fromkeys(header_of(source))
    return next((name for name, test in _COLUMNS if test(columns)), None)
