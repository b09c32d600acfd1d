"""Ids and their codes: order, blanks, strangers, ids that look alike."""

from __future__ import annotations

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
def test_ids_are_sorted_by_code_point_and_codes_lead_back(values: list[str]) -> None:
    codes, vocabulary = encode(values, "item")
    assert list(vocabulary) == sorted(set(values))
    assert [vocabulary[code] for code in codes] == values


@pytest.mark.parametrize(
    "names",
    [
        ["item-10", "item-9", "item-1", "item-"],
        ["ab", "a", "a\0", "a\0b", "abc"],
        [f"a long common beginning {n}" for n in range(50)],
        [f"{n % 2}-told apart late-{n}" for n in range(50)],
        ["é", "e", "z", "\U0001f600", "\uffff", "ée"],
    ],
)
def test_the_order_is_that_of_code_points_however_ids_begin(names: list[str]) -> None:
    assert list(encode(names[::-1], "item")[1]) == sorted(names)
    first, *others = sorted(names)
    assert list(Vocabulary(others).extended([first])[1]) == sorted(names)  # a sorted one stays sorted
    backwards = sorted(names)[::-1]
    assert list(Vocabulary(backwards).extended(["!new"])[1]) == [*backwards, "!new"]


def test_digits_are_text_in_strings_and_values_in_numbers() -> None:
    assert list(encode(["10", "2", "é", "Z", "a"], "item")[1]) == ["10", "2", "Z", "a", "é"]
    assert list(encode([10, 2, 1], "item")[1]) == [1, 2, 10]
    assert list(encode([True, False], "label")[1]) == [False, True]


@pytest.mark.parametrize(
    "values",
    [
        ["b", "a", "b"],
        np.array(["b", "a", "b"]),
        np.array(["b", "a", "b"], dtype=object),
        pd.Series(["b", "a", "b"], index=[7, 8, 9]),
        pd.Series(["b", "a", "b"], dtype="category"),
        pa.array(["b", "a", "b"]),
        pa.array(["b", "a", "b"], pa.large_string()),
        pa.chunked_array([["b"], ["a", "b"]]),
        pa.chunked_array([pa.array(["b"]).dictionary_encode(), pa.array(["a", "b"]).dictionary_encode()]),
    ],
)
def test_any_sequence_gives_the_same_codes(values: Any) -> None:
    codes, vocabulary = encode(values, "item")
    assert codes.tolist() == [1, 0, 1]
    assert codes.dtype == np.int32
    assert list(vocabulary) == ["a", "b"]


def test_a_dictionary_from_elsewhere_may_repeat_values_and_hold_unused_ones() -> None:
    array = pa.DictionaryArray.from_arrays(pa.array([3, 0, 2]), pa.array(["b", "unused", "b", "a"]))
    codes, vocabulary = encode(array, "item")
    assert list(vocabulary) == ["a", "b"]
    assert codes.tolist() == [0, 1, 1]


@pytest.mark.parametrize("blank", [None, "", "  ", "\t\n", "\u00a0"])
def test_a_blank_is_refused_by_its_row(blank: str | None) -> None:
    with pytest.raises(DataError, match=r"^row 2: the annotator is blank; fill it in or remove the row$"):
        encode(["a", "b", blank, blank], "annotator")


def test_a_number_that_is_none_is_a_blank() -> None:
    with pytest.raises(DataError, match="row 1: the label is blank"):
        encode(np.array([1.0, np.nan]), "label")
    with pytest.raises(DataError, match="row 1: the label is blank"):
        encode(pa.array([1, None]), "label")


@pytest.mark.parametrize("values", [[1, "a"], [object()], [{"a": 1}], [2**70], [b"a"]])
def test_ids_that_are_no_plain_values_are_refused(values: Any) -> None:
    with pytest.raises(DataError, match=r"items are of (mixed|type)"):
        encode(values, "item")


def test_a_declared_order_is_kept_and_closed() -> None:
    codes, vocabulary = encode(["lo", "hi", "lo"], "label", order=["lo", "mid", "hi"])
    assert list(vocabulary) == ["lo", "mid", "hi"]
    assert codes.tolist() == [0, 2, 0]
    with pytest.raises(
        DataError, match=r"line 3: label 'mabye' is not in the label set; add it with classes="
    ):
        encode(["yes", "no", "mabye"], "label", order=["no", "yes"], place=lambda row: f"line {row + 1}")


@pytest.mark.parametrize("order", [["a", "b", "a"], ["a", ""], ["a", None]])
def test_an_order_lists_each_id_once(order: list[str]) -> None:
    with pytest.raises(DataError, match="repeats one or leaves one blank"):
        encode(["a"], "label", order=order)


def test_declared_classes_become_the_type_of_the_labels() -> None:
    assert list(encode(["0", "1"], "label", order=[1, 0])[1]) == ["1", "0"]
    assert list(encode([0, 1], "label", order=["1", "0"])[1]) == [1, 0]
    with pytest.raises(DataError, match="some labels are of type string, others int64"):
        encode([0, 1], "label", order=["yes", "no"])


def test_codes_of_unknown_ids_are_minus_one_one_by_one() -> None:
    assert Vocabulary(["a", "b"]).codes(["b", "z", None]).tolist() == [1, -1, -1]
    assert Vocabulary([1, 2]).codes(["2", "x", "02"]).tolist() == [1, -1, -1]
    assert Vocabulary(["1", "2"]).codes([2, 3]).tolist() == [1, -1]
    assert Vocabulary([1, 2]).codes([2.0, 1.5]).tolist() == [1, -1]


def test_new_ids_join_in_order_or_after_a_given_order() -> None:
    codes, vocabulary = Vocabulary(["b", "d"]).extended(["c", "b", "a", "c"])
    assert list(vocabulary) == ["a", "b", "c", "d"]
    assert codes.tolist() == [1, 3]
    codes, vocabulary = Vocabulary(["d", "b"]).extended(["c", "a"])
    assert list(vocabulary) == ["d", "b", "c", "a"]
    assert codes.tolist() == [0, 1]
    with pytest.raises(DataError, match="some ids are of type string, others int64"):
        Vocabulary([1, 2]).extended(["x"])


def test_ids_that_differ_by_case_or_white_space_are_told_and_kept_apart() -> None:
    _, vocabulary = encode(["ann 1", "Ann1", "ann\u00a01", "bob", "Éva", "éva"], "annotator")
    groups = {frozenset(group) for group in lookalikes(vocabulary)}
    assert groups == {frozenset({"ann 1", "Ann1", "ann\u00a01"}), frozenset({"Éva", "éva"})}
    assert len(vocabulary) == 6
    assert lookalikes(Vocabulary(["a", "b"])) == []
    assert lookalikes(Vocabulary(["A", "b c"])) == []
    assert lookalikes(Vocabulary([1, 2])) == []


def test_messages_show_ids_on_one_short_line() -> None:
    assert quoted("a\nb") == r"'a\nb'"
    assert quoted(np.int64(3)) == "3"
    assert len(quoted("x" * 10**6)) < 100


def test_vocabularies_compare_by_content() -> None:
    assert Vocabulary(["a"]) == Vocabulary(np.array(["a"]))
    assert Vocabulary(["a"]) != Vocabulary(["b"])
    assert repr(Vocabulary(["a", "b"], "item")) == "Vocabulary(2 items)"
