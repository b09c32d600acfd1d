"""HPGM on one thread and on two: one is the default for fewer than 10,000 labels.

A sweep consists of many short steps, between which two threads wait for each other. Both variants run in
turns and are compared by wall-clock and by processor time.

    python -m benchmarks.threads [--datasets armis hs_brexit gwsd] [--rounds 2]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import dissensus as ds
from benchmarks.timing import best_seconds
from dissensus.models.hpgm.model import MANY_LABELS
from experiments.runner import DATA_FOLDER, check_limit, read_dataset

CLOCKS = {"wall-clock": time.perf_counter, "processor": time.process_time}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA_FOLDER, help="folder of the datasets")
    parser.add_argument("--datasets", nargs="+", default=["armis", "hs_brexit", "gwsd"])
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    missed = 0
    for name in options.datasets:
        labels = read_dataset(options.data / name)
        for clock_name, clock in CLOCKS.items():
            tasks = [lambda n=n, labels=labels: ds.HPGM(n_jobs=n).fit(labels) for n in (1, 2)]
            single, double = best_seconds(*tasks, repeats=options.rounds, clock=clock)
            title = f"{name}, {labels.n_labels:,} labels: two threads over one, {clock_name} time"
            is_small = labels.n_labels < MANY_LABELS  # two threads must pay where they are the default
            limit = 1.0 if is_small or clock_name == "wall-clock" else 1.5
            missed |= check_limit(title, double / single, limit, at_least=is_small)
    return missed


if __name__ == "__main__":
    sys.exit(main())
