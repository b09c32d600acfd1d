"""PGM 8 × 8 on two local Dask workers, compared with two threads: seconds per iteration.

Labels are simulated and read from a store, as for ``scale``. Each side runs in a fresh process, in turns. The
fitted arrays must have the same bits.

    python -m benchmarks.dask [--labels 10000000] [--rounds 1] [--folder DIR]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from benchmarks import scale
from experiments.runner import check_limit

MODEL, MAX_RATIO = "PGM 8×8", 1.5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--labels", type=int, default=10**7)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        files, store = Path(folder) / "labels", Path(folder) / "labels.store"
        scale.measured("write", options.labels, scale.CLASSES[MODEL], files)
        scale.measured("pack", files, store)
        thread_seconds, dask_seconds = [], []
        for _ in range(options.rounds):
            threads = scale.measured("fit", MODEL, store)
            dask = scale.measured("fit on Dask", MODEL, store, 2)
            scale.check_same_bits(threads, dask)
            thread_seconds.append(threads["seconds"])
            dask_seconds.append(dask["seconds"])
    ratio = min(dask_seconds) / min(thread_seconds)
    return check_limit("two Dask workers over two threads, per iteration", ratio, MAX_RATIO)


if __name__ == "__main__":
    sys.exit(main())
