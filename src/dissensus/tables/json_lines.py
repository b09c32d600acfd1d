"""JSON read value by value: an array of objects, one object per line, or one large object.

In a table, a number keeps the text it is written in (``1.0`` stays "1.0"), true and false become "true" and
"false", null and NaN are blank, and an object with a repeated key is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import islice
from typing import Any, TextIO

import pyarrow as pa

from dissensus.errors import DataError
from dissensus.labels.vocabulary import quoted
from dissensus.tables.columns import first_repeat
from dissensus.tables.source import Source
from dissensus.tables.tables import FileTable

_RECORDS_PER_BATCH = 1 << 16  # records read value by value
_JSON_BLOCK_BYTES = 1 << 24  # lines that Arrow reads at a time
_ARROW_BLOCK_BYTES = 1 << 21  # share of each of Arrow's threads
_ARROW_TYPES = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}  # types that Arrow reads as Python does
_SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, which UTF-8 cannot encode
_MINUS_ZERO = re.compile(rb":[ \t]*-0[ \t]*[,}\r\n]")  # an integer would lose its sign
_CELLS_PROBED = 100  # to find out if a column holds lists
_RECORDS_PROBED = 1000  # to find the columns
_NOT_WHITE_SPACE = re.compile(r"[^ \t\r\n]")
_CHARACTERS_PER_READ = 1 << 20
_MAX_LITERAL = 16  # a number, word or escape cut off by the end of the text fails this close to the end

MAX_JSON_DEPTH = 100  # nested arrays and objects
_BRACKETS = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')  # a string, whose brackets do not count, or a bracket

JsonObject = dict[str, Any]
LocatedObject = tuple[str, JsonObject]  # location ("line 3" or "record 3"), object


# ---- value by value -----------------------------------------------------------------------------------


class _Decimal(float):
    """JSON number with a point or an exponent that remembers its text."""

    text: str

    def __new__(cls, text: str) -> _Decimal:
        number = super().__new__(cls, text)
        number.text = text
        return number


class DoubledKeyError(ValueError):
    """A JSON object has a key twice."""


def _unique_keys(pairs: list[tuple[str, Any]]) -> JsonObject:
    record = dict(pairs)
    if len(record) < len(pairs):
        raise DoubledKeyError(first_repeat(key for key, _ in pairs))
    return record


def _integer(text: str) -> int | _Decimal:
    """Parse an integer; minus zero keeps its sign."""
    return _Decimal(text) if text == "-0" else int(text)


PLAIN_DECODER = json.JSONDecoder(object_pairs_hook=_unique_keys, parse_int=_integer)
EXACT_DECODER = json.JSONDecoder(
    parse_float=_Decimal, parse_int=_integer, parse_constant=lambda _: None, object_pairs_hook=_unique_keys
)


def too_deep(text: str, start: int = 0, end: int | None = None) -> bool:
    """Return True if JSON is nested deeper than ``MAX_JSON_DEPTH``."""
    end = len(text) if end is None else end
    if text.count("[", start, end) + text.count("{", start, end) <= MAX_JSON_DEPTH:
        return False
    depth = 0
    for match in _BRACKETS.finditer(text, start, end):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        if depth > MAX_JSON_DEPTH:
            return True
    return False


class JsonStream:
    """Reader of JSON value by value, so that a large array is never in memory as a whole.

    ``elements`` iterates over an array and ``members`` over an object; ``value`` decodes the value at the
    current position. More text is read only if that value is incomplete.
    """

    def __init__(self, stream: TextIO, name: str, decoder: json.JSONDecoder = PLAIN_DECODER) -> None:
        self._stream, self._name = stream, name
        self._text, self._at, self._ended = "", 0, False
        self._line, self._counted = 1, 0
        self._decode = decoder.raw_decode

    @property
    def line(self) -> int:
        """Line number of the current position."""
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def peek(self) -> str:
        """Return the next character that is not white space, without consuming it; empty at the end."""
        while True:
            match = _NOT_WHITE_SPACE.search(self._text, self._at)
            self._at = match.start() if match else len(self._text)
            if match or not self._more():
                return match[0] if match else ""

    def value(self) -> Any:
        """Decode the value at the current position."""
        self.peek()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except json.JSONDecodeError as error:
                at_end = error.pos >= len(self._text) - _MAX_LITERAL
                if (at_end or error.msg.startswith("Unterminated string")) and self._more():
                    continue
                raise self.broken(error.msg.lower()) from None
            except DoubledKeyError as error:
                raise self._doubled(error.args[0]) from None
            except (RecursionError, ValueError):
                raise self.broken("nested too deeply, or a number too long") from None
            # A number may continue in the text not yet read.
            at_end = end > len(self._text) - _MAX_LITERAL
            if at_end and isinstance(value, int | float) and not self._ended:
                self._more()
                continue
            if too_deep(self._text, self._at, end):
                raise self.broken(f"nested more than {MAX_JSON_DEPTH} deep")
            self._at = end
            return value

    def elements(self) -> Iterator[Any]:
        """Yield the values of the array that starts here."""
        self.take("[")
        while self.peek() != "]":
            yield self.value()
            if self.peek() != "]":
                self.take(",")
        self.take("]")

    def members(self) -> Iterator[str]:
        """Yield the keys of the object that starts here; the caller consumes each value in between."""
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
        """Consume ``character``, or raise an error if there is another."""
        actual = self.peek()
        if not actual:
            raise self.broken("the text ends too early")
        if actual != character:
            raise self.broken(f"expected {character!r}, found {actual!r}")
        self._at += 1

    def broken(self, reason: str) -> DataError:
        """Return the error for invalid JSON at the current line."""
        remedy = "correct it or write it again"
        return DataError(f"{self._name} line {self.line}: not valid JSON ({reason}); {remedy}")

    def _doubled(self, key: str) -> DataError:
        remedy = "rename or remove one"
        return DataError(f"{self._name} line {self.line}: the key {quoted(key)} occurs twice; {remedy}")

    def _more(self) -> bool:
        """Read more text, as much as is pending, so that a long value is not decoded again often."""
        if self._ended:
            return False
        self._line, self._counted = self.line, 0
        pending = self._text[self._at :]
        text = self._stream.read(max(_CHARACTERS_PER_READ, len(pending)))
        self._text, self._at, self._ended = pending + text, 0, not text
        return bool(text)


def records(source: Source, decoder: json.JSONDecoder = PLAIN_DECODER) -> Iterator[LocatedObject]:
    """Yield the objects of a JSON array or of JSON lines, each with its location."""
    with source.text() as text:
        for location, value in _located_values(JsonStream(text, source.name, decoder)):
            if not isinstance(value, dict):
                problem = f"{source.name} {location}: is not a JSON object but {quoted(value)}"
                raise DataError(f"{problem}; write one object per record")
            yield location, value


def first_object(source: Source) -> JsonObject:
    """Return the first object of an array or of lines, as far as the source has it."""
    record: JsonObject = {}
    with source.text("ignore") as text, suppress(DataError):
        stream = JsonStream(text, source.name)
        if stream.peek() == "[":
            stream.take("[")
        for key in stream.members():
            record[key] = [] if stream.peek() == "[" else None
            if record[key] is None:
                record[key] = stream.value()
                continue
            for element in stream.elements():
                record[key].append(element)
    return record


def _located_values(stream: JsonStream) -> Iterator[tuple[str, Any]]:
    """Yield the values of an array by number, or those of JSON lines by line."""
    if stream.peek() == "[":
        for number, value in enumerate(stream.elements(), start=1):
            yield f"record {number}", value
        if stream.peek():
            raise stream.broken("text after the end of the array")
    last_line = 0
    while stream.peek():
        line = stream.line
        if line == last_line:
            raise stream.broken("two values on one line; write one per line, or all in one array")
        yield f"line {line}", stream.value()
        last_line = stream.line


# ---- tables -------------------------------------------------------------------------------------------


class JsonTable(FileTable):
    """Table with one JSON object per row; a missing key is a blank cell.

    Lines of plain objects, whose values are strings, integers, true or false, are read with Arrow. From the
    first object on that Arrow refuses or might read differently, objects are read value by value.
    """

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        first = [record for _, record in islice(records(source, EXACT_DECODER), _RECORDS_PROBED)]
        self.columns = list(dict.fromkeys(key for record in first for key in record))
        if not self.columns:
            raise DataError(f"{self.name}: there is no record; write one object per label")
        cells = {key: [record.get(key) for record in first] for key in self.columns}
        types = {key: {type(value) for value in cells[key] if value is not None} or {str} for key in cells}
        is_plain = all(len(kinds) == 1 and kinds <= _ARROW_TYPES.keys() for kinds in types.values())
        self._schema = None
        if is_plain and not _SURROGATE.search("".join(self.columns)):
            self._schema = pa.schema([(key, _ARROW_TYPES[kind]) for key, (kind,) in types.items()])
        self._nested_errors: dict[str, str] = {}  # by column that holds a list or an object

    def ids(self, columns: Sequence[str]) -> list[pa.ChunkedArray]:
        """Return columns as strings; lists and objects are refused."""
        return self._select_ids(self._table, columns)

    def chunks(self, columns: Sequence[str]) -> Iterator[list[pa.Array]]:
        """Yield the columns as strings, some rows at a time."""
        for table in self._tables(columns):
            yield [column.combine_chunks() for column in self._select_ids(table, columns)]

    def typed(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return columns of strings, by default all; lists and objects stay JSON."""
        return self._table if columns is None else self._table.select(list(columns))

    def holds_lists(self, column: str) -> bool:
        """Return True if the first cells are lists, or texts that begin like one."""
        cells = self._table.column(column).slice(0, _CELLS_PROBED).to_pylist()
        return any(cells) and all(cell.startswith("[") for cell in cells if cell)

    def lists(self, column: str) -> pa.Array:
        """Return a column of lists of strings."""
        lists: list[list[str | None] | None] = []
        for row, cell in enumerate(self._table.column(column).to_pylist()):
            if cell is not None and not cell.startswith("["):
                problem = f"{quoted(column)} is not a list as in other rows"
                raise DataError(f"{self.locate(row)}: {problem}; correct it")
            lists.append(None if cell is None else [_text(part) for part in EXACT_DECODER.decode(cell)])
        return pa.array(lists, pa.list_(pa.string()))

    def locate(self, row: int) -> str:
        """Return the file and line of a row, found by counting."""
        locations = (location for location, _ in records(self.source, EXACT_DECODER))
        return f"{self.name} {next(islice(locations, row, None), f'record {row + 1}')}"

    @cached_property
    def _table(self) -> pa.Table:
        return pa.concat_tables(self._tables(), promote_options="default")

    def _select_ids(self, table: pa.Table, columns: Sequence[str]) -> list[pa.ChunkedArray]:
        for name in columns:
            if name in self._nested_errors:
                raise DataError(self._nested_errors[name])
        return [table.column(name) for name in columns]

    def _tables(self, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield all records in order, some at a time, as columns of strings."""
        raw, start, n_rows = self.source.raw, 0, 0
        while start < len(raw):
            is_last = start + _JSON_BLOCK_BYTES >= len(raw)
            end = len(raw) if is_last else raw.rfind(b"\n", start, start + _JSON_BLOCK_BYTES) + 1
            table = self._plain_lines(raw[start:end])
            if table is None:
                break
            yield table
            start, n_rows = end, n_rows + table.num_rows
            self.source.forget()
        rest = islice(records(self.source, EXACT_DECODER), n_rows, None) if start < len(raw) else iter(())
        while batch := list(islice(rest, _RECORDS_PER_BATCH)):
            names = columns or list(dict.fromkeys(key for _, record in batch for key in record))
            if _SURROGATE.search("".join(names)):
                raise DataError(f"{self.name}: a key is not valid text (a lone surrogate); correct it")
            yield pa.table({name: self._column(batch, name) for name in names})

    def _plain_lines(self, text: bytes) -> pa.Table | None:
        """Read lines with Arrow; None if reading them value by value might give something else."""
        has_integers = self._schema is not None and pa.int64() in self._schema.types
        if self._schema is None or text[:1] != b"{" or (has_integers and _MINUS_ZERO.search(text)):
            return None
        from pyarrow import json as arrow_json

        try:
            blocks = arrow_json.ReadOptions(block_size=_ARROW_BLOCK_BYTES)
            parsing = arrow_json.ParseOptions(self._schema, unexpected_field_behavior="error")
            table = arrow_json.read_json(pa.BufferReader(text), blocks, parsing)
            table.validate(full=True)
            # No value is nested, so a line that begins with a brace begins a record: one record per line.
            if table.num_rows != text.count(b"\n{") + 1:
                return None
            return table.cast(pa.schema([(name, pa.string()) for name in self.columns]))
        except (pa.ArrowException, ValueError):
            return None

    def _column(self, batch: Sequence[LocatedObject], name: str) -> pa.Array:
        texts = []
        for location, record in batch:
            value = record.get(name)
            if isinstance(value, list | dict):
                kind = "a list" if isinstance(value, list) else "an object"
                message = f"{self.name} {location}: {quoted(name)} is {kind}; give one string or number"
                self._nested_errors.setdefault(name, message)
            texts.append(_text(value))
        try:
            return pa.array(texts, pa.string())
        except UnicodeEncodeError:
            row = next(row for row, text in enumerate(texts) if _SURROGATE.search(text or ""))
            location = f"{self.name} {batch[row][0]}"
            problem = f"{quoted(name)} is not valid text (a lone surrogate)"
            raise DataError(f"{location}: {problem}; correct it") from None


def _text(value: Any) -> str | None:
    """Return a string, number or boolean as text, None for null, and lists and objects as JSON."""
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, _Decimal):
        return value.text
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False)
