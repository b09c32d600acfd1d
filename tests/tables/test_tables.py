"""Tables in files of every format, data frames, and files that cannot be read."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

import dissensus as ds
from dissensus.errors import DataError, ParameterError
from tests.helpers import reading
from tests.helpers.sizes import usually


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("suffix", reading.TABLE_WRITERS)
def test_formats_agree(suffix: str, zipped: bool, write: Callable[..., Path]) -> None:
    content = reading.TABLE_WRITERS[suffix](reading.ROWS)
    content = gzip.compress(content) if zipped else content
    expected = ds.read_annotations(write(reading.as_csv(reading.ROWS), "plain.csv"))
    assert reading.rows_of(expected) == sorted(reading.ROWS)
    # The content decides where the name does not.
    for name in (f"votes{suffix}" + ".gz" * zipped, "votes", "votes.data"):
        labels = ds.read_annotations(str(write(content, name)))
        assert labels.fingerprint() == expected.fingerprint()
        assert reading.rows_of(labels) == sorted(reading.ROWS)


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(str.strip)


def stripped(rows: list[Any]) -> list[Any]:
    """Sort rows, with labels stripped of white space."""
    return sorted((item, annotator, label.strip()) for item, annotator, label in rows)


@pytest.mark.slow
@settings(max_examples=usually(25, verify=200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(st.tuples(texts, texts, texts), min_size=1, max_size=12),
    suffix=st.sampled_from([*reading.TABLE_WRITERS]),
)
def test_any_text_survives(rows: list[Any], suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"votes{suffix}"
    path.write_bytes(reading.TABLE_WRITERS[suffix](rows))
    assert reading.rows_of(ds.read_annotations(path)) == stripped(rows)


def test_numbers_keep_their_text(write: Callable[..., Path]) -> None:
    lines = (
        '{"item": 1.0, "annotator": 12345678901234567890, "label": 1e3}\n'
        '{"item": 0, "annotator": 7, "label": true}'
    )
    annotations = ds.read_annotations(write(lines, "votes.jsonl"))
    assert reading.rows_of(annotations) == [("0", "7", "true"), ("1.0", "12345678901234567890", "1e3")]
    columns = {"item": [2, 10], "annotator": pa.array(["a", "b"]).dictionary_encode(), "label": [1.0, 2.5]}
    annotations = ds.read_annotations(write(reading.as_parquet(columns), "votes.parquet"))
    assert reading.rows_of(annotations) == [("10", "b", "2.5"), ("2", "a", "1.0")]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([{"x": 1}, {"x": 2}], "votes.parquet: column 'label' is of type struct"),
        (pa.array([], pa.string()), "votes.parquet: has columns but no rows"),
    ],
)
def test_parquet_without_labels(column: Any, message: str, write: Callable[..., Path]) -> None:
    others = ["a", "b"][: len(column)]
    content = reading.as_parquet({"item": others, "annotator": others, "label": column})
    with pytest.raises(DataError, match=message):
        ds.read_annotations(write(content, "votes.parquet"))


# name of the case, name of the file, content, part of the message
BAD_FILES = [
    ("empty", "votes.csv", "", "is empty; give a table"),
    ("white space", "votes.csv", "\n \n", "is empty"),
    ("header only", "votes.csv", reading.HEADER, "has a header but no rows; add one row per label"),
    ("header without line end", "votes.csv", reading.HEADER.strip(), "has a header but no rows"),
    ("missing column", "votes.csv", "item,anotator,label\na,b,c\n",
     "no annotator column found; did you mean 'anotator'? Name it with annotator='anotator'; it has item, "),
    ("one column", "votes.csv", "labels\nx\n", "this is not a table: it has only one column (labels); give"),
    ("repeated column", "votes.csv", "item,annotator,label,label\na,b,c,d\n",
     "line 1: the column 'label' occurs twice; rename or remove one"),
    ("ambiguous", "votes.csv", "task,unit,worker,label\na,b,c,d\n",
     "'task' and 'unit' could each be the item column; choose one with item="),
    ("blank item", "votes.csv", reading.HEADER + "a,b,c\n ,b,c\n", "line 3: the item is blank; fill it in"),
    ("Latin-1", "votes.csv", (reading.HEADER + "a,b,c\na,b,café\n").encode("latin-1"),
     "line 3: byte 0xe9 is not UTF-8; save the file as UTF-8"),
    ("Latin-1 header", "votes.csv", "item,annotator,label,é\na,b,c,d\n".encode("latin-1"),
     "line 1: byte 0xe9"),
    ("UTF-16", "votes.csv", (reading.HEADER + "a,b,c\n").encode("utf-16"), "line 1: is UTF-16 text; save"),
    ("short row", "votes.csv", reading.HEADER + '"a\n\nb",b,c\na,b\n',
     "line 5: 2 fields but the header has 3 (item, annotator, label); complete the row"),
    ("long row", "votes.csv", reading.HEADER + "a,b,c\na,b,c,d\n", "line 3: 4 fields but the header has 3"),
    ("open quote", "votes.csv", reading.HEADER + 'a,b,c\nd,"e,f\ng,h,i\n',
     "line 3: a quote is opened and never closed; close it or double it"),
    ("not gzipped", "votes.csv.gz", reading.HEADER + "a,b,c\n", "its name ends in .gz but it is not gzipped"),
    ("cut gzip", "votes.csv.gz", gzip.compress(reading.HEADER.encode(), mtime=0)[:-6],
     "the gzip file is damaged or cut short; compress it again"),
    ("database", "votes.csv", b"SQLite format 3\0" + bytes(40), "contains NUL bytes, so it is a binary"),
    ("PDF", "votes.csv", b"%PDF-1.7\n\xe2\xe3\n",
     "this is a PDF document, not a table; save its table as CSV"),
    ("HTML", "votes.csv", "\n<!DOCTYPE html>\n<table>", "this is an HTML page, not a table"),
    ("picture", "votes.csv", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "this is a picture, not a table"),
    ("letter", "letter.txt", "Dear Sir\nIn reply\n", "this is not a table: it has only one column"),
    ("prose", "a.txt", "Dear Sir, we ask\nIn reply, no\n",
     "it has Dear Sir, we ask; if it is not a table, give"),
    ("spreadsheet", "votes.csv", b"PK\x03\x04" + bytes(40), "is a zip archive or a spreadsheet"),
    ("not Parquet", "votes.parquet", "a,b,c", "its name ends in .parquet but it is not a Parquet file"),
    ("cut Parquet", "votes.parquet", reading.rows_as_parquet(reading.ROWS)[:-9], "Parquet file is damaged"),
    ("cut JSON", "votes.jsonl", reading.as_jsonl(reading.ROWS)[:-20],
     "line 5: not valid JSON (unterminated string starting at); correct it or write"),
    ("JSON null", "votes.jsonl", '{"item": "a", "annotator": null, "label": "x"}',
     "line 1: the annotator is blank"),
    ("JSON NaN", "votes.jsonl", '{"item": "a", "annotator": "b", "label": NaN}',
     "every label is blank; there is nothing to read"),
    ("JSON list", "votes.jsonl", '{"item": "a", "annotator": ["b"], "label": "x"}',
     "'annotator' holds lists but 'label' does not; give a list of labels for each list"),
    ("JSON repeated key", "votes.jsonl", '{"item": "a", "item": "b", "annotator": "b", "label": "x"}',
     "line 1: the key 'item' occurs twice; rename or remove one"),
    ("JSON scalar", "votes.jsonl", "3\n", "line 1: is not a JSON object but 3; write one"),
    ("JSON array of scalars", "votes.json", "[3]", "record 1: is not a JSON object"),
    ("JSON empty array", "votes.json", "[]", "there is no record"),
    ("JSON surrogate", "votes.jsonl", '{"item": "\\ud800", "annotator": "b", "label": "x"}',
     "line 1: 'item' is not valid text"),
    ("JSON depth", "votes.json", "[" * 100_000, "line 1: not valid JSON (nested too deeply"),
    ("JSON Latin-1", "votes.jsonl", '{"item": "é"}'.encode("latin-1"), "line 1: byte 0xe9 is not"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "message"), [pytest.param(*c[1:], id=c[0]) for c in BAD_FILES])
def test_bad_file_is_explained_in_one_line(
    name: str, content: Any, message: str, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(write(content, name).parent)
    with pytest.raises(DataError) as error:
        ds.read_annotations(name)
    assert message in str(error.value)
    assert str(error.value).startswith(name)
    assert "\n" not in str(error.value)


def test_invalid_settings(write: Callable[..., Path]) -> None:
    path = write(reading.as_csv(reading.ROWS))
    for setting, message in (
        ({"duplicates": "some"}, "'duplicates' parameter"),
        ({"layout": "tall"}, "'layout' parameter of read_annotations must be one of long, wide, counts"),
        ({"format": "cvs"}, r"'format' parameter .* \(did you mean 'csv'\?\)"),
        ({"classes": "yes,no"}, "'classes' parameter of read_annotations must be a list of labels"),
        ({"item": 3}, "'item' parameter"),
    ):
        with pytest.raises(ParameterError, match=message):
            ds.read_annotations(path, **setting)


FRAME = pd.DataFrame({"task": [10, 2, 2], "worker": ["b", "a", "b"], "label": [1, 0, 1]})


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (FRAME, "pandas"),
        (FRAME.set_index("task"), "pandas"),
        (pl.from_pandas(FRAME), "polars"),
        (pl.from_pandas(FRAME).lazy(), "polars"),
        (pa.Table.from_pandas(FRAME), "pyarrow"),
    ],
)
def test_frames_keep_types_and_kind(frame: Any, kind: str) -> None:
    annotations = ds.read_annotations(frame)
    assert reading.rows_of(annotations) == [(2, "a", 0), (2, "b", 1), (10, "b", 1)]
    assert annotations.items.dtype == annotations.classes.dtype == np.int64
    assert annotations.frame_kind == kind


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_ordered_categories_set_the_classes(kind: str) -> None:
    values, order = ["hi", "lo"], ["lo", "mid", "hi"]
    label: Any = pd.Categorical(values, order, ordered=True)
    frame: Any = pd.DataFrame({"item": [1, 2], "annotator": [1, 1], "label": label})
    if kind == "polars":
        frame = pl.DataFrame(
            {"item": [1, 2], "annotator": [1, 1], "label": pl.Series(values, dtype=pl.Enum(order))}
        )
    assert list(ds.read_annotations(frame).classes) == order


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
    assert reading.rows_of(labels) == UNFOLDED
    assert labels.item_table is not None
    assert labels.item_table["text"].to_pylist() == ["one", "two"]


def test_class_names_in_a_parquet_file(tmp_path: Path) -> None:
    features = {"labels": {"feature": {"names": ["no", "yes"], "_type": "ClassLabel"}, "_type": "List"}}
    table = pa.table(LISTS | {"labels": [[0, 1], [-1]]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    parquet.write_table(table, tmp_path / "set.parquet")
    labels, notes = reading.with_warnings(lambda: ds.read_annotations(tmp_path / "set.parquet"), __file__)
    assert reading.rows_of(labels) == [("a", "x", "no"), ("a", "y", "yes")]
    assert any("1 row has no label" in note for note in notes)
