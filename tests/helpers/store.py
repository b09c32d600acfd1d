"""Random tables of labels in every format for tests of stores."""

import csv
import gzip
import hashlib
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from dissensus import Annotations
from dissensus.large.store import MANIFEST

Row = tuple[str, str, str]
Change = Callable[[dict[str, Any], dict[str, bytearray]], None]
FORMATS = ("csv", "tsv", "csv.gz", "jsonl", "jsonl.gz", "json", "parquet")
HEADER = ("item", "annotator", "label")


def random_rows(seed: int, n: int = 160) -> list[Row]:
    """Return unordered rows with repeats and unusual ids (quotes, line breaks, spaces, other scripts)."""
    rng = np.random.default_rng(seed)
    unusual = ["Ä", "a b", "A B", "a  b", 'quo"te', "line\nbreak", "é,comma", "日本", "𝔸", "007", "NA"]
    unusual.append("null")
    items = unusual + [f"item-{i}" for i in range(30)]
    crowd = ["Zoë", "zoë"] + [f"w{i}" for i in range(9)]
    labels = ["yes", "no", "Yes", "may be", "𝔸"]
    columns_ = (rng.choice(names, n).tolist() for names in (items, crowd, labels))
    return list(zip(*columns_, strict=True))


def write_rows(path: Path, rows: list[Row]) -> Path:
    """Write a table in the format of the suffix."""
    kind = path.name.partition(".")[2]
    if kind == "parquet":
        columns = zip(*rows, strict=True)
        parquet.write_table(pa.table({h: list(c) for h, c in zip(HEADER, columns, strict=True)}), path)
        return path
    with (gzip.open if kind.endswith(".gz") else open)(path, "wt", encoding="utf-8", newline="") as file:
        if kind.startswith("json"):
            records = [dict(zip(HEADER, row, strict=True)) for row in rows]
            file.write(json.dumps(records) if kind == "json" else "\n".join(map(json.dumps, records)))
        else:
            writer = csv.writer(file, delimiter="\t" if kind == "tsv" else ",", lineterminator="\n")
            writer.writerows([HEADER, *rows])
    return path


def same(a: Annotations, b: Annotations) -> None:
    """Check that two annotations have the same codes, ids and notes."""
    for name in ("item", "annotator", "label", "item_pointers", "annotator_load", "counts"):
        assert np.array_equal(getattr(a, name), getattr(b, name)), name
        assert getattr(a, name).dtype == getattr(b, name).dtype, name
    for name in ("item_vocabulary", "annotator_vocabulary", "class_vocabulary", "notes", "frame_kind"):
        assert getattr(a, name) == getattr(b, name), name


def forge(store: Path, change: Change) -> None:
    """Change the manifest and bytes of a store, and recompute every checksum."""
    manifest = json.loads((store / MANIFEST).read_bytes())
    manifest.pop("seal")
    content = {name: bytearray((store / name).read_bytes()) for name in manifest["files"]}
    change(manifest, content)
    for name, data in content.items():
        (store / name).write_bytes(data)
        manifest["files"][name] = {"bytes": len(data), "crc32": zlib.crc32(data)}
    text = json.dumps(manifest, sort_keys=True)
    (store / MANIFEST).write_text(json.dumps(manifest | {"seal": hashlib.sha256(text.encode()).hexdigest()}))
