"""JSON: an array of objects, one object a line, or one large object, read value by value.

In a table a number keeps the text it is written in (``1.0`` stays "1.0"), true and false become "true" and
"false", null and NaN are blank, and an object that has a key twice is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, TextIO

import pyarrow as pa

from dissensus.errors import DataError
from dissensus.labels.vocabulary import quoted
from dissensus.tables.columns import first_repeat
from dissensus.tables.source import Source
from dissensus.tables.tables import FileTable

_BATCH = 1 << 16  # records of a careful piece
_BLOCK = 1 << 24  # bytes of lines that Arrow reads at a time
_ARROW_BLOCK = 1 << 21  # bytes of a thread's share of them
_PLAIN = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}  # values that Arrow reads as Python does
_CUT = re.compile("[\ud800-\udfff]")  # half a character, which no UTF-8 can write
_MINUS_ZERO = re.compile(rb":[ \t]*-0[ \t]*[,}\r\n]")  # a whole number that no int is
_PROBED = 100  # cells that tell whether a column holds lists
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
    """One record a row; a record without a key is blank there.

    Lines of plain records, whose values are strings, whole numbers, true or false, are read by Arrow.
    Whatever Arrow refuses, or may read in another way, is read value by value from there on.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        first = [record for _, record in islice(records(source, EXACT), _SAMPLE)]
        self.columns = list(dict.fromkeys(key for record in first for key in record))
        if not self.columns:
            raise DataError(f"{self.name}: holds no record; add one object a label")
        values = ([record.get(key) for record in first] for key in self.columns)
        kinds = [{type(value) for value in column if value is not None} for column in values]
        plain = all(len(found) <= 1 and found <= _PLAIN.keys() for found in kinds)
        plain = plain and not _CUT.search("".join(self.columns))
        types = [_PLAIN[next(iter(found), str)] for found in kinds] if plain else []
        self._schema = pa.schema(list(zip(self.columns, types, strict=True))) if plain else None
        self._nested: dict[str, str] = {}  # columns that hold a list or an object, and what is said of them

    def ids(self, columns: Sequence[str]) -> list[pa.ChunkedArray]:
        """The columns, as strings; a list or an object is no id."""
        return self._picked(self._whole, columns)

    def chunks(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """The columns, as strings, some rows at a time."""
        for table in self._tables(columns):
            yield [column.combine_chunks() for column in self._picked(table, columns)]

    def typed(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Columns of strings, by default all keys of all records; lists and objects stay JSON."""
        return self._whole if columns is None else self._whole.select(list(columns))

    def holds_lists(self, column: str) -> bool:
        """Whether the first cells are lists, or texts that are written as such."""
        cells = self._whole.column(column).slice(0, _PROBED).to_pylist()
        return any(cells) and all(cell.startswith("[") for cell in cells if cell)

    def lists(self, column: str) -> pa.Array:
        """A column of lists, what is in them as strings."""
        found: list[list[str | None] | None] = []
        for row, cell in enumerate(self._whole.column(column).to_pylist()):
            if cell is not None and not cell.startswith("["):
                raise DataError(f"{self.place(row)}: {quoted(column)} is no list, as others are; correct it")
            found.append(None if cell is None else [_text(part) for part in EXACT.decode(cell)])
        return pa.array(found, pa.list_(pa.string()))

    def place(self, row: int) -> str:
        """File and line, found by counting."""
        places = (place for place, _ in records(self.source, EXACT))
        return f"{self.name} {next(islice(places, row, None), f'record {row + 1}')}"

    @cached_property
    def _whole(self) -> pa.Table:
        return pa.concat_tables(self._tables(), promote_options="default")

    def _picked(self, table: pa.Table, columns: Sequence[str]) -> list[pa.ChunkedArray]:
        for name in columns:
            if name in self._nested:
                raise DataError(self._nested[name])
        return [table.column(name) for name in columns]

    def _tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """All records in order, some at a time, as columns of strings."""
        raw, at, n_rows = self.source.raw, 0, 0
        while at < len(raw):
            last = at + _BLOCK >= len(raw)
            end = len(raw) if last else raw.rfind(b"\n", at, at + _BLOCK) + 1
            table = self._plain_lines(raw[at:end])
            if table is None:
                break
            yield table
            at, n_rows = end, n_rows + table.num_rows
            self.source.forget()
        rest = islice(records(self.source, EXACT), n_rows, None) if at < len(raw) else iter(())
        while batch := list(islice(rest, _BATCH)):
            yield self._table(batch, columns)

    def _plain_lines(self, text: bytes) -> pa.Table | None:
        """The records of some lines as Arrow reads them; None where the careful reader may differ."""
        if self._schema is None or text[:1] != b"{":
            return None
        if pa.int64() in self._schema.types and _MINUS_ZERO.search(text):
            return None
        from pyarrow import json as arrow_json

        try:
            table = arrow_json.read_json(
                pa.BufferReader(text),
                read_options=arrow_json.ReadOptions(block_size=_ARROW_BLOCK),
                parse_options=arrow_json.ParseOptions(
                    explicit_schema=self._schema, unexpected_field_behavior="error"
                ),
            )
            table.validate(full=True)
            # No value is nested, so a line that begins with a brace begins a record: each has its own line.
            if table.num_rows != text.count(b"\n{") + 1:
                return None
            return table.cast(pa.schema([(name, pa.string()) for name in self.columns]))
        except (pa.ArrowException, ValueError):
            return None

    def _table(self, batch: Sequence[Placed], columns: Sequence[str] | None) -> pa.Table:
        names = dict.fromkeys(key for _, record in batch for key in record) if columns is None else columns
        if _CUT.search("".join(names)):
            raise DataError(f"{self.name}: a key is no valid text (a lone surrogate); correct it")
        return pa.table({name: self._column(batch, name) for name in names})

    def _column(self, batch: Sequence[Placed], name: str) -> pa.Array:
        texts = []
        for place, record in batch:
            value = record.get(name)
            if isinstance(value, list | dict):
                kind = "a list" if isinstance(value, list) else "an object"
                words = f"{self.name} {place}: {quoted(name)} is {kind}; give one string or number"
                self._nested.setdefault(name, words)
            texts.append(_text(value))
        try:
            return pa.array(texts, pa.string())
        except UnicodeEncodeError:
            place = next(at for (at, _), text in zip(batch, texts, strict=True) if _CUT.search(text or ""))
            raise DataError(
                f"{self.name} {place}: {quoted(name)} is no valid text (a lone surrogate); correct it"
            ) from None


def _text(value: Any) -> str | None:
    """The text of a string, a number, true or false; None for null; lists and objects as JSON."""
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, _Decimal):
        return value.text
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False)
