"""The bytes of a file, unzipped, and their text: the one way in for tables and exports.

A plain file is mapped into memory; what is unzipped stays in memory where it is small, else in a file without
a name. Every reason why a file cannot be read is one line.
"""

from __future__ import annotations

import gzip
import io
import mmap
import os
import re
import socket
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

import pyarrow as pa

from dissensus.errors import DataError, bad_parameter, nearest, setting, system_words
from dissensus.params import physical_memory, size_words

GZIP_MAGIC = b"\x1f\x8b"
_ZIP_MAGIC = b"PK\x03\x04"
PARQUET_MAGIC = b"PAR1"
BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\r|\n")
_FIRST_BLOCK = 4096  # bytes that are looked at
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


_FIRST_BYTES = 1 << 22  # of a file that is looked at to tell what it is
_IN_MEMORY = 1 << 26  # bytes that are unzipped into memory; more go to a file
_PIECE = 1 << 24  # bytes read of a mapped file before their memory is given back

Raw = bytes | mmap.mmap

# A kilobyte may unzip to a megabyte, and that to a gigabyte: so many bytes and no more come out of a file.
_MOST_TIMES = 8  # times the memory that may be used: ids become codes, and repeat
_MOST_UNZIPPED: ContextVar[int | None] = ContextVar("most_unzipped", default=None)


@dataclass(frozen=True)
class Source:
    """A file's name as the user wrote it, its suffix without ``.gz``, and its bytes without compression."""

    name: str
    suffix: str
    raw: Raw

    @property
    def data(self) -> pa.Buffer:
        """The bytes as Arrow sees them, without a copy."""
        return pa.py_buffer(self.raw)

    def forget(self) -> None:
        """Give the memory of pages that were read back to the system: a mapped file has them still."""
        if isinstance(self.raw, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self.raw.madvise(mmap.MADV_DONTNEED)

    @property
    def start(self) -> bytes:
        """The first bytes that are not white space, without a byte-order mark."""
        return self.raw[:_FIRST_BLOCK].removeprefix(BOM).lstrip()[:64]

    @contextmanager
    def text(self, errors: str = "strict") -> Iterator[TextIO]:
        """The text, without a byte-order mark; what is not UTF-8 is an error with its line."""
        with io.TextIOWrapper(io.BufferedReader(_Reader(self)), "utf-8-sig", errors, newline="") as text:
            try:
                yield text
            except UnicodeDecodeError:
                raise encoding_error(self) or DataError(f"{self.name}: is not UTF-8; save it so") from None


class _Reader(io.RawIOBase):
    """A source's bytes in order; the memory of what has been read is given back now and then."""

    def __init__(self, source: Source) -> None:
        self._source, self._at, self._kept = source, 0, 0

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes."""
        piece = self._source.raw[self._at : self._at + len(buffer)]
        buffer[: len(piece)] = piece
        self._at, self._kept = self._at + len(piece), self._kept + len(piece)
        if self._kept > _PIECE:
            self._source.forget()
            self._kept = 0
        return len(piece)


def open_source(
    path: str | os.PathLike[str], scratch: Path | None = None, encoding: str | None = None
) -> Source:
    """The bytes behind a path; every reason why there are none is one line.

    With a folder for ``scratch``, a gzipped file is always unzipped onto the disk there. Text in another
    ``encoding`` than UTF-8 becomes UTF-8 in memory.
    """
    name, place = os.fspath(path), Path(path)
    with explained(name, place):
        if place.is_dir():
            raise DataError(f"{name}: is a directory; name the file in it")
        if place.is_file():
            with place.open("rb") as file:
                raw = _mapped(file.fileno())
        else:
            raw = place.read_bytes()
    suffixes = [suffix.lower() for suffix in place.suffixes]
    zipped = bool(suffixes) and suffixes[-1] == ".gz"
    source = Source(name, ("", *suffixes)[-2 if zipped else -1], raw)
    if raw[:2] == GZIP_MAGIC:
        source = Source(name, source.suffix, _unzip(name, raw, scratch))
    elif zipped and len(raw):
        raise DataError(f"{name}: is called .gz and is not gzipped; rename it or compress it again")
    if encoding is not None:
        try:
            source = Source(name, source.suffix, str(source.raw, encoding).encode())
        except LookupError:
            rule = "one that Python knows, such as 'latin-1'"
            raise bad_parameter("read_annotations", "encoding", rule, encoding) from None
        except UnicodeDecodeError as error:
            line = source.raw[: error.start].count(b"\n") + 1
            raise DataError(
                f"{name} line {line}: is not {encoding}; name another {setting('encoding')}"
            ) from None
    _refuse_what_is_no_table(source)
    return source


def refuse_pipe(file: Path) -> None:
    """A pipe or a device among the files of a folder may never end; one that is named itself is read."""
    if file.exists() and not file.is_file():
        raise DataError(f"{file}: is a pipe or a device; take it out of the folder, or name the files")


def first_bytes(path: Path) -> Source:
    """The beginning of a file, for a look at what it is."""
    with path.open("rb") as file:
        zipped = file.read(2) == GZIP_MAGIC
    with gzip.open(path) if zipped else path.open("rb") as raw:
        return Source(str(path), path.suffix, raw.read(_FIRST_BYTES))


def encoding_error(source: Source) -> DataError | None:
    """The line with the first byte that is not UTF-8, if there is one."""
    try:
        str(source.raw, "utf-8")
    except UnicodeDecodeError as error:
        if b"\0" in source.raw[:_FIRST_BLOCK]:
            return _binary(source)
        line = len(_LINE_END.findall(source.raw[: error.start])) + 1
        byte = source.raw[error.start]
        return DataError(
            f"{source.name} line {line}: byte 0x{byte:02x} is not UTF-8; save the file as UTF-8 or, if it "
            f"has the labels, name its {setting('encoding')}"
        )
    return None


def _mapped(file: int) -> Raw:
    return mmap.mmap(file, 0, access=mmap.ACCESS_READ) if os.fstat(file).st_size else b""


def _unzip(name: str, raw: Raw, scratch: Path | None) -> Raw:
    try:
        with gzip.open(pa.BufferReader(pa.py_buffer(raw))) as unzipped:
            stream = cast(BinaryIO, unzipped)
            return kept(name, stream) if scratch is None else _on_disk(name, b"", stream, scratch)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise DataError(f"{name}: the gzip file is damaged or cut short; compress it again") from None


@contextmanager
def within_memory(n_bytes: int | None) -> Iterator[None]:
    """Inside the block files unzip to a few times so many bytes at most; None: as many as the machine has."""
    token = _MOST_UNZIPPED.set(n_bytes)
    try:
        yield
    finally:
        _MOST_UNZIPPED.reset(token)


def _most_unzipped() -> int:
    return _MOST_TIMES * (_MOST_UNZIPPED.get() or physical_memory())


def kept(name: str, stream: BinaryIO) -> Raw:
    """All bytes of an unzipped stream, in memory where they are few."""
    first = stream.read(min(_IN_MEMORY, _most_unzipped() + 1))
    if len(first) < _IN_MEMORY:
        _refuse_bomb(name, len(first))
        return first
    return _on_disk(name, first, stream, None)


def _on_disk(name: str, first: bytes, rest: BinaryIO, folder: Path | None) -> Raw:
    """The bytes in a file without a name, which is gone as soon as nobody looks at it."""
    with tempfile.TemporaryFile(dir=folder) as file:
        size = file.write(first)
        while piece := rest.read(1 << 20):
            size += file.write(piece)
            _refuse_bomb(name, size)
        file.flush()
        return _mapped(file.fileno())


def _refuse_bomb(name: str, size: int) -> None:
    most = _most_unzipped()
    if size > most:
        raise DataError(
            f"{name}: unzips to more than {size_words(most)}, {_MOST_TIMES} times the memory there is for it;"
            f" unzip it yourself, or allow more with {setting('memory')}"
        )


def _refuse_what_is_no_table(source: Source) -> None:
    start = source.raw[:4]
    if not source.raw[:_FIRST_BLOCK].removeprefix(BOM).strip():
        raise DataError(f"{source.name}: is empty; give a table with a header and one row per label")
    if start.startswith(_ZIP_MAGIC):
        raise DataError(f"{source.name}: is a zip archive or a spreadsheet; save the table as CSV")
    if start.startswith(_UTF16):
        raise DataError(f"{source.name} line 1: is UTF-16 text; save it as UTF-8")
    header = _LINE_END.split(source.raw[:_FIRST_BLOCK], maxsplit=1)[0]
    if b"\0" in header and not start.startswith(PARQUET_MAGIC):
        raise _binary(source)


def _binary(source: Source) -> DataError:
    return DataError(f"{source.name}: holds NUL bytes, so it is a binary file, not a table; give a CSV")


@contextmanager
def explained(name: str, place: Path) -> Iterator[None]:
    """Turn what the system says of a path into one line with the next step."""
    try:
        yield
    except FileNotFoundError:
        try:
            close = nearest(place.name, [file.name for file in place.parent.iterdir()])
            hint = "check the name" if close is None else f"did you mean {str(place.parent / close)!r}?"
        except OSError:
            hint = f"there is no folder {str(place.parent)!r} either; check the path"
        raise DataError(f"{name}: no such file; {hint}") from None
    except (OSError, ValueError) as error:
        reason = system_words(error)
        raise DataError(f"{name}: cannot be read ({reason}); check the name and its rights") from None


def not_reached(path: str | Path, remedy: str) -> DataError:
    """The line for a path that this machine, of several that work together, does not have."""
    return DataError(f"{path}: not reachable from the worker on {socket.gethostname()}; {remedy}")
