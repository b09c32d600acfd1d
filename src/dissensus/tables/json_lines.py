"""JSON: an array of objects, one object a line, or one large object, read value by value.

In a table a number keeps the text it is written in (``1.0`` stays "1.0"), true and false become "true" and
"false", null and NaN are blank, and an object that has a key twice is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, TextIO

import pyarrow as pa

from dissensus.errors import DataError
from dissensus.labels.vocabulary import quoted
from dissensus.tables.columns import first_repeat
from dissensus.tables.source import Source
from dissensus.tables.tables import FileTable

_BATCH = 1 << 16
_SAMPLE = 1000  # records whose keys are taken for the columns
_SPACE = re.compile(r"[ \t\r\n]*")
_PIECE = 1 << 20  # characters read at a time
_LONGEST_LITERAL = 16  # a number, word or escape cut by the end of a piece fails this close to that end

DEEPEST = 100  # arrays and objects within each other
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')  # a string, whose brackets do not count, or a bracket

Record = dict[str, Any]
Placed = tuple[str, Record]  # "line 3" or "record 3", and the record


# ---- value by value -----------------------------------------------------------------------------------


class _Decimal(float):
    """A JSON number with a point or an exponent, and the text it was written in."""

    text: str

    def __new__(cls, text: str) -> _Decimal:
        number = super().__new__(cls, text)
        number.text = text
        return number


class _DoubledKeyError(ValueError):
    """An object that has a key twice."""


def _once(pairs: list[tuple[str, Any]]) -> Record:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise _DoubledKeyError(first_repeat(key for key, _ in pairs))
    return record


def _whole(text: str) -> int | _Decimal:
    """A whole number; minus zero, which no int is, with its sign."""
    return _Decimal(text) if text == "-0" else int(text)


PLAIN = json.JSONDecoder(object_pairs_hook=_once, parse_int=_whole)
EXACT = json.JSONDecoder(
    parse_float=_Decimal, parse_int=_whole, parse_constant=lambda _: None, object_pairs_hook=_once
)


def too_deep(text: str, start: int = 0, end: int | None = None) -> bool:
    """Whether JSON is nested deeper than what walks through it can follow."""
    end = len(text) if end is None else end
    if text.count("[", start, end) + text.count("{", start, end) <= DEEPEST:
        return False
    depth = 0
    for found in _BRACKETS.finditer(text, start, end):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(found[0], 0)
        if depth > DEEPEST:
            return True
    return False


class JsonStream:
    """JSON read value by value, so that an array of a million records is never held whole.

    ``elements`` walks an array and ``members`` an object; in between, ``value`` decodes one value at the
    current place. More text is read only when the value at hand is incomplete.
    """

    def __init__(self, stream: TextIO, name: str, decoder: json.JSONDecoder = PLAIN) -> None:
        self._stream, self._name = stream, name
        self._text, self._at, self._ended = "", 0, False
        self._line, self._counted = 1, 0
        self._decode = decoder.raw_decode

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
                at_end = error.pos >= len(self._text) - _LONGEST_LITERAL
                if (at_end or error.msg.startswith("Unterminated string")) and self._more():
                    continue
                raise self.broken(error.msg.lower()) from None
            except _DoubledKeyError as error:
                raise self._doubled(error.args[0]) from None
            except (RecursionError, ValueError):
                raise self.broken("nested too deeply, or a number too long") from None
            # A number may be continued by the next piece.
            at_end = end > len(self._text) - _LONGEST_LITERAL
            if at_end and isinstance(value, int | float) and self._more():
                continue
            if too_deep(self._text, self._at, end):
                raise self.broken(f"nested more than {DEEPEST} deep")
            self._at = end
            return value

    def elements(self) -> Iterator[Any]:
        """The values of the array that starts here."""
        self.take("[")
        while self.peek() != "]":
            yield self.value()
            if self.peek() != "]":
                self.take(",")
        self.take("]")

    def members(self) -> Iterator[str]:
        """The keys of the object that starts here; the caller consumes each value before the next key."""
        self.take("{")
        seen: set[str] = set()
        while self.peek() != "}":
            key = self.value()
            if not isinstance(key, str):
                raise self.broken("a key that is not text")
            if key in seen:
                raise self._doubled(key)
            seen.add(key)
            self.take(":")
            yield key
            if self.peek() != "}":
                self.take(",")
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
        place = f"{self._name} line {self.line}"
        return DataError(f"{place}: is not valid JSON ({reason}); correct it or write it again")

    def _doubled(self, key: str) -> DataError:
        place = f"{self._name} line {self.line}"
        return DataError(f"{place}: the key {quoted(key)} occurs twice; rename or remove one")

    def _more(self) -> bool:
        """Read another piece (twice as much as is pending, so that a long value is not re-read often)."""
        if self._ended:
            return False
        self._line, self._counted = self.line, 0
        pending = self._text[self._at :]
        piece = self._stream.read(max(_PIECE, len(pending)))
        self._text, self._at, self._ended = pending + piece, 0, not piece
        return bool(piece)


def records(source: Source, decoder: json.JSONDecoder = PLAIN) -> Iterator[Placed]:
    """The objects of a JSON array or of JSON lines, each with the place it stands at."""
    with source.text() as text:
        stream = JsonStream(text, source.name, decoder)
        for place, value in _array(stream) if stream.peek() == "[" else _lines(stream):
            if not isinstance(value, dict):
                raise DataError(
                    f"{source.name} {place}: is no JSON object but {quoted(value)}; give one object a record"
                )
            yield place, value


def _array(stream: JsonStream) -> Iterator[tuple[str, Any]]:
    for number, value in enumerate(stream.elements(), start=1):
        yield f"record {number}", value
    if stream.peek():
        raise stream.broken("text after the end of the array")


def _lines(stream: JsonStream) -> Iterator[tuple[str, Any]]:
    end = 0
    while stream.peek():
        if stream.line == end:
            raise stream.broken("another value on the same line; write one a line, or all in one array")
        place = f"line {stream.line}"
        yield place, stream.value()
        end = stream.line


# ---- tables -------------------------------------------------------------------------------------------


class JsonTable(FileTable):
    """One record a row; a record without a key is blank there."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        keys: dict[str, None] = {}
        for _, record in islice(records(source, EXACT), _SAMPLE):
            keys.update(dict.fromkeys(record))
        self.columns = list(keys)
        if not keys:
            raise DataError(f"{self.name}: holds no record; add one object a label")

    def ids(self, columns: Sequence[str]) -> list[pa.ChunkedArray]:
        """The columns, as strings; a list or an object is no id."""
        pieces = zip(*self.chunks(columns), strict=True)
        return [pa.chunked_array(piece, pa.string()) for piece in pieces]

    def chunks(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """The columns, as strings, some rows at a time."""
        for batch in _batches(records(self.source, EXACT)):
            yield [self._column(batch, name, _id) for name in columns]

    def everything(self) -> pa.Table:
        """All keys of all records as columns of strings; lists and objects stay JSON."""
        tables = []
        for batch in _batches(records(self.source, EXACT)):
            names = dict.fromkeys(key for _, record in batch for key in record)
            try:
                "".join(names).encode()
            except UnicodeEncodeError:
                raise DataError(
                    f"{self.name}: a key is no valid text (a lone surrogate); correct it"
                ) from None
            tables.append(pa.table({name: self._column(batch, name, _text) for name in names}))
        return pa.concat_tables(tables, promote_options="default")

    def place(self, row: int) -> str:
        """File and line, found by counting."""
        places = (place for place, _ in records(self.source, EXACT))
        return f"{self.name} {next(islice(places, row, None), f'record {row + 1}')}"

    def _column(self, batch: Sequence[Placed], name: str, text: Callable[[Any], str | None]) -> pa.Array:
        try:
            return pa.array([text(record.get(name)) for _, record in batch], pa.string())
        except (TypeError, UnicodeEncodeError):
            pass
        for at, record in batch:
            place = f"{self.name} {at}"
            try:
                pa.array([text(record.get(name))], pa.string())
            except TypeError:
                kind = "a list" if isinstance(record[name], list) else "an object"
                raise DataError(f"{place}: {quoted(name)} is {kind}; give one string or number") from None
            except UnicodeEncodeError:
                raise DataError(
                    f"{place}: {quoted(name)} is no valid text (a lone surrogate); correct it"
                ) from None
        raise DataError(f"{self.name}: {quoted(name)} cannot be read as text; correct it")


def _batches(records: Iterator[Placed]) -> Iterator[list[Placed]]:
    while batch := list(islice(records, _BATCH)):
        yield batch


def _id(value: Any) -> str | None:
    """The text of a string, a number, true or false; None for null."""
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, _Decimal):
        return value.text
    if isinstance(value, int):
        return str(value)
    raise TypeError


def _text(value: Any) -> str | None:
    """The same, with lists and objects as JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else _id(value)
