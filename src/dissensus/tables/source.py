"""Bytes and text of a file, decompressed: tables and exports are all read through this module.

A plain file is memory-mapped. Decompressed data stay in memory if they are small, and go to an unnamed
temporary file otherwise. Whatever the reason, a file that cannot be read is reported in one line.
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
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

import pyarrow as pa

from dissensus.errors import DataError, bad_parameter, nearest, setting, setting_variable, system_words
from dissensus.params import physical_memory, size_words

GZIP_MAGIC = b"\x1f\x8b"
_ZIP_MAGIC = b"PK\x03\x04"
PARQUET_MAGIC = b"PAR1"
BOM = b"\xef\xbb\xbf"
_LINE_END = re.compile(rb"\r\n|\r|\n")
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_BYTES_CHECKED = 4096  # at the start of a file, to see that it is text
_BYTES_PROBED = 1 << 22  # at the start of a file, to recognise its format
_MAX_IN_MEMORY = 1 << 26  # bytes decompressed into memory; more go to a temporary file
_FORGET_AFTER = 1 << 24  # bytes read from a mapped file before their memory is released

# A compressed file of a kilobyte may hold a gigabyte, so the decompressed size is limited.
_UNZIPPED_PER_MEMORY = 8  # times the memory allowed: ids repeat, and become integers
_MEMORY_LIMIT: ContextVar[int | None] = ContextVar("memory_limit", default=None)

Raw = bytes | mmap.mmap


@dataclass(frozen=True)
class Source:
    """Name of a file as the user wrote it, its suffix without ``.gz``, and its decompressed bytes."""

    name: str
    suffix: str
    raw: Raw

    def forget(self) -> None:
        """Release the memory of the pages read so far; a mapped file can be read again."""
        if isinstance(self.raw, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self.raw.madvise(mmap.MADV_DONTNEED)

    @property
    def start(self) -> bytes:
        """The first bytes that are not white space, without a byte-order mark."""
        return self.raw[:_BYTES_CHECKED].removeprefix(BOM).lstrip()[:64]

    @contextmanager
    def text(self, errors: str = "strict") -> Iterator[TextIO]:
        """Open the text without a byte-order mark; raise an error with the line if it is not UTF-8."""
        reader = io.BufferedReader(_SourceReader(self))
        with io.TextIOWrapper(reader, "utf-8-sig", errors, newline="") as text:
            try:
                yield text
            except UnicodeDecodeError:
                raise encoding_error(self) or DataError(f"{self.name}: not UTF-8; save it as UTF-8") from None


class _SourceReader(io.RawIOBase):
    """Sequential reader of a source that releases memory it no longer needs."""

    def __init__(self, source: Source) -> None:
        self._source, self._position, self._n_unreleased = source, 0, 0

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Copy the next bytes into ``buffer``, and return their number."""
        data = self._source.raw[self._position : self._position + len(buffer)]
        buffer[: len(data)] = data
        self._position += len(data)
        self._n_unreleased += len(data)
        if self._n_unreleased > _FORGET_AFTER:
            self._source.forget()
            self._n_unreleased = 0
        return len(data)


def open_source(
    path: str | os.PathLike[str], scratch: Path | None = None, encoding: str | None = None
) -> Source:
    """Open a file.

    With a ``scratch`` folder, a gzipped file is always decompressed to disk there. Text in an ``encoding``
    other than UTF-8 is converted to UTF-8 in memory.
    """
    raw, name, path = file_bytes(path), os.fspath(path), Path(path)
    suffixes = [suffix.lower() for suffix in path.suffixes]
    is_gzipped = bool(suffixes) and suffixes[-1] == ".gz"
    source = Source(name, ("", *suffixes)[-2 if is_gzipped else -1], raw)
    if raw[:2] == GZIP_MAGIC:
        source = replace(source, raw=_unzip(name, raw, scratch))
    elif is_gzipped and len(raw):
        raise DataError(f"{name}: its name ends in .gz but it is not gzipped; rename or compress it")
    if encoding is not None:
        try:
            source = replace(source, raw=str(source.raw, encoding).encode())
        except LookupError:
            rule = "one that Python knows, such as 'latin-1'"
            raise bad_parameter("read_annotations", "encoding", rule, encoding) from None
        except UnicodeDecodeError as error:
            line = source.raw[: error.start].count(b"\n") + 1
            remedy = f"name another {setting('encoding')}"
            raise DataError(f"{name} line {line}: not {encoding}; {remedy}") from None
        except UnicodeError:  # of codecs such as "undefined" and "punycode"
            raise DataError(f"{name}: not {encoding}; name another {setting('encoding')}") from None
    _refuse_other_files(source)
    return source


def file_bytes(path: str | os.PathLike[str]) -> Raw:
    """Return the bytes of a file, which are read when they are used."""
    name, path = os.fspath(path), Path(path)
    try:
        if path.is_dir():
            raise DataError(f"{name}: is a directory; name the file in it")
        if path.is_file():
            with path.open("rb") as file:
                return _mapped(file.fileno())
        return path.read_bytes()
    except FileNotFoundError:
        raise DataError(f"{name}: no such file; {_path_hint(path)}") from None
    except (OSError, ValueError) as error:
        reason = system_words(error)
        raise DataError(f"{name}: cannot be read ({reason}); check its name and permissions") from None


def _path_hint(path: Path) -> str:
    """Return the next step for a path that does not exist: a similar name, if there is one."""
    try:
        # similar without the suffix, which most files share
        names = [file.name for file in path.parent.iterdir() if nearest(path.stem, [file.stem])]
    except OSError:
        return f"there is no folder {str(path.parent)!r} either; check the path"
    close = nearest(path.name, names)
    return "check the name" if close is None else f"did you mean {str(path.parent / close)!r}?"


def refuse_pipe(file: Path) -> None:
    """Raise an error for a pipe or device in a folder, which may never end (one named itself is read)."""
    if file.exists() and not file.is_file():
        raise DataError(f"{file}: is a pipe or a device; remove it from the folder, or name the files")


def first_bytes(path: Path) -> Source:
    """Read the beginning of a file, to recognise its format."""
    with path.open("rb") as file:
        is_gzipped = file.read(2) == GZIP_MAGIC
    with gzip.open(path) if is_gzipped else path.open("rb") as raw:
        return Source(str(path), path.suffix, raw.read(_BYTES_PROBED))


def encoding_error(source: Source) -> DataError | None:
    """Return the error for the first byte that is not UTF-8, or None if there is none."""
    try:
        str(source.raw, "utf-8")
    except UnicodeDecodeError as error:
        if b"\0" in source.raw[:_BYTES_CHECKED]:
            return _binary_error(source)
        line = len(_LINE_END.findall(source.raw[: error.start])) + 1
        problem = f"byte 0x{source.raw[error.start]:02x} is not UTF-8"
        remedy = f"save the file as UTF-8, or say which encoding it has: {setting('encoding')}"
        return DataError(f"{source.name} line {line}: {problem}; {remedy}")
    return None


def _mapped(file: int) -> Raw:
    return mmap.mmap(file, 0, access=mmap.ACCESS_READ) if os.fstat(file).st_size else b""


def _unzip(name: str, raw: Raw, scratch: Path | None) -> Raw:
    try:
        with gzip.open(pa.BufferReader(pa.py_buffer(raw))) as unzipped:
            stream = cast(BinaryIO, unzipped)
            return read_unzipped(name, stream) if scratch is None else _to_disk(name, b"", stream, scratch)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise DataError(f"{name}: the gzip file is damaged or cut short; compress it again") from None


def within_memory(n_bytes: int | None) -> AbstractContextManager[Any]:
    """Limit the size of files decompressed in the block to a multiple of ``n_bytes`` (None: all memory)."""
    return setting_variable(_MEMORY_LIMIT, n_bytes)


def read_unzipped(name: str, stream: BinaryIO) -> Raw:
    """Read a decompressed stream, into memory if it is small."""
    first = stream.read(min(_MAX_IN_MEMORY, _max_unzipped() + 1))
    if len(first) == _MAX_IN_MEMORY:
        return _to_disk(name, first, stream, None)
    _check_unzipped_size(name, len(first))
    return first


def _to_disk(name: str, first: bytes, rest: BinaryIO, folder: Path | None) -> Raw:
    """Write bytes to an unnamed temporary file, which disappears with its last reader."""
    with tempfile.TemporaryFile(dir=folder) as file:
        size = file.write(first)
        while data := rest.read(1 << 20):
            size += file.write(data)
            _check_unzipped_size(name, size)
        file.flush()
        return _mapped(file.fileno())


def _max_unzipped() -> int:
    return _UNZIPPED_PER_MEMORY * (_MEMORY_LIMIT.get() or physical_memory())


def _check_unzipped_size(name: str, size: int) -> None:
    if size > _max_unzipped():
        limit = f"{size_words(_max_unzipped())}, {_UNZIPPED_PER_MEMORY} times the memory available"
        remedy = f"decompress it yourself, or allow more with {setting('memory')}"
        raise DataError(f"{name}: decompresses to more than {limit}; {remedy}")


def _refuse_other_files(source: Source) -> None:
    """Raise an error for an empty file, an archive, UTF-16 text or another binary file."""
    start = source.raw[:4]
    if not source.raw[:_BYTES_CHECKED].removeprefix(BOM).strip():
        raise DataError(f"{source.name}: is empty; give a table with a header and one row per label")
    if start.startswith(_ZIP_MAGIC):
        raise DataError(f"{source.name}: is a zip archive or a spreadsheet; save the table as CSV")
    if start.startswith(_UTF16_MARKS):
        raise DataError(f"{source.name} line 1: is UTF-16 text; save it as UTF-8")
    header = _LINE_END.split(source.raw[:_BYTES_CHECKED], maxsplit=1)[0]
    if b"\0" in header and not start.startswith(PARQUET_MAGIC):
        raise _binary_error(source)


def _binary_error(source: Source) -> DataError:
    return DataError(f"{source.name}: contains NUL bytes, so it is a binary file, not a table; give a CSV")


def not_reached(path: str | Path, remedy: str) -> DataError:
    """Return the error for a path that does not exist on the worker's machine."""
    return DataError(f"{path}: not reachable from the worker on {socket.gethostname()}; {remedy}")
