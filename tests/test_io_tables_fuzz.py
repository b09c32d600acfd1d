"""Mangled files: whatever the damage, a clear error or good data."""

from __future__ import annotations

import gzip
import io
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

import dissensus as ds
from dissensus.labels.annotations import Annotations
from sizes import usually

pytestmark = pytest.mark.slow

N_FILES = usually(100, verify=400)  # of each kind
HEADER = b"item,annotator,label,text\n"
TEXT = (
    HEADER
    + b'q1,ann,yes,"one, two"\nq1,bob,no,"line\nbreak"\nq2,ann,none,"say ""hi"""\r\n'
    + "q2,zoé,ja,ü\n\nq3,bob,1,\nq4,cat,NA,x\n".encode()
)
LINES = (
    b'{"item": "q1", "annotator": "ann", "label": "yes", "text": "a\\nb"}\n'
    b'{"item": 2, "annotator": "bob", "label": 1.50, "more": [1, {"a": null}]}\n\n'
    b'{"item": "q3", "annotator": "\\u00e9va", "label": true}\n'
)


def _parquet() -> bytes:
    sink = io.BytesIO()
    columns = {
        "item": ["q1", "q1", "q2"],
        "annotator": [1, 2, 1],
        "label": [0.5, 1.0, 0.5],
        "text": ["a", None, "c"],
    }
    parquet.write_table(pa.table(columns), sink)
    return sink.getvalue()


KINDS: dict[str, tuple[str, bytes]] = {
    "csv": ("votes.csv", TEXT),
    "tsv": ("votes.tsv", TEXT.replace(b",", b"\t")),
    "wide": ("wide.csv", b"item,text,Ann1,Ann2\n1,a,yes,no\n2,b,,yes\n3,c,no,\n"),
    "jsonl": ("votes.jsonl", LINES),
    "parquet": ("votes.parquet", _parquet()),
    "gzip": ("votes.csv.gz", gzip.compress(TEXT, mtime=0)),
}
SPECIAL = [
    b"",
    b"\0",
    b"\n",
    b"\r",
    b'"',
    b",",
    b"\t",
    b"\xff",
    b"\xfe",
    b"\xef\xbb\xbf",
    b"\xe2\x80",
    b"{",
    b"]",
]
SPECIAL += [
    b"\\",
    b"\\ud800",
    b"NaN",
    b"1e999",
    b"item",
    b"label",
    b"annotator\n",
    b" ",
    b"PAR1",
    b"\x1f\x8b",
]


def flip(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.choice(SPECIAL) * rng.choice([1, 1, 1, 3, 50])


def delete(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice([1, 1, 2, 10, 100])]


def cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def repeat(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    piece = data[start : start + rng.choice([1, 5, 40])]
    at = rng.randrange(len(data) + 1)
    data[at:at] = piece * rng.choice([1, 2, 20])


def scramble(data: bytearray, rng: random.Random) -> None:
    start = rng.randrange(len(data))
    stop = start + rng.choice([2, 8, 64])
    piece = list(data[start:stop])
    rng.shuffle(piece)
    data[start:stop] = bytes(piece)


DAMAGE: list[Callable[[bytearray, random.Random], None]] = [flip, insert, delete, cut, repeat, scramble]


def mangled(content: bytes, rng: random.Random) -> bytes:
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 4, 8])):
        if data:
            rng.choice(DAMAGE)(data, rng)
    return bytes(data)


def check(annotations: Annotations) -> None:
    """Good data: coded, canonical, nothing blank."""
    assert annotations.n_labels > 0
    for codes, vocabulary in (
        (annotations.item, annotations.item_vocabulary),
        (annotations.annotator, annotations.annotator_vocabulary),
        (annotations.label, annotations.class_vocabulary),
    ):
        assert codes.min() >= 0
        assert codes.max() < len(vocabulary)
        assert all(isinstance(value, str) and value.strip() for value in vocabulary)
        assert len(set(vocabulary)) == len(vocabulary)
    rows = np.stack([annotations.item, annotations.annotator, annotations.label])
    assert np.array_equal(rows, rows[:, np.lexsort(rows[::-1])])
    assert ds.describe(annotations).as_text()


def assert_clear(errors: list[str]) -> None:
    """One line each, of a length that can be read."""
    assert errors
    assert not [error for error in errors if "\n" in error or len(error) > 1000]


@pytest.mark.parametrize("kind", KINDS)
def test_only_clear_errors_or_good_data(kind: str, tmp_path: Path) -> None:
    name, content = KINDS[kind]
    rng = random.Random(f"mangled {kind}")
    path = tmp_path / name
    errors = []
    for _ in range(N_FILES):
        path.write_bytes(mangled(content, rng))
        try:
            check(ds.read_annotations(path))
        except ds.DissensusError as error:
            errors.append(str(error))
    assert_clear(errors)
    assert N_FILES // 10 < len(errors) < N_FILES  # the damage is real, and not all of it is fatal


@pytest.mark.parametrize("role", ["items", "annotators", "gold"])
def test_mangled_side_tables(role: str, tmp_path: Path) -> None:
    labels, side = tmp_path / "votes.csv", tmp_path / "side.csv"
    labels.write_bytes(TEXT)
    content = (
        b"annotator,label\nann,1\nbob,2\n" if role == "annotators" else b"item,label\nq1,yes\nq2,no\nq9,x\n"
    )
    rng = random.Random(f"mangled {role}")
    errors = []
    for _ in range(N_FILES // 4):
        side.write_bytes(mangled(content, rng))
        try:
            assert ds.read_annotations(labels, **{role: side}).n_labels == 6
        except ds.DissensusError as error:
            errors.append(str(error))
    assert_clear(errors)
