"""Which tool wrote a file, judged from a look at its beginning."""

from __future__ import annotations

import csv
import io
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dissensus.errors import DataError
from dissensus.io.exports import argilla, crowd, doccano, ground_truth, huggingface, label_studio, prodigy
from dissensus.io.exports.files import JsonStream, guess_delimiter, read_head
from dissensus.io.exports.research import is_lewidi, is_split

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
        head = read_head(path).lstrip()
        return _recognise_json(head) if head[:1] in ("{", "[") else _recognise_table(head)
    except (DataError, OSError, EOFError, ValueError, RecursionError, csv.Error, KeyError, zlib.error):
        return None


def _recognise_folder(path: Path) -> str | None:
    if huggingface.is_dataset(path):
        return "huggingface"
    return "doccano" if doccano.holds_members(path) else None


def _recognise_json(head: str) -> str | None:
    key, value = _first_member(head)
    if is_lewidi(value):
        return "lewidi"
    if key == "columns" and is_split(value):
        return "pldl"
    record = _first_record(head)
    return next((name for name, test in _RECORDS if test(record)), None)


def _first_member(head: str) -> tuple[str, Any]:
    """The first key and value of the object that a file opens with."""
    stream = JsonStream(io.StringIO(head), "")
    if stream.peek() == "{":
        for key in stream.members():
            try:
                return key, stream.value()
            except DataError:
                break
    return "", None


def _first_record(head: str) -> Mapping[str, Any]:
    """The first object of a JSON array or of JSON lines."""
    stream = JsonStream(io.StringIO(head), "")
    if stream.peek() == "[":
        stream.take("[")
    record = stream.value()
    return record if isinstance(record, dict) else {}


def _recognise_table(head: str) -> str | None:
    lines = io.StringIO(head, newline="")
    reader = csv.reader(lines, delimiter=guess_delimiter(head.partition("\n")[0]), strict=True)
    columns = dict.fromkeys(next(reader, []))
    return next((name for name, test in _COLUMNS if test(columns)), None)
