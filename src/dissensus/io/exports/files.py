"""Opening an export: plain or gzipped text, read in pieces, every refusal one line."""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, TextIO, cast

from dissensus.errors import DataError, system_words

_GZIP_MAGIC = b"\x1f\x8b"
_SPACE = re.compile(r"[ \t\r\n]*")
_LONGEST_NAME, _MOST_NAMES = 60, 20  # what an error message shows of a list of names
_PIECE = 1 << 20  # characters read at a time
_LONGEST_LITERAL = 16  # a number, word or escape cut by the end of a piece fails this close to that end


@contextmanager
def open_text(path: Path, member: IO[bytes] | None = None) -> Iterator[TextIO]:
    """The text of a file (or of an open archive member), BOM dropped; what cannot be read is a DataError."""
    try:
        with (
            member or _open_bytes(path) as raw,
            io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as text,
        ):
            yield text
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataError(f"{path}: is not UTF-8 text (byte 0x{byte:02x}); save it as UTF-8") from None
    except (EOFError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error):
        raise DataError(f"{path}: the compressed file is damaged or cut short; export it again") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({system_words(error)})") from None


def _open_bytes(path: Path) -> BinaryIO:
    with path.open("rb") as raw:
        zipped = raw.read(2) == _GZIP_MAGIC
    return cast(BinaryIO, gzip.open(path)) if zipped else path.open("rb")


def read_head(path: Path, size: int = 4 * _PIECE) -> str:
    """The first characters of a file, for a look at what it is; undecodable bytes are passed over."""
    with _open_bytes(path) as raw:
        return raw.read(size).decode("utf-8-sig", errors="ignore")


class JsonStream:
    """JSON read value by value, so that an array of a million records is never held whole.

    ``elements`` walks an array and ``members`` an object; in between, ``value`` decodes one value at the
    current place. More text is read only when the value at hand is incomplete.
    """

    def __init__(self, stream: TextIO, name: str) -> None:
        self._stream, self._name = stream, name
        self._text, self._at, self._ended = "", 0, False
        self._line, self._counted = 1, 0
        self._decode = json.JSONDecoder().raw_decode

    @property
    def line(self) -> int:
        """The line the current place is on."""
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def peek(self) -> str:
        """The next character that is not white space, not consumed; empty at the end of the text."""
        while True:
            if self._at < len(self._text) and self._text[self._at] not in " \t\r\n":
                return self._text[self._at]
            match = _SPACE.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def value(self) -> Any:
        """Decode the value at the current place."""
        self.peek()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if self._cut_short(error) and self._more():
                    continue
                raise self.broken(error.msg.lower()) from None
            except (RecursionError, ValueError):
                raise self.broken("nested too deeply, or a number too long") from None
            if self._may_go_on(value, end) and self._more():
                continue
            self._at = end
            return value

    def elements(self) -> Iterator[Any]:
        """The values of the array that starts here."""
        self.take("[")
        while self.peek() != "]":
            yield self.value()
            self._separator("]")
        self.take("]")

    def members(self) -> Iterator[str]:
        """The keys of the object that starts here; the caller consumes each value before the next key."""
        self.take("{")
        while self.peek() != "}":
            key = self.value()
            if not isinstance(key, str):
                raise self.broken("a key that is not text")
            self.take(":")
            yield key
            self._separator("}")
        self.take("}")

    def take(self, character: str) -> None:
        """Step over a character that must stand here."""
        found = self.peek()
        if found != character:
            raise self.broken(
                f"expected {character!r}, found {found!r}" if found else "the text ends too early"
            )
        self._at += 1

    def broken(self, reason: str) -> DataError:
        """The error that says where the JSON breaks off."""
        return DataError(f"{self._name} line {self.line}: not valid JSON ({reason}); export it again")

    def _separator(self, closing: str) -> None:
        if self.peek() != closing:
            self.take(",")

    def _cut_short(self, error: json.JSONDecodeError) -> bool:
        at_end = error.pos >= len(self._text) - _LONGEST_LITERAL
        return at_end or error.msg.startswith("Unterminated string")

    def _may_go_on(self, value: Any, end: int) -> bool:
        """Whether a number reaches so near the end of the piece that the next one may continue it."""
        return end > len(self._text) - _LONGEST_LITERAL and isinstance(value, int | float)

    def _more(self) -> bool:
        """Read another piece (twice as much as is pending, so that a long value is not re-read often)."""
        if self._ended:
            return False
        self._line, self._counted = self.line, 0
        pending = self._text[self._at :]
        piece = self._stream.read(max(_PIECE, len(pending)))
        self._text, self._at, self._ended = pending + piece, 0, not piece
        return bool(piece)


def records(
    path: Path, member: IO[bytes] | None = None, name: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSON array or of JSON lines, each with the place it stands at.

    An empty file is an error, an empty member of an archive is not.
    """
    name = name or str(path)
    with open_text(path, member) as text:
        stream = JsonStream(text, name)
        start = stream.peek()
        if not start and member is None:
            raise DataError(f"{name}: is empty; export it again")
        places = _array(stream) if start == "[" else _lines(stream)
        for place, value in places:
            if not isinstance(value, dict):
                raise DataError(f"{name} {place}: is not an object but {shown(value)}; export it again")
            yield place, value


def _array(stream: JsonStream) -> Iterator[tuple[str, Any]]:
    for number, value in enumerate(stream.elements(), start=1):
        yield f"record {number}", value
    if stream.peek():
        raise stream.broken("text after the end of the array")


def _lines(stream: JsonStream) -> Iterator[tuple[str, Any]]:
    while stream.peek():
        place = f"line {stream.line}"
        yield place, stream.value()


def rows(path: Path, optional: frozenset[str] = frozenset()) -> Iterator[tuple[str, dict[str, str]]]:
    """The rows of a delimited table as dictionaries, each with its line; blank rows are passed over.

    Columns in ``optional`` may be cut from the end of a row; any other ragged row is an error.
    """
    with open_text(path) as text, _long_fields():
        delimiter = guess_delimiter(text.readline(_PIECE))
        text.seek(0)
        reader = csv.reader(text, delimiter=delimiter, strict=True)
        header = _checked_header(path, next(reader, []))
        try:
            for line, row in _numbered(reader):
                if any(row):
                    yield f"line {line}", _as_dict(path, line, header, row, optional)
        except csv.Error as error:
            raise DataError(
                f"{path} line {reader.line_num}: not a valid table ({error}); correct it"
            ) from None


def guess_delimiter(header: str) -> str:
    """The character that cuts the header line into the most columns."""
    return max(",\t;", key=header.count)


def shown(value: Any) -> str:
    """A value as an error message shows it: short, on one line."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 40 else text[:37] + "..."


def listed(names: Iterable[Any]) -> str:
    """Names as an error message lists them: on one line, not too many, each not too long."""
    short = [" ".join(str(name).split())[:_LONGEST_NAME] for name in names]
    more = [f"and {len(short) - _MOST_NAMES} more"] if len(short) > _MOST_NAMES else []
    return ", ".join(short[:_MOST_NAMES] + more) or "none"


def _checked_header(path: Path, header: list[str]) -> list[str]:
    if not any(header):
        raise DataError(f"{path}: is empty; export it again")
    doubled = next((name for place, name in enumerate(header) if name and name in header[:place]), None)
    if doubled is not None:
        raise DataError(f"{path} line 1: column {doubled!r} occurs twice; rename one of them")
    return header


def _numbered(reader: Any) -> Iterator[tuple[int, list[str]]]:
    """Rows with the line each starts on (a quoted field may run over several lines)."""
    line = reader.line_num + 1
    for row in reader:
        yield line, row
        line = reader.line_num + 1


def _as_dict(
    path: Path, line: int, header: list[str], row: list[str], optional: frozenset[str]
) -> dict[str, str]:
    if len(row) == len(header):
        return dict(zip(header, row, strict=True))
    missing = header[len(row) :]
    if len(row) > len(header) or not optional.issuperset(missing):
        raise DataError(
            f"{path} line {line}: has {len(row)} fields where the header has {len(header)}; correct the row"
        )
    return dict(zip(header, row + [""] * len(missing), strict=True))


@contextmanager
def _long_fields() -> Iterator[None]:
    """Let a field hold a long document while a table is being read."""
    before = csv.field_size_limit(1 << 30)
    try:
        yield
    finally:
        csv.field_size_limit(before)
