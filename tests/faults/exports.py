"""Valid exports that are awkward, drawn from a seed, each with the labels that stand in it.

The labels come first: items, annotators and answers with quotes, line breaks, leading zeros, words that look
like nothing (``NA``, ``null``, ``-0``), other scripts. Then they are written as one of the formats people
have, with what people's files have beside them: other columns, remarks, times, byte-order marks, odd
delimiters, columns in any order.

    PYTHONPATH=tests python -m faults.exports [SEEDS]      read them all, 300 by default
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import random
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

Label = tuple[str, str, str]

ODD = [
    "007", "NA", "null", "none", "-0", "1e5", "a b", 'quo"te', "é,comma", "日本", "𝔸", "semi;colon", "p|pe",
    "#x", "'", "\\", "=1+1", "nan", "True", "1.0", "x" * 300,
]  # fmt: skip
BROKEN = ["line\nbreak", "tab\there"]
WORDS = ["yes", "no", "maybe", "very likely", "Ünklar", "neg", "pos"]


@dataclass(frozen=True)
class Export:
    """A file, or a folder of them, and what a reader should find."""

    path: Path
    labels: list[Label]
    columns: dict[str, str]  # what should be said of the columns taken
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Crowd:
    """Labels to be written; every annotator answers an item once."""

    chance: random.Random
    labels: list[Label]

    @classmethod
    def drawn(cls, seed: int) -> Crowd:
        """Six to twelve items, three to five annotators, two to four answers."""
        chance = random.Random(seed)
        items = chance.sample([*ODD, *BROKEN, *(f"item-{n}" for n in range(20))], chance.randint(6, 12))
        crowd = chance.sample([*ODD[:12], *(f"w{n}" for n in range(9))], chance.randint(3, 5))
        answers = chance.sample(WORDS, chance.randint(2, 4))
        labels = [
            (item, who, chance.choice(answers)) for item in items for who in crowd if chance.random() < 0.8
        ]
        # Somebody disagrees, and every answer occurs: a column of one value tells nothing.
        labels += [(items[0], f"extra-{n}", answer) for n, answer in enumerate(answers)]
        chance.shuffle(labels)
        return cls(chance, labels)

    def texts(self) -> dict[str, str]:
        return {item: f"The text of item number {n} is this." for n, item in enumerate(self.items())}

    def items(self) -> list[str]:
        return list(dict.fromkeys(item for item, _, _ in self.labels))

    def of(self, item: str) -> list[tuple[str, str]]:
        return [(who, label) for one, who, label in self.labels if one == item]

    def remark(self) -> str:
        return " ".join(self.chance.choices(["I", "think", "this", "is", "hard", "to", "say", "really"], k=6))

    def time(self) -> str:
        day, hour, minute = (self.chance.randint(10, most) for most in (28, 23, 59))
        return f"2026-01-{day} {hour}:{minute}:00"


# ---- tables -------------------------------------------------------------------------------------------

ITEM = ["item", "task_id", "Item ID", "tweet_id", "document", "id", "question_id"]
WHO = ["annotator", "worker", "WorkerId", "rater", "user_id", "annotator_id"]
ANSWER = ["label", "answer", "rating", "annotation", "judgment", "category"]


def long_rows(crowd: Crowd) -> tuple[list[str], list[list[str]], dict[str, str]]:
    """A header in any order, rows, and which column is which."""
    columns = {"item": crowd.chance.choice(ITEM), "annotator": crowd.chance.choice(WHO)}
    columns["label"] = crowd.chance.choice(ANSWER)
    others = crowd.chance.sample(["comment", "started at", "batch", "text"], crowd.chance.randint(0, 3))
    texts = crowd.texts()
    beside: dict[str, Callable[[str], str]] = {
        "comment": lambda item: crowd.remark(),
        "started at": lambda item: crowd.time(),
        "batch": lambda item: "b1",
        "text": lambda item: texts[item],
    }
    header = [*columns.values(), *others]
    crowd.chance.shuffle(header)
    rows = []
    for item, who, label in crowd.labels:
        values = {columns["item"]: item, columns["annotator"]: who, columns["label"]: label}
        values |= {name: beside[name](item) for name in others}
        rows.append([values[name] for name in header])
    return header, rows, columns


def delimited(crowd: Crowd, folder: Path, *, zipped: bool = False) -> Export:
    """CSV with any delimiter, line end, quoting, byte-order mark."""
    header, rows, columns = long_rows(crowd)
    delimiter = crowd.chance.choice(",\t;|")
    quoting = crowd.chance.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    sink = io.StringIO()
    writer = csv.writer(
        sink, delimiter=delimiter, quoting=quoting, lineterminator=crowd.chance.choice(["\n", "\r\n"])
    )
    writer.writerows([header, *rows])
    content = crowd.chance.choice([b"", b"\xef\xbb\xbf"]) + sink.getvalue().encode()
    path = folder / ("votes.csv.gz" if zipped else "votes.csv")
    path.write_bytes(gzip.compress(content) if zipped else content)
    return Export(path, crowd.labels, columns)


def zipped(crowd: Crowd, folder: Path) -> Export:
    return delimited(crowd, folder, zipped=True)


def json_table(crowd: Crowd, folder: Path) -> Export:
    """JSON lines, or one array."""
    header, rows, columns = long_rows(crowd)
    records = [dict(zip(header, row, strict=True)) for row in rows]
    lines = crowd.chance.random() < 0.5
    text = "\n".join(map(json.dumps, records)) if lines else json.dumps(records, indent=2)
    return Export(written(folder / ("votes.jsonl" if lines else "votes.json"), text), crowd.labels, columns)


def parquet_table(crowd: Crowd, folder: Path) -> Export:
    header, rows, columns = long_rows(crowd)
    table = pa.table({name: [row[n] for row in rows] for n, name in enumerate(header)})
    for name in columns.values():
        if crowd.chance.random() < 0.5:
            place = header.index(name)
            table = table.set_column(place, name, table.column(name).dictionary_encode())
    parquet.write_table(table, folder / "votes.parquet")
    return Export(folder / "votes.parquet", crowd.labels, columns)


def wide(crowd: Crowd, folder: Path) -> Export:
    """One row an item, one column an annotator."""
    people = list(dict.fromkeys(who for _, who, _ in crowd.labels))
    sink = io.StringIO()
    writer = csv.writer(sink)
    writer.writerow(["item", *people])
    for item in crowd.items():
        given = dict(crowd.of(item))
        writer.writerow([item, *(given.get(who, "") for who in people)])
    return Export(
        written(folder / "votes.csv", sink.getvalue()), crowd.labels, {"item": "item"}, {"layout": "wide"}
    )


# ---- exports ------------------------------------------------------------------------------------------


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8", newline="")
    return path


def chosen(label: str) -> dict[str, Any]:
    return {"type": "choices", "from_name": "mood", "to_name": "text", "value": {"choices": [label]}}


def label_studio(crowd: Crowd, folder: Path) -> Export:
    """Tasks with drafts, cancelled annotations and a free-text remark beside the answers."""
    remark = {"type": "textarea", "from_name": "why", "to_name": "text", "value": {"text": ["hm"]}}
    span = {"type": "labels", "from_name": "ner", "value": {"start": 0, "end": 3, "labels": ["PER"]}}
    tasks = []
    for item in crowd.items():
        annotations = [
            {
                "completed_by": {"email": who, "id": 1},
                "result": [chosen(label), crowd.chance.choice([remark, span])],
            }
            for who, label in crowd.of(item)
        ]
        annotations.append({"completed_by": 9, "was_cancelled": True, "result": [chosen("lost")]})
        tasks.append({"id": item, "data": {"text": crowd.texts()[item]}, "annotations": annotations})
    columns = {"item": "id", "annotator": "completed_by", "label": "mood", "text": "text"}
    return Export(written(folder / "project.json", json.dumps(tasks)), crowd.labels, columns)


def min_records(crowd: Crowd) -> list[dict[str, Any]]:
    texts = crowd.texts()
    return [
        {
            "id": item, "text": texts[item], "annotator": who, "annotation_id": n, "mood": label,
            "remark": crowd.remark(), "seen": crowd.time(), "created_at": crowd.time(), "lead_time": 1.5 + n,
        }
        for n, (item, who, label) in enumerate(crowd.labels)
    ]  # fmt: skip


def label_studio_min(crowd: Crowd, folder: Path) -> Export:
    columns = {"item": "id", "annotator": "annotator", "label": "mood", "text": "text"}
    return Export(written(folder / "min.json", json.dumps(min_records(crowd))), crowd.labels, columns)


def label_studio_csv(crowd: Crowd, folder: Path) -> Export:
    records = min_records(crowd)
    sink = io.StringIO()
    writer = csv.DictWriter(sink, list(records[0]))
    writer.writeheader()
    writer.writerows(records)
    columns = {"item": "id", "annotator": "annotator", "label": "mood", "text": "text"}
    return Export(written(folder / "project.csv", sink.getvalue()), crowd.labels, columns)


def prodigy(crowd: Crowd, folder: Path) -> Export:
    texts = crowd.texts()
    lines = [
        {
            "text": texts[item],
            "_input_hash": item,
            "_annotator_id": who,
            "answer": "accept",
            "accept": [label],
        }
        for item, who, label in crowd.labels
    ]
    columns = {"item": "_input_hash", "annotator": "_annotator_id", "label": "choice", "text": "text"}
    return Export(written(folder / "p.jsonl", "\n".join(map(json.dumps, lines))), crowd.labels, columns)


def argilla(crowd: Crowd, folder: Path) -> Export:
    texts = crowd.texts()
    records = [
        {
            "id": item,
            "fields": {"text": texts[item]},
            "responses": {
                "mood": [
                    *(
                        {"value": label, "user_id": who, "status": "submitted"}
                        for who, label in crowd.of(item)
                    ),
                    {"value": "lost", "user_id": "d", "status": "draft"},
                ]
            },
        }
        for item in crowd.items()
    ]
    columns = {"item": "id", "annotator": "user_id", "label": "mood", "text": "text"}
    return Export(written(folder / "argilla.json", json.dumps(records)), crowd.labels, columns)


def doccano(crowd: Crowd, folder: Path) -> Export:
    """One file a member, whose name is that of the file: names that no file can have are left out."""
    labels = [row for row in crowd.labels if row[1].startswith(("w", "extra"))]
    texts, members = crowd.texts(), dict.fromkeys(who for _, who, _ in labels)
    with zipfile.ZipFile(folder / "members.zip", "w") as archive:
        for member in members:
            own = [
                {"id": item, "text": texts[item], "label": [label], "Comments": []}
                for item, who, label in labels
                if who == member
            ]
            archive.writestr(f"{member}.jsonl", "\n".join(map(json.dumps, own)))
    columns = {"item": "id", "annotator": "name of the file", "label": "label", "text": "text"}
    return Export(folder / "members.zip", labels, columns)


def platform(crowd: Crowd, folder: Path, header: dict[str, str], name: str, delimiter: str = ",") -> Path:
    """A platform's table: ``header`` says what stands in each column ({} is filled in)."""
    texts = crowd.texts()
    sink = io.StringIO()
    writer = csv.writer(sink, delimiter=delimiter)
    writer.writerow(header)
    for item, who, label in crowd.labels:
        filled = {
            "item": item, "who": who, "label": label, "text": texts[item], "remark": crowd.remark(),
            "time": crowd.time(), "empty": "",
        }  # fmt: skip
        writer.writerow([filled.get(what, what) for what in header.values()])
    return written(folder / name, sink.getvalue())


def mturk(crowd: Crowd, folder: Path) -> Export:
    header = {
        "HITId": "item", "WorkerId": "who", "AssignmentStatus": "Approved", "SubmitTime": "time",
        "Input.text": "text", "Answer.mood": "label", "Answer.more": "empty",
    }  # fmt: skip
    columns = {"item": "HITId", "annotator": "WorkerId", "label": "mood", "text": "text"}
    return Export(platform(crowd, folder, header, "batch.csv"), crowd.labels, columns)


def appen(crowd: Crowd, folder: Path) -> Export:
    header = {
        "_unit_id": "item", "_worker_id": "who", "_golden": "false", "_created_at": "time", "mood": "label",
        "comments": "remark", "orig_seen": "time", "text": "text",
    }  # fmt: skip
    columns = {"item": "_unit_id", "annotator": "_worker_id", "label": "mood", "text": "text"}
    return Export(platform(crowd, folder, header, "full.csv"), crowd.labels, columns)


def toloka(crowd: Crowd, folder: Path) -> Export:
    header = {
        "INPUT:text": "text", "OUTPUT:mood": "label", "OUTPUT:more": "empty", "GOLDEN:mood": "empty",
        "ASSIGNMENT:task_id": "item", "ASSIGNMENT:worker_id": "who", "ASSIGNMENT:status": "APPROVED",
    }  # fmt: skip
    columns = {
        "item": "ASSIGNMENT:task_id",
        "annotator": "ASSIGNMENT:worker_id",
        "label": "mood",
        "text": "text",
    }
    return Export(platform(crowd, folder, header, "a.tsv", "\t"), crowd.labels, columns)


def ground_truth(crowd: Crowd, folder: Path) -> Export:
    lines = [
        {
            "source": item,
            "job": {
                "annotationsFromAllWorkers": [
                    {"workerId": who, "annotationData": {"content": json.dumps({"mood": {"label": label}})}}
                    for who, label in crowd.of(item)
                ]
            },
        }
        for item in crowd.items()
    ]
    columns = {"item": "source", "annotator": "workerId", "label": "mood", "text": "source"}
    return Export(
        written(folder / "output.manifest", "\n".join(map(json.dumps, lines))), crowd.labels, columns
    )


def split_json(crowd: Crowd, folder: Path) -> Export:
    texts = crowd.texts()
    data = [[item, who, label, texts[item]] for item, who, label in crowd.labels]
    table = {
        "columns": ["message_id", "worker_id", "label", "message"],
        "index": [*range(len(data))],
        "data": data,
    }
    columns = {"item": "message_id", "annotator": "worker_id", "label": "label", "text": "message"}
    return Export(written(folder / "split.json", json.dumps(table)), crowd.labels, columns)


def dataset(crowd: Crowd, folder: Path) -> Export:
    """A Hugging Face dataset on disk, its splits of different items."""
    texts, items = crowd.texts(), crowd.items()
    parts = {"train": items[: len(items) // 2], "test": items[len(items) // 2 :]}
    for split, own in parts.items():
        rows = [row for row in crowd.labels if row[0] in own]
        columns = {"id": [r[0] for r in rows], "worker": [r[1] for r in rows], "label": [r[2] for r in rows]}
        table = pa.table(columns | {"text": [texts[row[0]] for row in rows]})
        (folder / "set" / split).mkdir(parents=True)
        with pa.ipc.new_stream(str(folder / "set" / split / "data-00000.arrow"), table.schema) as writer:
            writer.write_table(table)
    taken = {"item": "id", "annotator": "worker", "label": "label", "text": "text"}
    return Export(folder / "set", crowd.labels, taken)


FORMATS: tuple[Callable[[Crowd, Path], Export], ...] = (
    delimited, zipped, json_table, parquet_table, wide, label_studio, label_studio_min, label_studio_csv,
    prodigy, argilla, doccano, mturk, appen, toloka, ground_truth, split_json, dataset,
)  # fmt: skip


def drawn(seed: int, folder: Path) -> Export:
    """The export of a seed."""
    return FORMATS[seed % len(FORMATS)](Crowd.drawn(seed), folder)


def fault(seed: int) -> str:
    """What a reader gets wrong of a seed's export; empty where nothing is."""
    import dissensus as ds

    with tempfile.TemporaryDirectory() as place:
        export = drawn(seed, Path(place))
        name = f"seed {seed} ({FORMATS[seed % len(FORMATS)].__name__})"
        try:
            read = ds.read_annotations(export.path, label_type="nominal", **export.options)
        except ds.DissensusError as error:
            return f"{name}: {error}"
        rows = zip(
            read.items[read.item], read.annotators[read.annotator], read.classes[read.label], strict=True
        )
        found, wanted = Counter(tuple(map(str, row)) for row in rows), Counter(export.labels)
        if found != wanted:
            return (
                f"{name}: read {list((found - wanted).items())[:3]}, not {list((wanted - found).items())[:3]}"
            )
        told = {role: read.columns_read.get(role) for role in export.columns}
        return "" if told == export.columns else f"{name}: said {told}, not {export.columns}"


def main() -> None:
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 300
    found = [told for told in map(fault, range(n)) if told]
    print(*found, f"seeds 0 to {n - 1}: {n - len(found)} of {n} right, the columns taken too", sep="\n")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
