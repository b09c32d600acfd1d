"""Memory and time of ``apply`` and of scoring all labels of a store that exceeds the memory limit.

The model is fitted to one hundredth of the labels. Labels are simulated as for ``scale``.

    python -m benchmarks.apply [--labels 100000000] [--models 'PGM 8×8'] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import scale
from benchmarks.timing import PrivateMemory, in_fresh_process
from experiments.runner import check_limit

MAX_GIGABYTES = 12.0


def measure(model: str, small: str, large: str) -> dict[str, float]:
    """Return seconds and peak memory of ``apply`` and of ``score``."""
    import dissensus as ds

    training, labels = ds.read_annotations(small), ds.read_annotations(large)
    values, applied = {}, None
    with ds.resources(memory=scale.MEMORY):
        fitted = scale.build(model, 10).fit(training)
        for name in ("apply", "score"):
            start = time.perf_counter()
            with PrivateMemory() as memory:
                if applied is None:
                    applied = fitted.apply(labels)
                else:
                    applied.score(labels)
            values |= {f"{name} seconds": time.perf_counter() - start, f"{name} bytes": memory.peak}
    return values


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--labels", type=int, default=10**8)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--models", nargs="+", choices=scale.CLASSES, default=list(scale.CLASSES))
    options = parser.parse_args()
    missed = 0
    for model in options.models:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            stores = []
            for n_labels in (options.labels // 100, options.labels):
                files, store = Path(folder) / str(n_labels), Path(folder) / f"{n_labels}.store"
                scale.measured("write", n_labels, scale.CLASSES[model], files)
                scale.measured("pack", files, store)
                stores.append(store)
            values = in_fresh_process("benchmarks.apply", "--measure", model, *stores)
        for name in ("apply", "score"):
            print(f"{model}, {options.labels:,} labels: {name} took {values[f'{name} seconds']:.1f} s")
            missed |= check_limit(f"{model}, {name}, GB", values[f"{name} bytes"] / 1e9, MAX_GIGABYTES)
    return missed


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(*sys.argv[2:])))
        sys.exit()
    sys.exit(main())
