"""Annotations: canonical order, views, subsets, counts, side tables."""

from dataclasses import FrozenInstanceError, fields
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dissensus.errors import DataError, DissensusError, ParameterError
from dissensus.labels.annotations import Annotations
from dissensus.labels.rows import canonical_rows
from dissensus.labels.vocabulary import Vocabulary
from tests.helpers.sizes import usually

# item, annotator, label; the pair (i1, bob) has two labels
ROWS = [("i2", "ann", "y"), ("i1", "bob", "x"), ("i2", "cat", "x"), ("i1", "ann", "x"), ("i1", "bob", "y")]
triples = st.lists(st.tuples(*[st.sampled_from("abcdefg")] * 3), min_size=1, max_size=40)


def build(rows: list[tuple[str, str, str]] = ROWS, **settings: Any) -> Annotations:
    return Annotations.from_arrays(*zip(*rows, strict=True), **settings)


def rows_in(annotations: Annotations) -> list[tuple[Any, Any, Any]]:
    return [
        (annotations.items[i], annotations.annotators[a], annotations.classes[c])
        for i, a, c in zip(annotations.item, annotations.annotator, annotations.label, strict=True)
    ]


def same(first: Annotations, second: Annotations) -> bool:
    return all(np.array_equal(getattr(first, f.name), getattr(second, f.name)) for f in fields(Annotations))


# ---- order --------------------------------------------------------------------------------------------


@settings(max_examples=usually(30, verify=300))
@given(triples, st.randoms(use_true_random=False))
def test_rows_are_sorted_whatever_their_order(rows: list[tuple[str, str, str]], random: Any) -> None:
    assert same(build(rows), build(random.sample(rows, len(rows))))
    assert rows_in(build(rows)) == sorted(rows)


def test_large_vocabularies_are_sorted_too() -> None:
    rng = np.random.default_rng(0)
    item, annotator, label = (rng.integers(0, 5, 200).astype(np.int32) for _ in range(3))
    wide = canonical_rows(item, annotator, label, (2**31, 2**31, 2**10))
    rows = sorted(zip(item.tolist(), annotator.tolist(), label.tolist(), strict=True))
    assert list(zip(*(column.tolist() for column in wide), strict=True)) == rows


def test_annotations_are_immutable() -> None:
    annotations = build()
    with pytest.raises(FrozenInstanceError):
        annotations.item = np.zeros(5, np.int32)  # type: ignore[misc]
    for array in (annotations.item, annotations.label, annotations.counts, annotations.items):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_invalid_columns_are_rejected() -> None:
    for columns, message in (
        ((["a"], ["b", "c"], ["x"]), "differ in length \\(1, 2, 1\\)"),
        (([], [], []), "there are no labels in the data"),
        ((["a"], [" "], ["x"]), "row 0: the annotator is blank"),
    ):
        with pytest.raises(DataError, match=message):
            Annotations.from_arrays(*columns)


# ---- repeats ------------------------------------------------------------------------------------------


@settings(max_examples=usually(30, verify=300))
@given(triples)
def test_duplicate_policies_match_a_dictionary(rows: list[tuple[str, str, str]]) -> None:
    last = {(item, annotator): label for item, annotator, label in rows}
    first = {(item, annotator): label for item, annotator, label in reversed(rows)}
    assert rows_in(build(rows, duplicates="last")) == sorted((*pair, label) for pair, label in last.items())
    assert rows_in(build(rows, duplicates="first")) == sorted((*pair, label) for pair, label in first.items())


def test_notes_and_errors_of_duplicates() -> None:
    assert build(duplicates="last").notes == ("1 repeat is left out: the last label of a pair counts",)
    with pytest.raises(DataError, match=r"row 4: annotator 'bob' labelled item 'i1' more than once"):
        build(duplicates="error")
    assert build(ROWS[:4], duplicates="error").n_labels == 4
    with pytest.raises(ParameterError, match="'duplicates' parameter of Annotations must be one of"):
        build(duplicates="some")  # type: ignore[arg-type]


# ---- views --------------------------------------------------------------------------------------------


@settings(max_examples=usually(30, verify=300))
@given(triples)
def test_views_match_counting(rows: list[tuple[str, str, str]]) -> None:
    annotations = build(rows)
    for code, item in enumerate(annotations.items):
        of_item = [row for row in sorted(rows) if row[0] == item]
        start, stop = annotations.item_pointers[code : code + 2]
        assert rows_in(annotations)[start:stop] == of_item
        expected = [sum(row[2] == name for row in of_item) for name in annotations.classes]
        assert annotations.counts[code].tolist() == expected
    loads = [sum(row[1] == annotator for row in rows) for annotator in annotations.annotators]
    assert annotations.annotator_load.tolist() == loads
    pairs = sorted({row[:2] for row in rows})
    assert annotations.n_pairs == len(pairs)
    assert annotations.pair.tolist() == [pairs.index(row[:2]) for row in sorted(rows)]


# ---- parts --------------------------------------------------------------------------------------------


def test_take_items() -> None:
    items = pa.table({"item": ["i1", "i2"], "text": ["one", "two"]})
    gold = pa.table({"item": ["i1"], "label": ["x"]})
    part = build(items=items, gold=gold).take_items(np.array([1, 0, 1]))
    assert list(part.items) == ["i2", "i1", "i2"]
    assert part.item.tolist() == [0, 0, 1, 1, 1, 2, 2]
    assert list(part.item_column("text")) == ["two", "one", "two"]
    assert part.gold is not None
    assert part.gold.tolist() == [-1, 0, -1]
    assert list(part.annotators) == ["ann", "bob", "cat"]


def test_indexing() -> None:
    annotations = build()
    assert rows_in(annotations[1:]) == rows_in(annotations[-1]) == sorted(ROWS)[3:]
    assert rows_in(annotations[np.array([False, True])]) == sorted(ROWS)[3:]
    empty = annotations[:0]
    assert empty.n_labels == empty.n_pairs == empty.split_labels(0.5)[0].n_labels == 0
    assert empty.class_vocabulary == Vocabulary(["x", "y"])
    assert (len(annotations), annotations.shape) == (2, (2,))
    for share in (0, 2):
        with pytest.raises(ParameterError, match="'test_size' parameter of split_labels"):
            annotations.split_labels(share)


@settings(max_examples=usually(25, verify=200))
@given(triples, st.integers(0, 5), st.sampled_from([0.2, 0.5]))
def test_split_labels(rows: list[Any], seed: int, share: float) -> None:
    annotations = build(rows)
    visible, hidden = annotations.split_labels(share, seed)
    assert sorted(rows_in(visible) + rows_in(hidden)) == sorted(rows)
    pairs = [{row[:2] for row in rows_in(part)} for part in (visible, hidden)]
    assert not pairs[0] & pairs[1]
    assert len(pairs[1]) == round(share * annotations.n_pairs)
    assert visible.item_vocabulary == hidden.item_vocabulary == annotations.item_vocabulary
    assert same(hidden, build(rows[::-1]).split_labels(share, seed)[1])


def test_split_items_by_column() -> None:
    items = pa.table({"item": ["i1", "i2", "i3", "i4"], "split": ["train", "test", "train", ""]})
    parts = build(items=items).split_items()
    assert {name: list(part.items) for name, part in parts.items()} == {"train": ["i1", "i3"], "test": ["i2"]}
    with pytest.raises(DissensusError, match="the item table has no column 'fold'; it has item, split"):
        build(items=items).split_items(column="fold")
    with pytest.raises(DissensusError, match="no item table was given"):
        build().split_items()


def test_split_items_by_shares() -> None:
    annotations = Annotations.from_counts(np.ones((10, 2), int))
    parts = annotations.split_items({"train": 0.5, "dev": 0.2, "test": 0.3}, seed=1)
    assert [len(part) for part in parts.values()] == [5, 2, 3]
    assert sorted(np.concatenate([part.items for part in parts.values()])) == list(range(10))
    again = annotations.split_items({"train": 0.5, "dev": 0.2, "test": 0.3}, seed=1)
    assert all(same(parts[name], again[name]) for name in parts)
    with pytest.raises(ParameterError, match="'shares' parameter of split_items"):
        annotations.split_items({"train": 0.8, "test": 0.4})


# ---- counts -------------------------------------------------------------------------------------------


def test_from_counts() -> None:
    annotations = Annotations.from_counts([[0, 2], [3, 1]], items=["b", "a"], classes=["yes", "no"])
    assert list(annotations.items) == ["a", "b"]
    assert list(annotations.classes) == ["yes", "no"]
    assert annotations.counts.tolist() == [[3, 1], [0, 2]]
    assert annotations.anonymous
    assert annotations.n_pairs == annotations.n_labels == 6
    assert annotations.annotator.tolist() == [0, 1, 2, 3, 0, 1]
    assert annotations.notes == ("class counts do not name annotators: only models of items apply",)


@pytest.mark.parametrize(
    ("counts", "settings", "message"),
    [
        ([[1, 0], [0.5, 1]], {}, "row 1: class counts must be non-negative integers"),
        ([[np.nan, 1]], {}, "row 0: class counts must be non-negative integers"),
        ([["x", 1]], {}, "class counts must be non-negative integers"),
        ([1, 2], {}, r"must be an \(items, classes\) table; got shape \(2,\)"),
        ([[0, 0]], {}, "there is no label in the class counts"),
        ([[1e12, 0]], {}, "more than 2 billion"),
        ([[1, 0]], {"classes": ["a"]}, "1 items and 1 classes do not match a 1 × 2 table"),
        ([[1, 0], [1, 0]], {"items": ["a", "a"]}, "row 1: item 'a' occurs twice"),
    ],
)
def test_invalid_counts_are_rejected(counts: Any, settings: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Annotations.from_counts(counts, **settings)


# ---- side tables --------------------------------------------------------------------------------------


def test_items_without_labels_are_added_and_noted() -> None:
    items = pa.table({"item": ["i3", "i1", "i0"], "text": ["three", "one", "zero"]})
    annotations = build(items=items)
    assert list(annotations.items) == ["i0", "i1", "i2", "i3"]
    assert list(annotations.item_column("text")) == ["zero", "one", None, "three"]
    assert rows_in(annotations) == sorted(ROWS)
    assert annotations.counts.sum(axis=1).tolist() == [0, 3, 2, 0]
    notes = "2 items of the item table have no label", "1 item has no row in the item table"
    assert annotations.notes == notes


def test_items_joined_later_keep_gold_and_order() -> None:
    gold = pa.table({"item": ["i2"], "label": ["x"]})
    part = build(gold=gold).take_items(np.array([1, 0]))
    joined = part.with_tables(items=pa.table({"item": ["i0", "i1", "i2"]}))
    assert list(joined.items) == ["i2", "i1", "i0"]
    assert joined.gold is not None
    assert joined.gold.tolist() == [0, -1, -1]
    assert rows_in(joined) == rows_in(part)


def test_annotator_table() -> None:
    table = pa.table({"annotator": ["zoe", "cat", "ann"], "age": [30, 40, 50]})
    annotations = build(annotators=table)
    assert annotations.annotator_column("age").tolist()[0] == 50
    assert np.isnan(annotations.annotator_column("age")[1])
    dropped, absent = "gave no label and is dropped", "1 annotator has no row in the annotator table"
    assert annotations.notes == (f"1 annotator of the annotator table {dropped}", absent)
    with pytest.raises(DataError, match="the labels do not name annotators"):
        Annotations.from_counts([[1, 2]]).with_tables(annotators=table)


def test_invalid_side_tables_are_rejected() -> None:
    assert list(build(items={"item": [1, 2]}).items) == ["1", "2", "i1", "i2"]
    repeated = {"annotator": ["ann", "ann"]}
    for name, table, message in (
        ("items", {"item": ["i1", "i1"]}, "item table row 1: item 'i1' occurs twice"),
        ("items", {"item": ["i1", ""]}, "item table row 1: the item is blank"),
        ("annotators", repeated, "annotator table row 1: annotator 'ann' occurs twice"),
        ("gold", {"item": ["i1", "i1"], "label": ["x", "y"]}, "item 'i1' has two gold labels, 'x' and 'y'"),
        ("gold", {"item": [None], "label": ["x"]}, "gold table row 0: the item is blank"),
    ):
        with pytest.raises(DataError, match=message):
            build(**{name: table})
    for name, table, rule in (
        ("items", ["a", "b"], "a table whose first column holds the ids. Got 'list'"),
        ("annotators", "people.csv", "a table whose first column holds the ids. Got 'str'"),
        ("gold", {"item": ["a"]}, "a table whose first column holds the ids and whose second the labels."),
    ):
        with pytest.raises(ParameterError, match=f"The '{name}' parameter of Annotations must be {rule}"):
            build(**{name: table})


def test_gold_table() -> None:
    annotations = build(gold={"item": ["i2", "i9", "i1", "i2"], "label": ["y", "x", " ", "y"]})
    assert annotations.gold.tolist() == [-1, 1]  # type: ignore[union-attr]
    assert annotations.notes == ("1 gold label is for items that are not in the data and is dropped",)
    # gold can add a class
    gold = {"item": ["i1"], "label": ["a"]}
    annotations = build(gold=gold)
    assert list(annotations.classes) == ["a", "x", "y"]
    assert rows_in(annotations) == sorted(ROWS)
    assert annotations.gold.tolist() == [0, -1]  # type: ignore[union-attr]
    note = "gold has classes that no annotator used: 'a' (1 item); annotators used 'x', 'y'"
    assert annotations.notes == (note,)
    with pytest.raises(DataError, match="gold table row 0: label 'a' is not in the label set"):
        build(gold=gold, classes=["y", "x"])
    assert list(build(classes=["y", "x"]).with_tables(gold=gold).classes) == ["y", "x", "a"]


def test_likely_typos_in_gold_are_rejected() -> None:
    animals = Annotations.from_arrays(["i", "j"], ["a", "a"], ["cat", "dog"])
    for typo in ("kat", "Cat", "cta", "ct", "cats", "c at"):
        with pytest.raises(DataError, match=rf"row 0: gold has '{typo}' \(2 items\), a class that no"):
            animals.with_tables(gold={"item": ["i", "j"], "label": [typo, typo]})
    for other in ("bird", "cow", ""):
        animals.with_tables(gold={"item": ["i"], "label": [other]})
    declared = Annotations.from_arrays(["i"], ["a"], ["cat"], classes=["cat", "kat"])
    assert declared.with_tables(gold={"item": ["i"], "label": ["kat"]}).gold.tolist() == [1]
    for used, gold in (("a", "b"), ("no", "on"), ("level 1", "level 2"), ("15", "16"), (3, 4), ("yes", "no")):
        graded = Annotations.from_arrays(["i"], ["a"], [used])
        assert graded.with_tables(gold={"item": ["i"], "label": [gold]}).n_classes == 2


def test_side_tables_of_another_type() -> None:
    numbered = Annotations.from_arrays([1, 2], ["a", "b"], [0, 1])
    gold = pa.table({"item": ["1"], "label": ["1"]})
    assert numbered.with_tables(gold=gold).gold.tolist() == [1, -1]  # type: ignore[union-attr]
    with pytest.raises(DataError, match="some items are of type string, others int64"):
        numbered.with_tables(items=pa.table({"item": ["x"]}))
    with pytest.raises(DataError, match="some labels are of type string, others int64"):
        numbered.with_tables(gold=pa.table({"item": [1], "label": ["yes"]}))


def test_side_tables_of_every_form() -> None:
    ids, gold = {"item": ["a", "b", "c"], "text": ["x", "y", "z"]}, {"item": ["a"], "label": ["1"]}
    for make in (pa.table, pd.DataFrame):
        labels = Annotations.from_arrays(["a", "b"], ["u", "v"], ["1", "2"], items=make(ids), gold=make(gold))
        assert labels.items.tolist() == ["a", "b", "c"]
        assert labels.item_column("text").tolist() == ["x", "y", "z"]
        assert labels.gold.tolist() == [0, -1, -1]  # type: ignore[union-attr]


def test_gold_labels_of_other_items_add_no_class() -> None:
    labels = Annotations.from_arrays(["i1", "i2"], ["a", "b"], ["x", "y"])
    gold = {"item": ["i1", "other"], "label": ["x", "unknown"]}
    assert labels.with_tables(gold=gold).classes.tolist() == ["x", "y"]
    with pytest.raises(DataError, match="no gold label is for an item of the labels, whose ids"):
        labels.with_tables(gold={"item": ["other"], "label": ["x"]})
