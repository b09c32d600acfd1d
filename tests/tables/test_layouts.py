"""Long and wide tables, counts, side tables, and notes on labels."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

import dissensus as ds
from dissensus.errors import DataError, DissensusError, ParameterError
from tests.helpers.reading import HEADER, ROWS, as_csv, rows_of, with_warnings


def test_label_outside_the_declared_set(write: Callable[..., Path]) -> None:
    path = write(HEADER + 'a,b,"yes"\n\nc,d,mabye\n')
    line = r"line 4: label 'mabye' is not in the label set; add it with classes="
    with pytest.raises(DataError, match=line):
        ds.read_annotations(path, classes=["no", "yes"])
    assert list(ds.read_annotations(path, classes=["yes", "mabye", "no"]).classes) == ["yes", "mabye", "no"]


def test_repeated_labels(write: Callable[..., Path]) -> None:
    path = write(HEADER + "a,b,x\nc,d,x\na,b,y\n")
    with pytest.raises(DataError, match=r"votes\.csv line 4: annotator 'b' labelled item 'a' more than once"):
        ds.read_annotations(path, duplicates="error")
    assert rows_of(ds.read_annotations(path, duplicates="last")) == [("a", "b", "y"), ("c", "d", "x")]


LONG = "The service was slow and the soup was cold, number {}"


def with_texts(name: str) -> pd.DataFrame:
    pairs = [(i, a) for i in range(4) for a in range(3)]
    rows = [(i, f"r{a}", "xy"[(i + a) % 2], LONG.format(i), f"remark {i} {a}", "de") for i, a in pairs]
    return pd.DataFrame(rows, columns=["item", "annotator", "label", name, "why", "lang"])


@pytest.mark.parametrize("name", ["text", "tweet", "passage"])
@pytest.mark.parametrize("kind", ["pandas", "csv", "jsonl", "parquet"])
def test_text_of_a_long_table(name: str, kind: str, tmp_path: Path) -> None:
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


def test_text_that_differs_within_items() -> None:
    frame = with_texts("text")
    labels, notes = with_warnings(lambda: ds.read_annotations(frame, text_column="why"), __file__)
    assert labels.item_table is not None
    assert labels.item_table["why"].to_pylist() == [f"remark {i} 0" for i in range(4)]
    text = "'why' differs within 4 of 4 items, and the first text of each is used"
    assert any(text in note for note in notes)
    with pytest.raises(DataError, match="there is no column 'txt'; did you mean 'text'"):
        ds.read_annotations(frame, text_column="txt")


WIDE = "item,text,Ann1,Ann2,Ann3\n1,hello,yes,no,\n2,there,, ,\n3,you,no,,yes\n"


WIDE_ROWS = [("1", "Ann1", "yes"), ("1", "Ann2", "no"), ("3", "Ann1", "no"), ("3", "Ann3", "yes")]


@pytest.mark.parametrize("layout", [None, "wide"])
def test_wide_table(layout: Any, write: Callable[..., Path]) -> None:
    annotations = ds.read_annotations(write(WIDE), layout=layout)
    assert rows_of(annotations) == WIDE_ROWS
    assert list(annotations.items) == ["1", "2", "3"]
    assert list(annotations.item_column("text")) == ["hello", "there", "you"]
    assert "read as a wide table with 3 annotator columns" in annotations.notes
    assert "1 item of the item table has no label" in annotations.notes


def test_wide_table_with_any_first_column(write: Callable[..., Path]) -> None:
    text = "dish,Ana,Ben,Cleo\nsoup,good,good,bad\npie,bad,,bad\nrice,good,bad,good\n"
    question = (
        r"Ana, Ben, Cleo may be annotators, or questions .*layout='wide' for annotators, or label='Ana' for"
    )
    with pytest.raises(DataError, match=question):
        ds.read_annotations(write(text))
    labels = ds.read_annotations(write(text), layout="wide")
    assert labels.items.tolist() == ["pie", "rice", "soup"]
    assert labels.annotators.tolist() == ["Ana", "Ben", "Cleo"]
    assert labels.n_labels == 8
    assert "read as a wide table with 3 annotator columns" in labels.notes
    for other in (
        "who,what,how\nAna,good,good\nAna,bad,good\n",  # the first column has an id twice: no items
        "dish,Ana,Ben\nsoup,4,5\npie,5,4\n",  # ratings or counts
        "dish,Ana,Ben\nsoup,hot,red\npie,cold,blue\n",  # no word in both
    ):
        with pytest.raises(DataError, match="no annotator and no label column found"):
            ds.read_annotations(write(other))


def test_remark_columns_are_not_annotators() -> None:
    wide = pd.DataFrame({
        "item": ["a", "b", "c"], "Ann": ["yes", "no", "yes"], "Bob": ["no", "no", "yes"],
        "Notes": ["", "hm", ""],
        "thoughts": ["I could not decide on this one", "", "Rather clear to me, I think"],
    })  # fmt: skip
    labels = ds.read_annotations(wide, layout="wide")
    assert labels.annotators.tolist() == ["Ann", "Bob"]
    assert labels.item_table is not None
    assert labels.item_table.column_names == ["item", "Notes", "thoughts"]
    assert ds.read_annotations(wide, annotator=["Bob"]).annotators.tolist() == ["Bob"]
    assert ds.read_annotations(wide, annotator=["Ann", "Notes"]).annotators.tolist() == ["Ann", "Notes"]


REVIEWS = [f"what guest number {n} wrote about the room" for n in range(4)]


REVIEWED = [(0, "good", "bad", ""), (1, "bad", "", "bad"), (2, "", "good", "good"), (3, "bad", "bad", "good")]


@pytest.mark.parametrize("text", ["text", "review", "document"])
def test_texts_under_any_name_in_wide_tables(text: str, write: Callable[..., Path]) -> None:
    rows = [(f"r{n}", REVIEWS[n], *labels) for n, *labels in REVIEWED]
    path = write(as_csv(rows, header=f"review_id {text} ana ben carl"))
    expected = [
        (f"r{n}", annotator, label)
        for n, *labels in REVIEWED
        for annotator, label in zip(("ana", "ben", "carl"), labels, strict=True)
        if label
    ]
    for setting in ({"layout": "wide"}, {"format": "wide"}):
        annotations = ds.read_annotations(path, **setting)
        assert rows_of(annotations) == expected
        assert list(annotations.item_column(text)) == REVIEWS


@pytest.mark.parametrize("text_column", [None, "body"])
@pytest.mark.parametrize(
    ("kind", "votes"), [("wide", "ana,ben\n{}yes,no\n{}no,\n"), ("counts", "no,yes\n{}1,1\n{}1,0\n")]
)
def test_layout_given_as_format(
    kind: str, votes: str, text_column: str | None, write: Callable[..., Path]
) -> None:
    first, second = "a,train,a long story about a house,x.org,", "b,test,another tale of some other place,,"
    path = write("item,split,body,url," + votes.format(first, second))
    named: dict[str, Any] = {"layout": kind}
    for setting in (named, {"format": kind}, named | {"format": kind}, named | {"format": "csv"}):
        annotations = ds.read_annotations(path, text_column=text_column, **setting)
        assert annotations.counts.tolist() == [[1, 1], [1, 0]]
        assert annotations.item_table is not None
        names = ["item", "split", "text" if text_column else "body", "url"]
        assert annotations.item_table.column_names == names
        assert list(annotations.item_table.to_pylist()[0].values()) == first.split(",")[:-1]
        assert list(annotations.split_items()) == ["train", "test"]
    other = "counts" if kind == "wide" else "wide"
    with pytest.raises(ParameterError, match=f"'layout' parameter .* must be '{other}', as the format is"):
        ds.read_annotations(path, layout=kind, format=other)


def test_wide_ratings_need_annotator_names(write: Callable[..., Path]) -> None:
    rows = [("a", "rater1", "1"), ("a", "rater2", "5"), ("b", "rater1", "2")]
    assert rows_of(ds.read_annotations(write("item,rater1,rater2\na,1,5\nb,2,\n"))) == rows


def test_long_labels_are_not_texts(write: Callable[..., Path]) -> None:
    first, second = "neither agree nor disagree", "agree with all of it somewhat"
    annotations = ds.read_annotations(
        write(f"item,x,y,z\na,{first},{second},\nb,{second},{first},{first}\n"), layout="wide"
    )
    assert annotations.n_labels == 5
    single_row = ds.read_annotations(write(f"item,x,y\na,{first},{second}\n"), layout="wide")
    assert list(single_row.annotators) == ["x", "y"]


def test_other_layouts_are_suggested(write: Callable[..., Path]) -> None:
    rated = write("review_id,score,ana,ben\na,9,1,2\nb,7,2,2\n")
    with pytest.raises(DataError, match=r"no item and no annotator column found; .*layout='wide' if"):
        ds.read_annotations(rated)
    with pytest.raises(DataError, match="no item column found") as caught:
        ds.read_annotations(write("x,y,worker,label\na,1,b,c\n"))
    assert "layout=" not in str(caught.value)


def test_ratings_or_counts_is_asked(write: Callable[..., Path]) -> None:
    path = write("item,x,y\na,0,3\nb,2,1\n")
    with pytest.raises(DataError, match=r"no annotator and no label column found; .* layout='wide'"):
        ds.read_annotations(path)
    wide, counts = (ds.read_annotations(path, layout=layout) for layout in ("wide", "counts"))
    assert rows_of(wide) == [("a", "x", "0"), ("a", "y", "3"), ("b", "x", "2"), ("b", "y", "1")]
    assert counts.counts.tolist() == [[0, 3], [2, 1]]


FRAME = pd.DataFrame({"task": [10, 2, 2], "worker": ["b", "a", "b"], "label": [1, 0, 1]})


def test_wide_frame_keeps_types() -> None:
    wide = FRAME.pivot(index="task", columns="worker", values="label")
    assert rows_of(ds.read_annotations(wide, layout="wide")) == [(2, "a", 0), (2, "b", 1), (10, "b", 1)]
    numbered = pd.DataFrame({"item": ["i", "j"], 1: ["x", "y"], 2: [None, "x"]})
    expected: list[Any] = [("i", 1, "x"), ("j", 1, "y"), ("j", 2, "x")]
    assert rows_of(ds.read_annotations(numbered, layout="wide")) == expected
    rated = pd.DataFrame({"item": ["i", "j"], "a": [1, 2], "b": [0.5, None]})
    expected = [("i", "a", 1.0), ("i", "b", 0.5), ("j", "a", 2.0)]
    assert rows_of(ds.read_annotations(rated, layout="wide")) == expected
    mixed = pd.DataFrame({"item": ["i"], "a": [1], "b": ["x"]})
    with pytest.raises(DataError, match="its label columns are of types"):
        ds.read_annotations(mixed, layout="wide")


def test_class_counts(write: Callable[..., Path]) -> None:
    annotations = ds.read_annotations(write("item,text,no,yes\nb,two,2,\na,one,1,3.0\n"), layout="counts")
    assert annotations.counts.tolist() == [[1, 3], [0 + 2, 0]]
    assert list(annotations.items) == ["a", "b"]
    assert list(annotations.item_column("text")) == ["one", "two"]
    assert annotations.anonymous
    ordered = ds.read_annotations(write("item,no,yes\na,1,3\n"), layout="counts", classes=["yes", "no"])
    assert list(ordered.classes) == ["yes", "no"]
    assert ordered.counts.tolist() == [[3, 1]]
    frame = ds.read_annotations(pd.crosstab(FRAME.task, FRAME.label), layout="counts")
    assert frame.counts.tolist() == [[1, 1], [0, 1]]
    assert frame.classes.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("text", "setting", "message"),
    [
        ("item,no,yes\na,1,٣٣x\n", {}, "line 2: the count of 'yes' is '٣٣x'; give a whole number"),
        ("item,no,yes\na,1,0.5\n", {}, "line 2: class counts must be non-negative integers"),
        ("item,no,yes\na,1,3e9\n", {}, "add up to 3e\\+09 labels, more than 2 billion"),
        ("item,no,yes\na,1,x\n", {}, "line 2: the count of 'yes' is 'x'; give a whole number"),
        ("item,no,yes\na,1,1\n\nb,1,-1\n", {}, "line 4: class counts must be non-negative integers"),
        ("item,no,yes\na,1,1\na,1,1\n", {}, "line 3: item 'a' occurs twice"),
        ("item,no,yes\na,0,0\n", {}, "there is no label in the class counts"),
        ("item,no,yes\na,1,1\n", {"classes": ["no"]}, "column 'yes' is not in the label set"),
        ("item,no,yes\na,1,1\n", {"classes": ["no", "yes", "?"]}, r"no column for the class '\?'"),
    ],
)
def test_invalid_class_counts(text: str, setting: Any, message: str, write: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match=message):
        ds.read_annotations(write(text), layout="counts", **setting)


def test_side_tables(write: Callable[..., Path]) -> None:
    path = write(as_csv(ROWS))
    items = write("item,text,split\nq2,two,test\nq1,one,train\nq9,nine,train\n", "items.csv")
    annotators = write("worker_id,age\nann,30\nzoe,40\n", "annotators.csv")
    gold = write("item,label\nq1,none\nq8,x\n", "gold.csv")
    bare = ds.read_annotations(path)
    assert (bare.item_table, bare.annotator_table, bare.gold) == (None, None, None)
    full = ds.read_annotations(path, items=items, annotators=annotators, gold=gold)
    assert list(full.items) == ["q1", "q2", "q3", "q9"]
    assert list(full.item_column("text")) == ["one", "two", None, "nine"]
    assert list(full.annotator_column("age")) == ["30", None]
    assert full.item_table is not None
    assert full.annotator_table is not None
    assert (full.item_table.column_names[0], full.annotator_table.column_names[0]) == ("item", "annotator")
    assert full.gold is not None
    assert [full.classes[code] for code in full.gold if code >= 0] == ["none"]
    assert full.notes == (
        "'NA' may mean a missing label; if so, use missing_words=['NA']",
        "1 item of the item table has no label",
        "1 item has no row in the item table",
        "1 annotator of the annotator table gave no label and is dropped",
        "1 annotator has no row in the annotator table",
        "1 gold label is for items that are not in the data and is dropped",
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("items", "item,text\nq1,a\n\nq1,b\n", "side.csv line 4: item 'q1' occurs twice"),
        ("items", "item,text\n,a\n", "side.csv line 2: the item is blank"),
        ("items", "text\na\n", "side.csv: no item column found"),
        ("items", "item,text\nq1,a,b\n", "side.csv line 2: 3 fields but the header has 2"),
        ("annotators", "annotator,age\nann,1\nann,2\n", "side.csv line 3: annotator 'ann' occurs twice"),
        ("gold", "item,label\nq1,x\nq1,y\n", "side.csv line 3: item 'q1' has two gold labels, 'x' and 'y'"),
        ("gold", "item,other,more\nq1,x,y\n", "side.csv: no gold column found"),
    ],
)
def test_bad_side_tables(name: str, text: str, message: str, write: Callable[..., Path]) -> None:
    path, side = write(as_csv(ROWS)), write(text, "side.csv")
    with pytest.raises(DataError) as error:
        ds.read_annotations(path, **{name: side})
    assert message in str(error.value)


def test_gold_outside_the_classes(write: Callable[..., Path]) -> None:
    path, gold = write(HEADER + "a,b,x\n"), write("item,label\na,z\n", "gold.csv")
    with pytest.raises(DataError, match=r"gold\.csv line 2: label 'z' is not in the label set"):
        ds.read_annotations(path, gold=gold, classes=["x", "y"])
    slip = write(HEADER + "a,b,Feature\n", "slip.csv")
    with pytest.raises(DataError, match=r"line 2: label 'Feature' .*did you mean 'feature'\? If not, add it"):
        ds.read_annotations(slip, classes=["feature", "bug"])
    gold = write("item,label\na,bug\nb,featuer\n", "gold.csv")
    with pytest.raises(DataError, match=r"gold\.csv line 3: gold has 'featuer' \(1 item\), a class"):
        ds.read_annotations(write(HEADER + "a,b,feature\nb,b,bug\n"), gold=gold)


def test_notes_on_similar_ids(write: Callable[..., Path]) -> None:
    text = HEADER + "a,ann,yes\nA,ann,Yes \nb,ann,no\n"
    annotations = ds.read_annotations(write(text))
    assert annotations.n_items == annotations.n_classes == 3
    alike, same = "differ from another only by white space or case", "if they mean the same"
    assert annotations.notes == (
        f"2 items {alike} (such as 'A' and 'a') and count as different items; {same}, correct the data",
        f"2 classes {alike} (such as 'Yes' and 'yes') and count as different classes; {same}, "
        "use ignore_case=True",
        "there is only one annotator: 'ann'",
    )
    assert ds.read_annotations(write(HEADER + "a,b,x\na,c,x\n")).notes == ("there is only one class: 'x'",)
    assert ds.read_annotations(write(as_csv(ROWS))).notes == (
        "'NA' may mean a missing label; if so, use missing_words=['NA']",
    )


def messy() -> pd.DataFrame:
    label = ["OFFENSIVE", "offensive", "Offensive ", "offensive", "N/A", "fine", "FINE", np.nan, "fine", "-"]
    return pd.DataFrame({"item": np.repeat(np.arange(5), 2), "annotator": ["a", "b"] * 5, "label": label})


def test_notes_are_warnings() -> None:
    labels, notes = with_warnings(lambda: ds.read_annotations(messy()), __file__)
    assert notes == list(dict.fromkeys(labels.notes))
    assert any("1 row has no label" in note for note in notes)
    assert any("use missing_words=['-', 'N/A']" in note for note in notes)
    assert any("use ignore_case=True" in note for note in notes)


def test_ignore_case() -> None:
    read = ds.read_annotations(messy(), ignore_case=True, missing_words=["N/A", "-"])
    assert read.classes.tolist() == ["fine", "offensive"]
    assert read.n_labels == 7
    declared = ds.read_annotations(
        messy(), ignore_case=True, missing_words="N/A,-", classes=["Offensive", "Fine", "other"]
    )
    assert declared.classes.tolist() == ["Offensive", "Fine", "other"]
    gold = pd.DataFrame({"item": [0, 1], "label": ["FINE", "offensiVe"]})
    read = ds.read_annotations(messy(), ignore_case=True, missing_words="N/A,-", gold=gold)
    assert read.classes.tolist() == ["fine", "offensive"]
    assert read.gold is not None
    assert read.gold[:2].tolist() == [0, 1]
    sets = pd.DataFrame(
        {"item": [1, 1, 2], "annotator": ["a", "b", "a"], "label": ["Joy;fear", "joy", "joy"]}
    )
    both = ds.read_annotations(sets, separator=";", ignore_case=True)
    assert both.classes.tolist() == ['["fear", "joy"]', '["joy"]']
    with pytest.raises(DataError, match="label 'fine' is not in the label set"):
        ds.read_annotations(messy(), ignore_case=True, missing_words="N/A,-", classes=["offensive"])


def test_question_names_the_label_column(write: Callable[..., Path]) -> None:
    path = write("item,annotator,mood,topic\na,b,x,y\n")
    assert rows_of(ds.read_annotations(path, question="topic")) == [("a", "b", "y")]
    with pytest.raises(DissensusError, match="there is no column 'moods'; did you mean 'mood'"):
        ds.read_annotations(path, question="moods")


# ---- columns whose names are right and whose values are not ------------------------------------------------


def awkward(**columns: Any) -> pd.DataFrame:
    """Return 60 rows: 20 items with three answers each, and the given columns."""
    n = np.arange(60)
    people = {"worker_id": [f"w{k}" for k in (n * 7) % 11], "answer": np.where(n % 4 == 0, "yes", "no")}
    return pd.DataFrame({"task": [f"t{k}" for k in n // 3], **people, **columns})


AWKWARD = {
    "a number of annotators": {"annotators": np.full(60, 3)},
    "numbers of raters that differ by item": {"raters": 3 + np.arange(60) // 30},
    "the author": {"user_id": [f"u{n // 6}" for n in range(60)]},
    "a proposed label": {"label": np.where(np.arange(60) // 3 % 2, "yes", "no")},
    "an answer in words": {"response": [f"because of reason number {n}" for n in range(60)]},
}


@pytest.mark.parametrize("columns", AWKWARD.values(), ids=AWKWARD)
def test_values_tell_which_of_several_columns_is_meant(columns: dict[str, Any]) -> None:
    frame = awkward(**columns)
    labels = ds.read_annotations(frame)
    assert labels.n_items == 20
    assert labels.columns_read["annotator"] == "worker_id"
    assert labels.columns_read["label"] == "answer"
    (name,) = columns
    assert any(name in note and "if that is wrong" in note for note in labels.notes)
    role = "label" if name in ("label", "response") else "annotator"
    assert ds.read_annotations(frame, **{role: name}).columns_read[role] == name


def test_documents_with_sentences_and_ids_of_rows_are_asked_about() -> None:
    n = np.arange(60)
    sentences = pd.DataFrame({
        "document_id": n // 20, "sentence_id": n // 2, "worker": [f"w{k % 2}" for k in n], "label": n % 3 % 2,
    })  # fmt: skip
    with pytest.raises(DataError, match="item='sentence_id', or item='document_id'"):
        ds.read_annotations(sentences)
    assert ds.read_annotations(sentences, item="sentence_id").n_items == 30
    rows = awkward(id=n, text=[f"the same remark, number {k // 3}" for k in n]).drop(columns="task")
    with pytest.raises(DataError, match="'id' is different in every row and 'text' is not"):
        ds.read_annotations(rows)


@pytest.mark.parametrize("name", ["gold", "majority", "final", "remark", "lang"])
def test_other_columns_of_wide_tables_are_no_annotators(name: str) -> None:
    wide = pd.DataFrame({"item": [*"abcd"], "rater_1": [*"xyxy"], "rater_2": [*"xxyy"], name: [*"xxxy"]})
    assert ds.read_annotations(wide).annotators.tolist() == ["rater_1", "rater_2"]


def test_aspects_are_asked_about() -> None:
    aspects = pd.DataFrame({"item": [*"abcd"], "food": [*"xyxy"], "service": [*"xxyy"], "price": [*"xxxy"]})
    with pytest.raises(DataError, match="food, service, price may be annotators, or questions"):
        ds.read_annotations(aspects)
