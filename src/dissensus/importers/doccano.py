"""doccano: a zip or a folder with one file per project member.

The annotator is the name of the file. A project with shared annotations is exported as one ``all.jsonl``
without annotators, which is refused.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, cast

from dissensus.errors import DataError
from dissensus.importers.gather import Gatherer
from dissensus.tables.columns import first_repeat
from dissensus.tables.json_lines import records
from dissensus.tables.source import Source, open_source, read_unzipped, refuse_pipe

_ARCHIVE_ERRORS = (zipfile.BadZipFile, zlib.error, struct.error, RuntimeError, ValueError, OSError, EOFError)
_MEMBER_SUFFIXES = {".jsonl", ".json"}
_NO_ANNOTATORS = (
    "one file for all members does not name the annotators; switch 'Share annotations across all users' off "
    "in doccano's project settings, export again, and give the zip or its folder"
)


def is_record(record: Mapping[str, Any]) -> bool:
    """Return True for a line of a member's file in a classification project."""
    return "id" in record and ("text" in record or "data" in record) and isinstance(record.get("label"), list)


def read(path: Path, gather: Gatherer) -> None:
    """Read the labels of a doccano export."""
    if path.is_file() and not zipfile.is_zipfile(path):
        raise DataError(f"{path}: {_NO_ANNOTATORS}")
    n_members = 0
    for member, source in members(path):
        if member == "all":
            raise DataError(f"{source.name}: {_NO_ANNOTATORS}")
        n_members += 1
        for location, record in records(source):
            where = f"({PurePosixPath(source.name).name} {location})"
            text = {key: value for key, value in record.items() if key not in ("id", "label", "Comments")}
            key = gather.item_column or "id"
            gather.set_columns(item=key, annotator="name of the file")
            item = gather.item(where, record.get(key), text)
            labels = record.get("label")
            if labels is None:
                problem = "marks spans, parts of a text" if "entities" in record else "has no 'label'"
                raise gather.error(where, f"{problem}; only classification projects can be read")
            gather.answer(where, item, "label", member, labels)
    if not n_members:
        raise DataError(f"{path}: holds no .jsonl file of a member; export from doccano as JSONL")


def members(path: Path) -> Iterator[tuple[str, Source]]:
    """Yield each member with their file, sorted by name."""
    if path.is_dir():
        files = [file for file in sorted(path.iterdir()) if not file.is_dir() and _is_member(file.name)]
        for file in files:
            refuse_pipe(file)
        _refuse_repeated_members(path, [file.name for file in files])
        for file in files:
            is_empty = not file.stat().st_size  # of a member without labels
            yield file.stem, Source(str(file), file.suffix, b"") if is_empty else open_source(file)
        return
    entries = list[str]()
    for entry, source in read_archive(path, _is_member):
        entries.append(entry)
        _refuse_repeated_members(path, entries)
        yield PurePosixPath(entry).stem, source


def read_archive(path: Path, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, Source]]:
    """Yield the files of a zip archive with a name that is wanted, sorted by name."""
    try:
        with zipfile.ZipFile(path) as archive:
            for entry in sorted(filter(is_wanted, archive.namelist())):
                with archive.open(entry) as file:
                    raw = read_unzipped(entry, cast(BinaryIO, file))
                yield entry, Source(f"{path}/{entry}", ".jsonl", raw)
    except _ARCHIVE_ERRORS:
        raise DataError(f"{path}: the zip file is damaged or encrypted; export it again") from None


def _refuse_repeated_members(path: Path, entries: Sequence[str]) -> None:
    """Raise an error if two files have the same member's name."""
    member = first_repeat([PurePosixPath(entry).stem for entry in entries])
    if member is not None:
        first, second = [entry for entry in entries if PurePosixPath(entry).stem == member][:2]
        remedy = "rename or remove one"
        raise DataError(f"{path}: {first!r} and {second!r} are both of the member {member!r}; {remedy}")


def _is_member(name: str) -> bool:
    """Return True for the name of a member's file."""
    file = PurePosixPath(name)
    return file.suffix in _MEMBER_SUFFIXES and not file.name.startswith(".") and "__MACOSX" not in file.parts
