"""What a reader takes for an item, an annotator and a label is said; where names leave it open, it asks."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import dissensus as ds
from cli_help import run
from dissensus.errors import DataError
from dissensus.importers import load_export


def write(path: Path, content: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


# ---- said ---------------------------------------------------------------------------------------------


def test_columns_taken_are_noted_with_the_options_that_change_them(tmp_path: Path) -> None:
    file = write(tmp_path / "votes.csv", "tweet_id,worker,answer\n1,a,x\n1,b,y\n")
    labels = ds.read_annotations(file)
    assert labels.columns_read == {"item": "tweet_id", "annotator": "worker", "label": "answer"}
    word = "read item from 'tweet_id', annotator from 'worker', label from 'answer'; where that is wrong, "
    assert word + "name the column with item=, annotator=, label=" in labels.notes
    named = ds.read_annotations(file, item="tweet_id", annotator="worker", label="answer")
    assert not any("read item" in note for note in named.notes)
    plain = write(tmp_path / "plain.csv", "item,annotator,label\n1,a,x\n1,b,y\n")
    assert not any("read item" in note for note in ds.read_annotations(plain).notes)


def test_the_command_says_it_and_the_summary_and_the_page_keep_it(tmp_path: Path) -> None:
    rows = "".join(f"{i},{a},{'xy'[(i + a) % 2]}\n" for i in range(6) for a in range(3))
    file = write(tmp_path / "votes.csv", "tweet_id,worker,answer\n" + rows)
    told = run("fit", file, "--model", "majority", "-o", tmp_path / "out")
    assert "name the column with --item-column, --annotator-column, --label-column" in told.stderr
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["columns"] == {"item": "tweet_id", "annotator": "worker", "label": "answer"}
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count("Read item from tweet_id, annotator from worker, label from answer.") == 1
    assert "name the column with" not in page
    assert run("describe", file).stderr.count("item from 'tweet_id'") == 1
    assert "read item from 'tweet_id'" in run("import", file, "-o", tmp_path / "v.store").stderr


# ---- asked --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", ["question", "unit", "sample", "object"])
def test_an_id_wins_over_what_is_shown(other: str, tmp_path: Path) -> None:
    rows = "1,Is it?,a,x\n1,Is it?,b,y\n2,Is it?,a,x\n"
    labels = ds.read_annotations(write(tmp_path / "votes.csv", f"id,{other},worker,answer\n{rows}"))
    assert labels.columns_read["item"] == "id"
    assert labels.items.tolist() == ["1", "2"]


def test_an_id_that_counts_rows_is_asked_about(tmp_path: Path) -> None:
    file = write(tmp_path / "votes.csv", "id,question,worker,answer\n1,q,a,x\n2,q,b,y\n3,r,a,x\n")
    with pytest.raises(DataError, match=r"'id' is another in every row and 'question' is not; .* item="):
        ds.read_annotations(file)
    assert ds.read_annotations(file, item="question").n_items == 2
    assert ds.read_annotations(file, item="id").n_items == 3


def dataset(folder: Path, ids: dict[str, list[int]]) -> Path:
    for split, numbers in ids.items():
        n = len(numbers)
        table = pa.table({"id": numbers, "annotator": ["a"] * n, "label": ["x", "y"] * (n // 2)})
        (folder / split).mkdir(parents=True)
        with pa.ipc.new_stream(str(folder / split / "data-00000-of-00001.arrow"), table.schema) as writer:
            writer.write_table(table)
    return folder


def test_ids_that_begin_anew_in_each_split_are_asked_about(tmp_path: Path) -> None:
    folder = dataset(tmp_path / "set", {"test": [0, 1], "train": [0, 1, 2, 3]})
    with pytest.raises(DataError, match=r"item 0 is in split 'test' and in 'train'; .* item='split:id'"):
        ds.read_annotations(folder)
    both = ds.read_annotations(folder, item="split:id")
    assert both.items.tolist() == ["test:0", "test:1", "train:0", "train:1", "train:2", "train:3"]
    assert ds.read_annotations(folder, item="id").n_items == 4
    apart = dataset(tmp_path / "apart", {"test": [0, 1], "train": [2, 3]})
    assert ds.read_annotations(apart).n_items == 4


MIN = {"annotation_id": 1, "lead_time": 3.5, "created_at": "2026-01-01T00:00:00Z"}


def label_studio(tmp_path: Path, records: list[dict[str, Any]]) -> Path:
    return write(tmp_path / "min.json", json.dumps([MIN | record for record in records]))


def test_a_comment_or_a_time_is_never_the_label(tmp_path: Path) -> None:
    said = [
        "I am not sure about this",
        "quite clear to me I think",
        "hard to tell from here",
        "no idea at all",
    ]
    records = [
        {"id": i // 2, "annotator": i % 2, "text": f"t{i // 2}", "mood": "same", "why": said[i],
         "seen_on": f"2026-01-0{i + 1} 10:00"}
        for i in range(4)
    ]  # fmt: skip
    # Only the remark and the time differ within an item: neither is an answer, and the constant is one.
    assert load_export(label_studio(tmp_path, records)).question == "mood"
    for record in records:
        del record["mood"]
    with pytest.raises(DataError, match="cannot tell which column holds the answers; name it with question="):
        load_export(label_studio(tmp_path, records))
    rows = [f"{i // 2},{i % 2},yes,{said[i]},1/{i + 1}/2026 10:00:00\n" for i in range(4)]
    appen = write(tmp_path / "f.csv", "_unit_id,_worker_id,relevant,comments,orig_started\n" + "".join(rows))
    assert load_export(appen, format="appen").question == "relevant"


def test_a_column_nobody_filled_in_is_no_question(tmp_path: Path) -> None:
    mturk = "HITId,WorkerId,Answer.mood,Answer.more\nh,a,x,\nh,b,y,\n"
    assert load_export(write(tmp_path / "m.csv", mturk)).question == "mood"
    header = "INPUT:text\tOUTPUT:mood\tOUTPUT:more\tASSIGNMENT:task_id\tASSIGNMENT:worker_id\n"
    toloka = write(tmp_path / "t.tsv", header + "t\tx\t\t1\ta\nt\ty\t\t1\tb\n")
    assert load_export(toloka).question == "mood"


# ---- refused by name ----------------------------------------------------------------------------------


def task(results: list[dict[str, Any]]) -> dict[str, Any]:
    return {"id": 1, "data": {"text": "Anna"}, "annotations": [{"completed_by": 1, "result": results}]}


def region(kind: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"type": kind, "from_name": "ner", "to_name": "text", "value": value}


@pytest.mark.parametrize(
    ("kind", "word"), [("labels", "spans"), ("rectanglelabels", "boxes"), ("brushlabels", "boxes")]
)
def test_spans_and_boxes_are_called_so(kind: str, word: str, tmp_path: Path) -> None:
    marked = region(kind, {"start": 0, "end": 4, kind: ["PER"]})
    file = write(tmp_path / "spans.json", json.dumps([task([marked])]))
    with pytest.raises(DataError, match=rf"ner marks {word}, parts of an item; only questions with class"):
        load_export(file)
    chosen = region("choices", {"choices": ["x"]}) | {"from_name": "mood"}
    both = load_export(write(tmp_path / "both.json", json.dumps([task([marked, chosen]), task([marked])])))
    assert both.left_out == {f"{word} (ner)": 2}
    assert both.labels.num_rows == 1


def test_spans_of_other_tools_are_called_so(tmp_path: Path) -> None:
    line = '{"id": 1, "text": "Anna", "label": [[0, 4, "PER"]]}'
    write(tmp_path / "members" / "ann.jsonl", line)
    with pytest.raises(DataError, match="marks spans, parts of an item"):
        load_export(tmp_path / "members")


@pytest.mark.parametrize("content", ['{"item": 1}{"item": 2}', '{"item": 1} {"item": 2}\n', "[1][2]"])
def test_values_on_one_line_are_refused(content: str, tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match=r"another value on the same line|text after the end of the array|no JSON"
    ):
        ds.read_annotations(write(tmp_path / "votes.jsonl", content))


def test_a_key_twice_is_refused_in_exports_too(tmp_path: Path) -> None:
    doubled = json.dumps([task([region("choices", {"choices": ["x"]})])]).replace(
        '"id": 1', '"id": 1, "id": 2'
    )
    with pytest.raises(DataError, match="the key 'id' occurs twice"):
        load_export(write(tmp_path / "export.json", doubled), format="label-studio")
    entry = '{"text": "t", "annotations": {"a": "1"}, "annotators": "a", "number of annotations": 1}'
    with pytest.raises(DataError, match="the key '1' occurs twice"):
        load_export(write(tmp_path / "lewidi.json", f'{{"1": {entry}, "1": {entry}}}'), format="lewidi")


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    ("names", "word"),
    [
        (["ann.jsonl", "ann.jsonl"], "holds 'ann.jsonl' twice"),
        (["a/ann.jsonl", "b/ann.jsonl"], "'a/ann.jsonl' and 'b/ann.jsonl' are both of the member 'ann'"),
        (["ann.json", "ann.jsonl"], "are both of the member 'ann'"),
    ],
)
def test_two_files_of_one_member_are_refused(names: list[str], word: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "d.zip", "w") as archive:
        for name in names:
            archive.writestr(name, '{"id": 1, "text": "t", "label": ["x"]}')
    with pytest.raises(DataError, match=word):
        load_export(tmp_path / "d.zip", format="doccano")


def test_minus_zero_keeps_its_sign(tmp_path: Path) -> None:
    rows = '{"item": -0, "annotator": 0, "label": -0.0}\n{"item": 0, "annotator": 1, "label": 0}\n'
    labels = ds.read_annotations(write(tmp_path / "votes.jsonl", rows), label_type="nominal")
    assert sorted(labels.items) == ["-0", "0"]
    assert sorted(labels.classes) == ["-0.0", "0"]
    tasks = [task([region("number", {"number": n})]) | {"id": i} for i, n in enumerate(("N", 1))]
    export = write(tmp_path / "e.json", json.dumps(tasks).replace('"N"', "-0"))
    assert load_export(export).labels["label"].to_pylist() == ["-0", "1"]
