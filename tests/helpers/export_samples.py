"""Small exports in the documented shape of each tool, texts invented, with what should be read from them.

Every sample writes its files below a folder and says, worked by hand, which labels come out and what is
left out.
"""

from __future__ import annotations

import csv
import io
import json
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

Label = tuple[str, str, str]


@dataclass(frozen=True)
class Sample:
    """A written export and what a reader should find."""

    path: Path
    format: str
    labels: list[Label]
    texts: dict[str, str | None] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    question: str = "label"
    options: dict[str, Any] = field(default_factory=dict)


def _json(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return path


def _jsonl(path: Path, values: list[Any]) -> Path:
    path.write_text(
        "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values), encoding="utf-8"
    )
    return path


def _text(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def choice(name: str, *values: str) -> dict[str, Any]:
    """One result of a Label Studio choices control."""
    return {
        "from_name": name,
        "to_name": "text",
        "type": "choices",
        "value": {"choices": list(values)},
        "id": "r",
    }


def label_studio_tasks() -> list[dict[str, Any]]:
    """Two tasks with a cancelled, an empty, a ground-truth and a double answer, and a comment box."""
    comment = {"from_name": "why", "to_name": "text", "type": "textarea", "value": {"text": ["hm"]}}
    return [
        {
            "id": 7,
            "data": {"text": "the bus was late again", "meta": {"source": {"page": 3}}},
            "annotations": [
                {
                    "id": 1,
                    "completed_by": 10,
                    "was_cancelled": False,
                    "result": [choice("mood", "neg"), comment],
                },
                {
                    "id": 2,
                    "completed_by": {"id": 11, "email": "zoë@example.org"},
                    "result": [choice("mood", "pos")],
                },
                {"id": 3, "completed_by": 12, "was_cancelled": True, "result": []},
                {"id": 4, "completed_by": 13, "was_cancelled": False, "result": []},
                {"id": 5, "completed_by": 14, "ground_truth": True, "result": [choice("mood", "neg")]},
            ],
            "predictions": [{"result": [choice("mood", "pos")], "model_version": "v1"}],
        },
        {
            "id": 8,
            "data": {"text": "日本語のテキスト 🙂"},
            "annotations": [{"id": 6, "completed_by": {"id": 15}, "result": [choice("mood", "neg", "pos")]}],
        },
        {"id": 9, "data": {"text": "nobody came"}, "annotations": []},
    ]


def label_studio_json(folder: Path) -> Sample:
    return Sample(
        _json(folder / "project-1.json", label_studio_tasks()),
        "label-studio",
        [("7", "10", "neg"), ("7", "zoë@example.org", "pos"), ("8", "15", "neg"), ("8", "15", "pos")],
        {"7": "the bus was late again", "8": "日本語のテキスト 🙂", "9": "nobody came"},
        {"cancelled or skipped annotations": 1, "empty answers": 1, "ground-truth annotations": 1},
        question="mood",
    )


def label_studio_min(folder: Path) -> Sample:
    rows = [
        {"text": "rain", "id": 7, "mood": "neg", "annotator": 10, "annotation_id": 1, "lead_time": 3.2},
        {"text": "rain", "id": 7, "mood": {"choices": ["neg", "pos"]}, "annotator": 11, "annotation_id": 2,
         "lead_time": 1.5},
        {"text": "snow", "id": 8, "mood": "", "annotator": 10, "annotation_id": 3, "lead_time": 0.5},
        {"text": "snow", "id": 8, "mood": "pos", "annotator": 12, "annotation_id": 4, "lead_time": 0.5},
    ]  # fmt: skip
    return Sample(
        _json(folder / "project-min.json", rows),
        "label-studio",
        [("7", "10", "neg"), ("7", "11", "neg"), ("7", "11", "pos"), ("8", "12", "pos")],
        {"7": "rain", "8": "snow"},
        {"empty answers": 1},
        question="mood",
    )


def label_studio_csv(folder: Path) -> Sample:
    table = (
        '"annotation_id","annotator","created_at","id","lead_time","mood","text","updated_at"\n'
        '1,"10","2024-01-01T10:00:00Z",7,3.2,"neg","rain, ""heavy"" rain\nall day","2024-01-01T10:00:05Z"\n'
        '2,"11","2024-01-01T10:01:00Z",7,2.0,"{""choices"": [""neg"", ""pos""]}","rain",""\n'
        '3,"10","2024-01-01T10:02:00Z",8,1.0,"pos","snow","2024-01-01T10:02:05Z"\n'
    )
    return Sample(
        _text(folder / "project.csv", table),
        "label-studio",
        [("7", "10", "neg"), ("7", "11", "neg"), ("7", "11", "pos"), ("8", "10", "pos")],
        {"7": 'rain, "heavy" rain\nall day', "8": "snow"},
        question="mood",
        options={"question": "mood"},
    )


def prodigy_choice(folder: Path) -> Sample:
    def line(
        item: int, who: str | None, accept: list[str], answer: str = "accept", **more: Any
    ) -> dict[str, Any]:
        options = [{"id": "pos", "text": "Positive"}, {"id": "neg", "text": "Negative"}]
        return {"text": f"text {item}", "_input_hash": item, "_task_hash": item * 7, "options": options,
                "accept": accept, "answer": answer, "_view_id": "choice", "_timestamp": 1707211049,
                "_annotator_id": who, "_session_id": "db-session", **more}  # fmt: skip

    lines = [
        line(-91551573, "db-ann", ["neg"]),
        line(-91551573, "db-bob", ["neg", "pos"], meta={"deep": [{"er": None}]}),
        line(-91551573, "db-cyd", [], "ignore"),
        line(5, None, ["pos"]),
        line(5, "db-ann", []),
        line(5, "db-bob", ["pos"], "reject"),
    ]
    return Sample(
        _jsonl(folder / "prodigy.jsonl", lines),
        "prodigy",
        [
            ("-91551573", "db-ann", "neg"),
            ("-91551573", "db-bob", "neg"),
            ("-91551573", "db-bob", "pos"),
            ("5", "db-session", "pos"),
        ],
        {"-91551573": "text -91551573", "5": "text 5"},
        {"answers marked ignore": 1, "empty answers": 1, "rejected tasks": 1},
        question="choice",
    )


def prodigy_binary(folder: Path) -> Sample:
    lines = [
        {"text": "goal!", "label": "SPORT", "answer": "accept", "_input_hash": 1, "_task_hash": 2,
         "_session_id": "ann"},
        {"text": "goal!", "label": "SPORT", "answer": "reject", "_input_hash": 1, "_task_hash": 2,
         "_session_id": "bob"},
        {"text": "goal!", "label": "NEWS", "answer": "accept", "_input_hash": 1, "_task_hash": 3,
         "_session_id": "bob"},
        {"text": "vote", "label": "SPORT", "answer": "ignore", "_input_hash": 4, "_task_hash": 5,
         "_session_id": "bob"},
    ]  # fmt: skip
    return Sample(
        _jsonl(folder / "binary.jsonl", lines),
        "prodigy",
        [("1", "ann", "accept"), ("1", "bob", "reject")],
        {"1": "goal!", "4": "vote"},
        {"answers marked ignore": 1},
        question="SPORT",
        options={"question": "SPORT"},
    )


def argilla_flat(folder: Path) -> Sample:
    lines = [
        {"id": "7", "text": "got wet", "status": "pending", "mood.responses": ["neg", "pos", "pos", None],
         "mood.responses.users": ["u1", "u2", "u3", "u4"],
         "mood.responses.status": ["submitted", "submitted", "discarded", "draft"], "mood.suggestion": "neg"},
        {"id": "8", "text": "got dry", "status": "completed", "mood.responses": [["neg", "pos"]],
         "mood.responses.users": ["u1"], "mood.responses.status": ["submitted"], "mood.suggestion": None},
        {"id": "9", "text": "nobody", "status": "pending", "mood.responses": None,
         "mood.responses.users": None, "mood.responses.status": None, "mood.suggestion": None},
    ]  # fmt: skip
    return Sample(
        _jsonl(folder / "argilla.jsonl", lines),
        "argilla",
        [("7", "u1", "neg"), ("7", "u2", "pos"), ("8", "u1", "neg"), ("8", "u1", "pos")],
        {"7": "got wet", "8": "got dry", "9": "nobody"},
        {"discarded responses": 1, "draft responses": 1},
        question="mood",
    )


def argilla_nested(folder: Path) -> Sample:
    records = [
        {"id": "7", "fields": {"text": "got wet"}, "metadata": {"page": 1}, "suggestions": {},
         "responses": {"stars": [{"value": 4, "user_id": "u1"}, {"value": 5, "user_id": "u2"}],
                       "mood": [{"value": "neg", "user_id": "u1"}]}, "vectors": {}, "_server_id": "s"},
        {"id": "8", "fields": {"text": "got dry"}, "metadata": {}, "suggestions": {},
         "responses": {"stars": [{"value": None, "user_id": "u1"}]}, "vectors": {}},
    ]  # fmt: skip
    return Sample(
        _json(folder / "records.json", records),
        "argilla",
        [("7", "u1", "4"), ("7", "u2", "5")],
        {"7": "got wet", "8": "got dry"},
        {"empty answers": 1},
        question="stars",
        options={"question": "stars"},
    )


def _doccano_members() -> dict[str, list[dict[str, Any]]]:
    return {
        "ann": [
            {"id": 7, "text": "got wet", "label": ["neg"], "Comments": []},
            {"id": 8, "text": "got dry", "label": []},
        ],
        "bób": [
            {"id": 7, "text": "got wet", "label": ["neg", "pos"]},
            {"id": 8, "text": "got dry", "label": ["pos"]},
        ],
        "idle": [],
    }


_DOCCANO_LABELS = [("7", "ann", "neg"), ("7", "bób", "neg"), ("7", "bób", "pos"), ("8", "bób", "pos")]


def argilla_feedback(folder: Path) -> Sample:
    """Version 1: responses are a list, with the answers to all questions by one user each."""
    records = [
        {"external_id": "a7", "fields": {"text": "got wet"}, "metadata": {"page": 1}, "suggestions": [],
         "responses": [
             {"user_id": "u1", "status": "submitted",
              "values": {"mood": {"value": "neg"}, "topics": {"value": ["rain", "wind"]}}},
             {"user_id": "u2", "status": "discarded", "values": {"mood": {"value": "pos"}}}]},
        {"external_id": None, "fields": {"text": "got dry"}, "metadata": {}, "suggestions": [],
         "responses": [{"user_id": "u2", "status": "submitted", "values": {"topics": {"value": ["sun"]}}},
                       {"user_id": "u3", "status": "draft", "values": None}]},
    ]  # fmt: skip
    return Sample(
        _json(folder / "feedback.json", records),
        "argilla",
        [("a7", "u1", "rain"), ("a7", "u1", "wind"), ("record 2", "u2", "sun")],
        {"a7": "got wet", "record 2": "got dry"},
        {},
        question="topics",
        options={"question": "topics"},
    )


def argilla_feedback_dataset(folder: Path) -> Sample:
    """Version 1 as a dataset: a question is a list of objects, or an object of lists."""
    lines = [
        {"text": "got wet", "stars": [{"user_id": "u1", "value": 4, "status": "submitted"},
                                      {"user_id": "u2", "value": 1, "status": "discarded"}],
         "stars-suggestion": None, "stars-suggestion-metadata": {"type": None, "score": None, "agent": None},
         "external_id": "e1", "metadata": "{}"},
        {"text": "got dry", "stars": {"user_id": ["u1", "u3"], "value": [5, 2],
                                      "status": ["submitted", "submitted"]},
         "stars-suggestion": 3, "stars-suggestion-metadata": None, "external_id": "e2", "metadata": "{}"},
        {"text": "nobody", "stars": [], "stars-suggestion": 3, "stars-suggestion-metadata": None,
         "external_id": "e3", "metadata": "{}"},
    ]  # fmt: skip
    return Sample(
        _jsonl(folder / "stars.jsonl", lines),
        "argilla",
        [("e1", "u1", "4"), ("e2", "u1", "5"), ("e2", "u3", "2")],
        {"e1": "got wet", "e2": "got dry", "e3": "nobody"},
        {"discarded responses": 1},
        question="stars",
    )


def argilla_classification(folder: Path) -> Sample:
    """Version 1, text classification: one annotation a record."""
    rest = {"prediction": None, "prediction_agent": None, "multi_label": False, "explanation": None,
            "metadata": None, "event_timestamp": None, "metrics": {}, "vectors": None}  # fmt: skip
    lines = [
        {"text": "got wet", "inputs": {"text": "got wet"}, "annotation": "neg", "annotation_agent": "ann",
         "id": "1", "status": "Validated", **rest},
        {"text": "got wet", "inputs": {"text": "got wet"}, "annotation": "pos", "annotation_agent": "bob",
         "id": "1", "status": "Validated", **rest},
        {"text": None, "inputs": {"title": "got dry"}, "annotation": "pos", "annotation_agent": "ann",
         "id": "2", "status": "Discarded", **rest},
        {"text": "new", "inputs": {"text": "new"}, "annotation": None, "annotation_agent": None, "id": "3",
         "status": "Default", **rest},
    ]  # fmt: skip
    return Sample(
        _jsonl(folder / "classified.jsonl", lines),
        "argilla",
        [("1", "ann", "neg"), ("1", "bob", "pos")],
        {"1": "got wet", "2": "got dry", "3": "new"},
        {"discarded responses": 1, "empty answers": 1},
        question="annotation",
    )


def doccano_folder(folder: Path) -> Sample:
    path = folder / "members"
    path.mkdir()
    for name, lines in _doccano_members().items():
        _jsonl(path / f"{name}.jsonl", lines)
    return Sample(path, "doccano", _DOCCANO_LABELS, {"7": "got wet", "8": "got dry"}, {"empty answers": 1})


def doccano_zip(folder: Path) -> Sample:
    path = folder / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, lines in _doccano_members().items():
            archive.writestr(f"{name}.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    return Sample(path, "doccano", _DOCCANO_LABELS, {"7": "got wet", "8": "got dry"}, {"empty answers": 1})


def mturk(folder: Path) -> Sample:
    header = (
        '"HITId","HITTypeId","AssignmentId","WorkerId","AssignmentStatus","Input.text","Answer.mood.label",'
        '"Approve","Reject"\n'
    )
    table = header + (
        '"3XH7","3TYP","3AS1","A1","Approved","got wet, again","neg","",""\n'
        '"3XH7","3TYP","3AS2","A2","Submitted","got wet, again","neg|pos"\n'
        '"3XH7","3TYP","3AS3","A3","Rejected","got wet, again","pos","","x"\n'
        '"3XH8","3TYP","3AS4","A1","Approved","größer\nals gedacht","","",""\n'
    )
    return Sample(
        _text(folder / "Batch_1_batch_results.csv", table),
        "mturk",
        [("3XH7", "A1", "neg"), ("3XH7", "A2", "neg"), ("3XH7", "A2", "pos")],
        {"3XH7": "got wet, again", "3XH8": "größer\nals gedacht"},
        {"rejected assignments": 1, "empty answers": 1},
        question="mood",
    )


def mturk_ticks(folder: Path) -> Sample:
    table = (
        "HITId,AssignmentId,WorkerId,AssignmentStatus,Input.doc,Input.text,Answer.mood.neg,Answer.mood.pos\n"
        "H1,S1,A1,Approved,d1,got wet,true,false\n"
        "H1,S2,A2,Approved,d1,got wet,true,true\n"
        "H2,S3,A1,Approved,d1,got wet,false,true\n"
    )
    return Sample(
        _text(folder / "ticks.csv", table),
        "mturk",
        [("d1", "A1", "neg"), ("d1", "A2", "neg"), ("d1", "A2", "pos"), ("d1", "A1", "pos")],
        {"d1": "got wet"},
        question="mood",
        options={"item_column": "Input.doc", "text_column": "Input.text"},
    )


def mturk_form(folder: Path) -> Sample:
    def cell(value: Any) -> str:
        return '"' + json.dumps(value).replace('"', '""') + '"'

    table = "HITId,AssignmentId,WorkerId,AssignmentStatus,Input.text,Answer.taskAnswers\n" + "".join(
        f"H1,S{n},A{n},Approved,got wet,{cell(form)}\n"
        for n, form in enumerate([[{"mood": {"label": "neg"}}], [{"mood": {"label": "pos"}}], [{}]])
    )
    return Sample(
        _text(folder / "form.csv", table),
        "mturk",
        [("H1", "A0", "neg"), ("H1", "A1", "pos")],
        {"H1": "got wet"},
        {"empty answers": 1},
        question="mood",
    )


def appen(folder: Path) -> Sample:
    table = (
        "_unit_id,_created_at,_golden,_id,_missed,_started_at,_tainted,_channel,_trust,_worker_id,_country,_region,"
        "_city,_ip,mood,mood_gold,text\n"
        "7,1/1/2015 10:00:00,false,91,,1/1/2015 09:59:00,false,elite,0.91,3001,USA,,,,neg,,got wet\n"
        '7,1/1/2015 10:01:00,false,92,,1/1/2015 09:59:00,false,elite,0.88,3002,DEU,,,,"neg\npos",,got wet\n'
        "7,1/1/2015 10:02:00,false,93,,1/1/2015 09:59:00,true,elite,0.11,3003,FRA,,,,pos,,got wet\n"
        "9,1/1/2015 10:03:00,true,94,,1/1/2015 09:59:00,false,elite,0.88,3002,DEU,,,,pos,pos,test\n"
        "8,1/1/2015 10:04:00,false,95,,1/1/2015 09:59:00,false,elite,0.88,3002,DEU,,,,,,got dry\n"
    )
    return Sample(
        _text(folder / "f123.csv", table),
        "appen",
        [("7", "3001", "neg"), ("7", "3002", "neg"), ("7", "3002", "pos")],
        {"7": "got wet", "9": "test", "8": "got dry"},
        {"tainted rows": 1, "gold (test question) rows": 1, "empty answers": 1},
        question="mood",
    )


def toloka(folder: Path) -> Sample:
    table = (
        "INPUT:text\tOUTPUT:result\tGOLDEN:result\tHINT:text\tASSIGNMENT:link\tASSIGNMENT:assignment_id\t"
        "ASSIGNMENT:task_id\tASSIGNMENT:worker_id\tASSIGNMENT:status\tASSIGNMENT:started\n"
        "got wet\tneg\t\t\t\tas-1\tt-7\tw-33\tAPPROVED\t2021-01-01T10:00:00\n"
        "\t\t\t\t\t\t\t\t\t\n"
        'got wet\t"[""neg"",""pos""]"\t\t\t\tas-2\tt-7\tw-34\tSUBMITTED\t2021-01-01T10:00:00\n'
        "test\tpos\tpos\t\t\tas-2\tt-9\tw-34\tAPPROVED\t2021-01-01T10:00:00\n"
        "got wet\tpos\t\t\t\tas-3\tt-7\tw-35\tREJECTED\t2021-01-01T10:00:00\n"
        "got wet\t\t\t\t\tas-4\tt-7\tw-36\tSKIPPED\t2021-01-01T10:00:00\n"
    )
    return Sample(
        _text(folder / "assignments.tsv", table),
        "toloka",
        [("t-7", "w-33", "neg"), ("t-7", "w-34", "neg"), ("t-7", "w-34", "pos")],
        {"t-7": "got wet", "t-9": "test"},
        {"gold (test question) rows": 1, "rejected assignments": 1, "skipped assignments": 1},
        question="result",
    )


def ground_truth(folder: Path) -> Sample:
    def worker(name: str, content: Any) -> dict[str, Any]:
        return {"workerId": name, "annotationData": {"content": json.dumps(content)}}

    def line(number: int, workers: list[Any]) -> dict[str, Any]:
        return {"source-ref": f"s3://b/{number}.txt", "job": {"annotationsFromAllWorkers": workers},
                "job-metadata": {"type": "groundtruth/custom", "human-annotated": "yes"}}  # fmt: skip

    lines = [
        line(
            7,
            [
                worker("private.1", {"response": {"label": "neg"}}),
                worker("private.2", {"response": {"label": "pos"}}),
            ],
        ),
        line(8, [worker("private.1", {"response": {"label": ""}}), worker("private.3", {})]),
        line(9, [worker("private.1", {"response": {"neg": False, "pos": True}})]),
    ]
    return Sample(
        _jsonl(folder / "output.manifest", lines),
        "ground-truth",
        [
            ("s3://b/7.txt", "private.1", "neg"),
            ("s3://b/7.txt", "private.2", "pos"),
            ("s3://b/9.txt", "private.1", "pos"),
        ],
        {"s3://b/7.txt": None, "s3://b/8.txt": None, "s3://b/9.txt": None},
        {"empty answers": 2},
        question="response",
    )


def lewidi_2025(folder: Path) -> Sample:
    entries = {
        "7": {"annotation task": "sarcasm", "text": {"context": "So you won?", "response": "Obviously."},
              "number of annotators": 2, "annotators": "Ann1,Ann2", "annotations": {"Ann1": "2", "Ann2": "5"},
              "soft_label": {"2": 0.5, "5": 0.5}, "split": "dev", "lang": "en"},
        "8": {"annotation task": "sarcasm", "text": {"context": "Nice.", "response": "Très bien."},
              "number of annotators": 2, "annotators": "Ann1,Ann3",
              "annotations": {"Ann1": "2", "Ann3": "2, 5"}, "soft_label": {}, "split": "train", "lang": "fr"},
        "9": {"annotation task": "sarcasm", "text": {"context": "a", "response": "b"}, "annotators": "Ann1",
              "annotations": {}, "soft_label": {}, "split": "test", "lang": "en"},
    }  # fmt: skip
    return Sample(
        _json(folder / "CSC_dev.json", entries),
        "lewidi",
        [("7", "Ann1", "2"), ("7", "Ann2", "5"), ("8", "Ann1", "2"), ("8", "Ann3", "2"), ("8", "Ann3", "5")],
        {"7": "So you won? [SEP] Obviously.", "8": "Nice. [SEP] Très bien.", "9": "a [SEP] b"},
        {"items without annotations": 1},
        question="annotations",
    )


def lewidi_2023(folder: Path) -> Sample:
    entries = {
        "1": {"annotation task": "hate speech detection", "text": "hello <user>", "number of annotations": 3,
              "annotations": "0,1,0", "annotators": "Ann1,Ann2,Ann3", "lang": "en", "hard_label": "0",
              "soft_label": {"0": 0.67, "1": 0.33}, "split": "train", "other_info": {"id": 1}},
        "2": {"annotation task": "hate speech detection", "text": "bye", "number of annotations": 2,
              "annotations": "1, 1", "annotators": "Ann1,Ann4", "lang": "en", "hard_label": "1",
              "soft_label": {"0": 0.0, "1": 1.0}, "split": "train", "other_info": {}},
    }  # fmt: skip
    return Sample(
        _json(folder / "HS-Brexit_train.json", entries),
        "lewidi",
        [("1", "Ann1", "0"), ("1", "Ann2", "1"), ("1", "Ann3", "0"), ("2", "Ann1", "1"), ("2", "Ann4", "1")],
        {"1": "hello <user>", "2": "bye"},
        question="annotations",
    )


def pldl(folder: Path) -> Sample:
    table = {
        "columns": ["message_id", "worker_id", "label", "message", "platform", "label_vector"],
        "index": [0, 1, 2, 3],
        "data": [
            [7, 3001, 2, "off to work", "mt", [0, 0, 1]],
            [7, 3002, "none", "off to work", "f8", [0, 1, 0]],
            [8, 3001, [0, 2], "fired", "mt", [1, 0, 1]],
            [8, 3002, None, "fired", "mt", []],
        ],
    }
    return Sample(
        _json(folder / "jobQ1.json", table),
        "pldl",
        [("7", "3001", "2"), ("7", "3002", "none"), ("8", "3001", "0"), ("8", "3001", "2")],
        {"7": "off to work", "8": "fired"},
        {"empty answers": 1},
    )


def _rows_table() -> pa.Table:
    features = {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}, "item": {"dtype": "string"}}
    table = pa.table(
        {
            "item": ["a", "a", "b", "b"],
            "annotator": pa.array([1, 2, 1, 2]),
            "label": pa.array([0, 1, 1, -1]),
            "text": ["got wet", "got wet", "got dry", "got dry"],
        }
    )
    return table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def huggingface_arrow(folder: Path) -> Sample:
    path = folder / "dataset"
    (path / "train").mkdir(parents=True)
    _json(path / "dataset_dict.json", {"splits": ["train"]})
    _json(path / "train" / "state.json", {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]})
    _json(path / "train" / "dataset_info.json", {"features": {}})
    table = _rows_table()
    with pa.ipc.new_stream(str(path / "train" / "data-00000-of-00001.arrow"), table.schema) as writer:
        writer.write_table(table)
    return Sample(
        path,
        "huggingface",
        [("a", "1", "neg"), ("a", "2", "pos"), ("b", "1", "pos")],
        {"a": "got wet", "b": "got dry"},
        {"empty answers": 1},
    )


def huggingface_parquet(folder: Path) -> Sample:
    path = folder / "parquet"
    (path / "data").mkdir(parents=True)
    table = pa.table(
        {"comment_id": ["a", "b"], "text": ["got wet", "got dry"], "annotators": [["x", "y"], ["x"]],
         "labels": [["neg", "pos"], ["pos"]]}
    )  # fmt: skip
    pq.write_table(table, path / "data" / "train-00000-of-00001.parquet")
    return Sample(
        path,
        "huggingface",
        [("a", "x", "neg"), ("a", "y", "pos"), ("b", "x", "pos")],
        {"a": "got wet", "b": "got dry"},
        question="labels",
    )


def potato(folder: Path) -> Sample:
    def line(number: int, mood: dict[str, str], spans: list[Any] | None = None) -> dict[str, Any]:
        return {
            "id": f"s{number}",
            "displayed_text": f"text {number}",
            "label_annotations": {"mood": mood, "stars": {"scale_3": "3"}},
            "span_annotations": spans or [],
            "behavioral_data": {"time_string": "Time spent: 0d 0h 0m 4s"},
        }

    answers = {
        "ann": [line(1, {"happy": "true"}), line(2, {"sad": "true"})],
        "bób": [line(1, {"happy": "true", "sad": "true"}), line(2, {}, [{"start": 0, "end": 1}])],
    }
    for user, lines in answers.items():
        (folder / "annotation_output" / user).mkdir(parents=True)
        _jsonl(folder / "annotation_output" / user / "annotated_instances.jsonl", lines)
    return Sample(
        folder / "annotation_output",
        "potato",
        [("s1", "ann", "happy"), ("s2", "ann", "sad"), ("s1", "bób", "happy"), ("s1", "bób", "sad")],
        {"s1": "text 1", "s2": "text 2"},
        {"empty answers": 1, "span annotations": 1},
        question="mood",
        options={"question": "mood"},
    )


def zooniverse(folder: Path) -> Sample:
    def row(number: int, user: str, subject: int, *values: Any) -> list[Any]:
        tasks = [{"task": f"T{k}", "task_label": "What is it?", "value": v} for k, v in enumerate(values)]
        return [number, user, "", 1, "Birds", "2.1", "2026-01-01", "{}", json.dumps(tasks), "{}", subject]

    out = io.StringIO()
    writer = csv.writer(out)
    before = ["classification_id", "user_name", "user_id", "workflow_id", "workflow_name", "workflow_version"]
    writer.writerow([*before, "created_at", "metadata", "annotations", "subject_data", "subject_ids"])
    writer.writerows(
        [
            row(1, "ann", 70, "Crow", "Yes"),
            row(2, "not-logged-in-3f", 70, ["Crow", "Jackdaw"], "No"),
            row(3, "ann", 71, None, "No"),
        ]
    )
    return Sample(
        _text(folder / "classifications.csv", out.getvalue()),
        "zooniverse",
        [("70", "ann", "Crow"), ("70", "not-logged-in-3f", "Crow"), ("70", "not-logged-in-3f", "Jackdaw")],
        {"70": None, "71": None},
        {"empty answers": 1},
        question="T0",
        options={"question": "T0"},
    )


def inspect_log(folder: Path) -> Sample:
    def sample(number: int, **scores: str) -> dict[str, Any]:
        values = {name: {"value": value, "explanation": "because"} for name, value in scores.items()}
        return {"id": number, "epoch": 1, "input": f"question {number}", "target": "x", "scores": values}

    log = {
        "version": 2,
        "status": "success",
        "eval": {"task": "replies", "model": "openai/gpt-x", "created": "2026-01-01T00:00:00+00:00"},
        "plan": {"name": "plan", "steps": []},
        "samples": [sample(1, grader_a="C", grader_b="I"), sample(2, grader_a="C", grader_b="C"), sample(3)],
    }
    labels = [("1", "grader_a", "C"), ("1", "grader_b", "I"), ("2", "grader_a", "C"), ("2", "grader_b", "C")]
    return Sample(
        _json(folder / "log.json", log),
        "inspect",
        labels,
        {"1": "question 1", "2": "question 2", "3": "question 3"},
        {"samples without a score": 1},
        question="score",
    )


def _langfuse_scores() -> list[dict[str, Any]]:
    def score(trace: str, name: str, value: Any, **more: Any) -> dict[str, Any]:
        known = {"id": f"{trace}{name}", "traceId": trace, "name": name, "environment": "default", **more}
        if isinstance(value, str):
            return known | {"dataType": "CATEGORICAL", "value": 1, "stringValue": value}
        return known | {"dataType": "NUMERIC", "value": value}

    return [
        score("t1", "quality", "good", source="ANNOTATION", authorUserId="u7"),
        score("t1", "quality", "bad", source="EVAL", configId="judge-1"),
        score("t2", "quality", "good", source="API", observationId="o3"),
        score("t1", "latency", 0.4, source="API"),
    ]


_LANGFUSE_LABELS = [("t1", "u7", "good"), ("t1", "EVAL judge-1", "bad"), ("t2 o3", "API", "good")]
_QUALITY = {"question": "quality"}


def langfuse_json(folder: Path) -> Sample:
    page = {"data": _langfuse_scores(), "meta": {"page": 1, "totalItems": 4}}
    file = _json(folder / "scores.json", page)
    return Sample(file, "langfuse", _LANGFUSE_LABELS, question="quality", options=_QUALITY)


def langfuse_csv(folder: Path) -> Sample:
    keys = {"traceId": "trace_id", "observationId": "observation_id", "dataType": "data_type"}
    keys |= {"stringValue": "string_value", "authorUserId": "author_user_id", "configId": "config_id"}
    out = io.StringIO()
    names = ["id", *keys.values(), "name", "value", "source", "environment"]
    writer = csv.DictWriter(out, names)
    writer.writeheader()
    writer.writerows(
        {keys.get(key, key): value for key, value in score.items()} for score in _langfuse_scores()
    )
    file = _text(folder / "scores.csv", out.getvalue())
    return Sample(file, "langfuse", _LANGFUSE_LABELS, question="quality", options=_QUALITY)


SAMPLES: list[Callable[[Path], Sample]] = [
    label_studio_json, label_studio_min, label_studio_csv, prodigy_choice, prodigy_binary, argilla_flat,
    argilla_nested, argilla_feedback, argilla_feedback_dataset, argilla_classification,
    doccano_folder, doccano_zip, mturk, mturk_ticks, mturk_form, appen, toloka, ground_truth,
    potato, zooniverse, inspect_log, langfuse_json, langfuse_csv,
    lewidi_2025, lewidi_2023, pldl, huggingface_arrow, huggingface_parquet,
]  # fmt: skip
