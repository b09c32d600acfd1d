"""Ids and the integers that stand for them, and Arrow to NumPy and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissensus.errors import DataError, setting

Codes = NDArray[np.int32]
_LONGEST_SHOWN = 60
_BATCH = 1 << 18  # ids that are Python's strings at once
_SHORTEST_NAME = 3  # letters from which on one wrong letter looks like a slip
MOST_TEXT = (1 << 31) - 1  # bytes that Arrow's plain strings can count
_SPACE, _BEYOND_ASCII = 32, 128  # bytes up to the first are blank or control, from the second on Unicode
Place = Callable[[int], str]  # where a row stands in its source, in words


class Vocabulary(Sequence[Any]):
    """Distinct ids in a fixed order; an id's place in that order is its code.

    Ids live in an Arrow array (strings, whole numbers, numbers or booleans) and become Python or NumPy
    values only when somebody looks at them.
    """

    def __init__(self, ids: Any, what: str = "id") -> None:
        self.arrow = to_arrow(ids, what)
        self.what = what

    @cached_property
    def ids(self) -> NDArray[Any]:
        """The ids as a NumPy array: objects for strings, the numbers' own type otherwise."""
        ids = as_values(self.arrow)
        ids.setflags(write=False)
        return ids

    def codes(self, ids: Any) -> Codes:
        """The code of each given id; −1 where the vocabulary does not have it.

        A number and its text name the same id, so that ids from a frame find those from a file.
        """
        wanted, known = to_arrow(ids, self.what), self.arrow
        kinds = wanted.type, known.type
        if kinds[0] != kinds[1]:
            text = pa.large_string() if pa.large_string() in kinds else pa.string()
            common = text if any(map(is_text, kinds)) else pa.float64()
            wanted, known = wanted.cast(common, safe=False), known.cast(common, safe=False)
        found = pc.index_in(wanted, value_set=known)
        codes: Codes = without_nulls(found, -1)
        return codes

    def take(self, codes: NDArray[Any]) -> Vocabulary:
        """The sub-vocabulary of the given codes, in the order given."""
        return Vocabulary(self.arrow.take(places(codes)), self.what)

    def extended(self, ids: Any) -> tuple[Codes, Vocabulary]:
        """This vocabulary with unknown ids added, and the new code of each old id.

        A sorted vocabulary stays sorted; where another order was given, new ids follow the old. Either way
        old ids keep their order among themselves.
        """
        fresh = to_arrow(ids, self.what)
        fresh = fresh.take(places(np.flatnonzero(self.codes(fresh) < 0))).unique()
        if not len(fresh):
            return np.arange(len(self), dtype=np.int32), self
        joined = pa.concat_arrays([self.arrow, _cast(fresh, self.arrow.type, self.what)])
        if np.all(np.diff(sorted_order(self.arrow, self.what)) > 0):
            codes, vocabulary = encode(joined, self.what)
            return codes[: len(self)], vocabulary
        return np.arange(len(self), dtype=np.int32), Vocabulary(joined, self.what)

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
        return f"Vocabulary({len(self):,} {self.what}s)"


def to_arrow(values: Any, what: str) -> pa.Array:
    """An Arrow array of plain ids out of whatever sequence came."""
    if isinstance(values, Vocabulary):
        return values.arrow
    array = _any_arrow(values, what)
    return _plain(array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array, what)


def encode(
    values: Any, what: str, order: Any = None, place: Place = "row {}".format
) -> tuple[Codes, Vocabulary]:
    """Codes and vocabulary of a column; ids sorted by code point (numbers by value) unless ordered.

    Labels that are all numbers are sorted by value even where they are text, as from a file.
    ``place`` says where a row stands in the source, for the error that names it.
    """
    indices, distinct = dictionary(values, what, place)
    if order is None:
        by_rank = sorted_order(distinct, what)
        vocabulary = Vocabulary(distinct.take(places(by_rank)), what)
        rank = np.empty(len(distinct), dtype=np.int32)
        rank[by_rank] = np.arange(len(distinct), dtype=np.int32)
    else:
        vocabulary = ordered_vocabulary(order, what, distinct.type)
        rank = vocabulary.codes(distinct)
        if (rank < 0).any():
            row = int(np.flatnonzero(rank[indices] < 0)[0])
            value = distinct[int(indices[row])].as_py()
            meant = one_slip_away(value, vocabulary)
            remedy = setting("classes" if what == "label" else f"{what}s")
            hint = "" if meant is None else f"did you mean {quoted(meant)}? If not, "
            raise DataError(
                f"{place(row)}: {what} {quoted(value)} is not in the {what} set; {hint}add it with {remedy} "
                "or correct the row"
            )
    return rank[indices], vocabulary


def ordered_vocabulary(order: Any, what: str, kind: pa.DataType | None = None) -> Vocabulary:
    """A vocabulary in the order given, which must not repeat an id; ids become ``kind`` where they can."""
    vocabulary = order if isinstance(order, Vocabulary) else Vocabulary(list(order), what)
    if what == "label" and not blank_ids(vocabulary.arrow).any():
        vocabulary = Vocabulary(_trimmed(vocabulary.arrow), what)
    if kind is not None and kind != vocabulary.arrow.type:
        vocabulary = Vocabulary(_cast(vocabulary.arrow, kind, what), what)
    if len(vocabulary.arrow.unique()) != len(vocabulary) or blank_ids(vocabulary.arrow).any():
        raise DataError(f"the given order of {what}s repeats one or leaves one blank; list each once")
    return vocabulary


def quoted(value: Any) -> str:
    """An id as messages show it: quoted, on one line, and not longer than need be."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"


def lookalikes(vocabulary: Vocabulary) -> list[list[str]]:
    """Groups of ids that differ only by white space or case."""
    ids = vocabulary.arrow
    if not is_text(ids.type) or not _may_look_alike(ids):
        return []
    # One number an id first: many ids take much memory as Python's strings.
    batches = (ids.slice(at, _BATCH).to_pylist() for at in range(0, len(ids), _BATCH))
    keys = np.fromiter((hash(folded(name)) for batch in batches for name in batch), np.int64, len(ids))
    _, key, n_ids = np.unique(keys, return_inverse=True, return_counts=True)
    groups: dict[str, list[str]] = {}
    for name in ids.take(places(np.flatnonzero(n_ids[key] > 1))).to_pylist():
        groups.setdefault(folded(name), []).append(name)
    return [group for group in groups.values() if len(group) > 1]


def folded(name: str) -> str:
    """An id without its white space and case."""
    return "".join(name.split()).casefold()


def one_slip_away(name: Any, names: Iterable[Any]) -> Any:
    """The first of the names that this one may be a typing error of, or None.

    It differs by white space or case, or by one letter too many, too few, wrong or swapped with the next.
    Names of one or two letters, and digits, differ on purpose.
    """
    for other in names if isinstance(name, str) else ():
        if not isinstance(other, str):
            continue
        a, b = folded(name), folded(other)
        start, whole = _common_start(a, b), max(len(a), len(b))
        a, b = a[start:], b[start:]
        end = _common_start(a[::-1], b[::-1])
        a, b = a[: len(a) - end], b[: len(b) - end]
        if whole < _SHORTEST_NAME or any(map(str.isdigit, a + b)):
            slip = not a + b
        else:
            slip = max(len(a), len(b)) <= 1 or (len(a) == 2 and a == b[::-1])
        if slip:
            return other
    return None


def _common_start(a: Sequence[Any], b: Sequence[Any]) -> int:
    """How many letters or bytes both begin with."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def _may_look_alike(ids: pa.Array) -> bool:
    """False where the bytes alone tell: no white space, no capital letter, nothing beyond ASCII."""
    _, text = text_of(ids)
    return bool(
        np.any((text <= _SPACE) | ((text >= ord("A")) & (text <= ord("Z"))) | (text >= _BEYOND_ASCII))
    )


def sorted_order(ids: pa.Array, what: str) -> NDArray[np.int64]:
    """The order of distinct ids: by code point, or by value; labels that are numbers always by value."""
    if what == "label" and is_text(ids.type):
        values = numbers_of(ids)
        if values is not None:
            by_text = np.argsort(_sorted(ids))
            return np.lexsort((by_text, values)).astype(np.int64)
    return _sorted(ids)


def numbers_of(ids: pa.Array) -> NDArray[np.float64] | None:
    """The numbers that ids are, or that their text says; None where one is no finite number."""
    if pa.types.is_boolean(ids.type) or not len(ids) or ids.null_count:
        return None
    try:
        values = numbers(ids.cast(pa.float64())).astype(np.float64)
    except pa.ArrowInvalid:
        return None
    return values if np.isfinite(values).all() else None


def _sorted(ids: pa.Array) -> NDArray[np.int64]:
    """The order of distinct ids: by code point, or by value.

    Most strings of a column are told apart by the eight bytes that follow what all of them begin with, and
    numbers sort several times faster than strings.
    """
    if is_text(ids.type) and len(ids) > 1:
        common = _common_start(*(name.encode() for name in pc.min_max(ids).as_py().values()))
        starts, text = text_of(ids)
        at, stop = starts[:-1].astype(np.int64) + common, starts[1:]
        key = np.zeros(len(ids), dtype=np.uint64)  # eight bytes as one number; beyond a string's end, zeros
        for _ in range(8):
            key <<= np.uint64(8)
            key |= np.where(at < stop, text[np.minimum(at, len(text) - 1)], 0).astype(np.uint64)
            at += 1
        order = np.argsort(key)
        if np.all(key[order[1:]] > key[order[:-1]]):
            return order
    return numbers(pc.sort_indices(ids)).astype(np.int64)


def text_of(ids: pa.Array) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Where each string starts (and the last one ends), and the bytes of them all."""
    _, starts, text = ids.buffers()
    if text is None:
        return np.zeros(len(ids) + 1, np.int32), np.zeros(0, np.uint8)
    width = np.int64 if pa.types.is_large_string(ids.type) else np.int32
    places = np.frombuffer(starts, width)[ids.offset : ids.offset + len(ids) + 1]
    return places, np.frombuffer(text, np.uint8)


def _any_arrow(values: Any, what: str) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    if isinstance(values, np.ndarray) and values.dtype.kind in "UT":
        values = values.astype(object)
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        raise DataError(
            f"the {what}s are of mixed or unusual types; give strings or numbers of one type"
        ) from None


def _plain(array: pa.Array, what: str) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _plain(array.dictionary_decode(), what)
    if pa.types.is_string(kind) or pa.types.is_boolean(kind) or pa.types.is_float64(kind):
        return array
    if pa.types.is_large_string(kind) and np.ptp(text_of(array)[0]) > MOST_TEXT:
        return array
    if is_text(kind) or pa.types.is_string_view(kind) or pa.types.is_null(kind):
        return _cast(array, pa.string(), what)
    if pa.types.is_integer(kind):
        return _cast(array, pa.int64(), what)
    if pa.types.is_floating(kind):
        return _cast(array, pa.float64(), what)
    raise DataError(f"the {what}s are of type {kind}; give strings or numbers")


def _cast(array: pa.Array, kind: pa.DataType, what: str) -> pa.Array:
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise DataError(
            f"some {what}s are of type {array.type}, others {kind}; use one type for all"
        ) from None


def dictionary(values: Any, what: str, place: Place) -> tuple[Codes, pa.Array]:
    """Dictionary codes and the distinct ids, once blanks have been refused."""
    values = _any_arrow(values.arrow if isinstance(values, Vocabulary) else values, what)
    _plain(pa.nulls(0, values.type), what)  # refuses a type that holds no ids
    ready = pa.types.is_dictionary(values.type)
    encoded = values if ready else values.dictionary_encode()
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    distinct, indices = _plain(encoded.dictionary, what), encoded.indices
    if indices.null_count:
        row = int(np.flatnonzero(marks(indices.is_null()))[0])
        raise DataError(f"{place(row)}: the {what} is blank; fill it in or remove the row")
    codes = numbers(indices).astype(np.int32, copy=False)
    blank = blank_ids(distinct)
    if blank.any() and blank[codes].any():
        row = int(blank[codes].argmax())
        raise DataError(f"{place(row)}: the {what} is blank; fill it in or remove the row")
    tidy = _trimmed(distinct) if what == "label" else distinct
    if not ready and tidy is distinct:
        return codes, distinct
    # A dictionary from elsewhere may repeat values or hold unused ones: one entry for each used id.
    merged = tidy.dictionary_encode()
    codes = numbers(merged.indices)[codes]
    used = np.bincount(codes, minlength=len(merged.dictionary)) > 0
    compact = (np.cumsum(used) - 1).astype(np.int32)
    return compact[codes], merged.dictionary.take(places(np.flatnonzero(used)))


def _trimmed(labels: pa.Array) -> pa.Array:
    """Labels without the white space around them, which nobody means; itself where there is none."""
    if not is_text(labels.type) or not _may_look_alike(labels):
        return labels
    names = labels.to_pylist()
    tidy = [name.strip() for name in names]
    return labels if tidy == names else pa.array(tidy, labels.type)


def blank_ids(ids: pa.Array) -> NDArray[np.bool_]:
    """Which ids are null, white space only, or not a number."""
    blank = marks(ids.is_null())
    if pa.types.is_floating(ids.type):
        blank |= ~np.isfinite(as_values(ids))
    elif is_text(ids.type):
        # Arrow's own trim first builds tables of all Unicode, which takes longer than reading a small file.
        starts, text = text_of(ids)
        blank |= np.diff(starts) == 0
        first = np.append(text, np.uint8(0))[np.minimum(starts[:-1], len(text))]
        odd = np.flatnonzero(~blank & ((first <= _SPACE) | (first >= _BEYOND_ASCII)))
        blank[odd] = [not name.strip() for name in ids.take(places(odd)).to_pylist()]
    return blank


# ---- Arrow to NumPy and back, without pandas ----------------------------------------------------------
# Arrow's own conversions import pandas where it is installed, which takes longer than reading most files.


def numbers(array: pa.Array) -> NDArray[Any]:
    """Numbers without nulls, as they lie in memory; not to be written to."""
    return np.from_dlpack(array)


def without_nulls(array: pa.Array, value: int) -> NDArray[Any]:
    """Numbers, and another one where they are null."""
    return numbers(pc.fill_null(array, value) if array.null_count else array)


def marks(array: pa.Array) -> NDArray[np.bool_]:
    """Booleans without nulls, unpacked from their bits."""
    bits = np.frombuffer(array.buffers()[1], dtype=np.uint8) if len(array) else np.zeros(0, np.uint8)
    unpacked = np.unpackbits(bits, count=array.offset + len(array), bitorder="little")
    return unpacked[array.offset :].astype(bool)


def places(rows: NDArray[Any]) -> pa.Array:
    """Row numbers for Arrow's ``take``."""
    return column(np.asarray(rows, dtype=np.int64))


def arrow_table(columns: Mapping[str, Any]) -> pa.Table:
    """Columns of NumPy values, lists or Arrow's own as a table."""
    arrays: dict[str, Any] = {}
    for name, values in columns.items():
        if not isinstance(values, np.ndarray):
            arrays[name] = values
        elif values.dtype.kind in "iuf":
            arrays[name] = column(values)
        else:
            known = values.tolist()
            arrays[name] = texts(known) if all(isinstance(v, str) for v in known) else pa.array(known)
    return pa.table(arrays)


def column(values: NDArray[Any], known: NDArray[np.bool_] | None = None) -> pa.Array:
    """Numbers as an Arrow array, null where they are not ``known``."""
    whole = np.ascontiguousarray(values)
    bits = None if known is None else pa.py_buffer(np.packbits(known, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(whole.dtype), len(whole), [bits, pa.py_buffer(whole)])


def texts(names: Sequence[str]) -> pa.Array:
    """Strings as an Arrow array."""
    encoded = [name.encode() for name in names]
    starts = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.string(), len(encoded), buffers)


def is_text(kind: pa.DataType) -> bool:
    """Strings, with offsets of either width."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def as_values(array: pa.Array) -> NDArray[Any]:
    """Ids as NumPy values: objects for strings, the numbers' own type otherwise."""
    if is_text(array.type):
        return np.array(array.to_pylist(), dtype=object)
    if array.null_count:
        unknown: NDArray[Any] = array.to_numpy(zero_copy_only=False)
        return unknown
    return marks(array) if pa.types.is_boolean(array.type) else numbers(array)
