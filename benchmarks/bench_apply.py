"""A fitted model's apply, and its chances of every label, over a store larger than memory should hold.

The model learns from a hundredth of the labels and is then asked about all of them: labels are simulated
(crowds.py) and packed as for bench_scale, and everything is told to keep to 12 GB.

    python benchmarks/bench_apply.py [--labels 100000000] [--models 'PGM 8×8'] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from bench_scale import CLASSES, MEMORY, built
from bench_scale import measured as measured_at_scale
from timing import OwnMemory, in_fresh_process, verdict

MOST_BYTES = 12e9


def measure(model: str, small: str, large: str) -> dict[str, float]:
    """Seconds and the most memory of apply, and of the log-probability of every label."""
    import dissensus as ds

    learned, asked = ds.read_annotations(small), ds.read_annotations(large)
    found, moved = {}, None
    with ds.resources(memory=MEMORY):
        fitted = built(model, 10).fit(learned)
        for name in ("apply", "score"):
            began = time.perf_counter()
            with OwnMemory() as own:
                if moved is None:
                    moved = fitted.apply(asked)
                else:
                    moved.score(asked)
            found |= {f"{name} seconds": time.perf_counter() - began, f"{name} bytes": own.most}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--labels", type=int, default=10**8)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--models", nargs="+", choices=CLASSES, default=list(CLASSES))
    given = parser.parse_args()
    missed = 0
    for model in given.models:
        P = CLASSES[model]
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            stores = []
            for n_labels in (given.labels // 100, given.labels):
                files, store = Path(folder) / str(n_labels), Path(folder) / f"{n_labels}.store"
                measured_at_scale("write", n_labels, P, files)
                measured_at_scale("pack", files, store)
                stores.append(store)
            found = in_fresh_process(__file__, "--measure", model, *stores)
        for name in ("apply", "score"):
            seconds, taken = found[f"{name} seconds"], found[f"{name} bytes"]
            print(f"{model}, {given.labels:,} labels: {name} took {seconds:.1f} s")
            missed |= verdict(f"{model}, {name}, GB", taken / 1e9, MOST_BYTES / 1e9)
    return missed


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(*sys.argv[2:])))
        sys.exit()
    sys.exit(main())
