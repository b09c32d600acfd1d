"""Small exports in the documented shape of each tool, texts invented, with what should be read from them.

Every sample writes its files below a folder and says, worked by hand, which labels come out and what is
left out.
"""

import csv
import io
import json
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dissensus.importers.gather import Gatherer

Label = tuple[str, ...]  # item, annotator, class
WET_AND_DRY: dict[str, str | None] = {"7": "got wet", "8": "got dry"}


@dataclass(frozen=True)
class Sample:
    """A written export and what a reader should find; ``asked``: the question has to be named."""

    path: Path
    format: str
    rows: str  # labels as "item|annotator|class", separated by commas
    texts: dict[str, str | None] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    question: str = "label"
    asked: bool = False
    columns: dict[str, str] = field(default_factory=dict)

    @property
    def labels(self) -> list[Label]:
        return [tuple(row.split("|")) for row in self.rows.split(", ")]

    @property
    def options(self) -> dict[str, Any]:
        return self.columns | ({"question": self.question} if self.asked else {})


def _json(path: Path, value: Any) -> Path:
    return _text(path, json.dumps(value, ensure_ascii=False))


def _jsonl(path: Path, values: list[Any]) -> Path:
    return _text(path, "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values))


def _text(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def choice(name: str, *values: str) -> dict[str, Any]:
    """One result of a Label Studio choices control."""
    value = {"choices": list(values)}
    return {"from_name": name, "to_name": "text", "type": "choices", "value": value, "id": "r"}


def label_studio_tasks() -> list[dict[str, Any]]:
    """Two tasks with a cancelled, an empty, a ground-truth and a double answer, and a comment box."""
    comment = {"from_name": "why", "to_name": "text", "type": "textarea", "value": {"text": ["hm"]}}
    user, neg, pos = {"id": 11, "email": "zoë@example.org"}, choice("mood", "neg"), choice("mood", "pos")
    first = [
        {"id": 1, "completed_by": 10, "was_cancelled": False, "result": [neg, comment]},
        {"id": 2, "completed_by": user, "result": [pos]},
        {"id": 3, "completed_by": 12, "was_cancelled": True, "result": []},
        {"id": 4, "completed_by": 13, "was_cancelled": False, "result": []},
        {"id": 5, "completed_by": 14, "ground_truth": True, "result": [neg]},
    ]
    second = [{"id": 6, "completed_by": {"id": 15}, "result": [choice("mood", "neg", "pos")]}]
    data = {"text": "the bus was late again", "meta": {"source": {"page": 3}}}
    predictions = [{"result": [pos], "model_version": "v1"}]
    return [
        {"id": 7, "data": data, "annotations": first, "predictions": predictions},
        {"id": 8, "data": {"text": "日本語のテキスト 🙂"}, "annotations": second},
        {"id": 9, "data": {"text": "nobody came"}, "annotations": []},
    ]


def label_studio_json(folder: Path) -> Sample:
    file = _json(folder / "project-1.json", label_studio_tasks())
    texts = {"7": "the bus was late again", "8": "日本語のテキスト 🙂", "9": "nobody came"}
    left_out = {"cancelled or skipped annotations": 1, "empty answers": 1, "ground-truth annotations": 1}
    labels = "7|10|neg, 7|zoë@example.org|pos, 8|15|neg, 8|15|pos"
    return Sample(file, "label-studio", labels, texts, left_out, "mood")


def label_studio_min(folder: Path) -> Sample:
    rows = [
        {"text": "rain", "id": 7, "mood": "neg", "annotator": 10, "annotation_id": 1, "lead_time": 3.2},
        {"text": "rain", "id": 7, "mood": {"choices": ["neg", "pos"]}, "annotator": 11, "annotation_id": 2,
         "lead_time": 1.5},
        {"text": "snow", "id": 8, "mood": "", "annotator": 10, "annotation_id": 3, "lead_time": 0.5},
        {"text": "snow", "id": 8, "mood": "pos", "annotator": 12, "annotation_id": 4, "lead_time": 0.5},
    ]  # fmt: skip
    file, texts = _json(folder / "project-min.json", rows), {"7": "rain", "8": "snow"}
    labels = "7|10|neg, 7|11|neg, 7|11|pos, 8|12|pos"
    return Sample(file, "label-studio", labels, texts, {"empty answers": 1}, "mood")


def label_studio_csv(folder: Path) -> Sample:
    table = (
        '"annotation_id","annotator","created_at","id","lead_time","mood","text","updated_at"\n'
        '1,"10","2024-01-01T10:00:00Z",7,3.2,"neg","rain, ""heavy"" rain\nall day","2024-01-01T10:00:05Z"\n'
        '2,"11","2024-01-01T10:01:00Z",7,2.0,"{""choices"": [""neg"", ""pos""]}","rain",""\n'
        '3,"10","2024-01-01T10:02:00Z",8,1.0,"pos","snow","2024-01-01T10:02:05Z"\n'
    )
    file, texts = _text(folder / "project.csv", table), {"7": 'rain, "heavy" rain\nall day', "8": "snow"}
    labels = "7|10|neg, 7|11|neg, 7|11|pos, 8|10|pos"
    return Sample(file, "label-studio", labels, texts, question="mood", asked=True)


def prodigy_choice(folder: Path) -> Sample:
    options = [{"id": "pos", "text": "Positive"}, {"id": "neg", "text": "Negative"}]

    def line(item: int, who: str | None, accept: list[str], answer: str = "accept", **more: Any) -> Any:
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
    file, texts = _jsonl(folder / "prodigy.jsonl", lines), {"-91551573": "text -91551573", "5": "text 5"}
    labels = "-91551573|db-ann|neg, -91551573|db-bob|neg, -91551573|db-bob|pos, 5|db-session|pos"
    left_out = {"answers marked ignore": 1, "empty answers": 1, "rejected tasks": 1}
    return Sample(file, "prodigy", labels, texts, left_out, "choice")


def prodigy_binary(folder: Path) -> Sample:
    def line(text: str, label: str, answer: str, item: int, task: int, user: str) -> dict[str, Any]:
        hashes = {"_input_hash": item, "_task_hash": task}
        return {"text": text, "label": label, "answer": answer, **hashes, "_session_id": user}

    lines = [
        line("goal!", "SPORT", "accept", 1, 2, "ann"),
        line("goal!", "SPORT", "reject", 1, 2, "bob"),
        line("goal!", "NEWS", "accept", 1, 3, "bob"),
        line("vote", "SPORT", "ignore", 4, 5, "bob"),
    ]
    file, texts = _jsonl(folder / "binary.jsonl", lines), {"1": "goal!", "4": "vote"}
    labels, left_out = "1|ann|accept, 1|bob|reject", {"answers marked ignore": 1}
    return Sample(file, "prodigy", labels, texts, left_out, "SPORT", asked=True)


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
    file, texts = _jsonl(folder / "argilla.jsonl", lines), WET_AND_DRY | {"9": "nobody"}
    left_out = {"discarded responses": 1, "draft responses": 1}
    return Sample(file, "argilla", "7|u1|neg, 7|u2|pos, 8|u1|neg, 8|u1|pos", texts, left_out, "mood")


def argilla_nested(folder: Path) -> Sample:
    records = [
        {"id": "7", "fields": {"text": "got wet"}, "metadata": {"page": 1}, "suggestions": {},
         "responses": {"stars": [{"value": 4, "user_id": "u1"}, {"value": 5, "user_id": "u2"}],
                       "mood": [{"value": "neg", "user_id": "u1"}]}, "vectors": {}, "_server_id": "s"},
        {"id": "8", "fields": {"text": "got dry"}, "metadata": {}, "suggestions": {},
         "responses": {"stars": [{"value": None, "user_id": "u1"}]}, "vectors": {}},
    ]  # fmt: skip
    file, left_out = _json(folder / "records.json", records), {"empty answers": 1}
    return Sample(file, "argilla", "7|u1|4, 7|u2|5", WET_AND_DRY, left_out, "stars", asked=True)


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
    file, texts = _json(folder / "feedback.json", records), {"a7": "got wet", "record 2": "got dry"}
    labels = "a7|u1|rain, a7|u1|wind, record 2|u2|sun"
    return Sample(file, "argilla", labels, texts, question="topics", asked=True)


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
    file, texts = _jsonl(folder / "stars.jsonl", lines), {"e1": "got wet", "e2": "got dry", "e3": "nobody"}
    return Sample(file, "argilla", "e1|u1|4, e2|u1|5, e2|u3|2", texts, {"discarded responses": 1}, "stars")


def argilla_classification(folder: Path) -> Sample:
    """Version 1, text classification: one annotation a record."""
    rest = {"prediction": None, "prediction_agent": None, "multi_label": False, "explanation": None,
            "metadata": None, "event_timestamp": None, "metrics": {}, "vectors": None}  # fmt: skip

    def line(
        item: str, text: str | None, inputs: Any, label: str | None, user: str | None, status: str
    ) -> Any:
        answer = {"annotation": label, "annotation_agent": user}
        return {"text": text, "inputs": inputs, **answer, "id": item, "status": status, **rest}

    lines = [
        line("1", "got wet", {"text": "got wet"}, "neg", "ann", "Validated"),
        line("1", "got wet", {"text": "got wet"}, "pos", "bob", "Validated"),
        line("2", None, {"title": "got dry"}, "pos", "ann", "Discarded"),
        line("3", "new", {"text": "new"}, None, None, "Default"),
    ]
    file, texts = _jsonl(folder / "classified.jsonl", lines), {"1": "got wet", "2": "got dry", "3": "new"}
    left_out = {"discarded responses": 1, "empty answers": 1}
    return Sample(file, "argilla", "1|ann|neg, 1|bob|pos", texts, left_out, "annotation")


def doccano_folder(folder: Path) -> Sample:
    def line(item: int, *labels: str, **more: Any) -> dict[str, Any]:
        return {"id": item, "text": WET_AND_DRY[str(item)], "label": list(labels), **more}

    path = folder / "members"
    path.mkdir()
    _jsonl(path / "ann.jsonl", [line(7, "neg", Comments=[]), line(8)])
    _jsonl(path / "bób.jsonl", [line(7, "neg", "pos"), line(8, "pos")])
    _jsonl(path / "idle.jsonl", [])
    labels = "7|ann|neg, 7|bób|neg, 7|bób|pos, 8|bób|pos"
    return Sample(path, "doccano", labels, WET_AND_DRY, {"empty answers": 1})


def doccano_zip(folder: Path) -> Sample:
    sample, path = doccano_folder(folder), folder / "export.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(sample.path.iterdir()):
            archive.write(file, file.name)
    return replace(sample, path=path)


def mturk(folder: Path) -> Sample:
    table = (
        '"HITId","HITTypeId","AssignmentId","WorkerId","AssignmentStatus","Input.text","Answer.mood.label",'
        '"Approve","Reject"\n'
        '"3XH7","3TYP","3AS1","A1","Approved","got wet, again","neg","",""\n'
        '"3XH7","3TYP","3AS2","A2","Submitted","got wet, again","neg|pos"\n'
        '"3XH7","3TYP","3AS3","A3","Rejected","got wet, again","pos","","x"\n'
        '"3XH8","3TYP","3AS4","A1","Approved","größer\nals gedacht","","",""\n'
    )
    file = _text(folder / "Batch_1_batch_results.csv", table)
    texts = {"3XH7": "got wet, again", "3XH8": "größer\nals gedacht"}
    left_out = {"rejected assignments": 1, "empty answers": 1}
    return Sample(file, "mturk", "3XH7|A1|neg, 3XH7|A2|neg, 3XH7|A2|pos", texts, left_out, "mood")


def mturk_ticks(folder: Path) -> Sample:
    table = (
        "HITId,AssignmentId,WorkerId,AssignmentStatus,Input.doc,Input.text,Answer.mood.neg,Answer.mood.pos\n"
        "H1,S1,A1,Approved,d1,got wet,true,false\n"
        "H1,S2,A2,Approved,d1,got wet,true,true\n"
        "H2,S3,A1,Approved,d1,got wet,false,true\n"
    )
    file, labels = _text(folder / "ticks.csv", table), "d1|A1|neg, d1|A2|neg, d1|A2|pos, d1|A1|pos"
    columns = {"item_column": "Input.doc", "text_column": "Input.text"}
    return Sample(file, "mturk", labels, {"d1": "got wet"}, question="mood", columns=columns)


def mturk_form(folder: Path) -> Sample:
    forms = [[{"mood": {"label": "neg"}}], [{"mood": {"label": "pos"}}], [{}]]
    header = ["HITId", "AssignmentId", "WorkerId", "AssignmentStatus", "Input.text", "Answer.taskAnswers"]
    rows = [["H1", f"S{n}", f"A{n}", "Approved", "got wet", json.dumps(form)] for n, form in enumerate(forms)]
    file, labels = _csv(folder / "form.csv", header, rows), "H1|A0|neg, H1|A1|pos"
    return Sample(file, "mturk", labels, {"H1": "got wet"}, {"empty answers": 1}, "mood")


def _csv(path: Path, header: list[str], rows: list[list[Any]]) -> Path:
    sink = io.StringIO()
    csv.writer(sink).writerows([header, *rows])
    return _text(path, sink.getvalue())


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
    file, labels = _text(folder / "f123.csv", table), "7|3001|neg, 7|3002|neg, 7|3002|pos"
    left_out = {"tainted rows": 1, "gold (test question) rows": 1, "empty answers": 1}
    return Sample(file, "appen", labels, WET_AND_DRY | {"9": "test"}, left_out, "mood")


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
    file, labels = _text(folder / "assignments.tsv", table), "t-7|w-33|neg, t-7|w-34|neg, t-7|w-34|pos"
    left_out = {"gold (test question) rows": 1, "rejected assignments": 1, "skipped assignments": 1}
    return Sample(file, "toloka", labels, {"t-7": "got wet", "t-9": "test"}, left_out, "result")


def ground_truth(folder: Path) -> Sample:
    def line(number: int, **contents: Any) -> dict[str, Any]:
        workers = [
            {"workerId": f"private.{name[1:]}", "annotationData": {"content": json.dumps(content)}}
            for name, content in contents.items()
        ]
        return {"source-ref": f"s3://b/{number}.txt", "job": {"annotationsFromAllWorkers": workers},
                "job-metadata": {"type": "groundtruth/custom", "human-annotated": "yes"}}  # fmt: skip

    lines = [
        line(7, w1={"response": {"label": "neg"}}, w2={"response": {"label": "pos"}}),
        line(8, w1={"response": {"label": ""}}, w3={}),
        line(9, w1={"response": {"neg": False, "pos": True}}),
    ]
    file, texts = _jsonl(folder / "output.manifest", lines), {f"s3://b/{n}.txt": None for n in (7, 8, 9)}
    labels = "s3://b/7.txt|private.1|neg, s3://b/7.txt|private.2|pos, s3://b/9.txt|private.1|pos"
    return Sample(file, "ground-truth", labels, {**texts}, {"empty answers": 2}, "response")


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
    file, labels = _json(folder / "CSC_dev.json", entries), "7|Ann1|2, 7|Ann2|5, 8|Ann1|2, 8|Ann3|2, 8|Ann3|5"
    texts = {"7": "So you won? [SEP] Obviously.", "8": "Nice. [SEP] Très bien.", "9": "a [SEP] b"}
    return Sample(file, "lewidi", labels, texts, {"items without annotations": 1}, "annotations")


def lewidi_2023(folder: Path) -> Sample:
    entries = {
        "1": {"annotation task": "hate speech detection", "text": "hello <user>", "number of annotations": 3,
              "annotations": "0,1,0", "annotators": "Ann1,Ann2,Ann3", "lang": "en", "hard_label": "0",
              "soft_label": {"0": 0.67, "1": 0.33}, "split": "train", "other_info": {"id": 1}},
        "2": {"annotation task": "hate speech detection", "text": "bye", "number of annotations": 2,
              "annotations": "1, 1", "annotators": "Ann1,Ann4", "lang": "en", "hard_label": "1",
              "soft_label": {"0": 0.0, "1": 1.0}, "split": "train", "other_info": {}},
    }  # fmt: skip
    file = _json(folder / "HS-Brexit_train.json", entries)
    labels = "1|Ann1|0, 1|Ann2|1, 1|Ann3|0, 2|Ann1|1, 2|Ann4|1"
    return Sample(file, "lewidi", labels, {"1": "hello <user>", "2": "bye"}, question="annotations")


def pldl(folder: Path) -> Sample:
    columns = ["message_id", "worker_id", "label", "message", "platform", "label_vector"]
    data = [
        [7, 3001, 2, "off to work", "mt", [0, 0, 1]],
        [7, 3002, "none", "off to work", "f8", [0, 1, 0]],
        [8, 3001, [0, 2], "fired", "mt", [1, 0, 1]],
        [8, 3002, None, "fired", "mt", []],
    ]
    file = _json(folder / "jobQ1.json", {"columns": columns, "index": [0, 1, 2, 3], "data": data})
    labels = "7|3001|2, 7|3002|none, 8|3001|0, 8|3001|2"
    return Sample(file, "pldl", labels, {"7": "off to work", "8": "fired"}, {"empty answers": 1})


def huggingface_arrow(folder: Path) -> Sample:
    path = folder / "dataset"
    (path / "train").mkdir(parents=True)
    _json(path / "dataset_dict.json", {"splits": ["train"]})
    _json(path / "train" / "state.json", {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]})
    _json(path / "train" / "dataset_info.json", {"features": {}})
    features = {"label": {"names": ["neg", "pos"], "_type": "ClassLabel"}, "item": {"dtype": "string"}}
    columns = {"item": [*"aabb"], "annotator": [1, 2, 1, 2], "label": [0, 1, 1, -1]}
    table = pa.table(columns | {"text": ["got wet", "got wet", "got dry", "got dry"]})
    table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    with pa.ipc.new_stream(str(path / "train" / "data-00000-of-00001.arrow"), table.schema) as writer:
        writer.write_table(table)
    texts = {"a": "got wet", "b": "got dry"}
    return Sample(path, "huggingface", "a|1|neg, a|2|pos, b|1|pos", texts, {"empty answers": 1})


def huggingface_parquet(folder: Path) -> Sample:
    path = folder / "parquet"
    (path / "data").mkdir(parents=True)
    table = pa.table(
        {"comment_id": ["a", "b"], "text": ["got wet", "got dry"], "annotators": [["x", "y"], ["x"]],
         "labels": [["neg", "pos"], ["pos"]]}
    )  # fmt: skip
    pq.write_table(table, path / "data" / "train-00000-of-00001.parquet")
    texts = {"a": "got wet", "b": "got dry"}
    return Sample(path, "huggingface", "a|x|neg, a|y|pos, b|x|pos", texts, question="labels")


def potato(folder: Path) -> Sample:
    def line(number: int, mood: dict[str, str], spans: list[Any]) -> dict[str, Any]:
        return {
            "id": f"s{number}", "displayed_text": f"text {number}",
            "label_annotations": {"mood": mood, "stars": {"scale_3": "3"}}, "span_annotations": spans,
            "behavioral_data": {"time_string": "Time spent: 0d 0h 0m 4s"},
        }  # fmt: skip

    path, both = folder / "annotation_output", {"happy": "true", "sad": "true"}
    answers = {
        "ann": [line(1, {"happy": "true"}, []), line(2, {"sad": "true"}, [])],
        "bób": [line(1, both, []), line(2, {}, [{"start": 0, "end": 1}])],
    }
    for user, lines in answers.items():
        (path / user).mkdir(parents=True)
        _jsonl(path / user / "annotated_instances.jsonl", lines)
    labels, texts = "s1|ann|happy, s2|ann|sad, s1|bób|happy, s1|bób|sad", {"s1": "text 1", "s2": "text 2"}
    left_out = {"empty answers": 1, "span annotations": 1}
    return Sample(path, "potato", labels, texts, left_out, "mood", asked=True)


def zooniverse(folder: Path) -> Sample:
    def row(number: int, user: str, subject: int, *values: Any) -> list[Any]:
        tasks = [{"task": f"T{k}", "task_label": "What is it?", "value": v} for k, v in enumerate(values)]
        return [number, user, "", 1, "Birds", "2.1", "2026-01-01", "{}", json.dumps(tasks), "{}", subject]

    header = (
        "classification_id user_name user_id workflow_id workflow_name workflow_version "
        "created_at metadata annotations subject_data subject_ids"
    )
    rows = [
        row(1, "ann", 70, "Crow", "Yes"),
        row(2, "not-logged-in-3f", 70, ["Crow", "Jackdaw"], "No"),
        row(3, "ann", 71, None, "No"),
    ]
    file = _csv(folder / "classifications.csv", header.split(), rows)
    labels = "70|ann|Crow, 70|not-logged-in-3f|Crow, 70|not-logged-in-3f|Jackdaw"
    return Sample(
        file, "zooniverse", labels, {"70": None, "71": None}, {"empty answers": 1}, "T0", asked=True
    )


def inspect_sample(number: int, epoch: int = 1, **scores: Any) -> dict[str, Any]:
    """One sample of an Inspect log."""
    values = {name: {"value": value, "explanation": "because"} for name, value in scores.items()}
    output = {"model": "openai/gpt-x", "choices": [], "completion": f"answer {number}"}
    asked = [{"id": "m", "role": "user", "content": f"question {number}"}]
    return {"id": number, "epoch": epoch, "input": asked, "target": "x", "output": output, "scores": values}


def inspect_header() -> dict[str, Any]:
    return {
        "version": 2,
        "status": "success",
        "eval": {"task": "replies", "model": "openai/gpt-x", "created": "2026-01-01T00:00:00+00:00"},
        "plan": {"name": "plan", "steps": []},
    }


def inspect_log(folder: Path) -> Sample:
    failed = inspect_sample(4) | {"error": {"message": "out of time"}, "scores": None}
    samples = [
        inspect_sample(1, grader_a="C", grader_b="I"),
        inspect_sample(2, grader_a="C", grader_b="C"),
        inspect_sample(2, 2, grader_a="P", grader_b="N"),
        inspect_sample(3),
        failed,
    ]
    file = _json(folder / "log.json", inspect_header() | {"samples": samples})
    texts = {str(n): f"question {n} [SEP] answer {n}" for n in (1, 2, 3, 4)}
    labels = "1|grader_a|C, 1|grader_b|I, 2|grader_a|C, 2|grader_b|C, 2|grader_a|P, 2|grader_b|N"
    left_out = {"samples without a score": 1, "samples with an error": 1}
    return Sample(file, "inspect", labels, {**texts}, left_out, "score")


def inspect_eval(folder: Path) -> Sample:
    """A log in the archive format, with a scorer that gives two values."""
    path = folder / "2026-01-01_replies.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("_journal/start.json", json.dumps(inspect_header()))
        for n, values in enumerate(({"tone": 4, "fact": "C"}, {"tone": 2, "fact": "I"}), start=1):
            sample = inspect_sample(n, grader=values, length=12.5)
            archive.writestr(f"samples/{n}_epoch_1.json", json.dumps(sample, indent=2))
        archive.writestr("summaries.json", "[]")
        archive.writestr("header.json", json.dumps(inspect_header(), indent=2))
    texts = {n: f"question {n} [SEP] answer {n}" for n in ("1", "2")}
    return Sample(path, "inspect", "1|grader|4, 2|grader|2", {**texts}, question="tone", asked=True)


def promptfoo_rows() -> list[dict[str, Any]]:
    """Results of two tests and two prompts; the second test of the first prompt fails with an error."""
    grader = {"id": "openai:gpt-4o", "config": {}}

    def part(passed: bool, score: float, kind: str, **more: Any) -> dict[str, Any]:
        return {"pass": passed, "score": score, "reason": "so", "assertion": {"type": kind, **more}}

    def row(test: int, prompt: int, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
        grade = {"pass": True, "score": 1, "reason": "so", "componentResults": list(parts)}
        return {"id": f"r{test}{prompt}", "testIdx": test, "promptIdx": prompt, "success": True, "score": 1,
                "provider": {"id": "openai:gpt-x", "label": ""}, "failureReason": 0,
                "prompt": {"raw": f"Reply to {test}", "label": "Reply"}, "vars": {"mail": f"mail-{test}"},
                "response": {"output": f"reply {test}{prompt}"}, "gradingResult": grade, **more}  # fmt: skip

    polite = {"metric": "polite", "value": "is polite", "provider": grader}
    failure = {"gradingResult": None, "failureReason": 2, "error": "429", "success": False}
    return [
        row(0, 0, part(True, 1, "llm-rubric", **polite), part(True, 1, "contains", value="hi")),
        row(0, 1, part(False, 0.25, "llm-rubric", **polite), part(False, 0, "contains", value="hi")),
        row(1, 0, **failure),
        row(1, 1, part(True, 0.75, "llm-rubric", **polite), part(True, 1, "contains", value="hi")),
        row(2, 0),
    ]


PROMPTFOO_TEXTS = {
    "0": "Reply to 0 [SEP] reply 00", "0 1": "Reply to 0 [SEP] reply 01", "1": "Reply to 1 [SEP] reply 10",
    "1 1": "Reply to 1 [SEP] reply 11", "2": "Reply to 2 [SEP] reply 20",
}  # fmt: skip
PROMPTFOO_LEFT_OUT = {"samples with an error": 1, "samples without a score": 1}


def promptfoo_json(folder: Path) -> Sample:
    results = {"version": 3, "timestamp": "2026-01-01T00:00:00Z", "prompts": [{"raw": "Reply"}]}
    results |= {"results": promptfoo_rows(), "stats": {"successes": 3}}
    file = _json(folder / "output.json", {"evalId": "eval-1", "results": results, "config": {"tests": []}})
    judge = "polite (openai:gpt-4o)"
    labels = f"0|{judge}|pass, 0 1|{judge}|fail, 1 1|{judge}|pass"
    return Sample(
        file, "promptfoo", labels, {**PROMPTFOO_TEXTS}, {**PROMPTFOO_LEFT_OUT}, "polite", asked=True
    )


def promptfoo_jsonl(folder: Path) -> Sample:
    """Results with a variable of the tests as the item; a second assertion of a type is another question."""
    rows = promptfoo_rows()
    rubric = {"pass": False, "score": 0, "assertion": {"type": "contains", "value": "bye"}}
    rows[0]["gradingResult"]["componentResults"].append(rubric)
    file, texts = _jsonl(folder / "output.jsonl", rows), {f"mail-{i}": t for i, t in PROMPTFOO_TEXTS.items()}
    left_out, columns = {**PROMPTFOO_LEFT_OUT}, {"item_column": "mail"}
    labels = "mail-0|contains 2|fail"
    return Sample(file, "promptfoo", labels, {**texts}, left_out, "contains 2", True, columns)


def deepeval_run(folder: Path) -> Sample:
    def metric(name: str, success: bool, score: float | None, **more: Any) -> dict[str, Any]:
        rest = {"threshold": 0.5, "strictMode": False, "evaluationModel": "gpt-4o", "reason": "so"}
        return {
            "name": name,
            "success": success,
            **({} if score is None else {"score": score}),
            **rest,
            **more,
        }

    relevant, failed = "Answer Relevancy", {"error": "no JSON"}
    cases = [
        {"name": "test_case_0", "input": "a?", "actualOutput": "b", "success": True, "order": 0,
         "metricsData": [metric(relevant, True, 0.9), metric("Bias", True, 0.0)]},
        {"name": "test_case_1", "input": "c?", "actualOutput": "d", "success": False, "order": 1,
         "metricsData": [metric(relevant, False, 0.25), metric("Bias", False, None, **failed)]},
        {"name": "test_case_2", "input": "e?", "actualOutput": "f", "success": False, "order": 2,
         "metricsData": [metric(relevant, False, None, **failed)]},
    ]  # fmt: skip
    talk = {"name": "talk_0", "scenario": "Ann asks", "success": True, "turns": [], "order": 3,
            "metricsData": [metric(relevant, True, 1.0)]}  # fmt: skip
    run = {"testFile": "test_replies.py", "testCases": cases, "conversationalTestCases": [talk]}
    file = _json(folder / "20260101_100000", run | {"metricsScores": [], "testPassed": 2})
    judge = "Answer Relevancy (gpt-4o)"
    labels = f"test_case_0|{judge}|pass, test_case_1|{judge}|fail, talk_0|{judge}|pass"
    texts = {"test_case_0": "a? [SEP] b", "test_case_1": "c? [SEP] d", "test_case_2": "e? [SEP] f"}
    texts |= {"talk_0": "Ann asks"}
    return Sample(file, "deepeval", labels, {**texts}, {"empty answers": 1}, relevant, asked=True)


def deepeval_latest(folder: Path) -> Sample:
    """The hidden file of the latest run, which wraps the same object."""
    sample = deepeval_run(folder)
    run = {"testRunData": json.loads(sample.path.read_text()), "testRunLink": "https://x"}
    return replace(sample, path=_json(folder / ".latest_test_run.json", run))


def lm_eval_samples(folder: Path) -> Sample:
    """Two filters of one metric are two judges."""

    def line(number: int, filter_name: str, response: str, score: float) -> dict[str, Any]:
        return {"doc_id": number, "doc": {"question": f"q{number}"}, "target": "4", "resps": [[response]],
                "arguments": {"gen_args_0": {"arg_0": f"Q: q{number}", "arg_1": {"until": ["Q:"]}}},
                "filtered_resps": [response], "filter": filter_name, "metrics": ["exact_match"],
                "doc_hash": "d", "prompt_hash": "p", "target_hash": "t", "exact_match": score}  # fmt: skip

    strict, flexible = "strict-match", "flexible-extract"
    lines = [line(0, strict, "4", 1.0), line(1, strict, "[invalid]", 0.0), line(0, flexible, "4", 1.0),
             line(1, flexible, "4", 1.0)]  # fmt: skip
    file = _jsonl(folder / "samples_gsm8k_2026-01-01T00-00-00.000000.jsonl", lines)
    labels = f"0|exact_match ({strict})|1, 1|exact_match ({strict})|0, 0|exact_match ({flexible})|1, "
    labels += f"1|exact_match ({flexible})|1"
    texts = {"0": "Q: q0 [SEP] 4", "1": "Q: q1 [SEP] [invalid]"}
    return Sample(file, "lm-eval", labels, {**texts}, question="exact_match")


def lm_eval_choices(folder: Path) -> Sample:
    """A multiple-choice task of an older version, which does not list its metrics."""
    lines = [
        {"doc_id": n, "doc": {"question": f"q{n}"}, "target": "0", "resps": [[["-3.5", "False"]]],
         "arguments": {"gen_args_0": {"arg_0": f"q{n}", "arg_1": " yes"}}, "filtered_resps": [],
         "doc_hash": "d", "prompt_hash": "p", "target_hash": "t", "acc": acc, "acc_norm": 1.0,
         "likelihoods": [-3.5, -4.0]}
        for n, acc in enumerate((1.0, 0.0))
    ]  # fmt: skip
    file = _jsonl(folder / "samples_boolq_2025-01-01T00-00-00.000000.jsonl", lines)
    return Sample(file, "lm-eval", "0|acc|1, 1|acc|0", {"0": "q0", "1": "q1"}, question="acc", asked=True)


def langsmith_csv(folder: Path) -> Sample:
    header = ["inputs.question", "outputs.answer", "error", "reference.answer", "feedback.correct",
              "feedback.tone", "execution_time", "example_id", "id"]  # fmt: skip
    rows = [
        ["a?", "b", "", "b", "yes", "4", "1.5", "e1", "r1"],
        ["c?", "d", "", "x", "no", "2", "1.0", "e2", "r2"],
        ["e?", "", "Timeout", "f", "", "", "9.0", "e3", "r3"],
    ]
    file, texts = (
        _csv(folder / "results.csv", header, rows),
        {"e1": "a? [SEP] b", "e2": "c? [SEP] d", "e3": "e?"},
    )
    labels, left_out = "e1|correct|yes, e2|correct|no", {"empty answers": 1}
    return Sample(file, "langsmith", labels, {**texts}, left_out, "correct", asked=True)


def langsmith_feedback(folder: Path) -> Sample:
    def feedback(run: str, key: str, source: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"id": f"{run}{key}", "created_at": "2026-01-01T00:00:00", "key": key, "run_id": run,
                "score": None, "value": None, "comment": None, "feedback_source": source, **more}  # fmt: skip

    model, person = {"type": "model", "metadata": {}}, {"type": "app", "user_id": "u7", "user_name": "Zoë"}
    lines = [
        feedback("r1", "correct", model, score=1, value="yes"),
        feedback("r1", "correct", person, value="no"),
        feedback("r2", "correct", model, error=True),
        feedback("r2", "correct", {"type": "api", "user_id": "u8"}, score=0.0),
    ]
    file, labels = _jsonl(folder / "feedback.jsonl", lines), "r1|correct|yes, r1|Zoë|no, r2|correct|0"
    return Sample(file, "langsmith", labels, {}, {"empty answers": 1}, "correct")


def phoenix_annotations() -> list[dict[str, Any]]:
    def annotation(span: str, kind: str, label: str | None, score: float | None, **more: Any) -> Any:
        result = {"label": label, "score": score, "explanation": "so"}
        return {"id": "x", "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
                "source": "API", "user_id": None, "name": "correctness", "annotator_kind": kind,
                "result": result, "metadata": {}, "identifier": "", "span_id": span, **more}  # fmt: skip

    return [
        annotation("5B8EF798A381", "LLM", "correct", 1.0, metadata={"model": "gpt-4"}),
        annotation("5B8EF798A381", "HUMAN", "incorrect", 0.0, identifier="user-123"),
        annotation("E19B7EC3CC02", "LLM", "incorrect", 0.0, metadata={"model": "gpt-4"}),
        annotation("E19B7EC3CC02", "CODE", None, 0.5),
        annotation("E19B7EC3CC02", "HUMAN", None, None, user_id="VXNlcjox"),
    ]


PHOENIX_LABELS = (
    "5B8EF798A381|correctness (gpt-4)|correct, 5B8EF798A381|user-123|incorrect, "
    "E19B7EC3CC02|correctness (gpt-4)|incorrect, E19B7EC3CC02|correctness|0.5"
)


def phoenix_json(folder: Path) -> Sample:
    file = _json(folder / "annotations.json", {"data": phoenix_annotations(), "next_cursor": None})
    return Sample(file, "phoenix", PHOENIX_LABELS, {}, {"empty answers": 1}, "correctness")


def phoenix_csv(folder: Path) -> Sample:
    """The data frame of annotations, with a further metric, and the metadata in Python's notation."""
    header = ["span_id", "annotation_name", "annotator_kind", "metadata", "identifier", "result.label",
              "result.score", "result.explanation"]  # fmt: skip
    rows = [
        ["s1", "tone", "LLM", "{'model': 'gpt-4'}", "", "kind", "1.0", "so"],
        ["s1", "correctness", "LLM", "{}", "", "correct", "1.0", "so"],
        ["s2", "tone", "HUMAN", "{}", "user-123", "rude", "", ""],
    ]
    file, labels = _csv(folder / "annotations.csv", header, rows), "s1|tone|kind, s2|user-123|rude"
    items: dict[str, str | None] = {}
    return Sample(file, "phoenix", labels, items, question="tone", asked=True)


def braintrust_events() -> list[dict[str, Any]]:
    def event(name: str, scores: dict[str, Any] | None, root: bool = True, **more: Any) -> dict[str, Any]:
        return {"id": name, "experiment_id": "x", "created": "2026-01-01T00:00:00Z", "is_root": root,
                "span_id": f"s{name}", "root_span_id": f"s{name[0]}", "span_parents": None, "scores": scores,
                "input": {"question": f"q{name}"}, "output": f"a{name}", "expected": "x", "error": None,
                "metadata": {"topic": "t"}, "tags": None, "metrics": {"start": 1.0}, **more}  # fmt: skip

    return [
        event("1", {"Factuality": 0.6, "Levenshtein": 0.125}),
        event("1b", {"Factuality": 0.1}, root=False),
        event("2", {"Factuality": 1, "Levenshtein": None}),
        event("3", None, error="RateLimitError", output=None),
    ]


BRAINTRUST_TEXTS = {"1": "q1 [SEP] a1", "2": "q2 [SEP] a2", "3": "q3"}


def braintrust_fetch(folder: Path) -> Sample:
    file = _json(folder / "experiment.json", {"events": braintrust_events(), "cursor": None})
    labels, left_out = "1|Factuality|0.6, 2|Factuality|1", {"samples with an error": 1}
    return Sample(file, "braintrust", labels, {**BRAINTRUST_TEXTS}, left_out, "Factuality", asked=True)


def braintrust_jsonl(folder: Path) -> Sample:
    file = _jsonl(folder / "experiment.jsonl", braintrust_events())
    left_out = {"samples with an error": 1, "empty answers": 1}
    return Sample(
        file, "braintrust", "1|Levenshtein|0.125", {**BRAINTRUST_TEXTS}, left_out, "Levenshtein", asked=True
    )


def mlflow_assessments() -> list[dict[str, Any]]:
    def feedback(value: Any, kind: str, who: str, **more: Any) -> dict[str, Any]:
        source = {"source_type": kind, "source_id": who}
        return {"assessment_name": "correctness", "trace_id": "tr-1", "source": source, "valid": True,
                "create_time": "2026-01-01T00:00:00Z", "feedback": {"value": value}, **more}  # fmt: skip

    expectation = feedback(None, "HUMAN", "ann@x.org", expectation={"value": "4"})
    del expectation["feedback"]
    failed = {"value": None, "error": {"error_code": "ValueError", "error_message": "no JSON"}}
    return [
        feedback("yes", "LLM_JUDGE", "openai:/gpt-4o"),
        feedback("no", "HUMAN", "ann@x.org"),
        feedback("no", "LLM_JUDGE", "openai:/gpt-4", valid=False),
        feedback(None, "LLM_JUDGE", "default", feedback=failed),
        feedback(True, "CODE", "correctness"),
        expectation,
    ]


MLFLOW_LABELS = "tr-1|correctness (openai:/gpt-4o)|yes, tr-1|ann@x.org|no, tr-1|correctness|true"


def mlflow_traces(folder: Path) -> Sample:
    info = {"trace_id": "tr-1", "trace_location": {"type": "MLFLOW_EXPERIMENT"}, "state": "OK",
            "assessments": mlflow_assessments(), "request_preview": "2+2?",
            "response_preview": "4"}  # fmt: skip
    bare = {"info": {"trace_id": "tr-2", "state": "ERROR", "request_preview": "?"}, "data": {"spans": []}}
    file = _jsonl(folder / "traces.jsonl", [{"info": info, "data": {"spans": []}}, bare])
    left_out, texts = (
        {"empty answers": 1, "samples without a score": 1},
        {"tr-1": "2+2? [SEP] 4", "tr-2": "?"},
    )
    return Sample(file, "mlflow", MLFLOW_LABELS, {**texts}, left_out, "correctness")


def mlflow_results(folder: Path) -> Sample:
    """The results of an evaluation: one column per scorer, and the assessments if written as JSON."""
    row = {"trace_id": "tr-1", "correctness/value": "yes", "correctness/rationale": "so", "state": "OK",
           "request": {"question": "2+2?"}, "response": "4", "assessments": mlflow_assessments()}  # fmt: skip
    file, texts = _json(folder / "results.json", [row]), {"tr-1": "2+2? [SEP] 4"}
    return Sample(file, "mlflow", MLFLOW_LABELS, {**texts}, {"empty answers": 1}, "correctness")


def mlflow_csv(folder: Path) -> Sample:
    header = ["trace_id", "tone/value", "correctness/value", "correctness/rationale", "request", "response",
              "assessments"]  # fmt: skip
    rows = [["tr-1", "4", "yes", "so", "2+2?", "4", "[{'name'}]"], ["tr-2", "", "no", "so", "?", "", "[]"]]
    file, texts = _csv(folder / "results.csv", header, rows), {"tr-1": "2+2? [SEP] 4", "tr-2": "?"}
    labels = "tr-1|correctness|yes, tr-2|correctness|no"
    return Sample(file, "mlflow", labels, {**texts}, question="correctness", asked=True)


def mlflow_table(folder: Path) -> Sample:
    """The table that ``mlflow.evaluate`` logs, which has no ids."""
    columns = ["inputs", "ground_truth", "outputs", "token_count", "answer_correctness/v1/score",
               "answer_correctness/v1/justification"]  # fmt: skip
    data = [["2+2?", "4", "4", 1, 5, "right"], ["3+3?", "6", "7", 1, 1, "wrong"]]
    file = _json(folder / "eval_results_table.json", {"columns": columns, "data": data})
    labels, texts = (
        "1|answer_correctness|5, 2|answer_correctness|1",
        {"1": "2+2? [SEP] 4", "2": "3+3? [SEP] 7"},
    )
    return Sample(file, "mlflow", labels, {**texts}, question="answer_correctness")


def langfuse_json(folder: Path) -> Sample:
    def score(trace: str, name: str, value: Any, **more: Any) -> dict[str, Any]:
        score = {"id": f"{trace}{name}", "traceId": trace, "name": name, "environment": "default", **more}
        if isinstance(value, str):
            return score | {"dataType": "CATEGORICAL", "value": 1, "stringValue": value}
        return score | {"dataType": "NUMERIC", "value": value}

    scores = [
        score("t1", "quality", "good", source="ANNOTATION", authorUserId="u7"),
        score("t1", "quality", "bad", source="EVAL", configId="judge-1"),
        score("t2", "quality", "good", source="API", observationId="o3"),
        score("t1", "latency", 0.4, source="API"),
    ]
    file = _json(folder / "scores.json", {"data": scores, "meta": {"page": 1, "totalItems": 4}})
    labels = "t1|u7|good, t1|quality (judge-1)|bad, t2 o3|quality (API)|good"
    return Sample(file, "langfuse", labels, question="quality", asked=True)


def langfuse_csv(folder: Path) -> Sample:
    sample = langfuse_json(folder)
    scores = json.loads(sample.path.read_text(encoding="utf-8"))["data"]
    keys = ["id", "traceId", "observationId", "dataType", "stringValue", "authorUserId", "configId", "name"]
    keys += ["value", "source", "environment"]
    header = [re.sub("([A-Z])", r"_\1", key).lower() for key in keys]  # author_user_id
    rows = [[score.get(key, "") for key in keys] for score in scores]
    return replace(sample, path=_csv(folder / "scores.csv", header, rows))


SAMPLES: list[Callable[[Path], Sample]] = [
    label_studio_json, label_studio_min, label_studio_csv, prodigy_choice, prodigy_binary, argilla_flat,
    argilla_nested, argilla_feedback, argilla_feedback_dataset, argilla_classification,
    doccano_folder, doccano_zip, mturk, mturk_ticks, mturk_form, appen, toloka, ground_truth,
    potato, zooniverse, langfuse_json, langfuse_csv, inspect_log, inspect_eval, promptfoo_json,
    promptfoo_jsonl, deepeval_run, deepeval_latest, lm_eval_samples, lm_eval_choices, langsmith_csv,
    langsmith_feedback, phoenix_json, phoenix_csv, braintrust_fetch, braintrust_jsonl, mlflow_traces,
    mlflow_results, mlflow_csv, mlflow_table,
    lewidi_2025, lewidi_2023, pldl, huggingface_arrow, huggingface_parquet,
]  # fmt: skip


def triples(imported: Gatherer) -> list[tuple[str, str, str]]:
    """Return (item, annotator, label) of every label."""
    return list(zip(*(column.to_pylist() for column in imported.labels.columns), strict=True))


def item_texts(imported: Gatherer) -> dict[str, str | None]:
    """Return the text of every item."""
    rows = [] if imported.items is None else imported.items.to_pylist()
    return {row["item"]: row.get("text") for row in rows}


def written(folder: Path, value: Any, name: str = "export.json") -> Path:
    """Write a string, or another value as JSON."""
    file = folder / name
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return file


def task(**changes: Any) -> dict[str, Any]:
    """Return a Label Studio task with one annotation."""
    annotation = {"id": 1, "completed_by": 10, "result": [choice("mood", "neg")]}
    return {"id": 7, "data": {"text": "x"}, "annotations": [annotation | changes]}
