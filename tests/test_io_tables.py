"""Reading plain tables: formats, columns, layouts, side tables, and every way a file can be wrong."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import random
import threading
from collections.abc import Callable
from dataclasses import fields
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
from dissensus.errors import DataError, DissensusError, ParameterError
from dissensus.labels.annotations import Annotations
from dissensus.tables import delimited
from sizes import usually

HEADER = "item,annotator,label\n"
ROWS = [
    ("q1", "ann", "none"),
    ("q1", "bob", "007"),
    ("q2", "ann", "NA"),
    ("q2", "bob", "a,b"),
    ("q3", "ann", "x"),
]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write_file(content: str | bytes, name: str = "votes.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write_file


def as_csv(rows: list[tuple[str, ...]], delimiter: str = ",", header: str = "item annotator label") -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter).writerows([header.split(), *rows])
    return text.getvalue().encode()


def as_jsonl(rows: list[tuple[str, ...]]) -> bytes:
    names = ("item", "annotator", "label")
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows).encode()


def as_parquet(rows: list[tuple[str, ...]]) -> bytes:
    sink = io.BytesIO()
    columns = zip(("item", "annotator", "label"), zip(*rows, strict=True), strict=True)
    parquet.write_table(pa.table({name: list(values) for name, values in columns}), sink)
    return sink.getvalue()


FORMATS: dict[str, Callable[[list[tuple[str, ...]]], bytes]] = {
    ".csv": as_csv,
    ".tsv": lambda rows: as_csv(rows, "\t"),
    ".txt": lambda rows: as_csv(rows, ";"),
    ".jsonl": as_jsonl,
    ".json": lambda rows: b"[" + b",".join(as_jsonl(rows).splitlines()) + b"]",
    ".parquet": as_parquet,
}


def rows_of(annotations: Annotations) -> list[tuple[Any, Any, Any]]:
    return [
        (annotations.items[i], annotations.annotators[a], annotations.classes[c])
        for i, a, c in zip(annotations.item, annotations.annotator, annotations.label, strict=True)
    ]


def same(one: Annotations, other: Annotations) -> bool:
    pairs = ((getattr(one, f.name), getattr(other, f.name)) for f in fields(Annotations))
    return all(np.array_equal(a, b) if isinstance(a, np.ndarray) else bool(a == b) for a, b in pairs)


# ---- formats ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("suffix", FORMATS)
def test_the_same_table_is_the_same_in_every_format(
    suffix: str, zipped: bool, write: Callable[..., Path]
) -> None:
    content = FORMATS[suffix](ROWS)
    path = write(gzip.compress(content), f"votes{suffix}.gz") if zipped else write(content, f"votes{suffix}")
    annotations = ds.read_annotations(path)
    assert rows_of(annotations) == sorted(ROWS)
    assert same(annotations, ds.read_annotations(write(as_csv(ROWS), "plain.csv")))
    assert same(annotations, ds.read_annotations(str(path)))


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_content_tells_the_format_where_the_name_does_not(
    suffix: str, write: Callable[..., Path]
) -> None:
    for name in ("votes", "votes.data"):
        assert rows_of(ds.read_annotations(write(FORMATS[suffix](ROWS), name))) == sorted(ROWS)
    zipped = write(gzip.compress(FORMATS[suffix](ROWS)), f"votes{suffix}")
    assert rows_of(ds.read_annotations(zipped)) == sorted(ROWS)


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6).filter(str.strip)


def tidied(rows: list[Any]) -> list[Any]:
    """Sorted, and the labels without the white space around them."""
    return sorted((item, who, label.strip()) for item, who, label in rows)


@pytest.mark.slow
@settings(
    max_examples=usually(25, verify=200),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)
@given(
    rows=st.lists(st.tuples(texts, texts, texts), min_size=1, max_size=12),
    suffix=st.sampled_from(list(FORMATS)),
)
def test_any_text_survives_every_format(rows: list[Any], suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"votes{suffix}"
    path.write_bytes(FORMATS[suffix](rows))
    assert rows_of(ds.read_annotations(path)) == tidied(rows)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_line_ends_marks_quotes_and_empty_lines(end: str, bom: bytes, write: Callable[..., Path]) -> None:
    text = 'item,annotator,label\n\na,"b ""q""","x\ny"\n"c",d"e,f g\n'.replace("\n", end)
    annotations = ds.read_annotations(write(bom + text.encode()))
    assert rows_of(annotations) == [("a", 'b "q"', f"x{end}y"), ("c", 'd"e', "f g")]


def test_numbers_in_files_are_the_text_they_were(write: Callable[..., Path]) -> None:
    lines = (
        '{"item": 1.0, "annotator": 12345678901234567890, "label": 1e3}\n'
        '{"item": 0, "annotator": 7, "label": true}'
    )
    annotations = ds.read_annotations(write(lines, "votes.jsonl"))
    assert rows_of(annotations) == [("0", "7", "true"), ("1.0", "12345678901234567890", "1e3")]
    table = pa.table(
        {"item": [2, 10], "annotator": pa.array(["a", "b"]).dictionary_encode(), "label": [1.0, 2.5]}
    )
    sink = io.BytesIO()
    parquet.write_table(table, sink)
    annotations = ds.read_annotations(write(sink.getvalue(), "votes.parquet"))
    assert rows_of(annotations) == [("10", "b", "2.5"), ("2", "a", "1.0")]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([{"x": 1}, {"x": 2}], "votes.parquet: column 'label' is of type struct"),
        (pa.array([], pa.string()), "votes.parquet: has columns and no rows"),
    ],
)
def test_parquet_columns_that_hold_no_labels(column: Any, message: str, write: Callable[..., Path]) -> None:
    sink = io.BytesIO()
    others = ["a", "b"][: len(column)]
    parquet.write_table(pa.table({"item": others, "annotator": others, "label": column}), sink)
    with pytest.raises(DataError, match=message):
        ds.read_annotations(write(sink.getvalue(), "votes.parquet"))


def test_a_field_may_be_longer_than_a_block(write: Callable[..., Path]) -> None:
    long = "x\n" * 1_500_000 + "y"
    annotations = ds.read_annotations(write(f'{HEADER}a,b,"{long}"\na,c,z\n'))
    assert set(annotations.classes) == {long, "z"}


@pytest.mark.parametrize("letters", ["ab x", 'ab,"x', 'ab,"\n\r x'])
def test_records_survive_being_cut_into_blocks(
    letters: str, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Line breaks and quotes at every place relative to the blocks that Arrow reads."""
    rng = random.Random(letters)
    for _ in range(usually(30, verify=300)):
        monkeypatch.setattr(delimited, "_BLOCK", rng.choice([40, 64, 100, 200]))
        fields_ = [
            "".join(rng.choices(letters, k=rng.randrange(9))) + "z" for _ in range(3 * rng.randrange(1, 30))
        ]
        rows = list(zip(*[iter(fields_)] * 3, strict=True))
        text = io.StringIO(newline="")
        quoting, end = rng.choice(
            [(csv.QUOTE_MINIMAL, "\r\n"), (csv.QUOTE_ALL, "\r\n"), (csv.QUOTE_ALL, "\n")]
        )
        csv.writer(text, quoting=quoting, lineterminator=end).writerows([HEADER.strip().split(","), *rows])
        content = text.getvalue().removesuffix(end if rng.random() < 0.5 else "")
        assert rows_of(ds.read_annotations(write(content))) == tidied(rows)


def test_a_pipe_is_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(as_csv(ROWS)))
    writer.start()
    assert rows_of(ds.read_annotations(pipe)) == sorted(ROWS)
    writer.join(timeout=10)


# ---- bad files ----------------------------------------------------------------------------------------

BAD: dict[str, tuple[str | bytes, str, str]] = {
    "empty": ("", "votes.csv", "votes.csv: is empty; give a table"),
    "white space": ("\n \n", "votes.csv", "votes.csv: is empty"),
    "header only": (HEADER, "votes.csv", "votes.csv: has a header and no rows; add"),
    "header without line end": (HEADER.strip(), "votes.csv", "votes.csv: has a header and no rows"),
    "missing column": (
        "item,anotator,label\na,b,c\n",
        "votes.csv",
        "votes.csv: no annotator column found; did you mean 'anotator'? Say which it is with "
        "annotator='anotator'; it has item, anotator, label",
    ),
    "one column": (
        "labels\nx\n",
        "votes.csv",
        "votes.csv: this is not a table: it has one column only (labels); give one row for each label",
    ),
    "doubled column": (
        "item,annotator,label,label\na,b,c,d\n",
        "votes.csv",
        "votes.csv line 1: the column 'label' occurs twice; rename or remove one",
    ),
    "ambiguous": (
        "task,unit,worker,label\na,b,c,d\n",
        "votes.csv",
        "votes.csv: 'task' and 'unit' could each be the item column; choose one with item=",
    ),
    "blank item": (HEADER + "a,b,c\n ,b,c\n", "votes.csv", "votes.csv line 3: the item is blank; fill it in"),
    "Latin-1": (
        (HEADER + "a,b,c\na,b,café\n").encode("latin-1"),
        "votes.csv",
        "votes.csv line 3: byte 0xe9 is not UTF-8; save the file as UTF-8",
    ),
    "Latin-1 header": (
        "item,annotator,label,é\na,b,c,d\n".encode("latin-1"),
        "votes.csv",
        "line 1: byte 0xe9",
    ),
    "UTF-16": ((HEADER + "a,b,c\n").encode("utf-16"), "votes.csv", "votes.csv line 1: is UTF-16 text; save"),
    "short row": (
        HEADER + '"a\n\nb",b,c\na,b\n',
        "votes.csv",
        "votes.csv line 5: 2 fields where the header has 3 (item, annotator, label); complete the row",
    ),
    "long row": (
        HEADER + "a,b,c\na,b,c,d\n",
        "votes.csv",
        "votes.csv line 3: 4 fields where the header has 3",
    ),
    "open quote": (
        HEADER + 'a,b,c\nd,"e,f\ng,h,i\n',
        "votes.csv",
        "votes.csv line 3: a quote is opened and never closed; close it or double it",
    ),
    "no gzip": (HEADER + "a,b,c\n", "votes.csv.gz", "votes.csv.gz: is called .gz and is not gzipped"),
    "cut gzip": (
        gzip.compress(HEADER.encode(), mtime=0)[:-6],
        "votes.csv.gz",
        "votes.csv.gz: the gzip file is damaged or cut short; compress it again",
    ),
    "database": (
        b"SQLite format 3\0" + bytes(40),
        "votes.csv",
        "votes.csv: holds NUL bytes, so it is a binary",
    ),
    "PDF": (b"%PDF-1.7\n\xe2\xe3\n", "votes.csv", "votes.csv: this is a PDF document, not a table; save its"),
    "HTML": ("\n<!DOCTYPE html>\n<table>", "votes.csv", "votes.csv: this is an HTML page, not a table; save"),
    "letter": ("Dear Sir\nIn reply\n", "letter.txt", "letter.txt: this is not a table: it has one column"),
    "prose": (
        "Dear Sir, we ask\nIn reply, no\n",
        "a.txt",
        "it has Dear Sir, we ask; if it is no table, give",
    ),
    "picture": (
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR",
        "votes.csv",
        "votes.csv: this is a picture, not a table; save its table as CSV",
    ),
    "spreadsheet": (b"PK\x03\x04" + bytes(40), "votes.csv", "votes.csv: is a zip archive or a spreadsheet"),
    "no Parquet": ("a,b,c", "votes.parquet", "votes.parquet: is called .parquet and is no Parquet file"),
    "cut Parquet": (
        as_parquet(ROWS)[:-9],
        "votes.parquet",
        "votes.parquet: the Parquet file is damaged or cut",
    ),
    "cut JSON": (
        as_jsonl(ROWS)[:-20],
        "votes.jsonl",
        "votes.jsonl line 5: is not valid JSON (unterminated string starting at); correct it or write",
    ),
    "JSON null": (
        '{"item": "a", "annotator": null, "label": "x"}',
        "votes.jsonl",
        "line 1: the annotator is blank",
    ),
    "JSON NaN": (
        '{"item": "a", "annotator": "b", "label": NaN}',
        "votes.jsonl",
        "votes.jsonl: every label is blank; there is nothing to read",
    ),
    "JSON list": (
        '{"item": "a", "annotator": ["b"], "label": "x"}',
        "votes.jsonl",
        "votes.jsonl: 'annotator' holds lists and 'label' does not; give a list of labels beside each list",
    ),
    "JSON doubled key": (
        '{"item": "a", "item": "b", "annotator": "b", "label": "x"}',
        "votes.jsonl",
        "votes.jsonl line 1: the key 'item' occurs twice; rename or remove one",
    ),
    "JSON scalar": ("3\n", "votes.jsonl", "votes.jsonl line 1: is no JSON object but 3; give one"),
    "JSON array of scalars": ("[3]", "votes.json", "votes.json record 1: is no JSON object"),
    "JSON empty array": ("[]", "votes.json", "votes.json: holds no record"),
    "JSON surrogate": (
        '{"item": "\\ud800", "annotator": "b", "label": "x"}',
        "votes.jsonl",
        "votes.jsonl line 1: 'item' is no valid text",
    ),
    "JSON depth": ("[" * 100_000, "votes.json", "votes.json line 1: is not valid JSON (nested too deeply"),
    "JSON Latin-1": (
        '{"item": "é"}'.encode("latin-1"),
        "votes.jsonl",
        "votes.jsonl line 1: byte 0xe9 is not",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_file_is_one_line_with_place_and_remedy(
    case: str, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    content, name, message = BAD[case]
    monkeypatch.chdir(write(content, name).parent)
    with pytest.raises(DataError) as error:
        ds.read_annotations(name)
    assert message in str(error.value)
    assert "\n" not in str(error.value)
    assert str(error.value).startswith(name)


def test_missing_files_and_folders(tmp_path: Path, write: Callable[..., Path]) -> None:
    write(HEADER)
    with pytest.raises(DataError, match=r"vots\.csv: no such file; did you mean .*votes\.csv'\?$"):
        ds.read_annotations(tmp_path / "vots.csv")
    with pytest.raises(DataError, match=r"xyz: no such file; check the name$"):
        ds.read_annotations(tmp_path / "xyz")
    with pytest.raises(DataError, match=r"there is no folder .* either"):
        ds.read_annotations(tmp_path / "no" / "votes.csv")
    with pytest.raises(DataError, match="is a directory; name the file in it"):
        ds.read_annotations(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        ds.read_annotations(tmp_path / "votes.csv" / "below")
    with pytest.raises(DataError, match="cannot be read"):
        ds.read_annotations("a\0b")


def test_a_label_outside_the_declared_set_is_named(write: Callable[..., Path]) -> None:
    path = write(HEADER + 'a,b,"yes"\n\nc,d,mabye\n')
    with pytest.raises(
        DataError, match=r"line 4: label 'mabye' is not in the label set; add it with classes="
    ):
        ds.read_annotations(path, classes=["no", "yes"])
    assert list(ds.read_annotations(path, classes=["yes", "mabye", "no"]).classes) == ["yes", "mabye", "no"]


def test_settings_outside_their_rule(write: Callable[..., Path]) -> None:
    path = write(as_csv(ROWS))
    for settings_, message in (
        ({"duplicates": "some"}, "'duplicates' parameter"),
        ({"layout": "tall"}, "'layout' parameter of read_annotations must be one of long, wide, counts"),
        ({"format": "cvs"}, r"'format' parameter .* \(did you mean 'csv'\?\)"),
        ({"classes": "yes,no"}, "'classes' parameter of read_annotations must be a list of labels"),
        ({"item": 3}, "'item' parameter"),
    ):
        with pytest.raises(ParameterError, match=message):
            ds.read_annotations(path, **settings_)


def test_a_repeat_can_be_refused_by_its_line(write: Callable[..., Path]) -> None:
    path = write(HEADER + "a,b,x\nc,d,x\na,b,y\n")
    with pytest.raises(DataError, match=r"votes\.csv line 4: item 'a' and annotator 'b' occur together"):
        ds.read_annotations(path, duplicates="error")
    assert rows_of(ds.read_annotations(path, duplicates="last")) == [("a", "b", "y"), ("c", "d", "x")]


# ---- columns ------------------------------------------------------------------------------------------


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


def test_columns_are_given(write: Callable[..., Path]) -> None:
    path = write("a,b,c,label\n1,2,3,4\n")
    found = ds.read_annotations(path, item="c", annotator=" B ", label="a")
    assert rows_of(found) == [("3", "2", "1")]
    with pytest.raises(
        DataError, match=r"there is no column 'lable'; did you mean 'label'\? it has a, b, c, label"
    ):
        ds.read_annotations(path, item="a", annotator="b", label="lable")
    with pytest.raises(DataError, match="must be three columns, got a, a, label"):
        ds.read_annotations(path, item="a", annotator="a")
    with pytest.raises(DataError, match="a long table has one column for each role"):
        ds.read_annotations(path, item="a", annotator=["b"], layout="long")


def test_many_columns_are_not_all_listed(write: Callable[..., Path]) -> None:
    names = ",".join(f"c{number}" for number in range(500))
    with pytest.raises(DataError, match=r"it has c0, c1, .*, c11, … \(500 in all\)"):
        ds.read_annotations(write(f"{names}\n{names}\n"))


def test_columns_without_a_name_are_passed_over(write: Callable[..., Path]) -> None:
    annotations = ds.read_annotations(write(",item,annotator,label,\n0,a,b,c,\n"), items=None)
    assert rows_of(annotations) == [("a", "b", "c")]


# ---- frames -------------------------------------------------------------------------------------------

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
def test_frames_keep_their_types_and_their_kind(frame: Any, kind: str) -> None:
    annotations = ds.read_annotations(frame)
    assert rows_of(annotations) == [(2, "a", 0), (2, "b", 1), (10, "b", 1)]
    assert annotations.items.dtype == annotations.classes.dtype == np.int64
    assert annotations.frame_kind == kind


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (FRAME[:0], "the data frame has no rows"),
        (FRAME.assign(worker=["a", None, "b"]), "the data frame row 1: the annotator is blank"),
        (FRAME.assign(task=[1, "x", 2]), "the data frame: column 'task' mixes types"),
        (FRAME.assign(label=[{"x": 1}, {"x": 2}, {"x": 3}]), "the labels are of type struct"),
        (FRAME.set_axis(["task", "label", "label"], axis=1), "the column 'label' occurs twice"),
        (FRAME.set_axis(["1", 1, "label"], axis=1), "the column '1' occurs twice"),
        (3, "cannot be read from a int object; give a path or a data frame"),
    ],
)
def test_frames_that_hold_no_labels(frame: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        ds.read_annotations(frame)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_ordered_categories_are_a_declared_order(kind: str) -> None:
    values, order = ["hi", "lo"], ["lo", "mid", "hi"]
    label: Any = pd.Categorical(values, order, ordered=True)
    frame: Any = pd.DataFrame({"item": [1, 2], "annotator": [1, 1], "label": label})
    if kind == "polars":
        frame = pl.DataFrame(
            {"item": [1, 2], "annotator": [1, 1], "label": pl.Series(values, dtype=pl.Enum(order))}
        )
    assert list(ds.read_annotations(frame).classes) == order


# ---- wide tables and counts ---------------------------------------------------------------------------

WIDE = "item,text,Ann1,Ann2,Ann3\n1,hello,yes,no,\n2,there,, ,\n3,you,no,,yes\n"
WIDE_ROWS = [("1", "Ann1", "yes"), ("1", "Ann2", "no"), ("3", "Ann1", "no"), ("3", "Ann3", "yes")]


@pytest.mark.parametrize("layout", [None, "wide"])
def test_a_wide_table(layout: Any, write: Callable[..., Path]) -> None:
    annotations = ds.read_annotations(write(WIDE), layout=layout)
    assert rows_of(annotations) == WIDE_ROWS
    assert list(annotations.items) == ["1", "2", "3"]
    assert list(annotations.item_column("text")) == ["hello", "there", "you"]
    assert "read as a wide table with 3 annotator columns" in annotations.notes
    assert "1 item of the item table has no label" in annotations.notes


def test_a_wide_table_whose_first_column_has_any_name(write: Callable[..., Path]) -> None:
    text = "dish,Ana,Ben,Cleo\nsoup,good,good,bad\npie,bad,,bad\nrice,good,bad,good\n"
    found = ds.read_annotations(write(text))
    assert found.items.tolist() == ["pie", "rice", "soup"]
    assert found.annotators.tolist() == ["Ana", "Ben", "Cleo"]
    assert found.n_labels == 8
    assert "read as a wide table with 3 annotator columns" in found.notes
    for other in (
        "who,what,how\nAna,good,good\nAna,bad,good\n",  # the first column has an id twice: no items
        "dish,Ana,Ben\nsoup,4,5\npie,5,4\n",  # ratings or counts
        "dish,Ana,Ben\nsoup,hot,red\npie,cold,blue\n",  # no word in both
    ):
        with pytest.raises(DataError, match="no annotator and no label column found"):
            ds.read_annotations(write(other))


def test_a_wide_table_with_named_columns(write: Callable[..., Path]) -> None:
    annotations = ds.read_annotations(write(WIDE), annotator=["Ann1", "Ann3"], classes=["yes", "no"])
    assert rows_of(annotations) == [row for row in WIDE_ROWS if row[1] != "Ann2"]
    with pytest.raises(DataError, match=r"line 4, column 'Ann1': label 'no' is not in the label set"):
        ds.read_annotations(write(WIDE), layout="wide", classes=["yes"])
    with pytest.raises(DataError, match="line 3: item 'a' occurs twice"):
        ds.read_annotations(write("item,x,y\na,1,2\na,2,1\n"), layout="wide")
    with pytest.raises(DataError, match="every cell is blank"):
        ds.read_annotations(write("item,x,y\na,,\n"), layout="wide")
    with pytest.raises(DataError, match="there is no annotator column beside 'item'"):
        ds.read_annotations(write("item,text\na,b\n"), layout="wide")


def test_the_first_column_holds_the_items_where_no_name_tells(write: Callable[..., Path]) -> None:
    path = write("picture,x,y\np,1,0\nq,1,2\n")
    assert ds.read_annotations(path, label=["x", "y"]).counts.tolist() == [[1, 0], [1, 2]]
    assert rows_of(ds.read_annotations(path, layout="wide"))[0] == ("p", "x", "1")


REVIEWS = [f"what guest number {n} wrote about the room" for n in range(4)]
REVIEWED = [(0, "good", "bad", ""), (1, "bad", "", "bad"), (2, "", "good", "good"), (3, "bad", "bad", "good")]


@pytest.mark.parametrize("text", ["text", "review", "document"])
def test_ids_of_any_kind_and_texts_under_any_name(text: str, write: Callable[..., Path]) -> None:
    rows = [(f"r{n}", REVIEWS[n], *labels) for n, *labels in REVIEWED]
    path = write(as_csv(rows, header=f"review_id {text} ana ben carl"))
    expected = [
        (f"r{n}", who, label)
        for n, *labels in REVIEWED
        for who, label in zip(("ana", "ben", "carl"), labels, strict=True)
        if label
    ]
    for settings_ in ({}, {"layout": "wide"}, {"format": "wide"}):
        annotations = ds.read_annotations(path, **settings_)
        assert rows_of(annotations) == expected
        assert list(annotations.item_column(text)) == REVIEWS


@pytest.mark.parametrize("text_column", [None, "body"])
@pytest.mark.parametrize(
    ("kind", "votes"), [("wide", "ana,ben\n{}yes,no\n{}no,\n"), ("counts", "no,yes\n{}1,1\n{}1,0\n")]
)
def test_a_layout_and_a_format_are_one_way(
    kind: str, votes: str, text_column: str | None, write: Callable[..., Path]
) -> None:
    first, second = "a,train,a long story about a house,x.org,", "b,test,another tale of some other place,,"
    path = write("item,split,body,url," + votes.format(first, second))
    named: dict[str, Any] = {"layout": kind}
    for settings_ in (named, {"format": kind}, named | {"format": kind}, named | {"format": "csv"}):
        annotations = ds.read_annotations(path, text_column=text_column, **settings_)
        assert annotations.counts.tolist() == [[1, 1], [1, 0]]
        assert annotations.item_table is not None
        names = ["item", "split", "text" if text_column else "body", "url"]
        assert annotations.item_table.column_names == names
        assert list(annotations.item_table.to_pylist()[0].values()) == first.split(",")[:-1]
        assert list(annotations.split_items()) == ["train", "test"]
    other = "counts" if kind == "wide" else "wide"
    with pytest.raises(ParameterError, match=f"'layout' parameter .* must be '{other}', as the format is"):
        ds.read_annotations(path, layout=kind, format=other)


def test_a_text_column_that_is_not_there(write: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match="there is no column 'boddy'; did you mean 'body'"):
        ds.read_annotations(write("item,body,x,y\na,b,1,2\n"), layout="wide", text_column="boddy")


def test_ratings_are_told_by_the_names_of_their_columns(write: Callable[..., Path]) -> None:
    rows = [("a", "rater1", "1"), ("a", "rater2", "5"), ("b", "rater1", "2")]
    assert rows_of(ds.read_annotations(write("item,rater1,rater2\na,1,5\nb,2,\n"))) == rows


def test_long_labels_are_no_texts(write: Callable[..., Path]) -> None:
    one, other = "neither agree nor disagree", "agree with all of it somewhat"
    annotations = ds.read_annotations(write(f"item,x,y,z\na,{one},{other},\nb,{other},{one},{one}\n"))
    assert annotations.n_labels == 5
    alone = ds.read_annotations(write(f"item,x,y\na,{one},{other}\n"), layout="wide")
    assert list(alone.annotators) == ["x", "y"]


def test_a_table_that_may_be_wide_is_said_to_be(write: Callable[..., Path]) -> None:
    rated = write("review_id,score,ana,ben\na,9,1,2\nb,7,2,2\n")
    with pytest.raises(DataError, match=r"no item and no annotator column found; .*layout='wide' where"):
        ds.read_annotations(rated)
    with pytest.raises(DataError, match="no item column found") as caught:
        ds.read_annotations(write("x,y,worker,label\na,1,b,c\n"))
    assert "layout=" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("essay,grader,score", {}),
        ("response_id,judge,verdict", {}),
        ("review,annotator,labels", {}),
        ("essay,who,score", {"annotator": "who"}),
        ("essay,who,what", {"annotator": "who", "label": "what"}),
    ],
)
def test_the_only_column_left_holds_the_items(
    write: Callable[..., Path], columns: str, told: dict[str, str]
) -> None:
    rows = "\na,ana,x\na,ben,y\nb,ana,x\n"
    annotations = ds.read_annotations(write(columns + rows), **told)
    assert rows_of(annotations) == [("a", "ana", "x"), ("a", "ben", "y"), ("b", "ana", "x")]
    item = columns.split(",")[0]
    assert any(note.startswith(f"read item from {item!r}, ") for note in annotations.notes)
    sets = ds.read_annotations(write(columns + rows), **told, separator="|")
    assert any(note.startswith(f"read item from {item!r}, ") for note in sets.notes)


@pytest.mark.parametrize("columns", ["essay,page,grader,score", "vote,grader,score", "gold,grader,score"])
def test_where_several_columns_could_hold_items_or_none_the_reader_asks(
    write: Callable[..., Path], columns: str
) -> None:
    with pytest.raises(DataError, match="no item column found"):
        ds.read_annotations(write(columns + "\n" + ",".join("abcd"[: columns.count(",") + 1]) + "\n"))


def test_numbers_alone_do_not_tell_ratings_from_counts(write: Callable[..., Path]) -> None:
    path = write("item,x,y\na,0,3\nb,2,1\n")
    with pytest.raises(DataError, match=r"no annotator and no label column found; .* layout='wide'"):
        ds.read_annotations(path)
    wide, counts = (ds.read_annotations(path, layout=layout) for layout in ("wide", "counts"))
    assert rows_of(wide) == [("a", "x", "0"), ("a", "y", "3"), ("b", "x", "2"), ("b", "y", "1")]
    assert counts.counts.tolist() == [[0, 3], [2, 1]]


def test_a_wide_frame_keeps_whole_numbers_and_types() -> None:
    wide = FRAME.pivot(index="task", columns="worker", values="label")
    assert rows_of(ds.read_annotations(wide, layout="wide")) == [(2, "a", 0), (2, "b", 1), (10, "b", 1)]
    numbered = pd.DataFrame({"item": ["i", "j"], 1: ["x", "y"], 2: [None, "x"]})
    assert rows_of(ds.read_annotations(numbered, layout="wide")) == [
        ("i", 1, "x"),
        ("j", 1, "y"),
        ("j", 2, "x"),
    ]
    rated = pd.DataFrame({"item": ["i", "j"], "a": [1, 2], "b": [0.5, None]})
    assert rows_of(ds.read_annotations(rated, layout="wide")) == [
        ("i", "a", 1.0),
        ("i", "b", 0.5),
        ("j", "a", 2.0),
    ]
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
    ("text", "settings_", "message"),
    [
        ("item,no,yes\na,1,٣٣x\n", {}, "line 2: the count of 'yes' is '٣٣x'; give a whole number"),
        ("item,no,yes\na,1,0.5\n", {}, "line 2: class counts must be whole numbers of at least 0"),
        ("item,no,yes\na,1,3e9\n", {}, "add up to 3e\\+09 labels, more than 2 billion"),
        ("item,no,yes\na,1,x\n", {}, "line 2: the count of 'yes' is 'x'; give a whole number"),
        ("item,no,yes\na,1,1\n\nb,1,-1\n", {}, "line 4: class counts must be whole numbers of at least 0"),
        ("item,no,yes\na,1,1\na,1,1\n", {}, "line 3: item 'a' occurs twice"),
        ("item,no,yes\na,0,0\n", {}, "there is no label in the class counts"),
        ("item,no,yes\na,1,1\n", {"classes": ["no"]}, "column 'yes' is not in the label set"),
        ("item,no,yes\na,1,1\n", {"classes": ["no", "yes", "?"]}, r"no column for the class '\?'"),
    ],
)
def test_class_counts_that_are_none(
    text: str, settings_: Any, message: str, write: Callable[..., Path]
) -> None:
    with pytest.raises(DataError, match=message):
        ds.read_annotations(write(text), layout="counts", **settings_)


# ---- side tables --------------------------------------------------------------------------------------


def test_side_tables_come_only_when_asked(write: Callable[..., Path]) -> None:
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
        "'NA' may mean that there is no label; if so, say missing_words=['NA']",
        "1 item of the item table has no label",
        "1 item has no row in the item table",
        "1 annotator of the annotator table gave no label and is left out",
        "1 annotator has no row in the annotator table",
        "1 gold label is for items that are not in the data and is left out",
    )


def test_side_tables_of_every_kind(write: Callable[..., Path]) -> None:
    path = write(as_csv(ROWS))
    expected = ds.read_annotations(path, gold=write("item,label\nq1,none\n", "gold.csv")).gold
    for gold in (
        {"q1": "none"},
        pd.Series(["none"], index=["q1"]),
        pd.DataFrame({"task": ["q1"], "whatever": ["none"]}),
        pl.DataFrame({"id": ["q1"], "note": ["?"], "truth": ["none"]}),
        write('{"item": "q1", "gold": "none", "by": ["x", {"y": 1}]}', "gold.jsonl"),
    ):
        assert np.array_equal(ds.read_annotations(path, gold=gold).gold, expected)  # type: ignore[arg-type]
    features = pa.table({"item": ["q1", "q2", "q3"], "size": [1.5, 2.5, 3.5]})
    sink = io.BytesIO()
    parquet.write_table(features, sink)
    annotations = ds.read_annotations(path, items=write(sink.getvalue(), "items.parquet"))
    assert annotations.item_column("size").tolist() == [1.5, 2.5, 3.5]


def test_items_in_json_lines_keep_lists_as_json(write: Callable[..., Path]) -> None:
    lines = '{"item": "q1", "tags": ["a", {"b": 1.50}], "n": 2}\n{"item": "q2", "late": true}\n'
    annotations = ds.read_annotations(write(as_csv(ROWS)), items=write(lines, "items.jsonl"))
    assert list(annotations.item_column("tags")) == ['["a", {"b": 1.5}]', None, None]
    assert list(annotations.item_column("n")) == ["2", None, None]
    assert list(annotations.item_column("late")) == [None, "true", None]


def test_keys_must_be_text(write: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match=r"items\.jsonl: a key is no valid text"):
        ds.read_annotations(write(as_csv(ROWS)), items=write('{"item": "q1", "\\ud800": 1}', "items.jsonl"))


def test_messages_stay_short_whatever_the_header_holds(write: Callable[..., Path]) -> None:
    for header in (f"item,annotator,{'x' * 10**5}", f"item,annotator,label,{'x' * 10**5},{'x' * 10**5}"):
        with pytest.raises(DataError) as error:
            ds.read_annotations(write(f"{header}\n1,2,3\n"))
        assert len(str(error.value)) < 500


def test_side_tables_follow_the_name_of_the_item_column(write: Callable[..., Path]) -> None:
    path = write("tweet,worker,label\na,b,c\n")
    items = write("item,tweet,text\n1,a,hello\n", "items.csv")
    annotations = ds.read_annotations(path, item="tweet", items=items)
    assert list(annotations.item_column("text")) == ["hello"]
    assert list(annotations.item_column("item")) == ["1"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("items", "item,text\nq1,a\n\nq1,b\n", "side.csv line 4: item 'q1' occurs twice; keep one row"),
        ("items", "item,text\n,a\n", "side.csv line 2: the item is blank"),
        ("items", "text\na\n", "side.csv: no item column found"),
        ("items", "item,text\nq1,a,b\n", "side.csv line 2: 3 fields where the header has 2"),
        ("annotators", "annotator,age\nann,1\nann,2\n", "side.csv line 3: annotator 'ann' occurs twice"),
        (
            "gold",
            "item,label\nq1,x\nq2,y\nq1,y\n",
            "side.csv line 4: item 'q1' has two gold labels, 'x' and 'y'",
        ),
        ("gold", "item,other,more\nq1,x,y\n", "side.csv: no gold column found"),
    ],
)
def test_bad_side_tables(name: str, text: str, message: str, write: Callable[..., Path]) -> None:
    path, side = write(as_csv(ROWS)), write(text, "side.csv")
    with pytest.raises(DataError) as error:
        ds.read_annotations(path, **{name: side})
    assert message in str(error.value)


def test_gold_outside_the_declared_set_is_an_error(write: Callable[..., Path]) -> None:
    path, gold = write(HEADER + "a,b,x\n"), write("item,label\na,z\n", "gold.csv")
    with pytest.raises(DataError, match=r"gold\.csv line 2: label 'z' is not in the label set"):
        ds.read_annotations(path, gold=gold, classes=["x", "y"])
    slip = write(HEADER + "a,b,Feature\n", "slip.csv")
    with pytest.raises(DataError, match=r"line 2: label 'Feature' .*did you mean 'feature'\? If not, add it"):
        ds.read_annotations(slip, classes=["feature", "bug"])
    gold = write("item,label\na,bug\nb,featuer\n", "gold.csv")
    with pytest.raises(DataError, match=r"gold\.csv line 3: gold has 'featuer' \(1 item\), a class"):
        ds.read_annotations(write(HEADER + "a,b,feature\nb,b,bug\n"), gold=gold)


# ---- worth a word -------------------------------------------------------------------------------------


def test_what_is_read_as_it_is_and_worth_a_word(write: Callable[..., Path]) -> None:
    text = HEADER + "a,ann,yes\nA,ann,Yes \nb,ann,no\n"  # the space after Yes is nobody's
    annotations = ds.read_annotations(write(text))
    assert annotations.n_items == annotations.n_classes == 3
    alike, correct = (
        "differ from another only by white space or case",
        "if they mean the same, correct the data",
    )
    assert annotations.notes == (
        f"2 items {alike} (such as 'A' and 'a') and count as different items; {correct}",
        f"2 labels {alike} (such as 'Yes' and 'yes') and count as different labels; if they mean the same, "
        "say ignore_case=True",
        "there is one annotator only: 'ann'",
    )
    assert ds.read_annotations(write(HEADER + "a,b,x\na,c,x\n")).notes == ("there is one class only: 'x'",)
    assert ds.read_annotations(write(as_csv(ROWS))).notes == (
        "'NA' may mean that there is no label; if so, say missing_words=['NA']",
    )


# ---- exports ------------------------------------------------------------------------------------------

PRODIGY = [
    {"text": "t1", "_input_hash": 1, "answer": "accept", "accept": ["pos"], "_annotator_id": "ann"},
    {"text": "t1", "_input_hash": 1, "answer": "ignore", "accept": [], "_annotator_id": "bob"},
    {"text": "t2", "_input_hash": 2, "answer": "accept", "accept": ["neg"], "_annotator_id": "bob"},
]


def test_a_tools_export_is_read_directly(write: Callable[..., Path]) -> None:
    path = write("\n".join(map(json.dumps, PRODIGY)), "export.jsonl")
    for format in (None, "prodigy"):
        annotations = ds.read_annotations(path, format=format)
        assert rows_of(annotations) == [("1", "ann", "pos"), ("2", "bob", "neg")]
        assert list(annotations.item_column("text")) == ["t1", "t2"]
        assert any("left out" in note for note in annotations.notes)


def test_a_question_names_the_label_column_of_a_plain_table(write: Callable[..., Path]) -> None:
    path = write("item,annotator,mood,topic\na,b,x,y\n")
    assert rows_of(ds.read_annotations(path, question="topic")) == [("a", "b", "y")]
    with pytest.raises(DissensusError, match="there is no column 'moods'; did you mean 'mood'"):
        ds.read_annotations(path, question="moods")
