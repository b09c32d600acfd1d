"""Every importer reads its documented shape, and says what it leaves out or cannot read."""

from __future__ import annotations

import csv
import gzip
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import export_samples as samples
from dissensus.errors import DataError, ParameterError
from dissensus.importers import FORMATS, load_export, recognise
from dissensus.importers.gather import Gatherer
from dissensus.importers.read import read_annotations
from dissensus.tables.json_lines import JsonStream
from dissensus.tables.write import write_table
from export_samples import SAMPLES, Sample


def triples(imported: Gatherer) -> list[tuple[str, str, str]]:
    columns = [imported.labels[name].to_pylist() for name in ("item", "annotator", "label")]
    return list(zip(*columns, strict=True))


def texts(imported: Gatherer) -> dict[str, str | None]:
    if imported.items is None:
        return {}
    items = imported.items["item"].to_pylist()
    if "text" not in imported.items.column_names:
        return dict.fromkeys(items)
    return dict(zip(items, imported.items["text"].to_pylist(), strict=True))


by_name = pytest.mark.parametrize("make", SAMPLES, ids=lambda make: make.__name__)
FOLDERS = (
    samples.potato,
    samples.doccano_folder,
    samples.doccano_zip,
    samples.huggingface_arrow,
    samples.huggingface_parquet,
)


@by_name
def test_the_documented_shape_is_read(make: Callable[[Path], Sample], tmp_path: Path) -> None:
    sample = make(tmp_path)
    imported = load_export(sample.path, **sample.options)
    assert triples(imported) == sample.labels
    assert texts(imported) == sample.texts
    assert imported.left_out == sample.left_out
    assert (imported.format, imported.question) == (sample.format, sample.question)
    assert imported.labels.schema.types == [pa.string()] * 3


@by_name
def test_the_format_is_recognised_from_the_content(make: Callable[[Path], Sample], tmp_path: Path) -> None:
    sample = make(tmp_path)
    named = sample.options.get("format") is not None
    assert recognise(sample.path) == (None if named else sample.format)


@pytest.mark.parametrize(
    "make", [make for make in SAMPLES if make not in FOLDERS], ids=lambda make: make.__name__
)
def test_a_gzipped_or_renamed_export_reads_the_same(make: Callable[[Path], Sample], tmp_path: Path) -> None:
    sample = make(tmp_path)
    other = tmp_path / "anything.bin"
    other.write_bytes(gzip.compress(b"\xef\xbb\xbf" + sample.path.read_bytes()))
    assert triples(load_export(other, **sample.options)) == sample.labels


@by_name
def test_annotations_are_read_from_every_export(make: Callable[[Path], Sample], tmp_path: Path) -> None:
    sample = make(tmp_path)
    options = {name: sample.options[name] for name in ("format", "question") if name in sample.options}
    if "item_column" in sample.options:
        options |= {"item": sample.options["item_column"], "format": sample.format}
    read = read_annotations(sample.path, **options)
    rows = zip(read.items[read.item], read.annotators[read.annotator], read.classes[read.label], strict=True)
    assert sorted(rows) == sorted(sample.labels)
    assert set(sample.texts) <= set(read.items)
    said = " ".join(read.notes)
    for reason, number in sample.left_out.items():
        noun = next(word for word in reason.split() if word.endswith("s"))
        words = reason if number > 1 else reason.replace(noun, noun[:-1])
        assert f"{number} {words} left out" in said


@pytest.mark.parametrize("name", ["labels.csv", "labels.csv.gz", "labels.jsonl", "labels.parquet"])
@by_name
def test_the_tables_written_from_an_export_read_as_it_does(
    make: Callable[[Path], Sample], name: str, tmp_path: Path
) -> None:
    sample = make(tmp_path)
    imported = load_export(sample.path, **sample.options)
    labels = write_table(imported.labels, tmp_path / "out" / name)
    items = (
        None if imported.items is None else write_table(imported.items, tmp_path / "out" / f"items-{name}")
    )
    read = read_annotations(labels, items=items)
    rows = zip(read.items[read.item], read.annotators[read.annotator], read.classes[read.label], strict=True)
    assert sorted(rows) == sorted(sample.labels)
    if any(sample.texts.values()):
        found = dict(zip(read.items, read.item_column("text"), strict=True))
        assert {item: text or None for item, text in found.items()} == sample.texts


def test_every_format_has_a_sample(tmp_path: Path) -> None:
    made = set()
    for number, make in enumerate(SAMPLES):
        (tmp_path / str(number)).mkdir()
        made.add(make(tmp_path / str(number)).format)
    assert made == set(FORMATS)


def test_every_format_and_option_is_documented() -> None:
    page = (Path(__file__).parents[1] / "docs" / "importing.md").read_text(encoding="utf-8").lower()
    for format in FORMATS.values():
        assert format.title.partition(" (")[0].split()[0].lower() in page
    for option in ("--format", "--question", "--item-column", "text_column", "--keep-rejected"):
        assert option in page


# ---- what is no export --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "task,worker,label\nt1,w1,cat\nt1,w2,dog\n",
        "item,annotator,label\na,x,1\nb,x,1\n",
        'item\tannotator\tlabel\ttext\na\tx\tyes\t"a, b"\n',
        '{"item": "a", "annotator": "x", "label": "yes"}\n{"item": "b", "annotator": "x", "label": "no"}\n',
        '[{"item": "a", "annotator": "x", "label": "yes"}]',
        "item,r1\n1,yes\n",
        "item,neg,pos\n1,2,3\n2,0,5\n",
        "item,annotator,label\na,yes,yes\nb,no,no\n",
        "",
        "{",
        "[",
        "{}",
        "[[[[",
        '{"a":',
        "\x00\x01\x02,,,",
        '"unclosed',
    ],
)
def test_plain_tables_and_rubbish_are_no_export(text: str, tmp_path: Path) -> None:
    file = tmp_path / "labels.any"
    file.write_text(text)
    assert recognise(file) is None


def test_missing_binary_and_empty_places_are_no_export(tmp_path: Path) -> None:
    parquet = tmp_path / "labels.parquet"
    pq.write_table(pa.table({"item": ["a"], "annotator": ["x"], "label": ["y"]}), parquet)
    office = tmp_path / "sheet.xlsx"
    with zipfile.ZipFile(office, "w") as archive:
        archive.writestr("xl/workbook.xml", "<x/>")
    broken = tmp_path / "broken.gz"
    broken.write_bytes(gzip.compress(b"x" * 1000)[:20])
    (tmp_path / "empty").mkdir()
    for path in (parquet, office, broken, tmp_path / "empty", tmp_path / "absent.json"):
        assert recognise(path) is None


@pytest.mark.data
def test_the_real_tables_are_no_export(data_dir: Path) -> None:
    files = sorted(data_dir.glob("*/annotations.csv*"))
    assert len(files) == 34
    assert [file for file in files if recognise(file) is not None] == []


# ---- questions ----------------------------------------------------------------------------------------


def two_questions(folder: Path) -> Path:
    tasks = samples.label_studio_tasks()
    tasks[1]["annotations"][0]["result"].append(samples.choice("topic", "sport"))
    file = folder / "two.json"
    file.write_text(json.dumps(tasks))
    return file


def test_several_questions_are_named_and_one_is_picked(tmp_path: Path) -> None:
    file = two_questions(tmp_path)
    with pytest.raises(
        DataError, match=r"several questions \(mood, topic\); choose one, such as question='mood'"
    ):
        load_export(file)
    imported = load_export(file, question="topic")
    assert triples(imported) == [("8", "15", "sport")]
    assert list(imported.questions) == ["mood", "topic"]


def test_a_mistyped_question_suggests_the_near_one(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no question 'mod'; did you mean 'mood'\? it has mood, topic"):
        load_export(two_questions(tmp_path), question="mod")
    table = samples.toloka(tmp_path).path
    with pytest.raises(DataError, match=r"no question 'reslut'; did you mean 'result'\?"):
        load_export(table, question="reslut")


@pytest.mark.parametrize("name", ["mood", "mood.label", "Answer.mood.label"])
def test_a_question_may_be_named_as_its_column(name: str, tmp_path: Path) -> None:
    assert len(triples(load_export(samples.mturk(tmp_path).path, question=name))) == 3


def test_columns_that_differ_within_an_item_are_the_questions(tmp_path: Path) -> None:
    file = tmp_path / "two.csv"
    file.write_text(
        "annotation_id,annotator,id,lead_time,mood,topic,source,text\n"
        "1,10,7,1.0,neg,sport,web,rain\n2,11,7,1.0,pos,news,web,rain\n3,10,8,1.0,pos,news,print,snow\n"
    )
    with pytest.raises(DataError, match=r"several questions \(mood, topic\)"):
        load_export(file)
    assert [label for *_, label in triples(load_export(file, question="source"))] == ["web", "web", "print"]


def test_where_nobody_disagrees_the_column_with_few_values_is_the_question(tmp_path: Path) -> None:
    file = tmp_path / "agreed.csv"
    rows = "".join(f"{n},10,{n},1.0,{'neg' if n % 2 else 'pos'},text number {n}\n" for n in range(8))
    file.write_text("annotation_id,annotator,id,lead_time,mood,text\n" + rows)
    assert load_export(file).question == "mood"


def test_an_appen_job_without_test_questions_is_read_by_its_values(tmp_path: Path) -> None:
    file = tmp_path / "report.csv"
    file.write_text(
        "_unit_id,_golden,_worker_id,mood,text\n7,false,1,neg,wet\n7,false,2,pos,wet\n8,false,1,neg,dry\n"
    )
    assert load_export(file).question == "mood"


# ---- refusals -----------------------------------------------------------------------------------------


def written(folder: Path, value: Any, name: str = "export.json") -> Path:
    file = folder / name
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return file


def task(**changes: Any) -> dict[str, Any]:
    annotation = {"id": 1, "completed_by": 10, "result": [samples.choice("mood", "neg")]}
    return {"id": 7, "data": {"text": "x"}, "annotations": [annotation | changes]}


def test_a_missing_annotator_is_named(tmp_path: Path) -> None:
    cases = {
        "a.json": [task(), task(completed_by=None)],
        "b.json": [task(), task(completed_by={"first_name": "Zoë"})],
        "c.jsonl": '\n{"text":"x","_input_hash":1,"answer":"accept","accept":["a"],"_annotator_id":null}',
        "d.csv": "HITId,WorkerId,AssignmentStatus,Answer.mood\nH,A,Approved,neg\nH, ,Approved,neg\n",
        "e.csv": "_unit_id,_golden,_worker_id,mood,mood_gold\n7,false,1,neg,\n7,false,,pos,\n",
        "f.tsv": "INPUT:t\tOUTPUT:r\tASSIGNMENT:task_id\tASSIGNMENT:worker_id\na\tx\tt1\tw\na\ty\tt1\t\n",
    }
    places = {"a": "record 2", "b": "record 2", "c": "line 2", "d": "line 3", "e": "line 3", "f": "line 3"}
    for name, value in cases.items():
        file = written(tmp_path, value, name)
        with pytest.raises(
            DataError, match=rf"{name} {places[name[0]]}: the annotator is missing; fill it in"
        ):
            load_export(file)


def test_a_missing_item_is_named(tmp_path: Path) -> None:
    tasks = [task(), task()]
    del tasks[1]["id"]
    with pytest.raises(DataError, match=r"export\.json record 2: the item has no id"):
        load_export(written(tmp_path, tasks))


def test_spans_are_no_labels(tmp_path: Path) -> None:
    members = tmp_path / "members"
    members.mkdir()
    written(members, '{"id": 1, "text": "Anna", "label": [[0, 4, "PER"]]}', "ann.jsonl")
    with pytest.raises(DataError, match=r"ann\.jsonl line 1.*only questions with class labels"):
        load_export(members)
    line = {"text": "Anna", "_input_hash": 1, "answer": "accept", "spans": [], "_session_id": "a"}
    with pytest.raises(DataError, match="marks spans, parts of a text; only classification tasks"):
        load_export(written(tmp_path, line))


@pytest.mark.parametrize(
    "where",
    [
        {"start": 0, "end": 3},
        {"x": 1.0, "y": 2.0},
        {"points": [[1, 2], [3, 4]]},
        {"format": "rle", "rle": [0]},
    ],
    ids=["text", "box", "polygon", "brush"],
)
def test_answers_about_parts_of_an_item_are_left_out(where: dict[str, Any], tmp_path: Path) -> None:
    part = samples.choice("mood", "neg")
    part["value"] |= where
    imported = load_export(written(tmp_path, [task(), task(result=[samples.choice("mood", "pos"), part])]))
    assert imported.left_out == {"answers about a part of an item": 1}
    assert [label for *_, label in triples(imported)] == ["neg", "pos"]


def test_the_same_answer_twice_in_one_annotation_is_one_label(tmp_path: Path) -> None:
    result = [samples.choice("mood", "neg"), samples.choice("mood", "neg", "pos")]
    assert triples(load_export(written(tmp_path, [task(result=result)]))) == [
        ("7", "10", "neg"),
        ("7", "10", "pos"),
    ]


def test_merged_doccano_files_have_lost_their_annotators(tmp_path: Path) -> None:
    line = json.dumps({"id": 7, "text": "got wet", "label": ["neg"]})
    single = written(tmp_path, line, "all.jsonl")
    folder = tmp_path / "folder"
    folder.mkdir()
    written(folder, line, "all.jsonl")
    for path in (single, folder):
        assert recognise(path) == "doccano"
        with pytest.raises(DataError, match="does not say who gave which label"):
            load_export(path)


def test_built_in_ground_truth_manifests_are_refused(tmp_path: Path) -> None:
    line = {
        "source-ref": "s3://b/1.png",
        "sport": 0,
        "sport-metadata": {"class-name": "football", "confidence": 0.9},
    }
    file = written(tmp_path, line, "output.manifest")
    assert recognise(file) == "ground-truth"
    with pytest.raises(DataError, match="holds only the consolidated label"):
        load_export(file)


def test_aggregated_appen_reports_have_no_workers(tmp_path: Path) -> None:
    file = written(tmp_path, "_unit_id,_golden,_trusted_judgments,mood\n7,false,3,neg\n", "agg.csv")
    with pytest.raises(DataError, match="download the full report"):
        load_export(file)


def test_lewidi_annotations_must_line_up(tmp_path: Path) -> None:
    entry = {"text": "x", "annotations": "0,1,0", "annotators": "Ann1,Ann2"}
    with pytest.raises(DataError, match="item '1': the annotations do not line up"):
        load_export(written(tmp_path, {"1": entry}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b'[{"_input_hash": 1, "answer": "ignore"}, {"text": ', r"line 1: is not valid JSON"),
        (b'{"_input_hash": 1, "answer": "ignore"}\n{"text": \n', r"line \d: is not valid JSON"),
        (b"[1, 2]", "record 1: is no JSON object but 1"),
        (b'[{"_input_hash": 1, "answer": "ignore"}] trailing', "text after the end of the array"),
        (b'[{"id": "\xff\xfe"}]', "line 1: byte 0xff is not UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b'[{"id": ' + b"9" * 5000 + b"}]", "a number too long"),
        (gzip.compress(b"[{}]" * 100, mtime=0)[:-12], "gzip file is damaged"),
    ],
)
def test_broken_json_is_one_line_that_says_where(content: bytes, message: str, tmp_path: Path) -> None:
    file = tmp_path / "export.json"
    file.write_bytes(content)
    with pytest.raises(DataError, match=rf"export\.json.*{message}") as caught:
        load_export(file, format="prodigy")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty"),
        ("HITId,WorkerId,Answer.a\n", "a header and no rows"),
        ("HITId,WorkerId,WorkerId,Answer.a\nH,A,A,x\n", "line 1: the column 'WorkerId' occurs twice"),
        ("HITId,WorkerId,Answer.a\nH,A,x\nH,A\n", "line 3: 2 fields where the header has 3"),
        ('HITId,WorkerId,Answer.a\nH,A,"x\n', "line 2: is not a valid table"),
        ("HITId,Answer.a\nH,x\n", "has no column 'WorkerId'"),
    ],
)
def test_broken_tables_are_one_line_that_says_where(content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load_export(written(tmp_path, content, "batch.csv"), format="mturk")


def test_an_export_without_a_usable_label_says_what_was_left_out(tmp_path: Path) -> None:
    file = written(tmp_path, [task(was_cancelled=True), task(was_cancelled=True)])
    with pytest.raises(DataError, match=r"no label is left \(2 cancelled or skipped annotations left out\)"):
        load_export(file)


def test_what_is_left_out_is_counted_in_words(tmp_path: Path) -> None:
    tasks = [task(was_cancelled=True), task(was_cancelled=True), task(result=[]), task()]
    notes = read_annotations(written(tmp_path, tasks)).notes
    assert {"2 cancelled or skipped annotations left out", "1 empty answer left out"} <= set(notes)


def test_damaged_datasets_on_disk(tmp_path: Path) -> None:
    path = samples.huggingface_arrow(tmp_path).path
    file = path / "train" / "data-00000-of-00001.arrow"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(DataError, match=r"cannot be read .*; save the dataset again"):
        load_export(path)
    file.unlink()
    with pytest.raises(DataError, match=r"holds no \.arrow or \.parquet file"):
        load_export(path)


def test_unknown_settings_and_files(tmp_path: Path) -> None:
    file = written(tmp_path, [task()])
    with pytest.raises(ParameterError, match="did you mean 'label-studio'"):
        load_export(file, format="labelstudio")
    with pytest.raises(DataError, match="no such file"):
        load_export(tmp_path / "absent.json")
    with pytest.raises(DataError, match="no such file"):
        load_export(tmp_path / "absent.json", format="prodigy")
    with pytest.raises(DataError, match="no export that is known; name it with format="):
        load_export(written(tmp_path, "a,b\n1,2\n", "x.csv"))
    with pytest.raises(DataError, match="no text column 'txt'; did you mean 'text'"):
        load_export(file, text_column="txt")


# ---- options and odd values ---------------------------------------------------------------------------


def test_rejected_assignments_can_be_kept(tmp_path: Path) -> None:
    for make in (samples.mturk, samples.toloka):
        sample = make(tmp_path)
        kept = load_export(sample.path, keep_rejected=True)
        assert len(triples(kept)) == len(sample.labels) + 1
        assert "rejected assignments" not in kept.left_out


def test_items_and_texts_can_be_taken_from_named_fields(tmp_path: Path) -> None:
    tasks = [task(), task()]
    tasks[0]["data"] = {"ref": "r-1", "title": "Rain", "body": ["It", {"deep": "rains"}]}
    tasks[1]["data"] = {"ref": "r-2", "title": "Snow", "body": []}
    imported = load_export(written(tmp_path, tasks), item_column="ref", text_column="body")
    assert texts(imported) == {"r-1": "It [SEP] rains", "r-2": None}


def test_side_columns_of_lewidi_are_kept(tmp_path: Path) -> None:
    items = load_export(samples.lewidi_2025(tmp_path).path).items
    assert items is not None
    assert items["split"].to_pylist() == ["dev", "train", "test"]
    assert items["lang"].to_pylist() == ["en", "fr", "en"]


def test_other_label_studio_controls(tmp_path: Path) -> None:
    def result(kind: str, value: Any) -> dict[str, Any]:
        return {"from_name": "q", "to_name": "text", "type": kind, "value": value}

    cases = {
        "rating": ({"rating": 4}, ["4"]),
        "number": ({"number": 2.5}, ["2.5"]),
        "pairwise": ({"selected": "left"}, ["left"]),
        "taxonomy": ({"taxonomy": [["Animal", "Cat"], ["Plant"]]}, ["Animal / Cat", "Plant"]),
    }
    for kind, (value, labels) in cases.items():
        imported = load_export(written(tmp_path, [task(result=[result(kind, value)])]))
        assert [label for *_, label in triples(imported)] == labels


def test_odd_values_become_plain_labels_or_none(tmp_path: Path) -> None:
    rows = [[1, 1, value, "t"] for value in (True, 2.0, 2.5, "none", " ", None, float("nan"), "null")]
    table = {"columns": ["message_id", "worker_id", "label", "message"], "data": rows}
    imported = load_export(written(tmp_path, table))
    assert [label for *_, label in triples(imported)] == ["true", "2", "2.5", "none", "null"]
    assert imported.left_out == {"empty answers": 3}


def test_half_a_character_is_refused_in_labels_and_replaced_in_texts(tmp_path: Path) -> None:
    text = '[{"id": 1, "data": {"text": "a\\ud800b"}, "annotations": []}]'
    file = written(tmp_path, text.replace("[]", json.dumps(task()["annotations"])))
    assert texts(load_export(file)) == {"1": "a?b"}
    with pytest.raises(DataError, match=r"record 1: .* is not valid text"):
        load_export(
            written(tmp_path, text.replace("[]", json.dumps(task()["annotations"]).replace("neg", "\\ud800")))
        )


def test_long_documents_fit_in_a_cell(tmp_path: Path) -> None:
    long = "word " * 100_000
    file = written(tmp_path, f"HITId,WorkerId,Input.text,Answer.a\nH,A,{long},x\n", "long.csv")
    before = csv.field_size_limit()
    assert texts(load_export(file)) == {"H": long}
    assert csv.field_size_limit() == before


# ---- datasets on disk ---------------------------------------------------------------------------------


def on_disk(folder: Path, table: pa.Table, features: dict[str, Any] | None = None) -> Path:
    """A dataset in Arrow's file format (``save_to_disk`` writes streams; both are met)."""
    if features:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    folder.mkdir(exist_ok=True)
    with pa.ipc.new_file(str(folder / "data.arrow"), table.schema) as writer:
        writer.write_table(table)
    return folder


def test_a_dataset_that_argilla_wrote(tmp_path: Path) -> None:
    columns = {
        "id": ["7", "8"],
        "text": ["wet", "dry"],
        "mood.responses": [["neg", "pos"], None],
        "mood.responses.users": [["u1", "u2"], None],
        "mood.responses.status": [["submitted", "draft"], None],
    }
    imported = load_export(on_disk(tmp_path / "argilla", pa.table(columns)))
    assert triples(imported) == [("7", "u1", "neg")]
    assert imported.left_out == {"draft responses": 1}


def test_lists_of_class_numbers_get_their_names(tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2], "annotators": [["x", "y"], ["x"]], "labels": [[[0, 1], [1]], [[]]]})
    declared = {"labels": [[{"names": ["neg", "pos"], "_type": "ClassLabel"}]]}
    expected = [("1", "x", "neg"), ("1", "x", "pos"), ("1", "y", "pos")]
    assert triples(load_export(on_disk(tmp_path / "lists", table, declared))) == expected
    declared = {"labels": {"_type": "List", "feature": declared["labels"][0][0]}}
    assert triples(load_export(on_disk(tmp_path / "lists", table, declared))) == expected


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"item": ["a"], "label": ["x"]}, "no annotator column found; .* it has item, label"),
        (
            {"item": ["a"], "annotator": ["x"], "mood": ["y"]},
            r"which column holds the answers; .*question= \(mood\)",
        ),
        (
            {"thing": ["a"], "annotator": ["x"], "label": ["y"]},
            "no item column found; .* it has thing, annotator, label",
        ),
        (
            {"item": ["a"], "annotator": [["x", "y"]], "label": [["z"]]},
            "row 1: the lists .* differ in length",
        ),
        ({"item": ["a"], "annotator": ["x"], "label": [2]}, "label 2 is not one of the dataset's 2 classes"),
    ],
)
def test_datasets_that_cannot_be_read(columns: dict[str, Any], message: str, tmp_path: Path) -> None:
    declared = (
        {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}} if columns.get("label") == [2] else None
    )
    with pytest.raises(DataError, match=message):
        load_export(on_disk(tmp_path / "data", pa.table(columns), declared))


def test_the_columns_of_a_dataset_may_have_any_names(tmp_path: Path) -> None:
    path = on_disk(
        tmp_path / "data", pa.table({"thing": ["a"], "who": ["x"], "mood": ["sad"], "label": ["z"]})
    )
    with pytest.raises(DataError, match=r"no annotator column found; .* it has thing, who"):
        read_annotations(path, item="thing")
    for question in ({"question": "mood"}, {"label": "mood"}):
        read = read_annotations(path, item="thing", annotator="who", **question)
        assert [list(ids) for ids in (read.items, read.annotators, read.classes)] == [["a"], ["x"], ["sad"]]
    with pytest.raises(DataError, match="there is no column 'by'; it has thing, who"):
        load_export(path, item_column="thing", annotator_column="by")
    with pytest.raises(DataError, match="label-studio files say themselves who annotated"):
        load_export(written(tmp_path, [task()]), annotator_column="who")


def test_every_label_column_of_a_dataset_is_a_question(tmp_path: Path) -> None:
    path = on_disk(
        tmp_path / "data", pa.table({"id": ["a"], "annotator": ["x"], "Rating": [4], "label": ["y"]})
    )
    with pytest.raises(
        DataError, match=r"several questions \(Rating, label\); choose one, such as question='Rating'"
    ):
        load_export(path)
    chosen = load_export(path, question="Rating")
    assert (triples(chosen), list(chosen.questions)) == ([("a", "x", "4")], ["Rating", "label"])
    assert texts(chosen) == {}  # the other question's answer is no text
    assert texts(load_export(path, question="Rating", text_column="label")) == {"a": "y"}


def test_a_dataset_with_two_columns_of_one_name(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"])] * 3, ["item", "annotator", "item"])
    with pytest.raises(DataError, match="two columns share a name"):
        load_export(on_disk(tmp_path / "data", table))


# ---- Ground Truth forms -------------------------------------------------------------------------------


def test_two_jobs_in_one_manifest_are_two_questions(tmp_path: Path) -> None:
    def job(value: str) -> dict[str, Any]:
        content = json.dumps({"mood": {"label": value}})
        return {"annotationsFromAllWorkers": [{"workerId": "w", "annotationData": {"content": content}}]}

    line = {"source": "got wet", "ref": "r1", "first": job("neg"), "second": job("pos")}
    file = written(tmp_path, line)
    with pytest.raises(DataError, match=r"several questions \(first\.mood, second\.mood\)"):
        load_export(file)
    imported = load_export(file, question="second.mood", item_column="ref")
    assert triples(imported) == [("r1", "w", "pos")]
    assert texts(imported) == {"r1": "got wet"}


def test_a_worker_without_an_object_is_refused(tmp_path: Path) -> None:
    line = {"source-ref": "s3://x", "job": {"annotationsFromAllWorkers": ["w"]}}
    with pytest.raises(DataError, match="line 1: holds an annotation that is not an object"):
        load_export(written(tmp_path, line))


# ---- the JSON stream ----------------------------------------------------------------------------------


class OneCharacterAtATime(io.StringIO):
    """A file that gives as little as it may, so that every value is cut somewhere."""

    def read(self, size: int | None = -1, /) -> str:
        return super().read(min(1, size or 1) if size != -1 else -1)


def test_values_cut_anywhere_are_put_together() -> None:
    values = [
        12345,
        -1.5e-7,
        True,
        None,
        'a\\"b\n\u00e9😀',
        [],
        {},
        {"a": [1, {"b": "]}"}]},
        float("1e300"),
        False,
    ]
    text = json.dumps(values, indent=1)
    stream = JsonStream(OneCharacterAtATime(text), "t")
    assert list(stream.elements()) == values
    assert stream.peek() == ""
    assert stream.line == text.count("\n") + 1


def test_a_broken_value_is_refused_without_reading_the_rest() -> None:
    text = io.StringIO('{"a": [1, 2,, 3]}' + " " * 10_000_000)
    with pytest.raises(DataError, match="line 1"):
        JsonStream(text, "t").value()
    assert text.tell() < 5_000_000


# ---- a real project -----------------------------------------------------------------------------------


@pytest.mark.data
def test_jq1_as_a_label_studio_export_reads_as_its_table_does(data_dir: Path, tmp_path: Path) -> None:
    """20,125 labels with their texts, written in Label Studio's shape and read back."""
    folder = data_dir / "jq1"
    plain = read_annotations(folder / "annotations.csv", items=folder / "items.csv")
    tasks: dict[str, dict[str, Any]] = {
        item: {"id": item, "data": {"text": text}, "annotations": []}
        for item, text in zip(plain.items, plain.item_column("text"), strict=True)
    }
    codes = zip(
        plain.items[plain.item], plain.annotators[plain.annotator], plain.classes[plain.label], strict=True
    )
    for item, who, value in codes:
        tasks[item]["annotations"].append({"completed_by": who, "result": [samples.choice("q1", value)]})
    read = read_annotations(written(tmp_path, list(tasks.values())))
    for column in ("item", "annotator", "label"):
        assert (getattr(read, column) == getattr(plain, column)).all()
    assert list(read.items) == list(plain.items)
    assert list(read.annotators) == list(plain.annotators)
    assert list(read.classes) == list(plain.classes)
    assert list(read.item_column("text")) == list(plain.item_column("text"))
