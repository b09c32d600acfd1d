"""Small tables in every format, and readers' results in a form to compare."""

import csv
import io
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import parquet

import dissensus as ds
from dissensus.errors import DissensusWarning

HEADER = "item,annotator,label\n"
ROWS = [("q1", "ann", "none"), ("q1", "bob", "007"), ("q2", "ann", "NA"), ("q2", "bob", "a,b")]
ROWS += [("q3", "ann", "x")]
Rows = list[tuple[str, ...]]


def write_file(path: Path, content: str | bytes) -> Path:
    """Write a file, and its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def as_csv(rows: Rows, delimiter: str = ",", header: str = "item annotator label") -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, delimiter=delimiter).writerows([header.split(), *rows])
    return text.getvalue().encode()


def as_jsonl(rows: Rows) -> bytes:
    names = ("item", "annotator", "label")
    return "".join(json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows).encode()


def as_parquet(columns: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    parquet.write_table(pa.table(columns), sink)
    return sink.getvalue()


def rows_as_parquet(rows: Rows) -> bytes:
    columns = zip(("item", "annotator", "label"), zip(*rows, strict=True), strict=True)
    return as_parquet({name: list(values) for name, values in columns})


TABLE_WRITERS: dict[str, Callable[[Rows], bytes]] = {
    ".csv": as_csv,
    ".tsv": lambda rows: as_csv(rows, "\t"),
    ".txt": lambda rows: as_csv(rows, ";"),
    ".jsonl": as_jsonl,
    ".json": lambda rows: b"[" + b",".join(as_jsonl(rows).splitlines()) + b"]",
    ".parquet": rows_as_parquet,
}


def rows_of(labels: ds.Annotations) -> list[tuple[Any, Any, Any]]:
    """Return (item, annotator, label) of every label."""
    ids = (labels.items[labels.item], labels.annotators[labels.annotator], labels.classes[labels.label])
    return list(zip(*(column.tolist() for column in ids), strict=True))


def with_warnings(read: Callable[[], ds.Annotations], file: str) -> tuple[ds.Annotations, list[str]]:
    """Return the labels and the warnings of reading them, which must point at a line of ``file``."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        labels = read()
    assert all(warning.category is DissensusWarning for warning in caught)
    assert {warning.filename for warning in caught} <= {file}
    return labels, [str(warning.message) for warning in caught]
