"""Columns found by their names, reported in notes, or asked for."""

from collections.abc import Callable
from pathlib import Path

import pytest

import dissensus as ds
from dissensus.errors import DataError
from tests.helpers.reading import as_csv, rows_of, write_file


@pytest.mark.parametrize(
    "header",
    [
        "task worker label",
        "Item_ID Rater Response",
        "question_id coder answer",
        "documentId UserID Class",
        "message_id worker_id label message",
        "example judge annotation annotation_id",
        "id annotator label",
        "id item annotator label",
    ],
)
def test_columns_are_found_by_their_usual_names(header: str, write: Callable[..., Path]) -> None:
    names = header.split()
    start = 1 if names[:2] == ["id", "item"] else 0
    row = [f"v{number}" for number in range(len(names))]
    annotations = ds.read_annotations(write(as_csv([tuple(row)], header=header)))
    assert rows_of(annotations) == [tuple(row[start : start + 3])]


def test_named_columns(write: Callable[..., Path]) -> None:
    path = write("a,b,c,label\n1,2,3,4\n")
    labels = ds.read_annotations(path, item="c", annotator=" B ", label="a")
    assert rows_of(labels) == [("3", "2", "1")]
    with pytest.raises(
        DataError, match=r"there is no column 'lable'; did you mean 'label'\? it has a, b, c, label"
    ):
        ds.read_annotations(path, item="a", annotator="b", label="lable")
    with pytest.raises(DataError, match="must be three columns, got a, a, label"):
        ds.read_annotations(path, item="a", annotator="a")
    with pytest.raises(DataError, match="a long table has one column per role"):
        ds.read_annotations(path, item="a", annotator=["b"], layout="long")


@pytest.mark.parametrize(
    ("columns", "chosen"),
    [
        ("essay,grader,score", {}),
        ("response_id,judge,verdict", {}),
        ("review,annotator,labels", {}),
        ("essay,who,score", {"annotator": "who"}),
        ("essay,who,what", {"annotator": "who", "label": "what"}),
    ],
)
def test_the_only_column_left_holds_the_items(
    write: Callable[..., Path], columns: str, chosen: dict[str, str]
) -> None:
    rows = "\na,ana,x\na,ben,y\nb,ana,x\n"
    annotations = ds.read_annotations(write(columns + rows), **chosen)
    assert rows_of(annotations) == [("a", "ana", "x"), ("a", "ben", "y"), ("b", "ana", "x")]
    item = columns.split(",")[0]
    assert any(note.startswith(f"read item from {item!r}, ") for note in annotations.notes)
    sets = ds.read_annotations(write(columns + rows), **chosen, separator="|")
    assert any(note.startswith(f"read item from {item!r}, ") for note in sets.notes)


@pytest.mark.parametrize("columns", ["essay,page,grader,score", "vote,grader,score", "gold,grader,score"])
def test_ambiguous_item_columns(write: Callable[..., Path], columns: str) -> None:
    with pytest.raises(DataError, match="no item column found"):
        ds.read_annotations(write(columns + "\n" + ",".join("abcd"[: columns.count(",") + 1]) + "\n"))


def test_messages_stay_short(write: Callable[..., Path]) -> None:
    many, long = ",".join(f"c{number}" for number in range(500)), "x" * 10**5
    for header in (many, f"item,annotator,{long}", f"item,annotator,label,{long},{long}"):
        with pytest.raises(DataError) as error:
            ds.read_annotations(write(f"{header}\n" + ",".join("1" * (header.count(",") + 1)) + "\n"))
        assert len(str(error.value)) < 500
        assert header is not many or "it has c0, c1, c2" in str(error.value)
        assert header is not many or "c11, … (500 in all)" in str(error.value)


def test_guessed_columns_are_noted(tmp_path: Path) -> None:
    file = write_file(tmp_path / "votes.csv", "tweet_id,worker,answer\n1,a,x\n1,b,y\n")
    labels = ds.read_annotations(file)
    assert labels.columns_read == {"item": "tweet_id", "annotator": "worker", "label": "answer"}
    note = "read item from 'tweet_id', annotator from 'worker', label from 'answer'; if that is wrong, "
    assert note + "name the column with item=, annotator=, label=" in labels.notes
    named = ds.read_annotations(file, item="tweet_id", annotator="worker", label="answer")
    assert not any("read item" in note for note in named.notes)
    plain = write_file(tmp_path / "plain.csv", "item,annotator,label\n1,a,x\n1,b,y\n")
    assert not any("read item" in note for note in ds.read_annotations(plain).notes)


@pytest.mark.parametrize("other", ["question", "unit", "sample", "object"])
def test_id_wins_over_content(other: str, tmp_path: Path) -> None:
    rows = "1,Is it?,a,x\n1,Is it?,b,y\n2,Is it?,a,x\n"
    labels = ds.read_annotations(write_file(tmp_path / "votes.csv", f"id,{other},worker,answer\n{rows}"))
    assert labels.columns_read["item"] == "id"
    assert labels.items.tolist() == ["1", "2"]
