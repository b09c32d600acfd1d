"""Writing and opening a store: seconds, memory and size, compared with pyarrow reading the same file.

Labels are simulated: five per item, a long-tailed crowd with one annotator per hundred labels, rows in random
order (the hard case: every chunk contains most annotators and many items). Every figure is from a fresh
process. "memory" is the peak of private memory; "resident" includes mapped files. "ratio" is the ratio of
processor seconds to those of pyarrow reading the three columns of the same file.

    python -m benchmarks.store [--labels 100000 1000000 10000000] [--memory 8GB] [--kinds parquet csv]
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import csv, parquet

from benchmarks.timing import PrivateMemory, in_fresh_process, memory_status
from experiments.runner import line

LABELS_PER_ITEM, LABELS_PER_ANNOTATOR = 5, 100
ROWS_PER_CHUNK = 1_000_000
CLASSES = ("positive", "negative", "neutral", "mixed", "unclear")
HEAD = ("labels", "file", "task", "seconds", "processor", "ratio", "memory, MB", "resident, MB", "store, MB")


def write_labels(path: Path, n_labels: int) -> None:
    """Write simulated labels in chunks."""
    rng = np.random.default_rng(0)
    n_items, n_annotators = max(1, n_labels // LABELS_PER_ITEM), max(1, n_labels // LABELS_PER_ANNOTATOR)
    schema = pa.schema([(name, pa.string()) for name in ("item", "annotator", "label")])
    writer_class = parquet.ParquetWriter if path.suffix == ".parquet" else csv.CSVWriter
    with writer_class(path, schema) as writer:
        for start in range(0, n_labels, ROWS_PER_CHUNK):
            n = min(ROWS_PER_CHUNK, n_labels - start)
            item = rng.integers(0, n_items, n).tolist()
            annotator = (n_annotators * rng.random(n) ** 3).astype(np.int64).tolist()
            columns = [
                pa.array([f"item-{code:08d}" for code in item], pa.string()),
                pa.array([f"worker-{code:08d}" for code in annotator], pa.string()),
                pa.array(CLASSES).take(pa.array(rng.integers(0, len(CLASSES), n))),
            ]
            writer.write_table(pa.table(columns, schema=schema))


def measure(task: str, file: str, store: str, memory: str) -> dict[str, Any]:
    """Return seconds, processor seconds and memory of one task."""
    import dissensus as ds
    from dissensus.large.store import open_annotations

    reader = parquet.read_table if file.endswith(".parquet") else csv.read_csv
    tasks = {
        "pyarrow": lambda: reader(file).num_rows,
        "write": lambda: ds.write_store(file, store, memory=memory),
        "open": lambda: ds.read_annotations(store).n_labels,
        "open unverified": lambda: open_annotations(store, verify=False).n_labels,
        "load": lambda: ds.read_annotations(file).n_labels,
    }
    if task != "pyarrow":
        importlib.import_module("dissensus.large.packing")  # imported before the clock starts
    start, cpu = time.perf_counter(), time.process_time()
    with PrivateMemory() as private:
        tasks[task]()
    return {
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - cpu,
        "private": private.peak,
        "resident": memory_status("VmHWM"),
    }


def print_lines(folder: Path, n_labels: int, kind: str, memory: str) -> None:
    """Measure every task on one file and print a line for each."""
    file, store = folder / f"labels.{kind}", folder / "store"
    write_labels(file, n_labels)
    reference = 1.0
    for task in ("pyarrow", "write", "open", "open unverified", "load"):
        values = in_fresh_process("benchmarks.store", "--measure", task, file, store, memory)
        reference = values["cpu"] if task == "pyarrow" else reference
        size = sum(part.stat().st_size for part in store.iterdir()) if store.exists() else 0
        times = f"{values['seconds']:.2f}", f"{values['cpu']:.2f}", f"{values['cpu'] / reference:.1f}"
        megabytes = (f"{n / 1e6:,.0f}" for n in (values["private"], values["resident"]))
        print(line(f"{n_labels:,}", kind, task, *times, *megabytes, f"{size / 1e6:,.1f}"), flush=True)
    shutil.rmtree(store)
    file.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--labels", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    parser.add_argument("--kinds", nargs="+", default=["parquet", "csv"])
    parser.add_argument("--memory", default="8GB")
    options = parser.parse_args()
    print(line(*HEAD))
    print(line(*["---"] * len(HEAD)))
    with tempfile.TemporaryDirectory() as folder:
        for n_labels in options.labels:
            for kind in options.kinds:
                print_lines(Path(folder), n_labels, kind, options.memory)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(*sys.argv[2:])))
    else:
        main()
