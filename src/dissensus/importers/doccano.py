"""doccano: a zip or a folder with one file per project member.

The annotator is the name of the file. A project with shared annotations is exported as one ``all.jsonl``, in
which nobody can tell any more who gave which label: that is refused.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from dissensus.errors import DataError
from dissensus.importers.gather import Gatherer
from dissensus.tables.columns import first_repeat
from dissensus.tables.json_lines import records
from dissensus.tables.source import Source, kept, open_source, refuse_pipe

_ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, ValueError, OSError)
_SUFFIXES = {".jsonl", ".json"}
_LOST = (
    "one file for all members does not say who gave which label; switch 'Share annotations across all users' "
    "off in doccano's project settings, export again, and give the zip or its folder"
)


def is_record(record: Mapping[str, Any]) -> bool:
    """A line of a member's file in a classification project."""
    labels = record.get("label")
    return "id" in record and ("text" in record or "data" in record) and isinstance(labels, list)


def read(path: Path, gather: Gatherer) -> None:
    """Labels of a doccano export."""
    if path.is_file() and not zipfile.is_zipfile(path):
        raise DataError(f"{path}: {_LOST}")
    n_members = 0
    for member, source in members(path):
        if member == "all":
            raise DataError(f"{source.name}: {_LOST}")
        n_members += 1
        for place, record in records(source):
            where = f"({PurePosixPath(source.name).name} {place})"
            text = {key: value for key, value in record.items() if key not in ("id", "label", "Comments")}
            key = gather.item_column or "id"
            gather.takes(item=key, annotator="name of the file")
            item = gather.item(where, record.get(key), text)
            labels = record.get("label")
            if labels is None:
                marked = "marks spans, parts of a text" if "entities" in record else "has no 'label'"
                raise gather.error(where, f"{marked}; only classification projects can be read")
            gather.answer(where, item, "label", member, labels)
    if not n_members:
        raise DataError(f"{path}: holds no .jsonl file of a member; export from doccano as JSONL")


def members(path: Path) -> Iterator[tuple[str, Source]]:
    """Each member with their file, in the order of their names; a file is opened when its turn comes."""
    if path.is_dir():
        files = [file for file in sorted(path.iterdir()) if not file.is_dir() and _is_member(file.name)]
        for file in files:
            refuse_pipe(file)
        _refuse_twins(path, [file.name for file in files])
        for file in files:  # a member who labelled nothing has an empty one
            empty = not file.stat().st_size
            yield file.stem, Source(str(file), file.suffix, b"") if empty else open_source(file)
        return
    try:
        with zipfile.ZipFile(path) as archive:
            entries = sorted(filter(_is_member, archive.namelist()))
            _refuse_twins(path, entries)
            for entry in entries:
                with archive.open(entry) as member:
                    raw = kept(entry, cast(BinaryIO, member))
                yield PurePosixPath(entry).stem, Source(f"{path}/{entry}", ".jsonl", raw)
    except _ARCHIVE_ERRORS:
        raise DataError(f"{path}: the zip file is damaged or encrypted; export it again") from None


def _refuse_twins(path: Path, entries: Sequence[str]) -> None:
    """An entry that a zip holds twice, and two files of one name in different folders: whose are they?"""
    doubled = first_repeat(entries)
    if doubled is not None:
        raise DataError(f"{path}: holds {doubled!r} twice; remove one, or give the folder")
    twin = first_repeat([PurePosixPath(entry).stem for entry in entries])
    if twin is not None:
        same = [entry for entry in entries if PurePosixPath(entry).stem == twin]
        raise DataError(
            f"{path}: {same[0]!r} and {same[1]!r} are both of the member {twin!r}; rename or remove one"
        )


def _is_member(name: str) -> bool:
    file = PurePosixPath(name)
    return file.suffix in _SUFFIXES and not file.name.startswith(".") and "__MACOSX" not in file.parts
