"""Writing a store: seconds, memory and size, beside pyarrow reading the same file.

Labels are simulated: five an item, a long-tailed crowd of one annotator per hundred labels, rows in random
order (the hard case: every chunk has most of the annotators and many of the items). Every figure is from a
fresh process. "memory" is the most that was the process's own at any moment, pages of mapped files apart;
"resident" counts those too. "ratio" is that of processor seconds to pyarrow's for reading the three columns
of the same file; on a machine with other work they tell more than the clock.

    python benchmarks/bench_store.py [--labels 100000 1000000 10000000] [--memory 8GB] [--kinds parquet csv]
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

from timing import OwnMemory, in_fresh_process, status

LABELS_PER_ITEM = 5
LABELS_PER_ANNOTATOR = 100
CLASSES = ("positive", "negative", "neutral", "mixed", "unclear")
PIECE = 1_000_000  # rows written at a time


def write_labels(path: Path, n_labels: int) -> None:
    """A file of simulated labels, written piece by piece."""
    rng = np.random.default_rng(0)
    n_items, n_annotators = max(1, n_labels // LABELS_PER_ITEM), max(1, n_labels // LABELS_PER_ANNOTATOR)
    schema = pa.schema([(name, pa.string()) for name in ("item", "annotator", "label")])
    kind = parquet.ParquetWriter if path.suffix == ".parquet" else csv.CSVWriter
    with kind(path, schema) as writer:
        for start in range(0, n_labels, PIECE):
            n = min(PIECE, n_labels - start)
            item = rng.integers(0, n_items, n)
            annotator = (n_annotators * rng.random(n) ** 3).astype(np.int64)
            columns = [_names("item", item), _names("worker", annotator)]
            columns.append(pa.array(CLASSES).take(pa.array(rng.integers(0, len(CLASSES), n))))
            writer.write_table(pa.table(columns, schema=schema))


def _names(prefix: str, codes: np.ndarray) -> pa.Array:
    return pa.array([f"{prefix}-{code:08d}" for code in codes.tolist()], pa.string())


# ---- one measurement, in a process of its own ---------------------------------------------------------


def measure(what: str, file: str, store: str, memory: str) -> dict[str, Any]:
    """Seconds, processor seconds and memory of one task."""
    import dissensus as ds
    from dissensus.large.store import open_annotations

    tasks = {
        "pyarrow": lambda: _read(Path(file)),
        "write": lambda: ds.write_store(file, store, memory=memory),
        "open": lambda: ds.read_annotations(store).n_labels,
        "open unverified": lambda: open_annotations(store, verify=False).n_labels,
        "load": lambda: ds.read_annotations(file).n_labels,
    }
    if what != "pyarrow":
        importlib.import_module("dissensus.large.packing")  # imports are not the matter
    start, cpu = time.perf_counter(), time.process_time()
    with OwnMemory() as memory_seen:
        tasks[what]()
    return {
        "seconds": time.perf_counter() - start,
        "cpu": time.process_time() - cpu,
        "own": memory_seen.most,
        "resident": status("VmHWM"),
    }


def _read(path: Path) -> int:
    if path.suffix == ".parquet":
        return int(parquet.read_table(path).num_rows)
    return int(csv.read_csv(path).num_rows)


# ---- the table ----------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=int, nargs="+", default=[10**5, 10**6, 10**7])
    parser.add_argument("--kinds", nargs="+", default=["parquet", "csv"])
    parser.add_argument("--memory", default="8GB")
    given = parser.parse_args()
    print("| labels | file | task | seconds | processor | ratio | memory, MB | resident, MB | store, MB |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for n_labels in given.labels:
            for kind in given.kinds:
                show(Path(folder), n_labels, kind, given.memory)


def show(folder: Path, n_labels: int, kind: str, memory: str) -> None:
    """Measure one file and print a line a task."""
    file, store = folder / f"labels.{kind}", folder / "store"
    write_labels(file, n_labels)
    plain = 1.0
    for task in ("pyarrow", "write", "open", "open unverified", "load"):
        found = in_fresh_process(__file__, "--measure", task, file, store, memory)
        plain = found["cpu"] if task == "pyarrow" else plain
        size = sum(part.stat().st_size for part in store.iterdir()) if store.exists() else 0
        print(
            f"| {n_labels:,} | {kind} | {task} | {found['seconds']:.2f} | {found['cpu']:.2f} "
            f"| {found['cpu'] / plain:.1f} | {found['own'] / 1e6:,.0f} | {found['resident'] / 1e6:,.0f} "
            f"| {size / 1e6:,.1f} |",
            flush=True,
        )
    shutil.rmtree(store)
    file.unlink()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(*sys.argv[2:])))
    else:
        main()
