"""Reading five million CSV rows, compared with pyarrow's read and dictionary encoding; and JSON lines.

Ids are strings. Rows are sorted by item or shuffled, with and without quotes. Every read has a fresh process;
the sides take turns, and the ratio is the median over rounds. JSON lines are read by the fast reader and by
the general one, which reads value by value; their ratio is that of processor times.

    python -m benchmarks.read [--rows 5000000] [--lines 500000] [--rounds 7]
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

from benchmarks.timing import in_fresh_process, peak_bytes
from experiments.runner import check_limit

MAX_CSV_RATIO = 1.5  # over pyarrow
MAX_JSON_RATIO = 0.25  # over the general reader
LABELS_PER_ITEM, LABELS_PER_ANNOTATOR = 10, 250
CLASSES = ("positive", "negative", "neutral", "mixed", "unclear")


def write_labels(path: Path, n_labels: int, *, shuffled: bool, quotes: str) -> None:
    """Write labels of a long-tailed crowd."""
    rng = np.random.default_rng(0)
    item = np.arange(n_labels) // LABELS_PER_ITEM
    n_annotators = max(1, n_labels // LABELS_PER_ANNOTATOR)
    annotator = (n_annotators * rng.random(n_labels) ** 3).astype(np.int64)
    label = rng.integers(0, len(CLASSES), n_labels)
    order = rng.permutation(n_labels) if shuffled else np.arange(n_labels)
    columns = {}
    for name, prefix, codes in (("item", "item", item), ("annotator", "worker", annotator)):
        names = pa.array([f"{prefix}-{code:07d}" for code in range(codes.max() + 1)])
        columns[name] = names.take(pa.array(codes))
    columns["label"] = pa.array(CLASSES).take(pa.array(label))
    table = pa.table(columns).take(pa.array(order))
    csv.write_csv(table, path, csv.WriteOptions(quoting_style=quotes))


def read_with_pyarrow(path: str) -> int:
    table = csv.read_csv(path)
    return min(len(column.dictionary_encode()) for column in table.columns)


def read_with_dissensus(path: str) -> int:
    from dissensus import read_annotations

    return read_annotations(path).n_labels


def read_value_by_value(path: str) -> int:
    from dissensus.tables.json_lines import JsonTable

    JsonTable._plain_lines = lambda self, text: None  # type: ignore[method-assign]
    return read_with_dissensus(path)


READERS = {"pyarrow": read_with_pyarrow, "dissensus": read_with_dissensus, "general": read_value_by_value}


def measure(reader: str, path: str) -> None:
    """Read once in this process and print seconds and peak memory as JSON."""
    import dissensus.importers  # noqa: F401  (imported before the clock starts)

    start, processor = time.perf_counter(), time.process_time()
    n_labels = READERS[reader](path)
    seconds, processor = time.perf_counter() - start, time.process_time() - processor
    print(json.dumps({"labels": n_labels, "seconds": seconds, "processor": processor, "peak": peak_bytes()}))


def compare(path: Path, rounds: int, other: str, clock: str, limit: float) -> int:
    """Compare two readers by the median ratio of neighbouring runs; 1 if the limit is missed."""
    runs: dict[str, list[dict[str, float]]] = {"dissensus": [], other: []}
    for _ in range(rounds):
        for reader in runs:
            runs[reader].append(in_fresh_process("benchmarks.read", "--reader", reader, "--file", path))
    assert len({run["labels"] for side in runs.values() for run in side}) == 1
    for reader, side in runs.items():
        best, peak = min(run[clock] for run in side), max(run["peak"] for run in side) / 1e6
        print(f"  {reader:<10} {best:6.2f} s, peak {peak:5.0f} MB")
    pairs = zip(runs["dissensus"], runs[other], strict=True)
    ratio = statistics.median(ours[clock] / theirs[clock] for ours, theirs in pairs)
    return check_limit(f"{path.name} over {other}", ratio, limit)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--lines", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--reader", choices=READERS, help=argparse.SUPPRESS)
    parser.add_argument("--file", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reader:
        measure(options.reader, options.file)
        return 0
    missed = 0
    forms = {"sorted": (False, "none"), "shuffled": (True, "none"), "quoted": (False, "all_valid")}
    with tempfile.TemporaryDirectory() as folder:
        for name, (shuffled, quotes) in forms.items():
            path = Path(folder) / f"{name}.csv"
            write_labels(path, options.rows, shuffled=shuffled, quotes=quotes)
            missed |= compare(path, options.rounds, "pyarrow", "seconds", MAX_CSV_RATIO)
            path.unlink()
        source, path = Path(folder) / "labels.csv", Path(folder) / "labels.jsonl"
        write_labels(source, options.lines, shuffled=False, quotes="none")
        path.write_text("".join(json.dumps(row) + "\n" for row in csv.read_csv(source).to_pylist()))
        missed |= compare(path, options.rounds, "general", "processor", MAX_JSON_RATIO)
    return missed


if __name__ == "__main__":
    sys.exit(main())
