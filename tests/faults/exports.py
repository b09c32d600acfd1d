"""Unusual but valid exports, generated from a seed, each with the labels it contains.

Items, annotators and answers have quotes, line breaks, leading zeros, words such as ``NA``, ``null`` and
``-0``, and other scripts. They are written in one of the formats, with what else occurs in such files: other
columns, remarks, times, byte-order marks, unusual delimiters, columns in any order.

    python -m tests.faults.exports [SEEDS]      read them all, 300 by default
"""

import csv
import gzip
import io
import json
import random
import sys
import tempfile
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

import dissensus as ds
from tests.helpers.export_samples import choice
from tests.helpers.reading import rows_of

Label = tuple[str, str, str]

ODD_IDS = [
    "007", "NA", "null", "none", "-0", "1e5", "a b", 'quo"te', "é,comma", "日本", "𝔸", "semi;colon", "p|pe",
    "#x", "'", "\\", "=1+1", "nan", "True", "1.0", "x" * 300,
]  # fmt: skip
IDS_WITH_BREAKS = ["line\nbreak", "tab\there"]
ANSWERS = ["yes", "no", "maybe", "very likely", "Ünklar", "neg", "pos"]


@dataclass(frozen=True)
class Export:
    """An export with the labels and columns that should be read from it."""

    path: Path
    labels: list[Label]
    columns: dict[str, str]  # that should be read, by role
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Crowd:
    """Labels to write, at most one per annotator and item."""

    rng: random.Random
    labels: list[Label]

    @classmethod
    def from_seed(cls, seed: int) -> "Crowd":
        """Draw six to twelve items, three to five annotators and two to four answers."""
        rng = random.Random(seed)
        ids = [*ODD_IDS, *IDS_WITH_BREAKS, *(f"item-{n}" for n in range(20))]
        items = rng.sample(ids, rng.randint(6, 12))
        annotators = rng.sample([*ODD_IDS[:12], *(f"w{n}" for n in range(9))], rng.randint(3, 5))
        answers = rng.sample(ANSWERS, rng.randint(2, 4))
        labels = [(i, a, rng.choice(answers)) for i in items for a in annotators if rng.random() < 0.8]
        # Annotators disagree and every answer occurs, so that the column of answers can be found.
        labels += [(items[0], f"extra-{n}", answer) for n, answer in enumerate(answers)]
        rng.shuffle(labels)
        return cls(rng, labels)

    def texts(self) -> dict[str, str]:
        return {item: f"The text of item number {n} is this." for n, item in enumerate(self.items())}

    def items(self) -> list[str]:
        return list(dict.fromkeys(item for item, _, _ in self.labels))

    def of(self, item: str) -> list[tuple[str, str]]:
        return [(annotator, label) for other, annotator, label in self.labels if other == item]

    def remark(self) -> str:
        return " ".join(self.rng.choices(["I", "think", "this", "is", "hard", "to", "say", "really"], k=6))

    def time(self) -> str:
        day, hour, minute = (self.rng.randint(10, limit) for limit in (28, 23, 59))
        return f"2026-01-{day} {hour}:{minute}:00"


# ---- tables -------------------------------------------------------------------------------------------

ITEM_NAMES = ["item", "task_id", "Item ID", "tweet_id", "document", "id", "question_id"]
ANNOTATOR_NAMES = ["annotator", "worker", "WorkerId", "rater", "user_id", "annotator_id"]
LABEL_NAMES = ["label", "answer", "rating", "annotation", "judgment", "category"]


def long_rows(crowd: Crowd) -> tuple[list[str], list[list[str]], dict[str, str]]:
    """Return a header in any order, rows, and the columns by role."""
    columns = {"item": crowd.rng.choice(ITEM_NAMES), "annotator": crowd.rng.choice(ANNOTATOR_NAMES)}
    columns["label"] = crowd.rng.choice(LABEL_NAMES)
    others = crowd.rng.sample(["comment", "started at", "batch", "text"], crowd.rng.randint(0, 3))
    header, texts = [*columns.values(), *others], crowd.texts()
    crowd.rng.shuffle(header)
    rows = []
    for label in crowd.labels:
        values = dict(zip(columns.values(), label, strict=True)) | {"batch": "b1", "text": texts[label[0]]}
        for name in others:
            if name in ("comment", "started at"):
                values[name] = crowd.remark() if name == "comment" else crowd.time()
        rows.append([values[name] for name in header])
    return header, rows, columns


def csv_text(rows: Iterable[Iterable[Any]], **dialect: Any) -> str:
    sink = io.StringIO()
    csv.writer(sink, **dialect).writerows(rows)
    return sink.getvalue()


def delimited(crowd: Crowd, folder: Path, *, zipped: bool = False) -> Export:
    """Write CSV with any delimiter, line end, quoting and byte-order mark."""
    header, rows, columns = long_rows(crowd)
    dialect = {"delimiter": crowd.rng.choice(",\t;|")}
    dialect |= {"quoting": crowd.rng.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])}
    text = csv_text([header, *rows], **dialect, lineterminator=crowd.rng.choice(["\n", "\r\n"]))
    content = crowd.rng.choice([b"", b"\xef\xbb\xbf"]) + text.encode()
    path = folder / ("votes.csv.gz" if zipped else "votes.csv")
    path.write_bytes(gzip.compress(content) if zipped else content)
    return Export(path, crowd.labels, columns)


def zipped(crowd: Crowd, folder: Path) -> Export:
    return delimited(crowd, folder, zipped=True)


def json_table(crowd: Crowd, folder: Path) -> Export:
    """Write JSON lines or one array."""
    header, rows, columns = long_rows(crowd)
    records = [dict(zip(header, row, strict=True)) for row in rows]
    lines = crowd.rng.random() < 0.5
    text = json_lines(records) if lines else json.dumps(records, indent=2)
    return Export(written(folder / ("votes.jsonl" if lines else "votes.json"), text), crowd.labels, columns)


def parquet_table(crowd: Crowd, folder: Path) -> Export:
    header, rows, columns = long_rows(crowd)
    table = pa.table({name: [row[n] for row in rows] for n, name in enumerate(header)})
    for name in columns.values():
        if crowd.rng.random() < 0.5:
            table = table.set_column(header.index(name), name, table.column(name).dictionary_encode())
    parquet.write_table(table, folder / "votes.parquet")
    return Export(folder / "votes.parquet", crowd.labels, columns)


def wide(crowd: Crowd, folder: Path) -> Export:
    """Write one row per item with one column per annotator."""
    annotators = list(dict.fromkeys(annotator for _, annotator, _ in crowd.labels))
    rows = [[item, *map(dict(crowd.of(item)).get, annotators)] for item in crowd.items()]
    file = written(folder / "votes.csv", csv_text([["item", *annotators], *rows]))
    return Export(file, crowd.labels, {"item": "item"}, {"layout": "wide"})


# ---- exports ------------------------------------------------------------------------------------------


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


def json_lines(records: Iterable[Any]) -> str:
    return "\n".join(map(json.dumps, records))


def export(crowd: Crowd, path: Path, text: str, *columns: str) -> Export:
    """Write all labels; the columns are those of item, annotator, label and text."""
    roles = ("item", "annotator", "label", "text")
    return Export(written(path, text), crowd.labels, dict(zip(roles, columns, strict=False)))


def label_studio(crowd: Crowd, folder: Path) -> Export:
    """Write tasks with answers, free-text remarks, spans and cancelled annotations."""
    remark = {"type": "textarea", "from_name": "why", "to_name": "text", "value": {"text": ["hm"]}}
    span = {"type": "labels", "from_name": "ner", "value": {"start": 0, "end": 3, "labels": ["PER"]}}

    def annotation(annotator: str, label: str) -> dict[str, Any]:
        result = [choice("mood", label), crowd.rng.choice([remark, span])]
        return {"completed_by": {"email": annotator, "id": 1}, "result": result}

    cancelled = {"completed_by": 9, "was_cancelled": True, "result": [choice("mood", "lost")]}
    tasks = []
    for item in crowd.items():
        annotations = [annotation(*answer) for answer in crowd.of(item)] + [cancelled]
        tasks.append({"id": item, "data": {"text": crowd.texts()[item]}, "annotations": annotations})
    return export(crowd, folder / "project.json", json.dumps(tasks), "id", "completed_by", "mood", "text")


def min_records(crowd: Crowd) -> list[dict[str, Any]]:
    texts = crowd.texts()
    return [
        {
            "id": item, "text": texts[item], "annotator": annotator, "annotation_id": n, "mood": label,
            "remark": crowd.remark(), "seen": crowd.time(), "created_at": crowd.time(), "lead_time": 1.5 + n,
        }
        for n, (item, annotator, label) in enumerate(crowd.labels)
    ]  # fmt: skip


def label_studio_min(crowd: Crowd, folder: Path) -> Export:
    text = json.dumps(min_records(crowd))
    return export(crowd, folder / "min.json", text, "id", "annotator", "mood", "text")


def label_studio_csv(crowd: Crowd, folder: Path) -> Export:
    records = min_records(crowd)
    text = csv_text([records[0], *(record.values() for record in records)])
    return export(crowd, folder / "project.csv", text, "id", "annotator", "mood", "text")


def prodigy(crowd: Crowd, folder: Path) -> Export:
    texts, done = crowd.texts(), {"answer": "accept"}
    lines = [
        {"text": texts[item], "_input_hash": item, "_annotator_id": annotator, **done, "accept": [label]}
        for item, annotator, label in crowd.labels
    ]
    columns = ("_input_hash", "_annotator_id", "choice", "text")
    return export(crowd, folder / "p.jsonl", json_lines(lines), *columns)


def argilla(crowd: Crowd, folder: Path) -> Export:
    texts, draft = crowd.texts(), {"value": "lost", "user_id": "d", "status": "draft"}
    records = []
    for item in crowd.items():
        answers = [{"value": label, "user_id": a, "status": "submitted"} for a, label in crowd.of(item)]
        responses = {"mood": [*answers, draft]}
        records.append({"id": item, "fields": {"text": texts[item]}, "responses": responses})
    return export(crowd, folder / "argilla.json", json.dumps(records), "id", "user_id", "mood", "text")


def doccano(crowd: Crowd, folder: Path) -> Export:
    """Write one file per member, named after them; names that no file can have are left out."""
    labels = [row for row in crowd.labels if row[1].startswith(("w", "extra"))]
    texts, records = crowd.texts(), dict[str, list[Any]]()
    for item, member, label in labels:
        record = {"id": item, "text": texts[item], "label": [label], "Comments": []}
        records.setdefault(member, []).append(record)
    with zipfile.ZipFile(folder / "members.zip", "w") as archive:
        for member, lines in records.items():
            archive.writestr(f"{member}.jsonl", json_lines(lines))
    columns = {"item": "id", "annotator": "name of the file", "label": "label", "text": "text"}
    return Export(folder / "members.zip", labels, columns)


def platform(crowd: Crowd, path: Path, header: dict[str, str], delimiter: str = ",") -> Export:
    """Write a platform's table; ``header`` maps columns to a kind of value, or to a constant."""
    texts, rows = crowd.texts(), []
    for item, annotator, label in crowd.labels:
        values = {
            "item": item, "annotator": annotator, "label": label, "text": texts[item],
            "remark": crowd.remark(), "time": crowd.time(), "empty": "",
        }  # fmt: skip
        rows.append([values.get(kind, kind) for kind in header.values()])
    text, column_of = csv_text([header, *rows], delimiter=delimiter), {v: k for k, v in header.items()}
    return export(crowd, path, text, column_of["item"], column_of["annotator"], "mood", "text")


def mturk(crowd: Crowd, folder: Path) -> Export:
    header = {
        "HITId": "item", "WorkerId": "annotator", "AssignmentStatus": "Approved", "SubmitTime": "time",
        "Input.text": "text", "Answer.mood": "label", "Answer.more": "empty",
    }  # fmt: skip
    return platform(crowd, folder / "batch.csv", header)


def appen(crowd: Crowd, folder: Path) -> Export:
    header = {
        "_unit_id": "item", "_worker_id": "annotator", "_golden": "false", "_created_at": "time",
        "mood": "label", "comments": "remark", "orig_seen": "time", "text": "text",
    }  # fmt: skip
    return platform(crowd, folder / "full.csv", header)


def toloka(crowd: Crowd, folder: Path) -> Export:
    header = {
        "INPUT:text": "text", "OUTPUT:mood": "label", "OUTPUT:more": "empty", "GOLDEN:mood": "empty",
        "ASSIGNMENT:task_id": "item", "ASSIGNMENT:worker_id": "annotator", "ASSIGNMENT:status": "APPROVED",
    }  # fmt: skip
    return platform(crowd, folder / "a.tsv", header, "\t")


def ground_truth(crowd: Crowd, folder: Path) -> Export:
    def answer(annotator: str, label: str) -> dict[str, Any]:
        content = json.dumps({"mood": {"label": label}})
        return {"workerId": annotator, "annotationData": {"content": content}}

    lines = [
        {"source": item, "job": {"annotationsFromAllWorkers": [answer(*row) for row in crowd.of(item)]}}
        for item in crowd.items()
    ]
    columns = ("source", "workerId", "mood", "source")
    return export(crowd, folder / "output.manifest", json_lines(lines), *columns)


def inspect_log(crowd: Crowd, folder: Path) -> Export:
    """Write a log, half of the time as an archive; some samples have an error."""
    samples = [
        {"id": item, "epoch": 1, "input": crowd.texts()[item], "output": {"completion": ""},
         "scores": {annotator: {"value": label} for annotator, label in crowd.of(item)}}
        for item in crowd.items()
    ]  # fmt: skip
    samples.append({"id": "lost", "epoch": 1, "input": "", "error": {"message": "lost"}, "scores": None})
    header, columns = (
        {"version": 2, "status": "success", "eval": {}, "plan": {}},
        ("id", "judge", "score", "text"),
    )
    path = folder / crowd.rng.choice(["log.json", "log.eval"])
    if path.suffix == ".json":
        return export(crowd, path, json.dumps(header | {"samples": samples}), *columns)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps(header))
        for number, sample in enumerate(samples):
            archive.writestr(f"samples/{number}_epoch_1.json", json.dumps(sample))
    roles = ("item", "annotator", "label", "text")
    return Export(path, crowd.labels, dict(zip(roles, columns, strict=True)))


def phoenix(crowd: Crowd, folder: Path) -> Export:
    annotations = [
        {"span_id": item, "name": "mood", "annotator_kind": "HUMAN", "identifier": annotator,
         "result": {"label": label, "score": crowd.rng.random()}, "metadata": {}}
        for item, annotator, label in crowd.labels
    ]  # fmt: skip
    text = json.dumps({"data": annotations}) if crowd.rng.random() < 0.5 else json_lines(annotations)
    return export(crowd, folder / "annotations.json", text, "span_id", "judge", "mood")


def split_json(crowd: Crowd, folder: Path) -> Export:
    texts, columns = crowd.texts(), ["message_id", "worker_id", "label", "message"]
    data = [[*label, texts[label[0]]] for label in crowd.labels]
    table = {"columns": columns, "index": [*range(len(data))], "data": data}
    return export(crowd, folder / "split.json", json.dumps(table), *columns)


def dataset(crowd: Crowd, folder: Path) -> Export:
    """Write a Hugging Face dataset with different items in its splits."""
    texts, items = crowd.texts(), crowd.items()
    parts = {"train": items[: len(items) // 2], "test": items[len(items) // 2 :]}
    for split, ids in parts.items():
        rows = [row for row in crowd.labels if row[0] in ids]
        columns = {"id": [r[0] for r in rows], "worker": [r[1] for r in rows], "label": [r[2] for r in rows]}
        table = pa.table(columns | {"text": [texts[row[0]] for row in rows]})
        (folder / "set" / split).mkdir(parents=True)
        with pa.ipc.new_stream(str(folder / "set" / split / "data-00000.arrow"), table.schema) as writer:
            writer.write_table(table)
    roles = {"item": "id", "annotator": "worker", "label": "label", "text": "text"}
    return Export(folder / "set", crowd.labels, roles)


EXPORTS: tuple[Callable[[Crowd, Path], Export], ...] = (
    delimited, zipped, json_table, parquet_table, wide, label_studio, label_studio_min, label_studio_csv,
    prodigy, argilla, doccano, mturk, appen, toloka, ground_truth, inspect_log, phoenix, split_json, dataset,
)  # fmt: skip


def fault(seed: int) -> str:
    """Return what is read wrongly from a seed's export; empty if nothing is."""
    write = EXPORTS[seed % len(EXPORTS)]
    name = f"seed {seed} ({write.__name__})"
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        export = write(Crowd.from_seed(seed), Path(folder))
        try:
            labels = ds.read_annotations(export.path, label_type="nominal", **export.options)
        except ds.DissensusError as error:
            return f"{name}: {error}"
    actual, expected = Counter(rows_of(labels)), Counter(export.labels)
    if actual != expected:
        return f"{name}: read {list(actual - expected)[:3]}, not {list(expected - actual)[:3]}"
    columns = {role: labels.columns_read.get(role) for role in export.columns}
    return "" if columns == export.columns else f"{name}: columns {columns}, not {export.columns}"


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    faults = list(filter(None, map(fault, range(n))))
    print(*faults, f"seeds 0 to {n - 1}: {n - len(faults)} of {n} read correctly", sep="\n")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
