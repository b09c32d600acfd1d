"""HPGM on one thread and on two, where it has few labels: why it takes one there unless told otherwise.

A sweep is many short steps, and two threads wait for each other between them. Chains on two threads are held
against the same chains one after the other, in turn, by the clock and by the processors.

    python benchmarks/bench_threads.py [--sets armis hs_brexit gwsd] [--rounds 2]
"""

from __future__ import annotations

import argparse
import sys
import time

import dissensus as ds
from timing import best_seconds, data_option, read_dataset, verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    data_option(parser)
    parser.add_argument("--sets", nargs="+", default=["armis", "hs_brexit", "gwsd"])
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    missed = 0
    for name in given.sets:
        labels = read_dataset(given.data / name)
        for what, clock in {"by the clock": time.perf_counter, "of processors": time.process_time}.items():
            tasks = [lambda n=n, known=labels: ds.HPGM(n_jobs=n).fit(known) for n in (1, 2)]
            one, two = best_seconds(*tasks, repeats=given.rounds, clock=clock)
            title = f"{name}, {labels.n_labels:,} labels: two threads over one, {what}"
            missed += verdict(title, two / one, 1.0, at_least=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
