"""Ids and the integers that stand for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dissensus.errors import DataError

Codes = NDArray[np.int32]


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
        values: NDArray[Any] = self.arrow.to_numpy(zero_copy_only=False)
        values.setflags(write=False)
        return values

    def codes(self, ids: Any) -> Codes:
        """The code of each given id; −1 where the vocabulary does not have it."""
        wanted = to_arrow(ids, self.what)
        if wanted.type != self.arrow.type:
            try:
                wanted = wanted.cast(self.arrow.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                return np.full(len(wanted), -1, dtype=np.int32)
        found = pc.index_in(wanted, value_set=self.arrow)
        codes: Codes = pc.fill_null(found, -1).to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
        return codes

    def take(self, codes: NDArray[Any]) -> Vocabulary:
        """The sub-vocabulary of the given codes, in the order given."""
        return Vocabulary(self.arrow.take(pa.array(codes)), self.what)

    def __len__(self) -> int:
        return len(self.arrow)

    def __getitem__(self, index: Any) -> Any:
        return self.ids[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.ids)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and bool(self.arrow.equals(other.arrow))

    __hash__ = None  # type: ignore[assignment]


def to_arrow(values: Any, what: str) -> pa.Array:
    """An Arrow array of plain ids out of whatever sequence came."""
    if isinstance(values, Vocabulary):
        return values.arrow
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if isinstance(values, np.ndarray) and values.dtype.kind in "UT":
        values = values.astype(object)
    try:
        array = values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        raise DataError(
            f"the {what}s are of mixed or unusual types; give strings or numbers of one type"
        ) from None
    return _plain(array, what)


def _plain(array: pa.Array, what: str) -> pa.Array:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _plain(array.dictionary_decode(), what)
    if pa.types.is_string(kind) or pa.types.is_boolean(kind) or pa.types.is_float64(kind):
        return array
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind) or pa.types.is_null(kind):
        return array.cast(pa.string())
    if pa.types.is_integer(kind):
        return array.cast(pa.int64())
    if pa.types.is_floating(kind):
        return array.cast(pa.float64())
    raise DataError(f"the {what}s are of type {kind}; give strings or numbers")


def encode(
    values: Any, what: str, order: Any = None, place: Callable[[int], str] = "row {}".format
) -> tuple[Codes, Vocabulary]:
    """Codes and vocabulary of a column; ids sorted by code point (numbers by value) unless ordered.

    ``place`` says where a row stands in the source, for the error that names it.
    """
    indices, distinct = _dictionary(values, what, place)
    if order is None:
        rank_of = pc.sort_indices(distinct).to_numpy()
        vocabulary = Vocabulary(distinct.take(pa.array(rank_of)), what)
        rank = np.empty(len(distinct), dtype=np.int32)
        rank[rank_of] = np.arange(len(distinct), dtype=np.int32)
    else:
        vocabulary = ordered_vocabulary(order, what)
        rank = vocabulary.codes(distinct)
        _refuse_strangers(rank, indices, distinct, what, place)
    return rank[indices], vocabulary


def ordered_vocabulary(order: Any, what: str) -> Vocabulary:
    """A vocabulary in the order given, which must not repeat an id."""
    vocabulary = order if isinstance(order, Vocabulary) else Vocabulary(list(order), what)
    if len(vocabulary.arrow.unique()) != len(vocabulary) or vocabulary.arrow.null_count:
        raise DataError(f"the given order of {what}s repeats one or leaves one blank; list each once")
    return vocabulary


def _dictionary(values: Any, what: str, place: Callable[[int], str]) -> tuple[NDArray[np.int32], pa.Array]:
    """Dictionary codes in order of appearance, once blanks have been refused."""
    if isinstance(values, pa.ChunkedArray):
        values = values.combine_chunks()
    if not (isinstance(values, pa.Array) and pa.types.is_dictionary(values.type)):
        values = to_arrow(values, what).dictionary_encode()
    distinct = _plain(values.dictionary, what)
    indices = values.indices
    if indices.null_count:
        row = int(np.flatnonzero(indices.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(f"{place(row)}: the {what} is missing; fill it in or remove the row")
    indices = indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    _refuse_blanks(indices, distinct, what, place)
    return indices, distinct


def _refuse_blanks(indices: Codes, distinct: pa.Array, what: str, place: Callable[[int], str]) -> None:
    if pa.types.is_string(distinct.type):
        bad = pc.equal(pc.utf8_trim_whitespace(distinct), "")
    elif pa.types.is_floating(distinct.type):
        bad = pc.invert(pc.is_finite(distinct))
    else:
        return
    blank = np.flatnonzero(pc.fill_null(bad, True).to_numpy(zero_copy_only=False))
    rows = np.flatnonzero(np.isin(indices, blank)) if len(blank) else blank
    if len(rows):
        raise DataError(f"{place(int(rows[0]))}: the {what} is blank; fill it in or remove the row")


def _refuse_strangers(
    rank: Codes, indices: Codes, distinct: pa.Array, what: str, place: Callable[[int], str]
) -> None:
    strangers = np.flatnonzero(rank < 0)
    rows = np.flatnonzero(np.isin(indices, strangers)) if len(strangers) else strangers
    if len(rows):
        row = int(rows[0])
        value = distinct[int(indices[row])].as_py()
        raise DataError(
            f"{place(row)}: {what} {value!r} is not in the {what} set; "
            f"add it with --{what}s or correct the row"
        )
