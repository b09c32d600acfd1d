"""Vocabularies: order, blanks, unknown ids, lookalikes."""

from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dissensus.errors import DataError
from dissensus.labels.vocabulary import Vocabulary, encode, lookalikes, quoted

ids = st.text(st.characters(exclude_categories=["Cs", "Zs", "Cc"]), min_size=1, max_size=4).filter(str.strip)


@given(st.lists(ids, min_size=1))
def test_codes_round_trip(values: list[str]) -> None:
    codes, vocabulary = encode(values, "item")
    assert list(vocabulary) == sorted(set(values))
    assert [vocabulary[code] for code in codes] == values


@pytest.mark.parametrize(
    "names",
    [
        ["item-10", "item-9", "item-1", "item-"],
        ["ab", "a", "a\0", "a\0b", "abc"],
        [f"a long common beginning {n}" for n in range(50)],
        [f"{n % 2}-different late-{n}" for n in range(50)],
        ["é", "e", "z", "\U0001f600", "\uffff", "ée"],
    ],
)
def test_ids_are_sorted_by_code_point(names: list[str]) -> None:
    assert list(encode(names[::-1], "item")[1]) == sorted(names)
    first, *others = sorted(names)
    assert list(Vocabulary(others).extended([first])[1]) == sorted(names)  # a sorted one stays sorted
    backwards = sorted(names)[::-1]
    assert list(Vocabulary(backwards).extended(["!new"])[1]) == [*backwards, "!new"]


def test_numbers_are_sorted_by_value() -> None:
    assert list(encode(["10", "2", "é", "Z", "a"], "item")[1]) == ["10", "2", "Z", "a", "é"]
    assert list(encode([10, 2, 1], "item")[1]) == [1, 2, 10]
    assert list(encode([True, False], "label")[1]) == [False, True]


@pytest.mark.parametrize(
    "values",
    [
        np.array(["b", "a", "b"]),
        np.array(["b", "a", "b"], dtype=object),
        pd.Series(["b", "a", "b"], index=[7, 8, 9]),
        pd.Series(["b", "a", "b"], dtype="category"),
        pa.array(["b", "a", "b"], pa.large_string()),
        pa.chunked_array([pa.array(["b"]).dictionary_encode(), pa.array(["a", "b"]).dictionary_encode()]),
        pa.DictionaryArray.from_arrays(pa.array([2, 3, 0]), pa.array(["b", "unused", "b", "a"])),
    ],
)
def test_every_sequence_type(values: Any) -> None:
    codes, vocabulary = encode(values, "item")
    assert codes.tolist() == [1, 0, 1]
    assert codes.dtype == np.int32
    assert list(vocabulary) == ["a", "b"]


def test_blank_and_unsupported_ids_are_rejected() -> None:
    for blank in (None, "", "  ", "\t\n", "\u00a0"):
        with pytest.raises(DataError, match=r"^row 2: the annotator is blank; fill it in or remove the row$"):
            encode(["a", "b", blank, blank], "annotator")
    for values in (np.array([1.0, np.nan]), pa.array([1, None])):
        with pytest.raises(DataError, match="row 1: the label is blank"):
            encode(values, "label")
    for values in ([1, "a"], [object()], [{"a": 1}], [2**70], [b"a"]):
        with pytest.raises(DataError, match=r"items are of (mixed|type)"):
            encode(values, "item")


def test_declared_order() -> None:
    codes, vocabulary = encode(["lo", "hi", "lo"], "label", order=["lo", "mid", "hi"])
    assert list(vocabulary) == ["lo", "mid", "hi"]
    assert codes.tolist() == [0, 2, 0]
    message = r"line 3: label 'mabye' is not in the label set; add it with classes="
    with pytest.raises(DataError, match=message):
        encode(["yes", "no", "mabye"], "label", order=["no", "yes"], locate=lambda row: f"line {row + 1}")
    for order in (["a", "b", "a"], ["a", ""], ["a", None]):
        with pytest.raises(DataError, match="has a repeated or blank entry"):
            encode(["a"], "label", order=order)
    # the order is cast to the type of the labels
    assert list(encode(["0", "1"], "label", order=[1, 0])[1]) == ["1", "0"]
    assert list(encode([0, 1], "label", order=["1", "0"])[1]) == [1, 0]
    with pytest.raises(DataError, match="some labels are of type string, others int64"):
        encode([0, 1], "label", order=["yes", "no"])


def test_unknown_ids_have_code_minus_one() -> None:
    assert Vocabulary(["a", "b"]).codes(["b", "z", None]).tolist() == [1, -1, -1]
    assert Vocabulary([1, 2]).codes(["2", "x", "02"]).tolist() == [1, -1, -1]
    assert Vocabulary(["1", "2"]).codes([2, 3]).tolist() == [1, -1]
    assert Vocabulary([1, 2]).codes([2.0, 1.5]).tolist() == [1, -1]


def test_extended_vocabulary() -> None:
    codes, vocabulary = Vocabulary(["b", "d"]).extended(["c", "b", "a", "c"])
    assert list(vocabulary) == ["a", "b", "c", "d"]
    assert codes.tolist() == [1, 3]
    codes, vocabulary = Vocabulary(["d", "b"]).extended(["c", "a"])
    assert list(vocabulary) == ["d", "b", "c", "a"]
    assert codes.tolist() == [0, 1]
    with pytest.raises(DataError, match="some ids are of type string, others int64"):
        Vocabulary([1, 2]).extended(["x"])


def test_lookalike_ids() -> None:
    _, vocabulary = encode(["ann 1", "Ann1", "ann\u00a01", "bob", "Éva", "éva"], "annotator")
    groups = {frozenset(group) for group in lookalikes(vocabulary)}
    assert groups == {frozenset({"ann 1", "Ann1", "ann\u00a01"}), frozenset({"Éva", "éva"})}
    assert len(vocabulary) == 6
    assert lookalikes(Vocabulary(["a", "b"])) == []
    assert lookalikes(Vocabulary(["A", "b c"])) == []
    assert lookalikes(Vocabulary([1, 2])) == []


def test_quoted_ids_are_short() -> None:
    assert quoted("a\nb") == r"'a\nb'"
    assert quoted(np.int64(3)) == "3"
    assert len(quoted("x" * 10**6)) < 100
