"""Five million rows of CSV into Annotations, beside pyarrow's own read and dictionary-encode; and JSON lines.

Ids are strings; rows come in the order of the items, as most tools write them, or shuffled, with quotes or
without. Every reading has a fresh process; the two sides take turns, and the ratio is the median over rounds
of neighbours, so that other work on the machine slows both. Lines of JSON are read in the usual way and value
by value, as all lines are that are not plain: the ratio is that of processor times.

    python benchmarks/bench_read.py [--rows 5000000] [--lines 500000] [--rounds 7]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

from timing import in_fresh_process, peak_bytes

LIMIT = 1.5  # times pyarrow's own
JSON_LIMIT = 0.25  # of the processor time of the careful reader
LABELS_PER_ITEM = 10
LABELS_PER_ANNOTATOR = 250
CLASSES = ("positive", "negative", "neutral", "mixed", "unclear")


def write_labels(path: Path, n_labels: int, *, shuffled: bool, quotes: str) -> None:
    """Ten labels an item by a long-tailed crowd."""
    rng = np.random.default_rng(0)
    item = np.arange(n_labels) // LABELS_PER_ITEM
    n_annotators = max(1, n_labels // LABELS_PER_ANNOTATOR)
    annotator = (n_annotators * rng.random(n_labels) ** 3).astype(np.int64)
    label = rng.integers(0, len(CLASSES), n_labels)
    order = rng.permutation(n_labels) if shuffled else np.arange(n_labels)
    columns = {"item": _names("item", item), "annotator": _names("worker", annotator)}
    columns["label"] = pa.array(CLASSES).take(pa.array(label))
    table = pa.table(columns).take(pa.array(order))
    csv.write_csv(table, path, csv.WriteOptions(quoting_style=quotes))


def _names(prefix: str, codes: np.ndarray) -> pa.Array:
    names = pa.array([f"{prefix}-{code:07d}" for code in range(codes.max() + 1)])
    return names.take(pa.array(codes))


def read_with_pyarrow(path: str) -> int:
    table = csv.read_csv(path)
    return min(len(column.dictionary_encode()) for column in table.columns)


def read_with_dissensus(path: str) -> int:
    from dissensus import read_annotations

    return read_annotations(path).n_labels


def read_carefully(path: str) -> int:
    from dissensus.tables.json_lines import JsonTable

    JsonTable._plain_lines = lambda self, text: None  # type: ignore[method-assign]
    return read_with_dissensus(path)


READERS = {"pyarrow": read_with_pyarrow, "dissensus": read_with_dissensus, "careful": read_carefully}


def measure(reader: str, path: str) -> None:
    """Read once in this process; seconds and peak memory go to standard output."""
    import dissensus.importers  # noqa: F401  (imports are not reading)

    start, processor = time.perf_counter(), time.process_time()
    n_labels = READERS[reader](path)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    found = {"labels": n_labels, "seconds": seconds, "processor": processor, "peak": peak_bytes()}
    print(json.dumps(found))


def compare(path: Path, rounds: int, other: str, what: str, limit: float) -> float:
    """The median ratio of neighbouring runs, with the best of both sides printed."""
    found: dict[str, list[dict[str, float]]] = {"dissensus": [], other: []}
    for _ in range(rounds):
        for reader in found:
            found[reader].append(in_fresh_process(__file__, "--reader", reader, "--file", path))
    assert len({run["labels"] for runs in found.values() for run in runs}) == 1
    for reader, runs in found.items():
        best, work = (min(run[key] for run in runs) for key in ("seconds", "processor"))
        peak = max(run["peak"] for run in runs) / 1e6
        print(f"  {reader:<10} {best:6.2f} s, {work:5.2f} s of processor time, peak {peak:5.0f} MB")
    pairs = zip(found["dissensus"], found[other], strict=True)
    ratio = statistics.median(ours[what] / theirs[what] for ours, theirs in pairs)
    print(f"  ratio {ratio:.2f} (at most {limit})", flush=True)
    return ratio / limit


def main(rows: int, lines: int, rounds: int) -> int:
    ratios = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "labels.csv"
        for shuffled, quotes in ((False, "none"), (True, "none"), (False, "all_valid")):
            write_labels(path, rows, shuffled=shuffled, quotes=quotes)
            words = ("shuffled" if shuffled else "by item") + (", quoted" if quotes == "all_valid" else "")
            print(f"{rows:,} rows {words}, {path.stat().st_size / 1e6:.0f} MB (peaks count the mapped file)")
            ratios.append(compare(path, rounds, "pyarrow", "seconds", LIMIT))
        write_labels(path, lines, shuffled=False, quotes="none")
        records, path = csv.read_csv(path).to_pylist(), Path(folder) / "labels.jsonl"
        path.write_text("".join(json.dumps(record) + "\n" for record in records))
        print(f"{lines:,} lines of JSON, {path.stat().st_size / 1e6:.0f} MB")
        ratios.append(compare(path, rounds, "careful", "processor", JSON_LIMIT))
    return int(max(ratios) > 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--lines", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--reader", choices=READERS)
    parser.add_argument("--file")
    given = parser.parse_args()
    if given.reader:
        measure(given.reader, given.file)
    else:
        sys.exit(main(given.rows, given.lines, given.rounds))
