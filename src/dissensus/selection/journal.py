"""What a search has finished, on disk: one JSON line a trial, each on the disk before the next is begun.

The first line says what the search is (data, estimator, grid, criterion, seeds). A search that was killed
reads the lines back and runs only what is missing; a last line that was cut short is dropped. A search of
other data or settings is refused, and so is a second search in the same place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from dissensus.errors import DataError, system_words
from dissensus.io.atomic import atomic_path, take_lock

FILE = "search.jsonl"
FORMAT = "dissensus search 1"

Line = dict[str, Any]


class Journal:
    """The record of one search; built by :func:`open_journal`."""

    def __init__(self, path: Path, file: BinaryIO, lines: list[Line]) -> None:
        self.path = path
        self.lines = lines  # what was finished when the search began
        self._file = file

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line and put it on the disk."""
        try:
            self._file.write(_encoded(line))
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            reason = system_words(error)
            raise DataError(
                f"{self.path}: cannot be written ({reason}); what is there is kept: make room and run again"
            ) from error


@contextmanager
def open_journal(directory: Path, header: Mapping[str, Any]) -> Iterator[Journal]:
    """Begin a search in a directory, or go on with the one that is there if it is the same."""
    path = directory / FILE
    header = {"format": FORMAT, **header}
    if not path.exists():
        with atomic_path(path) as temporary:
            temporary.write_bytes(_encoded(header))
    with path.open("r+b") as file:
        if not take_lock(file.fileno()):
            raise DataError(f"{path}: another search is writing here; wait for it, or choose another")
        first, *lines = _read(file, path)
        _check_same(first, header, path)
        yield Journal(path, file, lines)


def _encoded(line: Mapping[str, Any]) -> bytes:
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _read(file: BinaryIO, path: Path) -> list[Line]:
    """Every whole line; a last one that was cut short is removed from the file."""
    content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    file.seek(len(whole))
    file.truncate()
    lines = [_parsed(text, number, path) for number, text in enumerate(whole.splitlines(), start=1)]
    if not lines or lines[0].get("format") != FORMAT:
        raise DataError(f"{path}: is not the record of a search; choose another directory, or remove it")
    return lines


def _parsed(text: bytes, number: int, path: Path) -> Line:
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    if not isinstance(line, dict):
        raise DataError(f"{path} line {number}: is damaged; remove that line, and its trial is run again")
    return line


def _check_same(found: Line, wanted: Mapping[str, Any], path: Path) -> None:
    """The same search, or the first thing in which the two differ."""
    expected = json.loads(_encoded(wanted))
    for name in dict.fromkeys([*expected, *found]):
        if found.get(name) != expected.get(name):
            was, now = _shown(found.get(name)), _shown(expected.get(name))
            raise DataError(
                f"{path}: belongs to another search ({name} was {was}, is now {now}); "
                "choose another directory, or remove it to start anew"
            )


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:60]}…"
