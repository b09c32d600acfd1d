"""Vocabularies of ids and their integer codes, and conversions between Arrow and NumPy."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissensus.errors import DataError, setting

Codes = NDArray[np.int32]
MAX_QUOTED_CHARACTERS = 60
IDS_PER_BATCH = 1 << 18  # ids converted to Python strings at a time
MIN_TYPO_LENGTH = 3  # letters in a name that one wrong letter may be a typo of
MAX_STRING_BYTES = (1 << 31) - 1  # capacity of Arrow's 32-bit string offsets
LAST_BLANK_BYTE, FIRST_NON_ASCII_BYTE = 32, 128
Locate = Callable[[int], str]  # describes the position of a row in its source


class Vocabulary(Sequence[Any]):
    """Distinct ids in a fixed order; the code of an id is its index.

    Ids are stored in an Arrow array (strings, integers, floats or booleans) and converted to Python or NumPy
    values only on access.
    """

    def __init__(self, ids: Any, role: str = "id") -> None:
        self.arrow = to_arrow(ids, role)
        self.role = role

    @cached_property
    def ids(self) -> NDArray[Any]:
        """Ids as a NumPy array: objects for strings, otherwise of the type of the numbers."""
        ids = numpy_values(self.arrow)
        ids.setflags(write=False)
        return ids

    def codes(self, ids: Any) -> Codes:
        """Return the code of each id; −1 where the vocabulary does not have it.

        A number and its text are the same id, so that ids from a data frame match those from a file.
        """
        ids, vocabulary = to_arrow(ids, self.role), self.arrow
        kinds = ids.type, vocabulary.type
        if kinds[0] != kinds[1]:
            text = pa.large_string() if pa.large_string() in kinds else pa.string()
            common = text if any(map(is_string_type, kinds)) else pa.float64()
            ids, vocabulary = ids.cast(common, safe=False), vocabulary.cast(common, safe=False)
        return numpy_filled(pc.index_in(ids, value_set=vocabulary), -1)

    def take(self, codes: NDArray[Any]) -> Vocabulary:
        """Return the vocabulary of the given codes, in that order."""
        return Vocabulary(self.arrow.take(arrow_indices(codes)), self.role)

    def extended(self, ids: Any) -> tuple[Codes, Vocabulary]:
        """Return the new code of each old id, and the vocabulary extended by unknown ids.

        A sorted vocabulary stays sorted; otherwise new ids are appended. Old ids keep their relative order.
        """
        new = to_arrow(ids, self.role)
        new = new.take(arrow_indices(np.flatnonzero(self.codes(new) < 0))).unique()
        if not len(new):
            return np.arange(len(self), dtype=np.int32), self
        joined = pa.concat_arrays([self.arrow, _cast(new, self.arrow.type, self.role)])
        if np.all(np.diff(sorted_order(self.arrow, self.role)) > 0):
            codes, vocabulary = encode(joined, self.role)
            return codes[: len(self)], vocabulary
        return np.arange(len(self), dtype=np.int32), Vocabulary(joined, self.role)

    def __len__(self) -> int:
        return len(self.arrow)

    def __getitem__(self, index: Any) -> Any:
        return self.ids[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and bool(self.arrow.equals(other.arrow))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Vocabulary({len(self):,} {self.role}s)"


def to_arrow(values: Any, role: str) -> pa.Array:
    """Return any sequence of ids as an Arrow array of a plain type."""
    if isinstance(values, Vocabulary):
        return values.arrow
    array = _arrow_array(values, role)
    return _plain_array(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array, role)


def encode(
    values: Any, role: str, order: Any = None, locate: Locate = "row {}".format
) -> tuple[Codes, Vocabulary]:
    """Return codes and vocabulary of a column; ids are sorted by code point (numbers by value) by default.

    Labels that are all numbers are sorted by value even if they are texts, as from a file.
    ``locate`` describes a row in error messages.
    """
    indices, distinct = dictionary_encode(values, role, locate)
    if order is None:
        by_rank = sorted_order(distinct, role)
        vocabulary = Vocabulary(distinct.take(arrow_indices(by_rank)), role)
        rank = np.empty(len(distinct), dtype=np.int32)
        rank[by_rank] = np.arange(len(distinct), dtype=np.int32)
    else:
        vocabulary = ordered_vocabulary(order, role, distinct.type)
        rank = vocabulary.codes(distinct)
        if (rank < 0).any():
            row = int(np.flatnonzero(rank[indices] < 0)[0])
            value = distinct[int(indices[row])].as_py()
            meant = suggest_spelling(value, vocabulary)
            remedy = setting("classes" if role == "label" else f"{role}s")
            hint = "" if meant is None else f"did you mean {quoted(meant)}? If not, "
            remedy = f"{hint}add it with {remedy} or correct the row"
            raise DataError(f"{locate(row)}: {role} {quoted(value)} is not in the {role} set; {remedy}")
    return rank[indices], vocabulary


def ordered_vocabulary(order: Any, role: str, kind: pa.DataType | None = None) -> Vocabulary:
    """Return a vocabulary in the given order, without repeats, cast to ``kind`` if given."""
    vocabulary = order if isinstance(order, Vocabulary) else Vocabulary(list(order), role)
    if role == "label" and not blank_ids(vocabulary.arrow).any():
        vocabulary = Vocabulary(_strip_labels(vocabulary.arrow), role)
    if kind is not None and kind != vocabulary.arrow.type:
        vocabulary = Vocabulary(_cast(vocabulary.arrow, kind, role), role)
    if len(vocabulary.arrow.unique()) != len(vocabulary) or blank_ids(vocabulary.arrow).any():
        raise DataError(f"the given order of {role}s has a repeated or blank entry; list each {role} once")
    return vocabulary


def quoted(value: Any) -> str:
    """Return an id for use in messages: quoted, on one line, and truncated if long."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= MAX_QUOTED_CHARACTERS else f"{text[:MAX_QUOTED_CHARACTERS]}…"


def lookalikes(vocabulary: Vocabulary) -> list[list[str]]:
    """Return groups of ids that differ only in writing: by white space, case, quotes, or 1 and 1.0."""
    ids = vocabulary.arrow
    if not is_string_type(ids.type) or not _may_look_alike(ids):
        return []
    # Compare hashes first: many ids take much memory as Python strings.
    batches = (ids.slice(at, IDS_PER_BATCH).to_pylist() for at in range(0, len(ids), IDS_PER_BATCH))
    keys = np.fromiter((hash(fold(name)) for batch in batches for name in batch), np.int64, len(ids))
    _, key, n_ids = np.unique(keys, return_inverse=True, return_counts=True)
    groups: dict[str, list[str]] = {}
    for name in ids.take(arrow_indices(np.flatnonzero(n_ids[key] > 1))).to_pylist():
        groups.setdefault(fold(name), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def fold(name: str) -> str:
    """Return an id without white space, case and quotes, with one form of each accent, and 1.0 as 1."""
    plain = "".join(unicodedata.normalize("NFKC", name).split()).casefold().strip("'\"")
    return re.sub(r"(?<=\d)\.0+$", "", plain)


def valid_text(text: str) -> str:
    """Replace half characters (lone surrogates), which UTF-8 cannot encode, by ``?``.

    They occur in JSON, and in names of files that are not UTF-8.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def suggest_spelling(name: Any, names: Iterable[Any]) -> Any:
    """Return the first of the names that this one may be a typo of, or None.

    A typo differs by white space or case, or by one letter added, missing, wrong or swapped with the next.
    Names of one or two letters, and digits, differ on purpose.
    """
    for other in names if isinstance(name, str) else ():
        if not isinstance(other, str):
            continue
        a, b = fold(name), fold(other)
        start, length = _common_start(a, b), max(len(a), len(b))
        a, b = a[start:], b[start:]
        end = _common_start(a[::-1], b[::-1])
        a, b = a[: len(a) - end], b[: len(b) - end]
        is_typo = max(len(a), len(b)) <= 1 or (len(a) == 2 and a == b[::-1])
        if length < MIN_TYPO_LENGTH or any(map(str.isdigit, a + b)):
            is_typo = not a + b
        if is_typo:
            return other
    return None


def _common_start(a: Sequence[Any], b: Sequence[Any]) -> int:
    """Return the length of the common prefix."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _may_look_alike(ids: pa.Array) -> bool:
    """Check for white space, quotes, points, capitals or non-ASCII, without which ids cannot look alike."""
    _, text = string_buffers(ids)
    is_capital = (text >= ord("A")) & (text <= ord("Z"))
    is_mark = np.isin(text, np.frombuffer(b"'\".", np.uint8))
    return bool(np.any((text <= LAST_BLANK_BYTE) | is_mark | is_capital | (text >= FIRST_NON_ASCII_BYTE)))


def sorted_order(ids: pa.Array, role: str) -> NDArray[np.int64]:
    """Return the order of distinct ids: by code point, or by value; labels that are numbers by value."""
    values = numbers_of(ids) if role == "label" and is_string_type(ids.type) else None
    if values is None:
        return _sort_ids(ids)
    return np.lexsort((np.argsort(_sort_ids(ids)), values)).astype(np.int64)


def numbers_of(ids: pa.Array) -> NDArray[np.float64] | None:
    """Return ids, or their texts, as numbers; None if any is not a finite number."""
    if pa.types.is_boolean(ids.type) or not len(ids) or ids.null_count:
        return None
    try:
        values = numpy_numbers(ids.cast(pa.float64())).astype(np.float64)
    except pa.ArrowInvalid:
        return None
    return values if np.isfinite(values).all() else None


def _sort_ids(ids: pa.Array) -> NDArray[np.int64]:
    """Return the order of distinct ids: by code point, or by value.

    Strings are first compared by the eight bytes after their common prefix, as integers: these suffice for
    most columns, and sort several times faster.
    """
    if is_string_type(ids.type) and len(ids) > 1:
        common = _common_start(*(name.encode() for name in pc.min_max(ids).as_py().values()))
        starts, text = string_buffers(ids)
        at, stop = starts[:-1].astype(np.int64) + common, starts[1:]
        key = np.zeros(len(ids), dtype=np.uint64)  # eight bytes as one integer, padded with zeros
        for _ in range(8):
            key <<= np.uint64(8)
            key |= np.where(at < stop, text[np.minimum(at, len(text) - 1)], 0).astype(np.uint64)
            at += 1
        order = np.argsort(key)
        if np.all(key[order[1:]] > key[order[:-1]]):
            return order
    return numpy_numbers(pc.sort_indices(ids)).astype(np.int64)


def string_buffers(ids: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Return the offsets (including the end) and the bytes of an array of strings."""
    _, starts, text = ids.buffers()
    if text is None:
        return np.zeros(len(ids) + 1, np.int32), np.zeros(0, np.uint8)
    width = np.int64 if pa.types.is_large_string(ids.type) else np.int32
    offsets = np.frombuffer(starts, width)[ids.offset : ids.offset + len(ids) + 1]
    return offsets, np.frombuffer(text, np.uint8)


def _arrow_array(values: Any, role: str) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind in "UT":
        values = values.astype(object)
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        remedy = "use strings or numbers of one type"
        raise DataError(f"the {role}s are of mixed or unsupported types; {remedy}") from None


def _plain_array(array: pa.Array, role: str) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _plain_array(array.dictionary_decode(), role)
    if pa.types.is_string(kind) or pa.types.is_boolean(kind) or pa.types.is_float64(kind):
        return array
    if pa.types.is_large_string(kind) and np.ptp(string_buffers(array)[0]) > MAX_STRING_BYTES:
        return array
    if is_string_type(kind) or pa.types.is_string_view(kind) or pa.types.is_null(kind):
        return _cast(array, pa.string(), role)
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return _cast(array, pa.int64() if pa.types.is_integer(kind) else pa.float64(), role)
    raise DataError(f"the {role}s are of type {kind}; use strings or numbers")


def _cast(array: pa.Array, kind: pa.DataType, role: str) -> pa.Array:
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        problem = f"some {role}s are of type {array.type}, others {kind}"
        raise DataError(f"{problem}; use one type for all") from None


def dictionary_encode(values: Any, role: str, locate: Locate) -> tuple[Codes, pa.Array]:
    """Return dictionary codes and the distinct ids; raise an error for blank ones."""
    values = _arrow_array(values.arrow if isinstance(values, Vocabulary) else values, role)
    _plain_array(pa.nulls(0, values.type), role)  # raises an error for a type that cannot hold ids
    is_dictionary = pa.types.is_dictionary(values.type)
    encoded = values if is_dictionary else values.dictionary_encode()
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    distinct, indices = _plain_array(encoded.dictionary, role), encoded.indices
    if indices.null_count:
        row = int(np.flatnonzero(numpy_bools(indices.is_null()))[0])
        raise DataError(f"{locate(row)}: the {role} is blank; fill it in or remove the row")
    codes = numpy_numbers(indices).astype(np.int32, copy=False)
    blank = blank_ids(distinct)
    if blank.any() and blank[codes].any():
        row = int(blank[codes].argmax())
        raise DataError(f"{locate(row)}: the {role} is blank; fill it in or remove the row")
    stripped = _strip_labels(distinct) if role == "label" else distinct
    if not is_dictionary and stripped is distinct:
        return codes, distinct
    # A given dictionary may hold repeated or unused values: keep one entry per id in use.
    merged = stripped.dictionary_encode()
    codes = numpy_numbers(merged.indices)[codes]
    used = np.bincount(codes, minlength=len(merged.dictionary)) > 0
    compact = (np.cumsum(used) - 1).astype(np.int32)
    return compact[codes], merged.dictionary.take(arrow_indices(np.flatnonzero(used)))


def _strip_labels(labels: pa.Array) -> pa.Array:
    """Strip white space around labels; return the same array if there is none."""
    if not is_string_type(labels.type) or not _may_look_alike(labels):
        return labels
    names = labels.to_pylist()
    stripped = [name.strip() for name in names]
    return labels if stripped == names else pa.array(stripped, labels.type)


def blank_ids(ids: pa.Array) -> NDArray[np.bool_]:
    """Return a mask of ids that are null, white space only, or not finite."""
    blank = numpy_bools(ids.is_null())
    if pa.types.is_floating(ids.type):
        blank |= ~np.isfinite(numpy_values(ids))
    elif is_string_type(ids.type):
        # Arrow's trim first builds Unicode tables, which takes longer than reading a small file.
        starts, text = string_buffers(ids)
        blank |= np.diff(starts) == 0
        first = np.append(text, np.uint8(0))[np.minimum(starts[:-1], len(text))]
        suspect = np.flatnonzero(~blank & ((first <= LAST_BLANK_BYTE) | (first >= FIRST_NON_ASCII_BYTE)))
        blank[suspect] = [not name.strip() for name in ids.take(arrow_indices(suspect)).to_pylist()]
    return blank


# ---- Arrow and NumPy, without pandas ------------------------------------------------------------------
# Arrow's conversions import pandas if it is installed, which takes longer than reading most files.


def numpy_numbers(array: pa.Array) -> NDArray[Any]:
    """Return numbers without nulls as a read-only view."""
    return np.from_dlpack(array)


def numpy_filled(array: pa.Array, value: int) -> NDArray[Any]:
    """Return numbers, with nulls replaced by ``value``."""
    return numpy_numbers(pc.fill_null(array, value) if array.null_count else array)


def numpy_bools(array: pa.Array) -> NDArray[np.bool_]:
    """Return booleans without nulls."""
    return numpy_numbers(array.cast(pa.uint8())).astype(bool)


def arrow_indices(rows: NDArray[Any]) -> pa.Array:
    """Return row numbers for Arrow's ``take``."""
    return arrow_numbers(np.asarray(rows, dtype=np.int64))


def arrow_table(columns: Mapping[str, Any]) -> pa.Table:
    """Return a table of NumPy, list or Arrow columns."""
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        if not isinstance(values, np.ndarray):
            arrays[name] = values
        elif values.dtype.kind in "iuf":
            arrays[name] = arrow_numbers(values)
        else:
            cells = values.tolist()
            arrays[name] = arrow_strings(cells) if all(isinstance(v, str) for v in cells) else pa.array(cells)
    return pa.table(arrays)


def arrow_numbers(values: NDArray[Any], valid: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return numbers as an Arrow array, null where they are not ``valid``."""
    values = np.ascontiguousarray(values)
    bits = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [bits, pa.py_buffer(values)])


def arrow_strings(names: Sequence[str]) -> pa.Array:
    """Return strings as an Arrow array."""
    encoded = [name.encode() for name in names]
    starts = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def is_string_type(kind: pa.DataType) -> bool:
    """Check for strings, with offsets of either width."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def numpy_values(array: pa.Array) -> NDArray[Any]:
    """Return ids as NumPy values: objects for strings, otherwise of the type of the numbers."""
    if is_string_type(array.type):
        return np.array(array.to_pylist(), dtype=object)
    if array.null_count:
        return np.asarray(array.to_numpy(zero_copy_only=False))
    return numpy_bools(array) if pa.types.is_boolean(array.type) else numpy_numbers(array)
