"""Where people stumbled who read tables of their own with nothing but the documentation."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyarrow import parquet

import dissensus as ds
from dissensus.errors import DataError, DissensusWarning

LONG = "The service was slow and the soup was cold, number {}"


def notes_of(read: Callable[[], ds.Annotations]) -> tuple[ds.Annotations, list[str]]:
    """The labels, and the warnings that reading them gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        labels = read()
    assert all(one.category is DissensusWarning for one in caught)
    assert {one.filename for one in caught} <= {__file__}
    return labels, [str(one.message) for one in caught]


def triples(labels: ds.Annotations) -> list[tuple[str, str, str]]:
    rows = zip(
        labels.items[labels.item],
        labels.annotators[labels.annotator],
        labels.classes[labels.label],
        strict=True,
    )
    return [(str(item), str(who), str(label)) for item, who, label in rows]


# ---- notes are warnings -------------------------------------------------------------------------------


def messy() -> pd.DataFrame:
    label = ["OFFENSIVE", "offensive", "Offensive ", "offensive", "N/A", "fine", "FINE", np.nan, "fine", "-"]
    return pd.DataFrame({"item": np.repeat(np.arange(5), 2), "annotator": ["a", "b"] * 5, "label": label})


def test_every_note_is_a_warning_once_with_its_remedy() -> None:
    labels, said = notes_of(lambda: ds.read_annotations(messy()))
    assert said == list(dict.fromkeys(labels.notes))
    assert any("1 row has no label" in note for note in said)
    assert any("say missing_words=['-', 'N/A']" in note for note in said)
    assert any("say ignore_case=True" in note for note in said)


def test_a_model_that_is_given_a_frame_says_it_too() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ds.MajorityVote().fit(messy())
    remedies = [str(one.message) for one in caught]
    assert any("say read_annotations(data, ignore_case=True)" in note for note in remedies)
    assert {one.filename for one in caught} == {__file__}


def test_case_is_ignored_on_request() -> None:
    read = ds.read_annotations(messy(), ignore_case=True, missing_words=["N/A", "-"])
    assert read.classes.tolist() == ["fine", "offensive"]
    assert read.n_labels == 7
    declared = ds.read_annotations(
        messy(), ignore_case=True, missing_words="N/A,-", classes=["Offensive", "Fine", "other"]
    )
    assert declared.classes.tolist() == ["Offensive", "Fine", "other"]
    gold = pd.DataFrame({"item": [0, 1], "label": ["FINE", "offensiVe"]})
    known = ds.read_annotations(messy(), ignore_case=True, missing_words="N/A,-", gold=gold)
    assert known.classes.tolist() == ["fine", "offensive"]
    assert known.gold is not None
    assert known.gold[:2].tolist() == [0, 1]
    sets = pd.DataFrame(
        {"item": [1, 1, 2], "annotator": ["a", "b", "a"], "label": ["Joy;fear", "joy", "joy"]}
    )
    both = ds.read_annotations(sets, separator=";", ignore_case=True)
    assert both.classes.tolist() == ['["fear", "joy"]', '["joy"]']
    with pytest.raises(DataError, match="label 'fine' is not in the label set"):
        ds.read_annotations(messy(), ignore_case=True, missing_words="N/A,-", classes=["offensive"])


# ---- the text of a long table -------------------------------------------------------------------------


def with_texts(name: str) -> pd.DataFrame:
    rows = [
        (i, f"r{a}", "xy"[(i + a) % 2], LONG.format(i), f"remark {i} {a}", "de")
        for i in range(4)
        for a in range(3)
    ]
    return pd.DataFrame(rows, columns=["item", "annotator", "label", name, "why", "lang"])


@pytest.mark.parametrize("name", ["text", "tweet", "passage"])
@pytest.mark.parametrize("kind", ["pandas", "csv", "jsonl", "parquet"])
def test_the_text_of_a_long_table_is_in_the_item_table(name: str, kind: str, tmp_path: Path) -> None:
    source: Any = with_texts(name)
    if kind != "pandas":
        path = tmp_path / f"votes.{kind}"
        table = pa.Table.from_pandas(source, preserve_index=False)
        if kind == "csv":
            source.to_csv(path, index=False)
        elif kind == "jsonl":
            source.to_json(path, orient="records", lines=True)
        else:
            parquet.write_table(table, path)
        source = path
    labels = ds.read_annotations(source)
    assert labels.item_table is not None
    assert labels.item_table.column_names == ["item", "text", "lang"]
    assert labels.item_table["text"].to_pylist() == [LONG.format(i) for i in range(4)]
    assert labels.columns_read["text"] == name


def test_a_named_text_that_differs_within_items_is_said() -> None:
    labels, said = notes_of(lambda: ds.read_annotations(with_texts("text"), text_column="why"))
    assert labels.item_table is not None
    assert labels.item_table["why"].to_pylist() == [f"remark {i} 0" for i in range(4)]
    assert any(
        "'why' differs within 4 of 4 items, and the first text of each is taken" in note for note in said
    )
    with pytest.raises(DataError, match="there is no column 'txt'; did you mean 'text'"):
        ds.read_annotations(with_texts("text"), text_column="txt")


def test_a_table_of_three_columns_has_no_item_table() -> None:
    assert ds.read_annotations(with_texts("text")[["item", "annotator", "label"]]).item_table is None


# ---- lists in cells -----------------------------------------------------------------------------------

LISTS = {
    "id": ["a", "b"], "text": ["one", "two"], "annotators": [["x", "y"], ["x"]],
    "labels": [["p", "q"], ["q"]],
}  # fmt: skip
UNFOLDED = [("a", "x", "p"), ("a", "y", "q"), ("b", "x", "q")]


@pytest.mark.parametrize("kind", ["pandas", "polars", "arrow", "parquet", "jsonl", "folder", "dataset"])
def test_parallel_lists_are_one_row_per_label(kind: str, tmp_path: Path) -> None:
    table = pa.table(LISTS)
    source: Any = {"pandas": pd.DataFrame(LISTS), "polars": pl.DataFrame(LISTS), "arrow": table}.get(kind)
    if kind == "parquet":
        parquet.write_table(table, source := tmp_path / "set.parquet")
    elif kind == "folder":
        (source := tmp_path / "set").mkdir()
        parquet.write_table(table, source / "train-0.parquet")
    elif kind == "jsonl":
        source = tmp_path / "set.jsonl"
        source.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    elif kind == "dataset":
        source = pytest.importorskip("datasets").Dataset.from_dict(LISTS)
    labels = ds.read_annotations(source)
    assert triples(labels) == UNFOLDED
    assert labels.item_table is not None
    assert labels.item_table["text"].to_pylist() == ["one", "two"]


def test_class_names_of_a_dataset_are_read_from_one_file_too(tmp_path: Path) -> None:
    features = {"labels": {"feature": {"names": ["no", "yes"], "_type": "ClassLabel"}, "_type": "List"}}
    table = pa.table(LISTS | {"labels": [[0, 1], [-1]]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    parquet.write_table(table, tmp_path / "set.parquet")
    labels, said = notes_of(lambda: ds.read_annotations(tmp_path / "set.parquet"))
    assert triples(labels) == [("a", "x", "no"), ("a", "y", "yes")]
    assert any("1 row has no label" in note for note in said)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([["p"], ["q"]], r"row 0: the lists of annotators \('annotators'\) and labels \('labels'\) differ"),
        (["p", "q"], "'annotators' holds lists and 'labels' does not"),
    ],
)
def test_lists_that_do_not_fit_together_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ds.read_annotations(pd.DataFrame(LISTS | {"labels": labels}))


def test_lists_of_labels_without_lists_of_annotators_are_sets() -> None:
    frame = pd.DataFrame({"item": ["a", "a"], "annotator": ["x", "y"], "labels": [["p", "q"], ["q"]]})
    labels = ds.read_annotations(frame)
    assert (labels.label_type, labels.classes.tolist()) == ("multi", ['["p", "q"]', '["q"]'])


# ---- wide tables, sets and tags -----------------------------------------------------------------------


def test_notes_are_no_annotator_and_annotators_can_be_named() -> None:
    wide = pd.DataFrame({
        "item": ["a", "b", "c"], "Ann": ["yes", "no", "yes"], "Bob": ["no", "no", "yes"],
        "Notes": ["", "hm", ""],
        "thoughts": ["I could not decide on this one", "", "Rather clear to me, I think"],
    })  # fmt: skip
    labels = ds.read_annotations(wide)
    assert labels.annotators.tolist() == ["Ann", "Bob"]
    assert labels.item_table is not None
    assert labels.item_table.column_names == ["item", "Notes", "thoughts"]
    assert ds.read_annotations(wide, annotator=["Bob"]).annotators.tolist() == ["Bob"]
    assert ds.read_annotations(wide, annotator=["Ann", "Notes"]).annotators.tolist() == ["Ann", "Notes"]


def test_answers_with_a_separator_are_hinted_at() -> None:
    cells = ["joy; fear", "joy", "fear; anger", "anger", "joy; anger", "fear"]
    frame = pd.DataFrame({"item": [1, 1, 2, 2, 3, 3], "annotator": ["a", "b"] * 3, "label": cells})
    _, said = notes_of(lambda: ds.read_annotations(frame))
    assert any("may be sets; if so, say separator=';'" in note for note in said)
    _, said = notes_of(lambda: ds.read_annotations(frame.assign(label=["yes, surely", "no"] * 3)))
    assert not any("separator" in note for note in said)


@pytest.mark.parametrize(
    "cells", [["['joy', 'fear']", "['joy']", "[]"], ['["joy", "fear"]', '["joy"]', "[]"]]
)
def test_cells_written_as_lists_are_sets(cells: list[str], tmp_path: Path) -> None:
    frame = pd.DataFrame({"item": [1, 1, 2], "annotator": ["a", "b", "a"], "label": cells})
    frame.to_csv(tmp_path / "votes.csv", index=False)
    for source in (frame, tmp_path / "votes.csv"):
        labels, said = notes_of(lambda source=source: ds.read_annotations(source))  # type: ignore[misc]
        assert (labels.label_type, labels.classes.tolist()) == ("multi", ['["fear", "joy"]', '["joy"]', "[]"])
        assert "answers are read as sets of classes" in said
    mixed = ds.read_annotations(frame.assign(label=["[x]", "plain", "[x]"]))
    assert mixed.label_type == "nominal"


TAGS = pd.DataFrame({
    "item": [1, 1, 2, 2], "rater": ["a", "b", "a", "b"], "joy": [1, 0, 0, 1], "fear": [1, 0, 0, 0],
    "anger": [0, 1, 0, 0],
})  # fmt: skip


@pytest.mark.parametrize("kind", ["frame", "csv", "bool", "named"])
def test_a_column_of_0_and_1_per_tag_is_a_set(kind: str, tmp_path: Path) -> None:
    source: Any = TAGS
    if kind == "bool":
        source = TAGS.assign(**{tag: TAGS[tag].astype(bool) for tag in ("joy", "fear", "anger")})
    if kind == "csv":
        source = tmp_path / "tags.csv"
        TAGS.assign(text=TAGS["item"].map(LONG.format), Notes=["", "x", "", ""]).to_csv(source, index=False)
    named = ["joy", "fear", "anger"] if kind == "named" else None
    labels, said = notes_of(lambda: ds.read_annotations(source, label=named))
    expected = [
        ("1", "a", '["fear", "joy"]'),
        ("1", "b", '["anger"]'),
        ("2", "a", "[]"),
        ("2", "b", '["joy"]'),
    ]
    assert (labels.label_type, triples(labels)) == ("multi", expected)
    assert any("sets of the 3 tags with a column of 0 and 1 (joy, fear, anger)" in note for note in said)


def test_a_tag_is_0_or_1() -> None:
    with pytest.raises(DataError, match="row 2: 'joy' is '3'; a column per tag holds 0 or 1"):
        ds.read_annotations(TAGS.assign(joy=[1, 0, 3, 1]), label=["joy", "fear"])
    with pytest.raises(DataError, match="no label column found"):
        ds.read_annotations(TAGS.assign(joy=[1, 0, 3, 1]))


# ---- messages -----------------------------------------------------------------------------------------


def test_no_column_is_suggested_at_random() -> None:
    frame = pd.DataFrame({"item": [1, 2], "text": ["a", "b"], "platform": ["x", "x"], "label": ["p", "q"]})
    with pytest.raises(DataError) as refused:
        ds.read_annotations(frame)
    assert "annotator='" not in str(refused.value)
    assert "say which it is with annotator=" in str(refused.value)
    with pytest.raises(DataError, match="did you mean 'anotator'"):
        ds.read_annotations(frame.rename(columns={"platform": "anotator"}))
    with pytest.raises(DataError, match=r"read_annotations\(data, annotator=…\)"):
        ds.MajorityVote().fit(frame)


def test_the_note_on_gold_names_classes() -> None:
    votes = pd.DataFrame({"item": [1, 1, 2], "annotator": ["a", "b", "a"], "label": ["x", "y", "x"]})
    gold = pd.DataFrame({"item": [1, 2, 99], "label": ["x", "unheard", "x"]})
    _, said = notes_of(lambda: ds.read_annotations(votes, gold=gold))
    note = next(note for note in said if "gold has" in note)
    assert note.startswith(
        "gold has classes that no annotator used: 'unheard' (1 item); annotators used 'x', 'y'"
    )
