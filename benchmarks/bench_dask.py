"""PGM 8 × 8 on two Dask workers of this machine, beside the same fit on two threads: seconds an iteration.

Labels are simulated (crowds.py) and read from a store, as for bench_scale; each side has a fresh process, and
the two take turns. Bits must be the same.

    python benchmarks/bench_dask.py [--labels 10000000] [--rounds 1] [--folder DIR]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from bench_scale import CLASSES, alike, measured
from timing import verdict

MODEL, MOST_RATIO = "PGM 8×8", 1.5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--labels", type=int, default=10**7)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        files, store = Path(folder) / "labels", Path(folder) / "labels.store"
        measured("write", given.labels, CLASSES[MODEL], files)
        measured("pack", files, store)
        threads, dask = [], []
        for _ in range(given.rounds):
            here, there = measured("fit", MODEL, store), measured("fit on Dask", MODEL, store, 2)
            alike(here, there)
            threads.append(here["seconds"])
            dask.append(there["seconds"])
    print(f"{given.labels:,} labels, seconds an iteration: threads {min(threads):.2f}, Dask {min(dask):.2f}")
    return verdict("two Dask workers over two threads, an iteration", min(dask) / min(threads), MOST_RATIO)


if __name__ == "__main__":
    sys.exit(main())
