"""JSON lines: one object a line. A file that is one array of objects is read too.

A number keeps the text it is written in (``1.0`` stays "1.0"), true and false become "true" and "false", null
and NaN are blank.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from dissensus.data.vocabulary import quoted
from dissensus.errors import DataError
from dissensus.io.source import BOM, Source, encoding_error
from dissensus.io.tables import FileTable

_BATCH = 1 << 16
_ARRAY_MEMORY = 16  # bytes of memory for each byte of an array of objects, which is parsed whole
_SAMPLE = 1000  # records whose keys are taken for the columns

Record = dict[str, Any]
Placed = tuple[int, Record]  # the line or place of a record, counted from 1, and the record


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
        raise _DoubledKeyError(next(key for key, _ in pairs if [k for k, _ in pairs].count(key) > 1))
    return record


_decode = json.JSONDecoder(
    parse_float=_Decimal, parse_constant=lambda _: None, object_pairs_hook=_once
).decode


class JsonTable(FileTable):
    """One record a row; a record without a key is blank there."""

    def __init__(self, source: Source) -> None:
        super().__init__(source)
        keys: dict[str, None] = {}
        for _, record in islice(self._records(), _SAMPLE):
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
        for batch in _batches(self._records()):
            yield [self._column(batch, name, _id) for name in columns]

    @property
    def at_once(self) -> int:
        """An array is parsed whole."""
        return _ARRAY_MEMORY * len(self.source.raw) if self._is_array else 0

    def everything(self) -> pa.Table:
        """All keys of all records as columns of strings; lists and objects stay JSON."""
        tables = []
        for batch in _batches(self._records()):
            names = dict.fromkeys(key for _, record in batch for key in record)
            self._check_names(names)
            tables.append(pa.table({name: self._column(batch, name, _text) for name in names}))
        return pa.concat_tables(tables, promote_options="default")

    def place(self, row: int) -> str:
        """File and line, found by counting."""
        return self._at(next(islice((number for number, _ in self._records()), row, None), row + 1))

    def _at(self, number: int) -> str:
        return f"{self.name} {'record' if self._is_array else 'line'} {number}"

    def _check_names(self, names: Iterable[str]) -> None:
        try:
            "".join(names).encode()
        except UnicodeEncodeError:
            raise DataError(f"{self.name}: a key is no valid text (a lone surrogate); correct it") from None

    def _column(self, batch: Sequence[Placed], name: str, text: Callable[[Any], str | None]) -> pa.Array:
        try:
            return pa.array([text(record.get(name)) for _, record in batch], pa.string())
        except (TypeError, UnicodeEncodeError):
            raise self._no_text(batch, name, text) from None

    def _no_text(self, batch: Sequence[Placed], name: str, text: Callable[[Any], str | None]) -> DataError:
        for number, record in batch:
            place = self._at(number)
            try:
                pa.array([text(record.get(name))], pa.string())
            except TypeError:
                kind = "a list" if isinstance(record[name], list) else "an object"
                return DataError(f"{place}: {quoted(name)} is {kind}; give one string or number")
            except UnicodeEncodeError:
                return DataError(f"{place}: {quoted(name)} is no valid text (a lone surrogate); correct it")
        return DataError(f"{self.name}: {quoted(name)} cannot be read as text; correct it")

    # ---- records --------------------------------------------------------------------------------------

    @property
    def _is_array(self) -> bool:
        return self.source.raw[:64].removeprefix(BOM).lstrip().startswith(b"[")

    def _records(self) -> Iterator[Placed]:
        try:
            yield from self._elements() if self._is_array else self._lines()
        except UnicodeDecodeError:
            raise encoding_error(self.source) or DataError(f"{self.name}: is not UTF-8; save it so") from None

    def _lines(self) -> Iterator[Placed]:
        lines = io.TextIOWrapper(pa.BufferReader(self.source.data), "utf-8-sig", newline="\n")
        for number, text in enumerate(lines, start=1):
            if not text.isspace():
                yield number, self._object(text.rstrip(), number)

    def _elements(self) -> Iterator[Placed]:
        records = self._parsed(str(self.source.raw, "utf-8-sig"), 1)
        for number, record in enumerate(records, start=1):
            if not isinstance(record, dict):
                raise DataError(f"{self._at(number)}: is no JSON object; give one object a label")
            yield number, record

    def _object(self, text: str, line: int) -> Record:
        record = self._parsed(text, line)
        if not isinstance(record, dict):
            raise DataError(f"{self.name} line {line}: is no JSON object; give one object a line")
        return record

    def _parsed(self, text: str, line: int) -> Any:
        try:
            return _decode(text)
        except _DoubledKeyError as error:
            key = quoted(error.args[0])
            raise DataError(
                f"{self.name} line {line}: the key {key} occurs twice; rename or remove one"
            ) from None
        except json.JSONDecodeError as error:
            place = f"{self.name} line {line + error.lineno - 1}"
            raise DataError(f"{place}: is not valid JSON ({error.msg}); correct the line") from None
        except (ValueError, RecursionError):
            place = f"{self.name} line {line}"
            raise DataError(f"{place}: holds JSON beyond reason (depth or digits); correct it") from None


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
